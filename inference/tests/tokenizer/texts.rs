//! The texts, and the comparison with their hashes.

use justapi_inference::{SpecialTokens, Tokenizer};
use serde::Deserialize;

/// Hashes of the tokens of all texts, 8 digits each.
#[derive(Debug, Deserialize)]
pub(crate) struct Hashes {
    as_text: String,
    parse: String,
}

/// `SplitMix64`.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((value ^ (value >> 31)) % limit as u64) as usize
    }
}

/// Fragments and single characters by chance; each hundredth text is long.
pub(crate) fn text(index: usize, fragments: &[String]) -> String {
    let mut random = Random(index as u64);
    let num_parts = 1 + random.below(if index % 100 == 99 { 3000 } else { 12 });
    let mut text = String::new();
    for _ in 0..num_parts {
        match fragments.get(random.below(fragments.len() + 8)) {
            Some(fragment) => text.push_str(fragment),
            None => text.push(char::from_u32(random.below(0x30000) as u32).unwrap_or('\u{fffd}')),
        }
    }
    text
}

/// FNV-1a of the ids as little-endian 32-bit numbers.
fn hash(ids: &[u32]) -> u32 {
    ids.iter()
        .flat_map(|id| id.to_le_bytes())
        .fold(0x811C_9DC5, |value, byte| {
            (value ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        })
}

/// Compares every text, and tells of the shortest that differs.
pub(crate) fn difference(
    tokenizer: &Tokenizer,
    fragments: &[String],
    expected: &Hashes,
) -> Option<String> {
    for (special, hashes) in [
        (SpecialTokens::AsText, &expected.as_text),
        (SpecialTokens::Parse, &expected.parse),
    ] {
        let num_texts = hashes.len() / 8;
        let differing: Vec<_> = (0..num_texts)
            .filter(|&index| {
                let ids = tokenizer.encode(&text(index, fragments), special);
                format!("{:08x}", hash(&ids)) != hashes[index * 8..][..8]
            })
            .collect();
        if let Some(&shortest) = differing
            .iter()
            .min_by_key(|&&index| text(index, fragments).len())
        {
            let text = text(shortest, fragments);
            let ids = tokenizer.encode(&text, special);
            return Some(format!(
                "{special:?}: {} of {num_texts} texts differ; {shortest} is {text:?}, and gave {ids:?}",
                differing.len()
            ));
        }
    }
    None
}
