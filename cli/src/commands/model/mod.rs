//! A model that a command runs: found, checked against the memory, and started.
//!
//! Guarantee: whatever is wrong is said before anything is computed, with what to
//! change.

mod error;
mod fetching;
mod running;

pub(crate) use self::error::{refused, template_error};
pub(crate) use self::fetching::{find_model, megabytes};
pub(crate) use self::running::{
    ModelPlan, RunningModel, chat_template, kv_bytes_per_token, open, start,
};
