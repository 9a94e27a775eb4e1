//! One connection, many requests: persistence, HEAD, methods, early answers.
//!
//! Guarantee under test: after any answer the connection is either in step or
//! closed, and an answer is never lost to a reset.

use std::time::Duration;

use crate::support::Failures;
use crate::support::client::{Client, End, ReadError, Response, get, post};
use crate::support::server::Server;

/// The methods of an `Allow` header, sorted.
fn allowed(response: &Response) -> Vec<&str> {
    let value = response.header("allow").expect("Allow is there");
    let mut methods: Vec<_> = value.split(',').map(str::trim).collect();
    methods.sort_unstable();
    methods
}

fn is_closed(client: &mut Client) -> bool {
    client.read() == Err(ReadError::Nothing(End::Closed))
}

#[test]
fn a_connection_serves_many_requests() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    for index in 0..200 {
        let response = client.get(&format!("/anything/{index}"));
        assert_eq!(response.status, 200);
        assert!(response.text().contains(&format!("/anything/{index}\"")));
        assert_eq!(response.header("connection"), None);
    }
}

#[test]
fn connection_close_is_obeyed_and_confirmed() {
    let server = Server::start(&[]);
    for value in [
        "close",
        "Close",
        "CLOSE",
        "keep-alive, close",
        "close, foo",
        " close ",
    ] {
        let mut client = server.connect();
        let head = format!("GET /hello HTTP/1.1\r\nHost: a\r\nConnection: {value}\r\n\r\n");
        let response = client.ask(head);
        assert_eq!(response.header("connection"), Some("close"), "{value}");
        assert!(is_closed(&mut client), "{value}");
    }
}

#[test]
fn nothing_is_read_behind_a_request_that_closes() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let closing = "GET /anything/1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    client.send(closing.to_owned() + &get("/anything/2") + "junk\r\n\r\n");
    let response = client.read().unwrap();
    assert!(response.text().contains("/anything/1"), "{response:?}");
    assert_eq!(client.read_to_end(), (Vec::new(), End::Closed));
}

#[test]
fn http_1_0_is_kept_alive_only_on_demand_and_with_a_confirmation() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    for _ in 0..3 {
        let response = client.ask("GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        assert_eq!(response.status, 200);
        assert_eq!(response.header("connection"), Some("keep-alive"));
        assert!(response.header("content-length").is_some());
    }
    client.ask("GET /hello HTTP/1.0\r\nHost: a\r\n\r\n");
    assert!(is_closed(&mut client));
}

#[test]
fn ten_pipelined_requests_are_answered_in_order() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let requests: String = (0..10)
        .map(|index| get(&format!("/anything/{index}")))
        .collect();
    client.send(requests);
    for index in 0..10 {
        let response = client.read().unwrap();
        assert!(
            response.text().contains(&format!("/anything/{index}\"")),
            "{index}"
        );
    }
    assert_eq!(client.get("/hello").status, 200);
}

/// More than any buffer holds: the server must answer while it reads.
#[test]
fn a_thousand_pipelined_requests_are_answered() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let mut writer = client.stream().try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let request = post("/echo", &format!("\"{}\"", "a".repeat(5000)));
            std::io::Write::write_all(&mut writer, request.repeat(1000).as_bytes()).unwrap();
        });
        for index in 0..1000 {
            let response = client
                .read()
                .unwrap_or_else(|error| panic!("{index}: {error}"));
            assert_eq!((response.status, response.body.len()), (200, 5002));
        }
    });
}

#[test]
fn head_is_get_without_its_body() {
    let server = Server::start(&[]);
    for path in ["/hello", "/anything", "/health", "/metrics", "/nowhere"] {
        let mut client = server.connect();
        let head = client.ask(format!("HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        let full = client.get(path);
        assert_eq!(head.status, full.status, "{path}");
        let names = |response: &Response| {
            let mut names: Vec<_> = response
                .headers
                .iter()
                .map(|(name, _)| name.clone())
                .collect();
            names.sort_unstable();
            names
        };
        assert_eq!(names(&head), names(&full), "{path}");
        assert_eq!(
            head.header("content-type"),
            full.header("content-type"),
            "{path}"
        );
        let length = head.header("content-length").map(str::parse::<usize>);
        // /anything and /metrics may differ between two requests.
        if matches!(path, "/hello" | "/health" | "/nowhere") {
            assert_eq!(length, Some(Ok(full.body.len())), "{path}");
        }
        assert_eq!(client.get("/hello").status, 200, "in step after {path}");
    }
}

#[test]
fn a_wrong_method_is_405_with_every_right_one() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let response = client.ask("DELETE /hello HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(response.status, 405);
    assert_eq!(allowed(&response), ["GET", "HEAD", "OPTIONS"]);
    assert_eq!(
        response.header("content-type"),
        Some("application/problem+json")
    );
    let response = client.get("/echo");
    assert_eq!(response.status, 405);
    assert_eq!(allowed(&response), ["OPTIONS", "POST"]);
    let response = client.ask("HEAD /echo HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(response.status, 405);
    let response = client.ask("BREW /hello HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(response.status, 405);
    assert_eq!(client.get("/hello").status, 200);
}

#[test]
fn options_lists_the_methods_of_a_path() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    for (target, methods) in [
        ("/hello", Some(vec!["GET", "HEAD", "OPTIONS"])),
        ("/echo", Some(vec!["OPTIONS", "POST"])),
        ("*", None),
    ] {
        let response = client.ask(format!("OPTIONS {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(response.status, 204, "{target}");
        assert_eq!(response.header("content-length"), None, "{target}");
        assert_eq!(response.header("transfer-encoding"), None, "{target}");
        match methods {
            Some(methods) => assert_eq!(allowed(&response), methods, "{target}"),
            None => assert!(allowed(&response).contains(&"GET"), "{target}"),
        }
    }
    assert_eq!(
        client
            .ask("OPTIONS /nowhere HTTP/1.1\r\nHost: a\r\n\r\n")
            .status,
        404
    );
    assert_eq!(client.get("/hello").status, 200);
}

#[test]
fn errors_are_problem_documents_with_a_length() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    for (request, status) in [
        (get("/nowhere"), 404),
        (get("/echo"), 405),
        (post("/echo", "{"), 400),
        (post("/echo", "\u{fffd}{"), 400),
    ] {
        let response = client.ask(request);
        assert_eq!(response.status, status);
        assert_eq!(
            response.header("content-type"),
            Some("application/problem+json")
        );
        assert!(response.header("content-length").is_some(), "{response:?}");
        let problem = response.json();
        assert_eq!(problem["status"], status);
        assert!(
            problem["title"].is_string() && problem["type"].is_string(),
            "{problem}"
        );
    }
    assert_eq!(client.get("/hello").status, 200);
}

/// F18, H22: bodies that break parsers.
#[test]
fn hostile_json_is_4xx_and_the_server_goes_on() {
    let server = Server::start(&[]);
    let mut failures = Failures::default();
    for (name, body, statuses) in [
        ("100,000 arrays", "[".repeat(100_000), &[400u16, 422][..]),
        ("100,000 objects", "{\"a\":".repeat(100_000), &[400, 422]),
        (
            "closed arrays",
            "[".repeat(50_000) + &"]".repeat(50_000),
            &[400, 422],
        ),
        ("huge exponent", "1e9999999".to_owned(), &[200, 400, 422]),
        (
            "lone surrogate",
            "{\"a\":\"\\ud800\"}".to_owned(),
            &[200, 400, 422],
        ),
        (
            "duplicate keys",
            "{\"a\":1,\"a\":2}".to_owned(),
            &[200, 400, 422],
        ),
        ("empty", String::new(), &[400, 422]),
        ("two documents", "1 2".to_owned(), &[400, 422]),
        ("NaN", "NaN".to_owned(), &[400, 422]),
        ("byte order mark", "\u{feff}{}".to_owned(), &[200, 400, 422]),
    ] {
        let status = server.connect().ask(post("/echo", &body)).status;
        let is_due = statuses.contains(&status);
        failures.case(
            name,
            if is_due {
                Ok(())
            } else {
                Err(format!("{status}"))
            },
        );
    }
    let mut client = server.connect();
    client.send(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n\"\xff\xfe\"");
    assert_eq!(client.read().map(|response| response.status), Ok(400));
    failures.finish();
}

/// F4: the body of a refused request is read away or ends the connection.
#[test]
fn an_unread_body_never_becomes_a_request() {
    let server = Server::start(&[]);
    let mut failures = Failures::default();
    let smuggled = get("/anything/smuggled");
    for (name, line, length, status) in [
        ("404, small", "POST /nowhere", 1_000, 404),
        ("404, 1 MB", "POST /nowhere", 1_000_000, 404),
        ("405, small", "POST /hello", 1_000, 405),
        ("405, 1 MB", "POST /hello", 1_000_000, 405),
        ("413, 3 MB", "POST /echo", 3_000_000, 413),
        ("GET that ignores its body", "GET /hello", 1_000, 200),
        ("GET that ignores 1 MB", "GET /hello", 1_000_000, 200),
    ] {
        let body = smuggled.repeat(length / smuggled.len() + 1);
        let head = format!(
            "{line} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let request = head + &body;
        failures.case(name, in_step_or_closed(&server, &request, status));
    }
    failures.finish();
}

/// The answer, then either the next answer or a close; nothing else.
fn in_step_or_closed(server: &Server, request: &str, status: u16) -> Result<(), String> {
    let mut client = server.connect();
    client.send(request);
    client.send(get("/hello"));
    let response = client.read().map_err(|error| error.to_string())?;
    if response.status != status {
        return Err(format!(
            "answered {} {:?}",
            response.status,
            response.text()
        ));
    }
    match client.read() {
        Ok(next) if next.status == 200 && !next.text().contains("smuggled") => Ok(()),
        Err(ReadError::Nothing(End::Closed | End::Reset)) => Ok(()),
        other => Err(format!("then {other:?}")),
    }
}

/// RFC 9112 §9.6: close in two steps, or the answer dies with the reset.
#[test]
fn an_early_answer_survives_a_client_that_sends_all_first() {
    let server = Server::start(&[]);
    for _ in 0..20 {
        let mut client = server.connect();
        let body = "x".repeat(3_000_000);
        client.send(post("/echo", &body));
        assert_eq!(client.read().map(|response| response.status), Ok(413));
    }
}

#[test]
fn a_small_unread_body_keeps_the_connection() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    assert_eq!(client.ask(post("/nowhere", "hello")).status, 404);
    assert_eq!(client.ask(post("/hello", "hello")).status, 405);
    assert_eq!(client.get("/hello").status, 200);
}

#[test]
fn a_half_closed_client_still_gets_its_answers() {
    let server = Server::start(&[]);
    for requests in [
        vec![get("/hello")],
        vec![get("/hello"), get("/hello"), get("/hello")],
        vec![post("/echo", "[1]"), post("/anything", "abc")],
    ] {
        let mut client = server.connect();
        client.send(requests.concat());
        client.finish_writing();
        for request in &requests {
            let status = client.read().map(|response| response.status);
            assert_eq!(status, Ok(200), "{request}");
        }
        assert!(is_closed(&mut client));
    }
}

#[test]
fn a_client_that_closes_inside_a_request_gets_no_answer_but_a_close() {
    let server = Server::start(&[]);
    for part in ["GET /hel", "GET /hello HTTP/1.1\r\nHost: a\r\n", ""] {
        let mut client = server.connect();
        client.send(part);
        client.finish_writing();
        let (_, end) = client.read_to_end();
        assert_eq!(end, End::Closed, "{part:?}");
    }
    let mut client = server.connect();
    client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n[1]");
    client.finish_writing();
    let status = client.read().map(|response| response.status);
    assert!(
        matches!(status, Ok(400) | Err(ReadError::Nothing(End::Closed))),
        "{status:?}"
    );
}

/// H5: 100 only when somebody is going to read the body.
#[test]
fn continue_is_sent_when_the_body_is_wanted() {
    let server = Server::start(&[]);
    for path in ["/echo", "/anything"] {
        let mut client = server.connect();
        let head = "HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n";
        client.send(format!("POST {path} {head}"));
        let mut interim = [0; 25];
        std::io::Read::read_exact(client.stream(), &mut interim).expect(path);
        assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n", "{path}");
        assert_eq!(client.ask("[1]").status, 200, "{path}");
        assert_eq!(client.get("/hello").status, 200, "{path}");
    }
}

#[test]
fn continue_is_not_sent_when_the_answer_is_known() {
    let server = Server::start(&[]);
    for (line, length, status) in [
        ("POST /nowhere", 3, 404),
        ("POST /hello", 3, 405),
        ("POST /echo", 3_000_000, 413),
        ("GET /hello", 3, 200),
    ] {
        let mut client = server.connect();
        let response = client.ask(format!(
            "{line} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n"
        ));
        assert_eq!(response.status, status, "{line}");
        assert_eq!(response.interim, Vec::<u16>::new(), "{line}");
        // The body was never asked for, so nobody knows if it will come.
        assert_eq!(response.header("connection"), Some("close"), "{line}");
        assert!(is_closed(&mut client), "{line}");
    }
}

#[test]
fn an_expectation_without_a_body_changes_nothing() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    for length in ["", "Content-Length: 0\r\n"] {
        let head = "GET /hello HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n";
        let response = client.ask(format!("{head}{length}\r\n"));
        assert_eq!(
            (response.status, response.interim.len()),
            (200, 0),
            "{length}"
        );
    }
    assert_eq!(client.get("/hello").status, 200);
}

#[test]
fn a_body_sent_without_waiting_for_continue_is_read() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let response = client.ask(
        "POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: 3\r\n\r\n[1]",
    );
    assert_eq!(response.status, 200);
    assert_eq!(client.get("/hello").status, 200);
}

#[test]
fn an_unknown_expectation_is_417() {
    let server = Server::start(&[]);
    for value in ["200-ok", "100-continue, foo", "foo=bar"] {
        let mut client = server.connect();
        let response = client.ask(format!(
            "POST /echo HTTP/1.1\r\nHost: a\r\nExpect: {value}\r\nContent-Length: 3\r\n\r\n[1]"
        ));
        assert_eq!(response.status, 417, "{value}");
    }
}

/// RFC 9110 §10.1.1: an HTTP/1.0 client's expectation is ignored.
#[test]
fn http_1_0_never_gets_an_interim_answer() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let response = client.ask(
        "POST /echo HTTP/1.0\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n[1]",
    );
    assert_eq!((response.status, response.interim), (200, Vec::new()));
}

#[test]
fn answers_carry_a_date_and_a_length() {
    let server = Server::start(&[]);
    let response = server.get("/hello");
    let date = response.header("date").expect("Date is there");
    assert!(date.len() == 29 && date.ends_with(" GMT"), "{date}");
    let length = response.header("content-length").map(str::parse);
    assert_eq!(length, Some(Ok(response.body.len())));
}

#[test]
fn health_live_and_ready_are_answered() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    for path in ["/health", "/live", "/ready"] {
        assert_eq!(client.get(path).status, 200, "{path}");
    }
    server.answers_within(Duration::from_secs(1)).unwrap();
}
