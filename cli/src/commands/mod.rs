//! One file per command; each takes the [`Ui`](crate::ui::Ui) and its
//! arguments, and returns the exit status.

mod application;
mod bench;
mod check;
mod checklist;
mod completions;
mod config;
mod dev;
mod doctor;
mod explain;
mod infer;
mod inspected;
mod installation;
mod man;
mod model;
mod new;
mod openapi;
mod profile;
mod routes;
mod self_command;
mod serve;
mod target;
mod version;

pub(crate) use self::bench::{bench, command as bench_command};
pub(crate) use self::check::check;
pub(crate) use self::completions::completions;
pub(crate) use self::config::config;
pub(crate) use self::dev::{BUILD_AND_SERVE, build_and_serve, dev};
pub(crate) use self::doctor::doctor;
pub(crate) use self::explain::explain;
pub(crate) use self::infer::infer;
pub(crate) use self::man::man;
pub(crate) use self::new::new;
pub(crate) use self::openapi::openapi;
pub(crate) use self::profile::profile;
pub(crate) use self::routes::routes;
pub(crate) use self::self_command::self_command;
pub(crate) use self::serve::{OWNER, serve};
pub(crate) use self::version::version;
