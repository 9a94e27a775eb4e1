//! Bodies that flow: an upload that is counted, a download made piece by piece.

use justapi_core::{Body, BodyError, Error, Request, Response, RouteOptions, Router, Server};
use justapi_core::{HeaderValue, Method};

async fn count(mut request: Request) -> Result<String, BodyError> {
    let mut num_bytes = 0;
    while let Some(chunk) = request.body_mut().chunk().await {
        num_bytes += chunk?.len();
    }
    Ok(format!("{num_bytes} bytes\n"))
}

async fn numbers(_request: Request) -> Response {
    // The producer waits while the client is slower than four lines behind.
    let (sender, body) = Body::channel(4);
    tokio::task::spawn_local(async move {
        for number in 0..1_000_000 {
            if sender.send(format!("{number}\n")).await.is_err() {
                return;
            }
        }
    });
    Response::with_content(HeaderValue::from_static("text/plain"), body)
}

fn main() -> Result<(), Error> {
    let upload = RouteOptions::new().max_body_bytes(u64::MAX);
    let router = Router::new()
        .route_with(Method::POST, "/count", upload, count)?
        .get("/numbers", numbers)?;
    Server::new(router).run()
}
