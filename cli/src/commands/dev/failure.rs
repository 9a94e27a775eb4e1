//! Why new code does not serve, and how that is shown: in the terminal, as a
//! page, as text and as JSON.
//!
//! Guarantee: the place in the user's own code comes first.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anstream::adapter::strip_str;
use serde_json::{Value, json};

use super::watch::shown;
use crate::commands::serve::python::worker::Diagnostic;
use crate::error::CliError;

/// Lines shown around the one that is wrong.
const CONTEXT_LINES: usize = 3;
/// Longest source that is read for them.
const MAX_SOURCE_BYTES: u64 = 1024 * 1024;
/// Lines of a traceback in the terminal.
const MAX_TRACE_LINES: usize = 40;
/// Lines of a compiler in the terminal.
const MAX_OUTPUT_LINES: usize = 120;
/// Begins the place of a panic.
const PANICKED: &str = " panicked at ";

/// What stands before the way to an exception, or to the next one of a chain,
/// which has no heading of its own where the file does not even parse.
const BEGINNINGS: [&str; 3] = [
    "Traceback (most recent call last)",
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
];

/// Why it does not serve.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Failure {
    /// What did not work, such as `importing app:app failed`.
    pub(crate) what: String,
    /// `NameError: name 'x' is not defined`, if an exception is the reason.
    pub(crate) exception: Option<String>,
    /// What the interpreter or the compiler has said.
    pub(crate) trace: Option<String>,
    pub(crate) frames: Vec<Frame>,
    pub(crate) hint: Option<String>,
    /// The lines around [`Self::place`], by number.
    pub(crate) source: Vec<(usize, String)>,
    /// What a compiler or a program has said, which shows the place by itself.
    pub(crate) output: Option<Output>,
}

/// What somebody else has said of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
    /// A compiler, or cargo.
    Build,
    /// The program itself.
    Program,
}

/// One call on the way to the failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) file: PathBuf,
    pub(crate) line: usize,
    pub(crate) function: Option<String>,
    /// Whether it is in the user's own code.
    pub(crate) is_own: bool,
}

impl Failure {
    /// A failure without an exception.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            ..Self::default()
        }
    }

    /// A failure with what the interpreter has said of it.
    pub(crate) fn traced(what: impl Into<String>, trace: &str) -> Self {
        let mut failure = Self::new(what);
        let trace = trace.trim_end();
        failure.frames = frames(trace);
        failure.exception = exception(trace);
        failure.trace = Some(trace.to_owned());
        if let Some(place) = failure.place() {
            failure.source = source_around(&place.file, place.line);
        }
        failure
    }

    /// A failed build, with what the compiler has found and what cargo has said.
    pub(crate) fn built(what: impl Into<String>, errors: &[Diagnostic], said: &str) -> Self {
        let mut failure = Self::new(what);
        if errors.is_empty() && said.trim().is_empty() {
            return failure;
        }
        failure.output = Some(Output::Build);
        let first = errors.first().map(|error| error.message.clone());
        let is_error = |line: &&str| line.starts_with("error: ");
        failure.exception = first.or_else(|| said.lines().find(is_error).map(str::to_owned));
        let rendered = errors.iter().map(|one| one.rendered.trim_end());
        // That there were errors is said by each of them.
        failure.trace = Some(match errors {
            [] => said.trim_end().to_owned(),
            _ => rendered.collect::<Vec<_>>().join("\n"),
        });
        let place = errors
            .iter()
            .find_map(|error| Some((error.file.clone()?, error.line)));
        if let Some((file, line)) = place {
            failure.found_at(file, line);
        }
        failure
    }

    /// A program that has ended, with the last that it has said; `find` looks for
    /// a file that it names.
    pub(crate) fn ended(
        what: impl Into<String>,
        words: &str,
        find: impl Fn(&Path) -> Option<PathBuf>,
    ) -> Self {
        let mut failure = Self::new(what);
        let words = words.trim_end();
        if words.is_empty() {
            return failure;
        }
        failure.output = Some(Output::Program);
        failure.trace = Some(words.to_owned());
        let lines: Vec<&str> = words.lines().collect();
        match lines.iter().position(|line| line.contains(PANICKED)) {
            Some(index) => {
                failure.exception = lines
                    .get(index + 1)
                    .map(|message| format!("panicked: {message}"));
                if let Some((file, line)) = panic_place(lines[index])
                    && let Some(file) = find(Path::new(file))
                {
                    failure.found_at(file, line);
                }
            }
            None => failure.exception = lines.last().map(|line| (*line).to_owned()),
        }
        failure
    }

    fn found_at(&mut self, file: PathBuf, line: usize) {
        self.source = source_around(&file, line);
        self.frames.push(Frame {
            file,
            line,
            function: None,
            is_own: true,
        });
    }

    /// A failure of this program's own.
    pub(crate) fn of(error: &CliError) -> Self {
        let mut failure = Self::new(error.message());
        failure.hint = error.hint().map(str::to_owned);
        if let Some(location) = error.location() {
            let file = fs::canonicalize(&location.path).unwrap_or(location.path.clone());
            failure.found_at(file, location.line);
        }
        failure
    }

    /// Where it went wrong: the last of the user's own lines.
    pub(crate) fn place(&self) -> Option<&Frame> {
        let own = self.frames.iter().rfind(|frame| frame.is_own);
        own.or(self.frames.last())
    }

    /// In one line.
    pub(crate) fn summary(&self) -> &str {
        self.exception.as_deref().unwrap_or(&self.what)
    }

    /// For the terminal, under the line that says that it failed.
    pub(crate) fn details(&self, root: &Path) -> String {
        let mut text = String::new();
        let shows_place = self.output == Some(Output::Build);
        if let Some(place) = self.place().filter(|_| !shows_place) {
            line(
                &mut text,
                &format!("  --> {}:{}", shown(&place.file, root), place.line),
            );
            for (number, source) in &self.source {
                let mark = if *number == place.line { '>' } else { ' ' };
                line(&mut text, &format!("  {mark} {number:4} | {source}"));
            }
        }
        if let Some(exception) = self.exception.as_ref().filter(|_| !shows_place) {
            line(&mut text, &format!("  {exception}"));
        }
        match (&self.trace, self.output) {
            // The first error is the one to mend first.
            (Some(trace), Some(Output::Build)) => {
                let lines: Vec<&str> = trace.lines().collect();
                for one in lines.iter().take(MAX_OUTPUT_LINES) {
                    line(&mut text, &format!("  {one}"));
                }
                if let Some(skipped @ 1..) = lines.len().checked_sub(MAX_OUTPUT_LINES) {
                    line(&mut text, &format!("  ({skipped} lines more)"));
                }
            }
            // The terminal has it already.
            (_, Some(Output::Program)) => {}
            (Some(trace), None) if self.frames.len() > 1 || self.exception.is_none() => {
                let lines: Vec<&str> = trace.lines().collect();
                let skipped = lines.len().saturating_sub(MAX_TRACE_LINES);
                if skipped > 0 {
                    line(&mut text, &format!("  ({skipped} lines before)"));
                }
                for one in &lines[skipped..] {
                    line(&mut text, &format!("  {one}"));
                }
            }
            _ => {}
        }
        if let Some(hint) = &self.hint {
            line(&mut text, &format!("  hint      {hint}"));
        }
        text
    }

    /// What was said of it, without the colours of a terminal.
    pub(crate) fn plain_trace(&self) -> Option<String> {
        self.trace
            .as_ref()
            .map(|trace| strip_str(trace).to_string())
    }

    /// For programs.
    pub(crate) fn json(&self, root: &Path) -> Value {
        let place = self.place();
        json!({
            "what": self.what,
            "exception": self.exception,
            "file": place.map(|place| shown(&place.file, root)),
            "line": place.map(|place| place.line),
            "source": self.source.iter().map(|(number, text)| json!({
                "line": number,
                "text": text,
            })).collect::<Vec<_>>(),
            "frames": self.frames.iter().map(|frame| json!({
                "file": shown(&frame.file, root),
                "line": frame.line,
                "function": frame.function,
                "own": frame.is_own,
            })).collect::<Vec<_>>(),
            "traceback": self.plain_trace(),
            "hint": self.hint,
        })
    }
}

/// The place in `thread 'main' (7) panicked at src/main.rs:12:5:`.
fn panic_place(line: &str) -> Option<(&str, usize)> {
    let (_, place) = line.split_once(PANICKED)?;
    let mut parts = place.trim_end_matches(':').rsplitn(3, ':');
    let (_, line, file) = (parts.next()?, parts.next()?, parts.next()?);
    Some((file, line.parse().ok()?))
}

fn line(text: &mut String, line: &str) {
    writeln!(text, "{}", line.trim_end()).expect("strings can always grow");
}

/// The first line of the exception: a caused one is the last that is told of,
/// and what it says may have more lines.
fn exception(trace: &str) -> Option<String> {
    let mut lines = whole_lines(trace);
    let is_begin = |line: &String| BEGINNINGS.iter().any(|begin| line.starts_with(begin));
    let begin = lines
        .iter()
        .rposition(is_begin)
        .map_or(0, |begin| begin + 1);
    let is_text = |line: &String| !line.is_empty() && !line.starts_with([' ', '\t']);
    lines.drain(begin..).find(is_text)
}

/// The lines of a traceback; a path with line breaks in it is of one of them.
fn whole_lines(trace: &str) -> Vec<String> {
    let is_open = |line: &str| line.starts_with("  File \"") && !line.contains("\", line ");
    let mut found: Vec<String> = Vec::new();
    for line in trace.lines() {
        match found.last_mut() {
            Some(last) if is_open(last) => {
                last.push('\n');
                last.push_str(line);
            }
            _ => found.push(line.to_owned()),
        }
    }
    found
}

/// The frames that a traceback names, the last call last.
fn frames(trace: &str) -> Vec<Frame> {
    let mut frames = Vec::new();
    for line in whole_lines(trace) {
        // Each exception of a chain has its own way to it; the last one counts.
        if line.starts_with("Traceback (most recent call last)") {
            frames.clear();
        }
        frames.extend(frame(&line));
    }
    frames
}

/// `  File "app.py", line 3, in handler`, and without the last part where a
/// file does not even parse.
fn frame(line: &str) -> Option<Frame> {
    let rest = line.trim_start().strip_prefix("File \"")?;
    let (file, rest) = rest.rsplit_once("\", line ")?;
    let (number, function) = match rest.split_once(", in ") {
        Some((number, function)) => (number, Some(function.to_owned())),
        None => (rest, None),
    };
    Some(Frame {
        is_own: is_own(file),
        file: PathBuf::from(file),
        line: number.trim().parse().ok()?,
        function,
    })
}

fn is_own(file: &str) -> bool {
    let is_of_environment = ["/site-packages/", "/dist-packages/", "/lib/python3"];
    !file.starts_with('<') && !is_of_environment.iter().any(|part| file.contains(part))
}

fn source_around(file: &Path, place: usize) -> Vec<(usize, String)> {
    let is_readable = fs::metadata(file).is_ok_and(|one| one.len() <= MAX_SOURCE_BYTES);
    let text = if is_readable {
        fs::read(file).unwrap_or_default()
    } else {
        Vec::new()
    };
    let text = String::from_utf8_lossy(&text);
    let first = place.saturating_sub(CONTEXT_LINES).max(1);
    text.lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.to_owned()))
        .skip(first - 1)
        .take_while(|(number, _)| *number <= place + CONTEXT_LINES)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "Traceback (most recent call last):
  File \"/p/app.py\", line 2, in <module>
    import routes
  File \"/p/a b/routes.py\", line 7, in <module>
    thing = make()
            ^^^^^^
  File \"/p/.venv/lib/python3.11/site-packages/x/y.py\", line 9, in make
    raise ValueError(1)
ValueError: 1

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File \"/p/app.py\", line 4, in <module>
    use(thing)
  File \"/p/.venv/lib/python3.11/site-packages/x/z.py\", line 1, in use
KeyError: 'thing'";

    #[test]
    fn the_users_own_line_is_the_place() {
        let failure = Failure::traced("importing app:app failed", TRACE);
        let place = failure.place().expect("a place");
        assert_eq!(
            (place.file.as_path(), place.line),
            (Path::new("/p/app.py"), 4)
        );
        assert_eq!(failure.summary(), "KeyError: 'thing'");
        assert_eq!(failure.frames.len(), 2);
        let before = frames(TRACE.split_once("\n\nDuring").expect("both").0);
        let own: Vec<_> = before.iter().map(|frame| frame.is_own).collect();
        assert_eq!(own, [true, true, false]);
        assert_eq!(before[1].file, Path::new("/p/a b/routes.py"));
        assert_eq!(before[1].function.as_deref(), Some("<module>"));
    }

    #[test]
    fn an_exception_of_many_lines_is_named_by_its_first() {
        let message = "pydantic.ValidationError: 2 errors for Settings\nport\n  missing\n\nhost";
        let chained = format!("{TRACE}\nand more\n\n{}", BEGINNINGS[2]);
        let cases = [
            format!("{TRACE}\nof a\nmapping"),
            format!("{chained}\n\n  File \"/p/app.py\", line 1\n    f(\n{message}"),
            format!(
                "{chained}\n\n{}:\n  File \"/p/a.py\", line 1\n{message}",
                BEGINNINGS[0]
            ),
            message.to_owned(),
        ];
        let expected = [
            "KeyError: 'thing'",
            "pydantic.ValidationError: 2 errors for Settings",
            "pydantic.ValidationError: 2 errors for Settings",
            "pydantic.ValidationError: 2 errors for Settings",
        ];
        for (trace, expected) in cases.iter().zip(expected) {
            let failure = Failure::traced("importing app:app failed", trace);
            assert_eq!(failure.summary(), expected, "{trace}");
        }
        assert_eq!(exception("  File \"/p/app.py\", line 1"), None);
    }

    #[test]
    fn a_path_with_line_breaks_is_a_place() {
        let trace =
            "  File \"/p/a\nb\n/app.py\", line 1\n    f(\n     ^\nSyntaxError: invalid syntax";
        let failure = Failure::traced("importing app:app failed", trace);
        assert_eq!(failure.summary(), "SyntaxError: invalid syntax");
        let place = failure.place().expect("a place");
        assert_eq!(
            (place.file.as_path(), place.line),
            (Path::new("/p/a\nb\n/app.py"), 1)
        );
    }

    #[test]
    fn a_file_that_does_not_parse_has_a_place() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let file = folder.path().join("app.py");
        fs::write(&file, "a\nb\nc\nd\ndef f(:\nf\ng\nh\ni\n").expect("it is written");
        let trace = format!(
            "  File \"{}\", line 5\n    def f(:\n          ^\nSyntaxError: invalid syntax",
            file.display()
        );
        let failure = Failure::traced("importing app:app failed", &trace);
        assert_eq!(failure.place().expect("a place").line, 5);
        assert_eq!(failure.summary(), "SyntaxError: invalid syntax");
        let numbers: Vec<_> = failure.source.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [2, 3, 4, 5, 6, 7, 8]);
        let text = failure.details(folder.path());
        assert!(text.starts_with("  --> app.py:5\n       2 | b\n"), "{text}");
        assert!(text.contains("\n  >    5 | def f(:\n"), "{text}");
    }

    #[test]
    fn the_first_error_of_a_compiler_is_the_place() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let file = folder.path().join("main.rs");
        fs::write(&file, "a\nb\nc\n").expect("it is written");
        let error = |message: &str, line| Diagnostic {
            message: message.to_owned(),
            file: Some(file.clone()),
            line,
            rendered: format!("\x1b[31m{message}\x1b[0m\n --> main.rs:{line}\n\n"),
        };
        let errors = [error("error: no", 2), error("error: neither", 3)];
        let failure = Failure::built("the build failed: 2 errors", &errors, "error: could not");
        assert_eq!(failure.summary(), "error: no");
        assert_eq!(failure.place().expect("a place").line, 2);
        assert_eq!(failure.source.len(), 3);
        let plain = "error: no\n --> main.rs:2\nerror: neither\n --> main.rs:3";
        assert_eq!(failure.plain_trace().as_deref(), Some(plain));
        let expected = "  \x1b[31merror: no\x1b[0m\n   --> main.rs:2\n  \x1b[31merror: neither";
        assert!(failure.details(folder.path()).starts_with(expected));
        // What cargo itself finds wrong.
        let said = "warning: odd\nerror: no package `x`\n\nCaused by:\n  y\n";
        let failure = Failure::built("the build failed", &[], said);
        assert_eq!(failure.summary(), "error: no package `x`");
        assert!(
            failure
                .details(folder.path())
                .ends_with("  Caused by:\n    y\n")
        );
    }

    #[test]
    fn a_panic_has_a_place() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let file = folder.path().join("main.rs");
        fs::write(&file, "a\nb\n").expect("it is written");
        let find = |named: &Path| (named == Path::new("src/main.rs")).then(|| file.clone());
        let words = "hello\nthread 'main' (71) panicked at src/main.rs:2:5:\nno way\nnote: run\n";
        let failure = Failure::ended("the program ended", words, find);
        assert_eq!(failure.summary(), "panicked: no way");
        let place = failure.place().expect("a place");
        assert_eq!((&place.file, place.line), (&file, 2));
        let failure = Failure::ended("the program ended", "one\nError: no port\n", find);
        assert_eq!(failure.summary(), "Error: no port");
        assert_eq!(failure.place(), None);
        let failure = Failure::ended("the program ended", "\n", find);
        assert_eq!(failure.summary(), "the program ended");
    }

    #[test]
    fn words_without_a_trace_are_shown_as_they_are() {
        let failure = Failure::new("the worker ended before it served: killed by SIGABRT");
        assert_eq!(failure.place(), None);
        assert!(failure.summary().ends_with("SIGABRT"));
        assert_eq!(failure.details(Path::new("/p")), "");
    }
}
