//! The second edition of the rules: what PASS and FAIL need besides an interval that decides.
//!
//! 1. An exact signed-rank test against the limit rejects at 5 % after Holm's correction for all
//!    rules of the cell, so that a cell with ten rules is not ten chances to be lucky.
//! 2. The result is further from the limit than twice what an arm differs from its repetition.
//! 3. The machine did nothing else while the arms were measured.

use super::{pairs, pooled, rounds_of, values};
use crate::ledger::{Bound, CellRecord, Decimal, Judged, Target, Verdict, VerdictRow};
use crate::stats::{holm, median, sign_test, wilcoxon_signed_rank};

/// The level of all rules of a cell together.
const LEVEL: f64 = 0.05;

/// The result must be this many times the noise away from the limit.
const NOISE_FACTOR: f64 = 2.0;

/// More than this share of the machine's CPU time went to other tenants of the host.
const MAX_STEAL: f64 = 0.01;

/// More than this share went to processes that have nothing to do with the bench.
const MAX_FOREIGN: f64 = 0.05;

/// Takes PASS and FAIL back where a demand is not met.
pub(super) fn demand(cell: &mut CellRecord) {
    let p_values: Vec<Option<f64>> = (cell.targets.iter().zip(&cell.verdicts))
        .map(|(target, row)| p_limit(cell, target, row))
        .collect();
    let tested: Vec<f64> = p_values.iter().copied().flatten().collect();
    let mut corrected = holm(&tested).into_iter();
    let mut verdicts = std::mem::take(&mut cell.verdicts);
    for ((target, row), p) in (cell.targets.iter()).zip(&mut verdicts).zip(p_values) {
        let Some(p) = p else { continue };
        let p_holm = corrected.next().unwrap_or(1.0);
        row.p_limit = Decimal::new(p);
        row.p_holm = Decimal::new(p_holm);
        if !matches!(row.verdict, Verdict::Pass | Verdict::Fail) {
            continue;
        }
        let unmet = if p_holm >= LEVEL {
            let rules = tested.len();
            Some(format!(
                "p is {p_holm:.4} after correction for {rules} rules"
            ))
        } else if is_within_noise(target, row) {
            Some(String::from(
                "no further from the limit than twice the noise",
            ))
        } else {
            disturbed(cell, target)
        };
        if let Some(reason) = unmet {
            row.verdict = Verdict::Inconclusive;
            row.reason = Some(reason);
        }
    }
    cell.verdicts = verdicts;
}

/// Exact p of the test against the limit; with the margin where the rule would pass by it.
fn p_limit(cell: &CellRecord, target: &Target, row: &VerdictRow) -> Option<f64> {
    row.estimate?;
    let boundary = boundary(target, row.verdict);
    if target.metric.judged() == Judged::Pooled95 {
        return pooled::p95_p(cell, target, boundary);
    }
    let differences: Vec<f64> = match &target.versus {
        Some(versus) if boundary > 0.0 => pairs(cell, target, &target.label, versus)?
            .into_iter()
            // A ratio and its inverse are equally far from 1 only on the logarithmic scale.
            .map(|(ours, theirs)| (ours / theirs / boundary).ln())
            .collect(),
        Some(_) => return None,
        None => values(cell, &target.label, target.metric)?
            .into_iter()
            .map(|value| value - pooled::test_boundary(target, boundary))
            .collect(),
    };
    Some(wilcoxon_signed_rank(&differences).unwrap_or_else(|| sign_test(&differences)))
}

/// The value that the interval was compared with.
fn boundary(target: &Target, verdict: Verdict) -> f64 {
    let limit = target.limit.value();
    match (verdict, target.bound) {
        (Verdict::Pass, Bound::AtMost) => limit + target.margin.value(),
        (Verdict::Pass, Bound::AtLeast) => limit - target.margin.value(),
        _ => limit,
    }
}

fn is_within_noise(target: &Target, row: &VerdictRow) -> bool {
    let (Some(estimate), Some(noise)) = (row.estimate, row.noise) else {
        return false;
    };
    let distance = (estimate.value.value() / boundary(target, row.verdict) - 1.0).abs();
    distance <= NOISE_FACTOR * (noise.value.value() - 1.0).abs()
}

/// What else went on while the arms of a rule were measured, by the median of their rounds.
fn disturbed(cell: &CellRecord, target: &Target) -> Option<String> {
    let others = target.versus.iter().chain(&target.less);
    for label in std::iter::once(&target.label).chain(others) {
        let share = |time: &dyn Fn(&crate::ledger::RoundFixture) -> Option<u64>| {
            let shares: Vec<f64> = rounds_of(cell, label)
                .filter_map(|round| {
                    let fixture = round.fixture.as_ref()?;
                    Some(time(fixture)? as f64 / fixture.capacity_ns.max(1) as f64)
                })
                .collect();
            median(&shares)
        };
        let steal = share(&|fixture| Some(fixture.steal_ns));
        let foreign = share(&|fixture| fixture.foreign_ns);
        let found = [
            (steal, MAX_STEAL, "was given to others by the host"),
            (foreign, MAX_FOREIGN, "was used by other processes"),
        ];
        for (share, limit, what) in found {
            if let Some(share) = share.filter(|share| *share > limit) {
                let percent = share * 100.0;
                return Some(format!(
                    "{percent:.1} % of the CPU time {what} during {label}"
                ));
            }
        }
    }
    None
}
