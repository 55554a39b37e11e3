//! What waits for one player: two lanes, each with a bound and its own idea of what to do when it is full. Sans-I/O.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use omgservers_protocol::mux::Lane;

/// The bounds of an outbox.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutboxLimits {
    /// Messages on the reliable lane. One more and the player is dropped.
    pub(crate) reliable_messages_max: usize,
    /// Bytes on the reliable lane. One more and the player is dropped.
    pub(crate) reliable_bytes_max: usize,
    /// Messages on the unreliable lane. One more and the oldest gives way.
    pub(crate) unreliable_messages_max: usize,
    /// An unreliable message that waited longer is worth nothing any more.
    pub(crate) unreliable_age_max: Duration,
}

impl Default for OutboxLimits {
    fn default() -> Self {
        Self {
            reliable_messages_max: 1024,
            reliable_bytes_max: 1024 * 1024,
            // About half a second of a 60 Hz game; the age is what usually bounds it.
            unreliable_messages_max: 32,
            // The packet life time of the WebRTC channel, so that both transports are equally fresh.
            unreliable_age_max: Duration::from_millis(100),
        }
    }
}

/// How much is handed out at once: enough to fill a send buffer, little enough that what waits can still be replaced.
const TAKE_BYTES: usize = 64 * 1024;

/// One message to a player. The bytes are shared by everybody who gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) text: bool,
    pub(crate) bytes: Bytes,
}

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// Nothing waited before: whoever empties the outbox must be told.
    First,
    /// Something waits already.
    Behind,
    /// The oldest unreliable message gave way.
    InPlaceOfOldest,
    /// The reliable lane is full.
    Refused,
}

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    reliable: VecDeque<Packet>,
    reliable_bytes: usize,
    unreliable: VecDeque<(Duration, Packet)>,
}

impl Outbox {
    pub(crate) fn push(&mut self, now: Duration, limits: &OutboxLimits, lane: Lane, packet: Packet) -> Pushed {
        let first = self.is_empty();
        let mut pushed = if first { Pushed::First } else { Pushed::Behind };
        match lane {
            Lane::Reliable => {
                let bytes = self.reliable_bytes + packet.bytes.len();
                if self.reliable.len() >= limits.reliable_messages_max || bytes > limits.reliable_bytes_max {
                    return Pushed::Refused;
                }
                self.reliable_bytes = bytes;
                self.reliable.push_back(packet);
            }
            Lane::Unreliable => {
                if self.unreliable.len() >= limits.unreliable_messages_max {
                    self.unreliable.pop_front();
                    pushed = Pushed::InPlaceOfOldest;
                }
                self.unreliable.push_back((now, packet));
            }
        }
        pushed
    }

    /// Hands out what fits into one go, the reliable lane first. Returns how many unreliable messages were too old.
    pub(crate) fn take(&mut self, now: Duration, limits: &OutboxLimits, into: &mut Vec<Packet>) -> u64 {
        let mut bytes = 0;
        let mut stale = 0;
        while bytes < TAKE_BYTES
            && let Some(packet) = self.reliable.pop_front()
        {
            self.reliable_bytes -= packet.bytes.len();
            bytes += packet.bytes.len();
            into.push(packet);
        }
        while bytes < TAKE_BYTES
            && let Some((at, packet)) = self.unreliable.pop_front()
        {
            if now.saturating_sub(at) > limits.unreliable_age_max {
                stale += 1;
                continue;
            }
            bytes += packet.bytes.len();
            into.push(packet);
        }
        stale
    }

    /// The whole reliable lane, for a player who is about to be told goodbye.
    pub(crate) fn into_rest(self) -> Vec<Packet> {
        self.reliable.into()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.reliable.is_empty() && self.unreliable.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.reliable_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: OutboxLimits = OutboxLimits {
        reliable_messages_max: 3,
        reliable_bytes_max: 10,
        unreliable_messages_max: 2,
        unreliable_age_max: Duration::from_millis(100),
    };

    fn packet(text: &'static str) -> Packet {
        Packet {
            text: true,
            bytes: Bytes::from_static(text.as_bytes()),
        }
    }

    fn push(outbox: &mut Outbox, at_ms: u64, lane: Lane, text: &'static str) -> Pushed {
        outbox.push(Duration::from_millis(at_ms), &LIMITS, lane, packet(text))
    }

    fn take(outbox: &mut Outbox, at_ms: u64) -> (Vec<String>, u64) {
        let mut packets = Vec::new();
        let stale = outbox.take(Duration::from_millis(at_ms), &LIMITS, &mut packets);
        let texts = packets
            .iter()
            .map(|packet| String::from_utf8(packet.bytes.to_vec()).unwrap());
        (texts.collect(), stale)
    }

    #[test]
    fn the_reliable_lane_refuses_what_does_not_fit_and_keeps_the_rest() {
        let mut outbox = Outbox::default();
        assert_eq!(push(&mut outbox, 0, Lane::Reliable, "a"), Pushed::First);
        assert_eq!(push(&mut outbox, 0, Lane::Reliable, "b"), Pushed::Behind);
        assert_eq!(
            push(&mut outbox, 0, Lane::Reliable, "123456789"),
            Pushed::Refused,
            "bytes"
        );
        assert_eq!(push(&mut outbox, 0, Lane::Reliable, "c"), Pushed::Behind);
        assert_eq!(push(&mut outbox, 0, Lane::Reliable, "d"), Pushed::Refused, "messages");
        assert_eq!(
            take(&mut outbox, 10_000).0,
            ["a", "b", "c"],
            "reliable messages do not age"
        );
        assert_eq!(
            push(&mut outbox, 0, Lane::Reliable, "0123456789"),
            Pushed::First,
            "room again"
        );
    }

    #[test]
    fn the_unreliable_lane_drops_the_oldest() {
        let mut outbox = Outbox::default();
        assert_eq!(push(&mut outbox, 0, Lane::Unreliable, "a"), Pushed::First);
        assert_eq!(push(&mut outbox, 0, Lane::Unreliable, "b"), Pushed::Behind);
        assert_eq!(push(&mut outbox, 0, Lane::Unreliable, "c"), Pushed::InPlaceOfOldest);
        assert_eq!(push(&mut outbox, 0, Lane::Reliable, "r"), Pushed::Behind);
        assert_eq!(take(&mut outbox, 0).0, ["r", "b", "c"]);
        assert!(outbox.is_empty());
    }

    #[test]
    fn an_unreliable_message_that_waited_too_long_is_not_sent() {
        let mut outbox = Outbox::default();
        push(&mut outbox, 0, Lane::Unreliable, "old");
        push(&mut outbox, 50, Lane::Unreliable, "new");
        assert_eq!(take(&mut outbox, 101), (vec!["new".to_owned()], 1));
    }

    #[test]
    fn a_long_queue_is_handed_out_in_portions() {
        let limits = OutboxLimits::default();
        let mut outbox = Outbox::default();
        let big = Packet {
            text: false,
            bytes: Bytes::from(vec![0; 50_000]),
        };
        for _ in 0..4 {
            assert_ne!(
                outbox.push(Duration::ZERO, &limits, Lane::Reliable, big.clone()),
                Pushed::Refused
            );
        }
        let mut packets = Vec::new();
        outbox.take(Duration::ZERO, &limits, &mut packets);
        assert_eq!(packets.len(), 2);
        assert_eq!(outbox.into_rest().len(), 2);
    }
}
