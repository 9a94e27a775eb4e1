//! Values as Python writes them: `str`, `repr` and `json.dumps`, which templates
//! were written for.

use std::fmt::Write as _;

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};

/// How `json.dumps` lays out a value.
#[derive(Clone, Debug)]
pub(super) struct JsonStyle {
    /// Spaces for each level, each item on a line of its own; `None` for one line.
    pub(super) indent: Option<String>,
    pub(super) item_separator: String,
    pub(super) key_separator: String,
    /// Whether characters beyond ASCII are written as `\u` and four digits.
    pub(super) ensure_ascii: bool,
    pub(super) sort_keys: bool,
}

/// `str(value)`.
pub(super) fn to_str(value: &Value) -> Result<String, Error> {
    match value.kind() {
        ValueKind::String => Ok(value.as_str().unwrap_or_default().to_owned()),
        ValueKind::Undefined => Ok(String::new()),
        _ => {
            let mut text = String::new();
            write_repr(value, &mut text)?;
            Ok(text)
        }
    }
}

/// `json.dumps(value)`.
pub(super) fn to_json(value: &Value, style: &JsonStyle) -> Result<String, Error> {
    let mut text = String::new();
    write_json(value, style, 0, &mut text)?;
    Ok(text)
}

fn write_repr(value: &Value, text: &mut String) -> Result<(), Error> {
    match value.kind() {
        ValueKind::None => text.push_str("None"),
        ValueKind::Bool => text.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => write_number(value, text),
        ValueKind::String => write_repr_of_text(value.as_str().unwrap_or_default(), text),
        ValueKind::Seq | ValueKind::Iterable => {
            text.push('[');
            for (index, item) in value.try_iter()?.enumerate() {
                text.push_str(if index > 0 { ", " } else { "" });
                write_repr(&item, text)?;
            }
            text.push(']');
        }
        ValueKind::Map if value.as_object().is_some() => {
            text.push('{');
            for (index, key) in value.try_iter()?.enumerate() {
                text.push_str(if index > 0 { ", " } else { "" });
                write_repr(&key, text)?;
                text.push_str(": ");
                write_repr(&value.get_item(&key)?, text)?;
            }
            text.push('}');
        }
        _ => text.push_str(&value.to_string()),
    }
    Ok(())
}

/// In single quotes, unless the text has those and no double ones.
fn write_repr_of_text(value: &str, text: &mut String) {
    let quote = if value.contains('\'') && !value.contains('"') {
        '"'
    } else {
        '\''
    };
    text.push(quote);
    for character in value.chars() {
        match character {
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\\' => text.push_str("\\\\"),
            _ if character == quote => {
                text.push('\\');
                text.push(quote);
            }
            _ if character.is_control() => write_code(text, "\\x", u32::from(character), 2),
            _ => text.push(character),
        }
    }
    text.push(quote);
}

fn write_json(
    value: &Value,
    style: &JsonStyle,
    depth: usize,
    text: &mut String,
) -> Result<(), Error> {
    let new_line = |text: &mut String, depth: usize| {
        if let Some(indent) = &style.indent {
            text.push('\n');
            (0..depth).for_each(|_| text.push_str(indent));
        }
    };
    match value.kind() {
        ValueKind::None => text.push_str("null"),
        ValueKind::Bool => text.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => write_number(value, text),
        ValueKind::String => {
            write_json_text(value.as_str().unwrap_or_default(), style.ensure_ascii, text);
        }
        ValueKind::Seq | ValueKind::Iterable => {
            text.push('[');
            let mut is_empty = true;
            for item in value.try_iter()? {
                text.push_str(if is_empty { "" } else { &style.item_separator });
                is_empty = false;
                new_line(text, depth + 1);
                write_json(&item, style, depth + 1, text)?;
            }
            if !is_empty {
                new_line(text, depth);
            }
            text.push(']');
        }
        ValueKind::Map => {
            text.push('{');
            let mut keys: Vec<_> = value.try_iter()?.collect();
            if style.sort_keys {
                keys.sort();
            }
            for (index, key) in keys.iter().enumerate() {
                text.push_str(if index > 0 { &style.item_separator } else { "" });
                new_line(text, depth + 1);
                match key.as_str() {
                    Some(name) => write_json_text(name, style.ensure_ascii, text),
                    None => {
                        text.push('"');
                        write_json(key, style, depth + 1, text)?;
                        text.push('"');
                    }
                }
                text.push_str(&style.key_separator);
                write_json(&value.get_item(key)?, style, depth + 1, text)?;
            }
            if !keys.is_empty() {
                new_line(text, depth);
            }
            text.push('}');
        }
        kind => {
            let reason = format!("a value that is {kind} cannot be written as JSON");
            return Err(Error::new(ErrorKind::BadSerialization, reason));
        }
    }
    Ok(())
}

fn write_json_text(value: &str, ensure_ascii: bool, text: &mut String) {
    text.push('"');
    for character in value.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            '\0'..=' ' if character != ' ' => write_code(text, "\\u", u32::from(character), 4),
            _ if ensure_ascii && !(' '..='~').contains(&character) => {
                for &mut unit in character.encode_utf16(&mut [0; 2]) {
                    write_code(text, "\\u", u32::from(unit), 4);
                }
            }
            _ => text.push(character),
        }
    }
    text.push('"');
}

fn write_code(text: &mut String, prefix: &str, code: u32, num_digits: usize) {
    write!(text, "{prefix}{code:0num_digits$x}").expect("a string takes any text");
}

/// Integers as they are; floats by the fewest digits that name them, with an
/// exponent below 1e-4 and from 1e16.
fn write_number(value: &Value, text: &mut String) {
    let float = if value.is_integer() {
        None
    } else {
        f64::try_from(value.clone()).ok()
    };
    let Some(float) = float else {
        text.push_str(&value.to_string());
        return;
    };
    if !float.is_finite() {
        text.push_str(match float {
            _ if float.is_nan() => "NaN",
            _ if float > 0.0 => "Infinity",
            _ => "-Infinity",
        });
        return;
    }
    let scientific = format!("{float:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        write!(text, "{float:?}").expect("a string takes any text");
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        write!(text, "{digits}e{sign}{:02}", exponent.abs()).expect("a string takes any text");
    }
}
