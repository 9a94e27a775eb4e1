//! Writer of the Prometheus text format 0.0.4.
//!
//! Source: Prometheus documentation, "Exposition formats", text-based format.

use std::fmt::{Display, Write as _};

use super::lane::{BUCKETS, RouteCounts};

/// Text under construction.
#[derive(Debug)]
pub(super) struct Exposition(String);

/// Kind of a metric family.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Exposition {
    pub(super) fn new() -> Self {
        Self(String::with_capacity(16 * 1024))
    }

    pub(super) fn into_string(self) -> String {
        self.0
    }

    /// Starts a family; its samples must follow at once.
    pub(super) fn family(&mut self, name: &str, help: &str, kind: Kind) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        self.write(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    /// Writes one sample of the current family.
    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (index, (label, text)) in labels.iter().enumerate() {
            self.0.push(if index == 0 { '{' } else { ',' });
            self.0.push_str(label);
            self.0.push_str("=\"");
            self.push_escaped(text);
            self.0.push('"');
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        self.write(format_args!(" {value}\n"));
    }

    /// Writes a counter family of one sample.
    pub(super) fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, help, Kind::Counter);
        self.sample(name, &[], value);
    }

    /// Writes a gauge family of one sample.
    pub(super) fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, help, Kind::Gauge);
        self.sample(name, &[], value);
    }

    /// Writes one histogram of the current family.
    pub(super) fn histogram(
        &mut self,
        name: &str,
        [first, second]: [(&str, &str); 2],
        counts: &RouteCounts,
    ) {
        let bucket_name = format!("{name}_bucket");
        let bounds = BUCKETS.iter().map(|bucket| bucket.label).chain(["+Inf"]);
        let mut cumulative = 0;
        for (bound, count) in bounds.zip(counts.buckets) {
            cumulative += count;
            self.sample(&bucket_name, &[first, second, ("le", bound)], cumulative);
        }
        let seconds = counts.duration_ns as f64 / 1e9;
        self.sample(&format!("{name}_sum"), &[first, second], seconds);
        self.sample(&format!("{name}_count"), &[first, second], cumulative);
    }

    fn push_escaped(&mut self, value: &str) {
        for character in value.chars() {
            match character {
                '\\' => self.0.push_str("\\\\"),
                '"' => self.0.push_str("\\\""),
                '\n' => self.0.push_str("\\n"),
                other => self.0.push(other),
            }
        }
    }

    fn write(&mut self, arguments: std::fmt::Arguments<'_>) {
        self.0
            .write_fmt(arguments)
            .expect("writing to memory cannot fail");
    }
}
