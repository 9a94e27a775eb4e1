//! The peer's side of an exchange: its request body, and its departure.
//!
//! Guarantees: body bytes are read only while somebody waits for them; a peer
//! that waits for `100 Continue` gets it then, and not when the answer is known
//! without the body; one that leaves is noticed while its handler works, and one
//! that resets even while nobody reads its body, or behind the end of it.

use std::io;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;

use super::{CONTINUE, Http1, Received, Work};
use crate::body::Body;
use crate::error::BodyError;
use crate::feed::{Feeder, feed};
use crate::gate::{AdmittedHead, Framing, Refusal};
use crate::server::connection::Waiting;
use crate::server::stream::Transport;

impl<S: Transport> Http1<S> {
    /// The body of the current request, which begins with `bytes`, and how many
    /// were taken.
    pub(super) fn take_first_of_body(
        &mut self,
        bytes: &[u8],
        admitted: &AdmittedHead,
        cx: &Context<'_>,
    ) -> (Body, usize) {
        let length = match admitted.framing {
            Framing::Fixed(length) => Some(length),
            _ => None,
        };
        let room = length.map_or(bytes.len() as u64, |length| length.min(bytes.len() as u64));
        let mut first = Vec::with_capacity(room as usize);
        let read = self
            .gate
            .read_body(bytes, &mut |data| first.extend_from_slice(data));
        let limit = self.connection.lane.app.limits.max_body_bytes;
        if !self.gate.is_in_body() && read.is_ok() {
            return (Body::whole(first.into(), limit), read.unwrap_or(0));
        }
        self.connection.begin_body();
        let (feeder, body) = feed(first.into(), length, cx.waker().clone());
        let taken = match read {
            Ok(taken) => {
                self.current().feeder = Some(feeder);
                taken
            }
            Err(refusal) => {
                self.refuse_body(&feeder, refusal);
                bytes.len()
            }
        };
        (Body::fed(body, limit), taken)
    }

    /// Ends a body that breaks a rule; its handler answers.
    fn refuse_body(&mut self, feeder: &Feeder, refusal: Refusal) {
        self.connection.count(refusal.reject);
        self.current().is_last = true;
        feeder.end(Err(BodyError::incomplete(refusal.detail)));
    }

    /// Reads away what is there of a body that nobody wants any more.
    pub(super) fn skip_body(&mut self, cx: &mut Context<'_>) {
        if !self.gate.is_in_body() || self.is_end {
            return;
        }
        let current = self.current();
        // The answer, or another task, may still read it.
        let is_kept = |feeder: &Feeder| !feeder.is_dropped();
        if current.awaits_continue || current.feeder.as_ref().is_some_and(is_kept) {
            return;
        }
        // A failure shows again when the answer is written.
        drop(self.poll_receive(cx, Self::take_body));
    }

    /// Watches the peer while an answer is made: more of its body, if somebody
    /// waits for it, or its departure. Ready when something has changed.
    pub(super) fn poll_peer(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_end {
            return self.poll_reset(cx);
        }
        if !self.gate.is_in_body() {
            if !self.input.is_empty() {
                return Poll::Pending;
            }
            let received = self.poll_receive(cx, |this, _, bytes| {
                this.input = bytes.to_vec();
                this.is_fresh = true;
            });
            return match received {
                Poll::Ready(Ok(Received::End)) => {
                    self.is_end = true;
                    let now = Instant::now();
                    self.connection.wait_for(Waiting::Departure, now);
                    self.poll_reset(cx)
                }
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Ready(Ok(Received::Taken(()))) | Poll::Pending => Poll::Pending,
            };
        }
        let current = self.current();
        let is_wanted = current.feeder.as_ref().is_some_and(Feeder::is_wanted);
        if !is_wanted {
            self.connection.waiting.set(Waiting::Nothing);
            return self.poll_reset(cx);
        }
        let is_unanswered = matches!(current.work, Work::Handler(_));
        if std::mem::take(&mut current.awaits_continue) && is_unanswered {
            let lane = &self.connection.lane;
            let buffer = self.output.start(|| lane.output.take());
            buffer.extend_from_slice(CONTINUE);
            return Poll::Ready(Ok(()));
        }
        let received = self.poll_receive(cx, |this, cx, bytes| {
            this.connection.note_body(bytes.len());
            this.take_body(cx, bytes);
        });
        match received {
            Poll::Pending => {
                if self.connection.waiting.get() != Waiting::Body {
                    self.connection.wait_for(Waiting::Body, Instant::now());
                }
                Poll::Pending
            }
            Poll::Ready(Ok(Received::Taken(()))) => Poll::Ready(Ok(())),
            Poll::Ready(Ok(Received::End)) => {
                self.is_end = true;
                self.connection.wait_for(Waiting::Departure, Instant::now());
                let current = self.current();
                current.is_last = true;
                // Dropping it tells the reader.
                current.feeder = None;
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
        }
    }

    /// Ready, with an error, once the peer has reset the connection, which
    /// nothing is read of.
    fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let transport = &self.transport;
        let reset = self.reset.get_or_insert_with(|| transport.reset());
        reset
            .as_mut()
            .poll(cx)
            .map(|()| Err(io::ErrorKind::ConnectionReset.into()))
    }

    /// Passes on body bytes; what lies behind the body becomes the input.
    fn take_body(&mut self, _: &mut Context<'_>, bytes: &[u8]) {
        let mut data = Vec::new();
        let read = self
            .gate
            .read_body(bytes, &mut |content| data.extend_from_slice(content));
        let is_complete = !self.gate.is_in_body();
        let current = self.current();
        if let Some(feeder) = &current.feeder {
            feeder.push(Bytes::from(data));
        }
        match read {
            Ok(taken) => {
                if is_complete && let Some(feeder) = current.feeder.take() {
                    feeder.end(Ok(()));
                }
                if taken < bytes.len() {
                    self.input = bytes[taken..].to_vec();
                    self.is_fresh = true;
                }
            }
            Err(refusal) => match current.feeder.take() {
                Some(feeder) => self.refuse_body(&feeder, refusal),
                None => current.is_last = true,
            },
        }
    }
}
