//! The shooter on the platform: a lobby where players meet and matches in which they shoot.
//!
//! The world itself is `shooter-simulation`. Here: the lobby ([`lobby`]) and the match ([`match_server`]) as pure state
//! machines, the packets between them and the players ([`packets`]), and the loops that wire both to the SDK ([`shell`]).

pub mod client;
pub mod config;
pub mod lobby;
pub mod match_server;
mod member;
pub mod pace;
pub mod packets;
pub mod profile;
pub mod shell;
#[rustfmt::skip]
#[allow(clippy::all, clippy::unwrap_used, unsafe_code, unreachable_pub, mismatched_lifetime_syntaxes, reason = "made by the FlatBuffers compiler")]
mod shooter_generated;

/// The packets' types, as `schema/shooter.fbs` says.
pub mod wire {
    pub use crate::shooter_generated::shooter::*;
}

use anyhow::{Context, Result};
use omgservers_runtime_sdk::{Error, Runtime, RuntimeQualifier, Settings};

/// Connects to the platform and is what it asks for, until it is told to stop.
pub async fn run(settings: Settings) -> Result<()> {
    let runtime = match Runtime::connect(settings).await {
        // Not wanted any more before it began.
        Err(Error::Stopped) => return Ok(()),
        connected => connected.context("no connection to the platform")?,
    };
    match runtime.qualifier() {
        RuntimeQualifier::Lobby => shell::run_lobby(runtime).await,
        RuntimeQualifier::Match => shell::run_match(runtime).await,
    }
}
