//! Static files over real sockets: validators, conditions, ranges, encoded
//! forms, and files that change or shrink.
//!
//! RFC 9110 §13 (conditions), §14 (ranges).

#![expect(clippy::unwrap_used, reason = "set-up that fails is a failed test")]

use std::fs::{self, File, FileTimes};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use proptest::test_runner::{Config, TestRunner};
use tempfile::TempDir;

use crate::support::Failures;
use crate::support::client::{Client, End, Response, get};
use crate::support::http2::{Http2, method};
use crate::support::process::{num_fds, rss_bytes};
use crate::support::server::Server;

/// When the files were last modified: `Sun, 06 Nov 1994 08:49:37 GMT`.
const MODIFIED_SECONDS: u64 = 784_111_777;
const MODIFIED: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
pub(crate) const SECRET: &str = "the secret beside the folder";
/// Above what is kept in memory, so that it is sent from an open file.
const LARGE: usize = 200_000;

/// A server of one folder on `/files`.
pub(crate) struct Site {
    folder: TempDir,
    pub(crate) server: Server,
}

impl Site {
    pub(crate) fn new(flags: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let root = folder.path().join("site");
        fs::create_dir(&root).unwrap();
        fs::write(folder.path().join("secret"), SECRET).unwrap();
        fs::create_dir(folder.path().join("site-secret")).unwrap();
        fs::write(folder.path().join("site-secret/a"), SECRET).unwrap();
        let mount = format!("/files={}", root.display());
        let server = Server::start(&[&["--static", &mount], flags].concat());
        Self { folder, server }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("site").join(name)
    }

    /// Writes an old file.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        set_modified(&path, MODIFIED_SECONDS);
    }

    /// Makes an old file of zeros that takes no space.
    fn write_sparse(&self, name: &str, size: u64) -> File {
        let file = File::create(self.path(name)).unwrap();
        file.set_len(size).unwrap();
        set_modified(&self.path(name), MODIFIED_SECONDS);
        file
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        self.server.get(path)
    }

    fn ask(&self, path: &str, lines: &[(&str, &str)]) -> Response {
        self.server.connect().ask(request("GET", path, lines))
    }

    fn etag(&self, path: &str) -> String {
        self.get(path).header("etag").unwrap().to_owned()
    }

    /// A counter of `/metrics`.
    fn counter(&self, name: &str) -> u64 {
        let text = self.get("/metrics").text();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
    }
}

fn set_modified(path: &Path, seconds: u64) {
    let time = UNIX_EPOCH + Duration::from_secs(seconds);
    let file = File::options().append(true).open(path).unwrap();
    file.set_times(FileTimes::new().set_modified(time)).unwrap();
}

fn request(method: &str, path: &str, lines: &[(&str, &str)]) -> String {
    let lines: String = lines
        .iter()
        .flat_map(|(name, value)| [*name, ": ", *value, "\r\n"])
        .collect();
    format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n")
}

fn pattern(size: usize) -> Vec<u8> {
    (0..size).map(|index| (index * 31 / 7) as u8).collect()
}

#[test]
fn a_file_is_sent_whole_with_its_headers() {
    let site = Site::new(&[]);
    site.write("a.txt", "hello");
    site.write("sub/b ü.JSON", "{}");
    site.write("large", pattern(LARGE));
    site.write("empty.css", "");
    for (path, kind, content) in [
        (
            "/files/a.txt",
            "text/plain; charset=utf-8",
            b"hello".to_vec(),
        ),
        (
            "/files/sub/b%20%C3%BC.JSON",
            "application/json",
            b"{}".to_vec(),
        ),
        ("/files/l%61rge", "application/octet-stream", pattern(LARGE)),
        (
            "/files/large?a=/../b",
            "application/octet-stream",
            pattern(LARGE),
        ),
        ("/files/empty.css", "text/css; charset=utf-8", Vec::new()),
    ] {
        let mut client = site.server.connect();
        for _ in 0..2 {
            let found = client.get(path);
            assert_eq!(found.status, 200, "{path}");
            assert!(found.body == content, "{path}: {} bytes", found.body.len());
            assert_eq!(found.header("content-type"), Some(kind));
            assert_eq!(found.header("last-modified"), Some(MODIFIED));
            assert_eq!(found.header("accept-ranges"), Some("bytes"));
            assert_eq!(found.header("vary"), None);
            assert!(found.header("date").is_some());
            let etag = found.header("etag").unwrap();
            assert!(etag.starts_with('"') && etag.ends_with('"'), "{etag}");
            let head = client.ask(request("HEAD", path, &[]));
            let length = content.len().to_string();
            // RFC 9110 §8.6: the answer to HEAD may leave its length out.
            let is_empty = content.is_empty();
            let announced = head.header("content-length").or(is_empty.then_some("0"));
            assert_eq!(announced, Some(length.as_str()));
            assert_eq!(head.header("etag"), Some(etag));
            assert_eq!(head.header("content-type"), Some(kind));
        }
    }
}

#[test]
fn other_methods_are_not_allowed() {
    let site = Site::new(&[]);
    site.write("a.txt", "hello");
    for method in ["POST", "PUT", "DELETE", "PATCH", "TRACE", "PROPFIND"] {
        for path in ["/files/a.txt", "/files/nothing", "/files", "/files/"] {
            let answer = site.server.connect().ask(request(method, path, &[]));
            assert_eq!(answer.status, 405, "{method} {path}");
            assert_eq!(answer.header("allow"), Some("GET, HEAD, OPTIONS"));
        }
    }
    let options = request("OPTIONS", "/files/a.txt", &[]);
    let answer = site.server.connect().ask(options);
    assert_eq!(
        (answer.status, answer.header("allow")),
        (204, Some("GET, HEAD, OPTIONS"))
    );
}

#[test]
fn conditions_are_evaluated_in_order() {
    let site = Site::new(&[]);
    site.write("a.txt", "hello");
    site.write("large", pattern(LARGE));
    let mut failures = Failures::default();
    for path in ["/files/a.txt", "/files/large"] {
        let etag = site.etag(path);
        let weak = format!("W/{etag}");
        let list = format!("\"x\", {etag}");
        let (etag, weak, list) = (etag.as_str(), weak.as_str(), list.as_str());
        let cases: &[(&[(&str, &str)], u16)] = &[
            (&[], 200),
            (&[("If-Match", etag)], 200),
            (&[("If-Match", "*")], 200),
            (&[("If-Match", list)], 200),
            (&[("If-Match", "\"x\"")], 412),
            (&[("If-Match", weak)], 412),
            (&[("If-Match", etag), ("If-Unmodified-Since", EARLIER)], 200),
            (&[("If-Match", "\"x\""), ("If-None-Match", etag)], 412),
            (&[("If-Unmodified-Since", MODIFIED)], 200),
            (&[("If-Unmodified-Since", EARLIER)], 412),
            (
                &[("If-Unmodified-Since", EARLIER), ("If-None-Match", etag)],
                412,
            ),
            (&[("If-None-Match", etag)], 304),
            (&[("If-None-Match", weak)], 304),
            (&[("If-None-Match", list)], 304),
            (&[("If-None-Match", "*")], 304),
            (&[("If-None-Match", "\"x\""), ("If-None-Match", etag)], 304),
            (&[("If-None-Match", "\"x\"")], 200),
            (
                &[("If-None-Match", "\"x\""), ("If-Modified-Since", MODIFIED)],
                200,
            ),
            (&[("If-Modified-Since", MODIFIED)], 304),
            (&[("If-Modified-Since", EARLIER)], 200),
            (&[("If-Modified-Since", "not a date")], 200),
            (&[("Range", "bytes=0-0"), ("If-None-Match", etag)], 304),
            (&[("Range", "bytes=0-0"), ("If-Match", "\"x\"")], 412),
            (&[("Range", "bytes=0-0"), ("If-Range", etag)], 206),
            (&[("Range", "bytes=0-0"), ("If-Range", MODIFIED)], 206),
            (&[("Range", "bytes=0-0"), ("If-Range", "\"x\"")], 200),
            (&[("Range", "bytes=0-0"), ("If-Range", weak)], 200),
            (&[("Range", "bytes=0-0"), ("If-Range", EARLIER)], 200),
            (&[("Range", "bytes=900000-"), ("If-Range", "\"x\"")], 200),
            (&[("If-Range", etag)], 200),
        ];
        let mut client = site.server.connect();
        for (lines, status) in cases {
            let answer = client.ask(request("GET", path, lines));
            let result = check_condition(&answer, *status, etag);
            failures.case(&format!("GET {path} {lines:?}"), result);
            let due = if *status == 206 { 200 } else { *status };
            let head = client.ask(request("HEAD", path, lines));
            let result = (head.status == due).then_some(());
            let complaint = || format!("{} instead of {due}", head.status);
            failures.case(
                &format!("HEAD {path} {lines:?}"),
                result.ok_or_else(complaint),
            );
        }
    }
    failures.finish();
}

fn check_condition(answer: &Response, status: u16, etag: &str) -> Result<(), String> {
    if answer.status != status {
        return Err(format!("{} instead of {status}", answer.status));
    }
    let tag = answer.header("etag");
    if status != 412 && tag != Some(etag) {
        return Err(format!("the tag is {tag:?}"));
    }
    let has_framing = ["content-length", "content-type"].map(|name| answer.header(name).is_some());
    if status == 304 && has_framing != [false, false] {
        return Err(format!("a 304 with {:?}", answer.headers));
    }
    Ok(())
}

#[test]
fn a_file_that_changes_gets_another_tag() {
    let site = Site::new(&["--static-revalidate", "0s"]);
    site.write("a", "one");
    let first = site.get("/files/a");
    site.write("a", "two");
    set_modified(&site.path("a"), MODIFIED_SECONDS + 1);
    let second = site.get("/files/a");
    assert_eq!(
        (first.text(), second.text()),
        ("one".to_owned(), "two".to_owned())
    );
    let old = first.header("etag").unwrap();
    assert_ne!(second.header("etag"), Some(old));
    let lines = [("If-None-Match", old)];
    assert_eq!(site.ask("/files/a", &lines).text(), "two");
    let lines = [("Range", "bytes=1-"), ("If-Range", old)];
    assert_eq!(site.ask("/files/a", &lines).text(), "two");

    fs::write(site.path("young"), "x").unwrap();
    let young = site.etag("/files/young");
    assert!(young.starts_with("W/\""), "{young}");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    set_modified(&site.path("young"), now.as_secs() + 3600);
    let future = site.get("/files/young");
    assert_eq!(future.header("last-modified"), None);
    assert!(future.header("etag").unwrap().starts_with("W/\""));
}

#[test]
fn ranges_are_checked() {
    let site = Site::new(&[]);
    site.write("a", "0123456789");
    site.write("empty", "");
    let mut client = site.server.connect();
    let mut failures = Failures::default();
    let many = |count| format!("bytes={}", vec!["0-0"; count].join(","));
    let (few, too_many, flood) = (many(16), many(17), many(2_500));
    let cases: &[(&str, &str, u16, &str)] = &[
        ("a", "bytes=0-0", 206, "bytes 0-0/10"),
        ("a", "bytes=2-", 206, "bytes 2-9/10"),
        ("a", "bytes=-3", 206, "bytes 7-9/10"),
        ("a", "bytes=-999999", 206, "bytes 0-9/10"),
        ("a", "bytes=5-99999999999999999999", 206, "bytes 5-9/10"),
        ("a", "bytes=0-3,2-5", 206, "bytes 0-5/10"),
        ("a", "bytes=0-1,90-91", 206, "bytes 0-1/10"),
        ("a", &few, 206, "bytes 0-0/10"),
        ("a", &too_many, 200, ""),
        ("a", &flood, 200, ""),
        ("a", "bytes=10-", 416, "bytes */10"),
        ("a", "bytes=-0", 416, "bytes */10"),
        ("a", "bytes=99-100,200-", 416, "bytes */10"),
        ("a", "bytes=5-4", 200, ""),
        ("a", "bytes=", 200, ""),
        ("a", "bytes=a-b", 200, ""),
        ("a", "chars=0-1", 200, ""),
        ("empty", "bytes=0-", 416, "bytes */0"),
        ("empty", "bytes=-1", 200, ""),
    ];
    for (path, range, status, content_range) in cases {
        let lines = [("Range", *range)];
        let answer = client.ask(request("GET", &format!("/files/{path}"), &lines));
        let found = (
            answer.status,
            answer.header("content-range").unwrap_or_default(),
        );
        let result = if found == (*status, *content_range) {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        };
        failures.case(&format!("{path} {range:.40}"), result);
    }
    failures.finish();
    let twice = [("Range", "bytes=0-1"), ("Range", "bytes=2-3")];
    assert_eq!(client.ask(request("GET", "/files/a", &twice)).status, 200);
}

/// A range of a file is the slice of its content, in memory or not.
#[test]
fn any_range_is_the_slice() {
    let site = Site::new(&[]);
    let sizes = [1, 1000, LARGE];
    for size in sizes {
        site.write(&size.to_string(), pattern(size));
    }
    let client = std::cell::RefCell::new(site.server.connect());
    let mut runner = TestRunner::new(Config::with_cases(200));
    let strategy = (0..sizes.len(), 0..LARGE + 10, 1..LARGE);
    let outcome = runner.run(&strategy, |(index, first, length)| {
        let size = sizes[index];
        let content = pattern(size);
        let last = first + length - 1;
        let path = format!("/files/{size}");
        let range = format!("bytes={first}-{last}");
        let lines = [("Range", range.as_str())];
        let answer = client.borrow_mut().ask(request("GET", &path, &lines));
        if first < size {
            let end = size.min(last + 1);
            let due = format!("bytes {first}-{}/{size}", end - 1);
            assert_eq!(
                (answer.status, answer.header("content-range")),
                (206, Some(&*due))
            );
            assert!(answer.body == content[first..end], "{range} of {size}");
        } else {
            assert_eq!(answer.status, 416);
        }
        // Two parts with a gap between them.
        let (one, other) = (size / 4, size / 2);
        if one > 0 && one + 1 < other {
            let range = format!("bytes={other}-{},0-{}", size - 1, one - 1);
            let lines = [("Range", range.as_str())];
            let answer = client.borrow_mut().ask(request("GET", &path, &lines));
            let expected = [content[other..].to_vec(), content[..one].to_vec()];
            assert!(parts(&answer) == expected, "{range} of {size}");
        }
        Ok(())
    });
    outcome.unwrap();
}

/// The contents of a `multipart/byteranges` body.
fn parts(answer: &Response) -> Vec<Vec<u8>> {
    assert_eq!(answer.status, 206);
    let kind = answer.header("content-type").unwrap();
    let boundary = kind
        .strip_prefix("multipart/byteranges; boundary=")
        .unwrap();
    let opening = format!("\r\n--{boundary}\r\n");
    let closing = format!("\r\n--{boundary}--\r\n");
    let mut rest = answer.body.strip_prefix(&opening.as_bytes()[2..]).unwrap();
    let mut parts = Vec::new();
    loop {
        let end = rest.windows(4).position(|window| window == b"\r\n\r\n");
        let (head, after) = rest.split_at(end.unwrap() + 4);
        let head = std::str::from_utf8(head).unwrap();
        let (_, range) = head.split_once("content-range: bytes ").unwrap();
        let (span, _) = range.split_once('/').unwrap();
        let (first, last) = span.split_once('-').unwrap();
        let length = last.parse::<usize>().unwrap() + 1 - first.parse::<usize>().unwrap();
        let (content, after) = after.split_at(length);
        parts.push(content.to_vec());
        if after == closing.as_bytes() {
            return parts;
        }
        rest = after.strip_prefix(opening.as_bytes()).unwrap();
    }
}

#[test]
fn files_beyond_four_gibibytes() {
    const SIZE: u64 = 5 << 30;
    let site = Site::new(&[]);
    let file = site.write_sparse("huge", SIZE);
    file.write_all_at(b"mark", 1 << 32).unwrap();
    set_modified(&site.path("huge"), MODIFIED_SECONDS);
    let mut client = site.server.connect();
    let head = client.ask(request("HEAD", "/files/huge", &[]));
    assert_eq!(head.header("content-length"), Some("5368709120"));
    let lines = [("Range", "bytes=4294967296-4294967299")];
    let part = client.ask(request("GET", "/files/huge", &lines));
    assert_eq!(
        part.header("content-range"),
        Some("bytes 4294967296-4294967299/5368709120")
    );
    assert_eq!(part.text(), "mark");
    let lines = [("Range", "bytes=-1,4294967297-4294967298")];
    let several = client.ask(request("GET", "/files/huge", &lines));
    assert_eq!(parts(&several), [vec![0], b"ar".to_vec()]);
}

#[test]
fn encoded_forms_are_chosen_by_weight() {
    let site = Site::new(&[]);
    for (name, content) in [
        ("a.js", "identity"),
        ("a.js.br", "brotli"),
        ("a.js.zst", "zstandard"),
        ("a.js.gz", "gzip"),
        ("only.js", "identity"),
        ("old.js", "identity"),
        ("old.js.gz", "gzip of an older one"),
    ] {
        site.write(name, content);
    }
    set_modified(&site.path("old.js.gz"), MODIFIED_SECONDS - 1);
    let mut failures = Failures::default();
    let mut tags = Vec::new();
    for (accepted, coding, content) in [
        ("", None, "identity"),
        ("gzip", Some("gzip"), "gzip"),
        ("gzip, deflate, br, zstd", Some("br"), "brotli"),
        ("gzip, zstd", Some("zstd"), "zstandard"),
        ("br;q=0.1, gzip;q=0.9", Some("gzip"), "gzip"),
        ("br;q=0, *", Some("zstd"), "zstandard"),
        ("identity, br;q=0.5", None, "identity"),
        ("deflate, compress", None, "identity"),
        ("*;q=0", None, "identity"),
    ] {
        let answer = site.ask("/files/a.js", &[("Accept-Encoding", accepted)]);
        let found = (answer.header("content-encoding"), answer.text());
        let is_due = found == (coding, content.to_owned())
            && answer.header("vary") == Some("accept-encoding")
            && answer.header("content-type") == Some("text/javascript; charset=utf-8");
        let result = is_due.then_some(()).ok_or_else(|| format!("{found:?}"));
        failures.case(accepted, result);
        tags.push((answer.header("etag").unwrap().to_owned(), coding));
        // The tag of this form, with the same preference, is current.
        let tag = answer.header("etag").unwrap();
        let lines = [("Accept-Encoding", accepted), ("If-None-Match", tag)];
        let again = site.ask("/files/a.js", &lines);
        let is_due = again.status == 304 && again.header("vary") == Some("accept-encoding");
        let result = is_due.then_some(()).ok_or_else(|| format!("{again:?}"));
        failures.case(&format!("{accepted} again"), result);
    }
    failures.finish();
    for (tag, coding) in &tags {
        for (other_tag, other) in &tags {
            assert_eq!(tag == other_tag, coding == other, "{coding:?} {other:?}");
        }
    }
    let lines = [("Accept-Encoding", "br"), ("Range", "bytes=1-2")];
    let part = site.ask("/files/a.js", &lines);
    assert_eq!((part.status, part.text()), (206, "ro".to_owned()));
    assert_eq!(part.header("content-encoding"), Some("br"));
    assert_eq!(part.header("content-range"), Some("bytes 1-2/6"));
    for path in ["/files/only.js", "/files/old.js"] {
        let answer = site.ask(path, &[("Accept-Encoding", "gzip, br")]);
        assert_eq!(answer.text(), "identity");
        assert_eq!(answer.header("vary"), None);
    }
}

/// The rest of the announced bytes cannot come: the connection ends instead.
#[test]
fn a_file_that_shrinks_while_it_is_sent_ends_the_connection() {
    const SIZE: u64 = 256 << 20;
    let site = Site::new(&[]);
    let file = site.write_sparse("large", SIZE);
    let mut client = site.server.connect();
    client.send(get("/files/large"));
    let head = client.read_head().unwrap();
    assert_eq!(head.header("content-length"), Some("268435456"));
    file.set_len(0).unwrap();
    let (rest, end) = client.read_to_end();
    assert!((rest.len() as u64) < SIZE, "{} bytes", rest.len());
    assert_ne!(end, End::StillOpen);
    // What is left of it is served, and others never noticed.
    assert_eq!(site.get("/files/large").header("content-length"), Some("0"));
    assert_eq!(site.get("/hello").status, 200);
}

/// Memory does not grow with the files nor with readers that do not read.
#[test]
fn slow_readers_of_large_files_cost_little() {
    const NUM_READERS: usize = 32;
    let site = Site::new(&[]);
    site.write_sparse("large", 1 << 30);
    assert_eq!(site.get("/hello").status, 200);
    let before = rss_bytes(site.server.pid());
    let mut clients: Vec<Client> = (0..NUM_READERS)
        .map(|_| {
            let mut client = site.server.connect();
            client.send(get("/files/large"));
            let head = client.read_head().expect("a head comes at once");
            assert_eq!(head.status, 200);
            client
        })
        .collect();
    let mut chunk = vec![0; 1 << 20];
    for client in &mut clients {
        std::io::Read::read_exact(client.stream(), &mut chunk).expect("content follows");
        assert!(chunk.iter().all(|byte| *byte == 0));
    }
    let grown = rss_bytes(site.server.pid()).saturating_sub(before);
    assert!(grown < (NUM_READERS as u64) << 20, "{grown} bytes");
}

#[test]
fn open_files_are_bounded_and_shared() {
    let site = Site::new(&["--lanes", "1"]);
    for index in 0..100 {
        site.write_sparse(&format!("large{index}"), 100_000);
    }
    let mut client = site.server.connect();
    assert_eq!(client.get("/hello").status, 200);
    let before = num_fds(site.server.pid());
    for _ in 0..2 {
        for index in 0..100 {
            assert_eq!(
                client.get(&format!("/files/large{index}")).body.len(),
                100_000
            );
        }
    }
    let more = num_fds(site.server.pid()) - before;
    assert!((1..=33).contains(&more), "{more} descriptors more");
}

#[test]
fn the_counters_say_which_way_was_taken() {
    let site = Site::new(&["--lanes", "1"]);
    site.write("small", "x");
    site.write("large", pattern(LARGE));
    let counters = || {
        [
            "justapi_file_cache_hits_total",
            "justapi_file_cache_misses_total",
            "justapi_file_responses_total",
        ]
        .map(|name| site.counter(name))
    };
    assert_eq!(counters(), [0, 0, 0]);
    for _ in 0..3 {
        site.get("/files/small");
    }
    assert_eq!(counters(), [2, 1, 0]);
    for _ in 0..3 {
        site.get("/files/large");
    }
    site.server
        .connect()
        .ask(request("HEAD", "/files/large", &[]));
    assert_eq!(counters(), [5, 2, 3]);
    site.get("/files/nothing");
    assert_eq!(counters(), [5, 3, 3]);
    assert_eq!(site.counter("justapi_sendfile_total"), 3);
}

#[test]
fn staleness_is_what_was_asked_for() {
    let never = Site::new(&["--static-revalidate", "0s"]);
    let long = Site::new(&["--static-revalidate", "1h"]);
    let uncached = Site::new(&["--static-revalidate", "1h", "--static-cache", "0"]);
    for (site, is_fresh) in [(&never, true), (&long, false), (&uncached, true)] {
        site.write("a", "one");
        assert_eq!(site.get("/files/a").text(), "one");
        site.write("a", "other");
        // Each lane has a cache of its own; the one that knows the file is stale.
        let answers: Vec<_> = (0..8).map(|_| site.get("/files/a").text()).collect();
        let num_old = answers.iter().filter(|text| *text == "one").count();
        assert_eq!(num_old == 0, is_fresh, "{answers:?}");
    }
}

#[test]
fn the_same_over_http_2() {
    let site = Site::new(&[]);
    let content = pattern(LARGE);
    site.write("large", &content);
    site.write("small", "hello");
    let mut connection = Http2::connect(site.server.address());
    let small = connection.get(1, "/files/small");
    assert_eq!(
        (small.status(), small.text()),
        (Some(200), "hello".to_owned())
    );
    let mut ask = |stream, verb, lines: &[(&str, &str)]| {
        let headers = [&method(verb, "/files/large"), lines].concat();
        connection.ask(stream, &headers, b"")
    };
    let part = ask(3, "GET", &[("range", "bytes=100000-100999")]);
    assert_eq!(part.status(), Some(206));
    assert_eq!(
        part.header("content-range"),
        Some("bytes 100000-100999/200000")
    );
    let text = String::from_utf8_lossy(&content[100_000..101_000]).into_owned();
    assert!(part.text() == text);
    let head = ask(5, "HEAD", &[]);
    assert_eq!(head.header("content-length"), Some("200000"));
    let etag = head.header("etag").unwrap().to_owned();
    let current = ask(7, "GET", &[("if-none-match", etag.as_str())]);
    assert_eq!(current.status(), Some(304));
    let refused = ask(9, "GET", &[("range", "bytes=200000-")]);
    assert_eq!(refused.status(), Some(416));
}
