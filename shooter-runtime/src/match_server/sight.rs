//! What each player is told of a tick: names, scores, events, and a snapshot of what is near.

use omgservers_runtime_sdk::Lane;
use shooter_simulation::{Event, Player, Standing, UNITS_PER_PIXEL};

use super::{MatchServer, Output};
use crate::packets::{self, Name, View};
use crate::wire;

/// Units around a player within which projectiles and small events are sent: more than a wide screen shows.
const SIGHT: (i32, i32) = (1_300 * UNITS_PER_PIXEL, 900 * UNITS_PER_PIXEL);
/// Others and projectiles in one snapshot; the nearest ones. Keeps it in one datagram.
const SHOWN_MAX: usize = 48;

impl MatchServer {
    pub(super) fn note_scores(&mut self) {
        let tick = self.world.tick();
        for player in self.world.players() {
            let standing = Standing {
                player: player.id,
                bot: player.bot,
                kills: player.kills,
                deaths: player.deaths,
            };
            let noted = self.scored.entry(player.id).or_insert((tick, standing));
            if noted.1 != standing {
                *noted = (tick, standing);
            }
        }
    }

    /// Hands each player the events that can be seen or concern it. Kills are everybody's business.
    pub(super) fn note_events(&mut self) {
        let tick = self.world.tick();
        for event in self.world.events() {
            let (concerned, x, y) = match *event {
                Event::Kill { x, y, .. } => (None, x, y),
                Event::Hit {
                    player, victim, x, y, ..
                } => (Some([player, victim]), x, y),
                Event::Spawn { player, x, y } | Event::Shot { player, x, y, .. } | Event::Spark { player, x, y } => {
                    (Some([player, player]), x, y)
                }
            };
            let packet = packets::event(event);
            for member in self.members.values_mut().filter(|member| member.is_connected()) {
                let Some(body) = member.player.and_then(|player| self.world.player(player)) else {
                    continue;
                };
                let is_own = concerned.is_none_or(|concerned| concerned.contains(&body.id));
                if is_own || in_sight(body, x, y) {
                    member.events.push(tick, packet);
                }
            }
        }
    }

    pub(super) fn send_roster(&mut self) {
        if !std::mem::take(&mut self.roster_changed) {
            return;
        }
        let people = self.members.values().filter_map(|member| {
            Some(Name {
                id: member.player?,
                name: &member.name,
                bot: false,
            })
        });
        let bots = self.bots.iter().map(|(&id, name)| Name { id, name, bot: true });
        let bytes = self.encoder.roster(people.chain(bots));
        self.outputs.push_back(Output::SendAll {
            lane: Lane::Reliable,
            bytes,
        });
    }

    pub(super) fn send_snapshots(&mut self) {
        let lost: Vec<u16> = self
            .members
            .values()
            .filter(|member| !member.is_connected())
            .filter_map(|member| member.player)
            .collect();
        let quantised: Vec<(&Player, wire::Player)> = self
            .world
            .players()
            .iter()
            .filter(|player| player.alive())
            .map(|player| (player, packets::player(player, lost.contains(&player.id))))
            .collect();
        let projectiles: Vec<_> = self
            .world
            .projectiles()
            .iter()
            .map(|projectile| (projectile, packets::projectile(projectile)))
            .collect();
        let (mut near, mut shots, mut events, mut scores) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (&client, member) in &self.members {
            if !member.is_connected() {
                continue;
            }
            let own = member.player.and_then(|player| self.world.player(player));
            let place = own.map_or((0, 0), |own| (own.body.x, own.body.y));
            near.clear();
            let others = quantised.iter().filter(|(player, _)| Some(player.id) != member.player);
            near.extend(others.map(|(player, packet)| (distance(place, player.body.x, player.body.y), *packet)));
            shots.clear();
            let seen = |x, y| own.is_none_or(|own| in_sight(own, x, y));
            let flying = projectiles
                .iter()
                .filter(|(projectile, _)| seen(projectile.x, projectile.y));
            shots.extend(flying.map(|(projectile, packet)| (distance(place, projectile.x, projectile.y), *packet)));
            events.clear();
            events.extend(member.events.iter());
            scores.clear();
            let changed = self.scored.values().filter(|(tick, _)| *tick > member.seen);
            scores.extend(changed.map(|(_, standing)| packets::score(standing)));
            let bytes = self.encoder.snapshot(&View {
                tick: self.world.tick(),
                acknowledged: own.map_or(0, |own| own.acknowledged),
                own,
                players: &nearest(&mut near),
                projectiles: &nearest(&mut shots),
                first_event: member.events.first(),
                events: &events,
                scores: &scores,
            });
            let lane = Lane::Unreliable;
            self.outputs.push_back(Output::Send { client, lane, bytes });
        }
    }
}

fn in_sight(player: &Player, x: i32, y: i32) -> bool {
    (player.body.x - x).abs() <= SIGHT.0 && (player.body.y - y).abs() <= SIGHT.1
}

fn distance(place: (i32, i32), x: i32, y: i32) -> i64 {
    let (x, y) = (i64::from(x - place.0), i64::from(y - place.1));
    x * x + y * y
}

/// The nearest ones, as many as a snapshot may show, in the order they came.
fn nearest<T: Copy>(candidates: &mut Vec<(i64, T)>) -> Vec<T> {
    if candidates.len() > SHOWN_MAX {
        candidates.select_nth_unstable_by_key(SHOWN_MAX, |(distance, _)| *distance);
        candidates.truncate(SHOWN_MAX);
    }
    candidates.iter().map(|(_, item)| *item).collect()
}
