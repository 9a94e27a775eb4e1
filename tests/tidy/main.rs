//! Keeps the house: what the compiler and the linters cannot see, read from the files themselves.
//!
//! Each test is one rule of `CONTRIBUTING.md`; a failure names file and line. The rules for text are
//! written in halves, so that this file keeps them too.

mod manifests;
mod tree;

use std::path::Path;

use crate::tree::{Tree, line_of};

/// Markers of unfinished work. Whole words only: a template such as `mktemp` takes is fine.
const BANNED_WORDS: &[(&str, &str)] = &[
    (concat!("FIX", "ME"), "finish it, or file an issue"),
    (concat!("XX", "X"), "finish it, or file an issue"),
];

/// Text that no Rust file may hold.
const BANNED_IN_RUST: &[(&str, &str)] = &[
    (concat!("todo", "!("), "write it"),
    (concat!("unimplemented", "!("), "write it"),
    (concat!("dbg", "!("), "remove the print"),
    (
        concat!("#[ig", "nore"),
        "a test that cannot run is not a test",
    ),
    (concat!("assert!(tr", "ue"), "it checks nothing"),
];

/// Text that no committed file may hold: it names one machine or one way to fetch packages.
const BANNED_ANYWHERE: &[(&str, &str)] = &[
    (concat!("/ro", "ot/"), "a path of one machine"),
    (concat!("/Us", "ers/"), "a path of one machine"),
    (concat!("index.crates", ".io"), "a registry host"),
    (concat!("static.crates", ".io"), "a registry host"),
    (concat!("//crates", ".io"), "a registry host"),
    (concat!("//pypi", ".org"), "a registry host"),
    (concat!("python", "hosted", ".", "org"), "a registry host"),
    (concat!("registry.", "np", "mjs", ".org"), "a registry host"),
    (concat!("proxy.golang", ".org"), "a registry host"),
    (
        concat!("extra-index", "-url"),
        "the registry is the user's choice",
    ),
    (
        concat!("replace-", "with ="),
        "the registry is the user's choice",
    ),
];

/// Files whose text others wrote or tools generate.
const FOREIGN_FILES: &[&str] = &["Cargo.lock", "LICENSE"];

/// Folder names that say nothing about what is inside.
const GRAB_BAGS: &[&str] = &["common", "helpers", "misc", "utils"];

/// Files with such a name all the same: those who move from `FastAPI` import from it.
const KEPT_NAMES: &[&str] = &["py/python/justapi/openapi/utils.py"];

/// Documents and the most lines each may have: longer ones are not read to the end.
const MAX_LINES: &[(&str, usize)] = &[
    ("README.md", 150),
    ("ARCHITECTURE.md", 200),
    ("CONTRIBUTING.md", 150),
];

const MAX_ADR_LINES: usize = 60;

/// Larger files belong into a release or a generator, since git keeps every version of them.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// A listener inherited by number, the length of a send queue, the allocator that counts, the entry points that a fuzzer calls,
/// instructions of one processor and memory that threads share within a step, and the interpreter's thread state.
const UNSAFE_FILES: [&str; 19] = [
    "core/src/server/listener.rs",
    "core/src/server/stream.rs",
    "core/tests/allocations.rs",
    "fuzz/src/main.rs",
    "inference/src/backend/cpu/kv.rs",
    "inference/src/backend/cpu/step.rs",
    "inference/src/backend/cpu/threads.rs",
    "inference/src/kernels/attention/mod.rs",
    "inference/src/kernels/attention/tests.rs",
    "inference/src/kernels/buffer.rs",
    "inference/src/kernels/dense.rs",
    "inference/src/kernels/dot_avx2.rs",
    "inference/src/kernels/isa.rs",
    "inference/src/kernels/kv_cache.rs",
    "inference/src/kernels/lanes.rs",
    "inference/src/kernels/lanes_avx2.rs",
    "inference/src/kernels/matmul/mod.rs",
    "inference/src/kernels/matmul/tests.rs",
    "py/src/interpreter.rs",
];

const UNSAFE_FORMS: [&str; 5] = [
    "unsafe {",
    "unsafe fn",
    "unsafe impl",
    "unsafe extern",
    "#[unsafe(",
];

/// One broken rule at one place.
pub(crate) fn problem(path: &str, line: usize, text: &str) -> String {
    format!("{path}:{line}: {text}")
}

/// Fails with one line for each problem.
#[track_caller]
pub(crate) fn expect_none(problems: &[String]) {
    assert!(
        problems.is_empty(),
        "{} problems:\n{}",
        problems.len(),
        problems.join("\n")
    );
}

#[test]
fn every_rust_file_opens_with_a_header() {
    let problems: Vec<String> = Tree::open()
        .texts()
        .filter(|(path, _)| is_rust(path))
        .filter(|(_, text)| !text.starts_with("//! "))
        .map(|(path, _)| problem(&path, 1, "opens without `//!`: say what the file is"))
        .collect();
    expect_none(&problems);
}

#[test]
fn no_file_holds_banned_text() {
    let mut problems = Vec::new();
    for (path, text) in Tree::open().texts() {
        for (index, line) in text.lines().enumerate() {
            for finding in banned_in_line(&path, line) {
                problems.push(problem(&path, index + 1, &finding));
            }
        }
    }
    expect_none(&problems);
}

#[test]
fn the_text_rules_find_what_they_ban_and_nothing_else() {
    let check = |path: &str, line: &str, expected: usize| {
        assert_eq!(banned_in_line(path, line).len(), expected, "{path}: {line}");
    };
    for (word, _) in BANNED_WORDS {
        check("core/src/lib.rs", &format!("// {word}: later"), 1);
        check("tests/run", &format!("mktemp /tmp/a.{word}{word}"), 0);
        check("docs/style.md", &format!("{word} is banned in sources"), 0);
    }
    for (text, _) in BANNED_IN_RUST {
        check("core/src/lib.rs", &format!("    {text}"), 1);
        check("docs/style.md", text, 0);
    }
    for (text, _) in BANNED_ANYWHERE {
        check("README.md", &format!("see {text}a"), 1);
        check("Cargo.lock", text, 0);
    }
    let somebody = format!("/{}/ada/checkout", "home");
    check("docs/guide.md", &somebody, 1);
    check(
        "core/src/router/mod.rs",
        &format!("/{}/{{page}}", "home"),
        0,
    );
    check("cli/src/ui.rs", "\"\u{1F680}\"", 1);
    check("cli/src/ui.rs", "\"\u{279C} \u{21BB} \u{2717}\"", 0);
}

#[test]
fn the_code_map_names_only_paths_that_exist() {
    let tree = Tree::open();
    let problems: Vec<String> = code_map_paths(&tree.read("ARCHITECTURE.md"))
        .into_iter()
        .filter(|(_, candidates)| !candidates.iter().any(|path| tree.path(path).exists()))
        .map(|(line, candidates)| {
            problem(
                "ARCHITECTURE.md",
                line,
                &format!("`{}` does not exist", candidates[0]),
            )
        })
        .collect();
    expect_none(&problems);
}

#[test]
fn the_code_map_is_the_section_of_that_name() {
    let text = "# A\n`not/here.rs`\n## Code map\n### `core/`\n`router/mod.rs`, `GET /hello`\n\
                ```\n`x/y.rs`\n```\n## Errors\n`not/there.rs`\n";
    let paths = code_map_paths(text);
    let named: Vec<&str> = paths
        .iter()
        .map(|(_, candidates)| candidates[0].as_str())
        .collect();
    assert_eq!(named, ["core/", "router/mod.rs"]);
    assert!(paths[1].1.contains(&"core/src/router/mod.rs".to_owned()));
}

/// The names of tests in a table stay those of tests.
#[test]
fn what_shows_that_a_mistake_is_not_made_exists() {
    const DOCUMENT: &str = "docs/benchmarking.md";
    let tree = Tree::open();
    let is_test_folder =
        |path: &str| path.starts_with("benches/src/") || path.starts_with("tests/");
    let sources: String = (tree.texts())
        .filter(|(path, _)| is_rust(path) && is_test_folder(path))
        .map(|(_, text)| text)
        .collect();
    let document = tree.read(DOCUMENT);
    let table = document
        .lines()
        .enumerate()
        .skip_while(|(_, line)| *line != "| mistake | test |")
        .take_while(|(_, line)| line.starts_with('|'));
    let mut num_tests = 0;
    let mut problems = Vec::new();
    for (index, line) in table {
        for name in backticked(line) {
            num_tests += 1;
            if !sources.contains(&format!("fn {name}(")) {
                problems.push(problem(DOCUMENT, index + 1, &format!("no test `{name}`")));
            }
        }
    }
    expect_none(&problems);
    assert!(num_tests >= 36, "{num_tests}");
}

#[test]
fn documents_keep_their_length() {
    let tree = Tree::open();
    let mut problems = Vec::new();
    for (path, max_lines) in MAX_LINES {
        check_length(&tree, path, *max_lines, &mut problems);
    }
    for path in tree
        .files()
        .iter()
        .filter(|path| path.starts_with("docs/adr/"))
    {
        check_length(&tree, path, MAX_ADR_LINES, &mut problems);
        if !is_adr_name(&path["docs/adr/".len()..]) {
            problems.push(problem(path, 1, "is not named NNNN-title.md"));
        }
    }
    expect_none(&problems);
}

#[test]
fn decision_records_are_numbered_and_titled() {
    for (name, expected) in [
        ("0001-one-thread-per-lane.md", true),
        ("1-short.md", false),
        ("0001.md", false),
        ("0001-.md", false),
        ("0001-Title Case.md", false),
        ("notes.md", false),
    ] {
        assert_eq!(is_adr_name(name), expected, "{name}");
    }
}

#[test]
fn no_folder_is_a_grab_bag() {
    let mut problems = Vec::new();
    for path in Tree::open().files() {
        if KEPT_NAMES.contains(&path.as_str()) {
            continue;
        }
        let parts: Vec<&str> = path.split('/').collect();
        for part in &parts {
            let stem = part.split('.').next().unwrap_or_default();
            if GRAB_BAGS.contains(&stem) {
                problems.push(problem(
                    path,
                    1,
                    &format!("`{part}`: name the thing it holds"),
                ));
            }
        }
    }
    expect_none(&problems);
}

#[test]
fn no_file_is_larger_than_a_mebibyte() {
    let tree = Tree::open();
    let mut problems = Vec::new();
    for path in tree.files() {
        let num_bytes = tree
            .path(path)
            .metadata()
            .map_or(0, |metadata| metadata.len());
        if num_bytes > MAX_FILE_BYTES {
            problems.push(problem(
                path,
                1,
                &format!("{num_bytes} bytes, most {MAX_FILE_BYTES}"),
            ));
        }
    }
    expect_none(&problems);
}

#[test]
fn unsafe_code_is_where_it_is_known_to_be() {
    let found: Vec<String> = Tree::open()
        .texts()
        .filter(|(path, _)| is_rust(path) && !path.starts_with("tests/tidy/"))
        .filter(|(_, text)| UNSAFE_FORMS.iter().any(|form| text.contains(form)))
        .map(|(path, _)| path)
        .collect();
    assert_eq!(found, UNSAFE_FILES, "a new place needs its reason here");
}

#[test]
fn the_installer_names_the_workspace_version() {
    let tree = Tree::open();
    let expected = format!("DEFAULT_VERSION={}", manifests::workspace_version(&tree));
    let script = tree.read("install.sh");
    let line = line_of(&script, "DEFAULT_VERSION=");
    if !script.lines().any(|text| text == expected) {
        expect_none(&[problem(
            "install.sh",
            line,
            &format!("expected `{expected}`"),
        )]);
    }
}

fn is_rust(path: &str) -> bool {
    Path::new(path)
        .extension()
        .is_some_and(|extension| extension == "rs")
}

/// Source text, as opposed to documents, which may speak about what is banned.
fn is_source(path: &str) -> bool {
    let extension = Path::new(path).extension().and_then(|text| text.to_str());
    matches!(
        extension,
        None | Some("c" | "js" | "py" | "pyi" | "rs" | "sh" | "toml" | "yml")
    )
}

/// What is banned in this line of this file, as messages.
fn banned_in_line(path: &str, line: &str) -> Vec<String> {
    if FOREIGN_FILES.contains(&path) {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut ban = |text: &str, reason: &str| found.push(format!("`{text}`: {reason}"));
    for (text, reason) in BANNED_ANYWHERE {
        if line.contains(text) {
            ban(text, reason);
        }
    }
    if names_a_home(line) {
        ban(concat!("/ho", "me/…"), "a path of one machine");
    }
    if is_source(path) {
        for (word, reason) in BANNED_WORDS {
            if holds_word(line, word) {
                ban(word, reason);
            }
        }
    }
    if is_rust(path) {
        for (text, reason) in BANNED_IN_RUST {
            if line.contains(text) {
                ban(text, reason);
            }
        }
        if let Some(symbol) = line.chars().find(|symbol| is_emoji(*symbol)) {
            ban(
                &symbol.to_string(),
                "no emoji: terminals and logs differ in how they show it",
            );
        }
    }
    found
}

/// A home directory with a user's name; a route that only starts alike has no such name and slash.
fn names_a_home(line: &str) -> bool {
    line.split(concat!("/ho", "me/")).skip(1).any(|rest| {
        let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-');
        end.is_some_and(|end| end > 0 && rest[end..].starts_with('/'))
    })
}

fn holds_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        let after = line[start + word.len()..].chars().next();
        [before, after]
            .into_iter()
            .flatten()
            .all(|letter| !letter.is_alphanumeric())
    })
}

/// Characters shown as coloured pictures; arrows and check marks that follow the text colour are fine.
fn is_emoji(symbol: char) -> bool {
    matches!(symbol,
        '\u{1F000}'..='\u{1FAFF}' | '\u{FE0F}' | '\u{2705}' | '\u{2728}' | '\u{274C}' | '\u{274E}'
        | '\u{2753}'..='\u{2757}' | '\u{26A1}' | '\u{2B50}' | '\u{2B55}' | '\u{231A}' | '\u{231B}')
}

/// The backticked paths of the section `Code map`: line, and where each may lie, as written first.
///
/// A path is taken from the root, or from the folder that the last heading names, or its `src`.
fn code_map_paths(document: &str) -> Vec<(usize, Vec<String>)> {
    let mut paths = Vec::new();
    let (mut inside_level, mut inside_fence, mut folder) = (None, false, "");
    for (index, line) in document.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            inside_fence = !inside_fence;
            continue;
        }
        let level = line.bytes().take_while(|byte| *byte == b'#').count();
        if level > 0 && !inside_fence {
            if line.to_ascii_lowercase().contains("code map") {
                inside_level = Some(level);
            } else if inside_level.is_some_and(|outer| level <= outer) {
                inside_level = None;
            }
            folder = backticked(line)
                .next()
                .unwrap_or_default()
                .trim_end_matches('/');
        }
        if inside_level.is_none() || inside_fence {
            continue;
        }
        for path in backticked(line).filter(|text| looks_like_a_path(text)) {
            let mut candidates = vec![path.to_owned()];
            if !folder.is_empty() {
                candidates.push(format!("{folder}/{path}"));
                candidates.push(format!("{folder}/src/{path}"));
            }
            paths.push((index + 1, candidates));
        }
    }
    paths
}

fn backticked(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Paths below the root: with a slash inside or an extension, and no other punctuation.
fn looks_like_a_path(text: &str) -> bool {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-".contains(letter);
    let known = [
        "c", "json", "lock", "md", "py", "rs", "sh", "toml", "txt", "yml",
    ];
    let has_extension = Path::new(text)
        .extension()
        .and_then(|extension| extension.to_str())
        .is_some_and(|extension| known.contains(&extension));
    text.chars().all(plain) && !text.starts_with('/') && (text.contains('/') || has_extension)
}

fn check_length(tree: &Tree, path: &str, max_lines: usize, problems: &mut Vec<String>) {
    if !tree.path(path).is_file() {
        problems.push(problem(path, 1, "is missing"));
        return;
    }
    let num_lines = tree.read(path).lines().count();
    if num_lines > max_lines {
        problems.push(problem(
            path,
            max_lines + 1,
            &format!("{num_lines} lines, most {max_lines}"),
        ));
    }
}

fn is_adr_name(name: &str) -> bool {
    let Some((number, title)) = name
        .strip_suffix(".md")
        .and_then(|stem| stem.split_once('-'))
    else {
        return false;
    };
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    number.len() == 4
        && number.bytes().all(|byte| byte.is_ascii_digit())
        && !title.is_empty()
        && title.bytes().all(plain)
}
