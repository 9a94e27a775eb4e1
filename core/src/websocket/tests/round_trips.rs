//! Random messages through both directions, against a client made of flate2
//! and nothing else of ours.

use std::pin::Pin;
use std::task::{Context, Waker};

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};
use proptest::prelude::*;

use super::super::decoder::{Decoder, Event};
use super::super::deflate::Agreement;
use super::super::limits::WebSocketLimits;
use super::super::message::Message;
use super::super::writer::Writer;
use super::{frame, server_frames};

#[derive(Debug, Clone)]
struct Sent {
    message: Message,
    is_compressed: bool,
    /// Where its payload is cut into fragments, in parts of its length.
    cuts: Vec<f64>,
    /// Whether a ping stands before each fragment.
    has_pings: bool,
}

fn message() -> impl Strategy<Value = Message> {
    let words = prop::collection::vec("[a-zé𝄞 ]{1,12}", 1..6);
    prop_oneof![
        (words, 0_usize..400)
            .prop_map(|(words, times)| { Message::Text(words.concat().repeat(times)) }),
        prop::collection::vec(any::<u8>(), 0..3000).prop_map(Message::from),
        (any::<u8>(), 0_usize..150_000)
            .prop_map(|(byte, length)| { Message::from(vec![byte; length]) }),
    ]
}

fn sent() -> impl Strategy<Value = Sent> {
    let cuts = prop::collection::vec(0.0..1.0, 0..4);
    (message(), any::<bool>(), cuts, any::<bool>()).prop_map(
        |(message, is_compressed, mut cuts, has_pings)| {
            cuts.sort_by(f64::total_cmp);
            Sent {
                message,
                is_compressed,
                cuts,
                has_pings,
            }
        },
    )
}

fn agreement() -> impl Strategy<Value = Agreement> {
    (9_u8..=15, 9_u8..=15, any::<bool>(), any::<bool>()).prop_map(|(ours, theirs, a, b)| {
        Agreement {
            server_window_bits: ours,
            client_window_bits: theirs,
            server_takeover: a,
            client_takeover: b,
        }
    })
}

/// What a client sends: RFC 7692 §7.2.1 with zlib.
struct Client {
    agreement: Agreement,
    compress: Compress,
    decompress: Decompress,
}

impl Client {
    fn new(agreement: Agreement) -> Self {
        let level = Compression::new(6);
        Self {
            compress: Compress::new_with_window_bits(level, false, agreement.client_window_bits),
            decompress: Decompress::new_with_window_bits(false, agreement.server_window_bits),
            agreement,
        }
    }

    fn encode(&mut self, sent: &Sent) -> Vec<u8> {
        let opcode = match sent.message {
            Message::Text(_) => 0x1,
            Message::Binary(_) => 0x2,
        };
        let mut payload = sent.message.clone().into_bytes().to_vec();
        let is_compressed = sent.is_compressed && !payload.is_empty();
        if is_compressed {
            let mut output = Vec::with_capacity(2 * payload.len() + 100);
            self.compress
                .compress_vec(&payload, &mut output, FlushCompress::Sync)
                .expect("any input compresses");
            output.truncate(output.len() - 4);
            payload = output;
            if !self.agreement.client_takeover {
                self.compress.reset();
            }
        }
        let mut bytes = Vec::new();
        let mut start = 0;
        let mut first = opcode | if is_compressed { 0x40 } else { 0 };
        for cut in &sent.cuts {
            let end = (*cut * payload.len() as f64) as usize;
            if sent.has_pings {
                bytes.extend(frame(0x89, b"ping"));
            }
            bytes.extend(frame(first, &payload[start..end]));
            (start, first) = (end, 0);
        }
        bytes.extend(frame(0x80 | first, &payload[start..]));
        bytes
    }

    /// What a server's frames mean.
    fn decode(&mut self, bytes: &[u8]) -> Vec<Message> {
        let mut messages = Vec::new();
        let mut open: Option<(u8, Vec<u8>)> = None;
        for (first, payload) in server_frames(bytes) {
            let is_continuation = matches!(first, 0x00 | 0x80);
            assert_eq!(is_continuation, open.is_some(), "fragments are in order");
            let (kind, mut all) = open.take().unwrap_or((first, Vec::new()));
            all.extend(payload);
            if first & 0x80 == 0 {
                open = Some((kind, all));
                continue;
            }
            let data = if kind & 0x40 == 0 {
                all
            } else {
                self.inflate(&all)
            };
            messages.push(match kind & 0x0f {
                1 => Message::Text(String::from_utf8(data).expect("text is UTF-8")),
                _ => Message::from(data),
            });
        }
        messages
    }

    fn inflate(&mut self, data: &[u8]) -> Vec<u8> {
        let input = [data, &[0, 0, 0xff, 0xff]].concat();
        let mut output = Vec::with_capacity(1024 * 1024);
        self.decompress
            .decompress_vec(&input, &mut output, FlushDecompress::Sync)
            .expect("the server's data is deflate with the agreed window");
        if !self.agreement.server_takeover {
            self.decompress.reset(false);
            let bits = self.agreement.server_window_bits;
            self.decompress = Decompress::new_with_window_bits(false, bits);
        }
        output
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_a_client_sends_is_what_is_received(
        agreement in agreement(),
        all in prop::collection::vec(sent(), 1..5),
        piece_bytes in 1_usize..5000,
    ) {
        let mut client = Client::new(agreement);
        let mut decoder = Decoder::new(&WebSocketLimits::DEFAULT, Some(agreement));
        let mut received = Vec::new();
        let mut stream: Vec<u8> = all.iter().flat_map(|sent| client.encode(sent)).collect();
        for piece in stream.chunks_mut(piece_bytes) {
            let mut start = 0;
            while start < piece.len() {
                let (used, event) = decoder.decode(&mut piece[start..]).expect("it is valid");
                start += used;
                if let Some(Event::Message(message)) = event {
                    received.push(message);
                }
            }
        }
        let sent: Vec<_> = all.into_iter().map(|sent| sent.message).collect();
        prop_assert_eq!(received, sent);
    }

    #[test]
    fn what_is_sent_is_what_a_client_receives(
        agreement in agreement(),
        messages in prop::collection::vec(message(), 1..5),
    ) {
        let mut writer = Writer::new(Some(agreement));
        let mut wire = Vec::new();
        let mut cx = Context::from_waker(Waker::noop());
        for message in &messages {
            writer.queue_message(message.clone());
            let flushed = writer.poll_flush(Pin::new(&mut wire), &mut cx);
            prop_assert!(matches!(flushed, std::task::Poll::Ready(Ok(()))));
        }
        prop_assert_eq!(Client::new(agreement).decode(&wire), messages);
    }
}
