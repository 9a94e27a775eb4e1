//! The same logits to the last bit, whatever is computed beside a row, for a
//! small model of each architecture with weights of many types.

use std::iter;
use std::ops::Range;

use super::*;
use crate::backend::SequenceRows;
use crate::kernels::noise::Noise;
use crate::model::{Activation, NormPlacement, RopeConfig, RopePairing, RopeScaling, TensorRole};
use crate::weights::{DataType, StoredTensor};

/// Tensors that are in no file.
struct MemorySource {
    tensors: Vec<StoredTensor>,
    bytes: Vec<Vec<u8>>,
}

impl MemorySource {
    /// Makes a model's weights up; matrices take the types in turn.
    fn new(config: &ModelConfig, types: &[DataType]) -> Self {
        let mut noise = Noise(42);
        let (mut tensors, mut bytes) = (Vec::new(), Vec::new());
        let mut types = types.iter().copied().cycle();
        for role in TensorRole::all(config) {
            let shape = role.shape(config);
            let mut data_type = DataType::F32;
            if shape.len() == 2 {
                let fits = |kind: &DataType| shape[1].is_multiple_of(kind.block_len());
                data_type = types.find(fits).unwrap();
            }
            // Such that rows come out near to the size they went in with.
            let scale = match data_type {
                DataType::F32 | DataType::F16 | DataType::BF16 => 0.2,
                DataType::Q8_0 => 0.002,
                _ => 0.01,
            };
            let scale = if shape.len() == 1 { 1.0 } else { scale };
            bytes.push(noise.stored(data_type, shape.iter().product(), scale, None));
            let name = role.name(TensorNaming::Gguf, config);
            tensors.push(StoredTensor::in_memory(name, data_type, shape));
        }
        Self { tensors, bytes }
    }
}

impl WeightSource for MemorySource {
    fn tensor(&self, name: &str) -> Option<&StoredTensor> {
        self.tensors.iter().find(|tensor| tensor.name == name)
    }

    fn tensors(&self) -> &[StoredTensor] {
        &self.tensors
    }

    fn read_rows(
        &self,
        tensor: &StoredTensor,
        rows: Range<usize>,
        bytes: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let index = self.tensors.iter().position(|other| other == tensor);
        let row_bytes = tensor.row_bytes();
        bytes.clear();
        let all = &self.bytes[index.expect("a tensor of this source")];
        bytes.extend_from_slice(&all[rows.start * row_bytes..rows.end * row_bytes]);
        Ok(())
    }
}

fn rope(theta: f32, num_rotated: usize, pairing: RopePairing) -> RopeConfig {
    RopeConfig {
        theta,
        num_rotated,
        pairing,
        scaling: RopeScaling::None,
    }
}

fn llama() -> ModelConfig {
    ModelConfig {
        architecture: "llama".to_owned(),
        vocab_size: 77,
        hidden_size: 64,
        intermediate_size: 96,
        num_hidden_layers: 3,
        num_attention_heads: 6,
        num_key_value_heads: 2,
        head_dim: 16,
        max_position_embeddings: 1024,
        rms_norm_eps: 1e-5,
        norm_weight_is_offset: false,
        norm_placement: NormPlacement::Before,
        qk_norm: false,
        attention_bias: false,
        hidden_act: Activation::Silu,
        rope: rope(10_000.0, 16, RopePairing::Interleaved),
        local_rope: None,
        sliding_window: None,
        layer_is_local: vec![false; 3],
        embedding_scale: 1.0,
        attention_scale: 0.25,
        attn_logit_softcapping: None,
        final_logit_softcapping: None,
        tie_word_embeddings: true,
        bos_token_id: None,
        eos_token_ids: Vec::new(),
    }
}

fn qwen2() -> ModelConfig {
    ModelConfig {
        architecture: "qwen2".to_owned(),
        attention_bias: true,
        rope: rope(1e6, 16, RopePairing::Halves),
        tie_word_embeddings: false,
        ..llama()
    }
}

fn qwen3() -> ModelConfig {
    ModelConfig {
        architecture: "qwen3".to_owned(),
        head_dim: 32,
        num_attention_heads: 4,
        num_key_value_heads: 1,
        qk_norm: true,
        rope: rope(1e6, 32, RopePairing::Halves),
        ..llama()
    }
}

fn gemma2() -> ModelConfig {
    ModelConfig {
        architecture: "gemma2".to_owned(),
        norm_placement: NormPlacement::BeforeAndAfter,
        hidden_act: Activation::GeluTanh,
        rope: rope(10_000.0, 16, RopePairing::Halves),
        sliding_window: Some(5),
        layer_is_local: vec![true, false, true],
        embedding_scale: 8.0,
        attn_logit_softcapping: Some(50.0),
        final_logit_softcapping: Some(30.0),
        ..llama()
    }
}

fn gemma3() -> ModelConfig {
    ModelConfig {
        architecture: "gemma3".to_owned(),
        qk_norm: true,
        norm_weight_is_offset: true,
        rope: rope(1e6, 16, RopePairing::Halves),
        local_rope: Some(rope(10_000.0, 16, RopePairing::Halves)),
        attn_logit_softcapping: None,
        final_logit_softcapping: None,
        ..gemma2()
    }
}

const MIXED: [DataType; 7] = [
    DataType::Q8_0,
    DataType::Q4_1,
    DataType::Q5_0,
    DataType::F16,
    DataType::Q4_0,
    DataType::BF16,
    DataType::F32,
];

/// A backend, and the sequences that it has begun.
struct Run<'a> {
    backend: CpuBackend,
    texts: &'a [Vec<u32>],
    tables: Vec<Vec<BlockId>>,
    /// Bits of the logits of each token of each text.
    logits: Vec<Vec<Vec<u32>>>,
    outputs: Outputs,
}

impl<'a> Run<'a> {
    /// Loads a model; blocks lie in the order that `seed` gives.
    fn new(
        (config, types): (&ModelConfig, &[DataType]),
        isa: Isa,
        (num_threads, kv_type): (usize, KvType),
        (block_size, seed): (usize, u64),
        texts: &'a [Vec<u32>],
    ) -> Self {
        let source = MemorySource::new(config, types);
        let options = CpuOptions {
            num_threads,
            kv_type,
        };
        let naming = TensorNaming::Gguf;
        let mut backend =
            CpuBackend::load_for(isa, &source, config.clone(), naming, options).unwrap();
        let mut noise = Noise(seed);
        let counts: Vec<usize> = texts
            .iter()
            .map(|text| text.len().div_ceil(block_size))
            .collect();
        let total = counts.iter().sum::<usize>();
        backend.allocate(total + 3, block_size).unwrap();
        let mut free: Vec<BlockId> = (0..total as u32 + 3).map(BlockId).collect();
        let mut take = || free.swap_remove(noise.bits() as usize % free.len());
        let tables = counts
            .iter()
            .map(|&count| iter::repeat_with(&mut take).take(count).collect())
            .collect();
        Self {
            backend,
            texts,
            tables,
            logits: vec![Vec::new(); texts.len()],
            outputs: Outputs {
                wants_logits: true,
                ..Outputs::default()
            },
        }
    }

    /// Runs so many further tokens of each text that is named.
    fn step(&mut self, parts: &[(usize, usize)]) {
        let (mut token_ids, mut positions, mut rows) = (Vec::new(), Vec::new(), Vec::new());
        for &(text, num_rows) in parts {
            let start = self.logits[text].len();
            token_ids.extend_from_slice(&self.texts[text][start..start + num_rows]);
            positions.extend((start..start + num_rows).map(|position| position as u32));
            rows.push(SequenceRows {
                num_rows,
                block_table: &self.tables[text],
            });
        }
        let output_rows: Vec<u32> = (0..token_ids.len() as u32).collect();
        let batch = ForwardBatch {
            token_ids: &token_ids,
            positions: &positions,
            sequences: &rows,
            output_rows: &output_rows,
        };
        self.backend.forward(&batch, &mut self.outputs).unwrap();
        let width = self.backend.config.vocab_size;
        let mut found = self.outputs.logits.chunks_exact(width);
        for &(text, num_rows) in parts {
            for logits in found.by_ref().take(num_rows) {
                let bits = logits.iter().map(|x| x.to_bits()).collect();
                self.logits[text].push(bits);
            }
        }
    }

    /// Runs all texts to their end, each alone, in chunks.
    fn alone(mut self, chunk: usize) -> Vec<Vec<Vec<u32>>> {
        for (text, tokens) in self.texts.iter().enumerate() {
            while self.logits[text].len() < tokens.len() {
                let left = tokens.len() - self.logits[text].len();
                self.step(&[(text, chunk.min(left))]);
            }
        }
        self.logits
    }

    /// Runs all texts to their end, some rows of each in every step.
    fn together(mut self, seed: u64) -> Vec<Vec<Vec<u32>>> {
        let mut noise = Noise(seed);
        loop {
            let mut parts = Vec::new();
            for (text, tokens) in self.texts.iter().enumerate() {
                let left = tokens.len() - self.logits[text].len();
                let count = (noise.bits() as usize % 9).min(left);
                if count > 0 {
                    parts.push((text, count));
                }
            }
            if noise.bits().is_multiple_of(2) {
                parts.reverse();
            }
            self.step(&parts);
            let unfinished = |(logits, text): (&Vec<_>, &Vec<_>)| logits.len() < text.len();
            if !self.logits.iter().zip(self.texts).any(unfinished) {
                return self.logits;
            }
        }
    }
}

fn texts(lengths: &[usize], vocab_size: usize) -> Vec<Vec<u32>> {
    let mut noise = Noise(1);
    let mut text = |len: usize| {
        let token = |_| noise.bits() % vocab_size as u32;
        (0..len).map(token).collect()
    };
    lengths.iter().map(|&len| text(len)).collect()
}

/// Checks that nothing but a row's own text changes its logits.
fn check(config: &ModelConfig, types: &[DataType], lengths: &[usize]) {
    let texts = texts(lengths, config.vocab_size);
    let model = (config, types);
    let best = Isa::best();
    for kv_type in [KvType::F16, KvType::F32] {
        let one = (1, kv_type);
        let whole = Run::new(model, best, one, (16, 1), &texts).alone(usize::MAX);
        let finite = |bits: &u32| f32::from_bits(*bits).is_finite();
        assert!(whole.iter().flatten().flatten().all(finite));
        let differ = |rows: &Vec<Vec<u32>>| rows.windows(2).any(|pair| pair[0] != pair[1]);
        assert!(whole.iter().any(differ), "logits depend on their token");
        for (chunk, num_threads, block_size) in [(1, 2, 16), (7, 1, 8), (16, 3, 5), (40, 2, 32)] {
            let threads = (num_threads, kv_type);
            let run = Run::new(model, best, threads, (block_size, chunk as u64), &texts);
            assert!(run.alone(chunk) == whole, "{kv_type:?}: chunks of {chunk}");
        }
        for seed in 0..3 {
            let threads = (1 + seed as usize, kv_type);
            let run = Run::new(model, best, threads, (4, seed), &texts);
            assert!(
                run.together(seed) == whole,
                "{kv_type:?}: together, seed {seed}"
            );
        }
        let portable = Run::new(model, Isa::Portable, one, (16, 1), &texts);
        assert!(portable.alone(usize::MAX) == whole, "{kv_type:?}: portable");
    }
}

#[test]
fn llama_depends_on_nothing_else() {
    check(&llama(), &MIXED, &[23, 9, 1]);
}

#[test]
fn qwen2_depends_on_nothing_else() {
    check(&qwen2(), &MIXED, &[17, 20]);
}

#[test]
fn qwen3_depends_on_nothing_else() {
    check(&qwen3(), &MIXED, &[19, 6]);
}

#[test]
fn gemma2_depends_on_nothing_else() {
    check(&gemma2(), &MIXED, &[21, 13]);
}

#[test]
fn gemma3_depends_on_nothing_else() {
    check(&gemma3(), &MIXED, &[22, 12]);
}

#[test]
fn blocks_of_256_depend_on_nothing_else() {
    let config = ModelConfig {
        hidden_size: 256,
        intermediate_size: 256,
        num_hidden_layers: 1,
        layer_is_local: vec![false],
        num_attention_heads: 8,
        head_dim: 32,
        rope: rope(10_000.0, 32, RopePairing::Halves),
        ..llama()
    };
    let types = [
        DataType::Q4K,
        DataType::Q6K,
        DataType::Q5K,
        DataType::Q3K,
        DataType::Q2K,
        DataType::Q5_1,
    ];
    check(&config, &types, &[9, 4]);
}

#[test]
fn long_texts_depend_on_nothing_else() {
    let config = ModelConfig {
        num_hidden_layers: 1,
        layer_is_local: vec![false],
        num_attention_heads: 2,
        num_key_value_heads: 1,
        hidden_size: 32,
        intermediate_size: 32,
        ..llama()
    };
    check(&config, &[DataType::Q4_0], &[270]);
}

#[test]
fn what_is_not_asked_for_is_not_computed() {
    let config = gemma2();
    let texts = texts(&[8], config.vocab_size);
    let mut run = Run::new(
        (&config, &MIXED),
        Isa::best(),
        (2, KvType::F16),
        (4, 1),
        &texts,
    );
    run.step(&[(0, 8)]);
    let all = run.outputs.logits.clone();
    let batch = ForwardBatch {
        token_ids: &texts[0],
        positions: &[0, 1, 2, 3, 4, 5, 6, 7],
        sequences: &[SequenceRows {
            num_rows: 8,
            block_table: &run.tables[0],
        }],
        output_rows: &[2, 7],
    };
    let mut outputs = Outputs {
        wants_logits: true,
        wants_hidden: true,
        ..Outputs::default()
    };
    run.backend.forward(&batch, &mut outputs).unwrap();
    let width = config.vocab_size;
    let expected = [&all[2 * width..3 * width], &all[7 * width..]].concat();
    assert_eq!(outputs.logits, expected);
    assert_eq!(outputs.hidden.len(), 2 * config.hidden_size);
    assert!(outputs.hidden.iter().any(|&x| x != 0.0));
    let hidden = outputs.hidden.clone();
    outputs.wants_logits = false;
    run.backend.forward(&batch, &mut outputs).unwrap();
    assert!(outputs.logits.is_empty());
    assert_eq!(outputs.hidden, hidden);
    let nothing = ForwardBatch {
        output_rows: &[],
        ..batch
    };
    run.backend.forward(&nothing, &mut outputs).unwrap();
    assert!(outputs.hidden.is_empty());
}

#[test]
fn a_copied_block_stands_for_its_origin() {
    let config = llama();
    let texts = texts(&[12], config.vocab_size);
    let whole = Run::new(
        (&config, &MIXED),
        Isa::best(),
        (1, KvType::F16),
        (4, 1),
        &texts,
    )
    .alone(12);
    let mut run = Run::new(
        (&config, &MIXED),
        Isa::best(),
        (1, KvType::F16),
        (4, 1),
        &texts,
    );
    run.step(&[(0, 6)]);
    let shared = run.tables[0][1];
    let spare = (0..6).map(BlockId).find(|id| !run.tables[0].contains(id));
    let spare = spare.expect("three blocks more than tables need");
    run.backend.copy_block(shared, spare);
    run.tables[0][1] = spare;
    run.step(&[(0, 6)]);
    assert!(run.logits == whole);
}

#[test]
fn models_and_settings_that_cannot_be_run_are_refused() {
    let options = CpuOptions {
        num_threads: 1,
        kv_type: KvType::F16,
    };
    let load = |config: ModelConfig, options| {
        let source = MemorySource::new(&llama(), &[DataType::F32]);
        CpuBackend::load(&source, config, TensorNaming::Gguf, options).inspect(|backend| {
            assert!(backend.weight_bytes() > 0);
        })
    };
    let mut backend = load(llama(), options).unwrap();
    assert_eq!(backend.kv_bytes_per_token(), 2 * 3 * 2 * 16 * 2);
    for (num_blocks, block_size) in [(1, 0), (usize::MAX, 16), (1 << 50, 16)] {
        assert!(matches!(
            backend.allocate(num_blocks, block_size),
            Err(Error::Setting { .. })
        ));
    }
    let no_threads = CpuOptions {
        num_threads: 0,
        ..options
    };
    assert!(matches!(
        load(llama(), no_threads),
        Err(Error::Setting { .. })
    ));
    assert!(matches!(load(qwen2(), options), Err(Error::Tensor { .. })));
    let uneven = ModelConfig {
        num_key_value_heads: 4,
        ..llama()
    };
    assert!(matches!(
        load(uneven, options),
        Err(Error::Unsupported { .. })
    ));
}
