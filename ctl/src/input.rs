//! What is read besides the arguments: files, stdin, passwords and a yes.

use std::io::{BufRead, IsTerminal, Read};
use std::path::Path;

use omgservers_protocol::config::VersionConfig;
use omgservers_protocol::text::{Secret, TEXT_CONSTRAINT, Text};
use rustix::termios::{self, LocalModes, OptionalActions};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::failure::{Failure, Result};
use crate::output::{self, Output};

/// Configs are a page long; more than this is a mistake.
const DOCUMENT_BYTES_MAX: u64 = 4 << 20;

/// A config from a file, or from stdin by the name `-`. Fields that nobody reads are pointed out: the service takes them
/// without a word.
pub(crate) fn config<T: DeserializeOwned + Serialize>(path: &Path, output: Output) -> Result<T> {
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
    let wrong = |cause| Failure::usage(format!("`{name}` is not such a document: {cause}"));
    let config: T = serde_json::from_str(&text).map_err(wrong)?;
    let given: Value = serde_json::from_str(&text).map_err(wrong)?;
    let unknown = unknown_fields(&given, &serde_json::to_value(&config).map_err(wrong)?, "");
    if !unknown.is_empty() {
        output.warning(format_args!(
            "`{name}` has fields that mean nothing here: {}",
            unknown.join(", ")
        ));
    }
    Ok(config)
}

/// Paths of what is given but not known.
fn unknown_fields(given: &Value, known: &Value, path: &str) -> Vec<String> {
    match (given, known) {
        (Value::Object(given), Value::Object(known)) => {
            let fields = given.iter().flat_map(|(name, given)| {
                let path = format!("{path}{}{name}", if path.is_empty() { "" } else { "." });
                match known.get(name) {
                    Some(known) => unknown_fields(given, known, &path),
                    None => vec![path],
                }
            });
            fields.collect()
        }
        (Value::Array(given), Value::Array(known)) => {
            let items = given.iter().zip(known).enumerate();
            let items = items.flat_map(|(at, (given, known))| unknown_fields(given, known, &format!("{path}[{at}]")));
            items.collect()
        }
        _ => Vec::new(),
    }
}

/// A checked version config from a file, or from stdin by the name `-`.
pub(crate) fn version_config(path: &Path, output: Output) -> Result<VersionConfig> {
    let config: VersionConfig = config(path, output)?;
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

/// On a terminal whoever deletes something with everything in it types its name first; scripts are not asked.
pub(crate) fn confirm_by_name(yes: bool, kind: &str, name: &Text) -> Result {
    if yes || !std::io::stdin().is_terminal() {
        return Ok(());
    }
    output::prompt(&format!(
        "This deletes the {kind} {name} and everything in it. Type {name} to go on: "
    ));
    match read_line().unwrap_or_default().trim() == name.as_str() {
        true => Ok(()),
        false => Err(Failure::refused("nothing was deleted")),
    }
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
