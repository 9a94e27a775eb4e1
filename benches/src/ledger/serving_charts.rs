//! What a model server makes of more clients at once: rate of all answers, and time to the first token.
//!
//! Drawn for the cells of a record that differ in their number of clients only, named after the first
//! of them; a row that is struck through has no point.

use super::charts::captions;
use super::metric::Metric;
use super::record::{CellRecord, Record};
use super::serving::{ServingCell, ServingScenario, model_text};
use super::strike::Marks;
use crate::chart::{Curve, CurveChart, Point, Scale};

/// What is drawn, and whether it has a spread over requests.
const DRAWN: [(Metric, &str); 2] = [
    (
        Metric::OutputTps,
        "tok/s of all answers over clients at once, more is better",
    ),
    (
        Metric::TtftMs,
        "ms from the first byte sent to the first token, over clients at once; point: median, \
         whisker: all requests",
    ),
];

/// The charts of a record: the id of the first cell, what is drawn, and the chart.
pub(super) fn over_concurrency(
    file: &str,
    record: &Record,
    marks: &Marks<'_>,
) -> Vec<(String, Metric, CurveChart)> {
    let mut cells: Vec<(&CellRecord, &ServingCell)> = (record.cells.iter())
        .filter_map(|cell| Some((cell, cell.serving.as_ref()?)))
        .filter(|(_, serving)| serving.scenario == ServingScenario::Concurrency)
        .collect();
    cells.sort_by_key(|(cell, _)| cell.connections);
    let Some((first, serving)) = cells.first().copied().filter(|_| cells.len() > 1) else {
        return Vec::new();
    };
    let mut charts = Vec::new();
    for (metric, subtitle) in DRAWN {
        let mut curves: Vec<Curve> = Vec::new();
        for (index, (cell, _)) in cells.iter().enumerate() {
            for row in &cell.rows {
                let counts = marks.row(cell, &row.id).is_none();
                let Some(summary) = row.metrics.get(&metric).filter(|_| counts) else {
                    continue;
                };
                let label = super::charts::label_of(cell, row);
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
        if curves.is_empty() {
            continue;
        }
        let clients = cells.iter().map(|(cell, _)| cell.connections.to_string());
        let mut captions = captions(file, record, first);
        captions.insert(0, model_text(&serving.model));
        let chart = CurveChart {
            title: format!("{}: {}", serving.model.id, super::charts::words(metric)),
            subtitle: subtitle.to_owned(),
            x: Scale::Names(clients.collect()),
            y: Scale::Linear,
            curves,
            has_diagonal: false,
            captions,
        };
        charts.push((first.id.clone(), metric, chart));
    }
    charts
}
