//! What is asked of the server in the scenarios under load: made prompts or a file of them.
//!
//! Guarantee: a level never sees the prompts of another one. Where texts come from a file, a
//! number that was never used before stands ahead of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};

use super::prompt::{PromptWriter, user};
use crate::Error;

/// Prompt tokens for each entry of `hash_ids` in a trace (the Mooncake format).
///
/// An eighth of each stays free for the frame of the message and for the numbers that keep runs
/// and requests apart.
const TRACE_BLOCK_TOKENS: u64 = 512;

/// Where prompts come from.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Dataset {
    /// Unique prompts of an exact number of tokens.
    Synthetic,
    /// Prompts that begin with the same tokens and go on with their own.
    SharedPrefix {
        /// Tokens that all of a level share.
        prefix_tokens: u64,
    },
    /// Conversations: each turn sends what was said before.
    MultiTurn {
        /// Questions of each conversation.
        turns: u32,
    },
    /// Lines of JSON with lengths or texts, and the times at which they came.
    Trace {
        /// The file.
        path: PathBuf,
        /// Its requests.
        entries: Vec<TraceEntry>,
    },
    /// Conversations in the format of ShareGPT, of which the first exchange is used.
    ShareGpt {
        /// The file.
        path: PathBuf,
        /// Question and answer of each conversation.
        exchanges: Vec<(String, String)>,
    },
}

/// One line of a trace.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct TraceEntry {
    /// Milliseconds since the begin of the trace.
    #[serde(default)]
    pub timestamp: Option<f64>,
    /// Tokens of the prompt, where there is no text.
    #[serde(default)]
    pub input_length: Option<u64>,
    /// Tokens to generate.
    #[serde(default, alias = "max_tokens")]
    pub output_length: Option<u64>,
    /// Blocks of 512 prompt tokens; equal ones are equal texts.
    #[serde(default)]
    pub hash_ids: Vec<u64>,
    /// Text of the prompt.
    #[serde(default)]
    pub prompt: Option<String>,
    /// Messages, in place of a prompt.
    #[serde(default)]
    pub messages: Option<Vec<Value>>,
}

/// Work of one client: requests that follow one another.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Job {
    /// Messages ahead of the first turn.
    pub(super) history: Vec<Value>,
    pub(super) turns: Vec<Turn>,
    /// Tokens that the prompt of the first turn was made to have.
    pub(super) target_prompt_tokens: Option<u64>,
}

/// One question.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Turn {
    pub(super) message: Value,
    pub(super) max_tokens: u64,
}

/// Lengths of made requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lengths {
    pub(super) input_tokens: u64,
    pub(super) output_tokens: Option<u64>,
}

/// Tokens to generate unless something says otherwise.
pub(super) const OUTPUT_TOKENS: u64 = 128;

impl Lengths {
    fn output(self) -> u64 {
        self.output_tokens.unwrap_or(OUTPUT_TOKENS)
    }
}

impl Dataset {
    /// Reads a trace: one JSON object on each line.
    ///
    /// # Errors
    ///
    /// [`Error::File`], and [`Error::Dataset`] for a line that cannot be used.
    pub fn trace(path: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(path).map_err(Error::file("read", path))?;
        let mut entries = Vec::new();
        for (index, line) in text.lines().enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            let invalid = |problem: String| Error::Dataset {
                path: path.to_owned(),
                line: Some(index + 1),
                problem,
            };
            let entry: TraceEntry =
                serde_json::from_str(line).map_err(|error| invalid(error.to_string()))?;
            let has_text = entry.prompt.is_some() || entry.messages.is_some();
            if !has_text && entry.input_length.is_none_or(|length| length == 0) {
                let problem = "no input_length, prompt or messages";
                return Err(invalid(problem.to_owned()));
            }
            if entry
                .timestamp
                .is_some_and(|time| !(time >= 0.0 && time.is_finite()))
            {
                return Err(invalid("the timestamp is not a time".to_owned()));
            }
            entries.push(entry);
        }
        not_empty(path, entries.len())?;
        Ok(Self::Trace {
            path: path.to_owned(),
            entries,
        })
    }

    /// Reads a file in the format of ShareGPT: an array of conversations.
    ///
    /// # Errors
    ///
    /// As for [`Self::trace`].
    pub fn share_gpt(path: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(path).map_err(Error::file("read", path))?;
        let conversations: Vec<Conversation> =
            serde_json::from_str(&text).map_err(|error| Error::Dataset {
                path: path.to_owned(),
                line: Some(error.line()),
                problem: error.to_string(),
            })?;
        let exchanges: Vec<_> = conversations
            .into_iter()
            .filter_map(Conversation::first_exchange)
            .collect();
        not_empty(path, exchanges.len())?;
        Ok(Self::ShareGpt {
            path: path.to_owned(),
            exchanges,
        })
    }

    /// The name in reports.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Synthetic => "synthetic",
            Self::SharedPrefix { .. } => "shared_prefix",
            Self::MultiTurn { .. } => "multi_turn",
            Self::Trace { .. } => "trace",
            Self::ShareGpt { .. } => "sharegpt",
        }
    }

    /// The file it was read from.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Self::Trace { path, .. } | Self::ShareGpt { path, .. } => Some(path),
            _ => None,
        }
    }

    /// Milliseconds at which the first `count` requests of a trace came, from its first.
    pub(super) fn times_ms(&self, count: usize) -> Option<Vec<f64>> {
        let Self::Trace { entries, .. } = self else {
            return None;
        };
        let times: Option<Vec<_>> = entries.iter().map(|entry| entry.timestamp).collect();
        let mut times: Vec<_> = times?.into_iter().take(count).collect();
        let first = *times.first()?;
        for time in &mut times {
            *time -= first;
        }
        times.is_sorted().then_some(times)
    }

    /// Whether prompts of one level begin alike on purpose.
    pub(super) const fn shares_prefixes(&self) -> bool {
        !matches!(self, Self::Synthetic | Self::ShareGpt { .. })
    }

    /// Makes the work of one level.
    pub(super) async fn jobs(
        &self,
        count: usize,
        lengths: Lengths,
        writer: &mut PromptWriter<'_>,
    ) -> Result<Vec<Job>, Error> {
        match self {
            Self::Synthetic => {
                let mut jobs = Vec::with_capacity(count);
                for _ in 0..count {
                    let prompt = writer.exact(lengths.input_tokens).await?;
                    let job = Job::single(user(&prompt.text), lengths.output());
                    jobs.push(job.with_target(lengths.input_tokens));
                }
                Ok(jobs)
            }
            Self::SharedPrefix { prefix_tokens } => {
                let prefix = writer.exact(*prefix_tokens).await?;
                let mut jobs = Vec::with_capacity(count);
                for _ in 0..count {
                    let own = format!("{} {}", prefix.text, writer.nonce());
                    let prompt = writer.extend(&own, lengths.input_tokens).await?;
                    let job = Job::single(user(&prompt.text), lengths.output());
                    jobs.push(job.with_target(lengths.input_tokens));
                }
                Ok(jobs)
            }
            Self::MultiTurn { turns } => {
                let mut jobs = Vec::with_capacity(count);
                for _ in 0..count {
                    let first = writer.exact(lengths.input_tokens).await?;
                    let mut job = Job::single(user(&first.text), lengths.output());
                    for _ in 1..*turns {
                        let next = writer.about(lengths.input_tokens);
                        job.turns.push(Turn {
                            message: user(&next),
                            max_tokens: lengths.output(),
                        });
                    }
                    jobs.push(job.with_target(lengths.input_tokens));
                }
                Ok(jobs)
            }
            Self::Trace { entries, .. } => trace_jobs(entries, count, lengths, writer).await,
            Self::ShareGpt { exchanges, .. } => {
                let mut jobs = Vec::with_capacity(count);
                for (question, answer) in exchanges.iter().cycle().take(count) {
                    let text = format!("{}\n\n{question}", writer.nonce());
                    let max_tokens = match lengths.output_tokens {
                        Some(tokens) => tokens,
                        None => writer.count(answer).await?.max(2),
                    };
                    jobs.push(Job::single(user(&text), max_tokens));
                }
                Ok(jobs)
            }
        }
    }
}

impl Job {
    pub(super) fn single(message: Value, max_tokens: u64) -> Self {
        Self {
            history: Vec::new(),
            turns: vec![Turn {
                message,
                max_tokens,
            }],
            target_prompt_tokens: None,
        }
    }

    pub(super) const fn with_target(mut self, tokens: u64) -> Self {
        self.target_prompt_tokens = Some(tokens);
        self
    }
}

async fn trace_jobs(
    entries: &[TraceEntry],
    count: usize,
    lengths: Lengths,
    writer: &mut PromptWriter<'_>,
) -> Result<Vec<Job>, Error> {
    let mut blocks = BTreeMap::new();
    // Ahead of every text of the level, so that what the trace shares is shared, and no more.
    let mut nonce = String::new();
    let mut jobs = Vec::with_capacity(count);
    for (index, entry) in entries.iter().cycle().take(count).enumerate() {
        if index % entries.len() == 0 {
            nonce = writer.nonce();
            blocks.clear();
        }
        let output = entry.output_length.unwrap_or_else(|| lengths.output());
        if let Some(messages) = &entry.messages {
            jobs.push(job_of_messages(messages, &nonce, output));
            continue;
        }
        if let Some(text) = &entry.prompt {
            jobs.push(Job::single(user(&format!("{nonce}\n\n{text}")), output));
            continue;
        }
        let target = entry.input_length.unwrap_or(lengths.input_tokens);
        let mut text = if entry.hash_ids.is_empty() {
            writer.nonce()
        } else {
            nonce.clone()
        };
        // The last block is the request's own where it is not a whole one.
        let num_whole = (target / TRACE_BLOCK_TOKENS) as usize;
        for id in entry.hash_ids.iter().take(num_whole) {
            let block = blocks
                .entry(*id)
                .or_insert_with(|| writer.about(TRACE_BLOCK_TOKENS * 7 / 8));
            text.push(' ');
            text.push_str(block);
        }
        text.push(' ');
        text.push_str(&writer.nonce());
        let prompt = writer.extend(&text, target).await?;
        jobs.push(Job::single(user(&prompt.text), output).with_target(target));
    }
    Ok(jobs)
}

/// A job whose last message is its turn; the number goes ahead of the first message.
fn job_of_messages(messages: &[Value], nonce: &str, max_tokens: u64) -> Job {
    let mut messages = messages.to_vec();
    if let Some(first) = messages.first_mut()
        && let Some(text) = first["content"].as_str()
    {
        let text = format!("{nonce}\n\n{text}");
        first["content"] = json!(text);
    }
    let last = messages.pop().unwrap_or_else(|| user(nonce));
    Job {
        history: messages,
        ..Job::single(last, max_tokens)
    }
}

fn not_empty(path: &Path, count: usize) -> Result<(), Error> {
    if count == 0 {
        return Err(Error::Dataset {
            path: path.to_owned(),
            line: None,
            problem: "nothing in it can be asked".to_owned(),
        });
    }
    Ok(())
}

#[derive(Debug, Deserialize)]
struct Conversation {
    #[serde(default)]
    conversations: Vec<Remark>,
}

#[derive(Debug, Deserialize)]
struct Remark {
    from: String,
    value: String,
}

impl Conversation {
    /// The first question that is answered next.
    fn first_exchange(self) -> Option<(String, String)> {
        let asks = |remark: &Remark| matches!(remark.from.as_str(), "human" | "user");
        let mut remarks = self.conversations.into_iter().skip_while(|r| !asks(r));
        let (question, answer) = (remarks.next()?, remarks.next()?);
        let is_whole = matches!(
            answer.from.as_str(),
            "gpt" | "chatgpt" | "assistant" | "bard"
        ) && !question.value.trim().is_empty()
            && !answer.value.trim().is_empty();
        is_whole.then_some((question.value, answer.value))
    }
}
