//! Which files of a repository a model consists of, from their names alone.
//!
//! Guarantee: the same names give the same choice, in whatever order.

use super::error::LocateError;
use super::name::HubName;

/// Types of weights in the order in which they are taken where none was named:
/// small and good first, then what is left.
const PREFERRED_QUANTS: [&str; 12] = [
    "Q4_K_M", "Q4_0", "Q4_1", "Q4_K_S", "Q5_K_M", "Q5_0", "Q5_1", "Q6_K", "Q8_0", "F16", "BF16",
    "F32",
];

/// Files beside the weights that a model in safetensors may have.
const COMPANIONS: [&str; 11] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "vocab.json",
    "merges.txt",
];

/// Where it is said which tensor is in which file.
pub(super) const WEIGHTS_INDEX: &str = "model.safetensors.index.json";

/// Name of weights in one file.
pub(super) const WEIGHTS: &str = "model.safetensors";

/// What was chosen.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Choice {
    /// Parts of one GGUF, the first first.
    Gguf {
        /// Names in the repository.
        parts: Vec<String>,
        /// Whether it is what anybody would choose who knew of more files.
        is_certain: bool,
    },
    /// A model in safetensors: the small files, and the weights unless an index names them.
    Safetensors {
        /// Names in the repository.
        files: Vec<String>,
        /// Whether [`WEIGHTS_INDEX`] has the names of the weights.
        has_index: bool,
    },
}

/// Chooses among the names of a repository's files.
///
/// # Errors
/// [`LocateError::Ambiguous`] with what may be written instead.
pub(super) fn choose(name: &HubName, files: &[String]) -> Result<Choice, LocateError> {
    let mut ggufs: Vec<&String> = files.iter().filter(|file| is_model_gguf(file)).collect();
    ggufs.sort();
    if let Some(choice) = &name.choice {
        return named(name, choice, &ggufs, files);
    }
    if let Some(safetensors) = safetensors(files) {
        return Ok(safetensors);
    }
    for (index, quant) in PREFERRED_QUANTS.iter().enumerate() {
        if let Some(found) = ggufs.iter().find(|file| has_quant(file, quant)) {
            return Ok(gguf(found, index == 0));
        }
    }
    match ggufs[..] {
        [] => Err(ambiguous(name, "no weights in GGUF or safetensors", &ggufs)),
        [only] => Ok(gguf(only, false)),
        [first, ..] if first_part(first).is_some() && is_one_model(&ggufs) => {
            Ok(gguf(first, false))
        }
        _ => Err(ambiguous(name, "several models", &ggufs)),
    }
}

fn named(
    name: &HubName,
    choice: &str,
    ggufs: &[&String],
    files: &[String],
) -> Result<Choice, LocateError> {
    if files.iter().any(|file| file == choice) {
        return match choice {
            WEIGHTS | WEIGHTS_INDEX => safetensors(files)
                .ok_or_else(|| ambiguous(name, "no config.json beside these weights", ggufs)),
            _ if is_gguf(choice) => Ok(gguf(choice, true)),
            _ => Err(ambiguous(name, "that file, which is no model", ggufs)),
        };
    }
    let mut found: Vec<&&String> = (ggufs.iter())
        .filter(|file| has_quant(file, choice))
        .filter(|file| first_part(file).is_none_or(|first| first == file.as_str()))
        .collect();
    // `Q4_K` may be meant as a beginning where nothing is it exactly.
    if found.is_empty() {
        let upper = choice.to_uppercase();
        let is_near = |file: &&&String| file.to_uppercase().contains(&upper);
        found = ggufs.iter().filter(is_near).collect();
    }
    match found[..] {
        [only] => Ok(gguf(only, true)),
        [] => Err(ambiguous(name, &format!("nothing like `{choice}`"), ggufs)),
        [first, ..] if is_one_model(&found.iter().map(|file| **file).collect::<Vec<_>>()) => {
            Ok(gguf(first, true))
        }
        _ => Err(ambiguous(
            name,
            &format!("several files like `{choice}`"),
            ggufs,
        )),
    }
}

fn ambiguous(name: &HubName, found: &str, ggufs: &[&String]) -> LocateError {
    let mut choices: Vec<String> = (ggufs.iter())
        .filter(|file| first_part(file).is_none_or(|first| first == file.as_str()))
        .map(|file| quant_of(file).unwrap_or(file).to_owned())
        .collect();
    choices.dedup();
    LocateError::Ambiguous {
        repository: name.repository.clone(),
        found: found.to_owned(),
        choices,
    }
}

fn gguf(file: &str, is_certain: bool) -> Choice {
    let parts = parts(file).unwrap_or_else(|| vec![file.to_owned()]);
    Choice::Gguf { parts, is_certain }
}

fn safetensors(files: &[String]) -> Option<Choice> {
    let has = |name: &str| files.iter().any(|file| file == name);
    let has_index = has(WEIGHTS_INDEX);
    if !has("config.json") || !(has_index || has(WEIGHTS)) {
        return None;
    }
    let weights = if has_index { WEIGHTS_INDEX } else { WEIGHTS };
    let companions = COMPANIONS.into_iter().filter(|name| has(name));
    Some(Choice::Safetensors {
        files: companions.chain([weights]).map(str::to_owned).collect(),
        has_index,
    })
}

pub(super) fn is_gguf(file: &str) -> bool {
    let name = file.as_bytes();
    name.len() > 5 && name[name.len() - 5..].eq_ignore_ascii_case(b".gguf")
}

/// Whether a file is weights of a language model, and not those of its eyes or of its making.
fn is_model_gguf(file: &str) -> bool {
    let lower = file.to_lowercase();
    file.is_ascii() && is_gguf(file) && !lower.contains("mmproj") && !lower.contains("imatrix")
}

/// Whether a name has this type of weights as a word of its own.
fn has_quant(file: &str, quant: &str) -> bool {
    let (file, quant) = (file.to_uppercase(), quant.to_uppercase());
    let is_edge = |letter: Option<char>| {
        letter.is_none_or(|letter| !letter.is_ascii_alphanumeric() && letter != '_')
    };
    file.match_indices(&quant).any(|(start, _)| {
        is_edge(file[..start].chars().next_back())
            && is_edge(file[start + quant.len()..].chars().next())
    })
}

/// The type of weights that a name has, as it writes it.
fn quant_of(file: &str) -> Option<&str> {
    let stem = &file[..file.len() - 5];
    let stem = match part_of(file) {
        Some((stem, ..)) => stem,
        None => stem,
    };
    let word = stem.rsplit(['-', '.', '/']).next()?;
    let upper = word.to_uppercase();
    let is_quant = ["Q", "IQ", "F16", "F32", "BF16", "TQ", "MXFP"]
        .iter()
        .any(|start| upper.starts_with(start))
        && upper.contains(|letter: char| letter.is_ascii_digit());
    is_quant.then_some(word)
}

/// Stem, number and count of a name like `model-00001-of-00003.gguf`.
fn part_of(file: &str) -> Option<(&str, usize, usize)> {
    let stem = &file[..file.len().checked_sub(5)?];
    let (rest, count) = stem.rsplit_once("-of-")?;
    let (rest, number) = rest.rsplit_once('-')?;
    let read = |text: &str| text.parse::<usize>().ok().filter(|_| text.len() == 5);
    let (number, count) = (read(number)?, read(count)?);
    (1..=count)
        .contains(&number)
        .then_some((rest, number, count))
}

fn first_part(file: &str) -> Option<String> {
    parts(file).map(|parts| parts[0].clone())
}

/// All parts of the model that a file is a part of, in order.
pub(super) fn parts(file: &str) -> Option<Vec<String>> {
    let (stem, _, count) = part_of(file)?;
    let name = |number| format!("{stem}-{number:05}-of-{count:05}.gguf");
    Some((1..=count).map(name).collect())
}

fn is_one_model(files: &[&String]) -> bool {
    let firsts: Vec<Option<String>> = files.iter().map(|file| first_part(file)).collect();
    firsts[0].is_some() && firsts.windows(2).all(|pair| pair[0] == pair[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(choice: Option<&str>, files: &[&str]) -> Result<Choice, LocateError> {
        let name = HubName {
            repository: "org/name".to_owned(),
            revision: "main".to_owned(),
            choice: choice.map(str::to_owned),
        };
        let files: Vec<String> = files.iter().map(|file| (*file).to_owned()).collect();
        choose(&name, &files)
    }

    #[track_caller]
    fn check(choice: Option<&str>, files: &[&str], expected: &[&str]) {
        let found = match chosen(choice, files).expect("a choice") {
            Choice::Gguf { parts, .. } => parts,
            Choice::Safetensors { files, .. } => files,
        };
        assert_eq!(found, expected, "{choice:?} of {files:?}");
    }

    #[track_caller]
    fn check_refused(choice: Option<&str>, files: &[&str], expected: &[&str]) {
        match chosen(choice, files) {
            Err(LocateError::Ambiguous { choices, .. }) => assert_eq!(choices, expected),
            other => panic!("{choice:?} of {files:?}: {other:?}"),
        }
    }

    const QUANTS: [&str; 5] = [
        "README.md",
        "m-Q8_0.gguf",
        "m-Q4_K_M.gguf",
        "m-Q4_K_S.gguf",
        "mmproj-m-Q8_0.gguf",
    ];

    #[test]
    fn without_a_word_the_usual_quant_is_taken() {
        check(None, &QUANTS, &["m-Q4_K_M.gguf"]);
        check(None, &["m.q8_0.gguf", "m.f16.gguf"], &["m.q8_0.gguf"]);
        check(None, &["weights.gguf"], &["weights.gguf"]);
        check_refused(None, &["a.gguf", "b.gguf"], &["a.gguf", "b.gguf"]);
        check_refused(None, &["README.md", "mmproj-m.gguf"], &[]);
    }

    #[test]
    fn a_quant_is_a_word_of_the_name() {
        check(Some("q8_0"), &QUANTS, &["m-Q8_0.gguf"]);
        check(Some("m-Q4_K_S.gguf"), &QUANTS, &["m-Q4_K_S.gguf"]);
        check(
            Some("Q4_K"),
            &["m-Q4_K.gguf", "m-Q4_K_M.gguf"],
            &["m-Q4_K.gguf"],
        );
        let choices = ["Q4_K_M", "Q4_K_S", "Q8_0"];
        check_refused(Some("Q4_K"), &QUANTS, &choices);
        check_refused(Some("Q2_K"), &QUANTS, &choices);
        check_refused(Some("README.md"), &QUANTS, &choices);
    }

    #[test]
    fn parts_of_one_model_come_together() {
        let files = [
            "q4/m-Q4_K_M-00002-of-00002.gguf",
            "q4/m-Q4_K_M-00001-of-00002.gguf",
            "m-Q8_0.gguf",
        ];
        let both = [files[1], files[0]];
        check(None, &files, &both);
        check(Some("Q4_K_M"), &files, &both);
        check(Some(files[1]), &files, &both);
        let odd = ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"];
        check(None, &odd, &odd);
    }

    #[test]
    fn safetensors_come_with_what_they_need() {
        let single = [
            "config.json",
            "tokenizer.json",
            "model.safetensors",
            "m-Q4_0.gguf",
            "a.py",
        ];
        check(
            None,
            &single,
            &["config.json", "tokenizer.json", "model.safetensors"],
        );
        check(Some("Q4_0"), &single, &["m-Q4_0.gguf"]);
        let sharded = [
            "config.json",
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            WEIGHTS_INDEX,
        ];
        check(None, &sharded, &["config.json", WEIGHTS_INDEX]);
        check_refused(None, &["model.safetensors"], &[]);
    }

    #[test]
    fn what_could_be_better_elsewhere_is_not_certain() {
        for (choice, files, expected) in [
            (None, ["m-Q4_K_M.gguf"], true),
            (None, ["m-Q8_0.gguf"], false),
            (Some("Q8_0"), ["m-Q8_0.gguf"], true),
        ] {
            match chosen(choice, &files) {
                Ok(Choice::Gguf { is_certain, .. }) => assert_eq!(is_certain, expected),
                other => panic!("{other:?}"),
            }
        }
    }
}
