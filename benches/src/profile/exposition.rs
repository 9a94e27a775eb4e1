//! Reader of the Prometheus text format 0.0.4, which also takes what `OpenMetrics` adds to a line.
//!
//! A page that breaks the format anywhere is refused whole: half of a page would be deltas that
//! look right. Source: Prometheus documentation, "Exposition formats", text-based format.

use std::collections::BTreeMap;

/// One page of metrics.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Exposition {
    samples: Vec<Sample>,
}

/// One line of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Name of the series, with the suffix that histograms have.
    pub name: String,
    /// Its labels, unescaped.
    pub labels: BTreeMap<String, String>,
    /// Its value, which may be infinite or not a number.
    pub value: f64,
}

/// Why a text is not a page of metrics.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct NotPrometheus {
    /// Line from 1.
    pub line: usize,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl Exposition {
    /// Reads a page.
    ///
    /// # Errors
    ///
    /// [`NotPrometheus`] names the first line that breaks the format; a page without any sample is
    /// none.
    pub fn parse(text: &str) -> Result<Self, NotPrometheus> {
        let mut samples = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim_matches([' ', '\t']);
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let sample = Sample::parse(line).map_err(|problem| NotPrometheus {
                line: index + 1,
                problem,
            })?;
            samples.push(sample);
        }
        if samples.is_empty() {
            return Err(NotPrometheus {
                line: 1,
                problem: "the page has no sample",
            });
        }
        Ok(Self { samples })
    }

    /// The samples of this name, with any labels.
    pub fn samples<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Sample> {
        (self.samples.iter()).filter(move |sample| sample.name == name)
    }

    /// Every sample, in the order of the page.
    pub fn iter(&self) -> impl Iterator<Item = &Sample> {
        self.samples.iter()
    }

    /// The finite value of the series of this name that has no labels.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.samples(name)
            .find(|sample| sample.labels.is_empty())
            .map(|sample| sample.value)
            .filter(|value| value.is_finite())
    }
}

impl Sample {
    /// The value of a label; empty where there is none, which means the same.
    pub fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }

    /// `name{label="value",…} value timestamp`, of which labels and timestamp may be absent.
    fn parse(line: &str) -> Result<Self, &'static str> {
        let (name, rest) = take_name(line, true).ok_or("no metric name")?;
        let rest = rest.trim_start_matches([' ', '\t']);
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(inside) => take_labels(inside)?,
            None if rest.len() + name.len() == line.len() => {
                return Err("neither labels nor a space after the name");
            }
            None => (BTreeMap::new(), rest),
        };
        let mut words = rest.split_ascii_whitespace();
        let value = words.next().ok_or("no value")?;
        let value = parse_value(value).ok_or("the value is not a number")?;
        match words.next() {
            None => {}
            // An exemplar of OpenMetrics.
            Some(word) if word.starts_with('#') => {}
            Some(time) if time.parse::<f64>().is_ok() => match words.next() {
                None => {}
                Some(word) if word.starts_with('#') => {}
                Some(_) => return Err("more than a value and a time"),
            },
            Some(_) => return Err("the time is not a number"),
        }
        Ok(Self {
            name: name.to_owned(),
            labels,
            value,
        })
    }
}

/// The name at the begin of a text; only those of metrics may hold colons.
fn take_name(text: &str, may_have_colon: bool) -> Option<(&str, &str)> {
    let is_first = |c: char| c.is_ascii_alphabetic() || c == '_' || c == ':' && may_have_colon;
    let is_next = |c: char| is_first(c) || c.is_ascii_digit();
    if !text.starts_with(is_first) {
        return None;
    }
    let end = text.find(|c| !is_next(c)).unwrap_or(text.len());
    Some(text.split_at(end))
}

/// Labels up to their closing brace, and what follows it.
fn take_labels(mut text: &str) -> Result<(BTreeMap<String, String>, &str), &'static str> {
    let mut labels = BTreeMap::new();
    loop {
        text = text.trim_start_matches([' ', '\t']);
        if let Some(rest) = text.strip_prefix('}') {
            return Ok((labels, rest));
        }
        let (name, rest) = take_name(text, false).ok_or("no label name")?;
        let rest = rest.trim_start_matches([' ', '\t']);
        let rest = rest.strip_prefix('=').ok_or("no = after a label name")?;
        let rest = rest.trim_start_matches([' ', '\t']);
        let rest = rest.strip_prefix('"').ok_or("a label without quotes")?;
        let (value, rest) = take_quoted(rest)?;
        if labels.insert(name.to_owned(), value).is_some() {
            return Err("a label that comes twice");
        }
        let rest = rest.trim_start_matches([' ', '\t']);
        text = match rest.strip_prefix(',') {
            Some(after) => after,
            None if rest.starts_with('}') => rest,
            None => return Err("neither , nor } after a label"),
        };
    }
}

/// A label value up to its closing quote, unescaped, and what follows it.
fn take_quoted(text: &str) -> Result<(String, &str), &'static str> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Ok((value, &text[at + 1..])),
            '\\' => match characters.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, escaped @ ('"' | '\\'))) => value.push(escaped),
                _ => return Err("an unknown escape in a label"),
            },
            plain => value.push(plain),
        }
    }
    Err("a label whose quote is not closed")
}

/// A number as Go writes it.
fn parse_value(text: &str) -> Option<f64> {
    match text {
        "+Inf" | "Inf" => Some(f64::INFINITY),
        "-Inf" => Some(f64::NEG_INFINITY),
        "NaN" => Some(f64::NAN),
        // Rust also reads words such as `infinity`, which are none here.
        _ if text.contains(|c: char| c.is_ascii_alphabetic() && c != 'e' && c != 'E') => None,
        _ => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one(line: &str) -> Sample {
        let page = Exposition::parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(page.iter().count(), 1, "{line}");
        page.samples.into_iter().next().unwrap()
    }

    #[test]
    fn lines_are_read_as_the_format_says() {
        for (line, name, labels, value) in [
            ("up 1", "up", &[][..], 1.0),
            ("a:b_c{} 2.5e3 1700000000000", "a:b_c", &[], 2500.0),
            (
                "r{route=\"/a b}\",m=\"\\\"\\\\\\n\"} -7",
                "r",
                &[("m", "\"\\\n"), ("route", "/a b}")],
                -7.0,
            ),
            (
                "\t r { x = \"é\" , } +Inf ",
                "r",
                &[("x", "é")],
                f64::INFINITY,
            ),
            (
                "b{le=\"+Inf\"} 3 # {trace_id=\"x\"} 0.5 1.0",
                "b",
                &[("le", "+Inf")],
                3.0,
            ),
        ] {
            let sample = one(line);
            assert_eq!(sample.name, name, "{line}");
            assert!(sample.value.total_cmp(&value).is_eq(), "{line}: {sample:?}");
            let found: Vec<_> = (sample.labels.iter())
                .map(|(name, value)| (name.as_str(), value.as_str()))
                .collect();
            assert_eq!(found, labels, "{line}");
        }
        assert!(one("n NaN").value.is_nan());
    }

    #[test]
    fn what_is_no_page_of_metrics_is_refused_with_its_line() {
        for (text, line) in [
            ("", 1),
            ("# HELP only comments\n", 1),
            ("<!doctype html>\n<p>hello</p>", 1),
            ("{\"message\":\"hello\"}", 1),
            ("hello", 1),
            ("up 1\nhello world", 2),
            ("up 1\n\nup{a=\"b} 1", 3),
            ("up{a=\"b\"", 1),
            ("up{a=\"b\";} 1", 1),
            ("up{a=\"b\",a=\"c\"} 1", 1),
            ("up{a=b} 1", 1),
            ("up{a=\"\\x\"} 1", 1),
            ("up{0=\"x\"} 1", 1),
            ("up{a=\"x\"}", 1),
            ("up infinity", 1),
            ("up 0x1", 1),
            ("up 1 later", 1),
            ("up 1 2 3", 1),
            ("1up 1", 1),
        ] {
            let error = Exposition::parse(text).unwrap_err();
            assert_eq!(error.line, line, "{text}: {error}");
        }
    }

    #[test]
    fn values_without_labels_are_found_by_name() {
        let page = Exposition::parse("a{x=\"1\"} 2\na 3\nb 4\nc NaN\n").unwrap();
        assert_eq!(page.value("a"), Some(3.0));
        assert_eq!(page.value("c"), None);
        assert_eq!(page.value("d"), None);
        assert_eq!(page.samples("a").count(), 2);
        assert_eq!(page.samples("a").next().unwrap().label("x"), "1");
        assert_eq!(page.samples("b").next().unwrap().label("x"), "");
    }

    proptest! {
        /// Whatever labels and values there are, they come back.
        #[test]
        fn what_is_written_by_the_rules_is_read_back(
            labels in proptest::collection::btree_map("[a-z_][a-z0-9_]{0,8}", ".*", 0..4),
            value in proptest::num::f64::NORMAL,
        ) {
            let labels: BTreeMap<String, String> = (labels.into_iter())
                .map(|(name, value)| (name, value.replace(['\r', '\u{b}', '\u{c}', '\u{85}'], "")))
                .collect();
            let inside: Vec<_> = labels.iter().map(|(name, value)| {
                let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
                format!("{name}=\"{value}\"")
            }).collect();
            let page = Exposition::parse(&format!("m{{{}}} {value:e}\n", inside.join(","))).unwrap();
            let sample = page.iter().next().unwrap();
            prop_assert_eq!(&sample.labels, &labels);
            prop_assert_eq!(sample.value.to_bits(), value.to_bits());
        }

        #[test]
        fn no_text_breaks_the_reader(text in "[a-z{}=\",\\\\ \n#0-9]{0,80}") {
            drop(Exposition::parse(&text));
        }
    }
}
