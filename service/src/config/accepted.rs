//! Settings of other versions that are understood, so that their environment is not refused, but change nothing here.

use std::time::Duration;

use clap::Args;
use omgservers_protocol::{setting, text};

/// The default entry in the list of servers.
pub(super) const SERVER: &str = "http://gateway:8080";

#[derive(Args, Clone)]
#[command(next_help_heading = setting::WITHOUT_EFFECT)]
pub struct Accepted {
    /// Public part of the RSA key for tokens of the registry: PEM, or a path with or without `file:`. Checked if given.
    #[arg(
        long,
        env = "OMGSERVERS_SERVER_PUBLIC_KEY",
        default_value = "file:/jwt_issuer/public_key.pem"
    )]
    pub server_public_key: String,
    /// RSA key for tokens of the registry: PEM, or a path with or without `file:`. Checked if given.
    #[arg(
        long,
        env = "OMGSERVERS_SERVER_PRIVATE_KEY",
        default_value = "file:/jwt_issuer/private_key.pem",
        hide_env_values = true
    )]
    pub server_private_key: String,
    /// Certificate in tokens of the registry: DER in base64, PEM, or a path with or without `file:`. Checked if given.
    #[arg(long, env = "OMGSERVERS_SERVER_X5C")]
    pub server_x5c: Option<String>,

    /// Host of the message broker.
    #[arg(long, env = "OMGSERVERS_BROKER_HOST")]
    pub broker_host: Option<String>,
    /// Its port.
    #[arg(long, env = "OMGSERVERS_BROKER_PORT", default_value_t = 5672)]
    pub broker_port: u16,
    /// User of the message broker.
    #[arg(long, env = "OMGSERVERS_BROKER_USERNAME", default_value = "omgservers")]
    pub broker_username: String,
    /// Its password.
    #[arg(long, env = "OMGSERVERS_BROKER_PASSWORD", hide_env_values = true)]
    pub broker_password: Option<String>,
    /// Queue of internal events: there is none.
    #[arg(long, env = "OMGSERVERS_SERVICE_QUEUE", default_value = "ServiceEvents")]
    pub service_queue: String,
    /// Queue for consumers outside.
    #[arg(long, env = "OMGSERVERS_FORWARDING_QUEUE", default_value = "ForwardedEvents")]
    pub forwarding_queue: String,

    /// Address of the builder of images.
    #[arg(long, env = "OMGSERVERS_BUILDER_URI", default_value = "http://builder:8080")]
    pub builder_uri: String,
    /// User of the builder.
    #[arg(long, env = "OMGSERVERS_BUILDER_USERNAME", default_value = "omgservers")]
    pub builder_username: String,
    /// Token of the builder.
    #[arg(long, env = "OMGSERVERS_BUILDER_TOKEN", hide_env_values = true)]
    pub builder_token: Option<String>,

    /// Writes the list of servers: instances find each other in the database.
    #[arg(long, env = "OMGSERVERS_INITIALIZATION_SERVER_INDEX_ENABLED", default_value_t = true, action = clap::ArgAction::Set)]
    pub server_index_enabled: bool,
    /// How often events are looked for: they are handled at once.
    #[arg(long, env = "OMGSERVERS_INITIALIZATION_RELAY_JOB_INTERVAL", default_value = "1s", value_parser = text::duration)]
    pub relay_job_interval: Duration,
    /// How often the first users are looked for: once, at the start.
    #[arg(long, env = "OMGSERVERS_INITIALIZATION_BOOTSTRAP_JOB_INTERVAL", default_value = "1s", value_parser = text::duration)]
    pub bootstrap_job_interval: Duration,

    // Those of later versions: text, since nobody looks at it.
    /// Audience of tokens for the service: each kind of caller has its own.
    #[arg(long, env = "OMGSERVERS_JWT_AUDIENCE_SERVICE")]
    pub jwt_audience_service: Option<String>,
    /// Audience of tokens for the connector.
    #[arg(long, env = "OMGSERVERS_JWT_AUDIENCE_CONNECTOR")]
    pub jwt_audience_connector: Option<String>,
    /// Audience of tokens for the dispatcher.
    #[arg(long, env = "OMGSERVERS_JWT_AUDIENCE_DISPATCHER")]
    pub jwt_audience_dispatcher: Option<String>,
    /// Life of a service's token, seconds.
    #[arg(long, env = "OMGSERVERS_JWT_EXPIRES_IN_SERVICE", default_value = "31536000")]
    pub jwt_expires_in_service: String,
    /// Life of a user's token, seconds.
    #[arg(long, env = "OMGSERVERS_JWT_EXPIRES_IN_USER", default_value = "3600")]
    pub jwt_expires_in_user: String,
    /// Life of a runtime's token, seconds.
    #[arg(long, env = "OMGSERVERS_JWT_EXPIRES_IN_RUNTIME", default_value = "3600")]
    pub jwt_expires_in_runtime: String,
    /// Life of a token for a socket, seconds.
    #[arg(long, env = "OMGSERVERS_JWT_EXPIRES_IN_WS_TOKEN", default_value = "60")]
    pub jwt_expires_in_ws_token: String,
    /// The first of the servers: instances are equal.
    #[arg(long, env = "OMGSERVERS_MASTER_URI")]
    pub master_uri: Option<String>,
    /// Where players find the connector: there is none.
    #[arg(long, env = "OMGSERVERS_CLIENT_CONNECTOR_URI")]
    pub client_connector_uri: Option<String>,
    /// Where players find the dispatcher: at the public address.
    #[arg(long, env = "OMGSERVERS_CLIENT_DISPATCHER_URI")]
    pub client_dispatcher_uri: Option<String>,
    /// Where runtimes find the dispatcher: where they find the service.
    #[arg(long, env = "OMGSERVERS_RUNTIME_DISPATCHER_URI")]
    pub runtime_dispatcher_uri: Option<String>,
    /// Caches: there are none.
    #[arg(long, env = "OMGSERVERS_CACHE_HOSTS", hide_env_values = true)]
    pub cache_hosts: Option<String>,
    /// Name of the connectors' user.
    #[arg(long, env = "OMGSERVERS_BOOTSTRAP_CONNECTOR_USER_ALIAS", default_value = "connector")]
    pub bootstrap_connector_user_alias: String,
    /// Password of the connectors' user.
    #[arg(long, env = "OMGSERVERS_BOOTSTRAP_CONNECTOR_USER_PASSWORD", hide_env_values = true)]
    pub bootstrap_connector_user_password: Option<String>,
}
