//! `justapi config`: what is in force, where it comes from, whether it holds.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value as Json, json};

use crate::args::{ConfigCommand, ConfigShow};
use crate::commands::serve::Plan;
use crate::config::{Config, Kind, Value, shown_path};
use crate::descriptors;
use crate::error::CliError;
use crate::ui::{Ui, document, faint, good};

/// Exit status of `check` when there are warnings only.
const WARNINGS_FOUND: u8 = 1;

pub(crate) fn config(
    ui: &Ui,
    command: &ConfigCommand,
    explicit: Option<&Path>,
) -> Result<u8, CliError> {
    descriptors::raise_limit();
    match command {
        ConfigCommand::Show(arguments) => show(ui, arguments, explicit),
        ConfigCommand::Path => path(ui, explicit),
        ConfigCommand::Check => check(ui, explicit),
    }
}

fn show(ui: &Ui, arguments: &ConfigShow, explicit: Option<&Path>) -> Result<u8, CliError> {
    let config = Config::load(explicit, &arguments.settings.given)?;
    for warning in config.warnings() {
        ui.warning(warning);
    }
    if ui.is_json() {
        let settings: Vec<_> = config
            .entries()
            .map(|(setting, value, origin)| {
                json!({
                    "key": setting.key,
                    "value": as_json(setting.kind, value),
                    "origin": origin.to_string(),
                })
            })
            .collect();
        document(&json!({
            "v": 1,
            "file": config.file().map(|file| file.display().to_string()),
            "settings": settings,
        }))?;
        return Ok(0);
    }
    let mut text = String::new();
    for (setting, value, origin) in config.entries() {
        let shown = match setting.kind.show(value) {
            shown if shown.is_empty() => "-".to_owned(),
            shown => shown,
        };
        let line = if arguments.origin {
            let origin = faint(&origin.to_string());
            writeln!(text, "{:36} {shown:24} {origin}", setting.key)
        } else {
            writeln!(text, "{:36} {shown}", setting.key)
        };
        line.expect("strings can always grow");
    }
    ui.data(&text)?;
    Ok(0)
}

fn path(ui: &Ui, explicit: Option<&Path>) -> Result<u8, CliError> {
    let path = Config::locate(explicit)?;
    if ui.is_json() {
        document(&json!({"v": 1, "path": path.map(|path| path.display().to_string())}))?;
    } else if let Some(path) = path {
        ui.data(&format!("{}\n", path.display()))?;
    }
    Ok(0)
}

fn check(ui: &Ui, explicit: Option<&Path>) -> Result<u8, CliError> {
    let config = Config::load(explicit, &[])?;
    Plan::new(&config)?.check_files(false)?;
    let warnings = config.warnings();
    if ui.is_json() {
        let warnings: Vec<_> = warnings
            .iter()
            .map(|warning| {
                json!({
                    "code": warning.code.as_str(),
                    "message": warning.message,
                    "line": warning.location.as_ref().map(|location| location.line),
                })
            })
            .collect();
        document(&json!({
            "v": 1,
            "file": config.file().map(|file| file.display().to_string()),
            "warnings": warnings,
        }))?;
    } else {
        for warning in warnings {
            ui.warning(warning);
        }
        if warnings.is_empty() {
            let what = config.file().map_or_else(
                || "no justapi.toml here; the defaults and the environment are".to_owned(),
                |file| format!("{} is", shown_path(file).display()),
            );
            ui.data(&format!("{what} {}\n", good("valid")))?;
        }
    }
    Ok(if warnings.is_empty() {
        0
    } else {
        WARNINGS_FOUND
    })
}

/// Numbers, switches and lists as such, the rest as `config show` writes it.
fn as_json(kind: Kind, value: &Value) -> Json {
    match (kind, value) {
        (_, Value::Unset) => match kind.show(value) {
            word if word.is_empty() => Json::Null,
            word => json!(word),
        },
        (Kind::Mode | Kind::Bytes { .. }, _) | (_, Value::Time(_) | Value::Text(_)) => {
            json!(kind.show(value))
        }
        (_, Value::Number(number)) => json!(number),
        (_, Value::Switch(on)) => json!(on),
        (_, Value::List(list)) => json!(list),
    }
}
