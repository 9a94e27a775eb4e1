//! `justapi infer embed`: texts to vectors of length 1, the mean of their states.

use std::fmt::Write as _;
use std::io::{self, BufRead as _, IsTerminal as _};
use std::path::Path;

use justapi_inference::SpecialTokens;
use serde_json::{Value, json};

use super::generate::block_on;
use crate::commands::model::refused;
use crate::error::{CliError, Code};
use crate::infer_args::InferEmbed;
use crate::ui::{Ui, document};

/// Embeds texts.
///
/// # Errors
/// As [`super::infer`].
pub(super) fn embed(
    ui: &Ui,
    arguments: &InferEmbed,
    explicit: Option<&Path>,
) -> Result<u8, CliError> {
    let texts = texts(&arguments.text)?;
    let (located, files) = super::open(ui, &arguments.model, explicit)?;
    let running = super::start(ui, &located, &files, &arguments.model)?;
    let mut entries: Vec<Value> = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        let tokens = running.tokenizer.encode_prompt(text, SpecialTokens::AsText);
        let num_tokens = tokens.len();
        let state = block_on(running.engine.embed(tokens)).map_err(|refusal| refused(&refusal))?;
        let vector = normalized(&state);
        if ui.is_json() {
            entries.push(json!({"index": index, "tokens": num_tokens, "embedding": vector}));
        } else {
            let mut line = String::new();
            for (index, number) in vector.iter().enumerate() {
                let space = if index == 0 { "" } else { " " };
                write!(line, "{space}{number}").expect("strings can always grow");
            }
            ui.data(&(line + "\n"))?;
        }
    }
    if ui.is_json() {
        document(&json!({"v": 1, "model": located.name, "embeddings": entries}))?;
    }
    Ok(0)
}

/// The texts that were given, or the lines that come in.
fn texts(given: &[String]) -> Result<Vec<String>, CliError> {
    let texts = if !given.is_empty() {
        given.to_vec()
    } else if io::stdin().is_terminal() {
        Vec::new()
    } else {
        let lines = io::stdin().lock().lines();
        lines.collect::<Result<_, _>>().map_err(|error| {
            CliError::new(Code::PromptMissing, "cannot read texts from standard input")
                .with_cause(&error)
        })?
    };
    if texts.is_empty() || texts.iter().any(String::is_empty) {
        let error = CliError::new(Code::PromptMissing, "there is no text, or an empty one");
        return Err(error.with_hint("add texts in quotes, or pipe them in, one a line"));
    }
    Ok(texts)
}

fn normalized(vector: &[f32]) -> Vec<f32> {
    let square: f64 = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
    let length = square.sqrt();
    if length == 0.0 {
        return vector.to_vec();
    }
    (vector.iter())
        .map(|x| (f64::from(*x) / length) as f32)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_have_length_one() {
        assert_eq!(normalized(&[3.0, 4.0]), [0.6, 0.8]);
        assert_eq!(normalized(&[0.0, 0.0]), [0.0, 0.0]);
    }
}
