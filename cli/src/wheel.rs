//! How the Python package is named to whoever installs it.
//!
//! Guarantee: it is the file that was built, as a registry may have another package of this name.

/// What puts the wheel into the folder `wheels`.
pub(crate) const BUILD: &str = "py/build_wheel.sh PYTHON wheels";

/// The wheel of a version, or of any, as a shell finds it.
pub(crate) fn file(version: Option<&str>) -> String {
    version.map_or_else(
        || "wheels/justapi-*.whl".to_owned(),
        |version| format!("wheels/justapi-{version}-*.whl"),
    )
}
