//! A client's dealings with its platform, sans-I/O: exchanging messages, and the socket to the runtime that comes and
//! goes with the player's assignments.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use omgservers_protocol::Json;
use omgservers_protocol::client::to_json;
use omgservers_protocol::id::{ClientId, MessageId, RuntimeId};
use omgservers_protocol::message::ToPlayer;
use omgservers_protocol::mux::MESSAGE_BYTES_MAX;
use omgservers_protocol::player::{Interchange, RenewConnection, RenewedConnection};
use omgservers_protocol::w1::{CLIENT_OUTGOING_MESSAGE, OutgoingData, OutgoingMessage};

use super::Event;
use crate::Error;
use crate::exchange::{Backoff, Exchange, Failure, Fresh};
use crate::login::{Login, Token};
use crate::shell::Core;

/// Messages that wait for the service.
const MESSAGES_MAX: usize = 1_024;
/// Packets that wait for the socket.
const PACKETS_MAX: usize = 1_024;
/// Events that wait to be taken. Beyond it nothing more is read.
const EVENTS_MAX: usize = 1_024;
/// How long the service may hold a poll; it allows 20 000.
const POLL_WAIT_MS: u64 = 10_000;
/// "Policy violation": the runtime or the dispatcher wanted the socket closed, so it stays closed.
const UNWANTED: u16 = 1008;

/// What happened. The number is that of the socket.
pub(crate) enum Input {
    LoggedIn(Result<String, Failure>),
    Polled(Token, Result<Vec<Json>, Failure>),
    Sent(Token, Result<Vec<Json>, Failure>),
    Renewed(Token, u64, Result<RenewedConnection, Failure>),
    SocketOpened(u64),
    SocketReceived(u64, bool, Bytes),
    SocketClosed(u64, Option<u16>, String),
}

/// What must be done next.
pub(crate) enum Output {
    LogIn,
    Poll(Token, Interchange),
    Send(Token, Interchange),
    Renew(Token, u64, RenewConnection),
    OpenSocket(u64, String),
}

pub(crate) struct Session {
    client: ClientId,
    login: Login,
    exchange: Exchange<MessageId>,
    next_number: i64,
    runtime: Option<RuntimeId>,
    /// Counts sockets, so that news of an old one is not taken for news of the present one.
    number: u64,
    socket: Socket,
    socket_backoff: Backoff,
    packets: VecDeque<(bool, BytesMut)>,
    events: VecDeque<Event>,
    is_over: bool,
    /// The last event was taken.
    is_told: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Socket {
    /// Not wanted.
    None,
    /// Lost; a new token is needed.
    Lost,
    Renewing,
    /// May be opened with this token.
    Granted(String),
    Opening,
    Open,
}

impl Session {
    pub(crate) fn new(client: ClientId, token: String) -> Self {
        let seed = client.get().cast_unsigned();
        let mut login = Login::new(seed);
        login.granted(token);
        Self {
            client,
            login,
            exchange: Exchange::new(MESSAGES_MAX, seed),
            next_number: 0,
            runtime: None,
            number: 0,
            socket: Socket::None,
            socket_backoff: Backoff::new(seed ^ 2),
            packets: VecDeque::new(),
            events: VecDeque::new(),
            is_over: false,
            is_told: false,
        }
    }

    pub(crate) fn next_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front();
        self.is_told |= matches!(event, Some(Event::Removed { .. }));
        event
    }

    pub(crate) fn is_told(&self) -> bool {
        self.is_told
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.socket == Socket::Open
    }

    /// Queues a message to the runtime, with a number by which the service recognises it when it is repeated.
    pub(crate) fn say(&mut self, data: Json) -> Result<(), Error> {
        if self.is_over {
            return Err(Error::Closed);
        }
        let message = OutgoingMessage {
            id: self.next_number,
            qualifier: CLIENT_OUTGOING_MESSAGE.to_owned(),
            body: OutgoingData { data },
        };
        self.exchange.push(to_json(&message))?;
        self.next_number += 1;
        Ok(())
    }

    /// Queues a packet for the socket.
    pub(crate) fn packet(&mut self, text: bool, bytes: &[u8]) -> Result<(), Error> {
        if !self.is_connected() {
            return Err(Error::NoLink);
        }
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(Error::TooLong {
                bytes: bytes.len(),
                bytes_max: MESSAGE_BYTES_MAX,
            });
        }
        if self.packets.len() >= PACKETS_MAX {
            return Err(Error::QueueFull);
        }
        self.packets.push_back((text, bytes.into()));
        Ok(())
    }

    /// The next packet for this socket.
    pub(crate) fn next_packet(&mut self, number: u64) -> Option<(bool, BytesMut)> {
        if !self.is_current(number) {
            return None;
        }
        self.packets.pop_front()
    }

    pub(crate) fn is_current(&self, number: u64) -> bool {
        self.number == number && !self.is_over
    }

    fn logged_in(&mut self, now: Duration, reply: Result<String, Failure>) {
        match reply {
            Ok(token) => self.login.granted(token),
            Err(failure) => {
                if let Some(reason) = self.login.denied(now, failure) {
                    self.end(reason);
                }
            }
        }
    }

    fn check(&mut self, token: &Token, reply: &Result<Vec<Json>, Failure>) {
        match reply {
            Err(Failure::Unauthorized(_)) => self.login.expired(token),
            Err(Failure::Gone(reason)) => self.end(reason.clone()),
            _ => {}
        }
    }

    fn end(&mut self, reason: String) {
        if !self.is_over {
            self.is_over = true;
            self.drop_socket("the client is deleted");
            self.events.push_back(Event::Removed { reason });
        }
    }

    /// Whatever socket there is, it is not the present one any more.
    fn drop_socket(&mut self, reason: &str) {
        if self.is_connected() {
            let reason = reason.to_owned();
            self.events.push_back(Event::Disconnected { reason });
        }
        self.socket = Socket::None;
        self.number += 1;
        self.packets.clear();
    }

    fn receive(&mut self, messages: Vec<Fresh>) {
        for message in messages {
            let qualifier = message.qualifier;
            match ToPlayer::parse(&qualifier, message.body.get()) {
                Some(Ok(message)) => self.receive_message(message),
                Some(Err(cause)) => tracing::warn!(qualifier, %cause, "left out a message that could not be read"),
                None => tracing::debug!(qualifier, "left out a message of a kind that this SDK does not know"),
            }
        }
    }

    fn receive_message(&mut self, message: ToPlayer) {
        match message {
            ToPlayer::Welcome(welcome) => self.events.push_back(Event::Welcome {
                tenant: welcome.tenant_id,
                version: welcome.version_id,
                version_created: welcome.version_created,
            }),
            ToPlayer::MatchmakerAssigned(_) => {}
            ToPlayer::RuntimeAssigned(assigned) => {
                self.drop_socket("the player moved on");
                self.runtime = Some(assigned.runtime_id);
                self.events.push_back(Event::Assigned {
                    qualifier: assigned.runtime_qualifier,
                    runtime: assigned.runtime_id,
                    config: Box::new(assigned.runtime_config),
                });
            }
            ToPlayer::ConnectionUpgraded(upgrade) => {
                if let Some(config) = upgrade.web_socket_config {
                    self.drop_socket("the runtime asked for another");
                    self.socket_backoff.succeeded();
                    self.socket = Socket::Granted(config.ws_token);
                }
            }
            ToPlayer::Disconnected(disconnected) => self.end(format!("{:?}", disconnected.reason)),
            ToPlayer::Produced(produced) => self.events.push_back(Event::Message(produced.message)),
            ToPlayer::ProvisioningStatus(status) => self.events.push_back(Event::Status {
                stage: status.stage,
                position: status.position,
                detail: status.detail,
            }),
        }
    }

    fn renewed(&mut self, now: Duration, number: u64, reply: Result<RenewedConnection, Failure>) {
        if !self.is_current(number) || self.socket != Socket::Renewing {
            return;
        }
        self.socket = match reply {
            Ok(renewed) if Some(renewed.runtime_id) == self.runtime => Socket::Granted(renewed.ws_token),
            // The player is being moved; the new runtime will ask for a socket if it wants one.
            Ok(_) | Err(Failure::Refused(_)) => Socket::None,
            Err(_) => {
                self.socket_backoff.failed(now);
                Socket::Lost
            }
        };
    }

    fn socket_closed(&mut self, now: Duration, number: u64, code: Option<u16>, reason: String) {
        if !self.is_current(number) {
            return;
        }
        self.drop_socket(&reason);
        if code != Some(UNWANTED) {
            self.socket_backoff.failed(now);
            self.socket = Socket::Lost;
        }
    }

    fn interchange(&self, messages: Vec<Json>, consumed: Vec<MessageId>, wait_ms: u64) -> Interchange {
        Interchange {
            client_id: self.client,
            outgoing_messages: messages,
            consumed_messages: consumed,
            wait_ms: Some(wait_ms),
        }
    }
}

impl Core for Session {
    type Input = Input;
    type Output = Output;

    fn handle(&mut self, now: Duration, input: Input) {
        match input {
            Input::LoggedIn(reply) => self.logged_in(now, reply),
            Input::Polled(token, reply) => {
                self.check(&token, &reply);
                let fresh = self.exchange.polled(now, reply);
                self.receive(fresh);
            }
            Input::Sent(token, reply) => {
                self.check(&token, &reply);
                let (fresh, refused) = self.exchange.sent(now, reply);
                self.receive(fresh);
                if refused.is_some() {
                    tracing::warn!(client.id = %self.client, "the service refused a message");
                }
            }
            Input::Renewed(token, number, reply) => {
                if matches!(reply, Err(Failure::Unauthorized(_))) {
                    self.login.expired(&token);
                }
                self.renewed(now, number, reply);
            }
            Input::SocketOpened(number) => {
                if self.is_current(number) {
                    self.socket = Socket::Open;
                    self.events.push_back(Event::Connected);
                }
            }
            Input::SocketReceived(number, text, bytes) => {
                if self.is_current(number) {
                    // A socket that works is worth coming back to soon.
                    self.socket_backoff.succeeded();
                    self.events.push_back(Event::Packet { text, bytes });
                }
            }
            Input::SocketClosed(number, code, reason) => self.socket_closed(now, number, code, reason),
        }
    }

    fn poll(&mut self, now: Duration) -> Option<Output> {
        if self.is_over {
            return None;
        }
        let Some(token) = self.login.token() else {
            return self.login.start(now).then_some(Output::LogIn);
        };
        if let Some(messages) = self.exchange.start_send(now) {
            return Some(Output::Send(token, self.interchange(messages, Vec::new(), 0)));
        }
        if !self.is_congested()
            && let Some(consumed) = self.exchange.start_poll(now)
        {
            return Some(Output::Poll(
                token,
                self.interchange(Vec::new(), consumed, POLL_WAIT_MS),
            ));
        }
        match &mut self.socket {
            Socket::Granted(ws_token) => {
                let output = Output::OpenSocket(self.number, std::mem::take(ws_token));
                self.socket = Socket::Opening;
                Some(output)
            }
            Socket::Lost if self.socket_backoff.is_over(now) => {
                self.socket = Socket::Renewing;
                let client_id = self.client;
                Some(Output::Renew(token, self.number, RenewConnection { client_id }))
            }
            _ => None,
        }
    }

    fn deadline(&self, now: Duration) -> Option<Duration> {
        let pauses = [
            Some(self.login.until()),
            self.exchange.deadline(now),
            Some(self.socket_backoff.until()),
        ];
        pauses.into_iter().flatten().filter(|until| *until > now).min()
    }

    fn is_congested(&self) -> bool {
        self.events.len() >= EVENTS_MAX
    }

    fn is_over(&self) -> bool {
        self.is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1);

    struct World {
        session: Session,
        now: Duration,
        next_id: i64,
        /// The poll that is held.
        held: Option<(Token, Interchange)>,
    }

    impl World {
        fn new() -> Self {
            let mut world = Self {
                session: Session::new(ClientId(7), "first".into()),
                now: NOW,
                next_id: 1,
                held: None,
            };
            world.hold();
            world
        }

        fn poll(&mut self) -> Option<Output> {
            self.session.poll(self.now)
        }

        fn handle(&mut self, input: Input) {
            self.session.handle(self.now, input);
        }

        fn hold(&mut self) {
            match self.poll() {
                Some(Output::Poll(token, request)) => self.held = Some((token, request)),
                _ => panic!("a poll was expected"),
            }
        }

        /// The service says something.
        fn tell(&mut self, qualifier: &str, body: &str) {
            let (token, _) = self.held.take().expect("a poll is held");
            let id = self.next_id;
            self.next_id += 1;
            let message = format!(r#"{{"id":"{id}","qualifier":"{qualifier}","body":{body}}}"#);
            self.handle(Input::Polled(token, Ok(vec![serde_json::from_str(&message).unwrap()])));
            if !self.session.is_over {
                self.hold();
            }
        }

        fn assign(&mut self, runtime: i64) {
            let config = r#"{"lobby_config":null,"match_config":null,"version_config":{"modes":[]}}"#;
            let body = format!(r#"{{"runtime_id":"{runtime}","runtime_qualifier":"LOBBY","runtime_config":{config}}}"#);
            self.tell("RUNTIME_ASSIGNMENT_MESSAGE", &body);
        }

        fn upgrade(&mut self, token: &str) {
            let body =
                format!(r#"{{"client_id":"7","protocol":"DISPATCHER","web_socket_config":{{"ws_token":"{token}"}}}}"#);
            self.tell("CONNECTION_UPGRADE_MESSAGE", &body);
        }

        /// Opens the socket that is asked for, and gives its number.
        fn open(&mut self, expected_token: &str) -> u64 {
            match self.poll() {
                Some(Output::OpenSocket(number, token)) => {
                    assert_eq!(token, expected_token);
                    self.handle(Input::SocketOpened(number));
                    number
                }
                _ => panic!("a socket was expected"),
            }
        }

        fn events(&mut self) -> Vec<String> {
            let name = |event| match event {
                Event::Assigned { runtime, .. } => format!("Assigned {runtime}"),
                other => format!("{other:?}"),
            };
            std::iter::from_fn(|| self.session.next_event()).map(name).collect()
        }
    }

    fn renewed(runtime: i64, token: &str) -> Result<RenewedConnection, Failure> {
        Ok(RenewedConnection {
            runtime_id: RuntimeId(runtime),
            ws_token: token.into(),
        })
    }

    #[test]
    fn a_socket_opens_when_the_runtime_asks_and_closes_when_the_player_moves_on() {
        let mut world = World::new();
        world.assign(1);
        assert!(world.poll().is_none());
        world.upgrade("a");
        let number = world.open("a");
        world.handle(Input::SocketReceived(number, true, "hi".into()));
        world.session.packet(false, b"never sent").unwrap();
        world.assign(2);
        assert!(!world.session.is_current(number), "the old socket is to be closed");
        world.handle(Input::SocketReceived(number, true, "late".into()));
        world.handle(Input::SocketClosed(number, None, "closed by this side".into()));
        assert!(world.poll().is_none(), "and not opened again");
        world.upgrade("b");
        world.open("b");
        let expected = [
            "Assigned 1",
            "Connected",
            r#"Packet { text: true, bytes: b"hi" }"#,
            r#"Disconnected { reason: "the player moved on" }"#,
            "Assigned 2",
            "Connected",
        ];
        assert_eq!(world.events(), expected);
    }

    #[test]
    fn a_lost_socket_is_renewed_until_it_is_back() {
        let mut world = World::new();
        world.assign(1);
        world.upgrade("a");
        let number = world.open("a");
        world.handle(Input::SocketClosed(number, Some(1001), "Room was removed".into()));
        assert!(matches!(world.session.packet(true, b"x"), Err(Error::NoLink)));
        for _ in 0..3 {
            assert!(world.poll().is_none(), "a pause first");
            world.now = world.session.deadline(world.now).unwrap();
            let Some(Output::Renew(token, number, call)) = world.poll() else {
                panic!("a renewal was expected")
            };
            assert_eq!(call.client_id, ClientId(7));
            world.handle(Input::Renewed(token, number, Err(Failure::Unavailable("down".into()))));
        }
        world.now += Duration::from_secs(2);
        let Some(Output::Renew(token, number, _)) = world.poll() else {
            panic!("a renewal was expected")
        };
        world.handle(Input::Renewed(token, number, renewed(1, "b")));
        world.open("b");
        let expected = [
            "Assigned 1",
            "Connected",
            r#"Disconnected { reason: "Room was removed" }"#,
            "Connected",
        ];
        assert_eq!(world.events(), expected);
    }

    #[test]
    fn a_socket_that_the_runtime_closed_stays_closed() {
        let mut world = World::new();
        world.assign(1);
        world.upgrade("a");
        let number = world.open("a");
        world.handle(Input::SocketClosed(number, Some(UNWANTED), "cheater".into()));
        world.now += Duration::from_secs(60);
        assert!(world.poll().is_none());
    }

    #[test]
    fn a_renewal_that_is_overtaken_by_an_assignment_is_forgotten() {
        let mut world = World::new();
        world.assign(1);
        world.upgrade("a");
        let number = world.open("a");
        world.handle(Input::SocketClosed(number, None, "lost".into()));
        world.now += NOW;
        let Some(Output::Renew(token, number, _)) = world.poll() else {
            panic!("a renewal was expected")
        };
        world.assign(2);
        world.handle(Input::Renewed(token, number, renewed(1, "b")));
        assert!(world.poll().is_none());
    }

    #[test]
    fn messages_are_numbered_and_repeated_with_the_same_numbers() {
        let mut world = World::new();
        for word in ["\"a\"", "\"b\""] {
            world.session.say(serde_json::from_str(word).unwrap()).unwrap();
        }
        for _ in 0..3 {
            let Some(Output::Send(token, request)) = world.poll() else {
                panic!("a send was expected")
            };
            let texts: Vec<&str> = request.outgoing_messages.iter().map(|message| message.get()).collect();
            let message =
                |id, data| format!(r#"{{"id":{id},"qualifier":"CLIENT_OUTGOING_MESSAGE","body":{{"data":"{data}"}}}}"#);
            assert_eq!(texts, [message(0, "a"), message(1, "b")]);
            world.handle(Input::Sent(token, Err(Failure::Unavailable("down".into()))));
            world.now += NOW;
        }
    }

    #[test]
    fn an_expired_token_is_replaced() {
        let mut world = World::new();
        let (token, _) = world.held.take().unwrap();
        world.handle(Input::Polled(token, Err(Failure::Unauthorized("expired".into()))));
        assert!(matches!(world.poll(), Some(Output::LogIn)));
        assert!(world.poll().is_none());
        world.handle(Input::LoggedIn(Ok("second".into())));
        world.now += NOW;
        world.hold();
        assert_eq!(&*world.held.unwrap().0.text, "second");
    }

    #[test]
    fn a_deleted_client_is_over() {
        let mut world = World::new();
        world.tell("DISCONNECTION_REASON_MESSAGE", r#"{"reason":"CLIENT_INACTIVITY"}"#);
        assert_eq!(world.events(), [r#"Removed { reason: "ClientInactivity" }"#]);
        assert!(world.session.is_told() && world.poll().is_none());
        assert!(matches!(
            world.session.say(serde_json::from_str("1").unwrap()),
            Err(Error::Closed)
        ));
    }
}
