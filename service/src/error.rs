//! Every failure that a caller can see, and its one translation to HTTP.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use omgservers_protocol::{ErrorBody, Qualifier};

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not JSON, or not of the expected shape.
    #[error("{0}")]
    WrongRequest(String),
    /// A field is missing, blank, too long or contradicts another.
    #[error("{0}")]
    Invalid(String),
    /// Understood, but of no use.
    #[error("{0}")]
    WrongArgument(String),
    #[error("the content type must be {0}")]
    WrongMediaType(&'static str),
    #[error("the archive is refused: {0}")]
    WrongZip(String),
    #[error("the file part must be named `version.zip`")]
    ZipMissing,
    #[error("the body is larger than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("{0}")]
    WrongCredentials(&'static str),
    #[error("the user is deleted")]
    UserDeleted,
    /// Known, but not allowed.
    #[error("{0}")]
    Forbidden(String),
    #[error("the version and the stage belong to different projects")]
    OtherProject,
    #[error("{kind} `{key}` not found")]
    NotFound { kind: &'static str, key: String },
    /// Neither its name nor its number is said: it may be there, and be somebody else's.
    #[error("tenant not found")]
    NoTenant,
    #[error("{kind} `{key}` is gone or never was")]
    ParentNotFound { kind: &'static str, key: String },
    #[error("nothing is deployed on stage `{stage}`")]
    NothingDeployed { stage: String },
    #[error("the runtime is gone")]
    RuntimeGone,
    #[error("{0}")]
    Conflict(String),
    #[error("there is no version `{version}` with an image")]
    NoImage { version: String },
    #[error("the client belongs to another user")]
    OthersClient,
    #[error("{0}")]
    NotOutgoing(String),
    #[error("{0}")]
    QuotaExceeded(String),
    /// What the studio tells its players.
    #[error("{0}")]
    InMaintenance(String),
    #[error("{reason}, try again in {} s", whole_seconds(*.retry_after))]
    TooManyRequests {
        reason: &'static str,
        retry_after: std::time::Duration,
    },
    #[error("no such operation")]
    NoRoute,
    #[error("this operation wants POST")]
    WrongMethod,
    #[error("the shard is locked for a moment, try again")]
    ShardLocked,
    /// A Docker engine that an admin asked for.
    #[error("{0}")]
    HostAway(String),
    #[error("{0}")]
    Unavailable(&'static str),
    /// Ours, not the caller's: logged with its causes, shown without them.
    #[error("internal error")]
    Internal(#[from] anyhow::Error),
}

impl Error {
    pub fn not_found(kind: &'static str, key: impl ToString) -> Self {
        Self::NotFound {
            kind,
            key: key.to_string(),
        }
    }

    pub fn parent(kind: &'static str, key: impl ToString) -> Self {
        Self::ParentNotFound {
            kind,
            key: key.to_string(),
        }
    }

    fn answer(&self) -> (StatusCode, Qualifier) {
        use Qualifier as Q;
        use StatusCode as S;
        match self {
            Self::WrongRequest(_) => (S::BAD_REQUEST, Q::WrongRequest),
            Self::Invalid(_) => (S::BAD_REQUEST, Q::ValidationConstraintViolated),
            Self::WrongArgument(_) => (S::BAD_REQUEST, Q::WrongArgument),
            Self::WrongMediaType(_) => (S::BAD_REQUEST, Q::WrongMediaType),
            Self::WrongZip(_) => (S::BAD_REQUEST, Q::WrongVersionZip),
            Self::ZipMissing => (S::BAD_REQUEST, Q::VersionZipNotFound),
            Self::TooLarge { .. } => (S::PAYLOAD_TOO_LARGE, Q::WrongRequest),
            Self::WrongCredentials(_) => (S::UNAUTHORIZED, Q::WrongCredentials),
            Self::UserDeleted => (S::UNAUTHORIZED, Q::UserNotFound),
            Self::Forbidden(_) => (S::FORBIDDEN, Q::PermissionNotFound),
            Self::OtherProject => (S::FORBIDDEN, Q::WrongRequest),
            Self::NotFound { .. } | Self::NoTenant | Self::NoRoute => (S::NOT_FOUND, Q::ObjectNotFound),
            Self::ParentNotFound { .. } => (S::NOT_FOUND, Q::ParentNotFound),
            Self::NothingDeployed { .. } => (S::NOT_FOUND, Q::DeploymentNotFound),
            Self::RuntimeGone => (S::NOT_FOUND, Q::RuntimeNotFound),
            Self::Conflict(_) => (S::BAD_REQUEST, Q::DbConstraintViolated),
            Self::NoImage { .. } => (S::CONFLICT, Q::WrongVersionState),
            Self::OthersClient => (S::BAD_REQUEST, Q::WrongClientId),
            Self::NotOutgoing(_) => (S::BAD_REQUEST, Q::WrongClientMessageBodyType),
            Self::QuotaExceeded(_) => (S::FORBIDDEN, Q::QuotaExceeded),
            Self::InMaintenance(_) => (S::SERVICE_UNAVAILABLE, Q::StageInMaintenance),
            Self::TooManyRequests { .. } => (S::TOO_MANY_REQUESTS, Q::TooManyRequests),
            Self::WrongMethod => (S::METHOD_NOT_ALLOWED, Q::WrongRequest),
            Self::ShardLocked => (S::SERVICE_UNAVAILABLE, Q::ShardLocked),
            Self::HostAway(_) => (S::INTERNAL_SERVER_ERROR, Q::InternalExceptionOccurred),
            Self::Unavailable(_) => (S::SERVICE_UNAVAILABLE, Q::InternalExceptionOccurred),
            Self::Internal(_) => (S::INTERNAL_SERVER_ERROR, Q::InternalExceptionOccurred),
        }
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let (status, qualifier) = self.answer();
        if let Self::Internal(cause) = &self {
            tracing::error!(error = format!("{cause:#}"), "a request failed");
        }
        let mut response = (
            status,
            Json(ErrorBody {
                qualifier,
                message: self.to_string(),
            }),
        )
            .into_response();
        if status == StatusCode::UNAUTHORIZED {
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Self::TooManyRequests { retry_after, .. } = self {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from(whole_seconds(retry_after)));
        }
        response
    }
}

/// As the header counts: a wait that is cut short would be in vain.
fn whole_seconds(wait: std::time::Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

impl From<sqlx::Error> for Error {
    fn from(cause: sqlx::Error) -> Self {
        match &cause {
            sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed | sqlx::Error::Io(_) => {
                tracing::warn!(error = %cause, "the database does not answer");
                Self::Unavailable("the database does not answer, try again")
            }
            sqlx::Error::Database(error) if error.code().as_deref() == Some("55P03") => Self::ShardLocked,
            // The server is starting, stopping or was killed.
            sqlx::Error::Database(error) if error.code().is_some_and(|code| code.starts_with("57P")) => {
                Self::Unavailable("the database is restarting, try again")
            }
            _ => Self::Internal(anyhow::Error::new(cause).context("database")),
        }
    }
}

/// The name of the constraint that a statement violated.
pub fn constraint(cause: &sqlx::Error) -> Option<&str> {
    cause.as_database_error()?.constraint()
}
