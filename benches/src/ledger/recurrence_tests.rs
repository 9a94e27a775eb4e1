//! A FAIL needs two runs: which of them count, and that nobody can make one up.

use super::tests::{Fixture, decimal, record};
use super::*;
use crate::matrix::{FAILED_ONCE, judge};

/// A run whose rule, at most 60 ns, holds or does not.
fn run(number: u32, ns: f64) -> Record {
    let mut record = record(number);
    let seed = record.seed;
    let cell = &mut record.cells[0];
    cell.rules_edition = RULES;
    for round in &mut cell.rounds {
        round.ns_per_op = Some(decimal(ns + f64::from(round.round)));
    }
    judge(cell, seed);
    record
}

/// Appends runs and returns the newest verdict with its reason.
fn append_all(fixture: &Fixture, runs: &[Record]) -> (Verdict, Option<String>) {
    for run in runs {
        append(fixture.root(), run.clone()).unwrap();
        verify(fixture.root()).unwrap();
    }
    let newest = runs.last().unwrap().file_name();
    let record = find_record(fixture.root(), &newest).unwrap().unwrap();
    let row = &record.cells[0].verdicts[0];
    (row.verdict, row.reason.clone())
}

fn once() -> (Verdict, Option<String>) {
    (Verdict::Inconclusive, Some(FAILED_ONCE.to_owned()))
}

fn as_in(record: &Record) -> (Verdict, Option<String>) {
    let reason = format!("as in {}", record.file_name());
    (Verdict::Fail, Some(reason))
}

#[test]
fn a_second_failure_is_a_fail_and_names_the_first() {
    let fixture = Fixture::with_records(0);
    let (first, second, third) = (run(0, 90.0), run(1, 95.0), run(2, 70.0));
    assert_eq!(append_all(&fixture, std::slice::from_ref(&first)), once());
    assert_eq!(
        append_all(&fixture, std::slice::from_ref(&second)),
        as_in(&first)
    );
    assert_eq!(append_all(&fixture, &[third]), as_in(&second));
}

#[test]
fn a_run_that_passes_begins_anew() {
    let fixture = Fixture::with_records(0);
    let passed = append_all(&fixture, &[run(0, 90.0), run(1, 40.0)]);
    assert_eq!(passed, (Verdict::Pass, None));
    assert_eq!(append_all(&fixture, &[run(2, 90.0)]), once());
}

#[test]
fn another_rule_of_the_same_name_is_another_rule() {
    let fixture = Fixture::with_records(0);
    let mut stricter = run(1, 90.0);
    stricter.cells[0].targets[0].limit = decimal(80.0);
    let seed = stricter.seed;
    judge(&mut stricter.cells[0], seed);
    assert_eq!(append_all(&fixture, &[run(0, 90.0), stricter]), once());
}

#[test]
fn a_failure_that_is_struck_through_does_not_count() {
    for (reason, expected) in [
        (StrikeReason::BadBuild, once()),
        (StrikeReason::Remeasure, as_in(&run(0, 90.0))),
    ] {
        let fixture = Fixture::with_records(0);
        append_all(&fixture, &[run(0, 90.0)]);
        let strike = Struck {
            record: run(0, 0.0).file_name(),
            item: String::from("router/lookup"),
            reason,
            note: String::from("for a test"),
            by: None,
        };
        supersede(fixture.root(), vec![strike]).unwrap();
        assert_eq!(
            append_all(&fixture, &[run(1, 90.0)]),
            expected,
            "{reason:?}"
        );
    }
}

/// What a run says of those before it is found anew when it is written.
#[test]
fn a_failure_that_nobody_has_seen_is_not_taken() {
    let fixture = Fixture::with_records(0);
    let mut invented = run(0, 90.0);
    let earlier = (String::from("lookup"), String::from("nowhere.json"));
    invented.cells[0].failed_before.extend([earlier]);
    judge(&mut invented.cells[0], 1);
    assert_eq!(invented.cells[0].verdicts[0].verdict, Verdict::Fail);
    assert_eq!(append_all(&fixture, &[invented]), once());
    let document = std::fs::read_to_string(fixture.root().join(BENCHMARKS)).unwrap();
    assert!(document.contains("a FAIL needs two runs"), "{document}");
}
