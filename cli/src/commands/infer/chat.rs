//! `justapi infer chat`: a conversation on the terminal, or of lines that come in.
//!
//! Guarantee: Ctrl-C ends the answer and not the program; what was answered so
//! far stays part of the conversation.

use std::io::{self, BufRead as _, IsTerminal as _};
use std::path::{Path, PathBuf};

use justapi_inference::{ChatTemplate, FinishReason};
use rustyline::error::ReadlineError;
use serde_json::json;

use super::conversation::Conversation;
use super::generate::{Answer, generate};
use super::interrupts::{Interrupts, exit_status};
use crate::commands::model::{self, RunningModel};
use crate::error::{CliError, Code};
use crate::infer_args::{InferChat, SamplingFlags};
use crate::ui::{Ui, document, faint, heading};

/// What stands before a question.
const PROMPT: &str = "> ";
/// What stands before the next line of one.
const CONTINUED: &str = "… ";

const HELP: &str = "/help             this list
/system [TEXT]    what the model is told ahead of the conversation; without a text it is shown
/clear            forget the conversation
/save FILE        write the conversation to a file
/load FILE        go on with a conversation that was saved
/exit             leave; so does Ctrl-D
A line that ends with \\ goes on in the next one. Ctrl-C ends an answer; twice at the prompt it leaves.
";

/// Talks.
///
/// # Errors
/// As [`super::infer`].
pub(super) fn chat(
    ui: &Ui,
    arguments: &InferChat,
    explicit: Option<&Path>,
) -> Result<u8, CliError> {
    let (located, files) = super::open(ui, &arguments.model, explicit)?;
    let prompting = &arguments.prompting;
    let template = model::chat_template(&files, prompting.chat_template.as_deref())?;
    let template = template.ok_or_else(|| no_template(&located.name))?;
    let mut conversation = match &arguments.load {
        Some(path) => Conversation::load(path)?,
        None => Conversation::default(),
    };
    if prompting.system.is_some() {
        conversation.set_system(prompting.system.clone());
    }
    let running = super::start(ui, &located, &files, &arguments.model)?;
    // Only now: while a model is loaded a signal ends the program as any other.
    let interrupts = Interrupts::watch()?;
    let mut talk = Talk {
        ui,
        name: located.name,
        template,
        running,
        sampling: &arguments.sampling,
        interrupts,
        conversation,
        num_answers: 0,
        seed: super::seed(&arguments.sampling),
    };
    let mut input = Input::new()?;
    if matches!(input, Input::Terminal(_)) {
        ui.note("/help lists what else there is\n");
    }
    talk.run(&mut input)
}

/// The error of a chat with a model that has no template.
pub(super) fn no_template(name: &str) -> CliError {
    let message = format!("{name} is a base model: it has no template for chats");
    CliError::new(Code::ChatTemplate, message)
        .with_hint("`justapi infer run` continues texts; `--chat-template FILE` adds a template")
}

/// A conversation under way.
struct Talk<'a> {
    ui: &'a Ui,
    name: String,
    template: ChatTemplate,
    running: RunningModel,
    sampling: &'a SamplingFlags,
    interrupts: Interrupts,
    conversation: Conversation,
    num_answers: u64,
    seed: u64,
}

/// What a line means.
#[derive(Debug, PartialEq, Eq)]
enum Order {
    Say(String),
    Help,
    System(Option<String>),
    Clear,
    Save(PathBuf),
    Load(PathBuf),
    Exit,
    Nothing,
    Unknown(String),
}

impl Talk<'_> {
    fn run(&mut self, input: &mut Input) -> Result<u8, CliError> {
        let mut was_interrupted = false;
        loop {
            // One that came between two answers is none of the next.
            if let Some(signal) = self.interrupts.take()
                && signal != signal_hook::consts::SIGINT
            {
                return Ok(exit_status(signal));
            }
            let line = match self.interrupts.at_prompt(|| input.next())? {
                Line::Text(text) => text,
                Line::End => return Ok(0),
                Line::Interrupted if was_interrupted => {
                    return Ok(exit_status(signal_hook::consts::SIGINT));
                }
                Line::Interrupted => {
                    was_interrupted = true;
                    self.ui.note("Ctrl-C again leaves, and so does /exit\n");
                    continue;
                }
            };
            was_interrupted = false;
            match read_order(&line) {
                Order::Exit => return Ok(0),
                Order::Say(text) => {
                    if let Some(status) = self.say(text)? {
                        return Ok(status);
                    }
                }
                order => self.obey(order),
            }
        }
    }

    /// Answers; the exit status if the program is to end.
    fn say(&mut self, text: String) -> Result<Option<u8>, CliError> {
        self.conversation.ask(text);
        match self.answer() {
            Ok(answer) => {
                // Also what was cut short: the user has read it.
                self.conversation.answer(answer.text.clone());
                self.num_answers += 1;
                self.show_end(&answer)?;
                let ends = |signal: &i32| *signal != signal_hook::consts::SIGINT;
                Ok(answer.signal.filter(ends).map(exit_status))
            }
            // Another question may well be answered.
            Err(error) if [Code::PromptRefused, Code::ChatTemplate].contains(&error.code()) => {
                self.conversation.take_back();
                self.ui.error(&error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn answer(&self) -> Result<Answer, CliError> {
        let prompt = (self.conversation).prompt(&self.template, &self.running.tokenizer)?;
        let context = self.running.engine.max_model_len();
        // Each answer has numbers of its own, and all depend on the one that was given.
        let seed = self.seed.wrapping_add(self.num_answers);
        let sampling = super::sampling(self.sampling, seed, prompt.len(), context);
        generate(
            &self.running,
            prompt,
            sampling,
            &self.interrupts,
            &mut |part| {
                if self.ui.is_json() {
                    document(&json!({"v": 1, "event": "token", "id": part.id, "text": part.text}))
                } else {
                    self.ui.data(part.text)
                }
            },
        )
    }

    fn show_end(&self, answer: &Answer) -> Result<(), CliError> {
        let seed = self.seed.wrapping_add(self.num_answers - 1);
        if self.ui.is_json() {
            document(&answer.document(&self.name, seed))?;
        } else {
            self.ui.data("\n")?;
        }
        self.ui.note(&format!("{}\n", faint(&answer.summary(seed))));
        if answer.reason == Some(FinishReason::Failed) {
            return Err(CliError::new(
                Code::Internal,
                "the engine failed at this prompt",
            ));
        }
        Ok(())
    }

    fn obey(&mut self, order: Order) {
        let ui = self.ui;
        match order {
            Order::Help => ui.note(HELP),
            Order::System(Some(text)) => {
                self.conversation.set_system(Some(text));
                ui.note("noted\n");
            }
            Order::System(None) => {
                let text = self.conversation.system().unwrap_or("(nothing)").to_owned();
                ui.note(&format!("{text}\n"));
            }
            Order::Clear => {
                self.conversation.clear();
                ui.note("forgotten\n");
            }
            Order::Save(path) => match self.conversation.save(&path) {
                Ok(()) => {
                    let num = self.conversation.num_messages();
                    ui.note(&format!("{num} messages are in {}\n", path.display()));
                }
                Err(error) => {
                    let message = format!("cannot write {}", path.display());
                    ui.error(&CliError::new(Code::Conversation, message).with_cause(&error));
                }
            },
            Order::Load(path) => match Conversation::load(&path) {
                Ok(loaded) => {
                    let num = loaded.num_messages();
                    self.conversation = loaded;
                    ui.note(&format!("{num} messages are back\n"));
                }
                Err(error) => ui.error(&error),
            },
            Order::Unknown(word) => ui.note(&format!(
                "no command {}; /help lists them\n",
                heading(&word)
            )),
            Order::Say(_) | Order::Exit | Order::Nothing => {}
        }
    }
}

fn read_order(line: &str) -> Order {
    let line = line.trim();
    if line.is_empty() {
        return Order::Nothing;
    }
    if !line.starts_with('/') {
        return Order::Say(line.to_owned());
    }
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    let is_bare = rest.is_empty();
    match word {
        "/help" | "/?" => Order::Help,
        "/system" => Order::System((!is_bare).then(|| rest.to_owned())),
        "/clear" => Order::Clear,
        "/save" if !is_bare => Order::Save(rest.into()),
        "/load" if !is_bare => Order::Load(rest.into()),
        "/exit" | "/quit" | "/bye" => Order::Exit,
        _ => Order::Unknown(line.to_owned()),
    }
}

/// Where lines come from.
enum Input {
    /// A person, with a history of what was typed.
    Terminal(Box<rustyline::DefaultEditor>),
    /// A pipe or a file.
    Lines,
}

/// What came in.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Text(String),
    /// Ctrl-C.
    Interrupted,
    /// Ctrl-D, or the end of the file.
    End,
}

impl Input {
    fn new() -> Result<Self, CliError> {
        if !io::stdin().is_terminal() {
            return Ok(Self::Lines);
        }
        let editor = rustyline::DefaultEditor::new().map_err(|error| unreadable(&error))?;
        Ok(Self::Terminal(Box::new(editor)))
    }

    /// Reads the next line, with those that it goes on in.
    fn next(&mut self) -> Result<Line, CliError> {
        let mut text = String::new();
        loop {
            let prompt = if text.is_empty() { PROMPT } else { CONTINUED };
            match self.line(prompt)? {
                Line::Text(line) => match line.strip_suffix('\\') {
                    Some(part) => {
                        text.push_str(part);
                        text.push('\n');
                    }
                    None => {
                        text.push_str(&line);
                        break;
                    }
                },
                Line::End if !text.is_empty() => break,
                other => return Ok(other),
            }
        }
        if let Self::Terminal(editor) = self {
            // One that cannot be kept can be typed again.
            drop(editor.add_history_entry(text.as_str()));
        }
        Ok(Line::Text(text))
    }

    fn line(&mut self, prompt: &str) -> Result<Line, CliError> {
        match self {
            Self::Terminal(editor) => match editor.readline(prompt) {
                Ok(line) => Ok(Line::Text(line)),
                Err(ReadlineError::Interrupted) => Ok(Line::Interrupted),
                Err(ReadlineError::Eof) => Ok(Line::End),
                Err(error) => Err(unreadable(&error)),
            },
            Self::Lines => {
                let mut line = String::new();
                match io::stdin().lock().read_line(&mut line) {
                    Ok(0) => Ok(Line::End),
                    Ok(_) => {
                        let end = line.trim_end_matches(['\n', '\r']).len();
                        line.truncate(end);
                        Ok(Line::Text(line))
                    }
                    Err(error) => Err(unreadable(&error)),
                }
            }
        }
    }
}

fn unreadable(error: &dyn std::fmt::Display) -> CliError {
    let message = format!("cannot read standard input: {error}");
    CliError::new(Code::PromptMissing, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_orders_or_questions() {
        let say = |text: &str| Order::Say(text.to_owned());
        for (line, expected) in [
            ("hello", say("hello")),
            ("  what is /etc? ", say("what is /etc?")),
            ("", Order::Nothing),
            ("   ", Order::Nothing),
            ("/help", Order::Help),
            ("/system", Order::System(None)),
            (
                "/system  Be brief. ",
                Order::System(Some("Be brief.".to_owned())),
            ),
            ("/clear", Order::Clear),
            ("/save a b.json", Order::Save("a b.json".into())),
            ("/load x", Order::Load("x".into())),
            ("/exit", Order::Exit),
            ("/quit", Order::Exit),
            ("/save", Order::Unknown("/save".to_owned())),
            ("/sytem a", Order::Unknown("/sytem a".to_owned())),
        ] {
            assert_eq!(read_order(line), expected, "{line:?}");
        }
    }
}
