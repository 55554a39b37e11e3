//! What a player knows between two frames, and the requests on their way.

use super::Event;
use crate::lua::ScriptError;
use crate::pace::Pace;
use crate::websocket::Socket;
use serde_json::Value;
use std::collections::VecDeque;

/// What `reset` throws away.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) pending: VecDeque<Call>,
    pub(super) events: Vec<Event>,
    pub(super) pace: Pace,
    pub(super) interchange_requested: bool,
    pub(super) callback_crashed: bool,
    pub(super) failed: bool,
    pub(super) api_token: Option<String>,
    pub(super) client: Option<Connected>,
    pub(super) version: (Option<String>, Option<String>),
    pub(super) greeted: bool,
    pub(super) sockets: Vec<Socket>,
    /// The newest socket is the game's; without this flag there is none to send over.
    pub(super) has_connection: bool,
    /// The SDK's only way to tell a wanted close from an unwanted one. Opening the next socket clears it.
    pub(super) self_disconnection: bool,
}

/// The client and its three lists.
#[derive(Debug)]
pub(super) struct Connected {
    pub(super) id: Value,
    pub(super) next_message_id: u64,
    pub(super) outgoing: Vec<String>,
    pub(super) incoming: Vec<Value>,
    pub(super) consumed: Vec<Value>,
}

/// A request on its way.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) kind: CallKind,
    pub(super) request: Vec<u8>,
    pub(super) attempts_left: u32,
    /// Asked for before a `reset`: its answer concerns nobody.
    pub(super) forgotten: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallKind {
    Ping,
    CreateUser,
    CreateToken,
    CreateClient,
    Interchange,
}

impl CallKind {
    pub(super) fn operation(self) -> &'static str {
        match self {
            CallKind::Ping => "ping-service",
            CallKind::CreateUser => "create-user",
            CallKind::CreateToken => "create-token",
            CallKind::CreateClient => "create-client",
            CallKind::Interchange => "interchange",
        }
    }

    /// How often the same bytes are sent in all.
    pub(super) fn attempts(self) -> u32 {
        match self {
            CallKind::Ping => 2,
            CallKind::CreateUser | CallKind::CreateToken | CallKind::CreateClient => 4,
            CallKind::Interchange => 6,
        }
    }

    pub(super) fn failure(self) -> &'static str {
        match self {
            CallKind::Ping => "Ping response was failed",
            CallKind::CreateUser => "user was not created",
            CallKind::CreateToken => "token was not received",
            CallKind::CreateClient => "client was not created",
            CallKind::Interchange => "interchange failed",
        }
    }
}

impl Session {
    pub(super) fn new() -> Self {
        Session {
            pending: VecDeque::new(),
            events: Vec::new(),
            pace: Pace::new(),
            interchange_requested: false,
            callback_crashed: false,
            failed: false,
            api_token: None,
            client: None,
            version: (None, None),
            greeted: false,
            sockets: Vec::new(),
            has_connection: false,
            self_disconnection: false,
        }
    }

    pub(super) fn fail(&mut self, reason: String) {
        self.failed = true;
        self.events.push(Event::PlayerFailed { reason });
    }

    pub(super) fn disconnect(&mut self) {
        if std::mem::take(&mut self.has_connection) {
            if let Some(socket) = self.sockets.last_mut() {
                socket.disconnect();
            }
            self.self_disconnection = true;
        }
    }

    pub(super) fn connected(&mut self) -> Result<&mut Connected, ScriptError> {
        self.client
            .as_mut()
            .ok_or_else(|| ScriptError::new("The client must be created."))
    }
}
