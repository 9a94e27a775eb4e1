//! Negotiation of permessage-deflate: RFC 6455 §9.1, RFC 7692 §5 and §7.1.
//!
//! Guarantee: what is agreed can be kept by our compressor; an offer with an
//! unknown, repeated or invalid parameter is declined and the next one looked
//! at; a header that breaks the grammar is an error.

use std::fmt::Write as _;

use http::header::{HeaderMap, HeaderValue, SEC_WEBSOCKET_EXTENSIONS};

use super::deflate::{Agreement, MAX_WINDOW_BITS, MIN_WINDOW_BITS};
use super::limits::MAX_EXTENSION_OFFERS;
use crate::gate::is_token_byte;

const NAME: &str = "permessage-deflate";

/// How messages are compressed for clients that offer it.
///
/// By default no context outlives a message: it compresses less where messages
/// are alike, and an idle socket holds no memory for it. Compressing secrets
/// together with text of an attacker leaks them (CRIME): leave it off there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deflate {
    context_takeover: bool,
    window_bits: u8,
}

impl Deflate {
    /// No context takeover, windows of up to 2^15 bytes.
    pub const fn new() -> Self {
        Self {
            context_takeover: false,
            window_bits: MAX_WINDOW_BITS,
        }
    }

    /// Lets both sides refer to earlier messages.
    ///
    /// Each socket then keeps its contexts: about 300 KiB to compress and
    /// 40 KiB to decompress with the largest window, each once it is used.
    #[must_use]
    pub const fn context_takeover(mut self, keep: bool) -> Self {
        self.context_takeover = keep;
        self
    }

    /// Largest window of either side, as a power of two from 9 to 15.
    ///
    /// A value outside is brought to the nearest one inside.
    #[must_use]
    pub const fn window_bits(mut self, bits: u8) -> Self {
        self.window_bits = match bits {
            ..MIN_WINDOW_BITS => MIN_WINDOW_BITS,
            MAX_WINDOW_BITS.. => MAX_WINDOW_BITS,
            _ => bits,
        };
        self
    }
}

impl Default for Deflate {
    fn default() -> Self {
        Self::new()
    }
}

/// The header does not follow the grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// Agrees to the first offer that can be kept: with what, and the answer.
pub(super) fn negotiate(
    headers: &HeaderMap,
    config: Option<Deflate>,
) -> Result<Option<(Agreement, HeaderValue)>, Malformed> {
    let mut agreed = None;
    let mut num_offers = 0;
    for value in headers.get_all(SEC_WEBSOCKET_EXTENSIONS) {
        let text = value.to_str().map_err(|_| Malformed)?;
        let mut parser = Parser { rest: text };
        while let Some(offer) = parser.next_offer()? {
            num_offers += 1;
            if num_offers > MAX_EXTENSION_OFFERS {
                return Err(Malformed);
            }
            if let (None, Some(config)) = (&agreed, config) {
                agreed = accept(&offer, config);
            }
        }
    }
    Ok(agreed)
}

/// One extension of the list, with its parameters in order.
#[derive(Debug, PartialEq, Eq)]
struct Offer<'a> {
    name: &'a str,
    params: Vec<(&'a str, Option<String>)>,
}

/// The agreement that `offer` allows, and the header value that says so.
fn accept(offer: &Offer<'_>, config: Deflate) -> Option<(Agreement, HeaderValue)> {
    if !offer.name.eq_ignore_ascii_case(NAME) {
        return None;
    }
    let mut server_no_takeover = false;
    let mut client_no_takeover = false;
    let mut server_bits = None;
    let mut client_bits = None;
    for (name, value) in &offer.params {
        let is_new = match *name {
            "server_no_context_takeover" if value.is_none() => {
                !std::mem::replace(&mut server_no_takeover, true)
            }
            "client_no_context_takeover" if value.is_none() => {
                !std::mem::replace(&mut client_no_takeover, true)
            }
            "server_max_window_bits" => {
                let bits = parse_bits(value.as_deref()?)?;
                server_bits.replace(bits).is_none()
            }
            "client_max_window_bits" => {
                let bits = match value {
                    Some(value) => parse_bits(value)?,
                    None => MAX_WINDOW_BITS,
                };
                client_bits.replace((bits, value.is_some())).is_none()
            }
            _ => return None,
        };
        if !is_new {
            return None;
        }
    }
    let server_window_bits = server_bits.map_or(config.window_bits, |b| b.min(config.window_bits));
    if server_window_bits < MIN_WINDOW_BITS {
        // zlib has no window of 2^8 bytes for raw deflate.
        return None;
    }
    let client_window_bits =
        client_bits.map_or(MAX_WINDOW_BITS, |(bits, _)| bits.min(config.window_bits));
    let agreement = Agreement {
        server_window_bits,
        client_window_bits,
        server_takeover: config.context_takeover && !server_no_takeover,
        client_takeover: config.context_takeover && !client_no_takeover,
    };

    let mut answer = NAME.to_owned();
    if !agreement.server_takeover {
        answer.push_str("; server_no_context_takeover");
    }
    if !agreement.client_takeover {
        answer.push_str("; client_no_context_takeover");
    }
    let mut push_bits = |name, bits| {
        write!(answer, "; {name}={bits}").expect("a string takes what is written");
    };
    if server_bits.is_some() || server_window_bits < MAX_WINDOW_BITS {
        push_bits("server_max_window_bits", server_window_bits);
    }
    // Only a client that says it knows the parameter may be told it.
    if let Some((_, has_value)) = client_bits
        && (has_value || client_window_bits < MAX_WINDOW_BITS)
    {
        push_bits("client_max_window_bits", client_window_bits);
    }
    let answer = HeaderValue::try_from(answer).expect("names and digits");
    Some((agreement, answer))
}

/// 8 to 15, without leading zeros.
fn parse_bits(text: &str) -> Option<u8> {
    match text.as_bytes() {
        [digit @ b'8'..=b'9'] => Some(digit - b'0'),
        [b'1', digit @ b'0'..=b'5'] => Some(10 + digit - b'0'),
        _ => None,
    }
}

/// Reads the list of one header value (RFC 6455 §9.1).
struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    /// The next element; empty ones are skipped (RFC 9110 §5.6.1).
    fn next_offer(&mut self) -> Result<Option<Offer<'a>>, Malformed> {
        loop {
            self.skip_space();
            if !self.take(',') {
                break;
            }
        }
        if self.rest.is_empty() {
            return Ok(None);
        }
        let name = self.token()?;
        let mut params = Vec::new();
        loop {
            self.skip_space();
            if self.rest.is_empty() || self.take(',') {
                return Ok(Some(Offer { name, params }));
            }
            if !self.take(';') {
                return Err(Malformed);
            }
            self.skip_space();
            let param = self.token()?;
            self.skip_space();
            let value = if self.take('=') {
                Some(self.value()?)
            } else {
                None
            };
            params.push((param, value));
        }
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
    }

    fn take(&mut self, wanted: char) -> bool {
        match self.rest.strip_prefix(wanted) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn token(&mut self) -> Result<&'a str, Malformed> {
        let is_no_token = |byte: &u8| !is_token_byte(*byte);
        let end = self.rest.bytes().position(|byte| is_no_token(&byte));
        let (token, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        if token.is_empty() {
            return Err(Malformed);
        }
        self.rest = rest;
        Ok(token)
    }

    /// A token, or a quoted string whose content is a token.
    fn value(&mut self) -> Result<String, Malformed> {
        self.skip_space();
        if !self.take('"') {
            return self.token().map(str::to_owned);
        }
        let mut value = String::new();
        let mut characters = self.rest.char_indices();
        while let Some((index, character)) = characters.next() {
            match character {
                '"' => {
                    self.rest = &self.rest[index + 1..];
                    let is_token = !value.is_empty() && value.bytes().all(is_token_byte);
                    return if is_token { Ok(value) } else { Err(Malformed) };
                }
                '\\' => value.push(characters.next().ok_or(Malformed)?.1),
                _ => value.push(character),
            }
        }
        Err(Malformed)
    }
}
