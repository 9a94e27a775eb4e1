//! Functions of single elements and of single rows: exponential, gates, soft
//! limits, sums, root mean square norm.
//!
//! Guarantee: within a few units in the last place of the true value, and the
//! same bits with any instructions.

#![expect(unsafe_code, reason = "compiled for several sets of instructions")]

use crate::kernels::isa::dispatch;
use crate::kernels::lanes::{Lanes, NUM_LANES};

/// Below this the exponential is zero: its result would not be normal.
pub(crate) const LEAST_EXPONENT: f32 = -87.3;

/// Returns e^x; 0 below [`LEAST_EXPONENT`], and e^88.3 above 88.3.
#[inline(always)]
pub(crate) fn exp<L: Lanes>(l: L, x: L::Vector) -> L::Vector {
    // e^x = 2^n * e^r, with n whole and |r| at most ln(2) / 2. The upper part
    // of ln(2) has so few bits that its product with n is exact.
    const SHIFT: f32 = 12_582_912.0;
    const LN2_UPPER: f32 = 0.693_145_75;
    const LN2_LOWER: f32 = 1.428_606_8e-6;
    let bounded = l.max(l.min(x, l.splat(88.3)), l.splat(LEAST_EXPONENT));
    let shifted = l.fma(bounded, l.splat(std::f32::consts::LOG2_E), l.splat(SHIFT));
    let n = l.sub(shifted, l.splat(SHIFT));
    let r = l.fma(n, l.splat(-LN2_UPPER), bounded);
    let r = l.fma(n, l.splat(-LN2_LOWER), r);
    // Taylor's series; the first term left out is below 6e-9.
    let mut sum = l.splat(1.0 / 5040.0);
    for coefficient in [
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ] {
        sum = l.fma(sum, r, l.splat(coefficient));
    }
    let result = l.mul(sum, l.power_of_two(shifted));
    l.select_less(x, l.splat(LEAST_EXPONENT), l.splat(0.0), result)
}

/// Returns e^x of one number.
#[inline(always)]
pub(crate) fn exp_of<L: Lanes>(l: L, x: f32) -> f32 {
    l.to_array(exp(l, l.splat(x)))[0]
}

/// Returns x / (1 + e^-x).
#[inline(always)]
fn silu<L: Lanes>(l: L, x: L::Vector) -> L::Vector {
    let one = l.splat(1.0);
    l.div(x, l.add(one, exp(l, l.sub(l.splat(0.0), x))))
}

/// Returns x * (1 + tanh(y)) / 2 with y = sqrt(2 / pi) * (x + 0.044715 * x^3), as x / (1 + e^-2y).
#[inline(always)]
fn gelu_tanh<L: Lanes>(l: L, x: L::Vector) -> L::Vector {
    const FACTOR: f32 = -2.0 * 0.797_884_6;
    let inner = l.fma(l.mul(l.splat(0.044_715), l.mul(x, x)), x, x);
    let exponential = exp(l, l.mul(inner, l.splat(FACTOR)));
    l.div(x, l.add(l.splat(1.0), exponential))
}

/// Returns the hyperbolic tangent.
#[inline(always)]
pub(crate) fn tanh<L: Lanes>(l: L, x: L::Vector) -> L::Vector {
    // Near 0, an odd polynomial: that of Cephes (tanhf.c), for |x| < 0.625.
    let square = l.mul(x, x);
    let mut near = l.splat(-5.704_988_7e-3);
    for coefficient in [2.063_908_8e-2, -5.373_971_6e-2, 0.133_314_42, -0.333_332_8] {
        near = l.fma(near, square, l.splat(coefficient));
    }
    let near = l.fma(l.mul(near, square), x, x);
    // Elsewhere 1 - 2 / (e^2|x| + 1), with the sign of x.
    let magnitude = l.abs(x);
    let one = l.splat(1.0);
    let exponential = exp(l, l.add(magnitude, magnitude));
    let far = l.sub(one, l.div(l.splat(2.0), l.add(exponential, one)));
    let far = l.select_less(x, l.splat(0.0), l.sub(l.splat(0.0), far), far);
    l.select_less(magnitude, l.splat(0.625), near, far)
}

/// A function of two numbers. Not a closure: only what is inlined for certain
/// is compiled with the instructions of its caller.
trait Update {
    /// Returns what replaces x.
    fn apply<L: Lanes>(&self, l: L, x: L::Vector, y: L::Vector) -> L::Vector;
}

/// silu(x) * y
struct SiluGate;

impl Update for SiluGate {
    #[inline(always)]
    fn apply<L: Lanes>(&self, l: L, x: L::Vector, y: L::Vector) -> L::Vector {
        l.mul(silu(l, x), y)
    }
}

/// gelu(x) * y
struct GeluTanhGate;

impl Update for GeluTanhGate {
    #[inline(always)]
    fn apply<L: Lanes>(&self, l: L, x: L::Vector, y: L::Vector) -> L::Vector {
        l.mul(gelu_tanh(l, x), y)
    }
}

/// x + y
struct Add;

impl Update for Add {
    #[inline(always)]
    fn apply<L: Lanes>(&self, l: L, x: L::Vector, y: L::Vector) -> L::Vector {
        l.add(x, y)
    }
}

/// x * factor * y
struct Scale(f32);

impl Update for Scale {
    #[inline(always)]
    fn apply<L: Lanes>(&self, l: L, x: L::Vector, y: L::Vector) -> L::Vector {
        l.mul(l.mul(x, l.splat(self.0)), y)
    }
}

/// Replaces each element x of `to`, with y of `from` beside it.
#[inline(always)]
fn update<L: Lanes>(l: L, to: &mut [f32], from: &[f32], f: &impl Update) {
    assert_eq!(to.len(), from.len());
    let (vectors, rest) = to.as_chunks_mut::<NUM_LANES>();
    let (from_vectors, from_rest) = from.as_chunks::<NUM_LANES>();
    for (to, from) in vectors.iter_mut().zip(from_vectors) {
        *to = l.to_array(f.apply(l, l.vector_of(to), l.vector_of(from)));
    }
    if !rest.is_empty() {
        let (mut x, mut y) = ([0.0; NUM_LANES], [0.0; NUM_LANES]);
        x[..rest.len()].copy_from_slice(rest);
        y[..rest.len()].copy_from_slice(from_rest);
        let result = l.to_array(f.apply(l, l.vector_of(&x), l.vector_of(&y)));
        rest.copy_from_slice(&result[..rest.len()]);
    }
}

#[inline(always)]
fn silu_gate_body<L: Lanes>(l: L, gate: &mut [f32], up: &[f32]) {
    update(l, gate, up, &SiluGate);
}

#[inline(always)]
fn gelu_tanh_gate_body<L: Lanes>(l: L, gate: &mut [f32], up: &[f32]) {
    update(l, gate, up, &GeluTanhGate);
}

#[inline(always)]
fn add_body<L: Lanes>(l: L, to: &mut [f32], from: &[f32]) {
    update(l, to, from, &Add);
}

/// Returns `cap * tanh(x / cap)`.
#[inline(always)]
pub(crate) fn capped<L: Lanes>(l: L, x: L::Vector, cap: f32) -> L::Vector {
    l.mul(l.splat(cap), tanh(l, l.div(x, l.splat(cap))))
}

#[inline(always)]
fn soft_cap_body<L: Lanes>(l: L, values: &mut [f32], cap: f32) {
    let (vectors, rest) = values.as_chunks_mut::<NUM_LANES>();
    for to in vectors {
        *to = l.to_array(capped(l, l.vector_of(to), cap));
    }
    for to in rest {
        *to = l.to_array(capped(l, l.splat(*to), cap))[0];
    }
}

#[inline(always)]
fn rms_norm_body<L: Lanes>(l: L, row: &[f32], weight: &[f32], eps: f32, to: &mut [f32]) {
    // Squares of f32 are exact in f64.
    let mut sums = [0.0_f64; NUM_LANES];
    let (vectors, rest) = row.as_chunks::<NUM_LANES>();
    for vector in vectors {
        for (sum, &x) in sums.iter_mut().zip(vector) {
            *sum += f64::from(x) * f64::from(x);
        }
    }
    for (sum, &x) in sums.iter_mut().zip(rest) {
        *sum += f64::from(x) * f64::from(x);
    }
    let four: [f64; 4] = std::array::from_fn(|lane| sums[lane] + sums[lane + 4]);
    let sum = (four[0] + four[2]) + (four[1] + four[3]);
    let factor = (1.0 / (sum / row.len() as f64 + f64::from(eps)).sqrt()) as f32;
    to.copy_from_slice(row);
    update(l, to, weight, &Scale(factor));
}

dispatch! {
    /// Replaces `gate` by silu(gate) * up.
    fn silu_gate(gate: &mut [f32], up: &[f32]) = silu_gate_body;
}
dispatch! {
    /// Replaces `gate` by gelu(gate) * up, with the tanh approximation.
    fn gelu_tanh_gate(gate: &mut [f32], up: &[f32]) = gelu_tanh_gate_body;
}
dispatch! {
    /// Adds `from` to `to`.
    fn add(to: &mut [f32], from: &[f32]) = add_body;
}
dispatch! {
    /// Replaces each x by `cap * tanh(x / cap)`.
    fn soft_cap(values: &mut [f32], cap: f32) = soft_cap_body;
}
dispatch! {
    /// Writes row * weight / sqrt(mean(row^2) + eps).
    fn rms_norm(row: &[f32], weight: &[f32], eps: f32, to: &mut [f32]) = rms_norm_body;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kernels::isa::{Isa, Portable};

    /// Runs with all instructions, and checks that they agree and are near the truth.
    fn check(x: &[f32], run: impl Fn(Isa, &mut [f32]), truth: impl Fn(usize) -> f64, bound: f64) {
        let mut result = x.to_vec();
        run(Isa::best(), &mut result);
        let mut portable = x.to_vec();
        run(Isa::Portable, &mut portable);
        for (index, (result, portable)) in result.iter().zip(&portable).enumerate() {
            assert_eq!(result.to_bits(), portable.to_bits(), "{}", x[index]);
            let truth = truth(index);
            let error = (f64::from(*result) - truth).abs();
            let scale = truth.abs().max(1e-30);
            assert!(error <= bound * scale, "{}: {result} {truth}", x[index]);
        }
    }

    fn numbers(range: f32) -> Vec<f32> {
        (-5000..=5001_i16)
            .map(|i| f32::from(i) / 5000.0 * range)
            .chain([0.0, 1e-20, -1e-20, 1e-6])
            .collect()
    }

    #[test]
    fn exponentials_are_near() {
        for x in numbers(87.0) {
            let truth = f64::from(x).exp();
            let error = (f64::from(exp_of(Portable, x)) - truth).abs() / truth;
            assert!(error < 2.0 * f64::from(f32::EPSILON), "{x}: {error}");
        }
        assert_eq!(exp_of(Portable, 0.0).to_bits(), 1.0_f32.to_bits());
        assert_eq!(exp_of(Portable, f32::NEG_INFINITY).to_bits(), 0);
        assert!(exp_of(Portable, 1e9).is_finite());
    }

    #[test]
    fn gates_are_near() {
        let x = numbers(30.0);
        let y: Vec<f32> = x.iter().map(|x| x * 0.5 - 1.0).collect();
        let silu = |i: usize| {
            let (x, y) = (f64::from(x[i]), f64::from(y[i]));
            x / (1.0 + (-x).exp()) * y
        };
        check(&x, |isa, to| silu_gate(isa, to, &y), silu, 2e-6);
        // Beyond, an exponent's rounding is multiplied by its size.
        let x = numbers(4.0);
        let y: Vec<f32> = x.iter().map(|x| x * 0.5 - 1.0).collect();
        let gelu = |i: usize| {
            let (x, y) = (f64::from(x[i]), f64::from(y[i]));
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
            x / (1.0 + (-2.0 * inner).exp()) * y
        };
        check(&x, |isa, to| gelu_tanh_gate(isa, to, &y), gelu, 4e-6);
    }

    #[test]
    fn soft_limits_are_near() {
        let x = numbers(200.0);
        let truth = |i: usize| 30.0 * (f64::from(x[i]) / 30.0).tanh();
        check(&x, |isa, to| soft_cap(isa, to, 30.0), truth, 1e-6);
    }

    proptest! {
        #[test]
        fn norms_are_near(
            pairs in prop::collection::vec((-3.0_f32..3.0, -2.0_f32..2.0), 1..300),
            exponent in -10_i32..10,
        ) {
            let x: Vec<f32> = pairs.iter().map(|pair| pair.0 * 2_f32.powi(exponent)).collect();
            let weight: Vec<f32> = pairs.iter().map(|pair| pair.1).collect();
            let mean = x.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / x.len() as f64;
            let truth = |i: usize| {
                f64::from(x[i]) * f64::from(weight[i]) / (mean + f64::from(1e-6_f32)).sqrt()
            };
            check(&x, |isa, to| {
                let row = to.to_vec();
                rms_norm(isa, &row, &weight, 1e-6, to);
            }, truth, 1e-6);
        }

        #[test]
        fn sums_are_exact(pairs in prop::collection::vec((-3.0_f32..3.0, -3.0_f32..3.0), 0..40)) {
            let x: Vec<f32> = pairs.iter().map(|pair| pair.0).collect();
            let y: Vec<f32> = pairs.iter().map(|pair| pair.1).collect();
            let mut to = x.clone();
            add(Isa::best(), &mut to, &y);
            for (index, to) in to.iter().enumerate() {
                prop_assert_eq!(to.to_bits(), (x[index] + y[index]).to_bits());
            }
        }
    }
}
