//! A profile as text for people, route by route.

use std::fmt::{self, Write as _};

use super::counters::{HandlerTime, RouteCounters, ServerSide};
use super::report::{ProcessCost, RouteProfile};
use crate::load::{LatencySummary, ResponseDigest, show_time};

/// Other counters that are shown; the JSON document has all of them.
const MAX_COUNTERS: usize = 8;

/// Digits of a digest that are shown: enough to tell two bodies apart.
const DIGEST_DIGITS: usize = 12;

impl RouteProfile {
    /// Renders the route as text for people, without colours.
    pub fn render_text(&self) -> String {
        self.to_string()
    }

    fn write_client(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let load = &self.load;
        writeln!(
            f,
            "  client     {} ok/s: {} attempts in {} on {} connections{}",
            optional(load.rate, |rate| format!("{rate:.1}")),
            load.attempts,
            show_time(load.window_ns),
            load.connections,
            if load.interrupted {
                ", interrupted"
            } else {
                ""
            },
        )?;
        if let Some(open) = &load.open_loop {
            writeln!(
                f,
                "  pace       {} a second answered of {} offered{}; at most {} waited",
                optional(open.achieved_rate, |rate| format!("{rate:.1}")),
                optional(open.offered_rate, |rate| format!("{rate:.1}")),
                if open.saturated { ", saturated" } else { "" },
                open.max_waiting,
            )?;
        }
        write!(f, "  {:<10}", "")?;
        for name in ["mean", "min", "p50", "p90", "p95", "p99", "p99.9", "max"] {
            write!(f, " {name:>9}")?;
        }
        writeln!(f)?;
        write_times(f, "latency", load.shown_latency())?;
        if load.latency_intended.is_some() {
            write_times(f, "from send", &load.latency)?;
        }
        if load.latency_error.count > 0 {
            write_times(f, "errors", &load.latency_error)?;
        }
        write!(f, "  outcomes  ")?;
        for (outcome, count) in load.outcomes.iter().filter(|(_, count)| *count > 0) {
            write!(f, " {outcome}={count}")?;
        }
        writeln!(
            f,
            "\n  bytes      {} read by the client, {} a response",
            size(Some(load.bytes_read)),
            optional(self.bytes_per_response, |bytes| format!("{bytes:.0}")),
        )
    }

    fn write_server(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(server) = &self.server else {
            let reason = self.server_missing.as_deref().unwrap_or_default();
            return writeln!(f, "  server     not seen: {reason}");
        };
        for route in &server.routes {
            write_route(f, route)?;
        }
        if let Some(time) = self.in_server_mean_ns {
            writeln!(
                f,
                "  mean       {} in the server, {} elsewhere: queues, kernel, network, client",
                nanoseconds(Some(time)),
                nanoseconds(self.elsewhere_mean_ns),
            )?;
        }
        write_state(f, server)
    }
}

fn write_times(f: &mut fmt::Formatter<'_>, name: &str, times: &LatencySummary) -> fmt::Result {
    write!(f, "  {name:<10} {:>9}", nanoseconds(times.mean_ns))?;
    for value in times.ordered() {
        write!(f, " {:>9}", show_time(value))?;
    }
    writeln!(f, "  n={}", times.count)
}

fn write_route(f: &mut fmt::Formatter<'_>, route: &RouteCounters) -> fmt::Result {
    write!(
        f,
        "  server     {} {}: {} requests",
        route.method, route.route, route.requests
    )?;
    for (status, count) in &route.statuses {
        write!(f, ", {status}={count}")?;
    }
    writeln!(f)?;
    let Some(time) = &route.time else {
        return Ok(());
    };
    writeln!(
        f,
        "  handler    mean {}, half within {}, 90 % within {}, 99 % within {}",
        nanoseconds(time.mean_ns),
        bound(time, time.p50_at_most_ns),
        bound(time, time.p90_at_most_ns),
        bound(time, time.p99_at_most_ns),
    )
}

/// An upper bound, or that it is above the last one.
fn bound(time: &HandlerTime, at_most: Option<u64>) -> String {
    if at_most.is_some() {
        return show_time(at_most);
    }
    let last = time
        .buckets
        .iter()
        .rev()
        .find_map(|bucket| bucket.at_most_ns);
    format!("more than {}", show_time(last))
}

fn write_state(f: &mut fmt::Formatter<'_>, server: &ServerSide) -> fmt::Result {
    if let Some(in_flight) = &server.in_flight {
        writeln!(
            f,
            "  in flight  {:.1} on the mean of {} looks, {} at most",
            in_flight.mean, in_flight.looks, in_flight.max
        )?;
    }
    if server.sent_bytes.is_some() || server.received_bytes.is_some() {
        writeln!(
            f,
            "  traffic    {} received by the server, {} sent",
            size(server.received_bytes),
            size(server.sent_bytes)
        )?;
    }
    for (series, count) in server.counters.iter().take(MAX_COUNTERS) {
        writeln!(f, "  counter    {series} +{count}")?;
    }
    Ok(())
}

fn write_process(f: &mut fmt::Formatter<'_>, cost: &ProcessCost) -> fmt::Result {
    let plural = if cost.num_processes == 1 { "" } else { "es" };
    writeln!(
        f,
        "  process    {} of CPU a response, {} CPUs busy; {} (pid {}), {} process{plural}",
        nanoseconds(cost.cpu_ns_per_response),
        optional(cost.busy_cpus, |cpus| format!("{cpus:.2}")),
        cost.program.as_deref().unwrap_or("n/a"),
        cost.pid,
        cost.num_processes,
    )?;
    writeln!(
        f,
        "  memory     {} resident, {} before the load, {} at most",
        size(cost.rss_bytes),
        size(cost.rss_before_bytes),
        size(cost.peak_rss_bytes),
    )
}

impl fmt::Display for RouteProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.path)?;
        self.write_client(f)?;
        self.write_server(f)?;
        match &self.process {
            Some(cost) => write_process(f, cost)?,
            None => {
                let reason = self.process_missing.as_deref().unwrap_or_default();
                writeln!(f, "  process    not seen: {reason}")?;
            }
        }
        let needs = self.load.shown_latency().needs();
        if !needs.is_empty() && self.load.shown_latency().count > 0 {
            let needs: Vec<_> = (needs.iter())
                .map(|(name, count)| format!("{name} {count}"))
                .collect();
            writeln!(
                f,
                "  note       samples that percentiles need: {}",
                needs.join(", ")
            )?;
        }
        for note in &self.notes {
            writeln!(f, "  note       {note}")?;
        }
        Ok(())
    }
}

impl ResponseDigest {
    /// Status, length and the begin of the digest, for people.
    pub fn describe(&self) -> String {
        format!(
            "status {}, {} bytes, sha256 {}",
            self.status,
            self.body_len,
            &self.sha256_hex()[..DIGEST_DIGITS]
        )
    }
}

fn optional<T>(value: Option<T>, format: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "n/a".to_owned(), format)
}

/// A time with a unit, of a number that may have a fraction.
pub(super) fn nanoseconds(value: Option<f64>) -> String {
    show_time(value.map(|value| value.round() as u64))
}

/// Bytes with a unit that leaves one to four digits before the point.
pub(super) fn size(bytes: Option<u64>) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    optional(bytes, |bytes| {
        let mut value = bytes as f64;
        let mut text = format!("{bytes} B");
        for unit in UNITS {
            if value < 1024.0 {
                break;
            }
            value /= 1024.0;
            text.clear();
            let _ = write!(text, "{value:.1} {unit}");
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        for (bytes, expected) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (12_897_485, "12.3 MiB"),
            (1 << 50, "1024.0 TiB"),
        ] {
            assert_eq!(size(Some(bytes)), expected);
        }
        assert_eq!(size(None), "n/a");
        assert_eq!(nanoseconds(Some(6_912.4)), "6.9 µs");
    }
}
