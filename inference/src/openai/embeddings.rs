//! `/v1/embeddings`: the mean state of each text behind the last norm.
//!
//! Guarantee: a vector has length 1, also when `dimensions` cuts it short.
//! Source: OpenAI API reference, "Embeddings".

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::join_all;
use justapi_core::{Request, Response};
use serde::Serialize;
use serde_json::Value;

use super::api::Api;
use super::error::ApiError;
use super::fields::{self, Fields};
use super::model::ServedModel;
use crate::TokenId;

/// Texts of one request; OpenAI's 2,048.
const MAX_INPUTS: usize = 2048;
/// Texts that the engine has of one request at a time: others come between.
const MAX_AT_ONCE: usize = 8;

/// Embeds one text or several.
pub(super) async fn embeddings(api: Arc<Api>, request: Request) -> Result<Response, ApiError> {
    let (_, body) = api.read(request).await?;
    let inner = Arc::clone(&api);
    let job = api
        .model
        .prepare(body.len(), move || Job::read(&inner, &body))
        .await?;
    let num_tokens = job.inputs.iter().map(Vec::len).sum();
    let mut data = Vec::with_capacity(job.inputs.len());
    let mut inputs = job.inputs.into_iter();
    loop {
        let some = inputs.by_ref().take(MAX_AT_ONCE);
        let states = join_all(some.map(|tokens| api.model.engine.embed(tokens))).await;
        if states.is_empty() {
            break;
        }
        for state in states {
            let state = state.map_err(|refusal| ApiError::refused(&refusal, "input"))?;
            data.push(Embedding {
                object: "embedding",
                index: data.len(),
                vector: Vector::new(state, job.num_dimensions, job.is_base64),
            });
        }
    }
    Ok(Response::json(&Embeddings {
        object: "list",
        data,
        model: job.model_name,
        usage: Usage {
            prompt_tokens: num_tokens,
            total_tokens: num_tokens,
        },
    }))
}

struct Job {
    model_name: String,
    inputs: Vec<Vec<TokenId>>,
    num_dimensions: usize,
    is_base64: bool,
}

impl Job {
    fn read(api: &Api, body: &[u8]) -> Result<Self, ApiError> {
        let fields = Fields::parse(body)?;
        let model = &*api.model;
        let model_name = api.model_name(&fields)?;
        let size = model.config.hidden_size;
        let num_dimensions = fields.count("dimensions", 1..=size as u32)?;
        let is_base64 = match fields.text("encoding_format")? {
            None | Some("float") => false,
            Some("base64") => true,
            Some(other) => {
                let reason = format!("{other:?} is not float or base64");
                return Err(ApiError::parameter("encoding_format", reason));
            }
        };
        Ok(Self {
            model_name,
            inputs: inputs(&fields, model)?,
            num_dimensions: num_dimensions.map_or(size, |dimensions| dimensions as usize),
            is_base64,
        })
    }
}

/// Reads `input`: a text, texts, tokens, or lists of tokens.
fn inputs(fields: &Fields, model: &ServedModel) -> Result<Vec<Vec<TokenId>>, ApiError> {
    const NAME: &str = "input";
    let context = model.context_length();
    let fits = |tokens: Vec<TokenId>| match tokens.len() {
        0 => Err(ApiError::parameter(NAME, "an empty list")),
        num_tokens if num_tokens > context => {
            let message = format!("{num_tokens} tokens are more than the {context} of the context");
            Err(ApiError::too_long(message).with_param(NAME))
        }
        _ => Ok(tokens),
    };
    let of_text = |text: &str| match text {
        "" => Err(ApiError::parameter(NAME, "an empty text")),
        text => fits(model.encode(text, false, true)),
    };
    let of_tokens = |list: &[Value]| fits(fields::tokens(NAME, list, model.config.vocab_size)?);
    match fields.get(NAME) {
        None => Err(ApiError::parameter(NAME, "missing")),
        Some(Value::String(text)) => Ok(vec![of_text(text)?]),
        Some(Value::Array(list)) if list.is_empty() => {
            Err(ApiError::parameter(NAME, "an empty list"))
        }
        Some(Value::Array(list)) if list[0].is_number() => Ok(vec![of_tokens(list)?]),
        Some(Value::Array(list)) if list.len() > MAX_INPUTS => {
            let reason = format!("{} texts are more than {MAX_INPUTS}", list.len());
            Err(ApiError::parameter(NAME, reason))
        }
        Some(Value::Array(list)) => list
            .iter()
            .map(|item| match item {
                Value::String(text) => of_text(text),
                Value::Array(tokens) => of_tokens(tokens),
                _ => Err(ApiError::parameter(NAME, "not texts, nor lists of tokens")),
            })
            .collect(),
        Some(_) => Err(ApiError::parameter(NAME, "not a text, nor a list")),
    }
}

#[derive(Serialize)]
struct Embeddings {
    object: &'static str,
    data: Vec<Embedding>,
    model: String,
    usage: Usage,
}

#[derive(Serialize)]
struct Usage {
    prompt_tokens: usize,
    total_tokens: usize,
}

#[derive(Serialize)]
struct Embedding {
    object: &'static str,
    index: usize,
    #[serde(rename = "embedding")]
    vector: Vector,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(untagged)]
enum Vector {
    Floats(Vec<f32>),
    /// Little-endian.
    Base64(String),
}

impl Vector {
    /// The first dimensions of a state, at length 1.
    fn new(mut state: Vec<f32>, num_dimensions: usize, is_base64: bool) -> Self {
        state.truncate(num_dimensions);
        let squares = state.iter().map(|one| f64::from(*one) * f64::from(*one));
        let length = squares.sum::<f64>().sqrt();
        if length > 0.0 && length.is_finite() {
            for one in &mut state {
                *one = (f64::from(*one) / length) as f32;
            }
        }
        if !is_base64 {
            return Self::Floats(state);
        }
        let bytes: Vec<u8> = state.iter().flat_map(|one| one.to_le_bytes()).collect();
        Self::Base64(STANDARD.encode(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_have_length_one_whatever_is_left_of_them() {
        let whole = Vector::new(vec![3.0, 4.0, 0.0], 3, false);
        assert_eq!(whole, Vector::Floats(vec![0.6, 0.8, 0.0]));
        let cut = Vector::new(vec![3.0, 4.0, 12.0], 2, false);
        assert_eq!(cut, Vector::Floats(vec![0.6, 0.8]));
        let none = Vector::new(vec![0.0, 0.0], 2, false);
        assert_eq!(none, Vector::Floats(vec![0.0, 0.0]));
    }

    #[test]
    fn base64_holds_little_endian_floats() {
        // Of Python: base64.b64encode(struct.pack("<2f", 1.0, 0.0)).
        let encoded = Vector::new(vec![2.0, 0.0], 2, true);
        assert_eq!(encoded, Vector::Base64("AACAPwAAAAA=".to_owned()));
    }
}
