//! How this program came to where it is: by the installer, in a wheel, or otherwise.
//!
//! Guarantee: what a package manager has put here is never said to be the installer's.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::shell::quoted_path;
use crate::wheel;

/// Who put this program here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Installation {
    /// A package manager, with the Python package.
    Wheel(Wheel),
    /// `install.sh`, which keeps a receipt.
    Installer(Receipt),
    /// Somebody else: `cargo install`, a build in a checkout, an image. The receipt is that of an
    /// installation elsewhere, if there is one.
    Other(Option<Receipt>),
}

/// The environment that a wheel was installed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wheel {
    /// Its interpreter.
    python: Option<PathBuf>,
    manager: Manager,
}

/// The program that manages the environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manager {
    Pip,
    Uv,
    UvTool,
    Pipx,
}

/// What `install.sh` has written down.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Receipt {
    /// Where it was read.
    #[serde(skip)]
    pub(super) path: PathBuf,
    pub(super) version: String,
    pub(super) source: String,
    #[serde(default)]
    pub(super) files: Vec<PathBuf>,
    #[serde(default)]
    pub(super) path_lines: Vec<PathLine>,
}

/// A line that the installer has added to a start-up file of a shell.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct PathLine {
    pub(super) file: PathBuf,
    pub(super) line: String,
}

impl Installation {
    /// Looks at the program that runs.
    pub(super) fn of_this_program() -> Self {
        let program = env::current_exe()
            .and_then(fs::canonicalize)
            .unwrap_or_default();
        let receipt = receipt_path().and_then(|path| Receipt::read(&path));
        Self::of(&program, receipt)
    }

    fn of(program: &Path, receipt: Option<Receipt>) -> Self {
        if let Some(wheel) = Wheel::of(program) {
            return Self::Wheel(wheel);
        }
        let is_listed = |receipt: &Receipt| {
            let mut files = receipt.files.iter();
            files.any(|file| fs::canonicalize(file).is_ok_and(|file| file == program))
        };
        match receipt {
            Some(receipt) if is_listed(&receipt) => Self::Installer(receipt),
            other => Self::Other(other),
        }
    }
}

impl Wheel {
    /// The wheel whose record lists `program`.
    ///
    /// Both an installer and `pip install --user` write to `~/.local/bin`: the last one counts,
    /// which is the wheel when the size is the recorded one.
    fn of(program: &Path) -> Option<Self> {
        let folder = program.parent()?;
        let root = folder.parent()?;
        let length = fs::metadata(program).ok()?.len().to_string();
        let info = dist_infos(root).into_iter().find(|info| {
            let record = fs::read_to_string(info.join("RECORD")).unwrap_or_default();
            record.lines().any(|line| {
                let mut fields = line.rsplitn(3, ',');
                let (size, _, path) = (fields.next(), fields.next(), fields.next());
                let named =
                    path.map(|path| resolved(&info.join("..").join(path.trim_matches('"'))));
                named.as_deref() == Some(program) && size == Some(length.as_str())
            })
        })?;
        let installer = fs::read_to_string(info.join("INSTALLER")).unwrap_or_default();
        let has_part = |a: &str, b: &str| {
            let names: Vec<_> = root.iter().filter_map(|name| name.to_str()).collect();
            names.windows(2).any(|pair| pair == [a, b])
        };
        let manager = if has_part("uv", "tools") {
            Manager::UvTool
        } else if has_part("pipx", "venvs") {
            Manager::Pipx
        } else if installer.trim() == "uv" {
            Manager::Uv
        } else {
            Manager::Pip
        };
        let python = ["python3", "python"].map(|name| folder.join(name));
        Some(Self {
            python: python.into_iter().find(|path| path.is_file()),
            manager,
        })
    }

    /// The command that updates it.
    pub(super) fn update(&self, version: Option<&str>) -> String {
        let package = wheel::file(version);
        match (self.manager, &self.python) {
            (Manager::UvTool, _) => format!("uv tool install --force {package}"),
            (Manager::Pipx, _) => format!("pipx install --force {package}"),
            (Manager::Uv, Some(python)) => {
                format!(
                    "uv pip install --python {} -U {package}",
                    quoted_path(python)
                )
            }
            (Manager::Uv, None) => format!("uv pip install -U {package}"),
            (Manager::Pip, Some(python)) => {
                format!("{} -m pip install -U {package}", quoted_path(python))
            }
            (Manager::Pip, None) => format!("pip install -U {package}"),
        }
    }

    /// The command that removes it.
    pub(super) fn uninstall(&self) -> String {
        match (self.manager, &self.python) {
            (Manager::UvTool, _) => "uv tool uninstall justapi".to_owned(),
            (Manager::Pipx, _) => "pipx uninstall justapi".to_owned(),
            (Manager::Uv, Some(python)) => {
                format!("uv pip uninstall --python {} justapi", quoted_path(python))
            }
            (Manager::Uv, None) => "uv pip uninstall justapi".to_owned(),
            (Manager::Pip, Some(python)) => {
                format!("{} -m pip uninstall justapi", quoted_path(python))
            }
            (Manager::Pip, None) => "pip uninstall justapi".to_owned(),
        }
    }
}

impl Receipt {
    fn read(path: &Path) -> Option<Self> {
        let text = fs::read_to_string(path).ok()?;
        let receipt: Self = serde_json::from_str(&text).ok()?;
        Some(Self {
            path: path.to_owned(),
            ..receipt
        })
    }

    /// The program that it lists.
    pub(super) fn program(&self) -> Option<&Path> {
        let mut files = self.files.iter();
        files
            .find(|file| file.file_name().is_some_and(|name| name == "justapi"))
            .map(PathBuf::as_path)
    }
}

/// Where `install.sh` keeps its receipt.
pub(super) fn receipt_path() -> Option<PathBuf> {
    let data = env::var_os("XDG_DATA_HOME").map(PathBuf::from);
    // The base directory specification says to ignore a relative path.
    let data = data.filter(|path| path.is_absolute());
    let data = data.or_else(|| Some(env::home_dir()?.join(".local/share")))?;
    Some(data.join("justapi/receipt.json"))
}

/// The path without `..` and symbolic links, or as it is when it is nowhere.
fn resolved(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// `justapi-*.dist-info` of all Pythons below a root such as an environment.
fn dist_infos(root: &Path) -> Vec<PathBuf> {
    let names = |folder: PathBuf| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let mut found = Vec::new();
    for library in ["lib", "lib64"] {
        for python in names(root.join(library)) {
            for packages in ["site-packages", "dist-packages"] {
                found.extend(names(python.join(packages)).into_iter().filter(|path| {
                    let name = path.file_name().and_then(|name| name.to_str());
                    name.is_some_and(|name| {
                        name.starts_with("justapi-") && name.ends_with(".dist-info")
                    })
                }));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An environment with a program, recorded with a size, and an installer.
    fn environment(folder: &Path, size: u64, installer: &str) -> PathBuf {
        let info = folder.join("lib/python3.12/site-packages/justapi-0.1.0.dist-info");
        fs::create_dir_all(&info).unwrap();
        fs::create_dir_all(folder.join("bin")).unwrap();
        let program = folder.join("bin/justapi");
        fs::write(&program, "12345").unwrap();
        fs::write(folder.join("bin/python3"), "").unwrap();
        fs::write(info.join("INSTALLER"), installer).unwrap();
        let record = format!("justapi/a.py,sha256=x,3\n../../../bin/justapi,sha256=y,{size}\n");
        fs::write(info.join("RECORD"), record).unwrap();
        fs::canonicalize(program).unwrap()
    }

    fn receipt(files: &[&Path]) -> Receipt {
        Receipt {
            path: PathBuf::new(),
            version: "0.1.0".to_owned(),
            source: "checkout".to_owned(),
            files: files.iter().map(|file| (*file).to_owned()).collect(),
            path_lines: Vec::new(),
        }
    }

    #[test]
    fn wheels_are_known_by_their_record() {
        for (below, installer, expected) in [
            (
                "venv",
                "pip\n",
                "bin/python3 -m pip install -U wheels/justapi-*.whl",
            ),
            ("venv", "uv", "bin/python3 -U wheels/justapi-*.whl"),
            (
                "uv/tools/justapi",
                "uv",
                "uv tool install --force wheels/justapi-*.whl",
            ),
            (
                "pipx/venvs/justapi",
                "pip",
                "pipx install --force wheels/justapi-*.whl",
            ),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let program = environment(&folder.path().join(below), 5, installer);
            let Installation::Wheel(wheel) = Installation::of(&program, None) else {
                panic!("{below} is a wheel");
            };
            let command = wheel.update(None);
            assert!(command.ends_with(expected), "{command}");
            assert!(
                wheel
                    .update(Some("9.1"))
                    .contains("wheels/justapi-9.1-*.whl")
            );
        }
    }

    #[test]
    fn the_last_one_who_wrote_the_program_counts() {
        let folder = tempfile::tempdir().unwrap();
        let program = environment(folder.path(), 5, "pip");
        let listed = receipt(&[&program]);
        let of = |receipt| Installation::of(&program, receipt);
        assert!(matches!(of(Some(listed.clone())), Installation::Wheel(_)));
        fs::write(&program, "another program").unwrap();
        assert_eq!(of(Some(listed.clone())), Installation::Installer(listed));
        let elsewhere = receipt(&[Path::new("/nowhere/justapi")]);
        assert_eq!(
            of(Some(elsewhere.clone())),
            Installation::Other(Some(elsewhere))
        );
        assert_eq!(of(None), Installation::Other(None));
    }
}
