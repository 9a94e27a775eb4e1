//! Finds the Python interpreter that workers run on.
//!
//! Guarantee: no file of the project is executed by looking, and the one that
//! is taken has this version of the package `justapi`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use super::failures;
use crate::config::is_python_version;
use crate::error::{CliError, Code};
use crate::wheel;

/// What an interpreter is asked: isolated from the environment and the folder.
const PROBE: &str = "import json, sys
try:
    from justapi import _core
    package = _core.VERSION
except ImportError as error:
    package = None
print(json.dumps({
    'executable': sys.executable,
    'version': sys.version_info[:2],
    'is_free_threaded': 't' in sys.abiflags,
    'package': package,
}))
";
/// Oldest version that the package supports.
const OLDEST: (u32, u32) = (3, 11);

/// An interpreter that can run workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interpreter {
    pub(crate) path: PathBuf,
    /// `3.11` and the like; `3.14t` is free-threaded.
    pub(crate) version: String,
    /// Version of its package `justapi`.
    pub(crate) package: String,
    /// Why this one was taken.
    pub(crate) found_by: &'static str,
}

#[derive(Debug, Deserialize)]
struct Answer {
    executable: String,
    version: (u32, u32),
    #[serde(default)]
    is_free_threaded: bool,
    package: Option<String>,
}

/// Where an interpreter was looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Candidate {
    path: PathBuf,
    place: &'static str,
}

/// Finds an interpreter; `asked` is the user's own choice, a path or a version.
///
/// # Errors
/// [`Code::Interpreter`] when none can run the package.
pub(crate) fn find(asked: Option<&str>) -> Result<Interpreter, CliError> {
    let version = asked.filter(|asked| is_python_version(asked));
    if let (Some(path), None) = (asked, version) {
        let candidate = Candidate {
            path: PathBuf::from(path),
            place: "--python",
        };
        return probe(&candidate)?.check(&candidate);
    }
    let mut first = None;
    for candidate in candidates(version) {
        let checked = match probe(&candidate) {
            Ok(answer) if version.is_some_and(|version| answer.shown_version() != version) => {
                continue;
            }
            Ok(answer) => answer.check(&candidate),
            Err(error) => Err(error),
        };
        match checked {
            Ok(interpreter) => return Ok(interpreter),
            // What stands first is what the user most likely meant.
            Err(error) => drop(first.get_or_insert(error)),
        }
    }
    Err(first.unwrap_or_else(|| {
        let (what, wanted) = match version {
            Some(version) => (version, version),
            None => ("interpreter", "3.11 or newer"),
        };
        let hint = format!("install Python {wanted}, or name one with `--python PATH`");
        CliError::new(Code::Interpreter, format!("there is no Python {what}")).with_hint(hint)
    }))
}

/// Interpreters by the likelihood that they are meant; each is there once.
///
/// One that is named for `version` goes before others of its folder.
fn candidates(version: Option<&str>) -> Vec<Candidate> {
    let mut found: Vec<Candidate> = Vec::new();
    let named = version.map(|version| format!("python{version}"));
    let names = named.iter().map(String::as_str);
    let names: Vec<&str> = names.chain(["python3", "python"]).collect();
    let mut add = |folder: Option<PathBuf>, place| {
        for name in &names {
            let path = folder.as_ref().map(|folder| folder.join(name));
            if let Some(path) = path.filter(|path| path.is_file()) {
                if found.iter().all(|one| one.path != path) {
                    found.push(Candidate { path, place });
                }
                // Another name may be another version.
                if version.is_none() {
                    return;
                }
            }
        }
    };
    let own = env::current_exe().ok();
    add(
        own.and_then(|own| own.parent().map(Path::to_owned)),
        "beside this program",
    );
    let variable = |name| env::var_os(name).map(PathBuf::from);
    add(
        variable("VIRTUAL_ENV").map(|path| path.join("bin")),
        "VIRTUAL_ENV",
    );
    let project = project_folders();
    // It says where the environment is instead of in `.venv`.
    if let Some(environment) = variable("UV_PROJECT_ENVIRONMENT") {
        // An absolute path is the same joined with any folder.
        for folder in &project {
            let folder = folder.join(&environment).join("bin");
            add(Some(folder), "UV_PROJECT_ENVIRONMENT");
        }
    }
    for folder in &project {
        add(Some(folder.join(".venv/bin")), ".venv");
        add(Some(folder.join("venv/bin")), "venv");
    }
    add(
        variable("CONDA_PREFIX").map(|path| path.join("bin")),
        "CONDA_PREFIX",
    );
    for folder in env::split_paths(&env::var_os("PATH").unwrap_or_default()) {
        add(Some(folder), "PATH");
    }
    found
}

/// The current folder and those above it, up to the repository's root.
fn project_folders() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for folder in env::current_dir().unwrap_or_default().ancestors() {
        folders.push(folder.to_owned());
        if folder.join(".git").exists() {
            break;
        }
    }
    folders
}

fn probe(candidate: &Candidate) -> Result<Answer, CliError> {
    let failed = |cause: &str| {
        CliError::new(
            Code::Interpreter,
            format!("{} cannot be used", candidate.path.display()),
        )
        .with_detail("found by", candidate.place)
        .with_detail("cause", cause)
        .with_hint("`--python` names a Python interpreter, 3.11 or newer")
    };
    let output = Command::new(&candidate.path)
        .args(["-I", "-c", PROBE])
        .output()
        .map_err(|error| failures::with_limit_hint(failed(&error.to_string()), &error))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last).map_err(|_| failed(String::from_utf8_lossy(&output.stderr).trim()))
}

impl Answer {
    /// `3.11` and the like; `3.14t` is free-threaded.
    fn shown_version(&self) -> String {
        let (major, minor) = self.version;
        let flag = if self.is_free_threaded { "t" } else { "" };
        format!("{major}.{minor}{flag}")
    }

    fn check(self, candidate: &Candidate) -> Result<Interpreter, CliError> {
        let version = self.shown_version();
        let shown = candidate.path.display();
        let ours = env!("CARGO_PKG_VERSION");
        if self.version < OLDEST {
            return Err(CliError::new(
                Code::Interpreter,
                format!("{shown} is Python {version}; 3.11 is the oldest that works"),
            )
            .with_detail("found by", candidate.place)
            .with_hint("name a newer one with `--python PATH`"));
        }
        let install = format!(
            "run `{shown} -m pip install {}`, which `{}` has made of the source",
            wheel::file(Some(ours)),
            wheel::BUILD
        );
        let Some(package) = &self.package else {
            return Err(CliError::new(
                Code::Interpreter,
                format!("{shown} does not have the package `justapi`"),
            )
            .with_detail("found by", candidate.place)
            .with_hint(format!("{install}, or name another with `--python PATH`")));
        };
        if minor_of(package) != minor_of(ours) {
            return Err(CliError::new(
                Code::Interpreter,
                format!("{shown} has `justapi` {package}, this is {ours}"),
            )
            .with_detail("found by", candidate.place)
            .with_hint(install));
        }
        Ok(Interpreter {
            package: package.clone(),
            path: PathBuf::from(self.executable),
            version,
            found_by: candidate.place,
        })
    }
}

/// `0.1` of `0.1.2`.
fn minor_of(version: &str) -> &str {
    let mut dots = version.match_indices('.').skip(1);
    dots.next().map_or(version, |(at, _)| &version[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(version: (u32, u32), package: Option<&str>) -> Answer {
        Answer {
            executable: "/bin/python".to_owned(),
            version,
            is_free_threaded: false,
            package: package.map(str::to_owned),
        }
    }

    fn check(answer: Answer) -> Result<String, String> {
        let candidate = Candidate {
            path: PathBuf::from("python"),
            place: "PATH",
        };
        answer
            .check(&candidate)
            .map(|found| found.version)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn version_and_package_have_to_fit() {
        let ours = env!("CARGO_PKG_VERSION");
        let check = |version, package| check(answer(version, package));
        assert_eq!(check((3, 13), Some(ours)), Ok("3.13".to_owned()));
        assert!(check((3, 10), Some(ours)).unwrap_err().contains("3.10"));
        assert!(check((3, 11), None).unwrap_err().contains("does not have"));
        assert!(check((3, 11), Some("999.0.1")).unwrap_err().contains("999"));
        assert_eq!(minor_of("0.1.22"), "0.1");
        assert_eq!(minor_of("1"), "1");
    }

    #[test]
    fn free_threaded_interpreters_are_named_so() {
        let mut free_threaded = answer((3, 14), Some(env!("CARGO_PKG_VERSION")));
        free_threaded.is_free_threaded = true;
        assert_eq!(check(free_threaded), Ok("3.14t".to_owned()));
    }
}
