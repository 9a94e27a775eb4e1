//! When a server that says nothing of itself has begun to serve.
//!
//! Its socket was open before it was started, so that a connection says
//! nothing: an answer does, whatever its status.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

/// Asks what has nothing to do with the application.
const QUESTION: &[u8] = b"GET /ready HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
/// Before somebody is asked again who has hung up.
const PAUSE: Duration = Duration::from_millis(50);

/// Calls `tell` once a server answers on `socket`; never if it ends before that.
///
/// # Errors
/// The system has no thread to spare.
pub(crate) fn when_ready(socket: PathBuf, tell: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let asking = thread::Builder::new().name("ready".to_owned());
    asking.spawn(move || {
        // Refused once nobody has the socket any more.
        while let Ok(stream) = UnixStream::connect(&socket) {
            if is_answered(stream).unwrap_or_default() {
                return tell();
            }
            thread::sleep(PAUSE);
        }
    })?;
    Ok(())
}

fn is_answered(mut stream: UnixStream) -> io::Result<bool> {
    stream.write_all(QUESTION)?;
    Ok(stream.read(&mut [0; 16])? > 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn an_answer_counts_and_a_connection_does_not() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let socket = folder.path().join("s");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let (sender, told) = channel();
        when_ready(socket, move || sender.send(()).expect("it is heard")).expect("a thread");
        drop(listener.accept().expect("it asks"));
        let (mut stream, _) = listener.accept().expect("it asks again");
        assert!(told.try_recv().is_err());
        stream
            .write_all(b"HTTP/1.1 404 Not Found\r\n")
            .expect("it reads");
        told.recv().expect("it tells");
    }

    #[test]
    fn nothing_is_told_of_one_that_has_gone() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let socket = folder.path().join("s");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let (sender, told) = channel::<()>();
        let tell = move || sender.send(()).expect("it is heard");
        when_ready(socket, tell).expect("a thread");
        let asked = listener.accept().expect("it asks");
        drop(listener);
        drop(asked);
        told.recv()
            .expect_err("the thread has ended without a word");
    }
}
