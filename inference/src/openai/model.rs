//! A model as the routes see it: the engine that runs it, the way from text to
//! tokens and back, and what requests get that do not say.

use std::sync::Arc;
use std::thread;

use serde_json::Value;
use tokio::sync::Semaphore;

use super::answer::unix_time;
use super::error::ApiError;
use super::fields::Fields;
use super::messages::Message;
use super::metrics::ApiMetrics;
use super::parameters::SamplingDefaults;
use crate::{
    ChatTemplate, Engine, Json, ModelConfig, RenderOptions, RenderedPrompt, SpecialTokens, TokenId,
    Tokenizer,
};

/// Texts up to this size are prepared on the lane that received them: it takes
/// less than a millisecond, and the way to a thread and back half of that.
const MAX_INLINE_BYTES: usize = 8 * 1024;

/// A model that is served.
#[derive(Debug)]
pub struct ServedModel {
    /// The thread that runs it.
    pub engine: Engine,
    /// From text to tokens and back.
    pub tokenizer: Arc<Tokenizer>,
    /// From messages to text; without one there are no chats.
    pub template: Option<ChatTemplate>,
    /// Numbers of the model.
    pub config: ModelConfig,
    /// Name that clients ask for.
    pub name: String,
    /// Further names.
    pub aliases: Vec<String>,
    /// Since when it is served, as Unix time in seconds.
    pub created: u64,
    /// What requests get that do not say.
    pub defaults: SamplingDefaults,
    metrics: Arc<ApiMetrics>,
    /// Permits to prepare large requests on threads of their own.
    preparing: Semaphore,
}

impl ServedModel {
    /// A model under one name, with the usual defaults.
    pub fn new(
        name: impl Into<String>,
        engine: Engine,
        tokenizer: Arc<Tokenizer>,
        template: Option<ChatTemplate>,
        config: ModelConfig,
    ) -> Self {
        let num_threads = thread::available_parallelism().map_or(1, usize::from);
        Self {
            engine,
            tokenizer,
            template,
            name: name.into(),
            aliases: Vec::new(),
            created: unix_time(),
            defaults: SamplingDefaults::default(),
            config,
            metrics: Arc::new(ApiMetrics::new()),
            preparing: Semaphore::new(num_threads),
        }
    }

    /// Families of metrics in the Prometheus text format, for
    /// [`justapi_core::Server::metrics_source`].
    pub fn render_metrics(&self) -> String {
        self.metrics.render(&self.name, &self.engine.stats())
    }

    pub(super) const fn metrics(&self) -> &Arc<ApiMetrics> {
        &self.metrics
    }

    /// Every name that it answers to.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        [&self.name]
            .into_iter()
            .chain(&self.aliases)
            .map(String::as_str)
    }

    /// Tokens of prompt and answer together, at most: those of the context, or
    /// of the whole pool if that is smaller.
    pub(super) fn context_length(&self) -> usize {
        let stats = self.engine.stats();
        let context = self.engine.max_model_len();
        match stats.num_blocks * stats.block_size {
            // The engine has not said yet.
            0 => context,
            pool => context.min(pool),
        }
    }

    /// Tokens of a text that somebody wrote as a prompt.
    ///
    /// `parse_special` reads the names of special tokens as those tokens;
    /// `add_special` puts the model's own first token before it, unless it
    /// stands there already.
    pub(super) fn encode(
        &self,
        text: &str,
        parse_special: bool,
        add_special: bool,
    ) -> Vec<TokenId> {
        let special = if parse_special {
            SpecialTokens::Parse
        } else {
            SpecialTokens::AsText
        };
        if add_special {
            self.tokenizer.encode_prompt(text, special)
        } else {
            self.tokenizer.encode(text, special)
        }
    }

    /// Whether the first of these tokens of a text was put before it.
    pub(super) fn adds_first_token(&self, text: &str, tokens: &[TokenId]) -> bool {
        let Some(bos) = self
            .tokenizer
            .bos()
            .filter(|bos| tokens.first() == Some(bos))
        else {
            return false;
        };
        !text.as_bytes().starts_with(self.token_bytes(bos))
    }

    /// Text of a whole prompt, special tokens by their names.
    pub(super) fn decode(&self, tokens: &[TokenId]) -> String {
        self.tokenizer.decode_prompt(tokens)
    }

    /// Bytes of one token; none outside the vocabulary.
    pub(super) fn token_bytes(&self, id: TokenId) -> &[u8] {
        self.tokenizer.token_bytes(id).unwrap_or_default()
    }

    /// Renders messages by the model's template.
    ///
    /// # Errors
    /// 400 with the template's own words, and for a model without one.
    pub(super) fn render(
        &self,
        messages: &[Message],
        fields: &Fields,
        adds_generation_prompt: bool,
    ) -> Result<RenderedPrompt, ApiError> {
        let Some(template) = &self.template else {
            let reason = "this model has no chat template: it continues texts, see \
                          /v1/completions";
            return Err(ApiError::parameter("messages", reason));
        };
        let messages: Vec<Json> = messages.iter().map(Message::to_json).collect();
        let variables = match fields.get("chat_template_kwargs") {
            None => Vec::new(),
            Some(Value::Object(members)) => members
                .iter()
                .map(|(name, value)| (name.clone(), Json::from(value.clone())))
                .collect(),
            Some(_) => return Err(ApiError::parameter("chat_template_kwargs", "not an object")),
        };
        let options = RenderOptions {
            add_generation_prompt: adds_generation_prompt,
            variables,
            ..RenderOptions::default()
        };
        // Also for a template that is at fault: other messages may well pass it.
        let rendered = template.render(&messages, &options);
        rendered.map_err(|error| ApiError::parameter("messages", error))
    }

    /// Tokens of rendered messages: only what the template says is special.
    pub(super) fn encode_rendered(&self, rendered: &RenderedPrompt) -> Vec<TokenId> {
        rendered.encode(&self.tokenizer)
    }

    /// Runs work of this many bytes without holding up the lane.
    pub(super) async fn prepare<T: Send + 'static>(
        &self,
        num_bytes: usize,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        if num_bytes <= MAX_INLINE_BYTES {
            return work();
        }
        let permit = self.preparing.acquire().await;
        let done = tokio::task::spawn_blocking(work).await;
        drop(permit);
        done.unwrap_or_else(|_| Err(ApiError::failed()))
    }
}
