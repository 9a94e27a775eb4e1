//! Puts a project where it belongs.
//!
//! Guarantee: everything is written beside its place first. A new folder
//! appears by one rename. In a folder that exists, files are moved one by one,
//! nothing is overwritten (what is replaced is kept as `*.orig`), nothing is
//! reached through a link, and a failure moves everything back.

use std::ffi::OsString;
use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use justapi_templates::Rendered;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use crate::commands::new::git::{self, Repository};
use crate::commands::new::interruption::Interruption;
use crate::error::{CliError, Code, plain};
use crate::shell::quoted;

/// What a killed run may leave beside a project.
const STAGING_PREFIX: &str = ".justapi-new-";
/// What may be in a folder that is still empty to a person.
const HARMLESS: &[&str] = &[
    ".DS_Store",
    ".git",
    ".hg",
    ".idea",
    ".jj",
    ".venv",
    ".vscode",
    "COPYING",
    "LICENSE",
    "LICENSE.md",
    "LICENSE.txt",
    "venv",
];
/// The way into a folder that has something in it.
const FORCE_HINT: &str = "`--force` writes the template's files, keeps those it replaces as *.orig \
                          and removes nothing; `--dry-run` shows them";
/// How many names a message lists.
const MAX_LISTED: usize = 6;

/// Where a project goes, and what is there.
#[derive(Debug)]
pub(super) struct Destination {
    /// As the user would name it.
    pub(super) shown: PathBuf,
    /// The folder; absolute.
    path: PathBuf,
    /// Whether it is there already.
    pub(super) exists: bool,
}

/// What happens to one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    Create,
    /// It is there with the same content.
    Keep,
    /// Another is there, and goes to this path.
    Replace(PathBuf),
    /// Something is there that cannot be replaced.
    Blocked(&'static str),
}

impl Action {
    /// One word for scripts.
    pub(super) const fn word(&self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Keep => "keep",
            Self::Replace(_) => "replace",
            Self::Blocked(_) => "blocked",
        }
    }
}

/// What a project does to its destination.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    pub(super) files: Vec<(&'a Rendered, Action)>,
    /// Entries that are none of the project's.
    others: Vec<String>,
}

impl Destination {
    /// Looks at the folder that `target` names.
    ///
    /// # Errors
    /// [`Code::DestinationConflict`] for a file or a link, [`Code::DestinationUnwritable`] without
    /// a folder to put the project into.
    pub(super) fn look(target: &Path) -> Result<Self, CliError> {
        let shown = target.to_owned();
        if let Some(leads_to) = linked(target) {
            return Err(CliError::new(
                Code::DestinationConflict,
                format!(
                    "`{}` is a link to `{}`, and nothing is written through a link",
                    target.display(),
                    leads_to.display()
                ),
            )
            .with_hint(format!(
                "name the folder itself: `justapi new {}`",
                quoted(&leads_to.to_string_lossy())
            )));
        }
        match fs::metadata(target) {
            Ok(found) if found.is_dir() => {
                let path = target
                    .canonicalize()
                    .map_err(|error| unwritable(target, &error))?;
                Ok(Self {
                    shown,
                    path,
                    exists: true,
                })
            }
            Ok(_) => Err(CliError::new(
                Code::DestinationConflict,
                format!("`{}` is there, and is not a folder", target.display()),
            )
            .with_hint("choose another name")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // A link that leads nowhere is found by nobody but itself.
                if target.symlink_metadata().is_ok() {
                    return Err(CliError::new(
                        Code::DestinationConflict,
                        format!("`{}` is a link that leads nowhere", target.display()),
                    )
                    .with_hint("choose another name, or remove the link"));
                }
                Self::missing(target, shown)
            }
            Err(error) => Err(unwritable(target, &error)),
        }
    }

    /// Refuses a folder that has something in it, whatever a project would write there.
    ///
    /// # Errors
    /// [`Code::DestinationConflict`], [`Code::DestinationUnwritable`].
    pub(super) fn must_be_empty(&self) -> Result<(), CliError> {
        let names = self.entries()?;
        if names.is_empty() {
            return Ok(());
        }
        let message = format!("`{}` is not empty", self.shown.display());
        Err(CliError::new(Code::DestinationConflict, message)
            .with_detail("it has", listed(&names))
            .with_hint(FORCE_HINT))
    }

    /// What is in the folder and of interest to a person, in order.
    fn entries(&self) -> Result<Vec<String>, CliError> {
        if !self.exists {
            return Ok(Vec::new());
        }
        let failed = |error: io::Error| unwritable(&self.shown, &error);
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let name = name.to_string_lossy().into_owned();
            if !HARMLESS.contains(&name.as_str()) && !name.starts_with(STAGING_PREFIX) {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn missing(target: &Path, shown: PathBuf) -> Result<Self, CliError> {
        let parent = match target.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let real = parent.canonicalize().map_err(|error| {
            let quoted = quoted(&parent.to_string_lossy());
            unwritable(target, &error).with_hint(format!("make its folder: `mkdir -p {quoted}`"))
        })?;
        let name = target
            .file_name()
            .ok_or_else(|| unwritable(target, &io::Error::from(io::ErrorKind::NotFound)))?;
        Ok(Self {
            shown,
            path: real.join(name),
            exists: false,
        })
    }

    /// Folder and name as the system has them.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The repository that the project would be part of.
    pub(super) fn repository(&self) -> Option<PathBuf> {
        let folder = if self.exists {
            Some(self.path.as_path())
        } else {
            self.path.parent()
        };
        folder.and_then(git::repository_of)
    }

    /// What the files would do here.
    ///
    /// # Errors
    /// [`Code::DestinationUnwritable`] where the folder cannot be read.
    pub(super) fn plan<'a>(&self, files: &'a [Rendered]) -> Result<Plan<'a>, CliError> {
        let is_ours = |name: &String| {
            let below = format!("{name}/");
            let mut files = files.iter();
            files.any(|file| file.path == *name || file.path.starts_with(&below))
        };
        let mut others = self.entries()?;
        others.retain(|name| !is_ours(name));
        let files = files.iter().map(|file| {
            let action = if self.exists {
                self.action(file)
            } else {
                Action::Create
            };
            (file, action)
        });
        Ok(Plan {
            files: files.collect(),
            others,
        })
    }

    fn action(&self, file: &Rendered) -> Action {
        let mut path = self.path.clone();
        let mut parts = file.path.split('/').peekable();
        while let Some(part) = parts.next() {
            path.push(part);
            let is_last = parts.peek().is_none();
            let Ok(found) = path.symlink_metadata() else {
                // What cannot be looked at cannot be written either, and that is said there.
                return Action::Create;
            };
            if found.is_symlink() {
                return Action::Blocked("is a link, or is reached through one");
            }
            if !is_last && !found.is_dir() {
                return Action::Blocked("needs a folder where there is a file");
            }
            if is_last {
                return Self::action_at(&path, &found, file);
            }
        }
        Action::Create
    }

    fn action_at(path: &Path, found: &Metadata, file: &Rendered) -> Action {
        if found.is_dir() {
            return Action::Blocked("is a folder");
        }
        // A pipe would be waited for, for ever.
        if !found.is_file() {
            return Action::Blocked("is no plain file");
        }
        let is_as_long = found.len() == file.content.len() as u64;
        if is_as_long && fs::read(path).is_ok_and(|content| content == file.content) {
            Action::Keep
        } else {
            Action::Replace(free_name(path))
        }
    }

    /// Writes the project, and makes its repository with `make`.
    ///
    /// # Errors
    /// [`Code::DestinationUnwritable`] and [`Code::DestinationConflict`]; then nothing has changed.
    pub(super) fn put(
        &self,
        plan: &Plan<'_>,
        interruption: &Interruption,
        make: impl FnOnce(&Path) -> Repository,
    ) -> Result<Repository, CliError> {
        let failed = |error: io::Error| unwritable(&self.shown, &error);
        let beside = if self.exists {
            self.path.as_path()
        } else {
            self.path.parent().unwrap_or_else(|| Path::new("/"))
        };
        let staging = interruption
            .will_remove(|| {
                tempfile::Builder::new()
                    .prefix(STAGING_PREFIX)
                    .tempdir_in(beside)
            })
            .map_err(failed)?;
        // The outer folder is private, and the project must not be.
        let project = staging.path().join("project");
        for (file, action) in &plan.files {
            let _held = interruption.hold();
            if *action != Action::Keep {
                write(&project, file).map_err(failed)?;
            }
        }
        let _held = interruption.hold();
        if self.exists {
            move_into(&self.path, &project, plan).map_err(|error| self.moved(&error))?;
            // The repository of a folder that exists is made when the files are there, and without
            // our own.
            drop(fs::remove_dir_all(staging.path()));
            return Ok(make(&self.path));
        }
        let repository = make(&project);
        rename(&project, &self.path).map_err(|error| self.moved(&error))?;
        Ok(repository)
    }

    fn moved(&self, error: &io::Error) -> CliError {
        if error.kind() == io::ErrorKind::AlreadyExists {
            return CliError::new(
                Code::DestinationConflict,
                format!(
                    "something came to be in `{}` meanwhile; nothing was changed",
                    self.shown.display()
                ),
            )
            .with_hint("look at it, and try again");
        }
        unwritable(&self.shown, error)
    }
}

impl Plan<'_> {
    /// Whether the folder has nothing but the project.
    pub(super) fn is_alone(&self) -> bool {
        self.others.is_empty()
    }

    /// Why the project must not be put there; nothing where it may.
    pub(super) fn conflict(&self, shown: &Path, force: bool) -> Option<CliError> {
        let of = |is: fn(&Action) -> bool| -> Vec<String> {
            let found = self.files.iter().filter(|(_, action)| is(action));
            found.map(|(file, _)| file.path.clone()).collect()
        };
        let place = shown.display();
        if let Some((file, Action::Blocked(reason))) = self
            .files
            .iter()
            .find(|(_, action)| matches!(action, Action::Blocked(_)))
        {
            return Some(
                CliError::new(
                    Code::DestinationConflict,
                    format!(
                        "`{}` in `{place}` cannot be written: it {reason}",
                        file.path
                    ),
                )
                .with_hint("move it out of the way, or choose another folder"),
            );
        }
        if force {
            return None;
        }
        let replaced = of(|action| matches!(action, Action::Replace(_)));
        if replaced.is_empty() && self.others.is_empty() {
            return None;
        }
        let message = match replaced.len() {
            0 => format!("`{place}` is not empty"),
            1 => format!("`{place}` is not empty: 1 file of the template is there, and differs"),
            count => format!(
                "`{place}` is not empty: {count} files of the template are there, and differ"
            ),
        };
        let mut error = CliError::new(Code::DestinationConflict, message);
        if !replaced.is_empty() {
            error = error.with_detail("in the way", listed(&replaced));
        }
        if !self.others.is_empty() {
            error = error.with_detail("not ours", listed(&self.others));
        }
        Some(error.with_hint(FORCE_HINT))
    }
}

/// The folder that a link leads to.
fn linked(target: &Path) -> Option<PathBuf> {
    // A slash or a dot behind it would have the system look at what it leads to.
    let link: PathBuf = target.components().collect();
    let is_link = link
        .symlink_metadata()
        .is_ok_and(|found| found.is_symlink());
    let real = link.canonicalize().ok().filter(|real| real.is_dir())?;
    is_link.then_some(real)
}

fn listed(names: &[String]) -> String {
    let first = &names[..names.len().min(MAX_LISTED)];
    match names.len() - first.len() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// `x.orig`, or the first of `x.orig.1`, `x.orig.2`… that is free.
fn free_name(path: &Path) -> PathBuf {
    let named = |suffix: &str| {
        let mut name = OsString::from(path);
        name.push(suffix);
        PathBuf::from(name)
    };
    let first = named(".orig");
    let numbered = (1_u32..).map(|number| named(&format!(".orig.{number}")));
    std::iter::once(first)
        .chain(numbered)
        .find(|path| path.symlink_metadata().is_err())
        .expect("some number is free")
}

fn write(project: &Path, file: &Rendered) -> io::Result<()> {
    let path = project.join(&file.path);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    // Less what the user's umask takes away.
    let mode = if file.is_executable { 0o777 } else { 0o666 };
    let mut options = OpenOptions::new();
    let mut written = options.write(true).create_new(true).mode(mode).open(path)?;
    written.write_all(&file.content)
}

/// One step of putting files into a folder that exists.
enum Done {
    Moved { from: PathBuf, to: PathBuf },
    Made(PathBuf),
}

fn move_into(folder: &Path, project: &Path, plan: &Plan<'_>) -> io::Result<()> {
    let mut done = Vec::new();
    let moved = plan.files.iter().try_for_each(|(file, action)| {
        let to = folder.join(&file.path);
        let step = |from: PathBuf, to: PathBuf, done: &mut Vec<Done>| {
            rename(&from, &to)?;
            done.push(Done::Moved { from, to });
            Ok(())
        };
        match action {
            Action::Keep | Action::Blocked(_) => return Ok(()),
            Action::Create => make_folders(folder, &file.path, &mut done)?,
            Action::Replace(kept) => step(to.clone(), kept.clone(), &mut done)?,
        }
        step(project.join(&file.path), to, &mut done)
    });
    if moved.is_err() {
        // In the other direction; what fails now cannot be helped, and the first error says why.
        for step in done.into_iter().rev() {
            match step {
                Done::Moved { from, to } => drop(rename(&to, &from)),
                Done::Made(folder) => drop(fs::remove_dir(folder)),
            }
        }
    }
    moved
}

fn make_folders(folder: &Path, path: &str, done: &mut Vec<Done>) -> io::Result<()> {
    for (end, _) in path.match_indices('/') {
        let inside = folder.join(&path[..end]);
        match fs::create_dir(&inside) {
            Ok(()) => done.push(Done::Made(inside)),
            // A link that came meanwhile would lead out.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if !inside.symlink_metadata()?.is_dir() {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Renames, and never over something that is there.
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Not every file system can promise it.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            if to.symlink_metadata().is_ok() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            fs::rename(from, to)
        }
        renamed => renamed.map_err(Into::into),
    }
}

fn unwritable(target: &Path, error: &io::Error) -> CliError {
    let report = CliError::new(
        Code::DestinationUnwritable,
        format!("cannot make `{}`: {}", target.display(), plain(error)),
    );
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            report.with_hint("choose a folder that you may write to")
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            report.with_hint("make room on the disk, or choose a folder on another")
        }
        io::ErrorKind::InvalidFilename => report.with_hint("choose a shorter name"),
        _ => report,
    }
}
