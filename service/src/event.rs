//! Events: hints that something about one entity changed. They carry ids, never state: whoever handles one reads again.

use omgservers_protocol::admin::FailedJob;
use omgservers_protocol::call::{Page, Paging};
use time::OffsetDateTime;

use crate::App;
use crate::db::Tx;
use crate::entity::page::Walk;
use crate::entity::timestamp;
use crate::error::Result;
use crate::wake::Job;

/// Which reconciler looks at the entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A tenant, project, stage, version or deployment changed; the key is the tenant.
    Tenant,
    /// The lobbies, matches and seats of a deployment.
    Cell,
    /// Where a client should be and what it is told; in the deployment's shard, the key is the client.
    Seat,
    /// A lobby or match wants a runtime, or no longer; in the deployment's shard, the key is the venue.
    Venue,
    /// A client appeared or disappeared.
    Client,
    /// A client has messages for its runtime.
    Outgoing,
    /// A runtime's container.
    Runtime,
    /// A user's password changed, or the user is deleted.
    Account,
    /// A key was deleted; in the user's shard, the key is the API key.
    ApiKey,
    /// A run on a developer's machine is over; in the tenant's shard, the key is the run.
    LocalRun,
    /// A deployment has a new matchmaker.
    Matchmaker,
    /// A record of the audit log is not where its tenant is; the key is the record.
    Audit,
}

const KINDS: [(Kind, &str); 12] = [
    (Kind::Tenant, "tenant"),
    (Kind::Cell, "cell"),
    (Kind::Seat, "seat"),
    (Kind::Venue, "venue"),
    (Kind::Client, "client"),
    (Kind::Outgoing, "outgoing"),
    (Kind::Runtime, "runtime"),
    (Kind::Account, "account"),
    (Kind::ApiKey, "api_key"),
    (Kind::LocalRun, "local_run"),
    (Kind::Matchmaker, "matchmaker"),
    (Kind::Audit, "audit"),
];

/// Jobs of one lane never wait for those of another.
pub const LANES: usize = 2;

impl Kind {
    /// What talks to hosts may take a minute and has a lane of its own.
    pub fn lane(self) -> usize {
        usize::from(self == Self::Runtime)
    }

    pub fn as_str(self) -> &'static str {
        KINDS
            .iter()
            .find(|(kind, _)| *kind == self)
            .expect("every kind is in the table")
            .1
    }

    pub fn parse(text: &str) -> Option<Self> {
        KINDS.iter().find(|(_, name)| *name == text).map(|(kind, _)| *kind)
    }
}

/// Appends to the shard's outbox in the same transaction as the change.
pub async fn append(tx: &mut Tx, kind: Kind, key: impl Into<i64>) -> Result<()> {
    let key = key.into();
    sqlx::query("insert into event (kind, key) values ($1, $2)")
        .bind(kind.as_str())
        .bind(key)
        .execute(&mut **tx)
        .await?;
    let job = Job {
        shard: tx.shard(),
        kind,
        key,
    };
    tx.hint(job);
    Ok(())
}

/// Jobs that failed, each once however many events it has.
pub async fn list_failed(app: &App, paging: &Paging) -> Result<Page<FailedJob>> {
    type Row = (i64, String, i64, i32, Option<String>, OffsetDateTime, OffsetDateTime);
    let mut walk = Walk::new(app, paging)?;
    while let Some(part) = walk.part() {
        let mut tx = app.db.begin_in(part.shard).await?;
        let rows: Vec<Row> = sqlx::query_as(
            "select id, kind, key, attempts, error, created, not_before from event where attempts > 0 and id > $1 \
             and not exists (select 1 from event earlier where earlier.kind = event.kind and earlier.key = event.key \
               and earlier.id < event.id and earlier.attempts > 0) order by id limit $2",
        )
        .bind(part.after)
        .bind(part.limit)
        .fetch_all(&mut *tx)
        .await?;
        let job = |(id, kind, key, attempts, error, since, retry_at): Row| {
            let job = FailedJob {
                shard_index: part.shard.index(),
                kind,
                key: key.to_string(),
                attempts: attempts.unsigned_abs(),
                error: error.unwrap_or_default(),
                since: timestamp(since),
                retry_at: timestamp(retry_at),
            };
            (id, job)
        };
        walk.add(app, rows.into_iter().map(job).collect());
    }
    Ok(walk.page())
}
