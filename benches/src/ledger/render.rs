//! The sections of `BENCHMARKS.md` as a function of the entries, one each, oldest first.
//!
//! Renderer of schema version 1. A change of one byte here breaks every ledger written before, so
//! the golden tests must stay as they are; a new layout is a new schema version, or hangs on a
//! field that older records lack. What is superseded stays and is struck through.

use std::fmt::Write as _;

use super::entry::Entry;
use super::metric::Metric;
use super::record::{CellRecord, Estimate, FileDigest, Record, Row, VerdictRow};
use super::reload::amount;
use super::serving::{MODEL_COLUMNS, exchange_text, model_columns, model_text};
use super::strike::{Marks, Strike, Struck};
use super::{Decimal, RESULTS};

/// The whole first part of `BENCHMARKS.md` as the first version of this program wrote it.
pub(super) const HEADER_1: &str = "\
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

/// Splits a document into the first part, which is a summary and changes, and the sections.
pub(super) fn split(document: &[u8]) -> (&[u8], &[u8]) {
    let mut start: usize = 0;
    for line in document.split_inclusive(|byte| *byte == b'\n') {
        let text = std::str::from_utf8(line).unwrap_or_default();
        if parse_heading(text.trim_end()).is_some() {
            // The empty line before a heading is part of its section.
            return document.split_at(start.saturating_sub(1));
        }
        start += line.len();
    }
    (document, &[])
}

/// Renders the section of an entry.
pub(super) fn section(file: &str, sha256: &str, entry: &Entry, marks: &Marks<'_>) -> String {
    let mut out = String::new();
    out.push('\n');
    line(&mut out, &heading(file, sha256));
    out.push('\n');
    match entry {
        Entry::Run(record) => run_section(&mut out, record, marks),
        Entry::Strike(strike) => strike_section(&mut out, strike),
    }
    out
}

fn strike_section(out: &mut String, strike: &Strike) {
    line(
        out,
        &format!(
            "{}, superseded. What is named here stays where it is, struck through.",
            strike.recorded_utc
        ),
    );
    line(
        out,
        "\n| record | item | reason | in its place |\n|---|---|---|---|",
    );
    for struck in &strike.strikes {
        let by = (struck.by.as_deref()).map_or_else(|| String::from("–"), cell_text);
        line(
            out,
            &format!(
                "| {} | {} | {}: {} | {by} |",
                cell_text(&struck.record),
                cell_text(&struck.item),
                struck.reason.name(),
                cell_text(&struck.note),
            ),
        );
    }
}

fn run_section(out: &mut String, record: &Record, marks: &Marks<'_>) {
    summary(out, record);
    for cell in &record.cells {
        render_cell(out, cell, marks);
    }
    if !record.caveats.is_empty() {
        line(out, "\nWhat this run does not show:\n");
        for caveat in &record.caveats {
            line(out, &format!("- {}", cell_text(caveat)));
        }
    }
}

/// Renders a metric of a row, or the effect of a verdict, as a claim quotes it: the median, or with
/// `.range` after the metric the lowest and highest round (of an effect, its interval).
///
/// `None` when the record has no such value.
pub(super) fn claim(record: &Record, row: &str, metric: &str) -> Option<String> {
    let (metric, is_range) = match metric.strip_suffix(".range") {
        Some(metric) => (metric, true),
        None => (metric, false),
    };
    for cell in &record.cells {
        if let Some(found) = cell.rows.iter().find(|r| r.id == row) {
            let metric = Metric::ALL.into_iter().find(|m| m.name() == metric)?;
            let summary = found.metrics.get(&metric)?;
            let (unit, number) = (metric.unit(), |value| metric.number(value));
            return Some(if is_range {
                format!("{}–{} {unit}", number(summary.min), number(summary.max))
            } else {
                format!("{} {unit}", number(summary.median))
            });
        }
        if let Some(found) = cell.verdicts.iter().find(|v| v.id == row) {
            return match metric {
                "verdict" if !is_range => Some(found.verdict.name().to_owned()),
                "effect" => {
                    let target = target_of(cell, found)?;
                    let estimate = found.estimate?;
                    let (unit, number): (String, Box<dyn Fn(Decimal) -> String>) =
                        match target.versus {
                            Some(_) => (String::from("×"), Box::new(|value| value.text(3))),
                            None => {
                                let metric = target.metric;
                                let unit = format!(" {}", metric.unit());
                                (unit, Box::new(move |value| metric.number(value)))
                            }
                        };
                    let (low, high) = (number(estimate.low), number(estimate.high));
                    Some(if is_range {
                        format!("{low}–{high}{unit}")
                    } else {
                        format!("{}{unit}", number(estimate.value))
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
    let seed = record.seed;
    let declared = match &record.matrix {
        Some(FileDigest { path, sha256 }) => format!(
            "Matrix {} sha256:{}, seed {seed}.",
            cell_text(path),
            cell_text(sha256)
        ),
        None => format!("Measured by `justapi bench llm`, seed {seed}."),
    };
    line(out, &declared);
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

fn render_cell(out: &mut String, cell: &CellRecord, marks: &Marks<'_>) {
    let exchange = cell.workload.as_ref().map_or_else(String::new, |workload| {
        format!(
            ": {} {}, {}",
            cell_text(&workload.method),
            cell_text(&workload.path),
            cell_text(&amount(cell)),
        )
    });
    let exchange = (cell.serving.as_ref()).map_or(exchange, |serving| exchange_text(cell, serving));
    line(out, &format!("\n### {}{exchange}\n", cell_text(&cell.id)));
    if let Some(serving) = &cell.serving {
        line(out, &format!("{}\n", model_text(&serving.model)));
    }
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
    if cell.serving.is_some() {
        let _ = write!(head, " {} |", MODEL_COLUMNS.join(" | "));
        rule.push_str("---|---|---|---|");
    }
    for metric in &metrics {
        let _ = write!(head, " {} [{}] |", metric.name(), metric.unit());
        rule.push_str("---:|");
    }
    line(out, &format!("{head} state |"));
    line(out, &format!("{rule}---|"));
    for row in &cell.rows {
        render_row(out, row, &metrics, marks.row(cell, &row.id));
    }

    if !cell.verdicts.is_empty() {
        let p = if cell.rules_edition == 1 {
            "p"
        } else {
            "p (Holm)"
        };
        line(
            out,
            &format!("\n| rule | effect | A/A | {p} | verdict |\n|---|---:|---:|---:|---|"),
        );
        for verdict in &cell.verdicts {
            render_verdict(out, cell, verdict, marks.verdict(cell, verdict));
        }
    }
}

fn render_row(out: &mut String, row: &Row, metrics: &[Metric], struck: Option<&Struck>) {
    let mut text = format!("| {} | {} |", cell_text(&row.id), row.num_rounds);
    if let Some(model) = &row.model {
        let _ = write!(text, " {} |", model_columns(model).join(" | "));
    }
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
    line(out, &struck_through(text, struck));
}

/// A line of a table as it is, or with every cell of it struck through and the reason at its end.
fn struck_through(text: String, struck: Option<&Struck>) -> String {
    let Some(struck) = struck else { return text };
    let cells: Vec<String> = (text.trim_matches('|').split('|'))
        .map(|cell| format!("~~{}~~", cell.trim()))
        .collect();
    let by = (struck.by.as_deref()).map_or_else(String::new, |file| {
        let file = cell_text(file);
        format!(" by [{file}]({RESULTS}/{file})")
    });
    format!(
        "| {} superseded{by}, {}: {} |",
        cells.join(" | "),
        struck.reason.name(),
        cell_text(&struck.note)
    )
}

fn render_verdict(
    out: &mut String,
    cell: &CellRecord,
    verdict: &VerdictRow,
    struck: Option<&Struck>,
) {
    let text = verdict_line(cell, verdict);
    line(out, &struck_through(text, struck));
}

/// The effect of a verdict with its interval, as tables show it.
pub(super) fn estimate_text(
    cell: &CellRecord,
    verdict: &VerdictRow,
    estimate: Option<Estimate>,
) -> String {
    let number = |value| match target_of(cell, verdict) {
        Some(target) if target.versus.is_none() => target.metric.number(value),
        _ => value.text(3),
    };
    estimate.map_or_else(
        || String::from("–"),
        |e| format!("{} [{}–{}]", number(e.value), number(e.low), number(e.high)),
    )
}

fn verdict_line(cell: &CellRecord, verdict: &VerdictRow) -> String {
    let estimate = |estimate| estimate_text(cell, verdict, estimate);
    let p = match cell.rules_edition {
        1 => verdict.p_sign,
        _ => verdict.p_holm,
    };
    let p = p.map_or_else(|| String::from("–"), |p| p.text(4));
    let reason = (verdict.reason.as_deref())
        .map_or_else(String::new, |reason| format!(": {}", cell_text(reason)));
    format!(
        "| {}: {} | {} | {} | {p} | {}{reason} |",
        cell_text(&verdict.id),
        cell_text(&verdict.rule),
        estimate(verdict.estimate),
        estimate(verdict.noise),
        verdict.verdict.name(),
    )
}

pub(super) fn target_of<'a>(
    cell: &'a CellRecord,
    verdict: &VerdictRow,
) -> Option<&'a super::record::Target> {
    let id = verdict.id.rsplit('/').next()?;
    cell.targets.iter().find(|target| target.id == id)
}

/// Text from outside may not open a table cell, a line or a heading of its own.
pub(super) fn cell_text(text: &str) -> String {
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
