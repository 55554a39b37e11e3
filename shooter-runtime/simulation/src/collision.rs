//! Walls in the way: of a body, which slides along them, and of a projectile or a glance, which ends there.

use crate::fixed::{ONE, square};
use crate::map::{Map, Wall};
use crate::rules::PLAYER_RADIUS;

/// Units; a cell of the index.
const CELL: i32 = 128 * 256;
/// Units: the longest way a body goes before walls are asked. Less than the radius, so its centre never crosses a face.
const STRIDE_MAX: i32 = PLAYER_RADIUS / 3;

/// Walls by the cells they touch.
#[derive(Debug, Clone)]
pub(crate) struct WallIndex {
    walls: Vec<Wall>,
    columns: i32,
    rows: i32,
    /// Walls of cell `n` are `entries[starts[n]..starts[n + 1]]`.
    starts: Vec<u32>,
    entries: Vec<u16>,
}

impl WallIndex {
    pub(crate) fn new(walls: Vec<Wall>, width: i32, height: i32) -> Self {
        let (columns, rows) = (width.div_euclid(CELL) + 1, height.div_euclid(CELL) + 1);
        let mut starts = vec![0];
        let mut entries = Vec::new();
        for row in 0..rows {
            for column in 0..columns {
                let (left, top) = (column * CELL, row * CELL);
                for (number, wall) in (0..).zip(&walls) {
                    if wall.left <= left + CELL && wall.right >= left && wall.top <= top + CELL && wall.bottom >= top {
                        entries.push(number);
                    }
                }
                starts.push(entries.len() as u32);
            }
        }
        Self {
            walls,
            columns,
            rows,
            starts,
            entries,
        }
    }

    pub(crate) fn walls(&self) -> &[Wall] {
        &self.walls
    }

    /// Every wall that may touch this box; some come twice.
    fn near(&self, left: i32, top: i32, right: i32, bottom: i32) -> impl Iterator<Item = &Wall> {
        let columns = (left.div_euclid(CELL)).max(0)..=(right.div_euclid(CELL)).min(self.columns - 1);
        let rows = (top.div_euclid(CELL)).max(0)..=(bottom.div_euclid(CELL)).min(self.rows - 1);
        rows.flat_map(move |row| {
            let columns = columns.clone();
            columns.flat_map(move |column| {
                let cell = (row * self.columns + column) as usize;
                self.entries[self.starts[cell] as usize..self.starts[cell + 1] as usize]
                    .iter()
                    .map(|&wall| &self.walls[usize::from(wall)])
            })
        })
    }
}

impl Wall {
    /// From the nearest point of the box to this one.
    fn away(&self, x: i32, y: i32) -> (i32, i32) {
        (x - x.clamp(self.left, self.right), y - y.clamp(self.top, self.bottom))
    }
}

impl Map {
    /// Whether a circle touches neither wall nor rim.
    pub fn is_free(&self, x: i32, y: i32, radius: i32) -> bool {
        if x < radius || y < radius || x > self.width() - radius || y > self.height() - radius {
            return false;
        }
        let reach = i64::from(radius) * i64::from(radius);
        self.index
            .near(x - radius, y - radius, x + radius, y + radius)
            .all(|wall| {
                let (away_x, away_y) = wall.away(x, y);
                square(away_x, away_y) >= reach
            })
    }

    /// Moves a player's circle, sliding along what is in its way. From a free place it ends at a free place, whatever is asked.
    pub(crate) fn slide(&self, x: i32, y: i32, way_x: i32, way_y: i32) -> (i32, i32) {
        let strides = way_x.abs().max(way_y.abs()).div_euclid(STRIDE_MAX) + 1;
        let (mut x, mut y) = (x, y);
        for stride in 0..strides {
            let part = |way: i32| {
                let (way, stride, strides) = (i64::from(way), i64::from(stride), i64::from(strides));
                (way * (stride + 1) / strides - way * stride / strides) as i32
            };
            let (part_x, part_y) = (part(way_x), part(way_y));
            let place = self
                .push_out(x + part_x, y + part_y)
                .or_else(|| self.push_out(x + part_x, y))
                .or_else(|| self.push_out(x, y + part_y));
            match place {
                Some(place) => (x, y) = place,
                None => break,
            }
        }
        (x, y)
    }

    /// The nearest free place for a circle that dipped into walls with less than its half; `None` where it is wedged.
    fn push_out(&self, x: i32, y: i32) -> Option<(i32, i32)> {
        let radius = PLAYER_RADIUS;
        let within = |x: i32, y: i32| {
            (
                x.clamp(radius, self.width() - radius),
                y.clamp(radius, self.height() - radius),
            )
        };
        let (mut x, mut y) = within(x, y);
        let reach = i64::from(radius) * i64::from(radius);
        for _ in 0..4 {
            let deepest = self
                .index
                .near(x - radius, y - radius, x + radius, y + radius)
                .map(|wall| wall.away(x, y))
                .min_by_key(|&(away_x, away_y)| square(away_x, away_y))
                .filter(|&(away_x, away_y)| square(away_x, away_y) < reach);
            let Some((away_x, away_y)) = deepest else {
                return Some((x, y));
            };
            let depth = square(away_x, away_y).unsigned_abs().isqrt() as i64;
            if depth == 0 {
                return None;
            }
            // Rounded away from the wall, so that the circle really is outside.
            let outwards = |away: i32| {
                let way = (i64::from(away.abs()) * i64::from(radius) + depth - 1) / depth;
                way as i32 * away.signum()
            };
            (x, y) = within(x - away_x + outwards(away_x), y - away_y + outwards(away_y));
        }
        self.is_free(x, y, radius).then_some((x, y))
    }

    /// The share of the way from one point to another, in 65,536ths, that is free of walls.
    pub fn ray(&self, x0: i32, y0: i32, x1: i32, y1: i32) -> i32 {
        let (way_x, way_y) = (i64::from(x1) - i64::from(x0), i64::from(y1) - i64::from(y0));
        let pieces = (way_x.abs().max(way_y.abs()) / i64::from(CELL) + 1) as i32;
        let mut nearest = self.rim(x0, y0, way_x, way_y);
        for piece in 0..pieces {
            let at = |start: i32, way: i64, piece: i32| {
                (i64::from(start) + way * i64::from(piece) / i64::from(pieces)) as i32
            };
            let (from_x, to_x) = (at(x0, way_x, piece), at(x0, way_x, piece + 1));
            let (from_y, to_y) = (at(y0, way_y, piece), at(y0, way_y, piece + 1));
            // One unit more on each side, for what rounding took.
            let walls = self.index.near(
                from_x.min(to_x) - 1,
                from_y.min(to_y) - 1,
                from_x.max(to_x) + 1,
                from_y.max(to_y) + 1,
            );
            for wall in walls {
                if let Some(share) = entry(wall, x0, y0, way_x, way_y) {
                    nearest = nearest.min(share);
                }
            }
            // A wall found early may be met late, behind one that a later piece finds.
            if i64::from(nearest) * i64::from(pieces) <= i64::from(ONE) * i64::from(piece + 1) {
                break;
            }
        }
        nearest
    }

    /// Where the way leaves the map.
    fn rim(&self, x0: i32, y0: i32, way_x: i64, way_y: i64) -> i32 {
        let axis = |start: i32, way: i64, size: i32| {
            let room = match way {
                0 => return ONE,
                1.. => i64::from(size - start),
                _ => i64::from(start),
            };
            if room <= 0 {
                0
            } else {
                (room * i64::from(ONE) / way.abs()).min(i64::from(ONE)) as i32
            }
        };
        axis(x0, way_x, self.width()).min(axis(y0, way_y, self.height()))
    }

    /// Whether nothing stands between two points.
    pub fn sees(&self, x0: i32, y0: i32, x1: i32, y1: i32) -> bool {
        self.ray(x0, y0, x1, y1) == ONE
    }
}

/// The share of the way at which it enters a box; `None` when it passes by or only touches.
fn entry(wall: &Wall, x0: i32, y0: i32, way_x: i64, way_y: i64) -> Option<i32> {
    let (mut enter, mut leave) = (0, i64::from(ONE));
    for (start, way, low, high) in [
        (i64::from(x0), way_x, i64::from(wall.left), i64::from(wall.right)),
        (i64::from(y0), way_y, i64::from(wall.top), i64::from(wall.bottom)),
    ] {
        if way == 0 {
            if start <= low || start >= high {
                return None;
            }
            continue;
        }
        let (near, far) = if way > 0 { (low, high) } else { (high, low) };
        enter = enter.max(((near - start) * i64::from(ONE)).div_euclid(way));
        leave = leave.min(((far - start) * i64::from(ONE)).div_euclid(way));
    }
    (enter < leave).then_some(enter as i32)
}

/// The share of the way at which a point comes within `radius` of a place; `None` when it does not.
pub(crate) fn strike(start: (i32, i32), way: (i32, i32), place: (i32, i32), radius: i32) -> Option<i32> {
    let (from_x, from_y) = (start.0 - place.0, start.1 - place.1);
    let reach = i64::from(radius) * i64::from(radius);
    let outside = square(from_x, from_y) - reach;
    if outside <= 0 {
        return Some(0);
    }
    let length = square(way.0, way.1);
    let closing = -(i64::from(from_x) * i64::from(way.0) + i64::from(from_y) * i64::from(way.1));
    // Moving away, or still outside when the way ends beside the nearest point.
    if closing <= 0 || length == 0 {
        return None;
    }
    let root = i128::from(closing) * i128::from(closing) - i128::from(length) * i128::from(outside);
    let root = u128::try_from(root).ok()?.isqrt() as i64;
    let share = i128::from(closing - root) * i128::from(ONE) / i128::from(length);
    (share <= i128::from(ONE)).then_some(share as i32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::rules::Mode;

    /// Walks with steps of every length, also far longer than the game's, into everything that is there.
    #[test]
    fn nobody_is_ever_inside_a_wall_however_far_they_are_thrown() {
        for seed in 0..40 {
            let mode = Mode::ALL[seed as usize % 2];
            let map = Map::new(seed, mode);
            let mut random = Random::new(seed, 99);
            let spawn = map.spawns()[0];
            let (mut x, mut y) = (spawn.x, spawn.y);
            for step in 0..3_000 {
                let far = [300, 1024, 5_000, 60_000][random.below(4) as usize];
                (x, y) = map.slide(x, y, random.between(-far, far), random.between(-far, far));
                assert!(
                    map.is_free(x, y, PLAYER_RADIUS),
                    "seed {seed}, step {step}: {x}, {y} is inside a wall"
                );
            }
        }
    }

    #[test]
    fn nobody_gets_through_a_wall_however_fast_they_run() {
        let map = Map::new(7, Mode::Arena);
        let mut random = Random::new(7, 98);
        for _ in 0..20_000 {
            let spawn = map.spawns()[random.below(map.spawns().len() as u32) as usize];
            let (way_x, way_y) = (random.between(-200_000, 200_000), random.between(-200_000, 200_000));
            let (x, y) = map.slide(spawn.x, spawn.y, way_x, way_y);
            // Sliding may lead around a corner; a straight result must have had a straight free way.
            if (x - spawn.x - way_x).abs() < 2 && (y - spawn.y - way_y).abs() < 2 {
                assert!(
                    map.sees(spawn.x, spawn.y, x, y),
                    "from {spawn:?} through a wall to {x}, {y}"
                );
            }
        }
    }

    #[test]
    fn a_body_that_runs_into_a_wall_at_an_angle_slides_along_it() {
        let map = Map::new(3, Mode::Duel);
        let wall = map.walls()[0];
        let (x, y) = (wall.left - PLAYER_RADIUS, (wall.top + wall.bottom) / 2);
        assert!(map.is_free(x, y, PLAYER_RADIUS));
        let (after_x, after_y) = map.slide(x, y, 700, 700);
        assert_eq!((after_x, after_y), (x, y + 700));
    }

    #[test]
    fn the_indexed_ray_agrees_with_asking_every_wall() {
        for seed in 0..10 {
            let map = Map::new(seed, Mode::Arena);
            let mut random = Random::new(seed, 97);
            for _ in 0..2_000 {
                let mut point = || (random.between(0, map.width()), random.between(0, map.height()));
                let ((x0, y0), (x1, y1)) = (point(), point());
                let (way_x, way_y) = (i64::from(x1 - x0), i64::from(y1 - y0));
                let expected = map
                    .walls()
                    .iter()
                    .filter_map(|wall| entry(wall, x0, y0, way_x, way_y))
                    .min()
                    .unwrap_or(ONE);
                assert_eq!(
                    map.ray(x0, y0, x1, y1),
                    expected,
                    "seed {seed}: {x0}, {y0} to {x1}, {y1}"
                );
            }
        }
    }

    #[test]
    fn a_ray_ends_at_the_rim() {
        let map = Map::new(1, Mode::Duel);
        assert_eq!(map.ray(1000, 1000, -1000, 1000), ONE / 2);
        assert_eq!(map.ray(0, 0, -10, 0), 0);
    }

    #[test]
    fn a_strike_is_found_where_the_way_meets_the_circle() {
        assert_eq!(strike((0, 0), (1000, 0), (500, 0), 100), Some(ONE * 4 / 10));
        assert_eq!(strike((0, 0), (1000, 0), (500, 101), 100), None);
        assert_eq!(strike((0, 0), (-1000, 0), (500, 0), 100), None);
        assert_eq!(strike((0, 0), (300, 0), (500, 0), 100), None);
        assert_eq!(strike((450, 0), (300, 0), (500, 0), 100), Some(0));
    }
}
