//! `justapi new`: a project made of a template.
//!
//! Guarantee: all of it or nothing. What is asked can be said by a flag, and
//! what would be written can be seen before.

mod ask;
mod destination;
mod git;
mod interruption;
mod report;
mod source;

use std::path::{Path, PathBuf};

use justapi_templates::{
    AnswerFault, Answers, BUILTIN_NAMES, Manifest, NameFault, Names, builtin, next_steps, record,
    render,
};

use self::ask::Asker;
use self::destination::{Destination, Plan};
use self::git::Repository;
use self::interruption::Interruption;
use self::report::Report;
use self::source::{Source, invalid};
use crate::error::{CliError, Code};
use crate::new_args::{New, Vcs};
use crate::shell::quoted;
use crate::spelling;
use crate::ui::Ui;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Makes a project, or shows what it would be.
pub(crate) fn new(ui: &Ui, arguments: &New) -> Result<u8, CliError> {
    if arguments.list {
        return report::list(ui);
    }
    if arguments.commit && arguments.vcs == Vcs::None {
        return Err(CliError::new(
            Code::FlagConflict,
            "`--commit` needs a repository, and `--vcs none` wants none",
        )
        .with_hint("leave one of them away"));
    }
    let interruption = Interruption::watch()?;
    let asker = Asker::find(ui, arguments, &interruption);
    if asker.is_none() && arguments.target.is_none() {
        return Err(nameless(
            "a project needs a name, and there is nobody to ask",
        ));
    }
    if let (Some(_), Some(target)) = (&asker, &arguments.target) {
        refuse_early(arguments, target)?;
    }

    let template = match (&arguments.template, &asker) {
        (Some(template), _) => template.clone(),
        (None, Some(asker)) => asker.template()?,
        (None, None) => BUILTIN_NAMES[0].to_owned(),
    };
    let source = Source::open(&template, arguments.reference.as_deref(), &interruption)?;
    let template = &source.shown;
    let manifest = &source.template.manifest;
    let target = match (&arguments.target, &asker) {
        (Some(target), _) => target.clone(),
        (None, Some(asker)) => PathBuf::from(asker.name(manifest)?),
        (None, None) => unreachable!("refused above"),
    };
    let names = name(arguments, &target, manifest)?;
    let answers = answers(arguments, manifest, template, asker.as_ref())?;
    drop(asker);

    let failed = |error| invalid(&error, template);
    let mut files = render(&source.template, &names, &answers, VERSION).map_err(failed)?;
    let (commands, edit) =
        next_steps(&source.template, &names, &answers, VERSION).map_err(failed)?;
    let origin: Vec<_> = source
        .origin
        .iter()
        .map(|(key, value)| (*key, value.as_str()))
        .collect();
    files.push(record(&origin, &names, &answers, VERSION, &files));
    files.sort_by(|a, b| a.path.cmp(&b.path));

    let destination = Destination::look(&target)?;
    let plan = destination.plan(&files)?;
    let conflict = plan.conflict(&destination.shown, arguments.force);
    let report = Report {
        template,
        names: &names,
        answers: &answers,
        destination: &destination,
        plan: &plan,
        commands: &commands,
        edit: &edit,
    };
    if arguments.dry_run {
        return report.planned(ui, conflict.as_ref());
    }
    if let Some(conflict) = conflict {
        return Err(conflict);
    }
    let repository = destination.put(&plan, &interruption, |folder| {
        repository(arguments, &source, &destination, &plan, folder)
    })?;
    report.made(ui, &repository)
}

/// What no answer can help is said before anything is asked.
fn refuse_early(arguments: &New, target: &Path) -> Result<(), CliError> {
    let destination = Destination::look(target)?;
    if !arguments.force && !arguments.dry_run {
        destination.must_be_empty()?;
    }
    if arguments.template.is_some() {
        // Whose words it may not be is known before the first question.
        return Ok(());
    }
    let names = BUILTIN_NAMES.map(|template| {
        let manifest = builtin(template).expect("it is listed").manifest;
        name(arguments, target, &manifest)
    });
    // One that will do for some template may be meant for that.
    if names.iter().all(Result::is_err) {
        return names
            .into_iter()
            .next()
            .map_or(Ok(()), |name| name.map(drop));
    }
    Ok(())
}

/// The repository of a project whose files are in `folder`.
fn repository(
    arguments: &New,
    source: &Source,
    destination: &Destination,
    plan: &Plan<'_>,
    folder: &Path,
) -> Repository {
    if arguments.vcs == Vcs::None {
        return Repository::Unwanted;
    }
    if let Some(repository) = destination.repository() {
        return Repository::Inside(repository);
    }
    // As it is recorded: what is committed is for others, too.
    let message = format!("Start from the template {}", source.origin[0].1);
    let files: Vec<_> = plan.files.iter().map(|(file, _)| &*file.path).collect();
    git::make(
        folder,
        &files,
        plan.is_alone(),
        arguments.commit.then_some(message.as_str()),
    )
}

fn nameless(message: &str) -> CliError {
    CliError::new(Code::AnswerMissing, message).with_hint("say one: `justapi new my-api`")
}

/// The names of the project: of `--name`, or of the folder.
fn name(arguments: &New, target: &Path, manifest: &Manifest) -> Result<Names, CliError> {
    let Manifest {
        language, reserved, ..
    } = manifest;
    if let Some(name) = &arguments.name {
        return Names::read(name, *language, reserved).map_err(|fault| {
            let hint = fault.suggestion.as_ref().map_or_else(
                || "choose another, such as `--name my-api`".to_owned(),
                |name| format!("choose another, such as `--name {name}`"),
            );
            misnamed(&fault).with_hint(hint)
        });
    }
    // `.` and `..` have no name of their own; a link has, which is not its target's.
    let named = match target.file_name() {
        Some(name) => name.to_owned(),
        None => {
            let real = target.canonicalize().ok();
            let name = real.as_deref().and_then(Path::file_name);
            name.unwrap_or(target.as_os_str()).to_owned()
        }
    };
    Names::read(&named.to_string_lossy(), *language, reserved).map_err(|fault| {
        let exists = target.is_dir();
        let hint = match &fault.suggestion {
            Some(name) if exists => format!("`--name {name}` names the project and not the folder"),
            Some(name) => {
                let folder = quoted(&target.with_file_name(name).to_string_lossy());
                format!("`justapi new {folder}`, or `--name {name}` to keep the folder's name")
            }
            None => "`--name my-api` names the project and not the folder".to_owned(),
        };
        misnamed(&fault).with_hint(hint)
    })
}

fn misnamed(fault: &NameFault) -> CliError {
    CliError::new(Code::ProjectName, fault.to_string())
}

/// The answers of `--set`, of a person, and the defaults for the rest.
fn answers(
    arguments: &New,
    manifest: &Manifest,
    template: &str,
    asker: Option<&Asker<'_>>,
) -> Result<Answers, CliError> {
    let mut answers = Answers::default();
    for (name, answer) in &arguments.set {
        let set = answers.set(manifest, name, answer);
        set.map_err(|fault| unanswered(&fault, manifest, template))?;
    }
    if let Some(asker) = asker {
        asker.answers(manifest, &mut answers)?;
    }
    let complete = answers.complete(manifest);
    complete.map_err(|fault| unanswered(&fault, manifest, template))?;
    Ok(answers)
}

fn unanswered(fault: &AnswerFault, manifest: &Manifest, template: &str) -> CliError {
    let names = || {
        manifest
            .questions
            .iter()
            .map(|question| question.name.as_str())
    };
    match fault {
        AnswerFault::UnknownQuestion { name } => {
            let meant = spelling::did_you_mean(name, names());
            let error = CliError::new(
                Code::AnswerInvalid,
                format!("the template `{template}` does not ask for `{name}`{meant}"),
            );
            let known: Vec<_> = names().collect();
            error.with_hint(if known.is_empty() {
                "it asks nothing; leave `--set` away".to_owned()
            } else {
                format!("it asks for: {}", known.join(", "))
            })
        }
        AnswerFault::Impossible {
            name,
            answer,
            expected,
        } => {
            let meant = spelling::did_you_mean(answer, expected.split('|'));
            CliError::new(
                Code::AnswerInvalid,
                format!("`{answer}` is no answer to `{name}`{meant}"),
            )
            .with_hint(format!("`--set {name}={expected}`"))
        }
        AnswerFault::Missing { name } => {
            let question = manifest
                .questions
                .iter()
                .find(|question| question.name == *name);
            let expected = question
                .map(justapi_templates::Question::expected)
                .unwrap_or_default();
            let prompt = question.map_or("", |question| question.prompt.as_str());
            CliError::new(
                Code::AnswerMissing,
                format!(
                    "the template `{template}` needs an answer for `{name}`, and there is nobody \
                     to ask"
                ),
            )
            .with_hint(format!("add `--set {name}={expected}`: {prompt}"))
        }
        fault => CliError::new(Code::AnswerInvalid, fault.to_string()),
    }
}
