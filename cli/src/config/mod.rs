//! Configuration: flags over environment over `justapi.toml` over defaults,
//! with the origin of every value.
//!
//! Guarantee: after [`Config::load`] each setting has exactly one value, and
//! its origin names the flag, variable or line that it came from.

mod environment;
mod file;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod settings;
mod value;

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};

use justapi_core::Limits;

pub(crate) use self::settings::{Group, SETTINGS, Setting, find};
pub(crate) use self::value::{
    Kind, Value, is_python_version, parse_seconds, parse_time, show_time,
};
use crate::error::{CliError, Code, Location};

/// Every setting with its value and origin.
#[derive(Debug)]
pub(crate) struct Config {
    values: Vec<(Value, Origin)>,
    file: Option<PathBuf>,
    warnings: Vec<Warning>,
}

/// Where a value came from; a later variant wins over an earlier one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Nobody set it.
    Default,
    /// A line of the configuration file.
    File {
        /// File as the user would name it.
        path: PathBuf,
        /// Line from 1.
        line: usize,
    },
    /// An environment variable.
    Environment(String),
    /// A flag, with its dashes.
    Flag(String),
}

impl Origin {
    /// Place of the layer in the order of precedence.
    pub(crate) const fn layer(&self) -> u8 {
        match self {
            Self::Default => 0,
            Self::File { .. } => 1,
            Self::Environment(_) => 2,
            Self::Flag(_) => 3,
        }
    }

    /// The place in a file, to be shown with an error.
    pub(crate) fn location(&self) -> Option<Location> {
        match self {
            Self::File { path, line } => Some(Location::new(path, *line, None)),
            _ => None,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment(name) => write!(f, "env {name}"),
            Self::Flag(flag) => write!(f, "flag {flag}"),
        }
    }
}

/// Something odd in the configuration that does not stop us.
#[derive(Debug)]
pub(crate) struct Warning {
    pub(crate) code: Code,
    pub(crate) message: String,
    pub(crate) location: Option<Location>,
}

/// One value from a layer.
pub(crate) type Given = (&'static Setting, Value, Origin);

impl Config {
    /// Merges the layers, the file being `explicit` or the one that is found.
    ///
    /// # Errors
    /// What is wrong with the file or a variable.
    pub(crate) fn load(explicit: Option<&Path>, flags: &[Given]) -> Result<Self, CliError> {
        let file = Self::locate(explicit)?;
        let mut config = Self::defaults();
        if let Some(path) = file {
            let layer = file::read(&path, &shown_path(&path))?;
            config.apply(layer.values);
            config.warnings.extend(layer.warnings);
            config.file = Some(path);
        }
        let layer = environment::read(env::vars_os())?;
        config.apply(layer.values);
        config.warnings.extend(layer.warnings);
        config.apply(flags.to_vec());
        Ok(config)
    }

    /// Defaults and `given` only, without files and environment.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn of(given: &[Given]) -> Self {
        let mut config = Self::defaults();
        config.apply(given.to_vec());
        config
    }

    /// The file that [`Self::load`] would read.
    ///
    /// # Errors
    /// [`Code::ConfigUnreadable`] when the working directory is gone.
    pub(crate) fn locate(explicit: Option<&Path>) -> Result<Option<PathBuf>, CliError> {
        if let Some(path) = explicit {
            return Ok(Some(path.to_owned()));
        }
        let folder = env::current_dir().map_err(|error| {
            CliError::new(
                Code::ConfigUnreadable,
                "cannot find out the working directory",
            )
            .with_cause(&error)
        })?;
        Ok(file::locate(&folder))
    }

    /// The file that was read.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// What was odd.
    pub(crate) fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// What was odd, for whoever needs the rest no more.
    pub(crate) fn into_warnings(self) -> Vec<Warning> {
        self.warnings
    }

    /// Every setting with its value and origin, in table order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'static Setting, &Value, &Origin)> {
        SETTINGS
            .iter()
            .zip(&self.values)
            .map(|(setting, (value, origin))| (setting, value, origin))
    }

    /// The value of a key of the table.
    pub(crate) fn value(&self, key: &str) -> &Value {
        self.entry(key).0
    }

    /// The origin of the value of a key of the table.
    pub(crate) fn origin(&self, key: &str) -> &Origin {
        self.entry(key).1
    }

    /// The limits of the server.
    pub(crate) fn limits(&self) -> Limits {
        let mut limits = Limits::DEFAULT;
        for (setting, value, _) in self.entries() {
            if let Some(limit) = &setting.limit {
                (limit.set)(&mut limits, value);
            }
        }
        limits
    }

    /// Has applications imported from `folder`, unless somebody has set another.
    pub(crate) fn import_from(&mut self, folder: &Path) {
        const KEY: &str = "python.app_dir";
        if *self.origin(KEY) == Origin::Default {
            let setting = find(KEY).expect("it is of the table");
            let folder = Value::Text(folder.to_string_lossy().into_owned());
            self.apply(vec![(setting, folder, Origin::Default)]);
        }
    }

    fn defaults() -> Self {
        Self {
            values: SETTINGS
                .iter()
                .map(|setting| ((setting.default)(), Origin::Default))
                .collect(),
            file: None,
            warnings: Vec::new(),
        }
    }

    fn entry(&self, key: &str) -> (&Value, &Origin) {
        self.entries()
            .find(|(setting, _, _)| setting.key == key)
            .map(|(_, value, origin)| (value, origin))
            .expect("callers name keys of the table")
    }

    fn apply(&mut self, given: Vec<Given>) {
        for (setting, value, origin) in given {
            let index = SETTINGS
                .iter()
                .position(|known| known.key == setting.key)
                .expect("layers hold settings of the table");
            self.values[index] = (value, origin);
        }
    }
}

/// The path relative to the working directory where it is below it.
pub(crate) fn shown_path(path: &Path) -> PathBuf {
    env::current_dir()
        .ok()
        .and_then(|folder| path.strip_prefix(folder).ok().map(Path::to_owned))
        .unwrap_or_else(|| path.to_owned())
}
