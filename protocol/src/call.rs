//! A call is a request, its reply and the address where the one becomes the other.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::text::Text;

/// One request the service answers. The service mounts `ROUTE` and clients post to it, so neither can drift.
pub trait Call: Serialize + DeserializeOwned + Send + 'static {
    type Reply: Serialize + DeserializeOwned + Send + 'static;
    const ROUTE: &'static str;
}

/// Declares requests with their addresses: `calls!("admin"; CreateToken => RawToken, "create-token"; …);`
macro_rules! calls {
    ($area:literal; $($call:ty => $reply:ty, $operation:literal);* $(;)?) => {$(
        impl $crate::call::Call for $call {
            type Reply = $reply;
            const ROUTE: &'static str = concat!("/service/v1/entrypoint/", $area, "/request/", $operation);
        }
    )*};
}
pub(crate) use calls;

/// The reply of an operation without a result, and the body of a request without arguments: `{}`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Empty {}

impl From<()> for Empty {
    fn from((): ()) -> Self {
        Self {}
    }
}

/// A fresh access token.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RawToken {
    pub raw_token: String,
}

impl std::fmt::Debug for RawToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RawToken(…)")
    }
}

/// Whether there was something to delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Deleted {
    pub deleted: bool,
}

/// Whether something was made that was not there before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Created {
    pub created: bool,
}

/// Which part of a list is wanted: nothing said is its beginning.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Paging {
    /// 1 to 500, 50 when it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_size: Option<u32>,
    /// What the page before said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_token: Option<String>,
}

/// A part of a list. It may be short, even empty, though more follows: only a missing token means the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page<T> {
    pub items: Vec<T>,
    pub next_page_token: Option<String>,
}

/// A new password for the caller. Tokens made with the old one are refused from then on.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PasswordChange {
    pub password: Text,
    pub new_password: Text,
}
