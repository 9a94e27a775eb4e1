//! `justapi serve`: from the configuration to a running server and its end.
//!
//! Guarantee: a graceful stop exits 0; a start that fails says which setting
//! is at fault.

pub(super) mod failure;
mod model;
pub(super) mod owner;
pub(super) mod pid_file;
pub(super) mod plan;
pub(super) mod python;
mod server;

use std::path::Path;

use serde_json::json;

use justapi_core::{Bound, Error, Router, Server, ServerEvent, StopSignals};

pub(crate) use self::owner::OWNER;
use self::pid_file::PidFile;
pub(crate) use self::plan::{Plan, conflict};
pub(crate) use self::python::{Interpreter, check as check_python, find as find_python};
use super::target::{self, Meant};
use crate::args::Serve;
use crate::config::{Config, Origin, Warning, show_time};
use crate::descriptors;
use crate::error::{CliError, Code, plain};
use crate::ui::{Ui, arrow, faint, good, heading, link};

/// Exit status of a process that a signal ended is this plus its number.
pub(crate) const SIGNAL_BASE: u8 = 128;

pub(crate) fn serve(
    ui: &Ui,
    arguments: &Serve,
    explicit: Option<&Path>,
    verbose: u8,
) -> Result<u8, CliError> {
    descriptors::raise_limit();
    let mut config = Config::load(explicit, &arguments.settings.given)?;
    let is_json_log = config.value("log.format").text() == Some("json");
    let ui = ui.clone().with_json_log(is_json_log);
    for warning in config.warnings() {
        ui.warning(warning);
    }
    let plan = Plan::new(&config)?;
    if let Some(warning) = too_many_connections(&plan) {
        ui.warning(&warning);
    }
    if verbose > 0 {
        say_settings(&ui, &config)?;
    }
    if let Some(id) = model::asked_for(&config, arguments.app.as_deref())? {
        return model::serve(&ui, &config, &plan, &id, arguments.check);
    }
    let meant = target::meant(&mut config, arguments.app.as_deref())?;
    if arguments.check {
        let has_app = matches!(meant, Meant::Application(_));
        if has_app {
            python::check(&config)?;
        }
        plan.check_files(has_app)?;
        let human = format!("configuration is {}\n", good("valid"));
        ui.event("checked", json!({"ok": true}), &human)?;
        return Ok(0);
    }
    let _reaper = owner::end_with_owner()?;
    match meant {
        Meant::Application(app) => python::serve(&ui, &config, &plan, &app),
        Meant::Server(why) => {
            // A log of JSON has nothing else in it.
            if let Some(why) = why.filter(|_| plan.has_demo() && !is_json_log) {
                ui.note(&format!("{}\n", faint(&demo_note(&why))));
            }
            run(
                &ui,
                &plan,
                &plan.served(),
                || plan.router(),
                |server| server,
            )
        }
    }
}

/// Why it is the demo that is served, and the way out.
fn demo_note(why: &str) -> String {
    format!(
        "{why}, so this is the demo; `justapi new` makes an application, `justapi serve main:app` \
         serves one"
    )
}

/// Serves routes until a stop signal; the exit status says how it ended.
///
/// `what` they are in a word or two, and `finish` adds to the server what belongs to them.
fn run(
    ui: &Ui,
    plan: &Plan,
    what: &str,
    router: impl FnOnce() -> Result<Router, Error>,
    finish: impl FnOnce(Server) -> Server,
) -> Result<u8, CliError> {
    let failed = |error| failure::explain(&error, plan);
    let listens = plan.listens()?;
    let observer_ui = ui.clone();
    // Before anything listens, so that no signal after that is lost.
    let signals = StopSignals::watch().map_err(failed)?;
    let bound = router()
        .and_then(|router| plan.server(router, listens))
        .and_then(|server| {
            finish(server)
                .observer(move |event| say_event(&observer_ui, event))
                .bind()
        })
        .map_err(failed)?;
    let _pid_file = plan.pid_file.as_deref().map(PidFile::write).transpose()?;
    say_listening(ui, plan, what, &bound)?;
    let report = bound.run(signals).map_err(failed)?;
    let Some(signal) = report.signal else {
        return Err(CliError::new(
            Code::ServerStopped,
            "the server ended without a stop signal",
        ));
    };
    let (how, status) = if report.finished {
        ("every request finished".to_owned(), 0)
    } else {
        let grace = show_time(plan.limits().grace);
        let status = SIGNAL_BASE + u8::try_from(signal).unwrap_or_default();
        (
            format!("requests were cut off, the grace time is {grace}"),
            status,
        )
    };
    let name = signal_name(signal);
    ui.event(
        "stopped",
        json!({"signal": name, "finished": report.finished}),
        &format!("stopped by {name}, {how}\n"),
    )?;
    Ok(status)
}

fn too_many_connections(plan: &Plan) -> Option<Warning> {
    let asked = plan.limits().max_connections as u64;
    let possible = descriptors::max_connections().filter(|possible| *possible < asked)?;
    Some(Warning {
        code: Code::DescriptorLimit,
        message: format!(
            "{asked} connections are allowed, but the descriptor limit is enough for {possible}"
        ),
        location: None,
    })
}

/// Says what is listened on, with the addresses as they were really bound.
fn say_listening(ui: &Ui, plan: &Plan, what: &str, bound: &Bound) -> Result<(), CliError> {
    let urls: Vec<String> = bound.addresses().iter().map(ToString::to_string).collect();
    let lanes = plan.lanes;
    let plural = if lanes == 1 { "lane" } else { "lanes" };
    let metrics = plan
        .metrics_place(bound)
        .map_or_else(String::new, |place| faint(&format!("     metrics {place}")));
    let mut lines = vec![format!(
        "{}  serve   {}   {lanes} {plural}   {}",
        heading(&format!("justapi {}", env!("CARGO_PKG_VERSION"))),
        what,
        faint(&format!("pid {}", std::process::id()))
    )];
    for url in &urls {
        lines.push(format!("  {} {}", arrow(), link(url)));
    }
    lines[1..]
        .iter_mut()
        .take(1)
        .for_each(|line| *line += &metrics);
    let human = lines.join("\n") + "\n";
    ui.event(
        "listening",
        json!({
            "url": urls.first(),
            "urls": urls,
            "lanes": lanes,
            "metrics": plan.metrics_place(bound),
            "pid": std::process::id(),
        }),
        &human,
    )
}

/// Says the settings that are not defaults.
fn say_settings(ui: &Ui, config: &Config) -> Result<(), CliError> {
    for (setting, value, origin) in config.entries() {
        if *origin == Origin::Default {
            continue;
        }
        let shown = setting.kind.show(value);
        ui.event(
            "setting",
            json!({"key": setting.key, "value": shown, "origin": origin.to_string()}),
            &format!(
                "{} = {shown}   {}\n",
                setting.key,
                faint(&origin.to_string())
            ),
        )?;
    }
    Ok(())
}

/// Says what the server wants its operator to know.
fn say_event(ui: &Ui, event: &ServerEvent<'_>) {
    let text = match event {
        ServerEvent::AcceptFailed { error } => {
            format!("cannot accept connections: {}", plain(error))
        }
        other => format!("{other:?}"),
    };
    ui.warning(&Warning {
        code: Code::AcceptFailed,
        message: text,
        location: None,
    });
}

/// The name of a signal that stops a server.
pub(crate) fn signal_name(signal: i32) -> &'static str {
    match signal {
        signal_hook::consts::SIGINT => "SIGINT",
        signal_hook::consts::SIGTERM => "SIGTERM",
        _ => "another signal",
    }
}
