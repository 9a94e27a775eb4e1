//! A list of what was looked at: what is right, what is odd, what is wrong, and what to do about it.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::config::Warning;
use crate::error::CliError;
use crate::ui::{Ui, bad, document, faint, good, heading, odd};

/// Columns of a text before it is broken.
const WIDTH: usize = 80;
/// Columns before a text.
const INDENT: &str = "                        ";

/// How something was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Ok,
    Warn,
    Fail,
}

impl Status {
    const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) status: Status,
    /// What it is about, in a word.
    pub(super) name: String,
    pub(super) message: String,
    /// File and line.
    pub(super) place: Option<String>,
    /// What to do; a command where there is one.
    pub(super) fix: Option<String>,
    /// Program and arguments that do it, where they can do no harm.
    pub(super) repair: Option<Vec<String>>,
}

impl Item {
    fn new(status: Status, name: &str, message: impl Into<String>) -> Self {
        Self {
            status,
            name: name.to_owned(),
            message: message.into(),
            place: None,
            fix: None,
            repair: None,
        }
    }

    /// With a command that puts it right.
    pub(super) fn with_repair<const N: usize>(mut self, command: [&str; N]) -> Self {
        self.repair = Some(command.map(str::to_owned).to_vec());
        self
    }

    pub(super) fn ok(name: &str, message: impl Into<String>) -> Self {
        Self::new(Status::Ok, name, message)
    }

    pub(super) fn warn(name: &str, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            fix: Some(fix.into()),
            ..Self::new(Status::Warn, name, message)
        }
    }

    pub(super) fn fail(name: &str, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            fix: Some(fix.into()),
            ..Self::new(Status::Fail, name, message)
        }
    }

    /// What kept something from being looked at.
    pub(super) fn of_error(status: Status, name: &str, error: &CliError) -> Self {
        let mut message = format!("{} [{}]", error.message(), error.code().as_str());
        for (label, detail) in error.details() {
            // A traceback has lines of its own, of which the last says what it was.
            let last = detail.trim_end().lines().last().unwrap_or_default();
            write!(message, "; {label}: {}", last.trim()).expect("strings can always grow");
        }
        Self {
            place: error
                .location()
                .map(|location| format!("{}:{}", location.path.display(), location.line)),
            fix: error.hint().map(str::to_owned),
            ..Self::new(status, name, message)
        }
    }

    /// Something odd in the configuration.
    pub(super) fn of_warning(warning: &Warning) -> Self {
        let place = warning
            .location
            .as_ref()
            .map(|location| format!("{}:{}", location.path.display(), location.line));
        let code = warning.code.as_str();
        let mut message = format!("{} [{code}]", warning.message);
        if let Some(place) = &place {
            // It stands on a line of its own.
            message = message.replace(&format!(" in {place}"), "");
        }
        Self {
            place,
            ..Self::warn(
                "settings",
                message,
                "correct it, or remove it: it has no effect",
            )
        }
    }

    fn as_json(&self) -> Value {
        json!({
            "status": self.status.name(),
            "name": self.name,
            "message": self.message,
            "place": self.place,
            "fix": self.fix,
            "repair": self.repair,
        })
    }
}

/// How many of the items are of a status.
pub(super) fn count(items: &[Item], status: Status) -> usize {
    items.iter().filter(|item| item.status == status).count()
}

/// Shows a list under a title; `more` goes into the JSON document.
///
/// # Errors
/// As [`Ui::data`].
pub(super) fn show(
    ui: &Ui,
    title: &str,
    subject: &str,
    items: &[Item],
    more: &Value,
) -> Result<(), CliError> {
    if ui.is_json() {
        let mut object = json!({
            "v": 1,
            "ok": count(items, Status::Fail) == 0,
            "failures": count(items, Status::Fail),
            "warnings": count(items, Status::Warn),
            "checks": items.iter().map(Item::as_json).collect::<Vec<_>>(),
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            object[key] = value.clone();
        }
        return document(&object);
    }
    let version = heading(&format!("justapi {}", env!("CARGO_PKG_VERSION")));
    let mut text = format!("{version}  {title}   {subject}")
        .trim_end()
        .to_owned()
        + "\n";
    for item in items {
        let status = item.status.name();
        let padding = " ".repeat(4 - status.len());
        let status = match item.status {
            Status::Ok => good(status),
            Status::Warn => odd(status),
            Status::Fail => bad(status),
        };
        line(
            &mut text,
            &format!("  {status}{padding}  {:<15} ", item.name),
            &item.message,
        );
        if let Some(place) = &item.place {
            line(&mut text, INDENT, &format!("--> {place}"));
        }
        if let Some(fix) = &item.fix {
            line(&mut text, &format!("{INDENT}{} ", good("fix")), fix);
        }
    }
    let summary = |status, one: &str| match count(items, status) {
        1 => format!("1 {one}"),
        many => format!("{many} {one}s"),
    };
    let summary = format!(
        "{}, {}\n",
        summary(Status::Fail, "failure"),
        summary(Status::Warn, "warning")
    );
    text.push_str(&faint(&summary));
    ui.data(&text)
}

/// Adds a text behind `head`, broken at spaces; what stands in backticks is
/// copied by people and stays in one piece.
fn line(text: &mut String, head: &str, message: &str) {
    text.push_str(head);
    let mut column = 0;
    for (index, word) in words(message).into_iter().enumerate() {
        let width = word.chars().count();
        if index > 0 && column + 1 + width > WIDTH {
            text.push('\n');
            text.push_str(INDENT);
            column = 0;
        } else if index > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(&word);
        column += width;
    }
    text.push('\n');
}

/// The words of a text, a quotation in backticks being one.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut is_open = false;
    for word in text.split_whitespace() {
        match words.last_mut().filter(|_| is_open) {
            Some(last) => {
                last.push(' ');
                last.push_str(word);
            }
            None => words.push(word.to_owned()),
        }
        is_open ^= word.matches('`').count() % 2 == 1;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotations_are_one_word() {
        assert_eq!(words("run `a b c`, or  d"), ["run", "`a b c`,", "or", "d"]);
        assert_eq!(words("`a` `b c"), ["`a`", "`b c"]);
        let mut text = String::new();
        line(
            &mut text,
            "",
            &format!("{} `{}` end", "x".repeat(70), "a b ".repeat(8)),
        );
        assert!(
            text.lines().any(|line| line.contains(&"a b ".repeat(7))),
            "{text}"
        );
    }
}
