//! The files that cells serve: pseudo-random, and a function of their length and kind alone.
//!
//! Most have content that does not compress and does not repeat: a wrong offset anywhere in an
//! answer is another body. A `.json` file is a list of orders as an API answers with it: names
//! repeat, values do not.

use std::fs;
use std::path::Path;

use crate::Error;
use crate::ledger::ServedFile;
use crate::stats::SplitMix64;

/// Largest file: it is also held in memory, to compare each answer with.
pub(super) const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;

/// Smallest JSON file: an empty list and a note.
pub(super) const MIN_JSON_BYTES: u64 = 64;

/// Folder of the files, inside `{dir}`.
const FOLDER: &str = "files";

/// Whether a file of this name is JSON.
pub(super) fn is_json(name: &str) -> bool {
    Path::new(name).extension() == Some("json".as_ref())
}

/// Returns the content of a file.
pub(super) fn content(file: &ServedFile) -> Vec<u8> {
    let length = usize::try_from(file.bytes).expect("the matrix keeps the limit of a file");
    let mut random = SplitMix64(file.bytes);
    if is_json(&file.name) {
        return orders(length, &mut random).into_bytes();
    }
    let mut content = Vec::with_capacity(length + size_of::<u64>());
    while content.len() < length {
        content.extend_from_slice(&random.next().to_le_bytes());
    }
    content.truncate(length);
    content
}

/// A JSON document of this length: as many orders as fit, and a note that fills the rest.
fn orders(length: usize, random: &mut SplitMix64) -> String {
    const END: &str = "],\"note\":\"\"}";
    let mut text = String::from("{\"orders\":[");
    loop {
        let order = order(random);
        let comma = if text.ends_with('[') { "" } else { "," };
        if text.len() + comma.len() + order.len() + END.len() > length {
            break;
        }
        text.push_str(comma);
        text.push_str(&order);
    }
    text.push_str(&END[..END.len() - 2]);
    while text.len() + 2 < length {
        text.push(char::from(b'a' + (random.next() % 26) as u8));
    }
    text.push_str(&END[END.len() - 2..]);
    text
}

fn order(random: &mut SplitMix64) -> String {
    let mut pick = |from: &[&'static str]| from[random.next() as usize % from.len()];
    let first = pick(&[
        "Ada", "Grace", "Alan", "Edsger", "Barbara", "Donald", "Frances", "Tony",
    ]);
    let last = pick(&[
        "Lovelace", "Hopper", "Turing", "Dijkstra", "Liskov", "Knuth", "Allen",
    ]);
    let city = pick(&[
        "Berlin",
        "London",
        "New York",
        "Amsterdam",
        "Zürich",
        "Kyoto",
        "Nairobi",
    ]);
    let status = pick(&["open", "paid", "sent", "returned"]);
    let mut below = |bound: u64| random.next() % bound;
    let items: Vec<String> = (0..=below(3))
        .map(|_| {
            format!(
                r#"{{"sku":"{:04X}-{:04}","quantity":{},"price":{}.{:02}}}"#,
                below(0x10000),
                below(10_000),
                1 + below(9),
                below(200),
                below(100),
            )
        })
        .collect();
    format!(
        r#"{{"id":{},"customer":{{"name":"{first} {last}","email":"{}.{}@example.com","city":"{city}"}},"status":"{status}","express":{},"created":"2026-{:02}-{:02}T{:02}:{:02}:{:02}Z","items":[{}],"total":{}.{:02}}}"#,
        100_000 + below(900_000),
        first.to_lowercase(),
        last.to_lowercase(),
        below(2) == 0,
        1 + below(12),
        1 + below(28),
        below(24),
        below(60),
        below(60),
        items.join(","),
        below(2000),
        below(100),
    )
}

/// Writes the file into `folder` and returns its content.
pub(super) fn write(folder: &Path, file: &ServedFile) -> Result<Vec<u8>, Error> {
    let folder = folder.join(FOLDER);
    fs::create_dir_all(&folder).map_err(Error::file("create", &folder))?;
    let content = content(file);
    let path = folder.join(&file.name);
    fs::write(&path, &content).map_err(Error::file("write", &path))?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::sha256_hex;

    fn file(name: &str, bytes: u64) -> ServedFile {
        ServedFile {
            name: name.to_owned(),
            bytes,
        }
    }

    #[test]
    fn each_length_has_its_own_content() {
        let content = |bytes| content(&file("f.bin", bytes));
        assert!(content(0).is_empty());
        assert_eq!(content(11).len(), 11);
        assert_ne!(content(4096)[..16], content(4097)[..16]);
    }

    #[test]
    fn a_json_file_has_its_length_and_compresses_like_an_answer() {
        for bytes in (MIN_JSON_BYTES..700).chain([10_240]) {
            let content = content(&file("d.json", bytes));
            assert_eq!(content.len() as u64, bytes);
            let value: serde_json::Value = serde_json::from_slice(&content).unwrap();
            let has_orders = !value["orders"].as_array().unwrap().is_empty();
            assert!(has_orders || bytes < 500, "{bytes}");
            if bytes == 10_240 {
                let compressed = crate::matrix::coded::tests::gzip(&content).len() as u64;
                let ratio = bytes as f64 / compressed as f64;
                assert!((3.0..8.0).contains(&ratio), "{ratio}");
            }
        }
    }

    /// Digests of an independent implementation, in Python.
    #[test]
    fn the_digests_are_those_of_another_implementation() {
        for (bytes, expected) in [
            (
                4096,
                "6f98b4a98d406393863b06d8787c8c0cf62f694bc062450dab6b08b26e3b8ed1",
            ),
            (
                1_048_576,
                "01ac200d5808b9d6e3ab5f05977d9bf4b88eabc21bad6a30c72cc3ad7d53341e",
            ),
        ] {
            let content = content(&file("f.bin", bytes));
            assert_eq!(sha256_hex(&content), expected);
        }
    }

    #[test]
    fn a_file_is_written_whole() {
        let folder = tempfile::tempdir().unwrap();
        let content = write(folder.path(), &file("f.bin", 70_001)).unwrap();
        let found = fs::read(folder.path().join("files/f.bin")).unwrap();
        assert_eq!((found.len(), found == content), (70_001, true));
    }
}
