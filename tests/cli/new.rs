//! `justapi new`: what it makes, what it refuses, and what it leaves alone.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::binary::{Folder, JUSTAPI, Run};

/// A folder in no repository.
fn outside() -> Folder {
    let folder = Folder::new();
    fs::remove_dir(folder.path().join(".git")).unwrap();
    folder
}

fn new(folder: &Folder, arguments: &[&str]) -> Run {
    let mut all = vec!["new", "--yes"];
    all.extend(arguments);
    Run::of(&folder.program(JUSTAPI, &all).output().unwrap())
}

/// Names below a folder, sorted; git's own files left out.
fn tree(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    walk(folder, "", &mut found);
    found.sort();
    found
}

fn walk(folder: &Path, inside: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() == ".git" {
            continue;
        }
        let path = format!("{inside}{}", entry.file_name().to_string_lossy());
        if entry.file_type().unwrap().is_dir() {
            walk(&entry.path(), &format!("{path}/"), found);
        } else {
            found.push(path);
        }
    }
}

fn read(folder: &Folder, path: &str) -> String {
    fs::read_to_string(folder.path().join(path)).unwrap()
}

const MINIMAL: [&str; 6] = [
    ".gitignore",
    ".justapi/template.toml",
    "README.md",
    "app.py",
    "pyproject.toml",
    "tests/test_app.py",
];

#[test]
fn a_project_is_made_and_says_what_to_do() {
    let folder = outside();
    let run = new(&folder, &["My_Api"]).expect(0);
    assert_eq!(run.stdout, "");
    for expected in [
        "made My_Api",
        "\n  cd My_Api\n  justapi dev\n",
        "then edit app.py",
    ] {
        assert!(run.stderr.contains(expected), "{run:#?}");
    }
    assert_eq!(tree(&folder.path().join("My_Api")), MINIMAL);
    assert_eq!(tree(folder.path()).len(), MINIMAL.len());
    let manifest = read(&folder, "My_Api/pyproject.toml");
    assert!(manifest.contains("name = \"my-api\""), "{manifest}");
    let mode = |path: &str| {
        let found = fs::metadata(folder.path().join(path)).unwrap();
        found.permissions().mode() & 0o777
    };
    // As mkdir and an editor would have made them.
    fs::create_dir(folder.path().join("folder")).unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    assert_eq!(mode("My_Api"), mode("folder"));
    assert_eq!(mode("My_Api/app.py"), mode("file"));
}

#[test]
fn the_answers_and_hashes_are_recorded() {
    let folder = outside();
    new(
        &folder,
        &[
            "a",
            "--template",
            "api",
            "--set",
            "db=postgres",
            "--set",
            "ci=no",
        ],
    )
    .expect(0);
    let record: toml::Table = read(&folder, "a/.justapi/template.toml").parse().unwrap();
    assert_eq!(record["version"].as_integer(), Some(1));
    assert_eq!(record["template"]["name"].as_str(), Some("api"));
    assert_eq!(record["answers"]["db"].as_str(), Some("postgres"));
    assert_eq!(record["answers"]["ci"].as_bool(), Some(false));
    assert_eq!(record["names"]["module"].as_str(), Some("a"));
    let sum = Command::new("sha256sum")
        .arg(folder.path().join("a/alembic.ini"))
        .output()
        .unwrap();
    let sum = String::from_utf8(sum.stdout).unwrap();
    let expected = format!("sha256:{}", sum.split(' ').next().unwrap());
    assert_eq!(
        record["files"]["alembic.ini"].as_str(),
        Some(expected.as_str())
    );
    assert!(!folder.path().join("a/.github").exists());
    // The same again is the same, byte for byte.
    new(
        &folder,
        &[
            "b",
            "--name",
            "a",
            "-t",
            "api",
            "--set",
            "db=postgres",
            "--set",
            "ci=no",
        ],
    )
    .expect(0);
    for path in tree(&folder.path().join("a")) {
        let [a, b] = ["a", "b"].map(|copy| fs::read(folder.path().join(copy).join(&path)).unwrap());
        assert_eq!(a, b, "{path}");
    }
}

#[test]
fn names_that_cannot_be_modules_are_refused_with_one_that_can() {
    let folder = outside();
    for (name, expected) in [
        ("class", "class-app"),
        ("None", "none-app"),
        ("match", "match-app"),
        ("site", "site-app"),
        ("json", "json-app"),
        ("test", "test-app"),
        ("justapi", "justapi-app"),
        ("pydantic", "pydantic-app"),
        ("9lives", "app-9lives"),
        ("ünïcode", "unicode"),
        ("проект", "proekt"),
        ("my api", "my-api"),
        (".hidden", "hidden"),
        ("CON", "con-app"),
    ] {
        let run = new(&folder, &[name]).expect(2);
        assert!(run.stderr.contains("error[JA206]"), "{run:#?}");
        assert!(
            run.stderr.contains(&format!("`justapi new {expected}`")),
            "{run:#?}"
        );
        assert_eq!(tree(folder.path()), [""; 0], "{name}");
        new(&folder, &["--dry-run", expected]).expect(0);
    }
    for (arguments, status, expected) in [
        (&["-x"][..], 2, "unexpected argument"),
        (&[""], 2, "a value is required"),
        (&["a/b"], 1, "`mkdir -p a`"),
        (&["ok", "--name", "import"], 2, "`--name import-app`"),
        (&["ok", "--name", "\u{1F600}"], 2, "`--name grinning`"),
    ] {
        let run = new(&folder, arguments).expect(status);
        assert!(run.stderr.contains(expected), "{run:#?}");
        assert_eq!(tree(folder.path()), [""; 0]);
    }
    assert_ne!(new(&folder, &[".."]).status, 0);
    let mut command = folder.program(JUSTAPI, &["new", "--yes"]);
    command.arg(OsStr::from_bytes(b"caf\xe9"));
    let run = Run::of(&command.output().unwrap()).expect(2);
    assert!(run.stderr.contains("error[JA206]"), "{run:#?}");
    let long = "a".repeat(300);
    let run = new(&folder, &[&long, "--name", "a"]).expect(1);
    assert!(run.stderr.contains("choose a shorter name"), "{run:#?}");
    assert_eq!(tree(folder.path()), [""; 0]);
}

#[test]
fn what_is_printed_can_be_pasted_into_a_shell() {
    let folder = outside();
    let odd = "a b'ü$x\"\n";
    fs::create_dir(folder.path().join(odd)).unwrap();
    for target in [
        format!("{odd}/my api"),
        "-".to_owned(),
        "--help me".to_owned(),
    ] {
        let arguments = ["new", "--yes", "--name", "my-api", "--", &target];
        let run = Run::of(&folder.program(JUSTAPI, &arguments).output().unwrap()).expect(0);
        let steps = run.stderr.split("\n\n").nth(1).unwrap();
        let enter = steps.replace("justapi dev", "pwd; ls");
        let shell = folder.program("dash", &["-ec", &enter]).output().unwrap();
        let shell = Run::of(&shell).expect(0);
        let expected = folder.path().join(&target);
        assert!(
            shell.stdout.starts_with(expected.to_str().unwrap()),
            "{shell:#?}"
        );
        assert!(shell.stdout.contains("app.py"), "{shell:#?}");
    }
}

#[test]
fn the_working_directory_can_be_the_project() {
    let folder = outside();
    let project = folder.path().join("my-shop");
    fs::create_dir_all(project.join(".venv/bin")).unwrap();
    fs::write(project.join("LICENSE"), "mine").unwrap();
    let mut command = folder.program(JUSTAPI, &["new", ".", "--yes"]);
    let run = Run::of(&command.current_dir(&project).output().unwrap()).expect(0);
    assert!(!run.stderr.contains("cd "), "{run:#?}");
    let mut expected: Vec<_> = MINIMAL.iter().map(|name| (*name).to_owned()).collect();
    expected.push("LICENSE".to_owned());
    expected.sort();
    assert_eq!(tree(&project), expected);
    assert!(read(&folder, "my-shop/pyproject.toml").contains("name = \"my-shop\""));
    assert!(project.join(".git").is_dir());
    // Once more changes nothing, as nothing differs.
    let mut command = folder.program(JUSTAPI, &["new", ".", "--yes", "--json"]);
    let again = Run::of(&command.current_dir(&project).output().unwrap()).expect(0);
    let files = again.json()["files"].clone();
    assert!(
        files
            .as_array()
            .unwrap()
            .iter()
            .all(|file| file["action"] == "keep"),
        "{files}"
    );
}

#[test]
fn files_in_the_way_are_named_and_left_alone() {
    let folder = outside()
        .with("demo/app.py", "mine")
        .with("demo/keep.txt", "mine, too");
    let run = new(&folder, &["demo"]).expect(7);
    for expected in ["error[JA701]", "1 file", "app.py", "keep.txt", "--force"] {
        assert!(run.stderr.contains(expected), "{expected}: {run:#?}");
    }
    assert_eq!(tree(&folder.path().join("demo")), ["app.py", "keep.txt"]);
    let run = new(&folder, &["demo", "--dry-run"]).expect(7);
    assert!(run.stdout.contains("kept as app.py.orig"), "{run:#?}");
    assert_eq!(tree(&folder.path().join("demo")), ["app.py", "keep.txt"]);
    let planned = new(&folder, &["demo", "--dry-run", "--json"])
        .expect(7)
        .json();
    assert!(
        planned["conflict"].as_str().unwrap().contains("not empty"),
        "{planned}"
    );
    let run = new(&folder, &["demo", "--json"]).expect(7);
    assert_eq!(run.json()["error"]["code"], "JA701");
    // An empty folder is in nobody's way, and a file is no folder.
    fs::create_dir(folder.path().join("empty")).unwrap();
    new(&folder, &["empty"]).expect(0);
    fs::write(folder.path().join("file"), "").unwrap();
    new(&folder, &["file"]).expect(7);
    symlink("nowhere", folder.path().join("link")).unwrap();
    new(&folder, &["link"]).expect(7);
    assert!(folder.path().join("link").is_symlink());
}

#[test]
fn force_replaces_and_keeps() {
    let folder = outside()
        .with("demo/app.py", "mine")
        .with("demo/app.py.orig", "older")
        .with("demo/keep.txt", "mine, too");
    let run = new(&folder, &["demo", "--force"]).expect(0);
    assert!(
        run.stderr
            .contains("replaced app.py, kept as app.py.orig.1"),
        "{run:#?}"
    );
    assert!(read(&folder, "demo/app.py").contains("JustAPI"));
    assert_eq!(read(&folder, "demo/app.py.orig"), "older");
    assert_eq!(read(&folder, "demo/app.py.orig.1"), "mine");
    assert_eq!(read(&folder, "demo/keep.txt"), "mine, too");
    assert_eq!(tree(&folder.path().join("demo")).len(), MINIMAL.len() + 3);
}

#[test]
fn nothing_is_written_through_a_link_or_over_a_folder() {
    let folder = outside().with("elsewhere/x", "");
    fs::create_dir(folder.path().join("a")).unwrap();
    symlink("../elsewhere", folder.path().join("a/tests")).unwrap();
    fs::create_dir_all(folder.path().join("b/app.py")).unwrap();
    fs::create_dir(folder.path().join("c")).unwrap();
    symlink("../elsewhere/x", folder.path().join("c/app.py")).unwrap();
    fs::create_dir(folder.path().join("d")).unwrap();
    fs::write(folder.path().join("d/tests"), "a file").unwrap();
    fs::create_dir(folder.path().join("e")).unwrap();
    fs::create_dir_all(folder.path().join("elsewhere/empty")).unwrap();
    symlink("elsewhere", folder.path().join("f")).unwrap();
    symlink("elsewhere/empty", folder.path().join("g")).unwrap();
    let pipe = folder.path().join("e/app.py");
    assert!(Command::new("mkfifo").arg(pipe).status().unwrap().success());
    for (target, expected) in [
        ("e", "is no plain file"),
        ("a", "reached through one"),
        ("b", "is a folder"),
        ("c", "is a link"),
        ("d", "needs a folder"),
        ("f", "`f` is a link to `"),
        ("f/", "nothing is written through a link"),
        ("f/.", "elsewhere`"),
        ("g", "nothing is written through a link"),
    ] {
        let before = tree(folder.path());
        let run = new(&folder, &[target, "--force"]).expect(7);
        assert!(run.stderr.contains(expected), "{run:#?}");
        assert_eq!(tree(folder.path()), before);
    }
    assert_eq!(read(&folder, "elsewhere/x"), "");
    // By its own name, or from inside, it is a folder like any other.
    let mut command = folder.program(JUSTAPI, &["new", ".", "--yes", "--name", "shop"]);
    let inside = folder.path().join("g");
    Run::of(&command.current_dir(inside).output().unwrap()).expect(0);
    assert!(folder.path().join("elsewhere/empty/app.py").is_file());
}

#[test]
fn a_dry_run_says_it_all_and_writes_nothing() {
    let folder = outside();
    let run = new(&folder, &["demo", "--dry-run"]).expect(0);
    let listed: Vec<_> = run
        .stdout
        .lines()
        .map(|line| line.rsplit(' ').next().unwrap())
        .collect();
    assert_eq!(listed, MINIMAL);
    assert!(
        run.stdout.lines().all(|line| line.starts_with("644 ")),
        "{run:#?}"
    );
    let json = new(&folder, &["demo", "--dry-run", "--json"])
        .expect(0)
        .json();
    assert_eq!(json["dry_run"], true);
    assert_eq!(json["files"].as_array().unwrap().len(), MINIMAL.len());
    assert_eq!(tree(folder.path()), [""; 0]);
}

#[test]
fn json_is_one_document() {
    let folder = outside();
    let json = new(&folder, &["my-api", "--json"]).expect(0).json();
    let path = folder.path().canonicalize().unwrap().join("my-api");
    assert_eq!(json["path"], path.to_str().unwrap());
    assert_eq!(json["name"], "my-api");
    assert_eq!(json["module"], "my_api");
    assert_eq!(json["template"], "minimal");
    assert_eq!(json["git"], "initialised");
    assert_eq!(
        json["next"],
        serde_json::json!(["cd my-api", "justapi dev"])
    );
    let listed = folder.run("new --list --json").expect(0).json();
    let names: Vec<&Value> = listed["templates"]
        .as_array()
        .unwrap()
        .iter()
        .map(|template| &template["name"])
        .collect();
    assert_eq!(names, ["minimal", "api", "rust"]);
    assert!(
        folder
            .run("new --list")
            .expect(0)
            .stdout
            .contains("--set db=sqlite|postgres")
    );
}

#[test]
fn wrong_answers_name_the_right_ones() {
    let folder = outside();
    for (arguments, code, expected) in [
        (&["a", "--set", "db"][..], "", "such as db=postgres"),
        (&["a", "--set", "x=1"], "JA204", "it asks nothing"),
        (
            &["a", "-t", "api", "--set", "bd=sqlite"],
            "JA204",
            "did you mean `db`?",
        ),
        (
            &["a", "-t", "api", "--set", "db=postgre"],
            "JA204",
            "did you mean `postgres`?",
        ),
        (
            &["a", "-t", "api", "--set", "ci=maybe"],
            "JA204",
            "`--set ci=true|false`",
        ),
        (&["a", "-t", "apy"], "JA207", "did you mean `api`?"),
        (&["a", "-t", "./nowhere"], "JA207", "no such file"),
        (&["a", "--ref", "main"], "JA202", "`--ref`"),
        (&["a", "--vcs", "none", "--commit"], "JA202", "`--commit`"),
        (&[], "JA203", "justapi new my-api"),
    ] {
        let run = new(&folder, arguments).expect(2);
        assert!(
            run.stderr.contains(expected) && run.stderr.contains(code),
            "{run:#?}"
        );
        assert_eq!(tree(folder.path()), [""; 0]);
    }
}

#[test]
fn a_repository_is_made_unless_there_is_one() {
    let folder = outside()
        .env("GIT_AUTHOR_NAME", "Ada")
        .env("GIT_AUTHOR_EMAIL", "ada@example.com")
        .env("GIT_COMMITTER_NAME", "Ada")
        .env("GIT_COMMITTER_EMAIL", "ada@example.com")
        // Of another repository, as in a hook that starts us.
        .env("GIT_DIR", "/nowhere/.git");
    let git = |arguments: &[&str]| {
        let mut command = folder.program("git", arguments);
        let output = command
            .env_remove("GIT_DIR")
            .current_dir(folder.path().join("demo"));
        Run::of(&output.output().unwrap()).expect(0).stdout
    };
    new(&folder, &["demo"]).expect(0);
    let staged = git(&["status", "--short"]);
    assert_eq!(
        staged.lines().filter(|line| line.starts_with("A ")).count(),
        MINIMAL.len()
    );
    assert!(git(&["config", "--list", "--local"]).contains("core.bare=false"));
    // Nothing may point at where it was made.
    let config = fs::read_to_string(folder.path().join("demo/.git/config")).unwrap();
    assert!(!config.contains(".justapi-new"), "{config}");
    let json = new(&folder, &["demo/inner", "--json"]).expect(0).json();
    assert_eq!(json["git"], "inside");
    assert!(!folder.path().join("demo/inner/.git").exists());
    assert_eq!(
        new(&folder, &["plain", "--vcs", "none", "--json"])
            .expect(0)
            .json()["git"],
        "none"
    );
    assert!(!folder.path().join("plain/.git").exists());
    let committed = new(&folder, &["committed", "--commit", "--json"])
        .expect(0)
        .json();
    assert_eq!(committed["git"], "committed");
}

#[test]
fn without_git_there_is_a_project_all_the_same() {
    let folder = outside();
    let mut command = folder.program(JUSTAPI, &["new", "demo", "--yes"]);
    let run = Run::of(&command.env("PATH", "/nowhere").output().unwrap()).expect(0);
    assert!(run.stderr.contains("git is not installed"), "{run:#?}");
    assert_eq!(tree(&folder.path().join("demo")), MINIMAL);
    // Nor does it need an identity.
    let folder = outside()
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null");
    let folder = folder
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "user.useConfigOnly");
    let folder = folder.env("GIT_CONFIG_VALUE_0", "true");
    let run = new(&folder, &["demo", "--commit", "--json"]).expect(0);
    assert_eq!(run.json()["git"], "failed");
    assert!(run.stderr.contains("warning"), "{run:#?}");
    assert_eq!(tree(&folder.path().join("demo")), MINIMAL);
}
