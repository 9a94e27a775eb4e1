//! Finds a model, and shows how much of it has come.

use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use justapi_inference::{LocateEvent, LocateSettings, LocatedModel, locate};

use super::error::not_located;
use crate::error::CliError;
use crate::ui::{Ui, faint};

/// Between two lines of progress where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Finds what `model` means, and fetches it if need be.
///
/// # Errors
/// What keeps it from being here, with what to do.
pub(crate) fn find_model(ui: &Ui, model: &str, offline: bool) -> Result<LocatedModel, CliError> {
    let mut settings = LocateSettings::from_environment();
    settings.offline |= offline;
    let mut progress = Progress::new(ui);
    let found = locate(model, &settings, &mut |event| progress.show(event));
    progress.end();
    found.map_err(not_located)
}

/// What is shown while a model is fetched.
struct Progress<'a> {
    ui: &'a Ui,
    bar: Option<ProgressBar>,
    total: Option<u64>,
    said_at: Instant,
}

impl<'a> Progress<'a> {
    fn new(ui: &'a Ui) -> Self {
        Self {
            ui,
            bar: None,
            total: None,
            said_at: Instant::now(),
        }
    }

    fn show(&mut self, event: LocateEvent<'_>) {
        match event {
            LocateEvent::Fetching {
                source,
                file,
                num_bytes,
            } => {
                let size =
                    num_bytes.map_or_else(String::new, |num| format!(", {}", megabytes(num)));
                self.say(&format!("fetching {file} from {source}{size}"));
                self.begin(num_bytes);
            }
            LocateEvent::Progress { num_bytes } => self.advance(num_bytes),
            LocateEvent::Fetched { file } => {
                self.end();
                self.say(&format!("{file} is here, and its digest is right"));
            }
            LocateEvent::Retrying { pause, reason } => {
                self.say(&format!("{reason}; again in {} s", pause.as_secs_f32()));
            }
            LocateEvent::Waiting { file } => {
                self.say(&format!("waiting for another process that fetches {file}"));
            }
            LocateEvent::NextSource { source, reason } => {
                self.end();
                self.say(&format!("not from {source}: {reason}"));
            }
        }
    }

    fn say(&self, text: &str) {
        let say = || self.ui.note(&format!("{}\n", faint(text)));
        match &self.bar {
            Some(bar) => bar.suspend(say),
            None => say(),
        }
    }

    fn begin(&mut self, total: Option<u64>) {
        self.end();
        self.total = total;
        self.said_at = Instant::now();
        if !self.ui.shows_progress() || !io::stderr().is_terminal() {
            return;
        }
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
        let template = if total.is_some() {
            "{bar:30} {bytes} of {total_bytes}  {bytes_per_sec}  {eta} left"
        } else {
            "{spinner} {bytes}  {bytes_per_sec}"
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        self.bar = Some(bar);
    }

    fn advance(&mut self, num_bytes: u64) {
        if let Some(bar) = &self.bar {
            // What was there before this run is no speed.
            if bar.position() == 0 && num_bytes > 0 {
                bar.set_position(num_bytes);
                bar.reset_eta();
            }
            bar.set_position(num_bytes);
        } else if self.said_at.elapsed() >= LINE_INTERVAL {
            self.said_at = Instant::now();
            let of = self.total.map_or_else(String::new, |total| {
                let percent = num_bytes * 100 / total.max(1);
                format!(" of {} ({percent} %)", megabytes(total))
            });
            self.say(&format!("{}{of}", megabytes(num_bytes)));
        }
    }

    fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// A size as disks have it.
pub(crate) fn megabytes(num_bytes: u64) -> String {
    format!("{:.1} MB", num_bytes as f64 / 1e6)
}
