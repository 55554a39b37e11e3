//! The machine itself as a host, for development and tests where there is no Docker: an archive is unpacked once and
//! its entry point runs as a child process. Nothing is confined: no limits, no network of its own, the files of the
//! machine in place of the image's. The program should be linked statically.
//!
//! Everything about a process is on disk, so that a service that was killed finds what it started, and two that share
//! a folder do not start the same twice:
//!
//! ```text
//! lock                       held for moments, by whoever looks and then changes
//! images/<digest>/           the unpacked image
//! running/<name>/state.json  what runs: generation, number and start time of the process
//! running/<name>/exit.<pid>  how it ended, if a service was its parent to the end
//! running/<name>/log, log.1  what it printed
//! ```

mod launch;
mod table;

use std::{
    collections::HashSet,
    fs::{self, File},
    io,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::Arc,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::{Mutex, Notify, mpsc},
    time::Instant,
};

use crate::{
    archive,
    host::{
        Host, HostError, HostEvent, HostSettings, OnProgress, Progress, Reply, RunSpec, Running, Usage, archive_path,
        blocking, check_name,
    },
};
use launch::Launch;
use table::Identity;

/// How often processes that are not our children are looked at, and logs are measured.
const POLL_INTERVAL: Duration = Duration::from_millis(150);
/// How often a process that was told to end is looked at.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long the kernel may take to end a killed process.
const KILL_WAIT: Duration = Duration::from_secs(5);
const REMOVAL_ATTEMPTS: usize = 5;
/// Size at which a log is put aside; so one process keeps at most about twice as much.
const LOG_BYTES_MAX: u64 = 10 << 20;
/// Events that wait for a slow reader; beyond that the watch waits.
const EVENTS_MAX: usize = 256;
/// Unpacked images that are kept though nothing runs from them.
const IMAGES_MAX: usize = 8;
/// Environment variable by which a process is found whose number was not written down in time.
const MARK: &str = "OMGSERVERS_PROCESS";

/// This machine as a host.
#[derive(Clone)]
pub struct ProcessHost {
    inner: Arc<Inner>,
}

struct Inner {
    directory: PathBuf,
    settings: HostSettings,
    /// One image is unpacked at a time.
    unpacking: Mutex<()>,
    /// Numbers of the processes whose end this service hears of and writes down.
    children: std::sync::Mutex<HashSet<i32>>,
    /// One of them ended.
    ended: Notify,
}

/// `state.json`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct State {
    name: String,
    runtime_id: i64,
    generation: i64,
    /// Digest of the image it runs from.
    image: String,
    boot_id: String,
    /// Number and start time of the process; missing for a moment while it is started.
    process: Option<(i32, u64)>,
}

impl ProcessHost {
    /// A host that keeps its state in `directory`, made at the first use.
    pub fn new(directory: PathBuf, settings: HostSettings) -> Self {
        let directory = std::path::absolute(&directory).unwrap_or(directory);
        Self {
            inner: Arc::new(Inner {
                directory,
                settings,
                unpacking: Mutex::new(()),
                children: Default::default(),
                ended: Notify::new(),
            }),
        }
    }
}

impl Host for ProcessHost {
    fn ping(&self) -> Reply<'_, ()> {
        let inner = self.inner.clone();
        Box::pin(self.inner.clone().off_thread(move || inner.locked(|| Ok(()))))
    }

    fn start<'a>(&'a self, spec: &'a RunSpec, progress: OnProgress<'a>) -> Reply<'a, ()> {
        Box::pin(self.inner.clone().start(spec, progress))
    }

    fn stop<'a>(&'a self, name: &'a str, grace: Duration) -> Reply<'a, ()> {
        Box::pin(self.inner.stop(name, grace, i64::MAX))
    }

    fn list(&self) -> Reply<'_, Vec<Running>> {
        let inner = self.inner.clone();
        Box::pin(self.inner.clone().off_thread(move || {
            let states: Vec<_> =
                inner.locked(|| Ok(inner.states()?.into_iter().map(|it| inner.found(it)).collect()))?;
            let describe = |state: State| Running {
                exited: inner.exited(&state),
                name: state.name,
                runtime_id: state.runtime_id,
                generation: state.generation,
            };
            Ok(states.into_iter().map(describe).collect())
        }))
    }

    fn watch(&self) -> mpsc::Receiver<HostEvent> {
        let (sender, receiver) = mpsc::channel(EVENTS_MAX);
        let inner = self.inner.clone();
        tokio::spawn(async move {
            let unwatched = sender.clone();
            tokio::select! {
                () = unwatched.closed() => {}
                () = inner.watch(sender) => {}
            }
        });
        receiver
    }

    fn usage(&self) -> Reply<'_, Usage> {
        Box::pin(async {
            let containers = self.list().await?.iter().filter(|there| there.exited.is_none()).count();
            let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
            Ok(Usage {
                cpus: u32::try_from(cpus).unwrap_or(u32::MAX),
                memory_mb: table::memory_mb(),
                containers: u32::try_from(containers).unwrap_or(u32::MAX),
            })
        })
    }

    /// Processes share the machine's network.
    fn prune_networks(&self) -> Reply<'_, usize> {
        Box::pin(async { Ok(0) })
    }
}

impl Inner {
    async fn start(self: Arc<Self>, spec: &RunSpec, progress: OnProgress<'_>) -> Result<(), HostError> {
        check_name(&spec.name)?;
        let Some(archive) = archive_path(&spec.image, &self.settings)? else {
            return Err(HostError::Image(format!(
                "image `{}` is a name; a process:// host runs only archives: file:///path.tar",
                spec.image
            )));
        };
        let (image, root) = self.unpack(archive, progress).await?;
        progress(Progress::Starting);
        let command = launch::command(&image, &root, spec, (MARK, self.mark(&spec.name, spec.generation)))?;
        // What is there from an older generation is ended outside the lock, since that takes its time.
        loop {
            let this = self.clone();
            let spec = spec.clone();
            let command = command.clone();
            let older = self
                .clone()
                .off_thread(move || this.clone().spawn_unless_there(&spec, &command))
                .await?;
            match older {
                None => return Ok(()),
                Some(older) => self.stop(&older.name, Duration::ZERO, older.generation).await?,
            }
        }
    }

    /// The image and its unpacked root.
    async fn unpack(
        self: &Arc<Self>,
        archive: PathBuf,
        progress: OnProgress<'_>,
    ) -> Result<(archive::Image, PathBuf), HostError> {
        let shown = archive.display().to_string();
        let unusable = |why: String| HostError::Image(format!("archive `{shown}` cannot be used: {why}"));
        let source = archive.clone();
        let image = blocking(self.settings.response_timeout, move || archive::read(&source))
            .await
            .map_err(unusable)?;
        let root = self.directory.join("images").join(&image.digest);
        if root.is_dir() {
            return Ok((image, root));
        }
        progress(Progress::Pulling);
        let _alone = self.unpacking.lock().await;
        if !root.is_dir() {
            let image = image.clone();
            let root = root.clone();
            let unpacked = blocking(self.settings.pull_timeout, move || {
                unpack_beside(&archive, &image, &root)
            });
            unpacked.await.map_err(unusable)?;
            let this = self.clone();
            self.clone().off_thread(move || this.remove_old_images()).await?;
        }
        Ok((image, root))
    }

    /// Keeps the newest images and those that something runs from.
    fn remove_old_images(&self) -> Result<(), HostError> {
        let used: HashSet<String> = self.states()?.into_iter().map(|state| state.image).collect();
        let entries = fs::read_dir(self.directory.join("images")).map_err(|cause| self.disk_failure(&cause))?;
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

    /// Starts the process, unless it runs already. Answers an older one that must be ended first.
    fn spawn_unless_there(self: Arc<Self>, spec: &RunSpec, command: &Launch) -> Result<Option<State>, HostError> {
        self.locked(|| {
            if let Some(there) = self.state(&spec.name).map(|state| self.found(state)) {
                if there.generation > spec.generation {
                    return Err(HostError::Refused(format!(
                        "`{}` is at generation {} already, newer than {}",
                        spec.name, there.generation, spec.generation
                    )));
                }
                if there.generation == spec.generation && there.alive() {
                    return Ok(None);
                }
                // Also one that has ended: it may have left children.
                return Ok(Some(there));
            }
            self.spawn(spec, command)?;
            Ok(None)
        })
    }

    fn spawn(self: &Arc<Self>, spec: &RunSpec, launch: &Launch) -> Result<(), HostError> {
        let folder = self.folder(&spec.name);
        fs::create_dir_all(&folder).map_err(|cause| self.disk_failure(&cause))?;
        let mut state = State {
            name: spec.name.clone(),
            runtime_id: spec.runtime_id,
            generation: spec.generation,
            image: launch.image.clone(),
            boot_id: table::boot_id(),
            process: None,
        };
        self.save(&state)?;
        let log = File::options().append(true).create(true).open(folder.join("log"));
        let log = log.map_err(|cause| self.disk_failure(&cause))?;
        let started = launch.spawn(&log).inspect_err(|_| {
            let _ = fs::remove_dir_all(&folder);
        });
        let mut child = started?;
        let pid = child
            .id()
            .and_then(|pid| i32::try_from(pid).ok())
            .expect("it was not waited for yet");
        state.process = table::identify(pid).map(|process| (process.pid, process.started));
        self.save(&state)?;

        self.children().insert(pid);
        let this = self.clone();
        tokio::spawn(async move {
            let detail = match child.wait().await {
                Ok(status) => describe_exit(status),
                Err(cause) => format!("ended: {cause}"),
            };
            end_group(pid, Signal::KILL);
            // If the folder is gone, so is the interest.
            let _ = fs::write(exit_file(&folder, pid), detail);
            this.children().remove(&pid);
            this.ended.notify_waiters();
        });
        Ok(())
    }

    /// Ends and removes the process, unless it is newer than `generation_max`.
    async fn stop(self: &Arc<Self>, name: &str, grace: Duration, generation_max: i64) -> Result<(), HostError> {
        check_name(name)?;
        let this = self.clone();
        let wanted = name.to_owned();
        let there = self
            .clone()
            .off_thread(move || this.locked(|| Ok(this.state(&wanted).map(|state| this.found(state)))));
        let Some(there) = there.await?.filter(|there| there.generation <= generation_max) else {
            return Ok(());
        };
        if let Some(process) = there.identity() {
            if there.alive() {
                end_group(process.pid, Signal::TERM);
                wait_until(grace, || !table::alive(process)).await;
            }
            if table::group_alive(process.pid) {
                end_group(process.pid, Signal::KILL);
                if !wait_until(KILL_WAIT, || !table::group_alive(process.pid)).await {
                    return Err(HostError::Refused(format!("`{name}` did not end though it was killed")));
                }
            }
            // Its end is being written down.
            wait_until(KILL_WAIT, || !self.children().contains(&process.pid)).await;
        }
        let this = self.clone();
        self.clone()
            .off_thread(move || {
                this.locked(|| match this.state(&there.name) {
                    Some(state) if state == there => this.remove_folder(&there.name),
                    _ => Ok(()),
                })
            })
            .await
    }

    fn remove_folder(&self, name: &str) -> Result<(), HostError> {
        let folder = self.folder(name);
        let mut removed = fs::remove_dir_all(&folder);
        for _ in 0..REMOVAL_ATTEMPTS {
            // Another service may be putting its log aside.
            if !matches!(&removed, Err(cause) if cause.kind() == io::ErrorKind::DirectoryNotEmpty) {
                break;
            }
            removed = fs::remove_dir_all(&folder);
        }
        removed.map_err(|cause| self.disk_failure(&cause))
    }

    async fn watch(self: Arc<Self>, sender: mpsc::Sender<HostEvent>) {
        let mut told: HashSet<State> = HashSet::new();
        let mut lost: Option<String> = None;
        let mut connected = false;
        loop {
            let ended = self.ended.notified();
            let this = self.clone();
            let dead = self.clone().off_thread(move || {
                let states = this.states()?;
                states.iter().for_each(|state| this.trim_log(&state.name));
                let dead = states
                    .into_iter()
                    .filter_map(|state| this.exited(&state).map(|detail| (state, detail)));
                Ok(dead.collect::<Vec<_>>())
            });
            let mut events = Vec::new();
            match dead.await {
                Ok(dead) => {
                    if !connected {
                        events.push(HostEvent::Connected);
                    }
                    (connected, lost) = (true, None);
                    told.retain(|state| dead.iter().any(|(there, _)| there == state));
                    for (state, detail) in dead {
                        if told.insert(state.clone()) {
                            let State {
                                name,
                                runtime_id,
                                generation,
                                ..
                            } = state;
                            events.push(HostEvent::Died {
                                name,
                                runtime_id,
                                generation,
                                detail,
                            });
                        }
                    }
                }
                Err(error) => {
                    connected = false;
                    let reason = error.to_string();
                    if lost.as_ref() != Some(&reason) {
                        lost = Some(reason.clone());
                        events.push(HostEvent::Lost { reason });
                    }
                }
            }
            for event in events {
                if sender.send(event).await.is_err() {
                    return;
                }
            }
            let _ = tokio::time::timeout(POLL_INTERVAL, ended).await;
        }
    }

    fn children(&self) -> std::sync::MutexGuard<'_, HashSet<i32>> {
        self.children.lock().expect("no code panics while it holds this lock")
    }

    /// How the process ended; `None` while it runs, is being started, or its end is about to be written down.
    fn exited(&self, state: &State) -> Option<String> {
        let (pid, _) = state.process?;
        if state.alive() || self.children().contains(&pid) {
            return None;
        }
        let told = fs::read_to_string(exit_file(&self.folder(&state.name), pid));
        Some(told.unwrap_or_else(|_| "ended".to_owned()))
    }

    /// A state without a process was written by a service that was killed a moment later: did its process start?
    /// Only under the lock; otherwise a start may be under way.
    fn found(&self, mut state: State) -> State {
        if state.process.is_none() {
            let mark = format!("{MARK}={}", self.mark(&state.name, state.generation));
            // A number that no process has stands for one that has ended.
            let process = table::find_by_environment(&mark).unwrap_or(Identity {
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

    fn states(&self) -> Result<Vec<State>, HostError> {
        let entries = match fs::read_dir(self.directory.join("running")) {
            Ok(entries) => entries,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(cause) => return Err(self.disk_failure(&cause)),
        };
        let names = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok());
        Ok(names.filter_map(|name| self.state(&name)).collect())
    }

    fn state(&self, name: &str) -> Option<State> {
        let bytes = fs::read(self.folder(name).join("state.json")).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    fn save(&self, state: &State) -> Result<(), HostError> {
        let folder = self.folder(&state.name);
        let bytes = serde_json::to_vec(state).expect("a state has no shape that JSON lacks");
        let written = fs::write(folder.join("state.new"), bytes)
            .and_then(|()| fs::rename(folder.join("state.new"), folder.join("state.json")));
        written.map_err(|cause| self.disk_failure(&cause))
    }

    /// Puts a log aside that has grown too large. The process appends to the file it has open, so the file stays.
    fn trim_log(&self, name: &str) {
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

    fn mark(&self, name: &str, generation: i64) -> String {
        format!("{}#{generation}", self.folder(name).display())
    }

    /// Runs `work` while no other service looks and changes.
    fn locked<T>(&self, work: impl FnOnce() -> Result<T, HostError>) -> Result<T, HostError> {
        let file =
            fs::create_dir_all(self.directory.join("running")).and_then(|()| File::create(self.directory.join("lock")));
        let file = file.map_err(|cause| self.disk_failure(&cause))?;
        file.lock().map_err(|cause| self.disk_failure(&cause))?;
        work() // the lock goes with the file
    }

    async fn off_thread<T: Send + 'static>(
        self: Arc<Self>,
        work: impl FnOnce() -> Result<T, HostError> + Send + 'static,
    ) -> Result<T, HostError> {
        let limit = self.settings.response_timeout;
        match blocking(limit, move || Ok(work())).await {
            Ok(result) => result,
            Err(why) => Err(HostError::Unreachable(format!(
                "host `{}`: {why}",
                self.directory.display()
            ))),
        }
    }

    fn disk_failure(&self, cause: &io::Error) -> HostError {
        let text = format!("host `process://{}`: {cause}", self.directory.display());
        match cause.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => HostError::Full(text),
            _ => HostError::Unreachable(text),
        }
    }
}

impl State {
    /// The process, if it belongs to this start of the machine.
    fn identity(&self) -> Option<Identity> {
        let (pid, started) = self.process?;
        (self.boot_id == table::boot_id()).then_some(Identity { pid, started })
    }

    fn alive(&self) -> bool {
        self.identity().is_some_and(table::alive)
    }
}

/// Unpacks into a folder beside `root` and moves it there, so that `root` is whole as soon as it is there.
fn unpack_beside(archive: &Path, image: &archive::Image, root: &Path) -> anyhow::Result<()> {
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

fn exit_file(folder: &Path, pid: i32) -> PathBuf {
    folder.join(format!("exit.{pid}"))
}

fn describe_exit(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// Signals the group of a process; a group that is gone is no error.
fn end_group(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process_group(pid, signal);
    }
}

/// Whether `done` came true within `limit`.
async fn wait_until(limit: Duration, done: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    while !done() {
        if Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(STOP_POLL_INTERVAL).await;
    }
    true
}
