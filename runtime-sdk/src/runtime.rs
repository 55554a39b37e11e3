//! What a game holds in its hands: the runtime and what happens to it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use omgservers_protocol::config::{RuntimeConfig, RuntimeQualifier};
use omgservers_protocol::id::{ClientId, UserId};
use omgservers_protocol::message as wire;
use omgservers_protocol::mux::{Lane, Left, To};
use omgservers_protocol::{Json, message::Protocol};
use serde::Serialize;
use tokio::time::{Instant, timeout, timeout_at};

use crate::session::Session;
use crate::shell::{Shared, Task};
use crate::transport::{Connections, drive, wait_for_signal};
use crate::{Error, Settings};

/// How long [`Runtime::close`] waits for what is queued.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// What happens to a runtime.
#[derive(Debug, Clone)]
pub enum Event {
    /// A player is assigned to this runtime.
    ClientAdded {
        /// The player's stay; every other event and call names it.
        client: ClientId,
        /// The person behind it, who is the same at the next visit.
        user: UserId,
        /// In a match: the group (a team, say) that the matchmaker chose.
        group: Option<String>,
        /// What [`Runtime::set_profile`] kept last, `{}` at first.
        profile: Json,
    },
    /// A player is no longer assigned: moved, kicked or gone. Late messages may still follow.
    ClientRemoved {
        /// Who it was.
        client: ClientId,
    },
    /// A player said something through the service.
    Message {
        /// Who it was.
        client: ClientId,
        /// As the player sent it; see [`crate::parse`].
        message: Json,
    },
    /// A player's socket is open: after [`Runtime::upgrade`], packets go both ways.
    Connected {
        /// Whose it is.
        client: ClientId,
    },
    /// A player's socket is closed. The player is still assigned and may connect again.
    Disconnected {
        /// Whose it was.
        client: ClientId,
        /// Why.
        reason: Left,
    },
    /// A player said something over the socket.
    Packet {
        /// Who it was.
        client: ClientId,
        /// How it came.
        lane: Lane,
        /// Whether the bytes are a text (UTF-8) for the player.
        text: bool,
        /// What it was.
        bytes: Bytes,
    },
    /// Something that this runtime asked for could not be done.
    CommandFailed {
        /// What it was, such as `KICK_CLIENT`.
        qualifier: String,
        /// Whom it was about, if known.
        client: Option<ClientId>,
        /// Why, for people.
        reason: String,
    },
    /// The last event: this process is asked to end, or its runtime does not exist any more. Say good-bye and
    /// [`Runtime::close`].
    Stop,
}

/// A game server's connection to its platform.
///
/// Nothing here blocks and nothing is lost when the service or the dispatcher restarts: commands and reliable packets
/// are kept and both connections come back by themselves. Queues are bounded; see [`Error::QueueFull`].
///
/// Dropping it ends the connections at once; [`Runtime::close`] sends first what is queued.
pub struct Runtime {
    shared: Arc<Shared<Session>>,
    qualifier: RuntimeQualifier,
    config: RuntimeConfig,
    /// Absent in tests without a network.
    driver: Option<Task>,
    /// Listens for signals.
    _signals: Option<Task>,
}

impl Runtime {
    /// Logs in, fetches the configuration and starts to link to the dispatcher. Tries again while nobody answers, for
    /// as long as [`Settings::connect_timeout`] says.
    pub async fn connect(settings: Settings) -> Result<Self, Error> {
        let until = Instant::now() + settings.connect_timeout;
        let connections = Connections::new(&settings.service_url)?;
        let seed = settings.runtime_id.get().cast_unsigned();
        let shared = Arc::new(Shared::new(Session::new(settings.link, seed)));
        // Both end with this function if it fails.
        let signals = settings
            .signals
            .then(|| Task::spawn(wait_for_signal(Arc::clone(&shared))));
        let driver = Task::spawn(drive(Arc::clone(&shared), connections, settings.clone()));
        loop {
            {
                let session = shared.core();
                if let Some(reason) = session.gone() {
                    return Err(Error::Refused(reason.to_owned()));
                }
                if session.is_stopping() {
                    return Err(Error::Stopped);
                }
                if let Some(config) = session.config() {
                    let config = config.clone();
                    drop(session);
                    return Ok(Self {
                        shared,
                        qualifier: settings.qualifier,
                        config,
                        driver: Some(driver),
                        _signals: signals,
                    });
                }
            }
            let news = timeout_at(until, shared.news.notified()).await;
            news.map_err(|_| Error::TimedOut)?;
        }
    }

    /// One without sockets.
    pub(crate) fn in_memory(shared: Arc<Shared<Session>>, qualifier: RuntimeQualifier, config: RuntimeConfig) -> Self {
        Self {
            shared,
            qualifier,
            config,
            driver: None,
            _signals: None,
        }
    }

    /// Whether this is a lobby or a match.
    pub fn qualifier(&self) -> RuntimeQualifier {
        self.qualifier
    }

    /// What the platform says about this runtime: which lobby or match it is, the version's modes and user data.
    pub fn config(&self) -> &RuntimeConfig {
        &self.config
    }

    /// Says that players may come. Call it when everything is loaded; nobody is sent here before.
    pub fn ready(&self) {
        self.shared.core().ready();
        self.shared.driver.notify_one();
    }

    /// Waits for the next event; `None` after [`Event::Stop`]. Can be cancelled without losing an event, so it may be
    /// one branch of a `select!`.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.try_next() {
                return Some(event);
            }
            if self.shared.core().inbox().is_told() {
                return None;
            }
            self.shared.news.notified().await;
        }
    }

    /// The next event if there is one: for games with a fixed tick, which empty the queue at the start of each.
    pub fn try_next(&mut self) -> Option<Event> {
        self.shared.take(|session| session.inbox().next())
    }

    /// Makes [`Event::Stop`] the next new event, as SIGTERM does.
    pub fn stop(&self) {
        self.shared.core().stop();
        self.shared.news.notify_one();
    }

    /// Ends the connection after what is queued was sent, or after two seconds.
    pub async fn close(mut self) {
        self.shared.core().close();
        self.shared.driver.notify_one();
        self.shared.wake_sockets();
        if let Some(driver) = &mut self.driver
            && timeout(CLOSE_TIMEOUT, driver.ended()).await.is_err()
        {
            tracing::warn!("closed before everything was sent");
        }
    }

    // Through the service: a message takes some milliseconds and survives a lost connection.

    /// Sends a message to one player.
    pub fn respond(&self, client: ClientId, message: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        let message = json(message)?;
        let client_id = client;
        self.command(wire::RespondClient { client_id, message })
    }

    /// Sends a message to some of the players.
    pub fn multicast(&self, clients: &[ClientId], message: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        let message = json(message)?;
        let clients = clients.to_vec();
        self.command(wire::MulticastMessage { clients, message })
    }

    /// Sends a message to all players.
    pub fn broadcast(&self, message: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        let message = json(message)?;
        self.command(wire::BroadcastMessage { message })
    }

    /// Keeps something about a player beyond this visit.
    pub fn set_profile(&self, client: ClientId, profile: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        let profile = json(profile)?;
        let client_id = client;
        self.command(wire::SetProfile { client_id, profile })
    }

    /// Looks for a match for a player of this lobby, in one of the modes of the version.
    pub fn request_matchmaking(&self, client: ClientId, mode: &str) -> Result<(), Error> {
        let mode = mode.to_owned();
        let client_id = client;
        self.command(wire::RequestMatchmaking { client_id, mode })
    }

    /// Sends a player away: from a match back to a lobby, from a lobby out of the game.
    pub fn kick(&self, client: ClientId) -> Result<(), Error> {
        let client_id = client;
        self.command(wire::KickClient { client_id })
    }

    /// Lets no more players into this match.
    pub fn stop_matchmaking(&self) -> Result<(), Error> {
        self.command(wire::StopMatchmaking {})
    }

    /// Asks a player to open a socket; [`Event::Connected`] follows.
    pub fn upgrade(&self, client: ClientId) -> Result<(), Error> {
        let protocol = Protocol::Dispatcher;
        let client_id = client;
        self.command(wire::UpgradeConnection { client_id, protocol })
    }

    // Over the sockets of the dispatcher: a packet takes no longer than the network.

    /// Whether the link to the dispatcher stands.
    pub fn is_linked(&self) -> bool {
        self.shared.core().link().is_up()
    }

    /// Unreliable packets that never left, because newer ones took their place or the link was down.
    pub fn dropped_packets(&self) -> u64 {
        self.shared.core().link().dropped()
    }

    /// Sends a packet to one player. Who is not connected does not get it.
    ///
    /// On [`Lane::Reliable`] packets wait while the link is down, and [`Error::QueueFull`] says when there are too
    /// many; only what was on its way at the very moment of a break may be lost. On [`Lane::Unreliable`] a packet is
    /// fresh or not sent at all, and this never fails for lack of room.
    pub fn send(&self, client: ClientId, lane: Lane, bytes: impl AsRef<[u8]>) -> Result<(), Error> {
        self.packet(To::One(client), lane, false, bytes.as_ref())
    }

    /// Sends a packet to some of the players; it is encoded once.
    pub fn send_many(&self, clients: &[ClientId], lane: Lane, bytes: impl AsRef<[u8]>) -> Result<(), Error> {
        self.packet(To::Many(clients), lane, false, bytes.as_ref())
    }

    /// Sends a packet to everybody who is connected; it is encoded once.
    pub fn send_all(&self, lane: Lane, bytes: impl AsRef<[u8]>) -> Result<(), Error> {
        self.packet(To::All, lane, false, bytes.as_ref())
    }

    /// Sends a packet that arrives as text.
    pub fn send_text(&self, client: ClientId, lane: Lane, text: &str) -> Result<(), Error> {
        self.packet(To::One(client), lane, true, text.as_bytes())
    }

    /// Sends a packet that arrives as text to some of the players.
    pub fn send_text_many(&self, clients: &[ClientId], lane: Lane, text: &str) -> Result<(), Error> {
        self.packet(To::Many(clients), lane, true, text.as_bytes())
    }

    /// Sends a packet that arrives as text to everybody who is connected.
    pub fn send_text_all(&self, lane: Lane, text: &str) -> Result<(), Error> {
        self.packet(To::All, lane, true, text.as_bytes())
    }

    /// Closes a player's socket, after what was sent before. The player stays assigned; compare [`Runtime::kick`].
    pub fn disconnect(&self, client: ClientId, reason: &str) -> Result<(), Error> {
        self.shared.core().link().kick(client, reason)?;
        self.shared.wake_sockets();
        Ok(())
    }

    fn command(&self, command: impl Into<wire::FromRuntime>) -> Result<(), Error> {
        self.shared.core().command(command)?;
        self.shared.driver.notify_one();
        Ok(())
    }

    fn packet(&self, to: To<'_>, lane: Lane, text: bool, bytes: &[u8]) -> Result<(), Error> {
        self.shared.core().link().send(to, lane, text, bytes)?;
        self.shared.wake_sockets();
        Ok(())
    }
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("Runtime");
        debug.field("qualifier", &self.qualifier).finish_non_exhaustive()
    }
}

fn json(value: &(impl Serialize + ?Sized)) -> Result<Json, Error> {
    serde_json::value::to_raw_value(value).map_err(|cause| Error::NotJson(cause.to_string()))
}
