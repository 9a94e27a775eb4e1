//! Values of settings: what each kind accepts as text and as TOML, and how it
//! is written back.
//!
//! Guarantee: what [`Kind::show`] writes, [`Kind::parse`] reads back as the
//! same value.

use std::path::Path;
use std::time::Duration;

use justapi_core::{HostPattern, Rate, TrustedPeer};
use toml::de::DeValue;

/// What a setting accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A host name or IP address.
    Host,
    /// A path of a file or socket.
    Path,
    /// A path of a Python interpreter, or its version.
    Interpreter,
    /// Permission bits, in octal.
    Mode,
    /// A whole number between two bounds.
    Number {
        /// Smallest value accepted.
        min: u64,
        /// Largest value accepted.
        max: u64,
    },
    /// A number of lanes, or `auto`, which is unset.
    Lanes,
    /// A number of bytes with a unit.
    Bytes {
        /// Largest value accepted.
        max: u64,
    },
    /// A time with a unit.
    Time,
    /// A time with a unit, or `off`, which is unset.
    TimeOrOff,
    /// On or off.
    Switch,
    /// One word of a list.
    Choice(&'static [&'static str]),
    /// Origins that may call from a browser.
    Origins,
    /// Routes with the upstream that each is given to.
    ProxyRoutes,
    /// A URL path, or `off`, which is unset.
    UrlPath,
    /// Folders of files with the routes that they are served under.
    Mounts,
    /// The name of a file without a folder, or `off`, which is unset.
    FileNameOrOff,
    /// An IP address with a port.
    Address,
    /// Hosts that the server answers for, `auto` or `*`.
    Hosts,
    /// Proxies that are believed.
    Proxies,
    /// Requests over time, or `off`, which is unset.
    Rate,
    /// A URL that is checked where it is used, or `off`, which is unset.
    Endpoint,
    /// A name without white space.
    Word,
    /// What an application is imported as: a module, a file or a folder.
    Application,
    /// A model: a path, a short name, or a repository of a hub.
    Model,
}

/// A value of some [`Kind`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    /// Not set, `auto` or `off`.
    Unset,
    /// Host, path, word, URL path, file name or address.
    Text(String),
    /// Number, mode or bytes.
    Number(u64),
    /// A time.
    Time(Duration),
    /// On or off.
    Switch(bool),
    /// Origins, or mounts as `ROUTE=DIR`.
    List(Vec<String>),
}

impl Value {
    /// The text; `None` when it is unset or something else.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The number; `None` when it is unset or something else.
    pub(crate) const fn number(&self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// The time; `None` when it is unset or something else.
    pub(crate) const fn time(&self) -> Option<Duration> {
        match self {
            Self::Time(time) => Some(*time),
            _ => None,
        }
    }

    /// Whether it is a switch that is on.
    pub(crate) const fn is_on(&self) -> bool {
        matches!(self, Self::Switch(true))
    }

    /// The list; empty when it is unset or something else.
    pub(crate) fn list(&self) -> &[String] {
        match self {
            Self::List(list) => list,
            _ => &[],
        }
    }
}

impl Kind {
    /// Whether a flag of this kind may be repeated, adding up.
    pub(crate) const fn is_list(self) -> bool {
        matches!(
            self,
            Self::Origins | Self::Mounts | Self::Hosts | Self::Proxies | Self::ProxyRoutes
        )
    }

    /// Reads the text of a flag or an environment variable.
    ///
    /// # Errors
    /// Says what was expected; the caller quotes what was found.
    pub(crate) fn parse(self, text: &str) -> Result<Value, String> {
        self.read(text)
            .ok_or_else(|| format!("expected {}", self.expected()))
    }

    /// Reads a value of the configuration file in `folder`, to which its
    /// paths are relative.
    ///
    /// # Errors
    /// Says what was expected and what was found.
    pub(crate) fn parse_toml(self, value: &DeValue<'_>, folder: &Path) -> Result<Value, String> {
        let read = match (self, value) {
            (Self::Switch, DeValue::Boolean(on)) => Some(Value::Switch(*on)),
            (Self::Number { .. } | Self::Lanes | Self::Bytes { .. }, DeValue::Integer(number)) => {
                u64::from_str_radix(&number.as_str().replace('_', ""), number.radix())
                    .ok()
                    .and_then(|number| self.read(&number.to_string()))
            }
            (
                Self::Origins | Self::Hosts | Self::Proxies | Self::ProxyRoutes,
                DeValue::Array(items),
            ) => items
                .iter()
                .map(|item| item.get_ref().as_str().map(str::to_owned))
                .collect::<Option<Vec<_>>>()
                .and_then(|items| self.read(&items.join(","))),
            (Self::Mounts, DeValue::Array(items)) => items
                .iter()
                .map(|item| read_mount(item.get_ref().as_str()?, folder))
                .collect::<Option<Vec<_>>>()
                .map(Value::List),
            (Self::Path, DeValue::String(text)) => self
                .read(text)
                .map(|_| Value::Text(folder.join(text.as_ref()).to_string_lossy().into_owned())),
            (Self::Interpreter, DeValue::String(text)) if !is_python_version(text) => {
                Self::Path.parse_toml(value, folder).ok()
            }
            (Self::Switch | Self::Number { .. }, _) => None,
            (_, DeValue::String(text)) => self.read(text),
            _ => None,
        };
        read.ok_or_else(|| {
            format!(
                "expected {}, found {}",
                self.expected_in_toml(),
                describe(value)
            )
        })
    }

    /// What the kind accepts, in words, for flags and variables.
    pub(crate) fn expected(self) -> String {
        match self {
            Self::Host => "a host name or IP address".to_owned(),
            Self::Path => "a path".to_owned(),
            Self::Interpreter => "a path, or a version such as 3.12".to_owned(),
            Self::Mode => "permission bits in octal such as 660".to_owned(),
            Self::Number { min, max } => format!("a whole number from {min} to {max}"),
            Self::Lanes => format!("`auto` or a whole number from 1 to {MAX_LANES}"),
            Self::Bytes { .. } => "a size such as 64KiB, 10MiB or 1048576".to_owned(),
            Self::Time => "a time such as 500ms, 30s or 2m".to_owned(),
            Self::TimeOrOff => "`off` or a time such as 500ms, 30s or 2m".to_owned(),
            Self::Switch => "`true` or `false`".to_owned(),
            Self::Choice(words) => format!("one of {}", words.join(", ")),
            Self::Origins => "origins such as https://example.org, or *".to_owned(),
            Self::ProxyRoutes => "ROUTE=URL such as /api=http://127.0.0.1:9000".to_owned(),
            Self::UrlPath => "`off` or a path such as /metrics".to_owned(),
            Self::Mounts => "a route and a folder such as /static=public".to_owned(),
            Self::FileNameOrOff => "`off` or a file name such as index.html".to_owned(),
            Self::Address => "an address such as 127.0.0.1:9090".to_owned(),
            Self::Hosts => "hosts such as example.org or *.example.org, auto, or *".to_owned(),
            Self::Proxies => "addresses or networks such as 10.0.0.0/8, or unix".to_owned(),
            Self::Rate => "`off` or a rate such as 100/s, 60/m or 1000/h".to_owned(),
            Self::Endpoint => "`off` or a URL such as http://127.0.0.1:4318".to_owned(),
            Self::Word => "a name without white space".to_owned(),
            Self::Model => "a model such as model.gguf or smollm2:135m".to_owned(),
            Self::Application => "an application such as main:app or src/shop/main.py".to_owned(),
        }
    }

    /// Writes a value as it would be given on the command line.
    pub(crate) fn show(self, value: &Value) -> String {
        match (self, value) {
            (Self::Lanes, Value::Unset) => "auto".to_owned(),
            (
                Self::TimeOrOff | Self::UrlPath | Self::FileNameOrOff | Self::Rate | Self::Endpoint,
                Value::Unset,
            ) => "off".to_owned(),
            (_, Value::Unset) => String::new(),
            (_, Value::Text(text)) => text.clone(),
            (Self::Mode, Value::Number(mode)) => format!("{mode:o}"),
            (Self::Bytes { .. }, Value::Number(bytes)) => show_bytes(*bytes),
            (_, Value::Number(number)) => number.to_string(),
            (_, Value::Time(time)) => show_time(*time),
            (_, Value::Switch(on)) => on.to_string(),
            (_, Value::List(list)) => list.join(","),
        }
    }

    fn read(self, text: &str) -> Option<Value> {
        let text_if = |ok: bool| ok.then(|| Value::Text(text.to_owned()));
        match self {
            Self::Host => {
                text_if(!text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c == '/'))
            }
            Self::Path | Self::Interpreter | Self::Application | Self::Model => {
                text_if(!text.is_empty())
            }
            Self::Mode => u64::from_str_radix(text, 8)
                .ok()
                .filter(|mode| *mode <= 0o777)
                .map(Value::Number),
            Self::Number { min, max } => parse_number(text, min, max),
            Self::Lanes if text == "auto" => Some(Value::Unset),
            Self::Lanes => parse_number(text, 1, MAX_LANES),
            Self::Bytes { max } => parse_bytes(text)
                .filter(|bytes| *bytes <= max)
                .map(Value::Number),
            Self::TimeOrOff | Self::UrlPath | Self::FileNameOrOff | Self::Rate | Self::Endpoint
                if text == "off" =>
            {
                Some(Value::Unset)
            }
            Self::Time | Self::TimeOrOff => parse_time(text).map(Value::Time),
            Self::Switch => match text {
                "true" | "on" | "yes" | "1" => Some(Value::Switch(true)),
                "false" | "off" | "no" | "0" => Some(Value::Switch(false)),
                _ => None,
            },
            Self::Choice(words) => text_if(words.contains(&text)),
            Self::Origins => read_list(text, is_origin),
            Self::Hosts => read_list(text, is_host_pattern),
            Self::Proxies => read_list(text, |item| item.parse::<TrustedPeer>().is_ok()),
            Self::Rate => text_if(text.parse::<Rate>().is_ok()),
            Self::Endpoint | Self::Word => {
                text_if(!text.is_empty() && !text.contains(char::is_whitespace))
            }
            Self::ProxyRoutes => read_list(text, is_proxy),
            Self::UrlPath => text_if(text.starts_with('/') && !text.contains(char::is_whitespace)),
            // As with the other lists, nothing is none of them.
            Self::Mounts if text.is_empty() => Some(Value::List(Vec::new())),
            Self::Mounts => split_mounts(text)
                .map(|mount| read_mount(mount, Path::new("")))
                .collect::<Option<_>>()
                .map(Value::List),
            Self::FileNameOrOff => text_if(!matches!(text, "" | "." | "..") && !text.contains('/')),
            Self::Address => text_if(text.parse::<std::net::SocketAddr>().is_ok()),
        }
    }

    fn expected_in_toml(self) -> String {
        match self {
            Self::Time => "a time such as \"30s\"".to_owned(),
            Self::TimeOrOff => "\"off\" or a time such as \"30s\"".to_owned(),
            Self::Bytes { .. } => "a size such as \"10MiB\" or a number of bytes".to_owned(),
            Self::Switch => "true or false".to_owned(),
            Self::Mode => "permission bits as a string such as \"660\"".to_owned(),
            Self::Lanes => format!("\"auto\" or a whole number from 1 to {MAX_LANES}"),
            Self::Origins => "an array of origins such as [\"https://example.org\"]".to_owned(),
            Self::Mounts => {
                "an array of routes and folders such as [\"/static=public\"]".to_owned()
            }
            Self::Hosts => "an array of hosts such as [\"example.org\"]".to_owned(),
            Self::ProxyRoutes => "an array such as [\"/api=http://127.0.0.1:9000\"]".to_owned(),
            Self::Proxies => "an array of networks such as [\"10.0.0.0/8\"]".to_owned(),
            Self::Host
            | Self::Path
            | Self::Interpreter
            | Self::UrlPath
            | Self::FileNameOrOff
            | Self::Address
            | Self::Rate
            | Self::Endpoint
            | Self::Word
            | Self::Application
            | Self::Model => {
                format!("a string, {}", self.expected())
            }
            Self::Number { .. } | Self::Choice(_) => self.expected(),
        }
    }
}

/// More lanes than any machine of today has hardware threads.
const MAX_LANES: u64 = 1024;

const BYTE_UNITS: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1000),
    ("B", 1),
];

const TIME_UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];

/// Reads a time such as `500ms`, `30s`, `1.5s`, `2m` or `1h`.
pub(crate) fn parse_time(text: &str) -> Option<Duration> {
    let split = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(split);
    let (_, unit_ms) = TIME_UNITS.iter().find(|(name, _)| *name == unit)?;
    if !is_decimal(number) {
        return None;
    }
    let ms = number.parse::<f64>().ok()? * *unit_ms as f64;
    // A hundred years is past every sensible wait and far from any overflow.
    (ms <= 3.2e12).then(|| Duration::from_micros((ms * 1000.0).round() as u64))
}

/// Reads whole seconds.
pub(crate) fn parse_seconds(text: &str) -> Option<Duration> {
    text.parse::<u32>()
        .ok()
        .map(|seconds| Duration::from_secs(seconds.into()))
}

/// Writes a time in the largest unit that divides it.
pub(crate) fn show_time(time: Duration) -> String {
    let micros = time.as_micros();
    TIME_UNITS
        .iter()
        .rev()
        .map(|(name, unit_ms)| (name, u128::from(*unit_ms) * 1000))
        .find(|(_, unit)| micros >= *unit && micros.is_multiple_of(*unit))
        .map_or_else(
            || format!("{}ms", micros as f64 / 1000.0),
            |(name, unit)| format!("{}{name}", micros / unit),
        )
}

fn parse_bytes(text: &str) -> Option<u64> {
    let split = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit.trim_start() {
        "" => 1,
        unit => {
            BYTE_UNITS
                .iter()
                .find(|(name, _)| name.eq_ignore_ascii_case(unit))?
                .1
        }
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

fn show_bytes(bytes: u64) -> String {
    BYTE_UNITS
        .iter()
        .take(3)
        .find(|(_, factor)| bytes > 0 && bytes.is_multiple_of(*factor))
        .map_or_else(
            || bytes.to_string(),
            |(name, factor)| format!("{}{name}", bytes / factor),
        )
}

fn parse_number(text: &str, min: u64, max: u64) -> Option<Value> {
    text.parse::<u64>()
        .ok()
        .filter(|number| (min..=max).contains(number))
        .map(Value::Number)
}

fn is_decimal(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.')
}

/// Reads items with commas between them.
fn read_list(text: &str, is_item: impl Fn(&str) -> bool) -> Option<Value> {
    let items: Vec<_> = text
        .split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
        .map(str::to_owned)
        .collect();
    items
        .iter()
        .all(|item| is_item(item))
        .then_some(Value::List(items))
}

fn is_host_pattern(text: &str) -> bool {
    text == "*" || text.parse::<HostPattern>().is_ok()
}

fn is_origin(text: &str) -> bool {
    text == "*"
        || text.split_once("://").is_some_and(|(scheme, rest)| {
            !scheme.is_empty() && !rest.is_empty() && !rest.contains(['/', ' '])
        })
}

/// The mounts of a list; a comma parts two only before the slash of a route, so
/// that a folder's name may hold one.
fn split_mounts(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let (mount, after) = match text.find(",/") {
            Some(comma) => (&text[..comma], Some(&text[comma + 1..])),
            None => (text, None),
        };
        rest = after;
        Some(mount)
    })
}

/// Whether a text is `3.12` or the like; `3.14t` is free-threaded.
pub(crate) fn is_python_version(text: &str) -> bool {
    let number = text.strip_suffix('t').unwrap_or(text);
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    number
        .split_once('.')
        .is_some_and(|(major, minor)| is_number(major) && is_number(minor))
}

/// Checks `ROUTE=DIR`, and takes the folder relative to `folder`.
///
/// A mount with `,/` in it is refused: written in a list, it would be read
/// back as two.
fn read_mount(text: &str, folder: &Path) -> Option<String> {
    let (route, path) = text.split_once('=')?;
    let is_valid =
        route.starts_with('/') && !route.contains(char::is_whitespace) && !path.is_empty();
    let mount = format!("{route}={}", folder.join(path).display());
    (is_valid && !mount.contains(",/")).then_some(mount)
}

/// `/api=http://host:port/path`: what core refuses of it has a better message.
fn is_proxy(text: &str) -> bool {
    text.split_once('=').is_some_and(|(route, url)| {
        route.starts_with('/') && url.contains("://") && !text.contains(char::is_whitespace)
    })
}

fn describe(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("\"{text}\""),
        DeValue::Integer(number) => format!("the number {}", number.as_str()),
        DeValue::Float(number) => format!("the number {}", number.as_str()),
        DeValue::Boolean(on) => on.to_string(),
        DeValue::Datetime(_) => "a date".to_owned(),
        DeValue::Array(_) => "an array".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: Kind, text: &str, shown: Option<&str>) {
        let read = kind.parse(text).ok();
        assert_eq!(
            read.as_ref().map(|value| kind.show(value)).as_deref(),
            shown,
            "{text}"
        );
        if let (Some(value), Some(shown)) = (read, shown) {
            assert_eq!(kind.parse(shown), Ok(value), "{shown} reads back");
        }
    }

    #[test]
    fn times_need_a_unit() {
        check(Kind::Time, "30s", Some("30s"));
        check(Kind::Time, "1500ms", Some("1500ms"));
        check(Kind::Time, "1.5s", Some("1500ms"));
        check(Kind::Time, "120s", Some("2m"));
        check(Kind::Time, "0s", Some("0ms"));
        check(Kind::Time, "0.5ms", Some("0.5ms"));
        check(Kind::TimeOrOff, "off", Some("off"));
        for bad in [
            "30",
            "",
            "s",
            "-1s",
            "1 s",
            "1e9s",
            "inf s",
            "1.2.3s",
            "9999999999999h",
            "1d",
        ] {
            check(Kind::Time, bad, None);
        }
    }

    #[test]
    fn sizes_are_binary_or_decimal() {
        let kind = Kind::Bytes { max: u64::MAX };
        check(kind, "10MiB", Some("10MiB"));
        check(kind, "10 mib", Some("10MiB"));
        check(kind, "2048", Some("2KiB"));
        check(kind, "1MB", Some("1000000"));
        check(kind, "0", Some("0"));
        for bad in ["", "MiB", "1.5MiB", "-1", "99999999999GiB", "1TiB"] {
            check(kind, bad, None);
        }
        check(Kind::Bytes { max: 1024 }, "1025", None);
    }

    #[test]
    fn words_and_numbers_are_checked() {
        check(
            Kind::Number {
                min: 0,
                max: 65_535,
            },
            "65535",
            Some("65535"),
        );
        check(
            Kind::Number {
                min: 0,
                max: 65_535,
            },
            "65536",
            None,
        );
        check(Kind::Lanes, "auto", Some("auto"));
        check(Kind::Lanes, "0", None);
        check(Kind::Mode, "660", Some("660"));
        check(Kind::Mode, "888", None);
        check(Kind::Choice(&["off", "text"]), "text", Some("text"));
        check(Kind::Choice(&["off", "text"]), "xml", None);
        check(
            Kind::Origins,
            "https://a.example, *",
            Some("https://a.example,*"),
        );
        check(Kind::Origins, "a.example", None);
        let proxies = "/api=http://a:1/x,/=http://b";
        check(Kind::ProxyRoutes, proxies, Some(proxies));
        check(Kind::ProxyRoutes, "api=http://a", None);
        check(Kind::ProxyRoutes, "/api", None);
        check(Kind::UrlPath, "metrics", None);
        for mounts in ["", "/=site", "/a=b,/c=d", "/a=/b,c,/d=e=f"] {
            check(Kind::Mounts, mounts, Some(mounts));
        }
        for bad in ["site", "a=b", "/a", "/a=", "=b", "/a b=c", "/a=b,/c"] {
            check(Kind::Mounts, bad, None);
        }
        let in_a_file = |folder| {
            let item = toml::Spanned::new(0..1, DeValue::String("/a=b".into()));
            Kind::Mounts.parse_toml(&DeValue::Array([item].into_iter().collect()), folder)
        };
        let mount = Value::List(vec!["/a=/srv,x/b".to_owned()]);
        assert_eq!(in_a_file(Path::new("/srv,x")), Ok(mount));
        assert!(in_a_file(Path::new("/srv,/x")).is_err(), "shows as two");
        check(Kind::FileNameOrOff, "off", Some("off"));
        check(Kind::FileNameOrOff, "home.htm", Some("home.htm"));
        for bad in ["", "..", "a/b"] {
            check(Kind::FileNameOrOff, bad, None);
        }
        check(Kind::Address, "127.0.0.1:9090", Some("127.0.0.1:9090"));
        check(Kind::Address, "9090", None);
    }

    #[test]
    fn hosts_proxies_and_rates_are_checked() {
        check(Kind::Hosts, "auto", Some("auto"));
        check(
            Kind::Hosts,
            "a.example, *.b.example:80",
            Some("a.example,*.b.example:80"),
        );
        check(Kind::Hosts, "*", Some("*"));
        check(Kind::Hosts, "a b", None);
        check(Kind::Hosts, "http://a", None);
        check(Kind::Proxies, "10.0.0.0/8,unix", Some("10.0.0.0/8,unix"));
        check(Kind::Proxies, "10.0.0.1/8", None);
        check(Kind::Proxies, "*", None);
        check(Kind::Rate, "off", Some("off"));
        check(Kind::Rate, "100/s", Some("100/s"));
        check(Kind::Rate, "100", None);
        check(Kind::Endpoint, "off", Some("off"));
        check(Kind::Endpoint, "http://a:1", Some("http://a:1"));
        check(Kind::Word, "a b", None);
    }
}
