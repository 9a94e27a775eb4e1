//! Forms at the demo's `/form`: both types, and every refusal by its status.

use serde_json::{Value, json};

use crate::support::client::Response;
use crate::support::server::Server;

const URLENCODED: &str = "application/x-www-form-urlencoded";
const MULTIPART: &str = "multipart/form-data; boundary=XX";

fn request(content_type: &str, body: &str) -> String {
    let length = body.len();
    let head = "POST /form HTTP/1.1\r\nHost: a\r\n";
    format!("{head}{content_type}Content-Length: {length}\r\n\r\n{body}")
}

fn post(server: &Server, content_type: &str, body: &str) -> Response {
    let line = format!("Content-Type: {content_type}\r\n");
    server.connect().ask(request(&line, body))
}

/// One part of a multipart body, without its end.
fn part(disposition: &str, data: &str) -> String {
    format!("--XX\r\nContent-Disposition: form-data; {disposition}\r\n\r\n{data}\r\n")
}

#[track_caller]
fn check_fields(response: &Response, expected: &Value) {
    assert_eq!(response.status, 200, "{}", response.text());
    assert_eq!(&response.json()["fields"], expected);
}

#[test]
fn urlencoded_fields_come_in_order() {
    let server = Server::start(&[]);
    let response = post(&server, URLENCODED, "b=2&a=1+%C3%A9&b=%33&empty");
    let expected = json!([
        {"name": "b", "value": "2"},
        {"name": "a", "value": "1 \u{e9}"},
        {"name": "b", "value": "3"},
        {"name": "empty", "value": ""},
    ]);
    check_fields(&response, &expected);
    let with_charset = format!("{}; charset=utf-8", URLENCODED.to_uppercase());
    check_fields(&post(&server, &with_charset, ""), &json!([]));
}

#[test]
fn multipart_fields_and_files_come_in_order() {
    let server = Server::start(&[]);
    let body = [
        &part("name=\"note\"", "two\r\nlines"),
        "--XX\r\nContent-Disposition: form-data; name=\"f\"; filename=\"../x.bin\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n",
        &"x".repeat(1_000_000),
        "\r\n",
        &part("name=\"f\"; filename=\"\"", ""),
        "--XX--\r\n",
    ]
    .concat();
    let expected = json!([
        {"name": "note", "value": "two\r\nlines"},
        {
            "name": "f", "filename": "x.bin",
            "content_type": "application/octet-stream", "length": 1_000_000,
        },
        {"name": "f", "filename": "", "content_type": null, "length": 0},
    ]);
    check_fields(&post(&server, MULTIPART, &body), &expected);
    let quoted = "Multipart/Form-Data; charset=utf-8; boundary=\"XX\"";
    check_fields(&post(&server, quoted, &body), &expected);
}

#[test]
fn a_refused_form_says_why_and_harms_nobody() {
    let server = Server::start(&[]);
    let ok = part("name=a", "1") + "--XX--";
    let long = format!("multipart/form-data; boundary={}", "b".repeat(71));
    let longest = format!("multipart/form-data; boundary={}", "b".repeat(70));
    for (content_type, body, status) in [
        ("text/plain", "a=b", 415),
        ("application/json", "{}", 415),
        ("multipart/mixed; boundary=XX", &ok[..], 415),
        ("multipart/form-data", &ok, 400),
        ("multipart/form-data; boundary=", &ok, 400),
        ("multipart/form-data; boundary=\"\"", &ok, 400),
        ("multipart/form-data; boundary=XX; boundary=XX", &ok, 400),
        ("multipart/form-data; boundary=\"X@\"", &ok, 400),
        ("multipart/form-data; boundary=\"XX \"", &ok, 400),
        ("multipart/form-data; boundary=\"XX", &ok, 400),
        (&long, &ok, 400),
        (&longest, &ok, 400),
        ("multipart/form-data; boundary=YY", &ok, 400),
        (MULTIPART, "", 400),
        (MULTIPART, &ok[..ok.len() - 1], 400),
        (MULTIPART, &part("filename=a", ""), 400),
    ] {
        let response = post(&server, content_type, body);
        assert_eq!(
            response.status,
            status,
            "{content_type}: {}",
            response.text()
        );
        let problem = response.header("content-type");
        assert_eq!(problem, Some("application/problem+json"), "{content_type}");
    }
    let untyped = server.connect().ask(request("", "a=b"));
    assert_eq!(untyped.status, 415);
    let twice = format!("Content-Type: {URLENCODED}\r\n").repeat(2);
    assert_eq!(server.connect().ask(request(&twice, "a=b")).status, 415);
    check_fields(
        &post(&server, MULTIPART, &ok),
        &json!([{"name": "a", "value": "1"}]),
    );
}

/// Each limit is the operator's, has its name in the answer and its counter.
#[test]
fn a_form_over_a_limit_is_413_and_counted() {
    let server = Server::start(&[
        "--limit-form-fields",
        "3",
        "--limit-form-field",
        "10",
        "--limit-form-file",
        "20",
        "--limit-form-header",
        "100",
    ]);
    let file = |length: usize| part("name=f; filename=x", &"1".repeat(length)) + "--XX--";
    let field = |length: usize| part("name=f", &"1".repeat(length)) + "--XX--";
    let header = part(&format!("name={}", "n".repeat(100)), "") + "--XX--";
    let many = part("name=f", "1").repeat(4) + "--XX--";
    for (content_type, body, limit) in [
        (URLENCODED, "a=1&b=2&c=3&d=4".to_owned(), "form_fields"),
        (URLENCODED, "a=12345678901".to_owned(), "form_field"),
        (URLENCODED, "12345678901".to_owned(), "form_field"),
        (MULTIPART, many, "form_fields"),
        (MULTIPART, field(11), "form_field"),
        (MULTIPART, file(21), "form_file"),
        (MULTIPART, header, "form_header"),
    ] {
        let response = post(&server, content_type, &body);
        let problem = response.json();
        assert_eq!(response.status, 413, "{limit}: {problem}");
        assert_eq!(
            problem["limit"],
            format!("server.limits.{limit}"),
            "{problem}"
        );
    }
    for body in [field(10), file(20)] {
        assert_eq!(post(&server, MULTIPART, &body).status, 200, "{body}");
    }
    let metrics = server.get("/metrics").text();
    for (reason, count) in [
        ("form_fields", 2),
        ("form_field", 3),
        ("form_file", 1),
        ("form_header", 1),
        ("body", 0),
    ] {
        let line = format!("justapi_rejected_total{{reason=\"{reason}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line}");
    }
}
