//! A small writer of SVG whose output is a function of its input, byte for byte.
//!
//! Coordinates have one digit after the point, there are no ids, dates or random numbers, and text
//! from outside is escaped. One font, five colours, no script.

use std::fmt::Write as _;

/// Colours: text, faint text and rules, what is judged, what it is compared with, and the ground.
pub(super) const INK: &str = "#1f2328";
pub(super) const FAINT: &str = "#767b82";
pub(super) const RULE: &str = "#d9dce0";
pub(super) const GROUND: &str = "#ffffff";

/// Colours of series, told apart by lightness as well as by hue.
pub(super) const SERIES: [&str; 7] = [
    "#0b5fa5", "#d1701c", "#3b8f6b", "#8a4fa3", "#8a8f98", "#b03a4c", "#5b6b1f",
];

/// Where a text stands relative to its point.
#[derive(Clone, Copy, Debug)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A drawing under construction.
#[derive(Debug)]
pub(super) struct Drawing {
    width: f64,
    height: f64,
    body: String,
}

impl Drawing {
    pub(super) fn new(width: f64, height: f64) -> Self {
        Self {
            width,
            height,
            body: String::new(),
        }
    }

    pub(super) fn rectangle(
        &mut self,
        (x, y): (f64, f64),
        (width, height): (f64, f64),
        fill: &str,
    ) {
        let _ = writeln!(
            self.body,
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" fill="{fill}"/>"#
        );
    }

    pub(super) fn line(
        &mut self,
        (x1, y1): (f64, f64),
        (x2, y2): (f64, f64),
        colour: &str,
        width: f64,
    ) {
        let _ = writeln!(
            self.body,
            r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" stroke="{colour}" stroke-width="{width:.1}"/>"#
        );
    }

    pub(super) fn polyline(&mut self, points: &[(f64, f64)], colour: &str) {
        let mut text = String::new();
        for (x, y) in points {
            let _ = write!(text, "{x:.1},{y:.1} ");
        }
        let _ = writeln!(
            self.body,
            r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="2.0" stroke-linejoin="round"/>"#,
            text.trim_end()
        );
    }

    pub(super) fn dot(&mut self, (x, y): (f64, f64), colour: &str) {
        let _ = writeln!(
            self.body,
            r#"<circle cx="{x:.1}" cy="{y:.1}" r="3.0" fill="{colour}"/>"#
        );
    }

    pub(super) fn text(
        &mut self,
        (x, y): (f64, f64),
        anchor: Anchor,
        size: u32,
        colour: &str,
        text: &str,
    ) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let _ = writeln!(
            self.body,
            r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" font-size="{size}" fill="{colour}">{}</text>"#,
            escape(text)
        );
    }

    /// The whole file; `title` is what a reader who cannot see it is told.
    pub(super) fn finish(self, title: &str) -> String {
        let (width, height) = (self.width, self.height);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"system-ui, 'Segoe UI', \
             'DejaVu Sans', sans-serif\" role=\"img\">\n<title>{}</title>\n\
             <rect width=\"{width:.0}\" height=\"{height:.0}\" fill=\"{GROUND}\"/>\n{}</svg>\n",
            escape(title),
            self.body
        )
    }
}

/// Text that is safe inside an element or a quoted attribute, in SVG and HTML.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// Round numbers from zero to at least `highest`, about `count` of them: 1, 2 or 5 times a power of 10.
pub(super) fn ticks(highest: f64, count: usize) -> Vec<f64> {
    if !(highest.is_finite() && highest > 0.0) {
        return vec![0.0, 1.0];
    }
    let rough = highest / count.max(1) as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= rough * (1.0 - 1e-9))
        .unwrap_or(10.0 * power);
    let num_steps = (highest / step * (1.0 - 1e-9)).ceil() as usize;
    (0..=num_steps).map(|i| i as f64 * step).collect()
}

/// The powers of ten that enclose the values.
pub(super) fn decades(lowest: f64, highest: f64) -> Vec<f64> {
    let first = lowest.max(1e-9).log10().floor() as i32;
    let last = (highest.max(1e-9).log10().ceil() as i32).max(first + 1);
    (first..=last).map(|power| 10f64.powi(power)).collect()
}

/// A number of an axis: no more digits than it needs, thousands as k, millions as M.
pub(super) fn axis_number(value: f64) -> String {
    let (value, suffix) = match value.abs() {
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let mut text = format!("{value:.3}");
    while text.contains('.') && text.ends_with(['0', '.']) {
        text.pop();
    }
    text + suffix
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_reach_the_highest() {
        assert_eq!(ticks(173_000.0, 5), [0.0, 50e3, 100e3, 150e3, 200e3]);
        assert_eq!(ticks(0.8, 5), [0.0, 0.2, 0.4, 0.2 * 3.0, 0.8]);
        assert_eq!(ticks(9.7, 4), [0.0, 5.0, 10.0]);
        assert_eq!(ticks(0.0, 4), [0.0, 1.0]);
        assert_eq!(ticks(f64::NAN, 4), [0.0, 1.0]);
        for highest in [0.003, 1.7, 42.0, 99.9, 1e7] {
            let found = ticks(highest, 5);
            assert!(
                *found.last().unwrap() >= highest && found.len() <= 8,
                "{found:?}"
            );
        }
    }

    #[test]
    fn decades_enclose() {
        assert_eq!(decades(3.0, 450.0), [1.0, 10.0, 100.0, 1000.0]);
        assert_eq!(decades(10.0, 10.0), [10.0, 100.0]);
    }

    #[test]
    fn axis_numbers_are_short() {
        for (value, expected) in [
            (0.0, "0"),
            (0.25, "0.25"),
            (9_500.0, "9500"),
            (150_000.0, "150k"),
            (2_500_000.0, "2.5M"),
        ] {
            assert_eq!(axis_number(value), expected);
        }
    }

    #[test]
    fn text_cannot_leave_its_element() {
        assert_eq!(escape("<a b=\"c\">&\n"), "&lt;a b=&quot;c&quot;&gt;&amp; ");
    }
}
