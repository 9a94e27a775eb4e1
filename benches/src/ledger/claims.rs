//! Performance claims in prose: each quotes a record, and none stands without one.
//!
//! A claim is `<!-- claim:RECORD:ROW:METRIC -->text<!-- /claim -->`, RECORD the file name with or
//! without `.json`. Outside of claims a number in front of a unit of throughput or of "x faster"
//! is an error, and so is a claim on an invalid row or on a record of an unknown or dirty tree.

use super::chain::Chain;
use super::{Record, VerifyFailure, render};

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

/// Checks a document and returns the number of claims in it.
pub(super) fn check(file: &str, text: &str, chain: &Chain) -> Result<usize, VerifyFailure> {
    let mut num_claims = 0;
    let mut outside = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(OPEN) {
        let line = line_of(text, text.len() - rest.len() + start);
        outside.push_str(&rest[..start]);
        let claim = &rest[start + OPEN.len()..];
        let malformed = || VerifyFailure::Claim {
            file: file.to_owned(),
            line,
            claim: claim.chars().take(60).collect(),
            problem: String::from("the marker is not closed"),
        };
        let (reference, after) = claim.split_once(OPEN_END).ok_or_else(malformed)?;
        let (quoted, after) = after.split_once(CLOSE).ok_or_else(malformed)?;
        check_claim(chain, reference, quoted).map_err(|problem| VerifyFailure::Claim {
            file: file.to_owned(),
            line,
            claim: reference.to_owned(),
            problem,
        })?;
        // Keeps line numbers right, and the words on both sides apart.
        outside.extend(
            rest[start..rest.len() - after.len()]
                .chars()
                .filter(|c| *c == '\n'),
        );
        outside.push('\u{0}');
        num_claims += 1;
        rest = after;
    }
    outside.push_str(rest);
    check_unclaimed(file, &outside)?;
    Ok(num_claims)
}

fn check_claim(chain: &Chain, reference: &str, quoted: &str) -> Result<(), String> {
    let mut parts = reference.splitn(3, ':');
    let (Some(file), Some(row), Some(metric)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(String::from("expected RECORD:ROW:METRIC"));
    };
    let (_, record) = (chain.links.iter())
        .find(|(link, _)| link.file == file || link.file.strip_suffix(".json") == Some(file))
        .ok_or("no such record")?;
    if record.source.commit.is_none() || record.source.dirty != Some(false) {
        return Err(String::from("the record is not of a clean commit"));
    }
    if let Some(reason) = invalid_row(record, row) {
        return Err(format!("the row is invalid: {reason}"));
    }
    let expected = render::claim(record, row, metric).ok_or("no such row or metric")?;
    if expected == quoted {
        Ok(())
    } else {
        Err(format!("the record says {expected:?}, the text {quoted:?}"))
    }
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
