//! `tokenizer.json` by Hugging Face's own crate: its normalizer, pre-tokenizer
//! and merges, in its order.
//!
//! Special tokens are found here and not there, since a prompt holds both those
//! of the template and text that only looks like them. Added tokens that are
//! matched after normalization are matched before it.

use std::path::Path;

use serde_json::Value;
use tokenizers::models::ModelWrapper;
use tokenizers::normalizer::Range;
use tokenizers::{
    Model as _, NormalizedString, Normalizer as _, OffsetType, PreTokenizedString,
    PreTokenizer as _, Token,
};

use super::special::{Fragment, SpecialSplitter, SpecialToken};
use super::vocabulary::{TokenKind, Vocabulary};
use super::{Algorithm, SpecialIds, Tokenizer, byte_level, gguf, sentencepiece};
use crate::error::Error;
use crate::ids::TokenId;

/// The crate's tokenizer.
#[derive(Debug)]
pub(super) struct HuggingFace {
    inner: tokenizers::Tokenizer,
}

/// How tokens are turned into bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Spelling {
    /// By the byte-level alphabet.
    ByteLevel,
    /// `▁` for a space, `<0x0A>` for a byte.
    SentencePiece {
        /// Whether a text begins with a space that was added.
        has_space_prefix: bool,
    },
}

/// Largest number of a token; the largest vocabularies have some 300,000.
const MAX_TOKEN_ID: u64 = 1 << 24;

/// Refuses what the crate takes at its word: it cuts tokens by the length of a
/// prefix without looking, and a number of a token becomes a place in memory.
fn check_json(json: &[u8]) -> Result<(), String> {
    let file: serde_json::Value =
        serde_json::from_slice(json).map_err(|error| format!("tokenizer.json: {error}"))?;
    let model = &file["model"];
    if model["continuing_subword_prefix"]
        .as_str()
        .is_some_and(|prefix| !prefix.is_empty())
    {
        return Err("tokenizer.json: continuing_subword_prefix is not supported".to_owned());
    }
    let ids = model["vocab"]
        .as_object()
        .into_iter()
        .flat_map(|vocabulary| vocabulary.values());
    let added = file["added_tokens"].as_array().into_iter().flatten();
    let mut ids = ids.chain(added.map(|token| &token["id"]));
    match ids.find(|id| id.as_u64().is_none_or(|id| id > MAX_TOKEN_ID)) {
        Some(id) => Err(format!("tokenizer.json: {id} is no number of a token")),
        None => Ok(()),
    }
}

/// Builds the tokenizer; see [`Tokenizer::from_json`].
#[expect(
    clippy::too_many_lines,
    reason = "one pass over the file, part by part"
)]
pub(super) fn build(path: &Path, json: &[u8]) -> Result<Tokenizer, Error> {
    let malformed = |what: String| Error::Malformed {
        path: path.to_path_buf(),
        what,
    };
    check_json(json).map_err(malformed)?;
    let mut inner = tokenizers::Tokenizer::from_bytes(json)
        .map_err(|error| malformed(format!("tokenizer.json: {error}")))?;
    // What a file asks of padding and of length is not for a prompt.
    inner.with_padding(None);
    inner
        .with_truncation(None)
        .map_err(|error| malformed(format!("tokenizer.json: {error}")))?;
    let ModelWrapper::BPE(model) = inner.get_model() else {
        return Err(Error::Unsupported {
            what: "tokenizer.json of another model than BPE".into(),
        });
    };
    let unknown = model
        .unk_token
        .as_ref()
        .and_then(|token| inner.token_to_id(token));
    let spelling = spelling(&inner)?;

    let added = inner.get_added_tokens_decoder();
    let names = inner.get_vocab(true);
    let num_tokens = names.values().max().map_or(0, |&id| id as usize + 1);
    // Ids without a token, of which some vocabularies have a few, stand for nothing.
    let mut tokens: Vec<Option<&str>> = vec![None; num_tokens];
    #[expect(clippy::iter_over_hash_type, reason = "each id has a place of its own")]
    for (name, id) in &names {
        tokens[*id as usize] = Some(name);
    }
    let mut vocabulary = Vocabulary::default();
    let mut special_tokens = Vec::new();
    for (id, name) in (0..).zip(tokens) {
        let name = name.unwrap_or_default();
        if let Some(token) = added.get(&id) {
            let kind = if token.special {
                TokenKind::Control
            } else {
                TokenKind::UserDefined
            };
            vocabulary.push(token.content.as_bytes(), kind);
            let text = token.content.clone();
            let (strip_left, strip_right) = (token.lstrip, token.rstrip);
            special_tokens.push((
                SpecialToken {
                    id,
                    text,
                    strip_left,
                    strip_right,
                },
                kind,
            ));
        } else {
            let (bytes, kind) = token_bytes(name, spelling);
            vocabulary.push(&bytes, kind);
        }
    }
    let user_defined = special_tokens
        .iter()
        .filter(|(_, kind)| *kind == TokenKind::UserDefined)
        .map(|(token, _)| token.clone())
        .collect();
    let all_special = special_tokens.into_iter().map(|(token, _)| token).collect();
    let splitter = |tokens| {
        SpecialSplitter::new(tokens).map_err(|error| malformed(format!("added tokens: {error}")))
    };

    // The post-processor is what the file has to say about the first token.
    let of_nothing = inner
        .encode_fast("", true)
        .map_err(|error| malformed(error.to_string()))?;
    let is_control = |id: &TokenId| vocabulary.kind(*id).is_some_and(TokenKind::is_control);
    let bos = of_nothing.get_ids().first().copied().filter(is_control);
    let eos = vocabulary.ends_of_turn();
    let tokenizer = Tokenizer {
        all_special: splitter(all_special)?,
        user_defined: splitter(user_defined)?,
        special: SpecialIds {
            bos,
            named_eos: None,
            eos,
            unknown,
            padding: None,
            add_bos: bos.is_some(),
        },
        add_space_prefix: spelling
            == Spelling::SentencePiece {
                has_space_prefix: true,
            },
        vocabulary,
        algorithm: Algorithm::HuggingFace(Box::new(HuggingFace { inner })),
    };
    Ok(tokenizer)
}

impl HuggingFace {
    /// Tokens of fragments, which together are one text.
    pub(super) fn encode(&self, fragments: &[Fragment<'_>]) -> Vec<TokenId> {
        // The crate fails for unknown tokens outside the vocabulary and for
        // expressions that are too hard for it. What it has then is not lost:
        // each fragment is tried by itself, and what still fails is left out.
        self.try_encode(fragments).unwrap_or_else(|_| {
            let each = fragments.iter().map(std::slice::from_ref);
            each.flat_map(|fragment| self.try_encode(fragment).unwrap_or_default())
                .collect()
        })
    }

    fn try_encode(&self, fragments: &[Fragment<'_>]) -> tokenizers::Result<Vec<TokenId>> {
        // Rules for the start of a text need to know where a fragment stands, so
        // the crate gets the whole text, with the special tokens already made.
        let names: Vec<_> = fragments
            .iter()
            .map(|fragment| match fragment {
                Fragment::Token(id) => self.inner.id_to_token(*id).unwrap_or_default().into(),
                Fragment::Text(text) => std::borrow::Cow::from(*text),
            })
            .collect();
        let mut text = PreTokenizedString::from(names.concat());
        text.split(|_, whole| {
            let mut start = 0;
            let pieces = fragments.iter().zip(&names).map(|(fragment, name)| {
                let end = start + name.len();
                let piece = whole.slice(Range::Original(start..end)).unwrap_or_default();
                start = end;
                let tokens = match fragment {
                    Fragment::Token(id) => {
                        Some(vec![Token::new(*id, String::new(), (0, name.len()))])
                    }
                    Fragment::Text(_) => None,
                };
                (piece, tokens)
            });
            Ok::<Vec<(NormalizedString, Option<Vec<Token>>)>, _>(pieces.collect())
        })?;
        if let Some(normalizer) = self.inner.get_normalizer() {
            text.normalize(|piece| normalizer.normalize(piece))?;
        }
        if let Some(pre_tokenizer) = self.inner.get_pre_tokenizer() {
            pre_tokenizer.pre_tokenize(&mut text)?;
        }
        text.tokenize(|piece| self.inner.get_model().tokenize(piece.get()))?;
        let encoding = text.into_encoding(None, 0, OffsetType::None)?;
        Ok(encoding.get_ids().to_vec())
    }
}

/// How the decoder of a file spells tokens.
fn spelling(inner: &tokenizers::Tokenizer) -> Result<Spelling, Error> {
    let unsupported = |what: &str| Error::Unsupported {
        what: format!("tokenizer.json {what}"),
    };
    let decoder = serde_json::to_value(inner.get_decoder())
        .map_err(|_| unsupported("with a decoder that cannot be read"))?;
    let steps = match decoder.get("decoders") {
        Some(Value::Array(steps)) => steps.clone(),
        _ => vec![decoder],
    };
    let has = |wanted: &str| steps.iter().any(|step| step["type"] == wanted);
    if has("ByteLevel") {
        return Ok(Spelling::ByteLevel);
    }
    let replaces_space = steps.iter().any(|step| {
        step["type"] == "Replace" && step["pattern"]["String"] == "▁" && step["content"] == " "
    });
    let metaspace = steps.iter().find(|step| step["type"] == "Metaspace");
    if !replaces_space && metaspace.is_none() {
        return Err(unsupported(
            "whose decoder is neither byte-level nor of SentencePiece",
        ));
    }
    let has_space_prefix = metaspace.is_some_and(|step| step["prepend_scheme"] != "never")
        || steps
            .iter()
            .any(|step| step["type"] == "Strip" && step["start"] == 1);
    Ok(Spelling::SentencePiece { has_space_prefix })
}

fn token_bytes(name: &str, spelling: Spelling) -> (Vec<u8>, TokenKind) {
    match spelling {
        Spelling::ByteLevel => {
            let bytes = byte_level::token_to_bytes(name);
            (
                bytes.unwrap_or_else(|| name.as_bytes().to_vec()),
                TokenKind::Normal,
            )
        }
        Spelling::SentencePiece { .. } => match gguf::parse_byte(name) {
            Some(byte) => (vec![byte], TokenKind::Byte),
            None => (
                name.replace(sentencepiece::SPACE, " ").into_bytes(),
                TokenKind::Normal,
            ),
        },
    }
}
