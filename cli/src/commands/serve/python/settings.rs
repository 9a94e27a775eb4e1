//! What the workers of a Python application are told.

use std::thread;

use justapi_core::Listen;
use serde_json::{Value, json};

use super::super::plan::{Plan, conflict};
use crate::config::{Config, Origin};
use crate::error::CliError;

/// Number of worker processes: together they have a lane for each processor
/// unless told otherwise.
pub(crate) fn num_workers(config: &Config) -> usize {
    match config.value("python.workers").number() {
        Some(workers) => workers as usize,
        None => {
            let processors = thread::available_parallelism().map_or(1, std::num::NonZero::get);
            (processors / num_lanes(config)).max(1)
        }
    }
}

/// Number of lanes of each worker.
///
/// One unless told otherwise, on free-threaded interpreters too: what a
/// lifespan makes on its event loop is of no use to the loops of other lanes.
pub(crate) fn num_lanes(config: &Config) -> usize {
    let lanes = config.value("server.lanes").number();
    lanes.map_or(1, |lanes| lanes as usize)
}

/// Refuses what a Python application cannot be told.
///
/// # Errors
/// A setting that means nothing to one.
pub(crate) fn check(config: &Config) -> Result<(), CliError> {
    let is_given = |key| *config.origin(key) != Origin::Default;
    if is_given("server.docs") {
        let message =
            "`server.docs` is for the demo: the pages of a Python application are its own";
        return Err(
            conflict(config, "server.docs", message.to_owned()).with_hint(
                "say it in the application, such as `JustAPI(docs_url=None, openapi_url=None)`",
            ),
        );
    }
    Ok(())
}

/// The settings of one worker, without its descriptors.
pub(crate) fn of_worker(config: &Config, plan: &Plan, app: &str, listens: &[Listen]) -> Value {
    // An application that is not ours answers these itself unless somebody
    // wants the server to; what it is the worker knows.
    let asked = ["server.health", "metrics.path"];
    let asked = asked.map(|key| *config.origin(key) != Origin::Default);
    json!({
        "app": app,
        "app_dir": config.value("python.app_dir").text(),
        "interface": config.value("python.interface").text().unwrap_or("auto"),
        "root_path": config.value("python.root_path").text().unwrap_or_default(),
        "grace": plan.limits().grace.as_secs_f64(),
        "lanes": num_lanes(config),
        "max_requests": config.value("python.max_requests").number(),
        "stuck_timeout": config
            .value("python.stuck_timeout")
            .time()
            .filter(|time| !time.is_zero())
            .map(|time| time.as_secs_f64()),
        "thread_queue": config.value("python.thread_queue").number(),
        "server": plan.server_config(listens),
        "asks_for_health": asked[0],
        "asks_for_metrics": asked[1],
    })
}
