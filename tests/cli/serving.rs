//! A server from its start to its end.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;

use rustix::process::Signal;
use serde_json::Value;

use crate::binary::{Folder, JUSTAPI, Served, body, exchange};

const HELLO: &str = "GET /hello HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

#[test]
fn starts_on_a_free_port_answers_and_stops() {
    for signal in [Signal::TERM, Signal::INT] {
        let served = Folder::new().serve("--port 0");
        assert_eq!(served.listening["v"], 1);
        assert!(!served.url().ends_with(":0"), "{}", served.url());
        let answer = served.get("/hello");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert_eq!(body(&answer), r#"{"message":"hello"}"#);
        let run = served.stop(signal).expect(0);
        let stopped: Value = serde_json::from_str(run.stdout.trim()).unwrap();
        assert_eq!(stopped["event"], "stopped");
        assert_eq!(stopped["finished"], true);
        assert!(run.stderr.contains("serve   demo"), "{run:?}");
        assert!(run.stderr.contains("every request finished"), "{run:?}");
    }
}

#[test]
fn quiet_says_nothing_and_ascii_has_no_arrow() {
    let run = Folder::new().serve("--port 0 -q");
    run.get("/hello");
    assert_eq!(run.stop(Signal::TERM).expect(0).stderr, "");
    let run = Folder::new().env("LC_ALL", "C").serve("--port 0");
    run.get("/hello");
    assert!(run.stop(Signal::TERM).expect(0).stderr.is_ascii());
    let run = Folder::new().env("LANG", "en_US.UTF-8").serve("--port 0");
    run.get("/hello");
    assert!(
        run.stop(Signal::TERM)
            .expect(0)
            .stderr
            .contains("➜ http://")
    );
}

#[test]
fn logs_are_json_on_request() {
    let served = Folder::new().serve("--port 0 --log-format json --access-log json");
    served.get("/hello?x=1");
    let run = served.stop(Signal::TERM).expect(0);
    let lines: Vec<Value> = run
        .stderr
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    assert_eq!(lines.len(), 3, "{run:?}");
    assert_eq!(lines[0]["event"], "listening");
}

#[test]
fn the_demo_shows_what_was_received() {
    let served = Folder::new().serve("--port 0");
    let page = served.get("/");
    assert!(page.contains("content-type: text/html"), "{page}");
    assert!(!page.contains("src=") && !page.contains("://"), "{page}");

    let post = |path: &str, content: &str| {
        served.send(&format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{content}",
            content.len()
        ))
    };
    assert_eq!(
        body(&post("/echo", r#"{"a": [1, null]}"#)),
        r#"{"a":[1,null]}"#
    );
    let refused = post("/echo", r#"{"a": "#);
    assert!(refused.starts_with("HTTP/1.1 400"), "{refused}");
    assert!(refused.contains("application/problem+json"), "{refused}");

    let answer = served.send(
        "PURGE /anything/a%2Fb?q=1 HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         x-two: 1\r\nx-two: 2\r\nx-one: a\r\ncontent-length: 3\r\n\r\nabc",
    );
    let received: Value = serde_json::from_str(body(&answer)).unwrap();
    assert_eq!(received["method"], "PURGE");
    assert_eq!(received["path"], "/anything/a%2Fb");
    assert_eq!(received["query"], "q=1");
    assert_eq!(received["headers"]["x-two"], serde_json::json!(["1", "2"]));
    assert_eq!(received["headers"]["x-one"], "a");
    assert_eq!(received["body_length"], 3);

    let large = "x".repeat(3 * 1024 * 1024);
    let answer = post("/anything", &large);
    assert!(answer.contains(r#""body_length":3145728"#), "{answer}");
    served.stop(Signal::TERM).expect(0);
}

#[test]
fn header_bytes_that_are_not_text_are_shown() {
    let served = Folder::new().serve("--port 0");
    let mut stream = served.connect();
    stream
        .write_all(
            b"GET /anything HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx: \xe9\r\n\r\n",
        )
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains(r#""x":"é""#), "{answer}");
    served.stop(Signal::TERM).expect(0);
}

#[test]
fn health_and_metrics_are_where_they_are_asked_for() {
    let served = Folder::new().serve("--port 0");
    for path in ["/health", "/live", "/ready", "/metrics"] {
        assert!(served.get(path).starts_with("HTTP/1.1 200"), "{path}");
    }
    served.stop(Signal::TERM).expect(0);

    let served = Folder::new().serve("--port 0 --metrics off --health=false");
    assert_eq!(served.listening["metrics"], Value::Null);
    for path in ["/health", "/metrics"] {
        assert!(served.get(path).starts_with("HTTP/1.1 404"), "{path}");
    }
    served.stop(Signal::TERM).expect(0);

    let served = Folder::new().serve("--port 0 --metrics 127.0.0.1:0");
    assert!(served.get("/metrics").starts_with("HTTP/1.1 404"));
    let place = served.listening["metrics"].as_str().unwrap();
    let address = place
        .strip_prefix("http://")
        .and_then(|rest| rest.strip_suffix("/metrics"))
        .unwrap();
    let stream = std::net::TcpStream::connect(address).unwrap();
    let answer = exchange(stream, &HELLO.replace("/hello", "/metrics"));
    assert!(answer.contains("justapi_"), "{answer}");
    served.stop(Signal::TERM).expect(0);
}

#[test]
fn response_headers_are_switched_by_settings() {
    let served =
        Folder::new().serve("--port 0 --request-id --security-headers --cors https://a.example");
    let answer = served.send(&HELLO.replace("host:", "origin: https://a.example\r\nhost:"));
    for header in [
        "x-request-id: ",
        "x-content-type-options: nosniff",
        "access-control-allow-origin: https://a.example",
    ] {
        assert!(answer.contains(header), "{header} in {answer}");
    }
    served.stop(Signal::TERM).expect(0);
    let run = Folder::new()
        .run("serve --port 0 --cors https://A.example/")
        .expect(2);
    assert!(run.stderr.contains("expected origins"), "{run:?}");
}

#[test]
fn a_unix_socket_has_its_mode_and_goes_away() {
    let folder = Folder::new();
    let served = folder.serve("--uds socket --uds-mode 600");
    assert_eq!(served.url(), "unix:socket");
    let path = folder.path().join("socket");
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let answer = exchange(UnixStream::connect(&path).unwrap(), HELLO);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    served.stop(Signal::TERM).expect(0);
    assert!(!path.exists());
}

#[test]
fn inherited_sockets_are_served() {
    let flag = "exec 3<&0 </dev/null; exec \"$0\" serve --json --fd 3";
    let activation = "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" serve --json";
    for script in [flag, activation] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut command = Folder::new().program("sh", &["-c", script, JUSTAPI]);
        command.current_dir("/").stdin(OwnedFd::from(listener));
        let served = Served::start(command);
        assert_eq!(served.url(), format!("http://{address}"));
        assert!(served.get("/hello").starts_with("HTTP/1.1 200"));
        served.stop(Signal::TERM).expect(0);
    }
}

#[test]
fn tls_serves_https() {
    let folder = Folder::new();
    crate::binary::certificate(folder.path());
    let served = folder.serve("--port 0 --tls-cert cert.pem --tls-key key.pem");
    assert!(served.url().starts_with("https://"), "{}", served.url());
    let url = format!("{}/hello", served.url());
    let run = folder
        .run(&format!("bench {url} -n 20 -c 2 -k --json"))
        .expect(0);
    assert_eq!(run.json()["outcomes"]["ok"], 20);
    served.stop(Signal::TERM).expect(0);
}

#[test]
fn the_pid_file_lives_as_long_as_the_server() {
    let folder = Folder::new();
    let served = folder.serve("--port 0 --pid-file justapi.pid");
    let path = folder.path().join("justapi.pid");
    served.get("/hello");
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        format!("{}\n", served.pid())
    );
    served.stop(Signal::TERM).expect(0);
    assert!(!path.exists());
    let run = folder
        .run("serve --port 0 --pid-file missing/pid")
        .expect(1);
    assert!(run.stderr.contains("error[JA512]"), "{run:?}");
}

/// A request whose body is not complete yet, and which the server has begun
/// to answer: it asked for the rest.
fn half_sent(served: &Served) -> std::net::TcpStream {
    let mut stream = served.connect();
    stream
        .write_all(
            b"POST /echo HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n",
        )
        .unwrap();
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"tr").unwrap();
    stream
}

#[test]
fn requests_in_flight_are_finished_after_a_signal() {
    let served = Folder::new().serve("--port 0");
    let mut stream = half_sent(&served);
    served.signal(Signal::TERM);
    stream.write_all(b"ue").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    served.wait().expect(0);
}

#[test]
fn requests_that_outlast_the_grace_time_are_cut_off() {
    let served = Folder::new().serve("--port 0 --graceful 200ms");
    let _stream = half_sent(&served);
    let run = served.stop(Signal::TERM).expect(143);
    assert!(run.stderr.contains("cut off"), "{run:?}");
}

#[test]
fn a_second_signal_does_not_wait_for_the_grace_time() {
    let served = Folder::new().serve("--port 0 --graceful 10m");
    let _stream = half_sent(&served);
    served.signal(Signal::INT);
    let (_, address) = served.url().split_once("://").unwrap();
    // Once nothing listens any more, the first signal has arrived.
    while std::net::TcpStream::connect(address).is_ok() {
        std::thread::yield_now();
    }
    served.stop(Signal::INT).expect(130);
}

#[test]
fn verbose_says_what_is_not_a_default() {
    let folder = Folder::new().with("justapi.toml", "[server]\nlanes = 1\n");
    let run = folder.run("serve --check -v --port 9").expect(0);
    let lines: Vec<_> = run.stderr.lines().collect();
    assert_eq!(
        lines,
        [
            "server.port = 9   flag --port",
            "server.lanes = 1   justapi.toml:2",
            "configuration is valid",
        ]
    );
}
