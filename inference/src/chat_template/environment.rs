//! The template engine set up as `transformers` sets up Jinja.

use std::fmt;
use std::io::{self, Write};
use std::time::SystemTime;

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Value};
use regex::Regex;

use super::python::{self, JsonStyle};
use super::{MAX_DEPTH, MAX_INSTRUCTIONS, MAX_PROMPT_BYTES, TemplateError, clock};

/// Name of the one template of an environment.
const NAME: &str = "chat_template";

/// Marks an error as the template's own word.
#[derive(Debug)]
struct Raised(String);

impl fmt::Display for Raised {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

/// An environment that holds the template.
pub(super) fn compile(source: &str) -> Result<Environment<'static>, TemplateError> {
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_fuel(Some(MAX_INSTRUCTIONS));
    environment.set_recursion_limit(MAX_DEPTH);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.set_formatter(|output, _, value| {
        if value.kind() == ValueKind::Invalid {
            // Carries the error that made it.
            return Err(Error::new(ErrorKind::InvalidOperation, value.to_string()));
        }
        output
            .write_str(&python::to_str(value)?)
            .map_err(Error::from)
    });
    environment.add_filter("tojson", to_json);
    environment.add_filter("string", |value: Value| python::to_str(&value));
    // A text is a sequence to Python, and so is a mapping to Jinja's test.
    environment.add_test("sequence", |value: &Value| {
        matches!(
            value.kind(),
            ValueKind::Seq | ValueKind::String | ValueKind::Map
        )
    });
    environment.add_function(
        "raise_exception",
        |message: Value| -> Result<Value, Error> {
            let message = python::to_str(&message)?;
            Err(Error::new(ErrorKind::InvalidOperation, message.clone())
                .with_source(Raised(message)))
        },
    );
    environment
        .add_template_owned(NAME, without_generation_blocks(source))
        .map_err(|error| TemplateError::Broken {
            reason: describe(&error),
        })?;
    Ok(environment)
}

/// Renders the template.
pub(super) fn render(
    environment: &Environment<'static>,
    context: Value,
) -> Result<String, TemplateError> {
    let broken = |error: &Error| TemplateError::Broken {
        reason: describe(error),
    };
    let template = environment
        .get_template(NAME)
        .map_err(|error| broken(&error))?;
    let mut output = BoundedOutput {
        bytes: Vec::new(),
        is_full: false,
    };
    if let Err(error) = template.render_captured_to(context, &mut output) {
        if output.is_full {
            return Err(TemplateError::TooLarge {
                limit: MAX_PROMPT_BYTES as u64,
                unit: "bytes",
            });
        }
        if error.kind() == ErrorKind::OutOfFuel {
            return Err(TemplateError::TooLarge {
                limit: MAX_INSTRUCTIONS,
                unit: "instructions",
            });
        }
        return Err(match raised(&error) {
            Some(message) => TemplateError::Raised { message },
            None => broken(&error),
        });
    }
    String::from_utf8(output.bytes).map_err(|error| TemplateError::Broken {
        reason: error.to_string(),
    })
}

/// `strftime_now` of one rendering.
pub(super) fn strftime_now(now: SystemTime) -> Value {
    Value::from_function(move |format: &str| clock::strftime(now, format))
}

/// `{% generation %}` marks what a model is trained on, and changes no text.
fn without_generation_blocks(source: &str) -> String {
    let begin = Regex::new(r"\{%([-+]?)\s*generation\s*([-+]?)%\}").expect("valid");
    let end = Regex::new(r"\{%([-+]?)\s*endgeneration\s*([-+]?)%\}").expect("valid");
    let source = begin.replace_all(source, "{%$1 if true $2%}");
    end.replace_all(&source, "{%$1 endif $2%}").into_owned()
}

/// `tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the engine calls filters with values"
)]
fn to_json(value: &Value, positional: Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    let argument = |index: usize, name: &str| -> Result<Option<Value>, Error> {
        let value = match positional.get(index) {
            Some(value) => Some(value.clone()),
            None => named.get(name)?,
        };
        Ok(value.filter(|value| !value.is_none() && !value.is_undefined()))
    };
    let is_true = |value: Option<Value>| value.is_some_and(|value| value.is_true());
    let ensure_ascii = is_true(argument(0, "ensure_ascii")?);
    let indent = argument(1, "indent")?.map(|indent| match indent.as_str() {
        Some(text) => Ok(text.to_owned()),
        None => usize::try_from(indent).map(|width| " ".repeat(width.min(16))),
    });
    let indent = indent.transpose()?;
    let separators = argument(2, "separators")?;
    let sort_keys = is_true(argument(3, "sort_keys")?);
    named.assert_all_used()?;
    let (item_separator, key_separator) = match separators {
        Some(pair) => {
            let text = |index| {
                pair.get_item_by_index(index)
                    .and_then(|item| python::to_str(&item))
            };
            (text(0)?, text(1)?)
        }
        None => (
            (if indent.is_some() { "," } else { ", " }).to_owned(),
            ": ".to_owned(),
        ),
    };
    let style = JsonStyle {
        indent,
        item_separator,
        key_separator,
        ensure_ascii,
        sort_keys,
    };
    python::to_json(value, &style).map(Value::from)
}

/// The template's own message, where the error is one.
fn raised(error: &Error) -> Option<String> {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = source {
        if let Some(Raised(message)) = current.downcast_ref() {
            return Some(message.clone());
        }
        source = current.source();
    }
    None
}

/// An error on one line.
fn describe(error: &Error) -> String {
    let line = error
        .line()
        .map_or(String::new(), |line| format!("line {line}: "));
    let detail = error
        .detail()
        .map_or(String::new(), |detail| format!(": {detail}"));
    format!("{line}{}{detail}", error.kind())
}

/// Takes as much as a prompt may have.
struct BoundedOutput {
    bytes: Vec<u8>,
    is_full: bool,
}

impl Write for BoundedOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > MAX_PROMPT_BYTES {
            self.is_full = true;
            return Err(io::Error::other("the prompt is too long"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
