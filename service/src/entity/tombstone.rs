//! Deletions: carried down to whatever hangs on the deleted thing, and after a while everything is forgotten. Both in
//! batches of bounded size, each a transaction of its own, so that a long history blocks nobody and a kill loses nothing.

use omgservers_protocol::id::TenantId;

use crate::App;
use crate::db::Shard;
use crate::entity::alias::{self, Scope};
use crate::entity::{account, audit};
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
    "delete from stage_variable where stage_id in (select distinct stage_id from stage_variable join stage on stage.id = stage_id \
     where stage_variable.tenant_id = $1 and stage.deleted is not null limit $2)",
    "delete from local_run where id in (select local_run.id from local_run join stage on stage.id = stage_id \
     where local_run.tenant_id = $1 and stage.deleted is not null limit $2)",
    "delete from image where id in (select image.id from image join version on version.id = version_id \
     where image.tenant_id = $1 and version.deleted is not null limit $2)",
    "delete from files_archive where id in (select files_archive.id from files_archive join version on version.id = version_id \
     where files_archive.tenant_id = $1 and version.deleted is not null limit $2)",
    "delete from alias where id in (select alias.id from alias join project on project.id = entity_id \
     where shard_key = $1 and qualifier = 'PROJECT' and project.deleted is not null limit $2)",
    "delete from alias where id in (select alias.id from alias join stage on stage.id = entity_id \
     where shard_key = $1 and qualifier = 'STAGE' and stage.deleted is not null limit $2)",
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
    let is_gone: bool = {
        let mut tx = app.db.begin(tenant.get()).await?;
        sqlx::query_scalar("select coalesce((select deleted is not null from tenant where id = $1), true)")
            .bind(tenant)
            .fetch_one(&mut *tx)
            .await?
    };
    if is_gone {
        let mut tx = app.db.begin(Scope::Tenant.key()).await?;
        alias::forget(&mut tx, Scope::Tenant, tenant.get()).await?;
        tx.commit().await?;
    }
    Ok(())
}

/// Each forgets what was deleted long ago and has nothing hanging on it any more. From the bottom to the top.
const PURGE: [&str; 5] = [
    "delete from deployment where id in (select id from deployment \
     where deleted < now() - $1 * interval '1 second' and not draining and cell_state = 'CLOSING' limit $2)",
    "delete from version where id in (select id from version where deleted < now() - $1 * interval '1 second' \
     and not exists (select 1 from deployment where version_id = version.id) limit $2)",
    "delete from stage where id in (select id from stage where deleted < now() - $1 * interval '1 second' \
     and not exists (select 1 from deployment where stage_id = stage.id) limit $2)",
    "delete from project where id in (select id from project where deleted < now() - $1 * interval '1 second' \
     and not exists (select 1 from stage where stage.project_id = project.id) \
     and not exists (select 1 from version where version.project_id = project.id) limit $2)",
    "delete from tenant where id in (select id from tenant where deleted < now() - $1 * interval '1 second' \
     and not exists (select 1 from project where project.tenant_id = tenant.id) limit $2)",
];

/// Forgets what was deleted longer ago than the installation wants to know, a batch of each kind.
pub async fn purge(app: &App, shard: Shard) -> Result<()> {
    let after_s = i64::try_from(app.config.tombstones_retention.as_secs()).unwrap_or(i64::MAX);
    let mut tx = app.db.begin_in(shard).await?;
    for statement in PURGE {
        sqlx::query(statement)
            .bind(after_s)
            .bind(BATCH)
            .execute(&mut *tx)
            .await?;
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
    sqlx::query("delete from usage where day < current_date - $1::int")
        .bind(i32::try_from(app.config.audit_retention_days).unwrap_or(i32::MAX))
        .execute(&mut *tx)
        .await?;
    tx.commit().await
}
