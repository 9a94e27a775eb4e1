//! Where a template comes from: the binary, a folder, or a git repository.
//!
//! Guarantee: a template is read whole before anything of it is used, and what
//! was fetched for that is gone afterwards; no password of a URL is shown or kept.

use std::path::{Path, PathBuf};

use justapi_templates::{BUILTIN_NAMES, Error, Template, builtin, read_folder};

use crate::commands::new::git::{self, Failure};
use crate::commands::new::interruption::Interruption;
use crate::error::{CliError, Code, Location, plain};
use crate::shell::quoted;
use crate::spelling;

/// State of a repository unless `--ref` names another.
const DEFAULT_REFERENCE: &str = "HEAD";

/// A template and where it is from.
pub(super) struct Source {
    pub(super) template: Template,
    /// How it is called to the person who named it.
    pub(super) shown: String,
    /// What the project remembers of it: first where it is from.
    pub(super) origin: Vec<(&'static str, String)>,
}

/// What a text names.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Builtin(String),
    Folder(PathBuf),
    Git { url: String, folder: String },
}

impl Source {
    /// Reads the template that a text names.
    ///
    /// # Errors
    /// [`Code::TemplateUnknown`], [`Code::TemplateInvalid`], [`Code::TemplateFetch`], and
    /// [`Code::FlagConflict`] for a `--ref` of something that has none.
    pub(super) fn open(
        text: &str,
        reference: Option<&str>,
        interruption: &Interruption,
    ) -> Result<Self, CliError> {
        let place = Place::of(text).ok_or_else(|| unknown(text))?;
        if reference.is_some() && !matches!(place, Place::Git { .. }) {
            return Err(CliError::new(
                Code::FlagConflict,
                format!("`--ref` is for a template in a git repository, and `{text}` is none"),
            )
            .with_hint("leave it away"));
        }
        match place {
            Place::Builtin(name) => Ok(Self {
                template: builtin(&name).expect("it is listed"),
                shown: name.clone(),
                origin: vec![("name", name)],
            }),
            Place::Folder(folder) => {
                let real = folder.canonicalize().map_err(|error| {
                    CliError::new(
                        Code::TemplateUnknown,
                        format!("cannot read the template `{text}`"),
                    )
                    .with_cause(&error)
                })?;
                // Where it is on this machine is nothing for the others who get the project.
                let name = real.file_name().unwrap_or(real.as_os_str());
                Ok(Self {
                    template: read_folder(&real).map_err(|error| invalid(&error, text))?,
                    shown: text.to_owned(),
                    origin: vec![("folder", name.to_string_lossy().into_owned())],
                })
            }
            Place::Git { url, folder } => {
                let reference = reference.unwrap_or(DEFAULT_REFERENCE);
                Self::fetch(&url, reference, &folder, interruption)
            }
        }
    }

    fn fetch(
        url: &str,
        reference: &str,
        inside: &str,
        interruption: &Interruption,
    ) -> Result<Self, CliError> {
        let shown = without_secrets(url);
        let failed = |cause: &str| {
            CliError::new(
                Code::TemplateFetch,
                format!("cannot fetch `{reference}` of {shown}"),
            )
            .with_detail("cause", cause.replace(url, &shown))
        };
        if reference.starts_with('-') || reference.is_empty() {
            return Err(failed("a branch, tag or commit does not begin with `-`"));
        }
        let checkout = interruption
            .will_remove(|| {
                tempfile::Builder::new()
                    .prefix("justapi-template-")
                    .tempdir()
            })
            .map_err(|error| failed(&plain(&error)))?;
        let commit =
            git::fetch(url, reference, checkout.path()).map_err(|failure| match failure {
                Failure::NoGit => {
                    failed("git is not installed").with_hint("install git, or name a folder")
                }
                Failure::Said(text) => {
                    failed(&text).with_hint(format!("try `git ls-remote {}`", quoted(&shown)))
                }
            })?;
        let mut folder = checkout.path().to_owned();
        for part in inside.split('/').filter(|part| !part.is_empty()) {
            folder.push(part);
            // A link in the repository may lead anywhere.
            let is_folder = folder.symlink_metadata().is_ok_and(|found| found.is_dir());
            if !is_folder || part == ".." {
                return Err(CliError::new(
                    Code::TemplateInvalid,
                    format!("there is no folder `{inside}` in {shown}"),
                ));
            }
        }
        let template = read_folder(&folder).map_err(|error| invalid(&error, &shown))?;
        let mut origin = vec![
            ("url", shown.clone()),
            ("ref", reference.to_owned()),
            ("commit", commit),
        ];
        if !inside.is_empty() {
            origin.push(("folder", inside.to_owned()));
        }
        Ok(Self {
            template,
            shown,
            origin,
        })
    }
}

impl Place {
    fn of(text: &str) -> Option<Self> {
        if BUILTIN_NAMES.contains(&text) {
            return Some(Self::Builtin(text.to_owned()));
        }
        if let Some(short) = text.strip_prefix("gh:") {
            let mut parts = short.splitn(3, '/');
            let owner = parts.next().filter(|part| is_plain(part))?;
            let repository = parts.next().filter(|part| is_plain(part))?;
            return Some(Self::Git {
                url: format!("https://github.com/{owner}/{repository}.git"),
                folder: parts.next().unwrap_or_default().to_owned(),
            });
        }
        // `git@host:path`, as git itself reads it: a colon before any slash.
        let is_remote_path = text.split_once(':').is_some_and(|(host, path)| {
            host.contains('@') && !host.contains('/') && !path.is_empty()
        });
        if text.contains("://") || is_remote_path {
            return Some(Self::Git {
                url: text.to_owned(),
                folder: String::new(),
            });
        }
        let is_path = text.contains('/') || text == "." || text == "..";
        (is_path || Path::new(text).is_dir()).then(|| Self::Folder(PathBuf::from(text)))
    }
}

/// A URL without what lets somebody in. With SSH a user's name is part of the address, elsewhere
/// it may be a token.
fn without_secrets(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let Some((user, host)) = authority.rsplit_once('@') else {
        return url.to_owned();
    };
    let name = user.split_once(':').map_or(user, |(name, _)| name);
    if scheme.to_ascii_lowercase().contains("ssh") && !name.is_empty() {
        format!("{scheme}://{name}@{host}{path}")
    } else {
        format!("{scheme}://{host}{path}")
    }
}

/// Whether a text is the name of an owner or a repository.
fn is_plain(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !text.is_empty() && text != "." && text != ".." && text.bytes().all(plain)
}

fn unknown(text: &str) -> CliError {
    let error = CliError::new(
        Code::TemplateUnknown,
        format!(
            "there is no template `{text}`{}",
            spelling::did_you_mean(text, BUILTIN_NAMES.into_iter())
        ),
    );
    error.with_hint("`justapi new --list` shows those that there are")
}

/// A template that cannot be used.
pub(super) fn invalid(error: &Error, name: &str) -> CliError {
    let report = CliError::new(
        Code::TemplateInvalid,
        format!("the template `{name}` cannot be used: {error}"),
    );
    let (path, line) = match error {
        Error::Read { source, .. } => return report.with_cause(source),
        Error::Manifest { line, .. } => ("template.toml".to_owned(), *line),
        Error::Render { path, line, .. } if path == "template.toml" => (path.clone(), *line),
        Error::Render { path, line, .. } => (format!("files/{path}"), *line),
        _ => return report,
    };
    report.at_any(line.map(|line| Location::new(Path::new(&path), line, None)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_lose_what_lets_somebody_in() {
        for (url, expected) in [
            (
                "https://ada:secret@a.example/t.git",
                "https://a.example/t.git",
            ),
            (
                "https://token@a.example:8443/t.git",
                "https://a.example:8443/t.git",
            ),
            ("https://ada:se@cret@a.example", "https://a.example"),
            (
                "HTTPS://ada:secret@a.example?x=a@b",
                "HTTPS://a.example?x=a@b",
            ),
            (
                "https://a.example/@scope/t.git",
                "https://a.example/@scope/t.git",
            ),
            ("ssh://git@a.example/t.git", "ssh://git@a.example/t.git"),
            (
                "git+ssh://git:secret@a.example/t",
                "git+ssh://git@a.example/t",
            ),
            ("ssh://:secret@a.example/t", "ssh://a.example/t"),
            ("git@a.example:t.git", "git@a.example:t.git"),
            ("file:///tmp/t", "file:///tmp/t"),
        ] {
            assert_eq!(without_secrets(url), expected);
        }
    }

    #[test]
    fn texts_name_places() {
        let git = |url: &str, folder: &str| {
            Some(Place::Git {
                url: url.to_owned(),
                folder: folder.to_owned(),
            })
        };
        let github = "https://github.com/ada/engine.git";
        for (text, place) in [
            ("api", Some(Place::Builtin("api".to_owned()))),
            ("./api", Some(Place::Folder("./api".into()))),
            ("/tmp/a:b", Some(Place::Folder("/tmp/a:b".into()))),
            ("gh:ada/engine", git(github, "")),
            ("gh:ada/engine/a/b", git(github, "a/b")),
            ("gh:ada", None),
            ("gh:../engine", None),
            ("gh:ada/-x?", None),
            (
                "https://a.example/t.git",
                git("https://a.example/t.git", ""),
            ),
            ("git@a.example:t.git", git("git@a.example:t.git", "")),
            ("file:///tmp/t", git("file:///tmp/t", "")),
            ("apy", None),
            ("", None),
        ] {
            assert_eq!(Place::of(text), place, "{text}");
        }
    }
}
