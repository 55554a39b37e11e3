//! The match without clock and sockets: who is assigned and connected, their packets in, the world's tick, packets out.
//!
//! Call what happened, then [`MatchServer::poll`] until `None`.

mod sight;

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use omgservers_runtime_sdk::{ClientId, Lane};
use shooter_simulation::{Command, Mode, Outcome, Recorder, Standing, TICK_RATE, UNITS_PER_PIXEL, World};

use crate::config::GameConfig;
use crate::member::{Connection, Member};
use crate::packets::{self, Encoder, Inputs};
use crate::profile::Profile;
use crate::wire;

/// Ticks from one snapshot to the next: 30 a second. Movement between them is interpolated.
pub const SNAPSHOT_EVERY: u32 = 2;
/// Ticks before the end of time, and kills before the limit, from which on nobody new is let in.
const LAST_TICKS: u32 = 20 * TICK_RATE;
const LAST_KILLS: u16 = 2;

/// What bots are called.
const BOT_NAMES: [&str; 24] = [
    "Vector", "Nova", "Pixel", "Quark", "Ember", "Orbit", "Fuse", "Glitch", "Comet", "Rivet", "Static", "Zephyr",
    "Onyx", "Spark", "Echo", "Drift", "Cobalt", "Flux", "Pulse", "Raster", "Blaze", "Cipher", "Halo", "Turbo",
];

/// What the shell must do.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// Ask for a socket.
    Upgrade {
        client: ClientId,
    },
    Send {
        client: ClientId,
        lane: Lane,
        bytes: Bytes,
    },
    /// To everybody who is connected.
    SendAll {
        lane: Lane,
        bytes: Bytes,
    },
    SetProfile {
        client: ClientId,
        profile: Profile,
    },
    StopMatchmaking,
    Kick {
        client: ClientId,
    },
}

/// What a match is made of.
#[derive(Debug, Clone)]
pub struct MatchSettings {
    pub mode: Mode,
    pub seed: u32,
    pub game: GameConfig,
}

pub struct MatchServer {
    settings: MatchSettings,
    world: World,
    /// For the next tick.
    commands: Vec<Command>,
    members: BTreeMap<ClientId, Member>,
    /// Names of bots by body.
    bots: BTreeMap<u16, &'static str>,
    next_player: u16,
    /// By body: the tick in which the score changed last.
    scored: BTreeMap<u16, (u32, Standing)>,
    phase: Phase,
    /// Somebody with a body left for good.
    deserted: bool,
    roster_changed: bool,
    closed_to_new: bool,
    recorder: Option<Recorder>,
    encoder: Encoder,
    outputs: VecDeque<Output>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Playing,
    /// Over; everybody is sent away when no ticks are left.
    Closing {
        ticks_left: u32,
    },
    Closed,
}

impl MatchServer {
    pub fn new(settings: MatchSettings) -> Self {
        Self {
            world: World::new(settings.seed, settings.mode, settings.game.rules()),
            settings,
            commands: Vec::new(),
            members: BTreeMap::new(),
            bots: BTreeMap::new(),
            next_player: 1,
            scored: BTreeMap::new(),
            phase: Phase::Playing,
            deserted: false,
            roster_changed: false,
            closed_to_new: false,
            recorder: None,
            encoder: Encoder::default(),
            outputs: VecDeque::new(),
        }
    }

    /// Writes the match down from its first tick on. Takes a few bytes per player and tick.
    pub fn record(&mut self) {
        if self.world.tick() == 0 {
            self.recorder = Some(Recorder::new(&self.world));
        }
    }

    /// The recording so far.
    pub fn recording(&self) -> Option<Vec<u8>> {
        let recorder = self.recorder.clone()?;
        Some(recorder.finish(&self.world))
    }

    pub fn world(&self) -> &World {
        &self.world
    }

    /// Which body a client has.
    pub fn player_of(&self, client: ClientId) -> Option<u16> {
        self.members.get(&client)?.player
    }

    /// People with an open connection.
    pub fn connected(&self) -> usize {
        self.members.values().filter(|member| member.is_connected()).count()
    }

    /// Nothing moves and no tick is needed: nobody has a body, or everybody was sent away.
    pub fn is_idle(&self) -> bool {
        match self.phase {
            Phase::Playing => self.members.values().all(|member| member.player.is_none()),
            Phase::Closing { .. } => false,
            Phase::Closed => true,
        }
    }

    /// What to do next.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Somebody is assigned to this match.
    pub fn add(&mut self, client: ClientId, profile: Profile) {
        if self.phase != Phase::Playing {
            // Matched just before the match was closed to new players.
            self.outputs.push_back(Output::Kick { client });
            return;
        }
        let name = profile.name_for(client);
        self.members.entry(client).or_insert_with(|| Member::new(profile, name));
        self.outputs.push_back(Output::Upgrade { client });
    }

    /// Somebody is no longer assigned.
    pub fn remove(&mut self, client: ClientId) {
        if let Some(member) = self.members.remove(&client)
            && let Some(player) = member.player
        {
            self.withdraw(player);
        }
    }

    /// A socket is open: a new body, or the one that waited.
    pub fn connect(&mut self, client: ClientId) {
        let since = self.world.tick();
        let Some(member) = self.members.get_mut(&client) else {
            return;
        };
        member.connection = Connection::Open { since };
        member.seen = 0;
        if member.player.is_none() && self.phase == Phase::Playing {
            member.player = Some(self.next_player);
            member.inputs.restart();
            self.commands.push(Command::Enter {
                player: self.next_player,
                bot: false,
            });
            self.next_player += 1;
        }
        let player = member.player.unwrap_or_default();
        self.roster_changed = true;
        let map = self.world.map();
        let rules = self.world.rules();
        let acknowledged = self.world.player(player).map_or(0, |player| player.acknowledged);
        let bytes = self.encoder.welcome(&wire::WelcomeArgs {
            protocol: packets::PROTOCOL,
            player,
            mode: packets::mode(self.settings.mode),
            seed: self.settings.seed,
            tick_rate: TICK_RATE as u16,
            snapshot_every: SNAPSHOT_EVERY as u16,
            width: (map.width() / UNITS_PER_PIXEL) as u16,
            height: (map.height() / UNITS_PER_PIXEL) as u16,
            tick: since,
            ends_at: rules.time_limit,
            frag_limit: rules.frag_limit,
            acknowledged,
        });
        let lane = Lane::Reliable;
        self.outputs.push_back(Output::Send { client, lane, bytes });
        if self.phase != Phase::Playing {
            let bytes = self.match_over();
            self.outputs.push_back(Output::Send { client, lane, bytes });
        }
    }

    /// A socket is closed; the body stays for a while.
    pub fn disconnect(&mut self, client: ClientId) {
        if let Some(member) = self.members.get_mut(&client) {
            member.connection = Connection::Lost { for_ticks: 0 };
            self.roster_changed = true;
        }
    }

    /// A packet of a player. Answers whether it was acceptable.
    pub fn handle(&mut self, client: ClientId, bytes: &[u8]) -> bool {
        let now = self.world.tick();
        let Some(member) = self.members.get_mut(&client) else {
            return false;
        };
        if !member.is_connected() || !member.may_speak() {
            return false;
        }
        let Ok(packet) = Inputs::decode(bytes) else {
            return false;
        };
        member.has_seen(packet.seen, now);
        for input in packet.inputs {
            member.inputs.push(input);
        }
        true
    }

    /// One tick of the world, and what everybody sees of it.
    pub fn tick(&mut self) {
        self.count_absences();
        self.fill_with_bots();
        for member in self.members.values_mut() {
            member.forgive();
            if let Some(player) = member.player {
                let inputs = member.inputs.take().map(|input| Command::Input { player, input });
                self.commands.extend(inputs);
            }
        }
        self.world.step(&self.commands);
        if let Some(recorder) = &mut self.recorder {
            recorder.note(&self.commands, &self.world);
        }
        self.commands.clear();
        self.note_scores();
        self.note_events();
        self.send_roster();
        if self.world.tick().is_multiple_of(SNAPSHOT_EVERY) {
            self.send_snapshots();
        }
        self.close();
    }

    /// A body leaves with the next tick.
    fn withdraw(&mut self, player: u16) {
        // Who has not entered yet does not: within a tick leaving comes before entering.
        let entering = Command::Enter { player, bot: false };
        match self.commands.iter().position(|command| *command == entering) {
            Some(position) => drop(self.commands.remove(position)),
            None => self.commands.push(Command::Leave { player }),
        }
        self.scored.remove(&player);
        self.deserted = true;
        self.roster_changed = true;
    }

    fn count_absences(&mut self) {
        let grace = self.settings.game.grace_s * TICK_RATE;
        let mut gone = Vec::new();
        for member in self.members.values_mut() {
            if let Connection::Lost { for_ticks } = &mut member.connection {
                *for_ticks = for_ticks.saturating_add(1);
                if *for_ticks > grace {
                    gone.extend(member.player.take());
                }
            }
        }
        for player in gone {
            self.withdraw(player);
        }
    }

    /// As many bots as are missing, no more. A duel waits for its second player before it takes one.
    fn fill_with_bots(&mut self) {
        if self.phase != Phase::Playing {
            return;
        }
        let people = self.members.values().filter(|member| member.player.is_some()).count();
        let waited = self.deserted || self.world.tick() >= self.settings.game.grace_s * TICK_RATE;
        let least = match self.settings.mode {
            Mode::Duel if waited => 2,
            _ => 0,
        };
        let bodies = usize::from(self.settings.game.bots(self.settings.mode)).max(least);
        let wanted = bodies.saturating_sub(people);
        while self.bots.len() < wanted {
            let player = self.next_player;
            self.next_player += 1;
            let taken = |name: &&str| self.bots.values().any(|other| other == name);
            let free = BOT_NAMES.into_iter().find(|name| !taken(name));
            let name = free.unwrap_or(BOT_NAMES[usize::from(player) % BOT_NAMES.len()]);
            self.bots.insert(player, name);
            self.commands.push(Command::Enter { player, bot: true });
            self.roster_changed = true;
        }
        while self.bots.len() > wanted {
            // The weakest goes; of equals the one that came last.
            let kills = |player: u16| self.world.player(player).map_or(0, |player| player.kills);
            let weakest = self
                .bots
                .keys()
                .copied()
                .min_by_key(|&player| (kills(player), u16::MAX - player));
            let Some(player) = weakest else { break };
            self.bots.remove(&player);
            self.scored.remove(&player);
            self.commands.push(Command::Leave { player });
            self.roster_changed = true;
        }
    }

    /// The way to the end: closed to new players, over, everybody sent back.
    fn close(&mut self) {
        let rules = self.world.rules();
        let late = self.world.tick() + LAST_TICKS >= rules.time_limit;
        let close = self
            .world
            .players()
            .iter()
            .any(|player| player.kills + LAST_KILLS >= rules.frag_limit);
        if !self.closed_to_new && (late || close) {
            self.closed_to_new = true;
            self.outputs.push_back(Output::StopMatchmaking);
        }
        match self.phase {
            Phase::Playing => {
                if let Some(outcome) = self.world.outcome() {
                    self.phase = Phase::Closing {
                        ticks_left: self.settings.game.closing_s * TICK_RATE,
                    };
                    let bytes = self.match_over();
                    let lane = Lane::Reliable;
                    self.outputs.push_back(Output::SendAll { lane, bytes });
                    self.reward(outcome);
                }
            }
            Phase::Closing { ticks_left: 0 } => {
                self.phase = Phase::Closed;
                let kicks = self.members.keys().map(|&client| Output::Kick { client });
                self.outputs.extend(kicks);
            }
            Phase::Closing { ticks_left } => {
                self.phase = Phase::Closing {
                    ticks_left: ticks_left - 1,
                };
            }
            Phase::Closed => {}
        }
    }

    fn reward(&mut self, outcome: Outcome) {
        for (&client, member) in &mut self.members {
            let Some(player) = member.player.and_then(|player| self.world.player(player)) else {
                continue;
            };
            let profile = &mut member.profile;
            profile.matches = profile.matches.saturating_add(1);
            profile.kills = profile.kills.saturating_add(player.kills.into());
            profile.deaths = profile.deaths.saturating_add(player.deaths.into());
            if outcome.winner == Some(player.id) {
                profile.wins = profile.wins.saturating_add(1);
            }
            let profile = profile.clone();
            self.outputs.push_back(Output::SetProfile { client, profile });
        }
    }

    fn match_over(&mut self) -> Bytes {
        let names: BTreeMap<u16, &str> = self
            .members
            .values()
            .filter_map(|member| Some((member.player?, member.name.as_str())))
            .chain(self.bots.iter().map(|(&player, &name)| (player, name)))
            .collect();
        let draw = self.world.outcome().is_none_or(|outcome| outcome.winner.is_none());
        let ticks_left = match self.phase {
            Phase::Closing { ticks_left } => ticks_left,
            _ => 0,
        };
        let ranking = self.world.standings().into_iter().map(|standing| {
            let name = names.get(&standing.player).copied().unwrap_or_default();
            (standing, name)
        });
        self.encoder.match_over(ranking, draw, ticks_left * 1_000 / TICK_RATE)
    }
}
