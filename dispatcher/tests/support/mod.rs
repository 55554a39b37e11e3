//! A dispatcher in this process, with real sockets on both sides and the least service that it can work with.

#![expect(dead_code, reason = "every story uses another part of it")]
#![expect(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::Ed25519KeyPair;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use axum::{Json, Router};
use bytes::{Bytes, BytesMut};
use fastwebsockets::{FragmentCollector, Frame, OpCode, Payload};
use http_body_util::Empty;
use hyper::upgrade::Upgraded;
use hyper_util::rt::{TokioExecutor, TokioIo};
use omgservers_dispatcher::{Config, Server};
use omgservers_protocol::Call;
use omgservers_protocol::call::RawToken;
use omgservers_protocol::dispatcher::{CreateToken, KEYS_ROUTE, Report, RoomEvent};
use omgservers_protocol::id::{ClientId, RuntimeId};
use omgservers_protocol::mux::{self, ToRuntime};
use omgservers_protocol::token::{Audience, Claims, Role, Signer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) const ENDPOINT: &str = "/dispatcher/v1/entrypoint/websocket/endpoint";

/// Longer than anything takes that works.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// What the fake of the service knows and heard.
pub(crate) struct Service {
    pub(crate) signer: Signer,
    pub(crate) logins: AtomicUsize,
    pub(crate) reports: Mutex<Vec<Report>>,
    /// The next reports that are refused.
    pub(crate) refusals: AtomicUsize,
    /// Which instance this is.
    pub(crate) name: &'static str,
}

impl Service {
    /// Starts an instance on a free port.
    pub(crate) async fn start(name: &'static str) -> (Arc<Self>, SocketAddr, DropGuard) {
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let service = Arc::new(Self {
            signer: Signer::from_pkcs8(key.as_ref()).unwrap(),
            logins: AtomicUsize::new(0),
            reports: Mutex::default(),
            refusals: AtomicUsize::new(0),
            name,
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let router = service.clone().router();
        let serving = axum::serve(listener, router).with_graceful_shutdown(stop.clone().cancelled_owned());
        tokio::spawn(serving.into_future());
        (service, address, stop.drop_guard())
    }

    fn router(self: Arc<Self>) -> Router {
        Router::new()
            .route(
                KEYS_ROUTE,
                get(|State(service): State<Arc<Self>>| async move { Json(service.signer.keys()) }),
            )
            .route(CreateToken::ROUTE, post(create_token))
            .route(Report::ROUTE, post(report))
            .route("/service/echo", any(echo))
            .route(
                "/service/swallow",
                post(|body: Bytes| async move { body.len().to_string() }),
            )
            .route("/service/late", get(late))
            .route("/service/pieces", get(pieces))
            .route("/connector/socket", get(socket))
            .layer(axum::extract::DefaultBodyLimit::disable())
            .with_state(self)
    }

    pub(crate) fn events(&self) -> Vec<RoomEvent> {
        let reports = self.reports.lock().unwrap();
        reports.iter().flat_map(|report| report.events.clone()).collect()
    }
}

async fn create_token(State(service): State<Arc<Service>>, Json(call): Json<CreateToken>) -> Response {
    service.logins.fetch_add(1, Ordering::SeqCst);
    if call.user.as_str() != "dispatcher" || call.password.as_str() != "hunter2" {
        return axum::http::StatusCode::UNAUTHORIZED.into_response();
    }
    let raw_token = "token of the dispatcher".to_owned();
    Json(RawToken { raw_token }).into_response()
}

async fn report(State(service): State<Arc<Service>>, headers: HeaderMap, Json(report): Json<Report>) -> Response {
    if headers.get("authorization").unwrap() != "Bearer token of the dispatcher" {
        return axum::http::StatusCode::UNAUTHORIZED.into_response();
    }
    let refused = service
        .refusals
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
    if refused.is_ok() {
        return axum::http::StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    service.reports.lock().unwrap().push(report);
    Json(serde_json::json!({})).into_response()
}

/// Tells what arrived: the instance, the method, the address, the headers; then the body.
async fn echo(State(service): State<Arc<Service>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let headers: Vec<_> = head
        .headers
        .iter()
        .map(|(name, value)| format!("{name}={}", value.to_str().unwrap()))
        .collect();
    let seen = [
        ("x-instance", service.name.to_owned()),
        ("x-method", head.method.to_string()),
        ("x-uri", head.uri.to_string()),
        ("x-headers", headers.join("|")),
    ];
    (seen, body).into_response()
}

async fn late() -> &'static str {
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    "late"
}

/// A body in pieces, each when the former has long been read.
async fn pieces() -> Response {
    let (sender, receiver) = tokio::sync::mpsc::channel::<&'static str>(1);
    tokio::spawn(async move {
        for piece in ["one ", "two ", "three"] {
            if sender.send(piece).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let pieces = futures_util::stream::unfold(receiver, |mut receiver| async {
        receiver
            .recv()
            .await
            .map(|piece| (Ok::<_, std::io::Error>(piece), receiver))
    });
    axum::body::Body::from_stream(pieces).into_response()
}

/// A WebSocket of the service itself, which says everything back.
async fn socket(mut request: Request) -> Response {
    let (response, upgrade) = fastwebsockets::upgrade::upgrade(&mut request).unwrap();
    tokio::spawn(async move {
        let mut socket = FragmentCollector::new(upgrade.await.unwrap());
        while let Ok(frame) = socket.read_frame().await {
            if frame.opcode == OpCode::Close || socket.write_frame(frame).await.is_err() {
                return;
            }
        }
    });
    response.map(axum::body::Body::new)
}

/// A running dispatcher and its service.
pub(crate) struct World {
    pub(crate) service: Arc<Service>,
    pub(crate) address: SocketAddr,
    pub(crate) management: SocketAddr,
    pub(crate) shutdown: CancellationToken,
    pub(crate) serving: tokio::task::JoinHandle<anyhow::Result<()>>,
    service_guard: Option<DropGuard>,
    _guard: DropGuard,
    next_token: AtomicI64,
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    pub(crate) async fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        let (service, service_address, guard) = Service::start("a").await;
        Self::start_at(service, guard, &[service_address], change).await
    }

    pub(crate) async fn start_at(
        service: Arc<Service>,
        service_guard: DropGuard,
        instances: &[SocketAddr],
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let instances = instances
            .iter()
            .map(|address| format!("http://{address}").parse().unwrap());
        let mut config = Config::for_tests(instances.collect(), "hunter2");
        change(&mut config);
        let server = Server::bind(config).await.unwrap();
        let (address, management) = (server.address(), server.management_address());
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(server.serve(shutdown.clone()));
        let world = Self {
            service,
            address,
            management,
            _guard: shutdown.clone().drop_guard(),
            shutdown,
            serving,
            service_guard: Some(service_guard),
            next_token: AtomicI64::new(1),
        };
        eventually("the dispatcher is ready", async || {
            world.get_management("/health/ready").await.0 == 200
        })
        .await;
        world
    }

    pub(crate) fn stop_service(&mut self) {
        self.service_guard = None;
    }

    pub(crate) fn claims(&self, role: Role, runtime: i64, client: i64) -> Claims {
        let now = time_s();
        Claims {
            iss: "omgservers".into(),
            aud: Audience::Websocket.claim("omgservers"),
            sub: client.to_string(),
            iat: now,
            exp: now + 60,
            jti: self.next_token.fetch_add(1, Ordering::SeqCst).to_string(),
            groups: vec![Role::Websocket],
            epoch: 0,
            user_id: None,
            runtime_id: Some(RuntimeId(runtime)),
            client_id: (role == Role::Player).then_some(ClientId(client)),
            user_role: Some(role),
        }
    }

    pub(crate) fn runtime_token(&self, runtime: i64) -> String {
        self.service.signer.sign(&self.claims(Role::Runtime, runtime, 1))
    }

    pub(crate) fn player_token(&self, runtime: i64, client: i64) -> String {
        self.service.signer.sign(&self.claims(Role::Player, runtime, client))
    }

    /// A runtime with an old SDK.
    pub(crate) async fn json_runtime(&self, runtime: i64) -> Socket {
        let token = self.runtime_token(runtime);
        self.connect(
            &format!("?ws_token={token}"),
            &[("sec-websocket-protocol", "omgservers")],
        )
        .await
        .unwrap()
    }

    /// A runtime with the binary link.
    pub(crate) async fn mux_runtime(&self, runtime: i64) -> Socket {
        let token = self.runtime_token(runtime);
        self.connect(
            &format!("?ws_token={token}"),
            &[("sec-websocket-protocol", mux::PROTOCOL)],
        )
        .await
        .unwrap()
    }

    pub(crate) async fn player(&self, runtime: i64, client: i64) -> Socket {
        let token = self.player_token(runtime, client);
        self.connect(&format!("?ws_token={token}"), &[]).await.unwrap()
    }

    /// Opens a WebSocket, or tells the status and body of the refusal.
    pub(crate) async fn connect(
        &self,
        query: &str,
        headers: &[(&str, &str)],
    ) -> Result<Socket, hyper::Response<Bytes>> {
        connect(self.address, &format!("{ENDPOINT}{query}"), headers).await
    }

    pub(crate) async fn get_management(&self, path: &str) -> (u16, String) {
        let response = request(self.management, hyper::Request::get(path), Bytes::new()).await;
        let text = String::from_utf8(response.body().to_vec()).unwrap();
        (response.status().as_u16(), text)
    }

    /// Waits until the figure is shown with this value.
    pub(crate) async fn check_metric(&self, line: &str) {
        eventually(line, async || {
            let (_, metrics) = self.get_management("/metrics").await;
            metrics.lines().any(|shown| shown == line)
        })
        .await;
    }
}

/// One request on a connection of its own.
pub(crate) async fn request(
    address: SocketAddr,
    builder: hyper::http::request::Builder,
    body: Bytes,
) -> hyper::Response<Bytes> {
    use http_body_util::BodyExt as _;
    let answered = async {
        let stream = TcpStream::connect(address).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        let request = builder
            .header("host", address.to_string())
            .body(http_body_util::Full::new(body))
            .unwrap();
        let response = sender.send_request(request).await.unwrap();
        let (head, body) = response.into_parts();
        hyper::Response::from_parts(head, body.collect().await.unwrap().to_bytes())
    };
    timeout(DEADLINE, answered).await.expect("an answer in time")
}

/// Sends a head and chunks of 64 KiB, as many as are taken, and reads the beginning of the answer.
pub(crate) async fn begin(address: SocketAddr, length: &str, chunks: usize) -> (String, TcpStream) {
    let exchanged = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!("POST /service/swallow HTTP/1.1\r\nhost: x\r\n{length}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let chunk = [&b"10000\r\n"[..], &[b'x'; 0x10000], b"\r\n"].concat();
        for _ in 0..chunks {
            stream.write_all(&chunk).await.unwrap();
        }
        let mut status = [0; 12];
        stream.read_exact(&mut status).await.unwrap();
        (String::from_utf8(status.to_vec()).unwrap(), stream)
    };
    timeout(DEADLINE, exchanged).await.expect("an answer in time")
}

pub(crate) async fn connect(
    address: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
) -> Result<Socket, hyper::Response<Bytes>> {
    let build = || {
        let mut builder = hyper::Request::get(path)
            .header("upgrade", "websocket")
            .header("connection", "Upgrade")
            .header("sec-websocket-key", fastwebsockets::handshake::generate_key())
            .header("sec-websocket-version", "13");
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        builder
    };
    let opened = async {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let request = build().header("host", address.to_string()).body(Empty::<Bytes>::new());
        fastwebsockets::handshake::client(&TokioExecutor::new(), request.unwrap(), stream).await
    };
    match timeout(DEADLINE, opened).await.expect("an answer in time") {
        Ok((socket, response)) => {
            let protocol = response.headers().get("sec-websocket-protocol");
            Ok(Socket {
                protocol: protocol.map(|value| value.to_str().unwrap().to_owned()),
                connection_header: response.headers()["connection"].to_str().unwrap().to_owned(),
                socket: FragmentCollector::new(socket),
            })
        }
        Err(_) => Err(request(address, build(), Bytes::new()).await),
    }
}

/// What a WebSocket says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Said {
    Text(String),
    Binary(Vec<u8>),
    Close(u16, String),
    /// The connection ended without a word.
    Lost,
}

pub(crate) fn text(text: &str) -> Said {
    Said::Text(text.to_owned())
}

pub(crate) fn close(code: u16, reason: &str) -> Said {
    Said::Close(code, reason.to_owned())
}

/// The other end of a WebSocket.
pub(crate) struct Socket {
    pub(crate) protocol: Option<String>,
    pub(crate) connection_header: String,
    pub(crate) socket: FragmentCollector<TokioIo<Upgraded>>,
}

impl Socket {
    pub(crate) async fn send_text(&mut self, text: &str) {
        self.send(OpCode::Text, text.as_bytes()).await;
    }

    pub(crate) async fn send_binary(&mut self, bytes: &[u8]) {
        self.send(OpCode::Binary, bytes).await;
    }

    pub(crate) async fn send(&mut self, opcode: OpCode, bytes: &[u8]) {
        self.send_frame(true, opcode, bytes).await;
    }

    pub(crate) async fn send_frame(&mut self, fin: bool, opcode: OpCode, bytes: &[u8]) {
        let frame = Frame::new(fin, opcode, None, Payload::Owned(bytes.to_vec()));
        timeout(DEADLINE, self.socket.write_frame(frame))
            .await
            .unwrap()
            .unwrap();
    }

    /// Sends one batch made by `put`.
    pub(crate) async fn send_batch(&mut self, put: impl FnOnce(&mut BytesMut)) {
        let mut batch = BytesMut::new();
        put(&mut batch);
        self.send_binary(&batch).await;
    }

    pub(crate) async fn next(&mut self) -> Said {
        let frame = timeout(DEADLINE, self.socket.read_frame())
            .await
            .expect("a frame in time");
        let Ok(frame) = frame else { return Said::Lost };
        match frame.opcode {
            OpCode::Text => Said::Text(String::from_utf8(frame.payload.to_vec()).unwrap()),
            OpCode::Binary => Said::Binary(frame.payload.to_vec()),
            OpCode::Close => {
                let code = frame
                    .payload
                    .first_chunk()
                    .map_or(1005, |code| u16::from_be_bytes(*code));
                let reason = frame.payload.get(2..).unwrap_or_default();
                Said::Close(code, String::from_utf8(reason.to_vec()).unwrap())
            }
            other => panic!("{other:?}"),
        }
    }

    /// The next batch on a binary link, as text: `+7`, `-7 Closed`, `synced`, `7: hello`.
    pub(crate) async fn next_batch(&mut self) -> Vec<String> {
        let Said::Binary(batch) = self.next().await else {
            panic!("a batch was expected")
        };
        mux::decode(Bytes::from(batch))
            .map(|frame| match frame.unwrap() {
                ToRuntime::Joined { client } => format!("+{client}"),
                ToRuntime::Left { client, reason } => format!("-{client} {reason:?}"),
                ToRuntime::Synced => "synced".to_owned(),
                ToRuntime::Data {
                    client, text, bytes, ..
                } => {
                    let kind = if text { "" } else { " binary" };
                    format!("{client}{kind}: {}", String::from_utf8_lossy(&bytes))
                }
            })
            .collect()
    }

    /// Reads batches until they said all of these, in this order.
    pub(crate) async fn expect_frames(&mut self, expected: &[&str]) {
        let mut heard = Vec::new();
        while heard.len() < expected.len() {
            heard.extend(self.next_batch().await);
        }
        assert_eq!(heard, expected);
    }
}

/// Waits for a condition.
pub(crate) async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(DEADLINE, waiting)
        .await
        .unwrap_or_else(|_| panic!("never came true: {what}"));
}

#[expect(clippy::disallowed_methods, reason = "tokens are dated by the wall clock")]
pub(crate) fn time_s() -> i64 {
    let now = std::time::SystemTime::now();
    now.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64
}
