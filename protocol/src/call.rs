//! A call is a request, its reply and the address where the one becomes the other.

use serde::Serialize;
use serde::de::DeserializeOwned;

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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct Empty {}

/// A fresh access token.
#[derive(Debug, Clone, Serialize, serde::Deserialize)]
pub struct RawToken {
    pub raw_token: String,
}

/// Whether there was something to delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct Deleted {
    pub deleted: bool,
}
