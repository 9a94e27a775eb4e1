//! Unpaired comparison of two arms: exact rank-sum test, ratio with interval.
//!
//! For samples of different runs, where no round of one belongs to a round of the other. The effect
//! is the median of all ratios theirs / ours (Hodges and Lehmann's estimator on logarithms). Sources:
//! Mann and Whitney, 1947; Moses' interval in Conover, *Practical Nonparametric Statistics*, §5.1
//! and §5.4.

use super::interval::{BOOTSTRAP_RESAMPLES, Interval, IntervalMethod, SplitMix64};
use super::{median, sorted};

/// Above this many samples of both arms together the exact distribution is refused.
const MAX_POOLED: usize = 120;

/// Fewer samples of either arm say nothing of its spread.
const MIN_SAMPLES: usize = 4;

/// The share of a 95 % interval that is left out on each side.
const TAIL: f64 = 0.025;

/// The unpaired comparison of one metric between two runs.
#[derive(Clone, Debug, PartialEq)]
pub struct UnpairedEffect {
    /// Median of the ratios theirs / ours.
    pub effect: f64,
    /// 95 % interval of the effect; `None` below 4 samples each.
    pub interval: Option<Interval>,
    /// Exact two-sided p of the rank-sum test; `None` above 120 samples.
    pub p_mann_whitney: Option<f64>,
}

/// Compares `theirs` with `ours`, of which none belongs to another.
///
/// `None` when either is empty, or a value is not positive and finite.
pub fn unpaired_ratio(ours: &[f64], theirs: &[f64], seed: u64) -> Option<UnpairedEffect> {
    let usable = |x: &f64| x.is_finite() && *x > 0.0;
    if !ours.iter().chain(theirs).all(usable) {
        return None;
    }
    let ratios: Vec<f64> = (ours.iter())
        .flat_map(|a| theirs.iter().map(move |b| b / a))
        .collect();
    let ratios = sorted(&ratios);
    let is_enough = ours.len().min(theirs.len()) >= MIN_SAMPLES;
    let exact = moses(&ratios, ours.len(), theirs.len()).filter(|_| is_enough);
    let resampled = bootstrap_ratio(ours, theirs, seed);
    let wider = |a: Interval, b: Interval| if a.width() >= b.width() { a } else { b };
    Some(UnpairedEffect {
        effect: median(&ratios)?,
        interval: exact.zip(resampled).map(|(a, b)| wider(a, b)),
        p_mann_whitney: mann_whitney(ours, theirs),
    })
}

/// Returns the exact two-sided p of the Mann-Whitney test of "drawn from one distribution".
///
/// Ties get their mean rank; the null distribution is enumerated over the ranks actually present.
/// `None` when either sample is empty, or above 120 samples.
pub fn mann_whitney(a: &[f64], b: &[f64]) -> Option<f64> {
    let pooled = sorted(&[a, b].concat());
    if a.is_empty() || b.is_empty() || pooled.len() > MAX_POOLED {
        return None;
    }
    // Twice the mean rank, so that tied ranks stay whole numbers.
    let rank = |x: f64| {
        let below = pooled.iter().filter(|y| **y < x).count();
        let same = pooled.iter().filter(|y| y.total_cmp(&x).is_eq()).count();
        2 * below + same + 1
    };
    let observed: usize = a.iter().map(|x| rank(*x)).sum();
    let ranks: Vec<usize> = pooled.iter().map(|x| rank(*x)).collect();
    let total: usize = ranks.iter().sum();

    // ways[k][s]: how many choices of k of the ranks so far sum to s.
    let mut ways = vec![vec![0.0f64; total + 1]; a.len() + 1];
    ways[0][0] = 1.0;
    for rank in &ranks {
        for k in (1..=a.len()).rev() {
            let (fewer, same) = ways.split_at_mut(k);
            for sum in *rank..=total {
                same[0][sum] += fewer[k - 1][sum - rank];
            }
        }
    }
    let ways = &ways[a.len()];
    let all: f64 = ways.iter().sum();
    let at_most: f64 = ways[..=observed].iter().sum();
    let at_least: f64 = ways[observed..].iter().sum();
    Some((2.0 * at_most.min(at_least) / all).min(1.0))
}

/// Moses' exact interval of the ratio, from all ratios in order.
fn moses(ratios: &[f64], num_ours: usize, num_theirs: usize) -> Option<Interval> {
    if num_ours == 0 || num_theirs == 0 || num_ours + num_theirs > MAX_POOLED {
        return None;
    }
    // The largest u with P(U ≤ u) within the tail; U counts the ratios on one side of 1.
    let shares = u_distribution(num_ours, num_theirs);
    let mut sum = 0.0;
    let left_out = (shares.iter())
        .take_while(|share| {
            sum += **share;
            sum <= TAIL
        })
        .count()
        .checked_sub(1)?;
    Some(Interval {
        low: ratios[left_out],
        high: ratios[ratios.len() - 1 - left_out],
        method: IntervalMethod::OrderStatistic,
    })
}

/// P(U = u) without ties, for u from 0.
fn u_distribution(m: usize, n: usize) -> Vec<f64> {
    // The number of partitions of u into at most m parts of at most n each: choose ranks one by one.
    let mut ways = vec![vec![0.0f64; m * n + 1]; m + 1];
    ways[0][0] = 1.0;
    for rank in 1..=m + n {
        for k in (1..=m.min(rank)).rev() {
            // The k-th chosen of rank `rank` has rank − k of the others below it.
            let above = rank - k;
            if above > n {
                continue;
            }
            let (fewer, same) = ways.split_at_mut(k);
            for u in above..=m * n {
                same[0][u] += fewer[k - 1][u - above];
            }
        }
    }
    let all: f64 = ways[m].iter().sum();
    ways[m].iter().map(|count| count / all).collect()
}

/// Percentile bootstrap of the ratio of the medians.
fn bootstrap_ratio(ours: &[f64], theirs: &[f64], seed: u64) -> Option<Interval> {
    let mut random = SplitMix64(seed);
    let mut draw = |samples: &[f64]| {
        let picked: Vec<f64> = (0..samples.len())
            .map(|_| samples[random.below(samples.len())])
            .collect();
        median(&picked)
    };
    let ratios: Vec<f64> = (0..BOOTSTRAP_RESAMPLES)
        .map(|_| Some(draw(theirs)? / draw(ours)?))
        .collect::<Option<_>>()?;
    let ratios = sorted(&ratios);
    let at = |share: f64| ratios[((share * ratios.len() as f64) as usize).min(ratios.len() - 1)];
    Some(Interval {
        low: at(TAIL),
        high: at(1.0 - TAIL),
        method: IntervalMethod::Bootstrap,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-12, "{found} != {expected}");
    }

    /// A sample that lies wholly below another: 2 of all choices are as extreme.
    #[test]
    fn complete_separation_has_the_smallest_p() {
        for (n, choices) in [(3, 20.0), (4, 70.0), (5, 252.0), (10, 184_756.0)] {
            let low: Vec<f64> = (0..n).map(f64::from).collect();
            let high: Vec<f64> = (0..n).map(|x| f64::from(x) + 100.0).collect();
            close(mann_whitney(&low, &high).unwrap(), 2.0 / choices);
            close(mann_whitney(&high, &low).unwrap(), 2.0 / choices);
        }
        assert_eq!(mann_whitney(&[], &[1.0]), None);
        close(mann_whitney(&[1.0; 4], &[1.0; 4]).unwrap(), 1.0);
    }

    /// Critical values of U, two-sided 5 %, from the table in Mann and Whitney.
    #[test]
    fn the_distribution_of_u_has_the_tabulated_tails() {
        for (m, n, critical) in [(4, 4, 0), (5, 5, 2), (6, 6, 5), (10, 10, 23), (8, 12, 22)] {
            let shares = u_distribution(m, n);
            close(shares.iter().sum(), 1.0);
            let tail = |u: usize| shares[..=u].iter().sum::<f64>();
            assert!(
                tail(critical) <= 0.025 && tail(critical + 1) > 0.025,
                "{m} {n}"
            );
        }
    }

    #[test]
    fn a_ratio_is_found_with_its_interval() {
        let ours: Vec<f64> = (0..10).map(|i| 100.0 + f64::from(i * 7 % 5)).collect();
        let theirs: Vec<f64> = ours.iter().map(|x| x * 1.1).collect();
        let found = unpaired_ratio(&ours, &theirs, 1).unwrap();
        let interval = found.interval.unwrap();
        assert!((found.effect - 1.1).abs() < 0.005, "{found:?}");
        assert!(interval.low < 1.1 && 1.1 < interval.high, "{found:?}");
        assert!(interval.low > 1.06 && interval.high < 1.14, "{found:?}");
        assert_eq!(unpaired_ratio(&ours, &theirs, 1).unwrap(), found);
        assert_eq!(
            unpaired_ratio(&[1.0; 3], &[2.0; 9], 1).unwrap().interval,
            None
        );
        assert_eq!(unpaired_ratio(&[], &[1.0], 1), None);
        assert_eq!(unpaired_ratio(&[0.0], &[1.0], 1), None);
    }

    proptest! {
        #[test]
        fn exact_p_agrees_with_enumeration(
            a in prop::collection::vec(0u8..6, 1..6),
            b in prop::collection::vec(0u8..6, 1..6),
        ) {
            let a: Vec<f64> = a.into_iter().map(f64::from).collect();
            let b: Vec<f64> = b.into_iter().map(f64::from).collect();
            let pooled = [&a[..], &b[..]].concat();
            // Pairs that a wins, a tie as half: the statistic itself, counted for each split.
            let wins = |chosen: &dyn Fn(usize) -> bool| {
                let mut twice = 0;
                for i in (0..pooled.len()).filter(|i| chosen(*i)) {
                    for j in (0..pooled.len()).filter(|j| !chosen(*j)) {
                        twice += i32::from(pooled[i] > pooled[j]) + i32::from(pooled[i] >= pooled[j]);
                    }
                }
                twice
            };
            let observed = wins(&|i| i < a.len());
            let splits: Vec<i32> = (0u32..1 << pooled.len())
                .filter(|bits| bits.count_ones() as usize == a.len())
                .map(|bits| wins(&|i| bits >> i & 1 == 1))
                .collect();
            let share = |count: usize| count as f64 / splits.len() as f64;
            let at_most = share(splits.iter().filter(|w| **w <= observed).count());
            let at_least = share(splits.iter().filter(|w| **w >= observed).count());
            let expected = (2.0 * at_most.min(at_least)).min(1.0);
            prop_assert!((mann_whitney(&a, &b).unwrap() - expected).abs() < 1e-9);
        }
    }
}
