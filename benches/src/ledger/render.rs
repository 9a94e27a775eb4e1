//! `BENCHMARKS.md` as a function of the records: header, then one section per record.
//!
//! Renderer of schema version 1. A change of one byte here breaks every ledger written before, so
//! the golden test at the end must stay as it is; a new layout is a new schema version.

use std::fmt::Write as _;

use super::record::{CellRecord, Estimate, Metric, Record, Row, VerdictRow};

/// The constant top of `BENCHMARKS.md`.
pub(super) const HEADER: &str = "\
# Benchmark ledger

Written by `justapi bench`, one section per run, oldest first. Nobody edits this file: each section
is rendered from the record it names, and `justapi bench verify` renders all of them again and
compares every byte. A wrong result is never removed; a later run stands below it.

Values are medians over rounds, with the lowest and highest round in brackets. Effects are medians
of the ratio per round, with their 95 % interval. A/A is the same comparison between an arm and its
own repetition: the noise of that run.
";

/// Start of the heading that opens the section of a record.
pub(super) const HEADING: &str = "## ";

/// Returns the heading line of a section, without the line end.
pub(super) fn heading(file: &str, sha256: &str) -> String {
    format!("{HEADING}{file} sha256:{sha256}")
}

/// Returns the file and digest of a heading line.
pub(super) fn parse_heading(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix(HEADING)?.split_once(" sha256:")
}

/// Renders the section of a record.
pub(super) fn section(file: &str, sha256: &str, record: &Record) -> String {
    let mut out = String::new();
    out.push('\n');
    line(&mut out, &heading(file, sha256));
    out.push('\n');
    summary(&mut out, record);
    for cell in &record.cells {
        render_cell(&mut out, cell);
    }
    if !record.caveats.is_empty() {
        line(&mut out, "\nWhat this run does not show:\n");
        for caveat in &record.caveats {
            line(&mut out, &format!("- {}", cell_text(caveat)));
        }
    }
    out
}

/// Renders a metric of a row, or the effect of a verdict, as a claim quotes it.
///
/// `None` when the record has no such value.
pub(super) fn claim(record: &Record, row: &str, metric: &str) -> Option<String> {
    for cell in &record.cells {
        if let Some(found) = cell.rows.iter().find(|r| r.id == row) {
            let metric = Metric::ALL.into_iter().find(|m| m.name() == metric)?;
            let median = found.metrics.get(&metric)?.median;
            return Some(format!("{} {}", metric.number(median), metric.unit()));
        }
        if let Some(found) = cell.verdicts.iter().find(|v| v.id == row) {
            return match metric {
                "verdict" => Some(found.verdict.name().to_owned()),
                "effect" => {
                    let target = target_of(cell, found)?;
                    let value = found.estimate?.value;
                    Some(match target.versus {
                        Some(_) => format!("{}×", value.text(3)),
                        None => format!("{} {}", target.metric.number(value), target.metric.unit()),
                    })
                }
                _ => None,
            };
        }
    }
    None
}

fn summary(out: &mut String, record: &Record) {
    let commit = record.source.commit.as_deref().unwrap_or("unknown");
    let tree = match record.source.dirty {
        Some(true) => "with uncommitted changes",
        Some(false) => "clean",
        None => "tree state unknown",
    };
    let machine = |name| cell_text(record.machine.text(name));
    line(
        out,
        &format!(
            "{}, commit {}, {tree}.",
            record.recorded_utc,
            cell_text(commit)
        ),
    );
    line(
        out,
        &format!(
            "{}, {} CPUs, {}, kernel {}, virtualised: {}, governor {}, load before {}.",
            machine("cpu_model"),
            machine("cpus"),
            machine("os"),
            machine("kernel"),
            machine("virtualised"),
            machine("cpu_governor"),
            machine("load_average_before"),
        ),
    );
    line(
        out,
        &format!(
            "Matrix {} sha256:{}, seed {}.",
            cell_text(&record.matrix.path),
            cell_text(&record.matrix.sha256),
            record.seed,
        ),
    );
    for (name, program) in &record.programs {
        let version = program.version.as_deref().unwrap_or("unknown");
        let profile = program.profile.as_deref().unwrap_or("unknown");
        let mut text = format!(
            "- {}: version {}, profile {}",
            cell_text(name),
            cell_text(version),
            cell_text(profile)
        );
        for (package, version) in &program.packages {
            let _ = write!(text, ", {} {}", cell_text(package), cell_text(version));
        }
        if let Some(config) = &program.config {
            let _ = write!(
                text,
                ", configured by {} sha256:{}",
                cell_text(&config.path),
                cell_text(&config.sha256)
            );
        }
        line(out, &text);
    }
}

fn render_cell(out: &mut String, cell: &CellRecord) {
    let exchange = cell.workload.as_ref().map_or_else(String::new, |workload| {
        format!(
            ": {} {}, {} connections",
            cell_text(&workload.method),
            cell_text(&workload.path),
            cell.connections,
        )
    });
    line(out, &format!("\n### {}{exchange}\n", cell_text(&cell.id)));
    let mut has_own_exchange = false;
    for arm in &cell.arms {
        if let Some(workload) = &arm.workload {
            has_own_exchange = true;
            let (label, method) = (cell_text(&arm.label), cell_text(&workload.method));
            let path = cell_text(&workload.path);
            line(out, &format!("- {label} is asked for {method} {path}"));
        }
    }
    if has_own_exchange {
        out.push('\n');
    }

    let metrics: Vec<Metric> = Metric::ALL
        .into_iter()
        .filter(|metric| cell.rows.iter().any(|row| row.metrics.contains_key(metric)))
        .collect();
    let mut head = String::from("| row | rounds |");
    let mut rule = String::from("|---|---:|");
    for metric in &metrics {
        let _ = write!(head, " {} [{}] |", metric.name(), metric.unit());
        rule.push_str("---:|");
    }
    line(out, &format!("{head} state |"));
    line(out, &format!("{rule}---|"));
    for row in &cell.rows {
        render_row(out, row, &metrics);
    }

    if !cell.verdicts.is_empty() {
        line(
            out,
            "\n| rule | effect | A/A | p | verdict |\n|---|---:|---:|---:|---|",
        );
        for verdict in &cell.verdicts {
            render_verdict(out, cell, verdict);
        }
    }
}

fn render_row(out: &mut String, row: &Row, metrics: &[Metric]) {
    let mut text = format!("| {} | {} |", cell_text(&row.id), row.num_rounds);
    for metric in metrics {
        match row.metrics.get(metric) {
            Some(summary) => {
                let _ = write!(
                    text,
                    " {} [{}–{}] |",
                    metric.number(summary.median),
                    metric.number(summary.min),
                    metric.number(summary.max),
                );
            }
            None => text.push_str(" – |"),
        }
    }
    match &row.invalid {
        Some(reason) => {
            let _ = write!(text, " INVALID: {} |", cell_text(reason));
        }
        None => match &row.engagement {
            Some(engagement) => {
                let _ = write!(
                    text,
                    " ok: {} grew by {} for {} answers |",
                    cell_text(&engagement.counter),
                    engagement.counted,
                    engagement.answers,
                );
            }
            None => text.push_str(" ok |"),
        },
    }
    line(out, &text);
}

fn render_verdict(out: &mut String, cell: &CellRecord, verdict: &VerdictRow) {
    let number = |value| match target_of(cell, verdict) {
        Some(target) if target.versus.is_none() => target.metric.number(value),
        _ => value.text(3),
    };
    let estimate = |estimate: Option<Estimate>| {
        estimate.map_or_else(
            || String::from("–"),
            |e| format!("{} [{}–{}]", number(e.value), number(e.low), number(e.high)),
        )
    };
    let p = verdict
        .p_sign
        .map_or_else(|| String::from("–"), |p| p.text(4));
    let reason = (verdict.reason.as_deref())
        .map_or_else(String::new, |reason| format!(": {}", cell_text(reason)));
    line(
        out,
        &format!(
            "| {}: {} | {} | {} | {p} | {}{reason} |",
            cell_text(&verdict.id),
            cell_text(&verdict.rule),
            estimate(verdict.estimate),
            estimate(verdict.noise),
            verdict.verdict.name(),
        ),
    );
}

fn target_of<'a>(cell: &'a CellRecord, verdict: &VerdictRow) -> Option<&'a super::record::Target> {
    let id = verdict.id.rsplit('/').next()?;
    cell.targets.iter().find(|target| target.id == id)
}

/// Text from outside may not open a table cell, a line or a heading of its own.
fn cell_text(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '|' => '¦',
            '<' => '‹',
            '>' => '›',
            c if c.is_control() => ' ',
            c => c,
        })
        .collect::<String>()
        .trim()
        .to_owned()
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}
