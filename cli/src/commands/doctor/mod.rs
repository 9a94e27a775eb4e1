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
    let (config, plan) = match load(explicit, arguments) {
        Ok((config, plan)) => {
            items.extend(project::settings(&config));
            (Some(config), Some(plan))
        }
        Err(error) => {
            items.push(Item::of_error(Status::Fail, "settings", &error));
            (None, None)
        }
    };
    if let Some(config) = &config {
        items.extend(project::python(config, arguments.app.as_deref()));
    }
    if let Some(plan) = &plan {
        items.extend(project::address(plan));
    }
    items.extend(Machine::this().items(plan.as_ref()));
    let more = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "application": arguments.app,
        "file": config.as_ref().and_then(Config::file).map(|file| file.display().to_string()),
    });
    show(
        ui,
        "doctor",
        arguments.app.as_deref().unwrap_or_default(),
        &items,
        &more,
    )?;
    Ok(if count(&items, Status::Fail) > 0 {
        FAILED
    } else {
        0
    })
}

fn load(explicit: Option<&Path>, arguments: &Doctor) -> Result<(Config, Plan), CliError> {
    let config = Config::load(explicit, &arguments.python.given)?;
    let plan = Plan::new(&config)?;
    plan.check_files(arguments.app.is_some())?;
    Ok((config, plan))
}
