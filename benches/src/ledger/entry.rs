//! A link of the chain: the record of a run, or a strike on rows of earlier ones.
//!
//! Both are one file each in `benches/results`; which it is shows in the keys. Of all the JSON
//! texts of an entry only one is written and read, so nothing hides beside it.

use serde::{Deserialize, Serialize};

use super::record::SCHEMA_VERSION;
use super::{Previous, Record, Strike};

/// What one file of the ledger holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(super) enum Entry {
    /// A run.
    Run(Box<Record>),
    /// A strike.
    Strike(Strike),
}

/// The part that both kinds have, and the key that tells them apart.
#[derive(Deserialize)]
struct Kind {
    schema_version: u32,
    strikes: Option<serde_json::Value>,
}

/// The part that is read even of a file that is not valid otherwise.
#[derive(Deserialize)]
struct Linked {
    previous: Option<Previous>,
}

impl Entry {
    /// Reads a file of the ledger.
    ///
    /// # Errors
    ///
    /// Says what keeps it from being one that this program writes under that name.
    pub(super) fn parse(file: &str, bytes: &[u8]) -> Result<Self, String> {
        let text = |error: serde_json::Error| error.to_string();
        let kind: Kind = serde_json::from_slice(bytes).map_err(text)?;
        if kind.schema_version != SCHEMA_VERSION {
            let found = kind.schema_version;
            return Err(format!("schema version {found} is unknown"));
        }
        let entry = if kind.strikes.is_some() {
            Self::Strike(serde_json::from_slice(bytes).map_err(text)?)
        } else {
            Self::Run(serde_json::from_slice(bytes).map_err(text)?)
        };
        if entry.to_bytes().map_err(text)? != bytes {
            return Err(String::from("not in canonical form"));
        }
        let expected = entry.file_name();
        if expected != file {
            return Err(format!("its content belongs to {expected}"));
        }
        Ok(entry)
    }

    /// Returns the link to the entry before, if the bytes hold one.
    pub(super) fn previous_in(bytes: &[u8]) -> Option<Previous> {
        let linked: Linked = serde_json::from_slice(bytes).ok()?;
        linked.previous
    }

    /// The bytes of the file: compact JSON and a line end.
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut bytes = serde_json::to_vec(self)?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// The record, if it is of a run.
    pub(super) fn record(&self) -> Option<&Record> {
        match self {
            Self::Run(record) => Some(record),
            Self::Strike(_) => None,
        }
    }

    /// The strike, if it is one.
    pub(super) fn strike(&self) -> Option<&Strike> {
        match self {
            Self::Run(_) => None,
            Self::Strike(strike) => Some(strike),
        }
    }

    pub(super) fn previous(&self) -> Option<&Previous> {
        match self {
            Self::Run(record) => record.previous.as_ref(),
            Self::Strike(strike) => strike.previous.as_ref(),
        }
    }

    pub(super) fn set_previous(&mut self, previous: Option<Previous>) {
        match self {
            Self::Run(record) => record.previous = previous,
            Self::Strike(strike) => strike.previous = previous,
        }
    }

    /// The name that the file gets in `benches/results`.
    pub(super) fn file_name(&self) -> String {
        let (recorded_utc, id) = match self {
            Self::Run(record) => (&record.recorded_utc, &record.id),
            Self::Strike(strike) => (&strike.recorded_utc, &strike.id),
        };
        file_name(recorded_utc, id)
    }
}

/// `20261129T144946Z-0123abcd.json`.
pub(super) fn file_name(recorded_utc: &str, id: &str) -> String {
    let stamp: String = (recorded_utc.chars())
        .filter(char::is_ascii_alphanumeric)
        .collect();
    format!("{stamp}-{id}.json")
}
