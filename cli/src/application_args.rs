//! Arguments of the commands that look at an application, a machine or an
//! installation and serve nothing, of which the doc comments are the help.

use std::path::PathBuf;

use clap::{ArgMatches, Args, Command, FromArgMatches};

use crate::args::{SettingFlags, given_flag, setting_arg};
use crate::config::{Given, Setting, find};

/// Arguments of `routes`.
#[derive(Debug, Args)]
pub(crate) struct Routes {
    /// Python application: `module:attribute`, a file or a folder [default: that of this folder].
    ///
    /// Without one the routes are those that `justapi serve` serves without one.
    pub(crate) app: Option<String>,
    /// Only routes of this method; repeatable, `WS` is a WebSocket.
    #[arg(short, long, value_name = "METHOD")]
    pub(crate) method: Vec<String>,
    /// Only routes whose pattern matches, `*` standing for any text.
    #[arg(short, long, value_name = "GLOB")]
    pub(crate) path: Option<String>,
    /// Only routes that run in this way.
    #[arg(long, value_name = "WAY", value_parser = ["native", "async", "sync", "threads", "asgi"])]
    pub(crate) runs: Option<String>,
    /// List the documentation's own routes, too.
    #[arg(short, long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) python: PythonFlags,
}

/// Arguments of `openapi`.
#[derive(Debug, Args)]
pub(crate) struct OpenApi {
    /// Python application: `module:attribute`, a file or a folder [default: that of this folder].
    ///
    /// Without one the document is that of what `justapi serve` serves without one.
    pub(crate) app: Option<String>,
    /// Write the document to this file, whole or not at all; `-` is standard output.
    #[arg(short, long, value_name = "FILE", conflicts_with = "check")]
    pub(crate) output: Option<PathBuf>,
    /// Compare the document with this file; exit 1 and say what differs.
    #[arg(long, value_name = "FILE")]
    pub(crate) check: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) python: PythonFlags,
}

/// Arguments of `check`; it takes the flags of `serve`, too.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Python application: `module:attribute`, a file or a folder [default: that of this folder].
    ///
    /// In a folder without one the configuration alone is checked.
    pub(crate) app: Option<String>,
    /// Exit 1 for warnings, too.
    #[arg(long)]
    pub(crate) strict: bool,
    #[command(flatten)]
    pub(crate) settings: SettingFlags,
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Python application: `module:attribute`, a file or a folder [default: that of this folder].
    pub(crate) app: Option<String>,
    /// Put right what can be put right without harm; ask before each command.
    ///
    /// Packages go into the virtual environment of the project only, limits of the kernel are
    /// raised until the next boot where this is root. What else is wrong stays, with what to do.
    #[arg(long)]
    pub(crate) fix: bool,
    /// With --fix: run the commands without asking.
    #[arg(long, requires = "fix")]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) python: PythonFlags,
}

/// Arguments of `self`.
#[derive(Debug, Args)]
pub(crate) struct SelfArgs {
    #[command(subcommand)]
    pub(crate) command: SelfCommand,
}

/// What to do with this installation.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum SelfCommand {
    /// Put another version in the place of this one, from a directory of release archives.
    ///
    /// `JUSTAPI_DOWNLOAD_URL` names the directory: https://, http:// or file:///. An archive without
    /// its checksum, or with another one, is refused. Only what install.sh has installed is updated.
    Update {
        /// Version to install.
        version: Option<String>,
        /// Say what would be fetched and replaced, and do neither.
        #[arg(short = 'n', long)]
        dry_run: bool,
    },
    /// Remove what install.sh has installed, and nothing else.
    Uninstall {
        /// Say what would be removed, and remove nothing.
        #[arg(short = 'n', long)]
        dry_run: bool,
    },
}

/// Settings that decide which Python imports an application, from where, and
/// for how long.
const PYTHON_KEYS: [&str; 3] = [
    "python.interpreter",
    "python.app_dir",
    "python.start_timeout",
];

/// The flags of those settings, and the values that were given.
#[derive(Debug, Default)]
pub(crate) struct PythonFlags {
    pub(crate) given: Vec<Given>,
}

fn settings() -> impl Iterator<Item = (&'static Setting, &'static str)> {
    PYTHON_KEYS.into_iter().filter_map(|key| {
        let setting = find(key).expect("the keys are of the table");
        setting.flag.map(|flag| (setting, flag))
    })
}

impl Args for PythonFlags {
    fn augment_args(command: Command) -> Command {
        settings().fold(command, |command, (setting, flag)| {
            command.arg(setting_arg(setting, flag).hide_short_help(false))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for PythonFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.given
            .extend(settings().filter_map(|(setting, _)| given_flag(matches, setting)));
        Ok(())
    }
}
