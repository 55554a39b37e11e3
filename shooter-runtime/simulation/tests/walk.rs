//! Walks whose ends are written down, so that the build for browsers (`wasm/check.mjs`) can be held against them.

use std::fmt::Write;

use shooter_simulation::{Body, Input, Map, Mode};

#[test]
fn walks_end_where_they_ended_when_they_were_written_down() {
    let mut found = String::new();
    for mode in Mode::ALL {
        for seed in 1..=5u32 {
            let map = Map::new(seed, mode);
            let mut body = Body {
                x: 19_200,
                y: 19_200,
                aim: 0,
            };
            let mut random = seed;
            let mut next = || {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (random as i32 >> 24) as i8
            };
            for _ in 0..100 {
                let input = Input {
                    move_x: next(),
                    move_y: next(),
                    ..Input::default()
                };
                for _ in 0..60 {
                    body = body.predict(&input, &map);
                }
            }
            let ray = map.ray(19_200, 19_200, map.width() - 500, map.height() - 300);
            let (number, walls) = (mode.number(), map.walls().len());
            writeln!(found, "{number} {seed} {walls} {} {} {ray}", body.x, body.y).expect("a string takes it");
        }
    }
    assert_eq!(found, include_str!("walk.golden"));
}
