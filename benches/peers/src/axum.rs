//! The axum peer: the same two routes as a careful axum user writes them.
//!
//! One current-thread runtime, `axum::serve` with `TCP_NODELAY`, typed JSON out and
//! `serde_json::Value` through. Takes `--addr HOST:PORT` or `--version`; prints nothing else.

use std::io::{self, Write as _};

use axum::routing::{get, post};
use axum::serve::ListenerExt as _;
use axum::{Json, Router};
use serde::Serialize;
use tokio::net::TcpListener;

#[derive(Serialize)]
struct Hello {
    message: &'static str,
}

async fn hello() -> Json<Hello> {
    Json(Hello { message: "hello" })
}

async fn echo(Json(value): Json<serde_json::Value>) -> Json<serde_json::Value> {
    Json(value)
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let address = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--addr", address] => address.to_owned(),
        ["--version"] => return print_version(),
        _ => return Err(io::Error::other("usage: peer-axum --addr HOST:PORT")),
    };
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(serve(&address))
}

async fn serve(address: &str) -> io::Result<()> {
    let router = Router::new()
        .route("/hello", get(hello))
        .route("/echo", post(echo));
    let listener = TcpListener::bind(address).await?.tap_io(|stream| {
        // A socket that refuses the option still serves.
        stream.set_nodelay(true).ok();
    });
    axum::serve(listener, router).await
}

fn print_version() -> io::Result<()> {
    let profile = if cfg!(debug_assertions) {
        "debug"
    } else {
        "release"
    };
    writeln!(
        io::stdout(),
        r#"{{"name":"peer-axum","version":"{}","profile":"{profile}"}}"#,
        env!("CARGO_PKG_VERSION"),
    )
}
