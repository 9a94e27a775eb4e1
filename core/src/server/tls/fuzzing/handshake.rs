//! A handshake that is the same bytes each time: its key exchange, signature and random numbers are
//! none.
//!
//! Keys are derived as RFC 8446 §7.2 and §7.3 say, not by rustls.

use std::sync::{Arc, Mutex, OnceLock};

use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::{cipher_suite, default_provider};
use rustls::crypto::{
    ActiveKeyExchange, CryptoProvider, GetRandomFailed, SecureRandom, SharedSecret,
    SupportedKxGroup,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::{CertifiedKey, Signer, SigningKey, SingleCertAndKey};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, KeyLog, NamedGroup, ServerConfig,
    SignatureAlgorithm, SignatureScheme, version,
};

use super::super::session::{Records, Session};
use super::{MAX_RECORDS, receive};

/// What one secret gives.
pub(super) struct Keys {
    pub(super) key: LessSafeKey,
    iv: [u8; 12],
}

impl Keys {
    /// The keys of a secret and of those that follow it.
    fn chain(secret: &[u8]) -> Vec<Self> {
        let mut secret = secret.to_vec();
        let mut chain = Vec::new();
        for _ in 0..=MAX_RECORDS + 1 {
            let key = UnboundKey::new(&AES_128_GCM, &expand(&secret, b"key", 16));
            let iv = expand(&secret, b"iv", 12);
            chain.push(Self {
                key: LessSafeKey::new(key.expect("16 bytes")),
                iv: iv.try_into().expect("12 bytes"),
            });
            secret = expand(&secret, b"traffic upd", 32);
        }
        chain
    }

    pub(super) fn nonce(&self, sequence: u64) -> Nonce {
        let mut nonce = self.iv;
        for (byte, of_sequence) in nonce[4..].iter_mut().zip(sequence.to_be_bytes()) {
            *byte ^= of_sequence;
        }
        Nonce::assume_unique_for_key(nonce)
    }
}

/// `HKDF-Expand-Label` of RFC 8446 §7.1 with an empty context.
fn expand(secret: &[u8], label: &[u8], length: usize) -> Vec<u8> {
    struct Length(usize);
    impl hkdf::KeyType for Length {
        fn len(&self) -> usize {
            self.0
        }
    }
    let label = [b"tls13 ", label].concat();
    let head = [0, length as u8, label.len() as u8];
    let info = [&head[..], &label, &[0]];
    let mut out = vec![0; length];
    hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, secret)
        .expand(&info, Length(length))
        .and_then(|okm| okm.fill(&mut out))
        .expect("it is short");
    out
}

/// A handshake that can be repeated.
pub(super) struct Handshake {
    config: Arc<ServerConfig>,
    /// What the client says, in two parts.
    said: [Vec<u8>; 2],
    pub(super) client_keys: Vec<Keys>,
    pub(super) server_keys: Vec<Keys>,
}

impl Handshake {
    pub(super) fn get() -> &'static Self {
        static HANDSHAKE: OnceLock<Handshake> = OnceLock::new();
        HANDSHAKE.get_or_init(Self::new)
    }

    fn new() -> Self {
        let mut provider = default_provider();
        provider.cipher_suites = vec![cipher_suite::TLS13_AES_128_GCM_SHA256];
        provider.kx_groups = vec![&Known];
        provider.secure_random = &Known;
        let provider = Arc::new(provider);
        let config = Arc::new(server_config(&provider));
        let secrets = Arc::new(Secrets::default());
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13])
            .expect("the suite is of TLS 1.3")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Known))
            .with_no_client_auth();
        client.key_log = Arc::<Secrets>::clone(&secrets);
        let name = ServerName::try_from("localhost").expect("a name");
        let mut client = ClientConnection::new(Arc::new(client), name).expect("a client");
        let mut session = Session::new(Arc::clone(&config)).expect("a server");
        let mut records = Records::default();
        let said = [(); 2].map(|()| {
            let mut said = Vec::new();
            while client.wants_write() {
                client.write_tls(&mut said).expect("there is room");
            }
            let (_, failure) = receive(&mut session, &mut said.clone(), 1, &mut records);
            assert_eq!(failure, None);
            let mut answer = records.as_slice();
            while !answer.is_empty() {
                client.read_tls(&mut answer).expect("there is room");
                client.process_new_packets().expect("an honest server");
            }
            records.clear();
            said
        });
        assert!(!client.is_handshaking() && !session.is_handshaking());
        let keys = |name| Keys::chain(&secrets.get(name));
        Self {
            config,
            said,
            client_keys: keys("CLIENT_TRAFFIC_SECRET_0"),
            server_keys: keys("SERVER_TRAFFIC_SECRET_0"),
        }
    }

    /// A session whose records are ours.
    pub(super) fn session(&self) -> Session {
        let mut session = Session::new(Arc::clone(&self.config)).expect("a server");
        let mut records = Records::default();
        for said in &self.said {
            let (_, failure) = receive(&mut session, &mut said.clone(), 1, &mut records);
            assert_eq!(failure, None);
        }
        records.clear();
        session.seal(b"first", &mut records).expect("a connection");
        assert_eq!(self.first(&mut records), b"first");
        assert!(session.has_taken_over());
        session
    }

    /// Opens the first record, which proves that the handshake was repeated.
    fn first(&self, records: &mut Records) -> Vec<u8> {
        let mut wire = records.as_slice().to_vec();
        records.clear();
        let (head, body) = wire.split_first_chunk_mut::<5>().expect("a record");
        let keys = &self.server_keys[0];
        let opened = (keys.key)
            .open_in_place(keys.nonce(0), Aad::from(*head), body)
            .expect("the keys are those of the first handshake");
        opened[..opened.len() - 1].to_vec()
    }
}

fn server_config(provider: &Arc<CryptoProvider>) -> ServerConfig {
    let certificate = CertificateDer::from(b"nobody looks at it".to_vec());
    let key = CertifiedKey::new(vec![certificate], Arc::new(Known));
    let mut config = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&version::TLS13])
        .expect("the suite is of TLS 1.3")
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
    config.enable_secret_extraction = true;
    config.send_tls13_tickets = 0;
    config
}

/// The secrets that a client logs.
#[derive(Debug, Default)]
struct Secrets(Mutex<Vec<(String, Vec<u8>)>>);

impl Secrets {
    fn get(&self, name: &str) -> Vec<u8> {
        let logged = self.0.lock().expect("nobody panics");
        let mut found = logged.iter().filter(|(label, _)| label == name);
        found.next().expect("it was logged").1.clone()
    }
}

impl KeyLog for Secrets {
    fn log(&self, label: &str, _: &[u8], secret: &[u8]) {
        let mut logged = self.0.lock().expect("nobody panics");
        logged.push((label.to_owned(), secret.to_vec()));
    }
}

/// Whatever should be secret or random, the same each time.
#[derive(Debug)]
struct Known;

const SHARE: [u8; 32] = [7; 32];

impl SecureRandom for Known {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), GetRandomFailed> {
        bytes.fill(7);
        Ok(())
    }
}

impl SupportedKxGroup for Known {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        Ok(Box::new(Self))
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

impl ActiveKeyExchange for Known {
    fn complete(self: Box<Self>, _: &[u8]) -> Result<SharedSecret, Error> {
        Ok(SharedSecret::from(&SHARE[..]))
    }

    fn pub_key(&self) -> &[u8] {
        &SHARE
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

impl SigningKey for Known {
    fn choose_scheme(&self, _: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        Some(Box::new(Self))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ED25519
    }
}

impl Signer for Known {
    fn sign(&self, _: &[u8]) -> Result<Vec<u8>, Error> {
        Ok(vec![7; 64])
    }

    fn scheme(&self) -> SignatureScheme {
        SignatureScheme::ED25519
    }
}

impl ServerCertVerifier for Known {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.3 only".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}
