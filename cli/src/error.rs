//! The one error of the command line: code, location, cause, one hint.
//!
//! Guarantee: it says what was asked for, what went wrong and what to do
//! next; never a backtrace. `ui` has its one form in print and in JSON.

use std::io;
use std::path::{Path, PathBuf};

pub(crate) use crate::codes::Code;

/// Why a command ended without doing what was asked.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.message)]
pub(crate) struct CliError(Box<Report>);

/// What a [`CliError`] holds, behind a box as results carry it by value.
#[derive(Debug)]
struct Report {
    code: Code,
    message: String,
    location: Option<Location>,
    details: Vec<(&'static str, String)>,
    hint: Option<String>,
    exit: u8,
    quiet: bool,
}

/// A place in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Location {
    /// File as the user would name it.
    pub(crate) path: PathBuf,
    /// Line from 1.
    pub(crate) line: usize,
    /// Column in characters from 1.
    pub(crate) column: Option<usize>,
}

impl Location {
    pub(crate) fn new(path: &Path, line: usize, column: Option<usize>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            column,
        }
    }
}

impl CliError {
    /// An error with the exit status of its code.
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self(Box::new(Report {
            code,
            message: message.into(),
            location: None,
            details: Vec::new(),
            hint: None,
            exit: code.exit(),
            quiet: false,
        }))
    }

    /// Writing to standard output failed; a closed pipe ends us quietly.
    pub(crate) fn output(error: &io::Error) -> Self {
        let mut output =
            Self::new(Code::OutputWrite, "cannot write to standard output").with_cause(error);
        if error.kind() == io::ErrorKind::BrokenPipe {
            output.0.exit = 0;
            output.0.quiet = true;
        }
        output
    }

    /// Somebody changed their mind, which is no news to them.
    pub(crate) fn interrupted(exit: u8) -> Self {
        let mut interrupted = Self::new(Code::Internal, "interrupted");
        interrupted.0.exit = exit;
        interrupted.0.quiet = true;
        interrupted
    }

    /// Where the fault is.
    pub(crate) fn at(mut self, location: Location) -> Self {
        self.0.location = Some(location);
        self
    }

    /// Where the fault is, when it is in a file.
    pub(crate) fn at_any(mut self, location: Option<Location>) -> Self {
        self.0.location = location;
        self
    }

    /// A labelled line of background.
    pub(crate) fn with_detail(mut self, label: &'static str, text: impl Into<String>) -> Self {
        self.0.details.push((label, text.into()));
        self
    }

    /// What the operating system said.
    pub(crate) fn with_cause(self, error: &io::Error) -> Self {
        self.with_detail("cause", plain(error))
    }

    /// The one thing to do next.
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    pub(crate) fn code(&self) -> Code {
        self.0.code
    }

    pub(crate) fn message(&self) -> &str {
        &self.0.message
    }

    pub(crate) fn location(&self) -> Option<&Location> {
        self.0.location.as_ref()
    }

    pub(crate) fn details(&self) -> &[(&'static str, String)] {
        &self.0.details
    }

    pub(crate) fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// Exit status of the process.
    pub(crate) fn exit(&self) -> u8 {
        self.0.exit
    }

    /// Whether nothing is printed: the reader has left on purpose.
    pub(crate) fn is_quiet(&self) -> bool {
        self.0.quiet
    }
}

/// The system's message in our style: lower case, no number.
pub(crate) fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut characters = text.chars();
    match (characters.next(), characters.clone().next()) {
        (Some(first), Some(second)) if first.is_uppercase() && second.is_lowercase() => {
            first.to_lowercase().chain(characters).collect()
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_messages_are_plain() {
        let error = io::Error::from_raw_os_error(98);
        assert_eq!(plain(&error), "address already in use");
        assert_eq!(plain(&io::Error::other("IPv6 is off")), "IPv6 is off");
    }

    #[test]
    fn a_closed_pipe_is_success() {
        let error = CliError::output(&io::ErrorKind::BrokenPipe.into());
        assert!(error.is_quiet() && error.exit() == 0);
        let error = CliError::output(&io::ErrorKind::StorageFull.into());
        assert!(!error.is_quiet() && error.exit() == 1);
    }
}
