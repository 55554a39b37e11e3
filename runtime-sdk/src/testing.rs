//! A platform in memory: drive a game without a network, and look at what it sends.
//!
//! The game holds the same [`Runtime`] as in a container; behind it are the same queues and rules, only the sockets are
//! missing. So a test of a game is a plain function:
//!
//! ```
//! use omgservers_runtime_sdk::testing::{Platform, Sent, To};
//! use omgservers_runtime_sdk::{ClientId, Error, Event, Lane, Runtime};
//!
//! /// The game: whoever enters is asked for a socket, and what one says there, all hear.
//! fn tick(game: &mut Runtime) -> Result<(), Error> {
//!     while let Some(event) = game.try_next() {
//!         match event {
//!             Event::ClientAdded { client, .. } => game.upgrade(client)?,
//!             Event::Packet { bytes, lane, .. } => game.send_all(lane, bytes)?,
//!             _ => {}
//!         }
//!     }
//!     Ok(())
//! }
//!
//! let ann = ClientId(1);
//! let (mut platform, mut game) = Platform::start_match("duel");
//! platform.add_client(ann, Some("red"), &serde_json::json!({}));
//! tick(&mut game)?;
//! assert_eq!(platform.sent(), [Sent::Upgrade { client: ann }]);
//!
//! platform.connect(ann);
//! platform.packet(ann, Lane::Unreliable, b"hello");
//! tick(&mut game)?;
//! let hello = Sent::Packet { to: To::All, lane: Lane::Unreliable, text: false, bytes: "hello".into() };
//! assert_eq!(platform.sent(), [hello]);
//! # Ok::<(), Error>(())
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use omgservers_protocol::client::to_json;
use omgservers_protocol::config::{LobbyRef, MatchRef};
use omgservers_protocol::id::{LobbyId, MatchId, MatchmakerId};
use omgservers_protocol::message as wire;
use omgservers_protocol::message::{FromRuntime, ToRuntime};
use omgservers_protocol::runtime::{Interchange, RuntimeTokens};
use omgservers_protocol::{Json, mux, w1};
use serde::Serialize;
use serde_json::Value;

use crate::login::Token;
use crate::session::{Input, Output, Session};
use crate::shell::{Core as _, Shared};
use crate::{ClientId, Lane, Left, Runtime, RuntimeConfig, RuntimeQualifier, UserId, VersionConfig};

/// Something that the game sent.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the fields are the arguments of the call of the same name")]
pub enum Sent {
    /// [`Runtime::respond`]
    Respond { client: ClientId, message: Value },
    /// [`Runtime::multicast`]
    Multicast { clients: Vec<ClientId>, message: Value },
    /// [`Runtime::broadcast`]
    Broadcast { message: Value },
    /// [`Runtime::set_profile`]
    SetProfile { client: ClientId, profile: Value },
    /// [`Runtime::request_matchmaking`]
    RequestMatchmaking { client: ClientId, mode: String },
    /// [`Runtime::kick`]
    Kick { client: ClientId },
    /// [`Runtime::stop_matchmaking`]
    StopMatchmaking,
    /// [`Runtime::upgrade`]
    Upgrade { client: ClientId },
    /// [`Runtime::send`] and its kin
    Packet {
        to: To,
        lane: Lane,
        text: bool,
        bytes: Bytes,
    },
    /// [`Runtime::disconnect`]
    Disconnect { client: ClientId, reason: String },
}

/// Whom a packet was sent to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum To {
    /// [`Runtime::send`]
    One(ClientId),
    /// [`Runtime::send_many`]
    Many(Vec<ClientId>),
    /// [`Runtime::send_all`]
    All,
}

/// The service and the dispatcher, as far as one game sees them.
pub struct Platform {
    shared: Arc<Shared<Session>>,
    next_command: i64,
    /// Commands for the game that it has not acknowledged.
    commands: VecDeque<(i64, Json)>,
    /// The poll that is held.
    held: Option<(Token, Interchange)>,
    is_ready: bool,
    sent: Vec<Sent>,
}

impl Platform {
    /// A platform whose only runtime has just been started, and that runtime.
    pub fn start(config: RuntimeConfig) -> (Self, Runtime) {
        let qualifier = match config.match_config {
            Some(_) => RuntimeQualifier::Match,
            None => RuntimeQualifier::Lobby,
        };
        let shared = Arc::new(Shared::new(Session::new(true, 0)));
        let mut platform = Self {
            shared: Arc::clone(&shared),
            next_command: 1,
            commands: VecDeque::new(),
            held: None,
            is_ready: false,
            sent: Vec::new(),
        };
        let runtime_config = config.clone();
        platform.command(wire::Init { runtime_config });
        (platform, Runtime::in_memory(shared, qualifier, config))
    }

    /// A lobby of a version without modes.
    pub fn start_lobby() -> (Self, Runtime) {
        Self::start(RuntimeConfig {
            lobby_config: Some(LobbyRef { lobby_id: LobbyId(1) }),
            match_config: None,
            version_config: empty_version(),
        })
    }

    /// A match in this mode.
    pub fn start_match(mode: &str) -> (Self, Runtime) {
        Self::start(RuntimeConfig {
            lobby_config: None,
            match_config: Some(MatchRef {
                matchmaker_id: MatchmakerId(1),
                match_id: MatchId(1),
                mode: mode.to_owned(),
            }),
            version_config: empty_version(),
        })
    }

    /// Assigns a client, whose user has the same number. In a match it is in a group.
    pub fn add_client(&mut self, client: ClientId, group: Option<&str>, profile: &impl Serialize) {
        let (client_id, user_id, profile) = (client, UserId(client.get()), to_json(profile));
        match group {
            None => self.command(wire::AddClient {
                user_id,
                client_id,
                profile,
            }),
            Some(group) => self.command(wire::AddMatchClient {
                user_id,
                client_id,
                group_name: group.to_owned(),
                profile,
            }),
        }
    }

    /// Takes a client away.
    pub fn remove_client(&mut self, client: ClientId) {
        self.command(wire::DeleteClient { client_id: client });
    }

    /// A player says something through the service.
    pub fn message(&mut self, client: ClientId, message: &(impl Serialize + ?Sized)) {
        let message = serde_json::value::to_raw_value(message).expect("the message of a test is plain data");
        let client_id = client;
        self.command(wire::HandleMessage { client_id, message });
    }

    /// A player opens a socket.
    pub fn connect(&mut self, client: ClientId) {
        self.batch(|batch| mux::put_joined(batch, client));
    }

    /// A player's socket ends.
    pub fn disconnect(&mut self, client: ClientId, reason: Left) {
        self.batch(|batch| mux::put_left(batch, client, reason));
    }

    /// A player sends a packet over the socket.
    pub fn packet(&mut self, client: ClientId, lane: Lane, bytes: impl AsRef<[u8]>) {
        self.batch(|batch| mux::put_data(batch, client, lane, false, bytes.as_ref()));
    }

    /// A player sends a text over the socket.
    pub fn text(&mut self, client: ClientId, lane: Lane, text: &str) {
        self.batch(|batch| mux::put_data(batch, client, lane, true, text.as_bytes()));
    }

    /// Asks the game to stop.
    pub fn stop(&mut self) {
        self.shared.core().stop();
        self.shared.news.notify_one();
    }

    /// Whether the game has said that players may come.
    pub fn is_ready(&mut self) -> bool {
        self.run();
        self.is_ready
    }

    /// What the game sent since the last call: first what went to the service, then what went to the dispatcher, each
    /// in order.
    pub fn sent(&mut self) -> Vec<Sent> {
        self.run();
        let batches: Vec<BytesMut> = {
            let mut session = self.shared.core();
            std::iter::from_fn(|| session.link().take_batch()).collect()
        };
        for frame in batches.into_iter().flat_map(|batch| mux::decode(batch.freeze())) {
            self.sent.push(packet(frame.expect("the SDK writes what it can read")));
        }
        std::mem::take(&mut self.sent)
    }

    fn command(&mut self, command: impl Into<ToRuntime>) {
        let command = command.into();
        let id = self.next_command;
        self.next_command += 1;
        let envelope = serde_json::json!({
            "id": id.to_string(), "qualifier": command.qualifier(), "body": command.body(),
        });
        self.commands.push_back((id, to_json(&envelope)));
        self.run();
    }

    fn batch(&mut self, put: impl FnOnce(&mut BytesMut) -> Result<(), mux::DoesNotFit>) {
        self.run();
        let mut batch = BytesMut::new();
        put(&mut batch).expect("a packet is not longer than the dispatcher allows");
        self.shared.handle(Input::LinkReceived(batch.freeze()));
    }

    /// Does what the runtime asks for, until it waits.
    fn run(&mut self) {
        loop {
            let output = self.shared.core().poll(self.shared.now());
            match output {
                Some(output) => self.answer(output),
                None if self.commands.is_empty() => return,
                None => match self.held.take() {
                    Some((token, _)) => {
                        let commands = self.commands.iter().map(|(_, command)| command.clone()).collect();
                        self.shared.handle(Input::Polled(token, Ok(commands)));
                    }
                    // The game lags behind and does not ask; the commands wait.
                    None => return,
                },
            }
        }
    }

    fn answer(&mut self, output: Output) {
        match output {
            Output::LogIn => self.shared.handle(Input::LoggedIn(Ok(RuntimeTokens {
                api_token: "in memory".to_owned(),
                ws_token: "in memory".to_owned(),
            }))),
            Output::OpenLink(_) => {
                self.shared.handle(Input::LinkOpened);
                let mut batch = BytesMut::new();
                mux::put_synced(&mut batch).expect("the batch is empty");
                self.shared.handle(Input::LinkReceived(batch.freeze()));
            }
            Output::Poll(token, request) => {
                self.is_ready |= request.ready.is_none();
                let consumed = |id: i64| request.consumed_commands.iter().any(|command| command.get() == id);
                self.commands.retain(|(id, _)| !consumed(*id));
                self.held = Some((token, request));
            }
            Output::Send(token, request) => {
                self.is_ready |= request.ready.is_none();
                for command in &request.outgoing_commands {
                    let command = w1::parse_from_runtime(command).expect("the SDK writes what the service can read");
                    self.sent.push(sent(command));
                }
                self.shared.handle(Input::Sent(token, Ok(Vec::new())));
            }
        }
    }
}

fn empty_version() -> VersionConfig {
    VersionConfig {
        modes: Vec::new(),
        user_data: None,
    }
}

fn value(json: &Json) -> Value {
    serde_json::from_str(json.get()).expect("it is JSON already")
}

fn sent(command: FromRuntime) -> Sent {
    match command {
        FromRuntime::RespondClient(respond) => Sent::Respond {
            client: respond.client_id,
            message: value(&respond.message),
        },
        FromRuntime::MulticastMessage(multicast) => Sent::Multicast {
            clients: multicast.clients,
            message: value(&multicast.message),
        },
        FromRuntime::BroadcastMessage(broadcast) => Sent::Broadcast {
            message: value(&broadcast.message),
        },
        FromRuntime::SetProfile(set) => Sent::SetProfile {
            client: set.client_id,
            profile: value(&set.profile),
        },
        FromRuntime::RequestMatchmaking(request) => Sent::RequestMatchmaking {
            client: request.client_id,
            mode: request.mode,
        },
        FromRuntime::KickClient(kick) => Sent::Kick { client: kick.client_id },
        FromRuntime::StopMatchmaking(_) => Sent::StopMatchmaking,
        FromRuntime::UpgradeConnection(upgrade) => Sent::Upgrade {
            client: upgrade.client_id,
        },
    }
}

fn packet(frame: mux::FromRuntime) -> Sent {
    match frame {
        mux::FromRuntime::Send {
            clients,
            lane,
            text,
            bytes,
        } => {
            let to = match clients {
                mux::Clients::One(client) => To::One(client),
                mux::Clients::Many(clients) => To::Many(clients.iter().collect()),
                mux::Clients::All => To::All,
            };
            Sent::Packet { to, lane, text, bytes }
        }
        mux::FromRuntime::Kick { client, reason } => Sent::Disconnect {
            client,
            reason: String::from_utf8_lossy(&reason).into_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Event;
    use serde_json::json;

    const ANN: ClientId = ClientId(1);
    const BOB: ClientId = ClientId(2);

    fn events(game: &mut Runtime) -> Vec<String> {
        std::iter::from_fn(|| game.try_next())
            .map(|event| format!("{event:?}"))
            .collect()
    }

    #[test]
    fn a_game_sees_its_players_come_speak_and_go() {
        let (mut platform, mut game) = Platform::start_match("duel");
        assert_eq!(game.qualifier(), RuntimeQualifier::Match);
        assert_eq!(game.config().match_config.as_ref().unwrap().mode, "duel");
        platform.add_client(ANN, Some("red"), &json!({"wins": 3}));
        platform.message(ANN, "hi");
        platform.connect(ANN);
        platform.text(ANN, Lane::Reliable, "now");
        platform.disconnect(ANN, Left::Idle);
        platform.remove_client(ANN);
        platform.stop();
        platform.message(ANN, "too late");
        assert_eq!(
            events(&mut game),
            [
                r#"ClientAdded { client: 1, user: 1, group: Some("red"), profile: RawValue({"wins":3}) }"#,
                r#"Message { client: 1, message: RawValue("hi") }"#,
                "Connected { client: 1 }",
                r#"Packet { client: 1, lane: Reliable, text: true, bytes: b"now" }"#,
                "Disconnected { client: 1, reason: Idle }",
                "ClientRemoved { client: 1 }",
                "Stop",
            ]
        );
    }

    #[test]
    fn everything_a_game_sends_can_be_looked_at() {
        let (mut platform, game) = Platform::start_lobby();
        game.respond(ANN, "hello").unwrap();
        game.multicast(&[ANN, BOB], &json!([1])).unwrap();
        game.broadcast(&json!(null)).unwrap();
        game.set_profile(ANN, &json!({"wins": 4})).unwrap();
        game.request_matchmaking(ANN, "duel").unwrap();
        game.kick(BOB).unwrap();
        game.stop_matchmaking().unwrap();
        game.upgrade(ANN).unwrap();
        game.send(ANN, Lane::Reliable, b"one").unwrap();
        game.send_text_many(&[ANN, BOB], Lane::Reliable, "many").unwrap();
        game.disconnect(BOB, "bye").unwrap();
        let (lane, client) = (Lane::Reliable, ANN);
        let expected = [
            Sent::Respond {
                client,
                message: json!("hello"),
            },
            Sent::Multicast {
                clients: vec![ANN, BOB],
                message: json!([1]),
            },
            Sent::Broadcast { message: json!(null) },
            Sent::SetProfile {
                client,
                profile: json!({"wins": 4}),
            },
            Sent::RequestMatchmaking {
                client,
                mode: "duel".into(),
            },
            Sent::Kick { client: BOB },
            Sent::StopMatchmaking,
            Sent::Upgrade { client },
            Sent::Packet {
                to: To::One(ANN),
                lane,
                text: false,
                bytes: "one".into(),
            },
            Sent::Packet {
                to: To::Many(vec![ANN, BOB]),
                lane,
                text: true,
                bytes: "many".into(),
            },
            Sent::Disconnect {
                client: BOB,
                reason: "bye".into(),
            },
        ];
        assert_eq!(platform.sent(), expected);
        assert_eq!(platform.sent(), []);
    }

    #[test]
    fn a_game_is_ready_when_it_says_so() {
        let (mut platform, game) = Platform::start_lobby();
        game.broadcast("loading").unwrap();
        assert!(!platform.is_ready());
        game.ready();
        assert!(platform.is_ready());
    }

    #[test]
    fn the_socket_of_a_player_who_was_removed_is_closed() {
        let (mut platform, mut game) = Platform::start_lobby();
        platform.add_client(ANN, None, &json!({}));
        platform.connect(ANN);
        platform.remove_client(ANN);
        platform.remove_client(BOB);
        let reason = "left the game".to_owned();
        assert_eq!(platform.sent(), [Sent::Disconnect { client: ANN, reason }]);
        assert_eq!(events(&mut game).len(), 4);
    }

    #[test]
    fn a_game_that_lags_behind_gets_everything_later() {
        let (mut platform, mut game) = Platform::start_lobby();
        for number in 0..20_000 {
            platform.message(ANN, &number);
        }
        let mut numbers = Vec::new();
        while numbers.len() < 20_000 {
            platform.sent();
            let before = numbers.len();
            while let Some(Event::Message { message, .. }) = game.try_next() {
                numbers.push(crate::parse::<i32>(&message).unwrap());
            }
            assert!(numbers.len() > before, "stuck after {before}");
        }
        assert!(numbers.into_iter().eq(0..20_000));
    }

    #[tokio::test]
    async fn waiting_for_events_works_too_and_ends_after_stop() {
        let (mut platform, mut game) = Platform::start_lobby();
        let waiting = tokio::spawn(async move {
            let mut count = 0;
            while game.next().await.is_some() {
                count += 1;
            }
            count
        });
        for _ in 0..3 {
            platform.message(ANN, "hi");
            tokio::task::yield_now().await;
        }
        platform.stop();
        assert_eq!(waiting.await.unwrap(), 4);
    }
}
