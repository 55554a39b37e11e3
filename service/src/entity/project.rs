//! Projects: the games of a tenant.

use omgservers_protocol::call::{Deleted, Page, Paging};
use omgservers_protocol::developer as dev;
use omgservers_protocol::id::{ProjectId, StageId, TenantId};
use omgservers_protocol::support::{CreatedProject, ProjectPermission, StagePermission};
use omgservers_protocol::token::Role;
use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::App;
use crate::entity::alias::{self, Scope};
use crate::entity::page::Window;
use crate::entity::permission::{self, On, Permission, grant, require};
use crate::entity::{account, audit, stage, tenant, timestamp, version};
use crate::error::{Error, Result};
use crate::principal::Actor;

pub async fn create(app: &App, by: &Actor, call: dev::CreateProject) -> Result<CreatedProject> {
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let image_users = account::image_users(app).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    require(&mut tx, by, tenant, On::Tenant(tenant), Permission::PROJECT_MANAGER).await?;
    tenant::alive(&mut tx, tenant).await?;
    let (project_id, stage_id): (ProjectId, StageId) = (app.ids.mint(), app.ids.mint());
    sqlx::query("insert into project (id, tenant_id) values ($1, $2)")
        .bind(project_id)
        .bind(tenant)
        .execute(&mut *tx)
        .await?;
    stage::insert(&mut tx, stage_id, tenant, project_id).await?;
    if by.role == Role::Developer {
        let all: Vec<_> = ProjectPermission::ALL
            .iter()
            .map(|permission| permission.as_str())
            .collect();
        grant(app, &mut tx, tenant, On::Project(project_id), by.user_id, &all).await?;
        let deploy = [StagePermission::DeploymentManager.as_str()];
        grant(app, &mut tx, tenant, On::Stage(stage_id), by.user_id, &deploy).await?;
    }
    for user in image_users {
        let images = [ProjectPermission::VersionManager.as_str()];
        grant(app, &mut tx, tenant, On::Project(project_id), user, &images).await?;
    }
    audit::note(app, &mut tx, by, "create-project", Some(tenant), project_id, None).await?;
    tx.commit().await?;
    Ok(CreatedProject { project_id, stage_id })
}

pub async fn create_alias(app: &App, by: &Actor, call: dev::CreateProjectAlias) -> Result<()> {
    let value = alias::check_value(&call.alias)?;
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let id = call.project_id;
    let mut tx = app.db.begin(tenant.get()).await?;
    require(&mut tx, by, tenant, On::Tenant(tenant), Permission::PROJECT_MANAGER).await?;
    find(&mut tx, tenant, id).await?;
    alias::create(&mut tx, app.ids.mint(), Scope::Project(tenant), id.get(), value).await?;
    match alive(&mut tx, tenant, id).await {
        Ok(()) => {}
        // The name leads there, and keeps nobody else from having it.
        Err(Error::ParentNotFound { .. }) => alias::release(&mut tx, Scope::Project(tenant), id.get()).await?,
        Err(cause) => return Err(cause),
    }
    let operation = "create-project-alias";
    audit::note(app, &mut tx, by, operation, Some(tenant), id, Some(value)).await?;
    tx.commit().await
}

pub async fn delete(app: &App, by: &Actor, call: dev::DeleteProject) -> Result<Deleted> {
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    let project = alias::resolve_project(&mut tx, tenant, &call.project).await?;
    require(&mut tx, by, tenant, On::Tenant(tenant), Permission::PROJECT_MANAGER).await?;
    let done = sqlx::query("update project set deleted = now() where tenant_id = $1 and id = $2 and deleted is null")
        .bind(tenant)
        .bind(project)
        .execute(&mut *tx)
        .await?;
    // Support hears `false` of what never was, developers that it is not there.
    if done.rows_affected() == 0 && by.role == Role::Developer {
        find(&mut tx, tenant, project).await?;
    }
    tenant::finish_delete(app, tx, by, tenant, "delete-project", project, done.rows_affected()).await
}

#[derive(sqlx::FromRow)]
pub(super) struct ProjectRow {
    created: OffsetDateTime,
}

/// A project of the tenant, deleted or not.
pub(super) async fn find(db: &mut PgConnection, tenant: TenantId, id: ProjectId) -> Result<ProjectRow> {
    sqlx::query_as("select created from project where tenant_id = $1 and id = $2")
        .bind(tenant)
        .bind(id)
        .fetch_optional(db)
        .await?
        .ok_or_else(|| Error::not_found("project", id))
}

/// Refuses a deleted project and keeps it from being deleted until the commit.
pub(super) async fn alive(db: &mut PgConnection, tenant: TenantId, project: ProjectId) -> Result<()> {
    let alive: Option<i32> =
        sqlx::query_scalar("select 1 from project where tenant_id = $1 and id = $2 and deleted is null for share")
            .bind(tenant)
            .bind(project)
            .fetch_optional(db)
            .await?;
    alive.map(|_| ()).ok_or_else(|| Error::parent("project", project))
}

pub async fn list(app: &App, by: &Actor, call: dev::ListProjects) -> Result<Page<dev::Project>> {
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    require(&mut tx, by, tenant, On::Tenant(tenant), Permission::TENANT_VIEWER).await?;
    page(&mut tx, tenant, &call.paging).await
}

/// A page of a tenant's projects with their names.
pub(super) async fn page(db: &mut PgConnection, tenant: TenantId, paging: &Paging) -> Result<Page<dev::Project>> {
    let window = Window::new(paging)?;
    let rows: Vec<(ProjectId, OffsetDateTime)> = sqlx::query_as(
        "select id, created from project where tenant_id = $1 and deleted is null and id > $2 order by id limit $3",
    )
    .bind(tenant)
    .bind(window.after())
    .bind(window.limit())
    .fetch_all(&mut *db)
    .await?;
    let mut names = alias::Names::read(db, rows.iter().map(|(id, _)| id.get())).await?;
    Ok(window.page(
        rows,
        |(id, _)| id.get(),
        |(id, created)| dev::Project {
            id,
            tenant_id: tenant,
            created: timestamp(created),
            aliases: names.take(id.get()),
        },
    ))
}

pub async fn details(app: &App, by: &Actor, call: dev::GetProjectDetails) -> Result<dev::ProjectDetails> {
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    let project = alias::resolve_project(&mut tx, tenant, &call.project).await?;
    require(&mut tx, by, tenant, On::Project(project), Permission::PROJECT_VIEWER).await?;
    let created = find(&mut tx, tenant, project).await?.created;
    let names = alias::list(&mut tx, &[project.get()]).await?;
    let permissions = permission::first(&mut tx, tenant, On::Project(project)).await?;
    let versions = version::page(&mut tx, tenant, project, &super::details_page()).await?;
    Ok(dev::ProjectDetails {
        project: dev::Project {
            id: project,
            tenant_id: tenant,
            created: timestamp(created),
            aliases: names,
        },
        permissions: permissions
            .into_iter()
            .map(|row| dev::ProjectPermissionRow {
                id: row.id,
                tenant_id: tenant,
                project_id: project,
                created: row.created,
                user_id: row.user_id,
                permission: row.permission,
            })
            .collect(),
        stages: stage::page(&mut tx, tenant, project, &super::details_page())
            .await?
            .items,
        versions: versions
            .items
            .into_iter()
            .map(|version: dev::Version| dev::VersionOfProject {
                id: version.id,
                created: version.created,
                project_id: project,
            })
            .collect(),
    })
}
