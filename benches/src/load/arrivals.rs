//! When requests are due in an open loop: a schedule that no answer can change.
//!
//! Arrivals are those of a process of rate one (whole numbers, or a Poisson process from a
//! recorded seed), laid over the integral of the offered rate. So the same plan has the same
//! instants whatever the number of threads is, and a ramp or a pause needs no rule of its own.
//! No instant is stored: a [`Cursor`] computes the next, and memory does not depend on the run.

use std::time::Duration;

use crate::stats::SplitMix64;

/// How the offered rate goes over time, and how arrivals lie around it.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenLoop {
    /// One after the other, beginning with the measured part.
    pub stages: Vec<Stage>,
    /// Distances between arrivals.
    pub process: ArrivalProcess,
    /// Seed of the distances, where they are random.
    pub seed: u64,
}

/// A time in which the rate stays or changes in a straight line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stage {
    /// How long; without it, until the plan stops.
    pub duration: Option<Duration>,
    /// Requests per second at its begin.
    pub from: f64,
    /// Requests per second at its end.
    pub to: f64,
}

/// Distances between arrivals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ArrivalProcess {
    /// As even as the rate allows.
    Constant,
    /// Exponential: what many independent clients make.
    Poisson,
}

impl OpenLoop {
    /// A rate that stays as it is.
    pub fn constant(rate: f64) -> Self {
        let stage = Stage {
            duration: None,
            from: rate,
            to: rate,
        };
        Self {
            stages: vec![stage],
            process: ArrivalProcess::Constant,
            seed: 0,
        }
    }

    /// Sum of the stages; `None` if the last has no end.
    pub fn duration(&self) -> Option<Duration> {
        self.stages.iter().map(|stage| stage.duration).sum()
    }

    /// What is wrong with it.
    pub(super) fn problem(&self) -> Option<&'static str> {
        let stages = &self.stages;
        let is_rate = |rate: f64| rate.is_finite() && rate >= 0.0;
        let ends_early = |stages: &[Stage]| {
            let (last, before) = stages.split_last()?;
            Some(before.iter().all(|stage| stage.duration.is_some()) && last.duration.is_none())
        };
        if stages.is_empty() {
            Some("no stage")
        } else if !stages.iter().all(|s| is_rate(s.from) && is_rate(s.to)) {
            Some("a rate is not a number of requests per second")
        } else if stages.iter().any(|s| s.duration == Some(Duration::ZERO)) {
            Some("a stage lasts no time")
        } else if stages.iter().all(|s| s.from == 0.0 && s.to == 0.0) {
            Some("no rate is above zero")
        } else if self.duration().is_none() && ends_early(stages) != Some(true) {
            Some("a stage has no end and is not the last")
        } else if stages
            .iter()
            .any(|s| s.duration.is_none() && s.from.to_bits() != s.to.to_bits())
        {
            Some("a ramp has no end")
        } else {
            None
        }
    }

    /// The even schedule of the warm-up: the rate with which the first stage begins.
    pub(super) fn warm_up(&self, duration: Duration) -> Self {
        let rate = self.stages.first().map_or(0.0, |stage| stage.from);
        Self {
            stages: vec![Stage {
                duration: Some(duration),
                from: rate,
                to: rate,
            }],
            process: ArrivalProcess::Constant,
            seed: 0,
        }
    }
}

/// Walks over every `step`th arrival of a schedule, from the `first`.
#[derive(Debug, Clone)]
pub(super) struct Cursor {
    process: ArrivalProcess,
    random: SplitMix64,
    /// Stages with their begin, and the arrivals expected before it.
    stages: Vec<Begun>,
    stage: usize,
    /// Arrivals walked over, those of others included.
    index: u64,
    /// Arrivals expected before the next one.
    mass: f64,
    step: u64,
    /// Arrivals that may still come.
    limit: Option<u64>,
    next: Option<Duration>,
    taken: u64,
}

#[derive(Debug, Clone, Copy)]
struct Begun {
    stage: Stage,
    begin: f64,
    mass: f64,
}

impl Cursor {
    pub(super) fn new(schedule: &OpenLoop, first: u64, step: u64, limit: Option<u64>) -> Self {
        let (mut begin, mut mass) = (0.0, 0.0);
        let stages = schedule
            .stages
            .iter()
            .map(|&stage| {
                let begun = Begun { stage, begin, mass };
                if let Some(duration) = stage.duration {
                    begin += duration.as_secs_f64();
                    mass += f64::midpoint(stage.from, stage.to) * duration.as_secs_f64();
                }
                begun
            })
            .collect();
        let mut cursor = Self {
            process: schedule.process,
            random: SplitMix64(schedule.seed),
            stages,
            stage: 0,
            index: 0,
            mass: 0.0,
            step,
            limit,
            next: None,
            taken: 0,
        };
        if cursor.process == ArrivalProcess::Poisson {
            cursor.mass = cursor.distance();
        }
        cursor.walk(first);
        cursor.next = cursor.instant();
        cursor
    }

    /// Time of the next arrival from the begin of the schedule.
    pub(super) const fn peek(&self) -> Option<Duration> {
        self.next
    }

    /// Goes on to the arrival after the next.
    pub(super) fn advance(&mut self) {
        if self.next.is_none() {
            return;
        }
        self.taken += 1;
        self.walk(self.step);
        self.next = self.instant();
    }

    /// Arrivals that were advanced over.
    pub(super) const fn taken(&self) -> u64 {
        self.taken
    }

    fn walk(&mut self, count: u64) {
        self.index += count;
        match self.process {
            // Not summed up: no error grows with the run.
            ArrivalProcess::Constant => self.mass = self.index as f64,
            ArrivalProcess::Poisson => {
                for _ in 0..count {
                    self.mass += self.distance();
                }
            }
        }
    }

    /// A distance of a Poisson process of rate one.
    fn distance(&mut self) -> f64 {
        // 53 bits, so that 1 - u is never 0.
        let uniform = (self.random.next() >> 11) as f64 / (1_u64 << 53) as f64;
        -(-uniform).ln_1p()
    }

    /// Where the integral of the rate reaches `mass`.
    fn instant(&mut self) -> Option<Duration> {
        if self.limit.is_some_and(|limit| self.taken >= limit) {
            return None;
        }
        loop {
            let Begun { stage, begin, mass } = *self.stages.get(self.stage)?;
            let within = self.mass - mass;
            let Some(duration) = stage.duration else {
                return Some(Duration::from_secs_f64(begin + within / stage.from));
            };
            let seconds = duration.as_secs_f64();
            if within >= f64::midpoint(stage.from, stage.to) * seconds {
                self.stage += 1;
                continue;
            }
            // Root of from·t + slope·t²/2 = within, in the form without a difference.
            let slope = (stage.to - stage.from) / seconds;
            let root = (2.0 * slope).mul_add(within, stage.from * stage.from);
            let divisor = stage.from + root.max(0.0).sqrt();
            let time = if within > 0.0 {
                2.0 * within / divisor
            } else {
                0.0
            };
            return Some(Duration::from_secs_f64(begin + time.min(seconds)));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stage(seconds: f64, from: f64, to: f64) -> Stage {
        Stage {
            duration: Some(Duration::from_secs_f64(seconds)),
            from,
            to,
        }
    }

    fn schedule(process: ArrivalProcess, stages: &[Stage]) -> OpenLoop {
        OpenLoop {
            stages: stages.to_vec(),
            process,
            seed: 7,
        }
    }

    fn all(schedule: &OpenLoop, first: u64, step: u64) -> Vec<f64> {
        let mut cursor = Cursor::new(schedule, first, step, None);
        let mut found = Vec::new();
        while let Some(instant) = cursor.peek() {
            found.push(instant.as_secs_f64());
            cursor.advance();
        }
        assert_eq!(cursor.taken(), found.len() as u64);
        found
    }

    #[test]
    fn an_even_rate_has_even_distances() {
        let found = all(
            &schedule(ArrivalProcess::Constant, &[stage(2.0, 5.0, 5.0)]),
            0,
            1,
        );
        let expected: Vec<f64> = (0..10).map(|index| f64::from(index) / 5.0).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn stages_follow_one_another() {
        use ArrivalProcess::Constant;
        let stages = [
            stage(1.0, 4.0, 4.0),
            stage(1.0, 0.0, 0.0),
            stage(1.0, 2.0, 2.0),
        ];
        let found = all(&schedule(Constant, &stages), 0, 1);
        assert_eq!(found, [0.0, 0.25, 0.5, 0.75, 2.0, 2.5]);
        // 0 to 8 per second in 4 s: the integral is t², so arrival i is at √i.
        let found = all(&schedule(Constant, &[stage(4.0, 0.0, 8.0)]), 0, 1);
        assert_eq!(found.len(), 16);
        for (index, instant) in found.iter().enumerate() {
            assert!((instant - (index as f64).sqrt()).abs() < 1e-6, "{found:?}");
        }
        // And down again: the mirror image.
        let found = all(&schedule(Constant, &[stage(4.0, 8.0, 0.0)]), 0, 1);
        for (index, instant) in found.iter().enumerate() {
            assert!((4.0 - instant - (16.0 - index as f64).sqrt()).abs() < 1e-6);
        }
    }

    #[test]
    fn a_limit_ends_a_schedule_without_an_end() {
        let mut cursor = Cursor::new(&OpenLoop::constant(10.0), 1, 2, Some(3));
        let mut found = Vec::new();
        while let Some(instant) = cursor.peek() {
            found.push(instant.as_millis());
            cursor.advance();
        }
        assert_eq!(found, [100, 300, 500]);
    }

    #[test]
    fn poisson_distances_have_the_mean_and_deviation_of_an_exponential() {
        let found = all(
            &schedule(ArrivalProcess::Poisson, &[stage(100.0, 1000.0, 1000.0)]),
            0,
            1,
        );
        // 100 000 expected, standard deviation 316.
        assert!((98_700..101_300).contains(&found.len()), "{}", found.len());
        let distances: Vec<f64> = found.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = distances.iter().sum::<f64>() / distances.len() as f64;
        let variance = distances.iter().map(|d| (d - mean).powi(2)).sum::<f64>()
            / (distances.len() - 1) as f64;
        assert!(
            (variance.sqrt() / mean - 1.0).abs() < 0.02,
            "{variance} {mean}"
        );
    }

    #[test]
    fn plans_without_an_order_in_time_are_refused() {
        let open = |stages: &[Stage]| schedule(ArrivalProcess::Constant, stages).problem();
        let endless = |from, to| Stage {
            duration: None,
            from,
            to,
        };
        assert_eq!(open(&[stage(1.0, 1.0, 2.0), endless(1.0, 1.0)]), None);
        for bad in [
            &[][..],
            &[stage(1.0, f64::NAN, 1.0)],
            &[stage(1.0, -1.0, 1.0)],
            &[stage(0.0, 1.0, 1.0)],
            &[stage(1.0, 0.0, 0.0)],
            &[endless(1.0, 1.0), stage(1.0, 1.0, 1.0)],
            &[endless(1.0, 2.0)],
        ] {
            assert!(open(bad).is_some(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn threads_divide_one_schedule(
            is_poisson: bool,
            threads in 1_u64..5,
            stages in proptest::collection::vec((0.05_f64..2.0, 0_u32..200, 0_u32..200), 1..4),
        ) {
            let stages: Vec<Stage> = stages
                .into_iter()
                .map(|(seconds, from, to)| stage(seconds, f64::from(from), f64::from(to)))
                .collect();
            let process = if is_poisson { ArrivalProcess::Poisson } else { ArrivalProcess::Constant };
            let schedule = schedule(process, &stages);
            let whole = all(&schedule, 0, 1);
            let mut shared: Vec<f64> = (0..threads)
                .flat_map(|thread| all(&schedule, thread, threads))
                .collect();
            shared.sort_by(f64::total_cmp);
            prop_assert!(whole.is_sorted());
            prop_assert_eq!(&whole, &shared);
            if !is_poisson {
                let mass: f64 = stages.iter().map(|s| {
                    f64::midpoint(s.from, s.to) * s.duration.unwrap().as_secs_f64()
                }).sum();
                prop_assert!((whole.len() as f64 - mass.ceil()).abs() <= 1.0);
            }
        }
    }
}
