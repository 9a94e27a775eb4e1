//! What is told while a model is brought here.

use std::time::Duration;

/// News of [`super::locate`], in order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LocateEvent<'a> {
    /// A file is fetched now.
    Fetching {
        /// Where from, such as an address of a hub.
        source: &'a str,
        /// Its name.
        file: &'a str,
        /// Its size, where known.
        num_bytes: Option<u64>,
    },
    /// Bytes of it that are here.
    Progress {
        /// From its beginning, those of an earlier try included.
        num_bytes: u64,
    },
    /// It is here, and is what was promised.
    Fetched {
        /// Its name.
        file: &'a str,
    },
    /// It is asked for again, after a pause.
    Retrying {
        /// How long it is.
        pause: Duration,
        /// What happened.
        reason: &'a str,
    },
    /// Another process fetches the same.
    Waiting {
        /// What it fetches.
        file: &'a str,
    },
    /// A place does not have it or cannot be reached; the next one is asked.
    NextSource {
        /// The place.
        source: &'a str,
        /// Why not.
        reason: &'a str,
    },
}

/// Who is told of [`LocateEvent`]s.
pub(super) type Listener<'a> = &'a mut dyn FnMut(LocateEvent<'_>);
