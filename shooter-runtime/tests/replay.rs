//! Matches that are played again, and worlds that must not drift apart.

use std::path::Path;

use crate::support::Table;
use omgservers_runtime_sdk::ClientId;
use shooter_simulation::{Command, Input, Mode, Recorder, Recording, ReplayError, Rules, World};

const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/arena.recording");
/// The world's checksum at the end of the recorded match.
const RECORDED_CHECKSUM: u64 = 0xd371_a461_204d_961b;

/// A minute in the arena: two people who hunt, twelve bodies, somebody leaves and somebody comes.
fn play() -> Table {
    let mut table = Table::new(Mode::Arena, r#"{"bots":{"arena":12},"frag_limit":50}"#);
    table.server.record();
    let (ann, bob, cat) = (ClientId(1), ClientId(2), ClientId(3));
    table.join(ann);
    table.join(bob);
    let mut people = vec![ann, bob];
    for tick in 0..3_600u32 {
        if tick == 1_200 {
            table.server.remove(bob);
            people = vec![ann];
        }
        if tick == 1_500 {
            table.join(cat);
            people = vec![ann, cat];
        }
        for &client in &people {
            let prey = table.client(client).nearest().unwrap_or(0);
            let packet = table.client(client).hunt(prey);
            table.server.handle(client, &packet);
        }
        table.tick();
    }
    table
}

#[test]
fn the_recorded_match_ends_with_the_recorded_checksum() {
    let bytes = std::fs::read(Path::new(RECORDED)).expect("the recording is part of the repository");
    let recording = Recording::parse(&bytes).expect("a recording");
    let world = recording.replay().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(world.tick(), 3_600);
    assert_eq!(world.checksum(), RECORDED_CHECKSUM);
    assert!(
        world.standings().iter().any(|standing| standing.kills > 0),
        "nothing happened"
    );
}

/// Writes the recording anew, after the rules of the game have changed: `cargo test -p shooter-runtime -- --ignored`.
#[test]
#[ignore = "writes tests/arena.recording"]
fn write_the_recorded_match() {
    let table = play();
    let bytes = table.server.recording().expect("it was recorded");
    std::fs::write(RECORDED, &bytes).expect("the folder can be written");
    println!(
        "RECORDED_CHECKSUM = 0x{:016x}, {} bytes",
        table.server.world().checksum(),
        bytes.len()
    );
}

#[test]
fn a_match_over_packets_is_reproduced_by_its_recording() {
    let table = play();
    let bytes = table.server.recording().expect("it was recorded");
    let world = Recording::parse(&bytes)
        .expect("a recording")
        .replay()
        .expect("the same match");
    assert_eq!(world.checksum(), table.server.world().checksum());
}

#[test]
fn a_changed_command_is_found_out() {
    let play = |tampered_tick: Option<u32>| {
        let mut world = World::new(4, Mode::Duel, Rules::default());
        let mut recorder = Recorder::new(&world);
        for tick in 0..300 {
            let input = |move_x| Command::Input {
                player: 1,
                input: Input {
                    sequence: tick + 1,
                    move_x,
                    ..Input::default()
                },
            };
            let enter = Command::Enter { player: 1, bot: false };
            let done = if tick == 0 { enter } else { input(3) };
            world.step(&[done]);
            let noted = if Some(tick) == tampered_tick { input(-3) } else { done };
            recorder.note(&[noted], &world);
        }
        let recording = Recording::parse(&recorder.finish(&world)).expect("a recording");
        recording.replay().map(|world| world.tick())
    };
    assert_eq!(play(None), Ok(300));
    for tampered in [1, 59, 60, 61, 150, 299] {
        let Err(ReplayError::Diverged { tick, .. }) = play(Some(tampered)) else {
            panic!("the change of tick {tampered} was not found out");
        };
        // Found at the next checksum.
        assert_eq!(tick, tampered / 60 * 60 + 60, "the change of tick {tampered}");
    }
}

#[test]
fn two_worlds_with_the_same_inputs_stay_equal_for_thousands_of_ticks_with_a_hundred_bots() {
    for mode in Mode::ALL {
        let rules = Rules {
            frag_limit: 0,
            time_limit: 0,
        };
        let mut worlds = [World::new(21, mode, rules), World::new(21, mode, rules)];
        let enter: Vec<_> = (0..100).map(|player| Command::Enter { player, bot: true }).collect();
        for world in &mut worlds {
            world.step(&enter);
        }
        for tick in 0..4_000 {
            for world in &mut worlds {
                world.step(&[]);
            }
            if tick % 50 == 0 {
                // One of them is put away and taken out again.
                worlds[1] = World::restore(&worlds[1].snapshot()).expect("its own snapshot");
            }
            assert_eq!(worlds[0].checksum(), worlds[1].checksum(), "{mode:?}, tick {tick}");
        }
    }
}

#[test]
fn another_seed_gives_another_match() {
    let run = |seed| {
        let mut world = World::new(seed, Mode::Arena, Rules::default());
        let enter: Vec<_> = (0..10).map(|player| Command::Enter { player, bot: true }).collect();
        world.step(&enter);
        for _ in 0..200 {
            world.step(&[]);
        }
        world.checksum()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}
