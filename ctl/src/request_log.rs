//! A record of what was asked and answered, for people who look for a mistake. Without secrets, and bounded.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Two files of this size are kept at most.
const BYTES_MAX: u64 = 1 << 20;

pub(crate) struct RequestLog {
    file: PathBuf,
}

impl RequestLog {
    pub(crate) fn new(directory: &Path) -> Self {
        Self {
            file: directory.join("logs"),
        }
    }

    /// Adds one request. A log that cannot be written is no reason to fail the command.
    pub(crate) fn add(&self, url: &str, request: &impl Serialize, answer: Result<Value, String>) {
        let mut request = serde_json::to_value(request).unwrap_or_default();
        mask(&mut request);
        let answer = match answer {
            Ok(mut answer) => {
                mask(&mut answer);
                answer.to_string()
            }
            Err(message) => format!("failed: {message}"),
        };
        let now = OffsetDateTime::now_utc().format(&Rfc3339).unwrap_or_default();
        let _ = self.append(&format!("\n{now} {url}\n{request}\n{answer}\n"));
    }

    /// Adds lines as they are; whoever calls it has masked what is secret.
    pub(crate) fn add_lines(&self, lines: &str) {
        let _ = self.append(lines);
    }

    pub(crate) fn read(&self) -> std::io::Result<String> {
        let older = read_if_there(&self.older())?;
        Ok(older + &read_if_there(&self.file)?)
    }

    fn append(&self, entry: &str) -> std::io::Result<()> {
        if let Some(directory) = self.file.parent() {
            crate::state::create_state_directory(directory)?;
        }
        if fs::metadata(&self.file).is_ok_and(|file| file.len() > BYTES_MAX) {
            fs::rename(&self.file, self.older())?;
        }
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&self.file)?;
        file.write_all(entry.as_bytes())
    }

    fn older(&self) -> PathBuf {
        self.file.with_extension("1")
    }
}

fn read_if_there(path: &Path) -> std::io::Result<String> {
    match fs::read_to_string(path) {
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        read => read,
    }
}

/// Passwords, tokens, keys and the like become `***`, wherever they are.
pub(crate) fn mask(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            // The value of a variable that is no secret, or an alias; anything else called so is masked.
            let is_plain = fields.get("secret") == Some(&Value::Bool(false)) || fields.contains_key("entity_id");
            for (name, value) in fields {
                match value {
                    Value::String(text) if is_secret(name) || (name == "value" && !is_plain) => "***".clone_into(text),
                    // What a runtime is started with: its password is in it.
                    Value::Object(variables) if name == "environment" => {
                        for variable in variables.values_mut() {
                            *variable = Value::String("***".to_owned());
                        }
                    }
                    other => mask(other),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mask),
        _ => {}
    }
}

fn is_secret(name: &str) -> bool {
    let is_token = name.contains("token") && !name.ends_with("page_token");
    is_token || name.contains("password") || matches!(name, "api_key" | "hash")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_masked_at_every_depth() {
        let check = |mut value: Value, expected: Value| {
            mask(&mut value);
            assert_eq!(value, expected);
        };
        check(
            json!({"user": "admin", "password": "x", "new_password": "z", "list": [{"raw_token": "y", "id": "1"}]}),
            json!({"user": "admin", "password": "***", "new_password": "***", "list": [{"raw_token": "***", "id": "1"}]}),
        );
        check(
            json!({"id": "1", "api_key": "x", "hash": "$2", "next_page_token": "t"}),
            json!({"id": "1", "api_key": "***", "hash": "***", "next_page_token": "t"}),
        );
        check(json!({"value": "x"}), json!({"value": "***"}));
        check(
            json!([{"name": "A", "value": "x", "secret": true}, {"name": "B", "value": "y", "secret": false}]),
            json!([{"name": "A", "value": "***", "secret": true}, {"name": "B", "value": "y", "secret": false}]),
        );
        check(
            json!({"aliases": [{"entity_id": "1", "value": "acme"}], "environment": {"OMGSERVERS_X": "y"}}),
            json!({"aliases": [{"entity_id": "1", "value": "acme"}], "environment": {"OMGSERVERS_X": "***"}}),
        );
    }

    #[test]
    fn the_log_is_bounded_and_keeps_the_newest() {
        let folder = tempfile::tempdir().unwrap();
        let log = RequestLog::new(folder.path());
        for n in 0..40 {
            log.add("http://x", &json!({"n": n, "fill": "x".repeat(100_000)}), Ok(json!({})));
        }
        let text = log.read().unwrap();
        assert!(text.len() < 3 * BYTES_MAX as usize && text.contains(r#""n":39"#) && !text.contains(r#""n":0}"#));
    }
}
