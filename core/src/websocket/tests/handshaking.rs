//! The opening handshake as tables: RFC 6455 §4.2, RFC 7692 §7.1.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode, Uri};

use super::super::extension::{Deflate, negotiate};
use super::super::{ExtendedConnect, WebSocketUpgrade};
use crate::body::Body;
use crate::request::Request;
use crate::response::Response;
use crate::upgrade::OnUpgrade;

/// The request of RFC 6455 §1.3, with changes: `-name` removes a header,
/// `name: value` replaces it, `+name: value` adds one.
fn request(changes: &[&str]) -> Request {
    let mut request = Request::new(Method::GET, Uri::from_static("/chat"), Body::empty());
    let usual = [
        "host: server.example.com",
        "upgrade: websocket",
        "connection: Upgrade",
        "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
        "sec-websocket-version: 13",
    ];
    for change in usual.iter().chain(changes) {
        let headers = request.headers_mut();
        if let Some(name) = change.strip_prefix('-') {
            headers.remove(name);
            continue;
        }
        let (is_added, line) = match change.strip_prefix('+') {
            Some(line) => (true, line),
            None => (false, *change),
        };
        let (name, value) = line.split_once(": ").expect("name: value");
        let name = HeaderName::try_from(name).expect("a header name");
        let value = HeaderValue::from_bytes(value.as_bytes()).expect("a header value");
        if is_added {
            headers.append(name, value);
        } else {
            headers.insert(name, value);
        }
    }
    request
}

fn answer(upgrade: &WebSocketUpgrade, mut request: Request) -> Response {
    upgrade.accept(&mut request, |_socket| async {})
}

fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    let value = response.headers().get(name);
    value.map_or("", |value| value.to_str().expect("ASCII"))
}

#[test]
fn the_example_of_the_rfc_is_accepted() {
    let mut response = answer(&WebSocketUpgrade::new(), request(&[]));
    assert_eq!(response.status(), 101);
    assert_eq!(header(&response, "upgrade"), "websocket");
    assert_eq!(header(&response, "connection"), "upgrade");
    let accept = header(&response, "sec-websocket-accept");
    assert_eq!(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    assert!(OnUpgrade::take(response.extensions_mut()).is_some());
}

#[test]
fn each_broken_rule_has_its_answer() {
    let cases: &[(&[&str], u16)] = &[
        (&["connection: keep-alive, UPGRADE"], 101),
        (&["upgrade: h2c, WebSocket"], 101),
        (&["+connection: keep-alive"], 101),
        (&["-upgrade"], 426),
        (&["upgrade: h2c"], 426),
        (&["-connection"], 426),
        (&["connection: close"], 426),
        (&["-sec-websocket-version"], 426),
        (&["sec-websocket-version: 8"], 426),
        (&["sec-websocket-version: 13, 8"], 426),
        (&["+sec-websocket-version: 13"], 426),
        (&["-sec-websocket-key"], 400),
        (&["sec-websocket-key: "], 400),
        (&["sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ"], 400),
        (&["sec-websocket-key: dGhlIHNhbXBsZSBub25j"], 400),
        (&["sec-websocket-key: dGhlIHNhbXBsZSBub25jZTE3"], 400),
        (
            &["sec-websocket-key: dGhlIHNhbXBsZSBub25jZSBsb25nIGxvbmcgbG9uZw=="],
            400,
        ),
        (&["sec-websocket-key: ======================="], 400),
        (&["+sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ=="], 400),
        (&["sec-websocket-protocol: é"], 400),
        (&["sec-websocket-protocol: a b"], 400),
        (&["sec-websocket-protocol: a,,b"], 400),
        (&["sec-websocket-protocol: a, a"], 400),
        (&["sec-websocket-protocol: a, b"], 101),
        (&["sec-websocket-extensions: foo; bar=\"b a z\""], 400),
        (&["sec-websocket-extensions: foo; bar=\"baz\", x-y"], 101),
        (&["sec-websocket-extensions: é"], 400),
        (&["sec-websocket-extensions: ;"], 400),
        (&["origin: http://server.example.com"], 101),
        (&["origin: https://SERVER.example.com:443"], 101),
        (
            &[
                "host: server.example.com:8080",
                "origin: http://server.example.com:8080",
            ],
            101,
        ),
        (
            &[
                "host: server.example.com:8080",
                "origin: http://server.example.com",
            ],
            403,
        ),
        (&["origin: https://evil.example"], 403),
        (&["origin: http://server.example.com.evil.example"], 403),
        (&["origin: file://server.example.com"], 403),
        (&["origin: null"], 403),
        (
            &[
                "origin: http://server.example.com",
                "+origin: https://evil.example",
            ],
            403,
        ),
    ];
    for (changes, expected) in cases {
        let mut response = answer(&WebSocketUpgrade::new(), request(changes));
        assert_eq!(response.status(), *expected, "{changes:?}");
        let begins = OnUpgrade::take(response.extensions_mut()).is_some();
        assert_eq!(begins, *expected == 101, "{changes:?}");
        if *expected == 426 {
            assert_eq!(header(&response, "sec-websocket-version"), "13");
            assert_eq!(header(&response, "upgrade"), "websocket");
        }
    }
}

#[test]
fn other_methods_bodies_and_long_lists_are_refused() {
    let mut post = Request::new(Method::POST, Uri::from_static("/chat"), Body::empty());
    *post.headers_mut() = request(&[]).headers().clone();
    let response = answer(&WebSocketUpgrade::new(), post);
    assert_eq!(response.status(), 405);
    assert_eq!(header(&response, "allow"), "GET");

    let mut with_body = Request::new(Method::GET, Uri::from_static("/chat"), "x");
    *with_body.headers_mut() = request(&[]).headers().clone();
    assert_eq!(answer(&WebSocketUpgrade::new(), with_body).status(), 400);

    let list: Vec<String> = (0..33).map(|index| format!("p{index}")).collect();
    let protocols = format!("sec-websocket-protocol: {}", list.join(","));
    let response = answer(&WebSocketUpgrade::new(), request(&[&protocols]));
    assert_eq!(response.status(), 400);
    let extensions = format!("sec-websocket-extensions: {}", list.join(","));
    let response = answer(&WebSocketUpgrade::new(), request(&[&extensions]));
    assert_eq!(response.status(), 400);
}

#[test]
fn an_extended_connect_needs_no_key() {
    let upgrade = WebSocketUpgrade::new().protocols(["echo"]);
    let mut tunnel = request(&[
        "-upgrade",
        "-connection",
        "-sec-websocket-key",
        "sec-websocket-protocol: echo",
    ]);
    tunnel.extensions_mut().insert(ExtendedConnect);
    let response = answer(&upgrade, tunnel);
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(header(&response, "sec-websocket-protocol"), "echo");
    assert_eq!(header(&response, "sec-websocket-accept"), "");
    assert_eq!(header(&response, "connection"), "");
}

#[test]
fn the_first_protocol_of_the_client_that_we_have_is_chosen() {
    let upgrade = WebSocketUpgrade::new().protocols(["chat.v1", "chat.v2"]);
    let cases = [
        ("chat.v2, chat.v1", "chat.v2"),
        ("mqtt, chat.v1", "chat.v1"),
        ("mqtt", ""),
        ("CHAT.V1", ""),
    ];
    for (offered, chosen) in cases {
        let offer = format!("sec-websocket-protocol: {offered}");
        let response = answer(&upgrade, request(&[&offer]));
        assert_eq!(response.status(), 101, "{offered}");
        assert_eq!(header(&response, "sec-websocket-protocol"), chosen);
    }
    let two_lines = request(&[
        "sec-websocket-protocol: mqtt",
        "+sec-websocket-protocol: chat.v1",
    ]);
    let response = answer(&upgrade, two_lines);
    assert_eq!(header(&response, "sec-websocket-protocol"), "chat.v1");
}

#[test]
fn origins_can_be_named_or_all_allowed() {
    let evil = "origin: https://evil.example";
    let app = "origin: https://APP.example";
    let named = WebSocketUpgrade::new().allow_origins(["https://app.example"]);
    assert_eq!(answer(&named, request(&[evil])).status(), 403);
    assert_eq!(answer(&named, request(&[app])).status(), 101);
    assert_eq!(answer(&named, request(&[])).status(), 101);
    let any = WebSocketUpgrade::new().allow_any_origin();
    assert_eq!(answer(&any, request(&[evil])).status(), 101);
}

/// What is answered to `offer`; empty when it is declined.
#[track_caller]
fn check_offer(config: Deflate, offer: &str, expected: &str) {
    let mut headers = HeaderMap::new();
    let value = HeaderValue::from_str(offer).expect("a header value");
    headers.insert("sec-websocket-extensions", value);
    let agreed = negotiate(&headers, Some(config)).expect("the grammar is kept");
    let answer = agreed.map_or(String::new(), |(_, answer)| {
        answer.to_str().expect("ASCII").to_owned()
    });
    assert_eq!(answer, expected, "{offer}");
    assert_eq!(
        negotiate(&headers, None),
        Ok(None),
        "{offer}, not switched on"
    );
}

#[test]
fn offers_of_compression_are_answered_by_the_rfc() {
    let keep = Deflate::new().context_takeover(true);
    let cases = [
        ("permessage-deflate", "permessage-deflate"),
        ("PerMessage-Deflate", "permessage-deflate"),
        (
            "permessage-deflate; client_max_window_bits",
            "permessage-deflate",
        ),
        (
            "permessage-deflate; client_max_window_bits=10",
            "permessage-deflate; client_max_window_bits=10",
        ),
        (
            "permessage-deflate; client_max_window_bits=8",
            "permessage-deflate; client_max_window_bits=8",
        ),
        (
            "permessage-deflate; server_max_window_bits=\"9\"",
            "permessage-deflate; server_max_window_bits=9",
        ),
        (
            "permessage-deflate;server_no_context_takeover ; client_no_context_takeover",
            "permessage-deflate; server_no_context_takeover; client_no_context_takeover",
        ),
        ("permessage-deflate; server_max_window_bits=8", ""),
        (
            "permessage-deflate; server_max_window_bits=8, permessage-deflate",
            "permessage-deflate",
        ),
        (
            "x-webkit-deflate-frame, permessage-deflate",
            "permessage-deflate",
        ),
        ("permessage-deflate; server_max_window_bits", ""),
        ("permessage-deflate; server_max_window_bits=7", ""),
        ("permessage-deflate; server_max_window_bits=16", ""),
        ("permessage-deflate; server_max_window_bits=010", ""),
        ("permessage-deflate; client_max_window_bits=0", ""),
        ("permessage-deflate; client_max_window_bits=a", ""),
        ("permessage-deflate; server_no_context_takeover=1", ""),
        ("permessage-deflate; client_no_context_takeover=true", ""),
        ("permessage-deflate; unknown", ""),
        (
            "permessage-deflate; server_no_context_takeover; server_no_context_takeover",
            "",
        ),
        (
            "permessage-deflate; client_max_window_bits; client_max_window_bits=9",
            "",
        ),
        ("permessage-bzip2", ""),
        (" , permessage-deflate ,", "permessage-deflate"),
    ];
    for (offer, expected) in cases {
        check_offer(keep, offer, expected);
    }
    let alone = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
    check_offer(Deflate::new(), "permessage-deflate", alone);
    check_offer(
        keep.window_bits(10),
        "permessage-deflate; client_max_window_bits",
        "permessage-deflate; server_max_window_bits=10; client_max_window_bits=10",
    );
    check_offer(
        keep.window_bits(4),
        "permessage-deflate; server_max_window_bits=12",
        "permessage-deflate; server_max_window_bits=9",
    );
}

#[test]
fn a_malformed_extension_list_is_an_error() {
    let malformed = [
        "a b",
        ";",
        "a;",
        "a; =1",
        "a; b=",
        "a; b=\"",
        "a; b=\"\"",
        "a; b=\"x y\"",
        "a=1",
        "a; b=\"\\",
    ];
    for value in malformed {
        let mut headers = HeaderMap::new();
        let value = HeaderValue::from_str(value).expect("a header value");
        headers.insert("sec-websocket-extensions", value.clone());
        assert!(negotiate(&headers, None).is_err(), "{value:?}");
    }
}
