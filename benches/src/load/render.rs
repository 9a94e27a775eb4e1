//! A report as text for people and as a line of CSV.

use std::fmt::{self, Write as _};
use std::time::Duration;

use super::report::LoadReport;
use super::summary::LatencySummary;

impl LoadReport {
    /// Renders the report as text for people, without colours.
    pub fn render_text(&self) -> String {
        self.to_string()
    }

    /// Renders the report as two lines of CSV: the names of the columns and their values.
    ///
    /// A value that was not measured is empty.
    pub fn render_csv(&self) -> String {
        let mut columns: Vec<(String, String)> = Vec::new();
        let mut add = |name: &str, value: Option<String>| {
            columns.push((name.to_owned(), value.unwrap_or_default()));
        };
        add("client", Some(self.client.clone()));
        add("address", Some(self.address.clone()));
        add("connections", Some(self.connections.to_string()));
        add("threads", Some(self.threads.to_string()));
        add("interrupted", Some(self.interrupted.to_string()));
        add("window_ns", self.window_ns.map(|ns| ns.to_string()));
        add("attempts", Some(self.attempts.to_string()));
        for (outcome, count) in self.outcomes.iter() {
            add(outcome.name(), Some(count.to_string()));
        }
        add("bytes_read", Some(self.bytes_read.to_string()));
        add("rate", self.rate.map(|rate| rate.to_string()));
        let open = self.open_loop.as_ref();
        add(
            "offered_rate",
            open.and_then(|open| open.offered_rate)
                .map(|rate| rate.to_string()),
        );
        add(
            "achieved_ratio",
            open.and_then(|open| open.achieved_ratio)
                .map(|ratio| ratio.to_string()),
        );
        for (name, summary) in [
            ("latency", Some(&self.latency)),
            ("latency_intended", self.latency_intended.as_ref()),
            ("latency_corrected", self.latency_corrected.as_ref()),
            ("first_byte", Some(&self.first_byte)),
            ("lateness", open.map(|open| &open.lateness)),
            ("latency_error", Some(&self.latency_error)),
            ("connect", Some(&self.connect)),
        ] {
            let count = summary.map(|summary| summary.count.to_string());
            add(&format!("{name}_count"), count);
            let mean = summary.and_then(|summary| summary.mean_ns);
            add(
                &format!("{name}_mean_ns"),
                mean.map(|mean| mean.to_string()),
            );
            let values = summary.map_or([None; 7], LatencySummary::ordered);
            for (statistic, value) in
                (["min", "p50", "p90", "p95", "p99", "p99_9", "max"].iter()).zip(values)
            {
                let name = format!("{name}_{statistic}_ns");
                add(&name, value.map(|value| value.to_string()));
            }
        }
        add("client_cpu_ns", Some(self.client_cpu_ns.to_string()));
        let ceiling = self.client_ceiling_rate;
        add("client_ceiling_rate", ceiling.map(|rate| rate.to_string()));
        add("client_bound", Some(self.client_bound.to_string()));
        let raw = self.raw.as_ref();
        add("raw_written", raw.map(|raw| raw.written.to_string()));
        add("raw_dropped", raw.map(|raw| raw.dropped.to_string()));
        let (names, values): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
        format!("{}\n{}\n", names.join(","), values.join(","))
    }

    fn write_latencies(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<10}", "")?;
        for name in ["mean", "min", "p50", "p90", "p95", "p99", "p99.9", "max"] {
            write!(f, " {name:>9}")?;
        }
        writeln!(f)?;
        let lateness = self.open_loop.as_ref().map(|open| &open.lateness);
        for (name, summary) in [
            ("latency", Some(self.shown_latency())),
            (
                "from send",
                self.latency_intended.as_ref().map(|_| &self.latency),
            ),
            ("corrected", self.latency_corrected.as_ref()),
            ("first byte", Some(&self.first_byte)),
            ("lateness", lateness),
            ("errors", Some(&self.latency_error)),
            ("connect", Some(&self.connect)),
        ] {
            let Some(summary) = summary.filter(|s| s.count > 0 || name == "latency") else {
                continue;
            };
            let mean = summary.mean_ns.map(|mean| mean as u64);
            write!(f, "{name:<10} {:>9}", time(mean))?;
            for value in summary.ordered() {
                write!(f, " {:>9}", time(value))?;
            }
            writeln!(f, "  n={}", summary.count)?;
        }
        Ok(())
    }

    fn write_pace(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(open) = &self.open_loop else {
            return writeln!(
                f,
                "pace       closed loop: latency leaves out what waits outside the {} connections",
                self.connections
            );
        };
        let rate = |rate: Option<f64>| optional(rate, |rate| format!("{rate:.1}"));
        writeln!(
            f,
            "pace       {} of {} requests/s offered ({}){}; at most {} waited, {} were sent late",
            rate(open.achieved_rate),
            rate(open.offered_rate),
            optional(open.achieved_ratio, |ratio| format!(
                "{:.2} %",
                ratio * 100.0
            )),
            if open.saturated { ", saturated" } else { "" },
            open.max_waiting,
            open.late_sends,
        )
    }

    fn write_client(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let busy = (self.per_thread.iter()).filter_map(|thread| thread.busy_ratio);
        let share = |ratio: f64| format!("{:.0} %", ratio * 100.0);
        write!(
            f,
            "client     {}, busiest thread {}, CPU {}",
            self.client,
            optional(busy.reduce(f64::max), share),
            time(Some(self.client_cpu_ns)),
        )?;
        if let Some(deviation) = self.littles_law_deviation {
            write!(f, ", Little's law {:+.1} %", deviation * 100.0)?;
        }
        if let Some(ceiling) = self.client_ceiling_rate {
            write!(f, ", ceiling {ceiling:.1}/s")?;
        }
        writeln!(f)
    }

    /// What a reader could take wrongly.
    fn write_notes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let needs = self.shown_latency().needs();
        if !needs.is_empty() && self.shown_latency().count > 0 {
            let mut text = String::new();
            for (name, count) in needs {
                let comma = if text.is_empty() { "" } else { ", " };
                write!(text, "{comma}{name} {count}")?;
            }
            writeln!(f, "note       samples that percentiles need: {text}")?;
        }
        if let Some(interval) = self.expected_interval_ns {
            writeln!(
                f,
                "note       corrected: synthetic, for a request each {} on each connection",
                time(Some(interval))
            )?;
        }
        if let Some(raw) = &self.raw {
            let error = (raw.error.as_ref()).map_or_else(String::new, |error| format!(": {error}"));
            writeln!(
                f,
                "note       raw: {} lines written, {} dropped{error}",
                raw.written, raw.dropped
            )?;
        }
        if self.client_bound {
            writeln!(
                f,
                "note       the client may be the limit: use more threads, or less load"
            )?;
        }
        match self.oldest_aborted_ns {
            Some(age) if Some(age) > self.latency.max_ns => writeln!(
                f,
                "note       the oldest request in flight at the stop was {} old: \
                 the true maximum is unknown",
                time(Some(age))
            ),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} attempts in {} on {} connections, {} threads, to {}{}",
            self.attempts,
            time(self.window_ns),
            self.connections,
            self.threads,
            self.address,
            if self.interrupted {
                ", interrupted"
            } else {
                ""
            },
        )?;
        let rate = optional(self.rate, |rate| format!("{rate:.1}"));
        writeln!(f, "rate       {rate} ok/s")?;
        self.write_pace(f)?;
        self.write_latencies(f)?;
        write!(f, "outcomes  ")?;
        for (outcome, count) in self.outcomes.iter().filter(|(_, count)| *count > 0) {
            write!(f, " {outcome}={count}")?;
        }
        write!(f, "\nstatus    ")?;
        for (status, count) in &self.status_counts {
            write!(f, " {status}={count}")?;
        }
        writeln!(
            f,
            "\nread       {} bytes; {} connections opened, {} requests sent again",
            self.bytes_read,
            optional(self.connections_opened, |count| count.to_string()),
            self.resent
        )?;
        self.write_client(f)?;
        self.write_notes(f)
    }
}

fn optional<T>(value: Option<T>, format: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "n/a".to_owned(), format)
}

/// A time with a unit that leaves one to three digits before the point.
pub(crate) fn time(nanoseconds: Option<u64>) -> String {
    optional(nanoseconds, |value| {
        let seconds = Duration::from_nanos(value).as_secs_f64();
        match value {
            0..1_000 => format!("{value} ns"),
            1_000..1_000_000 => format!("{:.1} µs", seconds * 1e6),
            1_000_000..1_000_000_000 => format!("{:.2} ms", seconds * 1e3),
            _ => format!("{seconds:.2} s"),
        }
    })
}
