//! Finds the first of several stop texts in an answer that comes in pieces, and
//! holds back what may yet become one.
//!
//! The result does not depend on how the answer is cut into pieces. Each stop
//! text is followed by the automaton of Knuth, Morris and Pratt: O(1) for each
//! byte and stop text, however they repeat themselves.

/// Watches one answer for texts that end it.
#[derive(Clone, Debug)]
pub struct StopMatcher {
    patterns: Vec<Pattern>,
    /// End of the answer so far that begins a stop text.
    held: String,
    stopped: bool,
}

/// One stop text, and how much of it the answer ends with.
#[derive(Clone, Debug)]
struct Pattern {
    bytes: Box<[u8]>,
    /// For each length matched, less one, the length of the longest shorter match. (`bytes.len()`)
    fallback: Box<[usize]>,
    num_matched: usize,
}

impl StopMatcher {
    /// Watches for these texts. Empty ones are left out.
    pub fn new<S: AsRef<str>>(stop_texts: &[S]) -> Self {
        let texts = stop_texts
            .iter()
            .map(AsRef::as_ref)
            .filter(|text| !text.is_empty());
        Self {
            patterns: texts.map(Pattern::new).collect(),
            held: String::new(),
            stopped: false,
        }
    }

    /// Adds text of the answer and returns what now certainly belongs to it.
    ///
    /// The answer ends before the stop text that is complete first, of several
    /// that end at one place before the longest. See [`StopMatcher::is_stopped`];
    /// from then on all text is dropped.
    pub fn push(&mut self, text: &str) -> String {
        if self.stopped {
            return String::new();
        }
        let mut certain = std::mem::take(&mut self.held);
        let held_len = certain.len();
        certain.push_str(text);
        for (index, &byte) in text.as_bytes().iter().enumerate() {
            let mut longest_stop = 0;
            for pattern in &mut self.patterns {
                if pattern.advance(byte) {
                    longest_stop = longest_stop.max(pattern.bytes.len());
                }
            }
            if longest_stop > 0 {
                self.stopped = true;
                certain.truncate(held_len + index + 1 - longest_stop);
                return certain;
            }
        }
        let held_len = self
            .patterns
            .iter()
            .map(|pattern| pattern.num_matched)
            .max();
        self.held = certain.split_off(certain.len() - held_len.unwrap_or(0));
        certain
    }

    /// Whether a stop text was found.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Ends the answer for another reason: what was held back belongs to it.
    pub fn finish(&mut self) -> String {
        for pattern in &mut self.patterns {
            pattern.num_matched = 0;
        }
        std::mem::take(&mut self.held)
    }
}

impl Pattern {
    fn new(text: &str) -> Self {
        let bytes: Box<[u8]> = text.as_bytes().into();
        let mut fallback = vec![0; bytes.len()].into_boxed_slice();
        let mut length = 0;
        for index in 1..bytes.len() {
            while length > 0 && bytes[index] != bytes[length] {
                length = fallback[length - 1];
            }
            length += usize::from(bytes[index] == bytes[length]);
            fallback[index] = length;
        }
        Self {
            bytes,
            fallback,
            num_matched: 0,
        }
    }

    /// Whether the text ends with the pattern, this byte included.
    fn advance(&mut self, byte: u8) -> bool {
        while self.num_matched > 0 && self.bytes[self.num_matched] != byte {
            self.num_matched = self.fallback[self.num_matched - 1];
        }
        self.num_matched += usize::from(self.bytes[self.num_matched] == byte);
        self.num_matched == self.bytes.len()
    }
}
