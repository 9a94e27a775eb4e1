//! `justapi completions`: a shell's completion script.
//!
//! Guarantee: the script is built in memory first, so a write error cannot
//! panic inside the generator, and nothing else reaches standard output.

use clap_complete::Shell;

use crate::command_list::command_line;
use crate::error::CliError;
use crate::ui::Ui;

pub(crate) fn completions(ui: &Ui, shell: Shell) -> Result<u8, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command_line(&[]), "justapi", &mut script);
    ui.data(&String::from_utf8_lossy(&script))?;
    Ok(0)
}
