//! A cell: the lobbies, matches and seats of one deployment, in the deployment's own shard.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use omgservers_protocol::config::{
    DeploymentConfig, LobbyRef, MatchRef, RuntimeConfig, RuntimeQualifier, VersionConfig,
};
use omgservers_protocol::id::{
    ClientId, DeploymentId, LobbyId, MatchId, MatchmakerId, ProjectId, RuntimeId, StageId, TenantId, UserId, VersionId,
};
use omgservers_protocol::message::{ProvisioningStage, ProvisioningStatus};

use crate::App;
use crate::db::Tx;
use crate::entity::deployment::{self, Unsynced};
use crate::entity::stage;
use crate::error::{Error, Result};
use crate::event::{self, Kind};
use crate::plan::cell::{self as planner, CellState, Limits, Seat, Step, Venue, VenueState};
use crate::wake::Job;

/// The longest wait between two tries of a deployment whose runtimes do not start, seconds.
const RETRY_MAX_S: i32 = 60;
/// A runtime that ended within this time counts as one that did not start, seconds.
const SHORT_LIFE_S: i32 = 10;

/// Tells the cell what became of its deployment. A state never goes back.
pub async fn sync(app: &App, tenant: TenantId, deployment: &Unsynced) -> Result<()> {
    let mut tx = app.db.begin(deployment.id.get()).await?;
    sqlx::query(
        "insert into cell (deployment_id, tenant_id, project_id, stage_id, version_id, matchmaker_id, version_config, config, lobby_image, match_image, state) \
         values ($1, $2, $3, $4, $5, $6, $7::text::json, $8::text::json, $9, $10, $11) \
         on conflict (deployment_id) do update set state = excluded.state where cell.state <> 'CLOSING' and excluded.state <> 'ACTIVE'",
    )
    .bind(deployment.id)
    .bind(tenant)
    .bind(deployment.project)
    .bind(deployment.stage)
    .bind(deployment.version)
    .bind(deployment.matchmaker)
    .bind(&deployment.version_config)
    .bind(&deployment.config)
    .bind(&deployment.lobby_image)
    .bind(&deployment.match_image)
    .bind(deployment.state)
    .execute(&mut *tx)
    .await?;
    event::append(&mut tx, Kind::Cell, deployment.id.get()).await?;
    tx.commit().await
}

#[derive(sqlx::FromRow)]
struct CellRow {
    tenant_id: TenantId,
    project_id: ProjectId,
    stage_id: StageId,
    version_id: VersionId,
    matchmaker_id: MatchmakerId,
    version_config: String,
    config: String,
    lobby_image: Option<String>,
    match_image: Option<String>,
    state: String,
    has_matchmaker: bool,
    failure: Option<String>,
    retry_in_ms: i64,
}

#[derive(sqlx::FromRow)]
struct VenueRow {
    id: MatchId,
    qualifier: String,
    mode: Option<String>,
    state: String,
    reason: Option<String>,
    progress: Option<String>,
    empty_for_ms: i64,
}

#[derive(sqlx::FromRow)]
struct SeatRow {
    client_id: ClientId,
    venue_id: Option<MatchId>,
    group_name: Option<String>,
    wanted_mode: Option<String>,
    line: i64,
    told: Option<String>,
}

/// What a seat was told that is to go.
const DISMISSED: &str = "GONE";

pub(super) fn parse<T: serde::de::DeserializeOwned>(text: &str) -> Result<T> {
    Ok(serde_json::from_str(text).map_err(|cause| anyhow::anyhow!("a stored document is damaged: {cause}"))?)
}

fn qualifier(text: &str) -> RuntimeQualifier {
    if text == "LOBBY" {
        RuntimeQualifier::Lobby
    } else {
        RuntimeQualifier::Match
    }
}

async fn find(tx: &mut Tx, deployment: DeploymentId) -> Result<Option<CellRow>> {
    Ok(sqlx::query_as(
        "select tenant_id, project_id, stage_id, version_id, matchmaker_id, version_config::text, config::text, lobby_image, match_image, \
         state, has_matchmaker, failure, greatest(0, extract(epoch from retry_at - now()) * 1000)::bigint as retry_in_ms \
         from cell where deployment_id = $1 for update",
    )
    .bind(deployment)
    .fetch_optional(&mut **tx)
    .await?)
}

/// Loads, plans and applies in one transaction. Says when to look again.
pub async fn reconcile(app: &App, deployment: DeploymentId) -> Result<Option<u64>> {
    let mut tx = app.db.begin(deployment.get()).await?;
    let Some(row) = find(&mut tx, deployment).await? else {
        return Ok(None);
    };
    let version: VersionConfig = parse(&row.version_config)?;
    let mut config: DeploymentConfig = parse(&row.config)?;
    if !row.has_matchmaker {
        config.matchmaker.max_matches = 0;
        config.matchmaker.modes.clear();
    }
    let venues: Vec<VenueRow> = sqlx::query_as(
        "select id, qualifier, mode, state, reason, progress, greatest(0, extract(epoch from now() - empty_since) * 1000)::bigint as empty_for_ms \
         from venue where deployment_id = $1 order by id",
    )
    .bind(deployment)
    .fetch_all(&mut *tx)
    .await?;
    let seats: Vec<SeatRow> = sqlx::query_as(
        "select client_id, venue_id, group_name, wanted_mode, line, told from seat where deployment_id = $1 order by line",
    )
    .bind(deployment)
    .fetch_all(&mut *tx)
    .await?;
    if row.state == "CLOSING" && venues.is_empty() && seats.is_empty() {
        sqlx::query("delete from cell where deployment_id = $1")
            .bind(deployment)
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        return Ok(None);
    }
    if row.state == "DRAINING" && venues.is_empty() && seats.is_empty() {
        // Whoever comes now is too late. The tenant hears of it first: what is over is not looked at again and again.
        drop(tx);
        deployment::drained(app, row.tenant_id, deployment).await?;
        let mut tx = app.db.begin(deployment.get()).await?;
        sqlx::query("update cell set state = 'CLOSING' where deployment_id = $1")
            .bind(deployment)
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        return Ok(Some(0));
    }
    let cell = planner::Cell {
        state: match row.state.as_str() {
            "ACTIVE" => CellState::Active,
            "DRAINING" => CellState::Draining,
            _ => CellState::Closing,
        },
        version: &version,
        config: &config,
        venues: venues
            .into_iter()
            .map(|venue| Venue {
                id: venue.id,
                qualifier: qualifier(&venue.qualifier),
                mode: venue.mode,
                state: match venue.state.as_str() {
                    "PENDING" => VenueState::Pending,
                    "OPEN" => VenueState::Open,
                    "CLOSED" => VenueState::Closed,
                    _ => VenueState::Gone,
                },
                reason: venue.reason,
                progress: venue.progress,
                empty_for_ms: u64::try_from(venue.empty_for_ms).unwrap_or(0),
            })
            .collect(),
        seats: seats
            .into_iter()
            .map(|seat| Seat {
                client: seat.client_id,
                venue: seat.venue_id,
                group: seat.group_name,
                wanted_mode: seat.wanted_mode,
                line: seat.line,
                is_dismissed: seat.told.as_deref() == Some(DISMISSED),
                told: seat.told.and_then(|told| serde_json::from_str(&told).ok()),
            })
            .collect(),
        retry_in_ms: u64::try_from(row.retry_in_ms).unwrap_or(0),
        failure: row.failure.clone(),
        empty_ms: app.config.matches_empty_interval_s * 1_000,
        limits: Limits::default(),
    };
    let plan = planner::plan(&cell);
    let changes = Changes::of(&cell, plan.steps);
    changes.apply(app, &mut tx, deployment).await?;
    tx.commit().await?;
    Ok(plan.again_in_ms)
}

/// What a plan changes, gathered so that it takes as many statements whatever its size.
#[derive(Default)]
struct Changes {
    created: Vec<(RuntimeQualifier, Option<String>)>,
    removed: Vec<(MatchId, String)>,
    /// Clients with a new place, or none.
    moved: BTreeMap<ClientId, NewPlace>,
    /// What clients who stay where they are read from now on.
    told: BTreeMap<ClientId, String>,
    /// Venues that somebody left for another.
    left: BTreeSet<MatchId>,
    /// Venues that end, with clients who lost their place: the venue goes when the last seat has left it.
    lost: BTreeSet<MatchId>,
}

#[derive(Default)]
struct NewPlace {
    venue: Option<MatchId>,
    group: Option<String>,
    told: Option<String>,
}

impl Changes {
    fn of(cell: &planner::Cell<'_>, steps: Vec<Step>) -> Self {
        let places: HashMap<ClientId, MatchId> = cell
            .seats
            .iter()
            .filter_map(|seat| Some((seat.client, seat.venue?)))
            .collect();
        let mut reasons: HashMap<MatchId, &String> = HashMap::new();
        for venue in &cell.venues {
            reasons.extend(venue.reason.as_ref().map(|reason| (venue.id, reason)));
        }
        let mut changes = Self::default();
        for step in steps {
            match step {
                Step::CreateLobby => changes.created.push((RuntimeQualifier::Lobby, None)),
                Step::CreateMatch { mode } => changes.created.push((RuntimeQualifier::Match, Some(mode))),
                Step::Remove { venue, reason } => changes.removed.push((venue, reason)),
                Step::Move { client, venue, group } => {
                    changes.left.extend(places.get(&client));
                    let place = NewPlace {
                        venue: Some(venue),
                        group,
                        told: None,
                    };
                    changes.moved.insert(client, place);
                }
                Step::Queue { client } => {
                    let venue = places.get(&client);
                    changes.lost.extend(venue);
                    let told = venue.and_then(|venue| reasons.get(venue)).map(|reason| {
                        status_text(&ProvisioningStatus {
                            stage: ProvisioningStage::Queued,
                            position: None,
                            detail: Some((*reason).clone()),
                        })
                    });
                    let place = NewPlace {
                        told,
                        ..NewPlace::default()
                    };
                    changes.moved.insert(client, place);
                }
                Step::Tell { client, status } => {
                    let text = status_text(&status);
                    match changes.moved.get_mut(&client) {
                        Some(place) => place.told = Some(text),
                        None => {
                            changes.told.insert(client, text);
                        }
                    }
                }
                Step::Disconnect { client, .. } => {
                    changes.lost.extend(places.get(&client));
                    let place = NewPlace {
                        told: Some(DISMISSED.into()),
                        ..NewPlace::default()
                    };
                    changes.moved.insert(client, place);
                }
            }
        }
        changes
    }

    /// Seats before venues, as everybody does who locks both.
    async fn apply(self, app: &App, tx: &mut Tx, deployment: DeploymentId) -> Result<()> {
        self.apply_to_seats(tx).await?;
        create_venues(app, tx, deployment, &self.created).await?;
        if !self.left.is_empty() {
            sqlx::query(
                "update venue set empty_since = now() where id = any($1) and not exists (select 1 from seat where venue_id = venue.id)",
            )
            .bind(Vec::from_iter(self.left))
            .execute(&mut **tx)
            .await?;
        }
        let mut ending = self.lost;
        if !self.removed.is_empty() {
            let (venues, reasons): (Vec<MatchId>, Vec<String>) = self.removed.into_iter().unzip();
            sqlx::query(
                "update venue set state = 'GONE', reason = ended.reason \
                 from unnest($1::bigint[], $2::text[]) as ended (id, reason) where venue.id = ended.id",
            )
            .bind(&venues)
            .bind(reasons)
            .execute(&mut **tx)
            .await?;
            ending.extend(venues);
        }
        announce(tx, Kind::Venue, ending.into_iter().map(MatchId::get)).await
    }

    async fn apply_to_seats(&self, tx: &mut Tx) -> Result<()> {
        let mut changed: Vec<i64> = self.moved.keys().map(|client| client.get()).collect();
        if !self.moved.is_empty() {
            let places = || self.moved.values();
            sqlx::query(
                "update seat set venue_id = place.venue_id, group_name = place.group_name, told = place.told, \
                 generation = generation + 1, wanted_mode = null \
                 from unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[]) as place (client_id, venue_id, group_name, told) \
                 where seat.client_id = place.client_id",
            )
            .bind(&changed)
            .bind(Vec::from_iter(places().map(|place| place.venue)))
            .bind(Vec::from_iter(places().map(|place| place.group.as_deref())))
            .bind(Vec::from_iter(places().map(|place| place.told.as_deref())))
            .execute(&mut **tx)
            .await?;
        }
        if !self.told.is_empty() {
            sqlx::query(
                "update seat set told = news.told from unnest($1::bigint[], $2::text[]) as news (client_id, told) \
                 where seat.client_id = news.client_id",
            )
            .bind(Vec::from_iter(self.told.keys().copied()))
            .bind(Vec::from_iter(self.told.values().map(String::as_str)))
            .execute(&mut **tx)
            .await?;
            changed.extend(self.told.keys().map(|client| client.get()));
        }
        announce(tx, Kind::Seat, changed).await
    }
}

fn status_text(status: &ProvisioningStatus) -> String {
    serde_json::to_string(status).expect("a status is plain data")
}

/// Appends an event for each of these to the shard's outbox.
async fn announce(tx: &mut Tx, kind: Kind, keys: impl IntoIterator<Item = i64>) -> Result<()> {
    let keys = Vec::from_iter(keys);
    if keys.is_empty() {
        return Ok(());
    }
    sqlx::query("insert into event (kind, key) select $1, key from unnest($2::bigint[]) as key")
        .bind(kind.as_str())
        .bind(&keys)
        .execute(&mut **tx)
        .await?;
    let shard = tx.shard();
    for key in keys {
        tx.hint(Job { shard, kind, key });
    }
    Ok(())
}

/// Ends all lobbies and matches of a deployment, or all of one kind.
pub(super) async fn end_venues(
    tx: &mut Tx,
    deployment: DeploymentId,
    qualifier: Option<RuntimeQualifier>,
    reason: &str,
) -> Result<()> {
    let ended: Vec<i64> = sqlx::query_scalar(
        "update venue set state = 'GONE', reason = $3 \
         where deployment_id = $1 and qualifier = coalesce($2, qualifier) and state <> 'GONE' returning id",
    )
    .bind(deployment)
    .bind(qualifier.map(RuntimeQualifier::as_str))
    .bind(reason)
    .fetch_all(&mut **tx)
    .await?;
    announce(tx, Kind::Venue, ended).await
}

/// Stamps the venue that a client is about to leave, if it was the last one there.
async fn stamp_empty(tx: &mut Tx, venue: MatchId, client: ClientId) -> Result<()> {
    sqlx::query(
        "update venue set empty_since = now() where id = $1 and not exists (select 1 from seat where venue_id = $1 and client_id <> $2)",
    )
    .bind(venue)
    .bind(client)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

pub(super) async fn create_venues(
    app: &App,
    tx: &mut Tx,
    deployment: DeploymentId,
    venues: &[(RuntimeQualifier, Option<String>)],
) -> Result<()> {
    if venues.is_empty() {
        return Ok(());
    }
    let ids: Vec<MatchId> = venues.iter().map(|_| app.ids.mint()).collect();
    sqlx::query(
        "insert into venue (id, deployment_id, runtime_id, qualifier, mode, state) \
         select id, $1, runtime_id, qualifier, mode, 'PENDING' \
         from unnest($2::bigint[], $3::bigint[], $4::text[], $5::text[]) as new (id, runtime_id, qualifier, mode)",
    )
    .bind(deployment)
    .bind(&ids)
    .bind(Vec::from_iter(venues.iter().map(|_| app.ids.mint::<RuntimeId>())))
    .bind(Vec::from_iter(venues.iter().map(|(qualifier, _)| qualifier.as_str())))
    .bind(Vec::from_iter(venues.iter().map(|(_, mode)| mode.as_deref())))
    .execute(&mut **tx)
    .await?;
    announce(tx, Kind::Venue, ids.into_iter().map(MatchId::get)).await
}

/// What a venue's runtime should be, if it should be at all.
pub struct WantedRuntime {
    pub id: RuntimeId,
    pub tenant: TenantId,
    pub project: ProjectId,
    pub stage: StageId,
    pub version: VersionId,
    pub deployment: DeploymentId,
    pub venue: MatchId,
    pub qualifier: RuntimeQualifier,
    pub config: RuntimeConfig,
    pub image: Option<String>,
    pub cpu_limit: u32,
    pub memory_limit: u32,
    /// Gone: the runtime is to end.
    pub is_gone: bool,
}

/// The runtime that a venue wants.
pub async fn wanted_runtime(app: &App, shard: crate::db::Shard, venue: MatchId) -> Result<Option<WantedRuntime>> {
    let mut tx = app.db.begin_in(shard).await?;
    let row: Option<(DeploymentId, RuntimeId, String, Option<String>, String)> =
        sqlx::query_as("select deployment_id, runtime_id, qualifier, mode, state from venue where id = $1")
            .bind(venue)
            .fetch_optional(&mut *tx)
            .await?;
    let Some((deployment, id, kind, mode, state)) = row else {
        return Ok(None);
    };
    let Some(cell) = find(&mut tx, deployment).await? else {
        return Ok(None);
    };
    let deployment_config: DeploymentConfig = parse(&cell.config)?;
    let qualifier = qualifier(&kind);
    let (image, cpu_limit, memory_limit) = match qualifier {
        RuntimeQualifier::Lobby => (
            cell.lobby_image,
            deployment_config.lobby.cpu_limit,
            deployment_config.lobby.memory_limit,
        ),
        RuntimeQualifier::Match => (
            cell.match_image,
            deployment_config.match_.cpu_limit,
            deployment_config.match_.memory_limit,
        ),
    };
    let or_default = |limit: u32, default: u32| if limit == 0 { default } else { limit };
    Ok(Some(WantedRuntime {
        id,
        tenant: cell.tenant_id,
        project: cell.project_id,
        stage: cell.stage_id,
        version: cell.version_id,
        deployment,
        venue,
        qualifier,
        config: runtime_config(qualifier, venue, mode, cell.matchmaker_id, parse(&cell.version_config)?),
        image,
        cpu_limit: or_default(cpu_limit, app.config.runtimes_default_cpu_limit),
        memory_limit: or_default(memory_limit, app.config.runtimes_default_memory_limit),
        is_gone: state == "GONE",
    }))
}

fn runtime_config(
    qualifier: RuntimeQualifier,
    venue: MatchId,
    mode: Option<String>,
    matchmaker_id: MatchmakerId,
    version_config: VersionConfig,
) -> RuntimeConfig {
    let is_lobby = qualifier == RuntimeQualifier::Lobby;
    RuntimeConfig {
        lobby_config: is_lobby.then_some(LobbyRef {
            lobby_id: LobbyId(venue.get()),
        }),
        match_config: (!is_lobby).then(|| MatchRef {
            matchmaker_id,
            match_id: venue,
            mode: mode.unwrap_or_default(),
        }),
        version_config,
    }
}

/// The venue's runtime is gone for good: the row may go once nobody sits there.
pub async fn forget_venue(app: &App, shard: crate::db::Shard, venue: MatchId) -> Result<bool> {
    let mut tx = app.db.begin_in(shard).await?;
    let deployment: Option<DeploymentId> = sqlx::query_scalar(
        "delete from venue where id = $1 and state = 'GONE' and not exists (select 1 from seat where venue_id = $1) returning deployment_id",
    )
    .bind(venue)
    .fetch_optional(&mut *tx)
    .await?;
    if let Some(deployment) = deployment {
        event::append(&mut tx, Kind::Cell, deployment.get()).await?;
    }
    tx.commit().await?;
    Ok(deployment.is_some())
}

/// The runtime's row is gone: the venue's may follow.
pub async fn runtime_forgotten(app: &App, deployment: DeploymentId, venue: MatchId) -> Result<()> {
    let mut tx = app.db.begin(deployment.get()).await?;
    event::append(&mut tx, Kind::Venue, venue.get()).await?;
    tx.commit().await
}

/// News of a venue's runtime.
pub enum RuntimeNews<'a> {
    /// What its start is busy with.
    Progress(&'a str),
    Ready,
    Ended {
        reason: &'a str,
    },
}

pub async fn hear_of_runtime(app: &App, deployment: DeploymentId, venue: MatchId, news: RuntimeNews<'_>) -> Result<()> {
    let mut tx = app.db.begin(deployment.get()).await?;
    let done = match news {
        RuntimeNews::Progress(progress) => {
            sqlx::query(
                "update venue set progress = $2 where id = $1 and state = 'PENDING' and progress is distinct from $2",
            )
            .bind(venue)
            .bind(progress)
            .execute(&mut *tx)
            .await?
        }
        RuntimeNews::Ready => {
            // Only one that stays up makes good for those that did not.
            sqlx::query(
                "update cell set failures = 0, failure = null where deployment_id = $1 and failures > 0 and retry_at < now() - $2 * interval '1 second'",
            )
                .bind(deployment)
                .bind(SHORT_LIFE_S)
                .execute(&mut *tx)
                .await?;
            sqlx::query("update venue set state = 'OPEN', progress = null, empty_since = now() where id = $1 and state = 'PENDING'")
                .bind(venue)
                .execute(&mut *tx)
                .await?
        }
        RuntimeNews::Ended { reason } => {
            // One that never became ready, or not for long, makes the next start wait longer.
            sqlx::query(
                "update cell set failures = failures + 1, failure = $3, \
                 retry_at = now() + least($4, power(2, least(failures, 10))) * interval '1 second' \
                 where deployment_id = $1 and exists (select 1 from venue where id = $2 and \
                 (state = 'PENDING' or (state <> 'GONE' and created > now() - $5 * interval '1 second')))",
            )
            .bind(deployment)
            .bind(venue)
            .bind(reason)
            .bind(RETRY_MAX_S)
            .bind(SHORT_LIFE_S)
            .execute(&mut *tx)
            .await?;
            sqlx::query("update venue set state = 'GONE', reason = $2 where id = $1 and state <> 'GONE'")
                .bind(venue)
                .bind(reason)
                .execute(&mut *tx)
                .await?
        }
    };
    if done.rows_affected() > 0 {
        event::append(&mut tx, Kind::Cell, deployment.get()).await?;
        event::append(&mut tx, Kind::Venue, venue.get()).await?;
    }
    tx.commit().await
}

/// A client enters the line for a lobby. `Err(NotFound)`: the cell is not there (yet, or any more).
pub async fn enter(app: &App, deployment: DeploymentId, client: ClientId, user: UserId, stage: StageId) -> Result<()> {
    let mut tx = app.db.begin(deployment.get()).await?;
    let state: Option<String> = sqlx::query_scalar("select state from cell where deployment_id = $1 for share")
        .bind(deployment)
        .fetch_optional(&mut *tx)
        .await?;
    state.ok_or_else(|| Error::not_found("deployment", deployment))?;
    sqlx::query("insert into seat (client_id, deployment_id, user_id, stage_id) values ($1, $2, $3, $4) on conflict (client_id) do nothing")
        .bind(client)
        .bind(deployment)
        .bind(user)
        .bind(stage)
        .execute(&mut *tx)
        .await?;
    event::append(&mut tx, Kind::Cell, deployment.get()).await?;
    tx.commit().await
}

/// A client is gone.
pub async fn leave(app: &App, deployment: DeploymentId, client: ClientId) -> Result<()> {
    let mut tx = app.db.begin(deployment.get()).await?;
    let venue: Option<Option<MatchId>> = sqlx::query_scalar("delete from seat where client_id = $1 returning venue_id")
        .bind(client)
        .fetch_optional(&mut *tx)
        .await?;
    if let Some(Some(venue)) = venue {
        stamp_empty(&mut tx, venue, client).await?;
        event::append(&mut tx, Kind::Venue, venue.get()).await?;
    }
    if venue.is_some() {
        event::append(&mut tx, Kind::Cell, deployment.get()).await?;
    }
    tx.commit().await
}

/// Where a client should be.
pub struct SeatView {
    pub deployment: DeploymentId,
    pub user: UserId,
    pub stage: StageId,
    pub generation: i64,
    pub place: Option<Place>,
    /// The status to tell while it waits; `GONE` when it is to be disconnected.
    pub told: Option<String>,
}

pub struct Place {
    pub runtime: RuntimeId,
    pub qualifier: RuntimeQualifier,
    pub group: Option<String>,
    pub config: RuntimeConfig,
}

pub async fn seat(app: &App, shard: crate::db::Shard, client: ClientId) -> Result<Option<SeatView>> {
    let mut tx = app.db.begin_in(shard).await?;
    type Row = (
        DeploymentId,
        UserId,
        StageId,
        i64,
        Option<String>,
        Option<String>,
        Option<MatchId>,
    );
    let row: Option<Row> = sqlx::query_as(
        "select deployment_id, user_id, stage_id, generation, told, group_name, venue_id from seat where client_id = $1",
    )
    .bind(client)
    .fetch_optional(&mut *tx)
    .await?;
    let Some((deployment, user, stage, generation, told, group, venue)) = row else {
        return Ok(None);
    };
    let mut place = None;
    if let Some(venue) = venue {
        let row: Option<(RuntimeId, String, Option<String>, MatchmakerId, String)> = sqlx::query_as(
            "select runtime_id, qualifier, mode, matchmaker_id, version_config::text from venue \
             join cell on cell.deployment_id = venue.deployment_id where venue.id = $1",
        )
        .bind(venue)
        .fetch_optional(&mut *tx)
        .await?;
        if let Some((runtime, kind, mode, matchmaker, version_config)) = row {
            let qualifier = qualifier(&kind);
            let config = runtime_config(qualifier, venue, mode, matchmaker, parse(&version_config)?);
            place = Some(Place {
                runtime,
                qualifier,
                group,
                config,
            });
        }
    }
    Ok(Some(SeatView {
        deployment,
        user,
        stage,
        generation,
        place,
        told,
    }))
}

/// A client wishes for a match. The refusal is for the runtime that asked.
pub async fn request_match(
    app: &App,
    deployment: DeploymentId,
    venue: MatchId,
    client: ClientId,
    mode: &str,
) -> Result<std::result::Result<(), String>> {
    if let Some(message) = maintenance(app, deployment).await? {
        return Ok(Err(message));
    }
    let mut tx = app.db.begin(deployment.get()).await?;
    let Some(cell) = find(&mut tx, deployment).await? else {
        return Ok(Err("the deployment is gone".into()));
    };
    let version: VersionConfig = parse(&cell.version_config)?;
    if version.mode(mode).is_none() {
        return Ok(Err(format!("there is no mode `{mode}`")));
    }
    if !cell.has_matchmaker {
        return Ok(Err("the deployment has no matchmaker".into()));
    }
    if cell.state != "ACTIVE" {
        return Ok(Err("the deployment takes no more matches".into()));
    }
    let done = sqlx::query(
        "update seat set wanted_mode = $3, line = nextval(pg_get_serial_sequence('seat', 'line')) \
         where client_id = $1 and venue_id = $2 and wanted_mode is null",
    )
    .bind(client)
    .bind(venue)
    .bind(mode)
    .execute(&mut *tx)
    .await?;
    if done.rows_affected() == 0 {
        return Ok(Err("the client is not here or waits for a match already".into()));
    }
    event::append(&mut tx, Kind::Cell, deployment.get()).await?;
    tx.commit().await?;
    Ok(Ok(()))
}

/// What players read while the deployment's stage is closed.
async fn maintenance(app: &App, deployment: DeploymentId) -> Result<Option<String>> {
    let of: Option<(TenantId, StageId)> = {
        let mut tx = app.db.begin(deployment.get()).await?;
        sqlx::query_as("select tenant_id, stage_id from cell where deployment_id = $1")
            .bind(deployment)
            .fetch_optional(&mut *tx)
            .await?
    };
    match of {
        Some((tenant, stage)) => stage::maintenance(app, tenant, stage).await,
        None => Ok(None),
    }
}

/// A match sends a client back to the line for a lobby.
pub async fn kick(app: &App, deployment: DeploymentId, venue: MatchId, client: ClientId) -> Result<()> {
    let mut tx = app.db.begin(deployment.get()).await?;
    let done = sqlx::query(
        "update seat set venue_id = null, group_name = null, wanted_mode = null, told = null, generation = generation + 1 \
         where client_id = $1 and venue_id = $2",
    )
    .bind(client)
    .bind(venue)
    .execute(&mut *tx)
    .await?;
    if done.rows_affected() > 0 {
        stamp_empty(&mut tx, venue, client).await?;
        event::append(&mut tx, Kind::Seat, client.get()).await?;
        event::append(&mut tx, Kind::Cell, deployment.get()).await?;
    }
    tx.commit().await
}

/// A match takes no more players.
pub async fn stop_matchmaking(app: &App, deployment: DeploymentId, venue: MatchId) -> Result<bool> {
    let mut tx = app.db.begin(deployment.get()).await?;
    let done = sqlx::query(
        "update venue set state = 'CLOSED' where id = $1 and qualifier = 'MATCH' and state in ('PENDING', 'OPEN')",
    )
    .bind(venue)
    .execute(&mut *tx)
    .await?;
    if done.rows_affected() > 0 {
        event::append(&mut tx, Kind::Cell, deployment.get()).await?;
    }
    tx.commit().await?;
    Ok(done.rows_affected() > 0)
}
