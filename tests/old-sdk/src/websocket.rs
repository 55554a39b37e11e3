//! The engine's WebSocket extension: a socket that is looked after once per frame.
//!
//! It is strict at the handshake (whole-value `Connection: Upgrade`, three seconds from the call to the end of the
//! handshake) and careless at the end: closing from this side just ends the TCP connection, without a close frame. All
//! events, also those of a close that the game asked for, arrive at the next frame.

mod handshake;

use crate::http::ServiceUrl;
use crate::lua::ScriptError;
use handshake::{Opened, shake_hands};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// From the call of `connect` to the end of the handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Bytes of one incoming message, and of outgoing ones waiting to be written.
const BUFFER_BYTES_MAX: usize = 16 << 20;

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// One message over a dispatcher socket. Lua gets both kinds as the same string; tests want to tell them apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// A text frame.
    Text(String),
    /// A binary frame.
    Binary(Vec<u8>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SocketEvent {
    Connected,
    Message(Payload),
    Error(String),
    Disconnected { message: String, code: u16 },
}

#[derive(Debug)]
pub(crate) struct Socket {
    host: String,
    state: State,
}

#[derive(Debug)]
enum State {
    Connecting {
        since: Instant,
        outcome: Receiver<Result<Opened, String>>,
    },
    Open(Open),
    /// Over, but the game has not been told yet.
    Ending {
        error: Option<String>,
        code: u16,
    },
    Ended,
}

#[derive(Debug)]
struct Open {
    stream: TcpStream,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    /// Opcode and bytes of a message in several frames.
    partial: Option<(u8, Vec<u8>)>,
}

impl Socket {
    /// Starts to connect, in the background.
    pub(crate) fn connect(url: &ServiceUrl, path: &str) -> Self {
        let since = Instant::now();
        let (result, outcome) = sync_channel(1);
        let (host, url, path) = (url.host.clone(), url.clone(), url.path(path));
        thread::spawn(move || {
            // Nobody may be waiting any more: the game closed the socket meanwhile.
            let _ = result.send(shake_hands(&url, &path, since + CONNECT_TIMEOUT));
        });
        Socket {
            host,
            state: State::Connecting { since, outcome },
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    /// Ends the connection from this side: no close frame, the event comes with the next frame.
    pub(crate) fn disconnect(&mut self) {
        if !matches!(self.state, State::Ending { .. } | State::Ended) {
            self.state = State::Ending { error: None, code: 0 };
        }
    }

    /// Queues one message; it leaves with the next frame.
    pub(crate) fn send(&mut self, payload: &Payload) -> Result<(), ScriptError> {
        let State::Open(open) = &mut self.state else {
            return Err(ScriptError::new("Connection isn't connected"));
        };
        let (opcode, bytes) = match payload {
            Payload::Text(text) => (TEXT, text.as_bytes()),
            Payload::Binary(bytes) => (BINARY, bytes.as_slice()),
        };
        if open.outgoing.len() + bytes.len() > BUFFER_BYTES_MAX {
            return Err(ScriptError::new("too many bytes wait to be sent"));
        }
        open.queue(opcode, bytes);
        Ok(())
    }

    /// What happened since the last frame.
    pub(crate) fn poll(&mut self) -> Vec<SocketEvent> {
        match &mut self.state {
            State::Ended => Vec::new(),
            State::Ending { error, code } => {
                let disconnected = SocketEvent::Disconnected {
                    message: String::new(),
                    code: *code,
                };
                let events = error
                    .take()
                    .map(SocketEvent::Error)
                    .into_iter()
                    .chain([disconnected])
                    .collect();
                self.state = State::Ended;
                events
            }
            State::Connecting { since, outcome } => match outcome.try_recv() {
                Ok(Ok(opened)) => {
                    self.state = State::Open(Open {
                        stream: opened.stream,
                        incoming: opened.rest,
                        outgoing: Vec::new(),
                        partial: None,
                    });
                    vec![SocketEvent::Connected]
                }
                Ok(Err(error)) => self.fail(error),
                Err(TryRecvError::Empty) if since.elapsed() < CONNECT_TIMEOUT => Vec::new(),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => self.fail("Connect sequence timed out".into()),
            },
            State::Open(open) => match open.pump() {
                Ok((payloads, None)) => payloads.into_iter().map(SocketEvent::Message).collect(),
                Ok((payloads, Some(code))) => {
                    self.state = State::Ending { error: None, code };
                    payloads.into_iter().map(SocketEvent::Message).collect()
                }
                // Messages of the same frame are lost, as they are in the extension.
                Err(error) => {
                    let error = format!("Websocket closing for {} ({error})", self.host);
                    self.fail(error)
                }
            },
        }
    }

    fn fail(&mut self, error: String) -> Vec<SocketEvent> {
        self.state = State::Ending {
            error: Some(error),
            code: 0,
        };
        Vec::new()
    }
}

impl Open {
    fn queue(&mut self, opcode: u8, payload: &[u8]) {
        let mask = (random() as u32).to_be_bytes();
        self.outgoing.push(0x80 | opcode);
        match payload.len() {
            length @ 0..=125 => self.outgoing.push(0x80 | length as u8),
            length @ 126..=0xffff => {
                self.outgoing.push(0x80 | 126);
                self.outgoing.extend_from_slice(&(length as u16).to_be_bytes());
            }
            length => {
                self.outgoing.push(0x80 | 127);
                self.outgoing.extend_from_slice(&(length as u64).to_be_bytes());
            }
        }
        self.outgoing.extend_from_slice(&mask);
        self.outgoing.extend(
            payload
                .iter()
                .enumerate()
                .map(|(position, byte)| byte ^ mask[position % 4]),
        );
    }

    /// Reads, then writes, without waiting. The second half is the code of a close by the server.
    fn pump(&mut self) -> Result<(Vec<Payload>, Option<u16>), String> {
        let mut payloads = Vec::new();
        let mut closed = None;
        let mut buffer = [0; 16 << 10];
        'reading: loop {
            while let Some((opcode, payload)) = self.next_frame()? {
                match opcode {
                    CLOSE => {
                        let code = payload
                            .first_chunk::<2>()
                            .map_or(1005, |code| u16::from_be_bytes(*code));
                        self.queue(CLOSE, &payload);
                        closed = Some(code);
                        break 'reading;
                    }
                    PING => self.queue(PONG, &payload),
                    PONG => {}
                    _ => payloads.push(as_payload(opcode, payload)?),
                }
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err("the server ended the connection".into()),
                Ok(count) => self.incoming.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        while !self.outgoing.is_empty() {
            match self.stream.write(&self.outgoing) {
                Ok(count) => drop(self.outgoing.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok((payloads, closed))
    }

    /// The next whole message or control frame, if it has arrived.
    fn next_frame(&mut self) -> Result<Option<(u8, Vec<u8>)>, String> {
        while let Some((first, payload)) = self.take_frame()? {
            let (last, opcode) = (first & 0x80 != 0, first & 0x0f);
            if opcode >= CLOSE {
                if !last || payload.len() > 125 || opcode > PONG {
                    return Err("malformed control frame".into());
                }
                return Ok(Some((opcode, payload)));
            }
            let (opcode, message) = match (opcode, self.partial.take()) {
                (CONTINUATION, Some((opcode, mut message))) => {
                    message.extend_from_slice(&payload);
                    (opcode, message)
                }
                (TEXT | BINARY, None) => (opcode, payload),
                _ => return Err("unexpected frame".into()),
            };
            if message.len() > BUFFER_BYTES_MAX {
                return Err("the message is too long".into());
            }
            if last {
                return Ok(Some((opcode, message)));
            }
            self.partial = Some((opcode, message));
        }
        Ok(None)
    }

    /// Takes one frame off the buffer: its first byte and its payload.
    fn take_frame(&mut self) -> Result<Option<(u8, Vec<u8>)>, String> {
        let &[first, second, ..] = self.incoming.as_slice() else {
            return Ok(None);
        };
        if first & 0x70 != 0 || second & 0x80 != 0 {
            return Err("reserved bits or a mask in a frame of the server".into());
        }
        let rest = &self.incoming[2..];
        let (length, head) = match second {
            126 => match rest.first_chunk::<2>() {
                Some(length) => (u64::from(u16::from_be_bytes(*length)), 4),
                None => return Ok(None),
            },
            127 => match rest.first_chunk::<8>() {
                Some(length) => (u64::from_be_bytes(*length), 10),
                None => return Ok(None),
            },
            length => (u64::from(length), 2),
        };
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > BUFFER_BYTES_MAX {
            return Err("the frame is too long".into());
        }
        if self.incoming.len() < head + length {
            return Ok(None);
        }
        let payload = self.incoming[head..head + length].to_vec();
        self.incoming.drain(..head + length);
        Ok(Some((first, payload)))
    }
}

fn as_payload(opcode: u8, bytes: Vec<u8>) -> Result<Payload, String> {
    if opcode == BINARY {
        return Ok(Payload::Binary(bytes));
    }
    String::from_utf8(bytes)
        .map(Payload::Text)
        .map_err(|_| "a text frame is not UTF-8".into())
}

/// Unpredictable enough for keys and masks, without a dependency.
fn random() -> u64 {
    RandomState::new().hash_one(0_u8)
}
