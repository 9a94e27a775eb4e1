//! Headers on their way through: what stays behind, and what is added.
//!
//! Guarantees: hop-by-hop fields never pass (RFC 9110 §7.6.1), and what the
//! upstream reads about the client is what this server saw, not what the
//! client claims, unless the peer is a proxy that is trusted.

use std::fmt::Write as _;
use std::net::IpAddr;

use http::Version;
use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, FORWARDED, HOST, HeaderMap, HeaderName,
    HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE, VIA,
};

use crate::request::{Peer, Request};
use crate::vary;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// What a client could claim about itself.
const CLAIMS: [HeaderName; 7] = [
    FORWARDED,
    X_FORWARDED_FOR,
    X_FORWARDED_HOST,
    X_FORWARDED_PROTO,
    HeaderName::from_static("x-forwarded-port"),
    HeaderName::from_static("x-forwarded-prefix"),
    HeaderName::from_static("x-real-ip"),
];

/// Fields for one hop only, besides those that `Connection` names. `Host`,
/// `Expect` and `Content-Length` are made anew for the next hop.
const OF_ONE_HOP: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("http2-settings"),
];

/// Hops that a reader of a list looks at.
const MAX_HOPS: usize = 32;

/// Removes what belongs to the connection that the message came by.
pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(vary::names)
        .filter_map(|name| HeaderName::from_bytes(name).ok())
        .collect();
    for name in named.iter().chain(&OF_ONE_HOP) {
        headers.remove(name);
    }
}

/// What is known of the client's side of a request.
#[derive(Debug)]
pub(super) struct Client<'a> {
    pub(super) peer: Peer,
    pub(super) version: Version,
    pub(super) is_tls: bool,
    pub(super) trusted: &'a [IpAddr],
}

/// Takes the headers of `request` as they are, but for those of the connection;
/// only the client's address and scheme are added.
///
/// What the client claims about itself stays in front of that if it
/// `keeps_claims`, with the host that it asked for behind what it claims of
/// that; and is dropped if not.
pub(super) fn same_headers(
    request: &mut Request,
    client: &Client<'_>,
    keeps_claims: bool,
) -> HeaderMap {
    let (mut headers, asked) = take_headers(request);
    if let Some(asked) = &asked {
        headers.insert(HOST, asked.clone());
    }
    join_cookies(&mut headers);
    if !keeps_claims {
        for name in &CLAIMS {
            headers.remove(name);
        }
    }
    let scheme = if client.is_tls { "https" } else { "http" };
    let address = match client.peer {
        Peer::Tcp(address) => Some(address.ip().to_canonical()),
        Peer::Unix | Peer::Memory(_) | Peer::Unknown => None,
    };
    if let Some(address) = address {
        // The lists grow together: an entry is of the hop that stands as far
        // from the right.
        if keeps_claims {
            let num_hops = num_elements(&headers, &X_FORWARDED_FOR);
            repeat_single(&mut headers, &X_FORWARDED_PROTO, num_hops);
            repeat_single(&mut headers, &X_FORWARDED_HOST, num_hops);
            match asked.as_ref().and_then(|asked| asked.to_str().ok()) {
                Some(asked) => append_to_list(&mut headers, X_FORWARDED_HOST, asked),
                None => drop(headers.remove(X_FORWARDED_HOST)),
            }
        }
        append_to_list(&mut headers, X_FORWARDED_FOR, &address.to_string());
        append_to_list(&mut headers, X_FORWARDED_PROTO, scheme);
    } else if !headers.contains_key(X_FORWARDED_PROTO) {
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(scheme));
    }
    if keeps_claims {
        let element = forwarded(address, asked.as_ref(), scheme);
        append_to_list(&mut headers, FORWARDED, &element);
    }
    headers
}

/// Takes the headers of `request` and turns them into those for `host`.
pub(super) fn request_headers(
    request: &mut Request,
    host: &HeaderValue,
    client: &Client<'_>,
) -> HeaderMap {
    let (mut headers, asked) = take_headers(request);
    headers.insert(HOST, host.clone());
    join_cookies(&mut headers);
    let is_trusted =
        matches!(client.peer, Peer::Tcp(address) if client.trusted.contains(&address.ip()));
    if !is_trusted {
        for name in &CLAIMS {
            headers.remove(name);
        }
    }
    let address = match client.peer {
        Peer::Tcp(address) => Some(address.ip().to_canonical()),
        Peer::Unix | Peer::Memory(_) | Peer::Unknown => None,
    };
    let scheme = if client.is_tls { "https" } else { "http" };
    if let Some(address) = address {
        append_to_list(&mut headers, X_FORWARDED_FOR, &address.to_string());
    }
    if !headers.contains_key(X_FORWARDED_PROTO) {
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(scheme));
    }
    if let Some(asked) = &asked
        && !headers.contains_key(X_FORWARDED_HOST)
    {
        headers.insert(X_FORWARDED_HOST, asked.clone());
    }
    let element = forwarded(address, asked.as_ref(), scheme);
    append_to_list(&mut headers, FORWARDED, &element);
    add_via(&mut headers, client.version);
    headers
}

/// The headers that may go on, and the host that was asked for: `Connection`
/// may name `Host`, which belongs to the message all the same.
fn take_headers(request: &mut Request) -> (HeaderMap, Option<HeaderValue>) {
    let authority = request.uri().authority().cloned();
    let mut headers = std::mem::take(request.headers_mut());
    let asked = authority
        .and_then(|name| HeaderValue::from_str(name.as_str()).ok())
        .or_else(|| headers.get(HOST).cloned());
    remove_hop_by_hop(&mut headers);
    headers.remove(EXPECT);
    headers.remove(CONTENT_LENGTH);
    (headers, asked)
}

/// RFC 9110 §7.6.3: how the message came, with our name.
pub(super) fn add_via(headers: &mut HeaderMap, version: Version) {
    let element = match version {
        Version::HTTP_2 => "2 justapi",
        Version::HTTP_10 => "1.0 justapi",
        _ => "1.1 justapi",
    };
    append_to_list(headers, VIA, element);
}

/// One element of `Forwarded` (RFC 7239 §4).
fn forwarded(address: Option<IpAddr>, host: Option<&HeaderValue>, scheme: &str) -> String {
    let mut element = match address {
        Some(IpAddr::V4(address)) => format!("for={address}"),
        Some(IpAddr::V6(address)) => format!("for=\"[{address}]\""),
        None => "for=unknown".to_owned(),
    };
    // A valid host needs no escape inside of quotes.
    if let Some(host) = host.and_then(|host| host.to_str().ok())
        && !host.contains(['"', '\\'])
    {
        write!(element, ";host=\"{host}\"").expect("memory");
    }
    write!(element, ";proto={scheme}").expect("memory");
    element
}

/// Ends the list with `element`, in one field line.
fn append_to_list(headers: &mut HeaderMap, name: HeaderName, element: &str) {
    let mut list = Vec::new();
    for value in headers.get_all(&name) {
        list.extend_from_slice(value.as_bytes());
        list.extend_from_slice(b", ");
    }
    list.extend_from_slice(element.as_bytes());
    // Values and elements are valid, and so is what joins them.
    if let Ok(value) = HeaderValue::from_bytes(&list) {
        headers.insert(name, value);
    }
}

fn num_elements(headers: &HeaderMap, name: &HeaderName) -> usize {
    let lines = headers.get_all(name).iter();
    lines
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b','))
        .filter(|element| !element.trim_ascii().is_empty())
        .count()
}

/// Writes the only element of a list once for each hop: alone, it is the word
/// about all of them, which it would no longer be with another one behind it.
fn repeat_single(headers: &mut HeaderMap, name: &HeaderName, num_hops: usize) {
    let Some(value) = headers.get(name).cloned() else {
        return;
    };
    if num_elements(headers, name) == 1 {
        let repeated = vec![value.as_bytes(); num_hops.clamp(1, MAX_HOPS)].join(&b", "[..]);
        if let Ok(repeated) = HeaderValue::from_bytes(&repeated) {
            headers.insert(name, repeated);
        }
    }
}

/// RFC 9113 §8.2.3: HTTP/1.1 has one cookie line.
fn join_cookies(headers: &mut HeaderMap) {
    let mut cookies = headers.get_all(COOKIE).iter();
    if cookies.next().is_none() || cookies.next().is_none() {
        return;
    }
    let all: Vec<&[u8]> = headers
        .get_all(COOKIE)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    if let Ok(joined) = HeaderValue::from_bytes(&all.join(&b"; "[..])) {
        headers.insert(COOKIE, joined);
    }
}

#[cfg(test)]
mod tests {
    use http::{Method, Uri};

    use super::*;
    use crate::body::Body;

    fn forwarded_headers(
        lines: &[(&'static str, &'static str)],
        peer: &str,
        trusted: &[IpAddr],
    ) -> HeaderMap {
        let mut request = Request::new(Method::GET, Uri::from_static("/"), Body::empty());
        for (name, value) in lines {
            let value = HeaderValue::from_static(value);
            request.headers_mut().append(*name, value);
        }
        let client = Client {
            peer: Peer::Tcp(peer.parse().expect("an address")),
            version: Version::HTTP_11,
            is_tls: false,
            trusted,
        };
        request_headers(&mut request, &HeaderValue::from_static("up:1"), &client)
    }

    const CLIENT: &str = "192.0.2.7:99";

    fn plain_headers(
        lines: &[(&'static str, &'static str)],
        keeps_claims: bool,
        peer: &str,
    ) -> HeaderMap {
        let mut request = Request::new(Method::GET, Uri::from_static("/"), Body::empty());
        for (name, value) in lines {
            let value = HeaderValue::from_static(value);
            request.headers_mut().append(*name, value);
        }
        let client = Client {
            peer: peer.parse().map_or(Peer::Unix, Peer::Tcp),
            version: Version::HTTP_11,
            is_tls: false,
            trusted: &[],
        };
        same_headers(&mut request, &client, keeps_claims)
    }

    #[track_caller]
    fn check(headers: &HeaderMap, expected: &[(&str, &str)]) {
        let mut found: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().expect("ASCII")))
            .collect();
        found.sort_unstable();
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        assert_eq!(found, expected);
    }

    #[test]
    fn one_hop_fields_stay_behind() {
        let headers = forwarded_headers(
            &[
                ("connection", "close, X-Mine"),
                ("connection", "x-other"),
                ("x-mine", "a"),
                ("x-other", "a"),
                ("keep-alive", "timeout=5"),
                ("proxy-connection", "keep-alive"),
                ("proxy-authorization", "Basic a"),
                ("te", "trailers"),
                ("transfer-encoding", "chunked"),
                ("upgrade", "h2c"),
                ("expect", "100-continue"),
                ("content-length", "3"),
                ("accept", "*/*"),
                ("host", "front"),
            ],
            "192.0.2.7:99",
            &[],
        );
        check(
            &headers,
            &[
                ("accept", "*/*"),
                ("host", "up:1"),
                ("x-forwarded-for", "192.0.2.7"),
                ("x-forwarded-host", "front"),
                ("x-forwarded-proto", "http"),
                ("forwarded", "for=192.0.2.7;host=\"front\";proto=http"),
                ("via", "1.1 justapi"),
            ],
        );
    }

    #[test]
    fn claims_are_believed_of_trusted_proxies_only() {
        let claims = [
            ("x-forwarded-for", "203.0.113.9"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "shop.example"),
            ("forwarded", "for=203.0.113.9"),
            ("x-real-ip", "203.0.113.9"),
            ("via", "1.1 edge"),
        ];
        let doubted = forwarded_headers(&claims, "[::1]:5", &[]);
        check(
            &doubted,
            &[
                ("host", "up:1"),
                ("x-forwarded-for", "::1"),
                ("x-forwarded-proto", "http"),
                ("forwarded", "for=\"[::1]\";proto=http"),
                ("via", "1.1 edge, 1.1 justapi"),
            ],
        );
        let edge = ["10.0.0.1".parse().expect("an address")];
        let believed = forwarded_headers(&claims, "10.0.0.1:5", &edge);
        check(
            &believed,
            &[
                ("host", "up:1"),
                ("x-forwarded-for", "203.0.113.9, 10.0.0.1"),
                ("x-forwarded-proto", "https"),
                ("x-forwarded-host", "shop.example"),
                ("x-real-ip", "203.0.113.9"),
                ("forwarded", "for=203.0.113.9, for=10.0.0.1;proto=http"),
                ("via", "1.1 edge, 1.1 justapi"),
            ],
        );
    }

    #[test]
    fn connection_cannot_remove_what_we_add() {
        let lines = [("connection", "x-forwarded-for, via, host, forwarded")];
        let headers = forwarded_headers(&lines, "192.0.2.7:99", &[]);
        for name in ["x-forwarded-for", "via", "host", "forwarded"] {
            assert!(headers.contains_key(name), "{name}");
        }
        let lines = [("host", "front"), ("connection", "host")];
        let headers = forwarded_headers(&lines, "192.0.2.7:99", &[]);
        assert_eq!(headers["x-forwarded-host"], "front");
        let headers = plain_headers(&lines, true, CLIENT);
        assert_eq!(headers[HOST], "front");
    }

    #[test]
    fn a_plain_hop_adds_the_client_alone() {
        let lines = [
            ("host", "shop.example"),
            ("connection", "close, x-mine"),
            ("x-mine", "a"),
            ("accept", "*/*"),
            ("x-forwarded-for", "203.0.113.9"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "evil.example"),
        ];
        check(
            &plain_headers(&lines, false, CLIENT),
            &[
                ("accept", "*/*"),
                ("host", "shop.example"),
                ("x-forwarded-for", "192.0.2.7"),
                ("x-forwarded-proto", "http"),
            ],
        );
        check(
            &plain_headers(&lines, true, CLIENT),
            &[
                ("accept", "*/*"),
                (
                    "forwarded",
                    "for=192.0.2.7;host=\"shop.example\";proto=http",
                ),
                ("host", "shop.example"),
                ("x-forwarded-for", "203.0.113.9, 192.0.2.7"),
                ("x-forwarded-host", "evil.example, shop.example"),
                ("x-forwarded-proto", "https, http"),
            ],
        );
    }

    #[test]
    fn a_plain_hop_leaves_each_claim_to_its_hop() {
        let lines = [
            ("host", "inner"),
            ("x-forwarded-for", "203.0.113.9, 10.0.0.1"),
            ("x-forwarded-for", "10.0.0.2"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "shop.example"),
        ];
        let headers = plain_headers(&lines, true, CLIENT);
        assert_eq!(headers[X_FORWARDED_PROTO], "https, https, https, http");
        let hosts = "shop.example, shop.example, shop.example, inner";
        assert_eq!(headers[X_FORWARDED_HOST], hosts);
        // A peer without an address is no hop of the list.
        let headers = plain_headers(&lines, true, "unix");
        assert_eq!(headers[X_FORWARDED_PROTO], "https");
        assert_eq!(headers[X_FORWARDED_HOST], "shop.example");
        // Where there is nothing that was asked for, nobody's word replaces it.
        let lines = [("x-forwarded-host", "evil.example")];
        let headers = plain_headers(&lines, true, CLIENT);
        assert_eq!(headers.get(X_FORWARDED_HOST), None);
    }

    #[test]
    fn cookies_become_one_line() {
        let lines = [("cookie", "a=1"), ("cookie", "b=2; c=3")];
        let headers = forwarded_headers(&lines, "192.0.2.7:99", &[]);
        assert_eq!(headers[COOKIE], "a=1; b=2; c=3");
    }
}
