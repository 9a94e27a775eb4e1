//! What a `reload` cell saves, and what each round saw of it.
//!
//! Times are from the end of a save to the end of the answer that shows it. Each probe is in one
//! class, so what is not an answer of the newest code is counted beside them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::record::CellRecord;

/// A probe that the newest code answered.
pub const NEW: &str = "new";

/// A probe that was told that the newest code does not work.
pub const TOLD: &str = "told";

/// The saves of each round of a `reload` cell.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Saves {
    /// Name in the application's line `NAME = 0`; its value is the body of every answer.
    pub constant: String,
    /// Saves of new values.
    pub count: u32,
    /// Time before each save in which nothing changes; probes go on.
    pub settle_ms: u64,
    /// Longest time from a save to its answer; one more makes the round invalid.
    pub patience_ms: u64,
    /// Modules that the application imports besides its framework.
    #[serde(default)]
    pub imports: Vec<String>,
    /// Header field by which an answer of older code says that the newest does not work; a status
    /// from 500 says it as well. With it each save follows one of code that raises when imported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_header: Option<String>,
}

/// What one round saw of its saves.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ReloadRecord {
    /// From the end of each save to the answer of the saved code.
    pub served_ns: Vec<u64>,
    /// From the end of each save of code that does not work to the answer that says so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub told_ns: Vec<u64>,
    /// Every probe, by what became of it: `new`, `told`, `stale` (older code), `refused`, `reset`,
    /// `failed` (another answer), `timeout`.
    pub probes: BTreeMap<String, u64>,
    /// Longest time from a probe's begin to its end, whatever became of it.
    pub longest_wait_ns: u64,
}

impl ReloadRecord {
    /// Returns how many probes had neither an answer of the newest code nor word that it fails.
    pub fn num_lost(&self) -> u64 {
        let lost = |class: &&String| *class != NEW && *class != TOLD;
        let classes = self.probes.iter();
        classes
            .filter(|(class, _)| lost(class))
            .map(|(_, n)| n)
            .sum()
    }
}

/// How much of its exchange a cell makes, as its heading says it.
pub(super) fn amount(cell: &CellRecord) -> String {
    let Some(saves) = &cell.reload else {
        return format!("{} connections", cell.connections);
    };
    let broken = match saves.failure_header {
        Some(_) => ", each after one of broken code",
        None => "",
    };
    let imports = match &saves.imports[..] {
        [] => String::new(),
        imports => format!(", importing {}", imports.join(" and ")),
    };
    format!("{} saves a round{broken}{imports}", saves.count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_neither_new_nor_told_is_lost() {
        let counts = [
            (NEW, 100),
            (TOLD, 10),
            ("stale", 1),
            ("refused", 2),
            ("reset", 3),
            ("failed", 4),
            ("timeout", 5),
        ];
        let record = ReloadRecord {
            probes: counts.map(|(class, n)| (class.to_owned(), n)).into(),
            ..ReloadRecord::default()
        };
        assert_eq!(record.num_lost(), 15);
        assert_eq!(ReloadRecord::default().num_lost(), 0);
    }
}
