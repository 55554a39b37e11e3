//! The world of the shooter: what is the same on the server, in the browser and in a replay.
//!
//! A fixed tick, integers only, one seeded source of chance, and commands in one order: the same seed and the same commands
//! give the same state, bit by bit. Knows nothing of clocks, sockets, files or threads.
//!
//! [`World`] is the whole match; [`Map`] and [`Body`] alone are what a browser needs to predict its own player.

mod body;
mod bot;
mod bytes;
mod collision;
mod command;
mod crowd;
mod entity;
mod fixed;
mod map;
mod navigation;
mod random;
mod recording;
mod rules;
mod world;

pub use body::Body;
pub use bytes::Broken;
pub use command::{Command, Input};
pub use entity::{Event, Outcome, Player, Projectile, Standing};
pub use fixed::{angle_of, direction};
pub use map::{Map, Point, Wall};
pub use recording::{Recorder, Recording, ReplayError};
pub use rules::*;
pub use world::World;
