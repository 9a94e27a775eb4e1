//! From a file's path in a template to its path in the project.
//!
//! Guarantee: the result is relative, has no `..`, stays out of `.git`, and
//! can be written on every system that projects are cloned to.

use crate::error::Error;
use crate::names::Names;
use crate::render::RECORD_PATH;

/// Suffix of the files that are rendered.
pub(crate) const RENDERED_SUFFIX: &str = ".j2";
/// Stands for a dot at the beginning, so that tools take no notice of a template's own files.
const DOT: &str = "dot-";

/// The path in the project.
///
/// # Errors
/// [`Error::Path`].
pub(crate) fn destination(path: &str, names: &Names) -> Result<String, Error> {
    let plain = path.strip_suffix(RENDERED_SUFFIX).unwrap_or(path);
    let parts: Vec<String> = plain
        .split('/')
        .map(|part| {
            let part = part
                .replace("__module__", &names.module)
                .replace("__name__", &names.distribution);
            match part.strip_prefix(DOT) {
                Some(rest) => format!(".{rest}"),
                None => part,
            }
        })
        .collect();
    let reason = parts.iter().find_map(|part| fault(part)).or_else(|| {
        let is_record = parts.join("/").eq_ignore_ascii_case(RECORD_PATH);
        is_record.then_some("is where the answers are recorded")
    });
    match reason {
        Some(reason) => Err(Error::Path {
            path: path.to_owned(),
            reason,
        }),
        None => Ok(parts.join("/")),
    }
}

/// What is wrong with one part of a path.
fn fault(part: &str) -> Option<&'static str> {
    if part.is_empty() || part == "." || part == ".." {
        return Some("leads out of the project or nowhere");
    }
    // What other file systems take for the same name is the same name; a hook in there would run.
    let folded = part.trim_end_matches(['.', ' ']).to_ascii_lowercase();
    if folded == ".git" || folded == "git~1" {
        return Some("is git's own");
    }
    if part.contains(['\\', ':']) || part.chars().any(char::is_control) {
        return Some("has a character that not every system allows");
    }
    if part.len() > 255 {
        return Some("has a part of more than 255 bytes");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names {
            distribution: "my-api".to_owned(),
            module: "my_api".to_owned(),
        }
    }

    #[test]
    fn paths_are_renamed_part_by_part() {
        for (path, expected) in [
            ("app.py", "app.py"),
            ("dot-gitignore", ".gitignore"),
            ("dot-github/workflows/ci.yml.j2", ".github/workflows/ci.yml"),
            ("src/__module__/main.py.j2", "src/my_api/main.py"),
            (
                "deploy/helm/__name__/Chart.yaml.j2",
                "deploy/helm/my-api/Chart.yaml",
            ),
            ("a/not-dot-b", "a/not-dot-b"),
            ("src/__init__.py", "src/__init__.py"),
        ] {
            assert_eq!(destination(path, &names()).expect(path), expected);
        }
    }

    #[test]
    fn no_path_leads_out_of_the_project() {
        for path in [
            "../a",
            "a/../../b",
            "/etc/passwd",
            "a//b",
            "./a",
            "",
            ".j2",
            "a/.j2",
            "dot-./a",
            "dot-",
            "a/dot-",
            "dot-.j2",
            "dot-git/hooks/post-checkout",
            ".git/config",
            "a/.GIT/config",
            ".git./config",
            "GIT~1/config",
            "c:\\a",
            "a\\..\\b",
            "a\nb",
            "dot-justapi/template.toml",
            ".justapi/template.toml.j2",
        ] {
            let found = destination(path, &names());
            assert!(
                matches!(found, Err(Error::Path { .. })),
                "{path}: {found:?}"
            );
        }
        assert!(destination(&"x".repeat(256), &names()).is_err());
    }
}
