//! Routes that say what is served and how it is: `/v1/models`,
//! `/v1/cache/status` and `/v1/stats`.

use justapi_core::{Request, Response};
use serde::Serialize;

use super::api::Api;
use super::error::ApiError;
use super::metrics::{hit_ratio, usage};

#[derive(Serialize)]
struct Models<'a> {
    object: &'static str,
    data: Vec<Model<'a>>,
}

#[derive(Serialize)]
struct Model<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
    max_model_len: usize,
    meta: Meta<'a>,
}

#[derive(Serialize)]
struct Meta<'a> {
    architecture: &'a str,
    vocab_size: usize,
    hidden_size: usize,
    num_hidden_layers: usize,
    has_chat_template: bool,
}

impl Api {
    fn describe<'a>(&'a self, id: &'a str) -> Model<'a> {
        let config = &self.model.config;
        Model {
            id,
            object: "model",
            created: self.model.created,
            owned_by: "justapi",
            max_model_len: self.model.context_length(),
            meta: Meta {
                architecture: &config.architecture,
                vocab_size: config.vocab_size,
                hidden_size: config.hidden_size,
                num_hidden_layers: config.num_hidden_layers,
                has_chat_template: self.model.template.is_some(),
            },
        }
    }
}

/// Lists every name of the model.
pub(super) fn models(api: &Api) -> Response {
    let data = api.model.names().map(|name| api.describe(name)).collect();
    Response::json(&Models {
        object: "list",
        data,
    })
}

/// Describes one model; its name may have slashes.
pub(super) fn model(api: &Api, request: &Request) -> Result<Response, ApiError> {
    let id = request.param("id").unwrap_or_default();
    match api.model.names().find(|name| *name == id) {
        Some(name) => Ok(Response::json(&api.describe(name))),
        None => Err(ApiError::model_not_found(id)),
    }
}

#[derive(Serialize)]
struct CacheStatus {
    block_size: usize,
    num_blocks: usize,
    num_free_blocks: usize,
    num_cached_blocks: usize,
    /// Tokens that the whole pool holds.
    kv_tokens: usize,
    /// Share of the blocks that requests hold, 0 to 1.
    usage: f64,
    prefix_cache: PrefixCache,
}

#[derive(Serialize)]
struct PrefixCache {
    num_queried_tokens: u64,
    num_hit_tokens: u64,
    hit_ratio: f64,
}

/// Says what the blocks of keys and values hold.
pub(super) fn cache_status(api: &Api) -> Response {
    let stats = api.model.engine.stats();
    Response::json(&CacheStatus {
        block_size: stats.block_size,
        num_blocks: stats.num_blocks,
        num_free_blocks: stats.num_free_blocks,
        num_cached_blocks: stats.num_cached_blocks,
        kv_tokens: stats.num_blocks * stats.block_size,
        usage: usage(&stats),
        prefix_cache: PrefixCache {
            num_queried_tokens: stats.prefix_queries,
            num_hit_tokens: stats.prefix_hits,
            hit_ratio: hit_ratio(&stats),
        },
    })
}

#[derive(Serialize)]
struct Stats<'a> {
    model: &'a str,
    context_length: usize,
    num_requests_waiting: usize,
    num_requests_running: usize,
    num_preemptions: u64,
    num_steps: u64,
    prompt_tokens: u64,
    generation_tokens: u64,
}

/// Says what the engine does and has done.
pub(super) fn stats(api: &Api) -> Response {
    let stats = api.model.engine.stats();
    Response::json(&Stats {
        model: &api.model.name,
        context_length: api.model.context_length(),
        num_requests_waiting: stats.num_waiting,
        num_requests_running: stats.num_running,
        num_preemptions: stats.num_preemptions,
        num_steps: stats.num_steps,
        prompt_tokens: stats.prompt_tokens,
        generation_tokens: stats.generation_tokens,
    })
}
