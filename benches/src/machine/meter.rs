//! CPU time and memory of a process and its descendants.
//!
//! CPU time comes from `/proc/<pid>/task/*/schedstat` (nanoseconds), but a thread that exits takes
//! its schedstat along. `utime + stime` of `/proc/<pid>/stat` counts exited threads too, though only
//! in clock ticks (10 ms). So the ticks are taken when threads came or went, also those that came
//! and went between the readings: then the ticks exceed the nanoseconds by more than rounding.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// How much more the ticks of one process may say than its threads: user and system time are each
/// rounded down, at both readings, and one tick more for the time between the two files.
const TICK_SLACK_NS: u64 = 30_000_000;

/// What a process tree has used so far, at one moment.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ProcessUsage {
    /// Nanoseconds on a CPU by thread id; empty when schedstat is not available.
    threads: BTreeMap<u32, u64>,
    /// `utime + stime` of the processes, by process id.
    processes: BTreeMap<u32, Duration>,
    /// `utime + stime` of the tree and of all children that it has waited for.
    with_ended: Duration,
    /// Resident memory now, summed over the tree.
    pub rss_bytes: Option<u64>,
    /// Highest resident memory so far, summed over the tree.
    pub peak_rss_bytes: Option<u64>,
}

impl ProcessUsage {
    /// Number of processes of the tree.
    pub fn num_processes(&self) -> usize {
        self.processes.len()
    }

    /// Returns the CPU time used since `earlier`; `None` when neither source covers both moments.
    pub fn cpu_ns_since(&self, earlier: &Self) -> Option<u64> {
        let whole = self.whole_ns_since(earlier)?;
        let slack = TICK_SLACK_NS * self.processes.len() as u64;
        match self.threads_ns_since(earlier) {
            Some(exact) if whole <= exact + slack => Some(exact),
            _ => Some(whole),
        }
    }

    /// Returns the CPU time used since `earlier` in clock ticks, that of processes which have ended
    /// included: their parents have waited for them. `None` where there is no `/proc`.
    pub fn ticks_ns_since(&self, earlier: &Self) -> Option<u64> {
        if self.processes.is_empty() || earlier.processes.is_empty() {
            return None;
        }
        let used = self.with_ended.checked_sub(earlier.with_ended)?;
        u64::try_from(used.as_nanos()).ok()
    }

    fn threads_ns_since(&self, earlier: &Self) -> Option<u64> {
        if self.threads.is_empty() || !self.threads.keys().eq(earlier.threads.keys()) {
            return None;
        }
        let total = |usage: &Self| usage.threads.values().sum::<u64>();
        total(self).checked_sub(total(earlier))
    }

    fn whole_ns_since(&self, earlier: &Self) -> Option<u64> {
        // A process that left took its time along: then the difference is unknown.
        let is_here = |pid| self.processes.contains_key(pid);
        if self.processes.is_empty() || !earlier.processes.keys().all(is_here) {
            return None;
        }
        let total = |usage: &Self| usage.processes.values().sum::<Duration>();
        let used = total(self).checked_sub(total(earlier))?;
        u64::try_from(used.as_nanos()).ok()
    }
}

/// Reads the usage of a process and all its descendants.
///
/// A process that ends meanwhile is left out.
pub fn process_usage(pid: u32) -> ProcessUsage {
    let mut usage = ProcessUsage::default();
    let mut complete = true;
    let mut rss = Some(0);
    let mut peak = Some(0);
    for pid in process_tree(pid) {
        for thread in thread_ids(pid) {
            match schedstat_ns(pid, thread) {
                Some(ns) => drop(usage.threads.insert(thread, ns)),
                None => complete = false,
            }
        }
        if let Some((time, of_children)) = stat_time(pid) {
            usage.processes.insert(pid, time);
            usage.with_ended += time + of_children;
        }
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        rss = add(rss, status_bytes(&status, "VmRSS:"));
        peak = add(peak, status_bytes(&status, "VmHWM:"));
    }
    if !complete {
        usage.threads.clear();
    }
    if !usage.processes.is_empty() {
        usage.rss_bytes = rss;
        usage.peak_rss_bytes = peak;
    }
    usage
}

fn add(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    Some(a? + b?)
}

/// The process and its descendants, each once.
pub fn process_tree(root: u32) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut open = vec![root];
    while let Some(pid) = open.pop() {
        if !found.insert(pid) {
            continue;
        }
        for thread in thread_ids(pid) {
            let path = format!("/proc/{pid}/task/{thread}/children");
            let children = fs::read_to_string(path).unwrap_or_default();
            open.extend(
                children
                    .split_whitespace()
                    .filter_map(|id| id.parse::<u32>().ok()),
            );
        }
    }
    found
}

fn thread_ids(pid: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(PathBuf::from(format!("/proc/{pid}/task"))) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

fn schedstat_ns(pid: u32, thread: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/schedstat")).ok()?;
    text.split(' ').next()?.parse().ok()
}

fn stat_time(pid: u32) -> Option<(Duration, Duration)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse_stat_time(&text, rustix::param::clock_ticks_per_second())
}

/// Fields 14 and 15 (utime, stime), and 16 and 17, the same of children that were waited for; the
/// name in field 2 may hold spaces and brackets.
fn parse_stat_time(stat: &str, ticks_per_second: u64) -> Option<(Duration, Duration)> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let mut time = || {
        let user: u64 = fields.next()?.parse().ok()?;
        let system: u64 = fields.next()?.parse().ok()?;
        let ns = (user + system) * (1_000_000_000 / ticks_per_second.max(1));
        Some(Duration::from_nanos(ns))
    };
    Some((time()?, time()?))
}

fn status_bytes(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn stat_survives_a_name_with_brackets() {
        let stat = "7 (a) b)) S 1 7 7 0 -1 4194560 100 0 0 0 150 50 30 70 20 0 1 0 5 6 7";
        let seconds = Duration::from_secs;
        assert_eq!(parse_stat_time(stat, 100), Some((seconds(2), seconds(1))));
        assert_eq!(parse_stat_time("garbage", 100), None);
    }

    #[test]
    fn status_is_read_in_bytes() {
        assert_eq!(
            status_bytes("Name:\tx\nVmRSS:\t   12 kB\n", "VmRSS:"),
            Some(12_288)
        );
        assert_eq!(status_bytes("Name:\tx\n", "VmRSS:"), None);
    }

    /// Burns CPU time on the calling thread.
    fn burn(time: Duration) {
        let clock = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let nanoseconds = |t: rustix::time::Timespec| t.tv_sec * 1_000_000_000 + t.tv_nsec;
        let start = nanoseconds(clock());
        while u128::try_from(nanoseconds(clock()) - start).unwrap() < time.as_nanos() {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn time_of_threads_that_ended_is_seen() {
        let before = process_usage(std::process::id());
        std::thread::spawn(|| burn(Duration::from_millis(120)))
            .join()
            .unwrap();
        let after = process_usage(std::process::id());
        // Other tests add to it in the same process.
        let used = after.cpu_ns_since(&before).unwrap();
        assert!(used >= 90_000_000, "{used}");
        assert!(after.rss_bytes.unwrap() > 0);
        assert!(after.peak_rss_bytes >= after.rss_bytes);
    }

    /// As a supervisor has its workers: the one that works is a child of the one that is read.
    #[test]
    fn the_time_of_children_counts() {
        let works = "echo ready; read go; i=0; \
                     while [ $i -lt 400000 ]; do i=$((i+1)); done; echo done; read end";
        let mut supervisor = Command::new("sh")
            .args(["-c", &format!("sh -c '{works}'; true")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(supervisor.stdout.take().unwrap()).lines();
        let mut orders = supervisor.stdin.take().unwrap();
        assert_eq!(said.next().unwrap().unwrap(), "ready");
        let before = process_usage(supervisor.id());
        assert_eq!(before.processes.len(), 2);
        orders.write_all(b"go\n").unwrap();
        assert_eq!(said.next().unwrap().unwrap(), "done");
        let used = process_usage(supervisor.id())
            .cpu_ns_since(&before)
            .unwrap();
        orders.write_all(b"end\n").unwrap();
        supervisor.wait().unwrap();
        assert!(used >= 20_000_000, "{used}");
    }

    /// As a development server has them: the one that works ends, and another follows.
    #[test]
    fn the_time_of_children_that_ended_counts_in_ticks() {
        let works = "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done";
        let mut supervisor = Command::new("sh")
            .args([
                "-c",
                &format!("echo ready; read go; sh -c '{works}'; echo done; read end"),
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(supervisor.stdout.take().unwrap()).lines();
        let mut orders = supervisor.stdin.take().unwrap();
        assert_eq!(said.next().unwrap().unwrap(), "ready");
        let before = process_usage(supervisor.id());
        orders.write_all(b"go\n").unwrap();
        assert_eq!(said.next().unwrap().unwrap(), "done");
        let after = process_usage(supervisor.id());
        orders.write_all(b"end\n").unwrap();
        supervisor.wait().unwrap();
        let used = after.ticks_ns_since(&before).unwrap();
        assert!(used >= 20_000_000, "{used}");
        assert_eq!(ProcessUsage::default().ticks_ns_since(&before), None);
    }

    fn usage(threads: &[(u32, u64)], millis: u64) -> ProcessUsage {
        ProcessUsage {
            threads: threads.iter().copied().collect(),
            processes: [(1, Duration::from_millis(millis))].into(),
            ..ProcessUsage::default()
        }
    }

    #[test]
    fn exited_threads_are_counted_in_ticks() {
        let before = usage(&[(1, 100), (2, 900)], 10);
        let same = usage(&[(1, 150), (2, 950)], 20);
        assert_eq!(same.cpu_ns_since(&before), Some(100));
        let fewer = usage(&[(1, 150)], 40);
        assert_eq!(fewer.cpu_ns_since(&before), Some(30_000_000));
        let came_and_went = usage(&[(1, 150), (2, 950)], 90);
        assert_eq!(came_and_went.cpu_ns_since(&before), Some(80_000_000));
        assert_eq!(ProcessUsage::default().cpu_ns_since(&before), None);
    }
}
