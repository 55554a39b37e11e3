//! Workers: each job is one entity that something happened to. A hint wakes a worker at once; a sweep finds what no hint
//! announced. A lease keeps two workers from doing the same job at the same time.

mod hosts;
mod place;
mod run;
mod sweep;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use omgservers_protocol::id::{
    ApiKeyId, AuditId, ClientId, DeploymentId, LocalRunId, MatchId, RuntimeId, TenantId, UserId,
};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use hosts::Hosts;

use crate::App;
use crate::entity::{account, api_key, audit, local_run, venue};
use crate::error::Result;
use crate::event::{Kind, LANES};
use crate::wake::Job;

/// Jobs at the same time on this instance, of each lane.
const JOBS_MAX: usize = 32;
/// A lease that is not renewed is free after this time.
const LEASE_S: i32 = 5;
const LEASE_RENEWAL: Duration = Duration::from_millis(1_500);
/// Longest wait before a failed job is tried again.
const RETRY_MAX_S: f64 = 30.0;

/// What a job says when it is done: nothing, or that it wants to look again.
pub type Again = Option<Duration>;

/// Starts everything that works in the background, as far as this instance shall.
pub fn start(app: &App, jobs: [mpsc::Receiver<Job>; LANES], stop: &CancellationToken, tasks: &TaskTracker) {
    // Whoever called here must not count as silent elsewhere.
    tasks.spawn(sweep::flush_activity(app.clone(), stop.clone()));
    if !app.config.relay_job_enabled {
        tracing::info!("this instance answers calls and leaves the work to others");
        for lane in jobs {
            tasks.spawn(ignore_jobs(lane, stop.clone()));
        }
        return;
    }
    for lane in jobs {
        tasks.spawn(take_jobs(app.clone(), lane, stop.clone(), tasks.clone()));
    }
    if app.config.scheduler_job_enabled {
        tasks.spawn(sweep::run(app.clone(), stop.clone()));
        tasks.spawn(sweep::purge(app.clone(), stop.clone()));
    }
    tasks.spawn(sweep::count_usage(app.clone(), stop.clone()));
    tasks.spawn(hosts::run(app.clone(), stop.clone(), tasks.clone()));
}

/// Somebody else's sweep finds them.
async fn ignore_jobs(mut jobs: mpsc::Receiver<Job>, stop: CancellationToken) {
    while let Some(Some(_)) = stop.run_until_cancelled(jobs.recv()).await {}
}

/// Jobs that run here, and whether each was hinted at again meanwhile.
type Running = Arc<Mutex<HashMap<Job, bool>>>;

async fn take_jobs(app: App, mut jobs: mpsc::Receiver<Job>, stop: CancellationToken, tasks: TaskTracker) {
    let running: Running = Running::default();
    let slots = Arc::new(Semaphore::new(JOBS_MAX));
    loop {
        let job = tokio::select! {
            () = stop.cancelled() => return,
            job = jobs.recv() => match job {
                Some(job) => job,
                None => return,
            },
        };
        {
            let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(again) = running.get_mut(&job) {
                *again = true;
                continue;
            }
            running.insert(job, false);
        }
        // Waiting here holds back hints, not callers: a hint that finds the channel full is left to the sweep.
        let Ok(slot) = slots.clone().acquire_owned().await else {
            return;
        };
        let (app, running, stop) = (app.clone(), running.clone(), stop.clone());
        tasks.spawn(async move {
            loop {
                let more = tokio::select! {
                    () = stop.cancelled() => return,
                    more = work(&app, job) => more,
                };
                let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
                let again = running.get(&job).copied().unwrap_or(false);
                if !more && !again {
                    running.remove(&job);
                    break;
                }
                running.insert(job, false);
            }
            drop(slot);
        });
    }
}

/// Does a job once, if it is free and there is something to do. Says whether there may be more.
async fn work(app: &App, job: Job) -> bool {
    match attempt(app, job).await {
        Ok(more) => more,
        Err(cause) => {
            // The events are still there: the sweep comes back to them.
            tracing::warn!(job.kind = job.kind.as_str(), job.key, error = %cause, "a job could not be taken or finished");
            false
        }
    }
}

async fn attempt(app: &App, job: Job) -> Result<bool> {
    let Some(newest) = take(app, job).await? else {
        return Ok(false);
    };
    let begun = std::time::Instant::now();
    let mut handling = std::pin::pin!(handle(app, job));
    let mut renewal = tokio::time::interval(LEASE_RENEWAL);
    renewal.tick().await;
    let outcome = loop {
        tokio::select! {
            outcome = &mut handling => break outcome,
            _ = renewal.tick() => renew(app, job).await?,
        }
    };
    metrics::histogram!("omgservers_job_seconds", "kind" => job.kind.as_str()).record(begun.elapsed().as_secs_f64());
    match outcome {
        Ok(again) => {
            let more = finish(app, job, newest, again).await?;
            if let Some(after) = again {
                hint_later(app, job, after);
            }
            Ok(more)
        }
        Err(cause) => {
            let after = fail(app, job, newest, &format!("{:#}", anyhow::Error::new(cause))).await?;
            hint_later(app, job, after);
            Ok(false)
        }
    }
}

async fn handle(app: &App, job: Job) -> Result<Again> {
    match job.kind {
        Kind::Tenant => place::tenant(app, TenantId(job.key)).await,
        Kind::Cell => place::cell(app, DeploymentId(job.key)).await,
        Kind::Seat => place::seat(app, job.shard, ClientId(job.key)).await,
        Kind::Client => place::client(app, ClientId(job.key)).await,
        Kind::Outgoing => place::outgoing(app, ClientId(job.key)).await,
        Kind::Venue => run::venue(app, job.shard, MatchId(job.key)).await,
        Kind::Runtime => run::runtime(app, RuntimeId(job.key)).await,
        Kind::Account => account::changed(app, UserId(job.key)).await.map(|()| None),
        Kind::ApiKey => api_key::changed(app, job.shard, ApiKeyId(job.key)).await.map(|()| None),
        Kind::LocalRun => local_run::ended(app, job.shard, LocalRunId(job.key))
            .await
            .map(|()| None),
        Kind::Matchmaker => venue::matchmaker_changed(app, DeploymentId(job.key))
            .await
            .map(|()| None),
        Kind::Audit => audit::bring_home(app, job.shard, AuditId(job.key)).await.map(|()| None),
    }
}

fn hint_later(app: &App, job: Job, after: Duration) {
    let hub = app.db.hub().clone();
    tokio::spawn(async move {
        tokio::time::sleep(after).await;
        hub.hint(job);
    });
}

// Leases and the end of events are written without waiting for the disk: should they be lost, a job is done once more.

/// Takes the lease and says up to which event the job is about. `None`: nothing to do, or somebody else does it; that one
/// looks again after letting go, so nothing is missed.
async fn take(app: &App, job: Job) -> Result<Option<i64>> {
    let mut tx = app.db.begin_relaxed(job.shard).await?;
    let newest: Option<i64> =
        sqlx::query_scalar("select max(id) from event where kind = $1 and key = $2 and not_before <= now()")
            .bind(job.kind.as_str())
            .bind(job.key)
            .fetch_one(&mut *tx)
            .await?;
    let Some(newest) = newest else { return Ok(None) };
    let taken = sqlx::query(
        "insert into lease (kind, key, holder, until) values ($1, $2, $3, now() + $4 * interval '1 second') \
         on conflict (kind, key) do update set holder = excluded.holder, until = excluded.until where lease.until < now()",
    )
    .bind(job.kind.as_str())
    .bind(job.key)
    .bind(&app.holder)
    .bind(LEASE_S)
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok((taken.rows_affected() > 0).then_some(newest))
}

async fn renew(app: &App, job: Job) -> Result<()> {
    let mut tx = app.db.begin_relaxed(job.shard).await?;
    sqlx::query(
        "update lease set until = now() + $4 * interval '1 second' where kind = $1 and key = $2 and holder = $3",
    )
    .bind(job.kind.as_str())
    .bind(job.key)
    .bind(&app.holder)
    .bind(LEASE_S)
    .execute(&mut *tx)
    .await?;
    tx.commit().await
}

async fn release(tx: &mut crate::db::Tx, app: &App, job: Job) -> Result<()> {
    sqlx::query("delete from lease where kind = $1 and key = $2 and holder = $3")
        .bind(job.kind.as_str())
        .bind(job.key)
        .bind(&app.holder)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// Forgets the events that were handled, notes when to look again, and lets go. Says whether more came meanwhile.
async fn finish(app: &App, job: Job, newest: i64, again: Again) -> Result<bool> {
    let mut tx = app.db.begin_relaxed(job.shard).await?;
    sqlx::query("delete from event where kind = $1 and key = $2 and id <= $3")
        .bind(job.kind.as_str())
        .bind(job.key)
        .bind(newest)
        .execute(&mut *tx)
        .await?;
    if let Some(after) = again {
        sqlx::query("insert into event (kind, key, not_before) values ($1, $2, now() + $3 * interval '1 millisecond')")
            .bind(job.kind.as_str())
            .bind(job.key)
            .bind(i64::try_from(after.as_millis()).unwrap_or(i64::MAX))
            .execute(&mut *tx)
            .await?;
    }
    release(&mut tx, app, job).await?;
    tx.commit().await?;
    // After the release is visible: whoever found the lease taken left its event to us.
    let mut tx = app.db.begin_relaxed(job.shard).await?;
    Ok(
        sqlx::query_scalar("select exists (select 1 from event where kind = $1 and key = $2 and not_before <= now())")
            .bind(job.kind.as_str())
            .bind(job.key)
            .fetch_one(&mut *tx)
            .await?,
    )
}

/// Notes the failure with a growing delay and lets go.
async fn fail(app: &App, job: Job, newest: i64, error: &str) -> Result<Duration> {
    let mut tx = app.db.begin_relaxed(job.shard).await?;
    let attempts: Option<i32> = sqlx::query_scalar(
        "with failed as (update event set attempts = attempts + 1, error = $4, \
           not_before = now() + least($5, 0.1 * power(2, least(attempts, 20))) * interval '1 second' \
           where kind = $1 and key = $2 and id <= $3 returning attempts) select max(attempts) from failed",
    )
    .bind(job.kind.as_str())
    .bind(job.key)
    .bind(newest)
    .bind(error)
    .bind(RETRY_MAX_S)
    .fetch_one(&mut *tx)
    .await?;
    release(&mut tx, app, job).await?;
    tx.commit().await?;
    let attempts = attempts.unwrap_or(1);
    if attempts >= 5 {
        tracing::error!(
            job.kind = job.kind.as_str(),
            job.key,
            attempts,
            error,
            "a job keeps failing"
        );
    } else {
        tracing::warn!(
            job.kind = job.kind.as_str(),
            job.key,
            attempts,
            error,
            "a job failed and will be tried again"
        );
    }
    Ok(Duration::from_secs_f64(
        (0.1 * 2f64.powi((attempts - 1).min(20))).min(RETRY_MAX_S),
    ))
}
