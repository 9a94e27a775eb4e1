//! Values that are not the median of the rounds: the worst of them, and percentiles of all samples.
//!
//! The worst round is what was seen, so its interval is itself. A percentile is not averaged over
//! rounds: it is that of all saves together, with the exact interval and test of an order statistic.

use super::{milliseconds, rounds_of};
use crate::ledger::{Bound, CellRecord, Metric, RoundRecord, Target};
use crate::stats::{Interval, IntervalMethod, percentile, percentile_interval, percentile_test};

/// The percentile of rules on the slowest saves.
pub(super) const P95: f64 = 0.95;

/// Samples from which the largest lies above the 95th percentile with 99 % probability.
const FLOOR_P95: usize = 90;

/// Requests are whole: a limit of 0 is kept by 0 and broken by 1, so half of one lies between.
const HALF_A_REQUEST: f64 = 0.5;

/// The round that is furthest on the wrong side.
pub(super) fn worst(values: &[f64], bound: Bound) -> Option<(f64, Option<Interval>)> {
    let values = values.iter().copied();
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
pub(super) fn p95(cell: &CellRecord, target: &Target) -> Option<(f64, Option<Interval>)> {
    let samples = samples(rounds_of(cell, &target.label))?;
    let interval = percentile_interval(&samples, P95);
    Some((percentile(&samples, P95)?, interval))
}

/// The exact p of that percentile against a limit.
pub(super) fn p95_p(cell: &CellRecord, target: &Target, limit: f64) -> Option<f64> {
    let samples = samples(rounds_of(cell, &target.label))?;
    Some(percentile_test(&samples, P95, limit))
}

/// The percentile of the saves of these rounds; `None` for too few of them.
pub(super) fn p95_if_known(rounds: &[&RoundRecord]) -> Option<f64> {
    let samples = samples(rounds.iter().copied())?;
    percentile(&samples, P95).filter(|_| samples.len() >= FLOOR_P95)
}

/// Milliseconds of all saves; `None` when a round has none.
fn samples<'a>(rounds: impl Iterator<Item = &'a RoundRecord>) -> Option<Vec<f64>> {
    let mut all = Vec::new();
    for round in rounds {
        let served = &round.reload.as_ref()?.served_ns;
        served.first()?;
        all.extend(milliseconds(served));
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::super::judge;
    use super::super::tests::cell_of;
    use super::*;
    use crate::ledger::{CellKind, Decimal, RULES, ReloadRecord, Verdict, VerdictRow};

    /// Saves of each of ten rounds in ms, lost probes and longest wait of the last round.
    fn cell(saves_ms: &[u64], (lost, wait_ms): (u64, u64), targets: Vec<Target>) -> CellRecord {
        let mut cell = cell_of([&[1; 10], &[1; 10], &[1; 10]], targets);
        cell.kind = CellKind::Reload;
        cell.rules_edition = RULES;
        for round in &mut cell.rounds {
            let is_last = round.round == 9;
            round.load = None;
            round.reload = Some(ReloadRecord {
                served_ns: saves_ms.iter().map(|ms| ms * 1_000_000).collect(),
                told_ns: vec![7_000_000, 9_000_000],
                probes: [("stale".to_owned(), if is_last { lost } else { 0 })].into(),
                longest_wait_ns: if is_last {
                    wait_ms * 1_000_000
                } else {
                    40_000_000
                },
            });
        }
        judge(&mut cell, 1);
        cell
    }

    fn at_most(metric: Metric, limit: f64) -> Target {
        Target {
            id: String::from("rule"),
            metric,
            label: String::from("ours"),
            versus: None,
            less: None,
            bound: Bound::AtMost,
            limit: Decimal::new(limit).unwrap(),
            margin: Decimal::new(0.0).unwrap(),
        }
    }

    fn verdict(saves_ms: &[u64], last: (u64, u64), metric: Metric, limit: f64) -> VerdictRow {
        let targets = vec![at_most(metric, limit)];
        cell(saves_ms, last, targets).verdicts.remove(0)
    }

    const TWELVE: [u64; 12] = [31, 30, 33, 35, 32, 36, 34, 38, 37, 39, 40, 52];

    #[test]
    fn a_row_has_the_median_of_its_rounds_and_the_percentile_of_all_saves() {
        let cell = cell(&TWELVE, (3, 90), Vec::new());
        let metrics = &cell.rows[0].metrics;
        let shown = |metric: Metric| {
            let summary = metrics[&metric];
            [summary.median, summary.min, summary.max].map(|value| metric.number(value))
        };
        assert_eq!(shown(Metric::ReloadP50Ms), ["35.5", "35.5", "35.5"]);
        // Of 120 saves the 114th: ten are 52 ms, and the twelfth of each round is its own.
        assert_eq!(shown(Metric::ReloadP95Ms), ["52.0", "52.0", "52.0"]);
        assert_eq!(shown(Metric::ReloadErrorP50Ms), ["8.0", "8.0", "8.0"]);
        assert_eq!(shown(Metric::ReloadLost), ["0", "0", "3"]);
        assert_eq!(shown(Metric::ReloadWaitMaxMs), ["40.0", "40.0", "90.0"]);
    }

    #[test]
    fn a_percentile_of_few_saves_is_not_shown_and_decides_nothing() {
        let targets = vec![at_most(Metric::ReloadP95Ms, 150.0)];
        let few = cell(&TWELVE[..5], (0, 40), targets);
        assert!(!few.rows[0].metrics.contains_key(&Metric::ReloadP95Ms));
        let row = &few.verdicts[0];
        assert_eq!(row.verdict, Verdict::Inconclusive);
        assert_eq!(row.reason.as_deref(), Some("too few saves for an interval"));
    }

    #[test]
    fn a_percentile_is_held_against_its_limit_by_counting_saves() {
        let p95 = |saves: &[u64], limit| verdict(saves, (0, 40), Metric::ReloadP95Ms, limit);
        let row = p95(&TWELVE, 60.0);
        assert_eq!(row.verdict, Verdict::Pass, "{row:?}");
        assert_eq!(row.rule, "reload_p95_ms of ours ≤ 60.0 ms");
        assert_eq!(row.p_limit.unwrap().text(4), "0.0042");
        // Ten of 120 beyond it are more than a twentieth, though not clearly.
        let row = p95(&TWELVE, 50.0);
        assert_eq!(row.verdict, Verdict::Inconclusive, "{row:?}");
        // Thirty are: it failed, and a second run has to agree.
        let row = p95(&TWELVE, 38.5);
        let reason = row.reason.as_deref().unwrap();
        assert!(reason.starts_with("it failed in this run"), "{row:?}");
    }

    #[test]
    fn one_bad_round_fails_a_rule_on_the_worst_once() {
        for (metric, limit, good, bad) in [
            (Metric::ReloadLost, 0.0, (0, 40), (1, 40)),
            (Metric::ReloadWaitMaxMs, 300.0, (0, 299), (0, 301)),
        ] {
            let row = verdict(&TWELVE, good, metric, limit);
            assert_eq!(row.verdict, Verdict::Pass, "{row:?}");
            assert!(row.rule.ends_with(" in every round"), "{}", row.rule);
            let row = verdict(&TWELVE, bad, metric, limit);
            assert_eq!(row.verdict, Verdict::Inconclusive, "{row:?}");
            let reason = row.reason.as_deref().unwrap();
            assert!(reason.starts_with("it failed in this run"), "{reason}");
        }
    }

    /// Arms of 40 ms and of 400 ms, whose repetition takes a part more.
    fn against(part: f64) -> VerdictRow {
        let mut rule = at_most(Metric::ReloadP50Ms, 1.0);
        rule.versus = Some(String::from("theirs"));
        let mut cell = cell(&TWELVE, (0, 40), vec![rule]);
        for round in &mut cell.rounds {
            let time_ns = match &*round.label {
                "ours" => 40e6,
                "aa" => 40e6 * (1.0 + part),
                _ => 400e6,
            };
            // No two rounds are the same.
            let time_ns = time_ns as u64 + u64::from(round.round);
            round.reload.as_mut().unwrap().served_ns = vec![time_ns; 12];
        }
        judge(&mut cell, 1);
        cell.verdicts.remove(0)
    }

    #[test]
    fn a_tenth_of_noise_does_not_hide_a_multiple() {
        let row = against(0.02);
        assert_eq!(row.verdict, Verdict::Pass, "{row:?}");
        assert_eq!(row.estimate.unwrap().value.text(3), "0.100");
        let row = against(0.12);
        let reason = row.reason.as_deref();
        assert_eq!(reason, Some("an arm differs from its own repetition"));
    }

    #[test]
    fn the_worst_round_is_the_one_on_the_wrong_side() {
        let worst = |bound| worst(&[2.0, 1.0, 3.0], bound).unwrap();
        let (value, interval) = worst(Bound::AtMost);
        let interval = interval.unwrap();
        assert_eq!((value, interval.low, interval.high), (3.0, 3.0, 3.0));
        assert_eq!(interval.method, IntervalMethod::Extreme);
        assert_eq!(
            Some(worst(Bound::AtLeast).0),
            Decimal::new(1.0).map(Decimal::value)
        );
        assert_eq!(super::worst(&[], Bound::AtMost), None);
    }
}
