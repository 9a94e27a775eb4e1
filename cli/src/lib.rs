//! The command line of justapi: parse, dispatch, render the error.
//!
//! Guarantee: every way out is an [`ExitCode`] of the table in `--help`, a
//! panic included.

mod application_args;
mod args;
mod codes;
mod command_list;
mod commands;
mod config;
mod demo;
mod demo_events;
mod demo_form;
mod descriptors;
mod dev_args;
mod error;
mod file_systems;
mod help;
mod holder;
mod infer_args;
mod live;
mod llm_args;
mod load_args;
mod new_args;
mod profile_args;
mod reaper;
mod shell;
mod spelling;
mod ui;
mod wheel;

use std::borrow::Cow;
use std::ffi::OsString;
use std::panic::{self, UnwindSafe};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory as _, FromArgMatches as _};

#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub use crate::config::fuzzing;

use crate::args::{Cli, Command, Global};
use crate::command_list::command_line;
use crate::error::{CliError, Code};
use crate::ui::{Color, Ui};

/// Exit status of a wrong command line of `bench` and `profile`, where 2 is a failed rule.
const BENCH_USAGE: u8 = 1;

/// Runs the command line `arguments`, the program's name first.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    let ui = early_ui(&arguments);
    if arguments
        .get(1)
        .is_some_and(|word| word == commands::BUILD_AND_SERVE)
    {
        return ExitCode::from(guarded(&ui, commands::build_and_serve));
    }
    ExitCode::from(guarded(&ui, || parse_and_dispatch(&ui, arguments)))
}

/// Runs `work`; a panic in it is shown, and an exit code.
fn guarded(ui: &Ui, work: impl FnOnce() -> u8 + UnwindSafe) -> u8 {
    let panic_ui = ui.clone();
    panic::set_hook(Box::new(move |info| {
        let location = info
            .location()
            .map_or_else(String::new, |location| format!(" at {location}"));
        let text = info.payload_as_str().unwrap_or("unknown payload");
        panic_ui.panic(&format!("{text}{location}"));
    }));
    panic::catch_unwind(work).unwrap_or_else(|_| Code::Internal.exit())
}

fn parse_and_dispatch(ui: &Ui, arguments: Vec<OsString>) -> u8 {
    let command = command_line(&arguments);
    let measures = arguments
        .iter()
        .filter_map(|argument| argument.to_str())
        .find(|argument| command.find_subcommand(argument).is_some())
        .is_some_and(|argument| ["bench", "profile"].contains(&argument));
    let parsed = command
        .try_get_matches_from(arguments)
        .and_then(|matches| Cli::from_arg_matches(&matches));
    let outcome = match parsed {
        Ok(cli) => dispatch(cli),
        Err(error) => {
            let error = with_command_meant(error);
            ui.clap(&error).map(|()| match error.exit_code() {
                0 => 0,
                _ if measures => BENCH_USAGE,
                _ => Code::Usage.exit(),
            })
        }
    };
    outcome.unwrap_or_else(|error| {
        ui.error(&error);
        error.exit()
    })
}

/// Names the command that was probably meant where clap, which knows no swapped letters, has none.
fn with_command_meant(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return error;
    };
    if error.get(ContextKind::SuggestedSubcommand).is_some() {
        return error;
    }
    let command = Cli::command();
    let known = command.get_subcommands().map(clap::Command::get_name);
    if let Some(near) = spelling::nearest(word, known) {
        let near = ContextValue::Strings(vec![near.to_owned()]);
        error.insert(ContextKind::SuggestedSubcommand, near);
    }
    error
}

fn dispatch(cli: Cli) -> Result<u8, CliError> {
    let Global {
        quiet,
        verbose,
        color,
        json,
        config,
    } = cli.global;
    let ui = Ui::new(color.unwrap_or_default(), quiet, json);
    let config = config.as_deref();
    match cli.command {
        Command::New(new) => commands::new(&ui, &new),
        Command::Serve(serve) => commands::serve(&ui, &serve, config, verbose),
        Command::Dev(dev) => commands::dev(&ui, &dev, config, verbose),
        Command::Bench(bench) => match bench.command {
            Some(command) => commands::bench_command(&ui, &command),
            None => commands::bench(&ui, &bench, config),
        },
        Command::Profile(profile) => commands::profile(&ui, &profile, config),
        Command::Infer(arguments) => commands::infer(&ui, &arguments, config),
        Command::Routes(arguments) => commands::routes(&ui, &arguments, config),
        Command::OpenApi(arguments) => commands::openapi(&ui, &arguments, config),
        Command::Check(arguments) => commands::check(&ui, &arguments, config),
        Command::Doctor(arguments) => commands::doctor(&ui, &arguments, config),
        Command::Installation(arguments) => commands::self_command(&ui, &arguments.command),
        Command::Config(arguments) => commands::config(&ui, &arguments.command, config),
        Command::Explain(explain) => commands::explain(&ui, explain.code.as_deref()),
        Command::Completions(completions) => commands::completions(&ui, completions.shell),
        Command::Man(man) => commands::man(&ui, man.out.as_deref()),
        Command::Version => commands::version(&ui),
    }
}

/// Reads `--color`, `--json` and `-q` before the command line is parsed, so
/// that a parse error obeys them.
fn early_ui(arguments: &[OsString]) -> Ui {
    let mut color = Color::Auto;
    let mut json = false;
    let mut quiet = 0;
    let mut words = arguments.iter().skip(1).map(|word| word.to_string_lossy());
    while let Some(word) = words.next() {
        let value = match word.split_once('=') {
            Some(("--color", value)) => Some(value.to_owned()),
            _ if word == "--color" => words.next().map(Cow::into_owned),
            _ => None,
        };
        match value.as_deref() {
            Some("always") => color = Color::Always,
            Some("never") => color = Color::Never,
            _ => {}
        }
        match word.as_ref() {
            "--json" => json = true,
            "-q" | "--quiet" => quiet += 1,
            "-qq" => quiet += 2,
            "--" => break,
            _ => {}
        }
    }
    Ui::new(color, quiet, json)
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::{env, process};

    use super::*;

    const IS_CHILD: &str = "JUSTAPI_TEST_PANICS";

    /// No input makes the program panic, so that only here one can: in a
    /// process of its own, because the hook is everybody's.
    #[test]
    #[expect(clippy::exit, reason = "the exit code is what is tested")]
    fn a_panic_is_exit_code_70() {
        if env::var_os(IS_CHILD).is_some() {
            let ui = Ui::new(Color::Never, 0, false);
            assert_eq!(guarded(&ui, || 3), 3);
            process::exit(guarded(&ui, || panic!("on purpose")).into());
        }
        let mut child = Command::new(env::current_exe().expect("the test binary"));
        child.args(["--exact", "tests::a_panic_is_exit_code_70", "--nocapture"]);
        let output = child.env(IS_CHILD, "1").output().expect("it starts");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(70), "{text}");
        assert!(text.contains("internal error: on purpose at "), "{text}");
    }
}
