//! A mounted folder, asked through the router without a socket.

use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::time::SystemTime;

use http::{HeaderMap, Method};
use proptest::prelude::*;

use super::*;
use crate::body::Body;
use crate::router::RouteId;

/// An answer with its whole body.
#[derive(Debug)]
struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Result<Vec<u8>, String>,
    is_file: bool,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    fn bytes(&self) -> &[u8] {
        self.body.as_deref().unwrap()
    }
}

/// A folder with a router that serves it below `/f`.
struct Site {
    folder: tempfile::TempDir,
    files: Arc<Files>,
    router: Router,
}

impl Site {
    fn new(set_up: impl FnOnce(Files) -> Files) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let files = Arc::new(set_up(Files::new(folder.path()).unwrap()));
        let router = mount(Router::new(), "/f", &files).unwrap();
        Self {
            folder,
            files,
            router,
        }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file that is old enough for a strong tag.
    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path().join(name);
        fs::write(&path, content).unwrap();
        age(&path, 100);
    }

    fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path, &[])
    }

    fn ask(&self, method: Method, path: &str, lines: &[(&str, &str)]) -> Answer {
        let mut request = Request::new(method, path.parse().unwrap(), Body::empty());
        for (name, value) in lines {
            let name: http::HeaderName = name.parse().unwrap();
            request
                .headers_mut()
                .append(name, HeaderValue::from_str(value).unwrap());
        }
        let matched = Cell::new(RouteId::UNMATCHED);
        let response = self
            .router
            .dispatch(request, &matched, &mut FutureSlot::new())
            .expect("files are answered at once");
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let is_file = response.body().is_file();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let body = runtime.block_on(response.into_body().bytes());
        Answer {
            status,
            headers,
            body: body
                .map(|bytes| bytes.to_vec())
                .map_err(|error| error.to_string()),
            is_file,
        }
    }

    /// A cell of this thread's cache.
    fn with_cache<R>(&self, look: impl FnOnce(&LaneCache) -> R) -> R {
        let lane = self.files.lanes.get().expect("this thread has asked");
        look(&lane.borrow())
    }
}

/// Sets the modification time `seconds` back.
fn age(path: &Path, seconds: u64) {
    let time = SystemTime::now() - Duration::from_secs(seconds);
    let file = fs::File::options().append(true).open(path).unwrap();
    file.set_times(fs::FileTimes::new().set_modified(time))
        .unwrap();
}

#[test]
fn a_file_has_its_headers() {
    let site = Site::new(|files| files);
    site.write("a.txt", "hello");
    let answer = site.get("/f/a.txt");
    assert_eq!((answer.status, answer.bytes()), (200, &b"hello"[..]));
    assert_eq!(
        answer.header("content-type"),
        Some("text/plain; charset=utf-8")
    );
    assert_eq!(answer.header("accept-ranges"), Some("bytes"));
    assert_eq!(answer.header("vary"), None);
    assert!(answer.header("etag").unwrap().starts_with('"'));
    assert!(answer.header("last-modified").unwrap().ends_with(" GMT"));
    let head = site.ask(Method::HEAD, "/f/a.txt", &[]);
    assert_eq!((head.status, head.headers), (200, answer.headers));
}

#[test]
fn folders_have_an_index_or_nothing() {
    let site = Site::new(|files| files);
    fs::create_dir_all(site.path().join("with/deep")).unwrap();
    fs::create_dir(site.path().join("without")).unwrap();
    fs::create_dir_all(site.path().join("odd/index.html")).unwrap();
    site.write("with/index.html", "<p>");
    let check = |path: &str, status: u16, location: Option<&str>| {
        let answer = site.get(path);
        assert_eq!(
            (answer.status, answer.header("location")),
            (status, location),
            "{path}"
        );
    };
    check("/f", 404, None);
    check("/f/", 404, None);
    check("/f/with", 308, Some("/f/with/"));
    check("/f/w%69th?a=/b", 308, Some("/f/w%69th/?a=/b"));
    check("/f/with/", 200, None);
    check("/f/with/index.html", 200, None);
    check("/f/with/index.html/", 404, None);
    for nothing in [
        "without",
        "without/",
        "odd",
        "odd/",
        "with/deep",
        "with/deep/",
    ] {
        check(&format!("/f/{nothing}"), 404, None);
    }
    site.write("index.html", "<p>");
    check("/f", 308, Some("/f/"));
    check("/f/", 200, None);

    let bare = Site::new(|files| files.index(None));
    bare.write("index.html", "<p>");
    for path in ["/f", "/f/"] {
        assert_eq!(bare.get(path).status, 404, "{path}");
    }
    assert_eq!(bare.get("/f/index.html").status, 200);
}

#[test]
fn a_mount_on_the_root_yields_to_routes() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("index.html"), "index").unwrap();
    fs::write(folder.path().join("hello"), "file").unwrap();
    fs::write(folder.path().join("other"), "file").unwrap();
    let router = Router::new()
        .get("/hello", crate::handler::inline(|_: Request| "route"))
        .and_then(|router| router.files("/", Files::new(folder.path())?))
        .unwrap();
    let files = Arc::new(Files::new(folder.path()).unwrap());
    let site = Site {
        folder,
        files,
        router,
    };
    assert_eq!(site.get("/").bytes(), b"index");
    assert_eq!(site.get("/hello").bytes(), b"route");
    assert_eq!(site.get("/other").bytes(), b"file");
    assert_eq!(site.get("//other").status, 404);
}

#[test]
fn a_root_that_is_no_folder_is_an_error() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for path in [file.path().to_owned(), file.path().join("x")] {
        assert!(matches!(Files::new(path), Err(Error::FilesRoot { .. })));
    }
}

#[test]
fn a_replaced_root_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    for release in ["one", "two"] {
        fs::create_dir(folder.path().join(release)).unwrap();
        fs::write(folder.path().join(release).join("a"), release).unwrap();
    }
    let current = folder.path().join("current");
    std::os::unix::fs::symlink("one", &current).unwrap();
    let files = Arc::new(Files::new(&current).unwrap().revalidate(Duration::ZERO));
    let router = mount(Router::new(), "/f", &files).unwrap();
    let site = Site {
        folder,
        files,
        router,
    };
    assert_eq!(site.get("/f/a").bytes(), b"one");
    fs::remove_file(&current).unwrap();
    std::os::unix::fs::symlink("two", &current).unwrap();
    assert_eq!(site.get("/f/a").bytes(), b"two");
}

const SMALL: FileCache = FileCache {
    max_file_bytes: 16,
    max_bytes: 8 * 1024,
    max_entries: 4,
    max_open_files: 2,
};

#[test]
fn the_cache_keeps_its_bounds() {
    let site = Site::new(|files| files.cache(SMALL).revalidate(Duration::from_hours(1)));
    for index in 0..20 {
        site.write(&format!("small{index}"), "x");
        site.write(&format!("large{index}"), [1; 17]);
    }
    for round in 0..3 {
        for index in 0..20 {
            assert_eq!(site.get(&format!("/f/small{index}")).bytes(), b"x");
            let large = site.get(&format!("/f/large{index}"));
            assert_eq!((large.bytes(), large.is_file), (&[1; 17][..], true));
            site.with_cache(|cache| {
                assert!(
                    cache.is_within_limits(),
                    "round {round}, {index}: {cache:?}"
                );
            });
        }
    }
    for spelling in ["/f/%73mall0", "/f/s%6Dall0", "/f/sm%61ll0"] {
        assert_eq!(site.get(spelling).bytes(), b"x");
        site.with_cache(|cache| assert!(!cache.has(spelling)));
    }
    site.with_cache(|cache| assert!(cache.has("/f/large19") && !cache.has("/f/small0")));
}

#[test]
fn a_cache_of_nothing_still_answers() {
    let nothing = FileCache {
        max_bytes: 0,
        ..SMALL
    };
    let site = Site::new(|files| files.cache(nothing));
    site.write("a", "x");
    assert_eq!(site.get("/f/a").bytes(), b"x");
    site.with_cache(|cache| assert!(!cache.has("/f/a")));
}

#[test]
fn within_the_time_a_file_is_as_it_was_and_after_it_as_it_is() {
    let stale = Site::new(|files| files.revalidate(Duration::from_hours(1)));
    let fresh = Site::new(|files| files.revalidate(Duration::ZERO));
    for site in [&stale, &fresh] {
        site.write("a", "old");
        site.write("gone", "old");
        assert_eq!(site.get("/f/a").bytes(), b"old");
        assert_eq!(site.get("/f/gone").bytes(), b"old");
        assert_eq!(site.get("/f/new").status, 404);
        site.write("a", "newer");
        site.write("new", "new");
        fs::remove_file(site.path().join("gone")).unwrap();
        assert_eq!(site.get("/f/new").bytes(), b"new");
    }
    assert_eq!(stale.get("/f/a").bytes(), b"old");
    assert_eq!(stale.get("/f/gone").bytes(), b"old");
    assert_eq!(fresh.get("/f/a").bytes(), b"newer");
    assert_eq!(fresh.get("/f/gone").status, 404);
}

#[test]
fn an_open_file_never_has_an_old_length() {
    let cache = FileCache {
        max_file_bytes: 0,
        ..SMALL
    };
    let site = Site::new(|files| files.cache(cache).revalidate(Duration::from_hours(1)));
    site.write("a", "old");
    assert_eq!(site.get("/f/a").bytes(), b"old");
    site.write("a", "longer");
    let answer = site.get("/f/a");
    assert_eq!((answer.bytes(), answer.is_file), (&b"longer"[..], true));
}

#[test]
fn young_tags_become_strong() {
    let site = Site::new(|files| files.revalidate(Duration::ZERO));
    fs::write(site.path().join("a"), "x").unwrap();
    let young = site.get("/f/a");
    assert!(young.header("etag").unwrap().starts_with("W/\""));
    age(&site.path().join("a"), 10);
    assert!(site.get("/f/a").header("etag").unwrap().starts_with('"'));
}

#[test]
fn encoded_forms_are_their_own_representations() {
    let site = Site::new(|files| files.revalidate(Duration::ZERO));
    site.write("a.js", "original");
    site.write("plain.js", "original");
    let encoding = |accepted: &str| {
        let answer = site.ask(Method::GET, "/f/a.js", &[("accept-encoding", accepted)]);
        assert_eq!(
            answer.header("content-type"),
            Some("text/javascript; charset=utf-8")
        );
        let coding = answer.header("content-encoding").map(str::to_owned);
        (coding, answer)
    };
    assert_eq!(encoding("br, gzip").0, None);
    site.write("a.js.gz", "gz");
    age(&site.path().join("a.js.gz"), 50);
    site.write("a.js.br", "br");
    age(&site.path().join("a.js.br"), 50);
    let (coding, br) = encoding("gzip, br");
    assert_eq!((coding.as_deref(), br.bytes()), (Some("br"), &b"br"[..]));
    let (coding, gz) = encoding("gzip");
    assert_eq!((coding.as_deref(), gz.bytes()), (Some("gzip"), &b"gz"[..]));
    let (coding, original) = encoding("zstd");
    assert_eq!((coding, original.bytes()), (None, &b"original"[..]));
    let tags = [&br, &gz, &original].map(|answer| answer.header("etag").unwrap());
    assert!(tags[0] != tags[1] && tags[1] != tags[2] && tags[0] != tags[2]);
    for answer in [&br, &gz, &original] {
        assert_eq!(answer.header("vary"), Some("accept-encoding"));
    }
    let part = site.ask(
        Method::GET,
        "/f/a.js",
        &[("accept-encoding", "br"), ("range", "bytes=1-")],
    );
    assert_eq!((part.status, part.bytes()), (206, &b"r"[..]));
    assert_eq!(part.header("content-range"), Some("bytes 1-1/2"));
    assert_eq!(part.header("content-encoding"), Some("br"));
    let parts = site.ask(
        Method::GET,
        "/f/a.js",
        &[("accept-encoding", "gzip"), ("range", "bytes=0-0,-1")],
    );
    assert_eq!(parts.status, 206, "two parts that touch are one");
    let old = [("accept-encoding", "gzip"), ("if-none-match", tags[1])];
    assert_eq!(site.ask(Method::GET, "/f/a.js", &old).status, 304);
    let other = [("accept-encoding", "gzip"), ("if-none-match", tags[0])];
    assert_eq!(site.ask(Method::GET, "/f/a.js", &other).status, 200);

    age(&site.path().join("a.js.br"), 200);
    assert_eq!(encoding("gzip, br").0.as_deref(), Some("gzip"));
    assert_eq!(site.get("/f/plain.js").header("vary"), None);
    assert_eq!(site.get("/f/a.js.gz").bytes(), b"gz");
}

#[test]
fn several_parts_of_an_encoded_form_are_the_whole() {
    let site = Site::new(|files| files);
    site.write("a.js", "original");
    site.write("a.js.gz", "compressed");
    age(&site.path().join("a.js.gz"), 50);
    let lines = [("accept-encoding", "gzip"), ("range", "bytes=0-0,5-5")];
    let answer = site.ask(Method::GET, "/f/a.js", &lines);
    assert_eq!((answer.status, answer.bytes()), (200, &b"compressed"[..]));
    let answer = site.ask(Method::GET, "/f/a.js", &lines[1..]);
    assert_eq!(answer.status, 206);
}

/// The parts of a `multipart/byteranges` body: `Content-Range` and bytes.
fn parts(answer: &Answer) -> Vec<(String, Vec<u8>)> {
    let kind = answer.header("content-type").unwrap();
    let boundary = kind
        .strip_prefix("multipart/byteranges; boundary=")
        .unwrap();
    let opening = format!("--{boundary}\r\n");
    let mut rest = answer.bytes().strip_prefix(opening.as_bytes()).unwrap();
    let mut parts = Vec::new();
    loop {
        let end = rest.windows(4).position(|window| window == b"\r\n\r\n");
        let (head, after) = rest.split_at(end.unwrap() + 4);
        let head = std::str::from_utf8(head).unwrap();
        let range = head
            .lines()
            .find_map(|line| line.strip_prefix("content-range: bytes "))
            .unwrap();
        assert!(head.starts_with("content-type: application/octet-stream\r\n"));
        let (span, _) = range.split_once('/').unwrap();
        let (first, last) = span.split_once('-').unwrap();
        let length = last.parse::<usize>().unwrap() - first.parse::<usize>().unwrap() + 1;
        let (content, after) = after.split_at(length);
        parts.push((range.to_owned(), content.to_owned()));
        if after == format!("\r\n--{boundary}--\r\n").as_bytes() {
            return parts;
        }
        let next = format!("\r\n{opening}");
        rest = after.strip_prefix(next.as_bytes()).unwrap();
    }
}

#[test]
fn several_parts_come_in_the_order_asked() {
    let site = Site::new(|files| files);
    site.write("a", "0123456789");
    let answer = site.ask(
        Method::GET,
        "/f/a",
        &[("range", "bytes=-1,0-1,4-5,5-6,99-")],
    );
    assert_eq!((answer.status, answer.header("content-range")), (206, None));
    let found = parts(&answer);
    let expected = [("9-9/10", "9"), ("0-1/10", "01"), ("4-6/10", "456")];
    let expected = expected.map(|(range, text)| (range.to_owned(), text.as_bytes().to_vec()));
    assert_eq!(found, expected);
}

#[test]
fn an_empty_file_has_no_parts() {
    let site = Site::new(|files| files);
    site.write("empty", "");
    assert_eq!(site.get("/f/empty").bytes(), b"");
    let ask = |range| site.ask(Method::GET, "/f/empty", &[("range", range)]);
    let refused = ask("bytes=0-");
    assert_eq!(
        (refused.status, refused.header("content-range")),
        (416, Some("bytes */0"))
    );
    assert_eq!(ask("bytes=-5").status, 200);
}

proptest! {
    /// In memory or open, cached or not: the same bytes as the slice.
    #[test]
    fn one_range_is_the_slice(
        size in 0_usize..200,
        first in 0_usize..220,
        length in 1_usize..220,
        in_memory in any::<bool>(),
    ) {
        let max_file_bytes = if in_memory { 1000 } else { 0 };
        let site = Site::new(|files| files.cache(FileCache { max_file_bytes, ..FileCache::DEFAULT }));
        let content: Vec<u8> = (0..size).map(|index| index as u8).collect();
        site.write("a", &content);
        for _ in 0..2 {
            let last = first + length - 1;
            let range = format!("bytes={first}-{last}");
            let answer = site.ask(Method::GET, "/f/a", &[("range", &range)]);
            if first < size {
                let end = size.min(last + 1);
                prop_assert_eq!(answer.status, 206);
                prop_assert_eq!(answer.bytes(), &content[first..end]);
                let expected = format!("bytes {first}-{}/{size}", end - 1);
                prop_assert_eq!(answer.header("content-range"), Some(expected.as_str()));
                prop_assert_eq!(answer.is_file, !in_memory);
            } else {
                prop_assert_eq!(answer.status, 416);
                let expected = format!("bytes */{size}");
                prop_assert_eq!(answer.header("content-range"), Some(expected.as_str()));
            }
            let tail = site.ask(Method::GET, "/f/a", &[("range", &format!("bytes=-{length}"))]);
            prop_assert_eq!(tail.bytes(), &content[size.saturating_sub(length)..]);
        }
    }
}

#[test]
fn what_the_file_system_says_becomes_a_status() {
    for (errno, status) in [
        (Errno::NOENT, 404),
        (Errno::XDEV, 404),
        (Errno::LOOP, 404),
        (Errno::NAMETOOLONG, 404),
        (Errno::ACCESS, 403),
        (Errno::PERM, 403),
        (Errno::MFILE, 503),
        (Errno::NFILE, 503),
        (Errno::IO, 500),
    ] {
        let response = refuse(errno);
        assert_eq!(response.status(), status, "{errno}");
        let says_when = response.headers().contains_key(RETRY_AFTER);
        assert_eq!(says_when, status == 503, "{errno}");
    }
}
