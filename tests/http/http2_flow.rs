//! HTTP/2 flow control (RFC 9113 §5.2): the client sets the pace.
//!
//! A client that keeps taking what its window allows gets all of an answer,
//! however long that takes.

use std::time::{Duration, Instant};

use crate::support::http2::{Http2, Outcome, method, request};
use crate::support::server::Server;

/// Size of a download: 25 windows.
const NUM_BYTES: usize = 1_600_000;
/// Windows in which a body of that size arrives at once.
pub(crate) const HTTP_2_UPLOADS: &[&str] = &[
    "--h2-stream-window",
    "2MiB",
    "--h2-connection-window",
    "2MiB",
];

/// Asks for a large answer on `stream`, and reads none of it; what is due.
pub(crate) fn start_download(server: &Server, stream: u32) -> (Http2, String) {
    let mut connection = Http2::connect(server.address());
    // Acknowledges the server's SETTINGS, so that its larger windows hold.
    assert_eq!(connection.get(1, "/hello").status(), Some(200));
    // The window of the stream alone is to hold the server back.
    connection.widen_window(0, 2 * NUM_BYTES as u32);
    let json = format!("\"{}\"", "a".repeat(NUM_BYTES - 2));
    let bytes = request(stream, &method("POST", "/echo"), json.as_bytes());
    connection.send(&bytes).expect("the body fits the windows");
    (connection, json)
}

/// Reads the answer on `stream`, a window in each `pace`.
pub(crate) fn finish_download(connection: &mut Http2, stream: u32, pace: Duration) -> Outcome {
    loop {
        if let Some(outcome) = connection.read_window(stream) {
            return outcome;
        }
        // The pace of the client, not a wait for the server.
        std::thread::sleep(pace);
    }
}

/// All of it has come.
#[track_caller]
pub(crate) fn check_download(outcome: &Outcome, json: &str) {
    let is_whole = outcome.status() == Some(200) && outcome.text() == json;
    let text = format!("{outcome:?}");
    let num_bytes = outcome.text().len();
    assert!(is_whole, "{num_bytes} bytes: {text:.200}");
}

#[test]
fn a_reader_that_is_slow_gets_all() {
    let limits = ["--timeout-header", "--timeout-idle", "--timeout-write"];
    let short = limits.map(|flag| [flag, "300ms"]).concat();
    let server = Server::start(&[HTTP_2_UPLOADS, &short].concat());
    let start = Instant::now();
    let (mut connection, json) = start_download(&server, 3);
    let outcome = finish_download(&mut connection, 3, Duration::from_millis(50));
    check_download(&outcome, &json);
    assert!(start.elapsed() > Duration::from_secs(1));
    // The connection is as good as new.
    assert_eq!(connection.get(5, "/hello").status(), Some(200));
}
