//! Which stored encoding of a file a client wants.
//!
//! Source: RFC 9110 §12.5.3. Without `Accept-Encoding`, and where nothing
//! stored is acceptable, the file itself is sent.

use http::HeaderValue;

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

    fn named(coding: &str) -> Option<Self> {
        let known = [
            ("br", Self::Brotli),
            ("zstd", Self::Zstd),
            ("gzip", Self::Gzip),
            ("x-gzip", Self::Gzip),
            ("identity", Self::Identity),
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
    for value in accepted {
        let Ok(text) = value.to_str() else { continue };
        for element in text.split(',') {
            let mut parts = element.split(';');
            let coding = parts.next().unwrap_or_default().trim();
            let Some(weight) = weight(parts) else {
                continue;
            };
            is_empty &= coding.is_empty();
            if coding == "*" {
                others = Some(weight);
            } else if let Some(encoding) = Encoding::named(coding) {
                weights[encoding as usize] = Some(weight);
            }
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

/// Twice the thousandths of `q`, 2000 when there is none; `None` when broken.
fn weight<'a>(parameters: impl Iterator<Item = &'a str>) -> Option<u16> {
    let mut found = 2000;
    for parameter in parameters {
        let (name, value) = parameter.split_once('=')?;
        if name.trim().eq_ignore_ascii_case("q") {
            found = 2 * thousandths(value.trim())?;
        }
    }
    Some(found)
}

/// A `qvalue` of RFC 9110 §12.4.2.
fn thousandths(text: &str) -> Option<u16> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if !matches!(whole, "0" | "1")
        || fraction.len() > 3
        || !fraction.bytes().all(|byte| byte.is_ascii_digit())
    {
        return None;
    }
    let fraction: u16 = format!("{fraction:0<3}").parse().ok()?;
    let value = if whole == "1" { 1000 } else { 0 } + fraction;
    (value <= 1000).then_some(value)
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
        check(&["br; q = 0.5,gzip;Q=0.500"], all, Brotli);
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

    #[test]
    fn broken_weights_drop_their_element_only() {
        let all = &[Brotli, Gzip];
        for broken in ["2", "1.001", "0.1234", "-1", "", "a", ".5", "+1"] {
            assert_eq!(thousandths(broken), None, "{broken}");
        }
        check(&["br;q=2, gzip;q=0.1"], all, Gzip);
        check(&["br;x, gzip"], all, Gzip);
        assert_eq!(thousandths("0.25"), Some(250));
        assert_eq!(thousandths("1.000"), Some(1000));
    }
}
