//! The report for a person: one line for each group, in the order in which they were measured.
//!
//! Guarantee: the same numbers as the document has; what is not known is `n/a`.

use std::fmt::Write as _;

use super::report::{Group, ServingReport, Totals};
use super::sample::{FLOOR_P95, MetricSummary, Summary};

impl ServingReport {
    /// Renders the report as text.
    pub fn render_text(&self) -> String {
        let mut text = String::new();
        self.render_head(&mut text);
        self.render_prefill(&mut text);
        self.render_decode(&mut text);
        self.render_prefix(&mut text);
        self.render_concurrency(&mut text);
        self.render_open_loop(&mut text);
        self.render_end(&mut text);
        text
    }

    fn render_head(&self, text: &mut String) {
        let context = self.model.context_capacity_tokens;
        let context = context.map_or_else(String::new, |tokens| format!(", context {tokens}"));
        line(
            text,
            &format!("{}{context} at {}", self.model.id, self.server.url),
        );
        line(
            text,
            &format!(
                "prompts counted by {}, cached tokens reported: {}",
                self.server.token_counter, self.server.cached_tokens_reporting
            ),
        );
    }

    fn render_prefill(&self, text: &mut String) {
        if let Some(prefill) = &self.prefill {
            line(
                text,
                "\nprefill     prompt    ttft ms (min..max)        tok/s",
            );
            for group in &prefill.targets {
                prefill_line(text, group);
            }
        }
    }

    fn render_decode(&self, text: &mut String) {
        if let Some(group) = &self.decode {
            line(
                text,
                "\ndecode      tokens    tok/s (min..max)          ms/token  tokens/event",
            );
            if !skipped(text, "", group.skipped.as_deref()) {
                let summary = &group.summary;
                line(
                    text,
                    &format!(
                        "            {:<9} {:<25} {:<9} {}",
                        group.max_tokens,
                        spread(&summary.client_wall_decode_tps),
                        value(summary.client_wall_tpot_ms.median),
                        value(summary.tokens_per_chunk.median),
                    ),
                );
            }
        }
    }

    fn render_prefix(&self, text: &mut String) {
        if let Some(prefix) = &self.prefix_cache {
            line(
                text,
                "\nprefix      kind          ttft ms (min..max)        cached",
            );
            if !skipped(text, "", prefix.skipped.as_deref()) {
                let summary = &prefix.summary;
                let cached = |kind: fn(&super::PrefixSample) -> &Option<super::Sample>| {
                    let samples = prefix.samples.iter().filter_map(|s| kind(s).as_ref());
                    let ratios: Vec<_> = samples.filter_map(|s| s.cache_hit_ratio).collect();
                    MetricSummary::of(&ratios).median
                };
                for (name, summary, cached) in [
                    ("fresh", &summary.fresh, cached(|s| &s.fresh)),
                    ("identical", &summary.identical, cached(|s| &s.identical)),
                    (
                        "small suffix",
                        &summary.small_suffix,
                        cached(|s| &s.small_suffix),
                    ),
                ] {
                    let ttft = spread(&summary.client_wall_ttft_ms);
                    let cached = cached.map(|ratio| ratio * 100.0);
                    let unit = if cached.is_some() { " %" } else { "" };
                    line(
                        text,
                        &format!("            {name:<13} {ttft:<25} {}{unit}", value(cached)),
                    );
                }
            }
        }
    }

    fn render_concurrency(&self, text: &mut String) {
        if let Some(levels) = &self.concurrency {
            line(
                text,
                "\nconcurrency offered  admitted  requests  out tok/s  ttft ms p50/p95    tok/s each p50/p5",
            );
            for level in levels {
                let name = level.concurrency_offered.to_string();
                if !skipped(text, &name, level.skipped.as_deref()) {
                    load_line(text, &name, &level.totals, &level.summary);
                }
            }
        }
    }

    fn render_open_loop(&self, text: &mut String) {
        if let Some(open) = &self.open_loop {
            line(
                text,
                "\nrate        offered  admitted  requests  out tok/s  ttft ms p50/p95    tok/s each p50/p5",
            );
            let name = format!("{}/s", value(open.rate_offered));
            if !skipped(text, &name, open.skipped.as_deref()) {
                load_line(text, &name, &open.totals, &open.summary);
                let (sent, due) = (value(open.rate_achieved), value(open.rate_scheduled));
                line(
                    text,
                    &format!(
                        "            {} arrivals, {due}/s due, {sent}/s sent",
                        open.arrivals
                    ),
                );
                if let Some(ttft) = &open.summary.client_wall_ttft_sched_ms {
                    line(
                        text,
                        &format!("            ttft from the due time, ms: {}", spread(ttft)),
                    );
                }
            }
            if let Some(goodput) = &open.goodput {
                let share = goodput.fraction.map(|fraction| fraction * 100.0);
                line(
                    text,
                    &format!(
                        "            goodput {}/s, {} % of {} requests",
                        value(goodput.client_wall_goodput),
                        value(share),
                        open.totals.requests,
                    ),
                );
            }
        }
    }

    fn render_end(&self, text: &mut String) {
        let outcomes: Vec<_> = self
            .outcomes
            .iter()
            .map(|(outcome, count)| format!("{}={count}", outcome.name()))
            .collect();
        line(text, &format!("\noutcomes    {}", outcomes.join(" ")));
        line(
            text,
            "medians over complete answers, by the client's clock alone; closed loops do not see who waits outside",
        );
        for note in &self.notes {
            line(text, &format!("note        {note}"));
        }
        for reason in &self.invalid {
            line(text, &format!("INVALID     {reason}"));
        }
        if self.run.interrupted {
            line(
                text,
                "interrupted: what is above is what was measured until then",
            );
        }
    }
}

fn prefill_line(text: &mut String, group: &Group) {
    let name = group.target_prompt_tokens.to_string();
    if !skipped(text, &name, group.skipped.as_deref()) {
        line(
            text,
            &format!(
                "            {name:<9} {:<25} {}",
                spread(&group.summary.client_wall_ttft_ms),
                value(group.summary.client_wall_effective_prefill_tps.median),
            ),
        );
    }
}

fn load_line(text: &mut String, name: &str, totals: &Totals, summary: &Summary) {
    let (ttft, tps) = (
        &summary.client_wall_ttft_ms,
        &summary.client_wall_decode_tps,
    );
    line(
        text,
        &format!(
            "            {name:<8} {:<9} {:<9} {:<10} {:<18} {}",
            value(totals.concurrency_admitted_max.map(|most| most as f64)),
            totals.requests,
            value(totals.client_wall_output_tps),
            tail(ttft.median, ttft.p95, ttft.sample_count),
            tail(tps.median, tps.p5, tps.sample_count),
        ),
    );
}

fn skipped(text: &mut String, name: &str, reason: Option<&str>) -> bool {
    if let Some(reason) = reason {
        line(
            text,
            &format!("            {name:<9} not measured: {reason}"),
        );
    }
    reason.is_some()
}

fn spread(summary: &MetricSummary) -> String {
    match (summary.median, summary.min, summary.max) {
        (Some(median), Some(min), Some(max)) => {
            format!("{} ({}..{})", number(median), number(min), number(max))
        }
        _ => "n/a".to_owned(),
    }
}

/// A median with its tail, or how many samples the tail needs.
fn tail(median: Option<f64>, tail: Option<f64>, count: usize) -> String {
    match tail {
        Some(tail) => format!("{} / {}", value(median), number(tail)),
        None if count == 0 => "n/a".to_owned(),
        None => format!("{} / n<{FLOOR_P95}", value(median)),
    }
}

fn value(value: Option<f64>) -> String {
    value.map_or_else(|| "n/a".to_owned(), number)
}

/// Three or more significant digits.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 || value.fract() == 0.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}

fn line(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("strings can always grow");
}
