//! Compressed forms of stored responses: made for the first client that asks,
//! and kept with the entry.
//!
//! Guarantees: what the server's compression would have made of a stored
//! response is what is kept and sent; a form counts against the cache's memory,
//! and goes with its entry.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{AGE, CONTENT_ENCODING, HeaderMap};
use http::{Method, StatusCode};
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::entry::{Entry, num_header_bytes};
use super::store::Store;
use crate::body::Body;
use crate::compression::{Accepted, Coding};
use crate::error::BodyError;
use crate::request::Request;
use crate::response::Response;
use crate::server::with_compression;

/// One compressed form of an entry.
#[derive(Debug)]
pub(super) struct Form {
    headers: HeaderMap,
    body: Bytes,
}

impl Form {
    /// The entry's answer in this form.
    pub(super) fn answer(&self, status: StatusCode) -> Response {
        let mut response = Response::new(status).with_body(self.body.clone());
        *response.headers_mut() = self.headers.clone();
        response
    }

    pub(super) fn num_bytes(&self) -> usize {
        self.body.len() + num_header_bytes(&self.headers)
    }
}

/// The forms that an entry has so far, one for each coding.
#[derive(Debug, Default)]
pub(super) struct Forms([OnceLock<Form>; Coding::ALL.len()]);

impl Forms {
    fn of(&self, coding: Coding) -> &OnceLock<Form> {
        &self.0[coding as usize]
    }

    /// Bytes that they hold, about.
    pub(super) fn num_bytes(&self) -> usize {
        let forms = self.0.iter().filter_map(OnceLock::get);
        forms.map(Form::num_bytes).sum()
    }

    /// Keeps `form`; whether there was none of its coding.
    pub(super) fn keep(&self, coding: Coding, form: Form) -> bool {
        self.of(coding).set(form).is_ok()
    }
}

/// Which form of a stored response a request gets.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wish {
    /// `None` where the server compresses nothing.
    accepted: Option<Accepted>,
    is_head: bool,
}

impl Wish {
    pub(super) fn of(request: &Request) -> Self {
        Self {
            accepted: with_compression(|_| Accepted::of(request.headers())),
            is_head: request.method() == Method::HEAD,
        }
    }

    /// What is wished for, if `entry` has it already.
    pub(super) fn form_of(self, entry: &Entry) -> Option<&Form> {
        entry.forms().of(self.accepted?.coding()?).get()
    }

    /// Turns `response`, made of `entry`, into the form that is wished for.
    ///
    /// As it is where the server would leave this response alone.
    pub(super) fn grant(
        self,
        store: &Arc<Store>,
        key: &[u8],
        entry: &Arc<Entry>,
        response: Response,
    ) -> Response {
        let Some((accepted, coding)) = self
            .accepted
            .and_then(|accepted| Some((accepted, accepted.coding()?)))
        else {
            return response;
        };
        // A 304 has none.
        if response.body().as_full().is_none_or(Bytes::is_empty) {
            return response;
        }
        if self.is_head {
            // Compressing it for its length alone is left to the server.
            return response;
        }
        let was_coded = response.headers().contains_key(CONTENT_ENCODING);
        let plain = response.body().as_full().cloned();
        let compressed = with_compression(|compression| {
            let plain = plain.map_or_else(Body::empty, Body::from);
            let status = response.status();
            let mut copy = Response::new(status).with_body(plain);
            *copy.headers_mut() = response.headers().clone();
            compression.apply(accepted, copy)
        });
        let Some(compressed) = compressed else {
            return response;
        };
        if was_coded || !compressed.headers().contains_key(CONTENT_ENCODING) {
            return response;
        }
        let keeper = Keeper {
            store: Arc::clone(store),
            key: key.into(),
            entry: Arc::clone(entry),
            coding,
            headers: without_age(compressed.headers()),
        };
        let full = compressed.body().as_full().cloned();
        if let Some(body) = full {
            keeper.keep(body);
            return compressed;
        }
        let (head, inner) = compressed.into_http().into_parts();
        let body = Body::custom(Kept {
            inner,
            collected: Vec::new(),
            keeper: Some(keeper),
        });
        http::Response::from_parts(head, body).into()
    }
}

fn without_age(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    headers.remove(AGE);
    headers
}

/// Where a form goes once it is whole.
#[derive(Debug)]
struct Keeper {
    store: Arc<Store>,
    key: Box<[u8]>,
    entry: Arc<Entry>,
    coding: Coding,
    headers: HeaderMap,
}

impl Keeper {
    fn keep(self, body: Bytes) {
        let form = Form {
            headers: self.headers,
            body,
        };
        self.store
            .keep_form(&self.key, &self.entry, self.coding, form);
    }
}

/// A large body on its way to the first client: a copy stays.
#[derive(Debug)]
struct Kept {
    inner: Body,
    collected: Vec<u8>,
    /// Until the form is kept, or has grown too large.
    keeper: Option<Keeper>,
}

impl HttpBody for Kept {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        let polled = Pin::new(&mut this.inner).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let (Some(data), Some(keeper)) = (frame.data_ref(), &this.keeper) {
                    this.collected.extend_from_slice(data);
                    if this.collected.len() > keeper.store.limits.max_entry_bytes {
                        this.keeper = None;
                        this.collected = Vec::new();
                    }
                }
            }
            Poll::Ready(Some(Err(_))) => this.keeper = None,
            Poll::Ready(None) => {
                if let Some(keeper) = this.keeper.take() {
                    keeper.keep(std::mem::take(&mut this.collected).into());
                }
            }
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        // The end has to be seen: it is what keeps the copy.
        self.keeper.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
