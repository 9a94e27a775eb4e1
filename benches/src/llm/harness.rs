//! What every scenario uses: the server, the form of a request, and the writer of prompts.

use std::rc::Rc;
use std::time::Instant;

use hyper::body::Bytes;
use serde_json::{Map, Value, json};

use super::client::{Attempt, Client};
use super::dataset::Job;
use super::outcome::ServingOutcome;
use super::plan::ServingPlan;
use super::prompt::{PromptWriter, user};
use super::sample::Sample;
use super::server::ServerSnapshot;
use crate::Error;

/// One server under measurement.
pub(super) struct Harness<'a> {
    pub(super) plan: &'a ServingPlan,
    /// For what is measured.
    pub(super) client: Rc<Client>,
    /// For questions beside it, on connections of their own.
    pub(super) control: Rc<Client>,
    pub(super) shape: Rc<RequestShape>,
    pub(super) before: ServerSnapshot,
    /// What the server means when it does not mention cached tokens.
    pub(super) unsaid_cached: Option<u64>,
}

/// What all requests have in common.
#[derive(Debug)]
pub(super) struct RequestShape {
    pub(super) model: String,
    pub(super) fields: Map<String, Value>,
}

/// An attempt with the prompt tokens that it was made to have.
pub(super) type Measured = (Option<u64>, Attempt);

impl RequestShape {
    pub(super) fn body(&self, messages: &[Value], max_tokens: u64) -> Bytes {
        let mut fields = self.fields.clone();
        fields.insert("model".to_owned(), json!(self.model));
        fields.insert("messages".to_owned(), json!(messages));
        // Given by the user under either name, it is the user's.
        if !fields.contains_key("max_tokens") && !fields.contains_key("max_completion_tokens") {
            fields.insert("max_tokens".to_owned(), json!(max_tokens));
        }
        Value::Object(fields).to_string().into()
    }

    /// The request of a job's first turn.
    pub(super) fn first_body(&self, job: &Job) -> Option<Bytes> {
        let turn = job.turns.first()?;
        let mut messages = job.history.clone();
        messages.push(turn.message.clone());
        Some(self.body(&messages, turn.max_tokens))
    }
}

impl Harness<'_> {
    /// Asks once.
    pub(super) async fn ask(&self, text: &str, max_tokens: u64) -> Attempt {
        let body = self.shape.body(&[user(text)], max_tokens);
        self.client.complete(body, None).await
    }

    pub(super) fn sample(&self, repetition: u32, measured: &Measured) -> Sample {
        let (target, attempt) = measured;
        Sample::new(repetition, *target, attempt, self.unsaid_cached)
    }

    pub(super) fn samples(&self, measured: &[Measured]) -> Vec<Sample> {
        let numbered = (0..).zip(measured);
        numbered
            .map(|(number, measured)| self.sample(number, measured))
            .collect()
    }

    /// Why a request cannot be measured, when the server says how much fits.
    pub(super) fn too_long(&self, prompt_tokens: u64, max_tokens: u64) -> Option<String> {
        let context = self.before.context_tokens(&self.shape.model)?;
        let needed = prompt_tokens + max_tokens;
        (needed > context)
            .then(|| format!("needs {needed} tokens, the server's context has {context}"))
    }

    /// The work of one level.
    pub(super) async fn jobs(
        &self,
        count: usize,
        writer: &mut PromptWriter<'_>,
    ) -> Result<Vec<Job>, Error> {
        let lengths = super::dataset::Lengths {
            input_tokens: self.plan.input_tokens,
            output_tokens: self.plan.output_tokens,
        };
        self.plan.dataset.jobs(count, lengths, writer).await
    }
}

/// Asks the turns of a job one after the other, each with what was answered before.
pub(super) async fn run_job(
    client: &Client,
    shape: &RequestShape,
    job: Job,
    first_body: Option<Bytes>,
    scheduled: Option<Instant>,
) -> Vec<Measured> {
    let mut first_body = first_body;
    let mut target = job.target_prompt_tokens;
    let mut scheduled = scheduled;
    let mut messages = job.history;
    let mut measured = Vec::with_capacity(job.turns.len());
    for turn in job.turns {
        messages.push(turn.message);
        let body = first_body
            .take()
            .unwrap_or_else(|| shape.body(&messages, turn.max_tokens));
        let attempt = client.complete(body, scheduled.take()).await;
        let is_ok = attempt.outcome == ServingOutcome::Ok;
        messages.push(json!({"role": "assistant", "content": attempt.completion.text}));
        measured.push((target.take(), attempt));
        if !is_ok {
            break;
        }
    }
    measured
}
