//! The codec over a wire of memory: cut at every byte, stalled, half-closed,
//! with writes that take little and flushes that wait.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use http::header::HeaderValue;
use http_body::Frame;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Builder;
use tokio::task::{LocalSet, yield_now};
use tokio::time::timeout;

use super::super::lane::{App, Lane};
use super::*;
use crate::handler::inline;
use crate::limits::Limits;
use crate::request::{Peer, Request as UserRequest};
use crate::response::Response;
use crate::router::Router;

/// What the peer does next.
#[derive(Debug, Clone)]
enum Piece {
    Data(Vec<u8>),
    /// Nothing, for one look at the socket.
    Pause,
    End,
    Reset,
}

/// A connection whose other side is a script.
#[derive(Debug, Clone)]
struct Wire(Rc<RefCell<Script>>);

#[derive(Debug)]
struct Script {
    incoming: VecDeque<Piece>,
    /// Bytes that one write takes.
    max_write: usize,
    /// Every other write finds the socket full.
    is_stuttering: bool,
    is_full: bool,
    /// As TLS does, bytes are kept until they are flushed.
    kept: Vec<u8>,
    /// Flushes that wait.
    num_waiting_flushes: usize,
    is_buffered: bool,
    written: Vec<u8>,
}

impl Wire {
    fn new(incoming: impl IntoIterator<Item = Piece>) -> Self {
        Self(Rc::new(RefCell::new(Script {
            incoming: incoming.into_iter().collect(),
            max_write: usize::MAX,
            is_stuttering: false,
            is_full: false,
            kept: Vec::new(),
            num_waiting_flushes: 0,
            is_buffered: false,
            written: Vec::new(),
        })))
    }

    fn with(self, change: impl FnOnce(&mut Script)) -> Self {
        change(&mut self.0.borrow_mut());
        self
    }

    /// What the peer has received, without the dates.
    fn received(&self) -> String {
        let script = self.0.borrow();
        let text = String::from_utf8_lossy(&script.written);
        let lines = text.split_inclusive('\n');
        lines.filter(|line| !line.starts_with("date: ")).collect()
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let incoming = &mut self.0.borrow_mut().incoming;
        match incoming.front_mut() {
            None => Poll::Pending,
            Some(Piece::Pause) => {
                incoming.pop_front();
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Some(Piece::End) => Poll::Ready(Ok(())),
            Some(Piece::Reset) => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            Some(Piece::Data(data)) => {
                let length = data.len().min(buffer.remaining());
                buffer.put_slice(&data[..length]);
                data.drain(..length);
                if data.is_empty() {
                    incoming.pop_front();
                }
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let script = &mut *self.0.borrow_mut();
        script.is_full = script.is_stuttering && !script.is_full;
        if script.is_full {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let length = bytes.len().min(script.max_write);
        let target = if script.is_buffered {
            &mut script.kept
        } else {
            &mut script.written
        };
        target.extend_from_slice(&bytes[..length]);
        Poll::Ready(Ok(length))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let all: Vec<u8> = pieces.iter().flat_map(|piece| piece.to_vec()).collect();
        self.poll_write(cx, &all)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let script = &mut *self.0.borrow_mut();
        if script.num_waiting_flushes > 0 && !script.kept.is_empty() {
            script.num_waiting_flushes -= 1;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        script.written.append(&mut script.kept);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}

impl Transport for Wire {
    /// Nothing waits in memory.
    fn discard_unsent(&self) {}
}

/// How serving a script ended.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    Complete,
    Upgrade,
    Gone,
    Broken,
    Refused,
    /// The server waits for the peer.
    Waiting,
}

/// Serves `wire` until the connection has ended.
fn serve(router: Router, wire: &Wire) -> Ended {
    serve_until(router, wire, |_| false)
}

/// Serves `wire` until the connection has ended, or `done` holds while the
/// server waits.
fn serve_until(router: Router, wire: &Wire, done: impl Fn(&Script) -> bool) -> Ended {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    LocalSet::new().block_on(&runtime, async {
        let lane = Lane::new(Arc::new(App::new(router, Limits::DEFAULT, 1)), 0);
        let connection = Connection::new(lane, Peer::Unknown, false, Instant::now());
        let mut server = Http1::new(wire.clone(), connection, Vec::new());
        let served = poll_fn(|cx| match server.poll(cx) {
            Poll::Pending if done(&wire.0.borrow()) => Poll::Ready(Ended::Waiting),
            Poll::Pending => Poll::Pending,
            Poll::Ready(end) => Poll::Ready(match end {
                End::Complete => Ended::Complete,
                End::Upgrade(_) => Ended::Upgrade,
                End::Gone => Ended::Gone,
                End::Broken => Ended::Broken,
                End::Refused(_) => Ended::Refused,
                End::Missed(_) => unreachable!("nobody watches the time"),
            }),
        });
        let ended = timeout(Duration::from_secs(10), served).await;
        ended.unwrap_or_else(|_| panic!("it hangs: {:?}", wire.received()))
    })
}

fn data(bytes: impl AsRef<[u8]>) -> Piece {
    Piece::Data(bytes.as_ref().to_vec())
}

const PLAIN: HeaderValue = HeaderValue::from_static("text/plain");

async fn length(request: UserRequest) -> Response {
    match request.bytes().await {
        Ok(bytes) => Response::text(format!("{}:{}", bytes.len(), bytes.escape_ascii())),
        Err(error) => {
            Response::text(format!("{error:?}")).with_status(http::StatusCode::BAD_REQUEST)
        }
    }
}

/// Reads its body in another task, and only after a while.
async fn late(request: UserRequest) -> Response {
    let task = tokio::task::spawn_local(async move {
        for _ in 0..3 {
            yield_now().await;
        }
        length(request).await
    });
    task.await.expect("it does not panic")
}

/// Sends its body back while it comes.
fn reflect(request: UserRequest) -> Response {
    Response::with_content(PLAIN, request.into_body())
}

fn router() -> Router {
    Router::new()
        .get("/ok", inline(|_: UserRequest| "ok"))
        .and_then(|router| router.post("/length", length))
        .and_then(|router| router.post("/late", late))
        .and_then(|router| router.post("/reflect", inline(reflect)))
        .and_then(|router| {
            router.get(
                "/stream",
                inline(|_: UserRequest| stream(&["", "one", "", "two"])),
            )
        })
        .and_then(|router| {
            router.get("/wait", async |_: UserRequest| {
                for _ in 0..5 {
                    yield_now().await;
                }
                "waited"
            })
        })
        .expect("different routes")
}

fn stream(chunks: &'static [&'static str]) -> Response {
    let (sender, body) = Body::channel(1);
    tokio::task::spawn_local(async move {
        for chunk in chunks {
            sender.send(*chunk).await.expect("a reader");
        }
    });
    Response::with_content(PLAIN, body)
}

/// Requests of every kind whose answers do not depend on how they are cut.
const CONVERSATION: &str = "\r\nGET /ok HTTP/1.1\r\nHost: a\r\n\r\n\
    POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello\
    POST /length HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
    3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n\
    HEAD /stream HTTP/1.1\r\nHost: a\r\n\r\n\
    GET /stream HTTP/1.1\r\nHost: a\r\n\r\n\
    POST /late HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\nGET / HTTP/1\
    GET /wait HTTP/1.1\r\nHost: a\r\n\r\n\
    POST /late HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n\
    GET /none HTTP/1.1\r\nHost: a\r\n\r\n\
    GET /ok HTTP/1.0\r\nConnection: keep-alive\r\n\r\n\
    POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nConnection: close\r\n\r\nend\
    GET /ok HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn where_requests_are_cut_does_not_show_in_the_answers() {
    let whole = Wire::new([data(CONVERSATION)]);
    assert_eq!(serve(router(), &whole), Ended::Complete);
    let expected = whole.received();
    assert_eq!(expected.matches("HTTP/1.").count(), 11, "{expected}");
    assert!(expected.contains("13:abc0123456789"), "{expected}");
    assert!(
        expected.contains("3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"),
        "{expected}"
    );
    let bytes = CONVERSATION.as_bytes();
    for cut in 1..bytes.len() {
        let (first, second) = bytes.split_at(cut);
        let wire = Wire::new([data(first), Piece::Pause, data(second)]);
        assert_eq!(serve(router(), &wire), Ended::Complete, "cut at {cut}");
        assert_eq!(wire.received(), expected, "cut at {cut}");
    }
    let drip = bytes.iter().flat_map(|byte| [data([*byte]), Piece::Pause]);
    for max_write in [1, 7, usize::MAX] {
        let wire = Wire::new(drip.clone()).with(|script| {
            script.max_write = max_write;
            script.is_stuttering = true;
        });
        assert_eq!(serve(router(), &wire), Ended::Complete);
        assert_eq!(wire.received(), expected, "writes of {max_write}");
    }
}

/// A body that goes back while it comes loses nothing, whatever its size.
#[test]
fn a_body_that_is_sent_back_is_whole() {
    for size in [1, 4095, 4096, 4097, 16_384, 32_767, 100_000, 300_000] {
        let body: String = (0..size)
            .map(|index| char::from(b'a' + (index / 1000 % 26) as u8))
            .collect();
        let head = format!("POST /reflect HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n");
        for max_write in [997, usize::MAX] {
            for pieces in [
                vec![data(format!("{head}{body}"))],
                vec![data(&head), Piece::Pause, data(&body)],
                vec![data(format!("{head}{}", &body[..1])), data(&body[1..])],
            ] {
                let pieces: Vec<_> = pieces
                    .into_iter()
                    .chain([Piece::Pause, Piece::End])
                    .collect();
                let wire = Wire::new(pieces).with(|script| {
                    script.max_write = max_write;
                    script.is_stuttering = true;
                });
                assert_eq!(serve(router(), &wire), Ended::Complete);
                let received = wire.received();
                let (_, content) = received.split_once("\r\n\r\n").expect("a head");
                assert!(content == body, "{size}: {} of the body", content.len());
            }
        }
    }
}

/// Chunks around the sizes up to which they are copied, behind a large head.
#[test]
fn pieces_of_every_size_are_framed_right() {
    const SIZES: [usize; 10] = [0, 1, 4095, 4096, 4097, 16_383, 16_384, 16_385, 0, 40_000];
    let large_head = "h".repeat(70_000);
    let sizes = SIZES.into_iter().filter(|size| *size > 0);
    let chunks = sizes.map(|size| format!("{size:x}\r\n{}\r\n", "p".repeat(size)));
    let expected = chunks.chain(["0\r\n\r\n".to_owned()]).collect::<String>();
    for (max_write, is_stuttering) in [(1000, true), (4099, false), (usize::MAX, true)] {
        let value = HeaderValue::try_from(large_head.as_str()).expect("a text");
        let pieces = move |_: UserRequest| {
            let (sender, body) = Body::channel(3);
            tokio::task::spawn_local(async move {
                for size in SIZES {
                    sender.send("p".repeat(size)).await.expect("a reader");
                }
            });
            Response::with_content(PLAIN, body).with_header(http::header::SERVER, value.clone())
        };
        let router = Router::new().get("/", inline(pieces)).expect("one route");
        let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let wire = Wire::new([data(request)]).with(|script| {
            script.max_write = max_write;
            script.is_stuttering = is_stuttering;
        });
        assert_eq!(serve(router, &wire), Ended::Complete);
        let received = wire.received();
        assert!(received.contains(&large_head));
        let (_, content) = received.split_once("\r\n\r\n").expect("a head");
        assert!(content == expected, "writes of {max_write}");
    }
}

/// TLS takes the last bytes before its socket does.
#[test]
fn the_last_bytes_of_an_answer_are_flushed_before_the_next_request_is_awaited() {
    for (path, end) in [("/ok", "\r\n\r\nok"), ("/stream", "two\r\n0\r\n\r\n")] {
        for num_waiting_flushes in 0..4 {
            let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
            let wire = Wire::new([data(request)]).with(|script| {
                script.is_buffered = true;
                script.num_waiting_flushes = num_waiting_flushes;
            });
            let is_flushed = |script: &Script| script.written.ends_with(end.as_bytes());
            assert_eq!(serve_until(router(), &wire, is_flushed), Ended::Waiting);
        }
    }
}

/// A body that panics when its second piece is asked for.
struct Panics(bool);

impl http_body::Body for Panics {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        assert!(!self.0, "a bug in a body");
        self.0 = true;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"part")))))
    }
}

#[test]
fn a_body_that_panics_breaks_its_message_off() {
    let router = || {
        let body = |_: UserRequest| Response::with_content(PLAIN, Body::custom(Panics(false)));
        Router::new().get("/", inline(body)).expect("one route")
    };
    let wire = Wire::new([data("GET / HTTP/1.1\r\nHost: a\r\n\r\n")]);
    assert_eq!(serve(router(), &wire), Ended::Complete);
    assert!(
        wire.received().ends_with("\r\n\r\n4\r\npart\r\n"),
        "{}",
        wire.received()
    );
    let wire = Wire::new([data("GET / HTTP/1.0\r\n\r\n")]);
    assert_eq!(serve(router(), &wire), Ended::Broken);
}

/// What an upgrade's peer sent ahead, in one packet with its head or later.
#[test]
fn an_upgrade_keeps_what_came_early_and_says_no_close() {
    let accept = |_: UserRequest| {
        let mut response = Response::new(http::StatusCode::SWITCHING_PROTOCOLS).with_header(
            http::header::CONNECTION,
            HeaderValue::from_static("upgrade"),
        );
        let upgrade = OnUpgrade::new(|_| Box::pin(async {}));
        response.extensions_mut().insert(upgrade);
        response
    };
    for is_draining in [false, true] {
        let router = Router::new().get("/", inline(accept)).expect("one route");
        let wire = Wire::new([data(
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nearly",
        )]);
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let unread = LocalSet::new().block_on(&runtime, async {
            let lane = Lane::new(Arc::new(App::new(router, Limits::DEFAULT, 1)), 0);
            lane.draining_since.set(is_draining.then(Instant::now));
            let connection = Connection::new(lane, Peer::Unknown, false, Instant::now());
            let mut server = Http1::new(wire.clone(), connection, Vec::new());
            let end = poll_fn(|cx| server.poll(cx)).await;
            assert!(matches!(end, End::Upgrade(_)));
            server.into_parts().1
        });
        assert_eq!(unread, b"early");
        let head = wire.received();
        assert!(head.contains("\r\nconnection: upgrade\r\n"), "{head}");
        assert!(!head.contains("close"), "{head}");
    }
}

/// A reader on another thread gets every byte, and the answer goes out.
#[test]
fn a_body_may_be_read_on_another_thread() {
    let elsewhere = async |request: UserRequest| {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let body = request.into_body();
        std::thread::spawn(move || {
            let runtime = Builder::new_current_thread().build().expect("a runtime");
            let bytes = runtime.block_on(body.bytes());
            sender
                .send(bytes.map(|bytes| bytes.len()))
                .expect("a waiting handler");
        });
        let length = receiver.await.expect("the thread answers");
        format!("{length:?}")
    };
    let router = Router::new().post("/", elsewhere).expect("one route");
    let body = vec![b'x'; 200_000];
    let head = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let pieces = body
        .chunks(3000)
        .flat_map(|piece| [Piece::Pause, data(piece)]);
    let wire = Wire::new(std::iter::once(data(head)).chain(pieces));
    assert_eq!(serve(router, &wire), Ended::Complete);
    assert!(
        wire.received().ends_with("\r\n\r\nOk(200000)"),
        "{}",
        wire.received()
    );
}

/// A reader that outlives its answer is told that no more will come.
#[test]
fn a_reader_that_outlives_the_answer_learns_that_the_body_is_cut_off() {
    let (sender, fate) = std::sync::mpsc::channel();
    let forget = inline(move |request: UserRequest| {
        let sender = sender.clone();
        std::thread::spawn(move || {
            let runtime = Builder::new_current_thread().build().expect("a runtime");
            let result = runtime.block_on(request.into_body().bytes());
            sender.send(result.is_err()).expect("a waiting test");
        });
        "answered"
    });
    let router = Router::new().post("/", forget).expect("one route");
    let request = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf";
    let wire = Wire::new([data(request)]);
    assert_eq!(serve(router, &wire), Ended::Complete);
    assert!(wire.received().contains("connection: close"));
    assert!(wire.received().ends_with("answered"));
    assert_eq!(fate.recv_timeout(Duration::from_secs(5)), Ok(true));
}

/// The peer's departure ends a handler; half a body ends it too.
#[test]
fn departures_end_what_is_left() {
    let cases = [
        (
            "GET /wait HTTP/1.1\r\nHost: a\r\n\r\n",
            Piece::Reset,
            Ended::Gone,
            "",
        ),
        (
            "GET /wait HTTP/1.1\r\nHost: a\r\n\r\n",
            Piece::End,
            Ended::Complete,
            "waited",
        ),
        ("GET /wait HT", Piece::End, Ended::Complete, ""),
        ("GET /wait HT", Piece::Reset, Ended::Gone, ""),
        (
            "POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf",
            Piece::End,
            Ended::Complete,
            "Incomplete",
        ),
        (
            "POST /late HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf",
            Piece::End,
            Ended::Complete,
            "Incomplete",
        ),
        (
            "POST /late HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf",
            Piece::Reset,
            Ended::Gone,
            "",
        ),
    ];
    for (request, departure, expected, contains) in cases {
        let wire = Wire::new([data(request), Piece::Pause, departure]);
        assert_eq!(serve(router(), &wire), expected, "{request}");
        let received = wire.received();
        assert!(received.contains(contains), "{request}: {received}");
        assert_eq!(
            received.is_empty(),
            contains.is_empty(),
            "{request}: {received}"
        );
    }
}
