//! The messages of a chat as clients send them, checked.
//!
//! Guarantees: what this server cannot read (pictures, sound, tool calls) is a
//! 400 and never skipped; a content in parts is the same text as in one.

use serde_json::{Map, Value};

use super::error::ApiError;
use super::fields::Fields;
use crate::Json;

/// Messages of one chat: more than any context holds.
const MAX_MESSAGES: usize = 10_000;

/// One message, of text alone.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Message {
    /// `system`, `user` or `assistant`.
    pub(super) role: &'static str,
    pub(super) content: String,
}

impl Message {
    /// As templates read it.
    pub(super) fn to_json(&self) -> Json {
        Json::Object(vec![
            ("role".to_owned(), Json::from(self.role)),
            ("content".to_owned(), Json::from(self.content.as_str())),
        ])
    }
}

/// Reads `messages`.
pub(super) fn read(fields: &Fields) -> Result<Vec<Message>, ApiError> {
    let list = match fields.get("messages") {
        Some(Value::Array(list)) if !list.is_empty() => list,
        Some(Value::Array(_)) => return Err(ApiError::parameter("messages", "there are none")),
        Some(_) => return Err(ApiError::parameter("messages", "not a list")),
        None => return Err(ApiError::parameter("messages", "missing")),
    };
    if list.len() > MAX_MESSAGES {
        let reason = format!("{} are more than {MAX_MESSAGES}", list.len());
        return Err(ApiError::parameter("messages", reason));
    }
    let messages = list.iter().enumerate();
    messages
        .map(|(index, message)| read_one(message, &format!("messages[{index}]")))
        .collect()
}

/// Reads `system` and `messages` as Anthropic's clients send them.
pub(super) fn read_with_system(fields: &Fields) -> Result<Vec<Message>, ApiError> {
    let mut messages = Vec::new();
    if let Some(system) = fields.get("system") {
        messages.push(Message {
            role: "system",
            content: read_content(system, "system")?,
        });
    }
    messages.extend(read(fields)?);
    Ok(messages)
}

fn read_one(message: &Value, place: &str) -> Result<Message, ApiError> {
    let Value::Object(members) = message else {
        return Err(ApiError::parameter(place.to_owned(), "not an object"));
    };
    let role = match members.get("role").and_then(Value::as_str) {
        // OpenAI's newer name.
        Some("system" | "developer") => "system",
        Some("user") => "user",
        Some("assistant") => "assistant",
        Some("tool" | "function") => {
            let place = format!("{place}.role");
            return Err(unsupported(place, "this server calls no tools"));
        }
        Some(other) => {
            let reason = format!("{other:?} is not system, developer, user or assistant");
            return Err(ApiError::parameter(format!("{place}.role"), reason));
        }
        None => return Err(ApiError::parameter(format!("{place}.role"), "missing")),
    };
    for name in ["tool_calls", "function_call", "audio"] {
        if has_something(members, name) {
            let place = format!("{place}.{name}");
            return Err(unsupported(
                place,
                "this server reads messages of text alone",
            ));
        }
    }
    let content = match members.get("content") {
        // Assistants whose message is something else than text have none.
        None | Some(Value::Null) if role == "assistant" => String::new(),
        None | Some(Value::Null) => {
            return Err(ApiError::parameter(format!("{place}.content"), "missing"));
        }
        Some(content) => read_content(content, &format!("{place}.content"))?,
    };
    Ok(Message { role, content })
}

fn has_something(members: &Map<String, Value>, name: &str) -> bool {
    match members.get(name) {
        None | Some(Value::Null) => false,
        Some(Value::Array(items)) => !items.is_empty(),
        Some(_) => true,
    }
}

fn read_content(content: &Value, place: &str) -> Result<String, ApiError> {
    let parts = match content {
        Value::String(text) => return Ok(text.clone()),
        Value::Array(parts) => parts,
        _ => {
            let reason = "not a string or a list of parts";
            return Err(ApiError::parameter(place.to_owned(), reason));
        }
    };
    let mut all = String::new();
    for (index, part) in parts.iter().enumerate() {
        let place = format!("{place}[{index}]");
        let kind = part.get("type").and_then(Value::as_str);
        match (kind, part.get("text").and_then(Value::as_str)) {
            (Some("text"), Some(text)) => all += text,
            (Some("text"), None) => {
                return Err(ApiError::parameter(format!("{place}.text"), "not a string"));
            }
            (Some(kind), _) => {
                let reason = format!("this server reads text alone, and no {kind:?}");
                return Err(unsupported(place, &reason));
            }
            (None, _) => return Err(ApiError::parameter(format!("{place}.type"), "missing")),
        }
    }
    Ok(all)
}

fn unsupported(place: String, reason: &str) -> ApiError {
    ApiError::parameter(place, reason).with_code("unsupported_parameter")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Vec<Message>, ApiError> {
        read(&Fields::parse(text.as_bytes()).expect("an object"))
    }

    #[track_caller]
    fn check(message: &str, role: &'static str, content: &str) {
        let found = read_text(&format!("{{\"messages\":[{message}]}}"));
        let expected = vec![Message {
            role,
            content: content.to_owned(),
        }];
        assert_eq!(found, Ok(expected), "{message}");
    }

    #[track_caller]
    fn refused(text: &str, param: &str) {
        let error = read_text(text).expect_err(text).to_json();
        let param = format!("\"param\":\"{param}\"");
        assert!(error.contains(&param), "{text}: {error}");
    }

    #[test]
    fn contents_in_parts_are_one_text() {
        check(r#"{"role":"user","content":"ab"}"#, "user", "ab");
        check(
            r#"{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}"#,
            "user",
            "ab",
        );
        check(r#"{"role":"user","content":[]}"#, "user", "");
        check(r#"{"role":"assistant","content":null}"#, "assistant", "");
        check(r#"{"role":"assistant","tool_calls":[]}"#, "assistant", "");
    }

    #[test]
    fn developers_are_systems() {
        check(r#"{"role":"developer","content":"a"}"#, "system", "a");
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_its_place() {
        for (text, param) in [
            (r"{}", "messages"),
            (r#"{"messages":[]}"#, "messages"),
            (r#"{"messages":"hi"}"#, "messages"),
            (r#"{"messages":["hi"]}"#, "messages[0]"),
            (r#"{"messages":[{"content":"a"}]}"#, "messages[0].role"),
            (
                r#"{"messages":[{"role":"king","content":"a"}]}"#,
                "messages[0].role",
            ),
            (
                r#"{"messages":[{"role":"tool","content":"a"}]}"#,
                "messages[0].role",
            ),
            (r#"{"messages":[{"role":"user"}]}"#, "messages[0].content"),
            (
                r#"{"messages":[{"role":"user","content":1}]}"#,
                "messages[0].content",
            ),
            (
                r#"{"messages":[{"role":"assistant","tool_calls":[{}]}]}"#,
                "messages[0].tool_calls",
            ),
            (
                r#"{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]}"#,
                "messages[0].content[0]",
            ),
            (
                r#"{"messages":[{"role":"user","content":[{"type":"text"}]}]}"#,
                "messages[0].content[0].text",
            ),
            (
                r#"{"messages":[{"role":"user","content":[{"text":"a"}]}]}"#,
                "messages[0].content[0].type",
            ),
        ] {
            refused(text, param);
        }
    }
}
