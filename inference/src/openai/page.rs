//! The chat page: one file, which loads nothing from anywhere else.
//!
//! Guarantee: the browser runs this script and this style and no other, by
//! their hashes (CSP Level 3 §2.3.1), and talks to this server alone.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use justapi_core::{HeaderValue, Response, header};
use sha2::{Digest as _, Sha256};

const PAGE: &str = include_str!("chat.html");
const NO_SNIFF: HeaderValue = HeaderValue::from_static("nosniff");
const REVALIDATE: HeaderValue = HeaderValue::from_static("no-cache");

/// The page, and what the browser may do with it.
#[derive(Clone, Debug)]
pub(super) struct Page {
    policy: HeaderValue,
}

impl Page {
    pub(super) fn new() -> Self {
        let policy = format!(
            "default-src 'none'; script-src '{}'; style-src '{}'; connect-src 'self'; \
             img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
            hash_of("<script>", "</script>"),
            hash_of("<style>", "</style>"),
        );
        Self {
            policy: HeaderValue::try_from(policy).expect("hashes are ASCII"),
        }
    }

    pub(super) fn answer(&self) -> Response {
        Response::html(PAGE)
            .with_header(header::CONTENT_SECURITY_POLICY, self.policy.clone())
            .with_header(header::X_CONTENT_TYPE_OPTIONS, NO_SNIFF)
            .with_header(header::CACHE_CONTROL, REVALIDATE)
    }
}

/// Hash source of what stands between two tags of the page.
fn hash_of(open: &str, close: &str) -> String {
    let (_, rest) = PAGE.split_once(open).expect("the page has the tag");
    let (text, _) = rest.split_once(close).expect("the tag has an end");
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_one_file_with_one_script_and_one_style() {
        for tag in ["<script", "</script", "<style", "</style"] {
            assert_eq!(PAGE.matches(tag).count(), 1, "{tag}");
        }
        for outside in [
            "http://", "https://", "//cdn", "@import", "style=", "onclick",
        ] {
            assert!(!PAGE.contains(outside), "{outside}");
        }
        let policy = Page::new().policy;
        let policy = policy.to_str().expect("text");
        assert!(!policy.contains("unsafe"), "{policy}");
    }
}
