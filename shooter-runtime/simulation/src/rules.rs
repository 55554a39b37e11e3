//! The numbers of the game. Changing one changes every recording and needs browser and server of the same build.

/// Units of length in a pixel. A map of 4,000 pixels is a million units wide: squares fit 64 bits with room.
pub const UNITS_PER_PIXEL: i32 = 256;
/// Ticks per second.
pub const TICK_RATE: u32 = 60;

/// Units.
pub const PLAYER_RADIUS: i32 = 14 * UNITS_PER_PIXEL;
/// Units per tick: 240 pixels per second.
pub const PLAYER_SPEED: i32 = 4 * UNITS_PER_PIXEL;
pub const HEALTH_MAX: u8 = 100;

/// Units; counts against players only, walls are met by the centre.
pub const PROJECTILE_RADIUS: i32 = 4 * UNITS_PER_PIXEL;
/// Units per tick: 840 pixels per second, three and a half times a runner.
pub const PROJECTILE_SPEED: i32 = 14 * UNITS_PER_PIXEL;
/// Ticks a projectile flies: 1,050 pixels.
pub const PROJECTILE_TICKS: u8 = 75;
/// Five hits kill.
pub const PROJECTILE_DAMAGE: u8 = 20;
/// Ticks from shot to shot: six a second.
pub const COOLDOWN_TICKS: u8 = 10;

/// Ticks from death to return: two seconds.
pub const RESPAWN_TICKS: u16 = 120;
/// Ticks without harm after a return: one and a half seconds; the first shot ends it.
pub const PROTECTION_TICKS: u16 = 90;

/// Inputs of one player that count in one tick; a late packet may bring several.
pub const INPUTS_PER_TICK_MAX: u8 = 4;

/// Which map, and how many it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    Duel,
    Arena,
}

impl Mode {
    pub const ALL: [Mode; 2] = [Mode::Duel, Mode::Arena];

    pub fn name(self) -> &'static str {
        match self {
            Mode::Duel => "duel",
            Mode::Arena => "arena",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// The number on the wire and in recordings.
    pub fn number(self) -> u8 {
        match self {
            Mode::Duel => 0,
            Mode::Arena => 1,
        }
    }

    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.number() == number)
    }

    /// Size of the map in tiles.
    pub(crate) fn tiles(self) -> (i32, i32) {
        match self {
            Mode::Duel => (32, 24),
            Mode::Arena => (80, 60),
        }
    }
}

/// When a match is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Kills that win at once; 0: no limit.
    pub frag_limit: u16,
    /// Ticks after which the best wins; 0: no limit.
    pub time_limit: u32,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            frag_limit: 20,
            time_limit: 5 * 60 * TICK_RATE,
        }
    }
}
