//! The rules of the game, seen from outside.

use shooter_simulation::*;

const FOREVER: Rules = Rules {
    frag_limit: 0,
    time_limit: 0,
};

fn enter(player: u16) -> Command {
    Command::Enter { player, bot: false }
}

fn world_of(mode: Mode, rules: Rules, players: &[u16]) -> World {
    let mut world = World::new(11, mode, rules);
    let commands: Vec<_> = players.iter().map(|&player| enter(player)).collect();
    world.step(&commands);
    world
}

fn world_with_bots(seed: u32, mode: Mode, rules: Rules, bots: u16) -> World {
    let mut world = World::new(seed, mode, rules);
    let commands: Vec<_> = (0..bots).map(|player| Command::Enter { player, bot: true }).collect();
    world.step(&commands);
    world
}

fn player(world: &World, id: u16) -> &Player {
    world.player(id).expect("the player is in the match")
}

/// One input that counts on from the player's last one.
fn input(world: &World, id: u16, move_x: i8, move_y: i8, aim: u16, fire: bool) -> Command {
    Command::Input {
        player: id,
        input: Input {
            sequence: player(world, id).acknowledged + 1,
            move_x,
            move_y,
            aim,
            fire,
        },
    }
}

/// Walks the hunter to its prey, over the bots' own way of seeing: straight when free, else around by random walks; then shoots.
fn hunt(world: &mut World, hunter: u16, prey: u16, ticks_max: u32, done: impl Fn(&World) -> bool) {
    let mut random = 1u32;
    let mut detour = (0i8, 0i8);
    for tick in 0..ticks_max {
        if done(world) {
            return;
        }
        let (me, them) = (player(world, hunter).body, player(world, prey).body);
        let (x, y) = (them.x - me.x, them.y - me.y);
        let aim = angle_of(x, y);
        let sees = world.map().sees(me.x, me.y, them.x, them.y);
        if tick % 40 == 0 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            detour = ((random >> 16) as i8, (random >> 24) as i8);
        }
        let (cos, sin) = direction(aim);
        let (move_x, move_y) = if sees {
            ((cos / 520) as i8, (sin / 520) as i8)
        } else {
            detour
        };
        let command = input(world, hunter, move_x, move_y, aim, sees);
        world.step(&[command]);
    }
    panic!("the hunt took more than {ticks_max} ticks");
}

#[test]
fn a_player_without_inputs_stands_still() {
    let mut world = world_of(Mode::Duel, FOREVER, &[1]);
    let command = input(&world, 1, 127, 0, 0, false);
    world.step(&[command]);
    let before = player(&world, 1).body;
    for _ in 0..100 {
        world.step(&[]);
    }
    assert_eq!(player(&world, 1).body, before);
}

#[test]
fn the_server_moves_a_player_exactly_as_prediction_does() {
    let mut world = world_of(Mode::Arena, FOREVER, &[1, 2]);
    let map = Map::new(world.seed(), world.mode());
    let mut predicted = player(&world, 1).body;
    for tick in 0..2_000u32 {
        let (x, y) = ((tick / 50 * 77) as i8, (tick / 70 * 131) as i8);
        let command = input(&world, 1, x, y, (tick * 91) as u16, tick % 3 == 0);
        let Command::Input { input, .. } = command else {
            unreachable!()
        };
        predicted = predicted.predict(&input, &map);
        world.step(&[command]);
        assert_eq!(player(&world, 1).body, predicted, "at tick {tick}");
    }
}

#[test]
fn the_order_in_which_commands_arrive_does_not_matter() {
    let mut forward = world_of(Mode::Duel, FOREVER, &[1, 2]);
    let mut backward = forward.clone();
    for tick in 1..500u32 {
        let mut commands = Vec::new();
        for id in [1, 2] {
            for number in 0..2 {
                commands.push(Command::Input {
                    player: id,
                    input: Input {
                        sequence: tick * 2 + number,
                        move_x: (tick as u16 * id) as i8,
                        move_y: 100,
                        aim: (tick * 300) as u16,
                        fire: true,
                    },
                });
            }
        }
        forward.step(&commands);
        commands.reverse();
        backward.step(&commands);
        assert_eq!(forward.checksum(), backward.checksum(), "at tick {tick}");
    }
}

#[test]
fn an_input_that_was_applied_is_not_applied_again() {
    let mut world = world_of(Mode::Duel, FOREVER, &[1]);
    let command = input(&world, 1, 127, 0, 0, false);
    world.step(&[command]);
    let after = player(&world, 1).body;
    world.step(&[command, command]);
    assert_eq!(player(&world, 1).body, after);
}

#[test]
fn a_flood_of_inputs_is_no_faster_than_the_limit_per_tick() {
    let mut world = world_of(Mode::Arena, FOREVER, &[1]);
    let before = player(&world, 1).body;
    let flood: Vec<_> = (1..=200)
        .map(|sequence| Command::Input {
            player: 1,
            input: Input {
                sequence,
                move_x: 127,
                ..Input::default()
            },
        })
        .collect();
    world.step(&flood);
    assert!((player(&world, 1).body.x - before.x).abs() <= PLAYER_SPEED * i32::from(INPUTS_PER_TICK_MAX));
    assert_eq!(player(&world, 1).acknowledged, u32::from(INPUTS_PER_TICK_MAX));
}

#[test]
fn holding_the_trigger_fires_six_times_a_second() {
    let mut world = world_of(Mode::Duel, FOREVER, &[1]);
    let mut shots = 0;
    for _ in 0..600 {
        let command = input(&world, 1, 0, 0, 0, true);
        world.step(&[command]);
        shots += world
            .events()
            .iter()
            .filter(|event| matches!(event, Event::Shot { .. }))
            .count();
    }
    assert_eq!(shots, 60);
}

#[test]
fn five_hits_kill_and_the_dead_return_protected_after_two_seconds() {
    let mut world = world_of(Mode::Duel, FOREVER, &[1, 2]);
    hunt(&mut world, 1, 2, 20_000, |world| player(world, 2).deaths == 1);
    assert_eq!((player(&world, 1).kills, player(&world, 1).deaths), (1, 0));
    assert!(!player(&world, 2).alive());
    assert!(world.events().iter().any(|event| matches!(
        event,
        Event::Kill {
            player: 1,
            victim: 2,
            ..
        }
    )));
    for tick in 1..u32::from(RESPAWN_TICKS) {
        world.step(&[]);
        assert!(!player(&world, 2).alive(), "back too early, after {tick} ticks");
    }
    world.step(&[]);
    assert!(player(&world, 2).alive());
    assert_eq!(player(&world, 2).health, HEALTH_MAX);
    assert!(player(&world, 2).protection > 0);
}

#[test]
fn the_frag_limit_ends_the_match_and_nothing_moves_any_more() {
    let rules = Rules {
        frag_limit: 2,
        time_limit: 0,
    };
    let mut world = world_of(Mode::Duel, rules, &[1, 2]);
    assert_eq!(world.outcome(), None);
    hunt(&mut world, 1, 2, 60_000, |world| world.outcome().is_some());
    assert_eq!(world.outcome(), Some(Outcome { winner: Some(1) }));
    let before = player(&world, 1).body;
    let command = input(&world, 1, 127, 127, 0, true);
    world.step(&[command]);
    assert_eq!(player(&world, 1).body, before);
    assert!(world.projectiles().is_empty());
}

#[test]
fn when_time_is_up_equal_players_draw() {
    let rules = Rules {
        frag_limit: 0,
        time_limit: 100,
    };
    let mut world = world_of(Mode::Duel, rules, &[1, 2]);
    for _ in 0..98 {
        world.step(&[]);
        assert_eq!(world.outcome(), None);
    }
    world.step(&[]);
    assert_eq!(world.outcome(), Some(Outcome { winner: None }));
}

#[test]
fn who_leaves_is_gone_and_who_enters_again_starts_from_nothing() {
    let mut world = world_of(Mode::Duel, FOREVER, &[1, 2]);
    hunt(&mut world, 1, 2, 20_000, |world| player(world, 2).deaths == 1);
    world.step(&[Command::Leave { player: 1 }]);
    assert!(world.player(1).is_none());
    world.step(&[enter(1)]);
    assert_eq!(player(&world, 1).kills, 0);
}

#[test]
fn a_hundred_bots_stay_outside_of_walls_and_fight() {
    let mut world = world_with_bots(5, Mode::Arena, FOREVER, 100);
    let (mut kills, mut moved, mut lived) = (0, 0u64, 0u64);
    for tick in 0..3_000 {
        world.step(&[]);
        for player in world.players().iter().filter(|player| player.alive()) {
            assert!(
                world.map().is_free(player.body.x, player.body.y, PLAYER_RADIUS),
                "bot {} is in a wall at tick {tick}",
                player.id
            );
            lived += 1;
            moved += u64::from(player.step_x != 0 || player.step_y != 0);
        }
        for projectile in world.projectiles() {
            assert!(
                world.map().is_free(projectile.x, projectile.y, 0),
                "a projectile is in a wall at tick {tick}"
            );
        }
        kills += world
            .events()
            .iter()
            .filter(|event| matches!(event, Event::Kill { .. }))
            .count();
    }
    assert!(kills > 100, "only {kills} kills in 50 seconds");
    let share = moved * 100 / lived;
    assert!(share > 80, "bots moved in only {share} % of the ticks");
}

#[test]
fn bots_find_each_other_in_every_duel() {
    for seed in 0..30 {
        let rules = Rules {
            frag_limit: 3,
            time_limit: 0,
        };
        let mut world = world_with_bots(seed, Mode::Duel, rules, 2);
        let mut ticks = 0;
        while world.outcome().is_none() {
            world.step(&[]);
            ticks += 1;
            assert!(ticks < 3 * 60 * 60, "seed {seed}: no three kills in three minutes");
        }
    }
}

#[test]
fn bots_miss_often_enough_to_be_beaten() {
    let mut world = world_with_bots(9, Mode::Arena, FOREVER, 24);
    let (mut shots, mut hits) = (0, 0);
    for _ in 0..6_000 {
        world.step(&[]);
        for event in world.events() {
            match event {
                Event::Shot { .. } => shots += 1,
                Event::Hit { .. } => hits += 1,
                _ => {}
            }
        }
    }
    let accuracy = hits * 100 / shots;
    assert!((10..60).contains(&accuracy), "{hits} of {shots} shots hit");
}

#[test]
fn a_restored_world_goes_on_exactly_as_the_one_it_was_taken_of() {
    let mut world = world_with_bots(3, Mode::Arena, FOREVER, 40);
    for _ in 0..700 {
        world.step(&[]);
    }
    let mut restored = World::restore(&world.snapshot()).expect("its own snapshot");
    assert_eq!(restored.checksum(), world.checksum());
    for tick in 0..1_000 {
        world.step(&[]);
        restored.step(&[]);
        assert_eq!(restored.checksum(), world.checksum(), "{tick} ticks after");
    }
}

#[test]
fn broken_snapshots_and_recordings_are_refused() {
    let mut world = world_with_bots(3, Mode::Duel, FOREVER, 4);
    let mut recorder = Recorder::new(&World::new(3, Mode::Duel, FOREVER));
    recorder.note(&[enter(1)], &world);
    world.step(&[]);
    let recording = recorder.finish(&world);
    let snapshot = world.snapshot();
    for length in 0..snapshot.len() {
        assert!(
            World::restore(&snapshot[..length]).is_err(),
            "{length} bytes of a snapshot"
        );
    }
    for length in 0..recording.len() {
        assert!(
            Recording::parse(&recording[..length]).is_err(),
            "{length} bytes of a recording"
        );
    }
}
