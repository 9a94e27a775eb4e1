//! What our record layer makes of any bytes, against a model that knows which records were sealed.
//!
//! Handshakes are repeated, so that one stream can be given to many sessions, cut in many ways.

mod handshake;
mod model;

use ring::aead::Aad;
use rustls::Error;
use tokio::io::ReadBuf;

use self::handshake::Handshake;
use self::model::{End, Model};
use super::session::{Records, Session};
use crate::fuzzing::Input;

/// Records of one input at the most, and so keys of each side.
const MAX_RECORDS: usize = 64;
/// Length from which a stream gets no further records.
const MAX_WIRE_BYTES: usize = 200_000;
/// Streams up to this length are also read byte by byte.
const MAX_BYTEWISE: usize = 400;

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;

/// Nothing is read but what was sealed, in order; what may not come ends the connection with the
/// alert that is due; the other direction goes on; and no cut makes a difference.
pub(crate) fn check(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let room = [1, 3, 64, 20_000][usize::from(input.byte() % 4)];
    let writes = input.byte() % 2 == 1;
    let lost = usize::from(input.byte());
    let cuts: Vec<usize> = (0..input.byte() % 4)
        .map(|_| input.up_to(usize::from(u16::MAX)))
        .collect();
    let (mut wire, sealed) = forge(input.rest());
    wire.truncate(wire.len().saturating_sub(lost));
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (wire.len() + 1)).collect();
    cuts.sort_unstable();

    let whole = Exchange::run(&wire, &sealed, &[], 20_000, false);
    let cut = Exchange::run(&wire, &sealed, &cuts, room, writes);
    assert_eq!(whole, cut, "cut at {cuts:?}, room for {room}");
    if wire.len() <= MAX_BYTEWISE {
        let all: Vec<usize> = (0..wire.len()).collect();
        let bytewise = Exchange::run(&wire, &sealed, &all, room, writes);
        assert_eq!(whole, bytewise, "in bytes, room for {room}");
    }
}

/// What a session has made of a stream.
#[derive(Debug, PartialEq, Eq)]
struct Exchange {
    plain: Vec<u8>,
    is_closed: bool,
    failure: Option<String>,
    /// The alert that the peer is told.
    alert: Option<Vec<u8>>,
}

impl Exchange {
    /// Gives a session the stream in pieces, and compares it with the model after each.
    fn run(wire: &[u8], sealed: &[Sealed], cuts: &[usize], room: usize, writes: bool) -> Self {
        let mut session = Handshake::get().session();
        let mut records = Records::default();
        let mut peer = Peer::default();
        let mut model = Model::default();
        let (mut plain, mut failure, mut alert) = (Vec::new(), None, None);
        let mut start = 0;
        for &end in cuts.iter().chain([&wire.len()]) {
            let mut piece = wire[start..end].to_vec();
            start = end;
            let had_failed = failure.is_some();
            let (read, failed) = receive(&mut session, &mut piece, room, &mut records);
            assert!(!had_failed || read.is_empty(), "nothing follows a failure");
            plain.extend(read);
            failure = failed.map(|error| format!("{error:?}")).or(failure);
            model.read(&wire[..end], sealed);
            assert_eq!(plain, model.plain, "what was sealed, and nothing else");
            assert_eq!(session.is_closed(), model.end == Some(End::Closed));
            let is_failed = matches!(model.end, Some(End::Failed(_)));
            assert_eq!(failure.is_some(), is_failed, "{failure:?}: {:?}", model.end);
            let said = peer.hear(&mut records);
            if let (Some(End::Failed(Some(due))), false) = (model.end, had_failed) {
                assert_eq!(said, [(vec![2, due], ALERT)], "the alert that is due");
                alert = Some(vec![2, due]);
            } else {
                assert!(said.is_empty(), "there is nothing to say");
            }
            if writes && !is_failed {
                write(&mut session, &mut records, &mut peer, &mut model);
            }
        }
        if failure.is_some() {
            let sealed = session.seal(b"answer", &mut records);
            assert!(sealed.is_err() && records.as_slice().is_empty());
        } else {
            write(&mut session, &mut records, &mut peer, &mut model);
            session.close(&mut records).expect("it has not failed");
            assert_eq!(peer.hear(&mut records), [(vec![1, 0], ALERT)]);
        }
        Self {
            plain,
            is_closed: session.is_closed(),
            failure,
            alert,
        }
    }
}

/// Reads like a stream does: until nothing is kept.
fn receive(
    session: &mut Session,
    piece: &mut [u8],
    room: usize,
    records: &mut Records,
) -> (Vec<u8>, Option<Error>) {
    let mut buffer = vec![0; room];
    let mut target = ReadBuf::new(&mut buffer);
    let mut plain = Vec::new();
    let mut result = session.receive(piece, &mut target, records);
    loop {
        plain.extend_from_slice(target.filled());
        if let Err(error) = result {
            return (plain, Some(error));
        }
        if !session.has_kept() {
            return (plain, None);
        }
        target.clear();
        result = session.read(&mut target, records);
    }
}

/// Sends an answer, behind new keys if they are owed.
fn write(session: &mut Session, records: &mut Records, peer: &mut Peer, model: &mut Model) {
    session.seal(b"answer", records).expect("it has not failed");
    let update = (vec![24, 0, 0, 1, 0], HANDSHAKE);
    let answer = (b"answer".to_vec(), DATA);
    let due = if std::mem::take(&mut model.owes_update) {
        vec![update, answer]
    } else {
        vec![answer]
    };
    assert_eq!(peer.hear(records), due);
}

/// A record that was sealed.
struct Sealed {
    bytes: Vec<u8>,
    inner: Vec<u8>,
    /// The key and the number that it was sealed with.
    key: usize,
    sequence: u64,
}

/// What an input says is to be done.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    /// The next byte; 0 when there are no more.
    fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or_default()
    }

    /// As many of the next bytes as there are.
    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let (bytes, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        bytes.to_vec()
    }
}

/// Makes a stream of what the input says: records that are right, wrong, or none at all.
fn forge(script: &[u8]) -> (Vec<u8>, Vec<Sealed>) {
    let mut script = Script(script);
    let mut wire = Vec::new();
    let mut sealed: Vec<Sealed> = Vec::new();
    let mut model = Model::default();
    for _ in 0..MAX_RECORDS {
        if script.0.is_empty() || wire.len() >= MAX_WIRE_BYTES {
            break;
        }
        // An honest client's, as far as the stream has come.
        model.read(&wire, &sealed);
        let (key, sequence) = (model.key, model.sequence);
        let act = script.byte() % 12;
        let record = match act {
            9 => {
                // Sealed, and changed afterwards.
                let mut changed = seal(key, sequence, inner(b"changed".to_vec(), DATA, 0));
                let at = usize::from(script.byte()) % changed.bytes.len();
                changed.bytes[at] ^= 1 << (script.byte() % 8);
                wire.extend(&changed.bytes);
                continue;
            }
            10 => {
                // Not sealed at all.
                let [content_type, minor, high, low] = [(); 4].map(|()| script.byte());
                wire.extend([content_type, 3, minor % 4, high % 66, low]);
                let length = usize::from(script.byte() % 64);
                wire.extend(script.bytes(length));
                continue;
            }
            11 => {
                // The one before again, one of a later number, one of the next key.
                let content = inner(b"early".to_vec(), DATA, 0);
                match (script.byte() % 3, sealed.last()) {
                    (0, Some(last)) => {
                        wire.extend(&last.bytes);
                        continue;
                    }
                    (1, _) => seal(key, sequence + 1, content),
                    _ => seal(key + 1, 0, content),
                }
            }
            act => seal(key, sequence, content_of(act, &mut script)),
        };
        wire.extend(&record.bytes);
        sealed.push(record);
    }
    (wire, sealed)
}

/// Content, type and padding of a record that is sealed as it should be.
fn content_of(act: u8, script: &mut Script<'_>) -> Vec<u8> {
    match act {
        0 => {
            let padding = usize::from(script.byte() % 4);
            let length = usize::from(script.byte());
            inner(script.bytes(length), DATA, padding)
        }
        1 => inner(vec![24, 0, 0, 1, script.byte() % 2], HANDSHAKE, 0),
        2 => {
            let length = usize::from(script.byte() % 8);
            inner(script.bytes(length), HANDSHAKE, 0)
        }
        3 => {
            let length = usize::from(script.byte() % 5);
            inner([24, 0, 0, 1][..length].to_vec(), HANDSHAKE, 1)
        }
        4 => inner(vec![script.byte(), script.byte()], ALERT, 0),
        5 => inner(vec![1; usize::from(script.byte() % 4)], ALERT, 0),
        6 => {
            let content_type = script.byte();
            inner(vec![script.byte(); 2], content_type, 0)
        }
        7 => vec![0; usize::from(script.byte())],
        // Around the longest plaintext, and the longest record.
        _ => {
            let length = usize::from(script.byte()) + usize::from(script.byte() % 8);
            inner(b"long".to_vec(), DATA, 16_376 + length)
        }
    }
}

fn inner(content: Vec<u8>, content_type: u8, padding: usize) -> Vec<u8> {
    let mut inner = content;
    inner.push(content_type);
    inner.resize(inner.len() + padding, 0);
    inner
}

/// Seals as the client does.
fn seal(key: usize, sequence: u64, inner: Vec<u8>) -> Sealed {
    let length = (inner.len() + 16) as u16;
    let [high, low] = length.to_be_bytes();
    let head = [DATA, 3, 3, high, low];
    let mut body = inner.clone();
    let keys = &Handshake::get().client_keys[key];
    keys.key
        .seal_in_place_append_tag(keys.nonce(sequence), Aad::from(head), &mut body)
        .expect("it is short enough");
    Sealed {
        bytes: [&head[..], &body].concat(),
        inner,
        key,
        sequence,
    }
}

/// The client's ears.
struct Peer {
    key: usize,
    sequence: u64,
}

impl Default for Peer {
    /// After the first record, that of the handshake's end.
    fn default() -> Self {
        Self {
            key: 0,
            sequence: 1,
        }
    }
}

impl Peer {
    /// Opens all that was said: content and type of each record.
    fn hear(&mut self, records: &mut Records) -> Vec<(Vec<u8>, u8)> {
        let wire = records.as_slice().to_vec();
        records.clear();
        let mut heard = Vec::new();
        let mut rest = &wire[..];
        while let Some((head, after)) = rest.split_first_chunk::<5>() {
            assert_eq!(head[..3], [DATA, 3, 3]);
            let length = usize::from(u16::from_be_bytes([head[3], head[4]]));
            let (body, after) = after.split_at(length);
            rest = after;
            let keys = &Handshake::get().server_keys[self.key];
            let mut body = body.to_vec();
            let opened =
                keys.key
                    .open_in_place(keys.nonce(self.sequence), Aad::from(*head), &mut body);
            let inner = opened.expect("it is sealed for the peer");
            self.sequence += 1;
            let (content_type, content) = inner.split_last().expect("a type");
            if *content_type == HANDSHAKE {
                self.key += 1;
                self.sequence = 0;
            }
            heard.push((content.to_vec(), *content_type));
        }
        assert_eq!(rest, b"", "whole records");
        heard
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// One act of a script, more often one that an honest client may do.
    fn act() -> impl Strategy<Value = Vec<u8>> {
        let data = vec(any::<u8>(), 0..20)
            .prop_map(|data| [&[0, 1, data.len() as u8][..], &data].concat());
        prop_oneof![
            6 => data,
            3 => (0_u8..2).prop_map(|asked| vec![1, asked]),
            // A KeyUpdate in two records.
            2 => Just(vec![3, 2, 2, 3, 0, 1, 1]),
            1 => Just(vec![4, 1, 90]),
            1 => Just(vec![8, 2, 1]),
            1 => vec(any::<u8>(), 1..12),
        ]
    }

    proptest! {
        #[test]
        fn streams_are_read_as_the_model_says(
            acts in vec(act(), 0..30),
            decisions in vec(any::<u8>(), 4..11),
        ) {
            super::check(&[acts.concat(), decisions].concat());
        }
    }
}
