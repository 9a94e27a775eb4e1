//! Which files matter, and what a change of theirs means.
//!
//! Guarantee: what a tool or the application itself writes beside the sources
//! (environments, caches, databases, logs, the swap files of editors) is
//! nothing, whatever the project's own ignore files say.

use std::path::{Path, PathBuf};

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::error::{CliError, Code};

/// Folders that hold no sources of the project, by name.
const EXCLUDED_FOLDERS: [&str; 21] = [
    ".cache",
    ".direnv",
    ".eggs",
    ".git",
    ".hg",
    ".hypothesis",
    ".idea",
    ".ipynb_checkpoints",
    ".mypy_cache",
    ".nox",
    ".pytest_cache",
    ".ruff_cache",
    ".svn",
    ".tox",
    ".venv",
    "__pycache__",
    "bower_components",
    "node_modules",
    "site-packages",
    "target",
    "venv",
];
/// In a folder of what can be made anew at any time, see <https://bford.info/cachedir/>.
const CACHE_TAG: &str = "CACHEDIR.TAG";
const TEMPLATES: [&str; 8] = [
    "htm", "html", "j2", "jinja", "jinja2", "mako", "md", "mustache",
];
const ASSETS: [&str; 16] = [
    "avif", "gif", "ico", "jpeg", "jpg", "js", "map", "mjs", "png", "svg", "ttf", "wasm", "webp",
    "woff", "woff2", "xml",
];
/// Begins the name of a lock of Emacs.
const EMACS_LOCK: &str = ".#";
/// Where Vim tries whether it may write.
const VIM_PROBE: &str = "4913";

/// What a change means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A style sheet: a page takes the new one as it is.
    Style,
    /// What a page is made of: it loads anew.
    Page,
    /// A program: it starts anew.
    Code,
    /// The settings: they are read anew.
    Settings,
}

/// Language that a project is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    Python,
    Rust,
}

/// Folders of a package in Rust that are built for tests and the like alone.
const BESIDE_SOURCES: [&str; 3] = ["benches", "examples", "tests"];

impl Language {
    /// Whether a file is one that new code may come of; `inside` counts from the
    /// root of the project.
    fn is_code(self, inside: &Path, name: &str) -> bool {
        let extension = inside.extension().and_then(|extension| extension.to_str());
        match self {
            Self::Python => extension == Some("py") && !is_test(name),
            Self::Rust => match (extension, name) {
                (Some("rs"), _) => !is_beside_sources(inside),
                (_, "Cargo.toml" | "Cargo.lock" | "rust-toolchain.toml" | "rust-toolchain") => true,
                (_, "config.toml") => inside
                    .parent()
                    .is_some_and(|folder| folder.ends_with(".cargo")),
                _ => false,
            },
        }
    }
}

fn is_beside_sources(inside: &Path) -> bool {
    let mut folders = inside.iter().filter_map(|folder| folder.to_str());
    folders
        .find(|folder| *folder == "src" || BESIDE_SOURCES.contains(folder))
        .is_some_and(|folder| folder != "src")
}

/// The rules of one project.
#[derive(Debug)]
pub(crate) struct Rules {
    /// Files of settings, wherever they are.
    settings: Vec<PathBuf>,
    ignored: Gitignore,
    included: Gitignore,
    root: PathBuf,
    language: Language,
}

impl Rules {
    /// `ignored` and `included` are patterns as in a `.gitignore` of `root`.
    ///
    /// # Errors
    /// A pattern is none.
    pub(crate) fn new(
        root: &Path,
        settings: Vec<PathBuf>,
        ignored: &[String],
        included: &[String],
        language: Language,
    ) -> Result<Self, CliError> {
        Ok(Self {
            settings,
            ignored: patterns(root, "--reload-ignore", ignored)?,
            included: patterns(root, "--reload-include", included)?,
            root: root.to_owned(),
            language,
        })
    }

    /// Whether no file of a folder matters.
    pub(crate) fn excludes_folder(&self, path: &Path) -> bool {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| EXCLUDED_FOLDERS.contains(&name) || name.ends_with(".egg-info"))
            || ["pyvenv.cfg", CACHE_TAG]
                .iter()
                .any(|name| path.join(name).is_file())
            || is_matched(&self.ignored, path, true)
    }

    /// What a change of a file means, if it means anything.
    ///
    /// `is_loaded`: the application has been seen to load it.
    pub(crate) fn kind(&self, path: &Path, is_loaded: bool) -> Option<Kind> {
        if self.settings.iter().any(|one| one == path) {
            return Some(Kind::Settings);
        }
        if is_loaded {
            return Some(Kind::Code);
        }
        let name = path.file_name()?.to_str()?;
        if is_temporary(name) || is_matched(&self.ignored, path, false) {
            return None;
        }
        if is_matched(&self.included, path, false) {
            return Some(Kind::Code);
        }
        if self
            .language
            .is_code(path.strip_prefix(&self.root).unwrap_or(path), name)
        {
            return Some(Kind::Code);
        }
        let extension = path.extension()?.to_str()?;
        match extension {
            "css" => Some(Kind::Style),
            _ if TEMPLATES.contains(&extension) || ASSETS.contains(&extension) => Some(Kind::Page),
            _ => None,
        }
    }
}

fn patterns(root: &Path, flag: &str, patterns: &[String]) -> Result<Gitignore, CliError> {
    let mut builder = GitignoreBuilder::new(root);
    let failed = |error: ignore::Error| {
        CliError::new(Code::Usage, format!("{flag}: {error}"))
            .with_hint("it takes patterns as a .gitignore has them, such as 'data/**'")
    };
    for pattern in patterns {
        builder.add_line(None, pattern).map_err(failed)?;
    }
    builder.build().map_err(failed)
}

fn is_matched(patterns: &Gitignore, path: &Path, is_folder: bool) -> bool {
    // It panics at what is not below its root.
    !patterns.is_empty()
        && path.starts_with(patterns.path())
        && patterns
            .matched_path_or_any_parents(path, is_folder)
            .is_ignore()
}

/// What an editor has for a moment beside the file that it saves.
fn is_temporary(name: &str) -> bool {
    name == VIM_PROBE
        || name.starts_with(EMACS_LOCK)
        || name.starts_with('#') && name.ends_with('#')
        || name.ends_with('~')
        || name.ends_with("___jb_tmp___")
        || name.ends_with("___jb_old___")
        || name.starts_with('.') && name.contains(".sw")
}

/// Whether only a test runner loads it: what is served does not change with it.
fn is_test(name: &str) -> bool {
    name.starts_with("test_") || name.ends_with("_test.py") || name == "conftest.py"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(ignored: &[&str], included: &[&str]) -> Rules {
        let owned = |patterns: &[&str]| patterns.iter().map(|one| (*one).to_owned()).collect();
        let (ignored, included): (Vec<_>, Vec<_>) = (owned(ignored), owned(included));
        let settings = vec![PathBuf::from("/p/.env")];
        let root = Path::new("/p");
        Rules::new(root, settings, &ignored, &included, Language::Python).expect("patterns")
    }

    #[test]
    fn files_mean_what_they_are() {
        let rules = rules(&[], &[]);
        for (path, expected) in [
            ("/p/app.py", Some(Kind::Code)),
            ("/p/a b/ü.py", Some(Kind::Code)),
            ("/p/.env", Some(Kind::Settings)),
            ("/p/sub/.env", None),
            ("/p/templates/x.html", Some(Kind::Page)),
            ("/p/static/x.css", Some(Kind::Style)),
            ("/p/static/x.js", Some(Kind::Page)),
            ("/p/x.db", None),
            ("/p/x.db-wal", None),
            ("/p/app.log", None),
            ("/p/data.json", None),
            ("/p/README", None),
            ("/p/.#app.py", None),
            ("/p/app.py~", None),
            ("/p/.app.py.swp", None),
            ("/p/4913", None),
            ("/p/app.py___jb_tmp___", None),
            ("/p/test_app.py", None),
            ("/p/conftest.py", None),
        ] {
            assert_eq!(rules.kind(Path::new(path), false), expected, "{path}");
        }
        let loaded = rules.kind(Path::new("/p/test_app.py"), true);
        assert_eq!(loaded, Some(Kind::Code));
    }

    #[test]
    fn sources_of_rust_are_what_a_binary_is_built_of() {
        let rules = Rules::new(Path::new("/p"), Vec::new(), &[], &[], Language::Rust);
        let rules = rules.expect("no patterns");
        for (path, expected) in [
            ("/p/src/main.rs", Some(Kind::Code)),
            ("/p/build.rs", Some(Kind::Code)),
            ("/p/Cargo.toml", Some(Kind::Code)),
            ("/p/Cargo.lock", Some(Kind::Code)),
            ("/p/.cargo/config.toml", Some(Kind::Code)),
            ("/p/rust-toolchain.toml", Some(Kind::Code)),
            ("/p/crates/a/src/tests/mod.rs", Some(Kind::Code)),
            ("/elsewhere/src/lib.rs", Some(Kind::Code)),
            ("/p/tests/api.rs", None),
            ("/p/crates/a/benches/b.rs", None),
            ("/p/examples/x/main.rs", None),
            ("/p/config.toml", None),
            ("/p/app.py", None),
            ("/p/src/schema.sql", None),
            ("/p/.#main.rs", None),
            ("/p/templates/x.html", Some(Kind::Page)),
            ("/p/static/x.css", Some(Kind::Style)),
        ] {
            assert_eq!(rules.kind(Path::new(path), false), expected, "{path}");
        }
        // What the compiler has read.
        let loaded = rules.kind(Path::new("/p/src/schema.sql"), true);
        assert_eq!(loaded, Some(Kind::Code));
    }

    #[test]
    fn patterns_have_the_last_word() {
        let rules = rules(&["data/**", "!data/keep.py"], &["*.yaml"]);
        for (path, expected) in [
            ("/p/data/deep/x.py", None),
            ("/p/data/keep.py", Some(Kind::Code)),
            ("/p/settings.yaml", Some(Kind::Code)),
            ("/elsewhere/x.py", Some(Kind::Code)),
        ] {
            assert_eq!(rules.kind(Path::new(path), false), expected, "{path}");
        }
    }

    #[test]
    fn environments_are_no_sources() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let rules = rules(&[], &[]);
        for name in [".venv", "node_modules", "a.egg-info", "__pycache__"] {
            assert!(rules.excludes_folder(&folder.path().join(name)), "{name}");
        }
        let odd = folder.path().join("my-env");
        std::fs::create_dir(&odd).expect("a folder");
        assert!(!rules.excludes_folder(&odd));
        std::fs::write(odd.join("pyvenv.cfg"), "").expect("a file");
        assert!(rules.excludes_folder(&odd));
        let built = folder.path().join("out");
        std::fs::create_dir(&built).expect("a folder");
        assert!(!rules.excludes_folder(&built));
        std::fs::write(built.join("CACHEDIR.TAG"), "").expect("a file");
        assert!(rules.excludes_folder(&built));
    }
}
