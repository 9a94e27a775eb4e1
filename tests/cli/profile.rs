//! `justapi profile`: the three sides of a route, what is refused, and what is left behind: nothing.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::binary::{Folder, JUSTAPI, Run, certificate, on_a_terminal};
use crate::naughty_server::Naughty;

/// A profile of a moment, without a warm-up.
const SHORT: &str = "-z 500ms --warmup 0 -c 4 --threads 1";

/// The report; behind it there may be the document of an error.
fn first_document(run: &Run) -> Value {
    let mut documents = serde_json::Deserializer::from_str(&run.stdout).into_iter::<Value>();
    documents.next().unwrap().unwrap()
}

fn is_alive(pid: u64) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
    state.is_some_and(|state| !state.starts_with('Z'))
}

/// Waits for what happens at once on an idle machine.
#[track_caller]
fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !check() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

#[test]
fn a_running_server_is_seen_from_three_sides() {
    let folder = Folder::new();
    let served = folder.serve("--port 0");
    let url = served.url();
    let run = folder
        .run(&format!(
            "profile {url} {SHORT} --path /hello --path /anything/x?y=z --json"
        ))
        .expect(0);
    assert!(
        run.stderr.is_empty(),
        "no progress where nobody looks: {run:?}"
    );
    let report = run.json();
    assert_eq!(report["v"], 1);
    assert_eq!(report["url"], url);
    assert_eq!(report["application"], Value::Null);
    assert_eq!(report["interrupted"], false);
    let routes = report["routes"].as_array().unwrap();
    for (route, name) in routes.iter().zip(["/hello", "/anything/{rest}"]) {
        let ok = route["load"]["outcomes"]["ok"].as_u64().unwrap();
        assert!(ok > 0, "{route}");
        let own = &route["server"]["routes"][0];
        assert!(
            own["route"].as_str().unwrap().starts_with(&name[..6]),
            "{own}"
        );
        let counted = own["statuses"]["200"].as_u64().unwrap();
        assert!((ok..=ok + 4).contains(&counted), "{ok} {counted}");
        assert!(own["time"]["mean_ns"].as_f64().unwrap() > 0.0, "{own}");
        assert_eq!(route["process"]["pid"], served.pid());
        assert_eq!(route["process"]["program"], "justapi");
        assert!(
            route["process"]["cpu_ns_per_response"].as_f64().unwrap() > 0.0,
            "{route}"
        );
        assert!(
            route["process"]["rss_bytes"].as_u64().unwrap() > 1 << 20,
            "{route}"
        );
        assert_eq!(route["probe"]["status"], 200);
    }
    assert_eq!(routes.len(), 2);
    assert_eq!(routes[0]["probe"]["body_len"], 19);
}

#[test]
fn text_begins_with_the_answer_that_is_profiled() {
    let folder = Folder::new();
    let served = folder.serve("--port 0");
    let run = folder
        .run(&format!("profile {}/hello {SHORT}", served.url()))
        .expect(0);
    let mut lines = run.stdout.lines();
    let first = lines.next().unwrap();
    assert!(
        first.contains("profile") && first.contains(served.url()),
        "{run:?}"
    );
    let probe = lines.next().unwrap();
    assert!(
        probe.starts_with("probe      /hello  status 200, 19 bytes, sha256 "),
        "{probe}"
    );
    for text in [
        "  client     ",
        " ok=",
        "  server     GET /hello: ",
        "  handler    mean ",
        "  mean       ",
        "  in flight  ",
        "  bytes      ",
        "  process    ",
        " of CPU a response",
        "  memory     ",
    ] {
        assert!(run.stdout.contains(text), "no {text}: {}", run.stdout);
    }
}

#[test]
fn method_body_headers_and_rate_are_those_that_were_asked_for() {
    let folder = Folder::new().with("order.json", "{\"a\": [1, 2]}");
    let served = folder.serve("--port 0");
    let run = folder
        .run(&format!(
            "profile {}/echo {SHORT} --body @order.json -H x-secret:abc --rate 200 --no-keepalive --json",
            served.url()
        ))
        .expect(0);
    let report = run.json();
    assert_eq!(report["request"]["method"], "POST");
    assert_eq!(report["request"]["body_bytes"], 13);
    assert_eq!(report["request"]["headers"][0], "x-secret");
    assert!(!run.stdout.contains("abc"), "values may be secret: {run:?}");
    assert_eq!(report["request"]["keep_alive"], false);
    let load = &report["routes"][0]["load"];
    assert_eq!(load["latency_origin"], "intended");
    let attempts = load["attempts"].as_u64().unwrap();
    assert!((80..=120).contains(&attempts), "{attempts}");
    assert!(
        load["connections_opened"].as_u64().unwrap() >= attempts / 2,
        "{load}"
    );
    assert_eq!(report["routes"][0]["server"]["routes"][0]["route"], "/echo");
}

#[test]
fn without_a_target_what_serve_would_serve_is_started_and_ended() {
    let folder = Folder::new().with("justapi.toml", "[server]\nport = 1\n");
    let run = folder
        .run(&format!("profile {SHORT} --path /hello --json"))
        .expect(0);
    let report = run.json();
    assert_eq!(report["application"]["name"], "justapi serve");
    let route = &report["routes"][0];
    assert_eq!(route["server"]["routes"][0]["route"], "/hello");
    assert_eq!(route["process"]["pid"], report["application"]["pid"]);
    assert!(!is_alive(report["application"]["pid"].as_u64().unwrap()));
    // Arguments for the server stand behind two hyphens, and can be wrong, too.
    let (cert, key) = certificate(folder.path());
    let tls = format!("--tls-cert {} --tls-key {}", cert.display(), key.display());
    let run = folder
        .run(&format!("profile {SHORT} --path /hello --json -- {tls}"))
        .expect(0);
    let report = run.json();
    assert!(
        report["url"].as_str().unwrap().starts_with("https://"),
        "{report}"
    );
    let run = folder.run("profile --json -- --prot 1").expect(5);
    assert!(
        run.stderr.contains("error[JA810]") && run.stderr.contains("JA201"),
        "{run:?}"
    );
}

#[test]
fn an_error_page_is_refused_unless_it_was_asked_for() {
    let folder = Folder::new();
    let served = folder.serve("--port 0");
    let url = served.url();
    let run = folder.run(&format!("profile {url}/nope {SHORT}")).expect(5);
    assert!(
        run.stdout.contains("probe      /nope  status 404, "),
        "{run:?}"
    );
    assert!(!run.stdout.contains("client"), "{run:?}");
    assert!(run.stderr.contains("error[JA808]"), "{run:?}");
    assert!(run.stderr.contains("--expect-status 404"), "{run:?}");
    // One bad path is enough, and is found before anything is measured.
    let run = folder
        .run(&format!("profile {url} {SHORT} --path /hello --path /nope"))
        .expect(5);
    assert!(!run.stdout.contains("client"), "{run:?}");
    folder
        .run(&format!("profile {url}/hello {SHORT} --expect-status 404"))
        .expect(5);
    let naughty = Naughty::start();
    for path in ["/status?n=302", "/status?n=503"] {
        let run = folder
            .run(&format!("profile {} {SHORT}", naughty.url(path)))
            .expect(5);
        assert!(run.stderr.contains("error[JA808]"), "{run:?}");
    }
    let run = folder
        .run(&format!(
            "profile {url}/nope {SHORT} --expect-status 404 --json"
        ))
        .expect(0);
    let route = &run.json()["routes"][0];
    assert!(
        route["load"]["outcomes"]["ok"].as_u64().unwrap() > 0,
        "{route}"
    );
    assert_eq!(route["server"]["routes"][0]["route"], "unmatched");
}

#[test]
fn a_server_that_is_not_ours_is_profiled_without_its_side() {
    let naughty = Naughty::start();
    let run = Folder::new()
        .run(&format!(
            "profile {} {SHORT} --json --metrics /x",
            naughty.url("/")
        ))
        .expect(0);
    let route = &run.json()["routes"][0];
    assert!(
        route["load"]["outcomes"]["ok"].as_u64().unwrap() > 0,
        "{route}"
    );
    assert_eq!(route["server"], Value::Null);
    let reason = route["server_missing"].as_str().unwrap();
    assert!(
        reason.starts_with("/x: not Prometheus text, line 1"),
        "{reason}"
    );
    assert_eq!(route["in_server_mean_ns"], Value::Null);
    // It listens in this process.
    assert_eq!(route["process"]["pid"], std::process::id());
    let run = Folder::new()
        .run(&format!(
            "profile {} {SHORT} --metrics off",
            naughty.url("/")
        ))
        .expect(0);
    assert!(run.stdout.contains("not seen: switched off"), "{run:?}");
}

#[test]
fn unusable_input_exits_1() {
    let folder = Folder::new();
    for (arguments, code, text) in [
        ("ftp://127.0.0.1/", "JA801", "scheme"),
        ("127.0.0.1:8000", "JA801", "http://127.0.0.1:8000"),
        ("localhost:8000/x", "JA801", "http://localhost:8000/x"),
        (":8000", "JA801", "http://127.0.0.1:8000"),
        ("https://127.0.0.1:1/", "JA801", "--cacert"),
        ("http://127.0.0.1:1/a --path /b", "JA801", "--path"),
        ("http://127.0.0.1:1 --path /b --path /b", "JA801", "twice"),
        ("http://127.0.0.1:1 --body @missing", "JA801", "missing"),
        ("http://127.0.0.1:1 -H nocolon", "JA801", "nocolon"),
        ("http://127.0.0.1:1 --metrics nowhere", "JA801", "nowhere"),
        (
            "http://127.0.0.1:1 --html no/such/folder/a.html",
            "JA801",
            "no/such",
        ),
        ("http://127.0.0.1:1 -- --lanes 1", "JA801", "--"),
        ("http://127.0.0.1:1 --duration 0", "JA801", "--duration"),
        ("http://127.0.0.1:1 --timeout 0", "JA801", "request_timeout"),
    ] {
        let run = folder.run(&format!("profile {arguments}")).expect(1);
        assert!(
            run.stderr.contains(&format!("error[{code}]")),
            "{arguments}: {run:?}"
        );
        assert!(run.stderr.contains(text), "{arguments}: {run:?}");
    }
    for arguments in [
        "http://127.0.0.1:1 --rate 0",
        "http://127.0.0.1:1 --rate -5",
        "http://127.0.0.1:1 --path hello",
        "http://127.0.0.1:1 -c 0",
        "http://127.0.0.1:1 --allow-underrun",
        "http://127.0.0.1:1 --expect-status 42",
    ] {
        folder.run(&format!("profile {arguments}")).expect(1);
    }
}

#[test]
fn a_target_that_cannot_be_reached_exits_5() {
    let folder = Folder::new();
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let run = folder
        .run(&format!("profile http://127.0.0.1:{port}/"))
        .expect(5);
    assert!(run.stderr.contains("error[JA802]"), "{run:?}");
    assert!(run.stderr.contains("connect_refused"), "{run:?}");
    let run = folder.run("profile http://no-such-host.invalid/").expect(5);
    assert!(run.stderr.contains("error[JA802]"), "{run:?}");
    let (_, _) = certificate(folder.path());
    let naughty = Naughty::start();
    let run = folder
        .run(&format!(
            "profile https://{}/ -k --timeout 2s",
            naughty.address
        ))
        .expect(5);
    assert!(run.stderr.contains("error[JA802]"), "{run:?}");
    let served = folder.serve("--port 0 --tls-cert cert.pem --tls-key key.pem");
    let other = Folder::new();
    let (wrong, _) = certificate(other.path());
    let url = served.url();
    let run = folder
        .run(&format!("profile {url}/hello --cacert {}", wrong.display()))
        .expect(5);
    assert!(
        run.stderr.contains("tls_error") && run.stderr.contains("-k"),
        "{run:?}"
    );
    let run = folder
        .run(&format!("profile {url}/hello {SHORT} -k --json"))
        .expect(0);
    let route = &run.json()["routes"][0];
    assert_eq!(
        route["server"]["routes"][0]["route"], "/hello",
        "metrics over TLS: {route}"
    );
    // An application that does not start, in the words of `serve`.
    let run = folder
        .run("profile missing.py -- --python /nonexistent/python")
        .expect(5);
    assert!(
        run.stderr.contains("error[JA810]") && run.stderr.contains("JA601"),
        "{run:?}"
    );
}

/// On a terminal there is a line that moves, and the report is the same.
#[test]
fn progress_is_shown_on_a_terminal() {
    let naughty = Naughty::start();
    let url = naughty.url("/slow?ms=1");
    let arguments = ["profile", &url, "-z", "1", "-c", "2", "--warmup", "300ms"];
    let (shown, run) = on_a_terminal(Folder::new().program(JUSTAPI, &arguments));
    for text in ["/slow?ms=1  warm-up", "ok/s", "p99"] {
        assert!(shown.contains(text), "{shown:?}");
    }
    let report = run.expect(0).stdout;
    assert!(
        report.contains(" ok=") && !report.contains('\r'),
        "{report}"
    );
}

/// Starts a profile that would take a minute, and waits until the server has answered.
fn start_long(folder: &Folder, served: &str, count: impl Fn() -> bool) -> Child {
    let url = format!("{served}/hello");
    let arguments = [
        "profile", &url, "-z", "60", "-c", "2", "--warmup", "0", "--json",
    ];
    let child = folder
        .program(JUSTAPI, &arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    eventually("requests come", count);
    child
}

fn end_of(mut child: Child) -> Run {
    let (mut stdout, mut stderr) = (String::new(), String::new());
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut stdout)
        .unwrap();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut stderr)
        .unwrap();
    Run {
        status: child.wait().unwrap().code().unwrap_or(-1),
        stdout,
        stderr,
    }
}

/// Whether a page of metrics counts more answers than the one before the load.
fn counts(page: &str) -> bool {
    let line = page.lines().find(|line| {
        line.starts_with("justapi_requests_total{") && line.contains("route=\"/hello\"")
    });
    let count = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    count.is_some_and(|count| count > 10.0)
}

#[test]
fn ctrl_c_reports_what_was_measured() {
    let folder = Folder::new();
    let served = folder.serve("--port 0");
    let child = start_long(&folder, served.url(), || counts(&served.get("/metrics")));
    let asked = Instant::now();
    signal(&child, Signal::INT);
    let run = end_of(child).expect(130);
    assert!(
        asked.elapsed() < Duration::from_secs(3),
        "{:?}",
        asked.elapsed()
    );
    let report = run.json();
    assert_eq!(report["interrupted"], true);
    let route = &report["routes"][0];
    assert!(
        route["load"]["outcomes"]["ok"].as_u64().unwrap() > 0,
        "{report}"
    );
    assert!(route["server"].is_object(), "{report}");
    served.stop(Signal::TERM).expect(0);
}

#[test]
fn a_server_that_dies_meanwhile_is_no_success() {
    let folder = Folder::new();
    let served = folder.serve("--port 0");
    let child = start_long(&folder, served.url(), || counts(&served.get("/metrics")));
    served.signal(Signal::KILL);
    drop(served.wait());
    // A minute of a dead server is of no use to anybody, so it is cut short here.
    thread::sleep(Duration::from_millis(300));
    signal(&child, Signal::INT);
    let run = end_of(child).expect(130);
    let route = &run.json()["routes"][0];
    let refused = route["load"]["outcomes"]["connect_refused"]
        .as_u64()
        .unwrap();
    assert!((1..200).contains(&refused), "{route}");
    assert_eq!(route["server"], Value::Null);
    assert!(
        route["process_missing"]
            .as_str()
            .unwrap()
            .contains("has ended"),
        "{route}"
    );

    // Without Ctrl-C the command itself notices.
    let served = folder.serve("--port 0");
    let url = format!("{}/hello", served.url());
    let arguments = [
        "profile", &url, "-z", "2", "-c", "2", "--warmup", "0", "--json",
    ];
    let child = folder
        .program(JUSTAPI, &arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    eventually("requests come", || counts(&served.get("/metrics")));
    served.signal(Signal::KILL);
    drop(served.wait());
    let run = end_of(child).expect(4);
    assert!(run.stderr.contains("error[JA809]"), "{run:?}");
    let report = first_document(&run);
    assert!(
        report["server_lost"]
            .as_str()
            .unwrap()
            .contains("connect_refused"),
        "{report}"
    );
}

#[test]
fn what_was_started_ends_when_the_command_is_killed() {
    let folder = Folder::new();
    for end in [Signal::KILL, Signal::INT, Signal::TERM, Signal::HUP] {
        let mut child = folder
            .program(
                JUSTAPI,
                &["profile", "--path", "/hello", "-z", "60", "--warmup", "0"],
            )
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        let pid: u64 = first.rsplit("pid ").next().unwrap().trim().parse().unwrap();
        assert!(is_alive(pid), "{first}");
        // The server's second line follows the first request.
        lines.next().unwrap().unwrap();
        signal(&child, end);
        child.wait().unwrap();
        eventually("the server has ended", || !is_alive(pid));
    }
}

#[test]
fn a_started_server_that_is_killed_is_lost() {
    let folder = Folder::new();
    let mut child = folder
        .program(
            JUSTAPI,
            &["profile", "--path", "/hello", "-z", "1", "--warmup", "0"],
        )
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    stdout.read_line(&mut first).unwrap();
    let pid: i32 = first.rsplit("pid ").next().unwrap().trim().parse().unwrap();
    let mut probe = String::new();
    stdout.read_line(&mut probe).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let (mut rest, mut stderr) = (String::new(), String::new());
    stdout.read_to_string(&mut rest).unwrap();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut stderr)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(4), "{rest} {stderr}");
    assert!(
        stderr.contains("error[JA809]") && stderr.contains("signal 9"),
        "{stderr}"
    );
}

#[test]
fn the_page_opens_in_a_browser() {
    let folder = Folder::new();
    let html = folder.path().join("profile.html");
    let run = folder
        .run(&format!(
            "profile {SHORT} --path /hello --path /anything/x --html profile.html"
        ))
        .expect(0);
    assert!(run.stderr.contains("page       profile.html"), "{run:?}");
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new("chromium")
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
        ])
        .args([
            "--no-first-run",
            "--disable-background-networking",
            "--disable-sync",
        ])
        .args([
            "--enable-logging=stderr",
            "--virtual-time-budget=5000",
            "--dump-dom",
        ])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}", html.display()))
        .output()
        .expect("chromium starts; tests/run installs it");
    let page = String::from_utf8_lossy(&output.stdout);
    for text in [
        "<title>justapi profile</title>",
        "GET /anything/x",
        "Latency of right answers",
        "Where the mean time of a request goes",
        "</svg>",
    ] {
        assert!(page.contains(text), "no {text} in {page}");
    }
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("CONSOLE"), "{said}");
}

/// A server whose answers turn into error pages under load.
#[test]
fn a_page_that_turns_into_errors_is_no_speed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut is_first = true;
        for stream in listener.incoming() {
            let status = if std::mem::take(&mut is_first) {
                200
            } else {
                503
            };
            thread::spawn(move || answer_all(&stream.unwrap(), status));
        }
    });
    let folder = Folder::new();
    let arguments = format!("profile http://{address}/ {SHORT} --metrics off --json");
    let run = folder.run(&arguments).expect(5);
    assert!(run.stderr.contains("error[JA802]"), "{run:?}");
    let route = &first_document(&run)["routes"][0];
    assert_eq!(route["load"]["outcomes"]["ok"], 0);
    assert_eq!(route["load"]["rate"], 0.0);
    let notes = route["notes"].to_string();
    assert!(notes.contains("it answered with status 503"), "{notes}");
}

fn answer_all(mut stream: &TcpStream, status: u16) {
    let mut lines = BufReader::new(stream).lines();
    while let Some(Ok(line)) = lines.next() {
        if line.is_empty() {
            let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n");
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }
}
