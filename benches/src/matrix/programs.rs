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
use crate::ledger::{Program, Source, git_command, sha256_hex};

/// The profile of a build that may be recorded.
const RELEASE: &str = "release";

/// Replaces `{bin}` and `{target_dir}`, absolute because servers run in a folder of their own.
pub(super) fn expand(command: &[String], options: &RunOptions) -> Vec<String> {
    let absolute = |path: &Path| {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        path.to_string_lossy().into_owned()
    };
    let bin = absolute(&options.subject);
    let target_dir = absolute(&options.target_dir);
    command
        .iter()
        .map(|part| {
            part.replace("{bin}", &bin)
                .replace("{target_dir}", &target_dir)
        })
        .collect()
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
        .map_err(|error| format!("{program}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(format!(
            "{} ended with {}",
            command.join(" "),
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
pub(super) fn source(root: &Path) -> Source {
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
    use std::path::PathBuf;

    fn identify_printing(output: &str, subject: bool) -> Result<Program, Error> {
        let plan = ProgramPlan {
            subject,
            command: vec![String::from("{bin}"), String::from("serve")],
            version: ["sh", "-c", &format!("printf '%s' '{output}'")]
                .map(str::to_owned)
                .to_vec(),
            packages: vec![String::from("hyper")],
        };
        let mut options = RunOptions::new("m.toml", "/nonexistent/bin", "target");
        options.root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
        identify(&plan, &options)
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
}
