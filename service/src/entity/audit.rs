//! The audit log: who changed what. A record is written in the transaction of the change, so neither is there without the
//! other; from another shard it is then brought to that of its tenant.

use omgservers_protocol::audit::AuditRecord;
use omgservers_protocol::call::{Page, Paging};
use omgservers_protocol::id::{ApiKeyId, AuditId, TenantId, UserId};
use sqlx::{AssertSqlSafe, PgConnection};
use time::OffsetDateTime;

use crate::App;
use crate::db::{Shard, Tx};
use crate::entity::alias::Names;
use crate::entity::page::Window;
use crate::entity::timestamp;
use crate::error::Result;
use crate::event::{self, Kind};
use crate::principal::Actor;

/// Records deleted at a time when they are old.
const PURGED_MAX: i64 = 1_000;

/// Writes down that somebody did something. `detail` is never a secret.
pub async fn note(
    app: &App,
    tx: &mut Tx,
    by: &Actor,
    operation: &'static str,
    tenant: Option<TenantId>,
    target: impl ToString,
    detail: Option<&str>,
) -> Result<()> {
    let id: AuditId = app.ids.mint();
    sqlx::query(
        "insert into audit (id, user_id, role, api_key_id, operation, tenant_id, target, detail) \
         values ($1, $2, $3, $4, $5, $6, $7, $8)",
    )
    .bind(id)
    .bind(by.user_id)
    .bind(by.role.as_str())
    .bind(by.key.as_ref().map(|key| key.id))
    .bind(operation)
    .bind(tenant)
    .bind(target.to_string())
    .bind(detail)
    .execute(&mut **tx)
    .await?;
    match tenant {
        Some(tenant) if app.db.shard_of(tenant.get()) != tx.shard() => event::append(tx, Kind::Audit, id.get()).await,
        _ => Ok(()),
    }
}

/// The job of a record that was written elsewhere: its tenant's log is in one place.
pub async fn bring_home(app: &App, shard: Shard, id: AuditId) -> Result<()> {
    let row: Option<Row> = {
        let query = AssertSqlSafe(format!("select {COLUMNS} from audit where id = $1"));
        let mut tx = app.db.begin_in(shard).await?;
        sqlx::query_as(query).bind(id).fetch_optional(&mut *tx).await?
    };
    let Some((tenant, row)) = row.and_then(|row| Some((row.tenant_id?, row))) else {
        return Ok(());
    };
    let mut tx = app.db.begin(tenant.get()).await?;
    let query = AssertSqlSafe(format!(
        "insert into audit ({COLUMNS}) values ($1, $2, $3, $4, $5, $6, $7, $8, $9) on conflict (id) do nothing"
    ));
    sqlx::query(query)
        .bind(row.id)
        .bind(row.created)
        .bind(row.user_id)
        .bind(row.role)
        .bind(row.api_key_id)
        .bind(row.operation)
        .bind(row.tenant_id)
        .bind(row.target)
        .bind(row.detail)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    let mut tx = app.db.begin_in(shard).await?;
    sqlx::query("delete from audit where id = $1")
        .bind(id)
        .execute(&mut *tx)
        .await?;
    tx.commit().await
}

#[derive(sqlx::FromRow)]
struct Row {
    id: AuditId,
    created: OffsetDateTime,
    user_id: UserId,
    role: String,
    api_key_id: Option<ApiKeyId>,
    operation: String,
    tenant_id: Option<TenantId>,
    target: Option<String>,
    detail: Option<String>,
}

impl From<Row> for AuditRecord {
    fn from(row: Row) -> Self {
        Self {
            id: row.id,
            created: timestamp(row.created),
            user_id: row.user_id,
            user_alias: None,
            role: row.role,
            api_key_id: row.api_key_id,
            operation: row.operation,
            tenant_id: row.tenant_id,
            target: row.target,
            detail: row.detail,
        }
    }
}

/// Says who the users are.
async fn with_names(app: &App, mut page: Page<AuditRecord>) -> Result<Page<AuditRecord>> {
    let names = Names::of_users(app, page.items.iter().map(|record| record.user_id)).await?;
    for record in &mut page.items {
        record.user_alias = names.first(record.user_id.get());
    }
    Ok(page)
}

const COLUMNS: &str = "id, created, user_id, role, api_key_id, operation, tenant_id, target, detail";

/// What was changed in a tenant, the newest first.
pub async fn of_tenant(app: &App, mut tx: Tx, tenant: TenantId, paging: &Paging) -> Result<Page<AuditRecord>> {
    let window = Window::new(paging)?;
    let query = AssertSqlSafe(format!(
        "select {COLUMNS} from audit where tenant_id = $1 and id < $2 order by id desc limit $3"
    ));
    let rows: Vec<Row> = sqlx::query_as(query)
        .bind(tenant)
        .bind(window.before())
        .bind(window.limit())
        .fetch_all(&mut *tx)
        .await?;
    drop(tx);
    with_names(app, window.page(rows, |row| row.id.get(), Into::into)).await
}

/// What was changed anywhere, the newest first: a page of every shard, merged.
pub async fn of_all(app: &App, paging: &Paging) -> Result<Page<AuditRecord>> {
    let window = Window::new(paging)?;
    let mut rows: Vec<Row> = Vec::new();
    for shard in app.db.shards() {
        let query = AssertSqlSafe(format!(
            "select {COLUMNS} from audit where id < $1 order by id desc limit $2"
        ));
        let mut tx = app.db.begin_in(shard).await?;
        let more: Vec<Row> = sqlx::query_as(query)
            .bind(window.before())
            .bind(window.limit())
            .fetch_all(&mut *tx)
            .await?;
        rows.extend(more);
        rows.sort_unstable_by_key(|row| std::cmp::Reverse(row.id));
        // One that is just being brought home is in two places.
        rows.dedup_by_key(|row| row.id);
        rows.truncate(usize::try_from(window.limit()).unwrap_or(usize::MAX));
    }
    with_names(app, window.page(rows, |row| row.id.get(), Into::into)).await
}

/// Forgets what is older than the installation wants to know.
pub async fn purge(db: &mut PgConnection, days: u32) -> Result<()> {
    sqlx::query(
        "delete from audit where id in (select id from audit where created < now() - $1 * interval '1 day' limit $2)",
    )
    .bind(i64::from(days))
    .bind(PURGED_MAX)
    .execute(db)
    .await?;
    Ok(())
}
