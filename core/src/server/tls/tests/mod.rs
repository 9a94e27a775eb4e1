//! The session against a rustls client: cut at every byte, without room, with
//! new keys, half-closed; with rustls' records and with ours.

mod rules;

use std::io::{ErrorKind, Read as _, Write as _};
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::crypto::ring::{cipher_suite, default_provider};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{
    AlertDescription, ClientConfig, ClientConnection, ConnectionTrafficSecrets, Error,
    RootCertStore, ServerConfig, SupportedCipherSuite, SupportedProtocolVersion, version,
};
use tokio::io::ReadBuf;

use super::session::{MAX_RECORD_BYTES, Records, Session};

/// A client and a session, with what each has said to the other.
struct Pair {
    client: ClientConnection,
    session: Session,
    records: Records,
}

impl Pair {
    /// A pair in `state`, with the client's bytes of the handshake in pieces of
    /// `piece` bytes.
    fn shaken(state: State, piece: usize) -> Self {
        let mut pair = Self::new(state.version, None);
        pair.shake_hands(piece);
        if state.has_answered {
            assert_eq!(pair.write(b"first"), b"first");
        }
        let is_without_rustls = state.has_answered && state.version == &version::TLS13;
        assert_eq!(pair.session.has_taken_over(), is_without_rustls);
        pair
    }

    fn shake_hands(&mut self, piece: usize) {
        while self.client.is_handshaking() || self.session.is_handshaking() {
            for part in self.said().chunks_mut(piece) {
                assert_eq!(self.receive(part, 0), Ok(Vec::new()));
            }
            self.answer();
        }
    }

    /// A pair before its handshake, with a client that knows `suite` alone or all.
    fn new(
        version: &'static SupportedProtocolVersion,
        suite: Option<SupportedCipherSuite>,
    ) -> Self {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).unwrap();
        let mut provider = default_provider();
        if let Some(suite) = suite {
            provider.cipher_suites = vec![suite];
        }
        let mut client = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        client.enable_secret_extraction = true;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut server = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        server.enable_secret_extraction = true;
        let name = ServerName::try_from("localhost").unwrap();
        Self {
            client: ClientConnection::new(Arc::new(client), name).unwrap(),
            session: Session::new(Arc::new(server)).unwrap(),
            records: Records::default(),
        }
    }

    /// What the client has to send.
    fn said(&mut self) -> Vec<u8> {
        let mut wire = Vec::new();
        while self.client.wants_write() {
            self.client.write_tls(&mut wire).unwrap();
        }
        wire
    }

    /// The records of the client for `plain`.
    fn sealed(&mut self, plain: &[u8]) -> Vec<u8> {
        self.client.writer().write_all(plain).unwrap();
        self.said()
    }

    /// Gives the session bytes, and reads with room for `room` at a time.
    fn receive(&mut self, wire: &mut [u8], room: usize) -> Result<Vec<u8>, Error> {
        let mut target = vec![0; room];
        let mut target = ReadBuf::new(&mut target);
        self.session.receive(wire, &mut target, &mut self.records)?;
        let mut plain = target.filled().to_vec();
        while room > 0 && !target.filled().is_empty() {
            target.clear();
            self.session.read(&mut target, &mut self.records)?;
            plain.extend_from_slice(target.filled());
        }
        Ok(plain)
    }

    /// Gives the client what the session has said; the plaintext in it.
    fn answer(&mut self) -> Vec<u8> {
        let mut wire = self.records.as_slice();
        let mut plain = Vec::new();
        while !wire.is_empty() {
            self.client.read_tls(&mut wire).unwrap();
            self.client.process_new_packets().unwrap();
            match self.client.reader().read_to_end(&mut plain) {
                Ok(_) => {}
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        self.records.clear();
        plain
    }

    /// What the client reads of `plain` sealed by the session.
    fn write(&mut self, plain: &[u8]) -> Vec<u8> {
        for piece in plain.chunks(MAX_RECORD_BYTES) {
            self.session.seal(piece, &mut self.records).unwrap();
        }
        self.answer()
    }

    /// The session, and a client that seals what rustls would not.
    fn forger(self) -> Forger {
        let secrets = self.client.dangerous_extract_secrets().unwrap();
        Forger {
            session: self.session,
            records: self.records,
            sealing: Direction::new(secrets.tx),
            opening: Direction::new(secrets.rx),
        }
    }
}

/// A client of TLS 1.3 that keeps no rule.
struct Forger {
    session: Session,
    records: Records,
    sealing: Direction,
    opening: Direction,
}

struct Direction {
    key: LessSafeKey,
    iv: [u8; 12],
    sequence: u64,
}

impl Direction {
    fn new((sequence, secrets): (u64, ConnectionTrafficSecrets)) -> Self {
        let ConnectionTrafficSecrets::Aes256Gcm { key, iv } = secrets else {
            panic!("rustls' clients prefer AES-256");
        };
        Self {
            key: LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key.as_ref()).unwrap()),
            iv: iv.as_ref().try_into().unwrap(),
            sequence,
        }
    }

    fn next_nonce(&mut self) -> Nonce {
        let mut nonce = self.iv;
        for (byte, of_sequence) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= of_sequence;
        }
        self.sequence += 1;
        Nonce::assume_unique_for_key(nonce)
    }
}

impl Forger {
    /// A record of any type, with `content` and what is put behind its type.
    fn padded(&mut self, content: &[u8], content_type: u8, padding: &[u8]) -> Vec<u8> {
        let mut body = [content, &[content_type], padding].concat();
        let length = u16::try_from(body.len() + 16).unwrap().to_be_bytes();
        let head = [23, 3, 3, length[0], length[1]];
        let nonce = self.sealing.next_nonce();
        self.sealing
            .key
            .seal_in_place_append_tag(nonce, Aad::from(head), &mut body)
            .unwrap();
        [&head[..], &body].concat()
    }

    fn sealed(&mut self, content: &[u8], content_type: u8) -> Vec<u8> {
        self.padded(content, content_type, &[])
    }

    /// Gives the session bytes; what it reads of them, or why it ends.
    fn say(&mut self, mut wire: Vec<u8>) -> Result<Vec<u8>, Error> {
        let mut target = vec![0; 20_000];
        let mut target = ReadBuf::new(&mut target);
        let (session, records) = (&mut self.session, &mut self.records);
        session.receive(&mut wire, &mut target, records)?;
        Ok(target.filled().to_vec())
    }

    /// The next record that the session has sealed: content and type.
    fn heard(&mut self) -> Option<(Vec<u8>, u8)> {
        let mut wire = self.records.as_slice().to_vec();
        if wire.is_empty() {
            return None;
        }
        self.records.clear();
        let (head, body) = wire.split_at_mut(5);
        let length = usize::from(u16::from_be_bytes([head[3], head[4]]));
        assert_eq!(length, body.len(), "one record");
        let aad = Aad::from([head[0], head[1], head[2], head[3], head[4]]);
        let nonce = self.opening.next_nonce();
        let inner = self.opening.key.open_in_place(nonce, aad, body).unwrap();
        let (content_type, content) = inner.split_last().unwrap();
        Some((content.to_vec(), *content_type))
    }
}

/// How far a connection is.
#[derive(Debug, Clone, Copy)]
struct State {
    version: &'static SupportedProtocolVersion,
    /// From then on TLS 1.3 does without rustls.
    has_answered: bool,
}

impl State {
    const fn new(version: &'static SupportedProtocolVersion, has_answered: bool) -> Self {
        Self {
            version,
            has_answered,
        }
    }
}

const STATES: [State; 4] = [
    State::new(&version::TLS13, false),
    State::new(&version::TLS13, true),
    State::new(&version::TLS12, false),
    State::new(&version::TLS12, true),
];

/// Those of TLS 1.3: rustls' records and ours.
const STATES_13: [State; 2] = [STATES[0], STATES[1]];

#[test]
fn a_handshake_succeeds_however_it_is_cut() {
    for state in STATES {
        for piece in [1, 2, 3, 5, 6, 64, 100_000] {
            let mut pair = Pair::shaken(state, piece);
            assert_eq!(pair.client.protocol_version(), Some(state.version.version));
            let mut wire = pair.sealed(b"question");
            assert_eq!(pair.receive(&mut wire, 64).unwrap(), b"question");
            assert_eq!(pair.write(b"answer"), b"answer");
        }
    }
}

#[test]
fn records_are_read_wherever_they_are_cut_and_whatever_room_there_is() {
    for state in STATES {
        let mut pair = Pair::shaken(state, 100_000);
        let pieces = [&b"a"[..], &b"bc".repeat(30), b"def"];
        let plain = pieces.concat();
        let length = pieces.map(|piece| pair.sealed(piece).len()).iter().sum();
        // The records above are lost: a fresh pair reads every one.
        for room in [1, 2, 61, 1000] {
            let mut pair = Pair::shaken(state, 100_000);
            for cut in 0..length {
                let mut wire = pieces.map(|piece| pair.sealed(piece)).concat();
                let (first, second) = wire.split_at_mut(cut);
                let mut read = pair.receive(first, room).unwrap();
                read.extend(pair.receive(second, room).unwrap());
                assert_eq!(read, plain, "cut at {cut}, room for {room}");
            }
            let mut wire = pieces.map(|piece| pair.sealed(piece)).concat();
            let parts = wire.chunks_mut(1);
            let read = parts.flat_map(|part| pair.receive(part, room).unwrap());
            assert_eq!(read.collect::<Vec<_>>(), plain, "in bytes");
        }
    }
}

/// With little room most of it waits; what is written meanwhile is whole.
#[test]
fn large_records_pass_both_ways() {
    for state in STATES {
        let mut pair = Pair::shaken(state, 100_000);
        let plain: Vec<u8> = (0..60_000_u32).map(|index| (index / 7) as u8).collect();
        for piece in [1_000, 16_384, 20_000, 32_768] {
            let mut wire = pair.sealed(&plain);
            let mut read = Vec::new();
            for part in wire.chunks_mut(piece) {
                read.extend(pair.receive(part, 5_000).unwrap());
                assert_eq!(pair.write(&plain[..40_000]), plain[..40_000]);
            }
            assert!(read == plain, "in pieces of {piece}");
        }
    }
}

#[test]
fn new_keys_of_the_client_are_taken_wherever_they_come() {
    for state in STATES_13 {
        let mut pair = Pair::shaken(state, 100_000);
        pair.client.refresh_traffic_keys().unwrap();
        let length = pair.said().len();
        for cut in 0..=length {
            let mut pair = Pair::shaken(state, 100_000);
            let mut wire = pair.sealed(b"before");
            pair.client.refresh_traffic_keys().unwrap();
            let at = wire.len() + cut;
            wire.extend(pair.said());
            wire.extend(pair.sealed(b"after"));
            let (first, second) = wire.split_at_mut(at);
            let mut read = pair.receive(first, 64).unwrap();
            // Between the two the other direction goes on.
            assert_eq!(pair.write(b"answer"), b"answer");
            read.extend(pair.receive(second, 64).unwrap());
            assert_eq!(read, b"beforeafter", "cut at {cut}");
            // The client wants new keys of us, once.
            for is_first in [true, false] {
                pair.session.seal(b"answer", &mut pair.records).unwrap();
                let is_longer = pair.records.as_slice().len() > 5 + 6 + 1 + 16;
                assert_eq!(is_longer, is_first && cut < length, "cut at {cut}");
                assert_eq!(pair.answer(), b"answer");
            }
            assert!(pair.session.has_taken_over());
        }
    }
}

/// What rustls owes when its last record is sealed goes before it.
#[test]
fn new_keys_right_behind_the_handshake_are_taken_and_given() {
    let mut pair = Pair::new(&version::TLS13, None);
    while pair.client.is_handshaking() {
        let mut wire = pair.said();
        assert_eq!(pair.receive(&mut wire, 0), Ok(Vec::new()));
        pair.answer();
    }
    let mut wire = pair.said();
    pair.client.refresh_traffic_keys().unwrap();
    wire.extend(pair.said());
    wire.extend(pair.sealed(b"question"));
    assert_eq!(pair.receive(&mut wire, 64).unwrap(), b"question");
    assert_eq!(pair.write(b"answer"), b"answer");
    assert!(pair.session.has_taken_over());
    let mut wire = pair.sealed(b"more");
    assert_eq!(pair.receive(&mut wire, 64).unwrap(), b"more");
    assert_eq!(pair.write(b"answer"), b"answer");
}

#[test]
fn rustls_keeps_a_connection_while_part_of_a_record_waits() {
    let mut pair = Pair::shaken(STATES[0], 100_000);
    let mut wire = pair.sealed(b"question");
    let (first, second) = wire.split_at_mut(9);
    assert_eq!(pair.receive(first, 64).unwrap(), b"");
    assert_eq!(pair.write(b"early"), b"early");
    assert!(!pair.session.has_taken_over());
    assert_eq!(pair.receive(second, 64).unwrap(), b"question");
    assert_eq!(pair.write(b"answer"), b"answer");
    assert!(pair.session.has_taken_over());
}

#[test]
fn a_configuration_that_keeps_its_secrets_stays_with_rustls() {
    let mut pair = Pair::new(&version::TLS13, None);
    pair.session.keep_secrets();
    pair.shake_hands(100_000);
    for _ in 0..3 {
        let mut wire = pair.sealed(b"question");
        assert_eq!(pair.receive(&mut wire, 64).unwrap(), b"question");
        assert_eq!(pair.write(b"answer"), b"answer");
    }
    assert!(!pair.session.has_taken_over());
}

#[test]
fn every_suite_is_spoken() {
    for suite in [
        cipher_suite::TLS13_AES_128_GCM_SHA256,
        cipher_suite::TLS13_AES_256_GCM_SHA384,
        cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ] {
        let mut pair = Pair::new(&version::TLS13, Some(suite));
        pair.shake_hands(100_000);
        for turn in 0..4 {
            assert_eq!(pair.write(b"answer"), b"answer");
            if turn == 1 {
                pair.client.refresh_traffic_keys().unwrap();
            }
            let mut wire = pair.sealed(b"question");
            assert_eq!(pair.receive(&mut wire, 64).unwrap(), b"question");
        }
        assert!(pair.session.has_taken_over(), "{suite:?}");
    }
}

/// A key that has sealed what it may is replaced before the next record, and
/// the client is asked for a new one, too.
#[test]
fn worn_keys_are_replaced() {
    let mut pair = Pair::shaken(STATES[1], 100_000);
    pair.session.limit_sealed(4);
    let mut num_updates = 0;
    for turn in 0..20 {
        pair.session.seal(b"answer", &mut pair.records).unwrap();
        num_updates += usize::from(pair.records.as_slice().len() > 5 + 6 + 1 + 16);
        assert_eq!(pair.answer(), b"answer", "{turn}");
        let mut wire = pair.sealed(b"question");
        assert_eq!(pair.receive(&mut wire, 64).unwrap(), b"question", "{turn}");
    }
    // Three records of data and the message with each key.
    assert!((6..=7).contains(&num_updates), "{num_updates}");
}

#[test]
fn after_the_last_word_of_the_client_nothing_is_read_and_answers_pass() {
    for state in STATES {
        let mut pair = Pair::shaken(state, 100_000);
        let mut wire = pair.sealed(b"question");
        pair.client.send_close_notify();
        wire.extend(pair.said());
        wire.extend(b"\x17\x03\x03\x00\x01x");
        assert!(!pair.session.is_closed());
        assert_eq!(pair.receive(&mut wire, 4).unwrap(), b"question");
        assert!(pair.session.is_closed());
        assert_eq!(pair.write(b"answer"), b"answer");
        pair.session.close(&mut pair.records).unwrap();
        let mut wire = pair.records.as_slice();
        pair.client.read_tls(&mut wire).unwrap();
        assert!(pair.client.process_new_packets().unwrap().peer_has_closed());
    }
}

#[test]
fn a_record_that_was_changed_is_told_after_what_came_before() {
    for state in STATES {
        let mut pair = Pair::shaken(state, 100_000);
        let mut wire = pair.sealed(b"good");
        wire.extend(pair.sealed(b"changed"));
        *wire.last_mut().unwrap() ^= 1;
        let mut target = [0; 64];
        let mut target = ReadBuf::new(&mut target);
        let (session, records) = (&mut pair.session, &mut pair.records);
        session.receive(&mut wire, &mut target, records).unwrap();
        assert_eq!(target.filled(), b"good");
        target.clear();
        let failure = session.receive(&mut [], &mut target, records);
        assert_eq!(failure, Err(Error::DecryptError));
        assert_eq!(
            session.seal(b"answer", records),
            Err(Error::DecryptError),
            "{state:?}"
        );
        let mut wire = pair.records.as_slice();
        pair.client.read_tls(&mut wire).unwrap();
        assert_eq!(
            pair.client.process_new_packets().map(drop),
            Err(Error::AlertReceived(AlertDescription::BadRecordMac))
        );
    }
}

#[test]
fn a_handshake_message_without_end_is_refused() {
    let mut pair = Pair::new(&version::TLS13, None);
    // A ClientHello of 65,535 bytes, a hundred to a record.
    let mut content = [1, 0, 255, 255].into_iter().chain(std::iter::repeat(0));
    let mut num_bytes = 0;
    let refused = loop {
        let mut record = vec![22, 3, 1, 0, 100];
        record.extend(content.by_ref().take(100));
        num_bytes += record.len();
        assert!(num_bytes < 100_000, "it is kept whatever its length");
        if pair.receive(&mut record, 0).is_err() {
            break num_bytes;
        }
    };
    assert!(refused > 60_000, "{refused}");
}

#[test]
fn what_is_no_tls_is_told_so() {
    let mut pair = Pair::new(&version::TLS13, None);
    let mut wire = *b"GET / HTTP/1.1\r\n\r\n";
    assert!(pair.receive(&mut wire, 0).is_err());
    // A fatal alert of TLS 1.2, the oldest that is understood.
    assert_eq!(pair.records.as_slice()[..3], [21, 3, 3]);
}
