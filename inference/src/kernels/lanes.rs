//! Eight lanes of f32, in plain Rust and in AVX2: each kernel is written once
//! over [`Lanes`] and compiled for both.
//!
//! Guarantee: both give the same bits. Every operation is IEEE 754's, a fused
//! multiply-add is one everywhere, and nothing is reordered.

#![expect(unsafe_code, reason = "vectors are read and written through pointers")]

use half::{bf16, f16};

use crate::kernels::isa::Portable;

/// Lanes of a vector.
pub(crate) const NUM_LANES: usize = 8;

/// Kinds of numbers that are stored, and computed with as f32.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ElementKind {
    /// IEEE 754 single.
    F32,
    /// IEEE 754 half.
    F16,
    /// The upper half of a single.
    Bf16,
}

/// A number that is stored, and computed with as f32.
pub(crate) trait Element: Copy + Send + Sync + 'static {
    /// Which it is.
    const KIND: ElementKind;

    /// Converts, exactly.
    fn to_f32(self) -> f32;

    /// Converts to the nearest finite one, ties to even.
    fn from_f32(value: f32) -> Self;
}

impl Element for f32 {
    const KIND: ElementKind = ElementKind::F32;

    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }

    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        value
    }
}

impl Element for f16 {
    const KIND: ElementKind = ElementKind::F16;

    #[inline(always)]
    fn to_f32(self) -> f32 {
        Self::to_f32(self)
    }

    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        // An infinity would turn the weight 0 of a masked token into NaN.
        Self::from_f32(value.clamp(-65504.0, 65504.0))
    }
}

impl Element for bf16 {
    const KIND: ElementKind = ElementKind::Bf16;

    #[inline(always)]
    fn to_f32(self) -> f32 {
        Self::to_f32(self)
    }

    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        Self::from_f32(value)
    }
}

/// Operations on [`NUM_LANES`] numbers at once.
pub(crate) trait Lanes: Copy {
    /// The numbers.
    type Vector: Copy;

    /// Repeats one number.
    fn splat(self, value: f32) -> Self::Vector;

    /// Reads numbers and converts them.
    ///
    /// # Safety
    /// `from` is valid for reads of [`NUM_LANES`] elements; it need not be aligned.
    unsafe fn load<E: Element>(self, from: *const E) -> Self::Vector;

    /// Writes numbers.
    ///
    /// # Safety
    /// `to` is valid for writes of [`NUM_LANES`] elements; it need not be aligned.
    unsafe fn store(self, to: *mut f32, value: Self::Vector);

    /// Returns a + b.
    fn add(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// Returns a - b.
    fn sub(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// Returns a * b.
    fn mul(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// Returns a / b.
    fn div(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// Returns a * b + c, rounded once.
    fn fma(self, a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;

    /// Returns the less; b where one is not a number.
    fn min(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// Returns the greater; b where one is not a number.
    fn max(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// Returns the magnitude.
    fn abs(self, a: Self::Vector) -> Self::Vector;

    /// Returns `then` where a < b, and `otherwise` elsewhere.
    fn select_less(
        self,
        a: Self::Vector,
        b: Self::Vector,
        then: Self::Vector,
        otherwise: Self::Vector,
    ) -> Self::Vector;

    /// Returns 2^n of n + 1.5 * 2^23, for whole n from -126 to 127.
    fn power_of_two(self, shifted: Self::Vector) -> Self::Vector;

    /// Returns the numbers in order.
    fn to_array(self, a: Self::Vector) -> [f32; NUM_LANES];

    /// Reads eight numbers.
    #[inline(always)]
    fn vector_of(self, a: &[f32; NUM_LANES]) -> Self::Vector {
        // SAFETY: an array of eight.
        unsafe { self.load(a.as_ptr()) }
    }
}

/// Sums in a fixed order.
#[inline(always)]
pub(crate) fn sum(lanes: &[f32; NUM_LANES]) -> f32 {
    let four: [f32; 4] = std::array::from_fn(|lane| lanes[lane] + lanes[lane + 4]);
    (four[0] + four[2]) + (four[1] + four[3])
}

/// Returns the greatest; NaN is passed over.
#[inline(always)]
pub(crate) fn greatest(lanes: &[f32; NUM_LANES]) -> f32 {
    lanes.iter().copied().fold(f32::NEG_INFINITY, f32::max)
}

#[inline(always)]
fn each(f: impl Fn(usize) -> f32) -> [f32; NUM_LANES] {
    std::array::from_fn(f)
}

impl Lanes for Portable {
    type Vector = [f32; NUM_LANES];

    #[inline(always)]
    fn splat(self, value: f32) -> Self::Vector {
        [value; NUM_LANES]
    }

    #[inline(always)]
    unsafe fn load<E: Element>(self, from: *const E) -> Self::Vector {
        // SAFETY: the caller's promise.
        each(|lane| unsafe { from.add(lane).read_unaligned() }.to_f32())
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, value: Self::Vector) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<Self::Vector>().write_unaligned(value) }
    }

    #[inline(always)]
    fn add(self, a: Self::Vector, b: Self::Vector) -> Self::Vector {
        each(|lane| a[lane] + b[lane])
    }

    #[inline(always)]
    fn sub(self, a: Self::Vector, b: Self::Vector) -> Self::Vector {
        each(|lane| a[lane] - b[lane])
    }

    #[inline(always)]
    fn mul(self, a: Self::Vector, b: Self::Vector) -> Self::Vector {
        each(|lane| a[lane] * b[lane])
    }

    #[inline(always)]
    fn div(self, a: Self::Vector, b: Self::Vector) -> Self::Vector {
        each(|lane| a[lane] / b[lane])
    }

    #[inline(always)]
    fn fma(self, a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector {
        each(|lane| a[lane].mul_add(b[lane], c[lane]))
    }

    #[inline(always)]
    fn min(self, a: Self::Vector, b: Self::Vector) -> Self::Vector {
        each(|lane| if a[lane] < b[lane] { a[lane] } else { b[lane] })
    }

    #[inline(always)]
    fn max(self, a: Self::Vector, b: Self::Vector) -> Self::Vector {
        each(|lane| if a[lane] > b[lane] { a[lane] } else { b[lane] })
    }

    #[inline(always)]
    fn abs(self, a: Self::Vector) -> Self::Vector {
        each(|lane| a[lane].abs())
    }

    #[inline(always)]
    fn select_less(
        self,
        a: Self::Vector,
        b: Self::Vector,
        then: Self::Vector,
        otherwise: Self::Vector,
    ) -> Self::Vector {
        each(|lane| {
            if a[lane] < b[lane] {
                then[lane]
            } else {
                otherwise[lane]
            }
        })
    }

    #[inline(always)]
    fn power_of_two(self, shifted: Self::Vector) -> Self::Vector {
        each(|lane| f32::from_bits((shifted[lane].to_bits() << 23).wrapping_add(127 << 23)))
    }

    #[inline(always)]
    fn to_array(self, a: Self::Vector) -> [f32; NUM_LANES] {
        a
    }
}
