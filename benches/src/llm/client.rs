//! The client of one model server: connections that are kept, one attempt with its instants, and
//! the small questions beside the measurement.
//!
//! Guarantee: each attempt ends in exactly one class, within its time limit.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Request, Response, Uri};
use serde_json::Value;

use super::completion::{Completion, StreamEnd, shorten};
use super::outcome::ServingOutcome;
use super::transport::{Connection, SocketClock};
use crate::Error;
use crate::load::Target;

/// Path of chat completions.
const COMPLETIONS_PATH: &str = "/v1/chat/completions";

/// How often a wait looks at its deadline and at Ctrl-C.
const TICK: Duration = Duration::from_millis(20);

/// How long the end of a message may take after `[DONE]` before its connection is given up.
const DRAIN: Duration = Duration::from_millis(100);

/// Limit for the answer to a question beside the measurement, and its time.
const MAX_ANSWER_BYTES: usize = 16 * 1024 * 1024;
const QUESTION_LIMIT: Duration = Duration::from_mins(1);

/// Bytes read of the body of a refusal.
const MAX_REFUSAL_BYTES: usize = 16 * 1024;

/// A client of one server.
pub(super) struct Client {
    target: Target,
    base_path: String,
    host: HeaderValue,
    authorization: Option<HeaderValue>,
    timeout: Duration,
    usage_is_needed: bool,
    keep_alive: bool,
    stop: Arc<AtomicBool>,
    idle: RefCell<Vec<Connection>>,
}

/// What is fixed about a client.
pub(super) struct ClientSettings {
    pub(super) target: Target,
    pub(super) base_path: String,
    pub(super) api_key: Option<String>,
    pub(super) timeout: Duration,
    pub(super) usage_is_needed: bool,
    pub(super) keep_alive: bool,
    pub(super) stop: Arc<AtomicBool>,
}

/// One request, its instants and what came back.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) outcome: ServingOutcome,
    pub(super) status: Option<u16>,
    /// What the server or the system said about a failure.
    pub(super) detail: Option<String>,
    /// Intended instant, in an open loop.
    pub(super) scheduled: Option<Instant>,
    /// First byte of the request written.
    pub(super) sent: Option<Instant>,
    /// Head of the response complete.
    pub(super) head: Option<Instant>,
    /// Time to connect, when this request had to.
    pub(super) connect: Option<Duration>,
    /// Whether the connection had carried a request before.
    pub(super) reused: bool,
    pub(super) completion: Completion,
    /// Stamps of the connection that has the request.
    pub(super) clock: Option<Rc<SocketClock>>,
    /// End of the message, or of the attempt.
    pub(super) ended: Instant,
}

/// How a limited wait ended.
enum Ended<T> {
    Done(T),
    TimedOut,
    Stopped,
}

impl Attempt {
    fn new(scheduled: Option<Instant>) -> Self {
        Self {
            outcome: ServingOutcome::Interrupted,
            status: None,
            detail: None,
            scheduled,
            sent: None,
            head: None,
            connect: None,
            reused: false,
            completion: Completion::default(),
            clock: None,
            ended: Instant::now(),
        }
    }
}

impl Client {
    pub(super) fn new(settings: ClientSettings) -> Result<Self, Error> {
        let header = |text: &str, field| {
            HeaderValue::from_str(text).map_err(|_| Error::LoadPlan {
                field,
                problem: "cannot be a header value",
            })
        };
        let probe = format!("{}{COMPLETIONS_PATH}", settings.base_path);
        if probe.parse::<Uri>().is_err() {
            return Err(Error::LoadPlan {
                field: "url",
                problem: "its path cannot be requested",
            });
        }
        let authorization = match &settings.api_key {
            Some(key) => {
                let mut value = header(&format!("Bearer {key}"), "api key")?;
                value.set_sensitive(true);
                Some(value)
            }
            None => None,
        };
        Ok(Self {
            host: header(&settings.target.host, "url")?,
            target: settings.target,
            base_path: settings.base_path,
            authorization,
            timeout: settings.timeout,
            usage_is_needed: settings.usage_is_needed,
            keep_alive: settings.keep_alive,
            stop: settings.stop,
            idle: RefCell::default(),
        })
    }

    /// Connects once, to tell a server that is not there from one that fails.
    ///
    /// # Errors
    ///
    /// [`Error::ModelServer`].
    pub(super) async fn reach(&self) -> Result<(), Error> {
        let failed = |problem: String| Error::ModelServer {
            path: self.base_path.clone() + "/",
            problem,
        };
        match self.limited(Connection::open(&self.target)).await {
            Ended::Done(Ok((connection, _))) => {
                self.idle.borrow_mut().push(connection);
                Ok(())
            }
            Ended::Done(Err(error)) => Err(failed(error.to_string())),
            Ended::TimedOut => Err(failed("no connection in time".to_owned())),
            Ended::Stopped => Err(Error::Interrupted),
        }
    }

    /// Whether the run is to end.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Connects ahead of the measurement, for as many requests as will be sent at once.
    ///
    /// A server that cannot be connected to is found out by the attempts.
    pub(super) async fn prepare_connections(&self, count: usize) {
        let mut ready = Vec::with_capacity(count);
        while ready.len() < count {
            let Some(connection) = self.usable_connection().await else {
                break;
            };
            ready.push(connection);
        }
        while ready.len() < count {
            match self.limited(Connection::open(&self.target)).await {
                Ended::Done(Ok((connection, _))) => ready.push(connection),
                _ => break,
            }
        }
        *self.idle.borrow_mut() = ready;
    }

    /// Asks for a completion and reads its stream.
    pub(super) async fn complete(&self, body: Bytes, scheduled: Option<Instant>) -> Attempt {
        let mut attempt = Attempt::new(scheduled);
        let ended = self.limited(self.exchange(body, &mut attempt)).await;
        attempt.outcome = match ended {
            Ended::Done(outcome) => outcome,
            Ended::TimedOut => ServingOutcome::Timeout,
            Ended::Stopped => ServingOutcome::Interrupted,
        };
        attempt.sent = attempt.clock.take().and_then(|clock| clock.sent());
        let is_whole = matches!(
            attempt.outcome,
            ServingOutcome::Ok | ServingOutcome::UsageMissing
        );
        if !is_whole {
            attempt.ended = Instant::now();
        }
        attempt
    }

    /// GETs a document; `None` unless the answer is 200.
    pub(super) async fn get(&self, path: &str) -> Option<Bytes> {
        let (status, body) = self.ask("GET", path, Bytes::new()).await.ok()?;
        (status == 200).then_some(body)
    }

    /// POSTs a question; the status and the answer, `null` where it is not JSON.
    ///
    /// # Errors
    ///
    /// [`Error::ModelServer`] when there is no answer at all.
    pub(super) async fn post(&self, path: &str, question: &Value) -> Result<(u16, Value), Error> {
        let body = Bytes::from(question.to_string());
        let (status, answer) = self.ask("POST", path, body).await?;
        Ok((
            status,
            serde_json::from_slice(&answer).unwrap_or(Value::Null),
        ))
    }

    async fn ask(&self, method: &str, path: &str, body: Bytes) -> Result<(u16, Bytes), Error> {
        let failed = |problem: String| Error::ModelServer {
            path: path.to_owned(),
            problem,
        };
        let exchange = async {
            let mut unmeasured = Attempt::new(None);
            let sent = self.send(method, path, "application/json", body, &mut unmeasured);
            let (mut connection, response) = sent.await.map_err(|error| error.to_string())?;
            let response = response.map_err(|error| error.to_string())?;
            let status = response.status().as_u16();
            let mut body = response.into_body();
            let answer = read_to_end(&mut connection, &mut body, MAX_ANSWER_BYTES).await;
            let answer = answer.ok_or("the answer is too long or breaks off")?;
            self.idle.borrow_mut().push(connection);
            Ok::<_, String>((status, answer))
        };
        let limit = QUESTION_LIMIT.min(self.timeout);
        match within(limit, &self.stop, exchange).await {
            Ended::Done(result) => result.map_err(failed),
            Ended::TimedOut => Err(failed("no answer in time".to_owned())),
            Ended::Stopped => Err(Error::Interrupted),
        }
    }

    async fn limited<T>(&self, work: impl Future<Output = T>) -> Ended<T> {
        within(self.timeout, &self.stop, work).await
    }

    async fn exchange(&self, body: Bytes, attempt: &mut Attempt) -> ServingOutcome {
        let sent = self
            .send("POST", COMPLETIONS_PATH, "text/event-stream", body, attempt)
            .await;
        let (mut connection, response) = match sent {
            Ok(sent) => sent,
            Err(error) => {
                attempt.detail = Some(error.to_string());
                return ServingOutcome::ConnectFailed;
            }
        };
        let response = match response {
            Ok(response) => response,
            Err(error) => {
                attempt.detail = Some(error.to_string());
                return ServingOutcome::ConnectionLost;
            }
        };
        attempt.head = connection.last_read();
        let status = response.status().as_u16();
        attempt.status = Some(status);
        let is_stream = response
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|value| value.as_bytes().starts_with(b"text/event-stream"));
        let mut body = response.into_body();
        if status != 200 || !is_stream {
            let text = read_to_end(&mut connection, &mut body, MAX_REFUSAL_BYTES).await;
            let text = text.unwrap_or_default();
            attempt.detail = Some(shorten(&String::from_utf8_lossy(&text)));
            return if status == 200 {
                ServingOutcome::InvalidStream
            } else {
                ServingOutcome::of_status(status)
            };
        }
        let end = read_completion(&mut connection, &mut body, attempt).await;
        attempt.ended = connection.last_read().unwrap_or_else(Instant::now);
        if let Some(fault) = attempt.completion.fault() {
            attempt.detail = Some(fault.to_owned());
        }
        let outcome = attempt.completion.outcome(end, self.usage_is_needed);
        let is_reusable = match end {
            StreamEnd::Clean => true,
            StreamEnd::Broken => false,
            StreamEnd::Settled => {
                let rest = read_to_end(&mut connection, &mut body, MAX_REFUSAL_BYTES);
                matches!(within(DRAIN, &self.stop, rest).await, Ended::Done(Some(_)))
            }
        };
        if is_reusable && self.keep_alive {
            self.idle.borrow_mut().push(connection);
        }
        outcome
    }

    /// Sends a request and waits for the head of its response.
    ///
    /// A kept connection may have been closed by a server that did not say so. When it swallows a
    /// request without a byte in return, a new one gets the request, once.
    async fn send(
        &self,
        method: &str,
        path: &str,
        accept: &'static str,
        body: Bytes,
        attempt: &mut Attempt,
    ) -> io::Result<(Connection, hyper::Result<Response<Incoming>>)> {
        if let Some(mut connection) = self.usable_connection().await {
            attempt.reused = connection.num_requests > 0;
            attempt.clock = Some(connection.clock());
            let request = self.request(method, path, accept, body.clone());
            let response = connection.send(request).await;
            if response.is_ok() || connection.last_read().is_some() {
                return Ok((connection, response));
            }
        }
        let (mut connection, took) = Connection::open(&self.target).await?;
        attempt.reused = false;
        attempt.connect = Some(took);
        attempt.clock = Some(connection.clock());
        let request = self.request(method, path, accept, body);
        let response = connection.send(request).await;
        Ok((connection, response))
    }

    async fn usable_connection(&self) -> Option<Connection> {
        loop {
            let mut connection = self.idle.borrow_mut().pop()?;
            if connection.is_usable().await {
                return Some(connection);
            }
        }
    }

    fn request(
        &self,
        method: &str,
        path: &str,
        accept: &'static str,
        body: Bytes,
    ) -> Request<Full<Bytes>> {
        let mut builder = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base_path))
            .header(HOST, self.host.clone())
            .header(ACCEPT, accept);
        if !self.keep_alive {
            builder = builder.header(CONNECTION, "close");
        }
        if let Some(value) = &self.authorization {
            builder = builder.header(AUTHORIZATION, value.clone());
        }
        if !body.is_empty() {
            builder = builder.header(CONTENT_TYPE, "application/json");
        }
        builder
            .body(Full::new(body))
            .expect("the parts were checked when the client was made")
    }
}

/// Reads a stream until it has ended or needs no more.
async fn read_completion(
    connection: &mut Connection,
    body: &mut Incoming,
    attempt: &mut Attempt,
) -> StreamEnd {
    loop {
        match connection.next_piece(body).await {
            Some(Ok((bytes, at))) => {
                if attempt.completion.read(&bytes, at) {
                    return StreamEnd::Settled;
                }
            }
            Some(Err(_)) => return StreamEnd::Broken,
            None => return StreamEnd::Clean,
        }
    }
}

/// The rest of a body; `None` when it is longer than `limit` or breaks off.
async fn read_to_end(
    connection: &mut Connection,
    body: &mut Incoming,
    limit: usize,
) -> Option<Bytes> {
    let mut whole = Vec::new();
    loop {
        match connection.next_piece(body).await {
            Some(Ok((bytes, _))) => whole.extend_from_slice(&bytes),
            Some(Err(_)) => return None,
            None => return Some(whole.into()),
        }
        if whole.len() > limit {
            return None;
        }
    }
}

/// Works until it is done, its time is up, or the run is stopped.
async fn within<T>(limit: Duration, stop: &AtomicBool, work: impl Future<Output = T>) -> Ended<T> {
    // The first tick takes a millisecond, in which much can be done.
    if stop.load(Ordering::Relaxed) {
        return Ended::Stopped;
    }
    let deadline = Instant::now() + limit;
    let mut work = pin!(work);
    let mut tick = tokio::time::interval(TICK.min(limit));
    poll_fn(|cx| {
        if let Poll::Ready(value) = work.as_mut().poll(cx) {
            return Poll::Ready(Ended::Done(value));
        }
        while tick.poll_tick(cx).is_ready() {
            if stop.load(Ordering::Relaxed) {
                return Poll::Ready(Ended::Stopped);
            }
            if Instant::now() >= deadline {
                return Poll::Ready(Ended::TimedOut);
            }
        }
        Poll::Pending
    })
    .await
}
