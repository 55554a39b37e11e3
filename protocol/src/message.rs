//! What players and runtimes are told and say, in the neutral form that the database keeps: a kind and a body. Dialects
//! (such as [`crate::w1`]) are made of it when it is read.

use serde::{Deserialize, Serialize};

use crate::Json;
use crate::config::{RuntimeConfig, RuntimeQualifier};
use crate::id::{ClientId, MatchmakerId, RuntimeId, TenantId, UserId, VersionId};

/// Declares messages of one direction: a struct for each body, the enum over them, and the way to and from its parts.
/// The first name is the neutral kind, the second the qualifier on the wire (dialect W1).
macro_rules! messages {
    ($(#[$doc:meta])* $enum:ident {$(
        $(#[$variant_doc:meta])* $variant:ident $kind:literal $wire:literal { $($(#[$field_doc:meta])* $field:ident: $type:ty),* $(,)? }
    )*}) => {
        $(
            $(#[$variant_doc])*
            #[derive(Debug, Clone, Serialize, Deserialize)]
            pub struct $variant { $($(#[$field_doc])* pub $field: $type),* }

            impl From<$variant> for $enum {
                fn from(body: $variant) -> Self {
                    Self::$variant(body)
                }
            }
        )*

        $(#[$doc])*
        #[derive(Debug, Clone, Serialize)]
        #[serde(untagged)]
        pub enum $enum { $($(#[$variant_doc])* $variant($variant)),* }

        impl $enum {
            /// The neutral name that is stored.
            pub fn kind(&self) -> &'static str {
                match self { $(Self::$variant(_) => $kind),* }
            }

            /// The name on the wire, dialect W1.
            pub fn qualifier(&self) -> &'static str {
                match self { $(Self::$variant(_) => $wire),* }
            }

            /// The wire name of a stored kind.
            pub fn qualifier_of(kind: &str) -> Option<&'static str> {
                match kind { $($kind => Some($wire),)* _ => None }
            }

            /// Reads a message of the wire; `None` for a qualifier that this build does not know.
            pub fn parse(qualifier: &str, body: &str) -> Option<Result<Self, serde_json::Error>> {
                match qualifier {
                    $($wire => Some(serde_json::from_str::<$variant>(body).map(Self::$variant)),)*
                    _ => None,
                }
            }

            /// The body as JSON.
            pub fn body(&self) -> Json {
                serde_json::value::to_raw_value(self).expect("messages are plain data")
            }
        }
    };
}

messages!(
    /// Service → player.
    ToPlayer {
        /// Once, after a client was created.
        Welcome "welcome" "SERVER_WELCOME_MESSAGE" { tenant_id: TenantId, version_id: VersionId, version_created: String }
        /// Once per client.
        MatchmakerAssigned "matchmaker_assigned" "MATCHMAKER_ASSIGNMENT_MESSAGE" { matchmaker_id: MatchmakerId }
        /// The client moved to a runtime.
        RuntimeAssigned "runtime_assigned" "RUNTIME_ASSIGNMENT_MESSAGE" {
            runtime_id: RuntimeId, runtime_qualifier: RuntimeQualifier, runtime_config: RuntimeConfig,
        }
        /// The runtime asks for a socket.
        ConnectionUpgraded "connection_upgraded" "CONNECTION_UPGRADE_MESSAGE" {
            client_id: ClientId,
            protocol: Protocol,
            /// Minted when the message is rendered, never stored.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            web_socket_config: Option<WebSocketConfig>,
            /// Which runtime asked: kept with the stored message, not sent.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            runtime_id: Option<RuntimeId>,
        }
        /// The client was deleted.
        Disconnected "disconnected" "DISCONNECTION_REASON_MESSAGE" { reason: DisconnectReason }
        /// A message of the runtime.
        Produced "produced" "SERVER_OUTGOING_MESSAGE" { message: Json }
        /// Why the player waits. Old SDKs ignore it.
        ProvisioningStatus "provisioning_status" "PROVISIONING_STATUS_MESSAGE" {
            stage: ProvisioningStage,
            /// Place in the line, from 1, where there is one.
            position: Option<u32>,
            /// For people: `1 of 2 players`, or why it failed.
            detail: Option<String>,
        }
    }
);

#[derive(Clone, Serialize, Deserialize)]
pub struct WebSocketConfig {
    pub ws_token: String,
}

impl std::fmt::Debug for WebSocketConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WebSocketConfig(…)")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum DisconnectReason {
    ClientInactivity,
    InternalFailure,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ProvisioningStage {
    Queued,
    PullingImage,
    Starting,
    Matchmaking,
    Ready,
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Protocol {
    Dispatcher,
}

messages!(
    /// Service → runtime.
    ToRuntime {
        /// Always the first.
        Init "init" "INIT_RUNTIME" { runtime_config: RuntimeConfig }
        /// A client is assigned to this lobby.
        AddClient "add_lobby_client" "ADD_CLIENT" { user_id: UserId, client_id: ClientId, profile: Json }
        /// A client is assigned to this match.
        AddMatchClient "add_match_client" "ADD_MATCH_CLIENT" {
            user_id: UserId, client_id: ClientId, group_name: String, profile: Json,
        }
        /// A client left.
        DeleteClient "delete_client" "DELETE_CLIENT" { client_id: ClientId }
        /// A message of a player.
        HandleMessage "handle_message" "HANDLE_MESSAGE" { client_id: ClientId, message: Json }
        /// A command of this runtime could not be carried out. Old SDKs ignore it.
        CommandFailed "command_failed" "COMMAND_FAILED" {
            qualifier: String, client_id: Option<ClientId>, reason: String,
        }
    }
);

messages!(
    /// Runtime → service; the same in every dialect.
    FromRuntime {
        RespondClient "respond_client" "RESPOND_CLIENT" { client_id: ClientId, message: Json }
        MulticastMessage "multicast_message" "MULTICAST_MESSAGE" {
            #[serde(alias = "client")]
            clients: Vec<ClientId>,
            message: Json,
        }
        BroadcastMessage "broadcast_message" "BROADCAST_MESSAGE" { message: Json }
        SetProfile "set_profile" "SET_PROFILE" { client_id: ClientId, profile: Json }
        RequestMatchmaking "request_matchmaking" "REQUEST_MATCHMAKING" { client_id: ClientId, mode: String }
        KickClient "kick_client" "KICK_CLIENT" { client_id: ClientId }
        StopMatchmaking "stop_matchmaking" "STOP_MATCHMAKING" {}
        UpgradeConnection "upgrade_connection" "UPGRADE_CONNECTION" { client_id: ClientId, protocol: Protocol }
    }
);

/// Player → runtime.
#[derive(Debug, Clone)]
pub struct FromPlayer {
    /// The client's own counter, by which a repeated request is recognised.
    pub number: Option<i64>,
    pub data: Json,
}
