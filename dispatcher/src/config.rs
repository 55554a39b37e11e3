//! Every setting, read once from the command line and the environment.

use std::ffi::OsString;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use omgservers_protocol::listen;
use omgservers_protocol::setting::{self, Alias, Environment};
use omgservers_protocol::text::{self, Text};
use omgservers_protocol::trace;

use crate::room::Limits;

/// The edge of OMGSERVERS: bytes between players and runtimes; every other path is passed on to the service.
#[derive(Parser, Debug, Clone)]
#[command(name = "omgservers-dispatcher", version, args_override_self = true, after_help = setting::AFTER_HELP)]
pub struct Config {
    /// Name of this process in logs and traces.
    #[arg(long, env = "OMGSERVERS_APPLICATION_NAME", default_value = "dispatcher")]
    pub application_name: String,
    /// Address that players and runtimes connect to.
    #[arg(long, env = "OMGSERVERS_HTTP_ADDRESS", default_value = "0.0.0.0")]
    pub http_address: IpAddr,
    /// Port that players and runtimes connect to; 0 picks a free one.
    #[arg(long, env = "OMGSERVERS_HTTP_PORT", default_value_t = 8080)]
    pub http_port: u16,
    #[command(flatten)]
    pub bounds: listen::Bounds,
    /// Address of the management port: health and metrics.
    #[arg(long, env = "OMGSERVERS_MANAGEMENT_ADDRESS", default_value = "127.0.0.1")]
    pub management_address: IpAddr,
    /// Management port; 0 picks a free one.
    #[arg(long, env = "OMGSERVERS_MANAGEMENT_PORT", default_value_t = 8000)]
    pub management_port: u16,
    /// Requests come through another proxy: its `X-Forwarded-*` headers are believed and extended. Otherwise they are replaced.
    #[arg(long, env = "OMGSERVERS_TRUST_FORWARDED_HEADERS", default_value_t = false, action = clap::ArgAction::Set)]
    pub trust_forwarded_headers: bool,

    /// Instances of the service, separated by commas. A call that one does not answer is tried on another.
    #[arg(
        long,
        env = "OMGSERVERS_SERVICE_URI",
        value_delimiter = ',',
        default_value = "http://service:8080"
    )]
    pub service_uri: Vec<ServiceUri>,
    /// Issuer in tokens.
    #[arg(long, env = "OMGSERVERS_SERVER_JWT_ISSUER", default_value = "omgservers")]
    pub issuer: String,
    /// Alias by which the dispatcher logs in at the service.
    #[arg(long, env = "OMGSERVERS_DISPATCHER_USER_ALIAS", default_value = "dispatcher")]
    pub user_alias: String,
    /// Password by which the dispatcher logs in at the service.
    #[arg(long, env = "OMGSERVERS_DISPATCHER_USER_PASSWORD", hide_env_values = true)]
    pub user_password: Secret,
    /// How often the login is renewed, such as `60s`.
    #[arg(long, env = "OMGSERVERS_REFRESH_DISPATCHER_TOKEN_JOB_INTERVAL", default_value = "60s", value_parser = text::duration)]
    pub refresh_token_interval: Duration,

    /// A connection that says nothing and answers no ping for so long is closed, seconds.
    #[arg(long, env = "OMGSERVERS_EXPIRED_CONNECTIONS_IDLE_TIMEOUT", default_value = "32", value_parser = text::duration)]
    pub idle_timeout: Duration,
    /// Longest time between two looks for such connections, such as `60s`. It is looked more often than that where needed.
    #[arg(long, env = "OMGSERVERS_EXPIRED_CONNECTIONS_HANDLER_JOB_INTERVAL", default_value = "60s", value_parser = text::duration)]
    pub idle_sweep_interval: Duration,
    /// How often a connection is pinged.
    #[arg(long, env = "OMGSERVERS_PING_INTERVAL", default_value = "16s", value_parser = text::duration)]
    pub ping_interval: Duration,
    /// How long a room is held for a runtime that lost its binary link.
    #[arg(long, env = "OMGSERVERS_ROOM_GRACE_INTERVAL", default_value = "10s", value_parser = text::duration)]
    pub room_grace: Duration,
    /// Bytes on the reliable lane that may wait for one player, who is dropped beyond.
    #[arg(long, env = "OMGSERVERS_PLAYER_QUEUE_BYTES", default_value_t = 1_048_576, value_parser = clap::value_parser!(u32).range(65_536..=1_073_741_824))]
    pub player_queue_bytes: u32,
    /// Messages on the reliable lane that may wait for one player, who is dropped beyond.
    #[arg(long, env = "OMGSERVERS_PLAYER_QUEUE_MESSAGES", default_value_t = 1_024, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub player_queue_messages: u32,
    /// Bytes that may wait for one runtime, whose link is closed beyond.
    #[arg(long, env = "OMGSERVERS_RUNTIME_QUEUE_BYTES", default_value_t = 8_388_608, value_parser = clap::value_parser!(u32).range(1_048_576..=1_073_741_824))]
    pub runtime_queue_bytes: u32,
    /// Messages per second that are read from one player; a faster one is made to wait.
    #[arg(long, env = "OMGSERVERS_PLAYER_MESSAGES_PER_SECOND", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub player_messages_per_s: u32,

    #[command(flatten)]
    pub telemetry: trace::Settings,
    /// Key of tokens: keys are fetched from the service.
    #[arg(
        long,
        env = "OMGSERVERS_SERVER_PUBLIC_KEY",
        default_value = "file:/jwt_issuer/public_key.pem",
        help_heading = setting::WITHOUT_EFFECT
    )]
    pub server_public_key: String,
    /// Audience of tokens: each kind of caller has its own.
    #[arg(long, env = "OMGSERVERS_JWT_AUDIENCE", default_value = "dispatcher", help_heading = setting::WITHOUT_EFFECT)]
    pub jwt_audience: String,
    /// Variables that were set to something of their own, but have no effect.
    #[arg(skip)]
    pub without_effect: Vec<String>,
}

/// Names of later versions, and what they stand for.
pub const ALIASES: [Alias; 8] = [
    ("OMGSERVERS_JWT_ISSUER", "OMGSERVERS_SERVER_JWT_ISSUER"),
    ("OMGSERVERS_PUBLIC_KEY_LOCATION", "OMGSERVERS_SERVER_PUBLIC_KEY"),
    (
        "OMGSERVERS_IDLE_CONNECTION_TIMEOUT",
        "OMGSERVERS_EXPIRED_CONNECTIONS_IDLE_TIMEOUT",
    ),
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
];

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
        Ok(config)
    }

    /// The settings that tests start from: free ports on loopback, these instances of the service.
    pub fn for_tests(service_uri: Vec<ServiceUri>, user_password: &str) -> Self {
        let given = ["omgservers-dispatcher", "--user-password", user_password].map(OsString::from);
        let mut config = Self::read(given, &Environment::default()).expect("the defaults are good");
        config.http_address = std::net::Ipv4Addr::LOCALHOST.into();
        config.http_port = 0;
        config.management_port = 0;
        config.service_uri = service_uri;
        config
    }

    pub(crate) fn limits(&self) -> Limits {
        let mut limits = Limits {
            backlog_bytes_max: self.runtime_queue_bytes as usize,
            grace: self.room_grace,
            idle: self.idle_timeout,
            ping_every: self.ping_interval,
            ..Limits::default()
        };
        limits.outbox.reliable_bytes_max = self.player_queue_bytes as usize;
        limits.outbox.reliable_messages_max = self.player_queue_messages as usize;
        limits
    }

    /// How often rooms look at the time: often enough for the shortest of their times.
    pub(crate) fn tick_interval(&self) -> Duration {
        let shortest = self.room_grace.min(self.idle_timeout).min(self.ping_interval);
        let wanted = (shortest / 4).min(self.idle_sweep_interval);
        wanted.clamp(Duration::from_millis(10), Duration::from_secs(1))
    }

    /// Login and password, if they can be such.
    pub(crate) fn login(&self) -> anyhow::Result<(Text, Text)> {
        let text = |text: &str, name: &str| {
            Text::new(text).ok_or_else(|| {
                let constraint = omgservers_protocol::text::TEXT_CONSTRAINT;
                anyhow::anyhow!("`{name}` {constraint}")
            })
        };
        Ok((
            text(&self.user_alias, "OMGSERVERS_DISPATCHER_USER_ALIAS")?,
            text(&self.user_password.0, "OMGSERVERS_DISPATCHER_USER_PASSWORD")?,
        ))
    }
}

/// A setting that is never shown.
#[derive(Clone)]
pub struct Secret(String);

impl FromStr for Secret {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The address of an instance of the service: `http://host:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceUri(hyper::http::uri::Authority);

impl ServiceUri {
    pub(crate) fn authority(&self) -> &hyper::http::uri::Authority {
        &self.0
    }
}

impl fmt::Display for ServiceUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.0)
    }
}

impl FromStr for ServiceUri {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let uri: hyper::Uri = text
            .trim()
            .parse()
            .map_err(|_| format!("`{text}` is not an address such as `http://service:8080`"))?;
        if uri.scheme_str() != Some("http") {
            return Err(format!(
                "`{text}` does not start with `http://`: dispatcher and service share a private network"
            ));
        }
        if uri.path() != "/" || uri.query().is_some() {
            return Err(format!("`{text}` has a path: only host and port are wanted"));
        }
        match uri.authority() {
            Some(authority) if !authority.host().is_empty() && !authority.as_str().contains('@') => {
                Ok(Self(authority.clone()))
            }
            _ => Err(format!("`{text}` names no host")),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn read(variables: &[(&str, &str)]) -> anyhow::Result<Config> {
        let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
        let environment = Environment::new(variables).map_err(anyhow::Error::msg)?;
        Config::read(["dispatcher".into()], &environment)
    }

    #[test]
    fn the_names_of_the_settings_are_unique_and_secrets_are_not_shown() {
        Config::command().debug_assert();
        let config = Config::for_tests(vec!["http://a:1".parse().unwrap()], "hunter2");
        assert!(!format!("{config:?}").contains("hunter2"));
        for argument in Config::command().get_arguments() {
            let Some(name) = argument.get_env().and_then(|name| name.to_str()) else {
                continue;
            };
            assert!(name.starts_with("OMGSERVERS_"), "{name}");
            assert_eq!(
                argument.is_hide_env_values_set(),
                name.ends_with("_PASSWORD"),
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
        let config = read(&[
            ("OMGSERVERS_DISPATCHER_USER_PASSWORD", "x"),
            ("OMGSERVERS_PUBLIC_KEY_LOCATION", "mine"),
            ("OMGSERVERS_IDLE_CONNECTION_TIMEOUT", "30"),
            ("OMGSERVERS_JWT_AUDIENCE", "mine"),
        ])
        .unwrap();
        assert_eq!(config.idle_timeout, Duration::from_secs(30));
        assert_eq!(
            config.without_effect,
            ["OMGSERVERS_SERVER_PUBLIC_KEY", "OMGSERVERS_JWT_AUDIENCE"]
        );
    }

    #[test]
    fn a_bad_value_is_named_by_its_variable() {
        let refused = read(&[]).unwrap_err().to_string();
        assert_eq!(refused, "not set: OMGSERVERS_DISPATCHER_USER_PASSWORD");
        let password = ("OMGSERVERS_DISPATCHER_USER_PASSWORD", "hunter2");
        for (name, value) in [
            ("OMGSERVERS_PING_INTERVAL", "often"),
            ("OMGSERVERS_IDLE_CONNECTION_TIMEOUT", "never"),
            ("OMGSERVERS_SERVICE_URI", "http://a,https://b"),
        ] {
            let refused = read(&[password, (name, value)]).unwrap_err().to_string();
            assert!(refused.starts_with(name) && !refused.contains("hunter2"), "{refused}");
        }
    }

    #[test]
    fn several_instances_are_separated_by_commas_and_bad_addresses_are_named() {
        let parse = |uri: &str| {
            Config::try_parse_from(["dispatcher", "--user-password", "x", "--service-uri", uri])
                .map(|config| config.service_uri.iter().map(ToString::to_string).collect::<Vec<_>>())
                .map_err(|error| error.to_string())
        };
        assert_eq!(
            parse("http://a:8080,http://b:8081/").unwrap(),
            ["http://a:8080", "http://b:8081"]
        );
        for bad in ["https://a", "a:80", "http://", "http://a/path", "http://u:p@a"] {
            let error = parse(bad).unwrap_err();
            assert!(error.contains(bad), "{error}");
        }
    }

    #[test]
    fn time_passes_often_enough_for_the_shortest_limit() {
        let mut config = Config::for_tests(Vec::new(), "x");
        assert_eq!(config.tick_interval(), Duration::from_secs(1));
        config.room_grace = Duration::from_millis(400);
        assert_eq!(config.tick_interval(), Duration::from_millis(100));
    }
}
