//! One stream, split at every place, with instants that are made up.

use std::time::{Duration, Instant};

use serde_json::json;

use super::super::client::Attempt;
use super::super::completion::{Completion, StreamEnd};
use super::super::outcome::ServingOutcome;
use super::super::sample::{Sample, Summary};
use super::scripted::{content, done, event, finish, role, usage};

/// What a stream came to.
#[derive(Debug, PartialEq)]
struct Read {
    outcome: ServingOutcome,
    text: String,
    num_events: usize,
    completion_tokens: Option<u64>,
    cached_tokens: Option<u64>,
    has_done: bool,
}

fn ended(stream: &Completion, end: StreamEnd) -> Read {
    Read {
        outcome: stream.outcome(end, true),
        text: stream.text.clone(),
        num_events: stream.tokens.len(),
        completion_tokens: stream.usage.and_then(|usage| usage.completion_tokens),
        cached_tokens: stream.usage.and_then(|usage| usage.cached_tokens()),
        has_done: stream.done.is_some(),
    }
}

/// Reads `bytes` whole, in two parts split at every place, and byte by byte: always the same.
fn read(bytes: &[u8], end: StreamEnd) -> Read {
    let now = Instant::now();
    let in_parts = |parts: &[&[u8]]| {
        let mut stream = Completion::default();
        for part in parts {
            stream.read(part, now);
        }
        ended(&stream, end)
    };
    let whole = in_parts(&[bytes]);
    for split in 0..bytes.len() {
        let (before, after) = bytes.split_at(split);
        assert_eq!(in_parts(&[before, after]), whole, "split at {split}");
    }
    let single: Vec<_> = bytes.chunks(1).collect();
    assert_eq!(in_parts(&single), whole, "byte by byte");
    whole
}

fn check(events: &[Vec<u8>], expected: ServingOutcome) -> Read {
    let found = read(&events.concat(), StreamEnd::Clean);
    assert_eq!(found.outcome, expected, "{found:?}");
    found
}

#[test]
fn a_usual_stream_is_read() {
    let found = check(
        &[
            role(),
            content("a"),
            content("b c"),
            finish(),
            usage(9, 2, Some(3)),
            done(),
        ],
        ServingOutcome::Ok,
    );
    assert_eq!(found.text, "ab c");
    assert_eq!(found.num_events, 2);
    assert_eq!(
        (found.completion_tokens, found.cached_tokens),
        (Some(2), Some(3))
    );
}

#[test]
fn text_survives_any_split() {
    let texts = [
        "é漢𝄞",
        "  spaces  ",
        "\"quoted\" \\ \n line\r\n",
        "data: [DONE]",
    ];
    let mut events: Vec<_> = texts.iter().map(|text| content(text)).collect();
    // Characters as they are and escaped, as a surrogate pair.
    events.push(b"data: {\"choices\":[{\"delta\":{\"content\":\"\\ud834\\udd1e\"}}]}\n\n".to_vec());
    events.extend([finish(), usage(1, 5, None), done()]);
    let found = check(&events, ServingOutcome::Ok);
    assert_eq!(found.text, texts.concat() + "𝄞");
    assert_eq!(found.num_events, 5);
}

#[test]
fn lines_may_end_in_any_way_and_comments_are_skipped() {
    let stream = [
        b": keep-alive\n\n".to_vec(),
        content("a"),
        b":\n".to_vec(),
        content("b"),
        b"event: message\nid: 7\nretry: 5\n".to_vec(),
        finish(),
        usage(1, 2, None),
        done(),
    ]
    .concat();
    let text = String::from_utf8(stream).unwrap();
    for ending in ["\n", "\r\n", "\r"] {
        let stream = text.replace('\n', ending);
        let found = read(stream.as_bytes(), StreamEnd::Clean);
        assert_eq!(found.outcome, ServingOutcome::Ok, "{ending:?}");
        assert_eq!(found.text, "ab", "{ending:?}");
    }
}

#[test]
fn one_event_may_have_several_lines_of_data() {
    let stream = b"data: {\"choices\":\ndata: [{\"delta\":{\"content\":\"a\"}}]}\n\n".to_vec();
    let found = check(
        &[stream, finish(), usage(1, 1, None), done()],
        ServingOutcome::Ok,
    );
    assert_eq!(found.text, "a");
}

#[test]
fn usage_is_found_wherever_a_server_puts_it() {
    let with = |text: &str, completion: u64| {
        event(&json!({
            "choices": [{"delta": {"content": text}}],
            "usage": {"prompt_tokens": 4, "completion_tokens": completion},
        }))
    };
    let null = event(&json!({"choices": [{"delta": {}}], "usage": null}));
    for events in [
        vec![
            content("a"),
            content("b"),
            finish(),
            usage(4, 2, None),
            done(),
        ],
        vec![content("a"), with("b", 2), finish(), done()],
        vec![with("a", 1), with("b", 2), finish(), done()],
        vec![
            content("a"),
            content("b"),
            finish(),
            usage(4, 2, None),
            null,
            done(),
        ],
    ] {
        assert_eq!(
            check(&events, ServingOutcome::Ok).completion_tokens,
            Some(2)
        );
    }
}

#[test]
fn an_error_in_mid_stream_is_no_short_success() {
    let tokens = [content("a"), content("b"), content("c")].concat();
    for error in [
        event(&json!({"error": {"message": "out of memory", "code": 500}})),
        event(&json!({"error": "out of memory"})),
        b"event: error\ndata: out of memory\n\n".to_vec(),
        b"event: error\ndata: {\"message\": \"out of memory\"}\n\n".to_vec(),
    ] {
        let stream = [tokens.clone(), error, finish(), usage(1, 3, None), done()].concat();
        let found = read(&stream, StreamEnd::Clean);
        assert_eq!(found.outcome, ServingOutcome::StreamError);
        assert_eq!(found.num_events, 3);
        let mut completion = Completion::default();
        completion.read(&stream, Instant::now());
        assert_eq!(completion.fault(), Some("out of memory"));
    }
}

#[test]
fn a_stream_must_say_that_it_ended() {
    let begun = [content("a"), content("b")].concat();
    let counts = usage(1, 2, None);
    let cases: [(Vec<Vec<u8>>, StreamEnd, ServingOutcome); 9] = [
        (vec![], StreamEnd::Clean, ServingOutcome::Truncated),
        (
            vec![counts.clone()],
            StreamEnd::Clean,
            ServingOutcome::Truncated,
        ),
        (
            vec![finish(), counts.clone()],
            StreamEnd::Clean,
            ServingOutcome::Ok,
        ),
        (
            vec![finish(), counts.clone()],
            StreamEnd::Broken,
            ServingOutcome::Truncated,
        ),
        (
            vec![counts.clone(), done()],
            StreamEnd::Settled,
            ServingOutcome::Ok,
        ),
        (
            vec![counts.clone(), done(), done()],
            StreamEnd::Settled,
            ServingOutcome::Ok,
        ),
        (
            vec![counts.clone(), b"data: [DONE]  \n\n".to_vec()],
            StreamEnd::Settled,
            ServingOutcome::Ok,
        ),
        // Without its blank line an event is none.
        (
            vec![counts, b"data: [DONE]\n".to_vec()],
            StreamEnd::Clean,
            ServingOutcome::Truncated,
        ),
        (
            vec![finish(), done()],
            StreamEnd::Settled,
            ServingOutcome::UsageMissing,
        ),
    ];
    for (events, end, expected) in cases {
        let stream = [begun.clone(), events.concat()].concat();
        let found = read(&stream, end);
        assert_eq!(
            found.outcome,
            expected,
            "{}",
            String::from_utf8_lossy(&stream)
        );
    }
    check(
        &[role(), finish(), usage(1, 0, None), done()],
        ServingOutcome::Empty,
    );
}

#[test]
fn what_is_no_completion_is_invalid() {
    for data in ["{\"choices\": [", "not json", "{\"choices\": 7}", "[]"] {
        let stream = format!("data: {data}\n\n").into_bytes();
        check(
            &[content("a"), stream, done()],
            ServingOutcome::InvalidStream,
        );
    }
    let mut stream = Completion::default();
    let endless = vec![b'x'; 2 << 20];
    assert!(stream.read(&endless, Instant::now()));
    assert_eq!(
        stream.outcome(StreamEnd::Settled, true),
        ServingOutcome::InvalidStream
    );
}

#[test]
fn reasoning_and_tool_arguments_are_tokens() {
    for delta in [
        json!({"reasoning_content": "hm"}),
        json!({"reasoning": "hm"}),
        json!({"tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}),
    ] {
        let thought = event(&json!({"choices": [{"delta": delta}]}));
        let found = check(
            &[
                role(),
                thought,
                content("a"),
                finish(),
                usage(1, 2, None),
                done(),
            ],
            ServingOutcome::Ok,
        );
        assert_eq!((found.num_events, found.text.as_str()), (2, "a"));
    }
    // A name alone is none, nor are empty texts.
    let named =
        json!({"tool_calls": [{"function": {"name": "f", "arguments": ""}}], "reasoning": ""});
    let events = [
        event(&json!({"choices": [{"delta": named}]})),
        finish(),
        usage(1, 1, None),
        done(),
    ];
    check(&events, ServingOutcome::Empty);
}

/// A sample of events that came at milliseconds after the request was sent.
fn sample(events: &[(u64, Vec<u8>)]) -> Sample {
    let sent = Instant::now();
    let at = |milliseconds: u64| sent + Duration::from_millis(milliseconds);
    let mut completion = Completion::default();
    for (milliseconds, bytes) in events {
        completion.read(bytes, at(*milliseconds));
    }
    let end = events.last().map_or(0, |(milliseconds, _)| *milliseconds);
    let attempt = Attempt {
        outcome: completion.outcome(StreamEnd::Clean, true),
        status: Some(200),
        detail: None,
        scheduled: Some(sent.checked_sub(Duration::from_millis(30)).unwrap()),
        sent: Some(sent),
        head: Some(at(2)),
        connect: None,
        reused: true,
        completion,
        clock: None,
        ended: at(end),
    };
    Sample::new(0, Some(9), &attempt, None)
}

fn near(found: Option<f64>, expected: f64) -> bool {
    found.is_some_and(|found| (found - expected).abs() < 1e-6)
}

#[test]
fn the_first_token_is_the_first_with_text() {
    let found = sample(&[
        (5, role()),
        (6, content("")),
        (205, content("A")),
        (215, content("B")),
        (216, finish()),
        (217, usage(9, 2, None)),
        (240, done()),
    ]);
    assert!(near(found.client_wall_ttft_ms, 205.0), "{found:?}");
    assert!(near(found.client_wall_ttft_sched_ms, 235.0));
    assert!(near(found.client_wall_sched_delay_ms, 30.0));
    assert!(near(found.client_wall_ttfb_ms, 2.0));
    assert!(near(found.client_wall_ttst_ms, 10.0));
    assert!(near(found.client_wall_e2e_last_token_ms, 215.0));
    assert!(near(found.client_wall_total_ms, 240.0));
    assert!(near(found.client_wall_done_after_last_ms, 25.0));
    assert!(near(found.client_wall_e2e_per_token_ms, 107.5));
    assert!(near(found.client_wall_nominal_prefill_tps, 9.0 / 0.205));
    // Unknown is not 0.
    assert_eq!(found.cached_tokens, None);
    assert_eq!(found.cache_hit_ratio, None);
    assert_eq!(found.client_wall_effective_prefill_tps, None);
    assert_eq!(found.client_wall_decode_tps_steady, None);
}

#[test]
fn events_of_four_tokens_are_not_single_tokens() {
    let mut events: Vec<_> = (0..8_u64)
        .map(|index| {
            let delta = json!({"choices": [{"delta": {"content": "abcd"}}],
                "usage": {"prompt_tokens": 9, "completion_tokens": 4 * (index + 1),
                          "prompt_tokens_details": {"cached_tokens": 4}}});
            (100 + 40 * index, event(&delta))
        })
        .collect();
    events.extend([(380, finish()), (381, done())]);
    let found = sample(&events);
    assert_eq!(found.completion_tokens, Some(32));
    assert!(near(found.client_wall_tpot_ms, 280.0 / 31.0), "{found:?}");
    assert!(near(found.client_wall_decode_tps, 31.0 / 0.28));
    assert!(near(found.client_wall_decode_tps_steady, 28.0 / 0.28));
    assert!(near(found.tokens_per_chunk, 4.0));
    assert!(near(found.client_wall_effective_prefill_tps, 5.0 / 0.1));
    assert!(near(found.cache_hit_ratio, 4.0 / 9.0));
    assert_eq!((found.sse_token_events, found.decode_steps), (8, Some(31)));
    let summary = Summary::of([&found]);
    assert!(near(summary.client_wall_icl_ms.median, 40.0));
    assert_eq!(summary.client_wall_icl_ms.sample_count, 7);
    assert_eq!(summary.client_wall_itl_ms, None);
}

#[test]
fn what_one_token_cannot_tell_is_null() {
    let found = sample(&[
        (10, content("a")),
        (11, finish()),
        (12, usage(9, 1, Some(9))),
        (12, done()),
    ]);
    assert_eq!(found.outcome, ServingOutcome::Ok);
    assert_eq!(found.client_wall_tpot_ms, None);
    assert_eq!(found.client_wall_decode_tps, None);
    assert_eq!(found.client_wall_ttst_ms, None);
    // All of the prompt was cached: there is no prefill to rate.
    assert_eq!(found.client_wall_effective_prefill_tps, None);
    // Many tokens in one read have no time between them.
    let found = sample(&[
        (10, content("a")),
        (10, content("b")),
        (10, usage(9, 2, None)),
        (10, done()),
    ]);
    assert_eq!(found.client_wall_decode_tps, None);
    assert!(near(found.client_wall_ttst_ms, 0.0));
}

#[test]
fn failures_are_in_no_summary() {
    let failed = sample(&[
        (10, content("a")),
        (20, content("b")),
        (30, event(&json!({"error": "gone"}))),
    ]);
    assert_eq!(failed.outcome, ServingOutcome::StreamError);
    assert_eq!(failed.sse_token_events, 2);
    assert_eq!(failed.client_wall_total_ms, None);
    let summary = Summary::of([&failed]);
    assert_eq!(summary.client_wall_ttft_ms.sample_count, 0);
    assert_eq!(summary.client_wall_ttft_ms.median, None);
    assert_eq!(summary.client_wall_ttft_ms.mean, None);
}

#[test]
fn percentiles_wait_for_their_samples() {
    use super::super::sample::MetricSummary;
    let of = |count: u32| {
        let values: Vec<_> = (1..=count).map(f64::from).collect();
        MetricSummary::of(&values)
    };
    let few = of(43);
    assert_eq!(
        (few.median, few.p90, few.p5, few.p99),
        (Some(22.0), None, None, None)
    );
    assert_eq!((of(44).p90, of(44).p95), (Some(40.0), None));
    assert_eq!((of(90).p95, of(90).p5), (Some(86.0), Some(5.0)));
    assert_eq!(of(459).p99, Some(455.0));
    // Nearest rank, the lower of two in the middle.
    assert_eq!(of(4).median, Some(2.0));
}
