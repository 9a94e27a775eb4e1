//! Runs against scripted servers on their way into a ledger, or not.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::super::{Arrivals, Scenario, ServingLedger, ServingPlan, ServingReport, run};
use super::scripted::{Scripted, good, respond};
use super::{measure, plan};
use crate::Error;
use crate::ledger::{Metric, Program, Record, ServingScenario, Source, append, draw, verify};
use crate::machine::Machine;

/// What a release build would have prepared.
fn prepared() -> ServingLedger {
    ServingLedger {
        server: String::from("scripted"),
        machine: Machine::read(),
        source: Source::default(),
        client: Program {
            path: String::from("justapi"),
            sha256: None,
            version: Some(String::from("0.1.0")),
            profile: Some(String::from("release")),
            packages: std::collections::BTreeMap::new(),
            reason: None,
            config: None,
        },
        is_local: true,
        stated_version: None,
    }
}

fn named(mut plan: ServingPlan) -> ServingPlan {
    plan.weights_sha256 = Some("ab".repeat(32));
    plan.dtype = Some(String::from("Q4_1"));
    plan.synthetic = Some(true);
    plan
}

/// Every scenario, with a rate of its own.
fn whole_plan(server: &Scripted) -> ServingPlan {
    let mut plan = named(plan(server, &Scenario::ALL));
    plan.arrivals = Some(Arrivals::Constant(200.0));
    plan.num_arrivals = 6;
    plan
}

fn reason(result: Result<Record, Error>) -> String {
    match result.unwrap_err() {
        Error::NotUsable { reason } => reason,
        other => panic!("{other}"),
    }
}

#[test]
fn a_run_becomes_a_record_that_verifies_and_is_drawn() {
    let server = Scripted::start(|asked| good(asked, Some(0), 1));
    let report = measure(&whole_plan(&server));
    let record = prepared().record(&report).unwrap();
    let cells: Vec<(&str, u32, u32)> = (record.cells.iter())
        .map(|cell| (cell.id.as_str(), cell.connections, cell.num_rounds))
        .collect();
    let expected = [
        ("llm-prefill-64", 1, 2),
        ("llm-decode-8", 1, 2),
        ("llm-prefix-fresh", 1, 2),
        ("llm-prefix-identical", 1, 2),
        ("llm-prefix-suffix", 1, 2),
        ("llm-concurrency-1", 1, 2),
        ("llm-concurrency-3", 3, 6),
        ("llm-rate-200", 6, 6),
    ];
    assert_eq!(cells, expected);
    for cell in &record.cells {
        let (row, serving) = (&cell.rows[0], cell.serving.as_ref().unwrap());
        assert_eq!(row.invalid, None, "{}", cell.id);
        assert_eq!(row.id, format!("{}/scripted", cell.id));
        let model = row.model.as_ref().unwrap();
        assert_eq!((model.id.as_str(), model.synthetic), ("scripted", true));
        assert_eq!(serving.token_counter, "/v1/messages/count_tokens");
        let has = |metric| row.metrics.contains_key(&metric);
        assert!(has(Metric::TtftMs) && has(Metric::DecodeTps), "{}", cell.id);
        let is_many = matches!(
            serving.scenario,
            ServingScenario::Concurrency | ServingScenario::Rate
        );
        assert_eq!(has(Metric::OutputTps), is_many, "{}", cell.id);
        let is_due = serving
            .requests
            .iter()
            .all(|request| request.due_ns.is_some());
        assert_eq!(is_due, serving.scenario == ServingScenario::Rate);
    }
    let folder = tempfile::tempdir().unwrap();
    let appended = append(folder.path(), record).unwrap();
    assert!(
        appended
            .section
            .contains("| llm-rate-200/scripted | 6 | scripted | abababababab | Q4_1 | yes |")
    );
    let report = verify(folder.path()).unwrap();
    assert_eq!(report.num_records, 1);
    let drawn = draw(folder.path(), &[]).unwrap();
    assert_eq!(drawn.num_written, 2);
    assert_eq!(verify(folder.path()).unwrap().num_charts, 2);
}

#[test]
fn rows_say_what_the_report_says() {
    // Tokens that come in one read have no rate of their own.
    let server = Scripted::start(|asked| good(asked, Some(0), 5));
    let report = measure(&whole_plan(&server));
    let record = prepared().record(&report).unwrap();
    // To the digits of a record.
    let level = &report.concurrency.as_ref().unwrap()[1];
    let row = &record.cells[6].rows[0];
    let near = |found: f64, expected: Option<f64>| {
        let expected = expected.unwrap();
        assert!(
            (found - expected).abs() < 1e-6 * expected.max(1.0),
            "{found} {expected}"
        );
    };
    let median = |metric| row.metrics[&metric].median.value();
    near(
        median(Metric::OutputTps),
        level.totals.client_wall_output_tps,
    );
    near(
        median(Metric::TtftMs),
        level.summary.client_wall_ttft_ms.median,
    );
    near(
        median(Metric::DecodeTps),
        level.summary.client_wall_decode_tps.median,
    );
    let admitted = level
        .totals
        .concurrency_admitted_max
        .map(|most| most as f64);
    near(median(Metric::AdmittedRequests), admitted);
    let open = report.open_loop.as_ref().unwrap();
    let from_due = open.summary.client_wall_ttft_sched_ms.as_ref().unwrap();
    near(
        record.cells[7].rows[0].metrics[&Metric::TtftMs]
            .median
            .value(),
        from_due.median,
    );
}

/// The last request of the level fails: none of its numbers may stand.
#[test]
fn a_run_that_the_judge_refuses_is_not_recorded() {
    let count = std::sync::atomic::AtomicU64::new(0);
    let server = Scripted::start(move |asked| {
        let is_measured = asked.body["max_tokens"] == serde_json::json!(4);
        let number = count.fetch_add(u64::from(is_measured), std::sync::atomic::Ordering::SeqCst);
        if is_measured && number == 7 {
            let problem = serde_json::json!({"error": "no memory"});
            return vec![super::scripted::Act::Raw(respond(500, &problem))];
        }
        good(asked, Some(0), 0)
    });
    let report = measure(&named(plan(&server, &[Scenario::Concurrency])));
    assert_eq!(report.invalid.len(), 1);
    let found = reason(prepared().record(&report));
    assert_eq!(found, report.invalid[0]);
    assert!(
        found.starts_with("concurrency 3: 1 of 6 requests failed"),
        "{found}"
    );
}

#[test]
fn a_run_without_its_weights_an_end_or_its_own_levels_is_not_recorded() {
    let server = Scripted::start(|asked| good(asked, Some(0), 0));
    let mut plan = named(plan(&server, &[Scenario::Concurrency]));
    plan.levels = vec![2, 2];
    let report = measure(&plan);
    let found = reason(prepared().record(&report));
    assert_eq!(found, "llm-concurrency-2 is in it twice");
    for change in [
        |report: &mut ServingReport| report.model.weights_sha256 = None,
        |report: &mut ServingReport| report.model.dtype = None,
        |report: &mut ServingReport| report.model.synthetic = None,
    ] {
        let mut report = report.clone();
        change(&mut report);
        let found = reason(prepared().record(&report));
        assert!(found.starts_with("weights, their type"), "{found}");
    }
    let stopped = Arc::new(AtomicBool::new(true));
    match run(&plan, &mut |_| {}, &stopped) {
        Ok(report) => assert_eq!(reason(prepared().record(&report)), "it was interrupted"),
        Err(error) => assert!(matches!(error, Error::Interrupted), "{error}"),
    }
    let mut interrupted = report;
    interrupted.run.interrupted = true;
    assert_eq!(
        reason(prepared().record(&interrupted)),
        "it was interrupted"
    );
}

#[test]
fn what_does_not_fit_is_named_in_the_record() {
    let server = Scripted::start(|asked| good(asked, Some(0), 0));
    let mut plan = named(plan(&server, &[Scenario::Prefill]));
    plan.prefill_tokens = vec![64, 200_000];
    let record = prepared().record(&measure(&plan)).unwrap();
    assert_eq!(record.cells.len(), 1);
    let caveat = record
        .caveats
        .iter()
        .find(|text| text.starts_with("llm-prefill-200000: needs"));
    assert!(caveat.is_some(), "{:?}", record.caveats);
    assert_eq!(
        record.programs["scripted"].reason.as_deref(),
        Some("it does not tell its version")
    );
}

#[test]
fn a_name_is_that_of_an_arm_and_the_program_a_release_build() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["", "justapi", "a/b", "a b", "é"] {
        let found = ServingLedger::prepare(folder.path(), name, true, "true".as_ref());
        assert!(matches!(found, Err(Error::NotUsable { .. })), "{name}");
    }
    let found = ServingLedger::prepare(folder.path(), "llama.cpp", true, "/bin/true".as_ref());
    assert!(
        matches!(found, Err(Error::NotReleaseBuild { .. })),
        "{found:?}"
    );
    std::fs::write(folder.path().join("BENCHMARKS.md"), "# forged\n").unwrap();
    let found = ServingLedger::prepare(folder.path(), "llama.cpp", true, "/bin/true".as_ref());
    assert!(matches!(found, Err(Error::Ledger(_))), "{found:?}");
}

/// A build that does not know its version is named by whoever installed it.
#[test]
fn the_version_of_a_server_can_be_stated() {
    let server = Scripted::start(|asked| good(asked, Some(0), 1));
    let mut report = measure(&named(plan(&server, &[Scenario::Decode])));
    let mut version = |said: Option<&str>, stated: Option<&str>| {
        report.server.before.props = said.map(|said| serde_json::json!({ "build_info": said }));
        let ledger = prepared().with_server_version(stated.map(str::to_owned));
        let record = ledger.record(&report).unwrap();
        let program = &record.programs["scripted"];
        (program.version.clone(), program.reason.clone())
    };
    let known = |text: &str| (Some(text.to_owned()), None);
    assert_eq!(version(Some("b5"), None), known("b5"));
    assert_eq!(version(None, Some("pkg 1.2")), known("pkg 1.2"));
    let both = version(Some("b0-unknown"), Some("pkg 1.2"));
    assert_eq!(both, known("pkg 1.2 (it says b0-unknown)"));
    let (none, reason) = version(None, None);
    assert_eq!((none, reason.is_some()), (None, true));
}
