//! What every handler is given, and what each reads of a request first.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use justapi_core::{Bytes, Handler, Request, Response};

use super::error::ApiError;
use super::fields::{self, Fields};
use super::generation::Choices;
use super::keys::ApiKeys;
use super::model::ServedModel;
use super::parameters::{self, seed_of};
use crate::{EngineRequest, SamplingParams, TokenId};

/// Longest tenant that a gateway may name.
const MAX_TENANT_BYTES: usize = 128;
/// Whose a request is, as the Gateway API Inference Extension says it.
const FAIRNESS_ID: &str = "x-gateway-inference-fairness-id";

/// How the routes behave.
#[derive(Clone, Debug, Default)]
pub struct ApiOptions {
    /// Keys of which a request has to show one; `None` lets everybody in.
    pub api_keys: Option<ApiKeys>,
    /// Whether any model that is asked for is this one.
    pub any_model: bool,
    /// After which time an answer is ended as it is.
    pub time_limit: Option<Duration>,
    /// Whether there is no chat page on `/`.
    pub without_page: bool,
}

/// What every handler is given.
#[derive(Debug)]
pub(super) struct Api {
    pub(super) model: Arc<ServedModel>,
    pub(super) options: ApiOptions,
}

/// A request, as far as all routes read it alike.
pub(super) struct Call {
    pub(super) started: Instant,
    tenant: Option<Arc<str>>,
}

impl Api {
    /// Reads a request and its whole body.
    pub(super) async fn read(&self, request: Request) -> Result<(Call, Bytes), ApiError> {
        let started = Instant::now();
        fields::check_media_type(request.headers())?;
        let tenant = self.tenant(&request);
        let body = request.bytes().await?;
        Ok((Call { started, tenant }, body))
    }

    /// Name of the key that a request shows. Where there are no keys, whoever is
    /// in front of us says whose it is.
    fn tenant(&self, request: &Request) -> Option<Arc<str>> {
        if let Some(keys) = &self.options.api_keys {
            return keys.name_of(request.headers());
        }
        let id = request.headers().get(FAIRNESS_ID)?.to_str().ok()?;
        let is_one = !id.is_empty() && id.len() <= MAX_TENANT_BYTES;
        is_one.then(|| id.into())
    }

    /// The name under which the answer says that it comes.
    ///
    /// # Errors
    /// 404 for a model that is not served; who names none gets this one.
    pub(super) fn model_name(&self, fields: &Fields) -> Result<String, ApiError> {
        match fields.text("model")? {
            None => Ok(self.model.name.clone()),
            Some(name) if self.options.any_model || self.model.names().any(|own| own == name) => {
                Ok(name.to_owned())
            }
            Some(name) => Err(ApiError::model_not_found(name)),
        }
    }
}

/// What all texts of one answer have in common.
pub(super) struct Common {
    /// `max_tokens` is each prompt's own.
    pub(super) sampling: SamplingParams,
    pub(super) num_choices: u32,
    pub(super) prompt_logprobs: Option<u32>,
    /// Whether the log-probabilities of a prompt go to all of its choices, and
    /// not to the first alone.
    pub(super) each_choice_reads_prompt: bool,
    priority: i32,
    cache_salt: Option<Arc<str>>,
}

impl Common {
    /// Reads what chats and completions share.
    pub(super) fn read(
        fields: &Fields,
        model: &ServedModel,
        num_choices: u32,
    ) -> Result<Self, ApiError> {
        parameters::refuse_unsupported(fields)?;
        let vocab_size = model.config.vocab_size;
        Ok(Self {
            sampling: parameters::sampling(fields, &model.defaults, vocab_size)?,
            num_choices,
            prompt_logprobs: fields.count("prompt_logprobs", 0..=20)?,
            each_choice_reads_prompt: false,
            priority: parameters::priority(fields)?,
            cache_salt: parameters::cache_salt(fields)?.map(Arc::from),
        })
    }

    /// The requests of one prompt, one for each choice.
    pub(super) fn requests(
        &self,
        prompt: &[TokenId],
        max_tokens: u32,
    ) -> Result<Vec<EngineRequest>, ApiError> {
        if self.sampling.min_tokens > max_tokens {
            let reason = format!("more than the {max_tokens} that the answer may have");
            return Err(ApiError::parameter("min_tokens", reason));
        }
        let request = |index| EngineRequest {
            prompt: prompt.to_vec(),
            sampling: SamplingParams {
                seed: seed_of(self.sampling.seed, index),
                max_tokens,
                ..self.sampling.clone()
            },
            priority: self.priority,
            tenant: None,
            cache_salt: self.cache_salt.clone(),
            deadline: None,
            prompt_logprobs: self
                .prompt_logprobs
                .filter(|_| index == 0 || self.each_choice_reads_prompt),
        };
        Ok((0..self.num_choices).map(request).collect())
    }
}

impl Api {
    /// Submits requests as those of one call.
    pub(super) async fn start(
        &self,
        call: &Call,
        mut requests: Vec<EngineRequest>,
        prompt_name: &'static str,
    ) -> Result<Choices, ApiError> {
        let deadline = self.options.time_limit.map(|limit| call.started + limit);
        for request in &mut requests {
            request.tenant.clone_from(&call.tenant);
            request.deadline = deadline;
        }
        Choices::start(&self.model, requests, call.started, prompt_name).await
    }
}

/// Makes a handler of a function that is given the API.
pub(super) fn handler<F, Fut>(api: &Arc<Api>, function: F) -> impl Handler + use<F, Fut>
where
    F: Fn(Arc<Api>, Request) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Response, ApiError>> + Send + 'static,
{
    let api = Arc::clone(api);
    move |request: Request| function(Arc::clone(&api), request)
}
