//! Requests as bytes: serialised before the run, and what of them differs from send to send.

use fastrand::Rng;

use super::target::Target;
use super::thread::Share;
use crate::Error;

/// Width of a slot: the digits of a number that no run exhausts.
const SLOT_BYTES: usize = 16;

/// One request, serialised once; only what its slots hold is written anew for each send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestTemplate {
    /// Method: decides whether the answer has a body and whether to send again.
    pub method: String,
    /// The whole request, head and body.
    pub bytes: Vec<u8>,
    slots: Vec<Slot>,
}

impl RequestTemplate {
    /// Serialises an HTTP/1.1 request for `target`.
    ///
    /// `path` is the request target in origin form, with its query. `Host`,
    /// `Content-Length` and, without `keep_alive`, `Connection: close` are added
    /// where `headers` does not have them.
    ///
    /// # Errors
    ///
    /// [`Error::LoadPlan`] if a part could change the framing of the request.
    pub fn serialise(
        target: &Target,
        method: &str,
        path: &str,
        headers: &[(String, String)],
        body: &[u8],
        keep_alive: bool,
    ) -> Result<Self, Error> {
        let mut bytes = head(target, method, path, headers, body.len(), keep_alive)?;
        bytes.extend_from_slice(body);
        Ok(Self {
            method: method.to_owned(),
            bytes,
            slots: Vec::new(),
        })
    }

    /// As [`RequestTemplate::serialise`], with a slot for each mark in path, headers and body.
    ///
    /// `{{seq}}` becomes a number of 16 digits that no other request of the run has, `{{hex}}`
    /// 16 random hexadecimal digits.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn serialise_with_slots(
        target: &Target,
        method: &str,
        path: &str,
        headers: &[(String, String)],
        body: &[u8],
        keep_alive: bool,
    ) -> Result<Self, Error> {
        // The length to announce is that of the body with its slots, not with its marks.
        let length = expand(body).0.len();
        let mut marked = head(target, method, path, headers, length, keep_alive)?;
        marked.extend_from_slice(body);
        let (bytes, slots) = expand(&marked);
        Ok(Self {
            method: method.to_owned(),
            bytes,
            slots,
        })
    }

    pub(super) const fn has_slots(&self) -> bool {
        !self.slots.is_empty()
    }

    /// Fills the slots of `bytes`, a copy of the template's.
    pub(super) fn fill(&self, bytes: &mut [u8], values: &mut Values) {
        let number = values.next_number();
        for slot in &self.slots {
            let place = &mut bytes[slot.start..slot.start + SLOT_BYTES];
            match slot.kind {
                SlotKind::Sequence => write_digits(place, number, 10),
                SlotKind::Hex => write_digits(place, values.random.u64(..), 16),
            }
        }
    }

    pub(super) fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    /// Whether sending twice has the effect of sending once (RFC 9110 §9.2.2).
    pub(super) fn is_idempotent(&self) -> bool {
        matches!(
            self.method.as_str(),
            "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PUT" | "DELETE"
        )
    }
}

/// A place of fixed width that is filled for each send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slot {
    start: usize,
    kind: SlotKind,
}

/// What a slot is filled with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SlotKind {
    /// A number that no other request of the run has.
    Sequence,
    /// Random hexadecimal digits.
    Hex,
}

impl SlotKind {
    /// Every kind with the mark that stands for it.
    const MARKS: [(&'static [u8], Self); 2] =
        [(b"{{seq}}", Self::Sequence), (b"{{hex}}", Self::Hex)];
}

/// Where a thread takes the values for slots from.
#[derive(Debug)]
pub(super) struct Values {
    number: u64,
    step: u64,
    random: Rng,
}

impl Values {
    pub(super) fn new(seed: u64, share: Share) -> Self {
        Self {
            number: share.index as u64,
            step: share.threads as u64,
            random: Rng::with_seed(seed ^ share.index as u64),
        }
    }

    const fn next_number(&mut self) -> u64 {
        let number = self.number;
        self.number += self.step;
        number
    }
}

/// Puts slots, filled with zeros, in the place of marks.
fn expand(marked: &[u8]) -> (Vec<u8>, Vec<Slot>) {
    let (mut bytes, mut slots) = (Vec::with_capacity(marked.len()), Vec::new());
    let mut rest = marked;
    while let Some(first) = rest.first() {
        let mark = (SlotKind::MARKS.iter()).find(|(mark, _)| rest.starts_with(mark));
        match mark {
            Some((mark, kind)) => {
                slots.push(Slot {
                    start: bytes.len(),
                    kind: *kind,
                });
                bytes.extend_from_slice(&[b'0'; SLOT_BYTES]);
                rest = &rest[mark.len()..];
            }
            None => {
                bytes.push(*first);
                rest = &rest[1..];
            }
        }
    }
    (bytes, slots)
}

/// Writes the lowest digits of a number.
fn write_digits(place: &mut [u8], mut value: u64, base: u64) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in place.iter_mut().rev() {
        *byte = DIGITS[(value % base) as usize];
        value /= base;
    }
}

/// A request up to its body of `length` bytes.
fn head(
    target: &Target,
    method: &str,
    path: &str,
    headers: &[(String, String)],
    length: usize,
    keep_alive: bool,
) -> Result<Vec<u8>, Error> {
    let invalid = |field, problem| Err(Error::LoadPlan { field, problem });
    if method.is_empty() || !method.bytes().all(is_token) {
        return invalid("method", "not a token");
    }
    if !path.starts_with(['/', '*']) || !path.bytes().all(|byte| byte.is_ascii_graphic()) {
        return invalid("path", "not in origin form");
    }
    let mut bytes = format!("{method} {path} HTTP/1.1\r\n").into_bytes();
    let mut field = |name: &str, value: &str| {
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    };
    let has = |name: &str| {
        headers
            .iter()
            .any(|(have, _)| have.eq_ignore_ascii_case(name))
    };
    if !has("host") {
        field("host", &target.host);
    }
    for (name, value) in headers {
        if name.is_empty() || !name.bytes().all(is_token) {
            return invalid("header name", "not a token");
        }
        if value.bytes().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
            return invalid("header value", "contains a line break");
        }
        field(name, value);
    }
    let wants_length = length > 0 || matches!(method, "POST" | "PUT" | "PATCH");
    if wants_length && !has("content-length") && !has("transfer-encoding") {
        field("content-length", &length.to_string());
    }
    if !keep_alive && !has("connection") {
        field("connection", "close");
    }
    bytes.extend_from_slice(b"\r\n");
    Ok(bytes)
}

/// Token characters of RFC 9110 §5.6.2.
const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::target::Address;

    fn serialise(
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
        keep_alive: bool,
    ) -> Result<String, Error> {
        let target = Target {
            address: Address::Tcp(([127, 0, 0, 1], 80).into()),
            host: "example:80".to_owned(),
            tls: None,
        };
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        RequestTemplate::serialise(&target, method, path, &headers, body.as_bytes(), keep_alive)
            .map(|template| String::from_utf8(template.bytes).unwrap())
    }

    #[test]
    fn missing_fields_are_added() {
        assert_eq!(
            serialise("GET", "/a?b", &[], "", true).unwrap(),
            "GET /a?b HTTP/1.1\r\nhost: example:80\r\n\r\n"
        );
        assert_eq!(
            serialise("POST", "/", &[("X", "1")], "hi", false).unwrap(),
            "POST / HTTP/1.1\r\nhost: example:80\r\nX: 1\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi"
        );
    }

    #[test]
    fn given_fields_are_kept() {
        assert_eq!(
            serialise("GET", "/", &[("Host", "h"), ("Connection", "x")], "", false).unwrap(),
            "GET / HTTP/1.1\r\nHost: h\r\nConnection: x\r\n\r\n"
        );
    }

    #[test]
    fn parts_that_change_the_framing_are_refused() {
        assert!(serialise("GE T", "/", &[], "", true).is_err());
        assert!(serialise("GET", "/a b", &[], "", true).is_err());
        assert!(serialise("GET", "http://x/", &[], "", true).is_err());
        assert!(serialise("GET", "/", &[("a:", "b")], "", true).is_err());
        assert!(serialise("GET", "/", &[("a", "b\r\nc: d")], "", true).is_err());
    }

    #[test]
    fn slots_are_filled_and_counted_in_the_length() {
        let target = Target {
            address: Address::Tcp(([127, 0, 0, 1], 80).into()),
            host: "h".to_owned(),
            tls: None,
        };
        let headers = [("x-id".to_owned(), "{{hex}}".to_owned())];
        let template = RequestTemplate::serialise_with_slots(
            &target,
            "POST",
            "/a/{{seq}}",
            &headers,
            b"{\"n\": {{seq}}}",
            true,
        )
        .unwrap();
        let share = Share {
            index: 1,
            threads: 3,
            first: 0,
            connections: 1,
            attempts: None,
            cpu: None,
        };
        let (mut values, mut hex) = (Values::new(7, share), Vec::new());
        for number in [1, 4, 7] {
            let mut bytes = template.bytes.clone();
            template.fill(&mut bytes, &mut values);
            let text = String::from_utf8(bytes).unwrap();
            let (before, rest) = text.split_once("x-id: ").unwrap();
            assert_eq!(
                before,
                format!("POST /a/{number:016} HTTP/1.1\r\nhost: h\r\n")
            );
            let (id, rest) = rest.split_at(SLOT_BYTES);
            assert!(id.bytes().all(|byte| byte.is_ascii_hexdigit()));
            let body = format!("{{\"n\": {number:016}}}");
            assert_eq!(
                rest,
                format!("\r\ncontent-length: {}\r\n\r\n{body}", body.len())
            );
            hex.push(id.to_owned());
        }
        hex.dedup();
        assert_eq!(hex.len(), 3);
        assert!(template.has_slots());
    }
}
