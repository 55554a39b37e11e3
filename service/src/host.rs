//! A host: a place where runtimes run. What is asked of it, what it says, how it fails. Knows no entity, no database
//! and no engine; `docker.rs` and `process.rs` are the two kinds, and planners' tests bring a fake.

use std::{fmt, path::PathBuf, pin::Pin, sync::Arc, time::Duration};

use tokio::sync::mpsc;

use crate::{docker::DockerHost, process::ProcessHost};

/// Label that names the installation a container or bridge belongs to: two installations may share one engine.
pub const LABEL_INSTALLATION: &str = "com.omgservers.installation";
/// Label that carries the runtime's id.
pub const LABEL_RUNTIME: &str = "com.omgservers.runtime";
/// Label that carries the generation of the step that started the container.
pub const LABEL_GENERATION: &str = "com.omgservers.generation";

/// The reply of a host: boxed, so that hosts of different kinds sit in one list.
pub type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, HostError>> + Send + 'a>>;

/// Hears how far a start has come. Called at most once per stage.
pub type OnProgress<'a> = &'a (dyn Fn(Progress) + Send + Sync);

/// A place where runtimes run. Every operation ends within the time of its `HostSettings`, and may be repeated.
pub trait Host: Send + Sync {
    /// Is the host there?
    fn ping(&self) -> Reply<'_, ()>;

    /// Brings `spec` to run. Running already at this generation: nothing happens. There, but stopped or of an older
    /// generation: removed and made anew. There with a newer generation: refused.
    fn start<'a>(&'a self, spec: &'a RunSpec, progress: OnProgress<'a>) -> Reply<'a, ()>;

    /// Asks the runtime to end, makes it end after `grace`, and removes it. Not there: nothing happens.
    fn stop<'a>(&'a self, name: &'a str, grace: Duration) -> Reply<'a, ()>;

    /// Everything of this installation on the host, also what has ended and was not removed by `stop`.
    fn list(&self) -> Reply<'_, Vec<Running>>;

    /// What happens on the host, until the receiver is dropped. Starts with `Connected` and connects again by itself;
    /// after each `Connected` the caller reads `list`, since the time before it was not watched.
    fn watch(&self) -> mpsc::Receiver<HostEvent>;

    /// The real capacity of the host, to be shown beside the configured one.
    fn usage(&self) -> Reply<'_, Usage>;

    /// Removes the tenants' bridges that no container uses any more; answers how many.
    fn prune_networks(&self) -> Reply<'_, usize>;
}

/// What is to run.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RunSpec {
    /// Name of the container, unique in the installation: `lobby_<runtime id>`.
    pub name: String,
    pub runtime_id: i64,
    /// Grows with every start of this runtime that is asked for.
    pub generation: i64,
    /// `name[:tag]`, or `file:///…tar`, an archive on the service's disk.
    pub image: String,
    pub environment: Vec<(String, String)>,
    /// Milliseconds of CPU per 100 ms: 100 is one core. 0 is no limit.
    pub cpu_limit: u32,
    /// 0 is no limit.
    pub memory_limit_mb: u32,
    /// Further labels; those of this module are set in any case.
    pub labels: Vec<(String, String)>,
    /// Name of the tenant's bridge on the host, made when missing.
    pub network: String,
}

/// Without the environment: it carries the runtime's password.
impl fmt::Debug for RunSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "RunSpec({} at generation {}, image {})",
            self.name, self.generation, self.image
        )
    }
}

/// How far a start has come, for the players who wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    Pulling,
    Starting,
}

/// Something of ours on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    pub name: String,
    pub runtime_id: i64,
    pub generation: i64,
    /// Why it no longer runs (`exited with code 137`); `None` while it does.
    pub exited: Option<String>,
}

/// What a watched host says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostEvent {
    /// The host is watched from now on.
    Connected,
    /// The host is no longer watched; it is being connected again.
    Lost { reason: String },
    /// A runtime ended by itself; may be told, too, of one that was stopped. At least once per end.
    Died {
        name: String,
        runtime_id: i64,
        generation: i64,
        detail: String,
    },
}

/// The real capacity of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    pub cpus: u32,
    pub memory_mb: u64,
    /// Running at the moment, ours and others'.
    pub containers: u32,
}

/// Why a host did not do it; the variants are what a caller can react to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The image is the trouble: another host would not help.
    #[error("{0}")]
    Image(String),
    /// The host has no room: another one may.
    #[error("{0}")]
    Full(String),
    /// The host does not answer: another one may.
    #[error("{0}")]
    Unreachable(String),
    /// The host answered no.
    #[error("{0}")]
    Refused(String),
}

impl HostError {
    /// Whether the same start may succeed on another host.
    pub fn elsewhere_helps(&self) -> bool {
        matches!(self, HostError::Full(_) | HostError::Unreachable(_))
    }
}

/// How to reach hosts and what is allowed there.
#[derive(Debug, Clone)]
pub struct HostSettings {
    /// Tells this installation's containers from others' on a shared engine.
    pub installation: String,
    /// Within this time a host must answer at all. 16 s.
    pub connect_timeout: Duration,
    /// Within this time each request must be answered. 32 s.
    pub response_timeout: Duration,
    /// Within this time an image must have arrived. 60 s.
    pub pull_timeout: Duration,
    /// How often a watched host is asked whether it is still there; it is lost if it does not answer within as long.
    pub ping_interval: Duration,
    /// Folder with `ca.pem`, `cert.pem` and `key.pem` for `tcp://` hosts.
    pub certificates: Option<PathBuf>,
    /// Whether `tcp://` hosts without TLS are accepted.
    pub insecure: bool,
    /// Whether `file://` images are accepted: they read the service's disk.
    pub allow_files: bool,
    /// Where images are pulled from with a password.
    pub registry: Option<RegistryLogin>,
    /// Where `process://` keeps its state, unless the address names a folder.
    pub process_directory: PathBuf,
}

impl Default for HostSettings {
    fn default() -> Self {
        Self {
            installation: "omgservers".to_owned(),
            connect_timeout: Duration::from_secs(16),
            response_timeout: Duration::from_secs(32),
            pull_timeout: Duration::from_secs(60),
            ping_interval: Duration::from_secs(5),
            certificates: None,
            insecure: false,
            allow_files: false,
            registry: None,
            process_directory: PathBuf::from("processes"),
        }
    }
}

/// The account under which hosts pull from the installation's registry.
#[derive(Clone)]
pub struct RegistryLogin {
    /// `host[:port]`: the part of an image's name before the first `/`.
    pub address: String,
    pub username: String,
    pub password: String,
}

impl fmt::Debug for RegistryLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RegistryLogin({} at {})", self.username, self.address)
    }
}

/// The host behind an address: `unix:///path`, `tcp://host:port`, `process://` or `process:///folder`. Checks the
/// address and the settings; whether the host is there shows at the first call.
pub fn connect(address: &str, settings: &HostSettings) -> Result<Arc<dyn Host>, HostError> {
    match address.split_once("://") {
        Some(("unix" | "tcp", _)) => Ok(Arc::new(DockerHost::new(address, settings.clone())?)),
        Some(("process", "")) => Ok(Arc::new(ProcessHost::new(
            settings.process_directory.clone(),
            settings.clone(),
        ))),
        Some(("process", folder)) if folder.starts_with('/') => {
            Ok(Arc::new(ProcessHost::new(PathBuf::from(folder), settings.clone())))
        }
        _ => Err(HostError::Refused(format!(
            "`{address}` is no address of a host: unix:///path, tcp://host:port and process:// are"
        ))),
    }
}

/// The path of a `file://` image; `None` if the image is a name. Refused where files are not allowed.
pub(crate) fn archive_path(image: &str, settings: &HostSettings) -> Result<Option<PathBuf>, HostError> {
    let Some(path) = image.strip_prefix("file://") else {
        return Ok(None);
    };
    if !settings.allow_files {
        return Err(HostError::Image(format!(
            "image `{image}` is a file, and files are not allowed here"
        )));
    }
    if !path.starts_with('/') {
        return Err(HostError::Image(format!(
            "image `{image}` must name an absolute path: file:///path.tar"
        )));
    }
    Ok(Some(PathBuf::from(path)))
}

/// Names become parts of the daemon's paths and names of folders: nothing else may slip in.
pub(crate) fn check_name(name: &str) -> Result<(), HostError> {
    let mut bytes = name.bytes();
    let good = bytes.next().is_some_and(|first| first.is_ascii_alphanumeric())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'));
    match good {
        true => Ok(()),
        false => Err(HostError::Refused(format!(
            "`{name}` is no name for a container or bridge"
        ))),
    }
}

/// Runs blocking work on its own thread; gives up waiting, with a reason, after `limit`.
pub(crate) async fn blocking<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> Result<T, String> {
    match tokio::time::timeout(limit, tokio::task::spawn_blocking(work)).await {
        Ok(Ok(result)) => result.map_err(|error| format!("{error:#}")),
        Ok(Err(panic)) => Err(panic.to_string()),
        Err(_) => Err(format!("the disk did not answer within {} s", limit.as_secs_f32())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(address: &str, settings: &HostSettings) -> String {
        match connect(address, settings) {
            Ok(_) => panic!("{address} was accepted"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn an_address_says_which_kind_of_host_it_is() {
        let settings = HostSettings::default();
        for address in ["unix:///run/docker.sock", "process://", "process:///tmp/state"] {
            assert!(connect(address, &settings).is_ok(), "{address}");
        }
        for address in ["", "docker", "http://there", "process://relative", "unix://", "tcp://"] {
            refusal(address, &settings);
        }
    }

    #[test]
    fn tcp_without_certificates_is_refused_unless_said_to_be_insecure() {
        let mut settings = HostSettings::default();
        assert!(refusal("tcp://10.0.0.1:2375", &settings).contains("insecure"));
        settings.insecure = true;
        assert!(connect("tcp://10.0.0.1:2375", &settings).is_ok());
    }

    #[test]
    fn files_are_images_only_where_allowed() {
        let mut settings = HostSettings::default();
        assert_eq!(archive_path("shooter:1", &settings), Ok(None));
        assert!(matches!(
            archive_path("file:///a.tar", &settings),
            Err(HostError::Image(_))
        ));
        settings.allow_files = true;
        assert_eq!(
            archive_path("file:///a.tar", &settings),
            Ok(Some(PathBuf::from("/a.tar")))
        );
        assert!(matches!(
            archive_path("file://a.tar", &settings),
            Err(HostError::Image(_))
        ));
    }

    #[test]
    fn passwords_are_never_printed() {
        let spec = RunSpec {
            environment: vec![("OMGSERVERS_PASSWORD".to_owned(), "secret".to_owned())],
            ..RunSpec::default()
        };
        assert!(!format!("{spec:?}").contains("secret"));
        let login = RegistryLogin {
            address: "localhost:5000".to_owned(),
            username: "service".to_owned(),
            password: "secret".to_owned(),
        };
        assert_eq!(format!("{login:?}"), "RegistryLogin(service at localhost:5000)");
    }
}
