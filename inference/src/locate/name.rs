//! What `--model` may say: a path, a short name, or `org/name[@revision][:file or quant]`.
//!
//! Guarantee: a path that exists is always the path.

use std::path::{Component, Path, PathBuf};

use super::error::LocateError;
use super::short_names::{self, ShortName};

/// A model as it was asked for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Name {
    /// A file or folder that exists.
    Path(PathBuf),
    /// One of the built-in table.
    Short(&'static ShortName),
    /// On a hub.
    Hub(HubName),
}

/// A repository on a hub, and what of it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct HubName {
    /// `org/name`.
    pub(super) repository: String,
    /// Branch, tag or commit.
    pub(super) revision: String,
    /// File name, or a part of it such as `Q4_K_M`.
    pub(super) choice: Option<String>,
}

impl Name {
    /// Reads what was asked for; only the file system is looked at.
    ///
    /// # Errors
    /// [`LocateError::NoFile`] for what can only be a path, else [`LocateError::Unknown`].
    pub(super) fn read(text: &str) -> Result<Self, LocateError> {
        let path = Path::new(text);
        if !text.is_empty() && path.exists() {
            return Ok(Self::Path(path.to_owned()));
        }
        if let Some(short) = short_names::find(text) {
            return Ok(Self::Short(short));
        }
        if is_path_like(text) {
            return Err(LocateError::NoFile {
                path: path.to_owned(),
            });
        }
        if let Some(hub) = hub_name(text) {
            return Ok(Self::Hub(hub));
        }
        Err(LocateError::Unknown {
            model: text.to_owned(),
            near: short_names::near(text),
        })
    }
}

/// Whether a text is written as paths are, and as no repository is.
fn is_path_like(text: &str) -> bool {
    let is_file = |ending: &str| {
        Path::new(text)
            .extension()
            .is_some_and(|found| found.eq_ignore_ascii_case(ending))
    };
    let names_file = (is_file("gguf") || is_file("safetensors")) && !text.contains(':');
    let starts_as_path = ["/", "./", "../", "~"]
        .iter()
        .any(|start| text.starts_with(start));
    let num_slashes = text
        .split(':')
        .next()
        .unwrap_or_default()
        .matches('/')
        .count();
    starts_as_path || names_file || num_slashes > 1 || text.ends_with('/')
}

fn hub_name(text: &str) -> Option<HubName> {
    let (repository, choice) = match text.split_once(':') {
        Some((_, "")) => return None,
        Some((repository, choice)) => (repository, Some(choice.to_owned())),
        None => (text, None),
    };
    let (repository, revision) = match repository.split_once('@') {
        Some((repository, revision)) => (repository, revision),
        None => (repository, "main"),
    };
    let (organisation, name) = repository.split_once('/')?;
    let is_sound = is_word(organisation)
        && is_word(name)
        && is_safe_path(revision)
        && choice.as_deref().is_none_or(is_safe_path);
    is_sound.then(|| HubName {
        repository: repository.to_owned(),
        revision: revision.to_owned(),
        choice,
    })
}

/// Whether a hub could have a user or a repository of this name.
fn is_word(text: &str) -> bool {
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    (1..=96).contains(&text.len())
        && text.chars().all(is_allowed)
        && !text.starts_with(['-', '.'])
        && !text.ends_with(['-', '.'])
        && !text.contains("..")
        && !text.contains("--")
}

/// Whether a path of a repository stays in the folder that it is joined to.
pub(super) fn is_safe_path(text: &str) -> bool {
    let is_plain = |letter: char| !letter.is_control() && letter != '\\';
    (1..=512).contains(&text.len())
        && text.chars().all(is_plain)
        && !text.ends_with('/')
        && Path::new(text)
            .components()
            .all(|component| matches!(component, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_hub(text: &str, repository: &str, revision: &str, choice: Option<&str>) {
        let expected = Name::Hub(HubName {
            repository: repository.to_owned(),
            revision: revision.to_owned(),
            choice: choice.map(str::to_owned),
        });
        assert_eq!(Name::read(text).expect("a name"), expected, "{text}");
    }

    #[test]
    fn a_hub_name_has_an_organisation() {
        check_hub("a/b", "a/b", "main", None);
        check_hub("a/b:Q4_K_M", "a/b", "main", Some("Q4_K_M"));
        check_hub("a/b@v1:c/d.gguf", "a/b", "v1", Some("c/d.gguf"));
        check_hub("Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-0.5B", "main", None);
    }

    #[test]
    fn short_names_come_before_the_hub() {
        let Name::Short(found) = Name::read("smollm2:135m").expect("a name") else {
            panic!("not a short name");
        };
        assert_eq!(found.name, "smollm2:135m");
        assert_eq!(
            Name::read("SmolLM2").expect("a name"),
            Name::Short(found),
            "the first of a family is meant without a size"
        );
    }

    #[test]
    fn a_path_that_is_there_is_the_path() {
        let folder = tempfile::tempdir().expect("a folder");
        let text = folder.path().to_str().expect("a path of letters");
        assert_eq!(
            Name::read(text).expect("a name"),
            Name::Path(folder.path().to_owned())
        );
    }

    #[test]
    fn what_is_written_as_a_path_is_none_of_the_others() {
        for text in [
            "/none.gguf",
            "./none",
            "../none",
            "none.gguf",
            "models/none.gguf",
            "a/b/c",
            "~/none",
        ] {
            let error = Name::read(text).expect_err(text);
            assert!(
                matches!(error, LocateError::NoFile { .. }),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn other_words_are_unknown_and_near_ones_proposed() {
        for (text, expected) in [
            ("", None),
            ("smolm2:135m", Some("smollm2:135m")),
            ("gemma:270m", Some("gemma3:270m")),
            ("completely-different", None),
            ("a/b:", None),
            ("a/..", None),
            ("a/b:../c", None),
            ("a/b@..", None),
            ("a--b/c", None),
        ] {
            match Name::read(text) {
                Err(LocateError::Unknown { near, .. }) => assert_eq!(near, expected, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn paths_of_a_repository_stay_inside() {
        for (path, expected) in [
            ("model.gguf", true),
            ("a/b.gguf", true),
            ("", false),
            ("/a", false),
            ("../a", false),
            ("a/../b", false),
            ("./a", false),
            ("a\\b", false),
            ("a\nb", false),
            ("a/", false),
        ] {
            assert_eq!(is_safe_path(path), expected, "{path:?}");
        }
    }
}
