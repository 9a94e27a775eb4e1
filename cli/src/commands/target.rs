//! Which application a command is about: the one that is named, that of the settings, or that of
//! the folder.
//!
//! Guarantee: every command means the same, and nothing is imported to find it out.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use crate::config::{Config, Origin};
use crate::error::{CliError, Code};
use crate::ui::faint;

/// Where a folder's application is looked for, and the module that it is; a file that is no module
/// of the folder itself is imported by its path.
const PLACES: [(&str, Option<&str>); 9] = [
    ("main.py", Some("main")),
    ("app.py", Some("app")),
    ("api.py", Some("api")),
    ("server.py", Some("server")),
    ("app/main.py", Some("app.main")),
    ("app/app.py", Some("app.app")),
    ("app/__init__.py", Some("app")),
    ("src/main.py", None),
    ("src/app.py", None),
];
/// Of a module that is looked at.
const MAX_TEXT_BYTES: u64 = 1024 * 1024;
/// Folder of packages.
const SOURCES: &str = "src";
/// Where the application of a package is looked for.
const OF_PACKAGE: [&str; 2] = ["main.py", "app.py"];
const NAMES: [&str; 3] = ["app", "application", "api"];
const FACTORIES: [&str; 2] = ["create_app", "make_app"];
/// Names that a module may have from another; what is called `api` there is most often no
/// application.
const UNMISTAKABLE: [&str; 2] = ["app", "application"];
/// What has no name that is looked for is still one of ours.
const OURS: &str = "= JustAPI(";

/// What a command is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Meant {
    /// This application, as it is imported.
    Application(String),
    /// What is served without one; why there is none, where one was looked for.
    Server(Option<String>),
}

/// The application that `named` names; without a name that of the settings, or of the folder.
///
/// The folder that it is imported from goes into `config`, unless that says another.
///
/// # Errors
/// [`Code::Application`]: it names a folder without an application, or several are meant.
pub(super) fn meant(config: &mut Config, named: Option<&str>) -> Result<Meant, CliError> {
    if let Some(app) = told(config, named)? {
        return Ok(Meant::Application(app));
    }
    if is_told_by_flags(config) {
        return Ok(Meant::Server(None));
    }
    let folder = folder_of(config);
    Ok(match search(&folder)? {
        Found::Application(place) => Meant::Application(place.from(&folder)),
        Found::Unfinished(place) => Meant::Server(Some(format!(
            "{} has no application",
            folder.join(&place.file).display()
        ))),
        Found::Nothing => Meant::Server(Some("there is no application in this folder".to_owned())),
    })
}

/// Says that a result is about what `justapi serve` serves here without an application.
pub(super) fn instead_note(why: &str, served: &str) -> String {
    let text = format!("{why}, so this is what `justapi serve` serves here: {served}");
    format!("{}\n", faint(&text))
}

/// As [`meant`] for what is being written: the application may be missing from its file yet.
///
/// # Errors
/// [`Code::Application`]: there is no such file, too.
pub(super) fn meant_by_dev(config: &mut Config, named: Option<&str>) -> Result<String, CliError> {
    if let Some(app) = told(config, named)? {
        return Ok(app);
    }
    let folder = folder_of(config);
    match search(&folder)? {
        Found::Application(place) | Found::Unfinished(place) => Ok(place.from(&folder)),
        Found::Nothing => Err(nothing_in(&folder)),
    }
}

/// Whether a folder has an application, or several.
pub(super) fn is_in(folder: &Path) -> bool {
    !matches!(search(folder), Ok(Found::Unfinished(_) | Found::Nothing))
}

/// What the command line or the settings say.
fn told(config: &mut Config, named: Option<&str>) -> Result<Option<String>, CliError> {
    if let Some(named) = named {
        return expanded(config, named.to_owned()).map(Some);
    }
    let Some(app) = config.value("app").text().map(str::to_owned) else {
        return Ok(None);
    };
    let file = config
        .file()
        .filter(|_| matches!(config.origin("app"), Origin::File { .. }));
    let Some(folder) = file.map(|file| file.parent().unwrap_or(Path::new("")).to_owned()) else {
        return expanded(config, app).map(Some);
    };
    // As every path of the file it counts from there.
    config.import_from(&folder);
    let app = if is_path(&app) {
        folder.join(app).to_string_lossy().into_owned()
    } else {
        app
    };
    expanded(config, app).map(Some)
}

/// A folder stands for its application.
fn expanded(config: &mut Config, app: String) -> Result<String, CliError> {
    let folder = Path::new(&app);
    let sources = folder_of(config);
    let is_there = |name: &str| Path::new(name).exists() || sources.join(name).exists();
    let is_module = !is_path(&app)
        && (is_there(&format!("{app}/__init__.py")) || is_there(&format!("{app}.py")));
    if is_module || !folder.is_dir() {
        return Ok(app);
    }
    match search(folder)? {
        Found::Application(place) | Found::Unfinished(place) => {
            let app = place.by_path(folder);
            config.import_from(folder);
            Ok(app)
        }
        Found::Nothing => Err(nothing_in(folder)),
    }
}

fn is_path(app: &str) -> bool {
    let module = app.split(':').next().unwrap_or_default();
    module.contains('/') || matches!(module, "." | "..") || has_suffix(module)
}

fn has_suffix(module: &str) -> bool {
    Path::new(module)
        .extension()
        .is_some_and(|suffix| suffix == "py")
}

/// Whether flags say what is served in the place of the demo.
fn is_told_by_flags(config: &Config) -> bool {
    let given = |key| match config.origin(key) {
        Origin::Flag(_) => config.value(key).list(),
        _ => &[],
    };
    !given("server.proxy").is_empty()
        || given("server.static")
            .iter()
            .any(|mount| mount.starts_with("/="))
}

/// The folder that modules are imported from; empty for the current one.
pub(super) fn folder_of(config: &Config) -> PathBuf {
    PathBuf::from(config.value("python.app_dir").text().unwrap_or_default())
}

/// What was found in a folder.
enum Found {
    Application(Place),
    /// A file that has none yet.
    Unfinished(Place),
    Nothing,
}

/// A file that may have an application.
struct Place {
    /// In the folder that was searched.
    file: String,
    module: Option<&'static str>,
    /// Unless it is the only one of ours.
    attribute: Option<&'static str>,
}

impl Place {
    /// As it is imported from `folder`.
    fn from(&self, folder: &Path) -> String {
        match self.module {
            Some(module) => self.with_attribute(module),
            None => self.by_path(folder),
        }
    }

    fn by_path(&self, folder: &Path) -> String {
        self.with_attribute(&folder.join(&self.file).to_string_lossy())
    }

    fn with_attribute(&self, module: &str) -> String {
        match self.attribute {
            Some(attribute) => format!("{module}:{attribute}"),
            None => module.to_owned(),
        }
    }
}

/// Looks for the application of a folder.
///
/// # Errors
/// [`Code::Application`]: several packages have one.
fn search(folder: &Path) -> Result<Found, CliError> {
    let mut unfinished = None;
    let places = PLACES.map(|(file, module)| (file.to_owned(), module));
    let packages = packages_of(folder);
    let in_packages = |file: &str| -> Vec<_> {
        let path = |package: &String| (format!("{SOURCES}/{package}/{file}"), None);
        packages.iter().map(path).collect()
    };
    // What is beside each other is equally likely.
    let ranks = places.into_iter().map(|place| vec![place]);
    let ranks = ranks.chain(OF_PACKAGE.map(in_packages));
    for rank in ranks {
        let mut found = Vec::new();
        for (file, module) in rank {
            let Ok(text) = text_of(&folder.join(&file)) else {
                continue;
            };
            let place = |attribute| Place {
                file: file.clone(),
                module,
                attribute,
            };
            match application(&text) {
                Has::Name(name) => found.push(place(Some(name))),
                Has::Ours => found.push(place(None)),
                Has::Nothing => drop(unfinished.get_or_insert_with(|| place(None))),
            }
        }
        if found.len() > 1 {
            return Err(several(folder, &found));
        }
        if let Some(place) = found.pop() {
            return Ok(Found::Application(place));
        }
    }
    Ok(unfinished.map_or(Found::Nothing, Found::Unfinished))
}

/// The start of a module, in whatever encoding it says that it has.
fn text_of(file: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    fs::File::open(file)?
        .take(MAX_TEXT_BYTES)
        .read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The folders beside each other that are packages, in order.
fn packages_of(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder.join(SOURCES)).into_iter().flatten();
    let mut packages: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        // Others cannot be imported.
        .filter(|name| {
            name.bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        })
        .collect();
    packages.sort();
    packages
}

fn several(folder: &Path, found: &[Place]) -> CliError {
    let names: Vec<String> = found.iter().map(|place| place.from(folder)).collect();
    let shown: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    CliError::new(
        Code::Application,
        format!(
            "there are {} applications: {}",
            found.len(),
            shown.join(", ")
        ),
    )
    .with_hint(format!("name one of them, such as {}", shown[0]))
}

fn nothing_in(folder: &Path) -> CliError {
    let here = folder.as_os_str().is_empty();
    let shown = if here {
        "this folder".to_owned()
    } else {
        folder.display().to_string()
    };
    let places = PLACES.iter().map(|(file, _)| (*file).to_owned());
    let packages = OF_PACKAGE.map(|file| format!("{SOURCES}/*/{file}"));
    CliError::new(
        Code::Application,
        format!("there is no application in {shown}"),
    )
    .with_detail(
        "looked in",
        places.chain(packages).collect::<Vec<_>>().join(", "),
    )
    .with_hint(
        "name it as it is imported, such as `package.module:app`, or make one with \
             `justapi new`",
    )
}

/// What the text of a module tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Has {
    /// An application by a name that is looked for.
    Name(&'static str),
    /// One or more of ours by other names.
    Ours,
    Nothing,
}

fn application(text: &str) -> Has {
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
    let made = NAMES.into_iter().find(is_set);
    if let Some(name) = made.or_else(|| FACTORIES.into_iter().find(is_factory)) {
        return Has::Name(name);
    }
    let is_ours = |line: &str| !line.starts_with([' ', '\t', '#']) && line.contains(OURS);
    if text.lines().any(is_ours) {
        return Has::Ours;
    }
    let imported = imported(text);
    let names = UNMISTAKABLE.into_iter().chain(FACTORIES);
    let mut names = names.filter(|name| imported.contains(name));
    names.next().map_or(Has::Nothing, Has::Name)
}

/// The names that a module takes `from` others.
fn imported(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some((_, list)) = line
            .strip_prefix("from ")
            .and_then(|rest| rest.split_once(" import "))
        else {
            continue;
        };
        let mut list = list;
        let is_open = list.trim_start().starts_with('(');
        loop {
            let bare = list.split('#').next().unwrap_or_default();
            let items = bare.split([',', '(', ')']);
            names.extend(items.filter_map(|item| item.split_whitespace().next_back()));
            if !is_open || bare.contains(')') {
                break;
            }
            match lines.next() {
                Some(line) => list = line,
                None => break,
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Self {
            Self(tempfile::TempDir::new().expect("a folder"))
        }

        fn write(&self, name: &str, text: &str) {
            let path = self.0.path().join(name);
            fs::create_dir_all(path.parent().expect("it has one")).expect("a folder");
            fs::write(path, text).expect("it is written");
        }

        /// What is found, as it is imported from here; with `?` where it is not finished.
        fn found(&self) -> String {
            let folder = self.0.path();
            match search(folder) {
                Ok(Found::Application(place)) => shown(&place),
                Ok(Found::Unfinished(place)) => format!("{}?", shown(&place)),
                Ok(Found::Nothing) => "nothing".to_owned(),
                Err(error) => error
                    .message()
                    .replace(&format!("{}/", folder.display()), ""),
            }
        }
    }

    fn shown(place: &Place) -> String {
        place.from(Path::new(""))
    }

    #[test]
    fn the_first_application_is_found() {
        let folder = Folder::new();
        assert_eq!(folder.found(), "nothing");
        folder.write("server.py", "import");
        assert_eq!(folder.found(), "server?");
        folder.write("src/shop/app.py", "from .web import app\n");
        assert_eq!(folder.found(), "src/shop/app.py:app");
        folder.write("src/shop/main.py", "app = JustAPI()\n");
        assert_eq!(folder.found(), "src/shop/main.py:app");
        folder.write("src/app.py", "def create_app():\n    pass\n");
        assert_eq!(folder.found(), "src/app.py:create_app");
        folder.write("app/main.py", "import x\napp: JustAPI = x.make()\n");
        assert_eq!(folder.found(), "app.main:app");
        folder.write("main.py", "if app == 1:\n    pass\napp == 2\n");
        assert_eq!(folder.found(), "app.main:app");
        folder.write("main.py", "shop = JustAPI()\n");
        assert_eq!(folder.found(), "main");
        folder.write("main.py", "app=JustAPI()\n");
        assert_eq!(folder.found(), "main:app");
    }

    #[test]
    fn two_packages_are_no_choice_of_ours() {
        let folder = Folder::new();
        folder.write("src/shop/main.py", "app = JustAPI()\n");
        folder.write("src/admin/main.py", "app = JustAPI()\n");
        folder.write("src/shop.egg-info/main.py", "app = JustAPI()\n");
        folder.write("src/tools/main.py", "print('hello')\n");
        assert_eq!(
            folder.found(),
            "there are 2 applications: `src/admin/main.py:app`, `src/shop/main.py:app`"
        );
        folder.write("main.py", "from admin.main import app\n");
        assert_eq!(folder.found(), "main:app");
    }

    #[test]
    fn a_text_tells_what_it_has() {
        for (text, expected) in [
            (
                "from x import (\n    one,  # app\n    two,\n)\n",
                Has::Nothing,
            ),
            (
                "from x import (\n    one,\n    web as app,\n)\n",
                Has::Name("app"),
            ),
            ("from x import app as other\n", Has::Nothing),
            ("from x import a, application\n", Has::Name("application")),
            ("from x import create_app\n", Has::Name("create_app")),
            ("from routes import api\n", Has::Nothing),
            ("from x import app\nshop = JustAPI()\n", Has::Ours),
            ("    shop = JustAPI()\n", Has::Nothing),
            ("# shop = JustAPI()\n", Has::Nothing),
            ("shop: JustAPI = JustAPI()\n", Has::Ours),
            ("def create_app(): ...\napi = JustAPI()\n", Has::Name("api")),
            ("", Has::Nothing),
        ] {
            assert_eq!(application(text), expected, "{text}");
        }
    }
}
