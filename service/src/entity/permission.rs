//! Who may do what with a tenant, a project or a stage.

use omgservers_protocol::call::Page;
use omgservers_protocol::developer::{ListPermissions, PermissionRow, Scope};
use omgservers_protocol::id::{PermissionId, ProjectId, StageId, TenantId, UserId};
use omgservers_protocol::support::{
    CreatedPermissions, DeletedPermissions, ProjectPermission, StagePermission, TenantPermission,
};
use omgservers_protocol::text::Text;
use omgservers_protocol::token::Role;
use sqlx::{AssertSqlSafe, PgConnection};
use time::OffsetDateTime;

use crate::App;
use crate::db::Tx;
use crate::entity::page::Window;
use crate::entity::{account, alias, audit, project, stage, tenant, timestamp};
use crate::error::{Error, Result};
use crate::principal::Actor;

/// What a permission is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    Tenant(TenantId),
    Project(ProjectId),
    Stage(StageId),
}

impl On {
    fn id(self) -> i64 {
        match self {
            Self::Tenant(id) => id.get(),
            Self::Project(id) => id.get(),
            Self::Stage(id) => id.get(),
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Self::Tenant(_) => "tenant",
            Self::Project(_) => "project",
            Self::Stage(_) => "stage",
        }
    }
}

/// A permission of any of the three kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    Tenant(TenantPermission),
    Project(ProjectPermission),
    Stage(StagePermission),
}

impl Permission {
    pub const PROJECT_MANAGER: Self = Self::Tenant(TenantPermission::ProjectManager);
    pub const TENANT_VIEWER: Self = Self::Tenant(TenantPermission::TenantViewer);
    pub const STAGE_MANAGER: Self = Self::Project(ProjectPermission::StageManager);
    pub const VERSION_MANAGER: Self = Self::Project(ProjectPermission::VersionManager);
    pub const PROJECT_VIEWER: Self = Self::Project(ProjectPermission::ProjectViewer);
    pub const DEPLOYMENT_MANAGER: Self = Self::Stage(StagePermission::DeploymentManager);

    fn as_str(self) -> &'static str {
        match self {
            Self::Tenant(permission) => permission.as_str(),
            Self::Project(permission) => permission.as_str(),
            Self::Stage(permission) => permission.as_str(),
        }
    }

    /// What a key must be good for to use it.
    fn scope(self) -> Scope {
        match self {
            Self::PROJECT_MANAGER | Self::STAGE_MANAGER => Scope::Manage,
            Self::VERSION_MANAGER => Scope::Build,
            Self::DEPLOYMENT_MANAGER => Scope::Deploy,
            _ => Scope::Read,
        }
    }
}

/// Refuses unless it is support, or a developer with the permission whose key, if it is one, is good for this too. Where
/// others are hidden, there is nothing in a tenant of which the caller is no part. The caller's transaction must be in the
/// tenant's shard.
pub async fn require(
    db: &mut PgConnection,
    by: &Actor,
    tenant: TenantId,
    on: On,
    permission: Permission,
) -> Result<()> {
    let checked = check(db, by, tenant, on, permission).await;
    match checked {
        Ok(()) if by.role == Role::Support && by.hides_others => exists(db, tenant, on).await,
        Err(Error::Forbidden(_)) if by.hides_others && !belongs(db, by, tenant).await? => Err(Error::NoTenant),
        checked => checked,
    }
}

/// Whether the caller may do anything in the tenant.
async fn belongs(db: &mut PgConnection, by: &Actor, tenant: TenantId) -> Result<bool> {
    Ok(by.key.as_ref().is_none_or(|key| key.tenant == tenant) && tenant::is_member(db, tenant, by.user_id).await?)
}

/// Passes what there is, deleted or not.
async fn exists(db: &mut PgConnection, tenant: TenantId, on: On) -> Result<()> {
    match on {
        On::Tenant(tenant) => tenant::find(db, tenant).await.map(|_| ()),
        On::Project(project) => project::find(db, tenant, project).await.map(|_| ()),
        On::Stage(stage) => stage::project_of(db, tenant, stage).await.map(|_| ()),
    }
}

async fn check(db: &mut PgConnection, by: &Actor, tenant: TenantId, on: On, permission: Permission) -> Result<()> {
    if by.role == Role::Support {
        return Ok(());
    }
    let name = permission.as_str();
    let refused = |what: String| Error::Forbidden(format!("{what} on {} `{}` is missing", on.kind(), on.id()));
    if let Some(key) = &by.key {
        let scope = permission.scope();
        if key.tenant != tenant || !key.scopes.contains(&scope) {
            return Err(refused(format!("the scope `{}` of the key", scope.as_str())));
        }
        if let Some(only) = key.project {
            let project = match on {
                On::Tenant(_) => None,
                On::Project(project) => Some(project),
                On::Stage(stage) => stage::project_of(db, tenant, stage).await.ok(),
            };
            if project != Some(only) {
                return Err(refused(format!("the scope of the key, which is for project `{only}`,")));
            }
        }
    }
    let found: Option<i32> = sqlx::query_scalar(match on {
        On::Tenant(_) => {
            "select 1 from tenant_permission where tenant_id = $1 and tenant_id = $2 and user_id = $3 and permission = $4"
        }
        On::Project(_) => {
            "select 1 from project_permission where tenant_id = $1 and project_id = $2 and user_id = $3 and permission = $4"
        }
        On::Stage(_) => {
            "select 1 from stage_permission where tenant_id = $1 and stage_id = $2 and user_id = $3 and permission = $4"
        }
    })
    .bind(tenant)
    .bind(on.id())
    .bind(by.user_id)
    .bind(name)
    .fetch_optional(&mut *db)
    .await?;
    found
        .map(|_| ())
        .ok_or_else(|| refused(format!("the permission `{name}`")))
}

/// Gives permissions; says for each whether it is new.
pub async fn grant(
    app: &App,
    db: &mut PgConnection,
    tenant: TenantId,
    on: On,
    user: UserId,
    permissions: &[&'static str],
) -> Result<Vec<&'static str>> {
    let query = match on {
        On::Tenant(_) => {
            "insert into tenant_permission (id, tenant_id, user_id, permission) select $1, $2, $4, $5 where $2 = $3 \
             on conflict on constraint tenant_permission_once do nothing"
        }
        On::Project(_) => {
            "insert into project_permission (id, tenant_id, project_id, user_id, permission) values ($1, $2, $3, $4, $5) \
             on conflict on constraint project_permission_once do nothing"
        }
        On::Stage(_) => {
            "insert into stage_permission (id, tenant_id, stage_id, user_id, permission) values ($1, $2, $3, $4, $5) \
             on conflict on constraint stage_permission_once do nothing"
        }
    };
    let mut created = Vec::new();
    for permission in permissions {
        let done = sqlx::query(query)
            .bind(app.ids.mint::<PermissionId>())
            .bind(tenant)
            .bind(on.id())
            .bind(user)
            .bind(permission)
            .execute(&mut *db)
            .await?;
        if done.rows_affected() > 0 {
            created.push(*permission);
        }
    }
    Ok(created)
}

async fn take_back(
    db: &mut PgConnection,
    tenant: TenantId,
    on: On,
    user: UserId,
    permissions: &[&'static str],
) -> Result<Vec<String>> {
    let query = match on {
        On::Tenant(_) => {
            "delete from tenant_permission where tenant_id = $1 and tenant_id = $2 and user_id = $3 and permission = any($4) returning permission"
        }
        On::Project(_) => {
            "delete from project_permission where tenant_id = $1 and project_id = $2 and user_id = $3 and permission = any($4) returning permission"
        }
        On::Stage(_) => {
            "delete from stage_permission where tenant_id = $1 and stage_id = $2 and user_id = $3 and permission = any($4) returning permission"
        }
    };
    Ok(sqlx::query_scalar(query)
        .bind(tenant)
        .bind(on.id())
        .bind(user)
        .bind(permissions)
        .fetch_all(db)
        .await?)
}

/// The tenant, project or stage that is named, deleted or not. Unknown ones are refused.
async fn resolve(app: &App, tenant: &Text, project: Option<&Text>, stage: Option<&Text>) -> Result<(Tx, TenantId, On)> {
    let tenant = alias::resolve_tenant(app, tenant).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    tenant::find(&mut tx, tenant).await?;
    let Some(project) = project else {
        return Ok((tx, tenant, On::Tenant(tenant)));
    };
    let project = alias::resolve_project(&mut tx, tenant, project).await?;
    project::find(&mut tx, tenant, project).await?;
    let Some(stage) = stage else {
        return Ok((tx, tenant, On::Project(project)));
    };
    let stage = alias::resolve_stage(&mut tx, tenant, project, stage).await?;
    if stage::project_of(&mut tx, tenant, stage).await? != project {
        return Err(Error::not_found("stage", stage));
    }
    Ok((tx, tenant, On::Stage(stage)))
}

/// What a request names: the thing, the user and the permissions.
pub struct Wanted<'a, P> {
    pub tenant: &'a Text,
    pub project: Option<&'a Text>,
    pub stage: Option<&'a Text>,
    pub user: UserId,
    pub permissions: Vec<P>,
}

impl<P: Copy + Ord> Wanted<'_, P> {
    /// A list is a set; an empty one is a mistake.
    fn set(&self, field: &str) -> Result<Vec<P>> {
        if self.permissions.is_empty() {
            return Err(Error::Invalid(format!("{field} must not be empty")));
        }
        let mut set = self.permissions.clone();
        set.sort_unstable();
        set.dedup();
        Ok(set)
    }
}

pub async fn create<P: Copy + Ord>(
    app: &App,
    by: &Actor,
    wanted: Wanted<'_, P>,
    name: fn(P) -> &'static str,
) -> Result<CreatedPermissions<P>> {
    let set = wanted.set("permissions_to_create")?;
    account::exists(app, wanted.user).await?;
    let (mut tx, tenant, on) = resolve(app, wanted.tenant, wanted.project, wanted.stage).await?;
    let alive = match on {
        On::Tenant(tenant) => tenant::alive(&mut tx, tenant).await,
        On::Project(project) => project::alive(&mut tx, tenant, project).await,
        On::Stage(stage) => stage::alive(&mut tx, tenant, stage).await,
    };
    match alive {
        Ok(()) => {}
        Err(Error::ParentNotFound { .. }) => {
            let created_permissions = Vec::new();
            return Ok(CreatedPermissions { created_permissions });
        }
        Err(cause) => return Err(cause),
    }
    let names: Vec<_> = set.iter().map(|permission| name(*permission)).collect();
    let created = grant(app, &mut tx, tenant, on, wanted.user, &names).await?;
    if !created.is_empty() {
        let operation = match on {
            On::Tenant(_) => "create-tenant-permissions",
            On::Project(_) => "create-project-permissions",
            On::Stage(_) => "create-stage-permissions",
        };
        let detail = format!("{} for user {}", created.join(" "), wanted.user);
        audit::note(app, &mut tx, by, operation, Some(tenant), on.id(), Some(&detail)).await?;
    }
    tx.commit().await?;
    let is_new = |permission: &P| created.contains(&name(*permission));
    Ok(CreatedPermissions {
        created_permissions: set.into_iter().filter(is_new).collect(),
    })
}

pub async fn delete<P: Copy + Ord>(
    app: &App,
    by: &Actor,
    wanted: Wanted<'_, P>,
    name: fn(P) -> &'static str,
) -> Result<DeletedPermissions<P>> {
    let set = wanted.set("permissions_to_delete")?;
    account::exists(app, wanted.user).await?;
    let (mut tx, tenant, on) = resolve(app, wanted.tenant, wanted.project, wanted.stage).await?;
    let names: Vec<_> = set.iter().map(|permission| name(*permission)).collect();
    let deleted = take_back(&mut tx, tenant, on, wanted.user, &names).await?;
    if !deleted.is_empty() {
        let operation = match on {
            On::Tenant(_) => "delete-tenant-permissions",
            On::Project(_) => "delete-project-permissions",
            On::Stage(_) => "delete-stage-permissions",
        };
        let detail = format!("{} of user {}", deleted.join(" "), wanted.user);
        audit::note(app, &mut tx, by, operation, Some(tenant), on.id(), Some(&detail)).await?;
    }
    tx.commit().await?;
    let is_gone = |permission: &P| deleted.iter().any(|gone| gone == name(*permission));
    Ok(DeletedPermissions {
        deleted_permissions: set.into_iter().filter(is_gone).collect(),
    })
}

pub async fn list(app: &App, by: &Actor, call: ListPermissions) -> Result<Page<PermissionRow>> {
    let window = Window::new(&call.paging)?;
    if call.stage.is_some() && call.project.is_none() {
        return Err(Error::Invalid("a stage is named by its project too".into()));
    }
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    let on = match (&call.project, &call.stage) {
        (None, _) => On::Tenant(tenant),
        (Some(project), None) => On::Project(alias::resolve_project(&mut tx, tenant, project).await?),
        (Some(project), Some(stage)) => {
            let project = alias::resolve_project(&mut tx, tenant, project).await?;
            On::Stage(alias::resolve_stage(&mut tx, tenant, project, stage).await?)
        }
    };
    match on {
        On::Tenant(_) => require(&mut tx, by, tenant, on, Permission::TENANT_VIEWER).await?,
        On::Project(_) => require(&mut tx, by, tenant, on, Permission::PROJECT_VIEWER).await?,
        On::Stage(stage) => {
            let project = stage::project_of(&mut tx, tenant, stage).await?;
            require(&mut tx, by, tenant, On::Project(project), Permission::PROJECT_VIEWER).await?;
        }
    }
    let mut page = rows(&mut tx, tenant, on, window).await?;
    drop(tx);
    let names = alias::Names::of_users(app, page.items.iter().map(|row| row.user_id)).await?;
    for row in &mut page.items {
        row.user_alias = names.first(row.user_id.get());
    }
    Ok(page)
}

/// A page of the permissions on something.
async fn rows(db: &mut PgConnection, tenant: TenantId, on: On, window: Window) -> Result<Page<PermissionRow>> {
    type Row = (PermissionId, OffsetDateTime, UserId, String);
    let kind = on.kind();
    let query = AssertSqlSafe(format!(
        "select id, created, user_id, permission from {kind}_permission \
         where tenant_id = $1 and {kind}_id = $2 and id > $3 order by id limit $4"
    ));
    let rows: Vec<Row> = sqlx::query_as(query)
        .bind(tenant)
        .bind(on.id())
        .bind(window.after())
        .bind(window.limit())
        .fetch_all(db)
        .await?;
    Ok(window.page(
        rows,
        |(id, ..)| id.get(),
        |(id, created, user_id, permission)| PermissionRow {
            id,
            created: timestamp(created),
            user_id,
            user_alias: None,
            permission,
        },
    ))
}

/// The permissions that are shown among the details of something: the first few hundred.
pub(super) async fn first(db: &mut PgConnection, tenant: TenantId, on: On) -> Result<Vec<PermissionRow>> {
    Ok(rows(db, tenant, on, Window::new(&super::details_page())?).await?.items)
}
