//! The matrix: declared cells, run in interleaved rounds, judged by rule.
//!
//! In each round every arm gets a fresh server, in an order drawn anew from the recorded seed.
//! Servers and the load engine sit on different CPUs. Nothing here writes to the ledger; the
//! record that [`run`] returns goes there by [`append`](crate::ledger::append).

mod background;
mod client;
mod coded;
mod content;
mod exchange;
mod output;
mod plan;
mod printed;
mod programs;
mod reload;
mod round;
mod server;
#[cfg(test)]
mod tests;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

pub use plan::{
    ArmPlan, BackgroundPlan, CellPlan, ExchangePlan, MIN_ROUNDS, Matrix, ProgramPlan, StopSignal,
    TargetPlan,
};
pub(crate) use programs::source;
pub use verdict::judge;
pub(crate) use verdict::{FAILED_ONCE, is_client_bound, values};

use self::round::Bench;
use crate::Error;
use crate::ledger::{
    ArmRecord, Background, CellKind, CellRecord, ClientRecord, Decimal, EarlierRuns, FileDigest,
    Program, RULES, Record, RoundRecord, SCHEMA_VERSION, sha256_hex, utc_timestamp,
};
use crate::machine::{BusyMachine, Machine, Placement, await_quiet, pinned};

/// Program name of a function that runs inside the bench process.
const IN_PROCESS: &str = "in-process";

/// What to run, and with which binaries.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The workspace, `{root}`: git commit and `Cargo.lock` are read here.
    pub root: PathBuf,
    /// The matrix file.
    pub matrix: PathBuf,
    /// Our binary, `{bin}`.
    pub subject: PathBuf,
    /// Where the peers are, `{target_dir}`.
    pub target_dir: PathBuf,
    /// Seed of arm order and bootstrap.
    pub seed: u64,
    /// Ids of the cells to run; empty for all.
    pub cells: Vec<String>,
    /// Instead of each cell's number of rounds; below 6 all verdicts are INCONCLUSIVE.
    pub rounds: Option<u32>,
    /// Instead of each cell's warm-up.
    pub warm_up: Option<Duration>,
    /// Instead of each cell's measured time.
    pub measure: Option<Duration>,
    /// What to do on a machine that does something else.
    pub busy: BusyMachine,
}

impl RunOptions {
    /// Takes the whole matrix as declared, with a random seed, in the current folder.
    pub fn new(
        matrix: impl Into<PathBuf>,
        subject: impl Into<PathBuf>,
        target_dir: impl Into<PathBuf>,
    ) -> Self {
        Self {
            root: PathBuf::from("."),
            matrix: matrix.into(),
            subject: subject.into(),
            target_dir: target_dir.into(),
            seed: fastrand::u64(..),
            cells: Vec::new(),
            rounds: None,
            warm_up: None,
            measure: None,
            busy: BusyMachine::Accept,
        }
    }
}

/// The functions that `micro` cells may name.
///
/// A function returns the mean nanoseconds of one call in a batch that it sizes itself.
#[derive(Default)]
pub struct MicroBenchmarks(BTreeMap<String, Box<dyn FnMut() -> f64>>);

impl MicroBenchmarks {
    /// Registers a function under the name that the matrix uses.
    pub fn register(&mut self, name: &str, function: impl FnMut() -> f64 + 'static) {
        self.0.insert(name.to_owned(), Box::new(function));
    }
}

impl fmt::Debug for MicroBenchmarks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// What just happened, for a progress display.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Progress<'a> {
    /// A cell begins.
    CellStarted {
        /// Cell id.
        id: &'a str,
        /// Rounds times arms.
        num_steps: usize,
    },
    /// One arm of one round is done.
    RoundFinished {
        /// Cell id.
        id: &'a str,
        /// What was measured.
        round: &'a RoundRecord,
    },
    /// A cell is done and judged.
    CellFinished {
        /// Rows and verdicts.
        cell: &'a CellRecord,
    },
}

/// Runs a matrix and returns the record, not yet in the ledger.
///
/// A server that fails makes its row INVALID and the run goes on. The calling thread is pinned to
/// the client's CPU meanwhile.
///
/// # Errors
///
/// A matrix that cannot be measured, a program of ours that is not a release build, and
/// [`Error::Interrupted`] once `stop_flag` is true.
pub fn run(
    options: &RunOptions,
    micro: &mut MicroBenchmarks,
    observe: &mut dyn FnMut(Progress<'_>),
    stop_flag: &AtomicBool,
) -> Result<Record, Error> {
    let (matrix, text) = Matrix::read(&options.matrix)?;
    let cells = select(&matrix, &options.cells)?;
    let placement = Placement::detect();
    let before = await_quiet(options.busy, stop_flag)?;
    let mut record = describe(options, &matrix, &text, &cells, placement)?;
    let disturbances = before.overridden.iter();
    record
        .caveats
        .extend(disturbances.map(|reason| format!("a quiet machine: before the run {reason}")));
    record.before = Some(before);
    let earlier = EarlierRuns::read(&options.root);
    let mut bench = Bench::new(placement, &matrix, &options.root)?;
    let _pinned = pinned(placement.client_cpu);
    for (index, plan) in cells.into_iter().enumerate() {
        let mut cell = declare(&matrix, plan, options)?;
        bench.prepare(&cell)?;
        let num_steps = cell.num_rounds as usize * cell.arms.len();
        let id = &plan.id;
        observe(Progress::CellStarted { id, num_steps });
        let mut order = fastrand::Rng::with_seed(record.seed.wrapping_add(index as u64));
        for round in 0..cell.num_rounds {
            let mut arms: Vec<usize> = (0..cell.arms.len()).collect();
            order.shuffle(&mut arms);
            for (position, arm) in arms.into_iter().enumerate() {
                if stop_flag.load(Ordering::Relaxed) {
                    return Err(Error::Interrupted);
                }
                let mut result = RoundRecord {
                    round,
                    position: position as u32,
                    label: cell.arms[arm].label.clone(),
                    ..RoundRecord::default()
                };
                result.invalid = match cell.kind {
                    CellKind::Load => bench.load_round(&cell, arm, &mut result, stop_flag)?,
                    CellKind::Start => bench.start_round(&cell, arm, &mut result),
                    CellKind::Reload => bench.reload_round(&cell, arm, &mut result, stop_flag)?,
                    CellKind::Micro if cell.arms[arm].program == IN_PROCESS => {
                        micro_round(micro, &mut result)
                    }
                    CellKind::Micro => bench.printed_round(&cell, arm, &mut result),
                    CellKind::Serving => unreachable!("a matrix that was read has none"),
                };
                observe(Progress::RoundFinished { id, round: &result });
                cell.rounds.push(result);
            }
        }
        same_body_everywhere(&mut cell);
        cell.failed_before = earlier.failures(&cell);
        judge(&mut cell, record.seed);
        observe(Progress::CellFinished { cell: &cell });
        record.cells.push(cell);
    }
    leave_out_folders(&mut record, &options.root);
    Ok(record)
}

/// Describes the running program `subject` as that of a matrix, for a run without one.
///
/// # Errors
///
/// [`Error::NotReleaseBuild`].
pub(crate) fn identify_subject(subject: &Path, root: &Path) -> Result<Program, Error> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let plan = ProgramPlan {
        subject: true,
        command: words(&["{bin}"]),
        version: words(&["{bin}", "version", "--json"]),
        packages: words(&["hyper", "tokio", "rustls"]),
        config: None,
        stop_signal: StopSignal::default(),
        report: None,
    };
    let mut options = RunOptions::new("", subject, "");
    root.clone_into(&mut options.root);
    let mut program = programs::identify(&plan, &options)?;
    let root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
    program.path = portable(&program.path, &root);
    Ok(program)
}

/// Makes the paths of programs relative: where a machine keeps its folders
/// says nothing about the measurement, and is nobody's business.
fn leave_out_folders(record: &mut Record, root: &Path) {
    let root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
    for program in record.programs.values_mut() {
        program.path = portable(&program.path, &root);
    }
    let arms = record.cells.iter_mut().flat_map(|cell| &mut cell.arms);
    let commands = arms.flat_map(|arm| {
        let client = arm.client.as_mut().map(|client| &mut client.command);
        std::iter::once(&mut arm.command).chain(client)
    });
    for part in commands.flatten() {
        *part = portable(part, &root);
    }
}

/// `part` relative to `root`; of an absolute path elsewhere the last name.
fn portable(part: &str, root: &Path) -> String {
    let path = Path::new(part);
    if !path.is_absolute() {
        return part.to_owned();
    }
    let kept = path
        .strip_prefix(root)
        .ok()
        .or_else(|| path.file_name().map(Path::new));
    kept.unwrap_or(path).to_string_lossy().into_owned()
}

fn select<'a>(matrix: &'a Matrix, ids: &[String]) -> Result<Vec<&'a CellPlan>, Error> {
    for id in ids {
        if !matrix.cells.iter().any(|cell| cell.id == *id) {
            return Err(Error::Matrix {
                item: id.clone(),
                problem: String::from("no such cell"),
            });
        }
    }
    let chosen = |cell: &&CellPlan| ids.is_empty() || ids.contains(&cell.id);
    Ok(matrix.cells.iter().filter(chosen).collect())
}

fn describe(
    options: &RunOptions,
    matrix: &Matrix,
    text: &str,
    cells: &[&CellPlan],
    placement: Placement,
) -> Result<Record, Error> {
    let used: BTreeSet<&String> = (cells.iter())
        .flat_map(|cell| &cell.arms)
        .flat_map(|arm| std::iter::once(&arm.program).chain(&arm.client))
        .collect();
    let mut programs = BTreeMap::new();
    for (name, plan) in &matrix.programs {
        if used.contains(name) {
            programs.insert(name.clone(), programs::identify(plan, options)?);
        }
    }
    Ok(Record {
        schema_version: SCHEMA_VERSION,
        id: format!("{:08x}", fastrand::u32(..)),
        recorded_utc: utc_timestamp(SystemTime::now()),
        recorded_by: format!("justapi-bench {}", env!("CARGO_PKG_VERSION")),
        previous: None,
        before: None,
        caveats: caveats(options, placement),
        machine: Machine::read(),
        source: programs::source(&options.root),
        programs,
        matrix: Some(FileDigest {
            path: relative(&options.matrix, &options.root),
            sha256: sha256_hex(text.as_bytes()),
        }),
        seed: options.seed,
        server_cpu: placement.server_cpu,
        client_cpu: placement.client_cpu,
        cells: Vec::new(),
    })
}

fn caveats(options: &RunOptions, placement: Placement) -> Vec<String> {
    let mut caveats = vec![
        String::from("a network: client and server share one machine and its loopback interface"),
        String::from("more than one core: each server has one CPU"),
    ];
    if placement.server_cpu.is_none() {
        caveats.push(String::from(
            "servers apart from the client: there is one usable CPU only",
        ));
    }
    if options.rounds.is_some() || options.warm_up.is_some() || options.measure.is_some() {
        caveats.push(String::from(
            "the declared rounds or times: they were changed for this run",
        ));
    }
    caveats
}

fn declare(matrix: &Matrix, plan: &CellPlan, options: &RunOptions) -> Result<CellRecord, Error> {
    let targets = plan.targets().map_err(|problem| Error::Matrix {
        item: plan.id.clone(),
        problem,
    })?;
    let millis = |given: Option<Duration>, declared: u64| {
        given.map_or(declared, |time| {
            u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
        })
    };
    let mut arms: Vec<ArmRecord> = plan
        .arms
        .iter()
        .map(|arm| ArmRecord {
            label: arm.label().to_owned(),
            program: arm.program.clone(),
            command: (matrix.programs.get(&arm.program).into_iter())
                .flat_map(|program| programs::expand(&program.command, options))
                .chain(arm.flags.iter().cloned())
                .collect(),
            tls: arm.tls,
            same_as: arm.same_as.clone(),
            workload: arm.exchange.as_ref().map(ExchangePlan::workload),
            engagement: arm.engagement.clone(),
            counters: arm.counters.clone(),
            client: (arm.client.as_ref()).and_then(|name| {
                let program = matrix.programs.get(name)?;
                Some(ClientRecord {
                    program: name.clone(),
                    command: programs::expand(&program.command, options),
                    report: program.report?,
                })
            }),
        })
        .collect();
    if let Some(function) = &plan.function {
        arms.push(ArmRecord {
            label: function.clone(),
            program: IN_PROCESS.to_owned(),
            command: Vec::new(),
            tls: false,
            same_as: None,
            workload: None,
            engagement: None,
            counters: Vec::new(),
            client: None,
        });
    }
    Ok(CellRecord {
        id: plan.id.clone(),
        kind: plan.kind,
        workload: plan.workload(),
        connections: plan.connections,
        offered_rate: plan.rate.and_then(Decimal::new),
        background: (plan.background.as_ref()).map(|background| Background {
            workload: background.exchange.workload(),
            connections: background.connections,
        }),
        reload: plan.reload.clone(),
        num_rounds: options.rounds.unwrap_or(plan.rounds),
        warm_up_ms: millis(options.warm_up, plan.warm_up_ms),
        measure_ms: millis(options.measure, plan.measure_ms),
        arms,
        targets,
        rules_edition: RULES,
        failed_before: BTreeMap::new(),
        rounds: Vec::new(),
        serving: None,
        rows: Vec::new(),
        verdicts: Vec::new(),
    })
}

fn micro_round(micro: &mut MicroBenchmarks, result: &mut RoundRecord) -> Option<String> {
    let Some(function) = micro.0.get_mut(&result.label) else {
        return Some(format!("no function {} is registered", result.label));
    };
    result.ns_per_op = Decimal::new(function()).filter(|mean| mean.value() > 0.0);
    result
        .ns_per_op
        .is_none()
        .then(|| String::from("the function returned no time"))
}

/// Without a declared body the arms vouch for each other: a differing one did other work. Arms
/// with an exchange of their own vouch for those with the same one.
fn same_body_everywhere(cell: &mut CellRecord) {
    for arm in &cell.arms {
        let is_alike = |other: &&ArmRecord| other.workload == arm.workload;
        let labels: Vec<&String> = (cell.arms.iter().filter(is_alike))
            .map(|other| &other.label)
            .collect();
        let is_asked = |round: &RoundRecord| labels.contains(&&round.label);
        let first = (cell.rounds.iter())
            .filter(|round| is_asked(round))
            .find_map(|round| round.probe_body_sha256.clone());
        for round in cell.rounds.iter_mut().filter(|round| is_asked(round)) {
            if round.invalid.is_none() && round.probe_body_sha256 != first {
                round.invalid = Some(String::from("the body differs from that of another round"));
            }
        }
    }
}

fn relative(path: &Path, root: &Path) -> String {
    path.strip_prefix(root)
        .unwrap_or(path)
        .to_string_lossy()
        .into_owned()
}
