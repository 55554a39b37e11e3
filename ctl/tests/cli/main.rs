//! The command line from outside: what it prints, where, and how it exits.

#![expect(clippy::unwrap_used, reason = "a helper that panics fails its test")]

mod commands;
mod help;
mod image;
mod part;
mod run;
mod service;
mod supervisor;
