//! Header compression (RFC 7541), by bytes: what is invalid is a connection
//! error of type `COMPRESSION_ERROR` (RFC 9113 §4.3).

#![expect(
    clippy::too_many_lines,
    reason = "a table has as many lines as its section has cases"
)]

use super::*;

/// The error of an invalid block.
const INVALID: &[u32] = &[code::COMPRESSION_ERROR];

/// The pseudo-headers of `GET /anything`, by the static table where it can be.
fn base() -> Vec<u8> {
    let [_, _, authority, path] = BASE;
    [&[0x82, 0x87][..], &hpack::encode(&[authority, path])].concat()
}

/// A request whose block goes on with these bytes.
fn ask(peer: &mut Peer, stream: u32, rest: &[u8]) {
    peer.headers(flag::END_STREAM, stream, &[&base(), rest].concat());
}

/// The field is decoded as such.
fn decoded(peer: &mut Peer, rest: &[u8], field: &str) -> Verdict {
    ask(peer, 1, rest);
    peer.answer_says(1, field)
}

/// The block is invalid.
fn invalid(peer: &mut Peer, rest: &[u8]) -> Verdict {
    ask(peer, 1, rest);
    peer.connection_error(INVALID)
}

const XY: &str = "\"x\":\"y\"";

#[test]
fn representations() {
    check(&[
        ("RFC 7541 §6.1: indexed, of the static table", |p| {
            decoded(p, &[0x90], "\"accept-encoding\":\"gzip,deflate\"")
        }),
        ("RFC 7541 §6.2.1: with indexing, indexed name", |p| {
            decoded(p, b"\x7a\x01y", "\"user-agent\":\"y\"")
        }),
        ("RFC 7541 §6.2.1: with indexing, new name", |p| {
            decoded(p, b"\x40\x01x\x01y", XY)
        }),
        ("RFC 7541 §6.2.2: without indexing, indexed name", |p| {
            decoded(p, b"\x0f\x2b\x01y", "\"user-agent\":\"y\"")
        }),
        ("RFC 7541 §6.2.2: without indexing, new name", |p| {
            decoded(p, b"\x00\x01x\x01y", XY)
        }),
        ("RFC 7541 §6.2.3: never indexed, indexed name", |p| {
            decoded(p, b"\x1f\x2b\x01y", "\"user-agent\":\"y\"")
        }),
        ("RFC 7541 §6.2.3: never indexed, new name", |p| {
            decoded(p, b"\x10\x01x\x01y", XY)
        }),
        ("RFC 7541 §5.2: Huffman-coded name and value", |p| {
            decoded(p, &[0x00, 0x81, 0xf3, 0x81, 0xf5], XY)
        }),
        ("RFC 7541 §5.2: an empty value", |p| {
            decoded(p, b"\x00\x01x\x00", "\"x\":\"\"")
        }),
        ("RFC 7541 §5.2: an empty Huffman-coded value", |p| {
            decoded(p, b"\x00\x01x\x80", "\"x\":\"\"")
        }),
        (
            "RFC 7541 §5.1: an integer in more bytes than it needs",
            |p| {
                let field = [&b"\x00\x01x\x7f\x80\x00"[..], &[b'y'; 127]].concat();
                decoded(p, &field, "\"x\":\"yyy")
            },
        ),
    ]);
}

#[test]
fn the_dynamic_table() {
    check(&[
        ("RFC 7541 §2.3.2: indexed, within a block", |p| {
            decoded(p, b"\x40\x01x\x01y\xbe", "\"x\":[\"y\",\"y\"]")
        }),
        ("RFC 7541 §2.3.2: indexed, in a later block", |p| {
            decoded(p, b"\x40\x01x\x01y", XY)?;
            ask(p, 3, &[0xbe]);
            p.answer_says(3, XY)
        }),
        ("RFC 7541 §2.3.2: the newest entry comes first", |p| {
            decoded(p, b"\x40\x01a\x01b\x40\x01x\x01y", XY)?;
            ask(p, 3, &[0xbf]);
            p.answer_says(3, "\"a\":\"b\"")
        }),
        ("RFC 7541 §6.2.1: a name of the dynamic table", |p| {
            decoded(p, b"\x40\x01x\x01z\x7e\x01y", "\"x\":[\"z\",\"y\"]")
        }),
        (
            "RFC 7541 §4.1: a field that is not kept is not there",
            |p| {
                decoded(p, b"\x00\x01x\x01y", XY)?;
                ask(p, 3, &[0xbe]);
                p.connection_error(INVALID)
            },
        ),
        (
            "RFC 7541 §4.4: a field larger than the table empties it",
            |p| {
                let long = "y".repeat(5000);
                decoded(p, b"\x40\x01x\x01y", XY)?;
                ask(p, 3, &hpack::encode_indexed("z", &long));
                p.status(3, 200)?;
                ask(p, 5, &[0xbe]);
                p.connection_error(INVALID)
            },
        ),
        ("RFC 7541 §4.4: the oldest fields are evicted", |p| {
            let long = "y".repeat(2500);
            decoded(p, &hpack::encode_indexed("a", &long), "\"a\":")?;
            ask(p, 3, &hpack::encode_indexed("b", &long));
            p.status(3, 200)?;
            ask(p, 5, &[0xbe]);
            p.answer_says(5, "\"b\":")?;
            ask(p, 7, &[0xbf]);
            p.connection_error(INVALID)
        }),
        ("§4.3: a malformed request changes the table too", |p| {
            ask(p, 1, b"\x40\x01x\x01y\x00\x02te\x04gzip");
            p.error(1, &[code::PROTOCOL_ERROR])?;
            ask(p, 3, &[0xbe]);
            p.answer_says(3, XY)
        }),
        (
            "§4.3: fields behind what is malformed change the table too",
            |p| {
                ask(p, 1, b"\x00\x02te\x04gzip\x40\x01x\x01y");
                p.error(1, &[code::PROTOCOL_ERROR])?;
                ask(p, 3, &[0xbe]);
                p.answer_says(3, XY)
            },
        ),
        (
            "§4.3: a request that is refused with 400 changes the table too",
            |p| {
                ask(p, 1, b"\x00\x04host\x01z\x40\x01x\x01y");
                p.status(1, 400)?;
                ask(p, 3, &[0xbe]);
                p.answer_says(3, XY)
            },
        ),
        ("§4.3: trailers change the table too", |p| {
            p.open(1)
                .headers(flag::END_STREAM, 1, b"\x40\x01x\x01y")
                .status(1, 200)?;
            ask(p, 3, &[0xbe]);
            p.answer_says(3, XY)
        }),
        (
            "§4.3: a header list over the limit changes the table too",
            |p| {
                let long = "y".repeat(9000);
                let list = [("a", &long[..]), ("b", &long)];
                let block = [base(), hpack::encode(&list), b"\x40\x01x\x01y".to_vec()].concat();
                p.frame(kind::HEADERS, flag::END_STREAM, 1, &block[..16_000])
                    .frame(kind::CONTINUATION, flag::END_HEADERS, 1, &block[16_000..]);
                match p.outcome(1) {
                    Outcome::Response { status: 431, .. } | Outcome::Reset(_) => {}
                    other => return Err(format!("{other:?}")),
                }
                ask(p, 3, &[0xbe]);
                p.answer_says(3, XY)
            },
        ),
    ]);
}

#[test]
fn sizes_of_the_dynamic_table() {
    check(&[
        ("RFC 7541 §6.3: an update to 0 and back", |p| {
            p.headers(
                flag::END_STREAM,
                1,
                &[&[0x20, 0x3f, 0xe1, 0x1f][..], &base()].concat(),
            )
            .status(1, 200)
        }),
        ("RFC 7541 §6.3: an update to the limit", |p| {
            p.headers(
                flag::END_STREAM,
                1,
                &[&[0x3f, 0xe1, 0x1f][..], &base()].concat(),
            )
            .status(1, 200)
        }),
        ("RFC 7541 §6.3: an update over the limit", |p| {
            p.headers(
                flag::END_STREAM,
                1,
                &[&[0x3f, 0xe2, 0x1f][..], &base()].concat(),
            )
            .connection_error(INVALID)
        }),
        ("RFC 7541 §4.2: an update behind fields", |p| {
            invalid(p, &[0x20])
        }),
        ("RFC 7541 §4.2: an update between fields", |p| {
            invalid(p, b"\x3f\xe1\x1f\x00\x01x\x01y")
        }),
        ("RFC 7541 §4.3: an update to 0 empties the table", |p| {
            decoded(p, b"\x40\x01x\x01y", XY)?;
            p.headers(
                flag::END_STREAM,
                3,
                &[&[0x20][..], &base(), &[0xbe]].concat(),
            )
            .connection_error(INVALID)
        }),
        (
            "RFC 7541 §4.2: the server's first block says that its table is smaller",
            |p| {
                p.settings(&[(setting::HEADER_TABLE_SIZE, 0)])
                    .ask_with(1, &[]);
                let block = p.wait_for("head", |frame| frame.kind == kind::HEADERS)?;
                match block[0] {
                    0x20 => Ok(()),
                    other => Err(format!("the block begins with {other:#x}")),
                }
            },
        ),
        (
            "RFC 7541 §4.2: a server without a table refers to none",
            |p| {
                p.settings(&[(setting::HEADER_TABLE_SIZE, 0)]);
                for stream in [1, 3, 5] {
                    p.ask_with(stream, &[]);
                    let block = p.wait_for("head", |frame| {
                        frame.kind == kind::HEADERS && frame.stream == stream
                    })?;
                    let outcome = p.outcome(stream);
                    if outcome.status() != Some(200)
                        || hpack::Decoder::default().decode(&block).is_none()
                    {
                        return Err(format!("{outcome:?} from {block:x?}"));
                    }
                }
                Ok(())
            },
        ),
    ]);
}

#[test]
fn invalid_blocks() {
    check(&[
        ("RFC 7541 §6.1: index 0", |p| invalid(p, &[0x80])),
        ("RFC 7541 §2.3.3: an index beyond both tables", |p| {
            invalid(p, &[0xbe])
        }),
        ("RFC 7541 §2.3.3: an index far beyond both tables", |p| {
            invalid(p, &[0xff, 0xff, 0x7f])
        }),
        (
            "RFC 7541 §6.2.1: with indexing, a name beyond both tables",
            |p| invalid(p, b"\x7e\x01y"),
        ),
        (
            "RFC 7541 §6.2.2: without indexing, a name beyond both tables",
            |p| invalid(p, b"\x0f\x2f\x01y"),
        ),
        (
            "RFC 7541 §6.2.3: never indexed, a name beyond both tables",
            |p| invalid(p, b"\x1f\x2f\x01y"),
        ),
        ("RFC 7541 §5.1: an integer of too many bytes", |p| {
            invalid(p, &[&[0xff][..], &[0xff; 10], &[0x7f]].concat())
        }),
        ("RFC 7541 §5.1: an integer that does not end", |p| {
            invalid(p, &[0xff, 0x80])
        }),
        ("RFC 7541 §5.2: a name longer than the block", |p| {
            invalid(p, b"\x00\x7fx")
        }),
        ("RFC 7541 §5.2: a value longer than the block", |p| {
            invalid(p, b"\x00\x01x\x05y")
        }),
        ("RFC 7541 §5.2: a field without a value", |p| {
            invalid(p, b"\x00\x01x")
        }),
        ("RFC 7541 §5.2: a length of 2^32", |p| {
            invalid(p, b"\x00\x01x\x7f\x81\xff\xff\xff\x0f")
        }),
        ("RFC 7541 §5.2: Huffman padding of more than 7 bits", |p| {
            invalid(p, &[0x00, 0x01, b'x', 0x82, 0xf5, 0xff])
        }),
        ("RFC 7541 §5.2: Huffman padding of a whole byte", |p| {
            invalid(p, &[0x00, 0x01, b'x', 0x81, 0xff])
        }),
        ("RFC 7541 §5.2: Huffman padding by zeros", |p| {
            invalid(p, &[0x00, 0x01, b'x', 0x81, 0xf4])
        }),
        ("RFC 7541 §5.2: EOS in a Huffman-coded value", |p| {
            invalid(p, &[0x00, 0x01, b'x', 0x84, 0xff, 0xff, 0xff, 0xff])
        }),
        ("RFC 7541 §5.2: EOS behind a symbol", |p| {
            invalid(p, &[0x00, 0x01, b'x', 0x85, 0xf5, 0xff, 0xff, 0xff, 0xfe])
        }),
        ("RFC 7541 §5.2: a Huffman-coded name cut short", |p| {
            invalid(p, &[0x00, 0x82, 0xf3])
        }),
    ]);
}
