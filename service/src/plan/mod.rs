//! Pure decisions: a snapshot in, steps out. No clock, no randomness, no ids of their own: they are told.

pub mod cell;
pub mod placement;
