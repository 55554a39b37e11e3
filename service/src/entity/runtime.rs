//! Runtimes: one running game server each, its commands and who is in it.

use std::collections::HashMap;

use omgservers_protocol::Json;
use omgservers_protocol::id::{
    ClientId, CommandId, DeploymentId, HostId, LocalRunId, MatchId, PoolId, ProjectId, RuntimeId, StageId, TenantId,
    UserId, VersionId,
};
use omgservers_protocol::message::{AddClient, AddMatchClient, DeleteClient, HandleMessage, Init, ToRuntime};
use omgservers_protocol::runtime::RuntimeTokens;
use omgservers_protocol::text::Text;
use omgservers_protocol::w1::RuntimeCommand;
use time::OffsetDateTime;

use crate::address::Address;
use crate::db::{Shard, Tx};
use crate::entity::cell::{SeatView, WantedRuntime};
use crate::entity::stage::Secrets;
use crate::entity::{stage, timestamp, version};
use crate::error::{Error, Result};
use crate::event::{self, Kind};
use crate::wake::News;
use crate::{App, attempts, auth};

/// Commands in one reply; the rest comes with the next.
const REPLY_MAX: i64 = 256;
/// Bytes in one reply, up to the command that passes it.
const REPLY_BYTES_MAX: i64 = 2 << 20;
/// Commands that wait for a runtime, and their bytes, beyond which messages of players stay where they are.
const WAITING_MAX: i64 = 1_024;
const WAITING_BYTES_MAX: i64 = 8 << 20;
/// A runtime for which so much waits takes nothing: it has ended, and its players are placed anew.
const STUCK_MAX: i64 = 8 * WAITING_MAX;
const STUCK_BYTES_MAX: i64 = 8 * WAITING_BYTES_MAX;
/// Clients that are told at a time that there is room again.
const WOKEN_MAX: i64 = 64;

/// Life of a runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Needs a host.
    Wanted,
    /// Has a host, is being started there.
    Placed,
    /// Its container runs.
    Started,
    /// It called and takes players.
    Ready,
    /// Its container died, would not start or fell silent.
    Ended,
}

impl State {
    fn parse(text: &str) -> Self {
        match text {
            "WANTED" => Self::Wanted,
            "PLACED" => Self::Placed,
            "STARTED" => Self::Started,
            "READY" => Self::Ready,
            _ => Self::Ended,
        }
    }
}

/// Writes the runtime that a venue wants, with its first command. Doing it twice is doing it once.
pub async fn create(app: &App, wanted: &WantedRuntime) -> Result<()> {
    let image = wanted.image.as_deref().unwrap_or_default();
    let mut tx = app.db.begin(wanted.id.get()).await?;
    let done = sqlx::query(
        "insert into runtime (id, tenant_id, project_id, stage_id, version_id, deployment_id, venue_id, qualifier, config, image, cpu_limit, memory_limit, state, reason) \
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9::text::json, $10, $11, $12, $13, $14) on conflict (id) do nothing",
    )
    .bind(wanted.id)
    .bind(wanted.tenant)
    .bind(wanted.project)
    .bind(wanted.stage)
    .bind(wanted.version)
    .bind(wanted.deployment)
    .bind(wanted.venue)
    .bind(wanted.qualifier.as_str())
    .bind(version::to_text(&wanted.config))
    .bind(image)
    .bind(i32::try_from(wanted.cpu_limit).unwrap_or(i32::MAX))
    .bind(i32::try_from(wanted.memory_limit).unwrap_or(i32::MAX))
    .bind(if image.is_empty() { "ENDED" } else { "WANTED" })
    .bind(image.is_empty().then(|| format!("the version has no image for a {}", wanted.qualifier.as_str().to_lowercase())))
    .execute(&mut *tx)
    .await?;
    if done.rows_affected() > 0 {
        append(
            app,
            &mut tx,
            wanted.id,
            &[Init {
                runtime_config: wanted.config.clone(),
            }
            .into()],
        )
        .await?;
        event::append(&mut tx, Kind::Runtime, wanted.id.get()).await?;
    }
    tx.commit().await
}

/// Appends commands in the caller's transaction; their order is taken under the runtime's row lock.
async fn append(app: &App, tx: &mut Tx, runtime: RuntimeId, commands: &[ToRuntime]) -> Result<()> {
    let ids: Vec<CommandId> = commands.iter().map(|_| app.ids.mint()).collect();
    let kinds: Vec<&str> = commands.iter().map(ToRuntime::kind).collect();
    let bodies: Vec<String> = commands.iter().map(|command| command.body().get().to_owned()).collect();
    sqlx::query(
        "with bumped as (update runtime set command_seq = command_seq + $5 where id = $1 returning command_seq - $5 as base) \
         insert into runtime_command (runtime_id, seq, id, kind, body, bytes) \
         select $1, base + place, new.id, new.kind, new.body::json, octet_length(new.body) \
         from bumped, unnest($2::bigint[], $3::text[], $4::text[]) with ordinality as new (id, kind, body, place)",
    )
    .bind(runtime)
    .bind(&ids)
    .bind(&kinds)
    .bind(&bodies)
    .bind(i64::try_from(commands.len()).unwrap_or(0))
    .execute(&mut **tx)
    .await?;
    tx.tell(News::Runtime(runtime));
    Ok(())
}

/// A runtime as its job sees it.
#[derive(sqlx::FromRow)]
pub struct RuntimeView {
    pub id: RuntimeId,
    pub tenant_id: TenantId,
    pub project_id: ProjectId,
    pub stage_id: StageId,
    pub version_id: VersionId,
    pub deployment_id: DeploymentId,
    pub venue_id: MatchId,
    pub qualifier: String,
    pub image: String,
    pub cpu_limit: i32,
    pub memory_limit: i32,
    state: String,
    pub reason: Option<String>,
    pub generation: i64,
    pub attempts: i32,
    pub pool_id: Option<PoolId>,
    pub host_id: Option<HostId>,
    /// Set when it runs on a developer's machine.
    pub run_id: Option<LocalRunId>,
    pub is_deleted: bool,
}

impl RuntimeView {
    pub fn state(&self) -> State {
        State::parse(&self.state)
    }
}

pub async fn view(app: &App, id: RuntimeId) -> Result<Option<RuntimeView>> {
    let mut tx = app.db.begin(id.get()).await?;
    Ok(sqlx::query_as(
        "select id, tenant_id, project_id, stage_id, version_id, deployment_id, venue_id, qualifier, image, cpu_limit, memory_limit, \
         state, reason, generation, attempts, pool_id, host_id, run_id, deleted is not null as is_deleted from runtime where id = $1",
    )
    .bind(id)
    .fetch_optional(&mut *tx)
    .await?)
}

/// A host was found.
pub async fn placed(app: &App, id: RuntimeId, pool: PoolId, host: HostId) -> Result<()> {
    let mut tx = app.db.begin(id.get()).await?;
    sqlx::query("update runtime set state = 'PLACED', pool_id = $2, host_id = $3 where id = $1 and state = 'WANTED' and deleted is null")
        .bind(id)
        .bind(pool)
        .bind(host)
        .execute(&mut *tx)
        .await?;
    tx.commit().await
}

/// A developer's machine takes it.
pub async fn placed_locally(app: &App, id: RuntimeId, run: LocalRunId) -> Result<()> {
    let mut tx = app.db.begin(id.get()).await?;
    sqlx::query(
        "update runtime set state = 'PLACED', run_id = $2 where id = $1 and state = 'WANTED' and deleted is null",
    )
    .bind(id)
    .bind(run)
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    app.db.tell(News::LocalRun(run));
    Ok(())
}

/// What a start finds in its environment: the stage's variables, and the platform's own, which win.
pub async fn environment(
    app: &App,
    view: &RuntimeView,
    password: String,
    service_url: &str,
    secrets: Secrets,
) -> Result<Vec<(String, String)>> {
    let mut variables = stage::environment(app, view.tenant_id, view.stage_id, secrets).await?;
    let own = [
        ("OMGSERVERS_RUNTIME_ID", view.id.to_string()),
        ("OMGSERVERS_PASSWORD", password),
        ("OMGSERVERS_RUNTIME_QUALIFIER", view.qualifier.clone()),
        ("OMGSERVERS_QUALIFIER", view.qualifier.clone()),
        ("OMGSERVERS_SERVICE_URL", service_url.to_owned()),
    ];
    variables.extend(own.map(|(name, value)| (name.to_owned(), value)));
    Ok(variables)
}

/// A start begins: a new generation with a new password, of which only the hash is kept.
pub async fn starting(app: &App, id: RuntimeId) -> Result<Option<(i64, String)>> {
    let password = auth::generate_password();
    let mut tx = app.db.begin(id.get()).await?;
    let generation: Option<i64> = sqlx::query_scalar(
        "update runtime set generation = generation + 1, attempts = attempts + 1, password_hash = $2, last_activity = now() \
         where id = $1 and state = 'PLACED' and deleted is null returning generation",
    )
    .bind(id)
    .bind(auth::hash_generated(&password))
    .fetch_optional(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(generation.map(|generation| (generation, password)))
}

/// The container runs; the runtime may even have called already.
pub async fn started(app: &App, id: RuntimeId, generation: i64) -> Result<()> {
    let mut tx = app.db.begin(id.get()).await?;
    sqlx::query("update runtime set state = 'STARTED', last_activity = now() where id = $1 and generation = $2 and state = 'PLACED'")
        .bind(id)
        .bind(generation)
        .execute(&mut *tx)
        .await?;
    tx.commit().await
}

/// The host could not take it: another one may.
pub async fn unplaced(app: &App, id: RuntimeId) -> Result<()> {
    let mut tx = app.db.begin(id.get()).await?;
    sqlx::query("update runtime set state = 'WANTED', host_id = null where id = $1 and state = 'PLACED'")
        .bind(id)
        .execute(&mut *tx)
        .await?;
    tx.commit().await
}

/// It ended, if it is still the start that the news is about.
pub async fn ended(app: &App, id: RuntimeId, generation: i64, reason: &str) -> Result<bool> {
    let mut tx = app.db.begin(id.get()).await?;
    let done = sqlx::query(
        "update runtime set state = 'ENDED', reason = $3 where id = $1 and generation = $2 and state <> 'ENDED' and deleted is null",
    )
    .bind(id)
    .bind(generation)
    .bind(reason)
    .execute(&mut *tx)
    .await?;
    if done.rows_affected() > 0 {
        event::append(&mut tx, Kind::Runtime, id.get()).await?;
    }
    tx.commit().await?;
    Ok(done.rows_affected() > 0)
}

/// Nobody wants it any more.
pub async fn delete(app: &App, id: RuntimeId) -> Result<bool> {
    let mut tx = app.db.begin(id.get()).await?;
    let found: Option<bool> = sqlx::query_scalar("select deleted is not null from runtime where id = $1 for update")
        .bind(id)
        .fetch_optional(&mut *tx)
        .await?;
    if found == Some(false) {
        sqlx::query("update runtime set deleted = now() where id = $1")
            .bind(id)
            .execute(&mut *tx)
            .await?;
        event::append(&mut tx, Kind::Runtime, id.get()).await?;
        tx.tell(News::Runtime(id));
    }
    tx.commit().await?;
    Ok(found.is_some())
}

/// Its container is gone: so is the row. The venue is told in the next step.
pub async fn forget(app: &App, id: RuntimeId) -> Result<()> {
    let mut tx = app.db.begin(id.get()).await?;
    sqlx::query("delete from runtime where id = $1 and deleted is not null")
        .bind(id)
        .execute(&mut *tx)
        .await?;
    tx.commit().await
}

/// Runtimes of a shard that fell silent, with the start they belong to.
pub async fn silent(app: &App, shard: Shard, idle_s: u64, start_s: u64) -> Result<Vec<(RuntimeId, i64)>> {
    let mut tx = app.db.begin_in(shard).await?;
    let rows: Vec<(RuntimeId, i64)> = sqlx::query_as(
        "select id, generation from runtime where deleted is null and \
         ((state = 'READY' and last_activity < now() - $1 * interval '1 second') or \
          (state = 'STARTED' and last_activity < now() - $2 * interval '1 second')) limit 500",
    )
    .bind(i64::try_from(idle_s).unwrap_or(i64::MAX))
    .bind(i64::try_from(start_s).unwrap_or(i64::MAX))
    .fetch_all(&mut *tx)
    .await?;
    Ok(rows
        .into_iter()
        .filter(|(id, _)| !app.activity.runtime_is_active(*id))
        .collect())
}

/// What should run on a host: every start of a shard that is there.
pub async fn on_host(app: &App, shard: Shard, host: HostId) -> Result<Vec<(RuntimeId, i64)>> {
    let mut tx = app.db.begin_in(shard).await?;
    Ok(sqlx::query_as(
        "select id, generation from runtime where host_id = $1 and deleted is null and state in ('STARTED', 'READY')",
    )
    .bind(host)
    .fetch_all(&mut *tx)
    .await?)
}

/// Tokens for the right password.
pub async fn log_in(app: &App, from: Address, id: RuntimeId, password: &Text) -> Result<RuntimeTokens> {
    let row: Option<(Option<String>, i64)> = {
        let mut tx = app.db.begin(id.get()).await?;
        sqlx::query_as("select password_hash, generation from runtime where id = $1 and deleted is null")
            .bind(id)
            .fetch_optional(&mut *tx)
            .await?
    };
    let (hash, generation) = row
        .and_then(|(hash, generation)| Some((hash?, generation)))
        .ok_or_else(|| Error::not_found("runtime", id))?;
    attempts::check_password(app, id.get(), from, password.as_str(), &hash).await?;
    Ok(RuntimeTokens {
        api_token: app.tokens.for_runtime(id, generation),
        ws_token: app.tokens.for_runtime_socket(id),
    })
}

/// What a runtime's commands need to know of it.
pub struct Caller {
    pub id: RuntimeId,
    pub deployment: DeploymentId,
    pub venue: MatchId,
    pub is_lobby: bool,
}

/// Refuses a token that is not of the runtime's newest start. One from before tokens told their start is good for the
/// first.
fn check_start(token: i64, newest: i64) -> Result<()> {
    if token == newest || (token == 0 && newest == 1) {
        return Ok(());
    }
    Err(Error::WrongCredentials(
        "the token is of an earlier start of the runtime",
    ))
}

/// The runtime that calls, unless it is gone. `start` is that of its token.
pub async fn caller(app: &App, id: RuntimeId, start: i64) -> Result<Caller> {
    let mut tx = app.db.begin(id.get()).await?;
    let row: Option<(DeploymentId, MatchId, String, i64)> = sqlx::query_as(
        "select deployment_id, venue_id, qualifier, generation from runtime \
         where id = $1 and deleted is null and state <> 'ENDED'",
    )
    .bind(id)
    .fetch_optional(&mut *tx)
    .await?;
    let (deployment, venue, qualifier, generation) = row.ok_or(Error::RuntimeGone)?;
    check_start(start, generation)?;
    Ok(Caller {
        id,
        deployment,
        venue,
        is_lobby: qualifier == "LOBBY",
    })
}

/// Forgets what was acknowledged and returns what was not heard. The first one makes the runtime ready. `start` is that of
/// the caller's token.
pub async fn interchange(
    app: &App,
    id: RuntimeId,
    start: i64,
    consumed: &[CommandId],
    ready: bool,
) -> Result<Vec<RuntimeCommand>> {
    let mut tx = app.db.begin(id.get()).await?;
    let row: Option<(String, bool, i64, bool)> = sqlx::query_as(
        "select state, deleted is not null, generation, exists (select 1 from runtime_assignment \
         where runtime_id = $1 and waiting_since is not null) from runtime where id = $1",
    )
    .bind(id)
    .fetch_optional(&mut *tx)
    .await?;
    let (state, deleted, generation, somebody_waits) = row.ok_or(Error::RuntimeGone)?;
    if deleted || State::parse(&state) == State::Ended {
        return Err(Error::RuntimeGone);
    }
    check_start(start, generation)?;
    app.activity.touch_runtime(id);
    if ready && State::parse(&state) != State::Ready {
        let done = sqlx::query(
            "update runtime set state = 'READY', last_activity = now() where id = $1 and state in ('PLACED', 'STARTED') and deleted is null",
        )
        .bind(id)
        .execute(&mut *tx)
        .await?;
        if done.rows_affected() > 0 {
            event::append(&mut tx, Kind::Runtime, id.get()).await?;
        }
    }
    if !consumed.is_empty() {
        sqlx::query("delete from runtime_command where runtime_id = $1 and id = any($2)")
            .bind(id)
            .bind(consumed)
            .execute(&mut *tx)
            .await?;
    }
    let rows: Vec<(CommandId, String, String, OffsetDateTime)> = sqlx::query_as(
        "select id, kind, body::text, created from ( \
           select id, kind, body, created, seq, sum(bytes) over (order by seq) - bytes as before \
           from (select id, kind, body, created, bytes, seq from runtime_command where runtime_id = $1 order by seq limit $2) as first \
         ) as counted where before < $3 order by seq",
    )
    .bind(id)
    .bind(REPLY_MAX)
    .bind(REPLY_BYTES_MAX)
    .fetch_all(&mut *tx)
    .await?;
    tx.commit().await?;
    // Whoever begins to wait at this moment is found by one of the next calls: a full queue is taken in several. And where
    // nothing is left to take, somebody made room and ended before it said so.
    if somebody_waits
        && (!consumed.is_empty() || rows.is_empty())
        && let Err(cause) = wake_waiting(app, id).await
    {
        tracing::warn!(runtime.id = %id, error = %cause, "players whose messages wait were not told yet");
    }
    let commands = rows.into_iter().filter_map(|(command, kind, body, created)| {
        let created = timestamp(created);
        Some(RuntimeCommand {
            id: command,
            idempotency_key: command.to_string(),
            runtime_id: id,
            modified: created.clone(),
            created,
            qualifier: ToRuntime::qualifier_of(&kind)?.to_owned(),
            body: serde_json::value::RawValue::from_string(body).ok()?,
            deleted: false,
        })
    });
    Ok(commands.collect())
}

/// Tells clients whose messages wait that there is room again, those who wait longest first. Each stops to wait when all of
/// its messages are here.
async fn wake_waiting(app: &App, id: RuntimeId) -> Result<()> {
    let waiting: Vec<ClientId> = {
        let mut tx = app.db.begin(id.get()).await?;
        sqlx::query_scalar(
            "select client_id from runtime_assignment where runtime_id = $1 and waiting_since is not null \
             order by waiting_since limit $2",
        )
        .bind(id)
        .bind(WOKEN_MAX)
        .fetch_all(&mut *tx)
        .await?
    };
    let mut shards: HashMap<Shard, Vec<ClientId>> = HashMap::new();
    for client in waiting {
        shards.entry(app.db.shard_of(client.get())).or_default().push(client);
    }
    for (shard, clients) in shards {
        let mut tx = app.db.begin_in(shard).await?;
        for client in clients {
            event::append(&mut tx, Kind::Outgoing, client.get()).await?;
        }
        tx.commit().await?;
    }
    Ok(())
}

/// Writes a client into its new runtime, with the command about it, unless a newer place is known there.
pub async fn add_client(app: &App, client: ClientId, seat: &SeatView, profile: Json) -> Result<()> {
    let Some(place) = &seat.place else { return Ok(()) };
    let mut tx = app.db.begin(place.runtime.get()).await?;
    // Counted by what was there before the lock: near enough for a bound that nobody should come near.
    let waiting: Option<(i64, i64)> = sqlx::query_as(
        "select (select count(*) from runtime_command where runtime_id = $1), \
           (select coalesce(sum(bytes), 0) from runtime_command where runtime_id = $1) \
         from runtime where id = $1 and deleted is null and state <> 'ENDED' for update",
    )
    .bind(place.runtime)
    .fetch_optional(&mut *tx)
    .await?;
    let Some((rows, bytes)) = waiting else { return Ok(()) };
    if rows >= STUCK_MAX || bytes >= STUCK_BYTES_MAX {
        tracing::warn!(runtime.id = %place.runtime, commands = rows, bytes, "a runtime takes no commands");
        sqlx::query("update runtime set state = 'ENDED', reason = 'the game server took no commands' where id = $1")
            .bind(place.runtime)
            .execute(&mut *tx)
            .await?;
        event::append(&mut tx, Kind::Runtime, place.runtime.get()).await?;
        return tx.commit().await;
    }
    let done = sqlx::query(
        "insert into runtime_assignment (runtime_id, client_id, user_id, stage_id, generation) values ($1, $2, $3, $4, $5) \
         on conflict (runtime_id, client_id) do nothing",
    )
    .bind(place.runtime)
    .bind(client)
    .bind(seat.user)
    .bind(seat.stage)
    .bind(seat.generation)
    .execute(&mut *tx)
    .await?;
    if done.rows_affected() > 0 {
        let (user_id, client_id) = (seat.user, client);
        let command: ToRuntime = match &place.group {
            Some(group_name) => AddMatchClient {
                user_id,
                client_id,
                group_name: group_name.clone(),
                profile,
            }
            .into(),
            None => AddClient {
                user_id,
                client_id,
                profile,
            }
            .into(),
        };
        append(app, &mut tx, place.runtime, &[command]).await?;
    }
    tx.commit().await
}

/// Takes a client out of a runtime that it left.
pub async fn remove_client(app: &App, runtime: RuntimeId, client: ClientId) -> Result<()> {
    let mut tx = app.db.begin(runtime.get()).await?;
    // Locked first, like every other who writes here.
    let alive: Option<bool> = sqlx::query_scalar("select deleted is null from runtime where id = $1 for update")
        .bind(runtime)
        .fetch_optional(&mut *tx)
        .await?;
    if alive.is_none() {
        return Ok(());
    }
    let done = sqlx::query("delete from runtime_assignment where runtime_id = $1 and client_id = $2")
        .bind(runtime)
        .bind(client)
        .execute(&mut *tx)
        .await?;
    if done.rows_affected() > 0 {
        append(app, &mut tx, runtime, &[DeleteClient { client_id: client }.into()]).await?;
    }
    tx.commit().await
}

/// Which of these clients are assigned to the runtime, with the player behind each.
pub async fn assigned(
    app: &App,
    runtime: RuntimeId,
    clients: Option<&[ClientId]>,
) -> Result<Vec<(ClientId, UserId, StageId)>> {
    let mut tx = app.db.begin(runtime.get()).await?;
    Ok(sqlx::query_as(
        "select client_id, user_id, stage_id from runtime_assignment where runtime_id = $1 and ($2::bigint[] is null or client_id = any($2)) order by client_id",
    )
    .bind(runtime)
    .bind(clients)
    .fetch_all(&mut *tx)
    .await?)
}

/// Turns messages of a player into commands, each once, in order, as many as there is room for: up to which one. The rest
/// waits, and is announced when the runtime has taken some ([`wake_waiting`]). `None`: none of them, there is no room or the
/// runtime does not know the client yet.
pub async fn forward(
    app: &App,
    runtime: RuntimeId,
    client: ClientId,
    messages: &[(i64, String)],
) -> Result<Option<i64>> {
    let mut tx = app.db.begin(runtime.get()).await?;
    let alive: Option<bool> = sqlx::query_scalar("select deleted is null from runtime where id = $1 for update")
        .bind(runtime)
        .fetch_optional(&mut *tx)
        .await?;
    if alive.is_none() {
        return Ok(None);
    }
    let row: Option<(i64, bool, i64, i64)> = sqlx::query_as(
        "select forwarded, waiting_since is not null, queue.rows, queue.bytes from runtime_assignment, \
           (select count(*) as rows, coalesce(sum(bytes), 0) as bytes from runtime_command where runtime_id = $1) as queue \
         where runtime_id = $1 and client_id = $2",
    )
    .bind(runtime)
    .bind(client)
    .fetch_optional(&mut *tx)
    .await?;
    let Some((forwarded, was_waiting, rows, bytes)) = row else {
        return Ok(None);
    };
    let mut queue = Waiting { rows, bytes };
    let mut newest = forwarded;
    let mut waits = false;
    let mut commands: Vec<ToRuntime> = Vec::new();
    for (seq, data) in messages {
        if *seq <= forwarded {
            continue;
        }
        if !queue.take(data.len()) {
            waits = true;
            break;
        }
        newest = *seq;
        if let Ok(message) = serde_json::value::RawValue::from_string(data.clone()) {
            commands.push(
                HandleMessage {
                    client_id: client,
                    message,
                }
                .into(),
            );
        }
    }
    if newest > forwarded || waits || was_waiting {
        sqlx::query(
            "update runtime_assignment set forwarded = $3, waiting_since = case when $4 then now() end \
             where runtime_id = $1 and client_id = $2",
        )
        .bind(runtime)
        .bind(client)
        .bind(newest)
        .bind(waits)
        .execute(&mut *tx)
        .await?;
    }
    if !commands.is_empty() {
        append(app, &mut tx, runtime, &commands).await?;
    }
    tx.commit().await?;
    // What was here already is done with, too.
    let known = messages.iter().map(|(seq, _)| *seq).filter(|seq| *seq <= newest).max();
    Ok(known)
}

/// What waits for a runtime, counted under its row's lock.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    rows: i64,
    bytes: i64,
}

impl Waiting {
    async fn of(tx: &mut Tx, runtime: RuntimeId) -> Result<Self> {
        let (rows, bytes): (i64, i64) =
            sqlx::query_as("select count(*), coalesce(sum(bytes), 0) from runtime_command where runtime_id = $1")
                .bind(runtime)
                .fetch_one(&mut **tx)
                .await?;
        Ok(Self { rows, bytes })
    }

    /// Counts one more in if there is room.
    fn take(&mut self, bytes: usize) -> bool {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        if self.rows >= WAITING_MAX || self.bytes.saturating_add(bytes) > WAITING_BYTES_MAX {
            return false;
        }
        self.rows += 1;
        self.bytes += bytes;
        true
    }
}

/// Tells the runtime that one of its commands could not be carried out, unless it does not listen.
pub async fn tell(app: &App, runtime: RuntimeId, command: ToRuntime) -> Result<()> {
    let mut tx = app.db.begin(runtime.get()).await?;
    sqlx::query("select 1 from runtime where id = $1 for update")
        .bind(runtime)
        .execute(&mut *tx)
        .await?;
    let mut queue = Waiting::of(&mut tx, runtime).await?;
    if !queue.take(command.body().get().len()) {
        // Whoever calls has written it to the log.
        return Ok(());
    }
    append(app, &mut tx, runtime, &[command]).await?;
    tx.commit().await
}
