//! Events of the system's, where it has any to give.

use std::fs;
use std::sync::mpsc::Sender;

use notify::{ErrorKind, RecommendedWatcher};
use rustix::io::Errno;

pub(super) use crate::file_systems::without_events as polled_file_system;

/// The system's watcher.
#[derive(Debug)]
pub(super) struct Native {
    pub(super) watcher: RecommendedWatcher,
}

impl Native {
    /// Opens a watcher that sends what it hears, as `wrap` makes it.
    pub(super) fn open<M: Send + 'static>(
        messages: Sender<M>,
        wrap: fn(notify::Result<notify::Event>) -> M,
    ) -> notify::Result<Self> {
        let watcher = notify::recommended_watcher(move |event| {
            // Nobody listens only when the program ends.
            drop(messages.send(wrap(event)));
        })?;
        Ok(Self { watcher })
    }
}

/// Whether a limit of the system's is what is in the way.
pub(super) fn is_limit(error: &notify::Error) -> bool {
    match &error.kind {
        ErrorKind::MaxFilesWatch => true,
        ErrorKind::Io(error) => matches!(
            Errno::from_io_error(error),
            Some(Errno::MFILE | Errno::NOSPC | Errno::NFILE)
        ),
        _ => false,
    }
}

/// Which limit it is, and how to raise it.
pub(super) fn explain(error: &notify::Error, num_folders: usize) -> String {
    let limit = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/fs/inotify/{name}"));
        text.map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
    };
    let is_out_of_watches = match &error.kind {
        ErrorKind::MaxFilesWatch => true,
        ErrorKind::Io(error) => Errno::from_io_error(error) == Some(Errno::NOSPC),
        _ => false,
    };
    if is_out_of_watches {
        let name = "max_user_watches";
        format!(
            "the system watches no more folders for this user: fs.inotify.{name} is {}, \
             {num_folders} folders are here; `sudo sysctl fs.inotify.{name}=524288` raises it",
            limit(name)
        )
    } else {
        let name = "max_user_instances";
        format!(
            "the system has no watcher for this user ({error}): fs.inotify.{name} is {}; \
             `sudo sysctl fs.inotify.{name}=1024` raises it",
            limit(name)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_named_with_what_raises_them() {
        let watches = notify::Error::new(ErrorKind::MaxFilesWatch);
        assert!(is_limit(&watches));
        let text = explain(&watches, 41);
        assert!(text.contains("fs.inotify.max_user_watches is "), "{text}");
        assert!(text.contains("41 folders"), "{text}");
        let instances = notify::Error::io(std::io::Error::from(Errno::MFILE));
        assert!(is_limit(&instances));
        let text = explain(&instances, 41);
        assert!(text.contains("fs.inotify.max_user_instances is "), "{text}");
        assert!(!is_limit(&notify::Error::path_not_found()));
    }
}
