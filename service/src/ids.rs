//! New ids: 63 bits of time, node and sequence. They never go back, whatever the clock does.

use std::sync::Mutex;
use std::time::Duration;

/// 2023-07-22T20:09:59Z, in milliseconds: the zero of the time in an id.
const EPOCH_MS: i64 = 1_690_056_599_000;
const SEQUENCES: i64 = 4_096;

/// Mints ids for one node, 0 to 1023.
pub struct Ids<C = fn() -> i64> {
    node: i64,
    clock: C,
    last: Mutex<Last>,
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
    /// `after_ms` is the newest time that an earlier holder of the node may have used.
    pub fn new(node: u16, after_ms: i64) -> Self {
        Self::with_clock(node, after_ms, now_ms)
    }
}

impl<C: Fn() -> i64> Ids<C> {
    fn with_clock(node: u16, after_ms: i64, clock: C) -> Self {
        assert!(node < 1_024, "the node part of an id has ten bits");
        Self {
            node: i64::from(node),
            clock,
            last: Mutex::new(Last {
                ms: after_ms,
                sequence: SEQUENCES - 1,
            }),
        }
    }

    /// A new id.
    pub fn mint<T: From<i64>>(&self) -> T {
        let mut last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let now = (self.clock)();
        if now > last.ms {
            *last = Last { ms: now, sequence: 0 };
        } else if last.sequence + 1 < SEQUENCES {
            last.sequence += 1;
        } else if now < last.ms {
            // The clock stepped back: waiting for it could take hours, so time goes on without it.
            *last = Last {
                ms: last.ms + 1,
                sequence: 0,
            };
        } else {
            // The millisecond is full: the next one is waited for, unless the clock steps back meanwhile.
            let next = loop {
                std::thread::sleep(Duration::from_micros(100));
                let next = (self.clock)();
                if next != last.ms {
                    break next.max(last.ms + 1);
                }
            };
            *last = Last { ms: next, sequence: 0 };
        }
        T::from(((last.ms - EPOCH_MS) << 24) | (self.node << 12) | last.sequence)
    }

    /// The newest time used so far, for the next holder of this node.
    pub fn newest_ms(&self) -> i64 {
        self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner).ms
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
            let ids = Ids::with_clock(7, 0, || {
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
        let ids = Ids::with_clock(0, 0, clock(&[1_000, 400, 400, 1_001, 1_002]));
        let minted: Vec<_> = (0..5).map(|_| parts(ids.mint())).collect();
        assert_eq!(minted, [(1_000, 0), (1_000, 1), (1_000, 2), (1_001, 0), (1_002, 0)]);
    }

    #[test]
    fn a_full_millisecond_of_a_clock_that_stepped_back_is_followed_by_the_next_at_once() {
        let ids = Ids::with_clock(0, 0, clock(&[1_000, 400]));
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
            let ids = Ids::with_clock(0, 0, || {
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
        let ids = Ids::new(3, 0);
        let minted: HashSet<i64> = (0..20_000).map(|_| ids.mint()).collect();
        assert_eq!(minted.len(), 20_000);
    }

    #[test]
    fn the_next_holder_of_a_node_starts_after_the_last() {
        let before = Ids::with_clock(1, 0, || EPOCH_MS + 50_000);
        let old: i64 = before.mint();
        let after = Ids::with_clock(1, before.newest_ms(), || EPOCH_MS + 10_000);
        assert!(after.mint::<i64>() > old);
    }
}
