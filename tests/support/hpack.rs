//! HPACK (RFC 7541): enough to write any block literally and to read any block.
//!
//! The encoder never uses a table, so that a test controls every byte. The
//! decoder keeps the dynamic table without evicting: a test is short.

/// A header list.
pub(crate) type Headers = Vec<(String, String)>;

/// A header block of literals that touch no table.
pub(crate) fn encode(headers: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in headers {
        block.push(0x00);
        encode_text(&mut block, name);
        encode_text(&mut block, value);
    }
    block
}

/// One literal that enters the peer's dynamic table.
pub(crate) fn encode_indexed(name: &str, value: &str) -> Vec<u8> {
    let mut block = vec![0x40];
    encode_text(&mut block, name);
    encode_text(&mut block, value);
    block
}

fn encode_text(block: &mut Vec<u8>, text: &str) {
    match text.len() {
        short @ 0..127 => block.push(short as u8),
        mut rest => {
            block.push(127);
            rest -= 127;
            while rest >= 128 {
                block.push((rest % 128) as u8 | 128);
                rest /= 128;
            }
            block.push(rest as u8);
        }
    }
    block.extend_from_slice(text.as_bytes());
}

/// Reads the header blocks of one connection, in order.
#[derive(Default)]
pub(crate) struct Decoder {
    dynamic: Headers,
}

impl Decoder {
    /// Reads one complete block; `None` when it is invalid.
    pub(crate) fn decode(&mut self, mut block: &[u8]) -> Option<Headers> {
        let mut headers = Vec::new();
        while let Some(first) = block.first().copied() {
            if first & 0x80 != 0 {
                let index = integer(&mut block, 7)?;
                headers.push(self.entry(index)?);
            } else if first & 0xe0 == 0x20 {
                integer(&mut block, 5)?;
            } else {
                let is_kept = first & 0x40 != 0;
                let index = integer(&mut block, if is_kept { 6 } else { 4 })?;
                let name = if index == 0 {
                    text(&mut block)?
                } else {
                    self.entry(index)?.0
                };
                let field = (name, text(&mut block)?);
                if is_kept {
                    self.dynamic.insert(0, field.clone());
                }
                headers.push(field);
            }
        }
        Some(headers)
    }

    fn entry(&self, index: usize) -> Option<(String, String)> {
        let index = index.checked_sub(1)?;
        match STATIC_TABLE.get(index) {
            Some((name, value)) => Some(((*name).to_owned(), (*value).to_owned())),
            None => self.dynamic.get(index - STATIC_TABLE.len()).cloned(),
        }
    }
}

fn integer(block: &mut &[u8], prefix_bits: u32) -> Option<usize> {
    let mask = (1usize << prefix_bits) - 1;
    let mut value = usize::from(next(block)?) & mask;
    if value < mask {
        return Some(value);
    }
    for shift in (0..28).step_by(7) {
        let byte = usize::from(next(block)?);
        value += (byte & 127) << shift;
        if byte & 128 == 0 {
            return Some(value);
        }
    }
    None
}

fn text(block: &mut &[u8]) -> Option<String> {
    let is_huffman = block.first()? & 0x80 != 0;
    let length = integer(block, 7)?;
    let (bytes, rest) = block.split_at_checked(length)?;
    *block = rest;
    let bytes = if is_huffman {
        huffman(bytes)?
    } else {
        bytes.to_vec()
    };
    String::from_utf8(bytes).ok()
}

/// Appendix B's code is canonical: codes of a length count up by symbol.
fn huffman(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut symbols: Vec<u8> = (0..=255).collect();
    symbols.sort_by_key(|symbol| CODE_LENGTHS[usize::from(*symbol)]);
    let mut output = Vec::new();
    let (mut code, mut length) = (0u32, 0u8);
    for bit in bytes
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |n| u32::from(byte >> n & 1)))
    {
        (code, length) = (code << 1 | bit, length + 1);
        if let Some(symbol) = symbol_of(&symbols, code, length) {
            output.push(symbol);
            (code, length) = (0, 0);
        }
    }
    let is_padding = length < 8 && code + 1 == 1 << length;
    is_padding.then_some(output)
}

fn symbol_of(symbols: &[u8], code: u32, length: u8) -> Option<u8> {
    let (mut next_code, mut at) = (0u32, 0u8);
    for symbol in symbols {
        let its_length = CODE_LENGTHS[usize::from(*symbol)];
        if its_length > length {
            return None;
        }
        next_code <<= its_length - at;
        at = its_length;
        if at == length && next_code == code {
            return Some(*symbol);
        }
        next_code += 1;
    }
    None
}

fn next(block: &mut &[u8]) -> Option<u8> {
    let (first, rest) = block.split_first()?;
    *block = rest;
    Some(*first)
}

/// RFC 7541 Appendix A.
const STATIC_TABLE: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// Bits of each symbol's code, RFC 7541 Appendix B.
const CODE_LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5,
    5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6,
    6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22,
    23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22,
    21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20,
    22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19,
    21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22,
    22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u32> = hex.chars().filter_map(|c| c.to_digit(16)).collect();
        digits
            .chunks(2)
            .map(|pair| (pair[0] << 4 | pair[1]) as u8)
            .collect()
    }

    /// The three responses of RFC 7541 Appendix C.6, whose table evicts
    /// nothing that is named again.
    #[test]
    fn the_examples_of_the_rfc_are_read() {
        let mut decoder = Decoder::default();
        let first = decoder.decode(&bytes(
            "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 \
             2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        ));
        let [status, cache, date, location] = &first.expect("valid")[..] else {
            panic!("four fields")
        };
        assert_eq!((status.0.as_str(), status.1.as_str()), (":status", "302"));
        assert_eq!(
            (cache.0.as_str(), cache.1.as_str()),
            ("cache-control", "private")
        );
        assert_eq!(date.1, "Mon, 21 Oct 2013 20:13:21 GMT");
        assert_eq!(location.1, "https://www.example.com");
        let second = decoder
            .decode(&bytes("4883 640e ffc1 c0bf"))
            .expect("valid");
        assert_eq!(second[0].1, "307");
        assert_eq!(second[3].1, "https://www.example.com");
    }

    #[test]
    fn long_literals_are_read_back() {
        let value = "v".repeat(4000);
        let block = [
            encode(&[("a", "b")]),
            encode_indexed("x", &value),
            vec![0xbe],
        ]
        .concat();
        let headers = Decoder::default().decode(&block).expect("valid");
        let kept = ("x".to_owned(), value);
        assert_eq!(
            headers,
            [("a".to_owned(), "b".to_owned()), kept.clone(), kept]
        );
    }
}
