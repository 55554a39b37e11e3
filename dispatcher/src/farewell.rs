//! The last words to a connection: why the dispatcher closes it.
//!
//! | when | code | reason |
//! |---|---|---|
//! | there is no room | 1002 | Failed to open the dispatcher connection |
//! | neither a frame nor an answer to a ping for the idle time | 1002 | Connection timed out due to inactivity. |
//! | a batch of a runtime is malformed | 1002 | Malformed batch |
//! | the runtime is gone, and did not come back in time | 1001 | Room was removed |
//! | the dispatcher stops | 1001 | The dispatcher is stopping |
//! | the same player or runtime connected again | 1008 | Replaced by a newer connection |
//! | the reliable lane to a player, or everything to a runtime, is full | 1008 | Too slow to receive |
//! | a player says more than the runtime takes | 1008 | Too many messages |
//! | the runtime wants a player to go | 1008 | what the runtime says |

use bytes::Bytes;

use crate::outbox::Packet;

/// The last words to a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Farewell {
    /// What the player should still get.
    pub(crate) rest: Vec<Packet>,
    pub(crate) code: u16,
    pub(crate) reason: Bytes,
}

impl Farewell {
    const fn new(code: u16, reason: &'static str) -> Self {
        Self {
            rest: Vec::new(),
            code,
            reason: Bytes::from_static(reason.as_bytes()),
        }
    }
}

pub(crate) const FAILED_TO_OPEN: Farewell = Farewell::new(1002, "Failed to open the dispatcher connection");
pub(crate) const IDLE: Farewell = Farewell::new(1002, "Connection timed out due to inactivity.");
pub(crate) const MALFORMED: Farewell = Farewell::new(1002, "Malformed batch");
pub(crate) const ROOM_REMOVED: Farewell = Farewell::new(1001, "Room was removed");
pub(crate) const STOPPING: Farewell = Farewell::new(1001, "The dispatcher is stopping");
pub(crate) const REPLACED: Farewell = Farewell::new(1008, "Replaced by a newer connection");
pub(crate) const TOO_SLOW: Farewell = Farewell::new(1008, "Too slow to receive");
pub(crate) const TOO_FAST: Farewell = Farewell::new(1008, "Too many messages");
