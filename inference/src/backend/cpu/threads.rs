//! Threads that run a step together: one region a step, barriers within it.
//!
//! Whoever waits spins for some microseconds and then sleeps, so that an idle
//! engine costs nothing and a busy machine is not made busier. A panic of one
//! thread ends the region in all, and is the caller's.

#![expect(
    unsafe_code,
    reason = "threads borrow the caller's closure for the region"
)]

use std::ops::Range;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::{hint, io};

/// Looks at a variable before sleeping: about 30 microseconds, several times
/// what the phases of a step differ by.
const MAX_SPINS: u32 = 1000;

/// What all threads of a region run.
type Region<'a> = dyn Fn(Worker<'_>) + Sync + 'a;

/// Threads that wait for regions.
#[derive(Debug)]
pub(crate) struct ThreadPool {
    shared: Arc<SharedState>,
    threads: Vec<JoinHandle<()>>,
}

/// One of the threads, within a region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Worker<'a> {
    /// From 0, the caller's, to `count`.
    pub(crate) index: usize,
    /// Threads of the region.
    pub(crate) count: usize,
    barrier: Option<&'a Barrier>,
}

impl Worker<'_> {
    /// Waits until all threads are here.
    ///
    /// # Panics
    /// If another thread has.
    pub(crate) fn wait(&self) {
        if let Some(barrier) = self.barrier {
            barrier.wait(self.count);
        }
    }

    /// Returns this thread's share of so many items: consecutive, and even.
    pub(crate) fn share(&self, num_items: usize) -> Range<usize> {
        let at = |index: usize| index * num_items / self.count;
        at(self.index)..at(self.index + 1)
    }

    /// Returns whether an item is this thread's, where they go in turn.
    pub(crate) fn takes(&self, item: usize) -> bool {
        item % self.count == self.index
    }
}

#[derive(Debug, Default)]
struct SharedState {
    /// Number of the region, which threads look at before they sleep.
    epoch: AtomicU32,
    job: Mutex<Job>,
    start: Condvar,
    /// Threads, but for the caller's, that have not left the region.
    running: AtomicUsize,
    done: Condvar,
    barrier: Barrier,
}

#[derive(Debug, Default)]
struct Job {
    epoch: u32,
    region: Option<RegionPointer>,
    stops: bool,
}

/// A region whose caller waits until all threads have left it.
#[derive(Clone, Copy)]
struct RegionPointer(*const Region<'static>);

// SAFETY: the closure is `Sync`, and lives as said.
unsafe impl Send for RegionPointer {}

impl std::fmt::Debug for RegionPointer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("RegionPointer")
    }
}

impl ThreadPool {
    /// Starts threads, so that regions have `count` with the caller's.
    ///
    /// # Errors
    /// What the system says when it has no more threads.
    pub(crate) fn new(count: usize) -> io::Result<Self> {
        let mut pool = Self {
            shared: Arc::default(),
            threads: Vec::new(),
        };
        for index in 1..count {
            let shared = Arc::clone(&pool.shared);
            let thread = thread::Builder::new()
                .name(format!("justapi-cpu-{index}"))
                .spawn(move || shared.serve(index, count))?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// Runs a region in all threads, and returns when all have left it.
    ///
    /// # Panics
    /// If one of them does.
    pub(crate) fn run(&mut self, region: &Region<'_>) {
        let count = self.threads.len() + 1;
        if count == 1 {
            return region(Worker {
                index: 0,
                count,
                barrier: None,
            });
        }
        let shared = &*self.shared;
        // SAFETY: only the lifetime changes; the region is left by all threads
        // before this returns, by a panic too.
        let region: &Region<'static> = unsafe { std::mem::transmute(region) };
        let pointer = RegionPointer(region);
        shared.running.store(count - 1, Ordering::SeqCst);
        {
            let mut job = shared.lock();
            job.epoch = job.epoch.wrapping_add(1);
            job.region = Some(pointer);
            shared.epoch.store(job.epoch, Ordering::SeqCst);
        }
        shared.start.notify_all();
        let result = shared.enter(0, count, region);
        shared.wait_until_left();
        let others_panicked = shared.barrier.reset();
        if let Err(panic) = result {
            panic::resume_unwind(panic);
        }
        assert!(!others_panicked, "a thread of the step panicked");
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.shared.lock().stops = true;
        self.shared.start.notify_all();
        for thread in self.threads.drain(..) {
            // Panics are caught within.
            drop(thread.join());
        }
    }
}

impl SharedState {
    fn lock(&self) -> MutexGuard<'_, Job> {
        self.job.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, index: usize, count: usize, region: &Region<'_>) -> thread::Result<()> {
        let worker = Worker {
            index,
            count,
            barrier: Some(&self.barrier),
        };
        let result = panic::catch_unwind(AssertUnwindSafe(|| region(worker)));
        if result.is_err() {
            self.barrier.poison();
        }
        result
    }

    /// Runs regions until the pool is dropped.
    fn serve(&self, index: usize, count: usize) {
        let mut last = 0;
        loop {
            let _ = spin(|| self.epoch.load(Ordering::SeqCst) != last);
            let region = {
                let mut job = self.lock();
                while job.epoch == last && !job.stops {
                    job = self.start.wait(job).unwrap_or_else(PoisonError::into_inner);
                }
                if job.stops {
                    return;
                }
                last = job.epoch;
                job.region.expect("an epoch begins with a region")
            };
            // SAFETY: the caller waits until this thread has left.
            let region = unsafe { &*region.0 };
            // The caller is told by the barrier, and by the hook of panics.
            drop(self.enter(index, count, region));
            if self.running.fetch_sub(1, Ordering::SeqCst) == 1 {
                drop(self.lock());
                self.done.notify_one();
            }
        }
    }

    fn wait_until_left(&self) {
        let left = || self.running.load(Ordering::SeqCst) == 0;
        if spin(left) {
            return;
        }
        let mut job = self.lock();
        while !left() {
            job = self.done.wait(job).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Looks until it is so, or for [`MAX_SPINS`].
fn spin(is_so: impl Fn() -> bool) -> bool {
    for _ in 0..MAX_SPINS {
        if is_so() {
            return true;
        }
        hint::spin_loop();
    }
    is_so()
}

/// A place where threads wait for each other, again and again.
#[derive(Debug, Default)]
struct Barrier {
    arrived: AtomicUsize,
    generation: AtomicU32,
    num_sleeping: AtomicUsize,
    poisoned: AtomicBool,
    lock: Mutex<()>,
    opened: Condvar,
}

impl Barrier {
    fn wait(&self, count: usize) {
        let generation = self.generation.load(Ordering::SeqCst);
        if self.arrived.fetch_add(1, Ordering::SeqCst) + 1 == count {
            self.arrived.store(0, Ordering::SeqCst);
            self.open();
            return;
        }
        let is_open = || {
            self.generation.load(Ordering::SeqCst) != generation
                || self.poisoned.load(Ordering::SeqCst)
        };
        if !spin(is_open) {
            let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
            // Counted before the last look: whoever opens after it sees the count.
            self.num_sleeping.fetch_add(1, Ordering::SeqCst);
            while !is_open() {
                guard = self
                    .opened
                    .wait(guard)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            self.num_sleeping.fetch_sub(1, Ordering::SeqCst);
        }
        assert!(
            !self.poisoned.load(Ordering::SeqCst),
            "another thread of the step panicked"
        );
    }

    fn open(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
        if self.num_sleeping.load(Ordering::SeqCst) > 0 {
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.opened.notify_all();
        }
    }

    /// Lets all pass, and panic.
    fn poison(&self) {
        self.poisoned.store(true, Ordering::SeqCst);
        self.open();
    }

    /// Makes it as new, once nobody waits; returns whether it was poisoned.
    fn reset(&self) -> bool {
        self.arrived.store(0, Ordering::SeqCst);
        self.poisoned.swap(false, Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_do_not_overlap() {
        let mut pool = ThreadPool::new(3).unwrap();
        let counters: Vec<AtomicUsize> = (0..200).map(|_| AtomicUsize::new(0)).collect();
        for _ in 0..5 {
            for counter in &counters {
                counter.store(0, Ordering::SeqCst);
            }
            pool.run(&|worker| {
                for counter in &counters {
                    counter.fetch_add(1, Ordering::SeqCst);
                    worker.wait();
                    assert_eq!(counter.load(Ordering::SeqCst), 3);
                }
            });
        }
    }

    #[test]
    fn sleepers_are_woken() {
        let mut pool = ThreadPool::new(2).unwrap();
        for _ in 0..3 {
            thread::sleep(std::time::Duration::from_millis(2));
            pool.run(&|worker| {
                if worker.index == 0 {
                    thread::sleep(std::time::Duration::from_millis(2));
                }
                worker.wait();
            });
        }
    }

    #[test]
    fn shares_are_everything_once() {
        for count in 1..5 {
            for num_items in 0..20 {
                let mut items = Vec::new();
                for index in 0..count {
                    let worker = Worker {
                        index,
                        count,
                        barrier: None,
                    };
                    items.extend(worker.share(num_items));
                }
                assert_eq!(items, (0..num_items).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn panics_are_the_callers_and_pass() {
        let mut pool = ThreadPool::new(3).unwrap();
        for index in 0..3 {
            let result = panic::catch_unwind(AssertUnwindSafe(|| {
                pool.run(&|worker| {
                    assert_ne!(worker.index, index, "meant to");
                    worker.wait();
                });
            }));
            assert!(result.is_err());
            let sum = AtomicUsize::new(0);
            pool.run(&|worker| {
                worker.wait();
                sum.fetch_add(worker.index, Ordering::SeqCst);
            });
            assert_eq!(sum.load(Ordering::SeqCst), 3);
        }
    }
}
