//! A lane inside of somebody else's event loop, on that loop's thread.
//!
//! Guarantee: connections are served only within [`EmbeddedLane::run_until`];
//! whoever waits meanwhile is woken by one descriptor or one waker. The hooks
//! around each wait let the caller give a lock away that it holds. Several
//! servers can share one such loop, each with connections of its own.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::Notify;

use super::lane::{Accepted, Lane};
use super::memory::{self, MemoryClient};
use super::running::{DrainReport, LaneSetup, Running};
use super::scope::{self, Entered, Scope};
use crate::error::Error;
use crate::request::Peer;

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

/// A lane of a server that nobody serves yet; it may go to another thread.
pub struct LaneSeat {
    setup: LaneSetup,
    running: Arc<Running>,
}

impl fmt::Debug for LaneSeat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneSeat")
            .field("index", &self.index())
            .finish_non_exhaustive()
    }
}

impl LaneSeat {
    pub(super) const fn new(setup: LaneSetup, running: Arc<Running>) -> Self {
        Self { setup, running }
    }

    /// Number of the lane, from 0 on.
    pub const fn index(&self) -> usize {
        self.setup.index
    }

    /// Makes it a lane of the calling thread.
    ///
    /// # Errors
    /// [`Error::Lane`] when the lane cannot be started.
    pub fn embed(self, park: ParkHooks) -> Result<EmbeddedLane, Error> {
        let lane = self.index();
        EmbeddedLane::new(self.running, self.setup, park)
            .map_err(|source| Error::Lane { lane, source })
    }
}

/// A lane that runs while its owner's loop has nothing else to do.
pub struct EmbeddedLane {
    lane: Rc<Lane>,
    runtime: Rc<LocalRuntime>,
    running: Arc<Running>,
    end: Rc<End>,
    scope: Rc<Scope>,
    /// The thread's scope, where this is its first lane.
    _entered: Option<Entered>,
}

/// How the lane's life ended, once it has.
#[derive(Default)]
struct End {
    finished: Cell<Option<bool>>,
    changed: Notify,
}

impl End {
    fn set(&self, finished: bool) {
        self.finished.set(Some(finished));
        self.changed.notify_waiters();
    }
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
    fn new(running: Arc<Running>, setup: LaneSetup, park: ParkHooks) -> io::Result<Self> {
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .on_thread_park(park.before)
            .on_thread_unpark(park.after)
            .build_local(LocalOptions::default())?;
        let scope = Scope::new(&setup.app, setup.index, setup.phase.clone());
        let entered = scope::enter(&scope);
        let end = Rc::new(End::default());
        let ended = Rc::clone(&end);
        let lane = runtime.block_on(async move {
            let (lane, life) = setup.register()?;
            tokio::task::spawn_local(async move { ended.set(life.await) });
            io::Result::Ok(lane)
        })?;
        Ok(Self {
            lane,
            runtime: Rc::new(runtime),
            running,
            end,
            scope,
            _entered: Some(entered),
        })
    }

    pub(super) fn beside(
        running: Arc<Running>,
        setup: LaneSetup,
        other: &Self,
    ) -> io::Result<(Self, impl Future<Output = ()> + use<>)> {
        if setup.has_sockets() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let scope = Scope::new(&setup.app, setup.index, setup.phase.clone());
        let end = Rc::new(End::default());
        let ended = Rc::clone(&end);
        let (lane, life) = setup.register()?;
        let lane = Self {
            lane,
            runtime: Rc::clone(&other.runtime),
            running,
            end,
            scope,
            _entered: None,
        };
        Ok((lane, async move { ended.set(life.await) }))
    }

    /// Makes a connection without a socket.
    ///
    /// It is served once the future has run as a local task of the lane's
    /// runtime. `number` is what handlers see in [`Peer::Memory`]; a client
    /// that is `secure` counts as one that has come over TLS.
    pub fn connect(
        &self,
        number: u64,
        secure: bool,
    ) -> (MemoryClient, impl Future<Output = ()> + use<>) {
        let (client, stream) = memory::pair();
        let (lane, scope) = (Rc::clone(&self.lane), Rc::clone(&self.scope));
        let admit = async move {
            lane.admit(Accepted::Memory(
                stream,
                Peer::Memory(number),
                secure,
                scope,
            ));
        };
        (client, admit)
    }

    /// Serves until `future` is ready.
    ///
    /// The future runs within the lane's runtime: it may watch descriptors
    /// and spawn local tasks, and is polled on every wake of its own.
    pub fn run_until<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// Server that the lane belongs to.
    pub fn running(&self) -> &Running {
        &self.running
    }

    /// Lets every lane of the server begin to drain; [`Self::ended`] tells
    /// when this one is done.
    pub fn drain(&self) {
        self.running.begin_drain();
    }

    /// Ends what is still in flight on every lane, after [`Self::drain`].
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
