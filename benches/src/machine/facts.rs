//! Facts about processors, limits and clocks that move a measurement and are seldom told.
//!
//! Guarantee: nothing here names the machine: no host, no path of a control group, no command line of
//! the kernel, since records are published.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use super::fixture::{Reading, field, read};

const CPU: &str = "/sys/devices/system/cpu";

/// Looks at the clock, of which the smallest step is its resolution.
const CLOCK_LOOKS: usize = 1000;

/// Reads them all, in no particular order.
pub(super) fn facts(cpuinfo: &Reading) -> Vec<(&'static str, Reading)> {
    let cpu = |file: &str| read(&format!("{CPU}/{file}"));
    let kernel = |file: &str| read(&format!("/proc/sys/{file}"));
    vec![
        ("boost", cpu("cpufreq/boost")),
        ("caches", caches()),
        ("cgroup_cpu_max", cgroup("cpu.max")),
        ("cgroup_memory_max", cgroup("memory.max")),
        ("clock_step_ns", clock_step()),
        ("container", container()),
        ("cores", distinct(cpuinfo, &["physical id", "core id"])),
        ("cpu_base_khz", cpu("cpu0/cpufreq/base_frequency")),
        ("cpu_max_khz", cpu("cpu0/cpufreq/cpuinfo_max_freq")),
        ("cpu_mhz", field(cpuinfo, "cpu MHz")),
        ("cpufreq_driver", cpu("cpu0/cpufreq/scaling_driver")),
        ("cpus_allowed", status("Cpus_allowed_list")),
        ("cpus_isolated", cpu("isolated")),
        ("cpus_nohz_full", cpu("nohz_full")),
        ("cpus_online", cpu("online")),
        ("huge_pages", kernel("vm/nr_hugepages")),
        ("hypervisor", read("/sys/class/dmi/id/sys_vendor")),
        ("libc", libc()),
        ("microcode", field(cpuinfo, "microcode")),
        ("mitigations", mitigations()),
        ("numa_nodes", read("/sys/devices/system/node/online")),
        ("open_files", open_files()),
        ("port_range", kernel("net/ipv4/ip_local_port_range")),
        ("smt", cpu("smt/active")),
        ("sockets", distinct(cpuinfo, &["physical id"])),
        ("somaxconn", kernel("net/core/somaxconn")),
        ("tcp_tw_reuse", kernel("net/ipv4/tcp_tw_reuse")),
        (
            "temperature_millicelsius",
            read("/sys/class/thermal/thermal_zone0/temp"),
        ),
        (
            "throttle_count",
            cpu("cpu0/thermal_throttle/core_throttle_count"),
        ),
        (
            "transparent_huge_pages",
            read("/sys/kernel/mm/transparent_hugepage/enabled"),
        ),
    ]
}

/// Processors that differ in these fields.
fn distinct(cpuinfo: &Reading, names: &[&str]) -> Reading {
    let Some(text) = &cpuinfo.value else {
        return cpuinfo.clone();
    };
    let found: BTreeSet<Vec<&str>> = (text.split("\n\n"))
        .map(|processor| {
            let fields = processor.lines().filter_map(|line| line.split_once(':'));
            fields
                .filter(|(key, _)| names.contains(&key.trim()))
                .map(|(_, value)| value.trim())
                .collect()
        })
        .filter(|values: &Vec<&str>| values.len() == names.len())
        .collect();
    match found.len() {
        0 => Reading::missing(format!("no field {:?}", names[0])),
        count => Reading::known(count.to_string()),
    }
}

/// Sizes of the caches that the first processor uses, `L1 Data 32K, …`.
fn caches() -> Reading {
    let found: Vec<String> = (0..10)
        .map_while(|index| {
            let file = |name: &str| {
                let path = format!("{CPU}/cpu0/cache/index{index}/{name}");
                Some(fs::read_to_string(path).ok()?.trim().to_owned())
            };
            let (level, kind, size) = (file("level")?, file("type")?, file("size")?);
            Some(format!("L{level} {kind} {size}"))
        })
        .collect();
    if found.is_empty() {
        return Reading::missing("the system does not describe caches");
    }
    Reading::known(found.join(", "))
}

/// What the kernel does against faults of the processor, each with its cost.
fn mitigations() -> Reading {
    let folder = match fs::read_dir(format!("{CPU}/vulnerabilities")) {
        Ok(folder) => folder,
        Err(error) => return Reading::missing(format!("{CPU}/vulnerabilities: {error}")),
    };
    let mut found: Vec<String> = folder
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let text = fs::read_to_string(&path).ok()?;
            let name = path.file_name()?.to_str()?.to_owned();
            let text = text.trim();
            (text != "Not affected").then(|| format!("{name}: {text}"))
        })
        .collect();
    found.sort();
    Reading::known(if found.is_empty() {
        String::from("none needed")
    } else {
        found.join("; ")
    })
}

/// A limit of the control group of this process; without one there is no limit.
fn cgroup(file: &'static str) -> Reading {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let value = (own.lines())
        .find_map(|line| line.strip_prefix("0::"))
        .and_then(|path| fs::read_to_string(format!("/sys/fs/cgroup{path}/{file}")).ok());
    match value {
        Some(value) => Reading::known(value.trim()),
        None => Reading::missing(format!("no {file} of a version 2 control group")),
    }
}

fn container() -> Reading {
    let is_marked = ["/.dockerenv", "/run/.containerenv"]
        .iter()
        .any(|path| fs::exists(path).unwrap_or(false));
    Reading::known(is_marked.to_string())
}

fn status(name: &str) -> Reading {
    field(&read("/proc/self/status"), name)
}

/// Descriptors that this process may have, and may ask for.
fn open_files() -> Reading {
    let limits = read("/proc/self/limits");
    let line = limits.value.as_deref().and_then(|text| {
        text.lines()
            .find_map(|line| line.strip_prefix("Max open files"))
    });
    let Some(line) = line else {
        return Reading::missing("no limit of open files in /proc/self/limits");
    };
    let numbers: Vec<&str> = line.split_whitespace().take(2).collect();
    Reading::known(numbers.join(" of "))
}

fn libc() -> Reading {
    match Command::new("getconf").arg("GNU_LIBC_VERSION").output() {
        Ok(found) if found.status.success() => {
            Reading::known(String::from_utf8_lossy(&found.stdout).trim())
        }
        Ok(_) => Reading::missing("getconf knows no GNU_LIBC_VERSION"),
        Err(error) => Reading::missing(format!("getconf: {error}")),
    }
}

/// Smallest step of the clock that latencies are measured with.
fn clock_step() -> Reading {
    let mut last = Instant::now();
    let step = (0..CLOCK_LOOKS)
        .filter_map(|_| {
            let now = Instant::now();
            let step = now - std::mem::replace(&mut last, now);
            (step > Duration::ZERO).then_some(step)
        })
        .min();
    step.map_or_else(
        || Reading::missing("the clock did not move"),
        |step| Reading::known(step.as_nanos().to_string()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted_by_what_they_share() {
        let processor = |socket: u32, core: u32| {
            format!("processor\t: 0\nphysical id\t: {socket}\ncore id\t\t: {core}\n\n")
        };
        let text = [(0, 0), (0, 0), (0, 1), (1, 0)].map(|(socket, core)| processor(socket, core));
        let cpuinfo = Reading::known(text.concat());
        let count = |names: &[&str]| distinct(&cpuinfo, names).value.unwrap();
        assert_eq!(count(&["physical id"]), "2");
        assert_eq!(count(&["physical id", "core id"]), "3");
        assert_eq!(distinct(&cpuinfo, &["cluster"]).value, None);
        let none = Reading::known("Processor\t: ARM\n");
        assert_eq!(distinct(&none, &["physical id"]).value, None);
    }

    /// On any Linux.
    #[test]
    fn what_every_system_tells_is_there() {
        let facts = facts(&read("/proc/cpuinfo"));
        for name in [
            "clock_step_ns",
            "container",
            "cpus_allowed",
            "cpus_online",
            "open_files",
            "port_range",
            "somaxconn",
        ] {
            let found = facts.iter().find(|(found, _)| *found == name).unwrap();
            let value = found.1.value.as_deref();
            assert!(value.is_some_and(|value| !value.is_empty()), "{found:?}");
        }
    }

    #[test]
    fn nothing_names_the_machine() {
        let host = read("/proc/sys/kernel/hostname").value.unwrap();
        let group = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let paths: Vec<&str> = (group.lines())
            .filter_map(|line| line.rsplit(':').next())
            .filter(|path| path.len() > 1)
            .collect();
        for (name, fact) in facts(&read("/proc/cpuinfo")) {
            let text = format!("{fact:?}");
            // Too short a name is part of any word.
            assert!(host.len() < 5 || !text.contains(&host), "{name}: {text}");
            assert!(
                !paths.iter().any(|path| text.contains(path)),
                "{name}: {text}"
            );
        }
    }
}
