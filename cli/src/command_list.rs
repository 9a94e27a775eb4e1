//! The commands of the command line, each built when it is asked for.
//!
//! Guarantee: a run builds the flags of its own command alone. Those of all
//! commands are some 300: a server would start later, and keep the memory
//! that they took.

use clap::error::ErrorKind;
use std::ffi::OsString;

use clap::{
    ArgMatches, Args as _, Command as ClapCommand, CommandFactory as _, FromArgMatches, Subcommand,
};

use crate::application_args::{Check, Doctor, OpenApi, Routes, SelfArgs};
use crate::args::{Bench, Cli, Command, Completions, ConfigArgs, Explain, Man, Serve};
use crate::dev_args::Dev;
use crate::help;
use crate::infer_args::Infer;
use crate::new_args::New;
use crate::profile_args::Profile;

/// What is known of a command before its flags.
struct Listed {
    name: &'static str,
    about: &'static str,
    augment: fn(ClapCommand) -> ClapCommand,
    examples: &'static str,
    exit_codes: Option<&'static str>,
}

static COMMANDS: [Listed; 16] = [
    Listed {
        name: "new",
        about: "Make a project that runs, from a template",
        augment: New::augment_args,
        examples: help::NEW,
        exit_codes: Some(help::EXIT_CODES),
    },
    Listed {
        name: "serve",
        about: "Serve HTTP, with production settings",
        augment: Serve::augment_args,
        examples: help::SERVE,
        exit_codes: Some(help::EXIT_CODES),
    },
    Listed {
        name: "dev",
        about: "Serve an application, and each new state of it as soon as it is saved",
        augment: Dev::augment_args,
        examples: help::DEV,
        exit_codes: Some(help::EXIT_CODES),
    },
    Listed {
        name: "bench",
        about: "Measure a server under load, or check the ledger",
        augment: Bench::augment_args,
        examples: help::BENCH,
        exit_codes: Some(help::BENCH_EXIT_CODES),
    },
    Listed {
        name: "profile",
        about: "Say where the time of each route goes, under load",
        augment: Profile::augment_args,
        examples: help::PROFILE,
        exit_codes: Some(help::PROFILE_EXIT_CODES),
    },
    Listed {
        name: "infer",
        about: "Run a language model on this machine: answer, chat, measure",
        augment: Infer::augment_args,
        examples: help::INFER,
        exit_codes: Some(help::EXIT_CODES),
    },
    Listed {
        name: "routes",
        about: "List the routes of an application, with their handlers",
        augment: Routes::augment_args,
        examples: help::ROUTES,
        exit_codes: Some(help::EXIT_CODES),
    },
    Listed {
        name: "openapi",
        about: "Print the OpenAPI document of an application, or compare it with a file",
        augment: OpenApi::augment_args,
        examples: help::OPENAPI,
        exit_codes: Some(help::EXIT_CODES),
    },
    Listed {
        name: "check",
        about: "Say what would fail in production, and listen nowhere",
        augment: Check::augment_args,
        examples: help::CHECK,
        exit_codes: Some(help::EXIT_CODES),
    },
    Listed {
        name: "doctor",
        about: "Look at the machine and the project, and say what to change",
        augment: Doctor::augment_args,
        examples: help::DOCTOR,
        exit_codes: Some(help::EXIT_CODES),
    },
    Listed {
        name: "config",
        about: "Show or check the configuration",
        augment: ConfigArgs::augment_args,
        examples: help::CONFIG,
        exit_codes: None,
    },
    Listed {
        name: "explain",
        about: "Explain an error code, or list them",
        augment: Explain::augment_args,
        examples: help::EXPLAIN,
        exit_codes: None,
    },
    Listed {
        name: "completions",
        about: "Print a shell's completion script",
        augment: Completions::augment_args,
        examples: help::COMPLETIONS,
        exit_codes: None,
    },
    Listed {
        name: "man",
        about: "Print the manual page, or write one per command",
        augment: Man::augment_args,
        examples: help::MAN,
        exit_codes: None,
    },
    Listed {
        name: "self",
        about: "Update this installation, or remove it",
        augment: SelfArgs::augment_args,
        examples: help::SELF,
        exit_codes: Some(help::EXIT_CODES),
    },
    Listed {
        name: "version",
        about: "Print the version and how it was built",
        augment: std::convert::identity,
        examples: help::VERSION,
        exit_codes: None,
    },
];

impl Listed {
    fn find(name: &str) -> Option<&'static Self> {
        COMMANDS.iter().find(|listed| listed.name == name)
    }

    /// The command with the flags that `augment` adds.
    fn build(&self, command: ClapCommand) -> ClapCommand {
        let mut built = (self.augment)(command);
        if matches!(self.name, "check" | "dev") {
            // A model is served by `serve` alone.
            built = built.mut_args(|argument| match argument.get_id().as_str() {
                id if id.starts_with("model.") => argument.hide(true),
                _ => argument,
            });
        }
        let built = built
            .about(self.about)
            .long_about(None)
            .help_template(help::template(self.examples));
        match self.exit_codes {
            Some(codes) => built.after_long_help(codes),
            None => built,
        }
    }
}

/// The command line with the flags of the commands that `arguments` may mean:
/// those whose names are among them, and all of them where none is.
pub(crate) fn command_line(arguments: &[OsString]) -> ClapCommand {
    let is_given = |name: &str| arguments.iter().any(|argument| argument == name);
    let is_named = |command: &ClapCommand| {
        is_given(command.get_name()) || command.get_all_aliases().any(is_given)
    };
    let line = Cli::command();
    let is_whole = is_given("help") || !line.get_subcommands().any(is_named);
    line.mut_subcommands(|command| match Listed::find(command.get_name()) {
        Some(listed) if is_whole || is_named(&command) => listed.build(command),
        _ => command,
    })
}

/// Parses the command line, the program's name first.
#[cfg(test)]
pub(crate) fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Cli, clap::Error> {
    let words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
    let matches = command_line(&words).try_get_matches_from(words)?;
    Cli::from_arg_matches(&matches)
}

/// Without flags; [`command_line`] adds them.
impl Subcommand for Command {
    fn augment_subcommands(parent: ClapCommand) -> ClapCommand {
        parent.subcommands(COMMANDS.iter().map(|listed| {
            let command = ClapCommand::new(listed.name).about(listed.about);
            match listed.name {
                "serve" => command.alias("run"),
                _ => command,
            }
        }))
    }

    fn augment_subcommands_for_update(parent: ClapCommand) -> ClapCommand {
        Self::augment_subcommands(parent)
    }

    fn has_subcommand(name: &str) -> bool {
        Listed::find(name).is_some()
    }
}

impl FromArgMatches for Command {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let Some((name, matches)) = matches.subcommand() else {
            return Err(clap::Error::new(ErrorKind::MissingSubcommand));
        };
        Ok(match name {
            "new" => Self::New(FromArgMatches::from_arg_matches(matches)?),
            "serve" => Self::Serve(FromArgMatches::from_arg_matches(matches)?),
            "dev" => Self::Dev(FromArgMatches::from_arg_matches(matches)?),
            "bench" => Self::Bench(FromArgMatches::from_arg_matches(matches)?),
            "profile" => Self::Profile(FromArgMatches::from_arg_matches(matches)?),
            "infer" => Self::Infer(FromArgMatches::from_arg_matches(matches)?),
            "routes" => Self::Routes(FromArgMatches::from_arg_matches(matches)?),
            "openapi" => Self::OpenApi(FromArgMatches::from_arg_matches(matches)?),
            "check" => Self::Check(FromArgMatches::from_arg_matches(matches)?),
            "doctor" => Self::Doctor(FromArgMatches::from_arg_matches(matches)?),
            "config" => Self::Config(FromArgMatches::from_arg_matches(matches)?),
            "explain" => Self::Explain(FromArgMatches::from_arg_matches(matches)?),
            "completions" => Self::Completions(FromArgMatches::from_arg_matches(matches)?),
            "man" => Self::Man(FromArgMatches::from_arg_matches(matches)?),
            "self" => Self::Installation(FromArgMatches::from_arg_matches(matches)?),
            "version" => Self::Version,
            _ => return Err(clap::Error::new(ErrorKind::InvalidSubcommand)),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(words: &[&str]) -> Vec<String> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let line = command_line(&words);
        let all = line.get_subcommands();
        let built = all.filter(|command| command.get_after_long_help().is_some());
        built.map(|command| command.get_name().to_owned()).collect()
    }

    #[test]
    fn only_what_may_be_meant_is_built() {
        assert_eq!(built(&["justapi", "serve", "--port", "1"]), ["serve"]);
        assert_eq!(built(&["justapi", "run"]), ["serve"]);
        // The word may be a value.
        assert_eq!(
            built(&["justapi", "--config", "serve", "dev"]),
            ["serve", "dev"]
        );
        let all = built(&[]);
        assert!(all.len() > 8, "{all:?}");
        for words in [
            &["justapi"][..],
            &["justapi", "srve"],
            &["justapi", "help", "dev"],
        ] {
            assert_eq!(built(words), all, "{words:?}");
        }
    }

    #[test]
    fn every_command_of_the_list_is_one() {
        for listed in &COMMANDS {
            let needed: &[&str] = match listed.name {
                "bench" | "profile" => &["http://127.0.0.1:1"],
                "config" => &["path"],
                "completions" => &["bash"],
                "self" => &["uninstall"],
                _ => &[],
            };
            let words = ["justapi", listed.name]
                .into_iter()
                .chain(needed.iter().copied());
            if let Err(error) = parse(words) {
                panic!("{}: {error}", listed.name);
            }
        }
    }
}
