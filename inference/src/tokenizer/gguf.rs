//! The tokenizer that a GGUF holds, from the plain values of its metadata
//! (ggml's docs/gguf.md, `tokenizer.ggml.*`).

use std::path::PathBuf;

use ahash::AHashMap;

use super::byte_level::{self, ByteLevel};
use super::merge::NONE;
use super::pre_tokenizer::PreTokenizer;
use super::sentencepiece::{SPACE, SentencePiece};
use super::special::{SpecialSplitter, SpecialToken};
use super::vocabulary::{TokenKind, Vocabulary};
use super::{Algorithm, SpecialIds, Tokenizer};
use crate::error::Error;
use crate::ids::TokenId;

/// Metadata of a GGUF that make a tokenizer; each field is the value of
/// `tokenizer.ggml.` and its name, unless it says otherwise.
#[derive(Clone, Debug, Default)]
pub struct GgufTokenizer {
    /// File, for errors.
    pub path: PathBuf,
    /// `gpt2` (byte-level BPE) or `llama` (`SentencePiece`).
    pub model: String,
    /// How text is cut into words; `default` where absent.
    pub pre: Option<String>,
    /// (`vocab_size`)
    pub tokens: Vec<String>,
    /// For `llama`. (`vocab_size`)
    pub scores: Vec<f32>,
    /// `token_type`; empty if absent, which makes all tokens normal. (`vocab_size`)
    pub token_types: Vec<i32>,
    /// For `gpt2`: two tokens and a space between them, best first.
    pub merges: Vec<String>,
    /// `bos_token_id`.
    pub bos: Option<TokenId>,
    /// `eos_token_id`.
    pub eos: Option<TokenId>,
    /// `eot_token_id`.
    pub eot: Option<TokenId>,
    /// `eom_token_id`.
    pub eom: Option<TokenId>,
    /// `unknown_token_id`.
    pub unknown: Option<TokenId>,
    /// `padding_token_id`.
    pub padding: Option<TokenId>,
    /// `add_bos_token`.
    pub add_bos: Option<bool>,
    /// `add_space_prefix`.
    pub add_space_prefix: Option<bool>,
}

impl GgufTokenizer {
    fn malformed(&self, what: String) -> Error {
        Error::Malformed {
            path: self.path.clone(),
            what,
        }
    }

    /// An id of the metadata, if the vocabulary has it.
    fn known(&self, id: Option<TokenId>) -> Option<TokenId> {
        id.filter(|&id| (id as usize) < self.tokens.len())
    }
}

/// Builds the tokenizer; see [`Tokenizer::from_gguf`].
#[expect(
    clippy::needless_pass_by_value,
    reason = "its lists are large, and of no use afterwards"
)]
pub(super) fn build(source: GgufTokenizer) -> Result<Tokenizer, Error> {
    let num_tokens = source.tokens.len();
    if num_tokens == 0 || num_tokens >= NONE as usize {
        return Err(source.malformed(format!("tokenizer.ggml.tokens has {num_tokens} elements")));
    }
    let kinds = token_kinds(&source)?;
    let is_byte_level = match source.model.as_str() {
        "gpt2" => true,
        "llama" => false,
        other => {
            return Err(Error::Unsupported {
                what: format!("tokenizer.ggml.model {other:?}"),
            });
        }
    };

    let mut vocabulary = Vocabulary::default();
    for (token, &kind) in source.tokens.iter().zip(&kinds) {
        vocabulary.push(&token_bytes(token, kind, is_byte_level), kind);
    }
    let (algorithm, adds_bos) = if is_byte_level {
        byte_level(&source, &vocabulary)?
    } else {
        (sentencepiece(&source, &kinds)?, true)
    };

    let special_tokens = |wanted: fn(TokenKind) -> bool| {
        let tokens = (0..).zip(source.tokens.iter().zip(&kinds));
        let wanted = tokens.filter(|(_, (_, kind))| wanted(**kind));
        let tokens = wanted.map(|(id, (text, _))| SpecialToken {
            id,
            text: text.clone(),
            strip_left: false,
            strip_right: false,
        });
        SpecialSplitter::new(tokens.collect())
            .map_err(|error| source.malformed(format!("special tokens: {error}")))
    };
    let all_special = special_tokens(TokenKind::stands_alone)?;
    let user_defined = special_tokens(|kind| kind == TokenKind::UserDefined)?;

    let bos = source.known(source.bos);
    let special = SpecialIds {
        bos,
        named_eos: source.known(source.eos),
        eos: Vec::new(),
        unknown: source.known(source.unknown),
        padding: source.known(source.padding),
        add_bos: bos.is_some() && source.add_bos.unwrap_or(adds_bos),
    };
    let ends_of_turn = vocabulary.ends_of_turn();
    let named = [source.eos, source.eot, source.eom].into_iter().flatten();
    let eos: Vec<_> = named.chain(ends_of_turn).collect();
    let tokenizer = Tokenizer {
        vocabulary,
        algorithm,
        all_special,
        user_defined,
        special,
        add_space_prefix: !is_byte_level && source.add_space_prefix.unwrap_or(true),
    };
    Ok(tokenizer.with_eos(&eos))
}

fn token_kinds(source: &GgufTokenizer) -> Result<Vec<TokenKind>, Error> {
    if source.token_types.is_empty() {
        return Ok(vec![TokenKind::Normal; source.tokens.len()]);
    }
    if source.token_types.len() != source.tokens.len() {
        return Err(source.malformed(format!(
            "tokenizer.ggml.token_type has {} elements for {} tokens",
            source.token_types.len(),
            source.tokens.len()
        )));
    }
    let kinds = source.token_types.iter().map(|&number| {
        TokenKind::from_gguf(number)
            .ok_or_else(|| source.malformed(format!("tokenizer.ggml.token_type {number}")))
    });
    kinds.collect()
}

/// What a token of the file stands for.
fn token_bytes(token: &str, kind: TokenKind, is_byte_level: bool) -> Vec<u8> {
    match kind {
        _ if kind.stands_alone() => token.as_bytes().to_vec(),
        TokenKind::Byte => {
            parse_byte(token).map_or_else(|| token.as_bytes().to_vec(), |byte| vec![byte])
        }
        _ if is_byte_level => {
            byte_level::token_to_bytes(token).unwrap_or_else(|| token.as_bytes().to_vec())
        }
        _ => token.replace(SPACE, " ").into_bytes(),
    }
}

/// The byte of a token such as `<0x0A>`.
pub(super) fn parse_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok())?
}

/// The algorithm, and whether its prompts begin with `bos`.
fn byte_level(source: &GgufTokenizer, vocabulary: &Vocabulary) -> Result<(Algorithm, bool), Error> {
    let name = source.pre.as_deref().unwrap_or("default");
    let pre_tokenizer = PreTokenizer::from_name(name).ok_or_else(|| Error::Unsupported {
        what: format!("tokenizer.ggml.pre {name:?}"),
    })?;
    let adds_bos = pre_tokenizer.adds_bos;

    let mut ids = AHashMap::with_capacity(source.tokens.len());
    for (id, token) in (0..).zip(&source.tokens) {
        ids.entry(token.as_str()).or_insert(id);
    }
    let mut byte_tokens = Box::new([NONE; 256]);
    for byte in 0..=u8::MAX {
        let mut buffer = [0; 4];
        let token = &*byte_level::byte_to_char(byte).encode_utf8(&mut buffer);
        byte_tokens[usize::from(byte)] = ids.get(token).copied().unwrap_or(NONE);
    }
    let mut merges = AHashMap::with_capacity(source.merges.len());
    let mut union = String::new();
    for (rank, merge) in (0..).zip(&source.merges) {
        // The first token has one character at least, so a space at the start belongs to it.
        let Some((left, right)) = merge
            .char_indices()
            .skip(1)
            .find(|&(_, c)| c == ' ')
            .map(|(at, _)| (&merge[..at], &merge[at + 1..]))
        else {
            return Err(source.malformed(format!("tokenizer.ggml.merges[{rank}] {merge:?}")));
        };
        union.clear();
        union.push_str(left);
        union.push_str(right);
        let [Some(&left), Some(&right), Some(&union)] =
            [left, right, union.as_str()].map(|token| ids.get(token))
        else {
            return Err(source.malformed(format!(
                "tokenizer.ggml.merges[{rank}] {merge:?} names or makes no token"
            )));
        };
        merges.entry((left, right)).or_insert((rank, union));
    }
    let whole_words = pre_tokenizer.takes_whole_words.then(|| {
        let words = vocabulary
            .iter()
            .filter(|(_, _, kind)| !kind.stands_alone());
        words.map(|(id, bytes, _)| (bytes.into(), id)).collect()
    });
    let byte_level = ByteLevel::new(pre_tokenizer, byte_tokens, merges, whole_words);
    Ok((Algorithm::ByteLevel(byte_level), adds_bos))
}

fn sentencepiece(source: &GgufTokenizer, kinds: &[TokenKind]) -> Result<Algorithm, Error> {
    if source.scores.len() != source.tokens.len() {
        return Err(source.malformed(format!(
            "tokenizer.ggml.scores has {} elements for {} tokens",
            source.scores.len(),
            source.tokens.len()
        )));
    }
    let mut byte_tokens = Box::new([NONE; 256]);
    let tokens = || (0..).zip(source.tokens.iter().zip(kinds));
    for (id, (token, _)) in tokens().filter(|(_, (_, kind))| **kind == TokenKind::Byte) {
        let byte = parse_byte(token)
            .ok_or_else(|| source.malformed(format!("token {id} {token:?} is no byte")))?;
        byte_tokens[usize::from(byte)] = id;
    }
    let pieces = tokens().zip(&source.scores).filter(|((_, (_, kind)), _)| {
        matches!(
            kind,
            TokenKind::Normal | TokenKind::Unused | TokenKind::UserDefined
        )
    });
    let pieces = pieces.map(|((id, (token, _)), &score)| (token.as_str(), score, id));
    let unknown = source.known(source.unknown);
    Ok(Algorithm::SentencePiece(SentencePiece::new(
        pieces,
        byte_tokens,
        unknown,
    )))
}
