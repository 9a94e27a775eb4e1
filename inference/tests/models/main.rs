//! The engine's arithmetic against three others: a reference in f64 beside
//! these tests, Hugging Face's transformers and llama.cpp. Each comparison is
//! shown to fail for a model that is wrong in one detail.
//!
//! `tests/golden` has the data and the scripts that made it.

mod comparison;
mod golden;
mod mutations;
mod real_models;
mod reference;
mod runner;
mod tiny;
mod tiny_engine;
mod tiny_models;
