//! The machine itself as a host, for development and tests where there is no Docker: an archive is unpacked once and
//! its entry point runs as a child process. Nothing is confined: no limits, no network of its own, the files of the
//! machine in place of the image's. The program should be linked statically.

mod launch;
mod store;
mod table;

use std::{
    collections::HashSet, os::unix::process::ExitStatusExt, path::PathBuf, process::ExitStatus, sync::Arc,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};
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
use store::{State, Store};

/// How often processes that are not our children are looked at, and logs are measured.
const POLL_INTERVAL: Duration = Duration::from_millis(150);
/// How often a process that was told to end is looked at.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long the kernel may take to end a killed process.
const KILL_WAIT: Duration = Duration::from_secs(5);
/// A start begins again when another service started the same meanwhile.
const START_ATTEMPTS: usize = 5;
/// Events that wait for a slow reader; beyond that the watch waits.
const EVENTS_MAX: usize = 256;

/// This machine as a host.
#[derive(Clone)]
pub struct ProcessHost {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    settings: HostSettings,
    /// One image is unpacked at a time.
    unpacking: Mutex<()>,
    /// Numbers of the processes whose end this service hears of and writes down.
    children: std::sync::Mutex<HashSet<i32>>,
    /// One of them ended.
    ended: Notify,
}

impl ProcessHost {
    /// A host that keeps its state in `directory`, made at the first use.
    pub fn new(directory: PathBuf, settings: HostSettings) -> Self {
        let directory = std::path::absolute(&directory).unwrap_or(directory);
        Self {
            inner: Arc::new(Inner {
                store: Store::new(directory),
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
        Box::pin(self.inner.clone().off_thread(move || inner.store.locked(|| Ok(()))))
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
            let states = inner.store.locked(|| inner.store.settled_states())?;
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
        let command = launch::command(&image, &root, spec, self.store.mark(&spec.name, spec.generation))?;
        // What is there from an older generation is ended outside the lock, since that takes its time.
        for _ in 0..START_ATTEMPTS {
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
        Err(HostError::Refused(format!(
            "`{}` is started by another service again and again",
            spec.name
        )))
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
        let root = self.store.image_folder(&image.digest);
        if root.is_dir() {
            return Ok((image, root));
        }
        progress(Progress::Pulling);
        let _alone = self.unpacking.lock().await;
        if !root.is_dir() {
            let image = image.clone();
            let root = root.clone();
            let unpacked = blocking(self.settings.pull_timeout, move || {
                store::unpack_beside(&archive, &image, &root)
            });
            unpacked.await.map_err(unusable)?;
            let this = self.clone();
            self.clone().off_thread(move || this.store.remove_old_images()).await?;
        }
        Ok((image, root))
    }

    /// Starts the process, unless it runs already. Answers an older one that must be ended first.
    fn spawn_unless_there(self: Arc<Self>, spec: &RunSpec, command: &Launch) -> Result<Option<State>, HostError> {
        self.store.locked(|| {
            if let Some(there) = self.store.settled_state(&spec.name) {
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
        let mut state = State::new(spec, &launch.image);
        let log = self.store.begin(&state)?;
        let started = launch.spawn(&log).inspect_err(|_| {
            let _ = self.store.remove(&spec.name);
        });
        let mut child = started?;
        let pid = child
            .id()
            .and_then(|pid| i32::try_from(pid).ok())
            .expect("it was not waited for yet");
        // One that has ended already keeps its number until it is waited for.
        let started = table::identify(pid).map_or(0, |process| process.started);
        self.children().insert(pid);
        let this = self.clone();
        let name = spec.name.clone();
        tokio::spawn(async move {
            let detail = match child.wait().await {
                Ok(status) => describe_exit(status),
                Err(cause) => format!("ended: {cause}"),
            };
            end_group(pid, Signal::KILL);
            this.store.write_exit(&name, pid, &detail);
            this.children().remove(&pid);
            this.ended.notify_waiters();
        });
        state.process = Some((pid, started));
        self.store.save(&state)
    }

    /// Ends and removes the process, unless it is newer than `generation_max`.
    async fn stop(self: &Arc<Self>, name: &str, grace: Duration, generation_max: i64) -> Result<(), HostError> {
        check_name(name)?;
        let this = self.clone();
        let wanted = name.to_owned();
        let there = self
            .clone()
            .off_thread(move || this.store.locked(|| Ok(this.store.settled_state(&wanted))));
        let Some(there) = there.await?.filter(|there| there.generation <= generation_max) else {
            return Ok(());
        };
        if let Some(process) = there.identity() {
            if there.alive() {
                end_group(process.pid, Signal::TERM);
                wait_until(grace, || !table::alive(process)).await;
            }
            if table::group_alive(process) {
                end_group(process.pid, Signal::KILL);
                if !wait_until(KILL_WAIT, || !table::group_alive(process)).await {
                    return Err(HostError::Refused(format!("`{name}` did not end though it was killed")));
                }
            }
            // Its end is being written down.
            wait_until(KILL_WAIT, || !self.children().contains(&process.pid)).await;
        }
        let this = self.clone();
        self.clone()
            .off_thread(move || {
                this.store.locked(|| match this.store.state(&there.name) {
                    Some(state) if state == there => this.store.remove(&there.name),
                    _ => Ok(()),
                })
            })
            .await
    }

    async fn watch(self: Arc<Self>, sender: mpsc::Sender<HostEvent>) {
        let mut told: HashSet<State> = HashSet::new();
        let mut lost: Option<String> = None;
        let mut connected = false;
        loop {
            let ended = self.ended.notified();
            let this = self.clone();
            let dead = self.clone().off_thread(move || {
                let states = this.store.states()?;
                states.iter().for_each(|state| this.store.trim_log(&state.name));
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
        Some(self.store.exit(&state.name, pid).unwrap_or_else(|| "ended".to_owned()))
    }

    async fn off_thread<T: Send + 'static>(
        self: Arc<Self>,
        work: impl FnOnce() -> Result<T, HostError> + Send + 'static,
    ) -> Result<T, HostError> {
        let limit = self.settings.response_timeout;
        match blocking(limit, move || Ok(work())).await {
            Ok(result) => result,
            Err(why) => Err(HostError::Unreachable(format!("host `{}`: {why}", self.store))),
        }
    }
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
