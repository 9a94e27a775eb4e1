//! Profiles of real servers: ours with its real counters, and others that have none.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use justapi_core::{
    Bound, Listen, MetricsMount, Request, Response, Router, Running, Server as Justapi,
};
use serde_json::Value;

use super::*;
use crate::load::{LoadPlan, RequestTemplate, Stop, Target, parse_target, probe};
use crate::machine::Machine;

/// A server of ours with a route that has a parameter, one that fails, and a slow one.
fn justapi(metrics: MetricsMount) -> Running {
    async fn item(_request: Request) -> Response {
        Response::text("an item\n")
    }
    async fn fails(_request: Request) -> Response {
        Response::new(http::StatusCode::INTERNAL_SERVER_ERROR)
    }
    async fn slow(_request: Request) -> Response {
        tokio::time::sleep(Duration::from_millis(150)).await;
        Response::text("at last\n")
    }
    let router = Router::new().get("/items/{id}", item).unwrap();
    let router = router.get("/fails", fails).unwrap();
    let router = router.get("/slow", slow).unwrap();
    Justapi::new(router)
        .lanes(1)
        .metrics(metrics)
        .listen(Listen::Tcp(([127, 0, 0, 1], 0).into()))
        .bind()
        .and_then(Bound::start)
        .unwrap()
}

fn url_of(server: &Running) -> String {
    server.addresses()[0].to_string()
}

/// Answers each request by its number among all, from 1, and its path.
struct Other {
    address: SocketAddr,
    connections: Arc<AtomicU64>,
}

impl Other {
    fn new(answer: impl Fn(u64, &str) -> (u16, String) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicU64::new(0));
        let (counter, answer) = (Arc::clone(&connections), Arc::new(answer));
        let requests = Arc::new(AtomicU64::new(0));
        thread::spawn(move || {
            for stream in listener.incoming() {
                counter.fetch_add(1, Ordering::SeqCst);
                let (answer, requests) = (Arc::clone(&answer), Arc::clone(&requests));
                thread::spawn(move || serve(&stream.unwrap(), &requests, &*answer));
            }
        });
        Self {
            address,
            connections,
        }
    }

    fn scraper(&self) -> Scraper {
        let (target, _) = parse_target(&format!("http://{}", self.address), None).unwrap();
        Scraper::new(target, "/metrics".to_owned()).unwrap()
    }
}

fn serve(
    mut stream: &TcpStream,
    requests: &AtomicU64,
    answer: &(dyn Fn(u64, &str) -> (u16, String) + Send + Sync),
) {
    let mut lines = BufReader::new(stream).lines();
    while let Some(Ok(line)) = lines.next() {
        let path = line.split(' ').nth(1).unwrap().to_owned();
        while lines
            .next()
            .is_some_and(|line| line.is_ok_and(|line| !line.is_empty()))
        {}
        let (status, body) = answer(requests.fetch_add(1, Ordering::SeqCst) + 1, &path);
        // Status 0 hangs up.
        let text = format!(
            "HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        if status == 0 || stream.write_all(text.as_bytes()).is_err() {
            return;
        }
    }
}

fn plan(target: Target, path: &str) -> LoadPlan {
    let request = RequestTemplate::serialise(&target, "GET", path, &[], b"", true).unwrap();
    LoadPlan {
        connections: 4,
        stop: Stop::Duration(Duration::from_millis(800)),
        ..LoadPlan::new(target, vec![request])
    }
}

/// Profiles one path of a server for a moment.
fn profile(url: &str, path: &str, mut subject: Subject) -> RouteProfile {
    let (target, _) = parse_target(url, None).unwrap();
    let plan = plan(target, path);
    let probe = probe(&plan).unwrap();
    let warm_up = Duration::from_millis(100);
    let never = AtomicBool::new(false);
    let measured = measure(&plan, warm_up, &mut subject, &never, &|_| {}).unwrap();
    RouteProfile::new(path.to_owned(), probe, measured)
}

fn looking_at(url: &str, path: &str) -> Subject {
    let (target, _) = parse_target(url, None).unwrap();
    Subject {
        metrics: Ok(Scraper::new(target, path.to_owned()).unwrap()),
        process: Ok(std::process::id()),
    }
}

fn blind() -> Subject {
    Subject {
        metrics: Err("nobody looked".to_owned()),
        process: Err("nobody knows".to_owned()),
    }
}

fn report_of(routes: Vec<RouteProfile>) -> ProfileReport {
    let request = RequestSummary {
        method: "GET".to_owned(),
        headers: Vec::new(),
        body_bytes: 0,
        duration_ns: 800_000_000,
        warm_up_ns: 100_000_000,
        connections: 4,
        keep_alive: true,
        rate: None,
    };
    let url = "http://127.0.0.1:1".to_owned();
    let mut report = ProfileReport::new(url, None, request, Machine::read());
    report.routes = routes;
    report
}

#[test]
fn what_the_warm_up_left_unanswered_is_not_counted() {
    let server = justapi(MetricsMount::Path("/metrics".into()));
    let url = url_of(&server);
    // The warm-up ends in the midst of its first requests.
    let profile = profile(&url, "/slow", looking_at(&url, "/metrics"));
    let responses = profile.load.outcomes.responses();
    let counted = profile.route().unwrap().requests;
    let connections = profile.load.connections as u64;
    assert!(
        (responses..=responses + connections).contains(&counted),
        "{responses} {counted}"
    );
    server.drain();
}

#[test]
fn the_counters_of_our_server_agree_with_the_client() {
    for metrics in [
        MetricsMount::Path("/metrics".into()),
        MetricsMount::Address(([127, 0, 0, 1], 0).into()),
    ] {
        let server = justapi(metrics);
        let url = url_of(&server);
        let place = server
            .metrics_address()
            .map_or_else(|| url.clone(), |address| format!("http://{address}"));
        let profile = profile(&url, "/items/7?q=1", looking_at(&place, "/metrics"));
        let server_side = profile.server.as_ref().unwrap();
        assert_eq!(server_side.routes.len(), 1, "{server_side:?}");
        let route = profile.route().unwrap();
        assert_eq!(
            (route.method.as_str(), route.route.as_str()),
            ("GET", "/items/{id}")
        );
        let responses = profile.load.outcomes.responses();
        assert!(responses > 0);
        // What was in flight at the stop may have been answered to nobody.
        let connections = profile.load.connections as u64;
        assert!(
            (responses..=responses + connections).contains(&route.requests),
            "{responses} {}",
            route.requests
        );
        assert_eq!(route.statuses["200"], route.requests);
        let time = route.time.as_ref().unwrap();
        assert_eq!(time.count, route.requests);
        assert!(
            time.p99_at_most_ns
                .is_none_or(|bound| bound >= time.p50_at_most_ns.unwrap())
        );
        let (inside, elsewhere) = (profile.in_server_mean_ns, profile.elsewhere_mean_ns);
        let sum = inside.unwrap() + elsewhere.unwrap();
        let client = profile.load.latency.mean_ns.unwrap();
        assert!((sum / client - 1.0).abs() < 0.01, "{sum} {client}");
        let in_flight = server_side.in_flight.unwrap();
        assert!(
            in_flight.looks >= 1 && in_flight.max <= connections,
            "{in_flight:?}"
        );
        // An answer that was on its way at the stop may not have been read.
        let sent = server_side.sent_bytes.unwrap();
        let read = profile.load.bytes_read;
        assert!(
            sent >= read && sent < read + read / 10 + 100_000,
            "{sent} {read}"
        );
        assert!(server_side.received_bytes.unwrap() > responses * 20);
        let cost = profile.process.as_ref().unwrap();
        assert!(cost.cpu_ns_per_response.unwrap() > 0.0);
        assert!(cost.rss_bytes.unwrap() > 1 << 20);
        assert!(
            profile
                .notes
                .iter()
                .all(|note| !note.contains("somebody else")),
            "{profile:?}"
        );
        server.drain();
    }
}

#[test]
fn failures_are_no_speed() {
    let server = justapi(MetricsMount::Path("/metrics".into()));
    let url = url_of(&server);
    let profile = profile(&url, "/fails", looking_at(&url, "/metrics"));
    assert_eq!(profile.load.rate, Some(0.0));
    assert_eq!(profile.load.latency.max_ns, None);
    let route = profile.route().unwrap();
    assert_eq!(route.statuses["500"], route.requests);
    assert!(
        profile.notes.iter().any(|note| note.contains("failed")),
        "{profile:?}"
    );
    let text = profile.render_text();
    assert!(
        text.contains("http_5xx=") && text.contains("500="),
        "{text}"
    );
    server.drain();
}

#[test]
fn what_was_not_seen_is_null_with_its_reason() {
    let server = justapi(MetricsMount::Off);
    let url = url_of(&server);
    let unseen = profile(&url, "/items/1", blind());
    let json = serde_json::to_value(report_of(vec![unseen.clone()])).unwrap();
    assert_eq!(json["v"], 1);
    let route = &json["routes"][0];
    for missing in [
        "server",
        "process",
        "in_server_mean_ns",
        "elsewhere_mean_ns",
    ] {
        assert_eq!(route[missing], Value::Null, "{missing}");
    }
    assert_eq!(route["server_missing"], "nobody looked");
    assert_eq!(route["process_missing"], "nobody knows");
    let text = unseen.render_text();
    assert!(
        text.contains("server     not seen: nobody looked"),
        "{text}"
    );
    assert!(text.contains("process    not seen: nobody knows"), "{text}");
    // A server without metrics answers 404.
    let refused = profile(&url, "/items/1", looking_at(&url, "/metrics"));
    assert_eq!(
        refused.server_missing.as_deref(),
        Some("/metrics: status 404")
    );
    server.drain();
}

#[test]
fn pages_that_are_not_ours_are_named() {
    let check = |page: &'static str, expected: &str| {
        let server = Other::new(move |_, path| match path {
            "/metrics" => (200, page.to_owned()),
            _ => (200, "ok".to_owned()),
        });
        let url = format!("http://{}", server.address);
        let profile = profile(&url, "/", looking_at(&url, "/metrics"));
        let reason = profile.server_missing.unwrap();
        assert!(reason.contains(expected), "{reason}");
    };
    check("<!doctype html><p>hello", "not Prometheus text, line 1");
    check("http_requests_total 5\n", "no metrics of justapi");
}

#[test]
fn looks_stay_on_one_connection() {
    let server = Other::new(|number, _| (200, format!("up {number}\n")));
    let mut scraper = server.scraper();
    for expected in 1..=5 {
        let page = scraper.scrape(Duration::from_secs(5)).unwrap();
        assert_eq!(page.value("up"), Some(f64::from(expected)));
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
}

#[test]
fn a_connection_that_was_closed_is_made_again() {
    let server = Other::new(|number, _| match number {
        2 => (0, String::new()),
        _ => (200, format!("up {number}\n")),
    });
    let mut scraper = server.scraper();
    let second = [(); 2].map(|()| scraper.scrape(Duration::from_secs(5)).unwrap().value("up"));
    assert_eq!(second, [Some(1.0), Some(3.0)]);
    assert_eq!(server.connections.load(Ordering::SeqCst), 2);
}

#[test]
fn a_page_that_does_not_come_is_not_waited_for() {
    let server = Other::new(|number, _| {
        if number == 1 {
            thread::sleep(Duration::from_secs(1));
        }
        (200, format!("up {number}\n"))
    });
    let mut scraper = server.scraper();
    let failure = scraper.scrape(Duration::from_millis(50)).unwrap_err();
    assert!(failure.to_string().contains("timed out"), "{failure}");
    // The late answer is not taken for the next one.
    let page = scraper.scrape(Duration::from_secs(5)).unwrap();
    assert_eq!(page.value("up"), Some(2.0));
}

#[test]
fn a_stopped_profile_says_so() {
    let server = justapi(MetricsMount::Path("/metrics".into()));
    let url = url_of(&server);
    let (target, _) = parse_target(&url, None).unwrap();
    let plan = LoadPlan {
        stop: Stop::Duration(Duration::from_mins(1)),
        ..plan(target, "/items/1")
    };
    // In the warm-up nothing was measured yet.
    let stopped = AtomicBool::new(true);
    let minute = Duration::from_mins(1);
    let mut subject = looking_at(&url, "/metrics");
    let result = measure(&plan, minute, &mut subject, &stopped, &|_| {});
    assert!(
        matches!(result, Err(crate::Error::Interrupted)),
        "{result:?}"
    );
    // Later there is a report.
    let stop = AtomicBool::new(false);
    let watch = |progress: &crate::Progress| {
        if progress.attempts > 0 {
            stop.store(true, Ordering::SeqCst);
        }
    };
    let measured = measure(&plan, Duration::ZERO, &mut subject, &stop, &watch).unwrap();
    assert!(measured.load().interrupted);
    let probe = probe(&plan).unwrap();
    let profile = RouteProfile::new("/items/1".to_owned(), probe, measured);
    assert!(profile.server.is_some(), "{profile:?}");
    server.drain();
}

#[test]
fn somebody_else_is_noticed() {
    let server = justapi(MetricsMount::Path("/metrics".into()));
    let url = url_of(&server);
    let address = url.strip_prefix("http://").unwrap().to_owned();
    let ended = Arc::new(AtomicBool::new(false));
    let until = Arc::clone(&ended);
    let other = thread::spawn(move || {
        let (target, _) = parse_target(&format!("http://{address}"), None).unwrap();
        let plan = LoadPlan {
            stop: Stop::Duration(Duration::from_mins(1)),
            ..plan(target, "/fails")
        };
        drop(crate::run_load(&plan, &until));
    });
    let profile = profile(&url, "/items/1", looking_at(&url, "/metrics"));
    ended.store(true, Ordering::SeqCst);
    other.join().unwrap();
    let note = profile
        .notes
        .iter()
        .find(|note| note.contains("somebody else"));
    assert!(note.is_some(), "{:?}", profile.notes);
    server.drain();
}

#[test]
fn the_page_needs_nothing_else_and_shows_every_side() {
    let server = justapi(MetricsMount::Path("/metrics".into()));
    let url = url_of(&server);
    let seen = profile(&url, "/items/1", looking_at(&url, "/metrics"));
    let mut unseen = profile(&url, "/fails", blind());
    unseen.path = "/fails?<script>=1".to_owned();
    server.drain();
    let mut report = report_of(vec![seen.clone(), unseen]);
    report.interrupted = true;
    report.server_lost = Some("it <ended>".to_owned());
    report.not_measured = vec!["/rest".to_owned()];
    let html = page(&report);
    for text in [
        "default-src 'none'",
        "<code>/items/{id}</code>",
        "Latency of right answers",
        "CPU time of the server for a response",
        "Where the mean time of a request goes",
        "Time in the server",
        "The server's counters were not seen: nobody looked",
        "http_5xx",
        "Interrupted",
        "it &lt;ended&gt;",
        "Not measured: /rest",
        "/fails?&lt;script&gt;=1",
    ] {
        assert!(html.contains(text), "no {text} in {html}");
    }
    for (from_outside, what) in [
        ("<script", "a script"),
        ("http:", "a link"),
        ("src=", "a source"),
    ] {
        let rest = html
            .replace("http://127.0.0.1:1", "")
            .replace("http://www.w3.org/2000/svg", "");
        assert!(!rest.contains(from_outside), "{what} in {html}");
    }
    assert_eq!(html, page(&report), "a function of the report");
    // The same numbers in every form.
    let text = seen.render_text();
    let count = seen.load.latency.count.to_string();
    assert!(text.contains(&format!("n={count}")) && html.contains(&count));
}
