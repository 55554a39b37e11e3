//! Tables of cells and what is planned for them. Steps are compared as sentences, in any order unless the order matters.

mod lobby;
mod matchmaking;

use std::ops::RangeInclusive;

use omgservers_protocol::config::{GroupConfig, ModeConfig, SpareMatches};
use proptest::prelude::*;

use super::*;

const LOBBY: RuntimeQualifier = RuntimeQualifier::Lobby;
const EMPTY_MS: u64 = 16_000;
/// Plans until a cell is said to never come to rest.
const RESTLESS: usize = 1_000;

/// A cell under construction.
#[derive(Debug, Clone)]
struct Setup {
    state: CellState,
    version: VersionConfig,
    config: DeploymentConfig,
    venues: Vec<Venue>,
    seats: Vec<Seat>,
    retry_in_ms: u64,
    failure: Option<String>,
    limits: Limits,
}

fn mode(name: &str, players: RangeInclusive<u32>, groups: &[(&str, RangeInclusive<u32>)]) -> ModeConfig {
    let group = |(name, players): &(&str, RangeInclusive<u32>)| GroupConfig {
        name: (*name).to_owned(),
        min_players: *players.start(),
        max_players: *players.end(),
    };
    ModeConfig {
        name: name.to_owned(),
        min_players: *players.start(),
        max_players: *players.end(),
        groups: groups.iter().map(group).collect(),
    }
}

fn duel() -> ModeConfig {
    mode("duel", 2..=2, &[("red", 1..=1), ("blue", 1..=1)])
}

/// Up to eight players, playable with three.
fn arena() -> ModeConfig {
    mode("arena", 3..=8, &[("all", 1..=8)])
}

/// No lobby is wanted unless somebody waits.
fn cell(modes: impl Into<Vec<ModeConfig>>) -> Setup {
    Setup {
        state: CellState::Active,
        version: VersionConfig {
            modes: modes.into(),
            user_data: None,
        },
        config: DeploymentConfig {
            min_lobbies: 0,
            ..DeploymentConfig::default()
        },
        venues: Vec::new(),
        seats: Vec::new(),
        retry_in_ms: 0,
        failure: None,
        limits: Limits::default(),
    }
}

impl Setup {
    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn venue(self, id: i64, state: VenueState, mode: Option<&str>) -> Self {
        self.with(|cell| {
            cell.venues.push(Venue {
                id: MatchId(id),
                qualifier: if mode.is_some() { RuntimeQualifier::Match } else { LOBBY },
                mode: mode.map(str::to_owned),
                state,
                reason: None,
                progress: None,
                empty_for_ms: 0,
            });
        })
    }

    fn lobby(self, id: i64) -> Self {
        self.venue(id, VenueState::Open, None)
    }

    fn a_match(self, id: i64, mode: &str) -> Self {
        self.venue(id, VenueState::Open, Some(mode))
    }

    fn change_last(self, change: impl FnOnce(&mut Venue)) -> Self {
        self.with(|cell| change(cell.venues.last_mut().unwrap()))
    }

    /// Nobody has been in the last venue for so long.
    fn empty_for(self, ms: u64) -> Self {
        self.change_last(|venue| venue.empty_for_ms = ms)
    }

    fn gone(self, reason: &str) -> Self {
        self.change_last(|venue| {
            venue.state = VenueState::Gone;
            venue.reason = Some(reason.to_owned());
        })
    }

    fn seat(self, venue: Option<i64>, group: Option<&str>, wish: Option<&str>) -> Self {
        self.with(|cell| {
            let line = cell.seats.len() as i64 + 1;
            cell.seats.push(Seat {
                client: ClientId(line),
                venue: venue.map(MatchId),
                group: group.map(str::to_owned),
                wanted_mode: wish.map(str::to_owned),
                line,
                told: None,
                is_dismissed: false,
            });
        })
    }

    /// So many wait for a lobby.
    fn waiting(self, count: usize) -> Self {
        (0..count).fold(self, |cell, _| cell.seat(None, None, None))
    }

    fn members(self, venue: i64, group: Option<&str>, count: usize) -> Self {
        (0..count).fold(self, |cell, _| cell.seat(Some(venue), group, None))
    }

    fn wishers(self, venue: i64, mode: &str, count: usize) -> Self {
        (0..count).fold(self, |cell, _| cell.seat(Some(venue), None, Some(mode)))
    }

    fn plan(&self) -> Plan {
        plan(&Cell {
            state: self.state,
            version: &self.version,
            config: &self.config,
            venues: self.venues.clone(),
            seats: self.seats.clone(),
            retry_in_ms: self.retry_in_ms,
            failure: self.failure.clone(),
            empty_ms: EMPTY_MS,
            limits: self.limits,
        })
    }

    fn sentences(&self) -> Vec<String> {
        self.plan().steps.iter().map(sentence).collect()
    }

    #[track_caller]
    fn check(&self, expected: &[&str]) {
        let mut sentences = self.sentences();
        let mut expected: Vec<String> = expected.iter().map(|&sentence| sentence.to_owned()).collect();
        sentences.sort();
        expected.sort();
        assert_eq!(sentences, expected);
    }

    #[track_caller]
    fn check_again(&self, expected: Option<u64>) {
        assert_eq!(self.plan().again_in_ms, expected);
    }
}

fn sentence(step: &Step) -> String {
    match step {
        Step::CreateLobby => "create a lobby".to_owned(),
        Step::CreateMatch { mode } => format!("create a match of {mode}"),
        Step::Remove { venue, reason } => format!("remove {venue}: {reason}"),
        Step::Move { client, venue, group } => match group {
            Some(group) => format!("{client} to {venue}, {group}"),
            None => format!("{client} to {venue}"),
        },
        Step::Queue { client } => format!("{client} queues"),
        Step::Tell { client, status } => {
            let mut text = format!("tell {client} {:?}", status.stage);
            if let Some(position) = status.position {
                text += &format!(" #{position}");
            }
            if let Some(detail) = &status.detail {
                text += &format!(": {detail}");
            }
            text
        }
        Step::Disconnect { client, .. } => format!("{client} goes"),
    }
}

#[test]
fn a_cell_in_which_nothing_happens_is_left_alone() {
    cell([duel()]).check(&[]);
    let busy = cell([duel()]).lobby(1).members(1, None, 3).a_match(2, "duel");
    let busy = busy.members(2, Some("red"), 1).members(2, Some("blue"), 1);
    busy.check(&[]);
    busy.check_again(None);
}

#[test]
fn a_draining_cell_lets_matches_end_in_peace_and_keeps_nobody_else() {
    let newer = "a newer version was deployed";
    let cell = cell([duel()]).with(|cell| cell.state = CellState::Draining);
    let cell = cell.lobby(1).members(1, None, 1).wishers(1, "duel", 1);
    let cell = cell.a_match(2, "duel").members(2, Some("red"), 1);
    let cell = cell
        .venue(3, VenueState::Closed, Some("duel"))
        .members(3, Some("red"), 1);
    let cell = cell.venue(4, VenueState::Pending, Some("duel")).a_match(5, "duel");
    let cell = cell
        .a_match(6, "duel")
        .gone("it died")
        .members(6, Some("red"), 1)
        .waiting(1);
    let removed = [1, 4, 5].map(|venue| format!("remove {venue}: {newer}"));
    cell.check(&[
        "1 goes",
        "2 goes",
        "5 goes",
        "6 goes",
        &removed[0],
        &removed[1],
        &removed[2],
    ]);
}

#[test]
fn a_closing_cell_ends_everything() {
    let deleted = "the deployment was deleted";
    let cell = cell([duel()]).with(|cell| cell.state = CellState::Closing);
    let cell = cell
        .lobby(1)
        .members(1, None, 1)
        .a_match(2, "duel")
        .members(2, Some("red"), 1);
    let cell = cell
        .venue(3, VenueState::Pending, None)
        .lobby(4)
        .gone("it died")
        .waiting(1);
    let removed = [1, 2, 3].map(|venue| format!("remove {venue}: {deleted}"));
    cell.check(&["1 goes", "2 goes", "3 goes", &removed[0], &removed[1], &removed[2]]);
}

#[test]
fn who_was_told_to_go_is_not_told_again_and_gets_no_place() {
    for state in [CellState::Active, CellState::Draining, CellState::Closing] {
        cell([duel()])
            .waiting(2)
            .with(|cell| {
                cell.state = state;
                cell.seats.iter_mut().for_each(|seat| seat.is_dismissed = true);
            })
            .check(&[]);
    }
}

/// What the steps make of the cell; new venues get ids from 1,000 on.
fn carry_out(cell: &mut Setup, steps: &[Step]) {
    let reason_of = |cell: &Setup, id: Option<VenueId>| {
        let venue = cell.venues.iter().find(|venue| Some(venue.id) == id);
        venue.and_then(|venue| venue.reason.clone())
    };
    for step in steps {
        let index = |client: &ClientId| cell.seats.iter().position(|seat| seat.client == *client).unwrap();
        match step {
            Step::CreateLobby | Step::CreateMatch { .. } => {
                let mode = match step {
                    Step::CreateMatch { mode } => Some(mode.as_str()),
                    _ => None,
                };
                let id = 1_000 + cell.venues.len() as i64;
                *cell = cell.clone().venue(id, VenueState::Pending, mode);
            }
            Step::Remove { venue, reason } => {
                let venue = cell.venues.iter_mut().find(|candidate| candidate.id == *venue).unwrap();
                (venue.state, venue.reason) = (VenueState::Gone, Some(reason.clone()));
            }
            Step::Move { client, venue, group } => {
                let index = index(client);
                let seat = &mut cell.seats[index];
                let left = seat.venue.replace(*venue);
                (seat.group, seat.wanted_mode, seat.told) = (group.clone(), None, None);
                if let Some(venue) = cell.venues.iter_mut().find(|venue| Some(venue.id) == left) {
                    venue.empty_for_ms = 0;
                }
            }
            Step::Queue { client } => {
                let index = index(client);
                let told = reason_of(cell, cell.seats[index].venue).map(|reason| ProvisioningStatus {
                    stage: ProvisioningStage::Queued,
                    position: None,
                    detail: Some(reason),
                });
                let seat = &mut cell.seats[index];
                (seat.venue, seat.group, seat.wanted_mode, seat.told) = (None, None, None, told);
            }
            Step::Tell { client, status } => {
                let index = index(client);
                cell.seats[index].told = Some(status.clone());
            }
            Step::Disconnect { client, .. } => {
                let index = index(client);
                let seat = &mut cell.seats[index];
                (seat.venue, seat.is_dismissed) = (None, true);
            }
        }
    }
}

/// Plans and carries out until nothing is left to do at once. How many steps each plan had.
fn batches(cell: &mut Setup) -> Vec<usize> {
    let mut sizes = Vec::new();
    while sizes.len() < RESTLESS {
        let plan = cell.plan();
        carry_out(cell, &plan.steps);
        sizes.push(plan.steps.len());
        if plan.again_in_ms != Some(0) {
            return sizes;
        }
    }
    panic!("there is always more to do: {cell:?}");
}

/// Two thousand players in five hundred venues.
fn crowd() -> Setup {
    (0..500).fold(cell([duel()]), |cell, id| {
        let mode = (id >= 20).then_some("duel");
        cell.venue(id, VenueState::Open, mode).members(id, None, 4)
    })
}

#[test]
fn a_crowd_is_sent_home_in_batches() {
    for state in [CellState::Closing, CellState::Draining] {
        let mut cell = crowd().with(|cell| cell.state = state);
        let sizes = batches(&mut cell);
        let expected: &[usize] = match state {
            CellState::Closing => &[512, 512, 512, 512, 452],
            _ => &[100],
        };
        assert_eq!(sizes, expected, "{state:?}");
        let is_over =
            |seat: &Seat| seat.is_dismissed || state == CellState::Draining && seat.venue >= Some(MatchId(20));
        assert!(cell.seats.iter().all(is_over));
        let is_over =
            |venue: &Venue| venue.state == VenueState::Gone || state == CellState::Draining && venue.id >= MatchId(20);
        assert!(cell.venues.iter().all(is_over));
        cell.check(&[]);
    }
}

#[test]
fn a_crowd_whose_places_are_gone_is_brought_elsewhere_in_batches() {
    let reason = "the host vanished";
    let mut cell = crowd().with(|cell| {
        for venue in &mut cell.venues {
            (venue.state, venue.reason) = (VenueState::Gone, Some(reason.into()));
        }
        cell.config.lobby.max_assignments = 1_000;
    });
    cell = cell.lobby(600).lobby(601);
    let sizes = batches(&mut cell);
    assert!(sizes.iter().all(|size| *size <= cell.limits.steps), "{sizes:?}");
    // Each queues, moves and reads why.
    assert_eq!(sizes.iter().sum::<usize>(), 3 * 2_000, "{sizes:?}");
    for seat in &cell.seats {
        assert!(seat.venue >= Some(MatchId(600)), "{seat:?}");
        let told = seat.told.as_ref().unwrap();
        assert_eq!(
            (told.stage, told.detail.as_deref()),
            (ProvisioningStage::Ready, Some(reason))
        );
    }
}

#[test]
fn players_of_one_match_are_not_parted_by_the_size_of_a_plan() {
    let base = cell([arena()]).lobby(1).a_match(2, "arena").a_match(3, "arena");
    let mut cell = base.wishers(1, "arena", 11).with(|cell| cell.limits.steps = 3);
    assert_eq!(batches(&mut cell), [8, 3]);
    let mut cell = cell.with(|cell| cell.limits.steps = 1);
    assert_eq!(batches(&mut cell), [0]);
}

#[test]
fn what_makes_room_comes_before_what_takes_it() {
    // Cut anywhere, there is never one match too many.
    let full = cell([duel(), arena()]).with(|cell| {
        cell.config.matchmaker.max_matches = 1;
        cell.limits.steps = 1;
    });
    let full = full.lobby(1).a_match(2, "duel").wishers(1, "arena", 3);
    full.check(&["remove 2: players needed its place"]);
    full.check_again(Some(0));
}

#[test]
fn what_was_told_before_is_not_told_again() {
    let mut cell = cell([duel()]).lobby(1).wishers(1, "duel", 3);
    assert_eq!(batches(&mut cell), [4]);
    cell.check(&[]);
    // The third plays instead of the first: for the second nothing is new.
    cell.seats[0].wanted_mode = None;
    cell.venues.pop();
    cell.check(&["create a match of duel", "tell 3 Starting"]);
}

fn creations(cell: &Setup) -> usize {
    let sentences = cell.sentences();
    sentences
        .iter()
        .filter(|sentence| sentence.starts_with("create"))
        .count()
}

#[test]
fn a_burst_starts_in_pieces() {
    let burst = cell([duel()]).with(|cell| cell.config.matchmaker.max_matches = 10_000);
    let burst = burst.lobby(1).wishers(1, "duel", 1_000);
    let starting = burst.limits.starting;
    assert_eq!(creations(&burst), starting);
    // The next follows when one is ready, which is an event: nobody has to look again before.
    let mut cell = burst;
    batches(&mut cell);
    assert_eq!(creations(&cell), 0);
    cell.check_again(None);
    cell.venues.last_mut().unwrap().state = VenueState::Open;
    assert_eq!(creations(&cell), 1);
    // The same for lobbies; the matches do not stand in their way.
    cell = cell.with(|cell| {
        cell.config.lobby.max_assignments = 1;
        cell.config.max_lobbies = 1_000;
    });
    cell = cell.waiting(100);
    assert_eq!(creations(&cell), 1 + starting);
}

#[test]
fn however_many_spares_are_wanted_few_of_them_start_at_a_time() {
    let greedy = cell([duel()]).with(|cell| {
        cell.config.max_lobbies = 1_000;
        cell.config.min_lobbies = 1_000;
        cell.config.matchmaker.max_matches = 100_000;
        let spares = SpareMatches { min_matches: 100_000 };
        cell.config.matchmaker.modes.insert("duel".into(), spares);
    });
    let mut cell = greedy;
    let spares = cell.limits.starting_spares;
    assert_eq!(batches(&mut cell), [2 * spares]);
    cell.check(&[]);
    cell.check_again(None);
    // One opened, one was given up: two may follow, each of its kind.
    cell.venues[0].state = VenueState::Open;
    cell.venues.last_mut().unwrap().state = VenueState::Gone;
    cell.check(&["create a lobby", "create a match of duel"]);
    // Players do not wait for spares.
    let mut cell = cell.wishers(1_000, "duel", 2 * 20).waiting(1);
    let sizes = batches(&mut cell);
    let matches = cell
        .venues
        .iter()
        .filter(|venue| venue.mode.is_some() && venue.state == VenueState::Pending);
    assert_eq!(matches.count(), 20, "{sizes:?}");
}

/// Cells that the database could never hold, too: unknown venues, groups and modes, modes that nobody can play.
fn any_cell() -> impl Strategy<Value = Setup> {
    let name = || prop_oneof![Just("a"), Just("b"), Just("unknown")];
    let number = || prop_oneof![4 => 0..6_u32, 1 => Just(u32::MAX)];
    let group = (name(), number(), number()).prop_map(|(name, min, max)| (name, min..=max));
    let groups = prop::collection::vec(group, 0..3);
    let modes = prop::collection::vec((name(), number(), number(), groups), 0..3);
    let state = prop_oneof![
        Just(VenueState::Pending),
        Just(VenueState::Open),
        Just(VenueState::Closed),
        Just(VenueState::Gone)
    ];
    let venue = (state, prop::option::of(name()), any::<bool>(), 0..40_000_u64);
    let seat = (
        prop::option::of(0..10_i64),
        prop::option::of(name()),
        prop::option::of(name()),
        prop::bool::weighted(0.1),
    );
    let venues = prop::collection::vec(venue, 0..8);
    let seats = prop::collection::vec(seat, 0..40);
    let limits = [(); 5].map(|()| number());
    let cell_state = prop_oneof![
        8 => Just(CellState::Active),
        1 => Just(CellState::Draining),
        1 => Just(CellState::Closing)
    ];
    let retry = prop_oneof![3 => Just(0_u64), 1 => any::<u64>()];
    (cell_state, modes, venues, seats, limits, retry).prop_map(|(state, modes, venues, seats, limits, retry)| {
        let modes: Vec<ModeConfig> = modes
            .iter()
            .map(|(name, min, max, groups)| mode(name, *min..=*max, groups))
            .collect();
        let [min_lobbies, max_lobbies, max_assignments, max_matches, min_matches] = limits;
        let setup = cell(modes).with(|cell| {
            cell.state = state;
            cell.retry_in_ms = retry;
            cell.config.min_lobbies = min_lobbies;
            cell.config.max_lobbies = max_lobbies;
            cell.config.lobby.max_assignments = max_assignments;
            cell.config.matchmaker.max_matches = max_matches;
            let spares = SpareMatches { min_matches };
            cell.config.matchmaker.modes.insert("a".into(), spares);
        });
        let setup = (0..)
            .zip(venues)
            .fold(setup, |cell, (id, (state, mode, is_lobby, empty_for))| {
                let cell = cell.venue(id, state, mode).empty_for(empty_for);
                if is_lobby {
                    cell.change_last(|venue| venue.qualifier = LOBBY)
                } else {
                    cell
                }
            });
        seats
            .into_iter()
            .fold(setup, |cell, (venue, group, wish, is_dismissed)| {
                let cell = cell.seat(venue, group, wish);
                cell.with(|cell| cell.seats.last_mut().unwrap().is_dismissed = is_dismissed)
            })
    })
}

fn living_of(cell: &Setup, qualifier: RuntimeQualifier) -> usize {
    let is_living = |venue: &&Venue| match venue.state {
        VenueState::Pending | VenueState::Open => venue.qualifier == qualifier,
        // There is no such lobby.
        VenueState::Closed => venue.qualifier == qualifier && qualifier == RuntimeQualifier::Match,
        VenueState::Gone => false,
    };
    cell.venues.iter().filter(is_living).count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn plans_that_are_cut_come_to_an_end_and_never_go_too_far(setup in any_cell(), steps in 1..8_usize) {
        let mut cell = setup.clone().with(|cell| cell.limits.steps = steps);
        // What was too much before need not be less, but never becomes more.
        let lobbies_max = living_of(&setup, LOBBY).max(setup.config.max_lobbies as usize);
        let matches_max = living_of(&setup, RuntimeQualifier::Match).max(setup.config.matchmaker.max_matches as usize);
        for _ in 0..RESTLESS {
            let plan = cell.plan();
            prop_assert!(plan.steps.len() < steps + cell.seats.len().max(1));
            carry_out(&mut cell, &plan.steps);
            prop_assert!(living_of(&cell, LOBBY) <= lobbies_max);
            prop_assert!(living_of(&cell, RuntimeQualifier::Match) <= matches_max);
            if plan.again_in_ms != Some(0) {
                return Ok(());
            }
            prop_assert!(!plan.steps.is_empty(), "nothing was done and the rest is still to follow");
        }
        prop_assert!(false, "there is always more to do");
    }

    #[test]
    fn any_cell_gets_a_plan_that_can_be_carried_out(setup in any_cell()) {
        let plan = setup.plan();
        let mut placed = BTreeMap::new();
        for step in &plan.steps {
            match step {
                Step::Move { client, venue, .. } => {
                    prop_assert!(placed.insert(*client, *venue).is_none(), "{client} is moved twice");
                    let target = setup.venues.iter().find(|candidate| candidate.id == *venue);
                    prop_assert!(target.is_some_and(|venue| venue.state == VenueState::Open));
                    let removed = |step: &Step| matches!(step, Step::Remove { venue: gone, .. } if gone == venue);
                    prop_assert!(!plan.steps.iter().any(removed), "{client} is moved to what is removed");
                }
                Step::Remove { venue, .. } => {
                    let target = setup.venues.iter().find(|candidate| candidate.id == *venue);
                    prop_assert!(target.is_some());
                }
                Step::CreateLobby | Step::CreateMatch { .. } => {
                    prop_assert!(setup.state == CellState::Active && setup.retry_in_ms == 0);
                }
                Step::Disconnect { .. } => prop_assert!(setup.state != CellState::Active),
                Step::Queue { .. } | Step::Tell { .. } => {}
            }
        }
        prop_assert!(plan.again_in_ms.is_none_or(|ms| ms >= AGAIN_MIN_MS));
    }
}
