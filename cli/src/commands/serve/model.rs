//! `justapi serve --model`: a language model behind OpenAI's API.
//!
//! Guarantee: it listens once the model can answer, and what keeps it from that
//! is said before anything is bound.

use std::path::Path;
use std::sync::Arc;

use justapi_inference::openai::{ApiKeys, ApiOptions, ServedModel, routes};
use justapi_inference::{EngineOptions, KvType};

use super::{Plan, conflict, run};
use crate::commands::model::{self, ModelPlan};
use crate::config::{Config, Origin};
use crate::error::{CliError, Code};
use crate::ui::{Ui, good};

/// Setting that names the model.
const ID: &str = "model.id";

/// The model that is to be served; an application that is named comes before one of the settings.
///
/// # Errors
/// [`Code::FlagConflict`]: both are named on the command line.
pub(super) fn asked_for(config: &Config, app: Option<&str>) -> Result<Option<String>, CliError> {
    let id = config.value(ID).text().map(str::to_owned);
    let is_flag = matches!(config.origin(ID), Origin::Flag(_));
    match (id, app) {
        (Some(_), Some(app)) if is_flag => {
            let problem = format!("`--model` and the application `{app}` are two things to serve");
            Err(conflict(config, ID, problem).with_hint("start one server for each"))
        }
        (Some(_), Some(_)) | (None, _) => Ok(None),
        (id, None) => Ok(id),
    }
}

/// Serves a model until a stop signal.
///
/// # Errors
/// What keeps the model from running, and the server from listening.
pub(super) fn serve(
    ui: &Ui,
    config: &Config,
    plan: &Plan,
    id: &str,
    only_checks: bool,
) -> Result<u8, CliError> {
    let keys = api_keys(config)?;
    let located = model::find_model(ui, id, config.value("model.offline").is_on())?;
    let files = model::open(&located)?;
    let template = config.value("model.chat_template").text();
    let template = model::chat_template(&files, template.map(Path::new))?;
    if only_checks {
        plan.check_files(true)?;
        let human = format!("configuration is {}\n", good("valid"));
        ui.event("checked", serde_json::json!({"ok": true}), &human)?;
        return Ok(0);
    }
    let running = model::start(ui, &located, &files, &model_plan(config))?;
    let name = config.value("model.served_name").text();
    let served = ServedModel::new(
        name.unwrap_or(&located.name),
        running.engine.clone(),
        Arc::clone(&running.tokenizer),
        template,
        running.config.clone(),
    );
    // Files are read; what they took is free again.
    drop(files);
    let served = Arc::new(served);
    let options = ApiOptions {
        api_keys: keys,
        ..ApiOptions::default()
    };
    let metrics = Arc::clone(&served);
    let what = format!("model {}", served.name);
    run(
        ui,
        plan,
        &what,
        || plan.mount(routes(&served, options)?),
        |server| server.metrics_source(move || metrics.render_metrics()),
    )
}

fn api_keys(config: &Config) -> Result<Option<ApiKeys>, CliError> {
    let Some(path) = config.value("model.api_key_file").text() else {
        return Ok(None);
    };
    let keys = ApiKeys::from_file(Path::new(path)).map_err(|error| {
        CliError::new(Code::ApiKeys, error.to_string())
            .with_hint("one key a line, and `chmod 600` for the file")
    })?;
    Ok(Some(keys))
}

fn model_plan(config: &Config) -> ModelPlan {
    let number = |key: &str| config.value(key).number().map(|number| number as usize);
    let defaults = EngineOptions::default();
    ModelPlan {
        threads: number("model.threads"),
        kv_type: match config.value("model.kv_type").text() {
            Some("f32") => KvType::F32,
            _ => KvType::F16,
        },
        gpu: config.value("model.gpu").is_on(),
        options: EngineOptions {
            max_seqs: number("model.max_seqs").unwrap_or(defaults.max_seqs),
            pool_blocks: number("model.pool_blocks"),
            block_size: number("model.block_size").unwrap_or(defaults.block_size),
            chunk_size: number("model.chunk_size").unwrap_or(defaults.chunk_size),
            max_prefill: number("model.max_prefill").unwrap_or(defaults.max_prefill),
            max_decode: number("model.max_decode").unwrap_or(defaults.max_decode),
            max_model_len: number("model.context"),
            max_waiting: number("model.max_waiting").unwrap_or(defaults.max_waiting),
            ..defaults
        },
    }
}
