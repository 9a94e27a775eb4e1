//! `justapi infer bench`: tokens a second of prompts and of answers.
//!
//! What is measured is the engine as `run` uses it: one sequence, no cached
//! prefix, tokens counted by their numbers. The first run of each length is not
//! counted; of the others there are the median and both ends.

use std::fs;
use std::path::Path;
use std::time::Instant;

use justapi_inference::{EngineEvent, SamplingParams, TokenId};
use serde_json::{Value, json};

use super::generate::{block_on, request};
use crate::commands::model::{RunningModel, refused};
use crate::error::{CliError, Code};
use crate::infer_args::InferBench;
use crate::ui::{Ui, document, heading};

/// What a run took.
#[derive(Debug, Clone, Copy)]
struct Measured {
    /// Tokens a second until the first of the answer.
    prompt_rate: f64,
    /// Tokens a second behind it.
    generation_rate: f64,
    /// Seconds to the first token.
    ttft: f64,
}

/// Median and ends of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Spread {
    median: f64,
    least: f64,
    most: f64,
}

/// Measures.
///
/// # Errors
/// As [`super::infer`].
pub(super) fn bench(
    ui: &Ui,
    arguments: &InferBench,
    explicit: Option<&Path>,
) -> Result<u8, CliError> {
    let (located, files) = super::open(ui, &arguments.model, explicit)?;
    let running = super::start(ui, &located, &files, &arguments.model)?;
    let load_before = load_average();
    let mut rows = Vec::new();
    for &length in &arguments.prompt_tokens {
        let mut runs = Vec::new();
        for repeat in 0..=arguments.repeats {
            let prompt = random_prompt(&running, length, repeat);
            let measured = measure(&running, prompt, arguments.generated_tokens)?;
            if repeat > 0 {
                runs.push(measured);
            }
        }
        rows.push((length, runs));
    }
    if ui.is_json() {
        let cells: Vec<Value> = rows
            .iter()
            .map(|(length, runs)| cell(*length, arguments.generated_tokens, runs))
            .collect();
        return document(&json!({
            "v": 1,
            "model": located.name,
            "path": located.path.display().to_string(),
            "architecture": files.config().architecture,
            "weight_bytes": files.weight_bytes(),
            "threads": running.num_threads,
            "kv_type": format!("{:?}", super::kv_type(arguments.model.kv_type)).to_lowercase(),
            "version": env!("CARGO_PKG_VERSION"),
            "debug": cfg!(debug_assertions),
            "load_average_before": load_before,
            "repeats": arguments.repeats,
            "cells": cells,
        }))
        .map(|()| 0);
    }
    if cfg!(debug_assertions) {
        ui.note("this is a debug build: its speed says nothing of a release\n");
    }
    let title = format!(
        "{:<24} {:>10}   {:>10} {:>19}",
        "median of runs", "tokens/s", "least", "most"
    );
    let mut text = format!("{}\n", heading(title.trim_end()));
    for (length, runs) in &rows {
        let prompt = spread(runs, |run| run.prompt_rate);
        let generation = spread(runs, |run| run.generation_rate);
        text += &row(&format!("prompt of {length}"), prompt);
        text += &row(
            &format!("answer of {}", arguments.generated_tokens),
            generation,
        );
    }
    ui.data(&text)?;
    Ok(0)
}

fn row(label: &str, spread: Spread) -> String {
    format!(
        "{label:<24} {:>10.1}   {:>10.1} {:>19.1}\n",
        spread.median, spread.least, spread.most
    )
}

fn cell(length: u32, generated: u32, runs: &[Measured]) -> Value {
    let figure = |of: fn(&Measured) -> f64| {
        let Spread {
            median,
            least,
            most,
        } = spread(runs, of);
        json!({
            "median": median,
            "min": least,
            "max": most,
            "runs": runs.iter().map(of).collect::<Vec<_>>(),
        })
    };
    json!({
        "prompt_tokens": length,
        "generated_tokens": generated,
        "prompt_tokens_per_second": figure(|run| run.prompt_rate),
        "generated_tokens_per_second": figure(|run| run.generation_rate),
        "ttft_seconds": figure(|run| run.ttft),
    })
}

fn spread(runs: &[Measured], of: fn(&Measured) -> f64) -> Spread {
    let mut figures: Vec<f64> = runs.iter().map(of).collect();
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    let median = if figures.len().is_multiple_of(2) {
        f64::midpoint(figures[middle - 1], figures[middle])
    } else {
        figures[middle]
    };
    Spread {
        median,
        least: figures[0],
        most: figures[figures.len() - 1],
    }
}

/// Tokens that no earlier prompt began with, so that nothing is cached.
fn random_prompt(running: &RunningModel, length: u32, repeat: u32) -> Vec<TokenId> {
    let vocab_size = running.config.vocab_size as u64;
    // A step of SplitMix64 (Steele, Lea, Flood 2014) for each token.
    let mut state = u64::from(length) << 32 | u64::from(repeat);
    let mut next = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    (0..length)
        .map(|_| (next() % vocab_size) as TokenId)
        .collect()
}

fn measure(
    running: &RunningModel,
    prompt: Vec<TokenId>,
    generated: u32,
) -> Result<Measured, CliError> {
    let length = prompt.len();
    let sampling = SamplingParams {
        temperature: 0.0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        repetition_penalty: 1.0,
        frequency_penalty: 0.0,
        presence_penalty: 0.0,
        logit_bias: Vec::new(),
        seed: 0,
        stop: Vec::new(),
        stop_token_ids: Vec::new(),
        ignore_eos: true,
        min_tokens: 0,
        max_tokens: generated,
        logprobs: None,
    };
    block_on(async {
        let begun = Instant::now();
        let submitted = running.engine.submit(request(prompt, sampling)).await;
        let mut generation = submitted.map_err(|refusal| refused(&refusal))?;
        let mut at = Vec::with_capacity(generated as usize);
        while let Some(event) = generation.next().await {
            if let EngineEvent::Token { .. } = event {
                at.push(begun.elapsed().as_secs_f64());
            }
        }
        if at.len() != generated as usize {
            let message = format!("{} tokens came, not {generated}", at.len());
            return Err(CliError::new(Code::Internal, message));
        }
        let (first, last) = (at[0], at[at.len() - 1]);
        Ok(Measured {
            prompt_rate: length as f64 / first,
            generation_rate: f64::from(generated - 1) / (last - first),
            ttft: first,
        })
    })
}

/// How many processes wanted to run in the last minute, where the system says.
fn load_average() -> Option<f64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_the_middle_and_both_ends() {
        let runs = |figures: &[f64]| -> Vec<Measured> {
            let of = |&figure: &f64| Measured {
                prompt_rate: figure,
                generation_rate: 0.0,
                ttft: 0.0,
            };
            figures.iter().map(of).collect()
        };
        for (figures, expected) in [
            (&[3.0, 1.0, 2.0][..], (2.0, 1.0, 3.0)),
            (&[4.0, 1.0, 2.0, 3.0], (2.5, 1.0, 4.0)),
            (&[7.0], (7.0, 7.0, 7.0)),
        ] {
            let found = spread(&runs(figures), |run| run.prompt_rate);
            assert_eq!((found.median, found.least, found.most), expected);
        }
    }
}
