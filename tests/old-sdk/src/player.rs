//! The player SDK: sign up, sign in, poll, follow assignments, open the dispatcher socket.
//!
//! What a frame does, in this order: events of the sockets, answers to requests, then one step of the polling process and
//! the events for the game. Failing is for good until [`Player::reset`]; a crash inside the callback of a poll leaves a
//! player that never polls again and says nothing.

mod event;
mod process;
mod session;

pub use event::{Event, Missed, Options, RuntimeQualifier, State};

use crate::http::{BadUrl, Client, Response, ServiceUrl};
use crate::lua::{self, ScriptError};
use crate::websocket::Payload;
use process::joined;
use serde_json::Value;
use session::{Call, CallKind, Connected, Session};
use std::collections::VecDeque;
use std::thread;
use std::time::{Duration, Instant};

/// Length of one frame of [`Player::run_until`] in seconds.
const FRAME: f64 = 1.0 / 60.0;

/// One player of a game.
#[derive(Debug)]
pub struct Player {
    url: ServiceUrl,
    options: Options,
    http: Client,
    session: Session,
    /// Events of a frame that [`Player::run_until`] left unhandled when it returned.
    held: VecDeque<Event>,
    script_errors: Vec<ScriptError>,
}

impl Player {
    /// A player that has done nothing yet. `service_url` has no slash at its end.
    pub fn new(service_url: &str, options: Options) -> Result<Self, BadUrl> {
        let url = ServiceUrl::parse(service_url)?;
        let http = Client::start(url.clone(), options.http_timeout);
        Ok(Player {
            url,
            options,
            http,
            session: Session::new(),
            held: VecDeque::new(),
            script_errors: Vec::new(),
        })
    }

    /// Whether the player is well.
    pub fn state(&self) -> State {
        match &self.session {
            session if session.failed => State::Failed,
            session if session.callback_crashed => State::Silent,
            session if session.client.is_some() => State::Polling,
            _ => State::SignedOut,
        }
    }

    /// Errors inside Lua code since the last call: the engine only prints them.
    pub fn take_script_errors(&mut self) -> Vec<ScriptError> {
        std::mem::take(&mut self.script_errors)
    }

    /// Forgets everything, also having failed.
    pub fn reset(&mut self) {
        self.session.disconnect();
        let pending = std::mem::take(&mut self.session.pending);
        self.session = Session::new();
        self.session.pending = pending
            .into_iter()
            .map(|call| Call {
                forgotten: true,
                ..call
            })
            .collect();
        self.held.clear();
    }

    /// Asks the service whether it is there; the answer is an event.
    pub fn ping(&mut self) -> Result<(), ScriptError> {
        self.assert_not_failed()?;
        self.call(CallKind::Ping, r#"{"message":"ping"}"#)
    }

    /// Makes a new user; SIGNED_UP tells who.
    pub fn sign_up(&mut self) -> Result<(), ScriptError> {
        self.assert_not_failed()?;
        self.call(CallKind::CreateUser, self.options.variant.create_user_body())
    }

    /// Gets a token, then a client; SIGNED_IN and polling follow.
    pub fn sign_in(&mut self, user_id: &str, password: &str) -> Result<(), ScriptError> {
        self.assert_not_failed()?;
        let body = format!(
            r#"{{"user_id":{},"password":{}}}"#,
            lua::quote(user_id),
            lua::quote(password)
        );
        self.call(CallKind::CreateToken, &body)
    }

    /// Queues a message to the runtime by way of the service; it leaves with the next poll.
    pub fn send_service_message(&mut self, message: &str) -> Result<(), ScriptError> {
        self.assert_not_failed()?;
        let client = self.session.connected()?;
        client.outgoing.push(format!(
            r#"{{"id":{},"qualifier":"CLIENT_OUTGOING_MESSAGE","body":{{"data":{}}}}}"#,
            client.next_message_id,
            lua::quote(message)
        ));
        client.next_message_id += 1;
        Ok(())
    }

    /// Sends a text frame over the dispatcher socket, with the next frame of the game.
    pub fn send_text_message(&mut self, message: &str) -> Result<(), ScriptError> {
        self.send_over_dispatcher(&Payload::Text(message.to_owned()))
    }

    /// Sends a binary frame over the dispatcher socket, with the next frame of the game.
    pub fn send_binary_message(&mut self, message: &[u8]) -> Result<(), ScriptError> {
        self.send_over_dispatcher(&Payload::Binary(message.to_vec()))
    }

    /// One frame of the game, `dt` seconds after the one before.
    pub fn update(&mut self, dt: f64) -> Vec<Event> {
        self.poll_sockets();
        while let Some(response) = self.http.poll() {
            self.handle_response(&response);
        }
        if let Err(error) = self.interchange(dt) {
            // The error leaves `update` before the events are handed out; they come with the next frame.
            self.script_errors.push(error);
            return Vec::new();
        }
        std::mem::take(&mut self.session.events)
    }

    /// Waits until no request is on its way, repetitions included, while no time passes for the game. `false` if some
    /// still are when the limit is reached.
    pub fn settle(&mut self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while !self.session.pending.is_empty() {
            match self.http.wait(deadline.saturating_duration_since(Instant::now())) {
                Some(response) => self.handle_response(&response),
                None => return false,
            }
        }
        true
    }

    /// Plays in real time, sixty frames a second, until the handler returns something or the deadline passes. The
    /// handler gets one event at a time and may use the player; events it did not get to see wait for the next call.
    pub fn run_until<T>(
        &mut self,
        deadline: Instant,
        mut handler: impl FnMut(&mut Player, Event) -> Option<T>,
    ) -> Result<T, Missed> {
        let mut seen = Vec::new();
        let mut last_frame = Instant::now();
        loop {
            while let Some(event) = self.held.pop_front() {
                seen.push(event.clone());
                if let Some(result) = handler(self, event) {
                    return Ok(result);
                }
            }
            if Instant::now() >= deadline {
                let script_errors = self.script_errors.clone();
                return Err(Missed {
                    state: self.state(),
                    events: seen,
                    script_errors,
                });
            }
            thread::sleep(Duration::from_secs_f64(FRAME / self.options.speed.max(1.0)));
            let now = Instant::now();
            let dt = now.duration_since(last_frame).as_secs_f64() * self.options.speed;
            last_frame = now;
            let events = self.update(dt);
            self.held.extend(events);
        }
    }

    fn assert_not_failed(&self) -> Result<(), ScriptError> {
        if self.session.failed {
            return Err(ScriptError::new("The player has failed, a reset is required"));
        }
        Ok(())
    }

    fn send_over_dispatcher(&mut self, payload: &Payload) -> Result<(), ScriptError> {
        self.assert_not_failed()?;
        match self.session.sockets.last_mut() {
            Some(socket) if self.session.has_connection => socket.send(payload),
            _ => Err(ScriptError::new("The dispatcher must be connected")),
        }
    }

    fn call(&mut self, kind: CallKind, body: &str) -> Result<(), ScriptError> {
        let path = format!("/service/v1/entrypoint/player/request/{}", kind.operation());
        let token = match kind {
            CallKind::CreateClient | CallKind::Interchange => self.session.api_token.as_deref(),
            CallKind::Ping | CallKind::CreateUser | CallKind::CreateToken => None,
        };
        let request = self.url.post(&path, token, body);
        self.send(Call {
            kind,
            request,
            attempts_left: kind.attempts(),
            forgotten: false,
        })
    }

    fn send(&mut self, mut call: Call) -> Result<(), ScriptError> {
        if !self.http.send(call.request.clone()) {
            return Err(ScriptError::new("too many requests are waiting"));
        }
        call.attempts_left -= 1;
        self.session.pending.push_back(call);
        Ok(())
    }

    fn handle_response(&mut self, response: &Response) {
        let Some(call) = self.session.pending.pop_front() else {
            return;
        };
        if call.forgotten {
            return;
        }
        let kind = call.kind;
        let handled = match lua::decode(&response.body) {
            Ok(body) if response.is_success() => self.handle_success(kind, &body),
            Ok(_) if call.attempts_left > 0 => self.send(call),
            Ok(body) => {
                self.handle_failure(kind, response.status, &lua::encode_by_default(&body), "nil");
                Ok(())
            }
            Err(error) => {
                self.handle_failure(kind, response.status, "nil", &error);
                Ok(())
            }
        };
        if let Err(error) = handled {
            self.session.callback_crashed |= kind != CallKind::Ping;
            self.script_errors.push(error);
        }
    }

    fn handle_failure(&mut self, kind: CallKind, status: u16, body: &str, error: &str) {
        if kind != CallKind::Ping {
            let failure = kind.failure();
            self.session.fail(format!(
                "{failure}, response_status={status}, decoded_body={body}, encoding_error={error}"
            ));
        }
    }

    fn handle_success(&mut self, kind: CallKind, body: &Value) -> Result<(), ScriptError> {
        match kind {
            CallKind::Ping => {
                let message = lua::index(body, "message")?.clone();
                self.session.events.push(Event::ServicePinged { message });
            }
            CallKind::CreateUser => {
                let (user_id, password) = (needed_text(body, "user_id")?, needed_text(body, "password")?);
                self.session.events.push(Event::SignedUp { user_id, password });
            }
            CallKind::CreateToken => {
                self.session.api_token = Some(needed_text(body, "raw_token")?);
                let Options {
                    tenant, project, stage, ..
                } = &self.options;
                let (tenant, project, stage) = (lua::quote(tenant), lua::quote(project), lua::quote(stage));
                let body = format!(r#"{{"tenant":{tenant},"project":{project},"stage":{stage}}}"#);
                self.call(CallKind::CreateClient, &body)?;
            }
            CallKind::CreateClient => {
                let client_id = needed_text(body, "client_id")?;
                self.session.client = Some(Connected {
                    id: lua::index(body, "client_id")?.clone(),
                    next_message_id: 0,
                    outgoing: Vec::new(),
                    incoming: Vec::new(),
                    consumed: Vec::new(),
                });
                self.session.events.push(Event::SignedIn { client_id });
            }
            CallKind::Interchange => {
                let Value::Array(messages) = lua::index(body, "incoming_messages")? else {
                    return Err(ScriptError::new("attempt to get length of local 'incoming_messages'"));
                };
                let client = self.session.connected()?;
                for message in messages {
                    let id = lua::index(message, "id")?;
                    client.incoming.push(message.clone());
                    if !id.is_null() {
                        client.consumed.push(id.clone());
                    }
                }
                self.session.interchange_requested = false;
            }
        }
        Ok(())
    }
}

/// A field that the SDK uses as a string.
fn needed_text(body: &Value, field: &str) -> Result<String, ScriptError> {
    joined(lua::index(body, field)?, field)
}
