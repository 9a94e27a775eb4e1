//! The command line: commands and flags, of which the doc comments are the
//! help.
//!
//! Flags of settings are not written here: [`SettingFlags`] makes them from
//! the table, so that "was it given?" stays visible for the layers below.

use std::path::{Path, PathBuf};

use clap::builder::styling::{AnsiColor, Styles};
use clap::builder::{PossibleValuesParser, TypedValueParser, ValueParser};
use clap::{Arg, ArgAction, ArgMatches, Args, Command as ClapCommand, FromArgMatches, Parser};
use justapi_bench::ledger::StrikeReason;

use crate::application_args::{Check, Doctor, OpenApi, Routes, SelfArgs};
use crate::config::{Given, Group, Kind, Origin, SETTINGS, Setting, Value, find, parse_time};
use crate::dev_args::Dev;
use crate::help;
use crate::infer_args::Infer;
use crate::llm_args::BenchLlm;
use crate::load_args::LoadFlags;
use crate::new_args::New;
use crate::profile_args::{Profile, read_path};
use crate::ui::Color;

/// Colours of help and usage errors: cargo's.
const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// Serves HTTP APIs, and measures them.
#[derive(Debug, Parser)]
#[command(
    name = "justapi",
    version,
    styles = STYLES,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true,
    help_template = help::template(help::JUSTAPI),
    after_long_help = help::EXIT_CODES,
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Flags of every command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Say less: once for no progress, twice for no warnings.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) quiet: u8,
    /// Say more: which settings are in force, and where they come from.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    /// When to use colours.
    ///
    /// `auto` follows `NO_COLOR`, `FORCE_COLOR`, `CLICOLOR` and the terminal, for each stream.
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "WHEN",
        hide_possible_values = false
    )]
    pub(crate) color: Option<Color>,
    /// Print results and events as JSON on standard output.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Configuration file, in place of the justapi.toml that is found.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// What to do; `command_list` has the line of the help for each.
#[derive(Debug)]
pub(crate) enum Command {
    New(Box<New>),
    Serve(Box<Serve>),
    Dev(Box<Dev>),
    Bench(Box<Bench>),
    Profile(Box<Profile>),
    Infer(Box<Infer>),
    Routes(Routes),
    OpenApi(OpenApi),
    Check(Box<Check>),
    Doctor(Doctor),
    Config(ConfigArgs),
    Explain(Explain),
    Completions(Completions),
    Man(Man),
    Installation(SelfArgs),
    Version,
}

/// Arguments of `serve`.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Python application: `module:attribute`, a file or a folder [default: that of this folder].
    ///
    /// Without one the command means the setting `app`, or else what the folder has: main.py,
    /// app.py, api.py, server.py, the same in app/, or src/*/main.py. In a folder without any the
    /// folders and proxies of the configuration are served, or else a demo.
    pub(crate) app: Option<String>,
    /// Check the configuration and the files it names, and listen nowhere.
    #[arg(long)]
    pub(crate) check: bool,
    #[command(flatten)]
    pub(crate) settings: SettingFlags,
}

/// Arguments of `config`.
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) command: ConfigCommand,
}

/// What to do with the configuration.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print every setting as `serve` would use it.
    Show(Box<ConfigShow>),
    /// Print the path of the configuration file; nothing when there is none.
    Path,
    /// Check the configuration; exit 1 for warnings, 3 for errors.
    Check,
}

/// Arguments of `config show`; it takes the flags of `serve`, too.
#[derive(Debug, Args)]
pub(crate) struct ConfigShow {
    /// Say where each value comes from.
    #[arg(long)]
    pub(crate) origin: bool,
    #[command(flatten)]
    pub(crate) settings: SettingFlags,
}

/// Arguments of `explain`.
#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// Code such as JA501.
    pub(crate) code: Option<String>,
}

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// Shell to complete in.
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

/// Arguments of `man`.
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Folder for the pages of all commands.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

/// Arguments of `bench`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Bench {
    #[command(subcommand)]
    pub(crate) command: Option<BenchCommand>,
    /// URL to load, or an application to start as `justapi serve` would.
    ///
    /// `http://`, `https://` or `unix:/path` is a server that runs already. `module:attribute` or
    /// `main.py` is a Python application: it has one worker, listens on a free port and ends with
    /// this command.
    #[arg(
        required_unless_present = "matrix",
        conflicts_with = "matrix",
        value_name = "URL|APP"
    )]
    pub(crate) target: Option<String>,
    /// Path of the application that is started, in place of / (a URL has its own).
    #[arg(long, value_name = "PATH", value_parser = read_path, conflicts_with = "matrix")]
    pub(crate) path: Option<String>,
    /// Connections that are open at once [default: 16].
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) connections: Option<u32>,
    /// Threads of the client [default: half of the processors].
    #[arg(hide_short_help = true, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: Option<u32>,
    /// How long to measure, after the warm-up [default: 10s].
    #[arg(short = 'z', long, value_name = "TIME", value_parser = read_time)]
    pub(crate) duration: Option<std::time::Duration>,
    /// How many requests to send, in place of a duration.
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "duration",
        value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) requests: Option<u64>,
    /// Time before the measured part [default: 1s; 0s with --requests].
    #[arg(hide_short_help = true, long, value_name = "TIME", value_parser = read_time)]
    pub(crate) warmup: Option<std::time::Duration>,
    /// Limit for one request [default: 10s].
    #[arg(hide_short_help = true, long, value_name = "TIME", value_parser = read_time)]
    pub(crate) timeout: Option<std::time::Duration>,
    /// Method [default: GET, or POST with --body].
    #[arg(short, long, value_name = "METHOD")]
    pub(crate) method: Option<String>,
    /// Header to send, as `Name: value`; repeatable.
    #[arg(short = 'H', long, value_name = "HEADER")]
    pub(crate) header: Vec<String>,
    /// Body to send, or `@FILE` to read it from a file.
    #[arg(short, long, value_name = "BODY|@FILE")]
    pub(crate) body: Option<String>,
    /// Status that every answer must have; without it, any below 400.
    #[arg(hide_short_help = true, long, value_name = "STATUS", value_parser = clap::value_parser!(u16).range(100..=599))]
    pub(crate) expect_status: Option<u16>,
    /// Authorities (PEM) that must have signed the server's certificate.
    #[arg(hide_short_help = true, long, value_name = "FILE")]
    pub(crate) cacert: Option<PathBuf>,
    /// Accept any certificate of the server.
    #[arg(hide_short_help = true, short = 'k', long, conflicts_with = "cacert")]
    pub(crate) insecure: bool,
    /// Matrix to run: a name in benches/matrix, or a file.
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) matrix: Option<String>,
    /// Cell of the matrix to run; repeatable, without it all of them.
    #[arg(hide_short_help = true, long, value_name = "ID", requires = "matrix")]
    pub(crate) cell: Vec<String>,
    /// Rounds of each cell, in place of the matrix file's.
    #[arg(hide_short_help = true, long, value_name = "N", requires = "matrix",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: Option<u32>,
    /// Folder that holds BENCHMARKS.md [default: the working directory].
    #[arg(hide_short_help = true, long, value_name = "DIR", requires = "matrix")]
    pub(crate) root: Option<PathBuf>,
    /// How long to wait for a machine that does something else, ahead of a matrix [default: 2m].
    #[arg(hide_short_help = true, long, value_name = "TIME", requires = "matrix",
        value_parser = read_time)]
    pub(crate) patience: Option<std::time::Duration>,
    /// Run the matrix on a machine that does something else; the record says so.
    #[arg(
        hide_short_help = true,
        long,
        requires = "matrix",
        conflicts_with = "patience"
    )]
    pub(crate) allow_busy: bool,
    #[command(flatten)]
    pub(crate) load: LoadFlags,
    /// Further arguments for the `justapi serve` that is started, after `--`.
    #[arg(
        hide_short_help = true,
        last = true,
        value_name = "SERVE ARGUMENTS",
        conflicts_with = "matrix"
    )]
    pub(crate) serve: Vec<String>,
}

/// What else `bench` does.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum BenchCommand {
    /// Measure a server of language models, as a client sees it.
    #[command(
        help_template = help::template(help::BENCH_LLM),
        after_long_help = help::BENCH_EXIT_CODES,
    )]
    Llm(Box<BenchLlm>),
    /// Prove that no row or record of the ledger was edited or removed.
    Verify {
        #[command(flatten)]
        ledger: Ledger,
    },
    /// Strike results of a record through, with the reason; nothing is removed.
    Supersede {
        /// Record that has them: its file name, with or without `.json`.
        record: String,
        /// Row (`cell/arm`), rule (`cell/rule`) or whole cell; repeatable.
        #[arg(required = true, value_name = "ITEM")]
        items: Vec<String>,
        /// What is wrong with them.
        #[arg(long, value_parser = reason_parser())]
        reason: StrikeReason,
        /// What happened, in words.
        #[arg(long, value_name = "TEXT")]
        note: String,
        /// Record that stands in their place.
        #[arg(long, value_name = "RECORD")]
        by: Option<String>,
        #[command(flatten)]
        ledger: Ledger,
    },
    /// Fill the marked places of README.md and docs/ from the records.
    Claims {
        #[command(flatten)]
        ledger: Ledger,
    },
    /// Say by rule whether the second of two runs is worse than the first.
    Compare {
        /// Record, or file with the JSON reports of one or more runs.
        first: String,
        /// The same, of the run that may be worse.
        second: String,
        /// By how much it may be worse, as a share.
        #[arg(long, value_name = "SHARE", default_value_t = 0.05, value_parser = read_margin)]
        margin: f64,
        #[command(flatten)]
        ledger: Ledger,
    },
    /// Draw charts beside the records, the same bytes each time.
    Charts {
        /// Records; without any, all of them.
        records: Vec<String>,
        /// Draw throughput over offered rate from this file of JSON reports instead.
        #[arg(
            long,
            value_name = "FILE",
            requires = "out",
            conflicts_with = "records"
        )]
        reports: Option<PathBuf>,
        /// Where that chart goes to.
        #[arg(long, value_name = "FILE", requires = "reports")]
        out: Option<PathBuf>,
        #[command(flatten)]
        ledger: Ledger,
    },
    /// Write the whole ledger as one HTML page.
    Report {
        /// Where the page goes.
        #[arg(long, value_name = "FILE", default_value = "ledger.html")]
        out: PathBuf,
        #[command(flatten)]
        ledger: Ledger,
    },
}

/// Where a ledger is.
#[derive(Debug, Args)]
pub(crate) struct Ledger {
    /// Folder that holds BENCHMARKS.md [default: the working directory].
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

impl Ledger {
    pub(crate) fn root(&self) -> &Path {
        self.root.as_deref().unwrap_or_else(|| Path::new("."))
    }
}

fn reason_parser() -> impl TypedValueParser<Value = StrikeReason> {
    PossibleValuesParser::new(StrikeReason::ALL.map(StrikeReason::name)).map(|name| {
        let mut all = StrikeReason::ALL.into_iter();
        all.find(|reason| reason.name() == name)
            .expect("only these values are possible")
    })
}

fn read_margin(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| String::from("not a number"))?;
    if (0.0..1.0).contains(&share) {
        Ok(share)
    } else {
        Err(String::from(
            "expected a share from 0 to below 1, such as 0.05",
        ))
    }
}

pub(crate) fn read_time(text: &str) -> Result<std::time::Duration, String> {
    parse_time(text).ok_or_else(|| format!("expected {}", Kind::Time.expected()))
}

/// The flags of the settings table, and the values that were given.
#[derive(Debug, Default)]
pub(crate) struct SettingFlags {
    pub(crate) given: Vec<Given>,
}

/// Flag that sets host and port together.
const ADDR: &str = "addr";
/// Flag that sets where metrics are.
const METRICS: &str = "metrics";

impl Args for SettingFlags {
    fn augment_args(command: ClapCommand) -> ClapCommand {
        let command = command.arg(
            Arg::new(ADDR)
                .long(ADDR)
                .value_name("HOST:PORT")
                .value_parser(ValueParser::new(read_address))
                .conflicts_with_all(["server.host", "server.port"])
                .help_heading(Group::Network.heading())
                .help("Address to listen on, in place of --host and --port"),
        );
        let command = SETTINGS
            .iter()
            .fold(command, |command, setting| match setting.flag {
                Some(flag) => command.arg(setting_arg(setting, flag)),
                None => command,
            });
        command.arg(
            Arg::new(METRICS)
                .long(METRICS)
                .value_name("off|PATH|ADDR")
                .value_parser(ValueParser::new(read_metrics))
                .help_heading(Group::Log.heading())
                .help("Where Prometheus metrics are: off, a path, or an own address")
                .long_help(
                    "Where Prometheus metrics are: off, a path on the main address, or an own \
                     address\n\n[keys: metrics.path, metrics.addr] [default: /metrics]",
                ),
        )
    }

    fn augment_args_for_update(command: ClapCommand) -> ClapCommand {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let mut give = |key: &str, value: Value, flag: &str| {
            let setting = find(key).expect("flags name keys of the table");
            let origin = Origin::Flag(format!("--{flag}"));
            self.given.push((setting, value, origin));
        };
        if let Some((host, port)) = matches.get_one::<(String, u16)>(ADDR) {
            give("server.host", Value::Text(host.clone()), ADDR);
            give("server.port", Value::Number((*port).into()), ADDR);
        }
        if let Some((path, address)) = matches.get_one::<(Value, Value)>(METRICS) {
            give("metrics.path", path.clone(), METRICS);
            give("metrics.addr", address.clone(), METRICS);
        }
        self.given
            .extend(SETTINGS.iter().filter_map(|one| given_flag(matches, one)));
        Ok(())
    }
}

/// The value of a setting's flag, where it was given.
pub(crate) fn given_flag(matches: &ArgMatches, setting: &'static Setting) -> Option<Given> {
    let flag = setting.flag?;
    let mut values = matches.get_many::<Value>(setting.key)?;
    let value = if setting.kind.is_list() {
        Value::List(values.flat_map(Value::list).cloned().collect())
    } else {
        values.next_back().cloned().unwrap_or(Value::Unset)
    };
    Some((setting, value, Origin::Flag(format!("--{flag}"))))
}

/// The flag of a setting.
pub(crate) fn setting_arg(setting: &'static Setting, flag: &'static str) -> Arg {
    let arg = Arg::new(setting.key)
        .long(flag)
        .value_name(setting.value_name)
        .help_heading(setting.group.heading())
        .hide_short_help(setting.is_rare)
        .help(setting.help)
        .long_help(long_help(setting, &setting.shown_default()));
    match setting.kind {
        Kind::Choice(words) => arg
            .hide_possible_values(true)
            .value_parser(PossibleValuesParser::new(words).map(Value::Text)),
        Kind::Switch => arg
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .value_name("BOOL")
            .value_parser(value_parser(setting)),
        kind if kind.is_list() => arg
            .action(ArgAction::Append)
            .value_parser(value_parser(setting)),
        _ => arg.value_parser(value_parser(setting)),
    }
}

fn value_parser(setting: &'static Setting) -> ValueParser {
    ValueParser::new(move |text: &str| setting.kind.parse(text))
}

/// The help, then variables, key and default as the other layers name them.
pub(crate) fn long_help(setting: &Setting, default: &str) -> String {
    let mut variables = setting.variable();
    for alias in setting.aliases {
        variables.push_str(", ");
        variables.push_str(alias.name());
    }
    let default = match default {
        "" => String::new(),
        default => format!(" [default: {default}]"),
    };
    format!(
        "{}\n\n[env: {variables}] [key: {}]{default}",
        setting.help, setting.key
    )
}

fn read_address(text: &str) -> Result<(String, u16), String> {
    let expected = || "expected HOST:PORT such as 127.0.0.1:8000 or [::1]:8000".to_owned();
    let (host, port) = text.rsplit_once(':').ok_or_else(expected)?;
    let port = port.parse().map_err(|_| expected())?;
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    if bare == host && host.contains(':') {
        return Err(expected());
    }
    Kind::Host.parse(bare).map_err(|_| expected())?;
    Ok((bare.to_owned(), port))
}

fn read_metrics(text: &str) -> Result<(Value, Value), String> {
    if text == "off" || text.starts_with('/') {
        Ok((Kind::UrlPath.parse(text)?, Value::Unset))
    } else {
        Kind::Address
            .parse(text)
            .map(|address| (Value::Unset, address))
            .map_err(|_| {
                "expected off, a path such as /metrics or an address such as 127.0.0.1:9090"
                    .to_owned()
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_list::{command_line, parse};

    fn given(arguments: &[&str]) -> Result<Vec<String>, clap::Error> {
        let all = ["justapi", "serve"]
            .into_iter()
            .chain(arguments.iter().copied());
        let Command::Serve(serve) = parse(all)?.command else {
            unreachable!("the first argument is serve");
        };
        Ok(serve
            .settings
            .given
            .iter()
            .map(|(setting, value, origin)| {
                format!("{}={} {origin}", setting.key, setting.kind.show(value))
            })
            .collect())
    }

    #[test]
    fn the_command_line_is_consistent() {
        command_line(&[]).debug_assert();
    }

    #[test]
    fn examples_of_the_help_parse() {
        for example in help::examples() {
            // What is in quotes is one word, whatever spaces it has.
            let words = example.split('\'').enumerate().flat_map(|(index, part)| {
                let is_quoted = index % 2 == 1;
                let whole = is_quoted.then_some(part);
                let loose = (!is_quoted).then(|| part.split_whitespace());
                whole.into_iter().chain(loose.into_iter().flatten())
            });
            if let Err(error) = parse(words) {
                panic!("{example}: {error}");
            }
        }
    }

    #[test]
    fn only_given_flags_are_given() {
        assert!(given(&[]).unwrap().is_empty());
        assert_eq!(
            given(&["--port", "0", "--security-headers", "--request-id=false"]).unwrap(),
            [
                "server.port=0 flag --port",
                "server.security_headers=true flag --security-headers",
                "server.request_id=false flag --request-id",
            ]
        );
    }

    #[test]
    fn combined_flags_set_both_keys() {
        assert_eq!(
            given(&["--addr", "[::1]:80", "--metrics", "127.0.0.1:9090"]).unwrap(),
            [
                "server.host=::1 flag --addr",
                "server.port=80 flag --addr",
                "metrics.path=off flag --metrics",
                "metrics.addr=127.0.0.1:9090 flag --metrics",
            ]
        );
        assert!(given(&["--addr", "a:1", "--port", "2"]).is_err());
        for bad in ["8000", ":8000", "::1:8000", "a:b", "a:70000"] {
            assert!(given(&["--addr", bad]).is_err(), "{bad}");
        }
    }

    #[test]
    fn lists_add_up() {
        assert_eq!(
            given(&["--cors", "https://a.example", "--cors", "https://b.example"]).unwrap(),
            ["server.cors=https://a.example,https://b.example flag --cors"]
        );
        assert!(given(&["--cors", "a.example"]).is_err());
        assert_eq!(
            given(&["--static", "/a=b", "--static", "/=c"]).unwrap(),
            ["server.static=/a=b,/=c flag --static"]
        );
        assert!(given(&["--static", "b"]).is_err());
    }
}
