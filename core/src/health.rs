//! What the server answers on `/health`, `/live` and `/ready`.
//!
//! Guarantee: the state only moves forward,
//! `starting → ready → draining` (or `starting → draining`), and an answer is
//! made of static bytes. The three follow Kubernetes' probes: restart me when
//! not live, send me traffic when ready.

use std::sync::atomic::{AtomicU8, Ordering};

use http::StatusCode;
use http::header::{CACHE_CONTROL, HeaderValue};

use crate::response::{JSON, Response};

const STARTING: u8 = 0;
const READY: u8 = 1;
const DRAINING: u8 = 2;

const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Where a server is in its life; shared by all lanes.
#[derive(Debug, Default)]
pub struct HealthState(AtomicU8);

/// One of the health routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// `/health`: 503 while draining, for load balancers.
    Health,
    /// `/live`: always 200; no answer at all means dead.
    Live,
    /// `/ready`: 503 while starting or draining.
    Ready,
}

impl Probe {
    /// Every probe.
    pub const ALL: [Self; 3] = [Self::Health, Self::Live, Self::Ready];

    /// Path of its route.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Health => "/health",
            Self::Live => "/live",
            Self::Ready => "/ready",
        }
    }
}

impl HealthState {
    /// A server that is starting.
    pub const fn new() -> Self {
        Self(AtomicU8::new(STARTING))
    }

    /// Says that requests can be served; no effect once draining.
    pub fn set_ready(&self) {
        self.0.fetch_max(READY, Ordering::Relaxed);
    }

    /// Says that the server finishes what it has and then stops.
    pub fn set_draining(&self) {
        self.0.fetch_max(DRAINING, Ordering::Relaxed);
    }

    /// Whether [`Self::set_draining`] was called.
    pub fn is_draining(&self) -> bool {
        self.0.load(Ordering::Relaxed) == DRAINING
    }

    /// Answers one health request, as JSON with the member `status`.
    pub fn answer(&self, probe: Probe) -> Response {
        let state = self.0.load(Ordering::Relaxed);
        let (status, body) = match (probe, state) {
            (Probe::Ready, STARTING) => {
                (StatusCode::SERVICE_UNAVAILABLE, r#"{"status":"starting"}"#)
            }
            (Probe::Ready | Probe::Health, DRAINING) => {
                (StatusCode::SERVICE_UNAVAILABLE, r#"{"status":"draining"}"#)
            }
            _ => (StatusCode::OK, r#"{"status":"ok"}"#),
        };
        Response::with_content(JSON, body.into())
            .with_status(status)
            .with_header(CACHE_CONTROL, NO_STORE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(state: &HealthState, expected: [u16; 3]) {
        let found = Probe::ALL.map(|probe| state.answer(probe).status().as_u16());
        assert_eq!(found, expected);
    }

    #[test]
    fn each_state_answers_each_probe() {
        let state = HealthState::new();
        check(&state, [200, 200, 503]);
        state.set_ready();
        check(&state, [200, 200, 200]);
        assert!(!state.is_draining());
        state.set_draining();
        check(&state, [503, 200, 503]);
        assert!(state.is_draining());
    }

    #[test]
    fn a_draining_server_never_becomes_ready_again() {
        let state = HealthState::new();
        state.set_draining();
        state.set_ready();
        check(&state, [503, 200, 503]);
    }

    #[test]
    fn answers_are_json_and_not_cached() {
        let response = HealthState::new().answer(Probe::Ready);
        assert_eq!(response.headers()["content-type"], "application/json");
        assert_eq!(response.headers()["cache-control"], "no-store");
    }
}
