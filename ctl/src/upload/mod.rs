//! The files of a folder as one archive, and the archive on its way to the service.

mod ignored;

use std::fs::{self, File};
use std::io::{Cursor, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use bytes::Bytes;
use futures_util::stream;
use indicatif::{ProgressBar, ProgressStyle};
use omgservers_protocol::developer::{UploadFilesArchive, UploadedFilesArchive};
use zip::write::SimpleFileOptions;

use self::ignored::Ignored;
use crate::failure::{Failure, Result};
use crate::state::DEFAULT_DIRECTORY;
use omgservers_protocol::client::{CallError, Client};

/// What is handed to the network at once; the bar moves in such steps.
const CHUNK_BYTES: usize = 64 << 10;

/// Never sent: there are passwords and histories in them.
const NEVER_SENT: [&str; 3] = [DEFAULT_DIRECTORY, crate::up::DATA_DIRECTORY, ".git"];

/// Packs all files below a folder, in the order of their names and without their times: the same files give the same
/// bytes. The folder that omgctl keeps its state in is no part of them.
pub(crate) fn pack(folder: &Path, state: &Path) -> Result<Vec<u8>> {
    let shown = folder.display();
    let files = files(folder, state).map_err(|wrong| Failure::usage(format!("`{shown}`: {wrong:#}")))?;
    if files.is_empty() {
        return Err(Failure::usage(format!("`{shown}` has no files to send")));
    }
    archive(&files).map_err(|wrong| Failure::usage(format!("`{shown}`: {wrong:#}")))
}

/// Sends an archive; on a terminal a bar shows how far it is.
pub(crate) async fn send(
    client: &Client,
    call: &UploadFilesArchive,
    archive: Bytes,
) -> std::result::Result<UploadedFilesArchive, CallError> {
    let bytes = archive.len() as u64;
    // It draws on stderr, and only where that is a terminal.
    let bar = ProgressBar::new(bytes);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {bytes_per_sec}") {
        bar.set_style(style);
    }
    let moving = bar.clone();
    let chunks = (0..archive.len()).step_by(CHUNK_BYTES).map(move |at| {
        let chunk = archive.slice(at..archive.len().min(at + CHUNK_BYTES));
        moving.inc(chunk.len() as u64);
        Ok::<_, std::io::Error>(chunk)
    });
    let body = reqwest::Body::wrap_stream(stream::iter(chunks));
    let answer = client.upload(call, body, bytes).await;
    bar.finish_and_clear();
    answer
}

/// Where it is, and its name in the archive.
struct Packed {
    path: PathBuf,
    name: String,
}

/// All files below a folder except those that its `.dockerignore` names, those that are never sent and links that lead
/// out of it.
fn files(folder: &Path, state: &Path) -> anyhow::Result<Vec<Packed>> {
    let root = folder.canonicalize()?;
    // One that is not there yet holds nothing.
    let state = state.canonicalize().ok();
    let is_state = |path: &Path| state.as_deref().is_some_and(|state| path.starts_with(state));
    if is_state(&root) {
        bail!("omgctl keeps its credentials there");
    }
    let is_never_sent = |path: &Path| {
        let inside = path.strip_prefix(&root).unwrap_or(path);
        is_state(path) || inside.iter().any(|step| NEVER_SENT.iter().any(|name| step == *name))
    };
    let ignored = match fs::read_to_string(root.join(".dockerignore")) {
        Ok(text) => Ignored::parse(&text),
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => Ignored::parse(""),
        Err(cause) => return Err(cause).context("cannot read .dockerignore"),
    };
    let mut found = Vec::new();
    let mut folders = vec![(root.clone(), String::new())];
    while let Some((folder, prefix)) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot read `{prefix}`"))? {
            let entry = entry?;
            let Ok(step) = entry.file_name().into_string() else {
                bail!("the name of `{}` is not UTF-8", entry.path().display());
            };
            let name = format!("{prefix}{step}");
            let (path, kind) = (entry.path(), entry.file_type()?);
            // A link to a file of the same folder is sent as that file. Links to folders are not followed: what is in
            // them is sent by its own name.
            let target = if kind.is_symlink() {
                path.canonicalize().ok()
            } else {
                Some(path)
            };
            let Some(path) = target.filter(|path| path.starts_with(&root) && !is_never_sent(path)) else {
                continue;
            };
            if kind.is_dir() {
                folders.push((path, format!("{name}/")));
            } else if !ignored.contains(&name) && path.is_file() {
                found.push(Packed { path, name });
            }
        }
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

fn archive(files: &[Packed]) -> anyhow::Result<Vec<u8>> {
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for file in files {
        let failed = || format!("cannot read `{}`", file.name);
        let mut content = Vec::new();
        let mut open = File::open(&file.path).with_context(failed)?;
        open.read_to_end(&mut content).with_context(failed)?;
        let is_program = open.metadata().with_context(failed)?.permissions().mode() & 0o111 != 0;
        let options = SimpleFileOptions::default()
            .compression_method(zip::CompressionMethod::Deflated)
            .last_modified_time(zip::DateTime::default())
            .large_file(content.len() as u64 >= u64::from(u32::MAX))
            .unix_permissions(if is_program { 0o755 } else { 0o644 });
        archive.start_file(file.name.as_str(), options)?;
        std::io::Write::write_all(&mut archive, &content)?;
    }
    Ok(archive.finish()?.into_inner())
}
