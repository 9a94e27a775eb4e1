//! Settings from environment variables, read from a given list so that tests
//! need not change the process.
//!
//! Guarantee: a variable that is set but empty counts as not set, and a value
//! that cannot be read is an error, never ignored.

use std::ffi::OsString;

use super::settings::{Alias, SETTINGS, Setting};
use super::value::{Kind, Value, parse_seconds};
use super::{Origin, Warning};
use crate::error::{CliError, Code};
use crate::spelling;

/// What the environment sets.
#[derive(Debug)]
pub(crate) struct EnvironmentLayer {
    pub(crate) values: Vec<(&'static Setting, Value, Origin)>,
    pub(crate) warnings: Vec<Warning>,
}

/// Reads every setting out of `variables`; the key's own variable wins over
/// its aliases.
///
/// # Errors
/// [`Code::EnvironmentValue`].
pub(crate) fn read(
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> Result<EnvironmentLayer, CliError> {
    let mut variables: Vec<(String, String)> = variables
        .filter(|(_, value)| !value.is_empty())
        .filter_map(|(name, value)| {
            let name = name.into_string().ok()?;
            let is_ours = name.starts_with("JUSTAPI_") || aliases().any(|alias| alias == name);
            is_ours.then(|| (name, value.to_string_lossy().into_owned()))
        })
        .collect();
    variables.sort();
    let lookup = |name: &str| {
        variables
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    };
    let mut values = Vec::new();
    for setting in SETTINGS {
        let variable = setting.variable();
        let own = lookup(&variable).map(|text| (variable.as_str(), text, setting.kind.parse(text)));
        let found = own.or_else(|| {
            setting.aliases.iter().find_map(|alias| {
                lookup(alias.name())
                    .map(|text| (alias.name(), text, alias.parse(setting.kind, text)))
            })
        });
        if let Some((name, text, parsed)) = found {
            let value = parsed.map_err(|reason| wrong_value(name, text, &reason))?;
            values.push((setting, value, Origin::Environment(name.to_owned())));
        }
    }
    let warnings = variables
        .iter()
        .filter(|(name, _)| name.contains("__"))
        .filter_map(|(name, _)| unknown(name))
        .collect();
    Ok(EnvironmentLayer { values, warnings })
}

impl Alias {
    fn parse(&self, kind: Kind, text: &str) -> Result<Value, String> {
        match self {
            Self::Same(_) => kind.parse(text),
            Self::Seconds(_) => parse_seconds(text)
                .map(Value::Time)
                .ok_or_else(|| "expected whole seconds".to_owned()),
        }
    }
}

fn aliases() -> impl Iterator<Item = &'static str> {
    SETTINGS
        .iter()
        .flat_map(|setting| setting.aliases)
        .map(Alias::name)
}

fn wrong_value(name: &str, text: &str, reason: &str) -> CliError {
    CliError::new(
        Code::EnvironmentValue,
        format!("environment variable {name}: {reason}, found \"{text}\""),
    )
    .with_hint(format!("correct it, or remove it with `unset {name}`"))
}

/// A variable in our form whose key does not exist.
fn unknown(name: &str) -> Option<Warning> {
    let known: Vec<String> = SETTINGS.iter().map(Setting::variable).collect();
    if known.iter().any(|variable| variable == name) {
        return None;
    }
    let meant = spelling::did_you_mean(name, known.iter().map(String::as_str));
    Some(Warning {
        code: Code::UnknownVariable,
        message: format!("unknown environment variable `{name}`{meant}"),
        location: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_pairs(pairs: &[(&str, &str)]) -> Result<EnvironmentLayer, CliError> {
        read(
            pairs
                .iter()
                .map(|(name, value)| (OsString::from(name), OsString::from(value))),
        )
    }

    fn shown(pairs: &[(&str, &str)]) -> Vec<String> {
        read_pairs(pairs)
            .unwrap()
            .values
            .iter()
            .map(|(setting, value, origin)| {
                format!("{} {} {origin}", setting.key, setting.kind.show(value))
            })
            .collect()
    }

    #[test]
    fn own_variable_wins_over_alias() {
        assert_eq!(shown(&[("PORT", "1")]), ["server.port 1 env PORT"]);
        assert_eq!(
            shown(&[("PORT", "1"), ("JUSTAPI_SERVER__PORT", "2")]),
            ["server.port 2 env JUSTAPI_SERVER__PORT"]
        );
        assert!(shown(&[("PORT", "")]).is_empty());
    }

    #[test]
    fn documented_names_work() {
        assert_eq!(
            shown(&[
                ("JUSTAPI_REQUEST_TIMEOUT_SECS", "5"),
                ("JUSTAPI_MAX_CONNECTIONS", "7"),
                ("JUSTAPI_ENABLE_TRACE", "1"),
                ("OTEL_SERVICE_NAME", "shop")
            ]),
            [
                "trace.enabled true env JUSTAPI_ENABLE_TRACE",
                "trace.service_name shop env OTEL_SERVICE_NAME",
                "server.limits.max_connections 7 env JUSTAPI_MAX_CONNECTIONS",
                "server.limits.timeout_request 5s env JUSTAPI_REQUEST_TIMEOUT_SECS",
            ]
        );
    }

    #[test]
    fn bad_values_and_unknown_names_are_said() {
        let error = read_pairs(&[("PORT", "http")]).unwrap_err();
        assert_eq!(error.code(), Code::EnvironmentValue);
        let layer = read_pairs(&[("JUSTAPI_SERVER__PROT", "1"), ("JUSTAPI_LOG", "debug")]).unwrap();
        assert_eq!(layer.warnings.len(), 1);
        assert!(
            layer.warnings[0]
                .message
                .ends_with("did you mean `JUSTAPI_SERVER__PORT`?")
        );
    }
}
