//! How one access line looks.
//!
//! Guarantee: whatever a client sent, the line is printable ASCII and its only
//! line break is at its end.

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderValue, Method, StatusCode, Version};

use crate::request::Peer;

/// One field of a line before escaping; the default request line fits.
const MAX_FIELD_BYTES: usize = 8 * 1024;

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub enum AccessLogFormat {
    /// Combined log format, then seconds taken and request id; the trace id
    /// after that where the server takes part in traces.
    ///
    /// Time is RFC 3339 in UTC. Control characters, quotes, backslashes and
    /// bytes above 0x7E appear as `\xNN`, `\"` and `\\`.
    #[default]
    Text,
    /// One JSON object, pure ASCII; what is missing is `null`.
    Json,
}

/// What one line says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'a> {
    /// When the request arrived.
    pub(crate) time: SystemTime,
    pub(crate) peer: Peer,
    pub(crate) method: &'a Method,
    /// Path as it was sent.
    pub(crate) path: &'a str,
    /// Query as it was sent, without the `?`.
    pub(crate) query: Option<&'a str>,
    pub(crate) version: Version,
    pub(crate) status: StatusCode,
    /// Body bytes sent, if known.
    pub(crate) bytes: Option<u64>,
    pub(crate) duration: Duration,
    /// Pattern of the matched route.
    pub(crate) route: Option<&'a str>,
    pub(crate) request_id: Option<&'a HeaderValue>,
    /// `None` where the server takes no part in traces: no field at all.
    pub(crate) trace_id: Option<&'a str>,
    pub(crate) user_agent: Option<&'a HeaderValue>,
    pub(crate) referer: Option<&'a HeaderValue>,
}

/// A lane's formatting buffer and its cached time stamp.
pub(super) struct Line {
    pub(super) text: Vec<u8>,
    second: u64,
    /// `YYYY-MM-DDThh:mm:ss` of `second`.
    stamp: [u8; 19],
}

impl Line {
    pub(super) const fn new() -> Self {
        Self {
            text: Vec::new(),
            second: 0,
            stamp: *b"1970-01-01T00:00:00",
        }
    }

    /// Replaces the text by the line of `entry`.
    pub(super) fn format(&mut self, format: AccessLogFormat, entry: &Entry<'_>) {
        self.text.clear();
        match format {
            AccessLogFormat::Text => self.format_text(entry),
            AccessLogFormat::Json => self.format_json(entry),
        }
        self.text.push(b'\n');
    }

    fn format_text(&mut self, entry: &Entry<'_>) {
        self.push_peer(entry.peer);
        self.push(" - - [");
        self.push_time(entry.time);
        self.push("] \"");
        // A method is an HTTP token, which cannot hold a quote or a control.
        self.push(entry.method.as_str());
        self.push(" ");
        push_quoted(&mut self.text, entry.path.as_bytes());
        if let Some(query) = entry.query {
            self.push("?");
            push_quoted(&mut self.text, query.as_bytes());
        }
        self.push(" ");
        self.push(version_text(entry.version));
        self.push("\" ");
        self.push_number(entry.status.as_u16().into());
        self.push(" ");
        match entry.bytes {
            Some(bytes) => self.push_number(bytes),
            None => self.push("-"),
        }
        for value in [entry.referer, entry.user_agent] {
            self.push(" \"");
            push_quoted(&mut self.text, value.map_or(b"-", HeaderValue::as_bytes));
            self.push("\"");
        }
        self.push(" ");
        self.push_number(entry.duration.as_secs());
        self.push(".");
        self.push_padded(entry.duration.subsec_micros(), 6);
        self.push(" ");
        push_quoted(
            &mut self.text,
            entry.request_id.map_or(b"-", HeaderValue::as_bytes),
        );
        if let Some(trace_id) = entry.trace_id {
            self.push(" ");
            self.push(trace_id);
        }
    }

    fn format_json(&mut self, entry: &Entry<'_>) {
        self.push("{\"time\":\"");
        self.push_time(entry.time);
        self.push("\",\"peer\":\"");
        self.push_peer(entry.peer);
        self.push("\",\"method\":\"");
        self.push(entry.method.as_str());
        self.push("\",\"path\":");
        self.push_json(Some(entry.path.as_bytes()));
        self.push(",\"query\":");
        self.push_json(entry.query.map(str::as_bytes));
        self.push(",\"version\":\"");
        self.push(version_text(entry.version));
        self.push("\",\"status\":");
        self.push_number(entry.status.as_u16().into());
        self.push(",\"bytes\":");
        match entry.bytes {
            Some(bytes) => self.push_number(bytes),
            None => self.push("null"),
        }
        self.push(",\"duration_us\":");
        self.push_number(u64::try_from(entry.duration.as_micros()).unwrap_or(u64::MAX));
        self.push(",\"route\":");
        self.push_json(entry.route.map(str::as_bytes));
        for (key, value) in [
            (",\"request_id\":", entry.request_id),
            (",\"user_agent\":", entry.user_agent),
            (",\"referer\":", entry.referer),
        ] {
            self.push(key);
            self.push_json(value.map(HeaderValue::as_bytes));
        }
        if let Some(trace_id) = entry.trace_id {
            self.push(",\"trace_id\":\"");
            self.push(trace_id);
            self.push("\"");
        }
        self.push("}");
    }

    fn push(&mut self, text: &str) {
        self.text.extend_from_slice(text.as_bytes());
    }

    fn push_number(&mut self, number: u64) {
        self.push(itoa::Buffer::new().format(number));
    }

    fn push_padded(&mut self, number: u32, width: usize) {
        let mut buffer = itoa::Buffer::new();
        let digits = buffer.format(number);
        self.push(&"000000"[digits.len().min(width)..width]);
        self.push(digits);
    }

    fn push_peer(&mut self, peer: Peer) {
        if let Peer::Tcp(SocketAddr::V4(address)) = peer {
            // A fifth of the time that its `Display` takes.
            for (index, octet) in address.ip().octets().into_iter().enumerate() {
                if index > 0 {
                    self.push(".");
                }
                self.push_number(octet.into());
            }
            return;
        }
        write!(self.text, "{peer}").expect("writing to memory cannot fail");
    }

    fn push_json(&mut self, value: Option<&[u8]>) {
        match value {
            None => self.push("null"),
            Some(bytes) => {
                self.push("\"");
                push_json_escaped(&mut self.text, bytes);
                self.push("\"");
            }
        }
    }

    fn push_time(&mut self, time: SystemTime) {
        let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let second = since_epoch.as_secs();
        if second != self.second {
            self.second = second;
            self.stamp = stamp(second);
        }
        self.text.extend_from_slice(&self.stamp);
        self.push(".");
        self.push_padded(since_epoch.subsec_millis(), 3);
        self.push("Z");
    }
}

/// `YYYY-MM-DDThh:mm:ss` of a Unix time, in UTC; years above 9999 wrap.
fn stamp(second: u64) -> [u8; 19] {
    let (year, month, day) = civil_from_days(second / 86_400);
    let second_of_day = second % 86_400;
    let mut stamp = *b"0000-00-00T00:00:00";
    let fields = [
        (0, year / 100 % 100),
        (2, year % 100),
        (5, month),
        (8, day),
        (11, second_of_day / 3600),
        (14, second_of_day / 60 % 60),
        (17, second_of_day % 60),
    ];
    for (at, number) in fields {
        stamp[at] = b'0' + (number / 10) as u8;
        stamp[at + 1] = b'0' + (number % 10) as u8;
    }
    stamp
}

/// Year, month and day of a day since 1970-01-01 (Hinnant, `civil_from_days`).
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = (shifted_month + 2) % 12 + 1;
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

fn version_text(version: Version) -> &'static str {
    match version {
        Version::HTTP_09 => "HTTP/0.9",
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2",
        Version::HTTP_3 => "HTTP/3",
        _ => "HTTP/1.1",
    }
}

/// Whether a byte stands for itself in both formats.
const fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\'
}

/// Nearly always true; a loop without exit compiles to vector code.
fn all_plain(bytes: &[u8]) -> bool {
    bytes
        .iter()
        .fold(true, |plain, &byte| plain & is_plain(byte))
}

/// Appends `bytes`, at most [`MAX_FIELD_BYTES`] of them, for a quoted field.
fn push_quoted(line: &mut Vec<u8>, bytes: &[u8]) {
    let mut rest = &bytes[..bytes.len().min(MAX_FIELD_BYTES)];
    if all_plain(rest) {
        line.extend_from_slice(rest);
        rest = &[];
    }
    while let Some(at) = rest.iter().position(|&byte| !is_plain(byte)) {
        line.extend_from_slice(&rest[..at]);
        match rest[at] {
            byte @ (b'"' | b'\\') => line.extend_from_slice(&[b'\\', byte]),
            byte => line.extend_from_slice(&[b'\\', b'x', hex(byte >> 4), hex(byte & 15)]),
        }
        rest = &rest[at + 1..];
    }
    line.extend_from_slice(rest);
    push_cut_mark(line, bytes);
}

/// Appends `bytes`, at most [`MAX_FIELD_BYTES`] of them, for a JSON string.
///
/// All but printable ASCII becomes `\uNNNN`, above all U+0080 to U+009F, which
/// terminals obey; what is not UTF-8 becomes U+FFFD.
fn push_json_escaped(line: &mut Vec<u8>, bytes: &[u8]) {
    let mut rest = &bytes[..bytes.len().min(MAX_FIELD_BYTES)];
    if all_plain(rest) {
        line.extend_from_slice(rest);
        rest = &[];
    }
    while let Some(at) = rest.iter().position(|&byte| !is_plain(byte)) {
        line.extend_from_slice(&rest[..at]);
        rest = &rest[at..];
        let num_special = rest.iter().take_while(|&&byte| !is_plain(byte)).count();
        // Bytes of one character are all special or all plain: no cut inside one.
        for chunk in rest[..num_special].utf8_chunks() {
            for character in chunk.valid().chars() {
                match character {
                    '"' | '\\' => line.extend_from_slice(&[b'\\', character as u8]),
                    _ => push_unicode_escape(line, character),
                }
            }
            if !chunk.invalid().is_empty() {
                push_unicode_escape(line, char::REPLACEMENT_CHARACTER);
            }
        }
        rest = &rest[num_special..];
    }
    line.extend_from_slice(rest);
    push_cut_mark(line, bytes);
}

fn push_unicode_escape(line: &mut Vec<u8>, character: char) {
    for unit in character.encode_utf16(&mut [0; 2]) {
        line.extend_from_slice(b"\\u");
        for byte in unit.to_be_bytes() {
            line.extend_from_slice(&[hex(byte >> 4), hex(byte & 15)]);
        }
    }
}

fn push_cut_mark(line: &mut Vec<u8>, bytes: &[u8]) {
    if bytes.len() > MAX_FIELD_BYTES {
        line.extend_from_slice(b"...");
    }
}

fn hex(nibble: u8) -> u8 {
    b"0123456789abcdef"[usize::from(nibble)]
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(in super::super) const PLAIN: Entry<'static> = Entry {
        time: UNIX_EPOCH,
        peer: Peer::Unix,
        method: &Method::GET,
        path: "/items/7",
        query: None,
        version: Version::HTTP_11,
        status: StatusCode::OK,
        bytes: None,
        duration: Duration::from_micros(1_000_042),
        route: None,
        request_id: None,
        trace_id: None,
        user_agent: None,
        referer: None,
    };

    /// The line of one entry.
    fn formatted(format: AccessLogFormat, entry: &Entry<'_>) -> String {
        let mut line = Line::new();
        line.format(format, entry);
        String::from_utf8(line.text).unwrap()
    }

    #[test]
    fn text_is_the_combined_format_with_duration_and_id() {
        let id = HeaderValue::from_static("abc");
        let agent = HeaderValue::from_static("curl/8");
        let referer = HeaderValue::from_static("https://a.example/");
        let entry = Entry {
            time: UNIX_EPOCH + Duration::from_millis(1_767_323_045_007),
            peer: Peer::Tcp("192.0.2.7:5000".parse().unwrap()),
            query: Some("a=1"),
            bytes: Some(12),
            route: Some("/items/{id}"),
            request_id: Some(&id),
            user_agent: Some(&agent),
            referer: Some(&referer),
            ..PLAIN
        };
        assert_eq!(
            formatted(AccessLogFormat::Text, &entry),
            "192.0.2.7 - - [2026-01-02T03:04:05.007Z] \"GET /items/7?a=1 HTTP/1.1\" 200 12 \
             \"https://a.example/\" \"curl/8\" 1.000042 abc\n"
        );
        assert_eq!(
            formatted(AccessLogFormat::Json, &entry),
            "{\"time\":\"2026-01-02T03:04:05.007Z\",\"peer\":\"192.0.2.7\",\"method\":\"GET\",\
             \"path\":\"/items/7\",\"query\":\"a=1\",\"version\":\"HTTP/1.1\",\"status\":200,\
             \"bytes\":12,\"duration_us\":1000042,\"route\":\"/items/{id}\",\
             \"request_id\":\"abc\",\"user_agent\":\"curl/8\",\
             \"referer\":\"https://a.example/\"}\n"
        );
    }

    #[test]
    fn what_is_missing_is_a_dash_or_null() {
        assert_eq!(
            formatted(AccessLogFormat::Text, &PLAIN),
            "unix - - [1970-01-01T00:00:00.000Z] \"GET /items/7 HTTP/1.1\" 200 - \"-\" \"-\" \
             1.000042 -\n"
        );
        let json = formatted(AccessLogFormat::Json, &PLAIN);
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        for key in [
            "query",
            "bytes",
            "route",
            "request_id",
            "user_agent",
            "referer",
        ] {
            assert!(value[key].is_null(), "{key}");
        }
    }

    #[test]
    fn a_trace_id_comes_last() {
        let trace_id = Some("4bf92f3577b34da6a3ce929d0e0e4736");
        let entry = Entry { trace_id, ..PLAIN };
        let text = formatted(AccessLogFormat::Text, &entry);
        assert!(text.ends_with(" 1.000042 - 4bf92f3577b34da6a3ce929d0e0e4736\n"));
        let json = formatted(AccessLogFormat::Json, &entry);
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["trace_id"].as_str(), trace_id);
    }

    #[test]
    fn every_kind_of_peer_has_a_form() {
        for (peer, expected) in [
            (
                Peer::Tcp("192.0.2.7:5000".parse().unwrap()),
                "192.0.2.7 - -",
            ),
            (
                Peer::Tcp("[2001:db8::1]:80".parse().unwrap()),
                "2001:db8::1 - -",
            ),
            (Peer::Unix, "unix - -"),
            (Peer::Unknown, "- - -"),
        ] {
            let line = formatted(AccessLogFormat::Text, &Entry { peer, ..PLAIN });
            assert!(line.starts_with(expected), "{line}");
        }
    }

    #[test]
    fn clients_cannot_forge_lines_or_drive_a_terminal() {
        let agent = HeaderValue::from_bytes(b"\x80\xff \" \\ \t \xc2\x9b2J e\xcc\x81").unwrap();
        let entry = Entry {
            path: "/%0a%1b[2J\n\x1b[2J\u{9b}\x7f",
            query: Some("\r\n\"HTTP/1.1\" 200"),
            user_agent: Some(&agent),
            referer: Some(&agent),
            request_id: Some(&agent),
            ..PLAIN
        };
        let text = formatted(AccessLogFormat::Text, &entry);
        assert_one_printable_line(text.as_bytes());
        assert!(
            text.contains(
                "\"GET /%0a%1b[2J\\x0a\\x1b[2J\\xc2\\x9b\\x7f?\\x0d\\x0a\\\"HTTP/1.1\\\" 200 "
            ),
            "{text}"
        );
        assert!(
            text.contains("\"\\x80\\xff \\\" \\\\ \\x09 \\xc2\\x9b2J e\\xcc\\x81\""),
            "{text}"
        );

        let json = formatted(AccessLogFormat::Json, &entry);
        assert_one_printable_line(json.as_bytes());
        assert!(!json.contains("\\x"), "{json}");
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["path"], entry.path);
        assert_eq!(value["query"], entry.query.unwrap());
        assert_eq!(
            value["user_agent"],
            "\u{fffd}\u{fffd} \" \\ \t \u{9b}2J e\u{301}"
        );
    }

    fn assert_one_printable_line(line: &[u8]) {
        let (end, text) = line.split_last().unwrap();
        assert_eq!(*end, b'\n');
        let printable = text.iter().all(|byte| matches!(byte, b' '..=b'~'));
        assert!(printable, "{:?}", String::from_utf8_lossy(line));
    }

    proptest! {
        #[test]
        fn any_input_is_one_printable_line(
            path in ".{0,40}",
            header in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let header = HeaderValue::from_bytes(&header).ok();
            let entry = Entry { path: &path, user_agent: header.as_ref(), ..PLAIN };
            let mut line = Line::new();
            line.format(AccessLogFormat::Text, &entry);
            assert_one_printable_line(&line.text);
            line.format(AccessLogFormat::Json, &entry);
            assert_one_printable_line(&line.text);
            let value: serde_json::Value = serde_json::from_slice(&line.text).unwrap();
            prop_assert_eq!(value["path"].as_str(), Some(path.as_str()));
            let expected = header.map(|value| {
                String::from_utf8_lossy(value.as_bytes()).into_owned()
            });
            prop_assert_eq!(value["user_agent"].as_str(), expected.as_deref());
        }
    }

    #[test]
    fn a_long_field_is_cut() {
        let path = "/".repeat(MAX_FIELD_BYTES + 1);
        let entry = Entry {
            path: &path,
            ..PLAIN
        };
        for format in [AccessLogFormat::Text, AccessLogFormat::Json] {
            let line = formatted(format, &entry);
            assert!(line.contains("//..."));
            assert!(line.len() < MAX_FIELD_BYTES + 400);
        }
    }

    #[test]
    fn time_stamps_are_right_at_the_edges_of_the_calendar() {
        // `date -u -d @N +%FT%T` of GNU coreutils.
        for (second, expected) in [
            (0, "1970-01-01T00:00:00"),
            (68_169_599, "1972-02-28T23:59:59"),
            (68_169_600, "1972-02-29T00:00:00"),
            (951_868_800, "2000-03-01T00:00:00"),
            (1_709_251_199, "2024-02-29T23:59:59"),
            (1_798_761_599, "2026-12-31T23:59:59"),
            (4_107_542_400, "2100-03-01T00:00:00"),
            (253_402_300_799, "9999-12-31T23:59:59"),
        ] {
            assert_eq!(stamp(second), expected.as_bytes(), "{second}");
        }
        // A far time must not panic.
        stamp(u64::MAX);
    }
}
