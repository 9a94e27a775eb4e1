//! The ledger through its real writer: what is appended verifies, what is touched does not.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;
use crate::Error;
use crate::machine::{Machine, Reading};

/// A temporary ledger.
pub(super) struct Fixture {
    folder: tempfile::TempDir,
}

impl Fixture {
    pub(super) fn with_records(count: u32) -> Self {
        let fixture = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        for number in 0..count {
            append(fixture.root(), record(number)).unwrap();
        }
        fixture
    }

    pub(super) fn root(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn document(&self) -> PathBuf {
        self.root().join(BENCHMARKS)
    }

    pub(super) fn records(&self) -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> = fs::read_dir(self.root().join(RESULTS))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        paths.sort();
        paths
    }

    pub(super) fn edit_document(&self, edit: impl FnOnce(&str) -> String) {
        let text = fs::read_to_string(self.document()).unwrap();
        let edited = edit(&text);
        assert_ne!(text, edited);
        fs::write(self.document(), edited).unwrap();
    }

    /// Verifies and returns what is said against the ledger.
    pub(super) fn failure(&self) -> String {
        verify(self.root()).unwrap_err().to_string()
    }

    pub(super) fn git(&self, arguments: &[&str]) {
        let output = Command::new("git")
            .arg("-C")
            .arg(self.root())
            .args(["-c", "user.name=t", "-c", "user.email=t@example.com"])
            .args([
                "-c",
                "commit.gpgsign=false",
                "-c",
                "init.defaultBranch=main",
            ])
            .args(arguments)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    pub(super) fn commit(&self) {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--message", "x"]);
    }

    pub(super) fn committed(count: u32) -> Self {
        let fixture = Self::with_records(0);
        fixture.git(&["init", "--quiet"]);
        for number in 0..count {
            append(fixture.root(), record(number)).unwrap();
            fixture.commit();
        }
        fixture
    }
}

pub(super) fn decimal(value: f64) -> Decimal {
    Decimal::new(value).unwrap()
}

fn cell(number: u32) -> CellRecord {
    let rounds = (0..6).map(|round| RoundRecord {
        round,
        label: String::from("router_lookup"),
        ns_per_op: Some(decimal(40.0 + f64::from(round) + f64::from(number))),
        ..RoundRecord::default()
    });
    let mut cell = CellRecord {
        id: String::from("router"),
        kind: CellKind::Micro,
        workload: None,
        connections: 1,
        offered_rate: None,
        background: None,
        reload: None,
        num_rounds: 6,
        warm_up_ms: 0,
        measure_ms: 0,
        arms: vec![ArmRecord {
            label: String::from("router_lookup"),
            program: String::from("in-process"),
            command: Vec::new(),
            tls: false,
            same_as: None,
            workload: None,
            engagement: None,
            counters: Vec::new(),
            client: None,
        }],
        targets: vec![Target {
            id: String::from("lookup"),
            metric: Metric::NsPerOp,
            label: String::from("router_lookup"),
            versus: None,
            less: None,
            bound: Bound::AtMost,
            limit: decimal(60.0),
            margin: decimal(0.0),
        }],
        rules_edition: 1,
        failed_before: std::collections::BTreeMap::new(),
        serving: None,
        rounds: rounds.collect(),
        rows: Vec::new(),
        verdicts: Vec::new(),
    };
    crate::matrix::judge(&mut cell, 7);
    cell
}

pub(super) fn record(number: u32) -> Record {
    Record {
        schema_version: SCHEMA_VERSION,
        id: format!("{number:08x}"),
        recorded_utc: format!("2026-11-29T14:49:{number:02}Z"),
        recorded_by: String::from("test"),
        previous: None,
        machine: Machine(
            [
                ("cpu_model", Reading::known("Test | CPU")),
                ("cpu_governor", Reading::missing("no file")),
            ]
            .map(|(name, fact)| (name.to_owned(), fact))
            .into(),
        ),
        source: Source {
            commit: Some(String::from("0123456789abcdef")),
            dirty: Some(false),
            reason: None,
        },
        programs: [(
            String::from("justapi"),
            Program {
                path: String::from("justapi"),
                sha256: None,
                version: Some(String::from("0.1.0")),
                profile: Some(String::from("release")),
                packages: [(String::from("hyper"), String::from("1.12.0"))].into(),
                reason: None,
                config: None,
            },
        )]
        .into(),
        matrix: Some(FileDigest {
            path: String::from("m.toml"),
            sha256: String::from("00"),
        }),
        seed: 7,
        server_cpu: Some(1),
        client_cpu: Some(0),
        before: None,
        caveats: vec![String::from("a network")],
        cells: vec![cell(number)],
    }
}

#[test]
fn an_empty_ledger_is_in_order() {
    let fixture = Fixture::with_records(0);
    assert_eq!(verify(fixture.root()).unwrap().num_records, 0);
    let empty = standing::first_part(&chain::Chain::default());
    fs::write(fixture.document(), empty).unwrap();
    assert_eq!(verify(fixture.root()).unwrap().num_records, 0);
    fs::write(fixture.document(), "# Benchmarks\n").unwrap();
    assert!(fixture.failure().starts_with("BENCHMARKS.md:1:"));
}

#[test]
fn what_is_appended_verifies() {
    let fixture = Fixture::with_records(3);
    let report = verify(fixture.root()).unwrap();
    assert_eq!((report.num_records, report.num_claims), (3, 0));
    assert!(matches!(report.history, History::Unavailable { .. }));
    let mode = fs::metadata(&fixture.records()[0]).unwrap().permissions();
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777,
        0o644
    );
}

fn section_of(record: Record) -> String {
    let entry = entry::Entry::Run(Box::new(record));
    render::section("f.json", "00", &entry, &strike::Marks::default())
}

/// As the golden text below, for what the second edition of the rules adds.
#[test]
fn the_section_of_a_cell_of_the_second_edition_is_fixed() {
    let mut record = record(0);
    record.cells[0].rules_edition = 2;
    crate::matrix::judge(&mut record.cells[0], 7);
    let text = section_of(record);
    let expected = "
| rule | effect | A/A | p (Holm) | verdict |
|---|---:|---:|---:|---|
| router/lookup: ns_per_op of router_lookup ≤ 60.0 ns | 42.5 [40.0–45.0] | – | 0.0313 | PASS |
";
    assert!(text.contains(expected), "{text}");
}

/// Golden text of the version 1 renderer: it must never change, see `render.rs`.
#[test]
fn the_section_of_a_record_is_fixed() {
    let text = section_of(record(0));
    let expected = "
## f.json sha256:00

2026-11-29T14:49:00Z, commit 0123456789abcdef, clean.
Test ¦ CPU, unknown CPUs, unknown, kernel unknown, virtualised: unknown, governor unknown, load before unknown.
Matrix m.toml sha256:00, seed 7.
- justapi: version 0.1.0, profile release, hyper 1.12.0

### router

| row | rounds | ns_per_op [ns] | state |
|---|---:|---:|---|
| router/router_lookup | 6 | 42.5 [40.0–45.0] | ok |

| rule | effect | A/A | p | verdict |
|---|---:|---:|---:|---|
| router/lookup: ns_per_op of router_lookup ≤ 60.0 ns | 42.5 [40.0–45.0] | – | – | PASS |

What this run does not show:

- a network
";
    assert_eq!(text, expected);
}

#[test]
fn every_flipped_byte_of_a_record_is_found_and_named() {
    let fixture = Fixture::with_records(3);
    for path in fixture.records() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let bytes = fs::read(&path).unwrap();
        for offset in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[offset] ^= 1;
            fs::write(&path, &changed).unwrap();
            let failure = fixture.failure();
            let expected = format!("{RESULTS}/{name}: sha256 is");
            assert!(failure.starts_with(&expected), "byte {offset}: {failure}");
        }
        fs::write(&path, &bytes).unwrap();
    }
    verify(fixture.root()).unwrap();
}

#[test]
fn every_flipped_byte_of_the_document_is_found_and_named() {
    let fixture = Fixture::with_records(3);
    let bytes = fs::read(fixture.document()).unwrap();
    for offset in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[offset] ^= 1;
        fs::write(fixture.document(), &changed).unwrap();
        let failure = fixture.failure();
        assert!(failure.contains(BENCHMARKS), "byte {offset}: {failure}");
    }
}

#[test]
fn every_truncation_of_the_document_is_torn_at_its_offset() {
    let fixture = Fixture::with_records(2);
    let bytes = fs::read(fixture.document()).unwrap();
    for length in (1..bytes.len()).step_by(7).chain([bytes.len() - 1]) {
        fs::write(fixture.document(), &bytes[..length]).unwrap();
        let failure = verify(fixture.root()).unwrap_err();
        assert!(
            matches!(failure, VerifyFailure::TornTail { offset, .. } if offset == length)
                || failure.to_string().contains(BENCHMARKS),
            "length {length}: {failure}"
        );
        let refused = append(fixture.root(), record(9));
        assert!(matches!(refused, Err(Error::Ledger(_))), "length {length}");
        assert_eq!(fs::read(fixture.document()).unwrap(), bytes[..length]);
        assert_eq!(fixture.records().len(), 2);
    }
}

#[test]
fn a_missing_line_end_is_a_torn_tail() {
    let fixture = Fixture::with_records(2);
    fixture.edit_document(|text| text.trim_end().to_owned());
    let length = fs::metadata(fixture.document()).unwrap().len();
    assert!(
        fixture
            .failure()
            .contains(&format!("ends at byte {length}"))
    );
}

#[test]
fn a_deleted_record_is_found() {
    for index in 0..3 {
        let fixture = Fixture::with_records(3);
        let path = &fixture.records()[index];
        fs::remove_file(path).unwrap();
        let name = path.file_name().unwrap().to_string_lossy();
        let failure = fixture.failure();
        assert!(
            failure.starts_with(&format!("{RESULTS}/{name}: missing")),
            "{failure}"
        );
    }
}

#[test]
fn a_record_without_its_section_is_found() {
    let fixture = Fixture::with_records(3);
    fixture.edit_document(|text| text[..text.rfind("\n## ").unwrap()].to_owned());
    assert!(
        fixture.failure().starts_with("BENCHMARKS.md:"),
        "{}",
        fixture.failure()
    );
}

#[test]
fn swapped_sections_are_found() {
    let fixture = Fixture::with_records(3);
    fixture.edit_document(|text| {
        let starts: Vec<usize> = text
            .match_indices("\n## 2026")
            .map(|(index, _)| index)
            .collect();
        let [first, second, third] = starts[..] else {
            panic!()
        };
        [
            &text[..first],
            &text[second..third],
            &text[first..second],
            &text[third..],
        ]
        .concat()
    });
    assert!(fixture.failure().starts_with("BENCHMARKS.md:"));
}

#[test]
fn an_inserted_row_is_found_at_its_line() {
    let fixture = Fixture::with_records(3);
    let row = "| router/router_lookup | 6 |";
    let text = fs::read_to_string(fixture.document()).unwrap();
    let line = text[..text.find(row).unwrap()].matches('\n').count() + 1;
    fixture.edit_document(|text| text.replacen(row, &format!("| x | 1 |\n{row}"), 1));
    assert!(
        fixture
            .failure()
            .starts_with(&format!("BENCHMARKS.md:{line}:"))
    );
}

#[test]
fn an_extra_record_is_found() {
    let fixture = Fixture::with_records(2);
    let other = Fixture::with_records(0);
    let appended = append(other.root(), record(5)).unwrap();
    let name = appended.path.file_name().unwrap();
    fs::copy(&appended.path, fixture.root().join(RESULTS).join(name)).unwrap();
    let failure = fixture.failure();
    assert!(failure.contains("has no previous record"), "{failure}");
}

#[test]
fn a_forked_chain_is_found() {
    let fixture = Fixture::with_records(1);
    let branch = tempfile::tempdir().unwrap();
    fs::create_dir_all(branch.path().join(RESULTS)).unwrap();
    for path in fixture.records() {
        fs::copy(
            &path,
            branch.path().join(RESULTS).join(path.file_name().unwrap()),
        )
        .unwrap();
    }
    fs::copy(fixture.document(), branch.path().join(BENCHMARKS)).unwrap();
    let other = append(branch.path(), record(1)).unwrap();
    append(fixture.root(), record(2)).unwrap();
    let name = other.path.file_name().unwrap();
    fs::copy(&other.path, fixture.root().join(RESULTS).join(name)).unwrap();
    assert!(
        fixture.failure().contains("follows"),
        "{}",
        fixture.failure()
    );
}

#[test]
fn a_conclusion_that_does_not_follow_is_found() {
    let fixture = Fixture::with_records(0);
    let mut dishonest = record(0);
    dishonest.cells[0].verdicts[0].verdict = Verdict::Fail;
    append(fixture.root(), dishonest).unwrap();
    assert!(
        fixture
            .failure()
            .ends_with("router does not follow from the recorded rounds")
    );
}

#[test]
fn debug_builds_are_refused() {
    let fixture = Fixture::with_records(0);
    let mut debug = record(0);
    debug.programs.get_mut("justapi").unwrap().profile = Some(String::from("debug"));
    let refused = append(fixture.root(), debug);
    assert!(matches!(refused, Err(Error::NotReleaseBuild { .. })));
    assert!(!fixture.document().exists());
}

#[test]
fn concurrent_writers_extend_one_chain() {
    let fixture = Fixture::with_records(0);
    std::thread::scope(|scope| {
        for number in 0..8 {
            let root = fixture.root();
            scope.spawn(move || append(root, record(number)).unwrap());
        }
    });
    assert_eq!(verify(fixture.root()).unwrap().num_records, 8);
}

#[test]
fn claims_quote_their_record() {
    let fixture = Fixture::with_records(2);
    let file = record(1).file_name();
    let check = |reference: &str, text: &str| {
        let claim = format!("# x\n\nIt takes <!-- claim:{reference} -->{text}<!-- /claim -->.\n");
        fs::write(fixture.root().join("README.md"), claim).unwrap();
        verify(fixture.root())
            .map(|report| report.num_claims)
            .map_err(|error| error.to_string())
    };
    assert_eq!(
        check(&format!("{file}:router/router_lookup:ns_per_op"), "43.5 ns"),
        Ok(1)
    );
    assert_eq!(
        check(&format!("{file}:router/lookup:verdict"), "PASS"),
        Ok(1)
    );
    let stem = file.trim_end_matches(".json");
    assert_eq!(
        check(&format!("{stem}:router/lookup:effect"), "43.5 ns"),
        Ok(1)
    );
    for (reference, text) in [
        (format!("{file}:router/router_lookup:ns_per_op"), "43.4 ns"),
        (format!("{file}:router/router_lookup:rate"), "1"),
        (format!("{file}:router/other:ns_per_op"), "1"),
        (String::from("x.json:router/lookup:verdict"), "PASS"),
        (String::from("x.json"), "PASS"),
    ] {
        let failure = check(&reference, text).unwrap_err();
        assert!(failure.starts_with("README.md:3: claim"), "{failure}");
    }
}

/// A build outside of git, and one of a tree with changes: in the ledger, not in prose.
#[test]
fn an_unknown_commit_or_a_dirty_tree_may_not_be_claimed() {
    let unknown = Source {
        commit: None,
        dirty: None,
        reason: Some(String::from("not a git repository")),
    };
    let dirty = Source {
        dirty: Some(true),
        ..record(0).source
    };
    for (source, shown) in [(unknown, "unknown"), (dirty, "changes")] {
        let fixture = Fixture::with_records(0);
        let unclaimed = Record {
            source,
            ..record(0)
        };
        let file = unclaimed.file_name();
        let section = append(fixture.root(), unclaimed).unwrap().section;
        assert!(section.contains(shown), "{section}");
        assert_eq!(verify(fixture.root()).unwrap().num_records, 1);
        for name in [file.as_str(), "latest"] {
            let claim = format!("<!-- claim:{name}:router/lookup:verdict -->PASS<!-- /claim -->\n");
            fs::write(fixture.root().join("README.md"), claim).unwrap();
            let failure = fixture.failure();
            let is_refused = failure.contains("clean commit") || failure.contains("may be claimed");
            assert!(is_refused, "{failure}");
        }
    }
}

#[test]
fn history_in_order_is_counted() {
    let fixture = Fixture::committed(3);
    let expected = History::Checked {
        num_documents: 3,
        num_records: 3,
    };
    assert_eq!(verify(fixture.root()).unwrap().history, expected);
    // Not committed yet, but a lawful extension.
    append(fixture.root(), record(3)).unwrap();
    assert_eq!(verify(fixture.root()).unwrap().history, expected);
}

#[test]
fn a_last_record_cut_off_with_its_section_is_found_in_history() {
    let fixture = Fixture::committed(3);
    let last = fixture.records().pop().unwrap();
    fs::remove_file(&last).unwrap();
    fixture.edit_document(|text| text[..text.rfind("\n## ").unwrap()].to_owned());
    // What sums up the sections is brought in line, as somebody who hides a run would do.
    assert_eq!(fill_claims(fixture.root()).unwrap().changed, [BENCHMARKS]);
    assert!(
        fixture
            .failure()
            .starts_with("BENCHMARKS.md: the committed text")
    );
    // Committing the cut does not help.
    fixture.commit();
    assert!(
        fixture
            .failure()
            .starts_with("BENCHMARKS.md: the committed text")
    );
}

#[test]
fn a_ledger_written_anew_is_found_in_history() {
    let fixture = Fixture::committed(2);
    fs::remove_dir_all(fixture.root().join(RESULTS)).unwrap();
    fs::remove_file(fixture.document()).unwrap();
    append(fixture.root(), record(7)).unwrap();
    let failure = fixture.failure();
    assert!(failure.contains("(commit "), "{failure}");
}

#[test]
fn a_record_lost_on_a_merged_branch_is_found() {
    let fixture = Fixture::committed(1);
    fixture.git(&["checkout", "--quiet", "-b", "side"]);
    append(fixture.root(), record(1)).unwrap();
    fixture.commit();
    fixture.git(&["checkout", "--quiet", "-"]);
    fixture.git(&[
        "merge",
        "--quiet",
        "--no-ff",
        "--strategy=ours",
        "--message",
        "m",
        "side",
    ]);
    let failure = fixture.failure();
    assert!(
        failure.contains("the committed record is gone"),
        "{failure}"
    );
}

#[test]
fn a_shallow_clone_is_said_to_be_one() {
    let fixture = Fixture::committed(3);
    let clone = tempfile::tempdir().unwrap();
    let url = format!("file://{}", fixture.root().display());
    let target = clone.path().join("c");
    fixture.git(&[
        "clone",
        "--quiet",
        "--depth",
        "1",
        &url,
        &target.to_string_lossy(),
    ]);
    let history = verify(&target).unwrap().history;
    assert!(matches!(history, History::Shallow { .. }), "{history:?}");
}

#[test]
fn a_repository_without_commits_has_no_past() {
    let fixture = Fixture::with_records(0);
    fixture.git(&["init", "--quiet"]);
    append(fixture.root(), record(0)).unwrap();
    let history = verify(fixture.root()).unwrap().history;
    assert!(matches!(history, History::Unavailable { .. }));
}

/// Records that older code wrote keep their bytes, their rows and their verdicts.
#[test]
fn the_ledger_of_this_workspace_verifies() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let report = verify(&root).unwrap();
    let is_record = |path: &PathBuf| path.extension().is_some_and(|end| end == "json");
    let entries = fs::read_dir(root.join(RESULTS)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    assert_eq!(report.num_records, paths.filter(is_record).count());
}
