//! What a lane lends to the code that runs on its thread: its limits, word of
//! the drain, and its counters.
//!
//! Guarantee: a request that asks for none of it pays nothing: the lane keeps
//! it in a variable of its thread instead of in each request.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

use super::lane::App;
use super::running::Phase;
use crate::compression::Compression;
use crate::limits::{Limits, Reject};
use crate::metrics::LaneMetrics;

thread_local! {
    static CURRENT: RefCell<Option<Scope>> = const { RefCell::new(None) };
}

struct Scope {
    app: Arc<App>,
    metrics: Arc<LaneMetrics>,
    phase: watch::Receiver<Phase>,
}

/// Keeps the scope of a lane on its thread.
#[must_use]
pub(super) struct Entered(());

/// Makes the calling thread that of lane `index`.
pub(super) fn enter(app: &Arc<App>, index: usize, phase: watch::Receiver<Phase>) -> Entered {
    let scope = Scope {
        app: Arc::clone(app),
        metrics: app.metrics.lane(index),
        phase,
    };
    CURRENT.set(Some(scope));
    Entered(())
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(None);
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
