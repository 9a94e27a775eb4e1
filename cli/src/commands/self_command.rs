//! `justapi self`: updates what `install.sh` has installed, or removes it.
//!
//! Guarantee: the work is the installer's own, of which a copy is inside this program: an archive
//! needs its checksum, and what is removed is what the receipt lists. What a package manager has
//! installed is left to it.

use std::env;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use serde_json::json;

use super::installation::{Installation, Receipt, receipt_path};
use crate::application_args::SelfCommand;
use crate::error::{CliError, Code};
use crate::shell::quoted_path;
use crate::ui::Ui;
use crate::wheel;

/// The installer, as it is beside the sources.
const INSTALLER: &str = include_str!("../../../install.sh");
/// Variable that names the directory of release archives.
const URL: &str = "JUSTAPI_DOWNLOAD_URL";
/// Version of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(crate) fn self_command(ui: &Ui, command: &SelfCommand) -> Result<u8, CliError> {
    let installation = Installation::of_this_program();
    match command {
        SelfCommand::Update { version, dry_run } => {
            let version = version.as_deref().map(|text| text.trim_start_matches('v'));
            update(ui, &installation, version, *dry_run)
        }
        SelfCommand::Uninstall { dry_run } => uninstall(ui, &installation, *dry_run),
    }
}

fn update(
    ui: &Ui,
    installation: &Installation,
    version: Option<&str>,
    dry_run: bool,
) -> Result<u8, CliError> {
    let receipt = match installation {
        Installation::Installer(receipt) => receipt,
        Installation::Wheel(installed) => {
            let source = format!("`{}` makes it of the source", wheel::BUILD);
            return Err(managed(&installed.update(version)).with_detail("wheel", source));
        }
        Installation::Other(receipt) => return Err(not_installed(receipt.as_ref(), "update")),
    };
    let url = env::var(URL).unwrap_or_default();
    if url.is_empty() {
        return Err(no_release(receipt));
    }
    let Some(version) = version else {
        return Err(CliError::new(
            Code::NoRelease,
            "a directory of release archives does not say which version is the newest",
        )
        .with_detail("installed", VERSION)
        .with_hint("name the version: `justapi self update VERSION`"));
    };
    if version.is_empty() || !version.bytes().all(is_of_version) {
        return Err(
            CliError::new(Code::Usage, format!("`{version}` is not a version"))
                .with_hint("a version is such as 0.2.0"),
        );
    }
    let program = receipt.program().unwrap_or_else(|| Path::new("justapi"));
    let shown = program.display().to_string();
    if version == VERSION {
        ui.event(
            "unchanged",
            json!({"version": VERSION, "program": shown}),
            &format!("justapi {VERSION} is installed already\n"),
        )?;
        return Ok(0);
    }
    let archive = format!(
        "{}/justapi-{version}-{}-unknown-linux-musl.tar.gz",
        url.trim_end_matches('/'),
        env::consts::ARCH
    );
    if dry_run {
        ui.event(
            "would_update",
            json!({"from": VERSION, "to": version, "archive": archive, "program": shown}),
            &format!("would fetch {archive} and its checksum, and replace {shown} ({VERSION})\n"),
        )?;
        return Ok(0);
    }
    let folder = program.parent().unwrap_or_else(|| Path::new("/"));
    run_installer(
        // What PATH lines there are the receipt knows; an update adds none.
        &["--version", version, "--no-modify-path"],
        Some(folder),
        "the reason stands above; the program is the one that it was",
    )?;
    ui.event(
        "updated",
        json!({"from": VERSION, "to": version, "program": shown}),
        &format!("justapi {VERSION} is now {version}\n"),
    )?;
    Ok(0)
}

const fn is_of_version(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'+' | b'-')
}

fn uninstall(ui: &Ui, installation: &Installation, dry_run: bool) -> Result<u8, CliError> {
    let receipt = match installation {
        Installation::Installer(receipt) => receipt,
        Installation::Wheel(wheel) => return Err(managed(&wheel.uninstall())),
        Installation::Other(receipt) => return Err(not_installed(receipt.as_ref(), "uninstall")),
    };
    if dry_run {
        let files: Vec<_> = receipt
            .files
            .iter()
            .map(|file| file.display().to_string())
            .collect();
        let lines: Vec<_> = receipt
            .path_lines
            .iter()
            .map(|one| format!("{}: {}", one.file.display(), one.line))
            .collect();
        let removed = files.iter().map(|file| format!("would remove {file}\n"));
        let cut = lines
            .iter()
            .map(|line| format!("would remove from {line}\n"));
        let human = removed.chain(cut).collect::<Vec<_>>().concat();
        ui.event(
            "would_uninstall",
            json!({"files": files, "lines": lines}),
            &human,
        )?;
        return Ok(0);
    }
    run_installer(
        &["--uninstall"],
        None,
        "the reason stands above; run it again once that is put right",
    )?;
    ui.event("uninstalled", json!({"files": receipt.files}), "")?;
    Ok(0)
}

/// Runs the installer; what it says goes to standard error.
fn run_installer(arguments: &[&str], folder: Option<&Path>, hint: &str) -> Result<(), CliError> {
    let failed = |error: &io::Error| {
        CliError::new(Code::InstallerFailed, "the installer cannot be run").with_cause(error)
    };
    let mut command = Command::new("sh");
    // The script comes over standard input, so that none has to be written to a disk.
    command
        .args(["-s", "--"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::from(io::stderr()));
    if let Some(folder) = folder {
        command.env("JUSTAPI_INSTALL_DIR", folder);
    }
    // It has no receipt to look for but the one that was found.
    if env::var_os("HOME").is_none()
        && let Some(home) = env::home_dir()
    {
        command.env("HOME", home);
    }
    let mut child = command.spawn().map_err(|error| failed(&error))?;
    let stdin = child.stdin.take();
    let writer = thread::spawn(move || {
        // One that ends early says itself why.
        stdin.map(|mut stdin| stdin.write_all(INSTALLER.as_bytes()))
    });
    let status = child.wait().map_err(|error| failed(&error))?;
    drop(writer.join());
    if status.success() {
        return Ok(());
    }
    Err(
        CliError::new(Code::InstallerFailed, "the installer has failed")
            .with_detail("status", status.to_string())
            .with_hint(hint),
    )
}

fn managed(command: &str) -> CliError {
    CliError::new(
        Code::ManagedInstallation,
        "this program is part of the Python package `justapi`, and its package manager keeps it",
    )
    .with_hint(format!("run `{command}`"))
}

fn not_installed(receipt: Option<&Receipt>, what: &str) -> CliError {
    let program = env::current_exe().unwrap_or_default();
    let error = CliError::new(
        Code::NotInstalled,
        format!("install.sh did not install {}", program.display()),
    );
    let other = receipt.and_then(Receipt::program);
    match other {
        Some(other) if other.is_file() => error.with_hint(format!(
            "the installed one is another: run `{} self {what}`",
            quoted_path(other)
        )),
        _ => {
            let path = receipt_path().unwrap_or_default();
            error
                .with_detail("receipt", format!("there is none at {}", path.display()))
                .with_hint(match what {
                    "update" => {
                        "build it again from its sources, or install a release with install.sh"
                    }
                    _ => "remove it in the way in which it was put there",
                })
        }
    }
}

/// That nothing can be fetched, and what can be done instead.
fn no_release(receipt: &Receipt) -> CliError {
    let hint = match receipt.source.strip_prefix("checkout ") {
        Some(checkout) => format!(
            "it was built from {}: update the sources there, and run `sh {}`",
            checkout,
            quoted_path(&Path::new(checkout).join("install.sh"))
        ),
        None => format!("set `{URL}` to the directory of the release archives"),
    };
    CliError::new(
        Code::NoRelease,
        format!("there is no release to update from: {URL} is not set"),
    )
    .with_detail(
        "installed",
        format!("{} from {}", receipt.version, receipt.source),
    )
    .with_hint(hint)
}
