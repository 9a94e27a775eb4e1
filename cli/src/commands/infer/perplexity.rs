//! `justapi infer perplexity`: how well a model foretells a text.
//!
//! The text is cut into windows that do not overlap; each token but the first of
//! a window counts with what the model gave it, seeing the window up to it. The
//! result is e to the mean of the negative logarithms.

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use justapi_inference::{EngineEvent, SpecialTokens, TokenId};
use serde_json::json;

use super::generate::{block_on, request};
use crate::commands::model::{RunningModel, refused};
use crate::error::{CliError, Code};
use crate::infer_args::{InferPerplexity, SamplingFlags};
use crate::ui::{Ui, document};

/// Sums over the tokens that count.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct Sums {
    num_tokens: u64,
    sum: f64,
    sum_of_squares: f64,
}

/// Measures a text.
///
/// # Errors
/// As [`super::infer`].
pub(super) fn perplexity(
    ui: &Ui,
    arguments: &InferPerplexity,
    explicit: Option<&Path>,
) -> Result<u8, CliError> {
    let text = read(&arguments.file)?;
    let (located, files) = super::open(ui, &arguments.model, explicit)?;
    let running = super::start(ui, &located, &files, &arguments.model)?;
    let tokenizer = &running.tokenizer;
    let tokens = tokenizer.encode(&text, SpecialTokens::AsText);
    // One place is for the token that the engine always makes.
    let longest = running.engine.max_model_len().saturating_sub(1);
    let window = (arguments.window as usize).min(longest).max(2);
    let first = tokenizer.bos().filter(|_| tokenizer.adds_bos());
    let mut sums = Sums::default();
    for part in tokens.chunks(window - usize::from(first.is_some())) {
        let prompt: Vec<TokenId> = first.into_iter().chain(part.iter().copied()).collect();
        if prompt.len() > 1 {
            for logprob in logprobs(&running, prompt)? {
                sums.add(-f64::from(logprob));
            }
        }
    }
    let Some((value, error)) = sums.perplexity() else {
        let message = "the text is too short: at least two tokens are needed";
        return Err(CliError::new(Code::PromptMissing, message));
    };
    if ui.is_json() {
        document(&json!({
            "v": 1,
            "model": located.name,
            "perplexity": value,
            "standard_error": error,
            "tokens": sums.num_tokens,
            "window": window,
        }))?;
    } else {
        let tokens = sums.num_tokens;
        ui.data(&format!(
            "perplexity {value:.4} ± {error:.4}   {tokens} tokens in windows of {window}\n"
        ))?;
    }
    Ok(0)
}

/// Log-probabilities of the tokens of a window behind its first.
fn logprobs(running: &RunningModel, prompt: Vec<TokenId>) -> Result<Vec<f32>, CliError> {
    let sampling = super::sampling(&SamplingFlags::greedy(1), 0, prompt.len(), 0);
    let mut request = request(prompt, sampling);
    request.prompt_logprobs = Some(0);
    block_on(async {
        let submitted = running.engine.submit(request).await;
        let mut generation = submitted.map_err(|refusal| refused(&refusal))?;
        while let Some(event) = generation.next().await {
            if let EngineEvent::Prompt { logprobs } = event {
                let known = logprobs.into_iter().flatten();
                return Ok(known.map(|token| token.logprob).collect());
            }
        }
        Err(CliError::new(
            Code::Internal,
            "the engine failed at a window",
        ))
    })
}

fn read(path: &Path) -> Result<String, CliError> {
    let text = if path == Path::new("-") {
        let mut text = String::new();
        io::stdin().lock().read_to_string(&mut text).map(|_| text)
    } else {
        fs::read_to_string(path)
    };
    text.map_err(|error| {
        let message = format!("cannot read {}", path.display());
        CliError::new(Code::PromptMissing, message).with_cause(&error)
    })
}

impl Sums {
    fn add(&mut self, loss: f64) {
        self.num_tokens += 1;
        self.sum += loss;
        self.sum_of_squares += loss * loss;
    }

    /// The perplexity and its standard error; `None` without tokens.
    fn perplexity(self) -> Option<(f64, f64)> {
        if self.num_tokens == 0 {
            return None;
        }
        let count = self.num_tokens as f64;
        let mean = self.sum / count;
        let variance = (self.sum_of_squares / count - mean * mean).max(0.0);
        let value = mean.exp();
        // By the delta method: the derivative of e^x is e^x.
        Some((value, value * (variance / (count - 1.0).max(1.0)).sqrt()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perplexity_is_how_many_tokens_were_likely() {
        assert_eq!(Sums::default().perplexity(), None);
        let mut sums = Sums::default();
        for _ in 0..10 {
            sums.add(8_f64.ln());
        }
        let (value, error) = sums.perplexity().expect("tokens");
        assert!(
            (value - 8.0).abs() < 1e-9 && error < 1e-6,
            "{value} {error}"
        );
        sums.add(2_f64.ln());
        let (value, error) = sums.perplexity().expect("tokens");
        assert!(value < 8.0 && error > 0.0, "{value} {error}");
    }
}
