//! What a lane lends to the code that runs on its thread: its limits, word of
//! the drain, and its counters.
//!
//! Guarantee: a request that asks for none of it pays nothing: the lane keeps
//! it in a variable of its thread instead of in each request.

use std::cell::RefCell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::watch;

use super::lane::App;
use super::running::Phase;
use crate::collected::BodyMemory;
use crate::compression::Compression;
use crate::limits::{Limits, Reject};
use crate::metrics::LaneMetrics;

thread_local! {
    static CURRENT: RefCell<Option<Rc<Scope>>> = const { RefCell::new(None) };
}

/// What one lane lends.
pub(super) struct Scope {
    app: Arc<App>,
    metrics: Arc<LaneMetrics>,
    phase: watch::Receiver<Phase>,
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").finish_non_exhaustive()
    }
}

impl Scope {
    /// That of lane `index` of `app`.
    pub(super) fn new(app: &Arc<App>, index: usize, phase: watch::Receiver<Phase>) -> Rc<Self> {
        Rc::new(Self {
            app: Arc::clone(app),
            metrics: app.metrics.lane(index),
            phase,
        })
    }
}

/// Keeps the scope of a lane on its thread.
#[must_use]
pub(super) struct Entered(Rc<Scope>);

/// Makes the calling thread that of the scope's lane.
pub(super) fn enter(scope: &Rc<Scope>) -> Entered {
    drop(CURRENT.replace(Some(Rc::clone(scope))));
    Entered(Rc::clone(scope))
}

impl Drop for Entered {
    fn drop(&mut self) {
        // Another lane may have begun on the thread meanwhile.
        let is_own = CURRENT.with_borrow(|current| {
            let current = current.as_ref();
            current.is_some_and(|current| Rc::ptr_eq(current, &self.0))
        });
        if is_own {
            drop(CURRENT.take());
        }
    }
}

/// Runs `future` within `scope`, whatever that of the thread is.
pub(super) async fn within<F: Future>(scope: Rc<Scope>, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|cx| {
        let before = Restored(CURRENT.replace(Some(Rc::clone(&scope))));
        let result = future.as_mut().poll(cx);
        drop(before);
        result
    })
    .await
}

/// The scope that is the thread's again once this is dropped.
struct Restored(Option<Rc<Scope>>);

impl Drop for Restored {
    fn drop(&mut self) {
        drop(CURRENT.replace(self.0.take()));
    }
}

/// Reads the limits of the server that the calling thread belongs to; the
/// defaults elsewhere.
pub(crate) fn with_limits<T>(read: impl FnOnce(&Limits) -> T) -> T {
    CURRENT.with_borrow(|current| match current {
        Some(scope) => read(&scope.app.limits),
        None => read(&Limits::DEFAULT),
    })
}

/// What the bodies of the calling thread's server hold; none elsewhere.
pub(crate) fn body_memory() -> Option<Arc<BodyMemory>> {
    CURRENT.with_borrow(|current| Some(Arc::clone(&current.as_ref()?.app.body_memory)))
}

/// Reads how the calling thread's server compresses; `None` when it does not.
pub(crate) fn with_compression<T>(read: impl FnOnce(&Compression) -> T) -> Option<T> {
    CURRENT.with_borrow(|current| {
        let compression = current.as_ref()?.app.builtins.compression.as_ref();
        compression.map(read)
    })
}

/// Counts where only the thread says which lane it is; nothing off a lane.
pub(crate) fn count_on_lane(count: impl FnOnce(&LaneMetrics)) {
    CURRENT.with_borrow(|current| {
        if let Some(scope) = current {
            count(&scope.metrics);
        }
    });
}

/// Counts a refusal, if the calling thread is a lane's.
pub(crate) fn count_rejected(reject: Reject) {
    count_on_lane(|metrics| metrics.rejected(reject));
}

/// Word of the drain: what runs until somebody ends it should end then.
///
/// Without it a stream without an end would hold a stopping server for the
/// whole grace time.
#[derive(Clone)]
pub struct Drain(Option<watch::Receiver<Phase>>);

impl Drain {
    /// The drain of the server that the calling thread belongs to.
    ///
    /// Elsewhere than on a lane, as in a test without a server, it never
    /// comes. Handlers run on a lane; what they hand to another thread needs
    /// this from them.
    pub fn current() -> Self {
        Self(CURRENT.with_borrow(|current| Some(current.as_ref()?.phase.clone())))
    }

    /// A drain that does not come.
    pub(crate) const fn never() -> Self {
        Self(None)
    }

    /// Whether the server has begun to drain.
    pub fn has_begun(&self) -> bool {
        match &self.0 {
            Some(phase) => *phase.borrow() != Phase::Serving,
            None => false,
        }
    }

    /// Resolves once the server begins to drain.
    pub async fn begun(mut self) {
        match &mut self.0 {
            // An error means that the server is gone.
            Some(phase) => drop(phase.wait_for(|phase| *phase != Phase::Serving).await),
            None => std::future::pending().await,
        }
    }
}

impl fmt::Debug for Drain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drain")
            .field("has_begun", &self.has_begun())
            .finish()
    }
}
