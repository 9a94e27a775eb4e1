//! The files that matter as they were last seen.
//!
//! Guarantee: a change is reported when the content differs from what was seen
//! before, and only then; a file that the application has loaded is seen
//! wherever it lies, ignored or not.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use ignore::WalkBuilder;

use super::rules::{Kind, Rules};
use super::stamp::Stamp;

/// A file that has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) path: PathBuf,
    pub(crate) kind: Kind,
}

/// A file as it was last seen.
#[derive(Debug, Clone, Copy)]
struct Seen {
    stamp: Stamp,
    /// `None` before the content was read, and of what is too large for that.
    hash: Option<u64>,
    is_loaded: bool,
}

/// What the watcher has seen, for others to ask.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sight(Arc<Mutex<BTreeMap<PathBuf, Seen>>>);

/// Stamps of all files at one time.
pub(crate) type Snapshot = BTreeMap<PathBuf, Stamp>;

impl Sight {
    /// The stamps of all files when they were last looked at.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let sight = self.lock();
        let stamps = sight.iter().map(|(path, seen)| (path.clone(), seen.stamp));
        stamps.collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Seen>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What tells a folder from another one at the same path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    /// Inodes are used again; where the file system knows no such time that
    /// leaves what the system tells of.
    created: Option<SystemTime>,
}

impl Identity {
    /// That of the folder that `path` leads to, if there is one.
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        metadata.is_dir().then(|| Self::from(&metadata))
    }
}

impl From<&fs::Metadata> for Identity {
    fn from(metadata: &fs::Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            created: metadata.created().ok(),
        }
    }
}

/// What a look at the disk has found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) changes: Vec<Change>,
    /// Folders that nobody watches yet.
    pub(super) folders: Vec<PathBuf>,
    /// The same, for what the application has loaded alone.
    pub(super) of_loaded: Vec<PathBuf>,
    /// Folders that cannot be read.
    pub(super) unreadable: Vec<PathBuf>,
}

/// The files below a root, and those that the application has loaded.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) root: PathBuf,
    rules: Arc<Rules>,
    sight: Sight,
    /// Folders that have been walked, and so are to be watched.
    folders: HashMap<PathBuf, Identity>,
    /// Folders that are watched for what the application has loaded alone.
    of_loaded: BTreeMap<PathBuf, Identity>,
    /// Files whose content is still to be read.
    unread: Vec<PathBuf>,
}

impl Tree {
    pub(super) fn new(root: PathBuf, rules: Arc<Rules>, sight: Sight) -> Self {
        Self {
            root,
            rules,
            sight,
            folders: HashMap::new(),
            of_loaded: BTreeMap::new(),
            unread: Vec::new(),
        }
    }

    pub(super) fn num_files(&self) -> usize {
        self.sight.lock().len()
    }

    pub(super) fn num_folders(&self) -> usize {
        self.folders.len()
    }

    /// Whether the root is there, and the one that is watched.
    pub(super) fn has_root(&self) -> bool {
        let watched = self.folders.get(&self.root);
        watched.is_some_and(|watched| Identity::of(&self.root) == Some(*watched))
    }

    /// Forgets which folders are watched, but not what was seen in them.
    pub(super) fn forget_folders(&mut self) {
        self.folders.clear();
        self.of_loaded.clear();
    }

    /// Forgets that a folder and those below it are watched; whether it was.
    pub(super) fn forget_folder(&mut self, path: &Path) -> bool {
        if !self.folders.contains_key(path) && !self.of_loaded.contains_key(path) {
            return false;
        }
        self.folders.retain(|folder, _| !folder.starts_with(path));
        // Those are told apart by a look, which has to find them again.
        true
    }

    /// Walks everything. What is new counts as a change only if `is_change` says
    /// so of its stamp.
    pub(super) fn scan(&mut self, is_change: impl Fn(&Stamp) -> bool) -> Found {
        let mut found = Found::default();
        let root = self.root.clone();
        let mut left: HashSet<PathBuf> = self.sight.lock().keys().cloned().collect();
        for path in self.walk(&root, None, &mut found) {
            left.remove(&path);
            self.look_at(&path, &is_change, &mut found);
        }
        let mut left: Vec<PathBuf> = left.into_iter().collect();
        left.sort_unstable();
        for path in left {
            self.look_at(&path, &is_change, &mut found);
        }
        found
    }

    /// Looks at paths that something has happened to; what is new is a change.
    pub(super) fn look(&mut self, paths: &[PathBuf]) -> Found {
        let mut found = Found::default();
        for path in paths {
            match fs::metadata(path) {
                // One that has been loaded is where packages are installed.
                Ok(metadata) if metadata.is_dir() && !self.is_loaded(path) => {
                    let identity = Identity::from(&metadata);
                    if self.folders.get(path) == Some(&identity) {
                        continue;
                    }
                    // Their watches may have gone with it.
                    let folders = &self.folders;
                    for (folder, before) in &mut self.of_loaded {
                        if folder.starts_with(path)
                            && !folders.contains_key(folder)
                            && let Some(now) = Identity::of(folder)
                        {
                            *before = now;
                            found.of_loaded.push(folder.clone());
                        }
                    }
                    if !self.is_visible(path) {
                        continue;
                    }
                    self.forget_folder(path);
                    for inner in self.walk(path, None, &mut found) {
                        self.look_at(&inner, |_| true, &mut found);
                    }
                    // What was in the one that was there before.
                    for known in self.known_below(path) {
                        self.look_at(&known, |_| true, &mut found);
                    }
                }
                Ok(_) => self.look_at(path, |_| true, &mut found),
                Err(_) => {
                    self.forget_folder(path);
                    // A folder takes everything in it along.
                    for path in self.known_below(path) {
                        self.look_at(&path, |_| true, &mut found);
                    }
                }
            }
        }
        found
    }

    /// Looks once more at folders that are watched from now on: what came into
    /// them before that has made no event.
    pub(super) fn look_into(&mut self, folders: &[PathBuf]) -> Found {
        let mut found = Found::default();
        for folder in folders {
            for path in self.walk(folder, Some(1), &mut found) {
                self.look_at(&path, |_| true, &mut found);
            }
        }
        found
    }

    /// Looks once more at what is known below folders.
    pub(super) fn look_at_known(&mut self, folders: &[PathBuf]) -> Found {
        let mut found = Found::default();
        for folder in folders {
            for path in self.known_below(folder) {
                self.look_at(&path, |_| true, &mut found);
            }
        }
        found
    }

    fn known_below(&self, folder: &Path) -> Vec<PathBuf> {
        let sight = self.sight.lock();
        let below = sight.keys().filter(|known| known.starts_with(folder));
        below.cloned().collect()
    }

    /// Notes which files the application has loaded, and how they were then;
    /// returns the folders that have to be watched for them.
    pub(super) fn note_loaded(&mut self, files: &[(PathBuf, Stamp)]) -> Vec<PathBuf> {
        let mut folders = Vec::new();
        let mut looked_at = HashSet::new();
        let mut sight = self.sight.lock();
        for (path, stamp) in files {
            let seen = sight.entry(path.clone()).or_insert_with(|| {
                let hash = stamp.hash(path);
                Seen {
                    stamp: *stamp,
                    // Of what has been loaded, if it still is.
                    hash: hash.filter(|_| Stamp::of(path) == *stamp),
                    is_loaded: true,
                }
            });
            seen.is_loaded = true;
            if let Some(folder) = path.parent()
                && looked_at.insert(folder)
                && let Some(identity) = Identity::of(folder)
                && self.folders.get(folder) != Some(&identity)
                && self.of_loaded.insert(folder.to_owned(), identity) != Some(identity)
            {
                folders.push(folder.to_owned());
            }
        }
        folders
    }

    /// Reads the content of one more file that is known by its stamp alone, if
    /// it still is what it was; whether there was one.
    pub(super) fn read_next(&mut self) -> bool {
        let Some(path) = self.unread.pop() else {
            return false;
        };
        let stamp = Stamp::of(&path);
        let hash = stamp.hash(&path);
        let mut sight = self.sight.lock();
        if let Some(seen) = sight.get_mut(&path)
            && seen.stamp == stamp
            && Stamp::of(&path) == stamp
        {
            seen.hash = hash;
        }
        true
    }

    fn is_loaded(&self, path: &Path) -> bool {
        let sight = self.sight.lock();
        sight.get(path).is_some_and(|seen| seen.is_loaded)
    }

    /// Whether a path may have changed so that it matters; cheap, and rather yes.
    pub(super) fn may_matter(&self, path: &Path) -> bool {
        let sight = self.sight.lock();
        match sight.get(path) {
            Some(seen) => Stamp::of(path) != seen.stamp,
            // A folder that has come or gone.
            None if Identity::of(path) != self.folders.get(path).copied() => true,
            None => {
                self.rules.kind(path, false).is_some()
                    && path
                        .parent()
                        .is_some_and(|folder| self.folders.contains_key(folder))
            }
        }
    }

    fn look_at(&mut self, path: &Path, is_change: impl Fn(&Stamp) -> bool, found: &mut Found) {
        let before = self.sight.lock().get(path).copied();
        let is_loaded = before.is_some_and(|seen| seen.is_loaded);
        let Some(kind) = self.rules.kind(path, is_loaded) else {
            return;
        };
        // Once more if it is written between stamp and content.
        let (stamp, hash) = loop {
            let stamp = Stamp::of(path);
            if before.is_some_and(|before| before.stamp == stamp) {
                return;
            }
            if before.is_none() && !is_change(&stamp) {
                // Its content is read when there is time for it.
                break (stamp, None);
            }
            let hash = stamp.hash(path);
            if Stamp::of(path) == stamp {
                break (stamp, hash);
            }
        };
        let has_changed = match &before {
            None if stamp == Stamp::MISSING => return,
            None if is_change(&stamp) => {
                if !self.is_visible(path) && kind != Kind::Settings {
                    return;
                }
                true
            }
            None => {
                self.unread.push(path.to_owned());
                false
            }
            Some(before) => hash.is_none() || before.hash != hash,
        };
        let seen = Seen {
            stamp,
            hash,
            is_loaded,
        };
        self.sight.lock().insert(path.to_owned(), seen);
        if has_changed {
            let path = path.to_owned();
            found.changes.push(Change { path, kind });
        }
    }

    /// Whether the project's ignore files let a path be seen.
    fn is_visible(&self, path: &Path) -> bool {
        if path == self.root {
            return true;
        }
        let Some(folder) = path.parent() else {
            return false;
        };
        if !path.starts_with(&self.root) || !self.folders.contains_key(folder) {
            return false;
        }
        if path.is_dir() && self.rules.excludes_folder(path) {
            return false;
        }
        let mut walk = walker(folder);
        walk.max_depth(Some(1));
        walk.build()
            .flatten()
            .any(|entry| entry.path() == path && entry.depth() > 0)
    }

    /// Files below a folder that may matter; notes and finds folders.
    fn walk(&mut self, from: &Path, depth: Option<usize>, found: &mut Found) -> Vec<PathBuf> {
        let mut files = Vec::new();
        let mut walk = walker(from);
        walk.max_depth(depth).follow_links(true);
        let rules = Arc::clone(&self.rules);
        let (start, root) = (from.to_owned(), fs::canonicalize(&self.root).ok());
        walk.filter_entry(move |entry| {
            let path = entry.path();
            if path == start || !path.is_dir() {
                return true;
            }
            // A link upwards would lead around for ever.
            let leads_up = entry.path_is_symlink()
                && match (fs::canonicalize(path), &root) {
                    (Ok(target), Some(root)) => root.starts_with(target),
                    _ => true,
                };
            !leads_up && !rules.excludes_folder(path)
        });
        for entry in walk.build() {
            match entry {
                Ok(entry) if entry.path().is_dir() => {
                    let path = entry.path();
                    let Ok(metadata) = fs::metadata(path) else {
                        continue;
                    };
                    let identity = Identity::from(&metadata);
                    if fs::read_dir(path).is_err() {
                        found.unreadable.push(path.to_owned());
                        continue;
                    }
                    let before = self.folders.get(path);
                    // None counts twice.
                    let is_known = before == Some(&identity)
                        || entry.path_is_symlink()
                            && self.folders.values().any(|known| *known == identity);
                    if !is_known {
                        self.folders.insert(path.to_owned(), identity);
                        found.folders.push(path.to_owned());
                    }
                }
                Ok(entry) => files.push(entry.into_path()),
                // What is gone by now, or leads in a circle.
                Err(_) => {}
            }
        }
        files
    }
}

/// As git sees a folder, whether it is in a repository or not.
fn walker(folder: &Path) -> WalkBuilder {
    let mut walk = WalkBuilder::new(folder);
    walk.hidden(false).require_git(false).parents(true);
    walk
}

#[cfg(test)]
mod tests {
    use super::super::rules::Language;
    use super::*;

    struct Project {
        folder: tempfile::TempDir,
        tree: Tree,
    }

    impl Project {
        fn new(files: &[(&str, &str)]) -> Self {
            let folder = tempfile::TempDir::new().expect("a folder");
            let root = folder.path().to_owned();
            let settings = vec![root.join(".env")];
            let rules =
                Rules::new(&root, settings, &[], &[], Language::Python).expect("no patterns");
            let tree = Tree::new(root, Arc::new(rules), Sight::default());
            let mut project = Self { folder, tree };
            for (name, text) in files {
                project.write(name, text);
            }
            assert!(project.tree.scan(|_| false).changes.is_empty());
            while project.tree.read_next() {}
            project
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn write(&self, name: &str, text: &str) {
            let path = self.path(name);
            fs::create_dir_all(path.parent().expect("it has one")).expect("a folder");
            fs::write(path, text).expect("it is written");
        }

        #[track_caller]
        fn look(&mut self, names: &[&str], expected: &[&str]) {
            let paths: Vec<_> = names.iter().map(|name| self.path(name)).collect();
            let found = self.tree.look(&paths);
            self.same(found, expected);
        }

        #[track_caller]
        fn same(&self, found: Found, expected: &[&str]) {
            let mut changed: Vec<_> = found.changes.into_iter().map(|one| one.path).collect();
            changed.sort_unstable();
            let expected: Vec<_> = expected.iter().map(|name| self.path(name)).collect();
            assert_eq!(changed, expected);
        }
    }

    #[test]
    fn content_counts_and_not_the_time() {
        let mut project = Project::new(&[("app.py", "a = 1\n"), ("x.css", "")]);
        project.write("app.py", "a = 1\n");
        project.look(&["app.py"], &[]);
        project.write("app.py", "a = 2\n");
        project.look(&["app.py"], &["app.py"]);
        project.look(&["app.py"], &[]);
        // The same length, and as fast as can be.
        for value in 3..60 {
            project.write("app.py", &format!("a = {}\n", value % 10));
            project.look(&["app.py"], &["app.py"]);
        }
        fs::remove_file(project.path("app.py")).expect("it is there");
        project.look(&["app.py"], &["app.py"]);
        project.write("new.py", "");
        project.look(&["new.py"], &["new.py"]);
    }

    #[test]
    fn ignored_files_count_once_they_are_loaded() {
        let mut project = Project::new(&[
            (".gitignore", "_version.py\nbuild/\n"),
            ("_version.py", "1"),
            ("build/gen.py", "1"),
            ("app.py", ""),
        ]);
        project.write("_version.py", "2");
        project.write("build/gen.py", "2");
        project.look(&["_version.py", "build/gen.py", "build"], &[]);
        let loaded = ["_version.py", "build/gen.py"].map(|name| {
            let path = project.path(name);
            let stamp = Stamp::of(&path);
            (path, stamp)
        });
        let folders = project.tree.note_loaded(&loaded);
        assert_eq!(folders, [project.path("build")]);
        project.write("_version.py", "3");
        project.write("build/gen.py", "3");
        project.write("build/other.py", "3");
        project.look(
            &["_version.py", "build/gen.py", "build/other.py"],
            &["_version.py", "build/gen.py"],
        );
    }

    #[test]
    fn what_was_loaded_counts_and_not_what_is_there_by_then() {
        let mut project = Project::new(&[(".gitignore", "*.py\n"), ("a.py", "1")]);
        let path = project.path("a.py");
        let loaded = [(path.clone(), Stamp::of(&path))];
        project.write("a.py", "2");
        project.tree.note_loaded(&loaded);
        project.look(&["a.py"], &["a.py"]);
        project.look(&["a.py"], &[]);
    }

    #[test]
    fn folders_come_and_go_with_what_is_in_them() {
        let mut project = Project::new(&[("app.py", "")]);
        project.write("pkg/deep/x.py", "");
        project.write("pkg/node_modules/y.py", "");
        project.write(".venv/lib/z.py", "");
        project.look(&["pkg", ".venv"], &["pkg/deep/x.py"]);
        fs::rename(project.path("pkg"), project.path("moved")).expect("it is moved");
        project.look(&["pkg", "moved"], &["moved/deep/x.py", "pkg/deep/x.py"]);
    }

    #[test]
    fn a_folder_that_is_replaced_is_watched_anew() {
        let mut project = Project::new(&[("pkg/deep/x.py", "1"), ("pkg/y.py", "")]);
        let replace = |project: &Project| {
            // As long as the other is there its inode is its own.
            fs::rename(project.path("pkg"), project.path("away")).expect("it is moved");
            project.write("pkg/deep/x.py", "2");
        };
        let folders = |found: &Found, project: &Project| {
            assert_eq!(
                found.folders,
                ["pkg", "pkg/deep"].map(|name| project.path(name))
            );
        };
        let pkg = project.path("pkg");
        assert!(!project.tree.may_matter(&pkg));
        replace(&project);
        assert!(project.tree.may_matter(&pkg));
        let found = project.tree.look(std::slice::from_ref(&pkg));
        folders(&found, &project);
        project.same(found, &["pkg/deep/x.py", "pkg/y.py"]);
        assert!(!project.tree.may_matter(&pkg));
        // The system has told that the watch is gone, whatever is there by now.
        assert!(project.tree.forget_folder(&pkg));
        assert!(project.tree.may_matter(&pkg));
        let found = project.tree.look(std::slice::from_ref(&pkg));
        folders(&found, &project);
        project.same(found, &[]);
        // The same for what is watched because it has been loaded.
        let outside = tempfile::TempDir::new().expect("a folder");
        let file = outside.path().join("lib/a.py");
        let load = |project: &mut Project| {
            fs::create_dir_all(outside.path().join("lib")).expect("a folder");
            fs::write(&file, "1").expect("it is written");
            let loaded = [(file.clone(), Stamp::of(&file))];
            project.tree.note_loaded(&loaded)
        };
        assert_eq!(load(&mut project), [outside.path().join("lib")]);
        assert!(load(&mut project).is_empty());
        let away = outside.path().join("away");
        fs::rename(outside.path().join("lib"), away).expect("it is moved");
        assert_eq!(load(&mut project), [outside.path().join("lib")]);
    }

    #[test]
    fn a_scan_finds_what_no_event_told_of() {
        let mut project = Project::new(&[("app.py", "1"), ("b.py", ""), ("c.html", "")]);
        project.write("app.py", "2");
        project.write("d.py", "");
        fs::remove_file(project.path("b.py")).expect("it is there");
        let found = project.tree.scan(|_| true);
        project.same(found, &["app.py", "b.py", "d.py"]);
        let found = project.tree.scan(|_| true);
        project.same(found, &[]);
    }

    #[test]
    fn links_are_followed_but_not_in_circles() {
        let mut project = Project::new(&[("app.py", "")]);
        let outside = tempfile::TempDir::new().expect("a folder");
        fs::write(outside.path().join("x.py"), "1").expect("it is written");
        let link = |target: &Path, name: PathBuf| std::os::unix::fs::symlink(target, name);
        link(outside.path(), project.path("linked")).expect("a link");
        link(&project.path(""), project.path("up")).expect("a link");
        project.look(&["linked", "up"], &["linked/x.py"]);
        // Swapped as a ConfigMap of Kubernetes is.
        let other = tempfile::TempDir::new().expect("a folder");
        fs::write(other.path().join("x.py"), "2").expect("it is written");
        link(other.path(), project.path("next")).expect("a link");
        fs::rename(project.path("next"), project.path("linked")).expect("it is moved");
        project.look(&["linked/x.py"], &["linked/x.py"]);
    }
}
