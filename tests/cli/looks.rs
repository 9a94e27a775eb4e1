//! Commands that look at what would be served, at the project and at the machine, and serve
//! nothing; applications in Python are looked at in `tests/python`.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use serde_json::Value;

use crate::binary::{Folder, JUSTAPI, Run, on_a_terminal, terminal};

#[test]
fn routes_without_an_application_are_those_of_the_server() {
    let folder = Folder::new();
    let run = folder.run("routes").expect(0);
    assert!(
        run.stdout.contains("GET     /hello") || run.stdout.contains("/hello"),
        "{run:?}"
    );
    let note =
        "there is no application in this folder, so this is what `justapi serve` serves here: demo";
    assert!(run.stderr.contains(note), "{run:?}");
    let json = folder.run("routes --json -q").expect(0).json();
    let routes = json["routes"].as_array().unwrap();
    assert!(routes.iter().any(|route| route["path"] == "/hello"));
    let posts = folder.run("routes --method post --json").expect(0).json();
    let posts = posts["routes"].as_array().unwrap();
    assert!(!posts.is_empty() && posts.len() < routes.len());
    let none = folder.run("routes --path /nothing*").expect(0);
    assert!(none.stderr.contains("no route matches"), "{none:?}");
    assert!(none.stdout.starts_with("0 routes, "), "{none:?}");
    // Folders and proxies take the place of the demo.
    let folder = folder
        .with("site/index.html", "")
        .with("justapi.toml", "[server]\nstatic = [\"/=site\"]\n");
    let json = folder.run("routes --json").expect(0).json();
    assert_eq!(json["kind"], "files", "{json}");
}

#[test]
fn the_document_is_the_one_that_is_served() {
    let folder = Folder::new();
    let run = folder.run("openapi").expect(0);
    assert!(
        run.stderr
            .contains("there is no application in this folder"),
        "{run:?}"
    );
    assert_eq!(folder.run("openapi -q").expect(0).stderr, "");
    let document: Value = run.json();
    let served = folder.serve("--port 0");
    let answer = served.get("/openapi.json");
    let body: Value = serde_json::from_str(crate::binary::body(&answer)).unwrap();
    assert_eq!(document["paths"], body["paths"]);
    assert_eq!(folder.run("openapi").expect(0).stdout, run.stdout);
}

#[test]
fn a_document_in_a_file_is_compared() {
    let folder = Folder::new();
    let path = folder.path().join("openapi.json");
    let written = folder.run("openapi --output openapi.json").expect(0);
    assert!(written.stderr.contains("wrote openapi.json"), "{written:?}");
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text, folder.run("openapi --output -").expect(0).stdout);
    let again = folder.run("openapi -o openapi.json").expect(0);
    assert!(
        again.stderr.contains("unchanged: openapi.json"),
        "{again:?}"
    );
    folder.run("openapi --check openapi.json").expect(0);
    // Order and form do not count, what is said does.
    let mut changed: Value = serde_json::from_str(&text).unwrap();
    fs::write(&path, changed.to_string()).unwrap();
    folder.run("openapi --check openapi.json").expect(0);
    changed["info"]["title"] = "another".into();
    changed["paths"]["/gone"] = serde_json::json!({"get": {}});
    changed["paths"].as_object_mut().unwrap().remove("/hello");
    fs::write(&path, changed.to_string()).unwrap();
    let run = folder.run("openapi --check openapi.json").expect(1);
    for expected in [
        "~  info > title: \"another\" -> \"justapi demo\"",
        "-  paths > /gone: {\"get\":{}}",
        "+  paths > /hello: an object of get",
    ] {
        assert!(run.stdout.contains(expected), "{expected} in {run:#?}");
    }
    assert!(run.stderr.contains("error[JA412]"), "{run:?}");
    assert!(
        run.stderr
            .contains("`justapi openapi --output openapi.json`"),
        "{run:?}"
    );
    let json = folder
        .run("openapi --check openapi.json --json")
        .expect(1)
        .json();
    assert_eq!(json["same"], false);
    assert_eq!(json["differences"].as_array().unwrap().len(), 3, "{json}");
    let run = folder.run("openapi --check openapi.json -o x").expect(2);
    assert!(run.stderr.contains("cannot be used with"), "{run:?}");
}

#[test]
fn a_check_counts_settings_without_effect() {
    let folder = Folder::new().with("justapi.toml", "[server]\nprot = 1\n");
    let run = folder.run("check").expect(0);
    assert!(
        run.stdout.contains("did you mean `server.port`?"),
        "{run:?}"
    );
    assert!(run.stdout.contains("--> justapi.toml:2"), "{run:?}");
    folder.run("check --strict").expect(1);
    let json = folder.run("check --json").expect(0).json();
    assert_eq!(json["ok"], true);
    assert_eq!(json["checks"][0]["status"], "warn");
    let busy = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = busy.local_addr().unwrap().port();
    // No port is opened, so one that is taken does not matter.
    folder.run(&format!("check --port {port}")).expect(0);
    folder
        .run("check --tls-cert cert.pem --tls-key key.pem")
        .expect(3);
}

#[test]
fn the_doctor_names_what_is_wrong_and_the_way_out() {
    let folder = Folder::new();
    let run = folder.run("doctor --json");
    let json = run.json();
    let names: Vec<_> = json["checks"].as_array().unwrap().iter().collect();
    for name in [
        "program",
        "settings",
        "python",
        "address",
        "processors",
        "descriptors",
    ] {
        assert!(
            names.iter().any(|one| one["name"] == name),
            "{name} in {json:#}"
        );
    }
    for one in names {
        let is_fine = one["status"] == "ok";
        assert_eq!(is_fine, one["fix"].is_null(), "{one}");
    }

    let busy = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = busy.local_addr().unwrap().port();
    let folder = Folder::new().with("justapi.toml", &format!("[server]\nport = {port}\n"));
    let run = folder.run("doctor");
    // Where a line ends depends on the place of the program that has it.
    let words: Vec<_> = run.stdout.split_whitespace().collect();
    let held = format!("127.0.0.1:{port} is taken: /");
    assert!(words.join(" ").contains(&held), "{run:#?}");
    assert!(
        run.stdout
            .contains(&format!("`kill {}`", std::process::id())),
        "{run:#?}"
    );

    let broken = Folder::new().with("justapi.toml", "[server\n");
    let run = broken.run("doctor").expect(1);
    assert!(run.stdout.contains("fail  settings"), "{run:#?}");
    assert!(run.stdout.contains("--> justapi.toml:1"), "{run:#?}");

    let run = Folder::new().run("doctor --python nowhere").expect(1);
    assert!(run.stdout.contains("fail  python"), "{run:#?}");
    assert!(run.stdout.contains("[JA601]"), "{run:#?}");
}

#[test]
fn an_interpreter_without_the_package_is_only_missed_by_applications() {
    let folder = Folder::new().env("VIRTUAL_ENV", "/nowhere");
    let python = std::env::var("JUSTAPI_TEST_PYTHON").unwrap_or("python3".to_owned());
    let run = folder
        .run(&format!("doctor app:app --python {python}"))
        .expect(1);
    assert!(
        run.stdout.contains("does not have the package `justapi`"),
        "{run:#?}"
    );
    assert!(run.stdout.contains("-m pip install"), "{run:#?}");
    for command in ["routes", "openapi", "check"] {
        let run = folder
            .run(&format!("{command} app:app --python {python}"))
            .expect(6);
        assert!(run.stderr.contains("error[JA601]"), "{run:#?}");
    }
}

#[test]
fn colours_only_where_somebody_looks() {
    let has_colour = |folder: &Folder, arguments: &str| {
        let run = folder.run(arguments);
        (run.stdout + &run.stderr).contains('\x1b')
    };
    let commands = ["routes", "check", "doctor", "explain JA501", "self update"];
    let plain = Folder::new();
    let forced = Folder::new().env("FORCE_COLOR", "1");
    let refused = Folder::new().env("FORCE_COLOR", "1").env("NO_COLOR", "1");
    for command in commands {
        assert!(!has_colour(&plain, command), "{command}");
        assert!(has_colour(&forced, command), "{command}");
        assert!(!has_colour(&refused, command), "{command}");
        assert!(
            has_colour(&plain, &format!("{command} --color always")),
            "{command}"
        );
        assert!(
            !has_colour(&forced, &format!("{command} --color never")),
            "{command}"
        );
    }
    // Standard error is a terminal, standard output is not: each is decided for itself.
    let (shown, run) = on_a_terminal(plain.program(JUSTAPI, &["routes"]));
    assert!(shown.contains('\x1b'), "{shown:?}");
    assert!(!run.stdout.contains('\x1b'), "{run:?}");
    let (shown, _) = on_a_terminal(refused.program(JUSTAPI, &["routes"]));
    assert!(!shown.contains('\x1b'), "{shown:?}");
}

#[test]
fn a_reader_that_leaves_ends_them_quietly() {
    let folder = Folder::new();
    for arguments in [
        &["routes", "-q"][..],
        &["openapi", "-q"],
        &["check"],
        &["doctor"],
        &["explain"],
        &["check", "--json"],
    ] {
        let mut child = folder
            .program(JUSTAPI, arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let run = Run::of(&child.wait_with_output().unwrap()).expect(0);
        assert_eq!(run.stderr, "", "{arguments:?}");
        let full = fs::File::create("/dev/full").unwrap();
        let output = folder
            .program(JUSTAPI, arguments)
            .stdout(full)
            .output()
            .unwrap();
        let run = Run::of(&output).expect(1);
        assert!(run.stderr.contains("error[JA101]"), "{run:?}");
    }
}

/// An interpreter of a virtual environment whose pydantic is older than any that works; pip mends
/// it, or fails where `python.broken` is.
const PYTHON: &str = r#"#!/bin/sh
here=$(dirname "$0")
case "$*" in
*'PackageNotFoundError'*)
  if [ -e "$here/mended" ]; then version=2.9.0; else version=2.0.0; fi
  echo "{\"packages\": {\"pydantic\": \"$version\"}, \"is_environment\": $(cat "$here/environment")}" ;;
*'-m pip install'*)
  echo "pip was told: $*"
  if [ -e "$here/broken" ]; then exit 3; fi
  touch "$here/mended" ;;
*)
  echo '{"executable": "PATH", "version": [3, 12], "is_free_threaded": false, "package": "VERSION"}' ;;
esac
"#;

fn with_old_pydantic() -> Folder {
    let folder = Folder::new().with("environment", "true");
    let path = folder.path().join("python");
    let text = PYTHON
        .replace("PATH", &path.display().to_string())
        .replace("VERSION", env!("CARGO_PKG_VERSION"));
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    folder
}

#[test]
fn the_doctor_mends_what_somebody_agrees_to() {
    let folder = with_old_pydantic();
    let run = folder.run("doctor --python ./python").expect(1);
    assert!(run.stdout.contains("pydantic 2.0.0 is too old"), "{run:#?}");
    assert!(!run.stderr.contains("would run"), "{run:#?}");
    let command = "python -m pip install -U 'pydantic>=2.7'";

    // Without anybody to ask nothing is run.
    let run = folder.run("doctor --python ./python --fix").expect(1);
    assert!(run.stderr.contains(command), "{run:#?}");
    assert!(run.stderr.contains("`--yes` agrees"), "{run:#?}");
    assert!(!folder.path().join("mended").exists());
    folder.run("doctor --yes").expect(2);

    let folder = folder.with("broken", "");
    let run = folder.run("doctor --python ./python --fix --yes").expect(1);
    assert!(run.stderr.contains("exit status: 3"), "{run:#?}");
    fs::remove_file(folder.path().join("broken")).unwrap();

    let run = folder
        .run("doctor --python ./python --fix --yes --json")
        .expect(0);
    assert!(
        run.stderr.contains("pip was told: -m pip install"),
        "{run:#?}"
    );
    let json = run.json();
    assert!(
        json["repaired"][0].as_str().unwrap().ends_with(command),
        "{json:#}"
    );
    assert_eq!(json["failures"], 0);
    let run = folder.run("doctor --python ./python --fix").expect(0);
    assert!(
        run.stderr.contains("nothing here can be put right"),
        "{run:#?}"
    );
}

#[test]
fn the_doctor_leaves_the_systems_python_alone() {
    let folder = with_old_pydantic().with("environment", "false");
    let run = folder.run("doctor --python ./python --fix --yes").expect(1);
    assert!(
        run.stdout.contains("pip install -U 'pydantic>=2.7'"),
        "{run:#?}"
    );
    assert!(!folder.path().join("mended").exists());
}

#[test]
fn the_doctor_asks_a_person() {
    for (answer, status) in [("y\n", 0), ("\n", 1), ("no\n", 1)] {
        let folder = with_old_pydantic();
        let (mut keys, side) = terminal();
        keys.write_all(answer.as_bytes()).unwrap();
        let mut command = folder.program(
            JUSTAPI,
            &["doctor", "--python", "./python", "--fix", "--json"],
        );
        let output = command.stdin(side()).stderr(side()).output().unwrap();
        let run = Run::of(&output).expect(status);
        let count = run.json()["repaired"].as_array().unwrap().len();
        assert_eq!(count, usize::from(status == 0), "{answer:?} {run:#?}");
        assert_eq!(folder.path().join("mended").exists(), status == 0);
    }
}
