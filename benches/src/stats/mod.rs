//! Statistics on rounds: location, spread, and paired effects with intervals.
//!
//! The unit is the round. Every function is a pure function of its arguments (randomness comes in
//! as a seed), so a verifier recomputes what a record says bit for bit. An empty sample has no
//! statistic: the answer is `None`, never 0.

mod family;
mod interval;
mod paired;
mod unpaired;

pub use family::holm;
pub(crate) use interval::SplitMix64;
pub use interval::{
    BOOTSTRAP_RESAMPLES, Interval, IntervalMethod, bootstrap_median, median_interval,
    order_statistic_median, percentile_interval, percentile_test,
};
pub use paired::{PairedEffect, paired_ratio, sign_test, wilcoxon_signed_rank};
pub use unpaired::{UnpairedEffect, mann_whitney, unpaired_ratio};

/// Returns the median; the mean of the middle two for an even count.
pub fn median(samples: &[f64]) -> Option<f64> {
    let sorted = sorted(samples);
    let upper = *sorted.get(sorted.len() / 2)?;
    Some(f64::midpoint(sorted[(sorted.len() - 1) / 2], upper))
}

/// Returns the median absolute deviation from the median, unscaled.
pub fn median_absolute_deviation(samples: &[f64]) -> Option<f64> {
    let center = median(samples)?;
    let deviations: Vec<f64> = samples.iter().map(|x| (x - center).abs()).collect();
    median(&deviations)
}

/// Returns the nearest-rank percentile: the smallest x with F(x) ≥ `p`.
///
/// `p` is a fraction in (0, 1]; values outside are clamped to the extremes.
pub fn percentile(samples: &[f64], p: f64) -> Option<f64> {
    let sorted = sorted(samples);
    let last = sorted.len().checked_sub(1)?;
    let rank = (p * sorted.len() as f64).ceil() as usize;
    Some(sorted[rank.saturating_sub(1).min(last)])
}

fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hand_computed_locations() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        // Deviations from 2: 1, 1, 0, 0, 2, 4, 7.
        let samples = [1.0, 1.0, 2.0, 2.0, 4.0, 6.0, 9.0];
        assert_eq!(median_absolute_deviation(&samples), Some(1.0));
        assert_eq!(
            percentile(&[15.0, 20.0, 35.0, 40.0, 50.0], 0.40),
            Some(20.0)
        );
        assert_eq!(percentile(&[15.0, 20.0, 35.0, 40.0, 50.0], 1.0), Some(50.0));
    }

    proptest! {
        #[test]
        fn percentile_agrees_with_a_count(
            samples in prop::collection::vec(0u32..1000, 1..60),
            p in 0.001f64..=1.0,
        ) {
            let samples: Vec<f64> = samples.into_iter().map(f64::from).collect();
            let n = samples.len() as f64;
            let share = |x: f64| samples.iter().filter(|y| **y <= x).count() as f64 / n;
            let found = percentile(&samples, p).unwrap();
            prop_assert!(samples.contains(&found));
            prop_assert!(share(found) >= p);
            prop_assert!(samples.iter().filter(|x| **x < found).all(|x| share(*x) < p));
        }

        #[test]
        fn median_halves_the_sample(samples in prop::collection::vec(-1e6f64..1e6, 1..60)) {
            let center = median(&samples).unwrap();
            let below = samples.iter().filter(|x| **x < center).count();
            let above = samples.iter().filter(|x| **x > center).count();
            prop_assert!(below * 2 <= samples.len() && above * 2 <= samples.len());
        }
    }
}
