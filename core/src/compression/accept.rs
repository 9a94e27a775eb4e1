//! `Accept-Encoding` (RFC 9110 §12.5.3): which coding an answer may have.
//!
//! Guarantee: a member that breaks the grammar counts as absent, so it can
//! neither force a coding on its sender nor forbid one.

use http::header::{ACCEPT_ENCODING, HeaderMap, HeaderValue};

use super::Coding;

/// Weight of a member in thousandths.
pub(crate) type Weight = u16;

/// Weight of a member without one.
const FULL: Weight = 1000;

/// What one request accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Accepted {
    /// The coding it likes best of ours; `None` to leave the body as it is.
    pub(super) coding: Option<Coding>,
    /// Whether it refuses a body without coding.
    pub(super) refuses_identity: bool,
}

impl Accepted {
    /// The coding it likes best of ours; `None` to leave the body as it is.
    pub(crate) const fn coding(self) -> Option<Coding> {
        self.coding
    }

    /// Reads all `Accept-Encoding` lines of a request.
    ///
    /// Equal weights are settled by the order of [`Coding::ALL`]. A body
    /// without coding wins only when it is named with a higher weight.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut weights = [None::<Weight>; Coding::ALL.len()];
        let mut identity = None;
        let mut others = None;
        for value in headers.get_all(ACCEPT_ENCODING) {
            for (name, weight) in members(value) {
                if name == b"*" {
                    others = Some(weight);
                } else if name.eq_ignore_ascii_case(b"identity") {
                    identity = Some(weight);
                } else if let Some(coding) = Coding::named(name) {
                    weights[coding as usize] = Some(weight);
                }
            }
        }
        let mut best = None;
        for coding in Coding::ALL {
            let weight = weights[coding as usize].or(others).unwrap_or(0);
            if weight > best.map_or(0, |(_, weight)| weight) {
                best = Some((coding, weight));
            }
        }
        Self {
            coding: best
                .filter(|(_, weight)| identity.is_none_or(|identity| identity <= *weight))
                .map(|(coding, _)| coding),
            refuses_identity: identity.or(others.filter(|weight| *weight == 0)) == Some(0),
        }
    }
}

/// The well-formed members of one line: coding and weight.
pub(crate) fn members(line: &HeaderValue) -> impl Iterator<Item = (&[u8], Weight)> {
    let members = line.as_bytes().split(|byte| *byte == b',');
    members.filter_map(parse_member)
}

/// Name and weight; `None` for an empty or malformed member.
fn parse_member(member: &[u8]) -> Option<(&[u8], Weight)> {
    let Some(at) = memchr::memchr(b';', member) else {
        let name = member.trim_ascii();
        return (!name.is_empty()).then_some((name, FULL));
    };
    let name = member[..at].trim_ascii();
    let [b'q' | b'Q', b'=', value @ ..] = member[at + 1..].trim_ascii() else {
        return None;
    };
    let weight = parse_weight(value)?;
    (!name.is_empty()).then_some((name, weight))
}

/// RFC 9110 §12.4.2: 0 to 1 with at most three decimals.
fn parse_weight(value: &[u8]) -> Option<Weight> {
    let (whole, decimals) = match value {
        [whole] => (whole, &[][..]),
        [whole, b'.', decimals @ ..] if decimals.len() <= 3 => (whole, decimals),
        _ => return None,
    };
    let mut weight = match whole {
        b'0' => 0,
        b'1' => FULL,
        _ => return None,
    };
    let mut place = 100;
    for digit in decimals {
        if !digit.is_ascii_digit() {
            return None;
        }
        weight += Weight::from(digit - b'0') * place;
        place /= 10;
    }
    (weight <= FULL).then_some(weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(lines: &[&'static str]) -> Accepted {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(ACCEPT_ENCODING, HeaderValue::from_static(line));
        }
        Accepted::of(&headers)
    }

    #[track_caller]
    fn check(line: &'static str, coding: Option<&str>) {
        let found = accepted(&[line]).coding.map(Coding::token);
        assert_eq!(found, coding, "{line:?}");
    }

    #[test]
    fn the_highest_weight_wins_and_ties_go_to_our_order() {
        check("gzip", Some("gzip"));
        check("x-gzip", Some("gzip"));
        check("GZIP", Some("gzip"));
        check("br", Some("br"));
        check("zstd", Some("zstd"));
        check("gzip, deflate, br, zstd", Some("zstd"));
        check("gzip, deflate, br", Some("br"));
        check("gzip;q=1.0, br;q=0.9, zstd;q=0.8", Some("gzip"));
        check("gzip;q=0.001", Some("gzip"));
        check("gzip;q=0.5, br;q=0.501", Some("br"));
        check("gzip ; q=0.5 , br ; Q=1.000", Some("br"));
        check("*", Some("zstd"));
        check("zstd;q=0, *", Some("br"));
        check("gzip, *;q=0.5", Some("gzip"));
    }

    #[test]
    fn what_is_not_accepted_is_not_sent() {
        check("", None);
        check("deflate", None);
        check("compress, deflate", None);
        check("gzip;q=0", None);
        check("gzip;q=0.000", None);
        check("*;q=0", None);
        check("identity", None);
        check("br;q=0, zstd;q=0, gzip;q=0, *", None);
        assert_eq!(accepted(&[]).coding, None);
    }

    #[test]
    fn identity_wins_only_with_a_higher_weight() {
        check("identity, gzip", Some("gzip"));
        check("identity;q=1, gzip;q=0.5", None);
        check("identity;q=0.5, gzip;q=0.6", Some("gzip"));
        check("identity;q=0, gzip;q=0.1", Some("gzip"));
        check("identity, *;q=0", None);
    }

    #[test]
    fn malformed_members_are_absent() {
        for line in [
            "gzip;q=2",
            "gzip;q=1.001",
            "gzip;q=0.1234",
            "gzip;q=.5",
            "gzip;q=",
            "gzip;q",
            "gzip;level=9",
            "gzip;q=-1",
            "gzip;q=0,5x;",
            "gzip;q=1;q=1",
            ";q=1",
            ",,,",
        ] {
            check(line, None);
        }
        check("gzip;q=9, br", Some("br"));
        check("identity;q=9, gzip;q=0.1", Some("gzip"));
    }

    #[test]
    fn several_lines_are_one_list() {
        let all = accepted(&["gzip;q=0.5", "br;q=0.7, zstd;q=0.1"]);
        assert_eq!(all.coding, Some(Coding::Brotli));
    }

    #[test]
    fn identity_is_refused_by_name_or_by_the_star() {
        for (line, refused) in [
            ("identity;q=0", true),
            ("*;q=0", true),
            ("gzip, *;q=0", true),
            ("identity, *;q=0", false),
            ("identity;q=0.001, *;q=0", false),
            ("*", false),
            ("gzip", false),
        ] {
            assert_eq!(accepted(&[line]).refuses_identity, refused, "{line}");
        }
    }
}
