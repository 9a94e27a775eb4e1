//! `justapi infer run`: one prompt, one answer.

use std::io::{self, IsTerminal as _, Read as _};
use std::path::Path;

use justapi_inference::{FinishReason, SpecialTokens, TokenId};
use serde_json::json;

use super::conversation::Conversation;
use super::generate::generate;
use super::interrupts::{Interrupts, exit_status};
use crate::commands::model::{self, RunningModel};
use crate::error::{CliError, Code};
use crate::infer_args::InferRun;
use crate::ui::{Ui, document, faint};

/// Most bytes of a prompt: more than any context holds.
const MAX_PROMPT_BYTES: u64 = 64 << 20;

/// Answers one prompt.
///
/// # Errors
/// As [`super::infer`].
pub(super) fn run(ui: &Ui, arguments: &InferRun, explicit: Option<&Path>) -> Result<u8, CliError> {
    // Before the model is fetched: a prompt that is missing is known at once.
    let text = prompt_text(arguments.prompt.as_deref())?;
    let (located, files) = super::open(ui, &arguments.model, explicit)?;
    let prompting = &arguments.prompting;
    let template = if arguments.raw {
        None
    } else {
        model::chat_template(&files, prompting.chat_template.as_deref())?
    };
    if template.is_none() && prompting.system.is_some() {
        return Err(super::chat::no_template(&located.name));
    }
    let running = super::start(ui, &located, &files, &arguments.model)?;
    // Only now: while a model is loaded a signal ends the program as any other.
    let interrupts = Interrupts::watch()?;
    let prompt = match &template {
        Some(template) => {
            let mut conversation = Conversation::new(prompting.system.clone());
            conversation.ask(text);
            conversation.prompt(template, &running.tokenizer)?
        }
        None => {
            if !arguments.raw {
                ui.note(&format!(
                    "{}\n",
                    faint("a base model, without a template for chats: it continues the text")
                ));
            }
            raw_prompt(&running, &text)?
        }
    };
    let seed = super::seed(&arguments.sampling);
    let context = running.engine.max_model_len();
    let sampling = super::sampling(&arguments.sampling, seed, prompt.len(), context);
    let answer = generate(&running, prompt, sampling, &interrupts, &mut |part| {
        if ui.is_json() {
            let id = part.id;
            document(&json!({"v": 1, "event": "token", "id": id, "text": part.text}))
        } else {
            ui.data(part.text)
        }
    })?;
    if ui.is_json() {
        document(&answer.document(&located.name, seed))?;
    } else if !answer.text.ends_with('\n') {
        ui.data("\n")?;
    }
    ui.note(&format!("{}\n", faint(&answer.summary(seed))));
    match (answer.signal, answer.reason) {
        (Some(signal), _) => Ok(exit_status(signal)),
        (None, Some(FinishReason::Failed)) => Err(CliError::new(
            Code::Internal,
            "the engine failed at this prompt",
        )),
        _ => Ok(0),
    }
}

/// The tokens of a text as it is.
fn raw_prompt(running: &RunningModel, text: &str) -> Result<Vec<TokenId>, CliError> {
    let tokens = running.tokenizer.encode_prompt(text, SpecialTokens::Parse);
    if tokens.is_empty() {
        return Err(missing());
    }
    Ok(tokens)
}

/// The prompt that was given, or what comes in.
fn prompt_text(given: Option<&str>) -> Result<String, CliError> {
    let mut text = match given {
        Some(text) if text != "-" => return checked(text.to_owned()),
        None if io::stdin().is_terminal() => return Err(missing()),
        _ => String::new(),
    };
    let unreadable = |error: &io::Error| {
        CliError::new(
            Code::PromptMissing,
            "cannot read the prompt from standard input",
        )
        .with_cause(error)
    };
    let mut input = io::stdin().lock().take(MAX_PROMPT_BYTES);
    input
        .read_to_string(&mut text)
        .map_err(|error| unreadable(&error))?;
    // What an editor or `echo` ends a text with is not meant.
    let end = text.trim_end_matches(['\n', '\r']).len();
    text.truncate(end);
    checked(text)
}

fn checked(text: String) -> Result<String, CliError> {
    if text.is_empty() {
        return Err(missing());
    }
    Ok(text)
}

fn missing() -> CliError {
    CliError::new(Code::PromptMissing, "there is no prompt").with_hint(
        "add it in quotes, or pipe it in; `justapi infer chat --model MODEL` talks instead",
    )
}
