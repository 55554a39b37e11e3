//! What a runtime may ask.

use serde::{Deserialize, Serialize};

use crate::Json;
use crate::call::calls;
use crate::id::{CommandId, RuntimeId};
use crate::text::Text;

calls!("runtime";
    CreateToken => RuntimeTokens, "create-token";
    Interchange => Interchanged, "interchange";
);

/// Logs in with the password from the environment.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreateToken {
    pub runtime_id: RuntimeId,
    pub password: Text,
}

/// One token for the API, one for the dispatcher.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RuntimeTokens {
    pub api_token: String,
    pub ws_token: String,
}

/// Sends commands, acknowledges those received, and fetches new ones.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Interchange {
    /// Parsed one by one ([`crate::w1::parse_from_runtime`]), so that a bad one fails alone.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
    pub outgoing_commands: Vec<Json>,
    pub consumed_commands: Vec<CommandId>,
    /// How long the reply may be held until there is something to say, at most 20 000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// `false` while the game is still loading: no player is sent to it yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
}

/// Commands as [`crate::w1::RuntimeCommand`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Interchanged {
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
    pub incoming_commands: Vec<Json>,
}
