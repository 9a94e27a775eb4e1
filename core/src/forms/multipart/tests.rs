//! Multipart bodies: tables of cases fed whole, split at every byte and byte
//! by byte; what a builder made; what is too much.

use std::future::Future;

use proptest::prelude::*;

use super::*;

const LIMITS: FormLimits = FormLimits {
    max_fields: 3,
    max_field_bytes: 40,
    max_file_bytes: 60,
    max_header_bytes: 200,
};

/// Name, file name, content type and data of a part.
type Seen = (String, Option<String>, Option<String>, Vec<u8>);

fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(future)
}

/// A body of these chunks.
fn body(chunks: Vec<Vec<u8>>) -> Body {
    let (sender, body) = Body::channel(chunks.len());
    wait(async move {
        for chunk in chunks {
            sender.send(chunk).await.unwrap();
        }
    });
    body
}

async fn parts(body: Body, limits: FormLimits) -> Result<Vec<Seen>, FormError> {
    let mut form = Multipart::new(body, b"XX", limits);
    let mut seen = Vec::new();
    while let Some(mut part) = form.next_part().await? {
        let mut data = Vec::new();
        while let Some(chunk) = part.chunk().await? {
            assert!(!chunk.is_empty());
            data.extend_from_slice(&chunk);
        }
        assert!(part.chunk().await?.is_none());
        let owned = |text: Option<&str>| text.map(str::to_owned);
        let (file_name, content_type) = (owned(part.file_name()), owned(part.content_type()));
        seen.push((part.name().to_owned(), file_name, content_type, data));
    }
    assert!(form.next_part().await?.is_none());
    Ok(seen)
}

/// What is wrong, or nothing.
fn complaint(error: &FormError) -> &'static str {
    match error {
        FormError::Malformed { reason } => reason,
        FormError::Limit { name, .. } => name,
        other => panic!("{other}"),
    }
}

/// The same result, however the body comes.
#[track_caller]
fn check(text: &[u8], expected: &Result<Vec<Seen>, &str>) {
    let found = |chunks: Vec<Vec<u8>>| {
        let found = wait(parts(body(chunks), LIMITS));
        found.map_err(|error| complaint(&error))
    };
    let shown = text.escape_ascii();
    assert_eq!(&found(vec![text.to_vec()]), expected, "{shown}");
    let bytes = text.iter().map(|byte| vec![*byte]).collect();
    assert_eq!(&found(bytes), expected, "{shown} byte by byte");
    for split in 0..text.len() {
        let (start, end) = text.split_at(split);
        let chunks = vec![start.to_vec(), end.to_vec()];
        assert_eq!(&found(chunks), expected, "{shown} at {split}");
    }
}

fn field(name: &str, data: &str) -> Seen {
    (name.to_owned(), None, None, data.into())
}

fn file(name: &str, file_name: &str, content_type: Option<&str>, data: &str) -> Seen {
    let content_type = content_type.map(str::to_owned);
    (
        name.to_owned(),
        Some(file_name.to_owned()),
        content_type,
        data.into(),
    )
}

/// One part with these header lines, each ended, and this data.
fn part(lines: &str, data: &str) -> String {
    format!("--XX\r\n{lines}\r\n{data}\r\n--XX--\r\n")
}

const NAME_A: &str = "Content-Disposition: form-data; name=a\r\n";

#[test]
fn well_formed_bodies_are_read() {
    let a = NAME_A;
    for (text, expected) in [
        ("--XX--".to_owned(), vec![]),
        ("--XX--\r\n".to_owned(), vec![]),
        (part(a, "1"), vec![field("a", "1")]),
        (part(a, ""), vec![field("a", "")]),
        (part(a, "\r\n"), vec![field("a", "\r\n")]),
        // The empty line is the delimiter's own (RFC 2046 §5.1.1).
        (format!("--XX\r\n{a}\r\n--XX--"), vec![field("a", "")]),
        (
            format!("--XX\r\n{a}\r\n--X\r\n--XX--"),
            vec![field("a", "--X")],
        ),
        (part(a, "\r\n--X"), vec![field("a", "\r\n--X")]),
        (
            part(a, "\r\r\n-\n--XX\r-"),
            vec![field("a", "\r\r\n-\n--XX\r-")],
        ),
        (
            format!("--XX\r\n{a}\r\n1\r\n--XX\r\n{a}\r\n2\r\n--XX--"),
            vec![field("a", "1"), field("a", "2")],
        ),
        (
            format!("--XX \t\r\n{a}\r\n1\r\n--XX--"),
            vec![field("a", "1")],
        ),
        (
            format!("preamble\r\n--XX\r\n{a}\r\n1\r\n--XX--epilogue"),
            vec![field("a", "1")],
        ),
    ] {
        check(text.as_bytes(), &Ok(expected));
    }
}

#[test]
fn header_lines_are_read() {
    let a = NAME_A;
    let named = |rest: &str| {
        part(
            &format!("Content-Disposition: form-data; name=f; {rest}\r\n"),
            "",
        )
    };
    for (text, expected) in [
        (
            part("content-disposition: FORM-DATA; NAME=\"a b\"\r\n", "1"),
            vec![field("a b", "1")],
        ),
        (
            part(
                "X-Other: 1\r\nContent-Disposition:form-data;name=a\r\n",
                "1",
            ),
            vec![field("a", "1")],
        ),
        (
            part("Content-Disposition: form-data; name=\"\"\r\n", "1"),
            vec![field("", "1")],
        ),
        (
            part(
                "Content-Disposition: form-data; name=f; filename=x.txt\r\nContent-Type: text/plain\r\n",
                "1",
            ),
            vec![file("f", "x.txt", Some("text/plain"), "1")],
        ),
        (named("filename=\"\""), vec![file("f", "", None, "")]),
        (
            part(
                "Content-Disposition: form-data; filename=\"x; name=b\"; name=\"a\"\r\n",
                "",
            ),
            vec![file("a", "x; name=b", None, "")],
        ),
        (
            named("filename=\"../../\u{e9} \\\"q\\\".txt\""),
            vec![file("f", "\u{e9} \"q\".txt", None, "")],
        ),
        (
            named("filename=\"C:\\dir\\x.txt\""),
            vec![file("f", "x.txt", None, "")],
        ),
        (named("filename=.."), vec![file("f", "", None, "")]),
        (
            named("filename*=UTF-8''..%2F%e2%82%ac"),
            vec![file("f", "\u{20ac}", None, "")],
        ),
        (
            named("filename*=UTF-8''b; filename=a"),
            vec![file("f", "a", None, "")],
        ),
        (
            part(&format!("{a}Content-Transfer-Encoding: 8bit\r\n"), "1"),
            vec![field("a", "1")],
        ),
    ] {
        check(text.as_bytes(), &Ok(expected));
    }
}

#[test]
fn malformed_bodies_are_refused() {
    const TRUNCATED: &str = "the body ends before its last boundary";
    const FOLLOWED: &str = "a boundary is followed by something else";
    let a = NAME_A;
    for (text, expected) in [
        (String::new(), TRUNCATED),
        ("no boundary".to_owned(), TRUNCATED),
        ("--XX".to_owned(), TRUNCATED),
        ("--XX-".to_owned(), TRUNCATED),
        ("--XX\r".to_owned(), TRUNCATED),
        (format!("--XX\r\n{a}"), TRUNCATED),
        (format!("--XX\r\n{a}\r\n"), TRUNCATED),
        (format!("--XX\r\n{a}\r\n1"), TRUNCATED),
        (format!("--XX\r\n{a}\r\n1\r\n--X"), TRUNCATED),
        (format!("--XX\r\n{a}\r\n1\r\n--XX\r\n"), TRUNCATED),
        (format!("--XX\n{a}\r\n1\r\n--XX--"), FOLLOWED),
        (format!("--XXa\r\n{a}\r\n1\r\n--XXa--"), FOLLOWED),
        (format!("--XX -\r\n{a}\r\n1\r\n--XX--"), FOLLOWED),
        (format!("--XX\r\n{a}\r\n1\r\n--XXY\r\n--XX--"), FOLLOWED),
    ] {
        check(text.as_bytes(), &Err(expected));
    }
}

#[test]
fn malformed_header_lines_are_refused() {
    const LINE: &str = "a header line of a part is malformed";
    const DISPOSITION: &str = "the Content-Disposition of a part is malformed";
    const TWICE: &str = "the Content-Disposition of a part says something twice";
    let a = NAME_A;
    let disposition = |rest: &str| part(&format!("Content-Disposition: {rest}\r\n"), "");
    for (text, expected) in [
        (part("", "1"), "a part has no Content-Disposition"),
        (
            part("Content-Type: text/plain\r\n", "1"),
            "a part has no Content-Disposition",
        ),
        (
            part(&a.repeat(2), "1"),
            "a part has two Content-Disposition",
        ),
        (
            part(
                &format!("{a}Content-Type: a/b\r\nContent-Type: c/d\r\n"),
                "1",
            ),
            "a part has two Content-Type",
        ),
        (
            part(&format!("{a}Content-Transfer-Encoding: base64\r\n"), "1"),
            "a part has a transfer encoding",
        ),
        (part(&format!("{a}no colon\r\n"), "1"), LINE),
        (part(&format!("{a}: none\r\n"), "1"), LINE),
        (part(&format!("{a}X : y\r\n"), "1"), LINE),
        (part(&format!("{a} folded: y\r\n"), "1"), LINE),
        (part(&format!("{a}X: a\rb\r\n"), "1"), LINE),
        (part(&format!("{a}X: a\nb\r\n"), "1"), LINE),
        (part(&format!("{a}X: a\0b\r\n"), "1"), LINE),
        (
            disposition("attachment; name=a"),
            "the Content-Disposition of a part is not form-data",
        ),
        (disposition("form-data"), "a part has no name"),
        (disposition("form-data; filename=a"), "a part has no name"),
        (disposition("form-data; name=a; name=b"), TWICE),
        (
            disposition("form-data; name=a; filename=a; filename=b"),
            TWICE,
        ),
        (
            disposition("form-data; name=a; filename*=UTF-8''a; filename*=UTF-8''b"),
            TWICE,
        ),
        (disposition("form-data; name=\"a"), DISPOSITION),
        (disposition("form-data; name=a b"), DISPOSITION),
        (
            disposition("form-data; name=a; filename*=a"),
            "the filename* of a part is malformed",
        ),
        (
            disposition("form-data; name=a; filename*=latin1''a"),
            "the filename* of a part is malformed",
        ),
        (
            disposition("form-data; name=a; filename*=UTF-8''%0d"),
            "the file name of a part has control characters",
        ),
        (
            disposition("form-data; name=a; filename*=UTF-8''%ff"),
            "the file name of a part is not UTF-8",
        ),
    ] {
        check(text.as_bytes(), &Err(expected));
    }
}

/// The last byte that a limit allows is allowed wherever a chunk ends.
#[test]
fn too_much_is_refused_by_the_name_of_its_limit() {
    const AROUND: &str = "there is too much around the parts";
    let a = NAME_A;
    let f = "Content-Disposition: form-data; name=f; filename=x\r\n";
    let digits = |count: usize| "1".repeat(count);
    let headed = |length: usize| {
        let padding = "y".repeat(length - a.len() - 3);
        part(&format!("{a}X: {padding}\r\n"), "1")
    };
    let many = |count: usize| format!("--XX\r\n{a}\r\n1\r\n").repeat(count) + "--XX--";
    let padded = |length: usize| format!("--XX{}\r\n{a}\r\n1\r\n--XX--", " ".repeat(length));
    let before = |length: usize| format!("{}\r\n--XX--", "p".repeat(length));
    let after = |length: usize| format!("--XX--{}", "e".repeat(length));
    let one = || Ok(vec![field("a", "1")]);
    for (text, expected) in [
        (part(a, &digits(40)), Ok(vec![field("a", &digits(40))])),
        (
            part(f, &digits(60)),
            Ok(vec![file("f", "x", None, &digits(60))]),
        ),
        (part(f, &digits(61)), Err("server.limits.form_file")),
        (many(3), Ok(vec![field("a", "1"); 3])),
        (many(4), Err("server.limits.form_fields")),
        (headed(200), one()),
        (headed(201), Err("server.limits.form_header")),
        (padded(200), one()),
        (padded(201), Err(AROUND)),
        // The line end that is put before the first line counts.
        (before(198), Ok(vec![])),
        (before(199), Err(AROUND)),
        (after(200), Ok(vec![])),
        (after(201), Err(AROUND)),
        (part(a, &digits(41)), Err("server.limits.form_field")),
    ] {
        check(text.as_bytes(), &expected);
    }
}

/// A boundary that never comes costs what has arrived once, and is not kept.
#[test]
fn an_endless_part_is_passed_on_as_it_comes() {
    let mut parser = Parser::new(b"XX", LIMITS.max_header_bytes);
    parser.push(Bytes::from(format!("--XX\r\n{NAME_A}\r\n")));
    assert!(matches!(parser.next(), Ok(Step::Part(_))));
    for byte in [b'\r', b'a', b'-'] {
        let mut num_passed = 0;
        for _ in 0..100 {
            parser.push(Bytes::from(vec![byte; 10_000]));
            while let Ok(Step::Data(data)) = parser.next() {
                num_passed += data.len();
            }
        }
        assert!(num_passed > 999_980, "{num_passed}");
    }
}

#[test]
fn parts_that_nobody_reads_are_skipped() {
    let text = format!("--XX\r\n{NAME_A}\r\n1\r\n--XX\r\n{NAME_A}\r\n\u{e9}\r\n--XX--");
    let mut form = Multipart::new(body(vec![text.into()]), b"XX", LIMITS);
    wait(async {
        drop(form.next_part().await.unwrap());
        let second = form.next_part().await.unwrap().unwrap();
        assert_eq!(second.text().await.unwrap(), "\u{e9}");
        assert!(form.next_part().await.unwrap().is_none());
    });
}

#[test]
fn a_file_is_held_in_memory_up_to_the_limit_of_a_field() {
    let lines = "Content-Disposition: form-data; name=f; filename=x\r\n";
    for (length, is_held) in [(40, true), (41, false)] {
        let text = part(lines, &"1".repeat(length));
        let chunks = text.bytes().map(|byte| vec![byte]).collect();
        let mut form = Multipart::new(body(chunks), b"XX", LIMITS);
        let result = wait(async { form.next_part().await.unwrap().unwrap().bytes().await });
        match result {
            Ok(bytes) => assert!(is_held && bytes.len() == length),
            Err(error) => assert!(!is_held && complaint(&error) == "server.limits.form_field"),
        }
    }
}

/// Pieces that data is likely to be confused by.
fn data() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"\r\n".to_vec()),
        Just(b"\r\n--".to_vec()),
        Just(b"\r\n--X".to_vec()),
        Just(b"--XX".to_vec()),
        Just(b"\r".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..6),
    ];
    proptest::collection::vec(piece, 0..6)
        .prop_map(|pieces| pieces.concat())
        .prop_filter("holds the boundary", |data| {
            let text = [b"\r\n", &data[..]].concat();
            memchr::memmem::find(&text, b"\r\n--XX").is_none()
        })
}

proptest! {
    #[test]
    fn what_is_built_is_read_at_every_split(
        built in proptest::collection::vec(
            ("[a-z \u{e9}\"\\\\;=]{0,5}", proptest::option::of("[a-z \u{e9}\";=.]{1,5}"), data()),
            0..4,
        )
    ) {
        let quote = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
        let mut text = Vec::new();
        let mut expected = Vec::new();
        for (name, file_name, data) in built {
            text.extend_from_slice(b"--XX\r\nContent-Disposition: form-data; name=\"");
            text.extend_from_slice(quote(&name).as_bytes());
            text.push(b'"');
            let file_name = file_name.filter(|name| !matches!(name.as_str(), "." | ".."));
            if let Some(file_name) = &file_name {
                text.extend_from_slice(format!("; filename=\"{}\"", quote(file_name)).as_bytes());
            }
            text.extend_from_slice(b"\r\n\r\n");
            text.extend_from_slice(&data);
            text.extend_from_slice(b"\r\n");
            expected.push((name, file_name, None, data));
        }
        text.extend_from_slice(b"--XX--\r\n");
        for split in 0..text.len() {
            let (start, end) = text.split_at(split);
            let chunks = vec![start.to_vec(), end.to_vec()];
            let found = wait(parts(body(chunks), FormLimits::DEFAULT)).unwrap();
            prop_assert_eq!(&found, &expected);
        }
    }
}
