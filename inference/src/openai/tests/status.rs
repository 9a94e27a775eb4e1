//! What is served and how it is: models, figures, metrics, the page.

use super::*;

fn busy() -> Site {
    let setup = Setup {
        stats: EngineStats {
            num_waiting: 1,
            num_running: 2,
            num_blocks: 10,
            num_free_blocks: 4,
            num_cached_blocks: 1,
            block_size: 16,
            prefix_queries: 40,
            prefix_hits: 10,
            num_preemptions: 3,
            prompt_tokens: 50,
            generation_tokens: 60,
            num_steps: 70,
        },
        ..Setup::default()
    };
    Site::new(
        setup,
        Box::new(|_, request| Reply::Events(said(&["a", "b"], request))),
    )
}

#[test]
fn models_are_listed_by_every_name() {
    let site = Site::answering(&["a"]);
    let model = |id: &str| {
        json!({
            "id": id, "object": "model", "created": 1_700_000_000, "owned_by": "justapi",
            "max_model_len": CONTEXT,
            "meta": {
                "architecture": "llama", "vocab_size": VOCAB_SIZE, "hidden_size": 4,
                "num_hidden_layers": 1, "has_chat_template": true,
            },
        })
    };
    let expected = json!({"object":"list","data":[model("tiny"), model("org/tiny")]});
    assert_eq!(site.get("/v1/models").json(), expected);
    assert_eq!(site.get("/v1/models/tiny").json(), model("tiny"));
    assert_eq!(site.get("/v1/models/org/tiny").json(), model("org/tiny"));
    assert_eq!(site.get("/v1/models/org%2Ftiny").json(), model("org/tiny"));
}

#[test]
fn figures_are_those_of_the_engine() {
    let site = busy();
    let expected = json!({
        "block_size": 16, "num_blocks": 10, "num_free_blocks": 4, "num_cached_blocks": 1,
        "kv_tokens": 160, "usage": 0.5,
        "prefix_cache": {"num_queried_tokens": 40, "num_hit_tokens": 10, "hit_ratio": 0.25},
    });
    assert_eq!(site.get("/v1/cache/status").json(), expected);
    let expected = json!({
        "model": "tiny", "context_length": CONTEXT, "num_requests_waiting": 1,
        "num_requests_running": 2, "num_preemptions": 3, "num_steps": 70,
        "prompt_tokens": 50, "generation_tokens": 60,
    });
    assert_eq!(site.get("/v1/stats").json(), expected);
}

#[test]
fn metrics_have_vllms_names() {
    let site = busy();
    assert_eq!(site.chat(r#""n":2"#).status, 200);
    let metrics = site.get("/metrics").body;
    let model = r#"model_name="tiny""#;
    for line in [
        format!("vllm:num_requests_waiting{{{model}}} 1"),
        format!("vllm:num_requests_running{{{model}}} 2"),
        format!("vllm:kv_cache_usage_perc{{{model}}} 0.5"),
        format!("vllm:cache_config_info{{{model},block_size=\"16\",num_gpu_blocks=\"10\"}} 1"),
        format!("vllm:prompt_tokens_total{{{model}}} 50"),
        format!("vllm:generation_tokens_total{{{model}}} 60"),
        format!("vllm:prefix_cache_queries_total{{{model}}} 40"),
        format!("vllm:prefix_cache_hits_total{{{model}}} 10"),
        format!("vllm:num_preemptions_total{{{model}}} 3"),
        format!("vllm:request_success_total{{{model},finished_reason=\"stop\"}} 2"),
        format!("vllm:request_success_total{{{model},finished_reason=\"abort\"}} 0"),
        format!("vllm:time_to_first_token_seconds_count{{{model}}} 2"),
        format!("vllm:inter_token_latency_seconds_count{{{model}}} 2"),
        format!("vllm:time_per_output_token_seconds_count{{{model}}} 2"),
        format!("vllm:e2e_request_latency_seconds_count{{{model}}} 2"),
        format!("prefix_cache_hits{{{model}}} 10"),
        format!("prefix_cache_misses{{{model}}} 30"),
        format!("prefix_cache_hit_ratio{{{model}}} 0.25"),
        format!("prefix_cache_blocks{{{model}}} 1"),
        "justapi_lanes 1".to_owned(),
    ] {
        assert!(
            metrics.lines().any(|found| found == line),
            "{line} in {metrics}"
        );
    }
}

#[test]
fn the_page_is_served_with_a_strict_policy() {
    let site = Site::answering(&["a"]);
    let page = site.get("/");
    assert_eq!(page.status, 200);
    assert!(
        page.has_line("content-type: text/html; charset=utf-8"),
        "{}",
        page.head
    );
    assert!(
        page.head
            .contains("content-security-policy: default-src 'none'; script-src 'sha256-")
    );
    assert!(page.body.starts_with("<!doctype html>"));
    assert_eq!(site.call("HEAD", "/", "", "").status, 200);
    let setup = Setup {
        options: ApiOptions {
            without_page: true,
            ..ApiOptions::default()
        },
        ..Setup::default()
    };
    let bare = Site::new(
        setup,
        Box::new(|_, request| Reply::Events(said(&["a"], request))),
    );
    bare.get("/").refused(404, None, None);
}

#[test]
fn health_is_open_and_says_ok() {
    let site = Site::answering(&["a"]);
    assert_eq!(site.get("/health").json(), json!({"status":"ok"}));
}

#[test]
fn every_route_but_the_page_is_described() {
    let site = Site::answering(&["a"]);
    let router = routes(&site.model, ApiOptions::default()).expect("the patterns are valid");
    let document = justapi_core::OpenApi::new("tiny", "1").document(&router);
    let paths: Vec<_> = document["paths"]
        .as_object()
        .expect("paths")
        .keys()
        .collect();
    let expected = [
        "/apply-template",
        "/detokenize",
        "/tokenize",
        "/v1/cache/status",
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/embeddings",
        "/v1/messages/count_tokens",
        "/v1/models",
        "/v1/models/{id}",
        "/v1/stats",
    ];
    assert_eq!(paths, expected);
}
