//! Tokenizer and template of a GGUF: keys `tokenizer.*` of its metadata
//! (`docs/gguf.md` of ggml-org/ggml).

use crate::error::Error;
use crate::ids::TokenId;
use crate::tokenizer::{GgufTokenizer, Tokenizer};
use crate::weights::{GgufFile, Metadata};

/// Reads both.
pub(super) fn texts(file: &GgufFile) -> Result<(Tokenizer, Option<String>), Error> {
    let metadata = file.metadata();
    let template = metadata.string("tokenizer.chat_template")?;
    let model = metadata.string("tokenizer.ggml.model")?;
    let source = GgufTokenizer {
        path: file.path().to_owned(),
        model: metadata.require("tokenizer.ggml.model", model)?.to_owned(),
        pre: metadata.string("tokenizer.ggml.pre")?.map(str::to_owned),
        tokens: strings(metadata, "tokenizer.ggml.tokens")?,
        scores: metadata
            .floats("tokenizer.ggml.scores")?
            .unwrap_or_default(),
        token_types: token_types(metadata)?,
        merges: strings(metadata, "tokenizer.ggml.merges")?,
        bos: token(metadata, "tokenizer.ggml.bos_token_id")?,
        eos: token(metadata, "tokenizer.ggml.eos_token_id")?,
        eot: token(metadata, "tokenizer.ggml.eot_token_id")?,
        eom: token(metadata, "tokenizer.ggml.eom_token_id")?,
        unknown: token(metadata, "tokenizer.ggml.unknown_token_id")?,
        padding: token(metadata, "tokenizer.ggml.padding_token_id")?,
        add_bos: metadata.boolean("tokenizer.ggml.add_bos_token")?,
        add_space_prefix: metadata.boolean("tokenizer.ggml.add_space_prefix")?,
    };
    let template = template.map(str::to_owned);
    Ok((Tokenizer::from_gguf(source)?, template))
}

fn strings(metadata: &Metadata, key: &str) -> Result<Vec<String>, Error> {
    let texts = metadata.strings(key)?;
    Ok(texts.map_or_else(Vec::new, |texts| texts.map(str::to_owned).collect()))
}

fn token_types(metadata: &Metadata) -> Result<Vec<i32>, Error> {
    const KEY: &str = "tokenizer.ggml.token_type";
    let numbers = metadata.integers(KEY)?.unwrap_or_default();
    let narrow = |number| i32::try_from(number).ok();
    let types: Option<Vec<i32>> = numbers.into_iter().map(narrow).collect();
    metadata.require(KEY, types)
}

fn token(metadata: &Metadata, key: &str) -> Result<Option<TokenId>, Error> {
    let number = metadata.unsigned(key)?;
    // Some files say "none" by a number that no vocabulary has.
    Ok(number.and_then(|number| TokenId::try_from(number).ok()))
}
