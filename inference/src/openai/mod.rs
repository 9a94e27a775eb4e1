//! OpenAI-compatible routes over an [`Engine`](crate::Engine): the one part of
//! the crate that knows HTTP.
//!
//! Guarantee: a request that cannot be answered as asked is refused before its
//! first byte, in OpenAI's error object; nothing is cut short in silence.
//!
//! ```text
//! Guard ─▶ Api::read ─▶ Job::read (off the lane if large) ─▶ Choices ─▶ Response | Sse
//! ```

mod answer;
mod api;
mod chat;
mod completions;
mod embeddings;
mod error;
mod fields;
mod generation;
mod guard;
mod keys;
mod logprobs;
mod messages;
mod metrics;
mod model;
mod page;
mod parameters;
mod status;
mod stream;
#[cfg(test)]
mod tests;
mod tokens;

use std::sync::Arc;

use justapi_core::{Error, Method, Request, Response, RouteOptions, Router, inline};

pub use self::api::ApiOptions;
use self::api::{Api, handler};
use self::error::ApiError;
use self::guard::Guard;
pub use self::keys::ApiKeys;
pub use self::model::ServedModel;
use self::page::Page;
pub use self::parameters::SamplingDefaults;

const JSON_BODY: &[&str] = &["application/json"];

/// The routes of a model.
///
/// Metrics are [`ServedModel::render_metrics`]; health routes are the server's.
///
/// # Errors
/// Never in practice: the patterns are constants that a test registers.
pub fn routes(model: &Arc<ServedModel>, options: ApiOptions) -> Result<Router, Error> {
    let api = Arc::new(Api {
        model: Arc::clone(model),
        options,
    });
    let mut router = add_generation(Router::new(), &api)?;
    router = add_tokens(router, &api)?;
    router = add_status(router, &api)?;
    if !api.options.without_page {
        let page = Page::new();
        let hidden = RouteOptions::new().hidden();
        let answer = inline(move |_: Request| page.answer());
        router = router.route_with(Method::GET, "/", hidden, answer)?;
    }
    Ok(router.layer(Guard(api)))
}

const fn about(summary: &'static str, tags: &'static [&'static str]) -> RouteOptions {
    RouteOptions::new()
        .summary(summary)
        .tags(tags)
        .body_types(JSON_BODY)
}

fn add_generation(router: Router, api: &Arc<Api>) -> Result<Router, Error> {
    const TAGS: &[&str] = &["generation"];
    router
        .route_with(
            Method::POST,
            "/v1/chat/completions",
            about("Answers a chat", TAGS),
            handler(api, chat::chat),
        )?
        .route_with(
            Method::POST,
            "/v1/completions",
            about("Continues texts", TAGS),
            handler(api, completions::completions),
        )?
        .route_with(
            Method::POST,
            "/v1/embeddings",
            about("Embeds texts", TAGS),
            handler(api, embeddings::embeddings),
        )
}

fn add_tokens(router: Router, api: &Arc<Api>) -> Result<Router, Error> {
    const TAGS: &[&str] = &["tokens"];
    router
        .route_with(
            Method::POST,
            "/tokenize",
            about("Tokens of a text or of a chat", TAGS),
            handler(api, tokens::tokenize),
        )?
        .route_with(
            Method::POST,
            "/detokenize",
            about("Text of tokens", TAGS),
            handler(api, tokens::detokenize),
        )?
        .route_with(
            Method::POST,
            "/apply-template",
            about("Text of a chat by the model's template", TAGS),
            handler(api, tokens::apply_template),
        )?
        .route_with(
            Method::POST,
            "/v1/messages/count_tokens",
            about("Number of tokens of a chat", TAGS),
            handler(api, tokens::count_tokens),
        )
}

/// Answers at once, from what is known.
type Show = fn(&Api, &Request) -> Result<Response, ApiError>;

fn add_status(router: Router, api: &Arc<Api>) -> Result<Router, Error> {
    let routes: [(&str, &'static str, Show); 4] = [
        ("/v1/models", "Models", |api, _| Ok(status::models(api))),
        ("/v1/models/{*id}", "One model", status::model),
        ("/v1/cache/status", "Blocks of the cache", |api, _| {
            Ok(status::cache_status(api))
        }),
        ("/v1/stats", "What the engine does", |api, _| {
            Ok(status::stats(api))
        }),
    ];
    routes
        .into_iter()
        .try_fold(router, |router, (path, summary, show)| {
            let api = Arc::clone(api);
            let options = RouteOptions::new().summary(summary).tags(&["status"]);
            let answer = inline(move |request: Request| show(&api, &request));
            router.route_with(Method::GET, path, options, answer)
        })
}
