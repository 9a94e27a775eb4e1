//! `justapi check`: what would fail in production, without a port being opened.
//!
//! Guarantee: the settings are read as `serve` reads them, and the routes are built as a worker
//! builds them.

use std::path::Path;

use serde_json::{Value, json};

use super::checklist::{Item, Status, count, show};
use super::inspected::{Answer, Question, ask, shown};
use super::serve::{Plan, check_python};
use super::target::{self, Meant};
use crate::application_args::Check;
use crate::config::{Config, shown_path};
use crate::descriptors;
use crate::error::CliError;
use crate::ui::Ui;

/// Exit status when something was found.
const FOUND: u8 = 1;

pub(crate) fn check(ui: &Ui, arguments: &Check, explicit: Option<&Path>) -> Result<u8, CliError> {
    descriptors::raise_limit();
    let mut config = Config::load(explicit, &arguments.settings.given)?;
    let plan = Plan::new(&config)?;
    let meant = target::meant(&mut config, arguments.app.as_deref())?;
    let has_app = matches!(meant, Meant::Application(_));
    if has_app {
        check_python(&config)?;
    }
    plan.check_files(has_app)?;
    let mut items = of_settings(&config, &plan);
    let mut more = json!({"application": null});
    let mut subject = "configuration".to_owned();
    match meant {
        Meant::Application(app) => {
            let server = serde_json::to_value(plan.config_without_sockets()).unwrap_or_default();
            let answer = ask(&config, &app, Question::Check, Some(server))?;
            more["application"] = json!(app);
            more["python"] = json!(shown(&answer.interpreter));
            more["routes"] = answer.value["num_routes"].clone();
            subject = format!("{app}   Python {}", answer.interpreter.version);
            items.extend(of_application(&app, &answer));
        }
        Meant::Server(why) => items.extend(why.map(|why| {
            let message = format!("{why}; `justapi serve` serves {} here", plan.served());
            Item::ok("application", message)
        })),
    }
    show(ui, "check", &subject, &items, &more)?;
    let is_found =
        count(&items, Status::Fail) > 0 || (arguments.strict && count(&items, Status::Warn) > 0);
    Ok(if is_found { FOUND } else { 0 })
}

fn of_settings(config: &Config, plan: &Plan) -> Vec<Item> {
    let mut items: Vec<Item> = config.warnings().iter().map(Item::of_warning).collect();
    if items.is_empty() {
        let from = config.file().map_or_else(
            || "no justapi.toml; defaults, environment and flags".to_owned(),
            |file| shown_path(file).display().to_string(),
        );
        items.push(Item::ok("settings", from));
    }
    let asked = plan.limits().max_connections as u64;
    if let Some(possible) = descriptors::max_connections().filter(|possible| *possible < asked) {
        items.push(Item::warn(
            "descriptors",
            format!(
                "{asked} connections are allowed, and the descriptor limit is enough for {possible}"
            ),
            "raise `ulimit -n`, or lower `--max-connections`",
        ));
    }
    items
}

fn of_application(app: &str, answer: &Answer) -> Vec<Item> {
    let value = &answer.value;
    let seconds = value["import_seconds"].as_f64().unwrap_or_default();
    let kind = value["kind_of_application"].as_str().unwrap_or_default();
    let routes = match value["num_routes"].as_u64() {
        Some(1) => ", 1 route".to_owned(),
        Some(count) => format!(", {count} routes"),
        None => String::new(),
    };
    let message = format!(
        "{app} is a {kind}{routes}, imported in {:.0} ms",
        seconds * 1000.0
    );
    let mut items = vec![Item::ok("application", message)];
    let found = value["findings"].as_array().map_or(&[][..], Vec::as_slice);
    items.extend(found.iter().map(of_finding));
    items
}

fn of_finding(finding: &Value) -> Item {
    let text = |key: &str| finding[key].as_str().unwrap_or_default();
    let place = match (finding["file"].as_str(), finding["line"].as_u64()) {
        (Some(file), Some(line)) => Some(format!("{file}:{line}")),
        (file, _) => file.map(str::to_owned),
    };
    let status = if text("level") == "warn" {
        Status::Warn
    } else {
        Status::Fail
    };
    Item {
        status,
        name: text("name").to_owned(),
        message: text("message").to_owned(),
        place,
        fix: finding["hint"].as_str().map(str::to_owned),
        repair: None,
    }
}
