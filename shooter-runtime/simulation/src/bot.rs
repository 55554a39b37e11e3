//! Bots: players whose inputs are made here. They see what a player would see, react late, aim imperfectly, and change their
//! minds; they have no power that an input does not give.

use crate::bytes::{Broken, Reader, Writer};
use crate::command::Input;
use crate::crowd::Crowd;
use crate::entity::Player;
use crate::fixed::{angle_of, direction, length, square, turn};
use crate::map::Map;
use crate::navigation::Navigation;
use crate::random::Random;
use crate::rules::{HEALTH_MAX, PROJECTILE_SPEED, UNITS_PER_PIXEL};

/// Ticks between two looks around; bots take turns.
const LOOK_TICKS: u32 = 6;
/// Units: as far as a screen shows.
const SIGHT: i32 = 760 * UNITS_PER_PIXEL;
/// Units: nearer than this they are heard, whatever the direction.
const EARSHOT: i32 = 260 * UNITS_PER_PIXEL;
/// Angle to either side within which a bot notices somebody.
const FIELD_OF_VIEW: u16 = 65_535 / 360 * 105;
/// Ticks a bot follows somebody it no longer sees.
const MEMORY_TICKS: u16 = 180;
/// Candidates to whom a look draws a line; the nearest ones.
const CANDIDATES: usize = 3;
/// Units: the distance a bot likes to fight at.
const COMFORT: (i32, i32) = (220 * UNITS_PER_PIXEL, 380 * UNITS_PER_PIXEL);

/// Health below which a bot keeps more distance.
const TIMID: u8 = HEALTH_MAX / 3;

/// How good a bot is.
struct Skill {
    /// Ticks from seeing to shooting.
    reaction: u16,
    /// Largest error of its aim.
    error: i32,
    /// Largest turn of its aim in a tick.
    turn: i32,
    /// Percent of the lead that a moving target needs.
    lead: (i32, i32),
    /// Percent of looks after which it holds its fire for a while.
    hesitation: u32,
}

const SKILLS: [Skill; 3] = [
    Skill {
        reaction: 30,
        error: 1_700,
        turn: 700,
        lead: (0, 90),
        hesitation: 22,
    },
    Skill {
        reaction: 22,
        error: 1_100,
        turn: 1_100,
        lead: (40, 110),
        hesitation: 12,
    },
    Skill {
        reaction: 15,
        error: 650,
        turn: 1_700,
        lead: (75, 105),
        hesitation: 6,
    },
];

/// What a bot may look at.
pub(crate) struct View<'a> {
    pub(crate) tick: u32,
    pub(crate) map: &'a Map,
    pub(crate) navigation: &'a Navigation,
    pub(crate) crowd: &'a Crowd,
    pub(crate) players: &'a [Player],
}

impl View<'_> {
    fn player(&self, id: u16) -> Option<&Player> {
        let place = self.players.binary_search_by_key(&id, |player| player.id).ok()?;
        Some(&self.players[place])
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bot {
    pub(crate) player: u16,
    skill: u8,
    random: Random,
    sequence: u32,
    /// Where it wanders, or hunts.
    goal: u8,
    target: Option<Target>,
    /// Error of the aim, renewed with every look.
    error: i32,
    /// Percent of the needed lead it will give.
    lead: i32,
    /// −1, 0 or 1: which way round the enemy.
    strafe: i8,
    strafe_ticks: u8,
    /// Ticks without shooting.
    hold: u8,
    /// Ticks for which it looks behind itself too.
    alarm: u8,
    health: u8,
    /// Ticks without getting anywhere.
    stuck: u8,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Target {
    player: u16,
    /// Ticks since it came into sight.
    known: u16,
    /// Ticks since it was seen last; 0 while in sight.
    unseen: u16,
    x: i32,
    y: i32,
}

impl Bot {
    pub(crate) fn new(player: u16, seed: u64, tick: u32) -> Self {
        let mut random = Random(seed ^ u64::from(tick));
        Self {
            player,
            skill: random.below(SKILLS.len() as u32) as u8,
            goal: random.below(u32::from(u8::MAX)) as u8,
            random,
            sequence: 0,
            target: None,
            error: 0,
            lead: 0,
            strafe: 1,
            strafe_ticks: 0,
            hold: 0,
            alarm: 0,
            health: HEALTH_MAX,
            stuck: 0,
        }
    }

    /// The bot's input for this tick.
    pub(crate) fn think(&mut self, view: &View<'_>, me: &Player) -> Input {
        self.sequence += 1;
        if !me.alive() {
            self.target = None;
            self.health = HEALTH_MAX;
            return self.input(me.body.aim, (0, 0), false);
        }
        if me.health < self.health {
            self.alarm = 60;
        }
        self.health = me.health;
        self.alarm = self.alarm.saturating_sub(1);
        self.hold = self.hold.saturating_sub(1);
        if (view.tick + u32::from(self.player)).is_multiple_of(LOOK_TICKS) {
            self.look(view, me);
        }
        if let Some(target) = &mut self.target {
            target.known = target.known.saturating_add(1);
        }
        match self.target.clone() {
            Some(target) if target.unseen == 0 => self.fight(view, me, &target),
            _ => self.wander(view, me),
        }
    }

    fn skill(&self) -> &'static Skill {
        &SKILLS[usize::from(self.skill) % SKILLS.len()]
    }

    fn input(&self, aim: u16, (x, y): (i32, i32), fire: bool) -> Input {
        let length = length(x, y).max(1);
        Input {
            sequence: self.sequence,
            move_x: (x * 127 / length).clamp(-127, 127) as i8,
            move_y: (y * 127 / length).clamp(-127, 127) as i8,
            aim,
            fire,
        }
    }

    /// Looks around: whom to fight, how well to aim, whether to hold fire.
    fn look(&mut self, view: &View<'_>, me: &Player) {
        let skill = self.skill();
        self.error = self.random.between(-skill.error, skill.error);
        self.lead = self.random.between(skill.lead.0, skill.lead.1);
        if self.random.percent(skill.hesitation) {
            self.hold = self.random.between(10, 30) as u8;
        }
        match (self.visible(view, me), &mut self.target) {
            (Some(seen), Some(target)) if target.player == seen.id => {
                target.unseen = 0;
                (target.x, target.y) = (seen.body.x, seen.body.y);
            }
            (Some(seen), target) => {
                *target = Some(Target {
                    player: seen.id,
                    known: 0,
                    unseen: 0,
                    x: seen.body.x,
                    y: seen.body.y,
                });
            }
            (None, Some(target)) => {
                if target.unseen == 0 {
                    // Goes after it; being surprised again takes less time than the first time.
                    self.goal = view.navigation.nearest_goal(target.x, target.y);
                    target.known = 0;
                }
                target.unseen += LOOK_TICKS as u16;
                if target.unseen > MEMORY_TICKS {
                    self.target = None;
                }
            }
            (None, None) => {}
        }
    }

    /// The nearest enemy that can be seen; the present one is kept unless another is much nearer.
    fn visible<'a>(&self, view: &View<'a>, me: &Player) -> Option<&'a Player> {
        let (x, y) = (me.body.x, me.body.y);
        let mut nearest: [Option<(i64, u16)>; CANDIDATES] = [None; CANDIDATES];
        let present = self.target.as_ref().map(|target| target.player);
        for place in view.crowd.near(x - SIGHT, y - SIGHT, x + SIGHT, y + SIGHT) {
            let other = &view.players[usize::from(place)];
            let mut distance = square(other.body.x - x, other.body.y - y);
            if other.id == me.id || !other.alive() || distance > i64::from(SIGHT) * i64::from(SIGHT) {
                continue;
            }
            if present == Some(other.id) {
                distance /= 4;
            }
            // Insertion into the short list, nearest first; `None` is farther than anybody.
            let mut candidate = Some((distance, place));
            for slot in &mut nearest {
                if slot.is_none_or(|held| candidate.is_some_and(|new| new < held)) {
                    std::mem::swap(slot, &mut candidate);
                }
                if candidate.is_none() {
                    break;
                }
            }
        }
        nearest
            .into_iter()
            .flatten()
            .map(|(_, place)| &view.players[usize::from(place)])
            .find(|other| self.notices(view, me, other))
    }

    fn notices(&self, view: &View<'_>, me: &Player, other: &Player) -> bool {
        let (x, y) = (other.body.x - me.body.x, other.body.y - me.body.y);
        let heard = square(x, y) < i64::from(EARSHOT) * i64::from(EARSHOT);
        let known = self.target.as_ref().is_some_and(|target| target.player == other.id);
        let ahead = turn(me.body.aim, angle_of(x, y)).unsigned_abs() < FIELD_OF_VIEW;
        (heard || known || ahead || self.alarm > 0) && view.map.sees(me.body.x, me.body.y, other.body.x, other.body.y)
    }

    /// An enemy in sight: circle it at a comfortable distance, aim ahead of it, shoot.
    fn fight(&mut self, view: &View<'_>, me: &Player, target: &Target) -> Input {
        let Some(enemy) = view.player(target.player).filter(|enemy| enemy.alive()) else {
            self.target = None;
            self.pick_goal(view);
            return self.wander(view, me);
        };
        let (x, y) = (enemy.body.x - me.body.x, enemy.body.y - me.body.y);
        let distance = length(x, y).max(1);
        let flight = distance / PROJECTILE_SPEED;
        let ahead = |step: i32| step * flight * self.lead / 100;
        let wanted = angle_of(x + ahead(enemy.step_x), y + ahead(enemy.step_y)).wrapping_add(self.error as i16 as u16);
        let aim = self.turned(me.body.aim, wanted);
        let skill = self.skill();
        let on_target = i32::from(turn(aim, wanted)).abs() < 900;
        let fire = target.known >= skill.reaction && self.hold == 0 && on_target && enemy.protection == 0;

        if self.strafe_ticks == 0 || (self.stalled(me) && self.stuck > 8) {
            self.strafe = [-1, -1, 0, 1, 1][self.random.below(5) as usize];
            self.strafe_ticks = self.random.between(20, 70) as u8;
            self.stuck = 0;
        }
        self.strafe_ticks = self.strafe_ticks.saturating_sub(1);
        let too_near = if me.health < TIMID { COMFORT.1 } else { COMFORT.0 };
        let approach = if distance < too_near {
            -100
        } else if distance > COMFORT.1 {
            100
        } else {
            0
        };
        // Parts of a hundred, along the line to the enemy and across it.
        let across = i32::from(self.strafe) * 100;
        let (x, y) = (x / (distance / 128).max(1), y / (distance / 128).max(1));
        let way = (x * approach - y * across, y * approach + x * across);
        self.input(aim, way, fire)
    }

    /// Nobody in sight: go to the goal, looking where it goes.
    fn wander(&mut self, view: &View<'_>, me: &Player) -> Input {
        let (x, y) = (me.body.x, me.body.y);
        let arrived = view.navigation.distance(self.goal, x, y).is_none_or(|tiles| tiles <= 1);
        if arrived || (self.stalled(me) && self.stuck > 20) {
            self.stuck = 0;
            self.pick_goal(view);
        }
        let Some((next_x, next_y)) = view.navigation.next(self.goal, x, y) else {
            return self.input(me.body.aim, (0, 0), false);
        };
        let way = (next_x - x, next_y - y);
        // The head swings a little to both sides.
        let (_, swing) = direction(((view.tick + u32::from(self.player) * 37) * 400) as u16);
        let wanted = angle_of(way.0, way.1).wrapping_add((swing / 12) as i16 as u16);
        let aim = self.turned(me.body.aim, wanted);
        self.input(aim, way, false)
    }

    /// Counts the ticks in which it did not move.
    fn stalled(&mut self, me: &Player) -> bool {
        let still = me.step_x == 0 && me.step_y == 0;
        self.stuck = if still { self.stuck.saturating_add(1) } else { 0 };
        still
    }

    fn pick_goal(&mut self, view: &View<'_>) {
        self.goal = self.random.below(u32::from(view.navigation.goals())) as u8;
    }

    /// The aim on its way to where it should be: fast when far off, slower near the end.
    fn turned(&self, from: u16, to: u16) -> u16 {
        let way = i32::from(turn(from, to));
        let most = self.skill().turn;
        let step = (way / 3).clamp(-most, most);
        let step = if step == 0 { way.signum() } else { step };
        from.wrapping_add(step as i16 as u16)
    }

    pub(crate) fn write(&self, to: &mut Writer) {
        to.u8(self.skill);
        to.u64(self.random.0);
        to.u32(self.sequence);
        to.u8(self.goal);
        to.flag(self.target.is_some());
        if let Some(target) = &self.target {
            to.u16(target.player);
            to.u16(target.known);
            to.u16(target.unseen);
            to.i32(target.x);
            to.i32(target.y);
        }
        to.i32(self.error);
        to.i32(self.lead);
        to.i8(self.strafe);
        to.u8(self.strafe_ticks);
        to.u8(self.hold);
        to.u8(self.alarm);
        to.u8(self.health);
        to.u8(self.stuck);
    }

    pub(crate) fn read(player: u16, from: &mut Reader<'_>) -> Result<Self, Broken> {
        Ok(Self {
            player,
            skill: from.u8()?,
            random: Random(from.u64()?),
            sequence: from.u32()?,
            goal: from.u8()?,
            target: match from.flag()? {
                false => None,
                true => Some(Target {
                    player: from.u16()?,
                    known: from.u16()?,
                    unseen: from.u16()?,
                    x: from.i32()?,
                    y: from.i32()?,
                }),
            },
            error: from.i32()?,
            lead: from.i32()?,
            strafe: from.i8()?,
            strafe_ticks: from.u8()?,
            hold: from.u8()?,
            alarm: from.u8()?,
            health: from.u8()?,
            stuck: from.u8()?,
        })
    }
}
