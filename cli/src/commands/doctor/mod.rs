//! `justapi doctor`: what on this machine and in this project keeps the server from doing well.
//!
//! Guarantee: nothing is changed unless `--fix` has asked for it; each line that is not right names
//! what puts it right, the temporary form first.

mod machine;
mod project;
mod repair;

use std::path::Path;

use serde_json::{Value, json};

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
    let mut found = Found::look(arguments, explicit);
    if arguments.fix {
        if !ui.is_json() {
            found.show(ui)?;
        }
        let repaired = repair::offer(ui, &found.items, arguments.yes);
        if !repaired.is_empty() || ui.is_json() {
            found = Found::look(arguments, explicit);
            found.more["repaired"] = json!(repaired);
            found.show(ui)?;
        }
    } else {
        found.show(ui)?;
    }
    Ok(if count(&found.items, Status::Fail) > 0 {
        FAILED
    } else {
        0
    })
}

/// What there is to say of program, project and machine.
struct Found {
    subject: String,
    items: Vec<Item>,
    more: Value,
}

impl Found {
    fn look(arguments: &Doctor, explicit: Option<&Path>) -> Self {
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
        let named = arguments.app.as_deref();
        let app = loaded
            .as_ref()
            .map_or(named, |loaded| loaded.app.as_deref());
        if let Some(loaded) = &loaded {
            items.extend(project::python(&loaded.config, app));
            let unclear = loaded.unclear.as_ref();
            items.extend(
                unclear.map(|unclear| Item::of_error(Status::Fail, "application", unclear)),
            );
            items.extend(project::address(&loaded.plan));
        }
        let plan = loaded.as_ref().map(|loaded| &loaded.plan);
        items.extend(Machine::this().items(plan));
        let file = loaded.as_ref().and_then(|loaded| loaded.config.file());
        Self {
            subject: app.unwrap_or_default().to_owned(),
            items,
            more: json!({
                "version": env!("CARGO_PKG_VERSION"),
                "application": app,
                "file": file.map(|file| file.display().to_string()),
            }),
        }
    }

    fn show(&self, ui: &Ui) -> Result<(), CliError> {
        show(ui, "doctor", &self.subject, &self.items, &self.more)
    }
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
