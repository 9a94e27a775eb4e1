//! Layers of configuration, and what the user is told about them.

use crate::binary::Folder;

/// Value and origin of a key in `config show --origin`.
#[track_caller]
fn check(folder: &Folder, flags: &str, key: &str, expected: &str) {
    let shown = folder
        .run(&format!("config show --origin {flags}"))
        .expect(0)
        .stdout;
    let line = shown
        .lines()
        .find(|line| line.split_whitespace().next() == Some(key))
        .unwrap_or_else(|| panic!("{key} in {shown}"));
    let words: Vec<_> = line.split_whitespace().skip(1).collect();
    assert_eq!(words.join(" "), expected, "{key}");
}

#[test]
fn flags_over_environment_over_file_over_defaults() {
    let empty = Folder::new();
    check(&empty, "", "server.port", "8000 default");
    check(&empty, "", "server.host", "127.0.0.1 default");

    let file = Folder::new().with("justapi.toml", "[server]\nport = 1001\nlanes = 2\n");
    check(&file, "", "server.port", "1001 justapi.toml:2");
    check(&file, "", "server.lanes", "2 justapi.toml:3");

    let port = Folder::new()
        .with("justapi.toml", "[server]\nport = 1001\n")
        .env("PORT", "1002");
    check(&port, "", "server.port", "1002 env PORT");

    let own = port.env("JUSTAPI_SERVER__PORT", "1003");
    check(&own, "", "server.port", "1003 env JUSTAPI_SERVER__PORT");
    check(&own, "--port 1004", "server.port", "1004 flag --port");
    check(&own, "--addr [::1]:1005", "server.port", "1005 flag --addr");
    check(&own, "--addr [::1]:1005", "server.host", "::1 flag --addr");
}

#[test]
fn limits_are_settings_like_any_other() {
    let folder = Folder::new()
        .with(
            "justapi.toml",
            "[server.limits]\nbody = \"10MiB\"\ntimeout_idle = \"5s\"\nrequest_line = 4096\n",
        )
        .env("JUSTAPI_REQUEST_TIMEOUT_SECS", "7")
        .env("JUSTAPI_MAX_CONNECTIONS", "99");
    check(&folder, "", "server.limits.body", "10MiB justapi.toml:2");
    check(
        &folder,
        "",
        "server.limits.timeout_idle",
        "5s justapi.toml:3",
    );
    check(
        &folder,
        "",
        "server.limits.request_line",
        "4KiB justapi.toml:4",
    );
    check(
        &folder,
        "",
        "server.limits.timeout_request",
        "7s env JUSTAPI_REQUEST_TIMEOUT_SECS",
    );
    check(
        &folder,
        "",
        "server.limits.max_connections",
        "99 env JUSTAPI_MAX_CONNECTIONS",
    );
    check(
        &folder,
        "--timeout-header 250ms",
        "server.limits.timeout_header",
        "250ms flag --timeout-header",
    );
}

#[test]
fn folders_of_files_are_settings_too() {
    let folder = Folder::new().with("site/a", "").with(
        "justapi.toml",
        "[server]\nstatic = [\"/a=site\"]\nstatic_index = \"off\"\n",
    );
    let site = folder.path().join("site");
    let absolute = format!("/a={}", site.display());
    let from_file = format!("{absolute} justapi.toml:2");
    check(&folder, "", "server.static", &from_file);
    check(&folder, "", "server.static_index", "off justapi.toml:3");
    check(&folder, "", "server.static_revalidate", "1s default");
    check(
        &folder,
        "--static /b=x --static /c=y,z",
        "server.static",
        "/b=x,/c=y,z flag --static",
    );
    let named = folder.env("JUSTAPI_SERVER__STATIC", "/b=x,/c=y");
    check(
        &named,
        "",
        "server.static",
        "/b=x,/c=y env JUSTAPI_SERVER__STATIC",
    );
}

#[test]
fn the_connection_limit_keeps_below_the_descriptor_limit() {
    let folder = Folder::new();
    let script = "ulimit -n 1024; exec \"$0\" config show";
    let output = folder
        .program("sh", &["-c", script, crate::binary::JUSTAPI])
        .output()
        .unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    let line = shown.lines().find(|line| line.contains("max_connections"));
    assert!(line.unwrap().ends_with(" 857"), "{shown}");

    let script = "ulimit -n 1024; exec \"$0\" serve --check --max-connections 5000";
    let output = folder
        .program("sh", &["-c", script, crate::binary::JUSTAPI])
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.starts_with("warning[JA308]: 5000 connections"),
        "{stderr}"
    );
}

#[test]
fn the_file_is_searched_upwards_to_the_repository() {
    let folder = Folder::new()
        .with("justapi.toml", "[server]\nport = 1\n")
        .with("deep/inner/file", "");
    let run = |sub: &str, arguments: &[&str]| {
        let output = folder
            .program(crate::binary::JUSTAPI, arguments)
            .current_dir(folder.path().join(sub))
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let file = folder.path().canonicalize().unwrap().join("justapi.toml");
    assert_eq!(
        run("deep/inner", &["config", "path"]).trim(),
        file.to_str().unwrap()
    );
    std::fs::create_dir(folder.path().join("deep/.git")).unwrap();
    assert_eq!(run("deep/inner", &["config", "path"]), "");
}

#[test]
fn show_as_json_types_its_values() {
    let folder = Folder::new().with(
        "justapi.toml",
        "[server]\ncors = [\"https://a.example\"]\nrequest_id = true\n[metrics]\npath = \"off\"\n",
    );
    let json = folder.run("config show --json").expect(0).json();
    let setting = |key: &str| {
        json["settings"]
            .as_array()
            .unwrap()
            .iter()
            .find(|setting| setting["key"] == key)
            .unwrap_or_else(|| panic!("{key}"))
            .clone()
    };
    assert_eq!(setting("server.port")["value"], 8000);
    assert_eq!(setting("server.cors")["value"][0], "https://a.example");
    assert_eq!(setting("server.request_id")["value"], true);
    assert_eq!(setting("server.request_id")["origin"], "justapi.toml:3");
    assert_eq!(setting("server.graceful")["value"], "30s");
    assert_eq!(setting("server.uds")["value"], serde_json::Value::Null);
    assert_eq!(setting("metrics.path")["value"], "off");
}

#[test]
fn unknown_keys_are_warned_about_with_the_nearest_one() {
    let folder = Folder::new().with("justapi.toml", "[server]\n\nprot = 1\n");
    let expected = "warning[JA301]: unknown key `server.prot` in justapi.toml:3 – did you mean `server.port`?\n";
    let run = folder.run("config check").expect(1);
    assert_eq!(run.stderr, expected);
    let run = folder.run("serve --check").expect(0);
    assert!(run.stderr.starts_with(expected), "{run:?}");
    assert_eq!(folder.run("serve --check -qq").expect(0).stderr, "");
    let json = folder.run("config check --json").expect(1).json();
    assert_eq!(json["warnings"][0]["line"], 3);

    let folder = Folder::new().env("JUSTAPI_SERVER__HOTS", "x");
    let run = folder.run("config show").expect(0);
    assert!(
        run.stderr.contains("did you mean `JUSTAPI_SERVER__HOST`?"),
        "{run:?}"
    );
}

#[test]
fn wrong_values_say_where_and_what() {
    for (text, place, expected) in [
        (
            "[server]\nport = \"x\"\n",
            "2:8",
            "expected a whole number from 0 to 65535, found \"x\"",
        ),
        (
            "[server]\ngraceful = 30\n",
            "2:12",
            "expected a time such as \"30s\", found the number 30",
        ),
        (
            "[server.limits]\nbody = \"10 apples\"\n",
            "2:8",
            "found \"10 apples\"",
        ),
        (
            "[log]\naccess = true\n",
            "2:10",
            "expected one of off, text, json, found true",
        ),
        ("server = 1\n", "1:10", "expected a table, found integer"),
        ("[server]\nport = 1\nport = 2\n", "3:1", "not valid TOML"),
    ] {
        let folder = Folder::new().with("justapi.toml", text);
        for command in ["config check", "serve --check", "serve --port 0"] {
            let run = folder.run(command).expect(3);
            assert!(run.stderr.contains(expected), "{text}: {run:?}");
            assert!(
                run.stderr.contains(&format!("--> justapi.toml:{place}")),
                "{text}: {run:?}"
            );
        }
    }
    let run = Folder::new().env("PORT", "http").run("serve").expect(3);
    assert!(
        run.stderr
            .contains("error[JA305]: environment variable PORT"),
        "{run:?}"
    );
    let run = Folder::new().run("serve --config missing.toml").expect(3);
    assert!(run.stderr.contains("error[JA302]"), "{run:?}");
    let json = Folder::new()
        .with("justapi.toml", "[server]\nport = false\n")
        .run("serve --json -q")
        .expect(3)
        .json();
    assert_eq!(json["error"]["code"], "JA304");
    assert_eq!(json["error"]["file"], "justapi.toml");
    assert_eq!(json["error"]["line"], 2);
}

#[test]
fn check_binds_nothing_and_reads_the_certificate() {
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = holder.local_addr().unwrap().port();
    let folder = Folder::new();
    let run = folder
        .run(&format!("serve --check --port {port}"))
        .expect(0);
    assert_eq!(run.stderr, "configuration is valid\n");
    let run = folder.run("config check").expect(0);
    assert!(run.stdout.contains("valid"), "{run:?}");

    let folder = Folder::new().with(
        "conf/justapi.toml",
        "[server.tls]\ncert = \"cert.pem\"\nkey = \"key.pem\"\n",
    );
    let run = folder
        .run("serve --check --config conf/justapi.toml")
        .expect(3);
    assert!(
        run.stderr
            .contains("error[JA311]: cannot read conf/cert.pem"),
        "{run:?}"
    );
    crate::binary::certificate(&folder.path().join("conf"));
    folder
        .run("serve --check --config conf/justapi.toml")
        .expect(0);
}
