//! Models of a hub: from its cache, or from the hub itself.
//!
//! A model that is in the cache is used as it is, without a request: the same
//! name gives the same weights until the cache is emptied or a revision named.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use reqwest::{Method, Response};
use serde_json::Value;

use super::cache::{self, RepositoryCache};
use super::choose::{Choice, WEIGHTS_INDEX, choose};
use super::client::HubClient;
use super::download::{RemoteFile, download};
use super::error::LocateError;
use super::event::Listener;
use super::name::{HubName, is_safe_path};
use super::settings::LocateSettings;

/// Finds the model that `name` means, and fetches what is missing.
///
/// # Errors
/// [`LocateError`].
pub(super) fn find(
    name: &HubName,
    settings: &LocateSettings,
    listener: Listener<'_>,
) -> Result<PathBuf, LocateError> {
    let root = settings.hub_cache.as_deref().ok_or(LocateError::NoCache)?;
    let cache = RepositoryCache::new(root, &name.repository);
    let kept = in_cache(name, &cache);
    match kept {
        Some((path, true)) => return Ok(path),
        Some((path, false)) if settings.offline => return Ok(path),
        None if settings.offline => {
            return Err(LocateError::Offline { model: shown(name) });
        }
        _ => {}
    }
    let fetched = runtime()?.block_on(fetch(name, settings, &cache, listener));
    match (fetched, kept) {
        // Without the hub, what is here is what there is.
        (Err(LocateError::Network { .. }), Some((path, _))) => Ok(path),
        (fetched, _) => fetched,
    }
}

/// Fetches one file, whose content must be `sha256`, unless it is here.
///
/// # Errors
/// [`LocateError`].
pub(super) fn find_file(
    name: &HubName,
    file: &str,
    sha256: &str,
    settings: &LocateSettings,
    listener: Listener<'_>,
) -> Result<PathBuf, LocateError> {
    let root = settings.hub_cache.as_deref().ok_or(LocateError::NoCache)?;
    let cache = RepositoryCache::new(root, &name.repository);
    runtime()?.block_on(async {
        let client = HubClient::new(settings)?;
        let remote = head(&client, name, file, listener).await?;
        if remote.etag != sha256 {
            return Err(LocateError::Mismatch {
                file: file.to_owned(),
                quantity: "SHA-256",
                expected: sha256.to_owned(),
                found: remote.etag,
            });
        }
        fetch_file(&client, &remote, &cache, listener).await?;
        cache.note_commit(&name.revision, &remote.commit)?;
        Ok(cache.snapshot(&remote.commit).join(file))
    })
}

/// Returns one file of the cache, if it is there with this content.
pub(super) fn file_in_cache(
    name: &HubName,
    file: &str,
    sha256: &str,
    settings: &LocateSettings,
) -> Option<PathBuf> {
    let cache = RepositoryCache::new(settings.hub_cache.as_deref()?, &name.repository);
    let path = cache.blob(sha256);
    let commit = cache.commit_of(&name.revision)?;
    let linked = cache.snapshot(&commit).join(file);
    (path.is_file() && linked.is_file()).then_some(linked)
}

fn shown(name: &HubName) -> String {
    match &name.choice {
        Some(choice) => format!("{}:{choice}", name.repository),
        None => name.repository.clone(),
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, LocateError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(LocateError::storage("make an event queue in", "/"))
}

/// The model in the cache, and whether more files could not change the choice.
fn in_cache(name: &HubName, cache: &RepositoryCache) -> Option<(PathBuf, bool)> {
    let commit = cache.commit_of(&name.revision)?;
    let files = cache.files(&commit);
    let snapshot = cache.snapshot(&commit);
    match choose(name, &files).ok()? {
        Choice::Gguf { parts, is_certain } => {
            let is_whole = parts.iter().all(|part| files.contains(part));
            is_whole.then(|| (snapshot.join(&parts[0]), is_certain))
        }
        Choice::Safetensors { has_index, .. } => {
            let shards = if has_index {
                shards(&snapshot.join(WEIGHTS_INDEX)).ok()?
            } else {
                BTreeSet::new()
            };
            let is_whole = shards.iter().all(|shard| files.contains(shard));
            // Weights come last, so that what stands beside them is whole.
            is_whole.then_some((snapshot, true))
        }
    }
}

async fn fetch(
    name: &HubName,
    settings: &LocateSettings,
    cache: &RepositoryCache,
    listener: Listener<'_>,
) -> Result<PathBuf, LocateError> {
    let client = HubClient::new(settings)?;
    let (commit, files) = list(&client, name, listener).await?;
    let at_commit = HubName {
        revision: commit.clone(),
        ..name.clone()
    };
    let snapshot = cache.snapshot(&commit);
    let (first, wanted) = match choose(name, &files)? {
        Choice::Gguf { parts, .. } => (snapshot.join(&parts[0]), parts),
        Choice::Safetensors { files, .. } => (snapshot.clone(), files),
    };
    for file in &wanted {
        let remote = head(&client, &at_commit, file, listener).await?;
        fetch_file(&client, &remote, cache, listener).await?;
    }
    if wanted.iter().any(|file| file == WEIGHTS_INDEX) {
        for shard in shards(&snapshot.join(WEIGHTS_INDEX))? {
            let remote = head(&client, &at_commit, &shard, listener).await?;
            fetch_file(&client, &remote, cache, listener).await?;
        }
    }
    cache.note_commit(&name.revision, &commit)?;
    Ok(first)
}

/// Asks for the commit of a revision, and the names of its files.
async fn list(
    client: &HubClient,
    name: &HubName,
    listener: Listener<'_>,
) -> Result<(String, Vec<String>), LocateError> {
    let HubName {
        repository,
        revision,
        ..
    } = name;
    let endpoint = &client.endpoint;
    let url = format!(
        "{endpoint}/api/models/{repository}/revision/{}",
        escaped(revision, "%2F")
    );
    let what = format!("{repository}@{revision}");
    let names = (repository.as_str(), what.as_str());
    let work = async || client.document(&url, names).await;
    let document = client.with_retries(listener, &url, work).await?;
    let malformed = |reason: &str| LocateError::Network {
        url: url.clone(),
        reason: reason.to_owned(),
    };
    let commit = document["sha"]
        .as_str()
        .filter(|commit| is_safe_path(commit));
    let commit = commit.ok_or_else(|| malformed("names no commit"))?;
    let siblings = document["siblings"].as_array();
    let siblings = siblings.ok_or_else(|| malformed("lists no files"))?;
    let files = (siblings.iter())
        .filter_map(|sibling| sibling["rfilename"].as_str())
        .filter(|file| is_safe_path(file))
        .map(str::to_owned)
        .collect();
    Ok((commit.to_owned(), files))
}

/// Asks what a file is.
async fn head(
    client: &HubClient,
    name: &HubName,
    file: &str,
    listener: Listener<'_>,
) -> Result<RemoteFile, LocateError> {
    let HubName {
        repository,
        revision,
        ..
    } = name;
    let url = format!(
        "{}/{repository}/resolve/{}/{}",
        client.endpoint,
        escaped(revision, "%2F"),
        escaped(file, "/")
    );
    let what = format!("{repository}/{file}");
    let names = (repository.as_str(), what.as_str());
    let describes = |response: &Response| response.headers().contains_key("x-linked-etag");
    let work = async || client.send(Method::HEAD, &url, 0, describes, names).await;
    let response = client.with_retries(listener, &url, work).await?;
    let text = |name: &str| {
        response
            .headers()
            .get(name)
            .and_then(|value| value.to_str().ok())
    };
    let etag = text("x-linked-etag").or_else(|| text("etag"));
    let etag = etag.map(|etag| etag.trim_start_matches("W/").trim_matches('"'));
    let is_word = |text: &&str| {
        let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
        (8..=128).contains(&text.len()) && text.chars().all(is_allowed)
    };
    let malformed = |reason: &str| LocateError::Network {
        url: url.clone(),
        reason: reason.to_owned(),
    };
    let etag = etag.filter(is_word);
    let etag = etag.ok_or_else(|| malformed("does not say what the file is"))?;
    let commit = text("x-repo-commit").unwrap_or(revision);
    let size = text("x-linked-size").or_else(|| {
        let is_its_own = response.status().is_success();
        text("content-length").filter(|_| is_its_own)
    });
    Ok(RemoteFile {
        repository: repository.clone(),
        file: file.to_owned(),
        commit: Some(commit).filter(is_word).unwrap_or(revision).to_owned(),
        etag: etag.to_owned(),
        num_bytes: size.and_then(|size| size.parse().ok()),
        url,
    })
}

/// Fetches a file into the cache, unless it is there.
async fn fetch_file(
    client: &HubClient,
    remote: &RemoteFile,
    cache: &RepositoryCache,
    listener: Listener<'_>,
) -> Result<(), LocateError> {
    let blob = cache.blob(&remote.etag);
    let is_there = || {
        let size = fs::metadata(&blob).ok().map(|metadata| metadata.len());
        size.is_some_and(|size| remote.num_bytes.is_none_or(|whole| whole == size))
    };
    if !is_there() {
        let lock = cache::lock(&cache.lock(&remote.etag), &remote.file, listener)?;
        // Whoever had the lock may have fetched it.
        if !is_there() {
            cache::make_parent(&blob)?;
            download(client, remote, &blob, listener).await?;
        }
        drop(lock);
    }
    cache.link(&remote.commit, &remote.file, &remote.etag)
}

/// The files that an index of weights names.
fn shards(index: &Path) -> Result<BTreeSet<String>, LocateError> {
    let text = fs::read(index).map_err(LocateError::storage("read", index))?;
    let document: Option<Value> = serde_json::from_slice(&text).ok();
    let map = document
        .as_ref()
        .and_then(|document| document["weight_map"].as_object());
    let malformed = || LocateError::NotAModel {
        path: index.to_owned(),
        missing: "a `weight_map` with names of files".to_owned(),
    };
    let names = map.ok_or_else(malformed)?.values().map(Value::as_str);
    let names: Option<BTreeSet<String>> = names
        .map(|name| name.filter(|name| is_safe_path(name)).map(str::to_owned))
        .collect();
    names
        .filter(|names| !names.is_empty())
        .ok_or_else(malformed)
}

/// A path as part of an address; `slash` is what becomes of `/`.
fn escaped(path: &str, slash: &str) -> String {
    use std::fmt::Write as _;
    path.bytes().fold(String::new(), |mut text, byte| {
        match byte {
            b'/' => text.push_str(slash),
            b'-' | b'_' | b'.' | b'~' => text.push(byte.into()),
            byte if byte.is_ascii_alphanumeric() => text.push(byte.into()),
            byte => write!(text, "%{byte:02X}").expect("strings can always grow"),
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_escaped() {
        assert_eq!(escaped("a b/c+d.gguf", "/"), "a%20b/c%2Bd.gguf");
        assert_eq!(escaped("refs/pr/1", "%2F"), "refs%2Fpr%2F1");
    }

    #[test]
    fn an_index_names_its_files_once_and_none_outside() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(WEIGHTS_INDEX);
        let read = |text: &str| {
            fs::write(&path, text).expect("written");
            shards(&path).map(|names| names.into_iter().collect::<Vec<_>>())
        };
        let found = read(r#"{"weight_map": {"a": "1.safetensors", "b": "1.safetensors"}}"#);
        assert_eq!(found.expect("a map"), ["1.safetensors"]);
        for text in [
            "",
            "{}",
            r#"{"weight_map": {}}"#,
            r#"{"weight_map": {"a": 1}}"#,
            r#"{"weight_map": {"a": "../b"}}"#,
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
