//! The flags of `justapi dev` beside those of settings.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, Args};

use crate::args::{SettingFlags, long_help, read_time};
use crate::config::{find, show_time};

/// Time for what is in flight when code is replaced or the server stops,
/// unless the user asks for another: nobody wants to wait for it.
pub(crate) const GRACE: Duration = Duration::from_secs(1);
/// The setting that asks for another.
const GRACE_KEY: &str = "server.graceful";

/// Arguments of `dev`; it takes the flags of `serve`, too.
#[derive(Debug, Args)]
#[command(mut_arg(GRACE_KEY, with_own_grace))]
pub(crate) struct Dev {
    /// Python application: `module:attribute`, a file or a folder [default: that of this folder].
    pub(crate) app: Option<String>,
    /// Binary of a package in Rust; APP may be the folder of that.
    #[arg(hide_short_help = true, long, value_name = "NAME")]
    pub(crate) bin: Option<String>,
    /// When the running code stops: overlap or stop-first.
    ///
    /// `overlap` leaves no gap. `stop-first` is for applications of which there can be one at a
    /// time: they hold a lock, a port or the memory of a device.
    #[arg(
        long,
        value_enum,
        value_name = "WHEN",
        default_value = "overlap",
        hide_possible_values = true
    )]
    pub(crate) reload_strategy: ReloadStrategy,
    /// Files that mean nothing, as a .gitignore has them; repeatable.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) reload_ignore: Vec<String>,
    /// Files that mean what sources do, as a .gitignore has them; repeatable.
    #[arg(hide_short_help = true, long, value_name = "PATTERN")]
    pub(crate) reload_include: Vec<String>,
    /// Look at the files again and again, instead of being told of changes.
    #[arg(long)]
    pub(crate) poll: bool,
    /// How often, where files are looked at again and again.
    #[arg(
        hide_short_help = true,
        long,
        value_name = "TIME",
        default_value = "300ms",
        value_parser = read_time
    )]
    pub(crate) poll_interval: Duration,
    /// Start no interpreter ahead of time that loads the installed packages.
    #[arg(hide_short_help = true, long)]
    pub(crate) no_preload: bool,
    /// Add no script to pages that loads them anew.
    #[arg(hide_short_help = true, long)]
    pub(crate) no_live_reload: bool,
    /// File with variables for the application.
    #[arg(
        hide_short_help = true,
        long,
        value_name = "FILE",
        default_value = ".env"
    )]
    pub(crate) env_file: PathBuf,
    #[command(flatten)]
    pub(crate) settings: SettingFlags,
}

/// The flag with the default that holds here.
fn with_own_grace(flag: Arg) -> Arg {
    let setting = find(GRACE_KEY).expect("a key of the table");
    flag.long_help(long_help(setting, &show_time(GRACE)))
}

/// When the running code stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ReloadStrategy {
    /// Once the new code serves.
    Overlap,
    /// Before the new code starts.
    StopFirst,
}
