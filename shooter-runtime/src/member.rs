//! A person in the match: the inputs that wait for their tick, and the events that wait to be seen.

use std::collections::VecDeque;

use shooter_simulation::{INPUTS_PER_TICK_MAX, Input};

use crate::profile::Profile;
use crate::wire;

/// Inputs that may wait without hurry: what jitter bunches together.
const SLACK: usize = 3;
/// Inputs a player may be behind and still catch up: half a second.
const CREDIT_MAX: usize = 30;
/// Numbers that may be left out at once: ten minutes of a sleeping laptop.
const GAP_MAX: u32 = 36_000;
/// Events that wait for a player; beyond it the oldest are forgotten.
const EVENTS_MAX: usize = 64;
/// Packets that count per player at once, and how many more with each tick.
const PACKETS_MAX: u16 = 64;
const PACKETS_PER_TICK: u16 = 4;

/// A person, from assignment to removal.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) profile: Profile,
    pub(crate) name: String,
    /// Which body; there is none before the first connection and after a long absence.
    pub(crate) player: Option<u16>,
    pub(crate) connection: Connection,
    pub(crate) inputs: InputQueue,
    pub(crate) events: EventQueue,
    /// Tick of the newest snapshot that arrived on this connection.
    pub(crate) seen: u32,
    packets: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Connection {
    /// Since that tick of the world.
    Open { since: u32 },
    /// For so many ticks.
    Lost { for_ticks: u32 },
}

impl Member {
    pub(crate) fn new(profile: Profile, name: String) -> Self {
        Self {
            profile,
            name,
            player: None,
            connection: Connection::Lost { for_ticks: 0 },
            inputs: InputQueue::default(),
            events: EventQueue::default(),
            seen: 0,
            packets: 0,
        }
    }

    pub(crate) fn is_connected(&self) -> bool {
        matches!(self.connection, Connection::Open { .. })
    }

    /// Whether one more packet is acceptable now.
    pub(crate) fn may_speak(&mut self) -> bool {
        self.packets += 1;
        self.packets <= PACKETS_MAX || {
            self.packets = PACKETS_MAX;
            false
        }
    }

    pub(crate) fn forgive(&mut self) {
        self.packets = self.packets.saturating_sub(PACKETS_PER_TICK);
    }

    /// A player says which snapshot arrived; only those sent on this connection count.
    pub(crate) fn has_seen(&mut self, tick: u32, now: u32) {
        let Connection::Open { since } = self.connection else {
            return;
        };
        if tick >= since && tick <= now && tick > self.seen {
            self.seen = tick;
            self.events.forget_until(tick);
        }
    }
}

/// Inputs in order, each once. A tick takes one; after a pause more, but never more than one per tick on average.
#[derive(Debug, Default)]
pub(crate) struct InputQueue {
    waiting: VecDeque<Input>,
    /// The newest number taken in.
    newest: u32,
    /// Inputs that may be taken: one more with each tick.
    credit: usize,
}

impl InputQueue {
    /// For a new body, whose inputs count from zero.
    pub(crate) fn restart(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn push(&mut self, input: Input) {
        let gap = input.sequence.saturating_sub(self.newest);
        if (1..=GAP_MAX).contains(&gap) {
            self.newest = input.sequence;
            self.waiting.push_back(input);
            if self.waiting.len() > CREDIT_MAX + SLACK {
                self.waiting.pop_front();
            }
        }
    }

    /// The inputs of this tick.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Input> + '_ {
        self.credit = (self.credit + 1).min(CREDIT_MAX);
        // What can never be paid for would only be lag.
        while self.waiting.len() > self.credit + SLACK {
            self.waiting.pop_front();
        }
        let hurry = if self.waiting.len() > SLACK {
            usize::from(INPUTS_PER_TICK_MAX)
        } else {
            1
        };
        let count = hurry.min(self.credit).min(self.waiting.len());
        self.credit -= count;
        self.waiting.drain(..count)
    }
}

/// Events a player has not seen yet, numbered one after the other.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    waiting: VecDeque<(u32, wire::Event)>,
    /// Number of the first that waits.
    first: u32,
}

impl EventQueue {
    pub(crate) fn push(&mut self, tick: u32, event: wire::Event) {
        self.waiting.push_back((tick, event));
        if self.waiting.len() > EVENTS_MAX {
            self.waiting.pop_front();
            self.first = self.first.wrapping_add(1);
        }
    }

    pub(crate) fn first(&self) -> u32 {
        self.first
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = wire::Event> + '_ {
        self.waiting.iter().map(|(_, event)| *event)
    }

    fn forget_until(&mut self, tick: u32) {
        while self.waiting.front().is_some_and(|(happened, _)| *happened <= tick) {
            self.waiting.pop_front();
            self.first = self.first.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(queue: &mut InputQueue, sequences: impl IntoIterator<Item = u32>) {
        for sequence in sequences {
            queue.push(Input {
                sequence,
                ..Input::default()
            });
        }
    }

    fn take(queue: &mut InputQueue) -> Vec<u32> {
        queue.take().map(|input| input.sequence).collect()
    }

    #[test]
    fn repeated_and_late_inputs_count_once() {
        let mut queue = InputQueue::default();
        push(&mut queue, [1, 2]);
        push(&mut queue, [1, 2, 3]);
        push(&mut queue, [2, 3]);
        let taken: Vec<_> = (0..5).flat_map(|_| take(&mut queue)).collect();
        assert_eq!(taken, [1, 2, 3]);
    }

    #[test]
    fn an_outage_of_half_a_second_is_made_up_for() {
        let mut queue = InputQueue::default();
        for _ in 0..30 {
            assert!(take(&mut queue).is_empty());
        }
        push(&mut queue, 1..=30);
        let mut taken = Vec::new();
        for _ in 0..12 {
            taken.extend(take(&mut queue));
        }
        assert_eq!(taken, (1..=30).collect::<Vec<_>>());
    }

    #[test]
    fn a_long_outage_locks_nobody_out() {
        let mut queue = InputQueue::default();
        push(&mut queue, [1]);
        assert_eq!(take(&mut queue), [1]);
        push(&mut queue, [3_000]);
        assert_eq!(take(&mut queue), [3_000]);
    }

    #[test]
    fn a_clock_that_runs_fast_gains_nothing_and_builds_up_no_lag() {
        let mut queue = InputQueue::default();
        let (mut sequence, mut taken) = (0, 0);
        for tick in 0..60 * 60 {
            let count = if tick % 10 == 0 { 3 } else { 1 };
            for _ in 0..count {
                sequence += 1;
                push(&mut queue, [sequence]);
            }
            taken += take(&mut queue).len();
            assert!(queue.waiting.len() <= SLACK + 3, "{} inputs wait", queue.waiting.len());
        }
        assert!(taken <= 60 * 60, "{taken} inputs in an hour's ticks");
    }

    #[test]
    fn a_number_far_ahead_is_ignored() {
        let mut queue = InputQueue::default();
        push(&mut queue, [u32::MAX, 1]);
        assert_eq!(take(&mut queue), [1]);
    }

    #[test]
    fn too_many_packets_are_refused_until_ticks_have_passed() {
        let mut member = Member::new(Profile::default(), String::new());
        let accepted = (0..1_000).filter(|_| member.may_speak()).count();
        assert_eq!(accepted, usize::from(PACKETS_MAX));
        member.forgive();
        let accepted = (0..1_000).filter(|_| member.may_speak()).count();
        assert_eq!(accepted, usize::from(PACKETS_PER_TICK));
    }
}
