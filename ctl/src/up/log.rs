//! What a part writes, kept in a file of bounded size. The part writes to the file itself, not through the supervisor: it
//! has to live on when the supervisor is killed.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};

/// Two files of about this size are kept for each part.
const BYTES_MAX: u64 = 16 << 20;

#[derive(Clone)]
pub(super) struct Log {
    file: PathBuf,
}

impl Log {
    pub(super) fn new(file: PathBuf) -> Self {
        Self { file }
    }

    pub(super) fn path(&self) -> &Path {
        &self.file
    }

    /// For stdout and stderr of the part: everything is added at the end, wherever that is by then.
    pub(super) fn open(&self) -> std::io::Result<File> {
        OpenOptions::new().append(true).create(true).open(&self.file)
    }

    /// Puts the content aside when it has become too much; a line that is written at this moment may be lost.
    pub(super) fn trim(&self) -> std::io::Result<()> {
        if fs::metadata(&self.file)?.len() > BYTES_MAX {
            fs::copy(&self.file, self.file.with_extension("log.1"))?;
            OpenOptions::new().write(true).open(&self.file)?.set_len(0)?;
        }
        Ok(())
    }

    /// The last lines, for people.
    pub(super) fn tail(&self, lines: usize) -> String {
        let text = fs::read(&self.file).unwrap_or_default();
        let text = String::from_utf8_lossy(&text[text.len().saturating_sub(16 << 10)..]).into_owned();
        let all: Vec<_> = text.lines().collect();
        let last = &all[all.len().saturating_sub(lines)..];
        last.iter().map(|line| format!("  | {line}\n")).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_talkative_part_fills_two_files_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let log = Log::new(folder.path().join("part.log"));
        let mut writer = log.open().unwrap();
        let line = "x".repeat(1 << 20) + "\n";
        for _ in 0..50 {
            writer.write_all(line.as_bytes()).unwrap();
            log.trim().unwrap();
        }
        writer.write_all(b"first\nlast\n").unwrap();
        assert_eq!(log.tail(2), "  | first\n  | last\n");
        let files = fs::read_dir(folder.path()).unwrap();
        let size: u64 = files.map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
        assert!(size < 3 * BYTES_MAX, "{size}");
    }
}
