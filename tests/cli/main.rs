//! The built binary, used as a person and as a script would use it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bench;
mod binary;
mod configuration;
mod failures;
mod help;
mod one_shot;
mod serving;
