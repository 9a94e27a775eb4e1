//! Reads the event stream of one chat completion, as OpenAI-compatible servers send it.
//!
//! Guarantees: what is read does not depend on where the bytes were split; a stream that says it
//! failed, or does not say that it ended, is never a success. It has no clock: the caller passes
//! the instant at which bytes left the socket, and all events of one read share it.

use std::time::Instant;

use justapi_core::EventDecoder;
use serde::Deserialize;
use serde_json::Value;

use super::outcome::ServingOutcome;

/// Characters kept of what a server said about a failure.
const MAX_DETAIL_CHARS: usize = 300;

/// What has been read of one completion.
#[derive(Debug, Default)]
pub(super) struct Completion {
    decoder: EventDecoder,
    /// Instants of the token-bearing events: those with content, reasoning or tool arguments.
    pub(super) tokens: Vec<Instant>,
    /// First event with visible content.
    pub(super) first_content: Option<Instant>,
    /// Visible content.
    pub(super) text: String,
    pub(super) usage: Option<Usage>,
    /// Completion tokens when the first token-bearing event came, of a server that counts in
    /// every event.
    pub(super) tokens_at_first: Option<u64>,
    pub(super) finish_reason: Option<String>,
    /// Instant of `[DONE]`.
    pub(super) done: Option<Instant>,
    fault: Option<Fault>,
}

/// Token counts of the server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Usage {
    #[serde(default)]
    pub(super) prompt_tokens: Option<u64>,
    #[serde(default)]
    pub(super) completion_tokens: Option<u64>,
    #[serde(default)]
    prompt_tokens_details: Option<PromptDetails>,
}

impl Usage {
    /// Prompt tokens that came from a cache; `None` when the server does not say.
    pub(super) fn cached_tokens(&self) -> Option<u64> {
        self.prompt_tokens_details?.cached_tokens
    }
}

/// How the bytes of a response ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamEnd {
    /// Nobody needs what may follow.
    Settled,
    /// The message was complete.
    Clean,
    /// The connection broke inside the message.
    Broken,
}

#[derive(Debug)]
enum Fault {
    /// The server said that it failed.
    Server(String),
    /// What the server sent is no completion.
    Invalid(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
struct PromptDetails {
    #[serde(default)]
    cached_tokens: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Option<Vec<Choice>>,
    #[serde(default)]
    usage: Option<Usage>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Choice {
    #[serde(default)]
    delta: Option<Delta>,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Delta {
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    reasoning_content: Option<String>,
    #[serde(default)]
    reasoning: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<ToolCall>>,
}

#[derive(Debug, Deserialize)]
struct ToolCall {
    #[serde(default)]
    function: Option<ToolFunction>,
}

#[derive(Debug, Deserialize)]
struct ToolFunction {
    #[serde(default)]
    arguments: Option<String>,
}

impl Completion {
    /// Takes bytes that left the socket at `at`; true once nothing more is needed.
    pub(super) fn read(&mut self, bytes: &[u8], at: Instant) -> bool {
        if self.is_settled() {
            return true;
        }
        let fed = self.decoder.feed(bytes);
        while let Some(event) = self.decoder.next_event() {
            self.take(&event.name, &event.data, at);
            if self.is_settled() {
                return true;
            }
        }
        if let Err(error) = fed {
            self.fault = Some(Fault::Invalid(error.to_string()));
        }
        self.is_settled()
    }

    /// The class of the stream, now that it has ended.
    pub(super) fn outcome(&self, end: StreamEnd, usage_is_needed: bool) -> ServingOutcome {
        match self.fault {
            Some(Fault::Server(_)) => return ServingOutcome::StreamError,
            Some(Fault::Invalid(_)) => return ServingOutcome::InvalidStream,
            None => {}
        }
        let has_ended =
            self.done.is_some() || (end == StreamEnd::Clean && self.finish_reason.is_some());
        let num_tokens = self.usage.and_then(|usage| usage.completion_tokens);
        if !has_ended {
            ServingOutcome::Truncated
        } else if self.tokens.is_empty() {
            ServingOutcome::Empty
        } else if usage_is_needed && num_tokens.is_none() {
            ServingOutcome::UsageMissing
        } else {
            ServingOutcome::Ok
        }
    }

    /// What the server said about a failure, or what was wrong with its answer.
    pub(super) fn fault(&self) -> Option<&str> {
        match self.fault.as_ref()? {
            Fault::Server(text) | Fault::Invalid(text) => Some(text),
        }
    }

    fn is_settled(&self) -> bool {
        self.done.is_some() || self.fault.is_some()
    }

    fn take(&mut self, name: &str, data: &str, at: Instant) {
        let data = data.trim();
        if name == "error" {
            let parsed = serde_json::from_str::<Value>(data);
            let text = parsed.map_or_else(|_| data.to_owned(), |value| message(&value));
            self.fault = Some(Fault::Server(shorten(&text)));
            return;
        }
        if data == "[DONE]" {
            self.done = Some(at);
            return;
        }
        match serde_json::from_str::<Chunk>(data) {
            // An array can also be read as the fields in their order.
            Ok(chunk) if data.starts_with('{') => self.take_chunk(chunk, at),
            Ok(_) => {
                let text = format!("no object in the event {data}");
                self.fault = Some(Fault::Invalid(shorten(&text)));
            }
            Err(error) => {
                let text = format!("{error} in the event {data}");
                self.fault = Some(Fault::Invalid(shorten(&text)));
            }
        }
    }

    fn take_chunk(&mut self, chunk: Chunk, at: Instant) {
        if let Some(error) = chunk.error {
            self.fault = Some(Fault::Server(shorten(&message(&error))));
            return;
        }
        if chunk.usage.is_some() {
            self.usage = chunk.usage;
        }
        for choice in chunk.choices.unwrap_or_default() {
            if choice.finish_reason.is_some() {
                self.finish_reason = choice.finish_reason;
            }
            let Some(delta) = choice.delta else { continue };
            let content = delta.content.unwrap_or_default();
            let is_content = !content.is_empty();
            if is_content {
                self.first_content.get_or_insert(at);
                self.text.push_str(&content);
            }
            let bears_token = is_content
                || has_text(delta.reasoning_content.as_deref())
                || has_text(delta.reasoning.as_deref())
                || delta.tool_calls.iter().flatten().any(|call| {
                    let function = call.function.as_ref();
                    has_text(function.and_then(|function| function.arguments.as_deref()))
                });
            if bears_token {
                if self.tokens.is_empty() {
                    self.tokens_at_first = chunk.usage.and_then(|usage| usage.completion_tokens);
                }
                self.tokens.push(at);
            }
        }
    }
}

fn has_text(text: Option<&str>) -> bool {
    text.is_some_and(|text| !text.is_empty())
}

/// The text of an error in the forms that servers use.
fn message(error: &Value) -> String {
    let inner = error.get("error").unwrap_or(error);
    let text = inner.get("message").and_then(Value::as_str);
    text.or_else(|| inner.as_str())
        .map_or_else(|| inner.to_string(), ToOwned::to_owned)
}

/// The beginning of a text, on one line.
pub(super) fn shorten(text: &str) -> String {
    let line: Vec<_> = text.split_whitespace().collect();
    line.join(" ").chars().take(MAX_DETAIL_CHARS).collect()
}
