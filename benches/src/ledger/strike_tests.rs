//! What is struck through stays, is proved, and is not claimed; what the document was before is
//! still lawful.

use std::fs;

use super::tests::{Fixture, decimal, record};
use super::*;
use crate::Error;

fn struck(record: &Record, item: &str) -> Struck {
    Struck {
        record: record.file_name(),
        item: item.to_owned(),
        reason: StrikeReason::HarnessBug,
        note: String::from("the clock | was wrong"),
        by: None,
    }
}

impl Fixture {
    fn text(&self) -> String {
        fs::read_to_string(self.document()).unwrap()
    }

    /// The files of the ledger as they are, to be put back.
    fn line(&self, start: &str) -> String {
        let text = self.text();
        let mut lines = text.lines();
        lines
            .find(|line| line.starts_with(start))
            .unwrap_or_else(|| panic!("no line {start} in {text}"))
            .to_owned()
    }
}

/// Golden text of a strike: like that of a record it must never change.
#[test]
fn a_struck_row_stays_where_it_is_and_says_why() {
    let fixture = Fixture::with_records(2);
    let mut item = struck(&record(0), "router/router_lookup");
    item.by = Some(record(1).file_name());
    let strike = supersede(fixture.root(), vec![item]).unwrap();
    assert_eq!(
        fixture.line("| ~~router/router_lookup~~"),
        "| ~~router/router_lookup~~ | ~~6~~ | ~~42.5 [40.0–45.0]~~ | ~~ok~~ superseded by \
         [20261129T144901Z-00000001.json](benches/results/20261129T144901Z-00000001.json), \
         harness_bug: the clock ¦ was wrong |"
    );
    // What was concluded from the row is struck through with it.
    assert_eq!(
        fixture.line("| ~~router/lookup"),
        "| ~~router/lookup: ns_per_op of router_lookup ≤ 60.0 ns~~ | ~~42.5 [40.0–45.0]~~ | ~~–~~ \
         | ~~–~~ | ~~PASS~~ superseded by \
         [20261129T144901Z-00000001.json](benches/results/20261129T144901Z-00000001.json), \
         harness_bug: the clock ¦ was wrong |"
    );
    // The other record has its row as it was.
    assert!(fixture.line("| router/router_lookup").ends_with("| ok |"));
    let expected = "superseded. What is named here stays where it is, struck through.

| record | item | reason | in its place |
|---|---|---|---|
| 20261129T144900Z-00000000.json | router/router_lookup | harness_bug: the clock ¦ was wrong | 20261129T144901Z-00000001.json |
";
    assert!(strike.section.ends_with(expected), "{}", strike.section);
    assert!(fixture.text().ends_with(&strike.section));
    let report = verify(fixture.root()).unwrap();
    assert_eq!((report.num_records, report.num_struck), (3, 1));
}

#[test]
fn a_rule_or_a_whole_cell_can_be_struck_through() {
    let fixture = Fixture::with_records(1);
    supersede(fixture.root(), vec![struck(&record(0), "router/lookup")]).unwrap();
    fixture.line("| router/router_lookup");
    fixture.line("| ~~router/lookup");
    let fixture = Fixture::with_records(1);
    // The file name may come without its ending.
    let mut cell = struck(&record(0), "router");
    cell.record = cell.record.trim_end_matches(".json").to_owned();
    supersede(fixture.root(), vec![cell]).unwrap();
    fixture.line("| ~~router/router_lookup");
    fixture.line("| ~~router/lookup");
    verify(fixture.root()).unwrap();
}

#[test]
fn what_is_not_there_cannot_be_struck_through() {
    let fixture = Fixture::with_records(2);
    supersede(fixture.root(), vec![struck(&record(0), "router/lookup")]).unwrap();
    let before = fixture.text();
    let good = struck(&record(1), "router/lookup");
    let with = |change: &dyn Fn(&mut Struck)| {
        let mut struck = good.clone();
        change(&mut struck);
        vec![struck]
    };
    for (strikes, expected) in [
        (vec![], "it strikes nothing"),
        (with(&|s| s.record = "x.json".into()), "no such record"),
        (with(&|s| s.item = "router/x".into()), "no such row"),
        (
            with(&|s| s.record = record(0).file_name()),
            "struck through already",
        ),
        (vec![good.clone(), good.clone()], "struck through already"),
        (with(&|s| s.note = " ".into()), "the note is empty"),
        (with(&|s| s.by = Some("x".into())), "no such record"),
        (with(&|s| s.by = Some(s.record.clone())), "in its own place"),
    ] {
        let error = supersede(fixture.root(), strikes).unwrap_err();
        let Error::Ledger(failure @ VerifyFailure::Strike { .. }) = error else {
            panic!("{error}");
        };
        assert!(failure.to_string().contains(expected), "{failure}");
    }
    assert_eq!(fixture.text(), before);
    assert_eq!(fixture.records().len(), 3);
}

#[test]
fn a_strike_that_is_made_up_is_found() {
    let fixture = Fixture::with_records(2);
    fixture.edit_document(|text| {
        text.replacen(
            "| router/router_lookup |",
            "| ~~router/router_lookup~~ |",
            1,
        )
    });
    assert!(fixture.failure().starts_with("BENCHMARKS.md:"));
}

#[test]
fn a_strike_that_is_taken_back_is_found() {
    let fixture = Fixture::committed(2);
    let clean = fixture.text();
    let strike = supersede(fixture.root(), vec![struck(&record(0), "router")]).unwrap();
    fixture.edit_document(|text| text.replace("~~", ""));
    assert!(fixture.failure().starts_with("BENCHMARKS.md:"));
    fs::remove_file(&strike.path).unwrap();
    assert!(
        fixture.failure().contains("missing"),
        "{}",
        fixture.failure()
    );
    // The chain alone cannot know of its end; what was committed can.
    fs::write(fixture.document(), &clean).unwrap();
    verify(fixture.root()).unwrap();
    let again = supersede(fixture.root(), vec![struck(&record(0), "router")]).unwrap();
    fixture.commit();
    fs::remove_file(&again.path).unwrap();
    fs::write(fixture.document(), &clean).unwrap();
    assert!(
        fixture.failure().contains("(commit "),
        "{}",
        fixture.failure()
    );
}

#[test]
fn every_flipped_byte_of_a_strike_is_found_and_named() {
    let fixture = Fixture::with_records(1);
    let strike = supersede(fixture.root(), vec![struck(&record(0), "router")]).unwrap();
    let name = strike
        .path
        .file_name()
        .unwrap()
        .to_string_lossy()
        .into_owned();
    let bytes = fs::read(&strike.path).unwrap();
    for offset in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[offset] ^= 1;
        fs::write(&strike.path, &changed).unwrap();
        let failure = fixture.failure();
        let expected = format!("{RESULTS}/{name}: sha256 is");
        assert!(failure.starts_with(&expected), "byte {offset}: {failure}");
    }
}

/// The document has more than one age: before each strike it had another text.
#[test]
fn every_committed_age_of_the_document_is_lawful() {
    let fixture = Fixture::committed(2);
    for (number, item) in [
        (0, "router/lookup"),
        (1, "router"),
        (0, "router/router_lookup"),
    ] {
        supersede(fixture.root(), vec![struck(&record(number), item)]).unwrap();
        fixture.commit();
        append(
            fixture.root(),
            record(number + 5 + u32::from(item == "router") * 20 + item.len() as u32),
        )
        .unwrap();
        fixture.commit();
    }
    let report = verify(fixture.root()).unwrap();
    let expected = History::Checked {
        num_documents: 8,
        num_records: 8,
    };
    assert_eq!((report.history, report.num_struck), (expected, 3));
    // A committed text that never was a rendering stays a fault for ever.
    let good = fixture.text();
    fixture.edit_document(|text| text.replacen("42.5", "41.5", 1));
    fixture.commit();
    fs::write(fixture.document(), good).unwrap();
    fixture.commit();
    assert!(
        fixture
            .failure()
            .starts_with("BENCHMARKS.md: the committed text")
    );
}

/// A ledger of earlier code, with its constant first part.
#[test]
fn a_document_of_the_first_version_verifies_and_is_brought_up_to_date() {
    let fixture = Fixture::with_records(0);
    fixture.git(&["init", "--quiet"]);
    append(fixture.root(), record(0)).unwrap();
    let text = fixture.text();
    let (_, sections) = render::split(text.as_bytes());
    let old = [render::HEADER_1.as_bytes(), sections].concat();
    fs::write(fixture.document(), &old).unwrap();
    verify(fixture.root()).unwrap();
    fixture.commit();
    // Its first part is held to its text, too.
    fixture.edit_document(|text| text.replacen("Nobody edits", "Everybody edits", 1));
    assert!(fixture.failure().starts_with("BENCHMARKS.md:"));
    fs::write(fixture.document(), &old).unwrap();
    append(fixture.root(), record(1)).unwrap();
    assert!(fixture.text().contains("\n## How it is measured\n"));
    verify(fixture.root()).unwrap();
}

#[test]
fn the_first_part_names_what_did_not_pass() {
    let fixture = Fixture::with_records(1);
    assert!(
        fixture
            .text()
            .contains("1 PASS, 0 FAIL, 0 are INCONCLUSIVE and 0 INVALID")
    );
    let mut slow = record(1);
    for round in &mut slow.cells[0].rounds {
        round.ns_per_op = Some(decimal(100.0 + f64::from(round.round)));
    }
    crate::matrix::judge(&mut slow.cells[0], 7);
    append(fixture.root(), slow.clone()).unwrap();
    let text = fixture.text();
    assert!(
        text.contains("0 PASS, 1 FAIL, 0 are INCONCLUSIVE"),
        "{text}"
    );
    let line = "| router/lookup: ns_per_op of router_lookup ≤ 60.0 ns | 102.5 [100.0–105.0] | FAIL | \
                1 of 2 | 20261129T144901Z-00000001 |";
    assert!(text.contains(line), "{text}");
    assert!(
        text.contains("- Test ¦ CPU, unknown CPUs, unknown, kernel unknown: 2 runs"),
        "{text}"
    );
    // What is struck through says nothing any more; the run before it counts again.
    supersede(fixture.root(), vec![struck(&slow, "router")]).unwrap();
    assert!(fixture.text().contains("1 PASS, 0 FAIL"));
}

fn claim(reference: &str, text: &str) -> String {
    format!("<!-- claim:{reference} -->{text}<!-- /claim -->")
}

#[test]
fn claims_are_filled_and_what_is_filled_verifies() {
    let fixture = Fixture::with_records(2);
    let root = fixture.root();
    let file = record(0).file_name();
    let readme = format!(
        "It takes {} to {}, and {} today.\n",
        claim(&format!("{file}:router/router_lookup:ns_per_op"), "?"),
        claim(&format!("{file}:router/router_lookup:ns_per_op.range"), ""),
        claim("latest:router/lookup:effect", "old"),
    );
    fs::write(root.join("README.md"), readme).unwrap();
    fs::create_dir_all(root.join("docs/deep")).unwrap();
    let page = format!("{}\n", claim("latest:router/lookup:effect.range", "x"));
    fs::write(root.join("docs/deep/page.md"), page).unwrap();
    assert!(fixture.failure().starts_with("README.md:1: claim"));

    let claimed = fill_claims(root).unwrap();
    assert_eq!(claimed.num_claims, 4);
    assert_eq!(claimed.changed, ["README.md", "docs/deep/page.md"]);
    let filled = fs::read_to_string(root.join("README.md")).unwrap();
    let plain: String = filled
        .split("<!-- ")
        .map(|part| part.split_once("-->").map_or(part, |(_, text)| text))
        .collect();
    assert_eq!(
        plain,
        "It takes 42.5 ns to 40.0–45.0 ns, and 43.5 ns today.\n"
    );
    let page = fs::read_to_string(root.join("docs/deep/page.md")).unwrap();
    assert!(page.contains("-->41.0–46.0 ns<!--"), "{page}");
    assert_eq!(verify(root).unwrap().num_claims, 4);
    assert!(fill_claims(root).unwrap().changed.is_empty());

    // A newer run makes the claim on the latest one wrong, until it is filled again.
    append(root, record(7)).unwrap();
    assert!(fixture.failure().starts_with("README.md:1: claim latest"));
    fill_claims(root).unwrap();
    assert!(
        fs::read_to_string(root.join("README.md"))
            .unwrap()
            .contains("49.5 ns")
    );
    fs::write(root.join("docs/deep/page.md"), "It does 5 req/s.\n").unwrap();
    assert!(fixture.failure().starts_with("docs/deep/page.md:1:"));
}

#[test]
fn what_is_struck_through_is_not_claimed() {
    let fixture = Fixture::with_records(2);
    let root = fixture.root();
    let newest = record(1);
    let pinned = claim(
        &format!("{}:router/lookup:verdict", newest.file_name()),
        "PASS",
    );
    fs::write(root.join("README.md"), format!("{pinned}\n")).unwrap();
    verify(root).unwrap();
    supersede(root, vec![struck(&newest, "router/router_lookup")]).unwrap();
    let failure = fixture.failure();
    assert!(
        failure.contains("superseded, harness_bug: the clock"),
        "{failure}"
    );
    assert!(matches!(fill_claims(root), Err(Error::Ledger(_))));
    // The latest that may be claimed is then the one before.
    let latest = claim("latest:router/router_lookup:ns_per_op", "?");
    fs::write(root.join("README.md"), latest).unwrap();
    fill_claims(root).unwrap();
    assert!(
        fs::read_to_string(root.join("README.md"))
            .unwrap()
            .contains(">42.5 ns<")
    );
}

#[test]
fn a_first_part_that_is_out_of_date_is_found_and_rendered_anew() {
    let fixture = Fixture::with_records(2);
    let good = fixture.text();
    fixture.edit_document(|text| text.replacen("2 runs", "1 run", 1));
    assert!(fixture.failure().starts_with("BENCHMARKS.md:"));
    assert_eq!(
        fill_claims(fixture.root()).unwrap().changed,
        ["BENCHMARKS.md"]
    );
    assert_eq!(fixture.text(), good);
    // A changed row is no matter of the first part.
    fixture.edit_document(|text| text.replacen("42.5", "41.5", 1));
    assert!(fill_claims(fixture.root()).is_err());
}
