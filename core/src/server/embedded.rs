//! A lane inside of somebody else's event loop, on that loop's thread.
//!
//! Guarantee: connections are served only within [`EmbeddedLane::run_until`];
//! whoever waits meanwhile is woken by one descriptor or one waker. The hooks
//! around each wait let the caller give a lock away that it holds.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::io;
use std::rc::Rc;

use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::Notify;

use super::running::{DrainReport, LaneSetup, Running};
use super::scope::{self, Entered};

/// What happens around each wait of the lane for its sockets.
pub struct ParkHooks {
    /// Called before the thread waits.
    pub before: Box<dyn Fn() + Send + Sync>,
    /// Called after it has waited.
    pub after: Box<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for ParkHooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParkHooks").finish_non_exhaustive()
    }
}

/// A lane that runs while its owner's loop has nothing else to do.
pub struct EmbeddedLane {
    runtime: LocalRuntime,
    running: Running,
    end: Rc<End>,
    _scope: Entered,
}

/// How the lane's life ended, once it has.
#[derive(Default)]
struct End {
    finished: Cell<Option<bool>>,
    changed: Notify,
}

impl fmt::Debug for EmbeddedLane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedLane")
            .field("running", &self.running)
            .field("finished", &self.end.finished)
            .finish_non_exhaustive()
    }
}

impl EmbeddedLane {
    pub(super) fn new(running: Running, setup: LaneSetup, park: ParkHooks) -> io::Result<Self> {
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .on_thread_park(park.before)
            .on_thread_unpark(park.after)
            .build_local(LocalOptions::default())?;
        let scope = scope::enter(&setup.app, setup.index, setup.phase.clone());
        let end = Rc::new(End::default());
        let ended = Rc::clone(&end);
        runtime.block_on(async move {
            let lane = setup.register()?;
            tokio::task::spawn_local(async move {
                ended.finished.set(Some(lane.await));
                ended.changed.notify_waiters();
            });
            io::Result::Ok(())
        })?;
        Ok(Self {
            runtime,
            running,
            end,
            _scope: scope,
        })
    }

    /// Serves until `future` is ready.
    ///
    /// The future runs within the lane's runtime: it may watch descriptors
    /// and spawn local tasks, and is polled on every wake of its own.
    pub fn run_until<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// Server that the lane belongs to.
    pub const fn running(&self) -> &Running {
        &self.running
    }

    /// Begins to drain; [`Self::ended`] tells when it is done.
    pub fn drain(&self) {
        self.running.begin_drain();
    }

    /// Ends what is still in flight, after [`Self::drain`].
    pub fn kill(&self) {
        self.running.kill();
    }

    /// How the lane ended; `None` while it serves or drains.
    pub fn report(&self) -> Option<DrainReport> {
        let finished = self.end.finished.get()?;
        Some(DrainReport {
            finished,
            signal: None,
        })
    }

    /// Resolves once the lane has drained.
    pub fn ended(&self) -> impl Future<Output = ()> + use<> {
        let end = Rc::clone(&self.end);
        async move {
            while end.finished.get().is_none() {
                end.changed.notified().await;
            }
        }
    }
}
