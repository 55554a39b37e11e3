//! Ways around walls: for a few goals on the map, which way to go from every tile. Made from the map alone, so it is no state.

use std::collections::VecDeque;

use crate::map::{Map, TILE};

/// Goals that are known; more would cost memory and make bots no wiser.
const GOALS_MAX: usize = 32;
/// A tile from which the goal cannot be reached.
const NOWHERE: u16 = u16::MAX;

#[derive(Debug, Clone)]
pub(crate) struct Navigation {
    columns: i32,
    rows: i32,
    /// Per goal: tiles to go, for every tile.
    distances: Vec<Vec<u16>>,
}

impl Navigation {
    pub(crate) fn new(map: &Map) -> Self {
        let (columns, rows) = (map.width() / TILE, map.height() / TILE);
        let mut open = vec![true; (columns * rows) as usize];
        for wall in map.walls() {
            for row in wall.top / TILE..wall.bottom / TILE {
                for column in wall.left / TILE..wall.right / TILE {
                    open[(row * columns + column) as usize] = false;
                }
            }
        }
        let distances = map
            .spawns()
            .iter()
            .take(GOALS_MAX)
            .map(|goal| spread(&open, columns, rows, (goal.x / TILE, goal.y / TILE)))
            .collect();
        Self {
            columns,
            rows,
            distances,
        }
    }

    pub(crate) fn goals(&self) -> u8 {
        self.distances.len() as u8
    }

    /// Tiles from a place to a goal.
    pub(crate) fn distance(&self, goal: u8, x: i32, y: i32) -> Option<u16> {
        self.at(goal, x / TILE, y / TILE)
    }

    /// The goal with the shortest way to a place.
    pub(crate) fn nearest_goal(&self, x: i32, y: i32) -> u8 {
        let away = |&goal: &u8| self.distance(goal, x, y).unwrap_or(NOWHERE);
        (0..self.goals()).min_by_key(away).unwrap_or(0)
    }

    /// Where to head for from a place on the way to a goal: the middle of the best tile around.
    pub(crate) fn next(&self, goal: u8, x: i32, y: i32) -> Option<(i32, i32)> {
        let (column, row) = (x / TILE, y / TILE);
        let mut best = (self.at(goal, column, row)?, column, row);
        for (step_x, step_y) in NEIGHBOURS {
            let diagonal = step_x != 0 && step_y != 0;
            // Across a corner only where both tiles beside it are open.
            if diagonal
                && (self.at(goal, column + step_x, row).is_none() || self.at(goal, column, row + step_y).is_none())
            {
                continue;
            }
            if let Some(distance) = self.at(goal, column + step_x, row + step_y)
                && distance < best.0
            {
                best = (distance, column + step_x, row + step_y);
            }
        }
        Some((best.1 * TILE + TILE / 2, best.2 * TILE + TILE / 2))
    }

    fn at(&self, goal: u8, column: i32, row: i32) -> Option<u16> {
        if column < 0 || row < 0 || column >= self.columns || row >= self.rows {
            return None;
        }
        let field = self.distances.get(usize::from(goal))?;
        let distance = field[(row * self.columns + column) as usize];
        (distance != NOWHERE).then_some(distance)
    }
}

/// Straight ones first: at equal distance the shorter step wins.
const NEIGHBOURS: [(i32, i32); 8] = [(1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)];

/// Straight steps from a tile to every other.
fn spread(open: &[bool], columns: i32, rows: i32, start: (i32, i32)) -> Vec<u16> {
    let mut distances = vec![NOWHERE; open.len()];
    let mut waiting = VecDeque::from([start]);
    distances[(start.1 * columns + start.0) as usize] = 0;
    while let Some((column, row)) = waiting.pop_front() {
        let next = distances[(row * columns + column) as usize] + 1;
        for (step_x, step_y) in &NEIGHBOURS[..4] {
            let (column, row) = (column + step_x, row + step_y);
            if column < 0 || row < 0 || column >= columns || row >= rows {
                continue;
            }
            let tile = (row * columns + column) as usize;
            if open[tile] && distances[tile] == NOWHERE {
                distances[tile] = next;
                waiting.push_back((column, row));
            }
        }
    }
    distances
}
