//! Static files below a folder, mounted under a route of the router.
//!
//! Guarantees: no path leads out of the folder, whatever its spelling and
//! whatever links lie in it (unless [`Symlinks::Anywhere`] is asked for); what
//! is announced is what is sent, or the message is broken off. A file that is
//! in the lane's cache costs one hash look-up. Files are read on the lane:
//! they belong on a local disk.

mod cache;
mod conditional;
mod encoding;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod multipart;
mod open;
mod path;
mod range;
mod representation;
mod respond;
mod span;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{LOCATION, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use rustix::io::Errno;
use thread_local::ThreadLocal;

use self::cache::{Entry, LaneCache};
use self::encoding::Encoding;
use self::open::{Found, Root};
use self::path::{Unwanted, Wanted, has_encoded_slash, is_canonical};
use self::representation::{Representation, Resource, content_type};
use self::respond::respond;
use crate::error::Error;
use crate::handler::{FutureSlot, Handler};
use crate::limits::Reject;
use crate::problem::Problem;
use crate::request::Request;
use crate::response::{IntoResponse as _, Response};
use crate::router::Router;
use crate::server::{count_on_lane, with_limits};

pub use self::cache::FileCache;
pub use self::open::Symlinks;
pub(crate) use self::span::FileSpan;

/// A folder whose files are served; mounted by [`Router::files`].
///
/// A file is answered with its media type, a validator of inode, size and
/// modification time, and ranges. `name.br`, `name.zst` and `name.gz` beside
/// `name` are sent to clients that accept them, unless they are older than it.
/// A folder is answered with its index file; there is no listing.
///
/// 404 is for what is not there, leads out of the folder, begins with a dot or
/// is neither file nor folder; 403 for what the process may not read; 503 when
/// it is out of descriptors.
pub struct Files {
    root: PathBuf,
    index: Option<Box<str>>,
    serves_hidden: bool,
    has_encoded_forms: bool,
    symlinks: Symlinks,
    revalidate: Duration,
    cache_control: Option<HeaderValue>,
    cache: FileCache,
    lanes: ThreadLocal<RefCell<LaneCache>>,
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files")
            .field("root", &self.root)
            .field("index", &self.index)
            .field("symlinks", &self.symlinks)
            .field("revalidate", &self.revalidate)
            .field("cache", &self.cache)
            .finish_non_exhaustive()
    }
}

impl Files {
    /// How old an answer may be unless [`Files::revalidate`] says otherwise:
    /// short enough for a person who reloads a page, and at any load one check
    /// of a file a second.
    pub const REVALIDATE: Duration = Duration::from_secs(1);

    /// The files below `root`, which may itself be a link.
    ///
    /// # Errors
    /// [`Error::FilesRoot`] when it is not a folder.
    pub fn new(root: impl Into<PathBuf>) -> Result<Self, Error> {
        let root = root.into();
        let failed = |path: PathBuf, source| Error::FilesRoot { path, source };
        // A later change of the working directory moves nothing.
        let root = match std::path::absolute(&root) {
            Ok(absolute) => absolute,
            Err(source) => return Err(failed(root, source)),
        };
        if let Err(errno) = Root::open(&root, Symlinks::Within) {
            return Err(failed(root, errno.into()));
        }
        Ok(Self {
            root,
            index: Some("index.html".into()),
            serves_hidden: false,
            has_encoded_forms: true,
            symlinks: Symlinks::Within,
            revalidate: Self::REVALIDATE,
            cache_control: None,
            cache: FileCache::DEFAULT,
            lanes: ThreadLocal::new(),
        })
    }

    /// Sets the file that answers for its folder: `index.html` by default.
    #[must_use]
    pub fn index(mut self, name: Option<&str>) -> Self {
        self.index = name.map(Into::into);
        self
    }

    /// Sets whether names that begin with a dot are served; not by default.
    #[must_use]
    pub const fn hidden(mut self, serves_hidden: bool) -> Self {
        self.serves_hidden = serves_hidden;
        self
    }

    /// Sets whether encoded files are looked for beside the file; by default.
    #[must_use]
    pub const fn precompressed(mut self, has_encoded_forms: bool) -> Self {
        self.has_encoded_forms = has_encoded_forms;
        self
    }

    /// Sets what becomes of symbolic links below the root.
    #[must_use]
    pub const fn symlinks(mut self, symlinks: Symlinks) -> Self {
        self.symlinks = symlinks;
        self
    }

    /// Sets how old an answer may be; zero looks at the disk each time.
    ///
    /// Within this time, counted back from when the request came, a file that
    /// was replaced, removed or forbidden is answered as it was; a new file is
    /// found at once.
    #[must_use]
    pub const fn revalidate(mut self, time: Duration) -> Self {
        self.revalidate = time;
        self
    }

    /// Sets the `Cache-Control` of every file; none by default.
    #[must_use]
    pub fn cache_control(mut self, policy: HeaderValue) -> Self {
        self.cache_control = Some(policy);
        self
    }

    /// Sets the bounds of the cache that each lane has.
    #[must_use]
    pub const fn cache(mut self, limits: FileCache) -> Self {
        self.cache = limits;
        self
    }

    /// Answers out of the lane's cache, or from the disk.
    fn answer(&self, request: &Request, place: Place) -> Response {
        let lane = self
            .lanes
            .get_or(|| RefCell::new(LaneCache::new(self.cache)));
        let lane = &mut *lane.borrow_mut();
        // The moment that an answer's age counts from: what is learnt later is
        // only younger than it says.
        let now = request.received_at();
        let key = request.head().path_bytes();
        let hit = lane.hit(
            key,
            now,
            self.revalidate,
            || self.open_root(),
            |resource| respond(resource, request),
        );
        count_on_lane(|metrics| metrics.file_looked_up(hit.is_some()));
        if let Some(response) = hit {
            return response;
        }
        let wanted = match place.wanted(request, self.serves_hidden) {
            Ok(wanted) => wanted,
            Err(Unwanted::NoName) => return refuse(Errno::NOENT),
            Err(Unwanted::TooLong) => return too_long(),
        };
        let mut looked_up = self.look_up(lane, now, wanted);
        if matches!(looked_up, Err(Errno::MFILE | Errno::NFILE)) {
            lane.clear();
            looked_up = self.look_up(lane, now, wanted);
        }
        match looked_up {
            Ok(Some(entry)) => {
                let response = respond(&entry.resource, request);
                if is_canonical(request.path()) {
                    lane.insert(key, entry);
                }
                response
            }
            Ok(None) => redirect_to_folder(request),
            Err(errno) => refuse(errno),
        }
    }

    /// The file of a path; `None` when it is a folder's without its slash.
    fn look_up(
        &self,
        lane: &mut LaneCache,
        now: Instant,
        wanted: Wanted<'_>,
    ) -> Result<Option<Entry>, Errno> {
        let (root, true_at) = lane.root(now, self.revalidate, || self.open_root())?;
        let true_at = *true_at;
        if !wanted.is_folder && !wanted.path.is_empty() {
            match root.find(wanted.path)? {
                Found::File(file, stamp) => {
                    let resource = self.resource(root, wanted.path, file, stamp)?;
                    return Ok(Some(Entry {
                        resource,
                        path: wanted.path.into(),
                        true_at,
                    }));
                }
                Found::Folder => {}
            }
        }
        let index = self.index.as_deref().ok_or(Errno::NOENT)?;
        let path = match wanted.path {
            "" => index.to_owned(),
            folder => format!("{folder}/{index}"),
        };
        match root.find(&path)? {
            Found::File(file, stamp) if wanted.is_folder => {
                let resource = self.resource(root, &path, file, stamp)?;
                Ok(Some(Entry {
                    resource,
                    path: path.into(),
                    true_at,
                }))
            }
            Found::File(..) => Ok(None),
            Found::Folder => Err(Errno::NOENT),
        }
    }

    /// The open file of `path` with the encoded forms beside it.
    fn resource(
        &self,
        root: &Root,
        path: &str,
        file: std::fs::File,
        stamp: open::Stamp,
    ) -> Result<Resource, Errno> {
        let most = self.cache.max_file_bytes;
        let original = Representation::new(file, stamp, Encoding::Identity, most)?;
        let mut stored = [const { None }; Encoding::ALL.len()];
        if self.has_encoded_forms {
            for encoding in Encoding::ENCODED {
                let path = format!("{path}{}", encoding.suffix());
                // One that cannot be had is done without.
                if let Ok(Found::File(file, stamp)) = root.find(&path)
                    && stamp.can_stand_for(original.stamp)
                {
                    let encoded = Representation::new(file, stamp, encoding, most);
                    stored[encoding as usize] = encoded.ok();
                }
            }
        }
        stored[Encoding::Identity as usize] = Some(original);
        Ok(Resource::new(
            content_type(path),
            self.cache_control.clone(),
            stored,
            self.has_encoded_forms,
        ))
    }

    fn open_root(&self) -> Result<Root, Errno> {
        Root::open(&self.root, self.symlinks)
    }
}

impl Router {
    /// Adds the files of a folder below `prefix`, for GET and HEAD.
    ///
    /// `prefix` is a pattern; a literal route below it wins over a file. The
    /// prefix itself without a slash is redirected to the one with a slash.
    ///
    /// # Errors
    /// As [`Router::route`].
    pub fn files(self, prefix: &str, files: Files) -> Result<Self, Error> {
        mount(self, prefix, &Arc::new(files))
    }
}

fn mount(mut router: Router, prefix: &str, files: &Arc<Files>) -> Result<Router, Error> {
    let at = |place| Mounted {
        files: Arc::clone(files),
        place,
    };
    let stem = prefix.strip_suffix('/').unwrap_or(prefix);
    if !stem.is_empty() {
        router = router.get(stem, at(Place::Bare))?;
    }
    router
        .get(&format!("{stem}/"), at(Place::Root))?
        .get(&format!("{stem}/{{*path}}"), at(Place::Below))
}

/// The files of a mount, at one of its routes.
struct Mounted {
    files: Arc<Files>,
    place: Place,
}

impl Handler for Mounted {
    fn call(&self, request: Request, _slot: &mut FutureSlot) -> Option<Response> {
        Some(self.files.answer(&request, self.place))
    }
}

/// Which of a mount's routes matched.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// The prefix without a slash.
    Bare,
    /// The prefix with a slash.
    Root,
    /// Something below; the last parameter is its path.
    Below,
}

impl Place {
    /// What the request is for.
    fn wanted(self, request: &Request, serves_hidden: bool) -> Result<Wanted<'_>, Unwanted> {
        match self {
            Self::Bare => Ok(Wanted {
                is_folder: false,
                ..Wanted::ROOT
            }),
            Self::Root => Ok(Wanted::ROOT),
            Self::Below if has_encoded_slash(request.path()) => Err(Unwanted::NoName),
            Self::Below => {
                let (_, path) = request.params().last().ok_or(Unwanted::NoName)?;
                let max_bytes = with_limits(|limits| limits.max_static_path_bytes);
                Wanted::new(path, serves_hidden, max_bytes)
            }
        }
    }
}

/// 414: a path that is longer than any that is served.
fn too_long() -> Response {
    let limit = with_limits(|limits| limits.max_static_path_bytes);
    Problem::new(StatusCode::URI_TOO_LONG)
        .with_detail("the path is longer than that of any file here")
        .with_limit("server.limits.static_path", limit as u64)
        .counted_as(Reject::StaticPath)
        .into_response()
}

/// 308 to the path with a slash, as the client spelled it.
///
/// It begins with one slash and holds no backslash and no control character,
/// so no client reads another host in it: [`Wanted`] has seen to that.
fn redirect_to_folder(request: &Request) -> Response {
    let path = request.path();
    let location = match request.query() {
        Some(query) => format!("{path}/?{query}"),
        None => format!("{path}/"),
    };
    match HeaderValue::try_from(location) {
        Ok(location) => {
            Response::new(StatusCode::PERMANENT_REDIRECT).with_header(LOCATION, location)
        }
        Err(_) => Problem::new(StatusCode::BAD_REQUEST)
            .with_detail("the query holds control characters")
            .into_response(),
    }
}

/// The answer to what the file system said.
fn refuse(errno: Errno) -> Response {
    let status = match errno {
        Errno::NOENT
        | Errno::NOTDIR
        | Errno::LOOP
        | Errno::XDEV
        | Errno::NAMETOOLONG
        | Errno::INVAL
        | Errno::NXIO => StatusCode::NOT_FOUND,
        Errno::ACCESS | Errno::PERM => StatusCode::FORBIDDEN,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN | Errno::INTR => {
            return Problem::new(StatusCode::SERVICE_UNAVAILABLE)
                .with_detail("the file cannot be opened at this moment")
                .into_response()
                .with_header(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    Problem::new(status).into_response()
}
