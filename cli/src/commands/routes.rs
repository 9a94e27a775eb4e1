//! `justapi routes`: the table of routes, with the handler of each.

use std::path::Path;

use serde_json::{Value, json};

use super::inspected::{Question, ask, shown};
use super::serve::Plan;
use super::target::{self, Meant};
use crate::application_args::Routes;
use crate::config::Config;
use crate::error::{CliError, Code};
use crate::spelling;
use crate::ui::{Ui, document, faint, good, heading, link, odd};

/// Widest a column of the table gets before the rest of its line moves on.
const MAX_COLUMN: usize = 44;
/// Methods that are suggested for one that no route has.
const METHODS: [&str; 8] = [
    "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "WS",
];

pub(crate) fn routes(ui: &Ui, arguments: &Routes, explicit: Option<&Path>) -> Result<u8, CliError> {
    for method in &arguments.method {
        check_method(method)?;
    }
    let mut config = Config::load(explicit, &arguments.python.given)?;
    for warning in config.warnings() {
        ui.warning(warning);
    }
    let table = match target::meant(&mut config, arguments.app.as_deref())? {
        Meant::Application(app) => of_application(&config, &app)?,
        Meant::Server(why) => of_server(ui, &config, why.as_deref())?,
    };
    let is_shown = |route: &Value| is_wanted(route, arguments);
    let all = table["routes"].as_array().map_or(&[][..], Vec::as_slice);
    let wanted: Vec<&Value> = all.iter().filter(|route| is_shown(route)).collect();
    if ui.is_json() {
        document(&json!({
            "v": 1,
            "application": table["application"],
            "kind": table["kind_of_application"],
            "python": table["python"],
            "middleware": table["middleware"],
            "routes": wanted,
        }))?;
        return Ok(0);
    }
    ui.data(&render(&table, &wanted, all.len()))?;
    if wanted.is_empty() && !all.is_empty() {
        ui.note("no route matches\n");
    }
    Ok(0)
}

/// Refuses what cannot be a method, so that a typing error is no empty table.
fn check_method(method: &str) -> Result<(), CliError> {
    let upper = method.to_uppercase();
    let near = spelling::nearest(&upper, METHODS.into_iter());
    match near {
        Some(near) if near != upper => Err(CliError::new(
            Code::Usage,
            format!("`{method}` is no method of HTTP"),
        )
        .with_hint(format!("did you mean `--method {near}`?"))),
        // Any token is a method to HTTP.
        _ if !upper.is_empty() && upper.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(()),
        _ => Err(CliError::new(
            Code::Usage,
            format!("`{method}` cannot be a method"),
        )),
    }
}

fn of_application(config: &Config, app: &str) -> Result<Value, CliError> {
    let mut answer = ask(config, app, Question::Routes, None)?;
    answer.value["python"] = json!(shown(&answer.interpreter));
    Ok(answer.value)
}

/// The routes of what is served without an application, in the same form.
fn of_server(ui: &Ui, config: &Config, why: Option<&str>) -> Result<Value, CliError> {
    let plan = Plan::new(config)?;
    plan.check_files(false)?;
    let Ok(router) = plan.router() else {
        // `check_files` has made the same router.
        return Err(CliError::new(Code::Internal, "the routes have changed"));
    };
    let served = plan.served();
    if let Some(why) = why {
        ui.note(&target::instead_note(why, &served));
    }
    let routes: Vec<Value> = router
        .routes()
        .map(|route| {
            json!({
                "methods": route.method.map(|method| vec![method.to_string()]),
                "path": route.pattern,
                "protocol": "http",
                "name": null,
                "handler": null,
                "file": null,
                "line": null,
                "runs": "native",
                "dependencies": [],
                "security": [],
                "in_schema": null,
                "is_own": false,
            })
        })
        .collect();
    Ok(json!({
        "application": null,
        "kind_of_application": served,
        "python": null,
        "middleware": [],
        "routes": routes,
    }))
}

fn is_wanted(route: &Value, arguments: &Routes) -> bool {
    let is_own = route["is_own"].as_bool().unwrap_or_default();
    let runs = arguments.runs.as_deref();
    (arguments.all || !is_own)
        && runs.is_none_or(|runs| route["runs"] == runs)
        && (arguments.method.is_empty()
            || arguments
                .method
                .iter()
                .any(|method| has_method(route, &method.to_uppercase())))
        && arguments
            .path
            .as_deref()
            .is_none_or(|glob| matches(glob, route["path"].as_str().unwrap_or_default()))
}

fn has_method(route: &Value, method: &str) -> bool {
    match route["protocol"].as_str() {
        Some("websocket") => method == "WS",
        _ => match route["methods"].as_array() {
            Some(methods) => methods.iter().any(|known| known == method),
            None => method != "WS",
        },
    }
}

/// Whether a text is the one that a glob describes; `*` stands for any text, slashes among it.
fn matches(glob: &str, text: &str) -> bool {
    let mut parts = glob.split('*');
    let Some(rest) = text.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    let mut rest = rest;
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

fn methods_of(route: &Value) -> String {
    match route["protocol"].as_str() {
        Some("websocket") => "WS".to_owned(),
        Some("mount") => "mount".to_owned(),
        _ => route["methods"].as_array().map_or_else(
            || "*".to_owned(),
            |methods| {
                let methods: Vec<_> = methods.iter().filter_map(Value::as_str).collect();
                methods.join("|")
            },
        ),
    }
}

fn place_of(route: &Value) -> String {
    match (route["file"].as_str(), route["line"].as_u64()) {
        (Some(file), Some(line)) => format!("{file}:{line}"),
        (Some(file), None) => file.to_owned(),
        _ => String::new(),
    }
}

fn list(value: &Value) -> String {
    let texts = value.as_array().map_or(&[][..], Vec::as_slice);
    texts
        .iter()
        .filter_map(Value::as_str)
        .collect::<Vec<_>>()
        .join(", ")
}

fn render(table: &Value, routes: &[&Value], num_all: usize) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let rows: Vec<[String; 6]> = routes
        .iter()
        .map(|route| {
            [
                methods_of(route),
                text(&route["path"]),
                text(&route["runs"]),
                text(&route["handler"]),
                place_of(route),
                list(&route["security"]),
            ]
        })
        .collect();
    let widths: Vec<usize> = (0..6)
        .map(|column| {
            let width = |row: &[String; 6]| row[column].chars().count();
            rows.iter().map(width).max().unwrap_or(0).min(MAX_COLUMN)
        })
        .collect();
    let mut lines = Vec::new();
    if let Some(application) = table["application"].as_str() {
        let python = text(&table["python"]);
        lines.push(format!("{}   {}", heading(application), faint(&python)));
    }
    for row in &rows {
        let mut line = String::new();
        let last = row.iter().rposition(|cell| !cell.is_empty());
        for (column, cell) in row.iter().enumerate().take(last.map_or(0, |last| last + 1)) {
            if widths[column] == 0 {
                continue;
            }
            let padding = " ".repeat(widths[column].saturating_sub(cell.chars().count()));
            let colored = match column {
                0 => good(cell),
                1 => link(cell),
                4 => faint(cell),
                5 => odd(cell),
                _ => cell.clone(),
            };
            line.push_str("  ");
            line.push_str(&colored);
            line.push_str(&padding);
        }
        lines.push(line.trim_end().to_owned());
    }
    lines.extend(middleware_line(&table["middleware"]));
    let num_hidden = num_all - routes.len();
    let plural = if routes.len() == 1 { "" } else { "s" };
    let hidden = if num_hidden == 0 {
        String::new()
    } else {
        format!(", {num_hidden} more not shown")
    };
    lines.push(faint(&format!("{} route{plural}{hidden}", routes.len())));
    lines.join("\n") + "\n"
}

/// The middleware in a line, outermost first, and what it means for the routes.
fn middleware_line(middleware: &Value) -> Option<String> {
    let middleware = middleware.as_array().filter(|all| !all.is_empty())?;
    let names: Vec<String> = middleware
        .iter()
        .map(|one| {
            let name = one["name"].as_str().unwrap_or_default();
            format!("{name} ({})", one["runs"].as_str().unwrap_or_default())
        })
        .collect();
    let is_python = middleware.iter().any(|one| one["runs"] == "python");
    let what = if is_python {
        "; every request passes through Python"
    } else {
        ""
    };
    Some(format!("middleware  {}{what}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_whole_patterns() {
        for (glob, text, expected) in [
            ("/items", "/items", true),
            ("/items", "/items/1", false),
            ("/items*", "/items/{id}/parts", true),
            ("*/parts", "/items/{id}/parts", true),
            ("/i*s/*/p*", "/items/{id}/parts", true),
            ("*", "", true),
            ("*a*a", "/a", false),
            ("/{id}", "/{id}", true),
        ] {
            assert_eq!(matches(glob, text), expected, "{glob} {text}");
        }
    }

    #[test]
    fn misspelt_methods_are_refused() {
        assert!(check_method("get").is_ok() && check_method("PURGE").is_ok());
        assert!(
            check_method("PSOT")
                .unwrap_err()
                .hint()
                .unwrap()
                .contains("POST")
        );
        assert!(check_method("").is_err() && check_method("a b").is_err());
    }
}
