//! An app on justapi's library, for what `justapi serve` has no route of its own.
//!
//! `/feed` sends what is posted to it to everybody who listens, and `/document` answers with a
//! JSON file. Who codes it is an argument, so that the cost of each way can be told apart; all
//! ways answer with the same bytes, which the bench checks. Takes `--addr HOST:PORT`, then
//! perhaps `--document FILE` and `--coded-by server|handler|nobody`, or `--version`.

mod version;

use std::cell::RefCell;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use brotli::CompressorWriter;
use brotli::enc::BrotliEncoderParams;
use bytes::Bytes;
use flate2::{Compress, FlushCompress, Status};
use justapi_core::{
    BROTLI_LEVEL, BodyError, Compression, Event, EventBroadcast, GZIP_LEVEL, HeaderValue, Listen,
    Request, Response, Router, Server, StatusCode, ZSTD_LEVEL, header, inline,
};
use zstd::bulk::Compressor;
use zstd::zstd_safe::{CParameter, compress_bound};

use self::version::print_version;

/// Events that a slow listener may be behind before its stream breaks off.
const FEED_EVENTS: usize = 256;

/// Windows of the server's encoders, as powers of two.
const WINDOW_BITS: u8 = 18;
const GZIP_WINDOW_BITS: u8 = 15;

/// Output that brotli's writer passes on at a time.
const BUFFER_BYTES: usize = 4096;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const ACCEPT_ENCODING: HeaderValue = HeaderValue::from_static("Accept-Encoding");

const USAGE: &str = "usage: app-justapi --addr HOST:PORT \
                     [--document FILE [--coded-by server|handler|nobody]]";

/// Who gives the document its content coding.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CodedBy {
    /// The server, as `serve --compression on` does.
    Server,
    /// The handler, which calls the library for each request.
    Handler,
    /// It was done before the server started.
    Nobody,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut arguments = arguments.iter().map(String::as_str);
    let (mut address, mut document, mut coded_by) = (None, Vec::new(), CodedBy::Server);
    while let Some(name) = arguments.next() {
        if name == "--version" {
            return Ok(print_version("app-justapi")?);
        }
        let value = arguments.next().ok_or(USAGE)?;
        match (name, value) {
            ("--addr", _) => address = Some(value.parse::<SocketAddr>()?),
            ("--document", _) => document = std::fs::read(value)?,
            ("--coded-by", "server") => coded_by = CodedBy::Server,
            ("--coded-by", "handler") => coded_by = CodedBy::Handler,
            ("--coded-by", "nobody") => coded_by = CodedBy::Nobody,
            _ => return Err(USAGE.into()),
        }
    }
    let router = router(document.into(), coded_by)?;
    let server = Server::new(router).listen(Listen::Tcp(address.ok_or(USAGE)?));
    let server = match coded_by {
        CodedBy::Server => server.compression(Compression::new()),
        CodedBy::Handler | CodedBy::Nobody => server,
    };
    Ok(server.run()?)
}

fn router(document: Bytes, coded_by: CodedBy) -> Result<Router, justapi_core::Error> {
    let broadcast = EventBroadcast::new(FEED_EVENTS);
    let feed = broadcast.clone();
    let last_id = AtomicU64::new(0);
    let ahead = ["gzip", "br", "zstd"].map(|coding| (coding, Bytes::from(code(coding, &document))));
    Router::new()
        .get(
            "/feed",
            inline(move |request: Request| feed.subscribe(request.last_event_id())),
        )?
        .post("/feed", move |request: Request| {
            let id = last_id.fetch_add(1, Ordering::Relaxed) + 1;
            post_to_feed(broadcast.clone(), id, request)
        })?
        .get(
            "/document",
            inline(move |request: Request| {
                let wanted = request.headers().get(header::ACCEPT_ENCODING);
                let wanted = wanted.and_then(|value| value.to_str().ok());
                match (coded_by, wanted) {
                    (CodedBy::Handler, Some(coding)) => {
                        coded(coding, code(coding, &document).into())
                    }
                    (CodedBy::Nobody, Some(coding)) => {
                        let known = ahead.iter().find(|(name, _)| *name == coding);
                        known.map_or_else(
                            || Response::new(StatusCode::NOT_ACCEPTABLE),
                            |(_, bytes)| coded(coding, bytes.clone()),
                        )
                    }
                    _ => Response::with_content(JSON, document.clone().into()),
                }
            }),
        )
}

async fn post_to_feed(
    feed: EventBroadcast,
    id: u64,
    request: Request,
) -> Result<StatusCode, BodyError> {
    let bytes = request.into_body().bytes().await?;
    let Ok(text) = String::from_utf8(bytes.into()) else {
        return Ok(StatusCode::BAD_REQUEST);
    };
    let event = Event::new().with_id(id.to_string());
    feed.send(event.expect("digits are an id").with_data(text));
    Ok(StatusCode::NO_CONTENT)
}

fn coded(coding: &str, body: Bytes) -> Response {
    let coding = HeaderValue::from_str(coding).expect("it came in a header");
    Response::with_content(JSON, body.into())
        .with_header(header::CONTENT_ENCODING, coding)
        .with_header(header::VARY, ACCEPT_ENCODING)
}

/// The encoders of a handler that calls the libraries itself.
struct Encoders {
    gzip: Compress,
    zstd: Compressor<'static>,
}

impl Encoders {
    fn new() -> io::Result<Self> {
        let mut zstd = Compressor::new(ZSTD_LEVEL.into())?;
        zstd.set_parameter(CParameter::WindowLog(WINDOW_BITS.into()))?;
        let level = flate2::Compression::new(GZIP_LEVEL.into());
        Ok(Self {
            gzip: Compress::new_gzip(level, GZIP_WINDOW_BITS),
            zstd,
        })
    }
}

thread_local! {
    static ENCODERS: RefCell<Encoders> =
        RefCell::new(Encoders::new().expect("there is memory for two encoders"));
}

/// The library's call for one document, with an encoder that is used again where it can be.
fn code(coding: &str, document: &[u8]) -> Vec<u8> {
    match coding {
        "gzip" => ENCODERS.with_borrow_mut(|encoders| {
            let mut out = Vec::with_capacity(document.len() + 128);
            let status = (encoders.gzip).compress_vec(document, &mut out, FlushCompress::Finish);
            assert_eq!(
                status.ok(),
                Some(Status::StreamEnd),
                "there is room for all"
            );
            encoders.gzip.reset();
            out
        }),
        "br" => {
            let parameters = BrotliEncoderParams {
                quality: BROTLI_LEVEL.into(),
                lgwin: WINDOW_BITS.into(),
                ..BrotliEncoderParams::default()
            };
            let out = Vec::with_capacity(document.len() / 2);
            // Given all at once, the library needs no ring buffer for what may follow.
            let mut writer = CompressorWriter::with_params(out, BUFFER_BYTES, &parameters);
            writer.write_all(document).expect("memory to memory");
            writer.into_inner()
        }
        _ => ENCODERS.with_borrow_mut(|encoders| {
            let mut out = Vec::with_capacity(compress_bound(document.len()));
            (encoders.zstd)
                .compress_to_buffer(document, &mut out)
                .expect("there is room for all");
            out
        }),
    }
}
