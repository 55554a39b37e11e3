//! What a dispatcher tells the service.

use serde::{Deserialize, Serialize};

use crate::call::{Empty, RawToken, calls};
use crate::id::{ClientId, RuntimeId};
use crate::text::{self, Text};

calls!("dispatcher";
    CreateToken => RawToken, "create-token";
    CalculateShard => CalculatedShard, "calculate-shard";
    Report => Empty, "report";
);

/// Where the service publishes the keys that tokens are verified with.
pub const KEYS_ROUTE: &str = "/service/v1/keys";

/// Logs in by id or alias.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreateToken {
    #[serde(deserialize_with = "text::any")]
    pub user: Text,
    pub password: Text,
}

/// In which shard the entities of a key are.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CalculateShard {
    #[serde(deserialize_with = "text::any")]
    pub shard_key: Text,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CalculatedShard {
    pub shard_index: u16,
    pub server_uri: String,
    /// Whether another server must be asked: never, since any instance serves any shard.
    pub foreign: bool,
}

/// Rooms opened and lost, players joined and left since the last report, oldest first.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Report {
    pub events: Vec<RoomEvent>,
    /// Everybody whose socket is open, so that an open socket counts as activity.
    #[serde(default)]
    pub connected_clients: Vec<ClientId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "qualifier", content = "body", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RoomEvent {
    RoomOpened { runtime_id: RuntimeId },
    RoomLost { runtime_id: RuntimeId },
    PlayerJoined { runtime_id: RuntimeId, client_id: ClientId },
    PlayerLeft { runtime_id: RuntimeId, client_id: ClientId },
}
