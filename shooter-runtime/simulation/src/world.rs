//! The match: who is in it, what flies, what the score is; and the one function that moves it all by a tick.

use crate::body::Body;
use crate::bot::{Bot, View};
use crate::bytes::{Broken, Reader, Writer, checksum};
use crate::collision::strike;
use crate::command::{Command, Input};
use crate::crowd::Crowd;
use crate::entity::{Event, Outcome, Player, Projectile, Standing};
use crate::fixed::{ONE, direction, scale, square};
use crate::map::{Map, Point};
use crate::navigation::Navigation;
use crate::random::Random;
use crate::rules::*;

/// First byte of a snapshot; another layout gets another number.
const FORMAT: u8 = 1;

#[derive(Debug, Clone)]
pub struct World {
    seed: u32,
    mode: Mode,
    rules: Rules,
    tick: u32,
    over: bool,
    random: Random,
    /// By id.
    players: Vec<Player>,
    /// One per player that is a bot, in the same order.
    bots: Vec<Bot>,
    /// In the order in which they were fired.
    projectiles: Vec<Projectile>,
    next_projectile: u16,

    // From here on: made from the above, or the last tick's output.
    map: Map,
    navigation: Navigation,
    crowd: Crowd,
    events: Vec<Event>,
}

impl World {
    pub fn new(seed: u32, mode: Mode, rules: Rules) -> Self {
        let map = Map::new(seed, mode);
        Self {
            seed,
            mode,
            rules,
            tick: 0,
            over: false,
            random: Random::new(seed, 2),
            players: Vec::new(),
            bots: Vec::new(),
            projectiles: Vec::new(),
            next_projectile: 0,
            navigation: Navigation::new(&map),
            crowd: Crowd::new(map.width(), map.height()),
            events: Vec::new(),
            map,
        }
    }

    pub fn seed(&self) -> u32 {
        self.seed
    }

    pub fn mode(&self) -> Mode {
        self.mode
    }

    pub fn rules(&self) -> Rules {
        self.rules
    }

    /// Ticks done.
    pub fn tick(&self) -> u32 {
        self.tick
    }

    pub fn map(&self) -> &Map {
        &self.map
    }

    /// Everybody, by id.
    pub fn players(&self) -> &[Player] {
        &self.players
    }

    pub fn player(&self, id: u16) -> Option<&Player> {
        self.place_of(id).ok().map(|place| &self.players[place])
    }

    pub fn projectiles(&self) -> &[Projectile] {
        &self.projectiles
    }

    /// What happened in the last tick.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Best first.
    pub fn standings(&self) -> Vec<Standing> {
        let mut standings: Vec<_> = self
            .players
            .iter()
            .map(|player| Standing {
                player: player.id,
                bot: player.bot,
                kills: player.kills,
                deaths: player.deaths,
            })
            .collect();
        standings.sort_by_key(|standing| (std::cmp::Reverse(standing.kills), standing.deaths, standing.player));
        standings
    }

    /// `None` while the match goes on.
    pub fn outcome(&self) -> Option<Outcome> {
        let standings = self.standings();
        let equal = |a: &Standing, b: &Standing| (a.kills, a.deaths) == (b.kills, b.deaths);
        let winner = match standings.as_slice() {
            [first, second, ..] if equal(first, second) => None,
            [first, ..] => Some(first.player),
            [] => None,
        };
        self.over.then_some(Outcome { winner })
    }

    /// One tick. The order of `commands` does not matter.
    pub fn step(&mut self, commands: &[Command]) {
        self.tick += 1;
        self.events.clear();
        let commands = Command::in_order(commands);
        for command in &commands {
            match *command {
                Command::Leave { player } => self.leave(player),
                Command::Enter { player, bot } => self.enter(player, bot),
                Command::Input { .. } => {}
            }
        }
        if self.over {
            return;
        }
        self.wake();
        self.gather();
        let decisions = self.think();
        for command in &commands {
            if let Command::Input { player, input } = command {
                self.obey(*player, input, false);
            }
        }
        for (player, input) in &decisions {
            self.obey(*player, input, true);
        }
        self.gather();
        self.fly();
        self.judge();
    }

    fn place_of(&self, id: u16) -> Result<usize, usize> {
        self.players.binary_search_by_key(&id, |player| player.id)
    }

    fn leave(&mut self, id: u16) {
        if let Ok(place) = self.place_of(id) {
            self.players.remove(place);
            self.bots.retain(|bot| bot.player != id);
        }
    }

    fn enter(&mut self, id: u16, bot: bool) {
        let Err(place) = self.place_of(id) else {
            return;
        };
        if bot {
            let place = self.bots.partition_point(|other| other.player < id);
            let mind = Bot::new(id, self.random.next(), self.tick);
            self.bots.insert(place, mind);
        }
        let player = Player {
            id,
            bot,
            body: Body::default(),
            step_x: 0,
            step_y: 0,
            health: 0,
            // Alive in this very tick, once the timers have run.
            respawn_in: 1,
            protection: 0,
            cooldown: 0,
            kills: 0,
            deaths: 0,
            acknowledged: 0,
            inputs_this_tick: 0,
        };
        self.players.insert(place, player);
    }

    /// Timers run, and the dead whose time has come return.
    fn wake(&mut self) {
        for place in 0..self.players.len() {
            let player = &mut self.players[place];
            player.inputs_this_tick = 0;
            (player.step_x, player.step_y) = (0, 0);
            player.cooldown = player.cooldown.saturating_sub(1);
            player.protection = player.protection.saturating_sub(1);
            if player.respawn_in > 1 {
                player.respawn_in -= 1;
            } else if player.respawn_in == 1 {
                let spawn = self.safest_spawn();
                let player = &mut self.players[place];
                player.respawn_in = 0;
                player.health = HEALTH_MAX;
                player.protection = PROTECTION_TICKS;
                player.cooldown = 0;
                (player.body.x, player.body.y) = (spawn.x, spawn.y);
                self.events.push(Event::Spawn {
                    player: player.id,
                    x: spawn.x,
                    y: spawn.y,
                });
            }
        }
    }

    /// One of the three places that are farthest from everybody alive; being seen there counts as being near.
    fn safest_spawn(&mut self) -> Point {
        let mut scored: Vec<(i64, Point)> = Vec::with_capacity(self.map.spawns().len());
        for &spawn in self.map.spawns() {
            let nearest = self
                .players
                .iter()
                .filter(|player| player.alive())
                .map(|player| (square(player.body.x - spawn.x, player.body.y - spawn.y), player.body))
                .min_by_key(|&(distance, _)| distance);
            let score = match nearest {
                None => i64::MAX,
                Some((distance, body)) if self.map.sees(spawn.x, spawn.y, body.x, body.y) => distance / 4,
                Some((distance, _)) => distance,
            };
            scored.push((score, spawn));
        }
        // Stable: equally good places stay in the map's order.
        scored.sort_by_key(|&(score, _)| std::cmp::Reverse(score));
        let choice = if scored.first().is_some_and(|best| best.0 == i64::MAX) {
            self.random.below(scored.len() as u32)
        } else {
            self.random.below(scored.len().min(3) as u32)
        };
        scored[choice as usize].1
    }

    fn gather(&mut self) {
        let places = self
            .players
            .iter()
            .map(|player| player.alive().then_some((player.body.x, player.body.y)));
        self.crowd.rebuild(places);
    }

    /// What the bots want, from the world as everybody sees it.
    fn think(&mut self) -> Vec<(u16, Input)> {
        let view = View {
            tick: self.tick,
            map: &self.map,
            navigation: &self.navigation,
            crowd: &self.crowd,
            players: &self.players,
        };
        self.bots
            .iter_mut()
            .filter_map(|bot| {
                let place = self
                    .players
                    .binary_search_by_key(&bot.player, |player| player.id)
                    .ok()?;
                Some((bot.player, bot.think(&view, &self.players[place])))
            })
            .collect()
    }

    /// One input: a step of movement, a look, perhaps a shot.
    fn obey(&mut self, id: u16, input: &Input, from_bot: bool) {
        let Ok(place) = self.place_of(id) else {
            return;
        };
        let player = &mut self.players[place];
        let fresh = input.sequence > player.acknowledged && player.inputs_this_tick < INPUTS_PER_TICK_MAX;
        if player.bot != from_bot || !fresh {
            return;
        }
        player.acknowledged = input.sequence;
        player.inputs_this_tick += 1;
        if !player.alive() {
            return;
        }
        let before = player.body;
        player.body = before.predict(input, &self.map);
        player.step_x += player.body.x - before.x;
        player.step_y += player.body.y - before.y;
        if input.fire && player.cooldown == 0 {
            player.cooldown = COOLDOWN_TICKS;
            player.protection = 0;
            let Body { x, y, aim } = player.body;
            let projectile = self.next_projectile;
            self.next_projectile = projectile.wrapping_add(1);
            self.projectiles.push(Projectile {
                id: projectile,
                owner: id,
                x,
                y,
                aim,
                ticks_left: PROJECTILE_TICKS,
            });
            self.events.push(Event::Shot {
                player: id,
                projectile,
                x,
                y,
                aim,
            });
        }
    }

    /// Every projectile goes on; the first thing on its way, wall or player, ends it.
    fn fly(&mut self) {
        let mut projectiles = std::mem::take(&mut self.projectiles);
        projectiles.retain_mut(|projectile| self.advance(projectile));
        self.projectiles = projectiles;
    }

    /// Whether it flies on.
    fn advance(&mut self, projectile: &mut Projectile) -> bool {
        let (cos, sin) = direction(projectile.aim);
        let way = (scale(PROJECTILE_SPEED, cos), scale(PROJECTILE_SPEED, sin));
        let start = (projectile.x, projectile.y);
        let end = (start.0 + way.0, start.1 + way.1);
        let wall = self.map.ray(start.0, start.1, end.0, end.1);
        let reach = PLAYER_RADIUS + PROJECTILE_RADIUS;
        let victim = self
            .crowd
            .near(
                start.0.min(end.0) - reach,
                start.1.min(end.1) - reach,
                start.0.max(end.0) + reach,
                start.1.max(end.1) + reach,
            )
            .filter_map(|place| {
                let player = &self.players[usize::from(place)];
                if player.id == projectile.owner || !player.alive() {
                    return None;
                }
                let share = strike(start, way, (player.body.x, player.body.y), reach)?;
                Some((share, place))
            })
            .min()
            .filter(|&(share, _)| share < wall);
        let at = |share: i32| (start.0 + scale(way.0, share), start.1 + scale(way.1, share));
        if let Some((share, place)) = victim {
            self.hit(usize::from(place), projectile.owner, at(share));
            return false;
        }
        (projectile.x, projectile.y) = at(wall);
        if wall < ONE {
            self.events.push(Event::Spark {
                player: projectile.owner,
                x: projectile.x,
                y: projectile.y,
            });
            return false;
        }
        projectile.ticks_left -= 1;
        projectile.ticks_left > 0
    }

    fn hit(&mut self, place: usize, shooter: u16, (x, y): (i32, i32)) {
        let victim = &mut self.players[place];
        let damage = if victim.protection > 0 {
            0
        } else {
            PROJECTILE_DAMAGE.min(victim.health)
        };
        victim.health -= damage;
        let victim_id = victim.id;
        self.events.push(Event::Hit {
            player: shooter,
            victim: victim_id,
            x,
            y,
            damage,
        });
        if victim.health > 0 {
            return;
        }
        victim.respawn_in = RESPAWN_TICKS;
        victim.deaths = victim.deaths.saturating_add(1);
        let Body { x, y, .. } = victim.body;
        if let Ok(place) = self.place_of(shooter) {
            let shooter = &mut self.players[place];
            shooter.kills = shooter.kills.saturating_add(1);
        }
        self.events.push(Event::Kill {
            player: shooter,
            victim: victim_id,
            x,
            y,
        });
    }

    fn judge(&mut self) {
        let Rules { frag_limit, time_limit } = self.rules;
        let reached = frag_limit > 0 && self.players.iter().any(|player| player.kills >= frag_limit);
        let late = time_limit > 0 && self.tick >= time_limit;
        if reached || late {
            self.over = true;
            self.projectiles.clear();
        }
    }

    /// A number that differs when anything differs.
    pub fn checksum(&self) -> u64 {
        checksum(&self.snapshot())
    }

    /// The whole state.
    pub fn snapshot(&self) -> Vec<u8> {
        let mut to = Writer::default();
        to.u8(FORMAT);
        to.u32(self.seed);
        to.u8(self.mode.number());
        to.u16(self.rules.frag_limit);
        to.u32(self.rules.time_limit);
        to.u32(self.tick);
        to.flag(self.over);
        to.u64(self.random.0);
        to.u16(self.next_projectile);
        to.u32(self.players.len() as u32);
        for player in &self.players {
            player.write(&mut to);
        }
        for bot in &self.bots {
            bot.write(&mut to);
        }
        to.u32(self.projectiles.len() as u32);
        for projectile in &self.projectiles {
            projectile.write(&mut to);
        }
        to.0
    }

    /// The world a snapshot was taken of. It goes on exactly as that one.
    pub fn restore(bytes: &[u8]) -> Result<Self, Broken> {
        let mut from = Reader(bytes);
        if from.u8()? != FORMAT {
            return Err(Broken);
        }
        let seed = from.u32()?;
        let mode = Mode::from_number(from.u8()?).ok_or(Broken)?;
        let rules = Rules {
            frag_limit: from.u16()?,
            time_limit: from.u32()?,
        };
        let mut world = Self::new(seed, mode, rules);
        world.tick = from.u32()?;
        world.over = from.flag()?;
        world.random = Random(from.u64()?);
        world.next_projectile = from.u16()?;
        for _ in 0..from.u32()? {
            world.players.push(Player::read(&mut from)?);
        }
        for id in world.players.iter().filter(|player| player.bot).map(|player| player.id) {
            world.bots.push(Bot::read(id, &mut from)?);
        }
        for _ in 0..from.u32()? {
            world.projectiles.push(Projectile::read(&mut from)?);
        }
        from.end()?;
        Ok(world)
    }
}
