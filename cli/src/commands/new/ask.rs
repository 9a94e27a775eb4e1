//! Questions to a person at a terminal.
//!
//! Guarantee: nothing is asked unless both sides of the terminal are there,
//! and everything that is asked has a flag.

use std::env;
use std::io::{self, IsTerminal as _};

use dialoguer::console::{Term, set_colors_enabled_stderr};
use dialoguer::theme::{ColorfulTheme, SimpleTheme, Theme};
use dialoguer::{Confirm, Input, Select};
use justapi_templates::{Answers, BUILTIN_NAMES, Manifest, Names, Question, QuestionKind, builtin};

use crate::commands::new::interruption::{self, Interruption};
use crate::error::CliError;
use crate::new_args::New;
use crate::ui::{Ui, arrow};

/// What a person is offered who has no name yet.
const FIRST_NAME: &str = "my-api";

/// Asks on standard error, and reads keys from standard input.
pub(super) struct Asker<'a> {
    terminal: Term,
    theme: Box<dyn Theme>,
    interruption: &'a Interruption,
}

impl<'a> Asker<'a> {
    /// Somebody to ask; nobody in a pipe, in CI, with `--yes` or `--json`.
    pub(super) fn find(ui: &Ui, arguments: &New, interruption: &'a Interruption) -> Option<Self> {
        let is_ci = env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false");
        let is_terminal = io::stdin().is_terminal() && io::stderr().is_terminal();
        if arguments.yes || ui.is_json() || is_ci || !is_terminal {
            return None;
        }
        interruption.remember_terminal();
        set_colors_enabled_stderr(ui.has_color());
        let theme: Box<dyn Theme> = if arrow().is_ascii() {
            Box::new(SimpleTheme)
        } else {
            Box::new(ColorfulTheme::default())
        };
        Some(Self {
            terminal: Term::stderr(),
            theme,
            interruption,
        })
    }

    /// Which of the templates in the binary.
    pub(super) fn template(&self) -> Result<String, CliError> {
        let lines: Vec<String> = BUILTIN_NAMES
            .iter()
            .map(|name| {
                let template = builtin(name).expect("it is listed");
                format!("{name:<8} {}", template.manifest.description)
            })
            .collect();
        let chosen = self.choose("Template", &lines, 0)?;
        Ok(BUILTIN_NAMES[chosen].to_owned())
    }

    /// The name of the project, which is that of its folder.
    pub(super) fn name(&self, manifest: &Manifest) -> Result<String, CliError> {
        let check = |typed: &String| {
            Names::read(typed, manifest.language, &manifest.reserved)
                .map(drop)
                .map_err(|fault| match fault.suggestion {
                    Some(name) => format!("{} (`{name}` would do)", fault.reason),
                    None => fault.reason,
                })
        };
        let answer = Input::<String>::with_theme(&*self.theme)
            .with_prompt("Name")
            .default(FIRST_NAME.to_owned())
            .validate_with(check)
            .interact_text_on(&self.terminal);
        self.answer(answer)
    }

    /// Answers whatever of the template's questions is open.
    pub(super) fn answers(
        &self,
        manifest: &Manifest,
        answers: &mut Answers,
    ) -> Result<(), CliError> {
        for question in &manifest.questions {
            if answers.has(&question.name) {
                continue;
            }
            let text = self.question(question)?;
            answers
                .set(manifest, &question.name, &text)
                .expect("only possible answers are offered");
        }
        Ok(())
    }

    fn question(&self, question: &Question) -> Result<String, CliError> {
        let default = question.default_text();
        match question.kind() {
            QuestionKind::Choice => {
                let is_default = |choice: &String| Some(choice.as_str()) == default.as_deref();
                let first = question.choices.iter().position(is_default).unwrap_or(0);
                let chosen = self.choose(&question.prompt, &question.choices, first)?;
                Ok(question.choices[chosen].clone())
            }
            QuestionKind::Flag => {
                let answer = Confirm::with_theme(&*self.theme)
                    .with_prompt(&question.prompt)
                    .default(default.as_deref() == Some("true"))
                    .interact_on_opt(&self.terminal);
                Ok(self.some(answer)?.to_string())
            }
            QuestionKind::Text => {
                let mut input = Input::<String>::with_theme(&*self.theme)
                    .with_prompt(&question.prompt)
                    .allow_empty(default.as_deref() == Some(""));
                if let Some(default) = default.filter(|default| !default.is_empty()) {
                    input = input.default(default);
                }
                let answer = input.interact_text_on(&self.terminal);
                self.answer(answer)
            }
        }
    }

    fn choose(&self, prompt: &str, lines: &[String], first: usize) -> Result<usize, CliError> {
        let answer = Select::with_theme(&*self.theme)
            .with_prompt(prompt)
            .items(lines)
            .default(first)
            .interact_on_opt(&self.terminal);
        self.some(answer)
    }

    /// Escape and `q` are a change of mind.
    fn some<T>(&self, answer: dialoguer::Result<Option<T>>) -> Result<T, CliError> {
        self.answer(answer)?
            .ok_or_else(|| self.interruption.cancelled())
    }

    /// A terminal that is gone is a change of mind, too.
    fn answer<T>(&self, answer: dialoguer::Result<T>) -> Result<T, CliError> {
        answer.map_err(|dialoguer::Error::IO(error)| {
            if error.kind() == io::ErrorKind::Interrupted {
                interruption::wait();
            }
            self.interruption.cancelled()
        })
    }
}
