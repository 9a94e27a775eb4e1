//! What is wrong with a model, in the form of the command line.

use justapi_inference::{Error, LocateError, Refusal, SHORT_NAMES, TemplateError};

use crate::error::{CliError, Code, plain};

/// The error of a model that cannot be found or fetched.
#[expect(clippy::too_many_lines, reason = "one arm per failure")]
pub(super) fn not_located(error: LocateError) -> CliError {
    let message = error.to_string();
    match error {
        LocateError::Unknown { near, .. } => {
            let hint = near.map_or_else(short_names, |near| format!("did you mean `{near}`?"));
            CliError::new(Code::ModelUnknown, message).with_hint(hint)
        }
        LocateError::NoFile { .. } => {
            CliError::new(Code::ModelUnknown, message).with_hint(short_names())
        }
        LocateError::Ambiguous { choices, .. } => {
            let unknown = CliError::new(Code::ModelUnknown, message);
            match choices.first() {
                Some(first) => unknown
                    .with_detail("it has", choices.join(", "))
                    .with_hint(format!("say which, such as `org/name:{first}`")),
                None => unknown.with_hint("use a repository with GGUF or safetensors files"),
            }
        }
        LocateError::NotFound { has_token, .. } => {
            let hint = if has_token {
                "check the name; a private one also needs a token that may read it"
            } else {
                "check the name; a private one needs HF_TOKEN"
            };
            CliError::new(Code::ModelUnknown, message).with_hint(hint)
        }
        LocateError::NotAModel { .. } => CliError::new(Code::ModelFile, message)
            .with_hint("use a GGUF file, or a folder with config.json and model.safetensors"),
        LocateError::Offline { .. } => CliError::new(Code::ModelFetch, message)
            .with_hint("leave out `--offline` (or HF_HUB_OFFLINE) once, with a network"),
        LocateError::Forbidden {
            repository,
            endpoint,
            has_token,
        } => {
            let hint = if has_token {
                format!("accept its terms at {endpoint}/{repository}, or use another token")
            } else {
                format!("accept its terms at {endpoint}/{repository}, and set HF_TOKEN")
            };
            CliError::new(Code::ModelFetch, message).with_hint(hint)
        }
        LocateError::NoSource { reasons, .. } => reasons
            .into_iter()
            .fold(
                CliError::new(Code::ModelFetch, message),
                |error, (place, reason)| error.with_detail("tried", format!("{place}: {reason}")),
            )
            .with_hint("use a network that reaches one of them, or a file"),
        LocateError::Mismatch { .. } => {
            CliError::new(Code::ModelFetch, message).with_hint("try again; what came is deleted")
        }
        LocateError::Storage {
            operation,
            path,
            source,
        } => {
            let message = format!("cannot {operation} {}", path.display());
            let error = CliError::new(Code::ModelFetch, message).with_cause(&source);
            match source.kind() {
                std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                    error.with_hint("make room, or set HF_HOME and XDG_CACHE_HOME to another disk")
                }
                _ => {
                    error.with_hint("set HF_HOME and XDG_CACHE_HOME to folders that you may write")
                }
            }
        }
        LocateError::NoCache => {
            CliError::new(Code::ModelFetch, message).with_hint("set HF_HOME to a folder")
        }
        _ => CliError::new(Code::ModelFetch, message)
            .with_hint("try again: it goes on where it stopped"),
    }
}

fn short_names() -> String {
    let names: Vec<&str> = SHORT_NAMES.iter().map(|model| model.name).collect();
    format!(
        "use a file, one of {}, or org/name of a hub",
        names.join(" and ")
    )
}

/// The error of a model that is here and cannot be run.
pub(super) fn not_loaded(error: &Error) -> CliError {
    match error {
        Error::Read { path, source } => {
            let message = format!("cannot read {}", path.display());
            CliError::new(Code::ModelFile, message).with_cause(source)
        }
        Error::Setting {
            setting,
            value,
            reason,
        } => {
            let message = format!("{setting} = {value} is not possible: {reason}");
            CliError::new(Code::ModelSetting, message)
        }
        Error::Unsupported { .. } => CliError::new(Code::ModelFile, error.to_string())
            .with_hint("use a model of a kind that is listed by `justapi explain JA423`"),
        _ => CliError::new(Code::ModelFile, error.to_string())
            .with_hint("the file may be damaged: fetch it again"),
    }
}

/// The error of a prompt that the engine does not take.
pub(crate) fn refused(refusal: &Refusal) -> CliError {
    let error = CliError::new(Code::PromptRefused, refusal.to_string());
    match refusal {
        Refusal::TooLong { .. } => {
            error.with_hint("shorten the prompt, or ask for fewer tokens with `--max-tokens`")
        }
        _ => error,
    }
}

/// The error of a template that is none, or that does not take these messages.
pub(crate) fn template_error(error: &TemplateError) -> CliError {
    CliError::new(Code::ChatTemplate, error.to_string())
        .with_hint("`--chat-template FILE` takes another template, `--raw` none")
}

/// The error of a file that cannot be read.
pub(super) fn unreadable(path: &std::path::Path, error: &std::io::Error) -> CliError {
    let message = format!("cannot read {}: {}", path.display(), plain(error));
    CliError::new(Code::ChatTemplate, message)
}
