//! `justapi bench llm` against a model server of a few lines.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;

use serde_json::{Value, json};

use crate::binary::Folder;

/// Flags of a run that takes moments.
const SHORT: &str = "--prefill-tokens 40 --decode-tokens 4 --prefix-tokens 40 --repetitions 1 \
                     -c 1,2 --input-tokens 40 --output-tokens 4";

/// A model server; one that works refuses completions of more than `most` tokens.
fn model_server(most: u64) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || serve(&stream.unwrap(), most));
        }
    });
    format!("http://{address}/v1")
}

fn serve(stream: &TcpStream, most: u64) {
    let mut reader = BufReader::new(stream);
    while let Some((path, body)) = read_request(&mut reader) {
        let response = answer(&path, &body, most);
        // A client that leaves is not the server's trouble.
        let mut stream = stream;
        stream.write_all(response.as_bytes()).ok();
    }
}

fn read_request(reader: &mut BufReader<&TcpStream>) -> Option<(String, Value)> {
    let mut line = String::new();
    reader
        .read_line(&mut line)
        .ok()
        .filter(|length| *length > 0)?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut length = 0;
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(':') else {
            break;
        };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((path, serde_json::from_slice(&body).unwrap_or(Value::Null)))
}

fn answer(path: &str, body: &Value, most: u64) -> String {
    let prompt = body["messages"][0]["content"].as_str().unwrap_or_default();
    let prompt_tokens = prompt.split_whitespace().count();
    let tokens = body["max_tokens"].as_u64().unwrap_or(1);
    match path {
        "/v1/models" => document("200 OK", &json!({"data": [{"id": "tiny"}]})),
        "/v1/messages/count_tokens" => document("200 OK", &json!({"input_tokens": prompt_tokens})),
        "/v1/chat/completions" if tokens > most => {
            document("500 Internal Server Error", &json!({"error": "no memory"}))
        }
        "/v1/chat/completions" => {
            let token = "data: {\"choices\": [{\"delta\": {\"content\": \"x\"}}]}\n\n";
            let usage = json!({"prompt_tokens": prompt_tokens, "completion_tokens": tokens,
                "prompt_tokens_details": {"cached_tokens": 0}});
            let usage = json!({"choices": [], "usage": usage});
            let events = token.repeat(usize::try_from(tokens).unwrap());
            let stream = format!("{events}data: {usage}\n\ndata: [DONE]\n\n");
            with_type("200 OK", "text/event-stream", &stream)
        }
        _ => document("404 Not Found", &json!({})),
    }
}

fn document(status: &str, document: &Value) -> String {
    with_type(status, "application/json", &document.to_string())
}

fn with_type(status: &str, content_type: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

#[test]
fn a_model_server_is_measured() {
    let url = model_server(1000);
    let folder = Folder::new().with("weights.gguf", "abc");
    let run = folder
        .run(&format!(
            "bench llm {url} {SHORT} --weights weights.gguf --dtype Q4_1 --synthetic --out r.json"
        ))
        .expect(0);
    assert!(run.stdout.contains("tiny"), "{run:?}");
    assert!(run.stdout.contains("ok=11"), "{run:?}");
    assert!(run.stderr.contains("concurrency 2"), "{run:?}");
    let text = std::fs::read_to_string(folder.path().join("r.json")).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["schema_version"], 1);
    assert_eq!(report["model"]["id"], "tiny");
    assert_eq!(report["model"]["dtype"], "Q4_1");
    assert_eq!(report["model"]["synthetic"], true);
    // FIPS 180-2, appendix B.1.
    let digest = report["model"]["weights_sha256"].as_str().unwrap();
    assert!(digest.starts_with("ba7816bf8f01cfea"), "{digest}");
    assert_eq!(report["invalid"], json!([]));

    let json = folder
        .run(&format!(
            "bench llm {url} {SHORT} --json --rate 50 -n 5 --slo-ttft 1m"
        ))
        .expect(0)
        .json();
    assert_eq!(json["configuration"]["scenarios"], json!(["rate"]));
    assert_eq!(json["outcomes"]["ok"], 5);
    assert_eq!(json["open_loop"]["goodput"]["fraction"], 1.0);
}

/// This build has assertions, so that it gets as far as the check of the program.
#[test]
fn only_a_named_run_of_a_release_build_is_recorded() {
    let folder = Folder::new().with("weights.gguf", "abc");
    let url = model_server(1000);
    let named = "--record --label tiny --weights weights.gguf --dtype Q4_1 --synthetic";
    let run = folder
        .run(&format!("bench llm {url} {SHORT} {named}"))
        .expect(1);
    assert!(run.stderr.contains("error[JA801]"), "{run:?}");
    assert!(run.stderr.contains("profile debug"), "{run:?}");
    assert!(!folder.path().join("BENCHMARKS.md").exists());
    for missing in ["--label tiny ", "--weights weights.gguf ", "--dtype Q4_1 "] {
        let named = named.replace(missing, "");
        folder.run(&format!("bench llm {url} {named}")).expect(1);
    }
    let run = folder.run(&format!("bench llm {url} --root x")).expect(1);
    assert!(run.stderr.contains("--record"), "{run:?}");
}

#[test]
fn a_failing_model_server_is_no_success() {
    let folder = Folder::new();
    // The warm-up asks 32 tokens, `decode` more.
    let url = model_server(32);
    let run = folder
        .run(&format!(
            "bench llm {url} --scenario prefill,decode --repetitions 1 --prefill-tokens 40 \
             --decode-tokens 64"
        ))
        .expect(4);
    assert!(run.stdout.contains("INVALID"), "{run:?}");
    assert!(run.stdout.contains("ok=1 http_5xx=1"), "{run:?}");

    let run = folder
        .run(&format!("bench llm {} {SHORT}", model_server(0)))
        .expect(5);
    assert!(run.stderr.contains("error[JA802]"), "{run:?}");
    assert!(run.stderr.contains("no memory"), "{run:?}");

    let unused = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let run = folder.run(&format!("bench llm http://{unused}")).expect(5);
    assert!(run.stderr.contains("error[JA802]"), "{run:?}");
}

#[test]
fn unusable_flags_exit_1() {
    let folder = Folder::new();
    for arguments in [
        "ftp://127.0.0.1/",
        "http://127.0.0.1:1 --field seed",
        "http://127.0.0.1:1 --weights missing",
        "http://127.0.0.1:1 --rate 0",
        "http://127.0.0.1:1 --rate 1 --scenario decode",
        "http://127.0.0.1:1 --scenario rate",
        "http://127.0.0.1:1 --dataset trace --dataset-file missing",
        "http://127.0.0.1:1 --dataset shared-prefix --shared-tokens 500",
    ] {
        let run = folder.run(&format!("bench llm {arguments}")).expect(1);
        assert!(run.stderr.contains("error[JA801]"), "{arguments}: {run:?}");
    }
    for arguments in [
        "",
        "http://127.0.0.1:1 -c 0",
        "http://127.0.0.1:1 --dataset trace",
        "http://127.0.0.1:1 --slo-ttft 1s",
    ] {
        folder.run(&format!("bench llm {arguments}")).expect(1);
    }
}
