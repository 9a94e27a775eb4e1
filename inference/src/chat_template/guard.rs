//! Keeps what users wrote from becoming control tokens, through a template that
//! may do anything with it.
//!
//! In every text of a user the first character of each control token's name, and
//! of a beginning of one at the end of the text, is replaced by a stand-in: a
//! character that occurs nowhere in the input. Control tokens are then found in
//! the rendered prompt, and after that the stand-ins become what they were.

use std::collections::BTreeSet;

use aho_corasick::{AhoCorasick, Anchored, Input, StartKind};
use minijinja::Value;

use super::json::Json;
use crate::tokenizer::Tokenizer;

/// Characters of private use, in which no model was trained: U+E000 to U+F8FF,
/// and planes 15 and 16.
const STAND_INS: [std::ops::RangeInclusive<u32>; 3] =
    [0xE000..=0xF8FF, 0xF_0000..=0xF_FFFD, 0x10_0000..=0x10_FFFD];

/// How many there are.
pub(super) const NUM_STAND_INS: usize = 6_400 + 2 * 65_534;

/// Names of control tokens.
#[derive(Debug)]
pub(super) struct ControlTokens {
    /// Ascending.
    names: Vec<String>,
    /// First characters of the names, ascending.
    firsts: Vec<char>,
    max_name_len: usize,
    /// Tells whether a name stands at a place; `None` where there are no names,
    /// or too many for it, and then every first character counts as a name.
    automaton: Option<AhoCorasick>,
}

impl ControlTokens {
    pub(super) fn new(tokenizer: &Tokenizer) -> Self {
        let mut names: Vec<_> = tokenizer.control_names().map(str::to_owned).collect();
        names.sort_unstable();
        let firsts: BTreeSet<_> = names
            .iter()
            .filter_map(|name| name.chars().next())
            .collect();
        let automaton = AhoCorasick::builder()
            .start_kind(StartKind::Anchored)
            .build(&names);
        Self {
            firsts: firsts.into_iter().collect(),
            max_name_len: names.iter().map(String::len).max().unwrap_or(0),
            automaton: automaton.ok(),
            names,
        }
    }

    /// Whether a name begins at a place, or the text ends within one.
    fn begins(&self, text: &str, index: usize) -> bool {
        let here = Input::new(text).range(index..).anchored(Anchored::Yes);
        if self
            .automaton
            .as_ref()
            .is_none_or(|automaton| automaton.is_match(here))
        {
            return true;
        }
        let rest = &text[index..];
        if rest.len() > self.max_name_len {
            return false;
        }
        let next = self.names.partition_point(|name| name.as_str() < rest);
        self.names
            .get(next)
            .is_some_and(|name| name.starts_with(rest))
    }
}

/// Stand-ins of one rendering.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Guard {
    /// Characters and what stands for them.
    stand_ins: Vec<(char, char)>,
}

impl Guard {
    /// Chooses characters that neither the template nor the inputs have: the
    /// guard's, and one more. `None` if there are not enough.
    pub(super) fn new<'a>(
        control_tokens: &ControlTokens,
        template: &str,
        inputs: impl Iterator<Item = &'a Json>,
    ) -> Option<(Self, char)> {
        let mut used = BTreeSet::new();
        note_stand_ins(template, &mut used);
        control_tokens
            .names
            .iter()
            .for_each(|name| note_stand_ins(name, &mut used));
        inputs.for_each(|input| visit(input, &mut |text| note_stand_ins(text, &mut used)));
        let mut unused = STAND_INS
            .into_iter()
            .flatten()
            .filter_map(char::from_u32)
            .filter(|character| !used.contains(character));
        let mark = unused.next()?;
        let firsts = control_tokens.firsts.iter();
        let stand_ins = firsts.map(|&first| Some((first, unused.next()?)));
        Some((
            Self {
                stand_ins: stand_ins.collect::<Option<_>>()?,
            },
            mark,
        ))
    }

    /// Value for a template, with the stand-ins in its texts and keys.
    pub(super) fn protect_json(&self, control_tokens: &ControlTokens, json: &Json) -> Value {
        match json {
            Json::Null => Value::from(()),
            Json::Bool(value) => Value::from(*value),
            Json::Number(number) => Value::from_serialize(number),
            Json::String(text) => Value::from(self.protect(control_tokens, text)),
            Json::Array(items) => items
                .iter()
                .map(|item| self.protect_json(control_tokens, item))
                .collect(),
            Json::Object(entries) => entries
                .iter()
                .map(|(key, value)| {
                    let value = self.protect_json(control_tokens, value);
                    (self.protect(control_tokens, key), value)
                })
                .collect(),
        }
    }

    /// Text with stand-ins.
    fn protect(&self, control_tokens: &ControlTokens, text: &str) -> String {
        let mut protected = String::with_capacity(text.len());
        for (index, character) in text.char_indices() {
            let stand_in = self
                .stand_ins
                .iter()
                .find(|(original, _)| *original == character);
            protected.push(match stand_in {
                Some(&(_, stand_in)) if control_tokens.begins(text, index) => stand_in,
                _ => character,
            });
        }
        protected
    }

    /// Text without stand-ins.
    pub(super) fn restore(&self, text: &str) -> String {
        let restore = |character| {
            let stand_in = self
                .stand_ins
                .iter()
                .find(|(_, stand_in)| *stand_in == character);
            stand_in.map_or(character, |(original, _)| *original)
        };
        text.chars().map(restore).collect()
    }
}

/// Adds those of a text that could be stand-ins.
fn note_stand_ins(text: &str, used: &mut BTreeSet<char>) {
    used.extend(text.chars().filter(|&character| {
        STAND_INS
            .iter()
            .any(|range| range.contains(&u32::from(character)))
    }));
}

/// Calls for each text and key.
fn visit(json: &Json, see: &mut dyn FnMut(&str)) {
    match json {
        Json::String(text) => see(text),
        Json::Array(items) => items.iter().for_each(|item| visit(item, see)),
        Json::Object(entries) => {
            for (key, value) in entries {
                see(key);
                visit(value, see);
            }
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}
