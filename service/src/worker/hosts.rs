//! The hosts of the pool: how to reach each, which are there, and what happens on them.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use omgservers_protocol::id::{HostId, PoolId, RuntimeId};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::App;
use crate::entity::{pool, runtime};
use crate::error::Result;
use crate::host::{self, Host, HostEvent, HostSettings};

/// How often the list of hosts is read again, and what runs on each compared with what should.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);
const ORPHAN_GRACE: Duration = Duration::from_secs(2);
/// Runtimes have so long to end when the service does.
const EXIT_GRACE: Duration = Duration::from_secs(3);

pub struct Hosts {
    settings: HostSettings,
    state: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    pool: Option<PoolId>,
    hosts: HashMap<HostId, Entry>,
}

struct Entry {
    host: Arc<dyn Host>,
    is_connected: bool,
}

impl Hosts {
    pub fn new(settings: HostSettings) -> Self {
        Self {
            settings,
            state: Mutex::default(),
        }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn settings(&self) -> &HostSettings {
        &self.settings
    }

    pub fn pool(&self) -> Option<PoolId> {
        self.known().pool
    }

    pub fn get(&self, id: HostId) -> Option<Arc<dyn Host>> {
        self.known().hosts.get(&id).map(|entry| entry.host.clone())
    }

    /// Those that answer.
    pub fn usable(&self) -> Vec<HostId> {
        let known = self.known();
        known
            .hosts
            .iter()
            .filter(|(_, entry)| entry.is_connected)
            .map(|(id, _)| *id)
            .collect()
    }

    /// Ends everything of this installation. The rows stay: the next start finds out and begins anew.
    pub async fn stop_all(&self) {
        let hosts: Vec<Arc<dyn Host>> = self.known().hosts.values().map(|entry| entry.host.clone()).collect();
        let mut stops = tokio::task::JoinSet::new();
        for host in hosts {
            match host.list().await {
                Ok(list) => {
                    for one in list {
                        let host = host.clone();
                        stops.spawn(async move { host.stop(&one.name, EXIT_GRACE).await });
                    }
                }
                Err(cause) => tracing::warn!(error = %cause, "a host does not say what runs on it"),
            }
        }
        while let Some(stopped) = stops.join_next().await {
            if let Ok(Err(cause)) = stopped {
                tracing::warn!(error = %cause, "a runtime could not be stopped");
            }
        }
    }

    fn set_connected(&self, id: HostId, is_connected: bool) {
        if let Some(entry) = self.known().hosts.get_mut(&id) {
            entry.is_connected = is_connected;
        }
    }
}

/// Watches the hosts of the pool, also those that join later.
pub(super) async fn run(app: App, stop: CancellationToken, tasks: TaskTracker) {
    loop {
        match look(&app, &stop, &tasks).await {
            Ok(()) => {}
            Err(cause) => tracing::warn!(error = %cause, "the hosts of the pool could not be read"),
        }
        let wait = if app.hosts.pool().is_some() {
            LOOK_INTERVAL
        } else {
            Duration::from_millis(200)
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

async fn look(app: &App, stop: &CancellationToken, tasks: &TaskTracker) -> Result<()> {
    let Some(pool) = pool::find(app).await? else {
        return Ok(());
    };
    app.hosts.known().pool = Some(pool);
    for (id, uri) in pool::hosts(app, pool).await? {
        if let Some(host) = app.hosts.get(id) {
            if app.hosts.usable().contains(&id) {
                compare(app, id, &host).await;
            }
            continue;
        }
        match host::connect(&uri, &app.hosts.settings) {
            Ok(host) => {
                app.hosts.known().hosts.insert(
                    id,
                    Entry {
                        host: host.clone(),
                        is_connected: false,
                    },
                );
                tasks.spawn(watch(app.clone(), id, host, stop.clone()));
            }
            Err(cause) => tracing::error!(host.id = %id, error = %cause, "a host cannot be used"),
        }
    }
    Ok(())
}

/// Hears what happens on a host.
async fn watch(app: App, id: HostId, host: Arc<dyn Host>, stop: CancellationToken) {
    let mut events = host.watch();
    loop {
        let event = tokio::select! {
            () = stop.cancelled() => return,
            event = events.recv() => event,
        };
        match event {
            Some(HostEvent::Connected) => {
                tracing::info!(host.id = %id, "a host is there");
                app.hosts.set_connected(id, true);
                compare(&app, id, &host).await;
            }
            Some(HostEvent::Lost { reason }) => {
                tracing::warn!(host.id = %id, reason, "a host is lost");
                app.hosts.set_connected(id, false);
            }
            Some(HostEvent::Died {
                runtime_id,
                generation,
                detail,
                ..
            }) => {
                died(&app, RuntimeId(runtime_id), generation, &detail).await;
            }
            None => {
                events = host.watch();
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

async fn died(app: &App, id: RuntimeId, generation: i64, detail: &str) {
    let reason = format!("the game server {detail}");
    match runtime::ended(app, id, generation, &reason).await {
        Ok(true) => tracing::warn!(runtime.id = %id, detail, "a runtime died"),
        Ok(false) => {}
        // The comparison of what runs with what should finds it again.
        Err(cause) => tracing::warn!(runtime.id = %id, error = %cause, "the end of a runtime could not be noted"),
    }
}

/// Compares what runs on a host with what should: the one may have changed while nobody watched.
async fn compare(app: &App, id: HostId, host: &Arc<dyn Host>) {
    if let Err(cause) = try_compare(app, id, host).await {
        tracing::warn!(host.id = %id, error = %cause, "what runs on a host could not be compared with what should");
    }
}

async fn try_compare(app: &App, id: HostId, host: &Arc<dyn Host>) -> Result<()> {
    // What should run is read first: one that is started in between is found in the list without being expected.
    let mut expected = Vec::new();
    for shard in app.db.shards() {
        expected.extend(runtime::on_host(app, shard, id).await?);
    }
    let list = match host.list().await {
        Ok(list) => list,
        Err(cause) => {
            tracing::warn!(host.id = %id, error = %cause, "a host does not say what runs on it");
            return Ok(());
        }
    };
    let running: HashSet<(i64, i64)> = list
        .iter()
        .filter(|one| one.exited.is_none())
        .map(|one| (one.runtime_id, one.generation))
        .collect();
    for (runtime, generation) in expected {
        if !running.contains(&(runtime.get(), generation)) {
            let exited = list
                .iter()
                .find(|one| one.runtime_id == runtime.get() && one.generation == generation);
            let detail = exited.and_then(|one| one.exited.as_deref()).unwrap_or("vanished");
            died(app, runtime, generation, detail).await;
        }
    }
    for one in list {
        let view = runtime::view(app, RuntimeId(one.runtime_id)).await?;
        if view.is_none() {
            tracing::warn!(
                name = one.name,
                "a container of ours belongs to no runtime and is removed"
            );
            if let Err(cause) = host.stop(&one.name, ORPHAN_GRACE).await {
                tracing::warn!(name = one.name, error = %cause, "it could not be removed");
            }
        }
    }
    if let Err(cause) = host.prune_networks().await {
        tracing::debug!(host.id = %id, error = %cause, "unused networks could not be removed");
    }
    Ok(())
}
