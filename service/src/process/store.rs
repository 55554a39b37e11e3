//! What a process host keeps on disk. Everything about a process is there, so that a service that was killed finds what
//! it started, and two that share a folder do not start the same twice:
//!
//! ```text
//! lock                       held for moments, by whoever looks and then changes
//! images/<digest>/           the unpacked image
//! running/<name>/state.json  what runs: generation, number and start time of the process
//! running/<name>/exit.<pid>  how it ended, if a service was its parent to the end
//! running/<name>/log, log.1  what it printed
//! ```

use std::{
    collections::HashSet,
    fmt,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::table::{self, Identity};
use crate::{
    archive,
    host::{HostError, RunSpec},
};

const REMOVAL_ATTEMPTS: usize = 5;
/// Size at which a log is put aside; so one process keeps at most about twice as much.
const LOG_BYTES_MAX: u64 = 10 << 20;
/// Unpacked images that are kept though nothing runs from them.
const IMAGES_MAX: usize = 8;
const MARK: &str = "OMGSERVERS_PROCESS";

/// The folder of a process host.
pub(super) struct Store {
    directory: PathBuf,
}

/// What is known of one process: `state.json`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) name: String,
    pub(super) runtime_id: i64,
    pub(super) generation: i64,
    /// Digest of the image it runs from.
    image: String,
    boot_id: String,
    /// Number and start time of the process; missing for a moment while it is started.
    pub(super) process: Option<(i32, u64)>,
}

impl Store {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    pub(super) fn states(&self) -> Result<Vec<State>, HostError> {
        Ok(self.names()?.iter().filter_map(|name| self.state(name)).collect())
    }

    fn names(&self) -> Result<Vec<String>, HostError> {
        let entries = match fs::read_dir(self.directory.join("running")) {
            Ok(entries) => entries,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(cause) => return Err(self.failure(&cause)),
        };
        let names = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok());
        Ok(names.collect())
    }

    pub(super) fn state(&self, name: &str) -> Option<State> {
        let bytes = fs::read(self.folder(name).join("state.json")).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    pub(super) fn save(&self, state: &State) -> Result<(), HostError> {
        let folder = self.folder(&state.name);
        let bytes = serde_json::to_vec(state).expect("a state has no shape that JSON lacks");
        let written = fs::write(folder.join("state.new"), bytes)
            .and_then(|()| fs::rename(folder.join("state.new"), folder.join("state.json")));
        written.map_err(|cause| self.failure(&cause))
    }

    /// Puts a log aside that has grown too large. The process appends to the file it has open, so the file stays.
    pub(super) fn trim_log(&self, name: &str) {
        let log = self.folder(name).join("log");
        if fs::metadata(&log).is_ok_and(|there| there.len() > LOG_BYTES_MAX) {
            let trimmed = fs::copy(&log, self.folder(name).join("log.1"))
                .and_then(|_| File::options().write(true).open(&log))
                .and_then(|file| file.set_len(0));
            if let Err(error) = trimmed {
                tracing::warn!(container.name = name, %error, "a log cannot be trimmed");
            }
        }
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.directory.join("running").join(name)
    }

    /// The variable of its environment by which a process is found whose number was not written down in time.
    pub(super) fn mark(&self, name: &str, generation: i64) -> (&'static str, String) {
        (MARK, format!("{}#{generation}", self.folder(name).display()))
    }

    /// Runs `work` while no other service looks and changes.
    pub(super) fn locked<T>(&self, work: impl FnOnce() -> Result<T, HostError>) -> Result<T, HostError> {
        let file =
            fs::create_dir_all(self.directory.join("running")).and_then(|()| File::create(self.directory.join("lock")));
        let file = file.map_err(|cause| self.failure(&cause))?;
        file.lock().map_err(|cause| self.failure(&cause))?;
        work() // the lock goes with the file
    }

    /// Writes down that a process is about to be started; answers its log.
    pub(super) fn begin(&self, state: &State) -> Result<File, HostError> {
        let folder = self.folder(&state.name);
        fs::create_dir_all(&folder).map_err(|cause| self.failure(&cause))?;
        self.save(state)?;
        let log = File::options().append(true).create(true).open(folder.join("log"));
        log.map_err(|cause| self.failure(&cause))
    }

    /// Writes down how a process ended. If its folder is gone, so is the interest.
    pub(super) fn write_exit(&self, name: &str, pid: i32, detail: &str) {
        let _ = fs::write(self.exit_file(name, pid), detail);
    }

    pub(super) fn exit(&self, name: &str, pid: i32) -> Option<String> {
        fs::read_to_string(self.exit_file(name, pid)).ok()
    }

    fn exit_file(&self, name: &str, pid: i32) -> PathBuf {
        self.folder(name).join(format!("exit.{pid}"))
    }

    /// One state after an interrupted start was looked into. Only under the lock.
    pub(super) fn settled_state(&self, name: &str) -> Option<State> {
        self.state(name).map(|state| self.settled(state))
    }

    /// All states after interrupted starts and removals were looked into. Only under the lock.
    pub(super) fn settled_states(&self) -> Result<Vec<State>, HostError> {
        for name in self.names()? {
            if !self.folder(&name).join("state.json").exists() {
                self.remove(&name)?;
            }
        }
        Ok(self.states()?.into_iter().map(|state| self.settled(state)).collect())
    }

    /// A state without a process was written by a service that was killed a moment later: did its process start?
    /// Only under the lock; otherwise a start may be under way.
    fn settled(&self, mut state: State) -> State {
        if state.process.is_none() {
            let (name, value) = self.mark(&state.name, state.generation);
            // A number that no process has stands for one that has ended.
            let process = table::find_by_environment(&format!("{name}={value}")).unwrap_or(Identity {
                pid: i32::MAX,
                started: 0,
            });
            state.process = Some((process.pid, process.started));
            if let Err(error) = self.save(&state) {
                tracing::warn!(container.name = %state.name, %error, "the state of a process cannot be written");
            }
        }
        state
    }

    pub(super) fn remove(&self, name: &str) -> Result<(), HostError> {
        let folder = self.folder(name);
        let mut removed = fs::remove_dir_all(&folder);
        for _ in 0..REMOVAL_ATTEMPTS {
            // Another service may be putting its log aside.
            if !matches!(&removed, Err(cause) if cause.kind() == io::ErrorKind::DirectoryNotEmpty) {
                break;
            }
            removed = fs::remove_dir_all(&folder);
        }
        removed.map_err(|cause| self.failure(&cause))
    }

    pub(super) fn image_folder(&self, digest: &str) -> PathBuf {
        self.directory.join("images").join(digest)
    }

    /// Keeps the newest images and those that something runs from.
    pub(super) fn remove_old_images(&self) -> Result<(), HostError> {
        let used: HashSet<String> = self.states()?.into_iter().map(|state| state.image).collect();
        let entries = fs::read_dir(self.directory.join("images")).map_err(|cause| self.failure(&cause))?;
        let mut images: Vec<_> = entries
            .flatten()
            .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
            .filter(|(_, path)| path.extension().is_none())
            .collect();
        images.sort();
        images.reverse();
        for (_, path) in images.into_iter().skip(IMAGES_MAX) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if !used.contains(&name)
                && let Err(error) = fs::remove_dir_all(&path)
            {
                tracing::warn!(image.digest = name, %error, "an unpacked image that is no longer used cannot be removed");
            }
        }
        Ok(())
    }

    fn failure(&self, cause: &io::Error) -> HostError {
        let text = format!("host `{self}`: {cause}");
        match cause.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => HostError::Full(text),
            _ => HostError::Unreachable(text),
        }
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process://{}", self.directory.display())
    }
}

impl State {
    /// A process that is about to be started.
    pub(super) fn new(spec: &RunSpec, image: &str) -> Self {
        Self {
            name: spec.name.clone(),
            runtime_id: spec.runtime_id,
            generation: spec.generation,
            image: image.to_owned(),
            boot_id: table::boot_id(),
            process: None,
        }
    }

    /// The process, if it belongs to this start of the machine.
    pub(super) fn identity(&self) -> Option<Identity> {
        let (pid, started) = self.process?;
        (self.boot_id == table::boot_id()).then_some(Identity { pid, started })
    }

    pub(super) fn alive(&self) -> bool {
        self.identity().is_some_and(table::alive)
    }
}

/// Unpacks into a folder beside `root` and moves it there, so that `root` is whole as soon as it is there.
pub(super) fn unpack_beside(archive: &Path, image: &archive::Image, root: &Path) -> anyhow::Result<()> {
    let partial = root.with_extension(format!("partial-{}", std::process::id()));
    if partial.exists() {
        fs::remove_dir_all(&partial)?;
    }
    fs::create_dir_all(&partial)?;
    let unpacked = archive::unpack(archive, image, &partial).and_then(|()| match fs::rename(&partial, root) {
        Err(_) if root.is_dir() => Ok(()), // another service was faster
        moved => Ok(moved?),
    });
    if partial.exists() {
        fs::remove_dir_all(&partial)?;
    }
    unpacked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_images_go_unless_something_runs_from_them() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path().to_owned());
        let digests: Vec<String> = (0..IMAGES_MAX + 4).map(|number| format!("image{number:02}")).collect();
        for digest in &digests {
            fs::create_dir_all(store.image_folder(digest)).unwrap();
            // Times of files are coarse: without this, "newest" would mean little.
            let age =
                std::time::Duration::from_secs(1_000 + digests.iter().position(|it| it == digest).unwrap() as u64);
            let folder = File::open(store.image_folder(digest)).unwrap();
            folder.set_modified(std::time::UNIX_EPOCH + age).unwrap();
        }
        let spec = RunSpec {
            name: "lobby_1".to_owned(),
            ..RunSpec::default()
        };
        store.begin(&State::new(&spec, "image00")).unwrap();
        store.remove_old_images().unwrap();
        let there = |number: usize| store.image_folder(&digests[number]).exists();
        assert!(there(0), "something runs from it");
        assert!(!there(1) && !there(3));
        assert!(there(4) && there(IMAGES_MAX + 3));
    }

    #[test]
    fn a_folder_that_was_half_removed_is_removed_when_it_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path().to_owned());
        fs::create_dir_all(store.folder("lobby_1")).unwrap();
        assert!(store.locked(|| store.settled_states()).unwrap().is_empty());
        assert!(!store.folder("lobby_1").exists());
    }
}
