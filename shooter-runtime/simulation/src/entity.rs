//! What the world is made of: players, projectiles, what happens to them, and how they are written down.

use crate::body::Body;
use crate::bytes::{Broken, Reader, Writer};

/// Somebody in the match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Player {
    pub id: u16,
    pub bot: bool,
    pub body: Body,
    /// Units moved in the last tick.
    pub step_x: i32,
    pub step_y: i32,
    pub health: u8,
    /// Ticks until the next life; 0 while alive.
    pub respawn_in: u16,
    /// Ticks without harm.
    pub protection: u16,
    /// Ticks until the weapon fires again.
    pub cooldown: u8,
    pub kills: u16,
    pub deaths: u16,
    /// The last input that counted.
    pub acknowledged: u32,
    pub(crate) inputs_this_tick: u8,
}

impl Player {
    pub fn alive(&self) -> bool {
        self.respawn_in == 0
    }
}

/// Something that flies straight on until it meets something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Projectile {
    pub id: u16,
    pub owner: u16,
    pub x: i32,
    pub y: i32,
    pub aim: u16,
    pub(crate) ticks_left: u8,
}

/// What happened in a tick, for eyes and ears. No state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Spawn {
        player: u16,
        x: i32,
        y: i32,
    },
    Shot {
        player: u16,
        projectile: u16,
        x: i32,
        y: i32,
        aim: u16,
    },
    Spark {
        player: u16,
        x: i32,
        y: i32,
    },
    Hit {
        player: u16,
        victim: u16,
        x: i32,
        y: i32,
        damage: u8,
    },
    Kill {
        player: u16,
        victim: u16,
        x: i32,
        y: i32,
    },
}

/// A line of the score.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    pub player: u16,
    pub bot: bool,
    pub kills: u16,
    pub deaths: u16,
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Nobody when the best two are equal.
    pub winner: Option<u16>,
}

impl Player {
    pub(crate) fn write(&self, to: &mut Writer) {
        to.u16(self.id);
        to.flag(self.bot);
        to.i32(self.body.x);
        to.i32(self.body.y);
        to.u16(self.body.aim);
        to.i32(self.step_x);
        to.i32(self.step_y);
        to.u8(self.health);
        to.u16(self.respawn_in);
        to.u16(self.protection);
        to.u8(self.cooldown);
        to.u16(self.kills);
        to.u16(self.deaths);
        to.u32(self.acknowledged);
        to.u8(self.inputs_this_tick);
    }

    pub(crate) fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        Ok(Self {
            id: from.u16()?,
            bot: from.flag()?,
            body: Body {
                x: from.i32()?,
                y: from.i32()?,
                aim: from.u16()?,
            },
            step_x: from.i32()?,
            step_y: from.i32()?,
            health: from.u8()?,
            respawn_in: from.u16()?,
            protection: from.u16()?,
            cooldown: from.u8()?,
            kills: from.u16()?,
            deaths: from.u16()?,
            acknowledged: from.u32()?,
            inputs_this_tick: from.u8()?,
        })
    }
}

impl Projectile {
    pub(crate) fn write(&self, to: &mut Writer) {
        to.u16(self.id);
        to.u16(self.owner);
        to.i32(self.x);
        to.i32(self.y);
        to.u16(self.aim);
        to.u8(self.ticks_left);
    }

    pub(crate) fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        Ok(Self {
            id: from.u16()?,
            owner: from.u16()?,
            x: from.i32()?,
            y: from.i32()?,
            aim: from.u16()?,
            ticks_left: from.u8()?,
        })
    }
}
