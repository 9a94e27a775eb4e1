//! An HTTP/1.x client that sends exactly the bytes it is given and reads
//! answers by RFC 9112, refusing everything the RFC does not allow a server.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::PATIENCE;

/// A connection that keeps what it read beyond the last answer.
pub(crate) struct Client<S = TcpStream> {
    stream: S,
    buffer: Vec<u8>,
}

/// One answer, with the interim answers before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) version: String,
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) interim: Vec<u16>,
}

/// How a connection ended, or that it did not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Closed,
    Reset,
    StillOpen,
}

/// Why there is no complete answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReadError {
    /// The connection ended before the first byte, or stayed silent.
    Nothing(End),
    /// It ended or fell silent inside an answer.
    Partial(End, String),
    /// The bytes are no HTTP/1.x answer.
    Malformed(&'static str, String),
}

impl Client {
    /// Connects to a TCP address.
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address).expect("the server accepts connections")
    }

    /// Connects, or says why not.
    pub(crate) fn try_connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self::over(stream))
    }

    /// Says that nothing more will be sent.
    pub(crate) fn finish_writing(&self) {
        self.stream
            .shutdown(Shutdown::Write)
            .expect("an open socket can be half-closed");
    }

    /// Waits at most this long for each byte.
    pub(crate) fn set_patience(&self, patience: Duration) {
        self.stream
            .set_read_timeout(Some(patience))
            .expect("a non-zero timeout is accepted");
    }

    /// Ends the connection with a reset instead of a close.
    pub(crate) fn reset(self) {
        rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO))
            .expect("linger can be set on a socket");
    }
}

impl Client<UnixStream> {
    /// Connects to a Unix socket.
    pub(crate) fn connect_unix(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self::over(stream))
    }
}

impl<S: Read + Write> Client<S> {
    /// Speaks over a connection that is already there.
    pub(crate) const fn over(stream: S) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    /// The connection itself.
    pub(crate) const fn stream(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Sends bytes; a server that has already hung up is no failure here.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        match self.try_send(bytes) {
            Err(error) if !is_hang_up(error.kind()) => panic!("cannot send: {error}"),
            Ok(()) | Err(_) => {}
        }
    }

    /// Sends bytes, or says why not.
    pub(crate) fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())?;
        self.stream.flush()
    }

    /// Sends a request and reads its answer.
    pub(crate) fn ask(&mut self, request: impl AsRef<[u8]>) -> Response {
        let request = request.as_ref();
        self.send(request);
        let answer = if request.starts_with(b"HEAD ") {
            self.read_head()
        } else {
            self.read()
        };
        answer.unwrap_or_else(|error| panic!("{error} to {:?}", show(request)))
    }

    /// `GET path` on this connection.
    pub(crate) fn get(&mut self, path: &str) -> Response {
        self.ask(get(path))
    }

    /// Reads the answer to a request other than HEAD.
    pub(crate) fn read(&mut self) -> Result<Response, ReadError> {
        self.read_answer(false)
    }

    /// Reads the answer to HEAD: no body, whatever the headers say.
    pub(crate) fn read_head(&mut self) -> Result<Response, ReadError> {
        self.read_answer(true)
    }

    /// Reads until the connection ends; what came, and how it ended.
    pub(crate) fn read_to_end(&mut self) -> (Vec<u8>, End) {
        loop {
            if let Err(end) = self.fill() {
                return (std::mem::take(&mut self.buffer), end);
            }
        }
    }

    fn read_answer(&mut self, is_head: bool) -> Result<Response, ReadError> {
        let mut interim = Vec::new();
        loop {
            let head = self.read_until(b"\r\n\r\n", "response head")?;
            let mut response = parse_head(&head)?;
            if (100..200).contains(&response.status) && response.status != 101 {
                interim.push(response.status);
                continue;
            }
            response.interim = interim;
            if !(is_head || matches!(response.status, 101 | 204 | 304)) {
                response.body = self.read_body(&response)?;
            }
            return Ok(response);
        }
    }

    fn read_body(&mut self, response: &Response) -> Result<Vec<u8>, ReadError> {
        let malformed = |why| ReadError::Malformed(why, format!("{response:?}"));
        match (
            response.header("content-length"),
            response.header("transfer-encoding"),
        ) {
            (Some(_), Some(_)) => Err(malformed("Content-Length and Transfer-Encoding")),
            (None, Some("chunked")) => self.read_chunks(),
            (None, Some(_)) => Err(malformed("transfer coding other than chunked")),
            (Some(length), None) => {
                let length = length.parse().map_err(|_| malformed("Content-Length"))?;
                self.take(length)
            }
            (None, None) => match self.read_to_end() {
                (body, End::Closed) => Ok(body),
                (body, end) => Err(ReadError::Partial(end, show(&body))),
            },
        }
    }

    fn read_chunks(&mut self) -> Result<Vec<u8>, ReadError> {
        let mut body = Vec::new();
        while let Some(chunk) = self.read_chunk()? {
            body.extend(chunk);
        }
        Ok(body)
    }

    /// Reads the next chunk of a body whose head has been read; none at its end.
    pub(crate) fn read_chunk(&mut self) -> Result<Option<Vec<u8>>, ReadError> {
        let line = self.read_until(b"\r\n", "chunk size")?;
        let text = String::from_utf8_lossy(&line);
        let digits = text.trim_end().split(';').next().unwrap_or_default();
        let size = usize::from_str_radix(digits, 16)
            .map_err(|_| ReadError::Malformed("chunk size", show(&line)))?;
        if size == 0 {
            while self.read_until(b"\r\n", "trailer")?.len() > 2 {}
            return Ok(None);
        }
        let chunk = self.take(size)?;
        if self.take(2)? != b"\r\n" {
            return Err(ReadError::Malformed("chunk end", show(&chunk)));
        }
        Ok(Some(chunk))
    }

    fn read_until(&mut self, end: &[u8], what: &'static str) -> Result<Vec<u8>, ReadError> {
        let mut from = 0;
        loop {
            if let Some(found) = find(&self.buffer[from..], end) {
                return self.take(from + found + end.len());
            }
            if self.buffer.len() > 1024 * 1024 {
                return Err(ReadError::Malformed(what, "longer than 1 MiB".to_owned()));
            }
            from = self.buffer.len().saturating_sub(end.len());
            self.fill().map_err(|end| self.ended(end))?;
        }
    }

    fn take(&mut self, length: usize) -> Result<Vec<u8>, ReadError> {
        while self.buffer.len() < length {
            self.fill().map_err(|end| self.ended(end))?;
        }
        let rest = self.buffer.split_off(length);
        Ok(std::mem::replace(&mut self.buffer, rest))
    }

    fn ended(&self, end: End) -> ReadError {
        if self.buffer.is_empty() {
            ReadError::Nothing(end)
        } else {
            ReadError::Partial(end, show(&self.buffer))
        }
    }

    fn fill(&mut self) -> Result<(), End> {
        let mut chunk = [0; 16 * 1024];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(End::Closed),
                Ok(length) => {
                    self.buffer.extend_from_slice(&chunk[..length]);
                    return Ok(());
                }
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => {}
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => return Err(End::StillOpen),
                    _ => return Err(End::Reset),
                },
            }
        }
    }
}

impl Response {
    /// The only value of a header; panics when it came twice.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self
            .headers
            .iter()
            .filter(|(n, _)| n == name)
            .map(|(_, v)| v.as_str());
        let first = values.next();
        assert!(values.next().is_none(), "{name} came twice in {self:?}");
        first
    }

    /// Body as text, for messages and searches.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Body as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error} in the body of {self:?}"))
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing(end) => write!(f, "no answer, connection {end:?}"),
            Self::Partial(end, seen) => write!(f, "part of an answer, {end:?} after {seen:?}"),
            Self::Malformed(what, seen) => write!(f, "malformed {what}: {seen:?}"),
        }
    }
}

/// A plain GET of `path`.
pub(crate) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

/// A POST of a body with its length.
pub(crate) fn post(path: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
}

/// Bytes as escaped text, cut to what a message can carry.
pub(crate) fn show(bytes: &[u8]) -> String {
    let end = bytes.len().min(400);
    let more = if end < bytes.len() { "…" } else { "" };
    format!("{}{more}", bytes[..end].escape_ascii())
}

fn parse_head(head: &[u8]) -> Result<Response, ReadError> {
    let malformed = |what| ReadError::Malformed(what, show(head));
    let text = std::str::from_utf8(head).map_err(|_| malformed("head"))?;
    let mut lines = text.trim_end_matches("\r\n").split("\r\n");
    let status_line = lines.next().unwrap_or_default();
    let mut parts = status_line.splitn(3, ' ');
    let version = parts
        .next()
        .filter(|v| matches!(*v, "HTTP/1.0" | "HTTP/1.1"));
    let status = parts
        .next()
        .filter(|s| s.len() == 3)
        .and_then(|s| s.parse().ok());
    let (Some(version), Some(status), Some(_reason)) = (version, status, parts.next()) else {
        return Err(malformed("status line"));
    };
    let mut headers = Vec::new();
    for line in lines {
        let (name, value) = line
            .split_once(':')
            .ok_or_else(|| malformed("header line"))?;
        let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if name.is_empty() || !name.bytes().all(is_token) || value.contains(['\r', '\n', '\0']) {
            return Err(malformed("header line"));
        }
        headers.push((
            name.to_ascii_lowercase(),
            value.trim_matches([' ', '\t']).to_owned(),
        ));
    }
    let version = version.to_owned();
    Ok(Response {
        version,
        status,
        headers,
        body: Vec::new(),
        interim: Vec::new(),
    })
}

fn is_hang_up(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}
