//! Language model engine: real weights, a paged cache of keys and values, one
//! step loop for every sequence, and OpenAI's routes on top.
//!
//! A row's result depends on nothing but that row: text is bit-equal alone, in
//! a batch, after a prefix hit, in chunks, and after preemption.

mod backend;
mod block_pool;
mod chat_template;
mod engine;
mod error;
mod ids;
mod kernels;
mod locate;
mod model;
mod open_model;
pub mod openai;
mod prefix_cache;
mod sampling;
mod scheduler;
mod tokenizer;
mod weights;

pub use crate::backend::{
    Backend, CpuBackend, CpuOptions, ForwardBatch, KvType, Outputs, SequenceRows,
};
pub use crate::chat_template::{ChatTemplate, Json, RenderOptions, RenderedPrompt, TemplateError};
pub use crate::engine::{
    Command, DEFAULT_KV_BYTES, Engine, EngineEvent, EngineOptions, EngineRequest, EngineStats,
    FinishReason, Generation, Refusal, TokenLogprobs, Usage, start,
};
pub use crate::error::Error;
pub use crate::ids::{BlockId, SequenceId, TokenId};
pub use crate::locate::{
    LocateError, LocateEvent, LocateSettings, LocatedModel, ModelFormat, SHORT_NAMES, ShortName,
    locate,
};
pub use crate::model::{
    Activation, LayerTensor, ModelConfig, ModelFiles, NormPlacement, RopeConfig, RopePairing,
    RopeScaling, TensorNaming, TensorRole,
};
pub use crate::open_model::OpenModel;
pub use crate::sampling::{Sample, Sampler, SamplingContext, SamplingFailure, SamplingParams};
pub use crate::scheduler::{
    BlockCopy, SampledToken, ScheduledBatch, ScheduledSequence, Scheduler, SchedulerConfig,
    SchedulerStats, SequenceRequest, SequenceState,
};
pub use crate::tokenizer::{Detokenizer, GgufTokenizer, SpecialTokens, StopMatcher, Tokenizer};
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub use crate::weights::fuzzing;
pub use crate::weights::{
    DataType, GgufFile, Metadata, SafetensorsFiles, StoredTensor, Strings, WeightSource,
};
