//! Weights of the reference: f32 as the file means them, by Hugging Face's
//! names, with a product in f64.

use std::collections::BTreeMap;
use std::thread;

/// Matrix or vector. (`rows`, `columns`), row by row
#[derive(Clone, Debug)]
pub(crate) struct Matrix {
    columns: usize,
    values: Vec<f32>,
}

impl Matrix {
    pub(crate) fn new(columns: usize, values: Vec<f32>) -> Self {
        assert!(
            columns > 0 && values.len().is_multiple_of(columns),
            "whole rows"
        );
        Self { columns, values }
    }

    pub(crate) fn values(&self) -> &[f32] {
        &self.values
    }

    pub(crate) fn row(&self, index: usize) -> &[f32] {
        &self.values[index * self.columns..][..self.columns]
    }

    /// Returns `input · selfᵀ`: (m, `columns`) gives (m, `rows`).
    pub(crate) fn times(&self, input: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let num_rows = self.values.len() / self.columns;
        let product = |rows: std::ops::Range<usize>| -> Vec<Vec<f64>> {
            rows.map(|row| input.iter().map(|x| dot(self.row(row), x)).collect())
                .collect()
        };
        // (rows, m), in two threads: a real model takes seconds.
        let columns = thread::scope(|scope| {
            let upper = scope.spawn(|| product(num_rows / 2..num_rows));
            let mut columns = product(0..num_rows / 2);
            columns.extend(upper.join().expect("the product does not panic"));
            columns
        });
        (0..input.len())
            .map(|m| columns.iter().map(|column| column[m]).collect())
            .collect()
    }
}

/// Sums in eight lanes, so that the compiler may vectorise; f64 makes the order immaterial.
fn dot(weights: &[f32], input: &[f64]) -> f64 {
    assert_eq!(weights.len(), input.len(), "columns of a product");
    let mut lanes = [0.0; 8];
    let (weights, weights_rest) = weights.as_chunks::<8>();
    let (input, input_rest) = input.as_chunks::<8>();
    for (w, x) in weights.iter().zip(input) {
        for lane in 0..8 {
            lanes[lane] += f64::from(w[lane]) * x[lane];
        }
    }
    let rest: f64 = weights_rest
        .iter()
        .zip(input_rest)
        .map(|(&w, x)| f64::from(w) * x)
        .sum();
    lanes.iter().sum::<f64>() + rest
}

/// Tensors of a model by Hugging Face's names.
#[derive(Debug, Default)]
pub(crate) struct Weights(BTreeMap<String, Matrix>);

impl Weights {
    pub(crate) fn insert(&mut self, name: String, matrix: Matrix) {
        assert!(self.0.insert(name, matrix).is_none(), "each tensor once");
    }

    pub(crate) fn get(&self, name: &str) -> &Matrix {
        self.0
            .get(name)
            .unwrap_or_else(|| panic!("the file has no {name}"))
    }
}
