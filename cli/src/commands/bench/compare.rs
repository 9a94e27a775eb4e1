//! `justapi bench compare A B`: is the second run worse, by rule.

use std::fmt::Write as _;
use std::path::Path;

use justapi_bench::ledger::{
    self, Compared, Comparison, Decimal, Estimate, Record, Verdict, compare_records,
    compare_reports,
};
use serde_json::{Value, json};

use super::ledger::read_reports;
use super::status_of;
use super::verify::broken;
use crate::error::{CliError, Code};
use crate::ui::{Ui, document};

/// One side of a comparison.
enum Side {
    Record(Box<Record>),
    Reports(Vec<Value>),
}

pub(super) fn compare(
    ui: &Ui,
    root: &Path,
    names: [&String; 2],
    margin: f64,
) -> Result<u8, CliError> {
    let [first, second] = names;
    let compared = match (read(root, first)?, read(root, second)?) {
        (Side::Record(first), Side::Record(second)) => compare_records(&first, &second, margin),
        (Side::Reports(first), Side::Reports(second)) => compare_reports(&first, &second, margin),
        _ => {
            let text = format!("{first} and {second} are not of one kind");
            return Err(CliError::new(Code::BenchInput, text)
                .with_hint("compare two records of a ledger, or two files of JSON reports"));
        }
    };
    // The control decides nothing, and a metric of one side only has no line.
    let judged = compared.lines.iter().filter(|line| !line.is_control);
    let status = match status_of(judged.map(|line| line.verdict)) {
        0 if compared.lines.iter().all(|line| line.is_control) => super::INCONCLUSIVE,
        status => status,
    };
    if ui.is_json() {
        document(&as_document(&compared, margin))?;
    } else {
        ui.data(&as_text(&compared, names, margin))?;
    }
    Ok(status)
}

/// A record of the ledger by name, or a file: of a record, or of reports.
fn read(root: &Path, name: &str) -> Result<Side, CliError> {
    let path = Path::new(name);
    if path.is_file() {
        let mut values = read_reports(path)?;
        let is_record = values.len() == 1 && values[0].get("cells").is_some();
        if !is_record {
            return Ok(Side::Reports(values));
        }
        let record = serde_json::from_value(values.remove(0)).map_err(|error| {
            CliError::new(Code::BenchInput, format!("{name} is not a record"))
                .with_detail("cause", error.to_string())
        })?;
        return Ok(Side::Record(Box::new(record)));
    }
    match ledger::find_record(root, name) {
        Ok(Some(record)) => Ok(Side::Record(Box::new(record))),
        Ok(None) => {
            let text = format!("no record and no file is called {name}");
            Err(CliError::new(Code::BenchInput, text)
                .with_hint("`benches/results` has the records; `--root DIR` names the ledger"))
        }
        Err(failure) => Err(broken(&failure)),
    }
}

fn as_document(compared: &Comparison, margin: f64) -> Value {
    let number = |value: Option<Decimal>| value.map(Decimal::value);
    let line = |line: &Compared| {
        let effect = line.effect.map(|effect| {
            json!({
                "ratio": effect.value.value(),
                "low": effect.low.value(),
                "high": effect.high.value(),
            })
        });
        json!({
            "item": line.item,
            "metric": line.metric.name(),
            "first": number(line.first),
            "second": number(line.second),
            "ratio": number(line.ratio),
            "interval": effect,
            "p": number(line.p_holm),
            "control": line.is_control,
            "verdict": line.verdict.name(),
            "reason": line.reason,
        })
    };
    json!({
        "v": 1,
        "margin": margin,
        "notes": compared.notes,
        "lines": compared.lines.iter().map(line).collect::<Vec<_>>(),
    })
}

fn as_text(compared: &Comparison, [first, second]: [&String; 2], margin: f64) -> String {
    let percent = margin * 100.0;
    let mut text = format!("{second} against {first}, at most {percent:.1} % worse\n");
    for note in &compared.notes {
        let _ = writeln!(text, "  {note}");
    }
    let width = |of: &dyn Fn(&Compared) -> usize| compared.lines.iter().map(of).max().unwrap_or(0);
    let item_width = width(&|line| line.item.chars().count());
    let metric_width = width(&|line| line.metric.name().len());
    for line in &compared.lines {
        let number = |value: Option<Decimal>| {
            value.map_or_else(|| String::from("n/a"), |value| line.metric.number(value))
        };
        let ratio = match (line.effect, line.ratio) {
            (
                Some(Estimate {
                    value, low, high, ..
                }),
                _,
            ) => {
                format!("{} [{}–{}]", value.text(3), low.text(3), high.text(3))
            }
            (None, Some(ratio)) => ratio.text(3),
            (None, None) => String::from("n/a"),
        };
        let verdict = match (line.is_control, &line.reason) {
            (true, _) => String::from("control"),
            (false, Some(reason)) => format!("{}: {reason}", line.verdict.name()),
            (false, None) => line.verdict.name().to_owned(),
        };
        let _ = writeln!(
            text,
            "  {:item_width$}  {:metric_width$}  {:>11} → {:<11}  {ratio:<21}  {verdict}",
            line.item,
            line.metric.name(),
            number(line.first),
            number(line.second),
        );
    }
    let count = |wanted: Verdict| {
        let all = compared.lines.iter().filter(|line| !line.is_control);
        all.filter(|line| line.verdict == wanted).count()
    };
    let _ = writeln!(
        text,
        "{} PASS, {} FAIL, {} INCONCLUSIVE, {} INVALID",
        count(Verdict::Pass),
        count(Verdict::Fail),
        count(Verdict::Inconclusive),
        count(Verdict::Invalid),
    );
    text
}
