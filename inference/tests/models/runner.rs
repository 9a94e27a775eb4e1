//! The engine's backend as tests run it: whole texts in chunks, several at a
//! time, through block tables in no order.

use std::path::Path;

use justapi_inference::{
    Backend, BlockId, CpuBackend, CpuOptions, ForwardBatch, ModelConfig, ModelFiles, Outputs,
    SequenceRows,
};

use crate::tiny::Random;

/// A backend with a pool, and the texts that it has seen.
pub(crate) struct Runner {
    backend: Box<dyn Backend>,
    outputs: Outputs,
    texts: Vec<Text>,
}

struct Text {
    block_table: Vec<BlockId>,
    length: usize,
}

const BLOCK_SIZE: usize = 16;

impl Runner {
    /// Opens a model with room for texts of at most so many tokens each.
    pub(crate) fn open(path: &Path, num_texts: usize, max_tokens: usize) -> Self {
        Self::new(open(path, None), num_texts, max_tokens)
    }

    /// Opens a model as if its files said this of it.
    pub(crate) fn open_as(path: &Path, config: &ModelConfig, max_tokens: usize) -> Self {
        Self::open_with_texts(path, config, 1, max_tokens)
    }

    /// As [`Runner::open_as`], for several texts.
    pub(crate) fn open_with_texts(
        path: &Path,
        config: &ModelConfig,
        num_texts: usize,
        max_tokens: usize,
    ) -> Self {
        Self::new(open(path, Some(config)), num_texts, max_tokens)
    }

    fn new(mut backend: Box<dyn Backend>, num_texts: usize, max_tokens: usize) -> Self {
        let blocks_of_text = max_tokens.div_ceil(BLOCK_SIZE);
        let mut blocks: Vec<_> = (0..(num_texts * blocks_of_text) as u32)
            .map(BlockId)
            .collect();
        backend
            .allocate(blocks.len(), BLOCK_SIZE)
            .expect("memory for a test");
        let mut random = Random::new("blocks");
        for last in (1..blocks.len()).rev() {
            blocks.swap(last, random.below(last + 1) as usize);
        }
        let texts = blocks.chunks(blocks_of_text);
        let texts = texts
            .map(|table| Text {
                block_table: table.to_vec(),
                length: 0,
            })
            .collect();
        let outputs = Outputs {
            wants_logits: true,
            wants_hidden: true,
            ..Outputs::default()
        };
        Self {
            backend,
            outputs,
            texts,
        }
    }

    pub(crate) fn config(&self) -> &ModelConfig {
        self.backend.config()
    }

    /// Appends tokens to each text, all in one batch. Calls back with each text, position and logits.
    pub(crate) fn extend(
        &mut self,
        token_ids: &[&[u32]],
        mut with_logits: impl FnMut(usize, usize, &[f32]),
    ) {
        assert_eq!(token_ids.len(), self.texts.len());
        let rows: Vec<(usize, u32)> = self
            .texts
            .iter()
            .zip(token_ids)
            .enumerate()
            .flat_map(|(index, (text, ids))| {
                let positions = text.length..text.length + ids.len();
                positions.map(move |position| (index, position as u32))
            })
            .collect();
        let texts = self
            .texts
            .iter()
            .zip(token_ids)
            .filter(|(_, ids)| !ids.is_empty());
        let sequences: Vec<_> = texts
            .map(|(text, ids)| SequenceRows {
                num_rows: ids.len(),
                block_table: &text.block_table,
            })
            .collect();
        let positions: Vec<u32> = rows.iter().map(|&(_, position)| position).collect();
        let output_rows: Vec<u32> = (0..rows.len() as u32).collect();
        let batch = ForwardBatch {
            token_ids: &token_ids.concat(),
            positions: &positions,
            sequences: &sequences,
            output_rows: &output_rows,
        };
        self.backend
            .forward(&batch, &mut self.outputs)
            .expect("a processor does not fail");
        let vocab_size = self.config().vocab_size;
        assert_eq!(
            self.outputs.logits.len(),
            rows.len() * vocab_size,
            "logits of each row"
        );
        assert_eq!(
            self.outputs.hidden.len(),
            rows.len() * self.config().hidden_size
        );
        for (&(text, position), logits) in rows
            .iter()
            .zip(self.outputs.logits.chunks_exact(vocab_size))
        {
            with_logits(text, position as usize, logits);
        }
        for (text, ids) in self.texts.iter_mut().zip(token_ids) {
            text.length += ids.len();
        }
    }

    /// Returns the mean of the states behind the last norm of one text. (`hidden_size`)
    pub(crate) fn mean_state(&mut self, token_ids: &[u32]) -> Vec<f64> {
        self.run(token_ids, token_ids.len(), |_, _| {});
        let mut mean = vec![0.0; self.config().hidden_size];
        for state in self.outputs.hidden.chunks_exact(mean.len()) {
            for (mean, &x) in mean.iter_mut().zip(state) {
                *mean += f64::from(x) / token_ids.len() as f64;
            }
        }
        mean
    }

    /// Runs one text in chunks. Calls back with each position and its logits.
    pub(crate) fn run(
        &mut self,
        token_ids: &[u32],
        chunk: usize,
        mut with_logits: impl FnMut(usize, &[f32]),
    ) {
        self.texts[0].length = 0;
        for ids in token_ids.chunks(chunk) {
            self.extend(&[ids], |_, position, logits| with_logits(position, logits));
        }
    }

    /// Returns the logits behind each token of one text.
    pub(crate) fn logits(&mut self, token_ids: &[u32], chunk: usize) -> Vec<Vec<f32>> {
        let mut rows = Vec::new();
        self.run(token_ids, chunk, |_, logits| rows.push(logits.to_vec()));
        rows
    }
}

fn open(path: &Path, config: Option<&ModelConfig>) -> Box<dyn Backend> {
    let (files, found) = ModelFiles::open(path).expect("the model is sound");
    let config = config.cloned().unwrap_or(found);
    let options = CpuOptions {
        num_threads: 2,
        ..CpuOptions::default()
    };
    let backend = CpuBackend::load(files.weights(), config, files.naming(), options);
    Box::new(backend.expect("the model is one that the engine runs"))
}

pub(crate) fn to_f64(rows: &[Vec<f32>]) -> Vec<Vec<f64>> {
    rows.iter()
        .map(|row| row.iter().copied().map(f64::from).collect())
        .collect()
}
