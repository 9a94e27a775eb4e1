//! `justapi version`: what this binary is and how it was built.

use serde_json::json;

use crate::error::CliError;
use crate::ui::{Ui, document, heading};

const VERSION: &str = env!("CARGO_PKG_VERSION");
const TARGET: &str = env!("JUSTAPI_TARGET");
const RUSTC: &str = env!("JUSTAPI_RUSTC");
/// Empty when it was built outside a repository.
const COMMIT: &str = env!("JUSTAPI_COMMIT");

pub(crate) fn version(ui: &Ui) -> Result<u8, CliError> {
    // The ledger refuses a build with assertions, whatever its profile's name.
    let profile = if cfg!(debug_assertions) {
        "debug"
    } else {
        "release"
    };
    let commit = (!COMMIT.is_empty()).then_some(COMMIT);
    if ui.is_json() {
        document(&json!({
            "v": 1,
            "version": VERSION,
            "profile": profile,
            "target": TARGET,
            "rustc": RUSTC,
            "commit": commit,
        }))?;
    } else {
        ui.data(&format!(
            "{}\nprofile  {profile}\ntarget   {TARGET}\nrustc    {RUSTC}\ncommit   {}\n",
            heading(&format!("justapi {VERSION}")),
            commit.unwrap_or("unknown")
        ))?;
    }
    Ok(0)
}
