//! Tenants: studios, each apart from all others.

use omgservers_protocol::audit::AuditRecord;
use omgservers_protocol::call::{Deleted, Page, Paging};
use omgservers_protocol::developer as dev;
use omgservers_protocol::id::{TenantId, UserId};
use omgservers_protocol::support::{self, CreatedTenant};
use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::App;
use crate::db::Tx;
use crate::entity::alias::{self, Scope};
use crate::entity::page::Walk;
use crate::entity::permission::{self, On, Permission, require};
use crate::entity::{audit, project, timestamp};
use crate::error::{Error, Result};
use crate::event::{self, Kind};
use crate::principal::Actor;

pub async fn create(app: &App, by: &Actor) -> Result<CreatedTenant> {
    let id: TenantId = app.ids.mint();
    let mut tx = app.db.begin(id.get()).await?;
    sqlx::query("insert into tenant (id) values ($1)")
        .bind(id)
        .execute(&mut *tx)
        .await?;
    audit::note(app, &mut tx, by, "create-tenant", Some(id), id, None).await?;
    tx.commit().await?;
    Ok(CreatedTenant { id })
}

pub async fn create_alias(app: &App, by: &Actor, call: support::CreateTenantAlias) -> Result<()> {
    let value = alias::check_value(&call.alias)?;
    let id = call.tenant_id;
    let is_deleted = find(&mut *app.db.begin(id.get()).await?, id).await?.deleted.is_some();
    let mut tx = app.db.begin(Scope::Tenant.key()).await?;
    alias::create(&mut tx, app.ids.mint(), Scope::Tenant, id.get(), value).await?;
    if is_deleted {
        // The name leads there, and keeps nobody else from having it.
        alias::release(&mut tx, Scope::Tenant, id.get()).await?;
    }
    let operation = "create-tenant-alias";
    audit::note(app, &mut tx, by, operation, Some(id), id, Some(value)).await?;
    tx.commit().await?;
    // A deletion may have come between: whoever removes the names looks again.
    let mut tx = app.db.begin(id.get()).await?;
    if find(&mut tx, id).await?.deleted.is_some() {
        event::append(&mut tx, Kind::Tenant, id.get()).await?;
        tx.commit().await?;
    }
    Ok(())
}

pub async fn delete(app: &App, by: &Actor, call: support::DeleteTenant) -> Result<Deleted> {
    let id = alias::resolve_tenant(app, &call.tenant).await?;
    let mut tx = app.db.begin(id.get()).await?;
    let done = sqlx::query("update tenant set deleted = now() where id = $1 and deleted is null")
        .bind(id)
        .execute(&mut *tx)
        .await?;
    finish_delete(app, tx, by, id, "delete-tenant", id, done.rows_affected()).await
}

/// Writes down and announces a deletion, if there was one; what hangs on it goes by the reconciler.
pub(super) async fn finish_delete(
    app: &App,
    mut tx: Tx,
    by: &Actor,
    tenant: TenantId,
    operation: &'static str,
    target: impl ToString,
    rows: u64,
) -> Result<Deleted> {
    if rows > 0 {
        audit::note(app, &mut tx, by, operation, Some(tenant), target, None).await?;
        event::append(&mut tx, Kind::Tenant, tenant.get()).await?;
    }
    tx.commit().await?;
    Ok(Deleted { deleted: rows > 0 })
}

#[derive(sqlx::FromRow)]
pub(super) struct TenantRow {
    created: OffsetDateTime,
    pub(super) deleted: Option<OffsetDateTime>,
}

/// A tenant, deleted or not.
pub(super) async fn find(db: &mut PgConnection, id: TenantId) -> Result<TenantRow> {
    sqlx::query_as("select created, deleted from tenant where id = $1")
        .bind(id)
        .fetch_optional(db)
        .await?
        .ok_or(Error::NoTenant)
}

/// Refuses a deleted tenant and keeps it from being deleted until the commit.
pub(super) async fn alive(db: &mut PgConnection, tenant: TenantId) -> Result<()> {
    let alive: Option<i32> = sqlx::query_scalar("select 1 from tenant where id = $1 and deleted is null for share")
        .bind(tenant)
        .fetch_optional(db)
        .await?;
    alive.map(|_| ()).ok_or_else(|| Error::parent("tenant", tenant))
}

/// Whether the user may do anything in the tenant.
pub(super) async fn is_member(db: &mut PgConnection, tenant: TenantId, user: UserId) -> Result<bool> {
    Ok(sqlx::query_scalar(
        "select exists (select 1 from tenant_permission where tenant_id = $1 and user_id = $2) \
         or exists (select 1 from project_permission where tenant_id = $1 and user_id = $2) \
         or exists (select 1 from stage_permission where tenant_id = $1 and user_id = $2)",
    )
    .bind(tenant)
    .bind(user)
    .fetch_one(db)
    .await?)
}

/// Living tenants: all, or those in which the user may do something.
pub async fn list(app: &App, member: Option<UserId>, paging: &Paging) -> Result<Page<dev::Tenant>> {
    let mut walk = Walk::new(app, paging)?;
    while let Some(part) = walk.part() {
        let query = match member {
            None => {
                "select id, created from tenant where id > $1 and deleted is null and $3::bigint is null order by id limit $2"
            }
            Some(_) => {
                "select id, created from tenant where id > $1 and deleted is null and id in ( \
                   select tenant_id from tenant_permission where user_id = $3 \
                   union select tenant_id from project_permission where user_id = $3 \
                   union select tenant_id from stage_permission where user_id = $3) order by id limit $2"
            }
        };
        let mut tx = app.db.begin_in(part.shard).await?;
        let rows: Vec<(TenantId, OffsetDateTime)> = sqlx::query_as(query)
            .bind(part.after)
            .bind(part.limit)
            .bind(member)
            .fetch_all(&mut *tx)
            .await?;
        let tenant = |(id, created): (TenantId, OffsetDateTime)| {
            let tenant = dev::Tenant {
                id,
                created: timestamp(created),
                aliases: Vec::new(),
            };
            (id.get(), tenant)
        };
        walk.add(app, rows.into_iter().map(tenant).collect());
    }
    let mut page = walk.page();
    let ids = page.items.iter().map(|tenant| tenant.id.get());
    let mut names = alias::Names::read(&mut *app.db.begin(Scope::Tenant.key()).await?, ids).await?;
    for tenant in &mut page.items {
        tenant.aliases = names.take(tenant.id.get());
    }
    Ok(page)
}

/// The tenants in which the caller may do something; with a key, the key's.
pub async fn list_own(app: &App, by: &Actor, call: dev::ListTenants) -> Result<Page<dev::Tenant>> {
    let mut page = list(app, Some(by.user_id), &call.paging).await?;
    if let Some(key) = &by.key {
        page.items.retain(|tenant| tenant.id == key.tenant);
    }
    Ok(page)
}

pub async fn audit_records(app: &App, by: &Actor, call: dev::ListAuditRecords) -> Result<Page<AuditRecord>> {
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    require(&mut tx, by, tenant, On::Tenant(tenant), Permission::TENANT_VIEWER).await?;
    audit::of_tenant(app, tx, tenant, &call.paging).await
}

pub async fn details(app: &App, by: &Actor, call: dev::GetTenantDetails) -> Result<dev::TenantDetails> {
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let aliases = alias::list(&mut *app.db.begin(Scope::Tenant.key()).await?, &[tenant.get()]).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    require(&mut tx, by, tenant, On::Tenant(tenant), Permission::TENANT_VIEWER).await?;
    let created = find(&mut tx, tenant).await?.created;
    let permissions = permission::first(&mut tx, tenant, On::Tenant(tenant)).await?;
    Ok(dev::TenantDetails {
        tenant: dev::Tenant {
            id: tenant,
            created: timestamp(created),
            aliases,
        },
        permissions: permissions
            .into_iter()
            .map(|row| dev::TenantPermissionRow {
                id: row.id,
                tenant_id: tenant,
                created: row.created,
                user_id: row.user_id,
                permission: row.permission,
            })
            .collect(),
        projects: project::page(&mut tx, tenant, &super::details_page()).await?.items,
    })
}
