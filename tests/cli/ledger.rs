//! The commands on the ledger, on a copy of the ledger of this workspace: whatever is changed in
//! it, `justapi bench verify` exits with 6 and names the place.

use std::fs;
use std::path::{Path, PathBuf};

use crate::binary::{Folder, Run};

const BENCHMARKS: &str = "BENCHMARKS.md";
const RESULTS: &str = "benches/results";

/// A copy of the ledger, without charts, in a folder of its own.
fn ledger() -> Folder {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut folder = Folder::new();
    let text = fs::read_to_string(workspace.join(BENCHMARKS)).unwrap();
    folder = folder.with(BENCHMARKS, &text);
    for entry in fs::read_dir(workspace.join(RESULTS)).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let text = fs::read_to_string(&path).unwrap();
            folder = folder.with(&format!("{RESULTS}/{name}"), &text);
        }
    }
    folder
}

/// The records of a ledger, oldest first.
fn records(folder: &Folder) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder.path().join(RESULTS))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    paths.sort();
    paths
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

fn commit(folder: &Folder) {
    let git = |arguments: &[&str]| {
        let settings = ["-c", "user.name=t", "-c", "user.email=t@example.com"];
        let all = [&settings[..], arguments].concat();
        let output = folder.program("git", &all).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    git(&["init", "--quiet"]);
    git(&["add", "--all"]);
    git(&["commit", "--quiet", "--message", "x"]);
}

/// Edits `file`, expects `verify` to name `place`, and restores it.
#[track_caller]
fn check(folder: &Folder, file: &str, edit: impl Fn(&str) -> String, place: &str) {
    let path = folder.path().join(file);
    let text = fs::read_to_string(&path).unwrap();
    let edited = edit(&text);
    assert_ne!(edited, text);
    fs::write(&path, edited).unwrap();
    let run = folder.run("bench verify").expect(6);
    assert!(run.stderr.contains("error[JA804]"), "{run:?}");
    assert!(run.stderr.contains(place), "no {place} in {run:?}");
    fs::write(&path, text).unwrap();
}

/// A row of the table in the middle of the document, with its line number.
fn a_row(folder: &Folder) -> (usize, String) {
    let text = fs::read_to_string(folder.path().join(BENCHMARKS)).unwrap();
    let rows: Vec<(usize, &str)> = (text.lines().enumerate())
        .filter(|(_, line)| line.starts_with("| hello/"))
        .filter(|(_, line)| line.ends_with("| ok |"))
        .collect();
    let (index, row) = rows[rows.len() / 2];
    (index + 1, row.to_owned())
}

#[test]
fn the_ledger_verifies() {
    let run = Folder::new().run("bench verify").expect(0);
    assert!(run.stdout.contains("0 records"), "{run:?}");
    let folder = ledger();
    let num_records = records(&folder).len();
    let run = folder.run("bench verify").expect(0);
    assert!(
        run.stdout.contains(&format!("{num_records} records")),
        "{run:?}"
    );
    let json = folder.run("bench verify --json").expect(0).json();
    assert_eq!(json["records"], num_records);
    assert_eq!(json["superseded"], 0);
}

#[test]
fn a_changed_document_is_named_with_its_line() {
    let folder = ledger();
    let (line, row) = a_row(&folder);
    let place = format!("{BENCHMARKS}:{line}:");
    let whole = format!("{row}\n");
    let document = |edit: &dyn Fn(&str) -> String, place: &str| {
        check(&folder, BENCHMARKS, edit, place);
    };
    // A line is deleted.
    document(&|text| text.replacen(&whole, "", 1), &place);
    // A digit is edited.
    let digit = row.find(|c: char| c.is_ascii_digit() && c != '6').unwrap();
    let mut other = row.clone();
    let was = other.remove(digit);
    other.insert(digit, if was == '1' { '2' } else { '1' });
    document(&|text| text.replacen(&row, &other, 1), &place);
    // A row is inserted.
    let forged = format!("| hello/forged | 6 | 999,999 |\n{whole}");
    document(&|text| text.replacen(&whole, &forged, 1), &place);
    // Two lines are swapped.
    let swap = |text: &str| {
        let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
        lines.swap(line - 1, line);
        lines.concat()
    };
    document(&swap, &place);
    // The last line end is cut off, or the last line.
    let num_lines = fs::read_to_string(folder.path().join(BENCHMARKS))
        .unwrap()
        .lines()
        .count();
    let end = format!("{BENCHMARKS}:{num_lines}: the file ends at byte");
    document(&|text| text.trim_end().to_owned(), &end);
    let last = format!("{BENCHMARKS}:{num_lines}:");
    document(
        &|text| text.trim_end().rsplit_once('\n').unwrap().0.to_owned() + "\n",
        &last,
    );
    // The first part is a summary, and held to what it sums up.
    document(
        &|text| text.replacen("Benchmark", "Benchmarks", 1),
        "BENCHMARKS.md:1:",
    );
    document(&|_| String::from("| forged | 1 |\n"), "BENCHMARKS.md:1:");
}

#[test]
fn a_changed_record_is_named() {
    let folder = ledger();
    for path in records(&folder) {
        let file = format!("{RESULTS}/{}", name(&path));
        let place = format!("{file}: sha256 is");
        // A byte in its middle, its last line end, a line more.
        let middle = |text: &str| {
            let mut bytes = text.as_bytes().to_vec();
            let at = bytes.len() / 2
                + bytes[bytes.len() / 2..]
                    .iter()
                    .position(u8::is_ascii_digit)
                    .unwrap();
            bytes[at] = if bytes[at] == b'1' { b'2' } else { b'1' };
            String::from_utf8(bytes).unwrap()
        };
        check(&folder, &file, middle, &place);
        check(&folder, &file, |text| text.trim_end().to_owned(), &place);
        check(&folder, &file, |text| format!("{text}\n"), &place);
        // The whole file.
        let text = fs::read_to_string(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let run = folder.run("bench verify").expect(6);
        assert!(run.stderr.contains(&format!("{file}: missing")), "{run:?}");
        fs::write(&path, text).unwrap();
    }
    // One more.
    let copy = folder
        .path()
        .join(RESULTS)
        .join("20991231T000000Z-00000000.json");
    fs::copy(&records(&folder)[0], &copy).unwrap();
    let run = folder.run("bench verify").expect(6);
    assert!(
        run.stderr.contains("20991231T000000Z-00000000.json"),
        "{run:?}"
    );
}

#[test]
fn what_git_remembers_cannot_be_hidden() {
    let folder = ledger();
    commit(&folder);
    let run = folder.run("bench verify").expect(0);
    assert!(run.stdout.contains("whole git history checked"), "{run:?}");
    // The newest run goes, with its section, and what sums it up is rendered anew.
    let last = records(&folder).pop().unwrap();
    fs::remove_file(&last).unwrap();
    let path = folder.path().join(BENCHMARKS);
    let text = fs::read_to_string(&path).unwrap();
    let start = text.find(&format!("\n## {} ", name(&last))).unwrap();
    fs::write(&path, &text[..start]).unwrap();
    folder.run("bench claims").expect(0);
    let run = folder.run("bench verify").expect(6);
    let place = "BENCHMARKS.md: the committed text is not a prefix";
    assert!(run.stderr.contains(place), "{run:?}");
    assert!(run.stderr.contains("(commit "), "{run:?}");
}

/// A record whose every row has a control: start and look-ups have none, and can be decided.
const OF_CONTROLS: &str = "20261130T174951Z-50c7a2c0.json";

/// A record with a row that is valid, and that row.
fn a_record(folder: &Folder) -> (String, String) {
    let of_a_server = |path: &PathBuf| {
        let record: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        let row = &record["cells"][0]["rows"][0];
        row["metrics"]["cpu_us_per_request"].as_object()?;
        Some((name(path), row["id"].as_str().unwrap().to_owned()))
    };
    // Model servers are measured by their clients alone.
    records(folder).iter().rev().find_map(of_a_server).unwrap()
}

fn supersede(folder: &Folder, record: &str, item: &str) -> Run {
    let run = folder
        .program(
            crate::binary::JUSTAPI,
            &[
                "bench",
                "supersede",
                record,
                item,
                "--reason",
                "fixture_changed",
                "--note",
                "another program ran meanwhile",
            ],
        )
        .output()
        .unwrap();
    Run::of(&run)
}

#[test]
fn a_row_is_struck_through_and_stays() {
    let folder = ledger();
    commit(&folder);
    let (record, row) = a_record(&folder);
    supersede(&folder, &record, &row).expect(0);
    let text = fs::read_to_string(folder.path().join(BENCHMARKS)).unwrap();
    let struck = text
        .lines()
        .find(|line| line.starts_with(&format!("| ~~{row}~~")));
    let reason = "superseded, fixture_changed: another program ran meanwhile |";
    assert!(struck.unwrap().ends_with(reason), "{text}");
    let json = folder.run("bench verify --json").expect(0).json();
    assert_eq!(
        (&json["superseded"], &json["ok"]),
        (&1.into(), &true.into())
    );
    // Twice is once too often, and so is what is not there.
    let run = supersede(&folder, &record, &row).expect(1);
    assert!(run.stderr.contains("struck through already"), "{run:?}");
    let run = supersede(&folder, &record, "no/row").expect(1);
    assert!(run.stderr.contains("error[JA801]"), "{run:?}");
    // It cannot be taken back.
    check(
        &folder,
        BENCHMARKS,
        |text| text.replace("~~", ""),
        "BENCHMARKS.md:",
    );
}

#[test]
fn claims_are_filled_and_charts_drawn() {
    let folder = ledger();
    let (record, row) = a_record(&folder);
    let readme =
        format!("It costs <!-- claim:{record}:{row}:cpu_us_per_request -->?<!-- /claim -->.\n");
    let folder = folder.with("README.md", &readme);
    let run = folder.run("bench verify").expect(6);
    assert!(run.stderr.contains("README.md:1: claim"), "{run:?}");
    assert!(run.stderr.contains("justapi bench claims"), "{run:?}");
    let json = folder.run("bench claims --json").expect(0).json();
    let changed = json["changed"].as_array().unwrap();
    assert!(changed.contains(&"README.md".into()), "{json}");
    assert_eq!(json["claims"], 1);
    folder.run("bench verify").expect(0);

    let run = folder.run(&format!("bench charts {record}")).expect(0);
    let first = run.stdout.lines().next().unwrap().to_owned();
    assert!(first.contains("/charts/"), "{run:?}");
    assert!(
        folder
            .run("bench charts")
            .expect(0)
            .stdout
            .contains("charts,")
    );
    let again = folder.run("bench charts --json").expect(0).json();
    assert_eq!(again["written"], 0);
    let json = folder.run("bench verify --json").expect(0).json();
    assert_eq!(json["charts"], again["charts"].as_array().unwrap().len());
    check(
        &folder,
        &first,
        |svg| svg.replacen("width", "height", 1),
        &first,
    );
    folder.run("bench charts nothing").expect(1);

    folder.run("bench report --out page.html").expect(0);
    let page = fs::read_to_string(folder.path().join("page.html")).unwrap();
    assert!(
        page.contains("<svg") && page.contains(&record),
        "{}",
        page.len()
    );
}

#[test]
fn two_runs_are_compared_by_rule() {
    let report = |rate: f64| {
        format!(
            "{{\"connections\":4,\"rate\":{rate},\"outcomes\":{{\"ok\":9}},\
             \"latency\":{{\"p50_ns\":{},\"p99_ns\":{}}}}}\n",
            1e9 / rate,
            3e9 / rate
        )
    };
    let series = |rate: f64| {
        (0..6)
            .map(|i| report(rate + f64::from(i)))
            .collect::<String>()
    };
    let folder = Folder::new()
        .with("fast.json", &series(1000.0))
        .with("slow.json", &series(800.0))
        .with("one.json", &report(1000.0))
        .with("offered.json", "{\"offered_rate\":1000,\"rate\":990}")
        .with("text.json", "no JSON");
    folder.run("bench compare slow.json fast.json").expect(0);
    let run = folder.run("bench compare fast.json slow.json").expect(2);
    assert!(run.stdout.contains("FAIL"), "{run:?}");
    folder
        .run("bench compare fast.json slow.json --margin 0.5")
        .expect(0);
    let json = folder
        .run("bench compare one.json one.json --json")
        .expect(3)
        .json();
    assert_eq!(json["lines"][0]["verdict"], "INCONCLUSIVE");
    folder.run("bench compare fast.json text.json").expect(1);
    folder.run("bench compare fast.json nothing").expect(1);
    folder
        .run("bench compare fast.json slow.json --margin 5")
        .expect(1);
    folder
        .run("bench charts --reports offered.json --out o.svg")
        .expect(0);
    assert!(
        fs::read_to_string(folder.path().join("o.svg"))
            .unwrap()
            .starts_with("<svg")
    );
    folder
        .run("bench charts --reports fast.json --out o.svg")
        .expect(1);

    // A record with itself: every arm is its own control, and decides nothing.
    let folder = ledger();
    let record = OF_CONTROLS;
    let run = folder
        .run(&format!("bench compare {record} {record}"))
        .expect(3);
    assert!(run.stdout.contains("control"), "{run:?}");
    let path = folder.path().join(RESULTS).join(record);
    let path = path.to_string_lossy();
    folder
        .run(&format!("bench compare {record} {path}"))
        .expect(3);
    let run = folder
        .run(&format!("bench compare {record} {RESULTS}"))
        .expect(1);
    assert!(run.stderr.contains("error[JA801]"), "{run:?}");
}
