//! The `Date` line of responses, rendered once a second (RFC 9110 §6.6.1).

use std::cell::{Cell, RefCell};
use std::io::Write as _;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use httpdate::HttpDate;

/// Last second that the format can write: the end of the year 9999.
const LAST_SECOND: Duration = Duration::from_secs(253_402_300_799);

/// The line as it was last rendered.
#[derive(Debug, Default)]
pub(super) struct Date {
    line: RefCell<Vec<u8>>,
    /// When the next second begins.
    valid_until: Cell<Option<Instant>>,
}

impl Date {
    /// Adds the line to a head that is written `now`.
    pub(super) fn write(&self, head: &mut Vec<u8>, now: Instant) {
        let mut line = self.line.borrow_mut();
        if self.valid_until.get().is_none_or(|until| now >= until) {
            let time = SystemTime::now();
            line.clear();
            // A clock may be set to anything; a wrong date must not cost answers.
            let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
            let date = HttpDate::from(UNIX_EPOCH + since_epoch.min(LAST_SECOND));
            write!(line, "date: {date}\r\n").expect("memory takes any line");
            let rest = 1_000_000_000 - since_epoch.subsec_nanos();
            let rest = Duration::from_nanos(rest.into());
            self.valid_until.set(Some(now + rest));
        }
        head.extend_from_slice(&line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_rendered_anew_each_second() {
        let date = Date::default();
        let now = Instant::now();
        let mut head = Vec::new();
        date.write(&mut head, now);
        let text = String::from_utf8(head).unwrap();
        assert!(
            text.starts_with("date: ") && text.ends_with(" GMT\r\n"),
            "{text}"
        );
        assert_eq!(text.len(), 37);
        let until = date.valid_until.get().unwrap();
        assert!(until > now && until <= now + Duration::from_secs(1));
        date.write(&mut Vec::new(), until);
        assert!(date.valid_until.get().unwrap() > until);
    }
}
