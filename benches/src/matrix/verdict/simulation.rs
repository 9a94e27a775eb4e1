//! What the rules find and what they do not, on planted differences with the noise of real rounds.
//!
//! The seeds are 0, 1, 2 …, so a change of a rule that costs power or truth is seen at once.

use super::judge;
use super::tests::cell_of;
use crate::ledger::{CellRecord, Decimal, Metric, RULES, Target, Verdict};

/// CPU time per request of all rounds of the cell `echo` in the record 20261130T020033Z-9228c63f,
/// which this program measured on a virtual machine with two CPUs: 10⁴ times the logarithm of its
/// ratio to the median of its arm.
const NOISE: [i32; 30] = [
    -32, 298, -52, 101, 55, 361, 32, -89, -164, -59, -23, -138, 167, -130, 106, 72, 23, 434, -90,
    -274, -187, 562, 89, -143, -90, 194, 131, 175, -339, -294,
];

/// Rounds of a cell that is to find a difference of a twentieth.
const ROUNDS: u32 = 12;

/// A run with `rules` rules, all of which ask whether `theirs` costs no more than `ours`, and
/// which is true when `factor` is 1.
fn run(seed: u64, factor: f64, rules: usize) -> CellRecord {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut drift = 0.0;
    let mut costs: [Vec<f64>; 3] = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        // What all arms of a round share: the host gets warmer, a neighbour comes and goes.
        drift += 0.02 * (random.f64() - 0.5);
        for (costs, factor) in costs.iter_mut().zip([1.0, 1.0, factor]) {
            let noise = f64::from(NOISE[random.usize(..NOISE.len())]) / 1e4;
            costs.push(10_000.0 * factor * f64::exp(drift + noise));
        }
    }
    let costs = costs.map(|costs| {
        costs
            .into_iter()
            .map(|cost| cost as u64)
            .collect::<Vec<_>>()
    });
    let rule = |index: usize| Target {
        id: format!("rule-{index}"),
        metric: Metric::CpuUsPerRequest,
        label: String::from("theirs"),
        versus: Some(String::from("ours")),
        less: None,
        bound: crate::ledger::Bound::AtMost,
        limit: Decimal::new(1.0).unwrap(),
        margin: Decimal::new(0.0).unwrap(),
    };
    let [ours, aa, theirs] = &costs;
    let mut cell = cell_of(
        [&ours[..], &aa[..], &theirs[..]],
        (0..rules).map(rule).collect(),
    );
    cell.rules_edition = RULES;
    // The second of two runs: what this one sees is what is counted.
    let failed = |target: &Target| (target.id.clone(), String::from("earlier.json"));
    cell.failed_before = cell.targets.iter().map(failed).collect();
    judge(&mut cell, seed);
    cell
}

/// In how many of `runs` runs the first rule has one of the verdicts.
fn count(runs: u64, factor: f64, rules: usize, wanted: &[Verdict]) -> usize {
    (0..runs)
        .filter(|seed| wanted.contains(&run(*seed, factor, rules).verdicts[0].verdict))
        .count()
}

#[test]
fn a_planted_twentieth_is_found_in_nine_of_ten_runs() {
    let found = count(60, 1.05, 1, &[Verdict::Fail]);
    assert!(found >= 54, "only {found} of 60 runs");
    let found = count(60, 1.0 / 1.05, 1, &[Verdict::Pass]);
    assert!(found >= 54, "only {found} of 60 runs");
}

#[test]
fn where_nothing_is_planted_one_run_of_twenty_at_most_is_wrong() {
    let wrong = count(100, 1.0, 1, &[Verdict::Pass, Verdict::Fail]);
    assert!(wrong <= 5, "{wrong} of 100 runs");
}

/// Five rules are not five chances, and what is large is found all the same.
#[test]
fn many_rules_are_not_many_chances() {
    let wrong = count(40, 1.0, 5, &[Verdict::Pass, Verdict::Fail]);
    assert!(wrong <= 2, "{wrong} of 40 runs");
    let found = count(10, 1.1, 5, &[Verdict::Fail]);
    assert!(found >= 9, "only {found} of 10 runs");
}
