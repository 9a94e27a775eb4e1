//! `justapi explain`: a paragraph on one error code, or the list of all.

use std::fmt::Write as _;

use serde_json::json;

use crate::error::{CliError, Code};
use crate::spelling;
use crate::ui::{Ui, document, faint, good, heading};

/// Columns of an explanation.
const WIDTH: usize = 78;

pub(crate) fn explain(ui: &Ui, code: Option<&str>) -> Result<u8, CliError> {
    let codes = match code {
        Some(text) => vec![Code::from_text(text).ok_or_else(|| unknown(text))?],
        None => Code::ALL.to_vec(),
    };
    if ui.is_json() {
        let codes: Vec<_> = codes
            .iter()
            .map(|code| {
                json!({
                    "code": code.as_str(),
                    "exit": code.exit(),
                    "family": code.family(),
                    "explanation": code.explanation(),
                })
            })
            .collect();
        document(&json!({"v": 1, "codes": codes}))?;
        return Ok(0);
    }
    let text = if code.is_some() {
        let code = codes[0];
        format!(
            "{}   {}   {}\n\n{}",
            heading(code.as_str()),
            code.family(),
            faint(&format!("exit status {}", code.exit())),
            wrap(code.explanation())
        )
    } else {
        let mut family = "";
        codes.iter().fold(String::new(), |mut text, code| {
            if code.family() != family {
                let gap = if family.is_empty() { "" } else { "\n" };
                family = code.family();
                writeln!(text, "{gap}{}", good(family)).expect("strings can always grow");
            }
            let sentence = code.explanation().split(". ").next().unwrap_or_default();
            let sentence = wrap(sentence.trim_end_matches('.')).replace('\n', "\n         ");
            writeln!(
                text,
                "{}    {}",
                heading(code.as_str()),
                sentence.trim_end()
            )
            .expect("strings can always grow");
            text
        })
    };
    ui.data(&text)?;
    Ok(0)
}

fn unknown(text: &str) -> CliError {
    let known = Code::ALL.iter().map(|code| code.as_str());
    let hint = spelling::nearest(&text.to_uppercase(), known).map_or_else(
        || "`justapi explain` lists every code".to_owned(),
        |nearest| format!("did you mean `justapi explain {nearest}`?"),
    );
    CliError::new(Code::ExplainArgument, format!("no error code `{text}`")).with_hint(hint)
}

/// Breaks lines at spaces; every line ends with a line feed.
fn wrap(text: &str) -> String {
    let mut wrapped = String::new();
    let mut column = 0;
    for word in text.split(' ') {
        let width = word.chars().count();
        if column > 0 && column + 1 + width > WIDTH {
            wrapped.push('\n');
            column = 0;
        } else if column > 0 {
            wrapped.push(' ');
            column += 1;
        }
        wrapped.push_str(word);
        column += width;
    }
    wrapped.push('\n');
    wrapped
}
