//! Docker hosts: with its parts, the only code that knows bollard.
//!
//! A container is locked down: it may talk to the outside and to the host's public ports, not to its neighbours; it
//! writes nowhere but to a small `/tmp`; it has no privileges to gain. One bridge per tenant.

mod bridge;
mod failure;
mod image;
mod watch;

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use bollard::{
    API_DEFAULT_VERSION, Docker,
    models::{
        ContainerCreateBody, ContainerInspectResponse, ContainerStateStatusEnum, ContainerSummary,
        ContainerSummaryStateEnum, HostConfig, HostConfigLogConfig,
    },
    query_parameters::{
        CreateContainerOptions, InspectContainerOptions, ListContainersOptions, RemoveContainerOptions,
        StartContainerOptions, StopContainerOptions,
    },
};
use tokio::sync::{Mutex, RwLock, mpsc};

use failure::{message, status};

use crate::host::{
    Host, HostError, HostEvent, HostSettings, LABEL_GENERATION, LABEL_INSTALLATION, LABEL_RUNTIME, OnProgress,
    Progress, Reply, RunSpec, Running, Usage, check_name,
};

/// Processes and threads of one runtime: far above what a game server has, far below what hurts the host.
const PIDS_MAX: i64 = 512;
/// The only place to write to.
const TMP_OPTIONS: &str = "rw,noexec,nosuid,nodev,size=64m,mode=1777";
/// Logs of one container: `spec/platform.md` 12.
const LOG_BYTES_MAX: &str = "10m";
const LOG_FILES_MAX: &str = "8";
/// Microseconds of the CPU quota's period: a limit of 100 (ms per 100 ms) is one core.
const CPU_PERIOD_US: i64 = 100_000;
/// A start begins again when somebody else made or removed its container or bridge meanwhile.
const START_ATTEMPTS: usize = 5;
const DISTURBED_WAIT: Duration = Duration::from_millis(100);
/// How long a removal that is already in progress may take.
const REMOVAL_WAIT: Duration = Duration::from_secs(10);

/// A Docker daemon.
#[derive(Clone)]
pub struct DockerHost {
    inner: Arc<Inner>,
}

struct Inner {
    address: String,
    settings: HostSettings,
    /// Made at the first use: a unix socket that is not there yet cannot be connected.
    client: OnceLock<Docker>,
    /// Read while a container is put on a bridge, written while bridges are made or removed.
    bridges: RwLock<()>,
    /// One fetch of an image at a time; the engine itself would load the same archive many times over.
    fetches: std::sync::Mutex<HashMap<String, Weak<Mutex<()>>>>,
}

impl DockerHost {
    /// Checks address and settings; the daemon itself is asked at the first call.
    pub fn new(address: &str, settings: HostSettings) -> Result<Self, HostError> {
        let refused = |why: String| Err(HostError::Refused(why));
        match address.split_once("://") {
            Some(("unix", path)) if path.starts_with('/') => {}
            Some(("tcp", place)) if place.contains(':') => match &settings.certificates {
                Some(folder) => {
                    for file in ["ca.pem", "cert.pem", "key.pem"] {
                        if !folder.join(file).is_file() {
                            return refused(format!(
                                "`{file}` for host `{address}` is missing in `{}`",
                                folder.display()
                            ));
                        }
                    }
                }
                None if settings.insecure => {}
                None => {
                    return refused(format!(
                        "host `{address}` has no TLS client certificates; add them, or say that it is insecure"
                    ));
                }
            },
            _ => {
                return refused(format!(
                    "`{address}` is no Docker host: unix:///path or tcp://host:port"
                ));
            }
        }
        Ok(Self {
            inner: Arc::new(Inner {
                address: address.to_owned(),
                settings,
                client: OnceLock::new(),
                bridges: RwLock::new(()),
                fetches: std::sync::Mutex::default(),
            }),
        })
    }
}

impl Host for DockerHost {
    fn ping(&self) -> Reply<'_, ()> {
        Box::pin(self.inner.ping(self.inner.settings.connect_timeout))
    }

    fn start<'a>(&'a self, spec: &'a RunSpec, progress: OnProgress<'a>) -> Reply<'a, ()> {
        Box::pin(self.inner.start(spec, progress))
    }

    fn stop<'a>(&'a self, name: &'a str, grace: Duration) -> Reply<'a, ()> {
        Box::pin(self.inner.stop(name, grace))
    }

    fn list(&self) -> Reply<'_, Vec<Running>> {
        Box::pin(self.inner.list())
    }

    fn watch(&self) -> mpsc::Receiver<HostEvent> {
        watch::start(self.inner.clone())
    }

    fn usage(&self) -> Reply<'_, Usage> {
        Box::pin(self.inner.usage())
    }

    fn prune_networks(&self) -> Reply<'_, usize> {
        Box::pin(self.inner.prune_networks())
    }
}

/// What became of one attempt to start.
enum Attempt {
    Done,
    /// Somebody else changed the container or its bridge meanwhile: look again.
    Disturbed(HostError),
}

impl Inner {
    fn docker(&self) -> Result<Docker, HostError> {
        if let Some(client) = self.client.get() {
            return Ok(client.clone());
        }
        let timeout_s = self.settings.response_timeout.as_secs().max(1);
        let client = match (&self.settings.certificates, self.address.starts_with("tcp://")) {
            (Some(folder), true) => Docker::connect_with_ssl(
                &self.address,
                &folder.join("key.pem"),
                &folder.join("cert.pem"),
                &folder.join("ca.pem"),
                timeout_s,
                API_DEFAULT_VERSION,
            ),
            (None, true) => Docker::connect_with_http(&self.address, timeout_s, API_DEFAULT_VERSION),
            (_, false) => Docker::connect_with_unix(&self.address, timeout_s, API_DEFAULT_VERSION),
        };
        let client = client.map_err(|cause| self.failure("connect", &cause))?;
        Ok(self.client.get_or_init(|| client).clone())
    }

    async fn ping(&self, limit: Duration) -> Result<(), HostError> {
        let docker = self.docker()?;
        match tokio::time::timeout(limit, docker.ping()).await {
            Ok(answer) => answer.map(drop).map_err(|cause| self.failure("answer a ping", &cause)),
            Err(_) => Err(self.silent(limit)),
        }
    }

    async fn start(&self, spec: &RunSpec, progress: OnProgress<'_>) -> Result<(), HostError> {
        check_name(&spec.name)?;
        check_name(&spec.network)?;
        self.ping(self.settings.connect_timeout).await?;
        let mut disturbance = None;
        for _ in 0..START_ATTEMPTS {
            match self.try_start(spec, progress, disturbance.is_none()).await? {
                Attempt::Done => return Ok(()),
                Attempt::Disturbed(reason) => disturbance = Some(reason),
            }
            tokio::time::sleep(DISTURBED_WAIT).await;
        }
        Err(disturbance.expect("without a disturbance the first attempt returned"))
    }

    async fn try_start(&self, spec: &RunSpec, progress: OnProgress<'_>, first: bool) -> Result<Attempt, HostError> {
        let docker = self.docker()?;
        if let Some(there) = self.inspect(&docker, &spec.name).await? {
            let generation = self.own_generation(&spec.name, &there)?;
            if generation > spec.generation {
                return Err(HostError::Refused(format!(
                    "`{}` is at generation {generation} already, newer than {}",
                    spec.name, spec.generation
                )));
            }
            let state = there.state.and_then(|state| state.status);
            match state {
                Some(ContainerStateStatusEnum::RUNNING) if generation == spec.generation => return Ok(Attempt::Done),
                // Another service is about to start it, or was killed just before: starting it twice is harmless.
                Some(ContainerStateStatusEnum::CREATED) if generation == spec.generation => {
                    return self.launch(&docker, spec).await;
                }
                _ => self.remove(&docker, &spec.name).await?,
            }
        }
        let report = |stage| {
            if first {
                progress(stage);
            }
        };
        let image = self.fetch(&docker, &spec.image, &report).await?;
        report(Progress::Starting);

        let (network, _bridges) = self.bridge(&docker, &spec.network).await?;
        let options = CreateContainerOptions {
            name: Some(spec.name.clone()),
            ..Default::default()
        };
        let body = self.container(spec, &image, &network);
        match docker.create_container(Some(options), body).await {
            Ok(_) => self.launch(&docker, spec).await,
            Err(cause) => {
                let failure = self.failure(&format!("create `{}`", spec.name), &cause);
                match status(&cause) {
                    Some(409) => Ok(Attempt::Disturbed(failure)),
                    _ => Err(failure),
                }
            }
        }
    }

    /// Starts a container that has been made; removes it if it cannot be started.
    async fn launch(&self, docker: &Docker, spec: &RunSpec) -> Result<Attempt, HostError> {
        let Err(cause) = docker.start_container(&spec.name, None::<StartContainerOptions>).await else {
            return Ok(Attempt::Done);
        };
        let failure = self.failure(&format!("start `{}`", spec.name), &cause);
        // What is left would be taken for a runtime that ended; if even this fails, the next `list` shows it.
        if let Err(error) = self.remove(docker, &spec.name).await {
            tracing::warn!(container.name = %spec.name, %error, "a container that did not start could not be removed");
        }
        // Its bridge was removed meanwhile, or the container itself was.
        let text = message(&cause).to_lowercase();
        match status(&cause) == Some(404) && (text.contains("network") || text.contains("no such container")) {
            true => Ok(Attempt::Disturbed(failure)),
            false => Err(failure),
        }
    }

    /// The container as it is made, with everything that locks it down.
    fn container(&self, spec: &RunSpec, image: &image::Fetched, network: &str) -> ContainerCreateBody {
        let mut labels: HashMap<String, String> = spec.labels.iter().cloned().collect();
        labels.insert(LABEL_INSTALLATION.to_owned(), self.settings.installation.clone());
        labels.insert(LABEL_RUNTIME.to_owned(), spec.runtime_id.to_string());
        labels.insert(LABEL_GENERATION.to_owned(), spec.generation.to_string());

        // A volume that the image declares would be a way to fill the host's disk: it gets memory instead.
        let writable = image.volumes.iter().map(String::as_str).chain(["/tmp"]);
        let tmpfs = writable.map(|path| (path.to_owned(), TMP_OPTIONS.to_owned())).collect();
        let memory = (spec.memory_limit_mb > 0).then(|| i64::from(spec.memory_limit_mb) << 20);
        let log_options = [("max-size", LOG_BYTES_MAX), ("max-file", LOG_FILES_MAX)];

        ContainerCreateBody {
            image: Some(image.reference.clone()),
            env: Some(
                spec.environment
                    .iter()
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect(),
            ),
            labels: Some(labels),
            host_config: Some(HostConfig {
                network_mode: Some(network.to_owned()),
                extra_hosts: Some(vec!["host.docker.internal:host-gateway".to_owned()]),
                memory,
                memory_swap: memory,
                cpu_period: (spec.cpu_limit > 0).then_some(CPU_PERIOD_US),
                cpu_quota: (spec.cpu_limit > 0).then(|| i64::from(spec.cpu_limit) * 1_000),
                pids_limit: Some(PIDS_MAX),
                cap_drop: Some(vec!["ALL".to_owned()]),
                security_opt: Some(vec!["no-new-privileges:true".to_owned()]),
                readonly_rootfs: Some(true),
                tmpfs: Some(tmpfs),
                ipc_mode: Some("private".to_owned()),
                log_config: Some(HostConfigLogConfig {
                    typ: Some("json-file".to_owned()),
                    config: Some(
                        log_options
                            .map(|(name, value)| (name.to_owned(), value.to_owned()))
                            .into_iter()
                            .collect(),
                    ),
                }),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    async fn stop(&self, name: &str, grace: Duration) -> Result<(), HostError> {
        check_name(name)?;
        let docker = self.docker()?;
        let Some(there) = self.inspect(&docker, name).await? else {
            return Ok(());
        };
        self.own_generation(name, &there)?;
        let grace_s = grace.as_millis().div_ceil(1_000);
        let patient = docker.clone().with_timeout(self.settings.response_timeout + grace);
        let options = StopContainerOptions {
            t: Some(i32::try_from(grace_s).unwrap_or(i32::MAX)),
            signal: None,
        };
        match patient.stop_container(name, Some(options)).await {
            Ok(()) => {}
            Err(cause) if status(&cause) == Some(404) => return Ok(()),
            Err(cause) => return Err(self.failure(&format!("stop `{name}`"), &cause)),
        }
        self.remove(&docker, name).await
    }

    /// Removes the container, running or not, and waits until it is gone.
    async fn remove(&self, docker: &Docker, name: &str) -> Result<(), HostError> {
        let deadline = tokio::time::Instant::now() + REMOVAL_WAIT;
        loop {
            let options = RemoveContainerOptions {
                force: true,
                v: true,
                ..Default::default()
            };
            match docker.remove_container(name, Some(options)).await {
                Ok(()) => return Ok(()),
                Err(cause) if status(&cause) == Some(404) => return Ok(()),
                // Somebody else is removing it: done when it is gone.
                Err(cause) if status(&cause) == Some(409) && tokio::time::Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                Err(cause) => return Err(self.failure(&format!("remove `{name}`"), &cause)),
            }
        }
    }

    async fn list(&self) -> Result<Vec<Running>, HostError> {
        let options = ListContainersOptions {
            all: true,
            filters: Some(self.own()),
            ..Default::default()
        };
        let found = self.docker()?.list_containers(Some(options)).await;
        let found = found.map_err(|cause| self.failure("list containers", &cause))?;
        Ok(found.iter().filter_map(running).collect())
    }

    async fn usage(&self) -> Result<Usage, HostError> {
        let info = self
            .docker()?
            .info()
            .await
            .map_err(|cause| self.failure("describe itself", &cause))?;
        Ok(Usage {
            cpus: u32::try_from(info.ncpu.unwrap_or(0)).unwrap_or(0),
            memory_mb: u64::try_from(info.mem_total.unwrap_or(0)).unwrap_or(0) >> 20,
            containers: u32::try_from(info.containers_running.unwrap_or(0)).unwrap_or(0),
        })
    }

    async fn inspect(&self, docker: &Docker, name: &str) -> Result<Option<ContainerInspectResponse>, HostError> {
        match docker.inspect_container(name, None::<InspectContainerOptions>).await {
            Ok(there) => Ok(Some(there)),
            Err(cause) if status(&cause) == Some(404) => Ok(None),
            Err(cause) => Err(self.failure(&format!("describe `{name}`"), &cause)),
        }
    }

    /// The container's generation, if it is this installation's.
    fn own_generation(&self, name: &str, there: &ContainerInspectResponse) -> Result<i64, HostError> {
        let labels = there.config.as_ref().and_then(|config| config.labels.as_ref());
        let label = |key: &str| labels.and_then(|labels| labels.get(key));
        if label(LABEL_INSTALLATION) != Some(&self.settings.installation) {
            return Err(HostError::Refused(format!(
                "container `{name}` on host `{}` belongs to somebody else",
                self.address
            )));
        }
        Ok(label(LABEL_GENERATION)
            .and_then(|text| text.parse().ok())
            .unwrap_or(i64::MIN))
    }

    /// The filter for what belongs to this installation.
    fn own(&self) -> HashMap<String, Vec<String>> {
        [(
            "label".to_owned(),
            vec![format!("{LABEL_INSTALLATION}={}", self.settings.installation)],
        )]
        .into()
    }
}

/// A container of the list as the service sees it; `None` if its labels are not ours.
fn running(there: &ContainerSummary) -> Option<Running> {
    let labels = there.labels.as_ref()?;
    let status = there.status.as_deref().unwrap_or_default();
    let exited = match there.state? {
        ContainerSummaryStateEnum::RUNNING
        | ContainerSummaryStateEnum::PAUSED
        | ContainerSummaryStateEnum::STOPPING
        | ContainerSummaryStateEnum::RESTARTING => None,
        ContainerSummaryStateEnum::CREATED => Some("was never started".to_owned()),
        // "Exited (137) 5 seconds ago"
        _ => Some(
            match status.split_once('(').and_then(|(_, rest)| rest.split_once(')')) {
                Some((code, _)) => format!("exited with code {code}"),
                None => "ended".to_owned(),
            },
        ),
    };
    Some(Running {
        name: there.names.as_ref()?.first()?.trim_start_matches('/').to_owned(),
        runtime_id: labels.get(LABEL_RUNTIME)?.parse().ok()?,
        generation: labels.get(LABEL_GENERATION)?.parse().ok()?,
        exited,
    })
}
