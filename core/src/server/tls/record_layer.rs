//! The records of a TLS 1.3 connection whose handshake rustls has made.
//!
//! Guarantee: every record is opened and sealed with a nonce of its own and the
//! header as additional data (RFC 8446 §5.2, §5.3), new keys are taken and given
//! as §4.6.3 says and before a key is worn (§5.5), and what may not come after
//! the handshake ends the connection with its alert (§6). The keys themselves
//! are derived by rustls.

use ring::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::crypto::cipher;
use rustls::kernel::KernelConnection;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::{AlertDescription, ConnectionTrafficSecrets, Error, InvalidMessage, PeerMisbehaved};

use super::session::{MAX_RECORD_BYTES, Records};

/// Content type, version and length.
const HEADER_BYTES: usize = 5;
/// Of each AEAD that rustls offers.
const TAG_BYTES: usize = 16;
/// Content type and padding beside the content (RFC 8446 §5.2).
const MAX_SEALED_BYTES: usize = MAX_RECORD_BYTES + 256;

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;

/// The legacy version of every record.
const VERSION: [u8; 2] = [3, 3];

/// `KeyUpdate` without its last byte, the only message that a client may send
/// after the handshake: we ask for no certificate then.
const KEY_UPDATE: [u8; 4] = [24, 0, 0, 1];
const UPDATE_NOT_REQUESTED: u8 = 0;
const UPDATE_REQUESTED: u8 = 1;

/// What a peer may do in vain without a byte of data between; as in rustls.
const MAX_EMPTY_RECORDS: u8 = 32;
const MAX_KEY_UPDATES: u8 = 32;
const MAX_WARNINGS: u8 = 4;

/// Both directions of a connection.
pub(super) struct RecordLayer {
    secrets: KernelConnection<ServerConnectionData>,
    opening: Direction,
    sealing: Direction,
    /// Records that one key may seal.
    max_sealed: u64,
    /// The part of a handshake message that has come.
    message: [u8; KEY_UPDATE.len()],
    message_length: usize,
    /// Whether the peer has asked for new keys of ours.
    owes_update: bool,
    num_empty: u8,
    num_updates: u8,
    num_warnings: u8,
}

/// What a record was.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Opened<'a> {
    Data(&'a [u8]),
    /// The peer sends no more.
    Closed,
    /// Something that has been dealt with.
    Protocol,
}

/// Why a connection ends, and the alert that says so to the peer.
type Failure = (Error, Option<AlertDescription>);

impl RecordLayer {
    /// Takes a connection over from rustls.
    ///
    /// It must be one of TLS 1.3 after its handshake, with nothing left to send
    /// and no part of a message received.
    ///
    /// # Errors
    /// When it is not, or may not give its secrets away.
    pub(super) fn take_over(connection: UnbufferedServerConnection) -> Result<Self, Error> {
        let (secrets, connection) = connection.dangerous_into_kernel_connection()?;
        let suite = connection.negotiated_cipher_suite().tls13();
        let suite = suite.ok_or(Error::HandshakeNotComplete)?;
        Ok(Self {
            opening: Direction::new(secrets.rx)?,
            sealing: Direction::new(secrets.tx)?,
            max_sealed: suite.common.confidentiality_limit,
            secrets: connection,
            message: [0; KEY_UPDATE.len()],
            message_length: 0,
            owes_update: false,
            num_empty: 0,
            num_updates: 0,
            num_warnings: 0,
        })
    }

    /// Opens the record that `wire` begins with, where it lies; its length and
    /// what it was, or `None` while it is incomplete.
    ///
    /// # Errors
    /// When the connection is over.
    pub(super) fn open<'a>(
        &mut self,
        wire: &'a mut [u8],
    ) -> Result<Option<(usize, Opened<'a>)>, Failure> {
        let Some((header, rest)) = wire.split_first_chunk_mut::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let [content_type, _, _, length @ ..] = *header;
        if content_type != APPLICATION_DATA {
            return unexpected(InvalidMessage::InvalidContentType);
        }
        let length = usize::from(u16::from_be_bytes(length));
        if length > MAX_SEALED_BYTES {
            return refused(
                Error::PeerSentOversizedRecord,
                AlertDescription::RecordOverflow,
            );
        }
        let Some(sealed) = rest.get_mut(..length) else {
            return Ok(None);
        };
        let nonce = self.opening.next_nonce().map_err(|error| (error, None))?;
        let opened = self
            .opening
            .key
            .open_in_place(nonce, Aad::from(*header), sealed);
        let Ok(inner) = opened else {
            return refused(Error::DecryptError, AlertDescription::BadRecordMac);
        };
        let opened = self.read(inner)?;
        Ok(Some((HEADER_BYTES + length, opened)))
    }

    /// Deals with an opened record: content, its type, and zeros.
    fn read<'a>(&mut self, inner: &'a [u8]) -> Result<Opened<'a>, Failure> {
        if inner.len() > MAX_RECORD_BYTES + 1 {
            return refused(
                Error::PeerSentOversizedRecord,
                AlertDescription::RecordOverflow,
            );
        }
        let Some(end) = inner.iter().rposition(|&byte| byte != 0) else {
            return unexpected(PeerMisbehaved::IllegalTlsInnerPlaintext);
        };
        let content = &inner[..end];
        let content_type = inner[end];
        if self.message_length > 0 && content_type != HANDSHAKE {
            return unexpected(PeerMisbehaved::MessageInterleavedWithHandshakeMessage);
        }
        match content_type {
            APPLICATION_DATA if content.is_empty() => {
                count(
                    &mut self.num_empty,
                    MAX_EMPTY_RECORDS,
                    PeerMisbehaved::TooManyEmptyFragments,
                )?;
                Ok(Opened::Protocol)
            }
            APPLICATION_DATA => {
                self.num_empty = 0;
                self.num_updates = 0;
                Ok(Opened::Data(content))
            }
            ALERT => self.read_alert(content),
            HANDSHAKE => self.read_handshake(content),
            _ => unexpected(InvalidMessage::InvalidContentType),
        }
    }

    fn read_alert<'a>(&mut self, content: &[u8]) -> Result<Opened<'a>, Failure> {
        // The level says nothing any more (RFC 8446 §6).
        let [_, description] = *content else {
            return refused(
                InvalidMessage::MessageTooShort,
                AlertDescription::DecodeError,
            );
        };
        match AlertDescription::from(description) {
            AlertDescription::CloseNotify => Ok(Opened::Closed),
            AlertDescription::UserCanceled => {
                count(
                    &mut self.num_warnings,
                    MAX_WARNINGS,
                    PeerMisbehaved::TooManyWarningAlertsReceived,
                )?;
                Ok(Opened::Protocol)
            }
            description => Err((Error::AlertReceived(description), None)),
        }
    }

    fn read_handshake<'a>(&mut self, content: &[u8]) -> Result<Opened<'a>, Failure> {
        if content.is_empty() {
            return unexpected(InvalidMessage::InvalidEmptyPayload);
        }
        let missing = KEY_UPDATE.len() - self.message_length;
        let (begin, rest) = content.split_at(missing.min(content.len()));
        let length = self.message_length + begin.len();
        self.message[self.message_length..length].copy_from_slice(begin);
        self.message_length = length;
        if self.message[0] != KEY_UPDATE[0] {
            return unexpected(InvalidMessage::UnexpectedMessage("KeyUpdate"));
        }
        if self.message[..length] != KEY_UPDATE[..length] {
            return refused(
                InvalidMessage::InvalidKeyUpdate,
                AlertDescription::DecodeError,
            );
        }
        let [request, behind @ ..] = rest else {
            return Ok(Opened::Protocol);
        };
        if !behind.is_empty() {
            // It would have been sealed with the old key.
            return unexpected(PeerMisbehaved::KeyEpochWithPendingFragment);
        }
        self.message_length = 0;
        count(
            &mut self.num_updates,
            MAX_KEY_UPDATES,
            PeerMisbehaved::TooManyKeyUpdateRequests,
        )?;
        match *request {
            UPDATE_NOT_REQUESTED => {}
            UPDATE_REQUESTED => self.owes_update = true,
            _ => {
                return refused(
                    InvalidMessage::InvalidKeyUpdate,
                    AlertDescription::IllegalParameter,
                );
            }
        }
        let secrets = self.secrets.update_rx_secret();
        let direction = secrets.and_then(Direction::new);
        self.opening = direction.map_err(|error| (error, Some(AlertDescription::InternalError)))?;
        Ok(Opened::Protocol)
    }

    /// Seals `plain`, of [`MAX_RECORD_BYTES`] at the most, behind the new keys
    /// that are due.
    ///
    /// # Errors
    /// When there are no keys any more.
    pub(super) fn seal(&mut self, plain: &[u8], records: &mut Records) -> Result<(), Error> {
        if self.owes_update {
            self.owes_update = false;
            self.update_sealing(UPDATE_NOT_REQUESTED, records)?;
        } else if self.sealing.sequence.saturating_add(1) >= self.max_sealed {
            // The message takes the last number.
            self.update_sealing(UPDATE_REQUESTED, records)?;
        }
        self.sealing.seal(plain, APPLICATION_DATA, records)
    }

    /// Seals an alert; a fatal one unless it is [`AlertDescription::CloseNotify`].
    ///
    /// # Errors
    /// As [`Self::seal`].
    pub(super) fn seal_alert(
        &mut self,
        description: AlertDescription,
        records: &mut Records,
    ) -> Result<(), Error> {
        let level = match description {
            AlertDescription::CloseNotify => 1,
            _ => 2,
        };
        self.sealing
            .seal(&[level, description.into()], ALERT, records)
    }

    fn update_sealing(&mut self, request: u8, records: &mut Records) -> Result<(), Error> {
        let [kind, a, b, c] = KEY_UPDATE;
        let message = [kind, a, b, c, request];
        self.sealing.seal(&message, HANDSHAKE, records)?;
        self.sealing = Direction::new(self.secrets.update_tx_secret()?)?;
        Ok(())
    }

    /// Lets one key seal fewer records than is safe.
    #[cfg(test)]
    pub(super) fn limit_sealed(&mut self, max_sealed: u64) {
        self.max_sealed = max_sealed;
    }
}

/// The key of one direction and the number of its next record.
struct Direction {
    key: LessSafeKey,
    iv: cipher::Iv,
    sequence: u64,
}

impl Direction {
    fn new((sequence, secrets): (u64, ConnectionTrafficSecrets)) -> Result<Self, Error> {
        let (algorithm, key, iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&aead::AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&aead::AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
                (&aead::CHACHA20_POLY1305, key, iv)
            }
            _ => return Err(Error::General("an AEAD that is not offered".into())),
        };
        let key = UnboundKey::new(algorithm, key.as_ref());
        let key = key.map_err(|_| Error::General("a key of another length".into()))?;
        Ok(Self {
            key: LessSafeKey::new(key),
            iv,
            sequence,
        })
    }

    /// The nonce of the next record; never the same again.
    fn next_nonce(&mut self) -> Result<Nonce, Error> {
        let sequence = self.sequence;
        self.sequence = sequence.checked_add(1).ok_or(Error::EncryptError)?;
        let nonce = cipher::Nonce::new(&self.iv, sequence);
        Ok(Nonce::assume_unique_for_key(nonce.0))
    }

    /// Seals one record behind those that are there.
    fn seal(
        &mut self,
        content: &[u8],
        content_type: u8,
        records: &mut Records,
    ) -> Result<(), Error> {
        let inner_length = content.len() + 1;
        let length = inner_length + TAG_BYTES;
        let nonce = self.next_nonce()?;
        let (header, body) = records
            .room(HEADER_BYTES + length)
            .split_first_chunk_mut::<HEADER_BYTES>()
            .expect("there is room for more than that");
        let [high, low] = (length as u16).to_be_bytes();
        *header = [APPLICATION_DATA, VERSION[0], VERSION[1], high, low];
        let (inner, tag_room) = body.split_at_mut(inner_length);
        let (of_content, of_type) = inner.split_at_mut(content.len());
        of_content.copy_from_slice(content);
        of_type[0] = content_type;
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce, Aad::from(*header), inner)
            .map_err(|_| Error::EncryptError)?;
        tag_room.copy_from_slice(tag.as_ref());
        records.filled(HEADER_BYTES + length);
        Ok(())
    }
}

fn refused<T>(error: impl Into<Error>, alert: AlertDescription) -> Result<T, Failure> {
    Err((error.into(), Some(alert)))
}

fn unexpected<T>(error: impl Into<Error>) -> Result<T, Failure> {
    refused(error, AlertDescription::UnexpectedMessage)
}

/// Counts what a peer may not do without end.
fn count(counter: &mut u8, most: u8, fault: PeerMisbehaved) -> Result<(), Failure> {
    if *counter == most {
        return unexpected(fault);
    }
    *counter += 1;
    Ok(())
}
