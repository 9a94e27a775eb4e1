//! Which paths lead to a file and which must not: spellings, links, special
//! files, folders.
//!
//! A secret lies beside the served folder; no answer may ever show it.

#![expect(clippy::unwrap_used, reason = "set-up that fails is a failed test")]

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;

use crate::files::{SECRET, Site};
use crate::support::Failures;
use crate::support::client::{ReadError, get};
use crate::support::server::Server;

/// Spellings that name nothing, separated by spaces.
const NO_FILES: &str = r"
    ../secret ..%2fsecret ..%2Fsecret %2e%2e/secret %2e%2e%2fsecret .%2e/secret %2E./secret
    sub/../../secret sub/..%2f..%2fsecret %252e%252e/secret %252e%252e%252fsecret
    ..%5csecret ..%5Csecret ..%c0%afsecret ..%00/secret a%00 a%00.txt %00
    ./a sub/./b sub/../a //a /a //etc/passwd /etc/passwd %2fetc%2fpasswd sub//b sub%2fb
    .. ../ . ./ ... ../site-secret/a ../site/a -secret/a
    .env %2eenv .git/config sub/.hidden a/ a/../a a%20 a. a::$DATA C:/secret
    back%5Cslash ~/secret %0a/secret a%0d%0a a;../secret";

#[test]
fn no_spelling_leads_out_of_the_folder() {
    let site = Site::new(&[]);
    site.write("a", "inside");
    site.write("sub/b", "inside");
    site.write(".env", SECRET);
    site.write(".git/config", SECRET);
    site.write("sub/.hidden", SECRET);
    site.write("back\\slash", SECRET);
    let long = "../".repeat(1000);
    let deep = format!("{}etc/passwd", "sub/../".repeat(600));
    let paths = NO_FILES.split_whitespace().chain([&long[..], &deep]);
    let mut failures = Failures::default();
    for path in paths {
        let mut client = site.server.connect();
        let answer = client.get(&format!("/files/{path}"));
        let is_refused = matches!(answer.status, 400 | 404 | 414);
        let is_refused = is_refused && !answer.text().contains(SECRET);
        let result = if is_refused {
            Ok(())
        } else {
            Err(format!("{} {:?}", answer.status, answer.text()))
        };
        failures.case(&format!("{path:.60}"), result);
    }
    for path in [
        "/files-secret/a",
        "/files/../secret",
        "/filessite-secret/a",
        "/secret",
    ] {
        let answer = site.get(path);
        let is_refused = answer.status == 404 && !answer.text().contains(SECRET);
        let result = is_refused.then_some(()).ok_or(answer.text());
        failures.case(path, result);
    }
    failures.finish();
    assert_eq!(site.get("/files/a").text(), "inside");
    assert_eq!(site.get("/files/sub/b").text(), "inside");
}

/// What the gate refuses before any file is looked for closes the connection.
#[test]
fn raw_bytes_in_a_path_are_refused() {
    let site = Site::new(&[]);
    site.write("a", "inside");
    for path in ["a\\b", "..\\secret", "a\0", "ü"] {
        let mut client = site.server.connect();
        client.send(get(&format!("/files/{path}")));
        let answer = client.read().unwrap();
        assert!(
            matches!(answer.status, 400 | 404),
            "{path:?}: {}",
            answer.status
        );
    }
}

#[test]
fn hidden_names_are_served_on_request_only() {
    let site = Site::new(&["--static-hidden"]);
    site.write(".well-known/x", "found");
    assert_eq!(site.get("/files/.well-known/x").text(), "found");
    assert_eq!(site.get("/files/%2ewell-known/x").text(), "found");
    assert_eq!(site.get("/files/../secret").status, 404);
}

/// Links inside and out, and one in the middle of a path.
fn link_up(site: &Site) {
    site.write("a", "inside");
    site.write("sub/b", "inside");
    for (target, link) in [
        ("a", "to-a"),
        ("../a", "sub/up"),
        ("sub", "to-sub"),
        ("../secret", "out"),
        ("../../secret", "sub/out"),
        ("..", "parent"),
        ("/proc/self/environ", "magic"),
        ("loop", "loop"),
        ("missing", "dangling"),
    ] {
        symlink(target, site.path(link)).unwrap();
    }
    symlink(site.path("a"), site.path("absolute")).unwrap();
}

#[test]
fn links_go_where_the_policy_says() {
    let inside = ["to-a", "sub/up", "to-sub/b", "to-sub/up"];
    let outside = ["out", "sub/out", "to-sub/out", "parent/secret"];
    let neither = ["magic", "absolute", "parent", "parent/"];
    let nothing = ["loop", "dangling"];
    for (flags, is_inside, is_outside) in [
        (&[][..], true, false),
        (&["--static-symlinks", "refuse"], false, false),
        (&["--static-symlinks", "anywhere"], true, true),
    ] {
        let site = Site::new(flags);
        link_up(&site);
        let check = |paths: &[&str], text: &str, is_served: bool| {
            for path in paths {
                let answer = site.get(&format!("/files/{path}"));
                let found = answer.status == 200 && answer.text() == text;
                assert_eq!(found, is_served, "{flags:?} {path}: {answer:?}");
                assert!(is_served || answer.status == 404, "{answer:?}");
            }
        };
        check(&["a", "sub/b"], "inside", true);
        check(&inside, "inside", is_inside);
        check(&outside, SECRET, is_outside);
        check(&nothing, "", false);
        if !is_outside {
            check(&neither, "", false);
        }
    }
}

/// A file that was fine and becomes a link out is refused at the next look.
#[test]
fn a_link_that_turns_outward_is_noticed() {
    let site = Site::new(&["--static-revalidate", "0s"]);
    site.write("a", "inside");
    assert_eq!(site.get("/files/a").status, 200);
    fs::remove_file(site.path("a")).unwrap();
    symlink("../secret", site.path("a")).unwrap();
    assert_eq!(site.get("/files/a").status, 404);
}

#[test]
fn special_files_are_not_opened() {
    let site = Site::new(&[]);
    mknodat(CWD, site.path("fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    let _socket = UnixListener::bind(site.path("socket")).unwrap();
    symlink("fifo", site.path("to-fifo")).unwrap();
    for path in ["fifo", "socket", "to-fifo", "fifo/", "fifo.gz"] {
        assert_eq!(site.get(&format!("/files/{path}")).status, 404, "{path}");
    }
    let devices = Server::start(&["--static", "/dev=/dev"]);
    for path in ["null", "zero", "tty", "full"] {
        assert_eq!(devices.get(&format!("/dev/{path}")).status, 404, "{path}");
    }
}

#[test]
fn folders_redirect_to_their_index() {
    let site = Site::new(&[]);
    site.write("with/index.html", "index");
    fs::create_dir(site.path("without")).unwrap();
    let check = |path: &str, status: u16, location: Option<&str>| {
        let answer = site.get(path);
        let found = (answer.status, answer.header("location"));
        assert_eq!(found, (status, location), "{path}");
    };
    check("/files", 404, None);
    check("/files/without", 404, None);
    check("/files/without/", 404, None);
    check("/files/with", 308, Some("/files/with/"));
    check("/files/with?a=b", 308, Some("/files/with/?a=b"));
    assert_eq!(site.get("/files/with/").text(), "index");
    assert_eq!(
        site.get("/files/with/").header("content-type"),
        Some("text/html; charset=utf-8")
    );
    site.write("index.html", "root");
    check("/files", 308, Some("/files/"));
    assert_eq!(site.get("/files/").text(), "root");

    let other = Site::new(&["--static-index", "home.htm"]);
    other.write("home.htm", "home");
    other.write("index.html", "index");
    assert_eq!(other.get("/files/").text(), "home");
    let none = Site::new(&["--static-index", "off"]);
    none.write("index.html", "index");
    assert_eq!(none.get("/files/").status, 404);
}

/// A folder on `/` replaces the demo, and no path makes it redirect elsewhere.
#[test]
fn a_folder_on_the_root_is_alone() {
    let folder = TempDir::new().unwrap();
    for name in ["evil.example", "\\evil.example", "\t/evil.example", "sub"] {
        fs::create_dir_all(folder.path().join(name)).unwrap();
        fs::write(folder.path().join(name).join("index.html"), "index").unwrap();
    }
    fs::write(folder.path().join("index.html"), "root").unwrap();
    let mount = format!("/={}", folder.path().display());
    let server = Server::start(&["--static", &mount]);
    assert_eq!(server.get("/").text(), "root");
    assert_eq!(server.get("/hello").status, 404);
    assert_eq!(server.get("/health").status, 200);
    assert_eq!(server.get("/sub").header("location"), Some("/sub/"));
    for path in [
        "//evil.example",
        "///evil.example",
        "/%2fevil.example",
        "/%5cevil.example",
        "/%09/evil.example",
        "/.//evil.example",
        "/sub/..//evil.example",
    ] {
        let answer = server.get(path);
        assert_eq!(
            (answer.status, answer.header("location")),
            (404, None),
            "{path}"
        );
    }
}

/// A refused path leaves the connection in step for the next request.
#[test]
fn refusals_keep_the_connection() {
    let site = Site::new(&[]);
    site.write("a", "inside");
    let mut client = site.server.connect();
    for path in ["/files/nothing", "/files/..%2fa", "/files/.a", "/files/a/b"] {
        assert_eq!(client.get(path).status, 404, "{path}");
        assert_eq!(client.get("/files/a").text(), "inside");
    }
    client.send([get("/files/nothing"), get("/files/a")].concat());
    assert_eq!(client.read().unwrap().status, 404);
    assert_eq!(
        client.read().map(|answer| answer.text()),
        Ok::<_, ReadError>("inside".to_owned())
    );
}
