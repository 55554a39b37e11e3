//! Runs on a developer's own machine: while one lasts, the runtimes of a stage are started there and nowhere else.
//!
//! The machine asks what should run and says what does; who stops asking is gone after a moment, and the stage's runtimes
//! go back to the hosts.

use std::collections::HashSet;

use omgservers_protocol::call::Deleted;
use omgservers_protocol::developer as dev;
use omgservers_protocol::id::{DeploymentId, LocalRunId, RuntimeId, StageId, TenantId, UserId};
use omgservers_protocol::text::Secret;
use sqlx::PgConnection;

use crate::App;
use crate::db::{Shard, Tx};
use crate::entity::permission::{On, Permission, require};
use crate::entity::runtime::{self, State};
use crate::entity::stage::Secrets;
use crate::entity::{alias, audit, stage, venue};
use crate::error::{Error, Result, constraint};
use crate::event::{self, Kind};
use crate::principal::Actor;
use crate::wake::News;

/// A machine that does not ask for so long is gone, seconds.
const LEASE_S: i32 = 20;
/// What players read when their game server moves.
const MOVED: &str = "the game server is being restarted by its developer";

pub async fn start(app: &App, by: &Actor, call: dev::StartLocalRun) -> Result<dev::StartedLocalRun> {
    if !app.config.local_runs_enabled {
        return Err(Error::Forbidden(
            "runs on developers' machines are switched off here (OMGSERVERS_LOCAL_RUNS_ENABLED)".into(),
        ));
    }
    let (mut tx, tenant, _, stage) = stage::for_deployer(app, by, &call.tenant, &call.project, &call.stage).await?;
    let run_id: LocalRunId = app.ids.mint();
    let other: Option<(LocalRunId, UserId, bool)> =
        sqlx::query_as("select id, user_id, until > now() from local_run where stage_id = $1 for update")
            .bind(stage)
            .fetch_optional(&mut *tx)
            .await?;
    if let Some((other, user, is_alive)) = other {
        if is_alive {
            return Err(Error::Conflict(format!(
                "user `{user}` runs this stage on a machine already; when that one is gone, it ends within {LEASE_S} s"
            )));
        }
        delete(&mut tx, other).await?;
        event::append(&mut tx, Kind::LocalRun, other.get()).await?;
    }
    sqlx::query(
        "insert into local_run (id, tenant_id, stage_id, user_id, until) values ($1, $2, $3, $4, now() + $5 * interval '1 second')",
    )
    .bind(run_id)
    .bind(tenant)
    .bind(stage)
    .bind(by.user_id)
    .bind(LEASE_S)
    .execute(&mut *tx)
    .await
    .map_err(|cause| match constraint(&cause) {
        Some("local_run_once") => Error::Conflict("this stage has just been taken by another machine".into()),
        _ => cause.into(),
    })?;
    audit::note(app, &mut tx, by, "start-local-run", Some(tenant), stage, None).await?;
    tx.commit().await?;
    restart(app, tenant, stage).await?;
    Ok(dev::StartedLocalRun { run_id })
}

async fn delete(db: &mut PgConnection, run: LocalRunId) -> Result<()> {
    sqlx::query("delete from local_run where id = $1")
        .bind(run)
        .execute(db)
        .await?;
    Ok(())
}

/// Ends every runtime of the stage, so that new ones are placed.
async fn restart(app: &App, tenant: TenantId, stage: StageId) -> Result<()> {
    let deployments: Vec<DeploymentId> = {
        let mut tx = app.db.begin(tenant.get()).await?;
        sqlx::query_scalar("select id from deployment where stage_id = $1 and deleted is null")
            .bind(stage)
            .fetch_all(&mut *tx)
            .await?
    };
    for deployment in deployments {
        venue::restart(app, deployment, MOVED).await?;
    }
    Ok(())
}

/// The caller's run. Somebody else's is not found, and who may no longer deploy has none.
async fn find(db: &mut PgConnection, by: &Actor, tenant: TenantId, run: LocalRunId) -> Result<StageId> {
    let stage: Option<StageId> =
        sqlx::query_scalar("select stage_id from local_run where id = $1 and tenant_id = $2 and user_id = $3")
            .bind(run)
            .bind(tenant)
            .bind(by.user_id)
            .fetch_optional(&mut *db)
            .await?;
    let stage = stage.ok_or_else(|| Error::not_found("run", run))?;
    require(db, by, tenant, On::Stage(stage), Permission::DEPLOYMENT_MANAGER).await?;
    Ok(stage)
}

/// Hears what runs and what ended on the machine.
pub async fn hear(app: &App, by: &Actor, call: &dev::InterchangeLocalRun) -> Result<TenantId> {
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let stage = {
        let mut tx = app.db.begin(tenant.get()).await?;
        let stage = find(&mut tx, by, tenant, call.run_id).await?;
        sqlx::query("update local_run set until = now() + $2 * interval '1 second' where id = $1")
            .bind(call.run_id)
            .bind(LEASE_S)
            .execute(&mut *tx)
            .await?;
        if call.restart {
            audit::note(app, &mut tx, by, "restart-local-run", Some(tenant), stage, None).await?;
        }
        tx.commit().await?;
        stage
    };
    let placed: HashSet<RuntimeId> = placements(app, tenant, call.run_id).await?.into_iter().collect();
    for end in call.ended.iter().filter(|end| placed.contains(&end.runtime_id)) {
        let detail: String = end.detail.chars().filter(|letter| *letter != '\0').take(200).collect();
        runtime::ended(
            app,
            end.runtime_id,
            end.generation,
            &format!("the game server {detail}"),
        )
        .await?;
    }
    if call.restart {
        restart(app, tenant, stage).await?;
    }
    Ok(tenant)
}

async fn placements(app: &App, tenant: TenantId, run: LocalRunId) -> Result<Vec<RuntimeId>> {
    let mut tx = app.db.begin(tenant.get()).await?;
    Ok(
        sqlx::query_scalar("select runtime_id from local_placement where run_id = $1 order by runtime_id")
            .bind(run)
            .fetch_all(&mut *tx)
            .await?,
    )
}

/// What should run on the machine. A start that the machine does not know of yet is begun anew, with a new password.
pub async fn wanted(
    app: &App,
    tenant: TenantId,
    run: LocalRunId,
    running: &[dev::LocalStart],
) -> Result<Vec<dev::LocalRuntime>> {
    let mut wanted = Vec::new();
    for id in placements(app, tenant, run).await? {
        let Some(view) = runtime::view(app, id).await? else {
            continue;
        };
        let is_there = running
            .iter()
            .any(|start| start.runtime_id == id && start.generation == view.generation);
        let mut generation = view.generation;
        let mut environment = None;
        match view.state() {
            _ if view.is_deleted => continue,
            State::Wanted | State::Ended => continue,
            State::Placed if is_there => runtime::started(app, id, generation).await?,
            State::Placed => {
                let Some((begun, password)) = runtime::starting(app, id).await? else {
                    continue;
                };
                generation = begun;
                // A machine is a person's: whoever sets a secret does not let others read it.
                let url = &app.config.server_uri;
                let variables = runtime::environment(app, &view, password, url, Secrets::Kept).await?;
                environment = Some(
                    variables
                        .into_iter()
                        .map(|(name, value)| (name, Secret::new(value)))
                        .collect(),
                );
            }
            State::Started | State::Ready if is_there => {}
            State::Started | State::Ready => {
                runtime::ended(app, id, generation, "the game server vanished").await?;
                continue;
            }
        }
        wanted.push(dev::LocalRuntime {
            runtime_id: id,
            generation,
            qualifier: view.qualifier,
            environment,
        });
    }
    Ok(wanted)
}

pub async fn stop(app: &App, by: &Actor, call: dev::StopLocalRun) -> Result<Deleted> {
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    let stage = match find(&mut tx, by, tenant, call.run_id).await {
        Ok(stage) => stage,
        Err(Error::NotFound { .. }) => return Ok(Deleted { deleted: false }),
        Err(cause) => return Err(cause),
    };
    delete(&mut tx, call.run_id).await?;
    audit::note(app, &mut tx, by, "stop-local-run", Some(tenant), stage, None).await?;
    event::append(&mut tx, Kind::LocalRun, call.run_id.get()).await?;
    tx.commit().await?;
    Ok(Deleted { deleted: true })
}

/// Gives a runtime to the machine that runs its stage, if there is one.
pub async fn place(app: &App, tenant: TenantId, stage: StageId, runtime: RuntimeId) -> Result<Option<LocalRunId>> {
    let mut tx = app.db.begin(tenant.get()).await?;
    let run: Option<LocalRunId> =
        sqlx::query_scalar("select id from local_run where stage_id = $1 and until > now() for share")
            .bind(stage)
            .fetch_optional(&mut *tx)
            .await?;
    let Some(run) = run else { return Ok(None) };
    sqlx::query("insert into local_placement (runtime_id, run_id) values ($1, $2) on conflict (runtime_id) do nothing")
        .bind(runtime)
        .bind(run)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(Some(run))
}

/// The runtime is gone: the machine may end it.
pub async fn release(app: &App, tenant: TenantId, run: LocalRunId, runtime: RuntimeId) -> Result<()> {
    let mut tx = app.db.begin(tenant.get()).await?;
    sqlx::query("delete from local_placement where runtime_id = $1")
        .bind(runtime)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    app.db.tell(News::LocalRun(run));
    Ok(())
}

/// Ends runs whose machine fell silent.
pub async fn expire(tx: &mut Tx) -> Result<()> {
    let gone: Vec<LocalRunId> = sqlx::query_scalar("delete from local_run where until < now() returning id")
        .fetch_all(&mut **tx)
        .await?;
    for run in gone {
        event::append(tx, Kind::LocalRun, run.get()).await?;
    }
    Ok(())
}

/// The job of a run that is over: its runtimes ended with it.
pub async fn ended(app: &App, shard: Shard, run: LocalRunId) -> Result<()> {
    let left: Vec<RuntimeId> = {
        let mut tx = app.db.begin_in(shard).await?;
        sqlx::query_scalar(
            "select runtime_id from local_placement where run_id = $1 and not exists (select 1 from local_run where id = $1)",
        )
        .bind(run)
        .fetch_all(&mut *tx)
        .await?
    };
    for id in left {
        if let Some(view) = runtime::view(app, id).await? {
            runtime::ended(app, id, view.generation, "the developer's machine stopped").await?;
        }
        let mut tx = app.db.begin_in(shard).await?;
        sqlx::query("delete from local_placement where runtime_id = $1")
            .bind(id)
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
    }
    Ok(())
}
