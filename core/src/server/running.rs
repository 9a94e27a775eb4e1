//! A server's lanes from their start to their end.
//!
//! Guarantee: after a stop signal the server takes what already waits in its
//! backlogs, finishes what is in flight within the grace time, and returns; a
//! second signal ends it at once.
//!
//! A server of one lane that is [run](Bound::run) is a process of one thread:
//! the kernel then spares reference counts on every socket call, which
//! measured 4 % of a small request.

use std::cell::Cell;
use std::future::{Future, poll_fn, ready};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::thread::JoinHandle;
use std::{io, thread};

use signal_hook::SigId;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::low_level::{pipe, unregister};
use tokio::io::{AsyncRead as _, ReadBuf};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::watch;

use super::embedded::{EmbeddedLane, LaneSeat};
use super::lane::{App, Lane, Listener};
use super::listener::{Bound as BoundSockets, BoundAddress, LaneListener};
use super::scope::{self, Scope};
use crate::error::Error;
use crate::health::HealthState;

/// Exit status of a process that a signal ended is this plus its number.
const SIGNAL_STATUS: i32 = 128;

/// Life of a server, as its lanes see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Serving,
    Draining,
    Killed,
}

/// A metrics application and its socket, served by lane 0.
type Admin = (Arc<App>, LaneListener);

/// A server that has its addresses and does not serve yet.
#[derive(Debug)]
pub struct Bound {
    app: Arc<App>,
    /// Sockets of each lane.
    sockets: Vec<Vec<LaneListener>>,
    admin: Option<Admin>,
    addresses: Vec<BoundAddress>,
    metrics_address: Option<SocketAddr>,
    health: Arc<HealthState>,
    unlink: Unlink,
}

impl Bound {
    pub(super) fn new(
        lanes: usize,
        app: Arc<App>,
        bound: Vec<BoundSockets>,
        admin: Option<(Arc<App>, (LaneListener, SocketAddr))>,
        health: Arc<HealthState>,
    ) -> Self {
        let mut sockets: Vec<Vec<LaneListener>> = (0..lanes).map(|_| Vec::new()).collect();
        let mut addresses = Vec::new();
        let mut unlink = Vec::new();
        for bound in bound {
            addresses.push(bound.address);
            unlink.extend(bound.unlink.and_then(SocketFile::of));
            for (lane, socket) in sockets.iter_mut().zip(bound.lanes) {
                lane.push(socket);
            }
        }
        let metrics_address = admin.as_ref().map(|(_, (_, address))| *address);
        Self {
            app,
            sockets,
            admin: admin.map(|(app, (socket, _))| (app, socket)),
            addresses,
            metrics_address,
            health,
            unlink: Unlink(unlink),
        }
    }

    /// Addresses as they were bound, in the order they were asked for.
    pub fn addresses(&self) -> &[BoundAddress] {
        &self.addresses
    }

    /// Address of the metrics, where they have one of their own.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// Serves until a stop signal, lane 0 on the calling thread, then drains.
    ///
    /// # Errors
    /// [`Error::Lane`] when a lane cannot be started.
    pub fn run(self, signals: StopSignals) -> Result<DrainReport, Error> {
        let (mut running, mut own) = self.start_others(1)?;
        let Some(own) = own.pop() else {
            unreachable!("a server has at least one lane");
        };
        let received = Rc::new(Cell::new(None));
        let watch = SignalWatch {
            signals,
            phase: running.phase.clone(),
            health: Arc::clone(&running.health),
            received: Rc::clone(&received),
        };
        let mut ended = running.ended.subscribe();
        let num_others = running.lanes.len();
        // Lane 0 stays until the others have ended: it takes the signals.
        let others_ended = async move {
            drop(ended.wait_for(|ended| *ended >= num_others).await);
        };
        let mine = run_lane(own, Some(watch), others_ended, || ())
            .map_err(|source| Error::Lane { lane: 0, source })?;
        let others = join(std::mem::take(&mut running.lanes));
        Ok(DrainReport {
            finished: mine && others,
            signal: received.get(),
        })
    }

    /// Leaves every lane to the caller: each serves on the thread that embeds
    /// it, whenever that thread's own loop lets it.
    ///
    /// Nothing is accepted before the first [`EmbeddedLane::run_until`]. Stop
    /// signals are the caller's. The server ends when the last seat or lane
    /// is dropped.
    ///
    /// # Errors
    /// [`Error::Lane`] when a lane cannot be started.
    ///
    /// [`EmbeddedLane::run_until`]: super::EmbeddedLane::run_until
    pub fn seats(self) -> Result<Vec<LaneSeat>, Error> {
        let lanes = self.sockets.len();
        let (running, setups) = self.start_others(lanes)?;
        let running = Arc::new(running);
        let seats = setups
            .into_iter()
            .map(|setup| LaneSeat::new(setup, Arc::clone(&running)));
        Ok(seats.collect())
    }

    /// Serves in the runtime of `other`, on its thread, while that runs.
    ///
    /// The future is the server's life: it is to be run as a local task there.
    /// Connections come from [`EmbeddedLane::connect`] only.
    ///
    /// # Errors
    /// [`Error::Lane`] when the server has addresses, which `other` would not
    /// ask for.
    pub fn embed_beside(
        self,
        other: &EmbeddedLane,
    ) -> Result<(EmbeddedLane, impl Future<Output = ()> + use<>), Error> {
        let (running, mut own) = self.start_others(1)?;
        let Some(setup) = own.pop() else {
            unreachable!("a server has at least one lane");
        };
        EmbeddedLane::beside(Arc::new(running), setup, other)
            .map_err(|source| Error::Lane { lane: 0, source })
    }

    /// Starts every lane on a thread and returns once all of them serve.
    ///
    /// # Errors
    /// [`Error::Lane`] when a lane cannot be started.
    pub fn start(self) -> Result<Running, Error> {
        self.start_others(0).map(|(running, _)| running)
    }

    /// Starts the lanes from number `first` on; the others are returned.
    fn start_others(self, first: usize) -> Result<(Running, Vec<LaneSetup>), Error> {
        // Before anything is accepted: who is told that we listen may ask.
        self.health.set_ready();
        let mut running = Running {
            addresses: self.addresses,
            metrics_address: self.metrics_address,
            lanes: Vec::new(),
            phase: watch::Sender::new(Phase::Serving),
            ended: watch::Sender::new(0),
            health: self.health,
            _unlink: self.unlink,
        };
        let mut admin = self.admin;
        let mut kept = Vec::new();
        for (index, sockets) in self.sockets.into_iter().enumerate() {
            let setup = LaneSetup {
                index,
                app: Arc::clone(&self.app),
                sockets,
                admin: admin.take(),
                phase: running.phase.subscribe(),
            };
            if index < first {
                kept.push(setup);
            } else {
                running.spawn(setup)?;
            }
        }
        Ok((running, kept))
    }
}

/// A server whose lanes serve, each on a thread.
#[derive(Debug)]
pub struct Running {
    addresses: Vec<BoundAddress>,
    metrics_address: Option<SocketAddr>,
    lanes: Vec<JoinHandle<bool>>,
    phase: watch::Sender<Phase>,
    /// Number of lanes on threads that have ended.
    ended: watch::Sender<usize>,
    health: Arc<HealthState>,
    _unlink: Unlink,
}

/// How a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainReport {
    /// Whether all that was in flight was finished within the grace time.
    pub finished: bool,
    /// The signal that started the drain.
    pub signal: Option<i32>,
}

impl Running {
    /// Starts one lane and waits until it serves.
    fn spawn(&mut self, setup: LaneSetup) -> Result<(), Error> {
        let lane = setup.index;
        let error = |source| Error::Lane { lane, source };
        let (report, started) = mpsc::channel();
        let ended = CountEnd(self.ended.clone());
        let handle = thread::Builder::new()
            .name(format!("lane-{lane}"))
            .spawn(move || {
                let _ended = ended;
                // Nobody listens any more only if the start was given up.
                let failed = report.clone();
                let serving = move || drop(report.send(Ok(())));
                run_lane(setup, None, ready(()), serving).unwrap_or_else(|error| {
                    drop(failed.send(Err(error)));
                    false
                })
            })
            .map_err(error)?;
        self.lanes.push(handle);
        started
            .recv()
            .unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))
            .map_err(error)
    }

    /// Addresses as they were bound, in the order they were asked for.
    pub fn addresses(&self) -> &[BoundAddress] {
        &self.addresses
    }

    /// Address of the metrics, where they have one of their own.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// Lets every lane begin to drain.
    pub(super) fn begin_drain(&self) {
        self.health.set_draining();
        self.phase.send_replace(Phase::Draining);
    }

    /// Stops accepting, finishes what is in flight, and returns.
    pub fn drain(mut self) -> DrainReport {
        self.begin_drain();
        DrainReport {
            finished: join(std::mem::take(&mut self.lanes)),
            signal: None,
        }
    }
}

impl Running {
    /// Lets every lane end what it still has.
    pub(super) fn kill(&self) {
        self.phase.send_replace(Phase::Killed);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Counts the end of a lane's thread, also by a panic.
struct CountEnd(watch::Sender<usize>);

impl Drop for CountEnd {
    fn drop(&mut self) {
        self.0.send_modify(|ended| *ended += 1);
    }
}

/// Waits for lanes; whether each finished what it had.
fn join(lanes: Vec<JoinHandle<bool>>) -> bool {
    let mut finished = true;
    for lane in lanes {
        finished &= lane.join().unwrap_or(false);
    }
    finished
}

/// Socket files that go when the server does.
#[derive(Debug)]
struct Unlink(Vec<SocketFile>);

impl Drop for Unlink {
    fn drop(&mut self) {
        for file in &self.0 {
            // Another server may have put its own there since the drain began.
            if SocketFile::of(file.path.clone()).as_ref() == Some(file) {
                // Nothing is left to do about a file that does not go.
                drop(std::fs::remove_file(&file.path));
            }
        }
    }
}

/// A socket file and which one it is.
#[derive(Debug, PartialEq, Eq)]
struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    fn of(path: PathBuf) -> Option<Self> {
        let metadata = std::fs::symlink_metadata(&path).ok()?;
        Some(Self {
            path,
            device: metadata.dev(),
            inode: metadata.ino(),
        })
    }
}

/// SIGINT and SIGTERM, caught from [`StopSignals::watch`] on.
///
/// Made before the server starts, so that a signal that comes while it starts
/// is not lost. A second signal ends the process at once, with status 128 plus
/// its number, if the first has not been noticed yet: a handler that never
/// returns cannot make the server immune to Ctrl-C.
#[derive(Debug)]
pub struct StopSignals {
    sources: Vec<(i32, UnixStream)>,
    registered: Vec<SigId>,
    /// Set by a signal until lane 0 has noticed it.
    unnoticed: Arc<AtomicBool>,
}

impl StopSignals {
    /// Takes both signals over from their default, which ends the process.
    ///
    /// # Errors
    /// [`Error::Signals`] when the system does not let us.
    pub fn watch() -> Result<Self, Error> {
        let mut signals = Self {
            sources: Vec::new(),
            registered: Vec::new(),
            unnoticed: Arc::new(AtomicBool::new(false)),
        };
        for signal in [SIGINT, SIGTERM] {
            signals
                .add(signal)
                .map_err(|source| Error::Signals { source })?;
        }
        Ok(signals)
    }

    fn add(&mut self, signal: i32) -> io::Result<()> {
        let (reader, writer) = UnixStream::pair()?;
        reader.set_nonblocking(true)?;
        let hang = Arc::clone(&self.unnoticed);
        let status = SIGNAL_STATUS + signal;
        self.registered
            .push(flag::register_conditional_shutdown(signal, status, hang)?);
        self.registered
            .push(flag::register(signal, Arc::clone(&self.unnoticed))?);
        self.registered.push(pipe::register(signal, writer)?);
        self.sources.push((signal, reader));
        Ok(())
    }
}

impl Drop for StopSignals {
    fn drop(&mut self) {
        for id in &self.registered {
            unregister(*id);
        }
    }
}

/// Turns stop signals into phases, on lane 0.
struct SignalWatch {
    signals: StopSignals,
    phase: watch::Sender<Phase>,
    health: Arc<HealthState>,
    received: Rc<Cell<Option<i32>>>,
}

impl SignalWatch {
    async fn run(mut self) -> io::Result<()> {
        let mut sources = Vec::new();
        for (signal, reader) in self.signals.sources.drain(..) {
            sources.push((signal, tokio::net::UnixStream::from_std(reader)?));
        }
        loop {
            let (signal, count) = poll_fn(|cx| {
                for (signal, reader) in &mut sources {
                    let mut bytes = [0; 16];
                    let mut buffer = ReadBuf::new(&mut bytes);
                    if let Poll::Ready(result) = Pin::new(reader).poll_read(cx, &mut buffer) {
                        result?;
                        return Poll::Ready(io::Result::Ok((*signal, buffer.filled().len())));
                    }
                }
                Poll::Pending
            })
            .await?;
            for _ in 0..count {
                self.receive(signal);
            }
        }
    }

    fn receive(&self, signal: i32) {
        self.signals.unnoticed.store(false, Ordering::Relaxed);
        if self.received.get().is_some() {
            self.phase.send_replace(Phase::Killed);
        } else {
            self.received.set(Some(signal));
            self.health.set_draining();
            self.phase.send_replace(Phase::Draining);
        }
    }
}

/// What one lane is made of.
pub(super) struct LaneSetup {
    pub(super) index: usize,
    pub(super) app: Arc<App>,
    sockets: Vec<LaneListener>,
    admin: Option<Admin>,
    pub(super) phase: watch::Receiver<Phase>,
}

impl LaneSetup {
    /// Whether anybody could connect from outside of the process.
    pub(super) const fn has_sockets(&self) -> bool {
        !self.sockets.is_empty() || self.admin.is_some()
    }

    /// Registers the sockets with the current runtime; the lane, and its whole
    /// life.
    pub(super) fn register(self) -> io::Result<(Rc<Lane>, impl Future<Output = bool> + use<>)> {
        let listeners = self
            .sockets
            .into_iter()
            .map(Listener::register)
            .collect::<io::Result<Vec<_>>>()?;
        if let Some((app, socket)) = self.admin {
            let listener = Listener::register(socket)?;
            let lane = Lane::new(app, 0);
            tokio::task::spawn_local(lane.run(vec![listener], self.phase.clone()));
        }
        let lane = Lane::new(self.app, self.index);
        Ok((Rc::clone(&lane), lane.run(listeners, self.phase)))
    }
}

/// Runs a lane on the calling thread to its end; whether it finished all.
///
/// Calls `serving` once connections are accepted, and awaits `end` before it
/// returns.
fn run_lane(
    setup: LaneSetup,
    signals: Option<SignalWatch>,
    end: impl Future<Output = ()>,
    serving: impl FnOnce(),
) -> io::Result<bool> {
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build_local(LocalOptions::default())?;
    let scope = Scope::new(&setup.app, setup.index, setup.phase.clone());
    let _entered = scope::enter(&scope);
    runtime.block_on(async {
        if let Some(signals) = signals {
            tokio::task::spawn_local(signals.run());
        }
        let (_, life) = setup.register()?;
        serving();
        let finished = life.await;
        end.await;
        Ok(finished)
    })
}
