//! Who the client is behind proxies: `Forwarded` (RFC 7239) or `X-Forwarded-*`.
//!
//! Guarantee: only what a listed proxy wrote is believed. The header is read
//! from its right end, hop by hop, as long as the hops are listed; the first
//! one that is not is the client. A malformed or overlong header is ignored as
//! a whole, and the connection's own peer is the client.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use http::header::{FORWARDED, HeaderMap, HeaderName};

use crate::error::Error;
use crate::gate::{is_token_byte, is_valid_host};
use crate::request::Peer;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Bytes of one header that are read: 32 hops of 128 bytes.
const MAX_READ_BYTES: usize = 4 * 1024;
/// Proxies in a row that are believed; real chains have fewer than five.
const MAX_HOPS: usize = 32;
/// Longest IPv6 zone; interface names have at most 15 bytes.
const MAX_ZONE_BYTES: usize = 32;

/// Which header the proxies write; only that one is read.
///
/// A proxy that writes one of the two usually passes the other through as the
/// client sent it, so reading both would believe the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub enum ForwardedHeader {
    /// `X-Forwarded-For`, `-Proto` and `-Host`.
    #[default]
    XForwarded,
    /// `Forwarded` with `for`, `proto` and `host` (RFC 7239).
    Forwarded,
}

/// A proxy whose word counts: a network, or whoever uses the Unix socket.
///
/// Parsed from `10.0.0.0/8`, `2001:db8::/32`, a single address, or `unix`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrustedPeer(Trusted);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trusted {
    V4 { network: u32, mask: u32 },
    V6 { network: u128, mask: u128 },
    Unix,
}

impl FromStr for TrustedPeer {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "unix" {
            return Ok(Self(Trusted::Unix));
        }
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address
            .parse()
            .map_err(|_| "expected an IP address, a network such as 10.0.0.0/8, or unix")?;
        let num_bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => num_bits,
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits
                .parse()
                .ok()
                .filter(|prefix| *prefix <= num_bits)
                .ok_or("the prefix is longer than the address")?,
            Some(_) => return Err("the prefix is not a number"),
        };
        let host_bits = "the address has bits set after its prefix";
        match address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
                let network = address.to_bits();
                let entry = Self(Trusted::V4 { network, mask });
                (network & !mask == 0).then_some(entry).ok_or(host_bits)
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - prefix).unwrap_or(0);
                let network = address.to_bits();
                let entry = Self(Trusted::V6 { network, mask });
                (network & !mask == 0).then_some(entry).ok_or(host_bits)
            }
        }
    }
}

impl Trusted {
    /// `address` is canonical: never an IPv4 address in IPv6 form.
    fn contains(self, address: IpAddr) -> bool {
        match (self, address) {
            (Self::V4 { network, mask }, IpAddr::V4(address)) => {
                address.to_bits() & mask == network
            }
            (Self::V6 { network, mask }, IpAddr::V6(address)) => {
                address.to_bits() & mask == network
            }
            _ => false,
        }
    }
}

/// Takes client, scheme and host from listed proxies.
#[derive(Debug, Clone)]
pub struct Forwarded {
    trusted: Vec<Trusted>,
    header: ForwardedHeader,
}

/// What a trusted proxy said; what it did not say is the connection's.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    pub(super) client: Option<IpAddr>,
    pub(super) is_https: Option<bool>,
    pub(super) host: Option<Box<str>>,
}

impl Forwarded {
    /// Believes `trusted` about what they write into `header`.
    ///
    /// # Errors
    /// [`Error::Config`] for an empty list, which would believe nobody.
    pub fn new(trusted: &[TrustedPeer], header: ForwardedHeader) -> Result<Self, Error> {
        if trusted.is_empty() {
            return Err(Error::Config {
                key: "server.trusted_proxies",
                reason: "name at least one proxy".to_owned(),
            });
        }
        Ok(Self {
            trusted: trusted.iter().map(|peer| peer.0).collect(),
            header,
        })
    }

    /// What the proxies said of this request; `None` when `peer` is not one of
    /// them or the header is not to be believed.
    pub(crate) fn resolve(&self, headers: &HeaderMap, peer: Peer) -> Option<Source> {
        let peer = match peer {
            Peer::Tcp(address) => {
                let address = address.ip().to_canonical();
                self.trusts(address).then_some(Some(address))?
            }
            Peer::Unix => self.trusted.contains(&Trusted::Unix).then_some(None)?,
            Peer::Memory(_) | Peer::Unknown => return None,
        };
        match self.header {
            ForwardedHeader::XForwarded => self.resolve_x_forwarded(headers, peer),
            ForwardedHeader::Forwarded => self.resolve_forwarded(headers, peer),
        }
    }

    fn resolve_x_forwarded(&self, headers: &HeaderMap, peer: Option<IpAddr>) -> Option<Source> {
        let hops = elements_from_right(headers, &X_FORWARDED_FOR)
            .map(|element| parse_node(element?, Form::XForwarded));
        let (client, num_hops) = self.walk(peer, hops)?;
        // Each proxy of a chain appends to all three or replaces them, so what
        // belongs to the client's hop stands as far from the right as it does.
        let index = num_hops.saturating_sub(1);
        Some(Source {
            client,
            is_https: pick(headers, &X_FORWARDED_PROTO, index).and_then(parse_scheme),
            host: pick(headers, &X_FORWARDED_HOST, index).and_then(parse_host),
        })
    }

    fn resolve_forwarded(&self, headers: &HeaderMap, peer: Option<IpAddr>) -> Option<Source> {
        let mut elements = Vec::new();
        let mut num_bytes = 0;
        for line in headers.get_all(FORWARDED).iter().rev() {
            num_bytes += line.len();
            if num_bytes > MAX_READ_BYTES {
                return None;
            }
            elements.extend(parse_elements(line.to_str().ok()?)?.into_iter().rev());
        }
        let hops = elements.iter().map(|element| match &element.node {
            Some(node) => parse_node(node, Form::Forwarded),
            None => Some(Hop::Unnamed),
        });
        let (client, num_hops) = self.walk(peer, hops)?;
        let chosen = elements.get(num_hops.checked_sub(1)?)?;
        Some(Source {
            client,
            is_https: chosen.proto.as_deref().and_then(parse_scheme),
            host: chosen.host.as_deref().and_then(parse_host),
        })
    }

    /// Follows `hops`, the nearest first, as long as they are trusted.
    ///
    /// Returns the client and how many hops were read. A hop without an
    /// address ends the walk at the proxy that reported it. `None` when a hop
    /// that was read is malformed, or there are too many.
    fn walk(
        &self,
        peer: Option<IpAddr>,
        hops: impl Iterator<Item = Option<Hop>>,
    ) -> Option<(Option<IpAddr>, usize)> {
        let mut client = peer;
        let mut num_hops = 0;
        for hop in hops {
            if num_hops == MAX_HOPS {
                return None;
            }
            num_hops += 1;
            match hop? {
                Hop::Unnamed => break,
                Hop::Address(address) => {
                    client = Some(address);
                    if !self.trusts(address) {
                        break;
                    }
                }
            }
        }
        Some((client, num_hops))
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.trusted.iter().any(|trusted| trusted.contains(address))
    }
}

/// One entry of the chain of proxies.
#[derive(Debug, PartialEq, Eq)]
enum Hop {
    Address(IpAddr),
    /// `unknown`, or a name that only its proxy understands.
    Unnamed,
}

/// Which header an entry stands in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Forwarded,
    XForwarded,
}

/// Elements of a comma-separated header, the last one first; a `None` says
/// that the rest is not text or too long.
fn elements_from_right<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = Option<&'a str>> + use<'a> {
    let mut num_bytes = 0;
    headers
        .get_all(name)
        .iter()
        .rev()
        .flat_map(|line| line.to_str().unwrap_or("\0").rsplit(','))
        .map(move |element| {
            num_bytes += element.len() + 1;
            (num_bytes <= MAX_READ_BYTES).then(|| element.trim_matches([' ', '\t']))
        })
        .filter(|element| *element != Some(""))
}

/// The element `index` places from the right, or the only one there is.
fn pick<'a>(headers: &'a HeaderMap, name: &HeaderName, index: usize) -> Option<&'a str> {
    let mut elements = elements_from_right(headers, name);
    let last = elements.next()??;
    if index == 0 {
        return Some(last);
    }
    match elements.next() {
        None => Some(last),
        Some(second) if index == 1 => second,
        Some(_) => elements.nth(index - 2)?,
    }
}

/// `http` and `https`, and what WebSocket proxies write in their place.
fn parse_scheme(text: &str) -> Option<bool> {
    let is = |scheme| text.eq_ignore_ascii_case(scheme);
    if is("https") || is("wss") {
        Some(true)
    } else if is("http") || is("ws") {
        Some(false)
    } else {
        None
    }
}

fn parse_host(text: &str) -> Option<Box<str>> {
    (!text.is_empty() && is_valid_host(text.as_bytes())).then(|| text.into())
}

/// Reads a node: an address with an optional port, or no address at all.
fn parse_node(text: &str, form: Form) -> Option<Hop> {
    if text.eq_ignore_ascii_case("unknown") || form == Form::Forwarded && is_obfuscated(text) {
        return Some(Hop::Unnamed);
    }
    let (address, port) = if let Some(rest) = text.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        (IpAddr::V6(parse_ipv6(address)?), port)
    } else if let Some((address, port)) = text.split_once(':') {
        if port.contains(':') {
            // RFC 7239 wants brackets; `X-Forwarded-For` mostly has none.
            let address = (form == Form::XForwarded).then(|| parse_ipv6(text))??;
            (IpAddr::V6(address), "")
        } else {
            (IpAddr::V4(address.parse().ok()?), &text[address.len()..])
        }
    } else {
        (IpAddr::V4(text.parse::<Ipv4Addr>().ok()?), "")
    };
    is_port_suffix(port, form).then(|| Hop::Address(address.to_canonical()))
}

/// Reads an address with an optional zone, which says nothing to us.
fn parse_ipv6(text: &str) -> Option<Ipv6Addr> {
    let (address, zone) = match text.split_once('%') {
        Some((address, zone)) => (address, Some(zone)),
        None => (text, None),
    };
    let is_zone = |zone: &str| {
        (1..=MAX_ZONE_BYTES).contains(&zone.len())
            && zone
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    zone.is_none_or(is_zone)
        .then(|| address.parse().ok())
        .flatten()
}

fn is_port_suffix(text: &str, form: Form) -> bool {
    match text.strip_prefix(':') {
        None => text.is_empty(),
        Some(port) if form == Form::Forwarded && is_obfuscated(port) => true,
        Some(port) => {
            (1..=5).contains(&port.len())
                && port.bytes().all(|byte| byte.is_ascii_digit())
                && port.parse::<u16>().is_ok()
        }
    }
}

/// A name that hides an address or port (RFC 7239 §6.3).
fn is_obfuscated(text: &str) -> bool {
    text.strip_prefix('_').is_some_and(|rest| {
        !rest.is_empty()
            && rest
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    })
}

/// The parameters of one `Forwarded` element that we use.
#[derive(Debug, Default)]
struct Element<'a> {
    node: Option<Cow<'a, str>>,
    proto: Option<Cow<'a, str>>,
    host: Option<Cow<'a, str>>,
}

/// Reads a `Forwarded` line, the client's end first; `None` when malformed.
///
/// From the left, because a comma may stand in a quoted string.
fn parse_elements(line: &str) -> Option<Vec<Element<'_>>> {
    let mut elements = Vec::new();
    let mut element = Element::default();
    let mut has_pair = false;
    let mut rest = line;
    loop {
        rest = rest.trim_start_matches([' ', '\t']);
        match rest.as_bytes().first() {
            None | Some(b',') => {
                if has_pair {
                    elements.push(std::mem::take(&mut element));
                    has_pair = false;
                }
                match rest.strip_prefix(',') {
                    Some(after) => rest = after,
                    None => return Some(elements),
                }
            }
            Some(b';') => rest = &rest[1..],
            Some(_) => {
                let (name, after) = take_token(rest)?;
                let (value, after) = take_value(after.strip_prefix('=')?)?;
                let after = after.trim_start_matches([' ', '\t']);
                if !(after.is_empty() || after.starts_with([',', ';'])) {
                    return None;
                }
                let slot = if name.eq_ignore_ascii_case("for") {
                    &mut element.node
                } else if name.eq_ignore_ascii_case("proto") {
                    &mut element.proto
                } else if name.eq_ignore_ascii_case("host") {
                    &mut element.host
                } else {
                    &mut None
                };
                if slot.replace(value).is_some() {
                    return None;
                }
                has_pair = true;
                rest = after;
            }
        }
    }
}

fn take_token(text: &str) -> Option<(&str, &str)> {
    let end = text
        .bytes()
        .position(|byte| !is_token_byte(byte))
        .unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

fn take_value(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let (token, rest) = take_token(text)?;
        return Some((Cow::Borrowed(token), rest));
    };
    let end = quoted.find(['"', '\\'])?;
    if quoted.as_bytes()[end] == b'"' {
        return Some((Cow::Borrowed(&quoted[..end]), &quoted[end + 1..]));
    }
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((Cow::Owned(value), &quoted[at + 1..])),
            '\\' => value.push(characters.next()?.1),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use http::header::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    const TRUSTED: [&str; 4] = ["10.0.0.0/8", "2001:db8::/32", "192.0.2.1", "unix"];

    fn forwarded(header: ForwardedHeader) -> Forwarded {
        let trusted: Vec<_> = TRUSTED.iter().map(|text| text.parse().unwrap()).collect();
        Forwarded::new(&trusted, header).unwrap()
    }

    fn tcp(address: &str) -> Peer {
        Peer::Tcp((address.parse::<IpAddr>().unwrap(), 5000).into())
    }

    fn resolved(
        header: ForwardedHeader,
        peer: Peer,
        lines: &[(&'static str, &str)],
    ) -> Option<(String, Option<bool>, Option<String>)> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        let source = forwarded(header).resolve(&headers, peer)?;
        let client = source
            .client
            .map_or("-".to_owned(), |client| client.to_string());
        Some((client, source.is_https, source.host.map(Into::into)))
    }

    /// The client by `X-Forwarded-For`, for a trusted peer.
    #[track_caller]
    fn check_x(lines: &[&str], expected: Option<&str>) {
        let lines: Vec<_> = lines
            .iter()
            .map(|line| ("x-forwarded-for", *line))
            .collect();
        let found = resolved(ForwardedHeader::XForwarded, tcp("10.0.0.1"), &lines);
        assert_eq!(found.map(|found| found.0).as_deref(), expected, "{lines:?}");
    }

    /// The client by `Forwarded`, for a trusted peer.
    #[track_caller]
    fn check_f(lines: &[&str], expected: Option<&str>) {
        let lines: Vec<_> = lines.iter().map(|line| ("forwarded", *line)).collect();
        let found = resolved(ForwardedHeader::Forwarded, tcp("10.0.0.1"), &lines);
        assert_eq!(found.map(|found| found.0).as_deref(), expected, "{lines:?}");
    }

    #[test]
    fn the_rightmost_untrusted_hop_is_the_client() {
        check_x(&["203.0.113.7"], Some("203.0.113.7"));
        check_x(&["198.51.100.1, 203.0.113.7"], Some("203.0.113.7"));
        check_x(
            &["198.51.100.1, 203.0.113.7, 10.1.2.3"],
            Some("203.0.113.7"),
        );
        check_x(
            &["198.51.100.1", "203.0.113.7", "10.1.2.3, 192.0.2.1"],
            Some("203.0.113.7"),
        );
        check_x(&["10.9.9.9, 10.1.2.3"], Some("10.9.9.9"));
        check_x(&["203.0.113.7,,  ,10.1.2.3,"], Some("203.0.113.7"));
        check_x(&[], Some("10.0.0.1"));
    }

    #[test]
    fn what_the_client_wrote_left_of_its_hop_is_not_even_parsed() {
        check_x(&["garbage, 203.0.113.7"], Some("203.0.113.7"));
        check_x(
            &["\"<script>, ,,, 203.0.113.7, 10.1.1.1"],
            Some("203.0.113.7"),
        );
        let long = format!("{}, 203.0.113.7", "9".repeat(20_000));
        check_x(&[&long], Some("203.0.113.7"));
    }

    #[test]
    fn addresses_have_many_forms() {
        for (text, expected) in [
            ("203.0.113.7:4711", "203.0.113.7"),
            ("2001:DB9::1", "2001:db9::1"),
            ("[2001:db9::1]", "2001:db9::1"),
            ("[2001:db9::1]:443", "2001:db9::1"),
            ("fe80::1%eth0", "fe80::1"),
            ("[fe80::1%eth0.5]:80", "fe80::1"),
            ("::ffff:203.0.113.7", "203.0.113.7"),
            ("[::ffff:203.0.113.7]:80", "203.0.113.7"),
            ("unknown", "10.0.0.1"),
        ] {
            check_x(&[text], Some(expected));
        }
    }

    #[test]
    fn a_malformed_hop_makes_the_header_worthless() {
        for text in [
            "garbage",
            "203.0.113.256",
            "203.0.113.7:",
            "203.0.113.7:x",
            "203.0.113.7:65536",
            "203.0.113.7:123456",
            "[2001:db9::1",
            "2001:db9::1]",
            "[2001:db9::1]x",
            "[]",
            "::g",
            "[203.0.113.7]",
            "fe80::1%",
            "fe80::1%a/b",
            "203.0.113.7 10.0.0.2",
            "_hidden",
            "\"203.0.113.7\"",
            "203.0.113.7;",
            "0x7f.1",
            "caf\u{e9}",
            "010.0.0.1",
        ] {
            check_x(&[text], None);
            check_x(&[&format!("203.0.113.7, {text}, 10.1.1.1")], None);
        }
    }

    #[test]
    fn hops_and_bytes_are_bounded() {
        let chain = |count: usize| format!("203.0.113.7{}", ", 10.0.0.2".repeat(count - 1));
        check_x(&[&chain(MAX_HOPS)], Some("203.0.113.7"));
        check_x(&[&chain(MAX_HOPS + 1)], None);
        check_x(
            &[&format!("203.0.113.7, {}", " ".repeat(MAX_READ_BYTES))],
            None,
        );
        check_f(
            &[&format!(
                "for=203.0.113.7;x=\"{}\"",
                "y".repeat(MAX_READ_BYTES)
            )],
            None,
        );
    }

    #[test]
    fn only_listed_peers_are_believed() {
        let lines = [
            ("x-forwarded-for", "203.0.113.7"),
            ("x-forwarded-proto", "https"),
        ];
        let ask = |peer| resolved(ForwardedHeader::XForwarded, peer, &lines).is_some();
        for (peer, expected) in [
            (tcp("10.255.0.1"), true),
            (tcp("11.0.0.1"), false),
            (tcp("192.0.2.1"), true),
            (tcp("192.0.2.2"), false),
            (tcp("2001:db8:ffff::1"), true),
            (tcp("2001:db9::1"), false),
            (tcp("::ffff:10.0.0.1"), true),
            (Peer::Unix, true),
            (Peer::Unknown, false),
        ] {
            assert_eq!(ask(peer), expected, "{peer:?}");
        }
    }

    #[test]
    fn scheme_and_host_are_those_of_the_clients_hop() {
        #[track_caller]
        fn check(lines: &[(&'static str, &str)], scheme: Option<bool>, host: Option<&str>) {
            let found = resolved(ForwardedHeader::XForwarded, tcp("10.0.0.1"), lines).unwrap();
            assert_eq!((found.1, found.2.as_deref()), (scheme, host), "{lines:?}");
        }
        let client = ("x-forwarded-for", "203.0.113.7");
        let chain = ("x-forwarded-for", "198.51.100.1, 203.0.113.7, 10.0.0.2");
        check(&[client, ("x-forwarded-proto", "https")], Some(true), None);
        check(&[client, ("x-forwarded-proto", "HTTP")], Some(false), None);
        check(&[client, ("x-forwarded-proto", "wss")], Some(true), None);
        check(&[client, ("x-forwarded-proto", "javascript")], None, None);
        check(
            &[client, ("x-forwarded-proto", "https, http")],
            Some(false),
            None,
        );
        check(&[chain, ("x-forwarded-proto", "https")], Some(true), None);
        check(
            &[chain, ("x-forwarded-proto", "x, https, http")],
            Some(true),
            None,
        );
        check(&[("x-forwarded-proto", "https")], Some(true), None);
        check(
            &[client, ("x-forwarded-host", "a.example:8443")],
            None,
            Some("a.example:8443"),
        );
        check(
            &[chain, ("x-forwarded-host", "a.example, b")],
            None,
            Some("a.example"),
        );
        for bad in ["a@b", "a/b", "", "a b", "http://a"] {
            check(&[client, ("x-forwarded-host", bad)], None, None);
        }
    }

    #[test]
    fn the_other_header_is_not_read() {
        let lines = [
            ("x-forwarded-for", "203.0.113.7"),
            ("forwarded", "for=198.51.100.1"),
        ];
        let ask = |header| resolved(header, tcp("10.0.0.1"), &lines).unwrap().0;
        assert_eq!(ask(ForwardedHeader::XForwarded), "203.0.113.7");
        assert_eq!(ask(ForwardedHeader::Forwarded), "198.51.100.1");
    }

    #[test]
    fn rfc_7239_elements_are_read() {
        check_f(&["for=203.0.113.7"], Some("203.0.113.7"));
        check_f(&["For=\"[2001:db9::17]:4711\""], Some("2001:db9::17"));
        check_f(
            &["for=203.0.113.7;proto=http;by=203.0.113.43"],
            Some("203.0.113.7"),
        );
        check_f(
            &["for=198.51.100.1, for=203.0.113.7", "for=10.2.3.4"],
            Some("203.0.113.7"),
        );
        check_f(
            &["for=203.0.113.7;x=\"a, b; \\\"c\\\"\", for=10.0.0.2"],
            Some("203.0.113.7"),
        );
        check_f(&["for=unknown"], Some("10.0.0.1"));
        check_f(
            &["for=203.0.113.7, for=_hidden, for=10.0.0.2"],
            Some("10.0.0.2"),
        );
        check_f(&["for=\"203.0.113.7:_port\""], Some("203.0.113.7"));
        check_f(&["proto=https"], Some("10.0.0.1"));
        check_f(&[",, for=203.0.113.7 ,"], Some("203.0.113.7"));
    }

    #[test]
    fn a_malformed_forwarded_line_is_ignored() {
        for line in [
            "for",
            "for=",
            "for=\"",
            "for=\"203.0.113.7",
            "=203.0.113.7",
            "for=203.0.113.7 x",
            "for=[2001:db9::1]",
            "for=2001:db9::1",
            "for=\"2001:db9::1\"",
            "for=203.0.113.7:80",
            "for=1.2.3.4;for=5.6.7.8",
            "for =1.2.3.4",
            "for=\"1.2.3.4\"x",
            "for=caf\u{e9}",
            "for=\"\\",
            "for=\", for=203.0.113.7",
        ] {
            check_f(&[line], None);
        }
    }

    #[test]
    fn rfc_7239_scheme_and_host_are_read() {
        let line = "for=198.51.100.1;proto=http;host=evil, \
                    for=203.0.113.7;proto=https;host=\"a.example:8443\", for=10.0.0.2;proto=http";
        let found = resolved(
            ForwardedHeader::Forwarded,
            tcp("10.0.0.1"),
            &[("forwarded", line)],
        );
        let expected = (
            "203.0.113.7".to_owned(),
            Some(true),
            Some("a.example:8443".to_owned()),
        );
        assert_eq!(found, Some(expected));
    }

    #[test]
    fn networks_are_checked() {
        for good in [
            "0.0.0.0/0",
            "::/0",
            "10.0.0.0/8",
            "10.1.2.3",
            "::1",
            "fd00::/8",
            "unix",
        ] {
            assert!(good.parse::<TrustedPeer>().is_ok(), "{good}");
        }
        for bad in [
            "",
            "*",
            "10.0.0.1/8",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "a",
            "UNIX",
            "10.0.0.0/8/8",
            "fd00::1/8",
            "10.0.0.0/-1",
        ] {
            assert!(bad.parse::<TrustedPeer>().is_err(), "{bad}");
        }
        assert!(Forwarded::new(&[], ForwardedHeader::XForwarded).is_err());
    }

    proptest! {
        /// Whatever a client sends in front, the proxy's own entry decides.
        #[test]
        fn a_client_cannot_choose_its_address(prefix in "[ -~\u{80}-\u{ff}]{0,60}") {
            let line = format!("{prefix}, 203.0.113.7");
            let lines = [("x-forwarded-for", line.as_str())];
            let found = resolved(ForwardedHeader::XForwarded, tcp("10.0.0.1"), &lines);
            let client = found.map(|found| found.0);
            // A line that is not ASCII is ignored: the peer is the client.
            prop_assert!(matches!(client.as_deref(), Some("203.0.113.7") | None), "{:?}", client);
            prop_assert!(client.is_some() || !prefix.is_ascii());
            let line = format!("{prefix}, for=203.0.113.7");
            let lines = [("forwarded", line.as_str())];
            let found = resolved(ForwardedHeader::Forwarded, tcp("10.0.0.1"), &lines);
            let client = found.map(|found| found.0);
            prop_assert!(matches!(client.as_deref(), Some("203.0.113.7") | None), "{:?}", client);
        }
    }
}
