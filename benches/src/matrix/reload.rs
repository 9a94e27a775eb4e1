//! Saves an application under a development server, and asks who answers.
//!
//! One probe follows the other on connections of their own, a few milliseconds apart, before,
//! between and after the saves; the clock of a save stops at the first answer with its value. A
//! save is what editors do: the text is written beside the file and renamed over it.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::background::Measured;
use super::exchange::{Answer, ask_once};
use crate::Error;
use crate::ledger::{NEW, ReloadRecord, Saves, TOLD};

/// Between two probes, as a user who calls curl in a loop.
const PAUSE: Duration = Duration::from_millis(5);

/// Longest wait of one probe; a user gives up before.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// Status of an answer by the application.
const OK: u16 = 200;

/// Status from which an answer says that the code does not work.
const SERVER_ERROR: u16 = 500;

/// An application in a folder of its own, as a template has it.
#[derive(Debug)]
pub(super) struct Application<'a> {
    file: PathBuf,
    draft: PathBuf,
    template: &'a str,
    saves: &'a Saves,
    num_written: usize,
}

impl<'a> Application<'a> {
    /// Takes the template of the file `name`, which has the line that saves change.
    pub(super) fn new(folder: &Path, name: &str, template: &'a str, saves: &'a Saves) -> Self {
        Self {
            file: folder.join(name),
            draft: folder.join(format!("{name}~new")),
            template,
            saves,
            num_written: 0,
        }
    }

    /// Writes the text with this value in its line, and renames it over the file.
    pub(super) fn save(&mut self, value: &str) -> io::Result<()> {
        self.num_written += 1;
        fs::write(&self.draft, self.text(value))?;
        fs::rename(&self.draft, &self.file)
    }

    fn text(&self, value: &str) -> String {
        let constant = &self.saves.constant;
        let imports = (self.saves.imports.iter())
            .fold(String::new(), |text, name| text + "import " + name + "\n");
        let text =
            self.template
                .replacen(&first_line(constant), &format!("{constant} = {value}\n"), 1);
        // Python takes compiled code for that of a file with the same length and second.
        let length = "#".repeat(self.num_written);
        format!("{imports}{text}{length}\n")
    }
}

/// The line that saves change, as the template has it.
pub(super) fn first_line(constant: &str) -> String {
    format!("{constant} = 0\n")
}

/// The value of a save that raises while it is imported.
fn broken(number: u32) -> String {
    format!("{number} / 0")
}

/// What an answer has to show.
#[derive(Clone, Copy, Debug)]
enum Expected {
    Version(u32),
    Failure,
}

/// Probes, and what became of them.
struct Probes<'a> {
    ask: &'a mut dyn FnMut() -> io::Result<Answer>,
    failure_header: Option<&'a str>,
    patience: Duration,
    stop_flag: &'a AtomicBool,
    record: ReloadRecord,
}

impl Probes<'_> {
    /// Asks once, and says whether the answer is the expected one.
    fn probe(&mut self, expected: Expected) -> Result<bool, Error> {
        if self.stop_flag.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        let asked = Instant::now();
        let answer = (self.ask)();
        let waited_ns = nanoseconds(asked.elapsed());
        let class = self.class(&answer, expected);
        let record = &mut self.record;
        record.longest_wait_ns = record.longest_wait_ns.max(waited_ns);
        *record.probes.entry(class.to_owned()).or_default() += 1;
        Ok(class == NEW || class == TOLD)
    }

    fn class(&self, answer: &io::Result<Answer>, expected: Expected) -> &'static str {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return class_of(error),
        };
        let has_word = self
            .failure_header
            .is_some_and(|name| answer.field(&name.to_ascii_lowercase()).is_some());
        let is_failure = has_word || answer.status >= SERVER_ERROR;
        match expected {
            Expected::Failure if is_failure => TOLD,
            Expected::Version(version)
                if !is_failure
                    && answer.status == OK
                    && answer.body == version.to_string().as_bytes() =>
            {
                NEW
            }
            _ if answer.status == OK => "stale",
            _ => "failed",
        }
    }

    /// Asks until the answer is the expected one; returns the time since the save.
    fn until(&mut self, expected: Expected) -> Measured<u64> {
        let saved = Instant::now();
        loop {
            let is_there = self.probe(expected)?;
            let elapsed = saved.elapsed();
            if is_there {
                return Ok(Ok(nanoseconds(elapsed)));
            }
            if elapsed > self.patience {
                let seen: Vec<String> = (self.record.probes.iter())
                    .map(|(class, count)| format!("{count} {class}"))
                    .collect();
                return Ok(Err(format!(
                    "no answer to a save within {} s: {}",
                    self.patience.as_secs_f64(),
                    seen.join(", ")
                )));
            }
            thread::sleep(PAUSE);
        }
    }

    /// Goes on asking while nothing changes.
    fn settle(&mut self, expected: Expected, time: Duration) -> Result<(), Error> {
        let began = Instant::now();
        while !time.is_zero() {
            self.probe(expected)?;
            thread::sleep(PAUSE);
            if began.elapsed() >= time {
                break;
            }
        }
        Ok(())
    }
}

/// Makes the saves of a round on a server that answers.
///
/// # Errors
///
/// [`Error::Interrupted`]; the inner one says why the round is invalid.
pub(super) fn measure(
    application: &mut Application<'_>,
    (address, path): (SocketAddr, &str),
    stop_flag: &AtomicBool,
) -> Measured<ReloadRecord> {
    let saves = application.saves;
    let mut ask = || ask_once(address, path, PROBE_TIMEOUT);
    let save = |value: &str| application.save(value);
    saved(saves, save, &mut ask, stop_flag)
}

fn saved(
    saves: &Saves,
    mut save: impl FnMut(&str) -> io::Result<()>,
    ask: &mut dyn FnMut() -> io::Result<Answer>,
    stop_flag: &AtomicBool,
) -> Measured<ReloadRecord> {
    let settle = Duration::from_millis(saves.settle_ms);
    let mut probes = Probes {
        ask,
        failure_header: saves.failure_header.as_deref(),
        patience: Duration::from_millis(saves.patience_ms),
        stop_flag,
        record: ReloadRecord::default(),
    };
    let unwritten = |error: io::Error| format!("cannot save the application: {error}");
    for version in 1..=saves.count {
        probes.settle(Expected::Version(version - 1), settle)?;
        if saves.failure_header.is_some() {
            if let Err(error) = save(&broken(version)) {
                return Ok(Err(unwritten(error)));
            }
            match probes.until(Expected::Failure)? {
                Ok(time) => probes.record.told_ns.push(time),
                Err(reason) => return Ok(Err(reason)),
            }
            probes.settle(Expected::Failure, settle)?;
        }
        if let Err(error) = save(&version.to_string()) {
            return Ok(Err(unwritten(error)));
        }
        match probes.until(Expected::Version(version))? {
            Ok(time) => probes.record.served_ns.push(time),
            Err(reason) => return Ok(Err(reason)),
        }
    }
    probes.settle(Expected::Version(saves.count), settle)?;
    Ok(Ok(probes.record))
}

/// The class of a probe without an answer.
fn class_of(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "refused",
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "timeout",
        io::ErrorKind::InvalidData => "failed",
        _ => "reset",
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn saves(failure_header: Option<&str>) -> Saves {
        Saves {
            constant: String::from("VERSION"),
            count: 3,
            settle_ms: 0,
            patience_ms: 60_000,
            imports: Vec::new(),
            failure_header: failure_header.map(str::to_owned),
        }
    }

    fn answer(status: u16, body: &str) -> Answer {
        Answer {
            status,
            fields: [("x-stale".to_owned(), "1".to_owned())]
                .into_iter()
                .filter(|_| body.ends_with('!'))
                .collect(),
            body: body.trim_end_matches('!').into(),
        }
    }

    /// Plays saves against a server that answers the nth probe after each as the script has it,
    /// `@` for the saved value, or word that it is broken, and `-` for the one before.
    fn play(
        saves: &Saves,
        script: &[io::ErrorKind],
        words: &[&str],
    ) -> Result<ReloadRecord, String> {
        let state = RefCell::new((String::from("0"), String::from("0"), 0));
        let save = |value: &str| {
            let (now, before, asked) = &mut *state.borrow_mut();
            if !now.ends_with("/ 0") {
                before.clone_from(now);
            }
            value.clone_into(now);
            *asked = 0;
            Ok(())
        };
        let mut ask = || {
            let (now, before, asked) = &mut *state.borrow_mut();
            *asked += 1;
            if let Some(kind) = script.get(*asked - 1) {
                return Err((*kind).into());
            }
            let word = words.get(*asked - 1 - script.len()).unwrap_or(&"@");
            Ok(match *word {
                "@" if now.ends_with("/ 0") => answer(200, &format!("{before}!")),
                "@" => answer(200, now),
                "-" => answer(200, before),
                status => answer(status.parse().unwrap(), "no"),
            })
        };
        saved(saves, save, &mut ask, &AtomicBool::new(false)).unwrap()
    }

    fn counts(record: &ReloadRecord) -> Vec<(&str, u64)> {
        let probes = record.probes.iter();
        probes.map(|(class, count)| (&**class, *count)).collect()
    }

    #[test]
    fn each_probe_is_in_the_class_of_what_became_of_it() {
        let record = play(&saves(None), &[], &[]).unwrap();
        assert_eq!(counts(&record), [(NEW, 3)]);
        assert_eq!(record.served_ns.len(), 3);
        assert!(record.served_ns.iter().all(|time| *time > 0));

        let script = [
            io::ErrorKind::ConnectionRefused,
            io::ErrorKind::ConnectionReset,
            io::ErrorKind::UnexpectedEof,
            io::ErrorKind::BrokenPipe,
            io::ErrorKind::WouldBlock,
            io::ErrorKind::InvalidData,
        ];
        let record = play(&saves(None), &script, &["-", "503", "404", "@"]).unwrap();
        let expected = [
            ("failed", 9),
            (NEW, 3),
            ("refused", 3),
            ("reset", 9),
            ("stale", 3),
            ("timeout", 3),
        ];
        assert_eq!(counts(&record), expected);
        assert_eq!(record.num_lost(), 27);
        // Nine pauses lie between the probes.
        let least = nanoseconds(9 * PAUSE);
        assert!(record.served_ns.iter().all(|time| *time >= least));
    }

    #[test]
    fn word_of_broken_code_ends_its_time_and_its_value_does_not() {
        let record = play(&saves(Some("X-Stale")), &[], &["-", "@"]).unwrap();
        assert_eq!(counts(&record), [(NEW, 3), ("stale", 6), (TOLD, 3)]);
        assert_eq!((record.told_ns.len(), record.served_ns.len()), (3, 3));
        let record = play(&saves(Some("x-other")), &[], &["503", "@"]).unwrap();
        assert_eq!(counts(&record), [("failed", 3), (NEW, 3), (TOLD, 3)]);
    }

    #[test]
    fn code_that_never_answers_makes_the_round_invalid() {
        let mut impatient = saves(None);
        impatient.patience_ms = 0;
        let reason = play(&impatient, &[io::ErrorKind::ConnectionRefused; 4], &[]).unwrap_err();
        assert_eq!(reason, "no answer to a save within 0 s: 1 refused");
    }

    #[test]
    fn probes_between_the_saves_are_counted_too() {
        let mut slow = saves(None);
        slow.settle_ms = 1;
        let record = play(&slow, &[], &[]).unwrap();
        // One for each save, and at least one in each of the four times around them.
        assert!(record.probes[NEW] >= 7, "{record:?}");
    }

    #[test]
    fn an_interrupted_round_ends() {
        let mut ask = || Ok(answer(200, "0"));
        let found = saved(&saves(None), |_| Ok(()), &mut ask, &AtomicBool::new(true));
        assert!(matches!(found, Err(Error::Interrupted)));
        let found = saved(
            &saves(None),
            |_| Err(io::ErrorKind::StorageFull.into()),
            &mut ask,
            &AtomicBool::new(false),
        );
        let reason = found.unwrap().unwrap_err();
        assert!(
            reason.starts_with("cannot save the application: "),
            "{reason}"
        );
    }

    #[test]
    fn a_save_changes_the_line_and_the_length_and_leaves_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut saves = saves(None);
        saves.imports = vec![String::from("pydantic")];
        let template = "import web\nVERSION = 0\nprint(VERSION)\n";
        let mut application = Application::new(folder.path(), "app.py", template, &saves);
        let mut read = |value: &str| {
            application.save(value).unwrap();
            fs::read_to_string(folder.path().join("app.py")).unwrap()
        };
        assert_eq!(
            read("0"),
            "import pydantic\nimport web\nVERSION = 0\nprint(VERSION)\n#\n"
        );
        let second = read("7");
        assert_eq!(
            second,
            "import pydantic\nimport web\nVERSION = 7\nprint(VERSION)\n##\n"
        );
        assert!(read(&broken(8)).contains("VERSION = 8 / 0\n"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
