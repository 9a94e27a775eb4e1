//! The smallest server: `cargo run --example hello`, then `curl 127.0.0.1:8000/hello`.

use justapi_core::{Error, Listen, Request, Response, Router, Server};

async fn hello(_request: Request) -> Response {
    Response::text("hello\n")
}

fn main() -> Result<(), Error> {
    let router = Router::new().get("/hello", hello)?;
    Server::new(router)
        .listen(Listen::Tcp(([127, 0, 0, 1], 8000).into()))
        .run()
}
