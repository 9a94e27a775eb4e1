//! `Accept-Encoding`: the coding that is chosen is one that the client accepts.

use http::header::{ACCEPT_ENCODING, HeaderMap, HeaderValue};

use super::{Accepted, Coding};

/// Lines of input are lines of the header.
pub(crate) fn check(bytes: &[u8]) {
    let mut headers = HeaderMap::new();
    let mut members = Vec::new();
    for line in bytes.split(|byte| *byte == b'\n').take(50) {
        if let Ok(value) = HeaderValue::from_bytes(line) {
            headers.append(ACCEPT_ENCODING, value);
            members.extend(line.split(|byte| *byte == b',').filter_map(read));
        }
    }
    let accepted = Accepted::of(&headers);
    // The last member of a name counts.
    let weight = |names: &[&str]| {
        let mut named = members.iter().rev();
        named.find_map(|(name, weight)| names.contains(&&name[..]).then_some(*weight))
    };
    let others = weight(&["*"]);
    let identity = weight(&["identity"]);
    let of = |coding: Coding| {
        let named = match coding {
            Coding::Gzip => weight(&["gzip", "x-gzip"]),
            Coding::Brotli => weight(&["br"]),
            Coding::Zstd => weight(&["zstd"]),
        };
        named.or(others).unwrap_or(0)
    };
    let best = Coding::ALL.into_iter().map(of).max().unwrap_or(0);
    match accepted.coding {
        Some(coding) => {
            assert!(of(coding) > 0, "the client accepts it");
            assert_eq!(of(coding), best, "and likes none of ours better");
            assert!(identity.is_none_or(|identity| identity <= best));
        }
        None => assert!(best == 0 || identity.is_some_and(|identity| identity > best)),
    }
    let refuses = identity.or(others.filter(|weight| *weight == 0)) == Some(0);
    assert_eq!(accepted.refuses_identity, refuses);
}

/// Name in lower case, and weight in thousandths, of a member that is valid.
fn read(member: &[u8]) -> Option<(String, u32)> {
    let mut parts = member.split(|byte| *byte == b';');
    // Bytes that are no text stand for themselves: no name of ours has any.
    let name = String::from_utf8_lossy(parts.next()?.trim_ascii()).to_ascii_lowercase();
    if name.is_empty() {
        return None;
    }
    let Some(parameter) = parts.next() else {
        return Some((name, 1000));
    };
    let parameter = std::str::from_utf8(parameter.trim_ascii()).ok()?;
    let weight = parameter
        .strip_prefix("q=")
        .or(parameter.strip_prefix("Q="))?;
    let is_form = weight.len() <= 5
        && weight.starts_with(['0', '1'])
        && weight[1..].starts_with('.') | (weight.len() == 1)
        && weight.chars().skip(2).all(|digit| digit.is_ascii_digit());
    if !is_form || parts.next().is_some() {
        return None;
    }
    let weight = (weight.parse::<f64>().ok()? * 1000.0).round() as u32;
    (weight <= 1000).then_some((name, weight))
}
