//! TLS: certificate files to a rustls configuration, and its connections.
//!
//! rustls' safe defaults (TLS 1.2 and 1.3, AEAD suites), tickets for
//! resumption, ALPN `h2` and `http/1.1`, client certificates when an authority
//! is given.

#[cfg(any(test, fuzzing))]
pub(super) mod fuzzing;
mod record_layer;
mod session;
mod stream;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::server::{ServerConfig, WebPkiClientVerifier};
use rustls_pki_types::pem::{self, PemObject as _};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

pub(super) use self::stream::{TlsBuffers, TlsStream};
use crate::error::Error;

/// PEM files of a TLS server.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TlsFiles {
    /// Certificate chain, leaf first.
    pub cert: PathBuf,
    /// Private key of the leaf: PKCS #8, PKCS #1 or SEC 1.
    pub key: PathBuf,
    /// Authorities whose client certificates are required; none asks for none.
    pub client_ca: Option<PathBuf>,
}

impl TlsFiles {
    /// Checks that a server could use the files.
    ///
    /// # Errors
    /// [`Error::TlsFile`] when a file cannot be read or parsed,
    /// [`Error::TlsConfig`] when they do not fit.
    pub fn check(&self) -> Result<(), Error> {
        self.load().map(drop)
    }

    /// Reads the files and checks that they belong together.
    ///
    /// # Errors
    /// [`Error::TlsFile`] when a file cannot be read or parsed,
    /// [`Error::TlsConfig`] when they do not fit.
    pub(crate) fn load(&self) -> Result<Arc<ServerConfig>, Error> {
        let certificates = read_certificates(&self.cert)?;
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|error| file_error(&self.key, error, "no private key in the file"))?;
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| config_error(&self.cert, &error))?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in read_certificates(path)? {
                    roots
                        .add(certificate)
                        .map_err(|error| config_error(path, &error))?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                        .build()
                        .map_err(|error| config_error(path, &error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder
            .with_single_cert(certificates, key)
            .map_err(|error| config_error(&self.key, &error))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // For the record layer, which takes over from rustls.
        config.enable_secret_extraction = true;
        config.ticketer =
            ring::Ticketer::new().map_err(|error| config_error(&self.cert, &error))?;
        Ok(Arc::new(config))
    }
}

/// The certificates of a PEM file, at least one.
pub(crate) fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let certificates = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| file_error(path, error, "no certificate in the file"))?;
    if certificates.is_empty() {
        return Err(file_error(
            path,
            pem::Error::NoItemsFound,
            "no certificate in the file",
        ));
    }
    Ok(certificates)
}

fn file_error(path: &Path, error: pem::Error, empty: &str) -> Error {
    let source = match error {
        pem::Error::Io(source) => source,
        pem::Error::NoItemsFound => io::Error::new(io::ErrorKind::InvalidData, empty),
        other => io::Error::new(io::ErrorKind::InvalidData, other.to_string()),
    };
    Error::TlsFile {
        path: path.to_owned(),
        source,
    }
}

fn config_error(path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::TlsConfig {
        path: path.to_owned(),
        reason: error.to_string(),
    }
}
