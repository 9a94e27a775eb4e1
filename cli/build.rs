//! Records how the binary is built, for `justapi version`.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for (name, value) in [
        ("JUSTAPI_TARGET", env::var("TARGET").ok()),
        ("JUSTAPI_RUSTC", compiler()),
        ("JUSTAPI_COMMIT", commit()),
    ] {
        println!("cargo::rustc-env={name}={}", value.unwrap_or_default());
    }
}

/// First line of `rustc --version`.
fn compiler() -> Option<String> {
    first_line(Command::new(env::var_os("RUSTC")?).arg("--version"))
}

/// The commit that is checked out; none outside a repository.
fn commit() -> Option<String> {
    let git = Path::new("../.git");
    for watched in ["HEAD", "logs/HEAD"] {
        let path = git.join(watched);
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    first_line(Command::new("git").args(["rev-parse", "--verify", "--quiet", "HEAD"]))
}

fn first_line(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let line = text.lines().next()?.trim();
    (output.status.success() && !line.is_empty()).then(|| line.to_owned())
}
