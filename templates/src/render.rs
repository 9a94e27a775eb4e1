//! Renders a template with minijinja: placeholders, conditions, paths.
//!
//! Guarantee: a name that is not defined is an error, a file without `.j2` is
//! copied byte for byte, and a template cannot run for ever or fill the memory
//! with what it writes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{AutoEscape, Environment, UndefinedBehavior};
use sha2::{Digest as _, Sha256};

use crate::answers::{Answer, Answers};
use crate::error::Error;
use crate::manifest::Delimiters;
use crate::names::Names;
use crate::paths::{RENDERED_SUFFIX, destination};
use crate::{SourceFile, Template};

/// Where a project says what it was made of.
pub const RECORD_PATH: &str = ".justapi/template.toml";
/// Instructions that one file may take; a long one of ours takes a thousand.
const FUEL: u64 = 1_000_000;
/// Longest text that one file may become: far more than people read.
const MAX_RENDERED_BYTES: usize = 8 * 1024 * 1024;
/// Version of the record's form.
const RECORD_VERSION: i64 = 1;

/// One file of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// Path in the project, with `/` between its parts.
    pub path: String,
    /// Its bytes.
    pub content: Vec<u8>,
    /// Whether it may be executed.
    pub is_executable: bool,
}

/// The files of a project, ordered by path; `version` is ours.
///
/// # Errors
/// [`Error::Render`], [`Error::Path`].
pub fn render(
    template: &Template,
    names: &Names,
    answers: &Answers,
    version: &str,
) -> Result<Vec<Rendered>, Error> {
    let context = context(names, answers, version);
    let mut rendered = Vec::new();
    for file in &template.files {
        if let Some(file) = render_file(template, file, names, &context)? {
            rendered.push(file);
        }
    }
    rendered.sort_by(|a, b| a.path.cmp(&b.path));
    refuse_overlaps(&rendered)?;
    Ok(rendered)
}

/// Refuses two files of one path, and a file where another has a folder.
fn refuse_overlaps(files: &[Rendered]) -> Result<(), Error> {
    let mut seen = BTreeSet::new();
    let mut twice = None;
    for file in files {
        if !seen.insert(file.path.as_str()) {
            twice = Some(&file.path);
        }
    }
    let below = files.iter().map(|file| &file.path).find(|path| {
        let mut folders = path.match_indices('/').map(|(end, _)| &path[..end]);
        folders.any(|folder| seen.contains(folder))
    });
    match twice.or(below) {
        Some(path) => Err(Error::Path {
            path: path.clone(),
            reason: "is there twice",
        }),
        None => Ok(()),
    }
}

/// The commands to run next, a line each, and the file to edit first.
///
/// # Errors
/// [`Error::Render`].
pub fn next_steps(
    template: &Template,
    names: &Names,
    answers: &Answers,
    version: &str,
) -> Result<(Vec<String>, String), Error> {
    let context = context(names, answers, version);
    let render = |text: &str| render_text("template.toml", text, Delimiters::Curly, &context);
    let commands = render(&template.manifest.next)?;
    let commands = commands
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty());
    Ok((
        commands.map(str::to_owned).collect(),
        render(&template.manifest.edit)?,
    ))
}

/// What a project says of how it was made: its template, the answers, and a hash of each file.
///
/// # Panics
/// Never: tables of texts are TOML.
pub fn record(
    source: &[(&str, &str)],
    names: &Names,
    answers: &Answers,
    version: &str,
    files: &[Rendered],
) -> Rendered {
    let text = |text: &str| toml::Value::String(text.to_owned());
    let table = |entries: Vec<(String, toml::Value)>| {
        toml::Value::Table(entries.into_iter().collect::<toml::Table>())
    };
    let source = source
        .iter()
        .map(|(key, value)| ((*key).to_owned(), text(value)));
    let names = [
        ("name".to_owned(), text(&names.distribution)),
        ("module".to_owned(), text(&names.module)),
    ];
    let answers = answers.iter().map(|(name, answer)| {
        let answer = match answer {
            Answer::Flag(flag) => toml::Value::Boolean(*flag),
            Answer::Text(answer) => text(answer),
        };
        (name.to_owned(), answer)
    });
    let hashes = files
        .iter()
        .map(|file| (file.path.clone(), text(&sha256(&file.content))));
    let document = table(vec![
        ("version".to_owned(), toml::Value::Integer(RECORD_VERSION)),
        ("justapi".to_owned(), text(version)),
        ("template".to_owned(), table(source.collect())),
        ("names".to_owned(), table(names.into())),
        ("answers".to_owned(), table(answers.collect())),
        ("files".to_owned(), table(hashes.collect())),
    ]);
    let document = toml::to_string(&document).expect("tables of texts are TOML");
    Rendered {
        path: RECORD_PATH.to_owned(),
        content: format!(
            "# Written by `justapi new`: what this project was made of. Keep it under version \
             control.\n{document}"
        )
        .into_bytes(),
        is_executable: false,
    }
}

fn sha256(bytes: &[u8]) -> String {
    use std::fmt::Write as _;

    let mut text = String::from("sha256:");
    for byte in Sha256::digest(bytes) {
        write!(text, "{byte:02x}").expect("strings can always grow");
    }
    text
}

fn context(names: &Names, answers: &Answers, version: &str) -> BTreeMap<String, Value> {
    let answers = answers.iter().map(|(name, answer)| {
        let value = match answer {
            Answer::Flag(flag) => Value::from(*flag),
            Answer::Text(text) => Value::from(text.as_str()),
        };
        (name.to_owned(), value)
    });
    let known = [
        ("name", names.distribution.as_str()),
        ("module", names.module.as_str()),
        ("justapi_version", version),
        ("justapi_next", &next_minor(version)),
    ];
    let known = known.map(|(name, value)| (name.to_owned(), Value::from(value)));
    known.into_iter().chain(answers).collect()
}

/// The first version that may break what works with this one: `0.2` for `0.1.3`.
fn next_minor(version: &str) -> String {
    let mut numbers = version
        .split('.')
        .map(|number| number.parse::<u64>().unwrap_or(0));
    match (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) {
        (0, minor) => format!("0.{}", minor + 1),
        (major, _) => (major + 1).to_string(),
    }
}

fn render_file(
    template: &Template,
    file: &SourceFile,
    names: &Names,
    context: &BTreeMap<String, Value>,
) -> Result<Option<Rendered>, Error> {
    let mut delimiters = Delimiters::Curly;
    let mut is_executable = file.is_executable;
    for rule in template.manifest.rules(&file.path) {
        if let Some(condition) = &rule.when
            && !is_true(&file.path, condition, context)?
        {
            return Ok(None);
        }
        is_executable |= rule.executable;
        if rule.delimiters == Delimiters::Square {
            delimiters = Delimiters::Square;
        }
    }
    let path = destination(&file.path, names)?;
    let content = if file.path.ends_with(RENDERED_SUFFIX) {
        let text = str::from_utf8(&file.content).map_err(|_| Error::Render {
            path: file.path.clone(),
            reason: "it is not UTF-8".to_owned(),
            line: None,
        })?;
        render_text(&file.path, text, delimiters, context)?.into_bytes()
    } else {
        file.content.to_vec()
    };
    Ok(Some(Rendered {
        path,
        content,
        is_executable,
    }))
}

fn environment(delimiters: Delimiters) -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_keep_trailing_newline(true);
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_fuel(Some(FUEL));
    if delimiters == Delimiters::Square {
        let syntax = SyntaxConfig::builder()
            .block_delimiters("[%", "%]")
            .variable_delimiters("[[", "]]")
            .comment_delimiters("[#", "#]")
            .build();
        environment.set_syntax(syntax.expect("the delimiters differ from one another"));
    }
    environment
}

fn render_text(
    path: &str,
    text: &str,
    delimiters: Delimiters,
    context: &BTreeMap<String, Value>,
) -> Result<String, Error> {
    let environment = environment(delimiters);
    let template = environment
        .template_from_named_str(path, text)
        .map_err(|error| failed(path, &error))?;
    let mut rendered = Bounded::default();
    if let Err(error) = template.render_captured_to(context, &mut rendered) {
        if rendered.is_full {
            return Err(Error::Render {
                path: path.to_owned(),
                reason: format!("it becomes longer than {MAX_RENDERED_BYTES} bytes"),
                line: error.line(),
            });
        }
        return Err(failed(path, &error));
    }
    Ok(String::from_utf8(rendered.bytes).expect("a template writes texts"))
}

/// Takes what a template writes, up to a length.
#[derive(Default)]
struct Bounded {
    bytes: Vec<u8>,
    is_full: bool,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > MAX_RENDERED_BYTES - self.bytes.len() {
            self.is_full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn is_true(path: &str, condition: &str, context: &BTreeMap<String, Value>) -> Result<bool, Error> {
    let environment = environment(Delimiters::Curly);
    let value = environment
        .compile_expression(condition)
        .and_then(|expression| expression.eval(context))
        .map_err(|error| failed(path, &error))?;
    // A misspelt name is an error in a file, so it is one in a condition.
    if value.is_undefined() {
        return Err(Error::Render {
            path: path.to_owned(),
            reason: format!("`when = \"{condition}\"` is undefined"),
            line: None,
        });
    }
    Ok(value.is_true())
}

fn failed(path: &str, error: &minijinja::Error) -> Error {
    Error::Render {
        path: path.to_owned(),
        reason: match error.detail() {
            Some(detail) => format!("{}: {detail}", error.kind()),
            None => error.kind().to_string(),
        },
        line: error.line(),
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use crate::manifest::Manifest;

    fn template(rules: &str, files: &[(&str, &'static [u8])]) -> Template {
        let manifest = format!(
            "description = 'd'\n[[question]]\nname = 'db'\nprompt = 'Database'\n\
             choices = ['sqlite', 'postgres']\ndefault = 'sqlite'\n{rules}"
        );
        let files = files.iter().map(|(path, content)| SourceFile {
            path: (*path).to_owned(),
            content: Cow::Borrowed(content),
            is_executable: false,
        });
        Template {
            manifest: Manifest::read(&manifest).expect("a manifest"),
            files: files.collect(),
        }
    }

    fn render_with(template: &Template, db: &str) -> Result<Vec<Rendered>, Error> {
        let names = Names {
            distribution: "my-api".to_owned(),
            module: "my_api".to_owned(),
        };
        let mut answers = Answers::default();
        answers
            .set(&template.manifest, "db", db)
            .expect("an answer");
        render(template, &names, &answers, "0.1.3")
    }

    #[track_caller]
    fn check(text: &'static str, rules: &str, expected: &str) {
        let files = render_with(&template(rules, &[("f.j2", text.as_bytes())]), "postgres");
        let files = files.expect(text);
        assert_eq!(str::from_utf8(&files[0].content), Ok(expected));
    }

    #[test]
    fn placeholders_are_filled() {
        check("a {{ name }} {{ module }}\n", "", "a my-api my_api\n");
        check(
            "justapi>={{ justapi_version }},<{{ justapi_next }}\n\n",
            "",
            "justapi>=0.1.3,<0.2\n\n",
        );
        check(
            "{% if db == 'postgres' %}\nyes\n{% endif %}\nend",
            "",
            "yes\nend",
        );
        // Nothing is escaped: these are no pages.
        check("{{ '<&\"' }}", "", "<&\"");
        check(
            "[[ name ]] ${{ matrix.python }} {{ .Values.x }}\n",
            "[files.'f.j2']\ndelimiters = 'square'",
            "my-api ${{ matrix.python }} {{ .Values.x }}\n",
        );
    }

    #[test]
    fn what_is_not_rendered_keeps_every_byte() {
        let bytes: &[u8] = b"\x00\xff{{ nope }}\r\n";
        let files = render_with(&template("", &[("a.bin", bytes)]), "sqlite").expect("copied");
        assert_eq!(files[0].content, bytes);
    }

    #[test]
    fn mistakes_of_a_template_are_errors_with_a_line() {
        for (text, line) in [
            ("a\n{{ nam }}", 2),
            ("{% if nope %}{% endif %}", 1),
            ("\n\n{{ name", 3),
            (
                "{% for a in range(100000) %}{% for b in range(1000) %}{{ b }}{% endfor %}{% endfor %}",
                1,
            ),
            ("{% include 'other' %}", 1),
        ] {
            let files: [(&str, &'static [u8]); 1] = [("f.j2", text.as_bytes())];
            let error = render_with(&template("", &files), "sqlite").expect_err(text);
            assert!(
                matches!(&error, Error::Render { line: Some(found), .. } if *found == line),
                "{text}: {error:?}"
            );
        }
    }

    #[test]
    fn what_a_file_becomes_has_a_longest_length() {
        let text = "{% for a in range(2000) %}{{ 'x' * 5000 }}{% endfor %}";
        let files: [(&str, &'static [u8]); 1] = [("f.j2", text.as_bytes())];
        let error = render_with(&template("", &files), "sqlite").expect_err(text);
        assert!(
            matches!(&error, Error::Render { reason, .. } if reason.contains("longer than")),
            "{error:?}"
        );
    }

    #[test]
    fn conditions_leave_files_out() {
        let rules =
            "[files.'pg']\nwhen = \"db == 'postgres'\"\n[files.'pg/run.sh']\nexecutable = true";
        let template = template(rules, &[("a", b""), ("pg/b", b""), ("pg/run.sh", b"")]);
        assert_eq!(render_with(&template, "sqlite").expect("rendered").len(), 1);
        let files = render_with(&template, "postgres").expect("rendered");
        let modes: Vec<_> = files.iter().map(|file| file.is_executable).collect();
        assert_eq!(modes, [false, false, true]);
        let rules = "[files.'a']\nwhen = 'typing_error'";
        let template = super::tests::template(rules, &[("a", b"")]);
        assert!(matches!(
            render_with(&template, "sqlite"),
            Err(Error::Render { .. })
        ));
    }

    #[test]
    fn two_files_of_one_path_are_refused() {
        for paths in [["dot-a", ".a"], ["a", "a.j2"], ["a", "a/b"]] {
            let template = template("", &[(paths[0], b""), ("a-c", b""), (paths[1], b"")]);
            let found = render_with(&template, "sqlite");
            assert!(
                matches!(found, Err(Error::Path { .. })),
                "{paths:?}: {found:?}"
            );
        }
    }
}
