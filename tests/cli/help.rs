//! Help: complete, narrow enough, and free of colours in a pipe.

use crate::binary::Folder;

pub(crate) const COMMANDS: [&str; 36] = [
    "",
    "new",
    "dev",
    "serve",
    "bench",
    "bench llm",
    "bench verify",
    "bench supersede",
    "bench claims",
    "bench compare",
    "bench charts",
    "bench report",
    "profile",
    "infer",
    "infer run",
    "infer chat",
    "infer inspect",
    "infer bench",
    "infer embed",
    "infer perplexity",
    "routes",
    "openapi",
    "check",
    "doctor",
    "config",
    "config show",
    "config path",
    "config check",
    "explain",
    "completions",
    "man",
    "self",
    "self update",
    "self uninstall",
    "version",
    "help",
];

fn help(command: &str, flag: &str) -> String {
    Folder::new()
        .run(&format!("{command} {flag}"))
        .expect(0)
        .stdout
}

#[test]
fn every_command_is_tested_here() {
    let listed = help("", "--help");
    let commands = listed.split_once("Commands:\n").unwrap().1;
    for line in commands.lines().take_while(|line| !line.is_empty()) {
        let name = line.split_whitespace().next().unwrap();
        assert!(COMMANDS.contains(&name), "{name}");
    }
}

#[test]
fn no_line_is_wider_than_100_columns() {
    for command in COMMANDS.iter().filter(|command| **command != "help") {
        for flag in ["-h", "--help"] {
            for line in help(command, flag).lines() {
                assert!(line.chars().count() <= 100, "{command} {flag}: {line}");
            }
        }
    }
}

#[test]
fn every_flag_says_what_it_does() {
    for command in COMMANDS.iter().filter(|command| **command != "help") {
        let text = help(command, "--help");
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if line.trim_start().starts_with('-') && !line.contains(":   ") {
                let next = lines.next().unwrap_or_default();
                // Values of a flag are listed as `- name: what it means`.
                let is_value = line.trim_start().starts_with("- ");
                assert!(is_value || next.trim().len() > 10, "{command}: {line}");
            }
        }
    }
}

#[test]
fn short_help_fits_a_screen() {
    for command in COMMANDS.iter().filter(|command| **command != "help") {
        let lines = help(command, "-h").lines().count();
        assert!(lines <= 48, "{command}: {lines} lines");
    }
}

#[test]
fn each_setting_names_its_variable_and_key() {
    let text = help("serve", "--help");
    for expected in [
        "[env: JUSTAPI_SERVER__PORT, PORT] [key: server.port] [default: 8000]",
        "[env: JUSTAPI_SERVER__LIMITS__BODY] [key: server.limits.body] [default: 2MiB]",
        "JUSTAPI_MAX_CONNECTIONS]",
        "JUSTAPI_REQUEST_TIMEOUT_SECS]",
        "[env: JUSTAPI_LOG__ACCESS] [key: log.access] [default: off]",
    ] {
        assert!(text.contains(expected), "{expected} in {text}");
    }
}

#[test]
fn colours_follow_the_flag_and_the_environment() {
    let has_colour = |folder: &Folder, arguments: &str| {
        let run = folder.run(arguments);
        (run.stdout + &run.stderr).contains('\x1b')
    };
    let plain = Folder::new();
    assert!(!has_colour(&plain, "--help"));
    assert!(!has_colour(&plain, "serve --prot 1"));
    assert!(!has_colour(&plain, "explain JA999"));
    assert!(has_colour(&plain, "--color=always --help"));
    assert!(has_colour(&plain, "explain JA999 --color always"));
    let forced = Folder::new().env("FORCE_COLOR", "1");
    assert!(has_colour(&forced, "--help"));
    assert!(has_colour(&forced, "serve --prot 1"));
    assert!(!has_colour(&forced, "--color=never --help"));
    let forced = forced.env("NO_COLOR", "1");
    assert!(!has_colour(&forced, "--help"));
    let empty = Folder::new().env("NO_COLOR", "").env("CLICOLOR_FORCE", "1");
    assert!(has_colour(&empty, "--help"));
}
