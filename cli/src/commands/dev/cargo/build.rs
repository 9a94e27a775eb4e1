//! One run of `cargo build`: what the compiler says, and what it has made.
//!
//! Messages are those of `cargo build --message-format json`, see
//! <https://doc.rust-lang.org/cargo/reference/external-tools.html>.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;

use anstream::adapter::strip_str;
use serde::Deserialize;

use super::package::Names;
use crate::commands::serve::python::worker::{Built, Diagnostic, how};

/// Errors that are told of one build.
const MAX_ERRORS: usize = 50;
/// Length of one that is told.
const MAX_RENDERED_BYTES: usize = 8 * 1024;
/// Of what cargo itself says.
const MAX_SAID_BYTES: usize = 32 * 1024;
/// What servers are most often built on.
const CORE: &str = "justapi-core";
/// What cargo says while it waits for another one.
const WAITS: &str = "    Blocking";

/// What is built.
#[derive(Debug, Deserialize)]
pub(super) struct Order {
    pub(super) cargo: PathBuf,
    pub(super) manifest: PathBuf,
    pub(super) bin: Option<String>,
    /// Whether it is shown what cargo is at.
    pub(super) is_shown: bool,
    pub(super) has_color: bool,
}

/// Why there is nothing to run.
#[derive(Debug, Default)]
pub(super) struct Fault {
    pub(super) what: String,
    pub(super) hint: Option<String>,
    pub(super) diagnostics: Vec<Diagnostic>,
    /// What cargo says of it.
    pub(super) said: String,
}

impl Fault {
    fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            ..Self::default()
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(tag = "reason")]
enum Message {
    #[serde(rename = "compiler-message")]
    Said(FromCompiler),
    #[serde(rename = "compiler-artifact")]
    Made(Artifact),
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
struct FromCompiler {
    manifest_path: PathBuf,
    message: Said,
}

#[derive(Debug, Deserialize)]
struct Artifact {
    package_id: String,
    manifest_path: PathBuf,
    target: Target,
    executable: Option<PathBuf>,
    fresh: bool,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Said {
    message: String,
    level: String,
    code: Option<Number>,
    spans: Vec<Span>,
    rendered: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Number {
    code: String,
}

#[derive(Debug, Deserialize)]
struct Span {
    file_name: PathBuf,
    line_start: usize,
    is_primary: bool,
    expansion: Option<Box<Expansion>>,
}

#[derive(Debug, Deserialize)]
struct Expansion {
    span: Span,
}

/// Everything that one build has told.
#[derive(Debug, Default)]
struct Told {
    errors: Vec<Diagnostic>,
    num_errors: usize,
    binaries: Vec<Artifact>,
    /// Manifests of packages that are on this machine.
    manifests: BTreeSet<PathBuf>,
}

impl Order {
    /// Runs its [`Self::command`], and finds what was built and what it is made of.
    pub(super) fn build(&self, mut command: Command) -> Result<Built, Fault> {
        let failed = |error: &io::Error| {
            Fault::new(format!("{} cannot be run: {error}", self.cargo.display()))
        };
        let mut cargo = command.spawn().map_err(|error| failed(&error))?;
        let messages = cargo.stdout.take().expect("it is a pipe");
        let progress = cargo.stderr.take().expect("it is a pipe");
        let (told, said) = thread::scope(|scope| {
            let said = scope.spawn(|| self.show(BufReader::new(progress)));
            let told = hear(BufReader::new(messages));
            (told, said.join().unwrap_or_default())
        });
        let status = cargo.wait().map_err(|error| failed(&error))?;
        if !status.success() {
            return Err(self.fault(told, said, status));
        }
        let manifests = told.manifests;
        let chosen = self.choose(told.binaries)?;
        let executable = chosen.executable.unwrap_or_default();
        let files = sources(&executable, &manifests);
        Ok(Built {
            is_fresh: chosen.fresh,
            executable,
            files,
        })
    }

    /// How cargo is run.
    pub(super) fn command(&self) -> Command {
        let format = if self.has_color {
            "json-diagnostic-rendered-ansi"
        } else {
            "json"
        };
        let mut command = Command::new(&self.cargo);
        command
            .args(["build", "--message-format", format, "--manifest-path"])
            .arg(&self.manifest)
            // Its settings and the toolchain are looked for from there.
            .current_dir(self.manifest.parent().unwrap_or(Path::new("/")))
            .env("CARGO_TERM_PROGRESS_WHEN", "never")
            .env(
                "CARGO_TERM_COLOR",
                if self.has_color { "always" } else { "never" },
            )
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        match &self.bin {
            Some(bin) => command.args(["--bin", bin]),
            None => command.arg("--bins"),
        };
        command
    }

    /// Shows what cargo is at; returns what it has said that is no progress.
    fn show(&self, mut progress: impl io::BufRead) -> String {
        let mut said = String::new();
        let mut line = Vec::new();
        while progress.read_until(b'\n', &mut line).unwrap_or_default() > 0 {
            let text = String::from_utf8_lossy(&line);
            let plain = strip_str(&text).to_string();
            // An error that it explains goes over many lines.
            let is_progress = said.is_empty() && plain.starts_with(' ');
            if is_progress {
                if self.is_shown || plain.starts_with(WAITS) {
                    drop(io::stderr().write_all(text.as_bytes()));
                }
            } else if said.len() < MAX_SAID_BYTES {
                said.push_str(&plain);
            }
            line.clear();
        }
        said
    }

    fn fault(&self, told: Told, said: String, status: ExitStatus) -> Fault {
        let name = self
            .bin
            .as_deref()
            .map_or_else(String::new, |bin| format!(" of {bin}"));
        let what = match told.num_errors {
            // Of a cargo that was killed nothing else tells.
            0 if said.is_empty() => format!("the build{name} failed: {}", how(&Ok(status))),
            0 => format!("the build{name} failed"),
            1 => format!("the build{name} failed: 1 error"),
            count => format!("the build{name} failed: {count} errors"),
        };
        let is_missing = said.contains("no matching package") && said.contains(CORE);
        let hint =
            format!("no registry has it: `{CORE} = {{ path = \"FOLDER\" }}`, or `git = \"URL\"`");
        Fault {
            what,
            hint: is_missing.then_some(hint),
            diagnostics: told.errors,
            said,
        }
    }

    /// The binary that is meant, of those that were built.
    fn choose(&self, mut binaries: Vec<Artifact>) -> Result<Artifact, Fault> {
        if binaries.len() > 1 {
            let is_default = |one: &Artifact| {
                Names::read(&one.manifest_path).default_run.as_ref() == Some(&one.target.name)
            };
            if let Some(index) = binaries.iter().position(is_default) {
                return Ok(binaries.swap_remove(index));
            }
        }
        let mut names: Vec<_> = binaries.iter().map(|one| one.target.name.clone()).collect();
        names.sort_unstable();
        match (binaries.pop(), names.len()) {
            (Some(only), 1) => Ok(only),
            (Some(_), _) => Err(Fault {
                hint: Some(format!("`justapi dev --bin {}` names one", names[0])),
                ..Fault::new(format!("there are several binaries: {}", names.join(", ")))
            }),
            (None, _) => Err(Fault {
                hint: Some("a package with `src/main.rs` has one".to_owned()),
                ..Fault::new(format!("{} builds no binary", self.manifest.display()))
            }),
        }
    }
}

/// Hears what is built, and shows warnings at once.
fn hear(messages: impl io::BufRead) -> Told {
    let mut told = Told::default();
    for line in messages.split(b'\n') {
        let Ok(line) = line else {
            break;
        };
        match serde_json::from_slice(&line) {
            Ok(Message::Said(FromCompiler {
                manifest_path,
                message,
            })) => told.hear(&manifest_path, &message),
            Ok(Message::Made(artifact)) => told.note(artifact),
            // Macros may print as well.
            Ok(Message::Other) | Err(_) => {}
        }
    }
    told
}

impl Told {
    fn hear(&mut self, manifest: &Path, said: &Said) {
        let rendered = said.rendered.clone().unwrap_or_default();
        if said.level != "error" {
            if said.level == "warning" && !said.spans.is_empty() {
                drop(io::stderr().write_all(rendered.as_bytes()));
            }
            return;
        }
        // It counts those that came before.
        if said.spans.is_empty() && said.message.starts_with("aborting due to") {
            return;
        }
        self.num_errors += 1;
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(diagnostic(manifest, said, &rendered));
        }
    }

    fn note(&mut self, artifact: Artifact) {
        if artifact.package_id.starts_with("path+") {
            self.manifests.insert(artifact.manifest_path.clone());
        }
        let is_binary = artifact.target.kind.iter().any(|kind| kind == "bin");
        if is_binary && artifact.executable.is_some() {
            self.binaries.push(artifact);
        }
    }
}

fn diagnostic(manifest: &Path, said: &Said, rendered: &str) -> Diagnostic {
    let place = said.spans.iter().find(|span| span.is_primary);
    let place = place.and_then(|span| written_at(manifest, span));
    let code = said
        .code
        .as_ref()
        .map(|number| format!("[{}]", number.code));
    let end = rendered.floor_char_boundary(MAX_RENDERED_BYTES);
    Diagnostic {
        message: format!("error{}: {}", code.unwrap_or_default(), said.message),
        line: place.as_ref().map_or(0, |(_, line)| *line),
        file: place.map(|(file, _)| file),
        rendered: rendered[..end].to_owned(),
    }
}

/// Where somebody has written what a span is about: code of a macro's is
/// where that is used.
fn written_at(manifest: &Path, span: &Span) -> Option<(PathBuf, usize)> {
    let found = find_file(manifest, &span.file_name).map(|file| (file, span.line_start));
    found.or_else(|| written_at(manifest, &span.expansion.as_ref()?.span))
}

/// The file that the compiler names, which counts from the folder of the
/// package or of the workspace around it.
pub(super) fn find_file(manifest: &Path, named: &Path) -> Option<PathBuf> {
    let folders = manifest.ancestors().skip(1);
    let mut candidates = folders.map(|folder| folder.join(named));
    candidates.find(|file| file.is_file())
}

/// What an executable is made of: its dependency file names the sources of
/// packages that are on this machine; the manifests and the lock are beside them.
fn sources(executable: &Path, manifests: &BTreeSet<PathBuf>) -> Vec<PathBuf> {
    let text = fs::read_to_string(executable.with_extension("d")).unwrap_or_default();
    let output = executable
        .ancestors()
        .find(|folder| folder.join("CACHEDIR.TAG").is_file());
    let named = named_in(&text).into_iter().filter(|file| file.is_file());
    let mut files: BTreeSet<PathBuf> = named.collect();
    for manifest in manifests {
        let around = manifest.ancestors().skip(1);
        let around =
            around.flat_map(|folder| ["Cargo.toml", "Cargo.lock"].map(|name| folder.join(name)));
        files.extend(around.filter(|file| file.is_file()));
        files.insert(manifest.clone());
    }
    // What the build itself writes is made of the rest.
    let is_output = |file: &Path| output.is_some_and(|output| file.starts_with(output));
    files.retain(|file| file.is_absolute() && !is_output(file));
    files.into_iter().collect()
}

/// The files of a dependency file, `executable: file file`, in which spaces of
/// names are behind a backslash.
fn named_in(text: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in text.lines() {
        let mut words = vec![String::new()];
        let mut characters = line.chars().peekable();
        while let Some(character) = characters.next() {
            match (character, characters.peek()) {
                ('\\', Some(' ')) => {
                    words.last_mut().expect("there is one").push(' ');
                    characters.next();
                }
                (' ', _) => words.push(String::new()),
                (other, _) => words.last_mut().expect("there is one").push(other),
            }
        }
        let is_head = words.first().is_some_and(|word| word.ends_with(':'));
        let named = words.into_iter().skip(usize::from(is_head));
        files.extend(named.filter(|word| !word.is_empty()).map(PathBuf::from));
    }
    files
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    fn order() -> Order {
        Order {
            cargo: PathBuf::from("cargo"),
            manifest: PathBuf::from("/p/Cargo.toml"),
            bin: None,
            is_shown: false,
            has_color: false,
        }
    }

    #[test]
    fn spaces_belong_to_names_behind_a_backslash() {
        let text = "/t/debug/a\\ b: /p/src/main.rs /p/x\\ y.html \n/t/debug/c:\n";
        let expected = ["/p/src/main.rs", "/p/x y.html"].map(PathBuf::from);
        assert_eq!(named_in(text), expected);
        assert!(named_in("").is_empty());
    }

    #[test]
    fn what_the_build_writes_is_no_source() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        for name in ["target/debug", "target/debug/build/out", "src"] {
            fs::create_dir_all(path(name)).expect("a folder");
        }
        for name in [
            "target/CACHEDIR.TAG",
            "src/main.rs",
            "Cargo.toml",
            "Cargo.lock",
        ] {
            fs::write(path(name), "").expect("a file");
        }
        let generated = path("target/debug/build/out/g.rs");
        fs::write(&generated, "").expect("a file");
        let executable = path("target/debug/x");
        let named = [path("src/main.rs"), generated, path("src/gone.rs")];
        let named = named.map(|file| file.display().to_string()).join(" ");
        fs::write(
            path("target/debug/x.d"),
            format!("{}: {named}\n", executable.display()),
        )
        .expect("a file");
        let manifests = BTreeSet::from([path("Cargo.toml")]);
        let found = sources(&executable, &manifests);
        let is_inside = |file: &&PathBuf| file.starts_with(folder.path());
        let found: Vec<_> = found.iter().filter(is_inside).cloned().collect();
        assert_eq!(found, ["Cargo.lock", "Cargo.toml", "src/main.rs"].map(path));
    }

    #[test]
    fn errors_are_where_they_were_written() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let file = folder.path().join("crates/a/src/lib.rs");
        fs::create_dir_all(file.parent().expect("it has one")).expect("a folder");
        fs::write(&file, "").expect("a file");
        let manifest = folder.path().join("crates/a/Cargo.toml");
        let inner = r#"{"file_name": "crates/a/src/lib.rs", "line_start": 7, "is_primary": false,
            "expansion": null}"#;
        let message = format!(
            r#"{{"reason": "compiler-message", "manifest_path": "{}", "message": {{
                "message": "mismatched types", "level": "error", "code": {{"code": "E0308"}},
                "rendered": "error[E0308]: mismatched types\n", "spans": [{{
                    "file_name": "/rustc/library/macros.rs", "line_start": 1, "is_primary": true,
                    "expansion": {{"span": {inner}}}}}]}}}}"#,
            manifest.display()
        );
        let message = message.replace('\n', " ");
        let aborting = message
            .replace("mismatched types", "aborting due to 1 previous error")
            .replace(r#""spans": [{"#, r#""spans": [], "x": [{"#);
        let told = hear(format!("{message}\nnoise\n{aborting}\n").as_bytes());
        assert_eq!(told.num_errors, 1);
        let error = &told.errors[0];
        assert_eq!(error.message, "error[E0308]: mismatched types");
        assert_eq!((error.file.as_ref(), error.line), (Some(&file), 7));
        assert!(
            order()
                .fault(told, String::new(), ended(101))
                .what
                .ends_with("failed: 1 error")
        );
    }

    fn ended(code: i32) -> ExitStatus {
        ExitStatus::from_raw(code << 8)
    }

    #[test]
    fn a_cargo_that_was_killed_is_told_of() {
        let killed = ExitStatus::from_raw(9);
        let fault = order().fault(Told::default(), String::new(), killed);
        assert!(fault.what.contains("SIGKILL"), "{}", fault.what);
        let fault = order().fault(Told::default(), "error: x".to_owned(), ended(101));
        assert_eq!(fault.what, "the build failed");
    }

    #[test]
    fn who_misses_core_is_told_where_it_is_not() {
        let missing = |name: &str| {
            let said = format!("error: no matching package named `{name}` found\n");
            order().fault(Told::default(), said, ended(101)).hint
        };
        let hint = missing("justapi-core").expect("a hint");
        assert!(
            hint.contains("`justapi-core = { path = \"FOLDER\" }`"),
            "{hint}"
        );
        assert_eq!(missing("serde"), None);
    }

    #[test]
    fn one_of_several_binaries_has_to_be_named() {
        let artifact = |name: &str| {
            let message = format!(
                r#"{{"reason": "compiler-artifact", "package_id": "path+file:///p#0.1.0",
                    "manifest_path": "/p/Cargo.toml", "fresh": true, "executable": "/t/{name}",
                    "target": {{"name": "{name}", "kind": ["bin"]}}}}"#
            );
            message.replace('\n', " ")
        };
        let choose = |names: &[&str]| {
            let messages: Vec<String> = names.iter().map(|name| artifact(name)).collect();
            order().choose(hear(messages.join("\n").as_bytes()).binaries)
        };
        assert_eq!(choose(&["a"]).expect("one").target.name, "a");
        let several = choose(&["b", "a"]).expect_err("which?");
        assert_eq!(several.what, "there are several binaries: a, b");
        assert_eq!(
            several.hint.as_deref(),
            Some("`justapi dev --bin a` names one")
        );
        let none = choose(&[]).expect_err("none");
        assert_eq!(none.what, "/p/Cargo.toml builds no binary");
    }

    #[test]
    fn what_is_no_progress_is_kept() {
        let text = "   Compiling x v0.1.0\nerror: no package `y`\n\nCaused by:\n   not found\n";
        let said = order().show(text.as_bytes());
        assert_eq!(said, "error: no package `y`\n\nCaused by:\n   not found\n");
    }
}
