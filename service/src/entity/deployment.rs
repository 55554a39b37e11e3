//! Deployments: a version live on a stage. The newest one of a stage is the one that players get.

use omgservers_protocol::call::Deleted;
use omgservers_protocol::developer as dev;
use omgservers_protocol::id::{DeploymentId, MatchmakerId, ProjectId, StageId, TenantId, VersionId};
use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::App;
use crate::auth::Developer;
use crate::entity::tenant::{self, On};
use crate::entity::{alias, cell, timestamp, version};
use crate::error::{Error, Result};
use crate::event::{self, Kind};

pub async fn create(app: &App, by: &Developer, call: dev::DeployVersion) -> Result<dev::CreatedDeployment> {
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    let named = alias::resolve_project(&mut tx, tenant, &call.project).await?;
    let stage = alias::resolve_stage(&mut tx, tenant, named, &call.stage).await?;
    let image: Option<i32> = sqlx::query_scalar("select 1 from image where tenant_id = $1 and version_id = $2 limit 1")
        .bind(tenant)
        .bind(call.version_id)
        .fetch_optional(&mut *tx)
        .await?;
    image.ok_or_else(|| Error::NoImage {
        version: call.version_id.to_string(),
    })?;
    let (project, version_config, _, _) = version::find(&mut tx, tenant, call.version_id).await?;
    let project_of_stage = tenant::project_of_stage(&mut tx, tenant, stage).await?;
    if project != project_of_stage {
        return Err(Error::OtherProject);
    }
    tenant::require(&mut tx, by, On::Stage(stage), "DEPLOYMENT_MANAGER").await?;
    let config = call.config.unwrap_or_default();
    config.check(&version_config).map_err(Error::Invalid)?;
    let alive: Option<i32> = sqlx::query_scalar("select 1 from stage where id = $1 and deleted is null for share")
        .bind(stage)
        .fetch_optional(&mut *tx)
        .await?;
    alive.ok_or_else(|| Error::parent("stage", stage))?;
    let deployment_id: DeploymentId = app.ids.mint();
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
    event::append(&mut tx, Kind::Tenant, tenant.get()).await?;
    tx.commit().await?;
    Ok(dev::CreatedDeployment { deployment_id })
}

pub(super) async fn list(db: &mut PgConnection, tenant: TenantId, stage: StageId) -> Result<Vec<dev::Deployment>> {
    let rows: Vec<(DeploymentId, VersionId, OffsetDateTime)> = sqlx::query_as(
        "select id, version_id, created from deployment where stage_id = $1 and deleted is null order by id",
    )
    .bind(stage)
    .fetch_all(db)
    .await?;
    Ok(rows
        .into_iter()
        .map(|(id, version_id, created)| dev::Deployment {
            id,
            tenant_id: tenant,
            stage_id: stage,
            version_id,
            created: timestamp(created),
        })
        .collect())
}

async fn find(
    db: &mut PgConnection,
    tenant: TenantId,
    id: DeploymentId,
) -> Result<(StageId, VersionId, OffsetDateTime)> {
    sqlx::query_as("select stage_id, version_id, created from deployment where tenant_id = $1 and id = $2")
        .bind(tenant)
        .bind(id)
        .fetch_optional(db)
        .await?
        .ok_or_else(|| Error::not_found("deployment", id))
}

pub async fn details(app: &App, by: &Developer, call: dev::GetDeploymentDetails) -> Result<dev::DeploymentDetails> {
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let id = call.deployment_id;
    let (stage_id, version_id, created) = {
        let mut tx = app.db.begin(tenant.get()).await?;
        let found = find(&mut tx, tenant, id).await?;
        let project = tenant::project_of_stage(&mut tx, tenant, found.0).await?;
        tenant::require(&mut tx, by, On::Project(project), "PROJECT_VIEWER").await?;
        found
    };
    let deployment = dev::Deployment {
        id,
        tenant_id: tenant,
        stage_id,
        version_id,
        created: timestamp(created),
    };
    cell::details(app, deployment).await
}

pub async fn delete(app: &App, by: &Developer, call: dev::DeleteDeployment) -> Result<Deleted> {
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    let (stage, ..) = find(&mut tx, tenant, call.id).await?;
    tenant::require(&mut tx, by, On::Stage(stage), "DEPLOYMENT_MANAGER").await?;
    let done = sqlx::query(
        "update deployment set deleted = coalesce(deleted, now()), draining = false \
         where tenant_id = $1 and id = $2 and (deleted is null or draining)",
    )
    .bind(tenant)
    .bind(call.id)
    .execute(&mut *tx)
    .await?;
    tenant::finish_delete(tx, tenant, done.rows_affected()).await
}

/// What a new client needs to know of the deployment that it goes to.
pub struct Target {
    pub tenant: TenantId,
    pub stage: StageId,
    pub deployment: DeploymentId,
    pub version: VersionId,
    pub version_created: OffsetDateTime,
    pub matchmaker: MatchmakerId,
}

/// The newest deployment of the stage.
pub async fn newest(app: &App, call: &omgservers_protocol::player::CreateClient) -> Result<Target> {
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    let project = alias::resolve_project(&mut tx, tenant, &call.project).await?;
    let stage = alias::resolve_stage(&mut tx, tenant, project, &call.stage).await?;
    let row: Option<(DeploymentId, VersionId, OffsetDateTime, MatchmakerId)> = sqlx::query_as(
        "select deployment.id, version.id, version.created, deployment.matchmaker_id \
         from deployment join version on version.id = deployment.version_id \
         where deployment.tenant_id = $1 and stage_id = $2 and deployment.deleted is null order by deployment.id desc limit 1",
    )
    .bind(tenant)
    .bind(stage)
    .fetch_optional(&mut *tx)
    .await?;
    let (deployment, version, version_created, matchmaker) = row.ok_or_else(|| Error::NothingDeployed {
        stage: call.stage.to_string(),
    })?;
    Ok(Target {
        tenant,
        stage,
        deployment,
        version,
        version_created,
        matchmaker,
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

/// Carries a deletion down to whatever hangs on the deleted thing, and retires all but the newest deployment of each
/// stage. Says which deployments must hear of it, a bounded number at a time.
pub async fn cascade(app: &App, tenant: TenantId) -> Result<(Vec<Unsynced>, bool)> {
    let mut tx = app.db.begin(tenant.get()).await?;
    for statement in [
        "update project set deleted = now() from tenant where project.tenant_id = $1 and project.deleted is null \
         and tenant.id = project.tenant_id and tenant.deleted is not null",
        "update stage set deleted = now() from project where stage.tenant_id = $1 and stage.deleted is null \
         and project.id = stage.project_id and project.deleted is not null",
        "update version set deleted = now() from project where version.tenant_id = $1 and version.deleted is null \
         and project.id = version.project_id and project.deleted is not null",
        "update deployment set deleted = coalesce(deployment.deleted, now()), draining = false from stage \
         where deployment.tenant_id = $1 and (deployment.deleted is null or deployment.draining) \
         and stage.id = deployment.stage_id and stage.deleted is not null",
        "update deployment set deleted = now(), draining = true where tenant_id = $1 and deleted is null \
         and exists (select 1 from deployment newer where newer.stage_id = deployment.stage_id and newer.id > deployment.id and newer.deleted is null)",
        "delete from tenant_permission using tenant where tenant_id = $1 and tenant.id = tenant_id and tenant.deleted is not null",
        "delete from project_permission using project where project_permission.tenant_id = $1 and project.id = project_id and project.deleted is not null",
        "delete from stage_permission using stage where stage_permission.tenant_id = $1 and stage.id = stage_id and stage.deleted is not null",
        "delete from image using version where image.tenant_id = $1 and version.id = image.version_id and version.deleted is not null",
        "delete from alias using project where shard_key = $1 and qualifier = 'PROJECT' and project.id = entity_id and project.deleted is not null",
        "delete from alias using stage where shard_key = $1 and qualifier = 'STAGE' and stage.id = entity_id and stage.deleted is not null",
    ] {
        sqlx::query(statement).bind(tenant).execute(&mut *tx).await?;
    }
    let tenant_deleted: bool =
        sqlx::query_scalar("select coalesce((select deleted is not null from tenant where id = $1), true)")
            .bind(tenant)
            .fetch_one(&mut *tx)
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
    let rows: Vec<Row> = sqlx::query_as(
        "select id, project_id, stage_id, version_id, matchmaker_id, version_config, config, desired from ( \
           select deployment.id, stage.project_id, stage_id, version_id, matchmaker_id, version.config::text as version_config, \
             deployment.config::text as config, cell_state, \
             case when deployment.deleted is null then 'ACTIVE' when draining then 'DRAINING' else 'CLOSING' end as desired \
           from deployment join stage on stage.id = deployment.stage_id join version on version.id = version_id \
           where deployment.tenant_id = $1) as deployment \
         where cell_state <> desired order by id limit 100",
    )
    .bind(tenant)
    .fetch_all(&mut *tx)
    .await?;
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
    if tenant_deleted {
        let mut tx = app.db.begin(alias::Scope::Tenant.key()).await?;
        sqlx::query("delete from alias where qualifier = 'TENANT' and shard_key = 0 and entity_id = $1")
            .bind(tenant)
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
    }
    let more = unsynced.len() == 100;
    Ok((unsynced, more))
}

/// The cell has heard.
pub async fn synced(app: &App, tenant: TenantId, id: DeploymentId, state: &'static str) -> Result<()> {
    let mut tx = app.db.begin(tenant.get()).await?;
    sqlx::query("update deployment set cell_state = $2 where id = $1")
        .bind(id)
        .bind(state)
        .execute(&mut *tx)
        .await?;
    tx.commit().await
}
