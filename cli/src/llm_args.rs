//! Flags of `justapi bench llm`, of which the doc comments are the help.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};

use crate::args::read_time;

/// Arguments of `bench llm`.
#[derive(Debug, Args)]
pub(crate) struct BenchLlm {
    /// URL of an OpenAI-compatible server, such as `http://127.0.0.1:8080`.
    pub(crate) url: String,
    /// Model to ask [default: the first that the server lists].
    #[arg(long, value_name = "ID")]
    pub(crate) model: Option<String>,
    /// Key to send as `Authorization: Bearer`.
    #[arg(
        long,
        value_name = "KEY",
        env = "BENCH_API_KEY",
        hide_env_values = true
    )]
    pub(crate) api_key: Option<String>,
    /// Scenario to run; repeatable [default: all but rate; rate alone with --rate].
    #[arg(long, value_enum, value_name = "NAME", value_delimiter = ',')]
    pub(crate) scenario: Vec<ScenarioName>,
    /// Repetitions of what is asked one at a time.
    #[arg(long, value_name = "N", default_value_t = 3,
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) repetitions: u32,
    /// Requests before the first scenario.
    #[arg(hide_short_help = true, long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub(crate) warmup: u32,
    /// Limit for one request [default: 10m].
    #[arg(hide_short_help = true, long, value_name = "TIME", value_parser = read_time)]
    pub(crate) timeout: Option<Duration>,
    /// Add the run to the ledger, with the label as the name of the server.
    #[arg(long, requires_all = ["label", "weights", "dtype", "synthetic"])]
    pub(crate) record: bool,
    /// Version of the server as it was installed, for a build that does not know its own.
    #[arg(hide_short_help = true, long, value_name = "TEXT", requires = "record")]
    pub(crate) server_version: Option<String>,
    /// Folder that holds BENCHMARKS.md [default: the working directory].
    #[arg(hide_short_help = true, long, value_name = "DIR", requires = "record")]
    pub(crate) root: Option<PathBuf>,
    /// Write the report as JSON to this file, too.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) identity: Identity,
    #[command(flatten)]
    pub(crate) lengths: Lengths,
    #[command(flatten)]
    pub(crate) load: Load,
    #[command(flatten)]
    pub(crate) request: RequestFlags,
}

/// What the report says of the model beside what the server says.
#[derive(Debug, Args)]
#[command(next_help_heading = "What the report says of the model")]
pub(crate) struct Identity {
    /// Name of the run.
    #[arg(hide_short_help = true, long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// File of the weights that the server has loaded; its digest goes into the report.
    #[arg(hide_short_help = true, long, value_name = "FILE")]
    pub(crate) weights: Option<PathBuf>,
    /// Type of the weights, such as `Q4_1`.
    #[arg(hide_short_help = true, long, value_name = "TEXT")]
    pub(crate) dtype: Option<String>,
    /// Whether weights or answers are made up.
    #[arg(hide_short_help = true, long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1,
        default_missing_value = "true", require_equals = true)]
    pub(crate) synthetic: Option<bool>,
}

/// Lengths of the scenarios that ask one at a time.
#[expect(clippy::struct_field_names, reason = "the names are the flags")]
#[derive(Debug, Args)]
#[command(next_help_heading = "One at a time: prefill, decode, prefix")]
pub(crate) struct Lengths {
    /// Prompt lengths of `prefill`.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [512, 1024, 2048, 4096],
        value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(crate) prefill_tokens: Vec<u64>,
    /// Answer length of `decode`.
    #[arg(hide_short_help = true, long, value_name = "N", default_value_t = 256,
        value_parser = clap::value_parser!(u64).range(2..=10_000_000))]
    pub(crate) decode_tokens: u64,
    /// Prefix length of `prefix`.
    #[arg(hide_short_help = true, long, value_name = "N", default_value_t = 4096,
        value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(crate) prefix_tokens: u64,
    /// Suffix length of `prefix`.
    #[arg(hide_short_help = true, long, value_name = "N", default_value_t = 32,
        value_parser = clap::value_parser!(u64).range(8..=10_000_000))]
    pub(crate) suffix_tokens: u64,
}

/// What the scenarios under load do.
#[derive(Debug, Args)]
#[command(next_help_heading = "Many at once: concurrency, rate")]
pub(crate) struct Load {
    /// Levels of `concurrency`.
    #[arg(short, long, value_name = "N,…", value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16],
        value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) concurrency: Vec<u32>,
    /// Requests of each client of a level.
    #[arg(hide_short_help = true, long, value_name = "N", default_value_t = 2,
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) requests_per_client: u32,
    /// Requests per second of `rate`; how many times as fast as the trace, with its arrivals.
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<f64>,
    /// When requests of `rate` are due.
    #[arg(hide_short_help = true, long, value_enum, value_name = "NAME", default_value_t = ArrivalsName::Poisson,
        requires = "rate")]
    pub(crate) arrivals: ArrivalsName,
    /// Requests of `rate`.
    #[arg(hide_short_help = true, short = 'n', long, value_name = "N", default_value_t = 32, requires = "rate",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) num_requests: u32,
    /// Most requests of `rate` under way at once; those beyond wait at the client.
    #[arg(hide_short_help = true, long, value_name = "N", requires = "rate",
        value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) max_in_flight: Option<u32>,
    /// Goodput limit from the due time to the first token.
    #[arg(hide_short_help = true, long, value_name = "TIME", value_parser = read_time, requires = "rate")]
    pub(crate) slo_ttft: Option<Duration>,
    /// Goodput limit for each token after the first.
    #[arg(hide_short_help = true, long, value_name = "TIME", value_parser = read_time, requires = "rate")]
    pub(crate) slo_tpot: Option<Duration>,
    /// Goodput limit from the due time to the last token.
    #[arg(hide_short_help = true, long, value_name = "TIME", value_parser = read_time, requires = "rate")]
    pub(crate) slo_e2e: Option<Duration>,
    /// Seed of the arrivals; prompts are new in each run whatever it is.
    #[arg(hide_short_help = true, long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Where the prompts come from.
    #[arg(long, value_enum, value_name = "NAME", default_value_t = DatasetName::Synthetic)]
    pub(crate) dataset: DatasetName,
    /// File of `trace` (JSON lines) or `sharegpt` (a JSON array).
    #[arg(hide_short_help = true, long, value_name = "FILE", required_if_eq_any = [("dataset", "trace"), ("dataset", "sharegpt")])]
    pub(crate) dataset_file: Option<PathBuf>,
    /// Tokens that all prompts of `shared-prefix` begin with.
    #[arg(hide_short_help = true, long, value_name = "N", default_value_t = 256,
        value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(crate) shared_tokens: u64,
    /// Questions of each conversation of `multi-turn`.
    #[arg(hide_short_help = true, long, value_name = "N", default_value_t = 4,
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) turns: u32,
    /// Prompt length, where the data set does not say.
    #[arg(long, value_name = "N", default_value_t = 512,
        value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(crate) input_tokens: u64,
    /// Answer length [default: as the data set says, else 128].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(crate) output_tokens: Option<u64>,
}

/// How requests are made.
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent switches of the command line"
)]
#[derive(Debug, Args)]
#[command(next_help_heading = "Requests")]
pub(crate) struct RequestFlags {
    /// Field to send, replace or (with `null`) leave out; repeatable.
    #[arg(hide_short_help = true, long, value_name = "NAME=JSON")]
    pub(crate) field: Vec<String>,
    /// Leave out what only some servers know: `ignore_eos`, `top_k`, `chat_template_kwargs`.
    #[arg(hide_short_help = true, long)]
    pub(crate) plain: bool,
    /// Ask for token counts in every event.
    #[arg(hide_short_help = true, long)]
    pub(crate) continuous_usage: bool,
    /// Accept answers without token counts; what needs them is `null`.
    #[arg(hide_short_help = true, long)]
    pub(crate) without_usage: bool,
    /// Use a new connection for each request.
    #[arg(hide_short_help = true, long)]
    pub(crate) no_keep_alive: bool,
    /// Authorities (PEM) that must have signed the server's certificate.
    #[arg(hide_short_help = true, long, value_name = "FILE")]
    pub(crate) cacert: Option<PathBuf>,
    /// Accept any certificate of the server.
    #[arg(hide_short_help = true, short = 'k', long, conflicts_with = "cacert")]
    pub(crate) insecure: bool,
}

/// Scenarios by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScenarioName {
    /// Fresh prompts of several lengths, one at a time.
    Prefill,
    /// Long answers, one at a time.
    Decode,
    /// A new prompt, the same again, the same with a new suffix.
    Prefix,
    /// Clients that each ask again when they are answered.
    Concurrency,
    /// Requests at a rate, however the server fares.
    Rate,
}

/// Arrivals by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ArrivalsName {
    /// Independent of one another.
    Poisson,
    /// Evenly.
    Constant,
    /// At the times of the trace.
    Trace,
}

/// Data sets by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DatasetName {
    /// Unique prompts of an exact length.
    Synthetic,
    /// The same beginning for all of a level.
    SharedPrefix,
    /// Conversations that send what was said before.
    MultiTurn,
    /// A file of lengths or texts, with times.
    Trace,
    /// A file in the format of ShareGPT.
    Sharegpt,
}
