//! From the report of a run to a record of the ledger.
//!
//! Guarantee: what the judge of the harness calls invalid, what was interrupted, and what does not say
//! which weights it is about, becomes no record.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use super::dataset::OUTPUT_TOKENS;
use super::report::{Group, ServingReport};
use super::sample::Sample;
use crate::Error;
use crate::ledger::{
    ArmRecord, CellKind, CellRecord, Program, RULES, Record, SCHEMA_VERSION, ServedModel,
    ServedRequest, ServingCell, ServingScenario, Source,
};
use crate::machine::Machine;
use crate::matrix::{identify_subject, judge, source};

/// Name of the program that asks.
const CLIENT: &str = "justapi";

/// What a record holds beside the report, read before anything is measured.
#[derive(Clone, Debug)]
pub struct ServingLedger {
    pub(super) server: String,
    pub(super) machine: Machine,
    pub(super) source: Source,
    pub(super) client: Program,
    pub(super) is_local: bool,
    pub(super) stated_version: Option<String>,
}

impl ServingLedger {
    /// Prepares for a run against `server`, the name that its rows get, into the ledger below
    /// `root`; `client` is the running program.
    ///
    /// # Errors
    ///
    /// [`Error::NotUsable`] for a name that is no name of an arm, [`Error::NotReleaseBuild`], and
    /// [`Error::Ledger`] for a ledger that could not take the record.
    pub fn prepare(
        root: &Path,
        server: &str,
        is_local: bool,
        client: &Path,
    ) -> Result<Self, Error> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if server.is_empty() || server == CLIENT || !server.chars().all(is_name) {
            return unusable(format!(
                "{server:?} is no name of a server: letters, digits, -, _ and . are"
            ));
        }
        crate::ledger::check(root)?;
        Ok(Self {
            server: server.to_owned(),
            machine: Machine::read(),
            source: source(root),
            client: identify_subject(client, root)?,
            is_local,
            stated_version: None,
        })
    }

    /// Takes the version of the server from whoever installed it, as not every build knows its own.
    #[must_use]
    pub fn with_server_version(mut self, version: Option<String>) -> Self {
        self.stated_version = version;
        self
    }

    /// Makes the record of a run, to be [appended](crate::ledger::append).
    ///
    /// # Errors
    ///
    /// [`Error::NotUsable`] with the reason.
    pub fn record(&self, report: &ServingReport) -> Result<Record, Error> {
        if report.run.interrupted {
            return unusable("it was interrupted");
        }
        if let Some(reason) = report.invalid.first() {
            return unusable(reason.clone());
        }
        let model = served_model(report)?;
        let mut cells = Cells {
            report,
            model,
            server: &self.server,
            made: Vec::new(),
            skipped: Vec::new(),
        };
        cells.add_all();
        let Cells {
            made: cells,
            skipped,
            ..
        } = cells;
        if cells.is_empty() {
            return unusable("nothing was measured");
        }
        for (index, cell) in cells.iter().enumerate() {
            if cells[..index].iter().any(|other| other.id == cell.id) {
                return unusable(format!("{} is in it twice", cell.id));
            }
        }
        let mut caveats = self.caveats();
        caveats.extend(skipped);
        caveats.extend(
            report
                .notes
                .iter()
                .map(|note| format!("an undisturbed run: {note}")),
        );
        Ok(Record {
            schema_version: SCHEMA_VERSION,
            id: format!("{:08x}", fastrand::u32(..)),
            recorded_utc: report.run.timestamp_utc.clone(),
            recorded_by: format!("justapi-bench {}", env!("CARGO_PKG_VERSION")),
            previous: None,
            machine: self.machine.clone(),
            source: self.source.clone(),
            programs: BTreeMap::from([
                (CLIENT.to_owned(), self.client.clone()),
                (
                    self.server.clone(),
                    server(report, self.stated_version.as_deref()),
                ),
            ]),
            matrix: None,
            seed: report.run.seed,
            server_cpu: None,
            client_cpu: None,
            before: None,
            caveats,
            cells,
        })
    }

    fn caveats(&self) -> Vec<String> {
        let place = if self.is_local {
            "a network: client and server share one machine and its loopback interface"
        } else {
            "the machine of the server: the one above is the client's"
        };
        vec![
            place.to_owned(),
            String::from("how runs differ: each level was measured once, with one server"),
            String::from("text: prompts are random words, and answers have the length asked for"),
        ]
    }
}

fn unusable<T>(reason: impl Into<String>) -> Result<T, Error> {
    Err(Error::NotUsable {
        reason: reason.into(),
    })
}

fn served_model(report: &ServingReport) -> Result<ServedModel, Error> {
    let model = &report.model;
    let (Some(weights_sha256), Some(dtype), Some(synthetic)) =
        (&model.weights_sha256, &model.dtype, model.synthetic)
    else {
        return unusable("weights, their type and whether they are made up must be named");
    };
    Ok(ServedModel {
        id: model.id.clone(),
        weights_sha256: weights_sha256.clone(),
        dtype: dtype.clone(),
        synthetic,
    })
}

/// What the server says of itself.
/// Who the server is: as it was stated, with what it says itself.
fn server(report: &ServingReport, stated: Option<&str>) -> Program {
    let before = &report.server.before;
    let text = |value: Option<&serde_json::Value>| Some(value?.as_str()?.to_owned());
    let build = text(
        before
            .props
            .as_ref()
            .and_then(|props| props.get("build_info")),
    );
    let version = text((before.version.as_ref()).and_then(|version| version.get("version")));
    let version = match (stated, build.or(version)) {
        (Some(stated), Some(said)) => Some(format!("{stated} (it says {said})")),
        (Some(stated), None) => Some(stated.to_owned()),
        (None, said) => said,
    };
    Program {
        path: String::from("not started by the bench"),
        sha256: None,
        reason: (version.is_none()).then(|| String::from("it does not tell its version")),
        version,
        profile: None,
        packages: BTreeMap::new(),
        config: None,
    }
}

/// The cells of a report.
struct Cells<'a> {
    report: &'a ServingReport,
    model: ServedModel,
    server: &'a str,
    made: Vec<CellRecord>,
    /// What was not measured, and why.
    skipped: Vec<String>,
}

/// What the requests of a cell have in common.
struct Load {
    scenario: ServingScenario,
    connections: u32,
    dataset: &'static str,
    prompt_tokens: Option<u64>,
    max_tokens: Option<u64>,
}

impl Cells<'_> {
    fn add_all(&mut self) {
        let report = self.report;
        for group in report.prefill.iter().flat_map(|prefill| &prefill.targets) {
            let id = format!("llm-prefill-{}", group.target_prompt_tokens);
            self.add_group(&id, ServingScenario::Prefill, group);
        }
        if let Some(group) = &report.decode {
            let id = format!("llm-decode-{}", group.max_tokens);
            self.add_group(&id, ServingScenario::Decode, group);
        }
        if let Some(prefix) = &report.prefix_cache {
            self.skip("llm-prefix", prefix.skipped.as_deref());
            let of_kind = |kind: fn(&super::PrefixSample) -> &Option<Sample>| {
                (prefix.samples.iter())
                    .filter_map(|sample| kind(sample).as_ref())
                    .collect::<Vec<_>>()
            };
            for (name, samples) in [
                ("fresh", of_kind(|sample| &sample.fresh)),
                ("identical", of_kind(|sample| &sample.identical)),
                ("suffix", of_kind(|sample| &sample.small_suffix)),
            ] {
                let load = Load {
                    scenario: ServingScenario::Prefix,
                    connections: 1,
                    dataset: "synthetic",
                    prompt_tokens: Some(prefix.prefix_tokens),
                    max_tokens: None,
                };
                self.add(format!("llm-prefix-{name}"), &load, &samples);
            }
        }
        let configuration = &report.configuration;
        let is_synthetic = configuration.dataset_file.is_none();
        let mut under_load = Load {
            scenario: ServingScenario::Concurrency,
            connections: 1,
            dataset: configuration.dataset,
            prompt_tokens: is_synthetic.then_some(configuration.input_tokens),
            max_tokens: is_synthetic.then(|| configuration.output_tokens.unwrap_or(OUTPUT_TOKENS)),
        };
        for level in report.concurrency.iter().flatten() {
            let id = format!("llm-concurrency-{}", level.concurrency_offered);
            self.skip(&id, level.skipped.as_deref());
            under_load.connections = level.concurrency_offered;
            let samples: Vec<_> = level.samples.iter().collect();
            self.add(id, &under_load, &samples);
        }
        if let Some(open) = &report.open_loop {
            self.skip("llm-rate", open.skipped.as_deref());
            let rate = open
                .rate_offered
                .map_or_else(String::new, |r| format!("-{r}"));
            let samples: Vec<_> = open.samples.iter().collect();
            under_load.scenario = ServingScenario::Rate;
            under_load.connections = open.max_in_flight.unwrap_or(samples.len() as u32);
            self.add(format!("llm-rate{rate}"), &under_load, &samples);
        }
    }

    fn skip(&mut self, id: &str, reason: Option<&str>) {
        self.skipped
            .extend(reason.map(|reason| format!("{id}: {reason}")));
    }

    fn add_group(&mut self, id: &str, scenario: ServingScenario, group: &Group) {
        self.skip(id, group.skipped.as_deref());
        let load = Load {
            scenario,
            connections: 1,
            dataset: "synthetic",
            prompt_tokens: Some(group.target_prompt_tokens),
            max_tokens: Some(group.max_tokens),
        };
        let samples: Vec<_> = group.samples.iter().collect();
        self.add(id.to_owned(), &load, &samples);
    }

    fn add(&mut self, id: String, load: &Load, samples: &[&Sample]) {
        if samples.is_empty() {
            return;
        }
        let mut cell = CellRecord {
            id,
            kind: CellKind::Serving,
            workload: None,
            connections: load.connections,
            offered_rate: None,
            background: None,
            reload: None,
            num_rounds: samples.len() as u32,
            warm_up_ms: 0,
            measure_ms: 0,
            arms: vec![ArmRecord {
                label: self.server.to_owned(),
                program: self.server.to_owned(),
                command: Vec::new(),
                tls: self.report.server.url.starts_with("https:"),
                same_as: None,
                workload: None,
                engagement: None,
                counters: Vec::new(),
                client: None,
            }],
            targets: Vec::new(),
            rules_edition: RULES,
            failed_before: BTreeMap::new(),
            rounds: Vec::new(),
            serving: Some(ServingCell {
                scenario: load.scenario,
                model: self.model.clone(),
                dataset: load.dataset.to_owned(),
                prompt_tokens: load.prompt_tokens,
                max_tokens: load.max_tokens,
                token_counter: self.report.server.token_counter.clone(),
                request_fields: self.report.configuration.request_fields.to_string(),
                requests: requests(samples),
            }),
            rows: Vec::new(),
            verdicts: Vec::new(),
        };
        judge(&mut cell, self.report.run.seed);
        self.made.push(cell);
    }
}

fn requests(samples: &[&Sample]) -> Vec<ServedRequest> {
    let instants = |sample: &&Sample| [sample.marks.scheduled, sample.marks.sent];
    let begin = samples.iter().flat_map(instants).flatten().min();
    let since = |at: Option<Instant>| {
        let span = at?.saturating_duration_since(begin?);
        u64::try_from(span.as_nanos()).ok()
    };
    let of = |sample: &&Sample| ServedRequest {
        outcome: sample.outcome.name().to_owned(),
        target_prompt_tokens: sample.target_prompt_tokens,
        prompt_tokens: sample.prompt_tokens,
        completion_tokens: sample.completion_tokens,
        cached_tokens: sample.cached_tokens,
        token_events: sample.sse_token_events,
        due_ns: since(sample.marks.scheduled),
        sent_ns: since(sample.marks.sent),
        first_token_ns: since(sample.marks.first),
        last_token_ns: since(sample.marks.last),
        ended_ns: since(sample.marks.ended),
    };
    samples.iter().map(of).collect()
}
