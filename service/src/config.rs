//! Every setting, read once from the command line and the environment.

mod accepted;
mod registry_key;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::parser::ValueSource;
use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use omgservers_protocol::listen;
use omgservers_protocol::setting::{self, Alias, Environment};
use omgservers_protocol::text::{self, Text};
use omgservers_protocol::token::Role;
use omgservers_protocol::trace;
use url::Url;

pub use accepted::Accepted;

use crate::address::Proxies;
use crate::api::Origins;
use crate::host::RegistryLogin;

/// User of databases if none is named.
const DATABASE_USERNAME: &str = "omgservers";

/// The control plane of OMGSERVERS: API, state, planners and workers.
#[derive(Parser, Clone)]
#[command(name = "omgservers-service", version, args_override_self = true, after_help = setting::AFTER_HELP)]
pub struct Config {
    /// Name of this process in logs and traces.
    #[arg(long, env = "OMGSERVERS_APPLICATION_NAME", default_value = "service")]
    pub application_name: String,
    /// Address that the HTTP API listens on.
    #[arg(long, env = "OMGSERVERS_HTTP_ADDRESS", default_value = "0.0.0.0")]
    pub http_address: std::net::IpAddr,
    /// Port of the HTTP API; 0 picks a free one.
    #[arg(long, env = "OMGSERVERS_HTTP_PORT", default_value_t = 8080)]
    pub http_port: u16,
    #[command(flatten)]
    pub bounds: listen::Bounds,
    /// Address of the management port: health and metrics.
    #[arg(long, env = "OMGSERVERS_MANAGEMENT_ADDRESS", default_value = "127.0.0.1")]
    pub management_address: std::net::IpAddr,
    /// Management port; 0 picks a free one.
    #[arg(long, env = "OMGSERVERS_MANAGEMENT_PORT", default_value_t = 8000)]
    pub management_port: u16,
    /// Folder for what must outlive the process: embedded Postgres, generated keys, unpacked images.
    #[arg(long, env = "OMGSERVERS_DATA_DIRECTORY", default_value = ".omgservers")]
    pub data_directory: PathBuf,
    /// Folder with the built browser client, served under `/play/`.
    #[arg(long, env = "OMGSERVERS_WEB_DIRECTORY")]
    pub web_directory: Option<PathBuf>,
    /// Sites whose pages may call from a browser, such as `https://play.example`, separated by commas; `*` is every site.
    #[arg(long, env = "OMGSERVERS_HTTP_CORS_ORIGINS", default_value = "*", num_args = 0..=1, default_missing_value = "")]
    pub http_cors_origins: Origins,
    /// Proxies whose `X-Forwarded-For` is believed: addresses and networks, separated by commas.
    #[arg(long, env = "OMGSERVERS_TRUSTED_PROXIES", default_value = "127.0.0.0/8,::1", num_args = 0..=1, default_missing_value = "")]
    pub trusted_proxies: Proxies,
    /// Requests per second from one address, twice as many at once; 0 is no limit.
    #[arg(long, env = "OMGSERVERS_RATE_LIMIT_ADDRESS", default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub rate_limit_address: u32,
    /// Requests per second of one user or runtime, twice as many at once; 0 is no limit.
    #[arg(long, env = "OMGSERVERS_RATE_LIMIT_USER", default_value_t = 200, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub rate_limit_user: u32,

    /// First database. Unset: an embedded Postgres in the data folder.
    #[arg(long, env = "OMGSERVERS_DATABASE_URL", hide_env_values = true)]
    pub database_url: Option<String>,
    /// User of databases whose address names none.
    #[arg(long, env = "OMGSERVERS_DATABASE_USERNAME", default_value = DATABASE_USERNAME)]
    pub database_username: String,
    /// Its password.
    #[arg(long, env = "OMGSERVERS_DATABASE_PASSWORD", hide_env_values = true)]
    pub database_password: Option<String>,
    /// Connections of this instance to each database, whatever the number of shards.
    #[arg(long, env = "OMGSERVERS_DATABASE_MAX_CONNECTIONS", default_value_t = 40, value_parser = clap::value_parser!(u32).range(6..=10_000))]
    pub database_max_connections: u32,
    /// Further databases: `OMGSERVERS_DATABASES_<i>__URL`, i from 1.
    #[arg(skip)]
    pub more_database_urls: Vec<String>,
    /// Embedded Postgres keeps what it acknowledged over a crash. Only tests turn it off.
    #[arg(skip = true)]
    pub durable: bool,
    /// Keys may be generated and passwords be as simple as the user's name although the database is external. Only tests
    /// turn it on.
    #[arg(skip)]
    pub allow_default_secrets: bool,
    /// Brings the schemas of all shards up to date at the start. Otherwise they have to be.
    #[arg(long, env = "OMGSERVERS_INITIALIZATION_DATABASE_SCHEMA_ENABLED", default_value_t = true, action = clap::ArgAction::Set)]
    pub schema_enabled: bool,
    /// Schemas that are brought up to date at the same time.
    #[arg(long, env = "OMGSERVERS_INITIALIZATION_DATABASE_SCHEMA_CONCURRENCY", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub schema_concurrency: u32,
    /// Number of shards, fixed for the life of an installation.
    #[arg(long, env = "OMGSERVERS_SERVER_SHARD_COUNT", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=32_767))]
    pub shard_count: u16,
    /// The node part of ids. Unset: a free one is leased.
    #[arg(long, env = "OMGSERVERS_SERVER_INSTANCE_ID", value_parser = clap::value_parser!(u16).range(0..=1_023))]
    pub instance_id: Option<u16>,

    /// Public address of the installation.
    #[arg(long, env = "OMGSERVERS_SERVER_URI", default_value = "http://localhost:8080")]
    pub server_uri: String,
    /// Issuer in tokens.
    #[arg(long, env = "OMGSERVERS_SERVER_JWT_ISSUER", default_value = "omgservers")]
    pub issuer: String,
    /// Ed25519 key (PKCS#8 PEM) that tokens are signed with: a path, with or without `file:`. Generated in embedded mode.
    #[arg(long, env = "OMGSERVERS_TOKEN_PRIVATE_KEY")]
    pub token_private_key: Option<String>,
    /// Life of a player's token, seconds.
    #[arg(long, env = "OMGSERVERS_CLIENTS_TOKEN_LIFETIME", default_value_t = 3_600, value_parser = clap::value_parser!(i64).range(10..))]
    pub clients_token_lifetime_s: i64,

    /// A player who does not call for so long is gone, seconds.
    #[arg(long, env = "OMGSERVERS_CLIENTS_INACTIVE_INTERVAL", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    pub clients_inactive_interval_s: u64,
    /// A runtime that does not call for so long is gone, seconds.
    #[arg(long, env = "OMGSERVERS_RUNTIMES_INACTIVE_INTERVAL", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    pub runtimes_inactive_interval_s: u64,
    /// Time that a runtime has from the start of its container to its first call, seconds.
    #[arg(long, env = "OMGSERVERS_RUNTIMES_START_INTERVAL", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub runtimes_start_interval_s: u64,
    /// Runtimes reach the platform at another address than the public one.
    #[arg(long, env = "OMGSERVERS_RUNTIMES_OVERRIDING_ENABLED", default_value_t = false, action = clap::ArgAction::Set)]
    pub runtimes_overriding_enabled: bool,
    /// That address.
    #[arg(
        long,
        env = "OMGSERVERS_RUNTIMES_OVERRIDING_URI",
        default_value = "http://gateway:8080"
    )]
    pub runtimes_overriding_uri: String,
    /// Prefix of the names of the per-tenant bridges.
    #[arg(long, env = "OMGSERVERS_RUNTIMES_DOCKER_NETWORK", default_value = "omgservers")]
    pub runtimes_docker_network: String,
    /// CPU of a runtime, milliseconds per 100 ms: 100 is one core.
    #[arg(long, env = "OMGSERVERS_RUNTIMES_DEFAULT_CPU_LIMIT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub runtimes_default_cpu_limit: u32,
    /// Memory of a runtime, MB.
    #[arg(long, env = "OMGSERVERS_RUNTIMES_DEFAULT_MEMORY_LIMIT", default_value_t = 512, value_parser = clap::value_parser!(u32).range(6..=1_000_000))]
    pub runtimes_default_memory_limit: u32,
    /// Runtimes end with the service, as somebody who runs everything on one machine expects. Otherwise they play on and
    /// are found again.
    #[arg(long, env = "OMGSERVERS_RUNTIMES_STOP_AT_EXIT", default_value_t = false, action = clap::ArgAction::Set)]
    pub runtimes_stop_at_exit: bool,
    /// An empty match that takes no more players is removed after this time, seconds.
    #[arg(long, env = "OMGSERVERS_MATCHES_EMPTY_INTERVAL", default_value_t = 16)]
    pub matches_empty_interval_s: u64,
    /// Images may be archives on this machine's disk (`file:///…tar`). For one's own machine, not for strangers' games.
    #[arg(long, env = "OMGSERVERS_IMAGE_FILES_ENABLED", default_value_t = false, action = clap::ArgAction::Set)]
    pub image_files_enabled: bool,

    /// `tcp://` hosts are reached with TLS and the client certificate below.
    #[arg(long, env = "OMGSERVERS_DOCKER_CLIENT_TLS_VERIFY", default_value_t = false, action = clap::ArgAction::Set)]
    pub docker_client_tls_verify: bool,
    /// Folder with `ca.pem`, `cert.pem` and `key.pem`; `~` is the home folder.
    #[arg(long, env = "OMGSERVERS_DOCKER_CLIENT_CERT_PATH", default_value = "/docker/certs")]
    pub docker_client_cert_path: PathBuf,
    /// `tcp://` hosts without TLS are used, too. Whoever reaches such a host owns it.
    #[arg(long, env = "OMGSERVERS_DOCKER_INSECURE_HOSTS_ENABLED", default_value_t = false, action = clap::ArgAction::Set)]
    pub docker_insecure_hosts_enabled: bool,
    /// The registry as hosts see it; its host and port are how names of images begin.
    #[arg(long, env = "OMGSERVERS_REGISTRY_URI", default_value = "http://localhost:5000")]
    pub registry_uri: String,
    /// User by whom hosts fetch images from the registry.
    #[arg(long, env = "OMGSERVERS_SERVER_SERVICE_USER_ALIAS", default_value = "service")]
    pub service_user_alias: String,
    /// Its password. Unset: images are fetched without a login.
    #[arg(long, env = "OMGSERVERS_SERVER_SERVICE_USER_PASSWORD", hide_env_values = true)]
    pub service_user_password: Option<String>,

    /// Creates the first users and the pool of hosts at the start.
    #[arg(long, env = "OMGSERVERS_BOOTSTRAP_ENABLED", default_value_t = false, action = clap::ArgAction::Set)]
    pub bootstrap_enabled: bool,
    /// Name of the first admin.
    #[arg(long, env = "OMGSERVERS_BOOTSTRAP_ADMIN_USER_ALIAS", default_value = "admin")]
    pub bootstrap_admin_user_alias: String,
    /// Password of the first admin, who is created only if it is set.
    #[arg(long, env = "OMGSERVERS_BOOTSTRAP_ADMIN_USER_PASSWORD", hide_env_values = true)]
    pub bootstrap_admin_user_password: Option<String>,
    /// Name of the first support user.
    #[arg(long, env = "OMGSERVERS_BOOTSTRAP_SUPPORT_USER_ALIAS", default_value = "support")]
    pub bootstrap_support_user_alias: String,
    /// Password of the first support user, who is created only if it is set.
    #[arg(long, env = "OMGSERVERS_BOOTSTRAP_SUPPORT_USER_PASSWORD", hide_env_values = true)]
    pub bootstrap_support_user_password: Option<String>,
    /// Name of the registry's user.
    #[arg(long, env = "OMGSERVERS_BOOTSTRAP_REGISTRY_USER_ALIAS", default_value = "registry")]
    pub bootstrap_registry_user_alias: String,
    /// Password of the registry's user, who is created only if it is set.
    #[arg(long, env = "OMGSERVERS_BOOTSTRAP_REGISTRY_USER_PASSWORD", hide_env_values = true)]
    pub bootstrap_registry_user_password: Option<String>,
    /// Name of the builder's user.
    #[arg(long, env = "OMGSERVERS_BOOTSTRAP_BUILDER_USER_ALIAS", default_value = "builder")]
    pub bootstrap_builder_user_alias: String,
    /// Password of the builder's user, who is created only if it is set.
    #[arg(long, env = "OMGSERVERS_BOOTSTRAP_BUILDER_USER_PASSWORD", hide_env_values = true)]
    pub bootstrap_builder_user_password: Option<String>,
    /// Name of the user by whom hosts fetch images.
    #[arg(long, env = "OMGSERVERS_BOOTSTRAP_SERVICE_USER_ALIAS", default_value = "service")]
    pub bootstrap_service_user_alias: String,
    /// Password of the user by whom hosts fetch images, who is created only if it is set.
    #[arg(long, env = "OMGSERVERS_BOOTSTRAP_SERVICE_USER_PASSWORD", hide_env_values = true)]
    pub bootstrap_service_user_password: Option<String>,
    /// Name of the dispatchers' user.
    #[arg(
        long,
        env = "OMGSERVERS_BOOTSTRAP_DISPATCHER_USER_ALIAS",
        default_value = "dispatcher"
    )]
    pub bootstrap_dispatcher_user_alias: String,
    /// Password of the dispatchers' user, who is created only if it is set.
    #[arg(long, env = "OMGSERVERS_BOOTSTRAP_DISPATCHER_USER_PASSWORD", hide_env_values = true)]
    pub bootstrap_dispatcher_user_password: Option<String>,
    /// Creates the pool of hosts at the start.
    #[arg(long, env = "OMGSERVERS_BOOTSTRAP_DEFAULT_POOL_ENABLED", default_value_t = true, action = clap::ArgAction::Set)]
    pub bootstrap_default_pool_enabled: bool,
    /// `OMGSERVERS_BOOTSTRAP_DEFAULT_POOL_DOCKER_HOSTS_<i>__DOCKER_DAEMON_URI`, `__CPU_COUNT`, `__MEMORY_SIZE` (MB),
    /// `__MAX_CONTAINERS`, i from 0. An address is `unix:///…`, `tcp://…` or `process://`.
    #[arg(skip)]
    pub bootstrap_hosts: Vec<HostConfig>,

    /// Key that secrets of stages are sealed with, 32 bytes in base64: a path, with or without `file:`. Generated in embedded mode.
    #[arg(long, env = "OMGSERVERS_SECRETS_KEY")]
    pub secrets_key: Option<String>,
    /// How often it is written down how much each tenant uses, such as `60s`.
    #[arg(long, env = "OMGSERVERS_USAGE_INTERVAL", default_value = "60s", value_parser = text::duration)]
    pub usage_interval: Duration,
    /// How long the audit log and records of usage are kept, days.
    #[arg(long, env = "OMGSERVERS_AUDIT_RETENTION_DAYS", default_value_t = 365)]
    pub audit_retention_days: u32,
    /// How long it is remembered what was deleted, such as `7d`.
    #[arg(long, env = "OMGSERVERS_TOMBSTONES_RETENTION", default_value = "7d", value_parser = text::duration)]
    pub tombstones_retention: Duration,
    /// Largest archive of a version's files, MB.
    #[arg(long, env = "OMGSERVERS_ARCHIVE_MAX_SIZE", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=512))]
    pub archive_max_mb: u32,
    /// Developers may run a stage's runtimes on their own machines.
    #[arg(long, env = "OMGSERVERS_LOCAL_RUNS_ENABLED", default_value_t = true, action = clap::ArgAction::Set)]
    pub local_runs_enabled: bool,

    /// Works in the background: without it this instance only answers calls.
    #[arg(long, env = "OMGSERVERS_INITIALIZATION_RELAY_JOB_ENABLED", default_value_t = true, action = clap::ArgAction::Set)]
    pub relay_job_enabled: bool,
    /// Looks for work whose hint was lost, and for what ends by the passing of time. At least one instance must.
    #[arg(long, env = "OMGSERVERS_INITIALIZATION_SCHEDULER_JOB_ENABLED", default_value_t = true, action = clap::ArgAction::Set)]
    pub scheduler_job_enabled: bool,
    /// Longest time between two such looks, such as `1s`.
    #[arg(long, env = "OMGSERVERS_INITIALIZATION_SCHEDULER_JOB_INTERVAL", default_value = "1s", value_parser = text::duration)]
    pub sweep_interval: Duration,
    /// Another switch that must be on for the first users and the pool to be created.
    #[arg(long, env = "OMGSERVERS_INITIALIZATION_BOOTSTRAP_JOB_ENABLED", default_value_t = true, action = clap::ArgAction::Set)]
    pub bootstrap_job_enabled: bool,

    #[command(flatten)]
    pub telemetry: trace::Settings,
    #[command(flatten)]
    pub accepted: Accepted,
    /// Variables that were set to something of their own, but have no effect.
    #[arg(skip)]
    pub without_effect: Vec<String>,
}

/// Names of later versions, and what they stand for.
pub const ALIASES: [Alias; 28] = [
    ("OMGSERVERS_USER_ALIAS", "OMGSERVERS_SERVER_SERVICE_USER_ALIAS"),
    ("OMGSERVERS_USER_PASSWORD", "OMGSERVERS_SERVER_SERVICE_USER_PASSWORD"),
    ("OMGSERVERS_JWT_ISSUER", "OMGSERVERS_SERVER_JWT_ISSUER"),
    ("OMGSERVERS_PUBLIC_KEY_LOCATION", "OMGSERVERS_SERVER_PUBLIC_KEY"),
    ("OMGSERVERS_PRIVATE_KEY_LOCATION", "OMGSERVERS_SERVER_PRIVATE_KEY"),
    ("OMGSERVERS_CERT_LOCATION", "OMGSERVERS_SERVER_X5C"),
    (
        "OMGSERVERS_MIGRATION_ENABLED",
        "OMGSERVERS_INITIALIZATION_DATABASE_SCHEMA_ENABLED",
    ),
    (
        "OMGSERVERS_MIGRATION_CONCURRENCY",
        "OMGSERVERS_INITIALIZATION_DATABASE_SCHEMA_CONCURRENCY",
    ),
    (
        "OMGSERVERS_INDEX_ENABLED",
        "OMGSERVERS_INITIALIZATION_SERVER_INDEX_ENABLED",
    ),
    ("OMGSERVERS_SLOTS_COUNT", "OMGSERVERS_SERVER_SHARD_COUNT"),
    ("OMGSERVERS_SHARD_ID", "OMGSERVERS_SERVER_INSTANCE_ID"),
    ("OMGSERVERS_SHARD_URI", "OMGSERVERS_SERVER_URI"),
    (
        "OMGSERVERS_CLIENT_INACTIVE_INTERVAL",
        "OMGSERVERS_CLIENTS_INACTIVE_INTERVAL",
    ),
    (
        "OMGSERVERS_RUNTIME_INACTIVE_INTERVAL",
        "OMGSERVERS_RUNTIMES_INACTIVE_INTERVAL",
    ),
    ("OMGSERVERS_RUNTIME_MIN_LIFETIME", "OMGSERVERS_RUNTIMES_START_INTERVAL"),
    (
        "OMGSERVERS_RUNTIME_DOCKER_NETWORK",
        "OMGSERVERS_RUNTIMES_DOCKER_NETWORK",
    ),
    (
        "OMGSERVERS_RUNTIME_DEFAULT_CPU_LIMIT",
        "OMGSERVERS_RUNTIMES_DEFAULT_CPU_LIMIT",
    ),
    (
        "OMGSERVERS_RUNTIME_DEFAULT_MEMORY_LIMIT",
        "OMGSERVERS_RUNTIMES_DEFAULT_MEMORY_LIMIT",
    ),
    ("OMGSERVERS_RUNTIME_SERVICE_URI", "OMGSERVERS_RUNTIMES_OVERRIDING_URI"),
    (
        "OMGSERVERS_ACCESS_LOG_ENABLED",
        "OMGSERVERS_LOGGING_ACCESS_LOGS_ENABLED",
    ),
    ("OMGSERVERS_ROOT_LOG_LEVEL", "OMGSERVERS_LOGGING_ROOT_LOGS_LEVEL"),
    ("OMGSERVERS_APP_LOG_LEVEL", "OMGSERVERS_LOGGING_APP_LOGS_LEVEL"),
    (
        "OMGSERVERS_REST_CLIENT_LOG_LEVEL",
        "OMGSERVERS_LOGGING_TRAFFIC_LOGS_LEVEL",
    ),
    (
        "OMGSERVERS_CONSOLE_LOG_ENABLED",
        "OMGSERVERS_LOGGING_CONSOLE_LOGS_ENABLED",
    ),
    (
        "OMGSERVERS_EVENT_HANDLER_ENABLED",
        "OMGSERVERS_INITIALIZATION_RELAY_JOB_ENABLED",
    ),
    (
        "OMGSERVERS_SCHEDULER_ENABLED",
        "OMGSERVERS_INITIALIZATION_SCHEDULER_JOB_ENABLED",
    ),
    ("OMGSERVERS_DOCKER_TLS_VERIFY", "OMGSERVERS_DOCKER_CLIENT_TLS_VERIFY"),
    ("OMGSERVERS_DOCKER_CERT_PATH", "OMGSERVERS_DOCKER_CLIENT_CERT_PATH"),
];

/// How variables of hosts begin and end. The name that later versions have for them has a part more, without effect.
const HOST_GROUPS: [(&str, &[&str]); 2] = [
    (
        "OMGSERVERS_BOOTSTRAP_DEFAULT_POOL_DOCKER_HOSTS_",
        &["DOCKER_DAEMON_URI", "CPU_COUNT", "MEMORY_SIZE", "MAX_CONTAINERS"],
    ),
    (
        "OMGSERVERS_BOOTSTRAP_DEFAULT_POOL_SERVERS_",
        &[
            "DOCKER_DAEMON_URI",
            "CPU_COUNT",
            "MEMORY_SIZE",
            "MAX_CONTAINERS",
            "SERVER_URI",
        ],
    ),
];

/// A host of the default pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostConfig {
    pub uri: String,
    /// Cores; each counts as 100.
    pub cpu_count: u32,
    pub memory_mb: u32,
    pub max_containers: u32,
}

impl Config {
    /// From the command line and the environment of this process.
    pub fn load() -> anyhow::Result<Self> {
        let environment = Environment::new(std::env::vars_os()).map_err(anyhow::Error::msg)?;
        Self::read(std::env::args_os(), &environment)
    }

    fn read(given: impl IntoIterator<Item = OsString>, environment: &Environment) -> anyhow::Result<Self> {
        let command = Self::command();
        let matches = setting::matches(&command, &ALIASES, given, environment).map_err(anyhow::Error::msg)?;
        let mut config = Self::from_arg_matches(&matches)?;
        config.without_effect = setting::without_effect(&command, &matches);
        config.read_lists(environment)?;
        let is_given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let accepted = &config.accepted;
        registry_key::check(
            is_given("server_private_key").then_some(&accepted.server_private_key),
            is_given("server_public_key").then_some(&accepted.server_public_key),
            accepted.server_x5c.as_deref(),
        )?;
        // Its relative has a switch besides.
        if environment.get("OMGSERVERS_RUNTIME_SERVICE_URI").is_some()
            && matches.value_source("runtimes_overriding_enabled") == Some(ValueSource::DefaultValue)
        {
            config.runtimes_overriding_enabled = true;
        }
        if let (Ok(inside), Some(home)) = (
            config.docker_client_cert_path.strip_prefix("~"),
            environment.get("HOME"),
        ) {
            config.docker_client_cert_path = Path::new(home).join(inside);
        }
        config.add_database_user()?;
        for (role, alias, password) in config.bootstrap_users() {
            for (part, text) in [("ALIAS", Some(alias)), ("PASSWORD", password)] {
                ensure!(
                    text.is_none_or(|text| Text::new(text).is_some()),
                    "OMGSERVERS_BOOTSTRAP_{}_USER_{part} {}",
                    role.as_str().to_uppercase(),
                    text::TEXT_CONSTRAINT
                );
            }
        }
        Ok(config)
    }

    /// Puts user and password into the addresses of the databases that name none.
    fn add_database_user(&mut self) -> anyhow::Result<()> {
        let Some(first) = &mut self.database_url else {
            ensure!(
                self.database_username == DATABASE_USERNAME && self.database_password.is_none(),
                "OMGSERVERS_DATABASE_USERNAME or OMGSERVERS_DATABASE_PASSWORD is set but OMGSERVERS_DATABASE_URL is not"
            );
            return Ok(());
        };
        let more = (1..).map(|index| format!("OMGSERVERS_DATABASES_{index}__URL"));
        let more = more.zip(&mut self.more_database_urls);
        for (name, address) in std::iter::once(("OMGSERVERS_DATABASE_URL".to_owned(), first)).chain(more) {
            // Without the cause: it may quote a password.
            let mut url = Url::parse(address)
                .ok()
                .with_context(|| format!("{name} is not an address such as `postgres://host:5432/omgservers`"))?;
            let asks = |url: &Url, key: &str| url.query_pairs().any(|(known, _)| known == key);
            if url.username().is_empty() && !asks(&url, "user") && url.set_username(&self.database_username).is_err() {
                // One that names its socket among the parameters has no host to put it before.
                url.query_pairs_mut().append_pair("user", &self.database_username);
            }
            if let Some(password) = &self.database_password
                && url.password().is_none()
                && !asks(&url, "password")
                && url.set_password(Some(password)).is_err()
            {
                url.query_pairs_mut().append_pair("password", password);
            }
            *address = url.into();
        }
        Ok(())
    }

    /// The first users: their role, name and, if they shall be created, password.
    pub fn bootstrap_users(&self) -> [(Role, &str, Option<&str>); 6] {
        [
            (
                Role::Admin,
                &self.bootstrap_admin_user_alias,
                &self.bootstrap_admin_user_password,
            ),
            (
                Role::Support,
                &self.bootstrap_support_user_alias,
                &self.bootstrap_support_user_password,
            ),
            (
                Role::Registry,
                &self.bootstrap_registry_user_alias,
                &self.bootstrap_registry_user_password,
            ),
            (
                Role::Builder,
                &self.bootstrap_builder_user_alias,
                &self.bootstrap_builder_user_password,
            ),
            (
                Role::Service,
                &self.bootstrap_service_user_alias,
                &self.bootstrap_service_user_password,
            ),
            (
                Role::Dispatcher,
                &self.bootstrap_dispatcher_user_alias,
                &self.bootstrap_dispatcher_user_password,
            ),
        ]
        .map(|(role, alias, password)| (role, alias.as_str(), password.as_deref()))
    }

    /// Whether a key may be generated here. With an external database every instance needs the same, so it must be given.
    pub fn may_generate_keys(&self) -> bool {
        self.database_url.is_none() || self.allow_default_secrets
    }

    /// Refuses passwords that everybody would try first, except on one's own machine.
    pub fn check_passwords(&self) -> anyhow::Result<()> {
        if self.may_generate_keys() || !self.bootstrap_enabled {
            return Ok(());
        }
        for (role, alias, password) in self.bootstrap_users() {
            ensure!(
                password.is_none_or(|password| password != alias && password != role.as_str()),
                "OMGSERVERS_BOOTSTRAP_{}_USER_PASSWORD is the user's name: choose another with an external database",
                role.as_str().to_uppercase()
            );
        }
        Ok(())
    }

    /// The folder of client certificates for hosts, if they are used.
    pub fn docker_certificates(&self) -> Option<PathBuf> {
        self.docker_client_tls_verify
            .then(|| self.docker_client_cert_path.clone())
    }

    /// How hosts log in at the registry, if they do.
    pub fn registry_login(&self) -> Option<RegistryLogin> {
        let uri = self.registry_uri.as_str();
        let place = uri.split_once("://").map_or(uri, |(_, place)| place);
        Some(RegistryLogin {
            address: place.split('/').next().unwrap_or_default().to_owned(),
            username: self.service_user_alias.clone(),
            password: self.service_user_password.clone()?,
        })
    }

    /// The settings that tests start from: nothing of the environment.
    pub fn for_tests(data_directory: PathBuf) -> Self {
        let nothing = Environment::default();
        let mut config = Self::read(["omgservers-service".into()], &nothing).expect("the defaults are good");
        config.data_directory = data_directory;
        config.http_address = std::net::Ipv4Addr::LOCALHOST.into();
        config.http_port = 0;
        config.management_port = 0;
        config.durable = false;
        config
    }

    /// Settings of which there may be many.
    fn read_lists(&mut self, environment: &Environment) -> anyhow::Result<()> {
        let numbers = |groups: &[_], first| environment.numbers(groups, first).map_err(anyhow::Error::msg);
        for index in numbers(&[("OMGSERVERS_DATABASES_", &["URL", "URL_FILE"])], 1)? {
            let name = format!("OMGSERVERS_DATABASES_{index}__URL");
            let url = environment.secret(&name).map_err(anyhow::Error::msg)?;
            self.more_database_urls.extend(url);
        }
        ensure!(
            self.more_database_urls.is_empty() || self.database_url.is_some(),
            "OMGSERVERS_DATABASES_1__URL is set but OMGSERVERS_DATABASE_URL is not"
        );
        for index in numbers(&HOST_GROUPS, 0)? {
            let names = |part: &str| {
                [
                    format!("OMGSERVERS_BOOTSTRAP_DEFAULT_POOL_DOCKER_HOSTS_{index}__{part}"),
                    format!("OMGSERVERS_BOOTSTRAP_DEFAULT_POOL_SERVERS_{index}__{part}"),
                ]
            };
            let text = |part: &str| {
                let found = names(part)
                    .into_iter()
                    .find_map(|name| Some((environment.get(&name)?.to_owned(), name)));
                found.with_context(|| format!("{} is not set", names(part)[0]))
            };
            let number = |part: &str| {
                let (value, name) = text(part)?;
                let number = value.parse().ok().filter(|number| *number > 0);
                number.with_context(|| format!("{name} must be a number from 1, not `{value}`"))
            };
            self.bootstrap_hosts.push(HostConfig {
                uri: text("DOCKER_DAEMON_URI")?.0,
                cpu_count: number("CPU_COUNT")?,
                memory_mb: number("MEMORY_SIZE")?,
                max_containers: number("MAX_CONTAINERS")?,
            });
            let idle = names("SERVER_URI").into_iter();
            self.without_effect
                .extend(idle.filter(|name| environment.get(name).is_some()));
        }
        // Instances find each other in the database.
        let servers = environment.starting_with("OMGSERVERS_INITIALIZATION_SERVER_INDEX_SERVERS_");
        let changed = servers.filter(|(_, uri)| *uri != accepted::SERVER);
        self.without_effect.extend(changed.map(|(name, _)| name.to_owned()));
        Ok(())
    }

    /// Where runtimes find the platform.
    pub fn runtimes_service_url(&self) -> &str {
        if self.runtimes_overriding_enabled {
            &self.runtimes_overriding_uri
        } else {
            &self.server_uri
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbered_variables_are_read_and_a_bad_one_is_named() {
        let host = |cpu| {
            [
                (
                    "OMGSERVERS_BOOTSTRAP_DEFAULT_POOL_DOCKER_HOSTS_0__DOCKER_DAEMON_URI",
                    "process://",
                ),
                ("OMGSERVERS_BOOTSTRAP_DEFAULT_POOL_DOCKER_HOSTS_0__CPU_COUNT", cpu),
                ("OMGSERVERS_BOOTSTRAP_DEFAULT_POOL_DOCKER_HOSTS_0__MEMORY_SIZE", "16"),
                ("OMGSERVERS_BOOTSTRAP_DEFAULT_POOL_DOCKER_HOSTS_0__MAX_CONTAINERS", "16"),
            ]
        };
        let expected = HostConfig {
            uri: "process://".into(),
            cpu_count: 8,
            memory_mb: 16,
            max_containers: 16,
        };
        assert_eq!(read(&[], &host("8")).unwrap().bootstrap_hosts, [expected]);
        let refused = refusal(&[], &host("many"));
        assert!(
            refused.contains("DOCKER_HOSTS_0__CPU_COUNT") && refused.contains("many"),
            "{refused}"
        );
        let refused = refusal(&[], &host("8")[1..]);
        assert_eq!(
            refused,
            "OMGSERVERS_BOOTSTRAP_DEFAULT_POOL_DOCKER_HOSTS_0__DOCKER_DAEMON_URI is not set"
        );
        for (name, value) in [
            ("OMGSERVERS_BOOTSTRAP_DEFAULT_POOL_DOCKER_HOSTS_2__CPU_COUNT", "8"),
            ("OMGSERVERS_BOOTSTRAP_DEFAULT_POOL_DOCKER_HOSTS_0__CPUS", "8"),
            (
                "OMGSERVERS_BOOTSTRAP_DEFAULT_POOL_SERVERS_0_DOCKER_DAEMON_URI",
                "process://",
            ),
            ("OMGSERVERS_DATABASES_0__URL", "postgres://a/omg"),
            ("OMGSERVERS_DATABASES_1__URL", "b"),
            ("OMGSERVERS_DATABASES_2__URL", "postgres://b/omg"),
        ] {
            let variables = [&host("8")[..], &[(name, value)]].concat();
            let refused = refusal(&["--database-url=postgres://a/omg"], &variables);
            assert!(refused.starts_with(name), "{refused}");
        }
    }

    fn read(arguments: &[&str], variables: &[(&str, &str)]) -> anyhow::Result<Config> {
        let given = std::iter::once("service")
            .chain(arguments.iter().copied())
            .map(OsString::from);
        let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
        Config::read(given, &Environment::new(variables).unwrap())
    }

    fn refusal(arguments: &[&str], variables: &[(&str, &str)]) -> String {
        match read(arguments, variables) {
            Ok(_) => panic!("it was read"),
            Err(cause) => cause.to_string(),
        }
    }

    #[test]
    fn a_bad_value_is_named_by_its_variable() {
        for (name, value) in [
            ("OMGSERVERS_INITIALIZATION_SCHEDULER_JOB_INTERVAL", "soon"),
            ("OMGSERVERS_SLOTS_COUNT", "many"),
            ("OMGSERVERS_SERVER_INSTANCE_ID", "1024"),
            ("OMGSERVERS_LOGGING_ROOT_LOGS_LEVEL", "LOUD"),
            ("OMGSERVERS_APP_LOG_LEVEL", "LOUD"),
            ("OMGSERVERS_BOOTSTRAP_ENABLED", "perhaps"),
            ("OMGSERVERS_BOOTSTRAP_ADMIN_USER_ALIAS", " "),
            ("OMGSERVERS_BOOTSTRAP_DISPATCHER_USER_PASSWORD", " "),
            ("OMGSERVERS_DATABASE_URL", "database"),
            ("OMGSERVERS_SERVER_PRIVATE_KEY", "/nowhere.pem"),
        ] {
            let refused = refusal(&[], &[(name, value)]);
            assert!(refused.starts_with(name), "{refused}");
        }
    }

    #[test]
    fn an_empty_variable_is_unset_unless_nothing_is_a_value() {
        let empty = [
            ("OMGSERVERS_DATABASE_URL", ""),
            ("OMGSERVERS_DATABASE_USERNAME", ""),
            ("OMGSERVERS_DATABASE_PASSWORD", ""),
            ("OMGSERVERS_SERVER_INSTANCE_ID", ""),
            ("OMGSERVERS_HTTP_PORT", ""),
            ("OMGSERVERS_HTTP_CORS_ORIGINS", ""),
            ("OMGSERVERS_TRUSTED_PROXIES", ""),
        ];
        let config = read(&[], &empty).unwrap();
        assert_eq!((config.database_url, config.http_port), (None, 8080));
        assert_eq!(config.http_cors_origins, Origins::These(Vec::new()));
        assert_eq!(config.trusted_proxies, Proxies::default());
    }

    #[test]
    fn every_setting_is_explained_and_secrets_are_not_shown() {
        Config::command().debug_assert();
        for argument in Config::command().get_arguments() {
            let Some(name) = argument.get_env().and_then(|name| name.to_str()) else {
                continue;
            };
            let is_secret = [
                "_PASSWORD",
                "BUILDER_TOKEN",
                "DATABASE_URL",
                "CACHE_HOSTS",
                "SERVER_PRIVATE_KEY",
            ]
            .iter()
            .any(|end| name.ends_with(end));
            assert_eq!(
                argument.is_hide_env_values_set(),
                is_secret,
                "{name} is secret or it is not"
            );
            assert!(argument.get_help().is_some(), "{name} is not explained in `--help`");
        }
    }

    #[test]
    fn names_of_later_versions_stand_for_settings_that_exist() {
        let known: Vec<String> = Config::command()
            .get_arguments()
            .filter_map(|argument| argument.get_env()?.to_str().map(str::to_owned))
            .collect();
        for (name, stands_for) in ALIASES {
            assert!(known.iter().any(|known| known == stands_for), "{stands_for}");
            assert!(
                !known.iter().any(|known| known == name),
                "{name} has a meaning of its own"
            );
        }
        let config = read(
            &[],
            &[
                ("OMGSERVERS_SLOTS_COUNT", "3"),
                ("OMGSERVERS_RUNTIME_SERVICE_URI", "http://inside:8080"),
                (
                    "OMGSERVERS_BOOTSTRAP_DEFAULT_POOL_SERVERS_0__DOCKER_DAEMON_URI",
                    "process://",
                ),
                ("OMGSERVERS_BOOTSTRAP_DEFAULT_POOL_SERVERS_0__SERVER_URI", "http://host"),
                ("OMGSERVERS_BOOTSTRAP_DEFAULT_POOL_SERVERS_0__CPU_COUNT", "1"),
                ("OMGSERVERS_BOOTSTRAP_DEFAULT_POOL_SERVERS_0__MEMORY_SIZE", "2"),
                ("OMGSERVERS_BOOTSTRAP_DEFAULT_POOL_SERVERS_0__MAX_CONTAINERS", "3"),
            ],
        )
        .unwrap();
        assert_eq!(config.shard_count, 3);
        assert_eq!(config.runtimes_service_url(), "http://inside:8080");
        assert_eq!(config.bootstrap_hosts[0].max_containers, 3);
        assert_eq!(
            config.without_effect,
            ["OMGSERVERS_BOOTSTRAP_DEFAULT_POOL_SERVERS_0__SERVER_URI"]
        );
    }

    #[test]
    fn what_has_no_effect_is_named_if_it_was_changed() {
        let config = read(
            &["--broker-host", "rabbit", "--service-queue", "ServiceEvents"],
            &[
                ("OMGSERVERS_JWT_EXPIRES_IN_USER", "3600"),
                ("OMGSERVERS_CACHE_HOSTS", "redis://cache:6379"),
                (
                    "OMGSERVERS_INITIALIZATION_SERVER_INDEX_SERVERS_0_",
                    "http://gateway:8080",
                ),
                ("OMGSERVERS_INITIALIZATION_SERVER_INDEX_SERVERS_1", "http://other:8080"),
            ],
        )
        .unwrap();
        assert_eq!(
            config.without_effect,
            [
                "OMGSERVERS_BROKER_HOST",
                "OMGSERVERS_CACHE_HOSTS",
                "OMGSERVERS_INITIALIZATION_SERVER_INDEX_SERVERS_1"
            ]
        );
    }

    #[test]
    fn user_and_password_of_the_database_go_into_addresses_that_name_none() {
        let credentials = ["--database-username", "me", "--database-password", "p@ss/w:rd"];
        let url = |url: &str| {
            let arguments = [&credentials[..], &["--database-url", url]].concat();
            let config = read(&arguments, &[("OMGSERVERS_DATABASES_1__URL", "postgres://b/omg")]).unwrap();
            (config.database_url.unwrap(), config.more_database_urls[0].clone())
        };
        let (first, second) = url("postgresql://database:5432/omgservers?sslmode=verify-full");
        assert_eq!(
            first,
            "postgresql://me:p%40ss%2Fw%3Ard@database:5432/omgservers?sslmode=verify-full"
        );
        assert_eq!(second, "postgres://me:p%40ss%2Fw%3Ard@b/omg");
        assert_eq!(url("postgres://you:secret@a/omg").0, "postgres://you:secret@a/omg");
        assert_eq!(
            url("postgres:///omg?host=/run/postgresql").0,
            "postgres:///omg?host=/run/postgresql&user=me&password=p%40ss%2Fw%3Ard"
        );
        let socket = "postgres:///omg?host=/run/postgresql&user=you&password=secret";
        assert_eq!(url(socket).0, socket);
        let default = read(&["--database-url=postgres://a/omg"], &[]).unwrap().database_url;
        assert_eq!(default.as_deref(), Some("postgres://omgservers@a/omg"));
        assert!(read(&credentials, &[]).is_err(), "embedded Postgres has no password");
        let refused = refusal(&[&credentials[..], &["--database-url", "p@ss"]].concat(), &[]);
        assert!(
            refused.starts_with("OMGSERVERS_DATABASE_URL") && !refused.contains("p@ss"),
            "{refused}"
        );
    }

    #[test]
    fn simple_passwords_are_for_ones_own_machine() {
        let simple = ["--bootstrap-enabled=true", "--bootstrap-admin-user-password=admin"];
        let external = ["--database-url", "postgres://a/omg"];
        let check = |arguments: &[&str]| read(arguments, &[]).unwrap().check_passwords();
        check(&simple).unwrap();
        check(&[&external[..], &["--bootstrap-admin-user-password=admin"]].concat()).unwrap();
        let both = [&simple[..], &external[..]].concat();
        let refused = check(&both).unwrap_err().to_string();
        assert!(
            refused.contains("OMGSERVERS_BOOTSTRAP_ADMIN_USER_PASSWORD"),
            "{refused}"
        );
        // Neither the alias nor the role will do.
        let renamed = "--bootstrap-admin-user-alias=root";
        assert!(check(&[&both[..], &[renamed]].concat()).is_err());
        assert!(check(&[&both[..], &[renamed, "--bootstrap-admin-user-password=root"]].concat()).is_err());
        check(&[&both[..], &["--bootstrap-admin-user-password=wfE4dgJ8"]].concat()).unwrap();
        let mut config = read(&both, &[]).unwrap();
        config.allow_default_secrets = true;
        config.check_passwords().unwrap();
        assert!(
            read(&["--bootstrap-admin-user-password= "], &[]).is_err(),
            "nobody could log in"
        );
    }

    #[test]
    fn hosts_are_reached_as_configured() {
        let plain = read(&[], &[]).unwrap();
        assert!(plain.docker_certificates().is_none() && plain.registry_login().is_none());
        let config = read(
            &[
                "--docker-client-tls-verify=true",
                "--docker-client-cert-path=~/certs",
                "--registry-uri=https://registry.example:5000/v2",
                "--service-user-password=secret",
            ],
            &[("HOME", "/home/me")],
        )
        .unwrap();
        assert_eq!(config.docker_certificates(), Some("/home/me/certs".into()));
        assert_eq!(config.registry_login().unwrap().address, "registry.example:5000");
    }
}
