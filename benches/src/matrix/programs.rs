//! What is measured: binaries with their digests, versions and build profiles.
//!
//! Our own program must say that it is a release build; a peer that can say is held to it too.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::Deserialize;

use super::RunOptions;
use super::plan::ProgramPlan;
use crate::Error;
use crate::ledger::{FileDigest, Program, Source, git_command, sha256_hex};

/// The profile of a build that may be recorded.
const RELEASE: &str = "release";

/// Replaces `{root}`, `{bin}` and `{target_dir}`, absolute because servers run in a folder of their own.
pub(super) fn expand(command: &[String], options: &RunOptions) -> Vec<String> {
    let absolute = |path: &Path| {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        path.to_string_lossy().into_owned()
    };
    let root = absolute(&options.root);
    let bin = absolute(&options.subject);
    let target_dir = absolute(&options.target_dir);
    command
        .iter()
        .map(|part| {
            part.replace("{root}", &root)
                .replace("{bin}", &bin)
                .replace("{target_dir}", &target_dir)
        })
        .collect()
}

/// The configuration that a program is started with.
#[derive(Clone, Debug)]
pub(super) struct Config {
    /// File name inside `{dir}`.
    name: String,
    /// Text with `{dir}` and `{port}`.
    template: String,
}

impl Config {
    /// Reads the template of a program, if it has one.
    ///
    /// # Errors
    ///
    /// [`Error::File`] when it cannot be read.
    pub(super) fn read(plan: &ProgramPlan, root: &Path) -> Result<Option<Self>, Error> {
        let Some(path) = &plan.config else {
            return Ok(None);
        };
        let path = root.join(path);
        let template = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
        let name = path.file_name().unwrap_or_default();
        Ok(Some(Self {
            name: name.to_string_lossy().into_owned(),
            template,
        }))
    }

    /// Returns the file name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the text as it is in the template.
    pub(super) fn template(&self) -> &str {
        &self.template
    }

    /// Writes the configuration of a server on this port into its folder.
    pub(super) fn write(&self, folder: &Path, port: u16) -> std::io::Result<()> {
        let text = self
            .template
            .replace("{port}", &port.to_string())
            .replace("{dir}", &folder.to_string_lossy());
        fs::write(folder.join(&self.name), text)
    }
}

/// Describes a program.
///
/// # Errors
///
/// [`Error::NotReleaseBuild`] for ours without proof of a release build, and for any program that
/// reports another profile. A peer that cannot be run is described as such, with the reason.
pub(super) fn identify(plan: &ProgramPlan, options: &RunOptions) -> Result<Program, Error> {
    let command = expand(&plan.command, options);
    let path = command.first().cloned().unwrap_or_default();
    let mut program = Program {
        sha256: fs::read(&path).ok().map(|bytes| sha256_hex(&bytes)),
        path,
        version: None,
        profile: None,
        packages: locked_versions(&options.root, &plan.packages),
        reason: None,
        config: match (&plan.config, Config::read(plan, &options.root)?) {
            (Some(path), Some(config)) => Some(FileDigest {
                path: path.to_string_lossy().into_owned(),
                sha256: sha256_hex(config.template.as_bytes()),
            }),
            _ => None,
        },
    };
    match run_version(&expand(&plan.version, options)) {
        Ok((version, profile)) => {
            program.version = Some(version);
            program.profile = profile;
        }
        Err(reason) => program.reason = Some(reason),
    }
    let is_release = program.profile.as_deref() == Some(RELEASE);
    let must_prove = plan.subject || program.profile.is_some();
    if must_prove && !is_release {
        return Err(Error::NotReleaseBuild {
            program: program.path,
            found: program
                .profile
                .or(program.reason)
                .unwrap_or_else(|| String::from("unknown")),
        });
    }
    Ok(program)
}

fn run_version(command: &[String]) -> Result<(String, Option<String>), String> {
    #[derive(Deserialize)]
    struct Version {
        version: Option<String>,
        profile: Option<String>,
    }

    let (program, arguments) = command.split_first().ok_or("no version command")?;
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| not_started(program, &error))?;
    // nginx prints its version to the standard error.
    let printed = if output.stdout.is_empty() {
        &output.stderr
    } else {
        &output.stdout
    };
    let text = String::from_utf8_lossy(printed);
    if !output.status.success() {
        return Err(format!(
            "{} {} ended with {}",
            file_name(program),
            without_folders(&arguments.join(" ")),
            output.status
        ));
    }
    Ok(match serde_json::from_str(&text) {
        Ok(Version { version, profile }) => {
            (version.unwrap_or_else(|| String::from("unknown")), profile)
        }
        Err(_) => (text.lines().next().unwrap_or("unknown").to_owned(), None),
    })
}

/// Why a program did not start, without the folder it is or would be in; of a Python environment
/// its name is kept, as each of them has a `python`.
pub(super) fn not_started(program: &str, error: &std::io::Error) -> String {
    let environment = Path::new(program)
        .ancestors()
        .filter_map(Path::file_name)
        .map(|folder| folder.to_string_lossy())
        .find(|folder| folder.starts_with(".venv-"));
    let name = match environment {
        Some(environment) => format!("{} of {environment}", file_name(program)),
        None => file_name(program),
    };
    match error.kind() {
        std::io::ErrorKind::NotFound => format!("{name} is not installed"),
        _ => format!("cannot start {name}: {error}"),
    }
}

fn file_name(program: &str) -> String {
    let name = Path::new(program).file_name();
    name.map_or_else(
        || program.to_owned(),
        |name| name.to_string_lossy().into_owned(),
    )
}

/// `text` with the absolute paths in it shortened to their last names: where a machine keeps its
/// folders does not belong into a record.
pub(super) fn without_folders(text: &str) -> String {
    let ends = |c: char| c.is_whitespace() || "\"'`()<>,;=".contains(c);
    text.split_inclusive(ends)
        .map(|word| {
            let path = word.trim_end_matches(ends);
            if !path.starts_with('/') || path.matches('/').count() < 2 {
                return word;
            }
            let start = path.trim_end_matches('/').rfind('/').map_or(0, |at| at + 1);
            &word[start..]
        })
        .collect()
}

/// Versions from `Cargo.lock`; a package with several versions gets all of them.
fn locked_versions(root: &Path, packages: &[String]) -> BTreeMap<String, String> {
    #[derive(Deserialize)]
    struct Lock {
        package: Vec<Package>,
    }
    #[derive(Deserialize)]
    struct Package {
        name: String,
        version: String,
    }

    let text = fs::read_to_string(root.join("Cargo.lock")).unwrap_or_default();
    let Ok(lock) = toml::from_str::<Lock>(&text) else {
        return BTreeMap::new();
    };
    let versions = |name: &String| {
        let found = lock.package.iter().filter(|package| package.name == *name);
        found
            .map(|package| package.version.as_str())
            .collect::<Vec<_>>()
            .join(" and ")
    };
    packages
        .iter()
        .map(|name| (name.clone(), versions(name)))
        .filter(|(_, versions)| !versions.is_empty())
        .collect()
}

/// Describes the source tree; files of the ledger itself do not make it dirty.
pub(crate) fn source(root: &Path) -> Source {
    let git = |arguments: &[&str]| {
        let output = git_command(root)
            .args(arguments)
            .output()
            .map_err(|e| format!("git: {e}"))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(text(&output.stderr))
        }
    };
    let mut source = Source::default();
    match git(&["rev-parse", "--verify", "HEAD"]) {
        Ok(commit) => source.commit = Some(commit),
        Err(reason) => source.reason = Some(reason),
    }
    let ledger_apart = [":(exclude)BENCHMARKS.md", ":(exclude)benches/results"];
    let status = [
        "status",
        "--porcelain",
        "--",
        ".",
        ledger_apart[0],
        ledger_apart[1],
    ];
    match git(&status) {
        Ok(changes) => source.dirty = Some(!changes.is_empty()),
        Err(reason) => source.reason = Some(reason),
    }
    source
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::StopSignal;
    use std::path::PathBuf;

    fn identify_printing(output: &str, subject: bool) -> Result<Program, Error> {
        let plan = ProgramPlan {
            subject,
            command: vec![String::from("{bin}"), String::from("serve")],
            version: ["sh", "-c", &format!("printf '%s' '{output}'")]
                .map(str::to_owned)
                .to_vec(),
            packages: vec![String::from("hyper")],
            config: None,
            stop_signal: StopSignal::default(),
            report: None,
        };
        let mut options = RunOptions::new("m.toml", "/nonexistent/bin", "target");
        options.root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
        identify(&plan, &options)
    }

    #[test]
    fn what_is_not_installed_is_named_without_its_folder() {
        let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
        for (program, expected) in [
            ("/srv/a/.venv/bin/uvicorn", "uvicorn is not installed"),
            ("wrk", "wrk is not installed"),
            (
                "/srv/a/.venv-predecessor/bin/python",
                "python of .venv-predecessor is not installed",
            ),
        ] {
            assert_eq!(not_started(program, &missing), expected);
        }
    }

    #[test]
    fn only_release_builds_are_taken() {
        let release = r#"{"version":"1.2","profile":"release"}"#;
        let program = identify_printing(release, true).unwrap();
        assert_eq!(program.version.as_deref(), Some("1.2"));
        assert!(program.packages.contains_key("hyper"));
        let refused = [
            (r#"{"profile":"debug"}"#, true),
            (r#"{"profile":"debug"}"#, false),
            ("1.2", true),
        ];
        for (output, subject) in refused {
            let found = identify_printing(output, subject);
            assert!(
                matches!(found, Err(Error::NotReleaseBuild { .. })),
                "{output}"
            );
        }
        assert_eq!(identify_printing("peer 1.2", false).unwrap().profile, None);
    }

    fn peer(version: &[&str], config: Option<&str>) -> ProgramPlan {
        ProgramPlan {
            subject: false,
            command: vec![String::from("/nonexistent/peer")],
            version: version.iter().map(|part| (*part).to_owned()).collect(),
            packages: Vec::new(),
            config: config.map(PathBuf::from),
            stop_signal: StopSignal::default(),
            report: None,
        }
    }

    #[test]
    fn a_peer_that_is_missing_is_described_as_such() {
        let options = RunOptions::new("m.toml", "bin", "target");
        let program = identify(&peer(&["/nonexistent/peer", "-v"], None), &options).unwrap();
        assert_eq!(program.reason.as_deref(), Some("peer is not installed"));
        assert_eq!((program.version, program.sha256), (None, None));
        let speaks_on_stderr = ["sh", "-c", "echo 'peer version: 1.2' >&2"];
        let program = identify(&peer(&speaks_on_stderr, None), &options).unwrap();
        assert_eq!(program.version.as_deref(), Some("peer version: 1.2"));
    }

    #[test]
    fn texts_name_no_folder_of_the_machine() {
        for (text, expected) in [
            (
                "File \"/checkout/benches/.venv/bin/peer\", line 5, in <module>",
                "File \"peer\", line 5, in <module>",
            ),
            ("--file=/a/b.bin /a/b/", "--file=b.bin b/"),
            (
                "no http://127.0.0.1:8000/a/b at /hello, but 1/2/3",
                "no http://127.0.0.1:8000/a/b at /hello, but 1/2/3",
            ),
            ("", ""),
        ] {
            assert_eq!(without_folders(text), expected);
        }
        let options = RunOptions::new("m.toml", "bin", "target");
        let program = identify(&peer(&["false", "/a/b/c"], None), &options).unwrap();
        let reason = program.reason.unwrap();
        assert!(reason.starts_with("false c ended with"), "{reason}");
    }

    #[test]
    fn a_configuration_is_written_for_its_port_and_folder() {
        let folder = tempfile::tempdir().unwrap();
        let template = "listen {port};\nroot {dir}/files;\n";
        fs::write(folder.path().join("peer.conf"), template).unwrap();
        let mut options = RunOptions::new("m.toml", "bin", "target");
        options.root = folder.path().to_owned();
        let plan = peer(&["true"], Some("peer.conf"));
        let digest = identify(&plan, &options).unwrap().config.unwrap();
        assert_eq!(digest.path, "peer.conf");
        assert_eq!(digest.sha256, sha256_hex(template.as_bytes()));

        let server = tempfile::tempdir().unwrap();
        let config = Config::read(&plan, folder.path()).unwrap().unwrap();
        config.write(server.path(), 8001).unwrap();
        let written = fs::read_to_string(server.path().join("peer.conf")).unwrap();
        let root = server.path().display();
        assert_eq!(written, format!("listen 8001;\nroot {root}/files;\n"));

        let missing = peer(&["true"], Some("missing.conf"));
        assert!(matches!(
            identify(&missing, &options),
            Err(Error::File { .. })
        ));
    }
}
