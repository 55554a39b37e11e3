//! What is written down about a tenant and its operators: who did what, and how much was used.

use serde::{Deserialize, Serialize};

use crate::developer::Timestamp;
use crate::id::{ApiKeyId, AuditId, TenantId, UserId};

/// Something that an operator or developer changed.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditRecord {
    pub id: AuditId,
    pub created: Timestamp,
    pub user_id: UserId,
    /// By which the user logs in, if there is one.
    #[serde(default)]
    pub user_alias: Option<String>,
    pub role: String,
    /// Set when a program did it with a key of that user.
    pub api_key_id: Option<ApiKeyId>,
    /// Such as `create-project`.
    pub operation: String,
    pub tenant_id: Option<TenantId>,
    /// The id of what was changed.
    pub target: Option<String>,
    /// What else is worth knowing, never a secret.
    pub detail: Option<String>,
}

/// How much a tenant may have at a time. Nothing said is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Quotas {
    /// Lobbies and matches that run.
    pub runtimes: Option<u32>,
    /// CPU limits of those together, hundredths of a core.
    pub cpu: Option<u32>,
    /// Memory limits of those together, megabytes.
    pub memory: Option<u32>,
    /// Players who are connected.
    pub players: Option<u32>,
}

/// How much a tenant has now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct InUse {
    pub runtimes: u32,
    pub cpu: u32,
    pub memory: u32,
    pub players: u32,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TenantQuotas {
    pub quotas: Quotas,
    pub in_use: InUse,
}

/// What a tenant used on one day (UTC), in steps of the installation's interval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UsageRecord {
    /// Such as `2026-01-31`.
    pub day: String,
    pub runtime_seconds: i64,
    /// Seconds of reserved cores.
    pub cpu_seconds: i64,
    /// Reserved megabytes times seconds.
    pub memory_mb_seconds: i64,
    pub player_seconds: i64,
    /// The most at a time.
    pub runtimes_max: i32,
    pub players_max: i32,
}
