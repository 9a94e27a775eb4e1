//! What must hold of the readers of model files for every input: they answer or
//! refuse, and what they answer lies inside the file.

use super::{GgufFile, Metadata, SafetensorsFiles, WeightSource};
use crate::error::Error;
use crate::model::ModelConfig;

/// Checks the properties of a GGUF and of the configuration in it.
///
/// # Panics
/// With the property that is broken.
pub fn check_gguf(bytes: &[u8]) {
    let Ok(file) = GgufFile::of_bytes(bytes.to_vec()) else {
        return;
    };
    check_tensors(&file, bytes.len());
    check_metadata(file.metadata());
    if let Ok(config) = ModelConfig::from_gguf(&file) {
        assert_eq!(config.layer_is_local.len(), config.num_hidden_layers);
        assert_eq!(config.num_attention_heads % config.num_key_value_heads, 0);
        assert!(config.attention_scale.is_finite() && config.rope.theta.is_finite());
    }
}

/// Checks the properties of a safetensors file.
///
/// # Panics
/// With the property that is broken.
pub fn check_safetensors(bytes: &[u8]) {
    if let Ok(files) = SafetensorsFiles::of_bytes(bytes.to_vec()) {
        check_tensors(&files, bytes.len());
    }
}

fn check_tensors(source: &dyn WeightSource, num_file_bytes: usize) {
    let mut bytes = Vec::new();
    let mut num_bytes = 0;
    for tensor in source.tensors() {
        num_bytes += tensor.num_bytes();
        assert_eq!(source.tensor(&tensor.name), Some(tensor));
        // What is refused here is a value that is not finite: the file has all bytes.
        if let Err(Error::Read { source, .. }) = source.read(tensor, &mut bytes) {
            panic!("{}: {source}", tensor.name);
        }
        assert_eq!(bytes.len(), tensor.num_bytes());
    }
    assert!(num_bytes <= num_file_bytes, "tensors lie over one another");
}

fn check_metadata(metadata: &Metadata) {
    for key in metadata.keys() {
        if let Ok(Some(strings)) = metadata.strings(key) {
            assert_eq!(strings.clone().count(), strings.len(), "{key}");
        }
        let kinds = [
            metadata.string(key).is_ok(),
            metadata.float(key).is_ok(),
            metadata.unsigned(key).is_ok(),
            metadata.boolean(key).is_ok(),
        ];
        let num_kinds = kinds.iter().filter(|is_it| **is_it).count();
        assert!(num_kinds <= 1, "{key} is of several types");
        assert!(num_kinds == 0 || !metadata.is_array(key), "{key}");
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    #[test]
    fn every_seed_keeps_the_properties() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
        let check = |name: &str, check: fn(&[u8])| {
            let seeds = fs::read_dir(corpus.join(name)).expect("the target has a folder");
            let mut num_seeds = 0;
            for seed in seeds {
                let path = seed.expect("a seed").path();
                check(&fs::read(&path).expect("a seed"));
                num_seeds += 1;
            }
            assert!(num_seeds > 0, "{name} has no seeds");
            check(b"");
        };
        check("gguf", super::check_gguf);
        check("safetensors", super::check_safetensors);
    }
}
