//! `justapi serve APP`: a Python application in worker processes.
//!
//! Guarantee: this process runs no Python; it listens, and hands the socket to
//! workers that it supervises.

mod backoff;
pub(in crate::commands) mod crew;
pub(in crate::commands) mod failures;
pub(in crate::commands) mod interpreter;
pub(in crate::commands) mod settings;
mod supervisor;
pub(in crate::commands) mod worker;

use std::fmt;
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use justapi_core::{BoundAddress, Listen, SharedListener};

pub(crate) use self::interpreter::{Interpreter, find};
use self::supervisor::{Orders, Supervisor, workers_json};
use self::worker::Event;
use super::pid_file::PidFile;
use super::plan::Plan;
use super::{SIGNAL_BASE, failure, signal_name};
use crate::config::{Config, show_time};
use crate::error::{CliError, Code};
use crate::ui::{Ui, arrow, faint, heading, link};

/// Refuses settings that mean nothing to a Python application.
///
/// # Errors
/// As [`settings::check`].
pub(crate) fn check(config: &Config) -> Result<(), CliError> {
    settings::check(config)
}

/// Serves `app`, named as `module:attribute`, until a stop signal.
pub(super) fn serve(ui: &Ui, config: &Config, plan: &Plan, app: &str) -> Result<u8, CliError> {
    settings::check(config)?;
    // Said here, and not by a worker: an application has nothing to do with it.
    plan.check_files(true)?;
    let interpreter = interpreter::find(config.value("python.interpreter").text())?;
    let (events, inbox) = channel();
    watch_signals(&events)?;
    let listens = plan.listens()?;
    let (addresses, sockets, unlink) = bind(plan, &listens)?;
    let metrics = bind_metrics(plan)?;
    let metrics_place = metrics
        .as_ref()
        .map(|socket| format!("{}/metrics", socket.address));
    let _unlink = Unlink(unlink);
    let _pid_file = plan.pid_file.as_deref().map(PidFile::write).transpose()?;
    let version = interpreter.version.clone();
    let orders = Orders {
        settings: settings::of_worker(config, plan, app, &listens),
        interpreter,
        sockets,
        metrics,
        num_workers: settings::num_workers(config),
        start_timeout: config
            .value("python.start_timeout")
            .time()
            .unwrap_or_default(),
        grace: plan.limits().grace,
        max_resident_bytes: config.value("python.worker_max_rss").number(),
    };
    let mut supervisor = Supervisor::new(ui, orders, events, inbox);
    let report = match supervisor.start()? {
        Some(report) => report,
        None => {
            let workers = Workers {
                pids: supervisor.pids(),
                num_lanes: settings::num_lanes(config),
            };
            let metrics = metrics_place.as_deref();
            say_listening(ui, app, &version, &addresses, metrics, &workers)?;
            supervisor.run()?
        }
    };
    let (how, status) = if report.finished {
        ("every request finished".to_owned(), 0)
    } else {
        let grace = show_time(plan.limits().grace);
        let status = SIGNAL_BASE + u8::try_from(report.signal).unwrap_or_default();
        (
            format!("requests were cut off, the grace time is {grace}"),
            status,
        )
    };
    let name = signal_name(report.signal);
    ui.event(
        "stopped",
        json!({"signal": name, "finished": report.finished}),
        &format!("stopped by {name}, {how}\n"),
    )?;
    Ok(status)
}

type Bound = (Vec<BoundAddress>, Vec<SharedListener>, Vec<PathBuf>);

fn bind(plan: &Plan, listens: &[Listen]) -> Result<Bound, CliError> {
    let mut bound: Bound = Bound::default();
    for listen in listens {
        let shared = SharedListener::bind(listen, plan.backlog, plan.has_tls())
            .map_err(|error| failure::explain(&error, plan))?;
        for listener in shared {
            bound.0.push(listener.address.clone());
            bound.2.extend(listener.unlink.clone());
            bound.1.push(listener);
        }
    }
    Ok(bound)
}

/// The socket of metrics with an address of their own.
pub(in crate::commands) fn bind_metrics(plan: &Plan) -> Result<Option<SharedListener>, CliError> {
    let Some(address) = plan.metrics_address() else {
        return Ok(None);
    };
    SharedListener::bind(&Listen::Tcp(address), plan.backlog, false)
        .map(|mut bound| bound.pop())
        .map_err(|error| failure::explain(&error, plan))
}

/// Socket files that go with the supervisor.
struct Unlink(Vec<PathBuf>);

impl Drop for Unlink {
    fn drop(&mut self) {
        for path in &self.0 {
            // Nothing is left to do about a file that does not go.
            drop(std::fs::remove_file(path));
        }
    }
}

/// Sends signals to the supervisor from a thread of their own.
pub(in crate::commands) fn watch_signals<E: From<Event> + Send + 'static>(
    events: &Sender<E>,
) -> Result<(), CliError> {
    let failed = |error: std::io::Error| {
        CliError::new(Code::SignalWatch, "cannot watch for signals").with_cause(&error)
    };
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT]).map_err(failed)?;
    let events = events.clone();
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for signal in signals.forever() {
                if events.send(Event::Signal(signal).into()).is_err() {
                    break;
                }
            }
        })
        .map_err(failed)?;
    Ok(())
}

/// Who serves, for the record of a start.
struct Workers {
    pids: Vec<i32>,
    /// Lanes of each.
    num_lanes: usize,
}

impl fmt::Display for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let num_workers = self.pids.len();
        let plural = if num_workers == 1 { "" } else { "s" };
        write!(f, "{num_workers} worker{plural}")?;
        match (self.num_lanes, num_workers) {
            (1, _) => Ok(()),
            (num_lanes, 1) => write!(f, " of {num_lanes} lanes"),
            (num_lanes, _) => write!(f, " of {num_lanes} lanes each"),
        }
    }
}

fn say_listening(
    ui: &Ui,
    app: &str,
    version: &str,
    addresses: &[BoundAddress],
    metrics: Option<&str>,
    workers: &Workers,
) -> Result<(), CliError> {
    let urls: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let mut lines = vec![format!(
        "{}  serve   {app}   {workers}   {}",
        heading(&format!("justapi {}", env!("CARGO_PKG_VERSION"))),
        faint(&format!("Python {version}   pid {}", std::process::id()))
    )];
    for url in &urls {
        lines.push(format!("  {} {}", arrow(), link(url)));
    }
    if let (Some(line), Some(place)) = (lines.get_mut(1), metrics) {
        *line += &faint(&format!("     metrics {place}"));
    }
    ui.event(
        "listening",
        json!({
            "url": urls.first(),
            "urls": urls,
            "metrics": metrics,
            "application": app,
            "python": version,
            "workers": workers_json(&workers.pids),
            "lanes": workers.num_lanes,
            "pid": std::process::id(),
        }),
        &(lines.join("\n") + "\n"),
    )
}
