//! A server behind a proxy: real client addresses, a rate limit, sessions.

use justapi_core::{
    Error, Forwarded, ForwardedHeader, RateLimit, RateLimitConfig, Request, Response, Router,
    Server, SessionError, Sessions, inline,
};

fn visit(request: &Request) -> Result<Response, SessionError> {
    let mut session = request.session();
    let visits: u32 = session.get("visits").unwrap_or(0) + 1;
    session.insert("visits", visits)?;
    let client = request
        .client()
        .map_or("somebody".to_owned(), |address| address.to_string());
    Ok(Response::text(format!("{client}: {visits} visits\n")).with_session(session))
}

fn main() -> Result<(), Error> {
    let config = |reason: &str| Error::Config {
        key: "example",
        reason: reason.to_owned(),
    };
    let proxy = "127.0.0.1".parse().map_err(config)?;
    let rate = "100/s".parse().map_err(config)?;
    let secret = std::env::var("SESSION_SECRET").unwrap_or_default();
    let router = Router::new().get("/", inline(|request: Request| visit(&request)))?;
    Server::new(router)
        .forwarded(Forwarded::new(&[proxy], ForwardedHeader::XForwarded)?)
        .rate_limit(RateLimit::new(RateLimitConfig::new(rate, 200))?)
        .sessions(Sessions::new(&[secret])?)
        .run()
}
