//! Performance claims in prose: each quotes a record, and none stands without one.
//!
//! A claim is `<!-- claim:RECORD:ROW:METRIC -->text<!-- /claim -->`, RECORD the file name with or
//! without `.json`, or `latest` for the newest run that may be claimed. Outside of claims a number
//! in front of a unit of throughput or of "x faster" is an error, and so is a claim on a row that is
//! invalid or superseded, or on a record of an unknown or dirty tree.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::append::{replace, write_document};
use super::chain::{Chain, LedgerFiles};
use super::{BENCHMARKS, Record, VerifyFailure, render};
use crate::Error;

/// The documents whose claims are checked: this file, and those with `.md` below this folder.
const README: &str = "README.md";
const DOCS: &str = "docs";

/// The record that a claim names when it means whichever is newest.
const LATEST: &str = "latest";

const OPEN: &str = "<!-- claim:";
const OPEN_END: &str = " -->";
const CLOSE: &str = "<!-- /claim -->";

/// What makes the number before it a performance number, in lower case.
const UNITS: [&str; 8] = [
    "req/s",
    "rps",
    "requests/s",
    "tok/s",
    "mb/s",
    "gb/s",
    "x faster",
    "× faster",
];

/// What filling the marked places changed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Claimed {
    /// Claims in all documents.
    pub num_claims: usize,
    /// Documents that were written, relative to the root.
    pub changed: Vec<String>,
}

/// Fills the marked places of the documents below `root` from the records, and renders the first
/// part of `BENCHMARKS.md` anew.
///
/// # Errors
///
/// A ledger whose records or sections do not verify, and a claim that may not be made.
pub fn fill_claims(root: &Path) -> Result<Claimed, Error> {
    let files = LedgerFiles::read(root)?;
    let chain = files.check_sections()?;
    let mut claimed = Claimed {
        num_claims: 0,
        changed: Vec::new(),
    };
    let document = chain.document();
    let found = files.benchmarks.as_deref().unwrap_or_default();
    if chain.len() > 0 && document.as_bytes() != found {
        write_document(root, &document)?;
        claimed.changed.push(BENCHMARKS.to_owned());
    }
    for (file, text) in documents(root)? {
        let read = read(&file, &text, &chain)?;
        check_unclaimed(&file, &read.outside)?;
        claimed.num_claims += read.num_claims;
        if read.filled != text {
            replace(&root.join(&file), read.filled.as_bytes())?;
            claimed.changed.push(file);
        }
    }
    Ok(claimed)
}

/// Checks the documents below `root` and returns the number of claims in them.
pub(super) fn check_all(root: &Path, chain: &Chain) -> Result<usize, VerifyFailure> {
    let mut num_claims = 0;
    for (file, text) in documents(root)? {
        num_claims += check(&file, &text, chain)?;
    }
    Ok(num_claims)
}

/// Checks a document and returns the number of claims in it.
fn check(file: &str, text: &str, chain: &Chain) -> Result<usize, VerifyFailure> {
    let read = read(file, text, chain)?;
    if let Some(failure) = read.wrong {
        return Err(failure);
    }
    check_unclaimed(file, &read.outside)?;
    Ok(read.num_claims)
}

/// The documents that are there, by name relative to the root, in order.
fn documents(root: &Path) -> Result<Vec<(String, String)>, VerifyFailure> {
    let mut paths = vec![root.join(README)];
    let mut folders = vec![root.join(DOCS)];
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(source) => return Err(unreadable(folder, source)),
        };
        for entry in entries {
            let path = match entry {
                Ok(entry) => entry.path(),
                Err(source) => return Err(unreadable(folder, source)),
            };
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                paths.push(path);
            }
        }
    }
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        let name = path.strip_prefix(root).unwrap_or(&path);
        let name = name.to_string_lossy().into_owned();
        match fs::read_to_string(&path) {
            Ok(text) => found.push((name, text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(unreadable(path, source)),
        }
    }
    Ok(found)
}

fn unreadable(path: PathBuf, source: io::Error) -> VerifyFailure {
    VerifyFailure::Unreadable { path, source }
}

/// A document as it was read.
struct Reading {
    num_claims: usize,
    /// The text with every claim as its record has it.
    filled: String,
    /// What is not in a claim, on its own lines.
    outside: String,
    /// The first claim that says something else than its record.
    wrong: Option<VerifyFailure>,
}

fn read(file: &str, text: &str, chain: &Chain) -> Result<Reading, VerifyFailure> {
    let mut reading = Reading {
        num_claims: 0,
        filled: String::with_capacity(text.len()),
        outside: String::with_capacity(text.len()),
        wrong: None,
    };
    let mut rest = text;
    while let Some(start) = rest.find(OPEN) {
        let line = line_of(text, text.len() - rest.len() + start);
        reading.outside.push_str(&rest[..start]);
        let claim = &rest[start + OPEN.len()..];
        let failure = |claim: &str, problem: String| VerifyFailure::Claim {
            file: file.to_owned(),
            line,
            claim: claim.to_owned(),
            problem,
        };
        let malformed = || {
            let head: String = claim.chars().take(60).collect();
            failure(&head, String::from("the marker is not closed"))
        };
        let (reference, after) = claim.split_once(OPEN_END).ok_or_else(malformed)?;
        let (quoted, after) = after.split_once(CLOSE).ok_or_else(malformed)?;
        let expected =
            claim_text(chain, reference).map_err(|problem| failure(reference, problem))?;
        if expected != quoted && reading.wrong.is_none() {
            let problem = format!("the record says {expected:?}, the text {quoted:?}");
            reading.wrong = Some(failure(reference, problem));
        }
        reading.filled.push_str(&rest[..start]);
        let marked = [OPEN, reference, OPEN_END, &expected, CLOSE];
        for part in marked {
            reading.filled.push_str(part);
        }
        // Keeps line numbers right, and the words on both sides apart.
        let marked = &rest[start..rest.len() - after.len()];
        reading
            .outside
            .extend(marked.chars().filter(|c| *c == '\n'));
        reading.outside.push('\u{0}');
        reading.num_claims += 1;
        rest = after;
    }
    reading.outside.push_str(rest);
    reading.filled.push_str(rest);
    Ok(reading)
}

/// What the marked place of a reference must hold.
fn claim_text(chain: &Chain, reference: &str) -> Result<String, String> {
    let mut parts = reference.splitn(3, ':');
    let (Some(name), Some(row), Some(metric)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(String::from("expected RECORD:ROW:METRIC"));
    };
    if name == LATEST {
        let mut newest = chain.runs().rev();
        return newest
            .find_map(|(file, record)| quote(chain, file, record, row, metric).ok())
            .ok_or_else(|| String::from("no record has such a row that may be claimed"));
    }
    let (file, record) = chain.record(name).ok_or("no such record")?;
    quote(chain, file, record, row, metric)
}

fn quote(
    chain: &Chain,
    file: &str,
    record: &Record,
    row: &str,
    metric: &str,
) -> Result<String, String> {
    if record.source.commit.is_none() || record.source.dirty != Some(false) {
        return Err(String::from("the record is not of a clean commit"));
    }
    if let Some(reason) = invalid_row(record, row) {
        return Err(format!("the row is invalid: {reason}"));
    }
    if let Some(struck) = chain.marks(file).item(record, row) {
        let reason = struck.reason.name();
        return Err(format!("the row is superseded, {reason}: {}", struck.note));
    }
    render::claim(record, row, metric).ok_or_else(|| String::from("no such row or metric"))
}

fn invalid_row<'a>(record: &'a Record, row: &str) -> Option<&'a str> {
    record
        .cells
        .iter()
        .flat_map(|cell| &cell.rows)
        .find(|found| found.id == row)
        .and_then(|found| found.invalid.as_deref())
}

fn check_unclaimed(file: &str, text: &str) -> Result<(), VerifyFailure> {
    let lower = text.to_ascii_lowercase();
    for unit in UNITS {
        for (index, _) in lower.match_indices(unit) {
            if let Some(start) = number_before(&lower, index) {
                return Err(VerifyFailure::Unclaimed {
                    file: file.to_owned(),
                    line: line_of(text, start),
                    text: text[start..index + unit.len()].to_owned(),
                });
            }
        }
    }
    Ok(())
}

/// Start of the number that ends right before `end`: digits, maybe with a k or M, maybe spaced.
fn number_before(lower: &str, end: usize) -> Option<usize> {
    let head =
        lower[..end].trim_end_matches([' ', '\t', '\n', '\r', '\u{a0}', '\u{202f}', '*', '`']);
    let head = head.trim_end_matches(['k', 'm', '+']).trim_end_matches(' ');
    let start = head
        .trim_end_matches(|c: char| c.is_ascii_digit() || ",._".contains(c))
        .len();
    head[start..]
        .ends_with(|c: char| c.is_ascii_digit())
        .then_some(start)
}

fn line_of(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unclaimed(text: &str) -> Option<String> {
        match check("README.md", text, &Chain::default()) {
            Ok(_) => None,
            Err(VerifyFailure::Unclaimed { text, .. }) => Some(text),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn performance_numbers_need_a_claim() {
        for text in [
            "we do 1,200,000 req/s today",
            "724k RPS",
            "1.2M requests/s",
            "**35** tok/s",
            "3.5 GB/s of files",
            "it is 1.5x faster",
            "it is 3 × faster",
            "90\nreq/s",
            "5 requests/sec",
        ] {
            assert!(unclaimed(text).is_some(), "{text}");
        }
    }

    #[test]
    fn other_numbers_are_free() {
        for text in [
            "HTTP/1.1 on port 8000",
            "measured in req/s",
            "python 3.12 is faster",
            "the 6 corps",
            "limits are 100 MB",
        ] {
            assert_eq!(unclaimed(text), None, "{text}");
        }
    }

    #[test]
    fn an_open_marker_is_an_error() {
        let found = check("README.md", "a\n<!-- claim:x:y:z -->1", &Chain::default());
        assert!(matches!(found, Err(VerifyFailure::Claim { line: 2, .. })));
    }
}
