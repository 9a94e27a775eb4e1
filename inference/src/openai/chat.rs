//! `/v1/chat/completions`.
//!
//! Guarantee: a model without a chat template has no chats, and says so; no
//! template is guessed. Source: OpenAI API reference, "Chat".

use std::sync::Arc;

use justapi_core::{Request, Response};
use serde::Serialize;

use super::answer::{Head, UsageBody};
use super::api::{Api, Common};
use super::error::ApiError;
use super::fields::Fields;
use super::generation::Finished;
use super::logprobs::{ChatLogprobs, PromptLogprobs};
use super::messages;
use super::model::ServedModel;
use super::parameters::{self, Delivery};
use super::stream::{Shape, Stream};
use crate::{EngineRequest, TokenId, TokenLogprobs};

/// `top_logprobs`; OpenAI's 20.
const MAX_TOP_LOGPROBS: u32 = 20;

/// Answers a chat.
pub(super) async fn chat(api: Arc<Api>, request: Request) -> Result<Response, ApiError> {
    let (call, body) = api.read(request).await?;
    let inner = Arc::clone(&api);
    let job = api
        .model
        .prepare(body.len(), move || Job::read(&inner, &body))
        .await?;
    let choices = api.start(&call, job.requests, "messages").await?;
    let model = Arc::clone(&api.model);
    if job.delivery.is_streamed {
        let stream = Stream {
            head: Head::new("chatcmpl-", "chat.completion.chunk", job.model_name),
            shape: ChatShape(model),
            delivery: job.delivery,
            num_prompt_tokens: job.num_prompt_tokens,
            is_prompt_alone: false,
        };
        return Ok(stream.respond(choices));
    }
    let finished = choices.collect().await?;
    let num_choices = job.delivery.num_choices;
    let usage = UsageBody::of_choices(job.num_prompt_tokens, &finished, num_choices, false);
    let mut prompt_logprobs = None;
    let choices = finished.into_iter().enumerate().map(|(index, choice)| {
        if let Some(logprobs) = &choice.prompt {
            prompt_logprobs = Some(PromptLogprobs::new(&model, logprobs));
        }
        Choice::new(&model, index, choice, job.has_logprobs)
    });
    Ok(Response::json(&Completion {
        head: Head::new("chatcmpl-", "chat.completion", job.model_name),
        choices: choices.collect(),
        usage,
        prompt_logprobs,
    }))
}

/// A chat that has been read and found good.
struct Job {
    model_name: String,
    requests: Vec<EngineRequest>,
    delivery: Delivery,
    num_prompt_tokens: u32,
    has_logprobs: bool,
}

impl Job {
    fn read(api: &Api, body: &[u8]) -> Result<Self, ApiError> {
        let fields = Fields::parse(body)?;
        let model = &*api.model;
        let model_name = api.model_name(&fields)?;
        let delivery = Delivery::of(&fields)?;
        let mut common = Common::read(&fields, model, delivery.num_choices)?;
        common.sampling.logprobs = logprobs(&fields)?;
        if fields.flag("echo")? == Some(true) {
            return Err(ApiError::unsupported("echo"));
        }
        if common.prompt_logprobs.is_some() && delivery.is_streamed {
            return Err(ApiError::parameter("prompt_logprobs", "not with `stream`"));
        }
        let asked = match fields.count("max_completion_tokens", 1..=u32::MAX)? {
            Some(asked) => Some(asked),
            None => fields.count("max_tokens", 1..=u32::MAX)?,
        };
        let prompt = prompt(&fields, model, true)?;
        let (default, context) = (model.defaults.max_tokens, model.context_length());
        let max_tokens = parameters::max_tokens(asked, default, prompt.len(), context)
            .map_err(|error| error.with_param("messages"))?;
        Ok(Self {
            model_name,
            requests: common.requests(&prompt, max_tokens)?,
            delivery,
            num_prompt_tokens: prompt.len() as u32,
            has_logprobs: common.sampling.logprobs.is_some(),
        })
    }
}

/// Tokens of the messages of a request.
pub(super) fn prompt(
    fields: &Fields,
    model: &ServedModel,
    adds_generation_prompt: bool,
) -> Result<Vec<TokenId>, ApiError> {
    let messages = messages::read(fields)?;
    let rendered = model.render(&messages, fields, adds_generation_prompt)?;
    Ok(model.encode_rendered(&rendered))
}

fn logprobs(fields: &Fields) -> Result<Option<u32>, ApiError> {
    let top = fields.count("top_logprobs", 0..=MAX_TOP_LOGPROBS)?;
    match (fields.flag("logprobs")?, top) {
        (Some(true), top) => Ok(Some(top.unwrap_or_default())),
        (_, Some(top)) if top > 0 => Err(ApiError::parameter(
            "top_logprobs",
            "only with `logprobs`: true",
        )),
        _ => Ok(None),
    }
}

#[derive(Serialize)]
struct Completion {
    #[serde(flatten)]
    head: Head,
    choices: Vec<Choice>,
    usage: UsageBody,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_logprobs: Option<PromptLogprobs>,
}

#[derive(Serialize)]
struct Choice {
    index: usize,
    message: Message,
    logprobs: Option<ChatLogprobs>,
    finish_reason: &'static str,
}

#[derive(Serialize)]
struct Message {
    role: &'static str,
    content: String,
    refusal: Option<()>,
}

impl Choice {
    fn new(model: &ServedModel, index: usize, choice: Finished, has_logprobs: bool) -> Self {
        Self {
            index,
            logprobs: has_logprobs.then(|| ChatLogprobs::new(model, &choice.tokens)),
            message: Message {
                role: "assistant",
                content: choice.text,
                refusal: None,
            },
            finish_reason: choice.finish_reason,
        }
    }
}

/// Chunks of a chat.
struct ChatShape(Arc<ServedModel>);

#[derive(Serialize)]
struct Piece {
    index: usize,
    delta: Delta,
    logprobs: Option<ChatLogprobs>,
    finish_reason: Option<&'static str>,
}

#[derive(Default, Serialize)]
struct Delta {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
}

impl Shape for ChatShape {
    type Choice = Piece;

    fn first(&mut self, index: usize, _: Option<Vec<Option<TokenLogprobs>>>) -> Option<Piece> {
        Some(Piece {
            index,
            delta: Delta {
                role: Some("assistant"),
                content: Some(String::new()),
            },
            logprobs: None,
            finish_reason: None,
        })
    }

    fn piece(&mut self, index: usize, text: String, logprobs: Option<&TokenLogprobs>) -> Piece {
        let logprobs = logprobs.map(std::slice::from_ref);
        Piece {
            index,
            delta: Delta {
                role: None,
                content: Some(text),
            },
            logprobs: logprobs.map(|token| ChatLogprobs::new(&self.0, token)),
            finish_reason: None,
        }
    }

    fn end(&mut self, index: usize, finish_reason: &'static str) -> Piece {
        Piece {
            index,
            delta: Delta::default(),
            logprobs: None,
            finish_reason: Some(finish_reason),
        }
    }
}
