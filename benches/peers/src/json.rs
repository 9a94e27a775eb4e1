//! What JSON costs by library: one batch of one operation, its mean printed in nanoseconds.
//!
//! All libraries read and write the same structs through serde, and the text that each writes is
//! compared with that of `serde_json` before the clock starts. simd-json writes into its input, so it
//! gets a copy each time, which is part of its cost: a server has to keep what it received.

use std::env;
use std::hint::black_box;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// Time of one batch: long against the clock's resolution and a timer tick.
const BATCH: Duration = Duration::from_millis(40);

/// As long before it, for caches and the clock of the CPU.
const WARM_UP: Duration = Duration::from_millis(20);

/// The user of the other measurements.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
struct User {
    active: bool,
    address: Address,
    email: String,
    id: u64,
    name: String,
    orders: Vec<Order>,
    tags: Vec<String>,
}

#[derive(Debug, Deserialize, PartialEq, Serialize)]
struct Address {
    city: String,
    geo: Position,
    street: String,
    zip: String,
}

#[derive(Debug, Deserialize, PartialEq, Serialize)]
struct Position {
    lat: f64,
    lng: f64,
}

#[derive(Debug, Deserialize, PartialEq, Serialize)]
struct Order {
    id: u64,
    items: Vec<String>,
    total: f64,
}

/// A small message of about 60 bytes.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
struct Message {
    id: u64,
    name: String,
    active: bool,
    tags: Vec<String>,
}

/// The library that is measured.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Library {
    SerdeJson,
    SimdJson,
    SonicRs,
}

impl Library {
    fn named(name: &str) -> Option<Self> {
        match name {
            "serde_json" => Some(Self::SerdeJson),
            "simd-json" => Some(Self::SimdJson),
            "sonic-rs" => Some(Self::SonicRs),
            _ => None,
        }
    }

    /// Reads a value; `scratch` is kept from call to call.
    fn read<T: for<'de> Deserialize<'de>>(self, text: &[u8], scratch: &mut Vec<u8>) -> Option<T> {
        match self {
            Self::SerdeJson => serde_json::from_slice(text).ok(),
            Self::SimdJson => {
                scratch.clear();
                scratch.extend_from_slice(text);
                simd_json::from_slice(scratch).ok()
            }
            Self::SonicRs => sonic_rs::from_slice(text).ok(),
        }
    }

    /// Writes a value behind what is in `out`.
    fn write<T: Serialize>(self, value: &T, out: &mut Vec<u8>) -> Option<()> {
        match self {
            Self::SerdeJson => serde_json::to_writer(out, value).ok(),
            Self::SimdJson => simd_json::to_writer(out, value).ok(),
            Self::SonicRs => sonic_rs::to_writer(out, value).ok(),
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut out = io::stdout();
    let text = match arguments.as_slice() {
        ["--version"] => version(),
        [library, operation, size] => match measure(library, operation, size) {
            Some(mean) => format!("{mean:.3}"),
            None => return usage(),
        },
        _ => return usage(),
    };
    match writeln!(out, "{text}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn usage() -> ExitCode {
    let text = "usage: micro-json serde_json|simd-json|sonic-rs in|out 60b|1k|64k|1m\n";
    io::stderr().write_all(text.as_bytes()).ok();
    ExitCode::from(2)
}

fn version() -> String {
    let profile = if cfg!(debug_assertions) {
        "debug"
    } else {
        "release"
    };
    let version = env!("CARGO_PKG_VERSION");
    format!("{{\"version\":\"{version}\",\"profile\":\"{profile}\"}}")
}

fn measure(library: &str, operation: &str, size: &str) -> Option<f64> {
    let library = Library::named(library)?;
    if size == "60b" {
        return run(library, operation, &message());
    }
    let bytes = match size {
        "1k" => 1024,
        "64k" => 64 * 1024,
        "1m" => 1024 * 1024,
        _ => return None,
    };
    run(library, operation, &users(bytes))
}

fn message() -> Message {
    Message {
        id: 184_467,
        name: String::from("Ada Lovelace"),
        active: true,
        tags: vec![String::from("ab")],
    }
}

/// As many users as make up about so many bytes; each differs from the others.
fn users(bytes: usize) -> Vec<User> {
    let user = |number: usize| User {
        active: number.is_multiple_of(3),
        address: Address {
            city: String::from("Berlin"),
            geo: Position {
                lat: 52.52 + number as f64 / 1000.0,
                lng: 13.405,
            },
            street: format!("Unter den Linden {number}"),
            zip: String::from("10117"),
        },
        email: format!("ada{number}@example.com"),
        id: 184_467 + number as u64,
        name: String::from("Ada Lovelace"),
        orders: vec![
            Order {
                id: 1,
                items: vec![String::from("notebook"), String::from("pen \"M\"")],
                total: 12.5,
            },
            Order {
                id: 2,
                items: vec![String::from("lampe à pied")],
                total: 39.9,
            },
        ],
        tags: vec![String::from("admin"), String::from("beta")],
    };
    let mut users = Vec::new();
    let mut length = 2;
    while length < bytes {
        let next = user(users.len());
        length += serde_json::to_vec(&next).map_or(bytes, |text| text.len() + 1);
        users.push(next);
    }
    users
}

/// Mean nanoseconds of one call; `None` for an unknown operation or a library that disagrees.
fn run<T>(library: Library, operation: &str, value: &T) -> Option<f64>
where
    T: for<'de> Deserialize<'de> + PartialEq + Serialize,
{
    let text = serde_json::to_vec(value).ok()?;
    let mut scratch = Vec::new();
    let mut out = Vec::new();
    library.write(value, &mut out)?;
    let agrees = out == text && library.read::<T>(&text, &mut scratch)? == *value;
    if !agrees {
        return None;
    }
    match operation {
        "in" => Some(mean(|| {
            black_box(library.read::<T>(black_box(&text), &mut scratch));
        })),
        "out" => Some(mean(|| {
            out.clear();
            black_box(library.write(black_box(value), &mut out));
        })),
        _ => None,
    }
}

fn mean(mut call: impl FnMut()) -> f64 {
    let mut batch = |time: Duration| {
        let start = Instant::now();
        let mut num_calls = 0_u64;
        while start.elapsed() < time {
            for _ in 0..4 {
                call();
            }
            num_calls += 4;
        }
        start.elapsed().as_nanos() as f64 / num_calls as f64
    };
    batch(WARM_UP);
    batch(BATCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIBRARIES: [Library; 3] = [Library::SerdeJson, Library::SimdJson, Library::SonicRs];

    #[test]
    fn sizes_are_what_they_are_called() {
        let length = |value: &dyn Fn() -> Vec<u8>| value().len();
        let small = length(&|| serde_json::to_vec(&message()).unwrap());
        assert!((55..=65).contains(&small), "{small}");
        for bytes in [1024, 64 * 1024, 1024 * 1024] {
            let found = length(&|| serde_json::to_vec(&users(bytes)).unwrap());
            assert!(found >= bytes && found < bytes + 600, "{bytes}: {found}");
        }
    }

    /// What is compared must do the same: the same text out, the same structs in.
    #[test]
    fn all_libraries_agree() {
        let value = users(4096);
        let text = serde_json::to_vec(&value).unwrap();
        let mut scratch = Vec::new();
        for library in LIBRARIES {
            let mut out = Vec::new();
            library.write(&value, &mut out).unwrap();
            assert_eq!(out, text, "{library:?}");
            let read: Vec<User> = library.read(&text, &mut scratch).unwrap();
            assert_eq!(read, value, "{library:?}");
            assert!(library.read::<Vec<User>>(b"[{", &mut scratch).is_none());
        }
    }

    #[test]
    fn only_what_exists_is_measured() {
        assert!(measure("serde_json", "in", "60b").unwrap() > 0.0);
        assert!(measure("sonic-rs", "out", "1k").unwrap() > 0.0);
        for (library, operation, size) in [
            ("rapidjson", "in", "1k"),
            ("serde_json", "sideways", "1k"),
            ("serde_json", "in", "2k"),
        ] {
            assert_eq!(measure(library, operation, size), None);
        }
    }
}
