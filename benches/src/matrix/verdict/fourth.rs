//! The fourth edition of the rules: what failed in one run only is not a FAIL yet.
//!
//! A machine that had a bad hour makes every arm slow in the same way, except when it does not; a
//! second run at another time seldom has the same one. Until it agrees the verdict is INCONCLUSIVE,
//! and says that it failed once. PASS needs no second run: the targets are ours, and whoever doubts
//! one measures again.

use crate::ledger::{CellRecord, Verdict};

/// Why a rule that failed is INCONCLUSIVE; what a later run looks for.
pub(crate) const FAILED_ONCE: &str = "it failed in this run, and FAIL needs a second that agrees";

/// Takes FAIL back where no run before has seen it.
pub(super) fn demand(cell: &mut CellRecord) {
    for (target, row) in cell.targets.iter().zip(&mut cell.verdicts) {
        if row.verdict != Verdict::Fail {
            continue;
        }
        match cell.failed_before.get(&target.id) {
            Some(file) => row.reason = Some(format!("as in {file}")),
            None => {
                row.verdict = Verdict::Inconclusive;
                row.reason = Some(FAILED_ONCE.to_owned());
            }
        }
    }
}
