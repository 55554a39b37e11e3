//! The simulation's face for browsers: the map and the movement of the own body, as plain functions over numbers.
//!
//! Imports nothing. One map and one body at a time. `PROTOCOL.md` says what each function means.
#![expect(
    unsafe_code,
    reason = "exporting a function under its plain name is an unsafe attribute"
)]

use std::cell::RefCell;

use shooter_simulation::{self as simulation, Body, Input, Map, Mode};

struct State {
    map: Map,
    /// Four numbers per wall, as the browser reads them from memory.
    walls: Vec<i32>,
    body: Body,
}

thread_local! {
    static STATE: RefCell<Option<State>> = const { RefCell::new(None) };
}

/// Runs `act` on the loaded map; `otherwise` before there is one.
fn with<T>(otherwise: T, act: impl FnOnce(&mut State) -> T) -> T {
    STATE.with_borrow_mut(|state| match state {
        Some(state) => act(state),
        None => otherwise,
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn load_map(seed: u32, mode: u32) -> u32 {
    let Some(mode) = u8::try_from(mode).ok().and_then(Mode::from_number) else {
        return u32::MAX;
    };
    let map = Map::new(seed, mode);
    let walls: Vec<i32> = map
        .walls()
        .iter()
        .flat_map(|wall| [wall.left, wall.top, wall.right, wall.bottom])
        .collect();
    let count = map.walls().len() as u32;
    STATE.set(Some(State {
        map,
        walls,
        body: Body::default(),
    }));
    count
}

#[unsafe(no_mangle)]
pub extern "C" fn walls() -> *const i32 {
    with(std::ptr::null(), |state| state.walls.as_ptr())
}

#[unsafe(no_mangle)]
pub extern "C" fn map_width() -> i32 {
    with(0, |state| state.map.width())
}

#[unsafe(no_mangle)]
pub extern "C" fn map_height() -> i32 {
    with(0, |state| state.map.height())
}

#[unsafe(no_mangle)]
pub extern "C" fn set_body(x: i32, y: i32) {
    with((), |state| (state.body.x, state.body.y) = (x, y));
}

#[unsafe(no_mangle)]
pub extern "C" fn apply_input(move_x: i32, move_y: i32) {
    let share = |value: i32| value.clamp(i8::MIN.into(), i8::MAX.into()) as i8;
    let input = Input {
        move_x: share(move_x),
        move_y: share(move_y),
        ..Input::default()
    };
    with((), |state| state.body = state.body.predict(&input, &state.map));
}

#[unsafe(no_mangle)]
pub extern "C" fn body_x() -> i32 {
    with(0, |state| state.body.x)
}

#[unsafe(no_mangle)]
pub extern "C" fn body_y() -> i32 {
    with(0, |state| state.body.y)
}

#[unsafe(no_mangle)]
pub extern "C" fn ray(x0: i32, y0: i32, x1: i32, y1: i32) -> i32 {
    with(0, |state| state.map.ray(x0, y0, x1, y1))
}

macro_rules! constants {
    ($($name:ident = $value:expr;)*) => {
        $(#[unsafe(no_mangle)]
        pub extern "C" fn $name() -> i32 {
            $value
        })*
    };
}

constants! {
    tick_rate = simulation::TICK_RATE as i32;
    units_per_pixel = simulation::UNITS_PER_PIXEL;
    player_radius = simulation::PLAYER_RADIUS;
    player_speed = simulation::PLAYER_SPEED;
    projectile_radius = simulation::PROJECTILE_RADIUS;
    projectile_speed = simulation::PROJECTILE_SPEED;
    projectile_ticks = simulation::PROJECTILE_TICKS.into();
    cooldown_ticks = simulation::COOLDOWN_TICKS.into();
    respawn_ticks = simulation::RESPAWN_TICKS.into();
    health_max = simulation::HEALTH_MAX.into();
}
