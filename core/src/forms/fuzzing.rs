//! Forms: cuts, limits, and that what was encoded is decoded.

use super::urlencoded::deserialize;
use super::{Form, FormLimits, Multipart};
use crate::error::FormError;
use crate::fuzzing::{Input, body_of, now};

const BOUNDARY: &[u8] = b"XX";

/// Limits that inputs of a kilobyte meet.
const LIMITS: FormLimits = FormLimits {
    max_fields: 5,
    max_field_bytes: 60,
    max_file_bytes: 90,
    max_header_bytes: 200,
};

pub(crate) fn check_urlencoded(bytes: &[u8]) {
    let num_fields = bytes
        .split(|byte| *byte == b'&')
        .filter(|field| !field.is_empty());
    let form = match Form::parse(bytes, &LIMITS) {
        Ok(form) => form,
        Err(FormError::Limit { .. }) => {
            let longest = bytes
                .split(|byte| b"&=".contains(byte))
                .map(<[u8]>::len)
                .max();
            let is_long = bytes
                .split(|byte| *byte == b'&')
                .any(|field| field.len() > 61);
            let is_over = num_fields.count() > LIMITS.max_fields || is_long;
            assert!(is_over || longest > Some(LIMITS.max_field_bytes));
            return;
        }
        Err(other) => panic!("every text is a form: {other}"),
    };
    assert_eq!(form.len(), num_fields.count());
    // A byte that is not UTF-8 becomes three.
    let most = 3 * LIMITS.max_field_bytes;
    assert!(
        form.iter()
            .all(|(name, value)| name.len() <= most && value.len() <= most)
    );
    let again = form_urlencoded::Serializer::new(String::new())
        .extend_pairs(form.iter())
        .finish();
    let large = FormLimits {
        max_field_bytes: 9 * most,
        ..LIMITS
    };
    let parsed = Form::parse(again.as_bytes(), &large).expect("it is a form");
    assert_eq!(parsed, form);
    let pairs: Vec<(String, String)> = deserialize(bytes).expect("pairs take any form");
    let borrowed = pairs.iter().map(|(name, value)| (&name[..], &value[..]));
    assert!(borrowed.eq(form.iter()));
    for (name, value) in form.iter() {
        assert!(form.get_all(name).any(|known| known == value));
    }
}

pub(crate) fn check_multipart(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    if input.byte().is_multiple_of(2) {
        check_any(&mut input);
    } else {
        check_encoded(&mut input);
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Seen {
    name: String,
    file_name: Option<String>,
    data: Vec<u8>,
}

/// The parts that were read, and how the reading ended.
async fn read(pieces: &[&[u8]]) -> (Vec<Seen>, Result<(), FormError>) {
    let mut form = Multipart::new(body_of(pieces), BOUNDARY, LIMITS);
    let mut seen = Vec::new();
    let end = loop {
        let mut part = match form.next_part().await {
            Ok(Some(part)) => part,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        };
        seen.push(Seen {
            name: part.name().to_owned(),
            file_name: part.file_name().map(str::to_owned),
            data: Vec::new(),
        });
        let data = &mut seen.last_mut().expect("it was just pushed").data;
        let error = loop {
            match part.chunk().await {
                Ok(Some(chunk)) => {
                    assert!(!chunk.is_empty());
                    data.extend_from_slice(&chunk);
                }
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        if let Some(error) = error {
            break Err(error);
        }
    };
    (seen, end)
}

fn check_any(input: &mut Input<'_>) {
    let pieces = input.pieces();
    let (whole, end) = now(read(&[&pieces.concat()]));
    let (cut, cut_end) = now(read(&pieces));
    assert_eq!(end.is_ok(), cut_end.is_ok(), "{end:?} {cut_end:?}");
    // Of the part in which it failed more or less had been passed on.
    let num_complete = whole.len().min(cut.len())
        - usize::from(end.is_err() && !whole.is_empty() && !cut.is_empty());
    assert_eq!(whole[..num_complete], cut[..num_complete]);
    if end.is_ok() {
        assert_eq!(whole, cut);
    }
    for parts in [&whole, &cut] {
        assert!(parts.len() <= LIMITS.max_fields);
        for part in parts {
            let limit = match part.file_name {
                Some(_) => LIMITS.max_file_bytes,
                None => LIMITS.max_field_bytes as u64,
            };
            assert!(part.data.len() as u64 <= limit, "a part keeps its limit");
            let file_name = part.file_name.as_deref().unwrap_or_default();
            assert!(!file_name.contains(['/', '\\']) && file_name != "..");
        }
    }
}

/// The pieces are the data of parts; each is cut to what its limit allows.
fn check_encoded(input: &mut Input<'_>) {
    let cut = input.up_to(u16::MAX.into());
    let has_files = input.byte();
    let pieces = input.pieces();
    let mut sent = Vec::new();
    let mut body = Vec::new();
    for (index, piece) in pieces.iter().enumerate() {
        let delimiter = b"\r\n--XX";
        // The empty line before the data may begin a delimiter.
        let after_empty_line = [b"\r\n", *piece].concat();
        let mut windows = after_empty_line.windows(delimiter.len());
        let end = match windows.position(|text| text == delimiter) {
            Some(found) => found.saturating_sub(2),
            None => piece.len(),
        };
        let data = &piece[..end.min(LIMITS.max_field_bytes)];
        let is_file = has_files >> index & 1 == 1;
        let file_name = is_file.then(|| format!("{index}.txt"));
        body.extend(format!("--XX\r\nContent-Disposition: form-data; name=\"n{index}\"").bytes());
        if let Some(name) = &file_name {
            body.extend(format!("; filename=\"C:\\\\dir/{name}\"").bytes());
        }
        body.extend_from_slice(b"\r\n\r\n");
        body.extend_from_slice(data);
        body.extend_from_slice(b"\r\n");
        sent.push(Seen {
            name: format!("n{index}"),
            file_name,
            data: data.to_vec(),
        });
    }
    body.extend_from_slice(b"--XX--\r\n");
    let (start, end) = body.split_at(cut % (body.len() + 1));
    let (seen, end) = now(read(&[start, end]));
    end.expect("it is a form");
    assert_eq!(seen, sent);
}
