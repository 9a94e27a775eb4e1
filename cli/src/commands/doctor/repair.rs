//! What the doctor puts right by itself, where somebody has agreed to it.
//!
//! Guarantee: nothing is run that was not shown before, and a command that fails is named.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::{Command, Stdio};

use super::super::checklist::Item;
use crate::shell::quoted;
use crate::ui::{Ui, bad, heading};

/// Offers each repair; the commands that were run.
///
/// A person at a terminal is asked for each; `agrees` says yes to all of them.
pub(super) fn offer(ui: &Ui, items: &[Item], agrees: bool) -> Vec<String> {
    let repairs: Vec<&[String]> = items
        .iter()
        .filter_map(|item| item.repair.as_deref())
        .collect();
    if repairs.is_empty() {
        ui.note("nothing here can be put right by this command; each line says what to do\n");
        return Vec::new();
    }
    let has_person = io::stdin().is_terminal() && io::stderr().is_terminal();
    let mut done = Vec::new();
    for repair in repairs {
        let shown = shown(repair);
        ui.note(&format!("would run  {}\n", heading(&shown)));
        if agrees || (has_person && is_agreed()) {
            run(ui, repair, &shown);
            done.push(shown);
        }
    }
    if !agrees && !has_person {
        ui.note("nothing was run: `--yes` agrees to it where there is nobody to ask\n");
    }
    done
}

fn shown(repair: &[String]) -> String {
    let word = |word: &String| {
        if word.starts_with('-') {
            word.clone()
        } else {
            quoted(word)
        }
    };
    repair.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// Asks; anything but a yes is a no.
fn is_agreed() -> bool {
    drop(io::stderr().lock().write_all(b"run it? [y/N] "));
    let mut answer = String::new();
    drop(io::stdin().read_line(&mut answer));
    matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")
}

fn run(ui: &Ui, repair: &[String], shown: &str) {
    let Some((program, arguments)) = repair.split_first() else {
        return;
    };
    let status = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        // Standard output is for the result alone.
        .stdout(Stdio::from(io::stderr()))
        .status();
    let how = match status {
        Ok(status) if status.success() => return,
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    ui.note(&format!("{} {shown}: {how}\n", bad("failed")));
}
