//! TLS without a socket: records in and plaintext out, and the other way round.
//!
//! Guarantee: every byte received is processed once and in order, wherever the
//! records are cut; plaintext that a reader has no room for is kept, never more
//! than one receive's worth. Records are opened where they were received, and
//! sealed into one buffer that every connection of a lane shares.
//!
//! ```text
//! rustls: handshake, first answer ─▶ our record layer   (TLS 1.3, nothing pending)
//! ```

use std::sync::Arc;

use rustls::server::{ServerConfig, ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, EncryptError};
use rustls::{AlertDescription, Error, ProtocolVersion};
use tokio::io::ReadBuf;

use super::record_layer::{Opened, RecordLayer};

/// Largest plaintext of one record (RFC 8446 §5.1).
pub(super) const MAX_RECORD_BYTES: usize = 16 * 1024;
/// Received bytes that may wait for the rest of a message: rustls takes no
/// handshake message over 64 KiB.
const MAX_PARTIAL_BYTES: usize = 64 * 1024;

/// The server's side of one TLS connection.
pub(super) struct Session {
    protection: Protection,
    /// Whether the configuration lets rustls give its secrets away.
    may_take_over: bool,
    /// Received, but part of a message or without room for its plaintext.
    received: Vec<u8>,
    /// Whether `received` may hold a whole record.
    is_fresh: bool,
    /// Opened, and read up to `num_read`.
    plain: Vec<u8>,
    num_read: usize,
    /// Whether the peer has said that it sends no more.
    is_closed: bool,
    /// How the peer, or the wear of the keys, has ended the session.
    failure: Option<Error>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("received", &self.received.len())
            .field("plain", &(self.plain.len() - self.num_read))
            .field("is_closed", &self.is_closed)
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}

/// Who opens and seals records.
enum Protection {
    /// During the handshake, for TLS 1.2, and until nothing of it is pending.
    Rustls(Box<UnbufferedServerConnection>),
    Records(Box<RecordLayer>),
    /// Nobody: the session has failed.
    Lost,
}

/// What the session is run for.
enum Purpose<'a, 'b> {
    Receive(&'a mut ReadBuf<'b>),
    Seal(&'a [u8]),
    Close,
}

impl Session {
    /// # Errors
    /// When the configuration cannot serve anybody.
    pub(super) fn new(config: Arc<ServerConfig>) -> Result<Self, Error> {
        Ok(Self {
            may_take_over: config.enable_secret_extraction,
            protection: Protection::Rustls(Box::new(UnbufferedServerConnection::new(config)?)),
            received: Vec::new(),
            is_fresh: false,
            plain: Vec::new(),
            num_read: 0,
            is_closed: false,
            failure: None,
        })
    }

    pub(super) fn is_handshaking(&self) -> bool {
        matches!(&self.protection, Protection::Rustls(connection) if connection.is_handshaking())
    }

    /// Whether the peer has sent its `close_notify`.
    pub(super) const fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// What the handshake has agreed on; to be asked before anything is sealed.
    pub(super) fn alpn_protocol(&self) -> Option<&[u8]> {
        match &self.protection {
            Protection::Rustls(connection) => connection.alpn_protocol(),
            Protection::Records(_) | Protection::Lost => None,
        }
    }

    /// Whether [`Self::read`] has something to give or to say.
    pub(super) const fn has_kept(&self) -> bool {
        !self.plain.is_empty() || self.is_fresh || self.failure.is_some()
    }

    /// Gives `target` what has been received before and not been read.
    ///
    /// `records` get what the protocol has to say, also after an error.
    ///
    /// # Errors
    /// When the session has failed and all that came before has been read.
    pub(super) fn read(
        &mut self,
        target: &mut ReadBuf<'_>,
        records: &mut Records,
    ) -> Result<(), Error> {
        let before = target.filled().len();
        if self.num_read < self.plain.len() {
            let rest = &self.plain[self.num_read..];
            let length = rest.len().min(target.remaining());
            target.put_slice(&rest[..length]);
            self.num_read += length;
            if self.num_read == self.plain.len() {
                self.plain = Vec::new();
                self.num_read = 0;
            }
        }
        if self.is_fresh && target.remaining() > 0 {
            self.process_received(Purpose::Receive(target), records);
        }
        self.outcome(target.filled().len() > before)
    }

    /// Takes bytes from the peer, and gives `target` what is in them.
    ///
    /// `wire` is overwritten. Only after [`Self::read`] has given nothing:
    /// else more would be kept than one receive's worth.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(super) fn receive(
        &mut self,
        wire: &mut [u8],
        target: &mut ReadBuf<'_>,
        records: &mut Records,
    ) -> Result<(), Error> {
        let before = target.filled().len();
        if !self.goes_on() {
            // Whatever comes behind the end is nobody's word.
        } else if self.received.is_empty() {
            let taken = self.process(wire, Purpose::Receive(target), records);
            if taken < wire.len() && self.goes_on() {
                self.received = wire[taken..].to_vec();
            }
        } else {
            self.received.extend_from_slice(wire);
            self.process_received(Purpose::Receive(target), records);
        }
        self.outcome(target.filled().len() > before)
    }

    /// Seals `plain`, of [`MAX_RECORD_BYTES`] at the most, into `records`.
    ///
    /// # Errors
    /// When the session has failed.
    pub(super) fn seal(&mut self, plain: &[u8], records: &mut Records) -> Result<(), Error> {
        self.write(Purpose::Seal(plain), records)?;
        self.take_over();
        Ok(())
    }

    /// Whether the records are ours.
    #[cfg(any(test, fuzzing))]
    pub(super) const fn has_taken_over(&self) -> bool {
        matches!(self.protection, Protection::Records(_))
    }

    /// As if the configuration kept its secrets.
    #[cfg(test)]
    pub(super) const fn keep_secrets(&mut self) {
        self.may_take_over = false;
    }

    /// Lets one key seal fewer records than is safe.
    #[cfg(test)]
    pub(super) fn limit_sealed(&mut self, max_sealed: u64) {
        let Protection::Records(layer) = &mut self.protection else {
            panic!("rustls has its own limit");
        };
        layer.limit_sealed(max_sealed);
    }

    /// Adds the announcement to `records` that nothing follows.
    ///
    /// # Errors
    /// As [`Self::seal`].
    pub(super) fn close(&mut self, records: &mut Records) -> Result<(), Error> {
        self.write(Purpose::Close, records)
    }

    fn write(&mut self, purpose: Purpose<'_, '_>, records: &mut Records) -> Result<(), Error> {
        if self.failure.is_none() {
            // With rustls also what is kept of the other direction: it may be
            // part of a message, whose place rustls remembers.
            match &mut self.protection {
                Protection::Records(layer) => {
                    let sealed = match purpose {
                        Purpose::Receive(_) => Ok(()),
                        Purpose::Seal(plain) => layer.seal(plain, records),
                        Purpose::Close => layer.seal_alert(AlertDescription::CloseNotify, records),
                    };
                    self.failure = sealed.err();
                }
                Protection::Rustls(_) | Protection::Lost => {
                    self.process_received(purpose, records);
                }
            }
        }
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Takes the records over from rustls where it has nothing pending.
    ///
    /// Right after it has sealed something: it has then also said what it owed.
    fn take_over(&mut self) {
        let Protection::Rustls(connection) = &self.protection else {
            return;
        };
        let has_nothing_pending = self.received.is_empty()
            && !self.is_closed
            && !connection.is_handshaking()
            && !connection.wants_write();
        let is_tls13 = connection.protocol_version() == Some(ProtocolVersion::TLSv1_3);
        if !(self.may_take_over && is_tls13 && has_nothing_pending) {
            return;
        }
        let rustls = std::mem::replace(&mut self.protection, Protection::Lost);
        if let Protection::Rustls(connection) = rustls {
            match RecordLayer::take_over(*connection) {
                Ok(layer) => self.protection = Protection::Records(Box::new(layer)),
                Err(failure) => self.failure = Some(failure),
            }
        }
    }

    /// The failure, once nothing that came before is left to read.
    fn outcome(&self, has_given: bool) -> Result<(), Error> {
        match &self.failure {
            Some(failure) if !has_given => Err(failure.clone()),
            _ => Ok(()),
        }
    }

    const fn goes_on(&self) -> bool {
        !self.is_closed && self.failure.is_none()
    }

    fn process_received(&mut self, purpose: Purpose<'_, '_>, records: &mut Records) {
        let mut received = std::mem::take(&mut self.received);
        let taken = self.process(&mut received, purpose, records);
        if taken < received.len() && self.goes_on() {
            received.drain(..taken);
            self.received = received;
        }
    }

    /// Works on `wire` until `purpose` is met; how much is done with.
    fn process(
        &mut self,
        wire: &mut [u8],
        purpose: Purpose<'_, '_>,
        records: &mut Records,
    ) -> usize {
        match (&self.protection, purpose) {
            (Protection::Records(_), Purpose::Receive(target)) => self.open(wire, target, records),
            (_, purpose) => self.run_rustls(wire, purpose, records),
        }
    }

    /// Opens whole records of `wire` until `target` is full.
    fn open(&mut self, wire: &mut [u8], target: &mut ReadBuf<'_>, records: &mut Records) -> usize {
        let Protection::Records(layer) = &mut self.protection else {
            return 0;
        };
        let mut taken = 0;
        self.is_fresh = false;
        while taken < wire.len() {
            if target.remaining() == 0 {
                self.is_fresh = true;
                break;
            }
            let opened = match layer.open(&mut wire[taken..]) {
                Ok(None) => break,
                Ok(Some((length, opened))) => {
                    taken += length;
                    opened
                }
                Err((failure, alert)) => {
                    self.failure = Some(failure);
                    if let Some(alert) = alert {
                        // Without a key there is no way to say it.
                        drop(layer.seal_alert(alert, records));
                    }
                    break;
                }
            };
            match opened {
                Opened::Data(plain) => {
                    let (fitting, more) = plain.split_at(plain.len().min(target.remaining()));
                    target.put_slice(fitting);
                    self.plain.extend_from_slice(more);
                }
                Opened::Closed => {
                    self.is_closed = true;
                    break;
                }
                Opened::Protocol => {}
            }
        }
        taken
    }

    /// Runs rustls over `wire` until `purpose` is met.
    fn run_rustls(
        &mut self,
        wire: &mut [u8],
        mut purpose: Purpose<'_, '_>,
        records: &mut Records,
    ) -> usize {
        let Protection::Rustls(connection) = &mut self.protection else {
            return 0;
        };
        let mut taken = 0;
        self.is_fresh = false;
        loop {
            let status = connection.process_tls_records(&mut wire[taken..]);
            taken += status.discard;
            match status.state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(Ok(record)) = traffic.next_record() {
                        let mut rest = record.payload;
                        if let Purpose::Receive(target) = &mut purpose {
                            let length = rest.len().min(target.remaining());
                            target.put_slice(&rest[..length]);
                            rest = &rest[length..];
                        }
                        self.plain.extend_from_slice(rest);
                    }
                    let is_all = taken == wire.len() && !connection.wants_write();
                    match &purpose {
                        Purpose::Receive(_) if is_all => return taken,
                        Purpose::Receive(target) if target.remaining() == 0 => {
                            self.is_fresh = true;
                            return taken;
                        }
                        _ => {}
                    }
                }
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    let added = match purpose {
                        Purpose::Receive(_) => Ok(()),
                        Purpose::Seal(plain) => records.add(|room| traffic.encrypt(plain, room)),
                        Purpose::Close => records.add(|room| traffic.queue_close_notify(room)),
                    };
                    if let Err(failure) = added {
                        self.failure = Some(failure);
                    }
                    break;
                }
                Ok(ConnectionState::EncodeTlsData(data)) => records.encode(data),
                // It is with `records` now, and goes out before anything else.
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::PeerClosed) => self.is_closed = true,
                Ok(ConnectionState::BlockedHandshake | ConnectionState::Closed) => {
                    if !matches!(purpose, Purpose::Receive(_)) {
                        self.failure = Some(Error::HandshakeNotComplete);
                    }
                    break;
                }
                Ok(_) => {
                    self.failure = Some(Error::General("early data, which is not offered".into()));
                    return taken;
                }
                Err(failure) => {
                    self.failure = Some(failure);
                    say_last(connection, &mut wire[taken..], records);
                    return taken;
                }
            }
        }
        if wire.len() - taken > MAX_PARTIAL_BYTES && self.goes_on() {
            self.failure = Some(Error::General("a message that is too long".into()));
        }
        taken
    }
}

/// Adds the alert that tells the peer why rustls has failed.
fn say_last(connection: &mut UnbufferedServerConnection, wire: &mut [u8], records: &mut Records) {
    // What is to be sent comes before another look at the wrong record.
    while connection.wants_write() {
        match connection.process_tls_records(wire).state {
            Ok(ConnectionState::EncodeTlsData(data)) => records.encode(data),
            _ => return,
        }
    }
}

/// Sealed records, and messages of the handshake, on their way to the peer.
#[derive(Debug, Default)]
pub(super) struct Records {
    /// Initialised up to the most that was ever needed: rustls writes over it.
    bytes: Vec<u8>,
    length: usize,
}

impl Records {
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    pub(super) const fn clear(&mut self) {
        self.length = 0;
    }

    fn add(
        &mut self,
        mut seal: impl FnMut(&mut [u8]) -> Result<usize, EncryptError>,
    ) -> Result<(), Error> {
        loop {
            match seal(&mut self.bytes[self.length..]) {
                Ok(length) => {
                    self.length += length;
                    return Ok(());
                }
                Err(EncryptError::InsufficientSize(needed)) => self.grow(needed.required_size),
                Err(EncryptError::EncryptExhausted) => return Err(Error::EncryptError),
            }
        }
    }

    fn encode(&mut self, mut data: EncodeTlsData<'_, ServerConnectionData>) {
        loop {
            match data.encode(&mut self.bytes[self.length..]) {
                Ok(length) => self.length += length,
                Err(EncodeError::InsufficientSize(needed)) => self.grow(needed.required_size),
                Err(EncodeError::AlreadyEncoded) => return,
            }
        }
    }

    /// Room for `num_bytes` behind what is there.
    pub(super) fn room(&mut self, num_bytes: usize) -> &mut [u8] {
        if self.bytes.len() < self.length + num_bytes {
            self.grow(num_bytes);
        }
        &mut self.bytes[self.length..self.length + num_bytes]
    }

    /// Takes in what was written into [`Self::room`].
    pub(super) const fn filled(&mut self, num_bytes: usize) {
        self.length += num_bytes;
    }

    fn grow(&mut self, num_bytes: usize) {
        self.bytes.resize(self.length + num_bytes, 0);
    }
}
