//! What was said so far, and the prompt that it makes.

use std::fs;
use std::path::Path;

use justapi_inference::{ChatTemplate, Json, RenderOptions, TokenId, Tokenizer};
use serde_json::{Value, json};

use crate::commands::model::template_error;
use crate::error::{CliError, Code};

/// Messages of a chat, the system's first.
#[derive(Debug, Clone, Default)]
pub(super) struct Conversation {
    system: Option<String>,
    messages: Vec<(Role, String)>,
}

/// Who says something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    User,
    Assistant,
}

impl Role {
    const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}

impl Conversation {
    pub(super) fn new(system: Option<String>) -> Self {
        Self {
            system,
            messages: Vec::new(),
        }
    }

    /// Adds what the user says.
    pub(super) fn ask(&mut self, text: String) {
        self.messages.push((Role::User, text));
    }

    /// Adds what the model answered.
    pub(super) fn answer(&mut self, text: String) {
        self.messages.push((Role::Assistant, text));
    }

    /// Takes back the last thing that the user said and that has no answer.
    pub(super) fn take_back(&mut self) {
        if let Some((Role::User, _)) = self.messages.last() {
            self.messages.pop();
        }
    }

    /// Forgets everything but what the system says.
    pub(super) fn clear(&mut self) {
        self.messages.clear();
    }

    pub(super) fn system(&self) -> Option<&str> {
        self.system.as_deref()
    }

    pub(super) fn set_system(&mut self, text: Option<String>) {
        self.system = text;
    }

    pub(super) fn num_messages(&self) -> usize {
        self.messages.len()
    }

    /// Tokens of the whole conversation, for the next answer.
    ///
    /// # Errors
    /// [`Code::ChatTemplate`]: the template does not take these messages.
    pub(super) fn prompt(
        &self,
        template: &ChatTemplate,
        tokenizer: &Tokenizer,
    ) -> Result<Vec<TokenId>, CliError> {
        let messages: Vec<Json> = self.entries().into_iter().map(Json::from).collect();
        let rendered = template
            .render(&messages, &RenderOptions::default())
            .map_err(|error| template_error(&error))?;
        Ok(rendered.encode(tokenizer))
    }

    fn entries(&self) -> Vec<Value> {
        let system = self
            .system
            .iter()
            .map(|text| json!({"role": "system", "content": text}));
        let messages = self.messages.iter();
        let messages = messages.map(|(role, text)| json!({"role": role.name(), "content": text}));
        system.chain(messages).collect()
    }

    /// Writes the messages as the API has them.
    ///
    /// # Errors
    /// What the system said.
    pub(super) fn save(&self, path: &Path) -> std::io::Result<()> {
        let text = serde_json::to_string_pretty(&json!({"messages": self.entries()}))?;
        fs::write(path, text + "\n")
    }

    /// Reads messages as [`Self::save`] writes them.
    ///
    /// # Errors
    /// [`Code::Conversation`].
    pub(super) fn load(path: &Path) -> Result<Self, CliError> {
        let refuse = |reason: &str| {
            let message = format!("{} is no conversation: {reason}", path.display());
            CliError::new(Code::Conversation, message)
                .with_hint("use a file that `/save` has written")
        };
        let text = fs::read_to_string(path).map_err(|error| {
            let message = format!("cannot read {}", path.display());
            CliError::new(Code::Conversation, message).with_cause(&error)
        })?;
        let document: Value =
            serde_json::from_str(&text).map_err(|error| refuse(&format!("no JSON: {error}")))?;
        let messages = document.get("messages").and_then(Value::as_array);
        let messages = messages.ok_or_else(|| refuse("it has no `messages`"))?;
        let mut conversation = Self::default();
        for (index, message) in messages.iter().enumerate() {
            let content = message.get("content").and_then(Value::as_str);
            let content =
                content.ok_or_else(|| refuse(&format!("messages[{index}] has no text")))?;
            let content = content.to_owned();
            match message.get("role").and_then(Value::as_str) {
                Some("system") if index == 0 => conversation.system = Some(content),
                Some("user") => conversation.ask(content),
                Some("assistant") => conversation.answer(content),
                _ => {
                    return Err(refuse(&format!(
                        "messages[{index}] has no role that is known"
                    )));
                }
            }
        }
        Ok(conversation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_saved_is_loaded() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("chat.json");
        let mut conversation = Conversation::new(Some("Be \"brief\".".to_owned()));
        conversation.ask("Hello\nthere".to_owned());
        conversation.answer("Hi ☃".to_owned());
        conversation.save(&path).expect("saved");
        let loaded = Conversation::load(&path).expect("loaded");
        assert_eq!(loaded.entries(), conversation.entries());
        assert_eq!(loaded.system(), Some("Be \"brief\"."));
    }

    #[test]
    fn what_is_no_conversation_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("chat.json");
        for text in [
            "",
            "[]",
            "{\"messages\": 1}",
            "{\"messages\": [{\"role\": \"user\"}]}",
            "{\"messages\": [{\"role\": \"nobody\", \"content\": \"a\"}]}",
            "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"system\", \
             \"content\": \"late\"}]}",
        ] {
            fs::write(&path, text).expect("written");
            let error = Conversation::load(&path).expect_err(text);
            assert_eq!(error.code(), Code::Conversation, "{text}");
        }
        let error = Conversation::load(&folder.path().join("none")).expect_err("absent");
        assert!(error.message().contains("cannot read"));
    }

    #[test]
    fn a_question_without_an_answer_can_be_taken_back() {
        let mut conversation = Conversation::default();
        conversation.ask("a".to_owned());
        conversation.take_back();
        conversation.take_back();
        assert_eq!(conversation.num_messages(), 0);
        conversation.ask("a".to_owned());
        conversation.answer("b".to_owned());
        conversation.take_back();
        assert_eq!(conversation.num_messages(), 2);
    }
}
