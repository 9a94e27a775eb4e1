//! JSON Schema validation of bodies and queries, over the wire.

use serde_json::{Value, json};

use crate::support::client::{Client, Response, get, post};
use crate::support::server::Server;
use crate::support::{Failures, eventually};

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

fn user() -> Value {
    json!({
        "id": 7, "name": "Ada", "email": "ada@example.com", "active": true,
        "address": {"street": "Unter den Linden 5", "city": "Berlin", "zip": "10117",
                    "geo": {"lat": 52.52, "lng": 13.405}},
        "tags": ["admin"], "orders": [{"id": 1, "total": 12.5, "items": ["pen"]}],
    })
}

/// The user with the value at `pointer` replaced.
fn user_with(pointer: &str, value: Value) -> String {
    let mut user = user();
    *user.pointer_mut(pointer).expect("a member of the user") = value;
    user.to_string()
}

/// One error, at this place of the document and of the schema.
fn one_error(response: &Response, instance_path: &str, schema_path: &str) -> Result<(), String> {
    let body = response.json();
    let due = (422, Some("application/problem+json"));
    if (response.status, response.header("content-type")) != due || body["status"] != 422 {
        return Err(format!("no 422 problem: {response:?}"));
    }
    let errors = body["errors"].as_array().cloned().unwrap_or_default();
    match errors.as_slice() {
        [error]
            if error["instance_path"] == instance_path
                && error["schema_path"] == schema_path
                && error["message"]
                    .as_str()
                    .is_some_and(|text| !text.is_empty()) =>
        {
            Ok(())
        }
        errors => Err(format!("{errors:?}")),
    }
}

#[test]
fn each_broken_rule_of_a_body_is_one_error_with_its_place() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let answer = client.ask(post("/validate", &user().to_string()));
    assert_eq!(
        (answer.status, answer.json()),
        (200, json!({"valid": true}))
    );
    let mut failures = Failures::default();
    for (pointer, value, schema_path) in [
        ("/id", json!(0), "/properties/id/minimum"),
        ("/id", json!("7"), "/properties/id/type"),
        ("/name", json!(""), "/properties/name/minLength"),
        ("/email", json!("nobody"), "/properties/email/format"),
        ("/active", json!(1), "/properties/active/type"),
        (
            "/address/zip",
            json!("1011"),
            "/properties/address/properties/zip/pattern",
        ),
        (
            "/address/geo/lat",
            json!(91),
            "/properties/address/properties/geo/properties/lat/maximum",
        ),
        ("/tags", json!(["a", "a"]), "/properties/tags/uniqueItems"),
        (
            "/orders/0/total",
            json!(0),
            "/$defs/order/properties/total/exclusiveMinimum",
        ),
        (
            "/orders/0/items",
            json!([]),
            "/$defs/order/properties/items/minItems",
        ),
    ] {
        let answer = client.ask(post("/validate", &user_with(pointer, value)));
        failures.case(pointer, one_error(&answer, pointer, schema_path));
    }
    failures.finish();
    let answer = client.ask(post("/validate", r#"{"id": -1, "more": true}"#));
    let body = answer.json();
    let num_errors = body["errors"].as_array().map(Vec::len);
    assert_eq!((answer.status, num_errors), (422, Some(5)), "{body}");
}

#[test]
fn what_is_no_json_is_refused_by_name() {
    let server = Server::start(&["--limit-body", "64KiB"]);
    let mut client = server.connect();
    let with_type = |content_type: &str, body: &str| {
        let length = body.len();
        format!(
            "POST /validate HTTP/1.1\r\nHost: a\r\n{content_type}Content-Length: {length}\r\n\r\n{body}"
        )
    };
    let json = "Content-Type: application/json\r\n";
    for (content_type, body, status) in [
        ("", "{}", 415),
        ("Content-Type: text/plain\r\n", "{}", 415),
        (
            "Content-Type: application/json\r\nContent-Type: text/plain\r\n",
            "{}",
            415,
        ),
        (
            "Content-Type: application/vnd.a+json; charset=utf-8\r\n",
            "{}",
            422,
        ),
        (json, "", 400),
        (json, "{", 400),
        (json, "{} {}", 400),
        (json, &"[".repeat(60_000), 400),
        (json, &r#"{"a":"#.repeat(10_000), 400),
        (json, "1e9999999", 400),
        (json, "{}", 422),
    ] {
        let answer = client.ask(with_type(content_type, body));
        assert_eq!(answer.status, status, "{content_type:?} {answer:?}");
        assert_eq!(
            answer.header("content-type"),
            Some("application/problem+json")
        );
    }
    let answer = client.ask(with_type(json, "{\n\"id\": 1,\n}"));
    assert_eq!(
        (&answer.json()["line"], &answer.json()["column"]),
        (&json!(3), &json!(1))
    );
    let answer = client.ask(post("/validate", &"x".repeat(65 * 1024)));
    assert_eq!(answer.status, 413);
    let answer = server.connect().ask(get("/validate"));
    assert_eq!(
        (answer.status, answer.header("allow")),
        (405, Some("OPTIONS, POST"))
    );
}

#[test]
fn a_body_is_checked_however_it_arrives() {
    let server = Server::start(&[]);
    let (valid, invalid) = (user().to_string(), user_with("/id", json!(0)));
    let mut client = server.connect();
    for (body, status) in [(&valid, 200), (&invalid, 422)] {
        client.send(
            "POST /validate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\
             Transfer-Encoding: chunked\r\n\r\n",
        );
        for piece in body.as_bytes().chunks(7) {
            client.send([format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat());
        }
        client.send("0\r\n\r\n");
        assert_eq!(client.read().map(|answer| answer.status), Ok(status));
        let request = post("/validate", body);
        let (head, rest) = request.split_at(request.len() - 30);
        client.send(head);
        client.send(rest);
        assert_eq!(client.read().map(|answer| answer.status), Ok(status));
    }
}

#[test]
fn a_query_is_coerced_and_checked() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let mut failures = Failures::default();
    for (query, expected) in [
        ("q=tea", json!({"q": "tea"})),
        ("q=42", json!({"q": "42"})),
        ("q=a+b%26c&limit=30", json!({"q": "a b&c", "limit": 30})),
        ("q=a&tags=x", json!({"q": "a", "tags": ["x"]})),
        (
            "q=a&tags=1&tags=y&exact=true",
            json!({"q": "a", "tags": ["1", "y"], "exact": true}),
        ),
    ] {
        let answer = client.get(&format!("/search?{query}"));
        let found = (answer.status, answer.json());
        let is_due = found == (200, expected);
        failures.case(
            query,
            if is_due {
                Ok(())
            } else {
                Err(format!("{found:?}"))
            },
        );
    }
    for (query, instance_path, schema_path) in [
        ("", "", "/required"),
        ("q=", "/q", "/properties/q/minLength"),
        ("q=a&limit=x", "/limit", "/properties/limit/type"),
        ("q=a&limit=0", "/limit", "/properties/limit/minimum"),
        ("q=a&limit=1&limit=2", "/limit", "/properties/limit/type"),
        ("q=a&exact=yes", "/exact", "/properties/exact/type"),
        ("q=a&more=1", "", "/additionalProperties"),
    ] {
        let answer = client.get(&format!("/search?{query}"));
        failures.case(query, one_error(&answer, instance_path, schema_path));
    }
    failures.finish();
    assert_eq!(client.get("/search?q=%ff").status, 400);
    assert_eq!(client.get("/search").status, 422);
}

/// A refused giant costs the others nothing, and the next on its connection little.
#[test]
fn many_errors_keep_the_answer_and_the_server_small() {
    let server = Server::start(&[]);
    let before = resident_bytes(server.pid());
    let tags = vec![json!(1); 500_000];
    let body = user_with("/tags", json!(tags));
    for _ in 0..8 {
        let mut client = Client::connect(server.address());
        let answer = client.ask(post("/validate", &body));
        assert_eq!(answer.status, 422);
        assert!(answer.body.len() < 100_000, "{} bytes", answer.body.len());
    }
    let grown = eventually(PATIENCE, "memory given back", || {
        let grown = resident_bytes(server.pid()).saturating_sub(before);
        (grown < 64 * 1024 * 1024).then_some(grown)
    });
    assert!(grown < 64 * 1024 * 1024);
    assert_eq!(server.answers_within(PATIENCE), Ok(()));
}

fn resident_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a live process");
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .expect("a VmRSS line");
    let kib: u64 = line
        .split_whitespace()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .expect("KiB");
    kib * 1024
}
