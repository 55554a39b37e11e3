//! Packets of `schema/shooter.fbs`: the player's read with suspicion, the match's written compactly. Knows the wire, not the game.

use bytes::Bytes;
use flatbuffers::{FlatBufferBuilder, UnionWIPOffset, Vector, VerifierOptions, WIPOffset};
use shooter_simulation::{Event, Input, Mode, Player, Projectile, Standing};

use crate::wire;

/// Version of the packets.
pub const PROTOCOL: u16 = 1;
/// Bytes; eight inputs take about 140.
const PLAYER_PACKET_BYTES_MAX: usize = 512;
/// Inputs that one packet may hold.
const INPUTS_MAX: usize = 16;

/// `Player.flags` and `Own.flags`.
const ALIVE: u8 = 1;
const PROTECTED: u8 = 2;
const LOST: u8 = 4;

const FIRE: u8 = 1;

/// A packet that breaks the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// What a player's packet says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inputs {
    /// Tick of the newest snapshot that arrived.
    pub seen: u32,
    /// Oldest first.
    pub inputs: Vec<Input>,
}

impl Inputs {
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        if bytes.len() > PLAYER_PACKET_BYTES_MAX {
            return Err(Malformed);
        }
        let limits = VerifierOptions {
            max_depth: 4,
            max_tables: 4,
            max_apparent_size: PLAYER_PACKET_BYTES_MAX * 2,
            ignore_missing_null_terminator: true,
        };
        let packet = flatbuffers::root_with_opts::<wire::PlayerPacket<'_>>(&limits, bytes).map_err(|_| Malformed)?;
        let body = packet.body_as_inputs().ok_or(Malformed)?;
        let inputs = body.inputs().ok_or(Malformed)?;
        if inputs.len() > INPUTS_MAX {
            return Err(Malformed);
        }
        let inputs = inputs.iter().map(|input| Input {
            sequence: input.sequence(),
            move_x: input.move_x(),
            move_y: input.move_y(),
            aim: input.aim(),
            fire: input.buttons() & FIRE != 0,
        });
        Ok(Self {
            seen: body.seen(),
            inputs: inputs.collect(),
        })
    }

    /// As a player sends it: for load tests and bots outside.
    pub fn encode(&self) -> Bytes {
        let mut builder = FlatBufferBuilder::new();
        let inputs: Vec<_> = self
            .inputs
            .iter()
            .map(|input| {
                let buttons = if input.fire { FIRE } else { 0 };
                wire::Input::new(input.sequence, input.aim, input.move_x, input.move_y, buttons)
            })
            .collect();
        let inputs = Some(builder.create_vector(&inputs));
        let seen = self.seen;
        let inputs = wire::Inputs::create(&mut builder, &wire::InputsArgs { seen, inputs });
        let packet = wire::PlayerPacketArgs {
            body_type: wire::FromPlayer::Inputs,
            body: Some(inputs.as_union_value()),
        };
        let packet = wire::PlayerPacket::create(&mut builder, &packet);
        builder.finish(packet, None);
        Bytes::copy_from_slice(builder.finished_data())
    }
}

/// Somebody in the roster or the ranking.
#[derive(Debug, Clone)]
pub struct Name<'a> {
    pub id: u16,
    pub name: &'a str,
    pub bot: bool,
}

/// What one player is shown of one tick.
pub struct View<'a> {
    pub tick: u32,
    pub acknowledged: u32,
    pub own: Option<&'a Player>,
    pub players: &'a [wire::Player],
    pub projectiles: &'a [wire::Projectile],
    pub first_event: u32,
    pub events: &'a [wire::Event],
    pub scores: &'a [wire::Score],
}

/// Writes packets, over and over into the same buffer.
#[derive(Default)]
pub struct Encoder {
    builder: FlatBufferBuilder<'static>,
}

impl Encoder {
    pub fn welcome(&mut self, welcome: &wire::WelcomeArgs) -> Bytes {
        let body = wire::Welcome::create(&mut self.builder, welcome);
        self.finish(wire::ToPlayer::Welcome, body.as_union_value())
    }

    pub fn roster<'a>(&mut self, players: impl Iterator<Item = Name<'a>>) -> Bytes {
        let entries: Vec<_> = players
            .map(|Name { id, name, bot }| {
                let name = Some(self.builder.create_string(name));
                wire::RosterEntry::create(&mut self.builder, &wire::RosterEntryArgs { id, name, bot })
            })
            .collect();
        let players = Some(self.builder.create_vector(&entries));
        let body = wire::Roster::create(&mut self.builder, &wire::RosterArgs { players });
        self.finish(wire::ToPlayer::Roster, body.as_union_value())
    }

    pub fn snapshot(&mut self, view: &View<'_>) -> Bytes {
        let builder = &mut self.builder;
        let players = vector(builder, view.players);
        let projectiles = vector(builder, view.projectiles);
        let events = vector(builder, view.events);
        let scores = vector(builder, view.scores);
        let own = view.own.map(own);
        let snapshot = wire::SnapshotArgs {
            tick: view.tick,
            acknowledged: view.acknowledged,
            own: own.as_ref(),
            players,
            projectiles,
            first_event: view.first_event,
            events,
            scores,
        };
        let body = wire::Snapshot::create(builder, &snapshot);
        self.finish(wire::ToPlayer::Snapshot, body.as_union_value())
    }

    pub fn match_over<'a>(
        &mut self,
        ranking: impl Iterator<Item = (Standing, &'a str)>,
        draw: bool,
        closes_in_ms: u32,
    ) -> Bytes {
        let ranks: Vec<_> = ranking
            .map(|(standing, name)| {
                let name = Some(self.builder.create_string(name));
                let rank = wire::RankArgs {
                    id: standing.player,
                    name,
                    bot: standing.bot,
                    kills: standing.kills,
                    deaths: standing.deaths,
                };
                wire::Rank::create(&mut self.builder, &rank)
            })
            .collect();
        let over = wire::MatchOverArgs {
            ranking: Some(self.builder.create_vector(&ranks)),
            draw,
            closes_in_ms,
        };
        let body = wire::MatchOver::create(&mut self.builder, &over);
        self.finish(wire::ToPlayer::MatchOver, body.as_union_value())
    }

    fn finish(&mut self, body_type: wire::ToPlayer, body: WIPOffset<UnionWIPOffset>) -> Bytes {
        let body = Some(body);
        let packet = wire::MatchPacket::create(&mut self.builder, &wire::MatchPacketArgs { body_type, body });
        self.builder.finish(packet, None);
        let bytes = Bytes::copy_from_slice(self.builder.finished_data());
        self.builder.reset();
        bytes
    }
}

/// Nothing at all for an empty list.
fn vector<'a, T: flatbuffers::Push + Copy>(
    builder: &mut FlatBufferBuilder<'a>,
    items: &[T],
) -> Option<WIPOffset<Vector<'a, T::Output>>> {
    (!items.is_empty()).then(|| builder.create_vector(items))
}

pub fn mode(mode: Mode) -> wire::Mode {
    match mode {
        Mode::Duel => wire::Mode::Duel,
        Mode::Arena => wire::Mode::Arena,
    }
}

/// Units to 1/8 pixel. No map is wider than 8,191 pixels.
fn coarse(units: i32) -> u16 {
    (units / 32).clamp(0, i32::from(u16::MAX)) as u16
}

/// Units to 1/16 pixel.
fn step(units: i32) -> i8 {
    (units / 16).clamp(i8::MIN.into(), i8::MAX.into()) as i8
}

fn flags(player: &Player, lost: bool) -> u8 {
    let bits = [
        (player.alive(), ALIVE),
        (player.protection > 0, PROTECTED),
        (lost, LOST),
    ];
    bits.into_iter().filter(|(is_set, _)| *is_set).map(|(_, bit)| bit).sum()
}

fn own(player: &Player) -> wire::Own {
    wire::Own::new(
        player.body.x,
        player.body.y,
        player.body.aim,
        player.respawn_in,
        player.health,
        player.cooldown,
        flags(player, false),
    )
}

pub fn player(player: &Player, lost: bool) -> wire::Player {
    wire::Player::new(
        player.id,
        coarse(player.body.x),
        coarse(player.body.y),
        player.body.aim,
        step(player.step_x),
        step(player.step_y),
        player.health,
        flags(player, lost),
    )
}

pub fn projectile(projectile: &Projectile) -> wire::Projectile {
    wire::Projectile::new(
        projectile.id,
        projectile.owner,
        coarse(projectile.x),
        coarse(projectile.y),
        projectile.aim,
    )
}

pub fn score(standing: &Standing) -> wire::Score {
    wire::Score::new(standing.player, standing.kills, standing.deaths)
}

pub fn event(event: &Event) -> wire::Event {
    use wire::EventKind as Kind;
    let (kind, actor, other, x, y, value) = match *event {
        Event::Spawn { player, x, y } => (Kind::Spawn, player, 0, x, y, 0),
        Event::Shot {
            player,
            projectile,
            x,
            y,
            aim,
        } => (Kind::Shot, player, projectile, x, y, aim),
        Event::Spark { player, x, y } => (Kind::Spark, player, 0, x, y, 0),
        Event::Hit {
            player,
            victim,
            x,
            y,
            damage,
        } => (Kind::Hit, player, victim, x, y, damage.into()),
        Event::Kill { player, victim, x, y } => (Kind::Kill, player, victim, x, y, 0),
    };
    wire::Event::new(kind, actor, other, coarse(x), coarse(y), value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(count: u32) -> Inputs {
        let inputs = (1..=count).map(|sequence| Input {
            sequence,
            move_x: -127,
            move_y: 5,
            aim: 60_000,
            fire: sequence % 2 == 0,
        });
        Inputs {
            seen: 77,
            inputs: inputs.collect(),
        }
    }

    #[test]
    fn inputs_arrive_as_they_were_sent() {
        let sent = inputs(8);
        assert_eq!(Inputs::decode(&sent.encode()), Ok(sent));
    }

    #[test]
    fn packets_that_break_the_rules_are_refused() {
        assert_eq!(Inputs::decode(&[]), Err(Malformed));
        assert_eq!(Inputs::decode(&[0; 64]), Err(Malformed));
        assert_eq!(Inputs::decode(&vec![7; 10_000]), Err(Malformed));
        assert_eq!(Inputs::decode(&inputs(17).encode()), Err(Malformed));
        // A packet of the other direction.
        let foreign = Encoder::default().roster(std::iter::empty());
        assert_eq!(Inputs::decode(&foreign), Err(Malformed));
    }

    #[test]
    fn no_damaged_packet_brings_the_decoder_down() {
        let packet = inputs(8).encode();
        for position in 0..packet.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut damaged = packet.to_vec();
                damaged[position] = value;
                // Either is fine; a panic is not.
                let _ = Inputs::decode(&damaged);
                let _ = Inputs::decode(&damaged[..position]);
            }
        }
    }
}
