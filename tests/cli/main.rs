//! The built binary, used as a person and as a script would use it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bench;
mod bench_llm;
mod binary;
mod configuration;
mod failures;
mod help;
mod infer;
mod installation;
mod ledger;
mod looks;
mod naughty;
mod naughty_server;
mod new;
mod new_faults;
mod new_prompts;
mod one_shot;
mod profile;
mod serving;
mod speed;
mod texts;
mod tiny_model;
