//! The arena: walls and places to appear, made from a seed. Mirrored along both axes, so that no corner is better than another.
//!
//! Walls lie on a lattice of tiles. Structures keep two tiles of distance from each other and from the rim, so that every free
//! tile can be reached from every other.

use crate::collision::WallIndex;
use crate::random::Random;
use crate::rules::{Mode, UNITS_PER_PIXEL};

/// Units: 50 pixels, wide enough for a player.
pub(crate) const TILE: i32 = 50 * UNITS_PER_PIXEL;
/// Tiles that structures keep from each other.
const GAP: i32 = 2;

/// A solid box, in units; `right` and `bottom` are outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wall {
    pub left: i32,
    pub top: i32,
    pub right: i32,
    pub bottom: i32,
}

/// A place, in units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    pub x: i32,
    pub y: i32,
}

/// What stands still. A function of seed and mode alone.
#[derive(Debug, Clone)]
pub struct Map {
    pub(crate) index: WallIndex,
    width: i32,
    height: i32,
    spawns: Vec<Point>,
}

impl Map {
    pub fn new(seed: u32, mode: Mode) -> Self {
        let (columns, rows) = mode.tiles();
        let layout = Layout::new(&mut Random::new(seed, 1), mode);
        let walls = layout.boxes.into_iter().map(Area::to_wall).collect();
        let spawns = layout
            .spawns
            .iter()
            .flat_map(|&(column, row)| {
                Area::tile(column, row).mirrored(columns, rows).map(|area| Point {
                    x: area.left * TILE + TILE / 2,
                    y: area.top * TILE + TILE / 2,
                })
            })
            .collect();
        Self {
            index: WallIndex::new(walls, columns * TILE, rows * TILE),
            width: columns * TILE,
            height: rows * TILE,
            spawns,
        }
    }

    /// Units.
    pub fn width(&self) -> i32 {
        self.width
    }

    /// Units.
    pub fn height(&self) -> i32 {
        self.height
    }

    pub fn walls(&self) -> &[Wall] {
        self.index.walls()
    }

    pub fn spawns(&self) -> &[Point] {
        &self.spawns
    }
}

/// A rectangle of tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Area {
    left: i32,
    top: i32,
    right: i32,
    bottom: i32,
}

impl Area {
    fn new(left: i32, top: i32, width: i32, height: i32) -> Self {
        Self {
            left,
            top,
            right: left + width,
            bottom: top + height,
        }
    }

    fn tile(column: i32, row: i32) -> Self {
        Self::new(column, row, 1, 1)
    }

    fn moved(self, x: i32, y: i32) -> Self {
        Self {
            left: self.left + x,
            top: self.top + y,
            right: self.right + x,
            bottom: self.bottom + y,
        }
    }

    /// Whether both come closer than `gap` tiles.
    fn crowds(&self, other: &Area, gap: i32) -> bool {
        self.left < other.right + gap
            && other.left < self.right + gap
            && self.top < other.bottom + gap
            && other.top < self.bottom + gap
    }

    /// The four images in the quarters of a map of this size.
    fn mirrored(self, columns: i32, rows: i32) -> [Area; 4] {
        let across = |area: Area| Area {
            left: columns - area.right,
            right: columns - area.left,
            ..area
        };
        let down = |area: Area| Area {
            top: rows - area.bottom,
            bottom: rows - area.top,
            ..area
        };
        [self, across(down(self)), across(self), down(self)]
    }

    fn to_wall(self) -> Wall {
        Wall {
            left: self.left * TILE,
            top: self.top * TILE,
            right: self.right * TILE,
            bottom: self.bottom * TILE,
        }
    }
}

/// A map in tiles: all boxes, and the spawns of the first quarter.
struct Layout {
    boxes: Vec<Area>,
    spawns: Vec<(i32, i32)>,
}

impl Layout {
    fn new(random: &mut Random, mode: Mode) -> Self {
        let (columns, rows) = mode.tiles();
        let (structures, spawns, spawn_gap) = match mode {
            Mode::Duel => (random.between(4, 6), 3, 4),
            Mode::Arena => (random.between(24, 30), 8, 6),
        };
        let centre = centre_piece(random, columns / 2, rows / 2);
        let mut quarter = Vec::new();
        let mut taken = centre.clone();
        // Far more tries than are needed; a crowded map simply ends up with fewer structures.
        let mut tries = structures * 60;
        let mut wanted = structures;
        while wanted > 0 && tries > 0 {
            tries -= 1;
            let shape = structure(random);
            let (width, height) = (extent(&shape, |area| area.right), extent(&shape, |area| area.bottom));
            let x = random.between(GAP, columns / 2 - 1 - width);
            let y = random.between(GAP, rows / 2 - 1 - height);
            let whole = Area::new(x, y, width, height);
            if taken.iter().any(|other| whole.crowds(other, GAP)) {
                continue;
            }
            taken.push(whole);
            quarter.extend(shape.into_iter().map(|area| area.moved(x, y)));
            wanted -= 1;
        }
        let mut boxes = centre;
        boxes.extend(quarter.into_iter().flat_map(|area| area.mirrored(columns, rows)));
        let spawns = places(random, &boxes, (columns, rows), spawns, spawn_gap);
        Self { boxes, spawns }
    }
}

fn extent(shape: &[Area], edge: fn(&Area) -> i32) -> i32 {
    shape.iter().map(edge).max().unwrap_or(0)
}

/// One structure, its corner at 0, 0, as boxes that do not overlap.
fn structure(random: &mut Random) -> Vec<Area> {
    let length = random.between(3, 5);
    let mut shape = match random.below(10) {
        0 => vec![Area::tile(0, 0)],
        1 | 2 => vec![Area::new(0, 0, 2, 2)],
        3 | 4 => vec![Area::new(0, 0, length, 1)],
        5 | 6 => vec![Area::new(0, 0, length, 1), Area::new(0, 1, 1, length - 2)],
        7 => vec![Area::new(1, 0, 1, 1), Area::new(0, 1, 3, 1), Area::new(1, 2, 1, 1)],
        8 => vec![Area::new(0, 0, 4, 1), Area::new(0, 1, 1, 2), Area::new(3, 1, 1, 2)],
        _ => vec![Area::new(0, 0, 3, 2)],
    };
    if random.percent(50) {
        for area in &mut shape {
            *area = Area {
                left: area.top,
                top: area.left,
                right: area.bottom,
                bottom: area.right,
            };
        }
    }
    let (width, height) = (extent(&shape, |area| area.right), extent(&shape, |area| area.bottom));
    let image = random.below(4) as usize;
    shape
        .into_iter()
        .map(|area| area.mirrored(width, height)[image])
        .collect()
}

/// What stands in the middle, symmetric by itself, as boxes that do not overlap.
fn centre_piece(random: &mut Random, x: i32, y: i32) -> Vec<Area> {
    let shape = match random.below(4) {
        // A cross.
        0 => vec![Area::new(-4, -1, 8, 2), Area::new(-1, -3, 2, 2), Area::new(-1, 1, 2, 2)],
        // Four corners around an open square.
        1 => [Area::new(-4, -3, 2, 1), Area::new(-4, -2, 1, 1)]
            .into_iter()
            .flat_map(|area| area.mirrored(0, 0))
            .collect(),
        // Two long walls with a street between.
        2 => vec![Area::new(-3, -2, 6, 1), Area::new(-3, 1, 6, 1)],
        // A heart and four pillars.
        _ => std::iter::once(Area::new(-1, -1, 2, 2))
            .chain(Area::tile(-4, -3).mirrored(0, 0))
            .collect(),
    };
    shape.into_iter().map(|area| area.moved(x, y)).collect()
}

/// Tiles of the first quarter with nothing beside them and `gap` tiles between them. The corner always is one.
fn places(random: &mut Random, boxes: &[Area], size: (i32, i32), count: usize, gap: i32) -> Vec<(i32, i32)> {
    let mut places = vec![(1, 1)];
    for _ in 0..count * 40 {
        if places.len() == count {
            break;
        }
        let (column, row) = (random.between(1, size.0 / 2 - 2), random.between(1, size.1 / 2 - 2));
        let tile = Area::tile(column, row);
        let apart = |&(x, y): &(i32, i32)| (x - column).abs().max((y - row).abs()) >= gap;
        if places.iter().all(apart) && !boxes.iter().any(|area| tile.crowds(area, 1)) {
            places.push((column, row));
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::navigation::Navigation;
    use crate::rules::PLAYER_RADIUS;

    fn every_map(mut check: impl FnMut(u32, Mode, &Map)) {
        for mode in Mode::ALL {
            for seed in 0..200 {
                check(seed, mode, &Map::new(seed, mode));
            }
        }
    }

    #[test]
    fn a_seed_always_gives_the_same_map_and_another_seed_another_one() {
        every_map(|seed, mode, map| {
            assert_eq!(map.walls(), Map::new(seed, mode).walls());
            assert_eq!(map.spawns(), Map::new(seed, mode).spawns());
        });
        assert_ne!(Map::new(1, Mode::Duel).walls(), Map::new(2, Mode::Duel).walls());
    }

    #[test]
    fn maps_look_the_same_from_every_corner() {
        every_map(|seed, _, map| {
            for wall in map.walls() {
                let image = Wall {
                    left: map.width() - wall.right,
                    right: map.width() - wall.left,
                    ..*wall
                };
                assert!(map.walls().contains(&image), "seed {seed}: {wall:?} has no image");
            }
        });
    }

    #[test]
    fn walls_never_overlap() {
        every_map(|seed, mode, map| {
            for (position, wall) in map.walls().iter().enumerate() {
                for other in &map.walls()[position + 1..] {
                    let apart = wall.right <= other.left
                        || other.right <= wall.left
                        || wall.bottom <= other.top
                        || other.bottom <= wall.top;
                    assert!(apart, "{mode:?} {seed}: {wall:?} and {other:?}");
                }
            }
        });
    }

    #[test]
    fn every_spawn_is_free_and_can_be_reached_from_every_other() {
        every_map(|seed, mode, map| {
            let enough = if mode == Mode::Duel { 8 } else { 24 };
            assert!(
                map.spawns().len() >= enough,
                "{mode:?} {seed}: {} spawns",
                map.spawns().len()
            );
            let navigation = Navigation::new(map);
            for spawn in map.spawns() {
                assert!(
                    map.is_free(spawn.x, spawn.y, PLAYER_RADIUS),
                    "{mode:?} {seed}: {spawn:?}"
                );
                for goal in 0..navigation.goals() {
                    assert!(
                        navigation.distance(goal, spawn.x, spawn.y).is_some(),
                        "{mode:?} {seed}: {spawn:?} is cut off"
                    );
                }
            }
        });
    }

    #[test]
    fn maps_are_neither_empty_nor_crowded() {
        every_map(|seed, mode, map| {
            let covered: i64 = map
                .walls()
                .iter()
                .map(|wall| i64::from((wall.right - wall.left) / TILE) * i64::from((wall.bottom - wall.top) / TILE))
                .sum();
            let (columns, rows) = mode.tiles();
            let share = covered * 100 / i64::from(columns * rows);
            assert!((4..30).contains(&share), "{mode:?} {seed}: {share} % are walls");
        });
    }
}
