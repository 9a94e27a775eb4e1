//! A profile as one HTML page that needs nothing else: no script, nothing from another host.
//!
//! A function of the report; whatever came from a server or a command line is escaped.

use std::fmt::Write as _;

use super::counters::{HandlerTime, RouteCounters};
use super::report::{ProfileReport, RouteProfile};
use super::text::{nanoseconds, size};
use crate::chart::{Bar, BarChart, Curve, CurveChart, Point, Scale, escape};
use crate::load::{LatencySummary, show_time};

const STYLE: &str = "\
:root{color-scheme:light;font:15px/1.5 system-ui,'Segoe UI','DejaVu Sans',sans-serif;color:#1f2328}
body{max-width:1000px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.6rem}h2{margin-top:2.5rem;border-bottom:1px solid #d9dce0;padding-bottom:.3rem;overflow-wrap:anywhere}
table{border-collapse:collapse;font-size:.87rem;margin:.8rem 0}
th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid #e6e8eb;vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.faint{color:#6b6f76;font-size:.87rem}.warn{border-left:4px solid #a4262c;padding-left:.8rem}
svg{max-width:100%;height:auto;display:block;margin:.6rem 0;border:1px solid #e6e8eb}
.wide{overflow-x:auto}code{font-size:.87em;overflow-wrap:anywhere}
";

/// Longest path in a legend, in characters.
const MAX_LABEL: usize = 24;

/// Renders the page of a profile.
pub fn page(report: &ProfileReport) -> String {
    let mut out = String::from(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src \
         'unsafe-inline'\">\n<title>justapi profile</title>\n<style>\n",
    );
    out.push_str(STYLE);
    out.push_str("</style>\n</head>\n<body>\n");
    head(&mut out, report);
    if !report.routes.is_empty() {
        overview(&mut out, report);
    }
    for route in &report.routes {
        route_part(&mut out, report, route);
    }
    out.push_str(LIMITS);
    out.push_str("</body>\n</html>\n");
    out
}

/// What a reader should know before a number is quoted.
const LIMITS: &str = "<h2>What this does not show</h2>\n<p class=\"faint\">Client and server share \
    a machine unless the URL is of another one. Time in the server is from the end of a request's \
    head to the head of its answer; its percentiles are upper bounds of the server's buckets. \
    Resident memory counts what processes share once for each of them.</p>\n";

fn head(out: &mut String, report: &ProfileReport) {
    let request = &report.request;
    let what = report.application.as_ref().map_or_else(
        || report.url.clone(),
        |application| format!("{} on {}", application.name, report.url),
    );
    let _ = write!(
        out,
        "<h1>justapi profile</h1>\n<p><code>{}</code></p>\n<p class=\"faint\">{} with {} bytes of \
         body, {} connections{}, {}, {} for each route after {} of warm-up; justapi {}; {}, {} \
         CPUs, kernel {}, load before {}</p>\n",
        escape(&what),
        escape(&request.method),
        request.body_bytes,
        request.connections,
        if request.keep_alive {
            ""
        } else {
            " used once each"
        },
        request.rate.map_or_else(
            || "closed loop".to_owned(),
            |rate| format!("{rate} requests a second offered")
        ),
        show_time(Some(request.duration_ns)),
        show_time(Some(request.warm_up_ns)),
        report.justapi,
        escape(report.machine.text("cpu_model")),
        escape(report.machine.text("cpus")),
        escape(report.machine.text("kernel")),
        escape(report.machine.text("load_average_before")),
    );
    if report.interrupted {
        out.push_str("<p class=\"warn\">Interrupted: this is what was measured until then.</p>\n");
    }
    if let Some(lost) = &report.server_lost {
        let _ = writeln!(
            out,
            "<p class=\"warn\">The server was lost: {}</p>",
            escape(lost)
        );
    }
    if !report.not_measured.is_empty() {
        let paths = report.not_measured.join(", ");
        let _ = writeln!(
            out,
            "<p class=\"warn\">Not measured: {}</p>",
            escape(&paths)
        );
    }
}

fn overview(out: &mut String, report: &ProfileReport) {
    out.push_str(
        "<h2>Routes</h2>\n<div class=\"wide\"><table><tr><th>path</th><th>route</th>\
         <th class=\"n\">ok/s</th><th class=\"n\">p50</th><th class=\"n\">p99</th>\
         <th class=\"n\">in the server</th><th class=\"n\">elsewhere</th>\
         <th class=\"n\">CPU a response</th><th class=\"n\">resident</th>\
         <th class=\"n\">failed</th></tr>\n",
    );
    for route in &report.routes {
        let latency = route.load.shown_latency();
        let name = (route.route()).map_or_else(|| "n/a".to_owned(), |own| own.route.clone());
        let cost = route.process.as_ref();
        let rate = (route.load.rate).map_or_else(|| "n/a".to_owned(), |rate| format!("{rate:.1}"));
        let _ = write!(
            out,
            "<tr><td><code>{}</code></td><td><code>{}</code></td>",
            escape(&route.path),
            escape(&name)
        );
        for cell in [
            rate,
            show_time(latency.p50_ns),
            show_time(latency.p99_ns),
            nanoseconds(route.in_server_mean_ns),
            nanoseconds(route.elsewhere_mean_ns),
            nanoseconds(cost.and_then(|cost| cost.cpu_ns_per_response)),
            size(cost.and_then(|cost| cost.rss_bytes)),
            route.load.errors().to_string(),
        ] {
            let _ = write!(out, "<td class=\"n\">{cell}</td>");
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table></div>\n");
    if let Some(chart) = latencies(report) {
        out.push_str(&chart.to_svg());
    }
    if let Some(chart) = cpu_bars(report) {
        out.push_str(&chart.to_svg());
    }
}

/// The latency of every route over its percentiles.
fn latencies(report: &ProfileReport) -> Option<CurveChart> {
    let names = ["min", "p50", "p90", "p95", "p99", "p99.9", "max"];
    let curves: Vec<Curve> = (report.routes.iter())
        .map(|route| {
            let times = route.load.shown_latency().ordered();
            let points = times.iter().enumerate().filter_map(|(index, time)| {
                let y = (*time)? as f64 / 1e3;
                Some(Point {
                    x: index as f64,
                    y,
                    low: y,
                    high: y,
                })
            });
            Curve {
                label: short(&route.path),
                points: points.collect(),
            }
        })
        .filter(|curve| !curve.points.is_empty())
        .collect();
    if curves.is_empty() {
        return None;
    }
    Some(CurveChart {
        title: "Latency of right answers".to_owned(),
        subtitle: "µs on a logarithmic scale, over percentiles; less is better".to_owned(),
        x: Scale::Names(names.map(str::to_owned).into()),
        y: Scale::Logarithmic,
        curves,
        has_diagonal: false,
        captions: Vec::new(),
    })
}

/// CPU time of a response, where there are routes to compare.
fn cpu_bars(report: &ProfileReport) -> Option<BarChart> {
    if report.routes.len() < 2 {
        return None;
    }
    let bars: Vec<Bar> = (report.routes.iter())
        .map(|route| {
            let cost = route.process.as_ref();
            let cpu = cost.and_then(|cost| cost.cpu_ns_per_response);
            bar(
                short(&route.path),
                cpu.map(|cpu| cpu / 1e3),
                nanoseconds(cpu),
            )
        })
        .collect();
    (bars.iter().any(|bar| bar.values.is_some())).then(|| BarChart {
        title: "CPU time of the server for a response".to_owned(),
        subtitle: "µs, user and system, of the whole process tree; less is better".to_owned(),
        bars,
        captions: Vec::new(),
    })
}

fn route_part(out: &mut String, report: &ProfileReport, route: &RouteProfile) {
    let _ = writeln!(
        out,
        "<h2>{} {}</h2>\n<p class=\"faint\">Asked once before: {}</p>",
        escape(&report.request.method),
        escape(&route.path),
        escape(&route.probe.describe())
    );
    for note in &route.notes {
        let _ = writeln!(out, "<p class=\"warn\">{}</p>", escape(note));
    }
    client_table(out, route);
    match &route.server {
        Some(server) => {
            for own in &server.routes {
                server_table(out, own);
            }
            if let Some(chart) = split(route) {
                out.push_str(&chart.to_svg());
            }
            if let Some(time) = server.routes.first().and_then(|own| own.time.as_ref()) {
                out.push_str(&times(time).to_svg());
            }
            let _ = writeln!(out, "<table><tr><th>server</th><th class=\"n\"></th></tr>");
            if let Some(in_flight) = &server.in_flight {
                let text = format!("{:.1} ({} looks)", in_flight.mean, in_flight.looks);
                row(out, "in flight, mean", &text);
                row(out, "in flight, most", &in_flight.max.to_string());
            }
            row(out, "received", &size(server.received_bytes));
            row(out, "sent", &size(server.sent_bytes));
            for (series, count) in &server.counters {
                row(out, series, &format!("+{count}"));
            }
            out.push_str("</table>\n");
        }
        None => missing(out, "server's counters", route.server_missing.as_deref()),
    }
    match &route.process {
        Some(cost) => {
            out.push_str("<table><tr><th>processes</th><th class=\"n\"></th></tr>\n");
            let program = cost.program.as_deref().unwrap_or("n/a");
            row(out, "program", &format!("{program} (pid {})", cost.pid));
            row(out, "processes", &cost.num_processes.to_string());
            row(
                out,
                "CPU a response",
                &nanoseconds(cost.cpu_ns_per_response),
            );
            let busy = cost.busy_cpus;
            let busy = busy.map_or_else(|| "n/a".to_owned(), |cpus| format!("{cpus:.2}"));
            row(out, "CPUs busy", &busy);
            row(out, "resident", &size(cost.rss_bytes));
            row(out, "resident before", &size(cost.rss_before_bytes));
            row(out, "resident at most", &size(cost.peak_rss_bytes));
            out.push_str("</table>\n");
        }
        None => missing(out, "processes", route.process_missing.as_deref()),
    }
}

fn client_table(out: &mut String, route: &RouteProfile) {
    let load = &route.load;
    out.push_str("<div class=\"wide\"><table><tr><th>client</th>");
    for name in [
        "count", "mean", "min", "p50", "p90", "p95", "p99", "p99.9", "max",
    ] {
        let _ = write!(out, "<th class=\"n\">{name}</th>");
    }
    out.push_str("</tr>\n");
    let mut times = |name: &str, summary: &LatencySummary| {
        let _ = write!(
            out,
            "<tr><td>{name}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>",
            summary.count,
            nanoseconds(summary.mean_ns)
        );
        for value in summary.ordered() {
            let _ = write!(out, "<td class=\"n\">{}</td>", show_time(value));
        }
        out.push_str("</tr>\n");
    };
    times("latency", load.shown_latency());
    if load.latency_intended.is_some() {
        times("from send", &load.latency);
    }
    if load.latency_error.count > 0 {
        times("errors", &load.latency_error);
    }
    out.push_str("</table></div>\n<table><tr><th>outcome</th><th class=\"n\">attempts</th></tr>\n");
    for (outcome, count) in load.outcomes.iter().filter(|(_, count)| *count > 0) {
        row(out, outcome.name(), &count.to_string());
    }
    row(out, "all", &load.attempts.to_string());
    row(out, "bytes read", &size(Some(load.bytes_read)));
    out.push_str("</table>\n");
}

fn server_table(out: &mut String, own: &RouteCounters) {
    let _ = writeln!(
        out,
        "<table><tr><th>server: {} <code>{}</code></th><th class=\"n\"></th></tr>",
        escape(&own.method),
        escape(&own.route)
    );
    row(out, "requests", &own.requests.to_string());
    for (status, count) in &own.statuses {
        row(out, &format!("status {status}"), &count.to_string());
    }
    if let Some(time) = &own.time {
        row(out, "mean time", &nanoseconds(time.mean_ns));
        for (name, at_most) in [
            ("half within", time.p50_at_most_ns),
            ("90 % within", time.p90_at_most_ns),
            ("99 % within", time.p99_at_most_ns),
        ] {
            row(out, name, &show_time(at_most));
        }
    }
    out.push_str("</table>\n");
}

/// Where the mean time of a request goes.
fn split(route: &RouteProfile) -> Option<BarChart> {
    let server = route.in_server_mean_ns?;
    let elsewhere = route.elsewhere_mean_ns;
    Some(BarChart {
        title: "Where the mean time of a request goes".to_owned(),
        subtitle: "µs".to_owned(),
        bars: vec![
            bar(
                "in the server".to_owned(),
                Some(server / 1e3),
                nanoseconds(Some(server)),
            ),
            bar(
                "elsewhere".to_owned(),
                elsewhere.map(|time| time / 1e3),
                nanoseconds(elsewhere),
            ),
        ],
        captions: vec!["elsewhere: queues, kernel, network, client".to_owned()],
    })
}

/// The server's own histogram, without the empty ends.
fn times(time: &HandlerTime) -> BarChart {
    let is_used = |bucket: &super::TimeBucket| bucket.count > 0;
    let first = time.buckets.iter().position(is_used).unwrap_or(0);
    let last = time.buckets.iter().rposition(is_used).unwrap_or(0);
    let bars = time
        .buckets
        .iter()
        .take(last + 1)
        .skip(first)
        .map(|bucket| {
            let label = bucket.at_most_ns.map_or_else(
                || "more".to_owned(),
                |bound| format!("≤ {}", show_time(Some(bound))),
            );
            let count = bucket.count as f64;
            let share = 100.0 * count / time.count.max(1) as f64;
            bar(
                label,
                Some(count),
                format!("{} ({share:.1} %)", bucket.count),
            )
        });
    BarChart {
        title: "Time in the server".to_owned(),
        subtitle: "requests by the buckets of the server's histogram".to_owned(),
        bars: bars.collect(),
        captions: Vec::new(),
    }
}

fn bar(label: String, value: Option<f64>, text: String) -> Bar {
    Bar {
        label,
        values: value.map(|value| (value, value, value)),
        text,
        is_subject: true,
        counts: true,
    }
}

fn row(out: &mut String, name: &str, value: &str) {
    let _ = writeln!(
        out,
        "<tr><td>{}</td><td class=\"n\">{}</td></tr>",
        escape(name),
        escape(value)
    );
}

fn missing(out: &mut String, what: &str, reason: Option<&str>) {
    let _ = writeln!(
        out,
        "<p class=\"faint\">The {what} were not seen: {}</p>",
        escape(reason.unwrap_or("n/a"))
    );
}

/// A path that fits beside a chart.
fn short(path: &str) -> String {
    if path.chars().count() <= MAX_LABEL {
        return path.to_owned();
    }
    path.chars().take(MAX_LABEL - 1).chain(['…']).collect()
}
