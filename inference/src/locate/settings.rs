//! Where models are looked for and kept, as the environment says.
//!
//! The variables are those of `huggingface_hub`, so that a machine that is set
//! up for it is set up for this.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Hub that is asked where no other is named.
const DEFAULT_ENDPOINT: &str = "https://huggingface.co";

/// Names of the interpreter whose `pip` is asked, in order.
const INTERPRETERS: [&str; 2] = ["python3", "python"];

/// Where models are looked for and kept.
#[derive(Clone, Debug)]
pub struct LocateSettings {
    /// Whether only what is here already is used.
    pub offline: bool,
    /// Address of the hub, without a slash at its end.
    pub endpoint: String,
    /// What the hub is shown as `Authorization: Bearer`.
    pub token: Option<String>,
    /// Folder of the hub's files.
    pub hub_cache: Option<PathBuf>,
    /// Folder of files that other places gave.
    pub models: Option<PathBuf>,
    /// Interpreters whose `pip` may bring a package; the first that starts is asked.
    pub interpreters: Vec<OsString>,
    /// Pause before something is tried for the second time; it doubles.
    pub(super) first_pause: Duration,
}

impl LocateSettings {
    /// Reads the environment of this process.
    pub fn from_environment() -> Self {
        Self::from_variables(&|name| env::var_os(name).filter(|value| !value.is_empty()))
    }

    fn from_variables(variable: &dyn Fn(&str) -> Option<OsString>) -> Self {
        let text = |name: &str| variable(name).and_then(|value| value.into_string().ok());
        let path = |name: &str| variable(name).map(PathBuf::from);
        let is_on = |name: &str| {
            text(name).is_some_and(|value| {
                ["1", "on", "yes", "true"].contains(&value.to_lowercase().as_str())
            })
        };
        let caches = path("XDG_CACHE_HOME").or_else(|| Some(path("HOME")?.join(".cache")));
        let home = path("HF_HOME").or_else(|| Some(caches.as_ref()?.join("huggingface")));
        let hub_cache = path("HF_HUB_CACHE")
            .or_else(|| path("HUGGINGFACE_HUB_CACHE"))
            .or_else(|| Some(home.as_ref()?.join("hub")));
        let token_file = path("HF_TOKEN_PATH").or_else(|| Some(home.as_ref()?.join("token")));
        let endpoint = text("HF_ENDPOINT").unwrap_or_else(|| DEFAULT_ENDPOINT.to_owned());
        Self {
            offline: is_on("HF_HUB_OFFLINE") || is_on("TRANSFORMERS_OFFLINE"),
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            token: text("HF_TOKEN")
                .or_else(|| text("HUGGING_FACE_HUB_TOKEN"))
                .or_else(|| read_token(token_file.as_deref()?))
                .map(|token| token.trim().to_owned()),
            models: caches
                .map(|caches| caches.join("justapi/models"))
                .or_else(|| Some(home?.join("justapi"))),
            hub_cache,
            interpreters: INTERPRETERS.map(OsString::from).to_vec(),
            first_pause: Duration::from_millis(500),
        }
    }
}

fn read_token(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    (!text.trim().is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)]) -> LocateSettings {
        LocateSettings::from_variables(&|name| {
            let mut all = variables.iter();
            all.find(|(known, _)| *known == name)
                .map(|(_, value)| OsString::from(value))
        })
    }

    #[track_caller]
    fn check_cache(variables: &[(&str, &str)], expected: &str) {
        let found = settings(variables).hub_cache;
        assert_eq!(found.as_deref(), Some(Path::new(expected)), "{variables:?}");
    }

    #[test]
    fn the_cache_is_where_the_hubs_own_client_has_it() {
        let home = ("HOME", "/h");
        check_cache(&[home], "/h/.cache/huggingface/hub");
        check_cache(&[home, ("XDG_CACHE_HOME", "/x")], "/x/huggingface/hub");
        check_cache(&[home, ("HF_HOME", "/f")], "/f/hub");
        check_cache(&[("HF_HOME", "/f"), ("HF_HUB_CACHE", "/c")], "/c");
        assert_eq!(settings(&[]).hub_cache, None);
    }

    #[test]
    fn a_token_comes_from_a_variable_or_the_file() {
        assert_eq!(settings(&[]).token, None);
        assert_eq!(settings(&[("HF_TOKEN", "a\n")]).token.as_deref(), Some("a"));
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("token"), "from-file\n").expect("written");
        let home = folder.path().to_str().expect("letters");
        let found = settings(&[("HF_HOME", home)]).token;
        assert_eq!(found.as_deref(), Some("from-file"));
    }

    #[test]
    fn an_endpoint_has_no_slash_at_its_end() {
        assert_eq!(settings(&[]).endpoint, DEFAULT_ENDPOINT);
        let found = settings(&[("HF_ENDPOINT", "http://127.0.0.1:1/")]).endpoint;
        assert_eq!(found, "http://127.0.0.1:1");
    }

    #[test]
    fn offline_is_a_switch() {
        for (value, expected) in [("1", true), ("TRUE", true), ("0", false), ("no", false)] {
            assert_eq!(settings(&[("HF_HUB_OFFLINE", value)]).offline, expected);
        }
    }
}
