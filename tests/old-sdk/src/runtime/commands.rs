//! What a game server can say: commands to the service, frames to its players.

use super::Runtime;
use crate::Variant;
use crate::lua::{self, ScriptError};
use crate::websocket::Payload;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

impl Runtime {
    /// RESPOND_CLIENT: a message to one player by way of the service.
    pub fn respond_client(&mut self, client_id: &str, message: &Value) -> Result<(), ScriptError> {
        self.command(
            "RESPOND_CLIENT",
            &fields(&[("client_id", &client_id.into()), ("message", message)]),
        )
    }

    /// SET_PROFILE: replaces the player's profile.
    pub fn set_profile(&mut self, client_id: &str, profile: &Value) -> Result<(), ScriptError> {
        self.command(
            "SET_PROFILE",
            &fields(&[("client_id", &client_id.into()), ("profile", profile)]),
        )
    }

    /// SET_ATTRIBUTES: obsolete, no server knows it.
    pub fn set_attributes(&mut self, client_id: &str, attributes: &Value) -> Result<(), ScriptError> {
        let attributes = serde_json::json!({ "attributes": attributes });
        self.command(
            "SET_ATTRIBUTES",
            &fields(&[("client_id", &client_id.into()), ("attributes", &attributes)]),
        )
    }

    /// MULTICAST_MESSAGE: a message to some players by way of the service.
    pub fn multicast_message(&mut self, clients: &[&str], message: &Value) -> Result<(), ScriptError> {
        self.command(
            "MULTICAST_MESSAGE",
            &fields(&[("clients", &clients.into()), ("message", message)]),
        )
    }

    /// BROADCAST_MESSAGE: a message to all players by way of the service.
    pub fn broadcast_message(&mut self, message: &Value) -> Result<(), ScriptError> {
        self.command("BROADCAST_MESSAGE", &fields(&[("message", message)]))
    }

    /// KICK_CLIENT: out of this runtime.
    pub fn kick_client(&mut self, client_id: &str) -> Result<(), ScriptError> {
        self.command("KICK_CLIENT", &fields(&[("client_id", &client_id.into())]))
    }

    /// REQUEST_MATCHMAKING: into a match of that mode.
    pub fn request_matchmaking(&mut self, client_id: &str, mode: &str) -> Result<(), ScriptError> {
        self.command(
            "REQUEST_MATCHMAKING",
            &fields(&[("client_id", &client_id.into()), ("mode", &mode.into())]),
        )
    }

    /// STOP_MATCHMAKING: no further players.
    pub fn stop_matchmaking(&mut self) -> Result<(), ScriptError> {
        self.command("STOP_MATCHMAKING", self.variant.empty_command_body())
    }

    /// UPGRADE_CONNECTION: the player shall open a dispatcher connection.
    pub fn upgrade_connection(&mut self, client_id: &str) -> Result<(), ScriptError> {
        let body = fields(&[("client_id", &client_id.into()), ("protocol", &"DISPATCHER".into())]);
        self.command("UPGRADE_CONNECTION", &body)
    }

    /// Over the dispatcher to one player.
    pub fn respond_over_dispatcher(&mut self, client_id: &str, payload: &Payload) -> Result<(), ScriptError> {
        self.multicast_over_dispatcher(&[client_id], payload)
    }

    /// Over the dispatcher to some players.
    pub fn multicast_over_dispatcher(&mut self, clients: &[&str], payload: &Payload) -> Result<(), ScriptError> {
        if clients.is_empty() {
            return Err(ScriptError::new("The clients must not be empty."));
        }
        self.send_over_dispatcher(Some(clients), payload)
    }

    /// Over the dispatcher to all players. [`Variant::Ref`] has the call, but it cannot work.
    pub fn broadcast_over_dispatcher(&mut self, payload: &Payload) -> Result<(), ScriptError> {
        if self.variant == Variant::Ref {
            return Err(ScriptError::new("The clients must not be nil."));
        }
        self.send_over_dispatcher(None, payload)
    }

    fn send_over_dispatcher(&mut self, clients: Option<&[&str]>, payload: &Payload) -> Result<(), ScriptError> {
        self.assert_started()?;
        let clients = clients
            .map(|clients| format!(r#""clients":{},"#, lua::encode(&clients.into())))
            .unwrap_or_default();
        let (encoding, message) = match payload {
            Payload::Text(text) => ("TXT", text.clone()),
            Payload::Binary(bytes) => ("B64", BASE64.encode(bytes)),
        };
        let frame = format!(
            r#"{{{clients}"encoding":"{encoding}","message":{}}}"#,
            lua::quote(&message)
        );
        match &mut self.socket {
            Some(socket) => socket.send(&Payload::Text(frame)),
            None => Err(ScriptError::new("The connection was not created.")),
        }
    }

    fn assert_started(&self) -> Result<(), ScriptError> {
        if self.started {
            Ok(())
        } else {
            Err(ScriptError::new("The server must be started."))
        }
    }

    fn command(&mut self, qualifier: &str, body: &str) -> Result<(), ScriptError> {
        self.assert_started()?;
        self.outgoing
            .push(format!(r#"{{"qualifier":"{qualifier}","body":{body}}}"#));
        Ok(())
    }
}

/// A body with its fields in this order; a nil field is no field.
fn fields(fields: &[(&str, &Value)]) -> String {
    let fields: Vec<String> = fields
        .iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| format!("{}:{}", lua::quote(name), lua::encode(value)))
        .collect();
    format!("{{{}}}", fields.join(","))
}
