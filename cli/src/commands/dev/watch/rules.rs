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

/// The rules of one project.
#[derive(Debug)]
pub(crate) struct Rules {
    /// Files of settings, wherever they are.
    settings: Vec<PathBuf>,
    ignored: Gitignore,
    included: Gitignore,
    /// Extensions of the language that the project is written in.
    code: &'static [&'static str],
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
        code: &'static [&'static str],
    ) -> Result<Self, CliError> {
        Ok(Self {
            settings,
            ignored: patterns(root, "--reload-ignore", ignored)?,
            included: patterns(root, "--reload-include", included)?,
            code,
        })
    }

    /// Whether no file of a folder matters.
    pub(crate) fn excludes_folder(&self, path: &Path) -> bool {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| EXCLUDED_FOLDERS.contains(&name) || name.ends_with(".egg-info"))
            || path.join("pyvenv.cfg").is_file()
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
        let extension = path.extension()?.to_str()?;
        if self.code.contains(&extension) {
            return (!is_test(name)).then_some(Kind::Code);
        }
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
        Rules::new(Path::new("/p"), settings, &ignored, &included, &["py"]).expect("patterns")
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
    }
}
