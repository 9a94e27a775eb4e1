//! `justapi infer inspect`: what a model is, and what it needs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use justapi_inference::{KvType, LocatedModel, ModelConfig, OpenModel};
use serde_json::{Value, json};

use crate::commands::model::{kv_bytes_per_token, megabytes};
use crate::error::CliError;
use crate::infer_args::InferInspect;
use crate::ui::{Ui, document, heading};

/// Tensors of one type.
#[derive(Debug, Default, PartialEq, Eq)]
struct Share {
    tensors: usize,
    values: u64,
    bytes: u64,
}

/// Describes a model.
///
/// # Errors
/// As [`super::infer`].
pub(super) fn inspect(
    ui: &Ui,
    arguments: &InferInspect,
    explicit: Option<&Path>,
) -> Result<u8, CliError> {
    let (located, model) = super::open(ui, &arguments.model, explicit)?;
    let shares = shares(&model);
    let kv_type = super::kv_type(arguments.model.kv_type);
    let trained = model.config().max_position_embeddings;
    let context = arguments
        .model
        .ctx
        .map_or(trained, |tokens| tokens as usize);
    let facts = Facts {
        located: &located,
        model: &model,
        shares,
        kv_type,
        context,
        lists_tensors: arguments.tensors,
    };
    if ui.is_json() {
        document(&facts.document())?;
    } else {
        ui.data(&facts.text())?;
    }
    Ok(0)
}

struct Facts<'a> {
    located: &'a LocatedModel,
    model: &'a OpenModel,
    shares: BTreeMap<&'static str, Share>,
    kv_type: KvType,
    context: usize,
    lists_tensors: bool,
}

impl Facts<'_> {
    fn num_parameters(&self) -> u64 {
        self.shares.values().map(|share| share.values).sum()
    }

    fn kv_bytes(&self) -> u64 {
        kv_bytes_per_token(self.model.config(), self.kv_type).saturating_mul(self.context as u64)
    }

    fn has_template(&self) -> bool {
        self.model.chat_template().is_some()
    }

    fn text(&self) -> String {
        let config = self.model.config();
        let weights = self.model.weight_bytes();
        let mut text = format!("{}\n", heading(&self.located.name));
        let mut row = |label: &str, value: String| {
            writeln!(text, "  {label:<13} {value}").expect("strings can always grow");
        };
        row("file", self.located.path.display().to_string());
        row("architecture", config.architecture.clone());
        let millions = self.num_parameters() as f64 / 1e6;
        row("parameters", format!("{millions:.1} million"));
        row("layers", shape(config));
        row("heads", heads(config));
        row("vocabulary", format!("{} tokens", config.vocab_size));
        row("context", context_text(config));
        let template = if self.has_template() {
            "yes"
        } else {
            "no: a base model, which continues texts"
        };
        row("chat template", template.to_owned());
        let needed = format!(
            "{} of weights and {} of keys and values at {} tokens",
            megabytes(weights),
            megabytes(self.kv_bytes()),
            self.context
        );
        row("memory", needed);
        writeln!(text, "  weights").expect("strings can always grow");
        for (name, share) in &self.shares {
            let percent = share.bytes as f64 * 100.0 / weights.max(1) as f64;
            let size = megabytes(share.bytes);
            writeln!(
                text,
                "    {name:<8} {:>5} tensors {size:>12} {percent:>6.1} %",
                share.tensors
            )
            .expect("strings can always grow");
        }
        if self.lists_tensors {
            for tensor in self.model.weights().tensors() {
                let shape: Vec<String> = tensor.shape.iter().map(usize::to_string).collect();
                writeln!(
                    text,
                    "  {:<44} {:<8} {}",
                    tensor.name,
                    tensor.data_type.name(),
                    shape.join(" x ")
                )
                .expect("strings can always grow");
            }
        }
        text
    }

    fn document(&self) -> Value {
        let config = self.model.config();
        let weights = self.model.weights();
        let types: BTreeMap<&str, Value> = (self.shares.iter())
            .map(|(name, share)| {
                let value = json!({
                    "tensors": share.tensors,
                    "values": share.values,
                    "bytes": share.bytes,
                });
                (*name, value)
            })
            .collect();
        let tensors = self.lists_tensors.then(|| {
            let of = |tensor: &justapi_inference::StoredTensor| {
                json!({
                    "name": tensor.name,
                    "type": tensor.data_type.name(),
                    "shape": tensor.shape,
                    "bytes": tensor.num_bytes(),
                })
            };
            weights.tensors().iter().map(of).collect::<Vec<_>>()
        });
        json!({
            "v": 1,
            "name": self.located.name,
            "path": self.located.path.display().to_string(),
            "architecture": config.architecture,
            "parameters": self.num_parameters(),
            "vocab_size": config.vocab_size,
            "hidden_size": config.hidden_size,
            "intermediate_size": config.intermediate_size,
            "num_hidden_layers": config.num_hidden_layers,
            "num_attention_heads": config.num_attention_heads,
            "num_key_value_heads": config.num_key_value_heads,
            "head_dim": config.head_dim,
            "max_position_embeddings": config.max_position_embeddings,
            "sliding_window": config.sliding_window,
            "chat_template": self.has_template(),
            "types": types,
            "tensors": tensors,
            "memory": {
                "weights": self.model.weight_bytes(),
                "kv_bytes_per_token": kv_bytes_per_token(config, self.kv_type),
                "context": self.context,
                "kv": self.kv_bytes(),
            },
        })
    }
}

fn shape(config: &ModelConfig) -> String {
    format!(
        "{}, {} wide, feed-forward {}",
        config.num_hidden_layers, config.hidden_size, config.intermediate_size
    )
}

fn heads(config: &ModelConfig) -> String {
    format!(
        "{} of queries, {} of keys and values, {} wide",
        config.num_attention_heads, config.num_key_value_heads, config.head_dim
    )
}

fn context_text(config: &ModelConfig) -> String {
    let whole = format!("{} tokens", config.max_position_embeddings);
    let num_local = config.layer_is_local.iter().filter(|local| **local).count();
    match config.sliding_window {
        Some(window) if num_local > 0 => {
            format!("{whole}; {num_local} layers see the last {window}")
        }
        _ => whole,
    }
}

fn shares(model: &OpenModel) -> BTreeMap<&'static str, Share> {
    let mut shares: BTreeMap<&'static str, Share> = BTreeMap::new();
    for tensor in model.weights().tensors() {
        let share = shares.entry(tensor.data_type.name()).or_default();
        share.tensors += 1;
        share.values += tensor.num_values() as u64;
        share.bytes += tensor.num_bytes() as u64;
    }
    shares
}
