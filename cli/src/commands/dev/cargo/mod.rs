//! Applications in Rust: what is built, and how it becomes a worker.
//!
//! A worker is this program once more. It runs cargo, tells what came of it,
//! waits for the word, and becomes the server that was built: one process, and
//! one group of processes, is all there is to end.

mod build;
mod launcher;
mod output;
mod package;
mod ready;

pub(crate) use self::launcher::{ARGUMENT, launch, move_away};
pub(super) use self::output::Output;
pub(super) use self::package::Package;
pub(super) use self::ready::when_ready;
