//! The file that holds a server's secrets.
//!
//! Guarantee: a file that everybody may read is refused, and nothing of its
//! content is ever part of an error.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::Sessions;
use crate::error::Error;

/// Permission bits of everybody but owner and group.
const OTHERS: u32 = 0o007;
/// Most bytes of a secret file: eight secrets with comments.
const MAX_SECRET_FILE_BYTES: u64 = 64 * 1024;

impl Sessions {
    /// [`Sessions::new`] with the secrets of a file: one a line, without those
    /// that begin with `#`.
    ///
    /// # Errors
    /// As [`Sessions::new`], and [`Error::Config`] for a file that cannot be
    /// read, that everybody may read, or that is larger than 64 KiB.
    pub fn from_file(path: &Path) -> Result<Self, Error> {
        let text = read(path).map_err(|reason| Error::Config {
            key: "server.session.secret_file",
            reason,
        })?;
        let lines = text.lines().map(str::trim);
        let secrets: Vec<_> = lines
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .collect();
        Self::new(&secrets)
    }
}

fn read(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let failed = |error: std::io::Error| format!("cannot read {shown}: {error}");
    let metadata = fs::metadata(path).map_err(failed)?;
    if metadata.mode() & OTHERS != 0 {
        return Err(format!("everybody may read {shown}; use `chmod 600`"));
    }
    if metadata.len() > MAX_SECRET_FILE_BYTES {
        return Err(format!(
            "{shown} is larger than {MAX_SECRET_FILE_BYTES} bytes"
        ));
    }
    fs::read_to_string(path).map_err(failed)
}
