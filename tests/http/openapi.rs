//! The description of the API and its page, over the wire and in a browser.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::support::client::get;
use crate::support::server::Server;

const PATHS: [&str; 4] = ["/openapi.json", "/docs", "/docs/page.css", "/docs/page.js"];

#[test]
fn the_document_describes_the_demo() {
    let server = Server::start(&[]);
    let answer = server.get("/openapi.json");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let document = answer.json();
    assert_eq!(document["info"]["title"], "justapi demo");
    let validate = &document["paths"]["/validate"]["post"];
    let body = &validate["requestBody"]["content"]["application/json"]["schema"];
    assert_eq!(body, &json!({"$ref": "#/components/schemas/User"}));
    let statuses: Vec<_> = validate["responses"]
        .as_object()
        .expect("responses")
        .keys()
        .collect();
    assert_eq!(
        statuses,
        ["200", "400", "405", "413", "415", "422", "default"]
    );
    let items = &document["components"]["schemas"]["User"]["properties"]["orders"]["items"];
    assert_eq!(items["$ref"], "#/components/schemas/User/$defs/order");
    let limit = &document["paths"]["/search"]["get"]["parameters"][1];
    assert_eq!(
        (&limit["name"], &limit["required"]),
        (&json!("limit"), &json!(false))
    );
    assert_eq!(
        limit["schema"],
        json!({"type": "integer", "minimum": 1, "maximum": 100})
    );
    let paths = document["paths"].as_object().expect("paths");
    assert!(
        !paths.contains_key("/") && !paths.contains_key("/docs"),
        "{paths:?}"
    );
}

#[test]
fn each_part_is_revalidated_by_its_tag() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    for path in PATHS {
        let answer = client.get(path);
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.header("cache-control"), Some("no-cache"));
        let tag = answer.header("etag").expect("an entity tag").to_owned();
        let again = get(path).replace("\r\n\r\n", &format!("\r\nIf-None-Match: {tag}\r\n\r\n"));
        let answer = client.ask(again);
        assert_eq!((answer.status, answer.body.len()), (304, 0), "{path}");
        assert_eq!(answer.header("etag"), Some(&*tag));
    }
}

#[test]
fn documentation_can_be_switched_off() {
    let server = Server::start(&["--docs=false"]);
    for path in PATHS {
        assert_eq!(server.get(path).status, 404, "{path}");
    }
    assert_eq!(server.get("/hello").status, 200);
}

/// By the official schemas, as `openapi-spec-validator` carries them.
#[test]
fn the_document_is_valid_openapi() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("openapi.json");
    std::fs::write(&path, server.get("/openapi.json").body).expect("a writable folder");
    let output = Command::new(python())
        .args(["-m", "openapi_spec_validator", "--schema", "3.1"])
        .arg(&path)
        .output()
        .expect("Python starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("OK"), "{output:?}");
    // And it does refuse what is wrong.
    let broken = server
        .get("/openapi.json")
        .text()
        .replacen("\"responses\"", "\"answers\"", 9);
    std::fs::write(&path, broken).expect("a writable folder");
    let refused = Command::new(python())
        .args(["-m", "openapi_spec_validator", "--schema", "3.1"])
        .arg(&path)
        .output()
        .expect("Python starts");
    assert!(!refused.status.success(), "{refused:?}");
}

#[test]
fn the_page_renders_in_a_browser_under_its_policy() {
    let server = Server::start(&[]);
    let answer = server.get("/docs");
    let policy = answer.header("content-security-policy").expect("a policy");
    assert!(
        policy.starts_with("default-src 'none'") && !policy.contains("unsafe"),
        "{policy}"
    );
    let profile = tempfile::tempdir().expect("a temporary folder");
    let output = Command::new("chromium")
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
        ])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ])
        .args([
            "--enable-logging=stderr",
            "--virtual-time-budget=10000",
            "--dump-dom",
        ])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("http://{}/docs#post_validate", server.address()))
        .output()
        .expect("chromium starts; tests/run installs it");
    let page = String::from_utf8_lossy(&output.stdout);
    for text in [
        "<title>justapi demo</title>",
        "id=\"get_search\"",
        "<h3>Body schema</h3>",
        "no two alike",
        "id=\"schema-User\"",
        ">Send</button>",
    ] {
        assert!(page.contains(text), "no {text} in {page}");
    }
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("CONSOLE"), "{said}");
}

/// The interpreter that has the packages of `tests/requirements.txt`.
fn python() -> PathBuf {
    let given = std::env::var_os("JUSTAPI_TEST_PYTHON").map(PathBuf::from);
    given.unwrap_or_else(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
        target.expect("inside target").join("test-venv/bin/python")
    })
}
