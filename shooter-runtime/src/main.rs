//! The shooter's process: settings, logging, one thread.

use anyhow::{Context, Result, anyhow};
use clap::Parser;
use omgservers_protocol::telemetry;
use omgservers_runtime_sdk::Settings;
use shooter_runtime::config::ProcessConfig;

// One thread: a match is a single loop, and a machine runs many matches.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let config = ProcessConfig::parse();
    telemetry::start(&config.log_level_root, &config.log_level, config.log_json)
        .map_err(|reason| anyhow!(reason))
        .context("no logging")?;
    shooter_runtime::run(Settings::from_environment()?).await
}
