//! A folder of files: `cargo run --example files -- public`, then
//! `curl 127.0.0.1:8000/static/`.

use std::time::Duration;

use justapi_core::{Error, Files, HeaderValue, Request, Router, Server, inline};

fn main() -> Result<(), Error> {
    let folder = std::env::args_os()
        .nth(1)
        .unwrap_or_else(|| "public".into());
    let files = Files::new(folder)?
        .cache_control(HeaderValue::from_static("public, max-age=3600"))
        // At most this long a changed file is answered as it was.
        .revalidate(Duration::from_secs(5));
    let router = Router::new()
        .get("/", inline(|_: Request| "the files are on /static/\n"))?
        .files("/static", files)?;
    Server::new(router).run()
}
