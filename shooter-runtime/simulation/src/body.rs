//! A player's body and its movement: the part of the simulation that browsers run ahead of the server.

use crate::command::Input;
use crate::fixed::length;
use crate::map::Map;
use crate::rules::PLAYER_SPEED;

/// Where a player stands and looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Body {
    pub x: i32,
    pub y: i32,
    pub aim: u16,
}

impl Body {
    /// The body after one input. The server's step and the browser's prediction are both this function.
    #[must_use]
    pub fn predict(self, input: &Input, map: &Map) -> Self {
        let (step_x, step_y) = step_of(input);
        let (x, y) = map.slide(self.x, self.y, step_x, step_y);
        Self { x, y, aim: input.aim }
    }
}

/// Units that an input asks to go in its tick. No direction is faster than another.
fn step_of(input: &Input) -> (i32, i32) {
    let (x, y) = (i32::from(input.move_x), i32::from(input.move_y));
    let full = i32::from(i8::MAX);
    let length = length(x, y);
    // One more than the rounded-down length, so that a diagonal is never too fast.
    let divisor = if length >= full && (x == 0 || y == 0) {
        length
    } else if length >= full {
        length + 1
    } else {
        full
    };
    (x * PLAYER_SPEED / divisor, y * PLAYER_SPEED / divisor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixed::square;

    #[test]
    fn no_input_moves_faster_than_full_speed_and_full_inputs_reach_it() {
        for move_x in i8::MIN..=i8::MAX {
            for move_y in i8::MIN..=i8::MAX {
                let input = Input {
                    move_x,
                    move_y,
                    ..Input::default()
                };
                let (x, y) = step_of(&input);
                let speed = i64::from(PLAYER_SPEED);
                assert!(square(x, y) <= speed * speed, "{move_x}, {move_y} moves {x}, {y}");
                if move_x.unsigned_abs().max(move_y.unsigned_abs()) >= 127 {
                    let slowest = speed * 98 / 100;
                    assert!(
                        square(x, y) >= slowest * slowest,
                        "{move_x}, {move_y} moves only {x}, {y}"
                    );
                }
            }
        }
    }
}
