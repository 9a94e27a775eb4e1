//! Curves with whiskers over named places or over a scale of numbers.

use super::svg::{Anchor, Drawing, FAINT, INK, RULE, SERIES, axis_number, decades, ticks};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 66.0;

/// More names than this would run into each other, so only some of them are written.
const MAX_NAMES: usize = 7;

/// A chart of curves.
#[derive(Clone, Debug)]
pub(crate) struct CurveChart {
    /// What is shown.
    pub(crate) title: String,
    /// What the axes are.
    pub(crate) subtitle: String,
    /// The horizontal axis.
    pub(crate) x: Scale,
    /// The vertical axis.
    pub(crate) y: Scale,
    /// The curves.
    pub(crate) curves: Vec<Curve>,
    /// Whether the line y = x is drawn: what is offered is what is achieved.
    pub(crate) has_diagonal: bool,
    /// Conditions, at the foot.
    pub(crate) captions: Vec<String>,
}

/// How an axis goes.
#[derive(Clone, Debug)]
pub(crate) enum Scale {
    /// Names, equally far apart; a point's number is the index of one.
    Names(Vec<String>),
    /// From zero.
    Linear,
    /// By powers of ten.
    Logarithmic,
}

/// One curve.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    /// At its right.
    pub(crate) label: String,
    /// From the left.
    pub(crate) points: Vec<Point>,
}

/// One point, with the lowest and highest round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// An axis laid out.
struct Axis {
    marks: Vec<(f64, String)>,
    first: f64,
    last: f64,
    is_logarithmic: bool,
}

impl Axis {
    fn new(scale: &Scale, values: &[f64]) -> Self {
        let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
        let highest = values.iter().copied().fold(0.0, f64::max);
        let (marks, is_logarithmic): (Vec<(f64, String)>, bool) = match scale {
            Scale::Names(names) => {
                let step = names.len().div_ceil(MAX_NAMES).max(1);
                let named = names.iter().enumerate().map(|(index, name)| {
                    let is_shown = index.is_multiple_of(step);
                    let text = if is_shown { name.as_str() } else { "" };
                    (index as f64, text.to_owned())
                });
                (named.collect(), false)
            }
            Scale::Linear => {
                let marked = ticks(highest, 5).into_iter();
                (marked.map(|at| (at, axis_number(at))).collect(), false)
            }
            Scale::Logarithmic => {
                let marked = decades(lowest, highest).into_iter();
                (marked.map(|at| (at, axis_number(at))).collect(), true)
            }
        };
        let first = marks.first().map_or(0.0, |(at, _)| *at);
        let last = marks.last().map_or(1.0, |(at, _)| *at);
        Self {
            marks,
            first,
            last: if last > first { last } else { first + 1.0 },
            is_logarithmic,
        }
    }

    /// 0 at the first mark, 1 at the last.
    fn share(&self, value: f64) -> f64 {
        let at = |value: f64| {
            if self.is_logarithmic {
                value.max(1e-9).log10()
            } else {
                value
            }
        };
        (at(value) - at(self.first)) / (at(self.last) - at(self.first))
    }
}

impl CurveChart {
    pub(crate) fn to_svg(&self) -> String {
        let all = || self.curves.iter().flat_map(|curve| &curve.points);
        let mut values: Vec<f64> = all()
            .flat_map(|point| [point.y, point.low, point.high])
            .collect();
        let along: Vec<f64> = all().map(|point| point.x).collect();
        if self.has_diagonal {
            values.extend(&along);
        }
        let (across, up) = (Axis::new(&self.x, &along), Axis::new(&self.y, &values));
        let height = HEIGHT + 17.0 * self.captions.len() as f64;
        let bottom = HEIGHT - 40.0;
        let x = |value: f64| LEFT + across.share(value) * (WIDTH - LEFT - RIGHT);
        let y = |value: f64| bottom - up.share(value) * (bottom - TOP);

        let mut drawing = Drawing::new(WIDTH, height);
        drawing.text((16.0, 26.0), Anchor::Start, 17, INK, &self.title);
        drawing.text((16.0, 46.0), Anchor::Start, 12, FAINT, &self.subtitle);
        for (at, name) in &up.marks {
            drawing.line((LEFT, y(*at)), (WIDTH - RIGHT, y(*at)), RULE, 1.0);
            drawing.text((LEFT - 8.0, y(*at) + 4.0), Anchor::End, 11, FAINT, name);
        }
        for (at, name) in &across.marks {
            drawing.line((x(*at), bottom), (x(*at), bottom + 4.0), INK, 1.0);
            drawing.text((x(*at), bottom + 18.0), Anchor::Middle, 11, FAINT, name);
        }
        drawing.line((LEFT, bottom), (WIDTH - RIGHT, bottom), INK, 1.0);
        if self.has_diagonal {
            let end = along.iter().copied().fold(0.0, f64::max);
            let start = across.first.max(up.first);
            drawing.line((x(start), y(start)), (x(end), y(end)), FAINT, 1.0);
        }
        for (index, curve) in self.curves.iter().enumerate() {
            let colour = SERIES[index % SERIES.len()];
            let points: Vec<(f64, f64)> = (curve.points.iter())
                .map(|point| (x(point.x), y(point.y)))
                .collect();
            for (point, (at, _)) in curve.points.iter().zip(&points) {
                if point.high > point.low {
                    drawing.line((*at, y(point.low)), (*at, y(point.high)), colour, 1.0);
                }
            }
            drawing.polyline(&points, colour);
            for point in &points {
                drawing.dot(*point, colour);
            }
            let beside = TOP + 8.0 + 20.0 * index as f64;
            let left = WIDTH - RIGHT + 16.0;
            drawing.line((left, beside), (left + 18.0, beside), colour, 3.0);
            drawing.text(
                (left + 24.0, beside + 4.0),
                Anchor::Start,
                12,
                INK,
                &curve.label,
            );
        }
        for (index, caption) in self.captions.iter().enumerate() {
            let at = (16.0, HEIGHT + 4.0 + 17.0 * index as f64);
            drawing.text(at, Anchor::Start, 11, FAINT, caption);
        }
        drawing.finish(&self.title)
    }
}
