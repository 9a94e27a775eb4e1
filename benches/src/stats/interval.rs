//! 95 % intervals for a median: percentile bootstrap and exact order statistics.
//!
//! The wider of the two is reported. The exact interval is the one the sign test inverts
//! (Hollander & Wolfe, *Nonparametric Statistical Methods*, §3.6); with fewer than 6 samples no
//! pair of order statistics reaches 95 %, so there is no interval.

use serde::{Deserialize, Serialize};

use super::sorted;

/// Resamples of one bootstrap: the 2.5 % tails then hold 250 draws each.
pub const BOOTSTRAP_RESAMPLES: usize = 10_000;

/// Share outside the interval, both tails together.
const ALPHA: f64 = 0.05;

/// A closed interval and the method that gave it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// How it was computed.
    pub method: IntervalMethod,
}

impl Interval {
    /// Returns the distance between the ends.
    pub fn width(&self) -> f64 {
        self.high - self.low
    }
}

/// How an interval was computed.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum IntervalMethod {
    /// Percentile bootstrap of the median.
    Bootstrap,
    /// A pair of order statistics with exact binomial coverage.
    OrderStatistic,
    /// The worst round, of which nothing is inferred.
    Extreme,
}

/// Returns the wider of the bootstrap and the exact 95 % interval of the median.
///
/// `None` below 6 samples, where no exact interval of that confidence exists.
pub fn median_interval(samples: &[f64], seed: u64) -> Option<Interval> {
    let exact = order_statistic_median(samples)?;
    let bootstrap = bootstrap_median(samples, seed)?;
    Some(if bootstrap.width() > exact.width() {
        bootstrap
    } else {
        exact
    })
}

/// Returns the percentile-bootstrap 95 % interval of the median.
pub fn bootstrap_median(samples: &[f64], seed: u64) -> Option<Interval> {
    let sorted = sorted(samples);
    let n = sorted.len();
    sorted.first()?;
    let mut random = SplitMix64(seed);
    // How often a resample drew each rank: its median is then a walk, not a sort.
    let mut draws = vec![0usize; n];
    let mut medians = Vec::with_capacity(BOOTSTRAP_RESAMPLES);
    for _ in 0..BOOTSTRAP_RESAMPLES {
        draws.fill(0);
        for _ in 0..n {
            draws[random.below(n)] += 1;
        }
        let lower = rank_of_draw(&draws, (n - 1) / 2);
        let upper = rank_of_draw(&draws, n / 2);
        medians.push(f64::midpoint(sorted[lower], sorted[upper]));
    }
    medians.sort_unstable_by(f64::total_cmp);
    let tail = (BOOTSTRAP_RESAMPLES as f64 * ALPHA / 2.0) as usize;
    Some(Interval {
        low: medians[tail],
        high: medians[BOOTSTRAP_RESAMPLES - 1 - tail],
        method: IntervalMethod::Bootstrap,
    })
}

/// The rank of the draw at `position` when the draws are in order.
fn rank_of_draw(draws: &[usize], position: usize) -> usize {
    let mut seen = 0;
    draws
        .iter()
        .position(|count| {
            seen += count;
            seen > position
        })
        .expect("there are more draws than the position of a middle one")
}

/// Returns the narrowest symmetric pair of order statistics with coverage ≥ 95 %.
pub fn order_statistic_median(samples: &[f64]) -> Option<Interval> {
    let sorted = sorted(samples);
    // The pair (k, n - 1 - k), counted from 0, misses with probability 2 P(Binomial(n, ½) ≤ k).
    let k = (0..sorted.len() / 2)
        .take_while(|k| 2.0 * binomial_half_at_most(sorted.len(), *k) <= ALPHA)
        .last()?;
    Some(Interval {
        low: sorted[k],
        high: sorted[sorted.len() - 1 - k],
        method: IntervalMethod::OrderStatistic,
    })
}

/// Returns the narrowest pair of order statistics that leaves at most 2.5 % beyond each end of the
/// interval of a percentile.
///
/// `None` where there are too few samples above or below it: of a 95th percentile below 72.
pub fn percentile_interval(samples: &[f64], p: f64) -> Option<Interval> {
    let sorted = sorted(samples);
    let n = sorted.len();
    // The number of samples above the percentile is Binomial(n, 1 - p).
    let beyond = |num_above: usize| binomial_at_most(n, num_above, 1.0 - p) <= ALPHA / 2.0;
    let from_top = (0..n).take_while(|k| beyond(*k)).last()?;
    let short = |k: &usize| 1.0 - binomial_at_most(n, *k, 1.0 - p) <= ALPHA / 2.0;
    let to_low = (0..n).find(short)?;
    Some(Interval {
        low: sorted[n - 1 - to_low],
        high: sorted[n - 1 - from_top],
        method: IntervalMethod::OrderStatistic,
    })
}

/// Returns the exact two-sided p of the test that the percentile is `limit`.
pub fn percentile_test(samples: &[f64], p: f64, limit: f64) -> f64 {
    let num_above = samples.iter().filter(|sample| **sample > limit).count();
    let at_most = binomial_at_most(samples.len(), num_above, 1.0 - p);
    let at_least = match num_above {
        0 => 1.0,
        some => 1.0 - binomial_at_most(samples.len(), some - 1, 1.0 - p),
    };
    (2.0 * at_most.min(at_least)).clamp(0.0, 1.0)
}

/// Returns P(Binomial(n, `share`) ≤ k) for a small share, whose first term does not underflow.
fn binomial_at_most(n: usize, k: usize, share: f64) -> f64 {
    let odds = share / (1.0 - share);
    let mut term = (1.0 - share).powi(i32::try_from(n).unwrap_or(i32::MAX));
    let mut sum = term;
    for i in 1..=k.min(n) {
        term *= odds * (n + 1 - i) as f64 / i as f64;
        sum += term;
    }
    sum.min(1.0)
}

/// Returns P(Binomial(n, ½) ≤ k).
pub(super) fn binomial_half_at_most(n: usize, k: usize) -> f64 {
    let mut term = 0.5f64.powi(i32::try_from(n).unwrap_or(i32::MAX));
    let mut sum = term;
    for i in 1..=k.min(n) {
        term *= (n + 1 - i) as f64 / i as f64;
        sum += term;
    }
    sum.min(1.0)
}

/// Steele, Lea & Flood's `SplitMix64`. Own code because a record's interval must be recomputed
/// bit for bit years later, whatever a random-number crate does to its streams.
#[derive(Debug, Clone)]
pub(crate) struct SplitMix64(pub(crate) u64);

impl SplitMix64 {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`; the bias of the multiply-shift is below 2⁻⁵⁰ for rounds.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::median;

    fn ramp(n: u32) -> Vec<f64> {
        (1..=n).map(f64::from).collect()
    }

    /// Ranks from the table in Conover, *Practical Nonparametric Statistics*, A3 (p = 0.5).
    fn check_ranks(n: u32, expected: Option<(f64, f64)>) {
        let found = order_statistic_median(&ramp(n)).map(|i| (i.low, i.high));
        assert_eq!(found, expected, "n = {n}");
    }

    #[test]
    fn exact_interval_has_the_tabulated_ranks() {
        check_ranks(5, None);
        check_ranks(6, Some((1.0, 6.0)));
        check_ranks(8, Some((1.0, 8.0)));
        check_ranks(9, Some((2.0, 8.0)));
        check_ranks(10, Some((2.0, 9.0)));
        check_ranks(20, Some((6.0, 15.0)));
    }

    #[test]
    fn binomial_tail_is_exact() {
        assert!((binomial_half_at_most(6, 0) - 1.0 / 64.0).abs() < 1e-15);
        assert!((binomial_half_at_most(10, 1) - 11.0 / 1024.0).abs() < 1e-15);
        assert!((binomial_half_at_most(10, 10) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn bootstrap_is_reproducible_and_brackets_the_median() {
        let samples = [1.02, 0.98, 1.01, 1.00, 0.99, 1.03, 1.00, 0.97];
        let first = bootstrap_median(&samples, 7).unwrap();
        assert_eq!(Some(first), bootstrap_median(&samples, 7));
        let center = median(&samples).unwrap();
        assert!(first.low <= center && center <= first.high);
        let constant = bootstrap_median(&[2.0; 6], 1).unwrap();
        assert_eq!((constant.low, constant.high), (2.0, 2.0));
    }

    #[test]
    fn the_wider_interval_is_reported() {
        let samples = ramp(12);
        let reported = median_interval(&samples, 3).unwrap();
        let exact = order_statistic_median(&samples).unwrap();
        let bootstrap = bootstrap_median(&samples, 3).unwrap();
        assert!((reported.width() - exact.width().max(bootstrap.width())).abs() < 1e-12);
    }

    /// Ranks and tails computed with exact fractions in Python.
    #[test]
    fn the_interval_of_a_percentile_has_its_exact_ranks() {
        for (n, expected) in [
            (71, None),
            (72, Some((64.0, 72.0))),
            (100, Some((90.0, 100.0))),
            (120, Some((109.0, 119.0))),
            (240, Some((221.0, 235.0))),
        ] {
            let found = percentile_interval(&ramp(n), 0.95).map(|i| (i.low, i.high));
            assert_eq!(found, expected, "n = {n}");
        }
        for (limit, expected) in [
            (120.0, 0.004_245),
            (119.0, 0.031_054),
            (114.0, 1.0),
            (100.0, 0.000_004),
        ] {
            let found = percentile_test(&ramp(120), 0.95, limit);
            assert!((found - expected).abs() < 1e-6, "{limit}: {found}");
        }
    }

    #[test]
    fn splitmix_matches_the_reference_stream() {
        // From Vigna's splitmix64.c with the seed 1234567.
        let mut random = SplitMix64(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }
}
