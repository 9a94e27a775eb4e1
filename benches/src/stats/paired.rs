//! Paired comparison of two arms: ratio per round, exact sign and signed-rank tests.
//!
//! Pairs are rounds; the effect is the median over rounds of ours / theirs, so slow drift of the
//! machine cancels. P values are exact, two-sided. Sources: Conover, *Practical Nonparametric
//! Statistics*, §3.4 and §5.7.

use super::interval::{Interval, binomial_half_at_most, median_interval};
use super::median;

/// Above this many pairs the exact signed-rank enumeration is refused.
const MAX_WILCOXON_PAIRS: usize = 60;

/// The paired comparison of one metric between two arms.
#[derive(Clone, Debug, PartialEq)]
pub struct PairedEffect {
    /// Ratio ours / theirs of each pair, in round order.
    pub ratios: Vec<f64>,
    /// Median of the ratios.
    pub effect: f64,
    /// 95 % interval of the effect; `None` below 6 pairs.
    pub interval: Option<Interval>,
    /// Two-sided p of the sign test of "the median ratio is 1".
    pub p_sign: f64,
    /// Two-sided p of the Wilcoxon signed-rank test on the logarithms of the ratios.
    pub p_wilcoxon: Option<f64>,
}

/// Compares paired samples `(ours, theirs)`.
///
/// `None` when there is no pair, or a value is not positive and finite.
pub fn paired_ratio(pairs: &[(f64, f64)], seed: u64) -> Option<PairedEffect> {
    let usable = |x: f64| x.is_finite() && x > 0.0;
    if !pairs.iter().all(|(a, b)| usable(*a) && usable(*b)) {
        return None;
    }
    let ratios: Vec<f64> = pairs.iter().map(|(a, b)| a / b).collect();
    // A ratio and its inverse are equally far from 1 only on the logarithmic scale.
    let logarithms: Vec<f64> = ratios.iter().map(|r| r.ln()).collect();
    Some(PairedEffect {
        effect: median(&ratios)?,
        interval: median_interval(&ratios, seed),
        p_sign: sign_test(&logarithms),
        p_wilcoxon: wilcoxon_signed_rank(&logarithms),
        ratios,
    })
}

/// Returns the exact two-sided p of the sign test of "the median is 0"; zeros are dropped.
pub fn sign_test(differences: &[f64]) -> f64 {
    let positive = differences.iter().filter(|d| **d > 0.0).count();
    let negative = differences.iter().filter(|d| **d < 0.0).count();
    let n = positive + negative;
    if n == 0 {
        return 1.0;
    }
    (2.0 * binomial_half_at_most(n, positive.min(negative))).min(1.0)
}

/// Returns the exact two-sided p of the Wilcoxon signed-rank test of "symmetric about 0".
///
/// Zeros are dropped and ties get their mean rank; the null distribution is enumerated over the
/// ranks actually present. `None` above 60 pairs.
pub fn wilcoxon_signed_rank(differences: &[f64]) -> Option<f64> {
    let mut nonzero: Vec<f64> = differences.iter().copied().filter(|d| *d != 0.0).collect();
    if nonzero.len() > MAX_WILCOXON_PAIRS {
        return None;
    }
    if nonzero.is_empty() {
        return Some(1.0);
    }
    nonzero.sort_unstable_by(|a, b| a.abs().total_cmp(&b.abs()));
    let doubled_ranks = doubled_mean_ranks(&nonzero);
    let total: usize = doubled_ranks.iter().sum();
    let positive: usize = nonzero
        .iter()
        .zip(&doubled_ranks)
        .filter(|(d, _)| **d > 0.0)
        .map(|(_, rank)| rank)
        .sum();

    // ways[s]: share of sign assignments whose positive ranks sum to s.
    let mut ways = vec![0.0f64; total + 1];
    ways[0] = 1.0;
    for rank in &doubled_ranks {
        for sum in (0..=total).rev() {
            let with = if sum >= *rank { ways[sum - rank] } else { 0.0 };
            ways[sum] = f64::midpoint(ways[sum], with);
        }
    }
    let tail: f64 = ways[..=positive.min(total - positive)].iter().sum();
    Some((2.0 * tail).min(1.0))
}

/// Twice the mean rank of each element, so that tied ranks stay whole numbers.
fn doubled_mean_ranks(sorted_by_size: &[f64]) -> Vec<usize> {
    let mut ranks = Vec::with_capacity(sorted_by_size.len());
    while ranks.len() < sorted_by_size.len() {
        let first = ranks.len();
        let size = sorted_by_size[first].abs();
        let num_tied = sorted_by_size[first..]
            .iter()
            .take_while(|d| d.abs() <= size)
            .count();
        ranks.extend(std::iter::repeat_n(2 * first + num_tied + 1, num_tied));
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-12, "{found} != {expected}");
    }

    #[test]
    fn sign_test_matches_the_binomial() {
        close(sign_test(&[1.0; 6]), 0.03125);
        close(sign_test(&[1.0; 5]), 0.0625);
        close(sign_test(&[1.0, 1.0, 1.0, -1.0, 0.0]), 0.625);
        close(sign_test(&[]), 1.0);
    }

    #[test]
    fn wilcoxon_matches_hand_computed_values() {
        // All six positive: 1 of 64 assignments on each side.
        close(
            wilcoxon_signed_rank(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap(),
            2.0 / 64.0,
        );
        // Negative ranks {1, 2} sum to 3: sums 0, 1, 2, 3, 3 are 5 of 64.
        let differences = [-1.0, -2.0, 3.0, 4.0, 5.0, 6.0];
        close(wilcoxon_signed_rank(&differences).unwrap(), 10.0 / 64.0);
        // Two ties of rank 1.5 with opposite signs, and a 3: tail {0, 1.5, 1.5} of 8.
        close(wilcoxon_signed_rank(&[1.0, -1.0, 2.0]).unwrap(), 6.0 / 8.0);
    }

    #[test]
    fn drift_that_both_arms_share_is_no_effect() {
        let pairs: Vec<(f64, f64)> = (0..10)
            .map(|round| {
                let drift = 1.0 + 0.09 * f64::from(round % 2);
                let noise = 1.0 + 0.004 * f64::from((round * 7) % 5 - 2);
                (100.0 * drift * noise, 100.0 * drift)
            })
            .collect();
        let effect = paired_ratio(&pairs, 1).unwrap();
        let interval = effect.interval.unwrap();
        assert!(interval.low <= 1.0 && 1.0 <= interval.high);
    }

    #[test]
    fn a_tenth_slower_is_found() {
        let pairs: Vec<(f64, f64)> = (0..10)
            .map(|round| (110.0 + f64::from(round % 3), 100.0 + f64::from(round % 4)))
            .collect();
        let effect = paired_ratio(&pairs, 1).unwrap();
        assert!(effect.interval.unwrap().low > 1.05);
        assert!(effect.p_sign < 0.05);
    }

    #[test]
    fn zero_or_missing_values_have_no_ratio() {
        assert_eq!(paired_ratio(&[], 1), None);
        assert_eq!(paired_ratio(&[(1.0, 0.0)], 1), None);
        assert_eq!(paired_ratio(&[(f64::NAN, 1.0)], 1), None);
    }

    proptest! {
        #[test]
        fn exact_p_agrees_with_enumeration(
            values in prop::collection::vec((-4i32..=4).prop_filter("nonzero", |v| *v != 0), 1..9),
        ) {
            let differences: Vec<f64> = values.iter().map(|v| f64::from(*v)).collect();
            let mut by_size = differences.clone();
            by_size.sort_unstable_by(|a, b| a.abs().total_cmp(&b.abs()));
            let ranks = doubled_mean_ranks(&by_size);
            let total: usize = ranks.iter().sum();
            let observed: usize = (by_size.iter().zip(&ranks))
                .filter(|(d, _)| **d > 0.0)
                .map(|(_, r)| *r)
                .sum();
            let extreme = observed.min(total - observed);
            let assignments = 1u32 << ranks.len();
            let at_most = (0..assignments)
                .filter(|bits| {
                    let sum: usize = (ranks.iter().enumerate())
                        .filter(|(i, _)| bits >> i & 1 == 1)
                        .map(|(_, r)| *r)
                        .sum();
                    sum <= extreme
                })
                .count();
            let expected = (2.0 * at_most as f64 / f64::from(assignments)).min(1.0);
            prop_assert!((wilcoxon_signed_rank(&differences).unwrap() - expected).abs() < 1e-9);
        }
    }
}
