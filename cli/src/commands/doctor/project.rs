//! The program, the settings, the interpreter, the address and the application.

use std::io;
use std::net::{TcpListener, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use serde_json::Value;

use super::super::checklist::{Item, Status};
use super::super::inspected::{Question, ask};
use super::super::installation::Installation;
use super::super::serve::{Interpreter, Plan, find_python};
use crate::config::{Config, Origin, shown_path};
use crate::error::plain;
use crate::holder::Holder;
use crate::shell::quoted_path;
use crate::wheel;

/// Version of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Oldest pydantic that the package works with.
const OLDEST_PYDANTIC: (u32, u32) = (2, 7);
/// That, as pip is told.
const PYDANTIC: &str = "pydantic>=2.7";
/// What an interpreter is asked for: versions of the packages that the framework uses, or could, and
/// whether it is that of a virtual environment.
const PACKAGES: &str = "import json, sys
from importlib.metadata import PackageNotFoundError, version
found = {}
for name in ('pydantic', 'python-multipart', 'httpx', 'msgspec', 'email-validator'):
    try:
        found[name] = version(name)
    except PackageNotFoundError:
        found[name] = None
is_environment = sys.prefix != sys.base_prefix
print(json.dumps({'packages': found, 'is_environment': is_environment}))
";

/// This program: version, build, and who put it here.
pub(super) fn program() -> Item {
    let from = match Installation::of_this_program() {
        Installation::Wheel(_) => "in a wheel",
        Installation::Installer(_) => "installed by install.sh",
        Installation::Other(_) => "not installed",
    };
    let path = env::current_exe().unwrap_or_default();
    let message = format!("justapi {VERSION}, {from}, {}", path.display());
    if cfg!(debug_assertions) {
        return Item::warn(
            "program",
            format!("{message}: a build without optimisation, which is many times slower"),
            "build it with `cargo build --release`, or install it with `sh install.sh`",
        );
    }
    Item::ok("program", message)
}

/// Another program of this name that a shell would find first.
pub(super) fn shadow() -> Option<Item> {
    let own = env::current_exe().and_then(fs::canonicalize).ok()?;
    let path = env::var_os("PATH")?;
    let first = env::split_paths(&path)
        .map(|folder| folder.join("justapi"))
        .find(|file| file.is_file())?;
    let is_own = fs::canonicalize(&first).is_ok_and(|found| found == own);
    (!is_own).then(|| {
        Item::warn(
            "PATH",
            format!(
                "`justapi` in a shell is another program: {}",
                first.display()
            ),
            format!("call this one as `{}`, or change PATH", quoted_path(&own)),
        )
    })
}

pub(super) fn settings(config: &Config) -> Vec<Item> {
    let warnings = config.warnings();
    if warnings.is_empty() {
        let from = config.file().map_or_else(
            || "no justapi.toml here; the defaults and the environment are valid".to_owned(),
            |file| format!("{} is valid", shown_path(file).display()),
        );
        return vec![Item::ok("settings", from)];
    }
    warnings.iter().map(Item::of_warning).collect()
}

/// The interpreter, its packages, and the application.
pub(super) fn python(config: &Config, app: Option<&str>) -> Vec<Item> {
    let interpreter = match find_python(config.value("python.interpreter").text()) {
        Ok(interpreter) => interpreter,
        Err(error) => {
            let is_needed =
                app.is_some() || *config.origin("python.interpreter") != Origin::Default;
            // Without an application in Python nobody misses it.
            let status = if is_needed {
                Status::Fail
            } else {
                Status::Warn
            };
            return vec![Item::of_error(status, "python", &error)];
        }
    };
    let mut items = vec![of_interpreter(&interpreter)];
    items.extend(other_environment(&interpreter));
    items.extend(packages(&interpreter));
    if let Some(app) = app {
        items.push(application(config, app));
    }
    items
}

fn of_interpreter(interpreter: &Interpreter) -> Item {
    let Interpreter {
        path,
        version,
        package,
        found_by,
    } = interpreter;
    let message = format!("Python {version} at {} ({found_by})", path.display());
    if package == VERSION {
        return Item::ok("python", format!("{message}, package {package}"));
    }
    Item::warn(
        "python",
        format!("{message}: its package is {package}, this program {VERSION}"),
        format!(
            "`{} -m pip install {}`, which `{}` has made of the source",
            quoted_path(path),
            wheel::file(Some(VERSION)),
            wheel::BUILD
        ),
    )
}

/// That an environment is active, and the interpreter is another's.
fn other_environment(interpreter: &Interpreter) -> Option<Item> {
    let active = PathBuf::from(env::var_os("VIRTUAL_ENV").filter(|path| !path.is_empty())?);
    let is_inside = interpreter.path.starts_with(&active);
    (!is_inside).then(|| {
        Item::warn(
            "environment",
            format!(
                "{} is active, and Python is taken from elsewhere: {}",
                active.display(),
                interpreter.found_by
            ),
            format!(
                "use the program of that environment, or `--python {}`",
                quoted_path(&active.join("bin/python"))
            ),
        )
    })
}

fn packages(interpreter: &Interpreter) -> Vec<Item> {
    let output = Command::new(&interpreter.path)
        .args(["-I", "-c", PACKAGES])
        .output();
    let answer: Value = output
        .ok()
        .and_then(|output| serde_json::from_slice(&output.stdout).ok())
        .unwrap_or_default();
    let found = &answer["packages"];
    let python = quoted_path(&interpreter.path);
    let path = interpreter.path.to_string_lossy();
    // Another's Python is not ours to change.
    let repaired = |item: Item| match answer["is_environment"].as_bool() {
        Some(true) => item.with_repair([&*path, "-m", "pip", "install", "-U", PYDANTIC]),
        _ => item,
    };
    let mut items = Vec::new();
    let (mut present, mut absent) = (Vec::new(), Vec::new());
    for (name, version) in found.as_object().into_iter().flatten() {
        match version.as_str() {
            Some(version) => present.push(format!("{name} {version}")),
            None => absent.push(name.as_str()),
        }
    }
    match found["pydantic"]
        .as_str()
        .map(|text| (text, first_two(text)))
    {
        Some((_, Some(version))) if version >= OLDEST_PYDANTIC => {}
        Some((text, _)) => items.push(repaired(Item::fail(
            "packages",
            format!("pydantic {text} is too old; 2.7 is the oldest that works"),
            format!("{python} -m pip install -U '{PYDANTIC}'"),
        ))),
        None => items.push(repaired(Item::fail(
            "packages",
            "pydantic is not installed, and models need it",
            format!("{python} -m pip install '{PYDANTIC}'"),
        ))),
    }
    let absent = if absent.is_empty() {
        String::new()
    } else {
        format!("; not installed: {}", absent.join(", "))
    };
    items.push(Item::ok(
        "packages",
        format!("{}{absent}", present.join(", ")),
    ));
    items
}

/// `(2, 7)` of `2.7.1`.
fn first_two(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.').map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

fn application(config: &Config, app: &str) -> Item {
    match ask(config, app, Question::Routes, None) {
        Ok(answer) => {
            let seconds = answer.value["import_seconds"].as_f64().unwrap_or_default();
            let routes = answer.value["routes"].as_array().into_iter().flatten();
            let routes = routes.filter(|route| route["is_own"] != true).count();
            let ms = seconds * 1000.0;
            Item::ok(
                "application",
                format!(
                    "{app} is imported in {ms:.0} ms and has {routes} route{}",
                    if routes == 1 { "" } else { "s" }
                ),
            )
        }
        // Any ASGI application can be served.
        Err(error) if error.code() == crate::error::Code::ApplicationOpaque => {
            Item::ok("application", format!("{app} can be imported"))
        }
        Err(error) => Item::of_error(Status::Fail, "application", &error),
    }
}

/// Whether the address is free.
pub(super) fn address(plan: &Plan) -> Option<Item> {
    let (host, port) = plan.tcp_place()?;
    let shown = format!("{host}:{port}");
    let address = match (host, port).to_socket_addrs().map(|mut all| all.next()) {
        Ok(Some(address)) => address,
        Ok(None) => return None,
        Err(error) => {
            return Some(Item::fail(
                "address",
                format!(
                    "cannot find the address of host `{host}`: {}",
                    plain(&error)
                ),
                "use an IP address, such as `--host 127.0.0.1`",
            ));
        }
    };
    let Err(error) = TcpListener::bind(address) else {
        return Some(Item::ok("address", format!("{shown} is free")));
    };
    if error.kind() != io::ErrorKind::AddrInUse {
        return Some(Item::fail(
            "address",
            format!("cannot listen on {shown}: {}", plain(&error)),
            "`--host 127.0.0.1 --port 8000` works on every machine",
        ));
    }
    let free = "use another port, or `--port 0` to pick a free one";
    Some(match Holder::of_tcp(address) {
        Some(holder) => {
            let held = holder.describe();
            let program = held.split_whitespace().next().map(Path::new);
            let is_ours = program
                .and_then(Path::file_name)
                .is_some_and(|name| name == "justapi");
            if is_ours {
                Item::ok("address", format!("{shown} is served: {held}"))
            } else {
                Item::warn(
                    "address",
                    format!("{shown} is taken: {held}"),
                    format!("{free}, or stop that with `kill {}`", holder.pid),
                )
            }
        }
        None => Item::warn("address", format!("{shown} is taken"), free),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(first_two("2.10.3"), Some((2, 10)));
        assert_eq!(first_two("2"), None);
        assert!(first_two("2.10").unwrap() > OLDEST_PYDANTIC);
        assert!(first_two("1.99").unwrap() < OLDEST_PYDANTIC);
    }
}
