//! `justapi bench` against a server that misbehaves by path: every attempt is in one class, the
//! classes add up, and no failure looks like speed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs as _};
use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::binary::{Folder, JUSTAPI, Run, certificate, on_a_terminal};
use crate::naughty_server::Naughty;

/// Runs `bench` with `--json` on a path and compares the exit status and every class.
#[track_caller]
fn check(naughty: &Naughty, arguments: &str, exit: i32, expected: &[(&str, u64)]) -> Value {
    let (path, flags) = arguments.split_once(' ').unwrap();
    let url = naughty.url(path);
    let run = Folder::new()
        .run(&format!(
            "bench {url} {flags} --warmup 0s --threads 1 --json"
        ))
        .expect(exit);
    let report = first_document(&run);
    let found: Vec<_> = (report["outcomes"].as_object().unwrap().iter())
        .map(|(outcome, count)| (outcome.as_str(), count.as_u64().unwrap()))
        .filter(|(_, count)| *count > 0)
        .collect();
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    let mut sorted = found;
    sorted.sort_unstable();
    assert_eq!(sorted, expected, "{arguments}: {run:#?}");
    let sum: u64 = expected.iter().map(|(_, count)| count).sum();
    assert_eq!(report["attempts"], sum, "{arguments}");
    let is_ok = |(outcome, _): &&(&str, u64)| *outcome == "ok";
    let ok = expected.iter().find(is_ok).map_or(0, |(_, count)| *count);
    assert_eq!(report["latency"]["count"], ok, "{arguments}");
    if ok == 0 {
        assert!(
            report["rate"].is_null() || report["rate"] == 0.0,
            "{arguments}"
        );
        assert!(report["latency"]["max_ns"].is_null(), "{arguments}");
    }
    report
}

/// The report; behind it there may be the document of an error.
fn first_document(run: &Run) -> Value {
    let mut documents = serde_json::Deserializer::from_str(&run.stdout).into_iter::<Value>();
    documents.next().unwrap().unwrap()
}

#[test]
fn every_misbehaviour_has_its_class() {
    let naughty = Naughty::start();
    for (arguments, exit, expected) in [
        ("/slow?ms=1 -n 10 -c 1", 0, &[("ok", 10)][..]),
        ("/status?n=500 -n 10 -c 2", 5, &[("http_5xx", 10)]),
        ("/status?n=404 -n 10 -c 2", 5, &[("http_4xx", 10)]),
        (
            "/status?n=404 -n 10 -c 2 --expect-status 404",
            0,
            &[("ok", 10)],
        ),
        (
            "/status?n=200 -n 10 -c 2 --expect-status 204",
            5,
            &[("status_mismatch", 10)],
        ),
        ("/status?n=302 -n 10 -c 2", 0, &[("ok", 10)]),
        ("/status?n=999 -n 3 -c 1", 5, &[("parse_error", 3)]),
        ("/close-early -n 10 -c 1", 5, &[("eof_early", 10)]),
        ("/close -n 3 -c 1", 5, &[("eof_early", 3)]),
        ("/no-length -n 10 -c 1", 0, &[("ok", 10)]),
        ("/chunked -n 10 -c 1", 0, &[("ok", 10)]),
        ("/bad-chunk -n 5 -c 1", 5, &[("parse_error", 5)]),
        ("/chunk-without-size -n 5 -c 1", 5, &[("parse_error", 5)]),
        ("/chunk-that-ends -n 5 -c 1", 5, &[("eof_early", 5)]),
        ("/two-lengths -n 5 -c 1", 5, &[("parse_error", 5)]),
        ("/both-framings -n 5 -c 1", 5, &[("parse_error", 5)]),
        ("/huge-head -n 5 -c 1", 5, &[("parse_error", 5)]),
        ("/other-protocol -n 5 -c 1", 5, &[("parse_error", 5)]),
        ("/101 -n 5 -c 1", 5, &[("parse_error", 5)]),
        ("/reset -n 3 -c 1", 5, &[("reset", 3)]),
        ("/1xx -n 10 -c 1", 0, &[("ok", 10)]),
        ("/two-in-one -n 10 -c 1", 5, &[("extra_bytes", 10)]),
        ("/204-te-with-end -n 10 -c 1", 5, &[("extra_bytes", 10)]),
        ("/dribble -n 4 -c 1", 0, &[("ok", 4)]),
        ("/big -n 4 -c 2", 0, &[("ok", 4)]),
        (
            "/never -n 2 -c 2 --timeout 100ms",
            5,
            &[("request_timeout", 2)],
        ),
        // A limit of the whole answer, not of each read: 41 bytes in 41 · 20 ms.
        (
            "/dribble?ms=20 -n 2 -c 2 --timeout 300ms",
            5,
            &[("request_timeout", 2)],
        ),
    ] {
        check(&naughty, arguments, exit, expected);
    }
}

#[test]
fn answers_without_a_body_are_not_waited_for() {
    let naughty = Naughty::start();
    for arguments in [
        "/head-with-length -m HEAD -n 10 -c 1",
        "/204-te -n 10 -c 1",
        "/304 -n 10 -c 1 --expect-status 304",
    ] {
        let report = check(&naughty, arguments, 0, &[("ok", 10)]);
        assert_eq!(report["connections_opened"], 1, "{arguments}");
        assert!(report["window_ns"].as_u64().unwrap() < 1_000_000_000);
    }
}

/// Cut off at the stop, or by the time limit: in no rate, and the run ends on time.
#[test]
fn what_is_in_flight_at_the_stop_is_no_success() {
    let naughty = Naughty::start();
    let begin = Instant::now();
    let report = check(
        &naughty,
        "/slow?ms=3000 -z 1s -c 4",
        5,
        &[("aborted_at_deadline", 4)],
    );
    assert!(begin.elapsed() < Duration::from_secs(3));
    assert!(report["oldest_aborted_ns"].as_u64().unwrap() > 500_000_000);
    let run = Folder::new()
        .run(&format!(
            "bench {} -z 1s -c 4 --warmup 0s --timeout 300ms --json",
            naughty.url("/slow?ms=3000")
        ))
        .expect(5);
    let outcomes = &first_document(&run)["outcomes"];
    assert_eq!(outcomes["ok"], 0);
    assert!(
        outcomes["request_timeout"].as_u64().unwrap() >= 4,
        "{run:#?}"
    );
}

#[test]
fn ctrl_c_ends_a_run_that_no_answer_ends() {
    let naughty = Naughty::start();
    let url = naughty.url("/never");
    for rate in [&[][..], &["--rate", "100"]] {
        let before = naughty.requests.load(Ordering::SeqCst);
        let mut arguments = vec![
            "bench", &url, "-z", "60s", "-c", "2", "--warmup", "0s", "--json",
        ];
        arguments.extend(rate);
        let child = Folder::new()
            .program(JUSTAPI, &arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        while naughty.requests.load(Ordering::SeqCst) < before + 2 {
            thread::yield_now();
        }
        let begin = Instant::now();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        kill_process(pid, Signal::INT).unwrap();
        let run = Run::of(&child.wait_with_output().unwrap()).expect(130);
        assert!(begin.elapsed() < Duration::from_secs(2));
        let report = run.json();
        assert_eq!(report["interrupted"], true);
        assert_eq!(report["outcomes"]["aborted_at_deadline"], 2);
    }
}

/// On a terminal there is a line that moves, and the report is the same.
#[test]
fn progress_is_shown_on_a_terminal() {
    let naughty = Naughty::start();
    let url = naughty.url("/slow?ms=1");
    let arguments = ["bench", &url, "-z", "1500ms", "-c", "2", "--warmup", "0s"];
    let (shown, run) = on_a_terminal(Folder::new().program(JUSTAPI, &arguments));
    assert!(shown.contains("ok/s") && shown.contains("p99"), "{shown:?}");
    let report = run.expect(0).stdout;
    assert!(report.contains("ok=") && !report.contains('\r'), "{report}");
}

#[test]
fn some_timeouts_are_in_one_class_only() {
    let naughty = Naughty::start();
    check(
        &naughty,
        "/sometimes-slow -n 40 -c 1 --timeout 200ms",
        0,
        &[("ok", 36), ("request_timeout", 4)],
    );
}

/// With ten samples there is a median, and no more is claimed.
#[test]
fn percentiles_need_their_samples() {
    let report = check(&Naughty::start(), "/steps -n 10 -c 1", 0, &[("ok", 10)]);
    // The server waits for so long at least; how much longer it takes is up to the machine.
    let number = |report: &Value, name: &str| report["latency"][name].as_f64().unwrap() / 1e6;
    assert!(number(&report, "p50_ns") >= 50.0, "{report}");
    assert!(number(&report, "max_ns") >= 100.0, "{report}");
    assert!(number(&report, "p50_ns") < number(&report, "max_ns"));
    for name in ["p90_ns", "p95_ns", "p99_ns", "p99_9_ns"] {
        assert!(report["latency"][name].is_null(), "{name}");
    }
    let all = check(
        &Naughty::start(),
        "/steps -n 10 -c 1 --all-percentiles",
        0,
        &[("ok", 10)],
    );
    // By nearest rank the ninth of ten is the p90, and what is above it is the last.
    let max = number(&all, "max_ns");
    assert!((90.0..=max).contains(&number(&all, "p90_ns")), "{all}");
    for name in ["p95_ns", "p99_ns", "p99_9_ns"] {
        assert!((number(&all, name) / max - 1.0).abs() < 0.001, "{all}");
    }
    assert_eq!(
        all["latency"]["below_floor"],
        serde_json::json!(["p90", "p95", "p99", "p99.9"])
    );
    let naughty = Naughty::start();
    let text = Folder::new()
        .run(&format!("bench {} -n 10 -c 1", naughty.url("/")))
        .expect(0)
        .stdout;
    assert!(
        text.contains("p90 44, p95 90, p99 459, p99.9 4603"),
        "{text}"
    );
    assert!(
        text.contains("n/a") && !text.to_lowercase().contains("nan"),
        "{text}"
    );
}

/// The server's own counts are those of the client.
#[test]
fn both_sides_count_the_same() {
    let naughty = Naughty::start();
    let run = Folder::new()
        .run(&format!(
            "bench {} -z 1s -c 7 --warmup 0s --json",
            naughty.url("/")
        ))
        .expect(0);
    let report = first_document(&run);
    let attempts = report["attempts"].as_u64().unwrap();
    let served = naughty.requests.load(Ordering::SeqCst);
    assert!(attempts - served <= 7, "{attempts} {served}");
    assert_eq!(naughty.connections.load(Ordering::SeqCst), 7);
    assert_eq!(report["connections_opened"], 7);
}

#[test]
fn slow_connections_at_the_start_are_no_timeouts() {
    let report = check(
        &Naughty::start(),
        "/slow?ms=1 -n 20 -c 100 --rate 40 --timeout 200ms",
        0,
        &[("ok", 20)],
    );
    assert_eq!(report["latency_origin"], "intended");
}

#[test]
fn answers_are_looked_into() {
    let naughty = Naughty::start();
    let right = "2689367b205c16ce32ed4200942b8b8b1e262dfc70d9bc9fbc77c49699a4f1df";
    let wrong = "0".repeat(64);
    let flags = "-n 4 -c 1";
    check(
        &naughty,
        &format!("/x {flags} --expect-sha256 {right}"),
        0,
        &[("ok", 4)],
    );
    check(
        &naughty,
        &format!("/x {flags} --expect-sha256 {wrong}"),
        5,
        &[("body_mismatch", 4)],
    );
    check(
        &naughty,
        &format!("/json?n=1 {flags} --expect-json /n=1 --expect-json /tag=a=b"),
        0,
        &[("ok", 4)],
    );
    for rule in ["/n=2", "/m=1", "/n=\"1\"", "/tag=a"] {
        let arguments = format!("/json?n=1 {flags} --expect-json {rule}");
        check(&naughty, &arguments, 5, &[("body_mismatch", 4)]);
    }
    // Not JSON at all.
    check(
        &naughty,
        "/x -n 2 -c 1 --expect-json /n=1",
        5,
        &[("body_mismatch", 2)],
    );
}

/// A number that differs in some answers only: the run is not valid, whatever its rate is.
#[test]
fn some_wrong_answers_make_a_run_invalid() {
    let naughty = Naughty::start();
    let folder = Folder::new().with("lines.txt", "1\n2\n1\n1\n");
    let url = naughty.url("/json?n={{line}}");
    let run = folder
        .run(&format!(
            "bench {url} --template --lines lines.txt -n 8 -c 1 --threads 1 --expect-json /n=1 --json"
        ))
        .expect(4);
    let report = first_document(&run);
    assert_eq!(report["outcomes"]["ok"], 6);
    assert_eq!(report["outcomes"]["body_mismatch"], 2);
    assert!(run.stderr.contains("error[JA805]"), "{run:?}");
}

#[test]
fn lines_are_bodies_and_marks_are_filled() {
    let naughty = Naughty::start();
    let folder = Folder::new().with("lines.txt", "one\n\nanother one\nç\n");
    let run = |arguments: &str| folder.run(&format!("bench {arguments} -c 2 --json"));
    // Only one of three lines is the query.
    let url = naughty.url("/echo?one");
    let report =
        first_document(&run(&format!("{url} --lines lines.txt -n 9 --threads 1")).expect(0));
    assert_eq!(report["outcomes"]["ok"], 3);
    assert_eq!(report["outcomes"]["http_4xx"], 6);
    // In path and body alike, with the right length.
    let folder = Folder::new().with("lines.txt", "a\nlonger\n");
    let url = naughty.url("/echo?{{line}}");
    folder
        .run(&format!(
            "bench {url} --template --lines lines.txt --body {{{{line}}}} -n 10 -c 2"
        ))
        .expect(0);
    // Each request has a number of its own.
    let url = naughty.url("/echo?{{seq}}");
    folder
        .run(&format!(
            "bench {url} --template --body {{{{seq}}}} -n 10 -c 2"
        ))
        .expect(0);
    for bad in [
        "--lines missing",
        "--lines empty.txt",
        "--expect-sha256 12",
        "--expect-json n=1",
    ] {
        let folder = Folder::new().with("empty.txt", "\n\n");
        folder
            .run(&format!("bench {} {bad} -n 1", naughty.url("/")))
            .expect(1);
    }
}

#[test]
fn thresholds_decide_the_exit_status() {
    let naughty = Naughty::start();
    for (rules, exit, code) in [
        (&["p50<1ns", "errors>0", "rate<1"][..], 0, ""),
        (&["p50>1us"], 2, "error[JA806]"),
        (&["p99>60s"], 3, "error[JA807]"),
        // What is broken is worse than what is unknown.
        (&["p99>60s", "ok<=20"], 2, "error[JA806]"),
        (&["p98>1ms"], 1, "p98>1ms"),
    ] {
        let mut arguments = vec!["bench".to_owned(), naughty.url("/"), "-n20".to_owned()];
        for rule in rules {
            arguments.extend(["--fail-if".to_owned(), (*rule).to_owned()]);
        }
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let output = Folder::new().program(JUSTAPI, &arguments).output().unwrap();
        let run = Run::of(&output).expect(exit);
        assert!(run.stderr.contains(code), "{run:?}");
    }
}

#[test]
fn a_rate_that_is_not_reached_is_invalid() {
    let naughty = Naughty::start();
    let url = naughty.url("/slow?ms=2");
    let arguments = format!("bench {url} --rate 5000 -z 500ms -c 1 --warmup 0s --json");
    let run = Folder::new().run(&arguments).expect(4);
    assert!(run.stderr.contains("error[JA805]"), "{run:?}");
    let report = first_document(&run);
    assert_eq!(report["open_loop"]["saturated"], true);
    assert_eq!(report["attempts"], 2500);
    Folder::new()
        .run(&format!("{arguments} --allow-underrun"))
        .expect(0);
}

#[test]
fn stages_offer_their_integral() {
    let naughty = Naughty::start();
    let url = naughty.url("/");
    let run = Folder::new()
        .run(&format!(
            "bench {url} --stage 500ms:0..400 --stage 500ms:400 --warmup 0s --arrivals constant --json"
        ))
        .expect(0);
    assert_eq!(first_document(&run)["attempts"], 300);
    let poisson = |seed| {
        let run = Folder::new()
            .run(&format!(
                "bench {url} --rate 300 -z 500ms --warmup 0s --arrivals poisson --seed {seed} --json"
            ))
            .expect(0);
        let report = first_document(&run);
        assert_eq!(report["open_loop"]["seed"], seed);
        assert_eq!(report["open_loop"]["process"], "poisson");
        report["attempts"].as_u64().unwrap()
    };
    // The same seed is the same schedule.
    assert_eq!(poisson(7), poisson(7));
    // Flags that would do nothing are refused.
    for bad in [
        "--arrivals poisson",
        "--seed 1",
        "--allow-underrun",
        "--rate 0",
        "--rate 1e3",
        "--rate 5 --stage 1s:5",
        "--stage 1s:5 -z 1s",
        "--stage 1s:0",
        "--timeout 0s",
    ] {
        Folder::new().run(&format!("bench {url} {bad}")).expect(1);
    }
}

/// IPv6 alone, a name with both families, a name that is none.
#[test]
fn names_and_addresses_are_tried_in_both_families() {
    let six = Naughty::on(SocketAddr::from((Ipv6Addr::LOCALHOST, 0)));
    let port = six.address.port();
    // Which names have the address is up to the system.
    let has_six = |name: &&str| {
        let mut found = (*name, port).to_socket_addrs().into_iter().flatten();
        found.any(|address| address == six.address)
    };
    let names = ["localhost", "ip6-localhost"].into_iter().filter(has_six);
    for host in names.chain(["[::1]"]) {
        let run = Folder::new()
            .run(&format!("bench http://{host}:{port}/ -n 4 -c 1 --json"))
            .expect(0);
        let report = first_document(&run);
        assert_eq!(report["address"], format!("[::1]:{port}"), "{host}");
    }
    let run = Folder::new()
        .run("bench http://no-such-host.invalid/ -n 4")
        .expect(5);
    assert!(run.stderr.contains("error[JA802]"), "{run:?}");
    assert!(run.stdout.is_empty(), "{run:?}");
}

#[test]
fn tls_that_is_not_trusted_is_its_own_class() {
    let folder = Folder::new();
    let (cert, key) = certificate(folder.path());
    let served = folder.serve(&format!(
        "--port 0 --tls-cert {} --tls-key {}",
        cert.display(),
        key.display()
    ));
    let port = served.listening["url"]
        .as_str()
        .unwrap()
        .rsplit(':')
        .next()
        .unwrap();
    let port = port.trim_end_matches('/');
    let other = Folder::new();
    let (other_cert, _) = certificate(other.path());
    for (flags, exit, outcome) in [
        (format!("--cacert {}", cert.display()), 0, "ok"),
        ("--insecure".to_owned(), 0, "ok"),
        (format!("--cacert {}", other_cert.display()), 5, "tls_error"),
    ] {
        let run = folder
            .run(&format!(
                "bench https://localhost:{port}/hello -n 2 -c 1 {flags} --json"
            ))
            .expect(exit);
        assert_eq!(first_document(&run)["outcomes"][outcome], 2, "{run:?}");
    }
    // Plain HTTP where TLS is expected, and the other way round.
    let naughty = Naughty::start();
    let url = format!("https://{}/", naughty.address);
    let run = folder.run(&format!("bench {url} -k -n 2 -c 1 --timeout 1s --json"));
    let report = first_document(&run.expect(5));
    assert_eq!(report["outcomes"]["ok"], 0);
}

#[test]
fn forms_of_a_report_agree() {
    let naughty = Naughty::start();
    let run = Folder::new()
        .run(&format!(
            "bench {} -n 100 -c 2 --rate 500 -o csv",
            naughty.url("/")
        ))
        .expect(0);
    let lines: Vec<Vec<&str>> = (run.stdout.lines())
        .map(|line| line.split(',').collect())
        .collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0].len(), lines[1].len());
    let value = |name| lines[1][lines[0].iter().position(|found| *found == name).unwrap()];
    assert_eq!(value("ok"), "100");
    assert_eq!(value("attempts"), "100");
    assert_eq!(value("latency_p99_ns"), "");
    assert!(value("latency_intended_p95_ns").parse::<u64>().unwrap() > 0);
    assert_eq!(value("client"), "raw HTTP/1.1");
    // No progress where nobody looks.
    assert!(run.stderr.is_empty(), "{run:?}");
}

#[test]
fn a_calibrated_run_says_whether_the_client_was_the_limit() {
    let naughty = Naughty::start();
    let run = Folder::new()
        .run(&format!(
            "bench {} -n 20 -c 1 --calibrate --json",
            naughty.url("/slow?ms=5")
        ))
        .expect(0);
    let report = first_document(&run);
    assert!(
        report["client_ceiling_rate"].as_f64().unwrap() > 1000.0,
        "{run:?}"
    );
    assert_eq!(report["client_bound"], false);
}

#[test]
fn other_clients_are_named_in_the_report() {
    let folder = Folder::new();
    let served = folder.serve("--port 0");
    for (flags, client, has_connections) in [
        ("", "raw HTTP/1.1", true),
        ("--http2 --streams 4", "hyper HTTP/2 x4", true),
        ("--client reqwest", "reqwest", false),
    ] {
        let run = folder
            .run(&format!(
                "bench {}/hello -n 50 -c 2 {flags} --json",
                served.url()
            ))
            .expect(0);
        let report = first_document(&run);
        assert_eq!(report["client"], client);
        assert_eq!(report["outcomes"]["ok"], 50);
        assert_eq!(report["connections_opened"].is_u64(), has_connections);
    }
    for bad in [
        "--streams 2",
        "--http2 --client raw",
        "--http2 --no-keepalive",
    ] {
        folder
            .run(&format!("bench {}/hello -n 1 {bad}", served.url()))
            .expect(1);
    }
}

/// Twenty times the requests take no more memory.
#[test]
fn memory_does_not_grow_with_the_number_of_requests() {
    let folder = Folder::new();
    let served = folder.serve("--port 0");
    let peak = |requests: u64| {
        let run = folder
            .run(&format!(
                "bench {}/hello -n {requests} -c 16 --json",
                served.url()
            ))
            .expect(0);
        let report = first_document(&run);
        assert_eq!(report["outcomes"]["ok"], requests);
        report["client_peak_rss_bytes"].as_u64().unwrap()
    };
    let (few, many) = (peak(5_000), peak(100_000));
    assert!(many < 50 << 20, "{many}");
    assert!(many < few + (1 << 20), "{few} {many}");
}

/// A server that is stopped for a while: what was due meanwhile has waited, although it was not sent.
#[test]
fn a_stopped_process_is_in_the_latency_from_the_intended_instant() {
    let folder = Folder::new();
    let served = folder.serve("--port 0");
    let url = format!("{}/hello", served.url());
    let arguments = [
        "bench", &url, "--rate", "100", "-n", "300", "-c", "8", "--json",
    ];
    let child = folder
        .program(JUSTAPI, &arguments)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let has_begun = || {
        served
            .get("/metrics")
            .contains("route=\"/hello\",status=\"200\"")
    };
    while !has_begun() {
        thread::yield_now();
    }
    // The time is what is measured: half of all requests are due in it.
    served.signal(Signal::STOP);
    thread::sleep(Duration::from_millis(1500));
    served.signal(Signal::CONT);
    let report = Run::of(&child.wait_with_output().unwrap()).expect(0).json();
    assert_eq!(report["outcomes"]["ok"], 300);
    let ms = |latency: &str, name: &str| report[latency][name].as_f64().unwrap() / 1e6;
    assert!(ms("latency_intended", "max_ns") >= 1300.0, "{report}");
    assert!(ms("latency_intended", "p90_ns") >= 700.0, "{report}");
    // Eight were on their way: a closed loop would have seen no more of it.
    assert!(
        ms("latency", "p90_ns") < ms("latency_intended", "p90_ns") / 2.0,
        "{report}"
    );
    assert!(ms("latency", "max_ns") >= 1300.0, "{report}");
    served.stop(Signal::TERM).expect(0);
}

/// Both signals arrive at once: the first would end the run with a report, the second ends it all.
#[test]
fn a_second_signal_ends_the_process_without_a_report() {
    let naughty = Naughty::start();
    let url = naughty.url("/never");
    let arguments = [
        "bench", &url, "-z", "60s", "-c", "2", "--warmup", "0s", "--json",
    ];
    let child = Folder::new()
        .program(JUSTAPI, &arguments)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    while naughty.requests.load(Ordering::SeqCst) < 2 {
        thread::yield_now();
    }
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    for signal in [Signal::STOP, Signal::INT, Signal::TERM, Signal::CONT] {
        kill_process(pid, signal).unwrap();
    }
    let run = Run::of(&child.wait_with_output().unwrap()).expect(130);
    assert!(run.stdout.is_empty(), "{run:?}");
}

/// Of the library client alone: what the environment names stands between.
#[test]
fn a_proxy_is_asked_for_the_whole_url() {
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = proxy.local_addr().unwrap();
    let (seen, lines) = mpsc::channel();
    thread::spawn(move || {
        for stream in proxy.incoming() {
            let (stream, seen) = (stream.unwrap(), seen.clone());
            thread::spawn(move || {
                let mut reader = BufReader::new(&stream);
                let mut line = String::new();
                while reader.read_line(&mut line).is_ok_and(|length| length > 0) {
                    if line.starts_with("GET ") {
                        seen.send(line.trim().to_owned()).ok();
                    }
                    if line == "\r\n" {
                        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                        (&stream).write_all(answer).unwrap();
                    }
                    line.clear();
                }
            });
        }
    });
    // Nobody listens at the target itself.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = taken.local_addr().unwrap();
    drop(taken);
    let folder = Folder::new().env("http_proxy", &format!("http://{address}"));
    let arguments = format!("bench http://{target}/x -n 4 -c 1 --threads 1 --json");
    let report = folder
        .run(&format!("{arguments} --client reqwest"))
        .expect(0)
        .json();
    assert_eq!(report["outcomes"]["ok"], 4);
    let asked: Vec<String> = lines.try_iter().collect();
    assert_eq!(asked, vec![format!("GET http://{target}/x HTTP/1.1"); 4]);
    folder.run(&arguments).expect(5);
}
