//! Which application is meant when none is named.

use std::fs;
use std::path::Path;

use crate::error::{CliError, Code};

/// Where it is looked for, and how that is imported.
const PLACES: [(&str, &str); 9] = [
    ("main.py", "main"),
    ("app.py", "app"),
    ("api.py", "api"),
    ("server.py", "server"),
    ("app/main.py", "app.main"),
    ("app/app.py", "app.app"),
    ("app/__init__.py", "app"),
    ("src/main.py", "src/main.py"),
    ("src/app.py", "src/app.py"),
];
const NAMES: [&str; 3] = ["app", "application", "api"];
const FACTORIES: [&str; 2] = ["create_app", "make_app"];

/// Finds the application of a folder; one that is being written may be
/// missing from its file yet.
///
/// # Errors
/// [`Code::Application`]: there is none where it is looked for.
pub(super) fn find(folder: &Path) -> Result<String, CliError> {
    let mut likely = None;
    for (file, module) in PLACES {
        let Ok(text) = fs::read_to_string(folder.join(file)) else {
            continue;
        };
        if let Some(name) = application(&text) {
            return Ok(format!("{module}:{name}"));
        }
        likely.get_or_insert(module);
    }
    if let Some(module) = likely {
        return Ok(module.to_owned());
    }
    let places: Vec<&str> = PLACES.iter().map(|(file, _)| *file).collect();
    Err(
        CliError::new(Code::Application, "there is no application in this folder")
            .with_detail("looked in", places.join(", "))
            .with_hint("name it as it is imported, such as `justapi dev package.module:app`"),
    )
}

/// The name that a module gives its application.
fn application(text: &str) -> Option<&'static str> {
    let is_set = |name: &&str| {
        text.lines().any(|line| {
            let rest = line.strip_prefix(*name).map(str::trim_start);
            rest.is_some_and(|rest| {
                rest.starts_with('=') && !rest.starts_with("==") || rest.starts_with(':')
            })
        })
    };
    let is_factory = |name: &&str| {
        let head = format!("def {name}(");
        text.lines().any(|line| line.starts_with(&head))
    };
    let named = NAMES.into_iter().find(is_set);
    named.or_else(|| FACTORIES.into_iter().find(is_factory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_application_is_found() {
        let folder = tempfile::TempDir::new().expect("a folder");
        assert!(find(folder.path()).is_err());
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("it has one")).expect("a folder");
            fs::write(path, text).expect("it is written");
        };
        write("server.py", "import");
        assert_eq!(find(folder.path()).expect("one"), "server");
        write("src/app.py", "def create_app():\n    pass\n");
        assert_eq!(find(folder.path()).expect("one"), "src/app.py:create_app");
        write("app/main.py", "import x\napp: JustAPI = x.make()\n");
        assert_eq!(find(folder.path()).expect("one"), "app.main:app");
        write("main.py", "if app == 1:\n    pass\napp == 2\n");
        assert_eq!(find(folder.path()).expect("one"), "app.main:app");
        write("main.py", "app=JustAPI()\n");
        assert_eq!(find(folder.path()).expect("one"), "main:app");
    }
}
