//! A load client in a process of its own, run against a server that is measured already: ours as a
//! user starts it, or another.
//!
//! What it reports is taken as it says it, with its errors; what it cannot know is left out. Its
//! CPU time is that of a child that has ended, of `/proc/self/stat` in clock ticks (10 ms): of five
//! busy seconds, less than half a per cent.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use super::output;
use super::round::Loaded;
use crate::ledger::{CellRecord, ClientRecord, LoadRecord, OpenRecord, ReportForm};
use crate::load::Outcome;

/// What a client may need besides the measured time: to start, to connect, to end.
const GRACE: Duration = Duration::from_secs(30);

/// Where the offered rate of its cell goes in the command of a client.
pub(super) const RATE_MARK: &str = "{rate}";

/// Runs the client on `cpu` for the measured time of the cell.
///
/// # Errors
///
/// Says why there is no report.
pub(super) fn measure(
    client: &ClientRecord,
    url: &str,
    cell: &CellRecord,
    folder: &Path,
    cpu: Option<usize>,
) -> Result<Loaded, String> {
    let time = Duration::from_millis(cell.measure_ms);
    let rate = (cell.offered_rate).map_or_else(String::new, |rate| rate.value().to_string());
    let command: Vec<String> = (client.command.iter())
        .map(|part| {
            part.replace("{url}", url)
                .replace("{connections}", &cell.connections.to_string())
                .replace("{seconds}", &time.as_secs().to_string())
                .replace(RATE_MARK, &rate)
        })
        .collect();
    let failed = |reason: String| format!("{}: {reason}", client.program);
    let before = ended_children();
    let text = output::of(&command, folder, cpu, time + GRACE).map_err(failed)?;
    let after = ended_children();
    let used = after.zip(before);
    let used = used.and_then(|(after, before)| after.checked_sub(before));
    let used = used.ok_or_else(|| failed(String::from("its CPU time is unknown")))?;
    let mut load = read(client.report, &text).map_err(failed)?;
    load.client = Some(client.program.clone());
    Ok(Loaded {
        client_cpu_ns: u64::try_from(used.as_nanos()).unwrap_or(u64::MAX),
        answers: load.ok,
        errors: errors(&load, cell.connections),
        load,
    })
}

/// CPU time of the children of this process that have ended and been waited for, and of theirs.
fn ended_children() -> Option<Duration> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name in parentheses may hold anything; cutime and cstime are fields 16 and 17 (proc(5)).
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(13);
    let mut next = || fields.next()?.parse::<u64>().ok();
    let ticks = next()? + next()?;
    let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    Some(Duration::from_nanos(ticks * tick_ns))
}

/// Requests in flight at the end are cut off by every client, and an open loop that was not kept has
/// a ratio that says so; all else is an error.
fn errors(load: &LoadRecord, connections: u32) -> Option<String> {
    let bad: Vec<String> = (load.outcomes.iter())
        .filter(|(name, count)| {
            let is_late = load.open.is_some() && **name == Outcome::NotSent.name();
            let is_cut_off = **name == Outcome::AbortedAtDeadline.name();
            let is_usual = is_late || is_cut_off && **count <= u64::from(connections);
            **name != Outcome::Ok.name() && !is_usual
        })
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    match bad.is_empty() {
        true if load.ok == 0 => Some(String::from("no good answer")),
        true => None,
        false => Some(bad.join(", ")),
    }
}

fn read(form: ReportForm, text: &str) -> Result<LoadRecord, String> {
    match form {
        ReportForm::Justapi => read_justapi(text),
        ReportForm::Wrk => read_wrk(text),
        ReportForm::Oha => read_oha(text),
    }
    .ok_or_else(|| {
        let start: String = text.trim().chars().take(60).collect();
        format!("printed {start:?}, which is no report")
    })
}

/// Of its outcomes those that happened, and the latencies, by the names of the record.
fn load(
    window_ns: f64,
    outcomes: impl IntoIterator<Item = (String, u64)>,
    latency_ns: impl IntoIterator<Item = (&'static str, Option<f64>)>,
) -> Option<LoadRecord> {
    let mut sums = BTreeMap::new();
    for (name, count) in outcomes.into_iter().filter(|(_, count)| *count > 0) {
        *sums.entry(name).or_default() += count;
    }
    let rounded = |ns: f64| (ns.is_finite() && ns >= 0.0).then(|| ns.round() as u64);
    Some(LoadRecord {
        window_ns: Some(rounded(window_ns).filter(|ns| *ns > 0)?),
        attempts: sums.values().sum(),
        ok: sums.get(Outcome::Ok.name()).copied().unwrap_or_default(),
        outcomes: sums,
        latency_ns: (latency_ns.into_iter())
            .map(|(name, ns)| (name.to_owned(), ns.and_then(rounded)))
            .collect(),
        body_bytes: None,
        bodies_compared: None,
        open: None,
        client: None,
    })
}

fn read_justapi(text: &str) -> Option<LoadRecord> {
    #[derive(Deserialize)]
    struct Report {
        window_ns: u64,
        outcomes: BTreeMap<String, u64>,
        latency: Summary,
        latency_intended: Option<Summary>,
        open_loop: Option<OpenLoop>,
    }
    #[derive(Deserialize)]
    struct OpenLoop {
        lateness: Summary,
    }
    type Summary = BTreeMap<String, serde_json::Value>;
    let report: Report = serde_json::from_str(text).ok()?;
    let names = ["min", "p50", "p90", "p95", "p99", "p99_9", "max"];
    let percentile = |times: &Summary, name: &str| times.get(&format!("{name}_ns"))?.as_f64();
    // Of an open loop from the instant at which a request was due, as the bench's own engine.
    let times = report.latency_intended.as_ref().unwrap_or(&report.latency);
    let latencies = names.map(|name| (name, percentile(times, name)));
    let mut load = load(report.window_ns as f64, report.outcomes, latencies)?;
    let answered = |(name, count): (&String, &u64)| {
        let outcome = Outcome::ALL
            .into_iter()
            .find(|outcome| outcome.name() == name)?;
        outcome.is_response().then_some(*count)
    };
    load.open = report.open_loop.map(|open| OpenRecord {
        due: load.attempts,
        answered: load.outcomes.iter().filter_map(answered).sum(),
        lateness_ns: (names.into_iter())
            .map(|name| {
                let ns = percentile(&open.lateness, name).map(|ns| ns.round() as u64);
                (name.to_owned(), ns)
            })
            .collect(),
    });
    Some(load)
}

/// The window is not printed exactly: it is the count over the rate.
fn read_wrk(text: &str) -> Option<LoadRecord> {
    let mut requests = None;
    let mut rate = None;
    let mut latencies: BTreeMap<&str, f64> = BTreeMap::new();
    let mut outcomes = Vec::new();
    for line in text.lines().map(str::trim) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [count, "requests", "in", ..] => requests = count.parse::<u64>().ok(),
            ["Requests/sec:", value] => rate = value.parse::<f64>().ok(),
            [
                "Socket",
                "errors:",
                "connect",
                connect,
                "read",
                read,
                "write",
                write,
                "timeout",
                timeout,
            ] => {
                for (count, outcome) in [
                    (connect, Outcome::ConnectRefused),
                    (read, Outcome::Reset),
                    (write, Outcome::Reset),
                    (timeout, Outcome::RequestTimeout),
                ] {
                    let count = count.trim_end_matches(',').parse().ok()?;
                    outcomes.push((outcome.name().to_owned(), count));
                }
            }
            ["Non-2xx", "or", "3xx", "responses:", count] => {
                let count = count.parse().ok()?;
                outcomes.push((Outcome::StatusMismatch.name().to_owned(), count));
            }
            [percent, time] if percent.ends_with('%') => {
                latencies.insert(percent, wrk_ns(time)?);
            }
            _ => {}
        }
    }
    let (requests, rate) = (requests?, rate.filter(|rate| *rate > 0.0)?);
    // Answers of another status are among the requests, failed requests are not.
    let mismatched: u64 = (outcomes.iter())
        .filter(|(name, _)| name == Outcome::StatusMismatch.name())
        .map(|(_, count)| *count)
        .sum();
    outcomes.push((
        Outcome::Ok.name().to_owned(),
        requests.checked_sub(mismatched)?,
    ));
    let percentiles = [("p50", "50%"), ("p90", "90%"), ("p99", "99%")];
    let latencies = percentiles.map(|(name, percent)| (name, latencies.get(percent).copied()));
    load(requests as f64 * 1e9 / rate, outcomes, latencies)
}

/// `197.00us`, `1.20ms`, `3.00s`, `1.50m`.
fn wrk_ns(text: &str) -> Option<f64> {
    let split = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(split);
    let unit_ns = match unit {
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 60e9,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * unit_ns)
}

fn read_oha(text: &str) -> Option<LoadRecord> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Report {
        summary: Total,
        latency_percentiles: BTreeMap<String, Option<f64>>,
        status_code_distribution: BTreeMap<String, u64>,
        error_distribution: BTreeMap<String, u64>,
    }
    #[derive(Deserialize)]
    struct Total {
        /// Seconds.
        total: f64,
    }
    let report: Report = serde_json::from_str(text).ok()?;
    let statuses = (report.status_code_distribution.into_iter()).map(|(status, count)| {
        let outcome = match &*status {
            "200" => Outcome::Ok,
            _ => Outcome::StatusMismatch,
        };
        (outcome.name().to_owned(), count)
    });
    let errors = (report.error_distribution.into_iter()).map(|(text, count)| match &*text {
        "aborted due to deadline" => (Outcome::AbortedAtDeadline.name().to_owned(), count),
        _ => (text, count),
    });
    let percentile = |name: &str| Some(report.latency_percentiles.get(name).copied()?? * 1e9);
    let names = [
        ("p50", "p50"),
        ("p90", "p90"),
        ("p95", "p95"),
        ("p99", "p99"),
        ("p99_9", "p99.9"),
    ];
    let latencies = names.map(|(name, theirs)| (name, percentile(theirs)));
    load(
        report.summary.total * 1e9,
        statuses.chain(errors),
        latencies,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRK: &str = "Running 5s test @ http://127.0.0.1:8000/
  1 threads and 32 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   204.25us  101.02us   4.21ms   95.93%
    Req/Sec   150.10k     3.21k  157.90k    80.00%
  Latency Distribution
     50%  197.00us
     75%  210.00us
     90%  1.25ms
     99%  0.50s
  750000 requests in 5.00s, 100.00MB read
";

    fn outcomes(load: &LoadRecord) -> Vec<(&str, u64)> {
        (load.outcomes.iter())
            .map(|(name, count)| (name.as_str(), *count))
            .collect()
    }

    #[test]
    fn a_report_of_wrk_is_read() {
        let text = format!("{WRK}Requests/sec: 150000.00\nTransfer/sec:     20.00MB\n");
        let load = read(ReportForm::Wrk, &text).unwrap();
        assert_eq!((load.ok, load.window_ns), (750_000, Some(5_000_000_000)));
        assert_eq!(load.latency_ns["p50"], Some(197_000));
        assert_eq!(load.latency_ns["p90"], Some(1_250_000));
        assert_eq!(load.latency_ns["p99"], Some(500_000_000));
        assert_eq!(errors(&load, 32), None);

        let text = format!(
            "{WRK}  Socket errors: connect 1, read 2, write 3, timeout 4\n  \
             Non-2xx or 3xx responses: 50000\nRequests/sec: 150000.00\n"
        );
        let load = read(ReportForm::Wrk, &text).unwrap();
        let expected = [
            ("connect_refused", 1),
            ("ok", 700_000),
            ("request_timeout", 4),
            ("reset", 5),
            ("status_mismatch", 50_000),
        ];
        assert_eq!(outcomes(&load), expected);
        assert_eq!(
            errors(&load, 32).unwrap(),
            "1 connect_refused, 4 request_timeout, 5 reset, 50000 status_mismatch"
        );
    }

    #[test]
    fn a_report_of_oha_is_read() {
        let text = r#"{"summary":{"successRate":1.0,"total":5.000001,"slowest":0.01},
            "latencyPercentiles":{"p50":0.0001,"p99":0.001,"p99.9":null},
            "statusCodeDistribution":{"200":1000,"500":2},
            "errorDistribution":{"aborted due to deadline":32,"connection reset":1}}"#;
        let load = read(ReportForm::Oha, text).unwrap();
        assert_eq!((load.ok, load.window_ns), (1000, Some(5_000_001_000)));
        assert_eq!(load.latency_ns["p50"], Some(100_000));
        assert_eq!(
            (load.latency_ns["p95"], load.latency_ns["p99_9"]),
            (None, None)
        );
        assert_eq!(
            errors(&load, 32).unwrap(),
            "1 connection reset, 2 status_mismatch"
        );
        assert_eq!(
            errors(&load, 31).unwrap(),
            "32 aborted_at_deadline, 1 connection reset, 2 status_mismatch"
        );
    }

    #[test]
    fn a_report_of_ours_is_read() {
        let text = r#"{"window_ns":999997311,"outcomes":{"ok":65195,"aborted_at_deadline":8,"reset":0},
            "latency":{"count":65195,"p50_ns":76799,"p99_9_ns":null,"below_floor":[]},"v":1}"#;
        let load = read(ReportForm::Justapi, text).unwrap();
        assert_eq!((load.ok, load.attempts), (65_195, 65_203));
        assert_eq!(
            outcomes(&load),
            [("aborted_at_deadline", 8), ("ok", 65_195)]
        );
        assert_eq!(
            (load.latency_ns["p50"], load.latency_ns["p99_9"]),
            (Some(76_799), None)
        );
        assert_eq!(errors(&load, 8), None);
    }

    #[test]
    fn an_open_loop_of_ours_is_read_with_its_lateness() {
        let text = r#"{"window_ns":2000000000,"outcomes":{"ok":990,"http_5xx":1,"not_sent":8,
            "aborted_at_deadline":1},"latency":{"p50_ns":1000},"latency_intended":{"p50_ns":3000},
            "open_loop":{"lateness":{"p50_ns":900,"p99_ns":50000,"p99_9_ns":null,"max_ns":60001}}}"#;
        let load = read(ReportForm::Justapi, text).unwrap();
        assert_eq!(load.latency_ns["p50"], Some(3000));
        let open = load.open.as_ref().unwrap();
        assert_eq!((open.due, open.answered), (1000, 991));
        let lateness = ["p50", "p99", "p99_9", "max"].map(|name| open.lateness_ns[name]);
        assert_eq!(lateness, [Some(900), Some(50_000), None, Some(60_001)]);
        // What was due and not sent is in the ratio; a wrong answer is an error.
        assert_eq!(errors(&load, 1).unwrap(), "1 http_5xx");
    }

    #[test]
    fn what_is_no_report_is_an_error() {
        for form in [ReportForm::Justapi, ReportForm::Wrk, ReportForm::Oha] {
            for text in [
                "",
                "fast",
                "{}",
                "{\"window_ns\":0,\"outcomes\":{},\"latency\":{}}",
            ] {
                let error = read(form, text).unwrap_err();
                assert!(error.ends_with("which is no report"), "{error}");
            }
        }
        // A rate alone, or a count alone, has no window.
        assert!(read(ReportForm::Wrk, WRK).is_err());
        assert!(read(ReportForm::Wrk, "Requests/sec: 5.0").is_err());
    }

    #[test]
    fn the_time_of_a_child_that_ended_is_counted() {
        let before = ended_children().unwrap();
        let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let command = ["sh", "-c", script].map(str::to_owned);
        output::of(&command, &std::env::temp_dir(), None, GRACE).unwrap();
        assert!(ended_children().unwrap() > before);
    }
}
