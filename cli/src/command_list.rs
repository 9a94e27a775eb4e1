//! The commands of the command line, each built when it is asked for.
//!
//! Guarantee: a run builds the flags of its own command alone. Those of all
//! commands are some 300: a server would start later, and keep the pages of
//! the code that made them.

use clap::error::ErrorKind;
use clap::{ArgMatches, Args as _, Command as ClapCommand, FromArgMatches, Subcommand};

use crate::application_args::{Check, Doctor, OpenApi, Routes, SelfArgs};
use crate::args::{Bench, Command, Completions, ConfigArgs, Explain, Man, Serve};
use crate::dev_args::Dev;
use crate::help;
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

static COMMANDS: [Listed; 15] = [
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
        let built = (self.augment)(command)
            .about(self.about)
            .long_about(None)
            .help_template(help::template(self.examples));
        match self.exit_codes {
            Some(codes) => built.after_long_help(codes),
            None => built,
        }
    }
}

impl Subcommand for Command {
    fn augment_subcommands(parent: ClapCommand) -> ClapCommand {
        parent.subcommands(COMMANDS.iter().map(|listed| {
            let command = ClapCommand::new(listed.name).about(listed.about);
            let command = match listed.name {
                "serve" => command.alias("run"),
                _ => command,
            };
            command.defer(|command| match Listed::find(command.get_name()) {
                Some(listed) => listed.build(command),
                None => command,
            })
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
