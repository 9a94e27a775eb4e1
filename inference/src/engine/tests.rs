//! The engine over a model of which every number is known: its keys are the
//! tokens themselves, and what comes next is a function of all of them. A wrong
//! block, a lost or doubled token, or a row too few gives another text.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use futures_util::future::{ready, select};

use super::handle::MAX_WAITING_EVENTS;
use super::{
    Engine, EngineEvent, EngineOptions, EngineRequest, FinishReason, Generation, Refusal,
    TokenLogprobs, Usage, start,
};
use crate::backend::{Backend, ForwardBatch, Outputs};
use crate::error::Error;
use crate::ids::{BlockId, TokenId};
use crate::model::{Activation, ModelConfig, NormPlacement, RopeConfig, RopePairing, RopeScaling};
use crate::sampling::SamplingParams;
use crate::tokenizer::{GgufTokenizer, Tokenizer};

/// Bytes come behind `<unk>`, `<s>` and `</s>`.
const FIRST_BYTE: TokenId = 3;
const VOCAB_SIZE: usize = FIRST_BYTE as usize + 256;
const EOS: TokenId = 2;
const HIDDEN_SIZE: usize = 2;
const CONTEXT: usize = 512;

type Next = fn(&[TokenId]) -> TokenId;

/// A model whose next token is `next` of all tokens before it.
struct KnownModel {
    config: ModelConfig,
    block_size: usize,
    /// Token of each slot of the pool.
    slots: Vec<TokenId>,
    next: Next,
    /// Steps before one that goes wrong; how.
    fault: Option<Fault>,
    num_steps: usize,
    most_rows: Arc<AtomicUsize>,
}

#[derive(Clone, Copy)]
enum Fault {
    Error {
        at_step: usize,
    },
    Panic {
        at_step: usize,
    },
    /// Logits of texts that begin with this token are no numbers.
    NotANumber {
        first: TokenId,
    },
}

impl KnownModel {
    fn new(next: Next) -> Self {
        Self {
            config: config(),
            block_size: 0,
            slots: Vec::new(),
            next,
            fault: None,
            num_steps: 0,
            most_rows: Arc::default(),
        }
    }

    fn with_fault(next: Next, fault: Fault) -> Self {
        Self {
            fault: Some(fault),
            ..Self::new(next)
        }
    }

    fn slot(&self, table: &[BlockId], position: usize) -> usize {
        table[position / self.block_size].0 as usize * self.block_size + position % self.block_size
    }
}

impl Backend for KnownModel {
    fn config(&self) -> &ModelConfig {
        &self.config
    }

    fn allocate(&mut self, num_blocks: usize, block_size: usize) -> Result<(), Error> {
        self.block_size = block_size;
        self.slots = vec![TokenId::MAX; num_blocks * block_size];
        Ok(())
    }

    fn kv_bytes_per_token(&self) -> usize {
        4
    }

    fn forward(&mut self, batch: &ForwardBatch<'_>, outputs: &mut Outputs) -> Result<(), Error> {
        self.num_steps += 1;
        match self.fault {
            Some(Fault::Error { at_step }) if at_step == self.num_steps => {
                return Err(Error::Unsupported {
                    what: "this step".to_owned(),
                });
            }
            Some(Fault::Panic { at_step }) if at_step == self.num_steps => {
                panic!("a step that goes wrong on purpose");
            }
            _ => {}
        }
        self.most_rows
            .fetch_max(batch.output_rows.len(), Ordering::Relaxed);
        outputs.logits.clear();
        outputs.hidden.clear();
        let mut row = 0;
        for sequence in batch.sequences {
            for index in row..row + sequence.num_rows {
                let slot = self.slot(sequence.block_table, batch.positions[index] as usize);
                self.slots[slot] = batch.token_ids[index];
            }
            for index in row..row + sequence.num_rows {
                if !batch.output_rows.contains(&(index as u32)) {
                    continue;
                }
                let seen: Vec<TokenId> = (0..=batch.positions[index] as usize)
                    .map(|position| self.slots[self.slot(sequence.block_table, position)])
                    .collect();
                if outputs.wants_logits {
                    let at = outputs.logits.len();
                    outputs.logits.resize(at + VOCAB_SIZE, 0.0);
                    let logits = &mut outputs.logits[at..];
                    logits[(self.next)(&seen) as usize] = 8.0;
                    logits[FIRST_BYTE as usize + hash(&seen) as usize % 256] += 4.0;
                    if let Some(Fault::NotANumber { first }) = self.fault
                        && seen[0] == first
                    {
                        logits.fill(f32::NAN);
                    }
                }
                if outputs.wants_hidden {
                    outputs
                        .hidden
                        .push(*seen.last().expect("a row sees itself") as f32);
                    outputs.hidden.push(seen.len() as f32);
                    if let Some(Fault::NotANumber { first }) = self.fault
                        && seen[0] == first
                    {
                        outputs.hidden.push(f32::NAN);
                        outputs.hidden.swap_remove(outputs.hidden.len() - 2);
                    }
                }
            }
            row += sequence.num_rows;
        }
        Ok(())
    }

    fn copy_block(&mut self, from: BlockId, to: BlockId) {
        let size = self.block_size;
        let from = from.0 as usize * size;
        self.slots
            .copy_within(from..from + size, to.0 as usize * size);
    }
}

fn config() -> ModelConfig {
    ModelConfig {
        architecture: "known".to_owned(),
        vocab_size: VOCAB_SIZE,
        hidden_size: HIDDEN_SIZE,
        intermediate_size: 1,
        num_hidden_layers: 1,
        num_attention_heads: 1,
        num_key_value_heads: 1,
        head_dim: HIDDEN_SIZE,
        max_position_embeddings: CONTEXT,
        rms_norm_eps: 1e-5,
        norm_weight_is_offset: false,
        norm_placement: NormPlacement::Before,
        qk_norm: false,
        attention_bias: false,
        hidden_act: Activation::Silu,
        rope: RopeConfig {
            theta: 10_000.0,
            num_rotated: HIDDEN_SIZE,
            pairing: RopePairing::Halves,
            scaling: RopeScaling::None,
        },
        local_rope: None,
        sliding_window: None,
        layer_is_local: vec![false],
        embedding_scale: 1.0,
        attention_scale: 1.0,
        attn_logit_softcapping: None,
        final_logit_softcapping: None,
        tie_word_embeddings: true,
        bos_token_id: None,
        eos_token_ids: vec![EOS],
    }
}

fn tokenizer() -> Arc<Tokenizer> {
    let mut tokens = vec!["<unk>".to_owned(), "<s>".to_owned(), "</s>".to_owned()];
    tokens.extend((0..256).map(|byte| format!("<0x{byte:02X}>")));
    let mut token_types = vec![2, 3, 3];
    token_types.resize(VOCAB_SIZE, 6);
    let source = GgufTokenizer {
        model: "llama".to_owned(),
        scores: vec![0.0; VOCAB_SIZE],
        tokens,
        token_types,
        bos: Some(1),
        eos: Some(EOS),
        unknown: Some(0),
        add_bos: Some(false),
        add_space_prefix: Some(false),
        ..GgufTokenizer::default()
    };
    Arc::new(Tokenizer::from_gguf(source).expect("the vocabulary is whole"))
}

/// FNV-1a.
fn hash(tokens: &[TokenId]) -> u32 {
    tokens.iter().fold(2_166_136_261, |hash, token| {
        (hash ^ token).wrapping_mul(16_777_619)
    })
}

/// A letter that depends on every token before it.
fn letter(tokens: &[TokenId]) -> TokenId {
    byte(b'a' + (hash(tokens) >> 8) as u8 % 26)
}

fn byte(byte: u8) -> TokenId {
    FIRST_BYTE + TokenId::from(byte)
}

fn prompt(text: &str) -> Vec<TokenId> {
    text.bytes().map(byte).collect()
}

fn request(text: &str, max_tokens: u32) -> EngineRequest {
    EngineRequest {
        prompt: prompt(text),
        sampling: SamplingParams {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: 7,
            stop: Vec::new(),
            stop_token_ids: Vec::new(),
            ignore_eos: false,
            min_tokens: 0,
            max_tokens,
            logprobs: None,
        },
        priority: 0,
        tenant: None,
        cache_salt: None,
        deadline: None,
        prompt_logprobs: None,
    }
}

/// A running engine, stopped and waited for at the end.
struct Running {
    engine: Engine,
    thread: Option<JoinHandle<()>>,
    runtime: tokio::runtime::Runtime,
}

impl Running {
    fn start(model: KnownModel, options: &EngineOptions) -> Self {
        let (engine, thread) =
            start(Box::new(model), tokenizer(), options).expect("the engine starts");
        Self {
            engine,
            thread: Some(thread),
            runtime: tokio::runtime::Builder::new_current_thread()
                .build()
                .expect("a runtime without drivers"),
        }
    }

    fn submit(&self, request: EngineRequest) -> Result<Generation, Refusal> {
        self.runtime.block_on(self.engine.submit(request))
    }

    fn read(&self, generation: &mut Generation) -> Answer {
        self.runtime.block_on(async {
            let mut answer = Answer::default();
            while let Some(event) = generation.next().await {
                answer.take(event);
            }
            answer
        })
    }

    fn answer(&self, request: EngineRequest) -> Answer {
        let mut generation = self.submit(request).expect("the request is taken");
        self.read(&mut generation)
    }

    /// Waits until nothing runs, and checks that nothing is held.
    fn assert_all_free(&self) {
        // Answered behind whatever was sent before.
        let refused = self.runtime.block_on(self.engine.embed(Vec::new()));
        assert!(refused.is_err());
        let begun = Instant::now();
        loop {
            let stats = self.engine.stats();
            if stats.num_running == 0
                && stats.num_waiting == 0
                && stats.num_free_blocks + stats.num_cached_blocks == stats.num_blocks
            {
                return;
            }
            assert!(
                begun.elapsed() < Duration::from_secs(10),
                "still held: {stats:?}"
            );
            std::thread::yield_now();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.engine.stop();
        if let Some(thread) = self.thread.take()
            && !std::thread::panicking()
        {
            thread.join().expect("the engine ends in order");
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Answer {
    ids: Vec<TokenId>,
    text: String,
    logprobs: Vec<Option<TokenLogprobs>>,
    prompt: Vec<Vec<Option<TokenLogprobs>>>,
    end: Option<(FinishReason, Usage)>,
}

impl Answer {
    fn take(&mut self, event: EngineEvent) {
        assert!(self.end.is_none(), "an event behind the last: {event:?}");
        match event {
            EngineEvent::Prompt { logprobs } => self.prompt.push(logprobs),
            EngineEvent::Token { id, text, logprobs } => {
                self.ids.push(id);
                self.text.push_str(&text);
                self.logprobs.push(logprobs);
            }
            EngineEvent::Finished {
                reason,
                text,
                usage,
            } => {
                self.text.push_str(&text);
                self.end = Some((reason, usage));
            }
        }
    }

    fn reason(&self) -> FinishReason {
        self.end.expect("the answer has an end").0
    }

    fn usage(&self) -> Usage {
        self.end.expect("the answer has an end").1
    }

    /// Without what may differ: what was found in the cache.
    fn without_cache(mut self) -> Self {
        if let Some((_, usage)) = &mut self.end {
            usage.num_cached_tokens = 0;
        }
        self
    }
}

/// What `next` says of a prompt, computed without an engine.
fn expected(text: &str, num_tokens: usize, next: Next) -> String {
    let mut tokens = prompt(text);
    for _ in 0..num_tokens {
        tokens.push(next(&tokens));
    }
    let answer = tokens[text.len()..]
        .iter()
        .map(|token| (token - FIRST_BYTE) as u8);
    String::from_utf8(answer.collect()).expect("letters")
}

#[test]
fn an_answer_is_what_the_model_says() {
    let running = Running::start(KnownModel::new(letter), &EngineOptions::default());
    let answer = running.answer(request("once upon a time", 40));
    assert_eq!(answer.text, expected("once upon a time", 40, letter));
    assert_eq!(answer.reason(), FinishReason::Length);
    let usage = answer.usage();
    assert_eq!(
        (usage.num_prompt_tokens, usage.num_completion_tokens),
        (16, 40)
    );
}

#[test]
fn answers_do_not_depend_on_company_chunks_or_space() {
    let texts: Vec<String> = (0..16)
        .map(|index| format!("{}{}", "shared beginning of all, ".repeat(index % 4), index))
        .collect();
    let ask = |text: &String| {
        let mut wanted = request(text, 48);
        wanted.sampling.temperature = 0.9;
        wanted.sampling.logprobs = Some(3);
        wanted.sampling.seed = text.len() as u64;
        wanted
    };
    let alone: Vec<Answer> = texts
        .iter()
        .map(|text| {
            let running = Running::start(KnownModel::new(letter), &EngineOptions::default());
            running.answer(ask(text))
        })
        .collect();
    for (chunk_size, block_size, pool_blocks) in [
        (1, 16, None),
        (7, 4, None),
        (64, 16, Some(24)),
        (512, 8, Some(24)),
    ] {
        let options = EngineOptions {
            pool_blocks,
            block_size,
            chunk_size,
            ..EngineOptions::default()
        };
        let running = Running::start(KnownModel::new(letter), &options);
        // Twice: the second time what was computed is found again.
        for _ in 0..2 {
            let mut generations: Vec<Generation> = texts
                .iter()
                .map(|text| running.submit(ask(text)).expect("the request is taken"))
                .collect();
            let together: Vec<Answer> = running.runtime.block_on(async {
                let mut answers = vec![Answer::default(); generations.len()];
                // All are read in turns, so that none is held up for long.
                let mut is_open = vec![true; generations.len()];
                while is_open.contains(&true) {
                    for (index, generation) in generations.iter_mut().enumerate() {
                        if is_open[index] {
                            match generation.next().await {
                                Some(event) => answers[index].take(event),
                                None => is_open[index] = false,
                            }
                        }
                    }
                }
                answers
            });
            for (together, alone) in together.into_iter().zip(&alone) {
                assert_eq!(together.without_cache(), *alone, "chunks of {chunk_size}");
            }
        }
        running.assert_all_free();
        if pool_blocks.is_some() {
            assert!(
                running.engine.stats().num_preemptions > 0,
                "the pool was too large"
            );
        } else {
            assert!(
                running.engine.stats().prefix_hits > 0,
                "nothing was found again"
            );
        }
    }
}

#[test]
fn a_stop_text_ends_the_answer_and_is_not_in_it() {
    fn spell(tokens: &[TokenId]) -> TokenId {
        byte(b"one two three"[tokens.len() - 1])
    }
    let running = Running::start(KnownModel::new(spell), &EngineOptions::default());
    for (stop, text, num_tokens) in [
        ("two", "one ", 7),
        ("t", "one ", 5),
        ("w", "one t", 6),
        ("three", "one two ", 13),
        ("twx", "one two three", 13),
        ("threes", "one two three", 13),
    ] {
        let mut wanted = request("!", 13);
        wanted.sampling.stop = vec![stop.to_owned()];
        let answer = running.answer(wanted);
        assert_eq!(answer.text, text, "{stop}");
        assert_eq!(answer.usage().num_completion_tokens, num_tokens, "{stop}");
        let reason = if text.len() == 13 {
            FinishReason::Length
        } else {
            FinishReason::Stop
        };
        assert_eq!(answer.reason(), reason, "{stop}");
    }
}

#[test]
fn the_last_token_of_the_model_ends_the_answer_unless_ignored() {
    fn three_then_end(tokens: &[TokenId]) -> TokenId {
        if tokens.len().is_multiple_of(4) {
            EOS
        } else {
            byte(b'x')
        }
    }
    let running = Running::start(KnownModel::new(three_then_end), &EngineOptions::default());
    let answer = running.answer(request("!", 20));
    assert_eq!(
        (answer.text.as_str(), answer.reason()),
        ("xxx", FinishReason::Stop)
    );
    assert_eq!(
        (answer.ids.len(), answer.usage().num_completion_tokens),
        (3, 4)
    );
    let mut wanted = request("!", 6);
    wanted.sampling.ignore_eos = true;
    let answer = running.answer(wanted);
    assert_eq!(
        (answer.text.as_str(), answer.reason()),
        ("xxxxx", FinishReason::Length)
    );
    assert_eq!(answer.ids[3], EOS);
    let mut wanted = request("!", 20);
    wanted.sampling.stop_token_ids = vec![byte(b'x')];
    assert_eq!(running.answer(wanted).text, "");
}

#[test]
fn characters_come_whole() {
    fn spell(tokens: &[TokenId]) -> TokenId {
        byte("grüße \u{1F469}\u{200D}\u{1F680}".as_bytes()[tokens.len() - 1])
    }
    let running = Running::start(KnownModel::new(spell), &EngineOptions::default());
    let length = "grüße \u{1F469}\u{200D}\u{1F680}".len() as u32;
    let mut generation = running.submit(request("!", length)).expect("taken");
    let mut text = String::new();
    while let Some(event) = running.runtime.block_on(generation.next()) {
        if let EngineEvent::Token { text: delta, .. } | EngineEvent::Finished { text: delta, .. } =
            event
        {
            assert!(!delta.contains(char::REPLACEMENT_CHARACTER), "{delta:?}");
            text.push_str(&delta);
        }
    }
    assert_eq!(text, "grüße \u{1F469}\u{200D}\u{1F680}");
    // Cut within the last character, what is there is shown as what it is.
    let cut = running.answer(request("!", length - 1));
    assert!(
        cut.text.ends_with(char::REPLACEMENT_CHARACTER),
        "{:?}",
        cut.text
    );
}

#[test]
fn log_probabilities_of_a_prompt_do_not_depend_on_chunks_or_cache() {
    let ask = || {
        let mut wanted = request("the quick brown fox jumps over the lazy dog", 4);
        wanted.prompt_logprobs = Some(2);
        wanted.sampling.logprobs = Some(2);
        wanted
    };
    let mut all = Vec::new();
    for chunk_size in [1, 7, 64] {
        let options = EngineOptions {
            chunk_size,
            ..EngineOptions::default()
        };
        let running = Running::start(KnownModel::new(letter), &options);
        for _ in 0..2 {
            let answer = running.answer(ask());
            assert_eq!(answer.usage().num_cached_tokens, 0);
            all.push(answer);
        }
    }
    let [known] = all[0].prompt.as_slice() else {
        panic!("the prompt's event comes once");
    };
    assert_eq!(known.len(), ask().prompt.len());
    assert!(known[0].is_none());
    assert!(known[1..].iter().all(Option::is_some));
    for answer in &all {
        assert_eq!(answer, &all[0]);
    }
}

#[test]
fn no_token_may_be_wanted_but_the_prompts_probabilities() {
    let model = KnownModel::new(letter);
    let most_rows = Arc::clone(&model.most_rows);
    let running = Running::start(model, &EngineOptions::default());
    let mut wanted = request(&"word ".repeat(60), 0);
    wanted.prompt_logprobs = Some(0);
    let answer = running.answer(wanted);
    assert_eq!(answer.prompt.len(), 1);
    assert_eq!(
        (answer.ids.len(), answer.reason()),
        (0, FinishReason::Length)
    );
    assert_eq!(answer.usage().num_completion_tokens, 0);
    assert!(
        most_rows.load(Ordering::Relaxed) <= 16,
        "all logits at once"
    );
    running.assert_all_free();
}

#[test]
fn who_leaves_frees_everything() {
    let running = Running::start(KnownModel::new(letter), &EngineOptions::default());
    for num_read in [0, 1, 5] {
        let mut generations: Vec<Generation> = (0..40)
            .map(|index| {
                let text = format!("prompt {index}");
                running.submit(request(&text, 400)).expect("taken")
            })
            .collect();
        for generation in &mut generations {
            for _ in 0..num_read {
                running.runtime.block_on(generation.next());
            }
        }
        drop(generations);
        running.assert_all_free();
    }
    assert_eq!(
        running.answer(request("after", 5)).text,
        expected("after", 5, letter)
    );
}

#[test]
fn a_slow_reader_holds_up_nobody_and_loses_nothing() {
    let running = Running::start(KnownModel::new(letter), &EngineOptions::default());
    let num_tokens = MAX_WAITING_EVENTS as u32 * 4;
    let mut slow = running.submit(request("slow", num_tokens)).expect("taken");
    for _ in 0..3 {
        let answer = running.answer(request("quick", 200));
        assert_eq!(answer.text, expected("quick", 200, letter));
    }
    let num_quick = 3 * 200;
    let num_slow = running.engine.stats().generation_tokens - num_quick;
    assert!(
        num_slow <= MAX_WAITING_EVENTS as u64 + 2,
        "{num_slow} tokens for nobody"
    );
    let answer = running.read(&mut slow);
    assert_eq!(answer.text, expected("slow", num_tokens as usize, letter));
    assert_eq!(answer.reason(), FinishReason::Length);
    drop(slow);
    running.assert_all_free();
}

#[test]
fn a_reader_who_comes_late_gets_the_end_too() {
    let running = Running::start(KnownModel::new(letter), &EngineOptions::default());
    for more in 0..4 {
        let num_tokens = MAX_WAITING_EVENTS as u32 - 2 + more;
        let mut late = running.submit(request("late", num_tokens)).expect("taken");
        running.answer(request("meanwhile", 100));
        let answer = running.read(&mut late);
        assert_eq!(answer.ids.len() as u32, num_tokens);
        assert_eq!(answer.reason(), FinishReason::Length);
    }
}

#[test]
fn a_step_that_fails_ends_its_requests_and_not_the_engine() {
    for fault in [Fault::Error { at_step: 3 }, Fault::Panic { at_step: 3 }] {
        let model = KnownModel::with_fault(letter, fault);
        let running = Running::start(model, &EngineOptions::default());
        let answer = running.answer(request("first", 10));
        assert_eq!(answer.reason(), FinishReason::Failed);
        assert_eq!(answer.text, expected("first", 2, letter));
        running.assert_all_free();
        let answer = running.answer(request("second", 10));
        assert_eq!(answer.text, expected("second", 10, letter));
    }
}

#[test]
fn numbers_that_are_none_fail_one_request_only() {
    let fault = Fault::NotANumber { first: byte(b'?') };
    let running = Running::start(
        KnownModel::with_fault(letter, fault),
        &EngineOptions::default(),
    );
    let mut sound = running.submit(request("sound", 30)).expect("taken");
    let mut faulty = running.submit(request("?", 30)).expect("taken");
    assert_eq!(running.read(&mut faulty).reason(), FinishReason::Failed);
    assert_eq!(running.read(&mut sound).text, expected("sound", 30, letter));
    drop((sound, faulty));
    running.assert_all_free();
}

#[test]
fn an_embedding_is_the_mean_of_all_rows() {
    for chunk_size in [1, 7, 512] {
        let options = EngineOptions {
            chunk_size,
            ..EngineOptions::default()
        };
        let running = Running::start(KnownModel::new(letter), &options);
        let tokens: Vec<TokenId> = (0..100).map(|index| index % 50 + 3).collect();
        let mean = running
            .runtime
            .block_on(running.engine.embed(tokens.clone()));
        let mean_token = tokens.iter().sum::<TokenId>() as f32 / 100.0;
        assert_eq!(mean, Ok(vec![mean_token, 50.5]));
        let refusal = running.runtime.block_on(running.engine.embed(Vec::new()));
        assert!(
            matches!(refusal, Err(Refusal::Parameter { .. })),
            "{refusal:?}"
        );
        running.assert_all_free();
    }
}

#[test]
fn an_embedding_that_begins_again_is_the_same() {
    let options = EngineOptions {
        pool_blocks: Some(24),
        block_size: 4,
        chunk_size: 8,
        ..EngineOptions::default()
    };
    let running = Running::start(KnownModel::new(letter), &options);
    let tokens: Vec<TokenId> = (0..60).map(|index| index % 50 + 3).collect();
    let mean_token = tokens.iter().sum::<TokenId>() as f32 / 60.0;
    // How far the others are when it is asked for is chance: until it has begun again.
    for _ in 0..100 {
        let others: Vec<Generation> = (0..4)
            .map(|_| running.submit(request("some words", 60)).expect("taken"))
            .collect();
        let mean = running
            .runtime
            .block_on(running.engine.embed(tokens.clone()));
        assert_eq!(mean, Ok(vec![mean_token, 30.5]));
        drop(others);
        if running.engine.stats().num_preemptions > 3 {
            break;
        }
    }
    assert!(
        running.engine.stats().num_preemptions > 0,
        "nothing began again"
    );
}

#[test]
fn who_leaves_an_embedding_frees_it() {
    let options = EngineOptions {
        chunk_size: 1,
        ..EngineOptions::default()
    };
    let running = Running::start(KnownModel::new(letter), &options);
    let tokens: Vec<TokenId> = (0..500).map(|index| index % 50 + 3).collect();
    // A thread may be stopped between asking and leaving: once in a hundred is enough.
    let leaves_early = (0..100).any(|_| {
        let before = running.engine.stats().num_steps;
        running.runtime.block_on(async {
            let embedding = Box::pin(running.engine.embed(tokens.clone()));
            drop(select(embedding, ready(())).await);
        });
        running.assert_all_free();
        running.engine.stats().num_steps - before < 450
    });
    assert!(leaves_early, "it was computed to its end");
}

#[test]
fn states_that_are_no_numbers_are_no_embedding() {
    let fault = Fault::NotANumber { first: byte(b'?') };
    let running = Running::start(
        KnownModel::with_fault(letter, fault),
        &EngineOptions::default(),
    );
    let embed = |text| running.runtime.block_on(running.engine.embed(prompt(text)));
    assert_eq!(embed("?"), Err(Refusal::Failed));
    assert!(embed("!").is_ok());
    let fault = Fault::Error { at_step: 1 };
    let running = Running::start(
        KnownModel::with_fault(letter, fault),
        &EngineOptions::default(),
    );
    let embed = |text| running.runtime.block_on(running.engine.embed(prompt(text)));
    assert_eq!(embed("!"), Err(Refusal::Failed));
    assert!(embed("!").is_ok());
}

#[test]
fn a_deadline_ends_the_answer_as_it_is() {
    let running = Running::start(KnownModel::new(letter), &EngineOptions::default());
    let mut wanted = request("late", 400);
    wanted.deadline = Some(Instant::now());
    let answer = running.answer(wanted);
    assert_eq!(answer.reason(), FinishReason::Deadline);
    // One whose reader does not read ends as well.
    let mut wanted = request("slow", 400);
    wanted.deadline = Some(Instant::now() + Duration::from_millis(50));
    let mut slow = running.submit(wanted).expect("taken");
    running.assert_all_free();
    let answer = running.read(&mut slow);
    assert_eq!(answer.reason(), FinishReason::Deadline);
    assert!(answer.ids.len() < 400);
    assert_eq!(answer.text, expected("slow", answer.ids.len(), letter));
}

#[test]
fn what_cannot_run_is_refused_at_once() {
    let options = EngineOptions {
        max_waiting: 2,
        max_seqs: 1,
        ..EngineOptions::default()
    };
    let running = Running::start(KnownModel::new(letter), &options);
    let refused = |wanted: EngineRequest| running.submit(wanted).expect_err("refused");
    let too_long = refused(request("!", CONTEXT as u32));
    assert!(matches!(too_long, Refusal::TooLong { .. }), "{too_long:?}");
    let mut wanted = request("", 1);
    assert!(matches!(refused(wanted.clone()), Refusal::Parameter { .. }));
    wanted.prompt = vec![VOCAB_SIZE as TokenId];
    assert!(matches!(refused(wanted), Refusal::Parameter { .. }));
    let mut wanted = request("!", 1);
    wanted.sampling.top_p = f32::NAN;
    assert!(matches!(refused(wanted), Refusal::Parameter { .. }));
    // Two wait, whichever runs; of a hundred sent at once the rest is too much.
    let held: Vec<_> = (0..100)
        .map(|_| running.submit(request("!", 400)))
        .collect();
    let refused: Vec<&Refusal> = held
        .iter()
        .filter_map(|result| result.as_ref().err())
        .collect();
    assert!(!refused.is_empty());
    for refusal in refused {
        assert!(
            matches!(refusal, Refusal::QueueFull { num_waiting: 2, max_waiting: 2, retry_after }
                if *retry_after > Duration::ZERO),
            "{refusal:?}"
        );
    }
    drop(held);
    running.assert_all_free();
}

#[test]
fn a_stop_ends_every_request() {
    let running = Running::start(KnownModel::new(letter), &EngineOptions::default());
    let mut held = running.submit(request("held", 400)).expect("taken");
    running.engine.stop();
    let answer = running.read(&mut held);
    assert!(
        answer.end.is_none() || answer.reason() == FinishReason::Aborted,
        "{answer:?}"
    );
    while running.submit(request("late", 1)).is_ok() {
        std::thread::yield_now();
    }
    assert_eq!(
        running.submit(request("late", 1)).expect_err("stopped"),
        Refusal::Stopped
    );
}
