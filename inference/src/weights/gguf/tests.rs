//! Sound files read whole, and what is said about broken ones, one a line.

use proptest::prelude::*;

use super::builder::{GgufBuilder, array, string};
use super::{GgufFile, WeightSource as _};
use crate::error::Error;
use crate::weights::DataType;

/// One key of each type and three tensors.
fn sample() -> GgufBuilder {
    let f32_bytes: Vec<u8> = (0..6).flat_map(|n| (n as f32).to_le_bytes()).collect();
    GgufBuilder::new()
        .string("general.architecture", "llama")
        .u32("general.alignment", 32)
        .f32("epsilon", 0.5)
        .raw(b"u8", 0, &[200])
        .raw(b"i8", 1, &[0xFE])
        .raw(b"u16", 2, &60_000_u16.to_le_bytes())
        .raw(b"i16", 3, &(-3_i16).to_le_bytes())
        .raw(b"i32", 5, &7_i32.to_le_bytes())
        .raw(b"bool", 7, &[1])
        .raw(b"u64", 10, &u64::MAX.to_le_bytes())
        .raw(b"i64", 11, &(-4_i64).to_le_bytes())
        .raw(b"f64", 12, &0.25_f64.to_le_bytes())
        .strings("tokens", &["a", "", "\u{2581}b"])
        .array("scores", 6, &[1.0_f32.to_le_bytes().to_vec()])
        .array(
            "types",
            5,
            &[(-1_i32).to_le_bytes().to_vec(), vec![3, 0, 0, 0]],
        )
        .array("flags", 7, &[vec![1], vec![0]])
        .array(
            "nested",
            9,
            &[array(0, 2, &[1, 2]), array(8, 1, &string(b"x"))],
        )
        .tensor("matrix", DataType::F32, &[3, 2], &f32_bytes)
        .tensor("quantised", DataType::Q8_0, &[1, 64], &[1; 68])
        .tensor("vector", DataType::F16, &[2], &[0, 0x3C, 0, 0x40])
}

fn opened(builder: &GgufBuilder) -> GgufFile {
    GgufFile::of_bytes(builder.bytes()).expect("a sound file")
}

#[test]
fn values_of_every_type_are_read() {
    for version in [2, 3] {
        let file = opened(&GgufBuilder {
            version,
            ..sample()
        });
        let metadata = file.metadata();
        let unsigned = |key| metadata.unsigned(key).expect("an integer");
        assert_eq!(unsigned("u8"), Some(200));
        assert_eq!(unsigned("u16"), Some(60_000));
        assert_eq!(unsigned("i32"), Some(7));
        assert_eq!(unsigned("u64"), Some(u64::MAX));
        assert_eq!(unsigned("absent"), None);
        assert_eq!(metadata.float("epsilon").expect("a float"), Some(0.5));
        assert_eq!(metadata.float("f64").expect("a float"), Some(0.25));
        assert_eq!(metadata.boolean("bool").expect("a flag"), Some(true));
        let architecture = metadata.string("general.architecture");
        assert_eq!(architecture.expect("a string"), Some("llama"));
        let tokens = metadata.strings("tokens").expect("strings");
        let tokens = tokens.expect("is there");
        assert_eq!(tokens.len(), 3);
        assert_eq!(tokens.collect::<Vec<_>>(), ["a", "", "\u{2581}b"]);
        assert_eq!(metadata.floats("scores").expect("floats"), Some(vec![1.0]));
        let types = metadata.integers("types").expect("integers");
        assert_eq!(types, Some(vec![-1, 3]));
        let flags = metadata.booleans("flags").expect("flags");
        assert_eq!(flags, Some(vec![true, false]));
        assert!(metadata.contains("nested") && metadata.is_array("nested"));
    }
}

#[test]
fn tensors_are_found_and_read_by_rows() {
    let file = opened(&sample());
    let names: Vec<&str> = file.tensors().iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["matrix", "quantised", "vector"]);
    let matrix = file.tensor("matrix").expect("is there");
    assert_eq!(matrix.shape, [3, 2]);
    assert_eq!((matrix.num_rows(), matrix.row_bytes()), (3, 8));
    let mut bytes = vec![9; 100];
    file.read_rows(matrix, 1..3, &mut bytes).expect("two rows");
    let mut values = [0.0; 4];
    DataType::F32.dequantize(&bytes, &mut values);
    assert_eq!(
        values.map(f32::to_bits),
        [2.0_f32, 3.0, 4.0, 5.0].map(f32::to_bits)
    );
    let vector = file.tensor("vector").expect("is there");
    assert_eq!((vector.num_rows(), vector.row_len()), (1, 2));
    file.read(vector, &mut bytes).expect("a vector");
    assert_eq!(bytes, [0, 0x3C, 0, 0x40]);
    assert_eq!(file.tensor("matri"), None);
}

#[test]
fn a_header_longer_than_one_read_is_read_whole() {
    let long = "x".repeat(700_000);
    let builder = GgufBuilder::new()
        .string("long", &long)
        .u32("behind", 5)
        .tensor("last", DataType::F32, &[1], &1.0_f32.to_le_bytes());
    let file = opened(&builder);
    assert_eq!(file.metadata().string("long").expect("text"), Some(&*long));
    assert_eq!(file.metadata().unsigned("behind").expect("u32"), Some(5));
    assert!(file.tensor("last").is_some());
}

#[test]
fn a_value_of_another_type_is_named() {
    let file = opened(&sample());
    let metadata = file.metadata();
    let check = |result: Result<(), Error>, expected: &str| {
        let message = result.expect_err(expected).to_string();
        assert_eq!(message, format!("model.gguf: {expected}"));
    };
    check(
        metadata.string("epsilon").map(drop),
        "epsilon: expected a string, found 0.5",
    );
    check(
        metadata.unsigned("i16").map(drop),
        "i16: expected an integer, not negative, found -3",
    );
    check(
        metadata.unsigned("epsilon").map(drop),
        "epsilon: expected an integer, not negative, found 0.5",
    );
    check(
        metadata.float("tokens").map(drop),
        "tokens: expected a floating-point number, found an array of 3 String",
    );
    check(
        metadata.floats("types").map(drop),
        "types: expected an array of floating-point numbers, found an array of 2 I32",
    );
    check(
        metadata.strings("general.architecture").map(drop),
        "general.architecture: expected an array of strings, found a string of 5 bytes",
    );
    check(
        metadata.require("absent", None::<u32>).map(drop),
        "absent: is missing",
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn broken_files_are_refused_with_the_place_and_the_numbers() {
    let check = |break_it: fn(&mut GgufBuilder), expected: &str| {
        let mut builder = sample();
        break_it(&mut builder);
        let message = match GgufFile::of_bytes(builder.bytes()) {
            Ok(_) => panic!("is read: {expected}"),
            Err(error) => error.to_string(),
        };
        assert!(message.contains("model.gguf"), "{message}");
        assert!(message.contains(expected), "{message}\n{expected}");
    };
    // What the reader may not take for a GGUF.
    check(
        |b| b.magic = *b"GGML",
        "is not a GGUF: it begins with \"GGML\"",
    );
    check(|b| b.version = 1, "GGUF of version 1, only 2 and 3");
    check(|b| b.version = 4, "GGUF of version 4, only 2 and 3");
    check(|b| b.version = 3_u32.swap_bytes(), "big-endian order");
    // Counts and lengths beyond the file.
    check(|b| b.num_tensors = Some(4), "tensor 3 of 4: has no name");
    check(
        |b| b.num_tensors = Some(u64::MAX),
        "18446744073709551615 tensors, most 65536",
    );
    check(
        |b| b.num_keys = Some(u64::MAX),
        "18446744073709551615 metadata keys, most 16384",
    );
    check(
        |b| *b = b.clone().raw(b"k", 8, &u64::MAX.to_le_bytes()),
        "k: string of 18446744073709551615 bytes at byte",
    );
    check(
        |b| *b = b.clone().raw(b"k", 9, &array(8, u64::MAX, &[])),
        "k: array of 18446744073709551615 String, where",
    );
    check(
        |b| *b = b.clone().raw(b"k", 9, &array(10, 1 << 61, &[])),
        "k: array of 2305843009213693952 U64, where",
    );
    check(
        |b| *b = b.clone().raw(b"k", 9, &array(9, 1 << 40, &[])),
        "k: array of 1099511627776 Array, where",
    );
    // Metadata.
    check(
        |b| {
            let deep = (0..4).fold(array(0, 0, &[]), |inner, _| array(9, 1, &inner));
            *b = b.clone().raw(b"deep", 9, &deep);
        },
        "deep: arrays in arrays, 5 deep, most 4",
    );
    check(
        |b| *b = b.clone().raw(b"k", 13, &[0; 8]),
        "k: 13 is no type of value",
    );
    check(
        |b| *b = b.clone().raw(b"k", 7, &[2]),
        "k: 2 is no truth value",
    );
    check(
        |b| *b = b.clone().array("k", 7, &[vec![1], vec![7]]),
        "k[1]: 7 is no truth value",
    );
    check(
        |b| *b = b.clone().raw(b"k", 8, &string(&[b'a', 0xFF])),
        "k: string of 2 bytes at byte",
    );
    check(
        |b| *b = b.clone().raw(b"k", 9, &array(8, 1, &string(&[0xC3]))),
        "k[0]: string of 1 bytes at byte",
    );
    check(
        |b| *b = b.clone().raw(&[0xFF], 0, &[0]),
        "metadata key 17 of 18: its name of 1 bytes at byte",
    );
    check(
        |b| *b = b.clone().raw(&vec![b'k'; 65_536], 0, &[0]),
        "metadata key 17 of 18: 65536 bytes, most 65535",
    );
    check(
        |b| *b = b.clone().u32("epsilon", 1),
        "epsilon: is there twice",
    );
    check(
        |b| *b = b.clone().u32("split.count", 3),
        "one of 3 parts of a model",
    );
    // Tensors.
    check(
        |b| b.tensors[0].name = vec![0xFF],
        "tensor 0 of 3: its name of 1 bytes",
    );
    check(
        |b| b.tensors[0].name = vec![b'n'; 1025],
        "tensor 0 of 3: name of 1025 bytes, most 1024",
    );
    check(
        |b| b.tensors[1].name = b"matrix".to_vec(),
        "tensor matrix: is there twice",
    );
    check(
        |b| b.tensors[0].dimensions = vec![],
        "tensor matrix: 0 dimensions, 1 to 4",
    );
    check(
        |b| b.tensors[0].dimensions = vec![1; 5],
        "tensor matrix: 5 dimensions, 1 to 4",
    );
    check(
        |b| b.tensors[0].num_dimensions = Some(u32::MAX),
        "tensor matrix: 4294967295 dimensions, 1 to 4",
    );
    check(
        |b| b.tensors[0].dimensions = vec![2, 0],
        "tensor matrix: shape [0, 2] has an empty axis",
    );
    check(
        |b| b.tensors[0].dimensions = vec![u64::MAX, 3],
        "tensor matrix: shape [3, 18446744073709551615] is more than there can be",
    );
    check(
        |b| b.tensors[0].dimensions = vec![1 << 62],
        "tensor matrix: shape [4611686018427387904] is more than there can be",
    );
    check(
        |b| b.tensors[0].dimensions = vec![2, 1 << 30],
        "tensor matrix: 8589934592 bytes at",
    );
    check(
        |b| b.tensors[1].dimensions = vec![48],
        "tensor quantised: rows of 48 values, in blocks of 32 (Q8_0)",
    );
    check(
        |b| b.tensors[1].format = 20,
        "tensor quantised has the format IQ4_NL; supported: F32, F16, BF16, Q8_0",
    );
    check(
        |b| b.tensors[1].format = 4,
        "tensor quantised has the format number 4; supported",
    );
    check(
        |b| b.tensors[2].offset = 1,
        "tensor vector: offset 1 is no multiple of the alignment 32",
    );
    check(
        |b| b.tensors[2].offset = u64::MAX - 31,
        "tensor vector: 4 bytes at",
    );
    check(
        |b| b.tensors[2].offset = 1 << 20,
        "+ 1048576, and the file has",
    );
    check(
        |b| b.tensors[2].offset = 32,
        "before tensor quantised ends at byte",
    );
    check(|b| b.data.truncate(130), "tensor vector: 4 bytes at");
    check(
        |b| b.entries[1] = GgufBuilder::new().u32("general.alignment", 24).entries[0].clone(),
        "general.alignment: 24 is no power of two",
    );
    check(
        |b| b.entries[1] = GgufBuilder::new().u32("general.alignment", 0).entries[0].clone(),
        "general.alignment: 0 is no power of two",
    );
    check(
        |b| b.entries[1] = GgufBuilder::new().string("general.alignment", "32").entries[0].clone(),
        "general.alignment: expected an integer, not negative, found a string of 2 bytes",
    );
}

#[test]
fn a_scale_that_is_not_finite_is_found_when_it_is_read() {
    let mut blocks = vec![1; 34 * 4];
    blocks[34 * 3 + 1] = 0x7C;
    let file = opened(&GgufBuilder::new().tensor("t", DataType::Q8_0, &[2, 64], &blocks));
    let tensor = file.tensor("t").expect("is there");
    let mut bytes = Vec::new();
    file.read_rows(tensor, 0..1, &mut bytes).expect("is finite");
    let error = file.read_rows(tensor, 1..2, &mut bytes);
    let message = error.expect_err("is infinite").to_string();
    let expected = "model.gguf: tensor t: block 3 of Q8_0 is infinite or not a number";
    assert_eq!(message, expected);
}

#[test]
fn every_shorter_file_is_refused() {
    let bytes = sample().bytes();
    for len in 0..bytes.len() {
        let file = GgufFile::of_bytes(bytes[..len].to_vec());
        assert!(file.is_err(), "{len} of {} bytes are read", bytes.len());
    }
}

/// What holds of a file that was read, whatever is in it.
fn check_sound(file: &GgufFile, num_bytes: usize) {
    let mut bytes = Vec::new();
    for tensor in file.tensors() {
        assert!(tensor.num_bytes() <= num_bytes);
        assert_eq!(file.tensor(&tensor.name), Some(tensor));
        // An error is one of values only: every tensor is inside the file.
        if let Err(Error::Read { source, .. }) = file.read(tensor, &mut bytes) {
            panic!("{}: {source}", tensor.name);
        }
    }
    let metadata = file.metadata();
    for key in metadata.keys() {
        if let Ok(Some(strings)) = metadata.strings(key) {
            assert_eq!(strings.clone().count(), strings.len(), "{key}");
        }
        drop((metadata.floats(key), metadata.integers(key)));
    }
}

proptest! {
    #[test]
    fn changed_bytes_never_break_the_reader(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = sample().bytes();
        let num_bytes = bytes.len();
        for (place, byte) in changes {
            let place = place.index(num_bytes);
            bytes[place] = byte;
        }
        if let Ok(file) = GgufFile::of_bytes(bytes) {
            check_sound(&file, num_bytes);
        }
    }

    #[test]
    fn any_bytes_never_break_the_reader(tail in prop::collection::vec(any::<u8>(), 0..200)) {
        let bytes = [b"GGUF\x03\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0".to_vec(), tail].concat();
        let num_bytes = bytes.len();
        if let Ok(file) = GgufFile::of_bytes(bytes) {
            check_sound(&file, num_bytes);
        }
    }
}
