//! One file per command; each takes the [`Ui`](crate::ui::Ui) and its
//! arguments, and returns the exit status.

mod application;
mod bench;
mod completions;
mod config;
mod explain;
mod man;
mod profile;
mod serve;
mod version;

pub(crate) use self::bench::{bench, command as bench_command};
pub(crate) use self::completions::completions;
pub(crate) use self::config::config;
pub(crate) use self::explain::explain;
pub(crate) use self::man::man;
pub(crate) use self::profile::profile;
pub(crate) use self::serve::{OWNER, serve};
pub(crate) use self::version::version;
