//! Jobs that bring players to their places. Each step is one transaction in one shard; all of them may be repeated.

use std::time::Duration;

use omgservers_protocol::id::{ClientId, DeploymentId, TenantId};

use super::Again;
use crate::App;
use crate::db::Shard;
use crate::entity::client::Moved;
use crate::entity::{cell, client, deployment, runtime, tombstone};
use crate::error::{Error, Result};

/// How often a new client asks for a deployment that was made a moment ago.
const CELL_WAIT: Duration = Duration::from_millis(100);

/// Something of a tenant was deleted or deployed.
pub(super) async fn tenant(app: &App, id: TenantId) -> Result<Again> {
    tombstone::cascade(app, id).await?;
    loop {
        let (unsynced, more) = deployment::unsynced(app, id).await?;
        let (mut synced, mut failed) = (Vec::new(), None);
        for deployment in unsynced {
            match cell::sync(app, id, &deployment).await {
                Ok(()) => synced.push(deployment),
                // One that cannot be helped keeps no other waiting.
                Err(cause) => failed = Some(cause),
            }
        }
        deployment::synced(app, id, &synced).await?;
        match failed {
            Some(cause) => return Err(cause),
            None if !more => return Ok(None),
            None => {}
        }
    }
}

/// Somebody came, left or wishes for a match; a lobby or match opened or ended.
pub(super) async fn cell(app: &App, id: DeploymentId) -> Result<Again> {
    Ok(cell::reconcile(app, id).await?.map(Duration::from_millis))
}

/// A client has a new place or a new reason to wait: first the client hears, then its new runtime, then the old one.
pub(super) async fn seat(app: &App, shard: Shard, id: ClientId) -> Result<Again> {
    let Some(seat) = cell::seat(app, shard, id).await? else {
        return Ok(None);
    };
    match client::take_seat(app, id, &seat).await? {
        Moved::Gone => cell::leave(app, seat.deployment, id).await?,
        Moved::Told { left_runtimes } => {
            if seat.place.is_some() {
                let profile = client::profile(app, seat.user, seat.stage).await?;
                runtime::add_client(app, id, &seat, profile).await?;
            }
            for left in &left_runtimes {
                runtime::remove_client(app, *left, id).await?;
            }
            client::seat_taken(app, id, &left_runtimes).await?;
        }
    }
    Ok(None)
}

/// A client is new or deleted.
pub(super) async fn client(app: &App, id: ClientId) -> Result<Again> {
    let Some(view) = client::view(app, id).await? else {
        return Ok(None);
    };
    if view.deleted {
        cell::leave(app, view.deployment, id).await?;
        let mut runtimes = view.left_runtimes;
        runtimes.extend(view.runtime);
        for left in &runtimes {
            runtime::remove_client(app, *left, id).await?;
        }
        client::left_all(app, id).await?;
        return Ok(None);
    }
    match cell::enter(app, view.deployment, id, view.user, view.stage).await {
        Ok(()) => Ok(None),
        // Its deployment may be just being made, or it may be gone.
        Err(Error::NotFound { .. }) if view.age < Duration::from_secs(20) => Ok(Some(CELL_WAIT)),
        Err(Error::NotFound { .. }) => {
            client::disconnect(app, id).await?;
            Ok(None)
        }
        Err(cause) => Err(cause),
    }
}

/// A player said something: it becomes commands of the runtime that the player is in. What a runtime cannot take yet stays,
/// and is announced again when the player has a place.
pub(super) async fn outgoing(app: &App, id: ClientId) -> Result<Again> {
    let Some((to, messages)) = client::outgoing(app, id).await? else {
        return Ok(None);
    };
    if let Some(up_to) = runtime::forward(app, to, id, &messages).await? {
        client::forwarded(app, id, up_to).await?;
    }
    Ok(None)
}
