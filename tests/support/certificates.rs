//! A throw-away certificate authority, and TLS clients that trust it.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, Certificate, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::TempDir;

use super::client::Client;

/// A TLS connection.
pub(crate) type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// An authority and the folder that its files are in.
pub(crate) struct Authority {
    folder: TempDir,
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

/// A leaf certificate with its key.
pub(crate) struct Leaf {
    certificate: Certificate,
    key: KeyPair,
}

impl Authority {
    /// A fresh authority.
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names to be wrong");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("ring makes P-256 keys");
        let certificate = params.self_signed(&key).expect("own parameters are valid");
        let folder = TempDir::new().expect("a writable temporary folder");
        Self {
            folder,
            certificate,
            issuer: Issuer::new(params, key),
        }
    }

    /// A certificate of this authority for `name`.
    pub(crate) fn issue(&self, name: &str) -> Leaf {
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a valid name");
        let key = KeyPair::generate().expect("ring makes P-256 keys");
        let certificate = params.signed_by(&key, &self.issuer).expect("a valid leaf");
        Leaf { certificate, key }
    }

    /// Paths of a certificate and key file for `localhost`.
    pub(crate) fn server_files(&self) -> (String, String) {
        let leaf = self.issue("localhost");
        let certificate = self.write("server.pem", &leaf.certificate.pem());
        (
            certificate,
            self.write("server.key", &leaf.key.serialize_pem()),
        )
    }

    /// Path of the authority's own certificate.
    pub(crate) fn file(&self) -> String {
        self.write("authority.pem", &self.certificate.pem())
    }

    /// A client configuration that trusts this authority.
    pub(crate) fn client(&self, alpn: &[&str], identity: Option<&Leaf>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots
            .add(self.certificate.der().clone())
            .expect("own certificate parses");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring supports the default versions")
            .with_root_certificates(roots);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some(leaf) => builder
                .with_client_auth_cert(leaf.chain(), leaf.private_key())
                .expect("key and certificate belong together"),
        };
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path: PathBuf = self.folder.path().join(name);
        fs::write(&path, text).expect("own folder is writable");
        path.to_string_lossy().into_owned()
    }
}

impl Leaf {
    fn chain(&self) -> Vec<CertificateDer<'static>> {
        vec![self.certificate.der().clone()]
    }

    fn private_key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.serialize_der()).into()
    }
}

/// Connects and completes the handshake, or says why not.
pub(crate) fn handshake(
    address: SocketAddr,
    config: &Arc<ClientConfig>,
) -> std::io::Result<TlsStream> {
    handshake_over(Client::try_connect(address)?.stream().try_clone()?, config)
}

/// Completes the handshake on a fresh connection, or says why not.
pub(crate) fn handshake_over(
    mut socket: TcpStream,
    config: &Arc<ClientConfig>,
) -> std::io::Result<TlsStream> {
    let name = ServerName::try_from("localhost").expect("a valid name");
    let mut connection =
        ClientConnection::new(Arc::clone(config), name).map_err(std::io::Error::other)?;
    while connection.is_handshaking() {
        connection.complete_io(&mut socket)?;
    }
    Ok(StreamOwned::new(connection, socket))
}
