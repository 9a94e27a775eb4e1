//! Chunked bodies: arbitrary ones against a plain reader, and encoded ones.

use super::{Input, Verdict};

const HEAD: &[u8] = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

pub(super) fn check(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    if input.byte().is_multiple_of(2) {
        check_any(&mut input);
    } else {
        check_encoded(&mut input);
    }
}

/// The verdict does not depend on the cuts, and what is admitted is what a
/// reader without states sees.
fn check_any(input: &mut Input<'_>) {
    let mut pieces = input.pieces();
    let body = pieces.concat();
    let verdict = Verdict::of(&[&[HEAD, &body[..]].concat()]);
    pieces.insert(0, HEAD);
    verdict.assert_same(&Verdict::of(&pieces));
    let is_complete = verdict.heads.len() > 1
        || verdict.refused.is_none() && read(&body).is_some_and(|(_, rest)| rest.is_empty());
    if verdict.heads.len() == 1 && is_complete {
        let (content, _) = read(&body).expect("it was admitted whole");
        assert_eq!(verdict.content, content);
    }
}

/// Content of a chunked body, and what follows it.
fn read(mut text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut content = Vec::new();
    loop {
        let (line, rest) = split_line(text)?;
        let end = line.iter().position(|byte| b"; \t".contains(byte));
        let digits = std::str::from_utf8(&line[..end.unwrap_or(line.len())]).ok()?;
        let size = usize::try_from(u64::from_str_radix(digits, 16).ok()?).ok()?;
        if size == 0 {
            text = rest;
            break;
        }
        content.extend_from_slice(rest.get(..size)?);
        text = rest[size..].strip_prefix(b"\r\n")?;
    }
    loop {
        let (line, rest) = split_line(text)?;
        if line.is_empty() {
            return Some((content, rest));
        }
        text = rest;
    }
}

fn split_line(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.windows(2).position(|pair| pair == b"\r\n")?;
    Some((&text[..end], &text[end + 2..]))
}

/// What is encoded is decoded, and the message ends where it should.
fn check_encoded(input: &mut Input<'_>) {
    const EXTENSIONS: [&str; 4] = ["", ";a", ";a=b", " ;a=\"b;c\""];
    const TRAILERS: [&str; 4] = ["", "x: y\r\n", "x:\r\nz: 1\r\n", "content-length: 5\r\n"];
    const NEXT: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let cut = input.up_to(u16::MAX.into());
    let extension = EXTENSIONS[usize::from(input.byte() % 4)];
    let trailers = TRAILERS[usize::from(input.byte() % 4)];
    let pieces = input.pieces();
    let mut message = HEAD.to_vec();
    for chunk in pieces.iter().filter(|chunk| !chunk.is_empty()) {
        message.extend(format!("{:X}{extension}\r\n", chunk.len()).bytes());
        message.extend_from_slice(chunk);
        message.extend_from_slice(b"\r\n");
    }
    message.extend(format!("0{extension}\r\n{trailers}\r\n").bytes());
    message.extend_from_slice(NEXT);
    let (start, end) = message.split_at(cut % (message.len() + 1));
    let verdict = Verdict::of(&[start, end]);
    assert_eq!(verdict.refused, None);
    assert_eq!(verdict.content, pieces.concat());
    assert_eq!(verdict.num_admitted, message.len());
    assert_eq!(verdict.heads.len(), 2);
}
