//! Text to tokens and back: byte-level BPE and `SentencePiece` from a GGUF,
//! `tokenizer.json` through Hugging Face's crate.
//!
//! Encoding never fails and takes O(n log n) for any text; what a token stands
//! for is kept as bytes, so that text is cut between characters and nowhere else.

mod byte_level;
mod detokenizer;
mod gguf;
mod hugging_face;
mod merge;
mod pre_tokenizer;
mod sentencepiece;
mod special;
mod stop;
mod vocabulary;

use std::path::Path;

use self::byte_level::ByteLevel;
pub use self::detokenizer::Detokenizer;
pub use self::gguf::GgufTokenizer;
use self::hugging_face::HuggingFace;
use self::sentencepiece::SentencePiece;
pub(crate) use self::special::Fragment;
use self::special::SpecialSplitter;
pub use self::stop::StopMatcher;
use self::vocabulary::{TokenKind, Vocabulary};
use crate::error::Error;
use crate::ids::TokenId;

/// What becomes of the text of a control token, such as `<|im_end|>`, in what is encoded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SpecialTokens {
    /// It is text like any other: for what users wrote.
    AsText,
    /// It is that token: for what the caller vouches for.
    Parse,
}

/// A model's vocabulary with the rules that take text apart.
///
/// Shared by `Arc`; all of it can be used from many threads at once.
#[derive(Debug)]
pub struct Tokenizer {
    vocabulary: Vocabulary,
    algorithm: Algorithm,
    /// Finds control and user-defined tokens.
    all_special: SpecialSplitter,
    /// Finds user-defined tokens, which are tokens wherever they stand.
    user_defined: SpecialSplitter,
    special: SpecialIds,
    /// Whether a text begins with a space that its writer did not type (`SentencePiece`).
    add_space_prefix: bool,
}

/// Tokens with a task.
#[derive(Clone, Debug, Default)]
struct SpecialIds {
    bos: Option<TokenId>,
    /// The one that templates write as `eos_token`.
    named_eos: Option<TokenId>,
    /// Ascending, each once.
    eos: Vec<TokenId>,
    unknown: Option<TokenId>,
    padding: Option<TokenId>,
    /// Whether a prompt begins with `bos`.
    add_bos: bool,
}

/// How text between special tokens is encoded.
#[derive(Debug)]
enum Algorithm {
    ByteLevel(ByteLevel),
    SentencePiece(SentencePiece),
    HuggingFace(Box<HuggingFace>),
}

impl Tokenizer {
    /// Builds the tokenizer that a GGUF holds.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for a model or pre-tokenizer that is not known,
    /// [`Error::Malformed`] for lists that do not fit together.
    pub fn from_gguf(source: GgufTokenizer) -> Result<Self, Error> {
        gguf::build(source)
    }

    /// Builds the tokenizer of a `tokenizer.json`; `path` is named in errors.
    ///
    /// What begins and ends a text is not in that file but in the model's
    /// configuration: see [`Tokenizer::with_bos`] and [`Tokenizer::with_eos`].
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for models other than BPE and for decoders other
    /// than byte-level and byte-fallback, [`Error::Malformed`] for other text.
    pub fn from_json(path: &Path, json: &[u8]) -> Result<Self, Error> {
        hugging_face::build(path, json)
    }

    /// Sets the token that begins a text, and whether prompts get it.
    #[must_use]
    pub fn with_bos(mut self, bos: Option<TokenId>, add_bos: bool) -> Self {
        self.special.bos = bos.filter(|&id| (id as usize) < self.vocab_size());
        self.special.add_bos = add_bos && self.special.bos.is_some();
        self
    }

    /// Adds tokens that end a text, the one that templates call `eos_token`
    /// first; those outside the vocabulary are left out.
    #[must_use]
    pub fn with_eos(mut self, eos: &[TokenId]) -> Self {
        let num_tokens = self.vocab_size();
        let known = || eos.iter().copied().filter(|&id| (id as usize) < num_tokens);
        self.special.named_eos = self.special.named_eos.or(known().next());
        self.special
            .eos
            .extend(eos.iter().filter(|&&id| (id as usize) < num_tokens));
        self.special.eos.sort_unstable();
        self.special.eos.dedup();
        self
    }

    /// Encodes text, and nothing but the text: no token is put before it.
    pub fn encode(&self, text: &str, special: SpecialTokens) -> Vec<TokenId> {
        let splitter = match special {
            SpecialTokens::AsText => &self.user_defined,
            SpecialTokens::Parse => &self.all_special,
        };
        self.encode_fragments(&splitter.split(text))
    }

    /// Encodes a whole prompt: with the first token that the model expects,
    /// which is there once, also where the text names it itself.
    pub fn encode_prompt(&self, text: &str, special: SpecialTokens) -> Vec<TokenId> {
        self.with_first_token(self.encode(text, special))
    }

    /// Bytes that a token stands for: without `Ġ` and `▁`, and of a control
    /// token its name. `None` outside the vocabulary.
    pub fn token_bytes(&self, id: TokenId) -> Option<&[u8]> {
        self.vocabulary.bytes(id)
    }

    /// The control or user-defined token of exactly this name.
    pub fn special_token(&self, name: &str) -> Option<TokenId> {
        match self.all_special.split(name).as_slice() {
            [Fragment::Token(id)] if self.token_bytes(*id) == Some(name.as_bytes()) => Some(*id),
            _ => None,
        }
    }

    /// Whether a token steers the model and is no part of its text.
    pub fn is_control(&self, id: TokenId) -> bool {
        self.vocabulary.kind(id).is_some_and(TokenKind::is_control)
    }

    /// Number of tokens; ids are below it.
    pub fn vocab_size(&self) -> usize {
        self.vocabulary.len()
    }

    /// Token that begins a text, where the model has one.
    pub fn bos(&self) -> Option<TokenId> {
        self.special.bos
    }

    /// Whether [`Tokenizer::encode_prompt`] puts `bos` before a text.
    pub fn adds_bos(&self) -> bool {
        self.special.add_bos
    }

    /// The token that ends a text as the model's file names it.
    pub fn eos(&self) -> Option<TokenId> {
        self.special.named_eos
    }

    /// Tokens that end a text or a turn, ascending.
    pub fn eos_ids(&self) -> &[TokenId] {
        &self.special.eos
    }

    /// Text of tokens that continue another text: control tokens and ids
    /// outside the vocabulary are left out, a first space is kept, and bytes
    /// that are not UTF-8 become U+FFFD.
    pub fn decode(&self, ids: &[TokenId]) -> String {
        let mut bytes = Vec::with_capacity(ids.len() * 4);
        for &id in ids {
            if !self.is_control(id) {
                bytes.extend_from_slice(self.token_bytes(id).unwrap_or_default());
            }
        }
        lossy(bytes)
    }

    /// Text of a whole prompt, the inverse of [`Tokenizer::encode_prompt`]:
    /// control tokens by their names, without the spaces that encoding added.
    pub fn decode_prompt(&self, ids: &[TokenId]) -> String {
        let mut bytes = Vec::with_capacity(ids.len() * 4);
        let mut at_start = self.add_space_prefix;
        for &id in ids {
            let stands_alone = self
                .vocabulary
                .kind(id)
                .is_some_and(TokenKind::stands_alone);
            let token = self.token_bytes(id).unwrap_or_default();
            bytes.extend_from_slice(match token {
                [b' ', rest @ ..] if at_start && !stands_alone => rest,
                whole => whole,
            });
            at_start = self.add_space_prefix && stands_alone;
        }
        lossy(bytes)
    }

    /// Encodes text between special tokens, which holds none any more.
    pub(crate) fn encode_fragments(&self, fragments: &[Fragment<'_>]) -> Vec<TokenId> {
        if let Algorithm::HuggingFace(hugging_face) = &self.algorithm {
            return hugging_face.encode(fragments);
        }
        let mut ids = Vec::new();
        let mut after_token = true;
        for fragment in fragments {
            match fragment {
                Fragment::Token(id) => ids.push(*id),
                Fragment::Text(text) => match &self.algorithm {
                    Algorithm::ByteLevel(byte_level) => byte_level.encode(text, &mut ids),
                    Algorithm::SentencePiece(sentencepiece) => {
                        let space_before = self.add_space_prefix && after_token;
                        sentencepiece.encode(text, space_before, &mut ids);
                    }
                    Algorithm::HuggingFace(_) => {}
                },
            }
            after_token = matches!(fragment, Fragment::Token(_));
        }
        ids
    }

    /// Splitter of control and user-defined tokens.
    pub(crate) fn all_special(&self) -> &SpecialSplitter {
        &self.all_special
    }

    /// Splitter of user-defined tokens.
    pub(crate) fn user_defined(&self) -> &SpecialSplitter {
        &self.user_defined
    }

    /// Name of a token, for templates that write it out.
    pub(crate) fn token_name(&self, id: Option<TokenId>) -> Option<String> {
        let bytes = self.token_bytes(id?)?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    }

    /// Names of all control tokens.
    pub(crate) fn control_names(&self) -> impl Iterator<Item = &str> {
        self.all_special
            .names()
            .filter(|(id, _)| self.is_control(*id))
            .map(|(_, name)| name)
    }

    /// Tokens for what is not in the vocabulary, and for what is not text.
    pub(crate) fn unknown_and_padding(&self) -> (Option<TokenId>, Option<TokenId>) {
        (self.special.unknown, self.special.padding)
    }

    /// Gives a prompt the first token that the model expects, exactly once.
    pub(crate) fn with_first_token(&self, mut ids: Vec<TokenId>) -> Vec<TokenId> {
        if let Some(bos) = self.special.bos.filter(|_| self.special.add_bos) {
            match ids.iter().position(|&id| id != bos).unwrap_or(ids.len()) {
                0 => ids.insert(0, bos),
                1 => {}
                num_bos => drop(ids.drain(1..num_bos)),
            }
        }
        ids
    }
}

/// UTF-8 as it is, U+FFFD for what is none; without a copy where it is valid.
fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}
