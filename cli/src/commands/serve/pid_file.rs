//! The file of `--pid-file`.
//!
//! Guarantee: it is removed when the server ends, unless another process has
//! written its own id there meanwhile.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;

use crate::error::{CliError, Code};

/// A pid file that holds our id.
#[derive(Debug)]
pub(crate) struct PidFile(PathBuf);

impl PidFile {
    pub(crate) fn write(path: &Path) -> Result<Self, CliError> {
        fs::write(path, format!("{}\n", process::id())).map_err(|error| {
            CliError::new(
                Code::PidFile,
                format!("cannot write the pid file {}", path.display()),
            )
            .with_cause(&error)
            .with_hint("choose a path in a writable folder with `--pid-file`")
        })?;
        Ok(Self(path.to_owned()))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let is_ours =
            fs::read_to_string(&self.0).is_ok_and(|text| text.trim() == process::id().to_string());
        if is_ours {
            // The server has ended; a file that stays is only untidy.
            drop(fs::remove_file(&self.0));
        }
    }
}
