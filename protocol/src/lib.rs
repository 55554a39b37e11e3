//! Everything two processes of OMGSERVERS must agree on: identifiers, calls and replies, messages, tokens, the
//! dispatcher's binary link. No I/O unless a feature asks for it.

pub mod admin;
pub mod audit;
pub mod call;
#[cfg(feature = "client")]
pub mod client;
pub mod config;
pub mod developer;
pub mod dispatcher;
pub mod error;
pub mod id;
#[cfg(feature = "server")]
pub mod listen;
pub mod message;
pub mod mux;
#[cfg(feature = "openapi")]
mod openapi;
pub mod player;
pub mod runtime;
#[cfg(feature = "server")]
pub mod setting;
pub mod support;
#[cfg(feature = "telemetry")]
pub mod telemetry;
pub mod text;
#[cfg(feature = "token")]
pub mod token;
#[cfg(feature = "server")]
pub mod trace;
pub mod w1;

pub use call::Call;
pub use error::{ErrorBody, Qualifier};

/// Free-form JSON of games and players: handed through byte for byte, never interpreted.
pub type Json = Box<serde_json::value::RawValue>;

/// `{}` as free-form JSON.
pub fn empty_json() -> Json {
    serde_json::value::RawValue::from_string("{}".to_owned()).expect("`{}` is JSON")
}
