//! What hyper needs of a runtime, on a lane: tasks stay on its thread.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Spawns HTTP/2 streams on the lane's own thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct LaneExecutor;

impl<F> hyper::rt::Executor<F> for LaneExecutor
where
    F: Future<Output = ()> + 'static,
{
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}

/// Timers of the lane's runtime.
#[derive(Debug, Clone, Copy)]
pub(super) struct LaneTimer;

impl hyper::rt::Timer for LaneTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        self.sleep_until(Instant::now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(LaneSleep(Box::pin(tokio::time::sleep_until(
            deadline.into(),
        ))))
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn hyper::rt::Sleep>>, deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<LaneSleep>() {
            Some(sleep) => sleep.get_mut().0.as_mut().reset(deadline.into()),
            None => *sleep = self.sleep_until(deadline),
        }
    }
}

struct LaneSleep(Pin<Box<tokio::time::Sleep>>);

impl Future for LaneSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }
}

impl hyper::rt::Sleep for LaneSleep {}
