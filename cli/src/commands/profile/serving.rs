//! Finds the process that serves a URL on this machine.

use std::net::{IpAddr, UdpSocket};

use justapi_bench::{Address, Target};

use crate::holder::Holder;

/// The process that listens there: of a parent and its workers, the parent.
///
/// # Errors
/// Why it is not known, in words.
pub(super) fn process(target: &Target) -> Result<u32, String> {
    let holder = match &target.address {
        Address::Tcp(address) if !is_here(address.ip()) => {
            return Err(format!("{address} is on another machine"));
        }
        Address::Tcp(address) => Holder::of_tcp(*address),
        Address::Unix(path) => Holder::of_unix(path),
    };
    holder.map(|holder| holder.pid).ok_or_else(|| {
        format!(
            "who listens on {} cannot be seen: another user, container or machine",
            target.address
        )
    })
}

/// Whether an address is one of this machine: only then can it be bound.
fn is_here(ip: IpAddr) -> bool {
    ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use justapi_bench::parse_target;

    use super::*;

    fn of(url: &str) -> Result<u32, String> {
        process(&parse_target(url, None).unwrap().0)
    }

    #[test]
    fn listeners_of_this_machine_are_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        assert_eq!(of(&url), Ok(std::process::id()));
        drop(listener);
        assert!(of(&url).unwrap_err().contains("cannot be seen"));
    }

    #[test]
    fn other_machines_have_no_processes_here() {
        // An address for documentation (RFC 5737): nobody has it.
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let error = of(&format!("http://192.0.2.1:{port}")).unwrap_err();
        assert!(error.contains("another machine"), "{error}");
    }
}
