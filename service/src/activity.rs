//! When clients and runtimes last called: kept in memory, written down every few seconds in one statement per shard.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use omgservers_protocol::id::{ClientId, RuntimeId};

use crate::App;
use crate::db::Shard;
use crate::error::Result;

/// How often it is written down.
pub const FLUSH_INTERVAL: Duration = Duration::from_secs(3);

#[derive(Default)]
pub struct Activity {
    clients: Mutex<Seen<ClientId>>,
    runtimes: Mutex<Seen<RuntimeId>>,
}

struct Seen<T> {
    /// Since the last flush began.
    fresh: HashSet<T>,
    /// Being written.
    flushing: HashSet<T>,
}

impl<T> Default for Seen<T> {
    fn default() -> Self {
        Self {
            fresh: HashSet::new(),
            flushing: HashSet::new(),
        }
    }
}

impl Activity {
    pub fn touch_client(&self, id: ClientId) {
        self.clients
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .fresh
            .insert(id);
    }

    pub fn touch_runtime(&self, id: RuntimeId) {
        self.runtimes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .fresh
            .insert(id);
    }

    /// Whether it called and that is not written down yet.
    pub fn client_is_active(&self, id: ClientId) -> bool {
        let seen = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        seen.fresh.contains(&id) || seen.flushing.contains(&id)
    }

    pub fn runtime_is_active(&self, id: RuntimeId) -> bool {
        let seen = self.runtimes.lock().unwrap_or_else(PoisonError::into_inner);
        seen.fresh.contains(&id) || seen.flushing.contains(&id)
    }
}

/// Writes down who called.
pub async fn flush(app: &App) -> Result<()> {
    let clients = begin(&app.activity.clients);
    let runtimes = begin(&app.activity.runtimes);
    let written = async {
        for (shard, ids) in by_shard(app, clients.iter().map(|id| id.get())) {
            stamp(
                app,
                shard,
                "update client set last_activity = now() where id = any($1) and deleted is null",
                &ids,
            )
            .await?;
        }
        for (shard, ids) in by_shard(app, runtimes.iter().map(|id| id.get())) {
            stamp(
                app,
                shard,
                "update runtime set last_activity = now() where id = any($1) and deleted is null",
                &ids,
            )
            .await?;
        }
        Ok(())
    }
    .await;
    end(&app.activity.clients, written.is_ok());
    end(&app.activity.runtimes, written.is_ok());
    written
}

fn begin<T: Copy + Eq + std::hash::Hash>(seen: &Mutex<Seen<T>>) -> Vec<T> {
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    let fresh = std::mem::take(&mut seen.fresh);
    seen.flushing.extend(fresh);
    seen.flushing.iter().copied().collect()
}

fn end<T: Copy + Eq + std::hash::Hash>(seen: &Mutex<Seen<T>>, written: bool) {
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    if written {
        seen.flushing.clear();
    }
}

fn by_shard(app: &App, ids: impl Iterator<Item = i64>) -> HashMap<Shard, Vec<i64>> {
    let mut shards: HashMap<Shard, Vec<i64>> = HashMap::new();
    for id in ids {
        shards.entry(app.db.shard_of(id)).or_default().push(id);
    }
    // The same order for everybody, so that two instances do not wait for each other.
    shards.values_mut().for_each(|ids| ids.sort_unstable());
    shards
}

async fn stamp(app: &App, shard: Shard, statement: &'static str, ids: &[i64]) -> Result<()> {
    let mut tx = app.db.begin_relaxed(shard).await?;
    sqlx::query(statement).bind(ids).execute(&mut *tx).await?;
    tx.commit().await
}
