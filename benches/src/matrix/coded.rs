//! Bodies with a content coding, decoded to see that they are what they should be.
//!
//! It guarantees that a body decodes to no more than a limit, and that nothing follows its end.

use std::io::{self, Read};

use super::exchange::Answer;
use crate::ledger::Coding;

/// Largest decoded body, the same as that of a file.
const MAX_DECODED_BYTES: u64 = super::content::MAX_FILE_BYTES;

/// Bytes that brotli reads at a time.
const BUFFER_BYTES: usize = 4096;

/// Decodes an answer that must have this coding and no other.
///
/// # Errors
///
/// Another coding, a body that does not decode, or one that decodes to too much.
pub(super) fn decode(coding: Coding, answer: &Answer) -> io::Result<Vec<u8>> {
    if answer.field("content-encoding") != Some(coding.token()) {
        return Err(io::Error::other(format!(
            "content-encoding {} instead of {}",
            answer.field("content-encoding").unwrap_or("none"),
            coding.token()
        )));
    }
    let body = &answer.body[..];
    match coding {
        Coding::Gzip => read_all(flate2::bufread::MultiGzDecoder::new(body)),
        Coding::Br => read_all(brotli::Decompressor::new(body, BUFFER_BYTES)),
        Coding::Zstd => read_all(zstd::stream::read::Decoder::with_buffer(body)?),
    }
}

fn read_all(decoder: impl Read) -> io::Result<Vec<u8>> {
    let mut decoded = Vec::new();
    decoder
        .take(MAX_DECODED_BYTES + 1)
        .read_to_end(&mut decoded)?;
    if decoded.len() as u64 > MAX_DECODED_BYTES {
        return Err(io::Error::other("the body decodes to too much"));
    }
    Ok(decoded)
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Write as _;

    use super::*;

    pub(in crate::matrix) fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn encode(coding: Coding, bytes: &[u8]) -> Vec<u8> {
        match coding {
            Coding::Gzip => gzip(bytes),
            Coding::Br => {
                let mut coded = Vec::new();
                brotli::CompressorReader::new(bytes, BUFFER_BYTES, 4, 18)
                    .read_to_end(&mut coded)
                    .unwrap();
                coded
            }
            Coding::Zstd => zstd::stream::encode_all(bytes, 3).unwrap(),
        }
    }

    fn answer(coding: &str, body: &[u8]) -> Answer {
        Answer {
            status: 200,
            fields: [("content-encoding".to_owned(), coding.to_owned())].into(),
            body: body.to_vec(),
        }
    }

    #[test]
    fn each_coding_is_undone_and_damage_is_seen() {
        let text = "the same again, ".repeat(500);
        for coding in [Coding::Gzip, Coding::Br, Coding::Zstd] {
            let coded = encode(coding, text.as_bytes());
            let token = coding.token();
            let decoded = decode(coding, &answer(token, &coded)).unwrap();
            assert_eq!(decoded, text.as_bytes(), "{token}");
            assert!(
                decode(coding, &answer("identity", &coded)).is_err(),
                "{token}"
            );
            let short = &coded[..coded.len() - 1];
            assert!(decode(coding, &answer(token, short)).is_err(), "{token}");
            let plain = answer(token, text.as_bytes());
            assert!(decode(coding, &plain).is_err(), "{token}");
        }
    }
}
