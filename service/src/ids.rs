//! New ids: 63 bits of time, node and sequence. They never go back, whatever the clock does, and never past the time that
//! was written down for the node: whoever has the node next begins there.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// 2023-07-22T20:09:59Z, in milliseconds: the zero of the time in an id.
const EPOCH_MS: i64 = 1_690_056_599_000;
const SEQUENCES: i64 = 4_096;

/// Mints ids for one node, 0 to 1023.
pub struct Ids<C = fn() -> i64> {
    node: i64,
    clock: C,
    last: Mutex<Last>,
    /// The newest time that an id may carry, milliseconds.
    horizon_ms: AtomicI64,
}

struct Last {
    ms: i64,
    sequence: i64,
}

/// Milliseconds since 1970.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
pub fn now_ms() -> i64 {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

impl Ids {
    /// `after_ms` is the newest time that an earlier holder of the node may have used, `horizon_ms` the newest that this
    /// one may.
    pub fn new(node: u16, after_ms: i64, horizon_ms: i64) -> Self {
        Self::with_clock(node, after_ms, horizon_ms, now_ms)
    }
}

impl<C: Fn() -> i64> Ids<C> {
    fn with_clock(node: u16, after_ms: i64, horizon_ms: i64, clock: C) -> Self {
        assert!(node < 1_024, "the node part of an id has ten bits");
        Self {
            node: i64::from(node),
            clock,
            last: Mutex::new(Last {
                ms: after_ms,
                sequence: SEQUENCES - 1,
            }),
            horizon_ms: AtomicI64::new(horizon_ms),
        }
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A later time was written down for the node.
    pub fn extend(&self, horizon_ms: i64) {
        self.horizon_ms.fetch_max(horizon_ms, Ordering::Relaxed);
    }

    /// No id may carry a later time than this any more.
    pub fn end(&self, horizon_ms: i64) {
        self.horizon_ms.store(horizon_ms, Ordering::Relaxed);
    }

    /// A new id.
    pub fn mint<T: From<i64>>(&self) -> T {
        loop {
            if let Some(id) = self.try_mint() {
                return id;
            }
            // The millisecond is full, or there is no time left until more is written down.
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    fn try_mint<T: From<i64>>(&self) -> Option<T> {
        let mut last = self.last();
        let (now, horizon) = ((self.clock)(), self.horizon_ms.load(Ordering::Relaxed));
        if now > last.ms && now <= horizon {
            *last = Last { ms: now, sequence: 0 };
        } else if last.sequence + 1 < SEQUENCES {
            last.sequence += 1;
        } else if now != last.ms && last.ms < horizon {
            // The clock stepped back, or went further than we may: waiting could take hours, so time goes on without it.
            *last = Last {
                ms: last.ms + 1,
                sequence: 0,
            };
        } else {
            return None;
        }
        Some(T::from(
            ((last.ms - EPOCH_MS) << 24) | (self.node << 12) | last.sequence,
        ))
    }

    /// A new id that is greater than another one, perhaps of another node whose clock is ahead. `None` if it is further
    /// ahead than we may go.
    pub fn mint_after<T: From<i64>>(&self, other: i64) -> Option<T> {
        let ms = (other >> 24) + EPOCH_MS;
        {
            let mut last = self.last();
            if ms >= self.horizon_ms.load(Ordering::Relaxed) {
                return None;
            }
            if ms >= last.ms {
                *last = Last {
                    ms,
                    sequence: SEQUENCES - 1,
                };
            }
        }
        Some(self.mint())
    }

    /// The newest time used so far, for the next holder of this node.
    pub fn newest_ms(&self) -> i64 {
        self.last().ms
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ids_are_unique_and_increase_whatever_the_clock_does(
            steps in prop::collection::vec((-5_000i64..5_000, prop_oneof![1usize..600, Just(5_000)]), 1..20),
        ) {
            let clock = Cell::new(EPOCH_MS + 1_000_000);
            // It stands still until somebody has looked more often than a millisecond holds ids: who waits sees it go on.
            let looks = Cell::new(0);
            let ids = Ids::with_clock(7, 0, i64::MAX, || {
                looks.set(looks.get() + 1);
                if looks.get() > SEQUENCES + 2 {
                    looks.set(0);
                    clock.set(clock.get() + 1);
                }
                clock.get()
            });
            let (mut newest, mut latest) = (0i64, 0i64);
            for (step, count) in steps {
                clock.set(clock.get() + step);
                looks.set(0);
                latest = latest.max(clock.get());
                for _ in 0..count {
                    let id: i64 = ids.mint();
                    prop_assert!(id > newest);
                    prop_assert_eq!((id >> 12) & 0x3ff, 7);
                    newest = id;
                }
            }
            // Time in the ids runs ahead of the clock by no more than the ids that were minted while it was behind.
            latest = latest.max(clock.get());
            prop_assert!(ids.newest_ms() <= latest + 100_000 / SEQUENCES);
        }
    }

    /// A clock that says these times, the last one for ever.
    fn clock(times: &'static [i64]) -> impl Fn() -> i64 {
        let next = Cell::new(0);
        move || {
            let index = next.get();
            next.set((index + 1).min(times.len() - 1));
            EPOCH_MS + times[index]
        }
    }

    fn parts(id: i64) -> (i64, i64) {
        (id >> 24, id & 0xfff)
    }

    #[test]
    fn a_clock_that_steps_back_is_not_followed() {
        let ids = Ids::with_clock(0, 0, i64::MAX, clock(&[1_000, 400, 400, 1_001, 1_002]));
        let minted: Vec<_> = (0..5).map(|_| parts(ids.mint())).collect();
        assert_eq!(minted, [(1_000, 0), (1_000, 1), (1_000, 2), (1_001, 0), (1_002, 0)]);
    }

    #[test]
    fn a_full_millisecond_of_a_clock_that_stepped_back_is_followed_by_the_next_at_once() {
        let ids = Ids::with_clock(0, 0, i64::MAX, clock(&[1_000, 400]));
        let minted: Vec<_> = (0..SEQUENCES + 2).map(|_| parts(ids.mint())).collect();
        assert_eq!(
            minted[4_094..],
            [(1_000, 4_094), (1_000, 4_095), (1_001, 0), (1_001, 1)]
        );
    }

    #[test]
    fn a_full_millisecond_is_waited_out_also_if_the_clock_steps_back_meanwhile() {
        for (after, expected) in [
            (&[1_001][..], 1_001),
            (&[1_000, 1_000, 1_003], 1_003),
            (&[1_000, 400], 1_001),
        ] {
            let looks = Cell::new(0);
            let ids = Ids::with_clock(0, 0, i64::MAX, || {
                let look = looks.replace(looks.get() + 1);
                let later = usize::try_from(look - SEQUENCES)
                    .ok()
                    .map(|later| later.min(after.len() - 1));
                EPOCH_MS + later.map_or(1_000, |later| after[later])
            });
            for sequence in 0..SEQUENCES {
                assert_eq!(parts(ids.mint()), (1_000, sequence));
            }
            assert_eq!(parts(ids.mint()), (expected, 0), "{after:?}");
        }
    }

    #[test]
    fn more_than_a_millisecond_holds_are_minted_by_waiting() {
        let ids = Ids::new(3, 0, i64::MAX);
        let minted: HashSet<i64> = (0..20_000).map(|_| ids.mint()).collect();
        assert_eq!(minted.len(), 20_000);
    }

    #[test]
    fn a_holder_who_slept_through_its_lease_stays_behind_the_next() {
        let horizon = EPOCH_MS + 50_000;
        let clock = Cell::new(EPOCH_MS + 40_000);
        let old = Ids::with_clock(1, 0, horizon, || clock.get());
        old.mint::<i64>();
        clock.set(EPOCH_MS + 90_000);
        let next = Ids::with_clock(1, horizon, i64::MAX, || clock.get());
        let first: i64 = next.mint();
        let mut newest = 0;
        for _ in 0..3 * SEQUENCES {
            let id: i64 = old.mint();
            assert!(newest < id && id < first);
            newest = id;
        }
        assert_eq!(parts(newest).0, 40_003);
        // With more time it catches up.
        old.extend(EPOCH_MS + 100_000);
        assert_eq!(parts(old.mint()).0, 90_000);
    }

    #[test]
    fn an_id_can_be_asked_to_be_greater_than_one_of_a_node_that_is_ahead() {
        let ahead: i64 = Ids::with_clock(9, 0, i64::MAX, || EPOCH_MS + 7_000).mint();
        let ids = Ids::with_clock(1, 0, EPOCH_MS + 8_000, || EPOCH_MS + 5_000);
        let id: i64 = ids.mint_after(ahead).unwrap();
        assert!(id > ahead && ids.mint::<i64>() > id);
        let behind: i64 = Ids::with_clock(9, 0, i64::MAX, || EPOCH_MS + 1_000).mint();
        assert_eq!(parts(ids.mint_after(behind).unwrap()).0, 7_001);
        let too_far: i64 = Ids::with_clock(9, 0, i64::MAX, || EPOCH_MS + 8_000).mint();
        assert_eq!(ids.mint_after::<i64>(too_far), None);
    }

    #[test]
    fn the_next_holder_of_a_node_starts_after_the_last() {
        let before = Ids::with_clock(1, 0, i64::MAX, || EPOCH_MS + 50_000);
        let old: i64 = before.mint();
        let after = Ids::with_clock(1, before.newest_ms(), i64::MAX, || EPOCH_MS + 10_000);
        assert!(after.mint::<i64>() > old);
    }
}
