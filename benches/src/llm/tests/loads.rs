//! Many requests at once: levels, arrivals, and the data sets behind them.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;

use super::super::{Arrivals, Dataset, Scenario, Slo};
use super::scripted::{Act, Asked, Scripted, good, respond};
use super::{is_measured, measure, plan};
use crate::Error;

#[test]
fn hits_of_new_prompts_are_told() {
    let server = Scripted::start(|asked| good(asked, Some(30), 0));
    let report = measure(&plan(&server, &[Scenario::Concurrency]));
    assert_eq!(report.notes.len(), 2, "{:?}", report.notes);
    assert!(
        report.notes[0].contains("came from a cache"),
        "{:?}",
        report.notes
    );
}

#[test]
fn a_level_has_ended_before_the_next_and_runs_at_once() {
    let under_way = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let (shared, seen) = (Arc::clone(&under_way), Arc::clone(&most));
    let server = Scripted::start(move |asked| {
        if is_measured(asked, 4) {
            seen.fetch_max(1 + shared.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(400));
            shared.fetch_sub(1, Ordering::SeqCst);
        }
        good(asked, Some(0), 10)
    });
    let mut plan = plan(&server, &[Scenario::Concurrency]);
    plan.levels = vec![4];
    plan.requests_per_client = 1;
    let report = measure(&plan);
    assert_eq!(most.load(Ordering::SeqCst), 4);
    let level = &report.concurrency.as_ref().unwrap()[0];
    assert!(level.start_spread_ms.unwrap() < 400.0, "{level:?}");
    assert_eq!(level.totals.concurrency_admitted_max, Some(4));
    let inflight = level.totals.concurrency_inflight.unwrap();
    assert!(inflight > 1.0 && inflight <= 4.0, "{inflight}");
    assert!(level.totals.client_wall_ms.unwrap() >= 400.0);
}

#[test]
fn an_open_loop_does_not_wait_for_answers() {
    let server = Scripted::start(|asked| {
        if is_measured(asked, 4) {
            std::thread::sleep(Duration::from_millis(300));
        }
        good(asked, Some(0), 0)
    });
    let mut plan = plan(&server, &[Scenario::Rate]);
    plan.arrivals = Some(Arrivals::Constant(50.0));
    plan.num_arrivals = 5;
    plan.slo = Slo::new(Some(1.0), None, None);
    let report = measure(&plan);
    let open = report.open_loop.as_ref().unwrap();
    // All five were sent before the first was answered.
    assert_eq!(open.totals.requests, 5);
    assert!(
        open.totals.client_wall_ms.unwrap() < 5.0 * 300.0,
        "{open:?}"
    );
    assert_eq!(open.goodput.as_ref().unwrap().good, 0);

    // With one place they queue, and the wait is in the time from the due instant alone.
    plan.max_in_flight = Some(1);
    let report = measure(&plan);
    let open = report.open_loop.as_ref().unwrap();
    let last = open.samples.last().unwrap();
    assert!(
        last.client_wall_ttft_sched_ms.unwrap() >= 5.0 * 300.0 - 80.0,
        "{last:?}"
    );
    assert!(last.client_wall_sched_delay_ms.unwrap() >= 4.0 * 300.0 - 80.0);
    assert!(last.client_wall_ttft_ms.unwrap() < last.client_wall_ttft_sched_ms.unwrap());
    assert!(
        report.notes.iter().any(|note| note.contains("were due")),
        "{:?}",
        report.notes
    );
}

#[test]
fn goodput_counts_failures_as_bad() {
    let count = AtomicUsize::new(0);
    let server = Scripted::start(move |asked| {
        if is_measured(asked, 4) && count.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
            vec![Act::Raw(respond(503, &json!({})))]
        } else {
            good(asked, Some(0), 0)
        }
    });
    let mut plan = plan(&server, &[Scenario::Rate]);
    plan.arrivals = Some(Arrivals::Poisson(100.0));
    plan.num_arrivals = 8;
    plan.slo = Slo::new(None, None, Some(60_000.0));
    let report = measure(&plan);
    let goodput = report.open_loop.unwrap().goodput.unwrap();
    assert_eq!((goodput.good, goodput.fraction), (4, Some(0.5)));
}

#[test]
fn turns_carry_what_was_answered() {
    let server = Scripted::start(|asked| good(asked, Some(0), 0));
    let mut plan = plan(&server, &[Scenario::Concurrency]);
    plan.dataset = Dataset::MultiTurn { turns: 3 };
    plan.levels = vec![1];
    plan.requests_per_client = 1;
    let report = measure(&plan);
    assert_eq!(report.invalid, Vec::<String>::new());
    let asked = server.completions();
    let last = asked.last().unwrap().body["messages"].as_array().unwrap();
    let roles: Vec<_> = last
        .iter()
        .map(|message| message["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant", "user"]);
    assert_eq!(last[1]["content"], json!("t0 t1 t2 t3 "));
    assert_eq!(report.concurrency.unwrap()[0].samples.len(), 3);
}

#[test]
fn prefixes_are_shared_within_a_level_only() {
    let server = Scripted::start(|asked| good(asked, Some(0), 0));
    let mut plan = plan(&server, &[Scenario::Concurrency]);
    plan.dataset = Dataset::SharedPrefix { prefix_tokens: 40 };
    plan.input_tokens = 100;
    plan.levels = vec![1, 2];
    let report = measure(&plan);
    assert_eq!(report.invalid, Vec::<String>::new());
    let asked = server.completions();
    let prompts: Vec<_> = asked[asked.len() - 6..].iter().map(Asked::prompt).collect();
    let shared = |a: &str, b: &str| a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    assert!(shared(prompts[0], prompts[1]) > 100, "{prompts:?}");
    assert!(shared(prompts[2], prompts[5]) > 100);
    assert!(shared(prompts[0], prompts[2]) < 60);
}

/// Writes a file into a folder of the test's own.
fn write(folder: &tempfile::TempDir, name: &str, text: &str) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn traces_are_asked_as_they_came() {
    let folder = tempfile::tempdir().unwrap();
    let trace = write(
        &folder,
        "trace.jsonl",
        "{\"timestamp\": 1000, \"input_length\": 1100, \"output_length\": 3, \"hash_ids\": [1, 2, 3]}\n\n\
         {\"timestamp\": 1050, \"input_length\": 1200, \"output_length\": 5, \"hash_ids\": [1, 2, 4]}\n\
         {\"timestamp\": 1060, \"prompt\": \"say hello\", \"max_tokens\": 6}\n\
         {\"timestamp\": 1070, \"messages\": [{\"role\": \"system\", \"content\": \"be brief\"}, \
          {\"role\": \"user\", \"content\": \"hello\"}]}\n",
    );
    let server = Scripted::start(|asked| good(asked, Some(0), 0));
    let mut plan = plan(&server, &[Scenario::Rate]);
    plan.dataset = Dataset::trace(&trace).unwrap();
    plan.arrivals = Some(Arrivals::Trace(2.0));
    plan.num_arrivals = 10;
    let report = measure(&plan);
    assert_eq!(report.invalid, Vec::<String>::new());
    let open = report.open_loop.as_ref().unwrap();
    assert_eq!(open.schedule_ms, [0.0, 25.0, 30.0, 35.0]);
    let mut tokens: Vec<_> = open
        .samples
        .iter()
        .map(|s| s.completion_tokens.unwrap())
        .collect();
    tokens.sort_unstable();
    assert_eq!(tokens, [3, 4, 5, 6]);
    let asked = server.completions();
    let sent = |max_tokens: u64| {
        let mut asked = asked.iter();
        asked.find(|asked| is_measured(asked, max_tokens)).unwrap()
    };
    assert!(
        sent(3).prompt()[..3000] == sent(5).prompt()[..3000],
        "blocks 1 and 2 are shared"
    );
    assert!(sent(6).prompt().ends_with("\n\nsay hello"));
    assert_eq!(sent(4).body["messages"][1]["content"], json!("hello"));
}

#[test]
fn first_questions_of_conversations_are_asked() {
    let folder = tempfile::tempdir().unwrap();
    let server = Scripted::start(|asked| good(asked, Some(0), 0));
    let file = write(
        &folder,
        "sharegpt.json",
        "[{\"id\": \"a\", \"conversations\": [{\"from\": \"human\", \"value\": \"what is it\"}, \
          {\"from\": \"gpt\", \"value\": \"it is a thing\"}]}, \
          {\"id\": \"b\", \"conversations\": [{\"from\": \"gpt\", \"value\": \"no question\"}]}]",
    );
    let mut plan = plan(&server, &[Scenario::Concurrency]);
    plan.dataset = Dataset::share_gpt(&file).unwrap();
    plan.output_tokens = None;
    plan.levels = vec![1];
    let report = measure(&plan);
    assert_eq!(report.invalid, Vec::<String>::new());
    let asked = server.completions();
    let last = asked.last().unwrap();
    assert!(last.prompt().ends_with("\n\nwhat is it"));
    // Four words and the frame of a message.
    assert_eq!(last.body["max_tokens"], json!(11));
}

#[test]
fn unusable_files_of_prompts_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text, line) in [
        ("a.jsonl", "{\"input_length\": 5}\n{\n", Some(2)),
        ("b.jsonl", "{\"output_length\": 5}\n", Some(1)),
        (
            "c.jsonl",
            "{\"input_length\": 5, \"timestamp\": -1}\n",
            Some(1),
        ),
        ("d.jsonl", "\n", None),
    ] {
        let error = Dataset::trace(&write(&folder, name, text)).unwrap_err();
        assert!(
            matches!(&error, Error::Dataset { line: found, .. } if *found == line),
            "{error}"
        );
    }
    let error = Dataset::share_gpt(&write(&folder, "e.json", "[]")).unwrap_err();
    assert!(matches!(error, Error::Dataset { .. }), "{error}");
}
