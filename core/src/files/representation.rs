//! What is known of a file before a request asks for it: content or open
//! descriptor, validators, and the header lines that never change.
//!
//! Entity tags are inode, size and modification time in nanoseconds. A tag is
//! strong once the modification is [`STRONG_AFTER`] old, because two writes
//! within one tick of the file system's clock look the same (RFC 9110 §8.8.1).

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::HeaderValue;
use http::header::{
    ACCEPT_ENCODING, ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderMap,
    LAST_MODIFIED, VARY,
};
use rustix::io::Errno;

use super::conditional::Validators;
use super::encoding::Encoding;
use super::open::Stamp;
use super::span::read_exactly;
use crate::body::Body;
use crate::response::SharedHead;

/// Age of a modification at which its time identifies the content: above the
/// two seconds of the coarsest file system in use (FAT).
const STRONG_AFTER: Duration = Duration::from_secs(3);
/// First second of the year 10000, which HTTP dates cannot say.
const END_OF_DATES: u64 = 253_402_300_800;

/// Bytes of a representation.
#[derive(Debug)]
pub(super) enum Content {
    /// All of it, in memory.
    Bytes(Bytes),
    /// An open file, read while it is sent.
    File(Arc<File>),
}

impl Content {
    /// A body of these bytes; `range` is within the content.
    pub(super) fn body(&self, range: Range<u64>) -> Body {
        match self {
            Self::Bytes(bytes) => {
                // In memory, so its positions fit.
                bytes.slice(range.start as usize..range.end as usize).into()
            }
            Self::File(file) => Body::file(Arc::clone(file), range),
        }
    }
}

/// One stored form of a file: as it is, or encoded.
#[derive(Debug)]
pub(super) struct Representation {
    pub(super) stamp: Stamp,
    pub(super) content: Content,
    pub(super) encoding: Encoding,
    pub(super) etag: HeaderValue,
    pub(super) last_modified: Option<HeaderValue>,
    /// Whether the tag is weak because the file was young.
    is_young: bool,
    /// Header fields of a 200 or 206 besides its length.
    pub(super) head: Arc<SharedHead>,
}

impl Representation {
    /// Reads an open file of at most `max_bytes` into memory; keeps a larger
    /// one open, and one that is being written.
    ///
    /// # Errors
    /// What reading says.
    pub(super) fn new(
        file: File,
        stamp: Stamp,
        encoding: Encoding,
        max_bytes: u64,
    ) -> Result<Self, Errno> {
        let mut stamp = stamp;
        let mut content = None;
        if stamp.size <= max_bytes {
            let read = read_exactly(&file, 0, stamp.size as usize);
            let after = Stamp::of_file(&file)?;
            match read {
                Ok(bytes) if after == stamp => content = Some(Content::Bytes(bytes)),
                Ok(_) => stamp = after,
                Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => stamp = after,
                Err(error) => return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
            }
        }
        let now = SystemTime::now();
        let is_strong = is_mature(stamp, now);
        Ok(Self {
            stamp,
            content: content.unwrap_or_else(|| Content::File(Arc::new(file))),
            encoding,
            etag: etag(stamp, is_strong),
            last_modified: last_modified(stamp, now),
            is_young: !is_strong,
            head: Arc::default(),
        })
    }

    /// Whether the tag was made weak and would be strong now.
    pub(super) fn has_matured(&self) -> bool {
        self.is_young && is_mature(self.stamp, SystemTime::now())
    }

    /// Size in bytes.
    pub(super) const fn size(&self) -> u64 {
        self.stamp.size
    }

    /// What conditions are compared with.
    pub(super) fn validators(&self) -> Validators<'_> {
        let modified = u64::try_from(self.stamp.modified.0).ok();
        Validators {
            etag: self.etag.as_bytes(),
            modified: modified.filter(|_| self.last_modified.is_some()),
        }
    }
}

/// A file with the encoded forms that lie beside it.
#[derive(Debug)]
pub(super) struct Resource {
    pub(super) content_type: HeaderValue,
    pub(super) cache_control: Option<HeaderValue>,
    /// By [`Encoding`] as a number; the first is the file itself.
    pub(super) stored: [Option<Representation>; Encoding::ALL.len()],
    /// Whether encoded forms are looked for at all.
    pub(super) has_encoded_forms: bool,
    /// Whether `Accept-Encoding` decides what is sent.
    pub(super) varies: bool,
}

impl Resource {
    /// The file itself and its encoded forms.
    pub(super) fn new(
        content_type: HeaderValue,
        cache_control: Option<HeaderValue>,
        mut stored: [Option<Representation>; Encoding::ALL.len()],
        has_encoded_forms: bool,
    ) -> Self {
        let varies = stored.iter().flatten().count() > 1;
        let mut resource = Self {
            content_type,
            cache_control,
            stored: [const { None }; Encoding::ALL.len()],
            has_encoded_forms,
            varies,
        };
        for representation in stored.iter_mut().flatten() {
            representation.head = SharedHead::new(fields(&resource, representation));
        }
        resource.stored = stored;
        resource
    }

    /// The form of this encoding, or the file itself.
    pub(super) fn representation(&self, encoding: Encoding) -> &Representation {
        self.stored[encoding as usize]
            .as_ref()
            .or(self.stored[Encoding::Identity as usize].as_ref())
            .expect("a resource has the file itself")
    }

    /// Bytes in memory for bodies and heads.
    pub(super) fn num_bytes(&self) -> usize {
        let representations = self.stored.iter().flatten();
        representations
            .map(|representation| {
                let content = match &representation.content {
                    Content::Bytes(bytes) => bytes.len(),
                    Content::File(_) => 0,
                };
                content + SharedHead::BASE_BYTES + representation.head.lines().len()
            })
            .sum()
    }

    /// Descriptors that are kept open.
    pub(super) fn num_open_files(&self) -> usize {
        let representations = self.stored.iter().flatten();
        representations
            .filter(|representation| matches!(representation.content, Content::File(_)))
            .count()
    }
}

fn fields(resource: &Resource, representation: &Representation) -> HeaderMap {
    let date = representation.last_modified.clone();
    let vary = resource.varies.then(|| ACCEPT_ENCODING.into());
    let fields = [
        (CONTENT_TYPE, Some(resource.content_type.clone())),
        (ETAG, Some(representation.etag.clone())),
        (LAST_MODIFIED, date),
        (ACCEPT_RANGES, Some(HeaderValue::from_static("bytes"))),
        (CONTENT_ENCODING, representation.encoding.header()),
        (VARY, vary),
        (CACHE_CONTROL, resource.cache_control.clone()),
    ];
    let present = fields.into_iter();
    present
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
}

fn etag(stamp: Stamp, is_strong: bool) -> HeaderValue {
    let weakness = if is_strong { "" } else { "W/" };
    let (seconds, nanoseconds) = stamp.modified;
    let modified = i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
    let tag = format!(
        "{weakness}\"{:x}-{:x}-{modified:x}\"",
        stamp.inode, stamp.size
    );
    HeaderValue::try_from(tag).expect("hexadecimal digits are a header value")
}

/// RFC 9110 §8.8.2.1: no date in the future.
fn last_modified(stamp: Stamp, now: SystemTime) -> Option<HeaderValue> {
    let seconds = u64::try_from(stamp.modified.0).ok()?;
    let time = UNIX_EPOCH.checked_add(Duration::from_secs(seconds))?;
    if seconds >= END_OF_DATES || time > now {
        return None;
    }
    HeaderValue::try_from(httpdate::fmt_http_date(time)).ok()
}

fn is_mature(stamp: Stamp, now: SystemTime) -> bool {
    let Ok(seconds) = u64::try_from(stamp.modified.0) else {
        return true;
    };
    let modified = Duration::new(seconds, stamp.modified.1);
    now.duration_since(UNIX_EPOCH).is_ok_and(|now| {
        now.checked_sub(modified)
            .is_some_and(|age| age >= STRONG_AFTER)
    })
}

/// Media type by the extension of `path`, with the charset of text.
pub(super) fn content_type(path: &str) -> HeaderValue {
    let Some(kind) = mime_guess::from_path(path).first_raw() else {
        return HeaderValue::from_static("application/octet-stream");
    };
    if kind.starts_with("text/") {
        HeaderValue::try_from(format!("{kind}; charset=utf-8")).expect("media types are ASCII")
    } else {
        HeaderValue::from_static(kind)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::FileExt as _;

    use super::*;

    #[test]
    fn types_follow_the_extension() {
        for (path, expected) in [
            ("a.html", "text/html; charset=utf-8"),
            ("dir.d/a.CSS", "text/css; charset=utf-8"),
            ("a.js", "text/javascript; charset=utf-8"),
            ("a.json", "application/json"),
            ("a.svg", "image/svg+xml"),
            ("a.wasm", "application/wasm"),
            ("a.woff2", "font/woff2"),
            ("a.tar.gz", "application/gzip"),
            ("a", "application/octet-stream"),
            ("a.nosuchthing", "application/octet-stream"),
        ] {
            assert_eq!(content_type(path), expected, "{path}");
        }
    }

    fn set_modified(file: &File, time: SystemTime) {
        file.set_times(std::fs::FileTimes::new().set_modified(time))
            .unwrap();
    }

    fn represent(file: &File, max_bytes: u64) -> Representation {
        let stamp = Stamp::of_file(file).unwrap();
        let file = file.try_clone().unwrap();
        Representation::new(file, stamp, Encoding::Identity, max_bytes).unwrap()
    }

    #[test]
    fn tags_are_weak_while_the_file_is_young() {
        let file = tempfile::tempfile().unwrap();
        assert!(represent(&file, 0).etag.as_bytes().starts_with(b"W/\""));
        set_modified(&file, SystemTime::now() - STRONG_AFTER);
        let strong = represent(&file, 0);
        assert!(strong.etag.as_bytes().starts_with(b"\""));
        assert!(!strong.has_matured());
    }

    #[test]
    fn tags_change_with_size_and_nanoseconds() {
        let mut file = tempfile::tempfile().unwrap();
        set_modified(&file, UNIX_EPOCH + Duration::new(1000, 1));
        let first = represent(&file, 0).etag;
        set_modified(&file, UNIX_EPOCH + Duration::new(1000, 2));
        let second = represent(&file, 0).etag;
        file.write_all(b"x").unwrap();
        set_modified(&file, UNIX_EPOCH + Duration::new(1000, 2));
        let third = represent(&file, 0).etag;
        assert!(first != second && second != third);
    }

    #[test]
    fn times_that_http_cannot_say_are_left_out() {
        let file = tempfile::tempfile().unwrap();
        set_modified(&file, UNIX_EPOCH - Duration::from_secs(5));
        assert_eq!(represent(&file, 0).last_modified, None);
        set_modified(&file, SystemTime::now() + Duration::from_hours(1));
        let future = represent(&file, 0);
        assert_eq!(future.last_modified, None);
        assert!(future.etag.as_bytes().starts_with(b"W/"));
        set_modified(&file, UNIX_EPOCH + Duration::from_secs(784_111_777));
        let past = represent(&file, 0);
        assert_eq!(past.last_modified.unwrap(), "Sun, 06 Nov 1994 08:49:37 GMT");
    }

    #[test]
    fn small_files_are_read_and_large_ones_kept_open() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"0123456789", 0).unwrap();
        assert!(matches!(
            represent(&file, 10).content,
            Content::Bytes(bytes) if bytes == "0123456789"
        ));
        assert!(matches!(represent(&file, 9).content, Content::File(_)));
    }

    #[test]
    fn a_file_that_changes_while_it_is_read_is_not_kept_in_memory() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"before", 0).unwrap();
        set_modified(&file, UNIX_EPOCH + Duration::from_secs(1000));
        let old = Stamp::of_file(&file).unwrap();
        for content in [&b"after!"[..], b"longer than before"] {
            file.write_all_at(content, 0).unwrap();
            set_modified(&file, UNIX_EPOCH + Duration::from_secs(2000));
            let copy = file.try_clone().unwrap();
            let found = Representation::new(copy, old, Encoding::Identity, 100).unwrap();
            assert!(matches!(found.content, Content::File(_)));
            assert_eq!(found.stamp, Stamp::of_file(&file).unwrap());
            assert_eq!(found.size(), content.len() as u64);
        }
    }

    #[test]
    fn the_head_holds_the_fields_but_the_length() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"0123456789", 0).unwrap();
        set_modified(&file, UNIX_EPOCH + Duration::from_secs(784_111_777));
        let policy = HeaderValue::from_static("no-cache");
        let stored = [Some(represent(&file, 10)), None, None, None];
        let resource = Resource::new(content_type("a.txt"), Some(policy), stored, false);
        let representation = resource.representation(Encoding::Brotli);
        let etag = representation.etag.to_str().unwrap();
        let expected = format!(
            "content-type: text/plain; charset=utf-8\r\netag: {etag}\r\n\
             last-modified: Sun, 06 Nov 1994 08:49:37 GMT\r\naccept-ranges: bytes\r\n\
             cache-control: no-cache\r\n"
        );
        assert_eq!(representation.head.lines(), expected.as_bytes());
        let num_bytes = 10 + SharedHead::BASE_BYTES + expected.len();
        assert_eq!(resource.num_bytes(), num_bytes);
        assert_eq!(resource.num_open_files(), 0);
    }
}
