//! One URL under load, described by flags; or an application that is started for it.
//!
//! Guarantee: the exit status says how far the numbers can be used. In order: interrupted, the
//! application was lost, nothing succeeded, a check of answers or the offered rate failed, the raw file could not be
//! written, a threshold was broken, a threshold could not be decided.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use justapi_bench::{
    Error, Judgement, LoadPlan, LoadReport, Outcome, Progress, Stop, Verdict, calibrate,
    run_watched,
};
use serde_json::{Value, json};

use super::load_plan::plan;
use super::{INTERRUPTED, failure, stop_flag};
use crate::args::Bench;
use crate::commands::application::{Measured, Started};
use crate::error::{CliError, Code};
use crate::load_args::Output;
use crate::ui::{Ui, document};

pub(super) fn run(ui: &Ui, arguments: &Bench, config: Option<&Path>) -> Result<u8, CliError> {
    let stop: &AtomicBool = &*stop_flag()?;
    let Some(mut subject) = Subject::find(ui, arguments, config, stop)? else {
        return Ok(INTERRUPTED);
    };
    let plan = plan(&subject.url, subject.path.as_deref(), arguments)?;
    let report = measure(ui, &plan, arguments, stop)?;
    let flags = &arguments.load;
    let judgements: Vec<_> = flags
        .fail_if
        .iter()
        .map(|rule| rule.judge(&report))
        .collect();
    print(ui, &report, &judgements, flags.output)?;
    if report.interrupted {
        return Ok(INTERRUPTED);
    }
    if let Some(lost) = subject.lost() {
        return Err(lost);
    }
    if report.outcomes.get(Outcome::Ok) == 0 {
        return Err(nothing_succeeded(&subject.url, &report));
    }
    if let Some(error) = invalid(&report, flags.allow_underrun) {
        return Err(error);
    }
    if let Some(error) = unwritten(&report) {
        return Err(error);
    }
    judge(&judgements)
}

/// What is loaded, and the process of it where it was started for that.
struct Subject {
    url: String,
    /// Path of an application that was started.
    path: Option<String>,
    started: Option<Started>,
}

impl Subject {
    /// The URL as it is, or the application started; `None` when Ctrl-C came before it served.
    fn find(
        ui: &Ui,
        arguments: &Bench,
        config: Option<&Path>,
        stop: &AtomicBool,
    ) -> Result<Option<Self>, CliError> {
        let measured = Measured {
            target: arguments.target.as_deref(),
            serve: &arguments.serve,
        };
        if let Some(url) = measured.url()? {
            if arguments.path.is_some() {
                return Err(CliError::new(
                    Code::BenchInput,
                    "`--path` is for an application that is started, and a URL is none",
                )
                .with_hint("write the path into the URL"));
            }
            return Ok(Some(Self {
                url,
                path: None,
                started: None,
            }));
        }
        let started = Started::start(ui, measured, config, stop)?;
        let (name, at) = (&started.name, &started.url);
        if at.is_empty() {
            return Ok(None);
        }
        let pid = started.pid();
        ui.note(&format!("started    {name} at {at}, pid {pid}\n"));
        let path = arguments.path.clone();
        Ok(Some(Self {
            url: at.clone(),
            path: Some(path.unwrap_or_else(|| String::from("/"))),
            started: Some(started),
        }))
    }

    /// The error of an application that has ended.
    fn lost(&mut self) -> Option<CliError> {
        let how = self.started.as_mut().and_then(Started::ended)?;
        Some(
            CliError::new(
                Code::ServerLost,
                "the application ended while it was measured",
            )
            .with_detail("how", format!("it ended with {how}"))
            .with_hint("the report above is of the time before and after; look at what it logged"),
        )
    }
}

/// Runs the plan, and the client alone where that is asked for.
fn measure(
    ui: &Ui,
    plan: &LoadPlan,
    arguments: &Bench,
    stop: &AtomicBool,
) -> Result<LoadReport, CliError> {
    let mut report = {
        let live = ui.live(total(plan));
        let watch = |progress: &Progress| {
            if let Some(live) = &live {
                live.show(progress.elapsed, describe(progress));
            }
        };
        let watch: Option<&dyn Fn(&Progress)> = live.is_some().then_some(&watch);
        run_watched(plan, stop, watch).and_then(checked)
    }
    .map_err(|error| match error {
        Error::File { .. } => failure(Code::BenchInput, &error)
            .with_hint("`--raw FILE` takes a file in a folder that is there and writable"),
        error @ Error::LoadInvariant { .. } => failure(Code::BenchInvalid, &error)
            .with_hint("no number of this run can be used; please report it as a bug"),
        error => failure(Code::BenchFailed, &error),
    })?;
    if let (true, false, Some(like)) = (
        arguments.load.calibrate,
        report.interrupted,
        report.first_response.as_ref(),
    ) {
        let ceiling = calibrate(plan, like, server_cpu(plan), stop)
            .and_then(checked)
            .map_err(|error| failure(Code::BenchInput, &error))?;
        report.set_ceiling(&ceiling);
    }
    Ok(report)
}

fn print(
    ui: &Ui,
    report: &LoadReport,
    judgements: &[Judgement],
    output: Option<Output>,
) -> Result<(), CliError> {
    match output {
        Some(Output::Csv) => ui.data(&report.render_csv()),
        Some(Output::Json) => document(&as_document(report, judgements)?),
        None if ui.is_json() => document(&as_document(report, judgements)?),
        Some(Output::Text) | None => {
            let mut text = report.render_text();
            for judgement in judgements {
                text.push_str("threshold  ");
                text.push_str(&judgement.to_string());
                text.push('\n');
            }
            ui.data(&text)
        }
    }
}

/// A report that does not contradict itself.
fn checked(report: LoadReport) -> Result<LoadReport, justapi_bench::Error> {
    report.check_invariants().map(|()| report)
}

/// How long a run takes, where that is known.
fn total(plan: &LoadPlan) -> Option<std::time::Duration> {
    match plan.stop {
        Stop::Duration(duration) => Some(plan.warm_up + duration),
        Stop::Requests(_) => None,
    }
}

/// Where the client is pinned, the server of the calibration is not.
fn server_cpu(plan: &LoadPlan) -> Option<usize> {
    let pinned = plan.cpus.as_ref()?;
    (0..std::thread::available_parallelism().ok()?.get()).find(|cpu| !pinned.contains(cpu))
}

pub(in crate::commands) fn describe(progress: &Progress) -> String {
    if !progress.is_measuring {
        return "warm-up".to_owned();
    }
    let ok = progress.outcomes.get(Outcome::Ok);
    let errors = progress.outcomes.total() - ok;
    let time = |time: Option<std::time::Duration>| {
        time.map_or_else(|| "n/a".to_owned(), |time| format!("{time:.1?}"))
    };
    format!(
        "{:.0} ok/s  p50 {}  p99 {}  errors {errors}",
        progress.rate.unwrap_or(0.0),
        time(progress.p50),
        time(progress.p99),
    )
}

/// The report with the version of its form and what came of the thresholds.
fn as_document(report: &LoadReport, judgements: &[Judgement]) -> Result<Value, CliError> {
    let failed = |error: serde_json::Error| {
        CliError::new(Code::BenchFailed, "cannot write the report as JSON")
            .with_detail("cause", error.to_string())
    };
    let mut value = serde_json::to_value(report).map_err(failed)?;
    if let Value::Object(fields) = &mut value {
        fields.insert("v".to_owned(), json!(1));
        let judgements = serde_json::to_value(judgements).map_err(failed)?;
        fields.insert("thresholds".to_owned(), judgements);
    }
    Ok(value)
}

/// Outcomes that there are, in words.
fn outcomes(report: &LoadReport) -> String {
    let outcomes: Vec<_> = report
        .outcomes
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(outcome, count)| format!("{count} {outcome}"))
        .collect();
    if outcomes.is_empty() {
        "nothing was attempted".to_owned()
    } else {
        outcomes.join(", ")
    }
}

pub(in crate::commands) fn nothing_succeeded(url: &str, report: &LoadReport) -> CliError {
    CliError::new(
        Code::BenchUnreachable,
        format!("no request to {url} succeeded"),
    )
    .with_detail("outcomes", outcomes(report))
    .with_hint("try `curl -i` on the URL; `--expect-status` accepts another status on purpose")
}

/// Why the numbers are not those of what was asked for.
pub(in crate::commands) fn invalid(report: &LoadReport, allow_underrun: bool) -> Option<CliError> {
    let mismatches =
        report.outcomes.get(Outcome::StatusMismatch) + report.outcomes.get(Outcome::BodyMismatch);
    if mismatches > 0 {
        return Some(
            CliError::new(
                Code::BenchInvalid,
                format!("{mismatches} answers were not the expected one"),
            )
            .with_detail("outcomes", outcomes(report))
            .with_hint("ask for one with `curl -i` and compare it with the expectation"),
        );
    }
    let open = report.open_loop.as_ref().filter(|open| open.saturated)?;
    if allow_underrun {
        return None;
    }
    let ratio = open.achieved_ratio.unwrap_or(0.0) * 100.0;
    Some(
        CliError::new(
            Code::BenchInvalid,
            format!("the offered rate was not reached: {ratio:.1} % was answered"),
        )
        .with_detail("outcomes", outcomes(report))
        .with_hint("offer less, open more `--connections`, or take it with `--allow-underrun`"),
    )
}

/// Why the file of raw lines is not what was asked for; lines that were dropped are in the report.
fn unwritten(report: &LoadReport) -> Option<CliError> {
    let cause = report.raw.as_ref()?.error.clone()?;
    Some(
        CliError::new(Code::BenchFailed, "the raw file could not be written")
            .with_detail("cause", cause)
            .with_hint("the report above is whole; write to a disk with room"),
    )
}

/// The exit status that thresholds make.
fn judge(judgements: &[Judgement]) -> Result<u8, CliError> {
    let with = |verdict| {
        let rules: Vec<_> = (judgements.iter())
            .filter(|judgement| judgement.verdict == verdict)
            .map(Judgement::to_string)
            .collect();
        rules.join("; ")
    };
    let broken = with(Verdict::Broken);
    if !broken.is_empty() {
        return Err(
            CliError::new(Code::BenchThreshold, "a threshold was broken")
                .with_detail("thresholds", broken)
                .with_hint("the report above has the whole distribution"),
        );
    }
    let undecided = with(Verdict::Undecided);
    if !undecided.is_empty() {
        return Err(
            CliError::new(Code::BenchUndecided, "a threshold could not be decided")
                .with_detail("thresholds", undecided)
                .with_hint("measure longer: a percentile needs its number of samples"),
        );
    }
    Ok(0)
}
