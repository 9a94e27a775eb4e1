//! From a method and a path to a route, and what to say when there is none.
//!
//! One walk decides almost every request, refusals included; a second is for
//! HEAD routes and for trailing slashes.

use std::borrow::Cow;

use http::{HeaderValue, Method};

use crate::request::{PathParams, Spans};
use crate::router::path::Path;
use crate::router::trie::{ANY, Ending, Wanted};
use crate::router::{GET, HEAD, Lookup, Router, STANDARD, TrailingSlash, percent};

impl Router {
    /// Finds what answers `method` on `path`, which is as it was sent.
    ///
    /// The parameters are positions in `path`, to be read with it.
    pub fn find(&self, method: &Method, path: &str) -> Lookup<'_> {
        self.find_bytes(method, path.as_bytes())
    }

    /// [`Router::find`] of a path that nobody has looked at as text: what is
    /// plain is ASCII, and that shows while its segments are cut.
    pub(crate) fn find_bytes(&self, method: &Method, path: &[u8]) -> Lookup<'_> {
        let plain = Path::new(path);
        if plain.is_plain {
            let mut refusals = Vec::new();
            return match self.find_route(method, plain, &mut refusals) {
                Some(found) => found,
                None => self.find_second_best(method, plain, refusals),
            };
        }
        self.find_encoded(method, path)
    }

    /// [`Router::find`] where percent-decoding is due.
    #[cold]
    fn find_encoded(&self, method: &Method, path: &[u8]) -> Lookup<'_> {
        let text = std::str::from_utf8(path).ok();
        let Some(canonical) = text.and_then(percent::canonical_path) else {
            return Lookup::BadPath;
        };
        let path = Path::new(canonical.as_bytes());
        let mut refusals = Vec::new();
        let mut lookup = self
            .find_route(method, path, &mut refusals)
            .unwrap_or_else(|| self.find_second_best(method, path, refusals));
        if let Lookup::Found { params, .. } = &mut lookup {
            params.decode(&canonical);
        }
        lookup
    }

    /// The route that answers; what the path has for other methods is added to
    /// `refusals`.
    #[expect(
        clippy::inline_always,
        reason = "a call copies the outcome once more: ADR 0003"
    )]
    #[inline(always)]
    fn find_route<'r>(
        &'r self,
        method: &Method,
        path: Path<'_>,
        refusals: &mut Vec<&'r Ending>,
    ) -> Option<Lookup<'r>> {
        if path.text.first() != Some(&b'/') {
            return None;
        }
        let slot = self.slot(method).unwrap_or(ANY);
        let mut spans = Spans::new();
        let mut wanted = Wanted { slot, or_else: ANY };
        if slot == HEAD {
            if self.has_head_routes {
                // A route for any method hides no GET route from HEAD.
                wanted.or_else = HEAD;
                if let Some(index) = self.trie.find(path, wanted, &mut spans, refusals) {
                    return Some(self.found(index, spans));
                }
            }
            wanted = Wanted {
                slot: GET,
                or_else: ANY,
            };
        }
        let index = self.trie.find(path, wanted, &mut spans, refusals)?;
        Some(self.found(index, spans))
    }

    #[inline]
    fn found(&self, index: u32, spans: Spans) -> Lookup<'_> {
        let route = &self.routes[index as usize];
        let params = PathParams::new(route.pattern.names, spans);
        Lookup::Found { route, params }
    }

    /// What to say when no route answers the path as it is.
    fn find_second_best<'r>(
        &'r self,
        method: &Method,
        path: Path<'_>,
        mut refusals: Vec<&'r Ending>,
    ) -> Lookup<'r> {
        if self.trailing_slash != TrailingSlash::Strict
            && let Ok(text) = std::str::from_utf8(path.text)
            && let Some(sibling) = sibling(text)
        {
            let is_ignored = self.trailing_slash == TrailingSlash::Ignore;
            let mut of_sibling = Vec::new();
            match self.find_route(method, Path::new(sibling.as_bytes()), &mut of_sibling) {
                Some(found) if is_ignored => return found,
                Some(_) if is_safe_location(&sibling) => {
                    return Lookup::Redirect {
                        path: sibling.into_owned(),
                    };
                }
                _ if is_ignored => refusals.append(&mut of_sibling),
                _ => {}
            }
        }
        if refusals.is_empty() {
            return Lookup::NotFound;
        }
        let allow = self.allow(&refusals);
        if method == Method::OPTIONS {
            Lookup::Options { allow }
        } else {
            Lookup::MethodNotAllowed { allow }
        }
    }

    /// The methods that would have been answered, sorted.
    #[cold]
    fn allow(&self, refusals: &[&Ending]) -> HeaderValue {
        let slots = refusals.iter().flat_map(|ending| ending.slots());
        let mut names: Vec<&str> = slots
            .map(|slot| match STANDARD.get(slot) {
                Some(method) => method.as_str(),
                None => self.custom[slot - ANY - 1].as_str(),
            })
            .collect();
        if names.contains(&"GET") {
            names.push("HEAD");
        }
        names.push("OPTIONS");
        names.sort_unstable();
        names.dedup();
        let allow = HeaderValue::try_from(names.join(", "));
        allow.expect("method names are tokens")
    }
}

/// The path with its trailing slash removed, or one added.
fn sibling(path: &str) -> Option<Cow<'_, str>> {
    match path.strip_suffix('/') {
        Some("") => None,
        Some(shorter) => Some(Cow::Borrowed(shorter)),
        None if path.starts_with('/') => Some(Cow::Owned(format!("{path}/"))),
        None => None,
    }
}

/// Whether a browser reads `path` as a path on this host.
///
/// `//host` is another host (RFC 3986 §4.2), and browsers treat a backslash
/// as a slash and skip tabs and line ends (WHATWG URL).
fn is_safe_location(path: &str) -> bool {
    let slashes = |c: &char| matches!(c, '/' | '\\');
    path.starts_with('/')
        && path.chars().take_while(slashes).count() == 1
        && path.bytes().all(|byte| byte.is_ascii_graphic())
}
