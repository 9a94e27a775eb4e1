//! Servers that fail, break off or hold on, and runs that cannot begin or are stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use super::super::{
    Arrivals, Dataset, Scenario, ServingOutcome, ServingPlan, ServingReport, Slo, run,
};
use super::scripted::{Act, Scripted, content, done, event, finish, good, respond, role, usage};
use super::{is_measured, measure, plan};
use crate::{Error, parse_target};

/// Answers well but for the requests of `max_tokens`, which get `acts`.
fn broken(max_tokens: u64, acts: &[Act]) -> Scripted {
    let acts = acts.to_vec();
    Scripted::start(move |asked| {
        if is_measured(asked, max_tokens) {
            acts.clone()
        } else {
            good(asked, Some(0), 0)
        }
    })
}

/// The outcome of a long answer that is played by `acts`.
fn outcome(acts: &[Act]) -> ServingReport {
    let server = broken(64, acts);
    let mut plan = plan(&server, &[Scenario::Decode]);
    plan.decode_tokens = 64;
    plan.repetitions = 1;
    plan.timeout = Duration::from_millis(1500);
    measure(&plan)
}

fn chunks(events: &[Vec<u8>]) -> Vec<Act> {
    let mut acts = vec![Act::Head];
    acts.extend(events.iter().cloned().map(Act::Chunk));
    acts
}

#[test]
fn each_way_to_fail_has_its_class() {
    let begun = [role(), content("a"), content("b")];
    let with = |end: Vec<Act>| [chunks(&begun), end].concat();
    let error = event(&json!({"error": {"message": "out of blocks"}}));
    for (acts, expected) in [
        (
            with(vec![Act::Chunk(error), Act::End]),
            ServingOutcome::StreamError,
        ),
        (with(vec![Act::End]), ServingOutcome::Truncated),
        (
            with(vec![Act::Chunk(finish()), Act::Close]),
            ServingOutcome::Truncated,
        ),
        (with(vec![Act::Close]), ServingOutcome::Truncated),
        (
            with(vec![Act::Pause(5000), Act::End]),
            ServingOutcome::Timeout,
        ),
        (
            with(vec![Act::Chunk(finish()), Act::Chunk(done()), Act::End]),
            ServingOutcome::UsageMissing,
        ),
        (
            with(vec![Act::Chunk(b"data: {\n\n".to_vec()), Act::End]),
            ServingOutcome::InvalidStream,
        ),
        (chunks(&[role(), done()]), ServingOutcome::Empty),
        (vec![Act::Close], ServingOutcome::ConnectionLost),
        (
            vec![Act::Raw(b"HTTP/1.1 2".to_vec()), Act::Close],
            ServingOutcome::ConnectionLost,
        ),
        (
            vec![Act::Raw(respond(200, &json!({"choices": []})))],
            ServingOutcome::InvalidStream,
        ),
        (
            vec![Act::Raw(respond(503, &json!({"error": "busy"})))],
            ServingOutcome::Http5xx,
        ),
        (
            vec![Act::Raw(respond(429, &json!({"error": "slower"})))],
            ServingOutcome::Http4xx,
        ),
        (
            vec![Act::Raw(respond(302, &json!({})))],
            ServingOutcome::HttpOther,
        ),
    ] {
        let report = outcome(&acts);
        let found: Vec<_> = report.outcomes.keys().copied().collect();
        assert_eq!(found, [expected], "{acts:?}: {report:?}");
        assert!(report.all_failed(), "{expected:?}");
        assert!(
            report.invalid[0].contains(expected.name()),
            "{:?}",
            report.invalid
        );
        let decode = report.decode.as_ref().unwrap();
        assert_eq!(decode.summary.client_wall_ttft_ms.sample_count, 0);
    }
}

#[test]
fn partial_failures_make_a_run_invalid() {
    let count = AtomicUsize::new(0);
    let server = Scripted::start(move |asked| {
        if is_measured(asked, 4) && count.fetch_add(1, Ordering::Relaxed) == 3 {
            vec![Act::Raw(respond(500, &json!({"error": "once"})))]
        } else {
            good(asked, Some(0), 0)
        }
    });
    let report = measure(&plan(&server, &[Scenario::Concurrency]));
    assert!(report.any_succeeded() && !report.all_failed());
    assert_eq!(report.outcomes.get(&ServingOutcome::Http5xx), Some(&1));
    assert_eq!(report.outcomes.get(&ServingOutcome::Ok), Some(&7));
    assert!(report.invalid[0].contains("once"), "{:?}", report.invalid);
    let levels = report.concurrency.as_ref().unwrap();
    assert_eq!(levels[1].totals.completion_tokens, Some(5 * 4));
}

#[test]
fn a_server_that_fails_to_warm_up_is_not_measured() {
    let server = broken(
        32,
        &[Act::Raw(respond(500, &json!({"error": "no memory"})))],
    );
    let report = measure(&plan(&server, &[Scenario::Prefill]));
    assert!(report.all_failed());
    assert_eq!(report.prefill, None);
    assert!(
        report.invalid[0].contains("no memory"),
        "{:?}",
        report.invalid
    );
}

#[test]
fn an_absent_server_is_an_error() {
    let server = Scripted::start(|_| Vec::new());
    let mut plan = plan(&server, &[Scenario::Prefill]);
    let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", unused.local_addr().unwrap());
    drop(unused);
    plan.target = parse_target(&url, None).unwrap().0;
    let stop = Arc::new(AtomicBool::new(false));
    let error = run(&plan, &mut |_| {}, &stop).unwrap_err();
    assert!(matches!(error, Error::ModelServer { .. }), "{error}");
}

#[test]
fn a_stream_byte_by_byte_is_the_same_stream() {
    let text = ["é漢𝄞", "  a ", "\u{2028}"];
    let mut events: Vec<_> = text.iter().map(|text| content(text)).collect();
    events.extend([finish(), usage(263, 3, Some(0)), done()]);
    let mut acts = vec![Act::Head];
    for byte in events.concat() {
        acts.push(Act::Chunk(vec![byte]));
    }
    acts.push(Act::End);
    let report = outcome(&acts);
    assert_eq!(
        report.outcomes.get(&ServingOutcome::Ok),
        Some(&1),
        "{report:?}"
    );
    let sample = &report.decode.as_ref().unwrap().samples[0];
    assert_eq!(sample.sse_token_events, 3);
}

#[test]
fn time_to_first_token_is_not_that_of_the_role() {
    let report = outcome(
        &[
            chunks(&[role(), content("")]),
            vec![
                Act::Pause(100),
                Act::Chunk(content("a")),
                Act::Chunk(content("b")),
            ],
            vec![
                Act::Chunk(finish()),
                Act::Chunk(usage(263, 2, None)),
                Act::Chunk(done()),
                Act::End,
            ],
        ]
        .concat(),
    );
    let sample = &report.decode.as_ref().unwrap().samples[0];
    assert!(sample.client_wall_ttft_ms.unwrap() >= 100.0, "{sample:?}");
    assert!(sample.client_wall_ttfb_ms.unwrap() < 100.0, "{sample:?}");
}

#[test]
fn done_ends_an_answer_although_the_server_holds_on() {
    let whole = [
        content("a"),
        content("b"),
        finish(),
        usage(263, 2, Some(0)),
        done(),
    ];
    // Longer than the time limit: who waited for the end would see a timeout.
    let report = outcome(&[chunks(&whole), vec![Act::Pause(5000), Act::End]].concat());
    assert_eq!(
        report.outcomes.get(&ServingOutcome::Ok),
        Some(&1),
        "{report:?}"
    );
}

/// An end that a server without `TCP_NODELAY` holds back until the write before it is acknowledged,
/// which happens on a connection that is used again: it is shown, apart from the tokens.
#[test]
fn an_end_that_is_held_back_is_no_time_of_a_token() {
    let server = Scripted::start(|asked| {
        let mut acts = good(asked, Some(0), 5);
        if asked.body["stream"] == json!(true) {
            let end = acts.len() - 2;
            acts.insert(end, Act::Pause(300));
        }
        acts
    });
    let report = measure(&plan(&server, &[Scenario::Decode]));
    let samples = report.decode.unwrap().samples;
    assert!(samples.iter().all(|sample| sample.connection_reused));
    for sample in &samples {
        let ms = |value: Option<f64>| value.unwrap();
        let held = ms(sample.client_wall_done_after_last_ms);
        assert!(held >= 100.0, "{sample:?}");
        let last = ms(sample.client_wall_e2e_last_token_ms);
        assert!(
            (ms(sample.client_wall_total_ms) - last - held).abs() < 1.0,
            "{sample:?}"
        );
        // It is in no time of a token.
        let steps = sample.client_wall_tpot_ms.map_or(0.0, |each| 7.0 * each);
        let tokens = ms(sample.client_wall_ttft_ms) + steps;
        assert!((last - tokens).abs() < 1.0, "{sample:?}");
    }
}

#[test]
fn an_answer_without_done_ends_with_its_message() {
    let whole = [content("a"), content("b"), finish(), usage(263, 2, Some(0))];
    let report = outcome(&[chunks(&whole), vec![Act::End]].concat());
    assert_eq!(
        report.outcomes.get(&ServingOutcome::Ok),
        Some(&1),
        "{report:?}"
    );
    let sample = &report.decode.as_ref().unwrap().samples[0];
    assert!(!sample.done_seen && sample.client_wall_total_ms.is_some());
}

#[test]
fn a_connection_that_is_closed_silently_fails_no_request() {
    // As llama.cpp's server does after each stream.
    let server = Scripted::start(|asked| {
        let mut acts = good(asked, Some(0), 0);
        acts.push(Act::Close);
        acts
    });
    let mut plan = plan(&server, &[Scenario::Prefix, Scenario::Concurrency]);
    plan.requests_per_client = 5;
    let report = measure(&plan);
    assert_eq!(report.invalid, Vec::<String>::new());
    assert_eq!(report.server.cached_tokens_reporting, "always");
    assert_eq!(report.outcomes.get(&ServingOutcome::Ok), Some(&(6 + 4 * 5)));
}

#[test]
fn a_stop_keeps_what_was_measured() {
    let stop = Arc::new(AtomicBool::new(false));
    let shared = Arc::clone(&stop);
    let server = Scripted::start(move |asked| {
        let is_long = is_measured(asked, 64);
        shared.fetch_or(is_long, Ordering::Relaxed);
        good(asked, Some(0), if is_long { 200 } else { 0 })
    });
    let mut plan = plan(&server, &[Scenario::Prefill, Scenario::Decode]);
    plan.decode_tokens = 64;
    let start = Instant::now();
    let report = run(&plan, &mut |_| {}, &stop).unwrap();
    assert!(start.elapsed() < Duration::from_secs(10));
    assert!(report.run.interrupted);
    assert_eq!(report.outcomes.get(&ServingOutcome::Ok), Some(&2));
    assert_eq!(report.outcomes.get(&ServingOutcome::Interrupted), Some(&1));
    assert_eq!(report.invalid, Vec::<String>::new());
    assert!(report.render_text().contains("interrupted"));
}

#[test]
fn plans_that_cannot_run_are_refused() {
    let server = Scripted::start(|asked| good(asked, None, 0));
    let check = |change: fn(&mut ServingPlan), expected: &str| {
        let mut plan = plan(&server, &[Scenario::Concurrency]);
        change(&mut plan);
        let found = plan.validate();
        assert!(
            matches!(&found, Err(Error::LoadPlan { field, .. }) if *field == expected),
            "{expected}: {found:?}"
        );
    };
    check(|plan| plan.scenarios.clear(), "scenario");
    check(|plan| plan.timeout = Duration::ZERO, "timeout");
    check(|plan| plan.levels = vec![1, 0], "concurrency");
    check(|plan| plan.arrivals = Some(Arrivals::Poisson(1.0)), "rate");
    check(|plan| plan.scenarios = vec![Scenario::Rate], "rate");
    check(|plan| plan.slo = Slo::new(Some(1.0), None, None), "slo");
    check(
        |plan| plan.dataset = Dataset::SharedPrefix { prefix_tokens: 40 },
        "dataset",
    );
    check(
        |plan| {
            plan.scenarios = vec![Scenario::Rate];
            plan.arrivals = Some(Arrivals::Constant(f64::NAN));
        },
        "rate",
    );
    check(
        |plan| {
            plan.scenarios = vec![Scenario::Rate];
            plan.arrivals = Some(Arrivals::Trace(1.0));
        },
        "arrivals",
    );
    check(
        |plan| {
            plan.scenarios = vec![Scenario::Rate];
            plan.arrivals = Some(Arrivals::Constant(1.0));
            plan.dataset = Dataset::MultiTurn { turns: 2 };
        },
        "dataset",
    );
}
