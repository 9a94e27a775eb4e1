//! The only place that prints.
//!
//! Guarantees: data and events go to standard output, messages to standard
//! error; colours are decided per stream; a message that cannot be written
//! never stops the program, data that cannot be written always does.

use std::env;
use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anstyle::{AnsiColor, Style};
use serde_json::{Map, Value, json};

use crate::config::Warning;
use crate::error::{CliError, Code, Location};
use crate::live::Live;

const BOLD: Style = Style::new().bold();
const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();
const GOOD: Style = AnsiColor::Green.on_default().bold();
const LINK: Style = AnsiColor::Cyan.on_default();
const FAINT: Style = Style::new().dimmed();

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless the environment says otherwise.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// How much is said, where and in which form.
#[derive(Debug, Clone)]
pub(crate) struct Ui {
    color: Color,
    quiet: u8,
    json: bool,
    log_json: bool,
}

impl Ui {
    pub(crate) const fn new(color: Color, quiet: u8, json: bool) -> Self {
        Self {
            color,
            quiet,
            json,
            log_json: false,
        }
    }

    /// Writes our own messages as JSON lines from now on.
    #[must_use]
    pub(crate) const fn with_json_log(mut self, on: bool) -> Self {
        self.log_json = on;
        self
    }

    /// Whether results are wanted as JSON.
    pub(crate) const fn is_json(&self) -> bool {
        self.json
    }

    /// Whether messages have colours.
    pub(crate) fn has_color(&self) -> bool {
        color_for(self.color, io::stderr().is_terminal())
    }

    /// Whether progress is shown to who looks.
    pub(crate) const fn shows_progress(&self) -> bool {
        self.quiet == 0
    }

    /// Begins a line that shows a measurement; `None` where nobody looks.
    pub(crate) fn live(&self, total: Option<Duration>) -> Option<Live> {
        Live::begin(self.quiet, total)
    }

    /// Writes a result to standard output, as it is.
    ///
    /// # Errors
    /// [`CliError::output`]; quiet when the reader has left.
    pub(crate) fn data(&self, text: &str) -> Result<(), CliError> {
        let text = fit(text, color_for(self.color, io::stdout().is_terminal()));
        write_out(text.as_bytes())
    }

    /// Writes text to standard error that is neither result nor warning, as it is.
    pub(crate) fn note(&self, text: &str) {
        if self.quiet == 0 {
            self.message(text);
        }
    }

    /// Says something that a script can act on: a line on standard error, an
    /// object on standard output with `--json`.
    ///
    /// # Errors
    /// As [`Self::data`].
    pub(crate) fn event(&self, name: &str, fields: Value, human: &str) -> Result<(), CliError> {
        let mut object = Map::new();
        object.insert("v".to_owned(), json!(1));
        object.insert("t".to_owned(), json!(timestamp(SystemTime::now())));
        object.insert("event".to_owned(), json!(name));
        if let Value::Object(fields) = fields {
            object.extend(fields);
        }
        let object = Value::Object(object);
        if self.quiet == 0 {
            if self.log_json {
                self.message(&format!("{object}\n"));
            } else if !human.is_empty() {
                self.message(human);
            }
        }
        if self.json {
            document(&object)?;
        }
        Ok(())
    }

    /// Says something that is worth knowing and stops nothing.
    pub(crate) fn warning(&self, warning: &Warning) {
        if self.quiet > 1 {
            return;
        }
        if self.log_json {
            let object = json!({
                "v": 1,
                "t": timestamp(SystemTime::now()),
                "event": "warning",
                "code": warning.code.as_str(),
                "message": warning.message,
            });
            self.message(&format!("{object}\n"));
        } else {
            let code = warning.code.as_str();
            self.message(&format!(
                "{WARNING}warning[{code}]{WARNING:#}{BOLD}:{BOLD:#} {}\n",
                warning.message
            ));
        }
    }

    /// Says why the command ends.
    pub(crate) fn error(&self, error: &CliError) {
        if error.is_quiet() {
            return;
        }
        if self.json {
            // Standard error below says it in any case.
            drop(document(&error_document(error)));
        }
        if !self.json || self.quiet == 0 {
            self.message(&render_error(error));
        }
    }

    /// Shows what clap has to say: help on standard output, a usage error on
    /// standard error.
    ///
    /// # Errors
    /// As [`Self::data`].
    pub(crate) fn clap(&self, error: &clap::Error) -> Result<(), CliError> {
        let text = error.render().ansi().to_string();
        if !error.use_stderr() {
            return self.data(&text);
        }
        if self.json {
            let plain = anstream::adapter::strip_str(&text).to_string();
            let message = plain.lines().next().unwrap_or_default();
            let message = message.strip_prefix("error: ").unwrap_or(message);
            document(&error_document(&CliError::new(Code::Usage, message)))?;
        }
        self.message(&text);
        Ok(())
    }

    /// Shows a panic in one line.
    pub(crate) fn panic(&self, text: &str) {
        let code = Code::Internal.as_str();
        self.message(&format!(
            "{ERROR}error[{code}]{ERROR:#}{BOLD}: internal error: {text}{BOLD:#}\n"
        ));
    }

    /// Writes to standard error; nothing can be done when that fails.
    fn message(&self, text: &str) {
        let text = fit(text, color_for(self.color, io::stderr().is_terminal()));
        drop(io::stderr().lock().write_all(text.as_bytes()));
    }
}

/// Writes one JSON document to standard output.
///
/// # Errors
/// As [`Ui::data`].
pub(crate) fn document(document: &Value) -> Result<(), CliError> {
    write_out(format!("{document}\n").as_bytes())
}

/// A heading such as `justapi 0.1.0  serve`.
pub(crate) fn heading(text: &str) -> String {
    format!("{BOLD}{text}{BOLD:#}")
}

/// A URL or path that can be followed.
pub(crate) fn link(text: &str) -> String {
    format!("{LINK}{text}{LINK:#}")
}

/// Background that the eye may skip.
pub(crate) fn faint(text: &str) -> String {
    format!("{FAINT}{text}{FAINT:#}")
}

/// Something that went well.
pub(crate) fn good(text: &str) -> String {
    format!("{GOOD}{text}{GOOD:#}")
}

/// Something that went wrong.
pub(crate) fn bad(text: &str) -> String {
    format!("{ERROR}{text}{ERROR:#}")
}

/// Something that wants a look.
pub(crate) fn odd(text: &str) -> String {
    format!("{WARNING}{text}{WARNING:#}")
}

/// An arrow, in ASCII where the locale is not UTF-8.
pub(crate) fn arrow() -> &'static str {
    if is_utf8() { "➜" } else { "->" }
}

/// Whether the locale's characters are those of Unicode.
pub(crate) fn is_utf8() -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(|name| env::var(name).ok().filter(|value| !value.is_empty()))
        .unwrap_or_default()
        .to_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// The text with its colours, or without.
fn fit(text: &str, color: bool) -> String {
    if color {
        text.to_owned()
    } else {
        anstream::adapter::strip_str(text).to_string()
    }
}

fn write_out(bytes: &[u8]) -> Result<(), CliError> {
    let mut stdout = io::stdout().lock();
    stdout
        .write_all(bytes)
        .and_then(|()| stdout.flush())
        .map_err(|error| CliError::output(&error))
}

/// Whether a stream gets colours: the flag, then `NO_COLOR`, `CLICOLOR_FORCE`
/// and `FORCE_COLOR`, `CLICOLOR=0` and `TERM=dumb`, then the terminal.
fn color_for(color: Color, is_terminal: bool) -> bool {
    let set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    let is = |name, value: &str| env::var_os(name).is_some_and(|found| found == value);
    let forced = |name| set(name) && !is(name, "0");
    match color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto if set("NO_COLOR") => false,
        Color::Auto if forced("CLICOLOR_FORCE") || forced("FORCE_COLOR") => true,
        Color::Auto => is_terminal && !is("CLICOLOR", "0") && !is("TERM", "dumb"),
    }
}

fn render_error(error: &CliError) -> String {
    let mut text = String::new();
    let code = error.code().as_str();
    line(
        &mut text,
        format_args!(
            "{ERROR}error[{code}]{ERROR:#}{BOLD}: {}{BOLD:#}",
            error.message()
        ),
    );
    if let Some(location) = error.location() {
        line(&mut text, format_args!("  --> {}", place(location)));
    }
    for (label, detail) in error.details() {
        line(&mut text, format_args!("  {label:<9} {detail}"));
    }
    if let Some(hint) = error.hint() {
        line(&mut text, format_args!("  {GOOD}hint{GOOD:#}      {hint}"));
    }
    text
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    writeln!(text, "{arguments}").expect("strings can always grow");
}

fn place(location: &Location) -> String {
    let path = location.path.display();
    match location.column {
        Some(column) => format!("{path}:{}:{column}", location.line),
        None => format!("{path}:{}", location.line),
    }
}

fn error_document(error: &CliError) -> Value {
    let location = error.location();
    let details: Map<String, Value> = error
        .details()
        .iter()
        .map(|(label, text)| (label.replace(' ', "_"), json!(text)))
        .collect();
    json!({
        "v": 1,
        "error": {
            "code": error.code().as_str(),
            "message": error.message(),
            "details": details,
            "help": error.hint(),
            "file": location.map(|location| location.path.display().to_string()),
            "line": location.map(|location| location.line),
        }
    })
}

/// RFC 3339 in UTC with milliseconds, by Hinnant's `civil_from_days`.
fn timestamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = since.as_secs();
    let days = seconds / 86_400 + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        seconds / 3600 % 24,
        seconds / 60 % 60,
        seconds % 60,
        since.subsec_millis()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_civil() {
        for (millis, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (4_102_444_800_001, "2100-01-01T00:00:00.001Z"),
        ] {
            assert_eq!(
                timestamp(UNIX_EPOCH + Duration::from_millis(millis)),
                expected
            );
        }
    }

    #[test]
    fn errors_have_the_house_form() {
        let error = CliError::new(Code::AddressInUse, "cannot listen on 127.0.0.1:1: in use")
            .at(Location::new(std::path::Path::new("a.toml"), 3, Some(8)))
            .with_detail("held by", "python3   (pid 1)")
            .with_hint("use `--port 2`");
        assert_eq!(
            anstream::adapter::strip_str(&render_error(&error)).to_string(),
            "error[JA501]: cannot listen on 127.0.0.1:1: in use\n  --> a.toml:3:8\n  \
             held by   python3   (pid 1)\n  hint      use `--port 2`\n"
        );
        let document = error_document(&error);
        assert_eq!(document["error"]["code"], "JA501");
        assert_eq!(document["error"]["line"], 3);
        assert_eq!(document["error"]["details"]["held_by"], "python3   (pid 1)");
    }

    #[test]
    fn the_flag_decides_colours() {
        assert!(color_for(Color::Always, false));
        assert!(!color_for(Color::Never, true));
    }
}
