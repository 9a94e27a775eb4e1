//! A distribution of times in a few numbers, those left out that the samples do not support.

use serde::Serialize;

use super::tally::Times;

/// A percentile: its name, its share, and how many samples it needs.
///
/// With so many samples (⌈ln 0.01 / ln share⌉) the largest lies above the true percentile with a
/// probability of 99 %. With fewer, the number would be the maximum by another name.
struct Percentile {
    name: &'static str,
    share: f64,
    min_samples: u64,
}

const P50: Percentile = percentile("p50", 0.5, 1);
const P90: Percentile = percentile("p90", 0.9, 44);
const P95: Percentile = percentile("p95", 0.95, 90);
const P99: Percentile = percentile("p99", 0.99, 459);
const P99_9: Percentile = percentile("p99.9", 0.999, 4603);
const PERCENTILES: [Percentile; 5] = [P50, P90, P95, P99, P99_9];

const fn percentile(name: &'static str, share: f64, min_samples: u64) -> Percentile {
    Percentile {
        name,
        share,
        min_samples,
    }
}

/// A distribution of times, in nanoseconds.
///
/// Percentiles are by nearest rank and have a resolution of 0.1 %; the other numbers are exact.
/// A percentile with too few samples is `None`, unless all were asked for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LatencySummary {
    /// Number of samples.
    pub count: u64,
    /// Smallest.
    pub min_ns: Option<u64>,
    /// Arithmetic mean.
    pub mean_ns: Option<f64>,
    /// Median.
    pub p50_ns: Option<u64>,
    /// From 44 samples.
    pub p90_ns: Option<u64>,
    /// From 90 samples.
    pub p95_ns: Option<u64>,
    /// From 459 samples.
    pub p99_ns: Option<u64>,
    /// From 4603 samples.
    pub p99_9_ns: Option<u64>,
    /// Largest.
    pub max_ns: Option<u64>,
    /// Percentiles for which there are too few samples.
    pub below_floor: Vec<&'static str>,
}

impl LatencySummary {
    pub(super) fn new(times: &Times, all_percentiles: bool) -> Self {
        let count = times.count();
        let extremes = times.extremes();
        let quantile = |percentile: &Percentile| {
            if all_percentiles || count >= percentile.min_samples {
                times.quantile(percentile.share)
            } else {
                None
            }
        };
        let below_floor = (PERCENTILES.iter())
            .filter(|percentile| count < percentile.min_samples)
            .map(|percentile| percentile.name)
            .collect();
        Self {
            count,
            min_ns: extremes.map(|(min, _)| min),
            mean_ns: (count > 0).then(|| times.sum_ns() as f64 / count as f64),
            p50_ns: quantile(&P50),
            p90_ns: quantile(&P90),
            p95_ns: quantile(&P95),
            p99_ns: quantile(&P99),
            p99_9_ns: quantile(&P99_9),
            max_ns: extremes.map(|(_, max)| max),
            below_floor,
        }
    }

    /// Minimum, percentiles and maximum, which ascend.
    pub(crate) const fn ordered(&self) -> [Option<u64>; 7] {
        [
            self.min_ns,
            self.p50_ns,
            self.p90_ns,
            self.p95_ns,
            self.p99_ns,
            self.p99_9_ns,
            self.max_ns,
        ]
    }

    /// What each percentile needs for which there are too few samples.
    pub(crate) fn needs(&self) -> Vec<(&'static str, u64)> {
        (PERCENTILES.iter())
            .filter(|percentile| self.below_floor.contains(&percentile.name))
            .map(|percentile| (percentile.name, percentile.min_samples))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn floors_are_those_of_the_rule() {
        for percentile in &PERCENTILES[1..] {
            let floor = (0.01_f64.ln() / percentile.share.ln()).ceil();
            assert_eq!(percentile.min_samples, floor as u64, "{}", percentile.name);
        }
    }

    #[test]
    fn ten_samples_give_a_median_and_extremes() {
        let mut times = Times::new(Duration::from_secs(1));
        for tens in 1..=10 {
            times.record(Duration::from_millis(tens * 10));
        }
        let near = |found: Option<u64>, ms: f64| {
            let found = found.unwrap() as f64 / 1e6;
            assert!((found / ms - 1.0).abs() < 0.001, "{found} {ms}");
        };
        let summary = LatencySummary::new(&times, false);
        near(summary.p50_ns, 50.0);
        assert_eq!(summary.max_ns, Some(100_000_000));
        assert_eq!(summary.ordered()[2..6], [None; 4]);
        assert_eq!(
            summary.needs(),
            [("p90", 44), ("p95", 90), ("p99", 459), ("p99.9", 4603)]
        );
        let all = LatencySummary::new(&times, true);
        near(all.p90_ns, 90.0);
        near(all.p95_ns, 100.0);
        near(all.p99_9_ns, 100.0);
        assert_eq!(all.below_floor, summary.below_floor);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Against the nearest rank of an exact sort, from few samples to many.
        #[test]
        fn percentiles_are_those_of_a_sort(
            mut samples in prop_oneof![
                proptest::collection::vec(1_u64..40_000_000_000, 1..50),
                proptest::collection::vec(1_u64..2_000_000, 1..6000),
                proptest::collection::vec(0_u32..31, 4000..6000)
                    .prop_map(|powers| powers.into_iter().map(|power| 3_u64 << power).collect()),
            ],
        ) {
            let mut times = Times::new(Duration::from_secs(10));
            for sample in &samples {
                times.record(Duration::from_nanos(*sample));
            }
            samples.sort_unstable();
            let summary = LatencySummary::new(&times, true);
            let found = &summary.ordered()[1..6];
            for (percentile, found) in PERCENTILES.iter().zip(found) {
                let rank = (percentile.share * samples.len() as f64).ceil().max(1.0);
                let exact = samples[rank as usize - 1] as f64;
                let found = found.unwrap() as f64;
                // Three significant digits, rounded up.
                prop_assert!(
                    (exact..=exact * 1.001 + 1.0).contains(&found),
                    "{} of {}: {found} for {exact}", percentile.name, samples.len()
                );
            }
            prop_assert_eq!(summary.min_ns, samples.first().copied());
            prop_assert_eq!(summary.max_ns, samples.last().copied());
        }
    }

    /// A million samples of a long-tailed distribution, as one run has them.
    #[test]
    fn a_million_samples_have_the_percentiles_of_a_sort() {
        let mut random = fastrand::Rng::with_seed(11);
        let mut times = Times::new(Duration::from_secs(10));
        let mut samples: Vec<u64> = (0..1_000_000)
            .map(|_| (20_000.0 / random.f64().max(1e-9).powf(0.7)) as u64)
            .collect();
        for sample in &samples {
            times.record(Duration::from_nanos(*sample));
        }
        samples.sort_unstable();
        let summary = LatencySummary::new(&times, false);
        for (percentile, found) in PERCENTILES.iter().zip(&summary.ordered()[1..6]) {
            let rank = (percentile.share * samples.len() as f64).ceil() as usize;
            let exact = samples[rank - 1] as f64;
            let found = found.unwrap() as f64;
            assert!(
                (exact..=exact * 1.001 + 1.0).contains(&found),
                "{}: {found} for {exact}",
                percentile.name
            );
        }
    }
}
