//! Two questions about raw bytes: is this refused for good, or answered?
//!
//! Both append a sentinel request in the same write. A refusal must leave it
//! unanswered, an answer must leave it answered: so a desynchronised
//! connection shows in either case, and no wait for silence is needed.

use std::net::SocketAddr;

use super::client::{Client, End, ReadError, show};

/// Ends the connection, and says by its path that it was reached.
pub(crate) const SENTINEL: &[u8] =
    b"GET /anything/sentinel HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// One answer that is due: its status, and a text its body must contain.
pub(crate) type Due<'a> = (u16, &'a str);

/// Exactly one problem document of one of `statuses`, then a clean close.
pub(crate) fn refused(address: SocketAddr, bytes: &[u8], statuses: &[u16]) -> Result<(), String> {
    let mut client = Client::connect(address);
    client.send([bytes, SENTINEL].concat());
    let sent = show(bytes);
    let answer = client.read();
    let response = answer.map_err(|error| format!("expected {statuses:?}, got {error}; {sent}"))?;
    let (rest, end) = client.read_to_end();
    let status = response.status;
    if !statuses.contains(&status) {
        return Err(format!(
            "expected {statuses:?}, got {status} {:?}; {sent}",
            response.text()
        ));
    }
    if response.header("content-type") != Some("application/problem+json") {
        return Err(format!(
            "{status} is no problem document: {:?}; {sent}",
            response.headers
        ));
    }
    if !rest.is_empty() || end != End::Closed {
        return Err(format!(
            "after {status} came {:?}, then {end:?}; {sent}",
            show(&rest)
        ));
    }
    match response.header("connection") {
        Some("close") => Ok(()),
        other => Err(format!(
            "{status} closes, but says Connection: {other:?}; {sent}"
        )),
    }
}

/// These answers in this order, then the sentinel's, then a clean close.
pub(crate) fn answered(address: SocketAddr, bytes: &[u8], due: &[Due<'_>]) -> Result<(), String> {
    let mut client = Client::connect(address);
    client.send([bytes, SENTINEL].concat());
    let sent = show(bytes);
    let expected = due.iter().copied().chain([(200, "/anything/sentinel")]);
    for (index, (status, needle)) in expected.enumerate() {
        let answer = client.read();
        let response =
            answer.map_err(|e| format!("answer {index} due {status}, got {e}; {sent}"))?;
        let text = response.text().replace(' ', "");
        if response.status != status || !text.contains(needle) {
            let got = response.status;
            return Err(format!(
                "answer {index} due {status} {needle:?}, got {got} {text:?}; {sent}"
            ));
        }
    }
    match client.read_to_end() {
        (rest, End::Closed) if rest.is_empty() => Ok(()),
        (rest, end) => Err(format!(
            "after all answers {:?}, then {end:?}; {sent}",
            show(&rest)
        )),
    }
}

/// The connection is closed without an answer.
pub(crate) fn closed_silently(client: &mut Client) -> Result<(), String> {
    match client.read() {
        Err(ReadError::Nothing(End::Closed)) => Ok(()),
        Err(error) => Err(error.to_string()),
        Ok(response) => Err(format!(
            "answered {} {:?}",
            response.status,
            response.text()
        )),
    }
}
