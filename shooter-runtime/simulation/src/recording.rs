//! A match on paper: seed, rules, every command, and now and then the checksum that the world must have there.
//!
//! Layout: header; then per tick the number of commands and the commands; an input that continues the player's last one
//! takes a byte or two. A checksum follows every 60th tick and the last one. Short numbers throughout (`bytes`).

use std::collections::BTreeMap;

use crate::bytes::{Broken, Reader, Writer};
use crate::command::{Command, Input};
use crate::rules::{Mode, Rules};
use crate::world::World;

const MAGIC: &[u8; 4] = b"OMGR";
const FORMAT: u8 = 1;
/// Ticks from checksum to checksum.
const CHECK_EVERY: u32 = 60;

/// Writes down what happens to a world.
#[derive(Debug, Clone)]
pub struct Recorder {
    bytes: Writer,
    ticks: u32,
    last: BTreeMap<u16, Input>,
}

/// What was written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recording {
    pub seed: u32,
    pub mode: Mode,
    pub rules: Rules,
    ticks: Vec<Tick>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Tick {
    commands: Vec<Command>,
    checksum: Option<u64>,
}

/// Why a recording did not play.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayError {
    /// The world went another way, at this tick or in the second before it.
    Diverged { tick: u32, recorded: u64, found: u64 },
}

impl std::fmt::Display for ReplayError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self::Diverged { tick, recorded, found } = self;
        write!(
            f,
            "at tick `{tick}` the checksum is `{found:016x}`, recorded was `{recorded:016x}`"
        )
    }
}

impl std::error::Error for ReplayError {}

impl Recorder {
    /// For a world that has not stepped yet.
    pub fn new(world: &World) -> Self {
        let mut bytes = Writer::default();
        bytes.0.extend_from_slice(MAGIC);
        bytes.u8(FORMAT);
        bytes.u32(world.seed());
        bytes.u8(world.mode().number());
        bytes.u16(world.rules().frag_limit);
        bytes.u32(world.rules().time_limit);
        Self {
            bytes,
            ticks: 0,
            last: BTreeMap::new(),
        }
    }

    /// After each step: what the world was told, and the world.
    pub fn note(&mut self, commands: &[Command], world: &World) {
        self.ticks += 1;
        let commands = Command::in_order(commands);
        self.bytes.short(commands.len() as u32);
        for command in &commands {
            self.write(command);
        }
        if self.ticks.is_multiple_of(CHECK_EVERY) {
            self.bytes.u64(world.checksum());
        }
    }

    /// The bytes of the recording; `world` is as it was at the last note.
    pub fn finish(mut self, world: &World) -> Vec<u8> {
        if !self.ticks.is_multiple_of(CHECK_EVERY) {
            self.bytes.u64(world.checksum());
        }
        // At the end, where it can be written only now.
        self.bytes.u32(self.ticks);
        self.bytes.0
    }

    fn write(&mut self, command: &Command) {
        match *command {
            Command::Leave { player } => {
                self.bytes.u8(0);
                self.bytes.short(player.into());
                self.last.remove(&player);
            }
            Command::Enter { player, bot } => {
                self.bytes.u8(1 + u8::from(bot));
                self.bytes.short(player.into());
            }
            Command::Input { player, input } => {
                let last = self.last.insert(player, input).unwrap_or_default();
                let counts_on = input.sequence == last.sequence.wrapping_add(1);
                let same_way = (input.move_x, input.move_y) == (last.move_x, last.move_y);
                let same_aim = input.aim == last.aim;
                let flags = [true, counts_on, same_way, same_aim, input.fire];
                let flags = flags.iter().zip(3..).map(|(&flag, bit)| u8::from(flag) << bit).sum();
                self.bytes.u8(flags);
                self.bytes.short(player.into());
                if !counts_on {
                    self.bytes.short(input.sequence);
                }
                if !same_way {
                    self.bytes.i8(input.move_x);
                    self.bytes.i8(input.move_y);
                }
                if !same_aim {
                    self.bytes.u16(input.aim);
                }
            }
        }
    }
}

impl Recording {
    pub fn parse(bytes: &[u8]) -> Result<Self, Broken> {
        let (body, count) = bytes.split_last_chunk().ok_or(Broken)?;
        let count = u32::from_le_bytes(*count);
        let mut from = Reader(body.strip_prefix(MAGIC).ok_or(Broken)?);
        if from.u8()? != FORMAT {
            return Err(Broken);
        }
        let seed = from.u32()?;
        let mode = Mode::from_number(from.u8()?).ok_or(Broken)?;
        let rules = Rules {
            frag_limit: from.u16()?,
            time_limit: from.u32()?,
        };
        let mut last = BTreeMap::new();
        let mut ticks = Vec::new();
        for tick in 1..=count {
            let mut commands = Vec::new();
            for _ in 0..from.short()? {
                commands.push(read(&mut from, &mut last)?);
            }
            let checked = tick.is_multiple_of(CHECK_EVERY) || tick == count;
            let checksum = if checked { Some(from.u64()?) } else { None };
            ticks.push(Tick { commands, checksum });
        }
        from.end()?;
        Ok(Self {
            seed,
            mode,
            rules,
            ticks,
        })
    }

    /// Ticks recorded.
    pub fn len(&self) -> u32 {
        self.ticks.len() as u32
    }

    pub fn is_empty(&self) -> bool {
        self.ticks.is_empty()
    }

    /// Plays it again and compares every checksum; the world at its end.
    pub fn replay(&self) -> Result<World, ReplayError> {
        let mut world = World::new(self.seed, self.mode, self.rules);
        for tick in &self.ticks {
            world.step(&tick.commands);
            if let Some(recorded) = tick.checksum {
                let found = world.checksum();
                if found != recorded {
                    return Err(ReplayError::Diverged {
                        tick: world.tick(),
                        recorded,
                        found,
                    });
                }
            }
        }
        Ok(world)
    }
}

fn read(from: &mut Reader<'_>, last: &mut BTreeMap<u16, Input>) -> Result<Command, Broken> {
    let flags = from.u8()?;
    let player = u16::try_from(from.short()?).map_err(|_| Broken)?;
    match flags {
        0 => {
            last.remove(&player);
            Ok(Command::Leave { player })
        }
        1 | 2 => Ok(Command::Enter {
            player,
            bot: flags == 2,
        }),
        _ if flags & 0b1000 != 0 => {
            let before = last.get(&player).copied().unwrap_or_default();
            let has = |bit: u8| flags & 1 << bit != 0;
            let sequence = if has(4) {
                before.sequence.wrapping_add(1)
            } else {
                from.short()?
            };
            let (move_x, move_y) = if has(5) {
                (before.move_x, before.move_y)
            } else {
                (from.i8()?, from.i8()?)
            };
            let aim = if has(6) { before.aim } else { from.u16()? };
            let input = Input {
                sequence,
                move_x,
                move_y,
                aim,
                fire: has(7),
            };
            last.insert(player, input);
            Ok(Command::Input { player, input })
        }
        _ => Err(Broken),
    }
}
