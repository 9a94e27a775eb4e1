//! The routes over real sockets, on a scripted engine: it plays the other side
//! of [`Command`], so that every event and every refusal comes when a test says.
//!
//! The tokenizer is real: byte-level BPE, where token `n` below 256 is the byte
//! `n`, and a few merges and special tokens stand above.

mod answers;
mod guarding;
mod prompts;
mod requests;
mod status;
mod streams;

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use justapi_core::{BoundAddress, Limits, Listen, Running, Server};
use serde_json::{Value, json};
use socket2::SockRef;
use tokio::sync::mpsc::Sender;

use super::{ApiOptions, ServedModel, routes};
use crate::{
    Activation, ChatTemplate, Command, Engine, EngineEvent, EngineRequest, EngineStats,
    FinishReason, GgufTokenizer, ModelConfig, NormPlacement, Refusal, RopeConfig, RopePairing,
    RopeScaling, SequenceId, TokenId, TokenLogprobs, Tokenizer, Usage,
};

/// `<|im_start|>`, behind 256 bytes and [`MERGES`].
const IM_START: TokenId = 260;
/// `<|im_end|>`, which ends a text.
const IM_END: TokenId = 261;
const VOCAB_SIZE: usize = 262;
const CONTEXT: usize = 100;
/// Tokens of the chat that [`chat_body`] makes.
const NUM_CHAT_TOKENS: u32 = 21;
/// `hello` is token 259.
const MERGES: [&str; 4] = ["h e", "l l", "he ll", "hell o"];

const TEMPLATE: &str = "{% for message in messages %}\
{% if message.role == 'assistant' and loop.first %}{{ raise_exception('an assistant begins') }}{% endif %}\
{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}\
{% endfor %}\
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/// What the scripted engine does with a request.
enum Reply {
    Refuse(Refusal),
    /// Sends these; the last is the end.
    Events(Vec<EngineEvent>),
    /// Sends these, and then nothing until the request is given up.
    Hold(Vec<EngineEvent>),
    /// Sends the first, waits for a word, and sends the others.
    Later(Vec<EngineEvent>, mpsc::Receiver<()>, Vec<EngineEvent>),
    /// Sends these, and then dies as far as this request can tell.
    Die(Vec<EngineEvent>),
}

/// Answers the n-th request.
type Script = Box<dyn Fn(usize, &EngineRequest) -> Reply + Send>;

/// What the engine has been asked.
#[derive(Default)]
struct Log {
    requests: Vec<EngineRequest>,
    aborted: Vec<SequenceId>,
    embedded: Vec<Vec<TokenId>>,
}

struct Site {
    address: SocketAddr,
    log: Arc<Mutex<Log>>,
    engine: Engine,
    model: Arc<ServedModel>,
    running: Option<Running>,
    engine_thread: Option<thread::JoinHandle<()>>,
}

/// How a site differs from the usual one.
#[derive(Default)]
struct Setup {
    options: ApiOptions,
    has_no_template: bool,
    adds_bos: bool,
    limits: Limits,
    stats: EngineStats,
}

impl Site {
    /// A site whose engine answers each request with these texts, a token each.
    fn answering(texts: &'static [&'static str]) -> Self {
        Self::scripted(move |_, request| Reply::Events(said(texts, request)))
    }

    fn scripted(script: impl Fn(usize, &EngineRequest) -> Reply + Send + 'static) -> Self {
        Self::new(Setup::default(), Box::new(script))
    }

    fn new(setup: Setup, script: Script) -> Self {
        let (commands, received) = mpsc::channel();
        let log = Arc::default();
        let engine = Engine::new(commands, Arc::new(Mutex::new(setup.stats)), CONTEXT);
        let engine_log = Arc::clone(&log);
        let engine_thread = thread::spawn(move || run_engine(&received, &engine_log, &script));
        let tokenizer = Arc::new(tokenizer(setup.adds_bos));
        let template = (!setup.has_no_template)
            .then(|| ChatTemplate::new(TEMPLATE, &tokenizer).expect("a valid template"));
        let mut model =
            ServedModel::new("tiny", engine.clone(), tokenizer, template, model_config());
        model.aliases = vec!["org/tiny".to_owned()];
        model.created = 1_700_000_000;
        let model = Arc::new(model);
        let metrics = Arc::clone(&model);
        let router = routes(&model, setup.options).expect("the patterns are valid");
        let server = Server::new(router)
            .limits(setup.limits)
            .metrics_source(move || metrics.render_metrics())
            .listen(Listen::Tcp(([127, 0, 0, 1], 0).into()));
        let running = server.start().expect("a free port");
        let BoundAddress::Tcp { address, .. } = running.addresses()[0] else {
            unreachable!("a TCP address was asked for");
        };
        Self {
            address,
            log,
            engine,
            model,
            running: Some(running),
            engine_thread: Some(engine_thread),
        }
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one request that the engine has been given.
    #[track_caller]
    fn request(&self) -> EngineRequest {
        let log = self.log();
        assert_eq!(log.requests.len(), 1, "requests");
        log.requests[0].clone()
    }

    /// Sends a request whose head has these further lines.
    fn send(&self, method: &str, path: &str, lines: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).expect("a listener");
        let timeout = Some(Duration::from_secs(20));
        stream.set_read_timeout(timeout).expect("a valid time");
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{lines}\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .expect("a peer");
        stream
    }

    fn call(&self, method: &str, path: &str, lines: &str, body: &str) -> Answer {
        let mut stream = self.send(method, path, lines, body);
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("a response");
        Answer::parse(&bytes)
    }

    fn get(&self, path: &str) -> Answer {
        self.call("GET", path, "", "")
    }

    fn post(&self, path: &str, body: &str) -> Answer {
        self.call("POST", path, "Content-Type: application/json\r\n", body)
    }

    /// Begins a request and does not wait for its answer.
    fn begin(&self, path: &str, body: &str) -> TcpStream {
        self.send("POST", path, "Content-Type: application/json\r\n", body)
    }

    fn chat(&self, members: &str) -> Answer {
        self.post("/v1/chat/completions", &chat_body(members))
    }

    fn complete(&self, members: &str) -> Answer {
        self.post("/v1/completions", &format!("{{{members}}}"))
    }

    /// Waits until the engine's log says so.
    #[track_caller]
    fn eventually(&self, what: &str, mut done: impl FnMut(&Log) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !done(&self.log()) {
            assert!(Instant::now() < deadline, "never: {what}");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.engine.stop();
        if let Some(running) = self.running.take() {
            running.drain();
        }
        if let Some(thread) = self.engine_thread.take() {
            let ended = thread.join();
            if !thread::panicking() {
                ended.expect("the engine has not panicked");
            }
        }
    }
}

fn chat_body(members: &str) -> String {
    let comma = if members.is_empty() { "" } else { "," };
    format!(r#"{{"messages":[{{"role":"user","content":"hi"}}]{comma}{members}}}"#)
}

fn run_engine(commands: &mpsc::Receiver<Command>, log: &Mutex<Log>, script: &Script) {
    let lock = || log.lock().unwrap_or_else(PoisonError::into_inner);
    // Kept open: who holds them goes on waiting.
    let mut held: Vec<(SequenceId, Sender<EngineEvent>)> = Vec::new();
    for command in commands {
        match command {
            Command::Submit {
                request,
                events,
                accepted,
            } => {
                let index = {
                    let mut log = lock();
                    log.requests.push((*request).clone());
                    log.requests.len() - 1
                };
                let id = SequenceId(index as u64);
                let reply = script(index, &request);
                if let Reply::Refuse(refusal) = reply {
                    drop(accepted.send(Err(refusal)));
                    continue;
                }
                drop(accepted.send(Ok(id)));
                match reply {
                    Reply::Refuse(_) => {}
                    Reply::Events(sent) | Reply::Die(sent) => send_all(&events, sent),
                    Reply::Hold(sent) => {
                        send_all(&events, sent);
                        held.push((id, events));
                    }
                    Reply::Later(first, word, then) => {
                        send_all(&events, first);
                        thread::spawn(move || {
                            if word.recv().is_ok() {
                                send_all(&events, then);
                            }
                        });
                    }
                }
            }
            Command::Abort(id) => {
                held.retain(|(held, _)| *held != id);
                lock().aborted.push(id);
            }
            Command::Embed { tokens, result } => {
                // The first token, and how many there are.
                let state = vec![tokens[0] as f32, tokens.len() as f32, 0.0, 0.0];
                lock().embedded.push(tokens);
                drop(result.send(Ok(state)));
            }
            Command::Wake => {}
            Command::Stop => return,
        }
    }
}

fn send_all(events: &Sender<EngineEvent>, sent: Vec<EngineEvent>) {
    for event in sent {
        events.try_send(event).expect("room for every event");
    }
}

/// Events of an answer of these texts; each is a token, its first byte.
fn said(texts: &[&str], request: &EngineRequest) -> Vec<EngineEvent> {
    let mut events: Vec<_> = texts
        .iter()
        .map(|text| token(u32::from(*text.as_bytes().first().unwrap_or(&0)), text))
        .collect();
    events.push(finished(FinishReason::Stop, "", request, texts.len()));
    events
}

fn token(id: TokenId, text: &str) -> EngineEvent {
    EngineEvent::Token {
        id,
        text: text.to_owned(),
        logprobs: None,
    }
}

fn finished(
    reason: FinishReason,
    text: &str,
    request: &EngineRequest,
    num_tokens: usize,
) -> EngineEvent {
    EngineEvent::Finished {
        reason,
        text: text.to_owned(),
        usage: Usage {
            num_prompt_tokens: request.prompt.len() as u32,
            num_cached_tokens: 2,
            num_completion_tokens: num_tokens as u32,
        },
    }
}

/// A token with its log-probability and the greatest there.
fn likely(token: TokenId, logprob: f32, top: &[(TokenId, f32)]) -> TokenLogprobs {
    TokenLogprobs {
        token,
        logprob,
        top: top.to_vec(),
    }
}

/// A response, without its framing.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    #[track_caller]
    fn parse(bytes: &[u8]) -> Self {
        let text = std::str::from_utf8(bytes).expect("an answer is UTF-8");
        let (head, rest) = text.split_once("\r\n\r\n").expect("a whole head");
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        let head = head.to_ascii_lowercase();
        let body = if head.contains("transfer-encoding: chunked") {
            unchunk(rest)
        } else {
            rest.to_owned()
        };
        Self {
            status: status.expect("a status"),
            head,
            body,
        }
    }

    fn has_line(&self, line: &str) -> bool {
        self.head.lines().any(|found| found == line)
    }

    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {}", self.body))
    }

    /// Checks that it is an error of this status, code and parameter.
    #[track_caller]
    fn refused(&self, status: u16, code: Option<&str>, param: Option<&str>) {
        assert_eq!(self.status, status, "{}", self.body);
        assert!(
            self.has_line("content-type: application/json"),
            "{}",
            self.head
        );
        let error = &self.json()["error"];
        let keys: Vec<_> = error.as_object().expect("an object").keys().collect();
        for key in ["message", "type", "param", "code"] {
            assert!(keys.contains(&&key.to_owned()), "{key} in {error}");
        }
        assert_eq!(error["code"], json!(code), "{error}");
        assert_eq!(error["param"], json!(param), "{error}");
    }

    /// The body with `ID` and `0` for what differs from answer to answer.
    #[track_caller]
    fn stable(&self) -> String {
        assert_eq!(self.status, 200, "{}", self.body);
        let mut text = self.body.clone();
        for prefix in ["\"id\":\"chatcmpl-", "\"id\":\"cmpl-"] {
            while let Some(start) = text.find(prefix) {
                let digits = start + prefix.len();
                assert_eq!(text[digits..].find('"'), Some(32), "32 digits");
                text.replace_range(start..digits + 32, "\"id\":\"ID");
            }
        }
        let prefix = "\"created\":1";
        while let Some(start) = text.find(prefix) {
            let digits = start + prefix.len() - 1;
            let length = text[digits..].find(',').expect("a further member");
            text.replace_range(digits..digits + length, "0");
        }
        text
    }

    /// The data of every event, parsed; checks that `[DONE]` is the last.
    #[track_caller]
    fn chunks(&self) -> Vec<Value> {
        assert_eq!(self.status, 200, "{}", self.body);
        assert!(
            self.has_line("content-type: text/event-stream"),
            "{}",
            self.head
        );
        let events = self.body.strip_suffix("data: [DONE]\n\n").expect("an end");
        assert!(!events.contains("[DONE]"), "one end");
        let data = events.split_terminator("\n\n").map(|event| {
            let data = event.strip_prefix("data: ").expect("data alone");
            serde_json::from_str(data).expect("JSON")
        });
        data.collect()
    }
}

fn unchunk(mut rest: &str) -> String {
    let mut body = String::new();
    loop {
        let (size, after) = rest.split_once("\r\n").expect("a size");
        let size = usize::from_str_radix(size, 16).expect("hexadecimal digits");
        if size == 0 {
            return body;
        }
        body += &after[..size];
        rest = after[size..]
            .strip_prefix("\r\n")
            .expect("the end of a chunk");
    }
}

/// GPT-2's character for a byte (its `bytes_to_unicode`).
fn byte_character(byte: u8) -> char {
    let is_own = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if is_own(byte) {
        return char::from(byte);
    }
    let num_before = (0..byte).filter(|byte| !is_own(*byte)).count() as u32;
    char::from_u32(256 + num_before).expect("below the surrogates")
}

fn tokenizer(adds_bos: bool) -> Tokenizer {
    let bytes = (0..=255).map(|byte| byte_character(byte).to_string());
    let merged = MERGES.iter().map(|merge| merge.replace(' ', ""));
    let special = ["<|im_start|>", "<|im_end|>"].map(str::to_owned);
    let tokens: Vec<String> = bytes.chain(merged).chain(special).collect();
    assert_eq!(tokens.len(), VOCAB_SIZE);
    let kind_of = |index| if index < IM_START as usize { 1 } else { 3 };
    Tokenizer::from_gguf(GgufTokenizer {
        model: "gpt2".to_owned(),
        pre: Some("smollm".to_owned()),
        token_types: (0..VOCAB_SIZE).map(kind_of).collect(),
        tokens,
        merges: MERGES.map(str::to_owned).to_vec(),
        bos: Some(IM_START),
        eos: Some(IM_END),
        add_bos: Some(adds_bos),
        ..GgufTokenizer::default()
    })
    .expect("lists that fit together")
}

fn model_config() -> ModelConfig {
    ModelConfig {
        architecture: "llama".to_owned(),
        vocab_size: VOCAB_SIZE,
        hidden_size: 4,
        intermediate_size: 8,
        num_hidden_layers: 1,
        num_attention_heads: 1,
        num_key_value_heads: 1,
        head_dim: 4,
        max_position_embeddings: CONTEXT,
        rms_norm_eps: 1e-5,
        norm_weight_is_offset: false,
        norm_placement: NormPlacement::Before,
        qk_norm: false,
        attention_bias: false,
        hidden_act: Activation::Silu,
        rope: RopeConfig {
            theta: 10_000.0,
            num_rotated: 4,
            pairing: RopePairing::Interleaved,
            scaling: RopeScaling::None,
        },
        local_rope: None,
        sliding_window: None,
        layer_is_local: vec![false],
        embedding_scale: 1.0,
        attention_scale: 0.5,
        attn_logit_softcapping: None,
        final_logit_softcapping: None,
        tie_word_embeddings: true,
        bos_token_id: Some(IM_START),
        eos_token_ids: vec![IM_END],
    }
}

/// Tokens of a text without merges.
fn bytes_of(text: &str) -> Vec<TokenId> {
    text.bytes().map(u32::from).collect()
}

/// `<|im_start|>role\ncontent<|im_end|>\n` of each, and the begin of an answer.
fn chat_tokens(messages: &[(&str, &str)]) -> Vec<TokenId> {
    let tokenizer = tokenizer(false);
    let mut text = String::new();
    let mut tokens = Vec::new();
    for (role, content) in messages {
        text.clear();
        write!(text, "{role}\n{content}").expect("memory");
        tokens.push(IM_START);
        tokens.extend(tokenizer.encode(&text, crate::SpecialTokens::AsText));
        tokens.push(IM_END);
        tokens.push(10);
    }
    tokens.push(IM_START);
    tokens.extend(bytes_of("assistant\n"));
    tokens
}

/// Leaves as a client that is killed does: by a reset.
fn leave(stream: TcpStream) {
    let socket = SockRef::from(&stream);
    socket.set_linger(Some(Duration::ZERO)).expect("a socket");
    drop(stream);
}
