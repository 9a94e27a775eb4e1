//! Session cookies: kept by browsers, readable and changeable by nobody.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use tempfile::TempDir;

use crate::support::PATIENCE;
use crate::support::certificates::{Authority, handshake};
use crate::support::client::{Client, Response};
use crate::support::server::{Server, serve};

const OLD: &str = "an old secret of more than 32 bytes";
const NEW: &str = "a new secret of more than 32 bytes!";

struct Secrets(TempDir);

impl Secrets {
    fn new(lines: &str) -> Self {
        let folder = TempDir::new().expect("a writable temporary folder");
        let secrets = Self(folder);
        fs::write(secrets.path(), lines).expect("a writable file");
        secrets.set_mode(0o600);
        secrets
    }

    fn path(&self) -> String {
        self.0.path().join("secrets").to_string_lossy().into_owned()
    }

    fn set_mode(&self, mode: u32) {
        fs::set_permissions(self.path(), Permissions::from_mode(mode)).expect("an own file");
    }

    fn serve(&self) -> Server {
        Server::start(&["--session-secret-file", &self.path()])
    }
}

fn ask(server: &Server, method: &str, cookie: &str) -> Response {
    let request = format!(
        "{method} /session HTTP/1.1\r\nHost: a\r\nCookie: {cookie}\r\nContent-Length: 0\r\n\r\n"
    );
    server.connect().ask(request)
}

fn visits(response: &Response) -> u64 {
    assert_eq!(response.status, 200, "{response:?}");
    response.json()["visits"].as_u64().expect("a number")
}

/// `name=value` of what a response sets.
fn pair(response: &Response) -> String {
    let cookie = response.header("set-cookie").expect("a cookie is set");
    cookie.split(';').next().unwrap_or_default().to_owned()
}

#[test]
fn a_session_comes_back_with_its_cookie() {
    let secrets = Secrets::new(&format!("# rotation\n\n{NEW}\n"));
    let server = secrets.serve();
    let first = ask(&server, "POST", "theme=dark");
    assert_eq!(visits(&first), 1);
    let cookie = first.header("set-cookie").unwrap();
    assert!(
        cookie.ends_with("; Max-Age=1209600; Path=/; HttpOnly; SameSite=Lax"),
        "{cookie}"
    );
    assert_eq!(first.header("cache-control"), Some("no-store"));
    let second = ask(&server, "POST", &format!("theme=dark; {}", pair(&first)));
    assert_eq!(visits(&second), 2);
    let read = ask(&server, "GET", &pair(&second));
    assert_eq!((visits(&read), read.header("set-cookie")), (2, None));
    let left = ask(&server, "DELETE", &pair(&second));
    assert!(
        left.header("set-cookie")
            .unwrap()
            .starts_with("session=; Max-Age=0; ")
    );
}

#[test]
fn a_changed_cookie_is_a_new_visitor() {
    let server = Secrets::new(NEW).serve();
    let cookie = pair(&ask(&server, "POST", ""));
    for at in ("session=".len()..cookie.len()).step_by(7) {
        let mut changed = cookie.clone().into_bytes();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).expect("ASCII");
        assert_eq!(visits(&ask(&server, "GET", &changed)), 0, "{at}");
    }
    let long = format!("session={}", "A".repeat(20_000));
    for garbage in ["session=", "session=x", "session", "=;=;;", &long] {
        assert_eq!(visits(&ask(&server, "GET", garbage)), 0);
    }
    assert_eq!(visits(&ask(&server, "GET", &cookie)), 1);
}

#[test]
fn secrets_rotate_without_losing_visitors() {
    let cookie = pair(&ask(&Secrets::new(OLD).serve(), "POST", ""));
    let both = Secrets::new(&format!("{NEW}\n{OLD}\n")).serve();
    let renewed = ask(&both, "POST", &cookie);
    assert_eq!(visits(&renewed), 2);
    let new = Secrets::new(NEW).serve();
    assert_eq!(visits(&ask(&new, "GET", &pair(&renewed))), 2);
    assert_eq!(visits(&ask(&new, "GET", &cookie)), 0);
}

#[test]
fn over_tls_the_cookie_is_secure() {
    let authority = Authority::new();
    let (certificate, key) = authority.server_files();
    let secrets = Secrets::new(NEW);
    let path = secrets.path();
    let tls = ["--tls-cert", &certificate, "--tls-key", &key];
    let session = [
        "--session-secret-file",
        &path,
        "--session-cookie",
        "__Host-s",
    ];
    let server = Server::start(&[&tls[..], &session, &["--session-max-age", "1h"]].concat());
    let stream = handshake(server.address(), &authority.client(&[], None)).expect("a handshake");
    let request = "POST /session HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    let response = Client::over(stream).ask(request);
    let cookie = response.header("set-cookie").unwrap();
    assert!(cookie.starts_with("__Host-s="), "{cookie}");
    assert!(
        cookie.ends_with("; Max-Age=3600; Path=/; HttpOnly; SameSite=Lax; Secure"),
        "{cookie}"
    );
}

#[test]
fn without_secrets_there_are_no_sessions() {
    let server = Server::start(&[]);
    let response = ask(&server, "POST", "");
    assert_eq!(
        (visits(&response), response.header("set-cookie")),
        (1, None)
    );
}

#[test]
fn weak_or_open_secrets_stop_the_start() {
    let fails = |secrets: &Secrets, needle: &str| {
        let mut command = serve();
        command.args(["--port", "0", "--session-secret-file", &secrets.path()]);
        let mut server = Server::spawn(command);
        assert_eq!(server.exit(PATIENCE).code(), Some(3));
        server.wait_for_line(needle);
    };
    fails(&Secrets::new("short"), "at least 32");
    fails(&Secrets::new("\n# nothing\n"), "expected 1 to 8 secrets");
    let open = Secrets::new(NEW);
    open.set_mode(0o644);
    fails(&open, "chmod 600");
    let gone = Secrets::new(NEW);
    fs::remove_file(gone.path()).expect("an own file");
    fails(&gone, "cannot read");
}
