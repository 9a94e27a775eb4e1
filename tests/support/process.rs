//! What a process tree costs, read from `/proc`.
//!
//! A process that ends while it is read counts as nothing.

use std::fs;
use std::time::Duration;

use super::{PATIENCE, eventually};

/// What lanes that begin late open for themselves, and more: seven each.
pub(crate) const LATE: usize = 32;

/// Resident bytes of `pid` and its descendants.
pub(crate) fn rss_bytes(pid: u32) -> u64 {
    let resident = |pid: &u32| status_kib(*pid, "VmRSS:").unwrap_or(0) * 1024;
    tree(pid).iter().map(resident).sum()
}

/// User and system time of all living threads of `pid` and its descendants.
pub(crate) fn cpu(pid: u32) -> Duration {
    let busy_ns = |pid: &u32| -> u64 {
        names(&format!("/proc/{pid}/task"))
            .iter()
            .filter_map(|thread| {
                let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/schedstat"));
                text.ok()?.split(' ').next()?.parse::<u64>().ok()
            })
            .sum()
    };
    Duration::from_nanos(tree(pid).iter().map(busy_ns).sum())
}

/// Open file descriptors of `pid` and its descendants.
pub(crate) fn num_fds(pid: u32) -> usize {
    let open = |pid: &u32| names(&format!("/proc/{pid}/fd")).len();
    tree(pid).iter().map(open).sum()
}

/// Waits until a process that had `before` descriptors open has closed what so
/// many clients made it open. A lane may have begun only after that look, and
/// has descriptors of its own, so a few more are no leak; one that each tenth
/// client leaves is.
pub(crate) fn wait_until_closed(pid: u32, before: usize, num_clients: usize) {
    let allowed = before + LATE.min(num_clients / 10);
    let what = format!("of {num_clients} clients at most {allowed} descriptors, {before} before");
    eventually(PATIENCE * 2, &what, || {
        (num_fds(pid) <= allowed).then_some(())
    });
}

/// `pid` and its descendants.
fn tree(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        next += 1;
        for thread in names(&format!("/proc/{parent}/task")) {
            let path = format!("/proc/{parent}/task/{thread}/children");
            let children = fs::read_to_string(path).unwrap_or_default();
            found.extend(
                children
                    .split_whitespace()
                    .filter_map(|id| id.parse::<u32>().ok()),
            );
        }
    }
    found
}

fn status_kib(pid: u32, field: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find(|line| line.starts_with(field))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn names(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}
