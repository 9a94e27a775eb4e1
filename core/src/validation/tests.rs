//! Requests against routes with schemas, without a socket.

use std::future::Future as _;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use http::{HeaderValue, Method, StatusCode, header};
use http_body::Body as _;
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};

use super::*;
use crate::body::Body;
use crate::error::Error;
use crate::handler::{FutureSlot, Handler};
use crate::limits::{
    MAX_LISTED_DOCUMENT_BYTES, MAX_QUERY_PARAMETERS, MAX_VALIDATION_ERRORS,
    MAX_VALIDATION_TEXT_BYTES,
};
use crate::request::Request;
use crate::response::{Json, Response};
use crate::router::Router;

/// What the handler answers, a body that is there and polled at most thrice.
fn answer(handler: &impl Handler, request: Request) -> Response {
    let mut slot = FutureSlot::new();
    let mut cx = Context::from_waker(Waker::noop());
    handler.call(request, &mut slot).unwrap_or_else(|| {
        let Poll::Ready(response) = slot.poll(&mut cx) else {
            panic!("nothing is left to wait for");
        };
        response
    })
}

fn json_of(response: Response) -> Value {
    let mut body = response.into_body();
    let mut cx = Context::from_waker(Waker::noop());
    let mut bytes = Vec::new();
    while let Poll::Ready(Some(frame)) = Pin::new(&mut body).poll_frame(&mut cx) {
        bytes.extend_from_slice(&frame.unwrap().into_data().unwrap());
    }
    serde_json::from_slice(&bytes).unwrap()
}

fn post(content_type: &'static str, body: impl Into<Body>) -> Request {
    post_to("/", content_type, body)
}

fn post_to(target: &str, content_type: &'static str, body: impl Into<Body>) -> Request {
    let mut request = Request::new(Method::POST, target.parse().unwrap(), body);
    let value = HeaderValue::from_static(content_type);
    request.headers_mut().insert(header::CONTENT_TYPE, value);
    request
}

fn echo(schema: Value) -> impl Handler {
    validated()
        .body(Schema::new(schema))
        .inline(|accepted: Accepted<Value, ()>| Json(accepted.body))
}

/// Posts a JSON text to a route with this schema.
fn check(schema: Value, body: &str) -> (u16, Value) {
    let response = answer(&echo(schema), post("application/json", body.to_owned()));
    (response.status().as_u16(), json_of(response))
}

/// The object that a query becomes.
fn coerced(schema: Value, query: &str) -> (u16, Value) {
    let handler = validated()
        .query(Schema::new(schema))
        .inline(|accepted: Accepted<(), Value>| Json(accepted.query));
    let target = format!("/?{query}").parse().unwrap();
    let response = answer(&handler, Request::new(Method::GET, target, Body::empty()));
    (response.status().as_u16(), json_of(response))
}

#[test]
fn a_valid_document_reaches_the_handler() {
    let document = json!({"a": [1, 2.5, null, {"b": "c"}]});
    let (status, body) = check(json!({"type": "object"}), &document.to_string());
    assert_eq!((status, body), (200, document));
}

#[test]
fn each_error_has_two_pointers_and_a_message_without_the_value() {
    let schema = json!({
        "type": "object",
        "properties": {"age": {"type": "integer", "minimum": 0}, "a/b": {"type": "string"}},
        "required": ["name"],
    });
    let (status, body) = check(schema, r#"{"age": -98765, "a/b": 1}"#);
    assert_eq!(status, 422);
    assert_eq!(body["title"], "Unprocessable Entity");
    let errors = body["errors"].as_array().unwrap();
    let find = |path: &str| {
        errors
            .iter()
            .find(|error| error["instance_path"] == path)
            .unwrap()
    };
    assert_eq!(errors.len(), 3);
    assert_eq!(find("/age")["schema_path"], "/properties/age/minimum");
    assert_eq!(find("/a~1b")["schema_path"], "/properties/a~1b/type");
    assert_eq!(find("")["message"], r#""name" is a required property"#);
    assert!(!body.to_string().contains("98765"), "{body}");
}

/// Posts to a route whose query and body have schemas.
fn check_both(target: &str, content_type: &'static str, body: impl Into<Body>) -> (u16, Value) {
    let query = json!({
        "properties": {"page": {"type": "integer", "minimum": 1}, "q": {"type": "string"}},
        "required": ["q"],
    });
    let body_schema = json!({"type": "object", "properties": {"age": {"type": "integer"}}});
    let handler = validated()
        .query(Schema::new(query))
        .body(Schema::new(body_schema))
        .inline(|accepted: Accepted<Value, Value>| Json(json!([accepted.query, accepted.body])));
    let response = answer(&handler, post_to(target, content_type, body));
    (response.status().as_u16(), json_of(response))
}

#[test]
fn a_wrong_query_and_a_wrong_body_are_one_answer() {
    let json = "application/json";
    let places = |body: &Value| -> Vec<String> {
        let errors = body["errors"].as_array().unwrap();
        let place = |error: &Value| {
            let text = |name: &str| error[name].as_str().unwrap().to_owned();
            text("in") + " " + &text("instance_path")
        };
        errors.iter().map(place).collect()
    };
    let (status, body) = check_both("/?page=0", json, r#"{"age": "old"}"#);
    assert_eq!(status, 422, "{body}");
    let mut found = places(&body);
    found.sort();
    assert_eq!(found, ["body /age", "query ", "query /page"]);
    let detail = body["detail"].as_str().unwrap();
    assert!(
        detail.contains("the query") && detail.contains("the body"),
        "{detail}"
    );
    // However the body comes.
    let (sender, stream) = Body::channel(8);
    let mut cx = Context::from_waker(Waker::noop());
    let send = pin!(sender.send(r#"{"age": "old"}"#)).poll(&mut cx);
    assert!(send.is_ready());
    drop(sender);
    assert_eq!(check_both("/?page=0", json, stream), (status, body));

    let (status, body) = check_both("/?q=a&page=0", json, r#"{"age": 1}"#);
    assert_eq!(
        (status, places(&body)),
        (422, vec!["query /page".to_owned()])
    );
    let (status, body) = check_both("/?q=a", json, "[]");
    assert_eq!((status, places(&body)), (422, vec!["body ".to_owned()]));
    let (status, body) = check_both("/?q=a&page=2", json, r#"{"age": 1}"#);
    assert_eq!(
        (status, body),
        (200, json!([{"q": "a", "page": 2}, {"age": 1}]))
    );
    // Where the body is no document, the query is what can be said in detail.
    for (content_type, text) in [(json, "{"), (json, ""), ("text/plain", "{}")] {
        let (status, body) = check_both("/?q=a&page=0", content_type, text);
        assert_eq!(
            (status, places(&body)),
            (422, vec!["query /page".to_owned()])
        );
    }
    assert_eq!(check_both("/?q=a", json, "{").0, 400);
    assert_eq!(check_both("/?q=a", "text/plain", "{}").0, 415);
    assert_eq!(check_both("/?q=%ff", json, "[]").0, 400);
}

#[test]
fn types_that_refuse_both_places_say_so_of_both() {
    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only its type is of interest")]
    struct Age {
        age: u8,
    }
    let handler = validated()
        .query(Schema::new(json!(true)))
        .body(Schema::new(json!(true)))
        .inline(|_: Accepted<Json<Age>, Json<Age>>| "accepted");
    let request = post_to("/?age=x", "application/json", r#"{"age": 300}"#);
    let response = answer(&handler, request);
    assert_eq!(response.status(), 422);
    let body = json_of(response);
    let places: Vec<_> = body["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| &error["in"])
        .collect();
    assert_eq!(places, ["query", "body"], "{body}");
}

#[test]
fn a_body_that_is_too_deep_names_the_limit() {
    let (status, body) = check(json!(true), &"[".repeat(5_000));
    assert_eq!(
        (status, &body["limit"], &body["limit_value"]),
        (400, &json!("json_depth"), &json!(128))
    );
    let (status, body) = check(json!(true), "[");
    assert_eq!((status, body.get("limit")), (400, None));
}

#[test]
fn errors_are_bounded_in_number_and_length() {
    let schema = json!({"items": {"type": "string"}});
    let ones = |count: usize| format!("[{}]", vec!["1"; count].join(","));
    let (status, body) = check(schema.clone(), &ones(MAX_VALIDATION_ERRORS));
    assert_eq!(status, 422);
    assert_eq!(
        body["errors"].as_array().unwrap().len(),
        MAX_VALIDATION_ERRORS
    );
    assert_eq!(body.get("num_more_errors"), None);
    let (_, body) = check(schema.clone(), &ones(MAX_VALIDATION_ERRORS + 7));
    assert_eq!(
        body["errors"].as_array().unwrap().len(),
        MAX_VALIDATION_ERRORS
    );
    assert_eq!(body["num_more_errors"], 7);
    let (_, body) = check(schema, &ones(MAX_LISTED_DOCUMENT_BYTES));
    assert_eq!(body["errors"].as_array().unwrap().len(), 1);
    assert!(body["detail"].as_str().unwrap().contains("only the first"));
    let long = format!(r#"{{"{}": 1}}"#, "ü".repeat(2 * MAX_VALIDATION_TEXT_BYTES));
    let (_, body) = check(
        json!({"properties": {"a": true}, "additionalProperties": false}),
        &long,
    );
    let message = body["errors"][0]["message"].as_str().unwrap();
    assert!(message.len() <= MAX_VALIDATION_TEXT_BYTES + '…'.len_utf8());
    assert!(message.ends_with('…'), "{message}");
}

#[test]
fn what_is_not_json_is_told_where_it_breaks() {
    let schema = json!(true);
    for (text, line, column) in [
        ("", 1, 0),
        ("{\n  \"a\": }", 2, 8),
        ("[1,]", 1, 4),
        ("{} x", 1, 4),
        ("1e999", 1, 5),
        ("\"\\ud800\"", 1, 8),
        ("\"\u{1}\"", 1, 2),
        ("NaN", 1, 1),
    ] {
        let (status, body) = check(schema.clone(), text);
        assert_eq!(status, 400, "{text:?} {body}");
        assert_eq!(
            (&body["line"], &body["column"]),
            (&json!(line), &json!(column)),
            "{text:?}"
        );
    }
    let response = answer(
        &echo(schema),
        post("application/json", b"\"\xff\"".as_slice()),
    );
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
}

#[test]
fn depth_costs_nothing() {
    let (status, body) = check(json!(true), &"[".repeat(1_000_000));
    assert_eq!((status, &body["column"]), (400, &json!(128)), "{body}");
    let (status, _) = check(json!(true), &r#"{"a":"#.repeat(100_000));
    assert_eq!(status, 400);
    let nested = format!("{}{}", "[".repeat(127), "]".repeat(127));
    let (status, body) = check(json!({"items": {"$ref": "#"}, "maxItems": 1}), &nested);
    assert_eq!(status, 200, "{body}");
}

#[test]
fn other_media_types_are_refused_before_the_body_is_read() {
    for content_type in ["text/plain", "application/x-www-form-urlencoded"] {
        let (sender, body) = Body::channel(1);
        let response = answer(&echo(json!(true)), post(content_type, body));
        assert_eq!(response.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
        assert_eq!(response.headers()[header::ACCEPT], "application/json");
        drop(sender);
    }
}

#[test]
fn a_body_may_arrive_after_its_head() {
    let handler = validated()
        .body(Schema::new(json!({"type": "array"})))
        .handle(async |accepted: Accepted| Json(accepted.body));
    for (parts, expected) in [
        (["[1,", "2]"], 200),
        (["[1,", "2}"], 400),
        (["{", "}"], 422),
    ] {
        let (sender, body) = Body::channel(4);
        let mut cx = Context::from_waker(Waker::noop());
        let mut slot = FutureSlot::new();
        let called = handler.call(post("application/json", body), &mut slot);
        assert!(called.is_none());
        for part in parts {
            assert!(slot.poll(&mut cx).is_pending());
            let mut send = std::pin::pin!(sender.send(part));
            assert!(send.as_mut().poll(&mut cx).is_ready());
        }
        drop(sender);
        let Poll::Ready(response) = slot.poll(&mut cx) else {
            panic!("the body is complete");
        };
        assert_eq!(response.status().as_u16(), expected, "{parts:?}");
    }
}

/// Who waits for `100 Continue` is not asked for a body that is refused for
/// its query, and whoever has begun to send it gets both places in one answer.
#[test]
fn a_wrong_query_is_told_before_a_body_that_waits_to_be_wanted() {
    let handler = validated()
        .query(Schema::new(json!({"required": ["q"]})))
        .body(Schema::new(json!({"type": "array"})))
        .inline(|accepted: Accepted<Value, Value>| Json(accepted.body));
    for (target, expects, part, expected) in [
        ("/", true, "", Some(422)),
        ("/", true, "[", None),
        ("/", false, "", None),
        ("/?q=a", true, "", None),
    ] {
        let (sender, body) = Body::channel(4);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(pin!(sender.send(part)).poll(&mut cx).is_ready());
        let mut request = post_to(target, "application/json", body);
        if expects {
            let value = HeaderValue::from_static("100-continue");
            request.headers_mut().insert(header::EXPECT, value);
        }
        let mut slot = FutureSlot::new();
        let called = handler.call(request, &mut slot);
        let status = called.map(|response| response.status().as_u16());
        assert_eq!(status, expected, "{target} {expects} {part}");
        drop(sender);
    }
}

#[test]
fn typed_handlers_get_their_type_or_422() {
    #[derive(Deserialize)]
    struct User {
        age: u8,
    }
    let handler = validated()
        .body(Schema::new(json!({"required": ["age"]})))
        .inline(|accepted: Accepted<Json<User>, ()>| Json(accepted.body.0.age));
    let ask = |body: &'static str| answer(&handler, post("application/json", body));
    assert_eq!(json_of(ask(r#"{"age": 7}"#)), json!(7));
    let refused = ask(r#"{"age": 300}"#);
    assert_eq!(refused.status(), StatusCode::UNPROCESSABLE_ENTITY);
    assert!(
        json_of(refused)["errors"][0]["message"]
            .as_str()
            .unwrap()
            .contains("u8")
    );
}

#[test]
fn of_members_of_one_name_the_last_is_checked_and_handed_over() {
    #[derive(Deserialize)]
    struct User {
        age: u8,
    }
    let schema = || Schema::new(json!({"properties": {"age": {"maximum": 10}}}));
    let typed = validated()
        .body(schema())
        .inline(|accepted: Accepted<Json<User>, ()>| Json(accepted.body.0.age));
    let whole = validated()
        .body(schema())
        .inline(|accepted: Accepted<Value, ()>| Json(accepted.body["age"].clone()));
    for (body, expected) in [
        (r#"{"age": 7}"#, Some(7)),
        (r#"{"age": 70, "age": 7}"#, Some(7)),
        (r#"{"age": 7, "\u0061ge": 70}"#, None),
    ] {
        for response in [
            answer(&typed, post("application/json", body)),
            answer(&whole, post("application/json", body)),
        ] {
            match expected {
                Some(age) => assert_eq!(json_of(response), json!(age), "{body}"),
                None => assert_eq!(response.status(), 422, "{body}"),
            }
        }
    }
}

/// Parameters of every type, and types found in every way.
fn parameters_of_all_types() -> Value {
    json!({
        "$defs": {"page": {"allOf": [{"$ref": "#/$defs/count"}, {"minimum": 1}]},
                  "count": {"type": "integer"}},
        "properties": {
            "q": {"type": "string"},
            "page": {"$ref": "#/$defs/page"},
            "price": {"type": "number"},
            "exact": {"type": "boolean"},
            "none": {"type": ["null", "string"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "ids": {"type": "array", "items": {"type": "integer"}},
            "either": {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "string"}}]},
            "level": {"enum": [1, 2, "max"]},
            "pair": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "boolean"}]},
        },
        "additionalProperties": {"type": "number"},
    })
}

#[test]
fn texts_become_what_the_schema_says() {
    for (query, expected) in [
        ("", json!({})),
        ("&&", json!({})),
        ("q=30", json!({"q": "30"})),
        ("q", json!({"q": ""})),
        ("q=a+b%2Bc%26&q=", json!(null)),
        ("q=a+b%2Bc%26", json!({"q": "a b+c&"})),
        ("q=100%", json!({"q": "100%"})),
        ("page=30", json!({"page": 30})),
        ("page=2.0", json!({"page": 2.0})),
        ("price=-1.5e3", json!({"price": -1500.0})),
        ("exact=true", json!({"exact": true})),
        ("none=null", json!({"none": null})),
        ("none=nil", json!({"none": "nil"})),
        ("tags=1", json!({"tags": ["1"]})),
        ("tags=1&q=x&tags=b", json!({"tags": ["1", "b"], "q": "x"})),
        ("ids=1&ids=2", json!({"ids": [1, 2]})),
        ("either=7", json!({"either": 7})),
        ("either=7&either=1e2", json!({"either": ["7", "1e2"]})),
        ("level=2", json!({"level": 2})),
        ("level=max", json!({"level": "max"})),
        ("pair=1&pair=true", json!({"pair": [1, true]})),
        ("other=1", json!({"other": 1})),
        ("%74ags=x", json!({"tags": ["x"]})),
    ] {
        let (status, value) = coerced(parameters_of_all_types(), query);
        if expected.is_null() {
            assert_eq!(status, 422, "{query} {value}");
        } else {
            assert_eq!((status, value), (200, expected), "{query}");
        }
    }
}

#[test]
fn a_text_that_does_not_become_its_type_is_refused_by_name() {
    for query in [
        "page=x",
        "page=0",
        "page=007",
        "page=1_0",
        "page=%201",
        "page=",
        "page=1&page=2",
        "price=NaN",
        "price=.5",
        "exact=1",
        "exact=True",
        "ids=1&ids=x",
        "other=x",
        "level=3",
    ] {
        let (status, body) = coerced(parameters_of_all_types(), query);
        assert_eq!(status, 422, "{query} {body}");
        let name = query.split('=').next().unwrap();
        let path = body["errors"][0]["instance_path"].as_str().unwrap();
        assert!(path.starts_with(&format!("/{name}")), "{query} {path}");
    }
    let (status, body) = coerced(parameters_of_all_types(), "q=%ff");
    assert_eq!(status, 400, "{body}");
}

#[test]
fn a_query_has_a_bounded_number_of_parameters() {
    let query = |count: usize| vec!["a=1"; count].join("&");
    assert_eq!(coerced(json!(true), &query(MAX_QUERY_PARAMETERS)).0, 200);
    assert_eq!(
        coerced(json!(true), &query(MAX_QUERY_PARAMETERS + 1)).0,
        400
    );
}

#[test]
fn circles_of_references_end() {
    let schema = json!({
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "integer"}, {"$ref": "#/$defs/b"}]}},
        "properties": {"x": {"$ref": "#/$defs/b"}},
        "allOf": [{"properties": {"y": {"type": "integer"}}}],
    });
    let plan = query::QueryPlan::new(&Schema::new(schema));
    assert_eq!(plan.read("x=1&y=2").unwrap(), json!({"x": 1, "y": 2}));
}

#[track_caller]
fn refused(schema: Schema, expected: &str) {
    let handler = validated().body(schema).inline(|_: Accepted| "");
    let error = Router::new().post("/users/{id}", handler).unwrap_err();
    assert!(matches!(error, Error::RouteSchema { .. }));
    let text = error.to_string();
    assert!(
        text.starts_with("route POST /users/{id}: body schema"),
        "{text}"
    );
    assert!(text.contains(expected), "{text}");
}

#[test]
fn a_bad_schema_is_an_error_of_its_route() {
    let property = |schema: Value| Schema::new(json!({"properties": {"age": schema}}));
    refused(
        property(json!({"type": "intger"})),
        "at /properties/age/type",
    );
    refused(
        property(json!({"minimum": "1"})),
        "at /properties/age/minimum",
    );
    refused(Schema::new(json!(7)), "");
    refused(property(json!({"$ref": "#/$defs/none"})), "/$defs/none");
    for uri in [
        "http://127.0.0.1:9/x.json",
        "file:///etc/passwd",
        "other.json",
    ] {
        refused(property(json!({"$ref": uri})), uri);
        refused(Schema::new(json!({"$schema": uri})), "");
    }
    refused(property(json!({"pattern": "("})), "pattern");
    refused(property(json!({"pattern": "(?=a)b"})), "pattern");
    refused(
        property(json!({"pattern": "(a{1000}){1000}{1000}"})),
        "pattern",
    );
    let mut deep = json!({});
    for _ in 0..200 {
        deep = json!({"not": deep});
    }
    refused(Schema::new(deep), "levels deep");
}

#[test]
fn resources_are_found_by_their_uri() {
    let schema = Schema::new(json!({"$ref": "https://example.com/a.json#/$defs/x"}))
        .with_resource(
            "https://example.com/a.json",
            json!({"$defs": {"x": {"$ref": "b.json"}}}),
        )
        .with_resource("https://example.com/b.json", json!({"type": "integer"}));
    let handler = validated().body(schema).inline(|_: Accepted| "fine");
    assert_eq!(
        answer(&handler, post("application/json", "1")).status(),
        200
    );
    assert_eq!(
        answer(&handler, post("application/json", "\"\"")).status(),
        422
    );
}

#[test]
fn formats_are_notes_unless_asserted() {
    let schema = || Schema::new(json!({"format": "email"}));
    for (schema, expected) in [(schema(), 200), (schema().assert_formats(), 422)] {
        let handler = validated().body(schema).inline(|_: Accepted| "fine");
        let response = answer(&handler, post("application/json", "\"nobody\""));
        assert_eq!(response.status().as_u16(), expected);
    }
}

/// F13 of the fault table: the classic patterns, on texts that make them slow.
#[test]
fn patterns_end_soon() {
    let text = format!("\"{}b\"", "a".repeat(60_000));
    for pattern in ["^(a+)+$", "^(a|a)*$", "^(a*)*$", "^([a-z]+)*$"] {
        let (status, _) = check(json!({"pattern": pattern}), &text);
        let is_match = pattern.contains("a-z");
        assert_eq!(status, if is_match { 200 } else { 422 }, "{pattern}");
    }
    let schema = Schema::new(json!({"pattern": "^(?=(a+)+$)a"})).allow_backtracking(10_000);
    let handler = validated().body(schema).inline(|_: Accepted| "");
    assert_eq!(
        answer(&handler, post("application/json", text)).status(),
        422
    );
}

proptest! {
    /// What a client spells by the rules of forms is what the handler reads.
    #[test]
    fn encoded_pairs_are_read_as_they_were_meant(pairs in proptest::collection::btree_map("[a-z]{1,3}", "\\PC{0,8}", 0..5)) {
        let encode = |text: &str| {
            percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
        };
        let query: Vec<_> = pairs.iter().map(|(name, text)| format!("{name}={}", encode(text))).collect();
        let plan = query::QueryPlan::new(&Schema::new(json!(true)));
        prop_assert_eq!(plan.read(&query.join("&")).unwrap(), json!(pairs));
    }

    #[test]
    fn any_bytes_are_answered(body in proptest::collection::vec(any::<u8>(), 0..64)) {
        let expected = match serde_json::from_slice::<Value>(&body) {
            Err(_) => 400,
            Ok(Value::Object(_)) => 200,
            Ok(_) => 422,
        };
        let response = answer(&echo(json!({"type": "object"})), post("application/json", body));
        prop_assert_eq!(response.status().as_u16(), expected);
    }
}
