//! The content check: records, their chain, and the document rendered from them.
//!
//! Works on bytes in memory, so a test can try every single-byte change. When two files disagree,
//! the one that a second witness contradicts is blamed; for the last record there is one witness
//! only, and the failure names both files.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use super::record::SCHEMA_VERSION;
use super::render::{HEADER, parse_heading, section};
use super::{BENCHMARKS, Previous, RESULTS, Record, VerifyFailure, sha256_hex};

/// The files of a ledger.
#[derive(Clone, Debug, Default)]
pub(super) struct LedgerFiles {
    /// Records by file name.
    pub(super) records: BTreeMap<String, Vec<u8>>,
    /// `BENCHMARKS.md`, if there is one.
    pub(super) benchmarks: Option<Vec<u8>>,
}

/// The checked records, oldest first.
#[derive(Debug, Default)]
pub(super) struct Chain {
    /// File name, SHA-256 and content.
    pub(super) links: Vec<(Previous, Record)>,
}

impl LedgerFiles {
    /// Reads the ledger below `root`.
    pub(super) fn read(root: &Path) -> Result<Self, VerifyFailure> {
        let mut files = Self {
            records: BTreeMap::new(),
            benchmarks: read_if_there(&root.join(BENCHMARKS))?,
        };
        let folder = root.join(RESULTS);
        let unreadable = |source| VerifyFailure::Unreadable {
            path: folder.clone(),
            source,
        };
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(files),
            Err(error) => return Err(unreadable(error)),
        };
        for entry in entries {
            let entry = entry.map_err(unreadable)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            // A crash while writing may leave a temporary file, whose name starts with a dot.
            if name.starts_with('.') {
                continue;
            }
            if let Some(bytes) = read_if_there(&entry.path())? {
                files.records.insert(name, bytes);
            }
        }
        Ok(files)
    }

    /// Checks everything that the files alone can show.
    pub(super) fn check(&self) -> Result<Chain, VerifyFailure> {
        let digests: BTreeMap<&str, String> = (self.records.iter())
            .map(|(file, bytes)| (file.as_str(), sha256_hex(bytes)))
            .collect();
        self.check_witnesses(&digests)?;
        let chain = self.link(&digests)?;
        self.check_document(&chain)?;
        check_conclusions(&chain)?;
        Ok(chain)
    }

    /// Compares each record with the digests that the document and its successor hold.
    fn check_witnesses(&self, digests: &BTreeMap<&str, String>) -> Result<(), VerifyFailure> {
        let mut witnesses: Vec<(String, Previous)> = Vec::new();
        let document = String::from_utf8_lossy(self.benchmarks.as_deref().unwrap_or_default());
        for (index, line) in document.lines().enumerate() {
            if let Some((file, sha256)) = parse_heading(line) {
                let link = Previous {
                    file: file.to_owned(),
                    sha256: sha256.to_owned(),
                };
                witnesses.push((format!("{BENCHMARKS} line {}", index + 1), link));
            }
        }
        for (file, bytes) in &self.records {
            if let Ok(Record {
                previous: Some(link),
                ..
            }) = serde_json::from_slice(bytes)
            {
                witnesses.push((path_of(file), link));
            }
        }

        for (file, found) in digests {
            let mut held = witnesses.iter().filter(|(_, link)| link.file == *file);
            let trusted = held.clone().any(|(_, link)| link.sha256 == *found);
            if let (false, Some((witness, link))) = (trusted, held.next()) {
                return Err(VerifyFailure::RecordChanged {
                    file: path_of(file),
                    witness: witness.clone(),
                    expected: link.sha256.clone(),
                    found: found.clone(),
                });
            }
        }
        for (witness, link) in &witnesses {
            if !digests.contains_key(link.file.as_str()) {
                return Err(VerifyFailure::RecordMissing {
                    file: path_of(&link.file),
                    witness: witness.clone(),
                });
            }
        }
        Ok(())
    }

    fn link(&self, digests: &BTreeMap<&str, String>) -> Result<Chain, VerifyFailure> {
        // Successors by the file they name as previous; "" stands for "none".
        let mut successors: BTreeMap<String, (Previous, Record)> = BTreeMap::new();
        for (file, bytes) in &self.records {
            let record = parse(file, bytes)?;
            let key = record
                .previous
                .as_ref()
                .map_or("", |p| p.file.as_str())
                .to_owned();
            let link = Previous {
                file: file.clone(),
                sha256: digests.get(file.as_str()).cloned().unwrap_or_default(),
            };
            if let Some((other, _)) = successors.get(&key) {
                let problem = if key.is_empty() {
                    format!("has no previous record, like {}", other.file)
                } else {
                    format!("follows {key}, like {}", other.file)
                };
                let file = path_of(file);
                return Err(VerifyFailure::Unchained { file, problem });
            }
            successors.insert(key, (link, record));
        }

        let mut chain = Chain::default();
        let mut key = String::new();
        while let Some((link, record)) = successors.remove(&key) {
            if let (Some(held), Some((last, _))) = (&record.previous, chain.links.last())
                && held.sha256 != last.sha256
            {
                return Err(VerifyFailure::RecordChanged {
                    file: path_of(&last.file),
                    witness: path_of(&link.file),
                    expected: held.sha256.clone(),
                    found: last.sha256.clone(),
                });
            }
            key.clone_from(&link.file);
            chain.links.push((link, record));
        }
        if let Some((link, _)) = successors.into_values().next() {
            return Err(VerifyFailure::Unchained {
                file: path_of(&link.file),
                problem: String::from("cannot be reached from the first record"),
            });
        }
        Ok(chain)
    }

    fn check_document(&self, chain: &Chain) -> Result<(), VerifyFailure> {
        let found = self.benchmarks.as_deref().unwrap_or_default();
        if chain.links.is_empty() && found.is_empty() {
            return Ok(());
        }
        let expected = chain.render();
        compare(expected.as_bytes(), found)
    }
}

impl Chain {
    /// Renders the whole document.
    pub(super) fn render(&self) -> String {
        let mut document = String::from(HEADER);
        for (link, record) in &self.links {
            document.push_str(&section(&link.file, &link.sha256, record));
        }
        document
    }

    /// Returns the link that the next record must hold.
    pub(super) fn last(&self) -> Option<Previous> {
        self.links.last().map(|(link, _)| link.clone())
    }
}

/// The bytes of a record file: compact JSON and a line end.
pub(super) fn record_bytes(record: &Record) -> Result<Vec<u8>, serde_json::Error> {
    let mut bytes = serde_json::to_vec(record)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// The path of a record as failures name it.
pub(super) fn path_of(file: &str) -> String {
    format!("{RESULTS}/{file}")
}

fn parse(file: &str, bytes: &[u8]) -> Result<Record, VerifyFailure> {
    let malformed = |problem: String| VerifyFailure::Malformed {
        file: path_of(file),
        problem,
    };
    let record: Record =
        serde_json::from_slice(bytes).map_err(|error| malformed(error.to_string()))?;
    if record.schema_version != SCHEMA_VERSION {
        let found = record.schema_version;
        return Err(malformed(format!("schema version {found} is unknown")));
    }
    // Of all the JSON texts of a record only one is written, so nothing hides beside it.
    let canonical = record_bytes(&record).map_err(|error| malformed(error.to_string()))?;
    if canonical != bytes {
        return Err(malformed(String::from("not in canonical form")));
    }
    if record.file_name() != file {
        let expected = record.file_name();
        return Err(malformed(format!("its content belongs to {expected}")));
    }
    Ok(record)
}

fn check_conclusions(chain: &Chain) -> Result<(), VerifyFailure> {
    for (link, record) in &chain.links {
        for cell in &record.cells {
            let mut judged = cell.clone();
            crate::matrix::judge(&mut judged, record.seed);
            if judged != *cell {
                return Err(VerifyFailure::Conclusion {
                    file: path_of(&link.file),
                    item: cell.id.clone(),
                });
            }
        }
    }
    Ok(())
}

fn compare(expected: &[u8], found: &[u8]) -> Result<(), VerifyFailure> {
    if expected == found {
        return Ok(());
    }
    let offset = expected
        .iter()
        .zip(found)
        .take_while(|(a, b)| a == b)
        .count();
    let line_number = memchr::memchr_iter(b'\n', &expected[..offset]).count() + 1;
    if offset == found.len() {
        return Err(VerifyFailure::TornTail {
            file: BENCHMARKS.to_owned(),
            line: line_number,
            offset,
            expected: expected.len(),
        });
    }
    Err(VerifyFailure::Differs {
        file: BENCHMARKS.to_owned(),
        line: line_number,
        offset,
        expected: line_at(expected, offset),
        found: line_at(found, offset),
    })
}

/// The line around a byte, shortened to what a terminal shows.
fn line_at(bytes: &[u8], offset: usize) -> String {
    const MAX_CHARACTERS: usize = 200;
    let start = bytes[..offset]
        .iter()
        .rposition(|b| *b == b'\n')
        .map_or(0, |i| i + 1);
    let end = (bytes[offset..].iter())
        .position(|b| *b == b'\n')
        .map_or(bytes.len(), |i| offset + i);
    let line = String::from_utf8_lossy(&bytes[start..end]);
    line.chars().take(MAX_CHARACTERS).collect()
}

fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>, VerifyFailure> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(VerifyFailure::Unreadable {
            path: path.to_owned(),
            source,
        }),
    }
}
