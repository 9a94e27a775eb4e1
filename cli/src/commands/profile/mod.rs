//! `justapi profile`: each route of a server under load, seen by the client, by the server's own
//! counters and by the kernel.
//!
//! Guarantee: an error page is never profiled unless it was asked for; what was started ends with
//! the command; Ctrl-C prints what was measured, and a second one ends the process. The exit status
//! says how far the numbers can be used. In order: interrupted, the server was lost, nothing
//! succeeded, wrong answers or a rate that was not reached.

mod plan;
mod serving;

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use justapi_bench::machine::Machine;
use justapi_bench::profile::{
    Application, ProfileReport, RouteProfile, Scraper, Subject, measure, page,
};
use justapi_bench::{Error, Outcome, Progress, ResponseDigest, probe_until};

use self::plan::{Metrics, Plan, Route};
use super::application::{Measured, Started};
use super::bench::{INTERRUPTED, failure, load, stop_flag};
use crate::error::{CliError, Code};
use crate::profile_args::Profile;
use crate::ui::{Ui, document, faint, heading, link};

pub(crate) fn profile(ui: &Ui, arguments: &Profile, config: Option<&Path>) -> Result<u8, CliError> {
    check_page(arguments)?;
    let measured = Measured {
        target: arguments.target.as_deref(),
        serve: &arguments.serve,
    };
    let url = measured.url()?;
    let stop: &AtomicBool = &*stop_flag()?;
    let mut started = match url {
        Some(_) => None,
        None => Some(Started::start(ui, measured, config, stop)?),
    };
    let url = url
        .or_else(|| started.as_ref().map(|started| started.url.clone()))
        .unwrap_or_default();
    if started.is_some() && url.is_empty() {
        // Ctrl-C came before it served.
        return Ok(INTERRUPTED);
    }
    let plan = Plan::new(&url, arguments, started.as_ref())?;
    let application = started.as_ref().map(|started| Application {
        name: started.name.clone(),
        pid: started.pid(),
    });
    let report = ProfileReport::new(url, application, plan.request.clone(), Machine::read());
    say_target(ui, &report)?;
    let mut run = Run {
        ui,
        stop,
        plan: &plan,
        report,
    };
    let error = run.routes(arguments, started.as_mut())?;
    run.finish(arguments)?;
    if run.report.interrupted {
        return Ok(INTERRUPTED);
    }
    error.map_or(Ok(0), Err)
}

/// A profile in the making.
struct Run<'a> {
    ui: &'a Ui,
    stop: &'a AtomicBool,
    plan: &'a Plan,
    report: ProfileReport,
}

impl Run<'_> {
    /// Asks for every route once, then measures them; what is wrong with the numbers is returned.
    fn routes(
        &mut self,
        arguments: &Profile,
        mut started: Option<&mut Started>,
    ) -> Result<Option<CliError>, CliError> {
        let Some(probes) = self.probe_all(arguments)? else {
            self.give_up(0);
            return Ok(None);
        };
        let mut subject = self.subject(started.as_deref());
        let mut fault = None;
        for (index, (route, probe)) in self.plan.routes.iter().zip(probes).enumerate() {
            let Some(mut profile) = self.measure(route, probe, &mut subject)? else {
                self.give_up(index);
                return Ok(None);
            };
            self.report.interrupted = profile.load.interrupted;
            let lost = if self.report.interrupted {
                None
            } else {
                self.lost(route, &probe, &mut profile, started.as_deref_mut())
            };
            if !self.ui.is_json() {
                self.ui.data(&format!("\n{}", profile.render_text()))?;
            }
            fault = fault.or_else(|| wrong(route, &profile, arguments));
            self.report.routes.push(profile);
            if self.report.interrupted || lost.is_some() {
                self.give_up(index + 1);
            }
            if let Some(lost) = lost {
                self.report.server_lost = Some(lost.clone());
                return Ok(Some(server_lost(route, lost)));
            }
            if self.report.interrupted {
                return Ok(None);
            }
        }
        Ok(fault)
    }

    /// Marks the routes from `index` on as not measured.
    fn give_up(&mut self, index: usize) {
        self.report.interrupted |= self.stop.load(Ordering::Relaxed);
        let rest = self.plan.routes.iter().skip(index);
        self.report.not_measured = rest.map(|route| route.path.clone()).collect();
    }

    /// The first answer of each route; `None` when Ctrl-C came first.
    fn probe_all(&self, arguments: &Profile) -> Result<Option<Vec<ResponseDigest>>, CliError> {
        let mut probes = Vec::new();
        for route in &self.plan.routes {
            let probe = match probe_until(&route.load, self.stop) {
                Ok(probe) => probe,
                Err(Error::Interrupted) => return Ok(None),
                Err(Error::Probe { outcome }) => {
                    return Err(unreachable_target(&self.report.url, route, outcome));
                }
                Err(error) => return Err(failure(Code::BenchFailed, &error)),
            };
            if !self.ui.is_json() {
                let line = format!("probe      {}  {}\n", route.path, probe.describe());
                self.ui.data(&line)?;
            }
            if let Some(error) = refused(route, &probe, arguments) {
                return Err(error);
            }
            probes.push(probe);
        }
        Ok(Some(probes))
    }

    fn subject(&self, started: Option<&Started>) -> Subject {
        let metrics = match &self.plan.metrics {
            Metrics::Off => Err("switched off by `--metrics off`".to_owned()),
            Metrics::At(target, path) => Scraper::new(target.clone(), path.clone())
                .map_err(|error| format!("cannot look at {path}: {error}")),
        };
        let process = match started {
            Some(started) => Ok(started.pid()),
            None => serving::process(&self.plan.target),
        };
        Subject { metrics, process }
    }

    /// One route; `None` when Ctrl-C came before its measured part.
    fn measure(
        &self,
        route: &Route,
        probe: ResponseDigest,
        subject: &mut Subject,
    ) -> Result<Option<RouteProfile>, CliError> {
        let measured = {
            let live = self.ui.live(Some(self.plan.duration));
            let watch = |progress: &Progress| {
                if let Some(live) = &live {
                    let elapsed = if progress.is_measuring {
                        progress.elapsed
                    } else {
                        Duration::ZERO
                    };
                    let state = load::describe(progress);
                    live.show(elapsed, format!("{}  {state}", route.path));
                }
            };
            measure(&route.load, self.plan.warm_up, subject, self.stop, &watch)
        };
        match measured {
            Ok(measured) => Ok(Some(RouteProfile::new(route.path.clone(), probe, measured))),
            Err(Error::Interrupted) => Ok(None),
            Err(error) => Err(failure(Code::BenchFailed, &error)),
        }
    }

    /// How the server was lost while it was measured, if it was.
    fn lost(
        &self,
        route: &Route,
        before: &ResponseDigest,
        profile: &mut RouteProfile,
        started: Option<&mut Started>,
    ) -> Option<String> {
        if let Some(how) = started.and_then(Started::ended) {
            return Some(format!("it ended with {how}"));
        }
        match probe_until(&route.load, self.stop) {
            Ok(after) if after.status != before.status => {
                profile.notes.push(format!(
                    "asked once after the load it answered with {}",
                    after.describe()
                ));
                None
            }
            Err(Error::Probe { outcome }) => Some(format!(
                "asked once after the load it answered with {outcome}"
            )),
            _ => None,
        }
    }

    /// Prints and writes the whole report.
    fn finish(&self, arguments: &Profile) -> Result<(), CliError> {
        let report = &self.report;
        if self.ui.is_json() {
            let value = serde_json::to_value(report).map_err(|error| {
                CliError::new(Code::BenchFailed, "cannot write the report as JSON")
                    .with_detail("cause", error.to_string())
            })?;
            document(&value)?;
        } else {
            let mut text = String::new();
            if !report.not_measured.is_empty() {
                let paths = report.not_measured.join(", ");
                text = format!("\nnot measured: {paths}\n");
            }
            if report.interrupted {
                text.push_str("interrupted\n");
            }
            self.ui.data(&text)?;
        }
        let Some(file) = &arguments.html else {
            return Ok(());
        };
        fs::write(file, page(report)).map_err(|error| {
            CliError::new(
                Code::OutputWrite,
                format!("cannot write {}", file.display()),
            )
            .with_cause(&error)
        })?;
        let shown = file.display().to_string();
        self.ui.note(&format!("page       {}\n", link(&shown)));
        Ok(())
    }
}

/// Says what is measured, before anything is sent.
fn say_target(ui: &Ui, report: &ProfileReport) -> Result<(), CliError> {
    if ui.is_json() {
        return Ok(());
    }
    let started = report.application.as_ref().map_or_else(String::new, |one| {
        faint(&format!("   {} started for it, pid {}", one.name, one.pid))
    });
    ui.data(&format!(
        "{}  profile   {}{started}\n",
        heading(&format!("justapi {}", env!("CARGO_PKG_VERSION"))),
        link(&report.url)
    ))
}

/// Whether the page can be written, before anything is measured for it.
fn check_page(arguments: &Profile) -> Result<(), CliError> {
    let Some(file) = &arguments.html else {
        return Ok(());
    };
    let folder = match file.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => file,
    };
    if file.is_dir() || !folder.is_dir() {
        return Err(CliError::new(
            Code::BenchInput,
            format!("cannot write a page to {}", file.display()),
        )
        .with_hint("`--html FILE` names a file in a folder that exists"));
    }
    Ok(())
}

/// The error of a first answer that is not the page that was meant.
fn refused(route: &Route, probe: &ResponseDigest, arguments: &Profile) -> Option<CliError> {
    let (is_right, wanted) = match arguments.expect_status {
        Some(status) => (probe.status == status, format!("{status}")),
        None => ((200..300).contains(&probe.status), "2xx".to_owned()),
    };
    if is_right {
        return None;
    }
    let error = CliError::new(
        Code::ProbeRefused,
        format!(
            "{} answers with status {}, expected {wanted}",
            route.path, probe.status
        ),
    )
    .with_detail("answer", probe.describe());
    Some(match probe.status {
        _ if arguments.expect_status.is_some() => error.with_hint("leave `--expect-status` away, or correct it"),
        404 => error.with_hint("name a path that exists with `--path`, or profile the error page with `--expect-status 404`"),
        405 => error.with_hint("choose the `--method`, or profile the error page with `--expect-status 405`"),
        status => error.with_hint(format!("look at it with `curl -i`, or profile this answer with `--expect-status {status}`")),
    })
}

/// The error of a server that does not answer at all.
fn unreachable_target(url: &str, route: &Route, outcome: Outcome) -> CliError {
    let error = CliError::new(
        Code::BenchUnreachable,
        format!("no answer to {} from {url}: {outcome}", route.path),
    );
    match outcome {
        Outcome::ConnectRefused => error.with_hint(
            "nobody listens there: start the server, or name an application such as `main.py`",
        ),
        Outcome::TlsError => error.with_hint(
            "`--cacert FILE` trusts an authority, `-k` any certificate; is it an https server?",
        ),
        Outcome::RequestTimeout => error.with_hint("`--timeout` gives it longer"),
        _ => error.with_hint("try `curl -i` on the URL"),
    }
}

fn server_lost(route: &Route, how: String) -> CliError {
    CliError::new(
        Code::ServerLost,
        format!("the server was lost while {} was measured", route.path),
    )
    .with_detail("how", how)
    .with_hint("the report above is of the time before and after; look at what the server logged")
}

/// What makes the numbers of a route unusable.
fn wrong(route: &Route, profile: &RouteProfile, arguments: &Profile) -> Option<CliError> {
    let load = &profile.load;
    if load.interrupted {
        return None;
    }
    if load.outcomes.get(Outcome::Ok) == 0 {
        return Some(load::nothing_succeeded(&route.path, load));
    }
    load::invalid(load, arguments.allow_underrun)
}
