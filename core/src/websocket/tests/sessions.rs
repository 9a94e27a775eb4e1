//! Whole sessions over an in-memory connection: closing, keep-alive, drain,
//! backpressure.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

use super::super::WebSocket;
use super::super::decoder::Control;
use super::super::limits::{MAX_QUEUED_CONTROL_BYTES, WebSocketLimits};
use super::super::message::CloseCode;
use super::super::runner::run;
use super::super::session::Session;
use super::super::writer::Writer;
use super::{close, frame, server_frames, text};
use crate::error::WebSocketError;
use crate::upgrade::{Host, Upgraded};

/// Long enough that no test reaches it, short enough that none hangs.
const LONG: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(20);

const LIMITS: WebSocketLimits = WebSocketLimits {
    ping_interval: Some(LONG),
    pong_timeout: LONG,
    write_timeout: LONG,
    close_timeout: LONG,
    ..WebSocketLimits::DEFAULT
};

/// A server that drains when it is told to.
#[derive(Default)]
struct TestHost {
    is_draining: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    num_panics: Cell<u32>,
}

impl TestHost {
    fn drain(&self) {
        self.is_draining.set(true);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Host for TestHost {
    fn poll_draining(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_draining.get() {
            return Poll::Ready(());
        }
        *self.waker.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }

    fn panicked(&self) {
        self.num_panics.set(self.num_panics.get() + 1);
    }
}

/// The client's end of a session, and the host of the other.
struct Client {
    stream: DuplexStream,
    host: Rc<TestHost>,
}

impl Client {
    async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream
            .write_all(bytes.as_ref())
            .await
            .expect("the server reads");
    }

    /// Everything up to the end of the server's direction, as frames.
    async fn finish(mut self) -> Vec<(u8, Vec<u8>)> {
        let mut bytes = Vec::new();
        self.stream
            .read_to_end(&mut bytes)
            .await
            .expect("memory does not fail");
        server_frames(&bytes)
    }
}

/// Runs `serve` on one end, `talk` on the other, until both have ended.
fn session<T, Serving, Talking>(
    limits: WebSocketLimits,
    serve: impl FnOnce(WebSocket) -> Serving,
    talk: impl FnOnce(Client) -> Talking,
) -> (T, u32)
where
    Serving: Future<Output = ()>,
    Talking: Future<Output = T>,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime starts");
    let (server, stream) = duplex(1024);
    let host = Rc::new(TestHost::default());
    let upgraded = Upgraded::new(server, Bytes::new(), Rc::clone(&host) as Rc<dyn Host>);
    let session = Session::new(upgraded, limits, None);
    let client = Client {
        stream,
        host: Rc::clone(&host),
    };
    let running = run(session, None, limits.close_timeout, serve);
    let result = runtime.block_on(async {
        let both = join(running, talk(client));
        tokio::time::timeout(LONG, both)
            .await
            .expect("a session ends")
            .1
    });
    (result, host.num_panics.get())
}

/// Both results.
async fn join<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    let (mut a, mut b) = (Box::pin(a), Box::pin(b));
    let (mut first, mut second) = (None, None);
    std::future::poll_fn(|cx| {
        if first.is_none()
            && let Poll::Ready(value) = a.as_mut().poll(cx)
        {
            first = Some(value);
        }
        if second.is_none()
            && let Poll::Ready(value) = b.as_mut().poll(cx)
        {
            second = Some(value);
        }
        match (first.take(), second.take()) {
            (Some(first), Some(second)) => Poll::Ready((first, second)),
            (one, other) => {
                (first, second) = (one, other);
                Poll::Pending
            }
        }
    })
    .await
}

async fn echo(mut socket: WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        if socket.send(message).await.is_err() {
            break;
        }
    }
}

fn close_payload(code: u16, reason: &str) -> (u8, Vec<u8>) {
    let payload = [&code.to_be_bytes(), reason.as_bytes()].concat();
    (0x88, payload)
}

#[test]
fn messages_are_echoed_and_the_close_is_answered() {
    let (frames, _) = session(LIMITS, echo, |mut client| async move {
        client.send(text("Hello")).await;
        client.send(frame(0x89, b"are you there")).await;
        client.send(close(3001, b"enough")).await;
        client.finish().await
    });
    let expected = [
        (0x81, b"Hello".to_vec()),
        (0x8a, b"are you there".to_vec()),
        close_payload(3001, ""),
    ];
    assert_eq!(frames, expected);
}

#[test]
fn a_close_without_a_code_is_answered_without_one() {
    let (frames, _) = session(LIMITS, echo, |mut client| async move {
        client.send(frame(0x88, b"")).await;
        client.finish().await
    });
    assert_eq!(frames, [(0x88, Vec::new())]);
}

#[test]
fn after_a_close_nothing_is_read() {
    let (frames, _) = session(LIMITS, echo, |mut client| async move {
        let late = [
            frame(0x01, b"a"),
            close(1000, b""),
            frame(0x80, b"b"),
            text("c"),
        ];
        client.send(late.concat()).await;
        client.finish().await
    });
    assert_eq!(frames, [close_payload(1000, "")]);
}

#[test]
fn a_violation_is_told_to_both_sides() {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let told = Rc::clone(&seen);
    let serve = |mut socket: WebSocket| async move {
        while let Some(result) = socket.recv().await {
            told.borrow_mut().push(format!("{result:?}"));
        }
        let code = socket.close_frame().map(|frame| frame.code.as_u16());
        told.borrow_mut().push(format!("{code:?}"));
        let refused = socket.send("more").await;
        assert!(matches!(refused, Err(WebSocketError::Closed)));
    };
    let (frames, _) = session(LIMITS, serve, |mut client| async move {
        client.send([text("a"), frame(0x83, b"")].concat()).await;
        client.finish().await
    });
    assert_eq!(frames, [close_payload(1002, "the opcode is reserved")]);
    let expected = [
        "Ok(Text(\"a\"))",
        "Err(Violation { code: 1002, reason: \"the opcode is reserved\" })",
        "Some(1002)",
    ];
    assert_eq!(*seen.borrow(), expected);
}

#[test]
fn a_peer_that_vanishes_is_1006() {
    let serve = |mut socket: WebSocket| async move {
        assert!(matches!(
            socket.recv().await,
            Some(Err(WebSocketError::Lost { .. }))
        ));
        assert!(socket.recv().await.is_none());
        let frame = socket.close_frame().expect("it is closed");
        assert_eq!(frame.code, CloseCode::ABNORMAL);
    };
    session(LIMITS, serve, |client| async move { drop(client) });
}

#[test]
fn however_the_application_ends_the_close_code_says_it() {
    let returns = |_socket: WebSocket| async {};
    let panics = |socket: WebSocket| async move {
        let _socket = socket;
        panic!("the application fails");
    };
    let closes = |socket: WebSocket| socket_close(socket, CloseCode::POLICY_VIOLATION, "no");
    let talk = |mut client: Client| async move {
        client.send(close(1000, b"")).await;
        client.finish().await
    };
    let (frames, num_panics) = session(LIMITS, returns, talk);
    assert_eq!((frames, num_panics), (vec![close_payload(1000, "")], 0));
    let (frames, num_panics) = session(LIMITS, panics, talk);
    assert_eq!((frames, num_panics), (vec![close_payload(1011, "")], 1));
    let (frames, num_panics) = session(LIMITS, closes, talk);
    assert_eq!((frames, num_panics), (vec![close_payload(1008, "no")], 0));
}

async fn socket_close(socket: WebSocket, code: CloseCode, reason: &str) {
    socket.close(code, reason).await;
}

#[test]
fn a_long_reason_is_cut_between_characters() {
    let serve = |socket: WebSocket| async move {
        socket.close(CloseCode::NORMAL, &"é".repeat(100)).await;
    };
    let (frames, _) = session(LIMITS, serve, |mut client| async move {
        client.send(close(1000, b"")).await;
        client.finish().await
    });
    assert_eq!(frames, [close_payload(1000, &"é".repeat(61))]);
}

#[test]
fn a_peer_that_never_answers_a_close_is_left() {
    let limits = WebSocketLimits {
        close_timeout: SHORT,
        ..LIMITS
    };
    let serve = |_socket: WebSocket| async {};
    let (frames, _) = session(limits, serve, Client::finish);
    assert_eq!(frames, [close_payload(1000, "")]);
}

#[test]
fn a_drain_closes_with_1001() {
    let ended = |mut socket: WebSocket| async move {
        assert!(socket.recv().await.is_none(), "a drain is no failure");
        let frame = socket.close_frame().expect("it is closed");
        assert_eq!(frame.code, CloseCode::GOING_AWAY);
    };
    let (frames, _) = session(LIMITS, ended, |mut client| async move {
        // The server is waiting in `recv` by the time that this is read.
        client.send(frame(0x89, b"")).await;
        let mut pong = [0; 2];
        client.stream.read_exact(&mut pong).await.expect("a pong");
        client.host.drain();
        client.send(close(1001, b"")).await;
        client.finish().await
    });
    assert_eq!(frames, [close_payload(1001, "the server goes down")]);
}

#[test]
fn an_application_that_does_not_look_is_ended_by_a_drain() {
    let limits = WebSocketLimits {
        close_timeout: SHORT,
        ..LIMITS
    };
    let stuck = |socket: WebSocket| async move {
        let _socket = socket;
        std::future::pending::<()>().await;
    };
    let (frames, _) = session(limits, stuck, |client| async move {
        client.host.drain();
        client.finish().await
    });
    assert_eq!(frames, [close_payload(1001, "the server goes down")]);
}

#[test]
fn a_silent_peer_is_pinged_and_then_left() {
    let limits = WebSocketLimits {
        ping_interval: Some(SHORT),
        pong_timeout: SHORT,
        close_timeout: SHORT,
        ..LIMITS
    };
    let serve = |mut socket: WebSocket| async move {
        let result = socket.recv().await;
        assert!(
            matches!(result, Some(Err(WebSocketError::TimedOut { what: "pong" }))),
            "{result:?}"
        );
    };
    let (frames, _) = session(limits, serve, Client::finish);
    let expected = [(0x89, Vec::new()), close_payload(1011, "no pong came")];
    assert_eq!(frames, expected);
}

/// Pings and pongs are no use of a socket; messages are, in either direction.
#[test]
fn a_socket_without_messages_is_closed_with_1001() {
    let limits = WebSocketLimits {
        ping_interval: Some(SHORT / 4),
        idle_timeout: Some(3 * SHORT),
        ..LIMITS
    };
    let serve = |mut socket: WebSocket| async move {
        assert!(matches!(socket.recv().await, Some(Ok(_))));
        let result = socket.recv().await;
        assert!(
            matches!(
                result,
                Some(Err(WebSocketError::TimedOut { what: "message" }))
            ),
            "{result:?}"
        );
        assert!(socket.recv().await.is_none());
    };
    let (frames, _) = session(limits, serve, |mut client| async move {
        tokio::time::sleep(SHORT).await;
        client.send(text("used")).await;
        let mut frames = Vec::new();
        let mut head = [0; 2];
        loop {
            client.stream.read_exact(&mut head).await.expect("a frame");
            let mut payload = vec![0; usize::from(head[1])];
            let read = client.stream.read_exact(&mut payload).await;
            read.expect("a payload");
            match head[0] {
                0x89 => client.send(frame(0x8a, b"")).await,
                first => {
                    frames.push((first, payload));
                    client.send(close(1001, b"")).await;
                    break;
                }
            }
        }
        frames.extend(client.finish().await);
        frames
    });
    assert_eq!(
        frames,
        [close_payload(1001, "no message came for too long")]
    );
}

#[test]
fn a_message_over_the_buffer_is_refused_to_the_application_alone() {
    let limits = WebSocketLimits {
        max_buffer_bytes: 5,
        ..LIMITS
    };
    let serve = |mut socket: WebSocket| async move {
        let result = socket.send("123456").await;
        assert!(
            matches!(result, Err(WebSocketError::TooLarge { size: 6, limit: 5 })),
            "{result:?}"
        );
        socket.send("12345").await.expect("it fits");
    };
    let (frames, _) = session(limits, serve, |mut client| async move {
        client.send(close(1000, b"")).await;
        client.finish().await
    });
    assert_eq!(frames[0], (0x81, b"12345".to_vec()));
    assert_eq!(frames.len(), 2);
}

#[test]
fn a_peer_that_answers_pings_stays() {
    let limits = WebSocketLimits {
        ping_interval: Some(SHORT),
        pong_timeout: LONG,
        ..LIMITS
    };
    let (num_pings, _) = session(limits, echo, |mut client| async move {
        let mut num_pings = 0;
        while num_pings < 3 {
            let mut ping = [0; 2];
            client.stream.read_exact(&mut ping).await.expect("a ping");
            assert_eq!(ping, [0x89, 0]);
            client.send(frame(0x8a, b"")).await;
            num_pings += 1;
        }
        client.send(close(1000, b"")).await;
        client.finish().await;
        num_pings
    });
    assert_eq!(num_pings, 3);
}

#[test]
fn a_peer_that_does_not_read_is_left() {
    let limits = WebSocketLimits {
        write_timeout: SHORT,
        close_timeout: SHORT,
        ..LIMITS
    };
    let serve = |mut socket: WebSocket| async move {
        let result = socket.send(vec![0; 100_000]).await;
        assert!(
            matches!(result, Err(WebSocketError::TimedOut { what: "write" })),
            "{result:?}"
        );
        assert!(socket.recv().await.is_none());
    };
    session(limits, serve, |client| async move {
        // Held, not read.
        tokio::time::sleep(2 * SHORT).await;
        drop(client);
    });
}

#[test]
fn a_send_that_is_dropped_is_finished_by_the_next_call() {
    let serve = |mut socket: WebSocket| async move {
        let sent = tokio::time::timeout(SHORT, socket.send(vec![7; 50_000])).await;
        assert!(sent.is_err(), "nobody reads yet");
        echo(socket).await;
    };
    let (frames, _) = session(LIMITS, serve, |mut client| async move {
        tokio::time::sleep(2 * SHORT).await;
        client.send([text("next"), close(1000, b"")].concat()).await;
        client.finish().await
    });
    let expected = [
        (0x82, vec![7; 50_000]),
        (0x81, b"next".to_vec()),
        close_payload(1000, ""),
    ];
    assert_eq!(frames, expected);
}

#[test]
fn bytes_read_before_the_upgrade_come_first() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime starts");
    let (server, mut client) = duplex(1024);
    let host = Rc::new(TestHost::default());
    let upgraded = Upgraded::new(server, text("early").into(), host);
    let session = Session::new(upgraded, LIMITS, None);
    let frames = runtime.block_on(async {
        let talk = async {
            client.write_all(&close(1000, b"")).await.expect("read");
            let mut bytes = Vec::new();
            client.read_to_end(&mut bytes).await.expect("memory");
            drop(client);
            server_frames(&bytes)
        };
        join(run(session, None, LONG, echo), talk).await.1
    });
    assert_eq!(frames, [(0x81, b"early".to_vec()), close_payload(1000, "")]);
}

/// A peer may send a million pings and read none of the pongs.
#[test]
fn unread_pongs_do_not_pile_up() {
    let mut writer = Writer::new(None);
    for _ in 0..1_000_000 {
        writer.queue_pong(Control::EMPTY);
    }
    let mut wire = Vec::new();
    let mut cx = Context::from_waker(Waker::noop());
    let flushed = writer.poll_flush(Pin::new(&mut wire), &mut cx);
    assert!(flushed.is_ready() && writer.is_empty());
    assert!(
        wire.len() <= MAX_QUEUED_CONTROL_BYTES + 200,
        "{}",
        wire.len()
    );
}

#[test]
fn an_idle_session_is_small() {
    // Two control payloads of 125 bytes, and no buffer.
    assert!(size_of::<Session>() <= 1280, "{}", size_of::<Session>());
}
