//! Behaviours of a room, one by one, and a property over random lives of rooms.

use std::collections::{BTreeMap, BTreeSet};

use bytes::BytesMut;
use omgservers_protocol::mux::{To, ToRuntime, put_kick, put_send};
use proptest::prelude::*;

use super::*;
use crate::outbox::OutboxLimits;

const RUNTIME: RuntimeId = RuntimeId(9);

fn limits() -> Limits {
    Limits {
        outbox: OutboxLimits {
            reliable_messages_max: 3,
            reliable_bytes_max: 100,
            unreliable_messages_max: 2,
            unreliable_age_max: Duration::from_millis(100),
        },
        backlog_bytes_max: 2_000,
        share_bytes_max: 200,
        ..Limits::default()
    }
}

/// A room and everything that it asked the shell for. Bells are the numbers of the connections.
struct World {
    room: Room<Connection>,
    now: Duration,
    woken: BTreeSet<Connection>,
    closed: BTreeMap<Connection, (u16, String, Vec<String>)>,
    events: Vec<RoomEvent>,
    dialects: BTreeMap<Connection, Dialect>,
}

impl World {
    fn new() -> Self {
        Self {
            room: Room::new(RUNTIME, limits()),
            now: Duration::from_secs(100),
            woken: BTreeSet::new(),
            closed: BTreeMap::new(),
            events: Vec::new(),
            dialects: BTreeMap::new(),
        }
    }

    /// A room whose runtime is connection 1.
    fn linked(dialect: Dialect) -> Self {
        let mut world = Self::new();
        world.link(1, dialect);
        world
    }

    fn handle(&mut self, input: Input<'_, Connection>) {
        self.room.handle(self.now, input);
        while let Some(output) = self.room.poll() {
            match output {
                Output::Wake(bell) => {
                    assert!(!self.closed.contains_key(&bell), "{bell} is woken after its end");
                    self.woken.insert(bell);
                }
                Output::Close(bell, farewell) => {
                    let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
                    let rest = farewell.rest.iter().map(|packet| text(&packet.bytes)).collect();
                    let before = self.closed.insert(bell, (farewell.code, text(&farewell.reason), rest));
                    assert_eq!(before, None, "{bell} is closed twice");
                }
                Output::Event(event) => self.events.push(event),
            }
        }
    }

    fn link(&mut self, connection: Connection, dialect: Dialect) {
        self.dialects.insert(connection, dialect);
        self.handle(Input::RuntimeOpened {
            connection,
            bell: connection,
            dialect,
        });
    }

    fn unlink(&mut self, connection: Connection) {
        self.handle(Input::RuntimeClosed { connection });
    }

    fn join(&mut self, connection: Connection, client: i64) {
        self.handle(Input::PlayerOpened {
            connection,
            client: ClientId(client),
            bell: connection,
        });
    }

    fn leave(&mut self, connection: Connection, client: i64) {
        self.handle(Input::PlayerClosed {
            connection,
            client: ClientId(client),
            left: Left::Closed,
        });
    }

    fn say(&mut self, connection: Connection, client: i64, text: &str) {
        self.handle(Input::PlayerSaid {
            connection,
            client: ClientId(client),
            lane: Lane::Reliable,
            text: true,
            bytes: text.as_bytes(),
        });
    }

    fn runtime_says(&mut self, connection: Connection, text: bool, bytes: &[u8]) {
        self.handle(Input::RuntimeSaid {
            connection,
            text,
            bytes: Bytes::copy_from_slice(bytes),
        });
    }

    fn send(&mut self, connection: Connection, to: To<'_>, lane: Lane, text: &str) {
        let mut batch = BytesMut::new();
        put_send(&mut batch, to, lane, true, text.as_bytes()).unwrap();
        self.runtime_says(connection, false, &batch);
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        self.handle(Input::Tick);
    }

    /// What a player gets now.
    fn taken(&mut self, connection: Connection, client: i64) -> Vec<String> {
        let mut packets = Vec::new();
        while {
            let before = packets.len();
            self.room
                .take_for_player(self.now, connection, ClientId(client), &mut packets);
            packets.len() > before
        } {}
        self.woken.remove(&connection);
        packets
            .into_iter()
            .map(|packet| String::from_utf8(packet.bytes.to_vec()).unwrap())
            .collect()
    }

    /// What the runtime gets now, as text.
    fn heard(&mut self, connection: Connection) -> Vec<String> {
        let mut spare = Backlog::new(self.dialects[&connection]);
        self.room.take_for_runtime(connection, &mut spare);
        self.woken.remove(&connection);
        let mut heard = Vec::new();
        spare.for_each(|message| match self.dialects[&connection] {
            Dialect::Json => heard.push(String::from_utf8(message.to_vec()).unwrap()),
            Dialect::Mux => heard.extend(mux::decode(Bytes::copy_from_slice(message)).map(
                |frame| match frame.unwrap() {
                    ToRuntime::Joined { client } => format!("+{client}"),
                    ToRuntime::Left { client, reason } => format!("-{client} {reason:?}"),
                    ToRuntime::Synced => "synced".to_owned(),
                    ToRuntime::Data { client, bytes, .. } => format!("{client}: {}", String::from_utf8_lossy(&bytes)),
                },
            )),
        });
        heard
    }

    fn check_closed(&self, connection: Connection, code: u16, reason: &str) {
        let (actual_code, actual_reason, _) = &self.closed[&connection];
        assert_eq!((*actual_code, actual_reason.as_str()), (code, reason));
    }
}

fn joined(client: i64) -> RoomEvent {
    RoomEvent::PlayerJoined {
        runtime_id: RUNTIME,
        client_id: ClientId(client),
    }
}

fn left(client: i64) -> RoomEvent {
    RoomEvent::PlayerLeft {
        runtime_id: RUNTIME,
        client_id: ClientId(client),
    }
}

#[test]
fn a_runtime_hears_who_comes_speaks_and_goes() {
    let mut world = World::linked(Dialect::Mux);
    assert!(world.woken.contains(&1));
    assert_eq!(world.heard(1), ["synced"]);
    world.join(2, 7);
    world.say(2, 7, "hello");
    assert!(world.woken.contains(&1));
    world.leave(2, 7);
    assert_eq!(world.heard(1), ["+7", "7: hello", "-7 Closed"]);
    let opened = RoomEvent::RoomOpened { runtime_id: RUNTIME };
    assert_eq!(world.events, [opened, joined(7), left(7)]);
}

#[test]
fn an_old_runtime_hears_messages_only() {
    let mut world = World::linked(Dialect::Json);
    assert!(world.woken.is_empty());
    world.join(2, 7);
    world.say(2, 7, "hello");
    world.leave(2, 7);
    assert_eq!(
        world.heard(1),
        [r#"{"client_id":"7","encoding":"TXT","message":"hello"}"#]
    );
}

#[test]
fn players_get_what_is_for_them() {
    let mut world = World::linked(Dialect::Mux);
    for (connection, client) in [(2, 7), (3, 8), (4, 9)] {
        world.join(connection, client);
    }
    world.send(1, To::One(ClientId(7)), Lane::Reliable, "one");
    world.send(
        1,
        To::Many(&[ClientId(7), ClientId(8), ClientId(99)]),
        Lane::Reliable,
        "many",
    );
    world.send(1, To::All, Lane::Unreliable, "all");
    assert_eq!(world.taken(2, 7), ["one", "many", "all"]);
    assert_eq!(world.taken(3, 8), ["many", "all"]);
    assert_eq!(world.taken(4, 9), ["all"]);
    let counts = world.room.take_counts();
    assert_eq!((counts.messages_to_players, counts.not_connected), (6, 1));
}

#[test]
fn old_frames_reach_the_listed_everybody_or_nobody() {
    let mut world = World::linked(Dialect::Json);
    world.join(2, 7);
    world.join(3, 8);
    let cases = [
        (
            r#"{"clients":["7","7"],"encoding":"TXT","message":"a"}"#,
            vec!["a", "a"],
            vec![],
        ),
        (r#"{"encoding":"TXT","message":"b"}"#, vec!["b"], vec!["b"]),
        (
            r#"{"clients":null,"encoding":"B64","message":"Yw=="}"#,
            vec!["c"],
            vec!["c"],
        ),
        (r#"{"clients":[],"encoding":"TXT","message":"d"}"#, vec![], vec![]),
        (
            r#"{"clients":["8","x"],"encoding":"TXT","message":"e"}"#,
            vec![],
            vec![],
        ),
        ("nonsense", vec![], vec![]),
    ];
    for (frame, first, second) in cases {
        world.runtime_says(1, true, frame.as_bytes());
        assert_eq!(world.taken(2, 7), first, "{frame}");
        assert_eq!(world.taken(3, 8), second, "{frame}");
    }
    world.runtime_says(1, false, b"binary");
    assert!(world.closed.is_empty(), "bad frames never close anything");
    assert_eq!(world.room.take_counts().ignored_frames, 3);
}

#[test]
fn the_newest_connection_of_a_player_wins() {
    let mut world = World::linked(Dialect::Mux);
    world.join(2, 7);
    world.join(3, 7);
    world.check_closed(2, 1008, "Replaced by a newer connection");
    world.say(2, 7, "from the old one");
    world.leave(2, 7);
    world.say(3, 7, "from the new one");
    assert_eq!(
        world.heard(1),
        ["synced", "+7", "-7 Replaced", "+7", "7: from the new one"]
    );
    world.send(1, To::All, Lane::Reliable, "x");
    assert!(world.taken(2, 7).is_empty());
    assert_eq!(world.taken(3, 7), ["x"]);
    assert_eq!(world.events.len(), 2, "for the service the player never left");
}

#[test]
fn the_newest_connection_of_a_runtime_wins_and_keeps_the_players() {
    let mut world = World::linked(Dialect::Mux);
    world.join(2, 7);
    world.say(2, 7, "lost with the old link");
    world.link(3, Dialect::Mux);
    world.check_closed(1, 1008, "Replaced by a newer connection");
    world.unlink(1);
    world.say(2, 7, "hello");
    assert_eq!(world.heard(3), ["+7", "synced", "7: hello"]);
    world.send(1, To::All, Lane::Reliable, "from the old one");
    world.send(3, To::All, Lane::Reliable, "from the new one");
    assert_eq!(world.taken(2, 7), ["from the new one"]);
    assert!(!world.closed.contains_key(&2));
}

#[test]
fn a_room_is_held_for_a_runtime_that_can_come_back() {
    let mut world = World::linked(Dialect::Mux);
    world.join(2, 7);
    world.join(3, 8);
    world.heard(1);
    world.unlink(1);
    world.leave(3, 8);
    world.join(4, 9);
    world.say(2, 7, "are you there?");
    world.wait(Duration::from_secs(9));
    assert!(world.closed.is_empty() && !world.room.is_over());
    world.link(5, Dialect::Mux);
    let mut heard = world.heard(5);
    heard[..2].sort();
    assert_eq!(heard, ["+7", "+9", "synced", "7: are you there?"]);
    world.wait(Duration::from_secs(9));
    assert!(!world.room.is_over(), "the link stands again");
}

#[test]
fn a_room_ends_when_the_time_of_grace_is_over() {
    let mut world = World::linked(Dialect::Mux);
    world.join(2, 7);
    world.send(1, To::All, Lane::Reliable, "last words");
    world.unlink(1);
    world.wait(Duration::from_secs(10));
    world.check_closed(2, 1001, "Room was removed");
    assert_eq!(world.closed[&2].2, ["last words"]);
    assert!(world.room.is_over());
    let lost = RoomEvent::RoomLost { runtime_id: RUNTIME };
    assert_eq!(world.events[2..], [left(7), lost]);
    world.join(3, 8);
    world.check_closed(3, 1002, "Failed to open the dispatcher connection");
    world.link(4, Dialect::Mux);
    world.check_closed(4, 1002, "Failed to open the dispatcher connection");
}

#[test]
fn a_room_of_an_old_runtime_ends_with_its_connection() {
    let mut world = World::linked(Dialect::Json);
    world.join(2, 7);
    world.unlink(1);
    world.check_closed(2, 1001, "Room was removed");
    assert!(world.room.is_over());
}

#[test]
fn a_player_who_does_not_read_is_dropped_and_the_others_are_not() {
    let mut world = World::linked(Dialect::Mux);
    world.join(2, 7);
    world.join(3, 8);
    for text in ["a", "b", "c", "d"] {
        world.send(1, To::All, Lane::Reliable, text);
        assert_eq!(world.taken(3, 8), [text]);
    }
    world.check_closed(2, 1008, "Too slow to receive");
    assert_eq!(world.heard(1).last().unwrap(), "-7 Overflowed");
    assert_eq!(world.room.take_counts().too_slow, 1);
    assert!(!world.closed.contains_key(&3));
}

#[test]
fn an_unreliable_message_gives_way_to_newer_ones_and_nobody_is_dropped() {
    let mut world = World::linked(Dialect::Mux);
    world.join(2, 7);
    for text in ["a", "b", "c", "d"] {
        world.send(1, To::All, Lane::Unreliable, text);
    }
    assert_eq!(world.taken(2, 7), ["c", "d"]);
    world.send(1, To::All, Lane::Unreliable, "old");
    world.now += Duration::from_millis(101);
    world.send(1, To::All, Lane::Unreliable, "new");
    assert_eq!(world.taken(2, 7), ["new"]);
    assert!(world.closed.is_empty());
    let counts = world.room.take_counts();
    assert_eq!((counts.unreliable_full, counts.stale), (2, 1));
}

#[test]
fn a_player_who_says_more_than_a_share_is_dropped() {
    let mut world = World::linked(Dialect::Mux);
    world.join(2, 7);
    let text = "x".repeat(80);
    for _ in 0..5 {
        world.say(2, 7, &text);
        world.say(2, 7, &text);
        world.heard(1);
    }
    assert!(world.closed.is_empty(), "a runtime that reads makes room again");
    for _ in 0..3 {
        world.say(2, 7, &text);
    }
    world.check_closed(2, 1008, "Too many messages");
    assert_eq!(world.room.take_counts().too_fast, 1);
}

#[test]
fn an_unreliable_message_beyond_the_share_is_dropped_alone() {
    let mut world = World::linked(Dialect::Mux);
    world.join(2, 7);
    for _ in 0..5 {
        world.handle(Input::PlayerSaid {
            connection: 2,
            client: ClientId(7),
            lane: Lane::Unreliable,
            text: false,
            bytes: &[b'x'; 80],
        });
    }
    assert!(world.closed.is_empty());
    assert_eq!(world.heard(1).len(), 4);
    assert_eq!(world.room.take_counts().unreliable_full, 3);
}

#[test]
fn a_runtime_that_does_not_read_loses_its_link_but_not_its_players() {
    let mut world = World::linked(Dialect::Mux);
    let text = "x".repeat(150);
    for client in 0..13 {
        world.join(100 + client as Connection, client);
        world.say(100 + client as Connection, client, &text);
    }
    world.check_closed(1, 1008, "Too slow to receive");
    assert_eq!(world.closed.len(), 1);
    world.link(2, Dialect::Mux);
    assert_eq!(world.heard(2).iter().filter(|frame| frame.starts_with('+')).count(), 13);
}

#[test]
fn while_a_room_is_held_what_waits_for_the_runtime_has_a_bound_too() {
    let mut world = World::linked(Dialect::Mux);
    for client in 0..20 {
        world.join(100 + client as Connection, client);
    }
    world.heard(1);
    world.unlink(1);
    for client in 0..20 {
        world.say(100 + client as Connection, client, &"x".repeat(150));
    }
    assert!(!world.closed.is_empty());
    world.check_closed(119, 1008, "Too many messages");
    assert!(world.room.backlog.bytes() <= limits().backlog_bytes_max);
}

#[test]
fn a_kicked_player_gets_what_was_sent_before_and_the_reason() {
    let mut world = World::linked(Dialect::Mux);
    world.join(2, 7);
    let mut batch = BytesMut::new();
    put_send(&mut batch, To::All, Lane::Reliable, true, b"you lost").unwrap();
    put_kick(&mut batch, ClientId(7), "game over").unwrap();
    put_kick(&mut batch, ClientId(99), "nobody").unwrap();
    world.runtime_says(1, false, &batch);
    world.check_closed(2, 1008, "game over");
    assert_eq!(world.closed[&2].2, ["you lost"]);
    assert_eq!(world.heard(1), ["synced", "+7", "-7 Kicked"]);
}

#[test]
fn a_malformed_batch_costs_the_link_and_the_players_are_held() {
    for (text, bytes) in [(false, &[99][..]), (true, b"{}")] {
        let mut world = World::linked(Dialect::Mux);
        world.join(2, 7);
        world.runtime_says(1, text, bytes);
        world.check_closed(1, 1002, "Malformed batch");
        assert!(!world.closed.contains_key(&2) && !world.room.is_over());
    }
}

#[test]
fn who_answers_pings_stays_and_who_does_not_is_closed() {
    let mut world = World::linked(Dialect::Mux);
    world.join(2, 7);
    world.join(3, 8);
    world.heard(1);
    world.wait(Duration::from_secs(16));
    assert_eq!(world.woken, BTreeSet::from([1, 2, 3]), "they are asked");
    let mut packets = Vec::new();
    assert!(world.room.take_for_player(world.now, 2, ClientId(7), &mut packets));
    assert!(
        !world.room.take_for_player(world.now, 2, ClientId(7), &mut packets),
        "once"
    );
    assert!(world.room.take_for_runtime(1, &mut Backlog::new(Dialect::Mux)));
    world.handle(Input::PlayerHeard {
        connection: 2,
        client: ClientId(7),
    });
    world.handle(Input::RuntimeHeard { connection: 1 });
    world.wait(Duration::from_secs(17));
    world.check_closed(3, 1002, "Connection timed out due to inactivity.");
    assert_eq!(world.closed.len(), 1);
    assert_eq!(world.heard(1), ["-8 Idle"]);
}

#[test]
fn a_runtime_that_answers_nothing_loses_its_link() {
    let mut world = World::linked(Dialect::Mux);
    world.join(2, 7);
    for _ in 0..4 {
        world.wait(Duration::from_secs(10));
        world.say(2, 7, "still here");
    }
    world.check_closed(1, 1002, "Connection timed out due to inactivity.");
    world.wait(Duration::from_secs(10));
    world.check_closed(2, 1001, "Room was removed");
}

#[test]
fn a_stop_closes_everybody_once() {
    let mut world = World::linked(Dialect::Mux);
    world.join(2, 7);
    world.handle(Input::Stop);
    world.handle(Input::Stop);
    world.check_closed(1, 1001, "The dispatcher is stopping");
    world.check_closed(2, 1001, "The dispatcher is stopping");
    assert!(world.room.is_over());
}

/// Something that may happen in the life of a room.
#[derive(Debug, Clone)]
enum Step {
    Link(bool),
    Unlink,
    Join(i64),
    Leave(i64),
    Say(i64, usize),
    Send(Option<i64>, bool, usize),
    Kick(i64),
    Read(i64),
    ReadLink,
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let client = || 0..5_i64;
    prop_oneof![
        1 => any::<bool>().prop_map(Step::Link),
        1 => Just(Step::Unlink),
        4 => client().prop_map(Step::Join),
        2 => client().prop_map(Step::Leave),
        6 => (client(), 0..90_usize).prop_map(|(client, length)| Step::Say(client, length)),
        6 => (proptest::option::of(client()), any::<bool>(), 0..40_usize).prop_map(|(to, lane, length)| Step::Send(to, lane, length)),
        1 => client().prop_map(Step::Kick),
        4 => client().prop_map(Step::Read),
        4 => Just(Step::ReadLink),
        3 => (0..12_000_u64).prop_map(Step::Wait),
    ]
}

proptest! {
    /// Whatever happens: queues stay in their bounds, what a binary runtime is told about joins and leaves is true, a
    /// player gets the messages of the reliable lane in order and without a gap, and nobody is closed twice.
    #[test]
    fn rooms_keep_their_promises(steps in proptest::collection::vec(step(), 1..120)) {
        let mut world = World::linked(Dialect::Mux);
        let mut next: Connection = 2;
        let mut link: Connection = 1;
        let mut seats: BTreeMap<i64, Connection> = BTreeMap::new();
        // Who the runtime believes to be there, and what each seat was sent on the reliable lane.
        let mut believed: BTreeSet<String> = BTreeSet::new();
        let mut named: Option<BTreeSet<String>> = Some(BTreeSet::new());
        let mut sent: BTreeMap<Connection, VecDeque<String>> = BTreeMap::new();
        let mut number = 0;
        for step in steps {
            if world.room.is_over() {
                break;
            }
            match step {
                Step::Link(is_mux) => {
                    link = next;
                    next += 1;
                    named = Some(BTreeSet::new());
                    world.link(link, if is_mux { Dialect::Mux } else { Dialect::Json });
                }
                Step::Unlink => world.unlink(link),
                Step::Join(client) => {
                    seats.insert(client, next);
                    sent.insert(next, VecDeque::new());
                    world.join(next, client);
                    next += 1;
                }
                Step::Leave(client) => {
                    if let Some(connection) = seats.remove(&client) {
                        world.leave(connection, client);
                    }
                }
                Step::Say(client, length) => {
                    if let Some(connection) = seats.get(&client) {
                        world.say(*connection, client, &"x".repeat(length));
                    }
                }
                Step::Send(to, reliable, length) => {
                    number += 1;
                    let text = format!("{number}{}", "x".repeat(length));
                    let lane = if reliable { Lane::Reliable } else { Lane::Unreliable };
                    if world.room.is_link(link) && world.dialects[&link] == Dialect::Mux {
                        world.send(link, to.map_or(To::All, |client| To::One(ClientId(client))), lane, &text);
                        for (client, connection) in &seats {
                            let addressed = to.is_none_or(|to| to == *client);
                            if reliable && addressed && !world.closed.contains_key(connection) {
                                sent.get_mut(connection).unwrap().push_back(text.clone());
                            }
                        }
                    }
                }
                Step::Kick(client) => {
                    let mut batch = BytesMut::new();
                    put_kick(&mut batch, ClientId(client), "out").unwrap();
                    if world.room.is_link(link) && world.dialects[&link] == Dialect::Mux {
                        world.runtime_says(link, false, &batch);
                    }
                }
                Step::Read(client) => {
                    if let Some(connection) = seats.get(&client) {
                        for text in world.taken(*connection, client) {
                            let queue = sent.get_mut(connection).unwrap();
                            if queue.front() == Some(&text) {
                                queue.pop_front();
                            } else {
                                prop_assert!(!queue.contains(&text), "`{}` is out of order", text);
                            }
                        }
                        if !world.closed.contains_key(connection) {
                            prop_assert!(sent[connection].is_empty(), "a reliable message is missing");
                        }
                    }
                }
                Step::ReadLink => {
                    if world.room.is_link(link) && world.dialects[&link] == Dialect::Mux {
                        for frame in world.heard(link) {
                            if let Some(client) = frame.strip_prefix('+') {
                                prop_assert!(named.is_some() || believed.insert(client.to_owned()), "{} joins twice", client);
                                if let Some(named) = &mut named {
                                    named.insert(client.to_owned());
                                }
                            } else if let Some(left) = frame.strip_prefix('-') {
                                let client = left.split(' ').next().unwrap();
                                prop_assert!(believed.remove(client), "{} leaves without having joined", client);
                            } else if frame == "synced" {
                                believed = named.take().unwrap();
                            }
                        }
                        let present: BTreeSet<String> = world.room.clients().map(|client| client.to_string()).collect();
                        prop_assert_eq!(&believed, &present);
                    }
                }
                Step::Wait(ms) => world.wait(Duration::from_millis(ms)),
            }
            seats.retain(|_, connection| !world.closed.contains_key(connection));
            for player in world.room.players.values() {
                prop_assert!(player.outbox.bytes() <= limits().outbox.reliable_bytes_max);
                prop_assert!(player.share.1 <= limits().share_bytes_max);
            }
            prop_assert!(world.room.backlog.bytes() <= limits().backlog_bytes_max);
            prop_assert_eq!(world.room.is_over(), world.events.last() == Some(&RoomEvent::RoomLost { runtime_id: RUNTIME }));
        }
    }
}
