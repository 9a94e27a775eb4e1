//! The session against a rustls client: cut at every byte, without room, with
//! new keys, half-closed, and with records that nobody honest sends.

use std::io::{ErrorKind, Read as _, Write as _};
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{
    AlertDescription, ClientConfig, ClientConnection, ConnectionTrafficSecrets, Error,
    RootCertStore, ServerConfig, SupportedProtocolVersion, version,
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
    /// A pair that has shaken hands, with the client's bytes in pieces of
    /// `piece` bytes.
    fn shaken(version: &'static SupportedProtocolVersion, piece: usize) -> Self {
        let mut pair = Self::new(version);
        while pair.client.is_handshaking() || pair.session.is_handshaking() {
            for part in pair.said().chunks_mut(piece) {
                assert_eq!(pair.receive(part, 0), Ok(Vec::new()));
            }
            pair.answer();
        }
        pair
    }

    fn new(version: &'static SupportedProtocolVersion) -> Self {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).unwrap();
        let mut client = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        client.enable_secret_extraction = true;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let server = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
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

    /// A record as the client would seal it as its next, of any type.
    fn forged(self, content: &[u8], content_type: u8) -> (Session, Vec<u8>) {
        let secrets = self.client.dangerous_extract_secrets().unwrap();
        let (sequence, ConnectionTrafficSecrets::Aes256Gcm { key, iv }) = secrets.tx else {
            panic!("rustls' clients prefer AES-256");
        };
        let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key.as_ref()).unwrap());
        let mut nonce: [u8; 12] = iv.as_ref().try_into().unwrap();
        for (byte, of_sequence) in nonce[4..].iter_mut().zip(sequence.to_be_bytes()) {
            *byte ^= of_sequence;
        }
        let mut body = [content, &[content_type]].concat();
        let length = u16::try_from(body.len() + 16).unwrap().to_be_bytes();
        let head = [23, 3, 3, length[0], length[1]];
        let nonce = Nonce::assume_unique_for_key(nonce);
        key.seal_in_place_append_tag(nonce, Aad::from(head), &mut body)
            .unwrap();
        (self.session, [&head[..], &body].concat())
    }
}

const VERSIONS: [&SupportedProtocolVersion; 2] = [&version::TLS13, &version::TLS12];

#[test]
fn a_handshake_succeeds_however_it_is_cut() {
    for version in VERSIONS {
        for piece in [1, 2, 3, 5, 6, 64, 100_000] {
            let mut pair = Pair::shaken(version, piece);
            assert_eq!(pair.client.protocol_version(), Some(version.version));
            let mut wire = pair.sealed(b"question");
            assert_eq!(pair.receive(&mut wire, 64).unwrap(), b"question");
            assert_eq!(pair.write(b"answer"), b"answer");
        }
    }
}

#[test]
fn records_are_read_wherever_they_are_cut_and_whatever_room_there_is() {
    for version in VERSIONS {
        let mut pair = Pair::shaken(version, 100_000);
        let pieces = [&b"a"[..], &b"bc".repeat(30), b"def"];
        let plain = pieces.concat();
        let length = pieces.map(|piece| pair.sealed(piece).len()).iter().sum();
        // The records above are lost: a fresh pair reads every one.
        for room in [1, 2, 61, 1000] {
            let mut pair = Pair::shaken(version, 100_000);
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
    for version in VERSIONS {
        let mut pair = Pair::shaken(version, 100_000);
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
    let mut pair = Pair::shaken(&version::TLS13, 100_000);
    pair.client.refresh_traffic_keys().unwrap();
    let length = pair.said().len();
    for cut in 0..=length {
        let mut pair = Pair::shaken(&version::TLS13, 100_000);
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
        assert_eq!(pair.write(b"answer"), b"answer");
        assert_eq!(pair.write(b"more"), b"more");
    }
}

/// rustls remembers where the first part is.
#[test]
fn half_a_message_after_the_handshake_does_not_stop_the_other_direction() {
    // A KeyUpdate of one byte, of which the last byte is missing.
    let pair = Pair::shaken(&version::TLS13, 100_000);
    let (mut session, mut wire) = pair.forged(&[24, 0, 0], 22);
    let mut records = Records::default();
    let mut target = [0; 64];
    let mut target = ReadBuf::new(&mut target);
    session
        .receive(&mut wire, &mut target, &mut records)
        .unwrap();
    assert_eq!(records.as_slice(), b"");
    session.seal(b"answer", &mut records).unwrap();
    assert_eq!(records.as_slice().len(), 5 + 6 + 1 + 16);
    // Application data between the parts is against RFC 8446 §5.1.
    session.close(&mut records).unwrap();
}

#[test]
fn after_the_last_word_of_the_client_nothing_is_read_and_answers_pass() {
    for version in VERSIONS {
        let mut pair = Pair::shaken(version, 100_000);
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
    for version in VERSIONS {
        let mut pair = Pair::shaken(version, 100_000);
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
            "{version:?}"
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
    let mut pair = Pair::new(&version::TLS13);
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
    let mut pair = Pair::new(&version::TLS13);
    let mut wire = *b"GET / HTTP/1.1\r\n\r\n";
    assert!(pair.receive(&mut wire, 0).is_err());
    // A fatal alert of TLS 1.2, the oldest that is understood.
    assert_eq!(pair.records.as_slice()[..3], [21, 3, 3]);
}
