//! The edge: carries bytes between players and runtimes, and passes every other path on to the service. It never touches
//! a database.
//!
//! | module | what |
//! |---|---|
//! | `config` | every setting, read once |
//! | `room` | sans-I/O: who is in, who hears what, who is dropped |
//! | `outbox`, `link`, `pulse`, `farewell` | its parts: what waits for a player, for a runtime, who is alive, last words |
//! | `rooms` | all rooms and their locks |
//! | `admission`, `handshake` | who may connect, and how a connection begins |
//! | `websocket`, `writer` | sockets on one side, a room on the other |
//! | `proxy`, `forwarding` | everything else, passed on |
//! | `service` | login, keys and reports at the service |
//! | `management`, `meters` | health and figures |

mod admission;
mod config;
mod farewell;
mod forwarding;
mod handshake;
mod link;
mod management;
mod meters;
mod outbox;
mod proxy;
mod pulse;
mod room;
mod rooms;
mod service;
mod websocket;
mod writer;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use http_body_util::BodyExt as _;
use http_body_util::combinators::BoxBody;
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use omgservers_protocol::listen::{Door, Peer};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use config::{ALIASES, Config, Secret, ServiceUri};

use crate::admission::Admission;
use crate::meters::Meters;
use crate::proxy::Proxy;
use crate::rooms::Rooms;
use crate::service::Service;

/// A body of any origin.
pub(crate) type Body = BoxBody<Bytes, BoxError>;
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// How long a stop may take: last words to every socket, the end of short requests, a last report.
const STOP: Duration = Duration::from_secs(5);

/// Runs a dispatcher until it is told to stop by SIGINT or SIGTERM.
pub async fn run(config: Config) -> anyhow::Result<()> {
    let shutdown = CancellationToken::new();
    let server = Server::bind(config).await?;
    let mut terminate =
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).context("listening for SIGTERM")?;
    let stop = shutdown.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        }
        tracing::info!("asked to stop");
        stop.cancel();
    });
    server.serve(shutdown).await
}

/// What every connection shares.
pub(crate) struct Edge {
    pub(crate) door: Arc<Door>,
    pub(crate) admission: Admission,
    pub(crate) rooms: Rooms,
    pub(crate) proxy: Proxy,
    pub(crate) service: Service,
    pub(crate) meters: Arc<Meters>,
    pub(crate) player_messages_per_s: u32,
    /// Everything that must end before the process does.
    pub(crate) tasks: TaskTracker,
    pub(crate) stopping: CancellationToken,
}

/// A dispatcher whose ports are bound, so that its addresses are known before it runs.
pub struct Server {
    config: Config,
    public: TcpListener,
    management: TcpListener,
}

impl Server {
    pub async fn bind(config: Config) -> anyhow::Result<Self> {
        let bind = async |address: IpAddr, port: u16| {
            TcpListener::bind((address, port))
                .await
                .with_context(|| format!("port `{port}` of `{address}` cannot be bound"))
        };
        Ok(Self {
            public: bind(config.http_address, config.http_port).await?,
            management: bind(config.management_address, config.management_port).await?,
            config,
        })
    }

    /// Where players and runtimes connect.
    pub fn address(&self) -> SocketAddr {
        self.public.local_addr().expect("a bound socket has an address")
    }

    /// Where health and figures are.
    pub fn management_address(&self) -> SocketAddr {
        self.management.local_addr().expect("a bound socket has an address")
    }

    /// Serves until `shutdown` is cancelled, then closes every socket and returns within seconds.
    pub async fn serve(self, shutdown: CancellationToken) -> anyhow::Result<()> {
        let address = self.address();
        let management_address = self.management_address();
        let config = self.config;
        if !config.without_effect.is_empty() {
            tracing::warn!(
                variables = config.without_effect.join(", "),
                "these settings are understood, but have no effect"
            );
        }
        let meters = Arc::new(Meters::new());
        let (service, events, reporter) = Service::new(&config)?;
        let is_behind_proxy = config.trust_forwarded_headers;
        let edge = Arc::new(Edge {
            door: Door::new(config.bounds.clone(), move |_| is_behind_proxy),
            admission: Admission::new(config.issuer.clone(), unix_time_s()),
            rooms: Rooms::new(config.limits(), events, meters.clone()),
            proxy: Proxy::new(&config),
            service,
            meters,
            player_messages_per_s: config.player_messages_per_s,
            tasks: TaskTracker::new(),
            stopping: shutdown.clone(),
        });
        tracing::info!(
            application = config.application_name,
            %address,
            management.address = %management_address,
            instances = config.service_uri.len(),
            "the dispatcher is listening"
        );
        edge.tasks.spawn(service::keep_keys(edge.clone()));
        edge.tasks.spawn(service::keep_token(edge.clone()));
        edge.tasks.spawn(reporter.run(edge.clone()));
        edge.tasks
            .spawn(management::serve(edge.clone(), config.bounds.clone(), self.management));
        edge.tasks.spawn(tick(edge.clone(), config.tick_interval()));

        let answering = edge.clone();
        let answer = move |peer, request| {
            let edge = answering.clone();
            async move { answer(&edge, peer, request).await }
        };
        edge.door.serve(self.public, &edge.tasks, &edge.stopping, answer).await;

        edge.rooms.stop();
        edge.tasks.close();
        if timeout(STOP, edge.tasks.wait()).await.is_err() {
            tracing::warn!(tasks = edge.tasks.len(), "some connections did not end in time");
        }
        tracing::info!("the dispatcher has stopped");
        Ok(())
    }
}

async fn tick(edge: Arc<Edge>, interval: Duration) {
    let mut ticks = tokio::time::interval(interval);
    while edge.stopping.run_until_cancelled(ticks.tick()).await.is_some() {
        edge.rooms.tick();
    }
}

async fn answer(edge: &Arc<Edge>, peer: Peer, request: Request<Incoming>) -> Response<Body> {
    if request.uri().path() == handshake::ENDPOINT {
        websocket::open(edge, peer, request).await
    } else {
        proxy::pass_on(edge, peer, request).await
    }
}

/// A body that is there as a whole.
pub(crate) fn whole_body<B>(body: B) -> Body
where
    B: hyper::body::Body<Data = Bytes, Error = std::convert::Infallible> + Send + Sync + 'static,
{
    body.map_err(|never| match never {}).boxed()
}

/// Seconds since 1970, as tokens count them.
#[expect(clippy::disallowed_methods, reason = "the one place that looks at the wall clock")]
pub(crate) fn unix_time_s() -> i64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs() as i64)
}
