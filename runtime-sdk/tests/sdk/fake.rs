//! A tiny service and dispatcher on a real port: just enough to see what the SDK does when they misbehave.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::BytesMut;
use fastwebsockets::{Frame, OpCode, Payload};
use omgservers_protocol::id::ClientId;
use omgservers_protocol::mux;
use serde_json::{Value, json};
use tokio::sync::{Notify, broadcast};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// What a test looks at and turns.
pub(crate) struct World {
    /// Commands for the runtime that it has not acknowledged.
    pub(crate) waiting: Vec<Value>,
    pub(crate) next_id: u64,
    /// Commands of the runtime, in order.
    pub(crate) arrived: Vec<Value>,
    pub(crate) logins: u32,
    /// API tokens with a smaller number are refused.
    pub(crate) oldest_token: u32,
    pub(crate) password: &'static str,
    pub(crate) is_ready: bool,
    pub(crate) is_gone: bool,
    /// So many interchanges are carried out, but their replies are lost.
    pub(crate) lost_replies: u32,
    /// So many interchanges are refused with 503.
    pub(crate) refusals: u32,
    pub(crate) polls: u32,
    /// WebSocket tokens that were used.
    pub(crate) used_tokens: HashSet<String>,
    pub(crate) links: u32,
    /// Who is named when a link opens.
    pub(crate) players: Vec<ClientId>,
    pub(crate) packets: Vec<mux::FromRuntime>,
}

#[derive(Clone)]
pub(crate) struct Fake {
    world: Arc<Mutex<World>>,
    changed: Arc<Notify>,
    to_link: broadcast::Sender<Option<bytes::Bytes>>,
    pub(crate) address: SocketAddr,
    server: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl Fake {
    pub(crate) async fn start() -> Self {
        let world = World {
            waiting: Vec::new(),
            next_id: 1,
            arrived: Vec::new(),
            logins: 0,
            oldest_token: 0,
            password: "secret",
            is_ready: false,
            is_gone: false,
            lost_replies: 0,
            refusals: 0,
            polls: 0,
            used_tokens: HashSet::new(),
            links: 0,
            players: Vec::new(),
            packets: Vec::new(),
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let fake = Self {
            world: Arc::new(Mutex::new(world)),
            changed: Arc::new(Notify::new()),
            to_link: broadcast::channel(1_024).0,
            address: listener.local_addr().unwrap(),
            server: Arc::default(),
        };
        fake.command(
            "INIT_RUNTIME",
            json!({"runtime_config": {
            "lobby_config": {"lobby_id": "5"}, "match_config": null, "version_config": {"modes": []}}}),
        );
        fake.serve(listener);
        fake
    }

    fn serve(&self, listener: tokio::net::TcpListener) {
        let router = Router::new()
            .route(
                "/service/v1/entrypoint/runtime/request/create-token",
                post(create_token),
            )
            .route("/service/v1/entrypoint/runtime/request/interchange", post(interchange))
            .route("/dispatcher/v1/entrypoint/websocket/endpoint", get(open_link))
            .with_state(self.clone());
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        *self.server.lock().unwrap() = Some(server);
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Nobody listens any more; requests that are under way are cut off.
    pub(crate) async fn go_down(&self) {
        let server = self.server.lock().unwrap().take().unwrap();
        server.abort();
        let _ = server.await;
        self.cut_link();
    }

    pub(crate) async fn come_back(&self) {
        self.serve(tokio::net::TcpListener::bind(self.address).await.unwrap());
    }

    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    pub(crate) fn command(&self, qualifier: &str, body: Value) {
        let mut world = self.world();
        let id = world.next_id;
        world.next_id += 1;
        world
            .waiting
            .push(json!({"id": id.to_string(), "qualifier": qualifier, "body": body, "deleted": false}));
        self.changed.notify_waiters();
    }

    pub(crate) fn message(&self, number: u32) {
        self.command("HANDLE_MESSAGE", json!({"client_id": "1", "message": number}));
    }

    /// Sends a batch over the link.
    pub(crate) fn link(&self, put: impl FnOnce(&mut BytesMut) -> Result<(), mux::DoesNotFit>) {
        let mut batch = BytesMut::new();
        put(&mut batch).unwrap();
        let _ = self.to_link.send(Some(batch.freeze()));
    }

    pub(crate) fn cut_link(&self) {
        let _ = self.to_link.send(None);
    }

    /// Waits until something about the world is true.
    pub(crate) async fn until(&self, what: &str, is_true: impl Fn(&World) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(15);
        while !is_true(&self.world()) {
            assert!(Instant::now() < deadline, "waited in vain until {what}");
            let _ = timeout(Duration::from_millis(20), self.changed.notified()).await;
        }
    }
}

fn refuse(status: StatusCode, qualifier: &str) -> Response {
    (
        status,
        Json(json!({"qualifier": qualifier, "message": "as the test wants"})),
    )
        .into_response()
}

async fn create_token(State(fake): State<Fake>, Json(request): Json<Value>) -> Response {
    let mut world = fake.world();
    if request["password"] != world.password {
        return refuse(StatusCode::UNAUTHORIZED, "WRONG_CREDENTIALS");
    }
    world.logins += 1;
    let number = world.logins;
    Json(json!({"api_token": format!("api-{number}"), "ws_token": format!("ws-{number}")})).into_response()
}

fn bearer(headers: &HeaderMap) -> String {
    let value = headers
        .get("authorization")
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    value.trim_start_matches("Bearer ").to_owned()
}

async fn interchange(State(fake): State<Fake>, headers: HeaderMap, Json(request): Json<Value>) -> Response {
    let number: u32 = bearer(&headers).trim_start_matches("api-").parse().unwrap_or_default();
    let until = Instant::now() + Duration::from_millis(request["wait_ms"].as_u64().unwrap_or_default());
    {
        let mut world = fake.world();
        if number == 0 || number < world.oldest_token {
            return refuse(StatusCode::UNAUTHORIZED, "WRONG_CREDENTIALS");
        }
        if world.is_gone {
            return refuse(StatusCode::NOT_FOUND, "RUNTIME_NOT_FOUND");
        }
        if world.refusals > 0 {
            world.refusals -= 1;
            return refuse(StatusCode::SERVICE_UNAVAILABLE, "SHARD_LOCKED");
        }
        world.polls += 1;
        world.is_ready |= request.get("ready").is_none();
        world
            .arrived
            .extend(request["outgoing_commands"].as_array().unwrap().iter().cloned());
        let consumed = request["consumed_commands"].as_array().unwrap().clone();
        world.waiting.retain(|command| !consumed.contains(&command["id"]));
        if world.lost_replies > 0 {
            world.lost_replies -= 1;
            return refuse(StatusCode::BAD_GATEWAY, "INTERNAL_EXCEPTION_OCCURRED");
        }
    }
    loop {
        let changed = fake.changed.notified();
        {
            let world = fake.world();
            if !world.waiting.is_empty() || Instant::now() >= until {
                return Json(json!({"incoming_commands": world.waiting})).into_response();
            }
        }
        let _ = tokio::time::timeout_at(until, changed).await;
    }
}

async fn open_link(State(fake): State<Fake>, mut request: Request) -> Response {
    let token = bearer(request.headers());
    let protocol = request.headers()["sec-websocket-protocol"].clone();
    let is_new = token.starts_with("ws-") && fake.world().used_tokens.insert(token);
    if !is_new || protocol != mux::PROTOCOL {
        return refuse(StatusCode::UNAUTHORIZED, "WRONG_CREDENTIALS");
    }
    let (mut response, upgraded) = fastwebsockets::upgrade::upgrade(&mut request).unwrap();
    response.headers_mut().insert("sec-websocket-protocol", protocol);
    let mut outgoing = fake.to_link.subscribe();
    tokio::spawn(async move {
        let mut socket = upgraded.await.unwrap();
        let mut batch = BytesMut::new();
        for player in fake.world().players.clone() {
            mux::put_joined(&mut batch, player).unwrap();
        }
        mux::put_synced(&mut batch).unwrap();
        socket.write_frame(Frame::binary(Payload::Bytes(batch))).await.unwrap();
        fake.world().links += 1;
        let (reader, writer) = socket.split(tokio::io::split);
        let (mut reader, mut writer) = (fastwebsockets::FragmentCollectorRead::new(reader), writer);
        let writing = async {
            while let Ok(Some(batch)) = outgoing.recv().await {
                writer
                    .write_frame(Frame::binary(Payload::Owned(batch.to_vec())))
                    .await
                    .unwrap();
            }
        };
        let reading = async {
            let mut answer = |_: Frame<'_>| std::future::ready(Ok::<(), std::io::Error>(()));
            while let Ok(frame) = reader.read_frame(&mut answer).await {
                if frame.opcode == OpCode::Binary {
                    let batch = bytes::Bytes::from(frame.payload.to_vec());
                    let frames = mux::decode::<mux::FromRuntime>(batch)
                        .collect::<Result<Vec<_>, _>>()
                        .unwrap();
                    fake.world().packets.extend(frames);
                    fake.changed.notify_waiters();
                }
            }
        };
        tokio::select! {
            () = writing => {}
            () = reading => {}
        }
    });
    response.map(|_| axum::body::Body::empty()).into_response()
}
