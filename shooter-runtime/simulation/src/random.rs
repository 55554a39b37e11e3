//! The one source of chance: a small generator whose whole state is one number (the splitmix64 sequence).

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Streams of different `purpose` from one seed do not resemble each other.
    pub(crate) fn new(seed: u32, purpose: u32) -> Self {
        let mut random = Self(u64::from(seed) << 32 | u64::from(purpose));
        random.next();
        random
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to `bound`, which is left out. Even enough: the bounds here are tiny beside 2³².
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        (((self.next() >> 32) * u64::from(bound)) >> 32) as u32
    }

    /// From `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: i32, high: i32) -> i32 {
        low + self.below(high.abs_diff(low) + 1) as i32
    }

    /// True `share` times of a hundred.
    pub(crate) fn percent(&mut self, share: u32) -> bool {
        self.below(100) < share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_numbers_of_a_range_appear_about_equally_often() {
        let mut random = Random::new(1, 2);
        let mut seen = [0; 10];
        for _ in 0..100_000 {
            seen[random.between(0, 9) as usize] += 1;
        }
        assert!(seen.iter().all(|&count| (9_500..10_500).contains(&count)), "{seen:?}");
    }
}
