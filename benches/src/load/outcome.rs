//! Outcome classes: how an attempt ended, exactly one class per attempt.

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

/// How one attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The response is 2xx or 3xx, or has the status that was asked for.
    Ok,
    /// The response is 4xx and no status was asked for.
    Http4xx,
    /// The response is 5xx and no status was asked for.
    Http5xx,
    /// The response has an accepted status and another body than expected.
    BodyMismatch,
    /// The response has another status than the one asked for.
    StatusMismatch,
    /// Nothing accepts connections at the address.
    ConnectRefused,
    /// The connection, with its TLS handshake, was not ready in time.
    ConnectTimeout,
    /// A name has no address: one that a redirect or a proxy brought up.
    DnsError,
    /// The TLS handshake or a TLS record failed.
    TlsError,
    /// The peer reset the connection.
    Reset,
    /// The stream ended before the response did.
    EofEarly,
    /// The response is not valid HTTP/1.1.
    ParseError,
    /// The response did not end in time.
    RequestTimeout,
    /// Bytes arrived that belong to no response.
    ExtraBytes,
    /// The server did not do what the exchange needs first: switch to a
    /// WebSocket, open an event stream, take an event to send on.
    ExchangeRefused,
    /// The request was in flight when the run stopped.
    AbortedAtDeadline,
    /// The request was not sent: the run stopped first, or this machine could
    /// not open a socket.
    NotSent,
}

impl Outcome {
    /// Every class, in the order of reports.
    pub const ALL: [Self; 17] = [
        Self::Ok,
        Self::Http4xx,
        Self::Http5xx,
        Self::BodyMismatch,
        Self::StatusMismatch,
        Self::ConnectRefused,
        Self::ConnectTimeout,
        Self::DnsError,
        Self::TlsError,
        Self::Reset,
        Self::EofEarly,
        Self::ParseError,
        Self::RequestTimeout,
        Self::ExtraBytes,
        Self::ExchangeRefused,
        Self::AbortedAtDeadline,
        Self::NotSent,
    ];

    /// Name in reports and records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Http4xx => "http_4xx",
            Self::Http5xx => "http_5xx",
            Self::BodyMismatch => "body_mismatch",
            Self::StatusMismatch => "status_mismatch",
            Self::ConnectRefused => "connect_refused",
            Self::ConnectTimeout => "connect_timeout",
            Self::DnsError => "dns_error",
            Self::TlsError => "tls_error",
            Self::Reset => "reset",
            Self::EofEarly => "eof_early",
            Self::ParseError => "parse_error",
            Self::RequestTimeout => "request_timeout",
            Self::ExtraBytes => "extra_bytes",
            Self::ExchangeRefused => "exchange_refused",
            Self::AbortedAtDeadline => "aborted_at_deadline",
            Self::NotSent => "not_sent",
        }
    }

    /// Whether a whole response was received, so that a latency exists.
    pub const fn is_response(self) -> bool {
        matches!(
            self,
            Self::Ok | Self::Http4xx | Self::Http5xx | Self::BodyMismatch | Self::StatusMismatch
        )
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Number of attempts in each class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OutcomeCounts([u64; Outcome::ALL.len()]);

impl OutcomeCounts {
    /// Number of attempts in `outcome`.
    pub const fn get(&self, outcome: Outcome) -> u64 {
        self.0[outcome as usize]
    }

    /// Sum over all classes.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Number of attempts with a whole response.
    pub fn responses(&self) -> u64 {
        self.iter()
            .filter(|(outcome, _)| outcome.is_response())
            .map(|(_, count)| count)
            .sum()
    }

    /// Classes with their counts, in the order of [`Outcome::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (Outcome, u64)> + '_ {
        Outcome::ALL
            .iter()
            .map(|outcome| (*outcome, self.get(*outcome)))
    }

    pub(super) const fn count(&mut self, outcome: Outcome) {
        self.add(outcome, 1);
    }

    pub(super) const fn add(&mut self, outcome: Outcome, count: u64) {
        self.0[outcome as usize] += count;
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (sum, count) in self.0.iter_mut().zip(other.0) {
            *sum += count;
        }
    }
}

impl Serialize for OutcomeCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(Outcome::ALL.len()))?;
        for (outcome, count) in self.iter() {
            map.serialize_entry(outcome.name(), &count)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_in_the_order_of_the_discriminants() {
        for (index, outcome) in Outcome::ALL.iter().enumerate() {
            assert_eq!(*outcome as usize, index, "{outcome}");
        }
    }
}
