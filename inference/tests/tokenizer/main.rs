//! Tokenizers against llama.cpp: the same tokens for 2,000 texts, which are
//! made here by the rule of `golden/make_tokenizer.py`. Text in pieces is the same as whole.

mod metadata;
mod models;
mod small;
mod streaming;
mod texts;
