//! Tokenizer and template of a folder as `transformers` writes them:
//! `tokenizer.json`, `tokenizer_config.json`, `chat_template.jinja`.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use serde_json::Value;

use crate::error::Error;
use crate::ids::TokenId;
use crate::model::ModelConfig;
use crate::tokenizer::Tokenizer;

/// Reads both.
pub(super) fn texts(
    folder: &Path,
    config: &ModelConfig,
) -> Result<(Tokenizer, Option<String>), Error> {
    let path = folder.join("tokenizer.json");
    let json = read(&path)?.ok_or_else(|| Error::Malformed {
        path: folder.to_owned(),
        what: "it has no tokenizer.json".to_owned(),
    })?;
    let settings = settings(folder)?;
    let tokenizer = Tokenizer::from_json(&path, &json)?;
    let named = |key: &str| {
        let value = settings.get(key)?;
        // Older files have an object in place of the name.
        let name = value.as_str().or_else(|| value.get("content")?.as_str())?;
        tokenizer.special_token(name)
    };
    let bos = named("bos_token").or(config.bos_token_id);
    let ends: Vec<TokenId> = named("eos_token").into_iter().collect();
    let adds_bos = match settings.get("add_bos_token").and_then(Value::as_bool) {
        Some(adds) => adds,
        None => begins_with_bos(&json, &tokenizer, bos),
    };
    let template = template(folder, &settings)?;
    Ok((tokenizer.with_bos(bos, adds_bos).with_eos(&ends), template))
}

/// Whether the tokenizer's own post-processor puts the first token before a text.
fn begins_with_bos(json: &[u8], tokenizer: &Tokenizer, bos: Option<TokenId>) -> bool {
    let Some(bos) = bos else { return false };
    let document: Value = serde_json::from_slice(json).unwrap_or_default();
    let processor = &document["post_processor"];
    let parts = [processor]
        .into_iter()
        .chain(processor["processors"].as_array().into_iter().flatten());
    parts
        .filter_map(|part| part["single"][0]["SpecialToken"]["id"].as_str())
        .any(|name| tokenizer.special_token(name) == Some(bos))
}

/// The template of its own file, or of the settings: one, or the one called `default`.
fn template(folder: &Path, settings: &Value) -> Result<Option<String>, Error> {
    let path = folder.join("chat_template.jinja");
    if let Some(text) = read(&path)? {
        let text = String::from_utf8(text).map_err(|_| Error::Malformed {
            path,
            what: "it is not UTF-8".to_owned(),
        })?;
        return Ok(Some(text));
    }
    let of_value = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(named) => {
            let is_default = |entry: &&Value| entry["name"] == "default";
            let template = named.iter().find(is_default)?["template"].as_str();
            template.map(str::to_owned)
        }
        _ => None,
    };
    if let Some(template) = of_value(&settings["chat_template"]) {
        return Ok(Some(template));
    }
    let path = folder.join("chat_template.json");
    let own = read(&path)?.map(|text| decode(&path, &text)).transpose()?;
    Ok(own.and_then(|own| of_value(&own["chat_template"])))
}

fn settings(folder: &Path) -> Result<Value, Error> {
    let path = folder.join("tokenizer_config.json");
    let text = read(&path)?;
    text.map_or(Ok(Value::Null), |text| decode(&path, &text))
}

fn decode(path: &Path, text: &[u8]) -> Result<Value, Error> {
    serde_json::from_slice(text).map_err(|error| Error::Malformed {
        path: path.to_owned(),
        what: error.to_string(),
    })
}

/// A file, unless there is none.
fn read(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    match fs::read(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Read {
            path: path.to_owned(),
            source,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_template(files: &[(&str, &str)], expected: Option<&str>) {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            fs::write(folder.path().join(name), text).expect("written");
        }
        let settings = settings(folder.path()).expect("settings");
        let found = template(folder.path(), &settings).expect("templates");
        assert_eq!(found.as_deref(), expected, "{files:?}");
    }

    #[test]
    fn a_template_is_found_wherever_it_may_be() {
        let own = ("chat_template.jinja", "own");
        let one = ("tokenizer_config.json", r#"{"chat_template": "one"}"#);
        let several = (
            "tokenizer_config.json",
            r#"{"chat_template": [{"name": "tool_use", "template": "x"},
                {"name": "default", "template": "usual"}]}"#,
        );
        let json = ("chat_template.json", r#"{"chat_template": "json"}"#);
        check_template(&[], None);
        check_template(&[own, one], Some("own"));
        check_template(&[one, json], Some("one"));
        check_template(&[several], Some("usual"));
        check_template(&[json], Some("json"));
        check_template(&[("tokenizer_config.json", "{}")], None);
    }
}
