//! Prompts of a wanted number of tokens, counted by the server that will read them.
//!
//! Guarantee: no two prompts of a run, nor of two runs, begin alike unless one was made from the
//! other on purpose: each begins with words that spell a number drawn for the run and used once.

use fastrand::Rng;
use serde_json::{Value, json};

use super::client::Client;
use crate::Error;
use crate::stats::SplitMix64;

/// Bytes of a prompt that is still grown towards its target.
const MAX_PROMPT_BYTES: usize = 4 * 1024 * 1024;

/// Questions for one prompt; bisection alone needs 20 for a million words.
const MAX_COUNTS: usize = 40;

/// Words of the number that begins a prompt: 6 bits each.
const NUM_NONCE_WORDS: usize = 11;

/// Common words, which most vocabularies have as one token.
const WORDS: [&str; 64] = [
    "time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world",
    "school", "state", "family", "student", "group", "country", "problem", "hand", "part", "place",
    "case", "week", "company", "system", "program", "question", "work", "number", "night", "point",
    "home", "water", "room", "mother", "area", "money", "story", "fact", "month", "lot", "right",
    "study", "book", "eye", "job", "word", "business", "issue", "side", "kind", "head", "house",
    "service", "friend", "father", "power", "hour", "game", "line", "end", "member", "law", "car",
];

/// Who counts tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenCounter {
    /// `/v1/messages/count_tokens`, which answers `input_tokens`.
    CountTokens,
    /// `/tokenize` of messages, which answers `count`.
    TokenizeMessages,
    /// `/tokenize` of the text that `/apply-template` makes of messages.
    TokenizeTemplate,
    /// `usage.prompt_tokens` of a completion of one token.
    Usage,
}

impl TokenCounter {
    /// What is asked, for the report.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::CountTokens => "/v1/messages/count_tokens",
            Self::TokenizeMessages => "/tokenize",
            Self::TokenizeTemplate => "/apply-template, /tokenize",
            Self::Usage => "usage of a completion",
        }
    }

    /// The first that the server offers.
    ///
    /// # Errors
    ///
    /// [`Error::ModelServer`] when it offers none, or does not answer.
    pub(super) async fn find(client: &Client, model: &str) -> Result<Self, Error> {
        let messages = [user("count these words")];
        for counter in [
            Self::CountTokens,
            Self::TokenizeMessages,
            Self::TokenizeTemplate,
            Self::Usage,
        ] {
            match counter.ask(client, model, &messages).await {
                Ok(Some(_)) => return Ok(counter),
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                // Refused, or a connection that was closed for the question's sake.
                Ok(None) | Err(_) => {}
            }
        }
        Err(Error::ModelServer {
            path: Self::CountTokens.name().to_owned(),
            problem: "nor any other way to count the tokens of a prompt works".to_owned(),
        })
    }

    async fn count(self, client: &Client, model: &str, messages: &[Value]) -> Result<u64, Error> {
        let counted = self.ask(client, model, messages).await?;
        counted.ok_or_else(|| Error::ModelServer {
            path: self.name().to_owned(),
            problem: "no count of tokens in the answer".to_owned(),
        })
    }

    async fn ask(
        self,
        client: &Client,
        model: &str,
        messages: &[Value],
    ) -> Result<Option<u64>, Error> {
        let (path, question, place) = match self {
            Self::CountTokens => (
                "/v1/messages/count_tokens",
                json!({"model": model, "messages": messages}),
                "/input_tokens",
            ),
            Self::TokenizeMessages => (
                "/tokenize",
                json!({"model": model, "messages": messages, "add_generation_prompt": true}),
                "/count",
            ),
            Self::TokenizeTemplate => {
                let question = json!({"model": model, "messages": messages});
                let (status, answer) = client.post("/apply-template", &question).await?;
                let Some(text) = answer["prompt"].as_str().filter(|_| status == 200) else {
                    return Ok(None);
                };
                let question = json!({"content": text, "add_special": true});
                let (status, answer) = client.post("/tokenize", &question).await?;
                let tokens = answer["tokens"].as_array().filter(|_| status == 200);
                return Ok(tokens.map(|tokens| tokens.len() as u64));
            }
            Self::Usage => (
                "/v1/chat/completions",
                json!({"model": model, "messages": messages, "max_tokens": 1}),
                "/usage/prompt_tokens",
            ),
        };
        let (status, answer) = client.post(path, &question).await?;
        let count = answer.pointer(place).and_then(Value::as_u64);
        Ok(count.filter(|_| status == 200))
    }
}

/// A text with the number of prompt tokens that the server counts for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Prompt {
    pub(super) text: String,
    /// Tokens as counted, template included.
    pub(super) tokens: u64,
}

/// Writes prompts for one server and one run.
pub(super) struct PromptWriter<'a> {
    client: &'a Client,
    model: &'a str,
    counter: TokenCounter,
    nonces: Nonces,
    rng: Rng,
    tokens_per_word: f64,
}

impl<'a> PromptWriter<'a> {
    pub(super) fn new(
        client: &'a Client,
        model: &'a str,
        counter: TokenCounter,
        nonces: Nonces,
    ) -> Self {
        let rng = Rng::with_seed(nonces.run);
        Self {
            client,
            model,
            counter,
            nonces,
            rng,
            tokens_per_word: 1.0,
        }
    }

    /// A beginning that no other prompt has.
    pub(super) fn nonce(&mut self) -> String {
        self.nonces.next()
    }

    /// A prompt that begins like no other, of `target` tokens.
    ///
    /// # Errors
    ///
    /// [`Error::Calibration`] when no text has so many, and failures to ask.
    pub(super) async fn exact(&mut self, target: u64) -> Result<Prompt, Error> {
        let nonce = self.nonce();
        self.extend(&nonce, target).await
    }

    /// `text` with words behind it, of `target` tokens altogether.
    ///
    /// # Errors
    ///
    /// As for [`Self::exact`].
    pub(super) async fn extend(&mut self, text: &str, target: u64) -> Result<Prompt, Error> {
        let mut words = Words::new(text);
        // Numbers of words known to give too few and too many tokens.
        let (mut below, mut above) = (None, None);
        let base = self.count_words(&mut words, 0).await?;
        let mut counted = (0_usize, base);
        for _ in 0..MAX_COUNTS {
            let (num_words, tokens) = counted;
            if tokens.abs_diff(target) <= tolerance(target) {
                let text = words.take(num_words).to_owned();
                return Ok(Prompt { text, tokens });
            }
            if tokens < target {
                below = Some(num_words);
            } else {
                above = Some(num_words);
            }
            if num_words > 0 && tokens > base {
                self.tokens_per_word = (tokens - base) as f64 / num_words as f64;
            }
            let missing = (target as f64 - tokens as f64) / self.tokens_per_word;
            let guess = (num_words as f64 + missing).round().max(0.0) as usize;
            let Some(next) = bracketed(guess, below, above) else {
                break;
            };
            if words.bytes_of(next) > MAX_PROMPT_BYTES {
                break;
            }
            counted = (next, self.count_words(&mut words, next).await?);
        }
        Err(Error::Calibration {
            target,
            found: counted.1,
        })
    }

    /// Words that come to about `tokens` tokens, without a question.
    pub(super) fn about(&mut self, tokens: u64) -> String {
        let num_words = (tokens as f64 / self.tokens_per_word).round().max(1.0) as usize;
        let words: Vec<_> = (0..num_words).map(|_| draw(&mut self.rng)).collect();
        words.join(" ")
    }

    /// Tokens of a text as the only message.
    ///
    /// # Errors
    ///
    /// [`Error::ModelServer`].
    pub(super) async fn count(&mut self, text: &str) -> Result<u64, Error> {
        let message = match self.counter {
            TokenCounter::Usage => user(&self.nonces.disguise(text)),
            _ => user(text),
        };
        self.counter
            .count(self.client, self.model, &[message])
            .await
    }

    async fn count_words(&mut self, words: &mut Words, num_words: usize) -> Result<u64, Error> {
        words.grow(num_words, &mut self.rng);
        self.count(words.take(num_words)).await
    }
}

/// Numbers that are used once, spelt in words.
#[derive(Debug)]
pub(super) struct Nonces {
    run: u64,
    mixer: SplitMix64,
}

impl Nonces {
    /// Those of the run `run`.
    pub(super) const fn new(run: u64) -> Self {
        Self {
            run,
            mixer: SplitMix64(run),
        }
    }

    fn next(&mut self) -> String {
        // A bijection of a counter: within a run none comes twice.
        let mut number = self.mixer.next();
        let mut words = Vec::with_capacity(NUM_NONCE_WORDS);
        for _ in 0..NUM_NONCE_WORDS {
            words.push(WORDS[(number % 64) as usize]);
            number /= 64;
        }
        words.join(" ")
    }
}

impl Nonces {
    /// The text with another number at its beginning.
    ///
    /// A server that counts by completing has the text in its cache afterwards, so it must not be
    /// the one that will be measured.
    fn disguise(&mut self, text: &str) -> String {
        let mut words: Vec<_> = text.splitn(NUM_NONCE_WORDS + 1, ' ').collect();
        let nonce = self.next();
        if words.len() >= NUM_NONCE_WORDS
            && words[..NUM_NONCE_WORDS]
                .iter()
                .all(|word| WORDS.contains(word))
        {
            words.splice(..NUM_NONCE_WORDS, nonce.split(' '));
        }
        words.join(" ")
    }
}

/// A text that grows by words and never changes what it has.
struct Words {
    text: String,
    /// Length in bytes after each number of words.
    ends: Vec<usize>,
}

impl Words {
    fn new(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            ends: vec![text.len()],
        }
    }

    fn grow(&mut self, num_words: usize, rng: &mut Rng) {
        while self.ends.len() <= num_words {
            self.text.push(' ');
            self.text.push_str(draw(rng));
            self.ends.push(self.text.len());
        }
    }

    fn take(&self, num_words: usize) -> &str {
        &self.text[..self.ends[num_words]]
    }

    /// At least the bytes of `num_words` words, which need not be there yet.
    fn bytes_of(&self, num_words: usize) -> usize {
        self.ends.get(num_words).copied().unwrap_or(num_words)
    }
}

/// A message of the user.
pub(super) fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

/// How far the tokens of a prompt may be from the target.
pub(super) fn tolerance(target: u64) -> u64 {
    target.div_ceil(200).max(4)
}

fn draw(rng: &mut Rng) -> &'static str {
    WORDS[rng.usize(..WORDS.len())]
}

/// A number of words strictly between the bounds, near `guess`; `None` when there is none.
fn bracketed(guess: usize, below: Option<usize>, above: Option<usize>) -> Option<usize> {
    let lowest = below.map_or(0, |below| below + 1);
    match above {
        Some(above) if lowest >= above => None,
        // A guess outside has been of no use: halve what is left.
        Some(above) if guess < lowest || guess >= above => Some(usize::midpoint(lowest, above - 1)),
        _ => Some(guess.max(lowest)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_nonce_comes_twice() {
        let mut seen = HashSet::new();
        for run in [0, 1, u64::MAX] {
            let mut nonces = Nonces::new(run);
            assert!((0..2000).all(|_| seen.insert(nonces.next())));
        }
        let distinct: HashSet<_> = WORDS.iter().collect();
        assert_eq!(distinct.len(), 64);
    }

    #[test]
    fn a_text_is_disguised_at_equal_length() {
        let mut nonces = Nonces::new(1);
        let text = format!("{} and the rest", nonces.next());
        let disguised = nonces.disguise(&text);
        assert!(disguised.ends_with(" and the rest"), "{disguised}");
        assert_eq!(disguised.split(' ').count(), text.split(' ').count());
        assert_ne!(disguised, text);
        assert_eq!(nonces.disguise("not made here"), "not made here");
    }

    #[test]
    fn the_tolerance_is_four_or_half_a_percent() {
        for (target, expected) in [(1, 4), (512, 4), (800, 4), (801, 5), (4096, 21)] {
            assert_eq!(tolerance(target), expected, "{target}");
        }
    }

    #[test]
    fn the_search_always_narrows() {
        assert_eq!(bracketed(7, None, None), Some(7));
        assert_eq!(bracketed(3, Some(5), None), Some(6));
        assert_eq!(bracketed(90, Some(5), Some(16)), Some(10));
        assert_eq!(bracketed(0, None, Some(0)), None);
        assert_eq!(bracketed(6, Some(5), Some(6)), None);
    }
}
