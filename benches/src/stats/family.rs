//! Several tests at once: Holm's correction (*A simple sequentially rejective multiple test
//! procedure*, 1979).
//!
//! With the corrected values, the chance that any of the tests of a family rejects wrongly is at
//! most the level, however the tests depend on each other.

/// Returns the corrected p of each test, in the given order.
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|a, b| p_values[*a].total_cmp(&p_values[*b]));
    let mut corrected = vec![0.0; p_values.len()];
    let mut highest: f64 = 0.0;
    for (rank, index) in order.into_iter().enumerate() {
        let factor = (p_values.len() - rank) as f64;
        highest = highest.max(p_values[index] * factor).min(1.0);
        corrected[index] = highest;
    }
    corrected
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hand_computed_values() {
        assert_eq!(holm(&[]), Vec::<f64>::new());
        assert_eq!(holm(&[0.04]), [0.04]);
        // Sorted 0.01, 0.02, 0.03 times 3, 2, 1: 0.03, 0.04, and not below the one before.
        let found = holm(&[0.03, 0.01, 0.02]);
        for (found, expected) in found.iter().zip([0.04, 0.03, 0.04]) {
            assert!((found - expected).abs() < 1e-12, "{found} != {expected}");
        }
        assert_eq!(holm(&[0.9, 0.8]), [1.0, 1.0]);
    }

    proptest! {
        #[test]
        fn a_correction_lies_between_none_and_bonferronis(
            p_values in prop::collection::vec(0.0f64..=1.0, 0..20),
        ) {
            let corrected = holm(&p_values);
            let n = p_values.len() as f64;
            for (p, corrected) in p_values.iter().zip(&corrected) {
                prop_assert!(*corrected >= *p && *corrected <= (p * n).min(1.0) + 1e-12);
            }
            // It keeps the order.
            for (i, p) in p_values.iter().enumerate() {
                for (j, q) in p_values.iter().enumerate() {
                    prop_assert!(p > q || corrected[i] <= corrected[j]);
                }
            }
        }

        /// The definition: the first test, in order of p, that does not reject ends it.
        #[test]
        fn rejecting_below_the_level_is_the_stepwise_procedure(
            p_values in prop::collection::vec(0.0f64..=0.2, 1..12),
        ) {
            let mut sorted = p_values.clone();
            sorted.sort_by(f64::total_cmp);
            let rejects = (sorted.iter().enumerate())
                .take_while(|(rank, p)| **p * ((sorted.len() - rank) as f64) < 0.05)
                .count();
            let found = holm(&p_values).iter().filter(|p| **p < 0.05).count();
            prop_assert_eq!(found, rejects);
        }
    }
}
