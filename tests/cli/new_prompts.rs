//! `justapi new` and a person at a terminal.
//!
//! The terminal is a real one: a session of its own, where Ctrl-C is a signal.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Child;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{LocalModes, tcgetattr};

use crate::binary::{Folder, JUSTAPI, terminal};

/// How long a person waits for the next question on a machine that stands still at times.
const PATIENCE: Duration = Duration::from_mins(1);
const ENTER: &str = "\r";
const DOWN: &str = "\x1b[B";
const CTRL_C: &str = "\x03";
const ESCAPE: &str = "\x1b";
const SHOW_CURSOR: &str = "\x1b[?25h";

/// A command on a terminal.
struct Terminal {
    keys: File,
    screen: Receiver<Vec<u8>>,
    shown: String,
    /// Keeps the terminal's state readable after the command has ended.
    line: OwnedFd,
    child: Child,
}

impl Terminal {
    fn start(folder: &Folder, arguments: &[&str]) -> Self {
        let (keys, side) = terminal();
        let mut all = vec!["--ctty", "--wait", JUSTAPI, "new"];
        all.extend(arguments);
        let mut command = folder.program("setsid", &all);
        command.env("TERM", "xterm").env("LC_ALL", "C.UTF-8");
        let child = command
            .stdin(side())
            .stdout(side())
            .stderr(side())
            .spawn()
            .unwrap();
        let mut reader = keys.try_clone().unwrap();
        let (sender, screen) = channel();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                if sender.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        let line = OwnedFd::from(side());
        Self {
            keys,
            screen,
            shown: String::new(),
            line,
            child,
        }
    }

    /// Waits until the terminal shows this after what it showed before.
    #[track_caller]
    fn expect(&mut self, text: &str) -> &mut Self {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.shown.find(text) {
                self.shown.drain(..at + text.len());
                return self;
            }
            let left = end.saturating_duration_since(Instant::now());
            match self.screen.recv_timeout(left) {
                Ok(bytes) => self.shown.push_str(&String::from_utf8_lossy(&bytes)),
                Err(error) => panic!("no `{text}` ({error}) in {:?}", self.shown),
            }
        }
    }

    fn send(&mut self, keys: &str) -> &mut Self {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self
    }

    fn signal(&self, signal: Signal) {
        // Where `setsid` leads a group it has forked, and ours is its child.
        let parent = self.child.id();
        let listed = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
        let listed = listed.unwrap_or_default();
        let pid = listed
            .split_whitespace()
            .next()
            .map_or(parent, |pid| pid.parse().unwrap());
        let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for the end; the status, and what was shown since the last expectation.
    #[track_caller]
    fn end(mut self) -> (i32, String) {
        let end = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status.code().unwrap_or(-1);
            }
            assert!(Instant::now() < end, "it goes on: {:?}", self.shown);
            thread::sleep(Duration::from_millis(5));
        };
        while let Ok(bytes) = self.screen.recv_timeout(Duration::from_millis(200)) {
            self.shown.push_str(&String::from_utf8_lossy(&bytes));
        }
        let modes = tcgetattr(&self.line).unwrap().local_modes;
        let expected = LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
        assert!(
            modes.contains(expected),
            "the terminal is not as it was: {modes:?}"
        );
        (status, self.shown.clone())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn made(folder: &Folder) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != ".git")
        .collect();
    names.sort();
    names
}

fn record(folder: &Path) -> toml::Table {
    let text = fs::read_to_string(folder.join(".justapi/template.toml")).unwrap();
    text.parse().unwrap()
}

#[test]
fn questions_lead_to_a_project() {
    let folder = Folder::new();
    let mut terminal = Terminal::start(&folder, &[]);
    terminal
        .expect("Template")
        .expect("minimal")
        .expect("rust")
        .send(DOWN)
        .send(ENTER);
    terminal.expect("Name").send("shop").send(ENTER);
    terminal
        .expect("Database")
        .expect("postgres")
        .send(DOWN)
        .send(ENTER);
    terminal.expect("Dockerfile").send("y");
    terminal.expect("Helm").send("n");
    terminal.expect("workflow").send(ENTER);
    terminal.expect("made").expect("cd shop");
    let (status, _) = terminal.end();
    assert_eq!(status, 0);
    assert_eq!(made(&folder), ["shop"]);
    let record = record(&folder.path().join("shop"));
    assert_eq!(record["answers"]["db"].as_str(), Some("postgres"));
    assert_eq!(record["answers"]["helm"].as_bool(), Some(false));
    assert_eq!(record["answers"]["ci"].as_bool(), Some(true));
}

#[test]
fn what_a_flag_answers_is_not_asked() {
    let folder = Folder::new();
    let flags = [
        "shop",
        "-t",
        "api",
        "--set",
        "db=sqlite",
        "--set",
        "helm=no",
        "--set",
        "ci=no",
    ];
    let mut terminal = Terminal::start(&folder, &flags);
    terminal.expect("Dockerfile").send("n").expect("made");
    assert_eq!(terminal.end().0, 0);
    // With everything said, and with `--yes`, in CI and without a keyboard, nothing is.
    let mut terminal = Terminal::start(&folder, &["a", "-t", "minimal"]);
    terminal.expect("made");
    assert_eq!(terminal.end().0, 0);
    let mut terminal = Terminal::start(&folder, &["b", "--yes"]);
    terminal.expect("made");
    assert_eq!(terminal.end().0, 0);
    let folder = folder.env("CI", "true");
    let mut terminal = Terminal::start(&folder, &["c"]);
    terminal.expect("made");
    assert_eq!(terminal.end().0, 0);
    let mut terminal = Terminal::start(&folder, &[]);
    terminal.expect("error[JA203]");
    assert_eq!(terminal.end().0, 2);
    assert_eq!(made(&folder), ["a", "b", "c", "shop"]);
}

#[test]
fn a_name_that_will_not_do_is_asked_for_again() {
    let folder = Folder::new();
    let mut terminal = Terminal::start(&folder, &["-t", "minimal"]);
    terminal
        .expect("Name")
        .send("json")
        .send(ENTER)
        .expect("`json-app` would do");
    // The line can be edited: four letters back.
    terminal
        .send("\x7f\x7f\x7f\x7f")
        .send("shop")
        .send(ENTER)
        .expect("made");
    assert_eq!(terminal.end().0, 0);
    assert_eq!(made(&folder), ["shop"]);
}

#[test]
fn a_change_of_mind_leaves_no_trace() {
    for (at, keys) in [("Template", CTRL_C), ("Template", ESCAPE), ("Name", CTRL_C)] {
        let folder = Folder::new();
        let mut terminal = Terminal::start(&folder, &[]);
        terminal.expect("Template").expect("rust");
        if at == "Name" {
            terminal.send(ENTER).expect("Name");
        }
        terminal.send(keys);
        let (status, shown) = terminal.end();
        assert_eq!(status, 130, "{at}: {shown:?}");
        assert!(shown.contains(SHOW_CURSOR), "{at}: {shown:?}");
        assert!(!shown.contains("error"), "{at}: {shown:?}");
        assert_eq!(made(&folder), [""; 0], "{at}");
    }
}

#[test]
fn signals_from_elsewhere_restore_the_terminal() {
    for (signal, expected) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let folder = Folder::new();
        let mut terminal = Terminal::start(&folder, &["shop"]);
        terminal.expect("rust");
        terminal.signal(signal);
        let (status, shown) = terminal.end();
        assert_eq!(status, expected, "{shown:?}");
        assert!(shown.contains(SHOW_CURSOR), "{shown:?}");
        assert_eq!(made(&folder), [""; 0]);
    }
}

#[test]
fn what_no_answer_can_help_is_said_before_any_question() {
    let folder = Folder::new()
        .with("full/keep.txt", "mine")
        .with("file", "")
        .with("mine/.venv/pyvenv.cfg", "");
    std::os::unix::fs::symlink("full", folder.path().join("link")).unwrap();
    for (arguments, expected, code) in [
        (&["full"][..], "`full` is not empty", 7),
        (&["full", "-t", "api"], "keep.txt", 7),
        (&["file"], "is not a folder", 7),
        (&["link", "--force"], "nothing is written through a link", 7),
        (&["no/such/shop"], "mkdir -p", 1),
        (&["my shop"], "`justapi new my-shop`", 2),
    ] {
        let mut terminal = Terminal::start(&folder, arguments);
        terminal.expect("error[");
        let (status, shown) = terminal.end();
        assert_eq!(status, code, "{arguments:?}: {shown:?}");
        assert!(shown.contains(expected), "{arguments:?}: {shown:?}");
    }
    // What may be overwritten, or only looked at, is asked about; and what is nobody's work.
    for arguments in [&["full", "--force"][..], &["full", "--dry-run"], &["mine"]] {
        let mut terminal = Terminal::start(&folder, arguments);
        terminal.expect("Template").expect("rust").send(CTRL_C);
        assert_eq!(terminal.end().0, 130, "{arguments:?}");
    }
    assert_eq!(made(&folder), ["file", "full", "link", "mine"]);
}
