//! When the next poll is due. Both SDKs count frames in the same way; they differ in what they call an empty round.

/// Seconds between polls while something happens.
const FAST: f64 = 0.5;
/// Seconds between polls after [`PATIENCE`] empty rounds.
const SLOW: f64 = 1.0;
/// Empty rounds in a row until polling slows down.
const PATIENCE: u32 = 4;

#[derive(Debug)]
pub(crate) struct Pace {
    timer: f64,
    empty_rounds: u32,
    fast: bool,
}

impl Pace {
    pub(crate) fn new() -> Self {
        Pace {
            timer: 0.0,
            empty_rounds: 0,
            fast: true,
        }
    }

    /// Whether this frame polls. The time of the polling frame itself is not counted, as in the original.
    pub(crate) fn is_due(&mut self, dt: f64) -> bool {
        let interval = if self.fast { FAST } else { SLOW };
        let due = self.timer > interval;
        self.timer = if due { 0.0 } else { self.timer + dt };
        due
    }

    pub(crate) fn count_round(&mut self, empty: bool) {
        if empty {
            self.empty_rounds += 1;
            self.fast = self.fast && self.empty_rounds < PATIENCE;
        } else {
            self.empty_rounds = 0;
            self.fast = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds until the next poll at 60 frames a second, by the end of the frame that polls.
    fn wait(pace: &mut Pace) -> f64 {
        let mut frames = 1;
        while !pace.is_due(1.0 / 60.0) {
            frames += 1;
        }
        f64::from(frames) / 60.0
    }

    #[test]
    fn four_empty_rounds_slow_polling_down_and_one_message_speeds_it_up() {
        let mut pace = Pace::new();
        for _ in 0..4 {
            assert!((0.5..0.56).contains(&wait(&mut pace)));
            pace.count_round(true);
        }
        assert!((1.0..1.06).contains(&wait(&mut pace)));
        pace.count_round(true);
        assert!((1.0..1.06).contains(&wait(&mut pace)));
        pace.count_round(false);
        assert!((0.5..0.56).contains(&wait(&mut pace)));
    }

    #[test]
    fn only_empty_rounds_in_a_row_count() {
        let mut pace = Pace::new();
        for empty in [true, true, true, false, true, true, true] {
            pace.count_round(empty);
        }
        assert!((0.5..0.56).contains(&wait(&mut pace)));
    }
}
