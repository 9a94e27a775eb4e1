//! The raw file against the report: the same attempts, and percentiles of an exact sort.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufReader, Write as _};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::Value;

use super::super::summary::LatencySummary;
use super::super::tally::Tally;
use super::super::tests::{Server, check, read_request};
use super::super::{
    Client, LatencySummary as Summary, LoadPlan, LoadReport, OpenLoop, Pace, Stop, run,
};
use super::*;

const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// The keys of a line, as docs/benchmarking.md has them.
const KEYS: [&str; 8] = [
    "intended_ns",
    "sent_ns",
    "first_byte_ns",
    "done_ns",
    "status",
    "bytes",
    "thread",
    "outcome",
];

fn read(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'));
    let lines: Vec<Value> = (text.lines())
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for (line, parsed) in text.lines().zip(&lines) {
        let places = KEYS.map(|key| line.find(&format!("\"{key}\":")).unwrap());
        assert!(places.is_sorted(), "{line}");
        assert_eq!(parsed.as_object().unwrap().len(), KEYS.len(), "{line}");
    }
    lines
}

fn count(lines: &[Value], outcome: Outcome) -> u64 {
    let is_it = |line: &&Value| line["outcome"] == outcome.name();
    lines.iter().filter(is_it).count() as u64
}

/// From one instant of a line to the end, of all good answers, in order.
fn latencies(lines: &[Value], from: &str) -> Vec<u64> {
    let mut found: Vec<u64> = (lines.iter())
        .filter(|line| line["outcome"] == "ok")
        .map(|line| line["done_ns"].as_u64().unwrap() - line[from].as_u64().unwrap())
        .collect();
    found.sort_unstable();
    found
}

/// Compares a summary with the nearest ranks of sorted samples.
#[track_caller]
fn check_percentiles(summary: &Summary, sorted: &[u64]) {
    let shares = [0.5, 0.9, 0.95, 0.99, 0.999];
    let ordered = summary.ordered();
    for (share, found) in shares.iter().zip(&ordered[1..6]) {
        let rank = (share * sorted.len() as f64).ceil().max(1.0) as usize;
        let exact = sorted[rank - 1] as f64;
        let found = found.unwrap() as f64;
        assert!(
            (exact..=exact * 1.001 + 1.0).contains(&found),
            "{share} of {}: {found} for {exact}",
            sorted.len()
        );
    }
    assert_eq!(summary.min_ns, sorted.first().copied());
    assert_eq!(summary.max_ns, sorted.last().copied());
    assert_eq!(summary.count, sorted.len() as u64);
}

struct Run {
    report: LoadReport,
    lines: Vec<Value>,
    _folder: tempfile::TempDir,
}

/// Runs with a raw file, and compares what must agree whatever happened.
fn run_raw(plan: LoadPlan) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("raw.jsonl");
    let plan = LoadPlan {
        raw: Some(path.clone()),
        all_percentiles: true,
        ..plan
    };
    let report = run(&plan, &AtomicBool::new(false)).unwrap();
    report.check_invariants().unwrap();
    let lines = read(&path);
    let raw = report.raw.clone().unwrap();
    let text = report.render_text();
    assert_eq!(raw.error, None);
    assert_eq!(raw.dropped, 0, "{text}");
    assert_eq!(raw.written, lines.len() as u64);
    for (outcome, expected) in report.outcomes.iter() {
        assert_eq!(count(&lines, outcome), expected, "{outcome}: {text}");
    }
    for line in &lines {
        let instants: Vec<u64> = (KEYS[..4].iter())
            .filter_map(|key| line[*key].as_u64())
            .collect();
        assert!(instants.is_sorted(), "{line}");
        let is_response = line["status"].is_u64();
        assert!(
            !is_response || line["bytes"].as_u64().unwrap() > 0,
            "{line}"
        );
    }
    assert!(text.contains(&format!("raw: {} lines written, 0 dropped", lines.len())));
    Run {
        report,
        lines,
        _folder: folder,
    }
}

#[test]
fn a_closed_loop_has_a_line_for_each_attempt() {
    let server = Server::answering(HELLO);
    let run = run_raw(LoadPlan {
        connections: 5,
        threads: 2,
        stop: Stop::Requests(3001),
        warm_up: Duration::from_millis(50),
        ..server.plan()
    });
    let (report, lines) = (&run.report, &run.lines);
    assert_eq!(lines.len(), 3001);
    check_percentiles(&report.latency, &latencies(lines, "sent_ns"));
    let mut threads: BTreeMap<u64, u64> = BTreeMap::new();
    for line in lines {
        assert_eq!(line["intended_ns"], Value::Null, "{line}");
        assert_eq!((&line["status"], &line["bytes"]), (&200.into(), &43.into()));
        // The warm-up is before them.
        assert!(line["sent_ns"].as_u64().unwrap() >= 50_000_000, "{line}");
        assert!(line["first_byte_ns"].is_u64(), "{line}");
        *threads.entry(line["thread"].as_u64().unwrap()).or_default() += 1;
    }
    assert_eq!(threads, BTreeMap::from([(0, 1501), (1, 1500)]));
}

#[test]
fn an_open_loop_has_the_instant_at_which_each_was_due_and_those_left_over() {
    let server = Server::answering(HELLO);
    let run = run_raw(LoadPlan {
        connections: 8,
        stop: Stop::Duration(Duration::from_millis(500)),
        pace: Pace::Open(OpenLoop::constant(1000.0)),
        ..server.plan()
    });
    let (report, lines) = (&run.report, &run.lines);
    assert_eq!(lines.len(), 500);
    let mut due: Vec<u64> = (lines.iter())
        .map(|line| line["intended_ns"].as_u64().unwrap())
        .collect();
    due.sort_unstable();
    let expected: Vec<u64> = (0..500).map(|number| number * 1_000_000).collect();
    assert_eq!(due, expected);
    let intended = report.latency_intended.as_ref().unwrap();
    check_percentiles(intended, &latencies(lines, "intended_ns"));
    check_percentiles(&report.latency, &latencies(lines, "sent_ns"));
    // A dead server: eight are on their way at the end, the others were never sent.
    let server = Server::answering("");
    let run = run_raw(LoadPlan {
        connections: 8,
        stop: Stop::Duration(Duration::from_millis(300)),
        pace: Pace::Open(OpenLoop::constant(1000.0)),
        ..server.plan()
    });
    let unsent = |line: &&Value| line["sent_ns"] == Value::Null;
    assert_eq!(run.lines.iter().filter(unsent).count(), 292);
    let whole = |line: &&Value| line["status"] != Value::Null || line["first_byte_ns"].is_u64();
    assert_eq!(run.lines.iter().find(whole), None);
}

#[test]
fn the_first_byte_is_told_from_the_last() {
    let server = Server::new(|stream| {
        let mut reader = BufReader::new(&stream);
        while read_request(&mut reader) {
            thread::sleep(Duration::from_millis(20));
            (&stream).write_all(&HELLO.as_bytes()[..20]).unwrap();
            thread::sleep(Duration::from_millis(30));
            (&stream).write_all(&HELLO.as_bytes()[20..]).unwrap();
        }
    });
    let run = run_raw(server.plan());
    // A client that stands still sees both late, so not each one has them apart.
    let mut longest = 0;
    for line in &run.lines {
        let at = |key: &str| line[key].as_u64().unwrap();
        assert!(at("first_byte_ns") - at("sent_ns") >= 20_000_000, "{line}");
        longest = longest.max(at("done_ns") - at("first_byte_ns"));
    }
    assert!(longest >= 29_000_000, "{longest}");
    let (first, last) = (&run.report.first_byte, &run.report.latency);
    assert_eq!((first.count, last.count), (10, 10));
    assert!(first.min_ns.unwrap() >= 20_000_000, "{first:?}");
    let between = last.mean_ns.unwrap() - first.mean_ns.unwrap();
    assert!(between >= 10e6, "{first:?} {last:?}");
    // A library tells when the head was there.
    let plan = LoadPlan {
        client: Client::Reqwest,
        ..server.plan()
    };
    for line in &run_raw(plan).lines {
        let at = |key: &str| line[key].as_u64().unwrap();
        assert!(at("first_byte_ns") - at("sent_ns") >= 49_000_000, "{line}");
    }
}

#[test]
fn failures_have_lines_without_what_did_not_happen() {
    let server = Server::new(|stream| {
        let mut reader = BufReader::new(&stream);
        read_request(&mut reader);
        (&stream).write_all(&HELLO.as_bytes()[..20]).unwrap();
    });
    let run = run_raw(LoadPlan {
        stop: Stop::Requests(3),
        ..server.plan()
    });
    assert_eq!(count(&run.lines, Outcome::EofEarly), 3);
    for line in &run.lines {
        assert_eq!(
            (&line["status"], &line["bytes"]),
            (&Value::Null, &20.into())
        );
        assert!(line["first_byte_ns"].is_u64(), "{line}");
    }
    let server = Server::answering("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n");
    let run = run_raw(server.plan());
    assert_eq!(count(&run.lines, Outcome::Http5xx), 10);
    assert!(run.lines.iter().all(|line| line["status"] == 503));
}

/// A file system that takes nothing: the run goes on, and says so.
#[test]
fn what_cannot_be_written_is_counted() {
    let server = Server::answering(HELLO);
    let plan = LoadPlan {
        raw: Some("/dev/full".into()),
        stop: Stop::Requests(2000),
        ..server.plan()
    };
    let report = check(&plan, &[(Outcome::Ok, 2000)]);
    let raw = report.raw.clone().unwrap();
    assert_eq!((raw.written, raw.dropped), (0, 2000));
    assert!(raw.error.is_some());
    assert!(report.render_text().contains("2000 dropped: "));
    let plan = LoadPlan {
        raw: Some("/nonexistent/raw".into()),
        ..server.plan()
    };
    let failed = run(&plan, &AtomicBool::new(false)).unwrap_err();
    assert!(matches!(
        failed,
        Error::File {
            operation: "create",
            ..
        }
    ));
}

/// Nobody takes the lines: memory stays at what may wait, and no line is lost uncounted.
#[test]
fn lines_that_the_writer_cannot_take_are_dropped_and_counted() {
    let (sender, receiver) = sync_channel(2);
    let mut recorder = Recorder {
        sender,
        lines: Vec::with_capacity(BATCH_LINES),
        begin: Instant::now(),
        thread: 0,
        num_dropped: 0,
    };
    let num_lines = 5 * BATCH_LINES + 7;
    for _ in 0..num_lines {
        let now = Instant::now();
        recorder.not_sent(now, now);
        assert!(recorder.lines.capacity() <= BATCH_LINES);
    }
    assert_eq!(recorder.num_dropped, 3 * BATCH_LINES as u64);
    let reader = thread::spawn(move || receiver.iter().map(|batch| batch.len()).sum::<usize>());
    let dropped = recorder.finish();
    let written = reader.join().unwrap();
    assert_eq!(written + dropped as usize, num_lines);
    // A writer that is gone.
    let (sender, _) = sync_channel(1);
    let recorder = Recorder {
        sender,
        lines: vec![],
        begin: Instant::now(),
        thread: 0,
        num_dropped: 4,
    };
    assert_eq!(recorder.finish(), 4);
}

/// Both histograms of a closed loop whose server pauses once for as long as 40 intervals.
#[test]
fn a_pause_is_in_the_corrected_latency_of_a_closed_loop() {
    let server = Server::new(|stream| {
        let mut reader = BufReader::new(&stream);
        let mut number = 0;
        while read_request(&mut reader) {
            number += 1;
            if number == 50 {
                thread::sleep(Duration::from_millis(400));
            }
            if (&stream).write_all(HELLO.as_bytes()).is_err() {
                return;
            }
        }
    });
    let plan = LoadPlan {
        stop: Stop::Requests(500),
        expected_interval: Some(Duration::from_millis(10)),
        all_percentiles: true,
        ..server.plan()
    };
    let report = check(&plan, &[(Outcome::Ok, 500)]);
    let text = report.render_text();
    let corrected = report.latency_corrected.as_ref().unwrap();
    assert_eq!(report.latency.count, 500);
    // 400, 390 … 10 ms: 39 besides the one that was measured, and a few for slow others.
    assert!((539..560).contains(&corrected.count), "{text}");
    assert!(report.latency.p95_ns.unwrap() < 100_000_000, "{text}");
    assert!(corrected.p95_ns.unwrap() > 100_000_000, "{text}");
    assert_eq!(corrected.max_ns, report.latency.max_ns);
    assert_eq!(report.expected_interval_ns, Some(10_000_000));
    assert!(text.contains("corrected: synthetic"), "{text}");
    assert!(report.render_csv().contains("latency_corrected_p99_ns"));
    let judged = "corrected.p95>100ms"
        .parse::<super::super::Threshold>()
        .unwrap();
    assert_eq!(judged.judge(&report).verdict, super::super::Verdict::Broken);
}

#[test]
fn a_correction_that_means_nothing_is_refused() {
    let server = Server::answering(HELLO);
    let closed = LoadPlan {
        expected_interval: Some(Duration::from_millis(1)),
        ..server.plan()
    };
    assert!(closed.validate().is_ok());
    let open = LoadPlan {
        pace: Pace::Open(OpenLoop::constant(10.0)),
        ..closed.clone()
    };
    let zero = LoadPlan {
        expected_interval: Some(Duration::ZERO),
        ..closed.clone()
    };
    let tiny = LoadPlan {
        expected_interval: Some(Duration::from_nanos(10)),
        ..closed
    };
    for plan in [open, zero, tiny] {
        let refused = plan.validate().unwrap_err();
        let field = "expected_interval";
        assert!(matches!(refused, Error::LoadPlan { field: found, .. } if found == field));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Random attempts through tally and writer: percentiles of the histogram are those of an
    /// exact sort of the file, within the resolution.
    #[test]
    fn percentiles_are_those_of_the_file(
        attempts in proptest::collection::vec(
            (0_u64..20_000_000, 1_u64..40_000_000_000, 0_usize..Outcome::ALL.len() + 12),
            1..3000,
        ),
        is_open: bool,
    ) {
        let server_plan = super::super::tests::plan("http://127.0.0.1:1/", None);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("raw.jsonl");
        let log = RawLog::create(&path).unwrap();
        let plan = LoadPlan {
            request_timeout: Duration::from_secs(40),
            pace: if is_open { Pace::Open(OpenLoop::constant(1.0)) } else { Pace::Closed },
            ..server_plan
        };
        let mut tally = Tally::new(&plan);
        tally.raw = Some(log.recorder(3));
        let begin = Instant::now();
        tally.begin_raw(begin);
        for (lateness, latency, outcome) in &attempts {
            let outcome = Outcome::ALL.get(*outcome).copied().unwrap_or(Outcome::Ok);
            let sent = begin + Duration::from_nanos(*lateness);
            let is_response = outcome.is_response();
            tally.settle(&Ended {
                outcome,
                at: sent + Duration::from_nanos(*latency),
                sent: Some(sent),
                intended: is_open.then_some(begin),
                first_byte: None,
                bytes_received: 7,
                status: if is_response { 200 } else { 0 },
                sampled: false,
                response: None,
            });
        }
        tally.end_raw();
        let raw = log.finish(tally.raw_dropped);
        prop_assert_eq!(raw.written, attempts.len() as u64);
        let lines = read(&path);
        prop_assert!(lines.iter().all(|line| line["thread"] == 3));
        let sorted = latencies(&lines, "sent_ns");
        if !sorted.is_empty() {
            check_percentiles(&LatencySummary::new(&tally.latency_ok, true), &sorted);
        }
        if let Some(open) = tally.open.as_ref().filter(|_| !sorted.is_empty()) {
            let sorted = latencies(&lines, "intended_ns");
            check_percentiles(&LatencySummary::new(&open.latency_ok, true), &sorted);
        }
    }
}
