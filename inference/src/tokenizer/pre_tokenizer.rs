//! Cuts text into words before byte-level BPE, by `tokenizer.ggml.pre`.
//!
//! The patterns are those that the models were trained with, as their
//! `tokenizer.json` and llama.cpp (src/llama-vocab.cpp) have them. They end in
//! `\s+(?!\S)|\s+`, which [`Pattern::split`] does without looking ahead, so that
//! an engine without backtracking can take them in time linear in the text.

use regex::Regex;

/// Contractions, words, numbers, signs: GPT-2's.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+";

/// GPT-4's, with three digits at most in a number (cl100k).
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";

/// The same with single digits.
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";

/// Words are cut before capitals as well; no contractions.
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+";

/// The same with contractions at the end of words (o200k).
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+";

/// Words with their marks, signs with the letters that follow them (`deepseek-v3`).
const DEEPSEEK3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+"##;

/// How one kind of vocabulary wants its text.
#[derive(Debug)]
pub(super) struct PreTokenizer {
    /// Each cuts what the one before it has left in one piece.
    patterns: Vec<Pattern>,
    /// Whether a word that is a token is taken whole, without merging.
    pub(super) takes_whole_words: bool,
    /// Whether prompts begin with `bos` where the file does not say.
    pub(super) adds_bos: bool,
}

/// Cuts text at the matches of one expression; what lies between is a piece too.
#[derive(Debug)]
struct Pattern {
    regex: Regex,
    /// Whether the expression ends in `\s+` for `\s+(?!\S)|\s+`.
    splits_runs_of_space: bool,
    /// Whether runs of space that end in a line break are matched before that.
    takes_line_breaks: bool,
}

impl PreTokenizer {
    /// The pre-tokenizer of a name in `tokenizer.ggml.pre`; `None` if it is not known.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        let (patterns, takes_whole_words, adds_bos): (&[&str], bool, bool) = match name {
            "gpt-2" | "phi-2" | "mpt" | "olmo" | "jais" | "jina-es" | "jina-de" | "gigachat"
            | "jina-v2-es" | "jina-v2-de" | "a.x-4.0" | "mellum" | "modern-bert"
            | "roberta-bpe" | "exaone4" | "trillion" | "granite-docling" => (&[GPT2], false, false),
            "smollm" | "starcoder" | "refact" | "command-r" | "codeshell" | "exaone"
            | "minerva-7b" => (&[r"\p{N}", GPT2], false, false),
            "llama-bpe" | "llama3" | "llama-v3" | "falcon3" | "falcon-h1" | "pixtral"
            | "midm-2.0" | "lfm2" => (&[LLAMA3], true, true),
            "dbrx" | "smaug-bpe" | "glm4" | "chatglm-bpe" => (&[LLAMA3], false, false),
            "qwen2" | "stablelm2" | "deepseek-r1-qwen" | "megrez" | "hunyuan" => {
                (&[QWEN2], false, false)
            }
            "tekken" => (&[TEKKEN], true, true),
            "gpt-4o" | "llama4" => (&[GPT4O], false, false),
            "deepseek-v3" => (
                &[r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK3],
                false,
                false,
            ),
            "falcon" => (
                &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, r"[0-9][0-9][0-9]"],
                false,
                false,
            ),
            "default" => (
                &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"],
                false,
                false,
            ),
            _ => return None,
        };
        let patterns = patterns.iter().map(|source| Pattern::new(source)).collect();
        Some(Self {
            patterns,
            takes_whole_words,
            adds_bos,
        })
    }

    /// Gives the words of a text, in order; joined they are the text.
    pub(super) fn split<'a>(&self, text: &'a str, mut emit: impl FnMut(&'a str)) {
        split_by(&self.patterns, text, &mut emit);
    }
}

/// Recursion on the patterns, of which there are four at most.
fn split_by<'a>(patterns: &[Pattern], text: &'a str, emit: &mut dyn FnMut(&'a str)) {
    match patterns {
        [] => emit(text),
        [first, rest @ ..] => first.split(text, |piece| split_by(rest, piece, emit)),
    }
}

impl Pattern {
    fn new(source: &str) -> Self {
        Self {
            regex: Regex::new(source).expect("the patterns of this file are valid"),
            splits_runs_of_space: source.ends_with(r"|\s+"),
            takes_line_breaks: source.contains(r"\s*[\r\n]+"),
        }
    }

    fn split<'a>(&self, text: &'a str, mut emit: impl FnMut(&'a str)) {
        let mut position = 0;
        while let Some(found) = self.regex.find_at(text, position) {
            if found.start() > position {
                emit(&text[position..found.start()]);
            }
            let end = found.end() - self.num_given_back(text, found.as_str(), found.end());
            emit(&text[found.start()..end]);
            position = end;
        }
        if position < text.len() {
            emit(&text[position..]);
        }
    }

    /// Bytes of the last space of a run that belongs to the word after it:
    /// what `\s+(?!\S)` leaves, which is tried before `\s+`.
    fn num_given_back(&self, text: &str, found: &str, end: usize) -> usize {
        let Some(last) = found.chars().next_back() else {
            return 0;
        };
        let is_run_of_space = self.splits_runs_of_space
            && last.is_whitespace()
            && !(self.takes_line_breaks && matches!(last, '\r' | '\n'));
        if is_run_of_space && end < text.len() && found.len() > last.len_utf8() {
            last.len_utf8()
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, text: &str, expected: &[&str]) {
        let pre_tokenizer = PreTokenizer::from_name(name).expect("a known name");
        let mut words = Vec::new();
        pre_tokenizer.split(text, |word| words.push(word));
        assert_eq!(words, expected, "{name}: {text:?}");
    }

    #[test]
    fn last_space_of_a_run_goes_to_the_word_after_it() {
        check("gpt-2", "a   b", &["a", "  ", " b"]);
        check("gpt-2", "a \n\n b", &["a", " \n\n", " b"]);
        check("gpt-2", "a\n\nb  ", &["a", "\n", "\n", "b", "  "]);
        check("llama-bpe", "a \n\n b", &["a", " \n\n", " b"]);
        check(
            "llama-bpe",
            "a\n\nb \u{3000}\u{3000}c",
            &["a", "\n\n", "b", " \u{3000}", "\u{3000}c"],
        );
        check("llama-bpe", "x  !\n y", &["x", " ", " !\n", " y"]);
    }

    #[test]
    fn numbers_are_cut_as_each_model_wants_it() {
        check("gpt-2", "in 12345", &["in", " 12345"]);
        check("smollm", "in 123", &["in", " ", "1", "2", "3"]);
        check("llama-bpe", "in 12345", &["in", " ", "123", "45"]);
        check("qwen2", "in 12", &["in", " ", "1", "2"]);
        check("default", "in 12345", &["in", " ", "123", "45"]);
    }

    #[test]
    fn contractions_and_capitals() {
        check("gpt-2", "it's IT'S", &["it", "'s", " IT", "'", "S"]);
        check("qwen2", "it's IT'S", &["it", "'s", " IT", "'S"]);
        check(
            "tekken",
            "HelloWorld it's",
            &["Hello", "World", " it", "'s"],
        );
        check("gpt-4o", "HelloWorld it's", &["Hello", "World", " it's"]);
    }

    #[test]
    fn unknown_name_is_none() {
        assert!(PreTokenizer::from_name("no-such").is_none());
    }
}
