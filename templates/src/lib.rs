//! Project templates: files on disk or in the binary, questions, names, and
//! the files that answers make of them.
//!
//! Guarantee: rendering is a pure function of template, names and answers, and
//! no path that it returns leads out of the project.

mod answers;
mod builtin;
mod error;
mod folder;
mod manifest;
mod names;
mod paths;
mod render;

pub use crate::answers::{Answer, Answers};
pub use crate::builtin::{BUILTIN_NAMES, builtin};
pub use crate::error::{AnswerFault, Error};
pub use crate::folder::{MAX_TEMPLATE_BYTES, MAX_TEMPLATE_FILES, read_folder};
pub use crate::manifest::{
    DefaultAnswer, Delimiters, FileRule, Language, Manifest, Question, QuestionKind,
};
pub use crate::names::{NameFault, Names, suggest};
pub use crate::render::{RECORD_PATH, Rendered, next_steps, record, render};

use std::borrow::Cow;

/// One file of a template, before rendering.
#[derive(Debug, Clone)]
pub struct SourceFile {
    /// Path below `files/`, with `/` between its parts.
    pub path: String,
    /// Its bytes.
    pub content: Cow<'static, [u8]>,
    /// Whether it may be executed.
    pub is_executable: bool,
}

/// A template: what it asks, and its files.
#[derive(Debug, Clone)]
pub struct Template {
    /// What it says of itself.
    pub manifest: Manifest,
    /// Its files, ordered by path.
    pub files: Vec<SourceFile>,
}
