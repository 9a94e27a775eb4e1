//! Who listens on an address already, as far as `/proc` tells us.
//!
//! Everything here is best effort: what cannot be read is left out, since it
//! only enriches an error message. Formats: `proc(5)`.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

/// State number of a listening socket in `/proc/net/tcp`.
const TCP_LISTEN: &str = "0A";
/// Flags of a listening socket in `/proc/net/unix`: `__SO_ACCEPTCON`.
const UNIX_ACCEPTS: &str = "00010000";
/// Longest command line that is shown, in characters.
const MAX_COMMAND: usize = 60;

/// A process that holds a socket.
#[derive(Debug)]
pub(crate) struct Holder {
    pub(crate) pid: u32,
    command: String,
    age: Option<Duration>,
}

impl Holder {
    /// The process that listens on this TCP address.
    pub(crate) fn of_tcp(address: SocketAddr) -> Option<Self> {
        ["/proc/net/tcp", "/proc/net/tcp6"]
            .into_iter()
            .filter_map(|table| fs::read_to_string(table).ok())
            .find_map(|table| {
                table
                    .lines()
                    .skip(1)
                    .find_map(|line| inode_of(line, address))
            })
            .and_then(|inode| Self::of_socket(&inode))
    }

    /// The process that listens on this Unix socket.
    pub(crate) fn of_unix(path: &Path) -> Option<Self> {
        let path = path.to_str()?;
        let table = fs::read_to_string("/proc/net/unix").ok()?;
        let inode = table.lines().find_map(|line| {
            // Connections that the listener has taken carry its path, too.
            let fields: Vec<_> = line.split_whitespace().collect();
            (fields.get(3) == Some(&UNIX_ACCEPTS) && fields.get(7) == Some(&path))
                .then(|| fields.get(6).map(|inode| (*inode).to_owned()))?
        })?;
        Self::of_socket(&inode)
    }

    /// Command line, process id and age.
    pub(crate) fn describe(&self) -> String {
        let age = self.age.map_or_else(String::new, |age| {
            format!(", started {} ago", show_age(age))
        });
        format!("{}   (pid {}{age})", self.command, self.pid)
    }

    /// The process with the lowest id that holds the socket of this inode: of
    /// a parent and its workers, the parent.
    fn of_socket(inode: &str) -> Option<Self> {
        let wanted = format!("socket:[{inode}]");
        let mut pids: Vec<u32> = fs::read_dir("/proc")
            .ok()?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect();
        pids.sort_unstable();
        let pid = pids.into_iter().find(|pid| {
            fs::read_dir(format!("/proc/{pid}/fd")).is_ok_and(|descriptors| {
                descriptors
                    .flatten()
                    .filter_map(|descriptor| fs::read_link(descriptor.path()).ok())
                    .any(|target| target.as_os_str() == wanted.as_str())
            })
        })?;
        let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        Some(Self {
            pid,
            command: show_command(&command),
            age: age_of(pid),
        })
    }
}

/// The inode of a table line that listens where `address` wants to.
fn inode_of(line: &str, address: SocketAddr) -> Option<String> {
    let fields: Vec<_> = line.split_whitespace().collect();
    let (ip, port) = fields.get(1)?.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let ip = parse_ip(ip)?;
    let overlaps = ip.is_unspecified() || address.ip().is_unspecified() || ip == address.ip();
    (fields.get(3) == Some(&TCP_LISTEN) && port == address.port() && overlaps)
        .then(|| fields.get(9).map(|inode| (*inode).to_owned()))?
}

/// Addresses are written as 32-bit words in the machine's byte order.
fn parse_ip(hexadecimal: &str) -> Option<IpAddr> {
    let words: Vec<[u8; 4]> = (0..hexadecimal.len() / 8)
        .map(|index| {
            let word = hexadecimal.get(index * 8..index * 8 + 8)?;
            Some(u32::from_str_radix(word, 16).ok()?.to_ne_bytes())
        })
        .collect::<Option<_>>()?;
    match words.as_slice() {
        [word] => Some(Ipv4Addr::from(*word).into()),
        [_, _, _, _] => {
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            Some(Ipv6Addr::from(bytes).to_canonical())
        }
        _ => None,
    }
}

/// Arguments joined by spaces, cut, without anything that moves a cursor.
fn show_command(command: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(command)
        .trim_end_matches('\0')
        .chars()
        .map(|c| if c == '\0' { ' ' } else { c })
        .filter(|c| !c.is_control())
        .collect();
    if text.chars().count() <= MAX_COMMAND {
        return text;
    }
    text.chars().take(MAX_COMMAND - 1).chain(['…']).collect()
}

/// Time since the process started: uptime less field 22 of its `stat`.
fn age_of(pid: u32) -> Option<Duration> {
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let uptime: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Field 2 is the command in brackets and may hold spaces and brackets.
    let (_, rest) = stat.rsplit_once(')')?;
    let ticks: f64 = rest.split_whitespace().nth(19)?.parse().ok()?;
    let started = ticks / rustix::param::clock_ticks_per_second() as f64;
    Duration::try_from_secs_f64(uptime - started).ok()
}

fn show_age(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn this_process_is_found_by_its_listeners() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let holder = Holder::of_tcp(listener.local_addr().unwrap()).unwrap();
        assert_eq!(holder.pid, std::process::id());
        assert!(holder.describe().contains("started"), "{holder:?}");

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _listener = UnixListener::bind(&path).unwrap();
        let _connection = UnixStream::connect(&path).unwrap();
        assert_eq!(Holder::of_unix(&path).unwrap().pid, std::process::id());
    }

    #[test]
    fn wildcard_listeners_hold_every_address() {
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], listener.local_addr().unwrap().port()));
        assert_eq!(Holder::of_tcp(address).unwrap().pid, std::process::id());
    }

    #[test]
    fn addresses_of_the_table_are_read() {
        if cfg!(target_endian = "little") {
            assert_eq!(parse_ip("0100007F"), Some(IpAddr::from([127, 0, 0, 1])));
            assert_eq!(
                parse_ip("00000000000000000000000001000000"),
                Some(Ipv6Addr::LOCALHOST.into())
            );
        }
        assert_eq!(parse_ip("01"), None);
    }

    #[test]
    fn commands_are_cut_and_cleaned() {
        assert_eq!(
            show_command(b"python3\0-m\0http.server\0"),
            "python3 -m http.server"
        );
        assert_eq!(show_command(b"a\x1b[2Jb"), "a[2Jb");
        assert_eq!(show_command(&[b'a'; 100]).chars().count(), MAX_COMMAND);
    }
}
