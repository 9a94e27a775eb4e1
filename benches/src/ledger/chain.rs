//! The content check: entries, their chain, and the document rendered from them.
//!
//! Works on bytes in memory, so a test can try every single-byte change. When two files disagree,
//! the one that a second witness contradicts is blamed; for the last record there is one witness
//! only, and the failure names both files.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use super::entry::Entry;
use super::recurrence;
use super::render::{self, HEADER_1, parse_heading};
use super::standing;
use super::strike::{self, Marks};
use super::{
    BENCHMARKS, CHARTS_FOLDER, Previous, RESULTS, Record, Strike, Struck, VerifyFailure, sha256_hex,
};

/// The files of a ledger.
#[derive(Clone, Debug, Default)]
pub(super) struct LedgerFiles {
    /// Records by file name.
    pub(super) records: BTreeMap<String, Vec<u8>>,
    /// `BENCHMARKS.md`, if there is one.
    pub(super) benchmarks: Option<Vec<u8>>,
}

/// The checked entries, oldest first.
#[derive(Debug, Default)]
pub(super) struct Chain {
    /// File name, SHA-256 and content.
    links: Vec<(Previous, Entry)>,
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
            if name.starts_with('.') || name == CHARTS_FOLDER {
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
        let chain = self.check_entries()?;
        self.check_document(&chain)?;
        check_conclusions(&chain)?;
        Ok(chain)
    }

    /// As [`Self::check`], but the first part of the document may be out of date: it is a summary,
    /// and this is what is checked before it is written anew.
    pub(super) fn check_sections(&self) -> Result<Chain, VerifyFailure> {
        let chain = self.check_entries()?;
        let found = self.benchmarks.as_deref().unwrap_or_default();
        let (first, sections) = render::split(found);
        let expected = chain.sections();
        if first.is_empty() && chain.links.is_empty() {
            return Ok(chain);
        }
        compare(
            &[first, expected.as_bytes()].concat(),
            &[first, sections].concat(),
        )?;
        check_conclusions(&chain)?;
        Ok(chain)
    }

    /// Checks the entries and their chain, without what follows from them.
    pub(super) fn check_entries(&self) -> Result<Chain, VerifyFailure> {
        let digests: BTreeMap<&str, String> = (self.records.iter())
            .map(|(file, bytes)| (file.as_str(), sha256_hex(bytes)))
            .collect();
        self.check_witnesses(&digests)?;
        let chain = self.link(&digests)?;
        chain.check_strikes()?;
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
            if let Some(link) = Entry::previous_in(bytes) {
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
        let mut successors: BTreeMap<String, (Previous, Entry)> = BTreeMap::new();
        for (file, bytes) in &self.records {
            let entry = Entry::parse(file, bytes).map_err(|problem| VerifyFailure::Malformed {
                file: path_of(file),
                problem,
            })?;
            let key = (entry.previous())
                .map_or("", |previous| previous.file.as_str())
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
            successors.insert(key, (link, entry));
        }

        let mut chain = Chain::default();
        let mut key = String::new();
        while let Some((link, entry)) = successors.remove(&key) {
            if let (Some(held), Some((last, _))) = (entry.previous(), chain.links.last())
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
            chain.links.push((link, entry));
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
        // A ledger that earlier code wrote has its header until something is appended.
        let expected = if found.starts_with(HEADER_1.as_bytes()) {
            format!("{HEADER_1}{}", chain.sections())
        } else {
            chain.document()
        };
        compare(expected.as_bytes(), found)
    }
}

impl Chain {
    /// Renders the whole document.
    pub(super) fn document(&self) -> String {
        format!("{}{}", standing::first_part(self), self.sections())
    }

    /// Renders every section as the entries so far have it.
    pub(super) fn sections(&self) -> String {
        self.sections_after(self.links.len())
    }

    /// Renders the sections of the first `count` entries as those alone have it.
    fn sections_after(&self, count: usize) -> String {
        let links = &self.links[..count];
        let mut text = String::new();
        for (link, entry) in links {
            let marks = Marks::on(&link.file, strikes_of(links));
            text.push_str(&render::section(&link.file, &link.sha256, entry, &marks));
        }
        text
    }

    /// Renders the sections as they were right before each strike, and as they are: every text that
    /// they ever had is a prefix of one of these.
    pub(super) fn ages(&self) -> Vec<String> {
        (0..self.links.len())
            .filter(|index| self.links[*index].1.strike().is_some())
            .chain([self.links.len()])
            .map(|count| self.sections_after(count))
            .collect()
    }

    /// Returns the entries with their links, oldest first.
    pub(super) fn links(&self) -> &[(Previous, Entry)] {
        &self.links
    }

    /// Returns the number of entries.
    pub(super) fn len(&self) -> usize {
        self.links.len()
    }

    /// Returns the number of items that are struck through.
    pub(super) fn num_struck(&self) -> usize {
        strikes_of(&self.links)
            .map(|(_, strike)| strike.strikes.len())
            .sum()
    }

    /// Returns the records with their file names, oldest first.
    pub(super) fn runs(&self) -> impl DoubleEndedIterator<Item = (&str, &Record)> {
        self.links
            .iter()
            .filter_map(|(link, entry)| Some((link.file.as_str(), entry.record()?)))
    }

    /// Returns the record of a file name, with or without `.json`.
    pub(super) fn record(&self, name: &str) -> Option<(&str, &Record)> {
        self.runs()
            .find(|(file, _)| *file == name || file.strip_suffix(".json") == Some(name))
    }

    /// Completes the names of records, which may be given without `.json`.
    pub(super) fn with_file_names(&self, mut struck: Struck) -> Struck {
        struck.record = self.file_name(struck.record);
        struck.by = struck.by.map(|name| self.file_name(name));
        struck
    }

    fn file_name(&self, name: String) -> String {
        match self.record(&name) {
            Some((file, _)) => file.to_owned(),
            None => name,
        }
    }

    /// Returns the strikes on the record `file`.
    pub(super) fn marks(&self, file: &str) -> Marks<'_> {
        Marks::on(file, strikes_of(&self.links))
    }

    /// Returns the link that the next entry must hold.
    pub(super) fn last(&self) -> Option<Previous> {
        self.links.last().map(|(link, _)| link.clone())
    }

    /// Adds an entry; the strikes in it must be checked already.
    pub(super) fn push(&mut self, link: Previous, entry: Entry) {
        self.links.push((link, entry));
    }

    fn check_strikes(&self) -> Result<(), VerifyFailure> {
        for (index, (link, entry)) in self.links.iter().enumerate() {
            if let Some(strike) = entry.strike() {
                check_strike(&self.links[..index], &path_of(&link.file), strike)?;
            }
        }
        Ok(())
    }

    /// Checks a strike that is to follow the last entry.
    pub(super) fn check_strike(&self, file: &str, strike: &Strike) -> Result<(), VerifyFailure> {
        check_strike(&self.links, file, strike)
    }
}

fn check_strike(
    before: &[(Previous, Entry)],
    file: &str,
    strike: &Strike,
) -> Result<(), VerifyFailure> {
    let record_of = |name: &str| {
        let mut all = before.iter();
        all.find(|(link, _)| link.file == name)
            .and_then(|(_, entry)| entry.record())
    };
    let struck_on = |name: &str| {
        strikes_of(before)
            .flat_map(|(_, strike)| &strike.strikes)
            .filter(|struck| struck.record == name)
            .map(|struck| struck.item.clone())
            .collect()
    };
    strike::check(file, strike, &record_of, &struck_on)
}

pub(super) fn strikes_of(links: &[(Previous, Entry)]) -> impl Iterator<Item = (&str, &Strike)> {
    links
        .iter()
        .filter_map(|(link, entry)| Some((link.file.as_str(), entry.strike()?)))
}

/// The path of a record as failures name it.
pub(super) fn path_of(file: &str) -> String {
    format!("{RESULTS}/{file}")
}

fn check_conclusions(chain: &Chain) -> Result<(), VerifyFailure> {
    for (index, (link, entry)) in chain.links.iter().enumerate() {
        let (file, Some(record)) = (&link.file, entry.record()) else {
            continue;
        };
        for cell in &record.cells {
            let mut judged = cell.clone();
            judged.failed_before = recurrence::failures(&chain.links[..index], cell);
            crate::matrix::judge(&mut judged, record.seed);
            if judged != *cell {
                return Err(VerifyFailure::Conclusion {
                    file: path_of(file),
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
