//! The kernel's limits: descriptors, backlog, file events, and who may look into processes.
//!
//! Guarantee: what cannot be read is left out, and never guessed. Formats: `proc_sys(5)`,
//! `inotify(7)`.

use std::path::{Path, PathBuf};
use std::{env, fs, thread};

use rustix::fs::inotify;
use rustix::io::Errno;
use rustix::process::{Resource, geteuid, getrlimit};

use super::super::checklist::Item;
use super::super::serve::Plan;
use crate::file_systems;

/// Watches that suffice for a large project with its packages: the default of newer kernels with
/// 1 GiB of memory or more is above it.
const ENOUGH_WATCHES: i64 = 8192;
/// Highest level at which a user may sample their own processes.
const MAX_PARANOID: i64 = 2;
/// Highest level at which a user may look into their own children.
const MAX_PTRACE: i64 = 1;

/// A machine as `/proc/sys` shows it.
#[derive(Debug)]
pub(super) struct Machine {
    sys: PathBuf,
    is_root: bool,
}

impl Machine {
    /// This machine.
    pub(super) fn this() -> Self {
        Self {
            sys: PathBuf::from("/proc/sys"),
            is_root: geteuid().is_root(),
        }
    }

    /// What there is to say.
    pub(super) fn items(&self, plan: Option<&Plan>) -> Vec<Item> {
        let mut items = vec![processors()];
        let limit = getrlimit(Resource::Nofile);
        let wanted = plan.map_or(10_000, |plan| plan.limits().max_connections as u64);
        items.push(descriptors(limit.current, limit.maximum, wanted));
        items.extend(self.backlog(plan.map_or(1024, Plan::backlog)));
        items.extend(self.file_events());
        let folder = env::current_dir().unwrap_or_default();
        items.push(watching(&folder));
        items.extend(self.profiling());
        items
    }

    fn number(&self, name: &str) -> Option<i64> {
        fs::read_to_string(self.sys.join(name))
            .ok()?
            .trim()
            .parse()
            .ok()
    }

    fn backlog(&self, wanted: u32) -> Option<Item> {
        let most = self.number("net/core/somaxconn")?;
        Some(if most < i64::from(wanted) {
            self.warn(
                "backlog",
                format!(
                    "net.core.somaxconn is {most}: of {wanted} connections that may wait, the \
                     kernel lets {most}"
                ),
                "net.core.somaxconn",
                4096,
            )
        } else {
            Item::ok("backlog", format!("net.core.somaxconn is {most}"))
        })
    }

    fn file_events(&self) -> Option<Item> {
        let watches = self.number("fs/inotify/max_user_watches")?;
        let instances = self.number("fs/inotify/max_user_instances")?;
        let message = format!("{watches} watches, {instances} instances for each user");
        Some(if watches < ENOUGH_WATCHES {
            self.warn(
                "file events",
                format!("{message}: a project of many folders cannot be watched"),
                "fs.inotify.max_user_watches",
                524_288,
            )
        } else {
            Item::ok("file events", message)
        })
    }

    fn profiling(&self) -> Vec<Item> {
        let mut items = Vec::new();
        if let Some(level) = self.number("kernel/perf_event_paranoid") {
            items.push(if level > MAX_PARANOID && !self.is_root {
                Item::warn(
                    "perf",
                    format!(
                        "kernel.perf_event_paranoid is {level}: `perf` cannot sample your \
                         processes; `justapi profile` does without"
                    ),
                    self.sysctl("kernel.perf_event_paranoid", MAX_PARANOID),
                )
            } else {
                Item::ok("perf", format!("kernel.perf_event_paranoid is {level}"))
            });
        }
        if let Some(level) = self.number("kernel/yama/ptrace_scope") {
            items.push(if level > MAX_PTRACE && !self.is_root {
                Item::warn(
                    "ptrace",
                    format!(
                        "kernel.yama.ptrace_scope is {level}: profilers such as py-spy cannot look \
                         into your processes; `justapi profile` does without"
                    ),
                    // 3 stays until the next boot.
                    if level == 3 {
                        "set `kernel.yama.ptrace_scope = 1` in /etc/sysctl.d, and reboot".to_owned()
                    } else {
                        self.sysctl("kernel.yama.ptrace_scope", MAX_PTRACE)
                    },
                )
            } else {
                Item::ok("ptrace", format!("kernel.yama.ptrace_scope is {level}"))
            });
        }
        items
    }

    /// Something that a value of the kernel mends, which root can set.
    fn warn(&self, name: &str, message: String, key: &str, value: i64) -> Item {
        let item = Item::warn(name, message, self.sysctl(key, value));
        if self.is_root {
            item.with_repair(["sysctl", "-w", &format!("{key}={value}")])
        } else {
            item
        }
    }

    /// The command that sets a value until the next boot.
    fn sysctl(&self, name: &str, value: i64) -> String {
        let sudo = if self.is_root { "" } else { "sudo " };
        format!("{sudo}sysctl -w {name}={value}   (to stay: a file in /etc/sysctl.d)")
    }
}

fn processors() -> Item {
    match thread::available_parallelism() {
        Ok(count) => Item::ok(
            "processors",
            format!("{count} that this process may use, quotas of containers counted"),
        ),
        Err(error) => Item::warn(
            "processors",
            format!("cannot be counted: {error}"),
            "say `--lanes N` or `--workers N`",
        ),
    }
}

/// `None` is no limit.
fn descriptors(soft: Option<u64>, hard: Option<u64>, wanted: u64) -> Item {
    let shown =
        |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
    let message = format!("{} open at once, at most {}", shown(soft), shown(hard));
    // The server raises the first to the second by itself.
    match hard {
        Some(hard) if hard < wanted => Item::warn(
            "descriptors",
            format!("{message}: not enough for {wanted} connections"),
            "`ulimit -n 65536`, LimitNOFILE= of the service, or `docker run --ulimit nofile=65536`",
        ),
        _ => Item::ok("descriptors", message),
    }
}

/// Whether files of the folder can be watched, by trying it.
fn watching(folder: &Path) -> Item {
    let shown = folder.display();
    if let Some(system) = file_systems::without_events(folder) {
        return Item::warn(
            "watching",
            format!("{shown} is on {system}, where changes made elsewhere come without events"),
            "keep the project on a disk of this machine, or have it polled",
        );
    }
    let tried = inotify::init(inotify::CreateFlags::CLOEXEC).and_then(|watcher| {
        inotify::add_watch(&watcher, folder, inotify::WatchFlags::MODIFY).map(drop)
    });
    match tried {
        Ok(()) => Item::ok("watching", format!("{shown} can be watched")),
        Err(Errno::MFILE) => Item::warn(
            "watching",
            "no watcher is left for this user: editors and other tools have them all",
            "sudo sysctl -w fs.inotify.max_user_instances=1024",
        ),
        Err(Errno::NOSPC) => Item::warn(
            "watching",
            "no watch is left for this user: editors and other tools have them all",
            "sudo sysctl -w fs.inotify.max_user_watches=524288",
        ),
        Err(error) => Item::warn(
            "watching",
            format!("{shown} cannot be watched: {error}"),
            "check the permissions of the folder",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::checklist::Status;
    use super::*;

    fn machine(folder: &Path, values: &[(&str, &str)]) -> Machine {
        for (name, value) in values {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{value}\n")).unwrap();
        }
        Machine {
            sys: folder.to_owned(),
            is_root: false,
        }
    }

    #[track_caller]
    fn check(item: Option<Item>, status: Status, fix: &str) {
        let item = item.unwrap();
        assert_eq!(item.status, status, "{item:?}");
        let found = item.fix.unwrap_or_default();
        assert!(
            found.starts_with(fix) && found.is_empty() == fix.is_empty(),
            "{found}"
        );
    }

    #[test]
    fn limits_that_are_too_low_name_the_command() {
        let folder = tempfile::tempdir().unwrap();
        let low = machine(
            folder.path(),
            &[
                ("net/core/somaxconn", "128"),
                ("fs/inotify/max_user_watches", "4096"),
                ("fs/inotify/max_user_instances", "128"),
                ("kernel/perf_event_paranoid", "4"),
                ("kernel/yama/ptrace_scope", "3"),
            ],
        );
        check(
            low.backlog(1024),
            Status::Warn,
            "sudo sysctl -w net.core.somaxconn=4096",
        );
        check(
            low.file_events(),
            Status::Warn,
            "sudo sysctl -w fs.inotify.max_user_watches=524288",
        );
        assert_eq!(low.backlog(1024).unwrap().repair, None);
        let root = Machine {
            is_root: true,
            ..machine(folder.path(), &[])
        };
        let repair = root.backlog(1024).unwrap().repair.unwrap();
        assert_eq!(repair, ["sysctl", "-w", "net.core.somaxconn=4096"]);
        let [perf, ptrace] = low.profiling().try_into().unwrap();
        check(
            Some(perf),
            Status::Warn,
            "sudo sysctl -w kernel.perf_event_paranoid=2",
        );
        check(
            Some(ptrace),
            Status::Warn,
            "set `kernel.yama.ptrace_scope = 1`",
        );
    }

    #[test]
    fn limits_that_suffice_need_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let fine = machine(
            folder.path(),
            &[
                ("net/core/somaxconn", "4096"),
                ("fs/inotify/max_user_watches", "65536"),
                ("fs/inotify/max_user_instances", "128"),
                ("kernel/perf_event_paranoid", "-1"),
                ("kernel/yama/ptrace_scope", "1"),
            ],
        );
        check(fine.backlog(1024), Status::Ok, "");
        check(fine.file_events(), Status::Ok, "");
        for item in fine.profiling() {
            check(Some(item), Status::Ok, "");
        }
    }

    #[test]
    fn what_cannot_be_read_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let bare = machine(folder.path(), &[("net/core/somaxconn", "many")]);
        assert_eq!(bare.backlog(1), None);
        assert_eq!(bare.file_events(), None);
        assert!(bare.profiling().is_empty());
    }

    #[test]
    fn descriptors_are_counted_by_the_hard_limit() {
        check(
            Some(descriptors(Some(1024), Some(1 << 20), 10_000)),
            Status::Ok,
            "",
        );
        check(Some(descriptors(Some(1024), None, 10_000)), Status::Ok, "");
        check(
            Some(descriptors(Some(1024), Some(4096), 10_000)),
            Status::Warn,
            "`ulimit -n",
        );
    }

    #[test]
    fn a_folder_that_is_not_there_cannot_be_watched() {
        let folder = tempfile::tempdir().unwrap();
        let item = watching(&folder.path().join("nowhere"));
        assert_eq!(item.status, Status::Warn);
    }
}
