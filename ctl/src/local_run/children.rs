//! The game servers that run here: started, listened to, stopped, and missed when they end.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context;
use omgservers_protocol::developer::{LocalRuntime, LocalStart};
use omgservers_protocol::text::Secret;
use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::leash;
use crate::output::Output;
use crate::process::Process;
use crate::state::PREFIX;

/// How long a game server may take to stop by itself.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// What is still in the pipe when a process ends is there at once; something that it started may hold the pipe open.
const LAST_WORDS_WITHIN: Duration = Duration::from_secs(1);

/// A line without an end is cut here.
const LINE_BYTES_MAX: usize = 8 << 10;

/// What is run for every runtime.
pub(super) struct Program {
    pub(super) path: PathBuf,
    pub(super) arguments: Vec<OsString>,
    /// The installation as this machine reaches it; what its hosts would be told may not lead there from here.
    pub(super) service_url: String,
}

pub(super) struct Children {
    program: Program,
    output: Output,
    running: Vec<Running>,
    ends: mpsc::Receiver<(LocalStart, ExitStatus)>,
    end_sender: mpsc::Sender<(LocalStart, ExitStatus)>,
}

struct Running {
    start: LocalStart,
    name: String,
    process: Option<Process>,
    /// Set once it was asked to stop: when it is ended.
    stopping: Option<Instant>,
}

/// A game server that is gone.
pub(super) struct End {
    pub(super) start: LocalStart,
    pub(super) name: String,
    /// Such as `exited with code 1`.
    pub(super) detail: String,
    /// Nobody had asked it to.
    pub(super) by_itself: bool,
}

impl Children {
    pub(super) fn new(program: Program, output: Output) -> Self {
        let (end_sender, ends) = mpsc::channel(64);
        Self {
            program,
            output,
            running: Vec::new(),
            ends,
            end_sender,
        }
    }

    pub(super) fn program(&self) -> &Program {
        &self.program
    }

    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    pub(super) fn has(&self, start: LocalStart) -> bool {
        self.running.iter().any(|child| child.start == start)
    }

    /// Those that nobody asked to stop.
    pub(super) fn running(&self) -> Vec<LocalStart> {
        let running = self.running.iter().filter(|child| child.stopping.is_none());
        running.map(|child| child.start).collect()
    }

    /// Must be called from the first thread: the system ends a game server with the thread that started it.
    pub(super) fn start(
        &mut self,
        runtime: &LocalRuntime,
        environment: &BTreeMap<String, Secret>,
    ) -> anyhow::Result<String> {
        let name = name(runtime);
        // What is ours is not theirs: credentials may be in it.
        let own = std::env::vars_os().filter(|(name, _)| !name.as_encoded_bytes().starts_with(PREFIX.as_bytes()));
        let mut child = leash::command(&self.program.path)
            .args(&self.program.arguments)
            .env_clear()
            .envs(own)
            .envs(environment.iter().map(|(name, value)| (name, value.as_str())))
            .env("OMGSERVERS_SERVICE_URL", &self.program.service_url)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A group of its own: Ctrl-C reaches only us, who stop the game servers in order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot run `{}`", self.program.path.display()))?;
        let start = start_of(runtime);
        let process = child.id().and_then(Process::of);
        let words = [
            child.stdout.take().map(|pipe| self.listen(&name, pipe)),
            child.stderr.take().map(|pipe| self.listen(&name, pipe)),
        ];
        let ends = self.end_sender.clone();
        tokio::spawn(async move {
            let status = child.wait().await.unwrap_or_else(|_| ExitStatus::from_raw(0));
            for words in words.into_iter().flatten() {
                let _ = tokio::time::timeout(LAST_WORDS_WITHIN, words).await;
            }
            let _ = ends.send((start, status)).await;
        });
        self.running.push(Running {
            start,
            name: name.clone(),
            process,
            stopping: None,
        });
        Ok(name)
    }

    /// Asks all to stop that are not in the list; who does not is ended after a while.
    pub(super) fn stop_others(&mut self, wanted: &[LocalStart]) -> Vec<String> {
        let mut stopped = Vec::new();
        for child in &mut self.running {
            if child.stopping.is_none() && !wanted.contains(&child.start) {
                child.signal(Signal::TERM);
                child.stopping = Some(Instant::now() + STOP_GRACE);
                stopped.push(child.name.clone());
            }
        }
        stopped
    }

    /// Ends all at once.
    pub(super) fn kill(&mut self) {
        for child in &self.running {
            child.signal(Signal::KILL);
        }
    }

    /// Waits until one has ended. Those that were asked to stop and take too long are ended meanwhile.
    pub(super) async fn next_end(&mut self) -> End {
        loop {
            let patience = self.running.iter().filter_map(|child| child.stopping).min();
            let overdue = async {
                match patience {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                ended = self.ends.recv() => {
                    let (start, status) = ended.expect("this end of the channel is here");
                    let Some(at) = self.running.iter().position(|child| child.start == start) else {
                        continue;
                    };
                    let child = self.running.swap_remove(at);
                    return End { start, name: child.name, detail: describe(status), by_itself: child.stopping.is_none() };
                }
                () = overdue => {
                    let now = Instant::now();
                    for child in self.running.iter_mut().filter(|child| child.stopping.is_some_and(|until| until <= now)) {
                        self.output.warning(format_args!("{} did not stop within {} s and is killed", child.name, STOP_GRACE.as_secs()));
                        child.signal(Signal::KILL);
                        child.stopping = Some(now + STOP_GRACE);
                    }
                }
            }
        }
    }

    /// Prints what a game server says, line by line.
    fn listen(&self, name: &str, pipe: impl AsyncRead + Unpin + Send + 'static) -> JoinHandle<()> {
        let (output, name) = (self.output, name.to_owned());
        tokio::spawn(async move {
            let mut pipe = BufReader::with_capacity(LINE_BYTES_MAX, pipe);
            let mut line = Vec::new();
            while let Ok(read) = pipe.fill_buf().await {
                if read.is_empty() {
                    break;
                }
                let end = read.iter().position(|byte| *byte == b'\n');
                let part = end.unwrap_or(read.len());
                line.extend_from_slice(&read[..part]);
                pipe.consume(end.map_or(part, |end| end + 1));
                if end.is_some() || line.len() >= LINE_BYTES_MAX {
                    print(output, &name, &mut line);
                }
            }
            if !line.is_empty() {
                print(output, &name, &mut line);
            }
        })
    }
}

impl Running {
    /// To everything that it started, too.
    fn signal(&self, signal: Signal) {
        if let Some(process) = self.process {
            process.signal_group(signal);
        }
    }
}

pub(super) fn start_of(runtime: &LocalRuntime) -> LocalStart {
    LocalStart {
        runtime_id: runtime.runtime_id,
        generation: runtime.generation,
    }
}

/// As its container would be called.
pub(super) fn name(runtime: &LocalRuntime) -> String {
    format!("{}_{}", runtime.qualifier.to_lowercase(), runtime.runtime_id)
}

fn print(output: Output, name: &str, line: &mut Vec<u8>) {
    let text = String::from_utf8_lossy(line);
    output.line(format_args!("{name} | {}", text.trim_end_matches('\r')));
    line.clear();
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => status.to_string(),
    }
}
