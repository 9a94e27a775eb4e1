//! Requests to a hub: redirects, the token, what to try again, and what errors mean.
//!
//! Guarantee: the token goes to the hub's own host alone, however it redirects.

use std::error::Error as _;
use std::time::Duration;

use reqwest::header::{
    ACCEPT_ENCODING, AUTHORIZATION, HeaderMap, HeaderValue, LOCATION, RETRY_AFTER,
};
use reqwest::{Client, Method, Response, StatusCode, Url};

use super::error::LocateError;
use super::event::{Listener, LocateEvent};
use super::settings::LocateSettings;

/// Requests for one thing before it is given up; progress begins the count anew.
pub(super) const MAX_TRIES: u32 = 5;

/// Longest pause that a hub may ask for; beyond it the user decides.
const MAX_PAUSE: Duration = Duration::from_mins(1);

/// Redirects of one request.
const MAX_REDIRECTS: usize = 10;

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long nothing may come.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Most bytes of an answer that is read whole: a list of files.
const MAX_DOCUMENT_BYTES: usize = 64 << 20;

/// Hub with the token and the connections to it.
#[derive(Debug)]
pub(super) struct HubClient {
    client: Client,
    /// Address of the hub, without a slash at its end.
    pub(super) endpoint: String,
    token: Option<HeaderValue>,
    /// Pause before the second try.
    first_pause: Duration,
}

/// Why a request has no answer that can be used.
#[derive(Debug)]
pub(super) enum Failure {
    /// Another try may help, after this pause if the hub has named one.
    Passing {
        pause: Option<Duration>,
        reason: String,
    },
    /// It will not.
    Final(LocateError),
}

impl HubClient {
    pub(super) fn new(settings: &LocateSettings) -> Result<Self, LocateError> {
        // Fails where there is one already, which serves as well.
        drop(rustls::crypto::ring::default_provider().install_default());
        let mut headers = HeaderMap::new();
        // Sizes and ranges are those of the file itself.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let network = |reason: String| LocateError::Network {
            url: settings.endpoint.clone(),
            reason,
        };
        let client = Client::builder()
            .user_agent(concat!("justapi/", env!("CARGO_PKG_VERSION")))
            .default_headers(headers)
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .build()
            .map_err(|error| network(reason(&error)))?;
        let token = (settings.token.as_ref())
            .map(|token| HeaderValue::from_str(&format!("Bearer {token}")))
            .transpose()
            .map_err(|_| network("the token has characters that no header can have".to_owned()))?
            .map(|mut value| {
                value.set_sensitive(true);
                value
            });
        Ok(Self {
            client,
            endpoint: settings.endpoint.clone(),
            token,
            first_pause: settings.first_pause,
        })
    }

    /// Whether a token is sent.
    pub(super) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Sends a request and follows redirects until `is_enough`.
    ///
    /// `repository` is what a refusal is about, and `what` what is missing where nothing is found.
    pub(super) async fn send(
        &self,
        method: Method,
        url: &str,
        range_from: u64,
        is_enough: fn(&Response) -> bool,
        (repository, what): (&str, &str),
    ) -> Result<Response, Failure> {
        let mut url = read_url(url)?;
        let hub = read_url(&self.endpoint)?;
        for _ in 0..=MAX_REDIRECTS {
            let mut request = self.client.request(method.clone(), url.clone());
            if let Some(token) = &self.token
                && url.origin() == hub.origin()
            {
                request = request.header(AUTHORIZATION, token);
            }
            if range_from > 0 {
                request = request.header("range", format!("bytes={range_from}-"));
            }
            let response = request.send().await.map_err(|error| passing(&error))?;
            let status = response.status();
            if status.is_redirection() && !is_enough(&response) {
                url = next_url(&url, &response).map_err(|reason| network(&url, reason))?;
                continue;
            }
            if status.is_success() || status.is_redirection() {
                return Ok(response);
            }
            if status == StatusCode::RANGE_NOT_SATISFIABLE && range_from > 0 {
                return Ok(response);
            }
            return Err(self.failure(&url, &response, repository, what));
        }
        Err(network(
            &url,
            format!("more than {MAX_REDIRECTS} redirects"),
        ))
    }

    /// Does something until it succeeds, fails for good, or has failed too often.
    pub(super) async fn with_retries<T>(
        &self,
        listener: Listener<'_>,
        url: &str,
        mut work: impl AsyncFnMut() -> Result<T, Failure>,
    ) -> Result<T, LocateError> {
        let mut num_failures = 0;
        loop {
            match work().await {
                Ok(value) => return Ok(value),
                Err(failure) => {
                    self.pause(failure, &mut num_failures, url, listener)
                        .await?;
                }
            }
        }
    }

    /// Waits after a failure that may pass.
    ///
    /// # Errors
    /// The failure itself, if it is final or one too many.
    pub(super) async fn pause(
        &self,
        failure: Failure,
        num_failures: &mut u32,
        url: &str,
        listener: Listener<'_>,
    ) -> Result<(), LocateError> {
        let (pause, reason) = match failure {
            Failure::Final(error) => return Err(error),
            Failure::Passing { pause, reason } => (pause, reason),
        };
        *num_failures += 1;
        let pause = pause.unwrap_or(self.first_pause * 2_u32.pow(*num_failures - 1));
        if *num_failures >= MAX_TRIES || pause > MAX_PAUSE {
            let reason = if pause > MAX_PAUSE {
                format!("{reason}, and asks to come back in {} s", pause.as_secs())
            } else {
                format!("{reason}, {num_failures} times")
            };
            return Err(LocateError::Network {
                url: plain_url(url),
                reason,
            });
        }
        listener(LocateEvent::Retrying {
            pause,
            reason: &reason,
        });
        tokio::time::sleep(pause).await;
        Ok(())
    }

    /// Reads a JSON document.
    pub(super) async fn document(
        &self,
        url: &str,
        names: (&str, &str),
    ) -> Result<serde_json::Value, Failure> {
        let never = |_: &Response| false;
        let mut response = self.send(Method::GET, url, 0, never, names).await?;
        let mut text = Vec::new();
        while let Some(part) = response.chunk().await.map_err(|error| passing(&error))? {
            text.extend_from_slice(&part);
            if text.len() > MAX_DOCUMENT_BYTES {
                let reason = format!("more than {MAX_DOCUMENT_BYTES} bytes of JSON");
                return Err(network(response.url(), reason));
            }
        }
        serde_json::from_slice(&text)
            .map_err(|error| network(response.url(), format!("no JSON: {error}")))
    }

    /// What an answer of 400 or more means.
    fn failure(&self, url: &Url, response: &Response, repository: &str, what: &str) -> Failure {
        let status = response.status();
        let text = |name: &str| {
            response
                .headers()
                .get(name)
                .and_then(|value| value.to_str().ok())
        };
        let code = text("x-error-code").unwrap_or_default();
        let has_token = self.has_token();
        let endpoint = self.endpoint.clone();
        let not_found = |what: &str| {
            Failure::Final(LocateError::NotFound {
                what: what.to_owned(),
                endpoint: endpoint.clone(),
                has_token,
            })
        };
        match (status.as_u16(), code) {
            (_, "RepoNotFound") => not_found(repository),
            (401 | 403, _) | (_, "GatedRepo") => Failure::Final(LocateError::Forbidden {
                repository: repository.to_owned(),
                endpoint,
                has_token,
            }),
            (404, _) => not_found(what),
            (408 | 425 | 429 | 500..=599, _) => Failure::Passing {
                pause: text(RETRY_AFTER.as_str())
                    .and_then(|text| text.trim().parse().ok())
                    .map(Duration::from_secs),
                reason: format!("answers {status}"),
            },
            _ => network(url, format!("answers {status}")),
        }
    }
}

fn read_url(text: &str) -> Result<Url, Failure> {
    let url = Url::parse(text).ok();
    let is_http = |url: &Url| ["http", "https"].contains(&url.scheme());
    url.filter(is_http).ok_or_else(|| {
        Failure::Final(LocateError::Network {
            url: text.to_owned(),
            reason: "no http:// or https:// address".to_owned(),
        })
    })
}

fn network(url: &Url, reason: String) -> Failure {
    Failure::Final(LocateError::Network {
        url: plain_url(url.as_str()),
        reason,
    })
}

/// Where a redirect leads to.
fn next_url(url: &Url, response: &Response) -> Result<Url, String> {
    let location = response.headers().get(LOCATION);
    let location = location.and_then(|value| value.to_str().ok());
    let next = location.and_then(|location| url.join(location).ok());
    match next {
        Some(next) if url.scheme() == "https" && next.scheme() != "https" => {
            Err("redirects from https to http".to_owned())
        }
        Some(next) if ["http", "https"].contains(&next.scheme()) => Ok(next),
        _ => Err("redirects to nowhere".to_owned()),
    }
}

/// A connection that failed or broke.
pub(super) fn passing(error: &reqwest::Error) -> Failure {
    Failure::Passing {
        pause: None,
        reason: reason(error),
    }
}

/// The innermost cause, which says most.
fn reason(error: &reqwest::Error) -> String {
    let what = match error {
        error if error.is_timeout() && error.is_connect() => return "no connection in time".into(),
        error if error.is_timeout() => return "nothing comes any more".into(),
        error if error.is_connect() => "cannot connect",
        error if error.is_body() || error.is_decode() => "the connection broke",
        _ => "the request failed",
    };
    let mut cause = error.source();
    while let Some(inner) = cause.and_then(std::error::Error::source) {
        cause = Some(inner);
    }
    cause.map_or_else(|| what.to_owned(), |cause| format!("{what}: {cause}"))
}

/// An address without query, which may be a signature, and without a password.
pub(super) fn plain_url(url: &str) -> String {
    let Ok(mut url) = Url::parse(url) else {
        return url.to_owned();
    };
    url.set_query(None);
    // Addresses that cannot have them have none.
    url.set_password(None).ok();
    url.set_username("").ok();
    url.into()
}
