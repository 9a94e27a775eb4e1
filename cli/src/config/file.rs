//! `justapi.toml`: where it is, what it sets, what in it is unknown.
//!
//! Guarantee: every value and every complaint carries its line. Sections that
//! this version does not read yet are accepted as a whole.

use std::fs;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::settings::{SETTINGS, Setting, find};
use super::value::Value;
use super::{Origin, Warning};
use crate::error::{CliError, Code, Location};
use crate::shell::quoted_path;
use crate::spelling;

/// Name that is searched for.
pub(crate) const FILE_NAME: &str = "justapi.toml";

/// What one file sets.
#[derive(Debug)]
pub(crate) struct FileLayer {
    pub(crate) values: Vec<(&'static Setting, Value, Origin)>,
    pub(crate) warnings: Vec<Warning>,
}

/// The first `justapi.toml` in `start` or above, no further than the folder
/// with `.git`.
pub(crate) fn locate(start: &Path) -> Option<PathBuf> {
    for folder in start.ancestors() {
        let candidate = folder.join(FILE_NAME);
        if candidate.is_file() {
            return Some(candidate);
        }
        if folder.join(".git").exists() {
            return None;
        }
    }
    None
}

/// Reads and checks the file.
///
/// # Errors
/// [`Code::ConfigUnreadable`], [`Code::ConfigSyntax`], [`Code::ConfigValue`].
pub(crate) fn read(path: &Path, shown: &Path) -> Result<FileLayer, CliError> {
    let text = fs::read_to_string(path).map_err(|error| {
        let near = spelling::nearest_file(path).filter(|_| !path.exists());
        CliError::new(
            Code::ConfigUnreadable,
            format!("cannot read the configuration file {}", shown.display()),
        )
        .with_cause(&error)
        .with_hint(near.map_or_else(
            || "check the path after `--config`, or leave it out to use the defaults".to_owned(),
            |near| format!("did you mean `--config {}`?", quoted_path(&near)),
        ))
    })?;
    parse(&text, path, shown)
}

/// Checks the text of the file at `path`.
///
/// # Errors
/// [`Code::ConfigSyntax`], [`Code::ConfigValue`].
pub(super) fn parse(text: &str, path: &Path, shown: &Path) -> Result<FileLayer, CliError> {
    let table = DeTable::parse(text).map_err(|error| {
        let (line, column) = position(text, error.span().map_or(0, |span| span.start));
        CliError::new(
            Code::ConfigSyntax,
            format!("{} is not valid TOML", shown.display()),
        )
        .at(Location::new(shown, line, Some(column)))
        .with_detail("cause", error.message())
    })?;
    let mut walk = Walk {
        text,
        shown,
        folder: path.parent().unwrap_or_else(|| Path::new("")),
        layer: FileLayer {
            values: Vec::new(),
            warnings: Vec::new(),
        },
    };
    walk.table("", table.get_ref())?;
    Ok(walk.layer)
}

struct Walk<'a> {
    text: &'a str,
    shown: &'a Path,
    folder: &'a Path,
    layer: FileLayer,
}

impl Walk<'_> {
    fn table(&mut self, prefix: &str, table: &DeTable<'_>) -> Result<(), CliError> {
        for (name, value) in table {
            let key = if prefix.is_empty() {
                name.get_ref().to_string()
            } else {
                format!("{prefix}.{}", name.get_ref())
            };
            self.entry(&key, name.span().start, value)?;
        }
        Ok(())
    }

    fn entry(
        &mut self,
        key: &str,
        offset: usize,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<(), CliError> {
        if let Some(setting) = find(key) {
            return self.setting(setting, value);
        }
        let is_section = SETTINGS.iter().any(|setting| {
            setting
                .key
                .strip_prefix(key)
                .is_some_and(|rest| rest.starts_with('.'))
        });
        match value.get_ref() {
            DeValue::Table(table) if is_section => self.table(key, table),
            found if is_section => {
                let expected = format!("expected a table, found {}", found.type_str());
                Err(self.wrong_value(key, value.span().start, &expected))
            }
            _ => {
                self.unknown(key, offset);
                Ok(())
            }
        }
    }

    fn setting(
        &mut self,
        setting: &'static Setting,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<(), CliError> {
        let offset = value.span().start;
        let parsed = setting
            .kind
            .parse_toml(value.get_ref(), self.folder)
            .map_err(|reason| self.wrong_value(setting.key, offset, &reason))?;
        let origin = Origin::File {
            path: self.shown.to_owned(),
            line: position(self.text, offset).0,
        };
        self.layer.values.push((setting, parsed, origin));
        Ok(())
    }

    fn wrong_value(&self, key: &str, offset: usize, reason: &str) -> CliError {
        let (line, column) = position(self.text, offset);
        CliError::new(Code::ConfigValue, format!("`{key}`: {reason}"))
            .at(Location::new(self.shown, line, Some(column)))
            .with_hint("`justapi serve --help` lists each key with what it accepts")
    }

    fn unknown(&mut self, key: &str, offset: usize) {
        let line = position(self.text, offset).0;
        let meant = meant(key);
        let shown = self.shown.display();
        self.layer.warnings.push(Warning {
            code: Code::UnknownKey,
            message: format!("unknown key `{key}` in {shown}:{line}{meant}"),
            location: Some(Location::new(self.shown, line, None)),
        });
    }
}

/// What was probably meant by a key: one near to it, or the only one of its last name elsewhere.
fn meant(key: &str) -> String {
    let keys = || SETTINGS.iter().map(|setting| setting.key);
    let sections = keys().flat_map(|key| key.match_indices('.').map(|(at, _)| &key[..at]));
    let near = spelling::did_you_mean(key, keys().chain(sections));
    if !near.is_empty() {
        return near;
    }
    let last = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
    let name = last(key);
    let mut same = keys().filter(|known| last(known) == name);
    match (same.next(), same.next()) {
        (Some(only), None) => format!(" – did you mean `{only}`?"),
        _ => String::new(),
    }
}

/// Line and column of a byte offset, both from 1.
fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before
        .rsplit('\n')
        .next()
        .map_or(0, |tail| tail.chars().count())
        + 1;
    (line, column)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<FileLayer, CliError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE_NAME);
        fs::write(&path, text).unwrap();
        read(&path, Path::new(FILE_NAME))
    }

    #[test]
    fn values_carry_their_line() {
        let layer = read_text("[server]\nport = 9000\n[server.limits]\nbody = \"1MiB\"\n").unwrap();
        let shown: Vec<_> = layer
            .values
            .iter()
            .map(|(setting, value, origin)| {
                format!("{} {} {origin}", setting.key, setting.kind.show(value))
            })
            .collect();
        assert!(
            shown.contains(&"server.port 9000 justapi.toml:2".to_owned()),
            "{shown:?}"
        );
        assert!(shown.contains(&"server.limits.body 1MiB justapi.toml:4".to_owned()));
        assert!(layer.warnings.is_empty());
    }

    #[test]
    fn unknown_keys_are_named_with_the_nearest_known_one() {
        let layer = read_text("\n[server]\nhost = \"::1\"\nprot = 1\n").unwrap();
        assert_eq!(
            layer.warnings[0].message,
            "unknown key `server.prot` in justapi.toml:4 – did you mean `server.port`?"
        );
        for (text, expected) in [
            (
                "[servr]\nport = 1\n",
                "`servr` in justapi.toml:1 – did you mean `server`?",
            ),
            (
                "port = 1\n",
                "`port` in justapi.toml:1 – did you mean `server.port`?",
            ),
            ("[server]\nworkers = 2\n", "did you mean `python.workers`?"),
            ("[server]\napp = \"main:app\"\n", "did you mean `app`?"),
            (
                "[server]\ntxt = 1\n",
                "unknown key `server.txt` in justapi.toml:2",
            ),
            ("colour = 1\n", "unknown key `colour` in justapi.toml:1"),
        ] {
            let message = &read_text(text).unwrap().warnings[0].message;
            assert!(message.ends_with(expected), "{message}");
        }
    }

    #[test]
    fn a_misspelt_file_is_named_with_the_one_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("production.toml"), "").unwrap();
        let hint = |name: &str| {
            let path = folder.path().join(name);
            let error = read(&path, &path).unwrap_err();
            error.hint().unwrap().to_owned()
        };
        assert!(hint("prodction.toml").ends_with("/production.toml`?"));
        assert!(hint("staging.toml").starts_with("check the path"));
        assert!(
            hint("").starts_with("check the path"),
            "a folder is no file"
        );
    }

    #[test]
    fn wrong_types_and_broken_files_say_where() {
        for (text, code, line, column) in [
            ("[server]\nport = \"x\"\n", Code::ConfigValue, 2, 8),
            ("[server]\ngraceful = 30\n", Code::ConfigValue, 2, 12),
            ("server = 3\n", Code::ConfigValue, 1, 10),
            ("[server]\nport = -1\n", Code::ConfigValue, 2, 8),
            ("[server\n", Code::ConfigSyntax, 1, 8),
        ] {
            let error = read_text(text).unwrap_err();
            assert_eq!(error.code(), code, "{text}");
            let location = error.location().unwrap();
            assert_eq!(
                (location.line, location.column),
                (line, Some(column)),
                "{text}"
            );
        }
    }

    #[test]
    fn paths_are_relative_to_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE_NAME);
        fs::write(
            &path,
            "[server.tls]\ncert = \"tls/cert.pem\"\nkey = \"/etc/key.pem\"\n",
        )
        .unwrap();
        let layer = read(&path, &path).unwrap();
        let texts: Vec<_> = layer
            .values
            .iter()
            .map(|(_, value, _)| value.text().unwrap().to_owned())
            .collect();
        let cert = folder.path().join("tls/cert.pem");
        assert!(texts.contains(&cert.display().to_string()), "{texts:?}");
        assert!(texts.contains(&"/etc/key.pem".to_owned()));
    }

    #[test]
    fn search_stops_at_the_repository() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("repository/deep/er");
        fs::create_dir_all(&inner).unwrap();
        fs::write(folder.path().join(FILE_NAME), "").unwrap();
        assert_eq!(locate(&inner), Some(folder.path().join(FILE_NAME)));
        fs::create_dir(folder.path().join("repository/.git")).unwrap();
        assert_eq!(locate(&inner), None);
        fs::write(folder.path().join("repository").join(FILE_NAME), "").unwrap();
        assert_eq!(
            locate(&inner),
            Some(folder.path().join("repository").join(FILE_NAME))
        );
    }
}
