//! Values that are not the median of the rounds: the worst of them, and percentiles of all samples.
//!
//! The worst round is what was seen, so its interval is itself. A percentile is not averaged over
//! rounds: it is that of all saves together, with the exact interval and test of an order statistic.

use super::{rounds_of, served_ns, value};
use crate::ledger::{Bound, CellRecord, Metric, RoundRecord, Target};
use crate::stats::{Interval, IntervalMethod, percentile, percentile_interval, percentile_test};

/// Samples from which the largest lies above the 95th percentile with 99 % probability.
const FLOOR_P95: usize = 90;

/// Requests are whole: a limit of 0 is kept by 0 and broken by 1, so half of one lies between.
const HALF_A_REQUEST: f64 = 0.5;

/// The round that is furthest on the wrong side.
pub(super) fn worst(values: &[f64], bound: Bound) -> Option<(f64, Option<Interval>)> {
    let mut values = values.iter().copied();
    let worst = match bound {
        Bound::AtMost => values.reduce(f64::max),
        Bound::AtLeast => values.reduce(f64::min),
    }?;
    let interval = Interval {
        low: worst,
        high: worst,
        method: IntervalMethod::Extreme,
    };
    Some((worst, Some(interval)))
}

/// Where the test of a rule on the worst round compares the rounds with.
pub(super) fn test_boundary(target: &Target, boundary: f64) -> f64 {
    match (target.metric, target.bound) {
        (Metric::ReloadLost, Bound::AtMost) => boundary + HALF_A_REQUEST,
        (Metric::ReloadLost, Bound::AtLeast) => boundary - HALF_A_REQUEST,
        _ => boundary,
    }
}

/// The percentile of the saves of all rounds of a rule's arm.
pub(super) fn percentile_of(
    cell: &CellRecord,
    target: &Target,
    share: f64,
) -> Option<(f64, Option<Interval>)> {
    let samples = samples(rounds_of(cell, &target.label))?;
    Some((percentile(&samples, share)?, percentile_interval(&samples, share)))
}

/// The exact p of that percentile against a limit.
pub(super) fn percentile_p(
    cell: &CellRecord,
    target: &Target,
    share: f64,
    limit: f64,
) -> Option<f64> {
    let samples = samples(rounds_of(cell, &target.label))?;
    Some(percentile_test(&samples, share, limit))
}

/// The percentile of the saves of these rounds; `None` for too few of them.
pub(super) fn percentile_if_known(rounds: &[&RoundRecord], share: f64) -> Option<f64> {
    let samples = samples(rounds.iter().copied())?;
    percentile(&samples, share).filter(|_| samples.len() >= FLOOR_P95)
}

/// Milliseconds of all saves; `None` when a round has none.
fn samples<'a>(rounds: impl Iterator<Item = &'a RoundRecord>) -> Option<Vec<f64>> {
    let mut all = Vec::new();
    for round in rounds {
        value(round, Metric::ReloadP95Ms)?;
        all.extend(served_ns(round)?.into_iter().map(|ns| ns / 1e6));
    }
    Some(all)
}
