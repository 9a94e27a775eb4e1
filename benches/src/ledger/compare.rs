//! Two runs side by side: is the second worse than the first by more than a margin?
//!
//! The runs were made at different times, so drift of the machine looks like a difference. Arms that
//! are the same program in both are the control: what they differ by is what the machine did. The
//! rule, for each metric of each arm that is in both:
//!
//! - INVALID when either row is, or the exchange is not the same.
//! - PASS when the 95 % interval of the ratio stays within the margin.
//! - FAIL when the whole interval is beyond it, an exact rank-sum test rejects at 5 % after Holm's
//!   correction for all that is compared, and the difference is more than twice that of the control.
//! - INCONCLUSIVE else, and always on different machines.

use std::path::Path;

use serde_json::Value;

use super::chain::LedgerFiles;
use super::metric::Metric;
use super::record::{ArmRecord, CellKind, CellRecord, Estimate, Program, Record, Verdict};
use super::standing::machine;
use super::{Decimal, VerifyFailure};
use crate::matrix::{is_client_bound, values};
use crate::stats::{UnpairedEffect, holm, median, unpaired_ratio};

/// The level of all tests of a comparison together.
const LEVEL: f64 = 0.05;

/// A difference must be this many times that of the control.
const DRIFT_FACTOR: f64 = 2.0;

/// Seed of the bootstrap; a comparison says the same each time.
const SEED: u64 = 1;

/// Two runs side by side.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// What the lines are worth as a whole, in words.
    pub notes: Vec<String>,
    /// One for each metric of each arm.
    pub lines: Vec<Compared>,
}

/// One metric of one arm in two runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// `cell/label`, or the name of the report's metric.
    pub item: String,
    /// The metric.
    pub metric: Metric,
    /// Median in the first.
    pub first: Option<Decimal>,
    /// Median in the second.
    pub second: Option<Decimal>,
    /// Ratio second / first.
    pub effect: Option<Estimate>,
    /// The ratio without an interval, where there are too few rounds for one.
    pub ratio: Option<Decimal>,
    /// Exact p of the rank-sum test, after Holm's correction.
    pub p_holm: Option<Decimal>,
    /// Whether it is the same program in both, and so says what the machine did.
    pub is_control: bool,
    /// What follows.
    pub verdict: Verdict,
    /// Why it is not PASS or FAIL.
    pub reason: Option<String>,
}

/// Both samples of a line, before the rule.
struct Pair {
    line: Compared,
    samples: Option<(Vec<f64>, Vec<f64>)>,
    /// Why nothing can be said.
    open: Option<(Verdict, String)>,
}

/// Reads a record of the ledger below `root` by its name.
///
/// # Errors
///
/// A ledger that does not verify. `Ok(None)` when there is no such record.
pub fn find_record(root: &Path, name: &str) -> Result<Option<Record>, VerifyFailure> {
    let chain = LedgerFiles::read(root)?.check()?;
    Ok(chain.record(name).map(|(_, record)| record.clone()))
}

/// Compares two records.
pub fn compare_records(first: &Record, second: &Record, margin: f64) -> Comparison {
    let mut notes = Vec::new();
    let is_one_machine = machine(first) == machine(second);
    if !is_one_machine {
        notes.push(format!(
            "different machines: {} and {}",
            machine(first),
            machine(second)
        ));
    }
    let mut pairs = Vec::new();
    for cell in &first.cells {
        let Some(other) = second.cells.iter().find(|other| other.id == cell.id) else {
            notes.push(format!("{} is in the first only", cell.id));
            continue;
        };
        if cell.kind == CellKind::Serving {
            notes.push(format!(
                "{} is of a model server, whose runs have no rounds to compare",
                cell.id
            ));
        }
        // A repetition is there for the noise of its own run.
        for arm in cell.arms.iter().filter(|arm| arm.same_as.is_none()) {
            let Some(theirs) = other.arms.iter().find(|theirs| theirs.label == arm.label) else {
                notes.push(format!("{}/{} is in the first only", cell.id, arm.label));
                continue;
            };
            let is_control = is_unchanged(
                (first.programs.get(&arm.program), arm),
                (second.programs.get(&theirs.program), theirs),
            );
            for metric in metrics(cell.kind) {
                pairs.push(pair((cell, arm), (other, theirs), *metric, is_control));
            }
        }
    }
    for cell in &second.cells {
        if !first.cells.iter().any(|other| other.id == cell.id) {
            notes.push(format!("{} is in the second only", cell.id));
        }
    }
    pairs.retain(|pair| pair.samples.is_some() || pair.open.is_some());
    judge(&pairs, notes, margin, is_one_machine)
}

/// Compares the JSON reports of two series of runs of one load; one report is one round.
pub fn compare_reports(first: &[Value], second: &[Value], margin: f64) -> Comparison {
    let connections = |reports: &[Value]| -> Vec<Value> {
        let mut all: Vec<Value> = reports.iter().map(|r| r["connections"].clone()).collect();
        all.dedup();
        all
    };
    let is_same_load = {
        let (a, b) = (connections(first), connections(second));
        a.len() == 1 && a == b
    };
    let invalid = (!is_same_load)
        .then(|| String::from("the runs do not have the same number of connections"))
        .or_else(|| first.iter().chain(second).find_map(trouble));
    let read = |reports: &[Value], metric: Metric| -> Option<Vec<f64>> {
        reports
            .iter()
            .map(|report| of_report(report, metric))
            .collect()
    };
    let mut pairs = Vec::new();
    for metric in [Metric::Rate, Metric::P50Us, Metric::P99Us] {
        let samples = read(first, metric).zip(read(second, metric));
        let mut line = empty_line(metric.name().to_owned(), metric);
        line.first = samples.as_ref().and_then(|(a, _)| middle(a));
        line.second = samples.as_ref().and_then(|(_, b)| middle(b));
        pairs.push(Pair {
            line,
            open: match (&invalid, &samples) {
                (Some(reason), _) => Some((Verdict::Invalid, reason.clone())),
                (None, None) => Some((
                    Verdict::Inconclusive,
                    String::from("a report does not have it"),
                )),
                (None, Some(_)) => None,
            },
            samples,
        });
    }
    // A report does not say what else ran, so there is no control to take drift from.
    judge(&pairs, Vec::new(), margin, true)
}

/// The metrics that are compared, by the kind of the cell.
fn metrics(kind: CellKind) -> &'static [Metric] {
    match kind {
        CellKind::Load => &[Metric::Rate, Metric::CpuUsPerRequest, Metric::P99Us],
        CellKind::Start => &[Metric::StartMs, Metric::IdleRssBytes, Metric::HeldRssBytes],
        CellKind::Micro => &[Metric::NsPerOp],
        CellKind::Reload => &[Metric::ReloadP50Ms, Metric::ReloadErrorP50Ms],
        // Requests of one run are no rounds: they share its server and its moment.
        CellKind::Serving => &[],
    }
}

fn is_unchanged(
    (first, arm): (Option<&Program>, &ArmRecord),
    (second, theirs): (Option<&Program>, &ArmRecord),
) -> bool {
    let (Some(first), Some(second)) = (first, second) else {
        return false;
    };
    first.sha256.is_some()
        && (
            &first.sha256,
            &first.version,
            &first.packages,
            &first.config,
        ) == (
            &second.sha256,
            &second.version,
            &second.packages,
            &second.config,
        )
        && arm.command == theirs.command
}

fn pair(
    (cell, arm): (&CellRecord, &ArmRecord),
    (other, theirs): (&CellRecord, &ArmRecord),
    metric: Metric,
    is_control: bool,
) -> Pair {
    let mut line = empty_line(format!("{}/{}", cell.id, arm.label), metric);
    line.is_control = is_control;
    let row = |cell: &CellRecord| {
        let mut rows = cell.rows.iter();
        rows.find(|row| row.id == line.item).cloned()
    };
    let (ours_row, theirs_row) = (row(cell), row(other));
    let invalid = [&ours_row, &theirs_row]
        .into_iter()
        .find_map(|row| row.as_ref()?.invalid.clone());
    let is_same_exchange = cell.kind == other.kind
        && cell.connections == other.connections
        && cell.reload == other.reload
        && arm.tls == theirs.tls
        && arm.workload(cell) == theirs.workload(other);
    let open = if let Some(reason) = invalid {
        Some((Verdict::Invalid, format!("a row is invalid: {reason}")))
    } else if !is_same_exchange {
        let reason = String::from("the exchange is not the same");
        Some((Verdict::Invalid, reason))
    } else if metric == Metric::Rate
        && (is_client_bound(cell, &arm.label) || is_client_bound(other, &theirs.label))
    {
        let reason = String::from("the client was the limit");
        Some((Verdict::Inconclusive, reason))
    } else {
        None
    };
    let samples = values(cell, &arm.label, metric).zip(values(other, &theirs.label, metric));
    let median_of = |row: &Option<super::Row>| Some(row.as_ref()?.metrics.get(&metric)?.median);
    line.first = median_of(&ours_row);
    line.second = median_of(&theirs_row);
    Pair {
        line,
        samples,
        open,
    }
}

fn judge(pairs: &[Pair], mut notes: Vec<String>, margin: f64, is_one_machine: bool) -> Comparison {
    let effects: Vec<Option<UnpairedEffect>> = (pairs.iter())
        .map(|pair| {
            let (first, second) = pair.samples.as_ref()?;
            unpaired_ratio(first, second, SEED)
        })
        .collect();
    // The largest difference of a program from itself is what the machine may have done to others.
    let drift_of = |metric: Metric| {
        (pairs.iter().zip(&effects))
            .filter(|(pair, _)| pair.line.is_control && pair.line.metric == metric)
            .filter(|(pair, _)| pair.open.is_none())
            .filter_map(|(_, effect)| Some((effect.as_ref()?.effect - 1.0).abs()))
            .fold(None, |most: Option<f64>, drift| {
                Some(most.map_or(drift, |most| most.max(drift)))
            })
    };
    let is_judged = |pair: &Pair| pair.open.is_none() && !pair.line.is_control;
    let tested: Vec<f64> = (pairs.iter().zip(&effects))
        .filter(|(pair, _)| is_judged(pair))
        .filter_map(|(_, effect)| effect.as_ref()?.p_mann_whitney)
        .collect();
    let mut corrected = holm(&tested).into_iter();
    let mut lines = Vec::with_capacity(pairs.len());
    let has_control = pairs.iter().any(|pair| pair.line.is_control);
    let has_records = pairs.iter().any(|pair| pair.line.item.contains('/'));
    if has_records && !has_control {
        notes.push(String::from(
            "no program is the same in both, so what the machine did is unknown",
        ));
    }
    for (pair, effect) in pairs.iter().zip(&effects) {
        let mut line = pair.line.clone();
        let p = effect.as_ref().and_then(|effect| effect.p_mann_whitney);
        let p_holm = p.filter(|_| is_judged(pair)).and_then(|_| corrected.next());
        line.p_holm = p_holm.and_then(Decimal::new);
        if let Some(effect) = effect {
            line.ratio = Decimal::new(effect.effect);
            line.effect = effect.interval.and_then(|interval| {
                Some(Estimate {
                    value: Decimal::new(effect.effect)?,
                    low: Decimal::new(interval.low)?,
                    high: Decimal::new(interval.high)?,
                    method: interval.method,
                })
            });
        }
        let decided = decide(
            pair,
            line.effect.as_ref(),
            p_holm,
            margin,
            Drift {
                control: drift_of(pair.line.metric),
                is_needed: has_records,
                is_one_machine,
            },
        );
        match decided {
            Ok(verdict) => line.verdict = verdict,
            Err((verdict, reason)) => {
                line.verdict = verdict;
                line.reason = Some(reason);
            }
        }
        lines.push(line);
    }
    Comparison { notes, lines }
}

/// What is known of the machine between the runs.
#[derive(Clone, Copy)]
struct Drift {
    control: Option<f64>,
    is_needed: bool,
    is_one_machine: bool,
}

fn decide(
    pair: &Pair,
    effect: Option<&Estimate>,
    p_holm: Option<f64>,
    margin: f64,
    drift: Drift,
) -> Result<Verdict, (Verdict, String)> {
    let open = |reason: String| (Verdict::Inconclusive, reason);
    if let Some(reason) = &pair.open {
        return Err(reason.clone());
    }
    if pair.line.is_control {
        return Err(open(String::from("the same program in both: the control")));
    }
    if !drift.is_one_machine {
        return Err(open(String::from("measured on different machines")));
    }
    let effect = effect.ok_or_else(|| {
        let (a, b) = pair
            .samples
            .as_ref()
            .map_or((0, 0), |(a, b)| (a.len(), b.len()));
        open(format!(
            "{a} and {b} rounds are too few for an interval, 4 each are needed"
        ))
    })?;
    let (best, worst) = if is_higher_better(pair.line.metric) {
        // A rate that is 1 - margin times the other is the worst that passes.
        (effect.high.value(), effect.low.value())
    } else {
        (-effect.low.value(), -effect.high.value())
    };
    let limit = if is_higher_better(pair.line.metric) {
        1.0 - margin
    } else {
        -(1.0 + margin)
    };
    if worst >= limit {
        return Ok(Verdict::Pass);
    }
    if best >= limit {
        return Err(open(String::from("the interval does not decide")));
    }
    let p = p_holm.unwrap_or(1.0);
    if p >= LEVEL {
        return Err(open(format!("p is {p:.4} after correction")));
    }
    let difference = (effect.value.value() - 1.0).abs();
    match drift.control {
        Some(control) if difference <= DRIFT_FACTOR * control => Err(open(format!(
            "the machine alone moved the control by {:.1} %",
            control * 100.0
        ))),
        None if drift.is_needed => Err(open(String::from(
            "no program is the same in both, so what the machine did is unknown",
        ))),
        _ => Ok(Verdict::Fail),
    }
}

fn is_higher_better(metric: Metric) -> bool {
    matches!(metric, Metric::Rate | Metric::BytesPerSecond)
}

fn empty_line(item: String, metric: Metric) -> Compared {
    Compared {
        item,
        metric,
        first: None,
        second: None,
        effect: None,
        ratio: None,
        p_holm: None,
        is_control: false,
        verdict: Verdict::Inconclusive,
        reason: None,
    }
}

fn middle(samples: &[f64]) -> Option<Decimal> {
    median(samples).and_then(Decimal::new)
}

fn of_report(report: &Value, metric: Metric) -> Option<f64> {
    let latency_us = |name: &str| Some(report["latency"][name].as_f64()? / 1e3);
    match metric {
        Metric::Rate => report["rate"].as_f64(),
        Metric::P50Us => latency_us("p50_ns"),
        Metric::P99Us => latency_us("p99_ns"),
        _ => None,
    }
}

/// Why a report is not of a good run.
fn trouble(report: &Value) -> Option<String> {
    if report["interrupted"] == Value::Bool(true) {
        return Some(String::from("a run was interrupted"));
    }
    let Some(outcomes) = report["outcomes"].as_object() else {
        return Some(String::from("a report has no outcomes"));
    };
    outcomes.iter().find_map(|(name, count)| {
        let is_error = !matches!(name.as_str(), "ok" | "aborted_at_deadline" | "not_sent");
        (is_error && count.as_u64() != Some(0)).then(|| format!("a run had {count} {name}"))
    })
}

#[cfg(test)]
#[path = "compare_tests.rs"]
mod tests;
