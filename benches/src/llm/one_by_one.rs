//! Scenarios that ask one request at a time: prefill, decode, prefix reuse.

use super::harness::Harness;
use super::prompt::{Prompt, PromptWriter};
use super::report::{Group, PrefixCache, PrefixSample, PrefixSummary};
use super::sample::{Sample, Summary};
use crate::Error;

/// Tokens generated after a prompt whose reading is measured: a first one, and some to be sure
/// that it can be shown as text.
const PREFILL_OUTPUT_TOKENS: u64 = 8;

/// Tokens of the prompt ahead of a long answer.
const DECODE_PROMPT_TOKENS: u64 = 256;

/// Tokens of the warm-up.
const WARM_UP_PROMPT_TOKENS: u64 = 256;
const WARM_UP_OUTPUT_TOKENS: u64 = 32;

/// Requests that are in no summary.
pub(super) async fn warm_up(
    harness: &Harness<'_>,
    writer: &mut PromptWriter<'_>,
) -> Result<Vec<Sample>, Error> {
    let count = harness.plan.warm_up_runs;
    let (prompt, output) = (WARM_UP_PROMPT_TOKENS, WARM_UP_OUTPUT_TOKENS);
    ask_repeatedly(harness, writer, (prompt, output), count).await
}

/// Fresh prompts of one length.
pub(super) async fn prefill(
    harness: &Harness<'_>,
    writer: &mut PromptWriter<'_>,
    target: u64,
) -> Result<Group, Error> {
    group(harness, writer, target, PREFILL_OUTPUT_TOKENS).await
}

/// Long answers.
pub(super) async fn decode(
    harness: &Harness<'_>,
    writer: &mut PromptWriter<'_>,
) -> Result<Group, Error> {
    let output = harness.plan.decode_tokens;
    group(harness, writer, DECODE_PROMPT_TOKENS, output).await
}

async fn group(
    harness: &Harness<'_>,
    writer: &mut PromptWriter<'_>,
    target: u64,
    max_tokens: u64,
) -> Result<Group, Error> {
    let skipped = harness.too_long(target, max_tokens);
    let count = if skipped.is_some() {
        0
    } else {
        harness.plan.repetitions
    };
    let samples = ask_repeatedly(harness, writer, (target, max_tokens), count).await?;
    Ok(Group {
        target_prompt_tokens: target,
        max_tokens,
        skipped,
        summary: Summary::of(&samples),
        samples,
    })
}

async fn ask_repeatedly(
    harness: &Harness<'_>,
    writer: &mut PromptWriter<'_>,
    (target, max_tokens): (u64, u64),
    count: u32,
) -> Result<Vec<Sample>, Error> {
    let mut samples = Vec::new();
    for repetition in 0..count {
        let prompt = match writer.exact(target).await {
            // What was measured until then is kept.
            Err(Error::Interrupted) => break,
            prompt => prompt?,
        };
        let attempt = harness.ask(&prompt.text, max_tokens).await;
        samples.push(harness.sample(repetition, &(Some(target), attempt)));
    }
    Ok(samples)
}

/// A new prompt, the same again, and the same with a new suffix.
pub(super) async fn prefix(
    harness: &Harness<'_>,
    writer: &mut PromptWriter<'_>,
) -> Result<PrefixCache, Error> {
    let (prefix, suffix) = (harness.plan.prefix_tokens, harness.plan.suffix_tokens);
    let skipped = harness.too_long(prefix + suffix, PREFILL_OUTPUT_TOKENS);
    let count = if skipped.is_some() {
        0
    } else {
        harness.plan.repetitions
    };
    let mut samples = Vec::new();
    for repetition in 0..count {
        let prompts = match pair(writer, prefix, suffix).await {
            Err(Error::Interrupted) => break,
            prompts => prompts?,
        };
        let (first, second) = prompts;
        let mut asked = Vec::with_capacity(3);
        let prompts = [
            (&first, prefix),
            (&first, prefix),
            (&second, prefix + suffix),
        ];
        for (prompt, target) in prompts {
            if harness.client.is_stopped() {
                break;
            }
            let attempt = harness.ask(&prompt.text, PREFILL_OUTPUT_TOKENS).await;
            asked.push(harness.sample(repetition, &(Some(target), attempt)));
        }
        if asked.is_empty() {
            break;
        }
        let mut asked = asked.into_iter();
        samples.push(PrefixSample {
            repetition,
            fresh: asked.next(),
            identical: asked.next(),
            small_suffix: asked.next(),
        });
    }
    let over =
        |kind: fn(&PrefixSample) -> Option<&Sample>| Summary::of(samples.iter().filter_map(kind));
    Ok(PrefixCache {
        prefix_tokens: prefix,
        suffix_tokens: suffix,
        skipped,
        summary: PrefixSummary {
            fresh: over(|sample| sample.fresh.as_ref()),
            identical: over(|sample| sample.identical.as_ref()),
            small_suffix: over(|sample| sample.small_suffix.as_ref()),
        },
        samples,
    })
}

/// A new prompt, and the same with a new suffix.
async fn pair(
    writer: &mut PromptWriter<'_>,
    prefix: u64,
    suffix: u64,
) -> Result<(Prompt, Prompt), Error> {
    let first = writer.exact(prefix).await?;
    let second = writer.extend(&first.text, first.tokens + suffix).await?;
    Ok((first, second))
}

/// What a server means when it does not mention cached tokens: asks the same prompt twice.
///
/// The name of the convention, and the count that is meant.
pub(super) async fn cache_reporting(
    harness: &Harness<'_>,
    writer: &mut PromptWriter<'_>,
) -> Result<(&'static str, Option<u64>), Error> {
    let prompt = writer.exact(WARM_UP_PROMPT_TOKENS).await?;
    let mut said = Vec::with_capacity(2);
    for _ in 0..2 {
        let attempt = harness.ask(&prompt.text, PREFILL_OUTPUT_TOKENS).await;
        said.push(
            attempt
                .completion
                .usage
                .and_then(|usage| usage.cached_tokens()),
        );
    }
    Ok(match said[..] {
        [Some(_), Some(_)] => ("always", None),
        [None, Some(cached)] if cached > 0 => ("omits_zero", Some(0)),
        _ => ("never", None),
    })
}
