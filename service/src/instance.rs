//! This instance among others: its lease on a node number.

use std::time::Duration;

use anyhow::{Context, bail};
use omgservers_protocol::admin::Instance;
use omgservers_protocol::call::{Page, Paging};
use sqlx::postgres::PgPool;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use crate::App;
use crate::entity::page::Window;
use crate::entity::timestamp;
use crate::error::Result;
use crate::ids::now_ms;

/// A lease that is not renewed is free after this time.
const LEASE_S: i32 = 15;
const RENEWAL: Duration = Duration::from_secs(3);
/// So far ahead is written down how far ids may go, and the next holder starts after it: longer than a lease, so that
/// nobody comes to the end while there is a database.
const AHEAD_MS: i64 = 20_000;
/// The same when the number is given back.
const AHEAD_AT_END_MS: i64 = 1_000;

pub struct Lease {
    pub node: u16,
    pub holder: String,
    /// The newest time that ids of the holder before may carry.
    pub after_ms: i64,
    /// The newest time that ids of this one may carry.
    pub horizon_ms: i64,
}

/// Leases the given node number, waiting for a holder that has just died, or any that is free.
pub async fn lease(system: &PgPool, wanted: Option<u16>) -> anyhow::Result<Lease> {
    let holder = format!("{:032x}", rand::random::<u128>());
    for _ in 0..LEASE_S + 5 {
        let now_ms = now_ms();
        // The look into the table sees what was there before.
        let taken: Option<(i32, i64, Option<i64>)> = sqlx::query_as(
            "insert into system.instance (node, holder, until, clock_ms) \
             select node, $1, now() + $3 * interval '1 second', $4 from generate_series(coalesce($2, 0), coalesce($2, 1023)) as node \
             where not exists (select 1 from system.instance as other where other.node = node.node and other.until >= now()) \
             order by node limit 1 \
             on conflict (node) do update set holder = excluded.holder, until = excluded.until, \
               clock_ms = greatest(instance.clock_ms + $5, excluded.clock_ms) where instance.until < now() \
             returning node, clock_ms, (select clock_ms from system.instance as before where before.node = instance.node)",
        )
        .bind(&holder)
        .bind(wanted.map(i32::from))
        .bind(LEASE_S)
        .bind(now_ms + AHEAD_MS)
        .bind(AHEAD_MS)
        .fetch_optional(system)
        .await
        .context("no node number could be leased")?;
        if let Some((node, horizon_ms, before_ms)) = taken {
            return Ok(Lease {
                node: u16::try_from(node)?,
                holder,
                after_ms: before_ms.unwrap_or(0).max(now_ms),
                horizon_ms,
            });
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    match wanted {
        Some(node) => bail!(
            "instance id {node} is held by a living instance: give each its own OMGSERVERS_SERVER_INSTANCE_ID, or none"
        ),
        None => bail!("all 1024 instance ids are held by living instances"),
    }
}

/// Keeps the lease. Without it ids could be minted twice: the service must stop.
pub async fn renew(app: App, lease: Lease, stop: CancellationToken, fatal: tokio::sync::watch::Sender<Option<String>>) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(RENEWAL) => {}
        }
        let horizon_ms = app.ids.newest_ms().max(now_ms()) + AHEAD_MS;
        let renewed: Result<Option<i64>, sqlx::Error> = sqlx::query_scalar(
            "update system.instance set until = now() + $3 * interval '1 second', clock_ms = $4 where node = $1 and holder = $2 \
             returning (select count(*) from system.instance as other where other.holder <> $2 and other.until >= now())",
        )
        .bind(i32::from(lease.node))
        .bind(&lease.holder)
        .bind(LEASE_S)
        .bind(horizon_ms)
        .fetch_optional(app.db.system(0))
        .await;
        match renewed {
            Ok(None) => {
                fatal.send_replace(Some(format!(
                    "instance id {} was taken over by another instance",
                    lease.node
                )));
                return;
            }
            Ok(Some(others)) => {
                app.ids.extend(horizon_ms);
                app.db.hub().set_alone(others == 0);
            }
            // Without the database no id is stored either.
            Err(cause) => tracing::warn!(error = %cause, "the lease on the instance id could not be renewed"),
        }
    }
}

/// Lets the next start have the number at once. What is minted from now on stays below what that one begins with.
pub async fn give_back(app: &App) {
    let horizon_ms = app.ids.newest_ms() + AHEAD_AT_END_MS;
    app.ids.end(horizon_ms);
    sqlx::query("update system.instance set until = now() - interval '1 second', clock_ms = $2 where holder = $1")
        .bind(&app.holder)
        .bind(horizon_ms)
        .execute(app.db.system(0))
        .await
        .ok();
}

/// The name of this installation on engines that it shares with others.
pub async fn installation(system: &PgPool) -> anyhow::Result<String> {
    Ok(sqlx::query_scalar("select name from system.installation")
        .fetch_one(system)
        .await?)
}

/// The instances that are and were, by their number.
pub async fn list(system: &PgPool, paging: &Paging) -> Result<Page<Instance>> {
    let window = Window::new(paging)?;
    let rows: Vec<(i32, bool, OffsetDateTime)> = sqlx::query_as(
        "select node, until >= now(), until from system.instance where node > $1 order by node limit $2",
    )
    .bind(window.after())
    .bind(window.limit())
    .fetch_all(system)
    .await?;
    Ok(window.page(
        rows,
        |(node, ..)| i64::from(*node),
        |(node, alive, until)| Instance {
            instance_id: u16::try_from(node).unwrap_or(u16::MAX),
            alive,
            until: timestamp(until),
        },
    ))
}
