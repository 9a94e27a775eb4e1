//! Folders and files, sound and broken.

use std::fs;

use proptest::prelude::*;
use tempfile::TempDir;

use super::{SafetensorsFiles, WeightSource as _, is_file_name};
use crate::weights::DataType;

fn file(header: &str, data: &[u8]) -> Vec<u8> {
    let len = (header.len() as u64).to_le_bytes();
    [&len[..], header.as_bytes(), data].concat()
}

fn tensor(name: &str, dtype: &str, shape: &str, start: usize, end: usize) -> String {
    format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{start},{end}]}}"#)
}

/// Two tensors, the second first in the file.
fn sample() -> Vec<u8> {
    let header = format!(
        r#"{{"__metadata__":{{"format":"pt"}},{},{}}}"#,
        tensor("b", "BF16", "[2,2]", 4, 12),
        tensor("a", "F32", "[1]", 0, 4)
    );
    file(
        &header,
        &[
            0, 0, 0x80, 0x3F, 0, 0x40, 0x40, 0x40, 0x80, 0x40, 0xA0, 0x40,
        ],
    )
}

#[test]
fn tensors_are_read_in_the_order_of_the_file() {
    let files = SafetensorsFiles::of_bytes(sample()).expect("a sound file");
    let names: Vec<&str> = files.tensors().iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    let second = files.tensor("b").expect("is there");
    assert_eq!(
        (second.data_type, &second.shape[..]),
        (DataType::BF16, &[2, 2][..])
    );
    let mut bytes = Vec::new();
    files.read_rows(second, 1..2, &mut bytes).expect("a row");
    let mut values = [0.0; 2];
    DataType::BF16.dequantize(&bytes, &mut values);
    assert_eq!(values.map(f32::to_bits), [4.0_f32, 5.0].map(f32::to_bits));
}

#[test]
fn broken_files_are_refused_with_the_numbers() {
    let check = |bytes: Vec<u8>, expected: &str| {
        let message = match SafetensorsFiles::of_bytes(bytes) {
            Ok(_) => panic!("is read: {expected}"),
            Err(error) => error.to_string(),
        };
        assert!(message.contains(expected), "{message}\n{expected}");
    };
    let one = |dtype, shape, start, end| format!("{{{}}}", tensor("t", dtype, shape, start, end));
    check(vec![0; 7], "7 bytes are no safetensors file");
    check(
        u64::MAX.to_le_bytes().to_vec(),
        "header of 18446744073709551615 bytes, most 0",
    );
    check(file("{", &[]), "header: EOF");
    check(
        file(&one("F32", "[1]", 0, 4), &[0; 3]),
        "tensors of 4 bytes, and the file has 3",
    );
    check(
        file(&one("F32", "[1]", 0, 4), &[0; 5]),
        "tensors of 4 bytes, and the file has 5",
    );
    check(file(&one("F32", "[2]", 0, 4), &[0; 4]), "header: ");
    check(file(&one("F32", "[1]", 4, 8), &[0; 8]), "header: ");
    check(
        file(&one("F32", "[4294967296,4294967296]", 0, 4), &[0; 4]),
        "header: ",
    );
    check(
        file(&one("I64", "[1]", 0, 8), &[0; 8]),
        "tensor t has the format I64; supported: F32, F16, BF16",
    );
}

/// A folder with an index of `map` and two files of one tensor each.
fn folder(map: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, bytes: &[u8]| {
        fs::write(folder.path().join(name), bytes).expect("a file");
    };
    let one = |name| {
        file(
            &format!("{{{}}}", tensor(name, "F16", "[1]", 0, 2)),
            &[0; 2],
        )
    };
    write("model-1.safetensors", &one("x"));
    write("model-2.safetensors", &one("y"));
    write(
        "model.safetensors.index.json",
        format!(r#"{{"weight_map":{map}}}"#).as_bytes(),
    );
    folder
}

#[test]
fn an_index_joins_the_files_that_it_names() {
    let folder = folder(r#"{"y":"model-2.safetensors","x":"model-1.safetensors"}"#);
    let files = SafetensorsFiles::open_folder(folder.path()).expect("a sound folder");
    assert_eq!(files.tensors().len(), 2);
    let mut bytes = Vec::new();
    let second = files.tensor("y").expect("is there");
    files.read(second, &mut bytes).expect("two bytes");
    assert_eq!(bytes, [0, 0]);
}

#[test]
fn broken_indexes_are_refused() {
    let check = |map: &str, expected: &str| {
        let message = match SafetensorsFiles::open_folder(folder(map).path()) {
            Ok(_) => panic!("is read: {map}"),
            Err(error) => error.to_string(),
        };
        assert!(message.contains(expected), "{message}\n{expected}");
    };
    check(
        r#"{"x":"../model-1.safetensors"}"#,
        "is not the name of a file in this folder",
    );
    check(
        r#"{"x":"/etc/passwd"}"#,
        "is not the name of a file in this folder",
    );
    check(r#"{"x":"absent.safetensors"}"#, "cannot read");
    check(
        r#"{"y":"model-1.safetensors"}"#,
        "tensor y: should be in model-1.safetensors",
    );
    check(r#"{"x":1}"#, "invalid type: integer");
    check("[]", "invalid type: sequence");
}

#[test]
fn a_folder_without_weights_names_what_it_should_have() {
    let empty = tempfile::tempdir().expect("a folder");
    let error = SafetensorsFiles::open_folder(empty.path()).expect_err("has no weights");
    assert!(
        error.to_string().contains("model.safetensors.index.json"),
        "{error}"
    );
}

#[test]
fn only_plain_names_are_names_of_files() {
    for (name, expected) in [
        ("model-1.safetensors", true),
        ("..", false),
        (".", false),
        ("", false),
        ("a/b", false),
        ("a/", false),
        ("./a", false),
        ("/a", false),
        ("..\\a", false),
    ] {
        assert_eq!(is_file_name(name), expected, "{name:?}");
    }
}

proptest! {
    #[test]
    fn changed_bytes_never_break_the_reader(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = sample();
        let num_bytes = bytes.len();
        for (place, byte) in changes {
            let place = place.index(num_bytes);
            bytes[place] = byte;
        }
        let Ok(files) = SafetensorsFiles::of_bytes(bytes) else {
            return Ok(());
        };
        let mut bytes = Vec::new();
        for tensor in files.tensors() {
            let result = files.read(tensor, &mut bytes);
            let is_inside = !matches!(result, Err(crate::Error::Read { .. }));
            prop_assert!(is_inside, "{result:?}");
            prop_assert!(bytes.len() <= num_bytes);
        }
    }
}
