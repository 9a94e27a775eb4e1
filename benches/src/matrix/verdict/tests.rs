//! The rules of the judge, on synthetic rounds.

use super::*;
use crate::ledger::{ArmRecord, LoadRecord, RoundFixture};

/// A cell with the arms ours, aa and theirs, and the CPU cost of each by round, in ns.
fn cell(costs: [&[u64]; 3], target: Target) -> CellRecord {
    cell_of(costs, vec![target])
}

/// The same with any number of rules.
pub(super) fn cell_of(costs: [&[u64]; 3], targets: Vec<Target>) -> CellRecord {
    let labels = ["ours", "aa", "theirs"];
    let mut rounds = Vec::new();
    for (label, costs) in labels.iter().zip(costs) {
        for (round, cost) in costs.iter().enumerate() {
            rounds.push(RoundRecord {
                round: round as u32,
                label: (*label).to_owned(),
                load: Some(LoadRecord {
                    window_ns: Some(1_000_000_000),
                    attempts: 1000,
                    ok: 1000,
                    ..LoadRecord::default()
                }),
                server_cpu_ns: Some(cost * 1000),
                client_cpu_ns: Some(500_000_000),
                ..RoundRecord::default()
            });
        }
    }
    let arm = |label: &str| ArmRecord {
        label: label.to_owned(),
        program: label.to_owned(),
        command: Vec::new(),
        tls: false,
        same_as: (label == "aa").then(|| String::from("ours")),
        workload: None,
        engagement: None,
        counters: Vec::new(),
        client: None,
    };
    CellRecord {
        id: String::from("hello"),
        kind: CellKind::Load,
        workload: None,
        connections: 1,
        offered_rate: None,
        background: None,
        reload: None,
        num_rounds: costs[0].len() as u32,
        warm_up_ms: 0,
        measure_ms: 1000,
        arms: labels.map(arm).to_vec(),
        targets,
        rules_edition: 1,
        failed_before: BTreeMap::new(),
        serving: None,
        rounds,
        rows: Vec::new(),
        verdicts: Vec::new(),
    }
}

fn at_most(limit: f64, margin: f64) -> Target {
    Target {
        id: String::from("cpu"),
        metric: Metric::CpuUsPerRequest,
        label: String::from("ours"),
        versus: Some(String::from("theirs")),
        less: None,
        bound: Bound::AtMost,
        limit: Decimal::new(limit).unwrap(),
        margin: Decimal::new(margin).unwrap(),
    }
}

fn judged(mut cell: CellRecord) -> VerdictRow {
    judge(&mut cell, 1);
    cell.verdicts.remove(0)
}

fn check(costs: [&[u64]; 3], target: Target, expected: Verdict) {
    let row = judged(cell(costs, target));
    assert_eq!(row.verdict, expected, "{row:?}");
    assert_eq!(
        row.reason.is_some(),
        matches!(expected, Verdict::Inconclusive | Verdict::Invalid)
    );
}

const STEADY: [u64; 6] = [1000, 1002, 998, 1001, 999, 1000];
const DOUBLE: [u64; 6] = [2000, 2004, 1996, 2002, 1998, 2000];
const NEAR: [u64; 6] = [1000, 1050, 950, 1030, 960, 1010];

#[test]
fn clearly_cheaper_passes() {
    check(
        [&STEADY, &STEADY, &DOUBLE],
        at_most(1.0, 0.0),
        Verdict::Pass,
    );
}

#[test]
fn clearly_dearer_fails() {
    check(
        [&DOUBLE, &DOUBLE, &STEADY],
        at_most(1.0, 0.0),
        Verdict::Fail,
    );
}

#[test]
fn an_interval_over_the_limit_decides_nothing() {
    check(
        [&STEADY, &STEADY, &NEAR],
        at_most(1.0, 0.0),
        Verdict::Inconclusive,
    );
}

#[test]
fn the_margin_is_for_the_interval_not_for_the_estimate() {
    // Ratios about 1.02, highest 1.04: the interval ends above 1.03 and below 1.05.
    let ours = [1020, 1040, 1010, 1021, 1019, 1020];
    let theirs = [1000; 6];
    check(
        [&ours, &ours, &theirs],
        at_most(1.03, 0.0),
        Verdict::Inconclusive,
    );
    check([&ours, &ours, &theirs], at_most(1.03, 0.02), Verdict::Pass);
    // Estimate 1.02 is beyond 1.015, whatever the margin.
    check(
        [&ours, &ours, &theirs],
        at_most(1.015, 0.1),
        Verdict::Inconclusive,
    );
    check([&ours, &ours, &theirs], at_most(1.005, 0.1), Verdict::Fail);
}

#[test]
fn a_large_value_can_be_the_good_side() {
    let at_least = |limit| Target {
        bound: Bound::AtLeast,
        ..at_most(limit, 0.0)
    };
    check([&DOUBLE, &DOUBLE, &STEADY], at_least(1.5), Verdict::Pass);
    check([&DOUBLE, &DOUBLE, &STEADY], at_least(3.0), Verdict::Fail);
}

#[test]
fn a_noisy_machine_decides_nothing() {
    let five_percent_off = [1050, 1052, 1048, 1051, 1049, 1050];
    let row = judged(cell(
        [&STEADY, &five_percent_off, &DOUBLE],
        at_most(1.0, 0.0),
    ));
    assert_eq!(row.verdict, Verdict::Inconclusive);
    assert_eq!(
        row.reason.as_deref(),
        Some("an arm differs from its own repetition")
    );
    // 2 % off is below the limit on the effect, but the difference is certain.
    let surely_off = [1020, 1022, 1018, 1021, 1019, 1020];
    check(
        [&STEADY, &surely_off, &DOUBLE],
        at_most(1.0, 0.0),
        Verdict::Inconclusive,
    );
}

#[test]
fn five_rounds_decide_nothing() {
    check(
        [&STEADY[..5], &STEADY[..5], &DOUBLE[..5]],
        at_most(1.0, 0.0),
        Verdict::Inconclusive,
    );
}

#[test]
fn one_invalid_round_makes_row_and_rule_invalid() {
    let mut cell = cell([&STEADY, &STEADY, &DOUBLE], at_most(1.0, 0.0));
    cell.rounds[2].invalid = Some(String::from("3 http_5xx"));
    judge(&mut cell, 1);
    assert_eq!(cell.verdicts[0].verdict, Verdict::Invalid);
    assert_eq!(cell.rows[0].invalid.as_deref(), Some("round 2: 3 http_5xx"));
    assert!(cell.rows[0].metrics.is_empty());
    assert!(cell.rows[1].invalid.is_none());
}

#[test]
fn a_missing_round_makes_the_row_invalid() {
    let mut cell = cell([&STEADY, &STEADY, &DOUBLE], at_most(1.0, 0.0));
    cell.rounds.remove(0);
    judge(&mut cell, 1);
    assert_eq!(cell.rows[0].invalid.as_deref(), Some("5 of 6 rounds"));
}

#[test]
fn what_was_not_measured_is_absent_not_zero() {
    let mut cell = cell([&STEADY, &STEADY, &DOUBLE], at_most(1.0, 0.0));
    cell.rounds[0].server_cpu_ns = None;
    judge(&mut cell, 1);
    assert!(!cell.rows[0].metrics.contains_key(&Metric::CpuUsPerRequest));
    assert!(cell.rows[0].metrics.contains_key(&Metric::Rate));
    assert_eq!(cell.verdicts[0].verdict, Verdict::Inconclusive);
    assert_eq!(cell.verdicts[0].estimate, None);
}

#[test]
fn a_rate_that_the_client_limits_decides_nothing() {
    let target = Target {
        metric: Metric::Rate,
        ..at_most(2.0, 0.0)
    };
    let mut cell = cell([&STEADY, &STEADY, &STEADY], target);
    judge(&mut cell, 1);
    assert_eq!(cell.verdicts[0].verdict, Verdict::Pass);
    for round in &mut cell.rounds {
        round.client_cpu_ns = Some(990_000_000);
    }
    judge(&mut cell, 1);
    assert_eq!(
        cell.verdicts[0].reason.as_deref(),
        Some("the client was the limit")
    );
}

/// The cell with an arm whose cost is taken from both of those that are compared.
fn less(costs: [&[u64]; 3], base: &[u64], limit: f64) -> VerdictRow {
    let target = Target {
        less: Some(String::from("base")),
        ..at_most(limit, 0.0)
    };
    let mut cell = cell(costs, target);
    let mut arm = cell.arms[0].clone();
    arm.label = String::from("base");
    cell.arms.push(arm);
    for (round, cost) in base.iter().enumerate() {
        let mut record = cell.rounds[0].clone();
        record.round = round as u32;
        record.label = String::from("base");
        record.server_cpu_ns = Some(cost * 1000);
        cell.rounds.push(record);
    }
    judged(cell)
}

#[test]
fn what_both_arms_share_can_be_taken_from_both() {
    let base = [8000; 6];
    let (ours, theirs) = ([10_100; 6], [10_000; 6]);
    // 2.1 against 2.0, where the whole would be 1.01 times.
    let row = less([&ours, &ours, &theirs], &base, 1.06);
    assert_eq!(row.verdict, Verdict::Pass);
    assert_eq!(row.estimate.unwrap().value.text(3), "1.050");
    assert_eq!(row.noise.unwrap().value.text(3), "1.000");
    let expected = "cpu_us_per_request of ours less base ≤ 1.060 × theirs less the same";
    assert_eq!(row.rule, expected);
    let row = less([&ours, &ours, &theirs], &base, 1.04);
    assert_eq!(row.verdict, Verdict::Fail);
    // The noise counts against what remains, not against the whole.
    let other = [10_300; 6];
    let row = less([&ours, &other, &theirs], &base, 2.0);
    assert_eq!(
        row.reason.as_deref(),
        Some("an arm differs from its own repetition")
    );
    // No more than the base: there is nothing to compare.
    let row = less([&ours, &ours, &base], &base, 2.0);
    assert_eq!(row.verdict, Verdict::Inconclusive);
    assert_eq!(row.estimate, None);
}

#[test]
fn a_limit_on_a_value_needs_no_second_arm() {
    let absolute = |limit| Target {
        versus: None,
        ..at_most(limit, 0.0)
    };
    check([&STEADY, &STEADY, &DOUBLE], absolute(1.5), Verdict::Pass);
    check([&STEADY, &STEADY, &DOUBLE], absolute(0.5), Verdict::Fail);
    check(
        [&STEADY, &STEADY, &DOUBLE],
        absolute(1.0),
        Verdict::Inconclusive,
    );
}

#[test]
fn rules_read_as_sentences() {
    let row = judged(cell([&STEADY, &STEADY, &DOUBLE], at_most(1.03, 0.02)));
    let expected = "cpu_us_per_request of ours ≤ 1.030 × theirs, interval within 0.020 of it";
    assert_eq!(row.rule, expected);
}

/// Drift between blocks, no effect, and a true effect of a tenth.
#[test]
fn drift_is_not_an_effect_and_an_effect_is_found() {
    let mut wrong = 0;
    let mut found = 0;
    for seed in 0..100 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut arm = |factor: f64| -> Vec<u64> {
            (0..10u32)
                .map(|round| {
                    let drift = 1.0 + 0.09 * f64::from(round / 5);
                    let noise = 1.0 + 0.01 * (random.f64() - 0.5);
                    (10_000.0 * factor * drift * noise) as u64
                })
                .collect()
        };
        let (ours, aa, same, dearer) = (arm(1.0), arm(1.0), arm(1.0), arm(1.1));
        let verdict =
            |theirs: &[u64], limit| judged(cell([&ours, &aa, theirs], at_most(limit, 0.0))).verdict;
        wrong += u32::from(verdict(&same, 1.0) != Verdict::Inconclusive);
        found += u32::from(verdict(&dearer, 0.95) == Verdict::Pass);
    }
    assert!(
        wrong <= 5,
        "{wrong} of 100 saw an effect where there is none"
    );
    assert!(found >= 90, "only {found} of 100 saw the effect");
}

/// A cell whose arm "ours" claims a counter, and what the counter did in its third round.
fn engaged(counted: u64) -> CellRecord {
    let mut cell = cell([&STEADY, &STEADY, &DOUBLE], at_most(1.0, 0.0));
    cell.arms[0].engagement = Some(String::from("sent_total"));
    for round in cell.rounds.iter_mut().filter(|round| round.label == "ours") {
        let load = round.load.as_mut().unwrap();
        load.attempts = 1003;
        round.engagement = Some(EngagementRecord {
            counter: String::from("sent_total"),
            counted: if round.round == 2 { counted } else { 1000 },
            answers: 1000,
        });
    }
    judge(&mut cell, 1);
    cell
}

#[test]
fn a_row_whose_counter_differs_from_its_answers_is_invalid() {
    // Three requests were in flight at the end, and one (the cell's connections) at the start.
    for (counted, is_good) in [
        (1000, true),
        (1004, true),
        (1005, false),
        (999, false),
        (0, false),
    ] {
        let cell = engaged(counted);
        let row = &cell.rows[0];
        assert_eq!(row.invalid.is_none(), is_good, "{counted}: {row:?}");
        let expected = if is_good {
            Verdict::Pass
        } else {
            Verdict::Invalid
        };
        assert_eq!(cell.verdicts[0].verdict, expected, "{counted}");
        assert_eq!(row.engagement.as_ref().unwrap().counted, 5000 + counted);
        assert_eq!(cell.rows[2].engagement, None);
    }
    let reason = engaged(0).rows.remove(0).invalid.unwrap();
    assert_eq!(reason, "round 2: sent_total grew by 0 for 1000 answers");
}

#[test]
fn a_claimed_counter_that_was_not_read_is_invalid() {
    let mut cell = engaged(1000);
    cell.rounds[0].engagement = None;
    judge(&mut cell, 1);
    let reason = cell.rows[0].invalid.as_deref();
    assert_eq!(reason, Some("round 0: sent_total was not read"));
}

#[test]
fn bytes_and_growth_are_values_of_a_round() {
    let round = RoundRecord {
        load: Some(LoadRecord {
            window_ns: Some(500_000_000),
            ok: 10,
            body_bytes: Some(1_000_000),
            ..LoadRecord::default()
        }),
        rss_bytes: Some(5000),
        rss_before_bytes: Some(7000),
        ..RoundRecord::default()
    };
    assert_eq!(value(&round, Metric::BytesPerSecond), Some(20e6));
    assert_eq!(value(&round, Metric::RssGrowthBytes), Some(-2000.0));
    let without = RoundRecord {
        load: Some(LoadRecord {
            body_bytes: None,
            ..round.load.clone().unwrap()
        }),
        rss_before_bytes: None,
        ..round
    };
    assert_eq!(value(&without, Metric::BytesPerSecond), None);
    assert_eq!(value(&without, Metric::RssGrowthBytes), None);
}

/// The cell judged by the second edition of the rules.
fn second(costs: [&[u64]; 3], targets: Vec<Target>) -> CellRecord {
    let mut cell = cell_of(costs, targets);
    cell.rules_edition = 2;
    judge(&mut cell, 1);
    cell
}

const STEADY_10: [u64; 10] = [1000, 1002, 998, 1001, 999, 1000, 1003, 997, 1002, 999];
const DOUBLE_10: [u64; 10] = [2000, 2004, 1996, 2002, 1998, 2000, 2006, 1994, 2004, 1998];

#[test]
fn the_second_edition_corrects_for_the_rules_of_the_cell() {
    let rules = |count: usize| {
        (0..count)
            .map(|index| Target {
                id: format!("cpu-{index}"),
                ..at_most(1.0, 0.0)
            })
            .collect::<Vec<_>>()
    };
    // Six rounds reject one rule at 2/64, but not two of them: 4/64 is above 5 %.
    let cell = second([&STEADY, &STEADY, &DOUBLE], rules(1));
    assert_eq!(cell.verdicts[0].verdict, Verdict::Pass);
    assert_eq!(cell.verdicts[0].p_limit.unwrap().text(5), "0.03125");
    let cell = second([&STEADY, &STEADY, &DOUBLE], rules(2));
    for row in &cell.verdicts {
        assert_eq!(row.verdict, Verdict::Inconclusive);
        assert_eq!(row.p_holm.unwrap().text(4), "0.0625");
        let reason = row.reason.as_deref();
        assert_eq!(reason, Some("p is 0.0625 after correction for 2 rules"));
    }
    // Ten rounds are enough for ten rules, and the first edition knows no correction.
    let cell = second([&STEADY_10, &STEADY_10, &DOUBLE_10], rules(10));
    assert!(cell.verdicts.iter().all(|row| row.verdict == Verdict::Pass));
    let mut first = cell_of([&STEADY, &STEADY, &DOUBLE], rules(2));
    judge(&mut first, 1);
    assert!(
        first
            .verdicts
            .iter()
            .all(|row| row.verdict == Verdict::Pass)
    );
    assert_eq!(first.verdicts[0].p_holm, None);
}

#[test]
fn the_second_edition_wants_more_than_twice_the_noise() {
    // A/A says 1 % and touches 1, the result is 1.5 % below the limit.
    let aa = [1010, 1012, 995, 1011, 1009, 1010, 1013, 996, 1012, 1009];
    let theirs: Vec<u64> = STEADY_10.iter().map(|cost| cost * 1015 / 1000).collect();
    let cell = second([&STEADY_10, &aa, &theirs], vec![at_most(1.0, 0.0)]);
    let row = &cell.verdicts[0];
    assert_eq!(row.verdict, Verdict::Inconclusive, "{row:?}");
    let reason = row.reason.as_deref();
    assert_eq!(
        reason,
        Some("no further from the limit than twice the noise")
    );
    let theirs: Vec<u64> = STEADY_10.iter().map(|cost| cost * 105 / 100).collect();
    let cell = second([&STEADY_10, &aa, &theirs], vec![at_most(1.0, 0.0)]);
    assert_eq!(cell.verdicts[0].verdict, Verdict::Pass);
    // With a margin the distance counts from where the interval may reach.
    let cell = second([&STEADY_10, &aa, &STEADY_10], vec![at_most(1.0, 0.1)]);
    assert_eq!(cell.verdicts[0].verdict, Verdict::Pass);
}

#[test]
fn the_second_edition_wants_a_machine_that_does_nothing_else() {
    let disturbed = |steal_ns: u64, foreign_ns: Option<u64>| {
        let targets = vec![at_most(1.0, 0.0)];
        let mut cell = cell_of([&STEADY_10, &STEADY_10, &DOUBLE_10], targets);
        cell.rules_edition = 2;
        for round in cell
            .rounds
            .iter_mut()
            .filter(|round| round.label == "theirs")
        {
            round.fixture = Some(RoundFixture {
                capacity_ns: 2_000_000_000,
                steal_ns,
                foreign_ns,
            });
        }
        judge(&mut cell, 1);
        cell.verdicts.remove(0)
    };
    let quiet = disturbed(20_000_000, Some(100_000_000));
    assert_eq!(quiet.verdict, Verdict::Pass, "{quiet:?}");
    assert_eq!(disturbed(0, None).verdict, Verdict::Pass);
    for (row, expected) in [
        (
            disturbed(30_000_000, None),
            "1.5 % of the CPU time was given to others by the host during theirs",
        ),
        (
            disturbed(0, Some(200_000_000)),
            "10.0 % of the CPU time was used by other processes during theirs",
        ),
    ] {
        assert_eq!(row.verdict, Verdict::Inconclusive);
        assert_eq!(row.reason.as_deref(), Some(expected));
    }
}

/// A rule on the rate of ours (three times that of theirs), with the client busy for some arms.
fn rated(edition: u32, (bound, limit): (Bound, f64), busy: &[&str]) -> (Verdict, Option<String>) {
    let target = Target {
        metric: Metric::Rate,
        bound,
        ..at_most(limit, 0.0)
    };
    let mut cell = cell([&[1000; 10], &[1000; 10], &[1000; 10]], target);
    cell.rules_edition = edition;
    for round in &mut cell.rounds {
        let factor = if round.label == "theirs" { 1 } else { 3 };
        round.load.as_mut().unwrap().ok = factor * (1000 + u64::from(round.round));
        if busy.contains(&&*round.label) {
            round.client_cpu_ns = Some(990_000_000);
        }
    }
    let row = judged(cell);
    (row.verdict, row.reason)
}

#[test]
fn the_third_edition_takes_what_a_limited_client_can_only_understate() {
    let (ours, theirs) = (&["ours", "aa"][..], &["theirs"][..]);
    let both = &["ours", "aa", "theirs"][..];
    let least = |limit| (Bound::AtLeast, limit);
    let most = |limit| (Bound::AtMost, limit);
    for (rule, busy, expected) in [
        (least(2.0), &[][..], Verdict::Pass),
        (least(2.0), ours, Verdict::Pass),
        (least(2.0), theirs, Verdict::Inconclusive),
        (least(2.0), both, Verdict::Inconclusive),
        (least(4.0), &[][..], Verdict::Fail),
        (least(4.0), ours, Verdict::Inconclusive),
        (least(4.0), theirs, Verdict::Fail),
        (least(4.0), both, Verdict::Inconclusive),
        (most(4.0), ours, Verdict::Inconclusive),
        (most(4.0), theirs, Verdict::Pass),
        (most(2.0), ours, Verdict::Fail),
        (most(2.0), theirs, Verdict::Inconclusive),
        (most(2.0), both, Verdict::Inconclusive),
    ] {
        let (verdict, reason) = rated(3, rule, busy);
        assert_eq!(verdict, expected, "{rule:?} {busy:?}: {reason:?}");
        if verdict == Verdict::Inconclusive {
            assert_eq!(reason.as_deref(), Some("the client was the limit"));
        }
        // Records of the editions before keep what they say.
        for edition in [1, 2] {
            let before = match busy {
                [] => expected,
                _ => Verdict::Inconclusive,
            };
            assert_eq!(rated(edition, rule, busy).0, before, "{rule:?} {busy:?}");
        }
    }
}

#[test]
fn what_an_open_loop_offered_is_a_value_of_a_round() {
    let percentiles = [("p50", Some(1500)), ("p99", None), ("max", Some(90_000))];
    let round = RoundRecord {
        load: Some(LoadRecord {
            open: Some(crate::ledger::OpenRecord {
                due: 1000,
                answered: 999,
                lateness_ns: percentiles.map(|(name, ns)| (name.to_owned(), ns)).into(),
            }),
            ..LoadRecord::default()
        }),
        ..RoundRecord::default()
    };
    assert_eq!(value(&round, Metric::AchievedRatio), Some(0.999));
    assert_eq!(value(&round, Metric::LatenessP50Us), Some(1.5));
    assert_eq!(value(&round, Metric::LatenessP99Us), None);
    assert_eq!(value(&round, Metric::LatenessMaxUs), Some(90.0));
    let closed = RoundRecord {
        load: Some(LoadRecord::default()),
        ..RoundRecord::default()
    };
    assert_eq!(value(&closed, Metric::AchievedRatio), None);
}

#[test]
fn the_fourth_edition_wants_a_second_run_for_a_fail() {
    let verdict_of = |edition: u32, limit: f64, before: Option<&str>| {
        let targets = vec![at_most(limit, 0.0)];
        let mut cell = cell_of([&STEADY_10, &STEADY_10, &DOUBLE_10], targets);
        cell.rules_edition = edition;
        let earlier = before.map(|file| (String::from("cpu"), file.to_owned()));
        cell.failed_before = earlier.into_iter().collect();
        let row = judged(cell);
        (row.verdict, row.reason)
    };
    // Half of theirs.
    assert_eq!(verdict_of(3, 0.4, None), (Verdict::Fail, None));
    let once = (Verdict::Inconclusive, Some(FAILED_ONCE.to_owned()));
    assert_eq!(verdict_of(4, 0.4, None), once);
    let twice = (Verdict::Fail, Some(String::from("as in one.json")));
    assert_eq!(verdict_of(4, 0.4, Some("one.json")), twice);
    for before in [None, Some("one.json")] {
        assert_eq!(verdict_of(4, 0.6, before), (Verdict::Pass, None));
    }
}
