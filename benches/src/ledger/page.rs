//! The ledger as one HTML page that needs nothing else: standing, charts, tables, history.
//!
//! A function of the entries, without a date of its own, script, or anything from another host; what
//! a record says is escaped. Losses come before wins.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use super::chain::{Chain, LedgerFiles};
use super::charts;
use super::metric::Metric;
use super::record::{CellKind, CellRecord, Record, Row, Verdict};
use super::reload::amount;
use super::render::estimate_text;
use super::serving::{exchange_text, model_text};
use super::standing::{Standing, is_worse_than_other, machine, newest};
use super::strike::Marks;
use crate::Error;
use crate::chart::{Curve, CurveChart, Point, Scale, escape};

const STYLE: &str = "\
:root{color-scheme:light;font:15px/1.5 system-ui,'Segoe UI','DejaVu Sans',sans-serif;color:#1f2328}
body{max-width:1000px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.6rem}h2{margin-top:2.5rem;border-bottom:1px solid #d9dce0;padding-bottom:.3rem}
table{border-collapse:collapse;width:100%;font-size:.87rem;margin:.8rem 0}
th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid #e6e8eb;vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.PASS{color:#1a6b3c}.FAIL{color:#a4262c;font-weight:600}.INVALID{color:#a4262c}.INCONCLUSIVE{color:#6b6f76}
.struck{text-decoration:line-through;color:#767b82}.faint{color:#6b6f76;font-size:.87rem}
svg{max-width:100%;height:auto;display:block;margin:.6rem 0;border:1px solid #e6e8eb}
nav a{margin-right:.8rem}.wide{overflow-x:auto}code{font-size:.87em;overflow-wrap:anywhere}
";

/// Renders the page of the ledger below `root`.
///
/// # Errors
///
/// A ledger that does not verify.
pub fn page(root: &Path) -> Result<String, Error> {
    let chain = LedgerFiles::read(root)?.check()?;
    Ok(render(&chain))
}

fn render(chain: &Chain) -> String {
    let mut out = String::from(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src \
         'unsafe-inline'\">\n<title>Benchmark ledger</title>\n<style>\n",
    );
    out.push_str(STYLE);
    out.push_str("</style>\n</head>\n<body>\n<h1>Benchmark ledger</h1>\n");
    let cells = cells(chain);
    let _ = write!(
        out,
        "<p>{} records, {} superseded items, {} cells. Every number is a median over rounds with \
         fresh servers, in brackets the lowest and highest round; every verdict is computed from \
         them. <code>justapi bench verify</code> proves that nothing was changed.</p>\n<nav>",
        chain.runs().count(),
        chain.num_struck(),
        cells.len()
    );
    for id in cells.keys() {
        let _ = write!(out, "<a href=\"#{0}\">{0}</a>", escape(id));
    }
    out.push_str("</nav>\n");
    losses(&mut out, &newest(chain));
    for (id, runs) in &cells {
        cell_part(&mut out, chain, id, runs);
    }
    history(&mut out, chain);
    out.push_str("</body>\n</html>\n");
    out
}

/// One run of one cell.
struct Run<'a> {
    file: &'a str,
    record: &'a Record,
    cell: &'a CellRecord,
    marks: Marks<'a>,
}

/// Every cell with its runs, oldest first.
fn cells(chain: &Chain) -> BTreeMap<&str, Vec<Run<'_>>> {
    let mut cells: BTreeMap<&str, Vec<Run<'_>>> = BTreeMap::new();
    for (file, record) in chain.runs() {
        for cell in &record.cells {
            cells.entry(&cell.id).or_default().push(Run {
                file,
                record,
                cell,
                marks: chain.marks(file),
            });
        }
    }
    cells
}

fn losses(out: &mut String, standing: &[Standing<'_>]) {
    out.push_str("<h2>Where we are not the best</h2>\n");
    let open: Vec<&Standing<'_>> = standing
        .iter()
        .filter(|row| row.verdict.verdict != Verdict::Pass)
        .collect();
    let num_passed = standing.len() - open.len();
    let _ = writeln!(
        out,
        "<p>{num_passed} of {} rules pass in the newest run of their cell. These do not:</p>",
        standing.len()
    );
    out.push_str("<table><tr><th>rule</th><th class=\"n\">effect</th><th>verdict</th><th class=\"n\">in</th></tr>\n");
    for wanted in [Verdict::Fail, Verdict::Invalid, Verdict::Inconclusive] {
        for row in open.iter().filter(|row| row.verdict.verdict == wanted) {
            let verdict = row.verdict;
            let worse = if is_worse_than_other(row) {
                "; the other is better"
            } else {
                ""
            };
            let reason = (verdict.reason.as_deref())
                .map_or_else(String::new, |reason| format!(": {}", escape(reason)));
            let _ = writeln!(
                out,
                "<tr><td>{}: {}</td><td class=\"n\">{}</td><td class=\"{name}\">{name}{reason}{worse}</td><td class=\"n\">{} of {} runs</td></tr>",
                escape(&verdict.id),
                escape(&verdict.rule),
                escape(&estimate_text(row.cell, verdict, verdict.estimate)),
                row.agreeing.0,
                row.agreeing.1,
                name = verdict.verdict.name(),
            );
        }
    }
    out.push_str("</table>\n");
}

fn cell_part(out: &mut String, chain: &Chain, id: &str, runs: &[Run<'_>]) {
    let Some(run) = runs.last() else { return };
    let _ = writeln!(out, "<h2 id=\"{0}\">{0}</h2>", escape(id));
    let exchange = run
        .cell
        .workload
        .as_ref()
        .map_or_else(String::new, |workload| {
            format!(
                "{} {}, {}; ",
                workload.method,
                workload.path,
                amount(run.cell)
            )
        });
    let exchange = (run.cell.serving.as_ref()).map_or(exchange, |serving| {
        format!(
            "{}; {} ",
            exchange_text(run.cell, serving).trim_start_matches([':', ' ']),
            model_text(&serving.model)
        )
    });
    let _ = writeln!(
        out,
        "<p class=\"faint\">{}newest run <code>{}</code>, commit {}, {}</p>",
        escape(&exchange),
        escape(run.file),
        escape(run.record.source.commit.as_deref().unwrap_or("unknown")),
        escape(&machine(run.record)),
    );
    for (name, svg) in charts::of_record(run.file, run.record, &chain.marks(run.file)) {
        let is_own = name.strip_prefix(id).is_some_and(|rest| {
            // `hello` must not take the charts of `hello-c100`.
            let known = |metric: &Metric| rest == format!("-{}.svg", metric.name());
            rest == "-latency.svg" || rest == "-growth.svg" || Metric::ALL.iter().any(known)
        });
        if is_own {
            out.push_str(&svg);
        }
    }
    table(out, run);
    if let Some(chart) = over_time(id, runs) {
        out.push_str(&chart.to_svg());
    }
}

fn table(out: &mut String, run: &Run<'_>) {
    let metrics: Vec<Metric> = Metric::ALL
        .into_iter()
        .filter(|metric| {
            run.cell
                .rows
                .iter()
                .any(|row| row.metrics.contains_key(metric))
        })
        .collect();
    out.push_str("<div class=\"wide\"><table><tr><th>arm</th>");
    for metric in &metrics {
        let _ = write!(
            out,
            "<th class=\"n\">{} [{}]</th>",
            metric.name(),
            metric.unit()
        );
    }
    out.push_str("<th>state</th></tr>\n");
    for row in &run.cell.rows {
        table_row(out, run, row, &metrics);
    }
    out.push_str("</table></div>\n");
    if !run.cell.verdicts.is_empty() {
        verdict_table(out, run);
    }
}

fn table_row(out: &mut String, run: &Run<'_>, row: &Row, metrics: &[Metric]) {
    let struck = run.marks.row(run.cell, &row.id);
    let class = if struck.is_some() {
        " class=\"struck\""
    } else {
        ""
    };
    let label = charts::label_of(run.cell, row);
    let _ = write!(out, "<tr><td{class}>{}</td>", escape(label));
    for metric in metrics {
        let text = row.metrics.get(metric).map_or_else(
            || String::from("–"),
            |summary| {
                format!(
                    "{}<br><span class=\"faint\">{}–{}</span>",
                    metric.number(summary.median),
                    metric.number(summary.min),
                    metric.number(summary.max)
                )
            },
        );
        let _ = write!(
            out,
            "<td class=\"n\"{}>{text}</td>",
            if struck.is_some() {
                " style=\"opacity:.5\""
            } else {
                ""
            }
        );
    }
    let state = match (struck, &row.invalid) {
        (Some(struck), _) => format!(
            "superseded, {}: {}",
            struck.reason.name(),
            escape(&struck.note)
        ),
        (None, Some(reason)) => {
            format!("<span class=\"INVALID\">INVALID</span>: {}", escape(reason))
        }
        (None, None) => String::from("ok"),
    };
    let _ = writeln!(out, "<td>{state}</td></tr>");
}

fn verdict_table(out: &mut String, run: &Run<'_>) {
    out.push_str("<table><tr><th>rule</th><th class=\"n\">effect</th><th class=\"n\">A/A</th><th>verdict</th></tr>\n");
    for verdict in &run.cell.verdicts {
        let struck = run.marks.verdict(run.cell, verdict);
        let class = if struck.is_some() {
            "struck"
        } else {
            verdict.verdict.name()
        };
        let reason = (verdict.reason.as_deref())
            .map_or_else(String::new, |reason| format!(": {}", escape(reason)));
        let _ = writeln!(
            out,
            "<tr><td>{}: {}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"{class}\">{}{reason}</td></tr>",
            escape(&verdict.id),
            escape(&verdict.rule),
            escape(&estimate_text(run.cell, verdict, verdict.estimate)),
            escape(&estimate_text(run.cell, verdict, verdict.noise)),
            verdict.verdict.name(),
        );
    }
    out.push_str("</table>\n");
}

/// The main metric of a cell from run to run; `None` with fewer than two runs.
fn over_time(id: &str, runs: &[Run<'_>]) -> Option<CurveChart> {
    let metric = match runs.last()?.cell.kind {
        CellKind::Load => Metric::CpuUsPerRequest,
        CellKind::Start => Metric::StartMs,
        CellKind::Micro => Metric::NsPerOp,
        CellKind::Serving => Metric::TtftMs,
        CellKind::Reload => Metric::ReloadP50Ms,
    };
    if runs.len() < 2 {
        return None;
    }
    let mut curves: Vec<Curve> = Vec::new();
    for (index, run) in runs.iter().enumerate() {
        for row in &run.cell.rows {
            let counts = run.marks.row(run.cell, &row.id).is_none();
            let Some(summary) = row.metrics.get(&metric).filter(|_| counts) else {
                continue;
            };
            let label = row
                .id
                .strip_prefix(id)
                .unwrap_or(&row.id)
                .trim_start_matches('/');
            let point = Point {
                x: index as f64,
                y: summary.median.value(),
                low: summary.min.value(),
                high: summary.max.value(),
            };
            match curves.iter_mut().find(|curve| curve.label == label) {
                Some(curve) => curve.points.push(point),
                None => curves.push(Curve {
                    label: label.to_owned(),
                    points: vec![point],
                }),
            }
        }
    }
    // `2026-11-29 17:22`.
    let when = |run: &Run<'_>| {
        let utc = run.record.recorded_utc.replace('T', " ");
        utc.chars().take(16).collect::<String>()
    };
    let captions = vec![String::from(
        "Runs are different commits, made at different times: drift of the machine is in it. \
         Superseded rows are left out.",
    )];
    (!curves.is_empty()).then(|| CurveChart {
        title: format!("{id}: history"),
        subtitle: format!(
            "{}, {}; whisker: all rounds",
            charts::words(metric),
            metric.unit()
        ),
        x: Scale::Names(runs.iter().map(when).collect()),
        y: Scale::Linear,
        curves,
        has_diagonal: false,
        captions,
    })
}

fn history(out: &mut String, chain: &Chain) {
    out.push_str(
        "<h2>All runs</h2>\n<table><tr><th>record</th><th>commit</th><th>cells</th>\
         <th class=\"n\">PASS</th><th class=\"n\">FAIL</th><th class=\"n\">INCONCLUSIVE</th>\
         <th class=\"n\">INVALID</th><th class=\"n\">superseded</th></tr>\n",
    );
    for (file, record) in chain.runs() {
        let marks = chain.marks(file);
        let count = |wanted: Verdict| {
            let all = record.verdicts();
            all.filter(|verdict| verdict.verdict == wanted).count()
        };
        let num_struck: usize = (record.cells.iter())
            .map(|cell| {
                let rows = cell.rows.iter();
                rows.filter(|row| marks.row(cell, &row.id).is_some())
                    .count()
            })
            .sum();
        let ids: Vec<String> = record.cells.iter().map(|cell| escape(&cell.id)).collect();
        let commit: String = (record.source.commit.as_deref().unwrap_or("unknown").chars())
            .take(12)
            .collect();
        let dirty = match record.source.dirty {
            Some(false) => "",
            _ => " and changes",
        };
        let _ = writeln!(
            out,
            "<tr><td><code>{}</code></td><td>{}{dirty}</td><td>{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{num_struck}</td></tr>",
            escape(file),
            escape(&commit),
            ids.join(", "),
            count(Verdict::Pass),
            count(Verdict::Fail),
            count(Verdict::Inconclusive),
            count(Verdict::Invalid),
        );
    }
    out.push_str("</table>\n");
}
