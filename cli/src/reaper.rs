//! Ends whatever is left below this process.
//!
//! Guarantee: while a [`Reaper`] is there, a process whose parents have ended comes to this one
//! (`prctl(2)`, `PR_SET_CHILD_SUBREAPER`), also one with a session of its own; when it goes, none
//! of them is left.

use std::thread;
use std::time::{Duration, Instant};

use justapi_bench::machine::process_tree;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};

/// When processes that do not even end by force are given up: they hang in the kernel.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// Between two looks at what is left.
const TICK: Duration = Duration::from_millis(1);

/// Ends the processes below this one when dropped.
#[derive(Debug)]
pub(crate) struct Reaper(());

impl Reaper {
    /// From now on orphans come here.
    pub(crate) fn begin() -> Self {
        // Where the kernel does not know it, children are found all the same.
        set_child_subreaper(Some(getpid())).ok();
        Self(())
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        let own = std::process::id();
        let deadline = Instant::now() + MAX_WAIT;
        while Instant::now() < deadline {
            let rest: Vec<u32> = (process_tree(own).into_iter())
                .filter(|pid| *pid != own)
                .collect();
            if rest.is_empty() {
                return;
            }
            for pid in rest {
                if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                    // It may have ended meanwhile.
                    kill_process(pid, Signal::KILL).ok();
                }
            }
            // An ended child stays one until somebody asks how it ended.
            while matches!(wait(WaitOptions::NOHANG), Ok(Some(_))) {}
            thread::sleep(TICK);
        }
    }
}
