//! What else the machine did during an interval: time stolen by the host, time of other processes.
//!
//! From the first line of `/proc/stat`, which counts in clock ticks (10 ms): of an interval of a
//! second on two CPUs, a tick is half a per cent.

use std::fs;
use std::time::{Duration, Instant};

use super::meter::{ProcessUsage, process_usage};
use crate::ledger::RoundFixture;

/// A running observation.
#[derive(Debug)]
pub(crate) struct Watch {
    started: Instant,
    times: Option<CpuTimes>,
    usage: ProcessUsage,
}

/// Time of all CPUs since boot.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct CpuTimes {
    busy: Duration,
    steal: Duration,
    num_cpus: u32,
}

impl Watch {
    /// Begins; the bench and the servers that it has started are not foreign.
    pub(crate) fn start() -> Self {
        Self {
            started: Instant::now(),
            times: CpuTimes::read(),
            usage: process_usage(std::process::id()),
        }
    }

    /// Ends; `None` where there is no `/proc/stat`. What servers have started and waited for
    /// meanwhile counts in clock ticks.
    pub(crate) fn stop(&self) -> Option<RoundFixture> {
        let usage = process_usage(std::process::id());
        let own_ns =
            (usage.cpu_ns_since(&self.usage)).or_else(|| usage.ticks_ns_since(&self.usage));
        let after = CpuTimes::read()?;
        Some(between(self.times?, after, self.started.elapsed(), own_ns))
    }
}

/// What happened besides `own_ns` of the bench and its servers.
fn between(
    before: CpuTimes,
    after: CpuTimes,
    elapsed: Duration,
    own_ns: Option<u64>,
) -> RoundFixture {
    let busy_ns = nanoseconds(after.busy.saturating_sub(before.busy));
    RoundFixture {
        capacity_ns: nanoseconds(elapsed * after.num_cpus),
        steal_ns: nanoseconds(after.steal.saturating_sub(before.steal)),
        foreign_ns: own_ns.map(|own| busy_ns.saturating_sub(own)),
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl CpuTimes {
    fn read() -> Option<Self> {
        let text = fs::read_to_string("/proc/stat").ok()?;
        Self::parse(&text, rustix::param::clock_ticks_per_second())
    }

    /// `cpu user nice system idle iowait irq softirq steal guest guest_nice`; guests are in user.
    fn parse(text: &str, ticks_per_second: u64) -> Option<Self> {
        let mut lines = text.lines();
        let first = lines.next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> = (first.split_whitespace())
            .map(|field| field.parse().ok())
            .collect::<Option<_>>()?;
        let [user, nice, system, _idle, _iowait, irq, soft_irq, steal, ..] = ticks[..] else {
            return None;
        };
        let time =
            |ticks: u64| Duration::from_nanos(ticks * (1_000_000_000 / ticks_per_second.max(1)));
        Some(Self {
            busy: time(user + nice + system + irq + soft_irq),
            steal: time(steal),
            num_cpus: lines.filter(|line| line.starts_with("cpu")).count() as u32,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_all_cpus_is_read() {
        let text = "cpu  10 20 30 999 999 4 6 50 7 8\ncpu0 1 1 1 1 1 1 1 1 1 1\ncpu1 1\nintr 5\n";
        let found = CpuTimes::parse(text, 100).unwrap();
        let expected = CpuTimes {
            busy: Duration::from_millis(700),
            steal: Duration::from_millis(500),
            num_cpus: 2,
        };
        assert_eq!(found, expected);
        assert_eq!(CpuTimes::parse("cpu 1 2 3\n", 100), None);
        assert_eq!(CpuTimes::parse("", 100), None);
    }

    #[test]
    fn own_work_is_not_foreign() {
        let times = |busy_ms: u64, steal_ms: u64| CpuTimes {
            busy: Duration::from_millis(busy_ms),
            steal: Duration::from_millis(steal_ms),
            num_cpus: 2,
        };
        let second = Duration::from_secs(1);
        let found = between(times(100, 20), times(1700, 50), second, Some(1_500_000_000));
        let expected = RoundFixture {
            capacity_ns: 2_000_000_000,
            steal_ns: 30_000_000,
            foreign_ns: Some(100_000_000),
        };
        assert_eq!(found, expected);
        // Ticks may say less than nanoseconds do, and what is unknown stays so.
        let rounded = between(times(0, 0), times(10, 0), second, Some(15_000_000));
        assert_eq!(rounded.foreign_ns, Some(0));
        assert_eq!(
            between(times(0, 0), times(10, 0), second, None).foreign_ns,
            None
        );
        // Where there is `/proc`, all of it is read.
        let watched = Watch::start().stop().unwrap();
        assert!(watched.capacity_ns > 0);
    }
}
