//! `justapi man`: manual pages made of the same definitions as the help.

use std::fs;
use std::path::Path;

use crate::command_list::command_line;
use crate::error::{CliError, Code};
use crate::ui::Ui;

pub(crate) fn man(ui: &Ui, out: Option<&Path>) -> Result<u8, CliError> {
    let command = command_line(&[]).disable_help_subcommand(true);
    let Some(folder) = out else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command)
            .render(&mut page)
            .map_err(|error| CliError::output(&error))?;
        ui.data(&String::from_utf8_lossy(&page))?;
        return Ok(0);
    };
    fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(command, folder))
        .map_err(|error| {
            CliError::new(
                Code::OutputWrite,
                format!("cannot write the pages to {}", folder.display()),
            )
            .with_cause(&error)
            .with_hint("choose another folder with `--out`")
        })?;
    ui.data(&format!(
        "read them with `man {}`\n",
        folder.join("justapi.1").display()
    ))?;
    Ok(0)
}
