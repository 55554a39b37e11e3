//! A player without a screen: reads the match's packets, predicts its own body, hunts. For tests and load, over any transport.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use shooter_simulation::{Body, Input, Map, Mode, angle_of, direction};

use crate::packets::{Inputs, Malformed};
use crate::wire;

/// Inputs that are remembered: those that may be repeated, and those the server may not know yet.
const SENT_MAX: usize = 128;
/// Inputs in a packet.
const REPEATED: usize = 8;
/// Events that are remembered.
const EVENTS_MAX: usize = 4_096;

/// What the player at the other end of a socket knows.
#[derive(Default)]
pub struct Client {
    /// Own body.
    pub player: u16,
    pub map: Option<Map>,
    /// Tick of the newest snapshot.
    pub seen: u32,
    pub own: Option<wire::Own>,
    /// The last own input that the server has applied.
    pub acknowledged: u32,
    /// Others in sight.
    pub players: BTreeMap<u16, wire::Player>,
    /// Kills and deaths.
    pub scores: BTreeMap<u16, (u16, u16)>,
    /// Everybody, and whether it is a bot.
    pub names: BTreeMap<u16, (String, bool)>,
    /// In order, each once.
    pub events: VecDeque<wire::Event>,
    next_event: u32,
    /// After the end, best first: body, name, kills.
    pub ranking: Option<Vec<(u16, String, u16)>>,
    pub draw: bool,
    /// Snapshots received, and the length of the longest.
    pub snapshots: u32,
    pub snapshot_bytes_max: usize,
    sequence: u32,
    sent: VecDeque<Input>,
    wandering: u32,
}

impl Client {
    /// Takes in a packet of the match.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        let packet = flatbuffers::root::<wire::MatchPacket<'_>>(bytes).map_err(|_| Malformed)?;
        if let Some(welcome) = packet.body_as_welcome() {
            let mode = if welcome.mode() == wire::Mode::Duel {
                Mode::Duel
            } else {
                Mode::Arena
            };
            self.player = welcome.player();
            self.map = Some(Map::new(welcome.seed(), mode));
            self.scores.clear();
            self.sent.clear();
            self.sequence = welcome.acknowledged();
            self.seen = 0;
        } else if let Some(roster) = packet.body_as_roster() {
            let entries = roster.players().iter();
            self.names = entries
                .map(|entry| (entry.id(), (entry.name().to_owned(), entry.bot())))
                .collect();
        } else if let Some(snapshot) = packet.body_as_snapshot() {
            self.look(&snapshot, bytes.len());
        } else if let Some(over) = packet.body_as_match_over() {
            let ranks = over.ranking().iter();
            self.ranking = Some(
                ranks
                    .map(|rank| (rank.id(), rank.name().to_owned(), rank.kills()))
                    .collect(),
            );
            self.draw = over.draw();
        } else {
            return Err(Malformed);
        }
        Ok(())
    }

    fn look(&mut self, snapshot: &wire::Snapshot<'_>, length: usize) {
        self.snapshots += 1;
        self.snapshot_bytes_max = self.snapshot_bytes_max.max(length);
        if snapshot.tick() <= self.seen {
            // Overtaken on the way.
            return;
        }
        self.seen = snapshot.tick();
        self.own = snapshot.own().copied();
        self.acknowledged = snapshot.acknowledged();
        let players = snapshot.players().into_iter().flatten();
        self.players = players.map(|player| (player.id(), *player)).collect();
        for score in snapshot.scores().into_iter().flatten() {
            self.scores.insert(score.player(), (score.kills(), score.deaths()));
        }
        for (number, event) in (snapshot.first_event()..).zip(snapshot.events().into_iter().flatten()) {
            if number >= self.next_event {
                self.next_event = number + 1;
                self.events.push_back(*event);
                if self.events.len() > EVENTS_MAX {
                    self.events.pop_front();
                }
            }
        }
    }

    /// One tick's input, in a packet with the seven before it.
    pub fn act(&mut self, move_x: i8, move_y: i8, aim: u16, fire: bool) -> Bytes {
        self.sequence += 1;
        self.sent.push_back(Input {
            sequence: self.sequence,
            move_x,
            move_y,
            aim,
            fire,
        });
        if self.sent.len() > SENT_MAX {
            self.sent.pop_front();
        }
        let repeated = self.sent.len().saturating_sub(REPEATED);
        Inputs {
            seen: self.seen,
            inputs: self.sent.iter().skip(repeated).copied().collect(),
        }
        .encode()
    }

    /// Where the own body is by the client's own reckoning: the server's state and the inputs it does not know yet.
    pub fn predicted(&self) -> Option<Body> {
        let (own, map) = (self.own?, self.map.as_ref()?);
        let mut body = Body {
            x: own.x(),
            y: own.y(),
            aim: own.aim(),
        };
        for input in self.sent.iter().filter(|input| input.sequence > self.acknowledged) {
            body = body.predict(input, map);
        }
        Some(body)
    }

    /// Somebody in sight, the nearest one.
    pub fn nearest(&self) -> Option<u16> {
        let own = self.own?;
        let distance = |player: &wire::Player| {
            let (x, y) = place(player);
            i64::from(x - own.x()).pow(2) + i64::from(y - own.y()).pow(2)
        };
        let players = self.players.values();
        players.min_by_key(|player| distance(player)).map(|player| player.id())
    }

    /// The next input of somebody who runs for a prey and shoots at sight.
    pub fn hunt(&mut self, prey: u16) -> Bytes {
        let (Some(own), Some(map)) = (self.own, &self.map) else {
            return self.act(0, 0, 0, false);
        };
        let prey = self.players.get(&prey).map(place);
        match prey {
            Some((x, y)) if map.sees(own.x(), own.y(), x, y) => {
                let aim = angle_of(x - own.x(), y - own.y());
                let (cos, sin) = direction(aim);
                self.act((cos / 520) as i8, (sin / 520) as i8, aim, true)
            }
            _ => {
                // Another direction three times in two seconds.
                self.wandering = self.wandering.wrapping_add(1);
                let way = (self.wandering / 45).wrapping_mul(2_654_435_761);
                self.act((way >> 16) as i8, (way >> 24) as i8, way as u16, false)
            }
        }
    }
}

/// In units.
fn place(player: &wire::Player) -> (i32, i32) {
    (i32::from(player.x()) * 32, i32::from(player.y()) * 32)
}
