//! What is read besides the arguments: files, stdin, passwords and a yes.

use std::io::{BufRead, IsTerminal, Read};
use std::path::Path;

use omgservers_protocol::config::VersionConfig;
use omgservers_protocol::text::{Secret, TEXT_CONSTRAINT, Text};
use rustix::termios::{self, LocalModes, OptionalActions};
use serde::de::DeserializeOwned;

use crate::failure::{Failure, Result};
use crate::output;

/// Configs are a page long; more than this is a mistake.
const DOCUMENT_BYTES_MAX: u64 = 4 << 20;

/// A JSON document from a file, or from stdin by the name `-`.
pub(crate) fn document<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let from_stdin = path == Path::new("-");
    let name = if from_stdin {
        "stdin".to_owned()
    } else {
        path.display().to_string()
    };
    let mut text = String::new();
    let read = if from_stdin {
        std::io::stdin().take(DOCUMENT_BYTES_MAX).read_to_string(&mut text)
    } else {
        let file =
            std::fs::File::open(path).map_err(|cause| Failure::usage(format!("cannot open `{name}`: {cause}")))?;
        file.take(DOCUMENT_BYTES_MAX).read_to_string(&mut text)
    };
    read.map_err(|cause| Failure::usage(format!("cannot read `{name}`: {cause}")))?;
    serde_json::from_str(&text).map_err(|cause| Failure::usage(format!("`{name}` is not such a document: {cause}")))
}

/// A checked version config from a file, or from stdin by the name `-`.
pub(crate) fn version_config(path: &Path) -> Result<VersionConfig> {
    let config: VersionConfig = document(path)?;
    config
        .check()
        .map_err(|wrong| Failure::usage(format!("`{}`: {wrong}", path.display())))?;
    Ok(config)
}

/// The argument, or a line from stdin when it is `-`.
pub(crate) fn password(argument: &str) -> Result<Text> {
    let password = if argument == "-" {
        read_hidden("Password: ")?
    } else {
        argument.to_owned()
    };
    Text::new(password).ok_or_else(|| Failure::usage(format!("the password {TEXT_CONSTRAINT}")))
}

/// The argument, or everything on stdin when it is `-`, without the end of the last line.
pub(crate) fn secret(argument: &str) -> Result<Secret> {
    if argument != "-" {
        return Ok(Secret::new(argument));
    }
    if std::io::stdin().is_terminal() {
        return Ok(Secret::new(read_hidden("Value: ")?));
    }
    let mut text = String::new();
    let read = std::io::stdin().take(DOCUMENT_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|cause| Failure::usage(format!("cannot read the value from stdin: {cause}")))?;
    let end = text.strip_suffix('\n').unwrap_or(&text);
    Ok(Secret::new(end.strip_suffix('\r').unwrap_or(end)))
}

/// Asks on a terminal; `None` when there is none to ask.
pub(crate) fn confirm(question: &str) -> Option<bool> {
    if !std::io::stdin().is_terminal() {
        return None;
    }
    output::prompt(&format!("{question} [y/N] "));
    let answer = read_line().unwrap_or_default();
    Some(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// On a terminal the line is not shown while it is typed.
fn read_hidden(prompt: &str) -> Result<String> {
    let stdin = std::io::stdin();
    let shown = termios::tcgetattr(&stdin).ok();
    if let Some(shown) = &shown {
        let mut hidden = shown.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        output::prompt(prompt);
        let _ = termios::tcsetattr(&stdin, OptionalActions::Now, &hidden);
    }
    let line = read_line();
    if let Some(shown) = &shown {
        let _ = termios::tcsetattr(&stdin, OptionalActions::Now, shown);
        output::prompt("\n");
    }
    line.map_err(|cause| Failure::usage(format!("cannot read the password from stdin: {cause}")))
}

fn read_line() -> std::io::Result<String> {
    let mut line = String::new();
    std::io::stdin().lock().take(DOCUMENT_BYTES_MAX).read_line(&mut line)?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}
