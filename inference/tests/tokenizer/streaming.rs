//! Text of an answer in pieces: nothing is lost, no character is split, and
//! stop texts are found wherever the pieces are cut.

use std::sync::Arc;

use justapi_inference::{Detokenizer, SpecialTokens, StopMatcher, Tokenizer};
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, proptest};
use proptest::sample;

use crate::small;

fn tokenizers() -> [Arc<Tokenizer>; 2] {
    let golden = small::golden();
    ["smollm", "sentencepiece False"].map(|name| Arc::new(small::tokenizer(&golden, name)))
}

/// Text of each token, and at last what was left.
fn pieces(tokenizer: &Arc<Tokenizer>, ids: &[u32]) -> Vec<String> {
    let mut detokenizer = Detokenizer::new(Arc::clone(tokenizer));
    let mut pieces: Vec<_> = ids.iter().map(|&id| detokenizer.push(id)).collect();
    pieces.push(detokenizer.finish());
    pieces
}

#[test]
fn characters_come_whole() {
    let text = "a \u{1F468}\u{200D}\u{1F469}\u{200D}\u{1F467} 日本 ☕\u{FE0F} é";
    for tokenizer in tokenizers() {
        let ids = tokenizer.encode(text, SpecialTokens::AsText);
        assert!(
            ids.len() > text.chars().count(),
            "some characters have several tokens"
        );
        let pieces = pieces(&tokenizer, &ids);
        assert!(
            pieces.iter().all(|piece| !piece.contains('\u{fffd}')),
            "{pieces:?}"
        );
        assert_eq!(pieces.concat(), text);
    }
}

#[test]
fn a_first_space_stays() {
    for tokenizer in tokenizers() {
        let ids = tokenizer.encode(" the the", SpecialTokens::AsText);
        assert_eq!(pieces(&tokenizer, &ids).concat(), " the the");
    }
}

#[test]
fn an_incomplete_character_at_the_end_is_told_of() {
    for tokenizer in tokenizers() {
        let ids = tokenizer.encode("x\u{1F44D}", SpecialTokens::AsText);
        let pieces = pieces(&tokenizer, &ids[..ids.len() - 1]);
        assert_eq!(pieces.last().map(String::as_str), Some("\u{fffd}"));
        assert_eq!(pieces.concat(), "x\u{fffd}");
    }
}

#[test]
fn control_tokens_are_no_text_unless_asked_for() {
    let [tokenizer, _] = tokenizers();
    let ids = tokenizer.encode("a<|im_end|>b", SpecialTokens::Parse);
    assert_eq!(pieces(&tokenizer, &ids).concat(), "ab");
    let mut detokenizer = Detokenizer::new(tokenizer).with_control();
    let shown: String = ids.iter().map(|&id| detokenizer.push(id)).collect();
    assert_eq!(shown, "a<|im_end|>b");
}

/// All stop texts in a text: the one that ends first, of those the longest.
fn text_before_stop(text: &str, stop_texts: &[String]) -> Option<String> {
    let mut ends = (1..=text.len()).filter(|&end| text.is_char_boundary(end));
    ends.find_map(|end| {
        let found = stop_texts
            .iter()
            .filter(|stop| !stop.is_empty() && text[..end].ends_with(*stop));
        found
            .map(|stop| text[..end - stop.len()].to_owned())
            .min_by_key(String::len)
    })
}

fn check_stop(
    text: &str,
    cuts: &[usize],
    stop_texts: &[String],
) -> Result<(), proptest::test_runner::TestCaseError> {
    let mut matcher = StopMatcher::new(stop_texts);
    let characters: Vec<_> = text.chars().collect();
    let mut cuts: Vec<_> = cuts
        .iter()
        .map(|cut| cut % (characters.len() + 1))
        .collect();
    cuts.extend([0, characters.len()]);
    cuts.sort_unstable();
    let mut given = String::new();
    for pair in cuts.windows(2) {
        given += &matcher.push(&characters[pair[0]..pair[1]].iter().collect::<String>());
        let seen: String = characters[..pair[1]].iter().collect();
        prop_assert!(seen.starts_with(&given));
        if !matcher.is_stopped() {
            // No more is held back than what may become a stop text.
            let held = &seen[given.len()..];
            prop_assert!(held.is_empty() || stop_texts.iter().any(|stop| stop.starts_with(held)));
        }
    }
    let expected = text_before_stop(text, stop_texts);
    prop_assert_eq!(matcher.is_stopped(), expected.is_some());
    given += &matcher.finish();
    prop_assert_eq!(given, expected.unwrap_or_else(|| text.to_owned()));
    Ok(())
}

#[test]
fn stop_texts_are_found_at_every_cut() {
    let stop_texts = ["\n\nUser:", "aab", "é", "", "<|im_end|>"].map(str::to_owned);
    for text in [
        "Hi.\n\n\nUser: x",
        "aaaab",
        "aa",
        "cafè é",
        "<|im_<|im_end|>",
        "none \n\nUse",
    ] {
        for cut in 0..=text.chars().count() {
            check_stop(text, &[cut], &stop_texts).expect("the same as whole");
        }
    }
}

fn small_text(max_len: usize) -> impl Strategy<Value = String> {
    vec(sample::select(vec!['a', 'b', 'é', 'è', '\n']), 0..max_len)
        .prop_map(|characters| characters.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn stop_texts_do_not_depend_on_the_pieces(
        text in small_text(20),
        cuts in vec(any::<usize>(), 0..6),
        stop_texts in vec(small_text(5), 0..4),
    ) {
        check_stop(&text, &cuts, &stop_texts)?;
    }
}

#[test]
fn any_tokens_give_the_same_in_pieces_as_whole() {
    let tokenizers = tokenizers();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(300));
    runner
        .run(&vec(any::<u32>(), 0..40), |numbers| {
            for tokenizer in &tokenizers {
                let num_tokens = tokenizer.vocab_size() as u32;
                // Half of them from the bytes, most of which are no text.
                let ids = numbers
                    .iter()
                    .map(|n| if n % 2 == 0 { n % num_tokens } else { n % 290 });
                let ids: Vec<_> = ids.collect();
                let pieces = pieces(tokenizer, &ids);
                prop_assert_eq!(pieces.concat(), tokenizer.decode(&ids));
            }
            Ok(())
        })
        .expect("the same in pieces");
}
