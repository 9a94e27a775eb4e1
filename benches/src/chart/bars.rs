//! Horizontal bars from zero, one a line, with whiskers and the value in words.

use super::svg::{Anchor, Drawing, FAINT, INK, RULE, SERIES, axis_number, ticks};

const WIDTH: f64 = 860.0;
const LEFT: f64 = 210.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 62.0;
const LINE: f64 = 30.0;
const BAR: f64 = 16.0;

/// A chart of bars.
#[derive(Clone, Debug)]
pub(crate) struct BarChart {
    /// What is shown.
    pub(crate) title: String,
    /// Unit and direction, `µs, less is better`.
    pub(crate) subtitle: String,
    /// The bars, from the top.
    pub(crate) bars: Vec<Bar>,
    /// Conditions, at the foot.
    pub(crate) captions: Vec<String>,
}

/// One bar.
#[derive(Clone, Debug)]
pub(crate) struct Bar {
    /// At its left.
    pub(crate) label: String,
    /// Lowest, median and highest; `None` when there is nothing to show.
    pub(crate) values: Option<(f64, f64, f64)>,
    /// At its right: the value, or why there is none.
    pub(crate) text: String,
    /// Whether it is what the chart is about.
    pub(crate) is_subject: bool,
    /// Whether it counts; a superseded one is drawn faint.
    pub(crate) counts: bool,
}

impl BarChart {
    pub(crate) fn to_svg(&self) -> String {
        let num_bars = self.bars.len().max(1) as f64;
        let bottom = TOP + num_bars * LINE + 8.0;
        let height = bottom + 34.0 + 17.0 * self.captions.len() as f64;
        let mut drawing = Drawing::new(WIDTH, height);
        drawing.text((16.0, 26.0), Anchor::Start, 17, INK, &self.title);
        drawing.text((16.0, 46.0), Anchor::Start, 12, FAINT, &self.subtitle);

        let highest = (self.bars.iter())
            .filter_map(|bar| bar.values)
            .map(|(_, _, high)| high)
            .fold(0.0, f64::max);
        let ticks = ticks(highest, 5);
        let end = ticks.last().copied().unwrap_or(1.0);
        let x = |value: f64| LEFT + value.max(0.0) / end * (WIDTH - LEFT - RIGHT);
        for tick in &ticks {
            drawing.line((x(*tick), TOP - 4.0), (x(*tick), bottom), RULE, 1.0);
            let at = (x(*tick), bottom + 16.0);
            drawing.text(at, Anchor::Middle, 11, FAINT, &axis_number(*tick));
        }
        for (index, bar) in self.bars.iter().enumerate() {
            let middle = TOP + (index as f64 + 0.5) * LINE;
            let ink = if bar.counts { INK } else { FAINT };
            let baseline = middle + 4.0;
            drawing.text((LEFT - 10.0, baseline), Anchor::End, 13, ink, &bar.label);
            let mut text_x = x(0.0) + 8.0;
            if let Some((low, median, high)) = bar.values {
                let colour = match (bar.counts, bar.is_subject) {
                    (false, _) => RULE,
                    (true, true) => SERIES[0],
                    (true, false) => SERIES[4],
                };
                let top = middle - BAR / 2.0;
                drawing.rectangle((x(0.0), top), (x(median) - x(0.0), BAR), colour);
                drawing.line((x(low), middle), (x(high), middle), ink, 1.5);
                for end in [low, high] {
                    drawing.line((x(end), middle - 4.0), (x(end), middle + 4.0), ink, 1.5);
                }
                text_x = x(high) + 8.0;
            }
            drawing.text((text_x, baseline), Anchor::Start, 12, ink, &bar.text);
        }
        drawing.line((x(0.0), TOP - 4.0), (x(0.0), bottom), INK, 1.0);
        for (index, caption) in self.captions.iter().enumerate() {
            let y = bottom + 38.0 + 17.0 * index as f64;
            drawing.text((16.0, y), Anchor::Start, 11, FAINT, caption);
        }
        drawing.finish(&self.title)
    }
}
