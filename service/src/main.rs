//! Reads the configuration, starts the service, and runs it until told to stop.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use omgservers_protocol::trace;
use omgservers_service::Service;
use omgservers_service::config::Config;
use tokio::signal::unix::{SignalKind, signal};

/// Threads that wait for a disk, or for a name to be resolved, get so long when everything else has ended.
const LAST_THREADS: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    match run_to_end(run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(cause) => {
            use std::io::Write as _;
            writeln!(std::io::stderr(), "error: {cause:#}").ok();
            ExitCode::FAILURE
        }
    }
}

/// Runs it on a runtime of its own, and does not wait for threads that are stuck: the process could never end.
fn run_to_end<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Runtime::new().context("threads cannot be started")?;
    let ended = runtime.block_on(work);
    runtime.shutdown_timeout(LAST_THREADS);
    ended
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_stuck_does_not_keep_the_process() {
        let (release, stuck) = std::sync::mpsc::sync_channel::<()>(0);
        let (say, said) = std::sync::mpsc::sync_channel(1);
        std::thread::spawn(move || {
            let ended = run_to_end(async move {
                let (begin, begun) = tokio::sync::oneshot::channel();
                tokio::task::spawn_blocking(move || (begin.send(()), stuck.recv()));
                begun.await?;
                Ok("done")
            });
            say.send(ended.unwrap()).unwrap();
        });
        assert_eq!(said.recv_timeout(Duration::from_secs(60)), Ok("done"));
        drop(release);
    }
}
