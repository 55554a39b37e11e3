//! A runtime's dealings with its platform, sans-I/O: logging in, exchanging commands, keeping the link up, and what the
//! game is told of it. The shell tells it what happened and carries out what it asks for; see [`Core`]. Time is an
//! argument; sockets are the transport's.

use std::time::Duration;

use bytes::Bytes;
use omgservers_protocol::Json;
use omgservers_protocol::config::RuntimeConfig;
use omgservers_protocol::id::CommandId;
use omgservers_protocol::message::{FromRuntime, ToRuntime};
use omgservers_protocol::mux;
use omgservers_protocol::runtime::{Interchange, RuntimeTokens};
use omgservers_protocol::w1::OutgoingCommand;

use crate::exchange::{Exchange, Failure, Fresh};
use crate::inbox::Inbox;
use crate::link::Link;
use crate::login::{Login, Token};
use crate::shell::Core;
use crate::{Error, Event};

/// Commands that wait for the service: minutes of a lobby's traffic while it restarts.
const COMMANDS_MAX: usize = 4_096;
/// How long the service may hold a poll; it allows 20 000.
pub(crate) const POLL_WAIT_MS: u64 = 10_000;

/// What happened.
pub(crate) enum Input {
    LoggedIn(Result<RuntimeTokens, Failure>),
    Polled(Token, Result<Vec<Json>, Failure>),
    Sent(Token, Result<Vec<Json>, Failure>),
    LinkOpened,
    LinkReceived(Bytes),
    LinkClosed(String),
}

/// What the shell must do next; each is answered by one [`Input`] of the same name.
pub(crate) enum Output {
    LogIn,
    Poll(Token, Interchange),
    Send(Token, Interchange),
    OpenLink(String),
}

pub(crate) struct Session {
    login: Login,
    exchange: Exchange<CommandId>,
    link: Link,
    config: Option<RuntimeConfig>,
    is_ready: bool,
    inbox: Inbox,
    phase: Phase,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Running,
    /// The game was told to stop and may still say good-bye.
    Stopping,
    /// The game says nothing more; what is queued is sent.
    Closing,
    /// The service does not know this runtime, or no longer.
    Gone(String),
}

impl Session {
    pub(crate) fn new(has_link: bool, seed: u64) -> Self {
        Self {
            login: Login::new(seed),
            exchange: Exchange::new(COMMANDS_MAX, seed),
            link: Link::new(has_link, seed),
            config: None,
            is_ready: false,
            inbox: Inbox::default(),
            phase: Phase::Running,
        }
    }

    pub(crate) fn command(&mut self, command: impl Into<FromRuntime>) -> Result<(), Error> {
        if matches!(self.phase, Phase::Closing | Phase::Gone(_)) {
            return Err(Error::Closed);
        }
        let command = OutgoingCommand::from(&command.into());
        self.exchange.push(omgservers_protocol::client::to_json(&command))?;
        Ok(())
    }

    pub(crate) fn link(&mut self) -> &mut Link {
        &mut self.link
    }

    pub(crate) fn config(&self) -> Option<&RuntimeConfig> {
        self.config.as_ref()
    }

    /// Players may come.
    pub(crate) fn ready(&mut self) {
        if !self.is_ready {
            self.is_ready = true;
            self.exchange.nudge();
        }
    }

    /// Somebody wants this process to end.
    pub(crate) fn stop(&mut self) {
        if self.phase == Phase::Running {
            self.phase = Phase::Stopping;
            self.inbox.push(Event::Stop);
        }
    }

    /// The game has said all that it has to say.
    pub(crate) fn close(&mut self) {
        if !matches!(self.phase, Phase::Gone(_)) {
            self.phase = Phase::Closing;
        }
    }

    pub(crate) fn inbox(&mut self) -> &mut Inbox {
        &mut self.inbox
    }

    /// Whether somebody wants this process to end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.phase != Phase::Running
    }

    /// Why the service turned this runtime away, if it did.
    pub(crate) fn gone(&self) -> Option<&str> {
        match &self.phase {
            Phase::Gone(reason) => Some(reason),
            _ => None,
        }
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.phase == Phase::Closing
    }

    fn interchange(&self, commands: Vec<Json>, consumed: Vec<CommandId>, wait_ms: u64) -> Interchange {
        Interchange {
            outgoing_commands: commands,
            consumed_commands: consumed,
            wait_ms: Some(wait_ms),
            ready: (!self.is_ready).then_some(false),
        }
    }

    fn logged_in(&mut self, now: Duration, reply: Result<RuntimeTokens, Failure>) {
        match reply {
            Ok(tokens) => {
                self.login.granted(tokens.api_token);
                self.link.grant(now, tokens.ws_token);
            }
            Err(failure) => {
                if let Some(reason) = self.login.denied(now, failure) {
                    self.vanish(reason);
                }
            }
        }
    }

    /// Draws the conclusions from a failed interchange that are not the exchange's own.
    fn check(&mut self, token: &Token, reply: &Result<Vec<Json>, Failure>) {
        match reply {
            Err(Failure::Gone(reason)) => self.vanish(reason.clone()),
            Err(Failure::Unauthorized(_)) => self.login.expired(token),
            _ => {}
        }
    }

    fn vanish(&mut self, reason: String) {
        tracing::info!(reason, "the service does not know this runtime any more");
        self.stop();
        self.link.turn_off();
        self.phase = Phase::Gone(reason);
    }

    fn receive(&mut self, commands: Vec<Fresh>) {
        for command in commands {
            let qualifier = command.qualifier;
            match ToRuntime::parse(&qualifier, command.body.get()) {
                Some(Ok(command)) => self.receive_command(command),
                Some(Err(cause)) => tracing::warn!(qualifier, %cause, "left out a command that could not be read"),
                None => tracing::debug!(qualifier, "left out a command of a kind that this SDK does not know"),
            }
        }
    }

    fn receive_command(&mut self, command: ToRuntime) {
        self.inbox.push(match command {
            ToRuntime::Init(init) => {
                self.config = Some(init.runtime_config);
                return;
            }
            ToRuntime::AddClient(add) => Event::ClientAdded {
                client: add.client_id,
                user: add.user_id,
                group: None,
                profile: add.profile,
            },
            ToRuntime::AddMatchClient(add) => Event::ClientAdded {
                client: add.client_id,
                user: add.user_id,
                group: Some(add.group_name),
                profile: add.profile,
            },
            ToRuntime::DeleteClient(delete) => {
                let client = delete.client_id;
                // Only a link that stands: a kick that waits might hit the socket of a player who came back.
                if self.link.is_up()
                    && self.link.is_connected(client)
                    && self.link.kick(client, "left the game").is_err()
                {
                    tracing::warn!(client.id = %client, "the reliable lane is full, so a player's socket stays open");
                }
                Event::ClientRemoved { client }
            }
            ToRuntime::HandleMessage(handle) => Event::Message {
                client: handle.client_id,
                message: handle.message,
            },
            ToRuntime::CommandFailed(failed) => Event::CommandFailed {
                qualifier: failed.qualifier,
                client: failed.client_id,
                reason: failed.reason,
            },
        });
    }

    fn refuse(&mut self, command: &Json, reason: String) {
        let command: Option<OutgoingCommand> = serde_json::from_str(command.get()).ok();
        self.inbox.push(Event::CommandFailed {
            qualifier: command.map(|command| command.qualifier).unwrap_or_default(),
            client: None,
            reason,
        });
    }

    fn receive_batch(&mut self, batch: Bytes) {
        for frame in mux::decode::<mux::ToRuntime>(batch) {
            let frame = match frame {
                Ok(frame) => frame,
                Err(cause) => {
                    tracing::warn!(%cause, "left out the rest of a batch of the dispatcher");
                    return;
                }
            };
            self.link.receive(frame, |event| self.inbox.push(event));
        }
    }
}

impl Core for Session {
    type Input = Input;
    type Output = Output;

    fn is_congested(&self) -> bool {
        self.inbox.is_congested()
    }

    fn is_over(&self) -> bool {
        match self.phase {
            Phase::Gone(_) => true,
            Phase::Closing => self.exchange.is_flushed() && !self.link.is_up(),
            Phase::Running | Phase::Stopping => false,
        }
    }

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
                let reason = match &reply {
                    Err(Failure::Refused(reason)) => reason.clone(),
                    _ => String::new(),
                };
                let (fresh, refused) = self.exchange.sent(now, reply);
                self.receive(fresh);
                if let Some(command) = refused {
                    self.refuse(&command, reason);
                }
            }
            Input::LinkOpened => {
                tracing::info!("linked to the dispatcher");
                self.link.opened(now);
            }
            Input::LinkReceived(batch) => self.receive_batch(batch),
            Input::LinkClosed(reason) => {
                tracing::info!(reason, "the link to the dispatcher is down");
                self.link.closed(now);
            }
        }
    }

    fn poll(&mut self, now: Duration) -> Option<Output> {
        if self.is_over() {
            return None;
        }
        let is_open = !self.is_closing();
        let token = self.login.token();
        let wants_token = token.is_none() || (is_open && self.link.wants_token(now));
        if wants_token && self.login.start(now) {
            return Some(Output::LogIn);
        }
        let token = token?;
        if let Some(commands) = self.exchange.start_send(now) {
            return Some(Output::Send(token, self.interchange(commands, Vec::new(), 0)));
        }
        if is_open
            && !self.is_congested()
            && let Some(consumed) = self.exchange.start_poll(now)
        {
            return Some(Output::Poll(
                token,
                self.interchange(Vec::new(), consumed, POLL_WAIT_MS),
            ));
        }
        if is_open && let Some(token) = self.link.start(now) {
            return Some(Output::OpenLink(token));
        }
        None
    }

    fn deadline(&self, now: Duration) -> Option<Duration> {
        let pauses = [
            Some(self.login.until()),
            self.exchange.deadline(now),
            self.link.deadline(),
        ];
        // A pause that is over already holds nothing up.
        pauses.into_iter().flatten().filter(|until| *until > now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbox::EVENTS_MAX;
    use crate::login::DENIALS_MAX;
    use omgservers_protocol::id::ClientId;
    use omgservers_protocol::message::KickClient;

    const NOW: Duration = Duration::from_secs(1);

    /// A session and the platform it talks to, where a test answers what it wants to.
    struct World {
        session: Session,
        now: Duration,
        logins: u32,
    }

    impl World {
        fn new(has_link: bool) -> Self {
            Self {
                session: Session::new(has_link, 42),
                now: NOW,
                logins: 0,
            }
        }

        /// One that is logged in.
        fn logged_in(has_link: bool) -> Self {
            let mut world = Self::new(has_link);
            assert!(matches!(world.poll(), Some(Output::LogIn)));
            world.log_in();
            world
        }

        fn log_in(&mut self) {
            self.logins += 1;
            self.handle(Input::LoggedIn(Ok(RuntimeTokens {
                api_token: format!("api-{}", self.logins),
                ws_token: format!("ws-{}", self.logins),
            })));
        }

        fn handle(&mut self, input: Input) {
            self.session.handle(self.now, input);
        }

        fn poll(&mut self) -> Option<Output> {
            self.session.poll(self.now)
        }

        fn poll_request(&mut self) -> (Token, Interchange) {
            match self.poll() {
                Some(Output::Poll(token, request)) => (token, request),
                other => panic!("expected a poll, not {}", name(&other)),
            }
        }

        fn send_request(&mut self) -> (Token, Interchange) {
            match self.poll() {
                Some(Output::Send(token, request)) => (token, request),
                other => panic!("expected a send, not {}", name(&other)),
            }
        }

        fn events(&mut self) -> Vec<String> {
            std::iter::from_fn(|| self.session.inbox.next())
                .map(|event| format!("{event:?}"))
                .collect()
        }

        /// Lets the pause pass that is under way.
        fn wait(&mut self) {
            self.now = self.session.deadline(self.now).expect("something is waiting");
        }
    }

    fn name(output: &Option<Output>) -> &'static str {
        match output {
            None => "nothing",
            Some(Output::LogIn) => "a login",
            Some(Output::Poll(..)) => "a poll",
            Some(Output::Send(..)) => "a send",
            Some(Output::OpenLink(_)) => "a link",
        }
    }

    fn command(id: i64, qualifier: &str, body: &str) -> Json {
        serde_json::from_str(&format!(r#"{{"id":"{id}","qualifier":"{qualifier}","body":{body}}}"#)).unwrap()
    }

    fn message(id: i64) -> Json {
        command(id, "HANDLE_MESSAGE", &format!(r#"{{"client_id":"7","message":{id}}}"#))
    }

    fn kick(client: i64) -> KickClient {
        KickClient {
            client_id: ClientId(client),
        }
    }

    fn down() -> Failure {
        Failure::Unavailable("down".into())
    }

    #[test]
    fn each_command_is_seen_once_though_the_service_repeats_itself() {
        let mut world = World::logged_in(false);
        let (token, request) = world.poll_request();
        assert_eq!((request.wait_ms, request.ready), (Some(POLL_WAIT_MS), Some(false)));
        world.handle(Input::Polled(token, Ok(vec![message(1), message(2)])));
        let (token, request) = world.poll_request();
        assert_eq!(request.consumed_commands, [CommandId(1), CommandId(2)]);
        world.handle(Input::Polled(token, Err(down())));
        assert!(world.poll().is_none(), "a pause first");
        world.wait();
        let (token, request) = world.poll_request();
        assert_eq!(request.consumed_commands, [CommandId(1), CommandId(2)]);
        world.handle(Input::Polled(token, Ok(vec![message(3)])));
        let seen = world.events();
        assert_eq!(seen.len(), 3, "{seen:?}");
    }

    #[test]
    fn a_command_goes_out_while_a_poll_is_held_and_is_kept_until_it_arrives() {
        let mut world = World::logged_in(false);
        world.poll_request();
        world.session.command(kick(7)).unwrap();
        for _ in 0..5 {
            let (token, request) = world.send_request();
            assert_eq!((request.outgoing_commands.len(), request.wait_ms), (1, Some(0)));
            world.handle(Input::Sent(token, Err(down())));
            assert!(world.poll().is_none());
            world.wait();
        }
        let (token, request) = world.send_request();
        let sent = request.outgoing_commands[0].get();
        assert_eq!(sent, r#"{"qualifier":"KICK_CLIENT","body":{"client_id":"7"}}"#);
        world.handle(Input::Sent(token, Ok(vec![])));
        assert!(world.poll().is_none());
    }

    #[test]
    fn a_token_that_is_refused_is_replaced_once() {
        let mut world = World::logged_in(false);
        let (old, _) = world.poll_request();
        world.session.command(kick(7)).unwrap();
        let (same, _) = world.send_request();
        world.handle(Input::Polled(old, Err(Failure::Unauthorized("expired".into()))));
        assert!(matches!(world.poll(), Some(Output::LogIn)));
        assert!(world.poll().is_none());
        world.log_in();
        world.handle(Input::Sent(same, Err(Failure::Unauthorized("expired".into()))));
        world.wait();
        let (token, request) = world.send_request();
        assert_eq!(
            (&*token.text, request.outgoing_commands.len()),
            ("api-2", 1),
            "and nothing is lost"
        );
    }

    #[test]
    fn a_runtime_that_the_service_does_not_know_stops() {
        let mut world = World::logged_in(false);
        let (token, _) = world.poll_request();
        world.handle(Input::Polled(token, Err(Failure::Gone("deleted".into()))));
        assert_eq!(world.events(), ["Stop"]);
        assert!(world.session.is_over() && world.poll().is_none());
        assert!(matches!(world.session.command(kick(7)), Err(Error::Closed)));
    }

    #[test]
    fn a_password_that_is_refused_again_and_again_stops_the_runtime() {
        let mut world = World::new(true);
        for _ in 0..DENIALS_MAX {
            assert!(world.session.gone().is_none());
            assert!(matches!(world.poll(), Some(Output::LogIn)));
            world.handle(Input::LoggedIn(Err(Failure::Unauthorized("wrong password".into()))));
            world.now += Duration::from_secs(2);
        }
        assert_eq!(world.session.gone(), Some("wrong password"));
    }

    #[test]
    fn a_service_that_is_away_for_long_is_asked_for_ever() {
        let mut world = World::new(true);
        for _ in 0..200 {
            assert!(matches!(world.poll(), Some(Output::LogIn)));
            world.handle(Input::LoggedIn(Err(down())));
            assert!(world.poll().is_none());
            let before = world.now;
            world.wait();
            assert!(world.now - before <= Duration::from_secs(2));
        }
        assert!(matches!(world.poll(), Some(Output::LogIn)));
        world.log_in();
        assert!(!world.session.is_over());
    }

    #[test]
    fn every_link_opens_with_a_token_of_its_own() {
        let mut world = World::logged_in(true);
        world.poll_request();
        assert!(matches!(world.poll(), Some(Output::OpenLink(token)) if token == "ws-1"));
        world.handle(Input::LinkOpened);
        world.handle(Input::LinkClosed("restarted".into()));
        world.wait();
        assert!(matches!(world.poll(), Some(Output::LogIn)));
        world.log_in();
        assert!(matches!(world.poll(), Some(Output::OpenLink(token)) if token == "ws-2"));
        assert!(world.poll().is_none());
    }

    #[test]
    fn being_ready_is_said_at_once() {
        let mut world = World::logged_in(false);
        world.poll_request();
        world.session.ready();
        let (token, request) = world.send_request();
        assert_eq!((request.ready, request.outgoing_commands.len()), (None, 0));
        world.handle(Input::Sent(token, Err(down())));
        world.wait();
        let (token, _) = world.send_request();
        world.handle(Input::Sent(token, Ok(vec![])));
        assert!(world.poll().is_none());
    }

    #[test]
    fn closing_sends_what_is_queued_and_asks_for_no_more() {
        let mut world = World::logged_in(true);
        world.session.command(kick(7)).unwrap();
        world.session.close();
        let (token, _) = world.send_request();
        assert!(world.poll().is_none() && !world.session.is_over());
        world.handle(Input::Sent(token, Ok(vec![])));
        assert!(world.session.is_over());
    }

    #[test]
    fn what_cannot_be_read_is_acknowledged_and_left_out() {
        let mut world = World::logged_in(false);
        let (token, _) = world.poll_request();
        let odd = vec![
            command(1, "FROM_THE_FUTURE", "{}"),
            command(2, "DELETE_CLIENT", r#"{"client_id":"x"}"#),
            serde_json::from_str(r#"{"id":3}"#).unwrap(),
            message(4),
        ];
        world.handle(Input::Polled(token, Ok(odd)));
        assert_eq!(world.events().len(), 1);
        assert_eq!(world.poll_request().1.consumed_commands.len(), 4);
    }

    #[test]
    fn a_refused_command_is_reported_to_the_game() {
        let mut world = World::logged_in(false);
        world.poll_request();
        world.session.command(kick(7)).unwrap();
        let (token, _) = world.send_request();
        world.handle(Input::Sent(token, Err(Failure::Refused("too long".into()))));
        let expected = r#"CommandFailed { qualifier: "KICK_CLIENT", client: None, reason: "too long" }"#;
        assert_eq!(world.events(), [expected]);
    }

    #[test]
    fn a_game_that_takes_no_events_is_told_no_more() {
        let mut world = World::logged_in(false);
        let (token, _) = world.poll_request();
        world.handle(Input::Polled(token, Ok((0..EVENTS_MAX as i64).map(message).collect())));
        assert!(world.session.is_congested() && world.poll().is_none());
        assert!(world.session.deadline(world.now).is_none(), "nothing to wake up for");
        world.session.inbox.next();
        world.poll_request();
    }
}
