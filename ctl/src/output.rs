//! The only place that prints. Results go to stdout, everything else to stderr.

use std::fmt::Display;
use std::io::{IsTerminal, Write};

use serde::Serialize;

use crate::arguments::Format;
use crate::failure::{self, Failure};

#[derive(Clone, Copy)]
pub(crate) struct Output {
    format: Format,
}

impl Output {
    pub(crate) fn new(format: Format) -> Self {
        Self { format }
    }

    /// A result: as it came from the service, or as people like to read it.
    pub(crate) fn result<T: Serialize>(self, value: &T, for_people: impl FnOnce(&T) -> String) {
        match self.format {
            Format::Text => self.line(for_people(value)),
            Format::Json => self.line(serde_json::to_string_pretty(value).expect("results are plain data")),
        }
    }

    /// Lines of a result that is the same for people and programs.
    pub(crate) fn line(self, text: impl Display) {
        // A reader that went away is no failure of the command.
        let _ = writeln!(std::io::stdout(), "{text}");
    }

    /// A result without a line end.
    pub(crate) fn bare(self, text: impl Display) {
        let mut stdout = std::io::stdout();
        let _ = write!(stdout, "{text}").and_then(|()| stdout.flush());
    }

    /// Something worth knowing besides the result.
    pub(crate) fn note(self, text: impl Display) {
        let _ = writeln!(std::io::stderr(), "{text}");
    }

    /// Something that the reader should look at, though the command goes on.
    pub(crate) fn warning(self, text: impl Display) {
        self.note(format_args!("{} {text}", label("warning:", "33")));
    }

    /// For programs one line of JSON.
    pub(crate) fn failure(self, failure: &Failure) {
        if self.format == Format::Json {
            return self.note(serde_json::json!({
                "qualifier": failure.qualifier,
                "message": failure.message,
                "hint": failure.hint,
                "status": failure.status,
            }));
        }
        let qualifier = failure
            .qualifier
            .map(|qualifier| format!(" ({})", failure::name(qualifier)));
        self.note(format_args!(
            "{} {}{}",
            label("error:", "31"),
            failure.message,
            qualifier.unwrap_or_default()
        ));
        if let Some(hint) = &failure.hint {
            self.note(format_args!("{} {hint}", label("hint:", "36")));
        }
    }
}

/// A question whose answer is typed behind it.
pub(crate) fn prompt(text: &str) {
    let mut stderr = std::io::stderr();
    let _ = write!(stderr, "{text}").and_then(|()| stderr.flush());
}

/// Bold and coloured where somebody looks at it.
fn label(word: &str, colour: &str) -> String {
    if std::io::stderr().is_terminal() {
        format!("\x1b[1;{colour}m{word}\x1b[0m")
    } else {
        word.to_owned()
    }
}
