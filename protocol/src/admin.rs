//! What an admin may ask: it looks after the installation and its operators.

use serde::{Deserialize, Serialize};

use crate::audit::AuditRecord;
use crate::call::{Empty, Page, Paging, PasswordChange, RawToken, calls};
use crate::developer::Timestamp;
use crate::id::{HostId, UserId};
use crate::support::CreatedUser;
use crate::text::{self, Secret, Text};

calls!("admin";
    CreateToken => RawToken, "create-token";
    RenewToken => RawToken, "renew-token";
    ChangePassword => Empty, "change-password";
    ResetPassword => CreatedUser, "reset-password";
    GenerateId => GeneratedId, "generate-id";
    BcryptHash => BcryptedHash, "bcrypt-hash";
    CalculateShard => CalculatedShard, "calculate-shard";
    PingDockerHost => PingedDockerHost, "ping-docker-host";
    ListShards => Page<Shard>, "list-shards";
    ListInstances => Page<Instance>, "list-instances";
    ListHosts => Page<Host>, "list-hosts";
    ListUsers => Page<User>, "list-users";
    ListAuditRecords => Page<AuditRecord>, "list-audit-records";
    ListFailedJobs => Page<FailedJob>, "list-failed-jobs";
);

/// Logs in by id or alias.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreateToken {
    #[serde(deserialize_with = "text::any")]
    pub user: Text,
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

/// A new generated password for somebody who lost theirs. Their tokens are refused from then on.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ResetPassword {
    /// Id or alias.
    pub user: Text,
}

/// A new id from the installation's generator.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GenerateId {}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GeneratedId {
    pub id: crate::id::CommandId,
}

/// Hashes a text as passwords of people are stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BcryptHash {
    /// At most 72 bytes.
    pub value: Secret,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BcryptedHash {
    pub hash: String,
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
    /// Where that shard is served: here, since any instance serves any shard.
    pub server_uri: String,
}

/// Whether a Docker engine answers the service.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PingDockerHost {
    pub docker_daemon_uri: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PingedDockerHost {
    pub successful: bool,
    pub from_server: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListShards {
    #[serde(flatten)]
    pub paging: Paging,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Shard {
    pub shard_index: u16,
    /// The number of the configured database, from 0.
    pub database: u32,
    /// What its tables and indexes take on the database's disk.
    pub bytes: i64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListInstances {
    #[serde(flatten)]
    pub paging: Paging,
}

/// A process of the service.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Instance {
    /// Its part of ids.
    pub instance_id: u16,
    pub alive: bool,
    /// Until when its number is leased, or was.
    pub until: Timestamp,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListHosts {
    #[serde(flatten)]
    pub paging: Paging,
}

/// A machine of the default pool, as configured, and what is placed on it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Host {
    pub id: HostId,
    pub docker_daemon_uri: String,
    /// Whether it answers the instance that was asked.
    pub connected: bool,
    pub cpu_count: i32,
    pub memory_size: i32,
    pub max_containers: i32,
    /// Hundredths of a core.
    pub cpu_used: i64,
    /// Megabytes.
    pub memory_used: i64,
    pub containers: i64,
    pub created: Timestamp,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListFailedJobs {
    #[serde(flatten)]
    pub paging: Paging,
}

/// Work that failed, and is tried again and again until it succeeds.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FailedJob {
    pub shard_index: u16,
    /// What it looks after.
    pub kind: String,
    /// The id of that.
    pub key: String,
    pub attempts: u32,
    /// Why it failed the last time.
    pub error: String,
    pub since: Timestamp,
    pub retry_at: Timestamp,
}

/// Everybody with a password, of one role or of all.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListUsers {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Text>,
    #[serde(flatten)]
    pub paging: Paging,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct User {
    pub id: UserId,
    pub role: String,
    pub aliases: Vec<String>,
    pub created: Timestamp,
    pub deleted: bool,
}

/// The newest first.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListAuditRecords {
    #[serde(flatten)]
    pub paging: Paging,
}
