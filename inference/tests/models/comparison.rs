//! How far two rows of logits for each position are apart.

use std::fmt;

/// Greatest and mean differences of all rows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Difference {
    /// Of any logit, after the mean difference of its row is taken off: what no softmax sees.
    pub(crate) max_abs: f64,
    /// Root of the mean square, of the same.
    pub(crate) rms: f64,
    /// Least cosine of a row.
    pub(crate) cosine: f64,
    /// Mean of KL(expected ‖ actual) in nats.
    pub(crate) mean_kl: f64,
    /// Share of rows whose greatest logit is the same.
    pub(crate) top1: f64,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            max_abs,
            rms,
            cosine,
            mean_kl,
            top1,
        } = self;
        write!(
            f,
            "max {max_abs:.2e}, rms {rms:.2e}, 1 - cosine {:.2e}, ",
            1.0 - cosine
        )?;
        write!(f, "KL {mean_kl:.2e}, top-1 {:.1} %", top1 * 100.0)
    }
}

/// Compares logits of the same positions.
pub(crate) fn compare(expected: &[Vec<f64>], actual: &[Vec<f64>]) -> Difference {
    assert_eq!(expected.len(), actual.len(), "number of rows");
    let mut result = Difference {
        cosine: 1.0,
        ..Difference::default()
    };
    let (mut squares, mut count) = (0.0, 0);
    for (expected, actual) in expected.iter().zip(actual) {
        assert_eq!(expected.len(), actual.len(), "logits of a row");
        assert!(
            actual.iter().all(|logit| logit.is_finite()),
            "a logit that is no number"
        );
        let size = expected.len() as f64;
        let shift = expected.iter().zip(actual).map(|(e, a)| a - e).sum::<f64>() / size;
        for (e, a) in expected.iter().zip(actual) {
            let difference = (a - e - shift).abs();
            result.max_abs = result.max_abs.max(difference);
            squares += difference * difference;
        }
        count += expected.len();
        let product = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
        let lengths = (product(expected, expected) * product(actual, actual)).sqrt();
        result.cosine = result.cosine.min(product(expected, actual) / lengths);
        let (p, q) = (log_softmax(expected), log_softmax(actual));
        result.mean_kl += p
            .iter()
            .zip(&q)
            .map(|(p, q)| p.exp() * (p - q))
            .sum::<f64>();
        result.top1 += f64::from(greatest(expected) == greatest(actual));
    }
    let rows = expected.len() as f64;
    result.rms = (squares / f64::from(count as u32)).sqrt();
    result.mean_kl /= rows;
    result.top1 /= rows;
    result
}

pub(crate) fn log_softmax(logits: &[f64]) -> Vec<f64> {
    let greatest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|logit| (logit - greatest).exp()).sum();
    logits
        .iter()
        .map(|logit| logit - greatest - sum.ln())
        .collect()
}

/// Returns the index of the greatest, the first of equals.
pub(crate) fn greatest(logits: &[f64]) -> usize {
    let better = |best: usize, index: usize| {
        if logits[index] > logits[best] {
            index
        } else {
            best
        }
    };
    (0..logits.len()).fold(0, better)
}

/// Shows the numbers of a comparison to who runs it with `--nocapture`.
#[expect(
    clippy::print_stderr,
    reason = "a test has no other way to show numbers"
)]
pub(crate) fn report(name: &str, numbers: &dyn fmt::Display) {
    eprintln!("{name}: {numbers}");
}
