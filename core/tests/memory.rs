//! Clients without a socket: they get a server's answers, and leaving is
//! noticed on both sides.

use std::io::ErrorKind;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http_body::{Body as HttpBody, Frame};
use justapi_core::{
    Body, BodyError, Bytes, EmbeddedLane, Limits, MemoryClient, ParkHooks, Peer, Request, Response,
    Router, Server, StatusCode, inline,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::spawn_local;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(10);

fn hooks() -> ParkHooks {
    ParkHooks {
        before: Box::new(|| ()),
        after: Box::new(|| ()),
    }
}

fn embed(router: Router, limits: Limits) -> EmbeddedLane {
    let server = Server::new(router).limits(limits).unbound();
    let seats = server.and_then(justapi_core::Bound::seats);
    let seat = seats.expect("a server without an address").remove(0);
    seat.embed(hooks()).expect("a lane")
}

/// A client of `lane`; called within its runtime.
fn connect(lane: &EmbeddedLane, number: u64, secure: bool) -> MemoryClient {
    let (client, admit) = lane.connect(number, secure);
    spawn_local(admit);
    client
}

/// Sends `request` and reads to the end of the connection.
async fn exchange(mut client: MemoryClient, request: &str) -> String {
    client.write_all(request.as_bytes()).await.expect("a peer");
    let mut answer = String::new();
    let read = timeout(PATIENCE, client.read_to_string(&mut answer)).await;
    read.expect("an end in time").expect("no reset");
    answer
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

#[test]
fn requests_are_a_servers() {
    let show = inline(|request: Request| {
        let peer = *request.peer();
        Response::text(format!("{} {peer:?}", request.scheme()))
    });
    let router = Router::new().get("/", show).expect("a route");
    let lane = embed(router, Limits::default());
    assert_eq!(lane.running().addresses(), []);
    lane.run_until(async {
        let plain = exchange(connect(&lane, 7, false), GET).await;
        assert!(plain.starts_with("HTTP/1.1 200 "), "{plain}");
        assert!(plain.ends_with("http Memory(7)"), "{plain}");
        let secure = exchange(connect(&lane, 8, true), GET).await;
        assert!(secure.ends_with("https Memory(8)"), "{secure}");
        let refused = exchange(connect(&lane, 9, false), "GET / HTTP/1.1\r\n\r\n").await;
        assert!(refused.starts_with("HTTP/1.1 400 "), "{refused}");
        assert_eq!(Peer::Memory(7).to_string(), "-");
    });
}

/// Says when it is dropped.
struct Told(Arc<AtomicBool>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_client_that_is_dropped_ends_its_handler() {
    let has_ended = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&has_ended);
    let wait = move |_: Request| {
        let told = Told(Arc::clone(&told));
        async move {
            let _told = told;
            std::future::pending::<Response>().await
        }
    };
    let router = Router::new().get("/", wait).expect("a route");
    let lane = embed(router, Limits::default());
    lane.run_until(async {
        let mut client = connect(&lane, 0, false);
        client.write_all(GET.as_bytes()).await.expect("a peer");
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!has_ended.load(Ordering::Relaxed), "it waits");
        drop(client);
        let ended = async {
            while !has_ended.load(Ordering::Relaxed) {
                tokio::task::yield_now().await;
            }
        };
        // Far below what a peer has that may only have closed its sending side.
        let soon = Duration::from_secs(2);
        timeout(soon, ended).await.expect("it ends at once");
    });
}

#[test]
fn a_client_that_has_said_all_gets_its_answer() {
    let answer = |_: Request| async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        Response::text("late")
    };
    let router = Router::new().get("/", answer).expect("a route");
    let lane = embed(router, Limits::default());
    lane.run_until(async {
        let mut client = connect(&lane, 0, false);
        client.write_all(GET.as_bytes()).await.expect("a peer");
        client.shutdown().await.expect("a peer");
        let mut answer = String::new();
        let read = timeout(PATIENCE, client.read_to_string(&mut answer)).await;
        read.expect("an end in time").expect("no reset");
        assert!(answer.ends_with("\r\n\r\nlate"), "{answer}");
    });
}

/// A body that breaks off after its first piece.
struct Broken(bool);

impl HttpBody for Broken {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(Some(Err(BodyError::Producer)));
        }
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"piece")))))
    }
}

#[test]
fn an_answer_that_breaks_off_is_a_reset() {
    let breaks =
        inline(|_: Request| Response::new(StatusCode::OK).with_body(Body::custom(Broken(false))));
    let router = Router::new().get("/", breaks).expect("a route");
    let lane = embed(router, Limits::default());
    lane.run_until(async {
        // To HTTP/1.0 the end of the connection is that of the answer.
        let mut client = connect(&lane, 0, false);
        let request = b"GET / HTTP/1.0\r\nHost: a\r\n\r\n";
        client.write_all(request).await.expect("a peer");
        let mut answer = Vec::new();
        let end = timeout(PATIENCE, client.read_to_end(&mut answer)).await;
        let error = end.expect("an end in time").expect_err("a reset");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn servers_that_share_a_loop_keep_their_limits_and_their_ends() {
    let length = async |request: Request| match request.bytes().await {
        Ok(bytes) => Response::text(bytes.len().to_string()),
        Err(_) => Response::new(StatusCode::PAYLOAD_TOO_LARGE),
    };
    let router = || Router::new().post("/", length).expect("a route");
    let small = Limits {
        max_body_bytes: 10,
        ..Limits::default()
    };
    let first = embed(router(), Limits::default());
    let second = Server::new(router()).limits(small).unbound();
    let second = second.and_then(|bound| bound.embed_beside(&first));
    let (second, life) = second.expect("a second lane");
    let body = "x".repeat(100);
    let request = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 100\r\n\r\n{body}"
    );
    first.run_until(async {
        spawn_local(life);
        let large = exchange(connect(&first, 0, false), &request).await;
        assert!(large.ends_with("\r\n100"), "{large}");
        let refused = exchange(connect(&second, 0, false), &request).await;
        assert!(refused.starts_with("HTTP/1.1 413 "), "{refused}");
        second.drain();
        timeout(PATIENCE, second.ended()).await.expect("an end");
        assert!(second.report().is_some_and(|report| report.finished));
        assert!(first.report().is_none(), "the other one goes on");
    });
    drop(second);
    let again = first.run_until(async { exchange(connect(&first, 1, false), &request).await });
    assert!(again.ends_with("\r\n100"), "{again}");
}

#[test]
fn a_server_with_addresses_has_a_loop_of_its_own() {
    let first = embed(Router::new(), Limits::default());
    let second =
        Server::new(Router::new()).listen(justapi_core::Listen::Tcp(([127, 0, 0, 1], 0).into()));
    let second = second.bind().and_then(|bound| bound.embed_beside(&first));
    assert!(second.is_err(), "nobody would accept its connections");
}
