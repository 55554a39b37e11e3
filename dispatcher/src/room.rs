//! A room: one runtime and its players. Who is in, who hears what, who is dropped. It knows no socket and no clock:
//! connections are numbers with a bell that the shell rings, and time is an argument.

#[cfg(test)]
mod tests;
mod vocabulary;

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use omgservers_protocol::dispatcher::RoomEvent;
use omgservers_protocol::id::{ClientId, RuntimeId};
use omgservers_protocol::mux::{self, Clients, FromRuntime, Lane, Left};

use crate::farewell::{
    FAILED_TO_OPEN, Farewell, IDLE, MALFORMED, REPLACED, ROOM_REMOVED, STOPPING, TOO_FAST, TOO_SLOW,
};
use crate::link::{Backlog, Dialect, parse_json};
use crate::outbox::{Outbox, Packet, Pushed};
use crate::pulse::{Feeling, Pulse};

pub(crate) use vocabulary::{Connection, Counts, Input, Limits, Output};

pub(crate) struct Room<B> {
    runtime: RuntimeId,
    limits: Limits,
    link: Option<Link<B>>,
    /// When the link was lost, if there is none.
    lost_at: Duration,
    /// What waits for the runtime, or for its next link.
    backlog: Backlog,
    /// How often the backlog was emptied: shares are counted anew each time.
    emptied: u64,
    players: HashMap<ClientId, Player<B>>,
    over: bool,
    outputs: VecDeque<Output<B>>,
    counts: Counts,
}

struct Link<B> {
    connection: Connection,
    bell: B,
    dialect: Dialect,
    pulse: Pulse,
}

struct Player<B> {
    connection: Connection,
    bell: B,
    outbox: Outbox,
    pulse: Pulse,
    /// What this player said since the backlog was emptied last: that number, and bytes.
    share: (u64, usize),
}

impl<B: Clone> Room<B> {
    /// An empty room; the first input opens its runtime's connection.
    pub(crate) fn new(runtime: RuntimeId, limits: Limits) -> Self {
        Self {
            runtime,
            limits,
            link: None,
            lost_at: Duration::ZERO,
            backlog: Backlog::new(Dialect::Mux),
            emptied: 0,
            players: HashMap::new(),
            over: false,
            outputs: VecDeque::from([Output::Event(RoomEvent::RoomOpened { runtime_id: runtime })]),
            counts: Counts::default(),
        }
    }

    pub(crate) fn handle(&mut self, now: Duration, input: Input<'_, B>) {
        match input {
            Input::RuntimeOpened {
                connection,
                bell,
                dialect,
            } => self.open_link(now, connection, bell, dialect),
            Input::RuntimeSaid {
                connection,
                text,
                bytes,
            } => self.hear_runtime(now, connection, text, bytes),
            Input::RuntimeClosed { connection } => {
                if self.is_link(connection) {
                    self.lose_link(now, None);
                }
            }
            Input::RuntimeHeard { connection } => {
                if let Some(link) = self.link.as_mut().filter(|link| link.connection == connection) {
                    link.pulse.heard_at = now;
                }
            }
            Input::PlayerOpened {
                connection,
                client,
                bell,
            } => self.open_player(now, connection, client, bell),
            Input::PlayerSaid {
                connection,
                client,
                lane,
                text,
                bytes,
            } => self.hear_player(now, connection, client, lane, text, bytes),
            Input::PlayerClosed {
                connection,
                client,
                left,
            } => {
                if self.players.get(&client).is_some_and(|p| p.connection == connection) {
                    self.forget_player(now, client, left);
                }
            }
            Input::PlayerHeard { connection, client } => {
                if let Some(player) = self.players.get_mut(&client).filter(|p| p.connection == connection) {
                    player.pulse.heard_at = now;
                }
            }
            Input::Tick => self.tick(now),
            Input::Stop => {
                if let Some(link) = self.link.take() {
                    self.outputs.push_back(Output::Close(link.bell, Box::new(STOPPING)));
                }
                self.end(&STOPPING);
            }
        }
    }

    /// What the shell must do next. Call until `None` after every `handle`.
    pub(crate) fn poll(&mut self) -> Option<Output<B>> {
        self.outputs.pop_front()
    }

    /// Takes what waits for a player, up to a portion: call again until nothing comes. Returns whether to ping, too.
    pub(crate) fn take_for_player(
        &mut self,
        now: Duration,
        connection: Connection,
        client: ClientId,
        into: &mut Vec<Packet>,
    ) -> bool {
        let Some(player) = self.players.get_mut(&client).filter(|p| p.connection == connection) else {
            return false;
        };
        self.counts.stale += player.outbox.take(now, &self.limits.outbox, into);
        std::mem::take(&mut player.pulse.ping_due)
    }

    /// Exchanges what waits for the runtime for an empty backlog of the same dialect. Returns whether to ping, too.
    pub(crate) fn take_for_runtime(&mut self, connection: Connection, spare: &mut Backlog) -> bool {
        debug_assert!(spare.is_empty());
        let Some(link) = self.link.as_mut().filter(|link| link.connection == connection) else {
            return false;
        };
        if !self.backlog.is_empty() {
            std::mem::swap(&mut self.backlog, spare);
            self.emptied += 1;
        }
        std::mem::take(&mut link.pulse.ping_due)
    }

    /// Nobody is in it and nobody can enter: forget it.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    pub(crate) fn is_linked(&self) -> bool {
        self.link.is_some()
    }

    pub(crate) fn clients(&self) -> impl ExactSizeIterator<Item = ClientId> + '_ {
        self.players.keys().copied()
    }

    pub(crate) fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }

    fn is_link(&self, connection: Connection) -> bool {
        self.link.as_ref().is_some_and(|link| link.connection == connection)
    }

    fn open_link(&mut self, now: Duration, connection: Connection, bell: B, dialect: Dialect) {
        if self.over {
            self.outputs.push_back(Output::Close(bell, Box::new(FAILED_TO_OPEN)));
            return;
        }
        let mut waiting = std::mem::replace(&mut self.backlog, Backlog::new(dialect));
        self.emptied += 1;
        if let Some(old) = self.link.take() {
            self.counts.replaced += 1;
            self.outputs.push_back(Output::Close(old.bell, Box::new(REPLACED)));
            // It mixes messages with joins and leaves, which the new link hears from the beginning.
            waiting.clear();
        }
        for client in self.players.keys() {
            self.backlog.put_joined(*client);
        }
        self.backlog.put_synced();
        self.backlog.append(waiting);
        if !self.backlog.is_empty() {
            self.outputs.push_back(Output::Wake(bell.clone()));
        }
        self.link = Some(Link {
            connection,
            bell,
            dialect,
            pulse: Pulse::new(now),
        });
    }

    fn open_player(&mut self, now: Duration, connection: Connection, client: ClientId, bell: B) {
        if self.over {
            self.outputs.push_back(Output::Close(bell, Box::new(FAILED_TO_OPEN)));
            return;
        }
        let player = Player {
            connection,
            bell,
            outbox: Outbox::default(),
            pulse: Pulse::new(now),
            share: (self.emptied, 0),
        };
        if let Some(old) = self.players.insert(client, player) {
            self.counts.replaced += 1;
            self.outputs.push_back(Output::Close(old.bell, Box::new(REPLACED)));
            self.tell_runtime(now, |backlog| backlog.put_left(client, Left::Replaced));
        } else {
            self.outputs.push_back(Output::Event(RoomEvent::PlayerJoined {
                runtime_id: self.runtime,
                client_id: client,
            }));
        }
        self.tell_runtime(now, |backlog| backlog.put_joined(client));
    }

    fn hear_runtime(&mut self, now: Duration, connection: Connection, text: bool, bytes: Bytes) {
        let Some(link) = self.link.as_mut().filter(|link| link.connection == connection) else {
            return;
        };
        link.pulse.heard_at = now;
        match (link.dialect, text) {
            (Dialect::Json, true) => match parse_json(&bytes) {
                Ok(send) => {
                    let packet = Packet {
                        text: send.text,
                        bytes: send.bytes,
                    };
                    match send.clients {
                        None => self.send_to_all(now, Lane::Reliable, &packet),
                        Some(clients) => self.send_to(now, clients.into_iter(), Lane::Reliable, &packet),
                    }
                }
                Err(reason) => {
                    self.counts.ignored_frames += 1;
                    tracing::debug!(runtime.id = %self.runtime, reason, "a frame of a runtime is ignored");
                }
            },
            (Dialect::Json, false) => self.counts.ignored_frames += 1,
            (Dialect::Mux, false) => self.hear_batch(now, bytes),
            (Dialect::Mux, true) => self.refuse_batch(now, "a text frame on the binary link"),
        }
    }

    fn hear_batch(&mut self, now: Duration, batch: Bytes) {
        for frame in mux::decode::<FromRuntime>(batch) {
            match frame {
                Ok(FromRuntime::Send {
                    clients,
                    lane,
                    text,
                    bytes,
                }) => {
                    // Copied once for all who get it: a slow player must not keep a whole batch in memory.
                    let bytes = Bytes::copy_from_slice(&bytes);
                    let packet = Packet { text, bytes };
                    match clients {
                        Clients::One(client) => self.send_to(now, [client].into_iter(), lane, &packet),
                        Clients::Many(clients) => self.send_to(now, clients.iter(), lane, &packet),
                        Clients::All => self.send_to_all(now, lane, &packet),
                    }
                }
                Ok(FromRuntime::Kick { client, reason }) => {
                    if let Some(player) = self.forget_player(now, client, Left::Kicked) {
                        self.counts.kicked += 1;
                        let farewell = Farewell {
                            rest: player.outbox.into_rest(),
                            code: 1008,
                            reason: Bytes::copy_from_slice(&reason),
                        };
                        self.outputs.push_back(Output::Close(player.bell, Box::new(farewell)));
                    }
                }
                Err(malformed) => return self.refuse_batch(now, &malformed.to_string()),
            }
        }
    }

    fn refuse_batch(&mut self, now: Duration, reason: &str) {
        self.counts.malformed += 1;
        tracing::warn!(runtime.id = %self.runtime, reason, "the link of a runtime is closed");
        self.lose_link(now, Some(&MALFORMED));
    }

    fn send_to(&mut self, now: Duration, clients: impl Iterator<Item = ClientId>, lane: Lane, packet: &Packet) {
        let mut too_slow = Vec::new();
        for client in clients {
            let Some(player) = self.players.get_mut(&client) else {
                self.counts.not_connected += 1;
                continue;
            };
            if !send(
                now,
                &self.limits,
                player,
                lane,
                packet,
                &mut self.counts,
                &mut self.outputs,
            ) {
                too_slow.push(client);
            }
        }
        self.drop_players(now, too_slow, Left::Overflowed, &TOO_SLOW);
    }

    fn send_to_all(&mut self, now: Duration, lane: Lane, packet: &Packet) {
        let mut too_slow = Vec::new();
        for (client, player) in &mut self.players {
            if !send(
                now,
                &self.limits,
                player,
                lane,
                packet,
                &mut self.counts,
                &mut self.outputs,
            ) {
                too_slow.push(*client);
            }
        }
        self.drop_players(now, too_slow, Left::Overflowed, &TOO_SLOW);
    }

    fn hear_player(
        &mut self,
        now: Duration,
        connection: Connection,
        client: ClientId,
        lane: Lane,
        text: bool,
        bytes: &[u8],
    ) {
        let Some(player) = self.players.get_mut(&client).filter(|p| p.connection == connection) else {
            return;
        };
        player.pulse.heard_at = now;
        if player.share.0 != self.emptied {
            player.share = (self.emptied, 0);
        }
        let share = player.share.1 + bytes.len() + FRAME_BYTES;
        if share > self.limits.share_bytes_max {
            return match lane {
                Lane::Reliable => self.drop_players(now, vec![client], Left::Overflowed, &TOO_FAST),
                Lane::Unreliable => self.counts.unreliable_full += 1,
            };
        }
        player.share.1 = share;
        self.counts.messages_from_players += 1;
        if self.link.is_some() {
            self.tell_runtime(now, |backlog| backlog.put_data(client, lane, text, bytes));
        } else if self.backlog.bytes() + bytes.len() + FRAME_BYTES <= self.limits.backlog_bytes_max {
            // The room is held: the message waits for the next link.
            self.backlog.put_data(client, lane, text, bytes);
        } else {
            self.drop_players(now, vec![client], Left::Overflowed, &TOO_FAST);
        }
    }

    /// Appends to the backlog of a link that stands. One that does not keep up is lost.
    fn tell_runtime(&mut self, now: Duration, put: impl FnOnce(&mut Backlog)) {
        let Some(link) = &self.link else { return };
        let was_empty = self.backlog.is_empty();
        put(&mut self.backlog);
        if self.backlog.bytes() > self.limits.backlog_bytes_max {
            self.counts.too_slow += 1;
            tracing::warn!(runtime.id = %self.runtime, "a runtime does not read its messages: its link is closed");
            self.lose_link(now, Some(&TOO_SLOW));
        } else if was_empty && !self.backlog.is_empty() {
            self.outputs.push_back(Output::Wake(link.bell.clone()));
        }
    }

    /// The room goes on for a while without a runtime that can come back, and ends at once without one that cannot.
    fn lose_link(&mut self, now: Duration, farewell: Option<&Farewell>) {
        let Some(link) = self.link.take() else { return };
        if let Some(farewell) = farewell {
            self.outputs
                .push_back(Output::Close(link.bell, Box::new(farewell.clone())));
        }
        match link.dialect {
            Dialect::Json => self.end(&ROOM_REMOVED),
            Dialect::Mux => {
                self.lost_at = now;
                self.backlog.clear();
                self.emptied += 1;
            }
        }
    }

    fn drop_players(&mut self, now: Duration, clients: Vec<ClientId>, left: Left, farewell: &Farewell) {
        for client in clients {
            let Some(player) = self.forget_player(now, client, left) else {
                continue;
            };
            match left {
                Left::Idle => self.counts.idle += 1,
                _ if *farewell == TOO_FAST => self.counts.too_fast += 1,
                _ => self.counts.too_slow += 1,
            }
            self.outputs
                .push_back(Output::Close(player.bell, Box::new(farewell.clone())));
        }
    }

    fn forget_player(&mut self, now: Duration, client: ClientId, left: Left) -> Option<Player<B>> {
        let player = self.players.remove(&client)?;
        self.outputs.push_back(Output::Event(RoomEvent::PlayerLeft {
            runtime_id: self.runtime,
            client_id: client,
        }));
        self.tell_runtime(now, |backlog| backlog.put_left(client, left));
        Some(player)
    }

    fn tick(&mut self, now: Duration) {
        if let Some(link) = &mut self.link {
            match link.pulse.feel(now, self.limits.idle, self.limits.ping_every) {
                Feeling::Well => {}
                Feeling::Unsure => self.outputs.push_back(Output::Wake(link.bell.clone())),
                Feeling::Gone => {
                    self.counts.idle += 1;
                    tracing::warn!(runtime.id = %self.runtime, "a runtime does not answer: its link is closed");
                    self.lose_link(now, Some(&IDLE));
                }
            }
        } else if !self.over && now.saturating_sub(self.lost_at) >= self.limits.grace {
            self.end(&ROOM_REMOVED);
        }
        let mut gone = Vec::new();
        for (client, player) in &mut self.players {
            match player.pulse.feel(now, self.limits.idle, self.limits.ping_every) {
                Feeling::Well => {}
                Feeling::Unsure => self.outputs.push_back(Output::Wake(player.bell.clone())),
                Feeling::Gone => gone.push(*client),
            }
        }
        self.drop_players(now, gone, Left::Idle, &IDLE);
    }

    fn end(&mut self, farewell: &Farewell) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        for (client, player) in self.players.drain() {
            self.outputs.push_back(Output::Event(RoomEvent::PlayerLeft {
                runtime_id: self.runtime,
                client_id: client,
            }));
            let farewell = Farewell {
                rest: player.outbox.into_rest(),
                ..farewell.clone()
            };
            self.outputs.push_back(Output::Close(player.bell, Box::new(farewell)));
        }
        self.outputs.push_back(Output::Event(RoomEvent::RoomLost {
            runtime_id: self.runtime,
        }));
    }
}

/// What a message costs in a backlog besides its own bytes.
const FRAME_BYTES: usize = 14;

/// Whether the player keeps up. A function of parts of the room, so that the others can be borrowed meanwhile.
fn send<B: Clone>(
    now: Duration,
    limits: &Limits,
    player: &mut Player<B>,
    lane: Lane,
    packet: &Packet,
    counts: &mut Counts,
    outputs: &mut VecDeque<Output<B>>,
) -> bool {
    counts.messages_to_players += 1;
    match player.outbox.push(now, &limits.outbox, lane, packet.clone()) {
        Pushed::First => outputs.push_back(Output::Wake(player.bell.clone())),
        Pushed::Behind => {}
        Pushed::InPlaceOfOldest => counts.unreliable_full += 1,
        Pushed::Refused => return false,
    }
    true
}
