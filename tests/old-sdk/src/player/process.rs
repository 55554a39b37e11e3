//! The polling process: what a tick sends, what each message does, what becomes of the dispatcher socket.

use super::session::CallKind;
use super::{Event, Player, RuntimeQualifier};
use crate::Variant;
use crate::lua::{self, ScriptError};
use crate::websocket::{Socket, SocketEvent};
use serde_json::Value;

/// Sockets at one time: the current one, and closed ones whose last event is still to come.
const SOCKETS_MAX: usize = 8;

impl Player {
    /// One step of the polling process: at a tick send, then handle what earlier answers brought.
    pub(super) fn interchange(&mut self, dt: f64) -> Result<(), ScriptError> {
        let session = &mut self.session;
        let Some(client) = session.client.as_mut() else {
            return Ok(());
        };
        if session.failed || !session.pace.is_due(dt) {
            return Ok(());
        }
        // An answer that arrives meanwhile is not handled before the next frame, so the order of the two does not show.
        let messages = std::mem::take(&mut client.incoming);
        if !session.interchange_requested {
            session.interchange_requested = true;
            let outgoing = std::mem::take(&mut client.outgoing).join(",");
            let consumed: Vec<String> = std::mem::take(&mut client.consumed).iter().map(lua::encode).collect();
            let body = format!(
                r#"{{"client_id":{},"outgoing_messages":[{outgoing}],"consumed_messages":[{}]}}"#,
                lua::encode(&client.id),
                consumed.join(",")
            );
            self.call(CallKind::Interchange, &body)?;
        }
        self.session.pace.count_round(messages.is_empty());
        messages.iter().try_for_each(|message| self.handle_message(message))
    }

    fn handle_message(&mut self, message: &Value) -> Result<(), ScriptError> {
        let body = lua::index(message, "body")?;
        let session = &mut self.session;
        match lua::index(message, "qualifier")?.as_str().unwrap_or_default() {
            "SERVER_WELCOME_MESSAGE" => {
                let part = |name| Ok(lua::concatenated(lua::index(body, name)?));
                session.version = (part("version_id")?, part("version_created")?);
            }
            "MATCHMAKER_ASSIGNMENT_MESSAGE" => {
                lua::index(body, "matchmaker_id")?;
            }
            "RUNTIME_ASSIGNMENT_MESSAGE" => {
                let runtime_id = lua::concatenated(lua::index(body, "runtime_id")?).unwrap_or_default();
                let qualifier = lua::index(body, "runtime_qualifier")?;
                session.disconnect();
                match qualifier.as_str() {
                    Some("LOBBY") if !session.greeted => {
                        session.greeted = true;
                        let (version_id, version_created) = session.version.clone();
                        session.events.push(Event::Greeted {
                            version_id,
                            version_created,
                        });
                    }
                    Some("LOBBY") => session.events.push(Event::Assigned {
                        runtime_qualifier: RuntimeQualifier::Lobby,
                        runtime_id,
                    }),
                    Some("MATCH") => session.events.push(Event::Assigned {
                        runtime_qualifier: RuntimeQualifier::Match,
                        runtime_id,
                    }),
                    _ => {
                        let qualifier = joined(qualifier, "runtime_qualifier")?;
                        session.fail(format!(
                            "an unknown runtime qualifier was assigned, runtime_qualifier={qualifier}"
                        ));
                    }
                }
            }
            "SERVER_OUTGOING_MESSAGE" => {
                let message = lua::index(body, "message")?.clone();
                session.events.push(Event::MessageReceived { message });
            }
            "CONNECTION_UPGRADE_MESSAGE" => match lua::index(body, "protocol")? {
                Value::String(protocol) if protocol == "DISPATCHER" => {
                    let token = joined(
                        lua::index(lua::index(body, "web_socket_config")?, "ws_token")?,
                        "ws_token",
                    )?;
                    self.connect(&token)?;
                }
                protocol => {
                    let protocol = joined(protocol, "upgrade_protocol")?;
                    session.fail(format!("unsupported connection upgrade protocol, protocol={protocol}"));
                }
            },
            "DISCONNECTION_REASON_MESSAGE" => {
                let reason = joined(lua::index(body, "reason")?, "reason")?;
                session.fail(format!("client was disconnected by the server, reason={reason}"));
            }
            _ => {}
        }
        Ok(())
    }

    fn connect(&mut self, token: &str) -> Result<(), ScriptError> {
        if self.session.sockets.len() >= SOCKETS_MAX {
            return Err(ScriptError::new("too many sockets are open"));
        }
        let path = format!("/dispatcher/v1/entrypoint/websocket/endpoint?ws_token={token}");
        self.session.self_disconnection = false;
        self.session.sockets.push(Socket::connect(&self.url, &path));
        self.session.has_connection = true;
        Ok(())
    }

    pub(super) fn poll_sockets(&mut self) {
        let session = &mut self.session;
        let happened: Vec<SocketEvent> = session.sockets.iter_mut().flat_map(Socket::poll).collect();
        // The SDK keeps its handle of a socket that ended, so that sending over it is an error of the engine's.
        let current = session.sockets.len().saturating_sub(1);
        let mut position = 0;
        let has_connection = session.has_connection;
        session.sockets.retain(|socket| {
            let keep = !socket.has_ended() || (has_connection && position == current);
            position += 1;
            keep
        });
        for event in happened {
            match event {
                SocketEvent::Connected => session.events.push(match self.options.variant {
                    Variant::Ref => Event::ConnectionUpgraded,
                    Variant::Sdk097a1e2 => Event::ConnectionDispatched,
                }),
                SocketEvent::Message(payload) => session.events.push(Event::DispatcherMessageReceived { payload }),
                SocketEvent::Error(message) => session.fail(format!("dispatcher failed, message={message}")),
                SocketEvent::Disconnected { .. } if session.self_disconnection => {}
                SocketEvent::Disconnected { message, code } => session.fail(format!(
                    "The connection to the dispatcher was disconnected, message={message}, code={code}"
                )),
            }
        }
    }
}

/// What `..` makes of a value, or the error it raises.
pub(super) fn joined(value: &Value, name: &str) -> Result<String, ScriptError> {
    lua::concatenated(value).ok_or_else(|| ScriptError::new(format!("attempt to concatenate local '{name}'")))
}
