//! Operations of runtimes and dispatchers.

use axum::Json;
use axum::extract::State;
use omgservers_protocol::Json as Raw;
use omgservers_protocol::call::{Empty, RawToken};
use omgservers_protocol::dispatcher::{self, RoomEvent};
use omgservers_protocol::id::ClientId;
use omgservers_protocol::message::{CommandFailed, ConnectionUpgraded, FromRuntime, Produced, Protocol};
use omgservers_protocol::runtime::{CreateToken, Interchange, Interchanged, RuntimeTokens};
use omgservers_protocol::token::Keys;
use omgservers_protocol::w1::{Refused, parse_from_runtime};
use tokio::time::Instant;

use super::Body;
use super::player::{LOOK_AGAIN, check_lists, deadline, to_raw};
use crate::App;
use crate::address::Address;
use crate::entity::runtime::Caller;
use crate::entity::{cell, client, runtime};
use crate::error::{Error, Result};
use crate::principal::{Anybody, Dispatcher, Runtime};
use crate::wake::News;

/// Largest message or profile of a runtime.
const MESSAGE_MAX: usize = 256 * 1_024;

pub(super) async fn create_token(
    State(app): State<App>,
    _: Anybody,
    from: Address,
    Body(call): Body<CreateToken>,
) -> Result<Json<RuntimeTokens>> {
    runtime::log_in(&app, from, call.runtime_id, &call.password)
        .await
        .map(Json)
}

pub(super) async fn interchange(
    State(app): State<App>,
    caller: Runtime,
    Body(call): Body<Interchange>,
) -> Result<Json<Interchanged>> {
    check_lists(call.outgoing_commands.len(), call.consumed_commands.len())?;
    let Runtime {
        runtime_id: id,
        generation,
    } = caller;
    if !call.outgoing_commands.is_empty() {
        let caller = runtime::caller(&app, id, generation).await?;
        for element in &call.outgoing_commands {
            carry_out(&app, &caller, element).await?;
        }
    }
    let deadline = deadline(call.wait_ms);
    let listener = app.db.hub().listen(News::Runtime(id));
    let mut consumed = call.consumed_commands.as_slice();
    loop {
        let mut notified = std::pin::pin!(listener.notified());
        notified.as_mut().enable();
        let commands = runtime::interchange(&app, id, generation, consumed, call.ready != Some(false)).await?;
        let now = Instant::now();
        if !commands.is_empty() || now >= deadline || app.stopping.is_cancelled() {
            return Ok(Json(Interchanged {
                incoming_commands: commands.iter().map(to_raw).collect(),
            }));
        }
        consumed = &[];
        tokio::select! {
            () = notified => {}
            () = app.stopping.cancelled() => {}
            () = tokio::time::sleep_until(deadline.min(now + LOOK_AGAIN)) => {}
        }
    }
}

/// Carries out one command. One that cannot be carried out is told to the runtime and fails alone; only our own trouble
/// fails the call, so that the runtime sends it again.
async fn carry_out(app: &App, caller: &Caller, element: &Raw) -> Result<()> {
    let command = match parse_from_runtime(element) {
        Ok(command) if element.get().len() <= MESSAGE_MAX => command,
        Ok(command) => {
            return refuse(
                app,
                caller,
                command.qualifier(),
                None,
                format!("larger than {MESSAGE_MAX} bytes"),
            )
            .await;
        }
        Err(Refused::Malformed(reason) | Refused::NotOutgoing(reason)) => {
            return refuse(app, caller, "UNKNOWN", None, reason).await;
        }
    };
    let qualifier = command.qualifier();
    let client = client_of(&command);
    match try_command(app, caller, command).await {
        Ok(()) => Ok(()),
        Err(cause @ (Error::Unavailable(_) | Error::ShardLocked | Error::Internal(_))) => Err(cause),
        Err(cause) => refuse(app, caller, qualifier, client, cause.to_string()).await,
    }
}

async fn refuse(
    app: &App,
    caller: &Caller,
    qualifier: &str,
    client_id: Option<ClientId>,
    reason: String,
) -> Result<()> {
    tracing::warn!(runtime.id = %caller.id, command = qualifier, reason, "a command could not be carried out");
    let failed = CommandFailed {
        qualifier: qualifier.to_owned(),
        client_id,
        reason,
    };
    runtime::tell(app, caller.id, failed.into()).await
}

fn client_of(command: &FromRuntime) -> Option<ClientId> {
    match command {
        FromRuntime::RespondClient(body) => Some(body.client_id),
        FromRuntime::SetProfile(body) => Some(body.client_id),
        FromRuntime::RequestMatchmaking(body) => Some(body.client_id),
        FromRuntime::KickClient(body) => Some(body.client_id),
        FromRuntime::UpgradeConnection(body) => Some(body.client_id),
        FromRuntime::MulticastMessage(_) | FromRuntime::BroadcastMessage(_) | FromRuntime::StopMatchmaking(_) => None,
    }
}

async fn try_command(app: &App, caller: &Caller, command: FromRuntime) -> Result<()> {
    let assigned = async |client: ClientId| -> Result<_> {
        let found = runtime::assigned(app, caller.id, Some(&[client])).await?;
        found.first().copied().ok_or_else(|| Error::not_found("client", client))
    };
    match command {
        FromRuntime::RespondClient(body) => {
            assigned(body.client_id).await?;
            let message = Produced { message: body.message };
            must_fit(app.mail.send(app, &[body.client_id], &message.into()).await?)
        }
        FromRuntime::MulticastMessage(body) => {
            let mut clients = body.clients;
            clients.sort_unstable();
            clients.dedup();
            let found = runtime::assigned(app, caller.id, Some(&clients)).await?;
            if found.len() != clients.len() {
                return Err(Error::not_found("client", "of the list"));
            }
            let message = Produced { message: body.message };
            let dropped = app.mail.send(app, &clients, &message.into()).await?;
            note_dropped(caller, dropped);
            Ok(())
        }
        FromRuntime::BroadcastMessage(body) => {
            let clients: Vec<ClientId> = runtime::assigned(app, caller.id, None)
                .await?
                .into_iter()
                .map(|(client, ..)| client)
                .collect();
            let message = Produced { message: body.message };
            let dropped = app.mail.send(app, &clients, &message.into()).await?;
            note_dropped(caller, dropped);
            Ok(())
        }
        FromRuntime::SetProfile(body) => {
            let (_, user, stage) = assigned(body.client_id).await?;
            client::set_profile(app, user, stage, &body.profile).await
        }
        FromRuntime::RequestMatchmaking(body) => {
            assigned(body.client_id).await?;
            let asked = cell::request_match(app, caller.deployment, caller.venue, body.client_id, &body.mode).await?;
            asked.map_err(Error::Invalid)
        }
        FromRuntime::KickClient(body) => {
            assigned(body.client_id).await?;
            if caller.is_lobby {
                client::kick(app, body.client_id).await
            } else {
                cell::kick(app, caller.deployment, caller.venue, body.client_id).await
            }
        }
        FromRuntime::StopMatchmaking(_) if caller.is_lobby => Err(Error::Invalid("a lobby has no matchmaking".into())),
        FromRuntime::StopMatchmaking(_) => {
            cell::stop_matchmaking(app, caller.deployment, caller.venue).await?;
            Ok(())
        }
        FromRuntime::UpgradeConnection(body) => {
            assigned(body.client_id).await?;
            let message = ConnectionUpgraded {
                client_id: body.client_id,
                protocol: Protocol::Dispatcher,
                web_socket_config: None,
                runtime_id: Some(caller.id),
            };
            must_fit(app.mail.send(app, &[body.client_id], &message.into()).await?)
        }
    }
}

/// What was for one client and was dropped could not be carried out.
fn must_fit(dropped: usize) -> Result<()> {
    if dropped == 0 {
        return Ok(());
    }
    Err(Error::Conflict(
        "too many messages wait for the client, which does not fetch them".into(),
    ))
}

/// What was for many is carried out for those who listen: a game that speaks to everybody many times a second is not told
/// each time of one who does not.
fn note_dropped(caller: &Caller, dropped: usize) {
    if dropped > 0 {
        tracing::debug!(runtime.id = %caller.id, dropped, "clients that do not fetch their messages were left out");
    }
}

pub(super) async fn dispatcher_token(
    State(app): State<App>,
    _: Anybody,
    from: Address,
    Body(call): Body<dispatcher::CreateToken>,
) -> Result<Json<RawToken>> {
    super::admin::log_in(&app, from, &call.user, &call.password).await
}

/// Sockets that are open count as activity; a room that was lost makes us look at its runtime sooner.
pub(super) async fn calculate_shard(
    State(app): State<App>,
    _: Dispatcher,
    Body(call): Body<dispatcher::CalculateShard>,
) -> Result<Json<dispatcher::CalculatedShard>> {
    Ok(Json(dispatcher::CalculatedShard {
        shard_index: super::admin::shard_of(&app, &call.shard_key)?,
        server_uri: app.config.server_uri.clone(),
        foreign: false,
    }))
}

pub(super) async fn report(
    State(app): State<App>,
    _: Dispatcher,
    Body(call): Body<dispatcher::Report>,
) -> Result<Json<Empty>> {
    for client in &call.connected_clients {
        app.activity.touch_client(*client);
    }
    for event in &call.events {
        match event {
            RoomEvent::RoomOpened { runtime_id } => {
                app.activity.touch_runtime(*runtime_id);
                metrics::counter!("omgservers_rooms_total", "change" => "opened").increment(1);
            }
            RoomEvent::RoomLost { .. } => metrics::counter!("omgservers_rooms_total", "change" => "lost").increment(1),
            RoomEvent::PlayerJoined { client_id, .. } => {
                app.activity.touch_client(*client_id);
                metrics::counter!("omgservers_sockets_total", "change" => "joined").increment(1);
            }
            RoomEvent::PlayerLeft { .. } => {
                metrics::counter!("omgservers_sockets_total", "change" => "left").increment(1)
            }
        }
    }
    Ok(Json(Empty {}))
}

pub(super) async fn keys(State(app): State<App>) -> Json<Keys> {
    Json(app.tokens.keys())
}
