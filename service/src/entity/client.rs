//! Clients: a player's connection to a deployment, and the messages to and from it.

use omgservers_protocol::Json;
use omgservers_protocol::id::{ClientId, DeploymentId, MessageId, PlayerId, RuntimeId, StageId, UserId};
use omgservers_protocol::message::{
    ConnectionUpgraded, DisconnectReason, Disconnected, FromPlayer, MatchmakerAssigned, RuntimeAssigned, ToPlayer,
    WebSocketConfig, Welcome,
};
use omgservers_protocol::w1::PlayerMessage;
use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::App;
use crate::db::{Shard, Tx};
use crate::entity::cell::SeatView;
use crate::entity::deployment::Target;
use crate::entity::timestamp;
use crate::error::{Error, Result};
use crate::event::{self, Kind};
use crate::wake::News;

/// Messages in one reply; the rest comes with the next.
const REPLY_MAX: i64 = 256;
/// Bytes in one reply, up to the message that passes it.
const REPLY_BYTES_MAX: i64 = 2 << 20;
/// Messages of a player that wait for a runtime, and their bytes; more are refused.
const OUTGOING_MAX: usize = 256;
const OUTGOING_BYTES_MAX: usize = 1 << 20;
/// Clients of one user on one stage; of more, the oldest are ended.
const CLIENTS_MAX: usize = 4;

/// A client of the stage's newest deployment.
pub async fn create(app: &App, user: UserId, target: &Target) -> Result<ClientId> {
    let id: ClientId = app.ids.mint();
    let mut tx = app.db.begin(id.get()).await?;
    sqlx::query("insert into client (id, user_id, tenant_id, stage_id, deployment_id) values ($1, $2, $3, $4, $5)")
        .bind(id)
        .bind(user)
        .bind(target.tenant)
        .bind(target.stage)
        .bind(target.deployment)
        .execute(&mut *tx)
        .await?;
    let welcome = Welcome {
        tenant_id: target.tenant,
        version_id: target.version,
        version_created: timestamp(target.version_created),
    };
    write(app, &mut tx, id, &welcome.into()).await?;
    write(
        app,
        &mut tx,
        id,
        &MatchmakerAssigned {
            matchmaker_id: target.matchmaker,
        }
        .into(),
    )
    .await?;
    event::append(&mut tx, Kind::Client, id.get()).await?;
    tx.commit().await?;

    // After the client is there, so that whoever makes the next one finds it. Should we end in between, nobody knows of this
    // one, and it goes like everybody who does not call.
    let mut tx = app.db.begin(user.get()).await?;
    let clients: Vec<ClientId> = sqlx::query_scalar(
        "insert into player (id, user_id, tenant_id, stage_id, clients) values ($1, $2, $3, $4, array[$5::bigint]) \
         on conflict on constraint player_once do update set clients = player.clients || excluded.clients returning clients",
    )
    .bind(app.ids.mint::<PlayerId>())
    .bind(user)
    .bind(target.tenant)
    .bind(target.stage)
    .bind(id)
    .fetch_one(&mut *tx)
    .await?;
    tx.commit().await?;
    if clients.len() > CLIENTS_MAX {
        end_oldest(app, user, target.stage, &clients).await?;
    }
    Ok(id)
}

/// Ends the oldest of a player's clients beyond those that may live, and forgets those that do not.
async fn end_oldest(app: &App, user: UserId, stage: StageId, clients: &[ClientId]) -> Result<()> {
    let mut living = Vec::new();
    let mut gone = Vec::new();
    for id in clients {
        let deleted: Option<(bool,)> = app.db.read_row("deleted is not null", "client", id.get()).await?;
        match deleted {
            Some((false,)) => living.push(*id),
            _ => gone.push(*id),
        }
    }
    let excess = living.len().saturating_sub(CLIENTS_MAX);
    for id in living.drain(..excess) {
        let mut tx = app.db.begin(id.get()).await?;
        // Whoever makes new ones has left it.
        delete(app, &mut tx, id, Some(DisconnectReason::ClientInactivity)).await?;
        tx.commit().await?;
        gone.push(id);
    }
    let mut tx = app.db.begin(user.get()).await?;
    sqlx::query(
        "update player set clients = coalesce((select array_agg(one order by place) \
         from unnest(clients) with ordinality as living (one, place) where one <> all($3)), '{}') \
         where user_id = $1 and stage_id = $2",
    )
    .bind(user)
    .bind(stage)
    .bind(&gone)
    .execute(&mut *tx)
    .await?;
    tx.commit().await
}

/// Appends a message of the platform in the caller's transaction; its order is taken under the client's row lock. It always
/// gets through: only what runtimes say is bounded (see [`crate::mail`]).
async fn write(app: &App, tx: &mut Tx, client: ClientId, message: &ToPlayer) -> Result<()> {
    sqlx::query(
        "with bumped as (update client set message_seq = message_seq + 1 where id = $1 returning message_seq) \
         insert into client_message (client_id, seq, id, kind, body, bytes) \
         select $1, message_seq, $2, $3, $4::text::json, octet_length($4) from bumped",
    )
    .bind(client)
    .bind(app.ids.mint::<MessageId>())
    .bind(message.kind())
    .bind(message.body().get())
    .execute(&mut **tx)
    .await?;
    tx.tell(News::Client(client));
    Ok(())
}

/// A client as its job sees it.
pub struct ClientView {
    pub user: UserId,
    pub stage: StageId,
    pub deployment: DeploymentId,
    pub runtime: Option<RuntimeId>,
    pub left_runtimes: Vec<RuntimeId>,
    pub deleted: bool,
    pub age: std::time::Duration,
}

pub async fn view(app: &App, id: ClientId) -> Result<Option<ClientView>> {
    let mut tx = app.db.begin(id.get()).await?;
    type Row = (
        UserId,
        StageId,
        DeploymentId,
        Option<RuntimeId>,
        Vec<RuntimeId>,
        bool,
        i64,
    );
    let row: Option<Row> = sqlx::query_as(
        "select user_id, stage_id, deployment_id, runtime_id, left_runtimes, deleted is not null, \
         greatest(0, extract(epoch from now() - created) * 1000)::bigint from client where id = $1",
    )
    .bind(id)
    .fetch_optional(&mut *tx)
    .await?;
    Ok(row.map(
        |(user, stage, deployment, runtime, left_runtimes, deleted, age_ms)| ClientView {
            user,
            stage,
            deployment,
            runtime,
            left_runtimes,
            deleted,
            age: std::time::Duration::from_millis(u64::try_from(age_ms).unwrap_or(0)),
        },
    ))
}

/// What became of telling a client about its seat.
pub enum Moved {
    /// The client is no more.
    Gone,
    /// It knows its place; these runtimes have yet to hear that it left.
    Told { left_runtimes: Vec<RuntimeId> },
}

/// Writes the client's new place and the message about it, unless a newer one is there.
pub async fn take_seat(app: &App, id: ClientId, seat: &SeatView) -> Result<Moved> {
    let mut tx = app.db.begin(id.get()).await?;
    let row: Option<(i64, Option<RuntimeId>, Vec<RuntimeId>, bool)> = sqlx::query_as(
        "select generation, runtime_id, left_runtimes, deleted is not null from client where id = $1 for update",
    )
    .bind(id)
    .fetch_optional(&mut *tx)
    .await?;
    let Some((generation, old, mut left_runtimes, deleted)) = row else {
        return Ok(Moved::Gone);
    };
    if deleted {
        return Ok(Moved::Gone);
    }
    if seat.told.as_deref() == Some("GONE") {
        delete(app, &mut tx, id, Some(DisconnectReason::InternalFailure)).await?;
        tx.commit().await?;
        return Ok(Moved::Gone);
    }
    let new = seat.place.as_ref().map(|place| place.runtime);
    if generation < seat.generation {
        if old != new {
            left_runtimes.extend(old);
        }
        sqlx::query("update client set generation = $2, runtime_id = $3, left_runtimes = $4 where id = $1")
            .bind(id)
            .bind(seat.generation)
            .bind(new)
            .bind(&left_runtimes)
            .execute(&mut *tx)
            .await?;
        if let Some(place) = &seat.place
            && old != new
        {
            let assigned = RuntimeAssigned {
                runtime_id: place.runtime,
                runtime_qualifier: place.qualifier,
                runtime_config: place.config.clone(),
            };
            write(app, &mut tx, id, &assigned.into()).await?;
        }
    }
    if let Some(told) = &seat.told {
        tell_status(app, &mut tx, id, told).await?;
    }
    tx.commit().await?;
    left_runtimes.retain(|runtime| Some(*runtime) != new);
    Ok(Moved::Told { left_runtimes })
}

/// Writes a status message unless it is the last thing that the client was told.
async fn tell_status(app: &App, tx: &mut Tx, id: ClientId, status: &str) -> Result<()> {
    let last: Option<(String, String)> =
        sqlx::query_as("select kind, body::text from client_message where client_id = $1 order by seq desc limit 1")
            .bind(id)
            .fetch_optional(&mut **tx)
            .await?;
    if last.is_some_and(|(kind, body)| kind == "provisioning_status" && body == status) {
        return Ok(());
    }
    let status: omgservers_protocol::message::ProvisioningStatus =
        serde_json::from_str(status).map_err(|cause| anyhow::anyhow!("a stored status is damaged: {cause}"))?;
    write(app, tx, id, &status.into()).await
}

/// The old runtimes have heard. Announces what the player said meanwhile, and looks again at a client that was deleted
/// in between.
pub async fn seat_taken(app: &App, id: ClientId, heard: &[RuntimeId]) -> Result<()> {
    let mut tx = app.db.begin(id.get()).await?;
    let row: Option<(bool, bool)> = sqlx::query_as(
        "update client set left_runtimes = coalesce((select array_agg(one) from unnest(left_runtimes) as one where one <> all($2)), '{}') \
         where id = $1 returning deleted is not null, exists (select 1 from client_outgoing where client_id = $1)",
    )
    .bind(id)
    .bind(heard)
    .fetch_optional(&mut *tx)
    .await?;
    match row {
        Some((true, _)) => event::append(&mut tx, Kind::Client, id.get()).await?,
        Some((false, true)) => event::append(&mut tx, Kind::Outgoing, id.get()).await?,
        _ => {}
    }
    tx.commit().await
}

/// Every runtime has heard that the deleted client left.
pub async fn left_all(app: &App, id: ClientId) -> Result<()> {
    let mut tx = app.db.begin(id.get()).await?;
    sqlx::query("update client set runtime_id = null, left_runtimes = '{}' where id = $1 and deleted is not null")
        .bind(id)
        .execute(&mut *tx)
        .await?;
    tx.commit().await
}

/// Marks the client deleted, telling it why unless it was kicked.
async fn delete(app: &App, tx: &mut Tx, id: ClientId, reason: Option<DisconnectReason>) -> Result<bool> {
    let done = sqlx::query("update client set deleted = now() where id = $1 and deleted is null")
        .bind(id)
        .execute(&mut **tx)
        .await?;
    if done.rows_affected() == 0 {
        return Ok(false);
    }
    if let Some(reason) = reason {
        write(app, tx, id, &Disconnected { reason }.into()).await?;
    }
    event::append(tx, Kind::Client, id.get()).await?;
    Ok(true)
}

/// A lobby threw the client out.
pub async fn kick(app: &App, id: ClientId) -> Result<()> {
    let mut tx = app.db.begin(id.get()).await?;
    delete(app, &mut tx, id, None).await?;
    tx.commit().await
}

/// The deployment is gone, and so is the client.
pub async fn disconnect(app: &App, id: ClientId) -> Result<()> {
    let mut tx = app.db.begin(id.get()).await?;
    delete(app, &mut tx, id, Some(DisconnectReason::InternalFailure)).await?;
    tx.commit().await
}

/// Deletes clients of a shard that have not called for too long.
pub async fn delete_idle(app: &App, shard: Shard, idle_s: u64) -> Result<()> {
    let mut tx = app.db.begin_in(shard).await?;
    let ids: Vec<ClientId> = sqlx::query_scalar(
        "select id from client where deleted is null and last_activity < now() - $1 * interval '1 second' limit 500 for update skip locked",
    )
    .bind(i64::try_from(idle_s).unwrap_or(i64::MAX))
    .fetch_all(&mut *tx)
    .await?;
    for id in ids {
        // Activity that is not written down yet counts.
        if app.activity.client_is_active(id) {
            continue;
        }
        delete(app, &mut tx, id, Some(DisconnectReason::ClientInactivity)).await?;
    }
    tx.commit().await
}

/// What a player's interchange brings.
pub struct Exchange<'a> {
    pub client: ClientId,
    pub user: UserId,
    pub outgoing: &'a [FromPlayer],
    pub consumed: &'a [MessageId],
}

/// Takes what the player says, forgets what it acknowledges, and returns what it has not heard. `None`: there was no room for
/// everything that the player says. What was kept is known by its number when it is sent again.
pub async fn interchange(app: &App, exchange: &Exchange<'_>) -> Result<Option<Vec<PlayerMessage>>> {
    let id = exchange.client;
    let mut tx = app.db.begin(id.get()).await?;
    let row: Option<(UserId, Option<RuntimeId>, bool)> =
        sqlx::query_as("select user_id, runtime_id, deleted is not null from client where id = $1")
            .bind(id)
            .fetch_optional(&mut *tx)
            .await?;
    let (owner, runtime, deleted) = row.ok_or_else(|| Error::not_found("client", id))?;
    if owner != exchange.user {
        return Err(Error::OthersClient);
    }
    if !exchange.consumed.is_empty() {
        sqlx::query("delete from client_message where client_id = $1 and id = any($2)")
            .bind(id)
            .bind(exchange.consumed)
            .execute(&mut *tx)
            .await?;
    }
    if !deleted {
        app.activity.touch_client(id);
        if !exchange.outgoing.is_empty() && !accept(&mut tx, id, exchange.outgoing).await? {
            tx.commit().await?;
            return Ok(None);
        }
    }
    let rows: Vec<(MessageId, String, String)> = sqlx::query_as(
        "select id, kind, body::text from ( \
           select id, kind, body, seq, sum(bytes) over (order by seq) - bytes as before \
           from (select id, kind, body, bytes, seq from client_message where client_id = $1 order by seq limit $2) as first \
         ) as counted where before < $3 order by seq",
    )
    .bind(id)
    .bind(REPLY_MAX)
    .bind(REPLY_BYTES_MAX)
    .fetch_all(&mut *tx)
    .await?;
    let (messages, stale) = render(app, id, runtime, rows);
    if !stale.is_empty() {
        sqlx::query("delete from client_message where client_id = $1 and id = any($2)")
            .bind(id)
            .bind(&stale)
            .execute(&mut *tx)
            .await?;
    }
    tx.commit().await?;
    Ok(Some(messages))
}

/// The dialect W1 of stored messages. An upgrade is held back until the assignment before it was acknowledged: an old
/// SDK that hears of both at once closes the socket that it has just opened. Upgrades for a runtime that the client has
/// left are stale: there is nothing to connect to.
fn render(
    app: &App,
    client: ClientId,
    runtime: Option<RuntimeId>,
    rows: Vec<(MessageId, String, String)>,
) -> (Vec<PlayerMessage>, Vec<MessageId>) {
    let mut messages = Vec::with_capacity(rows.len());
    let mut stale = Vec::new();
    let mut assignment_before = false;
    for (id, kind, body) in rows {
        let Some(qualifier) = ToPlayer::qualifier_of(&kind) else {
            continue;
        };
        assignment_before |= kind == "runtime_assigned";
        let body = if kind == "connection_upgraded" {
            if assignment_before {
                break;
            }
            match upgrade(app, client, runtime, &body) {
                Some(body) => body,
                None => {
                    stale.push(id);
                    continue;
                }
            }
        } else {
            let Ok(body) = serde_json::value::RawValue::from_string(body) else {
                continue;
            };
            body
        };
        messages.push(PlayerMessage {
            id,
            qualifier: qualifier.to_owned(),
            body,
        });
    }
    (messages, stale)
}

fn upgrade(app: &App, client: ClientId, runtime: Option<RuntimeId>, body: &str) -> Option<Json> {
    let stored: ConnectionUpgraded = serde_json::from_str(body).ok()?;
    let asked_by = stored.runtime_id.filter(|asked_by| Some(*asked_by) == runtime)?;
    let ws_token = app.tokens.for_player_socket(client, asked_by);
    let message = ConnectionUpgraded {
        web_socket_config: Some(WebSocketConfig { ws_token }),
        runtime_id: None,
        ..stored
    };
    Some(ToPlayer::from(message).body())
}

/// Keeps messages of the player until the runtime's shard has them. One that was sent before is recognised by its number.
/// Says whether there was room for all of them.
async fn accept(tx: &mut Tx, id: ClientId, outgoing: &[FromPlayer]) -> Result<bool> {
    let (number, seq): (i64, i64) =
        sqlx::query_as("select outgoing_number, outgoing_seq from client where id = $1 for update")
            .bind(id)
            .fetch_one(&mut **tx)
            .await?;
    let (rows, bytes): (i64, i64) =
        sqlx::query_as("select count(*), coalesce(sum(bytes), 0) from client_outgoing where client_id = $1")
            .bind(id)
            .fetch_one(&mut **tx)
            .await?;
    let room = Room {
        rows: OUTGOING_MAX.saturating_sub(usize::try_from(rows).unwrap_or(0)),
        bytes: OUTGOING_BYTES_MAX.saturating_sub(usize::try_from(bytes).unwrap_or(0)),
    };
    let Kept {
        messages,
        number,
        refused,
    } = keep(room, number, outgoing)?;
    if refused > 0 {
        metrics::counter!("omgservers_player_messages_dropped_total", "direction" => "from").increment(refused);
    }
    if messages.is_empty() {
        return Ok(refused == 0);
    }
    sqlx::query(
        "insert into client_outgoing (client_id, seq, data, bytes) \
         select $1, $2 + place, data::json, octet_length(data) from unnest($3::text[]) with ordinality as new (data, place)",
    )
    .bind(id)
    .bind(seq)
    .bind(&messages)
    .execute(&mut **tx)
    .await?;
    sqlx::query("update client set outgoing_number = $2, outgoing_seq = $3 where id = $1")
        .bind(id)
        .bind(number)
        .bind(seq + i64::try_from(messages.len()).unwrap_or(0))
        .execute(&mut **tx)
        .await?;
    event::append(tx, Kind::Outgoing, id.get()).await?;
    Ok(refused == 0)
}

/// What a queue still takes.
#[derive(Debug, Clone, Copy)]
struct Room {
    rows: usize,
    bytes: usize,
}

struct Kept<'a> {
    messages: Vec<&'a str>,
    /// The newest number that is known now.
    number: i64,
    refused: u64,
}

/// Which of these messages are new and fit: the first of them. Without its number a message that is sent again cannot be
/// told from a new one, so a batch with such messages is kept whole or not at all.
fn keep(room: Room, mut number: i64, outgoing: &[FromPlayer]) -> Result<Kept<'_>> {
    let before = number;
    let mut messages: Vec<&str> = Vec::new();
    let (mut bytes, mut refused) = (0, 0);
    for message in outgoing {
        if message.number.is_some_and(|known| known <= number) {
            continue;
        }
        let data = message.data.get();
        if refused > 0 || messages.len() == room.rows || bytes + data.len() > room.bytes {
            refused += 1;
            continue;
        }
        bytes += data.len();
        number = message.number.unwrap_or(number);
        messages.push(data);
    }
    if refused > 0 && outgoing.iter().any(|message| message.number.is_none()) {
        let all: usize = outgoing.iter().map(|message| message.data.get().len()).sum();
        if outgoing.len() > OUTGOING_MAX || all > OUTGOING_BYTES_MAX {
            return Err(Error::Invalid(format!(
                "more than {OUTGOING_MAX} messages or {OUTGOING_BYTES_MAX} bytes at once need numbers as their ids"
            )));
        }
        refused += messages.len() as u64;
        messages.clear();
        number = before;
    }
    Ok(Kept {
        messages,
        number,
        refused,
    })
}

/// What the player said and nobody has heard yet, with the runtime that it is for.
pub async fn outgoing(app: &App, id: ClientId) -> Result<Option<(RuntimeId, Vec<(i64, String)>)>> {
    let mut tx = app.db.begin(id.get()).await?;
    let runtime: Option<Option<RuntimeId>> =
        sqlx::query_scalar("select runtime_id from client where id = $1 and deleted is null")
            .bind(id)
            .fetch_optional(&mut *tx)
            .await?;
    let Some(Some(runtime)) = runtime else { return Ok(None) };
    let rows: Vec<(i64, String)> =
        sqlx::query_as("select seq, data::text from client_outgoing where client_id = $1 order by seq")
            .bind(id)
            .fetch_all(&mut *tx)
            .await?;
    Ok((!rows.is_empty()).then_some((runtime, rows)))
}

/// The runtime's shard has them.
pub async fn forwarded(app: &App, id: ClientId, up_to: i64) -> Result<()> {
    let mut tx = app.db.begin(id.get()).await?;
    sqlx::query("delete from client_outgoing where client_id = $1 and seq <= $2")
        .bind(id)
        .bind(up_to)
        .execute(&mut *tx)
        .await?;
    tx.commit().await
}

/// The runtime that a client of this user is in now.
pub async fn current_runtime(app: &App, user: UserId, id: ClientId) -> Result<RuntimeId> {
    let mut tx = app.db.begin(id.get()).await?;
    let row: Option<(UserId, Option<RuntimeId>, Option<OffsetDateTime>)> =
        sqlx::query_as("select user_id, runtime_id, deleted from client where id = $1")
            .bind(id)
            .fetch_optional(&mut *tx)
            .await?;
    let (owner, runtime, deleted) = row.ok_or_else(|| Error::not_found("client", id))?;
    if owner != user {
        return Err(Error::OthersClient);
    }
    runtime.filter(|_| deleted.is_none()).ok_or(Error::RuntimeGone)
}

pub async fn profile(app: &App, user: UserId, stage: StageId) -> Result<Json> {
    let mut tx = app.db.begin(user.get()).await?;
    let profile: Option<String> =
        sqlx::query_scalar("select profile::text from player where user_id = $1 and stage_id = $2")
            .bind(user)
            .bind(stage)
            .fetch_optional(&mut *tx)
            .await?;
    let stored = profile.and_then(|text| serde_json::value::RawValue::from_string(text).ok());
    Ok(stored.unwrap_or_else(omgservers_protocol::empty_json))
}

pub async fn set_profile(app: &App, user: UserId, stage: StageId, profile: &Json) -> Result<()> {
    // Lua writes an empty table as `[]`; games rely on an object.
    let text = match profile.get().trim() {
        "null" | "[]" => "{}",
        text => text,
    };
    let mut tx = app.db.begin(user.get()).await?;
    let done = sqlx::query("update player set profile = $3::text::json where user_id = $1 and stage_id = $2")
        .bind(user)
        .bind(stage)
        .bind(text)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    // It is written a moment after its first client.
    if done.rows_affected() == 0 {
        return Err(Error::not_found("player", user));
    }
    Ok(())
}

/// Forgets who played on these stages, a batch of them. Says whether there may be more.
pub async fn forget_players(app: &App, shard: Shard, stages: &[StageId], limit: i64) -> Result<bool> {
    let mut tx = app.db.begin_in(shard).await?;
    let done = sqlx::query("delete from player where id in (select id from player where stage_id = any($1) limit $2)")
        .bind(stages)
        .bind(limit)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(done.rows_affected() == limit.unsigned_abs())
}

/// Really deletes clients whose life is over and whose last messages had time to be fetched.
pub async fn purge(db: &mut PgConnection, retention_s: i64) -> Result<()> {
    sqlx::query(
        "delete from client where id in (select id from client where deleted < now() - $1 * interval '1 second' limit 500)",
    )
    .bind(retention_s)
    .execute(db)
    .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(number: Option<i64>, bytes: usize) -> FromPlayer {
        FromPlayer {
            number,
            data: serde_json::value::to_raw_value(&"x".repeat(bytes - 2)).unwrap(),
        }
    }

    #[test]
    fn what_does_not_fit_is_not_known_and_what_is_known_is_not_kept_twice() {
        let batch: Vec<_> = (0..5).map(|number| message(Some(number), 10)).collect();
        for (rows, bytes, known, kept, newest) in [
            (9, 99, -1, 5, 4),
            (3, 99, -1, 3, 2),
            (9, 39, -1, 3, 2),
            (3, 99, 2, 2, 4),
            (1, 99, 2, 1, 3),
            (0, 99, 2, 0, 2),
            (0, 99, 4, 0, 4),
        ] {
            let all = keep(Room { rows, bytes }, known, &batch).unwrap();
            assert_eq!(
                (all.messages.len(), all.number),
                (kept, newest),
                "{rows} {bytes} {known}"
            );
            assert_eq!(all.refused as i64, 4 - newest, "{rows} {bytes} {known}");
        }
    }

    #[test]
    fn a_small_message_does_not_overtake_a_large_one_that_does_not_fit() {
        let batch = [message(Some(0), 50), message(Some(1), 10)];
        let all = keep(Room { rows: 9, bytes: 20 }, -1, &batch).unwrap();
        assert_eq!((all.messages.len(), all.number, all.refused), (0, -1, 2));
    }

    #[test]
    fn a_batch_without_numbers_is_kept_whole_or_not_at_all() {
        let batch = [message(Some(7), 10), message(None, 10)];
        for (rows, kept, refused) in [(2, 2, 0), (1, 0, 2)] {
            let all = keep(Room { rows, bytes: 99 }, -1, &batch).unwrap();
            assert_eq!((all.messages.len(), all.refused), (kept, refused));
            assert_eq!(all.number, if kept > 0 { 7 } else { -1 });
        }
        let many: Vec<_> = (0..=OUTGOING_MAX).map(|_| message(None, 10)).collect();
        assert!(
            keep(
                Room {
                    rows: 256,
                    bytes: 99_999
                },
                -1,
                &many
            )
            .is_err()
        );
    }
}
