//! The pool of hosts: what each can take, and what was placed on it.

use omgservers_protocol::admin;
use omgservers_protocol::audit::Quotas;
use omgservers_protocol::call::{Page, Paging};
use omgservers_protocol::id::{DeploymentId, HostId, PoolId, RuntimeId, TenantId};
use time::OffsetDateTime;

use crate::App;
use crate::config::HostConfig;
use crate::entity::alias::{self, Scope};
use crate::entity::page::Window;
use crate::entity::timestamp;
use crate::error::{Error, Result};
use crate::plan::placement::{self, Demand, Host};

/// Finds the default pool, creating it with the configured hosts the first time. Hosts that were added to the
/// configuration later join it; capacity follows the configuration.
pub async fn bootstrap(app: &App, hosts: &[HostConfig]) -> Result<PoolId> {
    let mut tx = app.db.begin(Scope::Pool.key()).await?;
    let pool = match alias::find(&mut tx, Scope::Pool, "pool").await? {
        Some(id) => PoolId(id),
        None => {
            let id: PoolId = app.ids.mint();
            match alias::create(&mut tx, app.ids.mint(), Scope::Pool, id.get(), "pool").await {
                Ok(()) => tx.commit().await?,
                Err(Error::Conflict(_)) => return Err(Error::Unavailable("another instance is creating the pool")),
                Err(cause) => return Err(cause),
            }
            id
        }
    };
    let mut tx = app.db.begin(pool.get()).await?;
    for host in hosts {
        sqlx::query(
            "insert into host (id, pool_id, uri, cpu_count, memory_mb, max_containers) values ($1, $2, $3, $4, $5, $6) \
             on conflict on constraint host_once do update set cpu_count = excluded.cpu_count, \
             memory_mb = excluded.memory_mb, max_containers = excluded.max_containers",
        )
        .bind(app.ids.mint::<HostId>())
        .bind(pool)
        .bind(&host.uri)
        .bind(i32::try_from(host.cpu_count).unwrap_or(i32::MAX))
        .bind(i32::try_from(host.memory_mb).unwrap_or(i32::MAX))
        .bind(i32::try_from(host.max_containers).unwrap_or(i32::MAX))
        .execute(&mut *tx)
        .await?;
    }
    tx.commit().await?;
    Ok(pool)
}

/// The default pool, if it was made already.
pub async fn find(app: &App) -> Result<Option<PoolId>> {
    let mut tx = app.db.begin(Scope::Pool.key()).await?;
    Ok(alias::find(&mut tx, Scope::Pool, "pool").await?.map(PoolId))
}

/// The hosts of a pool with their addresses.
pub async fn hosts(app: &App, pool: PoolId) -> Result<Vec<(HostId, String)>> {
    let mut tx = app.db.begin(pool.get()).await?;
    Ok(
        sqlx::query_as("select id, uri from host where pool_id = $1 order by id")
            .bind(pool)
            .fetch_all(&mut *tx)
            .await?,
    )
}

/// What a tenant has placed: runtimes, CPU, memory.
pub async fn used_by(app: &App, pool: PoolId, tenant: TenantId) -> Result<(u32, u32, u32)> {
    let used = used(app, pool).await?;
    let number = |number: i64| u32::try_from(number).unwrap_or(u32::MAX);
    Ok(used
        .into_iter()
        .find(|(whose, ..)| *whose == tenant)
        .map(|(_, runtimes, cpu, memory)| (number(runtimes), number(cpu), number(memory)))
        .unwrap_or_default())
}

/// What each tenant has placed: runtimes, CPU, memory.
pub async fn used(app: &App, pool: PoolId) -> Result<Vec<(TenantId, i64, i64, i64)>> {
    let mut tx = app.db.begin(pool.get()).await?;
    Ok(sqlx::query_as(
        "select tenant_id, count(*), sum(cpu_limit)::bigint, sum(memory_limit)::bigint from placement \
         where pool_id = $1 group by tenant_id",
    )
    .bind(pool)
    .fetch_all(&mut *tx)
    .await?)
}

/// The hosts of the pool with what is placed on them.
pub async fn list(app: &App, paging: &Paging) -> Result<Page<admin::Host>> {
    let window = Window::new(paging)?;
    let Some(pool) = find(app).await? else {
        return Ok(Page {
            items: Vec::new(),
            next_page_token: None,
        });
    };
    type Row = (HostId, String, i32, i32, i32, OffsetDateTime, i64, i64, i64);
    let mut tx = app.db.begin(pool.get()).await?;
    let rows: Vec<Row> = sqlx::query_as(
        "select host.id, uri, cpu_count, memory_mb, max_containers, host.created, \
         count(runtime_id), coalesce(sum(cpu_limit), 0)::bigint, coalesce(sum(memory_limit), 0)::bigint \
         from host left join placement on placement.host_id = host.id \
         where host.pool_id = $1 and host.id > $2 group by host.id order by host.id limit $3",
    )
    .bind(pool)
    .bind(window.after())
    .bind(window.limit())
    .fetch_all(&mut *tx)
    .await?;
    let usable = app.hosts.usable();
    Ok(window.page(
        rows,
        |(id, ..)| id.get(),
        |(id, uri, cpu_count, memory_size, max_containers, created, containers, cpu_used, memory_used)| admin::Host {
            id,
            docker_daemon_uri: uri,
            connected: usable.contains(&id),
            cpu_count,
            memory_size,
            max_containers,
            cpu_used,
            memory_used,
            containers,
            created: timestamp(created),
        },
    ))
}

/// Where a runtime goes.
pub enum Place {
    On(HostId),
    /// Nothing fits now.
    NoRoom,
    /// The tenant may not have more; for people.
    OverQuota(String),
}

/// Chooses a host and books the place. The same runtime gets the place that it has.
pub async fn place(app: &App, pool: PoolId, demand: &Demand, quotas: &Quotas, usable: &[HostId]) -> Result<Place> {
    let mut tx = app.db.begin(pool.get()).await?;
    let booked: Option<HostId> = sqlx::query_scalar("select host_id from placement where runtime_id = $1")
        .bind(demand.runtime)
        .fetch_optional(&mut *tx)
        .await?;
    if let Some(host) = booked {
        return Ok(Place::On(host));
    }
    type Row = (HostId, i32, i32, i32);
    // The lock makes placements of one pool queue up, so that a place is sold once and no quota passed: on all hosts, since
    // another instance may reach others than this one.
    let rows: Vec<Row> = sqlx::query_as(
        "select id, cpu_count, memory_mb, max_containers from host where pool_id = $1 order by id for update",
    )
    .bind(pool)
    .fetch_all(&mut *tx)
    .await?;
    let placed: Vec<(HostId, TenantId, DeploymentId, i32, i32)> = sqlx::query_as(
        "select host_id, tenant_id, deployment_id, cpu_limit, memory_limit from placement where pool_id = $1",
    )
    .bind(pool)
    .fetch_all(&mut *tx)
    .await?;
    let mut used = placement::Used::default();
    for (_, _, _, cpu, memory) in placed.iter().filter(|(_, tenant, ..)| *tenant == demand.tenant) {
        used.add(i64::from(*cpu), i64::from(*memory));
    }
    if let Some(reason) = placement::over_quota(quotas, &used, demand) {
        return Ok(Place::OverQuota(reason));
    }
    let hosts: Vec<Host> = rows
        .into_iter()
        .filter(|(id, ..)| usable.contains(id))
        .map(|(id, cpu_count, memory_mb, max_containers)| {
            let mut host = Host {
                id,
                cpu: i64::from(cpu_count) * 100,
                memory: i64::from(memory_mb),
                containers: i64::from(max_containers),
                siblings: 0,
            };
            for (_, _, deployment, cpu, memory) in placed.iter().filter(|(on, ..)| *on == id) {
                host.cpu -= i64::from(*cpu);
                host.memory -= i64::from(*memory);
                host.containers -= 1;
                host.siblings += i64::from(*deployment == demand.deployment);
            }
            host
        })
        .collect();
    let Some(host) = placement::place(&hosts, demand) else {
        return Ok(Place::NoRoom);
    };
    sqlx::query(
        "insert into placement (runtime_id, pool_id, host_id, deployment_id, cpu_limit, memory_limit, tenant_id) values ($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(demand.runtime)
    .bind(pool)
    .bind(host)
    .bind(demand.deployment)
    .bind(i32::try_from(demand.cpu).unwrap_or(i32::MAX))
    .bind(i32::try_from(demand.memory).unwrap_or(i32::MAX))
    .bind(demand.tenant)
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(Place::On(host))
}

/// Gives the place back.
pub async fn release(app: &App, pool: PoolId, runtime: RuntimeId) -> Result<()> {
    let mut tx = app.db.begin(pool.get()).await?;
    sqlx::query("delete from placement where runtime_id = $1")
        .bind(runtime)
        .execute(&mut *tx)
        .await?;
    tx.commit().await
}
