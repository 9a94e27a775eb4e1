//! The `justapi` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    justapi_cli::run(std::env::args_os().collect())
}
