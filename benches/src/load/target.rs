//! Where requests go: URL to address, Host value and TLS configuration.
//!
//! Names are resolved once, before the run, so that no lookup is ever measured.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use crate::Error;

/// How long one address of a name with several may take to accept.
const ADDRESS_TRIAL: Duration = Duration::from_secs(1);

/// A resolved server.
#[derive(Debug, Clone)]
pub struct Target {
    /// Where to connect.
    pub address: Address,
    /// Value of the Host field.
    pub host: String,
    /// TLS, for https.
    pub tls: Option<Tls>,
}

/// A socket address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// TCP over IPv4 or IPv6.
    Tcp(SocketAddr),
    /// A Unix stream socket.
    Unix(PathBuf),
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// TLS settings of a target.
#[derive(Debug, Clone)]
pub struct Tls {
    /// Client configuration; each thread resumes sessions from its own store.
    pub config: Arc<ClientConfig>,
    /// The name that the certificate must have.
    pub server_name: ServerName<'static>,
}

/// Which certificates to trust.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// Those that chain to a certificate in this PEM file.
    CaFile(PathBuf),
    /// Any: for the self-signed certificate of a benchmark on one machine.
    Insecure,
}

/// Resolves `http://`, `https://` and `unix:/path` URLs; also returns the path.
///
/// The second part is the path with its query, `/` where the URL has none.
/// Where a name has several addresses, the first that accepts is taken.
///
/// # Errors
///
/// [`Error::Url`] for a malformed URL, [`Error::Resolve`] for an unknown name,
/// [`Error::File`] and [`Error::Tls`] for unusable certificates.
pub fn parse_target(url: &str, trust: Option<&Trust>) -> Result<(Target, String), Error> {
    let invalid = |problem| Error::Url {
        url: url.to_owned(),
        problem,
    };
    if !url.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(invalid("has a character that is not printable ASCII"));
    }
    if let Some(path) = url.strip_prefix("unix:") {
        if !path.starts_with('/') {
            return Err(invalid("the socket path is not absolute"));
        }
        let address = Address::Unix(PathBuf::from(path));
        return Ok((
            Target {
                address,
                host: "localhost".to_owned(),
                tls: None,
            },
            "/".to_owned(),
        ));
    }
    let (rest, secure) = if let Some(rest) = url.strip_prefix("http://") {
        (rest, false)
    } else if let Some(rest) = url.strip_prefix("https://") {
        (rest, true)
    } else {
        return Err(invalid("the scheme is not http, https or unix"));
    };
    let rest = rest.split_once('#').map_or(rest, |(before, _)| before);
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let path = if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("/{path}")
    };
    let default_port = if secure { 443 } else { 80 };
    let (name, port) = split_authority(authority, default_port).map_err(invalid)?;
    let address = Address::Tcp(resolve(name, port)?);
    let tls = if secure {
        let server_name =
            ServerName::try_from(name.to_owned()).map_err(|_| invalid("the host is not a name"))?;
        let trust = trust.ok_or_else(|| invalid("https needs a CA file or insecure mode"))?;
        Some(Tls {
            config: Arc::new(client_config(trust)?),
            server_name,
        })
    } else {
        None
    };
    Ok((
        Target {
            address,
            host: authority.to_owned(),
            tls,
        },
        path,
    ))
}

/// Splits `name`, `name:port`, `[v6]` and `[v6]:port`.
fn split_authority(authority: &str, default_port: u16) -> Result<(&str, u16), &'static str> {
    if authority.contains('@') {
        return Err("user information is not supported");
    }
    let (name, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (name, after) = rest.split_once(']').ok_or("the bracket is not closed")?;
            match after.strip_prefix(':') {
                Some(port) => (name, Some(port)),
                None if after.is_empty() => (name, None),
                None => return Err("text after the bracket"),
            }
        }
        None => match authority.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (authority, None),
        },
    };
    if name.is_empty() {
        return Err("the host is empty");
    }
    let port = match port {
        None => default_port,
        Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => port
            .parse()
            .map_err(|_| "the port is not a number up to 65535")?,
        Some(_) => return Err("the port is not a number up to 65535"),
    };
    Ok((name, port))
}

fn resolve(name: &str, port: u16) -> Result<SocketAddr, Error> {
    let addresses: Vec<_> = (name, port)
        .to_socket_addrs()
        .map_err(|source| Error::Resolve {
            name: name.to_owned(),
            source,
        })?
        .collect();
    let first = addresses.first().copied().ok_or_else(|| Error::Resolve {
        name: name.to_owned(),
        source: std::io::ErrorKind::NotFound.into(),
    })?;
    if addresses.len() == 1 {
        return Ok(first);
    }
    // "localhost" is often ::1 first while the server listens on 127.0.0.1 only.
    let accepts = |address: &SocketAddr| TcpStream::connect_timeout(address, ADDRESS_TRIAL).is_ok();
    Ok(addresses.into_iter().find(accepts).unwrap_or(first))
}

fn client_config(trust: &Trust) -> Result<ClientConfig, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let mut config = match trust {
        Trust::CaFile(path) => {
            let unreadable = |source| Error::CaFile {
                path: path.clone(),
                source,
            };
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_file_iter(path).map_err(unreadable)? {
                roots.add(certificate.map_err(unreadable)?)?;
            }
            if roots.is_empty() {
                return Err(unreadable(rustls_pki_types::pem::Error::NoItemsFound));
            }
            builder.with_root_certificates(roots).with_no_client_auth()
        }
        Trust::Insecure => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AcceptAny(provider)))
            .with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Accepts any certificate whose key signed the handshake.
#[derive(Debug)]
struct AcceptAny(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_split_into_address_host_and_path() {
        let check = |url: &str, address: &str, host: &str, path: &str| {
            let (target, found) = parse_target(url, None).unwrap();
            assert_eq!(
                target.address,
                Address::Tcp(address.parse().unwrap()),
                "{url}"
            );
            assert_eq!(
                (target.host.as_str(), found.as_str()),
                (host, path),
                "{url}"
            );
        };
        check("http://127.0.0.1", "127.0.0.1:80", "127.0.0.1", "/");
        check(
            "http://127.0.0.1:8000/a/b?c=d#e",
            "127.0.0.1:8000",
            "127.0.0.1:8000",
            "/a/b?c=d",
        );
        check("http://127.0.0.1?q", "127.0.0.1:80", "127.0.0.1", "/?q");
        check("http://[::1]:81/x", "[::1]:81", "[::1]:81", "/x");
    }

    #[test]
    fn unix_urls_name_the_socket() {
        let (target, path) = parse_target("unix:/run/app.sock", None).unwrap();
        assert_eq!(
            target.address,
            Address::Unix(PathBuf::from("/run/app.sock"))
        );
        assert_eq!(path, "/");
    }

    #[test]
    fn malformed_urls_are_refused() {
        for url in [
            "",
            "127.0.0.1:80",
            "ftp://127.0.0.1",
            "http://",
            "http://:80",
            "http://u@127.0.0.1",
            "http://127.0.0.1:x",
            "http://127.0.0.1:65536",
            "http://127.0.0.1:+1",
            "http://[::1",
            "http://[::1]x",
            "http://127.0.0.1/a b",
            "unix:run",
            "https://127.0.0.1",
        ] {
            assert!(
                matches!(parse_target(url, None), Err(Error::Url { .. })),
                "{url}"
            );
        }
    }

    #[test]
    fn https_takes_a_verifier() {
        let (target, _) = parse_target("https://127.0.0.1:1/", Some(&Trust::Insecure)).unwrap();
        assert_eq!(
            target.tls.unwrap().config.alpn_protocols,
            [b"http/1.1".to_vec()]
        );
        let missing = Trust::CaFile(PathBuf::from("/nonexistent/ca.pem"));
        let error = parse_target("https://127.0.0.1:1/", Some(&missing)).unwrap_err();
        assert!(matches!(error, Error::CaFile { .. }), "{error}");
    }
}
