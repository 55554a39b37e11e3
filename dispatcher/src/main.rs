//! Reads the settings, starts the logs, runs the dispatcher until it is told to stop.

use omgservers_dispatcher::Config;
use omgservers_protocol::trace;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let config = Config::load()?;
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let traces = trace::start(&config.telemetry, &config.application_name).map_err(anyhow::Error::msg)?;
    let ended = omgservers_dispatcher::run(config).await;
    tokio::task::spawn_blocking(move || traces.stop()).await.ok();
    ended
}
