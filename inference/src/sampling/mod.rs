//! From logits to a token: a pure function of the logits, the parameters, what
//! the sequence holds, and a random number that seed and position determine.

mod exponential;
mod params;
mod philox;
mod sampler;
mod selection;

#[cfg(test)]
mod tests;

pub use self::params::SamplingParams;
pub use self::sampler::{Sample, Sampler, SamplingContext, SamplingFailure};
