//! What the product suites share: the built server as a process, and clients
//! that show every byte.
//!
//! A suite takes the modules it needs; none of them knows a subject.

pub(crate) mod certificates;
pub(crate) mod client;
pub(crate) mod exchange;
pub(crate) mod fault_proxy;
pub(crate) mod hpack;
pub(crate) mod http2;
pub(crate) mod process;
pub(crate) mod server;
pub(crate) mod transports;
pub(crate) mod websocket;

use std::time::{Duration, Instant};

/// How long a client waits for a byte before it calls the server silent.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// Looks every 5 ms until `probe` answers; panics with `what` after `limit`.
pub(crate) fn eventually<T>(
    limit: Duration,
    what: &str,
    mut probe: impl FnMut() -> Option<T>,
) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Collects what went wrong in a table of cases, so that one run shows all.
#[derive(Default)]
pub(crate) struct Failures {
    num_cases: usize,
    found: Vec<String>,
}

impl Failures {
    /// Counts a case and keeps its complaint.
    pub(crate) fn case(&mut self, name: &str, result: Result<(), String>) {
        self.num_cases += 1;
        if let Err(complaint) = result {
            self.found.push(format!("{name}: {complaint}"));
        }
    }

    /// Panics with every complaint, if there was one.
    pub(crate) fn finish(self) {
        assert!(
            self.found.is_empty(),
            "{} of {} cases failed\n  {}",
            self.found.len(),
            self.num_cases,
            self.found.join("\n  ")
        );
    }
}
