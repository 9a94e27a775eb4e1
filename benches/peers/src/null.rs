//! The null server as a program of its own: what load clients are measured against.
//!
//! It costs one receive and one send a request and parses no more than where one ends, so a client
//! reaches its own ceiling. Takes `--addr HOST:PORT` or `--version`; answers 13 bytes with 200.

mod version;

use std::io;
use std::net::SocketAddr;
use std::thread;

use justapi_bench::NullServer;

use self::version::print_version;

/// As long as `Hello, world!`, which many a benchmark sends.
const BODY_BYTES: u64 = 13;

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--addr", address] => {
            let address: SocketAddr = address.parse().map_err(io::Error::other)?;
            let started = NullServer::start_on(address, 200, BODY_BYTES, None);
            let _server = started.map_err(io::Error::other)?;
            loop {
                thread::park();
            }
        }
        ["--version"] => print_version("peer-null"),
        _ => Err(io::Error::other("usage: peer-null --addr HOST:PORT")),
    }
}
