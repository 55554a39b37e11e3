//! Matchmaking: brings those who wish for a match together, in matches that exist before new ones.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use omgservers_protocol::config::{ModeConfig, RuntimeQualifier};
use omgservers_protocol::id::ClientId;
use omgservers_protocol::message::{ProvisioningStage, ProvisioningStatus};

use super::{Cell, Plan, Seat, Seating, Step, Venue, VenueId, VenueState, failed, living, seats, starting};

/// Players that would be enough for a match that is not there.
struct Party<'a> {
    mode: &'a str,
    players: Vec<&'a Seat>,
}

/// Seats those who wish for a match. Says who left a place for it.
pub(super) fn plan(cell: &Cell<'_>, seating: &Seating<'_>, plan: &mut Plan) -> BTreeSet<ClientId> {
    let mut wishes: BTreeMap<&str, VecDeque<&Seat>> = BTreeMap::new();
    for seat in seats(cell).filter(|seat| seating.place(seat).is_some()) {
        if let Some(mode) = &seat.wanted_mode {
            wishes.entry(mode).or_default().push_back(seat);
        }
    }
    let mut moved = BTreeSet::new();
    let mut taken = BTreeSet::new();
    let mut parties = Vec::new();
    for mode in &cell.version.modes {
        let Some(mut line) = wishes.remove(mode.name.as_str()) else {
            continue;
        };
        let nearly = fill(cell, seating, mode, &mut line, &mut moved, &mut taken, plan);
        gather(mode, nearly, line, &mut parties, plan);
    }
    let mut idle = idle(cell, seating, &taken);
    let mut there = There::of(cell);
    // Whoever has waited longest gets the last match, whatever the mode.
    parties.sort_by_key(|party| party.players.first().map(|seat| seat.line));
    for party in &parties {
        start(cell, party, &mut idle, &mut there, plan);
    }
    keep_spares(cell, &idle, there, plan);
    moved
}

/// Matches when the plan is done.
struct There {
    all: usize,
    starting: usize,
}

impl There {
    fn of(cell: &Cell<'_>) -> Self {
        let is_starting = |venue: &&Venue| venue.state == VenueState::Pending;
        Self {
            all: matches(cell).count(),
            starting: matches(cell).filter(is_starting).count(),
        }
    }

    fn create(&mut self, mode: &str, plan: &mut Plan) {
        let mode = mode.to_owned();
        plan.steps.push(Step::CreateMatch { mode });
        self.all += 1;
        self.starting += 1;
    }
}

fn matches<'a>(cell: &'a Cell<'_>) -> impl Iterator<Item = &'a Venue> {
    living(cell).filter(|venue| venue.qualifier == RuntimeQualifier::Match)
}

/// Players of a match or one of its groups.
#[derive(Default, Clone, Copy)]
struct Count {
    /// They take up room.
    present: u64,
    /// They do not wish for another match: only they count for the minimum.
    staying: u64,
}

impl Count {
    fn add(&mut self, is_staying: bool) {
        self.present += 1;
        self.staying += u64::from(is_staying);
    }
}

/// A match that may take players.
struct Candidate<'a> {
    mode: &'a ModeConfig,
    all: Count,
    groups: Vec<Count>,
}

impl<'a> Candidate<'a> {
    fn empty(mode: &'a ModeConfig) -> Self {
        Self {
            mode,
            all: Count::default(),
            groups: vec![Count::default(); mode.groups.len()],
        }
    }

    fn of(mode: &'a ModeConfig, members: &[&Seat]) -> Self {
        let mut candidate = Self::empty(mode);
        for seat in members {
            let is_staying = seat.wanted_mode.is_none();
            candidate.all.add(is_staying);
            let group = |name: &String| mode.groups.iter().position(|group| group.name == *name);
            if let Some(group) = seat.group.as_ref().and_then(group) {
                candidate.groups[group].add(is_staying);
            }
        }
        candidate
    }

    /// How many more it takes to play; `None`: there is no room for so many.
    fn missing(&self) -> Option<u64> {
        let (mut missing, mut room) = (0, 0);
        for (count, group) in self.groups.iter().zip(&self.mode.groups) {
            let lacking = u64::from(group.min_players).saturating_sub(count.staying);
            let free = u64::from(group.max_players).saturating_sub(count.present);
            if lacking > free {
                return None;
            }
            missing += lacking;
            room += free;
        }
        let missing = missing.max(u64::from(self.mode.min_players).saturating_sub(self.all.staying));
        let room = room.min(u64::from(self.mode.max_players).saturating_sub(self.all.present));
        (missing <= room).then_some(missing)
    }

    /// Where the next player goes: to a group that lacks players before others, to the emptiest for its size.
    fn next_group(&self) -> Option<usize> {
        if self.all.present >= u64::from(self.mode.max_players) {
            return None;
        }
        let groups = &self.mode.groups;
        let lacks = |index: usize| self.groups[index].staying < u64::from(groups[index].min_players);
        let fill = |index: usize| self.groups[index].present;
        let max = |index: usize| u64::from(groups[index].max_players);
        (0..groups.len())
            .filter(|&index| fill(index) < max(index))
            .min_by(|&a, &b| {
                let lacking_first = lacks(b).cmp(&lacks(a));
                lacking_first
                    .then_with(|| fill(a).saturating_mul(max(b)).cmp(&fill(b).saturating_mul(max(a))))
                    .then_with(|| groups[a].name.cmp(&groups[b].name))
            })
    }

    /// Takes players from the front of the line while there is room. Nobody comes to where it is already.
    fn take<'s>(&mut self, venue: Option<VenueId>, line: &mut VecDeque<&'s Seat>) -> Vec<(&'s Seat, usize)> {
        let (mut newcomers, mut passed) = (Vec::new(), Vec::new());
        while let Some(group) = self.next_group() {
            let Some(seat) = line.pop_front() else {
                break;
            };
            if venue.is_some() && seat.venue == venue {
                passed.push(seat);
                continue;
            }
            self.all.add(true);
            self.groups[group].add(true);
            newcomers.push((seat, group));
        }
        for seat in passed.into_iter().rev() {
            line.push_front(seat);
        }
        newcomers
    }
}

/// Brings those in line to the matches of the mode that exist: those that can be played at once, the fullest first, then
/// those that lack the fewest players. One that the line cannot make playable takes nobody; the best such is returned.
fn fill<'a>(
    cell: &Cell<'_>,
    seating: &Seating<'_>,
    mode: &'a ModeConfig,
    line: &mut VecDeque<&Seat>,
    moved: &mut BTreeSet<ClientId>,
    taken: &mut BTreeSet<VenueId>,
    plan: &mut Plan,
) -> Option<Candidate<'a>> {
    let mut candidates: Vec<(u64, &Venue, Candidate<'a>)> = matches(cell)
        .filter(|venue| venue.mode.as_ref() == Some(&mode.name) && venue.state != VenueState::Closed)
        .filter_map(|venue| {
            let candidate = Candidate::of(mode, seating.members(venue));
            Some((candidate.missing()?, venue, candidate))
        })
        .collect();
    candidates.sort_by_key(|(missing, venue, candidate)| {
        let is_open = venue.state == VenueState::Open;
        (*missing, !is_open, Reverse(candidate.all.present), venue.id)
    });
    let mut nearly = None;
    // Of this line, those who are off to a match that is still starting: they stay where they are for now.
    let mut promised = BTreeSet::new();
    for (missing, venue, mut candidate) in candidates {
        let in_line = |seat: &&&Seat| {
            let wishes = seat.wanted_mode.as_ref() == Some(&mode.name) && !seat.is_dismissed;
            wishes && !moved.contains(&seat.client) && !promised.contains(&seat.client)
        };
        let own = seating.members(venue).iter().filter(in_line).count();
        if missing > (line.len() - own) as u64 {
            if candidate.all.present == candidate.all.staying {
                nearly.get_or_insert(candidate);
            }
            continue;
        }
        for (seat, group) in candidate.take(Some(venue.id), line) {
            taken.insert(venue.id);
            if venue.state != VenueState::Open {
                promised.insert(seat.client);
                plan.tell(seat, starting(venue.progress.as_deref()));
                continue;
            }
            moved.insert(seat.client);
            plan.steps.push(Step::Move {
                client: seat.client,
                venue: venue.id,
                group: Some(mode.groups[group].name.clone()),
            });
            if seating
                .place(seat)
                .is_some_and(|left| left.qualifier == RuntimeQualifier::Match)
            {
                // Somebody may want the place that became free.
                plan.again_in(0);
            }
        }
    }
    nearly
}

/// Makes parties of those who are left in line. Too few for one are told how many there are.
fn gather<'a>(
    mode: &'a ModeConfig,
    nearly: Option<Candidate<'_>>,
    mut line: VecDeque<&'a Seat>,
    parties: &mut Vec<Party<'a>>,
    plan: &mut Plan,
) {
    let empty = Candidate::empty(mode);
    let Some(enough) = empty.missing().filter(|_| empty.next_group().is_some()) else {
        for seat in line {
            let detail = format!("mode `{}` has no room for the players that it needs", mode.name);
            plan.tell(seat, matchmaking(ProvisioningStage::Failed, detail));
        }
        return;
    };
    while line.len() as u64 >= enough.max(1) {
        let newcomers = Candidate::empty(mode).take(None, &mut line);
        parties.push(Party {
            mode: &mode.name,
            players: newcomers.into_iter().map(|(seat, _)| seat).collect(),
        });
    }
    let (there, enough) = match nearly {
        Some(candidate) => {
            let there = candidate.all.staying;
            (there, there + candidate.missing().unwrap_or(enough))
        }
        None => (0, enough),
    };
    let detail = format!("{} of {enough} players", there + line.len() as u64);
    for seat in line {
        plan.tell(seat, matchmaking(ProvisioningStage::Matchmaking, detail.clone()));
    }
}

fn matchmaking(stage: ProvisioningStage, detail: String) -> ProvisioningStatus {
    ProvisioningStatus {
        stage,
        position: None,
        detail: Some(detail),
    }
}

/// Matches without players that nobody is on the way to. The last is the first to be given up: closed ones, then the newest.
fn idle<'a>(cell: &'a Cell<'_>, seating: &Seating<'_>, taken: &BTreeSet<VenueId>) -> Vec<&'a Venue> {
    let mut idle: Vec<&Venue> = matches(cell)
        .filter(|venue| seating.members(venue).is_empty() && !taken.contains(&venue.id))
        .collect();
    idle.sort_by_key(|venue| (venue.state == VenueState::Closed, venue.id));
    idle
}

/// Starts a match for the party, in the place of an idle one if there may be no more.
fn start(cell: &Cell<'_>, party: &Party<'_>, idle: &mut Vec<&Venue>, there: &mut There, plan: &mut Plan) {
    let max = cell.config.matchmaker.max_matches as usize;
    let is_full = there.all >= max;
    let status = if there.all > max || is_full && idle.is_empty() {
        let detail = "all matches are taken, waiting for one to end";
        matchmaking(ProvisioningStage::Matchmaking, detail.into())
    } else if cell.retry_in_ms > 0 {
        failed(cell)
    } else {
        if there.starting < cell.limits.starting {
            if let Some(venue) = idle.pop_if(|_| is_full) {
                plan.remove(venue, "players needed its place");
                there.all -= 1;
                there.starting -= usize::from(venue.state == VenueState::Pending);
            }
            there.create(party.mode, plan);
        }
        starting(None)
    };
    for seat in &party.players {
        plan.tell(seat, status.clone());
    }
}

/// Keeps as many idle matches as are wanted: starts those that are missing, ends those that are too many.
fn keep_spares(cell: &Cell<'_>, idle: &[&Venue], mut there: There, plan: &mut Plan) {
    let config = &cell.config.matchmaker;
    let wanted = |mode: &str| config.modes.get(mode).map_or(0, |spares| spares.min_matches);
    let (mut open, mut all) = (BTreeMap::new(), BTreeMap::new());
    for venue in idle.iter().filter(|venue| venue.state != VenueState::Closed) {
        *all.entry(mode_of(venue)).or_insert(0) += 1;
        *open.entry(mode_of(venue)).or_insert(0) += u32::from(venue.state == VenueState::Open);
    }
    for venue in idle.iter().rev() {
        let is_surplus = match venue.state {
            VenueState::Closed => true,
            VenueState::Open => {
                let open = open.entry(mode_of(venue)).or_default();
                let is_surplus = *open > wanted(mode_of(venue));
                *open -= u32::from(is_surplus);
                is_surplus
            }
            VenueState::Pending | VenueState::Gone => false,
        };
        if is_surplus && plan.remove_when_empty(cell, venue) {
            there.all -= 1;
        }
    }
    if cell.retry_in_ms > 0 {
        return;
    }
    for mode in config.modes.keys().filter(|mode| cell.version.mode(mode).is_some()) {
        for _ in all.get(mode.as_str()).copied().unwrap_or(0)..wanted(mode) {
            if there.all >= config.max_matches as usize || there.starting >= cell.limits.starting_spares {
                return;
            }
            there.create(mode, plan);
        }
    }
}

fn mode_of(venue: &Venue) -> &str {
    venue.mode.as_deref().unwrap_or_default()
}
