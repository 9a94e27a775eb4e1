//! Streams to the byte, and their ends: what is asked for, what fails, who leaves.

use super::*;

const HEAD: &str = r#"{"id":"ID","object":"chat.completion.chunk","created":0,"model":"tiny","#;
const TEXT_HEAD: &str = r#"{"id":"ID","object":"text_completion","created":0,"model":"tiny","#;

/// The events of these chunks, each behind the head, and the end.
fn events(head: &str, chunks: &[&str]) -> String {
    let mut text = String::new();
    for chunk in chunks {
        writeln!(text, "data: {head}{chunk}\n").expect("memory");
    }
    text + "data: [DONE]\n\n"
}

#[test]
fn a_chat_is_a_role_then_texts_then_one_reason() {
    let site = Site::answering(&["he", "", "llo"]);
    let answer = site.chat(r#""stream":true"#);
    assert!(
        answer.has_line("content-type: text/event-stream"),
        "{}",
        answer.head
    );
    assert!(
        answer.has_line("cache-control: no-cache"),
        "{}",
        answer.head
    );
    assert!(answer.has_line("x-accel-buffering: no"), "{}", answer.head);
    let expected = events(
        HEAD,
        &[
            r#""choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}"#,
            r#""choices":[{"index":0,"delta":{"content":"he"},"logprobs":null,"finish_reason":null}]}"#,
            r#""choices":[{"index":0,"delta":{"content":"llo"},"logprobs":null,"finish_reason":null}]}"#,
            r#""choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]}"#,
        ],
    );
    assert_eq!(answer.stable(), expected);
}

#[test]
fn usage_comes_last_and_only_if_asked_for() {
    let site = Site::answering(&["a"]);
    let answer = site.chat(r#""stream":true,"stream_options":{"include_usage":true}"#);
    let expected = events(
        HEAD,
        &[
            r#""choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"usage":null}"#,
            r#""choices":[{"index":0,"delta":{"content":"a"},"logprobs":null,"finish_reason":null}],"usage":null}"#,
            r#""choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}],"usage":null}"#,
            r#""choices":[],"usage":{"prompt_tokens":21,"completion_tokens":1,"total_tokens":22,"prompt_tokens_details":{"cached_tokens":2}}}"#,
        ],
    );
    assert_eq!(answer.stable(), expected);
    for options in [
        "null",
        r#"{"include_usage":false}"#,
        "{}",
        r#"{"include_usage":null}"#,
    ] {
        let answer = site.chat(&format!(r#""stream":true,"stream_options":{options}"#));
        assert!(!answer.body.contains("usage"), "{options}: {}", answer.body);
    }
}

#[test]
fn running_usage_counts_what_has_been_sent() {
    let site = Site::answering(&["a", "b"]);
    let options = r#"{"include_usage":true,"continuous_usage_stats":true}"#;
    let answer = site.chat(&format!(r#""stream":true,"stream_options":{options}"#));
    let counts: Vec<_> = answer
        .chunks()
        .iter()
        .map(|chunk| chunk["usage"]["completion_tokens"].as_u64())
        .collect();
    assert_eq!(counts, [Some(0), Some(1), Some(2), Some(2), Some(2)]);
}

#[test]
fn text_that_was_held_back_comes_before_the_reason() {
    let site = Site::scripted(|_, request| {
        Reply::Events(vec![
            token(97, "a"),
            token(98, ""),
            finished(FinishReason::Length, "b", request, 2),
        ])
    });
    let answer = site.complete(r#""prompt":"x","stream":true"#);
    let expected = events(
        TEXT_HEAD,
        &[
            r#""choices":[{"index":0,"text":"a","logprobs":null,"finish_reason":null}]}"#,
            r#""choices":[{"index":0,"text":"b","logprobs":null,"finish_reason":null}]}"#,
            r#""choices":[{"index":0,"text":"","logprobs":null,"finish_reason":"length"}]}"#,
        ],
    );
    assert_eq!(answer.stable(), expected);
}

#[test]
fn parts_joined_are_the_whole() {
    let texts = &[
        " one",
        " ",
        "zwei ",
        "三",
        "\u{1f9d1}\u{200d}\u{1f680}",
        "\n\n",
        "\"\\",
    ];
    let site = Site::answering(texts);
    let whole = site.chat("").json()["choices"][0]["message"]["content"].clone();
    let chunks = site.chat(r#""stream":true"#).chunks();
    let parts: String = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(json!(parts), whole);
    assert_eq!(whole, texts.concat());
}

#[test]
fn several_choices_come_interleaved_each_with_its_own_end() {
    let site = Site::answering(&["a", "b"]);
    let chunks = site.chat(r#""stream":true,"n":3,"stream_options":{"include_usage":true}"#);
    let chunks = chunks.chunks();
    for index in 0..3 {
        let own: Vec<_> = chunks
            .iter()
            .filter_map(|chunk| chunk["choices"].get(0))
            .filter(|choice| choice["index"] == index)
            .collect();
        let texts: Vec<_> = own
            .iter()
            .map(|choice| choice["delta"]["content"].as_str())
            .collect();
        assert_eq!(texts, [Some(""), Some("a"), Some("b"), None], "{index}");
        assert_eq!(own[0]["delta"]["role"], "assistant");
        let reasons: Vec<_> = own
            .iter()
            .map(|choice| choice["finish_reason"].as_str())
            .collect();
        assert_eq!(reasons, [None, None, None, Some("stop")], "{index}");
    }
    let usage = &chunks.last().expect("usage")["usage"];
    assert_eq!(usage["prompt_tokens"], NUM_CHAT_TOKENS, "counted once");
    assert_eq!(usage["completion_tokens"], 6);
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 2);
}

#[test]
fn a_failure_in_the_middle_is_an_event_and_an_end() {
    let failed = r#"data: {"error":{"message":"the engine failed at this request","type":"server_error","param":null,"code":"engine_failed"}}"#;
    let stopped = r#"data: {"error":{"message":"the engine is stopped","type":"server_error","param":null,"code":"engine_stopped"}}"#;
    let site = Site::scripted(|index, request| {
        let mut events = vec![token(97, "a")];
        let reason = match index {
            0 => FinishReason::Failed,
            1 => FinishReason::Aborted,
            _ => return Reply::Die(events),
        };
        events.push(finished(reason, "", request, 1));
        Reply::Events(events)
    });
    for expected in [failed, stopped, failed] {
        let answer = site.chat(r#""stream":true"#);
        assert_eq!(answer.status, 200);
        let end = format!("{expected}\n\ndata: [DONE]\n\n");
        assert!(answer.body.ends_with(&end), "{}", answer.body);
        assert_eq!(answer.body.matches("[DONE]").count(), 1);
        assert!(
            !answer.body.contains(r#""finish_reason":""#),
            "{}",
            answer.body
        );
    }
}

#[test]
fn a_refusal_comes_before_any_event() {
    let site = Site::scripted(|_, _| {
        Reply::Refuse(Refusal::TooLong {
            num_tokens: 9,
            max_tokens: 8,
            limit: "the pool",
        })
    });
    let answer = site.chat(r#""stream":true"#);
    answer.refused(400, Some("context_length_exceeded"), Some("messages"));
    let long = "x".repeat(CONTEXT + 1);
    let answer = site.complete(&format!(r#""prompt":"{long}","stream":true"#));
    answer.refused(400, Some("context_length_exceeded"), Some("prompt"));
    let message = answer.json()["error"]["message"].to_string();
    assert!(
        message.contains("101") && message.contains("100"),
        "{message}"
    );
}

#[test]
fn a_stream_whose_client_leaves_is_aborted() {
    let site = Site::scripted(|_, _| Reply::Hold(vec![token(97, "a")]));
    let mut stream = site.begin("/v1/chat/completions", &chat_body(r#""stream":true,"n":2"#));
    let mut seen = [0; 1];
    stream.read_exact(&mut seen).expect("the first byte");
    assert!(site.log().aborted.is_empty());
    leave(stream);
    site.eventually("both are given up", |log| log.aborted.len() == 2);
    let metrics = site.get("/metrics").body;
    let line = r#"vllm:request_success_total{model_name="tiny",finished_reason="abort"} 2"#;
    assert!(metrics.contains(line), "{metrics}");
}

#[test]
fn an_answer_whose_client_leaves_is_aborted() {
    let site = Site::scripted(|_, _| Reply::Hold(vec![token(97, "a")]));
    let stream = site.begin("/v1/chat/completions", &chat_body(""));
    site.eventually("it has begun", |log| log.requests.len() == 1);
    leave(stream);
    site.eventually("it is given up", |log| log.aborted.len() == 1);
}

#[test]
fn a_stream_that_runs_is_finished_when_the_server_stops() {
    let (release, word) = mpsc::channel();
    let word = Mutex::new(Some(word));
    let mut site = Site::scripted(move |_, request| {
        let word = word.lock().unwrap_or_else(PoisonError::into_inner).take();
        let first = vec![token(97, "a")];
        Reply::Later(first, word.expect("one request"), said(&["b"], request))
    });
    let mut stream = site.begin("/v1/completions", r#"{"prompt":"x","stream":true}"#);
    let mut bytes = vec![0; 1];
    stream.read_exact(&mut bytes).expect("the first byte");
    let running = site.running.take().expect("it runs");
    let draining = thread::spawn(move || running.drain());
    // Once it drains it listens no more.
    let deadline = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(site.address).is_ok() {
        assert!(Instant::now() < deadline, "it drains");
        thread::sleep(Duration::from_millis(1));
    }
    release.send(()).expect("the engine waits");
    stream.read_to_end(&mut bytes).expect("the rest");
    let answer = Answer::parse(&bytes);
    let texts: Vec<_> = answer
        .chunks()
        .iter()
        .map(|chunk| chunk["choices"][0]["text"].clone())
        .collect();
    assert_eq!(texts, ["a", "b", ""]);
    assert!(draining.join().expect("no panic").finished);
}
