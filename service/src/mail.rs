//! Messages to players from their runtimes, written in groups: what arrives while one group is being committed forms the
//! next. A sender is answered after its group's commit.
//!
//! What waits for a client is bounded: one that does not fetch its messages gets no more of its runtime, because a game
//! that goes on must not wait for it. Messages of the platform are not sent here and always get through.

use std::collections::HashSet;
use std::sync::OnceLock;
use std::time::Duration;

use omgservers_protocol::id::{ClientId, MessageId};
use omgservers_protocol::message::ToPlayer;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::App;
use crate::db::Shard;
use crate::error::{Error, Result};
use crate::wake::News;

/// Letters that may wait for one shard; more senders wait their turn.
const BACKLOG: usize = 4_096;
/// Letters in one group.
const GROUP_MAX: usize = 512;
/// Tries of a group before its senders are told that it failed.
const TRIES: u32 = 4;
/// Messages that wait for one client, and their bytes, beyond which a runtime's are dropped.
const WAITING_MAX: i64 = 1_024;
const WAITING_BYTES_MAX: i64 = 4 << 20;

/// What became of a letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Written, or its client is gone.
    Delivered,
    /// Too much waits for its client.
    Dropped,
    Failed,
}

struct Letter {
    client: ClientId,
    kind: &'static str,
    body: String,
    fate: oneshot::Sender<Fate>,
}

#[derive(Default)]
pub struct Mail {
    shards: OnceLock<Vec<mpsc::Sender<Letter>>>,
}

impl Mail {
    /// Writes the same message to these clients. Those that are gone are left out; of those for which too much waits
    /// already it says how many there were.
    pub async fn send(&self, app: &App, clients: &[ClientId], message: &ToPlayer) -> Result<usize> {
        let shards = self.shards.get().ok_or(Error::Unavailable("the service is starting"))?;
        let body = message.body().get().to_owned();
        let mut answers = Vec::with_capacity(clients.len());
        for client in clients {
            let (fate, answer) = oneshot::channel();
            let letter = Letter {
                client: *client,
                kind: message.kind(),
                body: body.clone(),
                fate,
            };
            let shard = app.db.shard_of(client.get());
            shards[usize::from(shard.index())]
                .send(letter)
                .await
                .map_err(|_| Error::Unavailable("the service is stopping"))?;
            answers.push(answer);
        }
        let mut dropped = 0;
        for answer in answers {
            match answer.await {
                Ok(Fate::Delivered) => {}
                Ok(Fate::Dropped) => dropped += 1,
                Ok(Fate::Failed) | Err(_) => {
                    return Err(Error::Unavailable("a message could not be written, try again"));
                }
            }
        }
        Ok(dropped)
    }
}

/// Starts a writer per shard.
pub fn start(app: &App, stop: &CancellationToken, tasks: &tokio_util::task::TaskTracker) {
    let mut senders = Vec::new();
    for shard in app.db.shards() {
        let (sender, letters) = mpsc::channel(BACKLOG);
        senders.push(sender);
        tasks.spawn(write_groups(app.clone(), shard, letters, stop.clone()));
    }
    app.mail.shards.set(senders).ok();
}

async fn write_groups(app: App, shard: Shard, mut letters: mpsc::Receiver<Letter>, stop: CancellationToken) {
    let mut group = Vec::with_capacity(GROUP_MAX);
    loop {
        tokio::select! {
            biased;
            count = letters.recv_many(&mut group, GROUP_MAX) => if count == 0 { return },
            () = stop.cancelled() => return,
        }
        let mut fates = vec![Fate::Failed; group.len()];
        for attempt in 0..TRIES {
            match write(&app, shard, &group).await {
                Ok(known) => {
                    fates = known;
                    break;
                }
                Err(cause) => {
                    tracing::warn!(error = %cause, attempt, "a group of messages was not written");
                    tokio::time::sleep(Duration::from_millis(50 << attempt)).await;
                }
            }
        }
        let dropped = fates.iter().filter(|fate| **fate == Fate::Dropped).count();
        if dropped > 0 {
            metrics::counter!("omgservers_player_messages_dropped_total", "direction" => "to")
                .increment(dropped as u64);
        }
        for (letter, fate) in group.drain(..).zip(fates) {
            letter.fate.send(fate).ok();
        }
    }
}

async fn write(app: &App, shard: Shard, group: &[Letter]) -> Result<Vec<Fate>> {
    let mut tx = app.db.begin_in(shard).await?;
    let clients: Vec<ClientId> = group.iter().map(|letter| letter.client).collect();
    let ids: Vec<MessageId> = group.iter().map(|_| app.ids.mint()).collect();
    let kinds: Vec<&str> = group.iter().map(|letter| letter.kind).collect();
    let bodies: Vec<&str> = group.iter().map(|letter| letter.body.as_str()).collect();
    // Each client's row is locked while its messages are counted and get their numbers, in the order of ids, as everywhere.
    let known: Vec<ClientId> = sqlx::query_scalar("select id from client where id = any($1) order by id for update")
        .bind(&clients)
        .fetch_all(&mut *tx)
        .await?;
    // After the first letter that does not fit, no later one of the group goes to that client: order before size.
    let written: Vec<MessageId> = sqlx::query_scalar(
        "with letter as ( \
           select client_id, id, kind, body, octet_length(body) as bytes, \
             row_number() over earlier as number, sum(octet_length(body)) over earlier as total \
           from unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[]) with ordinality as letter (client_id, id, kind, body, place) \
           window earlier as (partition by client_id order by place)), \
         waiting as ( \
           select client_id, count(*) as count, sum(bytes) as bytes from client_message where client_id = any($1) group by client_id), \
         fitting as ( \
           select letter.* from letter left join waiting using (client_id) \
           where coalesce(waiting.count, 0) + number <= $5 and coalesce(waiting.bytes, 0) + total <= $6), \
         bumped as ( \
           update client set message_seq = message_seq + many.count \
           from (select client_id, count(*) as count from fitting group by client_id) as many \
           where client.id = many.client_id returning client.id, client.message_seq - many.count as base) \
         insert into client_message (client_id, seq, id, kind, body, bytes) \
         select client_id, base + number, fitting.id, kind, body::json, bytes from fitting join bumped on bumped.id = client_id \
         returning id",
    )
    .bind(&clients)
    .bind(&ids)
    .bind(&kinds)
    .bind(&bodies)
    .bind(WAITING_MAX)
    .bind(WAITING_BYTES_MAX)
    .fetch_all(&mut *tx)
    .await?;
    let (known, written): (HashSet<_>, HashSet<_>) = (known.into_iter().collect(), written.into_iter().collect());
    let mut fates = Vec::with_capacity(group.len());
    for (client, id) in clients.iter().zip(&ids) {
        let is_written = written.contains(id);
        if is_written {
            tx.tell(News::Client(*client));
        }
        let is_dropped = !is_written && known.contains(client);
        fates.push(if is_dropped { Fate::Dropped } else { Fate::Delivered });
    }
    tx.commit().await?;
    Ok(fates)
}
