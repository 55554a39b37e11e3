//! A WebSocket to the dispatcher: opened over HTTP like any other request, then frames both ways until it ends. Silence
//! is noticed, pings are answered, a stuck write does not last.

use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use fastwebsockets::{FragmentCollectorRead, Frame, OpCode, Payload, Role, WebSocketError, WebSocketWrite};
use omgservers_protocol::client::CallError;
use reqwest::header;
use tokio::io::{ReadHalf, WriteHalf};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::timeout;

/// The address of the dispatcher's socket below that of the service.
const PATH: &str = "/dispatcher/v1/entrypoint/websocket/endpoint";
/// From the first packet to the answer of the handshake.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// A write that takes longer has nobody at the other end.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// How often the other side is asked whether it is still there.
const PING_INTERVAL: Duration = Duration::from_secs(10);
/// Three pings without an answer.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// How long a close may take before the connection is dropped.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// "There was no code": what RFC 6455 puts in its place.
const NO_CODE: u16 = 1005;
/// The longest message taken: a batch of the link with room to spare.
const MESSAGE_BYTES_MAX: usize = 2 << 20;

/// Opens sockets at one installation. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Sockets {
    http: reqwest::Client,
    url: String,
}

/// How the token is presented.
#[derive(Clone, Copy)]
pub(crate) enum Carrier {
    Header,
    /// As players of every kind do.
    #[cfg(feature = "player")]
    Query,
}

/// What goes over a socket: the inside of one connection.
pub(crate) trait Traffic {
    /// What came, in order. While the future waits, nothing more is read.
    fn received(&self, text: bool, bytes: Bytes) -> impl Future<Output = ()> + Send;
    /// The next thing to send, if there is one: text or not, and the bytes.
    fn next(&self) -> Option<(bool, BytesMut)>;
    /// Ready when there may be something to send or a reason to close, from when it is made.
    fn woken(&self) -> Notified<'_>;
    /// Whether to close the socket, once there is nothing more to send.
    fn is_closing(&self) -> bool;
}

impl Sockets {
    pub(crate) fn new(service_url: &str) -> Result<Self, CallError> {
        let mut builder = reqwest::Client::builder()
            .connect_timeout(OPEN_TIMEOUT)
            .http1_only()
            .tcp_nodelay(true)
            .no_proxy()
            // Each connection becomes a socket, so none is ever used again.
            .pool_max_idle_per_host(0);
        if service_url.starts_with("http://") {
            // No certificates are needed, and a bare container has none.
            builder = builder.tls_certs_only([]);
        }
        let http = builder.build().map_err(|cause| CallError::Unreachable {
            url: service_url.to_owned(),
            cause: cause.to_string(),
        })?;
        Ok(Self {
            http,
            url: format!("{service_url}{PATH}"),
        })
    }

    /// Shakes hands. The error is for people.
    pub(crate) async fn open(&self, carrier: Carrier, token: &str, protocol: &str) -> Result<Socket, String> {
        let request = match carrier {
            Carrier::Header => self.http.get(&self.url).bearer_auth(token),
            #[cfg(feature = "player")]
            Carrier::Query => self.http.get(format!("{}?ws_token={token}", self.url)),
        };
        let request = request
            .header(header::CONNECTION, "Upgrade")
            .header(header::UPGRADE, "websocket")
            .header(header::SEC_WEBSOCKET_VERSION, "13")
            .header(header::SEC_WEBSOCKET_KEY, fastwebsockets::handshake::generate_key())
            .header(header::SEC_WEBSOCKET_PROTOCOL, protocol);
        let upgraded = async {
            let response = request.send().await.map_err(|cause| cause.without_url())?;
            let status = response.status();
            if status != reqwest::StatusCode::SWITCHING_PROTOCOLS {
                return Ok(Err(format!("the dispatcher refused the socket with HTTP {status}")));
            }
            // Old dispatchers name no protocol and speak the players' anyway; the link's must be agreed upon.
            let agreed = response.headers().get(header::SEC_WEBSOCKET_PROTOCOL);
            if agreed.is_none_or(|agreed| agreed != protocol) && matches!(carrier, Carrier::Header) {
                return Ok(Err(format!("the dispatcher does not speak `{protocol}`")));
            }
            Ok(Ok(response.upgrade().await?))
        };
        match timeout(OPEN_TIMEOUT, upgraded).await {
            Ok(Ok(Ok(stream))) => Ok(Socket::new(stream)),
            Ok(Ok(Err(refusal))) => Err(refusal),
            Ok(Err(cause)) => Err(root_cause(&cause)),
            Err(_) => Err("the dispatcher did not answer in time".to_owned()),
        }
    }
}

/// The innermost cause says what happened; the others only where.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

type Stream = reqwest::Upgraded;

/// An open WebSocket.
pub(crate) struct Socket {
    reader: FragmentCollectorRead<ReadHalf<Stream>>,
    writer: WebSocketWrite<WriteHalf<Stream>>,
}

/// Why a socket ended: the close code, if the other side sent one, and words for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Closed {
    pub(crate) code: Option<u16>,
    pub(crate) reason: String,
}

impl Closed {
    fn without_code(reason: impl Into<String>) -> Self {
        Self {
            code: None,
            reason: reason.into(),
        }
    }
}

impl Socket {
    fn new(stream: Stream) -> Self {
        let (reader, writer) = tokio::io::split(stream);
        let (mut reader, writer) = fastwebsockets::after_handshake_split(reader, writer, Role::Client);
        // Answered by the writing half, which is at work at the same time.
        reader.set_auto_close(false);
        reader.set_auto_pong(false);
        reader.set_max_message_size(MESSAGE_BYTES_MAX);
        Self {
            reader: FragmentCollectorRead::new(reader),
            writer,
        }
    }

    /// Carries traffic until either side ends it.
    pub(crate) async fn run(self, traffic: &impl Traffic) -> Closed {
        let Self { mut reader, mut writer } = self;
        let pong = Pong::default();
        let read = read(&mut reader, traffic, &pong);
        tokio::pin!(read);
        let ended = tokio::select! {
            closed = &mut read => closed,
            written = write(&mut writer, traffic, &pong) => match written {
                Err(cause) => Closed::without_code(cause),
                Ok(()) => {
                    // The other side answers when it has read all; leaving before that could cost it the last words.
                    let _ = timeout(CLOSE_TIMEOUT, &mut read).await;
                    return Closed::without_code("closed by this side");
                }
            },
        };
        if ended.code.is_some() {
            // Politeness; the other side has gone already if this fails.
            let _ = timeout(CLOSE_TIMEOUT, writer.write_frame(Frame::close(1000, b""))).await;
        }
        ended
    }
}

/// The payload of the newest ping that was not answered yet.
#[derive(Default)]
struct Pong {
    payload: Mutex<Option<Bytes>>,
    wanted: Notify,
}

impl Pong {
    fn payload(&self) -> MutexGuard<'_, Option<Bytes>> {
        self.payload.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn read(reader: &mut FragmentCollectorRead<ReadHalf<Stream>>, traffic: &impl Traffic, pong: &Pong) -> Closed {
    // Never called: both automatic answers are off.
    let mut answer = |_: Frame<'_>| std::future::ready(Ok::<(), WebSocketError>(()));
    loop {
        let frame = match timeout(SILENCE_MAX, reader.read_frame(&mut answer)).await {
            Ok(Ok(frame)) => frame,
            Ok(Err(cause)) => return Closed::without_code(format!("the connection is lost: {cause}")),
            Err(_) => return Closed::without_code("nothing was heard for too long"),
        };
        let opcode = frame.opcode;
        let bytes = match frame.payload {
            Payload::Bytes(bytes) => bytes.freeze(),
            other => Bytes::from(Vec::from(other)),
        };
        match opcode {
            OpCode::Text => traffic.received(true, bytes).await,
            OpCode::Binary => traffic.received(false, bytes).await,
            OpCode::Ping => {
                *pong.payload() = Some(bytes);
                pong.wanted.notify_one();
            }
            OpCode::Close => {
                let code = bytes.first_chunk::<2>().map(|code| u16::from_be_bytes(*code));
                return Closed {
                    code: Some(code.unwrap_or(NO_CODE)),
                    reason: String::from_utf8_lossy(bytes.get(2..).unwrap_or_default()).into_owned(),
                };
            }
            OpCode::Pong | OpCode::Continuation => {}
        }
    }
}

/// Ends well when this side wants to close, and otherwise with the reason.
async fn write(
    writer: &mut WebSocketWrite<WriteHalf<Stream>>,
    traffic: &impl Traffic,
    pong: &Pong,
) -> Result<(), String> {
    let mut ping = tokio::time::interval_at(tokio::time::Instant::now() + PING_INTERVAL, PING_INTERVAL);
    ping.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        // Made before looking, so that nothing is missed in between.
        let woken = traffic.woken();
        while let Some((text, bytes)) = traffic.next() {
            let opcode = if text { OpCode::Text } else { OpCode::Binary };
            put(writer, Frame::new(true, opcode, None, Payload::Bytes(bytes))).await?;
        }
        if traffic.is_closing() {
            return put(writer, Frame::close(1000, b"")).await;
        }
        let is_ping_due = tokio::select! {
            () = woken => false,
            () = pong.wanted.notified() => false,
            _ = ping.tick() => true,
        };
        let asked = pong.payload().take();
        if let Some(payload) = asked {
            put(writer, Frame::pong(Payload::Owned(payload.to_vec()))).await?;
        }
        if is_ping_due {
            put(writer, Frame::new(true, OpCode::Ping, None, Payload::Owned(Vec::new()))).await?;
        }
    }
}

async fn put(writer: &mut WebSocketWrite<WriteHalf<Stream>>, frame: Frame<'static>) -> Result<(), String> {
    let written = async {
        writer.write_frame(frame).await?;
        writer.flush().await
    };
    match timeout(WRITE_TIMEOUT, written).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(cause)) => Err(format!("the connection is lost: {cause}")),
        Err(_) => Err("the connection is lost: a write took too long".to_owned()),
    }
}
