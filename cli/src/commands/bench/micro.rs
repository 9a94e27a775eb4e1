//! The functions that `micro` cells of a matrix name, as `benches` itself
//! knows nothing of routers.

use std::hint::black_box;
use std::time::{Duration, Instant};

use justapi_bench::matrix::MicroBenchmarks;
use justapi_core::{Error, Method, Request, Response, Router, StatusCode, inline};

/// Time of one batch: long against the clock's resolution and a timer tick.
const BATCH: Duration = Duration::from_millis(20);

/// Lookups drawn before the clock starts.
const NUM_DRAWS: usize = 4096;

const WORDS: [&str; 20] = [
    "users", "orders", "items", "teams", "projects", "billing", "reports", "search", "events",
    "devices", "tokens", "groups", "roles", "audit", "files", "images", "jobs", "queues",
    "metrics", "alerts",
];

/// Numbers of routes for which a lookup is measured, to see how it grows.
const SIZES: [usize; 4] = [10, 100, 1_000, 10_000];

/// Registers every function.
pub(super) fn register(functions: &mut MicroBenchmarks) {
    functions.register("router_lookup", router_lookup());
    for size in SIZES {
        let name = format!("router_lookup_{size}");
        // Ten thousand routes are made when they are asked for.
        let mut measure = None;
        functions.register(&name, move || {
            measure.get_or_insert_with(|| {
                let (patterns, paths) = grown(size);
                let router = routed(&patterns).expect("the patterns do not conflict");
                mean_lookup(router, draw(&paths))
            })()
        });
    }
}

/// Mean time of a lookup over 500 routes, a fifth of them each static, with
/// one parameter, with nested parameters, with a catch-all, and without route.
fn router_lookup() -> impl FnMut() -> f64 {
    let router = table().expect("the patterns do not conflict");
    mean_lookup(router, draw(&lookups()))
}

fn mean_lookup(router: Router, paths: Vec<String>) -> impl FnMut() -> f64 {
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

/// Patterns of so many routes, a quarter of each class, and paths for all of
/// them and for none.
fn grown(size: usize) -> (Vec<String>, [Vec<String>; 5]) {
    let mut patterns = Vec::with_capacity(size);
    let [mut fixed, mut one, mut nested, mut rest, mut missing] = [const { Vec::new() }; 5];
    for index in 0..size {
        let word = WORDS[index / 4 % WORDS.len()];
        let base = format!("/api/{word}{}", index / 4 / WORDS.len());
        match index % 4 {
            0 => {
                patterns.push(format!("{base}/settings/general"));
                fixed.push(format!("{base}/settings/general"));
            }
            1 => {
                patterns.push(format!("{base}/{{id:int}}"));
                one.push(format!("{base}/48213"));
            }
            2 => {
                patterns.push(format!("{base}/{{id}}/items/{{sub}}"));
                nested.push(format!("{base}/7/items/abc-def"));
            }
            _ => {
                patterns.push(format!("/static{base}/{{*path}}"));
                rest.push(format!("/static{base}/js/app.3f2a.js"));
            }
        }
        missing.push(format!("{base}/7/nope"));
    }
    (patterns, [fixed, one, nested, rest, missing])
}

fn routed(patterns: &[String]) -> Result<Router, Error> {
    let mut router = Router::new();
    for pattern in patterns {
        let answer = inline(|_: Request| Response::new(StatusCode::OK));
        router = router.route(Method::GET, pattern, answer)?;
    }
    Ok(router)
}

/// 500 routes as a large application has them.
fn table() -> Result<Router, Error> {
    let mut router = Router::new();
    let mut add = |method: Method, pattern: &str| -> Result<(), Error> {
        let answer = inline(|_: Request| Response::new(StatusCode::OK));
        router = std::mem::take(&mut router).route(method, pattern, answer)?;
        Ok(())
    };
    for (word, inner, other) in resources() {
        for version in ["v1", "v2"] {
            let base = format!("/api/{version}/{word}");
            add(Method::GET, &base)?;
            add(Method::POST, &base)?;
            add(Method::GET, &format!("{base}/{{id:int}}"))?;
            add(Method::PUT, &format!("{base}/{{id:int}}"))?;
            add(Method::DELETE, &format!("{base}/{{id:int}}"))?;
            add(Method::GET, &format!("{base}/{{id}}/{inner}"))?;
            add(Method::GET, &format!("{base}/{{id}}/{inner}/{{sub}}"))?;
            add(
                Method::GET,
                &format!("{base}/{{id}}/{other}/{{sub}}/details"),
            )?;
            add(Method::GET, &format!("{base}/recent"))?;
            add(Method::GET, &format!("{base}/settings/general"))?;
            add(Method::PATCH, &format!("{base}/settings"))?;
            add(Method::GET, &format!("/static/{version}/{word}/{{*path}}"))?;
        }
        add(Method::GET, &format!("/health/{word}"))?;
    }
    Ok(router)
}

/// Each word with the two that follow it.
fn resources() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let follower = |index: usize| WORDS[index % WORDS.len()];
    WORDS
        .iter()
        .enumerate()
        .map(move |(index, word)| (*word, follower(index + 1), follower(index + 2)))
}

/// The paths of each class.
fn lookups() -> [Vec<String>; 5] {
    let [mut fixed, mut one, mut nested, mut rest, mut missing] = [const { Vec::new() }; 5];
    for (word, inner, other) in resources() {
        for version in ["v1", "v2"] {
            let base = format!("/api/{version}/{word}");
            fixed.extend([
                base.clone(),
                format!("{base}/recent"),
                format!("{base}/settings/general"),
            ]);
            one.extend([format!("{base}/48213"), format!("{base}/7")]);
            nested.extend([
                format!("{base}/48213/{inner}"),
                format!("{base}/48213/{inner}/abc-def"),
                format!("{base}/7/{other}/x9/details"),
            ]);
            rest.extend([
                format!("/static/{version}/{word}/js/app.3f2a.js"),
                format!("/static/{version}/{word}/favicon.ico"),
            ]);
            missing.extend([
                format!("/api/v3/{word}"),
                format!("/{word}.php"),
                format!("{base}/7/nope"),
            ]);
        }
    }
    [fixed, one, nested, rest, missing]
}

/// Draws classes and paths at random, the same ones every time.
fn draw(classes: &[Vec<String>; 5]) -> Vec<String> {
    // The multiplier and increment of Knuth's MMIX; the high bits are random.
    let mut state = 1_u64;
    let mut next = |bound: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    (0..NUM_DRAWS)
        .map(|_| {
            let class = &classes[next(classes.len())];
            class[next(class.len())].clone()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use justapi_core::Lookup;

    use super::*;

    #[test]
    fn every_size_has_its_routes_and_finds_them() {
        for size in SIZES.into_iter().filter(|size| *size <= 1_000) {
            let (patterns, paths) = grown(size);
            let router = routed(&patterns).unwrap();
            assert_eq!(router.routes().count(), size);
            for (index, class) in paths.iter().enumerate() {
                assert!(!class.is_empty(), "{size}: class {index}");
                for path in class {
                    let lookup = router.find(&Method::GET, path);
                    let is_found = matches!(lookup, Lookup::Found { .. });
                    assert_eq!(is_found, index < 4, "{path}");
                }
            }
        }
    }

    #[test]
    fn the_classes_are_what_they_are_called() {
        let router = table().unwrap();
        assert_eq!(router.routes().count(), 500);
        for (index, class) in lookups().iter().enumerate() {
            for path in class {
                let lookup = router.find(&Method::GET, path);
                let is_found = matches!(lookup, Lookup::Found { .. });
                assert_eq!(is_found, index < 4, "{path}");
            }
        }
        assert!(router_lookup()() > 0.0);
    }
}
