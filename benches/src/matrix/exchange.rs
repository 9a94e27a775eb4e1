//! Single plain GET exchanges, for what the load engine is too heavy: the first answer of a
//! starting server, connections that are held open, and a server's counters.
//!
//! Only responses with a `Content-Length` are read (RFC 9112 §6.2); anything else is an error.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Limit of one read; a starting server is asked again after it.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// Limit of a response head and body together; a page of counters is the largest.
const MAX_RESPONSE_BYTES: usize = 1024 * 1024;

const MAX_FIELDS: usize = 64;

/// Connects, asks once, and closes.
pub(super) fn get_once(address: SocketAddr, path: &str) -> io::Result<()> {
    get_and_hold(address, path).map(drop)
}

/// Connects, asks once, and returns the connection still open.
pub(super) fn get_and_hold(address: SocketAddr, path: &str) -> io::Result<TcpStream> {
    get(address, path).map(|(stream, _)| stream)
}

/// Reads a counter of a Prometheus text page, summed over its labels.
///
/// # Errors
///
/// Besides those of the exchange: the page has no such counter.
pub(super) fn get_counter(address: SocketAddr, path: &str, name: &str) -> io::Result<u64> {
    let (_, body) = get(address, path)?;
    counter(&String::from_utf8_lossy(&body), name)
        .ok_or_else(|| io::Error::other(format!("{path} has no counter {name}")))
}

/// Connects and asks once; returns the connection still open, and the body.
fn get(address: SocketAddr, path: &str) -> io::Result<(TcpStream, Vec<u8>)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    stream.set_nodelay(true)?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut received = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match whole_body(&received)? {
            Some(body) => {
                let body = body.to_vec();
                return Ok((stream, body));
            }
            None if received.len() > MAX_RESPONSE_BYTES => {
                return Err(io::Error::other("the response is too long"));
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
            Some(labels) => labels.rsplit_once("} ")?.1,
            None => rest.strip_prefix(' ')?,
        };
        value.trim().parse::<u64>().ok()
    });
    values.reduce(|a, b| a + b)
}

/// The body of a whole 200; `None` while more is to come, another status or framing is an error.
fn whole_body(received: &[u8]) -> io::Result<Option<&[u8]>> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut response = httparse::Response::new(&mut fields);
    let head_length = match response.parse(received) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(io::Error::other(error)),
    };
    if response.code != Some(200) {
        return Err(io::Error::other(format!(
            "status {}",
            response.code.unwrap_or(0)
        )));
    }
    let length = response
        .headers
        .iter()
        .find(|field| field.name.eq_ignore_ascii_case("content-length"))
        .and_then(|field| std::str::from_utf8(field.value).ok()?.parse::<usize>().ok())
        .ok_or_else(|| io::Error::other("no content-length"))?;
    let end = head_length.checked_add(length);
    Ok(end.and_then(|end| received.get(head_length..end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_whole_at_its_last_byte_only() {
        let response = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        for end in 0..response.len() {
            assert_eq!(whole_body(&response[..end]).unwrap(), None, "{end}");
        }
        assert_eq!(whole_body(response).unwrap(), Some(&b"ok"[..]));
    }

    #[test]
    fn errors_are_not_answers() {
        for response in [
            &b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"SSH-2.0-x\r\n\r\n",
        ] {
            assert!(whole_body(response).is_err());
        }
    }

    #[test]
    fn a_counter_is_the_sum_over_its_labels() {
        let page = "# HELP sent_total Files.\n# TYPE sent_total counter\nsent_total 7\n\
                    sent_total_more 90\nasked_total{route=\"/a b\",x=\"} 5\"} 3\n\
                    asked_total{route=\"/\"} 4\nrate 0.5\n";
        for (name, expected) in [
            ("sent_total", Some(7)),
            ("asked_total", Some(7)),
            ("sent", None),
            ("rate", None),
            ("other_total", None),
        ] {
            assert_eq!(counter(page, name), expected, "{name}");
        }
    }
}
