//! A description of the API from its route table, and a page that shows it.
//!
//! Guarantees: the document is OpenAPI 3.1 and is made once, of the routes
//! themselves, when somebody first asks for it; the page loads nothing from anywhere else and runs under a
//! strict Content-Security-Policy.

mod asset;
mod document;
mod rebase;
#[cfg(test)]
mod tests;

use std::sync::OnceLock;

use http::Method;
use serde_json::Value;

use self::asset::Asset;
use self::document::Described;
use crate::error::Error;
use crate::handler::inline;
use crate::request::Request;
use crate::router::{RouteOptions, Router};

/// Where the description is.
pub const OPENAPI_PATH: &str = "/openapi.json";
/// Where the page is.
pub const DOCS_PATH: &str = "/docs";

/// Describes an API as OpenAPI 3.1.
///
/// ```
/// use justapi_core::{OpenApi, Router};
///
/// # fn main() -> Result<(), justapi_core::Error> {
/// let router = Router::new().get("/users/{id:int}", async |_| "a user")?;
/// let router = OpenApi::new("Users", "1.0.0").mount(router)?;
/// # assert_eq!(router.routes().count(), 5);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct OpenApi {
    title: String,
    version: String,
    description: Option<String>,
    /// URL and description.
    servers: Vec<(String, String)>,
}

impl OpenApi {
    /// Names the API and the version of its description.
    pub fn new(title: impl Into<String>, version: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            version: version.into(),
            description: None,
            servers: Vec::new(),
        }
    }

    /// Says in a paragraph what the API is for.
    #[must_use]
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.description = Some(text.into());
        self
    }

    /// Adds a URL where the API is served; without any it is where the
    /// document came from.
    #[must_use]
    pub fn server(mut self, url: impl Into<String>, description: impl Into<String>) -> Self {
        self.servers.push((url.into(), description.into()));
        self
    }

    /// The description of `router`, without the routes that are hidden.
    pub fn document(&self, router: &Router) -> Value {
        document::build(self, &Described::all(router))
    }

    /// Adds [`OPENAPI_PATH`] and [`DOCS_PATH`] for the routes that are there.
    ///
    /// # Errors
    /// [`Error::RouteConflict`] when one of the paths is taken.
    pub fn mount(&self, router: Router) -> Result<Router, Error> {
        let (api, routes) = (self.clone(), Described::all(&router));
        let document = OnceLock::new();
        let describe = inline(move |request: Request| {
            // Made for the first who asks: a start need not wait for it.
            let make = || Asset::json(document::build(&api, &routes).to_string());
            document.get_or_init(make).answer(&request)
        });
        let style = include_bytes!("docs/page.css");
        let script = include_bytes!("docs/page.js");
        let assets = [
            (DOCS_PATH, Asset::page(include_bytes!("docs/page.html"))),
            ("/docs/page.css", Asset::text("text/css", style)),
            ("/docs/page.js", Asset::text("text/javascript", script)),
        ];
        let hidden = RouteOptions::new().hidden();
        let router = router.route_with(Method::GET, OPENAPI_PATH, hidden, describe)?;
        assets
            .into_iter()
            .try_fold(router, |router, (path, asset)| {
                let answer = inline(move |request: Request| asset.answer(&request));
                router.route_with(Method::GET, path, hidden, answer)
            })
    }
}
