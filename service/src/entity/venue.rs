//! What developers see and do with the lobbies, matches and the matchmaker of a deployment.

use std::time::Duration;

use omgservers_protocol::call::{Deleted, Page, Paging};
use omgservers_protocol::config::{DeploymentConfig, RuntimeQualifier};
use omgservers_protocol::developer as dev;
use omgservers_protocol::id::{ClientId, DeploymentId, LobbyId, MatchId, MatchmakerId, RuntimeId, TenantId, UserId};
use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::App;
use crate::db::{Shard, Tx};
use crate::entity::page::Window;
use crate::entity::{alias, audit, cell, deployment, timestamp};
use crate::error::{Error, Result};
use crate::event::{self, Kind};
use crate::principal::Actor;

/// A deployment that was made a moment ago gets its cell within this time.
const CELL_WAIT: Duration = Duration::from_secs(5);
const CELL_LOOK: Duration = Duration::from_millis(25);

/// The cell of a deployment, locked. There is none before it is set up and after it is gone.
async fn lock_cell(app: &App, id: DeploymentId) -> Result<Option<(Tx, DeploymentConfig, bool)>> {
    let mut tx = app.db.begin(id.get()).await?;
    let row: Option<(String, bool)> =
        sqlx::query_as("select config::text, has_matchmaker from cell where deployment_id = $1 for update")
            .bind(id)
            .fetch_optional(&mut *tx)
            .await?;
    let Some((config, has_matchmaker)) = row else {
        return Ok(None);
    };
    Ok(Some((tx, cell::parse(&config)?, has_matchmaker)))
}

/// The cell of a living deployment, locked; that of one that was made a moment ago is waited for.
async fn open_cell(app: &App, by: &Actor, tenant: TenantId, id: DeploymentId) -> Result<(Tx, DeploymentConfig, bool)> {
    let begun = tokio::time::Instant::now();
    loop {
        let (mut tx, _) = deployment::for_deployer(app, by, tenant, id).await?;
        deployment::alive(&mut tx, tenant, id).await?;
        drop(tx);
        if let Some(cell) = lock_cell(app, id).await? {
            return Ok(cell);
        }
        if begun.elapsed() > CELL_WAIT {
            return Err(Error::Unavailable("the deployment is not set up yet, try again"));
        }
        tokio::time::sleep(CELL_LOOK).await;
    }
}

/// One more lobby, now.
pub async fn create_lobby(app: &App, by: &Actor, call: dev::CreateLobbyRequest) -> Result<()> {
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let id = call.deployment_id;
    let (mut tx, config, _) = open_cell(app, by, tenant, id).await?;
    let lobbies: i64 = sqlx::query_scalar(
        "select count(*) from venue where deployment_id = $1 and qualifier = 'LOBBY' and state <> 'GONE'",
    )
    .bind(id)
    .fetch_one(&mut *tx)
    .await?;
    if lobbies >= i64::from(config.max_lobbies) {
        return Err(Error::Conflict(format!(
            "the deployment has all the {} lobbies that its config allows",
            config.max_lobbies
        )));
    }
    cell::create_venues(app, &mut tx, id, &[(RuntimeQualifier::Lobby, None)]).await?;
    audit::note(app, &mut tx, by, "create-lobby-request", Some(tenant), id, None).await?;
    event::append(&mut tx, Kind::Cell, id.get()).await?;
    tx.commit().await
}

/// A cell by something that is in it: the shard is not in the name, so all are asked.
async fn search(app: &App, query: &'static str, id: i64) -> Result<Option<(Shard, DeploymentId, TenantId)>> {
    for shard in app.db.shards() {
        let mut tx = app.db.begin_in(shard).await?;
        let row: Option<(DeploymentId, TenantId)> = sqlx::query_as(query).bind(id).fetch_optional(&mut *tx).await?;
        if let Some((deployment, tenant)) = row {
            return Ok(Some((shard, deployment, tenant)));
        }
    }
    Ok(None)
}

/// Ends a lobby; its players go to another one.
pub async fn delete_lobby(app: &App, by: &Actor, call: dev::DeleteLobby) -> Result<Deleted> {
    let id = call.lobby_id;
    let query = "select venue.deployment_id, tenant_id from venue join cell on cell.deployment_id = venue.deployment_id \
                 where venue.id = $1 and qualifier = 'LOBBY'";
    let found = search(app, query, id.get()).await?;
    let (shard, deployment, tenant) = found.ok_or_else(|| Error::not_found("lobby", id))?;
    drop(deployment::for_deployer(app, by, tenant, deployment).await?);
    let mut tx = app.db.begin_in(shard).await?;
    let deleted = end(&mut tx, MatchId(id.get()), "the lobby was closed by its developer").await?;
    if deleted {
        audit::note(app, &mut tx, by, "delete-lobby", Some(tenant), id, None).await?;
        event::append(&mut tx, Kind::Cell, deployment.get()).await?;
    }
    tx.commit().await?;
    Ok(Deleted { deleted })
}

async fn end(tx: &mut Tx, venue: MatchId, reason: &str) -> Result<bool> {
    let done = sqlx::query("update venue set state = 'GONE', reason = $2 where id = $1 and state <> 'GONE'")
        .bind(venue)
        .bind(reason)
        .execute(&mut **tx)
        .await?;
    if done.rows_affected() > 0 {
        event::append(tx, Kind::Venue, venue.get()).await?;
    }
    Ok(done.rows_affected() > 0)
}

/// A new matchmaker for a deployment whose matchmaker was deleted. Where there is one, nothing happens.
pub async fn create_matchmaker(app: &App, by: &Actor, call: dev::CreateMatchmakerRequest) -> Result<()> {
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let id = call.deployment_id;
    let (mut tx, _, has_matchmaker) = open_cell(app, by, tenant, id).await?;
    if has_matchmaker {
        return Ok(());
    }
    let matchmaker: MatchmakerId = app.ids.mint();
    sqlx::query("update cell set has_matchmaker = true, matchmaker_id = $2 where deployment_id = $1")
        .bind(id)
        .bind(matchmaker)
        .execute(&mut *tx)
        .await?;
    audit::note(app, &mut tx, by, "create-matchmaker-request", Some(tenant), id, None).await?;
    event::append(&mut tx, Kind::Cell, id.get()).await?;
    event::append(&mut tx, Kind::Matchmaker, id.get()).await?;
    tx.commit().await
}

/// The job of a deployment with a new matchmaker: new clients are told of it by the tenant's shard.
pub async fn matchmaker_changed(app: &App, id: DeploymentId) -> Result<()> {
    let row: Option<(TenantId, MatchmakerId)> = {
        let mut tx = app.db.begin(id.get()).await?;
        sqlx::query_as("select tenant_id, matchmaker_id from cell where deployment_id = $1")
            .bind(id)
            .fetch_optional(&mut *tx)
            .await?
    };
    let Some((tenant, matchmaker)) = row else {
        return Ok(());
    };
    let mut tx = app.db.begin(tenant.get()).await?;
    sqlx::query("update deployment set matchmaker_id = $2 where id = $1")
        .bind(id)
        .bind(matchmaker)
        .execute(&mut *tx)
        .await?;
    tx.commit().await
}

/// Ends the matchmaker and its matches; their players go back to a lobby.
pub async fn delete_matchmaker(app: &App, by: &Actor, call: dev::DeleteMatchmaker) -> Result<Deleted> {
    let id = call.matchmaker_id;
    let query = "select deployment_id, tenant_id from cell where matchmaker_id = $1";
    let found = search(app, query, id.get()).await?;
    let (_, deployment, tenant) = found.ok_or_else(|| Error::not_found("matchmaker", id))?;
    drop(deployment::for_deployer(app, by, tenant, deployment).await?);
    let Some((mut tx, _, true)) = lock_cell(app, deployment).await? else {
        return Ok(Deleted { deleted: false });
    };
    sqlx::query("update cell set has_matchmaker = false where deployment_id = $1")
        .bind(deployment)
        .execute(&mut *tx)
        .await?;
    sqlx::query("update seat set wanted_mode = null where deployment_id = $1")
        .bind(deployment)
        .execute(&mut *tx)
        .await?;
    let reason = "the matchmaker was deleted by its developer";
    cell::end_venues(&mut tx, deployment, Some(RuntimeQualifier::Match), reason).await?;
    audit::note(app, &mut tx, by, "delete-matchmaker", Some(tenant), id, None).await?;
    event::append(&mut tx, Kind::Cell, deployment.get()).await?;
    tx.commit().await?;
    Ok(Deleted { deleted: true })
}

pub async fn list_lobbies(app: &App, by: &Actor, call: dev::ListLobbies) -> Result<Page<dev::VenueStatus>> {
    let found = deployment::for_viewer(app, by, &call.tenant, call.deployment_id).await?;
    let mut tx = app.db.begin(found.id.get()).await?;
    page(&mut tx, found.id, Some(RuntimeQualifier::Lobby), &call.paging).await
}

pub async fn list_matches(app: &App, by: &Actor, call: dev::ListMatches) -> Result<Page<dev::VenueStatus>> {
    let found = deployment::for_viewer(app, by, &call.tenant, call.deployment_id).await?;
    let mut tx = app.db.begin(found.id.get()).await?;
    page(&mut tx, found.id, Some(RuntimeQualifier::Match), &call.paging).await
}

/// Who plays, or waits to.
pub async fn list_clients(app: &App, by: &Actor, call: dev::ListClients) -> Result<Page<dev::ClientStatus>> {
    let window = Window::new(&call.paging)?;
    let found = deployment::for_viewer(app, by, &call.tenant, call.deployment_id).await?;
    let mut tx = app.db.begin(found.id.get()).await?;
    type Row = (
        ClientId,
        UserId,
        Option<LobbyId>,
        Option<String>,
        Option<String>,
        Option<String>,
        Option<String>,
    );
    let rows: Vec<Row> = sqlx::query_as(
        "select client_id, user_id, venue_id, qualifier, mode, group_name, wanted_mode \
         from seat left join venue on venue.id = venue_id \
         where seat.deployment_id = $1 and client_id > $2 order by client_id limit $3",
    )
    .bind(found.id)
    .bind(window.after())
    .bind(window.limit())
    .fetch_all(&mut *tx)
    .await?;
    Ok(window.page(
        rows,
        |(id, ..)| id.get(),
        |(client_id, user_id, venue_id, qualifier, mode, group, wanted_mode)| dev::ClientStatus {
            client_id,
            user_id,
            venue_id,
            qualifier,
            mode,
            group,
            wanted_mode,
        },
    ))
}

async fn page(
    db: &mut PgConnection,
    deployment: DeploymentId,
    qualifier: Option<RuntimeQualifier>,
    paging: &Paging,
) -> Result<Page<dev::VenueStatus>> {
    let window = Window::new(paging)?;
    type Row = (
        LobbyId,
        String,
        Option<String>,
        String,
        RuntimeId,
        Option<String>,
        OffsetDateTime,
        i64,
    );
    let rows: Vec<Row> = sqlx::query_as(
        "select id, qualifier, mode, state, runtime_id, coalesce(reason, progress), created, \
         (select count(*) from seat where venue_id = venue.id) from venue \
         where deployment_id = $1 and qualifier = coalesce($2, qualifier) and id > $3 order by id limit $4",
    )
    .bind(deployment)
    .bind(qualifier.map(RuntimeQualifier::as_str))
    .bind(window.after())
    .bind(window.limit())
    .fetch_all(db)
    .await?;
    Ok(window.page(
        rows,
        |(id, ..)| id.get(),
        |(id, qualifier, mode, state, runtime_id, reason, created, players)| dev::VenueStatus {
            id,
            qualifier,
            mode,
            state,
            runtime_id,
            players: u32::try_from(players).unwrap_or(u32::MAX),
            reason,
            created: timestamp(created),
        },
    ))
}

pub(super) async fn details(app: &App, deployment: dev::Deployment) -> Result<dev::DeploymentDetails> {
    let mut tx = app.db.begin(deployment.id.get()).await?;
    type Row = (MatchmakerId, OffsetDateTime, bool, Option<String>, i32, OffsetDateTime);
    let cell: Option<Row> = sqlx::query_as(
        "select matchmaker_id, created, has_matchmaker, failure, failures, retry_at from cell where deployment_id = $1",
    )
    .bind(deployment.id)
    .fetch_optional(&mut *tx)
    .await?;
    let (mut matchmaker, mut failure) = (None, None);
    if let Some((id, created, has_matchmaker, reason, failures, retry_at)) = cell {
        matchmaker = has_matchmaker.then_some((id, created));
        failure = reason.map(|reason| dev::DeploymentFailure {
            reason,
            failures: failures.unsigned_abs(),
            retry_at: timestamp(retry_at),
        });
    }
    // Not among all venues: behind many matches they would not be found.
    let lobbies: Vec<(LobbyId, OffsetDateTime)> = sqlx::query_as(
        "select id, created from venue where deployment_id = $1 and qualifier = 'LOBBY' and state <> 'GONE' order by id limit $2",
    )
    .bind(deployment.id)
    .bind(i64::from(super::DETAILS_MAX))
    .fetch_all(&mut *tx)
    .await?;
    let venues = page(&mut tx, deployment.id, None, &super::details_page()).await?.items;
    Ok(dev::DeploymentDetails {
        deployment,
        lobby_refs: lobbies
            .into_iter()
            .map(|(id, created)| dev::LobbyRefRow {
                id,
                created: timestamp(created),
                lobby_id: id,
            })
            .collect(),
        matchmaker_refs: matchmaker
            .into_iter()
            .map(|(id, created)| dev::MatchmakerRefRow {
                id,
                created: timestamp(created),
                matchmaker_id: id,
            })
            .collect(),
        venues,
        failure,
    })
}

/// Ends every lobby and match of a deployment; new ones follow. It is nobody's failure, so nothing waits for it.
pub async fn restart(app: &App, id: DeploymentId, reason: &str) -> Result<()> {
    let mut tx = app.db.begin(id.get()).await?;
    sqlx::query("update cell set failures = 0, failure = null, retry_at = now() where deployment_id = $1")
        .bind(id)
        .execute(&mut *tx)
        .await?;
    cell::end_venues(&mut tx, id, None, reason).await?;
    event::append(&mut tx, Kind::Cell, id.get()).await?;
    tx.commit().await
}
