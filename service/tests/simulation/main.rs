//! The planners against a world in which game servers start slowly, fail and die, hosts vanish, workers are killed, and
//! players do as they please. The world carries out steps as the service does, event by event; nothing looks again unless
//! an event or a timer says so.

mod check;
mod jobs;
mod random;
mod world;

use std::time::Instant;

use omgservers_protocol::config::{DeploymentConfig, GroupConfig, ModeConfig, RuntimeQualifier, VersionConfig};
use omgservers_protocol::id::{ClientId, MatchId};
use omgservers_service::plan::cell::{Cell, CellState, Limits, Seat, Step, Venue, VenueState, plan};
use world::World;

const SEEDS: u64 = 1_000;
const MISHAPS: usize = 40;

#[test]
fn players_find_their_places_whatever_happens() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        for _ in 0..MISHAPS {
            world.mishap();
            world.work(); // … and the worker may be killed half way
        }
        world.settle();
        check::settled(&world);
        world.everybody_leaves();
        world.settle();
        check::deserted(&world);
    }
}

#[test]
fn a_deployment_that_is_replaced_or_deleted_ends() {
    for seed in 0..SEEDS / 2 {
        for state in [CellState::Draining, CellState::Closing] {
            let mut world = World::new(seed);
            for at in 0..MISHAPS {
                world.mishap();
                if at == MISHAPS / 2 {
                    world.replace(state);
                }
                world.work();
            }
            world.settle();
            check::settled(&world);
            world.everybody_leaves();
            world.settle();
            check::deserted(&world);
        }
    }
}

/// Measured, not asserted: the machine may be busy.
#[test]
fn a_plan_for_ten_thousand_players_takes_milliseconds() {
    let group = |name: &str| GroupConfig {
        name: name.into(),
        min_players: 1,
        max_players: 1,
    };
    let version = VersionConfig {
        modes: vec![ModeConfig {
            name: "duel".into(),
            min_players: 2,
            max_players: 2,
            groups: vec![group("red"), group("blue")],
        }],
        user_data: None,
    };
    let mut config = DeploymentConfig {
        max_lobbies: 1_000,
        ..DeploymentConfig::default()
    };
    config.lobby.max_assignments = 10;
    config.matchmaker.max_matches = 10_000;
    let venue = |id: i64, mode: Option<&str>| Venue {
        id: MatchId(id),
        qualifier: mode.map_or(RuntimeQualifier::Lobby, |_| RuntimeQualifier::Match),
        mode: mode.map(str::to_owned),
        state: VenueState::Open,
        reason: None,
        progress: None,
        empty_for_ms: 0,
    };
    let seat = |id: i64, venue: Option<i64>, wish: Option<&str>| Seat {
        client: ClientId(id),
        venue: venue.map(MatchId),
        group: None,
        wanted_mode: wish.map(str::to_owned),
        line: id,
        told: None,
        is_dismissed: false,
    };
    let lobbies = || (0..1_000).map(|id| venue(id, None));
    let matches = || (1_000..6_000).map(|id| venue(id, Some("duel")));
    let in_lobby = |wish| {
        (0..10_000)
            .map(move |id| seat(id, Some(id % 1_000), wish))
            .collect::<Vec<_>>()
    };
    let cases = [
        (
            "all wait, no lobby",
            vec![],
            (0..10_000).map(|id| seat(id, None, None)).collect(),
        ),
        (
            "all wait, 1,000 lobbies",
            lobbies().collect(),
            (0..10_000).map(|id| seat(id, None, None)).collect(),
        ),
        ("nothing to do", lobbies().collect(), in_lobby(None)),
        ("all wish, no match", lobbies().collect(), in_lobby(Some("duel"))),
        (
            "all wish, 5,000 matches",
            lobbies().chain(matches()).collect(),
            in_lobby(Some("duel")),
        ),
        (
            "all play and want a rematch",
            lobbies().chain(matches()).collect(),
            (0..10_000)
                .map(|id| seat(id, Some(1_000 + id / 2), Some("duel")))
                .collect(),
        ),
    ];
    for (name, venues, seats) in cases {
        let cell = Cell {
            state: CellState::Active,
            version: &version,
            config: &config,
            venues,
            seats,
            retry_in_ms: 0,
            failure: None,
            empty_ms: 16_000,
            limits: Limits {
                steps: usize::MAX,
                ..Limits::default()
            },
        };
        let begun = Instant::now();
        let plan = plan(&cell);
        let took = begun.elapsed();
        let moves = plan
            .steps
            .iter()
            .filter(|step| matches!(step, Step::Move { .. }))
            .count();
        println!(
            "10,000 players, {name}: {took:.1?}, {} steps, {moves} moves",
            plan.steps.len()
        );
        if name.contains("1,000 lobbies") || name.contains("5,000 matches") {
            assert_eq!(moves, 10_000, "{name}");
        }
    }
}
