//! Write a game server for OMGSERVERS in a page of code.
//!
//! A game server is a process in a container, a *runtime*: the platform starts it as a lobby or as a match, sends
//! players to it and carries their traffic. This crate is its side of that bargain.
//!
//! ```no_run
//! use omgservers_runtime_sdk::{Error, Event, Lane, Runtime, Settings};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Error> {
//!     let mut runtime = Runtime::connect(Settings::from_environment()?).await?;
//!     // Load the map, then:
//!     runtime.ready();
//!     while let Some(event) = runtime.next().await {
//!         match event {
//!             // A player is assigned to us: ask for a socket.
//!             Event::ClientAdded { client, .. } => runtime.upgrade(client)?,
//!             // The socket is open: everybody hears of it.
//!             Event::Connected { client } => runtime.send_text_all(Lane::Reliable, &format!("{client} is here"))?,
//!             // What one says, all hear.
//!             Event::Packet { lane, bytes, .. } => runtime.send_all(lane, bytes)?,
//!             // Without a socket, messages go through the service.
//!             Event::Message { client, message } => runtime.respond(client, &message)?,
//!             Event::Stop => runtime.broadcast("the server restarts")?,
//!             _ => {}
//!         }
//!     }
//!     runtime.close().await;
//!     Ok(())
//! }
//! ```
//!
//! - [`Runtime`] is all there is: events come out of [`Runtime::next`] (or [`Runtime::try_next`] in a game with a fixed
//!   tick), everything else is a call that returns at once.
//! - [`testing::Platform`] drives the same game code without a network.
//! - With the feature `player`, `player::Player` is the other side: bots and load tests.
//!
//! Each event of the service is seen once, in order, whatever happens to the connection. A command is carried out at
//! least once: it is repeated when the answer to it was lost.

#![warn(missing_docs)]

mod exchange;
mod inbox;
mod link;
mod login;
#[cfg(feature = "player")]
pub mod player;
mod runtime;
mod session;
mod settings;
mod shell;
mod socket;
pub mod testing;
mod transport;

pub use omgservers_protocol::Json;
pub use omgservers_protocol::config::{RuntimeConfig, RuntimeQualifier, VersionConfig};
pub use omgservers_protocol::id::{ClientId, UserId};
pub use omgservers_protocol::mux::{Lane, Left, MESSAGE_BYTES_MAX};
pub use runtime::{Event, Runtime};
pub use settings::Settings;

/// What can go wrong for a game server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A variable of the environment is not there.
    #[error("`{name}` is not set")]
    MissingSetting {
        /// The variable.
        name: &'static str,
    },
    /// A variable of the environment makes no sense.
    #[error("`{name}` {reason}")]
    BadSetting {
        /// The variable.
        name: &'static str,
        /// What it should be.
        reason: &'static str,
    },
    /// The service answered, and the answer was no.
    #[error("the service refused: {0}")]
    Refused(String),
    /// Nobody answered.
    #[error("the service cannot be reached: {0}")]
    Unreachable(String),
    /// It took too long.
    #[error("the service did not answer in time")]
    TimedOut,
    /// The process was asked to end before it was connected.
    #[error("asked to stop")]
    Stopped,
    /// Too much is waiting to be sent: 4096 commands to the service, or 8 MiB of reliable packets to the dispatcher.
    /// Nothing was dropped but this. Unreliable packets never fail so: the oldest give way.
    #[error("too much is waiting to be sent")]
    QueueFull,
    /// More than [`MESSAGE_BYTES_MAX`].
    #[error("a packet of {bytes} bytes is longer than {bytes_max}")]
    TooLong {
        /// What was asked for.
        bytes: usize,
        /// What is possible.
        bytes_max: usize,
    },
    /// The value cannot be written as JSON.
    #[error("not JSON: {0}")]
    NotJson(String),
    /// A packet was sent by a runtime [without a link](Settings::without_link).
    #[error("there is no link to the dispatcher")]
    NoLink,
    /// The runtime is closed or does not exist any more.
    #[error("the connection is closed")]
    Closed,
}

impl From<exchange::Full> for Error {
    fn from(_: exchange::Full) -> Self {
        Self::QueueFull
    }
}

/// Reads a message or a profile.
///
/// ```
/// #[derive(serde::Deserialize)]
/// struct Move {
///     to: (i32, i32),
/// }
///
/// # fn message() -> omgservers_runtime_sdk::Json { serde_json::from_str(r#"{"to":[3,4]}"#).unwrap() }
/// let chosen: Move = omgservers_runtime_sdk::parse(&message())?;
/// assert_eq!(chosen.to, (3, 4));
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn parse<'a, T: serde::Deserialize<'a>>(message: &'a Json) -> Result<T, serde_json::Error> {
    serde_json::from_str(message.get())
}
