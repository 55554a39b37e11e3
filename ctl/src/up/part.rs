//! One supervised program: started, watched, started again with growing delay when it dies, stopped when told.

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::log::Log;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::process::Process;

/// How long a part may take to stop by itself.
pub(super) const STOP_GRACE: Duration = Duration::from_secs(15);

/// The first start makes a database, and the machine may be slow.
const READY_WITHIN: Duration = Duration::from_secs(180);

/// How often a starting part is asked whether it is ready, and how long it may take to answer.
const READY_POLL: Duration = Duration::from_millis(100);
const READY_TIMEOUT: Duration = Duration::from_secs(2);

/// How often the log of a part is measured.
const LOG_TRIM_INTERVAL: Duration = Duration::from_secs(10);

const RESTART_DELAY_MIN: Duration = Duration::from_millis(500);
const RESTART_DELAY_MAX: Duration = Duration::from_secs(30);

/// Whoever was well for so long starts with the shortest delay again.
const WELL_AFTER: Duration = Duration::from_secs(60);

pub(super) struct Part {
    pub(super) name: &'static str,
    pub(super) program: PathBuf,
    pub(super) environment: Vec<(String, String)>,
    pub(super) ready_url: String,
    pub(super) log: Log,
    pub(super) pid_file: PathBuf,
}

#[derive(Clone)]
enum State {
    Starting,
    Ready,
    /// It never became ready.
    Failed(String),
}

/// A part with the task that looks after it.
pub(super) struct Supervised {
    state: watch::Receiver<State>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Supervised {
    pub(super) fn start(part: Part, output: Output) -> Self {
        let (state_sender, state) = watch::channel(State::Starting);
        let (stop, stop_receiver) = watch::channel(false);
        output.note(format_args!("starting the {}…", part.name));
        let keeper = Keeper {
            part,
            output,
            state: state_sender,
            stop: stop_receiver,
        };
        Self {
            state,
            stop,
            task: tokio::spawn(keeper.keep()),
        }
    }

    /// Waits until it is ready for the first time. Dying before that is a failure; later it is started again.
    pub(super) async fn ready(&mut self) -> Result {
        let state = self.state.wait_for(|state| !matches!(state, State::Starting)).await;
        match state.as_deref() {
            Ok(State::Failed(message)) => Err(Failure::refused(message.clone())),
            Ok(_) => Ok(()),
            Err(_) => Err(Failure::refused("the supervisor itself has ended")),
        }
    }

    /// Returns when it is gone.
    pub(super) async fn stop(self) {
        let _ = self.stop.send(true);
        let _ = self.task.await;
    }
}

struct Keeper {
    part: Part,
    output: Output,
    state: watch::Sender<State>,
    stop: watch::Receiver<bool>,
}

impl Keeper {
    async fn keep(mut self) {
        let mut delay = RESTART_DELAY_MIN;
        loop {
            let Some((reason, well)) = self.run_once().await else {
                return;
            };
            let (name, log) = (self.part.name, self.part.log.path().display());
            if matches!(*self.state.borrow(), State::Starting) {
                let message = format!("the {name} {reason}\nits log is `{log}`");
                self.state.send_replace(State::Failed(message));
                return;
            }
            if well >= WELL_AFTER {
                delay = RESTART_DELAY_MIN;
            }
            self.output.warning(format_args!(
                "the {name} {reason}; starting it again in {:.1} s",
                delay.as_secs_f32()
            ));
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                () = told(&mut self.stop) => return,
            }
            delay = (delay * 2).min(RESTART_DELAY_MAX);
        }
    }

    /// Runs it until it ends: why, and how long it was well. `None` when it was told to stop.
    async fn run_once(&mut self) -> Option<(String, Duration)> {
        let mut child = match self.part.spawn() {
            Ok(started) => started,
            Err(cause) => return Some((format!("cannot be started: {cause:#}"), Duration::ZERO)),
        };
        let started = Instant::now();
        let mut ready_since = None;
        let mut ready = Box::pin(ready(self.part.ready_url.clone()));
        let mut trim = tokio::time::interval(LOG_TRIM_INTERVAL);
        let reason = loop {
            tokio::select! {
                _ = trim.tick() => {
                    let log = self.part.log.clone();
                    let _ = tokio::task::spawn_blocking(move || log.trim()).await;
                }
                status = child.wait() => break describe(status.ok(), &self.part.log, ready_since.is_none()),
                () = told(&mut self.stop) => {
                    stop(&mut child, &self.part, self.output).await;
                    return None;
                }
                () = &mut ready, if ready_since.is_none() => {
                    ready_since = Some(Instant::now());
                    self.state.send_replace(State::Ready);
                    self.output.note(format_args!("the {} is ready after {:.1} s", self.part.name, started.elapsed().as_secs_f32()));
                }
                () = tokio::time::sleep_until(started + READY_WITHIN), if ready_since.is_none() => {
                    stop(&mut child, &self.part, self.output).await;
                    break format!("was not ready within {} s", READY_WITHIN.as_secs());
                }
            }
        };
        let _ = std::fs::remove_file(&self.part.pid_file);
        Some((reason, ready_since.map_or(Duration::ZERO, |since| since.elapsed())))
    }
}

impl Part {
    fn spawn(&self) -> anyhow::Result<Child> {
        let log = self
            .log
            .open()
            .with_context(|| format!("cannot write `{}`", self.log.path().display()))?;
        let mut command = Command::new(&self.program);
        command
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // A group of its own: Ctrl-C reaches only the supervisor, which stops the parts in order.
            .process_group(0);
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot run `{}`", self.program.display()))?;
        let stored = match child.id().and_then(Process::of) {
            Some(process) => process.store(&self.pid_file),
            // It has ended already.
            None => Ok(()),
        };
        if let Err(cause) = stored {
            child.start_kill()?;
            return Err(cause);
        }
        Ok(child)
    }
}

/// Returns once it should stop.
async fn told(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Asks until the answer is yes.
async fn ready(url: String) {
    let client = reqwest::Client::builder()
        .timeout(READY_TIMEOUT)
        .no_proxy()
        .tls_certs_only([]);
    let Ok(client) = client.build() else {
        // Without a client nobody can say that it is ready; the limit for starting ends the wait.
        return std::future::pending().await;
    };
    loop {
        match client.get(&url).send().await {
            Ok(answer) if answer.status().is_success() => return,
            _ => tokio::time::sleep(READY_POLL).await,
        }
    }
}

async fn stop(child: &mut Child, part: &Part, output: Output) {
    if let Some(process) = child.id().and_then(Process::of) {
        process.signal(rustix::process::Signal::TERM);
        if tokio::time::timeout(STOP_GRACE, child.wait()).await.is_err() {
            output.warning(format_args!(
                "the {} did not stop within {} s and is killed",
                part.name,
                STOP_GRACE.as_secs()
            ));
            let _ = child.kill().await;
        }
    }
    let _ = std::fs::remove_file(&part.pid_file);
    output.note(format_args!("the {} is stopped", part.name));
}

fn describe(status: Option<ExitStatus>, log: &Log, with_tail: bool) -> String {
    let how = match status {
        Some(status) => format!("ended: {status}"),
        None => "was lost".to_owned(),
    };
    if with_tail {
        format!("{how}; its last words:\n{}", log.tail(12).trim_end())
    } else {
        how
    }
}
