//! What `justapi dev` says: lines for people on standard error, events for
//! programs on standard output.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use serde_json::{Map, Value, json};
use signal_hook::consts::SIGINT;

use super::failure::Failure;
use super::keys::{self, Key};
use super::watch::{Change, Mode, shown};
use crate::commands::serve::python::worker::Whereabouts;
use crate::commands::serve::signal_name;
use crate::config::show_time;
use crate::error::CliError;
use crate::ui::{Ui, arrow, faint, good, heading, is_utf8, link, odd};

const BAD: Style = AnsiColor::Red.on_default().bold();
/// Files that a line names.
const MAX_NAMED: usize = 3;

/// What the first lines say.
#[derive(Debug)]
pub(super) struct Heading {
    pub(super) app: String,
    /// Version of the interpreter, of an application in Python.
    pub(super) python: Option<String>,
    pub(super) urls: Vec<String>,
    /// Mode and number of folders, once it has begun.
    pub(super) watching: Option<(Mode, usize)>,
    pub(super) has_keys: bool,
}

/// What is told with each verdict on new code.
#[derive(Debug, Clone, Copy)]
pub(super) struct Verdict<'a> {
    pub(super) changes: &'a [Change],
    /// Since the first of them.
    pub(super) elapsed: Duration,
    /// Whether newer code has waited for it.
    pub(super) is_superseded: bool,
}

impl Verdict<'_> {
    /// Of code that nobody has changed.
    const FIRST: Verdict<'static> = Verdict {
        changes: &[],
        elapsed: Duration::ZERO,
        is_superseded: false,
    };

    /// What stands behind it in the terminal.
    fn mark(&self) -> String {
        if self.is_superseded {
            format!("   {}", faint("newer code starts"))
        } else {
            String::new()
        }
    }
}

#[derive(Debug)]
pub(super) struct Voice<'a> {
    pub(super) ui: &'a Ui,
    pub(super) root: PathBuf,
    pub(super) app: String,
    pub(super) is_verbose: bool,
    /// The page that the key `o` opens.
    pub(super) url: Option<String>,
}

impl Voice<'_> {
    /// Where it listens, while the code starts for the first time.
    pub(super) fn starting(&self, heading_of: &Heading) -> Result<(), CliError> {
        let Heading {
            app,
            python,
            urls,
            watching,
            has_keys,
        } = heading_of;
        let language = match python {
            Some(version) => format!("Python {version}"),
            None => "Rust".to_owned(),
        };
        let mut lines = vec![format!(
            "{}  dev   {app}   {}",
            heading(&format!("justapi {}", env!("CARGO_PKG_VERSION"))),
            faint(&format!("{language}   pid {}", std::process::id()))
        )];
        for url in urls {
            lines.push(format!("  {} {}", arrow(), link(url)));
        }
        let mode = watching.map_or_else(String::new, |(mode, num_folders)| match mode {
            Mode::Native => format!(" (native, {num_folders} folders)"),
            Mode::Polling(period) => format!(" (polling every {} ms)", period.as_millis()),
        });
        let keys = if *has_keys { keys::SUMMARY } else { "" };
        lines.push(faint(&format!(
            "  watching {}{mode}{keys}",
            self.root.display()
        )));
        self.ui.event(
            "starting",
            Value::Object(fields_of(heading_of)),
            &(lines.join("\n") + "\n"),
        )
    }

    /// The first code serves.
    pub(super) fn ready(
        &self,
        heading: &Heading,
        pid: Option<i32>,
        elapsed: Duration,
    ) -> Result<(), CliError> {
        self.listening(
            heading,
            &json!({"ok": true, "worker": pid, "ms": milliseconds(elapsed)}),
            &format!("  ready in {} ms\n", elapsed.as_millis()),
        )
    }

    /// The first code does not work.
    pub(super) fn failed_first(
        &self,
        heading: &Heading,
        failure: &Failure,
    ) -> Result<(), CliError> {
        self.listening(heading, &json!({"ok": false, "worker": null}), "")?;
        self.failed(&Verdict::FIRST, failure, false)
    }

    fn listening(&self, heading: &Heading, more: &Value, human: &str) -> Result<(), CliError> {
        let mut fields = fields_of(heading);
        if let Value::Object(more) = more {
            fields.extend(more.clone());
        }
        self.ui.event("listening", Value::Object(fields), human)
    }

    /// Code takes long to start.
    pub(super) fn waits(&self, at: &Whereabouts, elapsed: Duration) -> Result<(), CliError> {
        let what = match at.during.as_str() {
            "startup" => "starting up",
            _ => "importing",
        };
        let place = match (self.line_of(at), &at.module) {
            (Some(line), Some(module)) => format!(": {line} imports {module}"),
            (Some(line), None) => format!(": it is at {line}"),
            (None, _) => String::new(),
        };
        self.waiting(
            &at.during,
            Some(at),
            elapsed,
            &format!("still {what} {} ({} s){place}", self.app, elapsed.as_secs()),
        )
    }

    /// Code has to wait for the one that runs to end.
    pub(super) fn waits_for_end(&self, elapsed: Duration) -> Result<(), CliError> {
        let seconds = elapsed.as_secs();
        let text = format!("still waiting for the running code to end ({seconds} s)");
        self.waiting("end", None, elapsed, &text)
    }

    fn waiting(
        &self,
        reason: &str,
        at: Option<&Whereabouts>,
        elapsed: Duration,
        text: &str,
    ) -> Result<(), CliError> {
        let file = at.and_then(|at| at.file.as_deref());
        self.ui.event(
            "waiting",
            json!({
                "for": reason,
                "ms": milliseconds(elapsed),
                "file": file.map(|file| shown(file, &self.root)),
                "line": at.and_then(|at| at.line),
                "module": at.and_then(|at| at.module.as_deref()),
            }),
            &format!("{}\n", faint(text)),
        )
    }

    fn line_of(&self, at: &Whereabouts) -> Option<String> {
        let file = shown(at.file.as_deref()?, &self.root);
        Some(format!("{file}:{}", at.line?))
    }

    pub(super) fn watching(
        &self,
        mode: Mode,
        num_files: usize,
        num_folders: usize,
    ) -> Result<(), CliError> {
        let period = match mode {
            Mode::Native => None,
            Mode::Polling(period) => Some(period.as_millis() as u64),
        };
        self.ui.event(
            "watching",
            json!({
                "root": self.root,
                "poll_ms": period,
                "files": num_files,
                "folders": num_folders,
            }),
            "",
        )
    }

    /// Code is built, before it can start.
    pub(super) fn building(&self, changes: &[Change], is_first: bool) -> Result<(), CliError> {
        let app = &self.app;
        let text = if is_first {
            format!("building {app}\n")
        } else {
            String::new()
        };
        let fields = json!({"application": app, "files": self.names(changes)});
        self.ui.event("building", fields, &text)
    }

    /// Code has been built; it is the one that serves if `is_same`.
    pub(super) fn built(&self, elapsed: Duration, is_same: bool) -> Result<(), CliError> {
        let fields = json!({"ms": milliseconds(elapsed), "changed": !is_same});
        self.ui.event("built", fields, "")
    }

    /// New code serves.
    pub(super) fn reloaded(
        &self,
        verdict: &Verdict<'_>,
        boot: Duration,
        pid: Option<i32>,
    ) -> Result<(), CliError> {
        self.ui.event(
            "reload",
            json!({
                "ok": true,
                "files": self.names(verdict.changes),
                "ms": milliseconds(verdict.elapsed),
                "boot_ms": milliseconds(boot),
                "worker": pid,
                "superseded": verdict.is_superseded,
            }),
            &format!(
                "{} {}   served in {} ms{}\n",
                good(if is_utf8() { "↻" } else { "reload" }),
                self.cause(verdict.changes),
                verdict.elapsed.as_millis(),
                verdict.mark(),
            ),
        )
    }

    /// New code does not work.
    pub(super) fn failed(
        &self,
        verdict: &Verdict<'_>,
        failure: &Failure,
        is_stale: bool,
    ) -> Result<(), CliError> {
        let place = match failure.place() {
            Some(place) => format!("{}:{}", shown(&place.file, &self.root), place.line),
            None => self.cause(verdict.changes),
        };
        let who = if is_stale {
            "the last good code still serves"
        } else {
            "nothing serves until it works"
        };
        let head = format!(
            "{BAD}{}{BAD:#} {place}   {}   {}{}\n",
            if is_utf8() { "✗" } else { "x" },
            failure.what,
            faint(who),
            verdict.mark(),
        );
        self.ui.event(
            "failed",
            json!({
                "ok": false,
                "files": self.names(verdict.changes),
                "ms": milliseconds(verdict.elapsed),
                "stale": is_stale,
                "superseded": verdict.is_superseded,
                "error": failure.json(&self.root),
            }),
            &(head + &failure.details(&self.root)),
        )
    }

    /// The worker that served has ended.
    pub(super) fn crashed(&self, how: &str) -> Result<(), CliError> {
        self.ui.event(
            "crashed",
            json!({"how": how}),
            &format!(
                "{BAD}{}{BAD:#} the worker has ended by itself: {how}\n",
                if is_utf8() { "✗" } else { "x" },
            ),
        )
    }

    /// A worker did not end in time, and was ended by force.
    pub(super) fn killed(
        &self,
        pid: i32,
        given: Duration,
        at: Option<&Whereabouts>,
    ) -> Result<(), CliError> {
        let during = at.map(|at| match at.during.as_str() {
            "lifespan" => "the shutdown of its lifespan had not ended",
            "background tasks" => "a background task had not ended",
            _ => "a request had not ended",
        });
        let line = at.and_then(|at| self.line_of(at));
        let what = match (during, line) {
            (Some(during), Some(line)) => format!(": {during}, at {line}"),
            (Some(during), None) => format!(": {during}"),
            (None, _) => String::new(),
        };
        let file = at.and_then(|at| at.file.as_deref());
        self.ui.event(
            "killed",
            json!({
                "worker": pid,
                "ms": milliseconds(given),
                "for": at.map(|at| at.during.as_str()),
                "file": file.map(|file| shown(file, &self.root)),
                "line": at.and_then(|at| at.line),
            }),
            &format!(
                "{} a worker did not end within {}, and was killed{what}   {}\n",
                odd("!"),
                show_time(given),
                faint("--graceful gives it longer"),
            ),
        )
    }

    /// Pages or styles have changed, no code.
    pub(super) fn pages(&self, changes: &[Change], num_pages: usize) -> Result<(), CliError> {
        let plural = if num_pages == 1 { "" } else { "s" };
        self.ui.event(
            "pages",
            json!({"files": self.names(changes), "pages": num_pages}),
            &format!(
                "{} {}   {num_pages} page{plural} told\n",
                good(if is_utf8() { "↻" } else { "reload" }),
                self.cause(changes),
            ),
        )
    }

    pub(super) fn note(&self, text: &str) -> Result<(), CliError> {
        self.ui
            .event("note", json!({"text": text}), &format!("{text}\n"))
    }

    /// Settings have changed that count at a start alone.
    pub(super) fn needs_restart(&self, keys: &[&str]) -> Result<(), CliError> {
        let has = if keys.len() == 1 { "has" } else { "have" };
        let keys_named = keys.join(", ");
        let text =
            format!("{keys_named} {has} changed: that counts after a restart of justapi dev");
        let human = format!("{} {text}\n", odd("!"));
        self.ui
            .event("note", json!({"text": text, "settings": keys}), &human)
    }

    pub(super) fn verbose(&self, text: &str) {
        if self.is_verbose {
            self.ui.note(&format!("{}\n", faint(text)));
        }
    }

    pub(super) fn stopping(&self, signal: i32, is_terminal: bool) -> Result<(), CliError> {
        // The terminal has shown `^C` in this line.
        let gap = if signal == SIGINT && is_terminal {
            "\n"
        } else {
            ""
        };
        self.ui.event(
            "stopping",
            json!({"signal": signal_name(signal)}),
            &format!("{gap}stopping; a second signal ends everything at once\n"),
        )
    }

    /// A key that has to do with this side alone.
    pub(super) fn key(&self, key: Key) {
        match key {
            Key::Help => self.ui.note(keys::HELP),
            Key::Clear => self.ui.note("\x1b[H\x1b[2J\x1b[3J"),
            Key::Open => {
                if let Some(url) = &self.url
                    && let Err(error) = keys::open(url)
                {
                    self.ui.note(&format!("{url} cannot be opened: {error}\n"));
                }
            }
            Key::Reload | Key::Quit => {}
        }
    }

    fn names(&self, changes: &[Change]) -> Vec<Value> {
        let names = changes
            .iter()
            .map(|change| json!(shown(&change.path, &self.root)));
        names.collect()
    }

    /// The changed files, or the word that there are none.
    fn cause(&self, changes: &[Change]) -> String {
        cause(changes, &self.root)
    }
}

/// What is known before the code has started.
fn fields_of(heading: &Heading) -> Map<String, Value> {
    let fields = json!({
        "url": heading.urls.first(),
        "urls": heading.urls,
        "application": heading.app,
        "python": heading.python,
        "pid": std::process::id(),
    });
    match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn cause(changes: &[Change], root: &Path) -> String {
    if changes.is_empty() {
        return "the application".to_owned();
    }
    let named = changes.iter().take(MAX_NAMED);
    let named: Vec<String> = named.map(|change| shown(&change.path, root)).collect();
    match changes.len().saturating_sub(MAX_NAMED) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 10_000.0).round() / 10.0
}
