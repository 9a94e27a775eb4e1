//! Rules that a run must keep, such as `p99>20ms`: read from text, judged from a report.
//!
//! It guarantees that what was not measured neither keeps nor breaks a rule: it is undecided.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use super::outcome::Outcome;
use super::report::LoadReport;
use super::summary::LatencySummary;

/// Units of times, in nanoseconds; the longer of two that end alike comes first.
const TIME_UNITS: [(&str, f64); 6] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 60e9),
];

/// A condition under which a run has failed.
#[derive(Debug, Clone, PartialEq)]
pub struct Threshold {
    text: String,
    metric: Metric,
    comparison: Comparison,
    limit: f64,
    /// The limit is a share of the attempts.
    is_share: bool,
}

/// What came of a rule.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judgement {
    /// The rule as it was written.
    pub rule: String,
    /// What was found.
    pub found: Option<f64>,
    /// What it is counted in: `ns`, `%`, or nothing for counts and rates.
    pub unit: &'static str,
    /// Whether the run failed by it.
    pub verdict: Verdict,
}

/// Whether a run failed by a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The condition does not hold.
    Kept,
    /// The condition holds.
    Broken,
    /// What it is about was not measured, or from too few samples.
    Undecided,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Metric {
    /// A number of a distribution of times.
    Time(Distribution, Statistic),
    Rate,
    Attempts,
    /// Attempts that ended in another way than `ok` or by the stop.
    Errors,
    Outcome(Outcome),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Distribution {
    /// From the intended instant in an open loop, else from the send.
    Latency,
    Sent,
    Connect,
    Lateness,
    /// From the send to the begin of the answer.
    FirstByte,
    /// With what a closed loop leaves out.
    Corrected,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Statistic {
    Min,
    Mean,
    P50,
    P90,
    P95,
    P99,
    P99Point9,
    Max,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Above,
    AtLeast,
    Below,
    AtMost,
}

/// Why a text is not a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidThreshold(&'static str);

impl Threshold {
    /// Judges a run.
    pub fn judge(&self, report: &LoadReport) -> Judgement {
        let found = self.metric.of(report).map(|value| {
            if self.is_share {
                // Where nothing was attempted nothing is known.
                value / report.attempts as f64 * 100.0
            } else {
                value
            }
        });
        let found = found.filter(|value| value.is_finite());
        let holds = |found| match self.comparison {
            Comparison::Above => found > self.limit,
            Comparison::AtLeast => found >= self.limit,
            Comparison::Below => found < self.limit,
            Comparison::AtMost => found <= self.limit,
        };
        let verdict = match found {
            None => Verdict::Undecided,
            Some(found) if holds(found) => Verdict::Broken,
            Some(_) => Verdict::Kept,
        };
        Judgement {
            rule: self.text.clone(),
            found,
            unit: match self.metric {
                Metric::Time(..) => "ns",
                _ if self.is_share => "%",
                _ => "",
            },
            verdict,
        }
    }
}

impl FromStr for Threshold {
    type Err = InvalidThreshold;

    fn from_str(text: &str) -> Result<Self, InvalidThreshold> {
        let invalid = InvalidThreshold;
        let at = text.find(['<', '>']).ok_or(invalid(
            "expected a metric, < or >, and a limit, such as p99>20ms",
        ))?;
        let (name, rest) = text.split_at(at);
        let (comparison, limit) = match rest.split_at(1) {
            (">", rest) => match rest.strip_prefix('=') {
                Some(limit) => (Comparison::AtLeast, limit),
                None => (Comparison::Above, rest),
            },
            (_, rest) => match rest.strip_prefix('=') {
                Some(limit) => (Comparison::AtMost, limit),
                None => (Comparison::Below, rest),
            },
        };
        let metric = Metric::named(name.trim())
            .ok_or(invalid("no such metric; see docs/benchmarking.md"))?;
        let limit = limit.trim();
        let (limit, is_share) = match (metric, limit.strip_suffix('%')) {
            (Metric::Time(..), _) => {
                let time = time(limit).ok_or(invalid("expected a time such as 20ms"))?;
                (time, false)
            }
            (Metric::Rate | Metric::Attempts, Some(_)) => {
                return Err(invalid("only counts of outcomes can be in percent"));
            }
            (_, Some(share)) => {
                let share = number(share).ok_or(invalid("expected a number before %"))?;
                (share, true)
            }
            (_, None) => {
                let number = number(limit).ok_or(invalid("expected a number"))?;
                (number, false)
            }
        };
        Ok(Self {
            text: text.to_owned(),
            metric,
            comparison,
            limit,
            is_share,
        })
    }
}

impl Metric {
    fn named(name: &str) -> Option<Self> {
        let (distribution, statistic) = match name.split_once('.') {
            Some(("latency", rest)) => (Distribution::Latency, rest),
            Some(("sent", rest)) => (Distribution::Sent, rest),
            Some(("connect", rest)) => (Distribution::Connect, rest),
            Some(("lateness", rest)) => (Distribution::Lateness, rest),
            Some(("first_byte", rest)) => (Distribution::FirstByte, rest),
            Some(("corrected", rest)) => (Distribution::Corrected, rest),
            _ => (Distribution::Latency, name),
        };
        let statistic = match statistic {
            "min" => Statistic::Min,
            "mean" => Statistic::Mean,
            "p50" | "median" => Statistic::P50,
            "p90" => Statistic::P90,
            "p95" => Statistic::P95,
            "p99" => Statistic::P99,
            "p99.9" => Statistic::P99Point9,
            "max" => Statistic::Max,
            "rate" => return Some(Self::Rate),
            "attempts" => return Some(Self::Attempts),
            "errors" => return Some(Self::Errors),
            name => {
                let outcome = Outcome::ALL.into_iter().find(|o| o.name() == name)?;
                return Some(Self::Outcome(outcome));
            }
        };
        Some(Self::Time(distribution, statistic))
    }

    fn of(self, report: &LoadReport) -> Option<f64> {
        match self {
            Self::Time(distribution, statistic) => {
                let summary = match distribution {
                    Distribution::Latency => Some(report.shown_latency()),
                    Distribution::Sent => Some(&report.latency),
                    Distribution::Connect => Some(&report.connect),
                    Distribution::Lateness => report.open_loop.as_ref().map(|open| &open.lateness),
                    Distribution::FirstByte => Some(&report.first_byte),
                    Distribution::Corrected => report.latency_corrected.as_ref(),
                };
                summary.and_then(|summary| statistic.of(summary))
            }
            Self::Rate => report.rate,
            Self::Attempts => Some(report.attempts as f64),
            Self::Errors => Some(report.errors() as f64),
            Self::Outcome(outcome) => Some(report.outcomes.get(outcome) as f64),
        }
    }
}

impl Statistic {
    fn of(self, summary: &LatencySummary) -> Option<f64> {
        let whole = match self {
            Self::Mean => return summary.mean_ns,
            Self::Min => summary.min_ns,
            Self::P50 => summary.p50_ns,
            Self::P90 => summary.p90_ns,
            Self::P95 => summary.p95_ns,
            Self::P99 => summary.p99_ns,
            Self::P99Point9 => summary.p99_9_ns,
            Self::Max => summary.max_ns,
        };
        whole.map(|value| value as f64)
    }
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: ", self.rule, self.verdict)?;
        match self.found {
            None => f.write_str("not measured"),
            Some(found) if self.unit == "ns" => {
                write!(f, "found {}", super::render::time(Some(found as u64)))
            }
            Some(found) if self.unit == "%" => write!(f, "found {found:.2} %"),
            Some(found) => write!(f, "found {found}"),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kept => "kept",
            Self::Broken => "broken",
            Self::Undecided => "undecided",
        })
    }
}

impl Serialize for Threshold {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

fn number(text: &str) -> Option<f64> {
    let text = text.trim();
    let is_plain = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    text.parse().ok().filter(|_| is_plain)
}

fn time(text: &str) -> Option<f64> {
    TIME_UNITS.iter().find_map(|(unit, nanoseconds)| {
        number(text.strip_suffix(unit)?).map(|value| value * nanoseconds)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::super::tests::{Server, check};
    use super::super::{LoadPlan, Stop, run};
    use super::*;

    fn rule(text: &str) -> Threshold {
        text.parse()
            .unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn limits_are_read_in_their_units() {
        for (text, limit) in [
            ("p99>20ms", 20e6),
            ("p99.9 >= 1.5s", 1.5e9),
            ("max>100us", 100e3),
            ("connect.p50<3µs", 3e3),
            ("lateness.mean>7ns", 7.0),
            ("first_byte.p90>8us", 8e3),
            ("mean>1m", 60e9),
            ("rate<1000", 1000.0),
            ("errors>1%", 1.0),
            ("request_timeout>0", 0.0),
        ] {
            assert!((rule(text).limit - limit).abs() < 1e-9, "{text}");
        }
        for bad in [
            "",
            "p99",
            "p99>",
            "p99>20",
            "p98>20ms",
            "rate<5%",
            "rate>1e3",
            "p99=20ms",
            "errors>-1",
            ">1",
            "p99>nan",
            "p99>infs",
        ] {
            assert!(bad.parse::<Threshold>().is_err(), "{bad}");
        }
    }

    #[test]
    fn what_was_not_measured_is_undecided() {
        let server = Server::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        let report = check(&server.plan(), &[(Outcome::Ok, 10)]);
        for (text, expected) in [
            ("p50>1h", None),
            ("p50>60s", Some(Verdict::Kept)),
            ("p50>0ns", Some(Verdict::Broken)),
            ("first_byte.max>60s", Some(Verdict::Kept)),
            // Ten samples are too few.
            ("p99>60s", Some(Verdict::Undecided)),
            // A closed loop has no intended instant.
            ("lateness.max>60s", Some(Verdict::Undecided)),
            ("ok<10", Some(Verdict::Kept)),
            ("ok<=10", Some(Verdict::Broken)),
            ("ok<100%", Some(Verdict::Kept)),
            ("attempts>=10", Some(Verdict::Broken)),
            ("errors>0", Some(Verdict::Kept)),
            ("rate<0", Some(Verdict::Kept)),
        ] {
            let found = text
                .parse::<Threshold>()
                .ok()
                .map(|rule| rule.judge(&report).verdict);
            assert_eq!(found, expected, "{text}");
        }
        let server = Server::answering("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n");
        let plan = LoadPlan {
            stop: Stop::Requests(4),
            ..server.plan()
        };
        let report = run(&plan, &AtomicBool::new(false)).unwrap();
        assert_eq!(rule("p50>0ns").judge(&report).verdict, Verdict::Undecided);
        assert_eq!(rule("errors>99%").judge(&report).found, Some(100.0));
        for (text, expected) in [
            ("errors>99%", "errors>99% broken: found 100.00 %"),
            ("p50>1s", "p50>1s undecided: not measured"),
            ("attempts>4", "attempts>4 kept: found 4"),
        ] {
            assert_eq!(rule(text).judge(&report).to_string(), expected);
        }
        assert_eq!(rule("http_5xx>3").judge(&report).verdict, Verdict::Broken);
    }
}
