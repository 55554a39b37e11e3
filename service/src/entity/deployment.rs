//! Deployments: a version live on a stage. The newest one of a stage is the one that players get.

use omgservers_protocol::call::{Deleted, Page, Paging};
use omgservers_protocol::developer as dev;
use omgservers_protocol::id::{DeploymentId, MatchmakerId, ProjectId, StageId, TenantId, VersionId};
use omgservers_protocol::text::Text;
use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::App;
use crate::db::Tx;
use crate::entity::page::Window;
use crate::entity::permission::{On, Permission, require};
use crate::entity::{alias, audit, stage, tenant, timestamp, venue, version};
use crate::error::{Error, Result};
use crate::event::{self, Kind};
use crate::principal::Actor;

pub async fn create(app: &App, by: &Actor, call: dev::DeployVersion) -> Result<dev::CreatedDeployment> {
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    let named = alias::resolve_project(&mut tx, tenant, &call.project).await?;
    let stage = alias::resolve_stage(&mut tx, tenant, named, &call.stage).await?;
    version::deployable(&mut tx, tenant, call.version_id).await?;
    let version = version::find(&mut tx, tenant, call.version_id).await?;
    if version.project != stage::project_of(&mut tx, tenant, stage).await? {
        return Err(Error::OtherProject);
    }
    require(&mut tx, by, tenant, On::Stage(stage), Permission::DEPLOYMENT_MANAGER).await?;
    let config = call.config.unwrap_or_default();
    config.check(&version.config).map_err(Error::Invalid)?;
    stage::alive(&mut tx, tenant, stage).await?;
    // The newest is the one with the greatest id, also if the one before was made by an instance whose clock is ahead.
    let newest: Option<i64> = sqlx::query_scalar("select max(id) from deployment where stage_id = $1")
        .bind(stage)
        .fetch_one(&mut *tx)
        .await?;
    let deployment_id: DeploymentId = app
        .ids
        .mint_after(newest.unwrap_or(0))
        .ok_or(Error::Unavailable("the clocks of the instances differ, try again"))?;
    sqlx::query(
        "insert into deployment (id, tenant_id, stage_id, version_id, matchmaker_id, config) values ($1, $2, $3, $4, $5, $6::text::json)",
    )
    .bind(deployment_id)
    .bind(tenant)
    .bind(stage)
    .bind(call.version_id)
    .bind(app.ids.mint::<MatchmakerId>())
    .bind(version::to_text(&config))
    .execute(&mut *tx)
    .await?;
    let detail = format!("version {} on stage {stage}", call.version_id);
    audit::note(
        app,
        &mut tx,
        by,
        "deploy-version",
        Some(tenant),
        deployment_id,
        Some(&detail),
    )
    .await?;
    event::append(&mut tx, Kind::Tenant, tenant.get()).await?;
    tx.commit().await?;
    Ok(dev::CreatedDeployment { deployment_id })
}

pub async fn list(app: &App, by: &Actor, call: dev::ListDeployments) -> Result<Page<dev::Deployment>> {
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    let named = alias::resolve_project(&mut tx, tenant, &call.project).await?;
    let stage = alias::resolve_stage(&mut tx, tenant, named, &call.stage).await?;
    let project = stage::project_of(&mut tx, tenant, stage).await?;
    require(&mut tx, by, tenant, On::Project(project), Permission::PROJECT_VIEWER).await?;
    page(&mut tx, tenant, stage, call.history, &call.paging).await
}

/// A page of a stage's living deployments, or of all.
pub(super) async fn page(
    db: &mut PgConnection,
    tenant: TenantId,
    stage: StageId,
    history: bool,
    paging: &Paging,
) -> Result<Page<dev::Deployment>> {
    let window = Window::new(paging)?;
    // Two statements: the one that is asked all the time has an index of its own.
    let rows: Vec<(DeploymentId, VersionId, OffsetDateTime, Option<OffsetDateTime>)> = sqlx::query_as(if history {
        "select id, version_id, created, deleted from deployment \
         where tenant_id = $1 and stage_id = $2 and id > $3 order by id limit $4"
    } else {
        "select id, version_id, created, deleted from deployment \
         where tenant_id = $1 and stage_id = $2 and deleted is null and id > $3 order by id limit $4"
    })
    .bind(tenant)
    .bind(stage)
    .bind(window.after())
    .bind(window.limit())
    .fetch_all(db)
    .await?;
    Ok(window.page(
        rows,
        |(id, ..)| id.get(),
        |(id, version_id, created, deleted)| dev::Deployment {
            id,
            tenant_id: tenant,
            stage_id: stage,
            version_id,
            created: timestamp(created),
            deleted: deleted.map(timestamp),
        },
    ))
}

/// A deployment of the tenant, deleted or not.
async fn find(db: &mut PgConnection, tenant: TenantId, id: DeploymentId) -> Result<dev::Deployment> {
    let row: Option<(StageId, VersionId, OffsetDateTime, Option<OffsetDateTime>)> = sqlx::query_as(
        "select stage_id, version_id, created, deleted from deployment where tenant_id = $1 and id = $2",
    )
    .bind(tenant)
    .bind(id)
    .fetch_optional(db)
    .await?;
    let (stage_id, version_id, created, deleted) = row.ok_or_else(|| Error::not_found("deployment", id))?;
    Ok(dev::Deployment {
        id,
        tenant_id: tenant,
        stage_id,
        version_id,
        created: timestamp(created),
        deleted: deleted.map(timestamp),
    })
}

/// The deployment that is named, deleted or not, for somebody who may look at it.
pub(super) async fn for_viewer(app: &App, by: &Actor, tenant: &Text, id: DeploymentId) -> Result<dev::Deployment> {
    let tenant = alias::resolve_tenant(app, tenant).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    let found = find(&mut tx, tenant, id).await?;
    let project = stage::project_of(&mut tx, tenant, found.stage_id).await?;
    require(&mut tx, by, tenant, On::Project(project), Permission::PROJECT_VIEWER).await?;
    Ok(found)
}

/// The deployment of the tenant, deleted or not, for somebody who may change it; in a transaction of the tenant's shard.
pub(super) async fn for_deployer(
    app: &App,
    by: &Actor,
    tenant: TenantId,
    id: DeploymentId,
) -> Result<(Tx, dev::Deployment)> {
    let mut tx = app.db.begin(tenant.get()).await?;
    let found = find(&mut tx, tenant, id).await?;
    require(
        &mut tx,
        by,
        tenant,
        On::Stage(found.stage_id),
        Permission::DEPLOYMENT_MANAGER,
    )
    .await?;
    Ok((tx, found))
}

/// Refuses a deployment that is gone or on its way out.
pub(super) async fn alive(db: &mut PgConnection, tenant: TenantId, id: DeploymentId) -> Result<()> {
    let alive: Option<i32> =
        sqlx::query_scalar("select 1 from deployment where tenant_id = $1 and id = $2 and deleted is null for share")
            .bind(tenant)
            .bind(id)
            .fetch_optional(db)
            .await?;
    alive.map(|_| ()).ok_or_else(|| Error::parent("deployment", id))
}

pub async fn details(app: &App, by: &Actor, call: dev::GetDeploymentDetails) -> Result<dev::DeploymentDetails> {
    venue::details(app, for_viewer(app, by, &call.tenant, call.deployment_id).await?).await
}

pub async fn config(app: &App, by: &Actor, call: dev::GetDeploymentConfig) -> Result<dev::ReadDeploymentConfig> {
    let found = for_viewer(app, by, &call.tenant, call.deployment_id).await?;
    let mut tx = app.db.begin(found.tenant_id.get()).await?;
    let config: String = sqlx::query_scalar("select config::text from deployment where id = $1")
        .bind(found.id)
        .fetch_one(&mut *tx)
        .await?;
    let config = serde_json::from_str(&config)
        .map_err(|cause| anyhow::anyhow!("config of deployment `{}`: {cause}", found.id))?;
    Ok(dev::ReadDeploymentConfig { config })
}

pub async fn delete(app: &App, by: &Actor, call: dev::DeleteDeployment) -> Result<Deleted> {
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let (mut tx, _) = for_deployer(app, by, tenant, call.id).await?;
    let done = sqlx::query(
        "update deployment set deleted = coalesce(deleted, now()), draining = false \
         where tenant_id = $1 and id = $2 and (deleted is null or draining)",
    )
    .bind(tenant)
    .bind(call.id)
    .execute(&mut *tx)
    .await?;
    tenant::finish_delete(app, tx, by, tenant, "delete-deployment", call.id, done.rows_affected()).await
}

/// What a new client needs to know of the deployment that it goes to.
pub struct Target {
    pub tenant: TenantId,
    pub stage: StageId,
    pub deployment: DeploymentId,
    pub version: VersionId,
    pub version_created: OffsetDateTime,
    pub matchmaker: MatchmakerId,
    /// The tenant's quota of players.
    pub players_max: Option<u32>,
}

/// The newest deployment of the stage.
pub async fn newest(app: &App, call: &omgservers_protocol::player::CreateClient) -> Result<Target> {
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    let project = alias::resolve_project(&mut tx, tenant, &call.project).await?;
    let stage = alias::resolve_stage(&mut tx, tenant, project, &call.stage).await?;
    type Row = (
        DeploymentId,
        VersionId,
        OffsetDateTime,
        MatchmakerId,
        Option<String>,
        Option<i32>,
    );
    let row: Option<Row> = sqlx::query_as(
        "select deployment.id, version.id, version.created, deployment.matchmaker_id, stage.maintenance, tenant.quota_players \
         from deployment join version on version.id = deployment.version_id join stage on stage.id = deployment.stage_id \
         join tenant on tenant.id = deployment.tenant_id \
         where deployment.tenant_id = $1 and stage_id = $2 and deployment.deleted is null order by deployment.id desc limit 1",
    )
    .bind(tenant)
    .bind(stage)
    .fetch_optional(&mut *tx)
    .await?;
    let (deployment, version, version_created, matchmaker, maintenance, players_max) =
        row.ok_or_else(|| Error::NothingDeployed {
            stage: call.stage.to_string(),
        })?;
    if let Some(message) = maintenance {
        return Err(Error::InMaintenance(message));
    }
    Ok(Target {
        tenant,
        stage,
        deployment,
        version,
        version_created,
        matchmaker,
        players_max: players_max.and_then(|max| u32::try_from(max).ok()),
    })
}

/// A deployment whose cell has not heard of its state yet.
pub struct Unsynced {
    pub id: DeploymentId,
    pub project: ProjectId,
    pub stage: StageId,
    pub version: VersionId,
    pub matchmaker: MatchmakerId,
    pub version_config: String,
    pub config: String,
    pub lobby_image: Option<String>,
    pub match_image: Option<String>,
    pub state: &'static str,
}

/// Deployments that hear in one round.
const UNSYNCED_MAX: i64 = 100;

/// Retires all but the newest deployment of each stage, and says which deployments must hear what became of them, a
/// bounded number at a time. Whether there are more is said too.
pub async fn unsynced(app: &App, tenant: TenantId) -> Result<(Vec<Unsynced>, bool)> {
    let mut tx = app.db.begin(tenant.get()).await?;
    sqlx::query(
        "update deployment set deleted = now(), draining = true where tenant_id = $1 and deleted is null \
         and exists (select 1 from deployment newer where newer.stage_id = deployment.stage_id and newer.id > deployment.id and newer.deleted is null)",
    )
    .bind(tenant)
    .execute(&mut *tx)
    .await?;
    type Row = (
        DeploymentId,
        ProjectId,
        StageId,
        VersionId,
        MatchmakerId,
        String,
        String,
        String,
    );
    // The condition is that of an index, word by word: the history of a tenant is not read.
    let rows: Vec<Row> = sqlx::query_as(
        "select deployment.id, stage.project_id, stage_id, version_id, matchmaker_id, version.config::text, deployment.config::text, \
           case when deployment.deleted is null then 'ACTIVE' when draining then 'DRAINING' else 'CLOSING' end \
         from deployment join stage on stage.id = deployment.stage_id join version on version.id = version_id \
         where deployment.tenant_id = $1 \
           and cell_state <> case when deployment.deleted is null then 'ACTIVE' when draining then 'DRAINING' else 'CLOSING' end \
         order by deployment.id limit $2",
    )
    .bind(tenant)
    .bind(UNSYNCED_MAX)
    .fetch_all(&mut *tx)
    .await?;
    let more = i64::try_from(rows.len()).unwrap_or(i64::MAX) == UNSYNCED_MAX;
    let mut unsynced = Vec::with_capacity(rows.len());
    for (id, project, stage, version, matchmaker, version_config, config, desired) in rows {
        let (lobby_image, match_image) = version::images(&mut tx, version).await?;
        let state = match desired.as_str() {
            "ACTIVE" => "ACTIVE",
            "DRAINING" => "DRAINING",
            _ => "CLOSING",
        };
        unsynced.push(Unsynced {
            id,
            project,
            stage,
            version,
            matchmaker,
            version_config,
            config,
            lobby_image,
            match_image,
            state,
        });
    }
    tx.commit().await?;
    Ok((unsynced, more))
}

/// Nobody is left in the cell of a deployment that was replaced: it is closed.
pub async fn drained(app: &App, tenant: TenantId, id: DeploymentId) -> Result<()> {
    let mut tx = app.db.begin(tenant.get()).await?;
    sqlx::query("update deployment set draining = false, cell_state = 'CLOSING' where id = $1 and draining")
        .bind(id)
        .execute(&mut *tx)
        .await?;
    tx.commit().await
}

/// The cells have heard, unless something changed again meanwhile.
pub async fn synced(app: &App, tenant: TenantId, deployments: &[Unsynced]) -> Result<()> {
    let mut tx = app.db.begin(tenant.get()).await?;
    let (ids, states): (Vec<DeploymentId>, Vec<&str>) = deployments.iter().map(|one| (one.id, one.state)).unzip();
    sqlx::query(
        "update deployment set cell_state = heard.state from unnest($1::bigint[], $2::text[]) as heard (id, state) \
         where deployment.id = heard.id \
           and heard.state = case when deleted is null then 'ACTIVE' when draining then 'DRAINING' else 'CLOSING' end",
    )
    .bind(ids)
    .bind(states)
    .execute(&mut *tx)
    .await?;
    tx.commit().await
}
