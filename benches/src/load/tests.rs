//! Runs against real servers on real sockets, one misbehaviour each.

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::*;

const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// A server whose behaviour on one connection is a function.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    pub(super) connections: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Server {
    pub(super) fn new(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let (counter, stopped, serve) =
            (Arc::clone(&connections), Arc::clone(&stop), Arc::new(serve));
        thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    break;
                }
                counter.fetch_add(1, Ordering::SeqCst);
                let serve = Arc::clone(&serve);
                thread::spawn(move || serve(stream.unwrap()));
            }
        });
        Self {
            address,
            connections,
            stop,
        }
    }

    /// Answers each request on each connection with the same bytes.
    pub(super) fn answering(response: impl Into<Vec<u8>>) -> Self {
        let response = response.into();
        Self::new(move |stream| {
            answer_all(&mut &stream, &response);
        })
    }

    pub(super) fn plan(&self) -> LoadPlan {
        plan(&format!("http://{}/", self.address), None)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
    }
}

/// Reads one request; false at the end of the stream.
pub(super) fn read_request(reader: &mut impl std::io::BufRead) -> bool {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if !reader.read_line(&mut line).is_ok_and(|count| count > 0) {
            return false;
        }
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.trim().parse().unwrap();
        }
        if line == "\r\n" {
            let mut body = vec![0; length];
            return reader.read_exact(&mut body).is_ok();
        }
    }
}

fn answer_all<S>(stream: &mut S, response: &[u8])
where
    S: Read + Write,
{
    let mut reader = BufReader::new(stream);
    while read_request(&mut reader) && reader.get_mut().write_all(response).is_ok() {}
}

/// Ten attempts on one connection and one thread.
pub(super) fn plan(url: &str, trust: Option<&Trust>) -> LoadPlan {
    let (target, path) = parse_target(url, trust).unwrap();
    let request = RequestTemplate::serialise(&target, "GET", &path, &[], b"", true).unwrap();
    LoadPlan {
        stop: Stop::Requests(10),
        request_timeout: Duration::from_secs(20),
        connect_timeout: Duration::from_secs(20),
        ..LoadPlan::new(target, vec![request])
    }
}

fn with_method(mut plan: LoadPlan, method: &str, body: &[u8]) -> LoadPlan {
    let target = &plan.target;
    let request = RequestTemplate::serialise(target, method, "/", &[], body, true).unwrap();
    plan.requests = vec![request];
    plan
}

/// Runs the plan and compares all classes; those not named must be empty.
pub(super) fn check(plan: &LoadPlan, expected: &[(Outcome, u64)]) -> LoadReport {
    let report = run(plan, &AtomicBool::new(false)).unwrap();
    report.check_invariants().unwrap();
    let found: Vec<_> = report
        .outcomes
        .iter()
        .filter(|(_, count)| *count > 0)
        .collect();
    assert_eq!(found, expected, "{}", report.render_text());
    report
}

/// Runs the plan, whatever the classes.
pub(super) fn check_any(plan: &LoadPlan) -> LoadReport {
    let report = run(plan, &AtomicBool::new(false)).unwrap();
    report.check_invariants().unwrap();
    report
}

/// A plan against a port that is taken, so that nobody else can listen on it.
fn refusing_plan() -> (socket2::Socket, LoadPlan) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket
        .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
        .unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    (socket, plan(&format!("http://{address}/"), None))
}

#[test]
fn kept_connections_answer_every_request() {
    let server = Server::answering(HELLO);
    let plan = LoadPlan {
        connections: 4,
        threads: 2,
        stop: Stop::Requests(101),
        expect: Expectation {
            status: Some(200),
            body: Some(ExpectedBody::Bytes(b"hello".to_vec())),
        },
        cpus: Some(vec![0]),
        ..server.plan()
    };
    let report = check(&plan, &[(Outcome::Ok, 101)]);
    assert_eq!(report.connections_opened, Some(4));
    assert_eq!(server.connections.load(Ordering::SeqCst), 4);
    assert_eq!(report.bytes_read, 101 * HELLO.len() as u64);
    assert_eq!(
        report.status_counts.into_iter().collect::<Vec<_>>(),
        [(200, 101)]
    );
    assert!(report.latency.p95_ns.is_some());
    assert_eq!(report.latency.p99_ns, None);
    assert!(report.rate.unwrap() > 0.0);
    assert_eq!(report.per_thread.len(), 2);
}

#[test]
fn announced_close_opens_a_connection_for_each_request() {
    let server = Server::new(|stream| {
        read_request(&mut BufReader::new(&stream));
        let response = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi";
        (&stream).write_all(response.as_bytes()).unwrap();
    });
    let report = check(&server.plan(), &[(Outcome::Ok, 10)]);
    assert_eq!((report.connections_opened, report.resent), (Some(10), 0));
}

#[test]
fn without_keep_alive_the_client_closes() {
    let server = Server::answering(HELLO);
    let plan = LoadPlan {
        keep_alive: false,
        ..server.plan()
    };
    let report = check(&plan, &[(Outcome::Ok, 10)]);
    assert_eq!(report.connections_opened, Some(10));
}

#[test]
fn body_until_close_is_whole() {
    let server = Server::new(|stream| {
        read_request(&mut BufReader::new(&stream));
        (&stream)
            .write_all(b"HTTP/1.0 200 OK\r\n\r\nhello")
            .unwrap();
    });
    let body = Some(ExpectedBody::Bytes(b"hello".to_vec()));
    let plan = LoadPlan {
        expect: Expectation { status: None, body },
        ..server.plan()
    };
    check(&plan, &[(Outcome::Ok, 10)]);
}

#[test]
fn chunks_that_dribble_in_are_joined() {
    let server = Server::new(|stream| {
        stream.set_nodelay(true).unwrap();
        let mut reader = BufReader::new(&stream);
        while read_request(&mut reader) {
            let response = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\nX: y\r\n\r\n";
            for byte in response.as_bytes() {
                (&stream).write_all(&[*byte]).unwrap();
            }
        }
    });
    let digest = ExpectedBody::Sha256(Sha256::digest(b"hello").into());
    let expect = Expectation {
        status: Some(200),
        body: Some(digest),
    };
    let plan = LoadPlan {
        expect,
        ..server.plan()
    };
    let report = check(&plan, &[(Outcome::Ok, 10)]);
    assert_eq!(report.connections_opened, Some(1));
}

#[test]
fn large_bodies_both_ways_are_whole() {
    let body = vec![b'x'; 1 << 20];
    let mut response = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    response.push_str(std::str::from_utf8(&body).unwrap());
    let server = Server::answering(response);
    let expect = Expectation {
        status: None,
        body: Some(ExpectedBody::Bytes(body.clone())),
    };
    let plan = LoadPlan {
        expect,
        ..with_method(server.plan(), "POST", &body)
    };
    let report = check(&plan, &[(Outcome::Ok, 10)]);
    assert_eq!(report.connections_opened, Some(1));
}

#[test]
fn error_statuses_are_not_throughput() {
    let server = Server::answering("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n");
    let report = check(&server.plan(), &[(Outcome::Http5xx, 10)]);
    assert_eq!(report.rate, Some(0.0));
    assert_eq!(report.latency.max_ns, None);
    assert_eq!(report.latency_error.count, 10);
    let server = Server::answering("HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n");
    check(&server.plan(), &[(Outcome::Http4xx, 10)]);
}

#[test]
fn the_expected_status_is_the_only_correct_one() {
    let server = Server::answering("HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n");
    let expecting = |status| LoadPlan {
        expect: Expectation {
            status: Some(status),
            body: None,
        },
        ..server.plan()
    };
    check(&expecting(404), &[(Outcome::Ok, 10)]);
    check(&expecting(200), &[(Outcome::StatusMismatch, 10)]);
}

#[test]
fn another_body_is_a_mismatch() {
    let server = Server::answering(HELLO);
    for expected in [
        ExpectedBody::Bytes(b"hell".to_vec()),
        ExpectedBody::Bytes(b"hello!".to_vec()),
        ExpectedBody::Bytes(b"hullo".to_vec()),
        ExpectedBody::Sha256([0; 32]),
    ] {
        let expect = Expectation {
            status: None,
            body: Some(expected),
        };
        let plan = LoadPlan {
            expect,
            ..server.plan()
        };
        check(&plan, &[(Outcome::BodyMismatch, 10)]);
    }
}

#[test]
fn bodiless_responses_do_not_wait_for_a_body() {
    let server = Server::answering("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n");
    let body = Some(ExpectedBody::Bytes(vec![0; 99]));
    let expect = Expectation { status: None, body };
    let plan = LoadPlan {
        expect,
        ..with_method(server.plan(), "HEAD", b"")
    };
    let report = check(&plan, &[(Outcome::Ok, 10)]);
    assert_eq!(report.connections_opened, Some(1));
    let server = Server::answering("HTTP/1.1 204 No\r\nTransfer-Encoding: chunked\r\n\r\n");
    let report = check(&server.plan(), &[(Outcome::Ok, 10)]);
    assert_eq!(report.connections_opened, Some(1));
}

#[test]
fn interim_response_is_not_the_answer() {
    let server = Server::answering(format!("HTTP/1.1 100 Continue\r\n\r\n{HELLO}"));
    check(&server.plan(), &[(Outcome::Ok, 10)]);
}

#[test]
fn truncated_response_is_early_end() {
    let server = Server::new(|stream| {
        read_request(&mut BufReader::new(&stream));
        (&stream)
            .write_all(&HELLO.as_bytes()[..HELLO.len() - 1])
            .unwrap();
    });
    let report = check(&server.plan(), &[(Outcome::EofEarly, 10)]);
    assert!(report.bytes_read > 0);
    assert_eq!(report.resent, 0);
}

#[test]
fn new_connection_closed_without_answer_is_early_end() {
    let server = Server::new(|stream| {
        read_request(&mut BufReader::new(&stream));
    });
    let plan = LoadPlan {
        stop: Stop::Requests(3),
        ..server.plan()
    };
    let report = check(&plan, &[(Outcome::EofEarly, 3)]);
    assert_eq!((report.connections_opened, report.resent), (Some(3), 0));
}

#[test]
fn reset_is_reset() {
    let server = Server::new(|stream| {
        read_request(&mut BufReader::new(&stream));
        let socket = socket2::Socket::from(stream);
        socket.set_linger(Some(Duration::ZERO)).unwrap();
    });
    let plan = LoadPlan {
        stop: Stop::Requests(3),
        ..server.plan()
    };
    check(&plan, &[(Outcome::Reset, 3)]);
}

/// 3 MB, more than any buffer between the two: compared as it comes, hashed once.
#[test]
fn a_large_body_is_compared_to_its_last_byte() {
    let body: Vec<u8> = (0..3_000_000_u32)
        .map(|index| (index % 251) as u8)
        .collect();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    let server = Server::answering([head.as_bytes(), &body].concat());
    let mut plan = LoadPlan {
        connections: 4,
        stop: Stop::Requests(12),
        ..server.plan()
    };
    let mut other = body.clone();
    *other.last_mut().unwrap() ^= 1;
    let longer = [&body[..], b"x"].concat();
    let digest: [u8; 32] = Sha256::digest(&body).into();
    for (expected, outcome) in [
        (body.clone(), Outcome::Ok),
        (other, Outcome::BodyMismatch),
        (longer, Outcome::BodyMismatch),
        (body[..2_999_999].to_vec(), Outcome::BodyMismatch),
    ] {
        plan.expect.body = Some(ExpectedBody::Bytes(expected));
        let report = check(&plan, &[(outcome, 12)]);
        assert_eq!(report.first_response.unwrap().body_sha256, digest);
    }
    let found = probe(&plan).unwrap();
    assert_eq!((found.body_len, found.body_sha256), (3_000_000, digest));
}

/// Answers one request on each connection and closes at the second.
fn closing_at_second_request() -> Server {
    Server::new(|stream| {
        let mut reader = BufReader::new(&stream);
        read_request(&mut reader);
        (&stream).write_all(HELLO.as_bytes()).unwrap();
        read_request(&mut reader);
    })
}

#[test]
fn idempotent_request_on_a_closed_connection_is_sent_again() {
    let server = closing_at_second_request();
    let plan = LoadPlan {
        stop: Stop::Requests(3),
        ..server.plan()
    };
    let report = check(&plan, &[(Outcome::Ok, 3)]);
    assert_eq!((report.connections_opened, report.resent), (Some(3), 2));
}

#[test]
fn other_request_on_a_closed_connection_is_early_end() {
    let server = closing_at_second_request();
    let plan = LoadPlan {
        stop: Stop::Requests(4),
        ..with_method(server.plan(), "POST", b"x")
    };
    let report = check(&plan, &[(Outcome::Ok, 2), (Outcome::EofEarly, 2)]);
    assert_eq!(report.resent, 0);
}

#[test]
fn unannounced_close_after_each_response_loses_nothing() {
    let server = Server::new(|stream| {
        read_request(&mut BufReader::new(&stream));
        (&stream).write_all(HELLO.as_bytes()).unwrap();
    });
    let report = check(&server.plan(), &[(Outcome::Ok, 10)]);
    assert_eq!(report.connections_opened, Some(10));
}

#[test]
fn silence_is_request_timeout() {
    for partial in ["", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel"] {
        let server = Server::answering(partial);
        let plan = LoadPlan {
            connections: 2,
            stop: Stop::Requests(4),
            request_timeout: Duration::from_millis(30),
            ..server.plan()
        };
        let report = check(&plan, &[(Outcome::RequestTimeout, 4)]);
        assert_eq!((report.rate, report.latency.count), (Some(0.0), 0));
    }
}

#[test]
fn request_in_flight_at_the_stop_is_aborted() {
    let server = Server::answering("");
    let duration = Duration::from_millis(100);
    let plan = LoadPlan {
        connections: 4,
        stop: Stop::Duration(duration),
        ..server.plan()
    };
    let report = check(&plan, &[(Outcome::AbortedAtDeadline, 4)]);
    assert_eq!((report.rate, report.latency.count), (Some(0.0), 0));
    assert!(report.oldest_aborted_ns.unwrap() > 50_000_000);
    assert!(report.render_text().contains("n/a"));
    assert!(!report.interrupted);
}

#[test]
fn refused_connections_back_off() {
    let (_port, plan) = refusing_plan();
    let report = check(&plan, &[(Outcome::ConnectRefused, 10)]);
    assert_eq!(
        (report.rate, report.connections_opened),
        (Some(0.0), Some(0))
    );
    let plan = LoadPlan {
        stop: Stop::Duration(Duration::from_millis(200)),
        ..plan
    };
    let report = run(&plan, &AtomicBool::new(false)).unwrap();
    report.check_invariants().unwrap();
    assert!(
        (1..50).contains(&report.attempts),
        "{}",
        report.render_text()
    );
    assert_eq!(
        report.outcomes.get(Outcome::ConnectRefused),
        report.attempts
    );
}

#[test]
fn bytes_after_a_response_are_extra() {
    let server = Server::answering("HTTP/1.1 204 No Content\r\n\r\n0\r\n\r\n");
    let report = check(&server.plan(), &[(Outcome::ExtraBytes, 10)]);
    assert_eq!(report.connections_opened, Some(10));
}

#[test]
fn stray_bytes_before_the_next_response_are_extra() {
    let server = Server::new(|stream| {
        let mut reader = BufReader::new(&stream);
        read_request(&mut reader);
        (&stream)
            .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
            .unwrap();
        if read_request(&mut reader) {
            (&stream)
                .write_all(b"0\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n")
                .unwrap();
        }
    });
    let report = check(
        &server.plan(),
        &[(Outcome::Ok, 5), (Outcome::ExtraBytes, 5)],
    );
    assert_eq!(report.connections_opened, Some(5));
}

#[test]
fn what_is_not_http_is_parse_error() {
    for response in [
        "SSH-2.0-x\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    ] {
        let server = Server::answering(response);
        check(&server.plan(), &[(Outcome::ParseError, 10)]);
    }
}

#[test]
fn server_that_talks_first_is_parse_error() {
    let server = Server::new(|stream| {
        (&stream).write_all(b"SSH-2.0-x\r\n").unwrap();
        drop((&stream).read_to_end(&mut Vec::new()));
    });
    check(&server.plan(), &[(Outcome::ParseError, 10)]);
}

#[test]
fn server_that_ends_its_side_first_is_early_end() {
    let server = Server::new(|stream| {
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        drop((&stream).read_to_end(&mut Vec::new()));
    });
    let plan = LoadPlan {
        stop: Stop::Requests(4),
        ..server.plan()
    };
    check(&plan, &[(Outcome::EofEarly, 4)]);
}

#[test]
fn unix_socket_is_a_target() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let url = format!("unix:{}", path.display());
    let stopped = plan(&url, None);
    check(&stopped, &[(Outcome::ConnectRefused, 10)]);
    let listener = UnixListener::bind(&path).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || answer_all(&mut stream.unwrap(), HELLO.as_bytes()));
        }
    });
    let report = check(&plan(&url, None), &[(Outcome::Ok, 10)]);
    assert_eq!(report.connections_opened, Some(1));
    // Large requests do not fit into the socket at once.
    let body = vec![b'x'; 1 << 20];
    check(
        &with_method(plan(&url, None), "POST", &body),
        &[(Outcome::Ok, 10)],
    );
}

/// A TLS server and its certificate in PEM.
pub(super) fn tls_server(response: &'static [u8]) -> (Server, String) {
    let certified = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let key = rustls_pki_types::PrivateKeyDer::Pkcs8(certified.signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let config = Arc::new(config);
    let server = Server::new(move |stream| {
        let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
        answer_all(&mut rustls::StreamOwned::new(connection, stream), response);
    });
    (server, certified.cert.pem())
}

#[test]
fn tls_trusts_the_given_certificate_only() {
    let (server, pem) = tls_server(HELLO.as_bytes());
    let url = format!("https://{}/", server.address);
    let folder = tempfile::tempdir().unwrap();
    let ca_file = folder.path().join("ca.pem");
    std::fs::write(&ca_file, pem).unwrap();
    let report = check(
        &plan(&url, Some(&Trust::CaFile(ca_file.clone()))),
        &[(Outcome::Ok, 10)],
    );
    assert_eq!(report.connections_opened, Some(1));
    assert_eq!(report.bytes_read, 10 * HELLO.len() as u64);
    let insecure = plan(&url, Some(&Trust::Insecure));
    check(&insecure, &[(Outcome::Ok, 10)]);
    check(
        &LoadPlan {
            keep_alive: false,
            ..insecure.clone()
        },
        &[(Outcome::Ok, 10)],
    );
    let (_other, other_pem) = tls_server(b"");
    std::fs::write(&ca_file, other_pem).unwrap();
    let untrusted = plan(&url, Some(&Trust::CaFile(ca_file)));
    check(
        &LoadPlan {
            stop: Stop::Requests(2),
            ..untrusted
        },
        &[(Outcome::TlsError, 2)],
    );
    // More than the TLS library buffers, in both directions of its limits.
    let body = vec![b'x'; 1 << 20];
    check(&with_method(insecure, "POST", &body), &[(Outcome::Ok, 10)]);
}

#[test]
fn plain_server_is_tls_error_and_silent_server_connect_timeout() {
    let server = Server::new(|stream| {
        (&stream)
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .unwrap();
        drop((&stream).read_to_end(&mut Vec::new()));
    });
    let url = |server: &Server| format!("https://{}/", server.address);
    let talking = plan(&url(&server), Some(&Trust::Insecure));
    check(
        &LoadPlan {
            stop: Stop::Requests(2),
            ..talking
        },
        &[(Outcome::TlsError, 2)],
    );
    let server = Server::new(|stream| {
        drop((&stream).read_to_end(&mut Vec::new()));
    });
    let silent = LoadPlan {
        stop: Stop::Requests(2),
        connect_timeout: Duration::from_millis(30),
        ..plan(&url(&server), Some(&Trust::Insecure))
    };
    check(&silent, &[(Outcome::ConnectTimeout, 2)]);
    let stopped = LoadPlan {
        stop: Stop::Duration(Duration::from_millis(30)),
        ..plan(&url(&server), Some(&Trust::Insecure))
    };
    check(&stopped, &[(Outcome::NotSent, 1)]);
}

#[test]
fn warm_up_is_not_counted() {
    let requests = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&requests);
    let server = Server::new(move |stream| {
        let mut reader = BufReader::new(&stream);
        while read_request(&mut reader) {
            counter.fetch_add(1, Ordering::SeqCst);
            drop((&stream).write_all(HELLO.as_bytes()));
        }
    });
    let plan = LoadPlan {
        connections: 2,
        threads: 2,
        warm_up: Duration::from_millis(100),
        stop: Stop::Requests(20),
        ..server.plan()
    };
    let report = check(&plan, &[(Outcome::Ok, 20)]);
    assert!(requests.load(Ordering::SeqCst) > 20);
    assert_eq!(report.bytes_read, 20 * HELLO.len() as u64);
    let plan = LoadPlan {
        stop: Stop::Duration(Duration::from_millis(100)),
        ..plan
    };
    let report = run(&plan, &AtomicBool::new(false)).unwrap();
    report.check_invariants().unwrap();
    assert!(
        report.outcomes.get(Outcome::Ok) > 0,
        "{}",
        report.render_text()
    );
    assert!(report.window_ns.unwrap() <= 100_000_000);
}

#[test]
fn stop_flag_ends_the_run_with_a_report() {
    let server = Server::answering("");
    let plan = LoadPlan {
        stop: Stop::Duration(Duration::from_mins(10)),
        ..server.plan()
    };
    let report = run(&plan, &AtomicBool::new(true)).unwrap();
    report.check_invariants().unwrap();
    assert!(report.interrupted);
    assert_eq!(
        report.outcomes.get(Outcome::AbortedAtDeadline) + report.outcomes.get(Outcome::NotSent),
        1
    );
}

#[test]
fn probe_describes_the_answer() {
    let server = Server::answering(HELLO);
    let found = probe(&server.plan()).unwrap();
    assert_eq!((found.status, found.body_len), (200, 5));
    assert_eq!(
        found.sha256_hex(),
        "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    );
    let server = Server::answering("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(probe(&server.plan()).unwrap().status, 500);
    let (_port, refused) = refusing_plan();
    let error = probe(&refused).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Probe {
                outcome: Outcome::ConnectRefused
            }
        ),
        "{error}"
    );
}

/// Text, JSON and CSV are of the same numbers.
#[test]
fn the_forms_of_a_report_say_the_same() {
    let server = Server::answering(HELLO);
    let plan = LoadPlan {
        connections: 2,
        stop: Stop::Requests(600),
        ..server.plan()
    };
    let report = check(&plan, &[(Outcome::Ok, 600)]);
    let json = serde_json::to_value(&report).unwrap();
    let (text, csv) = (report.render_text(), report.render_csv());
    let mut rows = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let (names, values) = (rows.next().unwrap(), rows.next().unwrap());
    let column = |name: &str| values[names.iter().position(|found| *found == name).unwrap()];
    assert!(text.contains("ok=600"), "{text}");
    assert_eq!(column("ok"), "600");
    assert_eq!(json["outcomes"]["ok"], 600);
    for name in ["min", "p50", "p90", "p95", "p99", "max"] {
        let ns = json["latency"][format!("{name}_ns")].as_u64().unwrap();
        assert_eq!(column(&format!("latency_{name}_ns")), ns.to_string());
        assert!(text.contains(&show_time(Some(ns))), "{name} {ns}: {text}");
        let first = json["first_byte"][format!("{name}_ns")].as_u64().unwrap();
        assert!(first <= ns, "{name}: {text}");
        assert_eq!(column(&format!("first_byte_{name}_ns")), first.to_string());
    }
    // What is too little to say is missing in each of them.
    assert!(json["latency"]["p99_9_ns"].is_null());
    assert_eq!(column("latency_p99_9_ns"), "");
    assert!(text.contains("n/a"), "{text}");
}

#[test]
fn json_has_null_where_nothing_was_measured() {
    let (_port, refused) = refusing_plan();
    let report = check(&refused, &[(Outcome::ConnectRefused, 10)]);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["outcomes"]["connect_refused"], 10);
    assert_eq!(json["outcomes"]["ok"], 0);
    assert!(json["latency"]["mean_ns"].is_null());
    assert!(json["latency"]["max_ns"].is_null());
    assert!(json["first_response"].is_null());
    let server = Server::answering(HELLO);
    let report = check(&server.plan(), &[(Outcome::Ok, 10)]);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["status_counts"]["200"], 10);
    assert_eq!(
        json["first_response"]["body_sha256"]
            .as_str()
            .unwrap()
            .len(),
        64
    );
}

#[test]
fn plans_that_cannot_run_are_refused() {
    let good = plan("http://127.0.0.1:1/", None);
    for bad in [
        LoadPlan {
            requests: Vec::new(),
            ..good.clone()
        },
        LoadPlan {
            connections: 0,
            ..good.clone()
        },
        LoadPlan {
            threads: 0,
            ..good.clone()
        },
        LoadPlan {
            stop: Stop::Requests(0),
            ..good.clone()
        },
        LoadPlan {
            stop: Stop::Duration(Duration::ZERO),
            ..good.clone()
        },
        LoadPlan {
            request_timeout: Duration::ZERO,
            ..good.clone()
        },
        LoadPlan {
            connect_timeout: Duration::ZERO,
            ..good.clone()
        },
        LoadPlan {
            pace: Pace::Open(OpenLoop::constant(0.0)),
            ..good.clone()
        },
        LoadPlan {
            cpus: Some(Vec::new()),
            ..good.clone()
        },
        LoadPlan {
            cpus: Some(vec![usize::MAX]),
            ..good.clone()
        },
    ] {
        let error = run(&bad, &AtomicBool::new(false)).unwrap_err();
        assert!(matches!(error, Error::LoadPlan { .. }), "{error}");
    }
}
