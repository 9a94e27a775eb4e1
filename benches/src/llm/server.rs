//! What a model server says about itself, before, during and after the measurement.
//!
//! Guarantee: what it does not offer is `None`; nothing is guessed.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::client::Client;
use crate::Error;

/// Characters kept of a text in a document of the server, such as a chat template.
const MAX_TEXT_CHARS: usize = 500;

/// Series kept of `/metrics`.
const MAX_SERIES: usize = 1000;

/// Time between two looks at the gauges of a server under load.
const GAUGE_INTERVAL: Duration = Duration::from_millis(250);

/// Gauges of requests in work, by server: vLLM, llama.cpp, SGLang.
const RUNNING: [&str; 3] = [
    "vllm:num_requests_running",
    "llamacpp:requests_processing",
    "sglang:num_running_reqs",
];

/// Gauges of requests that wait.
const WAITING: [&str; 3] = [
    "vllm:num_requests_waiting",
    "llamacpp:requests_deferred",
    "sglang:num_queue_reqs",
];

/// What a server says about itself at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ServerSnapshot {
    /// `/health`.
    pub health: Option<Value>,
    /// `/v1/models`.
    pub models: Option<Value>,
    /// `/version`, of vLLM.
    pub version: Option<Value>,
    /// `/props`, of llama.cpp.
    pub props: Option<Value>,
    /// `/v1/cache/status`.
    pub cache_status: Option<Value>,
    /// `/v1/stats`.
    pub stats: Option<Value>,
    /// `/metrics`: value by name and labels.
    pub metrics: Option<BTreeMap<String, f64>>,
}

impl ServerSnapshot {
    pub(super) async fn take(client: &Client) -> Self {
        Self {
            health: document(client, "/health").await,
            models: document(client, "/v1/models").await,
            version: document(client, "/version").await,
            props: document(client, "/props").await,
            cache_status: document(client, "/v1/cache/status").await,
            stats: document(client, "/v1/stats").await,
            metrics: metrics(client).await,
        }
    }

    /// Id of the model that is asked when the user names none.
    ///
    /// # Errors
    ///
    /// [`Error::ModelServer`] when the server names none either.
    pub(super) fn first_model(&self) -> Result<String, Error> {
        let id = self
            .models
            .as_ref()
            .and_then(|models| models.pointer("/data/0/id"))
            .and_then(Value::as_str);
        id.map(ToOwned::to_owned).ok_or_else(|| Error::ModelServer {
            path: "/v1/models".to_owned(),
            problem: "no model is listed".to_owned(),
        })
    }

    /// Tokens that one request may have, prompt and answer together.
    pub(super) fn context_tokens(&self, model: &str) -> Option<u64> {
        let entries = self
            .models
            .as_ref()
            .and_then(|models| models["data"].as_array());
        let entry = entries.and_then(|list| list.iter().find(|entry| entry["id"] == model));
        let of_model = entry.and_then(|entry| entry["max_model_len"].as_u64());
        let of_slot = self
            .props
            .as_ref()
            .and_then(|props| props.pointer("/default_generation_settings/n_ctx"))
            .and_then(Value::as_u64);
        of_model.or(of_slot)
    }

    /// Requests that the server works on at once, where it says so.
    pub(super) fn max_running(&self) -> Option<u64> {
        self.props.as_ref()?["total_slots"].as_u64()
    }
}

/// What the gauges of a server showed during one level.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Gauges {
    /// Looks at the gauges; 0 when there are none.
    pub num_looks: u64,
    /// Most requests in work.
    pub running_max: Option<f64>,
    /// Mean number of requests in work.
    pub running_mean: Option<f64>,
    /// Most requests that waited.
    pub waiting_max: Option<f64>,
}

impl Gauges {
    fn look(&mut self, metrics: &BTreeMap<String, f64>) {
        let read = |names: &[&str]| {
            let values = metrics.iter().filter_map(|(series, value)| {
                let name = series.split('{').next()?;
                names.contains(&name).then_some(*value)
            });
            values.reduce(|sum, value| sum + value)
        };
        let Some(running) = read(&RUNNING) else {
            return;
        };
        let count = self.num_looks as f64;
        self.num_looks += 1;
        self.running_max = Some(self.running_max.map_or(running, |max| max.max(running)));
        let mean = self.running_mean.unwrap_or(0.0);
        self.running_mean = Some((mean * count + running) / (count + 1.0));
        if let Some(waiting) = read(&WAITING) {
            self.waiting_max = Some(self.waiting_max.map_or(waiting, |max| max.max(waiting)));
        }
    }
}

/// Looks at the gauges of a server until it is dropped.
pub(super) struct GaugeWatch {
    gauges: Rc<std::cell::Cell<Gauges>>,
    task: tokio::task::JoinHandle<()>,
}

impl GaugeWatch {
    pub(super) fn start(client: Rc<Client>) -> Self {
        let gauges = Rc::new(std::cell::Cell::new(Gauges::default()));
        let shared = Rc::clone(&gauges);
        let task = tokio::task::spawn_local(async move {
            loop {
                let Some(found) = metrics(&client).await else {
                    return;
                };
                let mut now = shared.get();
                now.look(&found);
                if now.num_looks == 0 {
                    return;
                }
                shared.set(now);
                tokio::time::sleep(GAUGE_INTERVAL).await;
            }
        });
        Self { gauges, task }
    }

    pub(super) fn finish(self) -> Gauges {
        self.gauges.get()
    }
}

impl Drop for GaugeWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn document(client: &Client, path: &str) -> Option<Value> {
    let body = client.get(path).await?;
    let mut value = serde_json::from_slice(&body)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&body).into_owned()));
    shorten_texts(&mut value);
    Some(value)
}

async fn metrics(client: &Client) -> Option<BTreeMap<String, f64>> {
    let text = client.get("/metrics").await?;
    let series = parse_metrics(&String::from_utf8_lossy(&text));
    (!series.is_empty()).then_some(series)
}

/// Reads the Prometheus text format: the finite samples, without their times.
fn parse_metrics(text: &str) -> BTreeMap<String, f64> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| {
            // A label may hold spaces; what follows the labels does not.
            let end = line
                .rfind('}')
                .map_or_else(|| line.find(' '), |brace| Some(brace + 1))?;
            let (name, rest) = line.split_at(end);
            let value: f64 = rest.split_whitespace().next()?.parse().ok()?;
            value.is_finite().then(|| (name.to_owned(), value))
        })
        .take(MAX_SERIES)
        .collect()
}

fn shorten_texts(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Some((end, _)) = text.char_indices().nth(MAX_TEXT_CHARS) {
                text.truncate(end);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(shorten_texts),
        Value::Object(fields) => fields.values_mut().for_each(shorten_texts),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP a b\nvllm:num_requests_running{model=\"a b\"} 3 17\n\
                        llamacpp:requests_deferred 2\nplain 1e3\nbad NaN\n\nodd\n";

    #[test]
    fn metrics_are_read_as_prometheus_writes_them() {
        let series = parse_metrics(TEXT);
        let expected = [
            ("llamacpp:requests_deferred", 2.0),
            ("plain", 1000.0),
            ("vllm:num_requests_running{model=\"a b\"}", 3.0),
        ];
        let found: Vec<_> = series
            .iter()
            .map(|(name, value)| (name.as_str(), *value))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn gauges_keep_most_and_mean() {
        let mut gauges = Gauges::default();
        gauges.look(&BTreeMap::new());
        assert_eq!(gauges, Gauges::default());
        gauges.look(&parse_metrics(TEXT));
        gauges.look(&parse_metrics("vllm:num_requests_running 1\n"));
        assert_eq!(gauges.num_looks, 2);
        assert_eq!(gauges.running_max, Some(3.0));
        assert_eq!(gauges.running_mean, Some(2.0));
        assert_eq!(gauges.waiting_max, Some(2.0));
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let mut value = serde_json::json!({"a": ["é".repeat(600)]});
        shorten_texts(&mut value);
        assert_eq!(value["a"][0].as_str().unwrap().chars().count(), 500);
    }
}
