//! The link to the dispatcher, sans-I/O: whether it stands, who is connected, and what waits to be sent. Sockets are the
//! transport's, the bytes are [`mux`]'s.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use omgservers_protocol::id::ClientId;
use omgservers_protocol::mux::{self, DoesNotFit, Lane, Left, To};

use crate::exchange::{Backoff, Full};
use crate::{Error, Event};

/// Batches of the reliable lane that wait, 1 MiB each: some seconds of a busy match while the link comes back.
const RELIABLE_BATCHES_MAX: usize = 8;

/// A WebSocket token older than this is not tried; they live for about a minute.
const TOKEN_FRESH: Duration = Duration::from_secs(20);

/// A link that was up for so long did not fail to open.
const STOOD: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Link {
    state: State,
    backoff: Backoff,
    opened_at: Duration,
    token: Option<(String, Duration)>,
    /// Whose socket is open.
    connected: HashSet<ClientId>,
    /// Who was named since the link opened, until the dispatcher has named everybody.
    named: Option<HashSet<ClientId>>,
    /// Encoded when they are sent, so that a multicast is encoded once and nothing is allocated per message.
    reliable: VecDeque<BytesMut>,
    unreliable: BytesMut,
    /// The lengths of the frames in `unreliable`.
    unreliable_frames: VecDeque<usize>,
    /// Unreliable messages that gave way to newer ones, or found no link.
    dropped: u64,
    /// Whose turn it is when both lanes do not fit into one batch.
    is_unreliable_next: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not wanted.
    Off,
    Down,
    Opening,
    Up,
}

impl Link {
    pub(crate) fn new(wanted: bool, seed: u64) -> Self {
        Self {
            state: if wanted { State::Down } else { State::Off },
            backoff: Backoff::new(seed ^ 2),
            opened_at: Duration::ZERO,
            token: None,
            connected: HashSet::new(),
            named: None,
            reliable: VecDeque::new(),
            unreliable: BytesMut::new(),
            unreliable_frames: VecDeque::new(),
            dropped: 0,
            is_unreliable_next: false,
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.state == State::Up
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// A token that is good for one connection.
    pub(crate) fn grant(&mut self, now: Duration, token: String) {
        self.token = Some((token, now));
    }

    /// Whether a token is needed before the link can open.
    pub(crate) fn wants_token(&self, now: Duration) -> bool {
        self.state == State::Down && self.backoff.is_over(now) && !self.has_token(now)
    }

    fn has_token(&self, now: Duration) -> bool {
        matches!(&self.token, Some((_, granted)) if now < *granted + TOKEN_FRESH)
    }

    /// The token to open the link with, if it is time to.
    pub(crate) fn start(&mut self, now: Duration) -> Option<String> {
        if self.state != State::Down || !self.backoff.is_over(now) || !self.has_token(now) {
            return None;
        }
        self.state = State::Opening;
        self.token.take().map(|(token, _)| token)
    }

    /// When the pause before the next attempt ends.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        (self.state == State::Down).then_some(self.backoff.until())
    }

    pub(crate) fn opened(&mut self, now: Duration) {
        self.state = State::Up;
        self.opened_at = now;
        self.named = Some(HashSet::new());
    }

    /// The link is lost. Players are held by the dispatcher, so they count as connected until it says otherwise.
    pub(crate) fn closed(&mut self, now: Duration) {
        // A link that stood for a while comes back soon; one that is refused or cut off again and again, ever later.
        if self.is_up() && now >= self.opened_at + STOOD {
            self.backoff.succeeded();
        }
        self.backoff.failed(now);
        self.state = State::Down;
        self.named = None;
        self.dropped += self.unreliable_frames.len() as u64;
        self.unreliable.clear();
        self.unreliable_frames.clear();
    }

    /// Never opens again.
    pub(crate) fn turn_off(&mut self) {
        self.state = State::Off;
    }

    /// What the dispatcher says, as events.
    pub(crate) fn receive(&mut self, frame: mux::ToRuntime, mut event: impl FnMut(Event)) {
        match frame {
            mux::ToRuntime::Joined { client } => {
                let is_known = !self.connected.insert(client);
                if let Some(named) = &mut self.named {
                    named.insert(client);
                    if is_known {
                        return;
                    }
                } else if is_known {
                    let reason = Left::Replaced;
                    event(Event::Disconnected { client, reason });
                }
                event(Event::Connected { client });
            }
            mux::ToRuntime::Left { client, reason } => {
                if let Some(named) = &mut self.named {
                    named.remove(&client);
                }
                if self.connected.remove(&client) {
                    event(Event::Disconnected { client, reason });
                }
            }
            mux::ToRuntime::Synced => {
                let Some(named) = self.named.take() else { return };
                let mut gone: Vec<ClientId> = self.connected.difference(&named).copied().collect();
                gone.sort_unstable();
                self.connected = named;
                for client in gone {
                    let reason = Left::Closed;
                    event(Event::Disconnected { client, reason });
                }
            }
            mux::ToRuntime::Data {
                client,
                lane,
                text,
                bytes,
            } => event(Event::Packet {
                client,
                lane,
                text,
                bytes,
            }),
        }
    }

    pub(crate) fn is_connected(&self, client: ClientId) -> bool {
        self.connected.contains(&client)
    }

    /// Queues a message: reliable or an error, unreliable or dropped.
    pub(crate) fn send(&mut self, to: To<'_>, lane: Lane, text: bool, bytes: &[u8]) -> Result<(), Error> {
        if self.state == State::Off {
            return Err(Error::NoLink);
        }
        if bytes.len() > mux::MESSAGE_BYTES_MAX {
            return Err(Error::TooLong {
                bytes: bytes.len(),
                bytes_max: mux::MESSAGE_BYTES_MAX,
            });
        }
        match to {
            // One frame names 65 535 players at most, and leaves room for the message.
            To::Many(clients) if clients.len() > mux::CLIENTS_MAX => clients
                .chunks(mux::CLIENTS_MAX)
                .try_for_each(|clients| self.send(To::Many(clients), lane, text, bytes)),
            _ if lane == Lane::Reliable => self.put_reliable(|batch| mux::put_send(batch, to, lane, text, bytes)),
            _ => {
                self.put_unreliable(to, text, bytes);
                Ok(())
            }
        }
    }

    /// Queues the end of a player's connection, behind what was sent before.
    pub(crate) fn kick(&mut self, client: ClientId, reason: &str) -> Result<(), Error> {
        if self.state == State::Off {
            return Err(Error::NoLink);
        }
        let mut end = reason.len().min(mux::REASON_BYTES_MAX);
        while !reason.is_char_boundary(end) {
            end -= 1;
        }
        self.put_reliable(|batch| mux::put_kick(batch, client, &reason[..end]))
    }

    fn put_reliable(&mut self, put: impl Fn(&mut BytesMut) -> Result<(), DoesNotFit>) -> Result<(), Error> {
        if let Some(last) = self.reliable.back_mut()
            && put(last).is_ok()
        {
            return Ok(());
        }
        if self.reliable.len() >= RELIABLE_BATCHES_MAX {
            return Err(Full.into());
        }
        let mut batch = BytesMut::new();
        put(&mut batch).expect("a frame within its limits fits into an empty batch");
        self.reliable.push_back(batch);
        Ok(())
    }

    fn put_unreliable(&mut self, to: To<'_>, text: bool, bytes: &[u8]) {
        if !self.is_up() {
            self.dropped += 1;
            return;
        }
        let mut before = self.unreliable.len();
        while mux::put_send(&mut self.unreliable, to, Lane::Unreliable, text, bytes).is_err() {
            let oldest = self
                .unreliable_frames
                .pop_front()
                .expect("a frame within its limits fits into an empty batch");
            self.unreliable.advance(oldest);
            before -= oldest;
            self.dropped += 1;
        }
        self.unreliable_frames.push_back(self.unreliable.len() - before);
    }

    /// The next batch for the dispatcher, while the link stands.
    pub(crate) fn take_batch(&mut self) -> Option<BytesMut> {
        if !self.is_up() {
            return None;
        }
        let fits = |batch: &BytesMut| batch.len() + self.unreliable.len() <= mux::BATCH_BYTES_MAX;
        if self.unreliable.is_empty() {
            return self.reliable.pop_front();
        }
        let mut batch = match self.reliable.front() {
            Some(batch) if !fits(batch) && !self.is_unreliable_next => {
                self.is_unreliable_next = true;
                return self.reliable.pop_front();
            }
            Some(batch) if fits(batch) => self.reliable.pop_front().expect("it was there a line ago"),
            _ => BytesMut::new(),
        };
        self.is_unreliable_next = false;
        self.unreliable_frames.clear();
        if batch.is_empty() {
            return Some(self.unreliable.split());
        }
        batch.extend_from_slice(&self.unreliable);
        self.unreliable.clear();
        Some(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    const ANN: ClientId = ClientId(1);
    const BOB: ClientId = ClientId(2);

    fn link() -> Link {
        let mut link = Link::new(true, 1);
        open(&mut link);
        link
    }

    fn open(link: &mut Link) {
        let now = Duration::from_secs(1_000);
        link.grant(now, "token".into());
        assert_eq!(link.start(now).as_deref(), Some("token"));
        link.opened(now);
    }

    fn receive(link: &mut Link, frames: &[mux::ToRuntime]) -> Vec<String> {
        let mut events = Vec::new();
        for frame in frames {
            link.receive(frame.clone(), |event| events.push(format!("{event:?}")));
        }
        events
    }

    fn joined(client: ClientId) -> mux::ToRuntime {
        mux::ToRuntime::Joined { client }
    }

    fn sent(link: &mut Link) -> Vec<mux::FromRuntime> {
        let batches = std::iter::from_fn(|| link.take_batch());
        batches
            .flat_map(|batch| mux::decode::<mux::FromRuntime>(batch.freeze()))
            .collect::<Result<_, _>>()
            .unwrap()
    }

    fn bytes_of(frames: Vec<mux::FromRuntime>) -> Vec<Bytes> {
        let bytes = |frame| match frame {
            mux::FromRuntime::Send { bytes, .. } => bytes,
            mux::FromRuntime::Kick { reason, .. } => reason,
        };
        frames.into_iter().map(bytes).collect()
    }

    #[test]
    fn players_stay_connected_over_a_lost_link_unless_they_left_meanwhile() {
        let mut link = link();
        let events = receive(&mut link, &[joined(ANN), joined(BOB), mux::ToRuntime::Synced]);
        assert_eq!(events, ["Connected { client: 1 }", "Connected { client: 2 }"]);
        link.closed(Duration::ZERO);
        assert!(link.is_connected(ANN));
        open(&mut link);
        let events = receive(&mut link, &[joined(BOB), mux::ToRuntime::Synced]);
        assert_eq!(events, ["Disconnected { client: 1, reason: Closed }"]);
        assert!(link.is_connected(BOB) && !link.is_connected(ANN));
    }

    #[test]
    fn a_player_who_connects_anew_is_seen_leaving_and_coming() {
        let mut link = link();
        receive(&mut link, &[mux::ToRuntime::Synced, joined(ANN)]);
        let events = receive(&mut link, &[joined(ANN)]);
        let expected = [
            "Disconnected { client: 1, reason: Replaced }",
            "Connected { client: 1 }",
        ];
        assert_eq!(events, expected);
        let left = mux::ToRuntime::Left {
            client: ANN,
            reason: Left::Idle,
        };
        let events = receive(&mut link, &[left.clone(), left]);
        assert_eq!(events, ["Disconnected { client: 1, reason: Idle }"], "once");
    }

    #[test]
    fn reliable_messages_wait_for_the_link_and_unreliable_ones_do_not() {
        let mut link = Link::new(true, 1);
        link.send(To::One(ANN), Lane::Reliable, false, b"kept").unwrap();
        link.send(To::All, Lane::Unreliable, false, b"dropped").unwrap();
        assert!(link.take_batch().is_none());
        open(&mut link);
        link.send(To::All, Lane::Unreliable, true, b"fresh").unwrap();
        assert_eq!(bytes_of(sent(&mut link)), ["kept", "fresh"]);
        assert_eq!(link.dropped(), 1);
    }

    #[test]
    fn a_full_reliable_lane_is_an_error_and_nothing_is_lost() {
        let mut link = link();
        let message = vec![7; mux::MESSAGE_BYTES_MAX];
        let mut accepted = 0;
        let error = loop {
            match link.send(To::One(ANN), Lane::Reliable, false, &message) {
                Ok(()) => accepted += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::QueueFull), "{error}");
        assert!(accepted > 100);
        assert_eq!(sent(&mut link).len(), accepted);
        assert!(link.send(To::One(ANN), Lane::Reliable, false, &message).is_ok());
    }

    #[test]
    fn a_full_unreliable_lane_drops_the_oldest() {
        let mut link = link();
        for number in 0..100u8 {
            link.send(To::One(ANN), Lane::Unreliable, false, &vec![number; 60_000])
                .unwrap();
        }
        let numbers: Vec<u8> = bytes_of(sent(&mut link)).iter().map(|bytes| bytes[0]).collect();
        assert_eq!(numbers.last(), Some(&99));
        assert!(numbers.is_sorted() && numbers.len() < 20);
        assert_eq!(link.dropped() as usize + numbers.len(), 100);
    }

    #[test]
    fn neither_lane_starves_the_other() {
        let mut link = link();
        for _ in 0..40 {
            link.send(To::All, Lane::Reliable, false, &[1; 60_000]).unwrap();
        }
        link.send(To::All, Lane::Unreliable, false, &[2; 60_000]).unwrap();
        let is_unreliable = |batch: BytesMut| {
            mux::decode::<mux::FromRuntime>(batch.freeze()).any(|frame| {
                matches!(
                    frame,
                    Ok(mux::FromRuntime::Send {
                        lane: Lane::Unreliable,
                        ..
                    })
                )
            })
        };
        let batches: Vec<bool> = std::iter::from_fn(|| link.take_batch()).map(is_unreliable).collect();
        assert_eq!(
            batches.iter().position(|unreliable| *unreliable),
            Some(1),
            "{batches:?}"
        );
    }

    #[test]
    fn what_is_too_long_is_refused_and_reasons_are_cut() {
        let mut link = link();
        let error = link.send(To::All, Lane::Unreliable, false, &vec![0; mux::MESSAGE_BYTES_MAX + 1]);
        assert!(matches!(error, Err(Error::TooLong { .. })));
        link.kick(ANN, &"ä".repeat(100)).unwrap();
        assert_eq!(bytes_of(sent(&mut link)), ["ä".repeat(61)]);
        let crowd: Vec<ClientId> = (0..100_000).map(ClientId).collect();
        link.send(To::Many(&crowd), Lane::Reliable, false, b"hi").unwrap();
        assert_eq!(sent(&mut link).len(), 2, "in two frames");
    }

    #[test]
    fn a_link_opens_with_a_fresh_token_only() {
        let mut link = Link::new(true, 1);
        let start = Duration::from_secs(1);
        assert!(link.wants_token(start) && link.start(start).is_none());
        link.grant(start, "old".into());
        assert!(!link.wants_token(start));
        let later = start + TOKEN_FRESH;
        assert!(link.wants_token(later) && link.start(later).is_none());
        link.grant(later, "new".into());
        assert_eq!(link.start(later).as_deref(), Some("new"));
        assert!(!link.wants_token(later), "it is opening");
        link.closed(later);
        assert!(!link.wants_token(later) && link.wants_token(later + Duration::from_millis(50)));
    }

    #[test]
    fn a_runtime_without_a_link_cannot_send_over_it() {
        let mut link = Link::new(false, 1);
        assert!(matches!(
            link.send(To::All, Lane::Reliable, false, b""),
            Err(Error::NoLink)
        ));
        assert!(!link.wants_token(Duration::ZERO));
    }
}
