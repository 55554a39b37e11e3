//! The slow look: finds work whose hint was lost, and what ends by the mere passing of time.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::db::Shard;
use crate::entity::{client, local_run, quota, runtime, tombstone};
use crate::error::Result;
use crate::event::Kind;
use crate::wake::Job;
use crate::{App, activity};

/// Deleted clients are kept so long, so that a player can still fetch the reason; not longer than anything else.
const CLIENT_RETENTION_S: i64 = 600;
/// Longest time between two looks at what was deleted.
const PURGE_INTERVAL_MAX: Duration = Duration::from_secs(60);
/// Jobs found in one look at one shard.
const FOUND_MAX: i64 = 1_000;

pub(super) async fn run(app: App, stop: CancellationToken) {
    let begun = Instant::now();
    loop {
        for shard in app.db.shards() {
            if stop.is_cancelled() {
                return;
            }
            if let Err(cause) = look(&app, shard, begun.elapsed()).await {
                tracing::warn!(shard = shard.index(), error = %cause, "a shard could not be looked at");
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(app.config.sweep_interval) => {}
        }
    }
}

async fn look(app: &App, shard: Shard, up_for: Duration) -> Result<()> {
    let mut tx = app.db.begin_in(shard).await?;
    let found: Vec<(String, i64)> =
        sqlx::query_as("select distinct kind, key from event where not_before <= now() limit $1")
            .bind(FOUND_MAX)
            .fetch_all(&mut *tx)
            .await?;
    let tombstones_s = i64::try_from(app.config.tombstones_retention.as_secs()).unwrap_or(i64::MAX);
    client::purge(&mut tx, CLIENT_RETENTION_S.min(tombstones_s)).await?;
    local_run::expire(&mut tx).await?;
    tx.commit().await?;
    for (kind, key) in found {
        if let Some(kind) = Kind::parse(&kind) {
            app.db.hub().hint(Job { shard, kind, key });
        }
    }
    // Whoever could not call because we were not there is not to blame: silence counts from our start.
    let (idle, start) = (
        app.config.runtimes_inactive_interval_s,
        app.config.runtimes_start_interval_s,
    );
    if up_for > Duration::from_secs(idle) {
        for (id, generation) in runtime::silent(app, shard, idle, start).await? {
            tracing::warn!(runtime.id = %id, "a runtime fell silent");
            runtime::ended(app, id, generation, "the game server fell silent").await?;
        }
    }
    if up_for > Duration::from_secs(app.config.clients_inactive_interval_s) {
        client::delete_idle(app, shard, app.config.clients_inactive_interval_s).await?;
    }
    Ok(())
}

pub(super) async fn flush_activity(app: App, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(activity::FLUSH_INTERVAL) => {}
        }
        if let Err(cause) = activity::flush(&app).await {
            tracing::warn!(error = %cause, "who called could not be written down");
        }
    }
    activity::flush(&app).await.ok();
}

/// Forgets what was deleted long ago.
pub(super) async fn purge(app: App, stop: CancellationToken) {
    let interval = app
        .config
        .tombstones_retention
        .clamp(Duration::from_secs(1), PURGE_INTERVAL_MAX);
    loop {
        for shard in app.db.shards() {
            while !stop.is_cancelled() {
                match tombstone::purge(&app, shard).await {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(cause) => {
                        tracing::warn!(shard = shard.index(), error = %cause, "what was deleted could not be forgotten yet");
                        break;
                    }
                }
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(interval) => {}
        }
    }
}

/// Writes down how much is used, once per interval.
pub(super) async fn count_usage(app: App, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(quota::until_next_interval(&app)) => {}
        }
        if let Err(cause) = quota::count_usage(&app).await {
            tracing::warn!(error = %cause, "what is used could not be written down");
        }
    }
}
