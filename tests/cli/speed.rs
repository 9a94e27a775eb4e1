//! How long a shell or a person waits for what only prints.
//!
//! The fastest of many runs counts: a machine that stalls makes some of them
//! slow, and code that has become slow all of them. The target is that of the
//! optimised program, which `cargo test --release` holds; without optimisation
//! it takes about fifteen times as long, and has that much more.

use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::binary::Folder;

/// What a person takes for at once, and a shell can wait for at each start.
const TARGET: Duration = Duration::from_millis(if cfg!(debug_assertions) { 150 } else { 10 });
const MAX_RUNS: usize = 60;

/// The fastest of several runs of the program, process included; the first of
/// them that is fast enough ends it.
fn fastest(folder: &Folder, arguments: &[&str]) -> Duration {
    let mut fastest = Duration::MAX;
    for _ in 0..MAX_RUNS {
        let mut command = folder.program(crate::binary::JUSTAPI, arguments);
        command.stdout(Stdio::null());
        let begun = Instant::now();
        let status = command.status().unwrap();
        fastest = fastest.min(begun.elapsed());
        assert!(status.success(), "{arguments:?}");
        if fastest < TARGET {
            break;
        }
    }
    fastest
}

#[test]
fn what_only_prints_is_there_at_once() {
    let folder = Folder::new();
    let mut slow = Vec::new();
    for arguments in [
        &["--version"][..],
        &["--help"],
        &["-h"],
        &["dev", "--help"],
        &["serve", "--help"],
        &["completions", "bash"],
        &["completions", "zsh"],
        &["completions", "fish"],
    ] {
        let fastest = fastest(&folder, arguments);
        println!("justapi {}: {fastest:.1?}", arguments.join(" "));
        if fastest >= TARGET {
            slow.push((arguments, fastest));
        }
    }
    assert!(slow.is_empty(), "not within {TARGET:?}: {slow:?}");
}
