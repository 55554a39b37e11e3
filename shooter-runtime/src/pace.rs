//! When to tick: a steady beat that catches up after a short stall and lets go of a long one. Time is an argument.

use std::time::Duration;

/// Ticks made up for at once; what is beyond is skipped.
const CATCH_UP_MAX: u32 = 5;

#[derive(Debug)]
pub struct Pace {
    rate: u32,
    start: Duration,
    /// Beats since `start`.
    beats: u64,
    skipped: u64,
}

impl Pace {
    /// So many beats a second, the first one a beat after `now`.
    pub fn new(rate: u32, now: Duration) -> Self {
        Self {
            rate,
            start: now,
            beats: 0,
            skipped: 0,
        }
    }

    /// When the next beat is due. Counted from the start, so that rounding never adds up.
    pub fn next(&self) -> Duration {
        self.start + self.after(self.beats + 1)
    }

    /// How many ticks to do now.
    pub fn due(&mut self, now: Duration) -> u32 {
        let mut ticks = 0;
        while self.next() <= now {
            self.beats += 1;
            ticks += 1;
            if ticks == CATCH_UP_MAX {
                // A new start: what was missed is missed.
                let late = now.saturating_sub(self.start + self.after(self.beats));
                let missed = late.as_nanos() * u128::from(self.rate) / 1_000_000_000;
                self.skipped += missed as u64;
                self.beats += missed as u64;
                break;
            }
        }
        ticks
    }

    /// Beats that were let go.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    fn after(&self, beats: u64) -> Duration {
        let rate = u64::from(self.rate);
        Duration::from_secs(beats / rate) + Duration::from_nanos(beats % rate * 1_000_000_000 / rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_has_exactly_its_ticks() {
        let mut pace = Pace::new(60, Duration::ZERO);
        let mut ticks = 0;
        let mut now = Duration::ZERO;
        while pace.next() <= Duration::from_secs(3_600) {
            now = pace.next();
            ticks += pace.due(now);
        }
        assert_eq!(ticks, 3_600 * 60);
        assert_eq!((now, pace.skipped()), (Duration::from_secs(3_600), 0));
    }

    #[test]
    fn a_short_stall_is_made_up_for() {
        let mut pace = Pace::new(60, Duration::ZERO);
        assert_eq!(pace.due(Duration::from_millis(51)), 3);
        assert_eq!(pace.due(Duration::from_millis(51)), 0);
        assert_eq!(pace.skipped(), 0);
    }

    #[test]
    fn a_long_stall_is_let_go_and_the_beat_goes_on() {
        let mut pace = Pace::new(60, Duration::ZERO);
        assert_eq!(pace.due(Duration::from_secs(2)), 5);
        assert_eq!(pace.skipped(), 115);
        assert_eq!(pace.due(Duration::from_secs(2)), 0);
        assert_eq!(pace.next(), Duration::from_secs(2) + Duration::from_nanos(16_666_666));
    }
}
