//! Where game servers run: a Docker engine, or this machine's own processes.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use crate::failure::{Failure, Result};

const DOCKER_SOCKET: &str = "/var/run/docker.sock";

/// An engine that lives answers within milliseconds.
const PING_TIMEOUT: Duration = Duration::from_secs(3);

/// Lobbies and small matches need little of a core: so many times the cores are promised.
const CPU_OVERCOMMIT: usize = 8;

/// The rest is for the database, the parts and the browser.
const MEMORY_SHARE_PERCENT: u64 = 75;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Host {
    pub(super) uri: String,
    pub(super) cpu_count: usize,
    pub(super) memory_mb: u64,
    pub(super) max_containers: u32,
}

impl Host {
    fn new(uri: impl Into<String>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        Self {
            uri: uri.into(),
            cpu_count: cores * CPU_OVERCOMMIT,
            memory_mb: total_memory_mb(&meminfo).unwrap_or(4096) * MEMORY_SHARE_PERCENT / 100,
            max_containers: 64,
        }
    }

    /// The platform's address as a game server there sees it.
    pub(super) fn platform_uri(&self, port: u16) -> String {
        let name = match Kind::of(&self.uri) {
            Kind::Process => "127.0.0.1",
            Kind::Docker => "host.docker.internal",
        };
        format!("http://{name}:{port}")
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            uri,
            cpu_count,
            memory_mb,
            ..
        } = self;
        let kind = match Kind::of(uri) {
            Kind::Process => "processes without isolation",
            Kind::Docker => "containers",
        };
        write!(f, "{uri} ({kind}; {cpu_count} CPUs and {memory_mb} MB promised)")
    }
}

/// Where hosts of a data folder run things. It never changes: game servers of both kinds reach the platform by different
/// addresses, and hosts of earlier starts stay registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Docker,
    Process,
}

impl Kind {
    fn of(uri: &str) -> Self {
        if uri.starts_with("process:") {
            Self::Process
        } else {
            Self::Docker
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Process => "process",
        }
    }
}

/// What `--host` asks for, in a data folder that may have run before.
pub(super) async fn choose(wanted: &str, data: &Path) -> Result<Host> {
    let file = data.join("host");
    let before = std::fs::read_to_string(&file).ok();
    let host = match before.as_deref() {
        Some(before) if wanted == "auto" => resolve(before).await?,
        _ => resolve(wanted).await?,
    };
    let kind = Kind::of(&host.uri).name();
    match before {
        Some(before) if before != kind => {
            let failure = Failure::refused(format!("`{}` was begun with --host {before}", data.display()));
            Err(failure.hint(format!(
                "take --host {before}, or begin anew after `omgctl down --wipe`"
            )))
        }
        Some(_) => Ok(host),
        None => {
            std::fs::write(&file, kind)
                .map_err(|cause| Failure::refused(format!("cannot write `{}`: {cause}", file.display())))?;
            Ok(host)
        }
    }
}

async fn resolve(wanted: &str) -> Result<Host> {
    match wanted {
        "process" => Ok(Host::new("process://")),
        "auto" => match ping(DOCKER_SOCKET).await {
            Ok(()) => Ok(Host::new(format!("unix://{DOCKER_SOCKET}"))),
            Err(_) => Ok(Host::new("process://")),
        },
        "docker" => docker(DOCKER_SOCKET).await,
        uri if uri.starts_with("process://") || uri.starts_with("tcp://") => Ok(Host::new(uri)),
        uri => match uri.strip_prefix("unix://") {
            Some(socket) => docker(socket).await,
            None => {
                let failure = Failure::usage(format!("`{uri}` is not a host"));
                Err(failure.hint("auto, docker, process, unix:///path/to.sock or tcp://host:port"))
            }
        },
    }
}

async fn docker(socket: &str) -> Result<Host> {
    match ping(socket).await {
        Ok(()) => Ok(Host::new(format!("unix://{socket}"))),
        Err(cause) => {
            let failure = Failure::refused(format!("no Docker engine answers at `{socket}`: {cause}"));
            Err(failure.hint("start it, or take --host process"))
        }
    }
}

async fn ping(socket: &str) -> std::result::Result<(), String> {
    if !Path::new(socket).exists() {
        return Err("there is no such socket".to_owned());
    }
    let client = reqwest::Client::builder()
        .unix_socket(socket)
        .timeout(PING_TIMEOUT)
        .tls_certs_only([]);
    let client = client.build().map_err(|cause| cause.to_string())?;
    let answer = client
        .get("http://docker/_ping")
        .send()
        .await
        .map_err(|cause| format!("{:#}", anyhow::Error::new(cause)))?;
    match answer.status().is_success() {
        true => Ok(()),
        false => Err(format!("it answered {}", answer.status())),
    }
}

fn total_memory_mb(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn game_servers_are_told_an_address_that_they_can_reach() {
        assert_eq!(Host::new("process://").platform_uri(8080), "http://127.0.0.1:8080");
        assert_eq!(
            Host::new("unix:///x.sock").platform_uri(9),
            "http://host.docker.internal:9"
        );
    }

    #[test]
    fn memory_is_read_in_megabytes() {
        assert_eq!(
            total_memory_mb("MemTotal:       24683520 kB\nMemFree: 1 kB\n"),
            Some(24105)
        );
        assert_eq!(total_memory_mb(""), None);
    }

    #[tokio::test]
    async fn an_engine_that_does_not_answer_is_refused_and_nonsense_is_wrong_usage() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("docker.sock");
        let uri = format!("unix://{}", socket.display());
        assert_eq!(resolve(&uri).await.unwrap_err().exit, 1);
        let _bound = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert_eq!(resolve(&uri).await.unwrap_err().exit, 1);
        assert_eq!(resolve("podman").await.unwrap_err().exit, 2);
    }

    #[tokio::test]
    async fn a_folder_keeps_the_kind_of_host_that_it_was_begun_with() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(choose("process", folder.path()).await.unwrap().uri, "process://");
        assert_eq!(choose("auto", folder.path()).await.unwrap().uri, "process://");
        let refused = choose("tcp://10.0.0.1:2376", folder.path()).await.unwrap_err();
        assert!(
            refused.exit == 1 && refused.message.contains("--host process"),
            "{}",
            refused.message
        );
    }
}
