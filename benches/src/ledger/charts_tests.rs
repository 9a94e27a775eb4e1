//! Charts are the same bytes each time, show what the record says, and cannot be changed unseen.

use std::fs;

use serde_json::json;

use super::super::tests::{Fixture, decimal, record};
use super::super::{StrikeReason, Struck, sha256_hex, supersede, verify};
use super::*;
use crate::ledger::{ArmRecord, LoadRecord, RoundRecord, Workload};
use crate::matrix::judge;

/// A record with three cells that differ in their connections only.
fn load_record() -> Record {
    let mut record = record(3);
    record.cells = [1u32, 10, 100].map(load_cell).to_vec();
    record
}

fn load_cell(connections: u32) -> CellRecord {
    let mut cell = record(3).cells.remove(0);
    cell.id = format!("hello-c{connections}");
    cell.kind = CellKind::Load;
    cell.connections = connections;
    cell.targets.clear();
    cell.workload = Some(Workload {
        method: String::from("GET"),
        path: String::from("/<hello>"),
        headers: BTreeMap::new(),
        body: None,
        expect_status: 200,
        expect_body_sha256: None,
        file: None,
        coding: None,
        echo: None,
        feed: None,
    });
    let arm = |label: &str| ArmRecord {
        label: label.to_owned(),
        program: label.to_owned(),
        ..cell.arms[0].clone()
    };
    cell.arms = vec![arm("justapi"), arm("axum")];
    cell.rounds.clear();
    for round in 0..6 {
        for (label, slowness) in [("justapi", 1), ("axum", 2)] {
            let ok = 1000 * u64::from(connections) / slowness + u64::from(round);
            cell.rounds.push(RoundRecord {
                round,
                label: label.to_owned(),
                load: Some(LoadRecord {
                    window_ns: Some(1_000_000_000),
                    attempts: ok,
                    ok,
                    latency_ns: PERCENTILES
                        .iter()
                        .enumerate()
                        .map(|(index, (_, key))| {
                            let ns = 10_000 * slowness * (index as u64 + 1);
                            // One round has too few samples for the last but one.
                            let is_missing = *key == "p99_9" && round == 2;
                            ((*key).to_owned(), (!is_missing).then_some(ns))
                        })
                        .collect(),
                    ..LoadRecord::default()
                }),
                server_cpu_ns: Some(900_000_000 + u64::from(round) * 10_000_000),
                client_cpu_ns: Some(500_000_000),
                ..RoundRecord::default()
            });
        }
    }
    judge(&mut cell, 7);
    cell
}

fn fixture() -> Fixture {
    let fixture = Fixture::with_records(0);
    super::super::append(fixture.root(), load_record()).unwrap();
    fixture
}

#[test]
fn a_record_has_bars_latency_and_growth() {
    let fixture = fixture();
    let drawn = draw(fixture.root(), &[]).unwrap();
    let names: Vec<&str> = (drawn.charts.iter())
        .map(|path| path.rsplit('/').next().unwrap())
        .collect();
    let mut expected = Vec::new();
    for connections in [1, 10, 100] {
        expected.push(format!("hello-c{connections}-cpu_us_per_request.svg"));
        if connections == 1 {
            expected.push(String::from("hello-c1-growth.svg"));
        }
        expected.push(format!("hello-c{connections}-latency.svg"));
        expected.push(format!("hello-c{connections}-rate.svg"));
    }
    expected.sort();
    assert_eq!(names, expected);
    assert_eq!(drawn.num_written, 10);
    assert_eq!(verify(fixture.root()).unwrap().num_charts, 10);
    // They are there, and the same.
    assert_eq!(draw(fixture.root(), &[]).unwrap().num_written, 0);
    let unknown = draw(fixture.root(), &[String::from("x")]);
    assert!(matches!(unknown, Err(Error::NoRecord { .. })));
}

/// Golden digests: the same record gives the same bytes on every machine, in every year.
#[test]
fn charts_are_the_same_bytes_each_time() {
    let record = load_record();
    let draw = || of_record("f.json", &record, &Marks::default());
    let charts = draw();
    assert_eq!(draw(), charts);
    let digests: Vec<String> = ["rate", "latency", "growth"]
        .map(|what| sha256_hex(charts[&format!("hello-c1-{what}.svg")].as_bytes())[..16].to_owned())
        .to_vec();
    assert_eq!(
        digests,
        ["34dbe120abcea2a7", "6d0c88882b034c0c", "fcf12ec29e6ad91c"]
    );
}

#[test]
fn a_bar_is_as_long_as_its_value_says() {
    let charts = of_record("f.json", &load_record(), &Marks::default());
    let svg = &charts["hello-c1-rate.svg"];
    let widths: Vec<f64> = (svg.lines())
        .filter(|line| line.starts_with("<rect x="))
        .map(|line| {
            let width = line.split("width=\"").nth(1).unwrap();
            width.split('"').next().unwrap().parse().unwrap()
        })
        .collect();
    // 1,002.5 and 502.5, to a tenth of a point.
    assert_eq!(widths.len(), 2, "{svg}");
    assert!(
        (widths[0] / widths[1] - 1002.5 / 502.5).abs() < 0.005,
        "{widths:?}"
    );
    assert!(svg.contains(">1,003 [1,000–1,005]<"), "{svg}");
    assert!(
        svg.contains("GET /&lt;hello&gt;, 1 connections, 6 rounds"),
        "{svg}"
    );
    assert!(svg.contains("more is better"));
}

#[test]
fn a_percentile_that_a_round_lacks_is_not_drawn() {
    let charts = of_record("f.json", &load_record(), &Marks::default());
    let svg = &charts["hello-c1-latency.svg"];
    // Two arms, six of seven percentiles each.
    assert_eq!(svg.matches("<circle").count(), 12, "{svg}");
}

#[test]
fn a_chart_that_was_changed_or_has_no_record_is_found() {
    let fixture = fixture();
    draw(fixture.root(), &[]).unwrap();
    let folder = fixture.root().join(RESULTS).join(CHARTS_FOLDER);
    let stem = load_record()
        .file_name()
        .trim_end_matches(".json")
        .to_owned();
    let chart = folder.join(&stem).join("hello-c10-rate.svg");
    let shown = format!("{RESULTS}/{CHARTS_FOLDER}/{stem}");
    let svg = fs::read_to_string(&chart).unwrap();
    fs::write(&chart, svg.replacen("10,003", "90,003", 1)).unwrap();
    let expected = format!("{shown}/hello-c10-rate.svg: differs from what the record draws");
    assert_eq!(fixture.failure(), expected);
    draw(fixture.root(), &[]).unwrap();
    // One that is not there is not missed.
    fs::remove_file(&chart).unwrap();
    assert_eq!(verify(fixture.root()).unwrap().num_charts, 9);
    fs::write(folder.join(&stem).join("better.svg"), "").unwrap();
    let failure = fixture.failure();
    assert_eq!(
        failure,
        format!("{shown}/better.svg: the record has no such chart")
    );
    fs::remove_file(folder.join(&stem).join("better.svg")).unwrap();
    fs::create_dir(folder.join("other")).unwrap();
    assert!(
        fixture
            .failure()
            .contains("charts of a record that is not there")
    );
}

#[test]
fn a_strike_shows_in_the_chart() {
    let fixture = fixture();
    draw(fixture.root(), &[]).unwrap();
    let struck = Struck {
        record: load_record().file_name(),
        item: String::from("hello-c1/axum"),
        reason: StrikeReason::BadBuild,
        note: String::from("n"),
        by: None,
    };
    supersede(fixture.root(), vec![struck]).unwrap();
    assert!(
        fixture
            .failure()
            .contains("differs from what the record draws")
    );
    draw(fixture.root(), &[]).unwrap();
    verify(fixture.root()).unwrap();
    let stem = load_record()
        .file_name()
        .trim_end_matches(".json")
        .to_owned();
    let folder = fixture.root().join(RESULTS).join(CHARTS_FOLDER).join(stem);
    let svg = fs::read_to_string(folder.join("hello-c1-rate.svg")).unwrap();
    assert!(svg.contains("superseded: bad_build"), "{svg}");
    let curves = fs::read_to_string(folder.join("hello-c1-latency.svg")).unwrap();
    assert!(!curves.contains(">axum<"), "{curves}");
}

#[test]
fn what_cannot_be_measured_has_a_line_without_a_bar() {
    let mut record = load_record();
    record.cells[0].rounds[1].invalid = Some(String::from("3 http_5xx"));
    judge(&mut record.cells[0], 7);
    let svg = &of_record("f.json", &record, &Marks::default())["hello-c1-rate.svg"];
    assert!(svg.contains(">axum<") && svg.contains(">INVALID<"), "{svg}");
    assert_eq!(svg.matches("<rect x=").count(), 1);
}

#[test]
fn throughput_goes_over_what_was_offered() {
    let report =
        |offered: u32, rate: f64| json!({"open_loop": {"offered_rate": offered}, "rate": rate});
    let reports = [
        report(1000, 1000.0),
        report(2000, 1990.0),
        report(2000, 1996.0),
        report(3000, 2400.0),
    ];
    let svg = throughput("demo", &reports).unwrap();
    assert_eq!(svg.matches("<circle").count(), 3, "{svg}");
    assert_eq!(throughput("demo", &reports).unwrap(), svg);
    assert_eq!(throughput("demo", &[json!({"rate": 5.0})]), None);
    assert_eq!(throughput("demo", &[]), None);
}

/// The page is a function of the entries as well, and nothing in it asks another host.
#[test]
fn the_page_shows_losses_history_and_strikes() {
    let fixture = fixture();
    let mut later = load_record();
    later.id = String::from("0000000a");
    later.recorded_utc = String::from("2026-11-30T14:49:03Z");
    later.caveats = vec![String::from("<script>")];
    super::super::append(fixture.root(), later).unwrap();
    let mut failed = record(5);
    failed.cells[0].targets[0].limit = decimal(1.0);
    judge(&mut failed.cells[0], 7);
    super::super::append(fixture.root(), failed).unwrap();
    let page = super::super::page(fixture.root()).unwrap();
    assert_eq!(super::super::page(fixture.root()).unwrap(), page);
    assert!(page.contains("0 of 1 rules pass"), "{page}");
    assert!(page.contains("<td class=\"FAIL\">FAIL</td>"), "{page}");
    assert!(page.contains("hello-c1: history"), "{page}");
    for forbidden in ["<script", "http://", "https://", "src=", "url("] {
        let rest = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!rest.contains(forbidden), "{forbidden}");
    }
    let struck = Struck {
        record: load_record().file_name(),
        item: String::from("hello-c10"),
        reason: StrikeReason::Remeasure,
        note: String::from("<b>"),
        by: None,
    };
    supersede(fixture.root(), vec![struck]).unwrap();
    let page = super::super::page(fixture.root()).unwrap();
    assert!(page.contains("1 superseded items"), "{page}");
    assert!(!page.contains("<b>"));
}
