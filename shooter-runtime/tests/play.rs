//! Matches as players live them, over packets alone.

use crate::support::Table;
use omgservers_runtime_sdk::ClientId;
use shooter_runtime::match_server::Output;
use shooter_runtime::packets::Inputs;
use shooter_runtime::wire::EventKind;
use shooter_simulation::{Input, Mode};

const ANN: ClientId = ClientId(1);
const BOB: ClientId = ClientId(2);
const CAT: ClientId = ClientId(3);

fn duel() -> Table {
    let mut table = Table::new(Mode::Duel, "{}");
    table.join(ANN);
    table.join(BOB);
    table.ticks(4);
    table
}

/// Everybody who is named hunts Bob until it is enough.
fn hunt(table: &mut Table, ticks_max: u32, enough: impl Fn(&mut Table) -> bool) {
    let prey = table.server.player_of(BOB).expect("Bob has a body");
    for _ in 0..ticks_max {
        if enough(table) {
            return;
        }
        let packet = table.client(ANN).hunt(prey);
        assert!(table.server.handle(ANN, &packet));
        table.tick();
    }
    panic!("not within {ticks_max} ticks");
}

#[test]
fn players_are_welcomed_and_see_each_other() {
    let mut table = duel();
    assert_eq!(
        table.outputs,
        [Output::Upgrade { client: ANN }, Output::Upgrade { client: BOB }]
    );
    let bob = table.server.player_of(BOB).unwrap();
    let ann = table.client(ANN);
    assert_eq!(ann.names.len(), 2);
    assert!(ann.names.values().all(|(_, bot)| !bot));
    assert_eq!(ann.players.keys().copied().collect::<Vec<_>>(), [bob]);
    assert!(ann.own.is_some());
    assert_eq!(ann.scores.len(), 2);
}

#[test]
fn prediction_is_always_where_the_server_takes_the_player() {
    let mut table = duel();
    for tick in 0..1_500u32 {
        let (x, y) = ((tick / 40 * 91) as i8, (tick / 60 * 57) as i8);
        let packet = table.client(ANN).act(x, y, (tick * 77) as u16, false);
        let expected = table.client(ANN).predicted();
        table.server.handle(ANN, &packet);
        table.tick();
        let player = table.server.player_of(ANN).unwrap();
        assert_eq!(
            expected,
            table.server.world().player(player).map(|player| player.body),
            "at tick {tick}"
        );
    }
}

#[test]
fn lost_packets_cost_no_inputs_as_long_as_seven_in_a_row_are_not_lost() {
    let mut table = duel();
    let mut sent = 0;
    for tick in 0..600u32 {
        let packet = table.client(ANN).act(100, -50, 0, false);
        sent += 1;
        // Two thirds are lost, in runs of up to six.
        if tick % 7 == 6 {
            table.server.handle(ANN, &packet);
        }
        table.tick();
    }
    table.ticks(10);
    let applied = table.client(ANN).acknowledged;
    assert!(applied + 7 >= sent, "{applied} of {sent} inputs were applied");
    let player = table.server.player_of(ANN).unwrap();
    assert_eq!(table.server.world().player(player).unwrap().acknowledged, applied);
}

#[test]
fn events_reach_a_player_once_although_snapshots_are_lost() {
    let mut table = duel();
    let (mut shots, mut seen) = (0, 0);
    for tick in 0..900u32 {
        let packet = table.client(ANN).act(0, 0, 0, true);
        table.server.handle(ANN, &packet);
        table.server.tick();
        let events = table.server.world().events();
        shots += events
            .iter()
            .filter(|event| matches!(event, shooter_simulation::Event::Shot { .. }))
            .count();
        if tick % 5 == 0 {
            table.deliver();
        } else {
            // What comes now is lost on its way.
            while table.server.poll().is_some() {}
        }
    }
    table.ticks(4);
    seen += table
        .client(ANN)
        .events
        .iter()
        .filter(|event| event.kind() == EventKind::Shot)
        .count();
    assert!(shots > 80);
    assert_eq!(seen, shots);
}

#[test]
fn a_kill_counts_for_both_and_everybody_hears_of_it() {
    let mut table = duel();
    let (ann, bob) = (
        table.server.player_of(ANN).unwrap(),
        table.server.player_of(BOB).unwrap(),
    );
    hunt(&mut table, 30_000, |table| {
        table.client(BOB).scores.get(&ann).is_some_and(|score| score.0 == 1)
    });
    for client in [ANN, BOB] {
        let client = table.client(client);
        assert_eq!((client.scores[&ann], client.scores[&bob]), ((1, 0), (0, 1)));
        let kills = client.events.iter().filter(|event| event.kind() == EventKind::Kill);
        assert_eq!(
            kills.map(|event| (event.actor(), event.other())).collect::<Vec<_>>(),
            [(ann, bob)]
        );
    }
    assert!(table.client(BOB).own.unwrap().respawn_in() > 0);
    assert!(!table.client(ANN).players.contains_key(&bob), "the dead are not shown");
}

#[test]
fn the_winner_is_rewarded_and_everybody_goes_back_to_the_lobby() {
    let mut table = Table::new(Mode::Duel, r#"{"frag_limit":1,"closing_s":2}"#);
    table.join(ANN);
    table.join(BOB);
    hunt(&mut table, 30_000, |table| table.client(ANN).ranking.is_some());
    let ann = table.server.player_of(ANN).unwrap();
    let ranking = table.client(BOB).ranking.clone().expect("Bob hears of the end too");
    assert_eq!((ranking[0].0, ranking[0].2, ranking.len()), (ann, 1, 2));
    assert!(!table.client(BOB).draw);
    let profile_of = |table: &Table, wanted: ClientId| {
        table.outputs.iter().find_map(|output| match output {
            Output::SetProfile { client, profile } if *client == wanted => Some(profile.clone()),
            _ => None,
        })
    };
    let (winner, loser) = (profile_of(&table, ANN).unwrap(), profile_of(&table, BOB).unwrap());
    assert_eq!((winner.wins, winner.kills, winner.matches), (1, 1, 1));
    assert_eq!((loser.wins, loser.deaths, loser.matches), (0, 1, 1));
    let stop = table
        .outputs
        .iter()
        .filter(|output| **output == Output::StopMatchmaking)
        .count();
    assert_eq!(stop, 1);

    let kicked = |table: &Table| {
        table
            .outputs
            .iter()
            .filter(|output| matches!(output, Output::Kick { .. }))
            .count()
    };
    table.ticks(119);
    assert_eq!(kicked(&table), 0, "the ranking is shown for two seconds");
    table.ticks(2);
    assert_eq!(kicked(&table), 2);
    assert!(table.server.is_idle());

    // Matched at the last moment: sent back at once.
    table.server.add(CAT, Default::default());
    assert_eq!(table.server.poll(), Some(Output::Kick { client: CAT }));
}

#[test]
fn a_lost_connection_comes_back_to_the_same_body_and_score() {
    let mut table = duel();
    let ann = table.server.player_of(ANN).unwrap();
    hunt(&mut table, 30_000, |table| {
        table.client(ANN).scores.get(&ann).is_some_and(|score| score.0 == 1)
    });
    table.disconnect(ANN);
    let place = table.server.world().player(ann).unwrap().body;
    table.ticks(14 * 60);
    assert_eq!(
        table.server.world().player(ann).map(|player| player.body),
        Some(place),
        "it stands and waits"
    );
    assert_eq!(
        table.client(BOB).players.get(&ann).map(|player| player.flags() & 4),
        Some(4)
    );
    table.connect(ANN);
    table.ticks(4);
    assert_eq!(table.server.player_of(ANN), Some(ann));
    assert_eq!(table.client(ANN).scores[&ann].0, 1);
    // Inputs count on from where they were.
    let before = table.client(ANN).acknowledged;
    let packet = table.client(ANN).act(127, 0, 0, false);
    assert!(table.server.handle(ANN, &packet));
    table.ticks(4);
    assert_eq!(table.client(ANN).acknowledged, before + 1);
}

#[test]
fn a_body_without_connection_leaves_after_the_grace_time_and_a_bot_takes_its_place_in_a_duel() {
    let mut table = duel();
    table.disconnect(ANN);
    table.ticks(15 * 60);
    assert_eq!(table.client(BOB).names.values().filter(|(_, bot)| *bot).count(), 0);
    table.ticks(5);
    assert_eq!(table.server.player_of(ANN), None);
    let names = &table.client(BOB).names;
    assert_eq!((names.len(), names.values().filter(|(_, bot)| *bot).count()), (2, 1));
    // Coming back after all: a new body, and the bot goes.
    table.connect(ANN);
    table.ticks(4);
    let names = &table.client(BOB).names;
    assert_eq!((names.len(), names.values().filter(|(_, bot)| *bot).count()), (2, 0));
}

#[test]
fn bots_fill_an_arena_and_give_way_to_people() {
    let mut table = Table::new(Mode::Arena, r#"{"bots":{"arena":12}}"#);
    assert!(table.server.is_idle(), "an empty match costs nothing");
    table.join(ANN);
    assert!(!table.server.is_idle());
    table.ticks(4);
    let bots = |table: &mut Table| table.client(ANN).names.values().filter(|(_, bot)| *bot).count();
    assert_eq!(bots(&mut table), 11);
    table.join(BOB);
    table.join(CAT);
    table.ticks(4);
    assert_eq!((bots(&mut table), table.client(ANN).names.len()), (9, 12));
    table.server.remove(CAT);
    table.ticks(4);
    assert_eq!((bots(&mut table), table.client(ANN).names.len()), (10, 12));
    let names: std::collections::BTreeSet<_> = table.client(ANN).names.values().cloned().collect();
    assert_eq!(names.len(), 12, "everybody has a name of their own");
}

#[test]
fn who_leaves_before_the_first_tick_leaves_no_ghost() {
    let mut table = Table::new(Mode::Duel, "{}");
    table.join(ANN);
    table.server.remove(ANN);
    table.join(BOB);
    table.ticks(4);
    let bodies = table
        .server
        .world()
        .players()
        .iter()
        .filter(|player| !player.bot)
        .count();
    assert_eq!(bodies, 1);
}

#[test]
fn a_full_arena_fits_into_one_datagram_per_snapshot() {
    let mut table = Table::new(Mode::Arena, r#"{"bots":{"arena":24},"frag_limit":1000}"#);
    table.join(ANN);
    for _ in 0..60 * 60 {
        let packet = table.client(ANN).act(0, 0, 0, false);
        table.server.handle(ANN, &packet);
        table.tick();
    }
    let ann = table.client(ANN);
    assert!(ann.snapshots > 1_700);
    assert!(ann.snapshot_bytes_max <= 1_150, "{} bytes", ann.snapshot_bytes_max);
}

#[test]
fn packets_that_break_the_rules_change_nothing() {
    let mut table = duel();
    let before = table.server.world().checksum();
    assert!(!table.server.handle(ANN, b"hello"));
    assert!(!table.server.handle(ANN, &[]));
    assert!(!table.server.handle(CAT, b"hello"));
    assert_eq!(table.server.world().checksum(), before);

    // A lie about what was seen, and a jump to the last number there is, hurt nobody.
    let lie = Inputs {
        seen: u32::MAX,
        inputs: vec![Input {
            sequence: u32::MAX,
            ..Input::default()
        }],
    };
    assert!(table.server.handle(ANN, &lie.encode()));
    table.ticks(2);
    assert_eq!(table.client(ANN).acknowledged, 0);
    let packet = table.client(ANN).act(127, 0, 0, false);
    table.server.handle(ANN, &packet);
    table.ticks(2);
    assert_eq!(table.client(ANN).acknowledged, 1);
}

#[test]
fn a_flood_of_packets_makes_nobody_faster() {
    let mut table = duel();
    let ann = table.server.player_of(ANN).unwrap();
    let mut way = 0i64;
    for _ in 0..300 {
        for _ in 0..20 {
            let packet = table.client(ANN).act(127, 0, 0, false);
            table.server.handle(ANN, &packet);
        }
        table.tick();
        way += i64::from(table.server.world().player(ann).unwrap().step_x.abs());
    }
    let most = i64::from(shooter_simulation::PLAYER_SPEED) * 340;
    assert!(way <= most, "{way} units in 300 ticks");
}
