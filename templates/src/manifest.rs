//! `template.toml`: what a template is for, what it asks, and which of its
//! files are special.
//!
//! Guarantee: a manifest that was read is consistent; nothing of it is found
//! wrong later but the expressions, which need answers.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::error::Error;

/// What a template says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// One line for the list of templates.
    pub description: String,
    /// Language of the project, which decides what names it can have.
    #[serde(default)]
    pub language: Language,
    /// Modules that the project imports, so that it cannot have their names.
    #[serde(default)]
    pub reserved: Vec<String>,
    /// Commands to run in the new project, one a line; a template itself.
    #[serde(default)]
    pub next: String,
    /// File to edit first; a template itself.
    #[serde(default)]
    pub edit: String,
    /// What it asks, in order.
    #[serde(default, rename = "question")]
    pub questions: Vec<Question>,
    /// Rules for files or folders, by path below `files/`.
    #[serde(default)]
    pub files: BTreeMap<String, FileRule>,
}

/// Language of a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// Names have to be modules of Python.
    #[default]
    Python,
    /// Names have to be crates of Rust.
    Rust,
}

/// One thing that a template asks.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// Name of the answer, for `--set` and for the files.
    pub name: String,
    /// What a person is asked.
    pub prompt: String,
    /// Possible answers; none where any text or a yes or no will do.
    #[serde(default)]
    pub choices: Vec<String>,
    /// What is taken unless somebody answers.
    #[serde(default)]
    pub default: Option<DefaultAnswer>,
}

/// The default answer of a question.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum DefaultAnswer {
    /// Makes the question one of yes and no.
    Flag(bool),
    /// Text, or one of the choices.
    Text(String),
}

/// What can be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuestionKind {
    /// One of the choices.
    Choice,
    /// Yes or no.
    Flag,
    /// Any text.
    Text,
}

impl Question {
    /// What can be answered.
    pub fn kind(&self) -> QuestionKind {
        match self.default {
            Some(DefaultAnswer::Flag(_)) => QuestionKind::Flag,
            _ if self.choices.is_empty() => QuestionKind::Text,
            _ => QuestionKind::Choice,
        }
    }

    /// The default answer in words.
    pub fn default_text(&self) -> Option<String> {
        self.default.as_ref().map(|default| match default {
            DefaultAnswer::Flag(flag) => flag.to_string(),
            DefaultAnswer::Text(text) => text.clone(),
        })
    }

    /// The possible answers in words: `sqlite|postgres`.
    pub fn expected(&self) -> String {
        match self.kind() {
            QuestionKind::Choice => self.choices.join("|"),
            QuestionKind::Flag => "true|false".to_owned(),
            QuestionKind::Text => "TEXT".to_owned(),
        }
    }
}

/// What is special about a file, or about all files below a folder.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileRule {
    /// Expression over the answers; without a true one the file is left out.
    #[serde(default)]
    pub when: Option<String>,
    /// Whether it may be executed.
    #[serde(default)]
    pub executable: bool,
    /// Delimiters of its placeholders.
    #[serde(default)]
    pub delimiters: Delimiters,
}

/// How placeholders are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Delimiters {
    /// `{{ name }}`, `{% if %}`, `{# comment #}`.
    #[default]
    Curly,
    /// `[[ name ]]`, `[% if %]`, `[# comment #]`: for files whose own language has the curly ones.
    Square,
}

impl Manifest {
    /// Reads the text of a `template.toml`.
    ///
    /// # Errors
    /// [`Error::Manifest`].
    pub fn read(text: &str) -> Result<Self, Error> {
        let manifest: Self = toml::from_str(text).map_err(|error| Error::Manifest {
            reason: error.message().to_owned(),
            line: error
                .span()
                .map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1),
        })?;
        manifest
            .check()
            .map_err(|reason| Error::Manifest { reason, line: None })?;
        Ok(manifest)
    }

    fn check(&self) -> Result<(), String> {
        for (index, question) in self.questions.iter().enumerate() {
            let name = &question.name;
            let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
            if name.is_empty() || !name.bytes().all(is_plain) {
                return Err(format!(
                    "the question `{name}` needs a name of lower-case letters and `_`"
                ));
            }
            if KNOWN_VARIABLES.contains(&name.as_str()) {
                return Err(format!("`{name}` is known without asking"));
            }
            if self.questions[..index]
                .iter()
                .any(|other| other.name == *name)
            {
                return Err(format!("the question `{name}` is asked twice"));
            }
            match &question.default {
                Some(DefaultAnswer::Flag(_)) if !question.choices.is_empty() => {
                    return Err(format!(
                        "`{name}` has choices, so its default is one of them"
                    ));
                }
                Some(DefaultAnswer::Text(default))
                    if !question.choices.is_empty() && !question.choices.contains(default) =>
                {
                    return Err(format!(
                        "the default `{default}` of `{name}` is not among its choices"
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The rules of a file, those of its folders first.
    pub(crate) fn rules<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a FileRule> {
        self.files
            .iter()
            .filter(move |(prefix, _)| {
                path.strip_prefix(prefix.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
            .map(|(_, rule)| rule)
    }
}

/// What every template knows of a project.
pub(crate) const KNOWN_VARIABLES: [&str; 4] = ["name", "module", "justapi_version", "justapi_next"];

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(text: &str, expected: &str) {
        let error = Manifest::read(text).expect_err(text).to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn contradictions_are_refused() {
        let question = |rest: &str| {
            format!("description = 'd'\n[[question]]\nname = 'db'\nprompt = 'p'\n{rest}")
        };
        refused("", "description");
        refused("description = 'd'\ncolour = 1", "unknown field `colour`");
        refused(
            &question("choices = ['a']\ndefault = 'b'"),
            "not among its choices",
        );
        refused(
            &question("choices = ['a']\ndefault = true"),
            "its default is one of them",
        );
        refused(
            &question("[[question]]\nname = 'db'\nprompt = 'p'"),
            "asked twice",
        );
        refused(&question("").replace("db", "D B"), "lower-case letters");
        refused(
            &question("").replace("db", "module"),
            "known without asking",
        );
        let error = Manifest::read("description = 'd'\nlanguage = 'cobol'").expect_err("cobol");
        assert!(
            matches!(error, Error::Manifest { line: Some(2), .. }),
            "{error:?}"
        );
    }

    #[test]
    fn rules_hold_for_a_file_and_below_a_folder() {
        let manifest = Manifest::read(
            "description = 'd'\n[files.\"deploy\"]\nwhen = 'helm'\n[files.\"deploy/run.sh\"]\n\
             executable = true",
        )
        .expect("it is consistent");
        assert_eq!(manifest.rules("deploy/run.sh").count(), 2);
        assert_eq!(manifest.rules("deploy/helm/a").count(), 1);
        assert_eq!(manifest.rules("deployment.yaml").count(), 0);
    }
}
