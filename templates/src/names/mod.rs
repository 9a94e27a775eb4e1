//! The names of a project, made of the one that a person typed.
//!
//! Guarantee: the module can be imported and shadows nothing that the project
//! needs. The distribution's name follows PEP 503 and PEP 508.

mod taken;

use crate::manifest::Language;

/// A chart's release name may have 53 characters, and gets a few from us.
const MAX_NAME_BYTES: usize = 48;

/// The names of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// For package indexes, images and charts: `my-api`.
    pub distribution: String,
    /// For imports: `my_api`.
    pub module: String,
}

/// Why a project cannot have a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{typed}` cannot be the name of a project: {reason}")]
pub struct NameFault {
    /// As it was typed.
    pub typed: String,
    /// What is wrong.
    pub reason: String,
    /// A name like it that would do.
    pub suggestion: Option<String>,
}

impl Names {
    /// Makes the names of what a person typed; `reserved` are modules that the project imports.
    ///
    /// # Errors
    /// The reason, and a name like it.
    pub fn read(typed: &str, language: Language, reserved: &[String]) -> Result<Self, NameFault> {
        Self::check(typed, language, reserved).map_err(|reason| NameFault {
            typed: typed.to_owned(),
            reason,
            suggestion: suggest(typed, language, reserved),
        })
    }

    fn check(typed: &str, language: Language, reserved: &[String]) -> Result<Self, String> {
        let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_outer = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        let bytes = typed.as_bytes();
        if !bytes.iter().copied().all(is_inner)
            || !is_outer(bytes.first())
            || !is_outer(bytes.last())
        {
            return Err(
                "it may have the letters a to z, digits, `-`, `_` and `.`, and begins and ends \
                 with a letter or digit"
                    .to_owned(),
            );
        }
        if bytes.len() > MAX_NAME_BYTES {
            return Err(format!("it is longer than {MAX_NAME_BYTES} characters"));
        }
        let distribution = joined(typed.split(['-', '_', '.']), '-');
        let module = distribution.replace('-', "_");
        if module.starts_with(|first: char| first.is_ascii_digit()) {
            return Err("no module begins with a digit".to_owned());
        }
        if let Some(taken) = taken::by(&module, language) {
            return Err(taken.to_owned());
        }
        if reserved.contains(&module) {
            return Err(format!("the project imports a module `{module}`"));
        }
        Ok(Self {
            distribution,
            module,
        })
    }
}

/// A name like the one that was typed that a project can have.
pub fn suggest(typed: &str, language: Language, reserved: &[String]) -> Option<String> {
    let plain = deunicode::deunicode(typed);
    let words = plain.split(|letter: char| !letter.is_ascii_alphanumeric());
    let mut slug = joined(words, '-');
    if slug.is_empty() {
        return None;
    }
    slug.truncate(MAX_NAME_BYTES - "app-".len());
    let slug = slug.trim_end_matches('-');
    [
        slug.to_owned(),
        format!("{slug}-app"),
        format!("app-{slug}"),
    ]
    .into_iter()
    .find(|name| Names::check(name, language, reserved).is_ok())
}

/// The words in lower case with one separator between them, without empty ones.
fn joined<'a>(words: impl Iterator<Item = &'a str>, separator: char) -> String {
    let mut text = String::new();
    for word in words.filter(|word| !word.is_empty()) {
        if !text.is_empty() {
            text.push(separator);
        }
        text.push_str(&word.to_ascii_lowercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reserved() -> Vec<String> {
        vec!["pydantic".to_owned(), "tests".to_owned()]
    }

    #[test]
    fn three_names_of_one() {
        for (typed, distribution, module) in [
            ("demo", "demo", "demo"),
            ("my-api", "my-api", "my_api"),
            ("My_API", "my-api", "my_api"),
            ("my.api..v2", "my-api-v2", "my_api_v2"),
            ("x", "x", "x"),
        ] {
            let names = Names::read(typed, Language::Python, &reserved()).expect(typed);
            assert_eq!(names.distribution, distribution);
            assert_eq!(names.module, module);
        }
    }

    #[test]
    fn bad_names_come_with_a_good_one() {
        for (typed, suggestion) in [
            ("class", Some("class-app")),
            ("None", Some("none-app")),
            ("match", Some("match-app")),
            ("site", Some("site-app")),
            ("json", Some("json-app")),
            ("test", Some("test-app")),
            ("tests", Some("tests-app")),
            ("justapi", Some("justapi-app")),
            ("python", Some("python-app")),
            ("pydantic", Some("pydantic-app")),
            ("9lives", Some("app-9lives")),
            ("ünïcode", Some("unicode")),
            ("проект", Some("proekt")),
            ("my api", Some("my-api")),
            (".hidden", Some("hidden")),
            ("trailing-", Some("trailing")),
            ("-x", Some("x")),
            ("CON", Some("con-app")),
            ("lpt9", Some("lpt9-app")),
            ("a/b", Some("a-b")),
            ("it's \"$HOME\"\n", Some("it-s-home")),
            ("..", None),
            ("", None),
            ("\u{1F600}", Some("grinning")),
        ] {
            let fault = Names::read(typed, Language::Python, &reserved()).expect_err(typed);
            assert_eq!(fault.suggestion.as_deref(), suggestion, "{typed}: {fault}");
        }
        let long = "a".repeat(400);
        let fault = Names::read(&long, Language::Python, &[]).expect_err("long");
        let suggestion = fault.suggestion.expect("a shorter one");
        Names::read(&suggestion, Language::Python, &[]).expect("a suggestion is fit");
    }

    #[test]
    fn each_language_has_words_of_its_own() {
        for (name, python, rust) in [
            ("struct", false, false),
            ("json", false, true),
            ("crate", true, false),
            ("core", true, false),
            ("self", true, false),
            ("lambda", false, true),
        ] {
            let fits = |language| Names::read(name, language, &[]).is_ok();
            assert_eq!(fits(Language::Python), python, "{name}");
            assert_eq!(fits(Language::Rust), rust, "{name}");
        }
    }
}
