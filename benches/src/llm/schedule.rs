//! When requests of an open loop are due.
//!
//! Guarantee: a pure function of the arrivals and a seed, so that a report's digest can be
//! recomputed.

use fastrand::Rng;

use super::dataset::Dataset;
use super::plan::Arrivals;
use crate::ledger::sha256_hex;

/// Due times from the begin of the scenario, in nanoseconds.
pub(super) fn due_times(
    arrivals: Arrivals,
    count: usize,
    seed: u64,
    dataset: &Dataset,
) -> Vec<u64> {
    let nanoseconds = |seconds: f64| (seconds * 1e9).round() as u64;
    match arrivals {
        Arrivals::Constant(rate) => (0..count)
            .map(|index| nanoseconds(index as f64 / rate))
            .collect(),
        Arrivals::Poisson(rate) => {
            let mut rng = Rng::with_seed(seed);
            let mut due = 0.0;
            (0..count)
                .map(|_| {
                    // 1 - u is in (0, 1]: its logarithm is finite.
                    due -= (1.0 - rng.f64()).ln() / rate;
                    nanoseconds(due)
                })
                .collect()
        }
        Arrivals::Trace(speed) => dataset
            .times_ms(count)
            .unwrap_or_default()
            .into_iter()
            .map(|time| nanoseconds(time / 1000.0 / speed))
            .collect(),
    }
}

/// SHA-256 over the due times.
pub(super) fn digest(due: &[u64]) -> String {
    let bytes: Vec<u8> = due.iter().flat_map(|time| time.to_le_bytes()).collect();
    sha256_hex(&bytes)
}

/// Requests per second between the first and the last of `times`, in seconds.
pub(super) fn rate(times: &[f64]) -> Option<f64> {
    let span = times.last()? - times.first()?;
    (span > 0.0).then(|| (times.len() - 1) as f64 / span)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poisson_gaps_have_the_mean_and_spread_of_the_rate() {
        let due = due_times(Arrivals::Poisson(20.0), 20_000, 7, &Dataset::Synthetic);
        let gaps: Vec<_> = due.windows(2).map(|w| (w[1] - w[0]) as f64 / 1e9).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>();
        let deviation = (variance / gaps.len() as f64).sqrt();
        // An exponential gap deviates by its mean: 50 ms each, within 3 of 141 standard errors.
        assert!((mean - 0.05).abs() < 0.0015, "{mean}");
        assert!((deviation - 0.05).abs() < 0.0025, "{deviation}");
        assert_eq!(
            due,
            due_times(Arrivals::Poisson(20.0), 20_000, 7, &Dataset::Synthetic)
        );
        assert_ne!(
            due,
            due_times(Arrivals::Poisson(20.0), 20_000, 8, &Dataset::Synthetic)
        );
    }

    #[test]
    fn constant_gaps_do_not_drift() {
        let due = due_times(Arrivals::Constant(3.0), 4, 0, &Dataset::Synthetic);
        assert_eq!(due, [0, 333_333_333, 666_666_667, 1_000_000_000]);
        // From `python3 -c` with struct.pack('<4Q', …) and hashlib.
        assert_eq!(
            digest(&due),
            "633960d18c7910008e8d6bf475b61d19c58ac34814607301027226669b990084"
        );
        assert_eq!(rate(&[0.0, 0.5, 1.0]), Some(2.0));
        assert_eq!(rate(&[1.0]), None);
    }
}
