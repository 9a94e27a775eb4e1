//! The server against which the client is measured, for other clients to be measured against.
//!
//! Prints its address; ends when its standard input does.

use std::io::{self, Read as _, Write as _};

use justapi_bench::NullServer;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let body_bytes = std::env::args()
        .nth(1)
        .map_or(Ok(13), |text| text.parse())?;
    let cpu = std::env::args()
        .nth(2)
        .map(|text| text.parse())
        .transpose()?;
    let server = NullServer::start(200, body_bytes, cpu)?;
    writeln!(io::stdout(), "http://{}/", server.address())?;
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
