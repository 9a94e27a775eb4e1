//! Two models that people use, against llama.cpp and against the reference.

use crate::comparison::{compare, greatest, log_softmax, report};
use crate::golden::{self, Continuation, EmbeddingsGolden, ModelGolden, TextGolden, UNIT};
use crate::reference;
use crate::runner::{Runner, to_f64};

/// What the engine says of the text, in the terms of the golden data.
#[derive(Debug, Default)]
struct Measured {
    /// Greatest difference of a log-probability that the golden data has.
    max_abs: f64,
    /// Root of the mean square of the same.
    rms: f64,
    /// Mean of the Kullback-Leibler divergence of the likeliest and of all others as one.
    mean_kl: f64,
    /// Greatest of the same.
    max_kl: f64,
    /// Share of positions with the same likeliest token.
    top1: f64,
    /// The largest gap, between the two likeliest of llama.cpp, where the engine has another.
    widest_flip: f64,
    /// Relative difference of perplexities.
    perplexity: f64,
}

fn measure(runner: &mut Runner, golden: &TextGolden, ids: &[u32]) -> Measured {
    let mut measured = Measured::default();
    let (mut squares, mut count) = (0.0, 0.0);
    let (mut total, mut same) = (0.0, 0);
    let mut positions = golden.positions.iter().peekable();
    runner.run(ids, 256, |position, logits| {
        let logits: Vec<f64> = logits.iter().copied().map(f64::from).collect();
        let row = log_softmax(&logits);
        let mut differ = |logprob: f64, expected: i64| {
            let difference = (logprob + expected as f64 * UNIT).abs();
            measured.max_abs = measured.max_abs.max(difference);
            squares += difference * difference;
            count += 1.0;
        };
        if let Some(&next) = golden.ids.get(position + 1) {
            total += row[next as usize];
            differ(row[next as usize], golden.logprobs[position]);
        }
        if let Some(expected) = positions.next_if(|expected| expected.position == position) {
            for (&id, &logprob) in expected.top_ids.iter().zip(&expected.top_logprobs) {
                differ(row[id as usize], logprob);
            }
            for (&id, &logprob) in golden.spread_ids.iter().zip(&expected.spread_logprobs) {
                differ(row[id as usize], logprob);
            }
            let kl = divergence(&expected.top_ids, &expected.top_logprobs, &row);
            measured.mean_kl += kl / golden.positions.len() as f64;
            measured.max_kl = measured.max_kl.max(kl);
        }
        if greatest(&logits) == golden.best_ids[position] as usize {
            same += 1;
        } else {
            let gap = golden.best_gaps[position] as f64 * UNIT;
            measured.widest_flip = measured.widest_flip.max(gap);
        }
    });
    measured.rms = f64::sqrt(squares / count);
    measured.top1 = f64::from(same) / golden.ids.len() as f64;
    let perplexity = (-total / golden.logprobs.len() as f64).exp();
    measured.perplexity = (perplexity / golden.perplexity - 1.0).abs();
    measured
}

/// Divergence of the likeliest tokens and of all others as one: never above that of all.
fn divergence(ids: &[u32], logprobs: &[i64], row: &[f64]) -> f64 {
    let (mut divergence, mut p_sum, mut q_sum) = (0.0, 0.0, 0.0);
    for (&id, &logprob) in ids.iter().zip(logprobs) {
        let (p, q) = (-logprob as f64 * UNIT, row[id as usize]);
        divergence += p.exp() * (p - q);
        p_sum += p.exp();
        q_sum += q.exp();
    }
    let (p_rest, q_rest) = (1.0 - p_sum, 1.0 - q_sum);
    // What is left of a sum of rounded numbers may be nothing at all.
    if p_rest > 1e-4 && q_rest > 1e-4 {
        divergence += p_rest * (p_rest / q_rest).ln();
    }
    divergence
}

/// Both engines round what meets quantised weights to eight bits, each in its way. The limits are
/// some 1.5 times what was measured; llama.cpp itself is as far from what
/// the weights mean: divergences of 3.4e-3 and 5.8e-3 from its own result with weights in f32.
fn is_like_llama_cpp(measured: &Measured) -> bool {
    measured.max_abs <= 3.0
        && measured.rms <= 0.3
        && measured.mean_kl <= 7e-3
        && measured.max_kl <= 0.1
        && measured.top1 >= 0.94
        && measured.widest_flip < 1.2
        && measured.perplexity <= 0.012
}

fn check_text(name: &str) {
    let golden: ModelGolden = golden::read(name);
    let ids = &golden.text.ids;
    let mut runner = Runner::open(&golden.model.path(), 1, ids.len());
    let measured = measure(&mut runner, &golden.text, ids);
    report(name, &format!("{measured:?}"));
    assert!(is_like_llama_cpp(&measured), "{name}: {measured:?}");
}

#[test]
fn smollm2_reads_a_text_as_llama_cpp_does() {
    check_text("smollm2.json");
}

#[test]
fn gemma3_reads_a_text_as_llama_cpp_does() {
    check_text("gemma3.json");
}

/// A first token that is left out, or a window that is off by one, is seen in the same comparison.
#[test]
fn gemma3_that_is_wrong_is_not_like_llama_cpp() {
    let golden: ModelGolden = golden::read("gemma3.json");
    let path = golden.model.path();
    let ids = &golden.text.ids;
    let right = Runner::open(&path, 1, 16).config().clone();
    let mut without_first = ids.clone();
    without_first[0] = without_first[1];
    let mut short = right.clone();
    short.sliding_window = short.sliding_window.map(|window| window / 2);
    let mut swapped = right.clone();
    swapped.local_rope = None;
    for (detail, config, ids) in [
        ("first token", &right, &without_first),
        ("window", &short, ids),
        ("local rotation", &swapped, ids),
    ] {
        let mut runner = Runner::open_as(&path, config, ids.len());
        let measured = measure(&mut runner, &golden.text, ids);
        report(detail, &format!("{measured:?}"));
        assert!(!is_like_llama_cpp(&measured), "{detail}: {measured:?}");
    }
}

/// Continues all prompts at once, one token at a time, along the text that llama.cpp took. The
/// likeliest token may be another only where two are nearly as likely, and seldom.
fn check_continuations(name: &str) {
    let golden: ModelGolden = golden::read(name);
    let prompts = &golden.continuations;
    let max_tokens = 256;
    let mut runner = Runner::open(&golden.model.path(), prompts.len(), max_tokens);
    let mut gaps = Vec::new();
    let (mut max_abs, mut kl) = (0.0_f64, 0.0);
    let mut next: Vec<&[u32]> = prompts
        .iter()
        .map(|prompt| &prompt.prompt_ids[..])
        .collect();
    let num_steps = prompts[0].ids.len();
    for step in 0..num_steps {
        let mut last: Vec<Vec<f64>> = vec![Vec::new(); prompts.len()];
        runner.extend(&next, |text, _, logits| {
            last[text] = logits.iter().copied().map(f64::from).collect();
        });
        for (prompt, logits) in prompts.iter().zip(&last) {
            let row = log_softmax(logits);
            let (ids, logprobs) = (&prompt.top_ids[step], &prompt.top_logprobs[step]);
            for (&id, &logprob) in ids.iter().zip(logprobs) {
                max_abs = max_abs.max((row[id as usize] + logprob as f64 * UNIT).abs());
            }
            kl += divergence(ids, logprobs, &row);
            if greatest(&row) as u32 != prompt.ids[step] {
                gaps.push(gap(prompt, step, &row));
            }
        }
        next = prompts
            .iter()
            .map(|prompt| &prompt.ids[step..=step])
            .collect();
    }
    let count = (num_steps * prompts.len()) as f64;
    let (others, kl) = (gaps.len() as f64 / count, kl / count);
    let widest = gaps.iter().copied().fold(0.0, f64::max);
    let numbers = format!("others {others:.3}, widest {widest:.3}, max {max_abs:.3}, KL {kl:.2e}");
    report(name, &numbers);
    assert!(others <= 0.07 && widest <= 0.7, "{name}: {numbers}");
    assert!(max_abs <= 2.0 && kl <= 5e-3, "{name}: {numbers}");
}

/// The smaller of the gaps that the two engines see between their likeliest.
fn gap(prompt: &Continuation, step: usize, row: &[f64]) -> f64 {
    let logprobs = &prompt.top_logprobs[step];
    let theirs = (logprobs[1] - logprobs[0]) as f64 * UNIT;
    let best = greatest(row);
    let ours = row[best] - row[prompt.ids[step] as usize];
    ours.min(theirs)
}

#[test]
fn smollm2_continues_as_llama_cpp_does() {
    check_continuations("smollm2.json");
}

#[test]
fn gemma3_continues_as_llama_cpp_does() {
    check_continuations("gemma3.json");
}

/// Quantised weights are what they are; what meets them is rounded, and nothing else.
fn check_reference(name: &str) {
    let golden: ModelGolden = golden::read(name);
    let path = golden.model.path();
    let ids = &golden.text.ids[..64];
    let mut runner = Runner::open(&path, 1, ids.len());
    let expected = reference::logits(runner.config(), &reference::read(&path), ids);
    let difference = compare(&expected, &to_f64(&runner.logits(ids, 64)));
    report(name, &format!("against the reference: {difference}"));
    assert!(difference.cosine >= 0.99, "{name}: {difference}");
    assert!(difference.mean_kl <= 5e-3, "{name}: {difference}");
    assert!(difference.top1 >= 0.92, "{name}: {difference}");
}

#[test]
fn smollm2_agrees_with_the_reference() {
    check_reference("smollm2.json");
}

#[test]
fn gemma3_agrees_with_the_reference() {
    check_reference("gemma3.json");
}

#[test]
fn embeddings_are_those_of_llama_cpp() {
    let golden: EmbeddingsGolden = golden::read("embeddings.json");
    for model in &golden.models {
        let mut runner = Runner::open(&model.model.path(), 1, 64);
        for text in &model.texts {
            let state = runner.mean_state(&text.ids);
            let product = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
            let lengths =
                (product(&state, &state) * product(&text.embedding, &text.embedding)).sqrt();
            let cosine = product(&state, &text.embedding) / lengths;
            report("embedding", &format!("cosine {cosine:.6}"));
            assert!(cosine >= 0.999, "{:?}: cosine {cosine}", text.ids);
        }
    }
}
