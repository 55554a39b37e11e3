//! The events that wait for the game. What must not be lost holds back the rest of the world when there is too much of
//! it; unreliable packets hold back nobody and give way to newer ones.

use std::collections::VecDeque;

use omgservers_protocol::id::ClientId;
use omgservers_protocol::mux::Lane;

use crate::Event;

/// Events that wait. Beyond it the service and the dispatcher are asked for no more.
pub(crate) const EVENTS_MAX: usize = 8_192;
/// Unreliable packets that wait; older ones give way.
pub(crate) const PACKETS_MAX: usize = 8_192;
/// Bytes of either kind that wait.
const BYTES_MAX: usize = 32 << 20;

#[derive(Default)]
pub(crate) struct Inbox {
    /// Everything but unreliable packets.
    events: Queue,
    packets: Queue,
    /// The game has taken [`Event::Stop`], which is the last.
    is_told: bool,
}

impl Inbox {
    pub(crate) fn push(&mut self, event: Event) {
        match &event {
            Event::Packet {
                lane: Lane::Unreliable, ..
            } => {
                self.packets.push(event);
                while self.packets.exceeds(PACKETS_MAX) {
                    self.packets.pop();
                }
                return;
            }
            // Events overtake unreliable packets, and nothing may come from somebody who is not there.
            Event::Disconnected { client, .. } => self.packets.forget(*client),
            _ => {}
        }
        self.events.push(event);
    }

    /// The oldest event; unreliable packets come behind all others. Nothing comes after [`Event::Stop`].
    pub(crate) fn next(&mut self) -> Option<Event> {
        if self.is_told {
            return None;
        }
        let event = self.events.pop().or_else(|| self.packets.pop());
        self.is_told = matches!(event, Some(Event::Stop));
        event
    }

    /// Whether the game has been told to stop.
    pub(crate) fn is_told(&self) -> bool {
        self.is_told
    }

    /// Whether the game lags behind.
    pub(crate) fn is_congested(&self) -> bool {
        self.events.exceeds(EVENTS_MAX - 1)
    }
}

/// Events and their weight.
#[derive(Default)]
struct Queue {
    events: VecDeque<Event>,
    bytes: usize,
}

impl Queue {
    fn push(&mut self, event: Event) {
        self.bytes += bytes_of(&event);
        self.events.push_back(event);
    }

    fn pop(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        self.bytes -= bytes_of(&event);
        Some(event)
    }

    fn exceeds(&self, count: usize) -> bool {
        self.events.len() > count || self.bytes > BYTES_MAX
    }

    fn forget(&mut self, sender: ClientId) {
        self.events
            .retain(|event| !matches!(event, Event::Packet { client, .. } if *client == sender));
        self.bytes = self.events.iter().map(bytes_of).sum();
    }
}

fn bytes_of(event: &Event) -> usize {
    match event {
        Event::Packet { bytes, .. } => bytes.len(),
        Event::Message { message, .. } => message.get().len(),
        Event::ClientAdded { profile, .. } => profile.get().len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use omgservers_protocol::mux::Left;

    fn packet(client: i64, lane: Lane, number: usize) -> Event {
        Event::Packet {
            client: ClientId(client),
            lane,
            text: true,
            bytes: Bytes::from(number.to_string()),
        }
    }

    fn taken(inbox: &mut Inbox) -> Vec<String> {
        let name = |event| match event {
            Event::Packet { bytes, .. } => String::from_utf8_lossy(&bytes).into_owned(),
            other => format!("{other:?}"),
        };
        std::iter::from_fn(|| inbox.next()).map(name).collect()
    }

    #[test]
    fn old_unreliable_packets_give_way() {
        let mut inbox = Inbox::default();
        for number in 0..PACKETS_MAX + 10 {
            inbox.push(packet(1, Lane::Unreliable, number));
        }
        assert!(!inbox.is_congested());
        let numbers = taken(&mut inbox);
        assert_eq!((numbers.len(), numbers[0].as_str()), (PACKETS_MAX, "10"));
    }

    #[test]
    fn large_packets_are_bounded_by_their_bytes() {
        let mut inbox = Inbox::default();
        let large = |lane| Event::Packet {
            client: ClientId(1),
            lane,
            text: false,
            bytes: Bytes::from_static(&[0; 64 * 1_024]),
        };
        for _ in 0..600 {
            inbox.push(large(Lane::Unreliable));
        }
        assert!(!inbox.is_congested());
        for count in 0..600 {
            assert_eq!(inbox.is_congested(), count > 512);
            inbox.push(large(Lane::Reliable));
        }
        assert_eq!(taken(&mut inbox).len(), 600 + 512);
        assert!(!inbox.is_congested());
    }

    #[test]
    fn nothing_is_heard_of_a_player_after_the_end_of_the_socket() {
        let mut inbox = Inbox::default();
        inbox.push(packet(1, Lane::Unreliable, 1));
        inbox.push(packet(2, Lane::Unreliable, 2));
        inbox.push(packet(1, Lane::Reliable, 3));
        inbox.push(Event::Disconnected {
            client: ClientId(1),
            reason: Left::Closed,
        });
        assert_eq!(
            taken(&mut inbox),
            ["3", "Disconnected { client: 1, reason: Closed }", "2"]
        );
    }

    #[test]
    fn stop_is_the_last_event() {
        let mut inbox = Inbox::default();
        inbox.push(Event::Stop);
        inbox.push(packet(1, Lane::Reliable, 1));
        assert_eq!(taken(&mut inbox), ["Stop"]);
        assert!(inbox.is_told());
    }
}
