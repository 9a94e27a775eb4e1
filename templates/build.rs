//! Embeds every folder beside this file that has a `template.toml`: a table of
//! paths and bytes, in order, so that two builds of one checkout are equal.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let mut table = String::from("&[\n");
    for folder in entries(&here)? {
        let manifest = folder.join("template.toml");
        if !manifest.is_file() {
            continue;
        }
        println!("cargo::rerun-if-changed={}", folder.display());
        let files = folder.join("files");
        let mut paths = Vec::new();
        list(&files, &mut paths)?;
        let name = folder.file_name().expect("an entry has a name");
        let (name, manifest) = (literal(Path::new(name)), literal(&manifest));
        writeln!(table, "    ({name}, include_str!({manifest}), &[").expect("strings grow");
        for path in paths {
            let inside = path.strip_prefix(&files).expect("it was found there");
            let (inside, path) = (literal(inside), literal(&path));
            writeln!(table, "        ({inside}, include_bytes!({path})),").expect("strings grow");
        }
        table.push_str("    ]),\n");
    }
    table.push_str("]\n");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    fs::write(out.join("builtin.rs"), table)
}

/// A path as a literal of Rust.
fn literal(path: &Path) -> String {
    format!("{:?}", path.to_string_lossy())
}

/// Files below a folder; directories are watched for new ones.
fn list(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    println!("cargo::rerun-if-changed={}", folder.display());
    for path in entries(folder)? {
        // What an interpreter or an editor leaves is not part of a template.
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') || name == "__pycache__" {
            continue;
        }
        if path.is_dir() {
            list(&path, found)?;
        } else {
            println!("cargo::rerun-if-changed={}", path.display());
            found.push(path);
        }
    }
    Ok(())
}

fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}
