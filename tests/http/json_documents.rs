//! JSON over the wire, document by document: what RFC 8259 allows is taken, what it does not is 400.
//!
//! Classed as the `JSONTestSuite` does (`y`, `n`, and `i` where the RFC leaves it open), written anew.
//! Each document goes to the route that parses (`/echo`) and to the one that checks while it reads
//! (`/validate`): two readers that have to agree about what is JSON. Of what is open the answer is
//! fixed here too, so that it never changes unseen.

use serde_json::Value;

use crate::support::Failures;
use crate::support::client::Client;
use crate::support::server::Server;

/// Must be taken.
const VALID: &[&[u8]] = &[
    // Structure.
    b"[]",
    b"{}",
    b"[[]   ]",
    b" [ ] ",
    b"\t\n\r [1]\r\n\t ",
    b"[1,null,null,null,2]",
    b"[[[[[[[[1]]]]]]]]",
    b"[1\n]",
    b" [1]",
    b"[2] ",
    b"{\"\":0}",
    b"{\"a\":[]}",
    b"{\"a\":{}}",
    b"{\"a\":\"b\",\"c\":\"d\"}",
    b"{\"a\":\"b\",\"a\":\"c\"}",
    b"{\"a\":\"b\",\"a\":\"b\"}",
    b"{\"asd\":\"sdf\"}",
    b"{\"foo\\u0000bar\": 42}",
    b"{ \"min\": -1.0e+28, \"max\": 1.0e+28 }",
    b"{\"x\":[{\"id\": \"xxxxxxxxxxxxxxxxxxxx\"}], \"id\": \"xxxxxxxxxxxxxxxxxxxx\"}",
    b"{\n\"a\": \"b\"\n}",
    b"{\"title\":\"\\u041f\\u043e\\u043b\\u0442\\u043e\\u0440\\u0430\" }",
    b"[{}, [], \"\", 0, true, false, null]",
    // Scalars alone.
    b"\"asd\"",
    b"\"\"",
    b"\" \"",
    b"false",
    b"true",
    b"null",
    b"42",
    b"-0.1",
    b"0",
    // Numbers.
    b"[123e65]",
    b"[0e+1]",
    b"[0e1]",
    b"[ 4]",
    b"[-0]",
    b"[-0.0]",
    b"[-0e-0]",
    b"[-123]",
    b"[-1]",
    b"[20e1]",
    b"[1E22]",
    b"[1E-2]",
    b"[1E+2]",
    b"[123e45]",
    b"[123.456e78]",
    b"[1e-2]",
    b"[1e+2]",
    b"[123]",
    b"[123.456789]",
    b"[-0.000000000000000000000000000000000000000000000000000000000000000000000000000001]",
    b"[9007199254740993]",
    b"[18446744073709551615]",
    b"[-9223372036854775808]",
    b"[1.7976931348623157e308]",
    b"[2.2250738585072014e-308]",
    // Strings.
    b"[\"\\u0060\\u012a\\u12AB\"]",
    b"[\"\\uD801\\udc37\"]",
    b"[\"\\ud83d\\ude39\\ud83d\\udc8d\"]",
    b"[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"]",
    b"[\"\\\\u0000\"]",
    b"[\"\\\"\"]",
    b"[\"a/*b*/c/*d//e\"]",
    b"[\"\\\\a\"]",
    b"[\"\\\\n\"]",
    b"[\"\\u0012\"]",
    b"[\"\\uFFFF\"]",
    b"[\"asd\"]",
    b"[ \"asd\"]",
    b"[\"\\uDBFF\\uDFFF\"]",
    b"[\"new\\u00A0line\"]",
    b"[\"\xf4\x8f\xbf\xbf\"]",
    b"[\"\xef\xbf\xbf\"]",
    b"[\"\\u0000\"]",
    b"[\"\\u002c\"]",
    b"[\"\xcf\x80\"]",
    b"[\"\xf0\x9b\xbf\xbf\"]",
    b"[\"asd \"]",
    b"[\"\\u0821\"]",
    b"[\"\\u0123\"]",
    b"[\"\xe2\x80\xa8\"]",
    b"[\"\xe2\x80\xa9\"]",
    b"[\"\\u0061\\u30af\\u30EA\\u30b9\"]",
    b"[\"new\\u000Aline\"]",
    b"[\"\x7f\"]",
    b"[\"\\uA66D\"]",
    b"[\"\xe2\x8d\x82\xe3\x88\xb4\xe2\x8d\x82\"]",
    b"[\"\\u0022\"]",
    b"[\"\\u200B\"]",
    b"[\"\\u2064\"]",
    b"[\"\\uFDD0\"]",
    b"[\"\\uFFFE\"]",
    b"[\"\\u005C\"]",
    b"[\"\xe2\x82\xac\xf0\x9d\x84\x9e\"]",
    b"[\"aa\x7faa\"]",
];

/// Must be refused.
const INVALID: &[&[u8]] = &[
    // Nothing, and nothing but space.
    b"",
    b" ",
    b"\n",
    // Arrays.
    b"[1 true]",
    b"[a\xe5]",
    b"[\"\": 1]",
    b"[\"\"],",
    b"[,1]",
    b"[1,,2]",
    b"[\"x\",,]",
    b"[\"x\"]]",
    b"[\"\",]",
    b"[\"x\"",
    b"[x",
    b"[3[4]]",
    b"[\xff]",
    b"[1:2]",
    b"[,]",
    b"[-]",
    b"[   , \"\"]",
    b"[\"a\",\n4\n,1,",
    b"[1,]",
    b"[1,,]",
    b"[\"\x0ba\"\\f]",
    b"[*]",
    b"[\"\"",
    b"[1,",
    b"[1,\n1\n,1",
    b"[{}",
    b"[",
    b"]",
    b"[1]x",
    b"[][]",
    b"[1]#",
    b"['a']",
    // Literals.
    b"[fals]",
    b"[nul]",
    b"[tru]",
    b"[True]",
    b"[TRUE]",
    b"nullx",
    b"truefalse",
    b"aTrue",
    b"undefined",
    // Numbers.
    b"[++1234]",
    b"[+1]",
    b"[+Inf]",
    b"[-01]",
    b"[-1.0.]",
    b"[-2.]",
    b"[-NaN]",
    b"[.-1]",
    b"[.2e-3]",
    b"[0.1.2]",
    b"[0.3e+]",
    b"[0.3e]",
    b"[0.e1]",
    b"[0E+]",
    b"[0E]",
    b"[0e+]",
    b"[0e]",
    b"[1.0e+]",
    b"[1.0e-]",
    b"[1.0e]",
    b"[1 000.0]",
    b"[1eE2]",
    b"[2.e+3]",
    b"[2.e-3]",
    b"[2.e3]",
    b"[9.e+]",
    b"[Inf]",
    b"[NaN]",
    b"[\xef\xbc\x91]",
    b"[1+2]",
    b"[0x1]",
    b"[0x42]",
    b"[Infinity]",
    b"[0e+-1]",
    b"[-123.123foo]",
    b"[123\xe5]",
    b"[1e1\xe5]",
    b"[0\xe5]",
    b"[-Infinity]",
    b"[-foo]",
    b"[- 1]",
    b"[-012]",
    b"[-.123]",
    b"[-1x]",
    b"[1ea]",
    b"[1e\xe5]",
    b"[1.]",
    b"[.123]",
    b"[1.2a-3]",
    b"[1.8011670033376514H-308]",
    b"[012]",
    b"[00]",
    b"0\xe5",
    b"1_000",
    // Objects.
    b"[\"x\", truth]",
    b"{[: \"x\"}",
    b"{\"x\", null}",
    b"{\"x\"::\"b\"}",
    b"{\"a\":\"a\" 123}",
    b"{key: 'value'}",
    b"{\"a\":true,}",
    b"{\"a\" b}",
    b"{:\"b\"}",
    b"{\"a\" \"b\"}",
    b"{\"a\":",
    b"{\"a\"",
    b"{1:1}",
    b"{9999E9999:1}",
    b"{null:null,null:null}",
    b"{\"id\":0,,,,,}",
    b"{'a':0}",
    b"{\"id\":0,}",
    b"{\"a\":\"b\"}/**/",
    b"{\"a\":\"b\"}/**//",
    b"{\"a\":\"b\"}//",
    b"{\"a\":\"b\"}/",
    b"{\"a\":\"b\",,\"c\":\"d\"}",
    b"{a: \"b\"}",
    b"{\"a\":\"a",
    b"{ \"foo\" : \"bar\", \"a\" }",
    b"{\"a\":\"b\"}#",
    b"{\"asd\":\"asd\"",
    b"{",
    b"}",
    b"{]",
    b"{,",
    b"{\"a\":/*comment*/\"b\"}",
    b"{\"\":",
    b"{\"a\": true} \"x\"",
    b"{}}",
    b"{\"a\":1 \"b\":2}",
    // Strings.
    b"[\"\\uD800\\\"]",
    b"[\"\\uD800\\u\"]",
    b"[\"\\uD800\\u1\"]",
    b"[\"\\uD800\\u1x\"]",
    b"[\xc3\xa9]",
    b"[\"\\\x00\"]",
    b"[\"\\\\\\\"]",
    b"[\"\\x00\"]",
    b"[\"\\\t\"]",
    b"[\"\\\xf0\x9f\x8c\x80\"]",
    b"[\"\\\"]",
    b"[\"\\u00A\"]",
    b"[\"\\uD834\\uDd\"]",
    b"[\"\\uD800\\uD800\\x\"]",
    b"[\"\\u\xe5\"]",
    b"[\"\\a\"]",
    b"[\"\\uqqqq\"]",
    b"[\"\\\xe5\"]",
    b"[\\u0020\"asd\"]",
    b"[\\n]",
    b"\"",
    b"['single quote']",
    b"abc",
    b"[\"\\",
    b"[\"a\x00a\"]",
    b"[\"new\nline\"]",
    b"[\"\t\"]",
    b"\"\\UA66D\"",
    b"\"\"x",
    b"[\"\x1f\"]",
    b"\"unterminated",
    // What is no JSON at all.
    b"<.>",
    b"[<null>]",
    b"<html/>",
    b"--1",
    b"\\",
    b"#",
    b",",
    b"/* */ 1",
    b"[\xe2\x81\xa0]",
    b"\xe2\x81\xa0[1]",
    b"[\x0c]",
    b"[\x0b1]",
    b"\xc2\xa0[1]",
    b"\x00",
    b"[1]\x00",
    b"\x0c[1]",
    b"2@",
    b"{\"\":[{\"\":[{\"\":[",
    b"*",
    b"{\"a\":\"b\"}#{}",
    b"[\\u000A\"\"]",
    b"[\"asd]",
    b"\xc3\xa5",
    b"]]",
    b"\xef\xbb\xbf{}x",
];

/// Open by the RFC, and whether we take it: texts that are no UTF-8 or no Unicode, numbers that no
/// double holds, a mark in front.
const OPEN: &[(&[u8], bool)] = &[
    (b"[123.456e-789]", true),
    (b"[123e-10000000]", true),
    (b"[0.4e006699999999999999999999999999999]", false),
    (b"[-1e+9999]", false),
    (b"[1.5e+9999]", false),
    (b"[-123123e100000]", false),
    (b"[100000000000000000000]", true),
    (b"[-123123123123123123123123123123]", true),
    (b"[-237462374673276894279832749832423479823246327846]", true),
    (b"{\"\\uDFAA\":0}", false),
    (b"[\"\\uDADA\"]", false),
    (b"[\"\\uD888\\u1234\"]", false),
    (b"[\"\\uD800\\n\"]", false),
    (b"[\"\\uDd1ea\"]", false),
    (b"[\"\\uD800\\uD800\\n\"]", false),
    (b"[\"\\ud800\"]", false),
    (b"[\"\\ud800abc\"]", false),
    (b"[\"\\uDd1e\\uD834\"]", false),
    (b"[\"\\uDFAA\"]", false),
    (b"[\"\xff\"]", false),
    (b"[\"\xe6\x97\xa5\xd1\x88\xfa\"]", false),
    (b"[\"\xed\xa0\x80\"]", false),
    (b"[\"\xf4\xbf\xbf\xbf\"]", false),
    (b"[\"\xe0\xff\"]", false),
    (b"[\"\xfc\x83\xbf\xbf\xbf\xbf\"]", false),
    (b"[\"\xfc\x80\x80\x80\x80\x80\"]", false),
    (b"[\"\xc0\xaf\"]", false),
    (b"[\"\x81\"]", false),
    (b"[\"\xe9\"]", false),
    (b"\xef\xbb\xbf{}", false),
    (b"\xff\xfe[\x00\"\x00\xe9\x00\"\x00]\x00", false),
    (b"[\x00\"\x00\xe9\x00\"\x00]\x00", false),
    (b"\x00[\x00\"\x00\xe9\x00\"\x00]", false),
];

/// Sends a document to a path and returns the status.
fn status(client: &mut Client, path: &str, document: &[u8]) -> (u16, Value) {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        document.len()
    );
    let answer = client.ask([head.as_bytes(), document].concat());
    (answer.status, answer.json())
}

/// What both routes make of a document.
fn judge(client: &mut Client, document: &[u8], is_taken: bool) -> Result<(), String> {
    let (echoed, body) = status(client, "/echo", document);
    let (checked, problem) = status(client, "/validate", document);
    if !is_taken {
        return match (echoed, checked, &problem["status"]) {
            (400, 400, status) if status == 400 && body["status"] == 400 => Ok(()),
            found => Err(format!("not refused as a bad request: {found:?}")),
        };
    }
    // No user, so that the schema refuses it, whatever it is.
    if (echoed, checked) != (200, 422) {
        return Err(format!("not taken: {echoed} {body}, {checked} {problem}"));
    }
    let expected: Value = serde_json::from_slice(document).map_err(|error| error.to_string())?;
    if body == expected {
        Ok(())
    } else {
        Err(format!("came back as {body}"))
    }
}

#[test]
fn each_document_is_taken_or_refused_as_the_rfc_says() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let mut failures = Failures::default();
    let classes = [(VALID, true), (INVALID, false)];
    let settled = classes
        .into_iter()
        .flat_map(|(documents, is_taken)| documents.iter().map(move |text| (*text, is_taken)));
    for (document, is_taken) in settled.chain(OPEN.iter().copied()) {
        let name = document.escape_ascii().to_string();
        failures.case(&name, judge(&mut client, document, is_taken));
    }
    failures.finish();
}

/// Deep documents are legal, and have a limit that says its name.
#[test]
fn depth_has_a_limit_that_is_named() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let nested = |depth: usize| [b"[".repeat(depth), b"]".repeat(depth)].concat();
    assert_eq!(judge(&mut client, &nested(100), true), Ok(()));
    for unclosed in [b"[".as_slice(), b"{\"\":", b"[{\"\":"] {
        for depth in [200, 20_000] {
            let result = judge(&mut client, &unclosed.repeat(depth), false);
            assert_eq!(result, Ok(()), "{depth}");
        }
    }
    assert_eq!(judge(&mut client, &nested(500), false), Ok(()));
    let (_, problem) = status(&mut client, "/validate", &nested(500));
    assert_eq!(problem["limit"], "json_depth", "{problem}");
}
