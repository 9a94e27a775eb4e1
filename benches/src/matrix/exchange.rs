//! Single plain GET exchanges, for what the load engine is too heavy: the first answer of a
//! starting server, connections that are held open, a server's counters, and a body to look at.
//!
//! Only responses with a `Content-Length` are read (RFC 9112 §6.2); anything else is an error.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Limit of one read; a starting server is asked again after it.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// Limit of a response head and body together; a page of counters is the largest.
const MAX_RESPONSE_BYTES: usize = 1024 * 1024;

const MAX_FIELDS: usize = 64;

/// The status of the exchanges that nothing else is expected of.
const OK: u16 = 200;

/// Connects, asks once, and closes.
pub(super) fn get_once(address: SocketAddr, path: &str) -> io::Result<()> {
    get_and_hold(address, path).map(drop)
}

/// Connects, asks once, and returns the connection still open.
pub(super) fn get_and_hold(address: SocketAddr, path: &str) -> io::Result<TcpStream> {
    get(address, path, &BTreeMap::new()).map(|(stream, _)| stream)
}

/// Connects, asks once, and returns the answer with whatever status it has.
///
/// # Errors
///
/// `WouldBlock` where a read takes longer than `patience`; `UnexpectedEof` where the connection
/// ends before the answer does; `InvalidData` for what is no answer.
pub(super) fn ask_once(address: SocketAddr, path: &str, patience: Duration) -> io::Result<Answer> {
    ask(address, path, &BTreeMap::new(), patience).map(|(_, answer)| answer)
}

/// Asks once, and returns the body with its content coding.
pub(super) fn get_body(
    address: SocketAddr,
    path: &str,
    headers: &BTreeMap<String, String>,
) -> io::Result<Answer> {
    get(address, path, headers).map(|(_, answer)| answer)
}

/// What a server answered.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// Fields by their name in lower case; of several the last.
    pub(super) fields: BTreeMap<String, String>,
    pub(super) body: Vec<u8>,
}

impl Answer {
    /// Returns a field by its name in lower case.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }
}

/// Reads a counter of a Prometheus text page: the series that is named with its labels, as
/// `name{label="value"}`, or the sum over all series of a name without labels.
///
/// # Errors
///
/// Besides those of the exchange: the page has no such counter.
pub(super) fn get_counter(address: SocketAddr, path: &str, name: &str) -> io::Result<u64> {
    let (_, answer) = get(address, path, &BTreeMap::new())?;
    counter(&String::from_utf8_lossy(&answer.body), name)
        .ok_or_else(|| io::Error::other(format!("{path} has no counter {name}")))
}

/// Connects and asks once; returns the connection still open, and the answer, which is a 200.
fn get(
    address: SocketAddr,
    path: &str,
    headers: &BTreeMap<String, String>,
) -> io::Result<(TcpStream, Answer)> {
    let (stream, answer) = ask(address, path, headers, READ_TIMEOUT)?;
    match answer.status {
        OK => Ok((stream, answer)),
        status => Err(io::Error::other(format!("status {status}"))),
    }
}

fn ask(
    address: SocketAddr,
    path: &str,
    headers: &BTreeMap<String, String>,
    patience: Duration,
) -> io::Result<(TcpStream, Answer)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_nodelay(true)?;
    let mut request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n");
    for (name, value) in headers {
        request.extend([name, ": ", value, "\r\n"]);
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes())?;
    let mut received = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match whole_answer(&received)? {
            Some(answer) => return Ok((stream, answer)),
            None if received.len() > MAX_RESPONSE_BYTES => {
                return Err(invalid("the response is too long"));
            }
            None => {}
        }
        match stream.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            length => received.extend_from_slice(&buffer[..length]),
        }
    }
}

/// The value of a counter in Prometheus text, summed over its labels.
fn counter(page: &str, name: &str) -> Option<u64> {
    let values = page.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let value = match rest.strip_prefix('{') {
            Some(labels) if !name.ends_with('}') => labels.rsplit_once("} ")?.1,
            _ => rest.strip_prefix(' ')?,
        };
        value.trim().parse::<u64>().ok()
    });
    values.reduce(|a, b| a + b)
}

fn invalid(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// A whole answer; `None` while more is to come, another framing is an error.
fn whole_answer(received: &[u8]) -> io::Result<Option<Answer>> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut response = httparse::Response::new(&mut fields);
    let head_length = match response.parse(received) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(invalid(error)),
    };
    let fields: BTreeMap<String, String> = (response.headers.iter())
        .map(|field| {
            let value = String::from_utf8_lossy(field.value);
            (field.name.to_ascii_lowercase(), value.into_owned())
        })
        .collect();
    let length = (fields.get("content-length"))
        .and_then(|length| length.parse::<usize>().ok())
        .ok_or_else(|| invalid("no content-length"))?;
    let status = response.code.unwrap_or(0);
    let end = head_length.checked_add(length);
    let body = end.and_then(|end| received.get(head_length..end));
    Ok(body.map(|body| Answer {
        status,
        body: body.to_vec(),
        fields,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_whole_at_its_last_byte_only() {
        let response = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        for end in 0..response.len() {
            assert!(whole_answer(&response[..end]).unwrap().is_none(), "{end}");
        }
        let answer = whole_answer(response).unwrap().unwrap();
        assert_eq!(answer.body, b"ok");
        assert_eq!(answer.status, 200);
        assert_eq!(answer.field("content-encoding"), None);
        let coded = b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 0\r\n\r\n";
        let answer = whole_answer(coded).unwrap().unwrap();
        assert_eq!(answer.field("content-encoding"), Some("br"));
    }

    #[test]
    fn errors_are_not_answers() {
        for response in [
            &b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"[..],
            b"SSH-2.0-x\r\n\r\n",
        ] {
            assert!(whole_answer(response).is_err());
        }
        let refusal = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(whole_answer(refusal).unwrap().unwrap().status, 404);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 512];
                assert!(stream.read(&mut request).unwrap() > 0);
                stream.write_all(refusal).unwrap();
            }
        });
        let error = get_once(address, "/").unwrap_err();
        assert_eq!(error.to_string(), "status 404");
        let answer = ask_once(address, "/", READ_TIMEOUT).unwrap();
        assert_eq!((answer.status, &*answer.body), (404, &b""[..]));
        server.join().unwrap();
    }

    #[test]
    fn a_counter_is_the_sum_over_its_labels() {
        let page = "# HELP sent_total Files.\n# TYPE sent_total counter\nsent_total 7\n\
                    sent_total_more 90\nasked_total{route=\"/a b\",x=\"} 5\"} 3\n\
                    asked_total{route=\"/\"} 4\nrate 0.5\n";
        for (name, expected) in [
            ("sent_total", Some(7)),
            ("asked_total", Some(7)),
            ("asked_total{route=\"/\"}", Some(4)),
            ("asked_total{route=\"/none\"}", None),
            ("sent", None),
            ("rate", None),
            ("other_total", None),
        ] {
            assert_eq!(counter(page, name), expected, "{name}");
        }
    }
}
