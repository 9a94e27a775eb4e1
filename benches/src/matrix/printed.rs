//! A micro measurement in a program of its own, for code that does not belong into the binary of the
//! bench: it prints the mean nanoseconds of one call.

use std::path::Path;
use std::time::Duration;

use super::output;
use crate::ledger::Decimal;

/// Far above what a program needs for one batch.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Runs the program once.
///
/// # Errors
///
/// Says why there is no number.
pub(super) fn measure(
    command: &[String],
    folder: &Path,
    cpu: Option<usize>,
) -> Result<Decimal, String> {
    let text = output::of(command, folder, cpu, TIMEOUT)?;
    let number: f64 = text
        .trim()
        .parse()
        .map_err(|_| format!("printed {:?} instead of a number", shortened(&text)))?;
    Decimal::new(number)
        .filter(|mean| mean.value() > 0.0)
        .ok_or_else(|| format!("printed {number}, which is no time"))
}

fn shortened(text: &str) -> String {
    text.trim().chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str) -> Result<String, String> {
        let command = ["sh", "-c", script].map(str::to_owned);
        let folder = std::env::temp_dir();
        measure(&command, &folder, None).map(|mean| mean.text(1))
    }

    #[test]
    fn only_a_time_is_taken() {
        assert_eq!(run("echo 12.5"), Ok(String::from("12.5")));
        for (script, expected) in [
            ("echo fast", "printed \"fast\" instead of a number"),
            ("echo 0", "printed 0, which is no time"),
            ("echo nan", "printed NaN, which is no time"),
            ("echo 5; exit 3", "it ended with exit status: 3"),
            ("true", "printed \"\" instead of a number"),
        ] {
            assert_eq!(run(script).unwrap_err(), expected);
        }
    }
}
