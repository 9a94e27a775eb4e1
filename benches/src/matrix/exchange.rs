//! Single plain GET exchanges, for what the load engine is too heavy: the first answer of a
//! starting server, and connections that are held open.
//!
//! Only responses with a `Content-Length` are read (RFC 9112 §6.2); anything else is an error.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Limit of one read; a starting server is asked again after it.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// Limit of a response head and body together; these cells ask for small ones.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;

const MAX_FIELDS: usize = 64;

/// Connects, asks once, and closes.
pub(super) fn get_once(address: SocketAddr, path: &str) -> io::Result<()> {
    get_and_hold(address, path).map(drop)
}

/// Connects, asks once, and returns the connection still open.
pub(super) fn get_and_hold(address: SocketAddr, path: &str) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    stream.set_nodelay(true)?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut received = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match response_is_whole(&received)? {
            true => return Ok(stream),
            false if received.len() > MAX_RESPONSE_BYTES => {
                return Err(io::Error::other("the response is too long"));
            }
            false => {}
        }
        match stream.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            length => received.extend_from_slice(&buffer[..length]),
        }
    }
}

/// Whether a whole 200 was received; another status or framing is an error.
fn response_is_whole(received: &[u8]) -> io::Result<bool> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut response = httparse::Response::new(&mut fields);
    let head_length = match response.parse(received) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(false),
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
    Ok(received.len() >= head_length + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_whole_at_its_last_byte_only() {
        let response = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        for end in 0..response.len() {
            assert!(!response_is_whole(&response[..end]).unwrap(), "{end}");
        }
        assert!(response_is_whole(response).unwrap());
    }

    #[test]
    fn errors_are_not_answers() {
        for response in [
            &b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"SSH-2.0-x\r\n\r\n",
        ] {
            assert!(response_is_whole(response).is_err());
        }
    }
}
