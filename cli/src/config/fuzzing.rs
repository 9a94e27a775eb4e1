//! What must hold of every text of a `justapi.toml`: complaints lie inside it,
//! and what is shown of a value reads back as that value.
//!
//! Built for tests, which replay `fuzz/corpus`, and with `--cfg fuzzing`.

use std::path::Path;

use super::{Config, file};

/// Checks the properties of one text.
///
/// # Panics
/// When one of them does not hold.
pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let num_lines = text.split('\n').count();
    let path = Path::new("/etc/justapi/justapi.toml");
    match file::parse(text, path, Path::new("justapi.toml")) {
        Ok(layer) => {
            for (setting, value, origin) in &layer.values {
                let line = origin.location().expect("it is in the file").line;
                assert!((1..=num_lines).contains(&line), "{origin}");
                let shown = setting.kind.show(value);
                let parsed = setting.kind.parse(&shown);
                assert_eq!(parsed.as_ref(), Ok(value), "{} {shown:?}", setting.key);
            }
            for warning in &layer.warnings {
                let location = warning.location.as_ref().expect("it is in the file");
                assert!((1..=num_lines).contains(&location.line));
            }
            let config = Config::of(&layer.values);
            let _checked = config.limits().check();
        }
        Err(error) => {
            let location = error.location().expect("it is in the file");
            assert!((1..=num_lines).contains(&location.line), "{location:?}");
            assert!(location.column.is_some_and(|column| column > 0));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    #[test]
    fn every_seed_keeps_the_properties() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/config");
        let seeds: Vec<_> = fs::read_dir(folder).unwrap().collect();
        assert!(!seeds.is_empty());
        for seed in seeds {
            let path = seed.unwrap().path();
            eprintln!("{}", path.display());
            super::check(&fs::read(path).unwrap());
        }
    }
}
