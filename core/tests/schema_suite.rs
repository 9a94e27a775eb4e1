//! The JSON-Schema-Test-Suite for draft 2020-12, through routes over a socket.
//!
//! Each group's schema guards a route of its own; a case passes when the route
//! accepts or refuses its data as the suite says. `tests/run` puts the suite
//! into the target folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use justapi_core::{Accepted, BoundAddress, Listen, Router, Schema, Server, validated};
use serde::Deserialize;
use serde_json::Value;

/// Cases of the releases that have been counted: required, optional, format.
/// The first is the one that `tests/run` fetches.
const RELEASES: [[usize; 3]; 2] = [[1257, 158, 491], [1299, 162, 764]];

/// Optional cases whose verdict the library gets wrong: file, group, case.
const KNOWN_FAILURES: &[[&str; 3]] = &[];

/// Patterns with look-around, which linear engines do not have.
const MAX_PATTERN_STEPS: usize = 100_000;

#[derive(Deserialize)]
struct Group {
    description: String,
    schema: Value,
    tests: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    description: String,
    data: Value,
    valid: bool,
}

/// One file of the suite and its place in it.
struct File {
    name: String,
    kind: Kind,
    groups: Vec<Group>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Required,
    Optional,
    Format,
}

fn suite() -> PathBuf {
    let given = std::env::var_os("JUSTAPI_JSON_SCHEMA_SUITE").map(PathBuf::from);
    let folder = given.unwrap_or_else(|| {
        let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
        scratch
            .parent()
            .expect("inside target")
            .join("json-schema-test-suite")
    });
    assert!(
        folder.join("remotes").is_dir(),
        "no test suite in {}: tests/run fetches it",
        folder.display()
    );
    folder
}

/// All JSON files below a folder, in order.
fn json_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the suite") {
        let path = entry.expect("an entry of the suite").path();
        if path.is_dir() {
            json_files(&path, found);
        } else if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            found.push(path);
        }
    }
    found.sort();
}

fn parse<T: serde::de::DeserializeOwned>(path: &Path) -> T {
    let text = fs::read(path).expect("a file of the suite");
    serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn files(folder: &Path) -> Vec<File> {
    let folder = folder.join("tests/draft2020-12");
    let mut paths = Vec::new();
    json_files(&folder, &mut paths);
    let name = |path: &Path| {
        let relative = path.strip_prefix(&folder).expect("below the folder");
        relative.display().to_string()
    };
    paths
        .iter()
        .map(|path| {
            let name = name(path);
            let kind = match () {
                () if name.starts_with("optional/format/") => Kind::Format,
                () if name.starts_with("optional/") => Kind::Optional,
                () => Kind::Required,
            };
            File {
                name,
                kind,
                groups: parse(path),
            }
        })
        .collect()
}

/// The documents that the suite expects at `http://localhost:1234/`.
fn remotes(folder: &Path) -> BTreeMap<String, Value> {
    let folder = folder.join("remotes");
    let mut paths = Vec::new();
    json_files(&folder, &mut paths);
    paths
        .iter()
        .map(|path| {
            let relative = path.strip_prefix(&folder).expect("below the folder");
            let uri = format!("http://localhost:1234/{}", relative.display());
            (uri, parse(path))
        })
        .filter(|(_, document): &(_, Value)| knows_its_draft(document))
        .collect()
}

/// Leaves out documents of drafts that have no meta-schema yet.
fn knows_its_draft(document: &Value) -> bool {
    let dialect = document.get("$schema").and_then(Value::as_str);
    dialect.is_none_or(|dialect| !dialect.contains("/draft/next/"))
}

/// The status of a POST of `data`.
fn post(connection: &mut BufReader<TcpStream>, path: &str, data: &Value) -> u16 {
    let body = data.to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    connection
        .get_mut()
        .write_all(request.as_bytes())
        .expect("an open connection");
    let mut status = 0;
    let mut length = 0;
    loop {
        let mut line = String::new();
        connection
            .read_line(&mut line)
            .expect("a line of the answer");
        match line.trim_end().split_once(' ') {
            Some(("HTTP/1.1", rest)) => status = rest[..3].parse().expect("a status"),
            Some(("content-length:", text)) => length = text.parse().expect("a length"),
            Some(_) => {}
            None => break,
        }
    }
    let mut answer = vec![0; length];
    connection.read_exact(&mut answer).expect("a whole answer");
    status
}

#[test]
fn every_case_has_the_verdict_of_the_suite() {
    let folder = suite();
    let files = files(&folder);
    let remotes = remotes(&folder);
    let mut router = Router::new();
    let mut failures = BTreeSet::new();
    for (file_index, file) in files.iter().enumerate() {
        for (group_index, group) in file.groups.iter().enumerate() {
            let mut schema =
                Schema::new(group.schema.clone()).allow_backtracking(MAX_PATTERN_STEPS);
            for (uri, document) in &remotes {
                schema = schema.with_resource(uri, document.clone());
            }
            if file.kind == Kind::Format {
                schema = schema.assert_formats();
            }
            let handler = validated()
                .body(schema)
                .inline(|_: Accepted<(), ()>| "valid");
            router = router
                .post(&format!("/{file_index}/{group_index}"), handler)
                .unwrap_or_else(|error| panic!("{} {}: {error}", file.name, group.description));
        }
    }
    let running = Server::new(router)
        .listen(Listen::Tcp(([127, 0, 0, 1], 0).into()))
        .start()
        .expect("a free port");
    let BoundAddress::Tcp { address, .. } = running.addresses()[0] else {
        unreachable!("a TCP address was asked for");
    };
    let mut connection = BufReader::new(TcpStream::connect(address).expect("a listener"));
    let mut counts = [0; 3];
    let mut known = BTreeSet::new();
    for (file_index, file) in files.iter().enumerate() {
        for (group_index, group) in file.groups.iter().enumerate() {
            for case in &group.tests {
                counts[file.kind as usize] += 1;
                let name = [&*file.name, &*group.description, &*case.description];
                let expected = if case.valid { 200 } else { 422 };
                let path = format!("/{file_index}/{group_index}");
                let status = post(&mut connection, &path, &case.data);
                let is_known = KNOWN_FAILURES.contains(&name);
                if is_known {
                    known.insert(name);
                }
                if (status != expected) != is_known {
                    failures.insert(format!("{} ({status}, due {expected})", name.join(": ")));
                }
            }
        }
    }
    drop(connection);
    assert!(running.drain().finished);
    assert!(
        failures.is_empty(),
        "{} of {counts:?}: {failures:#?}",
        failures.len()
    );
    assert!(
        RELEASES.contains(&counts),
        "an unknown release, of {counts:?} cases"
    );
    let is_newest = counts == RELEASES[RELEASES.len() - 1];
    assert!(
        !is_newest || known.len() == KNOWN_FAILURES.len(),
        "stale: only {known:?} exist"
    );
}
