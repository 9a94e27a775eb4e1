//! Which stored encoding of a file a client wants.
//!
//! Source: RFC 9110 §12.5.3. Without `Accept-Encoding`, and where nothing
//! stored is acceptable, the file itself is sent.

use http::HeaderValue;

use crate::compression::members;

/// How a stored representation is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    /// As it is.
    Identity,
    /// RFC 7932.
    Brotli,
    /// RFC 8878.
    Zstd,
    /// RFC 1952.
    Gzip,
}

impl Encoding {
    /// Every encoding, in the order of our preference among equals.
    pub(super) const ALL: [Self; 4] = [Self::Brotli, Self::Zstd, Self::Gzip, Self::Identity];

    /// Those besides the file itself.
    pub(super) const ENCODED: [Self; 3] = [Self::Brotli, Self::Zstd, Self::Gzip];

    /// What its file adds to the name of the file itself.
    pub(super) const fn suffix(self) -> &'static str {
        match self {
            Self::Identity => "",
            Self::Brotli => ".br",
            Self::Zstd => ".zst",
            Self::Gzip => ".gz",
        }
    }

    /// Value of `Content-Encoding`.
    pub(super) const fn header(self) -> Option<HeaderValue> {
        match self {
            Self::Identity => None,
            Self::Brotli => Some(HeaderValue::from_static("br")),
            Self::Zstd => Some(HeaderValue::from_static("zstd")),
            Self::Gzip => Some(HeaderValue::from_static("gzip")),
        }
    }

    fn named(coding: &[u8]) -> Option<Self> {
        let known: [(&[u8], _); 5] = [
            (b"br", Self::Brotli),
            (b"zstd", Self::Zstd),
            (b"gzip", Self::Gzip),
            (b"x-gzip", Self::Gzip),
            (b"identity", Self::Identity),
        ];
        known
            .into_iter()
            .find_map(|(name, encoding)| coding.eq_ignore_ascii_case(name).then_some(encoding))
    }
}

/// The encoding to send, of those that are `stored`.
pub(super) fn choose<'a>(
    accepted: impl Iterator<Item = &'a HeaderValue>,
    stored: impl Fn(Encoding) -> bool,
) -> Encoding {
    let mut weights = [None; Encoding::ALL.len()];
    let mut others = None;
    let mut is_empty = true;
    for (name, weight) in accepted.flat_map(members) {
        is_empty = false;
        // Doubled, so that there is room behind the least that is asked for.
        let weight = Some(2 * weight);
        if name == b"*" {
            others = weight;
        } else if let Some(encoding) = Encoding::named(name) {
            weights[encoding as usize] = weight;
        }
    }
    if is_empty {
        return Encoding::Identity;
    }
    let weight = |encoding: Encoding| match weights[encoding as usize].or(others) {
        Some(weight) => weight,
        // Acceptable unless excluded, and behind all that were asked for.
        None if encoding == Encoding::Identity => 1,
        None => 0,
    };
    Encoding::ALL
        .into_iter()
        .filter(|encoding| stored(*encoding) && weight(*encoding) > 0)
        // The last of the greatest wins, so the favourite comes last.
        .rev()
        .max_by_key(|encoding| weight(*encoding))
        .unwrap_or(Encoding::Identity)
}

#[cfg(test)]
mod tests {
    use super::Encoding::{Brotli, Gzip, Identity, Zstd};
    use super::*;

    #[track_caller]
    fn check(accepted: &[&'static str], stored: &[Encoding], expected: Encoding) {
        let values: Vec<_> = accepted
            .iter()
            .map(|text| HeaderValue::from_static(text))
            .collect();
        let stored = |encoding| encoding == Identity || stored.contains(&encoding);
        assert_eq!(choose(values.iter(), stored), expected, "{accepted:?}");
    }

    #[test]
    fn weights_decide_and_preference_breaks_ties() {
        let all = &[Brotli, Zstd, Gzip];
        check(&[], all, Identity);
        check(&[""], all, Identity);
        check(&["gzip, deflate, br, zstd"], all, Brotli);
        check(&["gzip, zstd"], all, Zstd);
        check(&["gzip"], all, Gzip);
        check(&["X-GZIP"], all, Gzip);
        check(&["br;q=0.5, gzip;q=0.8"], all, Gzip);
        check(&["br; q=0.5,gzip;Q=0.500"], all, Brotli);
        check(&["gzip", "br"], all, Brotli);
        check(&["gzip;q=0.001"], all, Gzip);
        check(&["*"], all, Brotli);
        check(&["*, br;q=0"], all, Zstd);
    }

    #[test]
    fn identity_is_last_unless_it_is_asked_for() {
        let all = &[Brotli, Zstd, Gzip];
        check(&["identity, br;q=0.5"], all, Identity);
        check(&["identity;q=0.5, br;q=0.5"], all, Brotli);
        check(&["identity;q=0, gzip;q=0.1"], all, Gzip);
        check(&["br;q=0, zstd;q=0, gzip;q=0"], all, Identity);
        check(&["deflate"], all, Identity);
        check(&["*;q=0"], all, Identity);
    }

    #[test]
    fn what_is_not_stored_is_not_chosen() {
        check(&["br, gzip;q=0.1"], &[Gzip], Gzip);
        check(&["br, zstd"], &[Gzip], Identity);
        check(&["identity;q=0"], &[], Identity);
    }
}
