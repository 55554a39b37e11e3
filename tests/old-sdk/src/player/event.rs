//! What a game gives to the player SDK and gets from it.

use crate::Variant;
use crate::lua::ScriptError;
use crate::websocket::Payload;
use serde_json::Value;
use std::fmt;
use std::time::Duration;

/// What a game configures.
#[derive(Clone, Debug)]
pub struct Options {
    /// Id or alias.
    pub tenant: String,
    /// Id or alias.
    pub project: String,
    /// Id or alias.
    pub stage: String,
    /// Which generation of the SDK to be.
    pub variant: Variant,
    /// How fast time passes in [`Player::run_until`](crate::Player::run_until); 1 is what real players do.
    pub speed: f64,
    /// When a request without an answer counts as "no connection". The engine would wait for ever.
    pub http_timeout: Duration,
}

impl Options {
    /// A player of the newest W1 SDK, in real time.
    pub fn new(tenant: &str, project: &str, stage: &str) -> Self {
        Options {
            tenant: tenant.to_owned(),
            project: project.to_owned(),
            stage: stage.to_owned(),
            variant: Variant::default(),
            speed: 1.0,
            http_timeout: Duration::from_secs(30),
        }
    }
}

/// What the game's event handler is called with.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The service answered a ping.
    ServicePinged { message: Value },
    /// A new user, to be remembered by the game.
    SignedUp { user_id: String, password: String },
    /// There is a client; polling begins.
    SignedIn { client_id: String },
    /// The first lobby assignment; `None` where the welcome message had not arrived before it.
    Greeted {
        version_id: Option<String>,
        version_created: Option<String>,
    },
    /// Every further assignment.
    Assigned {
        runtime_qualifier: RuntimeQualifier,
        runtime_id: String,
    },
    /// A message that came by polling, unchanged.
    MessageReceived { message: Value },
    /// A message that came over the dispatcher socket. To Lua both are MESSAGE_RECEIVED.
    DispatcherMessageReceived { payload: Payload },
    /// The dispatcher socket is open ([`Variant::Ref`]).
    ConnectionUpgraded,
    /// The dispatcher socket is open ([`Variant::Sdk097a1e2`]).
    ConnectionDispatched,
    /// The end, until a reset.
    PlayerFailed { reason: String },
}

/// Kind of runtime a player is assigned to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuntimeQualifier {
    /// Where players arrive.
    Lobby,
    /// Where they play.
    Match,
}

/// What became of a player.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No client yet.
    SignedOut,
    /// Polls.
    Polling,
    /// The callback of a request crashed: nothing more will happen by polling, and no event says so.
    Silent,
    /// PLAYER_FAILED was raised.
    Failed,
}

/// The deadline of [`Player::run_until`](crate::Player::run_until) passed.
#[derive(Clone, Debug)]
pub struct Missed {
    /// What the player was by then.
    pub state: State,
    /// Events that were handled in vain.
    pub events: Vec<Event>,
    /// Errors inside Lua code so far.
    pub script_errors: Vec<ScriptError>,
}

impl fmt::Display for Missed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Missed {
            state,
            events,
            script_errors,
        } = self;
        write!(
            out,
            "the deadline passed: {state:?}, events {events:?}, script errors {script_errors:?}"
        )
    }
}

impl std::error::Error for Missed {}
