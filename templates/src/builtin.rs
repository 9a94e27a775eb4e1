//! The templates in the binary, put there by `build.rs`.

use std::borrow::Cow;

use crate::manifest::Manifest;
use crate::{SourceFile, Template};

/// Path below `files/` and content.
type Embedded = (&'static str, &'static [u8]);

/// Name, manifest and files.
const TEMPLATES: &[(&str, &str, &[Embedded])] = include!(concat!(env!("OUT_DIR"), "/builtin.rs"));

/// Names of the templates in the binary, the default first.
pub const BUILTIN_NAMES: [&str; 3] = ["minimal", "api", "rust"];

/// A template in the binary.
///
/// # Panics
/// If a manifest in the binary is wrong, which a test excludes.
pub fn builtin(name: &str) -> Option<Template> {
    let (_, manifest, files) = TEMPLATES.iter().find(|(known, ..)| *known == name)?;
    let manifest = Manifest::read(manifest).expect("a test reads every one");
    let files = files.iter().map(|(path, content)| SourceFile {
        path: (*path).to_owned(),
        content: Cow::Borrowed(content),
        // Only the manifest knows: an archive may have lost the permissions.
        is_executable: false,
    });
    Some(Template {
        manifest,
        files: files.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_template_is_listed_and_consistent() {
        let mut embedded: Vec<&str> = TEMPLATES.iter().map(|(name, ..)| *name).collect();
        let mut listed = BUILTIN_NAMES.to_vec();
        embedded.sort_unstable();
        listed.sort_unstable();
        assert_eq!(embedded, listed);
        for (name, manifest, files) in TEMPLATES {
            let manifest =
                Manifest::read(manifest).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(!files.is_empty(), "{name}");
            for prefix in manifest.files.keys() {
                let below = format!("{prefix}/");
                let is_used = |(path, _): &Embedded| path == prefix || path.starts_with(&below);
                assert!(
                    files.iter().any(is_used),
                    "{name}: no file has the rule {prefix}"
                );
            }
        }
    }
}
