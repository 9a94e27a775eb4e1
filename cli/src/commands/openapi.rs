//! `justapi openapi`: the OpenAPI document on standard output or in a file, or what a file has
//! otherwise.
//!
//! Guarantee: the same application gives the same bytes; a file is written whole or not at all.

use std::fs::{self, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};

use super::inspected::{Question, ask};
use super::serve::Plan;
use super::target::{self, Meant};
use crate::application_args::OpenApi;
use crate::config::Config;
use crate::error::{CliError, Code};
use crate::ui::{Ui, bad, document, faint, good, odd};

/// Differences that are shown; more are counted.
const MAX_SHOWN: usize = 50;
/// Longest value that a difference shows, in characters.
const MAX_VALUE: usize = 60;

pub(crate) fn openapi(
    ui: &Ui,
    arguments: &OpenApi,
    explicit: Option<&Path>,
) -> Result<u8, CliError> {
    let mut config = Config::load(explicit, &arguments.python.given)?;
    for warning in config.warnings() {
        ui.warning(warning);
    }
    let text = match target::meant(&mut config, arguments.app.as_deref())? {
        Meant::Application(app) => {
            let answer = ask(&config, &app, Question::OpenApi, None)?;
            answer.value["document"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        }
        Meant::Server(why) => {
            let plan = Plan::new(&config)?;
            plan.check_files(false)?;
            if let Some(why) = why {
                ui.note(&target::instead_note(&why, &plan.served()));
            }
            format!("{:#}", plan.document()?)
        }
    } + "\n";
    if let Some(path) = &arguments.check {
        return compare(ui, arguments, &text, path);
    }
    match arguments
        .output
        .as_deref()
        .filter(|path| *path != Path::new("-"))
    {
        None => ui.data(&text)?,
        Some(path) => {
            let is_new = write_whole(path, &text).map_err(|error| {
                CliError::new(
                    Code::DocumentFile,
                    format!("cannot write the document to {}", path.display()),
                )
                .with_cause(&error)
                .with_hint("choose another file with `--output`")
            })?;
            let what = if is_new { "wrote" } else { "unchanged:" };
            let shown = path.display().to_string();
            ui.event(
                "written",
                json!({"file": shown, "changed": is_new}),
                &format!("{what} {shown}\n"),
            )?;
        }
    }
    Ok(0)
}

/// Puts `text` in the place of a file by one rename; whether it was another text before.
///
/// What is no file, such as a pipe, is written to as it is.
fn write_whole(path: &Path, text: &str) -> io::Result<bool> {
    // A symbolic link stays one: what it names is replaced.
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let before = fs::metadata(&real).ok();
    if before.as_ref().is_some_and(|before| !before.is_file()) {
        fs::OpenOptions::new()
            .write(true)
            .open(&real)?
            .write_all(text.as_bytes())?;
        return Ok(true);
    }
    if before.is_some() && fs::read(&real).is_ok_and(|old| old == text.as_bytes()) {
        return Ok(false);
    }
    let folder = real
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or_else(|| Path::new("."));
    let mut file = tempfile::Builder::new()
        .prefix(".justapi-openapi.")
        // The user's mask takes away what nobody else may.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    if let Some(before) = before {
        file.as_file().set_permissions(before.permissions())?;
    }
    file.persist(&real)?;
    Ok(true)
}

fn compare(ui: &Ui, arguments: &OpenApi, text: &str, path: &Path) -> Result<u8, CliError> {
    let shown = path.display();
    let unusable = |cause: String| {
        let app = arguments.app.as_deref().unwrap_or_default();
        CliError::new(Code::DocumentFile, format!("cannot compare with {shown}"))
            .with_detail("cause", cause)
            .with_hint(format!("make it with `{}`", command(app, path)))
    };
    let old = fs::read_to_string(path).map_err(|error| unusable(crate::error::plain(&error)))?;
    let old: Value = serde_json::from_str(&old)
        .map_err(|error| unusable(format!("it is no JSON document: {error}")))?;
    let new: Value = serde_json::from_str(text).map_err(|error| {
        CliError::new(
            Code::DocumentFailed,
            format!("the document is no JSON: {error}"),
        )
    })?;
    let mut differences = Vec::new();
    find_differences(&mut Vec::new(), &old, &new, &mut differences);
    if ui.is_json() {
        document(&json!({
            "v": 1,
            "file": shown.to_string(),
            "same": differences.is_empty(),
            "differences": differences.iter().map(Difference::as_json).collect::<Vec<_>>(),
        }))?;
    }
    if differences.is_empty() {
        if !ui.is_json() {
            ui.data(&format!("{shown} is {}\n", good("up to date")))?;
        }
        return Ok(0);
    }
    let count = differences.len();
    let plural = if count == 1 {
        "difference"
    } else {
        "differences"
    };
    let error = CliError::new(
        Code::DocumentDrift,
        format!("the document is not the one in {shown}: {count} {plural}"),
    )
    .with_hint(format!(
        "if that is meant, run `{}`",
        command(arguments.app.as_deref().unwrap_or_default(), path)
    ));
    if ui.is_json() {
        return Ok(error.exit());
    }
    ui.data(&render(&differences))?;
    Err(error)
}

/// What writes the file anew.
fn command(app: &str, path: &Path) -> String {
    let app = if app.is_empty() {
        String::new()
    } else {
        format!("{app} ")
    };
    format!("justapi openapi {app}--output {}", path.display())
}

/// One place where two documents differ.
#[derive(Debug, PartialEq)]
struct Difference<'a> {
    place: Vec<String>,
    old: Option<&'a Value>,
    new: Option<&'a Value>,
}

impl Difference<'_> {
    fn as_json(&self) -> Value {
        json!({"place": self.place, "old": self.old, "new": self.new})
    }
}

/// Compares by meaning: the order of members and the spelling of texts do not count.
fn find_differences<'a>(
    place: &mut Vec<String>,
    old: &'a Value,
    new: &'a Value,
    found: &mut Vec<Difference<'a>>,
) {
    let mut visit = |name: String, old: Option<&'a Value>, new: Option<&'a Value>| {
        place.push(name);
        match (old, new) {
            (Some(old), Some(new)) => find_differences(place, old, new, found),
            _ => found.push(Difference {
                place: place.clone(),
                old,
                new,
            }),
        }
        place.pop();
    };
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            for (name, value) in old {
                visit(name.clone(), Some(value), new.get(name));
            }
            for (name, value) in new.iter().filter(|(name, _)| !old.contains_key(*name)) {
                visit(name.clone(), None, Some(value));
            }
        }
        (Value::Array(old), Value::Array(new)) => {
            for index in 0..old.len().max(new.len()) {
                visit(index.to_string(), old.get(index), new.get(index));
            }
        }
        _ if old == new => {}
        _ => found.push(Difference {
            place: place.clone(),
            old: Some(old),
            new: Some(new),
        }),
    }
}

fn render(differences: &[Difference<'_>]) -> String {
    let mut text = String::new();
    for one in differences.iter().take(MAX_SHOWN) {
        let place = match one.place.join(" > ") {
            place if place.is_empty() => "the document".to_owned(),
            place => place,
        };
        let line = match (one.old, one.new) {
            (Some(old), Some(new)) => {
                format!("{}  {place}: {} -> {}", odd("~"), shown(old), shown(new))
            }
            (Some(old), None) => format!("{}  {place}: {}", bad("-"), shown(old)),
            (_, new) => format!(
                "{}  {place}: {}",
                good("+"),
                new.map_or(String::new(), shown)
            ),
        };
        text.push_str(&line);
        text.push('\n');
    }
    if differences.len() > MAX_SHOWN {
        let rest = differences.len() - MAX_SHOWN;
        text.push_str(&faint(&format!("   and {rest} more; --json has them all")));
        text.push('\n');
    }
    text
}

/// A value in a few words.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= MAX_VALUE {
        return text;
    }
    match value {
        Value::Object(members) => {
            let names: Vec<_> = members.keys().map(String::as_str).collect();
            format!("an object of {}", cut(&names.join(", ")))
        }
        Value::Array(items) => format!("an array of {}", items.len()),
        _ => cut(&text),
    }
}

fn cut(text: &str) -> String {
    if text.chars().count() <= MAX_VALUE {
        return text.to_owned();
    }
    text.chars().take(MAX_VALUE - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn differences(old: &Value, new: &Value) -> String {
        let mut found = Vec::new();
        find_differences(&mut Vec::new(), old, new, &mut found);
        anstream::adapter::strip_str(&render(&found)).to_string()
    }

    #[test]
    fn each_difference_names_its_place() {
        let old = json!({"a": 1, "b": {"x": [1, 2]}, "same": null, "gone": true});
        let new = json!({"b": {"x": [1, 3, 4]}, "a": "1", "same": null, "come": {}});
        assert_eq!(
            differences(&old, &new),
            "~  a: 1 -> \"1\"\n~  b > x > 1: 2 -> 3\n+  b > x > 2: 4\n-  gone: true\n+  come: {}\n"
        );
        assert_eq!(differences(&new, &new), "");
        assert_eq!(
            differences(&json!(1), &json!([])),
            "~  the document: 1 -> []\n"
        );
    }

    #[test]
    fn long_values_are_cut_and_many_counted() {
        let old = json!({});
        let new: Value = (0..60)
            .map(|n| (format!("k{n:02}"), json!("x".repeat(200))))
            .collect();
        let text = differences(&old, &new);
        assert_eq!(text.lines().count(), MAX_SHOWN + 1);
        assert!(
            text.ends_with("and 10 more; --json has them all\n"),
            "{text}"
        );
        assert!(text.lines().all(|line| line.chars().count() < 90), "{text}");
    }

    #[test]
    fn a_file_is_replaced_whole_and_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("openapi.json");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("openapi.json", &link).unwrap();
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        assert!(write_whole(&link, "new").unwrap());
        assert!(!write_whole(&path, "new").unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o640
        );
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        assert!(write_whole(&folder.path().join("no/where"), "new").is_err());
    }
}
