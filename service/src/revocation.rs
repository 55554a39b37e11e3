//! Tokens and keys that are refused though they have not expired. Every instance holds all of them in memory and hears of
//! new ones at once; should a notice be lost, it looks again twice a second.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::App;
use crate::error::{Error, Result};
use crate::wake::News;

/// The epoch that refuses every token.
pub const ALL: i64 = i64::MAX;
/// How often new ones are looked for.
const LOOK: Duration = Duration::from_millis(500);
/// How far back such a look goes: longer than any transaction that writes one.
const OVERLAP_S: i32 = 30;
/// How often everything is read and what has expired forgotten.
const LOOK_AT_ALL: Duration = Duration::from_secs(60);
/// Rows forgotten at a time.
const FORGOTTEN_MAX: i64 = 10_000;

/// The oldest epoch that is accepted, by user or key.
#[derive(Default)]
pub struct Revocations(RwLock<HashMap<i64, i64>>);

impl Revocations {
    /// Refuses a token of this epoch if a newer one is asked for.
    pub fn check(&self, subject: i64, epoch: i64) -> Result<()> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        match known.get(&subject) {
            Some(&ALL) => Err(Error::UserDeleted),
            Some(oldest) if epoch < *oldest => Err(Error::WrongCredentials("the token was revoked, log in again")),
            _ => Ok(()),
        }
    }

    fn add(&self, rows: impl IntoIterator<Item = (i64, i64)>) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for (subject, epoch) in rows {
            let oldest = known.entry(subject).or_insert(epoch);
            *oldest = epoch.max(*oldest);
        }
    }

    fn replace(&self, rows: Vec<(i64, i64)>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = rows.into_iter().collect();
    }
}

/// Tells every instance. May be repeated.
pub async fn publish(app: &App, subject: i64, epoch: i64) -> Result<()> {
    app.revocations.add([(subject, epoch)]);
    sqlx::query(
        "insert into system.revocation (subject, epoch, until) values ($1, $2, now() + $3 * interval '1 second') \
         on conflict (subject) do update set epoch = greatest(revocation.epoch, excluded.epoch), \
         changed = clock_timestamp(), until = excluded.until",
    )
    .bind(subject)
    .bind(epoch)
    .bind(app.tokens.longest_life_s())
    .execute(app.db.system(0))
    .await?;
    app.db.tell(News::Revoked);
    Ok(())
}

/// The same right after the change, without waiting for the job that makes sure of it.
pub async fn publish_now(app: &App, subject: i64, epoch: i64) {
    if let Err(cause) = publish(app, subject, epoch).await {
        tracing::warn!(error = %cause, "a revocation could not be told at once, its job will");
    }
}

/// Reads everything, or what is new.
pub async fn load(app: &App, everything: bool) -> Result<()> {
    if everything {
        sqlx::query("delete from system.revocation where subject in (select subject from system.revocation where until < now() limit $1)")
            .bind(FORGOTTEN_MAX)
            .execute(app.db.system(0))
            .await?;
        let rows = sqlx::query_as("select subject, epoch from system.revocation")
            .fetch_all(app.db.system(0))
            .await?;
        app.revocations.replace(rows);
    } else {
        let rows: Vec<(i64, i64)> = sqlx::query_as(
            "select subject, epoch from system.revocation where changed > now() - $1 * interval '1 second'",
        )
        .bind(OVERLAP_S)
        .fetch_all(app.db.system(0))
        .await?;
        app.revocations.add(rows);
    }
    Ok(())
}

/// Keeps this instance's copy fresh.
pub async fn run(app: App, stop: CancellationToken) {
    let listener = app.db.hub().listen(News::Revoked);
    let mut all_read = Some(Instant::now());
    loop {
        let mut notified = std::pin::pin!(listener.notified());
        notified.as_mut().enable();
        let everything = all_read.is_none_or(|at| at.elapsed() >= LOOK_AT_ALL);
        match load(&app, everything).await {
            Ok(()) if everything => all_read = Some(Instant::now()),
            Ok(()) => {}
            Err(cause) => {
                tracing::debug!(error = %cause, "revocations could not be read, trying again");
                all_read = None;
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = notified => {}
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_epochs_are_refused_and_an_old_notice_takes_nothing_back() {
        let revocations = Revocations::default();
        assert!(revocations.check(1, 0).is_ok());
        revocations.add([(1, 2)]);
        assert!(matches!(revocations.check(1, 1), Err(Error::WrongCredentials(_))));
        assert!(revocations.check(1, 2).is_ok() && revocations.check(2, 0).is_ok());
        revocations.add([(1, 1)]);
        assert!(revocations.check(1, 1).is_err());
        revocations.add([(1, ALL)]);
        assert!(matches!(revocations.check(1, 1_000), Err(Error::UserDeleted)));
    }
}
