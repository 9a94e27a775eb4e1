//! `justapi infer` and `serve --model`: with a model of a few kilobytes, and with what is none.

use std::fs;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::binary::{Folder, JUSTAPI, Run, body, terminal};
use crate::tiny_model;

fn folder() -> Folder {
    let folder = Folder::new().env("HF_HUB_OFFLINE", "1");
    let home = folder.path().to_str().unwrap().to_owned();
    let folder = folder.env("HOME", &home);
    tiny_model::write(&folder.path().join("chat.gguf"), false);
    tiny_model::write(&folder.path().join("base.gguf"), true);
    folder
}

/// Runs with what comes in; arguments are as they are.
fn run(folder: &Folder, arguments: &[&str], input: &str) -> Run {
    let mut child = folder
        .program(JUSTAPI, arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A command that needs no input may have ended by now.
    drop(stdin.write_all(input.as_bytes()));
    drop(stdin);
    Run::of(&child.wait_with_output().unwrap())
}

fn lines(text: &str) -> Vec<Value> {
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn models_that_are_none_are_told_apart() {
    let folder = folder().with("page.gguf", "<html>404</html>");
    let whole = fs::read(folder.path().join("chat.gguf")).unwrap();
    fs::write(folder.path().join("cut.gguf"), &whole[..whole.len() / 2]).unwrap();
    fs::create_dir(folder.path().join("empty")).unwrap();
    for (model, status, code, expected) in [
        ("none.gguf", 4, "JA421", "no file none.gguf"),
        ("smolm2:135m", 4, "JA421", "did you mean `smollm2:135m`?"),
        ("what", 4, "JA421", "neither a file"),
        ("page.gguf", 4, "JA423", "does not begin with `GGUF`"),
        ("cut.gguf", 4, "JA423", "cut.gguf"),
        ("empty", 4, "JA423", "no config.json"),
        ("smollm2:135m", 4, "JA422", "not in the cache"),
        ("org/name:Q4_0", 4, "JA422", "leave out `--offline`"),
    ] {
        for command in [
            "infer hello --model",
            "infer inspect --model",
            "serve --model",
        ] {
            let run = folder.run(&format!("{command} {model}")).expect(status);
            assert!(run.stderr.contains(&format!("error[{code}]")), "{run:?}");
            assert!(run.stderr.contains(expected), "{expected}: {run:?}");
            assert_eq!(run.stdout, "");
        }
    }
}

#[test]
fn what_is_missing_is_asked_for() {
    let folder = folder();
    let run_without = folder.run("infer hello").expect(2);
    assert!(
        run_without.stderr.contains("no model is named"),
        "{run_without:?}"
    );
    let empty = run(&folder, &["infer", "--model", "chat.gguf"], "\n").expect(2);
    assert!(
        empty.stderr.contains("error[JA208]: there is no prompt"),
        "{empty:?}"
    );
    // On a terminal nobody waits for an end of file that does not come.
    let (_keys, side) = terminal();
    let mut command = folder.program(JUSTAPI, &["infer", "run", "--model", "chat.gguf"]);
    let output = command.stdin(side()).output().unwrap();
    let run = Run::of(&output).expect(2);
    assert!(run.stderr.contains("infer chat"), "{run:?}");
}

#[test]
fn the_settings_may_name_the_model() {
    let folder = folder().with("justapi.toml", "[model]\nid = \"chat.gguf\"\n");
    let run = folder.run("infer inspect --json").expect(0);
    assert_eq!(run.json()["architecture"], "llama");
}

#[test]
fn the_same_seed_gives_the_same_text_and_nothing_else_is_on_stdout() {
    let folder = folder();
    let arguments = [
        "infer",
        "--model",
        "chat.gguf",
        "--seed",
        "7",
        "-n",
        "24",
        "Hello",
    ];
    let first = run(&folder, &arguments, "").expect(0);
    let second = run(&folder, &arguments, "").expect(0);
    assert_eq!(first.stdout, second.stdout);
    assert!(
        first.stdout.len() > 1 && first.stderr.contains("seed 7"),
        "{first:?}"
    );
    let from_input = [
        "infer",
        "run",
        "--model",
        "chat.gguf",
        "--seed",
        "7",
        "-n",
        "24",
        "-",
    ];
    let third = run(&folder, &from_input, "Hello\n").expect(0);
    assert_eq!(first.stdout, third.stdout);
    let quiet: Vec<&str> = arguments.iter().copied().chain(["-q"]).collect();
    let quiet = run(&folder, &quiet, "").expect(0);
    assert_eq!((quiet.stdout, quiet.stderr), (first.stdout, String::new()));
    let other = [
        "infer",
        "--model",
        "chat.gguf",
        "--seed",
        "8",
        "-n",
        "24",
        "Hello",
    ];
    assert_ne!(run(&folder, &other, "").expect(0).stdout, second.stdout);
    // Threads change nothing.
    let threads: Vec<&str> = arguments
        .iter()
        .copied()
        .chain(["--threads", "3"])
        .collect();
    assert_eq!(run(&folder, &threads, "").expect(0).stdout, second.stdout);
}

#[test]
fn json_has_each_token_and_the_whole() {
    let folder = folder();
    let arguments = [
        "infer",
        "--model",
        "chat.gguf",
        "--json",
        "-n",
        "9",
        "--ignore-eos",
        "Hi",
    ];
    let run = run(&folder, &arguments, "").expect(0);
    let mut lines = lines(&run.stdout);
    let last = lines.pop().unwrap();
    assert_eq!(last["event"], "finished");
    assert_eq!(last["finish_reason"], "length");
    assert_eq!(last["usage"]["completion_tokens"], 9);
    assert!(last["seed"].is_u64() && last["model"] == "chat");
    let text: String = lines
        .iter()
        .map(|line| line["text"].as_str().unwrap())
        .collect();
    assert_eq!(text, last["text"].as_str().unwrap());
    assert_eq!(lines.iter().filter(|line| line["id"].is_u64()).count(), 9);
}

#[test]
#[expect(clippy::too_many_lines, reason = "the cases are one table")]
fn a_base_model_continues_and_does_not_chat() {
    let folder = folder();
    let arguments = [
        "infer",
        "--model",
        "base.gguf",
        "--seed",
        "1",
        "-n",
        "5",
        "Once",
    ];
    let told = run(&folder, &arguments, "").expect(0);
    assert!(told.stderr.contains("a base model"), "{told:?}");
    let raw: Vec<&str> = arguments.iter().copied().chain(["--raw"]).collect();
    let raw = run(&folder, &raw, "").expect(0);
    assert_eq!(raw.stdout, told.stdout);
    assert!(!raw.stderr.contains("a base model"), "{raw:?}");
    for arguments in [
        &["infer", "chat", "--model", "base.gguf"][..],
        &[
            "infer",
            "--model",
            "base.gguf",
            "--system",
            "Be brief.",
            "Hi",
        ],
    ] {
        let run = run(&folder, arguments, "Hi\n").expect(4);
        assert!(run.stderr.contains("error[JA427]"), "{run:?}");
    }
    let folder = folder.with("t.jinja", "{{ messages[0].content }}");
    let arguments = [
        "infer",
        "chat",
        "--model",
        "base.gguf",
        "--chat-template",
        "t.jinja",
        "-n",
        "3",
    ];
    run(&folder, &arguments, "Hi\n").expect(0);
    let folder = folder.with("t.jinja", "{{ raise_exception('never this') }}");
    let refused = run(
        &folder,
        &[
            "infer",
            "--model",
            "base.gguf",
            "--chat-template",
            "t.jinja",
            "Hi",
        ],
        "",
    );
    assert!(refused.expect(4).stderr.contains("never this"));
    let folder = folder.with("t.jinja", "{% if %}");
    let broken = run(
        &folder,
        &[
            "infer",
            "--model",
            "base.gguf",
            "--chat-template",
            "t.jinja",
            "Hi",
        ],
        "",
    );
    assert!(broken.expect(4).stderr.contains("chat template"));
}

#[test]
fn prompts_that_are_too_long_are_refused_whole() {
    let folder = folder();
    let long = "word ".repeat(tiny_model::CONTEXT as usize);
    let refused = run(&folder, &["infer", "--model", "chat.gguf", &long], "").expect(2);
    assert!(refused.stderr.contains("error[JA209]"), "{refused:?}");
    assert_eq!(refused.stdout, "");
    let refused = run(
        &folder,
        &["infer", "--model", "chat.gguf", "--ctx", "9999", "Hi"],
        "",
    )
    .expect(2);
    assert!(refused.stderr.contains("error[JA425]"), "{refused:?}");
    let gpu = run(
        &folder,
        &["infer", "--model", "chat.gguf", "--gpu", "Hi"],
        "",
    )
    .expect(6);
    assert!(gpu.stderr.contains("built without CUDA"), "{gpu:?}");
}

#[test]
fn a_chat_of_lines_remembers_and_obeys() {
    let folder = folder();
    let arguments = [
        "infer",
        "chat",
        "--model",
        "chat.gguf",
        "-n",
        "4",
        "--seed",
        "3",
    ];
    let input = "/system Be brief.\nHello\nAgain\n/save talk.json\n/nonsense\n/clear\n/system\n/exit\nnever\n";
    let talk = run(&folder, &arguments, input).expect(0);
    for expected in [
        "noted",
        "4 messages are in talk.json",
        "no command /nonsense",
        "forgotten",
        "Be brief.",
    ] {
        assert!(talk.stderr.contains(expected), "{expected}: {talk:?}");
    }
    let saved = fs::read_to_string(folder.path().join("talk.json")).unwrap();
    let saved: Value = serde_json::from_str(&saved).unwrap();
    let roles: Vec<&str> = (saved["messages"].as_array().unwrap().iter())
        .map(|message| message["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["system", "user", "assistant", "user", "assistant"]);
    let loaded: Vec<&str> = arguments
        .iter()
        .copied()
        .chain(["--load", "talk.json"])
        .collect();
    run(&folder, &loaded, "And now?\n").expect(0);
    let broken: Vec<&str> = arguments
        .iter()
        .copied()
        .chain(["--load", "chat.gguf"])
        .collect();
    let broken = run(&folder, &broken, "").expect(2);
    assert!(broken.stderr.contains("error[JA210]"), "{broken:?}");
}

#[test]
fn a_reader_that_leaves_ends_the_answer_quietly() {
    let folder = folder();
    let script = format!(
        "{JUSTAPI} infer --model chat.gguf --ignore-eos -n 200 Hi 2>errors | head -c 1 >/dev/null; \
         echo ${{PIPESTATUS[0]}}"
    );
    let output = Command::new("bash")
        .args(["-c", &script])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0\n");
    let errors = fs::read_to_string(folder.path().join("errors")).unwrap();
    assert!(!errors.contains("error"), "{errors}");
}

#[test]
fn ctrl_c_ends_the_answer_and_not_the_chat() {
    let folder = folder();
    let mut child = folder
        .program(
            JUSTAPI,
            &[
                "infer",
                "chat",
                "--model",
                "chat.gguf",
                "--json",
                "--ignore-eos",
            ],
        )
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"Hi\n").unwrap();
    let mut first = [0];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut first)
        .unwrap();
    // The answer is under way: the context holds some 200 tokens more.
    kill_process(pid, Signal::INT).unwrap();
    stdin.write_all(b"/save after.json\n/exit\n").unwrap();
    let run = Run::of(&child.wait_with_output().unwrap()).expect(0);
    assert!(folder.path().join("after.json").exists(), "{run:?}");
}

#[test]
fn ctrl_c_ends_a_run_with_130() {
    let folder = folder();
    let arguments = [
        "infer",
        "--model",
        "chat.gguf",
        "--ignore-eos",
        "Hi",
        "--json",
    ];
    let mut child = folder
        .program(JUSTAPI, &arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    let mut first = [0];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut first)
        .unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let run = Run::of(&child.wait_with_output().unwrap()).expect(130);
    assert!(
        run.stdout.contains("\"finish_reason\":\"interrupted\""),
        "{run:?}"
    );
}

#[test]
fn ctrl_c_twice_at_the_prompt_leaves() {
    let folder = folder();
    let (mut keys, side) = terminal();
    let mut command = folder.program(JUSTAPI, &["infer", "chat", "--model", "chat.gguf"]);
    let mut child = command
        .env("TERM", "xterm")
        .stdin(side())
        .stdout(side())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(command);
    for _ in 0..2 {
        let mut shown = Vec::new();
        // Once the prompt is there, keys are read one by one.
        while !String::from_utf8_lossy(&shown).contains("> ") {
            let mut part = [0; 64];
            let count = keys.read(&mut part).unwrap();
            shown.extend_from_slice(&part[..count]);
        }
        keys.write_all(b"\x03").unwrap();
    }
    let mut said = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{said}");
    assert!(said.contains("Ctrl-C again leaves"), "{said}");
}

#[test]
fn vectors_have_length_one_and_the_same_text_the_same() {
    let folder = folder();
    let arguments = [
        "infer",
        "embed",
        "--model",
        "chat.gguf",
        "--json",
        "one",
        "two",
        "one",
    ];
    let document = run(&folder, &arguments, "").expect(0).json();
    let entries = document["embeddings"].as_array().unwrap();
    assert_eq!(entries.len(), 3);
    assert_eq!(entries[0]["embedding"], entries[2]["embedding"]);
    assert_ne!(entries[0]["embedding"], entries[1]["embedding"]);
    let numbers = entries[0]["embedding"].as_array().unwrap();
    let square: f64 = numbers
        .iter()
        .map(|number| number.as_f64().unwrap().powi(2))
        .sum();
    assert!((square - 1.0).abs() < 1e-5, "{square}");
    let from_input = run(
        &folder,
        &["infer", "embed", "--model", "chat.gguf"],
        "one\ntwo\n",
    )
    .expect(0);
    assert_eq!(from_input.stdout.lines().count(), 2);
    run(&folder, &["infer", "embed", "--model", "chat.gguf"], "").expect(2);
}

#[test]
fn perplexity_is_a_number_of_the_text_and_not_of_its_windows_order() {
    let folder = folder().with("text.txt", "a text that is neither long nor short");
    let arguments = [
        "infer",
        "perplexity",
        "--model",
        "base.gguf",
        "text.txt",
        "--json",
    ];
    let document = run(&folder, &arguments, "").expect(0).json();
    let value = document["perplexity"].as_f64().unwrap();
    // Noise is at least as surprised as someone who knows nothing: 258 tokens.
    assert!(value > 50.0 && value.is_finite(), "{document}");
    assert_eq!(document["tokens"], 36);
    let from_input = ["infer", "perplexity", "--model", "base.gguf", "-", "--json"];
    let again = run(
        &folder,
        &from_input,
        "a text that is neither long nor short",
    )
    .expect(0)
    .json();
    assert_eq!(again["perplexity"], document["perplexity"]);
    run(
        &folder,
        &["infer", "perplexity", "--model", "base.gguf", "none.txt"],
        "",
    )
    .expect(2);
    run(
        &folder,
        &["infer", "perplexity", "--model", "base.gguf", "-"],
        "a",
    )
    .expect(2);
}

#[test]
fn a_bench_has_medians_and_every_run() {
    let folder = folder();
    let arguments = [
        "infer",
        "bench",
        "--model",
        "chat.gguf",
        "--json",
        "-p",
        "8,32",
        "-n",
        "4",
        "-r",
        "3",
    ];
    let document = run(&folder, &arguments, "").expect(0).json();
    let cells = document["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 2);
    for cell in cells {
        for figure in [
            "prompt_tokens_per_second",
            "generated_tokens_per_second",
            "ttft_seconds",
        ] {
            let figure = &cell[figure];
            assert_eq!(figure["runs"].as_array().unwrap().len(), 3);
            let of = |key: &str| figure[key].as_f64().unwrap();
            assert!(of("min") <= of("median") && of("median") <= of("max") && of("min") > 0.0);
        }
    }
}

#[test]
fn an_inspection_counts_every_tensor() {
    let folder = folder();
    let arguments = [
        "infer",
        "inspect",
        "--model",
        "chat.gguf",
        "--json",
        "--tensors",
    ];
    let document = run(&folder, &arguments, "").expect(0).json();
    assert_eq!(document["types"]["F32"]["tensors"], 12);
    assert_eq!(document["tensors"].as_array().unwrap().len(), 12);
    assert_eq!(
        document["memory"]["weights"],
        document["types"]["F32"]["bytes"]
    );
    assert_eq!(document["chat_template"], true);
    // Keys and values of one head of 16 in one layer, two bytes each.
    assert_eq!(document["memory"]["kv_bytes_per_token"], 64);
    let text = run(&folder, &["infer", "inspect", "--model", "base.gguf"], "")
        .expect(0)
        .stdout;
    assert!(text.contains("no: a base model"), "{text}");
}

#[test]
fn a_served_model_answers_openai_clients() {
    let folder = folder();
    let served = folder
        .serve("--model chat.gguf --served-model-name tiny --port 0 --max-seqs 4 --scheduled");
    let models = served.get("/v1/models");
    assert!(models.contains("\"tiny\""), "{models}");
    let request = r#"{"model":"tiny","messages":[{"role":"user","content":"Hi"}],"max_tokens":4}"#;
    let answer = served.send(&format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{request}",
        request.len()
    ));
    let answer: Value = serde_json::from_str(body(&answer)).unwrap();
    assert_eq!(answer["object"], "chat.completion", "{answer}");
    assert!(served.get("/metrics").contains("vllm:"), "vLLM's names");
    served.stop(Signal::TERM).expect(0);
}

#[test]
fn what_does_not_go_with_a_model_is_refused() {
    let folder = folder()
        .with("keys", "secret\n")
        .with("main.py", "app = 1\n");
    let refused = folder.run("serve main.py --model chat.gguf").expect(2);
    assert!(
        refused.stderr.contains("two things to serve"),
        "{refused:?}"
    );
    let refused = folder
        .run("serve --model chat.gguf --gpu --port 0")
        .expect(6);
    assert!(refused.stderr.contains("error[JA426]"), "{refused:?}");
    let refused = folder
        .run("serve --model chat.gguf --api-key-file keys --port 0")
        .expect(3);
    assert!(refused.stderr.contains("error[JA428]"), "{refused:?}");
    folder.run("serve --model chat.gguf --check").expect(0);
}
