//! The harness against scripted servers: streams byte by byte, and whole runs over sockets.

mod faults;
mod ledger;
mod loads;
mod runs;
mod scripted;
mod streams;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde_json::json;

use self::scripted::{Asked, Scripted};
use super::{Scenario, ServingPlan, ServingReport, run};
use crate::parse_target;

/// A small plan against a server.
fn plan(server: &Scripted, scenarios: &[Scenario]) -> ServingPlan {
    let url = server.url();
    let (target, _) = parse_target(&url, None).unwrap();
    ServingPlan {
        scenarios: scenarios.to_vec(),
        repetitions: 2,
        timeout: Duration::from_secs(20),
        prefill_tokens: vec![64],
        decode_tokens: 8,
        prefix_tokens: 64,
        suffix_tokens: 16,
        levels: vec![1, 3],
        input_tokens: 48,
        output_tokens: Some(4),
        ..ServingPlan::new(target, url, String::new())
    }
}

fn measure(plan: &ServingPlan) -> ServingReport {
    run(plan, &mut |_| {}, &Arc::new(AtomicBool::new(false))).unwrap()
}

/// Whether a request is one of the scenario, by its number of tokens: others ask 32 or 8.
fn is_measured(asked: &Asked, max_tokens: u64) -> bool {
    asked.body["stream"] == json!(true) && asked.body["max_tokens"] == json!(max_tokens)
}
