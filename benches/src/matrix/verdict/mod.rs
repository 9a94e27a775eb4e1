//! The judge: rows and verdicts as a function of the recorded rounds.
//!
//! PASS when the estimate meets the limit and the whole 95 % interval stays inside limit and
//! margin; FAIL when the whole interval is beyond the limit; else INCONCLUSIVE. A comparison in
//! which an arm differs from its own repetition decides nothing, and an invalid round makes its
//! row and every rule on it INVALID. So does a counter that shows that answers took another path
//! than the arm claims.
//!
//! A cell says by which edition of the rules it is judged, so that old ones keep their verdicts.
//! The second edition adds three demands on PASS and FAIL (`second.rs`); the third takes a verdict
//! that the limit of the client can only have worked against (`third.rs`); the fourth wants a second
//! run for FAIL (`fourth.rs`).

mod fourth;
mod pooled;
mod second;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
mod third;

use std::collections::BTreeMap;

pub(crate) use fourth::FAILED_ONCE;

use crate::ledger::{
    ArmRecord, Bound, CellKind, CellRecord, Decimal, EngagementRecord, Estimate, Judged, Metric,
    RoundRecord, Row, Summary, Target, Verdict, VerdictRow, serving_row,
};
use crate::stats::{
    Interval, PairedEffect, median, median_absolute_deviation, median_interval, paired_ratio,
    percentile,
};

/// An arm may differ from its repetition by this much at most.
const MAX_NOISE_EFFECT: f64 = 0.03;

/// The interval of that difference must touch 1 ± this: a clear difference, however small its
/// estimate, means that the order of arms or the machine decides.
const MAX_NOISE_GAP: f64 = 0.01;

/// The same two of a time from a save: it has parts that a request has not, such as the start of an
/// interpreter, and its rules are about multiples. Twice the noise has to lie between as elsewhere.
const RELOAD_NOISE: (f64, f64) = (0.10, 0.03);

/// Above this share of its CPU the client is what the rate measures.
const CLIENT_BOUND: f64 = 0.95;

/// Fills `rows` and `verdicts` of a cell from its arms, targets and rounds.
pub fn judge(cell: &mut CellRecord, seed: u64) {
    cell.rows = match &cell.serving {
        Some(serving) => (cell.arms.iter())
            .map(|arm| serving_row(cell, arm, serving))
            .collect(),
        None => cell.arms.iter().map(|arm| row(cell, arm)).collect(),
    };
    cell.verdicts = cell
        .targets
        .iter()
        .map(|target| verdict(cell, target, seed))
        .collect();
    if cell.rules_edition > 1 {
        second::demand(cell);
    }
    if cell.rules_edition > 3 {
        fourth::demand(cell);
    }
}

fn row(cell: &CellRecord, arm: &ArmRecord) -> Row {
    let label = &arm.label;
    let rounds: Vec<&RoundRecord> = rounds_of(cell, label).collect();
    let mut invalid = rounds.iter().find_map(|round| {
        let reason = (round.invalid.clone()).or_else(|| disengaged(cell, arm, round))?;
        Some(format!("round {}: {reason}", round.round))
    });
    if invalid.is_none() && rounds.len() != cell.num_rounds as usize {
        invalid = Some(format!("{} of {} rounds", rounds.len(), cell.num_rounds));
    }
    let metrics = match invalid {
        Some(_) => BTreeMap::new(),
        None => (Metric::ALL.into_iter())
            .filter_map(|metric| Some((metric, summary(&rounds, metric)?)))
            .collect(),
    };
    Row {
        id: format!("{}/{label}", cell.id),
        num_rounds: rounds
            .iter()
            .filter(|round| round.invalid.is_none())
            .count() as u32,
        invalid,
        metrics,
        engagement: (arm.engagement.as_ref()).and_then(|counter| engagement_sum(counter, &rounds)),
        model: None,
    }
}

/// Why the counter of a round does not show that each answer took the claimed path.
///
/// A request that was in flight when the warm-up or the measurement ended may be counted without
/// having been answered; anything beyond that is another path.
fn disengaged(cell: &CellRecord, arm: &ArmRecord, round: &RoundRecord) -> Option<String> {
    let counter = arm.engagement.as_ref()?;
    let Some(found) = &round.engagement else {
        return Some(format!("{counter} was not read"));
    };
    let attempts = round.load.as_ref().map_or(0, |load| load.attempts);
    let most = attempts + u64::from(cell.connections);
    let is_engaged = found.counter == *counter
        && found.answers > 0
        && (found.answers..=most).contains(&found.counted);
    (!is_engaged).then(|| {
        format!(
            "{} grew by {} for {} answers",
            found.counter, found.counted, found.answers
        )
    })
}

fn engagement_sum(counter: &str, rounds: &[&RoundRecord]) -> Option<EngagementRecord> {
    let mut sum = EngagementRecord {
        counter: counter.to_owned(),
        counted: 0,
        answers: 0,
    };
    for round in rounds {
        let found = round.engagement.as_ref()?;
        sum.counted += found.counted;
        sum.answers += found.answers;
    }
    Some(sum)
}

fn summary(rounds: &[&RoundRecord], metric: Metric) -> Option<Summary> {
    let values: Vec<f64> = rounds
        .iter()
        .map(|round| value(round, metric))
        .collect::<Option<_>>()?;
    let center = match metric.judged() {
        Judged::Pooled95 => pooled::p95_if_known(rounds)?,
        _ => median(&values)?,
    };
    Some(Summary {
        median: Decimal::new(center)?,
        mad: Decimal::new(median_absolute_deviation(&values)?)?,
        min: Decimal::new(values.iter().copied().fold(f64::INFINITY, f64::min))?,
        max: Decimal::new(values.iter().copied().fold(f64::NEG_INFINITY, f64::max))?,
    })
}

fn verdict(cell: &CellRecord, target: &Target, seed: u64) -> VerdictRow {
    let mut row = VerdictRow {
        id: format!("{}/{}", cell.id, target.id),
        rule: rule(target),
        num_rounds: 0,
        estimate: None,
        p_sign: None,
        p_wilcoxon: None,
        p_limit: None,
        p_holm: None,
        noise: None,
        verdict: Verdict::Inconclusive,
        reason: None,
    };
    match decide(cell, target, seed, &mut row) {
        Ok(verdict) => row.verdict = verdict,
        Err((verdict, reason)) => {
            row.verdict = verdict;
            row.reason = Some(reason);
        }
    }
    row
}

/// Fills the numbers of the row as far as they exist, and decides.
fn decide(
    cell: &CellRecord,
    target: &Target,
    seed: u64,
    row: &mut VerdictRow,
) -> Result<Verdict, (Verdict, String)> {
    let open = |reason: &str| (Verdict::Inconclusive, reason.to_owned());
    let others = target.versus.iter().chain(&target.less);
    for label in std::iter::once(&target.label).chain(others) {
        let id = format!("{}/{label}", cell.id);
        if cell
            .rows
            .iter()
            .any(|row| row.id == id && row.invalid.is_some())
        {
            return Err((Verdict::Invalid, format!("row {id} is invalid")));
        }
    }
    let interval;
    let center;
    if let Some(versus) = &target.versus {
        let effect = compare(cell, target, &target.label, versus, seed)
            .ok_or_else(|| open("the metric was not measured"))?;
        row.num_rounds = effect.ratios.len() as u32;
        row.p_sign = Decimal::new(effect.p_sign);
        row.p_wilcoxon = effect.p_wilcoxon.and_then(Decimal::new);
        center = effect.effect;
        interval = effect.interval;
        row.noise = noise(cell, target, seed).and_then(|e| estimate(e.effect, e.interval));
    } else {
        let values = values(cell, &target.label, target.metric)
            .ok_or_else(|| open("the metric was not measured"))?;
        row.num_rounds = values.len() as u32;
        let found = match target.metric.judged() {
            Judged::Median => {
                median(&values).map(|median| (median, median_interval(&values, seed)))
            }
            Judged::Worst => pooled::worst(&values, target.bound),
            Judged::Pooled95 => pooled::p95(cell, target),
        };
        (center, interval) = found.ok_or_else(|| open("no rounds"))?;
    }
    row.estimate = estimate(center, interval);
    let too_few = match target.metric.judged() {
        Judged::Pooled95 => "too few saves for an interval",
        _ => "fewer than 6 rounds",
    };
    let estimate = row.estimate.ok_or_else(|| open(too_few))?;
    if target.versus.is_some() {
        let noise = row.noise.ok_or_else(|| open("no usable A/A comparison"))?;
        if is_noisy(cell.kind, &noise) {
            return Err(open("an arm differs from its own repetition"));
        }
    }
    let is_throughput = matches!(target.metric, Metric::Rate | Metric::BytesPerSecond);
    let decided = bounds(target, &estimate);
    let is_bound = is_throughput && !compares_clients(cell) && client_bound(cell, target);
    let holds = || cell.rules_edition > 2 && third::holds(cell, target, decided);
    if is_bound && !holds() {
        return Err(open("the client was the limit"));
    }
    decided.ok_or_else(|| open("the interval does not decide"))
}

fn bounds(target: &Target, estimate: &Estimate) -> Option<Verdict> {
    let limit = target.limit.value();
    let margin = target.margin.value();
    let (value, low, high) = (
        estimate.value.value(),
        estimate.low.value(),
        estimate.high.value(),
    );
    let (passes, fails) = match target.bound {
        Bound::AtMost => (value <= limit && high <= limit + margin, low > limit),
        Bound::AtLeast => (value >= limit && low >= limit - margin, high < limit),
    };
    match (passes, fails) {
        (true, _) => Some(Verdict::Pass),
        (_, true) => Some(Verdict::Fail),
        _ => None,
    }
}

/// Compares the repetition of a judged arm, or of any arm, with its original.
fn noise(cell: &CellRecord, target: &Target, seed: u64) -> Option<PairedEffect> {
    let repeats = |label: &String| {
        cell.arms
            .iter()
            .find(move |arm| arm.same_as.as_ref() == Some(label))
    };
    let repetition = repeats(&target.label)
        .or_else(|| target.versus.as_ref().and_then(repeats))
        .or_else(|| cell.arms.iter().find(|arm| arm.same_as.is_some()))?;
    let original = repetition.same_as.as_ref()?;
    let id = format!("{}/{}", cell.id, repetition.label);
    if cell
        .rows
        .iter()
        .any(|row| row.id == id && row.invalid.is_some())
    {
        return None;
    }
    compare(cell, target, &repetition.label, original, seed)
}

fn is_noisy(kind: CellKind, noise: &Estimate) -> bool {
    let (max_effect, max_gap) = match kind {
        CellKind::Reload => RELOAD_NOISE,
        _ => (MAX_NOISE_EFFECT, MAX_NOISE_GAP),
    };
    (noise.value.value() - 1.0).abs() > max_effect
        || noise.low.value() > 1.0 + max_gap
        || noise.high.value() < 1.0 - max_gap
}

/// Whether the clients are what a cell measures; then their limit is the result.
fn compares_clients(cell: &CellRecord) -> bool {
    cell.arms.iter().all(|arm| arm.client.is_some())
}

fn client_bound(cell: &CellRecord, target: &Target) -> bool {
    let busy = |label: &str| is_client_bound(cell, label);
    busy(&target.label) || target.versus.as_deref().is_some_and(busy)
}

/// Whether the load engine, rather than the server, set the rate of an arm.
pub(crate) fn is_client_bound(cell: &CellRecord, label: &str) -> bool {
    let shares: Option<Vec<f64>> = rounds_of(cell, label)
        .map(|round| {
            let window_ns = round.load.as_ref()?.window_ns?;
            Some(round.client_cpu_ns? as f64 / window_ns as f64)
        })
        .collect();
    shares
        .and_then(|shares| median(&shares))
        .is_none_or(|share| share > CLIENT_BOUND)
}

/// The values of a metric in the rounds of an arm; `None` when a round lacks it.
pub(crate) fn values(cell: &CellRecord, label: &str, metric: Metric) -> Option<Vec<f64>> {
    rounds_of(cell, label)
        .map(|round| value(round, metric))
        .collect()
}

/// Pairs two arms by round; `None` when a round of either lacks the metric, or has no more of it
/// than the arm whose value is taken from both.
fn compare(
    cell: &CellRecord,
    target: &Target,
    ours: &str,
    theirs: &str,
    seed: u64,
) -> Option<PairedEffect> {
    paired_ratio(&pairs(cell, target, ours, theirs)?, seed)
}

fn pairs(cell: &CellRecord, target: &Target, ours: &str, theirs: &str) -> Option<Vec<(f64, f64)>> {
    rounds_of(cell, ours)
        .map(|round| {
            let same_round = |label| {
                let mut rounds = rounds_of(cell, label);
                value(
                    rounds.find(|other| other.round == round.round)?,
                    target.metric,
                )
            };
            let base = match &target.less {
                Some(less) => same_round(less)?,
                None => 0.0,
            };
            let beyond =
                |value: f64| Some(value - base).filter(|_| target.less.is_none() || value > base);
            Some((
                beyond(value(round, target.metric)?)?,
                beyond(same_round(theirs)?)?,
            ))
        })
        .collect()
}

fn rounds_of<'a>(cell: &'a CellRecord, label: &'a str) -> impl Iterator<Item = &'a RoundRecord> {
    cell.rounds.iter().filter(move |round| round.label == label)
}

fn value(round: &RoundRecord, metric: Metric) -> Option<f64> {
    let load = round.load.as_ref();
    let latency_us = |name| {
        let ns = (*load?.latency_ns.get(name)?)?;
        Some(ns as f64 / 1e3)
    };
    let lateness_us = |name| {
        let ns = (*load?.open.as_ref()?.lateness_ns.get(name)?)?;
        Some(ns as f64 / 1e3)
    };
    match metric {
        Metric::Rate => {
            let window_ns = load?.window_ns?;
            (window_ns > 0).then_some(load?.ok as f64 * 1e9 / window_ns as f64)
        }
        Metric::CpuUsPerRequest => {
            let ok = load?.ok;
            let cpu_ns = round.server_cpu_ns?;
            (ok > 0).then(|| cpu_ns as f64 / ok as f64 / 1e3)
        }
        Metric::P50Us => latency_us("p50"),
        Metric::P99Us => latency_us("p99"),
        Metric::RssBytes => round.rss_bytes.map(|bytes| bytes as f64),
        Metric::StartMs => round.start_ns.map(|ns| ns as f64 / 1e6),
        Metric::IdleRssBytes => round.idle_rss_bytes.map(|bytes| bytes as f64),
        Metric::HeldRssBytes => round.held_rss_bytes.map(|bytes| bytes as f64),
        Metric::NsPerOp => round.ns_per_op.map(Decimal::value),
        Metric::BytesPerSecond => {
            let window_ns = load?.window_ns?;
            let bytes = load?.ok as f64 * load?.body_bytes? as f64;
            (window_ns > 0).then_some(bytes * 1e9 / window_ns as f64)
        }
        Metric::RssGrowthBytes => Some(round.rss_bytes? as f64 - round.rss_before_bytes? as f64),
        // The bench's own engine is measured too, but it is not what its cells are about.
        Metric::ClientCpuUsPerRequest => {
            let load = load.filter(|load| load.client.is_some())?;
            (load.ok > 0).then_some(round.client_cpu_ns? as f64 / load.ok as f64 / 1e3)
        }
        Metric::AchievedRatio => {
            let open = load?.open.as_ref()?;
            (open.due > 0).then_some(open.answered as f64 / open.due as f64)
        }
        Metric::LatenessP50Us => lateness_us("p50"),
        Metric::LatenessP99Us => lateness_us("p99"),
        Metric::LatenessMaxUs => lateness_us("max"),
        Metric::ReloadP50Ms => median(&milliseconds(&round.reload.as_ref()?.served_ns)),
        Metric::ReloadP95Ms => percentile(
            &milliseconds(&round.reload.as_ref()?.served_ns),
            pooled::P95,
        ),
        Metric::ReloadWaitMaxMs => Some(round.reload.as_ref()?.longest_wait_ns as f64 / 1e6),
        Metric::ReloadLost => Some(round.reload.as_ref()?.num_lost() as f64),
        Metric::ReloadErrorP50Ms => median(&milliseconds(&round.reload.as_ref()?.told_ns)),
        // Of requests to a model server.
        Metric::OutputTps
        | Metric::TtftMs
        | Metric::DecodeTps
        | Metric::PrefillTps
        | Metric::AdmittedRequests => None,
    }
}

fn milliseconds(times_ns: &[u64]) -> Vec<f64> {
    times_ns.iter().map(|ns| *ns as f64 / 1e6).collect()
}

fn estimate(center: f64, interval: Option<Interval>) -> Option<Estimate> {
    let interval = interval?;
    Some(Estimate {
        value: Decimal::new(center)?,
        low: Decimal::new(interval.low)?,
        high: Decimal::new(interval.high)?,
        method: interval.method,
    })
}

fn rule(target: &Target) -> String {
    let sign = match target.bound {
        Bound::AtMost => "≤",
        Bound::AtLeast => "≥",
    };
    let metric = target.metric;
    let limit = match &target.versus {
        Some(versus) => {
            let same = target.less.as_ref().map_or("", |_| " less the same");
            format!("{} × {versus}{same}", target.limit.text(3))
        }
        None => format!("{} {}", metric.number(target.limit), metric.unit()),
    };
    let margin = match &target.versus {
        _ if target.margin.value() <= 0.0 => String::new(),
        Some(_) => format!(", interval within {} of it", target.margin.text(3)),
        None => format!(", interval within {} of it", metric.number(target.margin)),
    };
    let less = (target.less.as_ref()).map_or_else(String::new, |less| format!(" less {less}"));
    let scope = match metric.judged() {
        Judged::Worst => " in every round",
        Judged::Median | Judged::Pooled95 => "",
    };
    format!(
        "{} of {}{less} {sign} {limit}{margin}{scope}",
        metric.name(),
        target.label
    )
}
