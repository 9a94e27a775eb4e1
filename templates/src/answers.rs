//! Answers to the questions of a template.

use std::collections::BTreeMap;

use crate::error::AnswerFault;
use crate::manifest::{DefaultAnswer, Manifest, Question, QuestionKind};

/// One answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Yes or no.
    Flag(bool),
    /// A choice or a text.
    Text(String),
}

/// All answers, by the name of the question.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answers(BTreeMap<String, Answer>);

impl Answers {
    /// The answers by name, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Answer)> {
        self.0.iter().map(|(name, answer)| (name.as_str(), answer))
    }

    /// Whether a question is answered.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Answers a question in words.
    ///
    /// # Errors
    /// [`AnswerFault::UnknownQuestion`] and [`AnswerFault::Impossible`].
    pub fn set(&mut self, manifest: &Manifest, name: &str, text: &str) -> Result<(), AnswerFault> {
        let question = manifest
            .questions
            .iter()
            .find(|question| question.name == name);
        let question = question.ok_or_else(|| AnswerFault::UnknownQuestion {
            name: name.to_owned(),
        })?;
        let answer = read(question, text).ok_or_else(|| AnswerFault::Impossible {
            name: name.to_owned(),
            answer: text.to_owned(),
            expected: question.expected(),
        })?;
        self.0.insert(name.to_owned(), answer);
        Ok(())
    }

    /// Answers what is open with the defaults.
    ///
    /// # Errors
    /// [`AnswerFault::Missing`] for a question that has none.
    pub fn complete(&mut self, manifest: &Manifest) -> Result<(), AnswerFault> {
        for question in &manifest.questions {
            if self.has(&question.name) {
                continue;
            }
            let answer = match &question.default {
                Some(DefaultAnswer::Flag(flag)) => Answer::Flag(*flag),
                Some(DefaultAnswer::Text(text)) => Answer::Text(text.clone()),
                None => {
                    return Err(AnswerFault::Missing {
                        name: question.name.clone(),
                    });
                }
            };
            self.0.insert(question.name.clone(), answer);
        }
        Ok(())
    }
}

fn read(question: &Question, text: &str) -> Option<Answer> {
    match question.kind() {
        QuestionKind::Choice => {
            let known = question.choices.iter().any(|choice| choice == text);
            known.then(|| Answer::Text(text.to_owned()))
        }
        QuestionKind::Flag => match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "y" | "1" | "on" => Some(Answer::Flag(true)),
            "false" | "no" | "n" | "0" | "off" => Some(Answer::Flag(false)),
            _ => None,
        },
        QuestionKind::Text => Some(Answer::Text(text.to_owned())),
    }
}
