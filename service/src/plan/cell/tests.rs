//! Tables of cells and what is planned for them. Steps are compared as sentences, in any order unless the order matters.

use std::ops::RangeInclusive;

use omgservers_protocol::config::{GroupConfig, ModeConfig, SpareMatches};
use proptest::prelude::*;

use super::*;

const LOBBY: RuntimeQualifier = RuntimeQualifier::Lobby;
const EMPTY_MS: u64 = 16_000;

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
fn a_match_is_created_when_enough_wish_for_it_and_not_before() {
    let base = cell([duel()]).lobby(1);
    base.clone()
        .wishers(1, "duel", 1)
        .check(&["tell 1 Matchmaking: 1 of 2 players"]);
    base.clone()
        .wishers(1, "duel", 2)
        .check(&["create a match of duel", "tell 1 Starting", "tell 2 Starting"]);
    base.wishers(1, "duel", 5).check(&[
        "create a match of duel",
        "create a match of duel",
        "tell 1 Starting",
        "tell 2 Starting",
        "tell 3 Starting",
        "tell 4 Starting",
        "tell 5 Matchmaking: 1 of 2 players",
    ]);
}

#[test]
fn a_match_is_not_created_twice_for_the_same_players() {
    let pending = cell([duel()]).lobby(1).venue(2, VenueState::Pending, Some("duel"));
    let pending = pending.wishers(1, "duel", 2);
    pending.check(&["tell 1 Starting", "tell 2 Starting"]);
    for (progress, expected) in [
        ("pulling", "PullingImage"),
        ("starting the game server", "Starting: starting the game server"),
    ] {
        let told = [format!("tell 1 {expected}"), format!("tell 2 {expected}")];
        pending
            .clone()
            .change_last(|venue| venue.progress = Some(progress.into()))
            .check(&[&told[0], &told[1]]);
    }
}

#[test]
fn players_move_when_the_match_opens_into_balanced_groups() {
    cell([duel()])
        .lobby(1)
        .a_match(2, "duel")
        .wishers(1, "duel", 2)
        .check(&["1 to 2, blue", "2 to 2, red"]);
    // By relative fill: a group of six takes two while a group of three takes one.
    let uneven = mode("raid", 2..=9, &[("attack", 1..=6), ("defend", 1..=3)]);
    cell([uneven])
        .lobby(1)
        .a_match(2, "raid")
        .wishers(1, "raid", 6)
        .check(&[
            "1 to 2, attack",
            "2 to 2, defend",
            "3 to 2, attack",
            "4 to 2, attack",
            "5 to 2, defend",
            "6 to 2, attack",
        ]);
}

#[test]
fn matches_that_are_played_fill_up_before_others_start() {
    let base = cell([arena()]).lobby(1).a_match(2, "arena").a_match(3, "arena");
    let played = base.members(2, Some("all"), 4).members(3, Some("all"), 6);
    played.clone().wishers(1, "arena", 3).check(&[
        "11 to 3, all", // the fullest
        "12 to 3, all",
        "13 to 2, all",
    ]);
    let mut expected: Vec<String> = vec!["11 to 3, all".into(), "12 to 3, all".into()];
    expected.extend((13..=16).map(|client| format!("{client} to 2, all")));
    expected.push("tell 17 Matchmaking: 1 of 3 players".into());
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    played.wishers(1, "arena", 7).check(&expected);
}

#[test]
fn an_open_match_is_preferred_to_one_that_still_starts() {
    cell([duel()])
        .lobby(1)
        .venue(2, VenueState::Pending, Some("duel"))
        .a_match(3, "duel")
        .wishers(1, "duel", 2)
        .check(&["1 to 3, blue", "2 to 3, red"]);
}

#[test]
fn a_match_below_its_minimum_waits_for_enough_players_at_once() {
    let base = cell([arena()]).lobby(1).a_match(2, "arena").members(2, Some("all"), 1);
    base.clone()
        .wishers(1, "arena", 1)
        .check(&["tell 2 Matchmaking: 2 of 3 players"]);
    base.wishers(1, "arena", 2).check(&["2 to 2, all", "3 to 2, all"]);
}

#[test]
fn a_fuller_match_that_cannot_be_played_does_not_hold_players_back() {
    // The fuller one lacks three in its second group; the other is being played and has room.
    let mode = mode("siege", 4..=9, &[("in", 1..=6), ("out", 3..=6)]);
    let played = cell([mode]).lobby(1).a_match(2, "siege").members(2, Some("in"), 5);
    let played = played
        .a_match(3, "siege")
        .members(3, Some("in"), 1)
        .members(3, Some("out"), 3);
    played.clone().wishers(1, "siege", 1).check(&["10 to 3, in"]);
    // The line can fill only what the first match still has room for.
    let mode_is_whole = played.wishers(1, "siege", 8).sentences();
    assert!(mode_is_whole.contains(&"15 to 2, out".to_owned()), "{mode_is_whole:?}");
}

#[test]
fn the_minimum_of_every_group_is_met_before_any_group_grows() {
    // By relative fill alone the big group would take all the room, and the match could never be played.
    let mode = mode("hunt", 2..=4, &[("crew", 1..=10), ("hunters", 2..=2)]);
    let base = cell([mode]).lobby(1).a_match(2, "hunt");
    base.clone().wishers(1, "hunt", 2).check(&[
        "tell 1 Matchmaking: 2 of 3 players",
        "tell 2 Matchmaking: 2 of 3 players",
    ]);
    base.wishers(1, "hunt", 4)
        .check(&["1 to 2, crew", "2 to 2, hunters", "3 to 2, hunters", "4 to 2, crew"]);
}

#[test]
fn a_match_without_room_for_what_it_lacks_takes_nobody() {
    // Two hunters left; the crew has taken all places but one.
    let mode = mode("hunt", 2..=4, &[("crew", 1..=10), ("hunters", 2..=2)]);
    let crew = cell([mode]).lobby(1).a_match(2, "hunt").members(2, Some("crew"), 3);
    crew.clone()
        .wishers(1, "hunt", 1)
        .check(&["tell 4 Matchmaking: 1 of 3 players"]);
    crew.wishers(1, "hunt", 3).check(&[
        "create a match of hunt",
        "tell 4 Starting",
        "tell 5 Starting",
        "tell 6 Starting",
    ]);
}

#[test]
fn no_match_takes_more_than_its_maximum() {
    let full = cell([duel()]).lobby(1).a_match(2, "duel").members(2, Some("red"), 1);
    full.clone()
        .members(2, Some("blue"), 1)
        .wishers(1, "duel", 1)
        .check(&["tell 3 Matchmaking: 1 of 2 players"]);
    full.wishers(1, "duel", 2)
        .check(&["2 to 2, blue", "tell 3 Matchmaking: 1 of 2 players"]);
    // The groups hold more than the mode allows.
    let capped = mode("cap", 1..=3, &[("a", 1..=3), ("b", 1..=3)]);
    cell([capped]).lobby(1).a_match(2, "cap").wishers(1, "cap", 4).check(&[
        "1 to 2, a",
        "2 to 2, b",
        "3 to 2, a",
        "tell 4 Matchmaking: 1 of 2 players",
    ]);
}

#[test]
fn a_closed_match_takes_nobody_and_goes_when_it_is_empty() {
    let closed = cell([arena()]).lobby(1).venue(2, VenueState::Closed, Some("arena"));
    closed
        .clone()
        .members(2, Some("all"), 3)
        .wishers(1, "arena", 1)
        .check(&["tell 4 Matchmaking: 1 of 3 players"]);
    let recently = closed.clone().empty_for(EMPTY_MS - 1_000).members(1, None, 1);
    recently.check(&[]);
    recently.check_again(Some(1_000));
    closed
        .empty_for(EMPTY_MS)
        .members(1, None, 1)
        .check(&["remove 2: nobody was in it"]);
}

#[test]
fn players_of_a_match_can_wish_for_the_next_one() {
    // Both want a rematch: they get a new match together, not the one that they are in.
    let over = cell([duel()]).a_match(2, "duel");
    let over = over
        .seat(Some(2), Some("red"), Some("duel"))
        .seat(Some(2), Some("blue"), Some("duel"));
    over.check(&["create a match of duel", "tell 1 Starting", "tell 2 Starting"]);
    over.clone().a_match(3, "duel").check(&["1 to 3, blue", "2 to 3, red"]);
    // Their old places may be wanted.
    over.a_match(3, "duel").check_again(Some(50));
}

#[test]
fn who_wishes_to_leave_a_match_does_not_count_for_its_minimum() {
    let base = cell([arena()]).lobby(1).a_match(2, "arena").members(2, Some("all"), 2);
    let leaving = base.seat(Some(2), Some("all"), Some("arena"));
    // Two stay, one comes: three, whoever goes.
    leaving
        .clone()
        .wishers(1, "arena", 1)
        .check(&["4 to 2, all", "tell 3 Matchmaking: 1 of 3 players"]);
    let most_leave = cell([arena()]).lobby(1).a_match(2, "arena").members(2, Some("all"), 1);
    let most_leave = most_leave
        .seat(Some(2), Some("all"), Some("arena"))
        .seat(Some(2), Some("all"), Some("arena"));
    most_leave.wishers(1, "arena", 1).check(&[
        "create a match of arena",
        "tell 2 Starting",
        "tell 3 Starting",
        "tell 4 Starting",
    ]);
}

#[test]
fn whoever_wishes_for_a_mode_that_cannot_be_played_is_told() {
    let why = "tell 1 Failed: mode `odd` has no room for the players that it needs";
    for mode in [
        mode("odd", 0..=0, &[("all", 1..=1)]),
        mode("odd", 0..=4, &[]),
        mode("odd", 1..=4, &[("all", 0..=0)]),
        mode("odd", 3..=3, &[("all", 1..=2)]),
        mode("odd", 1..=3, &[("red", 2..=2), ("blue", 2..=2)]),
    ] {
        cell([mode]).lobby(1).wishers(1, "odd", 1).check(&[why]);
    }
}

#[test]
fn nobody_gets_two_places() {
    // The same mode twice, and a match that is wished for by somebody whose lobby is gone.
    let twice = cell([duel(), duel()]).lobby(1).a_match(2, "duel").a_match(3, "duel");
    twice.wishers(1, "duel", 2).check(&["1 to 2, blue", "2 to 2, red"]);
    cell([duel()])
        .lobby(1)
        .a_match(2, "duel")
        .wishers(1, "duel", 1)
        .lobby(3)
        .gone("the game server ended")
        .wishers(3, "duel", 1)
        .check(&[
            "2 queues",
            "2 to 1",
            "tell 2 Ready: the game server ended",
            "tell 1 Matchmaking: 1 of 2 players",
        ]);
}

#[test]
fn spare_matches_are_kept_and_replaced_as_they_are_taken() {
    let spares = |count: u32| {
        cell([duel()]).lobby(1).members(1, None, 1).with(|cell| {
            let spares = SpareMatches { min_matches: count };
            cell.config.matchmaker.modes.insert("duel".into(), spares);
        })
    };
    spares(2).check(&["create a match of duel", "create a match of duel"]);
    spares(2)
        .venue(2, VenueState::Pending, Some("duel"))
        .a_match(3, "duel")
        .check(&[]);
    spares(1).a_match(2, "duel").wishers(1, "duel", 2).check(&[
        "2 to 2, blue",
        "3 to 2, red",
        "create a match of duel",
    ]);
    // One player alone does not use up the spare match.
    spares(1)
        .a_match(2, "duel")
        .wishers(1, "duel", 1)
        .check(&["tell 2 Matchmaking: 1 of 2 players"]);
}

#[test]
fn surplus_matches_go_after_the_empty_time_and_not_before() {
    let base = cell([duel()]).lobby(1).members(1, None, 1);
    let one = base.clone().a_match(2, "duel");
    one.check_again(Some(EMPTY_MS));
    one.check(&[]);
    one.empty_for(EMPTY_MS).check(&["remove 2: nobody was in it"]);
    // The wanted ones stay however long, the newest goes; one that still starts is no reason to end one that runs.
    let spare = base.with(|cell| {
        let spares = SpareMatches { min_matches: 1 };
        cell.config.matchmaker.modes.insert("duel".into(), spares);
    });
    let kept = spare.a_match(2, "duel").empty_for(EMPTY_MS);
    kept.clone().venue(3, VenueState::Pending, Some("duel")).check(&[]);
    kept.a_match(3, "duel")
        .empty_for(EMPTY_MS)
        .check(&["remove 3: nobody was in it"]);
}

#[test]
fn there_are_never_more_matches_than_allowed() {
    let limited = cell([duel(), arena()])
        .with(|cell| cell.config.matchmaker.max_matches = 1)
        .lobby(1);
    let taken = "Matchmaking: all matches are taken, waiting for one to end";
    let both = [format!("tell 3 {taken}"), format!("tell 4 {taken}")];
    limited.clone().wishers(1, "duel", 4).check(&[
        "create a match of duel",
        "tell 1 Starting",
        "tell 2 Starting",
        &both[0],
        &both[1],
    ]);
    let played = limited.clone().a_match(2, "duel");
    let played = played.members(2, Some("red"), 1).members(2, Some("blue"), 1);
    played.wishers(1, "duel", 2).check(&[&both[0], &both[1]]);
    // Who waited longest gets the last one, though the other mode comes first.
    let fair = limited.wishers(1, "arena", 3).wishers(1, "duel", 2);
    let told = [format!("tell 4 {taken}"), format!("tell 5 {taken}")];
    fair.check(&[
        "create a match of arena",
        "tell 1 Starting",
        "tell 2 Starting",
        "tell 3 Starting",
        &told[0],
        &told[1],
    ]);
}

#[test]
fn an_idle_match_makes_room_for_players_of_another_mode() {
    let base = cell([duel(), arena()]).lobby(1).with(|cell| {
        cell.config.matchmaker.max_matches = 1;
        let spares = SpareMatches { min_matches: 1 };
        cell.config.matchmaker.modes.insert("duel".into(), spares);
    });
    // Players come before spares …
    let start = [
        "create a match of arena",
        "tell 1 Starting",
        "tell 2 Starting",
        "tell 3 Starting",
    ];
    base.clone().wishers(1, "arena", 3).check(&start);
    // … even before those that are there.
    let mut instead = start.to_vec();
    instead.push("remove 2: players needed its place");
    base.clone().a_match(2, "duel").wishers(1, "arena", 3).check(&instead);
    base.a_match(2, "duel").wishers(1, "arena", 2).check(&[
        "tell 1 Matchmaking: 2 of 3 players",
        "tell 2 Matchmaking: 2 of 3 players",
    ]);
}

#[test]
fn those_who_wait_go_to_the_fullest_lobby_with_room() {
    let lobbies = cell([]).with(|cell| cell.config.lobby.max_assignments = 3);
    let lobbies = lobbies.lobby(1).members(1, None, 1).lobby(2).members(2, None, 2);
    let lobbies = lobbies.lobby(3).members(3, None, 3);
    lobbies.clone().waiting(1).check(&["7 to 2"]);
    lobbies
        .waiting(4)
        .check(&["7 to 2", "8 to 1", "9 to 1", "create a lobby", "tell 10 Starting #1"]);
}

#[test]
fn lobbies_are_started_for_those_who_wait_up_to_the_limit() {
    let small = cell([]).with(|cell| {
        cell.config.lobby.max_assignments = 2;
        cell.config.max_lobbies = 2;
    });
    small.clone().waiting(3).check(&[
        "create a lobby",
        "create a lobby",
        "tell 1 Starting #1",
        "tell 2 Starting #2",
        "tell 3 Starting #3",
    ]);
    let pending = small
        .clone()
        .venue(1, VenueState::Pending, None)
        .change_last(|venue| venue.progress = Some("pulling".into()));
    pending
        .clone()
        .waiting(2)
        .check(&["tell 1 PullingImage #1", "tell 2 PullingImage #2"]);
    // The fifth finds no room in what starts.
    pending.waiting(5).check(&[
        "create a lobby",
        "tell 1 PullingImage #1",
        "tell 2 PullingImage #2",
        "tell 3 PullingImage #3",
        "tell 4 PullingImage #4",
        "tell 5 Queued #5: all lobbies are full",
    ]);
    small
        .lobby(1)
        .members(1, None, 2)
        .lobby(2)
        .members(2, None, 2)
        .waiting(1)
        .check(&["tell 5 Queued #1: all lobbies are full"]);
}

#[test]
fn the_wanted_number_of_lobbies_runs_without_players() {
    let base = cell([]).with(|cell| cell.config.min_lobbies = 2);
    base.check(&["create a lobby", "create a lobby"]);
    base.clone().lobby(1).check(&["create a lobby"]);
    base.clone().lobby(1).venue(2, VenueState::Pending, None).check(&[]);
    // Those that end do not count.
    base.lobby(1).lobby(2).gone("it died").check(&["create a lobby"]);
}

#[test]
fn idle_lobbies_beyond_the_wanted_number_go_after_the_empty_time() {
    let base = cell([])
        .with(|cell| cell.config.min_lobbies = 1)
        .lobby(1)
        .empty_for(EMPTY_MS);
    base.check(&[]);
    let two = base.clone().lobby(2).empty_for(1_000);
    two.check(&[]);
    two.check_again(Some(15_000));
    let long = base.clone().lobby(2).empty_for(EMPTY_MS);
    long.check(&["remove 2: nobody was in it"]);
    long.check_again(None);
    // One that starts is no reason to end one that runs.
    base.venue(2, VenueState::Pending, None).check(&[]);
    // With players in the other, the empty one is surplus.
    let occupied = cell([])
        .with(|cell| cell.config.min_lobbies = 1)
        .lobby(1)
        .members(1, None, 1);
    occupied
        .lobby(2)
        .empty_for(EMPTY_MS)
        .check(&["remove 2: nobody was in it"]);
}

#[test]
fn a_lobby_that_empties_now_has_its_whole_empty_time_before_it() {
    // Its stamp is from before the players came.
    let leaving = cell([duel()]).lobby(1).empty_for(10 * EMPTY_MS).a_match(2, "duel");
    let leaving = leaving.wishers(1, "duel", 2);
    leaving.check(&["1 to 2, blue", "2 to 2, red"]);
    leaving.check_again(Some(EMPTY_MS));
}

#[test]
fn a_place_in_a_lobby_that_becomes_free_is_given_away_at_once() {
    let full = cell([duel()]).with(|cell| {
        cell.config.lobby.max_assignments = 2;
        cell.config.max_lobbies = 1;
    });
    full.lobby(1)
        .a_match(2, "duel")
        .wishers(1, "duel", 2)
        .waiting(1)
        .check(&["1 to 2, blue", "2 to 2, red", "3 to 1"]);
}

#[test]
fn nothing_starts_while_starts_fail_and_players_are_told_why() {
    let failing = cell([duel()]).with(|cell| {
        cell.retry_in_ms = 4_000;
        cell.failure = Some("the image cannot be pulled".into());
        cell.config.min_lobbies = 3;
        let spares = SpareMatches { min_matches: 1 };
        cell.config.matchmaker.modes.insert("duel".into(), spares);
    });
    failing.check(&[]);
    failing.check_again(Some(4_000));
    let why = "Failed: the image cannot be pulled";
    failing
        .clone()
        .waiting(1)
        .check(&["tell 1 Failed #1: the image cannot be pulled"]);
    let told = [format!("tell 1 {why}"), format!("tell 2 {why}")];
    failing
        .clone()
        .lobby(1)
        .wishers(1, "duel", 2)
        .check(&[&told[0], &told[1]]);
    // What starts already may come to something.
    failing
        .clone()
        .venue(1, VenueState::Pending, None)
        .waiting(1)
        .check(&["tell 1 Starting #1"]);
    // Where there is room, failures elsewhere do not matter; where the limit is reached, they are not the reason.
    failing.clone().lobby(1).waiting(1).check(&["1 to 1"]);
    failing
        .with(|cell| {
            cell.failure = None;
            cell.config.lobby.max_assignments = 1;
            cell.config.max_lobbies = 1;
        })
        .lobby(1)
        .members(1, None, 1)
        .waiting(1)
        .check(&["tell 2 Queued #1: all lobbies are full"]);
    cell([])
        .with(|cell| cell.retry_in_ms = 1)
        .waiting(1)
        .check(&["tell 1 Failed #1: the game server did not start; trying again"]);
}

#[test]
fn players_of_a_venue_that_is_gone_queue_again_and_hear_why() {
    // There is room elsewhere: they move at once. The reason comes with the move.
    let lost = cell([]).lobby(1).members(1, None, 1).lobby(2).gone("the host vanished");
    let steps = lost.clone().members(2, None, 1).sentences();
    assert_eq!(steps, ["2 queues", "2 to 1", "tell 2 Ready: the host vanished"]);
    // There is none: the reason, which the step tells, is not drowned out; the place in the line follows.
    let full = lost.with(|cell| cell.config.lobby.max_assignments = 1);
    let full = full.members(2, None, 1).waiting(1);
    full.check(&["2 queues", "create a lobby", "create a lobby", "tell 3 Starting #2"]);
    full.check_again(Some(1_000));
    // The same for a match, and for a venue that nobody knows any more.
    cell([duel()])
        .lobby(1)
        .a_match(2, "duel")
        .gone("the match is over")
        .members(2, Some("red"), 1)
        .members(9, None, 1)
        .check(&[
            "1 queues",
            "1 to 1",
            "tell 1 Ready: the match is over",
            "2 queues",
            "2 to 1",
        ]);
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

#[test]
fn a_burst_starts_in_pieces() {
    let burst = cell([duel()])
        .with(|cell| cell.config.matchmaker.max_matches = 10_000)
        .lobby(1)
        .wishers(1, "duel", 1_000);
    let created = burst
        .sentences()
        .iter()
        .filter(|sentence| sentence.starts_with("create"))
        .count();
    assert_eq!(created, CREATED_MAX);
    burst.check_again(Some(AGAIN_MIN_MS));
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

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
        prop_assert!(plan.created <= CREATED_MAX);
        prop_assert!(plan.again_in_ms.is_none_or(|ms| ms >= AGAIN_MIN_MS));
    }
}
