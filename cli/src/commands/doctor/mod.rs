//! `justapi doctor`: what on this machine and in this project keeps the server from doing well.
//!
//! Guarantee: nothing is changed; each line that is not right names what puts it right, the
//! temporary form first.

mod machine;
mod project;

use std::path::Path;

use serde_json::json;

use self::machine::Machine;
use super::checklist::{Item, Status, count, show};
use super::serve::Plan;
use super::target::{self, Meant};
use crate::application_args::Doctor;
use crate::config::Config;
use crate::error::CliError;
use crate::ui::Ui;

/// Exit status when a check has failed.
const FAILED: u8 = 1;

pub(crate) fn doctor(ui: &Ui, arguments: &Doctor, explicit: Option<&Path>) -> Result<u8, CliError> {
    let mut items = vec![project::program()];
    items.extend(project::shadow());
    // A configuration that is broken is a finding; the machine is then looked at by the defaults.
    let loaded = match load(explicit, arguments) {
        Ok(loaded) => {
            items.extend(project::settings(&loaded.config));
            Some(loaded)
        }
        Err(error) => {
            items.push(Item::of_error(Status::Fail, "settings", &error));
            None
        }
    };
    let config = loaded.as_ref().map(|loaded| &loaded.config);
    let app = loaded.as_ref().and_then(|loaded| loaded.app.as_deref());
    let plan = loaded.as_ref().map(|loaded| &loaded.plan);
    if let Some(config) = config {
        items.extend(project::python(config, app));
    }
    if let Some(unclear) = loaded.as_ref().and_then(|loaded| loaded.unclear.as_ref()) {
        items.push(Item::of_error(Status::Fail, "application", unclear));
    }
    if let Some(plan) = plan {
        items.extend(project::address(plan));
    }
    items.extend(Machine::this().items(plan));
    let app = app.or(arguments.app.as_deref());
    let more = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "application": app,
        "file": config.and_then(Config::file).map(|file| file.display().to_string()),
    });
    show(ui, "doctor", app.unwrap_or_default(), &items, &more)?;
    Ok(if count(&items, Status::Fail) > 0 {
        FAILED
    } else {
        0
    })
}

/// The project, as far as its settings say.
struct Project {
    config: Config,
    plan: Plan,
    app: Option<String>,
    /// Why it is not known which application is meant.
    unclear: Option<CliError>,
}

fn load(explicit: Option<&Path>, arguments: &Doctor) -> Result<Project, CliError> {
    let mut config = Config::load(explicit, &arguments.python.given)?;
    let plan = Plan::new(&config)?;
    let (app, unclear) = match target::meant(&mut config, arguments.app.as_deref()) {
        Ok(Meant::Application(app)) => (Some(app), None),
        Ok(Meant::Server(_)) => (None, None),
        Err(error) => (None, Some(error)),
    };
    plan.check_files(app.is_some())?;
    Ok(Project {
        config,
        plan,
        app,
        unclear,
    })
}
