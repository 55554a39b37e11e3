//! Reads the settings, starts the logs, runs the dispatcher until it is told to stop.

use clap::Parser as _;
use omgservers_dispatcher::Config;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let config = Config::parse();
    if config.console_logs_enabled {
        omgservers_protocol::telemetry::start(&config.root_logs_level, &config.app_logs_level, config.logs_json)
            .map_err(anyhow::Error::msg)?;
    }
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    omgservers_dispatcher::run(config).await
}
