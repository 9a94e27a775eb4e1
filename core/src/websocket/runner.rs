//! Runs an application on a socket, and brings the socket to its end.
//!
//! Guarantee: however the application ends (it returns, panics, or does not
//! end when the server drains), the peer gets a Close frame with the right
//! code and the connection ends within the close timeout.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::sleep;

use super::WebSocket;
use super::message::CloseCode;
use super::session::Session;

/// Where a socket's session goes when the application drops the socket.
#[derive(Debug, Default)]
pub(super) struct Home {
    session: RefCell<Option<Box<Session>>>,
    waker: RefCell<Option<Waker>>,
}

impl Home {
    pub(super) fn give_back(&self, session: Box<Session>) {
        *self.session.borrow_mut() = Some(session);
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    fn poll_take(&self, cx: &mut Context<'_>) -> Poll<Box<Session>> {
        if let Some(session) = self.session.take() {
            return Poll::Ready(session);
        }
        *self.waker.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// How an application ended.
enum End {
    Returned,
    Panicked,
    /// It went on for too long after the server began to drain.
    Drained,
}

/// Serves `session` with `serve`, then closes it.
///
/// In a drain the application has the time of the closing handshake, and as
/// long again for what it does after it.
pub(super) async fn run<F, Fut>(
    session: Session,
    protocol: Option<Arc<str>>,
    close_timeout: Duration,
    serve: F,
) where
    F: FnOnce(WebSocket) -> Fut,
    Fut: Future<Output = ()>,
{
    let host = session.host();
    let home = Rc::new(Home::default());
    let socket = WebSocket::new(Box::new(session), &home, protocol);
    let mut application = Box::pin(async move { serve(socket).await });
    let mut drained = None;
    let end = poll_fn(|cx| {
        match catch_unwind(AssertUnwindSafe(|| application.as_mut().poll(cx))) {
            Ok(Poll::Ready(())) => return Poll::Ready(End::Returned),
            Ok(Poll::Pending) => {}
            Err(_) => return Poll::Ready(End::Panicked),
        }
        if drained.is_none() && host.poll_draining(cx).is_ready() {
            drained = Some(Box::pin(sleep(2 * close_timeout)));
        }
        match &mut drained {
            Some(timer) => timer.as_mut().poll(cx).map(|()| End::Drained),
            None => Poll::Pending,
        }
    })
    .await;
    drop(application);
    let (code, reason) = match end {
        End::Returned => (CloseCode::NORMAL, ""),
        End::Drained => (CloseCode::GOING_AWAY, "the server goes down"),
        End::Panicked => {
            host.panicked();
            (CloseCode::INTERNAL_ERROR, "")
        }
    };
    // The application may have moved its socket into another task.
    let mut session = poll_fn(|cx| home.poll_take(cx)).await;
    session.close(code, reason);
    poll_fn(|cx| session.poll_end(cx)).await;
}
