//! The bare hyper peer: hyper's HTTP/1 connection and one `match`, nothing above it.
//!
//! What the HTTP library alone costs: the floor for everything built on it. Default connection
//! settings, as in hyper's own examples, and `TCP_NODELAY`. Takes `--addr HOST:PORT` or
//! `--version`; prints nothing else.

mod version;

use std::convert::Infallible;
use std::io;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use tokio::net::TcpListener;

use self::version::print_version;

#[derive(Serialize)]
struct Hello {
    message: &'static str,
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let address = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--addr", address] => address.to_owned(),
        ["--version"] => return print_version("peer-hyper"),
        _ => return Err(io::Error::other("usage: peer-hyper --addr HOST:PORT")),
    };
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(serve(&address))
}

async fn serve(address: &str) -> io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    loop {
        // A connection that was reset before it was accepted is not the listener's failure.
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        stream.set_nodelay(true).ok();
        tokio::spawn(async move {
            // A client that leaves in the middle of a request is not worth a word.
            http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(stream), service_fn(answer))
                .await
                .ok();
        });
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(match (request.method(), request.uri().path()) {
        (&Method::GET, "/hello") => json(&Hello { message: "hello" }),
        (&Method::POST, "/echo") => echo(request.into_body()).await,
        _ => status(StatusCode::NOT_FOUND),
    })
}

async fn echo(body: Incoming) -> Response<Full<Bytes>> {
    let Ok(body) = body.collect().await else {
        return status(StatusCode::BAD_REQUEST);
    };
    match serde_json::from_slice::<serde_json::Value>(&body.to_bytes()) {
        Ok(value) => json(&value),
        Err(_) => status(StatusCode::BAD_REQUEST),
    }
}

fn json(value: &impl Serialize) -> Response<Full<Bytes>> {
    let Ok(body) = serde_json::to_vec(value) else {
        return status(StatusCode::INTERNAL_SERVER_ERROR);
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn status(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}
