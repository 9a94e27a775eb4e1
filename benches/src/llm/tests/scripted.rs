//! A model server that plays scripts over a real socket, and remembers what it was asked.

use std::io::{self, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

/// What the server does on a connection.
#[derive(Debug, Clone)]
pub(super) enum Act {
    /// Writes bytes as they are, in one piece.
    Raw(Vec<u8>),
    /// Writes the head of an event stream, chunked.
    Head,
    /// Writes bytes of the stream as one chunk of the transfer coding.
    Chunk(Vec<u8>),
    /// Ends the chunked message.
    End,
    /// Waits.
    Pause(u64),
    /// Closes the connection.
    Close,
}

/// A request as it came.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) path: String,
    pub(super) body: Value,
    pub(super) authorization: Option<String>,
    /// Number of the connection, from 0.
    pub(super) connection: usize,
}

impl Asked {
    /// The text of the last message.
    pub(super) fn prompt(&self) -> &str {
        let messages = self.body["messages"].as_array();
        let last = messages.and_then(|messages| messages.last());
        last.and_then(|message| message["content"].as_str())
            .unwrap_or_default()
    }

    fn is_completion(&self) -> bool {
        self.path.ends_with("/v1/chat/completions")
    }
}

type Script = dyn Fn(&Asked) -> Vec<Act> + Send + Sync;

/// What a scripted server offers beside completions.
#[derive(Debug, Clone, Default)]
pub(super) struct Offer {
    /// Whether it counts tokens.
    pub(super) no_counter: bool,
    /// Whether it speaks TLS.
    pub(super) tls: Option<Arc<rustls::ServerConfig>>,
}

/// A scripted server; it ends with the test's process.
pub(super) struct Scripted {
    pub(super) address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Scripted {
    /// Serves, completions by `script`.
    pub(super) fn start(script: impl Fn(&Asked) -> Vec<Act> + Send + Sync + 'static) -> Self {
        Self::offering(Offer::default(), script)
    }

    /// Serves what is offered.
    pub(super) fn offering(
        offer: Offer,
        script: impl Fn(&Asked) -> Vec<Act> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (shared, script) = (Arc::clone(&asked), Arc::new(script));
        thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let (shared, script) = (Arc::clone(&shared), Arc::clone(&script));
                let (stream, offer) = (stream.unwrap(), offer.clone());
                thread::spawn(move || {
                    stream.set_nodelay(true).unwrap();
                    let play = Play {
                        number,
                        no_counter: offer.no_counter,
                        asked: &shared,
                        script: &*script,
                    };
                    // A client that leaves ends its connection and nothing else.
                    match offer.tls {
                        Some(config) => {
                            let connection = rustls::ServerConnection::new(config).unwrap();
                            let stream = rustls::StreamOwned::new(connection, stream);
                            play.serve(BufReader::new(stream)).ok();
                        }
                        None => {
                            play.serve(BufReader::new(stream)).ok();
                        }
                    }
                });
            }
        });
        Self { address, asked }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Completions that were asked for, in their order.
    pub(super) fn completions(&self) -> Vec<Asked> {
        let asked = self.asked.lock().unwrap();
        asked
            .iter()
            .filter(|asked| asked.is_completion())
            .cloned()
            .collect()
    }
}

/// One connection.
struct Play<'a> {
    number: usize,
    no_counter: bool,
    asked: &'a Mutex<Vec<Asked>>,
    script: &'a Script,
}

impl Play<'_> {
    fn serve<S: io::Read + io::Write>(&self, mut reader: BufReader<S>) -> io::Result<()> {
        while let Some(mut request) = read_request(&mut reader)? {
            request.connection = self.number;
            self.asked.lock().unwrap().push(request.clone());
            let acts = if request.is_completion() {
                (self.script)(&request)
            } else {
                vec![Act::Raw(answer(&request, self.no_counter))]
            };
            let stream = reader.get_mut();
            for act in acts {
                match act {
                    Act::Raw(bytes) => stream.write_all(&bytes)?,
                    Act::Head => stream.write_all(
                        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                          transfer-encoding: chunked\r\n\r\n",
                    )?,
                    Act::Chunk(bytes) => {
                        let mut framed = format!("{:x}\r\n", bytes.len()).into_bytes();
                        framed.extend_from_slice(&bytes);
                        framed.extend_from_slice(b"\r\n");
                        stream.write_all(&framed)?;
                    }
                    Act::End => stream.write_all(b"0\r\n\r\n")?,
                    Act::Pause(milliseconds) => {
                        stream.flush()?;
                        thread::sleep(Duration::from_millis(milliseconds));
                    }
                    Act::Close => return Ok(()),
                }
            }
            stream.flush()?;
        }
        Ok(())
    }
}

fn read_request(reader: &mut impl io::BufRead) -> io::Result<Option<Asked>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let (mut length, mut authorization) = (0, None);
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim().split_once(':') else {
            break;
        };
        match name.to_lowercase().as_str() {
            "content-length" => length = value.trim().parse().unwrap(),
            "authorization" => authorization = Some(value.trim().to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some(Asked {
        path,
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
        authorization,
        connection: 0,
    }))
}

/// Answers of everything but completions.
fn answer(request: &Asked, no_counter: bool) -> Vec<u8> {
    let document = match request.path.as_str() {
        "/v1/models" => json!({"data": [{"id": "scripted", "max_model_len": 100_000}]}),
        "/health" => json!({"status": "ok"}),
        "/v1/messages/count_tokens" if !no_counter => {
            let messages = request.body["messages"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            json!({"input_tokens": count_tokens(&messages)})
        }
        _ => {
            return b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_vec();
        }
    };
    respond(200, &document)
}

/// A JSON response.
pub(super) fn respond(status: u16, document: &Value) -> Vec<u8> {
    let body = document.to_string();
    format!(
        "HTTP/1.1 {status} Status\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// A tokenizer: 7 tokens for each message, one for each word, a second for long ones.
pub(super) fn count_tokens(messages: &[Value]) -> u64 {
    let texts = messages
        .iter()
        .filter_map(|message| message["content"].as_str());
    texts
        .map(|text| {
            let words = text.split_whitespace();
            7 + words.map(|word| 1 + u64::from(word.len() > 6)).sum::<u64>()
        })
        .sum()
}

/// An event of a stream.
pub(super) fn event(data: &Value) -> Vec<u8> {
    format!("data: {data}\n\n").into_bytes()
}

/// An event with content.
pub(super) fn content(text: &str) -> Vec<u8> {
    event(&json!({"choices": [{"delta": {"content": text}}]}))
}

/// The role-only event that most servers begin with.
pub(super) fn role() -> Vec<u8> {
    event(&json!({"choices": [{"delta": {"role": "assistant", "content": ""}}]}))
}

/// The event that says why it ended.
pub(super) fn finish() -> Vec<u8> {
    event(&json!({"choices": [{"delta": {}, "finish_reason": "length"}]}))
}

/// The event that has the counts and nothing else.
pub(super) fn usage(prompt: u64, completion: u64, cached: Option<u64>) -> Vec<u8> {
    let mut usage = json!({"prompt_tokens": prompt, "completion_tokens": completion});
    if let Some(cached) = cached {
        usage["prompt_tokens_details"] = json!({"cached_tokens": cached});
    }
    event(&json!({"choices": [], "usage": usage}))
}

/// The end of a stream.
pub(super) fn done() -> Vec<u8> {
    b"data: [DONE]\n\n".to_vec()
}

/// A whole, well-behaved answer of as many tokens as were asked for.
pub(super) fn good(asked: &Asked, cached: Option<u64>, gap_ms: u64) -> Vec<Act> {
    let tokens = asked.body["max_tokens"].as_u64().unwrap_or(1);
    let messages = asked.body["messages"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    if asked.body["stream"] != json!(true) {
        let usage = json!({"prompt_tokens": count_tokens(&messages), "completion_tokens": tokens});
        return vec![Act::Raw(respond(200, &json!({"usage": usage})))];
    }
    let mut acts = vec![Act::Head, Act::Chunk(role())];
    for index in 0..tokens {
        if gap_ms > 0 {
            acts.push(Act::Pause(gap_ms));
        }
        acts.push(Act::Chunk(content(&format!("t{index} "))));
    }
    acts.extend([
        Act::Chunk(finish()),
        Act::Chunk(usage(count_tokens(&messages), tokens, cached)),
        Act::Chunk(done()),
        Act::End,
    ]);
    acts
}
