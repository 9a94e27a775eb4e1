//! The same server in cleartext and inside TLS, for what must be alike in both.
//!
//! Over TLS the protocol is settled by ALPN, in cleartext by prior knowledge.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::certificates::{Authority, TlsStream, handshake};
use super::client::Client;
use super::server::Server;

/// A connection in cleartext or inside TLS.
pub(crate) trait Wire: Read + Write {
    /// The socket below.
    fn socket(&self) -> &TcpStream;
}

impl Wire for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }
}

impl Wire for TlsStream {
    fn socket(&self) -> &TcpStream {
        &self.sock
    }
}

/// How a client reaches a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Cleartext,
    Tls,
}

/// Both of them.
pub(crate) const TRANSPORTS: [Transport; 2] = [Transport::Cleartext, Transport::Tls];

/// Servers with the same flags, one for each transport.
pub(crate) struct Servers {
    authority: Authority,
    cleartext: Server,
    tls: Server,
}

impl Servers {
    /// Starts both.
    pub(crate) fn start(flags: &[&str]) -> Self {
        let authority = Authority::new();
        let (certificate, key) = authority.server_files();
        let tls = ["--tls-cert", &certificate, "--tls-key", &key];
        Self {
            cleartext: Server::start(flags),
            tls: Server::start(&[&tls, flags].concat()),
            authority,
        }
    }

    /// The server behind a transport.
    pub(crate) const fn server(&self, transport: Transport) -> &Server {
        match transport {
            Transport::Cleartext => &self.cleartext,
            Transport::Tls => &self.tls,
        }
    }

    /// A fresh connection for HTTP/2, on which nothing has been sent.
    pub(crate) fn connect(&self, transport: Transport) -> Box<dyn Wire> {
        let address = self.server(transport).address();
        match transport {
            Transport::Cleartext => {
                let socket = Client::connect(address).stream().try_clone();
                Box::new(socket.expect("a socket can be duplicated"))
            }
            Transport::Tls => {
                let config = self.authority.client(&["h2"], None);
                Box::new(handshake(address, &config).expect("the handshake succeeds"))
            }
        }
    }
}
