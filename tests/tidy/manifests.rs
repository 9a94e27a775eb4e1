//! Rules about crates: who may import whom, where dependencies are declared, which versions are safe.
//!
//! The edges are those of `ARCHITECTURE.md`; the floors are the first versions without the known holes
//! (`RustSec` advisories as of 2026-08-21).

use toml::{Table, Value};

use crate::tree::{Tree, line_of};
use crate::{expect_none, problem};

/// For each folder with a crate, the folders whose crates it may depend on, for tests too.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("inference", &["core"]),
    ("templates", &[]),
    ("benches", &["core"]),
    ("benches/peers", &["benches", "core"]),
    ("cli", &["benches", "core", "inference", "templates"]),
    ("py", &["core", "inference"]),
];

/// The first version of each crate that has no known hole, if it is used at all.
const VERSION_FLOORS: &[(&str, &str)] = &[
    ("h2", "0.4.18"),
    ("hyper", "1.11.0"),
    ("hyper-util", "0.1.21"),
    ("pyo3", "0.29.0"),
    ("quinn-proto", "0.11.15"),
    ("regex", "1.5.5"),
    ("rmcp", "1.4.0"),
    ("rustls", "0.23.18"),
    ("rustls-webpki", "0.103.13"),
    ("tar", "0.4.45"),
    ("tokio", "1.44.2"),
    ("tracing-subscriber", "0.3.20"),
    ("tungstenite", "0.20.1"),
    ("zip", "2.3.0"),
];

/// Crates that have no safe version or no place here; `deny.toml` says the same to cargo-deny.
const BANNED_CRATES: &[(&str, &str)] = &[
    ("multipart", "unmaintained; use multer"),
    ("openssl-sys", "TLS is rustls only"),
    ("tokio-tar", "a known hole has no fix; use tar"),
    ("ws", "a known hole has no fix; use tungstenite"),
];

/// The version in `[workspace.package]`.
pub(crate) fn workspace_version(tree: &Tree) -> String {
    let manifest = parse(tree, "Cargo.toml");
    manifest["workspace"]["package"]["version"]
        .as_str()
        .expect("a version string")
        .to_owned()
}

#[test]
fn imports_point_only_where_the_plan_allows() {
    let tree = Tree::open();
    let crates = crate_folders(&tree);
    let mut problems = Vec::new();
    for member in members(&tree) {
        let path = format!("{member}/Cargo.toml");
        let Some((_, allowed)) = MAY_IMPORT.iter().find(|(folder, _)| *folder == member) else {
            problems.push(problem(
                &path,
                1,
                "a new crate: add it to MAY_IMPORT in tests/tidy",
            ));
            continue;
        };
        let text = tree.read(&path);
        for (name, _) in dependencies(&parse(&tree, &path)) {
            let imported = crates.iter().find(|(package, _)| *package == name);
            if let Some((_, folder)) = imported
                && !allowed.contains(&folder.as_str())
            {
                let line = declaration_line(&text, &name);
                problems.push(problem(
                    &path,
                    line,
                    &format!("{member} must not import {folder}"),
                ));
            }
        }
    }
    expect_none(&problems);
}

#[test]
fn crates_inherit_dependencies_lints_and_package_fields() {
    let tree = Tree::open();
    let mut problems = Vec::new();
    for member in members(&tree) {
        let path = format!("{member}/Cargo.toml");
        let text = tree.read(&path);
        let manifest = parse(&tree, &path);
        for (name, value) in dependencies(&manifest) {
            if !inherits(Some(&value)) {
                let line = declaration_line(&text, &name);
                problems.push(problem(
                    &path,
                    line,
                    &format!("`{name}` without workspace = true"),
                ));
            }
        }
        if !inherits(manifest.get("lints")) {
            problems.push(problem(&path, 1, "[lints] without workspace = true"));
        }
        for field in ["version", "edition", "rust-version", "license"] {
            if !inherits(manifest["package"].get(field)) {
                problems.push(problem(
                    &path,
                    1,
                    &format!("{field}.workspace = true is missing"),
                ));
            }
        }
    }
    expect_none(&problems);
}

#[test]
fn locked_versions_are_at_or_above_their_floors() {
    let tree = Tree::open();
    let text = tree.read("Cargo.lock");
    let lock = parse(&tree, "Cargo.lock");
    let mut problems = Vec::new();
    for package in lock["package"]
        .as_array()
        .expect("a lock file lists packages")
    {
        let field = |key: &str| package[key].as_str().expect("a string");
        let (name, version) = (field("name"), field("version"));
        let line = line_of(&text, &format!("name = \"{name}\""));
        if let Some((_, reason)) = BANNED_CRATES.iter().find(|(banned, _)| *banned == name) {
            problems.push(problem("Cargo.lock", line, &format!("{name}: {reason}")));
        }
        if let Some((_, floor)) = VERSION_FLOORS.iter().find(|(known, _)| *known == name)
            && release(version) < release(floor)
        {
            problems.push(problem(
                "Cargo.lock",
                line,
                &format!("{name} {version} is below {floor}"),
            ));
        }
    }
    expect_none(&problems);
}

#[test]
fn versions_compare_by_number() {
    assert!(release("1.9.0") < release("1.11.0"));
    assert!(release("0.4.18") < release("0.4.20"));
    assert!(release("0.1.21") >= release("0.1.21"));
    assert_eq!(release("1.2.2+spec-1.1.0"), [1, 2, 2]);
}

#[test]
fn cargo_deny_bans_the_same_crates() {
    let tree = Tree::open();
    let deny = parse(&tree, "deny.toml");
    let listed = deny["bans"]["deny"].as_array().expect("a list");
    let mut names: Vec<&str> = listed
        .iter()
        .filter_map(|entry| entry["crate"].as_str())
        .collect();
    names.sort_unstable();
    let expected: Vec<&str> = BANNED_CRATES.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, expected, "deny.toml:1: [bans] deny");
}

fn parse(tree: &Tree, path: &str) -> Table {
    tree.read(path)
        .parse()
        .unwrap_or_else(|error| panic!("{path}:1: {error}"))
}

/// The folders of the workspace's crates.
fn members(tree: &Tree) -> Vec<String> {
    let manifest = parse(tree, "Cargo.toml");
    let listed = manifest["workspace"]["members"]
        .as_array()
        .expect("a list of members");
    listed
        .iter()
        .map(|member| member.as_str().expect("a path").to_owned())
        .collect()
}

/// Package name and folder of each crate of the workspace.
fn crate_folders(tree: &Tree) -> Vec<(String, String)> {
    let name_of = |member: String| {
        let manifest = parse(tree, &format!("{member}/Cargo.toml"));
        (
            manifest["package"]["name"]
                .as_str()
                .expect("a name")
                .to_owned(),
            member,
        )
    };
    members(tree).into_iter().map(name_of).collect()
}

/// Name and declaration of every dependency: normal, development, build, and those of a target.
fn dependencies(manifest: &Table) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
        let declared = manifest
            .get(kind)
            .and_then(Value::as_table)
            .into_iter()
            .flatten();
        found.extend(declared.map(|(name, value)| (name.clone(), value.clone())));
    }
    let targets = manifest
        .get("target")
        .and_then(Value::as_table)
        .into_iter()
        .flatten();
    for (_, target) in targets {
        found.extend(target.as_table().map(dependencies).unwrap_or_default());
    }
    found
}

/// The line that opens with the name of the dependency; 1 if it is declared in another form.
fn declaration_line(manifest: &str, name: &str) -> usize {
    let declares = |line: &str| {
        let rest = line.strip_prefix(name).unwrap_or("-");
        !rest.starts_with(|letter: char| letter.is_alphanumeric() || "-_".contains(letter))
    };
    manifest
        .lines()
        .position(declares)
        .map_or(1, |index| index + 1)
}

fn inherits(value: Option<&Value>) -> bool {
    let workspace = value.and_then(|value| value.get("workspace"));
    workspace.and_then(Value::as_bool) == Some(true)
}

/// The numbers of a version, without pre-release and build data.
fn release(version: &str) -> Vec<u64> {
    let numbers = version.split(['-', '+']).next().unwrap_or_default();
    numbers
        .split('.')
        .filter_map(|number| number.parse().ok())
        .collect()
}
