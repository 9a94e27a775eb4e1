//! Records of model servers: rows follow from requests, what is touched is found, what is unusable
//! is refused, and older records keep their bytes.

use std::fs;

use serde_json::{Value, json};

use super::tests::{Fixture, record};
use super::*;
use crate::Error;
use crate::matrix::judge;

const MODEL: &str = "tiny|model";

fn request(number: u64) -> ServedRequest {
    let sent = number * 2_000_000;
    ServedRequest {
        outcome: String::from("ok"),
        target_prompt_tokens: Some(512),
        prompt_tokens: Some(514),
        completion_tokens: Some(11),
        cached_tokens: Some(14),
        token_events: 11,
        due_ns: None,
        sent_ns: Some(sent),
        first_token_ns: Some(sent + 50_000_000 + number * 1_000_000),
        last_token_ns: Some(sent + 150_000_000 + number * 1_000_000),
        ended_ns: Some(sent + 151_000_000 + number * 1_000_000),
    }
}

/// A level of as many clients as there are requests.
fn level(clients: u32) -> CellRecord {
    let mut cell = record(0).cells.remove(0);
    cell.id = format!("llm-concurrency-{clients}");
    cell.kind = CellKind::Serving;
    cell.connections = clients;
    cell.num_rounds = clients;
    cell.targets.clear();
    cell.rounds.clear();
    cell.arms[0].label = String::from("llama.cpp");
    cell.arms[0].program = String::from("llama.cpp");
    cell.serving = Some(ServingCell {
        scenario: ServingScenario::Concurrency,
        model: ServedModel {
            id: MODEL.to_owned(),
            weights_sha256: "0123456789abcdef".repeat(4),
            dtype: String::from("Q4_1"),
            synthetic: false,
        },
        dataset: String::from("synthetic"),
        prompt_tokens: Some(512),
        max_tokens: Some(11),
        token_counter: String::from("/tokenize"),
        request_fields: String::from("{\"stream\":true}"),
        requests: (0..u64::from(clients)).map(request).collect(),
    });
    judge(&mut cell, 7);
    cell
}

fn serving_record(number: u32) -> Record {
    let mut record = record(number);
    record.matrix = None;
    record.cells = [1, 2, 4].map(level).to_vec();
    record
}

/// The requests of a cell, to be changed.
fn requests(cell: &mut CellRecord) -> &mut Vec<ServedRequest> {
    &mut cell.serving.as_mut().unwrap().requests
}

/// A ledger with a run of the matrix, one of a model server, and one more of the matrix.
fn fixture() -> Fixture {
    let fixture = Fixture::with_records(1);
    append(fixture.root(), serving_record(1)).unwrap();
    append(fixture.root(), record(2)).unwrap();
    fixture
}

#[test]
fn rows_follow_from_the_requests() {
    let cell = level(4);
    let row = &cell.rows[0];
    assert_eq!(row.invalid, None);
    assert_eq!(row.num_rounds, 4);
    assert_eq!(row.model.as_ref().unwrap().id, MODEL);
    let shown = |metric: Metric| {
        let summary = row.metrics[&metric];
        [summary.min, summary.median, summary.max].map(|value| metric.number(value))
    };
    // 44 tokens from 0 to 6 ms + 153 ms.
    assert_eq!(shown(Metric::OutputTps), ["276.7", "276.7", "276.7"]);
    // Nearest rank of 50, 51, 52 and 53 ms.
    assert_eq!(shown(Metric::TtftMs), ["50.0", "51.0", "53.0"]);
    assert_eq!(shown(Metric::DecodeTps), ["100.0", "100.0", "100.0"]);
    // 500 tokens that were not cached.
    assert_eq!(shown(Metric::PrefillTps)[2], "10,000.0");
    assert_eq!(shown(Metric::AdmittedRequests), ["4", "4", "4"]);
    assert_eq!(row.metrics.len(), 5);
}

#[test]
fn what_is_not_known_is_not_there() {
    use Metric::{AdmittedRequests, DecodeTps, OutputTps, PrefillTps, TtftMs};

    let metrics = |change: &dyn Fn(&mut ServedRequest)| {
        let mut cell = level(2);
        change(&mut requests(&mut cell)[1]);
        judge(&mut cell, 7);
        assert_eq!(cell.rows[0].invalid, None);
        let metrics = cell.rows[0].metrics.clone();
        metrics.into_keys().collect::<Vec<_>>()
    };
    let all = [OutputTps, TtftMs, DecodeTps, PrefillTps, AdmittedRequests];
    assert_eq!(metrics(&|_| ()), all);
    let without = |missing: &[Metric]| -> Vec<Metric> {
        let is_kept = |metric: &Metric| !missing.contains(metric);
        all.into_iter().filter(is_kept).collect()
    };
    // A server that does not say what it has cached; all of it cached.
    assert_eq!(metrics(&|r| r.cached_tokens = None), without(&[PrefillTps]));
    let all_cached: &dyn Fn(&mut ServedRequest) = &|r| r.cached_tokens = r.prompt_tokens;
    assert_eq!(metrics(all_cached), without(&[PrefillTps]));
    let uncounted: &dyn Fn(&mut ServedRequest) = &|r| r.completion_tokens = None;
    assert_eq!(metrics(uncounted), without(&[OutputTps, DecodeTps]));
    assert_eq!(
        metrics(&|r| r.completion_tokens = Some(1)),
        without(&[DecodeTps])
    );
    // The time to the first token begins when it was due.
    let mut cell = level(1);
    requests(&mut cell)[0].due_ns = Some(0);
    requests(&mut cell)[0].sent_ns = Some(25_000_000);
    judge(&mut cell, 7);
    let ttft = cell.rows[0].metrics[&TtftMs].median;
    assert_eq!(TtftMs.number(ttft), "50.0");
}

/// Golden text, as that of the matrix.
#[test]
fn the_section_of_a_model_server_is_fixed() {
    let entry = entry::Entry::Run(Box::new(Record {
        cells: vec![level(2)],
        ..serving_record(0)
    }));
    let text = render::section("f.json", "00", &entry, &strike::Marks::default());
    let expected = "
Measured by `justapi bench llm`, seed 7.
- justapi: version 0.1.0, profile release, hyper 1.12.0

### llm-concurrency-2: 2 requests, 2 at a time, 512 tokens in, 11 out, synthetic

Model tiny¦model, weights sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef, Q4_1.

| row | rounds | model | weights | dtype | synthetic | output_tps [tok/s] | ttft_ms [ms] | decode_tps [tok/s] | prefill_tps [tok/s] | admitted_requests [requests] | state |
|---|---:|---|---|---|---|---:|---:|---:|---:|---:|---|
| llm-concurrency-2/llama.cpp | 2 | tiny¦model | 0123456789ab | Q4_1 | no | 143.8 [143.8–143.8] | 50.0 [50.0–51.0] | 100.0 [100.0–100.0] | 9,803.9 [9,803.9–10,000.0] | 2 [2–2] | ok |

What this run does not show:
";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn a_ledger_with_both_kinds_verifies_and_says_how_both_are_measured() {
    let fixture = fixture();
    assert_eq!(verify(fixture.root()).unwrap().num_records, 3);
    let text = fs::read_to_string(fixture.document()).unwrap();
    assert!(text.contains("## How model servers are measured"), "{text}");
    let without = Fixture::with_records(2);
    let text = fs::read_to_string(without.document()).unwrap();
    assert!(!text.contains("model server"), "{text}");
}

/// What was written before there were model servers is written today, byte for byte.
#[test]
fn older_records_keep_their_bytes() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut num_records = 0;
    for entry in fs::read_dir(root.join(RESULTS)).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let bytes = fs::read(&path).unwrap();
            // Refuses what it would not write.
            entry::Entry::parse(&name, &bytes).unwrap();
            num_records += 1;
        }
    }
    assert!(num_records >= 13, "{num_records}");
    let files = chain::LedgerFiles::read(&root).unwrap();
    files.check().unwrap();
}

/// Every third byte: that each of any record counts, the tests of the matrix show.
#[test]
fn a_flipped_byte_is_found_and_named() {
    let fixture = fixture();
    let path = &fixture.records()[1];
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let bytes = fs::read(path).unwrap();
    for offset in (0..bytes.len()).step_by(3) {
        let mut changed = bytes.clone();
        changed[offset] ^= 1;
        fs::write(path, &changed).unwrap();
        let failure = fixture.failure();
        let expected = format!("{RESULTS}/{name}: sha256 is");
        assert!(failure.starts_with(&expected), "byte {offset}: {failure}");
    }
    fs::write(path, &bytes).unwrap();
    let document = fs::read(fixture.document()).unwrap();
    let text = String::from_utf8_lossy(&document);
    let section = text.find("### llm-concurrency-1").unwrap()..text.rfind("\n## ").unwrap();
    for offset in section.step_by(3) {
        let mut changed = document.clone();
        changed[offset] ^= 1;
        fs::write(fixture.document(), &changed).unwrap();
        let failure = fixture.failure();
        assert!(failure.contains(BENCHMARKS), "byte {offset}: {failure}");
    }
    fs::write(fixture.document(), &document).unwrap();
    verify(fixture.root()).unwrap();
}

/// Who can compute hashes still cannot make rows that the requests do not give.
#[test]
fn a_row_that_does_not_follow_is_found_even_when_the_chain_is_made_anew() {
    let check = |change: &dyn Fn(&mut Record)| {
        let fixture = Fixture::with_records(1);
        let mut forged = serving_record(1);
        change(&mut forged);
        append(fixture.root(), forged).unwrap();
        let failure = fixture.failure();
        let expected = "llm-concurrency-2 does not follow from the recorded rounds";
        assert!(failure.ends_with(expected), "{failure}");
    };
    check(&|record| {
        let summary = record.cells[1].rows[0].metrics.get_mut(&Metric::OutputTps);
        summary.unwrap().median = Decimal::new(500.0).unwrap();
    });
    check(&|record| record.cells[1].rows[0].num_rounds = 3);
    check(&|record| record.cells[1].rows[0].model.as_mut().unwrap().dtype = String::from("F16"));
    check(&|record| record.cells[1].rows[0].model = None);
    check(&|record| requests(&mut record.cells[1])[0].completion_tokens = Some(12));
    check(&|record| {
        requests(&mut record.cells[1]).pop();
    });
}

#[test]
fn rows_of_failed_requests_are_refused() {
    let check = |change: &dyn Fn(&mut CellRecord), reason: &str| {
        let fixture = Fixture::with_records(1);
        let mut record = serving_record(1);
        change(&mut record.cells[1]);
        judge(&mut record.cells[1], 7);
        assert_eq!(record.cells[1].rows[0].metrics.len(), 0);
        match append(fixture.root(), record).unwrap_err() {
            Error::NotUsable { reason: found } => {
                assert_eq!(found, format!("llm-concurrency-2: {reason}"));
            }
            other => panic!("{other}"),
        }
        assert_eq!(verify(fixture.root()).unwrap().num_records, 1);
    };
    check(
        &|cell| requests(cell)[1].outcome = String::from("truncated"),
        "1 of 2 requests failed; the first is truncated",
    );
    check(
        &|cell| requests(cell)[1].prompt_tokens = Some(530),
        "a prompt was counted as 512 tokens and used as 530",
    );
    check(
        &|cell| {
            requests(cell).pop();
        },
        "1 of 2 requests",
    );
    check(&|cell| requests(cell).clear(), "nothing was measured");
}

#[test]
fn charts_show_rate_and_first_token_over_clients() {
    let fixture = fixture();
    let drawn = draw(fixture.root(), &[]).unwrap();
    let ours: Vec<&str> = (drawn.charts.iter())
        .filter_map(|path| path.rsplit('/').next())
        .filter(|name| name.starts_with("llm-"))
        .collect();
    let names = ["output_tps", "ttft_ms"].map(|name| format!("llm-concurrency-1-{name}.svg"));
    assert_eq!(ours, names);
    let path = drawn.charts.iter().find(|path| path.ends_with(&names[1]));
    let path = fixture.root().join(path.unwrap());
    let svg = fs::read_to_string(&path).unwrap();
    for text in [
        "tiny|model: time to the first token",
        "llama.cpp",
        ">4<",
        "Q4_1",
    ] {
        assert!(svg.contains(text), "{text}: {svg}");
    }
    // Three points, and whiskers where requests differ.
    assert_eq!(svg.matches("<circle").count(), 3);
    let digest = &sha256_hex(svg.as_bytes())[..16];
    assert_eq!(digest, "bd48476436ddb996", "{svg}");
    verify(fixture.root()).unwrap();
    fs::write(&path, svg.replacen("Q4_1", "Q8_0", 1)).unwrap();
    assert!(
        fixture
            .failure()
            .ends_with("differs from what the record draws")
    );
    fs::write(&path, &svg).unwrap();
    // A level that is struck through has no point.
    let name = record_name(&fixture);
    let struck = Struck {
        record: name.clone(),
        item: String::from("llm-concurrency-2"),
        reason: StrikeReason::HarnessBug,
        note: String::from("another program ran meanwhile"),
        by: None,
    };
    supersede(fixture.root(), vec![struck]).unwrap();
    assert!(
        fixture
            .failure()
            .ends_with("differs from what the record draws")
    );
    draw(fixture.root(), &[name]).unwrap();
    let svg = fs::read_to_string(&path).unwrap();
    assert_eq!(svg.matches("<circle").count(), 2);
    verify(fixture.root()).unwrap();
}

fn record_name(fixture: &Fixture) -> String {
    let path = &fixture.records()[1];
    path.file_name().unwrap().to_string_lossy().into_owned()
}

#[test]
fn claims_pages_and_comparisons_know_model_servers() {
    let fixture = fixture();
    let name = record_name(&fixture);
    let claim = |metric: &str, text: &str| {
        let reference = format!("{name}:llm-concurrency-4/llama.cpp:{metric}");
        let readme = format!("It does <!-- claim:{reference} -->{text}<!-- /claim -->.\n");
        fs::write(fixture.root().join("README.md"), readme).unwrap();
        verify(fixture.root()).map(|report| report.num_claims).ok()
    };
    assert_eq!(claim("output_tps", "276.7 tok/s"), Some(1));
    assert_eq!(claim("output_tps", "276.8 tok/s"), None);
    assert_eq!(claim("ttft_ms.range", "50.0–53.0 ms"), Some(1));
    let page = page(fixture.root()).unwrap();
    assert!(
        page.contains("Model tiny¦model, weights sha256:0123"),
        "{page}"
    );
    assert!(page.contains("tiny|model: tokens of all answers"), "{page}");
    let compared = compare_records(&serving_record(1), &serving_record(2), 0.05);
    assert_eq!(compared.lines, []);
    let note = "llm-concurrency-1 is of a model server, whose runs have no rounds to compare";
    assert!(
        compared.notes.iter().any(|found| found == note),
        "{compared:?}"
    );
}

#[test]
fn a_matrix_has_no_model_servers() {
    let text = "[program]\n[[cell]]\nid = \"x\"\nkind = \"serving\"\npath = \"/\"\nrounds = 6\n";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.toml");
    fs::write(&path, text).unwrap();
    let refused = crate::matrix::Matrix::read(&path).unwrap_err();
    assert!(
        refused.to_string().contains("justapi bench llm"),
        "{refused}"
    );
}

#[test]
fn the_record_says_null_for_what_is_not_known() {
    let mut record = serving_record(1);
    requests(&mut record.cells[0])[0].cached_tokens = None;
    let value: Value = serde_json::to_value(&record).unwrap();
    let request = &value["cells"][0]["serving"]["requests"][0];
    assert_eq!(request["cached_tokens"], Value::Null);
    assert_eq!(request["due_ns"], Value::Null);
    assert!(request.as_object().unwrap().contains_key("due_ns"));
    assert_eq!(
        value["cells"][0]["rows"][0]["model"]["synthetic"],
        json!(false)
    );
    assert!(value.get("matrix").is_none());
}
