//! Who is near: the living by the cells they stand in, made anew when they have moved. An aid, no state.

/// Units; a cell of the index.
const CELL: i32 = 128 * 256;

#[derive(Debug, Clone, Default)]
pub(crate) struct Crowd {
    columns: i32,
    rows: i32,
    /// Members of cell `n` are `members[starts[n]..starts[n + 1]]`.
    starts: Vec<u32>,
    members: Vec<u16>,
    cells: Vec<Option<u32>>,
}

impl Crowd {
    pub(crate) fn new(width: i32, height: i32) -> Self {
        Self {
            columns: width.div_euclid(CELL) + 1,
            rows: height.div_euclid(CELL) + 1,
            ..Self::default()
        }
    }

    /// Takes in where everybody stands; `None` for those who are not there. A member's number is the place in this sequence.
    pub(crate) fn rebuild(&mut self, places: impl Iterator<Item = Option<(i32, i32)>>) {
        let count = (self.columns * self.rows) as usize;
        self.starts.clear();
        self.starts.resize(count + 1, 0);
        self.cells.clear();
        for place in places {
            let cell = place.map(|(x, y)| (self.row(y) * self.columns + self.column(x)) as u32);
            if let Some(cell) = cell {
                self.starts[cell as usize + 1] += 1;
            }
            self.cells.push(cell);
        }
        for cell in 0..count {
            self.starts[cell + 1] += self.starts[cell];
        }
        self.members.clear();
        self.members.resize(self.starts[count] as usize, 0);
        // From the back, so that the starts end up where they belong and members of a cell stay in order.
        for (member, cell) in self.cells.iter().enumerate().rev() {
            if let Some(cell) = cell {
                let end = &mut self.starts[*cell as usize + 1];
                *end -= 1;
                self.members[*end as usize] = member as u16;
            }
        }
        // Each end is now the start of its own cell, one place too far to the right.
        self.starts.remove(0);
        self.starts.push(self.members.len() as u32);
    }

    /// Everybody who may stand in this box, always in the same order.
    pub(crate) fn near(&self, left: i32, top: i32, right: i32, bottom: i32) -> impl Iterator<Item = u16> {
        let columns = (self.column(left), self.column(right));
        (self.row(top)..=self.row(bottom)).flat_map(move |row| {
            let (first, last) = (row * self.columns + columns.0, row * self.columns + columns.1);
            let members = self.starts[first as usize] as usize..self.starts[last as usize + 1] as usize;
            self.members[members].iter().copied()
        })
    }

    fn column(&self, x: i32) -> i32 {
        x.div_euclid(CELL).clamp(0, self.columns - 1)
    }

    fn row(&self, y: i32) -> i32 {
        y.div_euclid(CELL).clamp(0, self.rows - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn everybody_in_a_box_is_found_and_nobody_twice() {
        let (width, height) = (1_000_000, 700_000);
        let mut crowd = Crowd::new(width, height);
        let mut random = Random::new(5, 5);
        for _ in 0..50 {
            let places: Vec<_> = (0..200)
                .map(|_| {
                    random
                        .percent(80)
                        .then(|| (random.between(0, width), random.between(0, height)))
                })
                .collect();
            crowd.rebuild(places.iter().copied());
            let (left, top) = (random.between(0, width), random.between(0, height));
            let (right, bottom) = (left + 150_000, top + 150_000);
            let mut found: Vec<_> = crowd.near(left, top, right, bottom).collect();
            found.sort_unstable();
            let before = found.len();
            found.dedup();
            assert_eq!(before, found.len(), "somebody is there twice");
            for (member, place) in places.iter().enumerate() {
                let inside = place.is_some_and(|(x, y)| (left..=right).contains(&x) && (top..=bottom).contains(&y));
                assert!(!inside || found.contains(&(member as u16)), "{member} is missing");
                assert!(
                    place.is_some() || !found.contains(&(member as u16)),
                    "{member} is not there"
                );
            }
        }
    }
}
