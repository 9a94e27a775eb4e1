//! Rolling restarts: one inherited socket is handed from server to server,
//! while clients ask without a pause.
//!
//! A request is lost when it was sent and not answered, or could not be sent;
//! a kept connection that ends between requests is not one.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::Signal;

use crate::sockets::inherited;
use crate::support::client::{Client, get, post};
use crate::support::server::Server;
use crate::support::{PATIENCE, eventually};

const CYCLES: usize = 20;
const CLIENTS: usize = 12;

/// What clients have got, and what they have lost.
#[derive(Default)]
struct Load {
    is_over: AtomicBool,
    num_answered: AtomicUsize,
    num_idle_ends: AtomicUsize,
    lost: Mutex<Vec<String>>,
}

impl Load {
    fn run(&self, address: SocketAddr, is_kept_alive: bool) {
        while !self.is_over.load(Ordering::Relaxed) {
            match Client::try_connect(address) {
                Ok(mut client) => while self.ask(&mut client) && is_kept_alive {},
                Err(error) => return self.lose(format!("no connection: {error}")),
            }
        }
    }

    /// One request; whether the connection may be used again.
    fn ask(&self, client: &mut Client) -> bool {
        if self.is_over.load(Ordering::Relaxed) {
            return false;
        }
        if has_ended(client) {
            self.num_idle_ends.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        let index = self.num_answered.load(Ordering::Relaxed);
        let request = match index % 3 {
            0 => post("/echo", "[1]"),
            _ => get("/hello"),
        };
        client.send(request);
        match client.read() {
            Ok(response) if response.status == 200 => {
                self.num_answered.fetch_add(1, Ordering::Relaxed);
                response.header("connection") != Some("close")
            }
            other => {
                self.lose(format!("{other:?}"));
                false
            }
        }
    }

    fn lose(&self, what: String) {
        self.lost.lock().expect("no client panics").push(what);
    }
}

/// Whether the server has ended the connection before anything was asked.
fn has_ended(client: &mut Client) -> bool {
    let stream = client.stream();
    stream.set_nonblocking(true).expect("an open socket");
    let peeked = stream.peek(&mut [0]);
    stream.set_nonblocking(false).expect("an open socket");
    !matches!(peeked, Err(error) if error.kind() == ErrorKind::WouldBlock)
}

#[test]
fn servers_that_follow_each_other_on_a_socket_lose_no_request() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound socket");
    let next = || {
        let socket = listener.try_clone().expect("a socket can be duplicated");
        let server = Server::spawn(inherited(socket.into(), "", &["--fd", "3", "--lanes", "2"]));
        let _announced = server.wait_for_line("http");
        server
    };
    let load = Load::default();
    // It outlives the clients, who may have asked the last thing of it.
    let mut serving = next();
    std::thread::scope(|scope| {
        for index in 0..CLIENTS {
            let load = &load;
            scope.spawn(move || load.run(address, index % 2 == 0));
        }
        for cycle in 0..CYCLES {
            let before = load.num_answered.load(Ordering::Relaxed);
            eventually(PATIENCE, "requests are answered", || {
                (load.num_answered.load(Ordering::Relaxed) > before + CLIENTS).then_some(())
            });
            let mut last = std::mem::replace(&mut serving, next());
            last.signal(Signal::TERM);
            let code = last.exit(Duration::from_secs(5)).code();
            assert_eq!(code, Some(0), "cycle {cycle}");
        }
        load.is_over.store(true, Ordering::Relaxed);
    });
    let lost = load.lost.into_inner().expect("no client panics");
    let answered = load.num_answered.into_inner();
    assert!(
        lost.is_empty(),
        "{} of {answered} lost: {lost:#?}",
        lost.len()
    );
    assert!(answered > CYCLES * CLIENTS, "{answered} answers");
}
