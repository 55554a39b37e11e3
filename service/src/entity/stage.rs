//! Stages: places of a project where one version is live, with the variables of its runtimes.

use omgservers_protocol::call::{Created, Deleted, Page, Paging};
use omgservers_protocol::developer as dev;
use omgservers_protocol::id::{ProjectId, StageId, TenantId};
use omgservers_protocol::support::StagePermission;
use omgservers_protocol::text::Text;
use omgservers_protocol::token::Role;
use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::App;
use crate::db::{Tx, one_at_a_time};
use crate::entity::alias::{self, Scope};
use crate::entity::page::{self, Window};
use crate::entity::permission::{self, On, Permission, grant, require};
use crate::entity::{audit, deployment, project, tenant, timestamp};
use crate::error::{Error, Result, constraint};
use crate::principal::Actor;

/// Longest message for players, characters.
const MESSAGE_MAX: usize = 500;
/// Longest value of a variable, bytes.
const VALUE_MAX: usize = 8 * 1_024;
/// Variables of one stage.
const VARIABLES_MAX: i64 = 100;

pub async fn create(app: &App, by: &Actor, call: dev::CreateStage) -> Result<dev::CreatedStage> {
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    let project = alias::resolve_project(&mut tx, tenant, &call.project).await?;
    require(&mut tx, by, tenant, On::Project(project), Permission::STAGE_MANAGER).await?;
    project::alive(&mut tx, tenant, project).await?;
    let stage_id: StageId = app.ids.mint();
    insert(&mut tx, stage_id, tenant, project).await?;
    if by.role == Role::Developer {
        let deploy = [StagePermission::DeploymentManager.as_str()];
        grant(app, &mut tx, tenant, On::Stage(stage_id), by.user_id, &deploy).await?;
    }
    audit::note(app, &mut tx, by, "create-stage", Some(tenant), stage_id, None).await?;
    tx.commit().await?;
    Ok(dev::CreatedStage { stage_id })
}

pub(super) async fn insert(db: &mut PgConnection, id: StageId, tenant: TenantId, project: ProjectId) -> Result<()> {
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

#[derive(sqlx::FromRow)]
pub(super) struct StageRow {
    pub(super) project_id: ProjectId,
    created: OffsetDateTime,
    maintenance: Option<String>,
    maintenance_since: Option<OffsetDateTime>,
}

/// A stage of the tenant, deleted or not.
pub(super) async fn find(db: &mut PgConnection, tenant: TenantId, id: StageId) -> Result<StageRow> {
    sqlx::query_as(
        "select project_id, created, maintenance, maintenance_since from stage where tenant_id = $1 and id = $2",
    )
    .bind(tenant)
    .bind(id)
    .fetch_optional(db)
    .await?
    .ok_or_else(|| Error::not_found("stage", id))
}

/// The project of a stage, deleted or not.
pub(super) async fn project_of(db: &mut PgConnection, tenant: TenantId, stage: StageId) -> Result<ProjectId> {
    Ok(find(db, tenant, stage).await?.project_id)
}

/// Refuses a deleted stage and keeps it from being deleted until the commit.
pub(super) async fn alive(db: &mut PgConnection, tenant: TenantId, stage: StageId) -> Result<()> {
    let alive: Option<i32> =
        sqlx::query_scalar("select 1 from stage where tenant_id = $1 and id = $2 and deleted is null for share")
            .bind(tenant)
            .bind(stage)
            .fetch_optional(db)
            .await?;
    alive.map(|_| ()).ok_or_else(|| Error::parent("stage", stage))
}

pub async fn create_alias(app: &App, by: &Actor, call: dev::CreateStageAlias) -> Result<()> {
    let value = alias::check_value(&call.alias)?;
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let id = call.stage_id;
    let mut tx = app.db.begin(tenant.get()).await?;
    let project = project_of(&mut tx, tenant, id).await?;
    require(&mut tx, by, tenant, On::Project(project), Permission::STAGE_MANAGER).await?;
    alias::create(&mut tx, app.ids.mint(), Scope::Stage(tenant, project), id.get(), value).await?;
    match alive(&mut tx, tenant, id).await {
        Ok(()) => {}
        // The name leads there, and keeps nobody else from having it.
        Err(Error::ParentNotFound { .. }) => alias::release(&mut tx, Scope::Stage(tenant, project), id.get()).await?,
        Err(cause) => return Err(cause),
    }
    audit::note(app, &mut tx, by, "create-stage-alias", Some(tenant), id, Some(value)).await?;
    tx.commit().await
}

pub async fn delete(app: &App, by: &Actor, call: dev::DeleteStage) -> Result<Deleted> {
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    let project = alias::resolve_project(&mut tx, tenant, &call.project).await?;
    let stage = alias::resolve_stage(&mut tx, tenant, project, &call.stage).await?;
    require(&mut tx, by, tenant, On::Project(project), Permission::STAGE_MANAGER).await?;
    let done = sqlx::query(
        "update stage set deleted = now() where tenant_id = $1 and project_id = $2 and id = $3 and deleted is null",
    )
    .bind(tenant)
    .bind(project)
    .bind(stage)
    .execute(&mut *tx)
    .await?;
    // Support hears `false` of what never was, developers that it is not there.
    if done.rows_affected() == 0 && by.role == Role::Developer && project_of(&mut tx, tenant, stage).await? != project {
        return Err(Error::not_found("stage", stage));
    }
    tenant::finish_delete(app, tx, by, tenant, "delete-stage", stage, done.rows_affected()).await
}

pub async fn list(app: &App, by: &Actor, call: dev::ListStages) -> Result<Page<dev::Stage>> {
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    let project = alias::resolve_project(&mut tx, tenant, &call.project).await?;
    require(&mut tx, by, tenant, On::Project(project), Permission::PROJECT_VIEWER).await?;
    page(&mut tx, tenant, project, &call.paging).await
}

/// A page of a project's stages with their names.
pub(super) async fn page(
    db: &mut PgConnection,
    tenant: TenantId,
    project: ProjectId,
    paging: &Paging,
) -> Result<Page<dev::Stage>> {
    let window = Window::new(paging)?;
    let rows: Vec<(StageId, OffsetDateTime)> = sqlx::query_as(
        "select id, created from stage where tenant_id = $1 and project_id = $2 and deleted is null and id > $3 order by id limit $4",
    )
    .bind(tenant)
    .bind(project)
    .bind(window.after())
    .bind(window.limit())
    .fetch_all(&mut *db)
    .await?;
    let mut names = alias::Names::read(db, rows.iter().map(|(id, _)| id.get())).await?;
    Ok(window.page(
        rows,
        |(id, _)| id.get(),
        |(id, created)| dev::Stage {
            id,
            tenant_id: tenant,
            project_id: project,
            created: timestamp(created),
            aliases: names.take(id.get()),
        },
    ))
}

pub async fn details(app: &App, by: &Actor, call: dev::GetStageDetails) -> Result<dev::StageDetails> {
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    let named = alias::resolve_project(&mut tx, tenant, &call.project).await?;
    let id = alias::resolve_stage(&mut tx, tenant, named, &call.stage).await?;
    let row = find(&mut tx, tenant, id).await?;
    require(
        &mut tx,
        by,
        tenant,
        On::Project(row.project_id),
        Permission::PROJECT_VIEWER,
    )
    .await?;
    let permissions = permission::first(&mut tx, tenant, On::Stage(id)).await?;
    let aliases = alias::list(&mut tx, &[id.get()]).await?;
    let deployments = deployment::page(&mut tx, tenant, id, false, &super::details_page()).await?;
    Ok(dev::StageDetails {
        stage: dev::Stage {
            id,
            tenant_id: tenant,
            project_id: row.project_id,
            created: timestamp(row.created),
            aliases,
        },
        permissions: permissions
            .into_iter()
            .map(|row| dev::StagePermissionRow {
                id: row.id,
                tenant_id: tenant,
                stage_id: id,
                created: row.created,
                user_id: row.user_id,
                permission: row.permission,
            })
            .collect(),
        deployments: deployments.items,
        maintenance: row
            .maintenance
            .zip(row.maintenance_since)
            .map(|(message, since)| dev::Maintenance {
                message,
                since: timestamp(since),
            }),
    })
}

/// The living stage that is named, for somebody who may deploy there.
pub(super) async fn for_deployer(
    app: &App,
    by: &Actor,
    tenant: &Text,
    project: &Text,
    stage: &Text,
) -> Result<(Tx, TenantId, ProjectId, StageId)> {
    let tenant = alias::resolve_tenant(app, tenant).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    let project = alias::resolve_project(&mut tx, tenant, project).await?;
    let stage = alias::resolve_stage(&mut tx, tenant, project, stage).await?;
    if project_of(&mut tx, tenant, stage).await? != project {
        return Err(Error::not_found("stage", stage));
    }
    require(&mut tx, by, tenant, On::Stage(stage), Permission::DEPLOYMENT_MANAGER).await?;
    alive(&mut tx, tenant, stage).await?;
    Ok((tx, tenant, project, stage))
}

pub async fn set_maintenance(app: &App, by: &Actor, call: dev::SetStageMaintenance) -> Result<()> {
    if let Some(message) = &call.message
        && (message.trim().is_empty() || message.chars().count() > MESSAGE_MAX || message.contains('\0'))
    {
        return Err(Error::Invalid(format!(
            "message must not be blank and at most {MESSAGE_MAX} characters long"
        )));
    }
    let (mut tx, tenant, _, stage) = for_deployer(app, by, &call.tenant, &call.project, &call.stage).await?;
    let done = sqlx::query(
        "update stage set maintenance = $3, \
         maintenance_since = case when $3 is null then null else coalesce(maintenance_since, now()) end \
         where tenant_id = $1 and id = $2 and maintenance is distinct from $3",
    )
    .bind(tenant)
    .bind(stage)
    .bind(&call.message)
    .execute(&mut *tx)
    .await?;
    if done.rows_affected() > 0 {
        let detail = call.message.as_deref().unwrap_or("open again");
        audit::note(
            app,
            &mut tx,
            by,
            "set-stage-maintenance",
            Some(tenant),
            stage,
            Some(detail),
        )
        .await?;
    }
    tx.commit().await
}

/// What players read while the stage is closed.
pub async fn maintenance(app: &App, tenant: TenantId, stage: StageId) -> Result<Option<String>> {
    let mut tx = app.db.begin(tenant.get()).await?;
    let message: Option<Option<String>> = sqlx::query_scalar("select maintenance from stage where id = $1")
        .bind(stage)
        .fetch_optional(&mut *tx)
        .await?;
    Ok(message.flatten())
}

/// Letters, digits and `_`, as shells take them; those of the platform are its own.
fn check_name(name: &Text) -> Result<&str> {
    let text = name.as_str();
    let is_name = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !is_name || text.starts_with(|first: char| first.is_ascii_digit()) {
        return Err(Error::Invalid(
            "the name of a variable is made of letters, digits and `_`, and begins with no digit".into(),
        ));
    }
    if text.to_ascii_uppercase().starts_with("OMGSERVERS_") {
        return Err(Error::Invalid(
            "variables named OMGSERVERS_… are the platform's own".into(),
        ));
    }
    if text == "PATH" || text.starts_with("LD_") {
        return Err(Error::Invalid(format!(
            "{text} decides which programs run, and stays as it is"
        )));
    }
    Ok(text)
}

pub async fn set_variable(app: &App, by: &Actor, call: dev::SetStageVariable) -> Result<Created> {
    let name = check_name(&call.name)?;
    let value = call.value.as_str();
    if value.len() > VALUE_MAX || value.contains('\0') {
        return Err(Error::Invalid(format!(
            "a value has at most {VALUE_MAX} bytes, none of them zero"
        )));
    }
    let (mut tx, tenant, _, stage) = for_deployer(app, by, &call.tenant, &call.project, &call.stage).await?;
    one_at_a_time(&mut tx, stage.get()).await?;
    let sealed = call
        .secret
        .then(|| app.vault.seal(value.as_bytes(), &context(stage, name)));
    let created: bool = sqlx::query_scalar(
        "insert into stage_variable (tenant_id, stage_id, name, value, sealed) values ($1, $2, $3, $4, $5) \
         on conflict on constraint stage_variable_pkey do update set value = excluded.value, sealed = excluded.sealed, \
         modified = now() returning xmax = 0",
    )
    .bind(tenant)
    .bind(stage)
    .bind(name)
    .bind((!call.secret).then_some(value))
    .bind(sealed)
    .fetch_one(&mut *tx)
    .await?;
    let count: i64 = sqlx::query_scalar("select count(*) from stage_variable where stage_id = $1")
        .bind(stage)
        .fetch_one(&mut *tx)
        .await?;
    if count > VARIABLES_MAX {
        return Err(Error::Conflict(format!(
            "a stage has at most {VARIABLES_MAX} variables"
        )));
    }
    audit::note(app, &mut tx, by, "set-stage-variable", Some(tenant), stage, Some(name)).await?;
    tx.commit().await?;
    Ok(Created { created })
}

/// What a sealed value is bound to: it opens nowhere else.
fn context(stage: StageId, name: &str) -> String {
    format!("stage {stage} variable {name}")
}

pub async fn delete_variable(app: &App, by: &Actor, call: dev::DeleteStageVariable) -> Result<Deleted> {
    let (mut tx, tenant, _, stage) = for_deployer(app, by, &call.tenant, &call.project, &call.stage).await?;
    let done = sqlx::query("delete from stage_variable where stage_id = $1 and name = $2")
        .bind(stage)
        .bind(call.name.as_str())
        .execute(&mut *tx)
        .await?;
    let deleted = done.rows_affected() > 0;
    if deleted {
        let (operation, name) = ("delete-stage-variable", call.name.as_str());
        audit::note(app, &mut tx, by, operation, Some(tenant), stage, Some(name)).await?;
    }
    tx.commit().await?;
    Ok(Deleted { deleted })
}

pub async fn list_variables(app: &App, by: &Actor, call: dev::ListStageVariables) -> Result<Page<dev::StageVariable>> {
    let (after, size) = page::by_name(&call.paging)?;
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    let named = alias::resolve_project(&mut tx, tenant, &call.project).await?;
    let stage = alias::resolve_stage(&mut tx, tenant, named, &call.stage).await?;
    let project = project_of(&mut tx, tenant, stage).await?;
    require(&mut tx, by, tenant, On::Project(project), Permission::PROJECT_VIEWER).await?;
    let rows: Vec<(String, Option<String>, OffsetDateTime)> = sqlx::query_as(
        "select name, value, modified from stage_variable where stage_id = $1 and name > $2 order by name limit $3",
    )
    .bind(stage)
    .bind(&after)
    .bind(i64::try_from(size).unwrap_or(i64::MAX) + 1)
    .fetch_all(&mut *tx)
    .await?;
    let more = rows.len() > size;
    let items: Vec<_> = rows
        .into_iter()
        .take(size)
        .map(|(name, value, modified)| dev::StageVariable {
            name,
            secret: value.is_none(),
            value,
            modified: timestamp(modified),
        })
        .collect();
    let next_page_token = items.last().filter(|_| more).map(|last| last.name.clone());
    Ok(Page { items, next_page_token })
}

/// Whether somebody gets the secrets among a stage's variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secrets {
    Told,
    Kept,
}

/// The variables of a stage as its runtimes get them.
pub async fn environment(
    app: &App,
    tenant: TenantId,
    stage: StageId,
    secrets: Secrets,
) -> Result<Vec<(String, String)>> {
    let mut tx = app.db.begin(tenant.get()).await?;
    let rows: Vec<(String, Option<String>, Option<Vec<u8>>)> = sqlx::query_as(
        "select name, value, sealed from stage_variable where stage_id = $1 and (sealed is null or $2) order by name",
    )
    .bind(stage)
    .bind(secrets == Secrets::Told)
    .fetch_all(&mut *tx)
    .await?;
    rows.into_iter()
        .map(|(name, value, sealed)| match (value, sealed) {
            (Some(value), _) => Ok((name, value)),
            (None, sealed) => {
                let opened = app.vault.open(&sealed.unwrap_or_default(), &context(stage, &name))?;
                Ok((name, opened))
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_named_as_shells_like_it_and_not_as_the_platforms_own() {
        let check = |name: &str| check_name(&Text::new(name).unwrap()).is_ok();
        assert!(check("DATABASE_URL") && check("_x1"));
        for wrong in ["1X", "A-B", "A B", "A=B", "OMGSERVERS_PASSWORD", "omgservers_x", "ä"] {
            assert!(!check(wrong), "{wrong}");
        }
    }
}
