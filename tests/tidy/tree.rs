//! The files of the checkout, as git sees them, with paths relative to its root.
//!
//! Files that are new and not ignored count too: a rule should fail before the commit. Without git,
//! in an unpacked source archive, the folders are walked.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a walk without git leaves out: build output and caches.
const NOT_SOURCES: &[&str] = &[".git", ".venv", "__pycache__", "node_modules", "target"];

/// The checkout.
pub(crate) struct Tree {
    root: PathBuf,
    files: Vec<String>,
}

impl Tree {
    /// Lists the checkout that this test was compiled from.
    pub(crate) fn open() -> Self {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = manifest
            .parent()
            .expect("a crate of the workspace")
            .to_path_buf();
        let mut files = list_with_git(&root).unwrap_or_else(|| walk(&root));
        files.retain(|path| root.join(path).is_file());
        files.sort();
        assert!(
            files.iter().any(|path| path == "Cargo.toml"),
            "no files below {}",
            root.display()
        );
        Self { root, files }
    }

    /// The paths of all files, sorted, with `/` between their parts.
    pub(crate) fn files(&self) -> &[String] {
        &self.files
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// The text of a file that has to exist.
    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_else(|error| panic!("{path}:1: {error}"))
    }

    /// Path and content of each file that is UTF-8 text.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (String, String)> {
        self.files.iter().filter_map(|path| {
            let text = String::from_utf8(fs::read(self.path(path)).ok()?).ok()?;
            Some((path.clone(), text))
        })
    }
}

/// The number of the first line that holds `needle`; 1 if none does.
pub(crate) fn line_of(text: &str, needle: &str) -> usize {
    text.lines()
        .position(|line| line.contains(needle))
        .map_or(1, |index| index + 1)
}

/// `None` outside a repository, and where git refuses to read it.
fn list_with_git(root: &Path) -> Option<Vec<String>> {
    // A source archive unpacked inside another repository is not that repository.
    if !root.join(".git").exists() {
        return None;
    }
    let output = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root)
        .output()
        .ok()?;
    let listing = String::from_utf8(output.stdout).ok()?;
    let files: Vec<String> = listing.split_terminator('\0').map(str::to_owned).collect();
    (output.status.success() && !files.is_empty()).then_some(files)
}

fn walk(root: &Path) -> Vec<String> {
    let mut files = Vec::new();
    let mut pending = vec![root.to_path_buf()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory).expect("the checkout is readable") {
            let entry = entry.expect("the checkout is readable");
            let kind = entry.file_type().expect("the checkout is readable");
            if NOT_SOURCES.iter().any(|name| entry.file_name() == *name) {
                continue;
            }
            if kind.is_dir() {
                pending.push(entry.path());
            } else if let Ok(path) = entry.path().strip_prefix(root) {
                files.push(path.to_string_lossy().into_owned());
            }
        }
    }
    files
}

#[test]
fn a_walk_finds_at_least_what_git_tracks() {
    let tree = Tree::open();
    let walked = walk(&tree.root);
    let hidden = |path: &&String| path.split('/').any(|part| NOT_SOURCES.contains(&part));
    for path in tree.files().iter().filter(|path| !hidden(path)) {
        assert!(walked.contains(path), "{path} is not in the walk");
    }
}
