//! Messages of the API in the one form that templates know: content is text,
//! roles are those that models were trained with.

use super::TemplateError;
use super::json::Json;

/// Messages with content as one text, `system` for `developer`, `tool` for the
/// older `function`, and arguments of calls as objects.
pub(super) fn normalize(messages: &[Json]) -> Result<Vec<Json>, TemplateError> {
    let messages = messages.iter().enumerate();
    let messages = messages.map(|(index, message)| {
        normalize_one(message).map_err(|reason| TemplateError::Message { index, reason })
    });
    messages.collect()
}

/// Puts a mark at the end of the last message.
pub(super) fn mark_end(messages: &mut [Json], mark: char) -> Result<(), TemplateError> {
    let index = messages.len().saturating_sub(1);
    if let Some(Json::Object(entries)) = messages.last_mut() {
        let content = entries.iter_mut().find(|(key, _)| key == "content");
        if let Some((_, Json::String(text))) = content {
            text.push(mark);
            return Ok(());
        }
    }
    let reason = "there is no message to be continued".into();
    Err(TemplateError::Message { index, reason })
}

fn normalize_one(message: &Json) -> Result<Json, String> {
    let Json::Object(entries) = message else {
        return Err("not an object".into());
    };
    let role = match message.get("role") {
        Some(Json::String(role)) => match role.as_str() {
            "developer" | "system" => "system",
            "user" => "user",
            "assistant" => "assistant",
            "tool" | "function" => "tool",
            other => return Err(format!("unknown role {other:?}")),
        },
        _ => return Err("role is not a text".into()),
    };
    let content = match message.get("content") {
        None | Some(Json::Null) => String::new(),
        Some(Json::String(text)) => text.clone(),
        Some(Json::Array(parts)) => parts
            .iter()
            .map(part_text)
            .collect::<Result<Vec<_>, _>>()?
            .concat(),
        Some(_) => return Err("content is neither a text nor a list of parts".into()),
    };
    let mut normalized = vec![
        ("role".to_owned(), role.into()),
        ("content".to_owned(), Json::String(content)),
    ];
    for (key, value) in entries {
        match key.as_str() {
            "role" | "content" => {}
            "tool_calls" => match value {
                // Clients send `null` and `[]` for none; templates ask whether there are any.
                Json::Null => {}
                Json::Array(calls) if calls.is_empty() => {}
                Json::Array(calls) => {
                    let calls = calls.iter().map(normalize_call).collect();
                    normalized.push((key.clone(), Json::Array(calls)));
                }
                _ => return Err("tool_calls is not a list".into()),
            },
            _ => normalized.push((key.clone(), value.clone())),
        }
    }
    Ok(Json::Object(normalized))
}

fn part_text(part: &Json) -> Result<&str, String> {
    let kind = part.get("type").and_then(Json::as_str);
    let text = match kind {
        Some("text" | "input_text" | "output_text") => part.get("text"),
        Some("refusal") => part.get("refusal"),
        Some(other) => {
            return Err(format!(
                "content of type {other:?}: the model reads text only"
            ));
        }
        None => return Err("a part of the content has no type".into()),
    };
    text.and_then(Json::as_str)
        .ok_or_else(|| "a part of the content has no text".into())
}

/// Arguments come as JSON in a text; templates write objects.
fn normalize_call(call: &Json) -> Json {
    let Json::Object(entries) = call else {
        return call.clone();
    };
    let entries = entries.iter().map(|(key, value)| {
        let value = match (key.as_str(), value) {
            ("function", function) => normalize_call(function),
            ("arguments", Json::String(text)) => match serde_json::from_str(text) {
                Ok(object @ Json::Object(_)) => object,
                _ => value.clone(),
            },
            _ => value.clone(),
        };
        (key.clone(), value)
    });
    Json::Object(entries.collect())
}
