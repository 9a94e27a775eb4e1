//! The engine as its users see it: submit a request, receive its text.
//!
//! One thread runs the model; everything here only sends to it.

mod handle;
mod options;
mod request;
#[cfg(test)]
mod tests;
mod text;
mod thread;

pub use self::handle::{Command, Engine, EngineStats, Generation};
pub use self::options::{DEFAULT_KV_BYTES, EngineOptions};
pub use self::request::{EngineEvent, EngineRequest, FinishReason, Refusal, TokenLogprobs, Usage};
pub use self::thread::start;
