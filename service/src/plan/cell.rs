//! Where the players of one deployment go: which lobbies and matches there should be, and who sits where.

use std::collections::BTreeMap;

use omgservers_protocol::config::{DeploymentConfig, ModeConfig, RuntimeQualifier, VersionConfig};
use omgservers_protocol::id::{ClientId, MatchId};
use omgservers_protocol::message::{DisconnectReason, ProvisioningStage, ProvisioningStatus};

/// A lobby or a match.
pub type VenueId = MatchId;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellState {
    Active,
    /// Replaced: lobbies end, matches may end in peace.
    Draining,
    /// Everything ends now.
    Closing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VenueState {
    /// Its runtime is not ready yet.
    Pending,
    /// Takes players.
    Open,
    /// Takes no more.
    Closed,
    /// Its runtime ended or is being ended.
    Gone,
}

#[derive(Debug, Clone)]
pub struct Venue {
    pub id: VenueId,
    pub qualifier: RuntimeQualifier,
    /// Of a match.
    pub mode: Option<String>,
    pub state: VenueState,
    pub reason: Option<String>,
    /// What its start is busy with.
    pub progress: Option<String>,
    /// How long nobody has been in it.
    pub empty_for_ms: u64,
}

#[derive(Debug, Clone)]
pub struct Seat {
    pub client: ClientId,
    pub venue: Option<VenueId>,
    pub group: Option<String>,
    pub wanted_mode: Option<String>,
    /// Place in the line.
    pub line: i64,
}

#[derive(Debug, Clone)]
pub struct Cell<'a> {
    pub state: CellState,
    pub version: &'a VersionConfig,
    pub config: &'a DeploymentConfig,
    pub venues: Vec<Venue>,
    /// In line order.
    pub seats: Vec<Seat>,
    /// Starts failed: nothing new for so long.
    pub retry_in_ms: u64,
    pub failure: Option<String>,
    /// An empty venue beyond the wanted number goes after this time.
    pub empty_ms: u64,
}

#[derive(Debug, Clone)]
pub enum Step {
    CreateLobby,
    CreateMatch {
        mode: String,
    },
    /// The venue ends; whoever is in it is moved by other steps.
    Remove {
        venue: VenueId,
        reason: String,
    },
    /// The client gets a place in an open venue.
    Move {
        client: ClientId,
        venue: VenueId,
        group: Option<String>,
    },
    /// The client loses its place and waits for a lobby.
    Queue {
        client: ClientId,
    },
    /// The client waits: this is why. Told only when it is news.
    Tell {
        client: ClientId,
        status: ProvisioningStatus,
    },
    /// There is no place for the client any more.
    Disconnect {
        client: ClientId,
        reason: DisconnectReason,
    },
}

/// What to do now, and when to look again even if nothing happens.
#[derive(Debug, Default)]
pub struct Plan {
    pub steps: Vec<Step>,
    pub again_in_ms: Option<u64>,
}

impl Plan {
    fn again_in(&mut self, ms: u64) {
        let ms = ms.max(50);
        self.again_in_ms = Some(self.again_in_ms.map_or(ms, |earlier| earlier.min(ms)));
    }
}

pub fn plan(cell: &Cell<'_>) -> Plan {
    let mut plan = Plan::default();
    if cell.state == CellState::Closing {
        close(cell, &mut plan);
        return plan;
    }
    if cell.state == CellState::Draining {
        drain(cell, &mut plan);
        return plan;
    }
    // Clients whose venue is gone wait again, told why.
    let mut waiting: Vec<&Seat> = Vec::new();
    for seat in &cell.seats {
        let venue = seat
            .venue
            .and_then(|id| cell.venues.iter().find(|venue| venue.id == id));
        let lost = seat.venue.is_some() && venue.is_none_or(|venue| venue.state == VenueState::Gone);
        if lost {
            plan.steps.push(Step::Queue { client: seat.client });
        }
        if lost || seat.venue.is_none() {
            waiting.push(seat);
        }
    }
    if cell.retry_in_ms > 0 {
        plan.again_in(cell.retry_in_ms);
    }
    let seated = matchmake(cell, &mut plan);
    waiting.retain(|seat| !seated.contains(&seat.client));
    lobbies(cell, &waiting, &mut plan);
    plan
}

/// Everybody goes, everything ends.
fn close(cell: &Cell<'_>, plan: &mut Plan) {
    for seat in &cell.seats {
        plan.steps.push(Step::Disconnect {
            client: seat.client,
            reason: DisconnectReason::InternalFailure,
        });
    }
    for venue in cell.venues.iter().filter(|venue| venue.state != VenueState::Gone) {
        plan.steps.push(Step::Remove {
            venue: venue.id,
            reason: "the deployment was deleted".into(),
        });
    }
}

/// Those in matches may play on; nobody else is kept.
fn drain(cell: &Cell<'_>, plan: &mut Plan) {
    let is_playing = |seat: &&Seat| {
        let venue = cell.venues.iter().find(|venue| Some(venue.id) == seat.venue);
        venue.is_some_and(|venue| venue.qualifier == RuntimeQualifier::Match && venue.state != VenueState::Gone)
    };
    for seat in cell.seats.iter().filter(|seat| !is_playing(seat)) {
        plan.steps.push(Step::Disconnect {
            client: seat.client,
            reason: DisconnectReason::InternalFailure,
        });
    }
    for venue in cell.venues.iter().filter(|venue| venue.state != VenueState::Gone) {
        let is_empty = !cell.seats.iter().any(|seat| seat.venue == Some(venue.id));
        if venue.qualifier == RuntimeQualifier::Lobby || is_empty {
            plan.steps.push(Step::Remove {
                venue: venue.id,
                reason: "a newer version was deployed".into(),
            });
        }
    }
}

/// A match with the players that are in it and those that may come.
struct Candidate {
    /// `None`: it would have to be created.
    venue: Option<VenueId>,
    is_open: bool,
    progress: Option<String>,
    groups: Vec<u32>,
    newcomers: Vec<(ClientId, usize)>,
}

impl Candidate {
    fn total(&self) -> u32 {
        self.groups.iter().sum()
    }

    /// The group with room that is emptiest for its size.
    fn group_with_room(&self, mode: &ModeConfig) -> Option<usize> {
        if self.total() >= mode.max_players {
            return None;
        }
        (0..mode.groups.len())
            .filter(|&index| self.groups[index] < mode.groups[index].max_players)
            .min_by(|&a, &b| {
                let fill = |index: usize| u64::from(self.groups[index]);
                let max = |index: usize| u64::from(mode.groups[index].max_players);
                (fill(a) * max(b))
                    .cmp(&(fill(b) * max(a)))
                    .then_with(|| mode.groups[a].name.cmp(&mode.groups[b].name))
            })
    }

    fn is_ready(&self, mode: &ModeConfig) -> bool {
        self.total() >= mode.min_players
            && self
                .groups
                .iter()
                .zip(&mode.groups)
                .all(|(count, group)| *count >= group.min_players)
    }
}

/// Seats those who wish for a match. Says who got a place.
fn matchmake(cell: &Cell<'_>, plan: &mut Plan) -> Vec<ClientId> {
    let mut seated = Vec::new();
    let mut matches = cell
        .venues
        .iter()
        .filter(|venue| venue.qualifier == RuntimeQualifier::Match && venue.state != VenueState::Gone)
        .count() as u64;
    let max_matches = u64::from(cell.config.matchmaker.max_matches);
    for mode in &cell.version.modes {
        let mut candidates = candidates(cell, mode);
        for seat in cell
            .seats
            .iter()
            .filter(|seat| seat.wanted_mode.as_deref() == Some(&mode.name))
        {
            let place = candidates.iter_mut().find_map(|candidate| {
                if candidate.venue.is_some() && candidate.venue == seat.venue {
                    return None;
                }
                candidate.group_with_room(mode).map(|group| (candidate, group))
            });
            match place {
                Some((candidate, group)) => {
                    candidate.groups[group] += 1;
                    candidate.newcomers.push((seat.client, group));
                }
                None => {
                    let mut fresh = Candidate {
                        venue: None,
                        is_open: false,
                        progress: None,
                        groups: vec![0; mode.groups.len()],
                        newcomers: Vec::new(),
                    };
                    if let Some(group) = fresh.group_with_room(mode) {
                        fresh.groups[group] += 1;
                        fresh.newcomers.push((seat.client, group));
                        candidates.push(fresh);
                    }
                }
            }
        }
        let mut spare = 0;
        for candidate in &candidates {
            let ready = candidate.is_ready(mode);
            if ready
                && candidate.is_open
                && let Some(venue) = candidate.venue
            {
                for (client, group) in &candidate.newcomers {
                    let group = Some(mode.groups[*group].name.clone());
                    plan.steps.push(Step::Move {
                        client: *client,
                        venue,
                        group,
                    });
                    seated.push(*client);
                }
                continue;
            }
            let mut status = ProvisioningStatus {
                stage: ProvisioningStage::Matchmaking,
                position: None,
                detail: Some(format!("{} of {} players", candidate.total(), mode.min_players.max(1))),
            };
            if ready && candidate.venue.is_none() {
                if matches >= max_matches {
                    status.detail = Some("all matches are taken, waiting for one to end".into());
                } else if cell.retry_in_ms > 0 {
                    status = failed(cell);
                } else {
                    matches += 1;
                    plan.steps.push(Step::CreateMatch {
                        mode: mode.name.clone(),
                    });
                    status = starting(None);
                }
            } else if ready {
                status = starting(candidate.progress.as_deref());
            }
            for (client, _) in &candidate.newcomers {
                plan.steps.push(Step::Tell {
                    client: *client,
                    status: status.clone(),
                });
            }
            if candidate.venue.is_some() && candidate.total() == 0 {
                spare += 1;
            }
        }
        keep_spares(cell, mode, &candidates, spare, &mut matches, plan);
    }
    // Closed matches whose last player left.
    for venue in cell
        .venues
        .iter()
        .filter(|venue| venue.qualifier == RuntimeQualifier::Match && venue.state == VenueState::Closed)
    {
        if !cell.seats.iter().any(|seat| seat.venue == Some(venue.id)) {
            remove_when_empty(cell, venue, plan);
        }
    }
    seated
}

/// Creates spare matches that are wanted, removes those that are not.
fn keep_spares(
    cell: &Cell<'_>,
    mode: &ModeConfig,
    candidates: &[Candidate],
    spare: u32,
    matches: &mut u64,
    plan: &mut Plan,
) {
    let wanted = cell
        .config
        .matchmaker
        .modes
        .get(&mode.name)
        .map_or(0, |spares| spares.min_matches);
    let mut surplus = spare.saturating_sub(wanted);
    for candidate in candidates.iter().rev().filter(|candidate| candidate.total() == 0) {
        let Some(venue) = cell.venues.iter().find(|venue| Some(venue.id) == candidate.venue) else {
            continue;
        };
        if surplus > 0 && venue.state == VenueState::Open {
            surplus -= 1;
            remove_when_empty(cell, venue, plan);
        }
    }
    if cell.retry_in_ms == 0 {
        for _ in spare..wanted {
            if *matches < u64::from(cell.config.matchmaker.max_matches) {
                *matches += 1;
                plan.steps.push(Step::CreateMatch {
                    mode: mode.name.clone(),
                });
            }
        }
    }
}

fn remove_when_empty(cell: &Cell<'_>, venue: &Venue, plan: &mut Plan) {
    if venue.empty_for_ms >= cell.empty_ms {
        plan.steps.push(Step::Remove {
            venue: venue.id,
            reason: "nobody was in it".into(),
        });
    } else {
        plan.again_in(cell.empty_ms - venue.empty_for_ms);
    }
}

/// Matches of the mode that may take players: open ones first, the fullest first, so that they fill up.
fn candidates(cell: &Cell<'_>, mode: &ModeConfig) -> Vec<Candidate> {
    let mut candidates: Vec<Candidate> = cell
        .venues
        .iter()
        .filter(|venue| venue.qualifier == RuntimeQualifier::Match && venue.mode.as_deref() == Some(&mode.name))
        .filter(|venue| matches!(venue.state, VenueState::Open | VenueState::Pending))
        .map(|venue| {
            let mut groups = vec![0; mode.groups.len()];
            for seat in cell.seats.iter().filter(|seat| seat.venue == Some(venue.id)) {
                let group = mode
                    .groups
                    .iter()
                    .position(|group| Some(&group.name) == seat.group.as_ref());
                groups[group.unwrap_or(0)] += 1;
            }
            Candidate {
                venue: Some(venue.id),
                is_open: venue.state == VenueState::Open,
                progress: venue.progress.clone(),
                groups,
                newcomers: Vec::new(),
            }
        })
        .collect();
    candidates.sort_by_key(|candidate| {
        (
            !candidate.is_open,
            std::cmp::Reverse(candidate.total()),
            candidate.venue,
        )
    });
    candidates
}

fn starting(progress: Option<&str>) -> ProvisioningStatus {
    let stage = if progress == Some("pulling") {
        ProvisioningStage::PullingImage
    } else {
        ProvisioningStage::Starting
    };
    let detail = progress.filter(|progress| *progress != "pulling").map(str::to_owned);
    ProvisioningStatus {
        stage,
        position: None,
        detail,
    }
}

fn failed(cell: &Cell<'_>) -> ProvisioningStatus {
    let detail = cell
        .failure
        .clone()
        .or_else(|| Some("the game server did not start; trying again".into()));
    ProvisioningStatus {
        stage: ProvisioningStage::Failed,
        position: None,
        detail,
    }
}

/// Brings those who wait to lobbies, the fullest with room first, so that people meet.
fn lobbies(cell: &Cell<'_>, waiting: &[&Seat], plan: &mut Plan) {
    let room = cell.config.lobby.max_assignments;
    let mut open: BTreeMap<VenueId, u32> = BTreeMap::new();
    let mut pending: Vec<&Venue> = Vec::new();
    for venue in cell
        .venues
        .iter()
        .filter(|venue| venue.qualifier == RuntimeQualifier::Lobby)
    {
        match venue.state {
            VenueState::Open => {
                let players = cell.seats.iter().filter(|seat| seat.venue == Some(venue.id)).count();
                open.insert(venue.id, u32::try_from(players).unwrap_or(u32::MAX));
            }
            VenueState::Pending => pending.push(venue),
            VenueState::Closed | VenueState::Gone => {}
        }
    }
    let mut left_over = Vec::new();
    for seat in waiting {
        let best = open
            .iter()
            .filter(|(_, players)| **players < room)
            .max_by_key(|(id, players)| (**players, std::cmp::Reverse(**id)));
        match best.map(|(id, _)| *id) {
            Some(venue) => {
                *open.entry(venue).or_default() += 1;
                plan.steps.push(Step::Move {
                    client: seat.client,
                    venue,
                    group: None,
                });
            }
            None => left_over.push(seat),
        }
    }
    let running = open.len() + pending.len();
    let needed_for_players = left_over
        .len()
        .div_ceil(room.max(1) as usize)
        .saturating_sub(pending.len());
    let needed_for_minimum = (cell.config.min_lobbies as usize).saturating_sub(running);
    let allowed = (cell.config.max_lobbies as usize).saturating_sub(running);
    let mut status = starting(pending.iter().find_map(|venue| venue.progress.as_deref()));
    if cell.retry_in_ms == 0 {
        for _ in 0..needed_for_players.max(needed_for_minimum).min(allowed) {
            plan.steps.push(Step::CreateLobby);
        }
        if pending.is_empty() && allowed == 0 {
            status = ProvisioningStatus {
                stage: ProvisioningStage::Queued,
                position: None,
                detail: Some("all lobbies are full".into()),
            };
        }
    } else if pending.is_empty() {
        status = failed(cell);
    }
    for (index, seat) in left_over.iter().enumerate() {
        let position = u32::try_from(index + 1).ok();
        plan.steps.push(Step::Tell {
            client: seat.client,
            status: ProvisioningStatus {
                position,
                ..status.clone()
            },
        });
    }
    let mut surplus = running.saturating_sub(cell.config.min_lobbies as usize);
    for venue in cell.venues.iter().rev().filter(|venue| open.get(&venue.id) == Some(&0)) {
        if surplus > 0 && left_over.is_empty() {
            surplus -= 1;
            remove_when_empty(cell, venue, plan);
        }
    }
}
