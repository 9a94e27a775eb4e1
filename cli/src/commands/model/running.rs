//! A model in memory, and the thread that runs it.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use justapi_inference::{
    ChatTemplate, CpuBackend, CpuOptions, Engine, EngineOptions, KvType, LocatedModel, ModelConfig,
    OpenModel, Tokenizer,
};

use super::error::{not_loaded, template_error, unreadable};
use super::fetching::megabytes;
use crate::error::{CliError, Code};
use crate::ui::{Ui, faint};

/// Longest context where nobody says: enough for a long chat, and its keys and
/// values are no more than the weights of small models.
const DEFAULT_CONTEXT: usize = 8192;

/// Where the system says how much memory there is.
const MEMORY_INFO: &str = "/proc/meminfo";

/// How a model is to be run.
#[derive(Debug, Clone)]
pub(crate) struct ModelPlan {
    /// Threads that compute; all processors where nobody says.
    pub(crate) threads: Option<usize>,
    /// Type of keys and values.
    pub(crate) kv_type: KvType,
    /// Whether a GPU is asked for.
    pub(crate) gpu: bool,
    /// Limits of the engine; its context is what was asked for.
    pub(crate) options: EngineOptions,
}

/// A model that runs until this is dropped.
#[derive(Debug)]
pub(crate) struct RunningModel {
    pub(crate) engine: Engine,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) config: ModelConfig,
    /// Threads that compute.
    pub(crate) num_threads: usize,
    thread: Option<JoinHandle<()>>,
}

impl Drop for RunningModel {
    fn drop(&mut self) {
        self.engine.stop();
        if let Some(thread) = self.thread.take() {
            // It has told of its end by what it answered.
            drop(thread.join());
        }
    }
}

/// Opens a model's files; weights are not read yet.
///
/// # Errors
/// [`Code::ModelFile`].
pub(crate) fn open(model: &LocatedModel) -> Result<OpenModel, CliError> {
    OpenModel::open(&model.path).map_err(|error| not_loaded(&error))
}

/// The template of chats: that of `file`, or the model's own.
///
/// # Errors
/// [`Code::ChatTemplate`]: it cannot be read, or is no template.
pub(crate) fn chat_template(
    files: &OpenModel,
    file: Option<&Path>,
) -> Result<Option<ChatTemplate>, CliError> {
    let source = match file {
        Some(path) => Some(fs::read_to_string(path).map_err(|error| unreadable(path, &error))?),
        None => files.chat_template().map(str::to_owned),
    };
    let template = source.map(|source| ChatTemplate::new(&source, files.tokenizer()));
    template.transpose().map_err(|error| template_error(&error))
}

/// Reads the weights and starts the thread that runs them.
///
/// # Errors
/// [`Code::ModelMemory`], [`Code::ModelSetting`], [`Code::ModelFile`], [`Code::NoGpu`].
pub(crate) fn start(
    ui: &Ui,
    model: &LocatedModel,
    files: &OpenModel,
    plan: &ModelPlan,
) -> Result<RunningModel, CliError> {
    if plan.gpu {
        return Err(
            CliError::new(Code::NoGpu, "this program was built without CUDA").with_hint(
                "leave out `--gpu`: the processor computes as well, only slower for large models",
            ),
        );
    }
    let begun = Instant::now();
    let trained = files.config().max_position_embeddings;
    let mut options = plan.options.clone();
    let context = options
        .max_model_len
        .unwrap_or(trained.min(DEFAULT_CONTEXT));
    options.max_model_len = Some(context);
    check_memory(files, plan, context)?;
    let cpu = CpuOptions {
        num_threads: plan
            .threads
            .unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from)),
        kv_type: plan.kv_type,
    };
    let failed = |error| not_loaded(&error);
    let backend = files.load(cpu).map_err(failed)?;
    let weights = backend.weight_bytes() as u64;
    let (engine, thread) = start_engine(backend, files, &options)?;
    let text = format!(
        "{}   {}   {} in memory   context {context}   {} threads   loaded in {:.2} s",
        model.name,
        files.config().architecture,
        megabytes(weights),
        cpu.num_threads,
        begun.elapsed().as_secs_f32()
    );
    ui.note(&format!("{}\n", faint(&text)));
    Ok(RunningModel {
        engine,
        tokenizer: Arc::clone(files.tokenizer()),
        config: files.config().clone(),
        num_threads: cpu.num_threads,
        thread: Some(thread),
    })
}

fn start_engine(
    backend: CpuBackend,
    files: &OpenModel,
    options: &EngineOptions,
) -> Result<(Engine, JoinHandle<()>), CliError> {
    let tokenizer = Arc::clone(files.tokenizer());
    justapi_inference::start(Box::new(backend), tokenizer, options)
        .map_err(|error| not_loaded(&error))
}

/// Says that a model does not fit before the system ends the process for it.
fn check_memory(files: &OpenModel, plan: &ModelPlan, context: usize) -> Result<(), CliError> {
    let Some(available) = available_bytes() else {
        return Ok(());
    };
    let needed = files.weight_bytes().saturating_add(
        kv_bytes_per_token(files.config(), plan.kv_type).saturating_mul(context as u64),
    );
    if needed <= available {
        return Ok(());
    }
    let message = format!(
        "the model needs {} of memory, and {} are free",
        megabytes(needed),
        megabytes(available)
    );
    Err(CliError::new(Code::ModelMemory, message)
        .with_hint("use a smaller model, or fewer tokens of context with `--ctx`"))
}

/// Bytes that the keys and values of a token take.
pub(crate) fn kv_bytes_per_token(config: &ModelConfig, kv_type: KvType) -> u64 {
    let numbers = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim;
    (numbers * kv_type.num_bytes()) as u64
}

/// Memory that a process may still take, where the system says.
fn available_bytes() -> Option<u64> {
    let text = fs::read_to_string(MEMORY_INFO).ok()?;
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}
