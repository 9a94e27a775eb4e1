//! Whether a machine has nothing else to do, before something is measured on it.
//!
//! Guarantee: a busy machine is waited for, and then refused or taken on purpose; what was found is
//! in the record either way.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::watch::Watch;
use crate::Error;
use crate::ledger::{BeforeRecord, Decimal, RoundFixture};

/// Above half a runnable thread per processor, others compete with what is measured.
const MAX_LOAD_PER_CPU: f64 = 0.5;
/// Share of the processors that the host may give to other machines.
const MAX_STEAL: f64 = 0.01;
/// Share of them that processes which have nothing to do with the run may use.
const MAX_FOREIGN: f64 = 0.05;

/// A look is long enough for a tick of `/proc/stat` (10 ms) to be half a per cent of two processors.
const LOOK: Duration = Duration::from_secs(1);
/// A look that decides nothing.
const GLANCE: Duration = Duration::from_millis(100);
/// How often a look sees the stop flag.
const TICK: Duration = Duration::from_millis(50);

/// What to do on a machine that does something else.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BusyMachine {
    /// Wait this long for it to become quiet, then measure nothing.
    Refuse {
        /// From the first look.
        after: Duration,
    },
    /// Measure all the same, and record what was found.
    Accept,
}

/// What a look found.
#[derive(Clone, Copy, Debug)]
struct Look {
    num_cpus: f64,
    load_average: Option<f64>,
    fixture: Option<RoundFixture>,
}

/// Waits until the machine is quiet, as far as `busy` says so.
///
/// # Errors
///
/// [`Error::Busy`] with what was too much, and [`Error::Interrupted`].
pub(crate) fn await_quiet(
    busy: BusyMachine,
    stop_flag: &AtomicBool,
) -> Result<BeforeRecord, Error> {
    await_looks(busy, |time| look(time, stop_flag))
}

fn await_looks(
    busy: BusyMachine,
    mut look: impl FnMut(Duration) -> Result<Look, Error>,
) -> Result<BeforeRecord, Error> {
    let mut waited = Duration::ZERO;
    loop {
        let (time, patience) = match busy {
            BusyMachine::Refuse { after } => (LOOK, after),
            BusyMachine::Accept => (GLANCE, Duration::ZERO),
        };
        let found = look(time)?;
        let reasons = found.reasons();
        if reasons.is_empty() || busy == BusyMachine::Accept {
            return Ok(BeforeRecord {
                load_average: found.load_average.and_then(Decimal::new),
                fixture: found.fixture,
                waited_ms: u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
                overridden: reasons,
            });
        }
        waited += time;
        if waited > patience {
            return Err(Error::Busy {
                reasons: reasons.join("; "),
            });
        }
    }
}

impl Look {
    /// What is too much.
    fn reasons(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        if let Some(load) = self.load_average
            && load > MAX_LOAD_PER_CPU * self.num_cpus
        {
            reasons.push(format!("the load average is {load:.2}"));
        }
        if let Some(fixture) = &self.fixture {
            let share = |ns: u64| ns as f64 / fixture.capacity_ns.max(1) as f64;
            let shares = [
                (
                    Some(fixture.steal_ns),
                    MAX_STEAL,
                    "is given to others by the host",
                ),
                (
                    fixture.foreign_ns,
                    MAX_FOREIGN,
                    "is used by other processes",
                ),
            ];
            for (time, limit, what) in shares {
                if let Some(share) = time.map(share).filter(|share| *share > limit) {
                    let percent = share * 100.0;
                    reasons.push(format!("{percent:.1} % of the CPU time {what}"));
                }
            }
        }
        reasons
    }
}

/// Looks for so long.
fn look(time: Duration, stop_flag: &AtomicBool) -> Result<Look, Error> {
    let watch = Watch::start();
    let mut left = time;
    while !left.is_zero() {
        if stop_flag.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        let next = left.min(TICK);
        thread::sleep(next);
        left -= next;
    }
    let load_average = fs::read_to_string("/proc/loadavg").ok();
    Ok(Look {
        num_cpus: thread::available_parallelism().map_or(1.0, |number| number.get() as f64),
        load_average: load_average.and_then(|text| text.split(' ').next()?.parse().ok()),
        fixture: watch.stop(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two processors for a second: load average, stolen and foreign milliseconds.
    fn found(load: f64, steal_ms: u64, foreign_ms: u64) -> Look {
        Look {
            num_cpus: 2.0,
            load_average: Some(load),
            fixture: Some(RoundFixture {
                capacity_ns: 2_000_000_000,
                steal_ns: steal_ms * 1_000_000,
                foreign_ns: Some(foreign_ms * 1_000_000),
            }),
        }
    }

    #[test]
    fn each_kind_of_other_work_is_named() {
        assert!(found(1.0, 20, 100).reasons().is_empty());
        for (look, expected) in [
            (found(1.01, 0, 0), "the load average is 1.01"),
            (
                found(0.0, 30, 0),
                "1.5 % of the CPU time is given to others by the host",
            ),
            (
                found(0.0, 0, 110),
                "5.5 % of the CPU time is used by other processes",
            ),
        ] {
            assert_eq!(look.reasons(), [expected]);
        }
        let unknown = Look {
            load_average: None,
            fixture: None,
            ..found(9.0, 900, 900)
        };
        assert!(unknown.reasons().is_empty());
    }

    #[test]
    fn a_busy_machine_is_waited_for() {
        let mut looks = [found(3.0, 0, 0), found(0.5, 500, 0), found(0.5, 0, 0)].into_iter();
        let busy = BusyMachine::Refuse {
            after: Duration::from_secs(2),
        };
        let before = await_looks(busy, |_| Ok(looks.next().unwrap())).unwrap();
        assert_eq!(before.waited_ms, 2000);
        assert!(before.overridden.is_empty());
        assert_eq!(before.load_average, Decimal::new(0.5));
    }

    #[test]
    fn one_that_stays_busy_is_refused_or_taken_on_purpose() {
        let mut looks = 0;
        let busy = BusyMachine::Refuse {
            after: Duration::from_secs(2),
        };
        let refused = await_looks(busy, |_| {
            looks += 1;
            Ok(found(3.0, 0, 400))
        });
        assert!(matches!(
            refused,
            Err(Error::Busy { reasons }) if reasons
                == "the load average is 3.00; 20.0 % of the CPU time is used by other processes"
        ));
        assert_eq!(looks, 3);
        let taken = await_looks(BusyMachine::Accept, |_| Ok(found(3.0, 0, 0))).unwrap();
        assert_eq!(taken.overridden, ["the load average is 3.00"]);
        assert_eq!(taken.waited_ms, 0);
    }

    #[test]
    fn a_look_is_stopped_and_reads_the_machine() {
        let stopped = await_quiet(BusyMachine::Accept, &AtomicBool::new(true));
        assert!(matches!(stopped, Err(Error::Interrupted)));
        let before = await_quiet(BusyMachine::Accept, &AtomicBool::new(false)).unwrap();
        assert!(before.load_average.is_some() && before.fixture.is_some());
    }
}
