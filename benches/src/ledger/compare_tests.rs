//! The rule of a comparison, on made-up rounds.

use serde_json::json;

use super::super::tests::record;
use super::*;
use crate::ledger::{LoadRecord, RoundRecord};
use crate::matrix;

/// A record with our arm at `ours` µs of CPU time for each request, and a peer that is the same
/// program in every record, at `peer`.
fn run(build: &str, ours: f64, peer: f64) -> Record {
    let mut record = record(0);
    let program = record.programs["justapi"].clone();
    record.programs = [("justapi", build), ("axum", "peer")]
        .map(|(name, sha256)| {
            let sha256 = Some(sha256.to_owned());
            (
                name.to_owned(),
                Program {
                    sha256,
                    ..program.clone()
                },
            )
        })
        .into();
    let cell = &mut record.cells[0];
    cell.id = String::from("hello");
    cell.kind = CellKind::Load;
    cell.targets.clear();
    let arm = |label: &str| ArmRecord {
        label: label.to_owned(),
        program: label.to_owned(),
        ..cell.arms[0].clone()
    };
    cell.arms = vec![arm("justapi"), arm("axum")];
    cell.num_rounds = 10;
    cell.rounds.clear();
    for round in 0..10u32 {
        for (label, cost) in [("justapi", ours), ("axum", peer)] {
            let noise = 1.0 + 0.004 * f64::from((round * 7) % 5) - 0.008;
            cell.rounds.push(RoundRecord {
                round,
                label: label.to_owned(),
                load: Some(LoadRecord {
                    window_ns: Some(1_000_000_000),
                    attempts: 1_000_000,
                    ok: 1_000_000,
                    ..LoadRecord::default()
                }),
                server_cpu_ns: Some((cost * noise * 1e9) as u64),
                client_cpu_ns: Some(500_000_000),
                ..RoundRecord::default()
            });
        }
    }
    matrix::judge(cell, 7);
    record
}

fn cpu(compared: &Comparison, item: &str) -> Compared {
    let mut lines = compared.lines.iter();
    lines
        .find(|line| line.item == item && line.metric == Metric::CpuUsPerRequest)
        .unwrap()
        .clone()
}

fn check(second: &Record, margin: f64, verdict: Verdict, reason: Option<&str>) {
    let compared = compare_records(&run("one", 1.0, 2.0), second, margin);
    let line = cpu(&compared, "hello/justapi");
    assert_eq!(line.verdict, verdict, "{compared:?}");
    match reason {
        None => assert_eq!(line.reason, None),
        Some(reason) => assert!(line.reason.unwrap().contains(reason), "{compared:?}"),
    }
}

#[test]
fn the_rule_of_a_comparison() {
    check(&run("two", 1.0, 2.0), 0.05, Verdict::Pass, None);
    check(&run("two", 0.8, 2.0), 0.05, Verdict::Pass, None);
    check(&run("two", 1.2, 2.0), 0.05, Verdict::Fail, None);
    check(&run("two", 1.03, 2.0), 0.05, Verdict::Pass, None);
    check(
        &run("two", 1.05, 2.0),
        0.05,
        Verdict::Inconclusive,
        Some("interval"),
    );
    check(&run("two", 1.05, 2.0), 0.0, Verdict::Fail, None);
    // The control got a tenth dearer as well: the machine did.
    check(
        &run("two", 1.2, 2.2),
        0.05,
        Verdict::Inconclusive,
        Some("the machine alone"),
    );
    check(&run("two", 1.3, 2.2), 0.05, Verdict::Fail, None);
}

#[test]
fn what_cannot_be_compared_is_said_to_be_so() {
    let mut elsewhere = run("two", 1.2, 2.0);
    let other = crate::machine::Reading::known("Other CPU");
    elsewhere.machine.0.insert(String::from("cpu_model"), other);
    check(
        &elsewhere,
        0.05,
        Verdict::Inconclusive,
        Some("different machines"),
    );

    let mut other_load = run("two", 1.2, 2.0);
    other_load.cells[0].connections = 5;
    check(&other_load, 0.05, Verdict::Invalid, Some("exchange"));

    let mut broken = run("two", 1.2, 2.0);
    broken.cells[0].rounds[0].invalid = Some(String::from("3 http_5xx"));
    matrix::judge(&mut broken.cells[0], 7);
    check(&broken, 0.05, Verdict::Invalid, Some("3 http_5xx"));

    let mut no_control = run("two", 1.2, 2.0);
    no_control.programs.get_mut("axum").unwrap().version = Some(String::from("9"));
    check(
        &no_control,
        0.05,
        Verdict::Inconclusive,
        Some("no program is the same"),
    );

    let mut few = run("two", 1.2, 2.0);
    few.cells[0].rounds.retain(|round| round.round < 3);
    few.cells[0].num_rounds = 3;
    matrix::judge(&mut few.cells[0], 7);
    check(&few, 0.05, Verdict::Inconclusive, Some("10 and 3 rounds"));
}

#[test]
fn a_rate_is_worse_when_it_is_lower() {
    let first = run("one", 1.0, 2.0);
    let mut slower = run("two", 1.0, 2.0);
    for round in &mut slower.cells[0].rounds {
        if round.label == "justapi" {
            round.load.as_mut().unwrap().ok = 800_000;
        }
    }
    matrix::judge(&mut slower.cells[0], 7);
    let verdict = |first: &Record, second: &Record| {
        let compared = compare_records(first, second, 0.05);
        let mut lines = compared.lines.iter();
        let is_rate = |l: &&Compared| l.item == "hello/justapi" && l.metric == Metric::Rate;
        lines.find(is_rate).unwrap().verdict
    };
    assert_eq!(verdict(&first, &slower), Verdict::Fail);
    assert_eq!(verdict(&slower, &first), Verdict::Pass);
}

#[test]
fn the_control_is_no_verdict() {
    let compared = compare_records(&run("one", 1.0, 2.0), &run("two", 1.0, 2.4), 0.05);
    let line = cpu(&compared, "hello/axum");
    assert!(line.is_control && line.p_holm.is_none());
    assert_eq!(line.ratio.unwrap().text(2), "1.20");
}

fn reports(rate: f64, count: u32) -> Vec<Value> {
    (0..count)
        .map(|i| {
            json!({
                "connections": 16,
                "interrupted": false,
                "rate": rate + f64::from(i),
                "outcomes": {"ok": 1000, "aborted_at_deadline": 3, "http_5xx": 0},
                "latency": {"p50_ns": 100_000 + i, "p99_ns": null},
            })
        })
        .collect()
}

#[test]
fn reports_are_rounds() {
    let rate = |first: &[Value], second: &[Value]| {
        let line = compare_reports(first, second, 0.05).lines.remove(0);
        (line.verdict, line.reason.unwrap_or_default())
    };
    let (good, slow) = (reports(1000.0, 6), reports(800.0, 6));
    assert_eq!(rate(&good, &good).0, Verdict::Pass);
    assert_eq!(rate(&good, &slow).0, Verdict::Fail);
    // One run each says nothing, however far they are apart.
    let (verdict, reason) = rate(&reports(1000.0, 1), &reports(10.0, 1));
    assert_eq!(verdict, Verdict::Inconclusive);
    assert!(reason.contains("1 and 1 rounds are too few"), "{reason}");
    // A percentile that is missing decides nothing.
    let p99 = compare_reports(&good, &slow, 0.05).lines.remove(2);
    assert_eq!(p99.verdict, Verdict::Inconclusive);

    let mut failing = slow.clone();
    failing[0]["outcomes"]["http_5xx"] = json!(7);
    assert_eq!(rate(&good, &failing).1, "a run had 7 http_5xx");
    let mut other = slow.clone();
    other[0]["connections"] = json!(1);
    assert_eq!(rate(&good, &other).0, Verdict::Invalid);
    let mut stopped = slow;
    stopped[0]["interrupted"] = json!(true);
    assert_eq!(rate(&good, &stopped).1, "a run was interrupted");
}

/// Two runs of one program, with the noise of a machine that drifts, are not found different; a
/// twentieth is.
#[test]
fn a_planted_twentieth_is_found_and_nothing_is_not() {
    let sample = |random: &mut fastrand::Rng, center: f64| -> Vec<Value> {
        let report = |_: u32| {
            // Four uniform draws: about normal, with a standard deviation of 1.2 %.
            let noise = (0..4).map(|_| random.f64() - 0.5).sum::<f64>() * 0.02;
            json!({
                "connections": 1,
                "rate": center * (1.0 + noise),
                "outcomes": {"ok": 1},
                "latency": {"p50_ns": 1e9 / center, "p99_ns": null},
            })
        };
        (0..12).map(report).collect()
    };
    let (mut found, mut wrong) = (0, 0);
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let first = sample(&mut random, 1000.0);
        let slower = sample(&mut random, 950.0);
        let same = sample(&mut random, 1000.0);
        let verdict = |second: &[Value]| compare_reports(&first, second, 0.0).lines[0].verdict;
        found += u32::from(verdict(&slower) == Verdict::Fail);
        wrong += u32::from(verdict(&same) == Verdict::Fail);
    }
    assert!(found >= 36, "only {found} of 40");
    assert!(wrong <= 2, "{wrong} of 40");
}
