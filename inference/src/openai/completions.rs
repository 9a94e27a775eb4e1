//! `/v1/completions`: texts that go on, as OpenAI's older API has them.
//!
//! Guarantee: `echo` gives the prompt as it was sent, and its tokens' own
//! probabilities where `logprobs` asks for them. With `echo` or
//! `prompt_logprobs`, `max_tokens` may be 0. Source: OpenAI API reference,
//! "Completions".

use std::sync::Arc;

use justapi_core::{Request, Response};
use serde::Serialize;
use serde_json::Value;

use super::answer::{Head, UsageBody};
use super::api::{Api, Common};
use super::error::ApiError;
use super::fields::{self, Fields};
use super::generation::Finished;
use super::logprobs::{PromptLogprobs, TextLogprobs, TextOffset, with_fewer};
use super::model::ServedModel;
use super::parameters::{self, Delivery};
use super::stream::{Shape, Stream};
use crate::{EngineRequest, TokenId, TokenLogprobs};

/// `logprobs`; OpenAI's 5.
const MAX_LOGPROBS: u32 = 5;
/// Texts of one answer, over all of its prompts: half of the default queue.
const MAX_TEXTS: usize = 128;

/// Continues one prompt or several.
pub(super) async fn completions(api: Arc<Api>, request: Request) -> Result<Response, ApiError> {
    let (call, body) = api.read(request).await?;
    let inner = Arc::clone(&api);
    let job = api
        .model
        .prepare(body.len(), move || Job::read(&inner, &body))
        .await?;
    let choices = api.start(&call, job.requests, "prompt").await?;
    let head = Head::new("cmpl-", "text_completion", job.model_name);
    let mut shape = job.shape;
    if job.delivery.is_streamed {
        let stream = Stream {
            head,
            shape,
            delivery: job.delivery,
            num_prompt_tokens: job.num_prompt_tokens,
            is_prompt_alone: job.is_prompt_alone,
        };
        return Ok(stream.respond(choices));
    }
    let finished = choices.collect().await?;
    let (num_choices, is_prompt_alone) = (job.delivery.num_choices, job.is_prompt_alone);
    let usage = UsageBody::of_choices(
        job.num_prompt_tokens,
        &finished,
        num_choices,
        is_prompt_alone,
    );
    let mut prompt_logprobs = None;
    let mut choices = Vec::with_capacity(finished.len());
    for (index, mut choice) in finished.into_iter().enumerate() {
        if is_prompt_alone {
            choice.text.clear();
            choice.tokens.clear();
            choice.finish_reason = "length";
        }
        if index % shape.num_choices == 0 {
            prompt_logprobs = choice.prompt.take();
        }
        choices.push(shape.whole(index, &choice, prompt_logprobs.as_deref(), job.shown_prompt));
    }
    Ok(Response::json(&Completion {
        head,
        choices,
        usage,
    }))
}

/// A request that has been read and found good.
struct Job {
    model_name: String,
    shape: TextShape,
    requests: Vec<EngineRequest>,
    delivery: Delivery,
    num_prompt_tokens: u32,
    /// `prompt_logprobs`.
    shown_prompt: Option<u32>,
    is_prompt_alone: bool,
}

/// A text to go on with.
struct Prompt {
    tokens: Vec<TokenId>,
    /// As it was sent, or as its tokens read.
    text: String,
    /// Whether the first token is the model's own, and not in the text.
    has_hidden_first: bool,
}

impl Job {
    fn read(api: &Api, body: &[u8]) -> Result<Self, ApiError> {
        let fields = Fields::parse(body)?;
        let model = &*api.model;
        let model_name = api.model_name(&fields)?;
        let delivery = Delivery::of(&fields)?;
        let mut common = Common::read(&fields, model, delivery.num_choices)?;
        let logprobs = fields.count("logprobs", 0..=MAX_LOGPROBS)?;
        let echoes = fields.flag("echo")?.unwrap_or_default();
        let shown_prompt = common.prompt_logprobs;
        if shown_prompt.is_some() && delivery.is_streamed {
            return Err(ApiError::parameter("prompt_logprobs", "not with `stream`"));
        }
        common.sampling.logprobs = logprobs;
        if echoes {
            // The shape of `logprobs` has the prompt's tokens too.
            common.prompt_logprobs = common.prompt_logprobs.max(logprobs);
            // In a stream no choice can wait for what another one is told.
            common.each_choice_reads_prompt = delivery.is_streamed;
        }
        let reads_prompt = echoes || shown_prompt.is_some();
        let asked = fields.count("max_tokens", u32::from(!reads_prompt)..=u32::MAX)?;
        let prompts = prompts(&fields, model)?;
        if prompts.len() * delivery.num_choices as usize > MAX_TEXTS {
            let reason = format!("more than {MAX_TEXTS} texts, each prompt counted `n` times");
            return Err(ApiError::parameter("prompt", reason));
        }
        let (default, context) = (
            Some(model.defaults.max_completion_tokens),
            model.context_length(),
        );
        let (mut requests, mut num_prompt_tokens) = (Vec::new(), 0);
        for prompt in &prompts {
            let num_tokens = prompt.tokens.len();
            let max_tokens = parameters::max_tokens(asked, default, num_tokens, context)
                .map_err(|error| error.with_param("prompt"))?;
            // The engine always chooses one.
            requests.extend(common.requests(&prompt.tokens, max_tokens.max(1))?);
            num_prompt_tokens += num_tokens as u32;
        }
        let shape = TextShape {
            model: Arc::clone(&api.model),
            prompts,
            num_choices: delivery.num_choices as usize,
            echoes,
            num_logprobs: logprobs,
            offsets: Vec::new(),
        };
        Ok(Self {
            model_name,
            shape,
            requests,
            delivery,
            num_prompt_tokens,
            shown_prompt,
            is_prompt_alone: asked == Some(0),
        })
    }
}

/// Reads `prompt`: a text, texts, tokens, or lists of tokens.
fn prompts(fields: &Fields, model: &ServedModel) -> Result<Vec<Prompt>, ApiError> {
    const NAME: &str = "prompt";
    let flag = |name| fields.flag(name).map(|flag| flag.unwrap_or(true));
    let (parse_special, add_special) = (flag("parse_special")?, flag("add_special_tokens")?);
    let of_text = |text: &str| {
        let tokens = model.encode(text, parse_special, add_special);
        if tokens.is_empty() {
            return Err(ApiError::parameter(
                NAME,
                "an empty text has no token to begin with",
            ));
        }
        let has_hidden_first = add_special && model.adds_first_token(text, &tokens);
        Ok(Prompt {
            tokens,
            text: text.to_owned(),
            has_hidden_first,
        })
    };
    let of_tokens = |list: &[Value]| {
        let tokens = fields::tokens(NAME, list, model.config.vocab_size)?;
        if tokens.is_empty() {
            return Err(ApiError::parameter(NAME, "a list of no tokens"));
        }
        Ok(Prompt {
            text: model.decode(&tokens),
            tokens,
            has_hidden_first: false,
        })
    };
    let list = match fields.get(NAME) {
        None => return Err(ApiError::parameter(NAME, "missing")),
        Some(Value::String(text)) => return Ok(vec![of_text(text)?]),
        Some(Value::Array(list)) => list,
        Some(_) => return Err(ApiError::parameter(NAME, "not a text, nor a list")),
    };
    if list.is_empty() {
        return Err(ApiError::parameter(NAME, "an empty list"));
    }
    if list.len() > MAX_TEXTS && !list[0].is_number() {
        let reason = format!("{} prompts are more than {MAX_TEXTS}", list.len());
        return Err(ApiError::parameter(NAME, reason));
    }
    match &list[0] {
        Value::Number(_) => Ok(vec![of_tokens(list)?]),
        _ => list
            .iter()
            .map(|item| match item {
                Value::String(text) => of_text(text),
                Value::Array(tokens) => of_tokens(tokens),
                _ => Err(ApiError::parameter(NAME, "not texts, nor lists of tokens")),
            })
            .collect(),
    }
}

#[derive(Serialize)]
struct Completion {
    #[serde(flatten)]
    head: Head,
    choices: Vec<Choice>,
    usage: UsageBody,
}

#[derive(Serialize)]
struct Choice {
    index: usize,
    text: String,
    logprobs: Option<TextLogprobs>,
    finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_logprobs: Option<PromptLogprobs>,
}

/// Choices of a completion, in parts or whole.
struct TextShape {
    model: Arc<ServedModel>,
    prompts: Vec<Prompt>,
    num_choices: usize,
    echoes: bool,
    /// `logprobs`.
    num_logprobs: Option<u32>,
    /// How far the text of each choice has come.
    offsets: Vec<TextOffset>,
}

impl TextShape {
    fn offset(&mut self, index: usize) -> &mut TextOffset {
        if self.offsets.len() <= index {
            self.offsets.resize(index + 1, TextOffset::default());
        }
        &mut self.offsets[index]
    }

    /// Text and log-probabilities of the prompt of a choice, where it is echoed.
    fn echo(
        &mut self,
        index: usize,
        prompt: Option<&[Option<TokenLogprobs>]>,
    ) -> Option<(String, TextLogprobs)> {
        if !self.echoes {
            return None;
        }
        let mut offset = *self.offset(index);
        let own = &self.prompts[index / self.num_choices];
        let mut logprobs = TextLogprobs::default();
        if let Some(num_top) = self.num_logprobs {
            let known = with_fewer(prompt.unwrap_or_default(), num_top);
            logprobs.push_prompt(
                &self.model,
                &own.tokens,
                &known,
                own.has_hidden_first,
                &mut offset,
            );
        }
        let text = own.text.clone();
        *self.offset(index) = offset;
        Some((text, logprobs))
    }

    fn tokens(&mut self, index: usize, tokens: &[TokenLogprobs], into: &mut TextLogprobs) {
        let mut offset = *self.offset(index);
        for token in tokens {
            into.push(&self.model, token, &mut offset);
        }
        *self.offset(index) = offset;
    }

    /// A choice at its end.
    fn whole(
        &mut self,
        index: usize,
        choice: &Finished,
        prompt: Option<&[Option<TokenLogprobs>]>,
        shown_prompt: Option<u32>,
    ) -> Choice {
        let (mut text, mut logprobs) = self.echo(index, prompt).unwrap_or_default();
        text += &choice.text;
        self.tokens(index, &choice.tokens, &mut logprobs);
        let shown = prompt.zip(shown_prompt);
        Choice {
            index,
            text,
            logprobs: self.num_logprobs.map(|_| logprobs),
            finish_reason: Some(choice.finish_reason),
            prompt_logprobs: shown.map(|(prompt, num_top)| {
                PromptLogprobs::new(&self.model, &with_fewer(prompt, num_top))
            }),
        }
    }

    fn chunk(index: usize, text: String, logprobs: Option<TextLogprobs>) -> Choice {
        Choice {
            index,
            text,
            logprobs,
            finish_reason: None,
            prompt_logprobs: None,
        }
    }
}

impl Shape for TextShape {
    type Choice = Choice;

    fn first(
        &mut self,
        index: usize,
        prompt: Option<Vec<Option<TokenLogprobs>>>,
    ) -> Option<Choice> {
        let (text, logprobs) = self.echo(index, prompt.as_deref())?;
        let logprobs = (!logprobs.is_empty()).then_some(logprobs);
        Some(Self::chunk(index, text, logprobs))
    }

    fn piece(&mut self, index: usize, text: String, logprobs: Option<&TokenLogprobs>) -> Choice {
        let mut own = TextLogprobs::default();
        self.tokens(index, logprobs.map_or(&[], std::slice::from_ref), &mut own);
        Self::chunk(index, text, (!own.is_empty()).then_some(own))
    }

    fn end(&mut self, index: usize, finish_reason: &'static str) -> Choice {
        Choice {
            finish_reason: Some(finish_reason),
            ..Self::chunk(index, String::new(), None)
        }
    }
}
