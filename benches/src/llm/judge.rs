//! Whether the numbers of a run may be used: failures, missed prompt lengths, cache hits, late
//! requests.
//!
//! Guarantee: a pure function of the report's own samples; a run with a failed request is never
//! called valid.

use super::outcome::{ServingOutcome, ServingOutcomes};
use super::prompt::tolerance;
use super::report::ServingReport;
use super::sample::Sample;

/// Share of prompt tokens from a cache that is worth a note: a chat template's few are not.
const CACHED_SHARE: f64 = 0.1;

/// Share of the scheduled rate that counts as reached.
const REACHED: f64 = 0.98;

/// Adds up the outcomes, and says what is wrong and what is odd.
pub(super) fn judge(report: &mut ServingReport) {
    let mut outcomes = ServingOutcomes::new();
    let mut invalid = Vec::new();
    let mut notes = Vec::new();
    fault(
        "warm-up",
        &report.warm_up.iter().collect::<Vec<_>>(),
        &mut invalid,
    );
    let shares_prefixes = report.configuration.dataset_shares_prefixes;
    for (name, samples, is_fresh) in groups(report, shares_prefixes) {
        for sample in &samples {
            *outcomes.entry(sample.outcome).or_default() += 1;
        }
        if is_fresh && let Some(share) = cached_share(&samples) {
            notes.push(format!(
                "{name}: {:.0} % of the prompt tokens came from a cache, although the prompts are new",
                share * 100.0
            ));
        }
        fault(&name, &samples, &mut invalid);
    }
    if let Some(open) = &report.open_loop
        && let (Some(scheduled), Some(achieved)) = (open.rate_scheduled, open.rate_achieved)
        && achieved < scheduled * REACHED
    {
        notes.push(format!(
            "rate: {achieved:.2} requests per second were sent, {scheduled:.2} were due"
        ));
    }
    if outcomes.is_empty() && invalid.is_empty() && !report.run.interrupted {
        invalid.push("nothing was measured".to_owned());
    }
    report.outcomes = outcomes;
    report.invalid.extend(invalid);
    report.notes.extend(notes);
}

/// Every group of measured requests, and whether its prompts are new to the server.
fn groups(report: &ServingReport, shares_prefixes: bool) -> Vec<(String, Vec<&Sample>, bool)> {
    let mut groups = Vec::new();
    for group in report.prefill.iter().flat_map(|prefill| &prefill.targets) {
        let name = format!("prefill {}", group.target_prompt_tokens);
        groups.push((name, group.samples.iter().collect(), true));
    }
    if let Some(group) = &report.decode {
        groups.push(("decode".to_owned(), group.samples.iter().collect(), true));
    }
    if let Some(prefix) = &report.prefix_cache {
        let fresh = prefix
            .samples
            .iter()
            .filter_map(|sample| sample.fresh.as_ref());
        groups.push(("prefix fresh".to_owned(), fresh.collect(), true));
        let others = prefix
            .samples
            .iter()
            .flat_map(|sample| [&sample.identical, &sample.small_suffix])
            .flatten();
        groups.push(("prefix".to_owned(), others.collect(), false));
    }
    for level in report.concurrency.iter().flatten() {
        let name = format!("concurrency {}", level.concurrency_offered);
        groups.push((name, level.samples.iter().collect(), !shares_prefixes));
    }
    if let Some(open) = &report.open_loop {
        let samples = open.samples.iter().collect();
        groups.push(("rate".to_owned(), samples, !shares_prefixes));
    }
    groups
}

/// Whether a prompt of `found` tokens is not the one of `target` tokens that was counted.
pub(crate) fn misses_its_length(target: u64, found: u64) -> bool {
    found.abs_diff(target) > 2 * tolerance(target)
}

fn fault(name: &str, samples: &[&Sample], invalid: &mut Vec<String>) {
    let is_failed =
        |sample: &&&Sample| !sample.is_ok() && sample.outcome != ServingOutcome::Interrupted;
    let failed: Vec<_> = samples.iter().filter(is_failed).collect();
    if let Some(first) = failed.first() {
        let said = first.detail.as_deref().unwrap_or("no detail");
        invalid.push(format!(
            "{name}: {} of {} requests failed; the first is {}: {said}",
            failed.len(),
            samples.len(),
            first.outcome.name()
        ));
    }
    let missed = samples.iter().find(|sample| {
        let both = sample.target_prompt_tokens.zip(sample.prompt_tokens);
        sample.is_ok() && both.is_some_and(|(target, found)| misses_its_length(target, found))
    });
    if let Some(sample) = missed {
        invalid.push(format!(
            "{name}: a prompt was counted as {} tokens and used as {}",
            sample.target_prompt_tokens.unwrap_or_default(),
            sample.prompt_tokens.unwrap_or_default()
        ));
    }
}

/// Share of prompt tokens from a cache, when it is worth a note.
fn cached_share(samples: &[&Sample]) -> Option<f64> {
    let known = samples
        .iter()
        .filter_map(|s| s.cached_tokens.zip(s.prompt_tokens));
    let (cached, prompt) = known.fold((0, 0), |sum, (cached, prompt)| {
        (sum.0 + cached, sum.1 + prompt)
    });
    let share = cached as f64 / prompt as f64;
    (prompt > 0 && share > CACHED_SHARE).then_some(share)
}
