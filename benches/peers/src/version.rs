//! What each peer says of itself with `--version`: its name, version and build profile, as JSON on a
//! line, so that a record can show that it was a release build.

use std::io::{self, Write as _};

pub(crate) fn print_version(name: &str) -> io::Result<()> {
    let profile = if cfg!(debug_assertions) {
        "debug"
    } else {
        "release"
    };
    writeln!(
        io::stdout(),
        r#"{{"name":"{name}","version":"{}","profile":"{profile}"}}"#,
        env!("CARGO_PKG_VERSION"),
    )
}
