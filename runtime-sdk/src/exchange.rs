//! The bookkeeping of one interchange, sans-I/O: what goes out is kept until the service has it, what comes in is seen
//! once however often a reply is repeated. A runtime and a player's client differ only in what they exchange.
//!
//! Two lines run side by side. The *poll* is held by the service until there is something to say and carries all
//! acknowledgements; the *send* goes out at once when there is something to send. Time is an argument.

use std::collections::{HashSet, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use omgservers_protocol::Json;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Messages of one request. The service reads at most this many per reply itself.
const BATCH_MAX: usize = 256;
/// Bytes of one request, well below the 10 MB that the service accepts.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// Ids acknowledged by one request; the service takes 1 024.
const ACKNOWLEDGED_MAX: usize = 1_000;
/// Bytes that wait to be sent.
const OUTGOING_BYTES_MAX: usize = 32 << 20;

/// Why a request did not succeed, as far as it matters for what to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The token is not good, or no longer.
    Unauthorized(String),
    /// What the request was for does not exist any more.
    Gone(String),
    /// This very request will never succeed.
    Refused(String),
    /// Nobody answered, or somebody who is in trouble himself: try again later.
    Unavailable(String),
}

/// There is no room for more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full;

/// Something from the service that was not seen before. A part that is missing is empty.
#[derive(Debug)]
pub(crate) struct Fresh {
    pub(crate) qualifier: String,
    pub(crate) body: Json,
}

/// One side of an interchange; `Id` names what comes in.
#[derive(Debug)]
pub(crate) struct Exchange<Id> {
    outgoing: VecDeque<Json>,
    outgoing_bytes: usize,
    outgoing_max: usize,
    /// How many of `outgoing` are in the request that is under way.
    sending: usize,
    batch_max: usize,
    /// A request is wanted even if there is nothing to send.
    nudged: bool,
    send: Line,

    /// Received and not yet confirmed as acknowledged, in order.
    unacknowledged: Vec<Id>,
    /// How many of those the poll that is under way lists.
    acknowledging: usize,
    poll: Line,
    /// Acknowledged while a send was under way, whose reply may still repeat them.
    lingering: Vec<Id>,
    /// What is in one of the two lists above.
    seen: HashSet<Id>,
}

#[derive(Debug)]
struct Line {
    busy: bool,
    backoff: Backoff,
}

impl<Id: Copy + Eq + Hash + DeserializeOwned> Exchange<Id> {
    /// Holds at most `outgoing_max` messages; `seed` makes the pauses of different clients differ.
    pub(crate) fn new(outgoing_max: usize, seed: u64) -> Self {
        let line = |seed| Line {
            busy: false,
            backoff: Backoff::new(seed),
        };
        Self {
            outgoing: VecDeque::new(),
            outgoing_bytes: 0,
            outgoing_max,
            sending: 0,
            batch_max: BATCH_MAX,
            nudged: false,
            send: line(seed),
            unacknowledged: Vec::new(),
            acknowledging: 0,
            poll: line(seed ^ 1),
            lingering: Vec::new(),
            seen: HashSet::new(),
        }
    }

    /// Queues a message.
    pub(crate) fn push(&mut self, message: Json) -> Result<(), Full> {
        let bytes = message.get().len();
        if self.outgoing.len() >= self.outgoing_max || self.outgoing_bytes + bytes > OUTGOING_BYTES_MAX {
            return Err(Full);
        }
        self.outgoing_bytes += bytes;
        self.outgoing.push_back(message);
        Ok(())
    }

    fn pop(&mut self) -> Option<Json> {
        let message = self.outgoing.pop_front()?;
        self.outgoing_bytes -= message.get().len();
        Some(message)
    }

    /// Asks for a request soon, even an empty one.
    pub(crate) fn nudge(&mut self) {
        self.nudged = true;
    }

    /// Whether everything queued has arrived.
    pub(crate) fn is_flushed(&self) -> bool {
        self.outgoing.is_empty() && !self.nudged && !self.send.busy
    }

    /// The next poll, if it is time for one: the ids to acknowledge.
    pub(crate) fn start_poll(&mut self, now: Duration) -> Option<Vec<Id>> {
        if !self.poll.start(now) {
            return None;
        }
        self.acknowledging = self.unacknowledged.len().min(ACKNOWLEDGED_MAX);
        Some(self.unacknowledged[..self.acknowledging].to_vec())
    }

    /// The next send, if there is something to send and it is time.
    pub(crate) fn start_send(&mut self, now: Duration) -> Option<Vec<Json>> {
        if (self.outgoing.is_empty() && !self.nudged) || !self.send.start(now) {
            return None;
        }
        let mut bytes = 0;
        let fits = |message: &&Json| {
            let is_first = bytes == 0;
            bytes += message.get().len();
            is_first || bytes <= BATCH_BYTES_MAX
        };
        let batch: Vec<Json> = self
            .outgoing
            .iter()
            .take(self.batch_max)
            .take_while(fits)
            .cloned()
            .collect();
        self.sending = batch.len();
        self.nudged = false;
        Some(batch)
    }

    /// The reply to the poll.
    pub(crate) fn polled(&mut self, now: Duration, reply: Result<Vec<Json>, Failure>) -> Vec<Fresh> {
        self.poll.busy = false;
        let listed = std::mem::take(&mut self.acknowledging);
        let reply = match reply {
            Ok(reply) => reply,
            Err(_) => {
                self.poll.backoff.failed(now);
                return Vec::new();
            }
        };
        let acknowledged: HashSet<Id> = self.unacknowledged.drain(..listed).collect();
        let mut repeated = HashSet::new();
        // A service that only repeats what this very request acknowledged must not turn the poll into a busy loop.
        let mut stuck = !reply.is_empty();
        let mut fresh = Vec::new();
        for (id, message) in reply.iter().filter_map(read) {
            if acknowledged.contains(&id) {
                repeated.insert(id);
                continue;
            }
            stuck = false;
            if self.seen.insert(id) {
                self.unacknowledged.push(id);
                fresh.push(message);
            }
        }
        let done = acknowledged.difference(&repeated);
        if self.send.busy {
            self.lingering.extend(done);
        } else {
            for id in done {
                self.seen.remove(id);
            }
        }
        self.unacknowledged.extend(repeated);
        if stuck {
            self.poll.backoff.failed(now);
        } else {
            self.poll.backoff.succeeded();
        }
        fresh
    }

    /// The reply to the send. On [`Failure::Refused`] the message that is at fault is found, removed and returned.
    pub(crate) fn sent(&mut self, now: Duration, reply: Result<Vec<Json>, Failure>) -> (Vec<Fresh>, Option<Json>) {
        self.send.busy = false;
        let sending = std::mem::take(&mut self.sending);
        let mut fresh = Vec::new();
        let mut refused = None;
        match reply {
            Ok(reply) => {
                for _ in 0..sending {
                    self.pop();
                }
                self.batch_max = (self.batch_max * 2).min(BATCH_MAX);
                self.send.backoff.succeeded();
                for (id, message) in reply.iter().filter_map(read) {
                    if self.seen.insert(id) {
                        self.unacknowledged.push(id);
                        fresh.push(message);
                    }
                }
            }
            Err(Failure::Refused(_)) if sending == 1 => refused = self.pop(),
            Err(Failure::Refused(_)) if sending > 1 => self.batch_max = 1,
            Err(_) => {
                self.nudged |= sending == 0;
                self.send.backoff.failed(now);
            }
        }
        for id in self.lingering.drain(..) {
            self.seen.remove(&id);
        }
        (fresh, refused)
    }

    /// The ends of the pauses of both lines that are not over yet, whichever comes first.
    pub(crate) fn deadline(&self, now: Duration) -> Option<Duration> {
        let pauses = [self.poll.backoff.until, self.send.backoff.until];
        pauses.into_iter().filter(|until| *until > now).min()
    }
}

impl Line {
    fn start(&mut self, now: Duration) -> bool {
        let starts = !self.busy && self.backoff.is_over(now);
        self.busy |= starts;
        starts
    }
}

/// Reads id and content of one element; one without an id could never be acknowledged and is left out.
fn read<Id: DeserializeOwned>(element: &Json) -> Option<(Id, Fresh)> {
    #[derive(Deserialize)]
    struct Envelope<Id> {
        id: Id,
        #[serde(default)]
        qualifier: Option<String>,
        #[serde(default)]
        body: Option<Json>,
    }
    match serde_json::from_str::<Envelope<Id>>(element.get()) {
        Ok(envelope) => {
            let fresh = Fresh {
                qualifier: envelope.qualifier.unwrap_or_default(),
                body: envelope.body.unwrap_or_else(omgservers_protocol::empty_json),
            };
            Some((envelope.id, fresh))
        }
        Err(cause) => {
            tracing::warn!(%cause, "the service sent something without an id");
            None
        }
    }
}

/// Growing pauses between attempts: 50 ms, doubling up to 2 s, each shortened by up to a quarter so that those who
/// failed together do not come back together.
#[derive(Debug)]
pub(crate) struct Backoff {
    failures: u32,
    until: Duration,
    noise: u64,
}

impl Backoff {
    const FIRST_MS: u64 = 50;
    const LAST_MS: u64 = 2_000;

    pub(crate) fn new(seed: u64) -> Self {
        Self {
            failures: 0,
            until: Duration::ZERO,
            noise: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        }
    }

    pub(crate) fn failed(&mut self, now: Duration) {
        let pause_ms = (Self::FIRST_MS << self.failures.min(10)).min(Self::LAST_MS);
        self.noise ^= self.noise << 13;
        self.noise ^= self.noise >> 7;
        self.noise ^= self.noise << 17;
        let shortened_ms = pause_ms - self.noise % (pause_ms / 4);
        self.failures = self.failures.saturating_add(1);
        self.until = now + Duration::from_millis(shortened_ms);
    }

    pub(crate) fn succeeded(&mut self) {
        self.failures = 0;
        self.until = Duration::ZERO;
    }

    pub(crate) fn is_over(&self, now: Duration) -> bool {
        now >= self.until
    }

    /// When the pause ends.
    pub(crate) fn until(&self) -> Duration {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use omgservers_protocol::id::CommandId;
    use proptest::prelude::*;

    const NOW: Duration = Duration::from_secs(1);

    fn exchange() -> Exchange<CommandId> {
        Exchange::new(1_000, 7)
    }

    fn json(text: impl Into<String>) -> Json {
        serde_json::value::RawValue::from_string(text.into()).unwrap()
    }

    fn reply(ids: &[i64]) -> Vec<Json> {
        let command = |id| json(format!(r#"{{"id":"{id}","qualifier":"HANDLE_MESSAGE","body":{id}}}"#));
        ids.iter().map(command).collect()
    }

    fn bodies(fresh: Vec<Fresh>) -> Vec<i64> {
        fresh
            .iter()
            .map(|message| message.body.get().parse().unwrap())
            .collect()
    }

    fn ids(ids: &[i64]) -> Vec<CommandId> {
        ids.iter().copied().map(CommandId).collect()
    }

    fn unavailable<T>() -> Result<T, Failure> {
        Err(Failure::Unavailable("down".into()))
    }

    #[test]
    fn a_command_is_seen_once_when_the_reply_that_acknowledged_it_is_lost() {
        let mut exchange = exchange();
        assert_eq!(exchange.start_poll(NOW), Some(vec![]));
        assert_eq!(bodies(exchange.polled(NOW, Ok(reply(&[1, 2])))), [1, 2]);
        assert_eq!(exchange.start_poll(NOW), Some(ids(&[1, 2])));
        assert_eq!(bodies(exchange.polled(NOW, unavailable())), [] as [i64; 0]);
        let later = NOW * 2;
        assert_eq!(exchange.start_poll(later), Some(ids(&[1, 2])), "acknowledged again");
        assert_eq!(bodies(exchange.polled(later, Ok(reply(&[3])))), [3]);
        assert_eq!(exchange.start_poll(later), Some(ids(&[3])));
    }

    #[test]
    fn a_late_reply_of_a_send_does_not_bring_back_what_was_acknowledged_meanwhile() {
        let mut exchange = exchange();
        exchange.push(json("{}")).unwrap();
        exchange.start_poll(NOW).unwrap();
        exchange.start_send(NOW).unwrap();
        assert_eq!(bodies(exchange.polled(NOW, Ok(reply(&[1])))), [1]);
        exchange.start_poll(NOW).unwrap();
        exchange.polled(NOW, Ok(vec![]));
        assert_eq!(bodies(exchange.sent(NOW, Ok(reply(&[1, 2]))).0), [2]);
        assert!(exchange.start_poll(NOW).unwrap() == ids(&[2]) && exchange.seen.len() == 1);
    }

    #[test]
    fn messages_are_kept_and_sent_again_in_order_until_they_arrive() {
        let mut exchange = exchange();
        for message in 0..3 {
            exchange.push(json(message.to_string())).unwrap();
        }
        assert_eq!(exchange.start_send(NOW).unwrap().len(), 3);
        exchange.push(json("3")).unwrap();
        assert!(
            exchange.start_send(NOW).is_none(),
            "one request at a time keeps the order"
        );
        exchange.sent(NOW, unavailable());
        assert!(exchange.start_send(NOW).is_none(), "not before the pause is over");
        let later = exchange.deadline(NOW).unwrap();
        let batch = exchange.start_send(later).unwrap();
        assert_eq!(
            batch.iter().map(|json| json.get()).collect::<Vec<_>>(),
            ["0", "1", "2", "3"]
        );
        exchange.sent(later, Ok(vec![]));
        assert!(exchange.is_flushed());
    }

    #[test]
    fn a_message_that_is_refused_fails_alone() {
        let mut exchange = exchange();
        for message in ["good", "bad", "fine"] {
            exchange.push(json(format!("{message:?}"))).unwrap();
        }
        let mut refused = Vec::new();
        let mut arrived = Vec::new();
        while let Some(batch) = exchange.start_send(NOW) {
            let is_bad = batch.iter().any(|message| message.get() == r#""bad""#);
            let result = if is_bad {
                Err(Failure::Refused("400".into()))
            } else {
                Ok(vec![])
            };
            if !is_bad {
                arrived.extend(batch);
            }
            refused.extend(exchange.sent(NOW, result).1);
        }
        let texts = |list: &[Json]| list.iter().map(|json| json.get().to_owned()).collect::<Vec<_>>();
        assert_eq!(texts(&refused), [r#""bad""#]);
        assert_eq!(texts(&arrived), [r#""good""#, r#""fine""#]);
    }

    #[test]
    fn a_full_queue_says_so() {
        let mut exchange = Exchange::<CommandId>::new(2, 0);
        assert!(exchange.push(json("1")).is_ok() && exchange.push(json("2")).is_ok());
        assert_eq!(exchange.push(json("3")), Err(Full));
        exchange.start_send(NOW).unwrap();
        exchange.sent(NOW, Ok(vec![]));
        let large = || json(format!("{:?}", "x".repeat(OUTGOING_BYTES_MAX / 2)));
        assert!(exchange.push(large()).is_ok());
        assert_eq!(exchange.push(large()), Err(Full), "bytes count too");
        assert!(exchange.push(json("4")).is_ok());
    }

    #[test]
    fn a_request_acknowledges_no_more_than_the_service_takes() {
        let mut exchange = exchange();
        exchange.start_poll(NOW).unwrap();
        exchange.polled(NOW, Ok(reply(&(0..2_500).collect::<Vec<_>>())));
        for (listed, left) in [(1_000, 1_500), (1_000, 500), (500, 0)] {
            assert_eq!(exchange.start_poll(NOW).unwrap().len(), listed);
            let rest: Vec<i64> = (2_500 - left..2_500).collect();
            assert_eq!(bodies(exchange.polled(NOW, Ok(reply(&rest)))), [] as [i64; 0]);
        }
        assert_eq!(exchange.start_poll(NOW), Some(vec![]));
        assert!(exchange.seen.is_empty());
    }

    #[test]
    fn a_service_that_repeats_itself_is_polled_with_pauses() {
        let mut exchange = exchange();
        exchange.start_poll(NOW).unwrap();
        exchange.polled(NOW, Ok(reply(&[1])));
        exchange.start_poll(NOW).unwrap();
        assert_eq!(bodies(exchange.polled(NOW, Ok(reply(&[1])))), [] as [i64; 0]);
        assert!(exchange.start_poll(NOW).is_none());
        assert_eq!(exchange.start_poll(NOW * 2), Some(ids(&[1])));
        exchange.polled(NOW * 2, Ok(vec![json("17")]));
        assert!(
            exchange.start_poll(NOW * 2).is_none(),
            "unreadable elements come again too"
        );
    }

    #[test]
    fn a_batch_is_bounded_in_bytes() {
        let mut exchange = exchange();
        for _ in 0..5 {
            exchange.push(json(format!("{:?}", "x".repeat(400_000)))).unwrap();
        }
        assert_eq!(exchange.start_send(NOW).unwrap().len(), 2);
    }

    #[test]
    fn pauses_grow_to_two_seconds_and_start_over_after_a_success() {
        let mut backoff = Backoff::new(3);
        for expected_ms in [50, 100, 200, 400, 800, 1_600, 2_000, 2_000] {
            backoff.failed(NOW);
            let pause = backoff.until() - NOW;
            let longest = Duration::from_millis(expected_ms);
            assert!(pause <= longest && pause >= longest * 3 / 4, "{pause:?} of {longest:?}");
        }
        backoff.succeeded();
        assert!(backoff.is_over(NOW));
    }

    /// A service that keeps commands until they are acknowledged, behind a network that loses requests and replies.
    #[derive(Default)]
    struct Service {
        waiting: Vec<i64>,
        next: i64,
        arrived: Vec<i64>,
    }

    impl Service {
        fn answer(&mut self, acknowledged: &[CommandId], messages: &[Json], page: usize) -> Vec<Json> {
            self.waiting.retain(|id| !acknowledged.contains(&CommandId(*id)));
            self.arrived
                .extend(messages.iter().map(|json| json.get().parse::<i64>().unwrap()));
            reply(&self.waiting[..self.waiting.len().min(page)])
        }
    }

    proptest! {
        /// Whatever is lost, doubled or late: commands are seen once and in order, messages arrive at least once and
        /// in order, and nothing is remembered for ever.
        #[test]
        fn nothing_is_lost_doubled_or_reordered(steps in prop::collection::vec((0..8u8, any::<bool>(), 1..6usize), 1..200)) {
            let mut exchange = exchange();
            let mut service = Service::default();
            let mut now = Duration::ZERO;
            let mut polling: Option<Option<Vec<Json>>> = None;
            let mut sending: Option<Option<Vec<Json>>> = None;
            let mut seen = Vec::new();
            let mut pushed = 0;
            let rest = (0..40).map(|step| (step % 6, true, 5));
            for (step, is_lucky, page) in steps.into_iter().chain(rest) {
                now += Duration::from_millis(500);
                match step {
                    0 => if let Some(acknowledged) = exchange.start_poll(now) {
                        let reply = service.answer(&acknowledged, &[], page);
                        polling = Some(is_lucky.then_some(reply));
                    },
                    1 => if let Some(reply) = polling.take() {
                        seen.extend(bodies(exchange.polled(now, reply.ok_or(Failure::Unavailable(String::new())))));
                    },
                    2 => if let Some(messages) = exchange.start_send(now) {
                        let reply = service.answer(&[], &messages, page);
                        sending = Some(is_lucky.then_some(reply));
                    },
                    3 => if let Some(reply) = sending.take() {
                        seen.extend(bodies(exchange.sent(now, reply.ok_or(Failure::Unavailable(String::new()))).0));
                    },
                    4 => now += Duration::from_secs(2),
                    6 => {
                        service.waiting.push(service.next);
                        service.next += 1;
                    },
                    7 => {
                        exchange.push(json(pushed.to_string())).unwrap();
                        pushed += 1;
                    },
                    _ => {}
                }
                prop_assert!(exchange.seen.len() <= service.next as usize);
            }
            // Drain what is left over a good network.
            for _ in 0..200 {
                now += Duration::from_secs(3);
                if let Some(reply) = polling.take() {
                    seen.extend(bodies(exchange.polled(now, reply.ok_or(Failure::Unavailable(String::new())))));
                }
                if let Some(reply) = sending.take() {
                    seen.extend(bodies(exchange.sent(now, reply.ok_or(Failure::Unavailable(String::new()))).0));
                }
                now += Duration::from_secs(3);
                polling = exchange.start_poll(now).map(|acknowledged| Some(service.answer(&acknowledged, &[], 100)));
                sending = exchange.start_send(now).map(|messages| Some(service.answer(&[], &messages, 100)));
            }
            prop_assert_eq!(seen, (0..service.next).collect::<Vec<_>>());
            let mut arrived = Vec::new();
            for message in service.arrived {
                if arrived.last().is_none_or(|last| *last < message) {
                    arrived.push(message);
                }
            }
            prop_assert_eq!(arrived, (0..pushed).collect::<Vec<i64>>());
            prop_assert!(service.waiting.is_empty() && exchange.is_flushed());
            prop_assert!(exchange.seen.is_empty(), "{:?}", exchange.seen);
        }
    }
}
