//! The matrix file: programs, exchanges, and the rules that judge them.
//!
//! Unknown keys are errors, and so is a cell that could not give a verdict: a rule on two arms
//! needs at least 6 rounds and an arm that repeats another to measure the noise.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::client::RATE_MARK;
use super::content::{MAX_FILE_BYTES, MIN_JSON_BYTES, content, is_json};
use crate::Error;
use crate::ledger::{
    Bound, CellKind, Coding, Decimal, EchoedMessages, Judged, Metric, PostedEvents, ReportForm,
    Saves, ServedFile, Target, Workload, sha256_hex,
};

/// Below 6 rounds there is no exact 95 % interval of a median.
pub const MIN_ROUNDS: u32 = 6;

/// Bytes of a message or event: from its number to what fits a frame of any server.
const MESSAGE_BYTES: RangeInclusive<u64> = 16..=1024 * 1024;

/// A parsed and checked matrix.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Matrix {
    /// Programs by name.
    #[serde(rename = "program")]
    pub programs: BTreeMap<String, ProgramPlan>,
    /// Cells in the order they run.
    #[serde(rename = "cell")]
    pub cells: Vec<CellPlan>,
}

/// A program that arms run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramPlan {
    /// Whether it is ours, and so must prove that it is a release build.
    #[serde(default)]
    pub subject: bool,
    /// Command line; `{root}`, `{bin}`, `{target_dir}`, `{dir}` and `{port}` are replaced.
    pub command: Vec<String>,
    /// Command that prints the version, as JSON with `version` and `profile` or as text.
    #[serde(default)]
    pub version: Vec<String>,
    /// Packages whose locked versions identify it.
    #[serde(default)]
    pub packages: Vec<String>,
    /// Configuration template below the root, written into `{dir}` under its own name for each
    /// start with `{dir}` and `{port}` replaced.
    pub config: Option<PathBuf>,
    /// Signal that ends it.
    #[serde(default)]
    pub stop_signal: StopSignal,
    /// What it prints if it is a load client; in its command `{url}`, `{connections}`, `{seconds}`
    /// and, for an open loop, `{rate}` are replaced.
    pub report: Option<ReportForm>,
}

/// A signal that ends a server once nothing is in flight.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
pub enum StopSignal {
    /// What service managers send.
    #[default]
    #[serde(rename = "SIGTERM")]
    Terminate,
    /// Ctrl-C, for a peer that keeps running after SIGTERM.
    #[serde(rename = "SIGINT")]
    Interrupt,
}

impl StopSignal {
    /// Returns the name of the signal.
    pub fn name(self) -> &'static str {
        match self {
            Self::Terminate => "SIGTERM",
            Self::Interrupt => "SIGINT",
        }
    }
}

/// One cell.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellPlan {
    /// Name; a cell with another meaning gets another name.
    pub id: String,
    /// How it measures.
    pub kind: CellKind,
    /// Request method.
    #[serde(default = "get")]
    pub method: String,
    /// Request target; `load` and `start` cells need one.
    #[serde(default)]
    pub path: String,
    /// Request header fields.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Request body.
    pub body: Option<String>,
    /// Status of every response.
    #[serde(default = "ok")]
    pub expect_status: u16,
    /// Body of every response; without it, all arms must still send the same one.
    pub expect_body: Option<String>,
    /// File that the bench makes in `{dir}/files` and that every response holds.
    pub file: Option<ServedFile>,
    /// Content coding that is asked for, and that every response must have.
    pub coding: Option<Coding>,
    /// Messages on the WebSocket that the request opens, with status 101.
    pub echo: Option<EchoedMessages>,
    /// Events on the streams that the request opens.
    pub feed: Option<PostedEvents>,
    /// Requests per second that are sent whatever is answered (an open loop).
    pub rate: Option<f64>,
    /// What else the server has to do meanwhile.
    pub background: Option<BackgroundPlan>,
    /// What a `reload` cell saves. The application is the `config` of each arm's program.
    pub reload: Option<Saves>,
    /// Connections of the load engine, or held open in a `start` cell.
    #[serde(default = "one")]
    pub connections: u32,
    /// Rounds, starts or samples.
    pub rounds: u32,
    /// Warm-up of each round.
    #[serde(default)]
    pub warm_up_ms: u64,
    /// Measured time of each round.
    #[serde(default)]
    pub measure_ms: u64,
    /// Name of the registered function of a `micro` cell. Without one its arms are programs that
    /// print the mean nanoseconds of one call and end.
    pub function: Option<String>,
    /// The arms.
    #[serde(default)]
    pub arms: Vec<ArmPlan>,
    /// The rules.
    #[serde(default, rename = "target")]
    pub targets: Vec<TargetPlan>,
}

/// One arm of a cell.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArmPlan {
    /// Name of the program.
    pub program: String,
    /// Name inside the cell; the program's name by default.
    label: Option<String>,
    /// Arguments after the program's command.
    #[serde(default)]
    pub flags: Vec<String>,
    /// Whether the client speaks TLS.
    #[serde(default)]
    pub tls: bool,
    /// Label of the arm this one repeats.
    pub same_as: Option<String>,
    /// Exchange of this arm in place of the cell's, nothing of which is inherited.
    pub exchange: Option<ExchangePlan>,
    /// Counter on the server's `/metrics` that must grow by one with each answer.
    pub engagement: Option<String>,
    /// Counters on the server's `/metrics` that the record of each round shows.
    #[serde(default)]
    pub counters: Vec<String>,
    /// Program that loads the server in the measured interval, in place of the bench's own engine.
    pub client: Option<String>,
}

/// What one arm asks for, and what it must be answered.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct ExchangePlan {
    /// Request method.
    #[serde(default = "get")]
    pub method: String,
    /// Request target.
    pub path: String,
    /// Request header fields.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Request body.
    pub body: Option<String>,
    /// Status of every response.
    #[serde(default = "ok")]
    pub expect_status: u16,
    /// Body of every response.
    pub expect_body: Option<String>,
}

/// A closed loop that runs beside the measured one.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct BackgroundPlan {
    /// What it asks for, and what it must be answered.
    pub exchange: ExchangePlan,
    /// Its connections.
    pub connections: u32,
}

impl ExchangePlan {
    /// Returns the exchange in the form of the record.
    pub fn workload(&self) -> Workload {
        Workload {
            method: self.method.clone(),
            path: self.path.clone(),
            headers: self.headers.clone(),
            body: self.body.clone(),
            expect_status: self.expect_status,
            expect_body_sha256: (self.expect_body.as_ref()).map(|body| sha256_hex(body.as_bytes())),
            file: None,
            coding: None,
            echo: None,
            feed: None,
        }
    }
}

impl ArmPlan {
    /// Returns the name inside the cell.
    pub fn label(&self) -> &str {
        self.label.as_deref().unwrap_or(&self.program)
    }
}

/// A rule; exactly one of the five limits is given.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetPlan {
    /// Name of the rule.
    pub id: String,
    /// Judged metric.
    pub metric: Metric,
    /// Judged arm.
    pub arm: String,
    /// Arm to compare with, for a limit on a ratio.
    pub versus: Option<String>,
    /// Arm whose value is taken from both first: what remains is what they have beyond it.
    pub less: Option<String>,
    /// Highest ratio to `versus`.
    pub ratio_at_most: Option<f64>,
    /// Lowest ratio to `versus`.
    pub ratio_at_least: Option<f64>,
    /// Highest ratio to `versus`, less 1.
    pub overhead_at_most: Option<f64>,
    /// Highest value, in the metric's unit (bytes for memory).
    pub at_most: Option<f64>,
    /// Lowest value, in the metric's unit.
    pub at_least: Option<f64>,
    /// How far the interval may reach beyond the limit.
    #[serde(default)]
    pub margin: f64,
}

/// The fewest rounds in which each of so many rules can pass: the smallest p of the signed-rank test
/// is 2 in 2ⁿ, and Holm's correction multiplies it by their number.
fn min_rounds(num_rules: usize) -> u32 {
    let can_reject = |rounds: &u32| 2.0 * num_rules as f64 / f64::from(*rounds).exp2() < 0.05;
    (MIN_ROUNDS..64).find(can_reject).unwrap_or(64)
}

fn get() -> String {
    String::from("GET")
}

fn ok() -> u16 {
    200
}

fn one() -> u32 {
    1
}

impl Matrix {
    /// Reads and checks a matrix file; also returns its text.
    pub fn read(path: &Path) -> Result<(Self, String), Error> {
        let text = fs::read_to_string(path).map_err(Error::file("read", path))?;
        let matrix = Self::parse(&text, path)?;
        Ok((matrix, text))
    }

    fn parse(text: &str, path: &Path) -> Result<Self, Error> {
        let matrix: Self = toml::from_str(text).map_err(|source| Error::MatrixSyntax {
            path: path.to_owned(),
            source: Box::new(source),
        })?;
        matrix.check()?;
        Ok(matrix)
    }

    fn check(&self) -> Result<(), Error> {
        let mut ids = BTreeSet::new();
        for (name, program) in &self.programs {
            if program.command.is_empty() {
                return Err(problem(name, "the command is empty"));
            }
        }
        for cell in &self.cells {
            check_name("cell", &cell.id)?;
            if !ids.insert(&cell.id) {
                return Err(problem(&cell.id, "two cells have this id"));
            }
            cell.check(&self.programs)
                .map_err(|text| problem(&cell.id, text))?;
        }
        Ok(())
    }
}

impl CellPlan {
    fn check(&self, programs: &BTreeMap<String, ProgramPlan>) -> Result<(), String> {
        if self.rounds < MIN_ROUNDS {
            return Err(format!("fewer than {MIN_ROUNDS} rounds"));
        }
        match self.kind {
            CellKind::Serving => {
                return Err("`justapi bench llm` measures model servers".into());
            }
            CellKind::Micro if self.function.is_none() == self.arms.is_empty() => {
                return Err("a micro cell has a function or arms that print a time".into());
            }
            CellKind::Micro if self.arms.iter().any(|arm| arm.tls) => {
                return Err("nothing is asked over TLS in a micro cell".into());
            }
            CellKind::Load if self.measure_ms == 0 => return Err("measure_ms is missing".into()),
            CellKind::Load | CellKind::Start | CellKind::Reload if self.arms.is_empty() => {
                return Err("no arms".into());
            }
            CellKind::Start | CellKind::Reload
                if self.body.is_some() || self.arms.iter().any(|arm| arm.tls) =>
            {
                return Err("a start or reload cell sends plain requests without a body".into());
            }
            CellKind::Start | CellKind::Reload | CellKind::Micro
                if (self.arms.iter()).any(|arm| {
                    arm.exchange.is_some() || arm.engagement.is_some() || !arm.counters.is_empty()
                }) =>
            {
                return Err("only arms of a load cell have an exchange or a counter".into());
            }
            _ => {}
        }
        self.check_saves()?;
        self.check_file()?;
        self.check_exchange()?;
        self.check_pace(programs)?;
        self.check_clients(programs)?;
        let enough = min_rounds(self.targets.len());
        if self.rounds < enough {
            return Err(format!(
                "fewer than {enough} rounds, which its {} rules need together",
                self.targets.len()
            ));
        }
        let mut labels = BTreeSet::new();
        for arm in &self.arms {
            check_name("arm", arm.label()).map_err(|error| error.to_string())?;
            if !programs.contains_key(&arm.program) {
                return Err(format!("no program {}", arm.program));
            }
            if !labels.insert(arm.label()) {
                return Err(format!("two arms are called {}", arm.label()));
            }
        }
        for arm in &self.arms {
            let Some(original) = &arm.same_as else {
                continue;
            };
            let same = self.arms.iter().find(|other| other.label() == original);
            let repeats = same.is_some_and(|other| {
                (&arm.program, &arm.flags, arm.tls) == (&other.program, &other.flags, other.tls)
                    && (&arm.exchange, &arm.engagement) == (&other.exchange, &other.engagement)
                    && arm.client == other.client
            });
            if !repeats {
                return Err(format!("{} is not the same as {original}", arm.label()));
            }
        }
        self.targets().map(drop)
    }

    /// Clients are compared among each other, on an exchange that each of them can do.
    fn check_clients(&self, programs: &BTreeMap<String, ProgramPlan>) -> Result<(), String> {
        let report = |name: &String| programs.get(name).and_then(|program| program.report);
        if let Some(arm) = (self.arms.iter()).find(|arm| report(&arm.program).is_some()) {
            return Err(format!("{} is a client and no server", arm.program));
        }
        let clients: Vec<&String> = (self.arms.iter())
            .filter_map(|arm| arm.client.as_ref())
            .collect();
        if clients.is_empty() {
            return Ok(());
        }
        if let Some(name) = clients.iter().find(|name| report(name).is_none()) {
            return Err(format!("no program {name} with a report"));
        }
        if clients.len() != self.arms.len() {
            return Err("either all arms have a client or none".into());
        }
        let is_plain = self.kind == CellKind::Load
            && self.method == "GET"
            && self.body.is_none()
            && self.headers.is_empty()
            && (&self.file, &self.coding, &self.echo, &self.feed) == (&None, &None, &None, &None)
            && self
                .arms
                .iter()
                .all(|arm| !arm.tls && arm.exchange.is_none());
        if !is_plain {
            return Err("clients of their own are measured with plain GET requests".into());
        }
        if !self.measure_ms.is_multiple_of(1000) {
            return Err("clients of their own are told whole seconds".into());
        }
        Ok(())
    }

    fn check_saves(&self) -> Result<(), String> {
        let Some(saves) = &self.reload else {
            return match self.kind {
                CellKind::Reload => Err("reload is missing: what is saved, and how often".into()),
                _ => Ok(()),
            };
        };
        if self.kind != CellKind::Reload {
            return Err("only a reload cell saves".into());
        }
        let is_plain = self.method == "GET"
            && self.headers.is_empty()
            && self.expect_body.is_none()
            && self.expect_status == 200;
        if !is_plain {
            return Err("a reload cell sends a plain GET, and the body is what was saved".into());
        }
        if saves.count == 0 || saves.constant.is_empty() {
            return Err("reload has saves of a constant".into());
        }
        if saves.patience_ms == 0 {
            return Err("patience_ms is the time that new code has".into());
        }
        Ok(())
    }

    fn check_file(&self) -> Result<(), String> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        check_name("file", &file.name).map_err(|error| error.to_string())?;
        if self.kind != CellKind::Load {
            return Err("only a load cell has a file".into());
        }
        if self.expect_body.is_some() {
            return Err("the file and expect_body are two bodies".into());
        }
        if !(1..=MAX_FILE_BYTES).contains(&file.bytes) {
            return Err(format!("a file has 1 to {MAX_FILE_BYTES} bytes"));
        }
        if is_json(&file.name) && file.bytes < MIN_JSON_BYTES {
            return Err(format!("a JSON file has at least {MIN_JSON_BYTES} bytes"));
        }
        Ok(())
    }

    /// An offered rate is kept by the bench's own engine, or by clients that are told of it.
    fn check_pace(&self, programs: &BTreeMap<String, ProgramPlan>) -> Result<(), String> {
        let is_requests = self.kind == CellKind::Load && self.echo.is_none() && self.feed.is_none();
        if (self.rate.is_some() || self.background.is_some()) && !is_requests {
            return Err("a rate and a background are of the requests of a load cell".into());
        }
        if self.background.is_some() && self.arms.iter().any(|arm| arm.client.is_some()) {
            return Err("a background runs beside the bench's own client".into());
        }
        let takes_a_rate = |client: &String| {
            let parts = programs
                .get(client)
                .into_iter()
                .flat_map(|plan| &plan.command);
            parts.into_iter().any(|part| part.contains(RATE_MARK))
        };
        let mut clients = self.arms.iter().filter_map(|arm| arm.client.as_ref());
        if let Some(client) = clients.find(|name| takes_a_rate(name) != self.rate.is_some()) {
            return Err(format!(
                "{client} and its cell do not agree on whether there is a rate"
            ));
        }
        if self
            .rate
            .is_some_and(|rate| !(rate.is_finite() && rate > 0.0))
        {
            return Err("a rate is a number of requests per second".into());
        }
        let Some(background) = &self.background else {
            return Ok(());
        };
        if background.connections == 0 {
            return Err("a background has connections".into());
        }
        if self.arms.iter().any(|arm| arm.engagement.is_some()) {
            return Err("the engagement counter would count the background, too".into());
        }
        Ok(())
    }

    /// A stream is what its first request opens; a coded body is one that is known.
    fn check_exchange(&self) -> Result<(), String> {
        let is_stream = self.echo.is_some() || self.feed.is_some();
        let is_own = |arm: &ArmPlan| arm.exchange.is_some();
        let has_body = self.file.is_some() || self.expect_body.is_some();
        if (is_stream || self.coding.is_some()) && self.kind != CellKind::Load {
            return Err("only a load cell has an exchange of another kind".into());
        }
        if is_stream && (has_body || self.body.is_some() || self.method != "GET") {
            return Err("a stream begins with a GET, and its messages are its bodies".into());
        }
        let kinds = [
            self.coding.is_some(),
            self.echo.is_some(),
            self.feed.is_some(),
        ];
        if kinds.into_iter().filter(|is_given| *is_given).count() > 1 {
            return Err("coding, echo and feed exclude each other".into());
        }
        if is_stream && self.arms.iter().any(is_own) {
            return Err("arms of a stream have no exchange of their own".into());
        }
        if self.coding.is_some() && self.arms.iter().any(|arm| arm.tls) {
            return Err("coded answers are looked at in clear".into());
        }
        if self.coding.is_some() && !has_body {
            return Err("what a coded body decodes to must be known".into());
        }
        let lengths = [self.echo.map(|echo| echo.bytes)]
            .into_iter()
            .chain([self.feed.as_ref().map(|feed| feed.bytes)]);
        if lengths
            .flatten()
            .any(|bytes| !MESSAGE_BYTES.contains(&bytes))
        {
            return Err(format!("a message has {MESSAGE_BYTES:?} bytes"));
        }
        Ok(())
    }

    /// Returns the exchange in the form of the record; `None` for a `micro` cell.
    pub fn workload(&self) -> Option<Workload> {
        let body_sha256 = |file: &ServedFile| sha256_hex(&content(file));
        let mut headers = self.headers.clone();
        if let Some(coding) = self.coding {
            headers.insert("accept-encoding".to_owned(), coding.token().to_owned());
        }
        (self.kind != CellKind::Micro).then(|| Workload {
            method: self.method.clone(),
            path: self.path.clone(),
            headers,
            body: self.body.clone(),
            expect_status: self.expect_status,
            expect_body_sha256: (self.expect_body.as_ref())
                .map(|body| sha256_hex(body.as_bytes()))
                .or_else(|| self.file.as_ref().map(body_sha256)),
            file: self.file.clone(),
            coding: self.coding,
            echo: self.echo,
            feed: self.feed.clone(),
        })
    }

    /// Returns the rules in the form of the record.
    ///
    /// # Errors
    ///
    /// Says which rule could never be judged, and why.
    pub fn targets(&self) -> Result<Vec<Target>, String> {
        let mut targets: Vec<Target> = Vec::new();
        for plan in &self.targets {
            let fail = |text: &str| Err(format!("target {}: {text}", plan.id));
            check_name("target", &plan.id).map_err(|error| error.to_string())?;
            if targets.iter().any(|other| other.id == plan.id) {
                return fail("two targets have this id");
            }
            let known = |label: &str| match self.kind {
                CellKind::Micro if self.function.is_some() => {
                    self.function.as_deref() == Some(label)
                }
                _ => self.arms.iter().any(|arm| arm.label() == label),
            };
            let others = [&plan.versus, &plan.less].into_iter().flatten();
            if !known(&plan.arm) || !others.map(String::as_str).all(known) {
                return fail("no such arm");
            }
            if plan.versus.is_some() && plan.metric.judged() != Judged::Median {
                return fail("this metric is not one of each round, so it has no ratio");
            }
            if plan.less.is_some() && plan.versus.is_none() {
                return fail("less is a part of a comparison");
            }
            let limits = [
                plan.ratio_at_most.map(|limit| (Bound::AtMost, limit, true)),
                plan.ratio_at_least
                    .map(|limit| (Bound::AtLeast, limit, true)),
                plan.overhead_at_most
                    .map(|limit| (Bound::AtMost, 1.0 + limit, true)),
                plan.at_most.map(|limit| (Bound::AtMost, limit, false)),
                plan.at_least.map(|limit| (Bound::AtLeast, limit, false)),
            ];
            let mut given = limits.into_iter().flatten();
            let (Some((bound, limit, is_ratio)), None) = (given.next(), given.next()) else {
                return fail("exactly one limit is needed");
            };
            if is_ratio != plan.versus.is_some() {
                return fail("a limit on a ratio, and only that, needs versus");
            }
            if is_ratio && self.arms.iter().all(|arm| arm.same_as.is_none()) {
                return fail("no arm repeats another (same_as), so the noise would be unknown");
            }
            let (Some(limit), Some(margin)) = (Decimal::new(limit), Decimal::new(plan.margin))
            else {
                return fail("a limit is not a finite number");
            };
            targets.push(Target {
                id: plan.id.clone(),
                metric: plan.metric,
                label: plan.arm.clone(),
                versus: plan.versus.clone(),
                less: plan.less.clone(),
                bound,
                limit,
                margin,
            });
        }
        Ok(targets)
    }
}

/// Names end up in claims (`cell/label`), where `:` and `/` separate.
fn check_name(what: &str, name: &str) -> Result<(), Error> {
    let good = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_' || b == b'.';
    if !name.is_empty() && name.bytes().all(good) {
        return Ok(());
    }
    Err(problem(
        name,
        format!("not a name of a {what}: letters, digits, '-', '_' and '.'"),
    ))
}

fn problem(item: &str, problem: impl Into<String>) -> Error {
    Error::Matrix {
        item: item.to_owned(),
        problem: problem.into(),
    }
}

#[cfg(test)]
mod tests;
