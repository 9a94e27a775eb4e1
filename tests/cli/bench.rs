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
fn every_attempt_has_a_line_and_a_closed_loop_its_correction() {
    let folder = Folder::new();
    let served = folder.serve("--port 0");
    let url = served.url();
    let json = folder
        .run(&format!(
            "bench {url}/hello -n 300 -c 3 --raw raw.jsonl --expected-interval 1ms --json"
        ))
        .expect(0)
        .json();
    assert_eq!(json["raw"]["written"], 300);
    assert_eq!(json["raw"]["dropped"], 0);
    assert_eq!(json["latency"]["count"], 300);
    assert_eq!(json["expected_interval_ns"], 1_000_000);
    let corrected = json["latency_corrected"]["count"].as_u64();
    assert!(corrected >= Some(300), "{json}");
    let text = std::fs::read_to_string(folder.path().join("raw.jsonl")).unwrap();
    let latest = (text.lines())
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .map(|line| line["done_ns"].as_u64().unwrap() - line["sent_ns"].as_u64().unwrap())
        .max();
    assert_eq!(json["latency"]["max_ns"].as_u64(), latest);
    assert_eq!(text.lines().count(), 300);

    let run = folder
        .run(&format!("bench {url}/hello -n 1 -c 1 --raw missing/raw"))
        .expect(1);
    assert!(run.stderr.contains("error[JA801]"), "{run:?}");
    let run = folder
        .run(&format!("bench {url}/hello -n 1 -c 1 --raw /dev/full"))
        .expect(1);
    assert!(run.stderr.contains("error[JA803]"), "{run:?}");
    assert!(run.stdout.contains("1 dropped"), "{run:?}");
    for flags in [
        "--rate 10 --expected-interval 1ms",
        "--expected-interval 0s",
    ] {
        folder.run(&format!("bench {url} -n 1 {flags}")).expect(1);
    }
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

/// The worst verdict is the exit status, and what the machine did before is in the record.
#[test]
fn a_matrix_ends_as_its_worst_verdict() {
    let matrix = |program: &str, limit: &str| {
        format!(
            "[program.timer]\ncommand = [\"{program}\", \"12.5\"]\n[[cell]]\nid = \"call\"\n\
             kind = \"micro\"\nrounds = 6\narms = [{{ program = \"timer\" }}]\n[[cell.target]]\n\
             id = \"quick\"\nmetric = \"ns_per_op\"\narm = \"timer\"\nat_most = {limit}\n"
        )
    };
    for (program, limit, flags, exit, said) in [
        ("echo", "60.0", "", 0, "PASS"),
        // A FAIL needs a second run.
        ("echo", "1.0", "", 3, "it failed in this run"),
        // Five rounds have no 95 % interval.
        ("echo", "60.0", " --rounds 5", 3, "INCONCLUSIVE"),
        ("/nonexistent/peer", "60.0", "", 4, "peer is not installed"),
    ] {
        let folder = Folder::new().with("m.toml", &matrix(program, limit));
        let run = folder.run(&format!("bench --matrix m.toml --allow-busy{flags}"));
        let run = run.expect(exit);
        assert!(run.stderr.contains(said), "{run:?}");
        folder.run("bench verify").expect(0);
        let results = folder.path().join("benches/results");
        let mut records = std::fs::read_dir(results).unwrap();
        let record = std::fs::read_to_string(records.next().unwrap().unwrap().path()).unwrap();
        let record: serde_json::Value = serde_json::from_str(&record).unwrap();
        assert!(
            record["before"]["load_average"].is_string(),
            "{}",
            record["before"]
        );
        assert!(record["before"]["overridden"].is_array());
    }
    let folder = Folder::new().with("m.toml", &matrix("echo", "1.0"));
    for (exit, said) in [(3, "INCONCLUSIVE"), (2, "FAIL"), (2, "FAIL")] {
        let run = folder.run("bench --matrix m.toml --allow-busy");
        assert!(run.expect(exit).stderr.contains(said), "{exit} {said}");
        folder.run("bench verify").expect(0);
    }
    for bad in ["--allow-busy --patience 1s", "--patience soon"] {
        let folder = Folder::new().with("m.toml", &matrix("echo", "1.0"));
        folder
            .run(&format!("bench --matrix m.toml {bad}"))
            .expect(1);
    }
}

/// What is started is named, and what is meant as a URL is none.
#[test]
fn an_application_is_told_from_a_url() {
    let folder = Folder::new();
    for (arguments, exit, said) in [
        (
            "http://127.0.0.1:1/ --path /x",
            1,
            "`--path` is for an application",
        ),
        (
            "http://127.0.0.1:1/ -- --lanes 2",
            1,
            "arguments after `--`",
        ),
        (
            "127.0.0.1:8000/hello",
            1,
            "write `http://127.0.0.1:8000/hello`",
        ),
        ("main.py --path hello", 1, "a path that begins with /"),
        ("missing.py", 5, "error[JA810]"),
    ] {
        let run = folder.run(&format!("bench -n 1 {arguments}")).expect(exit);
        assert!(run.stderr.contains(said), "{arguments}: {run:?}");
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
    // Two connections have sent four requests: two answers at least have come back.
    let count = || {
        let metrics = served.get("/metrics");
        let line = metrics.lines().find(|line| {
            line.starts_with("justapi_requests_total{")
                && line.contains("route=\"/hello\",status=\"200\"")
        });
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
    };
    while count().is_none_or(|count| count < 4.0) {
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
