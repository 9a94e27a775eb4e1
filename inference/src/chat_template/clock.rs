//! `strftime` of C and Python in UTC and in English, as templates use it for the
//! date of today.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

const WEEKDAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

/// A moment as a calendar names it.
struct Moment {
    year: i64,
    /// From 1.
    month: i64,
    /// From 1.
    day: i64,
    /// From 1.
    day_of_year: i64,
    /// From 0, which is Sunday.
    weekday: i64,
    hour: i64,
    minute: i64,
    second: i64,
}

impl Moment {
    fn new(time: SystemTime) -> Self {
        let since_epoch = |time: SystemTime| {
            time.duration_since(UNIX_EPOCH)
                .map(|duration| duration.as_secs())
                .ok()
        };
        let seconds = since_epoch(time)
            .and_then(|seconds| i64::try_from(seconds).ok())
            .unwrap_or(0);
        let (days, second_of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        // Years begin in March here, so that the leap day is the last of its year; 719468
        // days lead from 1 March of year 0 to 1970, and 146097 are 400 years.
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_from_march = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        // Months from March on have 153 days in five.
        let month_from_march = (5 * day_from_march + 2) / 153;
        let month = if month_from_march < 10 {
            month_from_march + 3
        } else {
            month_from_march - 9
        };
        let year = era * 400 + year_of_era + i64::from(month <= 2);
        let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let day_of_year = if month <= 2 {
            day_from_march - 305
        } else {
            day_from_march + 60 + i64::from(is_leap)
        };
        Self {
            year,
            month,
            day: day_from_march - (153 * month_from_march + 2) / 5 + 1,
            day_of_year,
            weekday: (days + 4).rem_euclid(7),
            hour: second_of_day / 3_600,
            minute: second_of_day / 60 % 60,
            second: second_of_day % 60,
        }
    }
}

/// Writes a time by a format. Directives that are not known stay as they are.
pub(super) fn strftime(time: SystemTime, format: &str) -> String {
    let moment = Moment::new(time);
    let mut text = String::with_capacity(format.len() * 2);
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            text.push(character);
            continue;
        }
        let mut directive = characters.next();
        let is_padded = directive != Some('-');
        if !is_padded {
            directive = characters.next();
        }
        if write_directive(&moment, directive, is_padded, &mut text).is_none() {
            text.push_str(if is_padded { "%" } else { "%-" });
            text.extend(directive);
        }
    }
    text
}

fn write_directive(
    moment: &Moment,
    directive: Option<char>,
    is_padded: bool,
    text: &mut String,
) -> Option<()> {
    let month = MONTHS[moment.month as usize - 1];
    let weekday = WEEKDAYS[moment.weekday as usize];
    let twelve_hour = (moment.hour + 11) % 12 + 1;
    let (number, width) = match directive? {
        'Y' => (moment.year, 4),
        'y' => (moment.year % 100, 2),
        'm' => (moment.month, 2),
        'd' => (moment.day, 2),
        'j' => (moment.day_of_year, 3),
        'H' => (moment.hour, 2),
        'I' => (twelve_hour, 2),
        'M' => (moment.minute, 2),
        'S' => (moment.second, 2),
        'w' => (moment.weekday, 1),
        name => {
            match name {
                'B' => text.push_str(month),
                'b' | 'h' => text.push_str(&month[..3]),
                'A' => text.push_str(weekday),
                'a' => text.push_str(&weekday[..3]),
                'p' => text.push_str(if moment.hour < 12 { "AM" } else { "PM" }),
                'F' => write!(
                    text,
                    "{}-{:02}-{:02}",
                    moment.year, moment.month, moment.day
                )
                .ok()?,
                'T' => {
                    let Moment {
                        hour,
                        minute,
                        second,
                        ..
                    } = moment;
                    write!(text, "{hour:02}:{minute:02}:{second:02}").ok()?;
                }
                'Z' => text.push_str("UTC"),
                'z' => text.push_str("+0000"),
                '%' => text.push('%'),
                _ => return None,
            }
            return Some(());
        }
    };
    let width = if is_padded { width } else { 0 };
    write!(text, "{number:0width$}").ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Expectations are those of `date -u -d @SECONDS +FORMAT` of GNU.
    fn check(seconds: u64, format: &str, expected: &str) {
        assert_eq!(
            strftime(UNIX_EPOCH + Duration::from_secs(seconds), format),
            expected
        );
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        check(
            0,
            "%A %d %B %Y %H:%M:%S day %j",
            "Thursday 01 January 1970 00:00:00 day 001",
        );
        check(951_782_400, "%a %d %b %Y %j", "Tue 29 Feb 2000 060");
        check(951_868_800, "%F %j", "2000-03-01 061");
        check(
            1_735_689_599,
            "%d %b %Y %I:%M %p %j",
            "31 Dec 2024 11:59 PM 366",
        );
        check(1_772_323_200, "%Y-%m-%d %j", "2026-03-01 060");
        check(4_107_542_400, "%F %a %j", "2100-03-01 Mon 060");
    }

    #[test]
    fn padding_and_unknown_directives() {
        check(0, "%-d/%-m %y %% %Q %", "1/1 70 % %Q %");
        check(46_800, "%I %-I %p %T %Z%z", "01 1 PM 13:00:00 UTC+0000");
    }
}
