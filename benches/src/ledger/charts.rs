//! The charts of a record, as files beside it: `benches/results/charts/<record>/<cell>-<what>.svg`.
//!
//! A chart is a function of its record and of the strikes on it, so the verifier draws each again
//! and compares every byte. One that is not there is not missed; one that shows anything else, or
//! belongs to no record, is a failure.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::append::replace;
use super::chain::{Chain, LedgerFiles};
use super::metric::Metric;
use super::record::{CellKind, CellRecord, Record, Row};
use super::reload::amount;
use super::serving_charts;
use super::standing::machine;
use super::strike::Marks;
use super::{CHARTS_FOLDER, RESULTS, VerifyFailure};
use crate::Error;
use crate::chart::{Bar, BarChart, Curve, CurveChart, Point, Scale};
use crate::stats::median;

/// The percentiles of a latency curve, in order, with the key of the record.
const PERCENTILES: [(&str, &str); 7] = [
    ("min", "min"),
    ("p50", "p50"),
    ("p90", "p90"),
    ("p95", "p95"),
    ("p99", "p99"),
    ("p99.9", "p99_9"),
    ("max", "max"),
];

/// What was drawn.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Drawn {
    /// Every chart of the records, relative to the root.
    pub charts: Vec<String>,
    /// Those whose file was written or changed.
    pub num_written: usize,
}

/// Draws the charts of the named records, or of all, below `root`.
///
/// # Errors
///
/// A ledger whose records or sections do not verify, an unknown record, a file that cannot be written.
pub fn draw(root: &Path, names: &[String]) -> Result<Drawn, Error> {
    let chain = LedgerFiles::read(root)?.check_sections()?;
    let mut drawn = Drawn {
        charts: Vec::new(),
        num_written: 0,
    };
    let mut chosen: Vec<(&str, &Record)> = Vec::new();
    for name in names {
        let found = chain
            .record(name)
            .ok_or_else(|| Error::NoRecord { name: name.clone() })?;
        chosen.push(found);
    }
    if names.is_empty() {
        chosen = chain.runs().collect();
    }
    for (file, record) in chosen {
        for (name, svg) in of_record(file, record, &chain.marks(file)) {
            let folder = root.join(folder_of(file));
            fs::create_dir_all(&folder).map_err(Error::file("create", &folder))?;
            let path = folder.join(&name);
            if fs::read(&path).ok().as_deref() != Some(svg.as_bytes()) {
                replace(&path, svg.as_bytes())?;
                drawn.num_written += 1;
            }
            drawn.charts.push(format!("{}/{name}", folder_of(file)));
        }
    }
    Ok(drawn)
}

/// Checks every chart below `root` and returns their number.
pub(super) fn check(root: &Path, chain: &Chain) -> Result<usize, VerifyFailure> {
    let folder = root.join(RESULTS).join(CHARTS_FOLDER);
    let mut num_charts = 0;
    for record_folder in entries(&folder)? {
        let stem = name_of(&record_folder);
        let shown = format!("{RESULTS}/{CHARTS_FOLDER}/{stem}");
        let failure = |name: &str, problem: &str| VerifyFailure::Chart {
            file: format!("{shown}{name}"),
            problem: problem.to_owned(),
        };
        let Some((file, record)) = chain.record(&stem) else {
            return Err(failure("", "charts of a record that is not there"));
        };
        let expected = of_record(file, record, &chain.marks(file));
        for path in entries(&record_folder)? {
            let name = name_of(&path);
            let Some(svg) = expected.get(&name) else {
                return Err(failure(&format!("/{name}"), "the record has no such chart"));
            };
            let found = fs::read(&path).map_err(|source| VerifyFailure::Unreadable {
                path: path.clone(),
                source,
            })?;
            if found != svg.as_bytes() {
                return Err(failure(
                    &format!("/{name}"),
                    "differs from what the record draws",
                ));
            }
            num_charts += 1;
        }
    }
    Ok(num_charts)
}

/// Entries of a folder in order, temporary files left out; none if it is not there.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, VerifyFailure> {
    let unreadable = |source| VerifyFailure::Unreadable {
        path: folder.to_owned(),
        source,
    };
    let found = match fs::read_dir(folder) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(error)),
    };
    let mut paths = Vec::new();
    for entry in found {
        let path = entry.map_err(unreadable)?.path();
        if !name_of(&path).starts_with('.') {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn name_of(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn folder_of(file: &str) -> String {
    let stem = file.strip_suffix(".json").unwrap_or(file);
    format!("{RESULTS}/{CHARTS_FOLDER}/{stem}")
}

/// The charts of a record by file name.
pub(super) fn of_record(
    file: &str,
    record: &Record,
    marks: &Marks<'_>,
) -> BTreeMap<String, String> {
    let mut charts = BTreeMap::new();
    for cell in &record.cells {
        for metric in bar_metrics(cell.kind) {
            if let Some(chart) = bars(file, record, cell, *metric, marks) {
                charts.insert(format!("{}-{}.svg", cell.id, metric.name()), chart.to_svg());
            }
        }
        if let Some(chart) = latency(file, record, cell, marks) {
            charts.insert(format!("{}-latency.svg", cell.id), chart.to_svg());
        }
    }
    for (id, chart) in growths(file, record, marks) {
        charts.insert(format!("{id}-growth.svg"), chart.to_svg());
    }
    for (id, metric, chart) in serving_charts::over_concurrency(file, record, marks) {
        charts.insert(format!("{id}-{}.svg", metric.name()), chart.to_svg());
    }
    charts
}

fn bar_metrics(kind: CellKind) -> &'static [Metric] {
    match kind {
        CellKind::Load => &[Metric::CpuUsPerRequest, Metric::Rate],
        CellKind::Start => &[Metric::StartMs, Metric::IdleRssBytes],
        CellKind::Micro => &[Metric::NsPerOp],
        CellKind::Serving => &[],
        CellKind::Reload => &[
            Metric::ReloadP50Ms,
            Metric::ReloadP95Ms,
            Metric::ReloadErrorP50Ms,
        ],
    }
}

/// One bar for each row of a cell; `None` when no row has the metric.
fn bars(
    file: &str,
    record: &Record,
    cell: &CellRecord,
    metric: Metric,
    marks: &Marks<'_>,
) -> Option<BarChart> {
    cell.rows
        .iter()
        .find(|row| row.metrics.contains_key(&metric))?;
    let judged = |label: &str| {
        let mut targets = cell.targets.iter();
        targets.any(|target| target.label == label)
            || (cell.arms.iter()).any(|arm| arm.label == label && arm.same_as.is_some())
    };
    let bar = |row: &Row| {
        let label = label_of(cell, row);
        let struck = marks.row(cell, &row.id);
        let summary = row.metrics.get(&metric);
        let text = match (&row.invalid, summary, struck) {
            (_, _, Some(struck)) => format!("superseded: {}", struck.reason.name()),
            (Some(_), ..) => String::from("INVALID"),
            (None, None, None) => String::from("not measured"),
            (None, Some(summary), None) => format!(
                "{} [{}–{}]",
                metric.number(summary.median),
                metric.number(summary.min),
                metric.number(summary.max)
            ),
        };
        Bar {
            values: summary.map(|summary| {
                let value = |decimal: super::Decimal| shown(metric, decimal.value());
                (
                    value(summary.min),
                    value(summary.median),
                    value(summary.max),
                )
            }),
            is_subject: judged(label),
            counts: struck.is_none(),
            label: label.to_owned(),
            text,
        }
    };
    let better = match metric {
        Metric::Rate | Metric::BytesPerSecond => "more is better",
        _ => "less is better",
    };
    Some(BarChart {
        title: format!("{}: {}", cell.id, words(metric)),
        subtitle: format!(
            "{}, {better}; bar: median, whisker: all rounds",
            metric.unit()
        ),
        bars: cell.rows.iter().map(bar).collect(),
        captions: captions(file, record, cell),
    })
}

/// The curves of latency percentiles; `None` when no arm has any.
fn latency(
    file: &str,
    record: &Record,
    cell: &CellRecord,
    marks: &Marks<'_>,
) -> Option<CurveChart> {
    let mut curves = Vec::new();
    for row in &cell.rows {
        if row.invalid.is_some() || marks.row(cell, &row.id).is_some() {
            continue;
        }
        let label = label_of(cell, row);
        // A repetition lies on its original.
        let is_repetition = |arm: &super::ArmRecord| arm.label == label && arm.same_as.is_some();
        if cell.arms.iter().any(is_repetition) {
            continue;
        }
        let rounds = || cell.rounds.iter().filter(|round| round.label == label);
        let mut points = Vec::new();
        for (index, (_, key)) in PERCENTILES.iter().enumerate() {
            let values: Option<Vec<f64>> = rounds()
                .map(|round| Some((*round.load.as_ref()?.latency_ns.get(*key)?)? as f64 / 1e3))
                .collect();
            // A percentile that one round has too few samples for is not shown.
            if let Some(point) = values.and_then(|values| point(index as f64, &values)) {
                points.push(point);
            }
        }
        if !points.is_empty() {
            let label = label.to_owned();
            curves.push(Curve { label, points });
        }
    }
    if curves.is_empty() {
        return None;
    }
    let names = PERCENTILES.iter().map(|(name, _)| (*name).to_owned());
    Some(CurveChart {
        title: format!("{}: latency", cell.id),
        subtitle: String::from(
            "µs by percentile, closed loop; point: median of the rounds, whisker: all rounds",
        ),
        x: Scale::Names(names.collect()),
        y: Scale::Logarithmic,
        curves,
        has_diagonal: false,
        captions: captions(file, record, cell),
    })
}

/// Rate over connections, for cells that differ in nothing else.
fn growths(file: &str, record: &Record, marks: &Marks<'_>) -> Vec<(String, CurveChart)> {
    let mut charts = Vec::new();
    let mut done: Vec<&str> = Vec::new();
    for cell in &record.cells {
        let family: Vec<&CellRecord> = (record.cells.iter())
            .filter(|other| {
                other.kind == CellKind::Load
                    && other.workload == cell.workload
                    && other.arms == cell.arms
            })
            .collect();
        let mut sizes: Vec<u32> = family.iter().map(|cell| cell.connections).collect();
        sizes.sort_unstable();
        sizes.dedup();
        if sizes.len() < 3 || done.contains(&cell.id.as_str()) {
            continue;
        }
        done.extend(family.iter().map(|cell| cell.id.as_str()));
        let mut curves: Vec<Curve> = Vec::new();
        for arm in &cell.arms {
            let mut points = Vec::new();
            for member in &family {
                let id = format!("{}/{}", member.id, arm.label);
                let row = member.rows.iter().find(|row| row.id == id);
                let summary = row
                    .filter(|row| marks.row(member, &row.id).is_none())
                    .and_then(|row| row.metrics.get(&Metric::Rate));
                if let Some(summary) = summary {
                    points.push(Point {
                        x: f64::from(member.connections),
                        y: summary.median.value(),
                        low: summary.min.value(),
                        high: summary.max.value(),
                    });
                }
            }
            points.sort_by(|a, b| a.x.total_cmp(&b.x));
            if !points.is_empty() {
                let label = arm.label.clone();
                curves.push(Curve { label, points });
            }
        }
        if curves.is_empty() {
            continue;
        }
        let chart = CurveChart {
            title: format!("{}: rate over connections", cell.id),
            subtitle: String::from("requests/s over open connections, more is better"),
            x: Scale::Logarithmic,
            y: Scale::Linear,
            curves,
            has_diagonal: false,
            captions: captions(file, record, cell),
        };
        charts.push((cell.id.clone(), chart));
    }
    charts
}

/// Throughput over offered rate, from the JSON reports of open-loop runs.
///
/// Several reports of one offered rate are rounds of one point. `None` when no report has both.
pub fn throughput(title: &str, reports: &[Value]) -> Option<String> {
    let mut points: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for report in reports {
        if let (Some(offered), Some(rate)) = (offered_rate(report), report["rate"].as_f64()) {
            // A rate in whole requests per 1,000 s is a key that sorts.
            points.entry((offered * 1e3) as u64).or_default().push(rate);
        }
    }
    let points: Vec<Point> = (points.into_iter())
        .filter_map(|(key, rates)| point(key as f64 / 1e3, &rates))
        .collect();
    let num_reports = reports.len();
    if points.is_empty() {
        return None;
    }
    let chart = CurveChart {
        title: format!("{title}: throughput over offered rate"),
        subtitle: String::from(
            "good answers/s over requests/s that were due; the line is equality",
        ),
        x: Scale::Linear,
        y: Scale::Linear,
        curves: vec![Curve {
            label: String::from("achieved"),
            points,
        }],
        has_diagonal: true,
        captions: vec![format!("{num_reports} reports of justapi bench, open loop")],
    };
    Some(chart.to_svg())
}

fn offered_rate(report: &Value) -> Option<f64> {
    [
        &report["offered_rate"],
        &report["open_loop"]["offered_rate"],
    ]
    .into_iter()
    .find_map(Value::as_f64)
    .filter(|rate| rate.is_finite() && *rate > 0.0)
}

fn point(x: f64, values: &[f64]) -> Option<Point> {
    Some(Point {
        x,
        y: median(values)?,
        low: values.iter().copied().fold(f64::INFINITY, f64::min),
        high: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    })
}

pub(super) fn label_of<'a>(cell: &CellRecord, row: &'a Row) -> &'a str {
    (row.id.strip_prefix(&cell.id))
        .and_then(|rest| rest.strip_prefix('/'))
        .unwrap_or(&row.id)
}

fn shown(metric: Metric, value: f64) -> f64 {
    match metric.unit() {
        "MB" | "MB/s" => value / 1e6,
        _ => value,
    }
}

pub(super) fn words(metric: Metric) -> &'static str {
    match metric {
        Metric::Rate => "requests per second",
        Metric::CpuUsPerRequest => "CPU time of the server per request",
        Metric::P50Us => "median latency",
        Metric::P99Us => "99th percentile of latency",
        Metric::RssBytes => "resident memory under load",
        Metric::StartMs => "time to the first answer",
        Metric::IdleRssBytes => "resident memory at rest",
        Metric::HeldRssBytes => "resident memory with open connections",
        Metric::NsPerOp => "time of one call",
        Metric::BytesPerSecond => "body bytes per second",
        Metric::RssGrowthBytes => "growth of resident memory under load",
        Metric::ClientCpuUsPerRequest => "CPU time of the client per request",
        Metric::OutputTps => "tokens of all answers per second",
        Metric::TtftMs => "time to the first token",
        Metric::DecodeTps => "tokens of one answer per second",
        Metric::PrefillTps => "prompt tokens per second",
        Metric::AdmittedRequests => "requests answered at once",
        Metric::AchievedRatio => "answers over requests that were due",
        Metric::LatenessP50Us => "median lateness of a send",
        Metric::LatenessP99Us => "99th percentile of the lateness of a send",
        Metric::LatenessMaxUs => "largest lateness of a send",
        Metric::ReloadP50Ms => "median time from a save to its answer",
        Metric::ReloadP95Ms => "95th percentile of the time from a save to its answer",
        Metric::ReloadWaitMaxMs => "longest wait of a request around a save",
        Metric::ReloadLost => "requests around saves that the newest code did not answer",
        Metric::ReloadErrorP50Ms => "median time from a broken save to word of it",
    }
}

pub(super) fn captions(file: &str, record: &Record, cell: &CellRecord) -> Vec<String> {
    let exchange = cell.workload.as_ref().map_or_else(String::new, |workload| {
        format!("{} {}, {}, ", workload.method, workload.path, amount(cell))
    });
    let rounds = match &cell.serving {
        Some(_) => String::new(),
        None => format!("{} rounds, ", cell.num_rounds),
    };
    let is_local = |caveat: &String| caveat.starts_with("a network");
    let place = if cell.serving.is_none() || record.caveats.iter().any(is_local) {
        "client and server on one machine"
    } else {
        "the client's machine"
    };
    let commit: String = (record.source.commit.as_deref().unwrap_or("unknown").chars())
        .take(12)
        .collect();
    let dirty = match record.source.dirty {
        Some(false) => "",
        _ => " and changes",
    };
    vec![
        format!("{exchange}{rounds}commit {commit}{dirty}, {file}"),
        format!("{}; {place}", machine(record)),
    ]
}

#[cfg(test)]
#[path = "charts_tests.rs"]
mod tests;
