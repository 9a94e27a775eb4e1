//! Authenticated encryption of one cookie value.
//!
//! Layout before base64url: version (1 byte), salt (24), ciphertext, tag (16).
//! HKDF-SHA-256 (RFC 5869) makes key and nonce of secret and salt, so each
//! value has a key of its own and AES-256-GCM (NIST SP 800-38D) never sees a
//! nonce twice under one. The cookie's name is authenticated too.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use ring::rand::{SecureRandom as _, SystemRandom};

const VERSION: u8 = 1;
/// 192 random bits: a repetition is out of reach for any number of cookies.
const SALT_BYTES: usize = 24;
const TAG_BYTES: usize = 16;
const KEY_BYTES: usize = 32;
const EXPIRY_BYTES: usize = 8;
const MIN_BYTES: usize = 1 + SALT_BYTES + EXPIRY_BYTES + TAG_BYTES;
/// Text that is tried: what a cookie can hold.
const MAX_TEXT_BYTES: usize = 4096;
const LABEL: &[u8] = b"justapi session cookie v1";

/// A secret, ready to make keys of.
pub(super) struct Key(Prk);

impl Key {
    pub(super) fn of(secret: &[u8]) -> Self {
        Self(Salt::new(HKDF_SHA256, LABEL).extract(secret))
    }

    /// Encrypts `json` for the cookie `name`; base64url text.
    pub(super) fn seal(&self, name: &str, expires: u64, json: &[u8]) -> String {
        let mut salt = [0; SALT_BYTES];
        SystemRandom::new()
            .fill(&mut salt)
            .expect("the system has random numbers");
        let (key, nonce) = self.derive(&salt);
        let mut text = expires.to_be_bytes().to_vec();
        text.extend_from_slice(json);
        key.seal_in_place_append_tag(nonce, Aad::from(name.as_bytes()), &mut text)
            .expect("a cookie is shorter than AES-GCM's limit");
        let mut sealed = vec![VERSION];
        sealed.extend_from_slice(&salt);
        sealed.append(&mut text);
        URL_SAFE_NO_PAD.encode(sealed)
    }

    /// Expiry and JSON of a value that this key sealed for the cookie `name`.
    ///
    /// The tag is compared in constant time, before anything is looked at.
    pub(super) fn open(&self, name: &str, sealed: &str) -> Option<(u64, Vec<u8>)> {
        if sealed.len() > MAX_TEXT_BYTES {
            return None;
        }
        let mut bytes = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        if bytes.len() < MIN_BYTES || bytes[0] != VERSION {
            return None;
        }
        let (head, text) = bytes.split_at_mut(1 + SALT_BYTES);
        let (key, nonce) = self.derive(&head[1..]);
        let text = key
            .open_in_place(nonce, Aad::from(name.as_bytes()), text)
            .ok()?;
        let (expires, json) = text.split_first_chunk::<EXPIRY_BYTES>()?;
        Some((u64::from_be_bytes(*expires), json.to_vec()))
    }

    fn derive(&self, salt: &[u8]) -> (LessSafeKey, Nonce) {
        struct Length;
        impl KeyType for Length {
            fn len(&self) -> usize {
                KEY_BYTES + NONCE_LEN
            }
        }
        let mut bytes = [0; KEY_BYTES + NONCE_LEN];
        self.0
            .expand(&[salt], Length)
            .and_then(|material| material.fill(&mut bytes))
            .expect("44 bytes are within HKDF's limit");
        let (key, nonce) = bytes.split_at(KEY_BYTES);
        let key = UnboundKey::new(&AES_256_GCM, key).expect("the key has 32 bytes");
        let nonce = Nonce::try_assume_unique_for_key(nonce).expect("the nonce has 12 bytes");
        (LessSafeKey::new(key), nonce)
    }
}
