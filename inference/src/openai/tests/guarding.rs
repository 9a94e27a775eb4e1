//! Who is let in, and that every refusal has the one shape.

use super::*;
use crate::openai::ApiKeys;

fn guarded() -> Site {
    let keys = ApiKeys::from_text("alice:one\nbob:two").expect("two keys");
    let setup = Setup {
        options: ApiOptions {
            api_keys: Some(keys),
            ..ApiOptions::default()
        },
        ..Setup::default()
    };
    Site::new(
        setup,
        Box::new(|_, request| Reply::Events(said(&["a"], request))),
    )
}

#[test]
fn a_key_is_asked_for_and_names_the_tenant() {
    let site = guarded();
    let call = |key: &str| {
        let lines = format!("Content-Type: application/json\r\n{key}");
        site.call("POST", "/v1/chat/completions", &lines, &chat_body(""))
    };
    let fairness = "X-Gateway-Inference-Fairness-Id: alice\r\n";
    for (key, tenant) in [
        ("Authorization: Bearer one\r\n".to_owned(), "alice"),
        (format!("X-Api-Key: two\r\n{fairness}"), "bob"),
    ] {
        assert_eq!(call(&key).status, 200, "{key}");
        let request = site.log().requests.pop().expect("a request");
        assert_eq!(request.tenant.as_deref(), Some(tenant));
    }
    let missing = call("");
    for key in [
        "Authorization: Bearer three\r\n",
        "Authorization: Bearer\r\n",
    ] {
        let wrong = call(key);
        wrong.refused(401, Some("invalid_api_key"), None);
        assert!(wrong.has_line("www-authenticate: bearer"), "{}", wrong.head);
        assert_eq!(wrong.body, missing.body, "wrong and missing look alike");
    }
    assert!(site.log().requests.is_empty());
    let metrics = site.get("/metrics").body;
    let line = r#"justapi_unauthorized_total{model_name="tiny"} 3"#;
    assert!(metrics.contains(line), "{metrics}");
}

#[test]
fn without_a_key_only_probes_metrics_and_the_page_answer() {
    let site = guarded();
    for path in ["/", "/health", "/live", "/ready", "/metrics"] {
        assert_eq!(site.get(path).status, 200, "{path}");
    }
    for path in [
        "/v1/models",
        "/v1/models/tiny",
        "/v1/cache/status",
        "/v1/stats",
        "/nowhere",
    ] {
        site.get(path).refused(401, Some("invalid_api_key"), None);
    }
    for path in [
        "/v1/completions",
        "/v1/embeddings",
        "/tokenize",
        "/detokenize",
    ] {
        site.post(path, "{}")
            .refused(401, Some("invalid_api_key"), None);
    }
    assert_eq!(site.call("OPTIONS", "/v1/models", "", "").status, 204);
}

#[test]
fn refusals_of_the_server_have_openais_shape() {
    let site = Site::answering(&["a"]);
    site.get("/v1/nothing").refused(404, None, None);
    site.get("/v1/models/gpt-4")
        .refused(404, Some("model_not_found"), Some("model"));
    let not_allowed = site.get("/v1/chat/completions");
    not_allowed.refused(405, None, None);
    assert!(
        not_allowed.has_line("allow: options, post"),
        "{}",
        not_allowed.head
    );
    for body in ["", "{", "[]", "\"a\"", "{\"messages\":}", "nul"] {
        site.post("/v1/chat/completions", body)
            .refused(400, None, None);
    }
}

#[test]
fn a_body_that_is_not_json_by_its_type_is_a_415() {
    let site = Site::answering(&["a"]);
    for lines in [
        "",
        "Content-Type: text/plain\r\n",
        "Content-Type: application/x-www-form-urlencoded\r\n",
    ] {
        site.call("POST", "/v1/chat/completions", lines, &chat_body(""))
            .refused(415, None, None);
    }
    for lines in [
        "Content-Type: application/json; charset=utf-8\r\n",
        "content-type: Application/JSON\r\n",
    ] {
        let answer = site.call("POST", "/v1/chat/completions", lines, &chat_body(""));
        assert_eq!(answer.status, 200, "{lines}");
    }
}

#[test]
fn a_body_over_the_limit_is_a_413() {
    let setup = Setup {
        limits: Limits {
            max_body_bytes: 100,
            ..Limits::DEFAULT
        },
        ..Setup::default()
    };
    let site = Site::new(
        setup,
        Box::new(|_, request| Reply::Events(said(&["a"], request))),
    );
    let long = "x".repeat(101);
    site.complete(&format!(r#""prompt":"{long}""#))
        .refused(413, None, None);
}

#[test]
fn a_request_id_comes_back() {
    let site = Site::answering(&["a"]);
    let ask = |path: &str, id: &str| {
        let answer = site.call("GET", path, &format!("X-Request-Id: {id}\r\n"), "");
        answer.has_line(&format!("x-request-id: {id}"))
    };
    assert!(ask("/v1/models", "a-1_b.c"));
    assert!(ask("/v1/nothing", "a-1"));
    assert!(!ask("/v1/models", "a b"));
    assert!(!ask("/v1/models", &"a".repeat(129)));
    assert!(!site.get("/v1/models").head.contains("x-request-id"));
}
