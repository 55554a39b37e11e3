//! The other side: a player, for bots, tests and load. Thousands fit into one process.
//!
//! ```no_run
//! use omgservers_runtime_sdk::player::{Event, Player};
//!
//! # async fn play() -> Result<(), omgservers_runtime_sdk::Error> {
//! let player = Player::sign_up("http://localhost:8080").await?;
//! let mut client = player.create_client("acme", "shooter", "prod").await?;
//! while let Some(event) = client.next().await {
//!     match event {
//!         // In a lobby, messages go through the service.
//!         Event::Assigned { .. } => client.send(&serde_json::json!({"play": "duel"}))?,
//!         // Once the runtime has asked for a socket, packets go both ways.
//!         Event::Connected => client.send_text("hello")?,
//!         Event::Packet { bytes, .. } => client.send_packet(bytes)?,
//!         _ => {}
//!     }
//! }
//! # Ok(())
//! # }
//! ```

mod session;
mod transport;

use std::sync::Arc;

use bytes::Bytes;
use omgservers_protocol::config::{RuntimeConfig, RuntimeQualifier};
use omgservers_protocol::id::{ClientId, RuntimeId, TenantId, UserId, VersionId};
use omgservers_protocol::message::ProvisioningStage;
use omgservers_protocol::player::{CreateClient, CreateToken, CreateUser};
use omgservers_protocol::text::Text;
use omgservers_protocol::{Json, client};
use serde::Serialize;

use crate::Error;
use crate::shell::{Shared, Task};
use crate::transport::Connections;
use session::Session;

/// What happens to a player.
#[derive(Debug, Clone)]
pub enum Event {
    /// The game is this version. Once, at the beginning.
    Welcome {
        /// Whose game it is.
        tenant: TenantId,
        /// Which version is deployed.
        version: VersionId,
        /// When that was made, RFC 3339.
        version_created: String,
    },
    /// The player is in this runtime now. A socket to an earlier one is closed.
    Assigned {
        /// A lobby or a match.
        qualifier: RuntimeQualifier,
        /// Which one.
        runtime: RuntimeId,
        /// What the runtime knows about itself.
        config: Box<RuntimeConfig>,
    },
    /// Why the player waits.
    Status {
        /// How far it is.
        stage: ProvisioningStage,
        /// The place in the line, from 1.
        position: Option<u32>,
        /// For people.
        detail: Option<String>,
    },
    /// The runtime said something through the service.
    Message(Json),
    /// The socket is open.
    Connected,
    /// The runtime said something over the socket.
    Packet {
        /// Whether the bytes are a text (UTF-8).
        text: bool,
        /// What it was.
        bytes: Bytes,
    },
    /// The socket is closed. It opens again by itself, unless the runtime wanted it so or the player moved on.
    Disconnected {
        /// Why, for people.
        reason: String,
    },
    /// The last event: the client is deleted.
    Removed {
        /// Why, for people.
        reason: String,
    },
}

/// One installation, as players see it. Share it: players of one service use the same connection pool.
#[derive(Clone)]
pub struct Service(Connections);

impl Service {
    /// `url` is the public address, such as `http://localhost:8080`.
    pub fn new(url: &str) -> Result<Self, Error> {
        Connections::new(url.trim_end_matches('/')).map(Self)
    }
}

/// Somebody with an account.
pub struct Player {
    service: Service,
    login: CreateToken,
    token: String,
}

impl Player {
    /// Makes an account at the service with this address.
    pub async fn sign_up(service_url: &str) -> Result<Self, Error> {
        Self::sign_up_at(&Service::new(service_url)?).await
    }

    /// Makes an account.
    pub async fn sign_up_at(service: &Service) -> Result<Self, Error> {
        let created = transport::call(&service.0.service, &CreateUser {}).await?;
        let password = Text::new(created.password).ok_or_else(|| Error::Refused("an empty password".to_owned()))?;
        Self::log_in(service, created.user_id, password).await
    }

    /// Comes back to an account.
    pub async fn sign_in(service: &Service, user: UserId, password: &str) -> Result<Self, Error> {
        let password = Text::new(password).ok_or_else(|| Error::Refused("not a password".to_owned()))?;
        Self::log_in(service, user, password).await
    }

    async fn log_in(service: &Service, user_id: UserId, password: Text) -> Result<Self, Error> {
        let login = CreateToken { user_id, password };
        let token = transport::call(&service.0.service, &login).await?.raw_token;
        Ok(Self {
            service: service.clone(),
            login,
            token,
        })
    }

    /// Who this is.
    pub fn user(&self) -> UserId {
        self.login.user_id
    }

    /// What [`Player::sign_in`] needs.
    pub fn password(&self) -> &str {
        self.login.password.as_str()
    }

    /// Enters a game; tenant, project and stage by name or id. The lobby follows as [`Event::Assigned`].
    pub async fn create_client(&self, tenant: &str, project: &str, stage: &str) -> Result<Client, Error> {
        let text = |text: &str| Text::new(text).ok_or_else(|| Error::Refused("a name is blank or too long".to_owned()));
        let call = CreateClient {
            tenant: text(tenant)?,
            project: text(project)?,
            stage: text(stage)?,
        };
        let service = self.service.0.service.with_token(&self.token);
        let id = transport::call(&service, &call).await?.client_id;
        let shared = Arc::new(Shared::new(Session::new(id, self.token.clone())));
        let drive = transport::drive(Arc::clone(&shared), self.service.0.clone(), self.login.clone());
        Ok(Client {
            id,
            shared,
            _driver: Task::spawn(drive),
        })
    }
}

/// A player's stay in a game. Dropping it ends the connections; the service notices after a while.
pub struct Client {
    id: ClientId,
    shared: Arc<Shared<Session>>,
    _driver: Task,
}

impl Client {
    /// The id by which the runtime knows this player.
    pub fn id(&self) -> ClientId {
        self.id
    }

    /// Waits for the next event; `None` after [`Event::Removed`]. Can be cancelled without losing an event.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.try_next() {
                return Some(event);
            }
            if self.shared.core().is_told() {
                return None;
            }
            self.shared.news.notified().await;
        }
    }

    /// The next event if there is one.
    pub fn try_next(&mut self) -> Option<Event> {
        self.shared.take(Session::next_event)
    }

    /// Says something to the runtime through the service: kept until it arrives.
    pub fn send(&self, message: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        let data = serde_json::value::to_raw_value(message).map_err(|cause| Error::NotJson(cause.to_string()))?;
        self.shared.core().say(data)?;
        self.shared.driver.notify_one();
        Ok(())
    }

    /// Whether the socket is open.
    pub fn is_connected(&self) -> bool {
        self.shared.core().is_connected()
    }

    /// Says something over the socket; [`Error::NoLink`] while there is none.
    pub fn send_packet(&self, bytes: impl AsRef<[u8]>) -> Result<(), Error> {
        self.packet(false, bytes.as_ref())
    }

    /// Says something over the socket, as text.
    pub fn send_text(&self, text: &str) -> Result<(), Error> {
        self.packet(true, text.as_bytes())
    }

    fn packet(&self, text: bool, bytes: &[u8]) -> Result<(), Error> {
        self.shared.core().packet(text, bytes)?;
        self.shared.wake_sockets();
        Ok(())
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("id", &self.id).finish_non_exhaustive()
    }
}

impl From<client::CallError> for Error {
    fn from(error: client::CallError) -> Self {
        match error {
            client::CallError::Refused { .. } => Self::Refused(error.to_string()),
            _ => Self::Unreachable(error.to_string()),
        }
    }
}
