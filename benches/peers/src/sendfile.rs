//! The bare sendfile peer: a poll loop that answers every request with the same file.
//!
//! The ceiling for serving a file over HTTP/1.1 on one core: nothing is parsed but the end of a
//! request head, the response head is fixed, and the body goes by sendfile(2) from one descriptor.
//! Takes `--addr HOST:PORT --file PATH` or `--version`; prints nothing else.

mod version;

use std::fs::File;
use std::io::{self, Read as _};
use std::net::SocketAddr;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Registry, Token};
use rustix::fs::sendfile;
use rustix::net::{SendFlags, send};

use self::version::print_version;

/// Bytes of one receive; a request of the bench is far smaller.
const RECEIVE_BYTES: usize = 4096;

/// Bytes asked of one sendfile call; the kernel moves at most 0x7ffff000.
const MAX_SENDFILE_BYTES: u64 = 0x7fff_f000;

/// The end of a request head (RFC 9112 §2.1).
const HEAD_END: &[u8; 4] = b"\r\n\r\n";

const LISTENER: Token = Token(usize::MAX);

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--addr", address, "--file", path] => {
            let address: SocketAddr = address.parse().map_err(io::Error::other)?;
            serve(TcpListener::bind(address)?, File::open(path)?)
        }
        ["--version"] => print_version("peer-sendfile"),
        _ => Err(io::Error::other(
            "usage: peer-sendfile --addr HOST:PORT --file PATH",
        )),
    }
}

/// What every request gets.
struct Answer {
    head: Vec<u8>,
    file: File,
    length: u64,
}

/// A connection, and how far the current answer came.
struct Connection {
    stream: TcpStream,
    /// Bytes of [`HEAD_END`] seen at the end of what was received.
    matched: usize,
    /// Heads received and not answered yet; the first of them is being answered.
    num_requests: u64,
    head_sent: usize,
    file_sent: u64,
}

fn serve(mut listener: TcpListener, file: File) -> io::Result<()> {
    let length = file.metadata()?.len();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\ncontent-length: {length}\r\n\r\n"
    );
    let answer = Answer {
        head: head.into_bytes(),
        file,
        length,
    };
    let mut poll = Poll::new()?;
    poll.registry()
        .register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut events = Events::with_capacity(1024);
    // The slot of a closed connection is used again.
    let mut connections: Vec<Option<Connection>> = Vec::new();
    loop {
        if let Err(error) = poll.poll(&mut events, None) {
            match error.kind() {
                io::ErrorKind::Interrupted => continue,
                _ => return Err(error),
            }
        }
        for event in &events {
            if event.token() == LISTENER {
                accept(&listener, poll.registry(), &mut connections)?;
                continue;
            }
            let slot = &mut connections[event.token().0];
            if let Some(connection) = slot {
                // A client that leaves in the middle of an answer is not worth a word.
                let is_open = connection.advance(event.is_readable(), &answer);
                if !is_open.unwrap_or(false) {
                    *slot = None;
                }
            }
        }
    }
}

fn accept(
    listener: &TcpListener,
    registry: &Registry,
    connections: &mut Vec<Option<Connection>>,
) -> io::Result<()> {
    loop {
        let mut stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            // A connection that was reset before it was accepted is not the listener's failure.
            Err(_) => continue,
        };
        let free = connections.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            connections.push(None);
            connections.len() - 1
        });
        stream.set_nodelay(true)?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        registry.register(&mut stream, Token(index), interest)?;
        connections[index] = Some(Connection {
            stream,
            matched: 0,
            num_requests: 0,
            head_sent: 0,
            file_sent: 0,
        });
    }
}

impl Connection {
    /// Receives if there is something, answers as far as the socket takes it; false at the end.
    fn advance(&mut self, is_readable: bool, answer: &Answer) -> io::Result<bool> {
        let mut buffer = [0; RECEIVE_BYTES];
        let mut may_read = is_readable;
        loop {
            while self.num_requests > 0 {
                if !self.answer(answer)? {
                    return Ok(true);
                }
                self.num_requests -= 1;
            }
            if !may_read {
                return Ok(true);
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return Ok(false),
                Ok(length) => {
                    self.count_requests(&buffer[..length]);
                    // What did not fill the buffer drained the socket; more is a new edge.
                    may_read = length == buffer.len();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn count_requests(&mut self, received: &[u8]) {
        for byte in received {
            self.matched = match (self.matched, *byte) {
                (matched, byte) if byte == HEAD_END[matched] => matched + 1,
                (_, b'\r') => 1,
                _ => 0,
            };
            if self.matched == HEAD_END.len() {
                self.matched = 0;
                self.num_requests += 1;
            }
        }
    }

    /// Sends the rest of one answer; false when the socket takes no more.
    fn answer(&mut self, answer: &Answer) -> io::Result<bool> {
        while self.head_sent < answer.head.len() {
            let rest = &answer.head[self.head_sent..];
            // So that head and file share their first packet.
            match send(&self.stream, rest, SendFlags::MORE | SendFlags::NOSIGNAL) {
                Ok(length) => self.head_sent += length,
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        while self.file_sent < answer.length {
            let mut offset = self.file_sent;
            let wanted = (answer.length - self.file_sent).min(MAX_SENDFILE_BYTES) as usize;
            match sendfile(&self.stream, &answer.file, Some(&mut offset), wanted) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => self.file_sent += length as u64,
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        (self.head_sent, self.file_sent) = (0, 0);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::thread;

    use super::*;

    /// Answers of a file larger than the socket buffers, on one connection.
    #[test]
    fn every_request_gets_the_whole_file() {
        let content: Vec<u8> = (0..9_000_000_u32)
            .map(|index| (index % 251) as u8)
            .collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&content).unwrap();
        let listener = TcpListener::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || serve(listener, file));

        let mut client = std::net::TcpStream::connect(address).unwrap();
        // The second head arrives in two pieces, the third right behind it.
        let pieces: [&[u8]; 3] = [
            b"GET /a HTTP/1.1\r\nhost: a\r\n\r\n",
            b"GET /b HTTP/1.1\r\nhost: a\r\n\r",
            b"\nGET /c HTTP/1.1\r\n\r\n",
        ];
        let expected = [
            format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\ncontent-length: {}\r\n\r\n",
                content.len()
            )
            .as_bytes(),
            &content,
        ]
        .concat();
        let mut received = vec![0; expected.len()];
        client.write_all(pieces[0]).unwrap();
        client.read_exact(&mut received).unwrap();
        assert!(received == expected);
        client.write_all(pieces[1]).unwrap();
        client.write_all(pieces[2]).unwrap();
        for _ in 0..2 {
            client.read_exact(&mut received).unwrap();
            assert!(received == expected);
        }
        client.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(client.read(&mut received).unwrap(), 0);
    }
}
