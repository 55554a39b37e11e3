//! What may happen to the world from outside, and the one order in which it does.

/// One tick of a player's will.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Input {
    /// Grows; an input whose number is not above the last one's is ignored.
    pub sequence: u32,
    /// Direction and share of full speed: ±127 is full. Longer vectors count as full.
    pub move_x: i8,
    pub move_y: i8,
    pub aim: u16,
    pub fire: bool,
}

/// The order of the variants and of their fields is the order in which commands of one tick are carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Command {
    Leave { player: u16 },
    Enter { player: u16, bot: bool },
    Input { player: u16, input: Input },
}

impl Command {
    /// Sorted, so that the order in which packets arrived does not matter.
    pub(crate) fn in_order(commands: &[Command]) -> Vec<Command> {
        let mut commands = commands.to_vec();
        commands.sort();
        commands
    }
}
