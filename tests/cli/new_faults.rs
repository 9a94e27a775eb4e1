//! `justapi new` while the world fails: full disks, folders that are not ours,
//! a process that is killed, and templates made by others.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::binary::{Folder, JUSTAPI, Run};

/// Files of the large template; enough that a kill hits the middle.
const NUM_FILES: usize = 1500;

fn outside() -> Folder {
    let folder = Folder::new();
    fs::remove_dir(folder.path().join(".git")).unwrap();
    folder
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// A template in the folder `t`, with one file.
fn template(manifest: &str, file: &str, content: &str) -> Folder {
    outside()
        .with("t/template.toml", &format!("description = 'd'\n{manifest}"))
        .with(&format!("t/files/{file}"), content)
}

fn new(folder: &Folder, arguments: &[&str]) -> Run {
    let mut all = vec!["new", "--yes"];
    all.extend(arguments);
    Run::of(&folder.program(JUSTAPI, &all).output().unwrap())
}

#[track_caller]
fn refused(folder: &Folder, code: &str, expected: &str) {
    let run = new(folder, &["demo", "--template", "./t"]);
    assert_ne!(run.status, 0, "{run:#?}");
    assert!(
        run.stderr.contains(code) && run.stderr.contains(expected),
        "{expected}: {run:#?}"
    );
    assert_eq!(names(folder.path()), ["t"]);
}

/// The command, run by somebody who is not root: root may write everywhere.
fn as_nobody(folder: &Folder, arguments: &[&str]) -> Command {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        return folder.program(JUSTAPI, arguments);
    }
    // The build folder may be closed to others.
    let copy = PathBuf::from(folder.path()).join("justapi");
    if !copy.exists() {
        fs::copy(JUSTAPI, &copy).unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut all = vec!["--reuid=65534", "--regid=65534", "--clear-groups", "--"];
    all.push(copy.to_str().unwrap());
    all.extend(arguments);
    folder.program("setpriv", &all)
}

#[test]
fn a_folder_that_is_not_ours_stays_as_it_is() {
    let folder = outside();
    let closed = folder.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::create_dir(closed.join("there")).unwrap();
    for path in [closed.join("there"), closed.clone()] {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o555)).unwrap();
    }
    for target in ["closed/demo", "closed/there"] {
        let run = as_nobody(&folder, &["new", target, "--yes"])
            .output()
            .unwrap();
        let run = Run::of(&run).expect(1);
        assert!(run.stderr.contains("error[JA702]"), "{run:#?}");
        assert!(run.stderr.contains("permission denied"), "{run:#?}");
        assert_eq!(names(&closed), ["there"]);
        assert_eq!(names(&closed.join("there")), [""; 0]);
    }
}

#[test]
fn a_full_disk_leaves_nothing_behind() {
    let folder = outside().with("there/keep", "mine");
    // A file may have 2 KiB at most; some of the template's are larger.
    let limited = |target: &str| {
        let script = format!(
            "trap '' XFSZ; ulimit -f 2; exec \"$0\" new {target} --yes --force --template api"
        );
        let output = folder
            .program("bash", &["-c", &script, JUSTAPI])
            .output()
            .unwrap();
        Run::of(&output)
    };
    for target in ["demo", "there"] {
        let run = limited(target).expect(1);
        assert!(run.stderr.contains("error[JA702]"), "{run:#?}");
        assert_eq!(names(folder.path()), ["there"]);
        assert_eq!(names(&folder.path().join("there")), ["keep"]);
    }
}

#[test]
fn whoever_ends_it_finds_all_or_nothing() {
    let folder = outside().with("t/template.toml", "description = 'd'");
    for number in 0..NUM_FILES {
        let path = folder
            .path()
            .join(format!("t/files/{}/{number}", number % 10));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x".repeat(500)).unwrap();
    }
    let demo = folder.path().join("demo");
    let mut num_ended = 0;
    for delay_ms in (0..60).step_by(4) {
        for signal in [Signal::KILL, Signal::TERM] {
            let arguments = ["new", "demo", "--yes", "--template", "./t", "--vcs", "none"];
            let mut command = folder.program(JUSTAPI, &arguments);
            let mut child = command.stderr(Stdio::null()).spawn().unwrap();
            // No synchronisation: whatever moment it hits, the outcome must be one of two.
            sleep(Duration::from_millis(delay_ms));
            let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
            // It may have ended.
            let _ = kill_process(pid, signal);
            let status = child.wait().unwrap();
            num_ended += u32::from(!status.success());
            if demo.exists() {
                let count: usize = (0..10)
                    .map(|part| names(&demo.join(part.to_string())).len())
                    .sum();
                assert_eq!(count, NUM_FILES, "after {delay_ms} ms");
                assert!(demo.join(".justapi/template.toml").exists());
                fs::remove_dir_all(&demo).unwrap();
            }
            for name in names(folder.path()).iter().filter(|name| *name != "t") {
                assert!(name.starts_with(".justapi-new-"), "{name}");
                // Before it listens to signals there is nothing to remove yet.
                assert_eq!(signal, Signal::KILL, "{name} after {delay_ms} ms");
                fs::remove_dir_all(folder.path().join(name)).unwrap();
            }
        }
    }
    assert!(num_ended > 0, "every one was faster than its signal");
}

#[test]
fn templates_of_others_cannot_lead_out() {
    for file in [
        "dot-./x",
        "dot-git/hooks/pre-commit",
        "dot-justapi/template.toml",
        "a\\b",
    ] {
        refused(&template("", file, ""), "error[JA703]", "the path");
    }
    let folder = template("", "a", "");
    symlink("/etc", folder.path().join("t/files/etc")).unwrap();
    refused(&folder, "error[JA703]", "is a link");
    let folder = template("", "a", "");
    let made = Command::new("mkfifo")
        .arg(folder.path().join("t/files/pipe"))
        .status();
    assert!(made.unwrap().success());
    refused(&folder, "error[JA703]", "is not a plain file");
}

#[test]
fn mistakes_in_a_template_are_shown_where_they_are() {
    refused(
        &outside().with("t/files/a", ""),
        "error[JA703]",
        "no template.toml",
    );
    refused(
        &template("x = 1", "a", ""),
        "error[JA703]",
        "--> template.toml:2",
    );
    refused(
        &template("", "a.j2", "\n{{ nam }}"),
        "error[JA703]",
        "--> files/a.j2:2",
    );
    refused(
        &template("[files.a]\nwhen = 'nope'", "a", ""),
        "error[JA703]",
        "undefined",
    );
    let asks = "[[question]]\nname = 'port'\nprompt = 'Port'";
    refused(&template(asks, "a", ""), "error[JA203]", "--set port=TEXT");
    let folder = template(asks, "a.j2", "{{ port }} {{ name }}");
    new(&folder, &["demo", "-t", "./t", "--set", "port=80=80"]).expect(0);
    let text = fs::read_to_string(folder.path().join("demo/a")).unwrap();
    assert_eq!(text, "80=80 demo");
}

#[test]
fn modes_and_bytes_are_kept() {
    let folder =
        template("", "run.sh", "#!/bin/sh\r\n{{ not_rendered }}").with("t/files/plain", "");
    let script = folder.path().join("t/files/run.sh");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    new(&folder, &["demo", "-t", "./t"]).expect(0);
    let made = folder.path().join("demo/run.sh");
    assert_eq!(fs::read(&made).unwrap(), b"#!/bin/sh\r\n{{ not_rendered }}");
    assert_eq!(
        fs::metadata(&made).unwrap().permissions().mode() & 0o111,
        0o111
    );
    let plain = fs::metadata(folder.path().join("demo/plain")).unwrap();
    assert_eq!(plain.permissions().mode() & 0o111, 0);
}

/// A repository with a template, twice changed: its URL, its first commit (`v1`) and its second.
fn origin(folder: &Folder) -> [String; 3] {
    let origin = folder.path().join("origin");
    fs::create_dir_all(origin.join("files")).unwrap();
    let git = |arguments: &[&str]| {
        let mut command = folder.program("git", &["-c", "user.name=a", "-c", "user.email=a@b.c"]);
        let run = Run::of(
            &command
                .args(arguments)
                .current_dir(&origin)
                .output()
                .unwrap(),
        );
        run.expect(0).stdout
    };
    git(&["init", "--quiet", "--initial-branch=main"]);
    fs::write(origin.join("template.toml"), "description = 'd'").unwrap();
    let commit = |text: &str| {
        fs::write(origin.join("files/text"), text).unwrap();
        git(&["add", "--all"]);
        git(&["commit", "--quiet", "--message", text]);
        git(&["rev-parse", "HEAD"]).trim().to_owned()
    };
    let first = commit("one");
    git(&["tag", "v1"]);
    let second = commit("two");
    [format!("file://{}", origin.display()), first, second]
}

#[test]
fn a_repository_is_a_template_and_runs_nothing() {
    let folder = outside();
    let [url, first, second] = origin(&folder);
    // Hooks of the user's own would run in every new repository.
    let hook = folder.path().join("hooks/hooks/post-checkout");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    let ran = folder.path().join("ran");
    fs::write(&hook, format!("#!/bin/sh\ntouch '{}'\n", ran.display())).unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    let hooks = folder.path().join("hooks").display().to_string();
    let folder = folder
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "init.templateDir")
        .env("GIT_CONFIG_VALUE_0", &hooks);
    for (name, reference, commit, text) in [
        ("a", None, &second, "two"),
        ("b", Some("v1"), &first, "one"),
        ("c", Some(first.as_str()), &first, "one"),
        ("d", Some("main"), &second, "two"),
    ] {
        let mut arguments = vec![name, "--template", &url, "--vcs", "none"];
        arguments.extend(
            reference
                .map(|reference| ["--ref", reference])
                .iter()
                .flatten(),
        );
        new(&folder, &arguments).expect(0);
        let made = folder.path().join(name);
        assert_eq!(fs::read_to_string(made.join("text")).unwrap(), text);
        let record = fs::read_to_string(made.join(".justapi/template.toml")).unwrap();
        let record: toml::Table = record.parse().unwrap();
        assert_eq!(record["template"]["commit"].as_str(), Some(commit.as_str()));
        assert_eq!(record["template"]["url"].as_str(), Some(url.as_str()));
    }
    assert!(!ran.exists(), "a hook was run");
}

#[test]
fn hooks_of_a_template_never_run() {
    let folder = template("", "hooks/pre-commit", "");
    let hooks = folder.path().join("t/files/hooks");
    let ran = folder.path().join("ran");
    let script = format!("#!/bin/sh\ntouch '{}'\n", ran.display());
    for name in ["pre-commit", "post-commit", "post-index-change"] {
        fs::write(hooks.join(name), &script).unwrap();
        fs::set_permissions(hooks.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    // A user who keeps the hooks of every project in it.
    let folder = folder
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "core.hooksPath")
        .env("GIT_CONFIG_VALUE_0", "hooks");
    let folder = with_identity(folder);
    new(&folder, &["demo", "-t", "./t", "--commit"]).expect(0);
    assert_eq!(names(&folder.path().join("demo/hooks")).len(), 3);
    assert_eq!(committed(&folder.path().join("demo")).len(), 4);
    assert!(!ran.exists(), "a hook was run");
}

fn with_identity(folder: Folder) -> Folder {
    let mut folder = folder;
    for person in ["AUTHOR", "COMMITTER"] {
        folder = folder
            .env(&format!("GIT_{person}_NAME"), "a")
            .env(&format!("GIT_{person}_EMAIL"), "a@b.c");
    }
    folder
}

/// Paths in the last commit of a repository.
fn committed(folder: &Path) -> Vec<String> {
    let mut command = Command::new("git");
    command.args(["ls-tree", "-r", "--name-only", "HEAD"]);
    let output = command.current_dir(folder).output().unwrap();
    let text = Run::of(&output).expect(0).stdout;
    text.lines().map(str::to_owned).collect()
}

#[test]
fn only_the_projects_own_files_are_committed() {
    let folder = with_identity(
        template("", "src/a", "new")
            .with("t/files/dot-gitignore", "local\n")
            .with("t/files/local", "")
            .with("demo/.venv/big", "mine")
            .with("demo/.vscode/settings.json", "{}")
            .with("demo/LICENSE", "mine")
            .with("demo/src/a", "old")
            .with("demo/src/b", "mine"),
    );
    let arguments = ["demo", "-t", "./t", "--commit", "--force"];
    new(&folder, &arguments).expect(0);
    let demo = folder.path().join("demo");
    assert_eq!(fs::read_to_string(demo.join("src/a.orig")).unwrap(), "old");
    assert_eq!(
        committed(&demo),
        [".gitignore", ".justapi/template.toml", "src/a"]
    );
    assert!(demo.join("local").exists());
}

#[test]
fn a_password_in_a_url_is_neither_shown_nor_kept() {
    let folder = with_identity(outside());
    let [url, ..] = origin(&folder);
    let secret = "https://ada:s3cr3t@a.example/t.git";
    // What the URL stands for is here.
    let key = format!("url.{url}.insteadOf");
    let folder = folder
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", &key)
        .env("GIT_CONFIG_VALUE_0", secret);
    let run = new(&folder, &["demo", "-t", secret, "--commit"]).expect(0);
    let demo = folder.path().join("demo");
    let record = fs::read_to_string(demo.join(".justapi/template.toml")).unwrap();
    assert!(record.contains("\"https://a.example/t.git\""), "{record}");
    let mut command = folder.program("git", &["log", "--format=%B"]);
    let log = Run::of(&command.current_dir(&demo).output().unwrap()).expect(0);
    assert!(log.stdout.contains("a.example"), "{log:#?}");
    let missing = new(&folder, &["e", "-t", secret, "--ref", "nope"]).expect(1);
    let json = new(&folder, &["f", "-t", secret, "--json"]).expect(0);
    for text in [
        &run.stderr,
        &record,
        &log.stdout,
        &missing.stderr,
        &json.stdout,
    ] {
        assert!(!text.contains("s3cr3t") && !text.contains("ada"), "{text}");
    }
}

#[test]
fn where_a_template_is_on_this_machine_is_not_recorded() {
    let folder = with_identity(template("", "a", ""));
    let place = folder.path().join("t");
    new(
        &folder,
        &["demo", "-t", place.to_str().unwrap(), "--commit"],
    )
    .expect(0);
    let demo = folder.path().join("demo");
    let record = fs::read_to_string(demo.join(".justapi/template.toml")).unwrap();
    let table: toml::Table = record.parse().unwrap();
    assert_eq!(table["template"]["folder"].as_str(), Some("t"));
    let mut command = folder.program("git", &["log", "--format=%B"]);
    let log = Run::of(&command.current_dir(&demo).output().unwrap()).expect(0);
    assert_eq!(log.stdout.trim(), "Start from the template t");
}

#[test]
fn what_git_cannot_fetch_leaves_nothing() {
    let folder = outside();
    let [url, ..] = origin(&folder);
    let temporary = folder.path().join("tmp");
    fs::create_dir(&temporary).unwrap();
    let ran = folder.path().join("ran").display().to_string();
    let folder = folder.env("TMPDIR", temporary.to_str().unwrap());
    let runs = format!("ext::touch {ran} ://");
    for (url, reference) in [
        (url.as_str(), "nope"),
        (url.as_str(), "--upload-pack=touch"),
        ("file:///nowhere/at/all", "HEAD"),
        (runs.as_str(), "HEAD"),
    ] {
        let reference = format!("--ref={reference}");
        let run = new(&folder, &["e", "--template", url, &reference]).expect(1);
        assert!(run.stderr.contains("error[JA704]"), "{run:#?}");
    }
    assert_eq!(names(folder.path()), ["origin", "tmp"]);
    assert_eq!(names(&temporary), [""; 0], "a checkout was left");
}

#[test]
fn the_guide_shows_what_happens() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/templates.md");
    let page = fs::read_to_string(page).unwrap();
    let block = |language: &str| {
        let block = page.split(&format!("```{language}\n")).nth(1).unwrap();
        block.split("```").next().unwrap().to_owned()
    };
    let folder = outside()
        .with("t/template.toml", &block("toml"))
        .with("t/files/deploy/a.j2", "[[ name ]] {{ x }} [[ queue ]]")
        .with("t/files/scripts/start.sh", "");
    let run = new(
        &folder,
        &["my-api", "-t", "./t", "--set", "queue=redis", "--vcs=none"],
    );
    let run = run.expect(0);
    let expected = "\n  cd my-api\n  justapi dev\n\nthen edit src/my_api/main.py\n";
    assert!(run.stderr.ends_with(expected), "{run:#?}");
    let made = folder.path().join("my-api");
    assert_eq!(
        fs::read_to_string(made.join("deploy/a")).unwrap(),
        "my-api {{ x }} redis"
    );
    let script = fs::metadata(made.join("scripts/start.sh")).unwrap();
    assert_ne!(script.permissions().mode() & 0o111, 0);
    new(&folder, &["other", "-t", "./t", "--vcs=none"]).expect(0);
    assert!(!folder.path().join("other/deploy").exists());
    let run = new(&outside(), &["my-api"]).expect(0);
    assert_eq!(
        format!("$ justapi new my-api\n{}", run.stderr),
        block("console")
    );
}
