//! Where a request ends: RFC 9112 §2 to §7, read strictly.
//!
//! A request whose end two readers could place differently is refused, its
//! connection closed and nothing behind it read: no smuggling (CWE-444).

use crate::support::Failures;
use crate::support::client::{Client, End, get, show};
use crate::support::exchange::{Due, SENTINEL, answered, refused};
use crate::support::server::Server;

/// Name, bytes, and the statuses of which one must come.
type Refusal = (&'static str, &'static [u8], &'static [u16]);
/// Name, bytes, and the answers due in order.
type Answer = (&'static str, &'static [u8], &'static [Due<'static>]);

const BAD: &[u16] = &[400];
const CODING: &[u16] = &[400, 501];
const SIZE: &[u16] = &[400, 413];
const VERSION: &[u16] = &[505];
const JUNK: &[u16] = &[400, 505];

/// `name => bytes, expected;` a line.
macro_rules! table {
    ($($name:literal => $bytes:expr, $expected:expr;)+) => {
        &[$(($name, $bytes, $expected)),+]
    };
}

/// A request line and Host, before the lines of interest.
macro_rules! head {
    ($($lines:literal),+ $(,)?) => {
        concat!("POST /anything HTTP/1.1\r\nHost: localhost\r\n", $($lines),+).as_bytes()
    };
}

/// A chunked request, before its chunks.
macro_rules! chunked {
    ($($body:literal),+ $(,)?) => {
        concat!(
            "POST /anything HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
            $($body),+
        )
        .as_bytes()
    };
}

const WRONG_LENGTHS: &[Refusal] = table! {
    "length, then coding" => head!("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), BAD;
    "coding, then length" => head!("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"), BAD;
    "coding and length 0" => head!("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n"), BAD;
    "plus sign" => head!("Content-Length: +5\r\n\r\nhello"), BAD;
    "minus sign" => head!("Content-Length: -5\r\n\r\nhello"), BAD;
    "hexadecimal" => head!("Content-Length: 0x5\r\n\r\nhello"), BAD;
    "underscore" => head!("Content-Length: 5_0\r\n\r\nhello"), BAD;
    "fraction" => head!("Content-Length: 5.0\r\n\r\nhello"), BAD;
    "exponent" => head!("Content-Length: 1e1\r\n\r\nhello"), BAD;
    "empty" => head!("Content-Length: \r\n\r\nhello"), BAD;
    "letters" => head!("Content-Length: five\r\n\r\nhello"), BAD;
    "inner space" => head!("Content-Length: 5 5\r\n\r\nhello"), BAD;
    "semicolon" => head!("Content-Length: 5;\r\n\r\nhello"), BAD;
    "vertical tab" => head!("Content-Length: \x0b5\r\n\r\nhello"), BAD;
    "two lines, equal" => head!("Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello"), BAD;
    "two lines, different" => head!("Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello"), BAD;
    "list, equal" => head!("Content-Length: 5, 5\r\n\r\nhello"), BAD;
    "list, different" => head!("Content-Length: 5, 6\r\n\r\nhello"), BAD;
    "largest u64" => b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 18446744073709551615\r\n\r\n[]", SIZE;
    "larger than u64" => head!("Content-Length: 18446744073709551616\r\n\r\nhello"), SIZE;
    "100 digits" => head!("Content-Length: 10000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000\r\n\r\nhello"), SIZE;
    "wide digit" => head!("Content-Length: \u{ff15}\r\n\r\nhello"), BAD;
    "GET too" => b"GET /hello HTTP/1.1\r\nHost: localhost\r\nContent-Length: +0\r\n\r\n", BAD;
};

const WRONG_CODINGS: &[Refusal] = table! {
    "two lines" => head!("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), CODING;
    "two lines, identity" => head!("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n"), CODING;
    "list, twice" => head!("Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"), CODING;
    "list, identity last" => head!("Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"), CODING;
    "list, identity first" => head!("Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n"), CODING;
    "identity" => head!("Transfer-Encoding: identity\r\n\r\n"), CODING;
    "gzip, chunked" => head!("Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"), CODING;
    "chunked, gzip" => head!("Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n"), CODING;
    "xchunked" => head!("Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"), CODING;
    "chunkedx" => head!("Transfer-Encoding: chunkedx\r\n\r\n0\r\n\r\n"), CODING;
    "quoted" => head!("Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n"), CODING;
    "parameter" => head!("Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n"), CODING;
    "empty" => head!("Transfer-Encoding:\r\n\r\n0\r\n\r\n"), CODING;
    "comma first" => head!("Transfer-Encoding: ,chunked\r\n\r\n0\r\n\r\n"), CODING;
    "vertical tab" => head!("Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n"), CODING;
    "space before colon" => head!("Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"), BAD;
    "folded" => head!("Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n"), BAD;
    "in HTTP/1.0" => b"POST /anything HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", BAD;
    "in HTTP/1.0, kept alive" => b"POST /anything HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", BAD;
    "on GET" => b"GET /hello HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n", CODING;
};

const BROKEN_CHUNKS: &[Refusal] = table! {
    "0x prefix" => chunked!("0x3\r\nabc\r\n0\r\n\r\n"), BAD;
    "plus sign" => chunked!("+3\r\nabc\r\n0\r\n\r\n"), BAD;
    "minus sign" => chunked!("-3\r\nabc\r\n0\r\n\r\n"), BAD;
    "underscore" => chunked!("3_0\r\nabc\r\n0\r\n\r\n"), BAD;
    "no size" => chunked!("\r\nabc\r\n0\r\n\r\n"), BAD;
    "only an extension" => chunked!(";a=b\r\nabc\r\n0\r\n\r\n"), BAD;
    "no hexadecimal digit" => chunked!("g\r\nabc\r\n0\r\n\r\n"), BAD;
    "space before size" => chunked!(" 3\r\nabc\r\n0\r\n\r\n"), BAD;
    "space inside size" => chunked!("1 0\r\nabc\r\n0\r\n\r\n"), BAD;
    "space after size" => chunked!("3 \r\nabc\r\n0\r\n\r\n"), BAD;
    "comma after size" => chunked!("3,a\r\nabc\r\n0\r\n\r\n"), BAD;
    "17 digits" => chunked!("fffffffffffffffff\r\nabc\r\n0\r\n\r\n"), SIZE;
    "wraps to 3" => chunked!("10000000000000003\r\nabc\r\n0\r\n\r\n"), SIZE;
    "bare LF after size" => chunked!("3\nabc\r\n0\r\n\r\n"), BAD;
    "bare CR after size" => chunked!("3\rabc\r\n0\r\n\r\n"), BAD;
    "two CR after size" => chunked!("3\r\r\nabc\r\n0\r\n\r\n"), BAD;
    "bare LF after data" => chunked!("3\r\nabc\n0\r\n\r\n"), BAD;
    "nothing after data" => chunked!("3\r\nabc0\r\n\r\n"), BAD;
    "two other bytes after data" => chunked!("3\r\nabcXX0\r\n\r\n"), BAD;
    "CR and another byte after data" => chunked!("3\r\nabc\rX0\r\n\r\n"), BAD;
    "bare LF after last size" => chunked!("3\r\nabc\r\n0\n\r\n"), BAD;
    "bare LF at the end" => chunked!("3\r\nabc\r\n0\r\n\n"), BAD;
    "data longer than size" => chunked!("3\r\nabcde\r\n0\r\n\r\n"), BAD;
    "data shorter than size" => chunked!("5\r\nabc\r\n0\r\n\r\n"), BAD;
    "NUL in extension" => chunked!("3;a=\x00\r\nabc\r\n0\r\n\r\n"), BAD;
    "control in extension" => chunked!("3;a=\x01\r\nabc\r\n0\r\n\r\n"), BAD;
    "bare CR in extension" => chunked!("3;a\rb\r\nabc\r\n0\r\n\r\n"), BAD;
    "bare LF in extension" => chunked!("3;a\nb\r\nabc\r\n0\r\n\r\n"), BAD;
    "bare LF in last extension" => chunked!("0;a\n\r\n"), BAD;
    "trailer without colon" => chunked!("0\r\nTrailer\r\n\r\n"), BAD;
    "trailer with a space before colon" => chunked!("0\r\nTrailer : x\r\n\r\n"), BAD;
    "trailer without name" => chunked!("0\r\n: x\r\n\r\n"), BAD;
    "folded trailer" => chunked!("0\r\nTrailer: x\r\n y\r\n\r\n"), BAD;
    "bare LF in trailer" => chunked!("0\r\nTrailer: x\n\r\n"), BAD;
    "bare CR in trailer" => chunked!("0\r\nTrailer: x\ry\r\n\r\n"), BAD;
    "NUL in trailer" => chunked!("0\r\nTrailer: \x00\r\n\r\n"), BAD;
    "space in trailer name" => chunked!("0\r\nTrai ler: x\r\n\r\n"), BAD;
};

const WRONG_LINE_ENDS: &[Refusal] = table! {
    "all bare LF" => b"GET /hello HTTP/1.1\nHost: localhost\n\n", BAD;
    "after the request line" => b"GET /hello HTTP/1.1\nHost: localhost\r\n\r\n", BAD;
    "after a header" => b"GET /hello HTTP/1.1\r\nHost: localhost\nX: y\r\n\r\n", BAD;
    "at the end" => b"GET /hello HTTP/1.1\r\nHost: localhost\r\n\n", BAD;
    "last header and end" => b"GET /hello HTTP/1.1\r\nHost: localhost\n\n", BAD;
    "bare LF in a value" => b"GET /hello HTTP/1.1\r\nHost: localhost\r\nX: a\nb\r\n\r\n", BAD;
    "bare CR in a value" => b"GET /hello HTTP/1.1\r\nHost: localhost\r\nX: a\rb\r\n\r\n", BAD;
    "bare CR at a value's end" => b"GET /hello HTTP/1.1\r\nHost: localhost\r\nX: a\r\r\n\r\n", BAD;
    "bare CR in the target" => b"GET /he\rllo HTTP/1.1\r\nHost: localhost\r\n\r\n", BAD;
    "bare CR after the version" => b"GET /hello HTTP/1.1\rHost: localhost\r\n\r\n", BAD;
    "CR CR LF at the end" => b"GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\r\n", BAD;
    "all bare CR" => b"GET /hello HTTP/1.1\rHost: localhost\r\r", BAD;
    "bare LF before the request" => b"\nGET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n", BAD;
    "bare CR before the request" => b"\rGET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n", BAD;
    "folded with a space" => head!("X: a\r\n b\r\n\r\n"), BAD;
    "folded with a tab" => head!("X: a\r\n\tb\r\n\r\n"), BAD;
    "first header folded" => b"GET /hello HTTP/1.1\r\n Host: localhost\r\n\r\n", BAD;
    "blank line with a space" => head!("X: a\r\n \r\n\r\n"), BAD;
};

const BROKEN_HEADERS: &[Refusal] = table! {
    "NUL in a name" => head!("X\x00: y\r\n\r\n"), BAD;
    "NUL in a value" => head!("X: a\x00b\r\n\r\n"), BAD;
    "control in a value" => head!("X: a\x01b\r\n\r\n"), BAD;
    "ESC in a value" => head!("X: a\x1bb\r\n\r\n"), BAD;
    "DEL in a value" => head!("X: a\x7fb\r\n\r\n"), BAD;
    "space before colon" => head!("X : y\r\n\r\n"), BAD;
    "tab before colon" => head!("X\t: y\r\n\r\n"), BAD;
    "space in a name" => head!("X Y: z\r\n\r\n"), BAD;
    "empty name" => head!(": y\r\n\r\n"), BAD;
    "no colon" => head!("X\r\n\r\n"), BAD;
    "parenthesis in a name" => head!("X(Y): z\r\n\r\n"), BAD;
    "quote in a name" => head!("X\"Y: z\r\n\r\n"), BAD;
    "slash in a name" => head!("X/Y: z\r\n\r\n"), BAD;
    "non-ASCII in a name" => head!("X\u{e9}: z\r\n\r\n"), BAD;
};

const BROKEN_REQUEST_LINES: &[Refusal] = table! {
    "two spaces after the method" => b"GET  /hello HTTP/1.1\r\nHost: localhost\r\n\r\n", BAD;
    "two spaces before the version" => b"GET /hello  HTTP/1.1\r\nHost: localhost\r\n\r\n", BAD;
    "space at the start" => b" GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n", BAD;
    "space at the end" => b"GET /hello HTTP/1.1 \r\nHost: localhost\r\n\r\n", BAD;
    "tabs" => b"GET\t/hello\tHTTP/1.1\r\nHost: localhost\r\n\r\n", BAD;
    "space in the target" => b"GET /he llo HTTP/1.1\r\nHost: localhost\r\n\r\n", BAD;
    "NUL in the method" => b"GE\0T /hello HTTP/1.1\r\nHost: localhost\r\n\r\n", BAD;
    "parenthesis in the method" => b"GE(T /hello HTTP/1.1\r\nHost: localhost\r\n\r\n", BAD;
    "non-ASCII method" => b"GE\xc3\x89T /hello HTTP/1.1\r\nHost: localhost\r\n\r\n", BAD;
    "no target" => b"GET HTTP/1.1\r\nHost: localhost\r\n\r\n", BAD;
    "no version" => b"GET /hello\r\nHost: localhost\r\n\r\n", JUNK;
    "HTTP/0.9" => b"GET /hello HTTP/0.9\r\nHost: localhost\r\n\r\n", JUNK;
    "HTTP/1.2" => b"GET /hello HTTP/1.2\r\nHost: localhost\r\n\r\n", VERSION;
    "HTTP/2.0" => b"GET /hello HTTP/2.0\r\nHost: localhost\r\n\r\n", VERSION;
    "HTTP/3.0" => b"GET /hello HTTP/3.0\r\nHost: localhost\r\n\r\n", VERSION;
    "HTTP/9.9" => b"GET /hello HTTP/9.9\r\nHost: localhost\r\n\r\n", VERSION;
    "HTTP/1.10" => b"GET /hello HTTP/1.10\r\nHost: localhost\r\n\r\n", JUNK;
    "HTTP/01.1" => b"GET /hello HTTP/01.1\r\nHost: localhost\r\n\r\n", JUNK;
    "HTTP/1." => b"GET /hello HTTP/1.\r\nHost: localhost\r\n\r\n", JUNK;
    "HTTP/11" => b"GET /hello HTTP/11\r\nHost: localhost\r\n\r\n", JUNK;
    "HTTP/1.1x" => b"GET /hello HTTP/1.1x\r\nHost: localhost\r\n\r\n", JUNK;
    "http/1.1" => b"GET /hello http/1.1\r\nHost: localhost\r\n\r\n", JUNK;
    "HTTP 1.1" => b"GET /hello HTTP 1.1\r\nHost: localhost\r\n\r\n", JUNK;
    "other protocol" => b"GET /hello RTSP/1.0\r\nHost: localhost\r\n\r\n", JUNK;
    "binary" => b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", BAD;
    "CONNECT" => b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost:80\r\n\r\n", &[400, 405];
};

const VALID_BODIES: &[Answer] = table! {
    "length" => head!("Content-Length: 5\r\n\r\nhello"), &[(200, "\"body_length\":5")];
    "length 0" => head!("Content-Length: 0\r\n\r\n"), &[(200, "\"body_length\":0")];
    "leading zeros" => head!("Content-Length: 005\r\n\r\nhello"), &[(200, "\"body_length\":5")];
    "space around the length" => head!("Content-Length:\t 5 \t\r\n\r\nhello"), &[(200, "\"body_length\":5")];
    "no length, no body" => head!("\r\n"), &[(200, "\"body_length\":0")];
    "length on GET" => b"GET /anything HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nhi", &[(200, "\"body_length\":2")];
    "length on DELETE" => b"DELETE /anything HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nhi", &[(200, "\"body_length\":2")];
    "body that looks like a request" => head!("Content-Length: 35\r\n\r\nGET /hello HTTP/1.1\r\nHost: evil\r\n\r\n"), &[(200, "\"body_length\":35")];
    "chunk" => chunked!("5\r\nhello\r\n0\r\n\r\n"), &[(200, "\"body_length\":5")];
    "chunks" => chunked!("1\r\na\r\n2\r\nbc\r\n0\r\n\r\n"), &[(200, "\"body_length\":3")];
    "no chunk" => chunked!("0\r\n\r\n"), &[(200, "\"body_length\":0")];
    "upper-case size" => chunked!("A\r\n0123456789\r\n0\r\n\r\n"), &[(200, "\"body_length\":10")];
    "leading zeros in size" => chunked!("00000005\r\nhello\r\n000\r\n\r\n"), &[(200, "\"body_length\":5")];
    "extension" => chunked!("5;a=b\r\nhello\r\n0;c\r\n\r\n"), &[(200, "\"body_length\":5")];
    "quoted extension" => chunked!("5;a=\"b;c\"\r\nhello\r\n0\r\n\r\n"), &[(200, "\"body_length\":5")];
    "space around an extension" => chunked!("5 ; a = b\r\nhello\r\n0\r\n\r\n"), &[(200, "\"body_length\":5")];
    "trailers" => chunked!("5\r\nhello\r\n0\r\nX-Sum: 1\r\nX-Other:\r\n\r\n"), &[(200, "\"body_length\":5")];
    "Chunked" => head!("Transfer-Encoding: Chunked\r\n\r\n0\r\n\r\n"), &[(200, "\"body_length\":0")];
    "CHUNKED" => head!("transfer-encoding:CHUNKED\r\n\r\n1\r\na\r\n0\r\n\r\n"), &[(200, "\"body_length\":1")];
    "chunked on GET" => b"GET /anything HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", &[(200, "\"body_length\":1")];
    "another header's name" => head!("Transfer_Encoding: chunked\r\nContent-Length: 5\r\n\r\nhello"), &[(200, "\"body_length\":5")];
    "JSON" => b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n{\"a\":1}", &[(200, "{\"a\":1}")];
    "JSON in chunks" => b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{\"a\r\n4\r\n\":1}\r\n0\r\n\r\n", &[(200, "{\"a\":1}")];
};

const VALID_HEADS: &[Answer] = table! {
    "no space after colon" => b"GET /hello HTTP/1.1\r\nHost:localhost\r\n\r\n", &[(200, "")];
    "spaces and tabs around a value" => b"GET /hello HTTP/1.1\r\nHost: \t localhost \t \r\n\r\n", &[(200, "")];
    "empty value" => head!("X-Empty:\r\n\r\n"), &[(200, "\"x-empty\":\"\"")];
    "blank value" => head!("X-Empty: \t\r\n\r\n"), &[(200, "\"x-empty\":\"\"")];
    "lower-case host" => b"GET /hello HTTP/1.1\r\nhost: localhost\r\n\r\n", &[(200, "")];
    "upper-case HOST" => b"GET /hello HTTP/1.1\r\nHOST: localhost\r\n\r\n", &[(200, "")];
    "Host last" => b"GET /hello HTTP/1.1\r\nX: y\r\nHost: localhost\r\n\r\n", &[(200, "")];
    "every token character" => head!("!#$%&'*+-.^_`|~09aZ: y\r\n\r\n"), &[(200, "!#$%&'*+-.^_`|~09az")];
    "latin-1 value" => b"GET /anything HTTP/1.1\r\nHost: localhost\r\nX-Name: caf\xe9\r\n\r\n", &[(200, "x-name")];
    "UTF-8 value" => head!("X-Name: caf\u{e9}\r\n\r\n"), &[(200, "x-name")];
    "quotes and colons in a value" => head!("X: \"a:b\", c\r\n\r\n"), &[(200, "")];
    "tab in a value" => head!("X: a\tb\r\n\r\n"), &[(200, "")];
    "repeated header" => head!("X: a\r\nX: b\r\n\r\n"), &[(200, "")];
    "unknown method" => b"M-SEARCH /anything HTTP/1.1\r\nHost: localhost\r\n\r\n", &[(200, "\"M-SEARCH\"")];
    "lower-case method is another one" => b"get /hello HTTP/1.1\r\nHost: localhost\r\n\r\n", &[(405, "")];
    "one empty line first" => b"\r\nGET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n", &[(200, "")];
    "TE" => head!("TE: trailers\r\nConnection: TE\r\n\r\n"), &[(200, "")];
    "offered upgrade" => b"GET /hello HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: foo/1\r\n\r\n", &[(200, "")];
    "h2c upgrade is ignored" => b"GET /hello HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n", &[(200, "")];
};

const PIPELINES: &[Answer] = table! {
    "two" => b"GET /anything/1 HTTP/1.1\r\nHost: a\r\n\r\nGET /anything/2 HTTP/1.1\r\nHost: a\r\n\r\n", &[(200, "/anything/1"), (200, "/anything/2")];
    "bodies between" => b"POST /anything/1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcPOST /anything/2 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET /anything/3 HTTP/1.1\r\nHost: a\r\n\r\n", &[(200, "/anything/1"), (200, "/anything/2"), (200, "/anything/3")];
    "an empty line between" => b"GET /anything/1 HTTP/1.1\r\nHost: a\r\n\r\n\r\nGET /anything/2 HTTP/1.1\r\nHost: a\r\n\r\n", &[(200, "/anything/1"), (200, "/anything/2")];
    "errors between" => b"GET /nowhere HTTP/1.1\r\nHost: a\r\n\r\nPUT /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET /anything/3 HTTP/1.1\r\nHost: a\r\n\r\n", &[(404, ""), (405, ""), (200, "/anything/3")];
};

fn check_refused(cases: &[Refusal]) {
    let server = Server::start(&[]);
    let mut failures = Failures::default();
    for (name, bytes, statuses) in cases {
        failures.case(name, refused(server.address(), bytes, statuses));
    }
    failures.finish();
}

fn check_answered(cases: &[Answer]) {
    let server = Server::start(&[]);
    let mut failures = Failures::default();
    for (name, bytes, due) in cases {
        failures.case(name, answered(server.address(), bytes, due));
    }
    failures.finish();
}

#[test]
fn two_lengths_or_an_unclear_one_are_refused() {
    check_refused(WRONG_LENGTHS);
}

#[test]
fn transfer_codings_other_than_chunked_once_are_refused() {
    check_refused(WRONG_CODINGS);
}

#[test]
fn broken_chunks_are_refused() {
    check_refused(BROKEN_CHUNKS);
}

#[test]
fn line_ends_other_than_crlf_are_refused() {
    check_refused(WRONG_LINE_ENDS);
}

#[test]
fn broken_header_lines_are_refused() {
    check_refused(BROKEN_HEADERS);
}

#[test]
fn broken_request_lines_are_refused() {
    check_refused(BROKEN_REQUEST_LINES);
}

#[test]
fn endless_empty_lines_are_refused() {
    let server = Server::start(&[]);
    let bytes = "\r\n".repeat(1000) + &get("/hello");
    refused(server.address(), bytes.as_bytes(), BAD).unwrap();
}

#[test]
fn bodies_of_every_valid_form_are_read() {
    check_answered(VALID_BODIES);
}

#[test]
fn odd_but_valid_heads_are_answered() {
    check_answered(VALID_HEADS);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    check_answered(PIPELINES);
}

#[test]
fn a_refusal_comes_after_the_answers_before_it() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    client.send(
        [
            get("/hello").as_bytes(),
            b"GET / HTTP/1.1\r\n\r\n",
            SENTINEL,
        ]
        .concat(),
    );
    assert_eq!(client.read().unwrap().status, 200);
    assert_eq!(client.read().unwrap().status, 400);
    assert_eq!(client.read_to_end(), (Vec::new(), End::Closed));
}

#[test]
fn an_extension_of_64_kib_is_refused() {
    let server = Server::start(&[]);
    let mut bytes = chunked!("3;a=").to_vec();
    bytes.extend(vec![b'x'; 64 * 1024]);
    bytes.extend(b"\r\nabc\r\n0\r\n\r\n");
    refused(server.address(), &bytes, &[400, 413, 431]).unwrap();
}

#[test]
fn many_extensions_are_refused() {
    let server = Server::start(&[]);
    let mut bytes = chunked!("").to_vec();
    bytes.extend("1;a=0123456789\r\nx\r\n".repeat(4096).bytes());
    bytes.extend(b"0\r\n\r\n");
    refused(server.address(), &bytes, &[400, 413, 431]).unwrap();
}

#[test]
fn trailers_are_bounded() {
    let server = Server::start(&[]);
    let mut failures = Failures::default();
    for (name, trailers) in [
        ("2,000 lines", "X: y\r\n".repeat(2000)),
        ("one of 33 KiB", format!("X: {}\r\n", "y".repeat(33 * 1024))),
        ("one of 64 KiB", format!("X: {}\r\n", "y".repeat(64 * 1024))),
        (
            "83 of 400 bytes",
            format!("X: {}\r\n", "y".repeat(395)).repeat(83),
        ),
    ] {
        let bytes = [chunked!("0\r\n"), trailers.as_bytes(), b"\r\n"].concat();
        failures.case(name, refused(server.address(), &bytes, &[400, 431]));
    }
    failures.finish();
}

/// The bound is that of a head, not one of the parser behind it.
#[test]
fn trailers_up_to_the_limit_of_a_head_are_read() {
    let server = Server::start(&[]);
    let mut failures = Failures::default();
    for (num_lines, line_bytes) in [(1, 20_000), (1, 32_000), (50, 400), (90, 350)] {
        let name = format!("{num_lines} of {line_bytes} bytes");
        let line = format!("X: {}\r\n", "y".repeat(line_bytes - 5));
        let trailers = line.repeat(num_lines);
        let bytes = [chunked!("1\r\na\r\n0\r\n"), trailers.as_bytes(), b"\r\n"].concat();
        let due = [(200, "\"body_length\":1")];
        failures.case(&name, answered(server.address(), &bytes, &due));
    }
    failures.finish();
}

/// Framing fields in trailers are dropped or refused, never merged.
#[test]
fn trailers_do_not_reach_the_handler_as_headers() {
    let server = Server::start(&[]);
    for trailer in [
        "Content-Length: 7",
        "Transfer-Encoding: gzip",
        "Host: evil",
        "X-Admin: 1",
    ] {
        let mut client = server.connect();
        client.send([chunked!("0\r\n"), trailer.as_bytes(), b"\r\n\r\n"].concat());
        let response = client.read().unwrap();
        let text = response.text().to_lowercase();
        let name = trailer.split(':').next().unwrap().to_lowercase();
        assert!(
            matches!(response.status, 200 | 400),
            "{trailer}: {response:?}"
        );
        let is_new = name != "host" && name != "transfer-encoding";
        assert!(
            response.status == 400 || !is_new || !text.contains(&name),
            "{trailer}: {text}"
        );
        assert!(
            !text.contains("evil") && !text.contains("gzip"),
            "{trailer}: {text}"
        );
    }
}

/// Answers do not depend on how TCP cuts the stream.
#[test]
fn every_cut_of_the_stream_gives_the_same_answers() {
    const VALID: &[u8] = b"POST /anything/1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc\
        POST /anything/2 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
        3;x=y\r\nabc\r\n0\r\nX: y\r\n\r\n";
    const BROKEN: &[u8] = b"GET /anything/1 HTTP/1.1\r\nHost: a\r\nX: y\r\n folded\r\n\r\n";
    let server = Server::start(&[]);
    let statuses = |bytes: &[u8], cut: usize| {
        let mut client = server.connect();
        client.send(&bytes[..cut]);
        client.send([&bytes[cut..], SENTINEL].concat());
        let answers = std::iter::from_fn(|| client.read().ok());
        answers.map(|answer| answer.status).collect::<Vec<_>>()
    };
    let mut failures = Failures::default();
    for (bytes, due) in [(VALID, vec![200, 200, 200]), (BROKEN, vec![400])] {
        for cut in 1..bytes.len() {
            let got = statuses(bytes, cut);
            let shown = show(&bytes[..cut]);
            let same = if got == due {
                Ok(())
            } else {
                Err(format!("{got:?} cut after {shown}"))
            };
            failures.case("cut", same);
        }
    }
    failures.finish();
}

/// A response to HTTP/1.0 is never chunked and closes unless asked otherwise.
#[test]
fn http_1_0_gets_a_plain_answer_and_a_close() {
    let server = Server::start(&[]);
    let mut client: Client = server.connect();
    client.send(b"GET /hello HTTP/1.0\r\n\r\n");
    let response = client.read().unwrap();
    assert_eq!(response.status, 200);
    assert_eq!(response.header("transfer-encoding"), None);
    assert_eq!(client.read_to_end(), (Vec::new(), End::Closed));
}
