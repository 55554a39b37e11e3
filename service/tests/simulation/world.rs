//! What the database, the hosts and the players hold, and what can happen to them.

use std::collections::{BTreeMap, BTreeSet};

use omgservers_protocol::config::{
    DeploymentConfig, GroupConfig, ModeConfig, RuntimeQualifier, SpareMatches, VersionConfig,
};
use omgservers_protocol::id::{ClientId, HostId};
use omgservers_protocol::message::ProvisioningStatus;
use omgservers_service::plan::cell::{CellState, Limits, VenueId, VenueState};

use crate::random::Random;

/// Something happened to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Job {
    Cell,
    Venue(VenueId),
    Runtime(VenueId),
    Seat(ClientId),
}

pub(crate) struct VenueRow {
    pub(crate) qualifier: RuntimeQualifier,
    pub(crate) mode: Option<String>,
    pub(crate) state: VenueState,
    pub(crate) reason: Option<String>,
    pub(crate) progress: Option<String>,
    pub(crate) empty_since: u64,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct SeatRow {
    pub(crate) venue: Option<VenueId>,
    pub(crate) group: Option<String>,
    pub(crate) generation: u64,
    pub(crate) wanted_mode: Option<String>,
    pub(crate) line: i64,
    pub(crate) told: Option<ProvisioningStatus>,
    pub(crate) is_dismissed: bool,
}

/// An empty venue that is not wanted goes after this time.
pub(crate) const EMPTY_MS: u64 = 16_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    Wanted,
    Starting { ready_at: u64 },
    Ready,
    Ended,
}

/// The runtime of a venue.
pub(crate) struct Runtime {
    pub(crate) life: Life,
    pub(crate) is_deleted: bool,
    pub(crate) host: Option<HostId>,
    pub(crate) reason: String,
    /// Whom it knows.
    pub(crate) clients: BTreeSet<ClientId>,
}

/// A client as its own shard knows it.
#[derive(Default)]
pub(crate) struct Client {
    pub(crate) generation: u64,
    pub(crate) at: Option<VenueId>,
    pub(crate) left: Vec<VenueId>,
}

pub(crate) struct HostRow {
    pub(crate) is_alive: bool,
    pub(crate) containers: i64,
}

pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) random: Random,
    pub(crate) now: u64,
    pub(crate) state: CellState,
    pub(crate) version: VersionConfig,
    pub(crate) config: DeploymentConfig,
    pub(crate) limits: Limits,
    pub(crate) venues: BTreeMap<VenueId, VenueRow>,
    pub(crate) seats: BTreeMap<ClientId, SeatRow>,
    pub(crate) runtimes: BTreeMap<VenueId, Runtime>,
    pub(crate) clients: BTreeMap<ClientId, Client>,
    pub(crate) hosts: BTreeMap<HostId, HostRow>,
    pub(crate) failures: u32,
    pub(crate) failure: Option<String>,
    pub(crate) retry_at: u64,
    /// Jobs with the time from which they are due.
    pub(crate) events: BTreeMap<Job, u64>,
    /// Of a hundred starts, so many fail.
    pub(crate) failing_starts: usize,
    next_id: i64,
    next_line: i64,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let version = version();
        let config = config(&mut random);
        assert_eq!(version.check().and_then(|()| config.check(&version)), Ok(()));
        // In every other world plans are cut, and starts wait for each other.
        let limits = if random.one_in(2) {
            Limits::default()
        } else {
            Limits {
                steps: random.between(1, 6) as usize,
                starting: random.between(1, 3) as usize,
                starting_spares: 1,
            }
        };
        let hosts = (1..=3).map(|id| {
            let containers = i64::from(random.between(2, 5));
            (
                HostId(id),
                HostRow {
                    is_alive: true,
                    containers,
                },
            )
        });
        let hosts = hosts.collect();
        Self {
            seed,
            random,
            now: 1_000_000,
            state: CellState::Active,
            version,
            config,
            limits,
            venues: BTreeMap::new(),
            seats: BTreeMap::new(),
            runtimes: BTreeMap::new(),
            clients: BTreeMap::new(),
            hosts,
            failures: 0,
            failure: None,
            retry_at: 0,
            events: BTreeMap::from([(Job::Cell, 0)]),
            failing_starts: 5,
            next_id: 100,
            next_line: 0,
        }
    }

    pub(crate) fn mint(&mut self) -> i64 {
        self.next_id += 1;
        self.next_id
    }

    pub(crate) fn append(&mut self, job: Job) {
        self.append_at(job, self.now);
    }

    pub(crate) fn append_at(&mut self, job: Job, due: u64) {
        let at = self.events.entry(job).or_insert(due);
        *at = due.min(*at);
    }

    /// Something happens that the planner did not ask for.
    pub(crate) fn mishap(&mut self) {
        match self.random.below(20) {
            0..=5 => self.player_comes(),
            6 => self.player_leaves(),
            7..=12 => self.player_wishes(),
            13 => self.player_is_kicked(),
            14 => self.match_stops_matchmaking(),
            15..=16 => self.runtime_dies(),
            17 => self.host_dies_or_returns(),
            18 => self.failing_starts = self.random.pick(&[0, 5, 50, 100]).unwrap_or(0),
            _ => {}
        }
        let passes = self.random.pick(&[0, 0, 20, 300, 2_000, 20_000]).unwrap_or(0);
        self.now += passes;
    }

    fn player_comes(&mut self) {
        for _ in 0..self.random.between(1, 3) {
            let client = ClientId(self.mint());
            self.next_line += 1;
            let seat = SeatRow {
                generation: 1,
                line: self.next_line,
                ..SeatRow::default()
            };
            self.seats.insert(client, seat);
            self.clients.insert(client, Client::default());
            self.append(Job::Cell);
        }
    }

    fn player_leaves(&mut self) {
        let seats: Vec<ClientId> = self.seats.keys().copied().collect();
        if let Some(client) = self.random.pick(&seats) {
            self.leave(client);
        }
    }

    pub(crate) fn everybody_leaves(&mut self) {
        for client in self.seats.keys().copied().collect::<Vec<_>>() {
            self.leave(client);
        }
    }

    /// The client is deleted: its seat goes, and the runtimes that know it hear.
    pub(crate) fn leave(&mut self, client: ClientId) {
        if let Some(known) = self.clients.remove(&client) {
            for venue in known.left.into_iter().chain(known.at) {
                if let Some(runtime) = self.runtimes.get_mut(&venue) {
                    runtime.clients.remove(&client);
                }
            }
        }
        let Some(seat) = self.seats.remove(&client) else {
            return;
        };
        if let Some(venue) = seat.venue {
            self.stamp_empty(venue, client);
            self.append(Job::Venue(venue));
        }
        self.append(Job::Cell);
    }

    pub(crate) fn stamp_empty(&mut self, venue: VenueId, client: ClientId) {
        let is_in = |(id, seat): (&ClientId, &SeatRow)| *id != client && seat.venue == Some(venue);
        if !self.seats.iter().any(is_in)
            && let Some(row) = self.venues.get_mut(&venue)
        {
            row.empty_since = self.now;
        }
    }

    /// A runtime asks for a match on behalf of one of its clients, or of all of them.
    fn player_wishes(&mut self) {
        if self.state != CellState::Active {
            return;
        }
        let Some((venue, _)) = self.random_runtime(Life::Ready) else {
            return;
        };
        let mode = self.random.below(self.version.modes.len());
        let mode = self.version.modes[mode].name.clone();
        let all = self.random.one_in(2);
        for client in self.members(venue) {
            if !all && self.random.one_in(2) {
                continue;
            }
            self.next_line += 1;
            let line = self.next_line;
            let seat = self.seats.get_mut(&client).expect("a member has a seat");
            if seat.wanted_mode.is_none() {
                seat.wanted_mode = Some(mode.clone());
                seat.line = line;
                self.append(Job::Cell);
            }
        }
    }

    fn player_is_kicked(&mut self) {
        let Some((venue, qualifier)) = self.random_runtime(Life::Ready) else {
            return;
        };
        let members = self.members(venue);
        let Some(client) = self.random.pick(&members) else {
            return;
        };
        if qualifier == RuntimeQualifier::Lobby {
            self.leave(client);
            return;
        }
        let seat = self.seats.get_mut(&client).expect("a member has a seat");
        (seat.venue, seat.group, seat.wanted_mode, seat.told) = (None, None, None, None);
        seat.generation += 1;
        self.stamp_empty(venue, client);
        self.append(Job::Seat(client));
        self.append(Job::Cell);
    }

    fn match_stops_matchmaking(&mut self) {
        let Some((venue, RuntimeQualifier::Match)) = self.random_runtime(Life::Ready) else {
            return;
        };
        if let Some(row) = self.venues.get_mut(&venue)
            && matches!(row.state, VenueState::Pending | VenueState::Open)
        {
            row.state = VenueState::Closed;
            self.append(Job::Cell);
        }
    }

    fn runtime_dies(&mut self) {
        let alive: Vec<VenueId> = self.runtimes.keys().copied().collect();
        if let Some(venue) = self.random.pick(&alive) {
            self.end(venue, "the game server died");
        }
    }

    pub(crate) fn end(&mut self, venue: VenueId, reason: &str) {
        if let Some(runtime) = self.runtimes.get_mut(&venue)
            && runtime.life != Life::Ended
        {
            runtime.life = Life::Ended;
            runtime.reason = reason.to_owned();
            self.append(Job::Runtime(venue));
        }
    }

    fn host_dies_or_returns(&mut self) {
        let id = HostId(i64::from(self.random.between(1, 3)));
        let host = self.hosts.get_mut(&id).expect("there are three hosts");
        host.is_alive = !host.is_alive;
        if host.is_alive {
            return;
        }
        let on_it = |runtime: &Runtime| runtime.host == Some(id);
        let lost: Vec<VenueId> = self
            .runtimes
            .iter()
            .filter(|(_, it)| on_it(it))
            .map(|(id, _)| *id)
            .collect();
        for venue in lost {
            self.end(venue, "the host vanished");
        }
    }

    /// The deployment is replaced or deleted.
    pub(crate) fn replace(&mut self, state: CellState) {
        self.state = state;
        self.append(Job::Cell);
    }

    fn random_runtime(&mut self, life: Life) -> Option<(VenueId, RuntimeQualifier)> {
        let alive: Vec<(VenueId, RuntimeQualifier)> = self
            .runtimes
            .iter()
            .filter(|(_, runtime)| runtime.life == life && !runtime.is_deleted)
            .filter_map(|(venue, _)| Some((*venue, self.venues.get(venue)?.qualifier)))
            .collect();
        self.random.pick(&alive)
    }

    pub(crate) fn members(&self, venue: VenueId) -> Vec<ClientId> {
        let is_in = |(_, seat): &(&ClientId, &SeatRow)| seat.venue == Some(venue);
        self.seats.iter().filter(is_in).map(|(client, _)| *client).collect()
    }
}

fn version() -> VersionConfig {
    let mode = |name: &str, min_players, max_players, groups: &[(&str, u32, u32)]| ModeConfig {
        name: name.into(),
        min_players,
        max_players,
        groups: groups
            .iter()
            .map(|&(name, min_players, max_players)| GroupConfig {
                name: name.into(),
                min_players,
                max_players,
            })
            .collect(),
    };
    VersionConfig {
        modes: vec![
            mode("duel", 2, 2, &[("red", 1, 1), ("blue", 1, 1)]),
            mode("arena", 1, 4, &[("all", 1, 4)]),
            mode("hunt", 3, 5, &[("crew", 1, 4), ("hunters", 2, 2)]),
        ],
        user_data: None,
    }
}

fn config(random: &mut Random) -> DeploymentConfig {
    let mut config = DeploymentConfig::default();
    config.max_lobbies = random.between(1, 4);
    config.min_lobbies = random.between(0, config.max_lobbies.min(2));
    config.lobby.max_assignments = random.between(1, 6);
    config.matchmaker.max_matches = random.between(1, 5);
    let mut room = config.matchmaker.max_matches;
    for mode in ["duel", "arena"] {
        let min_matches = random.between(0, 2).min(room);
        room -= min_matches;
        config
            .matchmaker
            .modes
            .insert(mode.into(), SpareMatches { min_matches });
    }
    config
}
