//! Commands that print something and end: version, completions, man, explain.

use std::fs;
use std::io::Read as _;
use std::process::Stdio;

use crate::binary::{Folder, JUSTAPI, Run};

#[test]
fn version_as_text_and_json() {
    let folder = Folder::new();
    let version = env!("CARGO_PKG_VERSION");
    let run = folder.run("-V").expect(0);
    assert_eq!(run.stdout, format!("justapi {version}\n"));
    let json = folder.run("version --json").expect(0).json();
    assert_eq!(json["v"], 1);
    assert_eq!(json["version"], version);
    let profile = if cfg!(debug_assertions) {
        "debug"
    } else {
        "release"
    };
    assert_eq!(json["profile"], profile);
    assert!(json["target"].as_str().unwrap().contains("linux"));
    assert!(json["rustc"].as_str().unwrap().starts_with("rustc "));
    let text = folder.run("version").expect(0).stdout;
    assert!(text.contains(&format!("profile  {profile}")), "{text}");
}

#[test]
fn completions_are_scripts_and_nothing_else() {
    // A broken file must not matter to a shell that starts.
    let folder = Folder::new().with("justapi.toml", "[server\n");
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let run = folder.run(&format!("completions {shell}")).expect(0);
        assert!(
            run.stdout.contains("serve") && run.stdout.len() > 1000,
            "{shell}"
        );
        assert_eq!(run.stderr, "", "{shell}");
    }
    fs::write(
        folder.path().join("justapi.bash"),
        folder.run("completions bash").stdout,
    )
    .unwrap();
    let checked = folder.program("bash", &["-n", "justapi.bash"]).output();
    let run = Run::of(&checked.unwrap()).expect(0);
    assert_eq!(run.stderr, "");
}

#[test]
fn manual_pages_are_roff() {
    let folder = Folder::new();
    let page = folder.run("man").expect(0).stdout;
    assert!(page.contains(".TH justapi 1"), "{page}");
    assert!(page.contains("justapi\\-serve(1)"), "{page}");
    folder.run("man --out pages/man1").expect(0);
    for name in [
        "justapi",
        "justapi-serve",
        "justapi-config-show",
        "justapi-bench",
    ] {
        let path = folder.path().join(format!("pages/man1/{name}.1"));
        let page = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(
            page.contains(".SH OPTIONS") || page.contains(".SH SUBCOMMANDS"),
            "{name}"
        );
    }
}

#[test]
fn every_code_is_explained() {
    let folder = Folder::new();
    let listed = folder.run("explain").expect(0).stdout;
    let codes: Vec<_> = listed
        .lines()
        .filter(|line| line.starts_with("JA"))
        .map(|line| line.split_whitespace().next().unwrap())
        .collect();
    assert!(codes.len() > 20, "{listed}");
    for code in codes {
        let text = folder.run(&format!("explain {code}")).expect(0).stdout;
        assert!(text.starts_with(code) && text.lines().count() > 3, "{text}");
    }
    let json = folder.run("explain ja501 --json").expect(0).json();
    assert_eq!(json["codes"][0]["code"], "JA501");
    assert_eq!(json["codes"][0]["exit"], 5);
    let run = folder.run("explain JA510").expect(2);
    assert!(run.stderr.contains("did you mean"), "{run:?}");
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let folder = Folder::new();
    let mut child = folder
        .program(JUSTAPI, &["completions", "zsh"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The script is longer than nothing, so the write meets a closed pipe.
    drop(child.stdout.take());
    let mut stderr = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut stderr)
        .unwrap();
    assert_eq!(stderr, "");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_full_disk_is_an_error() {
    let folder = Folder::new();
    for arguments in [&["explain"][..], &["--help"], &["completions", "bash"]] {
        let full = fs::File::create("/dev/full").unwrap();
        let output = folder
            .program(JUSTAPI, arguments)
            .stdout(full)
            .output()
            .unwrap();
        let run = Run::of(&output).expect(1);
        assert!(run.stderr.contains("error[JA101]"), "{run:?}");
        assert!(run.stderr.contains("no space left on device"), "{run:?}");
    }
}

#[test]
fn a_misspelt_command_is_named() {
    let folder = Folder::new();
    for (typed, expected) in [
        ("nwe", "new"),
        ("dve", "dev"),
        ("srve", "serve"),
        ("chekc", "check"),
    ] {
        let run = folder.run(typed).expect(2);
        let tip = format!("tip: a similar subcommand exists: '{expected}'");
        assert!(run.stderr.contains(&tip), "{run:?}");
    }
    let run = folder.run("frobnicate").expect(2);
    assert!(!run.stderr.contains("tip:"), "{run:?}");
}
