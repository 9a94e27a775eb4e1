//! Opens files below a folder and never outside of it.
//!
//! Guarantee: `..` and absolute links cannot leave the folder, in one step of
//! the kernel (`openat2` with `RESOLVE_BENEATH`) or, where that is missing, by
//! a walk that opens one segment at a time and follows links itself. FIFOs,
//! sockets and devices are recognised without being opened.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2};
use rustix::io::Errno;

/// What to do with symbolic links below the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub enum Symlinks {
    /// A path with a link in it is not found.
    Refuse,
    /// Followed while they stay below the root; an absolute one never does.
    #[default]
    Within,
    /// Followed wherever they lead, as the operating system does.
    Anywhere,
}

/// Links followed in one path by the walk; Linux' own limit.
const MAX_LINKS: usize = 40;
/// Attempts of `openat2` while somebody renames folders under it.
const MAX_ATTEMPTS: usize = 4;

/// Whether the kernel has no `openat2`: known after the first attempt.
static LACKS_OPENAT2: AtomicBool = AtomicBool::new(false);

/// An open root folder.
#[derive(Debug)]
pub(super) struct Root {
    folder: OwnedFd,
    symlinks: Symlinks,
}

/// What a path names.
#[derive(Debug)]
pub(super) enum Found {
    /// A regular file, open for reading.
    File(File, Stamp),
    /// A folder.
    Folder,
}

/// What tells one state of a file from another without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    pub(super) inode: u64,
    /// Bytes.
    pub(super) size: u64,
    /// Last modification in seconds and nanoseconds since 1970.
    pub(super) modified: (i64, u32),
    /// Last change of content or metadata, likewise.
    changed: (i64, u32),
    mode: u32,
}

impl Root {
    /// Opens the folder by its path, whose links are the operator's and followed.
    pub(super) fn open(path: &Path, symlinks: Symlinks) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self {
            folder: rustix::fs::open(path, flags, Mode::empty())?,
            symlinks,
        })
    }

    /// What `path` names; [`Errno::NOENT`] for what is neither file nor folder.
    pub(super) fn find(&self, path: &str) -> Result<Found, Errno> {
        // Looked at first: opening a FIFO or a device has effects of its own.
        let place = self.open_beneath(path, OFlags::PATH)?;
        match FileType::from_raw_mode(fstat(&place)?.st_mode) {
            FileType::Directory => return Ok(Found::Folder),
            FileType::RegularFile => {}
            _ => return Err(Errno::NOENT),
        }
        // It may have been replaced meanwhile: neither wait nor become a
        // controlling terminal, and look again.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = File::from(self.open_beneath(path, flags)?);
        let stat = fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
            Ok(Found::File(file, Stamp::of(&stat)))
        } else {
            Err(Errno::NOENT)
        }
    }

    /// The stamp of what `path` leads to, links followed; to be compared with
    /// one of a file that [`Self::find`] has opened, and for nothing else.
    pub(super) fn stamp(&self, path: &str) -> Result<Stamp, Errno> {
        rustix::fs::statat(&self.folder, path, AtFlags::empty()).map(|stat| Stamp::of(&stat))
    }

    fn open_beneath(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC;
        let resolve = match self.symlinks {
            Symlinks::Anywhere => return openat(&self.folder, path, flags, Mode::empty()),
            Symlinks::Within => ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
            Symlinks::Refuse => ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
        };
        for _ in 0..MAX_ATTEMPTS {
            if LACKS_OPENAT2.load(Ordering::Relaxed) {
                break;
            }
            match openat2(&self.folder, path, flags, Mode::empty(), resolve) {
                Err(Errno::NOSYS) => LACKS_OPENAT2.store(true, Ordering::Relaxed),
                // A folder on the way was renamed.
                Err(Errno::AGAIN) => {}
                // What a sandbox says to a call that it does not know.
                Err(Errno::PERM) => break,
                result => return result,
            }
        }
        self.walk(path, flags)
    }

    /// [`Self::open_beneath`] by one segment at a time.
    fn walk(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let mut left: VecDeque<OsString> = path.split('/').map(OsString::from).collect();
        let mut folders: Vec<OwnedFd> = Vec::new();
        let mut num_links = 0;
        let flags = flags | OFlags::NOFOLLOW;
        let folder_flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        loop {
            let here = folders.last().map_or(self.folder.as_fd(), OwnedFd::as_fd);
            let Some(name) = left.pop_front() else {
                // The path ended in `..` or `.`, through a link.
                return openat(here, ".", flags, Mode::empty());
            };
            match name.as_bytes() {
                b"" | b"." => continue,
                b".." => {
                    folders.pop().ok_or(Errno::XDEV)?;
                    continue;
                }
                _ => {}
            }
            if let Some(target) = link_target(here, &name)? {
                num_links += 1;
                if self.symlinks == Symlinks::Refuse || num_links > MAX_LINKS {
                    return Err(Errno::LOOP);
                }
                if target.as_bytes().starts_with(b"/") {
                    return Err(Errno::XDEV);
                }
                for segment in target.as_bytes().split(|byte| *byte == b'/').rev() {
                    left.push_front(OsStr::from_bytes(segment).to_owned());
                }
            } else if left.is_empty() {
                return open_no_link(here, &name, flags);
            } else {
                folders.push(openat(here, &name, folder_flags, Mode::empty())?);
            }
        }
    }
}

/// Opens what was no link a moment ago; [`Errno::LOOP`] when it is one now.
fn open_no_link(folder: BorrowedFd<'_>, name: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    let opened = openat(folder, name, flags, Mode::empty())?;
    // With `O_PATH`, `O_NOFOLLOW` opens the link itself.
    let is_link = FileType::from_raw_mode(fstat(&opened)?.st_mode) == FileType::Symlink;
    if is_link {
        Err(Errno::LOOP)
    } else {
        Ok(opened)
    }
}

/// Where a link leads; `None` when `name` is something else.
fn link_target(folder: BorrowedFd<'_>, name: &OsStr) -> Result<Option<OsString>, Errno> {
    match rustix::fs::readlinkat(folder, name, Vec::new()) {
        Ok(target) => Ok(Some(OsString::from_vec(target.into_bytes()))),
        Err(Errno::INVAL) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Stamp {
    /// The stamp of an open file as it is now.
    pub(super) fn of_file(file: &File) -> Result<Self, Errno> {
        fstat(file).map(|stat| Self::of(&stat))
    }

    /// Whether this file may be the encoded form of `original`: an older one
    /// was made of what was there before.
    pub(super) fn can_stand_for(&self, original: Self) -> bool {
        FileType::from_raw_mode(self.mode) == FileType::RegularFile
            && self.modified >= original.modified
    }

    fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: u64::try_from(stat.st_size).unwrap_or_default(),
            modified: (stat.st_mtime, stat.st_mtime_nsec as u32),
            changed: (stat.st_ctime, stat.st_ctime_nsec as u32),
            mode: stat.st_mode,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    /// A root with files, and a secret beside it.
    fn tree() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir_all(root.join("sub/deep")).unwrap();
        fs::write(folder.path().join("secret"), "secret").unwrap();
        fs::write(root.join("a"), "a").unwrap();
        fs::write(root.join("sub/b"), "b").unwrap();
        for (target, link) in [
            ("a", "to-a"),
            ("../a", "sub/up"),
            ("../../secret", "sub/out"),
            ("../secret", "out"),
            ("..", "parent"),
            ("sub", "to-sub"),
            ("sub/deep/..", "round"),
            ("loop", "loop"),
            ("nothing", "dangling"),
        ] {
            symlink(target, root.join(link)).unwrap();
        }
        symlink(root.join("a"), root.join("absolute")).unwrap();
        symlink("/proc/self/fd/0", root.join("magic")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            root.join("fifo"),
            FileType::Fifo,
            Mode::RWXU,
            0,
        )
        .unwrap();
        drop(UnixListener::bind(root.join("socket")).unwrap());
        folder
    }

    type Opened = Result<OwnedFd, Errno>;

    fn content(opened: Opened) -> Result<String, Errno> {
        let mut text = String::new();
        let mut file = File::from(opened?);
        std::io::Read::read_to_string(&mut file, &mut text)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        Ok(text)
    }

    const FLAGS: OFlags = OFlags::NONBLOCK;

    #[track_caller]
    fn check(root: &Root, path: &str, expected: Result<&str, &[Errno]>) {
        for (how, opened) in [
            ("kernel", root.open_beneath(path, FLAGS)),
            ("walk", root.walk(path, FLAGS | OFlags::CLOEXEC)),
        ] {
            let found = content(opened);
            match expected {
                Ok(text) => assert_eq!(found.as_deref(), Ok(text), "{path} by {how}"),
                Err(errors) => {
                    assert!(
                        found.as_ref().is_err_and(|error| errors.contains(error)),
                        "{path} by {how}: {found:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn kernel_and_walk_stay_within() {
        let folder = tree();
        let root = Root::open(&folder.path().join("root"), Symlinks::Within).unwrap();
        check(&root, "a", Ok("a"));
        check(&root, "sub/b", Ok("b"));
        check(&root, "to-a", Ok("a"));
        check(&root, "sub/up", Ok("a"));
        check(&root, "to-sub/up", Ok("a"));
        check(&root, "round/b", Ok("b"));
        for path in [
            "out", "sub/out", "absolute", "parent", "../a", "magic", "parent/a",
        ] {
            check(&root, path, Err(&[Errno::XDEV, Errno::LOOP]));
        }
        check(&root, "loop", Err(&[Errno::LOOP]));
        check(&root, "dangling", Err(&[Errno::NOENT]));
        check(&root, "a/b", Err(&[Errno::NOTDIR]));
        check(&root, "nothing/b", Err(&[Errno::NOENT]));
        check(&root, &"x".repeat(300), Err(&[Errno::NAMETOOLONG]));
    }

    #[test]
    fn links_are_refused_or_followed_as_told() {
        let folder = tree();
        let path = folder.path().join("root");
        let refusing = Root::open(&path, Symlinks::Refuse).unwrap();
        check(&refusing, "sub/b", Ok("b"));
        for link in ["to-a", "to-sub/b", "out", "absolute", "round/b"] {
            check(&refusing, link, Err(&[Errno::LOOP]));
        }
        let following = Root::open(&path, Symlinks::Anywhere).unwrap();
        assert_eq!(
            content(following.open_beneath("out", FLAGS)).unwrap(),
            "secret"
        );
        assert_eq!(
            content(following.open_beneath("absolute", FLAGS)).unwrap(),
            "a"
        );
    }

    #[test]
    fn only_files_and_folders_are_found() {
        let folder = tree();
        let root = Root::open(&folder.path().join("root"), Symlinks::Within).unwrap();
        assert!(matches!(root.find("sub"), Ok(Found::Folder)));
        assert!(matches!(root.find("to-sub"), Ok(Found::Folder)));
        for special in ["fifo", "socket"] {
            assert_eq!(root.find(special).unwrap_err(), Errno::NOENT, "{special}");
        }
        let Ok(Found::File(_, stamp)) = root.find("a") else {
            panic!("a is a file");
        };
        assert_eq!(stamp.size, 1);
        assert_eq!(root.stamp("to-a"), Ok(stamp));
        assert_ne!(root.stamp("sub/b"), Ok(stamp));
    }

    #[test]
    fn devices_are_not_opened() {
        let root = Root::open(Path::new("/dev"), Symlinks::Within).unwrap();
        assert_eq!(root.find("null").unwrap_err(), Errno::NOENT);
        assert_eq!(root.find("tty").unwrap_err(), Errno::NOENT);
    }
}
