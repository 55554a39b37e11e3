//! Messages to players from their runtimes, written in groups: what arrives while one group is being committed forms the
//! next. A sender is answered after its group's commit.

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

struct Letter {
    client: ClientId,
    kind: &'static str,
    body: String,
    written: oneshot::Sender<bool>,
}

#[derive(Default)]
pub struct Mail {
    shards: OnceLock<Vec<mpsc::Sender<Letter>>>,
}

impl Mail {
    /// Writes the same message to these clients. Those that are gone are left out.
    pub async fn send(&self, app: &App, clients: &[ClientId], message: &ToPlayer) -> Result<()> {
        let shards = self.shards.get().ok_or(Error::Unavailable("the service is starting"))?;
        let body = message.body().get().to_owned();
        let mut answers = Vec::with_capacity(clients.len());
        for client in clients {
            let (written, answer) = oneshot::channel();
            let letter = Letter {
                client: *client,
                kind: message.kind(),
                body: body.clone(),
                written,
            };
            let shard = app.db.shard_of(client.get());
            shards[usize::from(shard.index())]
                .send(letter)
                .await
                .map_err(|_| Error::Unavailable("the service is stopping"))?;
            answers.push(answer);
        }
        for answer in answers {
            if answer.await != Ok(true) {
                return Err(Error::Unavailable("a message could not be written, try again"));
            }
        }
        Ok(())
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
        let mut written = false;
        for attempt in 0..TRIES {
            match write(&app, shard, &group).await {
                Ok(()) => {
                    written = true;
                    break;
                }
                Err(cause) => {
                    tracing::warn!(error = %cause, attempt, "a group of messages was not written");
                    tokio::time::sleep(Duration::from_millis(50 << attempt)).await;
                }
            }
        }
        for letter in group.drain(..) {
            letter.written.send(written).ok();
        }
    }
}

async fn write(app: &App, shard: Shard, group: &[Letter]) -> Result<()> {
    let mut tx = app.db.begin_in(shard).await?;
    let clients: Vec<ClientId> = group.iter().map(|letter| letter.client).collect();
    let ids: Vec<MessageId> = group.iter().map(|_| app.ids.mint()).collect();
    let kinds: Vec<&str> = group.iter().map(|letter| letter.kind).collect();
    let bodies: Vec<&str> = group.iter().map(|letter| letter.body.as_str()).collect();
    // Each client's row is locked while its messages get their numbers, in the order of ids, as everywhere.
    sqlx::query("select 1 from client where id = any($1) order by id for update")
        .bind(&clients)
        .execute(&mut *tx)
        .await?;
    sqlx::query(
        "with letter as ( \
           select client_id, id, kind, body, row_number() over (partition by client_id order by place) as number \
           from unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[]) with ordinality as letter (client_id, id, kind, body, place)), \
         bumped as ( \
           update client set message_seq = message_seq + many.count \
           from (select client_id, count(*) as count from letter group by client_id) as many \
           where client.id = many.client_id returning client.id, client.message_seq - many.count as base) \
         insert into client_message (client_id, seq, id, kind, body) \
         select client_id, base + number, letter.id, kind, body::json from letter join bumped on bumped.id = client_id",
    )
    .bind(&clients)
    .bind(&ids)
    .bind(&kinds)
    .bind(&bodies)
    .execute(&mut *tx)
    .await?;
    for client in clients {
        tx.tell(News::Client(client));
    }
    tx.commit().await
}
