//! Hosts, for real: a private Docker engine, and this machine's own processes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on shall panic")]

mod docker;
#[path = "../../../tests/engine.rs"]
pub mod engine;
mod guest;
mod process;
