//! One file per command; each takes the [`Ui`](crate::ui::Ui) and its
//! arguments, and returns the exit status.

mod bench;
mod completions;
mod config;
mod explain;
mod man;
mod serve;
mod version;

pub(crate) use self::bench::{bench, verify as bench_verify};
pub(crate) use self::completions::completions;
pub(crate) use self::config::config;
pub(crate) use self::explain::explain;
pub(crate) use self::man::man;
pub(crate) use self::serve::serve;
pub(crate) use self::version::version;
