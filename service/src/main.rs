//! Reads the configuration, starts the service, and runs it until told to stop.

use std::process::ExitCode;

use omgservers_protocol::trace;
use omgservers_service::Service;
use omgservers_service::config::Config;
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(cause) => {
            use std::io::Write as _;
            writeln!(std::io::stderr(), "error: {cause:#}").ok();
            ExitCode::FAILURE
        }
    }
}

async fn run() -> anyhow::Result<()> {
    let config = Config::load()?;
    let traces = trace::start(&config.telemetry, &config.application_name).map_err(anyhow::Error::msg)?;
    let ended = serve(config).await;
    tokio::task::spawn_blocking(move || traces.stop()).await.ok();
    ended
}

async fn serve(config: Config) -> anyhow::Result<()> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let service = tokio::select! {
        started = Service::start(config) => started?,
        _ = interrupt.recv() => return Ok(()),
        _ = terminate.recv() => return Ok(()),
    };
    let failure = tokio::select! {
        reason = service.failed() => Some(reason),
        _ = interrupt.recv() => None,
        _ = terminate.recv() => None,
    };
    service.stop().await?;
    match failure {
        Some(reason) => anyhow::bail!(reason),
        None => Ok(()),
    }
}
