//! `justapi serve APP`: a Python application in worker processes.
//!
//! Guarantee: this process runs no Python; it listens, and hands the socket to
//! workers that it supervises.

mod interpreter;
mod settings;
mod supervisor;
mod worker;

use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use justapi_core::{BoundAddress, Listen, SharedListener};

use self::supervisor::{Orders, Supervisor, workers_json};
use self::worker::Event;
use super::pid_file::PidFile;
use super::plan::Plan;
use super::{SIGNAL_BASE, failure, signal_name};
use crate::config::{Config, show_time};
use crate::error::{CliError, Code};
use crate::ui::{Ui, arrow, faint, heading, link};

/// Serves `app`, named as `module:attribute`, until a stop signal.
pub(super) fn serve(ui: &Ui, config: &Config, plan: &Plan, app: &str) -> Result<u8, CliError> {
    let asked = config.value("python.interpreter").text().map(PathBuf::from);
    let interpreter = interpreter::find(asked.as_deref())?;
    let (events, inbox) = channel();
    watch_signals(&events)?;
    let listens = plan.listens()?;
    let (addresses, sockets, unlink) = bind(plan, config, &listens)?;
    let _unlink = Unlink(unlink);
    let _pid_file = plan.pid_file.as_deref().map(PidFile::write).transpose()?;
    let version = interpreter.version.clone();
    let orders = Orders {
        settings: settings::of_worker(config, plan, app, &listens)?,
        interpreter,
        sockets,
        num_workers: settings::num_workers(config),
        start_timeout: config
            .value("python.start_timeout")
            .time()
            .unwrap_or_default(),
        grace: plan.limits.grace,
        max_resident_bytes: config.value("python.worker_max_rss").number(),
    };
    let mut supervisor = Supervisor::new(ui, orders, events, inbox);
    let report = match supervisor.start()? {
        Some(report) => report,
        None => {
            say_listening(ui, app, &version, &addresses, &supervisor.pids())?;
            supervisor.run()?
        }
    };
    let (how, status) = if report.finished {
        ("every request finished".to_owned(), 0)
    } else {
        let grace = show_time(plan.limits.grace);
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

fn bind(plan: &Plan, config: &Config, listens: &[Listen]) -> Result<Bound, CliError> {
    let backlog = config.value("server.backlog").number().unwrap_or(1024) as u32;
    let has_tls = config.value("server.tls.cert").text().is_some();
    let mut bound: Bound = Bound::default();
    for listen in listens {
        let shared = SharedListener::bind(listen, backlog, has_tls)
            .map_err(|error| failure::explain(&error, plan))?;
        for listener in shared {
            bound.0.push(listener.address.clone());
            bound.2.extend(listener.unlink.clone());
            bound.1.push(listener);
        }
    }
    Ok(bound)
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
fn watch_signals(events: &Sender<Event>) -> Result<(), CliError> {
    let failed = |error: std::io::Error| {
        CliError::new(Code::SignalWatch, "cannot watch for signals").with_cause(&error)
    };
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
    let events = events.clone();
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for signal in signals.forever() {
                if events.send(Event::Signal(signal)).is_err() {
                    break;
                }
            }
        })
        .map_err(failed)?;
    Ok(())
}

fn say_listening(
    ui: &Ui,
    app: &str,
    version: &str,
    addresses: &[BoundAddress],
    pids: &[i32],
) -> Result<(), CliError> {
    let urls: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let num_workers = pids.len();
    let plural = if num_workers == 1 {
        "worker"
    } else {
        "workers"
    };
    let mut lines = vec![format!(
        "{}  serve   {app}   {num_workers} {plural}   {}",
        heading(&format!("justapi {}", env!("CARGO_PKG_VERSION"))),
        faint(&format!("Python {version}   pid {}", std::process::id()))
    )];
    for url in &urls {
        lines.push(format!("  {} {}", arrow(), link(url)));
    }
    ui.event(
        "listening",
        json!({
            "url": urls.first(),
            "urls": urls,
            "application": app,
            "python": version,
            "workers": workers_json(pids),
            "pid": std::process::id(),
        }),
        &(lines.join("\n") + "\n"),
    )
}
