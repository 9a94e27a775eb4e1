//! Eight lanes of f32 in AVX2, FMA and F16C.

#![expect(unsafe_code, reason = "intrinsics")]

use std::arch::x86_64::{
    __m256, _CMP_LT_OQ, _mm_loadu_si128, _mm256_add_epi32, _mm256_add_ps, _mm256_andnot_ps,
    _mm256_blendv_ps, _mm256_castps_si256, _mm256_castsi256_ps, _mm256_cmp_ps,
    _mm256_cvtepu16_epi32, _mm256_cvtph_ps, _mm256_div_ps, _mm256_fmadd_ps, _mm256_loadu_ps,
    _mm256_max_ps, _mm256_min_ps, _mm256_mul_ps, _mm256_set1_epi32, _mm256_set1_ps,
    _mm256_slli_epi32, _mm256_storeu_ps, _mm256_sub_ps,
};

use crate::kernels::isa::Avx2;
use crate::kernels::lanes::{Element, ElementKind, Lanes, NUM_LANES};

/// Evaluates intrinsics that need nothing but the features.
macro_rules! features {
    ($expression:expr) => {
        // SAFETY: an `Avx2` exists only where the processor has AVX2, FMA and F16C.
        unsafe { $expression }
    };
}

impl Lanes for Avx2 {
    type Vector = __m256;

    #[inline(always)]
    fn splat(self, value: f32) -> __m256 {
        features!(_mm256_set1_ps(value))
    }

    #[inline(always)]
    unsafe fn load<E: Element>(self, from: *const E) -> __m256 {
        // SAFETY: the caller's promise, and the features as above.
        unsafe {
            match E::KIND {
                ElementKind::F32 => _mm256_loadu_ps(from.cast()),
                ElementKind::F16 => _mm256_cvtph_ps(_mm_loadu_si128(from.cast())),
                ElementKind::Bf16 => _mm256_castsi256_ps(_mm256_slli_epi32::<16>(
                    _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast())),
                )),
            }
        }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, value: __m256) {
        // SAFETY: the caller's promise, and the features as above.
        unsafe { _mm256_storeu_ps(to, value) }
    }

    #[inline(always)]
    fn add(self, a: __m256, b: __m256) -> __m256 {
        features!(_mm256_add_ps(a, b))
    }

    #[inline(always)]
    fn sub(self, a: __m256, b: __m256) -> __m256 {
        features!(_mm256_sub_ps(a, b))
    }

    #[inline(always)]
    fn mul(self, a: __m256, b: __m256) -> __m256 {
        features!(_mm256_mul_ps(a, b))
    }

    #[inline(always)]
    fn div(self, a: __m256, b: __m256) -> __m256 {
        features!(_mm256_div_ps(a, b))
    }

    #[inline(always)]
    fn fma(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        features!(_mm256_fmadd_ps(a, b, c))
    }

    #[inline(always)]
    fn min(self, a: __m256, b: __m256) -> __m256 {
        features!(_mm256_min_ps(a, b))
    }

    #[inline(always)]
    fn max(self, a: __m256, b: __m256) -> __m256 {
        features!(_mm256_max_ps(a, b))
    }

    #[inline(always)]
    fn abs(self, a: __m256) -> __m256 {
        features!(_mm256_andnot_ps(_mm256_set1_ps(-0.0), a))
    }

    #[inline(always)]
    fn select_less(self, a: __m256, b: __m256, then: __m256, otherwise: __m256) -> __m256 {
        features!(_mm256_blendv_ps(
            otherwise,
            then,
            _mm256_cmp_ps::<_CMP_LT_OQ>(a, b)
        ))
    }

    #[inline(always)]
    fn power_of_two(self, shifted: __m256) -> __m256 {
        features!(_mm256_castsi256_ps(_mm256_add_epi32(
            _mm256_slli_epi32::<23>(_mm256_castps_si256(shifted)),
            _mm256_set1_epi32(127 << 23)
        )))
    }

    #[inline(always)]
    fn to_array(self, a: __m256) -> [f32; NUM_LANES] {
        let mut array = [0.0; NUM_LANES];
        // SAFETY: an array of eight.
        unsafe { self.store(array.as_mut_ptr(), a) };
        array
    }
}
