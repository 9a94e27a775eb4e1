//! The folders of models: the cache of a hub, and that of short names.
//!
//! Layout of the first: `models--org--name/{blobs,refs,snapshots}` as
//! `huggingface_hub` documents it, so that both see the files of the other.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::error::LocateError;
use super::event::{Listener, LocateEvent};
use super::name::is_safe_path;

/// Folders and files of one repository.
#[derive(Clone, Debug)]
pub(super) struct RepositoryCache {
    /// Folder of all repositories.
    root: PathBuf,
    /// `models--org--name`.
    folder: String,
}

impl RepositoryCache {
    /// Finds the folder of `org/name` below the folder of all.
    pub(super) fn new(root: &Path, repository: &str) -> Self {
        Self {
            root: root.to_owned(),
            folder: format!("models--{}", repository.replace('/', "--")),
        }
    }

    fn base(&self) -> PathBuf {
        self.root.join(&self.folder)
    }

    /// Returns the path of a file's content.
    pub(super) fn blob(&self, etag: &str) -> PathBuf {
        self.base().join("blobs").join(etag)
    }

    /// Returns the path of the lock of a content; `huggingface_hub` takes the same.
    pub(super) fn lock(&self, etag: &str) -> PathBuf {
        let locks = self.root.join(".locks").join(&self.folder);
        locks.join(format!("{etag}.lock"))
    }

    /// Returns the folder of a commit.
    pub(super) fn snapshot(&self, commit: &str) -> PathBuf {
        self.base().join("snapshots").join(commit)
    }

    /// Returns the commit that a revision was when it was last asked for.
    pub(super) fn commit_of(&self, revision: &str) -> Option<String> {
        let known = fs::read_to_string(self.base().join("refs").join(revision)).ok();
        let commit = known.map_or_else(|| revision.to_owned(), |text| text.trim().to_owned());
        (is_safe_path(&commit) && self.snapshot(&commit).is_dir()).then_some(commit)
    }

    /// Returns the files of a commit that are here, by their names in the repository, sorted.
    pub(super) fn files(&self, commit: &str) -> Vec<String> {
        let root = self.snapshot(commit);
        let mut found = Vec::new();
        let mut folders = vec![root.clone()];
        while let Some(folder) = folders.pop() {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            for path in entries.map(|entry| entry.path()) {
                if path.is_dir() {
                    folders.push(path);
                } else if path.is_file()
                    && let Ok(inner) = path.strip_prefix(&root)
                {
                    found.extend(inner.to_str().map(str::to_owned));
                }
            }
        }
        found.sort();
        found
    }

    /// Notes what a revision is.
    ///
    /// # Errors
    /// [`LocateError::Storage`].
    pub(super) fn note_commit(&self, revision: &str, commit: &str) -> Result<(), LocateError> {
        if revision == commit {
            return Ok(());
        }
        let path = self.base().join("refs").join(revision);
        if fs::read_to_string(&path).is_ok_and(|known| known == commit) {
            return Ok(());
        }
        make_parent(&path)?;
        write_whole(&path, commit.as_bytes())
    }

    /// Lets a file of a commit be the content `etag`, which is here.
    ///
    /// # Errors
    /// [`LocateError::Storage`].
    pub(super) fn link(&self, commit: &str, file: &str, etag: &str) -> Result<(), LocateError> {
        let path = self.snapshot(commit).join(file);
        if path.exists() {
            return Ok(());
        }
        make_parent(&path)?;
        // A link to a content that is gone.
        drop(fs::remove_file(&path));
        let up = "../".repeat(file.matches('/').count() + 2);
        let target = format!("{up}blobs/{etag}");
        std::os::unix::fs::symlink(target, &path)
            .or_else(|_| fs::hard_link(self.blob(etag), &path))
            // Another process was quicker, with the same.
            .or_else(|error| if path.exists() { Ok(()) } else { Err(error) })
            .map_err(LocateError::storage("make the link", path))
    }
}

/// Makes the folder that a file is to be in.
///
/// # Errors
/// [`LocateError::Storage`].
pub(super) fn make_parent(path: &Path) -> Result<(), LocateError> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).map_err(LocateError::storage("make the folder", folder))
}

/// Writes a file so that it is never seen in part.
fn write_whole(path: &Path, content: &[u8]) -> Result<(), LocateError> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let partial = path.with_extension(format!("{}-{number}.new", std::process::id()));
    File::create(&partial)
        .and_then(|mut file| file.write_all(content))
        .and_then(|()| fs::rename(&partial, path))
        .map_err(LocateError::storage("write", path))
}

/// Takes a lock that ends with the process, and waits for whoever has it.
///
/// # Errors
/// [`LocateError::Storage`].
pub(super) fn lock(path: &Path, file: &str, listener: Listener<'_>) -> Result<File, LocateError> {
    make_parent(path)?;
    let lock = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .map_err(LocateError::storage("open the lock", path))?;
    let taken = match lock.try_lock() {
        Ok(()) => Ok(()),
        Err(fs::TryLockError::WouldBlock) => {
            listener(LocateEvent::Waiting { file });
            lock.lock()
        }
        Err(fs::TryLockError::Error(error)) => Err(error),
    };
    match taken {
        // Some network file systems have no locks: better without than not at all.
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(lock),
        taken => taken
            .map(|()| lock)
            .map_err(LocateError::storage("take the lock", path)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn a_file_is_found_by_revision_and_by_commit() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = RepositoryCache::new(folder.path(), "org/name");
        assert_eq!(cache.commit_of("main"), None);
        make_parent(&cache.blob("abc")).expect("a folder");
        fs::write(cache.blob("abc"), "content").expect("written");
        cache
            .link("c0ffee", "sub/model.gguf", "abc")
            .expect("linked");
        cache.link("c0ffee", "config.json", "abc").expect("linked");
        cache.note_commit("main", "c0ffee").expect("noted");
        for revision in ["main", "c0ffee"] {
            assert_eq!(cache.commit_of(revision).as_deref(), Some("c0ffee"));
        }
        assert_eq!(cache.commit_of("other"), None);
        assert_eq!(cache.files("c0ffee"), ["config.json", "sub/model.gguf"]);
        let path = folder
            .path()
            .join("models--org--name/snapshots/c0ffee/sub/model.gguf");
        assert_eq!(fs::read_to_string(path).expect("read"), "content");
    }

    #[test]
    fn a_link_to_nothing_is_no_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = RepositoryCache::new(folder.path(), "org/name");
        cache.link("c0ffee", "model.gguf", "gone").expect("linked");
        assert!(cache.files("c0ffee").is_empty());
    }

    #[test]
    fn a_lock_is_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("locks/a.lock");
        let first = lock(&path, "a", &mut |_| panic!("nobody has it")).expect("taken");
        let (sender, news) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut listener = |event: LocateEvent<'_>| {
                    sender.send(format!("{event:?}")).expect("heard");
                };
                lock(&path, "a", &mut listener).expect("taken later");
            });
            assert!(news.recv().expect("it waits").contains("Waiting"));
            drop(first);
        });
    }
}
