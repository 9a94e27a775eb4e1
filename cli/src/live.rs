//! A line on the terminal that shows a measurement while it runs.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The line; without a terminal there is none.
#[derive(Debug)]
pub(crate) struct Live {
    bar: ProgressBar,
}

impl Live {
    /// Begins a line of a measurement that takes `total`, where that is known.
    pub(crate) fn begin(quiet: u8, total: Option<Duration>) -> Option<Self> {
        if quiet > 0 || !io::stderr().is_terminal() {
            return None;
        }
        let length = total.map(|total| u64::try_from(total.as_millis()).unwrap_or(u64::MAX));
        let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr());
        let template = if length.is_some() {
            "{bar:20} {msg}"
        } else {
            "{spinner} {msg}"
        };
        bar.set_style(ProgressStyle::with_template(template).ok()?);
        Some(Self { bar })
    }

    pub(crate) fn show(&self, elapsed: Duration, message: String) {
        self.bar
            .set_position(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX));
        self.bar.set_message(message);
        self.bar.tick();
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
