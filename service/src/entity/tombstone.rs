//! Deletions: carried down to whatever hangs on the deleted thing, and after a while everything is forgotten. Both in
//! batches of bounded size, each a transaction of its own, so that a long history blocks nobody and a kill loses nothing.

use omgservers_protocol::id::{StageId, TenantId};

use crate::App;
use crate::db::Shard;
use crate::entity::alias::{self, Scope};
use crate::entity::{account, api_key, audit, client};
use crate::error::Result;
use crate::event::{self, Kind};

/// Rows that one statement changes.
const BATCH: i64 = 500;

/// Each marks or removes what hangs on something that is marked. From the top to the bottom.
const CASCADE: [&str; 13] = [
    "update project set deleted = now() where id in (select project.id from project join tenant on tenant.id = project.tenant_id \
     where project.tenant_id = $1 and project.deleted is null and tenant.deleted is not null limit $2)",
    "update stage set deleted = now() where id in (select stage.id from stage join project on project.id = stage.project_id \
     where stage.tenant_id = $1 and stage.deleted is null and project.deleted is not null limit $2)",
    "update version set deleted = now() where id in (select version.id from version join project on project.id = version.project_id \
     where version.tenant_id = $1 and version.deleted is null and project.deleted is not null limit $2)",
    "update deployment set deleted = coalesce(deleted, now()), draining = false where id in ( \
     select deployment.id from deployment join stage on stage.id = deployment.stage_id \
     where deployment.tenant_id = $1 and (deployment.deleted is null or deployment.draining) and stage.deleted is not null limit $2)",
    "delete from tenant_permission where id in (select tenant_permission.id from tenant_permission join tenant on tenant.id = tenant_id \
     where tenant_id = $1 and tenant.deleted is not null limit $2)",
    "delete from project_permission where id in (select project_permission.id from project_permission join project on project.id = project_id \
     where project_permission.tenant_id = $1 and project.deleted is not null limit $2)",
    "delete from stage_permission where id in (select stage_permission.id from stage_permission join stage on stage.id = stage_id \
     where stage_permission.tenant_id = $1 and stage.deleted is not null limit $2)",
    "delete from stage_variable where (stage_id, name) in (select stage_id, name from stage_variable join stage on stage.id = stage_id \
     where stage_variable.tenant_id = $1 and stage.deleted is not null limit $2)",
    "delete from local_run where id in (select local_run.id from local_run join stage on stage.id = stage_id \
     where local_run.tenant_id = $1 and stage.deleted is not null limit $2)",
    "delete from image where id in (select image.id from image join version on version.id = version_id \
     where image.tenant_id = $1 and version.deleted is not null limit $2)",
    "delete from files_archive where id in (select files_archive.id from files_archive join version on version.id = version_id \
     where files_archive.tenant_id = $1 and version.deleted is not null limit $2)",
    "update alias set deleted = now() where id in (select alias.id from alias join project on project.id = entity_id \
     where shard_key = $1 and qualifier = 'PROJECT' and alias.deleted is null and project.deleted is not null limit $2)",
    "update alias set deleted = now() where id in (select alias.id from alias join stage on stage.id = entity_id \
     where shard_key = $1 and qualifier = 'STAGE' and alias.deleted is null and stage.deleted is not null limit $2)",
];

/// Carries deletions in a tenant down, until nothing is left to do.
pub async fn cascade(app: &App, tenant: TenantId) -> Result<()> {
    // Each round is one transaction: a batch of every kind, or nothing, which costs no write.
    loop {
        let mut tx = app.db.begin(tenant.get()).await?;
        let mut more = false;
        for statement in CASCADE {
            let done = sqlx::query(statement)
                .bind(tenant)
                .bind(BATCH)
                .execute(&mut *tx)
                .await?;
            more |= done.rows_affected() >= BATCH.unsigned_abs();
        }
        tx.commit().await?;
        if !more {
            break;
        }
    }
    forget_players(app, tenant).await?;
    let is_gone: bool = {
        let mut tx = app.db.begin(tenant.get()).await?;
        sqlx::query_scalar("select coalesce((select deleted is not null from tenant where id = $1), true)")
            .bind(tenant)
            .fetch_one(&mut *tx)
            .await?
    };
    if is_gone {
        forget_tenant(app, tenant).await?;
    }
    Ok(())
}

/// Frees a tenant's names, and takes away the keys that are good for nothing else.
async fn forget_tenant(app: &App, tenant: TenantId) -> Result<()> {
    let mut tx = app.db.begin(Scope::Tenant.key()).await?;
    alias::release(&mut tx, Scope::Tenant, tenant.get()).await?;
    tx.commit().await?;
    for shard in app.db.shards() {
        while api_key::forget(app, shard, tenant, BATCH).await? {}
    }
    Ok(())
}

/// Forgets who played on the deleted stages of a tenant: a look into every shard, once for each stage.
async fn forget_players(app: &App, tenant: TenantId) -> Result<()> {
    loop {
        let stages: Vec<StageId> = {
            let mut tx = app.db.begin(tenant.get()).await?;
            sqlx::query_scalar(
                "select id from stage where tenant_id = $1 and deleted is not null and not players_forgotten limit $2",
            )
            .bind(tenant)
            .bind(BATCH)
            .fetch_all(&mut *tx)
            .await?
        };
        if stages.is_empty() {
            return Ok(());
        }
        for shard in app.db.shards() {
            while client::forget_players(app, shard, &stages, BATCH).await? {}
        }
        let mut tx = app.db.begin(tenant.get()).await?;
        sqlx::query("update stage set players_forgotten = true where id = any($1)")
            .bind(&stages)
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
    }
}

/// Each forgets what was deleted long ago and has nothing hanging on it any more: whose deletion is yet to be carried down
/// stays, or what hangs on it would be lost sight of. From the bottom to the top.
const PURGE: [&str; 5] = [
    "delete from alias where id in (select id from alias where deleted < now() - $1 * interval '1 second' limit $2)",
    "delete from deployment where id in (select id from deployment \
     where deleted < now() - $1 * interval '1 second' and not draining and cell_state = 'CLOSING' \
     and not exists (select 1 from event where kind = 'tenant' and key = tenant_id) limit $2)",
    "delete from version where id in (select id from version where deleted < now() - $1 * interval '1 second' \
     and not exists (select 1 from event where kind = 'tenant' and key = tenant_id) \
     and not exists (select 1 from deployment where version_id = version.id) limit $2)",
    "delete from stage where id in (select id from stage where deleted < now() - $1 * interval '1 second' \
     and not exists (select 1 from event where kind = 'tenant' and key = tenant_id) \
     and not exists (select 1 from deployment where stage_id = stage.id) limit $2)",
    "delete from project where id in (select id from project where deleted < now() - $1 * interval '1 second' \
     and not exists (select 1 from event where kind = 'tenant' and key = tenant_id) \
     and not exists (select 1 from stage where stage.project_id = project.id) \
     and not exists (select 1 from version where version.project_id = project.id) limit $2)",
];

/// Forgets tenants that were deleted long ago and have nothing in them any more.
async fn purge_tenants(app: &App, shard: Shard, after_s: i64) -> Result<()> {
    let empty: Vec<TenantId> = {
        let mut tx = app.db.begin_in(shard).await?;
        sqlx::query_scalar(
            "select id from tenant where deleted < now() - $1 * interval '1 second' \
             and not exists (select 1 from event where kind = 'tenant' and key = tenant.id) \
             and not exists (select 1 from project where project.tenant_id = tenant.id) limit $2",
        )
        .bind(after_s)
        .bind(BATCH)
        .fetch_all(&mut *tx)
        .await?
    };
    for tenant in empty {
        // Once more, for a name or key that was made while the tenant was being deleted.
        forget_tenant(app, tenant).await?;
        let mut tx = app.db.begin_in(shard).await?;
        sqlx::query("delete from tenant where id = $1")
            .bind(tenant)
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
    }
    Ok(())
}

/// Forgets what was deleted longer ago than the installation wants to know, a batch of each kind. Says whether there may
/// be more.
pub async fn purge(app: &App, shard: Shard) -> Result<bool> {
    let after_s = i64::try_from(app.config.tombstones_retention.as_secs()).unwrap_or(i64::MAX);
    let mut more = false;
    let mut tx = app.db.begin_in(shard).await?;
    for statement in PURGE {
        let done = sqlx::query(statement)
            .bind(after_s)
            .bind(BATCH)
            .execute(&mut *tx)
            .await?;
        more |= done.rows_affected() == BATCH.unsigned_abs();
    }
    // Whoever still plays an old version has played for long enough.
    let overdue: Vec<TenantId> = sqlx::query_scalar(
        "with overdue as (update deployment set draining = false where id in (select id from deployment \
           where deleted < now() - $1 * interval '1 second' and draining limit $2) returning tenant_id) \
         select distinct tenant_id from overdue",
    )
    .bind(after_s)
    .bind(BATCH)
    .fetch_all(&mut *tx)
    .await?;
    for tenant in overdue {
        event::append(&mut tx, Kind::Tenant, tenant.get()).await?;
    }
    account::purge(&mut tx, after_s, BATCH).await?;
    audit::purge(&mut tx, app.config.audit_retention_days).await?;
    let done = sqlx::query(
        "delete from usage where (tenant_id, day) in (select tenant_id, day from usage where day < current_date - $1::int limit $2)",
    )
    .bind(i32::try_from(app.config.audit_retention_days).unwrap_or(i32::MAX))
    .bind(BATCH)
    .execute(&mut *tx)
    .await?;
    more |= done.rows_affected() == BATCH.unsigned_abs();
    tx.commit().await?;
    purge_tenants(app, shard, after_s).await?;
    Ok(more)
}
