//! What `new` says: the list of templates, the plan, and what was made.

use std::fmt::Write as _;

use justapi_templates::{Answer, Answers, BUILTIN_NAMES, Names, builtin};
use serde_json::{Map, Value, json};

use crate::commands::new::destination::{Action, Destination, Plan};
use crate::commands::new::git::Repository;
use crate::config::Warning;
use crate::error::{CliError, Code};
use crate::shell::quoted;
use crate::ui::{Ui, document, faint, good, heading, link};

/// What a project is made of and where it goes.
pub(super) struct Report<'a> {
    pub(super) template: &'a str,
    pub(super) names: &'a Names,
    pub(super) answers: &'a Answers,
    pub(super) destination: &'a Destination,
    pub(super) plan: &'a Plan<'a>,
    pub(super) commands: &'a [String],
    pub(super) edit: &'a str,
}

impl Report<'_> {
    /// Shows what would be written; the exit status is that of writing it.
    pub(super) fn planned(&self, ui: &Ui, conflict: Option<&CliError>) -> Result<u8, CliError> {
        if ui.is_json() {
            let mut object = self.object();
            object.insert("dry_run".to_owned(), json!(true));
            object.insert(
                "conflict".to_owned(),
                json!(conflict.map(CliError::message)),
            );
            document(&Value::Object(object))?;
        } else {
            let mut text = String::new();
            for (file, action) in &self.plan.files {
                let note = match action {
                    Action::Create => String::new(),
                    Action::Keep => "   is there already".to_owned(),
                    Action::Replace(kept) => {
                        let kept = kept.file_name().unwrap_or_default().to_string_lossy();
                        format!("   replaces another, which is kept as {kept}")
                    }
                    Action::Blocked(reason) => format!("   cannot be written: it {reason}"),
                };
                let size = file.content.len();
                let mode = mode(file.is_executable);
                line(
                    &mut text,
                    format_args!("{mode} {size:>6}  {}{}", file.path, faint(&note)),
                );
            }
            ui.data(&text)?;
        }
        match conflict {
            Some(conflict) => {
                if !ui.is_json() {
                    ui.error(conflict);
                }
                Ok(conflict.exit())
            }
            None => Ok(0),
        }
    }

    /// Says what was made and what to do with it.
    pub(super) fn made(&self, ui: &Ui, repository: &Repository) -> Result<u8, CliError> {
        match repository {
            Repository::NoGit => ui.note("git is not installed, so there is no repository\n"),
            Repository::Failed(text) => ui.warning(&Warning {
                code: Code::TemplateFetch,
                message: format!("the project is there, but git did not do its part: {text}"),
                location: None,
            }),
            _ => {}
        }
        if ui.is_json() {
            let mut object = self.object();
            object.insert("git".to_owned(), json!(repository.word()));
            document(&Value::Object(object))?;
            return Ok(0);
        }
        let shown = self.destination.shown.display();
        let num_files = self.plan.files.len();
        let git = match repository {
            Repository::Made { is_committed: true } => ", committed",
            Repository::Made {
                is_committed: false,
            } => ", in a git repository",
            _ => "",
        };
        let mut text = String::new();
        line(
            &mut text,
            format_args!(
                "{} {} from the template {}: {num_files} files{git}",
                good("made"),
                heading(&shown.to_string()),
                self.template
            ),
        );
        for (file, action) in &self.plan.files {
            if let Action::Replace(kept) = action {
                let kept = kept.file_name().unwrap_or_default().to_string_lossy();
                line(
                    &mut text,
                    format_args!("  replaced {}, kept as {kept}", file.path),
                );
            }
        }
        let steps = self.steps();
        if !steps.is_empty() {
            text.push('\n');
        }
        for step in steps {
            line(&mut text, format_args!("  {}", link(&step)));
        }
        if !self.edit.is_empty() {
            line(
                &mut text,
                format_args!("\nthen edit {}", heading(self.edit)),
            );
        }
        ui.note(&text);
        Ok(0)
    }

    /// The commands to run next, the way into the folder first.
    fn steps(&self) -> Vec<String> {
        let shown = &self.destination.shown;
        let is_here = shown.as_os_str() == "." || shown.as_os_str() == "./";
        let enter = (!is_here).then(|| format!("cd {}", quoted(&shown.to_string_lossy())));
        enter
            .into_iter()
            .chain(self.commands.iter().cloned())
            .collect()
    }

    fn object(&self) -> Map<String, Value> {
        let answers: Map<String, Value> = self
            .answers
            .iter()
            .map(|(name, answer)| {
                let answer = match answer {
                    Answer::Flag(flag) => json!(flag),
                    Answer::Text(text) => json!(text),
                };
                (name.to_owned(), answer)
            })
            .collect();
        let files: Vec<Value> = self
            .plan
            .files
            .iter()
            .map(|(file, action)| {
                let kept = match action {
                    Action::Replace(kept) => kept.file_name(),
                    _ => None,
                };
                json!({
                    "path": file.path,
                    "bytes": file.content.len(),
                    "mode": mode(file.is_executable),
                    "action": action.word(),
                    "kept_as": kept.map(|name| name.to_string_lossy()),
                })
            })
            .collect();
        let object = json!({
            "v": 1,
            "path": self.destination.path().to_string_lossy(),
            "name": self.names.distribution,
            "module": self.names.module,
            "template": self.template,
            "answers": answers,
            "files": files,
            "next": self.steps(),
        });
        match object {
            Value::Object(object) => object,
            _ => Map::new(),
        }
    }
}

/// Lists the templates in the binary.
pub(super) fn list(ui: &Ui) -> Result<u8, CliError> {
    let templates = BUILTIN_NAMES.map(|name| {
        let template = builtin(name).expect("it is listed");
        (name, template.manifest)
    });
    if ui.is_json() {
        let templates = templates.map(|(name, manifest)| {
            let questions: Vec<Value> = manifest
                .questions
                .iter()
                .map(|question| {
                    json!({
                        "name": question.name,
                        "prompt": question.prompt,
                        "expected": question.expected(),
                        "default": question.default_text(),
                    })
                })
                .collect();
            json!({"name": name, "description": manifest.description, "questions": questions})
        });
        document(&json!({"v": 1, "templates": templates}))?;
        return Ok(0);
    }
    let mut text = String::new();
    for (name, manifest) in templates {
        let name = format!("{name:<8}");
        line(
            &mut text,
            format_args!("{} {}", heading(&name), manifest.description),
        );
        for question in &manifest.questions {
            let default = match question.default_text() {
                Some(default) if !default.is_empty() => format!(" [default: {default}]"),
                Some(_) => String::new(),
                None => " (needed)".to_owned(),
            };
            line(
                &mut text,
                format_args!(
                    "           --set {}={}   {}{default}",
                    question.name,
                    question.expected(),
                    question.prompt
                ),
            );
        }
    }
    ui.data(&text)?;
    Ok(0)
}

const fn mode(is_executable: bool) -> &'static str {
    if is_executable { "755" } else { "644" }
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    writeln!(text, "{arguments}").expect("strings can always grow");
}
