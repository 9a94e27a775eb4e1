//! What one thread counts, and how the counts of threads are added.
//!
//! Memory is constant in the number of requests: counters and histograms only.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};

use super::outcome::{Outcome, OutcomeCounts};
use super::plan::{LoadPlan, Stop};
use super::raw::Recorder;
use super::report::{ResponseDigest, ThreadReport};

/// Largest recorded value over the timeout; larger values are clamped to it.
///
/// A late wake-up can add to a time that was within its limit.
const UPPER_BOUND_TIMEOUTS: u32 = 4;

/// How much later than intended a request is called late.
const LATE: Duration = Duration::from_millis(1);

/// Largest time from the intended instant where the plan does not say how long it takes.
const MAX_RUN: Duration = Duration::from_hours(1);

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

    /// Records a time, and what requests that were due meanwhile would have had to wait.
    ///
    /// As HdrHistogram's `recordValueWithExpectedInterval`: the time less one interval, less two,
    /// and so on, as long as an interval is left.
    fn record_corrected(&mut self, time: Duration, expected_interval: Duration) {
        self.record(time);
        let mut missing = time.saturating_sub(expected_interval);
        while missing >= expected_interval {
            self.record(missing);
            missing -= expected_interval;
        }
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

    pub(super) fn merge(&mut self, other: &Self) {
        self.histogram
            .add(&other.histogram)
            .expect("all threads have the same bounds");
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.sum_ns += other.sum_ns;
    }
}

/// Counts of one thread, then of all.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) attempts: u64,
    pub(super) outcomes: OutcomeCounts,
    pub(super) status_counts: Vec<u64>,
    pub(super) bytes_read: u64,
    pub(super) resent: u64,
    /// Whole responses whose body was in the sample that is compared.
    pub(super) bodies_compared: u64,
    pub(super) connections_opened: u64,
    /// Time of all connections in the measured part, as far as somebody knows what it went into:
    /// requests, whatever became of them, and what lies between two.
    pub(super) connection_time: Duration,
    pub(super) latency_ok: Times,
    pub(super) latency_error: Times,
    /// To the first byte of the answer, of outcomes `ok`.
    pub(super) first_byte: Times,
    pub(super) connect: Times,
    /// Those of `latency_ok` with what a closed loop leaves out, and the interval it is made with.
    pub(super) corrected: Option<(Times, Duration)>,
    /// What only an open loop has.
    pub(super) open: Option<OpenTimes>,
    pub(super) oldest_aborted: Option<Duration>,
    pub(super) first_attempt: Option<Instant>,
    pub(super) first_send: Option<Instant>,
    pub(super) end: Option<Instant>,
    pub(super) interrupted: bool,
    pub(super) first_response: Option<ResponseDigest>,
    /// Where each attempt gets a line, and the lines that were dropped.
    pub(super) raw: Option<Recorder>,
    pub(super) raw_dropped: u64,
}

/// Times from the instant at which a request should have been sent.
#[derive(Debug, Clone)]
pub(super) struct OpenTimes {
    /// To the end of the response, of outcomes `ok`.
    pub(super) latency_ok: Times,
    /// To the send.
    pub(super) lateness: Times,
    pub(super) late_sends: u64,
    pub(super) max_waiting: u64,
}

/// How a measured attempt ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) outcome: Outcome,
    pub(super) at: Instant,
    /// When sending began, if it did.
    pub(super) sent: Option<Instant>,
    /// When sending should have begun, in an open loop.
    pub(super) intended: Option<Instant>,
    /// When the answer began to come, as far as somebody looked.
    pub(super) first_byte: Option<Instant>,
    pub(super) bytes_received: u64,
    /// Status of the response, if it is whole.
    pub(super) status: u16,
    /// Whether its body was in the sample that is compared.
    pub(super) sampled: bool,
    /// What the response was, if that is known.
    pub(super) response: Option<ResponseDigest>,
}

impl Tally {
    pub(super) fn new(plan: &LoadPlan) -> Self {
        let open = plan.is_open_loop().then(|| {
            let longest = match plan.stop {
                Stop::Duration(duration) => duration + plan.request_timeout + plan.connect_timeout,
                Stop::Requests(_) => MAX_RUN,
            };
            OpenTimes {
                latency_ok: Times::new(longest),
                lateness: Times::new(longest),
                late_sends: 0,
                max_waiting: 0,
            }
        });
        Self {
            attempts: 0,
            outcomes: OutcomeCounts::default(),
            status_counts: vec![0; NUM_STATUS],
            bytes_read: 0,
            resent: 0,
            bodies_compared: 0,
            connections_opened: 0,
            connection_time: Duration::ZERO,
            latency_ok: Times::new(plan.request_timeout),
            latency_error: Times::new(plan.request_timeout),
            first_byte: Times::new(plan.request_timeout),
            connect: Times::new(plan.connect_timeout),
            corrected: (plan.expected_interval)
                .map(|interval| (Times::new(plan.request_timeout), interval)),
            open,
            oldest_aborted: None,
            first_attempt: None,
            first_send: None,
            end: None,
            interrupted: false,
            first_response: None,
            raw: None,
            raw_dropped: 0,
        }
    }

    /// Sets the clock of the lines.
    pub(super) const fn begin_raw(&mut self, start: Instant) {
        if let Some(raw) = &mut self.raw {
            raw.begin(start);
        }
    }

    /// Hands over the last lines.
    pub(super) fn end_raw(&mut self) {
        if let Some(raw) = self.raw.take() {
            self.raw_dropped += raw.finish();
        }
    }

    /// A connection is there that was begun at `began`.
    pub(super) fn connected(&mut self, began: Instant) {
        self.connections_opened += 1;
        self.connect.record(began.elapsed());
    }

    /// A measured request is being sent for the first time.
    pub(super) fn sent(&mut self, at: Instant, intended: Option<Instant>) {
        self.first_send.get_or_insert(at);
        if let (Some(open), Some(intended)) = (&mut self.open, intended) {
            let lateness = at.saturating_duration_since(intended);
            open.lateness.record(lateness);
            open.late_sends += u64::from(lateness > LATE);
        }
    }

    /// Counts the end of a measured attempt.
    pub(super) fn settle(&mut self, ended: &Ended) {
        if let Some(raw) = &mut self.raw {
            raw.record(ended);
        }
        let outcome = ended.outcome;
        let latency = ended.sent.map(|sent| ended.at - sent);
        self.outcomes.count(outcome);
        self.connection_time += latency.unwrap_or_default();
        self.bytes_read += ended.bytes_received;
        self.end = self.end.max(Some(ended.at));
        if outcome == Outcome::AbortedAtDeadline {
            self.oldest_aborted = self.oldest_aborted.max(latency);
        }
        let (Some(latency), true) = (latency, outcome.is_response()) else {
            return;
        };
        if outcome == Outcome::Ok {
            self.latency_ok.record(latency);
            if let (Some(first_byte), Some(sent)) = (ended.first_byte, ended.sent) {
                self.first_byte
                    .record(first_byte.saturating_duration_since(sent));
            }
            if let Some((corrected, interval)) = &mut self.corrected {
                corrected.record_corrected(latency, *interval);
            }
            if let (Some(open), Some(intended)) = (&mut self.open, ended.intended) {
                open.latency_ok.record(ended.at - intended);
            }
        } else {
            self.latency_error.record(latency);
        }
        self.bodies_compared += u64::from(ended.sampled);
        if let Some(count) = self.status_counts.get_mut(usize::from(ended.status)) {
            *count += 1;
        }
        if self.first_response.is_none() {
            self.first_response = ended.response;
        }
    }

    /// Counts attempts that were due and never began.
    pub(super) fn not_sent(&mut self, count: u64) {
        self.outcomes.add(Outcome::NotSent, count);
    }

    /// The latency to show to people: from the intended instant, where there is one.
    pub(super) fn shown_latency(&self) -> &Times {
        let latency = self.open.as_ref().map(|open| &open.latency_ok);
        latency.unwrap_or(&self.latency_ok)
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
        self.bodies_compared += other.bodies_compared;
        self.connections_opened += other.connections_opened;
        self.connection_time += other.connection_time;
        self.latency_ok.merge(&other.latency_ok);
        self.latency_error.merge(&other.latency_error);
        self.first_byte.merge(&other.first_byte);
        self.connect.merge(&other.connect);
        if let (Some((corrected, _)), Some((other, _))) = (&mut self.corrected, &other.corrected) {
            corrected.merge(other);
        }
        if let (Some(open), Some(other)) = (&mut self.open, other.open) {
            open.latency_ok.merge(&other.latency_ok);
            open.lateness.merge(&other.lateness);
            open.late_sends += other.late_sends;
            open.max_waiting += other.max_waiting;
        }
        self.oldest_aborted = self.oldest_aborted.max(other.oldest_aborted);
        self.first_attempt = earlier(self.first_attempt, other.first_attempt);
        self.first_send = earlier(self.first_send, other.first_send);
        self.end = self.end.max(other.end);
        self.interrupted |= other.interrupted;
        self.raw_dropped += other.raw_dropped;
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

    /// As [`Usage::end`] where nobody knows how long the thread waited: it was busy while it ran.
    pub(super) fn end_of_tasks(mut self) -> ThreadReport {
        let cpu = thread_cpu_time().saturating_sub(self.cpu_began);
        self.idle = self.began.elapsed().saturating_sub(cpu);
        self.end()
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

    /// Threads end at different times: the rate is over the time from the first send to the last end.
    #[test]
    fn the_window_of_threads_is_their_union() {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
        let (target, _) = crate::load::parse_target(&format!("http://{address}/"), None).unwrap();
        let plan = LoadPlan {
            connections: 8,
            ..LoadPlan::new(target, Vec::new())
        };
        let start = Instant::now();
        let tally = |from_ms: u64, to_ms: u64, answers: u64| {
            let at = |ms: u64| start + Duration::from_millis(ms);
            let mut tally = Tally::new(&plan);
            tally.attempts = answers;
            tally.sent(at(from_ms), None);
            for _ in 0..answers {
                tally.settle(&Ended {
                    outcome: Outcome::Ok,
                    at: at(to_ms),
                    sent: Some(at(from_ms)),
                    intended: None,
                    first_byte: None,
                    bytes_received: 1,
                    status: 200,
                    sampled: false,
                    response: None,
                });
            }
            tally
        };
        let mut sum = tally(200, 700, 3);
        sum.merge(tally(0, 300, 1));
        sum.merge(tally(500, 2000, 4));
        assert_eq!(sum.window(), Some(Duration::from_secs(2)));
        let report = crate::load::LoadReport::new(&plan, &sum, Vec::new());
        assert_eq!(report.rate, Some(4.0));
        report.check_invariants().unwrap();
    }

    /// The crate's own correction, which takes whole numbers alone.
    #[test]
    fn corrected_times_are_those_of_hdr_histogram() {
        let timeout = Duration::from_secs(1);
        let values = [1_u64, 99, 100, 199, 200, 201, 450, 1000, 5000, 123_456];
        for interval in [100_u64, 250, 1000, 200_000] {
            let mut times = Times::new(timeout);
            let mut theirs = times.histogram.clone();
            for value in values.map(|value| value * 1000) {
                let interval = interval * 1000;
                times.record_corrected(Duration::from_nanos(value), Duration::from_nanos(interval));
                theirs.record_correct(value, interval).unwrap();
            }
            assert_eq!(times.histogram, theirs, "{interval}");
            assert_eq!(times.max_ns, 123_456_000);
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

    /// 10⁸ samples in every histogram of a thread, of all lengths: none of them grows, and all
    /// together are a small part of the 50 MB that a run may take.
    #[test]
    fn a_hundred_million_samples_take_the_memory_of_none() {
        let (target, _) = crate::load::parse_target("http://127.0.0.1:1/", None).unwrap();
        let plan = LoadPlan {
            pace: crate::load::Pace::Open(crate::load::OpenLoop::constant(1.0)),
            ..LoadPlan::new(target, Vec::new())
        };
        let mut tally = Tally::new(&plan);
        let histograms = |tally: &mut Tally| -> usize {
            let open = tally.open.as_mut().unwrap();
            [
                &mut tally.latency_ok,
                &mut tally.latency_error,
                &mut tally.first_byte,
                &mut tally.connect,
                &mut open.latency_ok,
                &mut open.lateness,
            ]
            .into_iter()
            .map(|times| {
                for power in 0..10 {
                    let value = 10_u64.pow(power) * 37;
                    times.histogram.saturating_record_n(value, 10_000_000);
                }
                times.histogram.distinct_values() * size_of::<u64>()
            })
            .sum()
        };
        let empty = Tally::new(&plan).latency_ok.histogram.distinct_values();
        let bytes = histograms(&mut tally);
        assert_eq!(tally.latency_ok.count(), 100_000_000);
        assert_eq!(tally.latency_ok.histogram.distinct_values(), empty);
        assert_eq!(histograms(&mut tally), bytes);
        assert!(bytes < 2 << 20, "{bytes}");
    }
}
