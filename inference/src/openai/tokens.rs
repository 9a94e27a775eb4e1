//! Routes that count and show tokens without generating any: `/tokenize`,
//! `/detokenize` (vLLM's), `/apply-template` (llama.cpp's) and
//! `/v1/messages/count_tokens` (Anthropic's).

use std::sync::Arc;

use justapi_core::{Request, Response};
use serde::Serialize;
use serde_json::Value;

use super::api::Api;
use super::error::ApiError;
use super::fields::{self, Fields};
use super::{chat, messages};

/// Runs `work` on the members of a body, off the lane if it is large.
async fn answer<T: Serialize + Send + 'static>(
    api: Arc<Api>,
    request: Request,
    work: fn(&Api, &Fields) -> Result<T, ApiError>,
) -> Result<Response, ApiError> {
    let (_, body) = api.read(request).await?;
    let inner = Arc::clone(&api);
    let prepared = api.model.prepare(body.len(), move || {
        let fields = Fields::parse(&body)?;
        inner.model_name(&fields)?;
        work(&inner, &fields)
    });
    Ok(Response::json(&prepared.await?))
}

#[derive(Serialize)]
struct Tokens {
    count: usize,
    max_model_len: usize,
    #[serde(rename = "tokens")]
    ids: Vec<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_strs: Option<Vec<String>>,
}

/// Tokens of `prompt` or `messages`.
pub(super) async fn tokenize(api: Arc<Api>, request: Request) -> Result<Response, ApiError> {
    answer(api, request, |api, fields| {
        let model = &*api.model;
        let flag = |name| fields.flag(name).map(|flag| flag.unwrap_or(true));
        let ids = match (fields.text("prompt")?, fields.get("messages")) {
            (Some(_), Some(_)) => {
                return Err(ApiError::parameter("prompt", "not beside `messages`"));
            }
            (Some(text), None) => {
                model.encode(text, flag("parse_special")?, flag("add_special_tokens")?)
            }
            (None, _) => chat::prompt(fields, model, flag("add_generation_prompt")?)?,
        };
        let shows_texts = fields.flag("return_token_strs")?.unwrap_or_default();
        let spell = |id: &u32| String::from_utf8_lossy(model.token_bytes(*id)).into_owned();
        Ok(Tokens {
            count: ids.len(),
            max_model_len: model.context_length(),
            token_strs: shows_texts.then(|| ids.iter().map(spell).collect()),
            ids,
        })
    })
    .await
}

#[derive(Serialize)]
struct Prompt {
    prompt: String,
}

/// Text of `tokens`.
pub(super) async fn detokenize(api: Arc<Api>, request: Request) -> Result<Response, ApiError> {
    answer(api, request, |api, fields| {
        let Some(Value::Array(list)) = fields.get("tokens") else {
            return Err(ApiError::parameter("tokens", "not a list of tokens"));
        };
        let tokens = fields::tokens("tokens", list, api.model.config.vocab_size)?;
        Ok(Prompt {
            prompt: api.model.decode(&tokens),
        })
    })
    .await
}

/// Text of `messages` by the model's template.
pub(super) async fn apply_template(api: Arc<Api>, request: Request) -> Result<Response, ApiError> {
    answer(api, request, |api, fields| {
        let generates = fields.flag("add_generation_prompt")?.unwrap_or(true);
        let rendered = api
            .model
            .render(&messages::read(fields)?, fields, generates)?;
        Ok(Prompt {
            prompt: rendered.text(),
        })
    })
    .await
}

#[derive(Serialize)]
struct Count {
    input_tokens: usize,
}

/// Number of tokens of `system` and `messages`.
pub(super) async fn count_tokens(api: Arc<Api>, request: Request) -> Result<Response, ApiError> {
    answer(api, request, |api, fields| {
        if fields
            .get("tools")
            .is_some_and(|tools| tools != &Value::Array(Vec::new()))
        {
            return Err(ApiError::unsupported("tools"));
        }
        let messages = messages::read_with_system(fields)?;
        let rendered = api.model.render(&messages, fields, true)?;
        Ok(Count {
            input_tokens: api.model.encode_rendered(&rendered).len(),
        })
    })
    .await
}
