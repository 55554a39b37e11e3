//! Reads the settings, starts the logs, runs the dispatcher until it is told to stop.

use std::time::Duration;

use anyhow::Context as _;
use omgservers_dispatcher::Config;
use omgservers_protocol::trace;

/// Threads that wait for a name to be resolved get so long when everything else has ended.
const LAST_THREADS: Duration = Duration::from_secs(2);

fn main() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Runtime::new().context("threads cannot be started")?;
    let ended = runtime.block_on(run());
    runtime.shutdown_timeout(LAST_THREADS);
    ended
}

async fn run() -> anyhow::Result<()> {
    let config = Config::load()?;
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let traces = trace::start(&config.telemetry, &config.application_name).map_err(anyhow::Error::msg)?;
    let ended = omgservers_dispatcher::run(config).await;
    tokio::task::spawn_blocking(move || traces.stop()).await.ok();
    ended
}
