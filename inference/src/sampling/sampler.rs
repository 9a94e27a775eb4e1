//! The transforms of a row of logits, in order: penalties, bias, ban of last
//! tokens; log-probabilities are read here; temperature, top-k, top-p, min-p,
//! and one draw. Linear in the vocabulary, and nothing is allocated for a token
//! unless log-probabilities are asked for.

use super::exponential::{CHUNK_LEN, exp, log_sum_exp, max, sum};
use super::params::SamplingParams;
use super::philox::uniform;
use super::selection::{Candidate, select_greatest, select_nucleus};
use crate::engine::TokenLogprobs;
use crate::ids::TokenId;

/// Bins for each e that a weight is smaller than the greatest; the last bin holds all below e^-64.
const BINS_PER_UNIT: f32 = 16.0;
const NUM_BINS: usize = 1024;

/// What the choice of a token may depend on besides logits and parameters.
#[derive(Clone, Copy, Debug)]
pub struct SamplingContext<'a> {
    /// Prompt and answer so far. The token that is chosen stands at position `tokens.len()`.
    pub tokens: &'a [TokenId],
    /// Of these, those of the prompt.
    pub num_prompt_tokens: usize,
    /// Tokens that end a text.
    pub eos_token_ids: &'a [TokenId],
}

/// A token that was chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The token.
    pub token: TokenId,
    /// Where asked for.
    pub logprobs: Option<TokenLogprobs>,
}

/// No token can be chosen from a row of logits.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SamplingFailure {
    /// The model has computed something that is not a number, or is +∞.
    #[error("a logit is not a finite number")]
    NotFinite,
    /// Each token is forbidden.
    #[error("no token is allowed")]
    NoToken,
}

/// Chooses tokens. Holds nothing but memory that is used again.
#[derive(Debug, Default)]
pub struct Sampler {
    /// Zero between calls. (`vocab_size`)
    counts: Vec<u32>,
    /// (`vocab_size`)
    weights: Vec<f32>,
    candidates: Vec<Candidate>,
    /// Weights of logits that lie about as far below the greatest. (`NUM_BINS`)
    bins: Vec<f64>,
}

impl Sampler {
    /// Makes a sampler; its memory grows to the vocabulary at first use.
    pub fn new() -> Self {
        Self::default()
    }

    /// Chooses the token behind `context.tokens`, and changes the logits on the way. (`vocab_size`)
    ///
    /// # Errors
    /// [`SamplingFailure`] if there is nothing to choose from.
    pub fn sample(
        &mut self,
        logits: &mut [f32],
        context: &SamplingContext<'_>,
        params: &SamplingParams,
    ) -> Result<Sample, SamplingFailure> {
        self.penalize(logits, context, params);
        for &(token, bias) in &params.logit_bias {
            if let Some(logit) = logits.get_mut(token as usize) {
                *logit += bias;
            }
        }
        ban_last_tokens(logits, context, params);
        let max = find_max(logits)?;
        let token = if params.temperature > 0.0 {
            let number = uniform(params.seed, context.tokens.len() as u64);
            self.draw(logits, max, params, number)
        } else {
            first_token(logits, |logit| logit >= max)
        };
        let logprobs = params
            .logprobs
            .map(|num_top| self.read_logprobs(logits, max, token, num_top));
        Ok(Sample { token, logprobs })
    }

    /// Reads log-probabilities of a token that is known, from logits as the model gave them. (`vocab_size`)
    ///
    /// # Errors
    /// [`SamplingFailure`] if the logits are no distribution.
    ///
    /// # Panics
    /// If the token is outside the vocabulary.
    pub fn logprobs(
        &mut self,
        logits: &[f32],
        token: TokenId,
        num_top: u32,
    ) -> Result<TokenLogprobs, SamplingFailure> {
        let max = find_max(logits)?;
        Ok(self.read_logprobs(logits, max, token, num_top))
    }

    /// The top list holds no token of probability 0, and is shorter then.
    fn read_logprobs(
        &mut self,
        logits: &[f32],
        max: f32,
        token: TokenId,
        num_top: u32,
    ) -> TokenLogprobs {
        let log_sum = log_sum_exp(logits, max);
        let logprob = |logit: f32| (f64::from(logit) - f64::from(max) - log_sum) as f32;
        select_greatest(logits, num_top as usize, &mut self.candidates);
        TokenLogprobs {
            token,
            logprob: logprob(logits[token as usize]),
            top: self
                .candidates
                .iter()
                .map(|candidate| (candidate.token, logprob(candidate.logit)))
                .collect(),
        }
    }

    /// Repetition as in CTRL (Keskar et al. 2019), over prompt and answer;
    /// frequency and presence as in OpenAI's API, over the answer.
    fn penalize(
        &mut self,
        logits: &mut [f32],
        context: &SamplingContext<'_>,
        params: &SamplingParams,
    ) {
        self.counts.resize(logits.len(), 0);
        let repetition = params.repetition_penalty;
        if (repetition - 1.0).abs() > 0.0 {
            for &token in context.tokens {
                let Some(count) = self.counts.get_mut(token as usize) else {
                    continue;
                };
                if *count == 0 {
                    *count = 1;
                    let logit = &mut logits[token as usize];
                    *logit = if *logit > 0.0 {
                        *logit / repetition
                    } else {
                        *logit * repetition
                    };
                }
            }
            self.forget(context.tokens);
        }
        if params.frequency_penalty != 0.0 || params.presence_penalty != 0.0 {
            let answer = &context.tokens[context.num_prompt_tokens..];
            for &token in answer {
                if let Some(count) = self.counts.get_mut(token as usize) {
                    *count += 1;
                }
            }
            for &token in answer {
                let Some(count) = self.counts.get_mut(token as usize) else {
                    continue;
                };
                if *count > 0 {
                    logits[token as usize] -=
                        *count as f32 * params.frequency_penalty + params.presence_penalty;
                    *count = 0;
                }
            }
        }
    }

    fn forget(&mut self, tokens: &[TokenId]) {
        for &token in tokens {
            if let Some(count) = self.counts.get_mut(token as usize) {
                *count = 0;
            }
        }
    }

    /// Draws by the inverse of the cumulative distribution, in order of tokens.
    fn draw(&mut self, logits: &[f32], max: f32, params: &SamplingParams, number: f64) -> TokenId {
        self.weights.clear();
        let weight = |&logit: &f32| exp((logit - max) / params.temperature);
        self.weights.extend(logits.iter().map(weight));
        if let Some(last) = self.truncate(logits, max, params) {
            self.drop_behind(logits, last);
        }
        if params.min_p > 0.0 {
            // The greatest weight is 1.
            for weight in &mut self.weights {
                *weight = if *weight >= params.min_p {
                    *weight
                } else {
                    0.0
                };
            }
        }
        let total: f64 = self.weights.chunks(CHUNK_LEN).map(sum).sum();
        pick(&self.weights, number * total)
    }

    /// Returns the last token that top-k and top-p leave, if they take any.
    /// The edge of the nucleus is sought in one bin of a histogram, so that a flat row is not sorted.
    fn truncate(&mut self, logits: &[f32], max: f32, params: &SamplingParams) -> Option<Candidate> {
        let top_k = params.top_k as usize;
        let is_top_k = top_k > 0 && top_k < logits.len();
        if is_top_k {
            select_greatest(logits, top_k, &mut self.candidates);
        }
        if params.top_p >= 1.0 {
            return self.candidates.last().copied().filter(|_| is_top_k);
        }
        let top_p = f64::from(params.top_p);
        if is_top_k {
            for candidate in &mut self.candidates {
                candidate.weight = self.weights[candidate.token as usize];
            }
            let total: f64 = self.candidates.iter().map(|c| f64::from(c.weight)).sum();
            return select_nucleus(&mut self.candidates, top_p * total);
        }
        let scale = BINS_PER_UNIT / params.temperature;
        // Monotone, and 0 for the greatest even if the scale is infinite.
        let bin_of = |logit: f32| (((max - logit) * scale) as usize).min(NUM_BINS - 1);
        self.bins.clear();
        self.bins.resize(NUM_BINS, 0.0);
        for (&weight, &logit) in self.weights.iter().zip(logits) {
            self.bins[bin_of(logit)] += f64::from(weight);
        }
        let mut target = top_p * self.bins.iter().sum::<f64>();
        let mut last_bin = 0;
        for (bin, &sum) in self.bins.iter().enumerate() {
            if sum > 0.0 {
                last_bin = bin;
            }
            if sum >= target {
                break;
            }
            target -= sum;
        }
        self.candidates.clear();
        for (token, (&weight, &logit)) in self.weights.iter().zip(logits).enumerate() {
            if bin_of(logit) == last_bin {
                self.candidates.push(Candidate {
                    logit,
                    token: token as TokenId,
                    weight,
                });
            }
        }
        select_nucleus(&mut self.candidates, target)
    }

    /// Takes the weight from all that come behind a token in the order of logits.
    fn drop_behind(&mut self, logits: &[f32], last: Candidate) {
        for (weight, &logit) in self.weights.iter_mut().zip(logits) {
            *weight = if logit >= last.logit { *weight } else { 0.0 };
        }
        let behind = last.token as usize + 1;
        for (weight, &logit) in self.weights[behind..].iter_mut().zip(&logits[behind..]) {
            *weight = if logit > last.logit { *weight } else { 0.0 };
        }
    }
}

/// Forbids what would end an answer that is too short.
fn ban_last_tokens(logits: &mut [f32], context: &SamplingContext<'_>, params: &SamplingParams) {
    let num_generated = context.tokens.len() - context.num_prompt_tokens;
    if num_generated >= params.min_tokens as usize {
        return;
    }
    let eos_token_ids = if params.ignore_eos {
        &[]
    } else {
        context.eos_token_ids
    };
    for &token in eos_token_ids.iter().chain(&params.stop_token_ids) {
        if let Some(logit) = logits.get_mut(token as usize) {
            *logit = f32::NEG_INFINITY;
        }
    }
}

fn find_max(logits: &[f32]) -> Result<f32, SamplingFailure> {
    match max(logits) {
        None => Err(SamplingFailure::NotFinite),
        Some(f32::NEG_INFINITY) => Err(SamplingFailure::NoToken),
        Some(max) => Ok(max),
    }
}

fn first_token(row: &[f32], predicate: impl Fn(f32) -> bool) -> TokenId {
    let index = row.iter().position(|&x| predicate(x));
    index.expect("the greatest is one of them") as TokenId
}

/// Returns the first token at which the sum of weights is above `target`.
fn pick(weights: &[f32], target: f64) -> TokenId {
    let mut total = 0.0;
    let mut last = None;
    for (index, chunk) in weights.chunks(CHUNK_LEN).enumerate() {
        let chunk_sum = sum(chunk);
        if chunk_sum == 0.0 {
            continue;
        }
        last = Some(index);
        if total + chunk_sum > target {
            break;
        }
        total += chunk_sum;
    }
    let start = last.expect("the greatest weighs 1") * CHUNK_LEN;
    let mut token = start;
    for (index, &weight) in weights[start..].iter().take(CHUNK_LEN).enumerate() {
        if weight > 0.0 {
            // Sums of other orders differ in the last place: the last one stands for the rest.
            token = start + index;
            total += f64::from(weight);
            if total > target {
                break;
            }
        }
    }
    token as TokenId
}
