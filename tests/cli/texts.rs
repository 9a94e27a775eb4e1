//! What the program says, word for word: help of every command, and messages.
//!
//! A text that was changed on purpose is accepted with `INSTA_UPDATE=always`.

use std::fmt::Write as _;

use crate::binary::{Folder, JUSTAPI, Run};
use crate::help::COMMANDS;

fn check(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

/// The default of connections is what the descriptors of the machine suffice for.
fn without_the_machine(text: &str) -> String {
    let key = "[key: server.limits.max_connections] [default: ";
    let Some((before, after)) = text.split_once(key) else {
        return text.to_owned();
    };
    let (_, after) = after.split_once(']').unwrap();
    format!("{before}{key}N]{after}")
}

#[test]
fn help_texts() {
    let folder = Folder::new();
    for command in COMMANDS.iter().filter(|command| **command != "help") {
        let mut text = String::new();
        for flag in ["-h", "--help"] {
            let run = folder.run(&format!("{command} {flag}")).expect(0);
            let shown = format!("justapi {command} {flag}").replace("  ", " ");
            writeln!(text, "$ {shown}\n{}", without_the_machine(&run.stdout)).unwrap();
        }
        let name = match command.replace(' ', "_") {
            name if name.is_empty() => "help".to_owned(),
            name => format!("help_{name}"),
        };
        check(&name, &text);
    }
}

#[test]
fn messages() {
    let folder = Folder::new()
        .with("odd.toml", "[server]\nprot = 1\n")
        .with("broken.toml", "[server\n")
        .with("wrong.toml", "[server]\nport = \"x\"\n")
        .with("old.json", "{\"openapi\": \"3.1.0\"}")
        .with("no.json", "openapi: 3.1.0\n");
    let mut text = String::new();
    for command in [
        "",
        "serv",
        "self updat",
        "serve --prot 1",
        "serve --port x",
        "serve --access-log txt",
        "serve --tls-cert cert.pem",
        "explain JA510",
        "routes --method PSOT",
        "routes --runs asnyc",
        "openapi --check missing.json",
        "openapi --check no.json",
        "openapi --output no/where.json",
        "check --config missing.toml",
        "check --config odd.toml",
        "check --config odd.toml --strict",
        "check --config broken.toml",
        "check --config wrong.toml",
        "check app:app --python nowhere",
        "config check --config odd.toml",
        "self uninstall",
        "self update",
        "self update --json",
    ] {
        let run = folder.run(command);
        writeln!(text, "$ justapi {command}").unwrap();
        for line in run.stdout.lines() {
            writeln!(text, "{line}").unwrap();
        }
        for line in run.stderr.lines() {
            writeln!(text, "! {line}").unwrap();
        }
        writeln!(text, "exit {}\n", run.status).unwrap();
    }
    let home = std::env::home_dir().unwrap().display().to_string();
    let text = text
        .replace(JUSTAPI, "PROGRAM")
        .replace(&home, "HOME")
        .replace(env!("CARGO_PKG_VERSION"), "VERSION");
    check("messages", &without_descriptors(&text));
}

/// A machine with few descriptors has a line more.
fn without_descriptors(text: &str) -> String {
    let lines = text
        .lines()
        .filter(|line| !line.contains("descriptor limit"));
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

#[test]
fn a_list_of_codes() {
    let folder = Folder::new();
    let listed = folder.run("explain").expect(0).stdout;
    check("explain", &listed);
    for pasted in ["501", "error[JA501]:", "ja501"] {
        let run = Run::of(
            &folder
                .program(JUSTAPI, &["explain", pasted])
                .output()
                .unwrap(),
        );
        let run = run.expect(0);
        assert!(run.stdout.starts_with("JA501   addresses"), "{run:?}");
    }
}
