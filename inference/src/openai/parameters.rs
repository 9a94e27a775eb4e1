//! What the members of a request ask of the choice of tokens.
//!
//! Guarantees: every value is within its range and its vocabulary when it is
//! handed on; a member that would change the answer in a way that this server
//! does not is a 400 that names it, unless its value asks for nothing; any other
//! unknown member is skipped. `top_p` 0 and `temperature` 0 both take the
//! likeliest token.

use serde_json::Value;

use super::error::ApiError;
use super::fields::{self, Fields};
use crate::{SamplingParams, TokenId};

/// Answers to one prompt; OpenAI allows 128, for as many machines.
const MAX_CHOICES: u32 = 8;
/// Texts that end an answer; OpenAI's clients send up to 4.
const MAX_STOP_TEXTS: usize = 16;
/// Length of one of them: it bounds what is held back of an answer.
const MAX_STOP_BYTES: usize = 256;
/// Tokens that end an answer.
const MAX_STOP_TOKENS: usize = 64;
/// Tokens with a bias; OpenAI's 300.
const MAX_BIASED_TOKENS: usize = 300;
/// Length of a `cache_salt`.
const MAX_SALT_BYTES: usize = 256;

/// What a request gets that does not say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingDefaults {
    /// Divisor of logits.
    pub temperature: f32,
    /// Only this many of the greatest; 0 is all.
    pub top_k: u32,
    /// Only the fewest whose probabilities sum up to this; 1 is all.
    pub top_p: f32,
    /// Only those with at least this share of the greatest probability; 0 is all.
    pub min_p: f32,
    /// Factor against tokens that are there already; 1 is none.
    pub repetition_penalty: f32,
    /// Most tokens of a chat's answer; `None` is what the context holds.
    pub max_tokens: Option<u32>,
    /// Most tokens of a completion; OpenAI's 16.
    pub max_completion_tokens: u32,
}

impl Default for SamplingDefaults {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            max_tokens: None,
            max_completion_tokens: 16,
        }
    }
}

/// Whether a value asks for nothing that is not done anyway.
type IsHarmless = fn(&Value) -> bool;

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

fn is_false(value: &Value) -> bool {
    value == &Value::Bool(false)
}

fn is_true(value: &Value) -> bool {
    value == &Value::Bool(true)
}

fn is_zero(value: &Value) -> bool {
    value.as_f64() == Some(0.0)
}

fn is_one(value: &Value) -> bool {
    value.as_f64() == Some(1.0)
}

fn is_text_only(value: &Value) -> bool {
    value
        .as_array()
        .is_some_and(|list| list.iter().all(|one| one == "text"))
}

fn is_text_format(value: &Value) -> bool {
    value.get("type").is_some_and(|kind| kind == "text")
}

fn never(_: &Value) -> bool {
    false
}

/// Members that change an answer, and that this server does not follow.
const UNSUPPORTED: &[(&str, IsHarmless)] = &[
    ("tools", is_empty),
    ("tool_choice", |value| value == "none" || value == "auto"),
    ("functions", is_empty),
    ("function_call", |value| value == "none" || value == "auto"),
    ("response_format", is_text_format),
    ("modalities", is_text_only),
    ("audio", never),
    ("web_search_options", never),
    ("suffix", is_empty),
    ("use_beam_search", is_false),
    ("length_penalty", is_one),
    ("include_stop_str_in_output", is_false),
    ("skip_special_tokens", is_true),
    ("truncate_prompt_tokens", never),
    ("continue_final_message", is_false),
    ("chat_template", never),
    ("documents", is_empty),
    ("structured_outputs", never),
    ("guided_json", never),
    ("guided_regex", never),
    ("guided_choice", never),
    ("guided_grammar", never),
    ("json_schema", never),
    ("grammar", is_empty),
    ("regex", never),
    ("logits_processors", is_empty),
    ("allowed_token_ids", never),
    ("bad_words", is_empty),
    ("typical_p", is_one),
    ("mirostat", is_zero),
    ("dry_multiplier", is_zero),
    ("xtc_probability", is_zero),
    ("top_n_sigma", |value| {
        value.as_f64().is_some_and(|sigma| sigma <= 0.0)
    }),
];

/// Refuses what the server cannot do as it is asked to.
pub(super) fn refuse_unsupported(fields: &Fields) -> Result<(), ApiError> {
    for (name, is_harmless) in UNSUPPORTED {
        if fields.get(name).is_some_and(|value| !is_harmless(value)) {
            return Err(ApiError::unsupported(name));
        }
    }
    Ok(())
}

/// Reads how tokens are chosen; `max_tokens` and `logprobs` are the caller's to set.
pub(super) fn sampling(
    fields: &Fields,
    defaults: &SamplingDefaults,
    vocab_size: usize,
) -> Result<SamplingParams, ApiError> {
    let top_p = fields.number("top_p", 0.0..=1.0)?;
    let temperature = fields.number("temperature", 0.0..=2.0)?;
    let is_greedy = top_p == Some(0.0);
    // Logits are divided by it: less would make numbers that are none.
    let penalty = fields.number("repetition_penalty", 0.01..=10.0)?;
    // -1 is vLLM's older way to say all.
    let top_k = fields.integer("top_k", -1..=i64::from(u32::MAX))?;
    Ok(SamplingParams {
        temperature: if is_greedy {
            0.0
        } else {
            temperature.unwrap_or(defaults.temperature)
        },
        top_k: top_k.map_or(defaults.top_k, |top_k| top_k.max(0) as u32),
        top_p: top_p.filter(|top_p| *top_p > 0.0).unwrap_or(defaults.top_p),
        min_p: fields.number("min_p", 0.0..=1.0)?.unwrap_or(defaults.min_p),
        repetition_penalty: penalty.unwrap_or(defaults.repetition_penalty),
        frequency_penalty: fields
            .number("frequency_penalty", -2.0..=2.0)?
            .unwrap_or_default(),
        presence_penalty: fields
            .number("presence_penalty", -2.0..=2.0)?
            .unwrap_or_default(),
        logit_bias: logit_bias(fields, vocab_size)?,
        seed: seed(fields)?,
        stop: stop(fields)?,
        stop_token_ids: stop_token_ids(fields, vocab_size)?,
        ignore_eos: fields.flag("ignore_eos")?.unwrap_or_default(),
        min_tokens: fields
            .count("min_tokens", 0..=u32::MAX)?
            .unwrap_or_default(),
        max_tokens: 0,
        logprobs: None,
    })
}

/// The seed of a request; one that names none gets one that nobody knows.
fn seed(fields: &Fields) -> Result<u64, ApiError> {
    if let Some(Value::Number(number)) = fields.get("seed")
        && let Some(seed) = number.as_u64()
    {
        return Ok(seed);
    }
    let seed = fields.integer("seed", i64::MIN..=i64::MAX)?;
    Ok(seed.map_or_else(|| fastrand::u64(..), i64::cast_unsigned))
}

/// The seed of one of several answers to a prompt: the first has the request's
/// own, so that it is the same answer as with `n` 1.
pub(super) fn seed_of(seed: u64, index: u32) -> u64 {
    if index == 0 {
        return seed;
    }
    // The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
    let mut mixed = seed.wrapping_add(u64::from(index).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn stop(fields: &Fields) -> Result<Vec<String>, ApiError> {
    let texts: Vec<String> = match fields.get("stop") {
        None => return Ok(Vec::new()),
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(list)) => {
            let texts = list.iter().map(|text| text.as_str().map(str::to_owned));
            texts
                .collect::<Option<_>>()
                .ok_or_else(|| ApiError::parameter("stop", "not a list of strings"))?
        }
        Some(_) => {
            return Err(ApiError::parameter(
                "stop",
                "not a string or a list of strings",
            ));
        }
    };
    if texts.len() > MAX_STOP_TEXTS {
        let reason = format!("{} texts are more than {MAX_STOP_TEXTS}", texts.len());
        return Err(ApiError::parameter("stop", reason));
    }
    if texts.iter().any(String::is_empty) {
        return Err(ApiError::parameter(
            "stop",
            "an empty text ends every answer",
        ));
    }
    if texts.iter().any(|text| text.len() > MAX_STOP_BYTES) {
        let reason = format!("a text has more than {MAX_STOP_BYTES} bytes");
        return Err(ApiError::parameter("stop", reason));
    }
    Ok(texts)
}

fn stop_token_ids(fields: &Fields, vocab_size: usize) -> Result<Vec<TokenId>, ApiError> {
    const NAME: &str = "stop_token_ids";
    match fields.get(NAME) {
        None => Ok(Vec::new()),
        Some(Value::Array(list)) if list.len() <= MAX_STOP_TOKENS => {
            fields::tokens(NAME, list, vocab_size)
        }
        Some(Value::Array(_)) => {
            let reason = format!("more than {MAX_STOP_TOKENS} tokens");
            Err(ApiError::parameter(NAME, reason))
        }
        Some(_) => Err(ApiError::parameter(NAME, "not a list of tokens")),
    }
}

fn logit_bias(fields: &Fields, vocab_size: usize) -> Result<Vec<(TokenId, f32)>, ApiError> {
    const NAME: &str = "logit_bias";
    let members = match fields.get(NAME) {
        None => return Ok(Vec::new()),
        Some(Value::Object(members)) => members,
        Some(_) => return Err(ApiError::parameter(NAME, "not an object")),
    };
    if members.len() > MAX_BIASED_TOKENS {
        let reason = format!("{} tokens are more than {MAX_BIASED_TOKENS}", members.len());
        return Err(ApiError::parameter(NAME, reason));
    }
    let mut biases = Vec::with_capacity(members.len());
    for (key, value) in members {
        let id = key.parse::<TokenId>().ok();
        let Some(id) = id.filter(|id| (*id as usize) < vocab_size) else {
            let reason = format!("{key:?} is no token: tokens are 0 to {}", vocab_size - 1);
            return Err(ApiError::parameter(NAME, reason));
        };
        match value.as_f64() {
            Some(bias) if (-100.0..=100.0).contains(&bias) => biases.push((id, bias as f32)),
            _ => {
                let reason = format!("{value} of {key} is not within -100 and 100");
                return Err(ApiError::parameter(NAME, reason));
            }
        }
    }
    biases.sort_unstable_by_key(|(id, _)| *id);
    // "7" and "07" are one token.
    if biases.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        return Err(ApiError::parameter(NAME, "a token stands there twice"));
    }
    Ok(biases)
}

/// How an answer is sent, and how many there are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Delivery {
    /// Answers to each prompt, at least one.
    pub(super) num_choices: u32,
    pub(super) is_streamed: bool,
    /// Whether the stream ends with what was used.
    pub(super) includes_usage: bool,
    /// Whether each chunk tells what was used so far.
    pub(super) includes_running_usage: bool,
}

impl Delivery {
    pub(super) fn of(fields: &Fields) -> Result<Self, ApiError> {
        let is_streamed = fields.flag("stream")?.unwrap_or_default();
        let options = fields.object("stream_options")?;
        if options.is_some() && !is_streamed {
            return Err(ApiError::parameter(
                "stream_options",
                "only with `stream`: true",
            ));
        }
        let flag = |name| match &options {
            Some(options) => options.flag(name).map(Option::unwrap_or_default),
            None => Ok(false),
        };
        let num_choices = fields.count("n", 1..=MAX_CHOICES)?.unwrap_or(1);
        let best_of = fields.count("best_of", 1..=u32::MAX)?;
        match best_of {
            Some(best_of) if best_of < num_choices => {
                return Err(ApiError::parameter("best_of", "less than `n`"));
            }
            Some(best_of) if best_of > num_choices => {
                return Err(ApiError::unsupported("best_of"));
            }
            _ => {}
        }
        Ok(Self {
            num_choices,
            is_streamed,
            includes_usage: flag("include_usage")?,
            includes_running_usage: flag("continuous_usage_stats")?,
        })
    }
}

/// Highest `priority`. Waiting makes up for one in some seconds, so that nobody
/// is kept out for long by others' numbers.
const MAX_PRIORITY: i64 = 10;

/// The `priority` of a request; lower comes first.
pub(super) fn priority(fields: &Fields) -> Result<i32, ApiError> {
    let range = -MAX_PRIORITY..=MAX_PRIORITY;
    Ok(fields.integer("priority", range)?.unwrap_or_default() as i32)
}

/// The `cache_salt` of a request.
pub(super) fn cache_salt(fields: &Fields) -> Result<Option<&str>, ApiError> {
    match fields.text("cache_salt")? {
        Some("") => Err(ApiError::parameter(
            "cache_salt",
            "an empty text hides nothing",
        )),
        Some(salt) if salt.len() > MAX_SALT_BYTES => {
            let reason = format!("more than {MAX_SALT_BYTES} bytes");
            Err(ApiError::parameter("cache_salt", reason))
        }
        salt => Ok(salt),
    }
}

/// Tokens that an answer may have: what was asked for, or what is left.
///
/// One rule, that of OpenAI and vLLM: prompt and what was asked for have to fit
/// the context together, and nothing is cut short in silence; who asks for
/// nothing gets the default, or what is left if that is less.
pub(super) fn max_tokens(
    asked: Option<u32>,
    default: Option<u32>,
    num_prompt_tokens: usize,
    context: usize,
) -> Result<u32, ApiError> {
    let left = context.saturating_sub(num_prompt_tokens);
    let left = u32::try_from(left).unwrap_or(u32::MAX);
    let wanted = asked.unwrap_or(1);
    if wanted.max(1) > left {
        let message = format!(
            "this model's context holds {context} tokens, and {} were asked for: \
             {num_prompt_tokens} of the prompt and {wanted} of the answer",
            num_prompt_tokens + wanted as usize,
        );
        return Err(ApiError::too_long(message));
    }
    Ok(asked.unwrap_or_else(|| default.map_or(left, |default| default.min(left))))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VOCAB_SIZE: usize = 100;
    /// Members that are read here.
    const NAMES: &[&str] = &[
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "repetition_penalty",
        "frequency_penalty",
        "presence_penalty",
        "logit_bias",
        "seed",
        "stop",
        "stop_token_ids",
        "ignore_eos",
        "min_tokens",
        "n",
        "best_of",
        "stream",
        "stream_options",
        "priority",
        "cache_salt",
    ];

    fn fields(text: &str) -> Fields {
        Fields::parse(text.as_bytes()).expect("an object")
    }

    fn read(text: &str) -> Result<SamplingParams, ApiError> {
        let fields = fields(text);
        refuse_unsupported(&fields)?;
        Delivery::of(&fields)?;
        priority(&fields)?;
        cache_salt(&fields)?;
        sampling(&fields, &SamplingDefaults::default(), VOCAB_SIZE)
    }

    /// Checks that a body is refused, because of this member.
    #[track_caller]
    fn refused(text: &str, param: &str) {
        let error = read(text).expect_err(text).to_json();
        let param = format!("\"param\":\"{param}\"");
        assert!(error.contains(&param), "{text}: {error}");
    }

    #[test]
    fn every_member_may_be_null_or_absent() {
        let unsupported = UNSUPPORTED.iter().map(|(name, _)| *name);
        let members: Vec<String> = NAMES
            .iter()
            .copied()
            .chain(unsupported)
            .map(|name| format!("\"{name}\":null"))
            .collect();
        let nulls = format!("{{{}}}", members.join(","));
        let mut found = read(&nulls).expect("all are absent");
        let mut expected = read("{}").expect("nothing to refuse");
        (found.seed, expected.seed) = (0, 0);
        assert_eq!(found, expected);
    }

    #[test]
    fn values_out_of_range_are_refused_by_name() {
        for (text, param) in [
            (r#"{"temperature":-0.1}"#, "temperature"),
            (r#"{"temperature":2.1}"#, "temperature"),
            (r#"{"temperature":"1"}"#, "temperature"),
            (r#"{"top_p":1.1}"#, "top_p"),
            (r#"{"top_k":-2}"#, "top_k"),
            (r#"{"min_p":2}"#, "min_p"),
            (r#"{"repetition_penalty":0}"#, "repetition_penalty"),
            (r#"{"frequency_penalty":3}"#, "frequency_penalty"),
            (r#"{"presence_penalty":-3}"#, "presence_penalty"),
            (r#"{"logit_bias":{"999999":5}}"#, "logit_bias"),
            (r#"{"logit_bias":{"-1":1}}"#, "logit_bias"),
            (r#"{"logit_bias":{"abc":1}}"#, "logit_bias"),
            (r#"{"logit_bias":{"1":101}}"#, "logit_bias"),
            (r#"{"logit_bias":{"1":1,"01":1}}"#, "logit_bias"),
            (r#"{"logit_bias":[1]}"#, "logit_bias"),
            (r#"{"seed":"a"}"#, "seed"),
            (r#"{"seed":1.5}"#, "seed"),
            (r#"{"stop":""}"#, "stop"),
            (r#"{"stop":["a",""]}"#, "stop"),
            (r#"{"stop":["a",1]}"#, "stop"),
            (r#"{"stop":1}"#, "stop"),
            (r#"{"stop_token_ids":[100]}"#, "stop_token_ids"),
            (r#"{"stop_token_ids":1}"#, "stop_token_ids"),
            (r#"{"min_tokens":-1}"#, "min_tokens"),
            (r#"{"ignore_eos":1}"#, "ignore_eos"),
            (r#"{"n":0}"#, "n"),
            (r#"{"n":9}"#, "n"),
            (r#"{"stream":"yes"}"#, "stream"),
            (r#"{"stream_options":{}}"#, "stream_options"),
            (
                r#"{"stream":false,"stream_options":{"include_usage":true}}"#,
                "stream_options",
            ),
            (r#"{"best_of":1,"n":2}"#, "best_of"),
            (r#"{"best_of":2}"#, "best_of"),
            (r#"{"priority":4294967296}"#, "priority"),
            (r#"{"priority":-11}"#, "priority"),
            (r#"{"repetition_penalty":1e-38}"#, "repetition_penalty"),
            (r#"{"cache_salt":""}"#, "cache_salt"),
            (r#"{"cache_salt":1}"#, "cache_salt"),
        ] {
            refused(text, param);
        }
        let many = format!("{{\"stop\":{:?}}}", vec!["a"; MAX_STOP_TEXTS + 1]);
        refused(&many, "stop");
        let long = format!("{{\"stop\":{:?}}}", "a".repeat(MAX_STOP_BYTES + 1));
        refused(&long, "stop");
    }

    #[test]
    fn what_is_not_done_is_refused_by_name() {
        for (text, param) in [
            (r#"{"tools":[{"type":"function"}]}"#, "tools"),
            (r#"{"tool_choice":"required"}"#, "tool_choice"),
            (
                r#"{"response_format":{"type":"json_object"}}"#,
                "response_format",
            ),
            (
                r#"{"response_format":{"type":"json_schema","json_schema":{}}}"#,
                "response_format",
            ),
            (r#"{"suffix":"x"}"#, "suffix"),
            (r#"{"modalities":["text","audio"]}"#, "modalities"),
            (r#"{"guided_json":{}}"#, "guided_json"),
            (r#"{"typical_p":0.9}"#, "typical_p"),
        ] {
            refused(text, param);
        }
        for text in [
            r#"{"tools":[],"tool_choice":"none","response_format":{"type":"text"}}"#,
            r#"{"suffix":"","modalities":["text"],"typical_p":1.0,"mirostat":0}"#,
            r#"{"user":"a","metadata":{"a":"b"},"store":true,"service_tier":"auto","x":[1]}"#,
            r#"{"n":2,"best_of":2,"top_k":40.0}"#,
            r#"{"parallel_tool_calls":false,"reasoning_effort":"low","prediction":{}}"#,
        ] {
            assert!(read(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn what_is_asked_for_is_handed_on() {
        let params = read(
            r#"{"temperature":0,"top_k":-1,"top_p":0.5,"min_p":0.1,"seed":-1,
                "logit_bias":{"9":-100,"2":100.0},"stop":"END","stop_token_ids":[3],
                "ignore_eos":true,"min_tokens":2,"repetition_penalty":1.5,
                "frequency_penalty":0.5,"presence_penalty":-0.5}"#,
        )
        .expect("all are valid");
        let expected = SamplingParams {
            temperature: 0.0,
            top_k: 0,
            top_p: 0.5,
            min_p: 0.1,
            repetition_penalty: 1.5,
            frequency_penalty: 0.5,
            presence_penalty: -0.5,
            logit_bias: vec![(2, 100.0), (9, -100.0)],
            seed: u64::MAX,
            stop: vec!["END".to_owned()],
            stop_token_ids: vec![3],
            ignore_eos: true,
            min_tokens: 2,
            max_tokens: 0,
            logprobs: None,
        };
        assert_eq!(params, expected);
    }

    #[test]
    fn a_top_p_of_zero_takes_the_likeliest() {
        let params = read(r#"{"top_p":0,"temperature":1.5}"#).expect("valid");
        assert_eq!((params.temperature, params.top_p), (0.0, 1.0));
    }

    #[test]
    fn seeds_of_choices_differ_and_the_first_is_the_requests() {
        let seeds: Vec<u64> = (0..MAX_CHOICES).map(|index| seed_of(7, index)).collect();
        assert_eq!(seeds[0], 7);
        let distinct: std::collections::BTreeSet<_> = seeds.iter().collect();
        assert_eq!(distinct.len(), seeds.len());
        assert_eq!(seeds[1], seed_of(7, 1));
    }

    /// A JSON value, often one that some member means.
    fn any_value() -> impl Strategy<Value = String> {
        let words = prop::sample::select(vec![
            "null",
            "true",
            "false",
            "0",
            "1",
            "-1",
            "2",
            "0.5",
            "1e30",
            "99",
            "-100.0",
            "\"\"",
            "\"a\"",
            "\"none\"",
            "[]",
            "[\"a\"]",
            "[1,2]",
            "[\"\"]",
            "{}",
            "{\"7\":1}",
            "{\"type\":\"text\"}",
            "{\"x\":null}",
            "18446744073709551615",
        ]);
        words.prop_map(str::to_owned)
    }

    proptest! {
        /// Whatever a client sends is refused, or is something that the engine takes.
        #[test]
        fn what_is_accepted_is_valid_to_the_engine(
            values in prop::collection::vec(any_value(), NAMES.len() + UNSUPPORTED.len()),
            is_there in prop::collection::vec(prop::bool::weighted(0.2), NAMES.len() + UNSUPPORTED.len()),
        ) {
            let names = NAMES.iter().copied().chain(UNSUPPORTED.iter().map(|(name, _)| *name));
            let members: Vec<String> = names
                .zip(values)
                .zip(is_there)
                .filter(|(_, is_there)| *is_there)
                .map(|((name, value), _)| format!("\"{name}\":{value}"))
                .collect();
            let text = format!("{{{}}}", members.join(","));
            if let Ok(mut params) = read(&text) {
                params.max_tokens = params.min_tokens.max(1);
                prop_assert_eq!(params.validate(VOCAB_SIZE), Ok(()), "{}", text);
            }
        }
    }

    #[test]
    fn an_answer_fits_what_the_prompt_leaves() {
        let check = |asked, default, num_prompt, expected: Option<u32>| {
            let found = max_tokens(asked, default, num_prompt, 10).ok();
            assert_eq!(found, expected, "{asked:?} {default:?} {num_prompt}");
        };
        check(None, None, 4, Some(6));
        check(None, Some(3), 4, Some(3));
        check(None, Some(30), 4, Some(6));
        check(None, None, 9, Some(1));
        check(None, None, 10, None);
        check(None, None, 11, None);
        check(Some(6), None, 4, Some(6));
        check(Some(7), None, 4, None);
        check(Some(0), None, 9, Some(0));
        check(Some(0), None, 10, None);
    }
}
