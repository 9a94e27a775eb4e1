//! `justapi bench`: what is measured, what is refused, and how it ends.

use std::io::Read as _;
use std::net::TcpListener;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::binary::{Folder, JUSTAPI};

#[test]
fn counts_only_what_succeeded() {
    let folder = Folder::new().with("body.json", "{\"a\": 1}");
    let served = folder.serve("--port 0");
    let url = served.url();
    let run = folder
        .run(&format!("bench {url}/hello -n 100 -c 4"))
        .expect(0);
    assert!(run.stdout.contains("ok=100"), "{run:?}");
    let json = folder
        .run(&format!(
            "bench {url}/echo -n 50 -c 2 --body @body.json --json"
        ))
        .expect(0)
        .json();
    assert_eq!(json["v"], 1);
    assert_eq!(json["outcomes"]["ok"], 50);
    assert_eq!(json["status_counts"]["200"], 50);

    let run = folder
        .run(&format!("bench {url}/nope -n 10 -c 1"))
        .expect(5);
    assert!(run.stderr.contains("error[JA802]"), "{run:?}");
    assert!(run.stderr.contains("10 http_4xx"), "{run:?}");
    folder
        .run(&format!("bench {url}/nope -n 10 -c 1 --expect-status 404"))
        .expect(0);
    served.stop(Signal::TERM).expect(0);
}

#[test]
fn a_closed_port_is_unreachable() {
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let run = Folder::new()
        .run(&format!("bench http://127.0.0.1:{port}/ -n 5 -c 1"))
        .expect(5);
    assert!(run.stderr.contains("connect_refused"), "{run:?}");
}

#[test]
fn unusable_input_exits_1() {
    let folder = Folder::new();
    for arguments in [
        "ftp://127.0.0.1/",
        "http://127.0.0.1:1/ --body @missing",
        "http://127.0.0.1:1/ --header nocolon",
        "http://127.0.0.1:1/ -z 0s",
        "--matrix missing",
    ] {
        let run = folder.run(&format!("bench {arguments}")).expect(1);
        assert!(run.stderr.contains("error[JA801]"), "{arguments}: {run:?}");
    }
    for arguments in [
        "",
        "http://127.0.0.1:1/ -c 0",
        "http://127.0.0.1:1/ -z 1s -n 1",
    ] {
        folder.run(&format!("bench {arguments}")).expect(1);
    }
}

#[test]
fn ctrl_c_reports_what_was_measured() {
    let folder = Folder::new();
    let served = folder.serve("--port 0");
    let url = format!("{}/hello", served.url());
    let child = folder
        .program(
            JUSTAPI,
            &["bench", &url, "-z", "60s", "-c", "2", "--warmup", "0s"],
        )
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Once the server has counted requests, the measurement is under way.
    while !served
        .get("/metrics")
        .contains("route=\"/hello\",status=\"200\"")
    {
        std::thread::yield_now();
    }
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let mut child = child;
    let mut report = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut report)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(report.contains("ok="), "{report}");
    served.stop(Signal::TERM).expect(0);
}

#[test]
fn the_ledger_is_verified() {
    let folder = Folder::new();
    let run = folder.run("bench verify").expect(0);
    assert!(run.stdout.contains("0 records"), "{run:?}");
    let folder = folder.with("BENCHMARKS.md", "| forged | 1 |\n");
    let run = folder.run("bench verify --root .").expect(6);
    assert!(run.stderr.contains("error[JA804]"), "{run:?}");
}
