//! The runner against real server processes: this test binary, started again as a server.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32};

use super::*;
use crate::ledger::{self, Metric, Verdict};

/// Environment variable that turns [`serves_when_asked`] into a server, as `PORT,BEHAVIOUR`.
const SERVE: &str = "JUSTAPI_BENCH_TEST_SERVER";

/// The server of these tests; a normal test run of it has nothing to serve.
#[test]
fn serves_when_asked() {
    let Ok(order) = std::env::var(SERVE) else {
        return;
    };
    let (port, behaviour) = order.split_once(',').unwrap();
    let listener = TcpListener::bind(("127.0.0.1", port.parse().unwrap())).unwrap();
    let count = std::sync::Arc::new(AtomicU32::new(0));
    // Servers run in the folder that has the files.
    let file = (std::fs::read("files/f.bin"))
        .or_else(|_| std::fs::read("files/f.json"))
        .unwrap_or_default();
    let file = std::sync::Arc::<[u8]>::from(file);
    let behaviour = std::sync::Arc::<str>::from(behaviour);
    let reloads = std::sync::Arc::new(Mutex::new(Reloads::default()));
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let (count, behaviour, file) = (count.clone(), behaviour.clone(), file.clone());
        let reloads = reloads.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // A small request comes in one piece over loopback.
            while let Ok(length @ 1..) = stream.read(&mut buffer) {
                let head = String::from_utf8_lossy(&buffer[..length]);
                let path = head.split(' ').nth(1).unwrap_or_default();
                let number = count.load(Ordering::Relaxed);
                if path != "/metrics" {
                    count.fetch_add(1, Ordering::Relaxed);
                }
                let reloaded = behaviour.starts_with("reload");
                let served = reloaded.then(|| reloads.lock().unwrap().serve(&behaviour));
                if served == Some(None) {
                    return;
                }
                let (served, word) = served.flatten().unwrap_or_default();
                let (status, body) = match (&*behaviour, path) {
                    _ if reloaded => ("200 OK", served),
                    ("counts", "/metrics") => ("200 OK", format!("sent_total {number}\n")),
                    ("idles", "/metrics") => ("200 OK", String::from("sent_total 7\n")),
                    (_, "/other") => ("200 OK", String::from("the other")),
                    ("fails-on-late", "/late") if number > 5 => ("500 Oops", String::from("no")),
                    ("fails-later", _) if number > 5 => ("500 Oops", String::from("no")),
                    ("changes", _) if number > 5 => ("200 OK", String::from("hellO")),
                    ("other-body", _) => ("200 OK", String::from("other")),
                    _ => ("200 OK", String::from("hello")),
                };
                let mut body = body.into_bytes();
                if behaviour.starts_with("file") && path != "/other" {
                    body = file.to_vec();
                    if &*behaviour == "file-torn" && number > 2 {
                        *body.last_mut().unwrap() ^= 1;
                    }
                }
                let mut coding = word;
                if behaviour.starts_with("gzip") {
                    assert!(head.contains("accept-encoding: gzip\r\n"), "{head}");
                    body = coded::tests::gzip(&file[usize::from(&*behaviour == "gzip-torn")..]);
                    coding = "content-encoding: gzip\r\n";
                }
                let length = body.len();
                let head = format!("HTTP/1.1 {status}\r\n{coding}content-length: {length}\r\n\r\n");
                if stream
                    .write_all(&[head.as_bytes(), &body].concat())
                    .is_err()
                {
                    return;
                }
            }
        });
    }
}

/// A development server, as far as its clients see it.
#[derive(Default)]
struct Reloads {
    /// What was saved last, and what of it works.
    saved: String,
    good: String,
    before: String,
    /// Requests since the last save.
    asked: u32,
}

impl Reloads {
    /// Looks at the application and answers: nothing for a connection that is to be closed, else
    /// the body and a header line.
    fn serve(&mut self, behaviour: &str) -> Option<(String, &'static str)> {
        let text = std::fs::read_to_string("application.py").unwrap();
        let (_, after) = text.split_once("VERSION = ").unwrap();
        let saved = after.lines().next().unwrap();
        if self.saved != saved {
            self.asked = if self.saved.is_empty() { 9 } else { 0 };
            self.before.clone_from(&self.good);
            saved.clone_into(&mut self.saved);
            if saved.parse::<u32>().is_ok() {
                saved.clone_into(&mut self.good);
            }
        }
        self.asked += 1;
        let word = if self.saved == self.good {
            ""
        } else {
            "x-stale: 1\r\n"
        };
        match (behaviour, self.asked) {
            ("reload-never", _) => Some((String::from("0"), "")),
            ("reload-gap", 1) => None,
            ("reload-gap", 2) => Some((self.before.clone(), "")),
            _ => Some((self.good.clone(), word)),
        }
    }
}

/// Runs one cell of a matrix whose arms are servers of the given behaviours.
struct Trial {
    folder: tempfile::TempDir,
    matrix: String,
    profile: &'static str,
    micro: MicroBenchmarks,
}

impl Trial {
    fn new(cell: &str) -> Self {
        let exe = std::env::current_exe().unwrap();
        let program = |behaviour: &str| {
            let exe = if behaviour == "missing" {
                "/nonexistent"
            } else {
                exe.to_str().unwrap()
            };
            // The shell's child inherits that the signal is ignored.
            let ignoring = match behaviour {
                "deaf-interrupted" => "\"sh\", \"-c\", \"trap '' TERM; exec \\\"$@\\\"\", \"sh\", ",
                _ => "",
            };
            let stop_signal = match behaviour {
                "deaf-interrupted" => "stop_signal = \"SIGINT\"\n",
                _ => "",
            };
            let config = match behaviour {
                "missing" => "config = \"application.py\"\n",
                _ if behaviour.starts_with("reload") => "config = \"application.py\"\n",
                _ => "",
            };
            format!(
                "[program.{behaviour}]\nsubject = {}\n{stop_signal}{config}\
                 command = [{ignoring}\"env\", \"{SERVE}={{port}},{behaviour}\", \"{exe}\", \
                 \"--exact\", \"matrix::tests::serves_when_asked\"]\n\
                 version = [\"cat\", \"{{bin}}\"]\n",
                behaviour == "good",
            )
        };
        let behaviours = [
            "good",
            "fails-later",
            "fails-on-late",
            "changes",
            "other-body",
            "counts",
            "idles",
            "file",
            "file-torn",
            "gzip",
            "gzip-torn",
            "deaf-interrupted",
            "reloads",
            "reload-gap",
            "reload-never",
            "missing",
        ];
        let matrix = behaviours.map(program).concat();
        Self {
            folder: tempfile::tempdir().unwrap(),
            matrix: matrix + cell,
            profile: "release",
            micro: MicroBenchmarks::default(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&mut self) -> Result<Record, Error> {
        let version = format!(r#"{{"version":"1","profile":"{}"}}"#, self.profile);
        std::fs::write(self.path("version"), version).unwrap();
        std::fs::write(self.path("m.toml"), &self.matrix).unwrap();
        std::fs::write(self.path("application.py"), "import web\nVERSION = 0\n").unwrap();
        let mut options = RunOptions::new(self.path("m.toml"), self.path("version"), "");
        options.root = self.folder.path().to_owned();
        options.seed = 5;
        run(
            &options,
            &mut self.micro,
            &mut |_| {},
            &AtomicBool::new(false),
        )
    }

    fn cell(&mut self) -> CellRecord {
        self.run().unwrap().cells.remove(0)
    }
}

fn load_cell(arms: &str, rest: &str) -> String {
    format!(
        "[[cell]]\nid = \"c\"\nkind = \"load\"\npath = \"/\"\nconnections = 2\nrounds = 6\n\
         warm_up_ms = 100\nmeasure_ms = 60\narms = [{arms}]\n{rest}"
    )
}

/// The same cell with time for exchanges that take longer than a greeting.
fn unhurried(cell: &str) -> String {
    cell.replace("warm_up_ms = 100", "warm_up_ms = 200")
        .replace("measure_ms = 60", "measure_ms = 300")
}

#[test]
fn a_run_goes_into_the_ledger_and_verifies() {
    let arms = r#"{ program = "good" }, { program = "good", label = "aa", same_as = "good" }"#;
    let target = "expect_body = \"hello\"\n[[cell.target]]\nid = \"rate\"\nmetric = \"rate\"\n\
                  arm = \"good\"\nversus = \"aa\"\nratio_at_least = 0.0001\n";
    let mut trial = Trial::new(&load_cell(arms, target));
    let record = trial.run().unwrap();
    let cell = &record.cells[0];
    assert_eq!(cell.rounds.len(), 12);
    let positions: Vec<u32> = cell.rounds.iter().map(|round| round.position).collect();
    assert_eq!(positions, [0, 1].repeat(6));
    for row in &cell.rows {
        assert_eq!(row.invalid, None);
        assert!(row.metrics[&Metric::Rate].min.value() > 0.0);
        assert!(row.metrics.contains_key(&Metric::RssBytes));
    }
    assert_ne!(cell.verdicts[0].verdict, Verdict::Invalid);
    assert_ne!(cell.verdicts[0].verdict, Verdict::Fail);
    assert_eq!(record.programs["good"].version.as_deref(), Some("1"));

    let root = trial.folder.path();
    ledger::append(root, record).unwrap();
    assert_eq!(ledger::verify(root).unwrap().num_records, 1);
}

#[test]
fn a_server_that_starts_failing_makes_its_row_invalid() {
    for (behaviour, expected) in [("fails-later", "status"), ("changes", "body")] {
        let mut trial = Trial::new(&load_cell(&format!("{{ program = \"{behaviour}\" }}"), ""));
        let cell = trial.cell();
        let reason = cell.rows[0].invalid.as_deref().unwrap();
        assert!(reason.contains(expected), "{reason}");
        assert!(cell.rows[0].metrics.is_empty());
    }
}

#[test]
fn arms_that_answer_differently_do_not_compare() {
    let mut trial = Trial::new(&load_cell(
        "{ program = \"good\" }, { program = \"other-body\" }",
        "",
    ));
    let cell = trial.cell();
    assert!(cell.rows.iter().any(|row| row.invalid.is_some()));
    let mut trial = Trial::new(&load_cell(
        "{ program = \"other-body\" }",
        "expect_body = \"hello\"\n",
    ));
    let reason = trial.cell().rows.remove(0).invalid.unwrap();
    assert!(reason.contains("another body than declared"), "{reason}");
}

#[test]
fn an_arm_with_its_own_exchange_is_held_to_that_one() {
    let other = |label: &str, body: &str| {
        format!(
            "{{ program = \"good\", label = \"{label}\", \
             exchange = {{ path = \"/other\", expect_body = \"{body}\" }} }}"
        )
    };
    let arms = format!(
        "{{ program = \"good\" }}, {}, {}",
        other("right", "the other"),
        other("wrong", "hello")
    );
    let target = "expect_body = \"hello\"\n";
    let cell = Trial::new(&load_cell(&arms, target)).cell();
    assert_eq!(cell.rows[0].invalid, None);
    assert_eq!(cell.rows[1].invalid, None);
    let reason = cell.rows[2].invalid.as_deref().unwrap();
    assert!(reason.contains("another body than declared"), "{reason}");
    let workload = cell.arms[1].workload(&cell).unwrap();
    assert_eq!(workload.path, "/other");
    assert_eq!(cell.arms[0].workload(&cell), cell.workload.as_ref());
}

#[test]
fn a_counter_that_does_not_follow_the_answers_makes_the_row_invalid() {
    let arms = "{ program = \"counts\", engagement = \"sent_total\" }, \
                { program = \"idles\", engagement = \"sent_total\" }, \
                { program = \"good\", engagement = \"sent_total\" }";
    let mut trial = Trial::new(&unhurried(&load_cell(arms, "expect_body = \"hello\"\n")));
    let record = trial.run().unwrap();
    let rows = &record.cells[0].rows;
    assert_eq!(rows[0].invalid, None);
    let engagement = rows[0].engagement.as_ref().unwrap();
    assert!(engagement.answers > 0 && engagement.counted >= engagement.answers);
    let reason = rows[1].invalid.as_deref().unwrap();
    assert!(reason.contains("sent_total grew by 0 for"), "{reason}");
    let reason = rows[2].invalid.as_deref().unwrap();
    assert!(reason.contains("has no counter sent_total"), "{reason}");

    let root = trial.folder.path();
    let section = ledger::append(root, record).unwrap().section;
    assert!(section.contains(" ok: sent_total grew by "), "{section}");
    ledger::verify(root).unwrap();
}

#[test]
fn a_made_file_is_compared_whole_in_each_answer() {
    let arms = "{ program = \"file\" }, { program = \"file-torn\" }";
    let file = "file = { name = \"f.bin\", bytes = 300000 }\n";
    let mut trial = Trial::new(&unhurried(&load_cell(arms, file)));
    let cell = trial.cell();
    let row = &cell.rows[0];
    assert_eq!(row.invalid, None);
    assert!(row.metrics[&Metric::BytesPerSecond].min.value() > 0.0);
    assert!(row.metrics.contains_key(&Metric::RssGrowthBytes));
    let served = crate::ledger::ServedFile {
        name: String::from("f.bin"),
        bytes: 300_000,
    };
    let digest = sha256_hex(&content::content(&served));
    for round in cell.rounds.iter().filter(|round| round.label == "file") {
        assert_eq!(round.probe_body_sha256.as_ref(), Some(&digest));
        assert_eq!(round.load.as_ref().unwrap().body_bytes, Some(300_000));
    }
    let reason = cell.rows[1].invalid.as_deref().unwrap();
    assert!(reason.contains("body_mismatch"), "{reason}");
}

#[test]
fn of_large_files_a_sample_is_compared_and_the_record_says_so() {
    let arms = "{ program = \"file\" }, { program = \"file-torn\" }";
    let file = "file = { name = \"f.bin\", bytes = 1048576 }\n";
    let mut trial = Trial::new(&unhurried(&load_cell(arms, file)));
    let cell = trial.cell();
    assert_eq!(cell.rows[0].invalid, None);
    for round in cell.rounds.iter().filter(|round| round.label == "file") {
        let load = round.load.as_ref().unwrap();
        // Each of the two connections compares its first answer and every 32nd after it.
        let compared = load.bodies_compared.unwrap();
        assert!((1..=2 + load.ok / 32).contains(&compared), "{load:?}");
    }
    let reason = cell.rows[1].invalid.as_deref().unwrap();
    assert!(reason.contains("body"), "{reason}");
}

#[test]
fn an_offered_rate_is_an_open_loop_with_its_lateness() {
    let rest = "rate = 200.0\n[[cell.target]]\nid = \"kept\"\nmetric = \"achieved_ratio\"\n\
                arm = \"good\"\nat_least = 0.001\n";
    let mut trial = Trial::new(&unhurried(&load_cell("{ program = \"good\" }", rest)));
    let record = trial.run().unwrap();
    let cell = &record.cells[0];
    assert_eq!(cell.offered_rate, Decimal::new(200.0));
    let row = &cell.rows[0];
    assert_eq!(row.invalid, None);
    for round in &cell.rounds {
        let open = round.load.as_ref().unwrap().open.as_ref().unwrap();
        assert!((59..=61).contains(&open.due), "{open:?}");
        assert!(
            open.lateness_ns["max"] >= open.lateness_ns["p50"],
            "{open:?}"
        );
    }
    let ratio = row.metrics[&Metric::AchievedRatio];
    assert!((0.0..=1.0).contains(&ratio.min.value()) && ratio.max.value() <= 1.0);
    assert!(row.metrics[&Metric::LatenessMaxUs].median.value() > 0.0);
    assert_eq!(
        cell.verdicts[0].rule,
        "achieved_ratio of good ≥ 0.00100 of offered"
    );
    assert_ne!(cell.verdicts[0].verdict, Verdict::Invalid);

    let root = trial.folder.path();
    let section = ledger::append(root, record).unwrap().section;
    assert!(section.contains("lateness_max_us [µs]"), "{section}");
    ledger::verify(root).unwrap();
}

#[test]
fn a_background_is_loaded_meanwhile_and_is_no_part_of_the_row() {
    let background = |body: &str| {
        format!(
            "background = {{ connections = 3, exchange = {{ path = \"/other\", \
             expect_body = \"{body}\" }} }}\n"
        )
    };
    let arms = "{ program = \"counts\", counters = [\"sent_total\"] }";
    let mut trial = Trial::new(&unhurried(&load_cell(arms, &background("the other"))));
    let record = trial.run().unwrap();
    let cell = &record.cells[0];
    let row = &cell.rows[0];
    assert_eq!(row.invalid, None);
    assert!(row.metrics.contains_key(&Metric::P50Us));
    // Nobody knows which part of the CPU time was for which of the two.
    assert!(!row.metrics.contains_key(&Metric::CpuUsPerRequest));
    for round in &cell.rounds {
        let (load, background) = (round.load.as_ref(), round.background.as_ref());
        let answers = load.unwrap().ok + background.unwrap().ok;
        assert!(background.unwrap().ok > 0);
        assert!(round.counters["sent_total"] >= answers, "{round:?}");
    }
    let root = trial.folder.path();
    ledger::append(root, record).unwrap();
    ledger::verify(root).unwrap();

    let cell = Trial::new(&load_cell("{ program = \"good\" }", &background("this"))).cell();
    let reason = cell.rows[0].invalid.as_deref().unwrap();
    assert!(reason.contains("background: another body"), "{reason}");
    // It begins to fail after the sixth answer, under the load of both.
    let late = "background = { connections = 3, exchange = { path = \"/late\" } }\n";
    let cell = Trial::new(&load_cell("{ program = \"fails-on-late\" }", late)).cell();
    let reason = cell.rows[0].invalid.as_deref().unwrap();
    assert!(
        reason.contains("background: ") && reason.contains("status_mismatch"),
        "{reason}"
    );
}

#[test]
fn what_the_machine_did_before_is_recorded() {
    let mut trial = Trial::new(&load_cell("{ program = \"good\" }", ""));
    let record = trial.run().unwrap();
    let before = record.before.as_ref().unwrap();
    assert!(before.fixture.is_some() && before.load_average.is_some());
    let disturbances = |caveat: &&String| caveat.starts_with("a quiet machine: before the run");
    let caveats = record.caveats.iter().filter(disturbances).count();
    assert_eq!(caveats, before.overridden.len());
}

#[test]
fn a_coded_body_is_decoded_and_compared_with_the_file() {
    let arms = "{ program = \"gzip\" }, { program = \"gzip-torn\" }, { program = \"file\" }";
    let file = "file = { name = \"f.json\", bytes = 3000 }\ncoding = \"gzip\"\n";
    let cell = Trial::new(&unhurried(&load_cell(arms, file))).cell();
    assert_eq!(cell.rows[0].invalid, None);
    let reason = cell.rows[1].invalid.as_deref().unwrap();
    assert!(reason.contains("another body than declared"), "{reason}");
    let reason = cell.rows[2].invalid.as_deref().unwrap();
    assert!(
        reason.contains("content-encoding none instead of gzip"),
        "{reason}"
    );
    let workload = cell.workload.as_ref().unwrap();
    assert_eq!(workload.headers["accept-encoding"], "gzip");
    let sent = cell
        .rounds
        .iter()
        .find(|round| round.label == "gzip")
        .unwrap();
    assert_ne!(sent.probe_body_sha256, workload.expect_body_sha256);
}

#[test]
fn a_missing_peer_is_an_invalid_row_not_an_abort() {
    let mut trial = Trial::new(&load_cell(
        "{ program = \"good\" }, { program = \"missing\" }",
        "",
    ));
    let cell = trial.cell();
    assert_eq!(cell.rows[0].invalid, None);
    let reason = cell.rows[1].invalid.as_deref().unwrap();
    assert!(reason.contains("ended early"), "{reason}");
}

#[test]
fn a_peer_that_is_not_installed_is_named_in_its_row() {
    let mut trial = Trial::new(&load_cell(
        "{ program = \"good\" }, { program = \"absent\" }",
        "[[cell.target]]\nid = \"rate\"\nmetric = \"rate\"\narm = \"absent\"\n\
         at_most = 1.0\n[program.absent]\ncommand = [\"{root}/.venv/bin/peer\"]\n",
    ));
    let cell = trial.cell();
    assert_eq!(cell.rows[0].invalid, None);
    let reason = cell.rows[1].invalid.as_deref();
    assert_eq!(reason, Some("round 0: peer is not installed"));
    assert_eq!(cell.verdicts[0].verdict, Verdict::Invalid);
}

#[test]
fn a_peer_that_ignores_sigterm_is_ended_as_its_program_says() {
    let mut trial = Trial::new(&load_cell("{ program = \"deaf-interrupted\" }", ""));
    assert_eq!(trial.cell().rows[0].invalid, None);
}

#[test]
fn a_debug_build_of_ours_is_refused() {
    let mut trial = Trial::new(&load_cell("{ program = \"good\" }", ""));
    trial.profile = "debug";
    assert!(matches!(trial.run(), Err(Error::NotReleaseBuild { .. })));
}

#[test]
fn starts_are_timed_and_memory_is_read() {
    let mut trial = Trial::new(
        "[[cell]]\nid = \"s\"\nkind = \"start\"\npath = \"/\"\nconnections = 16\nrounds = 6\n\
         arms = [{ program = \"good\" }]\n[[cell.target]]\nid = \"memory\"\n\
         metric = \"held_rss_bytes\"\narm = \"good\"\nat_most = 1e9\n",
    );
    let cell = trial.cell();
    let row = &cell.rows[0];
    assert_eq!(row.invalid, None);
    assert!(row.metrics[&Metric::StartMs].min.value() > 0.0);
    assert!(row.metrics[&Metric::IdleRssBytes].min.value() > 0.0);
    assert_eq!(cell.verdicts[0].verdict, Verdict::Pass);
}

#[test]
fn a_micro_cell_calls_its_function() {
    let cell = "[[cell]]\nid = \"m\"\nkind = \"micro\"\nfunction = \"f\"\nrounds = 6\n\
                [[cell.target]]\nid = \"t\"\nmetric = \"ns_per_op\"\narm = \"f\"\nat_most = 60.0\n";
    let mut trial = Trial::new(cell);
    assert_eq!(trial.cell().verdicts[0].verdict, Verdict::Invalid);
    let mut time = 40.0;
    trial.micro.register("f", move || {
        time += 1.0;
        time
    });
    let cell = trial.cell();
    assert_eq!(
        cell.rows[0].metrics[&Metric::NsPerOp].median.text(1),
        "43.5"
    );
    assert_eq!(cell.verdicts[0].verdict, Verdict::Pass);
}

#[test]
fn a_stopped_run_leaves_no_record() {
    let mut trial = Trial::new(&load_cell("{ program = \"good\" }", ""));
    std::fs::write(trial.path("version"), r#"{"profile":"release"}"#).unwrap();
    std::fs::write(trial.path("m.toml"), &trial.matrix).unwrap();
    let options = RunOptions::new(trial.path("m.toml"), trial.path("version"), "");
    let stopped = run(
        &options,
        &mut trial.micro,
        &mut |_| {},
        &AtomicBool::new(true),
    );
    assert!(matches!(stopped, Err(Error::Interrupted)));
}

#[test]
fn records_name_no_folder_of_the_machine() {
    let root = Path::new("/checkout");
    for (part, expected) in [
        ("/checkout/target/release/justapi", "target/release/justapi"),
        ("/elsewhere/bin/justapi", "justapi"),
        ("serve", "serve"),
        ("{dir}/cert.pem", "{dir}/cert.pem"),
        ("127.0.0.1:{port}", "127.0.0.1:{port}"),
    ] {
        assert_eq!(super::portable(part, root), expected);
    }
}

/// Clients of their own, played by a shell: what they print is theirs to say, within limits.
#[test]
fn clients_of_their_own_are_rows() {
    let client = |name: &str, script: &str| {
        format!(
            "[program.{name}]\ncommand = [\"sh\", \"-c\", '{script}', \"sh\", \"{{url}}\", \
             \"{{connections}}\", \"{{seconds}}\"]\nreport = \"wrk\"\n"
        )
    };
    let honest = "test \"$2 $3\" = \"2 1\" && i=0 && while [ $i -lt 60000 ]; do i=$((i+1)); done; \
                  echo \"  5000 requests in 1.00s, 1KB read\"; echo \"Requests/sec: 5000\"";
    let programs = [
        client("honest", honest),
        client("failing", "echo \"no flag -c\" >&2; exit 3"),
        client("silent", "true"),
        client(
            "refused",
            "echo \"5 requests in 1.00s\"; echo \"Socket errors: connect 1, read 0, write 0, timeout 0\"; \
             echo \"Requests/sec: 5\"",
        ),
    ]
    .concat();
    let arms = "{ program = \"good\", label = \"a\", client = \"honest\" }, \
                { program = \"good\", label = \"aa\", client = \"honest\", same_as = \"a\" }, \
                { program = \"good\", label = \"b\", client = \"failing\" }, \
                { program = \"good\", label = \"c\", client = \"silent\" }, \
                { program = \"good\", label = \"d\", client = \"refused\" }";
    let target = "[[cell.target]]\nid = \"rate\"\nmetric = \"rate\"\narm = \"a\"\nversus = \"aa\"\n\
                  ratio_at_least = 0.5\n";
    let cell = load_cell(arms, target).replace("measure_ms = 60", "measure_ms = 1000");
    let mut trial = Trial::new(&(programs + &cell));
    let record = trial.run().unwrap();
    let cell = &record.cells[0];
    let good = &cell.rows[0];
    assert_eq!(good.invalid, None);
    assert_eq!(good.metrics[&Metric::Rate].median.text(0), "5,000");
    assert!(good.metrics[&Metric::ClientCpuUsPerRequest].min.value() > 0.0);
    let mut loads = cell.rounds.iter().filter_map(|round| round.load.as_ref());
    assert!(loads.all(|load| load.body_bytes == Some(5)));
    for (row, expected) in cell.rows[2..].iter().zip([
        "failing: it ended with exit status: 3: no flag -c",
        "silent: printed \"\", which is no report",
        "1 connect_refused",
    ]) {
        let reason = row.invalid.as_deref().unwrap();
        assert!(reason.ends_with(expected), "{reason}");
    }
    // Clients may be the limit here: that is what such a cell asks.
    let reason = cell.verdicts[0].reason.as_deref();
    assert_ne!(reason, Some("the client was the limit"));
    assert!(record.programs.contains_key("honest"));
    let root = trial.folder.path();
    ledger::append(root, record).unwrap();
    assert_eq!(ledger::verify(root).unwrap().num_records, 1);
}

/// A cell with as many rounds as its rules need.
fn reload_cell(arms: &str, saves: &str, rest: &str) -> String {
    format!(
        "[[cell]]\nid = \"c\"\nkind = \"reload\"\npath = \"/\"\nrounds = 7\n\
         reload = {{ constant = \"VERSION\", count = 2, settle_ms = 1{saves} }}\n\
         arms = [{arms}]\n{rest}"
    )
}

const PATIENT: &str = ", patience_ms = 60000";

#[test]
fn saves_are_timed_and_what_is_not_the_newest_code_is_counted() {
    let arms = r#"{ program = "reloads" }, { program = "reloads", label = "aa", same_as = "reloads" },
                  { program = "reload-gap" }, { program = "missing" }"#;
    let arms = arms.replace('\n', " ");
    let rules = "[[cell.target]]\nid = \"none-lost\"\nmetric = \"reload_lost\"\n\
                 arm = \"reloads\"\nat_most = 0.0\n\
                 [[cell.target]]\nid = \"time\"\nmetric = \"reload_p50_ms\"\n\
                 arm = \"reloads\"\nversus = \"reload-gap\"\nratio_at_most = 1.0\n";
    let mut trial = Trial::new(&reload_cell(&arms, PATIENT, rules));
    let record = trial.run().unwrap();
    let cell = &record.cells[0];
    let [reloads, aa, gap, missing] = &cell.rows[..] else {
        panic!("{:?}", cell.rows);
    };
    let lost = |row: &crate::ledger::Row| {
        assert_eq!(row.invalid, None);
        let lost = row.metrics[&Metric::ReloadLost];
        (lost.min.value(), lost.max.value())
    };
    assert_eq!((lost(reloads), lost(aa)), ((0.0, 0.0), (0.0, 0.0)));
    // Each of the two saves was followed by a reset and by an answer of the code before.
    assert_eq!(lost(gap), (4.0, 4.0));
    assert!(reloads.metrics[&Metric::ReloadP50Ms].min.value() > 0.0);
    assert!(reloads.metrics[&Metric::ReloadWaitMaxMs].min.value() > 0.0);
    assert!(reloads.metrics.contains_key(&Metric::StartMs));
    assert!(!reloads.metrics.contains_key(&Metric::ReloadErrorP50Ms));
    let reason = missing.invalid.as_deref().unwrap();
    assert!(reason.contains("nonexistent"), "{reason}");
    for round in cell
        .rounds
        .iter()
        .filter(|round| round.label == "reload-gap")
    {
        let seen = round.reload.as_ref().unwrap();
        assert_eq!((seen.probes["reset"], seen.probes["stale"]), (2, 2));
        assert_eq!(seen.served_ns.len(), 2);
        assert!(round.fixture.is_some());
    }
    for row in &cell.verdicts {
        assert!(
            !matches!(row.verdict, Verdict::Fail | Verdict::Invalid),
            "{row:?}"
        );
        assert!(row.estimate.is_some(), "{row:?}");
    }

    let root = trial.folder.path();
    let section = ledger::append(root, record).unwrap().section;
    assert!(
        section.contains("### c: GET /, 2 saves a round\n"),
        "{section}"
    );
    assert!(section.contains("reload_lost [requests]"), "{section}");
    let charts = ledger::draw(root, &[]).unwrap().charts;
    assert!(charts[0].ends_with("/c-reload_p50_ms.svg"), "{charts:?}");
    assert_eq!(ledger::verify(root).unwrap().num_charts, charts.len());
    let document = std::fs::read_to_string(root.join(ledger::BENCHMARKS)).unwrap();
    assert!(document.contains("## How reloads are measured"));
    let page = ledger::page(root).unwrap();
    assert!(page.contains("GET /, 2 saves a round; "), "{page}");
}

#[test]
fn word_of_broken_code_is_timed() {
    let saves = format!("{PATIENT}, failure_header = \"x-stale\"");
    let mut trial = Trial::new(&reload_cell("{ program = \"reloads\" }", &saves, ""));
    let cell = trial.cell();
    let row = &cell.rows[0];
    assert_eq!(row.invalid, None);
    assert!(row.metrics[&Metric::ReloadErrorP50Ms].min.value() > 0.0);
    assert_eq!(row.metrics[&Metric::ReloadLost].max.text(0), "0");
    for round in &cell.rounds {
        let seen = round.reload.as_ref().unwrap();
        assert_eq!((seen.told_ns.len(), seen.served_ns.len()), (2, 2));
    }
}

#[test]
fn code_that_is_never_served_makes_the_row_invalid() {
    let arms = "{ program = \"reload-never\" }";
    let mut trial = Trial::new(&reload_cell(arms, ", patience_ms = 1", ""));
    let reason = trial.cell().rows.remove(0).invalid.unwrap();
    assert!(
        reason.contains("no answer to a save within 0.001 s: "),
        "{reason}"
    );
    assert!(reason.contains(" stale"), "{reason}");
}

#[test]
fn an_application_without_the_line_of_the_saves_is_refused() {
    for (arms, constant) in [("reloads", "REVISION"), ("good", "VERSION")] {
        let cell = reload_cell(&format!("{{ program = \"{arms}\" }}"), PATIENT, "");
        let error = Trial::new(&cell.replace("VERSION", constant))
            .run()
            .unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains(&format!("no line `{constant} = 0`")),
            "{text}"
        );
    }
}
