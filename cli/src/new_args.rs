//! Flags of `justapi new`, of which the doc comments are the help.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Arguments of `new`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct New {
    /// Folder to make; its last part is the project's name. `.` is the working directory.
    #[arg(value_name = "NAME|.")]
    pub(crate) target: Option<PathBuf>,
    /// Template: minimal, api, rust, a folder, gh:OWNER/REPO[/FOLDER] or a git URL.
    ///
    /// Without it a person at a terminal is asked; otherwise it is minimal. Nothing of a template
    /// is executed.
    #[arg(short, long, value_name = "TEMPLATE")]
    pub(crate) template: Option<String>,
    /// Branch, tag or commit of a template in a git repository.
    #[arg(long = "ref", value_name = "REF")]
    pub(crate) reference: Option<String>,
    /// Name of the project, where its folder is called otherwise.
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Answer a question of the template; repeatable. `--list` shows the questions.
    #[arg(long, value_name = "QUESTION=ANSWER", value_parser = read_pair)]
    pub(crate) set: Vec<(String, String)>,
    /// Ask nothing: what is not answered by a flag gets its default.
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Write into a folder that has files; those replaced are kept as *.orig.
    #[arg(long)]
    pub(crate) force: bool,
    /// Show what would be written, and write nothing.
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Version control of the project; a project inside a repository gets no other.
    #[arg(
        long,
        value_enum,
        value_name = "git|none",
        default_value = "git",
        hide_possible_values = true
    )]
    pub(crate) vcs: Vcs,
    /// Commit the new files, too.
    #[arg(long)]
    pub(crate) commit: bool,
    /// List the templates and their questions.
    #[arg(long, conflicts_with_all = ["target", "template"])]
    pub(crate) list: bool,
}

/// Version control of a new project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Vcs {
    /// A git repository.
    Git,
    /// None.
    None,
}

fn read_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, answer)) if !name.is_empty() => Ok((name.to_owned(), answer.to_owned())),
        _ => Err("expected a question and its answer such as db=postgres".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_may_hold_anything() {
        let pair = |name: &str, answer: &str| Ok((name.to_owned(), answer.to_owned()));
        assert_eq!(read_pair("db=postgres"), pair("db", "postgres"));
        assert_eq!(read_pair("a=b=c"), pair("a", "b=c"));
        assert_eq!(read_pair("a="), pair("a", ""));
        for bad in ["", "a", "=b"] {
            assert!(read_pair(bad).is_err(), "{bad}");
        }
    }
}
