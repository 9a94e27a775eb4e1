//! Reads a template from a folder that anybody may have made.
//!
//! Guarantee: no link is followed, nothing but plain files is opened, and what
//! is held in memory is bounded.

use std::borrow::Cow;
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::path::Path;

use crate::error::Error;
use crate::manifest::Manifest;
use crate::{SourceFile, Template};

/// Most bytes of all files of a template: they are held in memory, twice.
pub const MAX_TEMPLATE_BYTES: u64 = 32 * 1024 * 1024;
/// Most files of a template; a `files/` that is somebody's home is refused early.
pub const MAX_TEMPLATE_FILES: usize = 5000;
/// Most folders within one another.
const MAX_DEPTH: usize = 32;

/// Reads the template in `folder`: its `template.toml` and all below `files/`.
///
/// # Errors
/// Any [`Error`] but [`Error::Render`].
pub fn read_folder(folder: &Path) -> Result<Template, Error> {
    let path = folder.join("template.toml");
    let metadata = match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Error::NoManifest {
                folder: folder.to_owned(),
            });
        }
        found => found.map_err(|source| Error::Read {
            path: path.clone(),
            source,
        })?,
    };
    let mut reader = Reader {
        files: Vec::new(),
        num_bytes: 0,
    };
    let manifest = reader.read(&path, "template.toml", &metadata)?;
    let text = String::from_utf8(manifest).map_err(|_| Error::Manifest {
        reason: "is not UTF-8".to_owned(),
        line: None,
    })?;
    let manifest = Manifest::read(&text)?;
    reader.walk(&folder.join("files"), "", 0)?;
    reader.files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(Template {
        manifest,
        files: reader.files,
    })
}

struct Reader {
    files: Vec<SourceFile>,
    num_bytes: u64,
}

impl Reader {
    fn walk(&mut self, folder: &Path, inside: &str, depth: usize) -> Result<(), Error> {
        let failed = |source| Error::Read {
            path: folder.to_owned(),
            source,
        };
        if depth > MAX_DEPTH {
            return Err(Error::TooLarge {
                limit: MAX_DEPTH as u64,
                unit: "folders within one another",
            });
        }
        // A link in place of `files` itself would lead anywhere.
        if !folder.symlink_metadata().map_err(failed)?.is_dir() {
            return Err(refused("files", "is not a folder"));
        }
        for entry in fs::read_dir(folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else {
                return Err(refused(&name.to_string_lossy(), "is not UTF-8"));
            };
            let path = if inside.is_empty() {
                name.to_owned()
            } else {
                format!("{inside}/{name}")
            };
            let metadata = entry.path().symlink_metadata().map_err(failed)?;
            if metadata.is_dir() {
                self.walk(&entry.path(), &path, depth + 1)?;
                continue;
            }
            let content = self.read(&entry.path(), &path, &metadata)?;
            if self.files.len() == MAX_TEMPLATE_FILES {
                return Err(Error::TooLarge {
                    limit: MAX_TEMPLATE_FILES as u64,
                    unit: "files",
                });
            }
            self.files.push(SourceFile {
                path,
                content: Cow::Owned(content),
                is_executable: is_executable(&metadata),
            });
        }
        Ok(())
    }

    fn read(&mut self, path: &Path, inside: &str, metadata: &Metadata) -> Result<Vec<u8>, Error> {
        if metadata.is_symlink() {
            return Err(refused(inside, "is a link"));
        }
        // A pipe would be waited for, for ever.
        if !metadata.is_file() {
            return Err(refused(inside, "is not a plain file"));
        }
        let mut content = Vec::new();
        let left = MAX_TEMPLATE_BYTES - self.num_bytes;
        File::open(path)
            .and_then(|file| file.take(left + 1).read_to_end(&mut content))
            .map_err(|source| Error::Read {
                path: path.to_owned(),
                source,
            })?;
        self.num_bytes += content.len() as u64;
        if self.num_bytes > MAX_TEMPLATE_BYTES {
            return Err(Error::TooLarge {
                limit: MAX_TEMPLATE_BYTES,
                unit: "bytes",
            });
        }
        Ok(content)
    }
}

fn refused(path: &str, reason: &'static str) -> Error {
    Error::Path {
        path: path.to_owned(),
        reason,
    }
}

#[cfg(unix)]
fn is_executable(metadata: &Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    metadata.permissions().mode() & 0o111 != 0
}

#[cfg(not(unix))]
fn is_executable(_metadata: &Metadata) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use tempfile::TempDir;

    use super::*;

    fn folder() -> TempDir {
        let folder = TempDir::new().expect("a folder");
        fs::write(folder.path().join("template.toml"), "description = 'd'").expect("written");
        fs::create_dir_all(folder.path().join("files/a")).expect("made");
        fs::write(folder.path().join("files/a/b.txt"), "text").expect("written");
        folder
    }

    #[track_caller]
    fn refused_after(change: impl FnOnce(&Path), expected: &str) {
        let folder = folder();
        change(folder.path());
        let error = read_folder(folder.path()).expect_err("refused").to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn a_folder_is_read_in_order() {
        let folder = folder();
        fs::write(folder.path().join("files/0"), [0, 159, 146, 150]).expect("written");
        let template = read_folder(folder.path()).expect("read");
        let paths: Vec<_> = template
            .files
            .iter()
            .map(|file| file.path.as_str())
            .collect();
        assert_eq!(paths, ["0", "a/b.txt"]);
    }

    #[test]
    fn what_is_no_plain_file_is_refused() {
        refused_after(
            |folder| symlink("/etc", folder.join("files/etc")).unwrap(),
            "is a link",
        );
        refused_after(
            |folder| symlink("b.txt", folder.join("files/a/c")).unwrap(),
            "`a/c` is a link",
        );
        refused_after(
            |folder| {
                fs::remove_dir_all(folder.join("files")).unwrap();
                symlink("/etc", folder.join("files")).unwrap();
            },
            "`files` is not a folder",
        );
        refused_after(
            |folder| {
                fs::remove_file(folder.join("template.toml")).unwrap();
                symlink("/etc/hostname", folder.join("template.toml")).unwrap();
            },
            "`template.toml` is a link",
        );
        refused_after(
            |folder| drop(UnixListener::bind(folder.join("files/socket")).unwrap()),
            "`socket` is not a plain file",
        );
        refused_after(
            |folder| fs::remove_file(folder.join("template.toml")).unwrap(),
            "no template.toml",
        );
    }

    #[test]
    fn what_is_read_is_bounded() {
        refused_after(
            |folder| {
                let file = File::create(folder.join("files/large")).unwrap();
                file.set_len(MAX_TEMPLATE_BYTES).unwrap();
            },
            "bytes",
        );
        refused_after(
            |folder| {
                let deep = folder.join("files").join("d/".repeat(MAX_DEPTH + 1));
                fs::create_dir_all(deep).unwrap();
            },
            "folders within one another",
        );
    }
}
