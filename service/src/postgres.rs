//! Embedded Postgres: a private cluster in a folder, reached by nothing but a unix socket. It outlives the service, also
//! one that was killed, and the next service adopts it; it is started again when it dies. Knows nothing of what is
//! stored in it.
//!
//! ```text
//! lock            held by whoever is starting the cluster
//! data/           the cluster; data.new/ while it is made
//! socket/         the unix socket, unless its path would be too long: then a folder in /tmp
//! postgres.log    what the server says
//! ```

mod binaries;
mod place;

use std::{
    path::PathBuf,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::AsyncWriteExt,
    process::{Child, Command},
    sync::{Mutex, watch},
    task::JoinHandle,
    time::{Instant, sleep},
};

use binaries::Binaries;
use place::{Lock, Place};

/// The role and the database that the service uses.
const OWNER: &str = "omg";
/// Part of the socket's name; nothing listens on a port.
const PORT: u16 = 5432;
/// Making a cluster takes one to two seconds on a laptop's disk, much longer on a loaded one.
const INIT_WAIT: Duration = Duration::from_secs(120);
/// A start after a crash replays up to a gigabyte of log first.
const READY_WAIT: Duration = Duration::from_secs(120);
/// A fast shutdown writes everything out.
const STOP_WAIT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How often a server that is not our child is looked at, and the log is measured.
const WATCH_INTERVAL: Duration = Duration::from_millis(250);
/// Delay before a second attempt to start; doubled with each further one.
const RETRY_DELAY_MIN: Duration = Duration::from_millis(100);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(5);

/// What the cluster shall be like.
#[derive(Debug, Clone)]
pub struct EmbeddedSettings {
    /// Where everything of the cluster lives.
    pub directory: PathBuf,
    /// Keeps what was acknowledged over a crash. Only tests can do without.
    pub durable: bool,
    pub max_connections: u32,
}

/// A running cluster. Dropping it leaves the cluster running; `stop` ends it.
pub struct Embedded {
    url: String,
    pid: Arc<AtomicI32>,
    stopping: watch::Sender<bool>,
    supervisor: Mutex<Option<JoinHandle<Result<()>>>>,
}

impl Embedded {
    /// Starts the cluster, made at the first start, or adopts it if it is running; from then on it is started again
    /// whenever it dies.
    pub async fn start(settings: EmbeddedSettings) -> Result<Self> {
        let place = Place::prepare(&settings.directory)?;
        let url = place.url(OWNER, PORT);
        let cluster = Cluster { place, settings };
        let server = cluster.bring_up().await?;
        let pid = Arc::new(AtomicI32::new(server.pid));
        let (stopping, stop) = watch::channel(false);
        let supervisor = tokio::spawn(supervise(cluster, server, pid.clone(), stop));
        Ok(Self {
            url,
            pid,
            stopping,
            supervisor: Mutex::new(Some(supervisor)),
        })
    }

    /// How sqlx connects: over the socket, as the cluster's owner.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// Number of the server's first process.
    pub fn pid(&self) -> i32 {
        self.pid.load(Ordering::Relaxed)
    }

    /// Ends the cluster, disconnecting whoever is connected. A second call does nothing.
    pub async fn stop(&self) -> Result<()> {
        self.stopping.send_replace(true);
        match self.supervisor.lock().await.take() {
            Some(supervisor) => supervisor
                .await
                .context("the supervisor of the embedded database failed")?,
            None => Ok(()),
        }
    }
}

/// Starts the server again whenever it dies, until it is told to stop or nobody is left to tell it.
async fn supervise(
    cluster: Cluster,
    mut server: Server,
    pid: Arc<AtomicI32>,
    mut stop: watch::Receiver<bool>,
) -> Result<()> {
    loop {
        let told = tokio::select! {
            told = told_to(&mut stop) => Some(told),
            () = server.ended(&cluster.place) => None,
        };
        match told {
            Some(true) => return cluster.shut_down(server).await,
            Some(false) => return Ok(()),
            None => tracing::error!(pid = server.pid, "the embedded database died and is started again"),
        }
        let mut delay = RETRY_DELAY_MIN;
        server = loop {
            // Never dropped half way: what it started would be nobody's.
            match cluster.bring_up().await {
                Ok(server) => break server,
                Err(error) => tracing::error!(error = format!("{error:#}"), "the embedded database cannot be started"),
            }
            tokio::select! {
                _ = told_to(&mut stop) => return Ok(()),
                () = sleep(delay) => delay = (delay * 2).min(RETRY_DELAY_MAX),
            }
        };
        pid.store(server.pid, Ordering::Relaxed);
        tracing::info!(pid = server.pid, "the embedded database runs again");
    }
}

/// Waits for the order to stop; `false` if nobody is left to give it.
async fn told_to(stop: &mut watch::Receiver<bool>) -> bool {
    stop.wait_for(|stopping| *stopping).await.is_ok()
}

/// The server's first process: our child, or one that an earlier service left.
struct Server {
    pid: i32,
    child: Option<Child>,
}

impl Server {
    /// Waits until the server is gone; meanwhile keeps its log small.
    async fn ended(&mut self, place: &Place) {
        let gone = async {
            match &mut self.child {
                Some(child) => {
                    let _ = child.wait().await;
                }
                None => {
                    while place.is_ours(self.pid) {
                        sleep(WATCH_INTERVAL).await;
                    }
                }
            }
        };
        let trimming = async {
            loop {
                place.trim_log();
                sleep(WATCH_INTERVAL * 40).await;
            }
        };
        tokio::select! {
            () = gone => {}
            () = trimming => {}
        }
    }
}

struct Cluster {
    place: Place,
    settings: EmbeddedSettings,
}

impl Cluster {
    async fn bring_up(&self) -> Result<Server> {
        let _alone = Lock::take(&self.place, READY_WAIT).await?;
        if let Some(pid) = self.place.server() {
            match self.wait_until_ready(pid, None).await {
                Ok(()) => return Ok(Server { pid, child: None }),
                // It was on its way down: a new one takes its place.
                Err(_) if !self.place.is_ours(pid) => {}
                Err(error) => return Err(error),
            }
        }
        let binaries = Binaries::find(self.place.version().as_deref()).await?;
        if self.place.version().is_none() {
            self.initialise(&binaries).await?;
        }
        let deadline = Instant::now() + READY_WAIT;
        loop {
            self.place.remove_stale_files()?;
            let mark = self.place.log_length();
            let mut child = self.launch(&binaries)?;
            let pid = child
                .id()
                .and_then(|pid| i32::try_from(pid).ok())
                .context("the server ended at once")?;
            match self.wait_until_ready(pid, Some(&mut child)).await {
                Ok(()) => {
                    return Ok(Server {
                        pid,
                        child: Some(child),
                    });
                }
                Err(error) => {
                    let said = self.place.log_since(mark);
                    // Processes of a server that was killed take a moment to notice.
                    let busy = said.contains("still in use") || said.contains("lock file");
                    if !busy || Instant::now() > deadline {
                        return Err(error.context(format!("Postgres did not start: {}", last_lines(&said))));
                    }
                    sleep(WATCH_INTERVAL).await;
                }
            }
        }
    }

    /// Makes the cluster beside its place and moves it there, so that a half-made one is never taken for whole.
    async fn initialise(&self, binaries: &Binaries) -> Result<()> {
        let new = self.place.make_new_data_folder()?;
        let new_text = new.to_string_lossy();
        let mut init = self.command(binaries, "initdb")?;
        init.args([
            "-D",
            &new_text,
            "-U",
            OWNER,
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-instructions",
        ]);
        if !self.settings.durable {
            init.arg("--no-sync");
        }
        self.finish(init, "", "initdb").await?;
        // By the single-user server: needs no client program and no running cluster.
        let mut single = self.command(binaries, "postgres")?;
        single.args(["--single", "-j", "-D", &new_text, "postgres"]);
        self.finish(
            single,
            &format!("create database {OWNER}"),
            "the creation of the database",
        )
        .await?;
        self.place.adopt_new_data_folder()
    }

    fn launch(&self, binaries: &Binaries) -> Result<Child> {
        let socket_folder = self.place.prepare_socket_folder()?;
        let mut command = self.command(binaries, "postgres")?;
        command.arg("-D").arg(self.place.data()).arg("-k").arg(socket_folder);
        command.args(["-h", "", "-p", &PORT.to_string()]);
        let common = [
            format!("max_connections={}", self.settings.max_connections),
            "unix_socket_permissions=0700".to_owned(),
            "timezone=UTC".to_owned(),
            "log_timezone=UTC".to_owned(),
            "log_checkpoints=off".to_owned(),
            "shared_buffers=128MB".to_owned(),
            "max_wal_size=1GB".to_owned(),
            "jit=off".to_owned(),
        ];
        let kind: &[&str] = match self.settings.durable {
            true => &[
                "fsync=on",
                "synchronous_commit=on",
                "full_page_writes=on",
                "wal_level=replica",
                "wal_compression=on",
                "checkpoint_completion_target=0.9",
            ],
            false => &[
                "fsync=off",
                "synchronous_commit=off",
                "full_page_writes=off",
                "wal_level=minimal",
                "max_wal_senders=0",
                "checkpoint_timeout=1h",
                "autovacuum_naptime=10min",
            ],
        };
        for setting in common.iter().map(String::as_str).chain(kind.iter().copied()) {
            command.args(["-c", setting]);
        }
        command
            .stdin(Stdio::null())
            .spawn()
            .context("Postgres cannot be started")
    }

    /// One of the server's programs, without privileges, in a process group of its own: a Ctrl-C in the service's
    /// terminal is not meant for it.
    fn command(&self, binaries: &Binaries, program: &str) -> Result<Command> {
        let log = self.place.open_log()?;
        let mut command = Command::new(binaries.program(program));
        command
            .env_clear()
            .envs([("PATH", "/usr/bin:/bin"), ("HOME", "/"), ("LC_ALL", "C")])
            .current_dir("/")
            .process_group(0)
            .stdout(log.try_clone()?)
            .stderr(log);
        if let Some(user) = self.place.user() {
            // This also gives up the supplementary groups.
            command.uid(user.uid).gid(user.gid);
        }
        Ok(command)
    }

    /// Runs a program to its end.
    async fn finish(&self, mut command: Command, input: &str, what: &str) -> Result<()> {
        let mark = self.place.log_length();
        let mut child = command
            .stdin(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| what.to_owned())?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that ends early says why in the log.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        let status = tokio::time::timeout(INIT_WAIT, child.wait()).await;
        match status.with_context(|| format!("{what} took longer than {} s", INIT_WAIT.as_secs()))?? {
            status if status.success() => Ok(()),
            status => bail!("{what} failed ({status}): {}", last_lines(&self.place.log_since(mark))),
        }
    }

    async fn wait_until_ready(&self, pid: i32, mut child: Option<&mut Child>) -> Result<()> {
        let deadline = Instant::now() + READY_WAIT;
        while !self.place.is_ready(pid) {
            let ended = match &mut child {
                Some(child) => child.try_wait()?.is_some(),
                None => !self.place.is_ours(pid),
            };
            if ended {
                bail!("it ended");
            }
            if Instant::now() > deadline {
                bail!("it was not ready within {} s", READY_WAIT.as_secs());
            }
            sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Fast shutdown; if that takes too long, one that the next start has to recover from.
    async fn shut_down(&self, mut server: Server) -> Result<()> {
        for signal in [Signal::INT, Signal::QUIT, Signal::KILL] {
            if self.place.is_ours(server.pid)
                && let Some(pid) = Pid::from_raw(server.pid)
            {
                let _ = kill_process(pid, signal);
            }
            let gone = async {
                if let Some(child) = &mut server.child {
                    let _ = child.wait().await;
                }
                while self.place.is_ours(server.pid) {
                    sleep(POLL_INTERVAL).await;
                }
            };
            if tokio::time::timeout(STOP_WAIT, gone).await.is_ok() {
                self.place.remove_socket_folder();
                return Ok(());
            }
            tracing::warn!(pid = server.pid, "the embedded database does not stop");
        }
        bail!("the embedded database (process {}) did not stop", server.pid)
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(4)..].join(" | ")
}
