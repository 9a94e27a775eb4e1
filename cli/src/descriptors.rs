//! The process' limit of open descriptors, which bounds its connections.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use justapi_core::Limits;

/// Descriptors kept for listeners, files, pipes and the runtime, or a quarter
/// where there are few.
const RESERVED: u64 = 64;

/// Raises the soft limit of open descriptors to the hard one.
///
/// A refusal changes nothing: the default of the connection limit follows
/// what is really allowed.
pub(crate) fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        // A refusal shows in `default_max_connections`, see above.
        let _ = setrlimit(Resource::Nofile, raised);
    }
}

/// Connections for which the descriptors suffice; `None` is no limit.
pub(crate) fn max_connections() -> Option<u64> {
    getrlimit(Resource::Nofile).current.map(connections_for)
}

/// [`max_connections`], at most core's default.
pub(crate) fn default_max_connections() -> u64 {
    let most = Limits::DEFAULT.max_connections as u64;
    max_connections().map_or(most, |connections| connections.min(most))
}

/// Nine tenths of the descriptors less the reserved ones.
fn connections_for(descriptors: u64) -> u64 {
    let spare = RESERVED.min(descriptors / 4);
    (descriptors * 9 / 10).saturating_sub(spare).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_stay_below_the_descriptors() {
        assert_eq!(connections_for(1_048_576), 943_654);
        assert_eq!(connections_for(1024), 857);
        assert_eq!(connections_for(64), 41);
        assert_eq!(connections_for(2), 1);
        assert!(default_max_connections() <= 10_000);
    }
}
