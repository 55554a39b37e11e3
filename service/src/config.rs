//! Every setting, read once from the command line and the environment.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Parser;
use omgservers_protocol::text;

use crate::address::Proxies;
use crate::api::Origins;

/// The control plane of OMGSERVERS: API, state, planners and workers.
#[derive(Parser, Clone)]
#[command(name = "omgservers-service", version)]
pub struct Config {
    /// Address that the HTTP API listens on.
    #[arg(long, env = "OMGSERVERS_HTTP_ADDRESS", default_value = "0.0.0.0")]
    pub http_address: std::net::IpAddr,
    /// Port of the HTTP API; 0 picks a free one.
    #[arg(long, env = "OMGSERVERS_HTTP_PORT", default_value_t = 8080)]
    pub http_port: u16,
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
    #[arg(long, env = "OMGSERVERS_HTTP_CORS_ORIGINS", default_value = "*")]
    pub http_cors_origins: Origins,
    /// Proxies whose `X-Forwarded-For` is believed: addresses and networks, separated by commas.
    #[arg(long, env = "OMGSERVERS_TRUSTED_PROXIES", default_value = "127.0.0.0/8,::1")]
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
    /// Connections of this instance to each database, whatever the number of shards.
    #[arg(long, env = "OMGSERVERS_DATABASE_MAX_CONNECTIONS", default_value_t = 40, value_parser = clap::value_parser!(u32).range(6..=10_000))]
    pub database_max_connections: u32,
    /// Further databases: `OMGSERVERS_DATABASES_<i>__URL`, i from 1.
    #[arg(skip)]
    pub more_database_urls: Vec<String>,
    /// Embedded Postgres keeps what it acknowledged over a crash. Only tests turn it off.
    #[arg(skip = true)]
    pub durable: bool,
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

    /// Creates the first users and the pool of hosts at the start.
    #[arg(long, env = "OMGSERVERS_BOOTSTRAP_ENABLED", default_value_t = false, action = clap::ArgAction::Set)]
    pub bootstrap_enabled: bool,
    #[arg(long, env = "OMGSERVERS_BOOTSTRAP_ADMIN_USER_ALIAS", default_value = "admin")]
    pub bootstrap_admin_user_alias: String,
    /// The user is created only if its password is set.
    #[arg(long, env = "OMGSERVERS_BOOTSTRAP_ADMIN_USER_PASSWORD", hide_env_values = true)]
    pub bootstrap_admin_user_password: Option<String>,
    #[arg(long, env = "OMGSERVERS_BOOTSTRAP_SUPPORT_USER_ALIAS", default_value = "support")]
    pub bootstrap_support_user_alias: String,
    #[arg(long, env = "OMGSERVERS_BOOTSTRAP_SUPPORT_USER_PASSWORD", hide_env_values = true)]
    pub bootstrap_support_user_password: Option<String>,
    #[arg(
        long,
        env = "OMGSERVERS_BOOTSTRAP_DISPATCHER_USER_ALIAS",
        default_value = "dispatcher"
    )]
    pub bootstrap_dispatcher_user_alias: String,
    #[arg(long, env = "OMGSERVERS_BOOTSTRAP_DISPATCHER_USER_PASSWORD", hide_env_values = true)]
    pub bootstrap_dispatcher_user_password: Option<String>,
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

    /// Longest time between two looks for work whose hint was lost, such as `1s`.
    #[arg(long, env = "OMGSERVERS_INITIALIZATION_SCHEDULER_JOB_INTERVAL", default_value = "1s", value_parser = text::duration)]
    pub sweep_interval: Duration,
    /// Level of this project's logs.
    #[arg(long, env = "OMGSERVERS_LOGGING_APP_LOGS_LEVEL", default_value = "INFO")]
    pub app_logs_level: String,
    /// Level of everybody else's.
    #[arg(long, env = "OMGSERVERS_LOGGING_ROOT_LOGS_LEVEL", default_value = "WARN")]
    pub root_logs_level: String,
    /// Logs are JSON lines.
    #[arg(long, env = "OMGSERVERS_LOGGING_JSON", default_value_t = false, action = clap::ArgAction::Set)]
    pub logs_json: bool,
}

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
        let mut config = Self::parse();
        config.read_lists(&|name| {
            #[expect(clippy::disallowed_methods, reason = "the one place that reads numbered variables")]
            std::env::var(name).ok()
        })?;
        Ok(config)
    }

    /// The settings that tests start from: nothing of the environment.
    pub fn for_tests(data_directory: PathBuf) -> Self {
        let mut config = Self::parse_from(["omgservers-service"]);
        config.data_directory = data_directory;
        config.http_address = std::net::Ipv4Addr::LOCALHOST.into();
        config.http_port = 0;
        config.management_port = 0;
        config.durable = false;
        config
    }

    /// Settings of which there may be many.
    fn read_lists(&mut self, variable: &dyn Fn(&str) -> Option<String>) -> anyhow::Result<()> {
        for index in 1.. {
            let Some(url) = variable(&format!("OMGSERVERS_DATABASES_{index}__URL")) else {
                break;
            };
            self.more_database_urls.push(url);
        }
        ensure!(
            self.more_database_urls.is_empty() || self.database_url.is_some(),
            "OMGSERVERS_DATABASES_1__URL is set but OMGSERVERS_DATABASE_URL is not"
        );
        for index in 0.. {
            let name = |part: &str| format!("OMGSERVERS_BOOTSTRAP_DEFAULT_POOL_DOCKER_HOSTS_{index}__{part}");
            let Some(uri) = variable(&name("DOCKER_DAEMON_URI")) else {
                break;
            };
            let number = |part: &str| -> anyhow::Result<u32> {
                let name = name(part);
                let value = variable(&name).with_context(|| format!("{name} is not set"))?;
                value
                    .parse()
                    .ok()
                    .filter(|number| *number > 0)
                    .with_context(|| format!("{name} must be a number from 1, not `{value}`"))
            };
            self.bootstrap_hosts.push(HostConfig {
                uri,
                cpu_count: number("CPU_COUNT")?,
                memory_mb: number("MEMORY_SIZE")?,
                max_containers: number("MAX_CONTAINERS")?,
            });
        }
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
        let mut config = Config::for_tests(".".into());
        let host = "OMGSERVERS_BOOTSTRAP_DEFAULT_POOL_DOCKER_HOSTS_0__";
        let variables = |cpu: &'static str| {
            move |name: &str| match name.strip_prefix(host) {
                Some("DOCKER_DAEMON_URI") => Some("process://".to_owned()),
                Some("CPU_COUNT") => Some(cpu.to_owned()),
                Some("MEMORY_SIZE" | "MAX_CONTAINERS") => Some("16".to_owned()),
                _ => None,
            }
        };
        config.read_lists(&variables("8")).unwrap();
        let expected = HostConfig {
            uri: "process://".into(),
            cpu_count: 8,
            memory_mb: 16,
            max_containers: 16,
        };
        assert_eq!(config.bootstrap_hosts, [expected]);
        let refused = config.read_lists(&variables("many")).unwrap_err().to_string();
        assert!(
            refused.contains("DOCKER_HOSTS_0__CPU_COUNT") && refused.contains("many"),
            "{refused}"
        );
    }
}
