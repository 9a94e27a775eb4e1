//! Weights of a model in memory, read tensor by tensor and some rows at a
//! time: never more than they take plus [`READ_BYTES`].

use crate::error::Error;
use crate::kernels::matmul::Matrix;
use crate::kernels::packed::TILE;
use crate::model::{LayerTensor, ModelConfig, NormPlacement, TensorNaming, TensorRole};
use crate::weights::WeightSource;

/// Bytes of a file that are read at once.
const READ_BYTES: usize = 4 << 20;

/// All weights of a model.
#[derive(Debug)]
pub(super) struct Weights {
    /// `(vocab_size, hidden_size)`
    pub(super) embed_tokens: Matrix,
    pub(super) layers: Vec<LayerWeights>,
    /// `(hidden_size)`
    pub(super) norm: Vec<f32>,
    /// `(vocab_size, hidden_size)`, unless it is the embedding.
    pub(super) lm_head: Option<Matrix>,
}

/// Weights of a layer; shapes as in [`LayerTensor`].
#[derive(Debug)]
pub(super) struct LayerWeights {
    pub(super) attention_norm: Vec<f32>,
    pub(super) q_proj: Projection,
    pub(super) k_proj: Projection,
    pub(super) v_proj: Projection,
    pub(super) q_norm: Option<Vec<f32>>,
    pub(super) k_norm: Option<Vec<f32>>,
    pub(super) o_proj: Matrix,
    pub(super) attention_output_norm: Option<Vec<f32>>,
    pub(super) feed_forward_norm: Vec<f32>,
    pub(super) gate_proj: Matrix,
    pub(super) up_proj: Matrix,
    pub(super) down_proj: Matrix,
    pub(super) feed_forward_output_norm: Option<Vec<f32>>,
}

/// A matrix, and what is added to its product.
#[derive(Debug)]
pub(super) struct Projection {
    pub(super) matrix: Matrix,
    pub(super) bias: Option<Vec<f32>>,
}

impl Weights {
    /// Reads all weights of a model.
    ///
    /// # Errors
    /// [`Error::Tensor`] where one is absent or has another shape, [`Error::Read`],
    /// and [`Error::Setting`] if memory does not suffice.
    pub(super) fn load(
        source: &dyn WeightSource,
        config: &ModelConfig,
        naming: TensorNaming,
    ) -> Result<Self, Error> {
        let mut loader = Loader {
            source,
            config,
            naming,
            bytes: Vec::new(),
        };
        let embed_tokens = loader.matrix(TensorRole::EmbedTokens)?;
        let layers = (0..config.num_hidden_layers)
            .map(|layer| loader.layer(layer))
            .collect::<Result<_, _>>()?;
        let lm_head = if config.tie_word_embeddings {
            None
        } else {
            Some(loader.matrix(TensorRole::LmHead)?)
        };
        Ok(Self {
            embed_tokens,
            layers,
            norm: loader.norm(TensorRole::Norm)?,
            lm_head,
        })
    }

    /// Returns the output matrix.
    pub(super) fn output(&self) -> &Matrix {
        self.lm_head.as_ref().unwrap_or(&self.embed_tokens)
    }

    /// Returns the bytes of all matrices.
    pub(super) fn num_bytes(&self) -> usize {
        let layers = self.layers.iter().map(|layer| {
            layer.q_proj.matrix.num_bytes()
                + layer.k_proj.matrix.num_bytes()
                + layer.v_proj.matrix.num_bytes()
                + layer.o_proj.num_bytes()
                + layer.gate_proj.num_bytes()
                + layer.up_proj.num_bytes()
                + layer.down_proj.num_bytes()
        });
        self.embed_tokens.num_bytes()
            + layers.sum::<usize>()
            + self.lm_head.as_ref().map_or(0, Matrix::num_bytes)
    }
}

struct Loader<'a> {
    source: &'a dyn WeightSource,
    config: &'a ModelConfig,
    naming: TensorNaming,
    bytes: Vec<u8>,
}

impl Loader<'_> {
    fn layer(&mut self, layer: usize) -> Result<LayerWeights, Error> {
        let role = |part| TensorRole::Layer(layer, part);
        let norms_behind = self.config.norm_placement == NormPlacement::BeforeAndAfter;
        let biased = self.config.attention_bias;
        let heads_normed = self.config.qk_norm;
        Ok(LayerWeights {
            attention_norm: self.norm(role(LayerTensor::AttentionNorm))?,
            q_proj: Projection {
                matrix: self.matrix(role(LayerTensor::QProj))?,
                bias: self.vector_if(biased, role(LayerTensor::QBias))?,
            },
            k_proj: Projection {
                matrix: self.matrix(role(LayerTensor::KProj))?,
                bias: self.vector_if(biased, role(LayerTensor::KBias))?,
            },
            v_proj: Projection {
                matrix: self.matrix(role(LayerTensor::VProj))?,
                bias: self.vector_if(biased, role(LayerTensor::VBias))?,
            },
            q_norm: self.norm_if(heads_normed, role(LayerTensor::QNorm))?,
            k_norm: self.norm_if(heads_normed, role(LayerTensor::KNorm))?,
            o_proj: self.matrix(role(LayerTensor::OProj))?,
            attention_output_norm: self
                .norm_if(norms_behind, role(LayerTensor::AttentionOutputNorm))?,
            feed_forward_norm: self.norm(role(LayerTensor::FeedForwardNorm))?,
            gate_proj: self.matrix(role(LayerTensor::GateProj))?,
            up_proj: self.matrix(role(LayerTensor::UpProj))?,
            down_proj: self.matrix(role(LayerTensor::DownProj))?,
            feed_forward_output_norm: self
                .norm_if(norms_behind, role(LayerTensor::FeedForwardOutputNorm))?,
        })
    }

    fn matrix(&mut self, role: TensorRole) -> Result<Matrix, Error> {
        let tensor = role.find(self.source, self.naming, self.config)?;
        let (num_rows, num_columns) = (tensor.num_rows(), tensor.row_len());
        let mut matrix = Matrix::zeroed(tensor.data_type, num_rows, num_columns)
            .ok_or_else(|| out_of_memory(&tensor.name, tensor.num_bytes()))?;
        let at_once = READ_BYTES / tensor.row_bytes().max(1) / TILE * TILE;
        let mut first = 0;
        while first < num_rows {
            let rows = first..num_rows.min(first + at_once.max(TILE));
            first = rows.end;
            self.source
                .read_rows(tensor, rows.clone(), &mut self.bytes)?;
            matrix.put_rows(rows.start, &self.bytes);
        }
        Ok(matrix)
    }

    fn vector(&mut self, role: TensorRole) -> Result<Vec<f32>, Error> {
        let tensor = role.find(self.source, self.naming, self.config)?;
        self.source.read(tensor, &mut self.bytes)?;
        let mut values = vec![0.0; tensor.num_values()];
        tensor.data_type.dequantize(&self.bytes, &mut values);
        Ok(values)
    }

    fn vector_if(&mut self, wanted: bool, role: TensorRole) -> Result<Option<Vec<f32>>, Error> {
        wanted.then(|| self.vector(role)).transpose()
    }

    fn norm(&mut self, role: TensorRole) -> Result<Vec<f32>, Error> {
        let mut weights = self.vector(role)?;
        if self.config.norm_weight_is_offset {
            for weight in &mut weights {
                *weight += 1.0;
            }
        }
        Ok(weights)
    }

    fn norm_if(&mut self, wanted: bool, role: TensorRole) -> Result<Option<Vec<f32>>, Error> {
        wanted.then(|| self.norm(role)).transpose()
    }
}

fn out_of_memory(name: &str, num_bytes: usize) -> Error {
    Error::Setting {
        setting: "model",
        value: name.to_owned(),
        reason: format!("no memory for its {num_bytes} bytes"),
    }
}
