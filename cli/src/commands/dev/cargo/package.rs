//! Which package is built, and with which cargo.
//!
//! Guarantee: nothing is run to find that out. What is wrong with a manifest is
//! for cargo to say, which says it to whoever asks for a page, too.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::build::find_file;
use crate::error::{CliError, Code};

/// Name of a manifest.
const MANIFEST: &str = "Cargo.toml";

/// What is built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Package {
    pub(crate) cargo: PathBuf,
    pub(crate) manifest: PathBuf,
    /// The binary that was asked for.
    pub(crate) bin: Option<String>,
    /// Whether what the compiler says has the colours of a terminal.
    pub(crate) has_color: bool,
    /// What it is called, if nobody has asked for one of its binaries.
    name: String,
}

impl Package {
    /// The package of a folder, or of a manifest; `None` where there is none.
    ///
    /// # Errors
    /// [`Code::Toolchain`]: cargo is missing. [`Code::Application`]: there is no
    /// package that could have the binary `bin`.
    pub(crate) fn of(path: &Path, bin: Option<String>) -> Result<Option<Self>, CliError> {
        match (manifest_of(path), bin) {
            (Some(manifest), bin) => Self::new(manifest, bin).map(Some),
            (None, None) => Ok(None),
            (None, Some(_)) => Err(CliError::new(
                Code::Application,
                format!("there is no {MANIFEST} in {}", path.display()),
            )
            .with_hint("`--bin NAME` is for packages of Rust: name the folder of one")),
        }
    }

    fn new(manifest: PathBuf, bin: Option<String>) -> Result<Self, CliError> {
        let name = Names::read(&manifest).name.unwrap_or_else(|| {
            let folder = manifest.parent().and_then(Path::file_name);
            folder.map_or_else(
                || MANIFEST.to_owned(),
                |name| name.to_string_lossy().into_owned(),
            )
        });
        Ok(Self {
            cargo: find_cargo()?,
            manifest,
            bin,
            has_color: false,
            name,
        })
    }

    /// A file that the program names as the compiler did.
    pub(crate) fn find_file(&self, named: &Path) -> Option<PathBuf> {
        find_file(&self.manifest, named)
    }

    /// What it is called in what is said of it.
    pub(crate) fn name(&self) -> &str {
        self.bin.as_deref().unwrap_or(&self.name)
    }
}

/// What a manifest says of names, as far as it can be read.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(super) struct Names {
    name: Option<String>,
    pub(super) default_run: Option<String>,
}

impl Names {
    pub(super) fn read(manifest: &Path) -> Self {
        #[derive(Deserialize)]
        struct Manifest {
            package: Names,
        }
        let text = fs::read_to_string(manifest).unwrap_or_default();
        toml::from_str::<Manifest>(&text).map_or_else(|_| Self::default(), |read| read.package)
    }
}

/// The manifest that is meant by a folder, or by its own path.
fn manifest_of(path: &Path) -> Option<PathBuf> {
    let inside = path.join(MANIFEST);
    if inside.is_file() {
        return Some(inside);
    }
    let is_one = path.file_name().is_some_and(|name| name == MANIFEST);
    (is_one && path.is_file()).then(|| path.to_owned())
}

/// Where cargo is, as a shell would find it.
fn find_cargo() -> Result<PathBuf, CliError> {
    let is_program = |path: &PathBuf| {
        let metadata = fs::metadata(path);
        metadata.is_ok_and(|one| one.is_file() && one.permissions().mode() & 0o111 != 0)
    };
    let path = env::var_os("PATH").unwrap_or_default();
    let mut found = env::split_paths(&path).map(|folder| folder.join("cargo"));
    found.find(is_program).ok_or_else(|| {
        CliError::new(
            Code::Toolchain,
            "cargo is missing, which builds applications in Rust",
        )
        .with_hint("install Rust from https://rustup.rs, or put the folder of cargo on PATH")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_and_manifests_name_packages() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let manifest = folder.path().join(MANIFEST);
        assert_eq!(manifest_of(folder.path()), None);
        fs::write(&manifest, "[package]\nname = \"x\"\ndefault-run = \"y\"\n").expect("a file");
        assert_eq!(manifest_of(folder.path()), Some(manifest.clone()));
        assert_eq!(manifest_of(&manifest), Some(manifest.clone()));
        assert_eq!(manifest_of(&folder.path().join("app.py")), None);
        let names = Names::read(&manifest);
        assert_eq!(names.name.as_deref(), Some("x"));
        assert_eq!(names.default_run.as_deref(), Some("y"));
        fs::write(&manifest, "[package").expect("a file");
        assert_eq!(Names::read(&manifest).name, None);
    }
}
