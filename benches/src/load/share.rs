//! What a thread of the load engine is given, and what it needs of the system.

use std::sync::Arc;

use mio::Poll;
use rustix::thread::{CpuSet, sched_setaffinity};
use rustls::ClientConfig;
use rustls::client::Resumption;

use super::plan::LoadPlan;
use crate::Error;

/// The part of a plan that one thread does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share {
    /// Index of its first connection among all.
    pub(super) first: usize,
    pub(super) connections: usize,
    /// Measured attempts to make, where the plan has a number of them.
    pub(super) attempts: Option<u64>,
    pub(super) cpu: Option<usize>,
}

/// What a thread needs of the system.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) poll: Poll,
    pub(super) tls_config: Option<Arc<ClientConfig>>,
}

impl Thread {
    /// Pins the calling thread and makes its poll.
    pub(super) fn prepare(plan: &LoadPlan, share: Share) -> Result<Self, Error> {
        if let Some(cpu) = share.cpu {
            let mut set = CpuSet::new();
            if cpu >= CpuSet::MAX_CPU {
                return Err(Error::LoadPlan {
                    field: "cpus",
                    problem: "no such processor",
                });
            }
            set.set(cpu);
            sched_setaffinity(None, &set).map_err(|error| Error::LoadThread {
                operation: "pin",
                source: error.into(),
            })?;
        }
        let poll = Poll::new().map_err(|source| Error::LoadThread {
            operation: "create a poll for",
            source,
        })?;
        // A store of sessions for each thread: a shared one would be a shared lock.
        let tls_config = plan.target.tls.as_ref().map(|tls| {
            let mut config = ClientConfig::clone(&tls.config);
            config.resumption = Resumption::default();
            Arc::new(config)
        });
        Ok(Self { poll, tls_config })
    }
}
