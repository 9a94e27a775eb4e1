//! The third edition of the rules: what may be said although the client was the limit of one arm.
//!
//! A client at its ceiling can only understate the arm that it loads. So the ratio of the two is a
//! lower bound where that is the judged arm, and an upper bound where it is the other one; what such
//! a bound shows is shown. Where the client was the limit of both, the ratio says nothing.

use super::is_client_bound;
use crate::ledger::{Bound, CellRecord, Target, Verdict};

/// Whether a verdict on a throughput can only be stronger with a better client.
pub(super) fn holds(cell: &CellRecord, target: &Target, verdict: Option<Verdict>) -> bool {
    // What is taken from both sides may itself be understated.
    if target.less.is_some() {
        return false;
    }
    let is_bound = |label: &str| is_client_bound(cell, label);
    let ours = is_bound(&target.label);
    let theirs = target.versus.as_deref().is_some_and(is_bound);
    match (verdict, target.bound) {
        (Some(Verdict::Pass), Bound::AtLeast) | (Some(Verdict::Fail), Bound::AtMost) => {
            ours && !theirs
        }
        (Some(Verdict::Fail), Bound::AtLeast) | (Some(Verdict::Pass), Bound::AtMost) => {
            theirs && !ours
        }
        _ => false,
    }
}
