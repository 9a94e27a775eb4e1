//! Runs `install.sh` as a user would, against a home directory that exists for one test only.
//!
//! Release archives come from `file://`, and the binary in them is a two-line shell script.
//! Nothing is read from or written to the real home directory, and nothing leaves the machine.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Where the tools are that the script may use; holds no `justapi`.
const SYSTEM_PATH: &str = "/usr/bin:/bin";

/// Names under which the script looks for an interpreter.
const PYTHONS: [&str; 6] = [
    "python3",
    "python3.14",
    "python3.13",
    "python3.12",
    "python3.11",
    "python",
];

/// What the script needs besides a downloader and a checksum tool.
const PLAIN_TOOLS: &[&str] = &[
    "awk", "cat", "chmod", "cp", "cut", "dirname", "grep", "gzip", "id", "ls", "mkdir", "mv", "rm",
    "rmdir", "sed", "sh", "sort", "tail", "tar", "uname",
];

/// Everything below a directory: `None` for a directory, the bytes of a file, the target of a link.
type Snapshot = BTreeMap<PathBuf, Option<Vec<u8>>>;

/// A home directory, a directory of releases and a `bin` for stand-ins, removed at the end.
struct Sandbox {
    root: PathBuf,
    /// The environment of the script, and nothing else is in it.
    environment: BTreeMap<&'static str, String>,
    script: PathBuf,
}

impl Sandbox {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("install-{}-{number}", std::process::id());
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        for directory in ["home", "releases", "bin"] {
            fs::create_dir_all(root.join(directory)).expect("the target directory is writable");
        }
        let mut sandbox = Self {
            environment: BTreeMap::new(),
            script: install_sh(),
            root,
        };
        let home = sandbox.path("home");
        sandbox.environment.insert("HOME", home);
        sandbox.environment.insert("PATH", SYSTEM_PATH.to_owned());
        let url = format!("file://{}", sandbox.path("releases"));
        sandbox.environment.insert("JUSTAPI_DOWNLOAD_URL", url);
        sandbox.publish(&default_version());
        sandbox
    }

    fn path(&self, name: &str) -> String {
        self.root.join(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.root.join(name);
        fs::create_dir_all(path.parent().expect("below the root")).expect("writable");
        fs::write(path, text).expect("writable");
    }

    fn write_program(&self, name: &str, text: &str) {
        self.write(name, text);
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(self.root.join(name), mode).expect("own file");
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.root.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn exists(&self, name: &str) -> bool {
        self.root.join(name).exists()
    }

    fn set(&mut self, key: &'static str, value: impl Into<String>) {
        self.environment.insert(key, value.into());
    }

    /// Puts an archive and its checksum into the release directory.
    fn publish(&self, version: &str) {
        let program = format!("#!/bin/sh\necho 'justapi {version}'\n");
        self.write_program("unpacked/justapi", &program);
        let archive = archive_name(version);
        let packed = Command::new("tar")
            .args([
                "-czf",
                &self.path(&format!("releases/{archive}")),
                "justapi",
            ])
            .current_dir(self.root.join("unpacked"))
            .status()
            .expect("tar runs");
        assert!(packed.success(), "tar: {packed}");
        let sum = Command::new("sha256sum")
            .arg(&archive)
            .current_dir(self.root.join("releases"))
            .output()
            .expect("sha256sum runs");
        fs::write(
            self.root.join(format!("releases/{archive}.sha256")),
            sum.stdout,
        )
        .expect("writable");
    }

    fn home(&self) -> Snapshot {
        snapshot(&self.root.join("home"))
    }

    /// The command line `SHELL install.sh ARGUMENTS`; `shell` may hold options.
    fn command(&self, shell: &str, arguments: &[&str]) -> Command {
        let mut words = shell.split(' ');
        let program = find_program(words.next().unwrap_or_default()).expect("the shell exists");
        let mut command = Command::new(program);
        command
            .args(words)
            .arg(&self.script)
            .args(arguments)
            .env_clear()
            .envs(&self.environment)
            .current_dir(&self.root)
            .stdin(Stdio::null());
        command
    }

    fn run_with(&self, shell: &str, arguments: &[&str]) -> Outcome {
        Outcome::new(
            &self
                .command(shell, arguments)
                .output()
                .expect("the shell runs"),
        )
    }

    fn run(&self, arguments: &[&str]) -> Outcome {
        self.run_with("sh", arguments)
    }

    /// A source checkout in `tree`, and stand-ins for the Rust tools in `bin`.
    fn stage_checkout(&mut self, server: &str) {
        self.environment.remove("JUSTAPI_DOWNLOAD_URL");
        self.set("PATH", format!("{}:{SYSTEM_PATH}", self.path("bin")));
        self.write("tree/cli/Cargo.toml", "");
        self.write("tree/Cargo.lock", "");
        let manifest = "[workspace.package]\nversion = \"0.1.0\"\nrust-version = \"1.95\"\n";
        self.write("tree/Cargo.toml", manifest);
        fs::copy(install_sh(), self.root.join("tree/install.sh")).expect("install.sh is readable");
        self.script = self.root.join("tree/install.sh");
        self.write_program("bin/rustc", "#!/bin/sh\necho 'rustc 1.95.0 (stand-in)'\n");
        self.write_program("bin/cc", "#!/bin/sh\n");
        let cargo = format!(
            "#!/bin/sh\nset -e\nmkdir -p target/release\necho \"$*\" >target/cargo-arguments\n\
             cat >target/release/justapi <<'EOF'\n{server}EOF\nchmod 755 target/release/justapi\n"
        );
        self.write_program("bin/cargo", &cargo);
        for python in PYTHONS {
            self.write_program(&format!("bin/{python}"), "#!/bin/sh\nexit 1\n");
        }
    }

    /// Stand-ins for what the Python package is built with, in the checkout and in `bin`; an
    /// environment's interpreter writes down what it is asked for.
    fn stage_package(&self) {
        self.write("tree/py/pyproject.toml", "requires = [\"maturin>=1\"]\n");
        let build = "set -e\nmkdir -p \"$2\"\n: >\"$2/justapi-0.1.0-x.whl\"\n";
        self.write("tree/py/build_wheel.sh", build);
        self.write_program("bin/npm", "#!/bin/sh\n");
        let inner = "#!/bin/sh\necho \"$*\" >>\"${0%/bin/python}/asked\"\n";
        let python = format!(
            "#!/bin/sh\nset -e\n[ \"$1\" = -m ] || exit 0\nmkdir -p \"$3/bin\"\n\
             cat >\"$3/bin/python\" <<'EOF'\n{inner}EOF\nchmod 755 \"$3/bin/python\"\n"
        );
        self.write_program("bin/python3", &python);
    }

    /// Leaves the script nothing but the plain tools.
    fn restrict_path(&mut self) {
        fs::create_dir_all(self.root.join("tools")).expect("writable");
        for tool in PLAIN_TOOLS {
            let program = find_program(tool).unwrap_or_else(|| panic!("{tool} is missing"));
            symlink(program, self.root.join("tools").join(tool)).expect("writable");
        }
        self.set("PATH", self.path("tools"));
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // What is left of a failed removal lies in the target directory and is removed with it.
        let _ignored = fs::remove_dir_all(&self.root);
    }
}

/// What a run of the script said.
struct Outcome {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Outcome {
    fn new(output: &Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    #[track_caller]
    fn succeeds(&self) -> &Self {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        self
    }

    /// Fails with one error line that holds `text`, followed by a hint.
    #[track_caller]
    fn fails_with(&self, text: &str) {
        assert_eq!(self.code, Some(1), "{}", self.stderr);
        let error = self.stderr.lines().find(|line| line.starts_with("error: "));
        assert!(
            error.is_some_and(|line| line.contains(text)),
            "no `{text}` in: {}",
            self.stderr
        );
        assert!(
            self.stderr.contains("\nhint: "),
            "no hint in: {}",
            self.stderr
        );
    }

    #[track_caller]
    fn says(&self, text: &str) -> &Self {
        assert!(
            self.stderr.contains(text),
            "no `{text}` in: {}",
            self.stderr
        );
        self
    }
}

fn install_sh() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../install.sh")
}

fn default_version() -> String {
    let script = fs::read_to_string(install_sh()).expect("install.sh is readable");
    let line = script
        .lines()
        .find_map(|line| line.strip_prefix("DEFAULT_VERSION="));
    line.expect("install.sh names its version").to_owned()
}

fn archive_name(version: &str) -> String {
    format!(
        "justapi-{version}-{}-unknown-linux-musl.tar.gz",
        std::env::consts::ARCH
    )
}

fn find_program(name: &str) -> Option<PathBuf> {
    SYSTEM_PATH
        .split(':')
        .map(|directory| Path::new(directory).join(name))
        .find(|p| p.exists())
}

/// The POSIX shells of this machine; `sh` is always one.
fn shells() -> Vec<&'static str> {
    ["sh", "dash", "bash --posix", "busybox sh"]
        .into_iter()
        .filter(|shell| {
            shell
                .split(' ')
                .next()
                .is_some_and(|name| find_program(name).is_some())
        })
        .collect()
}

fn snapshot(root: &Path) -> Snapshot {
    let mut found = Snapshot::new();
    let mut pending = vec![root.to_path_buf()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory).expect("readable") {
            let path = entry.expect("readable").path();
            let kind = fs::symlink_metadata(&path).expect("readable").file_type();
            let content = if kind.is_dir() {
                pending.push(path.clone());
                None
            } else if kind.is_symlink() {
                Some(
                    fs::read_link(&path)
                        .expect("a link")
                        .display()
                        .to_string()
                        .into_bytes(),
                )
            } else {
                Some(fs::read(&path).expect("readable"))
            };
            found.insert(path, content);
        }
    }
    found
}

#[test]
fn installs_and_uninstalls_without_a_trace_in_every_shell() {
    for shell in shells() {
        let sandbox = Sandbox::new();
        sandbox.write("home/.profile", "# mine\n");
        sandbox.write("home/.bashrc", "alias l=ls");
        sandbox.write("home/.zshrc", "");
        sandbox.write("home/.config/fish/config.fish", "# mine\n");
        let before = sandbox.home();

        let installed = sandbox.run_with(shell, &[]);
        installed
            .succeeds()
            .says("installed justapi")
            .says("added to");
        let line = ". \"$HOME/.local/share/justapi/env\"";
        assert_eq!(
            sandbox.read("home/.profile"),
            format!("# mine\n{line}\n"),
            "{shell}"
        );
        assert_eq!(
            sandbox.read("home/.bashrc"),
            format!("alias l=ls\n{line}\n"),
            "{shell}"
        );
        assert_eq!(sandbox.read("home/.zshrc"), format!("{line}\n"), "{shell}");
        assert!(
            sandbox.exists("home/.config/fish/conf.d/justapi.fish"),
            "{shell}"
        );
        assert!(
            !sandbox.exists("home/.bash_profile"),
            "it would mask .profile"
        );

        let after_first = sandbox.home();
        sandbox.run_with(shell, &["--yes"]).succeeds();
        assert!(
            after_first == sandbox.home(),
            "{shell}: a second install changed something"
        );

        sandbox.run_with(shell, &["--uninstall"]).succeeds();
        assert!(
            before == sandbox.home(),
            "{shell}: uninstall left {:?}",
            sandbox.home().keys()
        );
        sandbox
            .run_with(shell, &["--uninstall"])
            .succeeds()
            .says("nothing to remove");
    }
}

#[test]
fn the_env_file_puts_the_binary_on_path_once() {
    let sandbox = Sandbox::new();
    sandbox.run(&[]).succeeds();
    let env_file = sandbox.path("home/.local/share/justapi/env");
    let script = format!(". '{env_file}'; . '{env_file}'; justapi --version; echo \"$PATH\"");
    let output = Command::new("sh")
        .args(["-c", &script])
        .env_clear()
        .env("PATH", SYSTEM_PATH)
        .output()
        .expect("sh runs");
    let bin = sandbox.path("home/.local/bin");
    let expected = format!("justapi {}\n{bin}:{SYSTEM_PATH}\n", default_version());
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}

#[test]
fn an_empty_home_gets_a_profile_that_uninstall_removes() {
    let sandbox = Sandbox::new();
    sandbox.run(&[]).succeeds().says(".profile: . \"$HOME");
    assert!(sandbox.exists("home/.profile"));
    sandbox.run(&["--uninstall"]).succeeds();
    assert!(
        sandbox.home().is_empty(),
        "left {:?}",
        sandbox.home().keys()
    );
}

#[test]
fn a_linked_start_up_file_stays_a_link() {
    let sandbox = Sandbox::new();
    sandbox.write("home/dotfiles/bashrc", "# mine\n");
    symlink("dotfiles/bashrc", sandbox.root.join("home/.bashrc")).unwrap();
    let before = sandbox.home();
    sandbox.run(&[]).succeeds();
    assert!(sandbox.read("home/dotfiles/bashrc").contains("justapi/env"));
    sandbox.run(&["--uninstall"]).succeeds();
    assert!(before == sandbox.home());
}

#[test]
fn lines_added_by_the_user_survive_uninstall() {
    let sandbox = Sandbox::new();
    sandbox.write("home/.bashrc", "alias l=ls");
    sandbox.run(&[]).succeeds();
    let edited = sandbox.read("home/.bashrc") + "alias m=more\n";
    sandbox.write("home/.bashrc", &edited);
    sandbox.run(&["--uninstall"]).succeeds();
    assert_eq!(sandbox.read("home/.bashrc"), "alias l=ls\nalias m=more\n");
}

#[test]
fn the_receipt_is_json_and_names_version_files_lines_and_checksum() {
    let sandbox = Sandbox::new();
    sandbox.write("home/.bashrc", "");
    sandbox.run(&[]).succeeds();
    let text = sandbox.read("home/.local/share/justapi/receipt.json");
    let receipt: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(receipt["schema"], 1);
    assert_eq!(receipt["version"], default_version());
    assert_eq!(receipt["sha256"].as_str().map(str::len), Some(64));
    assert_eq!(receipt["files"][0], sandbox.path("home/.local/bin/justapi"));
    assert_eq!(
        receipt["path_lines"][0]["file"],
        sandbox.path("home/.bashrc")
    );
    assert_eq!(
        receipt["path_lines"][0]["line"],
        ". \"$HOME/.local/share/justapi/env\""
    );
}

#[test]
fn a_directory_on_path_leaves_start_up_files_alone() {
    let mut sandbox = Sandbox::new();
    sandbox.write("home/.bashrc", "# mine\n");
    sandbox.set(
        "PATH",
        format!("{SYSTEM_PATH}:{}", sandbox.path("home/.local/bin")),
    );
    sandbox.run(&[]).succeeds();
    assert_eq!(sandbox.read("home/.bashrc"), "# mine\n");
}

#[test]
fn an_install_in_a_new_shell_keeps_the_lines_of_the_first_in_the_receipt() {
    let mut sandbox = Sandbox::new();
    sandbox.write("home/.bashrc", "# mine\n");
    let before = sandbox.home();
    sandbox.run(&[]).succeeds();
    sandbox.set(
        "PATH",
        format!("{}:{SYSTEM_PATH}", sandbox.path("home/.local/bin")),
    );
    sandbox.run(&[]).succeeds();
    sandbox.run(&["--uninstall"]).succeeds();
    assert!(before == sandbox.home());
}

#[test]
fn no_modify_path_prints_the_line_instead() {
    let sandbox = Sandbox::new();
    sandbox.write("home/.bashrc", "# mine\n");
    sandbox
        .run(&["--no-modify-path"])
        .succeeds()
        .says("export PATH=");
    assert_eq!(sandbox.read("home/.bashrc"), "# mine\n");
}

#[test]
fn a_github_job_gets_the_directory_in_its_path_file() {
    let mut sandbox = Sandbox::new();
    sandbox.write("github-path", "");
    sandbox.set("GITHUB_PATH", sandbox.path("github-path"));
    sandbox.run(&[]).succeeds();
    sandbox.run(&[]).succeeds();
    assert_eq!(
        sandbox.read("github-path"),
        sandbox.path("home/.local/bin") + "\n"
    );
}

#[test]
fn another_binary_earlier_on_path_is_named() {
    let mut sandbox = Sandbox::new();
    sandbox.write_program("bin/justapi", "#!/bin/sh\n");
    let ours = sandbox.path("home/.local/bin");
    sandbox.set(
        "PATH",
        format!("{}:{ours}:{SYSTEM_PATH}", sandbox.path("bin")),
    );
    let shadow = format!(
        "warning: another justapi comes first on PATH: {}",
        sandbox.path("bin")
    );
    sandbox.run(&[]).succeeds().says(&shadow);
    sandbox.set(
        "PATH",
        format!("{ours}:{}:{SYSTEM_PATH}", sandbox.path("bin")),
    );
    assert!(
        !sandbox
            .run(&[])
            .succeeds()
            .stderr
            .contains("another justapi")
    );
}

#[test]
fn prefix_and_version_choose_the_place_and_the_archive() {
    let sandbox = Sandbox::new();
    sandbox.publish("9.8.7-rc.1");
    let prefix = sandbox.path("home/a place");
    sandbox
        .run(&["--version", "v9.8.7-rc.1", "--prefix", &prefix])
        .succeeds()
        .says("9.8.7-rc.1");
    assert!(sandbox.exists("home/a place/bin/justapi"));
    sandbox.run(&["--uninstall"]).succeeds();
    assert!(
        sandbox.home().is_empty(),
        "left {:?}",
        sandbox.home().keys()
    );
}

#[test]
fn the_install_directory_variable_names_the_directory_itself() {
    let mut sandbox = Sandbox::new();
    sandbox.set("JUSTAPI_INSTALL_DIR", sandbox.path("home/tools"));
    sandbox.run(&[]).succeeds();
    assert!(sandbox.exists("home/tools/justapi"));
}

#[test]
fn a_damaged_archive_is_refused_and_nothing_is_installed() {
    let sandbox = Sandbox::new();
    let archive = sandbox
        .root
        .join("releases")
        .join(archive_name(&default_version()));
    let mut bytes = fs::read(&archive).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&archive, bytes).unwrap();
    sandbox.run(&[]).fails_with("checksum mismatch");
    assert!(
        sandbox.home().is_empty(),
        "left {:?}",
        sandbox.home().keys()
    );
}

#[test]
fn a_failed_update_keeps_the_installed_version() {
    let sandbox = Sandbox::new();
    sandbox.run(&[]).succeeds();
    let before = sandbox.home();
    sandbox.publish("2.0.0");
    let archive = archive_name("2.0.0");
    sandbox.write(&format!("releases/{archive}.sha256"), &"0".repeat(64));
    sandbox
        .run(&["--version", "2.0.0"])
        .fails_with("checksum mismatch");
    assert!(before == sandbox.home());
}

#[test]
fn a_missing_or_malformed_checksum_is_refused_unless_waived() {
    let sandbox = Sandbox::new();
    let checksum = format!("releases/{}.sha256", archive_name(&default_version()));
    sandbox.write(&checksum, "<html>not found</html>\n");
    sandbox.run(&[]).fails_with("holds no sha256 checksum");
    fs::remove_file(sandbox.root.join(&checksum)).unwrap();
    sandbox.run(&[]).fails_with("cannot fetch the checksum");
    assert!(
        sandbox.home().is_empty(),
        "left {:?}",
        sandbox.home().keys()
    );
    sandbox
        .run(&["--no-verify"])
        .succeeds()
        .says("warning: not checking");
}

#[test]
fn without_a_checksum_tool_only_no_verify_installs() {
    let mut sandbox = Sandbox::new();
    sandbox.restrict_path();
    sandbox
        .run(&[])
        .fails_with("no sha256sum, shasum or openssl");
    assert!(
        sandbox.home().is_empty(),
        "left {:?}",
        sandbox.home().keys()
    );
    sandbox.run(&["--no-verify"]).succeeds();
    assert!(
        sandbox
            .read("home/.local/share/justapi/receipt.json")
            .contains("\"sha256\": null")
    );
}

#[test]
fn without_a_downloader_the_tools_to_install_are_named() {
    let mut sandbox = Sandbox::new();
    sandbox.restrict_path();
    symlink(
        find_program("sha256sum").unwrap(),
        sandbox.root.join("tools/sha256sum"),
    )
    .unwrap();
    sandbox.set("JUSTAPI_DOWNLOAD_URL", "https://127.0.0.1:1");
    sandbox.run(&[]).fails_with("no curl, wget or python3");
}

#[test]
fn a_missing_archive_and_a_wrong_scheme_are_named() {
    let mut sandbox = Sandbox::new();
    sandbox
        .run(&["--version", "3.2.1"])
        .fails_with("cannot fetch file:///");
    sandbox.set("JUSTAPI_DOWNLOAD_URL", "ftp://127.0.0.1/");
    sandbox.run(&[]).fails_with("must start with https://");
    assert!(
        sandbox.home().is_empty(),
        "left {:?}",
        sandbox.home().keys()
    );
}

#[test]
fn a_binary_that_does_not_run_is_not_installed() {
    let sandbox = Sandbox::new();
    sandbox.run(&[]).succeeds();
    let before = sandbox.home();
    sandbox.write_program("unpacked/justapi", "#!/bin/sh\nexit 126\n");
    let archive = sandbox.path(&format!("releases/{}", archive_name(&default_version())));
    let packed = Command::new("tar")
        .args(["-czf", &archive, "justapi"])
        .current_dir(sandbox.root.join("unpacked"))
        .status();
    assert!(packed.unwrap().success());
    sandbox
        .run(&["--no-verify"])
        .fails_with("does not run on this machine");
    assert!(before == sandbox.home());
}

#[test]
fn an_unset_home_comes_from_the_user_database() {
    let mut sandbox = Sandbox::new();
    let entry = format!(
        "#!/bin/sh\necho \"me:x:$2:$2::{}:/bin/sh\"\n",
        sandbox.path("home")
    );
    sandbox.write_program("bin/getent", &entry);
    sandbox.set("PATH", format!("{}:{SYSTEM_PATH}", sandbox.path("bin")));
    sandbox.environment.remove("HOME");
    sandbox.run(&[]).succeeds();
    assert!(sandbox.exists("home/.local/bin/justapi"));
}

#[test]
fn sudo_with_the_home_of_the_caller_is_refused() {
    let mut sandbox = Sandbox::new();
    let home = sandbox.root.join("home");
    if fs::metadata(&home).unwrap().uid() == 0 {
        chown(&home, Some(12345), None).unwrap();
    } else {
        // Not root: the home is somebody else's as soon as the script believes that we are.
        sandbox.write_program("bin/id", "#!/bin/sh\necho 0\n");
        sandbox.set("PATH", format!("{}:{SYSTEM_PATH}", sandbox.path("bin")));
    }
    sandbox.set("SUDO_UID", "12345");
    sandbox.run(&[]).fails_with("running under sudo");
    sandbox
        .run(&["--uninstall"])
        .fails_with("running under sudo");
    assert!(
        sandbox.home().is_empty(),
        "left {:?}",
        sandbox.home().keys()
    );
}

#[test]
fn a_home_that_needs_quoting_is_refused() {
    let mut sandbox = Sandbox::new();
    fs::create_dir(sandbox.root.join("home/a$b")).unwrap();
    sandbox.set("HOME", sandbox.path("home/a$b"));
    sandbox.run(&[]).fails_with("HOME holds a quote");
    assert_eq!(fs::read_dir(sandbox.path("home/a$b")).unwrap().count(), 0);
}

#[test]
fn help_goes_to_standard_output_and_wrong_usage_is_2() {
    let sandbox = Sandbox::new();
    for shell in shells() {
        let help = sandbox.run_with(shell, &["--help"]);
        for option in [
            "--try",
            "--uninstall",
            "--prefix",
            "--version",
            "JUSTAPI_DOWNLOAD_URL",
        ] {
            assert!(
                help.succeeds().stdout.contains(option),
                "{shell}: no {option}"
            );
        }
        for wrong in [
            ["--frobnicate"].as_slice(),
            &["--prefix"],
            &["--version", "a/b"],
        ] {
            let outcome = sandbox.run_with(shell, wrong);
            assert_eq!(
                outcome.code,
                Some(2),
                "{shell} {wrong:?}: {}",
                outcome.stderr
            );
        }
    }
    assert!(
        sandbox.home().is_empty(),
        "left {:?}",
        sandbox.home().keys()
    );
}

#[test]
fn a_truncated_script_does_nothing() {
    let mut sandbox = Sandbox::new();
    let script = fs::read(install_sh()).unwrap();
    let complete = script.trim_ascii_end().len();
    sandbox.script = sandbox.root.join("truncated.sh");
    let near_the_end = complete.saturating_sub(20)..complete;
    for length in (0..complete).step_by(197).chain(near_the_end) {
        fs::write(&sandbox.script, &script[..length]).unwrap();
        sandbox.run(&["--uninstall"]);
        sandbox.run(&[]);
        assert!(
            sandbox.home().is_empty(),
            "cut at byte {length}: {:?}",
            sandbox.home().keys()
        );
    }
}

#[test]
fn outside_a_checkout_and_without_a_url_the_error_names_both() {
    let mut sandbox = Sandbox::new();
    sandbox.environment.remove("JUSTAPI_DOWNLOAD_URL");
    fs::copy(install_sh(), sandbox.root.join("lone.sh")).unwrap();
    sandbox.script = sandbox.root.join("lone.sh");
    sandbox
        .run(&[])
        .fails_with("JUSTAPI_DOWNLOAD_URL is not set");
    sandbox
        .run(&["--try"])
        .fails_with("this is no source checkout");
    assert!(
        sandbox.home().is_empty(),
        "left {:?}",
        sandbox.home().keys()
    );
}

#[test]
fn a_checkout_is_built_locked_and_installed() {
    let mut sandbox = Sandbox::new();
    sandbox.stage_checkout("#!/bin/sh\necho 'justapi 0.1.0'\n");
    sandbox.run(&[]).succeeds().says("installed justapi 0.1.0");
    let arguments = sandbox.read("tree/target/cargo-arguments");
    assert!(
        arguments.starts_with("build --release --locked -p justapi-cli"),
        "{arguments}"
    );
    sandbox
        .run(&["--version", "7.0.0"])
        .fails_with("the checkout is version 0.1.0");
    sandbox.run(&["--uninstall"]).succeeds();
    assert!(
        sandbox.home().is_empty(),
        "left {:?}",
        sandbox.home().keys()
    );
}

#[test]
fn try_serves_from_the_checkout_and_becomes_the_server() {
    let mut sandbox = Sandbox::new();
    sandbox.stage_checkout("#!/bin/sh\necho \"$$ $*\"\n");
    let child = sandbox
        .command("sh", &["--try"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let process_id = child.id();
    let outcome = Outcome::new(&child.wait_with_output().unwrap());
    outcome
        .succeeds()
        .says("curl -i http://127.0.0.1:80")
        .says("/echo")
        .says("/anything");
    // The same process id: the script was replaced, so Ctrl-C reaches the server and no orphan stays.
    let expected = format!("{process_id} serve --addr 127.0.0.1:80");
    assert!(outcome.stdout.starts_with(&expected), "{}", outcome.stdout);
    assert!(
        sandbox.home().is_empty(),
        "left {:?}",
        sandbox.home().keys()
    );
}

#[test]
fn try_builds_the_package_into_an_environment_of_its_own() {
    let mut sandbox = Sandbox::new();
    sandbox.stage_checkout("#!/bin/sh\n");
    sandbox.stage_package();
    let serves = format!("{}/try-venv/bin/justapi serve", sandbox.path("tree/target"));
    for round in 0..2 {
        sandbox.run(&["--try"]).succeeds().says(&serves);
        let asked = sandbox.read("tree/target/try-venv/asked");
        let installs = asked.matches("install maturin>=1\n").count();
        assert_eq!(installs, round + 1, "{asked}");
        assert!(
            asked.ends_with("/target/try-wheels/justapi-0.1.0-x.whl\n"),
            "{asked}"
        );
    }
    assert!(
        sandbox.home().is_empty(),
        "left {:?}",
        sandbox.home().keys()
    );
    // What an interrupted run left is not taken for an environment.
    fs::remove_file(sandbox.path("tree/target/try-venv/complete")).unwrap();
    sandbox.run(&["--try"]).succeeds().says(&serves);
    let asked = sandbox.read("tree/target/try-venv/asked");
    assert_eq!(asked.matches("install maturin>=1\n").count(), 1, "{asked}");
}

#[test]
fn try_serves_the_demo_where_the_package_cannot_be_built() {
    let mut sandbox = Sandbox::new();
    sandbox.stage_checkout("#!/bin/sh\necho \"$*\"\n");
    let demo_alone = |reason: &str| {
        let outcome = sandbox.run(&["--try"]);
        outcome
            .succeeds()
            .says("warning: no Python package: ")
            .says(reason);
        assert!(
            !outcome.stderr.contains("try-venv/bin/justapi"),
            "{}",
            outcome.stderr
        );
        assert!(
            outcome.stdout.starts_with("serve --addr"),
            "{}",
            outcome.stdout
        );
    };
    demo_alone("Python 3.11 or newer");
    sandbox.stage_package();
    sandbox.write("tree/py/build_wheel.sh", "exit 1\n");
    demo_alone("its build failed");
}

#[test]
fn a_failed_build_and_missing_tools_are_named() {
    let mut sandbox = Sandbox::new();
    sandbox.stage_checkout("");
    sandbox.write_program("bin/cargo", "#!/bin/sh\nexit 101\n");
    sandbox.run(&["--try"]).fails_with("the build failed");
    sandbox.write_program("bin/rustc", "#!/bin/sh\necho 'rustc 1.63.0 (old)'\n");
    sandbox.run(&["--try"]).fails_with("Rust 1.63 is too old");

    sandbox.restrict_path();
    sandbox.run(&["--try"]).fails_with("cargo is missing");
    for stand_in in ["cargo", "rustc"] {
        symlink(
            sandbox.root.join("bin").join(stand_in),
            sandbox.root.join("tools").join(stand_in),
        )
        .unwrap();
    }
    sandbox.write_program("bin/rustc", "#!/bin/sh\necho 'rustc 1.95.0 (stand-in)'\n");
    sandbox
        .run(&["--try"])
        .fails_with("a C compiler is missing");
}
