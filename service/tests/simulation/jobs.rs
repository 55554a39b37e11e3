//! The worker: takes jobs that are due, in any order, and carries them out as the service does. It may be killed between
//! two transactions; then the job stays.

use omgservers_protocol::config::RuntimeQualifier;
use omgservers_protocol::id::{ClientId, DeploymentId, HostId, RuntimeId};
use omgservers_protocol::message::{ProvisioningStage, ProvisioningStatus};
use omgservers_service::plan::cell::{Cell, Plan, Seat, Step, Venue, VenueId, VenueState, plan};
use omgservers_service::plan::placement::{Demand, Host, place};

use crate::check;
use crate::world::{EMPTY_MS, Job, Life, Runtime, VenueRow, World};

const RETRY_MAX_S: u64 = 60;
/// Jobs until a world is said to never come to rest.
const RESTLESS: usize = 20_000;

/// What became of a job.
enum Outcome {
    Done,
    Again(u64),
    Killed,
}

impl World {
    /// Does some of what is due, and may be killed half way.
    pub(crate) fn work(&mut self) {
        for _ in 0..self.random.below(12) {
            self.become_ready();
            let due: Vec<Job> = self
                .events
                .iter()
                .filter(|(_, at)| **at <= self.now)
                .map(|(job, _)| *job)
                .collect();
            let Some(job) = self.random.pick(&due) else {
                return;
            };
            self.take(job, true);
        }
    }

    /// Nothing happens any more but what must; time passes until there is nothing left to do.
    pub(crate) fn settle(&mut self) {
        self.failing_starts = 0;
        for host in self.hosts.values_mut() {
            host.is_alive = true;
            host.containers = 10;
        }
        for _ in 0..RESTLESS {
            self.become_ready();
            let due: Vec<Job> = self
                .events
                .iter()
                .filter(|(_, at)| **at <= self.now)
                .map(|(job, _)| *job)
                .collect();
            if let Some(job) = self.random.pick(&due) {
                self.take(job, false);
                continue;
            }
            let ready = self.runtimes.values().filter_map(|runtime| match runtime.life {
                Life::Starting { ready_at } => Some(ready_at),
                _ => None,
            });
            match self.events.values().copied().chain(ready).min() {
                Some(next) => self.now = next.max(self.now),
                None => return,
            }
        }
        panic!("seed {}: the world does not come to rest: {:?}", self.seed, self.events);
    }

    fn become_ready(&mut self) {
        for venue in self.runtimes.keys().copied().collect::<Vec<_>>() {
            let runtime = self.runtimes.get_mut(&venue).expect("listed");
            if matches!(runtime.life, Life::Starting { ready_at } if ready_at <= self.now) {
                runtime.life = Life::Ready;
                self.append(Job::Runtime(venue));
            }
        }
    }

    fn take(&mut self, job: Job, may_be_killed: bool) {
        self.events.remove(&job);
        let outcome = match job {
            Job::Cell => self.reconcile(may_be_killed),
            Job::Venue(id) => self.venue(id),
            Job::Runtime(id) => self.runtime(id),
            Job::Seat(id) => self.seat(id, may_be_killed),
        };
        let killed_late = may_be_killed && self.random.one_in(10);
        match outcome {
            Outcome::Killed => self.append(job),
            _ if killed_late => self.append(job),
            Outcome::Again(after) => self.append_at(job, self.now + after),
            Outcome::Done => {}
        }
    }

    pub(crate) fn plan(&self) -> Plan {
        let mut seats: Vec<Seat> = self
            .seats
            .iter()
            .map(|(client, row)| Seat {
                client: *client,
                venue: row.venue,
                group: row.group.clone(),
                wanted_mode: row.wanted_mode.clone(),
                line: row.line,
                told: row.told.clone(),
                is_dismissed: row.is_dismissed,
            })
            .collect();
        seats.sort_by_key(|seat| seat.line);
        let venues = self.venues.iter().map(|(id, row)| Venue {
            id: *id,
            qualifier: row.qualifier,
            mode: row.mode.clone(),
            state: row.state,
            reason: row.reason.clone(),
            progress: row.progress.clone(),
            empty_for_ms: self.now - row.empty_since,
        });
        plan(&Cell {
            state: self.state,
            version: &self.version,
            config: &self.config,
            venues: venues.collect(),
            seats,
            retry_in_ms: self.retry_at.saturating_sub(self.now),
            failure: self.failure.clone(),
            empty_ms: EMPTY_MS,
            limits: self.limits,
        })
    }

    /// Loads, plans and applies in one transaction: a kill loses all of it or nothing.
    fn reconcile(&mut self, may_be_killed: bool) -> Outcome {
        let plan = self.plan();
        if may_be_killed && self.random.one_in(8) {
            return Outcome::Killed;
        }
        let before = self.seats.clone();
        for step in &plan.steps {
            self.apply(step);
        }
        check::carried_out(self, &before, &plan);
        plan.again_in_ms.map_or(Outcome::Done, Outcome::Again)
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::CreateLobby => self.create_venue(RuntimeQualifier::Lobby, None),
            Step::CreateMatch { mode } => self.create_venue(RuntimeQualifier::Match, Some(mode)),
            Step::Remove { venue, reason } => {
                let row = self.venues.get_mut(venue).expect("what is removed is there");
                row.state = VenueState::Gone;
                row.reason = Some(reason.clone());
                self.append(Job::Venue(*venue));
            }
            Step::Move { client, venue, group } => {
                if let Some(left) = self.seats[client].venue {
                    self.stamp_empty(left, *client);
                }
                let seat = self.seats.get_mut(client).expect("a client that is moved has a seat");
                seat.venue = Some(*venue);
                seat.group.clone_from(group);
                seat.generation += 1;
                (seat.wanted_mode, seat.told) = (None, None);
                self.append(Job::Seat(*client));
            }
            Step::Queue { client } => {
                let seat = self.seats.get_mut(client).expect("a client that queues has a seat");
                let left = seat.venue.take();
                let reason = left.and_then(|venue| self.venues.get(&venue)?.reason.clone());
                (seat.group, seat.wanted_mode) = (None, None);
                seat.told = reason.map(|reason| ProvisioningStatus {
                    stage: ProvisioningStage::Queued,
                    position: None,
                    detail: Some(reason),
                });
                seat.generation += 1;
                if let Some(venue) = left {
                    self.append(Job::Venue(venue));
                }
                self.append(Job::Seat(*client));
            }
            Step::Tell { client, status } => {
                let seat = self.seats.get_mut(client).expect("a client that is told has a seat");
                seat.told = Some(status.clone());
                self.append(Job::Seat(*client));
            }
            Step::Disconnect { client, .. } => {
                let seat = self.seats.get_mut(client).expect("a client that goes has a seat");
                let left = seat.venue.take();
                (seat.group, seat.wanted_mode, seat.told) = (None, None, None);
                seat.generation += 1;
                seat.is_dismissed = true;
                if let Some(venue) = left {
                    self.append(Job::Venue(venue));
                }
                self.append(Job::Seat(*client));
            }
        }
    }

    fn create_venue(&mut self, qualifier: RuntimeQualifier, mode: Option<&String>) {
        let venue = VenueId::from(self.mint());
        let row = VenueRow {
            qualifier,
            mode: mode.cloned(),
            state: VenueState::Pending,
            reason: None,
            progress: None,
            empty_since: self.now,
        };
        self.venues.insert(venue, row);
        self.append(Job::Venue(venue));
    }

    /// A lobby or match wants a runtime, or no longer.
    fn venue(&mut self, id: VenueId) -> Outcome {
        let Some(row) = self.venues.get(&id) else {
            return Outcome::Done;
        };
        if row.state != VenueState::Gone {
            self.runtimes.entry(id).or_insert_with(|| Runtime {
                life: Life::Wanted,
                is_deleted: false,
                host: None,
                reason: String::new(),
                clients: Default::default(),
            });
            self.append(Job::Runtime(id));
        } else if let Some(runtime) = self.runtimes.get_mut(&id) {
            runtime.is_deleted = true;
            self.append(Job::Runtime(id));
            return Outcome::Again(2_000);
        } else if self.members(id).is_empty() {
            self.venues.remove(&id);
            self.append(Job::Cell);
        }
        Outcome::Done
    }

    /// One step of a runtime's life.
    fn runtime(&mut self, id: VenueId) -> Outcome {
        let Some(runtime) = self.runtimes.get(&id) else {
            return Outcome::Done;
        };
        if runtime.is_deleted {
            self.runtimes.remove(&id);
            self.append(Job::Venue(id));
            return Outcome::Done;
        }
        match runtime.life {
            Life::Wanted => return self.start(id),
            Life::Starting { .. } => {}
            Life::Ready => self.hear_ready(id),
            Life::Ended => self.hear_ended(id),
        }
        Outcome::Done
    }

    fn start(&mut self, id: VenueId) -> Outcome {
        let Some(host) = self.find_host(id) else {
            self.hear_progress(id, "waiting for room on a host");
            return Outcome::Again(1_000);
        };
        if self.random.below(100) < self.failing_starts {
            self.end(id, "the image cannot be pulled");
            return Outcome::Done;
        }
        let takes = self.random.pick(&[100, 500, 5_000, 40_000]).unwrap_or(0);
        let runtime = self.runtimes.get_mut(&id).expect("it is being started");
        runtime.host = Some(host);
        runtime.life = Life::Starting {
            ready_at: self.now + takes,
        };
        self.hear_progress(id, "pulling");
        Outcome::Done
    }

    fn find_host(&self, id: VenueId) -> Option<HostId> {
        let on = |host: HostId| {
            self.runtimes
                .values()
                .filter(move |runtime| runtime.host == Some(host))
                .count() as i64
        };
        let hosts: Vec<Host> = self
            .hosts
            .iter()
            .filter(|(_, host)| host.is_alive)
            .map(|(id, host)| Host {
                id: *id,
                cpu: (host.containers - on(*id)) * 100,
                memory: (host.containers - on(*id)) * 512,
                containers: host.containers - on(*id),
                siblings: on(*id),
            })
            .collect();
        let demand = Demand {
            tenant: omgservers_protocol::id::TenantId(1),
            runtime: RuntimeId(id.get()),
            deployment: DeploymentId(1),
            cpu: 100,
            memory: 512,
        };
        let found = place(&hosts, &demand);
        let has_room = hosts.iter().any(|host| host.containers > 0);
        assert_eq!(found.is_some(), has_room, "seed {}: a host has room or not", self.seed);
        found
    }

    fn hear_progress(&mut self, id: VenueId, progress: &str) {
        if let Some(row) = self.venues.get_mut(&id)
            && row.state == VenueState::Pending
            && row.progress.as_deref() != Some(progress)
        {
            row.progress = Some(progress.to_owned());
            self.changed(id);
        }
    }

    fn hear_ready(&mut self, id: VenueId) {
        if self.failures > 0 {
            (self.failures, self.failure) = (0, None);
        }
        if let Some(row) = self.venues.get_mut(&id)
            && row.state == VenueState::Pending
        {
            row.state = VenueState::Open;
            row.progress = None;
            row.empty_since = self.now;
            self.changed(id);
        }
    }

    fn hear_ended(&mut self, id: VenueId) {
        let reason = self.runtimes[&id].reason.clone();
        let Some(row) = self.venues.get_mut(&id) else {
            return;
        };
        if row.state == VenueState::Pending {
            self.retry_at = self.now + 1_000 * RETRY_MAX_S.min(1 << self.failures.min(10));
            self.failures += 1;
            self.failure = Some(reason.clone());
        }
        if row.state != VenueState::Gone {
            row.state = VenueState::Gone;
            row.reason = Some(reason);
            self.changed(id);
        }
    }

    fn changed(&mut self, venue: VenueId) {
        self.append(Job::Cell);
        self.append(Job::Venue(venue));
    }

    /// First the client hears where it is, then its new runtime, then the old ones.
    fn seat(&mut self, id: ClientId, may_be_killed: bool) -> Outcome {
        let Some(seat) = self.seats.get(&id).cloned() else {
            return Outcome::Done;
        };
        let Some(client) = self.clients.get_mut(&id) else {
            self.leave(id);
            return Outcome::Done;
        };
        if seat.is_dismissed {
            self.leave(id);
            return Outcome::Done;
        }
        let place = seat.venue.filter(|venue| self.venues.contains_key(venue));
        if client.generation < seat.generation {
            if client.at != place {
                client.left.extend(client.at);
            }
            client.generation = seat.generation;
            client.at = place;
        }
        let mut left = client.left.clone();
        left.retain(|venue| Some(*venue) != place);
        if may_be_killed && self.random.one_in(8) {
            return Outcome::Killed;
        }
        if let Some(runtime) = place.and_then(|venue| self.runtimes.get_mut(&venue)) {
            runtime.clients.insert(id);
        }
        if may_be_killed && self.random.one_in(8) {
            return Outcome::Killed;
        }
        for venue in &left {
            if let Some(runtime) = self.runtimes.get_mut(venue) {
                runtime.clients.remove(&id);
            }
        }
        if let Some(client) = self.clients.get_mut(&id) {
            client.left.retain(|venue| !left.contains(venue));
        }
        Outcome::Done
    }
}
