//! What `new` needs git for: a repository for the project, and templates that
//! are in one.
//!
//! Guarantee: no hook is run for a template, no variable of another repository
//! is obeyed, nobody waits for a password that nobody can type, and only the
//! project's own files are added.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Variables of git that are about the user, not about a repository.
const USERS_OWN: &[&str] = &[
    "GIT_ASKPASS",
    "GIT_AUTHOR_",
    "GIT_COMMITTER_",
    "GIT_CONFIG",
    "GIT_EXEC_PATH",
    "GIT_PROXY_",
    "GIT_SSH",
    "GIT_SSL_",
];

/// What became of the project's repository.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Repository {
    /// It was made, and has a commit or none.
    Made { is_committed: bool },
    /// The project is part of one already.
    Inside(PathBuf),
    /// Nobody wants one.
    Unwanted,
    /// There is no git.
    NoGit,
    /// git said no; what it said.
    Failed(String),
}

impl Repository {
    /// One word for scripts.
    pub(super) const fn word(&self) -> &'static str {
        match self {
            Self::Made {
                is_committed: false,
            } => "initialised",
            Self::Made { is_committed: true } => "committed",
            Self::Inside(_) => "inside",
            Self::Unwanted => "none",
            Self::NoGit => "missing",
            Self::Failed(_) => "failed",
        }
    }
}

/// The repository that a folder is in, itself included.
pub(super) fn repository_of(folder: &Path) -> Option<PathBuf> {
    let real = folder.canonicalize().ok()?;
    real.ancestors()
        .find(|ancestor| ancestor.join(".git").symlink_metadata().is_ok())
        .map(Path::to_owned)
}

/// Makes a repository of a folder, and adds `files` to it where the folder is the project's alone.
pub(super) fn make(
    folder: &Path,
    files: &[&str],
    is_alone: bool,
    commit: Option<&str>,
) -> Repository {
    let made = run(folder, ["init", "--quiet", "--initial-branch=main"])
        .and_then(|()| if is_alone { add(folder, files) } else { Ok(()) });
    match made {
        Err(Failure::NoGit) => return Repository::NoGit,
        Err(Failure::Said(text)) => {
            // Half a repository would be worse than none.
            drop(std::fs::remove_dir_all(folder.join(".git")));
            return Repository::Failed(text);
        }
        Ok(()) => {}
    }
    if commit.is_some() && !is_alone {
        let text = "nothing was committed, as the folder has other files as well";
        return Repository::Failed(text.to_owned());
    }
    match commit.map(|message| run(folder, ["commit", "--quiet", "--message", message])) {
        None => Repository::Made {
            is_committed: false,
        },
        Some(Ok(())) => Repository::Made { is_committed: true },
        // Without an identity there is a repository all the same.
        Some(Err(Failure::NoGit)) => Repository::NoGit,
        Some(Err(Failure::Said(text))) => Repository::Failed(text),
    }
}

/// Adds `files`, but those that are ignored: whatever else is there was not made here.
fn add(folder: &Path, files: &[&str]) -> Result<(), Failure> {
    let wanted: HashSet<&str> = files.iter().copied().collect();
    let list = ["ls-files", "-z", "--others", "--exclude-standard"];
    let found = output(folder, &list)?;
    let paths: String = found
        .split_inclusive('\0')
        .filter(|path| wanted.contains(path.trim_end_matches('\0')))
        .collect();
    let add = [
        "--literal-pathspecs",
        "add",
        "--pathspec-from-file=-",
        "--pathspec-file-nul",
    ];
    told(folder, &add, paths.as_bytes()).map(drop)
}

/// Why git did not do it.
#[derive(Debug)]
pub(super) enum Failure {
    /// There is no such program.
    NoGit,
    /// The last thing it said.
    Said(String),
}

/// Puts one state of a repository into an empty folder; its commit.
pub(super) fn fetch(url: &str, reference: &str, folder: &Path) -> Result<String, Failure> {
    // Hooks may come from the user's own folder of templates for repositories, too.
    run(folder, ["init", "--quiet", "--template="])?;
    let alone = ["-c", "submodule.recurse=false"];
    let fetch = [
        "fetch",
        "--quiet",
        "--depth=1",
        "--no-tags",
        "--",
        url,
        reference,
    ];
    run_all(folder, &[&alone[..], &fetch].concat())?;
    let checkout = ["checkout", "--quiet", "--detach", "FETCH_HEAD"];
    run_all(folder, &[&alone[..], &checkout].concat())?;
    let output = output(folder, &["rev-parse", "FETCH_HEAD"])?;
    Ok(output.trim().to_owned())
}

fn run<const N: usize>(folder: &Path, arguments: [&str; N]) -> Result<(), Failure> {
    run_all(folder, &arguments)
}

fn run_all(folder: &Path, arguments: &[&str]) -> Result<(), Failure> {
    output(folder, arguments).map(drop)
}

fn output(folder: &Path, arguments: &[&str]) -> Result<String, Failure> {
    told(folder, arguments, b"")
}

/// What git answers to `arguments` and an input that it reads whole before it writes.
fn told(folder: &Path, arguments: &[&str], input: &[u8]) -> Result<String, Failure> {
    let mut command = command(folder);
    command.args(arguments);
    if !input.is_empty() {
        command.stdin(Stdio::piped());
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = command.spawn().and_then(|mut child| {
        if let Some(mut writer) = child.stdin.take() {
            // One that has ended before says why.
            drop(writer.write_all(input));
        }
        child.wait_with_output()
    });
    let output = output.map_err(|error| {
        if error.kind() == io::ErrorKind::NotFound {
            Failure::NoGit
        } else {
            Failure::Said(error.to_string())
        }
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().rev().find(|line| !line.trim().is_empty());
    let line = line.unwrap_or("it said nothing").trim();
    Err(Failure::Said(line.trim_start_matches("fatal: ").to_owned()))
}

fn command(folder: &Path) -> Command {
    let mut command = Command::new("git");
    for (name, _) in std::env::vars_os() {
        if is_a_repositorys(&name) {
            command.env_remove(name);
        }
    }
    command
        // Where the user's own setting is relative, the folder of hooks is the template's.
        .args(["-c", "core.hooksPath=/dev/null"])
        .current_dir(folder)
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("LC_ALL", "C")
        .stdin(Stdio::null());
    command
}

/// Whether a variable would have git look at another repository than its folder's.
fn is_a_repositorys(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.starts_with("GIT_") && !USERS_OWN.iter().any(|own| name.starts_with(own))
}
