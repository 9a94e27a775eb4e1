//! A server that misbehaves by path, for clients to be tried on.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Answers by path; what it counted can be compared with what a client says.
pub(crate) struct Naughty {
    pub(crate) address: SocketAddr,
    pub(crate) requests: Arc<AtomicU64>,
    pub(crate) connections: Arc<AtomicU64>,
    stopped: Arc<AtomicBool>,
}

impl Naughty {
    pub(crate) fn start() -> Self {
        Self::on(SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    pub(crate) fn on(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let naughty = Self {
            address: listener.local_addr().unwrap(),
            requests: Arc::default(),
            connections: Arc::default(),
            stopped: Arc::default(),
        };
        let (requests, connections, stopped) = (
            Arc::clone(&naughty.requests),
            Arc::clone(&naughty.connections),
            Arc::clone(&naughty.stopped),
        );
        thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                connections.fetch_add(1, Ordering::SeqCst);
                let requests = Arc::clone(&requests);
                thread::spawn(move || {
                    // A client that has seen enough goes without asking.
                    drop(serve(&stream.unwrap(), &requests));
                });
            }
        });
        naughty
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

impl Drop for Naughty {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
    }
}

/// What a client asks for.
struct Request {
    path: String,
    query: String,
    body: Vec<u8>,
}

impl Request {
    /// `None` at the end of the connection.
    fn read(reader: &mut BufReader<&TcpStream>) -> std::io::Result<Option<Self>> {
        let (mut target, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(None);
            }
            if target.is_empty() {
                line.split(' ').nth(1).unwrap().clone_into(&mut target);
            }
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        Ok(Some(Self {
            path: path.to_owned(),
            query: query.to_owned(),
            body,
        }))
    }

    /// The number behind the `=` of the query.
    fn number(&self) -> u64 {
        let value = self.query.split_once('=').map(|(_, value)| value);
        value.map_or(0, |value| value.parse().unwrap())
    }
}

fn serve(stream: &TcpStream, requests: &AtomicU64) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    while let Some(request) = Request::read(&mut reader)? {
        let number = requests.fetch_add(1, Ordering::SeqCst) + 1;
        let is_open = match canned(&request.path) {
            Some((bytes, is_open)) => {
                (&*stream).write_all(bytes)?;
                is_open
            }
            None => answer(stream, &mut reader, &request, number)?,
        };
        if !is_open {
            break;
        }
    }
    Ok(())
}

/// The bytes that a path always sends, and whether the connection goes on.
fn canned(path: &str) -> Option<(&'static [u8], bool)> {
    Some(match path {
        "/close" => (b"", false),
        "/close-early" => (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", false),
        "/no-length" => (b"HTTP/1.1 200 OK\r\n\r\nok", false),
        "/chunked" => (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
              01;a=\"b\"\r\no\r\n1\r\nk\r\n000\r\nTrailer: x\r\n\r\n",
            true,
        ),
        "/bad-chunk" => (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nokay\r\n0\r\n\r\n",
            true,
        ),
        "/chunk-without-size" => (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\nok\r\n",
            true,
        ),
        "/chunk-that-ends" => (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nok",
            false,
        ),
        "/two-lengths" => (
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
            true,
        ),
        "/both-framings" => (
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
            true,
        ),
        "/head-with-length" => (b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", true),
        "/204-te" => (
            b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",
            true,
        ),
        "/204-te-with-end" => (
            b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            true,
        ),
        "/304" => (
            b"HTTP/1.1 304 Not Modified\r\nContent-Length: 1000\r\n\r\n",
            true,
        ),
        "/1xx" => (
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n\
              HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            true,
        ),
        "/101" => (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", true),
        "/two-in-one" => (
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok\
              HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            true,
        ),
        "/other-protocol" => (b"SSH-2.0-x\r\n", true),
        "/" | "/x" => (OK, true),
        _ => return None,
    })
}

/// Answers what depends on the request, or on time; whether the connection goes on.
fn answer(
    mut stream: &TcpStream,
    reader: &mut BufReader<&TcpStream>,
    request: &Request,
    number: u64,
) -> std::io::Result<bool> {
    match request.path.as_str() {
        "/slow" => {
            thread::sleep(Duration::from_millis(request.number()));
            stream.write_all(OK)?;
        }
        // 10, 20 … ms, one after the other.
        "/steps" => {
            thread::sleep(Duration::from_millis(10 * number));
            stream.write_all(OK)?;
        }
        "/sometimes-slow" => {
            if number.is_multiple_of(10) {
                thread::sleep(Duration::from_millis(600));
            }
            stream.write_all(OK)?;
        }
        "/dribble" => {
            for byte in OK {
                stream.write_all(&[*byte])?;
                thread::sleep(Duration::from_millis(request.number()));
            }
        }
        "/status" => {
            let status = request.number();
            write!(stream, "HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n")?;
        }
        "/reset" => {
            socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO))?;
            return Ok(false);
        }
        "/never" => drop(reader.read_to_end(&mut Vec::new())),
        "/big" => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n")?;
            stream.write_all(&vec![b'x'; 3_000_000])?;
        }
        "/huge-head" => {
            let value = "x".repeat(100_000);
            write!(stream, "HTTP/1.1 200 OK\r\nX: {value}\r\n\r\n")?;
        }
        "/json" => {
            let text = format!("{{\"n\": {}, \"tag\": \"a=b\"}}", request.number());
            let length = text.len();
            write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{text}"
            )?;
        }
        // The body must be the query.
        "/echo" => {
            let is_right = request.body == request.query.as_bytes();
            let status = if is_right { 200 } else { 400 };
            write!(stream, "HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n")?;
        }
        path => unreachable!("no behaviour for {path}"),
    }
    Ok(true)
}
