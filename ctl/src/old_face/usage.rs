//! How the old script explained itself.

use super::table::{ROWS, Row};

/// Of everything, of a group, or of one command; of anything else only the heading.
pub(super) fn usage(program: &str, topic: &str) -> String {
    let mut lines = vec!["OMGSERVERS ctl, v1.0.0".to_owned(), "Usage:".to_owned()];
    for word in ["help", "logs"] {
        if topic.is_empty() || topic == word {
            lines.push(format!(" {program} {word}"));
        }
    }
    for row in ROWS {
        let path = row.path();
        if topic.is_empty() || topic == row.group || topic == path {
            lines.push(format!(" {program} {path}{}", arguments(row)));
        }
        if topic == path
            && let Some((heading, words)) = row.notes()
        {
            lines.push(format!("   {heading}:"));
            lines.extend(words.iter().map(|word| format!("     - {word}")));
        }
    }
    lines.join("\n")
}

fn arguments(row: &Row) -> String {
    row.arguments
        .iter()
        .map(|argument| format!(" <{}>", argument.shown))
        .collect()
}
