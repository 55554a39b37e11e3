//! Where the players of one deployment go: which lobbies and matches there should be, and who sits where.
//!
//! A plan is carried out in one transaction and nobody looks again until something happens or `again_in_ms` has passed.
//! So a plan leaves nothing to do behind it: what it frees it also gives away, or it says when to look again. What is too
//! much for one transaction is cut off and planned anew, so no step may need a later one.

mod lobby;
mod matchmaking;

use std::collections::BTreeMap;

use omgservers_protocol::config::{DeploymentConfig, RuntimeQualifier, VersionConfig};
use omgservers_protocol::id::{ClientId, MatchId};
use omgservers_protocol::message::{DisconnectReason, ProvisioningStage, ProvisioningStatus};

/// The shortest time between two looks, milliseconds.
const AGAIN_MIN_MS: u64 = 50;

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
    /// The last status that it was told.
    pub told: Option<ProvisioningStatus>,
    /// It was told to go and is on its way out.
    pub is_dismissed: bool,
}

/// How much is done at the same time.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Steps of one plan, so that its transaction stays small; the rest follows at once. Players who come to a match
    /// together are not parted: there may be so many steps more.
    pub steps: usize,
    /// Lobbies, and as many matches, that start for players who wait. When one is ready, the next may follow.
    pub starting: usize,
    /// Those that start before anybody wants them do so only while fewer than this are starting.
    pub starting_spares: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            steps: 512,
            // Twice the jobs of an instance: while one half starts, the other is being placed.
            starting: 64,
            starting_spares: 8,
        }
    }
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
    pub limits: Limits,
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
    /// The client hears why it waits, or why it was moved.
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
        let ms = ms.max(AGAIN_MIN_MS);
        self.again_in_ms = Some(self.again_in_ms.map_or(ms, |earlier| earlier.min(ms)));
    }

    /// Leaves to the next plan, at once, what is too much for this one.
    fn cut(&mut self, steps_max: usize) {
        let mut end = steps_max;
        while end < self.steps.len() && are_together(&self.steps[..end], &self.steps[end]) {
            end += 1;
        }
        if end < self.steps.len() {
            self.steps.truncate(end);
            self.again_in_ms = Some(0);
        }
    }

    /// Tells the client unless it is no news.
    fn tell(&mut self, seat: &Seat, status: ProvisioningStatus) {
        if !seat.told.as_ref().is_some_and(|told| is_same(told, &status)) {
            let client = seat.client;
            self.steps.push(Step::Tell { client, status });
        }
    }

    fn disconnect(&mut self, seat: &Seat) {
        self.steps.push(Step::Disconnect {
            client: seat.client,
            reason: DisconnectReason::InternalFailure,
        });
    }

    fn remove(&mut self, venue: &Venue, reason: &str) {
        self.steps.push(Step::Remove {
            venue: venue.id,
            reason: reason.into(),
        });
    }

    /// Removes a venue that nobody has been in for long enough, or looks again when it will be long enough. Says whether
    /// it did.
    fn remove_when_empty(&mut self, cell: &Cell<'_>, venue: &Venue) -> bool {
        let is_due = venue.empty_for_ms >= cell.empty_ms;
        if is_due {
            self.remove(venue, "nobody was in it");
        } else {
            self.again_in(cell.empty_ms - venue.empty_for_ms);
        }
        is_due
    }
}

pub fn plan(cell: &Cell<'_>) -> Plan {
    let mut plan = Plan::default();
    let seating = Seating::of(cell);
    match cell.state {
        CellState::Active => run(cell, &seating, &mut plan),
        CellState::Draining => drain(cell, &seating, &mut plan),
        CellState::Closing => close(cell, &mut plan),
    }
    plan.cut(cell.limits.steps);
    plan
}

/// Whether the next step brings another player to the match that the last one brought a player to.
fn are_together(steps: &[Step], next: &Step) -> bool {
    let to_match = |step: &Step| match step {
        Step::Move {
            venue, group: Some(_), ..
        } => Some(*venue),
        _ => None,
    };
    let last = steps.last().and_then(to_match);
    last.is_some() && last == to_match(next)
}

/// Who sits where, so that nobody has to search.
struct Seating<'a> {
    venues: BTreeMap<VenueId, &'a Venue>,
    /// In line order.
    members: BTreeMap<VenueId, Vec<&'a Seat>>,
}

impl<'a> Seating<'a> {
    fn of(cell: &'a Cell<'_>) -> Self {
        let mut members: BTreeMap<VenueId, Vec<&Seat>> = BTreeMap::new();
        for seat in &cell.seats {
            if let Some(venue) = seat.venue {
                members.entry(venue).or_default().push(seat);
            }
        }
        let venues = cell.venues.iter().map(|venue| (venue.id, venue)).collect();
        Self { venues, members }
    }

    /// The venue that the client is in, if it still exists.
    fn place(&self, seat: &Seat) -> Option<&'a Venue> {
        let venue = *self.venues.get(&seat.venue?)?;
        (venue.state != VenueState::Gone).then_some(venue)
    }

    /// Why the client lost its place, a moment ago.
    fn loss(&self, seat: &Seat) -> Option<String> {
        let Some(venue) = seat.venue else {
            // It queued in the plan before, and has not yet been told its position.
            let told = seat.told.as_ref()?;
            let is_loss = told.stage == ProvisioningStage::Queued && told.position.is_none();
            return told.detail.clone().filter(|_| is_loss);
        };
        self.venues.get(&venue)?.reason.clone()
    }

    fn members(&self, venue: &Venue) -> &[&'a Seat] {
        self.members.get(&venue.id).map_or(&[], Vec::as_slice)
    }
}

/// Clients that are to have a place.
fn seats<'a>(cell: &'a Cell<'_>) -> impl Iterator<Item = &'a Seat> {
    cell.seats.iter().filter(|seat| !seat.is_dismissed)
}

fn living<'a>(cell: &'a Cell<'_>) -> impl Iterator<Item = &'a Venue> {
    cell.venues.iter().filter(|venue| venue.state != VenueState::Gone)
}

/// The usual case: those who wish for a match get one, everybody else gets a lobby.
fn run(cell: &Cell<'_>, seating: &Seating<'_>, plan: &mut Plan) {
    if cell.retry_in_ms > 0 {
        plan.again_in(cell.retry_in_ms);
    }
    // A client whose venue is gone waits for a lobby again. Its wish for a match went with the venue that it made it in.
    let waiting: Vec<&Seat> = seats(cell).filter(|seat| seating.place(seat).is_none()).collect();
    for seat in waiting.iter().filter(|seat| seat.venue.is_some()) {
        plan.steps.push(Step::Queue { client: seat.client });
    }
    let moved = matchmaking::plan(cell, seating, plan);
    lobby::plan(cell, seating, &waiting, &moved, plan);
}

/// Those in matches may play on; nobody else is kept.
fn drain(cell: &Cell<'_>, seating: &Seating<'_>, plan: &mut Plan) {
    let is_playing = |seat: &Seat| {
        let place = seating.place(seat);
        place.is_some_and(|venue| venue.qualifier == RuntimeQualifier::Match)
    };
    for seat in seats(cell).filter(|seat| !is_playing(seat)) {
        plan.disconnect(seat);
    }
    for venue in living(cell) {
        if venue.qualifier == RuntimeQualifier::Lobby || seating.members(venue).is_empty() {
            plan.remove(venue, "a newer version was deployed");
        }
    }
}

/// Everybody goes, everything ends.
fn close(cell: &Cell<'_>, plan: &mut Plan) {
    for seat in seats(cell) {
        plan.disconnect(seat);
    }
    for venue in living(cell) {
        plan.remove(venue, "the deployment was deleted");
    }
}

fn is_same(a: &ProvisioningStatus, b: &ProvisioningStatus) -> bool {
    (a.stage, a.position, &a.detail) == (b.stage, b.position, &b.detail)
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

#[cfg(test)]
mod tests;
