//! What a player may ask.

use serde::{Deserialize, Serialize};

use crate::Json;
use crate::call::{Empty, PasswordChange, RawToken, calls};
use crate::id::{ClientId, MessageId, RuntimeId, UserId};
use crate::support::CreatedUser;
use crate::text::Text;

calls!("player";
    PingService => Pong, "ping-service";
    CreateUser => CreatedUser, "create-user";
    CreateToken => RawToken, "create-token";
    RenewToken => RawToken, "renew-token";
    ChangePassword => Empty, "change-password";
    CreateClient => CreatedClient, "create-client";
    Interchange => Interchanged, "interchange";
    RenewConnection => RenewedConnection, "renew-connection";
);

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PingService {
    pub message: Text,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Pong {
    pub message: String,
}

/// Makes an anonymous user.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreateUser {}

/// Logs in by id.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreateToken {
    pub user_id: UserId,
    pub password: Text,
}

/// A fresh token for one that is about to expire.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RenewToken {}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct ChangePassword(pub PasswordChange);

/// "I want to play this game here."
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreateClient {
    pub tenant: Text,
    pub project: Text,
    pub stage: Text,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreatedClient {
    pub client_id: ClientId,
}

/// Sends messages, acknowledges those received, and fetches new ones.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Interchange {
    pub client_id: ClientId,
    /// Parsed one by one ([`crate::w1::parse_from_player`]), so that a bad one fails alone.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
    pub outgoing_messages: Vec<Json>,
    pub consumed_messages: Vec<MessageId>,
    /// How long the reply may be held until there is something to say, at most 20 000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
}

/// Messages as [`crate::w1::PlayerMessage`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Interchanged {
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
    pub incoming_messages: Vec<Json>,
}

/// A fresh WebSocket token for the runtime that the client is in, after the socket was lost.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RenewConnection {
    pub client_id: ClientId,
}

#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RenewedConnection {
    pub runtime_id: RuntimeId,
    pub ws_token: String,
}
