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

    pub(crate) fn read(&self) -> std::io::Result<String> {
        let older = read_if_there(&self.older())?;
        Ok(older + &read_if_there(&self.file)?)
    }

    fn append(&self, entry: &str) -> std::io::Result<()> {
        if let Some(directory) = self.file.parent() {
            crate::state::create_private_directory(directory)?;
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

/// Passwords and tokens become `***`, wherever they are.
fn mask(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(secret) if name.contains("password") || name.contains("token") => {
                        "***".clone_into(secret)
                    }
                    other => mask(other),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mask),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_masked_at_every_depth() {
        let mut value = json!({"user": "admin", "password": "x", "list": [{"raw_token": "y", "id": "1"}]});
        mask(&mut value);
        assert_eq!(
            value,
            json!({"user": "admin", "password": "***", "list": [{"raw_token": "***", "id": "1"}]})
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
