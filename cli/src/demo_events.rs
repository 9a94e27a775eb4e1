//! `GET /events` of the demo: a clock as server-sent events.
//!
//! Guarantee: a client that reconnects with the id of the last tick it has
//! seen goes on with the next one, and a series that is over answers 204,
//! which tells a browser to stop asking (WHATWG HTML §9.2.3).

use std::ops::RangeInclusive;
use std::time::Duration;

use justapi_core::{
    Event, EventSender, IntoResponse as _, Problem, Request, Response, Sse, StatusCode,
};

/// Ticks of a series, from the query; more than three years of a tick a second.
const COUNTS: RangeInclusive<u64> = 1..=100_000_000;
/// Milliseconds between two ticks, from the query.
const INTERVALS_MS: RangeInclusive<u64> = 1..=60_000;

/// Ticks from 1, or behind `Last-Event-ID`, up to `count`.
pub(crate) fn events(request: &Request) -> Response {
    let (count, interval) = match parameters(request.query().unwrap_or_default()) {
        Ok(parameters) => parameters,
        Err(problem) => return problem.into_response(),
    };
    let seen = request.last_event_id().and_then(|id| id.parse().ok());
    let first = seen.map_or(1, |seen: u64| seen.saturating_add(1));
    if first > count {
        return Response::new(StatusCode::NO_CONTENT);
    }
    Sse::produce(move |events| tick(events, first..=count, interval)).into_response()
}

async fn tick(events: EventSender, numbers: RangeInclusive<u64>, interval: Duration) {
    for number in numbers {
        tokio::time::sleep(interval).await;
        let event = Event::new()
            .with_id(number.to_string())
            .expect("digits are an id")
            .with_data(format!("{{\"tick\":{number}}}"));
        if events.send(event).await.is_err() {
            return;
        }
    }
}

/// `count` and `interval_ms` of a query; endless and a second without them.
fn parameters(query: &str) -> Result<(u64, Duration), Problem> {
    let mut count = *COUNTS.end();
    let mut interval_ms = 1000;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (target, range, detail) = match name {
            "count" => (&mut count, COUNTS, "count is a number from 1 to 100000000"),
            "interval_ms" => (
                &mut interval_ms,
                INTERVALS_MS,
                "interval_ms is a number from 1 to 60000",
            ),
            _ => continue,
        };
        *target = value
            .parse()
            .ok()
            .filter(|number| range.contains(number))
            .ok_or_else(|| Problem::new(StatusCode::BAD_REQUEST).with_detail(detail))?;
    }
    Ok((count, Duration::from_millis(interval_ms)))
}
