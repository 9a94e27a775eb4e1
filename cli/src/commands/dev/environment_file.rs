//! `.env`: variables for the application.
//!
//! Guarantee: a variable of the real environment is never replaced. The form is
//! what python-dotenv and Docker Compose have in common: `NAME=value`, quotes,
//! comments, `export`; nothing is substituted.

use std::path::Path;
use std::{env, fs, io};

use crate::error::{CliError, Code, Location, plain};

/// Longest file: variables are few.
const MAX_BYTES: u64 = 1024 * 1024;

/// Reads the variables of a file; none if it is not there.
///
/// # Errors
/// [`Code::ConfigSyntax`] and [`Code::ConfigUnreadable`].
pub(super) fn read(path: &Path) -> Result<Vec<(String, String)>, CliError> {
    let unreadable = |cause: &str| {
        CliError::new(
            Code::ConfigUnreadable,
            format!("cannot read {}", path.display()),
        )
        .with_detail("cause", cause)
        .with_hint("`--env-file` names another file")
    };
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(&plain(&error))),
        Ok(metadata) if metadata.len() > MAX_BYTES => {
            return Err(unreadable("it is larger than 1 MiB"));
        }
        Ok(_) => {}
    }
    let text = fs::read_to_string(path).map_err(|error| unreadable(&plain(&error)))?;
    let variables = parse(&text).map_err(|(line, reason)| {
        CliError::new(
            Code::ConfigSyntax,
            format!(
                "{} has a line that sets no variable: {reason}",
                path.display()
            ),
        )
        .at(Location::new(path, line, None))
        .with_hint("a line is NAME=value, a comment or empty")
    })?;
    let is_new = |(name, _): &(String, String)| env::var_os(name).is_none();
    Ok(variables.into_iter().filter(is_new).collect())
}

/// The variables of a text, or the line that is none and why.
fn parse(text: &str) -> Result<Vec<(String, String)>, (usize, &'static str)> {
    let mut variables = Vec::new();
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let number = index + 1;
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").unwrap_or(line);
        let (name, value) = line.split_once('=').ok_or((number, "there is no `=`"))?;
        let name = name.trim();
        let is_name = !name.is_empty()
            && !name.starts_with(|first: char| first.is_ascii_digit())
            && name
                .chars()
                .all(|one| one.is_ascii_alphanumeric() || matches!(one, '_' | '.' | '-'));
        if !is_name {
            return Err((number, "the name is none"));
        }
        let value = value.trim_start();
        let value = match value.chars().next() {
            Some(quote @ ('"' | '\'')) => {
                let mut rest = value[1..].to_owned();
                // A quoted value may have several lines.
                loop {
                    if let Some(value) = unquoted(&rest, quote) {
                        break value;
                    }
                    let (_, next) = lines.next().ok_or((number, "a quote is not closed"))?;
                    rest.push('\n');
                    rest.push_str(next);
                }
            }
            _ => value
                .find(" #")
                .map_or(value, |comment| &value[..comment])
                .trim_end()
                .to_owned(),
        };
        if value.contains('\0') {
            return Err((number, "the value has a NUL in it"));
        }
        variables.push((name.to_owned(), value));
    }
    Ok(variables)
}

/// What stands before the closing quote; escapes count between `"` alone.
fn unquoted(text: &str, quote: char) -> Option<String> {
    let mut value = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' if quote == '"' => match characters.next()? {
                'n' => value.push('\n'),
                'r' => value.push('\r'),
                't' => value.push('\t'),
                other @ ('"' | '\\' | '$') => value.push(other),
                other => value.extend(['\\', other]),
            },
            end if end == quote => return Some(value),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[(&str, &str)]) {
        let found = parse(text).expect("it is valid");
        let found: Vec<_> = (found.iter())
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        assert_eq!(found, expected, "{text:?}");
    }

    #[test]
    fn lines_are_variables() {
        check("", &[]);
        check(
            "# a=b\n\n  \nA=1\r\nB = two \n",
            &[("A", "1"), ("B", "two")],
        );
        check("export A=1", &[("A", "1")]);
        check("A=", &[("A", "")]);
        check("A=a=b#c # comment", &[("A", "a=b#c")]);
        check("A=\"a # b\\n\\\"c\\\"\" # d", &[("A", "a # b\n\"c\"")]);
        check("A='a\\n$B' # d", &[("A", "a\\n$B")]);
        check("A=\"one\ntwo\"\nB=3", &[("A", "one\ntwo"), ("B", "3")]);
        check("\u{feff}A=ü", &[("A", "ü")]);
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        for (text, line) in [
            ("A=1\nnonsense", 2),
            ("=1", 1),
            ("A B=1", 1),
            ("\nA=\"x", 2),
        ] {
            assert_eq!(parse(text).expect_err("it is invalid").0, line, "{text:?}");
        }
    }
}
