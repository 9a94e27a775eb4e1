//! What one thread counts, and how the counts of threads are added.
//!
//! Memory is constant in the number of requests: counters and histograms only.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};

use super::outcome::OutcomeCounts;
use super::report::{ResponseDigest, ThreadReport};

/// Largest recorded value over the timeout; larger values are clamped to it.
///
/// A late wake-up can add to a time that was within its limit.
const UPPER_BOUND_TIMEOUTS: u32 = 4;

/// Significant decimal digits of histogram values.
const SIGNIFICANT_DIGITS: u8 = 3;

/// Number of status codes, 0 to 599.
const NUM_STATUS: usize = 600;

/// A histogram of times with exact extremes and an exact sum.
#[derive(Debug, Clone)]
pub(super) struct Times {
    histogram: Histogram<u64>,
    min_ns: u64,
    max_ns: u64,
    sum_ns: u128,
}

impl Times {
    pub(super) fn new(timeout: Duration) -> Self {
        // The histogram needs a bound of at least two; a microsecond is below any
        // timeout that means something.
        let bound = nanoseconds(timeout.saturating_mul(UPPER_BOUND_TIMEOUTS)).max(1_000);
        let histogram = Histogram::new_with_bounds(1, bound, SIGNIFICANT_DIGITS)
            .expect("the bounds are 1 and at least 1000, with 3 digits");
        Self {
            histogram,
            min_ns: u64::MAX,
            max_ns: 0,
            sum_ns: 0,
        }
    }

    pub(super) fn record(&mut self, time: Duration) {
        let value = nanoseconds(time);
        self.histogram.saturating_record(value.max(1));
        self.min_ns = self.min_ns.min(value);
        self.max_ns = self.max_ns.max(value);
        self.sum_ns += u128::from(value);
    }

    pub(super) fn count(&self) -> u64 {
        self.histogram.len()
    }

    pub(super) const fn sum_ns(&self) -> u128 {
        self.sum_ns
    }

    /// Smallest and largest value; `None` without values.
    pub(super) fn extremes(&self) -> Option<(u64, u64)> {
        (self.count() > 0).then_some((self.min_ns, self.max_ns))
    }

    /// Value below which the share `quantile` of the values lies.
    pub(super) fn quantile(&self, quantile: f64) -> Option<u64> {
        // The histogram rounds up to its resolution, which may pass the maximum.
        let (min, max) = self.extremes()?;
        Some(self.histogram.value_at_quantile(quantile).clamp(min, max))
    }

    fn merge(&mut self, other: &Self) {
        self.histogram
            .add(&other.histogram)
            .expect("all threads have the same bounds");
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.sum_ns += other.sum_ns;
    }
}

/// Counts of one thread, then of all.
#[derive(Debug, Clone)]
pub(super) struct Tally {
    pub(super) attempts: u64,
    pub(super) outcomes: OutcomeCounts,
    pub(super) status_counts: Vec<u64>,
    pub(super) bytes_read: u64,
    pub(super) resent: u64,
    pub(super) connections_opened: u64,
    pub(super) latency_ok: Times,
    pub(super) latency_error: Times,
    pub(super) connect: Times,
    pub(super) oldest_aborted: Option<Duration>,
    pub(super) first_attempt: Option<Instant>,
    pub(super) first_send: Option<Instant>,
    pub(super) end: Option<Instant>,
    pub(super) interrupted: bool,
    pub(super) first_response: Option<ResponseDigest>,
}

impl Tally {
    pub(super) fn new(request_timeout: Duration, connect_timeout: Duration) -> Self {
        Self {
            attempts: 0,
            outcomes: OutcomeCounts::default(),
            status_counts: vec![0; NUM_STATUS],
            bytes_read: 0,
            resent: 0,
            connections_opened: 0,
            latency_ok: Times::new(request_timeout),
            latency_error: Times::new(request_timeout),
            connect: Times::new(connect_timeout),
            oldest_aborted: None,
            first_attempt: None,
            first_send: None,
            end: None,
            interrupted: false,
            first_response: None,
        }
    }

    /// Adds what another thread counted in the same run.
    pub(super) fn merge(&mut self, other: Self) {
        self.attempts += other.attempts;
        self.outcomes.merge(&other.outcomes);
        for (sum, count) in self.status_counts.iter_mut().zip(other.status_counts) {
            *sum += count;
        }
        self.bytes_read += other.bytes_read;
        self.resent += other.resent;
        self.connections_opened += other.connections_opened;
        self.latency_ok.merge(&other.latency_ok);
        self.latency_error.merge(&other.latency_error);
        self.connect.merge(&other.connect);
        self.oldest_aborted = self.oldest_aborted.max(other.oldest_aborted);
        self.first_attempt = earlier(self.first_attempt, other.first_attempt);
        self.first_send = earlier(self.first_send, other.first_send);
        self.end = self.end.max(other.end);
        self.interrupted |= other.interrupted;
        self.first_response = self.first_response.take().or(other.first_response);
    }

    /// First measured send, or first attempt where nothing could be sent, to the end.
    pub(super) fn window(&self) -> Option<Duration> {
        let start = self.first_send.or(self.first_attempt)?;
        Some(self.end?.saturating_duration_since(start))
    }
}

/// Where the time of a thread went.
#[derive(Debug)]
pub(super) struct Usage {
    began: Instant,
    pub(super) idle: Duration,
    cpu_began: Duration,
}

impl Usage {
    pub(super) fn begin() -> Self {
        Self {
            began: Instant::now(),
            idle: Duration::ZERO,
            cpu_began: thread_cpu_time(),
        }
    }

    pub(super) fn end(self) -> ThreadReport {
        let total = self.began.elapsed();
        let busy = total.saturating_sub(self.idle);
        let busy_ratio = (!total.is_zero()).then(|| busy.as_secs_f64() / total.as_secs_f64());
        let cpu = thread_cpu_time().saturating_sub(self.cpu_began);
        ThreadReport {
            busy_ratio,
            cpu_ns: nanoseconds(cpu),
        }
    }
}

/// The earlier of two instants, where there are two.
pub(super) fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Whole nanoseconds; 584 years and more are one value.
pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_stay_between_the_extremes() {
        let mut times = Times::new(Duration::from_secs(1));
        assert_eq!(times.quantile(0.5), None);
        for value in [1_234_567, 1_234_568, 7_654_321] {
            times.record(Duration::from_nanos(value));
        }
        assert_eq!(times.extremes(), Some((1_234_567, 7_654_321)));
        assert_eq!(times.quantile(1.0), Some(7_654_321));
        assert_eq!(times.quantile(0.0), Some(1_234_567));
    }

    #[test]
    fn merged_times_are_the_union() {
        let timeout = Duration::from_secs(1);
        let (mut all, mut one, mut two) = (
            Times::new(timeout),
            Times::new(timeout),
            Times::new(timeout),
        );
        for value in 1..=1000_u64 {
            let time = Duration::from_micros(value * value);
            all.record(time);
            if value % 3 == 0 {
                one.record(time);
            } else {
                two.record(time);
            }
        }
        one.merge(&two);
        assert_eq!(one.count(), all.count());
        assert_eq!(one.extremes(), all.extremes());
        assert_eq!(one.sum_ns(), all.sum_ns());
        for quantile in [0.1, 0.5, 0.99, 0.999] {
            assert_eq!(one.quantile(quantile), all.quantile(quantile));
        }
    }

    #[test]
    fn values_above_the_bound_are_clamped_not_lost() {
        let mut times = Times::new(Duration::from_millis(1));
        times.record(Duration::from_hours(1));
        assert_eq!(times.count(), 1);
        assert_eq!(
            times.extremes(),
            Some((3_600_000_000_000, 3_600_000_000_000))
        );
    }
}
