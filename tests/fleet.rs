//! An installation as people run it: `omgctl up` with its service, dispatcher and durable Postgres as processes that can be
//! killed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::{DEADLINE, eventually, program};

pub struct Fleet {
    supervisor: Child,
    folder: TempDir,
    /// The public address.
    pub base: String,
}

/// A process of the fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Service,
    Dispatcher,
    Postgres,
    Lobby,
    Match,
}

impl Part {
    /// How names of such runtimes begin.
    pub fn prefix(self) -> Option<&'static str> {
        match self {
            Self::Lobby => Some("lobby_"),
            Self::Match => Some("match_"),
            Self::Service | Self::Dispatcher | Self::Postgres => None,
        }
    }
}

impl Fleet {
    /// Starts everything and deploys the shooter as `demo/shooter/prod`. `host` and `image` as `omgctl up` takes them.
    pub async fn start(host: &str, image: &Path, version: &Value, deployment: &Value) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("omg-fleet")
            .tempdir()
            .expect("a temporary folder");
        let write = |name: &str, value: &Value| {
            let path = folder.path().join(name);
            std::fs::write(&path, value.to_string()).expect("the config is written");
            path
        };
        let (version, deployment) = (write("version.json", version), write("deployment.json", deployment));
        let ports: Vec<u16> = (0..4).map(|_| crate::free_port()).collect();
        let log = std::fs::File::create(folder.path().join("up.log")).expect("a log file");
        let mut command = Command::new(program("omgctl"));
        command
            .args(["up", "--host", host, "--data"])
            .arg(folder.path().join("data"));
        command.args([
            "--deploy-image".as_ref(),
            image.as_os_str(),
            "--deploy-version".as_ref(),
            version.as_os_str(),
        ]);
        command.args(["--deploy-config".as_ref(), deployment.as_os_str()]);
        for (option, port) in [
            "--port",
            "--management-port",
            "--service-port",
            "--service-management-port",
        ]
        .iter()
        .zip(&ports)
        {
            command.args([option, &port.to_string().as_str()]);
        }
        if let Some(web) = crate::web() {
            command.arg("--web").arg(web);
        }
        let supervisor = command
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("the log is shared"))
            .stderr(log)
            .spawn()
            .expect("omgctl starts");
        let fleet = Self {
            supervisor,
            folder,
            base: format!("http://127.0.0.1:{}", ports[0]),
        };
        eventually("omgctl up is done", || async {
            fleet.log().contains("Ctrl-C stops it").then_some(())
        })
        .await;
        fleet
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("up.log")).unwrap_or_default()
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The process of a part, if it is there now. Of lobbies and matches the first.
    pub fn pid(&self, part: Part) -> Option<u32> {
        let read = |path: PathBuf| -> Option<Value> { serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok() };
        let pid = match part {
            Part::Service => read(self.data().join("run/service.json"))?["pid"].as_u64(),
            Part::Dispatcher => read(self.data().join("run/dispatcher.json"))?["pid"].as_u64(),
            Part::Postgres => {
                let file = std::fs::read_to_string(self.data().join("postgres/data/postmaster.pid")).ok()?;
                file.lines().next()?.trim().parse().ok()
            }
            Part::Lobby => self.runtimes("lobby_").into_iter().next().map(u64::from),
            Part::Match => self.runtimes("match_").into_iter().next().map(u64::from),
        };
        pid.and_then(|pid| u32::try_from(pid).ok())
            .filter(|pid| Path::new(&format!("/proc/{pid}")).exists())
    }

    /// Processes of lobbies (`lobby_`) or matches (`match_`) that are said to run.
    pub fn runtimes(&self, prefix: &str) -> Vec<u32> {
        let Ok(entries) = std::fs::read_dir(self.data().join("processes/running")) else {
            return Vec::new();
        };
        entries
            .filter_map(Result::ok)
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
            .filter_map(|entry| std::fs::read_to_string(entry.path().join("state.json")).ok())
            .filter_map(|text| serde_json::from_str::<Value>(&text).ok()?["process"][0].as_u64())
            .filter_map(|pid| u32::try_from(pid).ok())
            .collect()
    }

    /// Kills a part as the kernel would that has run out of memory.
    pub async fn kill(&self, part: Part) {
        let pid = eventually(&format!("{part:?} runs"), || async { self.pid(part) }).await;
        signal(pid, "KILL");
        let gone = || async { (!is_alive(pid)).then_some(()) };
        eventually(&format!("{part:?} is dead"), gone).await;
    }

    /// Rows of a table in all shards.
    pub async fn rows(&self, table: &str) -> i64 {
        use sqlx::Connection as _;
        let url = format!(
            "postgres://omg@localhost/omg?host={}&port=5432",
            self.data().join("postgres/socket").display()
        );
        let mut database = sqlx::PgConnection::connect(&url)
            .await
            .expect("embedded Postgres answers");
        let mut rows = 0;
        for shard in 0..8 {
            let query = format!("select count(*) from shard_{shard:05}.{table}");
            let count: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(query))
                .fetch_one(&mut database)
                .await
                .expect("the table is there");
            rows += count;
        }
        database.close().await.ok();
        rows
    }

    /// Stops everything as Ctrl-C would, and checks that nothing but the data folder stays.
    pub async fn stop(mut self) {
        let parts = [Part::Service, Part::Dispatcher, Part::Postgres];
        let mut pids: Vec<u32> = parts.iter().filter_map(|part| self.pid(*part)).collect();
        pids.extend(self.runtimes(""));
        signal(self.supervisor.id(), "TERM");
        let begun = std::time::Instant::now();
        let status = loop {
            if let Some(status) = self.supervisor.try_wait().expect("omgctl can be waited for") {
                break status;
            }
            assert!(begun.elapsed() < DEADLINE, "omgctl up does not stop:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        assert!(status.success(), "omgctl up ended with {status}:\n{}", self.log());
        for pid in pids {
            assert!(!is_alive(pid), "process {pid} outlived omgctl up");
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // After a failed story: nothing may stay behind, whatever state it is in.
        if matches!(self.supervisor.try_wait(), Ok(None)) {
            signal(self.supervisor.id(), "TERM");
            self.supervisor.wait().ok();
        }
        if std::thread::panicking() {
            crate::keep("fleet", &self.data().join("logs"));
        }
    }
}

pub(crate) fn is_alive(pid: u32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // A process that nobody has waited for yet is dead all the same.
    state
        .rsplit(')')
        .next()
        .is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with(['Z', 'X']))
}

pub(crate) fn signal(pid: u32, signal: &str) {
    Command::new("kill")
        .args([&format!("-{signal}"), &pid.to_string()])
        .status()
        .expect("kill runs");
}
