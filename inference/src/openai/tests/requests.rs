//! What reaches the engine of a request, and what is refused before it does.

use super::*;
use crate::SamplingParams;

#[test]
fn members_that_cannot_be_meant_are_refused_before_the_queue() {
    let site = Site::answering(&["a"]);
    for (members, param) in [
        (r#""max_tokens":-1"#, "max_tokens"),
        (r#""max_tokens":0"#, "max_tokens"),
        (r#""max_completion_tokens":"5""#, "max_completion_tokens"),
        (r#""top_logprobs":2"#, "top_logprobs"),
        (r#""logprobs":false,"top_logprobs":2"#, "top_logprobs"),
        (r#""logprobs":true,"top_logprobs":21"#, "top_logprobs"),
        (r#""logprobs":5"#, "logprobs"),
        (r#""logit_bias":{"262":1}"#, "logit_bias"),
        (r#""temperature":3"#, "temperature"),
        (r#""n":9"#, "n"),
        (r#""stop":["a",""]"#, "stop"),
        (r#""min_tokens":5,"max_tokens":4"#, "min_tokens"),
        (
            r#""tools":[{"type":"function","function":{"name":"f"}}]"#,
            "tools",
        ),
        (
            r#""response_format":{"type":"json_schema","json_schema":{}}"#,
            "response_format",
        ),
        (r#""echo":true"#, "echo"),
        (r#""best_of":2"#, "best_of"),
    ] {
        for stream in ["", r#","stream":true"#] {
            let answer = site.chat(&format!("{members}{stream}"));
            assert_eq!(answer.status, 400, "{members}: {}", answer.body);
            assert_eq!(answer.json()["error"]["param"], param, "{members}");
        }
    }
    assert!(site.log().requests.is_empty());
}

#[test]
fn prompts_that_are_none_are_refused() {
    let site = Site::answering(&["a"]);
    for members in [
        "",
        r#""prompt":null"#,
        r#""prompt":"""#,
        r#""prompt":[]"#,
        r#""prompt":[[]]"#,
        r#""prompt":["a",""]"#,
        r#""prompt":[262]"#,
        r#""prompt":[-1]"#,
        r#""prompt":[1,"a"]"#,
        r#""prompt":["a",1]"#,
        r#""prompt":[1.5]"#,
        r#""prompt":{"a":1}"#,
        r#""prompt":5"#,
    ] {
        site.complete(members).refused(400, None, Some("prompt"));
    }
    let many = vec!["\"a\""; 129].join(",");
    site.complete(&format!("\"prompt\":[{many}]"))
        .refused(400, None, Some("prompt"));
    let few = vec!["\"a\""; 65].join(",");
    site.complete(&format!("\"prompt\":[{few}],\"n\":2"))
        .refused(400, None, Some("prompt"));
    site.complete(r#""prompt":"a","logprobs":6"#)
        .refused(400, None, Some("logprobs"));
    site.complete(r#""prompt":"a","best_of":1,"n":2"#)
        .refused(400, None, Some("best_of"));
    site.complete(r#""prompt":"a","suffix":"b""#).refused(
        400,
        Some("unsupported_parameter"),
        Some("suffix"),
    );
    site.complete(r#""prompt":"a","stream":true,"prompt_logprobs":1"#)
        .refused(400, None, Some("prompt_logprobs"));
    assert!(site.log().requests.is_empty());
}

#[test]
fn an_empty_text_is_the_first_token_alone_where_the_model_has_one() {
    let setup = Setup {
        adds_bos: true,
        ..Setup::default()
    };
    let site = Site::new(
        setup,
        Box::new(|_, request| Reply::Events(said(&["a"], request))),
    );
    assert_eq!(site.complete(r#""prompt":"""#).status, 200);
    assert_eq!(site.request().prompt, [IM_START]);
}

#[test]
fn a_first_token_that_the_prompt_names_is_not_put_there_twice() {
    let setup = Setup {
        adds_bos: true,
        ..Setup::default()
    };
    let site = Site::new(
        setup,
        Box::new(|_, request| Reply::Events(said(&["a"], request))),
    );
    for (members, expected) in [
        (r#""prompt":"x""#, vec![IM_START, 120]),
        (r#""prompt":"<|im_start|>x""#, vec![IM_START, 120]),
        (r#""prompt":"x","add_special_tokens":false"#, vec![120]),
        (r#""prompt":[120]"#, vec![120]),
    ] {
        site.complete(members);
        let sent = site.log().requests.pop().map(|request| request.prompt);
        assert_eq!(sent, Some(expected), "{members}");
    }
}

#[test]
fn every_member_of_a_chat_reaches_the_engine() {
    let site = Site::answering(&["a"]);
    let members = r#""temperature":0.5,"top_p":0.9,"top_k":3,"min_p":0.1,"repetition_penalty":1.1,
        "frequency_penalty":0.2,"presence_penalty":0.3,"logit_bias":{"7":-100,"5":100},"seed":42,
        "stop":["END","\n"],"stop_token_ids":[9],"ignore_eos":true,"min_tokens":1,
        "max_completion_tokens":6,"max_tokens":5,"logprobs":true,"top_logprobs":4,
        "priority":-3,"cache_salt":"mine","prompt_logprobs":2,"user":"u","metadata":{},
        "store":false,"service_tier":"auto","unknown":[{}]"#;
    let answer = site.chat(members);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let request = site.request();
    let expected = SamplingParams {
        temperature: 0.5,
        top_k: 3,
        top_p: 0.9,
        min_p: 0.1,
        repetition_penalty: 1.1,
        frequency_penalty: 0.2,
        presence_penalty: 0.3,
        logit_bias: vec![(5, 100.0), (7, -100.0)],
        seed: 42,
        stop: vec!["END".to_owned(), "\n".to_owned()],
        stop_token_ids: vec![9],
        ignore_eos: true,
        min_tokens: 1,
        max_tokens: 6,
        logprobs: Some(4),
    };
    assert_eq!(request.sampling, expected);
    assert_eq!(request.priority, -3);
    assert_eq!(request.cache_salt.as_deref(), Some("mine"));
    assert_eq!(request.prompt_logprobs, Some(2));
    assert_eq!((request.tenant, request.deadline), (None, None));
}

#[test]
fn members_that_are_null_are_as_absent() {
    let site = Site::answering(&["a"]);
    let nulls = r#""max_tokens":null,"max_completion_tokens":null,"temperature":null,"top_p":null,
        "n":null,"stream":null,"stream_options":null,"stop":null,"seed":1,"logprobs":null,
        "top_logprobs":null,"logit_bias":null,"tools":null,"tool_choice":null,"model":null,
        "response_format":null,"user":null,"echo":null,"prompt_logprobs":null"#;
    assert_eq!(site.chat(nulls).status, 200);
    assert_eq!(site.chat(r#""seed":1"#).status, 200);
    let log = site.log();
    assert_eq!(log.requests[0].sampling, log.requests[1].sampling);
}

#[test]
fn answers_may_be_as_long_as_the_context_leaves() {
    let site = Site::answering(&["a"]);
    let asked = |site: &Site| site.log().requests.pop().map(|one| one.sampling.max_tokens);
    let context = CONTEXT as u32;
    site.chat("");
    assert_eq!(asked(&site), Some(context - NUM_CHAT_TOKENS));
    site.complete(r#""prompt":"x""#);
    assert_eq!(asked(&site), Some(16), "OpenAI's default");
    let near = "x".repeat(CONTEXT - 1);
    site.complete(&format!(r#""prompt":"{near}""#));
    assert_eq!(asked(&site), Some(1));
    site.complete(&format!(r#""prompt":"{near}","max_tokens":2"#))
        .refused(400, Some("context_length_exceeded"), Some("prompt"));
    let full = "x".repeat(CONTEXT);
    site.complete(&format!(r#""prompt":"{full}""#)).refused(
        400,
        Some("context_length_exceeded"),
        Some("prompt"),
    );
    let asks_all = format!(r#""max_tokens":{}"#, context - NUM_CHAT_TOKENS + 1);
    site.chat(&asks_all)
        .refused(400, Some("context_length_exceeded"), Some("messages"));
    assert!(site.log().requests.is_empty());
}

#[test]
fn a_pool_that_is_smaller_than_the_context_bounds_answers_too() {
    let setup = Setup {
        stats: EngineStats {
            num_blocks: 5,
            block_size: 16,
            ..EngineStats::default()
        },
        ..Setup::default()
    };
    let site = Site::new(
        setup,
        Box::new(|_, request| Reply::Events(said(&["a"], request))),
    );
    site.chat("");
    assert_eq!(site.request().sampling.max_tokens, 80 - NUM_CHAT_TOKENS);
}

#[test]
fn a_full_queue_says_when_to_come_again() {
    let site = Site::scripted(|index, request| {
        if index < 2 {
            return Reply::Events(said(&["a"], request));
        }
        Reply::Refuse(Refusal::QueueFull {
            num_waiting: 8,
            max_waiting: 8,
            retry_after: Duration::from_millis(2_500),
        })
    });
    assert_eq!(site.chat("").status, 200);
    // The first of its two is taken, and then given up.
    let answer = site.chat(r#""n":2,"stream":true"#);
    answer.refused(429, Some("queue_full"), None);
    assert!(answer.has_line("retry-after: 3"), "{}", answer.head);
    site.eventually("it is given up", |log| log.aborted.contains(&SequenceId(1)));
}

#[test]
fn an_engine_that_is_gone_is_a_503() {
    let site = Site::answering(&["a"]);
    site.engine.stop();
    let deadline = Instant::now() + Duration::from_secs(20);
    while site.chat("").status == 200 {
        assert!(Instant::now() < deadline, "it stops");
    }
    site.chat("").refused(503, Some("engine_stopped"), None);
    site.post("/v1/embeddings", r#"{"input":"a"}"#)
        .refused(503, Some("engine_stopped"), None);
}

#[test]
fn a_time_limit_is_a_deadline() {
    let setup = Setup {
        options: ApiOptions {
            time_limit: Some(Duration::from_mins(1)),
            ..ApiOptions::default()
        },
        ..Setup::default()
    };
    let site = Site::new(
        setup,
        Box::new(|_, request| Reply::Events(said(&["a"], request))),
    );
    let before = Instant::now();
    site.chat("");
    let deadline = site.request().deadline.expect("a deadline");
    assert!(deadline >= before + Duration::from_mins(1));
    assert!(deadline <= Instant::now() + Duration::from_mins(1));
}

#[test]
fn models_are_known_by_their_names() {
    let site = Site::answering(&["a"]);
    for (members, model) in [
        ("", "tiny"),
        (r#""model":"tiny""#, "tiny"),
        (r#""model":"org/tiny""#, "org/tiny"),
    ] {
        assert_eq!(site.chat(members).json()["model"], model);
    }
    for path in [
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/embeddings",
        "/tokenize",
    ] {
        site.post(path, r#"{"model":"gpt-4","prompt":"a","input":"a"}"#)
            .refused(404, Some("model_not_found"), Some("model"));
    }
    let setup = Setup {
        options: ApiOptions {
            any_model: true,
            ..ApiOptions::default()
        },
        ..Setup::default()
    };
    let site = Site::new(
        setup,
        Box::new(|_, request| Reply::Events(said(&["a"], request))),
    );
    assert_eq!(site.chat(r#""model":"gpt-4""#).json()["model"], "gpt-4");
}

#[test]
fn a_gateway_names_the_tenant() {
    let site = Site::answering(&["a"]);
    let lines = "Content-Type: application/json\r\nX-Gateway-Inference-Fairness-Id: team-7\r\n";
    site.call("POST", "/v1/chat/completions", lines, &chat_body(""));
    assert_eq!(site.request().tenant.as_deref(), Some("team-7"));
}

#[test]
fn a_large_request_is_prepared_like_a_small_one() {
    let site = Site::answering(&["a"]);
    let padding = " ".repeat(100_000);
    let answer = site.chat(&format!(r#""seed":1{padding}"#));
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(site.request().prompt.len(), NUM_CHAT_TOKENS as usize);
}
