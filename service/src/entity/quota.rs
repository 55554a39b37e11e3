//! How much a tenant may have at a time, and how much it used day by day.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use omgservers_protocol::audit::{InUse, Quotas, TenantQuotas, UsageRecord};
use omgservers_protocol::call::{Page, Paging};
use omgservers_protocol::id::TenantId;
use omgservers_protocol::support::SetTenantQuotas;
use omgservers_protocol::text::Text;
use time::Date;

use crate::App;
use crate::entity::page::Window;
use crate::entity::permission::{On, Permission, require};
use crate::entity::{alias, audit, pool, tenant};
use crate::error::{Error, Result};
use crate::ids::now_ms;
use crate::principal::Actor;

pub async fn set(app: &App, by: &Actor, call: SetTenantQuotas) -> Result<()> {
    let id = alias::resolve_tenant(app, &call.tenant).await?;
    let mut tx = app.db.begin(id.get()).await?;
    tenant::find(&mut tx, id).await?;
    let Quotas {
        runtimes,
        cpu,
        memory,
        players,
    } = call.quotas;
    let [runtimes, cpu, memory, players] =
        [runtimes, cpu, memory, players].map(|quota| quota.map(|quota| i32::try_from(quota).unwrap_or(i32::MAX)));
    sqlx::query(
        "update tenant set quota_runtimes = $2, quota_cpu = $3, quota_memory = $4, quota_players = $5 where id = $1",
    )
    .bind(id)
    .bind(runtimes)
    .bind(cpu)
    .bind(memory)
    .bind(players)
    .execute(&mut *tx)
    .await?;
    let detail = serde_json::to_string(&call.quotas).expect("quotas are plain data");
    audit::note(app, &mut tx, by, "set-tenant-quotas", Some(id), id, Some(&detail)).await?;
    tx.commit().await
}

/// What a tenant may have.
pub async fn of(app: &App, tenant: TenantId) -> Result<Quotas> {
    let mut tx = app.db.begin(tenant.get()).await?;
    let row: Option<[Option<i32>; 4]> = sqlx::query_as::<_, (Option<i32>, Option<i32>, Option<i32>, Option<i32>)>(
        "select quota_runtimes, quota_cpu, quota_memory, quota_players from tenant where id = $1",
    )
    .bind(tenant)
    .fetch_optional(&mut *tx)
    .await?
    .map(|(runtimes, cpu, memory, players)| [runtimes, cpu, memory, players]);
    let [runtimes, cpu, memory, players] = row
        .unwrap_or_default()
        .map(|quota| quota.and_then(|quota| u32::try_from(quota).ok()));
    Ok(Quotas {
        runtimes,
        cpu,
        memory,
        players,
    })
}

pub async fn get(app: &App, by: &Actor, named: &Text) -> Result<TenantQuotas> {
    let tenant = alias::resolve_tenant(app, named).await?;
    {
        let mut tx = app.db.begin(tenant.get()).await?;
        require(&mut tx, by, tenant, On::Tenant(tenant), Permission::TENANT_VIEWER).await?;
        tenant::find(&mut tx, tenant).await?;
    }
    let mut in_use = InUse {
        players: players(app, tenant).await?,
        ..InUse::default()
    };
    if let Some(pool) = app.hosts.pool() {
        (in_use.runtimes, in_use.cpu, in_use.memory) = pool::used_by(app, pool, tenant).await?;
    }
    Ok(TenantQuotas {
        quotas: of(app, tenant).await?,
        in_use,
    })
}

/// Clients of a tenant that are connected: a look into every shard.
async fn players(app: &App, tenant: TenantId) -> Result<u32> {
    let mut count = 0;
    for shard in app.db.shards() {
        let mut tx = app.db.begin_in(shard).await?;
        count += sqlx::query_scalar::<_, i64>("select count(*) from client where tenant_id = $1 and deleted is null")
            .bind(tenant)
            .fetch_one(&mut *tx)
            .await?;
    }
    Ok(u32::try_from(count).unwrap_or(u32::MAX))
}

/// Refuses one more player than the tenant may have. Counted once a second: those who come in the same second at other
/// instances are not seen.
pub async fn admit_player(app: &App, tenant: TenantId, max: u32) -> Result<()> {
    // Of those who come at once one counts, and the others wait for it.
    let count = app.player_counts.get_with(tenant, Arc::default);
    let count = count
        .get_or_try_init(async || players(app, tenant).await.map(AtomicU32::new))
        .await?;
    let admitted = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |players| {
        (players < max).then_some(players + 1)
    });
    match admitted {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::QuotaExceeded(format!(
            "all {max} places of this studio are taken, try again later"
        ))),
    }
}

/// What a tenant used, the newest day first.
pub async fn list_usage(app: &App, by: &Actor, named: &Text, paging: &Paging) -> Result<Page<UsageRecord>> {
    let window = Window::new(paging)?;
    let tenant = alias::resolve_tenant(app, named).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    require(&mut tx, by, tenant, On::Tenant(tenant), Permission::TENANT_VIEWER).await?;
    type Row = (Date, i64, i64, i64, i64, i32, i32);
    let rows: Vec<Row> = sqlx::query_as(
        "select day, runtime_seconds, cpu_seconds / 100, memory_mb_seconds, player_seconds, runtimes_max, players_max \
         from usage where tenant_id = $1 and day - date '2000-01-01' < $2 order by day desc limit $3",
    )
    .bind(tenant)
    .bind(window.before())
    .bind(window.limit())
    .fetch_all(&mut *tx)
    .await?;
    Ok(window.page(
        rows,
        |(day, ..)| i64::from(day.to_julian_day() - time::macros::date!(2000 - 01 - 01).to_julian_day()),
        |(day, runtime_seconds, cpu_seconds, memory_mb_seconds, player_seconds, runtimes_max, players_max)| {
            UsageRecord {
                day: day.to_string(),
                runtime_seconds,
                cpu_seconds,
                memory_mb_seconds,
                player_seconds,
                runtimes_max,
                players_max,
            }
        },
    ))
}

/// How long the interval lasts that is running now.
pub fn until_next_interval(app: &App) -> Duration {
    let interval_ms = app.config.usage_interval.as_millis().max(1_000);
    let into_ms = u128::try_from(now_ms()).unwrap_or(0) % interval_ms;
    Duration::from_millis(u64::try_from(interval_ms - into_ms).unwrap_or(u64::MAX))
}

/// Counts one interval of everything that runs and everybody who plays now. Several instances may do it at once: each
/// interval counts once.
pub async fn count_usage(app: &App) -> Result<()> {
    let seconds = i64::try_from(app.config.usage_interval.as_secs().max(1)).unwrap_or(i64::MAX);
    let now_s = now_ms() / 1_000;
    let slot = now_s / seconds;
    let mut used: std::collections::BTreeMap<TenantId, (i64, i64, i64, i64)> = std::collections::BTreeMap::new();
    if let Some(pool) = app.hosts.pool() {
        for (tenant, runtimes, cpu, memory) in pool::used(app, pool).await? {
            used.insert(tenant, (runtimes, cpu, memory, 0));
        }
    }
    for shard in app.db.shards() {
        let mut tx = app.db.begin_in(shard).await?;
        let players: Vec<(TenantId, i64)> = sqlx::query_as(
            "select tenant_id, count(*) from seat join cell on cell.deployment_id = seat.deployment_id group by tenant_id",
        )
        .fetch_all(&mut *tx)
        .await?;
        for (tenant, players) in players {
            used.entry(tenant).or_default().3 += players;
        }
    }
    for (tenant, (runtimes, cpu, memory, players)) in used {
        let mut tx = app.db.begin(tenant.get()).await?;
        sqlx::query(
            "insert into usage (tenant_id, day, slot, runtime_seconds, cpu_seconds, memory_mb_seconds, player_seconds, runtimes_max, players_max) \
             select $1, (to_timestamp($2) at time zone 'utc')::date, $3, $4 * $8, $5 * $8, $6 * $8, $7 * $8, $4, $7 \
             where exists (select 1 from tenant where id = $1) \
             on conflict on constraint usage_pkey do update set slot = excluded.slot, \
             runtime_seconds = usage.runtime_seconds + excluded.runtime_seconds, cpu_seconds = usage.cpu_seconds + excluded.cpu_seconds, \
             memory_mb_seconds = usage.memory_mb_seconds + excluded.memory_mb_seconds, player_seconds = usage.player_seconds + excluded.player_seconds, \
             runtimes_max = greatest(usage.runtimes_max, excluded.runtimes_max), players_max = greatest(usage.players_max, excluded.players_max) \
             where usage.slot < excluded.slot",
        )
        .bind(tenant)
        .bind(now_s)
        .bind(slot)
        .bind(runtimes)
        .bind(cpu)
        .bind(memory)
        .bind(players)
        .bind(seconds)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
    }
    Ok(())
}
