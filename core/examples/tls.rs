//! HTTPS with HTTP/2: `cargo run --example tls -- cert.pem key.pem`.

use justapi_core::{Error, Request, Response, Router, Server, TlsFiles};

async fn hello(request: Request) -> Response {
    Response::text(format!("hello over {:?}\n", request.version()))
}

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(cert), Some(key)) = (arguments.next(), arguments.next()) else {
        return Err(Error::Config {
            key: "arguments",
            reason: "usage: tls CERT.pem KEY.pem".into(),
        });
    };
    let router = Router::new().get("/hello", hello)?;
    Server::new(router)
        .tls(TlsFiles {
            cert: cert.into(),
            key: key.into(),
            client_ca: None,
        })
        .run()
}
