//! The standard `process_*` metrics, from `/proc`.
//!
//! Names and meaning: Prometheus documentation, "Writing client libraries",
//! process metrics. A value that the system does not give is left out.

use std::fs;

use super::exposition::Exposition;

/// Ticks a second in `/proc/*/stat`; `USER_HZ`, part of Linux' ABI.
const TICKS_PER_SECOND: f64 = 100.0;

/// What stays the same while the process lives.
#[derive(Debug)]
pub(super) struct Process {
    start_time_seconds: Option<f64>,
}

impl Process {
    pub(super) fn new() -> Self {
        Self {
            start_time_seconds: start_time_seconds(),
        }
    }

    pub(super) fn render(&self, text: &mut Exposition) {
        if let Some(seconds) = self.start_time_seconds {
            text.gauge(
                "process_start_time_seconds",
                "Start of the process in Unix time.",
                seconds,
            );
        }
        if let Some(bytes) = resident_memory_bytes() {
            text.gauge("process_resident_memory_bytes", "Memory in RAM.", bytes);
        }
        if let Some(count) = num_open_fds() {
            text.gauge("process_open_fds", "Open file descriptors.", count);
        }
        if let Some(seconds) = cpu_seconds() {
            text.counter(
                "process_cpu_seconds_total",
                "User and system CPU time.",
                seconds,
            );
        }
    }
}

/// Fields 14 (utime), 15 (stime) and 22 (starttime) of `/proc/self/stat`.
fn stat_ticks() -> Option<[f64; 3]> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is the program's name, which may hold anything.
    let (_, after_name) = stat.rsplit_once(')')?;
    let fields: Vec<_> = after_name.split_ascii_whitespace().collect();
    let ticks = |number: usize| fields.get(number - 3)?.parse().ok();
    Some([ticks(14)?, ticks(15)?, ticks(22)?])
}

fn cpu_seconds() -> Option<f64> {
    let [user, system, _] = stat_ticks()?;
    Some((user + system) / TICKS_PER_SECOND)
}

fn start_time_seconds() -> Option<f64> {
    let [.., start] = stat_ticks()?;
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let boot: f64 = stat
        .lines()
        .find_map(|line| line.strip_prefix("btime "))?
        .trim()
        .parse()
        .ok()?;
    Some(boot + start / TICKS_PER_SECOND)
}

fn resident_memory_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let kibibytes: u64 = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?
        .trim()
        .strip_suffix("kB")?
        .trim()
        .parse()
        .ok()?;
    Some(kibibytes * 1024)
}

fn num_open_fds() -> Option<usize> {
    let num_entries = fs::read_dir("/proc/self/fd").ok()?.count();
    // One of them is this listing's own.
    Some(num_entries.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    #[test]
    fn linux_gives_every_value() {
        let start = start_time_seconds().unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let age = now.as_secs_f64() - start;
        assert!((-2.0..86_400.0).contains(&age), "{age}");
        assert!(resident_memory_bytes().unwrap() > 100_000);
        assert!(num_open_fds().unwrap() >= 3);
        assert!(cpu_seconds().unwrap() >= 0.0);
    }
}
