//! Answers in one piece: their shapes, log-probabilities, several choices.

use super::*;

#[test]
fn a_chat_has_the_shape_of_openais() {
    let site = Site::answering(&["he", "llo"]);
    let expected = concat!(
        r#"{"id":"ID","object":"chat.completion","created":0,"model":"tiny","choices":[{"index":0,"#,
        r#""message":{"role":"assistant","content":"hello","refusal":null},"logprobs":null,"#,
        r#""finish_reason":"stop"}],"usage":{"prompt_tokens":21,"completion_tokens":2,"#,
        r#""total_tokens":23,"prompt_tokens_details":{"cached_tokens":2}}}"#,
    );
    assert_eq!(site.chat("").stable(), expected);
    assert_eq!(
        site.chat(r#""stream":false,"logprobs":false"#).stable(),
        expected
    );
}

#[test]
fn a_completion_has_the_shape_of_openais() {
    let site = Site::answering(&["he", "llo"]);
    let expected = concat!(
        r#"{"id":"ID","object":"text_completion","created":0,"model":"org/tiny","choices":[{"#,
        r#""index":0,"text":"hello","logprobs":null,"finish_reason":"stop"}],"usage":{"#,
        r#""prompt_tokens":2,"completion_tokens":2,"total_tokens":4,"#,
        r#""prompt_tokens_details":{"cached_tokens":2}}}"#,
    );
    let answer = site.complete(r#""prompt":"xy","model":"org/tiny""#);
    assert_eq!(answer.stable(), expected);
}

#[test]
fn ends_have_openais_words() {
    let reasons = [
        FinishReason::Stop,
        FinishReason::Length,
        FinishReason::Deadline,
    ];
    let site = Site::scripted(move |index, request| {
        Reply::Events(vec![finished(reasons[index], "", request, 0)])
    });
    for word in ["stop", "length", "length"] {
        assert_eq!(site.chat("").json()["choices"][0]["finish_reason"], word);
    }
}

#[test]
fn a_request_that_fails_is_an_error_and_no_answer() {
    let site = Site::scripted(|index, request| {
        let events = vec![token(97, "a")];
        match index {
            0 => Reply::Events(vec![finished(FinishReason::Failed, "", request, 0)]),
            1 => Reply::Events(vec![finished(FinishReason::Aborted, "", request, 0)]),
            _ => Reply::Die(events),
        }
    });
    site.chat("").refused(500, Some("engine_failed"), None);
    site.chat("").refused(503, Some("engine_stopped"), None);
    site.chat("").refused(500, Some("engine_failed"), None);
}

#[test]
fn choices_are_by_prompt_and_then_by_number_whatever_ends_first() {
    let site = Site::scripted(|index, request| {
        let text = ["a", "b", "c", "d"][index];
        Reply::Events(said(&[text], request))
    });
    let answer = site.complete(r#""prompt":["x","yy"],"n":2"#).json();
    for (index, text) in ["a", "b", "c", "d"].iter().enumerate() {
        assert_eq!(answer["choices"][index]["index"], index);
        assert_eq!(answer["choices"][index]["text"], *text);
    }
    // Each prompt once, each answer.
    assert_eq!(answer["usage"]["prompt_tokens"], 3);
    assert_eq!(answer["usage"]["completion_tokens"], 4);
    assert_eq!(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 4);
    let prompts: Vec<_> = site
        .log()
        .requests
        .iter()
        .map(|one| one.prompt.len())
        .collect();
    assert_eq!(prompts, [1, 1, 2, 2]);
}

#[test]
fn choices_of_a_prompt_have_seeds_of_their_own() {
    let site = Site::answering(&["a"]);
    let seeds = |site: &Site| -> Vec<u64> {
        let requests = std::mem::take(&mut site.log().requests);
        requests
            .iter()
            .map(|request| request.sampling.seed)
            .collect()
    };
    site.chat(r#""seed":7,"n":3"#);
    let first = seeds(&site);
    assert_eq!(first[0], 7);
    assert!(first[0] != first[1] && first[1] != first[2] && first[0] != first[2]);
    site.chat(r#""seed":7,"n":3"#);
    assert_eq!(seeds(&site), first);
    site.chat("");
    site.chat("");
    let unnamed = seeds(&site);
    assert_ne!(unnamed[0], unnamed[1]);
}

/// Answers with "é", each of its bytes a token, and an end that is none.
fn scripted_logprobs(_: usize, request: &EngineRequest) -> Reply {
    let mut events = Vec::new();
    if request.prompt_logprobs.is_some() {
        let mut logprobs = vec![None];
        for id in &request.prompt[1..] {
            logprobs.push(Some(likely(*id, -1.0, &[(98, -0.5)])));
        }
        events.push(EngineEvent::Prompt { logprobs });
    }
    if request.sampling.logprobs.is_some() {
        let with = |id, text: &str, logprobs| EngineEvent::Token {
            id,
            text: text.to_owned(),
            logprobs: Some(logprobs),
        };
        let lowest = f32::NEG_INFINITY;
        events.push(with(
            0xc3,
            "",
            likely(0xc3, -0.25, &[(0xc3, -0.25), (97, -1.5)]),
        ));
        events.push(with(0xa9, "é", likely(0xa9, lowest, &[(32, f32::NAN)])));
    }
    events.push(finished(FinishReason::Stop, "", request, 3));
    Reply::Events(events)
}

const CHAT_LOGPROBS: &str = concat!(
    r#"{"content":[{"token":"�","logprob":-0.25,"bytes":[195],"top_logprobs":["#,
    r#"{"token":"�","logprob":-0.25,"bytes":[195]},{"token":"a","logprob":-1.5,"bytes":[97]}]},"#,
    r#"{"token":"�","logprob":-9999.0,"bytes":[169],"top_logprobs":["#,
    r#"{"token":" ","logprob":-9999.0,"bytes":[32]}]}],"refusal":null}"#,
);

#[test]
fn chats_show_log_probabilities_with_bytes() {
    let site = Site::scripted(scripted_logprobs);
    let answer = site.chat(r#""logprobs":true,"top_logprobs":2"#);
    assert!(answer.body.contains(CHAT_LOGPROBS), "{}", answer.body);
    assert_eq!(site.request().sampling.logprobs, Some(2));
}

#[test]
fn chunks_of_chats_carry_the_log_probabilities_of_each_token() {
    let site = Site::scripted(scripted_logprobs);
    let chunks = site.chat(r#""stream":true,"logprobs":true"#).chunks();
    let bytes: Vec<_> = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["logprobs"]["content"].get(0))
        .map(|token| token["bytes"].clone())
        .collect();
    assert_eq!(bytes, [json!([0xc3]), json!([0xa9])]);
    assert_eq!(site.request().sampling.logprobs, Some(0));
}

#[test]
fn completions_show_log_probabilities_side_by_side() {
    let site = Site::scripted(scripted_logprobs);
    let answer = site.complete(r#""prompt":"ab","logprobs":2"#);
    let expected = concat!(
        r#""logprobs":{"tokens":["bytes:\\xc3","bytes:\\xa9"],"token_logprobs":[-0.25,-9999.0],"#,
        r#""top_logprobs":[{"bytes:\\xc3":-0.25,"a":-1.5},{" ":-9999.0,"bytes:\\xa9":-9999.0}],"#,
        r#""text_offset":[0,1]}"#,
    );
    assert!(answer.body.contains(expected), "{}", answer.body);
    assert_eq!(site.request().prompt_logprobs, None);
}

#[test]
fn an_echo_has_the_prompt_and_its_log_probabilities() {
    let site = Site::scripted(scripted_logprobs);
    let expected = concat!(
        r#""text":"xyé","logprobs":{"tokens":["x","y","bytes:\\xc3","bytes:\\xa9"],"#,
        r#""token_logprobs":[null,-1.0,-0.25,-9999.0],"top_logprobs":[null,{"b":-0.5,"y":-1.0},"#,
        r#"{"bytes:\\xc3":-0.25,"a":-1.5},{" ":-9999.0,"bytes:\\xa9":-9999.0}],"#,
        r#""text_offset":[0,1,2,3]}"#,
    );
    for _ in 0..2 {
        let answer = site.complete(r#""prompt":"xy","echo":true,"logprobs":1"#);
        assert!(answer.body.contains(expected), "{}", answer.body);
    }
    assert_eq!(site.log().requests[0].prompt_logprobs, Some(1));
}

#[test]
fn an_echo_streams_the_prompt_first() {
    let site = Site::scripted(scripted_logprobs);
    let members = r#""prompt":[120,121],"echo":true,"logprobs":1,"stream":true"#;
    let chunks = site.complete(members).chunks();
    let choice = &chunks[0]["choices"][0];
    assert_eq!(choice["text"], "xy");
    assert_eq!(choice["logprobs"]["tokens"], json!(["x", "y"]));
    let offsets: Vec<_> = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["logprobs"]["text_offset"].as_array())
        .flatten()
        .cloned()
        .collect();
    assert_eq!(offsets, [json!(0), json!(1), json!(2), json!(3)]);
}

#[test]
fn every_choice_of_a_stream_echoes_the_prompt_with_its_log_probabilities() {
    let site = Site::scripted(scripted_logprobs);
    let members = r#""prompt":"xy","echo":true,"logprobs":0,"stream":true,"n":2"#;
    let chunks = site.complete(members).chunks();
    for index in 0..2 {
        let first = chunks
            .iter()
            .map(|chunk| &chunk["choices"][0])
            .find(|choice| choice["index"] == index)
            .expect("a first chunk");
        assert_eq!(first["text"], "xy");
        assert_eq!(first["logprobs"]["token_logprobs"], json!([null, -1.0]));
    }
}

#[test]
fn each_member_shows_as_many_of_the_greatest_as_it_asks_for() {
    let site = Site::scripted(scripted_logprobs);
    let members = r#""prompt":"xy","echo":true,"logprobs":0,"prompt_logprobs":1"#;
    let choice = site.complete(members).json()["choices"][0].clone();
    assert_eq!(choice["logprobs"]["top_logprobs"][1], json!({"y":-1.0}));
    let shown = choice["prompt_logprobs"][1]
        .as_object()
        .map(serde_json::Map::len);
    assert_eq!(shown, Some(2));
    let members = r#""prompt":"xy","echo":true,"logprobs":1,"prompt_logprobs":0"#;
    let choice = site.complete(members).json()["choices"][0].clone();
    assert_eq!(
        choice["logprobs"]["top_logprobs"][1],
        json!({"b":-0.5,"y":-1.0})
    );
    let shown = choice["prompt_logprobs"][1]
        .as_object()
        .map(serde_json::Map::len);
    assert_eq!(shown, Some(1));
}

#[test]
fn an_echo_alone_generates_nothing() {
    let site = Site::answering(&["a"]);
    let answer = site
        .complete(r#""prompt":"xy","echo":true,"max_tokens":0"#)
        .json();
    assert_eq!(answer["choices"][0]["text"], "xy");
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert_eq!(answer["usage"]["completion_tokens"], 0);
    assert_eq!(
        site.request().sampling.max_tokens,
        1,
        "the engine always chooses one"
    );
    let members = r#""prompt":"xy","echo":true,"max_tokens":0,"stream":true"#;
    let chunks = site.complete(members).chunks();
    let texts: Vec<_> = chunks
        .iter()
        .map(|chunk| &chunk["choices"][0]["text"])
        .collect();
    assert_eq!(texts, ["xy", ""]);
    site.complete(r#""prompt":"xy","max_tokens":0"#)
        .refused(400, None, Some("max_tokens"));
}

#[test]
fn log_probabilities_of_a_prompt_have_vllms_shape() {
    let site = Site::scripted(scripted_logprobs);
    let expected = concat!(
        r#""prompt_logprobs":[null,{"98":{"logprob":-0.5,"rank":1,"decoded_token":"b"},"#,
        r#""121":{"logprob":-1.0,"rank":null,"decoded_token":"y"}}]"#,
    );
    let answer = site.complete(r#""prompt":"xy","prompt_logprobs":1"#);
    assert!(answer.body.contains(expected), "{}", answer.body);
    let chat = site.chat(r#""prompt_logprobs":1"#).json();
    assert_eq!(
        chat["prompt_logprobs"].as_array().map(Vec::len),
        Some(NUM_CHAT_TOKENS as usize)
    );
}

#[test]
fn a_first_token_of_the_models_own_is_not_in_the_echo() {
    let setup = Setup {
        adds_bos: true,
        ..Setup::default()
    };
    let site = Site::new(setup, Box::new(scripted_logprobs));
    let answer = site
        .complete(r#""prompt":"x","echo":true,"logprobs":0"#)
        .json();
    let choice = &answer["choices"][0];
    assert_eq!(choice["text"], "xé");
    assert_eq!(choice["logprobs"]["tokens"][0], "<|im_start|>");
    assert_eq!(choice["logprobs"]["text_offset"], json!([0, 0, 1, 2]));
    assert_eq!(site.request().prompt, [IM_START, 120]);
}
