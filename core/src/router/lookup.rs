//! From a method and a path to a route, and what to say when there is none.
//!
//! The first table decides almost every request; everything after it is the
//! slow path of refusals, and may allocate.

use std::borrow::Cow;
use std::ptr;

use http::{HeaderValue, Method};

use crate::request::PathParams;
use crate::router::route::Route;
use crate::router::table::Table;
use crate::router::{Lookup, Router, STANDARD, TrailingSlash, percent, standard_index};

/// A path to look up.
#[derive(Clone, Copy)]
pub(super) struct Target<'p> {
    pub(super) canonical: &'p str,
    /// Whether `canonical` is spelled otherwise than the request's path, so
    /// that positions in it mean nothing there.
    pub(super) is_rewritten: bool,
    /// Length of the request's path, which lacks a slash added to `canonical`.
    pub(super) sent_len: usize,
}

impl Router {
    /// Finds what answers `method` on `path`, which is as it was sent.
    ///
    /// The parameters are positions in `path`, to be read with it.
    pub fn find(&self, method: &Method, path: &str) -> Lookup<'_> {
        let rewritten = if percent::is_canonical(path) {
            None
        } else {
            match percent::canonical_path(path) {
                Some(canonical) => Some(canonical),
                None => return Lookup::BadPath,
            }
        };
        let target = Target {
            canonical: rewritten.as_deref().unwrap_or(path),
            is_rewritten: rewritten.is_some(),
            sent_len: path.len(),
        };
        let table = self.table(method);
        let mut params = PathParams::default();
        match self.find_in(table, target, &mut params) {
            Some(route) => Lookup::Found { route, params },
            None => self.find_second_best(method, table, target),
        }
    }

    /// The route of a table that answers; `None`, and anything in `params`,
    /// when it has none or the one it has refuses a typed value.
    #[inline]
    fn find_in(
        &self,
        table: &Table,
        target: Target<'_>,
        params: &mut PathParams,
    ) -> Option<&Route> {
        let route = &self.routes[table.find(target.canonical)? as usize];
        route.pattern.cut(target, params).then_some(route)
    }

    /// What to say when `tried`, the method's table, has no answer.
    #[cold]
    fn find_second_best(&self, method: &Method, tried: &Table, target: Target<'_>) -> Lookup<'_> {
        let get = (method == Method::HEAD).then(|| self.table(&Method::GET));
        // The method's table holds the any-method routes too, but a route
        // there may have hidden one of them and then refused a value.
        let others = [get.unwrap_or(&self.any), &self.any];
        let found_in = |table, target| {
            let mut params = PathParams::default();
            let route = self.find_in(table, target, &mut params)?;
            Some(Lookup::Found { route, params })
        };
        let found_in_others = |target| {
            let others = others.iter().filter(|table| !ptr::eq(**table, tried));
            others.into_iter().find_map(|table| found_in(table, target))
        };
        if let Some(found) = found_in_others(target) {
            return found;
        }
        let sibling = match self.trailing_slash {
            TrailingSlash::Strict => None,
            TrailingSlash::Redirect | TrailingSlash::Ignore => sibling(target.canonical),
        };
        let sibling = sibling.as_deref().map(|canonical| Target {
            canonical,
            ..target
        });
        if let Some(sibling) = sibling
            && let Some(found) = found_in(tried, sibling).or_else(|| found_in_others(sibling))
        {
            if self.trailing_slash == TrailingSlash::Ignore {
                return found;
            }
            if is_safe_location(sibling.canonical) {
                return Lookup::Redirect {
                    path: sibling.canonical.to_owned(),
                };
            }
        }
        let same = sibling.filter(|_| self.trailing_slash == TrailingSlash::Ignore);
        match self.allow(tried, target, same) {
            Some(allow) if method == Method::OPTIONS => Lookup::Options { allow },
            Some(allow) => Lookup::MethodNotAllowed { allow },
            None => Lookup::NotFound,
        }
    }

    /// Methods that answer on any of the targets, sorted; `None` for none.
    ///
    /// Called when neither the any-method routes nor `tried` matched a target.
    fn allow(
        &self,
        tried: &Table,
        target: Target<'_>,
        sibling: Option<Target<'_>>,
    ) -> Option<HeaderValue> {
        let answers = |table| {
            let answers_on = |target| {
                let mut params = PathParams::default();
                self.find_in(table, target, &mut params).is_some()
            };
            answers_on(target) || sibling.is_some_and(answers_on)
        };
        let standard = STANDARD.iter().zip(&self.standard);
        let standard = standard.filter_map(|(method, table)| Some((method, table.as_deref()?)));
        let custom = self.custom.iter().map(|(method, table)| (method, table));
        let mut names: Vec<&str> = standard
            .chain(custom)
            .filter(|(_, table)| !ptr::eq(*table, tried) && answers(table))
            .map(|(method, _)| method.as_str())
            .collect();
        if names.is_empty() {
            return None;
        }
        if names.contains(&"GET") {
            names.push("HEAD");
        }
        names.push("OPTIONS");
        names.sort_unstable();
        names.dedup();
        let allow = HeaderValue::try_from(names.join(", "));
        Some(allow.expect("method names are tokens"))
    }

    /// The table to try first: the method's, or what stands in for it.
    #[inline]
    fn table(&self, method: &Method) -> &Table {
        let own = match standard_index(method) {
            Some(index) => self.standard[index].as_deref(),
            None => {
                let mut custom = self.custom.iter();
                custom
                    .find(|(name, _)| name == method)
                    .map(|(_, table)| table)
            }
        };
        match own {
            Some(table) => table,
            None if method == Method::HEAD => self.table(&Method::GET),
            None => &self.any,
        }
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
