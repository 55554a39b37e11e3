//! Jobs that bring runtimes to run on hosts, and end them.

use std::time::Duration;

use omgservers_protocol::id::{MatchId, RuntimeId};
use tokio::sync::mpsc;

use super::Again;
use crate::App;
use crate::db::Shard;
use crate::entity::cell::{self, RuntimeNews};
use crate::entity::pool::{self, Place};
use crate::entity::runtime::{self, RuntimeView, State};
use crate::entity::stage::Secrets;
use crate::entity::{local_run, quota, version};
use crate::error::Result;
use crate::host::{HostError, Progress, RunSpec};
use crate::plan::placement::Demand;

/// Time between asking a runtime to end and making it.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// How often a runtime that found no host asks again.
const NO_HOST_WAIT: Duration = Duration::from_secs(1);
/// Starts of one runtime before it is given up.
const ATTEMPTS_MAX: i32 = 3;

/// A lobby or match wants a runtime, or no longer.
pub(super) async fn venue(app: &App, shard: Shard, id: MatchId) -> Result<Again> {
    let Some(wanted) = cell::wanted_runtime(app, shard, id).await? else {
        return Ok(None);
    };
    if !wanted.is_gone {
        runtime::create(app, &wanted).await?;
    } else if runtime::delete(app, wanted.id).await? {
        // Its end announces itself; should that be lost, we find out.
        return Ok(Some(Duration::from_secs(2)));
    } else {
        cell::forget_venue(app, shard, id).await?;
    }
    Ok(None)
}

/// One step of a runtime's life.
pub(super) async fn runtime(app: &App, id: RuntimeId) -> Result<Again> {
    let Some(view) = runtime::view(app, id).await? else {
        return Ok(None);
    };
    if view.is_deleted {
        return end(app, &view).await;
    }
    match view.state() {
        State::Wanted => place(app, &view).await,
        State::Placed => start(app, &view).await,
        State::Started => Ok(None),
        State::Ready => {
            cell::hear_of_runtime(app, view.deployment_id, view.venue_id, RuntimeNews::Ready).await?;
            Ok(None)
        }
        State::Ended => {
            let reason = view.reason.as_deref().unwrap_or("the game server ended");
            cell::hear_of_runtime(app, view.deployment_id, view.venue_id, RuntimeNews::Ended { reason }).await?;
            Ok(None)
        }
    }
}

/// Finds a host.
async fn place(app: &App, view: &RuntimeView) -> Result<Again> {
    if let Some(run) = local_run::place(app, view.tenant_id, view.stage_id, view.id).await? {
        runtime::placed_locally(app, view.id, run).await?;
        return Ok(None);
    }
    if view.image == version::LOCAL_IMAGE {
        let reason = RuntimeNews::Progress("waiting for the developer's machine");
        cell::hear_of_runtime(app, view.deployment_id, view.venue_id, reason).await?;
        return Ok(Some(NO_HOST_WAIT));
    }
    let quotas = quota::of(app, view.tenant_id).await?;
    let demand = Demand {
        runtime: view.id,
        tenant: view.tenant_id,
        deployment: view.deployment_id,
        cpu: i64::from(view.cpu_limit),
        memory: i64::from(view.memory_limit),
    };
    let pool = app.hosts.pool();
    let place = match pool {
        Some(pool) => pool::place(app, pool, &demand, &quotas, &app.hosts.usable()).await?,
        None => Place::NoRoom,
    };
    let (pool, host) = match (pool, place) {
        (Some(pool), Place::On(host)) => (pool, host),
        (_, place) => {
            let reason = match &place {
                Place::OverQuota(reason) => reason,
                _ => "waiting for room on a host",
            };
            let news = RuntimeNews::Progress(reason);
            cell::hear_of_runtime(app, view.deployment_id, view.venue_id, news).await?;
            return Ok(Some(NO_HOST_WAIT));
        }
    };
    runtime::placed(app, view.id, pool, host).await?;
    match runtime::view(app, view.id).await? {
        Some(view) if view.state() == State::Placed && !view.is_deleted => start(app, &view).await,
        // It was deleted meanwhile; its own event is on the way.
        _ => Ok(None),
    }
}

/// Name of a runtime's container.
pub(super) fn container_name(qualifier: &str, id: RuntimeId) -> String {
    format!("{}_{id}", qualifier.to_lowercase())
}

/// Starts the container.
async fn start(app: &App, view: &RuntimeView) -> Result<Again> {
    let (Some(pool), Some(host_id)) = (view.pool_id, view.host_id) else {
        return Ok(None);
    };
    let Some(host) = app.hosts.get(host_id) else {
        pool::release(app, pool, view.id).await?;
        runtime::unplaced(app, view.id).await?;
        return Ok(Some(NO_HOST_WAIT));
    };
    let Some((generation, password)) = runtime::starting(app, view.id).await? else {
        return Ok(None);
    };
    let spec = RunSpec {
        name: container_name(&view.qualifier, view.id),
        runtime_id: view.id.get(),
        generation,
        image: view.image.clone(),
        environment: {
            let url = app.config.runtimes_service_url();
            runtime::environment(app, view, password, url, Secrets::Told).await?
        },
        cpu_limit: u32::try_from(view.cpu_limit).unwrap_or(0),
        memory_limit_mb: u32::try_from(view.memory_limit).unwrap_or(0),
        labels: [
            ("tenant", view.tenant_id.to_string()),
            ("project", view.project_id.to_string()),
            ("stage", view.stage_id.to_string()),
            ("version", view.version_id.to_string()),
            ("qualifier", view.qualifier.clone()),
        ]
        .map(|(name, value)| (format!("com.omgservers.{name}"), value))
        .into(),
        network: format!("{}_{}", app.config.runtimes_docker_network, view.tenant_id),
    };
    let started = {
        let (said, mut hears) = mpsc::channel(4);
        let on_progress = move |progress: Progress| {
            said.try_send(progress).ok();
        };
        let mut starting = std::pin::pin!(host.start(&spec, &on_progress));
        loop {
            tokio::select! {
                started = &mut starting => break started,
                Some(progress) = hears.recv() => {
                    let text = match progress {
                        Progress::Pulling => "pulling",
                        Progress::Starting => "starting the game server",
                    };
                    let news = RuntimeNews::Progress(text);
                    cell::hear_of_runtime(app, view.deployment_id, view.venue_id, news).await?;
                }
            }
        }
    };
    match started {
        Ok(()) => {
            runtime::started(app, view.id, generation).await?;
            tracing::info!(runtime.id = %view.id, host.id = %host_id, generation, "a runtime was started");
            Ok(None)
        }
        Err(cause) => failed(app, view, generation, &cause).await,
    }
}

async fn failed(app: &App, view: &RuntimeView, generation: i64, cause: &HostError) -> Result<Again> {
    tracing::warn!(runtime.id = %view.id, error = %cause, "a runtime could not be started");
    let give_up = matches!(cause, HostError::Image(_)) || view.attempts + 1 >= ATTEMPTS_MAX;
    if give_up {
        runtime::ended(app, view.id, generation, &cause.to_string()).await?;
        return Ok(None);
    }
    if cause.elsewhere_helps() {
        if let Some(pool) = view.pool_id {
            pool::release(app, pool, view.id).await?;
        }
        runtime::unplaced(app, view.id).await?;
    }
    cell::hear_of_runtime(
        app,
        view.deployment_id,
        view.venue_id,
        RuntimeNews::Progress(&cause.to_string()),
    )
    .await?;
    Ok(Some(Duration::from_millis(500)))
}

/// Ends the container, then forgets the runtime.
async fn end(app: &App, view: &RuntimeView) -> Result<Again> {
    if let (Some(pool), Some(host_id)) = (view.pool_id, view.host_id) {
        if let Some(host) = app.hosts.get(host_id) {
            let name = container_name(&view.qualifier, view.id);
            if let Err(cause) = host.stop(&name, STOP_GRACE).await {
                tracing::warn!(runtime.id = %view.id, error = %cause, "a runtime could not be stopped, trying again");
                return Ok(Some(Duration::from_secs(2)));
            }
        }
        pool::release(app, pool, view.id).await?;
    }
    if let Some(run) = view.run_id {
        local_run::release(app, view.tenant_id, run, view.id).await?;
    }
    runtime::forget(app, view.id).await?;
    cell::runtime_forgotten(app, view.deployment_id, view.venue_id).await?;
    Ok(None)
}
