//! Operations of players.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use omgservers_protocol::Json as Raw;
use omgservers_protocol::call::{Empty, RawToken};
use omgservers_protocol::player::{
    ChangePassword, CreateClient, CreateToken, CreateUser, CreatedClient, Interchange, Interchanged, PingService, Pong,
    RenewConnection, RenewToken, RenewedConnection,
};
use omgservers_protocol::support::CreatedUser;
use omgservers_protocol::token::Role;
use omgservers_protocol::w1::{Refused, parse_from_player};
use tokio::time::Instant;

use super::Body;
use crate::App;
use crate::address::Address;
use crate::entity::client::Exchange;
use crate::entity::{account, client, deployment, quota};
use crate::error::{Error, Result};
use crate::principal::{Anybody, Player};
use crate::wake::News;

/// Longest time that a reply is held.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(20);
/// A held reply looks again so often, should a wake-up have been lost.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// Messages for which there is no room are tried once more after this time. Old SDKs repeat a failed call at once, and few
/// times: the runtime gets a moment each time.
const ROOM_PAUSE: Duration = Duration::from_millis(200);
/// Largest message of a player.
const MESSAGE_MAX: usize = 64 * 1_024;
/// Most elements in one list of a call.
pub(super) const LIST_MAX: usize = 1_024;

pub(super) async fn ping(_: Anybody, Body(_): Body<PingService>) -> Json<Pong> {
    Json(Pong { message: "pong".into() })
}

pub(super) async fn create_user(
    State(app): State<App>,
    _: Anybody,
    from: Address,
    Body(_): Body<CreateUser>,
) -> Result<Json<CreatedUser>> {
    app.limits.admit_sign_up(from)?;
    account::create(&app, None, Role::Player).await.map(Json)
}

pub(super) async fn create_token(
    State(app): State<App>,
    _: Anybody,
    from: Address,
    Body(call): Body<CreateToken>,
) -> Result<Json<RawToken>> {
    Ok(Json(RawToken {
        raw_token: account::log_in(&app, from, call.user_id, &call.password).await?,
    }))
}

pub(super) async fn renew_token(
    State(app): State<App>,
    player: Player,
    Body(_): Body<RenewToken>,
) -> Result<Json<RawToken>> {
    super::admin::renew(&app, &player).await
}

pub(super) async fn change_password(
    State(app): State<App>,
    from: Address,
    player: Player,
    Body(call): Body<ChangePassword>,
) -> Result<Json<Empty>> {
    account::change_password(&app, from, &player, &call.0).await?;
    Ok(Json(Empty {}))
}

pub(super) async fn create_client(
    State(app): State<App>,
    player: Player,
    Body(call): Body<CreateClient>,
) -> Result<Json<CreatedClient>> {
    let target = deployment::newest(&app, &call).await?;
    if let Some(max) = target.players_max {
        quota::admit_player(&app, target.tenant, max).await?;
    }
    Ok(Json(CreatedClient {
        client_id: client::create(&app, player.user_id, &target).await?,
    }))
}

pub(super) async fn interchange(
    State(app): State<App>,
    player: Player,
    Body(call): Body<Interchange>,
) -> Result<Json<Interchanged>> {
    check_lists(call.outgoing_messages.len(), call.consumed_messages.len())?;
    let mut outgoing = Vec::with_capacity(call.outgoing_messages.len());
    for element in &call.outgoing_messages {
        if element.get().len() > MESSAGE_MAX {
            return Err(Error::Invalid(format!("a message is larger than {MESSAGE_MAX} bytes")));
        }
        outgoing.push(parse_from_player(element).map_err(|refused| match refused {
            Refused::Malformed(reason) => Error::WrongRequest(reason),
            Refused::NotOutgoing(reason) => Error::NotOutgoing(reason),
        })?);
    }
    let deadline = deadline(call.wait_ms);
    let listener = app.db.hub().listen(News::Client(call.client_id));
    let mut exchange = Exchange {
        client: call.client_id,
        user: player.user_id,
        outgoing: &outgoing,
        consumed: &call.consumed_messages,
    };
    let mut has_paused = false;
    loop {
        let mut notified = std::pin::pin!(listener.notified());
        notified.as_mut().enable();
        let Some(messages) = client::interchange(&app, &exchange).await? else {
            if has_paused {
                return Err(Error::Unavailable("too many messages wait for the runtime, try again"));
            }
            has_paused = true;
            tokio::time::sleep(ROOM_PAUSE).await;
            continue;
        };
        let now = Instant::now();
        if !messages.is_empty() || now >= deadline || app.stopping.is_cancelled() {
            let incoming_messages = messages.iter().map(to_raw).collect();
            return Ok(Json(Interchanged { incoming_messages }));
        }
        exchange = Exchange {
            outgoing: &[],
            consumed: &[],
            ..exchange
        };
        tokio::select! {
            () = notified => {}
            () = app.stopping.cancelled() => {}
            () = tokio::time::sleep_until(deadline.min(now + LOOK_AGAIN)) => {}
        }
    }
}

pub(super) fn deadline(wait_ms: Option<u64>) -> Instant {
    Instant::now() + Duration::from_millis(wait_ms.unwrap_or(0)).min(WAIT_MAX)
}

pub(super) fn check_lists(outgoing: usize, consumed: usize) -> Result<()> {
    if outgoing > LIST_MAX || consumed > LIST_MAX {
        return Err(Error::Invalid(format!("a list has more than {LIST_MAX} elements")));
    }
    Ok(())
}

pub(super) fn to_raw(message: &impl serde::Serialize) -> Raw {
    serde_json::value::to_raw_value(message).expect("messages are plain data")
}

pub(super) async fn renew_connection(
    State(app): State<App>,
    player: Player,
    Body(call): Body<RenewConnection>,
) -> Result<Json<RenewedConnection>> {
    let runtime_id = client::current_runtime(&app, player.user_id, call.client_id).await?;
    app.activity.touch_client(call.client_id);
    let ws_token = app.tokens.for_player_socket(call.client_id, runtime_id);
    Ok(Json(RenewedConnection { runtime_id, ws_token }))
}
