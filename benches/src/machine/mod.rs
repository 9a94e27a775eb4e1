//! The machine a record was made on, and the meters of a running process.
//!
//! Everything is read from `/proc` and `/sys`. What cannot be read is `null` with a reason, never
//! a default: a number without its machine is not evidence.

mod facts;
mod fixture;
mod meter;
mod quiet;
mod watch;

pub use fixture::{Machine, Reading};
pub use meter::{ProcessUsage, process_tree, process_usage};
pub use quiet::BusyMachine;
pub(crate) use quiet::await_quiet;
pub(crate) use watch::Watch;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The processors a run is split over.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Placement {
    /// Where servers run; `None` when the machine has one usable CPU only.
    pub server_cpu: Option<usize>,
    /// Where the load engine runs.
    pub client_cpu: Option<usize>,
}

impl Placement {
    /// Takes the last usable CPU for the server and the first for the client.
    ///
    /// CPU 0 serves most interrupts, so the server, which is what is measured, stays off it.
    pub fn detect() -> Self {
        let usable = usable_cpus();
        match usable.as_slice() {
            [client, .., server] => Self {
                server_cpu: Some(*server),
                client_cpu: Some(*client),
            },
            _ => Self {
                server_cpu: None,
                client_cpu: None,
            },
        }
    }
}

/// Pins the calling thread, and the threads and processes it starts later, to one CPU.
///
/// Returns whether the system accepted it; `None` asks for nothing.
pub fn pin_current_thread(cpu: Option<usize>) -> bool {
    let Some(cpu) = cpu else { return true };
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).is_ok()
}

/// Pins the calling thread until the returned value is dropped.
pub(crate) fn pinned(cpu: Option<usize>) -> Pinned {
    let before = sched_getaffinity(None).ok();
    pin_current_thread(cpu);
    Pinned { before }
}

/// Gives a thread its CPUs back on drop; must be dropped on that thread.
#[derive(Debug)]
pub(crate) struct Pinned {
    before: Option<CpuSet>,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            sched_setaffinity(None, before).ok();
        }
    }
}

fn usable_cpus() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else {
        return Vec::new();
    };
    (0..CpuSet::MAX_CPU)
        .filter(|cpu| set.is_set(*cpu))
        .collect()
}
