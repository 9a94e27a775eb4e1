//! Each transform against its closed form, and draws against the distribution
//! that a plain sort of the whole row gives.

use proptest::prelude::*;

use super::*;
use crate::engine::Refusal;
use crate::ids::TokenId;

fn params() -> SamplingParams {
    SamplingParams {
        temperature: 1.0,
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
        ignore_eos: false,
        min_tokens: 0,
        max_tokens: 16,
        logprobs: None,
    }
}

fn greedy() -> SamplingParams {
    SamplingParams {
        temperature: 0.0,
        ..params()
    }
}

/// A context in which the prompt is the first token.
fn context(tokens: &[TokenId]) -> SamplingContext<'_> {
    SamplingContext {
        tokens,
        num_prompt_tokens: tokens.len().min(1),
        eos_token_ids: &[0],
    }
}

fn sample(logits: &[f32], tokens: &[TokenId], params: &SamplingParams) -> Sample {
    let sample = Sampler::new().sample(&mut logits.to_vec(), &context(tokens), params);
    sample.expect("there is a choice")
}

/// Returns the probabilities of a row by sorting it, in f64. (`vocab_size`)
fn distribution(logits: &[f32], params: &SamplingParams) -> Vec<f64> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let temperature = f64::from(params.temperature);
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    if params.top_k > 0 {
        order.truncate(params.top_k as usize);
    }
    let weight = |&i: &usize| (f64::from(logits[i] - max) / temperature).exp();
    let total: f64 = order.iter().map(weight).sum();
    let mut sum = 0.0;
    let mut nucleus = Vec::new();
    for index in order {
        if params.top_p < 1.0 && sum >= f64::from(params.top_p) * total {
            break;
        }
        sum += weight(&index);
        nucleus.push(index);
    }
    nucleus.retain(|index| weight(index) >= f64::from(params.min_p));
    let total: f64 = nucleus.iter().map(weight).sum();
    let mut probabilities = vec![0.0; logits.len()];
    for index in nucleus {
        probabilities[index] = weight(&index) / total;
    }
    probabilities
}

/// Draws at many positions and compares the counts.
fn check_draws(logits: &[f32], params: &SamplingParams) {
    const NUM_DRAWS: usize = 8000;
    let expected = distribution(logits, params);
    let mut counts = vec![0_u32; logits.len()];
    let mut sampler = Sampler::new();
    let tokens = vec![1; NUM_DRAWS];
    for position in 0..NUM_DRAWS {
        let context = context(&tokens[..position]);
        let sample = sampler.sample(&mut logits.to_vec(), &context, params);
        counts[sample.expect("there is a choice").token as usize] += 1;
    }
    let mut chi_squared = 0.0;
    let mut num_degrees = -1.0;
    // Rare tokens are counted as one, as the approximation asks for.
    let (mut rare, mut rare_expected) = (0.0, 0.0);
    for (&count, &p) in counts.iter().zip(&expected) {
        let mean = p * NUM_DRAWS as f64;
        assert!(
            p > 0.0 || count == 0,
            "a token was drawn that is not allowed"
        );
        if mean >= 10.0 {
            chi_squared += (f64::from(count) - mean).powi(2) / mean;
            num_degrees += 1.0;
        } else {
            rare += f64::from(count);
            rare_expected += mean;
        }
    }
    if rare_expected >= 10.0 {
        chi_squared += (rare - rare_expected).powi(2) / rare_expected;
        num_degrees += 1.0;
    }
    // Wilson and Hilferty's cube root: 3.72 deviations are p = 1e-4.
    if num_degrees > 0.0 {
        let spread: f64 = 2.0 / (9.0 * num_degrees);
        let deviations = ((chi_squared / num_degrees).cbrt() - (1.0 - spread)) / spread.sqrt();
        assert!(
            deviations < 3.72,
            "{chi_squared} at {num_degrees}: {params:?}"
        );
    }
}

/// A row with ties, far outliers and a forbidden token.
fn row() -> Vec<f32> {
    let mut row: Vec<f32> = (0..40).map(|i| ((i * 17) % 23) as f32 / 5.0).collect();
    row[3] = f32::NEG_INFINITY;
    row[30] = 6.0;
    row[31] = -40.0;
    row
}

#[test]
fn draws_follow_the_distribution_of_each_transform() {
    let base = params();
    for params in [
        base.clone(),
        SamplingParams {
            temperature: 0.5,
            ..base.clone()
        },
        SamplingParams {
            temperature: 2.0,
            seed: 9,
            ..base.clone()
        },
        SamplingParams {
            top_k: 1,
            ..base.clone()
        },
        SamplingParams {
            top_k: 7,
            ..base.clone()
        },
        SamplingParams {
            top_k: 1000,
            ..base.clone()
        },
        SamplingParams {
            top_p: 0.5,
            ..base.clone()
        },
        SamplingParams {
            top_p: 0.95,
            ..base.clone()
        },
        SamplingParams {
            top_p: 1e-6,
            ..base.clone()
        },
        SamplingParams {
            min_p: 0.2,
            ..base.clone()
        },
        SamplingParams {
            top_k: 20,
            top_p: 0.8,
            min_p: 0.1,
            temperature: 1.3,
            ..base
        },
    ] {
        check_draws(&row(), &params);
    }
}

#[test]
fn draws_cross_the_chunks_of_a_long_row() {
    let logits: Vec<f32> = (0..2500)
        .map(|i| if i % 500 == 499 { 8.0 } else { 0.0 })
        .collect();
    check_draws_few(&logits, &params());
}

/// As `check_draws`, with fewer draws for a long row.
fn check_draws_few(logits: &[f32], params: &SamplingParams) {
    let expected = distribution(logits, params);
    let mut counts = vec![0_u32; logits.len()];
    let mut sampler = Sampler::new();
    let num_draws = 1000;
    for seed in 0..num_draws {
        let params = SamplingParams {
            seed,
            ..params.clone()
        };
        let sample = sampler.sample(&mut logits.to_vec(), &context(&[1]), &params);
        counts[sample.expect("there is a choice").token as usize] += 1;
    }
    for (token, &p) in expected.iter().enumerate().filter(|(_, p)| **p > 0.01) {
        let mean = p * num_draws as f64;
        let difference = (f64::from(counts[token]) - mean).abs();
        assert!(
            difference < 4.0 * mean.sqrt(),
            "{token}: {} of {mean}",
            counts[token]
        );
    }
}

#[test]
fn temperature_0_takes_the_greatest_and_the_lowest_of_equals() {
    let check = |logits: &[f32], expected| {
        assert_eq!(sample(logits, &[1], &greedy()).token, expected);
    };
    check(&[1.0, 3.0, 3.0, 2.0], 1);
    check(&[f32::NEG_INFINITY, -5.0, -5.0], 1);
    check(&[0.0, -0.0], 0);
    check(&[-0.0, 0.0], 0);
    let mut long = vec![0.0; 100];
    long[97] = 1.0;
    check(&long, 97);
}

#[test]
fn a_tiny_temperature_is_no_division_by_zero() {
    let params = SamplingParams {
        temperature: f32::from_bits(1),
        ..params()
    };
    assert_eq!(sample(&[1.0, 2.0, 1.5], &[1], &params).token, 1);
}

#[test]
fn rows_without_a_choice_are_typed_failures() {
    let infinity = f32::INFINITY;
    for params in [greedy(), params()] {
        let fail = |logits: &[f32]| {
            let result = Sampler::new().sample(&mut logits.to_vec(), &context(&[1]), &params);
            result.expect_err("there is no choice")
        };
        assert_eq!(fail(&[]), SamplingFailure::NoToken);
        assert_eq!(fail(&[-infinity; 3]), SamplingFailure::NoToken);
        assert_eq!(fail(&[0.0, f32::NAN]), SamplingFailure::NotFinite);
        assert_eq!(fail(&[0.0, infinity]), SamplingFailure::NotFinite);
    }
}

/// Checks the logits behind all transforms of logits.
fn check_logits(logits: &[f32], tokens: &[TokenId], params: &SamplingParams, expected: &[f32]) {
    let mut logits = logits.to_vec();
    let mut sampler = Sampler::new();
    for _ in 0..2 {
        let mut row = logits.clone();
        let result = sampler.sample(&mut row, &context(tokens), params);
        result.expect("there is a choice");
        assert_eq!(row, expected, "also at the second use");
    }
    logits.clear();
}

#[test]
fn penalties_and_bias_change_logits_as_they_say() {
    let logits = [1.0, -1.0, 2.0, 4.0];
    let repetition = SamplingParams {
        repetition_penalty: 2.0,
        ..greedy()
    };
    // The prompt is token 1, the answer 2, 2: each once.
    check_logits(&logits, &[1, 2, 2], &repetition, &[1.0, -2.0, 1.0, 4.0]);
    let frequency = SamplingParams {
        frequency_penalty: 0.5,
        ..greedy()
    };
    check_logits(&logits, &[1, 2, 2], &frequency, &[1.0, -1.0, 1.0, 4.0]);
    let presence = SamplingParams {
        presence_penalty: 0.5,
        ..greedy()
    };
    check_logits(&logits, &[1, 2, 2], &presence, &[1.0, -1.0, 1.5, 4.0]);
    let all = SamplingParams {
        repetition_penalty: 2.0,
        frequency_penalty: 0.5,
        presence_penalty: 0.25,
        logit_bias: vec![(2, 3.0)],
        ..greedy()
    };
    check_logits(&logits, &[1, 2, 2], &all, &[1.0, -2.0, 2.75, 4.0]);
    check_logits(&logits, &[1, 99], &all, &[1.0, -2.0, 5.0, 4.0]);
}

#[test]
fn a_bias_of_100_forces_and_of_minus_100_forbids() {
    let biased = |bias| SamplingParams {
        logit_bias: vec![(1, bias)],
        ..params()
    };
    for seed in 0..200 {
        let with_seed = |bias| SamplingParams {
            seed,
            ..biased(bias)
        };
        assert_eq!(
            sample(&[20.0, -20.0, 20.0], &[1], &with_seed(100.0)).token,
            1
        );
        assert_ne!(
            sample(&[-20.0, 20.0, -20.0], &[1], &with_seed(-100.0)).token,
            1
        );
    }
}

#[test]
fn nothing_ends_an_answer_that_is_too_short() {
    let params = SamplingParams {
        min_tokens: 2,
        stop_token_ids: vec![1],
        logit_bias: vec![(0, 100.0)],
        ..greedy()
    };
    let logits = [9.0, 8.0, 7.0];
    assert_eq!(sample(&logits, &[5], &params).token, 2);
    assert_eq!(sample(&logits, &[5, 2], &params).token, 2);
    assert_eq!(sample(&logits, &[5, 2, 2], &params).token, 0);
    let ignoring = SamplingParams {
        ignore_eos: true,
        ..params
    };
    assert_eq!(sample(&logits, &[5], &ignoring).token, 0, "it ends nothing");
}

#[test]
fn logprobs_are_those_before_temperature_with_the_greatest_in_order() {
    let logits = [0.0, 2.0, 1.0, 2.0, f32::NEG_INFINITY];
    let params = SamplingParams {
        temperature: 0.0,
        logprobs: Some(10),
        ..params()
    };
    let sum: f64 = [0.0_f64, 2.0, 1.0, 2.0].iter().map(|x| x.exp()).sum();
    let expected = |logit: f64| (logit - sum.ln()) as f32;
    let logprobs = sample(&logits, &[1], &params).logprobs.expect("asked for");
    assert_eq!((logprobs.token, logprobs.logprob), (1, expected(2.0)));
    let tokens: Vec<TokenId> = logprobs.top.iter().map(|(token, _)| *token).collect();
    assert_eq!(tokens, [1, 3, 2, 0], "the forbidden one is not listed");
    for (token, logprob) in logprobs.top {
        let expected = expected(f64::from(logits[token as usize]));
        assert!(
            (logprob - expected).abs() <= 1e-6,
            "{token}: {logprob}, {expected}"
        );
    }
    let known = Sampler::new()
        .logprobs(&logits, 2, 1)
        .expect("a distribution");
    assert_eq!((known.token, known.top[0].0), (2, 1));
    assert!((known.logprob - expected(1.0)).abs() <= 1e-6);
    let hot = SamplingParams {
        temperature: 2.0,
        ..params
    };
    let hot = sample(&logits, &[1], &hot).logprobs.expect("asked for");
    let plain = (f64::from(logits[hot.token as usize]) - sum.ln()) as f32;
    assert!((hot.logprob - plain).abs() <= 1e-6);
}

#[test]
fn a_draw_depends_on_seed_and_position_alone() {
    let logits: Vec<f32> = (0..500).map(|i| (i % 7) as f32 * 0.1).collect();
    let seeded = |seed| SamplingParams {
        seed,
        top_p: 0.9,
        ..params()
    };
    let mut used = Sampler::new();
    let mut differs = false;
    for position in 1..50 {
        let tokens = vec![1; position];
        let fresh = sample(&logits, &tokens, &seeded(3)).token;
        let mut row = logits.clone();
        let again = used.sample(&mut row, &context(&tokens), &seeded(3));
        assert_eq!(again.expect("there is a choice").token, fresh);
        differs |= sample(&logits, &tokens, &seeded(4)).token != fresh;
    }
    assert!(differs, "another seed gives another text");
}

fn logits() -> impl Strategy<Value = Vec<f32>> {
    let logit = prop_oneof![
        8 => (-80..80_i32).prop_map(|x| x as f32 / 8.0),
        1 => Just(f32::NEG_INFINITY),
        1 => -100.0..100.0_f32,
    ];
    prop::collection::vec(logit, 1..400)
}

proptest! {
    #[test]
    fn the_greatest_are_those_of_a_full_sort(logits in logits(), num in 0..50_usize) {
        let mut sorted: Vec<usize> = (0..logits.len()).collect();
        sorted.retain(|&i| logits[i] > f32::NEG_INFINITY);
        sorted.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
        sorted.truncate(num);
        let mut candidates = Vec::new();
        super::selection::select_greatest(&logits, num, &mut candidates);
        let found: Vec<usize> = candidates.iter().map(|c| c.token as usize).collect();
        prop_assert_eq!(found, sorted);
    }

    #[test]
    fn only_what_the_transforms_leave_is_drawn(
        logits in logits(),
        (top_k, top_p, min_p) in (0..30_u32, 0.01..=1.0_f32, 0.0..0.5_f32),
        temperature in 0.2..2.0_f32,
        seed in any::<u64>(),
    ) {
        prop_assume!(logits.iter().any(|&l| l > f32::NEG_INFINITY));
        let params = SamplingParams { temperature, top_k, top_p, min_p, seed, ..params() };
        let token = sample(&logits, &[1], &params).token as usize;
        // The edges of nucleus and of min-p are blurred by rounding: both are widened.
        let wider = SamplingParams { top_p: (top_p * 1.0001).min(1.0), min_p: min_p * 0.9999, ..params };
        prop_assert!(distribution(&logits, &wider)[token] > 0.0);
    }

    #[test]
    fn no_row_and_no_parameter_panics(
        bits in prop::collection::vec(any::<u32>(), 0..70),
        (top_k, top_p, min_p) in (any::<u32>(), 1e-30..=1.0_f32, 0.0..=1.0_f32),
        temperature in 0.0..=2.0_f32,
    ) {
        let mut logits: Vec<f32> = bits.into_iter().map(f32::from_bits).collect();
        let params = SamplingParams { temperature, top_k, top_p, min_p, logprobs: Some(5), ..params() };
        if let Ok(sample) = Sampler::new().sample(&mut logits, &context(&[1]), &params) {
            prop_assert!(logits[sample.token as usize] > f32::NEG_INFINITY);
            let logprobs = sample.logprobs.expect("asked for");
            prop_assert!(logprobs.logprob <= 0.0);
        }
    }
}

#[test]
fn each_parameter_is_checked_against_its_range() {
    let refused = |change: &dyn Fn(&mut SamplingParams)| {
        let mut params = params();
        change(&mut params);
        match params.validate(100) {
            Err(Refusal::Parameter { parameter, .. }) => parameter,
            Err(refusal) => panic!("{refusal}"),
            Ok(()) => "",
        }
    };
    assert_eq!(refused(&|_| {}), "");
    for bad in [-0.1, 2.1, f32::NAN, f32::INFINITY] {
        assert_eq!(refused(&|p| p.temperature = bad), "temperature");
        assert_eq!(refused(&|p| p.min_p = bad), "min_p");
        assert_eq!(refused(&|p| p.top_p = bad), "top_p");
        assert_eq!(
            refused(&|p| p.frequency_penalty = bad * 21.0),
            "frequency_penalty"
        );
        assert_eq!(
            refused(&|p| p.presence_penalty = bad * 21.0),
            "presence_penalty"
        );
    }
    for bad in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        assert_eq!(
            refused(&|p| p.repetition_penalty = bad),
            "repetition_penalty"
        );
    }
    assert_eq!(refused(&|p| p.top_p = 0.0), "top_p");
    assert_eq!(
        refused(&|p| p.logit_bias = vec![(0, -100.0), (99, 100.0)]),
        ""
    );
    for bad in [
        vec![(100, 1.0)],
        vec![(1, 101.0)],
        vec![(1, f32::NAN)],
        vec![(2, 0.0), (2, 1.0)],
    ] {
        assert_eq!(refused(&|p| p.logit_bias.clone_from(&bad)), "logit_bias");
    }
    assert_eq!(refused(&|p| p.stop = vec![String::new()]), "stop");
    assert_eq!(refused(&|p| p.stop = vec!["x".to_owned(); 17]), "stop");
    assert_eq!(refused(&|p| p.stop_token_ids = vec![100]), "stop_token_ids");
    assert_eq!(refused(&|p| p.max_tokens = 0), "max_tokens");
    assert_eq!(refused(&|p| p.min_tokens = 17), "min_tokens");
    assert_eq!(refused(&|p| p.logprobs = Some(21)), "logprobs");
}
