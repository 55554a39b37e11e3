//! WebSocket connections: sockets on one side, a room on the other. A connection is one task that reads and writes at
//! once; what follows from a message is decided by the room.

use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use fastwebsockets::upgrade::UpgradeFut;
use fastwebsockets::{Frame, OpCode, Payload, Role, WebSocketError, WebSocketRead};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue, SEC_WEBSOCKET_PROTOCOL};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;
use omgservers_protocol::Qualifier;
use omgservers_protocol::id::ClientId;
use omgservers_protocol::listen::{Peer, Stream};
use omgservers_protocol::mux::{BATCH_BYTES_MAX, Lane, Left, MESSAGE_BYTES_MAX};
use tokio::io::AsyncReadExt as _;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::time::{Instant, sleep, timeout};

use crate::admission::{Refusal, Ticket};
use crate::farewell::FAILED_TO_OPEN;
use crate::handshake::{agree, error, find_token, refuse};
use crate::link::{Backlog, Dialect};
use crate::outbox::Packet;
use crate::room::{Connection, Input};
use crate::rooms::{Bell, Scratch, SharedRoom};
use crate::writer::{LINGER, ReadHalf, Writer};
use crate::{Body, Edge};

/// How long the switch from HTTP may take.
const UPGRADE: Duration = Duration::from_secs(10);

/// Answers a request to open a WebSocket, and runs the connection in a task of its own.
pub(crate) async fn open(edge: &Arc<Edge>, peer: Peer, mut request: Request<Incoming>) -> Response<Body> {
    let token = find_token(request.uri().query(), request.headers());
    let admitted = match token {
        Some(token) => edge.admission.admit(crate::unix_time_s(), &token).await,
        None => Err(Refusal::WrongCredentials("a token is missing")),
    };
    let ticket = match admitted {
        Ok(ticket) => ticket,
        Err(refusal) => {
            edge.meters.refused_connections.increment(1);
            tracing::debug!(?refusal, "a connection is refused");
            return refuse(refusal).map(crate::whole_body);
        }
    };
    let agreement = agree(request.headers(), matches!(ticket, Ticket::Runtime { .. }));
    let upgrade = fastwebsockets::upgrade::is_upgrade_request(&request)
        .then(|| fastwebsockets::upgrade::upgrade(&mut request).ok())
        .flatten();
    let Some((mut response, upgrade)) = upgrade else {
        edge.meters.refused_connections.increment(1);
        let message = "this address is for WebSockets";
        return error(StatusCode::BAD_REQUEST, Qualifier::WrongRequest, message).map(crate::whole_body);
    };
    let headers = response.headers_mut();
    // Some clients compare the whole value.
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    if let Some(protocol) = agreement.protocol {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    }
    let dialect = if agreement.mux { Dialect::Mux } else { Dialect::Json };
    // Before the answer, so that whoever sees an open socket is in the room, and the order of answers is the order of
    // entries.
    let bell = Arc::new(Bell::default());
    let seat = Seat::take(edge, ticket, dialect, &bell);
    edge.tasks.spawn(run(edge.clone(), peer, upgrade, seat, bell));
    response.map(crate::whole_body)
}

/// A place in a room.
struct Seat {
    edge: Arc<Edge>,
    room: Arc<SharedRoom>,
    connection: Connection,
    who: Who,
}

#[derive(Clone, Copy)]
enum Who {
    Runtime(Dialect),
    Player(ClientId),
}

/// Why a connection ended.
enum End {
    /// The other side closed it, with this code if it gave one.
    Closed(Option<u16>),
    /// The other side broke the rules.
    Misbehaved(u16, &'static str),
    /// The socket is gone.
    Lost,
    /// We closed it and said so.
    Dismissed,
}

/// Borrows its half, so that the bare bytes can still be read when they are no frames any more.
type Reader<'a> = WebSocketRead<&'a mut ReadHalf>;

async fn run(edge: Arc<Edge>, peer: Peer, upgrade: UpgradeFut, seat: Option<Seat>, bell: Arc<Bell>) {
    let Some(stream) = upgraded(upgrade).await else {
        if let Some(seat) = seat {
            seat.leave(&End::Lost);
        }
        return;
    };
    edge.meters.opened_connections.increment(1);
    let (mut read_half, write_half) = stream;
    let mut writer = Writer::new(write_half);
    let Some(seat) = seat else {
        writer.say_goodbye(&FAILED_TO_OPEN).await;
        writer.drain(&mut read_half).await;
        return;
    };
    if edge.stopping.is_cancelled() {
        // It came in between the end of all rooms and the end of the process.
        edge.rooms.stop();
    }

    let end = {
        let (mut reader, _) = fastwebsockets::after_handshake_split(&mut read_half, tokio::io::sink(), Role::Server);
        reader.set_auto_close(false);
        reader.set_auto_pong(false);
        let mut reading = std::pin::pin!(read(&seat, &bell, &mut reader));
        tokio::select! {
            end = &mut reading => end,
            end = write(&seat, &bell, &mut writer) => {
                if matches!(end, End::Dismissed) {
                    // Until the other side has answered, for the same reason as in `drain`.
                    let _ = timeout(LINGER, reading).await;
                }
                end
            }
        }
    };
    seat.leave(&end);
    match end {
        End::Closed(code) => writer.answer_close(code).await,
        End::Misbehaved(code, reason) => {
            writer.put_close(code, reason.as_bytes());
            writer.finish().await;
            writer.drain(&mut read_half).await;
        }
        End::Lost | End::Dismissed => {}
    }
    drop(peer);
}

/// The halves of the socket, once it speaks HTTP no more.
async fn upgraded(upgrade: UpgradeFut) -> Option<(ReadHalf, OwnedWriteHalf)> {
    let socket = timeout(UPGRADE, upgrade).await.ok()?.ok()?;
    let parts = auto::upgrade::downcast::<TokioIo<Stream>>(socket.into_inner().into_inner())
        .expect("that is how connections are accepted");
    let (read_half, write_half) = parts.io.into_inner().into_inner().into_split();
    Some((Cursor::new(parts.read_buf).chain(read_half), write_half))
}

impl Seat {
    /// `None` if there is no room.
    fn take(edge: &Arc<Edge>, ticket: Ticket, dialect: Dialect, bell: &Arc<Bell>) -> Option<Self> {
        let (entered, who) = match ticket {
            Ticket::Runtime { runtime } => {
                tracing::info!(runtime.id = %runtime, ?dialect, "a runtime is connected");
                let opened = edge.rooms.open_runtime(runtime, dialect, bell);
                (Some(opened), Who::Runtime(dialect))
            }
            Ticket::Player { runtime, client } => {
                let entered = edge.rooms.open_player(runtime, client, bell);
                let has_room = entered.is_some();
                tracing::debug!(runtime.id = %runtime, client.id = %client, has_room, "a player is connected");
                (entered, Who::Player(client))
            }
        };
        let (room, connection) = entered?;
        Some(Self {
            edge: edge.clone(),
            room,
            connection,
            who,
        })
    }

    fn leave(&self, end: &End) {
        let connection = self.connection;
        let input = match self.who {
            Who::Runtime(dialect) => {
                tracing::info!(runtime.id = %self.room.runtime(), ?dialect, "a runtime is disconnected");
                Input::RuntimeClosed { connection }
            }
            Who::Player(client) => Input::PlayerClosed {
                connection,
                client,
                left: match end {
                    End::Misbehaved(..) => Left::Misbehaved,
                    _ => Left::Closed,
                },
            },
        };
        self.edge.rooms.apply(&self.room, &mut Scratch::new(), input);
    }

    /// Moves what waits in the room to the writer.
    fn fetch(&self, writer: &mut Writer, packets: &mut Vec<Packet>, backlog: &mut Backlog) {
        let ping = match self.who {
            Who::Runtime(dialect) => {
                let ping = self.room.lock().take_for_runtime(self.connection, backlog);
                let opcode = match dialect {
                    Dialect::Json => OpCode::Text,
                    Dialect::Mux => OpCode::Binary,
                };
                backlog.for_each(|message| writer.put(opcode, message));
                backlog.clear();
                ping
            }
            Who::Player(client) => {
                let now = self.edge.rooms.now();
                let ping = self.room.lock().take_for_player(now, self.connection, client, packets);
                for packet in packets.drain(..) {
                    writer.put_packet(&packet);
                }
                ping
            }
        };
        if ping {
            writer.put(OpCode::Ping, &[]);
        }
    }

    fn heard(&self, scratch: &mut Scratch) {
        let connection = self.connection;
        let input = match self.who {
            Who::Runtime(_) => Input::RuntimeHeard { connection },
            Who::Player(client) => Input::PlayerHeard { connection, client },
        };
        self.edge.rooms.apply(&self.room, scratch, input);
    }

    fn said(&self, scratch: &mut Scratch, text: bool, bytes: BytesMut) {
        let connection = self.connection;
        let input = match self.who {
            Who::Runtime(_) => Input::RuntimeSaid {
                connection,
                text,
                bytes: bytes.freeze(),
            },
            Who::Player(client) => Input::PlayerSaid {
                connection,
                client,
                lane: Lane::Reliable,
                text,
                bytes: &bytes,
            },
        };
        self.edge.rooms.apply(&self.room, scratch, input);
    }
}

/// Brings what the socket says into the room, until one of them has enough.
async fn read(seat: &Seat, bell: &Bell, reader: &mut Reader<'_>) -> End {
    let bytes_max = match seat.who {
        Who::Runtime(_) => BATCH_BYTES_MAX,
        Who::Player(_) => MESSAGE_BYTES_MAX,
    };
    reader.set_max_message_size(bytes_max + 1);
    let mut pace = Pace::new(seat.edge.player_messages_per_s);
    let mut scratch = Scratch::new();
    // The beginning of a message that comes in several frames.
    let mut partial: Option<(bool, BytesMut)> = None;
    loop {
        let frame = match read_frame(reader).await {
            Ok(frame) => frame,
            Err(error) => return end_of(&error),
        };
        let payload = match frame.payload {
            Payload::Bytes(bytes) => bytes,
            other => BytesMut::from(&other[..]),
        };
        if matches!(seat.who, Who::Player(_)) {
            pace.step().await;
        }
        let (text, message) = match frame.opcode {
            OpCode::Ping => {
                bell.pong(payload.freeze());
                seat.heard(&mut scratch);
                continue;
            }
            OpCode::Pong => {
                seat.heard(&mut scratch);
                continue;
            }
            OpCode::Close => {
                let code = payload.first_chunk().map(|code| u16::from_be_bytes(*code));
                return End::Closed(code);
            }
            OpCode::Text | OpCode::Binary => {
                if partial.is_some() {
                    return End::Misbehaved(1002, "A message inside another");
                }
                let text = frame.opcode == OpCode::Text;
                if !frame.fin {
                    partial = Some((text, BytesMut::from(&payload[..])));
                    continue;
                }
                (text, payload)
            }
            OpCode::Continuation => {
                let Some((text, mut message)) = partial.take() else {
                    return End::Misbehaved(1002, "A message without a beginning");
                };
                if message.len() + payload.len() > bytes_max {
                    return TOO_BIG;
                }
                message.extend_from_slice(&payload);
                if !frame.fin {
                    partial = Some((text, message));
                    continue;
                }
                if text && std::str::from_utf8(&message).is_err() {
                    return NOT_UTF8;
                }
                (text, message)
            }
        };
        seat.said(&mut scratch, text, message);
    }
}

const TOO_BIG: End = End::Misbehaved(1009, "Message is too big");
const NOT_UTF8: End = End::Misbehaved(1007, "Text is not UTF-8");

fn end_of(error: &WebSocketError) -> End {
    match error {
        WebSocketError::UnexpectedEOF | WebSocketError::IoError(_) | WebSocketError::ConnectionClosed => End::Lost,
        WebSocketError::FrameTooLarge => TOO_BIG,
        WebSocketError::InvalidUTF8 => NOT_UTF8,
        _ => End::Misbehaved(1002, "Not a WebSocket frame"),
    }
}

async fn read_frame<'a>(reader: &'a mut Reader<'_>) -> Result<Frame<'a>, WebSocketError> {
    // Pings and closes are answered by the writer; there is nothing to send from here.
    reader
        .read_frame(&mut |_| std::future::ready(Ok::<(), std::convert::Infallible>(())))
        .await
}

/// Brings what waits in the room to the socket, until the room says goodbye.
async fn write(seat: &Seat, bell: &Bell, writer: &mut Writer) -> End {
    let mut packets = Vec::new();
    let mut backlog = match seat.who {
        Who::Runtime(dialect) => Backlog::new(dialect),
        Who::Player(_) => Backlog::new(Dialect::Json),
    };
    loop {
        bell.rung.notified().await;
        if matches!(seat.who, Who::Runtime(_)) {
            // Players whose messages have just come too get their turn first: one write carries them all.
            tokio::task::yield_now().await;
        }
        loop {
            let (farewell, pong) = bell.take_words();
            if let Some(farewell) = farewell {
                writer.say_goodbye(&farewell).await;
                return End::Dismissed;
            }
            if let Some(pong) = pong {
                writer.put(OpCode::Pong, &pong);
            }
            seat.fetch(writer, &mut packets, &mut backlog);
            if writer.is_empty() {
                break;
            }
            if writer.flush(bell).await.is_err() {
                return End::Lost;
            }
        }
    }
}

/// Makes a player wait who says more per second than is allowed.
struct Pace {
    per_s: u32,
    since: Instant,
    count: u32,
}

impl Pace {
    fn new(per_s: u32) -> Self {
        Self {
            per_s,
            since: Instant::now(),
            count: 0,
        }
    }

    async fn step(&mut self) {
        self.count += 1;
        if self.count < self.per_s {
            return;
        }
        let rest = Duration::from_secs(1).saturating_sub(self.since.elapsed());
        if !rest.is_zero() {
            sleep(rest).await;
        }
        *self = Self::new(self.per_s);
    }
}
