//! `justapi dev`: an application that is always the newest that works.
//!
//! Guarantee: this process runs no Python and answers every request: it passes
//! each on to a worker that has loaded the newest code, or says why there is
//! none. See `docs/adr/0024-the-dev-server-passes-requests-on.md`.

mod at_start;
mod cargo;
mod environment_file;
mod failure;
mod front;
mod gate;
mod keys;
mod supervisor;
mod team;
mod voice;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, SystemTime};
use std::{env, fs};

use justapi_core::{BoundAddress, Limits, ServerConfig};
use serde_json::{Value, json};

use self::cargo::Package;
pub(crate) use self::cargo::{ARGUMENT as BUILD_AND_SERVE, launch as build_and_serve};
use self::front::{Front, Open};
use self::keys::Keys;
use self::supervisor::{Event, Parts, Reread, Rules, Settings, Strategy, Supervisor};
use self::team::{Orders, Program, Team};
use self::voice::{Heading, Voice};
use super::serve::failure::explain;
use super::serve::owner;
use super::serve::pid_file::PidFile;
use super::serve::python::{self, interpreter, settings};
use super::serve::{Plan, SIGNAL_BASE, conflict, signal_name};
use super::target;
use crate::config::{Config, Given, Origin, show_time};
use crate::descriptors;
use crate::dev_args::{Dev, GRACE, ReloadStrategy};
use crate::error::{CliError, Code};
use crate::reaper::Reaper;
use crate::ui::Ui;

/// Body that the front passes on; the worker has the limit that counts.
const MAX_PASSED_BYTES: u64 = i64::MAX as u64;

/// Serves the newest code of an application until a stop signal.
///
/// # Errors
/// What keeps it from listening; never what is wrong with the application.
pub(crate) fn dev(
    ui: &Ui,
    arguments: &Dev,
    explicit: Option<&Path>,
    verbose: u8,
) -> Result<u8, CliError> {
    descriptors::raise_limit();
    let mut config = Config::load(explicit, &arguments.settings.given)?;
    if matches!(config.origin("model.id"), Origin::Flag(_)) {
        let problem = "`justapi dev` runs applications, and no model";
        return Err(CliError::new(Code::FlagConflict, problem)
            .with_hint("`justapi serve --model` serves a model"));
    }
    let is_json_log = config.value("log.format").text() == Some("json");
    let ui = &ui.clone().with_json_log(is_json_log);
    for warning in config.warnings() {
        ui.warning(warning);
    }
    let root = env::current_dir()
        .and_then(fs::canonicalize)
        .map_err(|error| {
            CliError::new(Code::Application, "the current folder cannot be read").with_cause(&error)
        })?;
    let plan = Plan::new(&config)?;
    plan.check_files(true)?;
    let package = package(&config, &root, arguments)?;
    let app = match &package {
        Some(package) => package.name().to_owned(),
        None => target::meant_by_dev(&mut config, arguments.app.as_deref())?,
    };
    match package {
        Some(_) => check_for_rust(&config, &plan)?,
        None => python::check(&config)?,
    }
    let _owner = owner::end_with_owner()?;
    // Nothing that was started here is left in the end, whoever has started it.
    let _reaper = Reaper::begin();
    let project = Project {
        ui,
        arguments,
        explicit,
        is_verbose: verbose > 0,
        env_file: root.join(&arguments.env_file),
        root,
        app,
        package,
        grace: grace_of(&config, &plan),
    };
    let _pid_file = plan.pid_file.as_deref().map(PidFile::write).transpose()?;
    let report = project.supervisor(&config, &plan)?.run()?;
    let (how, status) = if report.finished {
        ("every request finished".to_owned(), 0)
    } else {
        let status = SIGNAL_BASE + u8::try_from(report.signal).unwrap_or_default();
        let grace = show_time(project.grace);
        let what = if report.answered {
            "every request finished, but not the application"
        } else {
            "requests were cut off"
        };
        (format!("{what}, the grace time is {grace}"), status)
    };
    let name = signal_name(report.signal);
    ui.event(
        "stopped",
        json!({"signal": name, "finished": report.finished}),
        &format!("stopped by {name}, {how}\n"),
    )?;
    Ok(status)
}

/// What is served, and how.
struct Project<'a> {
    ui: &'a Ui,
    arguments: &'a Dev,
    explicit: Option<&'a Path>,
    is_verbose: bool,
    env_file: PathBuf,
    root: PathBuf,
    app: String,
    /// What it is built of, in Rust.
    package: Option<Package>,
    grace: Duration,
}

impl<'a> Project<'a> {
    /// Listens, and watches.
    fn supervisor(&self, config: &Config, plan: &Plan) -> Result<Supervisor<'a>, CliError> {
        let (program, python) = self.program(config)?;
        let environment = environment_file::read(&self.env_file)?;
        let (events, inbox) = channel::<Event>();
        python::watch_signals(&events)?;
        let listens = plan.listens()?;
        let front = Front::new(self.root.clone(), !self.arguments.no_live_reload);
        let open = Open::start(
            &front,
            &front_config(plan, &listens, self.grace),
            listens.clone(),
            plan.backlog,
        )
        .map_err(|error| explain(&error, plan))?;
        let told = WorkerSettings {
            app: self.app.clone(),
            app_dir: config.value("python.app_dir").text().map(str::to_owned),
            grace: self.grace,
            public: open.addresses().first().cloned(),
        };
        let orders = Orders {
            settings: told.of(config, plan, &listens),
            program,
            metrics: python::bind_metrics(plan)?,
            folder: self.root.clone(),
            environment,
            has_json: self.ui.is_json(),
            keeps_claims: trusts_proxies(config),
            is_tls: plan.has_tls(),
        };
        let team = Team::new(orders, events.clone()).map_err(|error| {
            let what = "there is no place for the sockets of workers";
            CliError::new(Code::ListenFailed, what)
                .with_cause(&error)
                .with_hint("TMPDIR names a folder for them")
        })?;
        let watcher = self.watch(config, &front, &events)?;
        let urls: Vec<String> = open.addresses().iter().map(ToString::to_string).collect();
        let key_events = events.clone();
        let keys = Keys::listen(move |key| key_events.send(Event::Key(key)).is_ok());
        let voice = Voice {
            ui: self.ui,
            root: self.root.clone(),
            app: self.app.clone(),
            is_verbose: self.is_verbose,
            url: urls.first().cloned(),
        };
        let heading = Heading {
            app: self.app.clone(),
            python,
            urls,
            watching: None,
            has_keys: keys.is_some(),
        };
        let rules = self.rules(config, told);
        Ok(Supervisor::new(Parts {
            voice,
            heading,
            team,
            rules,
            front,
            open,
            watcher,
            events,
            inbox,
            keys,
        }))
    }

    /// What makes workers, and the version of an interpreter if that does.
    fn program(&self, config: &Config) -> Result<(Program, Option<String>), CliError> {
        if let Some(package) = &self.package {
            let mut package = package.clone();
            package.has_color = self.ui.has_color();
            return Ok((Program::Rust(package), None));
        }
        let interpreter = interpreter::find(config.value("python.interpreter").text())?;
        let version = interpreter.version.clone();
        Ok((Program::Python(interpreter), Some(version)))
    }

    fn rules(&self, config: &Config, told: WorkerSettings) -> Rules {
        let start_timeout = config.value("python.start_timeout").time();
        Rules {
            strategy: match self.arguments.reload_strategy {
                ReloadStrategy::Overlap => Strategy::Overlap,
                ReloadStrategy::StopFirst => Strategy::StopFirst,
            },
            start_timeout: start_timeout.unwrap_or_default(),
            grace: self.grace,
            starts_ahead: !self.arguments.no_preload && self.package.is_none(),
            settings: self.settings_files(config),
            reread: self.reread(told),
        }
    }

    fn watch(
        &self,
        config: &Config,
        front: &Front,
        events: &Sender<Event>,
    ) -> Result<watch::Handle, CliError> {
        let arguments = self.arguments;
        let rules = watch::Rules::new(
            &self.root,
            self.settings_files(config),
            &arguments.reload_ignore,
            &arguments.reload_include,
            match self.package {
                Some(_) => watch::Language::Rust,
                None => watch::Language::Python,
            },
        )?;
        let polling = watch::Mode::Polling(arguments.poll_interval);
        let task = watch::Task {
            root: self.root.clone(),
            rules,
            mode: arguments.poll.then_some(polling),
            period: arguments.poll_interval,
            begun: SystemTime::now(),
        };
        let events = events.clone();
        let tell = move |word| drop(events.send(Event::Watcher(word)));
        let watcher = watch::start(task, Arc::clone(&front.gate), tell).map_err(|error| {
            CliError::new(Code::SignalWatch, "cannot watch for changes")
                .with_cause(&error)
                .with_hint("raise `ulimit -u`")
        })?;
        front.attach(watcher.clone());
        Ok(watcher)
    }

    /// Files whose change means that the settings are read anew.
    fn settings_files(&self, config: &Config) -> Vec<PathBuf> {
        let mut files = vec![self.env_file.clone(), self.root.join("justapi.toml")];
        let file = config.file().and_then(|file| fs::canonicalize(file).ok());
        files.extend(file.filter(|file| !files.contains(file)));
        files
    }

    /// Has the next workers started with the settings as they are by then.
    fn reread(&self, told: WorkerSettings) -> Box<Reread> {
        let explicit = self.explicit.map(Path::to_owned);
        let given = self.arguments.settings.given.clone();
        let env_file = self.env_file.clone();
        let is_python = self.package.is_none();
        let load = move || -> Result<(Config, Plan), CliError> {
            let given: &[Given] = &given;
            let config = Config::load(explicit.as_deref(), given)?;
            let plan = Plan::new(&config)?;
            if is_python {
                python::check(&config)?;
            }
            plan.check_files(true)?;
            Ok((config, plan))
        };
        let is_named = self.arguments.app.is_some();
        let first = load().ok().map(|(config, _)| config);
        Box::new(move |team| {
            let (config, plan) = load()?;
            let listens = plan.listens()?;
            team.orders.environment = environment_file::read(&env_file)?;
            let mut settings = told.of(&config, &plan, &listens);
            if plan.metrics_address().is_some() && team.orders.metrics.is_none() {
                // Nobody listens there.
                settings["server"]["metrics"] = json!(justapi_core::MetricsMount::Off);
            }
            team.orders.settings = settings;
            team.orders.keeps_claims = trusts_proxies(&config);
            let changed = |first| {
                let mut keys = at_start::changed(first, &config);
                keys.retain(|key| !is_named || *key != "app");
                keys
            };
            Ok(Settings {
                unapplied: first.as_ref().map(changed).unwrap_or_default(),
                warnings: config.into_warnings(),
            })
        })
    }
}

/// The package in Rust that is meant; `None` for an application in Python.
fn package(config: &Config, root: &Path, arguments: &Dev) -> Result<Option<Package>, CliError> {
    let folder = root.join(arguments.app.as_deref().unwrap_or_default());
    let (is_set, sources) = match arguments.app {
        Some(_) => (false, folder.clone()),
        None => (
            config.value("app").text().is_some(),
            folder.join(target::folder_of(config)),
        ),
    };
    if arguments.bin.is_none() && (is_set || target::is_in(&sources)) {
        return Ok(None);
    }
    Package::of(&folder, arguments.bin.clone())
}

/// Refuses what a server in Rust cannot be told.
fn check_for_rust(config: &Config, plan: &Plan) -> Result<(), CliError> {
    if plan.metrics_address().is_none() {
        return Ok(());
    }
    let message = "`metrics.addr` is for applications in Python: a server in Rust has its own";
    let conflict = conflict(config, "metrics.addr", message.to_owned());
    Err(conflict.with_hint("say it in the program: `Server::metrics`"))
}

fn grace_of(config: &Config, plan: &Plan) -> Duration {
    match config.origin("server.graceful") {
        Origin::Default => GRACE,
        _ => plan.limits().grace,
    }
}

fn trusts_proxies(config: &Config) -> bool {
    *config.origin("server.trusted_proxies") != Origin::Default
}

/// The server that clients talk to: what belongs to a connection is its own,
/// everything else the worker's. Its own pages tell of the code, so it answers
/// for the same hosts, which a trusted proxy may say.
fn front_config(plan: &Plan, listens: &[justapi_core::Listen], grace: Duration) -> ServerConfig {
    let whole = plan.server_config(listens);
    ServerConfig {
        limits: Limits {
            grace,
            max_body_bytes: MAX_PASSED_BYTES,
            request_timeout: None,
            ..whole.limits
        },
        tls: whole.tls,
        compression: whole.compression,
        trusted_hosts: whole.trusted_hosts,
        trusts_loopback: whole.trusts_loopback,
        trusted_proxies: whole.trusted_proxies,
        forwarded_header: whole.forwarded_header,
        health: false,
        metrics: justapi_core::MetricsMount::Off,
        ..ServerConfig::default()
    }
}

/// What is the same of every worker's settings.
#[derive(Debug, Clone)]
struct WorkerSettings {
    app: String,
    /// Folder of the application, unless the settings say another.
    app_dir: Option<String>,
    grace: Duration,
    public: Option<BoundAddress>,
}

impl WorkerSettings {
    fn of(&self, config: &Config, plan: &Plan, listens: &[justapi_core::Listen]) -> Value {
        let mut settings = settings::of_worker(config, plan, &self.app, listens);
        if *config.origin("python.app_dir") == Origin::Default {
            settings["app_dir"] = json!(self.app_dir);
        }
        let server = &mut settings["server"];
        // What the front does already.
        server["tls"] = Value::Null;
        server["compression"] = Value::Null;
        server["limits"]["idle_timeout"] = json!(Duration::from_hours(24));
        // Its word about clients is the only one there is.
        match server["trusted_proxies"].as_array_mut() {
            Some(trusted) => trusted.push(json!("unix")),
            None => server["trusted_proxies"] = json!(["unix"]),
        }
        if !trusts_proxies(config) {
            server["forwarded_header"] = json!(justapi_core::ForwardedHeader::default());
        }
        settings["grace"] = json!(self.grace.as_secs_f64());
        settings["lanes"] = json!(1);
        // A debugger may hold a handler for as long as it likes.
        settings["stuck_timeout"] = Value::Null;
        settings["owns_sockets"] = json!(true);
        if let Some(BoundAddress::Tcp { address, .. }) = &self.public {
            settings["public_address"] = json!([address.ip().to_string(), address.port()]);
        }
        settings
    }
}
