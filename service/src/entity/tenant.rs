//! Tenants, their projects and stages, and who may do what with them.

use omgservers_protocol::call::Deleted;
use omgservers_protocol::developer as dev;
use omgservers_protocol::id::{PermissionId, ProjectId, StageId, TenantId, UserId, VersionId};
use omgservers_protocol::support::{self, CreatedPermissions, CreatedProject, CreatedTenant};
use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::App;
use crate::auth::Developer;
use crate::db::Tx;
use crate::entity::alias::{self, Scope};
use crate::entity::{account, timestamp};
use crate::error::{Error, Result, constraint};
use crate::event::{self, Kind};

pub async fn create(app: &App) -> Result<CreatedTenant> {
    let id: TenantId = app.ids.mint();
    let mut tx = app.db.begin(id.get()).await?;
    sqlx::query("insert into tenant (id) values ($1)")
        .bind(id)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(CreatedTenant { id })
}

pub async fn create_alias(app: &App, call: support::CreateTenantAlias) -> Result<()> {
    let value = alias::check_value(&call.alias)?;
    find_tenant(&mut *app.db.begin(call.tenant_id.get()).await?, call.tenant_id).await?;
    let mut tx = app.db.begin(Scope::Tenant.key()).await?;
    alias::create(&mut tx, app.ids.mint(), Scope::Tenant, call.tenant_id.get(), value).await?;
    tx.commit().await
}

pub async fn delete(app: &App, call: support::DeleteTenant) -> Result<Deleted> {
    let id = alias::resolve_tenant(app, &call.tenant).await?;
    let mut tx = app.db.begin(id.get()).await?;
    let done = sqlx::query("update tenant set deleted = now() where id = $1 and deleted is null")
        .bind(id)
        .execute(&mut *tx)
        .await?;
    finish_delete(tx, id, done.rows_affected()).await
}

/// Announces a deletion, if there was one; what hangs on it goes by the reconciler.
pub(super) async fn finish_delete(mut tx: Tx, tenant: TenantId, rows: u64) -> Result<Deleted> {
    if rows > 0 {
        event::append(&mut tx, Kind::Tenant, tenant.get()).await?;
    }
    tx.commit().await?;
    Ok(Deleted { deleted: rows > 0 })
}

pub async fn create_permissions(
    app: &App,
    call: support::CreateTenantPermissions,
) -> Result<CreatedPermissions<support::TenantPermission>> {
    if call.permissions_to_create.is_empty() {
        return Err(Error::Invalid("permissions_to_create must not be empty".into()));
    }
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    account::exists(app, call.user_id).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    let deleted = find_tenant(&mut tx, tenant).await?.1.is_some();
    let mut created_permissions = Vec::new();
    for permission in call.permissions_to_create {
        let done = sqlx::query(
            "insert into tenant_permission (id, tenant_id, user_id, permission) select $1, $2, $3, $4 where not $5 \
             on conflict on constraint tenant_permission_once do nothing",
        )
        .bind(app.ids.mint::<PermissionId>())
        .bind(tenant)
        .bind(call.user_id)
        .bind(permission.as_str())
        .bind(deleted)
        .execute(&mut *tx)
        .await?;
        if done.rows_affected() > 0 {
            created_permissions.push(permission);
        }
    }
    tx.commit().await?;
    Ok(CreatedPermissions { created_permissions })
}

async fn find_tenant(db: &mut PgConnection, id: TenantId) -> Result<(OffsetDateTime, Option<OffsetDateTime>)> {
    sqlx::query_as("select created, deleted from tenant where id = $1")
        .bind(id)
        .fetch_optional(db)
        .await?
        .ok_or_else(|| Error::not_found("tenant", id))
}

/// What a permission is about.
#[derive(Debug, Clone, Copy)]
pub enum On {
    Tenant(TenantId),
    Project(ProjectId),
    Stage(StageId),
}

/// Refuses unless the developer has the permission.
pub async fn require(db: &mut PgConnection, by: &Developer, on: On, permission: &'static str) -> Result<()> {
    let (query, id, kind) = match on {
        On::Tenant(id) => (
            "select 1 from tenant_permission where tenant_id = $1 and user_id = $2 and permission = $3",
            id.get(),
            "tenant",
        ),
        On::Project(id) => (
            "select 1 from project_permission where project_id = $1 and user_id = $2 and permission = $3",
            id.get(),
            "project",
        ),
        On::Stage(id) => (
            "select 1 from stage_permission where stage_id = $1 and user_id = $2 and permission = $3",
            id.get(),
            "stage",
        ),
    };
    let found: Option<i32> = sqlx::query_scalar(query)
        .bind(id)
        .bind(by.user_id)
        .bind(permission)
        .fetch_optional(db)
        .await?;
    found
        .map(|_| ())
        .ok_or_else(|| Error::Forbidden(format!("the permission `{permission}` on {kind} `{id}` is missing")))
}

async fn grant(
    app: &App,
    db: &mut PgConnection,
    by: &Developer,
    tenant: TenantId,
    on: On,
    permissions: &[&str],
) -> Result<()> {
    for permission in permissions {
        let query = match on {
            On::Project(_) => {
                "insert into project_permission (id, tenant_id, project_id, user_id, permission) values ($1, $2, $3, $4, $5)"
            }
            _ => {
                "insert into stage_permission (id, tenant_id, stage_id, user_id, permission) values ($1, $2, $3, $4, $5)"
            }
        };
        let id = match on {
            On::Tenant(id) => id.get(),
            On::Project(id) => id.get(),
            On::Stage(id) => id.get(),
        };
        sqlx::query(query)
            .bind(app.ids.mint::<PermissionId>())
            .bind(tenant)
            .bind(id)
            .bind(by.user_id)
            .bind(permission)
            .execute(&mut *db)
            .await?;
    }
    Ok(())
}

pub async fn create_project(app: &App, by: &Developer, call: dev::CreateProject) -> Result<CreatedProject> {
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    require(&mut tx, by, On::Tenant(tenant), "PROJECT_MANAGER").await?;
    let (project_id, stage_id): (ProjectId, StageId) = (app.ids.mint(), app.ids.mint());
    // The lock keeps a deletion of the tenant from slipping in between.
    let alive: Option<i32> = sqlx::query_scalar("select 1 from tenant where id = $1 and deleted is null for share")
        .bind(tenant)
        .fetch_optional(&mut *tx)
        .await?;
    alive.ok_or_else(|| Error::parent("tenant", tenant))?;
    sqlx::query("insert into project (id, tenant_id) values ($1, $2)")
        .bind(project_id)
        .bind(tenant)
        .execute(&mut *tx)
        .await?;
    insert_stage(&mut tx, stage_id, tenant, project_id).await?;
    grant(
        app,
        &mut tx,
        by,
        tenant,
        On::Project(project_id),
        &["STAGE_MANAGER", "VERSION_MANAGER", "PROJECT_VIEWER"],
    )
    .await?;
    grant(app, &mut tx, by, tenant, On::Stage(stage_id), &["DEPLOYMENT_MANAGER"]).await?;
    tx.commit().await?;
    Ok(CreatedProject { project_id, stage_id })
}

async fn insert_stage(db: &mut PgConnection, id: StageId, tenant: TenantId, project: ProjectId) -> Result<()> {
    sqlx::query("insert into stage (id, tenant_id, project_id) values ($1, $2, $3)")
        .bind(id)
        .bind(tenant)
        .bind(project)
        .execute(db)
        .await
        .map_err(|cause| match constraint(&cause) {
            Some("stage_project") => Error::parent("project", project),
            _ => cause.into(),
        })?;
    Ok(())
}

pub async fn create_project_alias(app: &App, by: &Developer, call: dev::CreateProjectAlias) -> Result<()> {
    let value = alias::check_value(&call.alias)?;
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    require(&mut tx, by, On::Tenant(tenant), "PROJECT_MANAGER").await?;
    let found: Option<i32> = sqlx::query_scalar("select 1 from project where tenant_id = $1 and id = $2")
        .bind(tenant)
        .bind(call.project_id)
        .fetch_optional(&mut *tx)
        .await?;
    found.ok_or_else(|| Error::not_found("project", call.project_id))?;
    alias::create(
        &mut tx,
        app.ids.mint(),
        Scope::Project(tenant),
        call.project_id.get(),
        value,
    )
    .await?;
    tx.commit().await
}

pub async fn delete_project(app: &App, by: &Developer, call: dev::DeleteProject) -> Result<Deleted> {
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    let project = alias::resolve_project(&mut tx, tenant, &call.project).await?;
    require(&mut tx, by, On::Tenant(tenant), "PROJECT_MANAGER").await?;
    let done = sqlx::query("update project set deleted = now() where tenant_id = $1 and id = $2 and deleted is null")
        .bind(tenant)
        .bind(project)
        .execute(&mut *tx)
        .await?;
    finish_delete(tx, tenant, done.rows_affected()).await
}

pub async fn create_stage(app: &App, by: &Developer, call: dev::CreateStage) -> Result<dev::CreatedStage> {
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    let project = alias::resolve_project(&mut tx, tenant, &call.project).await?;
    require(&mut tx, by, On::Project(project), "STAGE_MANAGER").await?;
    alive_project(&mut tx, tenant, project).await?;
    let stage_id: StageId = app.ids.mint();
    insert_stage(&mut tx, stage_id, tenant, project).await?;
    grant(app, &mut tx, by, tenant, On::Stage(stage_id), &["DEPLOYMENT_MANAGER"]).await?;
    tx.commit().await?;
    Ok(dev::CreatedStage { stage_id })
}

/// Refuses a deleted project and keeps it from being deleted until the commit.
pub(super) async fn alive_project(db: &mut PgConnection, tenant: TenantId, project: ProjectId) -> Result<()> {
    let alive: Option<i32> =
        sqlx::query_scalar("select 1 from project where tenant_id = $1 and id = $2 and deleted is null for share")
            .bind(tenant)
            .bind(project)
            .fetch_optional(db)
            .await?;
    alive.map(|_| ()).ok_or_else(|| Error::parent("project", project))
}

/// The project of a stage, deleted or not.
pub(super) async fn project_of_stage(db: &mut PgConnection, tenant: TenantId, stage: StageId) -> Result<ProjectId> {
    sqlx::query_scalar("select project_id from stage where tenant_id = $1 and id = $2")
        .bind(tenant)
        .bind(stage)
        .fetch_optional(db)
        .await?
        .ok_or_else(|| Error::not_found("stage", stage))
}

pub async fn create_stage_alias(app: &App, by: &Developer, call: dev::CreateStageAlias) -> Result<()> {
    let value = alias::check_value(&call.alias)?;
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    let project = project_of_stage(&mut tx, tenant, call.stage_id).await?;
    require(&mut tx, by, On::Project(project), "STAGE_MANAGER").await?;
    alias::create(
        &mut tx,
        app.ids.mint(),
        Scope::Stage(tenant, project),
        call.stage_id.get(),
        value,
    )
    .await?;
    tx.commit().await
}

pub async fn delete_stage(app: &App, by: &Developer, call: dev::DeleteStage) -> Result<Deleted> {
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    let project = alias::resolve_project(&mut tx, tenant, &call.project).await?;
    let stage = alias::resolve_stage(&mut tx, tenant, project, &call.stage).await?;
    require(&mut tx, by, On::Project(project), "STAGE_MANAGER").await?;
    let done = sqlx::query(
        "update stage set deleted = now() where tenant_id = $1 and project_id = $2 and id = $3 and deleted is null",
    )
    .bind(tenant)
    .bind(project)
    .bind(stage)
    .execute(&mut *tx)
    .await?;
    finish_delete(tx, tenant, done.rows_affected()).await
}

type PermissionRow = (PermissionId, OffsetDateTime, UserId, String);

async fn permissions(db: &mut PgConnection, query: &'static str, id: i64) -> Result<Vec<PermissionRow>> {
    Ok(sqlx::query_as(query).bind(id).fetch_all(db).await?)
}

pub async fn tenant_details(app: &App, by: &Developer, call: dev::GetTenantDetails) -> Result<dev::TenantDetails> {
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let aliases = alias::list(&mut *app.db.begin(Scope::Tenant.key()).await?, &[tenant.get()]).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    require(&mut tx, by, On::Tenant(tenant), "TENANT_VIEWER").await?;
    let (created, _) = find_tenant(&mut tx, tenant).await?;
    let granted = permissions(
        &mut tx,
        "select id, created, user_id, permission from tenant_permission where tenant_id = $1 order by id",
        tenant.get(),
    )
    .await?;
    let rows: Vec<(ProjectId, OffsetDateTime)> =
        sqlx::query_as("select id, created from project where tenant_id = $1 and deleted is null order by id")
            .bind(tenant)
            .fetch_all(&mut *tx)
            .await?;
    let names = alias::list(&mut tx, &rows.iter().map(|(id, _)| id.get()).collect::<Vec<_>>()).await?;
    let projects = rows
        .into_iter()
        .map(|(id, created)| dev::Project {
            id,
            tenant_id: tenant,
            created: timestamp(created),
            aliases: of(&names, id.get()),
        })
        .collect();
    let permissions = granted
        .into_iter()
        .map(|(id, created, user_id, permission)| dev::TenantPermissionRow {
            id,
            tenant_id: tenant,
            created: timestamp(created),
            user_id,
            permission,
        })
        .collect();
    Ok(dev::TenantDetails {
        tenant: dev::Tenant {
            id: tenant,
            created: timestamp(created),
            aliases,
        },
        permissions,
        projects,
    })
}

fn of(aliases: &[dev::Alias], entity: i64) -> Vec<dev::Alias> {
    let entity = entity.to_string();
    aliases
        .iter()
        .filter(|alias| alias.entity_id == entity)
        .cloned()
        .collect()
}

pub async fn project_details(app: &App, by: &Developer, call: dev::GetProjectDetails) -> Result<dev::ProjectDetails> {
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    let project = alias::resolve_project(&mut tx, tenant, &call.project).await?;
    require(&mut tx, by, On::Project(project), "PROJECT_VIEWER").await?;
    let created: OffsetDateTime = sqlx::query_scalar("select created from project where tenant_id = $1 and id = $2")
        .bind(tenant)
        .bind(project)
        .fetch_optional(&mut *tx)
        .await?
        .ok_or_else(|| Error::not_found("project", project))?;
    let granted = permissions(
        &mut tx,
        "select id, created, user_id, permission from project_permission where project_id = $1 order by id",
        project.get(),
    )
    .await?;
    let stages: Vec<(StageId, OffsetDateTime)> =
        sqlx::query_as("select id, created from stage where project_id = $1 and deleted is null order by id")
            .bind(project)
            .fetch_all(&mut *tx)
            .await?;
    let versions: Vec<(VersionId, OffsetDateTime)> =
        sqlx::query_as("select id, created from version where project_id = $1 and deleted is null order by id")
            .bind(project)
            .fetch_all(&mut *tx)
            .await?;
    let mut entities: Vec<i64> = stages.iter().map(|(id, _)| id.get()).collect();
    entities.push(project.get());
    let names = alias::list(&mut tx, &entities).await?;
    Ok(dev::ProjectDetails {
        project: dev::Project {
            id: project,
            tenant_id: tenant,
            created: timestamp(created),
            aliases: of(&names, project.get()),
        },
        permissions: granted
            .into_iter()
            .map(|(id, created, user_id, permission)| dev::ProjectPermissionRow {
                id,
                tenant_id: tenant,
                project_id: project,
                created: timestamp(created),
                user_id,
                permission,
            })
            .collect(),
        stages: stages
            .into_iter()
            .map(|(id, created)| stage(tenant, project, id, created, &names))
            .collect(),
        versions: versions
            .into_iter()
            .map(|(id, created)| dev::VersionOfProject {
                id,
                created: timestamp(created),
                project_id: project,
            })
            .collect(),
    })
}

fn stage(
    tenant: TenantId,
    project: ProjectId,
    id: StageId,
    created: OffsetDateTime,
    names: &[dev::Alias],
) -> dev::Stage {
    dev::Stage {
        id,
        tenant_id: tenant,
        project_id: project,
        created: timestamp(created),
        aliases: of(names, id.get()),
    }
}

pub async fn stage_details(app: &App, by: &Developer, call: dev::GetStageDetails) -> Result<dev::StageDetails> {
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    let named = alias::resolve_project(&mut tx, tenant, &call.project).await?;
    let id = alias::resolve_stage(&mut tx, tenant, named, &call.stage).await?;
    let (project, created): (ProjectId, OffsetDateTime) =
        sqlx::query_as("select project_id, created from stage where tenant_id = $1 and id = $2")
            .bind(tenant)
            .bind(id)
            .fetch_optional(&mut *tx)
            .await?
            .ok_or_else(|| Error::not_found("stage", id))?;
    require(&mut tx, by, On::Project(project), "PROJECT_VIEWER").await?;
    let granted = permissions(
        &mut tx,
        "select id, created, user_id, permission from stage_permission where stage_id = $1 order by id",
        id.get(),
    )
    .await?;
    let names = alias::list(&mut tx, &[id.get()]).await?;
    let deployments = super::deployment::list(&mut tx, tenant, id).await?;
    Ok(dev::StageDetails {
        stage: stage(tenant, project, id, created, &names),
        permissions: granted
            .into_iter()
            .map(
                |(permission_id, created, user_id, permission)| dev::StagePermissionRow {
                    id: permission_id,
                    tenant_id: tenant,
                    stage_id: id,
                    created: timestamp(created),
                    user_id,
                    permission,
                },
            )
            .collect(),
        deployments,
        maintenance: None,
    })
}
