//! TLS to upstreams: whose certificates are believed.
//!
//! Guarantee: an upstream is spoken to only after its certificate has been
//! checked for the name in its URL; there is no way to skip that.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use crate::error::Error;
use crate::server::read_certificates;

const KEY: &str = "server.proxy_ca";

/// Where systems keep the authorities that they trust, all in one file: Debian
/// and Alpine, Fedora, openSUSE, and the others.
static OF_THE_SYSTEM: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Makes TLS connections to upstreams that `authorities`, or else those of the
/// system, have signed.
pub(super) fn connector(authorities: Option<&Path>) -> Result<TlsConnector, Error> {
    let invalid = |reason: String| Error::Config { key: KEY, reason };
    let of_the_system = || {
        OF_THE_SYSTEM
            .iter()
            .map(Path::new)
            .find(|path| path.exists())
    };
    let path = authorities
        .or_else(of_the_system)
        .ok_or_else(|| invalid("no authorities found on this system; name a file".to_owned()))?;
    let mut roots = RootCertStore::empty();
    // A system's list may hold certificates of kinds that are not known here.
    let (num_added, num_ignored) = roots.add_parsable_certificates(read_certificates(path)?);
    if num_added == 0 || authorities.is_some() && num_ignored > 0 {
        let path = path.display();
        return Err(invalid(format!("{path} has a certificate that is none")));
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| invalid(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}
