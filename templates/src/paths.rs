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
            // Before the names are put in, which may begin so themselves.
            let (dot, rest) = match part.strip_prefix(DOT) {
                Some(rest) => (".", rest),
                None => ("", part),
            };
            let rest = rest
                .replace("__module__", &names.module)
                .replace("__name__", &names.distribution);
            format!("{dot}{rest}")
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

/// Names of devices on Windows, whatever follows a dot.
const DEVICES: [&str; 4] = ["aux", "con", "nul", "prn"];

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
    let is_bad =
        |char: char| char.is_control() || "\\:<>\"|?*".contains(char) || is_invisible(char);
    if part.chars().any(is_bad) {
        return Some("has a character that not every system allows");
    }
    if part.ends_with(['.', ' ']) || is_device(&folded) {
        return Some("has a name that not every system allows");
    }
    if part.len() > 255 {
        return Some("has a part of more than 255 bytes");
    }
    None
}

/// Whether HFS+ takes a name with the character for the same as one without it.
fn is_invisible(char: char) -> bool {
    matches!(char, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}')
}

/// Whether a name in small letters is a device's on Windows.
fn is_device(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or(name).trim_end();
    let is_port = stem
        .strip_prefix("com")
        .or_else(|| stem.strip_prefix("lpt"))
        .is_some_and(|number| matches!(number.as_bytes(), [b'1'..=b'9']));
    is_port || DEVICES.contains(&stem)
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
            ("auxiliary/com10", "auxiliary/com10"),
            ("a b/\u{fc}.py", "a b/\u{fc}.py"),
            ("src/__init__.py", "src/__init__.py"),
        ] {
            assert_eq!(destination(path, &names()).expect(path), expected);
        }
    }

    #[test]
    fn a_name_that_begins_like_a_dot_keeps_its_beginning() {
        let names = Names {
            distribution: "dot-api".to_owned(),
            module: "dot_api".to_owned(),
        };
        for (path, expected) in [
            (
                "deploy/helm/__name__/Chart.yaml",
                "deploy/helm/dot-api/Chart.yaml",
            ),
            ("__name__", "dot-api"),
            ("dot-__name__", ".dot-api"),
        ] {
            assert_eq!(destination(path, &names).expect(path), expected);
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
            ".g\u{200c}it/hooks/pre-commit",
            "\u{feff}.git/config",
            "a?",
            "a|b",
            "aux",
            "src/AUX.py",
            "lpt1.txt",
            "com9",
            "a.",
            "a /b",
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
