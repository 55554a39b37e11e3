//! What the benches need of the machine: CPU time as the kernel counts it, programs, processes that end with us.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// Unit of the times in `/proc/<pid>/stat`, the same on every machine that Linux runs on today.
const TICK: Duration = Duration::from_millis(10);
/// A service writes everything out when it stops.
const STOP_WAIT: Duration = Duration::from_secs(20);

/// CPU time of a process with all its threads, in user and kernel mode.
pub(crate) fn cpu_time(pid: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).with_context(|| format!("process {pid} is gone"))?;
    cpu_time_in(&stat).with_context(|| format!("`{stat}` is not understood"))
}

fn cpu_time_in(stat: &str) -> Option<Duration> {
    // The name before it may contain anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let (user, system): (u32, u32) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(TICK * (user + system))
}

/// Memory of a process that is its own, in megabytes.
pub(crate) fn memory_mb(pid: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    Ok(kilobytes.with_context(|| format!("process {pid} says nothing of its memory"))? / 1_024.0)
}

/// CPU time of this thread so far: on a busy machine, what a short piece of work costs.
pub(crate) fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}

/// The processes that a process has started.
pub(crate) fn children(pid: u32) -> Result<Vec<u32>> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    text.split_whitespace().map(|pid| Ok(pid.parse()?)).collect()
}

/// Finds a program, and installs its package first if it is missing.
pub(crate) fn program(name: &str, package: &str) -> Result<PathBuf> {
    if let Some(found) = find(name) {
        return Ok(found);
    }
    let mut install = Command::new("apt-get");
    // The run level keeps Debian from starting a daemon that it has just installed.
    install
        .args(["install", "-y", "-q", "--no-install-recommends", package])
        .env("RUNLEVEL", "1");
    let output = install
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) if output.status.success() => {}
        Ok(output) => bail!(
            "`{package}` cannot be installed: {}",
            String::from_utf8_lossy(&output.stderr)
        ),
        Err(cause) => bail!("please install `{name}` (Debian's package: {package}): {cause}"),
    }
    find(name).with_context(|| format!("`{package}` is installed, but there is no `{name}`"))
}

fn find(name: &str) -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let folders = versions.map(|version| version.path().join("bin"));
    let usual = [
        "/usr/local/sbin",
        "/usr/local/bin",
        "/usr/sbin",
        "/usr/bin",
        "/sbin",
        "/bin",
    ]
    .map(PathBuf::from);
    folders
        .chain(usual)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

/// A port that nobody has now.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// A process that is ended when this is dropped, and by the kernel when this program is killed.
pub(crate) struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts it from the main thread, since the kernel ends it with the thread that started it.
    pub(crate) fn start(
        program: &Path,
        arguments: &[&str],
        environment: &[(&str, String)],
        log: &Path,
    ) -> Result<Self> {
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let file = fs::File::create(log)?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", "--"]).arg(program).args(arguments);
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("`{name}` cannot be started"))?;
        Ok(Self {
            name,
            child,
            log: log.to_owned(),
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Refuses, with the end of its log, if it has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        let ended = self.child.try_wait()?;
        ensure!(ended.is_none(), "`{}` has ended: {}", self.name, self.last_words());
        Ok(())
    }

    fn last_words(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(5)..].join(" | ")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        terminate(self.pid());
        let deadline = Instant::now() + STOP_WAIT;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                self.child.kill().ok();
                self.child.wait().ok();
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Asks a process to end.
pub(crate) fn terminate(pid: u32) {
    Command::new("kill")
        .args(["-TERM", &pid.to_string()])
        .stderr(Stdio::null())
        .status()
        .ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_user_and_system_whatever_the_name_of_the_process() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 9 0 0 0 150 25 3 4 20 0 5 0 100 0 0";
        assert_eq!(cpu_time_in(stat), Some(Duration::from_millis(1_750)));
        assert_eq!(cpu_time_in("7 (a) S 1"), None);
        assert!(cpu_time(std::process::id()).is_ok());
    }
}
