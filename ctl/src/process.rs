//! Processes by pid and start time, so that a number that the system gave to somebody else is never mistaken.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde::{Deserialize, Serialize};

/// One process of this machine. Stored in pid files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    pid: i32,
    /// Clock ticks from the machine's start to the process's.
    started: u64,
}

/// How often a process is looked at that should go away.
const POLL: Duration = Duration::from_millis(50);

impl Process {
    /// The process of that number, unless it is gone.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let pid = i32::try_from(pid).ok()?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // `pid (name) state ppid …`: the name may hold anything, so count from its end. The start is field 22.
        let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let started = fields.get(19)?.parse().ok()?;
        (!matches!(fields[0], "Z" | "X")).then_some(Self { pid, started })
    }

    /// Everybody on this machine.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        entries.filter_map(|entry| Self::of(entry.file_name().to_str()?.parse().ok()?))
    }

    /// What it was started with; nothing where we may not look.
    pub(crate) fn environment(self) -> Vec<String> {
        self.words("environ")
    }

    pub(crate) fn command_line(self) -> Vec<String> {
        self.words("cmdline")
    }

    fn words(self, file: &str) -> Vec<String> {
        let content = std::fs::read(format!("/proc/{}/{file}", self.pid)).unwrap_or_default();
        content
            .split(|byte| *byte == 0)
            .filter(|word| !word.is_empty())
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect()
    }

    pub(crate) fn current() -> Option<Self> {
        Self::of(std::process::id())
    }

    pub(crate) fn is_alive(self) -> bool {
        u32::try_from(self.pid).ok().and_then(Self::of) == Some(self)
    }

    pub(crate) fn pid(self) -> i32 {
        self.pid
    }

    /// Does nothing to a process that is gone.
    pub(crate) fn signal(self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.pid).filter(|_| self.is_alive()) {
            let _ = kill_process(pid, signal);
        }
    }

    /// To the group that it leads; nothing to a process that is gone.
    pub(crate) fn signal_group(self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.pid).filter(|_| self.is_alive()) {
            let _ = kill_process_group(pid, signal);
        }
    }

    /// Whether it went away in time.
    pub(crate) async fn gone_within(self, limit: Duration) -> bool {
        let gone = async {
            while self.is_alive() {
                tokio::time::sleep(POLL).await;
            }
        };
        tokio::time::timeout(limit, gone).await.is_ok()
    }

    /// Asks it to stop, and ends it when it does not. Whether it stopped by itself.
    pub(crate) async fn stop(self, grace: Duration) -> bool {
        self.signal(Signal::TERM);
        let stopped = self.gone_within(grace).await;
        if !stopped {
            self.signal(Signal::KILL);
            self.gone_within(Duration::from_secs(5)).await;
        }
        stopped
    }

    /// Remembers it in a pid file.
    pub(crate) fn store(self, file: &Path) -> anyhow::Result<()> {
        let content = serde_json::to_vec(&self)?;
        crate::state::write_private_file(file, &content).with_context(|| format!("cannot write `{}`", file.display()))
    }

    /// What a pid file names, if that still lives.
    pub(crate) fn load(file: &Path) -> Option<Self> {
        let content = std::fs::read(file).ok()?;
        let process: Self = serde_json::from_slice(&content).ok()?;
        process.is_alive().then_some(process)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_somebody_else_has_now_is_not_the_same_process() {
        let me = Process::current().unwrap();
        assert!(me.is_alive());
        let earlier = Process {
            started: me.started - 1,
            ..me
        };
        assert!(!earlier.is_alive());
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        earlier.store(&file).unwrap();
        assert_eq!(Process::load(&file), None);
        me.store(&file).unwrap();
        assert_eq!(Process::load(&file), Some(me));
    }

    #[tokio::test]
    async fn a_process_that_ignores_the_request_is_ended() {
        let script = "trap '' TERM; while :; do sleep 0.05; done";
        let mut child = tokio::process::Command::new("sh")
            .args(["-c", script])
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let process = Process::of(child.id().unwrap()).unwrap();
        // The trap must be set before the signal comes.
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!process.stop(Duration::from_millis(300)).await);
        child.wait().await.unwrap();
        assert!(!process.is_alive());
    }
}
