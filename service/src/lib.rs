//! The control plane: HTTP API, state in Postgres, planners and workers, runtimes on hosts. It carries no game traffic.
//!
//! Reading order: [`config`], [`db`] (the one way to the database), [`event`] and [`wake`] (how a change finds those who
//! care), `entity` (one file per noun), `plan` (pure decisions), `worker` (snapshot → plan → steps), `api` (thin handlers).

pub mod activity;
pub mod address;
pub mod api;
pub mod archive;
pub mod attempts;
pub mod auth;
pub mod config;
pub mod db;
pub mod docker;
pub mod entity;
pub mod error;
pub mod event;
pub mod host;
pub mod ids;
pub mod instance;
pub mod limits;
pub mod mail;
pub mod management;
pub mod plan;
pub mod postgres;
pub mod principal;
pub mod process;
pub mod revocation;
pub mod vault;
pub mod wake;
pub mod worker;
mod zip_check;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use anyhow::Context;
use axum::body::Body;
use axum::extract::ConnectInfo;
use omgservers_protocol::id::TenantId;
use omgservers_protocol::listen::{Door, Peer};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service as _;

use crate::config::Config;
use crate::db::{Db, Migration};
use crate::entity::{account, pool};
use crate::ids::Ids;
use crate::postgres::{Embedded, EmbeddedSettings};

/// What every handler and worker can reach.
#[derive(Clone)]
pub struct App(Arc<Inner>);

pub struct Inner {
    pub config: Config,
    pub db: Db,
    pub ids: Ids,
    pub tokens: auth::Tokens,
    revocations: revocation::Revocations,
    /// Keys that were verified, by their digest. Forgotten before a revocation is.
    keys: moka::sync::Cache<[u8; 32], Arc<entity::api_key::Grant>>,
    /// Players of tenants that have a quota, counted once a second.
    player_counts: moka::sync::Cache<TenantId, Arc<tokio::sync::OnceCell<AtomicU32>>>,
    vault: vault::Vault,
    /// Archives that are being uploaded: each is held in memory.
    uploads: entity::files::Uploads,
    /// Name of this instance in leases.
    holder: String,
    activity: activity::Activity,
    attempts: attempts::Attempts,
    limits: limits::Limits,
    mail: mail::Mail,
    hosts: worker::Hosts,
    /// Held replies end when this is cancelled.
    stopping: CancellationToken,
}

impl std::ops::Deref for App {
    type Target = Inner;
    fn deref(&self) -> &Inner {
        &self.0
    }
}

/// A running service.
pub struct Service {
    app: App,
    address: SocketAddr,
    management_address: SocketAddr,
    stop: CancellationToken,
    tasks: TaskTracker,
    server: tokio::task::JoinHandle<()>,
    management: tokio::task::JoinHandle<()>,
    postgres: Option<Embedded>,
    fatal: tokio::sync::watch::Receiver<Option<String>>,
}

/// Held requests get so long to be answered when the service stops.
const STOP_GRACE: Duration = Duration::from_secs(5);

impl Service {
    /// Starts everything; it serves when this returns.
    pub async fn start(config: Config) -> anyhow::Result<Self> {
        rustls::crypto::aws_lc_rs::default_provider().install_default().ok();
        std::fs::create_dir_all(&config.data_directory)
            .with_context(|| format!("cannot create the data folder `{}`", config.data_directory.display()))?;
        if !config.without_effect.is_empty() {
            tracing::warn!(
                variables = config.without_effect.join(", "),
                "these settings are understood, but have no effect"
            );
        }
        config.check_passwords()?;
        let key = token_key(&config)?;
        let secrets_key = secrets_key(&config)?;
        let (urls, postgres) = open_databases(&config).await?;
        let (hub, receivers) = wake::Hub::new(urls.len());
        let migration = Migration {
            enabled: config.schema_enabled,
            concurrency: config.schema_concurrency,
        };
        let db = Db::open(
            &urls,
            config.shard_count,
            config.database_max_connections,
            migration,
            hub.clone(),
        )
        .await?;
        let tokens = auth::Tokens::new(&key, &config.issuer, config.clients_token_lifetime_s)?;
        let vault = vault::Vault::new(&secrets_key);
        let stop = CancellationToken::new();
        let tasks = TaskTracker::new();
        let lease = instance::lease(db.system(0), config.instance_id).await?;
        let hosts = worker::Hosts::new(host::HostSettings {
            installation: instance::installation(db.system(0)).await?,
            allow_files: config.image_files_enabled,
            certificates: config.docker_certificates(),
            insecure: config.docker_insecure_hosts_enabled,
            registry: config.registry_login(),
            process_directory: std::path::absolute(&config.data_directory)?.join("processes"),
            ..host::HostSettings::default()
        });
        let app = App(Arc::new(Inner {
            ids: Ids::new(lease.node, lease.after_ms, lease.horizon_ms),
            holder: lease.holder.clone(),
            limits: limits::Limits::new(config.rate_limit_address, config.rate_limit_user),
            attempts: attempts::Attempts::default(),
            config,
            db,
            tokens,
            revocations: revocation::Revocations::default(),
            keys: moka::sync::Cache::builder()
                .max_capacity(10_000)
                .time_to_live(Duration::from_secs(600))
                .build(),
            player_counts: moka::sync::Cache::builder()
                .max_capacity(10_000)
                .time_to_live(Duration::from_secs(1))
                .build(),
            vault,
            uploads: entity::files::Uploads::default(),
            activity: activity::Activity::default(),
            mail: mail::Mail::default(),
            hosts,
            stopping: stop.child_token(),
        }));
        let (fatal_sender, fatal) = tokio::sync::watch::channel(None);
        tasks.spawn(instance::renew(app.clone(), lease, stop.clone(), fatal_sender));
        for (database, news) in receivers.others.into_iter().enumerate() {
            let pool = app.db.system(database).clone();
            tasks.spawn(wake::send_to_others(
                pool.clone(),
                app.holder.clone(),
                news,
                stop.clone(),
            ));
            tasks.spawn(wake::hear_others(pool, app.holder.clone(), hub.clone(), stop.clone()));
        }
        tasks.spawn(limits::forget(app.clone(), stop.clone()));
        mail::start(&app, &stop, &tasks);
        revocation::load(&app, true).await?;
        tasks.spawn(revocation::run(app.clone(), stop.clone()));
        bootstrap(&app).await?;
        worker::start(&app, receivers.jobs, &stop, &tasks);

        let http = TcpListener::bind((app.config.http_address, app.config.http_port))
            .await
            .with_context(|| format!("cannot listen on {}:{}", app.config.http_address, app.config.http_port))?;
        let address = http.local_addr()?;
        let proxies = app.config.trusted_proxies.clone();
        let door = Door::new(app.config.bounds.clone(), move |address| proxies.trust(address));
        let (management_address, management) = management::serve(&app, door.clone(), stop.clone()).await?;
        let server = tokio::spawn(answer(api::router(app.clone()), http, door, app.stopping.clone()));
        let application = &app.config.application_name;
        tracing::info!(application, %address, %management_address, "the service is up");
        Ok(Self {
            app,
            address,
            management_address,
            stop,
            tasks,
            server,
            management,
            postgres,
            fatal,
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn management_address(&self) -> SocketAddr {
        self.management_address
    }

    pub fn app(&self) -> &App {
        &self.app
    }

    /// Completes, with the reason, when the service cannot go on.
    pub async fn failed(&self) -> String {
        let mut fatal = self.fatal.clone();
        match fatal.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            Err(_) => std::future::pending().await,
        }
    }

    /// Answers what is held, ends the workers, gives the lease back, stops embedded Postgres.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        self.app.stopping.cancel();
        if tokio::time::timeout(STOP_GRACE, &mut self.server).await.is_err() {
            self.server.abort();
        }
        self.stop.cancel();
        self.tasks.close();
        tokio::time::timeout(STOP_GRACE, self.tasks.wait()).await.ok();
        self.management.await.ok();
        if self.app.config.runtimes_stop_at_exit {
            self.app.hosts.stop_all().await;
        }
        instance::give_back(&self.app).await;
        tokio::time::timeout(STOP_GRACE, self.app.db.close()).await.ok();
        if let Some(postgres) = self.postgres {
            postgres.stop().await?;
        }
        tracing::info!("the service is down");
        Ok(())
    }
}

/// Answers requests until it is to stop, and then what is held.
async fn answer(router: axum::Router, listener: TcpListener, door: Arc<Door>, stopping: CancellationToken) {
    // With its state a router is put together once, not at each request.
    let router = router.with_state::<()>(());
    let connections = TaskTracker::new();
    let answered = door.serve(listener, &connections, &stopping, move |peer: Peer, request| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(peer.address));
        let answered = router.clone().call(request);
        async move { answered.await.unwrap_or_else(|never| match never {}) }
    });
    answered.await;
    connections.close();
    connections.wait().await;
}

async fn open_databases(config: &Config) -> anyhow::Result<(Vec<String>, Option<Embedded>)> {
    if let Some(url) = &config.database_url {
        let urls = std::iter::once(url.clone())
            .chain(config.more_database_urls.iter().cloned())
            .collect();
        return Ok((urls, None));
    }
    let settings = EmbeddedSettings {
        directory: config.data_directory.join("postgres"),
        durable: config.durable,
        max_connections: config.database_max_connections + 60,
    };
    let embedded = Embedded::start(settings)
        .await
        .context("embedded Postgres did not start")?;
    Ok((vec![embedded.url()], Some(embedded)))
}

/// The key that tokens are signed with.
fn token_key(config: &Config) -> anyhow::Result<String> {
    read_key(
        config,
        "OMGSERVERS_TOKEN_PRIVATE_KEY",
        "openssl genpkey -algorithm ed25519 -out token.pem",
        config.token_private_key.as_deref(),
        "token_key.pem",
        auth::Tokens::generate_key,
    )
}

/// The key that secrets of stages are encrypted with.
fn secrets_key(config: &Config) -> anyhow::Result<[u8; 32]> {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    let text = read_key(
        config,
        "OMGSERVERS_SECRETS_KEY",
        "openssl rand -base64 32 -out secrets.key",
        config.secrets_key.as_deref(),
        "secrets_key",
        || Ok(STANDARD.encode(rand::random::<[u8; 32]>()) + "\n"),
    )?;
    let bytes = STANDARD
        .decode(text.trim())
        .ok()
        .and_then(|bytes| bytes.try_into().ok());
    bytes.context("the secrets key must be 32 bytes in base64")
}

/// A key: given, or generated on one's own machine and kept in the data folder.
fn read_key(
    config: &Config,
    variable: &str,
    command: &str,
    given: Option<&str>,
    file: &str,
    generate: impl FnOnce() -> anyhow::Result<String>,
) -> anyhow::Result<String> {
    let path = match given {
        Some(given) => std::path::PathBuf::from(given.strip_prefix("file:").unwrap_or(given)),
        None => {
            anyhow::ensure!(
                config.may_generate_keys(),
                "{variable} must be set with an external database: every instance needs the same key (make one with \
                 `{command}`)"
            );
            let path = config.data_directory.join(file);
            if !path.exists() {
                write_secret(&path, &generate()?)?;
            }
            path
        }
    };
    std::fs::read_to_string(&path).with_context(|| format!("cannot read the key `{}`", path.display()))
}

/// Writes a file that only we may read, whole or not at all.
fn write_secret(path: &std::path::Path, content: &str) -> anyhow::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let fresh = path.with_extension("new");
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&fresh)?;
    file.write_all(content.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&fresh, path)?;
    Ok(())
}

/// Creates the first users and the pool, as far as they are configured and missing.
async fn bootstrap(app: &App) -> anyhow::Result<()> {
    let config = &app.config;
    if !config.bootstrap_enabled || !config.bootstrap_job_enabled {
        return Ok(());
    }
    for (role, alias, password) in config.bootstrap_users() {
        if let Some(password) = password {
            account::bootstrap(app, role, alias, password)
                .await
                .with_context(|| format!("user `{alias}`"))?;
        }
    }
    if config.bootstrap_default_pool_enabled {
        for attempt in 0.. {
            match pool::bootstrap(app, &config.bootstrap_hosts).await {
                Ok(_) => break,
                Err(error::Error::Unavailable(_)) if attempt < 20 => {
                    tokio::time::sleep(Duration::from_millis(100)).await
                }
                Err(cause) => return Err(cause).context("the default pool"),
            }
        }
    }
    Ok(())
}
