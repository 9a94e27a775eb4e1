//! Charts as deterministic SVG: bars with whiskers, and curves.
//!
//! A bar begins at zero and ends at the median; the whisker goes from the lowest to the highest
//! round. What could not be measured has its line too, with words in place of a bar.

mod bars;
mod curves;
mod svg;

pub(crate) use bars::{Bar, BarChart};
pub(crate) use curves::{Curve, CurveChart, Point, Scale};
pub(crate) use svg::escape;
