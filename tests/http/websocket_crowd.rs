//! Thousands of sockets at once: small while nobody speaks, served when all do, and each is told
//! when the server ends.

use std::time::Duration;

use rustix::process::Signal;

use crate::support::client::Client;
use crate::support::process::rss_bytes;
use crate::support::server::{Server, raise_nofile};
use crate::support::websocket::{close_code, frame, handshake, read_frame};

/// Far above what a busy machine takes.
const LONG: Duration = Duration::from_mins(2);

/// Fewer only where the system gives this process, or the server, no more descriptors.
const NUM_SOCKETS: u64 = 5000;

/// The connection's task with its handler; a compression context alone takes 300 KiB.
const MAX_BYTES_EACH: u64 = 24 * 1024;

#[test]
fn five_thousand_sockets_are_small_served_and_told_of_the_end() {
    let num_sockets = NUM_SOCKETS.min(raise_nofile().saturating_sub(500));
    let mut server = Server::start(&["--max-connections", "6000", "--graceful", "120s"]);
    let offer = handshake("/ws", "Sec-WebSocket-Extensions: permessage-deflate\r\n");
    let open = || {
        let mut client = server.connect();
        let stream = client.stream();
        stream.set_read_timeout(Some(LONG)).expect("an open socket");
        let answer = client.ask(&offer);
        assert_eq!(answer.status, 101, "{answer:?}");
        client
    };
    let mut sockets: Vec<Client> = (0..20).map(|_| open()).collect();
    let before = rss_bytes(server.pid());
    sockets.extend((20..num_sockets).map(|_| open()));
    let idle = rss_bytes(server.pid()).saturating_sub(before) / num_sockets;
    assert!(
        idle <= MAX_BYTES_EACH,
        "{idle} bytes each, before a message"
    );

    // All at once, before anybody listens; worth compressing both ways.
    for client in &mut sockets {
        client.send(frame(0xc1, &[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00]));
        client.send(frame(0x81, &[b'a'; 100]));
    }
    for client in &mut sockets {
        assert_eq!(read_frame(client), (0x81, b"Hello".to_vec()));
        assert_eq!(read_frame(client).0, 0xc1);
    }
    let used = rss_bytes(server.pid()).saturating_sub(before) / num_sockets;
    assert!(used <= MAX_BYTES_EACH, "{used} bytes each, after messages");

    server.signal(Signal::TERM);
    for client in &mut sockets {
        assert_eq!(close_code(client), 1001);
        client.send(frame(0x88, b"\x03\xe9"));
    }
    drop(sockets);
    assert_eq!(server.exit(LONG).code(), Some(0));
}
