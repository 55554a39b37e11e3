//! Modes, groups, matches and spare matches.

use omgservers_protocol::config::SpareMatches;

use super::super::VenueState;
use super::{EMPTY_MS, Setup, arena, cell, duel, mode};

/// So many matches of duels are kept ready.
fn with_spares(cell: Setup, count: u32) -> Setup {
    cell.with(|cell| {
        let spares = SpareMatches { min_matches: count };
        cell.config.matchmaker.modes.insert("duel".into(), spares);
    })
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
    let spares = |count| with_spares(cell([duel()]), count).lobby(1).members(1, None, 1);
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
    let kept = with_spares(base, 1).a_match(2, "duel").empty_for(EMPTY_MS);
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
    let base = with_spares(cell([duel(), arena()]), 1).lobby(1);
    let base = base.with(|cell| cell.config.matchmaker.max_matches = 1);
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
fn the_place_of_a_surplus_match_goes_to_a_wanted_spare_at_once() {
    with_spares(cell([duel(), arena()]), 1)
        .with(|cell| cell.config.matchmaker.max_matches = 1)
        .lobby(1)
        .members(1, None, 1)
        .a_match(2, "arena")
        .empty_for(EMPTY_MS)
        .check(&["remove 2: nobody was in it", "create a match of duel"]);
}

#[test]
fn a_match_that_is_given_up_while_it_starts_no_longer_counts_as_starting() {
    let full = cell([duel(), arena()]).with(|cell| {
        cell.config.matchmaker.max_matches = 2;
        cell.limits.starting = 3;
    });
    full.lobby(1)
        .venue(2, VenueState::Pending, Some("arena"))
        .venue(3, VenueState::Pending, Some("arena"))
        .wishers(1, "duel", 4)
        .check(&[
            "remove 2: players needed its place",
            "remove 3: players needed its place",
            "create a match of duel",
            "create a match of duel",
            "tell 1 Starting",
            "tell 2 Starting",
            "tell 3 Starting",
            "tell 4 Starting",
        ]);
}
