//! A wall clock that jumps under a running server: hours and years, forwards
//! and back, and before 1970.
//!
//! Deadlines, keep-alive and rate limits go by a clock that does not jump; only
//! what says the time follows.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::support::client::{Client, get};
use crate::support::eventually;
use crate::support::server::{Server, serve};

const HOUR: i64 = 3600;
const YEAR: i64 = 365 * 24 * HOUR;

/// A server whose wall clock a test can move.
struct Shifted {
    server: Server,
    shift: File,
    _folder: TempDir,
}

impl Shifted {
    fn start(flags: &[&str]) -> Self {
        let folder = TempDir::new().expect("a writable temporary folder");
        let library = folder.path().join("clock_shift.so");
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/http/clock_shift.c");
        let built = Command::new(&compiler)
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(&library)
            .args([source, "-ldl"])
            .status();
        assert!(built.is_ok_and(|status| status.success()), "{compiler}");
        let path = folder.path().join("shift");
        fs::write(&path, [0; 8]).expect("a writable folder");
        let mut command = serve();
        command.args(["--port", "0"]).args(flags);
        command.env("LD_PRELOAD", &library);
        command.env("CLOCK_SHIFT_FILE", &path);
        Self {
            server: Server::announced(command),
            shift: File::options().write(true).open(path).expect("own file"),
            _folder: folder,
        }
    }

    fn jump_to(&self, seconds: i64) {
        let written = self.shift.write_all_at(&seconds.to_ne_bytes(), 0);
        written.expect("own file");
    }
}

fn year(client: &mut Client) -> i32 {
    let answer = client.get("/hello");
    assert_eq!(answer.status, 200);
    let date = answer.header("date").expect("a Date").to_owned();
    let year = date.split(' ').nth(3).expect("a year");
    year.parse().expect("a number")
}

#[test]
fn jumps_of_the_wall_clock_move_dates_and_nothing_else() {
    let flags = [
        "--timeout-idle",
        "20s",
        "--timeout-header",
        "20s",
        "--rate-limit",
        "100000/h",
        "--access-log",
        "json",
        "--trace",
        "--trace-endpoint",
        "off",
    ];
    let shifted = Shifted::start(&flags);
    let server = &shifted.server;
    let mut kept = server.connect();
    let mut half = server.connect();
    half.send("GET /hello HTTP/1.1\r\nHo");
    let mut events = server.connect();
    events.send(get("/events?interval_ms=20"));
    assert_eq!(events.read_head().map(|head| head.status), Ok(200));
    let this_year = year(&mut kept);
    for (shift, years) in [
        (HOUR, 0..=1),
        (-HOUR, -1..=0),
        (2 * YEAR, 1..=2),
        (-2 * YEAR, -2..=-1),
        // Before the epoch, where the date cannot follow.
        (-100 * YEAR, 1970 - this_year..=1970 - this_year),
        (0, 0..=0),
    ] {
        shifted.jump_to(shift);
        // The rendered date is a second old at the most.
        eventually(Duration::from_secs(3), "the date follows", || {
            let moved = year(&mut kept) - this_year;
            years.contains(&moved).then_some(())
        });
        let chunk = events.read_chunk().expect("the stream goes on");
        assert!(chunk.is_some(), "at {shift} s");
        assert_eq!(server.get("/hello").status, 200, "at {shift} s");
    }
    half.send("st: a\r\n\r\n");
    assert_eq!(half.read().map(|answer| answer.status), Ok(200));
}

#[test]
fn deadlines_and_limits_hold_whatever_the_wall_clock_does() {
    let flags = [
        "--timeout-header",
        "1s",
        "--rate-limit",
        "5/h",
        "--graceful",
        "5s",
    ];
    let shifted = Shifted::start(&flags);
    let server = &shifted.server;
    for shift in [2 * YEAR, -2 * YEAR] {
        let start = Instant::now();
        let mut half = server.connect();
        half.send("GET /hello HTTP/1.1\r\nHo");
        shifted.jump_to(shift);
        assert_eq!(half.read().map(|answer| answer.status), Ok(408));
        let elapsed = start.elapsed();
        let is_due = Duration::from_millis(900)..Duration::from_secs(3);
        assert!(is_due.contains(&elapsed), "{shift} s: {elapsed:?}");
    }
    let statuses = [0, 2 * YEAR, 0, -2 * YEAR, HOUR, 0, 2 * YEAR].map(|shift| {
        shifted.jump_to(shift);
        server.get("/hello").status
    });
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429, 429]);
}
