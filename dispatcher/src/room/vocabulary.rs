//! What a room is told, what it asks for, what it allows and what it counts.

use std::time::Duration;

use bytes::Bytes;
use omgservers_protocol::dispatcher::RoomEvent;
use omgservers_protocol::id::ClientId;
use omgservers_protocol::mux::{Lane, Left};

use crate::farewell::Farewell;
use crate::link::Dialect;
use crate::outbox::OutboxLimits;

/// The number of a connection, unique for the life of the process.
pub(crate) type Connection = u64;

/// What a room allows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) outbox: OutboxLimits,
    /// Bytes that may wait for a runtime.
    pub(crate) backlog_bytes_max: usize,
    /// Bytes of one player that may wait for a runtime, so that nobody fills the backlog of all.
    pub(crate) share_bytes_max: usize,
    /// How long a room is held for a runtime that lost its link.
    pub(crate) grace: Duration,
    /// A connection that says and answers nothing for so long is closed.
    pub(crate) idle: Duration,
    pub(crate) ping_every: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            outbox: OutboxLimits::default(),
            // Some seconds of a busy match, should a runtime stall.
            backlog_bytes_max: 8 * 1024 * 1024,
            share_bytes_max: 256 * 1024,
            grace: Duration::from_secs(10),
            idle: Duration::from_secs(32),
            ping_every: Duration::from_secs(16),
        }
    }
}

/// Something happened at a connection. `B` is the bell by which the shell wakes that connection.
#[derive(Debug)]
pub(crate) enum Input<'a, B> {
    RuntimeOpened {
        connection: Connection,
        bell: B,
        dialect: Dialect,
    },
    RuntimeSaid {
        connection: Connection,
        text: bool,
        bytes: Bytes,
    },
    RuntimeClosed {
        connection: Connection,
    },
    PlayerOpened {
        connection: Connection,
        client: ClientId,
        bell: B,
    },
    /// If `text`, the bytes are UTF-8; they are no longer than `mux::MESSAGE_BYTES_MAX`.
    PlayerSaid {
        connection: Connection,
        client: ClientId,
        lane: Lane,
        text: bool,
        bytes: &'a [u8],
    },
    PlayerClosed {
        connection: Connection,
        client: ClientId,
        left: Left,
    },
    /// A sign of life without a message.
    RuntimeHeard {
        connection: Connection,
    },
    PlayerHeard {
        connection: Connection,
        client: ClientId,
    },
    /// Time passed. At least every quarter of the shortest time of the limits.
    Tick,
    /// The dispatcher stops.
    Stop,
}

/// What the shell must do.
#[derive(Debug)]
pub(crate) enum Output<B> {
    /// Something waits for this connection: take it.
    Wake(B),
    /// Send the rest, then close. The room has forgotten this connection already.
    Close(B, Box<Farewell>),
    /// The service wants to know.
    Event(RoomEvent),
}

/// What happened since the counts were taken last.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) messages_from_players: u64,
    pub(crate) messages_to_players: u64,
    /// Messages that reached nobody, by reason.
    pub(crate) unreliable_full: u64,
    pub(crate) stale: u64,
    pub(crate) not_connected: u64,
    pub(crate) ignored_frames: u64,
    /// Connections that the room closed, by reason.
    pub(crate) too_slow: u64,
    pub(crate) too_fast: u64,
    pub(crate) idle: u64,
    pub(crate) replaced: u64,
    pub(crate) kicked: u64,
    pub(crate) malformed: u64,
}
