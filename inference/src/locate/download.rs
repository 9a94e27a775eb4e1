//! One file from a hub: resumed where it stopped, checked, and only then named.
//!
//! Guarantee: a content under its own name is whole and is what was promised;
//! until then it is `NAME.incomplete`, which the next try continues.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use reqwest::header::CONTENT_RANGE;
use reqwest::{Method, Response, StatusCode};

use super::client::{Failure, HubClient, passing};
use super::digest::Hasher;
use super::error::LocateError;
use super::event::{Listener, LocateEvent};

/// Bytes between two reports of progress.
const REPORT_BYTES: u64 = 1 << 20;

/// A file on a hub, as its head describes it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct RemoteFile {
    /// `org/name`.
    pub(super) repository: String,
    /// Name in the repository.
    pub(super) file: String,
    /// Address that redirects to the content.
    pub(super) url: String,
    /// Commit that the revision is.
    pub(super) commit: String,
    /// Name of the content: its digest, as a rule.
    pub(super) etag: String,
    /// Its size, where told.
    pub(super) num_bytes: Option<u64>,
}

/// A file that grows.
struct Partial<'a> {
    remote: &'a RemoteFile,
    path: PathBuf,
    file: File,
    hasher: Hasher,
    num_bytes: u64,
}

/// Fetches a content into `path`.
///
/// # Errors
/// [`LocateError`]; what has come so far stays for the next try, unless it was wrong.
pub(super) async fn download(
    client: &HubClient,
    remote: &RemoteFile,
    path: &Path,
    listener: Listener<'_>,
) -> Result<(), LocateError> {
    let mut partial = Partial::open(remote, incomplete(path))?;
    let mut may_be_stale = partial.num_bytes > 0;
    partial.check_space()?;
    listener(LocateEvent::Fetching {
        source: &client.endpoint,
        file: &remote.file,
        num_bytes: remote.num_bytes,
    });
    let mut num_failures = 0;
    loop {
        let before = partial.num_bytes;
        match partial.transfer(client, listener).await {
            Ok(()) => match partial.check() {
                Ok(()) => break,
                // The beginning may be that of an older content.
                Err(_) if may_be_stale => {
                    may_be_stale = false;
                    partial.restart()?;
                }
                Err(error) => {
                    drop(fs::remove_file(&partial.path));
                    return Err(error);
                }
            },
            Err(failure) => {
                if partial.num_bytes > before {
                    num_failures = 0;
                }
                let waiting = client.pause(failure, &mut num_failures, &remote.url, listener);
                waiting.await?;
            }
        }
    }
    partial.keep(path)?;
    listener(LocateEvent::Fetched { file: &remote.file });
    Ok(())
}

fn incomplete(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".incomplete");
    PathBuf::from(name)
}

impl<'a> Partial<'a> {
    /// Opens what an earlier try has left, or an empty file.
    fn open(remote: &'a RemoteFile, path: PathBuf) -> Result<Self, LocateError> {
        let storage = |operation| LocateError::storage(operation, path.clone());
        let mut file = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .map_err(storage("open"))?;
        let mut hasher = Hasher::for_promise(&remote.etag, remote.num_bytes);
        let mut num_bytes = 0;
        let mut buffer = vec![0; 1 << 16];
        loop {
            let count = match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(storage("read")(error)),
            };
            hasher.update(&buffer[..count]);
            num_bytes += count as u64;
        }
        let mut partial = Self {
            remote,
            path,
            file,
            hasher,
            num_bytes,
        };
        if remote.num_bytes.is_some_and(|whole| num_bytes > whole) {
            partial.restart()?;
        }
        Ok(partial)
    }

    /// Empties the file.
    fn restart(&mut self) -> Result<(), LocateError> {
        use std::io::Seek as _;
        self.hasher = Hasher::for_promise(&self.remote.etag, self.remote.num_bytes);
        self.num_bytes = 0;
        self.file
            .set_len(0)
            .and_then(|()| self.file.rewind())
            .map_err(LocateError::storage("empty", &self.path))
    }

    /// Looks whether the rest fits on the disk before it is fetched.
    fn check_space(&self) -> Result<(), LocateError> {
        let Some(whole) = self.remote.num_bytes else {
            return Ok(());
        };
        let Ok(status) = rustix::fs::fstatvfs(&self.file) else {
            return Ok(());
        };
        let free = status.f_bavail.saturating_mul(status.f_frsize);
        let rest = whole - self.num_bytes;
        if rest <= free {
            return Ok(());
        }
        let text = format!("{rest} bytes are to come and {free} are free");
        let error = io::Error::new(io::ErrorKind::StorageFull, text);
        Err(LocateError::storage("write", &self.path)(error))
    }

    /// Asks for what is missing, and appends it.
    async fn transfer(
        &mut self,
        client: &HubClient,
        listener: Listener<'_>,
    ) -> Result<(), Failure> {
        let remote = self.remote;
        if self.num_bytes > 0 && remote.num_bytes == Some(self.num_bytes) {
            return Ok(());
        }
        let names = (remote.repository.as_str(), remote.file.as_str());
        let never = |_: &Response| false;
        let answer = client.send(Method::GET, &remote.url, self.num_bytes, never, names);
        let mut response = answer.await?;
        if self.num_bytes > 0 && !continues_at(&response, self.num_bytes) {
            self.restart().map_err(Failure::Final)?;
            if response.status() != StatusCode::OK {
                return Err(Failure::Passing {
                    pause: None,
                    reason: "it does not continue where it stopped".to_owned(),
                });
            }
        }
        listener(LocateEvent::Progress {
            num_bytes: self.num_bytes,
        });
        let mut reported = self.num_bytes;
        while let Some(part) = response.chunk().await.map_err(|error| passing(&error))? {
            self.append(&part).map_err(Failure::Final)?;
            if self.num_bytes >= reported + REPORT_BYTES {
                reported = self.num_bytes;
                listener(LocateEvent::Progress {
                    num_bytes: self.num_bytes,
                });
            }
        }
        listener(LocateEvent::Progress {
            num_bytes: self.num_bytes,
        });
        match remote.num_bytes {
            // The length was not announced, or a proxy has ended it early.
            Some(whole) if self.num_bytes < whole => Err(Failure::Passing {
                pause: None,
                reason: format!("ends after {} of {whole} bytes", self.num_bytes),
            }),
            _ => Ok(()),
        }
    }

    fn append(&mut self, part: &[u8]) -> Result<(), LocateError> {
        self.num_bytes += part.len() as u64;
        if let Some(whole) = self.remote.num_bytes
            && self.num_bytes > whole
        {
            // Nothing of it can be trusted.
            drop(fs::remove_file(&self.path));
            return Err(self.mismatch("size", whole.to_string(), format!("more than {whole}")));
        }
        self.hasher.update(part);
        self.file
            .write_all(part)
            .map_err(LocateError::storage("write", &self.path))
    }

    /// Compares size and digest with what was promised.
    fn check(&self) -> Result<(), LocateError> {
        if let Some(whole) = self.remote.num_bytes
            && whole != self.num_bytes
        {
            return Err(self.mismatch("size", whole.to_string(), self.num_bytes.to_string()));
        }
        match self.hasher.clone().finish() {
            Some((quantity, found)) if !found.eq_ignore_ascii_case(&self.remote.etag) => {
                Err(self.mismatch(quantity, self.remote.etag.clone(), found))
            }
            _ => Ok(()),
        }
    }

    fn mismatch(&self, quantity: &'static str, expected: String, found: String) -> LocateError {
        LocateError::Mismatch {
            file: self.remote.file.clone(),
            quantity,
            expected,
            found,
        }
    }

    /// Gives the file its name, once it is on the disk.
    fn keep(self, path: &Path) -> Result<(), LocateError> {
        self.file
            .sync_all()
            .and_then(|()| fs::rename(&self.path, path))
            .map_err(LocateError::storage("keep", path))
    }
}

/// Whether an answer continues a file at this byte.
fn continues_at(response: &Response, num_bytes: u64) -> bool {
    let range = response.headers().get(CONTENT_RANGE);
    let range = range.and_then(|value| value.to_str().ok());
    response.status() == StatusCode::PARTIAL_CONTENT
        && range.is_some_and(|range| range.starts_with(&format!("bytes {num_bytes}-")))
}
