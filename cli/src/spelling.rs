//! The known word that the user most likely meant.

use std::fs;
use std::path::{Path, PathBuf};

/// A tail for a message: the candidate that was probably meant, or nothing.
pub(crate) fn did_you_mean<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> String {
    nearest(word, candidates).map_or_else(String::new, |nearest| {
        format!(" – did you mean `{nearest}`?")
    })
}

/// The candidate nearest to `word`, when it is near enough to be meant.
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    candidates
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= most_edits(word, candidate))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// The file beside a missing one that was probably meant.
pub(crate) fn nearest_file(missing: &Path) -> Option<PathBuf> {
    let name = missing.file_name()?.to_str()?;
    let folder = missing
        .parent()
        .filter(|folder| *folder != Path::new(""))
        .unwrap_or_else(|| Path::new("."));
    let entries = fs::read_dir(folder).ok()?;
    let names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    let near = nearest(name, names.iter().map(String::as_str))?;
    Some(missing.with_file_name(near))
}

/// Edits that are a typing error: of the part that two names do not share, a third; more is another
/// word.
fn most_edits(word: &str, candidate: &str) -> usize {
    let same = word
        .bytes()
        .zip(candidate.bytes())
        .take_while(|(a, b)| a == b);
    let same = same.count();
    let parts = word.match_indices(['.', '_', ':', '/']);
    let mut shared = parts.map(|(at, _)| at + 1).filter(|end| *end <= same);
    let own = &word[shared.next_back().unwrap_or_default()..];
    (own.chars().count() / 3).max(1)
}

/// Edits (insert, delete, replace, swap of neighbours) from `a` to `b`: the
/// optimal string alignment distance.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_edits() {
        for (a, b, edits) in [
            ("", "", 0),
            ("port", "port", 0),
            ("prot", "port", 1),
            ("pot", "port", 1),
            ("", "abc", 3),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(a, b), edits, "{a} {b}");
            assert_eq!(distance(b, a), edits, "{b} {a}");
        }
    }

    #[test]
    fn far_words_are_not_suggested() {
        let keys = ["server.port", "log.access"];
        assert_eq!(
            nearest("server.prot", keys.into_iter()),
            Some("server.port")
        );
        assert_eq!(nearest("colour", keys.into_iter()), None);
        // What is right in front of a name makes it no nearer.
        assert_eq!(nearest("server.host", keys.into_iter()), None);
        assert_eq!(nearest("sever.port", keys.into_iter()), Some("server.port"));
        assert_eq!(nearest("ünicode.port", keys.into_iter()), None);
    }
}
