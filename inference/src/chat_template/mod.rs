//! Chat templates as Hugging Face renders them: messages to the prompt of one
//! model, in which what users wrote can never pass for a control token.
//!
//! The rules are those of `transformers` (`utils/chat_template_utils.py`): Jinja
//! with `trim_blocks`, `lstrip_blocks`, loop controls, `raise_exception`,
//! `strftime_now`, and JSON as Python writes it. Time is UTC.

mod clock;
mod environment;
mod guard;
mod json;
mod messages;
mod prompt;
mod python;

use std::time::SystemTime;

use minijinja::Value;

use self::guard::Guard;
pub use self::json::Json;
pub use self::prompt::RenderedPrompt;
use crate::tokenizer::Tokenizer;

/// Longest template; the longest in use have some 20 kB.
const MAX_TEMPLATE_BYTES: usize = 1 << 20;

/// Longest prompt; more than any context holds.
const MAX_PROMPT_BYTES: usize = 64 << 20;

/// Most instructions of one rendering. A message takes some 100, so this is 50,000 messages.
const MAX_INSTRUCTIONS: u64 = 5_000_000;

/// Deepest nesting of blocks and macros in a rendering.
const MAX_DEPTH: usize = 200;

/// Why messages could not be made a prompt.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// The template rejects the messages, in its own words (`raise_exception`).
    #[error("{message}")]
    Raised {
        /// What it says.
        message: String,
    },
    /// A message is not one that a model can read.
    #[error("messages[{index}]: {reason}")]
    Message {
        /// Place in the list, from 0.
        index: usize,
        /// Rule that it breaks.
        reason: String,
    },
    /// The messages make a prompt, or take work, beyond a limit.
    #[error("the prompt takes more than {limit} {unit}")]
    TooLarge {
        /// Most that may be.
        limit: u64,
        /// What is counted.
        unit: &'static str,
    },
    /// The template itself is at fault.
    #[error("chat template: {reason}")]
    Broken {
        /// What the template engine says, with the line.
        reason: String,
    },
}

impl TemplateError {
    /// Whether other messages would help, and not another template.
    pub fn is_fault_of_request(&self) -> bool {
        !matches!(self, Self::Broken { .. })
    }
}

/// What a rendering depends on besides the messages.
#[derive(Clone, Debug)]
pub struct RenderOptions {
    /// Whether the prompt ends with the beginning of an answer.
    pub add_generation_prompt: bool,
    /// Whether the prompt ends in the last message, which the model goes on with.
    pub continue_final_message: bool,
    /// Functions that the model may call, as in the API.
    pub tools: Option<Json>,
    /// Documents for templates that know them.
    pub documents: Option<Json>,
    /// Other variables for the template (`chat_template_kwargs`). Those named above win.
    pub variables: Vec<(String, Json)>,
    /// What `strftime_now` tells.
    pub now: SystemTime,
}

impl Default for RenderOptions {
    /// A prompt for an answer, without tools, now.
    fn default() -> Self {
        Self {
            add_generation_prompt: true,
            continue_final_message: false,
            tools: None,
            documents: None,
            variables: Vec::new(),
            now: SystemTime::now(),
        }
    }
}

/// A compiled chat template with the special tokens of its model.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: minijinja::Environment<'static>,
    source: String,
    /// `bos_token` and others, by name.
    special_tokens: Vec<(&'static str, String)>,
    /// Names of control tokens, which text of users must not become.
    control_tokens: guard::ControlTokens,
}

impl ChatTemplate {
    /// Compiles a template for the vocabulary of `tokenizer`.
    ///
    /// # Errors
    ///
    /// [`TemplateError::Broken`] if it is no template, or longer than 1 MiB.
    pub fn new(source: &str, tokenizer: &Tokenizer) -> Result<Self, TemplateError> {
        if source.len() > MAX_TEMPLATE_BYTES {
            let reason = format!(
                "{} bytes are more than the {MAX_TEMPLATE_BYTES} allowed",
                source.len()
            );
            return Err(TemplateError::Broken { reason });
        }
        let environment = environment::compile(source)?;
        let (unknown, padding) = tokenizer.unknown_and_padding();
        let special_tokens = [
            ("bos_token", tokenizer.bos()),
            ("eos_token", tokenizer.eos()),
            ("unk_token", unknown),
            ("pad_token", padding),
        ];
        let special_tokens = special_tokens
            .into_iter()
            .filter_map(|(name, id)| Some((name, tokenizer.token_name(id)?)))
            .collect();
        let control_tokens = guard::ControlTokens::new(tokenizer);
        Ok(Self {
            environment,
            source: source.to_owned(),
            special_tokens,
            control_tokens,
        })
    }

    /// The template as it was given.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Renders messages, each of which is one of the API's: an object with
    /// `role` and `content`.
    ///
    /// A list of text parts is the same as their texts joined; `null` content is
    /// empty; `developer` is `system`; the arguments of a call are an object
    /// where they are JSON.
    ///
    /// # Errors
    ///
    /// [`TemplateError::Raised`] in the template's words, [`TemplateError::Message`]
    /// for a message that is none or holds more than text,
    /// [`TemplateError::TooLarge`], and [`TemplateError::Broken`] for what is not
    /// the caller's fault.
    pub fn render(
        &self,
        messages: &[Json],
        options: &RenderOptions,
    ) -> Result<RenderedPrompt, TemplateError> {
        let mut messages = messages::normalize(messages)?;
        let inputs = || {
            let variables = options.variables.iter().map(|(_, value)| value);
            messages
                .iter()
                .chain(&options.tools)
                .chain(&options.documents)
                .chain(variables)
        };
        let (guard, end_mark) = Guard::new(&self.control_tokens, &self.source, inputs()).ok_or(
            TemplateError::TooLarge {
                limit: guard::NUM_STAND_INS as u64,
                unit: "different characters of private use",
            },
        )?;
        if options.continue_final_message {
            messages::mark_end(&mut messages, end_mark)?;
        }

        let guarded = |json: &Json| guard.protect_json(&self.control_tokens, json);
        let guarded_or_none = |json: &Option<Json>| json.as_ref().map_or(Value::from(()), guarded);
        let special_tokens = self
            .special_tokens
            .iter()
            .map(|(name, text)| (*name, Value::from(text.as_str())));
        let variables = options
            .variables
            .iter()
            .map(|(name, value)| (name.as_str(), guarded(value)));
        let add_generation_prompt =
            options.add_generation_prompt && !options.continue_final_message;
        let own = [
            ("messages", messages.iter().map(guarded).collect()),
            ("tools", guarded_or_none(&options.tools)),
            ("documents", guarded_or_none(&options.documents)),
            ("add_generation_prompt", Value::from(add_generation_prompt)),
            ("strftime_now", environment::strftime_now(options.now)),
        ];
        // What comes later replaces what came before.
        let context: Value = variables.chain(special_tokens).chain(own).collect();
        let mut text = environment::render(&self.environment, context)?;
        if options.continue_final_message {
            match text.rfind(end_mark) {
                Some(end) => text.truncate(end),
                None => {
                    let reason = "it does not write the last message, which is to be continued";
                    return Err(TemplateError::Broken {
                        reason: reason.into(),
                    });
                }
            }
        }
        Ok(RenderedPrompt::new(text, guard))
    }
}
