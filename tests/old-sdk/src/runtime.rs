//! The runtime SDK: get tokens, link to the dispatcher where wanted, poll for commands.
//!
//! It never repeats a request. An error that the server explains ends the process with code 4, the end of the dispatcher
//! connection with code 5. An answer that is not JSON, or none at all, crashes the very code that would have ended the
//! process: it stays alive and never polls again.

mod commands;

use crate::Variant;
use crate::http::{BadUrl, Client, Response, ServiceUrl};
use crate::lua::{self, ScriptError};
use crate::pace::Pace;
use crate::websocket::{Payload, Socket, SocketEvent};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// A refused or failed request.
const API_EXIT_CODE: i32 = 4;
/// The end of the dispatcher connection.
const WS_EXIT_CODE: i32 = 5;
/// When a request without an answer counts as "no connection". The engine would wait for ever.
const HTTP_TIMEOUT: Duration = Duration::from_secs(30);

/// What a runtime container is told by its environment.
#[derive(Clone)]
pub struct Credentials {
    /// Base of all addresses, without a slash at its end.
    pub service_url: String,
    /// Who this runtime is.
    pub runtime_id: String,
    /// Proves it.
    pub password: String,
    /// `LOBBY` or `MATCH`.
    pub runtime_qualifier: String,
}

/// What the game's event handler is called with.
#[derive(Clone, Debug, PartialEq)]
pub enum RuntimeEvent {
    /// There are tokens and, where wanted, the dispatcher connection; polling begins.
    ServerStarted {
        /// `LOBBY` or `MATCH`.
        runtime_qualifier: String,
    },
    /// A command of the service.
    CommandReceived {
        /// Such as `ADD_CLIENT`.
        qualifier: String,
        /// As sent, without null members.
        body: Value,
    },
    /// A message of a player over the dispatcher.
    MessageReceived {
        /// Who sent it.
        client_id: String,
        /// To Lua both kinds are the same string.
        payload: Payload,
    },
}

/// How the process ended itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// 4 or 5; 1 is for missing environment variables.
    pub code: i32,
    /// What it printed.
    pub reason: String,
}

/// One game server process.
#[derive(Debug)]
pub struct Runtime {
    url: ServiceUrl,
    variant: Variant,
    runtime_qualifier: String,
    create_token_body: String,
    linked: bool,
    http: Client,
    pending: VecDeque<Call>,
    api_token: Option<String>,
    started: bool,
    pace: Pace,
    interchange_requested: bool,
    outgoing: Vec<String>,
    consumed: Vec<Value>,
    events: Vec<RuntimeEvent>,
    socket: Option<Socket>,
    exit: Option<Exit>,
    silent: bool,
    script_errors: Vec<ScriptError>,
}

#[derive(Clone, Copy, Debug)]
enum Call {
    CreateToken,
    Interchange,
}

impl Runtime {
    /// A process that has done nothing yet. Only [`Variant::Sdk097a1e2`] has a choice about `linked`, the dispatcher
    /// connection.
    pub fn new(credentials: &Credentials, variant: Variant, linked: bool) -> Result<Self, BadUrl> {
        let url = ServiceUrl::parse(&credentials.service_url)?;
        Ok(Runtime {
            http: Client::start(url.clone(), HTTP_TIMEOUT),
            url,
            variant,
            runtime_qualifier: credentials.runtime_qualifier.clone(),
            create_token_body: format!(
                r#"{{"runtime_id":{},"password":{}}}"#,
                lua::quote(&credentials.runtime_id),
                lua::quote(&credentials.password)
            ),
            linked: linked || variant == Variant::Ref,
            pending: VecDeque::new(),
            api_token: None,
            started: false,
            pace: Pace::new(),
            interchange_requested: false,
            outgoing: Vec::new(),
            consumed: Vec::new(),
            events: Vec::new(),
            socket: None,
            exit: None,
            silent: false,
            script_errors: Vec::new(),
        })
    }

    /// Asks for tokens; everything else follows from the answer.
    pub fn start(&mut self) -> Result<(), ScriptError> {
        let body = self.create_token_body.clone();
        self.call(Call::CreateToken, "create-token", &body)
    }

    /// Which generation this is.
    pub fn variant(&self) -> Variant {
        self.variant
    }

    /// Whether it has, or will have, a dispatcher connection.
    pub fn is_linked(&self) -> bool {
        self.linked
    }

    /// Set once the process ended itself.
    pub fn exit(&self) -> Option<&Exit> {
        self.exit.as_ref()
    }

    /// A callback crashed: the process lives and never polls again.
    pub fn is_silent(&self) -> bool {
        self.silent
    }

    /// Errors inside Lua code since the last call: the engine only prints them.
    pub fn take_script_errors(&mut self) -> Vec<ScriptError> {
        std::mem::take(&mut self.script_errors)
    }

    /// One frame, `dt` seconds after the one before.
    pub fn update(&mut self, dt: f64) -> Vec<RuntimeEvent> {
        self.poll_socket();
        while self.exit.is_none()
            && let Some(response) = self.http.poll()
        {
            self.handle_response(&response);
        }
        if self.exit.is_some() || !self.started {
            return Vec::new();
        }
        if self.api_token.is_some() && self.pace.is_due(dt) && !self.interchange_requested {
            self.interchange_requested = true;
            if let Err(error) = self.interchange() {
                self.script_errors.push(error);
                return Vec::new();
            }
        }
        std::mem::take(&mut self.events)
    }

    /// Waits until no request is on its way, while no time passes for the game. `false` if one still is when the limit
    /// is reached.
    pub fn settle(&mut self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while !self.pending.is_empty() {
            match self.http.wait(deadline.saturating_duration_since(Instant::now())) {
                Some(response) => self.handle_response(&response),
                None => return false,
            }
        }
        true
    }

    fn interchange(&mut self) -> Result<(), ScriptError> {
        let outgoing = std::mem::take(&mut self.outgoing).join(",");
        let consumed: Vec<String> = std::mem::take(&mut self.consumed).iter().map(lua::encode).collect();
        let body = format!(
            r#"{{"outgoing_commands":[{outgoing}],"consumed_commands":[{}]}}"#,
            consumed.join(",")
        );
        self.call(Call::Interchange, "interchange", &body)
    }

    fn call(&mut self, call: Call, operation: &str, body: &str) -> Result<(), ScriptError> {
        let path = format!("/service/v1/entrypoint/runtime/request/{operation}");
        if !self.http.send(self.url.post(&path, self.api_token.as_deref(), body)) {
            return Err(ScriptError::new("too many requests are waiting"));
        }
        self.pending.push_back(call);
        Ok(())
    }

    fn handle_response(&mut self, response: &Response) {
        let Some(call) = self.pending.pop_front() else { return };
        let handled = match lua::decode(&response.body) {
            Ok(body) if response.is_success() => match call {
                Call::CreateToken => self.handle_tokens(&body),
                Call::Interchange => self.handle_commands(&body),
            },
            Ok(body) if !body.is_null() => {
                let failure = match call {
                    Call::CreateToken => "token was not created",
                    Call::Interchange => "interchange failed",
                };
                let (status, body) = (response.status, lua::encode_by_default(&body));
                self.end(
                    API_EXIT_CODE,
                    format!("{failure}, response_status={status}, decoded_body={body}"),
                );
                Ok(())
            }
            Ok(_) | Err(_) => Err(ScriptError::new(
                "attempt to concatenate local 'inlined_body' (a nil value)",
            )),
        };
        if let Err(error) = handled {
            self.silent = true;
            self.script_errors.push(error);
        }
    }

    fn handle_tokens(&mut self, body: &Value) -> Result<(), ScriptError> {
        self.api_token = lua::concatenated(lua::index(body, "api_token")?);
        let ws_token = lua::concatenated(lua::index(body, "ws_token")?);
        if self.linked {
            let token = ws_token.ok_or_else(|| ScriptError::new("attempt to concatenate local 'ws_token'"))?;
            let path = format!("/dispatcher/v1/entrypoint/websocket/endpoint?ws_token={token}");
            self.socket = Some(Socket::connect(&self.url, &path));
        } else {
            self.set_started();
        }
        Ok(())
    }

    fn handle_commands(&mut self, body: &Value) -> Result<(), ScriptError> {
        let Value::Array(commands) = lua::index(body, "incoming_commands")? else {
            return Err(ScriptError::new("bad argument #1 to 'ipairs' (table expected)"));
        };
        for command in commands {
            let id = lua::index(command, "id")?;
            // The real game logs every command, and the log formats the id as a number.
            let id_is_number = lua::concatenated(id).is_some_and(|id| id.bytes().all(|byte| byte.is_ascii_digit()));
            if !id_is_number {
                return Err(ScriptError::new("bad argument #2 to 'format' (number expected)"));
            }
            if !lua::index(command, "qualifier")?.is_string() {
                return Err(ScriptError::new("attempt to concatenate local 'command_qualifier'"));
            }
            self.consumed.push(id.clone());
        }
        self.interchange_requested = false;
        self.pace.count_round(commands.is_empty());
        for command in commands {
            let qualifier = lua::concatenated(lua::index(command, "qualifier")?).unwrap_or_default();
            let body = lua::index(command, "body")?.clone();
            self.events.push(RuntimeEvent::CommandReceived { qualifier, body });
        }
        Ok(())
    }

    fn set_started(&mut self) {
        self.started = true;
        self.events.push(RuntimeEvent::ServerStarted {
            runtime_qualifier: self.runtime_qualifier.clone(),
        });
    }

    fn end(&mut self, code: i32, reason: String) {
        self.exit.get_or_insert(Exit { code, reason });
    }

    fn poll_socket(&mut self) {
        let happened = self.socket.as_mut().map(Socket::poll).unwrap_or_default();
        for event in happened {
            match event {
                SocketEvent::Connected => self.set_started(),
                SocketEvent::Message(payload) => match read_frame(&payload) {
                    Ok(event) => self.events.push(event),
                    Err(error) => self.script_errors.push(error),
                },
                SocketEvent::Error(message) => {
                    self.end(
                        WS_EXIT_CODE,
                        format!("the connection to the dispatcher failed, message={message}"),
                    );
                }
                SocketEvent::Disconnected { .. } => {
                    self.end(
                        WS_EXIT_CODE,
                        "the connection to the dispatcher was disconnected".to_owned(),
                    );
                }
            }
        }
    }
}

/// What the dispatcher made of a player's frame.
fn read_frame(payload: &Payload) -> Result<RuntimeEvent, ScriptError> {
    let bytes = match payload {
        Payload::Text(text) => text.as_bytes(),
        Payload::Binary(bytes) => bytes,
    };
    let frame = lua::decode(bytes).map_err(ScriptError)?;
    let text = |name| {
        let value = lua::concatenated(lua::index(&frame, name)?);
        value.ok_or_else(|| ScriptError::new(format!("attempt to concatenate local '{name}'")))
    };
    let (client_id, message) = (text("client_id")?, text("message")?);
    let payload = match text("encoding")?.as_str() {
        "TXT" => Payload::Text(message),
        "B64" => Payload::Binary(BASE64.decode(message).map_err(|error| ScriptError(error.to_string()))?),
        encoding => {
            return Err(ScriptError(format!(
                "attempt to concatenate a nil message of encoding {encoding}"
            )));
        }
    };
    Ok(RuntimeEvent::MessageReceived { client_id, payload })
}
