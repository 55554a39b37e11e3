//! The body of every failed request.

use serde::{Deserialize, Serialize};

/// `{"qualifier":"OBJECT_NOT_FOUND","message":"tenant `acme` not found"}`: the first for programs, the second for people.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ErrorBody {
    pub qualifier: Qualifier,
    #[serde(default)]
    pub message: String,
}

/// What went wrong, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Qualifier {
    WrongRequest,
    WrongMediaType,
    WrongArgument,
    WrongClientId,
    WrongClientMessageBodyType,
    WrongCredentials,
    WrongVersionState,
    WrongVersionZip,
    VersionZipNotFound,
    ValidationConstraintViolated,
    DbConstraintViolated,
    UserNotFound,
    PermissionNotFound,
    ObjectNotFound,
    ParentNotFound,
    DeploymentNotFound,
    RuntimeNotFound,
    ShardLocked,
    QuotaExceeded,
    StageInMaintenance,
    /// Of an address, of a user, or with wrong passwords; the header `Retry-After` says when to come back.
    TooManyRequests,
    InternalExceptionOccurred,
    /// One that this build does not know.
    #[serde(other)]
    Unknown,
}
