//! Where requests wait while it is open whether a file has changed.
//!
//! Guarantee: a request that came after a doubt is let through only once that
//! doubt is answered. Doubts are counted, and answered in order: whoever
//! answers one answers all that came before it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// Doubts, and how many of them are answered.
#[derive(Debug)]
pub(crate) struct Gate {
    /// Held while a doubt is raised and told, so that nobody who answers it
    /// has not been told.
    telling: Mutex<()>,
    counts: watch::Sender<Counts>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    raised: u64,
    answered: u64,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self {
            telling: Mutex::new(()),
            counts: watch::Sender::new(Counts::default()),
        }
    }

    /// Raises a doubt, which `tell` passes on before anybody can answer it.
    pub(crate) fn raise(&self, tell: impl FnOnce()) {
        let _telling = self.lock();
        self.counts.send_modify(|counts| counts.raised += 1);
        tell();
    }

    /// The number of doubts so far, all of which `hear` has been told of.
    pub(crate) fn raised(&self, hear: impl FnOnce()) -> u64 {
        let _telling = self.lock();
        hear();
        self.counts.borrow().raised
    }

    /// Answers the first `number` doubts.
    pub(crate) fn answer(&self, number: u64) {
        self.counts.send_if_modified(|counts| {
            let is_news = number > counts.answered;
            counts.answered = counts.answered.max(number);
            is_news
        });
    }

    /// Waits until each doubt that has been raised by now is answered.
    pub(crate) async fn pass(&self) {
        let mut counts = self.counts.subscribe();
        let raised = counts.borrow().raised;
        // An error would mean that the gate is gone, which this borrows.
        drop(counts.wait_for(|counts| counts.answered >= raised).await);
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.telling.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn is_open(gate: &Gate) -> bool {
        let mut passing = pin!(gate.pass());
        let mut context = Context::from_waker(Waker::noop());
        passing.as_mut().poll(&mut context) == Poll::Ready(())
    }

    #[test]
    fn a_later_answer_counts_for_all_before_it() {
        let gate = Gate::new();
        assert!(is_open(&gate));
        gate.raise(|| ());
        gate.raise(|| ());
        assert!(!is_open(&gate));
        let seen = gate.raised(|| ());
        gate.raise(|| ());
        gate.answer(seen);
        assert!(!is_open(&gate), "the third is not answered");
        gate.answer(seen + 1);
        gate.answer(seen);
        assert!(is_open(&gate));
    }

    #[test]
    fn a_request_waits_only_for_what_came_before_it() {
        let gate = Gate::new();
        gate.raise(|| ());
        let mut passing = pin!(gate.pass());
        let mut context = Context::from_waker(Waker::noop());
        assert!(passing.as_mut().poll(&mut context).is_pending());
        gate.raise(|| ());
        gate.answer(1);
        assert!(passing.as_mut().poll(&mut context).is_ready());
    }
}
