//! The platform as processes: the service with its durable Postgres, the dispatcher in front, and a game deployed on it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use omgservers_protocol::client::Client;
use omgservers_protocol::config::{DeploymentConfig, VersionConfig};
use omgservers_protocol::developer::{self, VenueStatus};
use omgservers_protocol::id::{DeploymentId, ProjectId, StageId, TenantId, UserId};
use omgservers_protocol::text::Text;
use omgservers_protocol::{admin, support};
use omgservers_service::auth::Tokens;
use serde_json::Value;
use tempfile::TempDir;

use crate::Arguments;
use crate::machine::{self, Process};

/// Making a cluster takes a while on a loaded machine.
const READY_WAIT: Duration = Duration::from_secs(120);
/// For a game server to start.
const VENUE_WAIT: Duration = Duration::from_secs(90);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
const PASSWORD: &str = "bench";
const ISSUER: &str = "omgservers";

/// Where game servers run, and how they reach the platform.
#[derive(Clone)]
pub(crate) enum Host {
    Process,
    /// The address of its engine.
    Docker(String),
}

/// Ends with its processes when it is dropped.
pub(crate) struct Platform {
    pub(crate) dispatcher: Process,
    pub(crate) service: Process,
    /// `127.0.0.1:port` of the service itself.
    pub(crate) service_address: String,
    /// `127.0.0.1:port` of the dispatcher.
    pub(crate) address: String,
    key: PathBuf,
    _runtimes: Runtimes,
    folder: TempDir,
}

impl Platform {
    pub(crate) async fn start(arguments: &Arguments, host: &Host) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("omg-bench").tempdir()?;
        let inside = |name: &str| folder.path().join(name);
        let key = inside("token.pem");
        std::fs::write(&key, Tokens::generate_key()?)?;
        let ports = [(); 4].map(|()| machine::free_port());
        let [Ok(port), Ok(management), Ok(service_port), Ok(service_management)] = ports else {
            anyhow::bail!("there is no free port");
        };
        let (host_uri, runtimes_uri, public) = match host {
            Host::Process => ("process://".to_owned(), format!("http://127.0.0.1:{port}"), "127.0.0.1"),
            Host::Docker(engine) => (engine.clone(), format!("http://host.docker.internal:{port}"), "0.0.0.0"),
        };
        let pool = "OMGSERVERS_BOOTSTRAP_DEFAULT_POOL_DOCKER_HOSTS_0_";
        let [uri, cpus, memory, containers] =
            ["DOCKER_DAEMON_URI", "CPU_COUNT", "MEMORY_SIZE", "MAX_CONTAINERS"].map(|name| format!("{pool}_{name}"));
        let environment = [
            ("OMGSERVERS_HTTP_ADDRESS", "127.0.0.1".to_owned()),
            ("OMGSERVERS_HTTP_PORT", service_port.to_string()),
            ("OMGSERVERS_MANAGEMENT_PORT", service_management.to_string()),
            ("OMGSERVERS_DATA_DIRECTORY", inside("data").display().to_string()),
            ("OMGSERVERS_SERVER_URI", format!("http://127.0.0.1:{port}")),
            ("OMGSERVERS_SERVER_JWT_ISSUER", ISSUER.to_owned()),
            ("OMGSERVERS_TOKEN_PRIVATE_KEY", key.display().to_string()),
            ("OMGSERVERS_RUNTIMES_OVERRIDING_ENABLED", "true".to_owned()),
            ("OMGSERVERS_RUNTIMES_OVERRIDING_URI", runtimes_uri),
            ("OMGSERVERS_IMAGE_FILES_ENABLED", "true".to_owned()),
            ("OMGSERVERS_BOOTSTRAP_ENABLED", "true".to_owned()),
            ("OMGSERVERS_BOOTSTRAP_ADMIN_USER_PASSWORD", PASSWORD.to_owned()),
            ("OMGSERVERS_BOOTSTRAP_SUPPORT_USER_PASSWORD", PASSWORD.to_owned()),
            ("OMGSERVERS_BOOTSTRAP_DISPATCHER_USER_PASSWORD", PASSWORD.to_owned()),
            (uri.as_str(), host_uri),
            (cpus.as_str(), "16".to_owned()),
            (memory.as_str(), "16000".to_owned()),
            (containers.as_str(), "64".to_owned()),
            // Requests are counted as everywhere, but one client is all the load there is.
            ("OMGSERVERS_RATE_LIMIT_ADDRESS", "1000000".to_owned()),
            ("OMGSERVERS_RATE_LIMIT_USER", "1000000".to_owned()),
            // Who has left is forgotten soon, so that one run does not weigh on the next.
            ("OMGSERVERS_CLIENTS_INACTIVE_INTERVAL", "5".to_owned()),
            ("OMGSERVERS_MATCHES_EMPTY_INTERVAL", "1".to_owned()),
        ];
        let programs = programs(arguments)?;
        let mut service = Process::start(
            &programs.join("omgservers-service"),
            &[],
            &environment,
            &inside("service.log"),
        )?;
        wait_until_ready(&mut service, service_management).await?;
        let service_address = format!("127.0.0.1:{service_port}");
        let environment = [
            ("OMGSERVERS_HTTP_ADDRESS", public.to_owned()),
            ("OMGSERVERS_HTTP_PORT", port.to_string()),
            ("OMGSERVERS_MANAGEMENT_PORT", management.to_string()),
            ("OMGSERVERS_SERVICE_URI", format!("http://{service_address}")),
            ("OMGSERVERS_SERVER_JWT_ISSUER", ISSUER.to_owned()),
            ("OMGSERVERS_DISPATCHER_USER_PASSWORD", PASSWORD.to_owned()),
        ];
        let mut dispatcher = Process::start(
            &programs.join("omgservers-dispatcher"),
            &[],
            &environment,
            &inside("dispatcher.log"),
        )?;
        wait_until_ready(&mut dispatcher, management).await?;
        let runtimes = Runtimes(inside("data/processes/running"));
        Ok(Self {
            dispatcher,
            service,
            service_address,
            address: format!("127.0.0.1:{port}"),
            key,
            _runtimes: runtimes,
            folder,
        })
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The public address.
    pub(crate) fn base(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What mints the installation's tokens.
    pub(crate) fn tokens(&self) -> Result<Tokens> {
        Tokens::new(&std::fs::read_to_string(&self.key)?, ISSUER, 3_600)
    }

    pub(crate) async fn admin_token(&self) -> Result<String> {
        let call = admin::CreateToken {
            user: text("admin")?,
            password: text(PASSWORD)?,
        };
        Ok(Client::new(&self.base())?.send(&call).await?.raw_token)
    }

    pub(crate) async fn support_token(&self) -> Result<String> {
        let call = support::CreateToken {
            user: text("support")?,
            password: text(PASSWORD)?,
        };
        Ok(Client::new(&self.base())?.send(&call).await?.raw_token)
    }

    /// How programs of Postgres connect to the service's own cluster.
    pub(crate) fn database_url(&self) -> Result<String> {
        let file = std::fs::read_to_string(self.folder().join("data/postgres/data/postmaster.pid"))?;
        let mut lines = file.lines().skip(3);
        let (port, socket) = (
            lines.next().context("no port")?,
            lines.next().context("no folder of sockets")?,
        );
        Ok(format!("host={socket} port={port} user=omg dbname=omg"))
    }

    /// A studio with a developer who may look at it.
    pub(crate) async fn studio(&self) -> Result<Studio> {
        let nobody = Client::new(&self.base())?;
        let support = nobody.with_token(self.support_token().await?);
        let tenant = support.send(&support::CreateTenant {}).await?.id;
        let made = support.send(&support::CreateDeveloper {}).await?;
        let call = support::CreateTenantPermissions {
            tenant: text(&tenant.to_string())?,
            user_id: made.user_id,
            permissions_to_create: support::TenantPermission::ALL.to_vec(),
        };
        support.send(&call).await?;
        let call = developer::CreateToken {
            user_id: text(&made.user_id.to_string())?,
            password: text(&made.password)?,
        };
        let token = nobody.send(&call).await?.raw_token;
        let developer = nobody.with_token(token.clone());
        for _ in 0..3 {
            let tenant = text(&tenant.to_string())?;
            developer.send(&developer::CreateProject { tenant }).await?;
        }
        Ok(Studio {
            tenant,
            user_id: made.user_id,
            password: made.password,
            token,
        })
    }

    /// A new studio deploys its game.
    pub(crate) async fn deploy(&self, image: &str, version: Value, deployment: Value) -> Result<Game> {
        let nobody = Client::new(&self.base())?;
        let support = nobody.with_token(self.support_token().await?);
        let tenant = support.send(&support::CreateTenant {}).await?.id;
        let made = support.send(&support::CreateDeveloper {}).await?;
        let call = support::CreateTenantPermissions {
            tenant: text(&tenant.to_string())?,
            user_id: made.user_id,
            permissions_to_create: vec![support::TenantPermission::ProjectManager],
        };
        support.send(&call).await?;
        let call = developer::CreateToken {
            user_id: text(&made.user_id.to_string())?,
            password: text(&made.password)?,
        };
        let developer = nobody.with_token(nobody.send(&call).await?.raw_token);
        let made = developer
            .send(&developer::CreateProject {
                tenant: text(&tenant.to_string())?,
            })
            .await?;
        let (tenant_text, project) = (text(&tenant.to_string())?, text(&made.project_id.to_string())?);
        let config: VersionConfig = serde_json::from_value(version)?;
        let call = developer::CreateVersion {
            tenant: tenant_text.clone(),
            project: project.clone(),
            config,
        };
        let version = developer.send(&call).await?.version_id;
        let call = developer::CreateImage {
            tenant: tenant_text.clone(),
            project: project.clone(),
            version,
            qualifier: developer::ImageQualifier::Universal,
            image: image.to_owned(),
        };
        developer.send(&call).await?;
        let config: DeploymentConfig = serde_json::from_value(deployment)?;
        let call = developer::DeployVersion {
            tenant: tenant_text,
            project,
            stage: text(&made.stage_id.to_string())?,
            version_id: version,
            config: Some(config),
        };
        let deployment = developer.send(&call).await?.deployment_id;
        Ok(Game {
            developer,
            tenant,
            project: made.project_id,
            stage: made.stage_id,
            deployment,
        })
    }
}

/// A tenant with a developer and three projects.
pub(crate) struct Studio {
    pub(crate) tenant: TenantId,
    pub(crate) user_id: UserId,
    pub(crate) password: String,
    pub(crate) token: String,
}

/// A deployed game.
pub(crate) struct Game {
    developer: Client,
    pub(crate) tenant: TenantId,
    pub(crate) project: ProjectId,
    pub(crate) stage: StageId,
    deployment: DeploymentId,
}

impl Game {
    /// Waits until the lobbies and matches are as wanted.
    pub(crate) async fn wait<T>(&self, what: &str, wanted: impl Fn(&[VenueStatus]) -> Option<T>) -> Result<T> {
        let deadline = Instant::now() + VENUE_WAIT;
        loop {
            let call = developer::GetDeploymentDetails {
                tenant: text(&self.tenant.to_string())?,
                deployment_id: self.deployment,
            };
            let venues = self.developer.send(&call).await?.details.venues;
            if let Some(found) = wanted(&venues) {
                return Ok(found);
            }
            ensure!(Instant::now() < deadline, "waited in vain for {what}: {venues:?}");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// Game servers of a host without Docker outlive their service; here they end with it.
struct Runtimes(PathBuf);

impl Drop for Runtimes {
    fn drop(&mut self) {
        for entry in std::fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let state = std::fs::read_to_string(entry.path().join("state.json")).unwrap_or_default();
            let state: Value = serde_json::from_str(&state).unwrap_or_default();
            if let Some(pid) = state["process"][0].as_u64().and_then(|pid| u32::try_from(pid).ok()) {
                machine::terminate(pid);
            }
        }
    }
}

pub(crate) fn programs(arguments: &Arguments) -> Result<PathBuf> {
    if let Some(folder) = &arguments.programs {
        return Ok(folder.clone());
    }
    let own = std::env::current_exe()?;
    Ok(own.parent().context("this program is in no folder")?.to_owned())
}

fn text(value: &str) -> Result<Text> {
    Text::new(value).with_context(|| format!("`{value}` is no text of the protocol"))
}

pub(crate) async fn wait_until_ready(process: &mut Process, management_port: u16) -> Result<()> {
    let http = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([])
        .timeout(Duration::from_secs(5))
        .build()?;
    let url = format!("http://127.0.0.1:{management_port}/health/ready");
    let deadline = Instant::now() + READY_WAIT;
    loop {
        process.check()?;
        if http
            .get(&url)
            .send()
            .await
            .is_ok_and(|answer| answer.status().is_success())
        {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "`{url}` did not become ready within {} s",
            READY_WAIT.as_secs()
        );
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
