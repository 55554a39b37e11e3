//! Lobbies, the line for them, and what those in it are told.

use omgservers_protocol::config::SpareMatches;
use omgservers_protocol::message::{ProvisioningStage, ProvisioningStatus};

use super::super::VenueState;
use super::{EMPTY_MS, Setup, cell, duel};

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

/// What the last seat was told.
fn told(cell: Setup, stage: ProvisioningStage, position: Option<u32>, detail: &str) -> Setup {
    cell.with(|cell| {
        cell.seats.last_mut().unwrap().told = Some(ProvisioningStatus {
            stage,
            position,
            detail: Some(detail.into()),
        });
    })
}

#[test]
fn whoever_lost_a_place_reads_why_with_the_next_one() {
    use ProvisioningStage::{Queued, Ready};
    let lobby = || cell([]).lobby(1);
    let why = "tell 1 Ready: the host vanished";
    // It queued in a plan before …
    told(lobby().waiting(1), Queued, None, "the host vanished").check(&["1 to 1", why]);
    // … or lost two places for the same reason.
    let twice = lobby().lobby(2).gone("the host vanished").members(2, None, 1);
    told(twice, Ready, None, "the host vanished").check(&["1 queues", "1 to 1", why]);
    // Whoever only waited in line lost nothing.
    told(lobby().waiting(1), Queued, Some(1), "all lobbies are full").check(&["1 to 1"]);
}
