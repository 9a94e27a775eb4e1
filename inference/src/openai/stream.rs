//! An answer as a stream of server-sent events.
//!
//! Guarantees: `finish_reason` is `null` up to the last chunk of a choice, which
//! alone has one; usage comes only if asked for, in a chunk without choices;
//! a failure in the middle is an event with an error object; the last event is
//! `[DONE]`, exactly once.
//!
//! ```text
//! first ─▶ piece* ─▶ end    for each choice, interleaved
//! then usage? [DONE]        or error [DONE]
//! ```

use justapi_core::{Event, EventSender, IntoResponse as _, Response, SendEventError, Sse};
use serde::{Serialize, Serializer};

use super::answer::{Head, UsageBody};
use super::error::ApiError;
use super::generation::{Choices, finish_reason};
use super::parameters::Delivery;
use crate::{EngineEvent, TokenLogprobs};

const DONE: &str = "[DONE]";

/// What the chunks of one kind of answer look like.
pub(super) trait Shape: Send + Sync + 'static {
    /// A member of `choices`.
    type Choice: Serialize + Send + Sync;

    /// The chunk before all text, if there is one; `prompt` where asked for.
    fn first(
        &mut self,
        index: usize,
        prompt: Option<Vec<Option<TokenLogprobs>>>,
    ) -> Option<Self::Choice>;

    /// A chunk with text.
    fn piece(
        &mut self,
        index: usize,
        text: String,
        logprobs: Option<&TokenLogprobs>,
    ) -> Self::Choice;

    /// The last chunk.
    fn end(&mut self, index: usize, finish_reason: &'static str) -> Self::Choice;
}

/// A stream that is to be sent.
pub(super) struct Stream<S> {
    pub(super) head: Head,
    pub(super) shape: S,
    pub(super) delivery: Delivery,
    /// Of every prompt together.
    pub(super) num_prompt_tokens: u32,
    /// Whether what is generated is thrown away: the answer is the prompt.
    pub(super) is_prompt_alone: bool,
}

#[derive(Serialize)]
struct Chunk<'a, C> {
    #[serde(flatten)]
    head: &'a Head,
    choices: &'a [C],
    #[serde(skip_serializing_if = "UsageMember::is_absent")]
    usage: UsageMember,
}

/// `usage` of a chunk: it is there if asked for, and `null` before the last.
#[derive(Clone, Copy)]
enum UsageMember {
    Absent,
    Null,
    Is(UsageBody),
}

impl UsageMember {
    const fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }
}

impl Serialize for UsageMember {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Absent | Self::Null => serializer.serialize_none(),
            Self::Is(usage) => usage.serialize(serializer),
        }
    }
}

/// Why a stream ended early.
enum Broken {
    /// Nobody reads it any more.
    Left,
    Failed(ApiError),
}

impl From<SendEventError> for Broken {
    fn from(_: SendEventError) -> Self {
        Self::Left
    }
}

impl<S: Shape> Stream<S> {
    /// Makes the response; `choices` are given up with it.
    pub(super) fn respond(self, choices: Choices) -> Response {
        let stream = Sse::produce(move |events| async move {
            match self.run(&events, choices).await {
                Ok(()) => {}
                Err(Broken::Left) => return,
                Err(Broken::Failed(error)) => {
                    let event = Event::new().with_data(error.to_json());
                    if events.send(event).await.is_err() {
                        return;
                    }
                }
            }
            // Who left meanwhile needs no end.
            let _: Result<(), SendEventError> = events.send(Event::new().with_data(DONE)).await;
        });
        stream.as_one_answer().into_response()
    }

    async fn run(mut self, events: &EventSender, mut choices: Choices) -> Result<(), Broken> {
        let mut total = UsageBody::of_prompts(self.num_prompt_tokens);
        let mut num_sent = 0;
        let mut has_begun = Vec::new();
        let mut prompts = Vec::new();
        while let Some((index, event)) = choices.next().await {
            if has_begun.len() <= index {
                has_begun.resize(index + 1, false);
                prompts.resize(index + 1, None);
            }
            if let EngineEvent::Prompt { logprobs } = event {
                prompts[index] = Some(logprobs);
                continue;
            }
            if !std::mem::replace(&mut has_begun[index], true)
                && let Some(first) = self.shape.first(index, prompts[index].take())
            {
                self.send(events, &[first], &total).await?;
            }
            match event {
                EngineEvent::Prompt { .. } => {}
                EngineEvent::Token { text, logprobs, .. } => {
                    if self.is_prompt_alone {
                        continue;
                    }
                    num_sent += 1;
                    total.set_completion(num_sent);
                    if !text.is_empty() || logprobs.is_some() {
                        let piece = self.shape.piece(index, text, logprobs.as_ref());
                        self.send(events, &[piece], &total).await?;
                    }
                }
                EngineEvent::Finished {
                    reason,
                    text,
                    usage,
                } => {
                    let reason = finish_reason(reason).map_err(Broken::Failed)?;
                    if !text.is_empty() && !self.is_prompt_alone {
                        let piece = self.shape.piece(index, text, None);
                        self.send(events, &[piece], &total).await?;
                    }
                    let is_first = index % self.delivery.num_choices as usize == 0;
                    total.add_choice(usage, is_first, self.is_prompt_alone);
                    let reason = if self.is_prompt_alone {
                        "length"
                    } else {
                        reason
                    };
                    let end = self.shape.end(index, reason);
                    self.send(events, &[end], &total).await?;
                }
            }
        }
        if self.delivery.includes_usage {
            let chunk = Chunk::<S::Choice> {
                head: &self.head,
                choices: &[],
                usage: UsageMember::Is(total.finished()),
            };
            events.send(event(&chunk)).await?;
        }
        Ok(())
    }

    async fn send(
        &self,
        events: &EventSender,
        choices: &[S::Choice],
        total: &UsageBody,
    ) -> Result<(), Broken> {
        let chunk = Chunk {
            head: &self.head,
            choices,
            usage: match self.delivery {
                Delivery {
                    includes_running_usage: true,
                    ..
                } => UsageMember::Is(*total),
                Delivery {
                    includes_usage: true,
                    ..
                } => UsageMember::Null,
                _ => UsageMember::Absent,
            },
        };
        // Made before the wait: a chunk need not live across it.
        let event = event(&chunk);
        Ok(events.send(event).await?)
    }
}

fn event<C: Serialize>(chunk: &Chunk<'_, C>) -> Event {
    let text = serde_json::to_string(chunk).expect("a chunk is texts and numbers");
    Event::new().with_data(text)
}
