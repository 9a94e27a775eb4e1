//! A program that measures something itself: started on one CPU, read to its end, and never left
//! behind. Where it fails, the end of what it said on standard error is the reason.

use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::programs::not_started;
use super::server::SETTINGS;
use crate::machine::pin_current_thread;

/// Far above any report; what is longer is cut off and cannot be read.
const MAX_BYTES: u64 = 1024 * 1024;

/// Characters of the last line on standard error that a reason shows.
const MAX_REASON: usize = 200;

/// Runs the program in `folder` on `cpu` and returns what it printed.
///
/// # Errors
///
/// Says why there is no output: it did not start, could not be pinned, failed, or ran longer than
/// `timeout`, after which it is killed.
pub(super) fn of(
    command: &[String],
    folder: &Path,
    cpu: Option<usize>,
    timeout: Duration,
) -> Result<String, String> {
    let (program, arguments) = command.split_first().ok_or("the command is empty")?;
    let mut prepared = Command::new(program);
    prepared
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(SETTINGS) {
            prepared.env_remove(name);
        }
    }
    // A child inherits the affinity of the thread that starts it, so a thread of its own.
    let spawned = thread::scope(|scope| {
        scope
            .spawn(|| (pin_current_thread(cpu), prepared.spawn()))
            .join()
    });
    let (is_pinned, child) = spawned.map_err(|_| "the starting thread panicked")?;
    let mut child = child.map_err(|error| not_started(program, &error))?;
    if !is_pinned {
        end(&mut child);
        return Err(String::from("cannot pin the program to its CPU"));
    }
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    thread::scope(|scope| {
        // A pipe holds 64 KiB, so both are emptied while the program runs.
        let reader = scope.spawn(move || -> io::Result<String> {
            let mut text = String::new();
            if let Some(output) = output {
                output.take(MAX_BYTES).read_to_string(&mut text)?;
            }
            Ok(text)
        });
        let last_line = scope.spawn(move || errors.map_or_else(String::new, last_line));
        let ended = wait(&mut child, timeout);
        if ended.is_err() {
            end(&mut child);
        }
        let text = reader.join().map_err(|_| "the reading thread panicked")?;
        let said = last_line
            .join()
            .map_err(|_| "the reading thread panicked")?;
        ended.map_err(|reason| match said.as_str() {
            "" => reason,
            said => format!("{reason}: {said}"),
        })?;
        text.map_err(|error| format!("cannot read what it printed: {error}"))
    })
}

/// The last line that is not empty, shortened; the others are read and forgotten.
fn last_line(stream: impl io::Read) -> String {
    let mut last = String::new();
    let mut lines = BufReader::new(stream);
    let mut line = Vec::new();
    // An endless line is read in parts, of which the last is shown.
    while let Ok(1..) = (lines.by_ref().take(MAX_BYTES)).read_until(b'\n', &mut line) {
        let text = String::from_utf8_lossy(&line);
        if !text.trim().is_empty() {
            last = text.trim().chars().take(MAX_REASON).collect();
        }
        line.clear();
    }
    last
}

fn end(child: &mut Child) {
    child.kill().ok();
    child.wait().ok();
}

fn wait(child: &mut Child, timeout: Duration) -> Result<(), String> {
    let started = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("it ended with {status}")),
            Ok(None) if started.elapsed() > timeout => {
                return Err(format!("still running after {} s", timeout.as_secs_f64()));
            }
            Ok(None) => thread::sleep(Duration::from_millis(2)),
            Err(error) => return Err(format!("cannot wait for it: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, timeout: Duration) -> Result<String, String> {
        let command = ["sh", "-c", script].map(str::to_owned);
        of(&command, &std::env::temp_dir(), None, timeout)
    }

    #[test]
    fn all_that_is_printed_is_returned() {
        let minute = Duration::from_mins(1);
        assert_eq!(run("echo a; echo b >&2", minute), Ok(String::from("a\n")));
        let long = run("head -c 200000 /dev/zero | tr '\\0' x", minute).unwrap();
        assert_eq!(long.len(), 200_000);
    }

    #[test]
    fn what_failed_or_stays_has_no_output() {
        let minute = Duration::from_mins(1);
        for (script, timeout, expected) in [
            ("echo 5; exit 3", minute, "it ended with exit status: 3"),
            (
                "echo 5; echo a >&2; echo 'no flag -x' >&2; echo >&2; exit 2",
                minute,
                "it ended with exit status: 2: no flag -x",
            ),
            ("kill -9 $$", minute, "it ended with signal: 9 (SIGKILL)"),
            (
                "echo 5; exec sleep 60",
                Duration::from_millis(100),
                "still running after 0.1 s",
            ),
        ] {
            assert_eq!(run(script, timeout).unwrap_err(), expected, "{script}");
        }
        let long = run("head -c 300000 /dev/zero | tr '\\0' x >&2; exit 1", minute);
        let expected = format!("it ended with exit status: 1: {}", "x".repeat(MAX_REASON));
        assert_eq!(long.unwrap_err(), expected);
        let missing = [String::from("/nonexistent/peer")];
        let error = of(&missing, Path::new("."), None, minute).unwrap_err();
        assert_eq!(error, "peer is not installed");
    }
}
