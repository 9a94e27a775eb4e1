//! Whole runs against servers that work.

use std::collections::HashSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::super::{Arrivals, Scenario, ServingOutcome, Slo, run};
use super::scripted::{Act, Asked, Offer, Scripted, good};
use super::{measure, plan};
use crate::{Error, Trust, parse_target};

#[test]
fn every_scenario_is_measured() {
    let server = Scripted::start(|asked| good(asked, Some(0), 1));
    let mut plan = plan(&server, &Scenario::ALL);
    plan.arrivals = Some(Arrivals::Poisson(200.0));
    plan.num_arrivals = 6;
    plan.slo = Slo::new(Some(10_000.0), Some(10_000.0), None);
    plan.api_key = Some("secret".to_owned());
    let report = measure(&plan);
    assert_eq!(report.invalid, Vec::<String>::new());
    let expected = 2 + 2 + 6 + (1 + 3) * 2 + 6;
    assert_eq!(report.outcomes.get(&ServingOutcome::Ok), Some(&expected));
    assert_eq!(report.outcomes.len(), 1);
    assert_eq!(report.model.id, "scripted");
    assert_eq!(report.server.token_counter, "/v1/messages/count_tokens");
    assert_eq!(report.server.cached_tokens_reporting, "always");
    let decode = report.decode.as_ref().unwrap();
    assert_eq!(decode.summary.client_wall_decode_tps.sample_count, 2);
    assert!(
        decode
            .samples
            .iter()
            .all(|sample| sample.completion_tokens == Some(8))
    );
    // 7 steps of at least 1 ms each.
    assert!(decode.summary.client_wall_decode_tps.max.unwrap() <= 1000.0);
    assert!(decode.summary.client_wall_itl_ms.is_some());
    for asked in server.completions() {
        assert_eq!(asked.authorization.as_deref(), Some("Bearer secret"));
        if asked.body["stream"] == json!(true) {
            assert_eq!(asked.body["stream_options"]["include_usage"], json!(true));
            assert_eq!(asked.body["ignore_eos"], json!(true));
            assert_eq!(asked.body["temperature"], json!(0));
        }
    }
    let document = serde_json::to_value(&report).unwrap();
    assert_eq!(document["schema_version"], json!(1));
    assert!(!document.to_string().contains("secret"));
    assert_eq!(document["model"]["weights_sha256"], Value::Null);
    assert_eq!(document["server"]["before"]["metrics"], Value::Null);
    assert_eq!(document["outcomes"]["ok"], json!(expected));
    let level = &document["concurrency"][1];
    assert_eq!(level["concurrency_offered"], json!(3));
    assert_eq!(level["totals"]["completion_tokens"], json!(6 * 4));
    assert_eq!(level["server_gauges"]["running_max"], Value::Null);
    assert_eq!(level["summary"]["client_wall_ttft_ms"]["p95"], Value::Null);
    let open = &document["open_loop"];
    assert_eq!(open["goodput"]["fraction"], json!(1.0));
    assert_eq!(open["schedule_ms"].as_array().unwrap().len(), 6);
    let text = report.render_text();
    for expected in [
        "prefill",
        "small suffix",
        "concurrency",
        "goodput",
        "ok=24",
        "n<90",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
}

#[test]
fn prompts_have_their_length_and_are_never_used_twice() {
    let server = Scripted::start(|asked| good(asked, Some(0), 0));
    let mut plan = plan(&server, &[Scenario::Prefill, Scenario::Concurrency]);
    plan.prefill_tokens = vec![64, 512];
    plan.levels = vec![1, 2, 4];
    measure(&plan);
    let report = measure(&plan);
    for group in &report.prefill.as_ref().unwrap().targets {
        for sample in &group.samples {
            let found = sample.prompt_tokens.unwrap();
            assert!(
                found.abs_diff(group.target_prompt_tokens) <= 4,
                "{sample:?}"
            );
        }
    }
    // All but the pair that finds out how cached tokens are reported.
    let mut seen = HashSet::new();
    let mut twice = Vec::new();
    for asked in server.completions() {
        if asked.body["stream"] == json!(true) && !seen.insert(asked.prompt().to_owned()) {
            twice.push(asked.prompt().to_owned());
        }
    }
    assert_eq!(twice.len(), 2, "one pair for each run");
    let beginnings: HashSet<_> = seen
        .iter()
        .map(|prompt| prompt.split(' ').take(11).collect::<Vec<_>>())
        .collect();
    assert_eq!(beginnings.len(), seen.len());
}

#[test]
fn a_server_that_counts_by_completing_has_not_seen_the_prompts() {
    let offer = Offer {
        no_counter: true,
        ..Offer::default()
    };
    let server = Scripted::offering(offer, |asked| good(asked, Some(0), 0));
    let report = measure(&plan(&server, &[Scenario::Prefill, Scenario::Prefix]));
    assert_eq!(report.invalid, Vec::<String>::new());
    assert_eq!(report.server.token_counter, "usage of a completion");
    let (mut counted, mut num_measured) = (HashSet::new(), 0);
    for asked in server.completions() {
        if asked.body["stream"] == json!(true) {
            num_measured += 1;
            assert!(!counted.contains(asked.prompt()), "{}", asked.prompt());
        } else {
            counted.insert(asked.prompt().to_owned());
        }
    }
    assert_eq!(num_measured, 1 + 2 + 2 + 6);
    assert!(counted.len() > 5);
}

#[test]
fn https_is_measured_alike() {
    let certified = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let key = rustls_pki_types::PrivateKeyDer::Pkcs8(certified.signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .unwrap();
    let offer = Offer {
        tls: Some(Arc::new(config)),
        ..Offer::default()
    };
    let server = Scripted::offering(offer, |asked| {
        let mut acts = good(asked, Some(0), 0);
        acts.insert(2, Act::Pause(60));
        acts
    });
    let mut plan = plan(&server, &[Scenario::Decode]);
    let url = format!("https://{}", server.address);
    plan.target = parse_target(&url, Some(&Trust::Insecure)).unwrap().0;
    let report = measure(&plan);
    assert_eq!(report.invalid, Vec::<String>::new());
    let samples = report.decode.unwrap().samples;
    assert!(samples.iter().all(|sample| sample.connection_reused));
    assert!(
        samples
            .iter()
            .all(|sample| sample.client_wall_ttft_ms.unwrap() >= 60.0)
    );

    // A certificate that nobody vouches for is no connection.
    let folder = tempfile::tempdir().unwrap();
    let other = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let path = folder.path().join("ca.pem");
    std::fs::write(&path, other.cert.pem()).unwrap();
    plan.target = parse_target(&url, Some(&Trust::CaFile(path))).unwrap().0;
    let stop = Arc::new(AtomicBool::new(false));
    let error = run(&plan, &mut |_| {}, &stop).unwrap_err();
    assert!(matches!(error, Error::ModelServer { .. }), "{error}");
}

#[test]
fn prefixes_are_reused_as_they_were() {
    let server = Scripted::start(|asked| good(asked, Some(5), 0));
    let plan = plan(&server, &[Scenario::Prefix]);
    let report = measure(&plan);
    let prefix = report.prefix_cache.as_ref().unwrap();
    assert_eq!(prefix.samples.len(), 2);
    let asked = server.completions();
    let prompts: Vec<_> = asked[asked.len() - 6..].iter().map(Asked::prompt).collect();
    for prompts in prompts.chunks(3) {
        assert_eq!(prompts[0], prompts[1]);
        assert!(prompts[2].starts_with(prompts[0]) && prompts[2].len() > prompts[0].len());
    }
    assert_ne!(prompts[0], prompts[3]);
}

#[test]
fn unknown_cached_tokens_stay_unknown() {
    let server = Scripted::start(|asked| good(asked, None, 0));
    let report = measure(&plan(&server, &[Scenario::Prefill]));
    assert_eq!(report.server.cached_tokens_reporting, "never");
    let sample = &report.prefill.as_ref().unwrap().targets[0].samples[0];
    assert_eq!(sample.cached_tokens, None);
    assert_eq!(sample.client_wall_effective_prefill_tps, None);

    // One that mentions them only when there are some means 0 by silence.
    let seen = Mutex::new(HashSet::new());
    let server = Scripted::start(move |asked| {
        let is_new = seen.lock().unwrap().insert(asked.prompt().to_owned());
        good(asked, (!is_new).then_some(60), 0)
    });
    let report = measure(&plan(&server, &[Scenario::Prefill]));
    assert_eq!(report.server.cached_tokens_reporting, "omits_zero");
    let sample = &report.prefill.as_ref().unwrap().targets[0].samples[0];
    assert_eq!(sample.cached_tokens, Some(0));
    assert!(sample.client_wall_effective_prefill_tps.is_some());
}

#[test]
fn connections_are_kept_unless_told_otherwise() {
    let connections = |keep_alive| {
        let server = Scripted::start(|asked| good(asked, Some(0), 0));
        let mut plan = plan(&server, &[Scenario::Decode]);
        plan.keep_alive = keep_alive;
        plan.repetitions = 4;
        let report = measure(&plan);
        let samples = report.decode.unwrap().samples;
        assert_eq!(samples.len(), 4);
        assert!(
            samples
                .iter()
                .all(|sample| sample.connection_reused == keep_alive)
        );
        assert!(
            samples
                .iter()
                .all(|s| s.client_wall_connect_ms.is_none() == keep_alive)
        );
        let streams = server.completions();
        let streams = streams
            .iter()
            .filter(|asked| asked.body["stream"] == json!(true));
        streams
            .map(|asked| asked.connection)
            .collect::<HashSet<_>>()
            .len()
    };
    assert_eq!(connections(true), 1);
    // A warm-up, the pair about cached tokens, and the four.
    assert_eq!(connections(false), 7);
}

#[test]
fn what_does_not_fit_is_said() {
    let server = Scripted::start(|asked| good(asked, Some(0), 0));
    let mut plan = plan(&server, &[Scenario::Prefill]);
    plan.prefill_tokens = vec![64, 100_000];
    let report = measure(&plan);
    let targets = &report.prefill.as_ref().unwrap().targets;
    assert_eq!(targets[0].skipped, None);
    assert!(
        targets[1].skipped.as_ref().unwrap().contains("100008"),
        "{targets:?}"
    );
    assert!(targets[1].samples.is_empty());
    assert!(report.render_text().contains("not measured"));
}
