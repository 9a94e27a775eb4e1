//! The functions that `micro` cells of a matrix name, as `benches` itself
//! knows nothing of routers.

use std::hint::black_box;
use std::time::{Duration, Instant};

use justapi_bench::matrix::MicroBenchmarks;
use justapi_core::{Method, Request, Response, Router, StatusCode, inline};

/// Time of one batch: long against the clock's resolution and a timer tick.
const BATCH: Duration = Duration::from_millis(20);

/// Resources of the routing table; five routes each make a table of 200.
const NUM_RESOURCES: usize = 40;

/// Registers every function.
pub(super) fn register(functions: &mut MicroBenchmarks) {
    functions.register("router_lookup", router_lookup());
}

/// Mean time of a lookup that finds its route: half with parameters, over a
/// table like that of a large application.
fn router_lookup() -> impl FnMut() -> f64 {
    let router = table().expect("the patterns do not conflict");
    let paths: Vec<String> = (0..NUM_RESOURCES)
        .flat_map(|resource| {
            [
                format!("/api/v1/resource{resource}"),
                format!("/api/v1/resource{resource}/18446/items/7"),
            ]
        })
        .collect();
    move || {
        let start = Instant::now();
        let mut num_lookups = 0;
        while start.elapsed() < BATCH {
            for path in &paths {
                black_box(router.find(&Method::GET, black_box(path)));
            }
            num_lookups += paths.len();
        }
        start.elapsed().as_nanos() as f64 / num_lookups as f64
    }
}

fn table() -> Result<Router, justapi_core::Error> {
    let answer = || inline(|_: Request| Response::new(StatusCode::OK));
    (0..NUM_RESOURCES).try_fold(Router::new(), |router, resource| {
        let path = format!("/api/v1/resource{resource}");
        router
            .get(&path, answer())?
            .post(&path, answer())?
            .get(&format!("{path}/{{id}}"), answer())?
            .get(&format!("{path}/{{id}}/items"), answer())?
            .get(&format!("{path}/{{id}}/items/{{item}}"), answer())
    })
}

#[cfg(test)]
mod tests {
    use justapi_core::Lookup;

    use super::*;

    #[test]
    fn measured_paths_are_found() {
        let router = table().unwrap();
        for path in ["/api/v1/resource0", "/api/v1/resource39/18446/items/7"] {
            assert!(matches!(
                router.find(&Method::GET, path),
                Lookup::Found { .. }
            ));
        }
        assert!(router_lookup()() > 0.0);
    }
}
