//! The old Lua SDKs (dialect W1), emulated byte for byte.
//!
//! Unchanged games drive the platform through two Lua libraries inside the Defold engine. This crate behaves as they do:
//! the same requests, the same impatience, the same crashes. A server that satisfies it satisfies them. It knows the wire
//! only, nothing of the platform's own crates, so that a mistake made there cannot hide here.
//!
//! - [`Player`] is the player side: sign up, sign in, poll, follow assignments, open the dispatcher socket.
//! - [`Runtime`] is the game server side; [`Game`] is the small game that the binary `old-runtime` runs on it.
//! - [`Variant`] switches between the two generations where they differ.
//!
//! Everything is blocking and driven by frames: call `update(dt)` with any time step, or let `run_until` do it in real
//! time. Requests run on a thread of their own, as they do in the engine, so an update never waits for the network.
//!
//! ```no_run
//! use old_sdk::{Event, Options, Player};
//! use std::time::{Duration, Instant};
//!
//! let mut player = Player::new("http://127.0.0.1:8080", Options::new("acme", "shooter", "prod"))?;
//! player.sign_up()?;
//! let version = player.run_until(Instant::now() + Duration::from_secs(20), |player, event| match event {
//!     Event::SignedUp { user_id, password } => {
//!         player.sign_in(&user_id, &password).expect("signed up a moment ago");
//!         None
//!     }
//!     Event::Greeted { version_id, .. } => version_id,
//!     _ => None,
//! })?;
//! player.send_service_message("echo:hello")?;
//! # let _ = version;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod config;
mod game;
mod http;
mod lua;
mod pace;
mod player;
mod runtime;
mod websocket;

pub use config::{Link, Settings};
pub use game::Game;
pub use http::BadUrl;
pub use lua::{ScriptError, encode as encode_as_lua};
pub use player::{Event, Missed, Options, Player, RuntimeQualifier, State};
pub use runtime::{Credentials, Exit, Runtime, RuntimeEvent};
pub use websocket::Payload;

/// Which generation of the SDKs is emulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Variant {
    /// January 2025, as shipped with the reference: `{}` and `[]` for empty bodies, CONNECTION_UPGRADED, every runtime
    /// opens a dispatcher connection before it polls, no broadcast over it.
    Ref,
    /// Commit `097a1e2` of March 2025, the last one of dialect W1 and the one real games were built with:
    /// `{"__object":true}` for empty bodies, CONNECTION_DISPATCHED, dispatcher connection only where asked for.
    #[default]
    Sdk097a1e2,
}

impl Variant {
    /// What an empty Lua table looks like where the server wants an object in the body of a command.
    fn empty_command_body(self) -> &'static str {
        match self {
            Variant::Ref => "[]",
            Variant::Sdk097a1e2 => r#"{"__object":true}"#,
        }
    }

    /// The body of create-user.
    fn create_user_body(self) -> &'static str {
        match self {
            Variant::Ref => "{}",
            Variant::Sdk097a1e2 => r#"{"__object":true}"#,
        }
    }
}
