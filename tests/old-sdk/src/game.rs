//! The small game of `old-runtime`: enough to walk through everything an old game relies on.
//!
//! | text | in a lobby, by way of the service | in a match, over the dispatcher or by way of the service |
//! |---|---|---|
//! | `echo:…` | RESPOND_CLIENT with the same string | the same string, the way it came |
//! | `broadcast:…` | BROADCAST_MESSAGE with the same string | the same |
//! | `play:<mode>` | SET_PROFILE `{"played":n+1}`, then REQUEST_MATCHMAKING, in one batch | – |
//! | `kickme`, `leave` | KICK_CLIENT | KICK_CLIENT |
//! | `upgrade` | UPGRADE_CONNECTION | UPGRADE_CONNECTION |
//! | `who` | group and profile as JSON | the same |
//! | `all:…` | – | the same string to everybody over the dispatcher |
//! | `stop` | STOP_MATCHMAKING | STOP_MATCHMAKING |
//! | `exit:N` | the process ends with code N | the same |
//!
//! A binary frame comes back as it was. A linked match answers ADD_MATCH_CLIENT with UPGRADE_CONNECTION. Like the real
//! games it indexes profiles and concatenates ids and names: where those have another type it raises a script error.

use crate::Variant;
use crate::lua::{self, ScriptError};
use crate::runtime::{Runtime, RuntimeEvent};
use crate::websocket::Payload;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The game's memory.
#[derive(Debug, Default)]
pub struct Game {
    clients: BTreeMap<String, Member>,
}

#[derive(Debug)]
struct Member {
    group: Option<String>,
    profile: Value,
}

/// How a message came, which is how its answer goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Service,
    Dispatcher,
}

impl Game {
    /// Handles one event. `Some` is the code that a player wants the process to end with.
    pub fn handle(&mut self, runtime: &mut Runtime, event: &RuntimeEvent) -> Result<Option<i32>, ScriptError> {
        match event {
            RuntimeEvent::ServerStarted { .. } => Ok(None),
            RuntimeEvent::CommandReceived { qualifier, body } => self.handle_command(runtime, qualifier, body),
            RuntimeEvent::MessageReceived {
                client_id,
                payload: Payload::Text(text),
            } => self.handle_text(runtime, Way::Dispatcher, client_id, text),
            RuntimeEvent::MessageReceived { client_id, payload } => {
                runtime.respond_over_dispatcher(client_id, payload).map(|()| None)
            }
        }
    }

    fn handle_command(
        &mut self,
        runtime: &mut Runtime,
        qualifier: &str,
        body: &Value,
    ) -> Result<Option<i32>, ScriptError> {
        match qualifier {
            "INIT_RUNTIME" => {
                let config = lua::index(body, "runtime_config")?;
                if !lua::index(config, "version_config")?.is_object() {
                    return Err(ScriptError::new(
                        "attempt to index local 'version_config' (a nil value)",
                    ));
                }
            }
            "ADD_CLIENT" => {
                self.add(body, None)?;
            }
            "ADD_MATCH_CLIENT" => {
                let client_id = self.add(body, Some(text(body, "group_name")?))?;
                if runtime.is_linked() {
                    runtime.upgrade_connection(&client_id)?;
                }
            }
            "DELETE_CLIENT" => {
                self.clients.remove(&text(body, "client_id")?);
            }
            "HANDLE_MESSAGE" => {
                let (client_id, message) = (text(body, "client_id")?, text(body, "message")?);
                return self.handle_text(runtime, Way::Service, &client_id, &message);
            }
            other => {
                return Err(ScriptError(format!(
                    "Unsupported command was received, command_qualifier={other}"
                )));
            }
        }
        Ok(None)
    }

    fn add(&mut self, body: &Value, group: Option<String>) -> Result<String, ScriptError> {
        let client_id = text(body, "client_id")?;
        text(body, "user_id")?;
        let profile = lua::index(body, "profile")?;
        lua::index(profile, "played")?;
        self.clients.insert(
            client_id.clone(),
            Member {
                group,
                profile: profile.clone(),
            },
        );
        Ok(client_id)
    }

    fn handle_text(
        &mut self,
        runtime: &mut Runtime,
        way: Way,
        client_id: &str,
        message: &str,
    ) -> Result<Option<i32>, ScriptError> {
        let (word, argument) = message.split_once(':').unwrap_or((message, ""));
        match word {
            "echo" => answer(runtime, way, client_id, message)?,
            "broadcast" => runtime.broadcast_message(&message.into())?,
            "play" => {
                let member = self.member(client_id)?;
                let played = lua::index(&member.profile, "played")?.as_u64().unwrap_or(0);
                member.profile = json!({ "played": played + 1 });
                runtime.set_profile(client_id, &member.profile)?;
                runtime.request_matchmaking(client_id, argument)?;
            }
            "kickme" | "leave" => runtime.kick_client(client_id)?,
            "upgrade" => runtime.upgrade_connection(client_id)?,
            "who" => {
                let member = self.member(client_id)?;
                let who = lua::encode_by_default(&json!({ "group": member.group, "profile": member.profile }));
                answer(runtime, way, client_id, &who)?;
            }
            "all" => self.tell_all(runtime, &Payload::Text(message.to_owned()))?,
            "stop" => runtime.stop_matchmaking()?,
            "exit" => {
                let code = argument
                    .parse()
                    .map_err(|_| ScriptError(format!("`{argument}` is no exit code")))?;
                return Ok(Some(code));
            }
            _ => {}
        }
        Ok(None)
    }

    /// The old variant cannot broadcast, so its games name everybody.
    fn tell_all(&self, runtime: &mut Runtime, payload: &Payload) -> Result<(), ScriptError> {
        match runtime.variant() {
            Variant::Sdk097a1e2 => runtime.broadcast_over_dispatcher(payload),
            Variant::Ref => {
                let everybody: Vec<&str> = self.clients.keys().map(String::as_str).collect();
                runtime.multicast_over_dispatcher(&everybody, payload)
            }
        }
    }

    fn member(&mut self, client_id: &str) -> Result<&mut Member, ScriptError> {
        self.clients
            .get_mut(client_id)
            .ok_or_else(|| ScriptError(format!("no client {client_id} is here")))
    }
}

fn answer(runtime: &mut Runtime, way: Way, client_id: &str, message: &str) -> Result<(), ScriptError> {
    match way {
        Way::Service => runtime.respond_client(client_id, &message.into()),
        Way::Dispatcher => runtime.respond_over_dispatcher(client_id, &Payload::Text(message.to_owned())),
    }
}

/// A value that the game concatenates.
fn text(body: &Value, field: &str) -> Result<String, ScriptError> {
    match lua::index(body, field)? {
        Value::String(text) => Ok(text.clone()),
        other => Err(ScriptError(format!("attempt to concatenate field '{field}' ({other})"))),
    }
}
