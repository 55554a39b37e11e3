//! Settings of other versions that are understood, so that their environment is not refused, but change nothing here.

use std::time::Duration;

use clap::Args;
use omgservers_protocol::{setting, text};

/// The default entry in the list of servers.
pub(super) const SERVER: &str = "http://gateway:8080";

#[derive(Args, Clone)]
#[command(next_help_heading = setting::WITHOUT_EFFECT)]
pub struct Accepted {
    /// RSA key for tokens of the registry: a path, with or without `file:`.
    #[arg(
        long,
        env = "OMGSERVERS_SERVER_PUBLIC_KEY",
        default_value = "file:/jwt_issuer/public_key.pem"
    )]
    pub server_public_key: String,
    /// RSA key for tokens of the registry: a path, with or without `file:`.
    #[arg(
        long,
        env = "OMGSERVERS_SERVER_PRIVATE_KEY",
        default_value = "file:/jwt_issuer/private_key.pem"
    )]
    pub server_private_key: String,
    /// Certificate in tokens of the registry, DER in base64.
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
}
