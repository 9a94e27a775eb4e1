//! What cannot work: exit status, code, cause, and the way out.

use std::net::TcpListener;

use rustix::process::Signal;

use crate::binary::{Folder, Run};

#[track_caller]
fn check(run: Run, status: i32, expected: &[&str]) {
    let run = run.expect(status);
    assert_eq!(run.stdout, "", "{run:?}");
    for text in expected {
        assert!(run.stderr.contains(text), "{text} in {run:#?}");
    }
    assert!(run.stderr.matches("  hint  ").count() <= 1, "{run:#?}");
}

#[test]
fn usage_errors_exit_2_and_suggest() {
    let folder = Folder::new();
    check(
        folder.run("serv"),
        2,
        &["unrecognized subcommand", "'serve'"],
    );
    check(
        folder.run("serve --prot 1"),
        2,
        &["unexpected argument", "'--port'"],
    );
    check(
        folder.run("serve --port x"),
        2,
        &["expected a whole number from 0 to 65535"],
    );
    check(
        folder.run("serve --graceful 30"),
        2,
        &["expected a time such as 500ms, 30s or 2m"],
    );
    check(
        folder.run("serve --access-log xml"),
        2,
        &["off, text, json"],
    );
    check(
        folder.run("serve --addr 1:2 --port 3"),
        2,
        &["cannot be used with"],
    );
    check(folder.run(""), 2, &["Usage: justapi"]);
    check(
        folder.run("serve --tls-cert c.pem"),
        2,
        &["error[JA202]", "`--tls-key FILE`"],
    );
    check(
        folder.run("serve app:app --python nowhere"),
        6,
        &["error[JA601]", "nowhere", "--python"],
    );
    // Status 2 is a failed rule there.
    check(folder.run("bench --nope"), 1, &["unexpected argument"]);
}

#[test]
fn folders_that_cannot_be_served_say_so() {
    let folder = Folder::new().with("site/a", "").with("file", "");
    for missing in ["nothing", "file"] {
        for also in ["", "--check"] {
            check(
                folder.run(&format!("serve --port 0 {also} --static /a={missing}")),
                3,
                &["error[JA313]: cannot serve the files of ", missing, "cause"],
            );
        }
    }
    for (mounts, expected) in [
        ("--static /hello=site", "/hello"),
        ("--static /a=site --static /a/=site", "/a"),
        ("--static /{x=site", "/{x"),
    ] {
        check(
            folder.run(&format!("serve --check {mounts}")),
            3,
            &["error[JA307]", expected, "--static"],
        );
    }
    check(
        folder.run("serve --static site"),
        2,
        &["a route and a folder such as /static=public"],
    );
    folder
        .run("serve --check --static /=site --static /hello=site")
        .expect(0);
}

#[test]
fn errors_are_json_on_request() {
    let folder = Folder::new();
    let run = folder.run("serve --prot 1 --json").expect(2);
    assert_eq!(run.json()["error"]["code"], "JA201");
    let run = folder
        .run("serve app:app --python nowhere --json")
        .expect(6);
    assert_eq!(run.json()["error"]["code"], "JA601");
    assert!(
        run.json()["error"]["help"]
            .as_str()
            .unwrap()
            .contains("--python")
    );
    assert!(run.stderr.contains("error[JA601]"), "{run:?}");
}

#[test]
fn a_port_in_use_names_its_holder() {
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = holder.local_addr().unwrap().port();
    let pid = std::process::id();
    check(
        Folder::new().run(&format!("serve --port {port}")),
        5,
        &[
            &format!("error[JA501]: cannot listen on 127.0.0.1:{port}: address already in use"),
            "  held by   ",
            &format!("(pid {pid}, started "),
            "(free now)",
            &format!("or stop it with `kill {pid}`"),
        ],
    );
    check(
        Folder::new().run(&format!("serve --port 0 --metrics 127.0.0.1:{port}")),
        5,
        &["error[JA501]", "use `--metrics 127.0.0.1:"],
    );
}

#[test]
fn two_servers_never_share_a_port() {
    let folder = Folder::new();
    let first = folder.serve("--port 0 --lanes 2");
    let port = first.url().rsplit_once(':').unwrap().1;
    check(
        folder.run(&format!("serve --port {port} --lanes 2")),
        5,
        &["error[JA501]", &format!("(pid {}", first.pid())],
    );
    assert!(first.get("/hello").starts_with("HTTP/1.1 200"));
    first.stop(Signal::TERM).expect(0);
}

#[test]
fn addresses_that_cannot_be_bound() {
    let folder = Folder::new();
    check(
        folder.run("serve --host 192.0.2.1 --port 0"),
        5,
        &[
            "error[JA503]: cannot listen on 192.0.2.1:0",
            "`--host 127.0.0.1`",
        ],
    );
    check(
        folder.run("serve --host nosuch.invalid"),
        5,
        &["error[JA504]: cannot find the address of host `nosuch.invalid`"],
    );
    check(
        folder.run("serve --fd 9"),
        5,
        &["error[JA507]: descriptor 9"],
    );
    check(
        folder.run("serve --uds missing/socket"),
        5,
        &["error[JA506]", "no such file or directory"],
    );
    let folder = folder.with("plain", "");
    check(
        folder.run("serve --uds plain"),
        5,
        &["error[JA506]", "not a socket"],
    );
    assert!(folder.path().join("plain").exists());
    check(
        folder.run("serve --port 0 --metrics /hello"),
        3,
        &["error[JA307]: metrics cannot be on /hello"],
    );
}

#[test]
fn a_unix_socket_in_use_names_its_holder() {
    let folder = Folder::new();
    let first = folder.serve("--uds socket");
    check(
        folder.run("serve --uds socket"),
        5,
        &[
            "error[JA505]: cannot listen on socket: a live process serves it",
            &format!("(pid {}", first.pid()),
        ],
    );
    first.stop(Signal::TERM).expect(0);
}

#[test]
fn certificates_that_cannot_be_used() {
    let folder = Folder::new().with("text.pem", "not a certificate\n");
    let (cert, key) = crate::binary::certificate(folder.path());
    let serve = |cert: &str, key: &str| {
        folder.run(&format!("serve --port 0 --tls-cert {cert} --tls-key {key}"))
    };
    let (cert, key) = (cert.to_str().unwrap(), key.to_str().unwrap());
    check(
        serve("missing.pem", key),
        3,
        &[
            "error[JA311]: cannot read missing.pem",
            "no such file or directory",
        ],
    );
    check(
        serve("text.pem", key),
        3,
        &["error[JA311]: cannot read text.pem"],
    );
    check(
        serve(cert, cert),
        3,
        &["error[JA311]", "cert.pem", "private key"],
    );
    let other = Folder::new();
    let (_, other_key) = crate::binary::certificate(other.path());
    check(
        serve(cert, other_key.to_str().unwrap()),
        3,
        &["error[JA312]: cannot use the certificate"],
    );
}
