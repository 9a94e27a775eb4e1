//! Finds the Python interpreter that workers run on.
//!
//! Guarantee: no file of the project is executed by looking, and the one that
//! is taken has this version of the package `justapi`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::error::{CliError, Code};

/// What an interpreter is asked: isolated from the environment and the folder.
const PROBE: &str = "import json, sys
try:
    from justapi import _core
    package = _core.VERSION
except ImportError as error:
    package = None
print(json.dumps({'executable': sys.executable, 'version': sys.version_info[:2], 'package': package}))
";
/// Oldest version that the package supports.
const OLDEST: (u32, u32) = (3, 11);

/// An interpreter that can run workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Interpreter {
    pub(super) path: PathBuf,
    /// `3.11` and the like.
    pub(super) version: String,
}

#[derive(Debug, Deserialize)]
struct Answer {
    executable: String,
    version: (u32, u32),
    package: Option<String>,
}

/// Where an interpreter was looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Candidate {
    path: PathBuf,
    place: &'static str,
}

/// Finds an interpreter; `asked` is the user's own choice.
///
/// # Errors
/// [`Code::Interpreter`] when none can run the package.
pub(super) fn find(asked: Option<&Path>) -> Result<Interpreter, CliError> {
    if let Some(path) = asked {
        let candidate = Candidate {
            path: path.to_owned(),
            place: "--python",
        };
        return probe(&candidate)?.check(&candidate);
    }
    let mut first = None;
    for candidate in candidates() {
        let Ok(answer) = probe(&candidate) else {
            continue;
        };
        match answer.check(&candidate) {
            Ok(interpreter) => return Ok(interpreter),
            // What stands first is what the user most likely meant.
            Err(error) => drop(first.get_or_insert(error)),
        }
    }
    Err(first.unwrap_or_else(|| {
        CliError::new(Code::Interpreter, "there is no Python interpreter")
            .with_hint("install Python 3.11 or newer, or name one with `--python PATH`")
    }))
}

/// Interpreters by the likelihood that they are meant.
fn candidates() -> Vec<Candidate> {
    let mut found = Vec::new();
    let mut add = |folder: Option<PathBuf>, place| {
        for name in ["python3", "python"] {
            let path = folder.as_ref().map(|folder| folder.join(name));
            if let Some(path) = path.filter(|path| path.is_file()) {
                found.push(Candidate { path, place });
                return;
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
    if let Ok(start) = env::current_dir() {
        for folder in start.ancestors() {
            add(Some(folder.join(".venv/bin")), ".venv");
            add(Some(folder.join("venv/bin")), "venv");
            if folder.join(".git").exists() {
                break;
            }
        }
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

fn probe(candidate: &Candidate) -> Result<Answer, CliError> {
    let failed = |cause: &str| {
        CliError::new(
            Code::Interpreter,
            format!("{} cannot be used", candidate.path.display()),
        )
        .with_detail("cause", cause)
        .with_hint("`--python` names a Python interpreter, 3.11 or newer")
    };
    let output = Command::new(&candidate.path)
        .args(["-I", "-c", PROBE])
        .output()
        .map_err(|error| failed(&error.to_string()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last).map_err(|_| failed(String::from_utf8_lossy(&output.stderr).trim()))
}

impl Answer {
    fn check(self, candidate: &Candidate) -> Result<Interpreter, CliError> {
        let (major, minor) = self.version;
        let shown = candidate.path.display();
        let ours = env!("CARGO_PKG_VERSION");
        if self.version < OLDEST {
            return Err(CliError::new(
                Code::Interpreter,
                format!("{shown} is Python {major}.{minor}; 3.11 is the oldest that works"),
            )
            .with_detail("found by", candidate.place)
            .with_hint("name a newer one with `--python PATH`"));
        }
        let install = format!("run `{shown} -m pip install 'justapi=={ours}'`");
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
            path: PathBuf::from(self.executable),
            version: format!("{major}.{minor}"),
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

    fn check(version: (u32, u32), package: Option<&str>) -> Result<String, String> {
        let answer = Answer {
            executable: "/bin/python".to_owned(),
            version,
            package: package.map(str::to_owned),
        };
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
        assert_eq!(check((3, 13), Some(ours)), Ok("3.13".to_owned()));
        assert!(check((3, 10), Some(ours)).unwrap_err().contains("3.10"));
        assert!(check((3, 11), None).unwrap_err().contains("does not have"));
        assert!(check((3, 11), Some("999.0.1")).unwrap_err().contains("999"));
        assert_eq!(minor_of("0.1.22"), "0.1");
        assert_eq!(minor_of("1"), "1");
    }
}
