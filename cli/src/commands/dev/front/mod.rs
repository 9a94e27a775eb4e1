//! The server that clients of `justapi dev` talk to.
//!
//! Guarantees: it always answers. A request that came after a change of a file
//! is answered by code that has that change, or by the word that it does not
//! work; only after [`PATIENCE`] may the last good code answer, and says so. A
//! worker that goes takes no request along.

mod inject;
mod page;

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use justapi_core::header::CACHE_CONTROL;
use justapi_core::{
    Body, BoundAddress, DrainReport, Error, Event, Forwarder, HeaderName, HeaderValue,
    IntoResponse as _, Listen, Method, Request, Response, Router, Running, Server, ServerConfig,
    Sse, StatusCode,
};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

use self::inject::{EVENTS_PATH, SCRIPT, SCRIPT_PATH, ask_for_all, inject, is_for_a_document};
use self::page::Form;
use super::failure::Failure;
use super::gate::Gate;
use super::watch::{Handle, Stamp};

/// Longest time that a request waits for the verdict on new code.
const PATIENCE: Duration = Duration::from_secs(2);
/// Tells that the answer is of older code than the files are.
const STALE: HeaderName = HeaderName::from_static("x-justapi-stale");
/// More files than that are not looked at with each request: the watcher's word
/// has to do.
const MAX_LOOKED_AT: usize = 5000;

/// A worker as requests see it.
#[derive(Debug)]
pub(crate) struct Generation {
    forwarder: Forwarder,
    /// Requests that it has not begun to answer.
    num_waiting: AtomicUsize,
}

impl Generation {
    pub(crate) fn new(forwarder: Forwarder) -> Arc<Self> {
        Arc::new(Self {
            forwarder,
            num_waiting: AtomicUsize::new(0),
        })
    }

    /// Whether somebody waits for the head of an answer.
    pub(crate) fn is_awaited(&self) -> bool {
        self.num_waiting.load(Ordering::Acquire) > 0
    }
}

/// A request that waits for the head of its answer.
struct Waiting(Arc<Generation>);

impl Waiting {
    /// Counted at once: called while the state is locked, it keeps a worker that
    /// is about to be replaced until it has answered.
    fn for_answer(generation: &Arc<Generation>) -> Self {
        generation.num_waiting.fetch_add(1, Ordering::Acquire);
        Self(Arc::clone(generation))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.num_waiting.fetch_sub(1, Ordering::Release);
    }
}

/// A file that has been loaded, as it was then.
#[derive(Debug)]
struct Loaded {
    path: PathBuf,
    stamp: Stamp,
    /// How it looked when the watcher was last told of it.
    told: Option<Stamp>,
}

impl Loaded {
    fn of((path, stamp): &(PathBuf, Stamp)) -> Self {
        Self {
            path: path.clone(),
            stamp: *stamp,
            told: None,
        }
    }
}

/// What answers.
#[derive(Debug, Default)]
struct State {
    serving: Option<Arc<Generation>>,
    /// Why the newest code does not serve.
    failure: Option<Arc<Failure>>,
    loaded: Vec<Loaded>,
}

/// What pages hear of.
#[derive(Debug, Clone, Default)]
struct News {
    /// Of the code and the files that a page is made of.
    number: u64,
    styles: u64,
    failure: Option<Arc<Failure>>,
    is_stale: bool,
}

/// What the supervisor and the requests share.
#[derive(Debug)]
pub(crate) struct Front {
    pub(crate) gate: Arc<Gate>,
    watcher: Mutex<Option<Handle>>,
    state: Mutex<State>,
    news: watch::Sender<News>,
    /// Tells the numbers of this run from those of another.
    run: u32,
    root: PathBuf,
    has_live_reload: bool,
}

impl Front {
    pub(crate) fn new(root: PathBuf, has_live_reload: bool) -> Arc<Self> {
        Arc::new(Self {
            gate: Arc::new(Gate::new()),
            watcher: Mutex::new(None),
            state: Mutex::default(),
            news: watch::Sender::new(News::default()),
            run: std::process::id(),
            root,
            has_live_reload,
        })
    }

    /// Has the watcher told of files that do not look as they should.
    pub(crate) fn attach(&self, watcher: Handle) {
        *self.watcher.lock().unwrap_or_else(PoisonError::into_inner) = Some(watcher);
    }

    /// Has `generation` answer from now on; it has loaded these files.
    pub(crate) fn serve(&self, generation: Arc<Generation>, loaded: &[(PathBuf, Stamp)]) {
        let mut state = self.lock();
        state.serving = Some(generation);
        state.failure = None;
        state.loaded = loaded
            .iter()
            .take(MAX_LOOKED_AT + 1)
            .map(Loaded::of)
            .collect();
        drop(state);
        self.publish(true);
    }

    /// Notes that the newest code does not work, which these files are of.
    pub(crate) fn fail(&self, failure: Failure, loaded: &[(PathBuf, Stamp)]) {
        let mut state = self.lock();
        let has_none = state.serving.is_none();
        state.failure = Some(Arc::new(failure));
        // Those of the code that still serves, too.
        let is_known = |one: &Loaded| loaded.iter().any(|(path, _)| *path == one.path);
        state.loaded.retain(|one| !is_known(one));
        state.loaded.extend(loaded.iter().map(Loaded::of));
        drop(state);
        self.publish(has_none);
    }

    /// Whether the newest code does not work.
    pub(crate) fn has_failure(&self) -> bool {
        self.lock().failure.is_some()
    }

    /// Has nobody answer until there is somebody again.
    pub(crate) fn stop_serving(&self) {
        self.lock().serving = None;
    }

    /// Has pages load anew.
    pub(crate) fn reload_pages(&self) {
        self.news.send_modify(|news| news.number += 1);
    }

    /// Has pages take new style sheets.
    pub(crate) fn swap_styles(&self) {
        self.news.send_modify(|news| news.styles += 1);
    }

    /// Number of pages that listen.
    pub(crate) fn num_pages(&self) -> usize {
        self.news.receiver_count()
    }

    fn publish(&self, is_other_page: bool) {
        let state = self.lock();
        let (failure, is_stale) = (state.failure.clone(), state.serving.is_some());
        drop(state);
        self.news.send_modify(|news| {
            news.number += u64::from(is_other_page);
            news.is_stale = is_stale && failure.is_some();
            news.failure = failure;
        });
    }

    /// Closes the gate if a file that has been loaded is another one by now.
    ///
    /// What the watcher hears of comes a moment later; a client that saves and
    /// asks at once is faster.
    fn look(&self) {
        let mut suspects = Vec::new();
        let mut state = self.lock();
        if state.loaded.len() > MAX_LOOKED_AT {
            return;
        }
        for one in &mut state.loaded {
            let now = Stamp::of(&one.path);
            if now != one.stamp && one.told != Some(now) {
                one.told = Some(now);
                suspects.push(one.path.clone());
            }
        }
        if suspects.is_empty() {
            return;
        }
        // Before the lock is let go: whoever finds them told has to wait, too.
        let watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watcher) = &*watcher {
            self.gate.raise(|| watcher.suspect(suspects));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn number(&self, news: &News) -> String {
        format!("{:x}-{}", self.run, news.number)
    }

    async fn answer(self: Arc<Self>, mut request: Request) -> Response {
        self.look();
        let is_known = timeout(PATIENCE, self.gate.pass()).await.is_ok();
        let (serving, failure) = {
            let state = self.lock();
            let waiting = state.serving.as_ref().map(Waiting::for_answer);
            (waiting, state.failure.clone())
        };
        let has_worker = serving.is_some();
        let form = Form::wanted(request.headers());
        let is_document = self.has_live_reload && is_for_a_document(&request);
        // Of before the answer: one that changes meanwhile is not missed then.
        let number = self.number(&self.news.borrow());
        let is_head = request.method() == Method::HEAD;
        if is_document {
            ask_for_all(request.headers_mut());
        }
        let mut response = match (serving, &failure) {
            (Some(waiting), _) => {
                let answer = waiting.0.forwarder.forward(request).await;
                drop(waiting);
                match answer {
                    Ok(response) => response,
                    Err(own) if own.status().is_server_error() => {
                        let failure = Failure::new("the worker ended before it answered");
                        page::failed(own.status(), &failure, &self.root, form)
                    }
                    Err(own) => *own,
                }
            }
            (None, Some(failure)) => {
                let status = StatusCode::SERVICE_UNAVAILABLE;
                page::failed(status, failure, &self.root, form)
            }
            (None, None) => page::starting(form),
        };
        if has_worker && (failure.is_some() || !is_known) {
            let stale = HeaderValue::from_static("1");
            response.headers_mut().insert(STALE, stale);
        }
        if is_document && !is_head {
            response = inject(response, &number);
        }
        response
    }

    /// News for one page, the present state first.
    async fn tell(self: Arc<Self>, events: justapi_core::EventSender) {
        let mut news = self.news.subscribe();
        loop {
            let data = {
                let news = news.borrow_and_update();
                let failure = news.failure.as_ref().map(|one| one.json(&self.root));
                json!({
                    "number": self.number(&news),
                    "styles": news.styles,
                    "stale": news.is_stale,
                    "failure": failure.unwrap_or(Value::Null),
                })
            };
            let event = Event::new().with_data(data.to_string());
            let Ok(event) = event.with_name("state") else {
                return;
            };
            if events.send(event).await.is_err() || news.changed().await.is_err() {
                return;
            }
        }
    }
}

/// The server of a [`Front`], with its addresses.
#[derive(Debug)]
pub(crate) struct Open {
    running: Running,
}

impl Open {
    /// Listens and answers, on a thread of its own.
    ///
    /// # Errors
    /// An address or a certificate that cannot be used.
    pub(crate) fn start(
        front: &Arc<Front>,
        config: &ServerConfig,
        listens: Vec<Listen>,
        backlog: u32,
    ) -> Result<Self, Error> {
        let passing = Arc::clone(front);
        let pass = move |request: Request| Arc::clone(&passing).answer(request);
        let mut router = Router::new()
            .any("/", pass.clone())?
            .any("/{*rest}", pass)?;
        if front.has_live_reload {
            let telling = Arc::clone(front);
            router = router
                .route(Method::GET, SCRIPT_PATH, |_: Request| async { script() })?
                .route(Method::GET, EVENTS_PATH, move |_: Request| {
                    let front = Arc::clone(&telling);
                    async move { Sse::produce(|events| front.tell(events)) }
                })?;
        }
        let server = Server::new(router).lanes(1).backlog(backlog);
        let server = config.apply(server)?;
        let bound = listens.into_iter().fold(server, Server::listen).bind()?;
        Ok(Self {
            running: bound.start()?,
        })
    }

    pub(crate) fn addresses(&self) -> &[BoundAddress] {
        self.running.addresses()
    }

    /// Lets nobody new in, and returns once everybody has their answer.
    pub(crate) fn drain(self) -> DrainReport {
        self.running.drain()
    }
}

fn script() -> Response {
    const JAVASCRIPT: HeaderValue = HeaderValue::from_static("text/javascript; charset=utf-8");
    Response::with_content(JAVASCRIPT, Body::from(SCRIPT))
        .with_header(CACHE_CONTROL, HeaderValue::from_static("no-store"))
        .into_response()
}
