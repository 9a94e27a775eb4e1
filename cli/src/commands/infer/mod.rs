//! `justapi infer`: a local model, without a server.
//!
//! Guarantee: text goes to standard output as it is made, and nothing else does.

mod bench;
mod chat;
mod conversation;
mod embed;
mod generate;
mod inspect;
mod interrupts;
mod perplexity;
mod run;

use std::path::Path;

use justapi_inference::{EngineOptions, KvType, LocatedModel, OpenModel, SamplingParams};

use super::model::{self, ModelPlan, RunningModel};
use crate::config::Config;
use crate::error::{CliError, Code};
use crate::infer_args::{Infer, InferCommand, KvTypeName, ModelFlags, SamplingFlags};
use crate::ui::Ui;

/// Runs what is asked of a model.
///
/// # Errors
/// What keeps the model from running, and prompts that it cannot take.
pub(crate) fn infer(ui: &Ui, arguments: &Infer, explicit: Option<&Path>) -> Result<u8, CliError> {
    match &arguments.command {
        None => run::run(ui, &arguments.run, explicit),
        Some(InferCommand::Run(arguments)) => run::run(ui, arguments, explicit),
        Some(InferCommand::Chat(arguments)) => chat::chat(ui, arguments, explicit),
        Some(InferCommand::Inspect(arguments)) => inspect::inspect(ui, arguments, explicit),
        Some(InferCommand::Bench(arguments)) => bench::bench(ui, arguments, explicit),
        Some(InferCommand::Embed(arguments)) => embed::embed(ui, arguments, explicit),
        Some(InferCommand::Perplexity(arguments)) => {
            perplexity::perplexity(ui, arguments, explicit)
        }
    }
}

/// Finds the model that is asked for, or that of the settings, and opens it.
fn open(
    ui: &Ui,
    flags: &ModelFlags,
    explicit: Option<&Path>,
) -> Result<(LocatedModel, OpenModel), CliError> {
    let from_settings = || {
        let config = Config::load(explicit, &[])?;
        Ok(config.value("model.id").text().map(str::to_owned))
    };
    let named = match &flags.model {
        Some(model) => Some(model.clone()),
        None => from_settings()?,
    };
    let named = named.ok_or_else(|| {
        CliError::new(Code::Usage, "no model is named")
            .with_hint("add `--model smollm2:135m`, or a GGUF file")
    })?;
    let located = model::find_model(ui, &named, flags.offline)?;
    let files = model::open(&located)?;
    Ok((located, files))
}

/// Starts a model for one user.
fn start(
    ui: &Ui,
    located: &LocatedModel,
    files: &OpenModel,
    flags: &ModelFlags,
) -> Result<RunningModel, CliError> {
    let options = EngineOptions {
        max_seqs: 1,
        max_model_len: flags.ctx.map(|tokens| tokens as usize),
        ..EngineOptions::default()
    };
    let plan = ModelPlan {
        threads: flags.threads.map(usize::from),
        kv_type: kv_type(flags.kv_type),
        gpu: flags.gpu,
        options,
    };
    model::start(ui, located, files, &plan)
}

fn kv_type(name: KvTypeName) -> KvType {
    match name {
        KvTypeName::F16 => KvType::F16,
        KvTypeName::F32 => KvType::F32,
    }
}

/// What the flags ask of the choice of tokens; `max_tokens` fits a prompt of
/// `num_prompt_tokens`.
fn sampling(
    flags: &SamplingFlags,
    seed: u64,
    num_prompt_tokens: usize,
    context: usize,
) -> SamplingParams {
    let room = u32::try_from(context.saturating_sub(num_prompt_tokens)).unwrap_or(u32::MAX);
    SamplingParams {
        temperature: flags.temperature,
        top_k: flags.top_k,
        top_p: flags.top_p,
        min_p: flags.min_p,
        repetition_penalty: flags.repetition_penalty,
        frequency_penalty: flags.frequency_penalty,
        presence_penalty: flags.presence_penalty,
        logit_bias: Vec::new(),
        seed,
        stop: flags.stop.clone(),
        stop_token_ids: Vec::new(),
        ignore_eos: flags.ignore_eos,
        min_tokens: 0,
        // Too long a prompt is the engine's to refuse.
        max_tokens: flags.max_tokens.unwrap_or(room).max(1),
        logprobs: None,
    }
}

/// The seed that was given, or one that no other run has.
fn seed(flags: &SamplingFlags) -> u64 {
    flags.seed.unwrap_or_else(|| {
        let now = std::time::SystemTime::now();
        let since = now
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        // Short enough to be typed again.
        u64::from(since.subsec_nanos()) ^ (since.as_secs() & 0xffff_ffff)
    })
}
