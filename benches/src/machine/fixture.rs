//! The fixture: which machine, which kernel, how busy it was before.

use std::collections::BTreeMap;
use std::fs;
use std::thread;

use serde::{Deserialize, Serialize};

/// One fact: a value, or the reason why there is none.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Reading {
    /// The value as the system prints it.
    pub value: Option<String>,
    /// Why the value is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Reading {
    /// Wraps a value that was read.
    pub fn known(value: impl Into<String>) -> Self {
        Self {
            value: Some(value.into()),
            reason: None,
        }
    }

    /// Records that a value is missing, and why.
    pub fn missing(reason: impl Into<String>) -> Self {
        Self {
            value: None,
            reason: Some(reason.into()),
        }
    }

    /// Returns the value, or "unknown" for people to read.
    pub fn text(&self) -> &str {
        self.value.as_deref().unwrap_or("unknown")
    }
}

impl<E: std::fmt::Display> From<Result<String, E>> for Reading {
    fn from(result: Result<String, E>) -> Self {
        match result {
            Ok(value) => Self::known(value.trim()),
            Err(error) => Self::missing(error.to_string()),
        }
    }
}

/// The machine, as one fact per name.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Machine(pub BTreeMap<String, Reading>);

impl Machine {
    /// Reads the machine now; call before the first round, the load average is part of it.
    pub fn read() -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        let facts = [
            ("architecture", Reading::known(std::env::consts::ARCH)),
            ("clocksource", read(CLOCKSOURCE)),
            ("cpu_model", field(&cpuinfo, "model name")),
            ("cpu_governor", read(GOVERNOR)),
            (
                "cpus",
                thread::available_parallelism()
                    .map(|n| n.to_string())
                    .into(),
            ),
            ("kernel", read("/proc/sys/kernel/osrelease")),
            ("load_average_before", load_average()),
            ("memory_total_kib", memory_total()),
            ("os", os_name()),
            ("turbo_disabled", read(NO_TURBO)),
            ("virtualised", virtualised(&cpuinfo)),
        ];
        Self(
            facts
                .into_iter()
                .chain(super::facts::facts(&cpuinfo))
                .map(|(name, fact)| (name.to_owned(), fact))
                .collect(),
        )
    }

    /// Returns a fact for people to read, "unknown" when it is missing.
    pub fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("unknown", Reading::text)
    }
}

const CLOCKSOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
const GOVERNOR: &str = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
const NO_TURBO: &str = "/sys/devices/system/cpu/intel_pstate/no_turbo";

pub(super) fn read(path: &str) -> Reading {
    fs::read_to_string(path)
        .map_err(|error| format!("{path}: {error}"))
        .into()
}

/// The first value of a `name : value` file.
pub(super) fn field(file: &Reading, name: &str) -> Reading {
    let Some(text) = &file.value else {
        return file.clone();
    };
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map_or_else(
            || Reading::missing(format!("no field {name:?}")),
            |(_, value)| Reading::known(value.trim()),
        )
}

fn load_average() -> Reading {
    let file = read("/proc/loadavg");
    match file
        .value
        .as_deref()
        .and_then(|text| text.split(' ').next())
    {
        Some(one_minute) => Reading::known(one_minute),
        None => file,
    }
}

fn memory_total() -> Reading {
    let fact = field(&read("/proc/meminfo"), "MemTotal");
    match fact
        .value
        .as_deref()
        .and_then(|text| text.split(' ').next())
    {
        Some(kib) => Reading::known(kib),
        None => fact,
    }
}

fn os_name() -> Reading {
    let file = read("/etc/os-release");
    let name = file.value.as_deref().and_then(|text| {
        text.lines()
            .find_map(|line| line.strip_prefix("PRETTY_NAME="))
    });
    match name {
        Some(name) => Reading::known(name.trim_matches('"')),
        None => file,
    }
}

/// A hypervisor sets the CPU flag of that name; other architectures have no such flag.
fn virtualised(cpuinfo: &Reading) -> Reading {
    let flags = field(cpuinfo, "flags");
    match &flags.value {
        Some(flags) => {
            let found = flags.split(' ').any(|flag| flag == "hypervisor");
            Reading::known(found.to_string())
        }
        None => flags,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fact_has_a_value_or_a_reason() {
        for (name, fact) in &Machine::read().0 {
            assert_ne!(
                fact.value.is_some(),
                fact.reason.is_some(),
                "{name}: {fact:?}"
            );
        }
    }

    #[test]
    fn the_hypervisor_flag_is_a_whole_word() {
        let check = |flags: &str| {
            let file = Reading::known(format!("model name\t: X\nflags\t\t: {flags}\n"));
            virtualised(&file).value.unwrap()
        };
        assert_eq!(check("fpu hypervisor sse"), "true");
        assert_eq!(check("fpu nohypervisor sse"), "false");
        assert_eq!(virtualised(&Reading::known("a: b")).value, None);
    }
}
