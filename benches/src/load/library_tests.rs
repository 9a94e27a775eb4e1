//! Clients of other libraries against real servers: the classes are those of the raw engine.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::tests::{Server, check, plan, read_request};
use super::*;

const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

type Request = http::Request<Bytes>;

/// A server of HTTP/2 whose answers are a function; over TLS with what gives its certificate.
struct Http2Server {
    address: SocketAddr,
    requests: Arc<AtomicU64>,
    connections: Arc<AtomicU64>,
}

impl Http2Server {
    fn new(tls: Option<rustls::ServerConfig>, answer: fn(u64, &Request) -> (u16, Vec<u8>)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            requests: Arc::default(),
            connections: Arc::default(),
        };
        let (requests, connections) = (
            Arc::clone(&server.requests),
            Arc::clone(&server.connections),
        );
        let tls = tls.map(|config| tokio_rustls::TlsAcceptor::from(Arc::new(config)));
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    connections.fetch_add(1, Ordering::SeqCst);
                    let (requests, tls) = (Arc::clone(&requests), tls.clone());
                    tokio::spawn(async move {
                        match tls {
                            None => serve(stream, requests, answer).await,
                            Some(tls) => {
                                if let Ok(stream) = tls.accept(stream).await {
                                    serve(stream, requests, answer).await;
                                }
                            }
                        }
                    });
                }
            });
        });
        server
    }

    fn plan(&self, streams: usize) -> LoadPlan {
        LoadPlan {
            client: Client::Http2 { streams },
            ..plan(&format!("http://{}/", self.address), None)
        }
    }
}

async fn serve<S>(stream: S, requests: Arc<AtomicU64>, answer: fn(u64, &Request) -> (u16, Vec<u8>))
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + 'static,
{
    let service = service_fn(|request: http::Request<Incoming>| {
        let number = requests.fetch_add(1, Ordering::SeqCst);
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let request = Request::from_parts(head, body);
            if request.uri().path() == "/never" {
                std::future::pending::<()>().await;
            }
            let (status, body) = answer(number, &request);
            let response = http::Response::builder().status(status);
            Ok::<_, hyper::Error>(response.body(Full::new(Bytes::from(body))).unwrap())
        }
    });
    // A client that has seen enough goes without asking.
    drop(
        hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service)
            .await,
    );
}

fn hello(_number: u64, _request: &Request) -> (u16, Vec<u8>) {
    (200, b"hello".to_vec())
}

fn with_request(mut plan: LoadPlan, method: &str, path: &str, body: &[u8]) -> LoadPlan {
    let target = &plan.target;
    plan.requests =
        vec![RequestTemplate::serialise(target, method, path, &[], body, true).unwrap()];
    plan
}

#[test]
fn streams_of_few_connections_answer_every_request() {
    let server = Http2Server::new(None, hello);
    let plan = LoadPlan {
        connections: 3,
        threads: 2,
        stop: Stop::Requests(200),
        expect: Expectation {
            status: Some(200),
            body: Some(ExpectedBody::Bytes(b"hello".to_vec())),
        },
        ..server.plan(8)
    };
    let report = check(&plan, &[(Outcome::Ok, 200)]);
    assert_eq!(report.connections_opened, Some(3));
    assert_eq!(server.connections.load(Ordering::SeqCst), 3);
    assert_eq!(server.requests.load(Ordering::SeqCst), 200);
    assert_eq!(report.client, "hyper HTTP/2 x8");
    assert_eq!(report.bytes_read, 1000);
    assert_eq!(report.first_response.unwrap().body_len, 5);
}

#[test]
fn bodies_and_slots_go_both_ways() {
    let server = Http2Server::new(None, |_, request| {
        // Every request has a body of its own, which is also in its path.
        let is_right = request.uri().path().as_bytes()[1..] == request.body()[..];
        (if is_right { 200 } else { 400 }, request.body().to_vec())
    });
    let mut plan = server.plan(4);
    let target = &plan.target;
    let request =
        RequestTemplate::serialise_with_slots(target, "POST", "/{{seq}}", &[], b"{{seq}}", true);
    plan.requests = vec![request.unwrap()];
    plan.stop = Stop::Requests(50);
    let report = check(&plan, &[(Outcome::Ok, 50)]);
    assert_eq!(report.bytes_read, 50 * 16);
    let body = vec![b'x'; 1 << 20];
    let plan = with_request(server.plan(2), "POST", "/", &body);
    let report = check(&plan, &[(Outcome::Http4xx, 10)]);
    assert_eq!(report.bytes_read, 10 << 20);
}

#[test]
fn answers_over_http2_have_the_same_classes() {
    let server = Http2Server::new(None, |number, _| match number % 5 {
        0 => (500, Vec::new()),
        1 => (404, Vec::new()),
        _ => (200, b"hello".to_vec()),
    });
    let report = check(
        &server.plan(2),
        &[
            (Outcome::Ok, 6),
            (Outcome::Http4xx, 2),
            (Outcome::Http5xx, 2),
        ],
    );
    assert_eq!(report.latency_error.count, 4);
    let never = with_request(server.plan(2), "GET", "/never", b"");
    let plan = LoadPlan {
        stop: Stop::Requests(4),
        request_timeout: Duration::from_millis(50),
        ..never.clone()
    };
    check(&plan, &[(Outcome::RequestTimeout, 4)]);
    let plan = LoadPlan {
        stop: Stop::Duration(Duration::from_millis(100)),
        ..never
    };
    check(&plan, &[(Outcome::AbortedAtDeadline, 2)]);
}

#[test]
fn what_is_not_http2_is_no_success() {
    let refused = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let http2 = |address: SocketAddr| LoadPlan {
        client: Client::Http2 { streams: 1 },
        stop: Stop::Requests(3),
        connect_timeout: Duration::from_millis(500),
        ..plan(&format!("http://{address}/"), None)
    };
    check(&http2(refused), &[(Outcome::ConnectRefused, 3)]);
    let old = Server::answering(HELLO);
    check(&http2(old.address), &[(Outcome::ParseError, 3)]);
    let resetting = Server::new(|stream| {
        read_request(&mut BufReader::new(&stream));
        let socket = socket2::Socket::from(stream);
        socket.set_linger(Some(Duration::ZERO)).unwrap();
    });
    let closing = Server::new(|stream| {
        read_request(&mut BufReader::new(&stream));
    });
    // Whether a request learns of the reset or that its connection is gone is up to hyper.
    for server in [resetting, closing] {
        let report = run(&http2(server.address), &AtomicBool::new(false)).unwrap();
        report.check_invariants().unwrap();
        let lost = report.outcomes.get(Outcome::EofEarly) + report.outcomes.get(Outcome::Reset);
        assert_eq!(lost, 3, "{}", report.render_text());
    }
}

fn tls_config(alpn: &[u8]) -> rustls::ServerConfig {
    let certified = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let key = rustls_pki_types::PrivateKeyDer::Pkcs8(certified.signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![alpn.to_vec()];
    config
}

#[test]
fn http2_over_tls_must_be_offered() {
    let server = Http2Server::new(Some(tls_config(b"h2")), hello);
    let secure = |server: &Http2Server, client| LoadPlan {
        client,
        stop: Stop::Requests(6),
        ..plan(
            &format!("https://{}/", server.address),
            Some(&Trust::Insecure),
        )
    };
    let http2 = Client::Http2 { streams: 2 };
    check(&secure(&server, http2), &[(Outcome::Ok, 6)]);
    // reqwest takes what is offered.
    check(&secure(&server, Client::Reqwest), &[(Outcome::Ok, 6)]);
    let old = Http2Server::new(Some(tls_config(b"http/1.1")), hello);
    let report = run(&secure(&old, http2), &AtomicBool::new(false)).unwrap();
    report.check_invariants().unwrap();
    let lost =
        report.outcomes.get(Outcome::ExchangeRefused) + report.outcomes.get(Outcome::TlsError);
    assert_eq!(lost, 6, "{}", report.render_text());
}

#[test]
fn libraries_have_a_rate_too() {
    let server = Http2Server::new(None, hello);
    let old = Server::answering(HELLO);
    for plan in [
        server.plan(4),
        LoadPlan {
            client: Client::Reqwest,
            connections: 4,
            ..old.plan()
        },
    ] {
        let plan = LoadPlan {
            pace: Pace::Open(OpenLoop::constant(400.0)),
            warm_up: Duration::from_millis(100),
            stop: Stop::Duration(Duration::from_millis(500)),
            ..plan
        };
        let report = run(&plan, &AtomicBool::new(false)).unwrap();
        report.check_invariants().unwrap();
        let text = report.render_text();
        assert_eq!(report.attempts, 200, "{text}");
        assert!(report.outcomes.get(Outcome::Ok) > 180, "{text}");
        let plan = LoadPlan {
            stop: Stop::Requests(30),
            warm_up: Duration::ZERO,
            ..plan
        };
        check(&plan, &[(Outcome::Ok, 30)]);
    }
}

fn reqwest_plan(server: &Server) -> LoadPlan {
    LoadPlan {
        client: Client::Reqwest,
        ..server.plan()
    }
}

#[test]
fn reqwest_has_the_same_classes() {
    let server = Server::answering(HELLO);
    let report = check(&reqwest_plan(&server), &[(Outcome::Ok, 10)]);
    assert_eq!(report.client, "reqwest");
    // Nobody knows how many there were: no number.
    assert_eq!(report.connections_opened, None);
    for (response, outcome) in [
        (
            "HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n",
            Outcome::Http5xx,
        ),
        ("SSH-2.0-x\r\n\r\n", Outcome::ParseError),
    ] {
        let server = Server::answering(response);
        check(&reqwest_plan(&server), &[(outcome, 10)]);
    }
    let mute = Server::answering("");
    let silent = LoadPlan {
        request_timeout: Duration::from_millis(50),
        stop: Stop::Requests(2),
        ..reqwest_plan(&mute)
    };
    check(&silent, &[(Outcome::RequestTimeout, 2)]);
    let closing = Server::new(|stream| {
        read_request(&mut BufReader::new(&stream));
        (&stream)
            .write_all(&HELLO.as_bytes()[..HELLO.len() - 1])
            .unwrap();
    });
    check(&reqwest_plan(&closing), &[(Outcome::EofEarly, 10)]);
    let address = TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .unwrap();
    let refused = LoadPlan {
        client: Client::Reqwest,
        stop: Stop::Requests(3),
        ..plan(&format!("http://{address}/"), None)
    };
    check(&refused, &[(Outcome::ConnectRefused, 3)]);
}

/// What makes it realistic: a redirect is followed, with the cookie that came with it, and the
/// body at its end is decoded.
#[test]
fn reqwest_follows_keeps_and_decodes() {
    let server = Server::new(|stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        loop {
            let (mut path, mut has_cookie) = (String::new(), false);
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap() == 0 {
                    return;
                }
                if path.is_empty() {
                    line.split(' ').nth(1).unwrap().clone_into(&mut path);
                }
                has_cookie |= line.to_lowercase().starts_with("cookie: seen=1");
                if line == "\r\n" {
                    break;
                }
            }
            let response: Vec<u8> = if path == "/" {
                b"HTTP/1.1 302 Found\r\nLocation: /end\r\nSet-Cookie: seen=1\r\nContent-Length: 0\r\n\r\n".to_vec()
            } else if has_cookie {
                let mut coder =
                    flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                coder.write_all(b"hello").unwrap();
                let body = coder.finish().unwrap();
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
                    body.len()
                );
                [head.as_bytes(), &body].concat()
            } else {
                b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n".to_vec()
            };
            if (&stream).write_all(&response).is_err() {
                return;
            }
        }
    });
    let plan = LoadPlan {
        expect: Expectation {
            status: Some(200),
            body: Some(ExpectedBody::Bytes(b"hello".to_vec())),
        },
        ..reqwest_plan(&server)
    };
    check(&plan, &[(Outcome::Ok, 10)]);
}

#[test]
fn plans_that_a_library_cannot_run_are_refused() {
    let good = LoadPlan {
        client: Client::Http2 { streams: 2 },
        ..plan("http://127.0.0.1:1/", None)
    };
    for bad in [
        LoadPlan {
            client: Client::Http2 { streams: 0 },
            ..good.clone()
        },
        LoadPlan {
            keep_alive: false,
            ..good.clone()
        },
        LoadPlan {
            exchange: Exchange::Echo(WebSocketEcho::new(true, 16)),
            ..good.clone()
        },
    ] {
        let error = run(&bad, &AtomicBool::new(false)).unwrap_err();
        assert!(matches!(error, Error::LoadPlan { .. }), "{error}");
    }
}
