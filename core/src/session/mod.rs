//! Sessions in a cookie that only this server can read or make.
//!
//! Guarantee: a cookie that was changed, is older than its maximum age, or is
//! not ours is an empty session, never an error. Nothing is kept on the
//! server, so a session that was copied stays valid until its age is over:
//! what must be revoked at once needs a store.

mod seal;
mod secrets;

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{CACHE_CONTROL, Entry, HeaderMap, HeaderValue, SET_COOKIE};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use self::seal::Key;
use crate::cookie::{cookies, is_valid_name, set_cookie};
use crate::error::{Error, SessionError};
use crate::request::Request;
use crate::response::Response;

/// JSON of a session: sealed and named it fits the 4,096 bytes that browsers
/// keep (RFC 6265bis §5.6).
pub(crate) const MAX_SESSION_BYTES: usize = 2900;
/// Longest cookie name.
const MAX_NAME_BYTES: usize = 64;
/// Shortest secret: the strength of the key made of it.
const MIN_SECRET_BYTES: usize = 32;
/// Secrets in a rotation: the new one and some that run out.
const MAX_SECRETS: usize = 8;
/// Cookies of our name that are tried: a page of a sibling domain may have
/// put its own beside ours.
const MAX_TRIED: usize = 4;
/// How long a session lives after it was set: two weeks, as Django's.
const DEFAULT_MAX_AGE: Duration = Duration::from_hours(14 * 24);
/// Longest lifetime; browsers cap it at 400 days (RFC 6265bis §5.5).
const HIGHEST_MAX_AGE: Duration = Duration::from_hours(400 * 24);

/// What a visitor's cookie holds: names with JSON values.
#[derive(Clone, Default, PartialEq)]
pub struct Session {
    values: Map<String, Value>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Values are the visitor's business and have no place in a log.
        let names: Vec<_> = self.values.keys().collect();
        f.debug_struct("Session").field("names", &names).finish()
    }
}

impl Session {
    /// An empty session.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether it holds nothing: a new visitor, or a cookie that is not valid.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Value of `name`; `None` when it is missing or of another type.
    pub fn get<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        T::deserialize(self.values.get(name)?).ok()
    }

    /// Sets `name`; the session is unchanged after an error.
    ///
    /// # Errors
    /// [`SessionError::TooLarge`] when all values together exceed 2,900 bytes
    /// of JSON; [`SessionError::Value`] when `value` has no JSON form.
    pub fn insert<T: Serialize>(
        &mut self,
        name: impl Into<String>,
        value: T,
    ) -> Result<(), SessionError> {
        let value = serde_json::to_value(value).map_err(|source| SessionError::Value { source })?;
        let mut values = self.values.clone();
        values.insert(name.into(), value);
        *self = Self::within_limit(values)?;
        Ok(())
    }

    /// All values as a JSON object.
    pub fn to_json(&self) -> Vec<u8> {
        to_json(&self.values)
    }

    /// The session of a JSON object.
    ///
    /// # Errors
    /// [`SessionError::TooLarge`] as [`Session::insert`];
    /// [`SessionError::Value`] when it is no object.
    pub fn from_json(object: &[u8]) -> Result<Self, SessionError> {
        let values =
            serde_json::from_slice(object).map_err(|source| SessionError::Value { source })?;
        Self::within_limit(values)
    }

    fn within_limit(values: Map<String, Value>) -> Result<Self, SessionError> {
        let num_bytes = to_json(&values).len();
        if num_bytes > MAX_SESSION_BYTES {
            return Err(SessionError::TooLarge {
                num_bytes,
                limit: MAX_SESSION_BYTES,
            });
        }
        Ok(Self { values })
    }

    /// Removes `name`; whether it was there.
    pub fn remove(&mut self, name: &str) -> bool {
        self.values.remove(name).is_some()
    }
}

/// Opens and seals the sessions of a server.
pub struct Sessions {
    name: Box<str>,
    /// The first one seals, all of them open.
    keys: Vec<Key>,
    max_age: Duration,
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions")
            .field("name", &self.name)
            .field("max_age", &self.max_age)
            .finish_non_exhaustive()
    }
}

impl Sessions {
    /// Sessions in the cookie `session`, valid for two weeks after they are
    /// set; the first secret seals, all of them open.
    ///
    /// To change a secret, put the new one in front of the old one, and take
    /// the old one away once the maximum age has passed.
    ///
    /// # Errors
    /// [`Error::Config`] for no or more than 8 secrets, and for one shorter
    /// than 32 bytes.
    pub fn new<S: AsRef<[u8]>>(secrets: &[S]) -> Result<Self, Error> {
        let invalid = |reason: String| {
            Err(Error::Config {
                key: "server.session.secret_file",
                reason,
            })
        };
        if secrets.is_empty() || secrets.len() > MAX_SECRETS {
            let found = secrets.len();
            return invalid(format!(
                "expected 1 to {MAX_SECRETS} secrets, found {found}"
            ));
        }
        for (index, secret) in secrets.iter().enumerate() {
            let found = secret.as_ref().len();
            if found < MIN_SECRET_BYTES {
                return invalid(format!(
                    "secret {} has {found} bytes, at least {MIN_SECRET_BYTES} are needed",
                    index + 1
                ));
            }
        }
        Ok(Self {
            name: "session".into(),
            keys: secrets
                .iter()
                .map(|secret| Key::of(secret.as_ref()))
                .collect(),
            max_age: DEFAULT_MAX_AGE,
        })
    }

    /// Names the cookie; another name makes all sealed sessions invalid.
    ///
    /// # Errors
    /// [`Error::Config`] when it is no token of at most 64 bytes.
    pub fn cookie_name(mut self, name: &str) -> Result<Self, Error> {
        if !is_valid_name(name) || name.len() > MAX_NAME_BYTES {
            return Err(Error::Config {
                key: "server.session.cookie",
                reason: format!("{name:?} is not a cookie name of at most {MAX_NAME_BYTES} bytes"),
            });
        }
        self.name = name.into();
        Ok(self)
    }

    /// How long a session lives after it was set, in whole seconds.
    ///
    /// # Errors
    /// [`Error::Config`] for less than a second or more than 400 days.
    pub fn max_age(mut self, max_age: Duration) -> Result<Self, Error> {
        if !(Duration::from_secs(1)..=HIGHEST_MAX_AGE).contains(&max_age) {
            return Err(Error::Config {
                key: "server.session.max_age",
                reason: "expected a second to 400 days".to_owned(),
            });
        }
        self.max_age = max_age;
        Ok(self)
    }

    /// Gives the request the session of its cookie.
    pub(crate) fn open_into(&self, request: &mut Request) {
        if let Some(session) = self.open(request.headers(), SystemTime::now()) {
            request.extensions_mut().insert(session);
        }
    }

    /// Sets or clears the cookie, where the handler has asked for it.
    pub(crate) fn apply(&self, response: &mut Response, is_secure: bool) {
        let Some(change) = response.extensions_mut().remove::<Change>() else {
            return;
        };
        let cookie = match change {
            Change::Set(session) => self.seal(&session, SystemTime::now(), is_secure),
            Change::Clear => set_cookie(&self.name, "", Duration::ZERO, is_secure),
        };
        let headers = response.headers_mut();
        headers.append(SET_COOKIE, cookie);
        if let Entry::Vacant(entry) = headers.entry(CACHE_CONTROL) {
            // A shared cache would hand one visitor's session to the next.
            entry.insert(HeaderValue::from_static("no-store"));
        }
    }

    fn seal(&self, session: &Session, now: SystemTime, is_secure: bool) -> HeaderValue {
        let expires = seconds(now) + self.max_age.as_secs();
        let sealed = self.keys[0].seal(&self.name, expires, &to_json(&session.values));
        set_cookie(&self.name, &sealed, self.max_age, is_secure)
    }

    fn open(&self, headers: &HeaderMap, now: SystemTime) -> Option<Session> {
        cookies(headers)
            .filter(|(name, _)| *name == &*self.name)
            .take(MAX_TRIED)
            .find_map(|(name, sealed)| {
                let mut opened = self.keys.iter().filter_map(|key| key.open(name, sealed));
                let (expires, json) = opened.next()?;
                let values = serde_json::from_slice(&json).ok()?;
                (seconds(now) < expires).then_some(Session { values })
            })
    }
}

/// What a handler wants done to its visitor's cookie.
#[derive(Debug, Clone)]
enum Change {
    Set(Session),
    Clear,
}

impl Request {
    /// The session of this visitor; empty for a new one and for a cookie that
    /// is not valid.
    pub fn session(&self) -> Session {
        self.extensions().get().cloned().unwrap_or_default()
    }
}

impl Response {
    /// Gives the visitor this session, valid for the maximum age from now.
    ///
    /// No effect where the server has no [`Sessions`].
    #[must_use]
    pub fn with_session(mut self, session: Session) -> Self {
        self.extensions_mut().insert(Change::Set(session));
        self
    }

    /// Takes the visitor's session away.
    #[must_use]
    pub fn without_session(mut self) -> Self {
        self.extensions_mut().insert(Change::Clear);
        self
    }
}

fn to_json(values: &Map<String, Value>) -> Vec<u8> {
    serde_json::to_vec(values).expect("JSON values always serialise")
}

/// Whole seconds since 1970; a clock before that counts as 1970.
fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

#[cfg(test)]
mod tests;
