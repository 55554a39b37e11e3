//! The SDK over real sockets, against a tiny service and dispatcher that misbehave when a test wants them to.

#![expect(clippy::unwrap_used, reason = "in tests a panic is the right answer, in helpers too")]

mod fake;
#[cfg(feature = "player")]
mod player;
mod runtime;
