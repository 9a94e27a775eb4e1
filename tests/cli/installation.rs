//! `justapi self`, as the program that install.sh, a package manager or nobody has installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::binary::{Folder, JUSTAPI, Run};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A home directory, release archives, and the installer.
struct Home {
    folder: Folder,
}

impl Home {
    fn new() -> Self {
        let folder = Folder::new().with("home/.profile", "# mine\n");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (home, url) = (path("home"), format!("file://{}", path("releases")));
        fs::create_dir(folder.path().join("releases")).unwrap();
        Self {
            folder: folder.env("HOME", &home).env("JUSTAPI_DOWNLOAD_URL", &url),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The installed program.
    fn program(&self) -> PathBuf {
        self.path("home/.local/bin/justapi")
    }

    /// Puts an archive that holds `program` and its checksum into the directory of releases.
    fn publish(&self, version: &str, program: &Path) -> PathBuf {
        let name = format!(
            "releases/justapi-{version}-{}-unknown-linux-musl.tar.gz",
            std::env::consts::ARCH
        );
        let archive = self.path(&name);
        let folder = program.parent().unwrap();
        // The fastest compression: a debug build is large.
        let script = format!(
            "tar -C '{}' -cf - justapi | gzip -1 >'{}' && cd '{}' && sha256sum '{}' >'{}.sha256'",
            folder.display(),
            archive.display(),
            archive.parent().unwrap().display(),
            archive.file_name().unwrap().display(),
            archive.display(),
        );
        let packed = Command::new("sh").args(["-ec", &script]).status().unwrap();
        assert!(packed.success(), "{packed}");
        archive
    }

    /// Publishes a version whose program only says what it is.
    fn publish_script(&self, version: &str) -> PathBuf {
        let program = self.path(&format!("script-{version}/justapi"));
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        fs::write(&program, format!("#!/bin/sh\necho 'justapi {version}'\n")).unwrap();
        self.publish(version, &program)
    }

    fn install(&self) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../install.sh");
        let mut command = self.folder.program("sh", &[&script.display().to_string()]);
        let run = Run::of(&command.output().unwrap());
        assert_eq!(run.status, 0, "{run:#?}");
    }

    /// Runs the installed program.
    fn run(&self, arguments: &str) -> Run {
        let arguments: Vec<_> = arguments.split_whitespace().collect();
        let program = self.program().display().to_string();
        Run::of(&self.folder.program(&program, &arguments).output().unwrap())
    }

    /// Every path below the home directory, with the sizes of files.
    fn listed(&self) -> Vec<(PathBuf, u64)> {
        let mut found = Vec::new();
        let mut rest = vec![self.path("home")];
        while let Some(folder) = rest.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let entry = entry.unwrap();
                let about = entry.metadata().unwrap();
                if about.is_dir() {
                    rest.push(entry.path());
                }
                found.push((entry.path(), if about.is_dir() { 0 } else { about.len() }));
            }
        }
        found.sort();
        found
    }
}

#[track_caller]
fn says(run: &Run, expected: &[&str]) {
    for text in expected {
        assert!(run.stderr.contains(text), "{text} in {run:#?}");
    }
}

#[test]
fn what_the_installer_has_installed_updates_and_removes_itself() {
    let home = Home::new();
    let before = home.listed();
    home.publish(VERSION, Path::new(JUSTAPI));
    home.install();
    let installed = home.listed();
    assert!(installed.len() > before.len());

    let run = home.run("self uninstall --dry-run").expect(0);
    let program = home.program().display().to_string();
    says(
        &run,
        &[&format!("would remove {program}"), ".profile: . \"$HOME/"],
    );
    let run = home.run(&format!("self update {VERSION}")).expect(0);
    says(&run, &["is installed already"]);
    says(
        &home.run("self update").expect(1),
        &["error[JA612]", "self update VERSION"],
    );
    says(
        &home.run("self update a/b").expect(2),
        &["`a/b` is not a version"],
    );
    let run = home.run("self update 9.9.9").expect(1);
    says(&run, &["cannot fetch", "error[JA614]"]);

    let archive = home.publish_script("9.9.9");
    let run = home.run("self update v9.9.9 --dry-run --json").expect(0);
    assert_eq!(run.json()["to"], "9.9.9");
    let checksum = archive.with_extension("gz.sha256");
    let right = fs::read(&checksum).unwrap();
    fs::write(&checksum, format!("{}  x\n", "0".repeat(64))).unwrap();
    says(
        &home.run("self update 9.9.9").expect(1),
        &["checksum mismatch", "error[JA614]"],
    );
    fs::remove_file(&checksum).unwrap();
    says(
        &home.run("self update 9.9.9").expect(1),
        &["cannot fetch the checksum"],
    );
    assert_eq!(home.listed(), installed);

    // Its own removal leaves what there was before it.
    says(
        &home.run("self uninstall").expect(0),
        &["justapi is uninstalled"],
    );
    assert_eq!(home.listed(), before);

    home.install();
    fs::write(&checksum, right).unwrap();
    let run = home.run("self update 9.9.9").expect(0);
    says(&run, &[&format!("justapi {VERSION} is now 9.9.9")]);
    assert_eq!(home.run("--version").stdout, "justapi 9.9.9\n");
    let receipt = fs::read_to_string(home.path("home/.local/share/justapi/receipt.json")).unwrap();
    let receipt: serde_json::Value = serde_json::from_str(&receipt).unwrap();
    assert_eq!(receipt["version"], "9.9.9");
    assert_eq!(
        receipt["path_lines"][0]["file"],
        home.path("home/.profile").display().to_string()
    );
}

#[test]
fn what_nobody_has_installed_is_left_alone() {
    let home = Home::new();
    home.publish_script("9.9.9");
    for (command, expected) in [
        ("self update 9.9.9", "build it again"),
        ("self uninstall", "in the way in which it was put there"),
    ] {
        let run = home.folder.run(command).expect(1);
        says(
            &run,
            &["error[JA613]: install.sh did not install", expected],
        );
        assert!(!run.stderr.contains("removed"), "{run:#?}");
    }
    // Another one is installed: it is named, and not touched.
    let archive = home.path("releases");
    home.publish_script(VERSION);
    home.install();
    assert!(archive.exists() && home.program().exists());
    let run = home.folder.run("self uninstall").expect(1);
    let program = home.program().display().to_string();
    says(
        &run,
        &[
            "the installed one is another",
            &format!("`{program} self uninstall`"),
        ],
    );
    assert!(home.program().exists());
}

#[test]
fn a_wheel_belongs_to_its_package_manager() {
    let home = Home::new();
    let environment = home.path("an environment");
    let info = environment.join("lib/python3.12/site-packages/justapi-0.1.0.dist-info");
    fs::create_dir_all(&info).unwrap();
    fs::create_dir_all(environment.join("bin")).unwrap();
    let program = environment.join("bin/justapi");
    fs::copy(JUSTAPI, &program).unwrap();
    fs::write(environment.join("bin/python3"), "").unwrap();
    let length = fs::metadata(&program).unwrap().len();
    let record = format!("../../../bin/justapi,sha256=x,{length}\n");
    fs::write(info.join("RECORD"), record).unwrap();
    fs::write(info.join("INSTALLER"), "pip\n").unwrap();
    let python = environment.join("bin/python3").display().to_string();
    for (arguments, expected) in [
        (
            &["self", "update"][..],
            "-m pip install -U wheels/justapi-*.whl",
        ),
        (
            &["self", "update", "9.9.9"],
            "-m pip install -U wheels/justapi-9.9.9-*.whl",
        ),
        (&["self", "uninstall"], "-m pip uninstall justapi"),
    ] {
        let program = program.display().to_string();
        let run = Run::of(&home.folder.program(&program, arguments).output().unwrap()).expect(1);
        says(
            &run,
            &["error[JA611]", &format!("run `'{python}' {expected}`")],
        );
    }
    assert!(program.exists());
}
